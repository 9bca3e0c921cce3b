"""Tables that real Hudi wrote: read, written on, or refused by name."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare import assert_same_rows

from golden_tables import VERSION_8, VERSION_9, unpack
from lakedex import Table
from lakedex.errors import UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import read_base_file
from table_kit import base_files, own, picture

FOUR = [(1, "Alice", False), (2, "Bob", False), (3, "Carol", True), (4, "Diana", True)]
WRITABLE = [name for name in VERSION_8 if name not in ("v8_empty", "v8_simplekeygen_hivestyle_no_metafields")]


def test_all_are_there() -> None:
    assert len(VERSION_8) == 5
    assert len(VERSION_9) == 3


@pytest.mark.proves("version 8, copy-on-write", "Hudi 1.0", "made")
@pytest.mark.parametrize("name", VERSION_8)
def test_tables_of_version_8_are_read(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    before = picture(path)
    table = Table.open(path)
    assert own(table, "id", "name", "isActive") == ([] if name == "v8_empty" else FOUR)
    assert table.name == name
    assert str(table)
    assert table.scan().count() == table.to_arrow().num_rows
    assert table.scan("id = 2").count() == table.scan("id = 2", use_indexes=False).count() == (name != "v8_empty")
    assert picture(path) == before


NOT_WRITTEN = {
    "v9_txns_simple_overwrite": "record index 'record_index'",
    "v9_timebasedkeygen_epochmillis": "key generator is TIMESTAMP",
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_tables_of_version_9_are_read_and_refused_by_what_they_have(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    before = picture(path)
    table = Table.open(path)
    keys = table.scan().to_arrow().column("txn_id").to_pylist()
    # Hudi itself doubled a key there: the second commit of its test went to a new file group.
    assert len(keys) - len(set(keys)) == (name == "v9_timebasedkeygen_epochmillis")
    assert keys
    with pytest.raises(UnsupportedFeatureError, match=NOT_WRITTEN[name]):
        table.delete(where="true")
    assert picture(path) == before


def test_a_table_of_version_9_is_written(tmp_path: Path) -> None:
    table = Table.open(unpack("v9_txns_nonpart_nometa", tmp_path))
    before = table.scan().to_arrow()
    key = before.column("txn_id")[0].as_py()
    assert table.delete(where=f"txn_id = '{key}'").deleted == 1
    assert table.scan().count() == len(before) - 1
    assert table.upsert(before).inserted == 1
    assert own(table) == own(before)


def test_all_types_of_java(tmp_path: Path) -> None:
    table = Table.open(unpack("v8_nonpartitioned", tmp_path))
    (row,) = table.scan("name = 'Alice'").to_arrow().to_pylist()
    assert row["decimalField"] == Decimal("12345.67890")
    assert row["arrayField"][0] == {"arr_struct_f1": "red", "arr_struct_f2": 100}
    assert dict(row["mapField"])["key1"] == {"map_field_value_struct_f1": 123.456, "map_field_value_struct_f2": True}
    assert row["structField"]["child_struct"].keys() == {"child_field1", "child_field2"}
    assert table.schema.field("timestampField").type == pa.timestamp("us", "UTC")
    assert table.scan("decimalField > 60000 and dateField >= date'2023-04-02'").count() == 2
    assert table.scan("structField.field2 is not null").count() == 4


def test_lists_of_two_levels(tmp_path: Path) -> None:
    # parquet-avro's old list structure, Java's default: a repeated group that is the item itself.
    path = unpack("v8_nonpartitioned", tmp_path)
    (file, *_) = base_files(path)
    assert "repeated group field_id=-1 array {" in str(pq.ParquetFile(path / file).schema)
    lists = read_base_file(LocalStorage(), str(path / file), ["arrayField"]).column("arrayField").to_pylist()
    assert {len(items) for items in lists} == {2, 3}
    assert all(isinstance(item["arr_struct_f1"], str) for items in lists for item in items)


def test_time_travel(tmp_path: Path) -> None:
    table = Table.open(unpack("v8_nonpartitioned", tmp_path))
    newest, first = table.inspect.history().column("commit_time").to_pylist()
    assert own(table.scan(as_of=newest).to_arrow(), "id", "isActive") == [(1, False), (2, False), (3, True), (4, True)]
    assert own(table.scan(as_of=first).to_arrow(), "id", "isActive") != own(table, "id", "isActive")


@pytest.mark.parametrize("name", WRITABLE)
def test_tables_of_java_are_written_on(tmp_path: Path, name: str) -> None:
    table = Table.open(unpack(name, tmp_path))
    rows = table.scan(columns=table.schema.names).to_arrow()
    changed = rows.set_column(rows.schema.get_field_index("intField"), "intField", pa.array([7] * 4, pa.int32()))
    new = changed.slice(0, 1).set_column(rows.schema.get_field_index("id"), "id", pa.array([99], pa.int32()))
    result = table.upsert(pa.concat_tables([changed.slice(0, 2), new]))
    assert (result.updated, result.inserted) == (2, 1)
    assert result.tagging.source == "metadata", "made before the write, as a Hudi writer does"
    report = Table.open(table.path).maintenance.validate()
    assert report.ok, str(report)
    expected = pa.concat_tables([changed.slice(0, 2), rows.slice(2), new])
    assert_same_rows(table.scan(columns=table.schema.names).to_arrow(), expected, "id")
    assert table.update({"intField": "intField + 1"}, "id = 99").updated == 1
    assert table.delete(where="id < 50").deleted == 4
    assert own(table, "id", "intField") == [(99, 8)]
    (instant,) = table.inspect.history().column("commit_time").to_pylist()[-1:]
    assert table.scan(as_of=instant).count() > 0


def test_the_first_rows_of_an_empty_table(tmp_path: Path) -> None:
    table = Table.open(unpack("v8_empty", tmp_path))
    row = pa.table({"id": pa.array([5], pa.int32()), "name": ["Eve"], "isActive": [True]})
    assert table.upsert(row).inserted == 1
    assert own(table) == [(5, "Eve", True)]


def test_without_meta_columns_nothing_is_written(tmp_path: Path) -> None:
    path = unpack("v8_simplekeygen_hivestyle_no_metafields", tmp_path)
    table = Table.open(path)
    before = picture(path)
    with pytest.raises(UnsupportedFeatureError, match="no meta columns"):
        table.delete(where="id = 1")
    assert table.scan(meta_columns=True).to_arrow().column("_hoodie_record_key").null_count == 4
    assert picture(path) == before
