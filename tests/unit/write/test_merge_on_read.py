"""Writing merge-on-read tables, each operation against a plain model."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex import Table
from lakedex.codec.avro_vectorized import datum_schema, decode_datums, split_avro_block
from lakedex.codec.log_block import LogBlock, decode_delete_block, decode_log_blocks
from lakedex.codec.log_records import encode_positions
from lakedex.errors import (
    CommitConflictError,
    CorruptFileError,
    InvalidInputError,
    OptionError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from lakedex.layout.names import parse_log_file_name
from lakedex.metadata.records import column_stats_key
from lakedex.types import META_COLUMNS
from seams import ANNOUNCED, meanwhile, once_read
from table_kit import OWN_FILE, ROWS, make, own, properties, rows

VERSIONS = (6, 8, 9)
MODES = ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
SMALL_FILES = {"hoodie.parquet.small.file.limit": 1 << 20}
NO_COMPACTION = {"hoodie.compact.inline": False}
ALLOW = {"hoodie.datasource.insert.dup.policy": "none", "hoodie.combine.before.insert": False}

Row = tuple[str, str, int, int]


def mor(path: Path, version: int = 8, mode: str = MODES[0], **arguments: Any) -> Table:
    """An empty table whose inserts open new groups."""
    options = {"hoodie.write.table.version": version, "hoodie.record.merge.mode": mode, **OWN_FILE, **NO_COMPACTION}
    given: dict[str, Any] = {"schema": ROWS, "partition_by": "city", "ordering_by": "ts", **arguments}
    return make(path, table_type="mor", options=options, **given)


def log_blocks(path: Path) -> Iterator[tuple[str, LogBlock]]:
    """Names of a table's log files and their blocks, oldest first."""
    for file in sorted(path.rglob(".*.log.*"), key=lambda file: file.stat().st_mtime_ns):
        if ".hoodie" not in file.parts and file.suffix != ".crc":
            for block in decode_log_blocks(file.read_bytes()):
                yield file.name, block


def kinds(path: Path) -> list[str]:
    return [block.block_type for _, block in log_blocks(path)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_table_is_one_of_hudis(tmp_path: Path, version: int) -> None:
    table = mor(tmp_path, version)
    table.insert(rows(("1", "a", 1, 1), ("2", "b", 1, 1)))
    assert properties(tmp_path)["hoodie.table.type"] == "MERGE_ON_READ"
    assert [instant.action for instant in table.snapshot().timeline.completed()] == ["deltacommit"]
    assert own(Table.open(tmp_path)) == [("1", "a", 1, 1), ("2", "b", 1, 1)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_life_of_a_table(tmp_path: Path, version: int, mode: str) -> None:
    table, late_counts = mor(tmp_path, version, mode), mode == MODES[1]
    table.insert(rows(*((str(n), "ab"[n % 2], 10, n) for n in range(6))))
    table.indexes.create("bitmap", columns=["n"])
    model: dict[str, Row] = {str(n): (str(n), "ab"[n % 2], 10, n) for n in range(6)}

    def step(result: Any, counts: tuple[int, int, int]) -> None:
        assert (result.inserted, result.updated, result.deleted) == counts
        for opened in (table, Table.open(tmp_path)):
            assert own(opened) == sorted(model.values())
            for number in (0, 1, 7, 8, 9):
                wanted = sum(row[3] == number for row in model.values())
                assert opened.scan(where=f"n = {number}").count() == wanted, number
            assert opened.scan().count() == len(model)

    def put(*given: Row) -> None:
        model.update({row[0]: row for row in given})

    # newer, equal and late rows, and a new one
    result = table.upsert(rows(("0", "a", 11, 7), ("1", "b", 10, 7), ("2", "a", 9, 8), ("7", "a", 1, 7)))
    put(("0", "a", 11, 7), ("1", "b", 10, 7), ("7", "a", 1, 7))
    if late_counts:
        put(("2", "a", 9, 8))
    step(result, (1, 2 + late_counts, 0))
    assert kinds(tmp_path) == ["AVRO_DATA"] * 2
    # deletes by key, of keys that are not there too, and by a condition over merged rows
    result = table.delete(rows(("0", "a", 0, 0), ("9", "a", 0, 0)).select(["id", "city"]))
    del model["0"]
    step(result, (0, 0, 1))
    result = table.delete(where="n = 7 AND city = 'b'")
    del model["1"]
    step(result, (0, 0, 1))
    step(table.delete(rows(("0", "a", 0, 0)).select(["id", "city"])), (0, 0, 0))
    # deleted keys come back in their own groups, late ones do not
    files = {path.name for path in tmp_path.rglob("*.parquet")}
    result = table.upsert(rows(("0", "a", 12, 8), ("1", "b", 5, 9)))
    put(("0", "a", 12, 8), *([("1", "b", 5, 9)] if late_counts else []))
    step(result, (1 + late_counts, 0, 0))
    assert {path.name for path in tmp_path.rglob("*.parquet")} == files
    # an insert that looks keys up
    table.delete(rows(("3", "b", 0, 0)).select(["id", "city"]))
    drop = {"hoodie.datasource.insert.dup.policy": "drop"}
    result = table.insert(rows(("2", "a", 99, 9), ("3", "b", 20, 9), ("8", "b", 1, 1)), options=drop)
    put(("3", "b", 20, 9), ("8", "b", 1, 1))
    step(result, (2, 0, 0))
    fail = {"hoodie.datasource.insert.dup.policy": "fail"}
    with pytest.raises(InvalidInputError, match="1 keys are in the table already, for example '3'"):
        table.insert(rows(("3", "b", 20, 9)), options=fail)
    # updates see merged rows; a smaller ordering value needs a base file
    result = table.update({"n": "n + 1"}, where="n = 8")
    for key in [key for key, row in model.items() if row[3] == 8]:
        put((*model[key][:3], 9))
    step(result, (0, 1 + late_counts, 0))
    result = table.update({"ts": 1}, where="id = '0'")
    put(("0", "a", 1, 9))
    step(result, (0, 1, 0))
    # a merge that updates, deletes and inserts
    source = rows(("0", "a", 30, 1), ("2", "a", 30, 2), ("4", "a", 30, 3), ("10", "b", 30, 4))
    clauses = table.merge(source, "t.id = s.id").when_matched_delete("s.n = 3").when_matched_update_all()
    result = clauses.when_not_matched_insert_all().execute()
    put(("0", "a", 30, 1), ("2", "a", 30, 2), ("10", "b", 30, 4))
    del model["4"]
    step(result, (1, 2, 1))
    result = table.merge(rows(("4", "a", 40, 4)), "t.id = s.id").when_not_matched_insert_all().execute()
    put(("4", "a", 40, 4))
    step(result, (1, 0, 0))
    # replacements
    step_of = [row for row in model.values() if row[1] == "b"]
    result = table.insert_overwrite(rows(("20", "a", 1, 1)))
    model.clear()
    put(*step_of, ("20", "a", 1, 1))
    step(result, (1, 0, 0))
    table.delete_partition({"city": "b"})
    result = table.bulk_insert(rows(("30", "c", 1, 1), ("31", "c", 1, 7)))
    model.clear()
    put(("20", "a", 1, 1), ("30", "c", 1, 1), ("31", "c", 1, 7))
    step(result, (2, 0, 0))
    # a new column
    table.add_columns(pa.schema([("extra", pa.string())]))
    table.upsert(pa.table({"id": ["30"], "city": ["c"], "ts": [2], "n": pa.array([5], pa.int32()), "extra": ["x"]}))
    assert own(table) == [("20", "a", 1, 1, None), ("30", "c", 2, 5, "x"), ("31", "c", 1, 7, None)]
    actions = {instant.action for instant in table.snapshot().timeline.completed()}
    assert actions == {"deltacommit", "replacecommit"}
    assert not list((tmp_path / ".hoodie" / ".temp").iterdir())


@pytest.mark.parametrize("seed", range(4))
def test_positions_are_those_of_the_base_file(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    table = mor(tmp_path, source.choice((8, 9)), MODES[1], ordering_by=())
    keys = [str(n) for n in source.sample(range(2000), 1500)]
    table.insert(rows(*((key, "a", 1, 1) for key in keys)))
    (base,) = table.snapshot().base_files()
    place = {key: n for n, key in enumerate(table.scan(columns=["id"]).to_arrow().column(0).to_pylist())}
    for _ in range(3):
        chosen = source.sample(keys, 200)
        table.upsert(rows(*((key, "a", 2, 2) for key in chosen)))
        table.delete(rows(*((key, "a", 2, 2) for key in chosen[150:])).select(["id", "city"]))
    blocks = [block for _, block in log_blocks(tmp_path)]
    assert [block.block_type for block in blocks] == ["AVRO_DATA", "DELETE"] * 3
    for block in blocks:
        if block.block_type == "DELETE":
            found = [record["recordKey"] for record in decode_delete_block(block.content)]
        else:
            found = decode_datums(split_avro_block(block.content), block.header["SCHEMA"], ["id"]).column(0).to_pylist()
        assert block.header["BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS"] == base.instant
        assert block.header["RECORD_POSITIONS"] == encode_positions(np.array([place[key] for key in found]))
        assert sorted(found, key=place.__getitem__) == found


@pytest.mark.parametrize(
    "given, names",
    [
        (rows(("0", "a", None, 1)), "column 'ts' is null in 1 rows.*'0'"),
        (rows(("9", "a", None, 1)), "'9'"),
    ],
    ids=["stored", "new"],
)
def test_rows_that_java_could_not_compare(tmp_path: Path, given: pa.Table, names: str) -> None:
    table = mor(tmp_path)
    table.insert(rows(("0", "a", 1, 1)))
    with pytest.raises(InvalidInputError, match=names):
        table.upsert(given)
    assert own(table) == [("0", "a", 1, 1)]


def test_a_null_int_orders_as_zero(tmp_path: Path) -> None:
    schema = ROWS.set(2, pa.field("ts", pa.int32()))
    table = mor(tmp_path, schema=schema)
    table.insert(rows(("0", "a", 0, 1), ("1", "a", 1, 1), schema=schema))
    table.upsert(rows(("0", "a", None, 2), ("1", "a", None, 2), schema=schema))
    assert own(table) == [("0", "a", None, 2), ("1", "a", 1, 1)]
    table.delete(rows(("0", "a", 0, 0), ("1", "a", 0, 0), schema=schema).select(["id", "city"]))
    assert own(table) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_delete_themselves(tmp_path: Path, version: int) -> None:
    schema = ROWS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = mor(tmp_path, version, schema=schema)
    table.insert(rows(*((str(n), "a", 10, n, False) for n in range(4)), schema=schema))
    result = table.upsert(rows(("0", "a", 11, 0, True), ("1", "a", 9, 0, True), ("2", "a", 11, 5, None), schema=schema))
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 1)
    assert own(table, "id", "ts", "n") == [("1", 10, 1), ("2", 11, 5), ("3", 10, 3)]
    assert kinds(tmp_path) == ["AVRO_DATA", "DELETE"]
    (delete,) = [block for _, block in log_blocks(tmp_path) if block.block_type == "DELETE"]
    assert [record["orderingVal"][1]["value"] for record in decode_delete_block(delete.content)] == [11]


@pytest.mark.parametrize("moves", [True, False])
def test_a_global_index_knows_deleted_keys(tmp_path: Path, moves: bool) -> None:
    options = {"hoodie.index.type": "GLOBAL_BLOOM", **OWN_FILE}
    table = make(tmp_path, schema=ROWS, table_type="mor", partition_by="city", ordering_by="ts", options=options)
    table.insert(rows(*((str(n), "a", 10, n) for n in range(4))))
    table.delete(rows(("0", "", 0, 0), ("1", "", 0, 0)).select(["id"]))
    given = rows(("0", "b", 11, 7), ("1", "a", 11, 7), ("2", "b", 11, 7))
    result = table.upsert(given, options={"hoodie.bloom.index.update.partition.path": moves})
    assert (result.inserted, result.updated, result.deleted) == ((3, 0, 1) if moves else (2, 1, 0))
    place = "b" if moves else "a"
    assert own(table) == [("0", "b", 11, 7), ("1", "a", 11, 7), ("2", place, 11, 7), ("3", "a", 10, 3)]
    # The key that moved away comes back to the group that has it.
    table.upsert(rows(("2", "a", 12, 8)))
    assert own(table)[2] == ("2", "a", 12, 8)
    assert [item.partition for item in table.snapshot().slices()] == ["city=a", "city=b"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_log_files_cannot_say_is_a_base_file(tmp_path: Path, version: int) -> None:
    table = mor(tmp_path, version)
    table.insert(rows(("0", "a", 10, 0), ("0", "a", 11, 1), ("1", "a", 10, 2)), options=ALLOW)
    table.upsert(rows(("1", "a", 11, 3)))
    table.delete(rows(("0", "a", 0, 0)).select(["id", "city"]))
    assert own(table) == [("1", "a", 11, 3)]
    (item,) = table.snapshot().slices()
    assert item.log_files == ()
    assert len(table.inspect.history()) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_an_erasure_of_rows_in_log_files(tmp_path: Path, version: int) -> None:
    note = ROWS.append(pa.field("note", pa.string()))
    table = mor(tmp_path, version, schema=note)
    table.insert(rows(*((key, "ab"[key == "3"], 1, 1, f"first-{key}") for key in "0123"), schema=note))
    table.upsert(rows(("0", "a", 3, 2, "second-0"), ("2", "a", 3, 2, "second-2"), schema=note))
    table.delete(where="id = '1'")
    table.upsert(rows(("3", "b", 3, 2, "second-3"), schema=note))
    left = [("2", "a", 3, 2, "second-2"), ("3", "b", 3, 2, "second-3")]
    before = {str(log.relative_path) for item in table.snapshot().slices(["city=a"]) for log in item.log_files}
    # a row of a log file, and one that a log file has deleted, whose old version its base file has
    report = table.erase(keys=["0", "1", "nobody"], all_partitions=True)
    assert (report.rows, report.files_rewritten, report.is_verified, report.proof.rows) == (1, 1, True, 0)
    assert own(Table.open(tmp_path)) == left
    (item,) = table.snapshot().slices(["city=a"])
    assert item.base_file is not None and not item.log_files
    assert {file.relative_path for file in report.retained_in if file.name.startswith(".")} == before
    assert len(report.retained_in) == len(before) + 1
    report = table.erase(where="note = 'second-3'")
    assert (report.rows, report.is_verified, own(Table.open(tmp_path))) == (1, True, left[:1])
    assert "only in an older commit" in str(report)
    # what was named is all there was: once cleaned, no byte of the rows is left
    table.maintenance.clean(versions=1)
    report = table.erase(keys=["0", "1", "3"], all_partitions=True)
    assert (report.rows, report.is_physical, report.retained_in) == (0, True, ())
    held = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and ".hoodie" not in file.parts]
    for text in (b"first-0", b"second-0", b"first-1", b"second-3", b"first-3"):
        assert not any(text in content for content in held), text
    assert own(Table.open(tmp_path)) == left[:1]


@pytest.mark.parametrize("version", VERSIONS)
def test_renames_and_widening_of_rows_in_log_files(tmp_path: Path, version: int) -> None:
    schema = pa.schema([*ROWS, ("f", pa.float32())])
    table = mor(tmp_path, version, schema=schema)
    table.insert(rows(*((str(n), "ab"[n % 2], 1, n, 0.25) for n in range(4)), schema=schema))
    table.upsert(rows(("0", "a", 3, 9, 0.75), schema=schema))
    table.delete(where="id = '1'")
    instant = table.snapshot().instant
    assert table.rename_column("n", "m").files_written == 2
    left = [("0", "a", 3, 9), ("2", "a", 1, 2), ("3", "b", 1, 3)]
    assert own(Table.open(tmp_path), "id", "city", "ts", "m") == left
    assert own(table.scan("n = 9", as_of=instant).to_arrow(), "id") == [("0",)]
    table.upsert(rows(("2", "a", 5, 5, 0.75), schema=table.schema))
    assert table.widen_column("f", pa.float64()).files_written == 2
    assert own(Table.open(tmp_path), "id", "f") == [("0", 0.75), ("2", 0.75), ("3", 0.25)]
    table.upsert(rows(("3", "b", 5, 5, 0.5), schema=table.schema))
    table.drop_columns("f")
    assert (table.maintenance.rewrite_files().files_written, table.maintenance.rewrite_files().instant) == (2, None)
    table.add_columns(pa.schema([("f", pa.string())]))
    assert own(Table.open(tmp_path)) == [("0", "a", 3, 9, None), ("2", "a", 5, 5, None), ("3", "b", 5, 5, None)]
    assert table.scan("f is null").count() == 3
    assert [item.log_files for item in table.snapshot().slices()] == [(), ()]
    table.upsert(rows(("2", "a", 7, 7, "x"), schema=table.schema))
    plan = table.maintenance.compact(plan_only=True)
    for refused in (lambda: table.erase(where="m = 7"), lambda: table.rename_column("m", "n")):
        with pytest.raises(UnsupportedFeatureError, match=f"table service {plan.instants[0]} of it is pending"):
            refused()
    assert own(Table.open(tmp_path), "id", "m") == [("0", 9), ("2", 7), ("3", 5)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dropped_name_that_only_log_files_hold(tmp_path: Path, version: int) -> None:
    table = mor(tmp_path, version)
    table.insert(rows(("0", "a", 1, 1), ("1", "a", 1, 1)))
    more = ROWS.append(pa.field("note", pa.string()))
    table.add_columns(pa.schema([("note", pa.string())]))
    table.upsert(rows(("0", "a", 2, 2, "old"), schema=more))
    table.drop_columns("note")
    for again in (
        lambda: table.add_columns(pa.schema([("note", pa.string())])),
        lambda: table.upsert(rows(("1", "a", 2, 2, "new"), schema=more)),
        lambda: table.rename_column("n", "note"),
    ):
        with pytest.raises(
            SchemaMismatchError, match=r"1 files still hold it \(for example city=a/\..*\.log\."
        ) as caught:
            again()
        assert caught.value.column == "note"
    assert own(Table.open(tmp_path)) == [("0", "a", 2, 2), ("1", "a", 1, 1)]
    table.maintenance.compact()
    table.add_columns(pa.schema([("note", pa.string())]))
    assert own(Table.open(tmp_path)) == [("0", "a", 2, 2, None), ("1", "a", 1, 1, None)]


PARTIAL = "hoodie.spark.sql.merge.into.partial.updates"
NOTED = pa.schema([*ROWS, ("note", pa.string()), ("x", pa.float64())])


@pytest.mark.parametrize(
    "version, mode, options, columns",
    [
        (6, MODES[1], {PARTIAL: True}, None),
        (8, MODES[1], {PARTIAL: True}, ["n", "note"]),
        (9, MODES[1], {PARTIAL: True, "hoodie.logfile.data.block.format": "parquet"}, ["n", "note"]),
        (9, MODES[1], {}, None),
        (8, MODES[0], {PARTIAL: True}, ["ts", "n", "note"]),
    ],
)
def test_updates_of_some_columns(
    tmp_path: Path, version: int, mode: str, options: dict[str, Any], columns: list[str] | None
) -> None:
    table = mor(tmp_path, version, mode, schema=NOTED)
    table.indexes.create("bitmap", columns=["n"])
    model = {str(n): (str(n), "ab"[n % 2], 1, n, f"note {n}", n / 2) for n in range(6)}
    table.insert(rows(*model.values(), schema=NOTED))
    table.delete(where="id = '2'")
    seen = len(kinds(tmp_path))
    # one clause sets the number, one the note: blocks have both; the key that a log file deleted comes back whole
    source = rows(("0", "a", 5, 50, "s", 0.5), ("1", "b", 5, 51, "s", 0.5), ("2", "a", 5, 52, "s", 0.5), schema=NOTED)
    merge = table.merge(source, "t.id = s.id").when_matched_update({"n": "s.n"}, condition="s.n = 50")
    merge = merge.when_matched_update({"note": "s.note"}).when_not_matched_insert_all()
    result = merge.execute(options=options)
    assert (result.inserted, result.updated) == (1, 2)
    model |= {"0": ("0", "a", 1, 50, "note 0", 0.0), "1": ("1", "b", 1, 1, "s", 0.5), "2": ("2", "a", 5, 52, "s", 0.5)}
    written = [block for _, block in log_blocks(tmp_path)][seen:]
    partial = [block for block in written if block.header.get("IS_PARTIAL") == "true"]
    assert [len(written), len(partial)] == ([2, 0] if columns is None else [3, 2])
    for block in partial:
        assert datum_schema(block.header["SCHEMA"], "").names == [*META_COLUMNS, *(columns or ())]
        assert "RECORD_POSITIONS" in block.header
        if block.block_type == "PARQUET_DATA":
            assert pq.read_schema(io.BytesIO(block.content)).names == [*META_COLUMNS, *(columns or ())]
    table.update({"x": "x + n"}, where="n > 2", options=options)
    model |= {key: (*row[:5], row[5] + row[3]) for key, row in model.items() if row[3] > 2}
    for step in (None, table.maintenance.compact):
        if step is not None:
            step()
        for opened in (table, Table.open(tmp_path)):
            assert own(opened) == sorted(model.values())
            assert own(opened.scan("n = 50 AND note = 'note 0' AND x = 50").to_arrow(), "id") == [("0",)]
        assert table.maintenance.validate().ok
    # A deleted key that comes back where log files have partial updates: Java could not read that.
    table.update({"x": 0.0}, where="id in ('1', '3')", options=options)
    table.delete(where="id = '3'")
    table.upsert(rows(("3", "b", 7, 7, "again", 7.0), schema=NOTED), options=options)
    model |= {"1": (*model["1"][:5], 0.0), "3": ("3", "b", 7, 7, "again", 7.0)}
    assert own(Table.open(tmp_path)) == sorted(model.values())
    assert len(table.snapshot().slices(["city=b"])[0].log_files) == (3 if columns is None else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_full_blocks_and_full_files(tmp_path: Path, version: int) -> None:
    table = mor(tmp_path, version)
    table.indexes.create("bitmap", columns=["n"])
    table.insert(rows(*((str(n), "a", 1, n) for n in range(700))))
    sizes = {"hoodie.logfile.data.block.max.size": 6_000, "hoodie.logfile.max.size": 16_000}
    given = rows(*((str(n), "a", 2, n + 1000) for n in range(600)))
    result = table.upsert(given, options=sizes)
    names = [name for name, _ in log_blocks(tmp_path)]
    assert (result.updated, result.files_written) == (600, len(set(names)))
    assert len(set(names)) > 2 and len(names) > len(set(names))
    (item,) = table.snapshot().slices()
    assert [log.name for log in item.log_files] == list(dict.fromkeys(names))
    assert [parse_log_file_name(log.name).version for log in item.log_files] == list(range(1, len(set(names)) + 1))
    stats = table.snapshot().timeline.commit_metadata(table.snapshot().timeline.completed()[-1]).write_stats["city=a"]
    listed = list(dict.fromkeys(names))
    assert [list(stat.log_files) for stat in stats] == [listed[: n + 1] for n in range(len(listed))]
    assert sum(stat.num_updates for stat in stats) == 600
    gone = table.delete(rows(*((str(n), "a", 2, 0) for n in range(0, 700, 7))).select(["id", "city"]), options=sizes)
    assert gone.deleted == 100
    # as Java has it of a log file of deletes alone
    (item,) = table.snapshot().slices()
    key = column_stats_key("n", "city=a", item.log_files[-1].name)
    stat = table.snapshot().metadata.get_many("column_stats", [key])[key]["ColumnStatsMetadata"]
    assert (stat["minValue"], stat["valueCount"], stat["nullCount"]) == (None, 0, 0)
    assert stat["valueType"] == ({"typeOrdinal": 1, "additionalInfo": None} if version == 9 else None)
    model = [(str(n), "a", 1 + (n < 600), n + 1000 * (n < 600)) for n in range(700) if n % 7]
    for _ in range(2):
        assert own(Table.open(tmp_path)) == sorted(model, key=repr)
        assert table.scan("n = 1001").count() == 1
        assert table.maintenance.validate().ok
        table.maintenance.compact()


@pytest.mark.parametrize("version", VERSIONS)
def test_log_blocks_in_parquet(tmp_path: Path, version: int) -> None:
    kinds_of = pa.schema([*ROWS, ("s", pa.struct([("x", pa.list_(pa.float64()))])), ("d", pa.decimal128(20, 2))])
    table = mor(tmp_path, version, schema=kinds_of)
    first = [(str(n), "a", 1, n, {"x": [0.5, None]}, Decimal(n)) for n in range(5)]
    table.insert(rows(*first, schema=kinds_of))
    given = [("1", "a", 2, 7, None, None), ("3", "a", 2, 8, {"x": None}, Decimal("7.25")), ("4", "a", 2, 9, None, None)]
    parquet = {"hoodie.logfile.data.block.format": "parquet"}
    table.upsert(rows(*given, schema=kinds_of), options=parquet)
    table.delete(where="id = '4'")
    expected = [first[0], given[0], first[2], given[1]]
    assert own(Table.open(tmp_path)) == expected
    (_, block), (_, deleted) = log_blocks(tmp_path)
    assert (block.block_type, deleted.block_type) == ("PARQUET_DATA", "DELETE")
    footer = pq.ParquetFile(pa.BufferReader(block.content)).metadata
    assert sorted(footer.metadata) == [b"parquet.avro.schema", b"writer.model.name"]
    assert ("RECORD_POSITIONS" in block.header) == (version >= 8)
    assert table.maintenance.validate().ok
    table.maintenance.compact()
    assert own(Table.open(tmp_path)) == expected
    with pytest.raises(OptionError, match="hfile"):
        table.upsert(rows(*given, schema=kinds_of), options={"hoodie.logfile.data.block.format": "hfile"})


def test_a_write_that_fails_leaves_no_log_file(tmp_path: Path) -> None:
    table = mor(tmp_path)
    table.insert(rows(("0", "a", 1, 1), ("1", "b", 1, 1)))
    with pytest.raises(InvalidInputError):
        table.upsert(rows(("0", "a", 2, 2), ("1", "b", None, 2)))
    assert list(log_blocks(tmp_path)) == []
    assert own(table) == [("0", "a", 1, 1), ("1", "b", 1, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_write_runs_the_compaction_that_is_in_its_way(tmp_path: Path, version: int) -> None:
    table = mor(tmp_path, version)
    table.insert(rows(("0", "a", 10, 0), ("1", "a", 10, 1)))
    table.delete(where="id = '1'")
    plan = table.maintenance.compact(plan_only=True)
    result = table.upsert(rows(("1", "a", 11, 2)), options={"hoodie.compact.inline": True})
    assert f"ran the pending compaction {plan.instants[0]} first" in result.notes
    assert own(table) == own(Table.open(tmp_path)) == [("0", "a", 10, 0), ("1", "a", 11, 2)]
    table.upsert(rows(("0", "a", 12, 3)))
    plan = table.maintenance.compact(plan_only=True)
    with pytest.raises(CommitConflictError, match=f"{plan.instants[0]} is a pending .*unschedule_compaction"):
        table.insert_overwrite(rows(("5", "a", 1, 1)))
    table.insert_overwrite(rows(("5", "a", 1, 1)), options={"hoodie.compact.inline": True})
    assert own(table) == own(Table.open(tmp_path)) == [("5", "a", 1, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_writes_beside_a_pending_compaction(tmp_path: Path, version: int) -> None:
    table = mor(tmp_path, version)
    table.insert(rows(*((str(n), "a", 10, n) for n in range(5))))
    table.upsert(rows(("0", "a", 11, 7)))
    plan = table.maintenance.compact(plan_only=True)
    table.upsert(rows(("0", "a", 12, 8), ("1", "a", 12, 8), ("9", "a", 1, 9)), options=SMALL_FILES)
    table.delete(where="id = '2'")
    left = [("0", "a", 12, 8), ("1", "a", 12, 8), ("3", "a", 10, 3), ("4", "a", 10, 4), ("9", "a", 1, 9)]
    assert own(table) == own(Table.open(tmp_path)) == left
    with pytest.raises(UnsupportedFeatureError, match=rf"compaction {plan.instants[0]} of it is pending"):
        table.update({"ts": 1}, where="id = '3'")
    with pytest.raises(
        UnsupportedFeatureError, match=rf"a deleted one that comes back\), and compaction {plan.instants[0]}"
    ):
        table.upsert(rows(("2", "a", 12, 2)))
    table.maintenance.compact(instant=plan.instants[0])
    assert own(table) == own(Table.open(tmp_path)) == left
    assert sorted(len(item.log_files) for item in table.snapshot().slices()) == [0, 2]
    table.update({"ts": 1}, where="id = '3'")
    table.upsert(rows(("2", "a", 12, 2)))
    assert own(table) == [*left[:2], ("2", "a", 12, 2), ("3", "a", 1, 3), *left[3:]]


@pytest.mark.parametrize("ends", [False, True], ids=["planned", "run"])
@pytest.mark.parametrize("rewrites", [False, True], ids=["log", "base"])
def test_a_compaction_that_comes_in_between(tmp_path: Path, ends: bool, rewrites: bool) -> None:
    """In version 6 a compaction waits for writers that have begun: they have chosen the names of their files."""
    table = mor(tmp_path)
    table.insert(rows(("0", "a", 10, 0), *([("0", "a", 10, 1)] * rewrites), ("1", "a", 10, 1)), options=ALLOW)
    table.upsert(rows(("1", "a", 11, 7)))
    opened = Table.open(tmp_path, options=NO_COMPACTION)
    other = meanwhile(opened, lambda other: other.maintenance.compact(plan_only=not ends), ANNOUNCED)
    given = rows(("0", "a", 12, 8), ("1", "a", 12, 8))
    if rewrites and not ends:
        with pytest.raises(UnsupportedFeatureError, match="of it is pending"):
            other.upsert(given)
        assert own(Table.open(tmp_path))[2] == ("1", "a", 11, 7)
        return
    result = other.upsert(given)
    assert result.updated == 2 + rewrites
    left = [("0", "a", 12, 8)] * (1 + rewrites) + [("1", "a", 12, 8)]
    assert own(Table.open(tmp_path)) == left
    for pending in Table.open(tmp_path).snapshot().timeline.pending({"compaction"}):
        table.maintenance.compact(instant=pending.requested)
        assert own(Table.open(tmp_path)) == left
    assert [len(item.log_files) for item in Table.open(tmp_path).snapshot().slices()] == [0 if rewrites else 1]


@pytest.mark.parametrize("begun", [False, True], ids=["read", "begun"])
@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_were_read_before_a_compaction(tmp_path: Path, version: int, begun: bool) -> None:
    """Updates, merges and deletes by conditions go on: a compaction changes no row."""
    calls: dict[str, Callable[[Table], Any]] = {
        "update": lambda table: table.update({"n": "n + 1"}, where="n >= 7"),
        "smaller": lambda table: table.update({"ts": 2}, where="id = '1'"),
        "delete": lambda table: table.delete(where="id = '2'"),
        "merge": lambda table: (
            table.merge(rows(("0", "a", 30, 1), ("9", "a", 30, 9)), "t.id = s.id")
            .when_matched_update({"n": "s.n"})
            .when_not_matched_insert_all()
            .execute(options={"hoodie.write.num.retries.on.conflict.failures": 0} if not begun else {})
        ),
    }
    changed = {"update": ("0", "a", 11, 8), "smaller": ("1", "a", 2, 1), "delete": None, "merge": ("0", "a", 11, 1)}
    for name, call in calls.items():
        path = tmp_path / name
        table = mor(path, version)
        table.insert(rows(*((str(n), "a", 10, n) for n in range(4))))
        table.upsert(rows(("0", "a", 11, 7)))
        ran: list[str] = []

        def compact(other: Table, ran: list[str] = ran) -> None:
            with contextlib.suppress(CommitConflictError):  # In version 6 it waits for a write that has begun.
                ran.extend(other.maintenance.compact().instants)

        opened = Table.open(path, options=NO_COMPACTION)
        call(meanwhile(opened, compact, ANNOUNCED) if begun else once_read(opened, compact))
        assert ran or (version == 6 and begun), name
        model = {str(n): (str(n), "a", 10, n) for n in range(4)} | {"0": ("0", "a", 11, 7)}
        key = {"smaller": "1", "delete": "2"}.get(name, "0")
        model |= {key: changed[name], **({"9": ("9", "a", 30, 9)} if name == "merge" else {})}
        assert own(Table.open(path)) == sorted(row for row in model.values() if row is not None), name
        assert Table.open(path).maintenance.validate().ok


def test_rows_that_were_read_before_another_write(tmp_path: Path) -> None:
    table = mor(tmp_path)
    table.insert(rows(("0", "a", 1, 1)))
    table.upsert(rows(("0", "a", 2, 1)))
    writer = once_read(Table.open(tmp_path), lambda other: other.upsert(rows(("0", "a", 2, 2))))
    with pytest.raises(CommitConflictError, match="came after the rows were read"):
        writer.update({"n": "n + 1"})
    assert own(Table.open(tmp_path)) == [("0", "a", 2, 2)]


@pytest.mark.parametrize("left", [0, 10, 0.5, -1], ids=str)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_file_that_is_shorter_than_its_commit_says(tmp_path: Path, version: int, left: float) -> None:
    """It is no write that was interrupted: the rows of a commit are lost."""
    table = mor(tmp_path, version)
    table.upsert(rows(*((str(n), "a", 1, n) for n in range(3))))
    table.upsert(rows(("1", "a", 2, 9)))
    (log,) = (file for file in tmp_path.rglob(".*.log.*") if ".hoodie" not in file.parts)
    content = log.read_bytes()
    log.write_bytes(content[: int(left * len(content)) if left == 0.5 else int(left)])
    table = Table.open(tmp_path)
    for call in (table.to_arrow, lambda: table.count("n = 9"), table.maintenance.compact):
        with pytest.raises(CorruptFileError, match=f"expected a file of {len(content)} bytes") as caught:
            call()
        assert caught.value.path == str(log)


FIELDS: dict[str, Callable[[Table], Any]] = {
    "count": lambda table: table.count("s.a = 5"),
    "exists": lambda table: table.scan("s.a = 5").exists(),
    "columns": lambda table: own(table.to_arrow("s.a = 5", ["id"]), "id"),
    "null": lambda table: table.count("s.a is null"),
    "two": lambda table: table.count("s.a = 5 and s.b = 'x'"),
    "head": lambda table: table.head(1, "s.a = 5").num_rows,
    "changes": lambda table: table.changes("earliest", where="s.a = 5", columns=["id"]).to_arrow().num_rows,
    "bitmap": lambda table: own(table.to_arrow("s.b = 'x'", ["id"]), "id"),
    "delete": lambda table: table.delete(where="s.a = 5").deleted,
    "erase": lambda table: table.erase(where="s.b = 'y'").rows,
}


def test_conditions_on_fields_of_structs(tmp_path: Path) -> None:
    """Log records have whole structs."""
    schema = pa.schema(
        [("id", pa.string()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])), ("n", pa.int32())]
    )
    tables = [make(tmp_path / kind, schema=schema, table_type=kind, options=NO_COMPACTION) for kind in ("mor", "cow")]
    for table in tables:
        table.indexes.create("bitmap", ["s.b"])
        table.upsert([{"id": str(n), "s": {"a": n, "b": "xy"[n % 2]}, "n": n} for n in range(4)])
        table.upsert([{"id": "1", "s": {"a": 5, "b": "x"}, "n": 9}, {"id": "2", "s": None, "n": 9}])
    for name, ask in FIELDS.items():
        answer, wanted = map(ask, tables)
        assert answer == wanted, name
    assert own(tables[0]) == own(tables[1])
