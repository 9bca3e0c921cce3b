"""Columns of a frame in the types of a table: the same values, or the row that has none."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakedex.errors import SchemaMismatchError
from lakedex.lossless_cast import StoreAssignment, can_assign, match_names

US = pa.timestamp("us")
UTC = pa.timestamp("us", "UTC")
ID = UUID("123e4567-e89b-12d3-a456-426614174000")
LONG = "123456789012345678901234567890123.12345"
"""Arrow wraps it when it scales it up to 38 digits, without an error."""
POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.string())])


def assigned(array: pa.Array, kind: pa.DataType, **options: Any) -> pa.Array:
    batch = pa.record_batch([array], names=["c"])
    return StoreAssignment(pa.schema([("c", kind)]), "t", **options)(batch, first_row=100).column(0)


def moments(values: list[int | None], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind)


def long_decimals(values: list[int], kind: pa.DataType) -> pa.Array:
    """Decimals as a foreign library may hand them over: nobody has counted their digits."""
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


TAKEN: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.array([1, None], pa.int32()), pa.float64(), [1.0, None]),
    (pa.array([1.0, None]), pa.int32(), [1, None]),
    (pa.array([7], pa.int64()), pa.int32(), [7]),
    (pa.array([255], pa.uint8()), pa.int32(), [255]),
    (pa.array([2**63 - 1], pa.uint64()), pa.int64(), [2**63 - 1]),
    (pa.array([5], pa.int64()), pa.decimal128(3, 2), [Decimal("5.00")]),
    (pa.array([Decimal("1.50")], pa.decimal32(3, 2)), pa.decimal128(9, 1), [Decimal("1.5")]),
    (pa.array([Decimal("1.50")], pa.decimal64(9, 2)), pa.decimal128(9, 2), [Decimal("1.50")]),
    (pa.array([Decimal("1.50")], pa.decimal256(70, 2)), pa.decimal128(9, 2), [Decimal("1.50")]),
    (pa.array([Decimal(7)], pa.decimal128(38, 0)), pa.int64(), [7]),
    (pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)), pa.decimal128(38, 37), [Decimal("1.50"), None]),
    (pa.array([0.5, float("nan"), None]), pa.float32(), [0.5, None, None]),
    (pa.array([np.float16(1.5)]), pa.float32(), [1.5]),
    (moments([1000, -1000], pa.timestamp("ns")), US, [dt.datetime(1970, 1, 1, 0, 0, 0, 1), None]),
    (moments([1], pa.timestamp("s", "Europe/Berlin")), UTC, [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)]),
    (moments([86_400], pa.timestamp("s")), pa.date32(), [dt.date(1970, 1, 2)]),
    (pa.array([dt.date(1970, 1, 2)]), US, [dt.datetime(1970, 1, 2)]),
    (pa.array([dt.date(1970, 1, 2)], pa.date64()), pa.date32(), [dt.date(1970, 1, 2)]),
    (pa.array(["a", None], pa.string_view()), pa.string(), ["a", None]),
    (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
    (pa.array([b"ab"], pa.binary_view()), pa.binary(2), [b"ab"]),
    (pa.array([ID.bytes, None], pa.uuid()), pa.string(), [str(ID), None]),
    (pa.array([ID.bytes], pa.uuid()), pa.binary(), [ID.bytes]),
    (pa.nulls(2), POINT, [None, None]),
    (pa.array([[1, 2], None], pa.list_view(pa.int64())), pa.list_(pa.int32()), [[1, 2], None]),
    (pa.array([[1, 2], None], pa.large_list(pa.int64())), pa.list_(pa.int32()), [[1, 2], None]),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(pa.float64()), [[1.0, 2.0], None]),
    (pa.array([[None]], pa.list_(pa.null())), pa.list_(pa.string()), [[None]]),
    (
        pa.array([{"y": "a", "x": 1.0}, None], pa.struct([("y", pa.large_string()), ("x", pa.float64())])),
        POINT,
        [{"x": 1, "y": "a"}, None],
    ),
    (
        pa.array([[("k", 1.0)], None, []], pa.map_(pa.large_string(), pa.float64())),
        pa.map_(pa.string(), pa.int64()),
        [[("k", 1)], None, []],
    ),
]  # fmt: skip


@pytest.mark.parametrize("array, kind, wanted", TAKEN, ids=[f"{array.type}->{kind}" for array, kind, _ in TAKEN])
def test_values_that_both_types_have_are_taken(array: pa.Array, kind: pa.DataType, wanted: list[Any]) -> None:
    assert can_assign(array.type, kind)
    for rows in (array, pa.concat_arrays([array[-1:], array])[1:]):
        found = assigned(rows, kind)
        found.validate(full=True)
        assert found.type == kind
        shown = [None if value != value else value for value in found.to_pylist()]
        assert shown == (wanted if None not in wanted or array.null_count else [*wanted[:-1], shown[-1]])


def test_encoded_columns_are_decoded_whatever_else_their_dictionary_has() -> None:
    names = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0, 1], pa.uint8()), pa.array(["a", "b"], pa.string_view())
    )
    assert assigned(names, pa.string()).to_pylist() == ["b", None, "a", "b"]
    numbers = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array([1.0, 1.5, 3.0]))
    assert assigned(numbers, pa.int32()).to_pylist() == [3, 1]
    runs = pc.run_end_encode(pa.array([1.5, 2.0, 2.0, None, 3.0]))
    assert assigned(runs[1:], pa.int32()).to_pylist() == [2, 2, None, 3]
    for array, row in ((pa.DictionaryArray.from_arrays(pa.array([2, 1, 1]), numbers.dictionary), 101), (runs, 100)):
        with pytest.raises(SchemaMismatchError, match=r"cannot hold 1\.5 exactly") as caught:
            assigned(array, pa.int32())
        assert caught.value.row == row  # type: ignore[attr-defined]


REFUSED: list[tuple[pa.Array, pa.DataType, str, int, str]] = [
    (pa.array([1.0, 1.5]), pa.int32(), "c", 1, "1.5"),
    (pa.array([None, float("nan")]), pa.int64(), "c", 1, "nan"),
    (pa.array([2.0**63]), pa.int64(), "c", 0, "9.22"),
    (pa.array([1, 2**31]), pa.int32(), "c", 1, "2147483648"),
    (pa.array([2**63], pa.uint64()), pa.int64(), "c", 0, "9223372036854775808"),
    (pa.array([0, 2**53 + 1]), pa.float64(), "c", 1, "9007199254740993"),
    (pa.array([0.5, 0.1]), pa.float32(), "c", 1, "0.1"),
    (pa.array([10]), pa.decimal128(3, 2), "c", 0, "10"),
    (pa.array([Decimal("1.25")]), pa.decimal128(9, 1), "c", 0, "1.25"),
    (pa.array([Decimal("1.25")]), pa.int64(), "c", 0, "1.25"),
    (pa.array([Decimal(1), Decimal(LONG)], pa.decimal128(38, 5)), pa.decimal128(38, 15), "c", 1, LONG),
    (pa.array([Decimal(LONG)], pa.decimal128(38, 5)), pa.decimal128(38, 37), "c", 0, LONG),
    (pa.array([2**62]), pa.decimal128(38, 30), "c", 0, "4611686018427387904"),
    (moments([0, 9 * 10**17], pa.timestamp("ms")), US, "c", 1, ""),
    (moments([9 * 10**17], pa.timestamp("s")), US, "c", 0, ""),
    (moments([0, None, 1999], pa.timestamp("ns")), US, "c", 2, "1970-01-01 00:00:00.000001999"),
    (moments([-1], pa.timestamp("ns")), US, "c", 0, "1969-12-31 23:59:59.999999999"),
    (moments([0, 43_200], pa.timestamp("s")), pa.date32(), "c", 1, "1970-01-01 12:00:00"),
    (pa.array([b"ab", b"a"]), pa.binary(2), "c", 1, "b'a'"),
    (pa.array([{"x": 1.0}, None, {"x": 1.5}]), pa.struct([("x", pa.int32())]), "c.x", 2, "1.5"),
    (pa.array([[1], None, [], [2, 2**40]]), pa.list_(pa.int32()), "c.element", 3, "1099511627776"),
    (
        pa.array([None, [("a", 1)], [("b", 1), ("c", 2**40)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int32()),
        "c.value",
        2,
        "1099511627776",
    ),
    (long_decimals([5, 2**127 - 1], pa.decimal128(38, 0)), pa.decimal128(38, 0), "c", 1, str(2**127 - 1)[:38]),
    (long_decimals([-(10**5)], pa.decimal128(5, 2)), pa.decimal128(5, 2), "c", 0, "-1000.00"),
    (long_decimals([99_999, 100_000], pa.decimal128(5, 0)), pa.decimal128(38, 0), "c", 1, "100000"),
    (
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), long_decimals([1, 10**5], pa.decimal128(5, 0))),
        pa.list_(pa.decimal128(5, 0)),
        "c.",
        1,
        "100000",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    "array, kind, path, row, value", REFUSED, ids=[f"{a.type}->{k} {v}" for a, k, _, _, v in REFUSED]
)
def test_others_are_refused_with_their_row(array: pa.Array, kind: pa.DataType, path: str, row: int, value: str) -> None:
    with pytest.raises(SchemaMismatchError, match="table t: column 'c.*(cannot hold|more digits)") as caught:
        assigned(array, kind)
    error: Any = caught.value
    assert error.column.startswith(path)
    assert error.row == 100 + row
    assert f"row {100 + row} " in str(error)
    assert value in str(error)
    inner = (
        kind.field(0).type
        if pa.types.is_struct(kind)
        else getattr(kind, "item_type", getattr(kind, "value_type", kind))
    )
    assert error.expected in (str(inner), str(array.type))


def test_a_value_behind_a_null_or_outside_of_a_slice_does_not_count() -> None:
    inner = pa.array([1.5, 2.0, 1.5])
    hidden = pa.StructArray.from_arrays([inner], ["x"], mask=pa.array([True, False, False]))[:2]
    assert assigned(hidden, pa.struct([("x", pa.int32())])).to_pylist() == [None, {"x": 2}]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), inner, mask=pa.array([True, False, False]))
    assert assigned(lists[:2], pa.list_(pa.int32())).to_pylist() == [None, [2]]
    decimals = pa.Array.from_buffers(
        pa.decimal128(5, 0), 2, [pa.py_buffer(b"\x02"), long_decimals([10**9, 1], pa.decimal128(5, 0)).buffers()[1]]
    )
    assert assigned(decimals, pa.decimal128(5, 0)).to_pylist() == [None, Decimal(1)]


@pytest.mark.parametrize(
    "source, target",
    [
        (pa.string(), pa.int32()), (pa.int32(), pa.string()), (pa.bool_(), pa.int32()), (pa.int32(), pa.bool_()),
        (pa.float64(), pa.decimal128(9, 2)), (pa.decimal128(9, 2), pa.float64()), (pa.string(), pa.binary()),
        (US, UTC), (UTC, US), (pa.date32(), UTC), (UTC, pa.date32()), (pa.int64(), US), (US, pa.int64()),
        (pa.list_(pa.string()), pa.list_(pa.int32())), (pa.int32(), pa.list_(pa.int32())), (POINT, pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_types_without_a_common_value(source: pa.DataType, target: pa.DataType) -> None:
    assert not can_assign(source, target)


def test_a_batch_of_the_right_types_is_not_copied() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    batch = pa.record_batch([pa.array([1]), pa.array(["x"])], schema=schema)
    assert StoreAssignment(schema, "t")(batch) is batch
    money = pa.schema([("a", pa.decimal128(9, 2))])
    column = pa.array([Decimal("1.50")], pa.decimal128(9, 2))
    found = StoreAssignment(money, "t")(pa.record_batch([column], schema=money)).column(0)
    assert found.buffers()[1].address == column.buffers()[1].address


def test_names() -> None:
    assert match_names(["id", "State"], ["ID", "state", "x"], case_sensitive=False) == {"ID": "id", "state": "State"}
    assert match_names(["id"], ["ID", "id"], case_sensitive=False) == {"id": "id"}
    assert match_names(["id"], ["ID", "Id"], case_sensitive=False) == {}
    assert match_names(["id", "State"], ["id", "state"], case_sensitive=True) == {"id": "id"}
