from hypothesis import example, given
from hypothesis import strategies as st

from lakedex.codec.column_bounds import (
    LAST_COMMON,
    MAX_BOUND_LENGTH,
    is_order_safe,
    key_bounds,
    lower_bound,
    upper_bound,
)

# Characters around every place where the two orders part, and some plain ones.
EDGES = "a\x00\x7f\u00e9\ud7fe\ud7ff\ue000\uff21\uffff\U00010000\U0001f600\U0010fffe\U0010ffff"
TEXT = st.text(st.sampled_from(EDGES) | st.characters(codec="utf-8"), max_size=12)
LONG = st.builds(lambda a, n, b: a * n + b, TEXT, st.integers(0, 300), TEXT)
KEYS = st.lists(st.one_of(TEXT, LONG), min_size=1, max_size=8).map(lambda keys: [key or "k" for key in keys])


def utf16(text: str) -> bytes:
    """Orders as ``String.compareTo`` does."""
    return text.encode("utf-16-be", "surrogatepass")


def limits(keys: list[str]) -> tuple[str, str]:
    return min(keys, key=str.encode), max(keys, key=str.encode)


@given(KEYS)
@example(["k\uff21", "k\U0001f600"])
@example(["\U0001f600", "a"])
@example(["\uff21", "a"])
def test_bounds_of_keys_hold_in_the_order_of_reads(keys: list[str]) -> None:
    low, high = key_bounds(*limits(keys))
    for key in keys:
        assert low.encode() <= key.encode() <= high.encode()


@given(KEYS)
@example(["k\uff21", "k\U0001f600"])
@example(["\uff21", "a"])
@example(["\uffff" * 3, "a"])
@example(["\U0001f600", "a"])
@example(["a", "\ud7ff"])
@example(["a", "\ud7ff" * 300])
def test_bounds_of_keys_hold_in_the_order_of_java(keys: list[str]) -> None:
    first = {key[0] for key in keys}
    # No upper bound holds in both orders where keys start with characters of both regions.
    if any("\ud7ff" < c <= "\uffff" for c in first) and any(c > "\uffff" for c in first):
        return
    low, high = key_bounds(*limits(keys))
    for key in keys:
        assert utf16(low) <= utf16(key) <= utf16(high)


@given(KEYS)
def test_bounds_of_plain_keys_are_safe_to_compare_with(keys: list[str]) -> None:
    plain = ["".join(c for c in key if c <= LAST_COMMON) or "k" for key in keys]
    low, high = key_bounds(*limits(plain))
    assert is_order_safe(low)
    assert is_order_safe(high)


@given(TEXT | LONG, TEXT, st.integers(1, 20))
def test_a_shortened_bound_is_on_its_side(value: str, rest: str, limit: int) -> None:
    low, high = lower_bound(value, limit), upper_bound(value, limit)
    assert len(low) <= limit
    assert low.encode() <= value.encode() <= high.encode()  # Encodes: no half of a surrogate pair.
    if len(value) > limit:
        # Also above everything that starts alike.
        assert high == value or (value[:limit] + rest).encode() < high.encode()


def test_examples() -> None:
    assert key_bounds("a", "b") == ("a", "b")
    assert key_bounds("k\uff21", "k\U0001f600") == ("k", "l")
    assert upper_bound("z" * 16 + "more", 16) == "z" * 15 + "{"
    assert upper_bound("a\ud7ffx", 2) == "a\ue000"
    assert upper_bound("a\U0010ffffx", 2) == "b"
    assert upper_bound("\U0010ffff" * 3, 2) == "\U0010ffff" * 3
    assert lower_bound("x" * 500) == "x" * MAX_BOUND_LENGTH
    assert upper_bound("", 3) == "" == lower_bound("", 3)
    assert is_order_safe("")
    assert is_order_safe("\ud7ff")
    assert not is_order_safe("a\ue000")


def test_long_keys_are_shortened() -> None:
    low, high = key_bounds("a" * 5000, "b" * 5000)
    assert len(low) == len(high) == MAX_BOUND_LENGTH
    assert high.endswith("bc")
