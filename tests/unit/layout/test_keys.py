import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.layout.keys import KeyGenerator, StoredKeys, field_column, java_double, value_text
from lakedex.types import PARTITION_PATH, RECORD_KEY

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors" / "record_keys.json").read_text("utf-8"))["data"]
CONSISTENT = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.int32()),
        ("c", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("f", pa.float64()),
        ("g", pa.bool_()),
        ("m", pa.decimal128(10, 2)),
    ]
)


def record(values: dict[str, Any]) -> pa.Table:
    values = dict(values)
    if "m" in values:
        values["m"] = Decimal(int.from_bytes(bytes.fromhex(values["m"]), "big", signed=True)).scaleb(-2)
    if "d" in values:
        values["d"] = dt.date(1970, 1, 1) + dt.timedelta(days=values["d"])
    if "t" in values:
        values["t"] = pa.scalar(values["t"], pa.int64()).cast(pa.timestamp("us", "UTC")).as_py()
    return pa.Table.from_pylist([values], SCHEMA)


def is_on(case: dict[str, Any], option: str) -> bool:
    return case["options"].get(option) == "true"


# lakedex refuses the other form of timestamps in keys, by name (see options).
CASES = [case for case in VECTORS if not is_on(case, CONSISTENT)]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_keys_and_paths_of_hudi(case: dict[str, Any]) -> None:
    fields = tuple(case["recordkey.field"].split(","))
    bare = is_on(case, "hoodie.write.complex.keygen.new.encoding")
    keys = KeyGenerator(
        record_key=fields,
        partition_by=tuple(name for name in case["partitionpath.field"].split(",") if name),
        named_parts=len(fields) > 1 or (case["generator"].startswith("Complex") and not bare),
        hive_style=is_on(case, "hoodie.datasource.write.hive_style_partitioning"),
        url_encode=is_on(case, "hoodie.datasource.write.partitionpath.urlencode"),
    )
    row = record(case["record"])
    # Where Java raises HoodieKeyException there is no key: null.
    assert keys.keys(row).to_pylist() == [case["getRecordKey"]]
    assert keys.partition_paths(row).to_pylist() == [case["getPartitionPath"]]
    (batch,) = row.to_batches()
    assert keys.keys(batch).to_pylist() == [case["getRecordKey"]]


def test_composite_keys_are_missing_only_where_all_parts_are() -> None:
    keys = KeyGenerator(record_key=("a", "b"), named_parts=True)
    table = pa.table({"a": ["x,y", None, "", None, ""], "b": ["1:2", "1", "1", "", None]})
    assert keys.keys(table).to_pylist() == ["a:x,y,b:1:2", "a:__null__,b:1", "a:__empty__,b:1", None, None]


def test_slices_and_chunks() -> None:
    keys = KeyGenerator(record_key=("a",), partition_by=("b",))
    table = pa.table({"a": ["0", "1", "2", "3"], "b": [9, 8, 7, 6]}).slice(1, 2)
    chunked = pa.concat_tables([table, table])
    assert keys.keys(chunked).to_pylist() == ["1", "2", "1", "2"]
    assert keys.partition_paths(chunked).to_pylist() == ["b=8", "b=7", "b=8", "b=7"]
    assert keys.keys(table.to_batches()[0]).to_pylist() == ["1", "2"]


def test_nested_fields_and_dotted_names() -> None:
    kind = pa.struct([("currency", pa.string()), ("deep", pa.struct([("x", pa.int32())]))])
    table = pa.table({"fare": pa.array([{"currency": "USD", "deep": {"x": 5}}, None], kind), "k": ["1", "2"]})
    keys = KeyGenerator(record_key=("k", "fare.deep.x"), partition_by=("fare.currency",), named_parts=True)
    assert keys.keys(table).to_pylist() == ["k:1,fare.deep.x:5", "k:2,fare.deep.x:__null__"]
    assert keys.partition_paths(table).to_pylist()[0] == "fare.currency=USD"
    whole = pa.table({"fare.currency": ["EUR"]})
    assert field_column(whole, "fare.currency").to_pylist() == ["EUR"]
    with pytest.raises(InvalidInputError, match="'nope' is not in the frame") as caught:
        field_column(table, "nope")
    assert caught.value.column == "nope"


def test_stored_keys_are_the_meta_columns() -> None:
    table = pa.table({RECORD_KEY: ["k"], PARTITION_PATH: ["p=1"]})
    assert StoredKeys().keys(table).to_pylist() == ["k"]
    assert StoredKeys().partition_paths(table).to_pylist() == ["p=1"]


def test_no_rows() -> None:
    keys = KeyGenerator(record_key=("a", "b"), partition_by=("a", "b"), named_parts=True)
    empty = pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.int64())})
    assert keys.keys(empty).to_pylist() == []
    assert keys.partition_paths(empty).to_pylist() == []


# Double.toString and Float.toString of Java 17, printed there.
@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (0.001, "0.001"),
        (0.0009999, "9.999E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (123456.789, "123456.789"),
        (1e21, "1.0E21"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (100.0, "100.0"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_read_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(
    "value, text", [(0.1, "0.1"), (16777216.0, "1.6777216E7"), (3.4028235e38, "3.4028235E38"), (1.1, "1.1")]
)
def test_floats_read_as_in_java(value: float, text: str) -> None:
    assert java_double(value, single=True) == text
    assert value_text(pa.array([value], pa.float32())).to_pylist() == [text]


@pytest.mark.parametrize(
    "column, texts",
    [
        (pa.array(["a", None, ""]), ["a", None, ""]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array([1, None, -5], pa.int8()), ["1", None, "-5"]),
        (pa.array([True, None, False]), ["true", None, "false"]),
        (pa.array([dt.date(2024, 2, 29), None]), ["2024-02-29", None]),
        (pa.array([1704067200123456, None], pa.timestamp("us", "UTC")), ["1704067200123456", None]),
        (pa.array([1704067200123456, None], pa.timestamp("us")), ["1704067200123456", None]),
        (pa.array([Decimal("1.50"), None, Decimal("-0.00")], pa.decimal128(10, 2)), ["1.50", None, "0.00"]),
        (pa.array([Decimal(10) ** 20], pa.decimal128(25, 0)), ["100000000000000000000"]),
        (pa.array([1.5, None, 1.5]), ["1.5", None, "1.5"]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
        (pa.array([1.5, None, 2.0, 1e10]).slice(1), [None, "2.0", "1.0E10"]),
    ],
)
def test_value_text(column: pa.Array, texts: list[str | None]) -> None:
    found = value_text(column)
    assert found.type == pa.string()
    assert found.to_pylist() == texts


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())]), pa.map_(pa.string(), pa.int32())]
)
def test_types_that_make_no_key_are_named(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedFeatureError, match="cannot be part of a record key") as caught:
        value_text(pa.nulls(1, kind))
    assert str(kind) in str(caught.value)
