"""Keys of bitmap records: R102 to R108, R92.f."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.keys import (
    NULL_MARK,
    bitmap_key,
    column_prefix,
    coverage_key,
    coverage_prefix,
    escape,
    escape_all,
    files_key,
    parse_bitmap_key,
    value_prefix,
)

AWKWARD = [
    "x",
    "xy",
    "x$p1",
    "x$",
    "$",
    "$$",
    "\\",
    "\\\\",
    "\\$",
    "\0",
    "x\0",
    "\\\0",
    "",
    ".",
    "é",
    "😀",
    "\U0010ffff",
    "a\nb",
    "\ud7ff",
]
TEXTS = (
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
    | st.sampled_from(AWKWARD)
    | st.text("\\$\0x", max_size=6)
)


def test_the_rfcs_example_of_a_partitioned_table() -> None:
    """R104, R102, R103, R107: plain values give the RFC's key, joined on the fly."""
    file_id = "7f2a43b9-0d8a-4b7c-9d6e-6c5f7d1b2a10-0"
    key = bitmap_key("store_type", "grocery", "2025-02-01", file_id)
    assert key == f"store_type$grocery$2025-02-01${file_id}"


def test_the_rfcs_example_of_a_table_without_partitions() -> None:
    """R105, R106."""
    file_id = "7f2a43b9-0d8a-4b7c-9d6e-6c5f7d1b2a10-0"
    key = bitmap_key("store_type", "grocery", "", file_id)
    assert key == f"store_type$grocery$.${file_id}"
    assert parse_bitmap_key(key) == ("store_type", "grocery", "", file_id)


@given(TEXTS, TEXTS | st.none(), TEXTS.filter(lambda text: text != "."), TEXTS)
def test_every_key_comes_back(column: str, value: str | None, partition: str, file_id: str) -> None:
    """R92.f: nothing is ambiguous."""
    key = bitmap_key(column, value, partition, file_id)
    assert parse_bitmap_key(key) == (column, value, partition, file_id)


@given(TEXTS, TEXTS | st.none(), TEXTS, TEXTS | st.none(), TEXTS)
def test_a_prefix_search_meets_its_own_value_only(
    column: str, value: str | None, other_column: str, other: str | None, tail: str
) -> None:
    """R108: ``x`` does not meet ``xy`` or ``x$p1``."""
    key = bitmap_key(other_column, other, tail, tail)
    assert key.startswith(value_prefix(column, value)) == ((column, value) == (other_column, other))
    assert key.startswith(column_prefix(column)) == (column == other_column)


def test_values_with_a_common_beginning() -> None:
    keys = {value: bitmap_key("c", value, "p", "f") for value in ("x", "xy", "x$p1", "x$p", "", None, "\0")}
    for value in keys:
        assert [own for own, key in keys.items() if key.startswith(value_prefix("c", value))] == [value]


def test_null_empty_and_nul_are_three_values() -> None:
    """R92.h: null is one bare NUL, as in Hudi's secondary index; the text NUL is escaped."""
    assert value_prefix("c", None) == "c$\0$"
    assert value_prefix("c", "") == "c$$"
    assert value_prefix("c", "\0") == "c$\\\0$"


@pytest.mark.parametrize("text, escaped", [("a$b", "a\\$b"), ("a\\b", "a\\\\b"), ("a\0b", "a\\\0b"), ("ab", "ab")])
def test_escapes_are_those_of_hudis_secondary_index(text: str, escaped: str) -> None:
    """R92.f: ``SecondaryIndexKeyUtils`` puts a backslash before backslash, ``$`` and NUL."""
    assert escape(text) == escaped


@given(st.lists(TEXTS | st.none()))
def test_columns_are_escaped_as_values_are(values: list[str | None]) -> None:
    wanted = [NULL_MARK if value is None else escape(value) for value in values]
    assert escape_all(pa.array(values, pa.string())).to_pylist() == wanted


@given(TEXTS, TEXTS, TEXTS | st.none(), st.integers(0, 99_999))
def test_no_prefix_search_for_values_meets_coverage(column: str, other: str, value: str | None, block: int) -> None:
    for key in (coverage_key(other, block), files_key(block)):
        assert not key.startswith(column_prefix(column))
        assert key < bitmap_key("", "", "", "") or key.startswith(NULL_MARK)
    assert coverage_key(other, block).startswith(coverage_prefix(column)) == (column == other)
    assert not files_key(block).startswith(coverage_prefix(column))


@given(st.lists(st.tuples(TEXTS, TEXTS | st.none()), unique=True, max_size=6))
def test_a_column_and_a_value_are_one_stretch_in_order(pairs: list[tuple[str, str | None]]) -> None:
    """R108: in byte order, as an HFile has them, all keys of a column lie together, and of a value in it."""
    keys = sorted(
        (bitmap_key(column, value, partition, "f").encode(), column, value)
        for column, value in pairs
        for partition in ("", "a", "b$")
    )
    for place in (lambda item: item[1], lambda item: (item[1], item[2])):
        order = [place(item) for item in keys]
        changes = sum(one != other for one, other in zip(order, order[1:], strict=False))
        assert changes == max(len(set(order)) - 1, 0)


def test_blocks_are_in_order() -> None:
    assert [coverage_key("c", n) for n in (0, 9, 10, 12_345)] == sorted(
        coverage_key("c", n) for n in (12_345, 10, 9, 0)
    )


@pytest.mark.parametrize(
    "key", ["", "a", "a$b$c", "a$b$c$d$e", "a$b$c$d\\", "a\\b$c$d$e", "\0$b$c$d", "a$b$\0$d", "a$\0x$c$d", "a$x\0$c$d"]
)
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(CorruptFileError):
        parse_bitmap_key(key)
