"""Types that Hudi has beside Spark's: vectors as lists of numbers, blobs as structs; never written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from golden_tables import read_by_java, unpack_java_1_2
from lakedex import Table
from lakedex.codec.avro_schema import avro_to_arrow
from lakedex.codec.avro_vectorized import Datums, decode_datums
from lakedex.codec.vectors import hudi_types
from lakedex.errors import UnsupportedFeatureError
from lakedex.parquet.conform import conform_stored
from lakedex.spark.data_source import LakedexDataSource
from lakedex.spark.schema import spark_to_arrow
from table_kit import picture, set_properties


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_java_1_2("vector_blob", tmp_path_factory.mktemp("types"))


def expected(path: Path) -> list[dict[str, Any]]:
    rows = read_by_java(path)
    for row in rows:
        row["doc"]["data"] = bytes.fromhex(row["doc"]["data"].removeprefix("hex:"))
    return [{name: row[name] for name in ("id", "emb", "doc", "ts")} for row in rows]


def test_rows_are_those_that_java_reads(path: Path) -> None:
    table = Table.open(path)
    names = table.schema.names
    assert table.schema.field("emb").type == pa.list_(pa.field("element", pa.float32(), False), 3)
    for rows in (table.scan().to_arrow(), table.to_arrow(), table.changes("earliest").to_arrow()):
        assert rows.select(names).to_pylist() == expected(path)
    assert table.scan(columns=["emb"]).to_arrow().to_pylist() == [{"emb": [1.0, 0.5, -2.0]}]
    assert table.scan("doc.type = 'INLINE' AND emb IS NOT NULL").count() == 1
    assert table.scan("doc.type = 'OUT_OF_LINE' OR doc IS NULL").count() == 0


def test_the_data_source_gives_arrays(path: Path) -> None:
    source = LakedexDataSource({"path": str(path), "columns": "id, emb, doc, ts"})
    schema = source.schema()
    reader = source.reader(schema)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert found[0].schema == spark_to_arrow(schema)
    assert pa.Table.from_batches(found).to_pylist() == expected(path)


@pytest.fixture(scope="module")
def without_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without its metadata table, whose record index is a reason of its own not to write."""
    path = unpack_java_1_2("vector_blob", tmp_path_factory.mktemp("plain"))
    set_properties(path, {"hoodie.table.metadata.partitions": ""})
    return path


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(table.scan(columns=table.schema.names).to_arrow()),
    "bulk_insert": lambda table: table.bulk_insert(table.scan(columns=table.schema.names).to_arrow()),
    "update": lambda table: table.update({"ts": "1L"}),
    "delete": lambda table: table.delete(where="true"),
    "add_columns": lambda table: table.add_columns(pa.schema([("more", pa.int32())])),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_are_refused_by_column(without_index: Path, write: Callable[[Table], object]) -> None:
    before = picture(without_index)
    with pytest.raises(UnsupportedFeatureError, match=r"'vector_blob': column 'emb' is a VECTOR .*reading works"):
        write(Table.open(without_index))
    assert picture(without_index) == before


def vector(element: str, dimension: int, size: int, **more: Any) -> dict[str, Any]:
    node = {"type": "fixed", "name": "v", "size": size, "logicalType": "vector", "dimension": dimension}
    return {**node, "elementType": element, "storageBacking": "FIXED_BYTES", **more}


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}


@pytest.mark.parametrize(
    ("element", "kind", "values"),
    [
        ("FLOAT", pa.float32(), [[1.0, 0.5], None, [-2.0, 3.5]]),
        ("DOUBLE", pa.float64(), [[1.0, 1e300], None, [-2.0, 0.1]]),
        ("INT8", pa.int8(), [[1, -128], None, [127, 0]]),
    ],
)
def test_each_kind_of_number(element: str, kind: pa.DataType, values: list[Any]) -> None:
    width = kind.bit_width // 8
    avro = record(["null", vector(element, 2, 2 * width)])
    schema = avro_to_arrow(avro)
    assert schema.field("v").type == pa.list_(pa.field("element", kind, False), 2)
    raw = [None if value is None else np.array(value, kind.to_pandas_dtype()).tobytes() for value in values]
    stored = pa.record_batch({"v": pa.array(raw, pa.binary(2 * width))})
    assert conform_stored(stored, schema).column(0).to_pylist() == values
    assert conform_stored(stored.slice(1), schema).column(0).to_pylist() == values[1:]
    datums = Datums.of([b"\x00" if one is None else b"\x02" + one for one in raw])
    assert decode_datums(datums, json.dumps(avro), ["v"]).column("v").to_pylist() == values
    spark = pa.schema([("v", pa.list_(pa.field("element", kind)))])
    assert conform_stored(conform_stored(stored, schema), spark).column(0).to_pylist() == values


@pytest.mark.parametrize(
    "node", [vector("FLOAT", 3, 8), vector("INT4", 3, 12), vector("FLOAT", 2, 8, logicalType="unknown")]
)
def test_what_is_no_vector_stays_bytes(node: dict[str, Any]) -> None:
    assert avro_to_arrow(record(node)).field("v").type == pa.binary(node["size"])


def test_types_are_found_at_every_depth() -> None:
    blob = {"type": "record", "name": "b", "logicalType": "blob", "fields": [{"name": "data", "type": "bytes"}]}
    inner = {"type": "array", "items": ["null", {**record(blob), "name": "inner"}]}
    assert hudi_types(record(["null", inner])) == {"v": "BLOB"}
    assert hudi_types(record({"type": "map", "values": vector("FLOAT", 1, 4)})) == {"v": "VECTOR"}
    assert hudi_types(record({"type": "int", "logicalType": "date"})) == {}
