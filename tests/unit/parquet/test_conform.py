import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakedex.errors import SchemaMismatchError, UnsupportedFeatureError
from lakedex.parquet.conform import can_widen, conform, conform_array, conform_stored

UTC = dt.UTC
MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 678000, UTC)
POINT = pa.struct([("x", pa.int32()), ("y", pa.float32())])
WIDE_POINT = pa.struct([("y", pa.float64()), ("x", pa.int64()), ("z", pa.string())])

WIDENINGS: list[tuple[pa.DataType, pa.DataType, list[Any], list[Any] | None]] = [
    (pa.int8(), pa.int16(), [1, None, -128], None),
    (pa.int8(), pa.int64(), [1, None, -128], None),
    (pa.int16(), pa.int32(), [1, None], None),
    (pa.int32(), pa.int64(), [2**31 - 1, None], None),
    (pa.int16(), pa.float32(), [3, None], [3.0, None]),
    (pa.int32(), pa.float64(), [2**31 - 1, None], [float(2**31 - 1), None]),
    (pa.float32(), pa.float64(), [1.5, None], None),
    (pa.decimal128(10, 2), pa.decimal128(12, 2), [Decimal("1.25"), None], None),
    (pa.decimal128(10, 2), pa.decimal128(14, 4), [Decimal("1.25"), None], [Decimal("1.2500"), None]),
    (pa.int32(), pa.decimal128(12, 2), [7, None], [Decimal("7.00"), None]),
    (pa.int64(), pa.decimal128(19, 0), [-(2**63), None], [Decimal(-(2**63)), None]),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), [MOMENT, None], None),
    (pa.timestamp("s"), pa.timestamp("us"), [dt.datetime(2024, 1, 2), None], None),
    (pa.large_string(), pa.string(), ["é", None], None),
    (pa.string(), pa.large_string(), ["é", None], None),
    (pa.large_binary(), pa.binary(), [b"\x00", None], None),
    (pa.binary(2), pa.binary(), [b"ab", None], None),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), [[1, None], [], None, [2, 3]], None),
    (pa.list_(pa.field("array", pa.int32())), pa.list_(pa.int32()), [[1], None], None),
    (pa.list_(pa.int32()), pa.large_list(pa.int64()), [[1, None], [], None], None),
    (pa.large_list(pa.int32()), pa.list_(pa.int64()), [[1, None], [], None], None),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], None], None),
    (
        POINT,
        WIDE_POINT,
        [{"x": 1, "y": 0.5}, None, {"x": None, "y": None}],
        [{"y": 0.5, "x": 1, "z": None}, None, {"y": None, "x": None, "z": None}],
    ),
    (
        pa.struct([("l", pa.list_(POINT)), ("m", pa.map_(pa.string(), POINT))]),
        pa.struct([("l", pa.list_(WIDE_POINT)), ("m", pa.map_(pa.string(), WIDE_POINT))]),
        [{"l": [{"x": 1, "y": None}, None], "m": [("k", {"x": 2, "y": 1.5})]}, None, {"l": None, "m": None}],
        [
            {"l": [{"y": None, "x": 1, "z": None}, None], "m": [("k", {"y": 1.5, "x": 2, "z": None})]},
            None,
            {"l": None, "m": None},
        ],
    ),
]


@pytest.mark.parametrize("source, target, values, wanted", WIDENINGS, ids=[f"{a}->{b}" for a, b, _, _ in WIDENINGS])
@pytest.mark.parametrize("sliced", [False, True])
def test_widened(source: pa.DataType, target: pa.DataType, values: list[Any], wanted: Any, sliced: bool) -> None:
    array, wanted = pa.array(values, source), values if wanted is None else wanted
    if sliced:
        array, wanted = pa.concat_arrays([array, array]).slice(1, len(values)), (wanted + wanted)[1 : len(values) + 1]
    assert can_widen(source, target)
    for length in (len(array), len(array) - 1):
        found = conform_array(array.slice(0, length), target, "c")
        found.validate(full=True)
        assert found.type == target
        assert found.to_pylist() == wanted[:length]


@pytest.mark.parametrize(
    "source, target",
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float32()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(12, 2), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 4)),
        (pa.decimal128(10, 4), pa.decimal128(12, 2)),
        (pa.int64(), pa.decimal128(18, 0)),
        (pa.int32(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.bool_(), pa.int32()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
        (pa.struct([("x", pa.int32()), ("more", pa.int32())]), pa.struct([("x", pa.int32())])),
        (pa.int32(), pa.struct([("x", pa.int32())])),
    ],
    ids=str,
)
def test_what_could_lose_a_value_is_refused(source: pa.DataType, target: pa.DataType) -> None:
    assert not can_widen(source, target)
    with pytest.raises(SchemaMismatchError, match="column 'c' is") as caught:
        conform_array(pa.nulls(1, source), target, "c")
    assert (caught.value.column, caught.value.expected, caught.value.found) == ("c", str(target), str(source))


def test_columns_are_matched_by_name() -> None:
    batch = pa.record_batch({"b": [1, 2], "other": ["x", "y"], "a": pa.array([1, None], pa.int32())})
    target = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.list_(pa.string()))])
    found = conform(batch, target)
    assert found.schema == target
    assert found.to_pylist() == [{"a": 1, "b": 1, "c": None}, {"a": None, "b": 2, "c": None}]
    assert conform(found, target) is found
    assert conform(batch.slice(1), target).to_pylist() == [{"a": None, "b": 2, "c": None}]
    assert conform(batch.slice(0, 0), target).num_rows == 0


def test_a_nested_refusal_names_the_column() -> None:
    batch = pa.record_batch({"p": pa.array([{"x": "text"}], pa.struct([("x", pa.string())]))})
    with pytest.raises(SchemaMismatchError) as caught:
        conform(batch, pa.schema([("p", pa.struct([("x", pa.int32())]))]))
    assert caught.value.column == "p"


def test_values_under_a_null_do_not_come_up() -> None:
    inner = pa.array([1, 2, 3], pa.int32())
    column = pa.StructArray.from_arrays([inner], names=["x"], mask=pa.array([False, True, False]))
    found = conform_array(column, pa.struct([("x", pa.int64())]), "c")
    assert found.to_pylist() == [{"x": 1}, None, {"x": 3}]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3]), inner, mask=pa.array([False, True, False]))
    assert conform_array(lists, pa.list_(pa.int64()), "c").to_pylist() == [[1], None, []]


def test_stored_numbers_and_dates_that_became_text() -> None:
    stored = pa.record_batch({"n": pa.array([-1, None], pa.int64()), "d": [dt.date(1899, 12, 31), None], "k": [1, 2]})
    target = pa.schema([("d", pa.string()), ("n", pa.string()), ("k", pa.int64()), ("new", pa.string())])
    assert conform_stored(stored, target).to_pydict() == {
        "d": ["1899-12-31", None],
        "n": ["-1", None],
        "k": [1, 2],
        "new": [None, None],
    }
    with pytest.raises(SchemaMismatchError, match="n"):
        conform(stored, target)
    for number, kind in ((1.5, pa.string()), (2**40, pa.float64())):
        with pytest.raises(UnsupportedFeatureError, match="column 'f' is .* in older files and .* in the table"):
            conform_stored(pa.record_batch({"f": [number]}), pa.schema([("f", kind)]))
    empty = stored.select([])
    assert conform_stored(empty, empty.schema).num_rows == 2
