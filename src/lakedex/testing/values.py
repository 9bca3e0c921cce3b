"""Awkward values of each column type, where bounds, orders and encodings go wrong.

Dates and times are given as the numbers of days and microseconds that Parquet stores, as they go beyond those of
Python; decimals are text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

__all__ = [
    "BYTES",
    "DAY",
    "DAYS",
    "FLOATS",
    "INF",
    "LOCAL",
    "MICROS",
    "NAN",
    "STAMP",
    "TEXTS",
    "YEAR_1",
    "YEAR_9999",
    "array_of",
    "awkward_values",
    "key_array",
    "leaves",
    "physical",
]

NAN, INF = math.nan, math.inf
STAMP, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
DAY = 86_400_000_000
YEAR_1, YEAR_9999 = -719_162, 2_932_896
"""First and last day that SQL text can name; columns go beyond."""

_LONG = "prefix/" * 720
_SAME_256 = "k" * 260
TEXTS = [
    "", "a", "ab", "abc", "abcd", "b", "a_c", "a%c", "a\\c", "it's", "é", "\ud7ff", "\ue000", "Ａ", "\uffff", "😀",
    "😀x", "\U0010ffff", "z\u0000", _LONG + "a", _LONG + "b", _SAME_256 + "a", _SAME_256 + "b", "\U0010ffff" * 300,
    "x" * 255 + "\uffff" + "y", "TRUE", "12", "2024-03-10",
]  # fmt: skip
FLOATS = [0.0, -0.0, 1.5, -2.25, 1.1, 0.1, NAN, NAN, INF, -INF, 1e30, -1e30, 16777217.0, 5e-324, 7.0]
BYTES = [b"", b"\x00", b"a", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x80" * 5000]
DAYS = [0, -1, 19_792, 19_793, 19_794, YEAR_1, YEAR_9999, -141_428, 3_700_000, -800_000]
MICROS = [
    0, -1, 1, 1_710_030_600_000_000, 1_710_030_600_000_001, 1_710_054_000_000_000, 1_710_140_400_000_000,
    19_793 * DAY, 19_794 * DAY - 1, -62_135_596_800_000_000 + DAY, 253_402_300_799_999_999 - DAY,
    -3_786_825_600_000_000,
]  # fmt: skip


def awkward_values(kind: pa.DataType) -> list[Any]:
    """Values of a type that is not nested.

    Args:
        kind: Type of a column.

    Returns:
        Values for :func:`array_of`, without null.
    """
    if pa.types.is_integer(kind):
        end = 2 ** (kind.bit_width - 1)
        return [-end, -3, -1, 0, 1, 2, 7, 12, end - 1, *([2**53, 2**53 + 1] if kind.bit_width == 64 else [])]
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return [
            str(_EXACT.scaleb(Decimal(unscaled), -kind.scale)) for unscaled in (0, 1, -1, 15, most // 3, most, -most)
        ]
    for is_kind, values in _VALUES:
        if is_kind(kind):
            return values
    raise ValueError(f"{kind}: no list of values; take those of its parts")


_EXACT = Context(prec=80)
_VALUES: tuple[tuple[Any, list[Any]], ...] = (
    (pa.types.is_boolean, [True, False]),
    (pa.types.is_floating, FLOATS),
    (pa.types.is_string, TEXTS),
    (pa.types.is_binary, BYTES),
    (pa.types.is_date32, DAYS),
    (pa.types.is_timestamp, MICROS),
)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert physical values to an Arrow array.

    Args:
        values: Days, microseconds, text of decimals, and plain values of the other types; ``None`` is null.
        kind: Type of the array; lists and maps hold plain values.
    """
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else Decimal(v) for v in values], kind)
    return pa.array(values, kind)


def physical(values: pa.Array) -> list[Any]:
    """Convert an Arrow array to physical values, the opposite of :func:`array_of`.

    Args:
        values: Array of a type that is not nested.
    """
    kind = values.type
    if pa.types.is_date32(kind):
        return list(values.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        return list(values.cast(pa.int64()).to_pylist())
    return [str(v) if isinstance(v, Decimal) else v for v in values.to_pylist()]


def key_array(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Make record keys; equal numbers give equal keys.

    Args:
        numbers: One for each key.
        kind: String, integer, date, timestamp or decimal.
    """
    if pa.types.is_string(kind):
        return pa.array([f"k{n:04d}" if n % 3 else f"key-😀-{n}" for n in numbers], kind)
    if pa.types.is_decimal(kind):
        return array_of([f"{n / 8:.4f}" for n in numbers], kind)
    return array_of(numbers, kind)


def leaves(fields: Iterable[pa.Field], prefix: str = "") -> list[tuple[str, pa.DataType]]:
    """List columns and struct fields by dotted name, structs themselves too.

    Args:
        fields: A schema or a struct type.
        prefix: Text before each name.
    """
    found = []
    for item in fields:
        found.append((prefix + item.name, item.type))
        if pa.types.is_struct(item.type):
            found += leaves(item.type, f"{prefix}{item.name}.")
    return found
