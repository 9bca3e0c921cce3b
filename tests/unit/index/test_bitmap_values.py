"""Texts of values: one text a value, one value a text. R92.h and all types that are indexed."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.errors import CorruptFileError
from lakedex.expr.types import NotPrunableError
from lakedex.index.bitmap.keys import is_indexable, parse_type, type_text, typed_values, value_texts

UTC = dt.UTC
MOMENT = dt.datetime(2024, 3, 10, 1, 2, 3, 456_000)
MICROS = 1_710_032_523_456_000
CASES: list[tuple[pa.DataType, str, list[Any], list[str]]] = [
    (pa.bool_(), "boolean", [True, False], ["true", "false"]),
    (pa.int8(), "tinyint", [-128, 127], ["-128", "127"]),
    (pa.int16(), "smallint", [-32768, 7], ["-32768", "7"]),
    (pa.int32(), "int", [-(2**31), 0], [str(-(2**31)), "0"]),
    (pa.int64(), "bigint", [2**63 - 1, -(2**63)], [str(2**63 - 1), str(-(2**63))]),
    (pa.decimal128(10, 2), "decimal(10,2)", [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")], ["1.50", "-0.01", "0.00"]),
    (pa.decimal128(38, 18), "decimal(38,18)", [Decimal("1.000000000000000001")], ["1.000000000000000001"]),
    (pa.decimal128(38, 0), "decimal(38,0)", [Decimal(10**37)], [str(10**37)]),
    (pa.float32(), "float", [0.1, 1e10, -math.inf, 16777217.0], ["0.1", "1.0E10", "-Infinity", "1.6777216E7"]),
    (pa.float64(), "double", [0.1, 1e10, 1e-4, 1e300, math.inf], ["0.1", "1.0E10", "1.0E-4", "1.0E300", "Infinity"]),
    (pa.string(), "string", ["", "a$b", "é\0😀"], ["", "a$b", "é\0😀"]),
    (pa.large_string(), "string", ["a"], ["a"]),
    (pa.binary(), "binary", [b"", b"\x00\xff"], ["", "00ff"]),
    (pa.binary(2), "binary", [b"\x00\xff"], ["00ff"]),
    (pa.date32(), "date", [dt.date(2024, 3, 10), dt.date(1969, 12, 31)], ["2024-03-10", "1969-12-31"]),
    (pa.timestamp("us", "UTC"), "timestamp", [MOMENT.replace(tzinfo=UTC)], [str(MICROS)]),
    (pa.timestamp("us", "Asia/Seoul"), "timestamp", [MOMENT.replace(tzinfo=UTC)], [str(MICROS)]),
    (pa.timestamp("ms", "UTC"), "timestamp", [MOMENT.replace(tzinfo=UTC)], [str(MICROS)]),
    (pa.timestamp("us"), "timestamp_ntz", [MOMENT], [str(MICROS)]),
    (pa.timestamp("ms"), "timestamp_ntz", [MOMENT], [str(MICROS)]),
]  # fmt: skip


@pytest.mark.parametrize("kind, name, values, texts", CASES, ids=[str(case[0]) for case in CASES])
def test_each_type_has_texts(kind: pa.DataType, name: str, values: list[Any], texts: list[str]) -> None:
    array = pa.array([*values, None], kind)
    assert value_texts(array).to_pylist() == [*texts, None]
    assert is_indexable(kind) and type_text(kind) == name
    back = typed_values(value_texts(array), parse_type(name))
    assert value_texts(back).to_pylist() == value_texts(array).to_pylist()
    assert back.cast(kind).equals(array)


def test_zero_and_nan_are_one_value_each() -> None:
    """R92.h."""
    negative = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    for kind in (pa.float32(), pa.float64()):
        assert value_texts(pa.array([0.0, -0.0, math.nan, -math.nan, negative], kind)).to_pylist() == [
            "0.0",
            "0.0",
            "NaN",
            "NaN",
            "NaN",
        ]


def test_a_float_is_not_the_double_of_its_digits() -> None:
    single, double = pa.array([0.1], pa.float32()), pa.array([0.1], pa.float64())
    assert value_texts(single).to_pylist() == value_texts(double).to_pylist() == ["0.1"]
    assert type_text(single.type) != type_text(double.type), "so the type goes with the text"
    assert typed_values(value_texts(single), parse_type("float")).cast(pa.float64())[0] != double[0]


ARRAYS = st.one_of(
    st.lists(st.none() | st.booleans()).map(lambda v: pa.array(v, pa.bool_())),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.floats()).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.floats(width=32)).map(lambda v: pa.array(v, pa.float32())),
    st.lists(st.none() | st.text(st.characters(blacklist_categories=["Cs"]))).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.none() | st.binary()).map(lambda v: pa.array(v, pa.binary())),
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)).map(lambda v: pa.array(v, pa.int32()).cast(pa.date32())),
    st.lists(st.none() | st.integers(-(2**62), 2**62)).map(lambda v: pa.array(v, pa.int64()).cast(pa.timestamp("us", "UTC"))),
    st.lists(st.none() | st.integers(-(2**62), 2**62)).map(lambda v: pa.array(v, pa.int64()).cast(pa.timestamp("us"))),
    st.lists(st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**14), max_value=10**14)).map(
        lambda v: pa.array(v, pa.decimal128(38, 4))
    ),
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Whether Spark takes two values for one: NaN is NaN, -0.0 is 0.0, null is null."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def physical(values: Any) -> list[Any]:
    if pa.types.is_date32(values.type):
        return list(values.cast(pa.int32()).to_pylist())
    return list((values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist())


@given(ARRAYS)
def test_values_come_back_from_their_texts(values: Any) -> None:
    """Dates beyond the years 0001 to 9999 too."""
    back = typed_values(value_texts(values), parse_type(type_text(values.type)))
    assert back.type == values.type
    assert all(same(a, b) for a, b in zip(physical(values), physical(back), strict=True))


@given(ARRAYS)
def test_texts_are_as_distinct_as_values(values: Any) -> None:
    texts, raw = value_texts(values).to_pylist(), physical(values)
    for a, text in zip(raw, texts, strict=True):
        for b, other in zip(raw, texts, strict=True):
            assert same(a, b) == (text == other)


@pytest.mark.parametrize("days", [-719_163, 2_932_897, 3_700_000, -800_000, 2**31 - 1, -(2**31)])
def test_days_that_python_does_not_know(days: int) -> None:
    values = pa.array([days], pa.int32()).cast(pa.date32())
    assert typed_values(value_texts(values), pa.date32()).equals(values)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.map_(pa.string(), pa.int32()),
        pa.null(),
        pa.uint8(),
        pa.timestamp("ns"),
    ],
)
def test_types_without_texts(kind: pa.DataType) -> None:
    assert not is_indexable(kind)
    with pytest.raises(NotPrunableError):
        type_text(kind)


@pytest.mark.parametrize(
    "text", ["", "integer", "decimal(10)", "decimal(a,b)", "decimal(99,1)", "decimal(10,2", "array<int>"]
)
def test_names_of_no_type(text: str) -> None:
    with pytest.raises(CorruptFileError):
        parse_type(text)


@pytest.mark.parametrize(
    "kind, text",
    [
        ("int", "x"),
        ("tinyint", "128"),
        ("boolean", "maybe"),
        ("double", "one"),
        ("date", "soon"),
        ("binary", "0g"),
        ("decimal(4,2)", "123.45"),
        ("decimal(4,2)", "one"),
        ("timestamp", "1.5"),
    ],
)
def test_texts_of_no_value(kind: str, text: str) -> None:
    with pytest.raises(CorruptFileError):
        typed_values(pa.array([text]), parse_type(kind))
