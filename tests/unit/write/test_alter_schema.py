"""Schema changes: what they allow, what they leave alone, and that no older generation of a name is met again."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import CommitConflictError, InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.index.column_stats.stats import stat_of
from lakedex.metadata.records import column_stats_prefix, partition_stats_key
from lakedex.parquet.base_file_reader import read_schema
from lakedex.types import META_COLUMNS
from seams import ANNOUNCED, meanwhile
from table_kit import OWN_FILE, base_files, make, own, picture, rows

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(8, 2)),
        ("s", pa.struct([("a", pa.int32()), ("in", pa.struct([("x", pa.string())]))])),
    ]
)


def row(key: str, city: str, n: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "city": city, "ts": 1, "n": n, "f": 0.1, "d": Decimal("1.50"), "s": {"a": n}, **more}


def frame(*values: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(values), schema)


def _made(path: Path) -> Table:
    """Three files in two partitions."""
    made = make(path, frame(row("1", "a", 10), row("2", "b", 20)), partition_by="city", ordering_by="ts")
    made.insert(frame(row("3", "a", 30)), options=OWN_FILE)
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def without(*names: str) -> pa.Schema:
    return pa.schema([column for column in SCHEMA if column.name not in names])


def source_fields(table: Table) -> list[str]:
    document = json.loads((Path(table.path) / ".hoodie/.index_defs/index.json").read_text())
    return list(document["indexDefinitions"]["column_stats"]["sourceFields"])


def kept(table: Table, where: str) -> int:
    return len(Table.open(table.path).scan(where).plan().files)


def commit(table: Table) -> Any:
    timeline = table.snapshot().timeline
    last = timeline.last_changed
    assert last is not None
    return last.action, timeline.commit_metadata(last)


# -------------------------------------------------------------------------------------------------------------- add
def test_add_columns(table: Table) -> None:
    files = base_files(Path(table.path))
    result = table.add_columns(pa.schema([("more", pa.int64()), ("note", pa.string())]))
    assert (result.operation, result.files_written) == ("ALTER_SCHEMA", 0)
    assert base_files(Path(table.path)) == files
    assert table.schema.names == [*SCHEMA.names, "more", "note"]
    assert table.schema.field("more").nullable
    action, metadata = commit(table)
    assert (action, metadata.operation, metadata.all_stats()) == ("commit", "ALTER_SCHEMA", [])
    assert own(table, "id", "more", "note") == [("1", None, None), ("2", None, None), ("3", None, None)]
    wide = frame(row("1", "a", 11, more=5, note="x"), schema=table.schema)
    assert table.upsert(wide).updated == 1
    assert own(table.scan("more = 5").to_arrow(), "id", "note") == [("1", "x")]
    assert own(table.scan("more is null").to_arrow(), "id") == [("2",), ("3",)]
    assert "more" in source_fields(table)


def test_add_nested(table: Table) -> None:
    table.add_columns(pa.schema([("s.b", pa.int64()), ("s.in.y", pa.int32())]))
    kind = table.schema.field("s").type
    assert [child.name for child in kind] == ["a", "in", "b"]
    assert [child.name for child in kind.field("in").type] == ["x", "y"]
    new = row("1", "a", 1) | {"s": {"a": 1, "b": 2, "in": {"x": "x", "y": 3}}}
    table.upsert(frame(new, schema=table.schema))
    found = {item["id"]: item["s"] for item in table.scan().to_arrow().to_pylist()}
    assert found["1"] == {"a": 1, "in": {"x": "x", "y": 3}, "b": 2}
    assert found["2"] == {"a": 20, "in": None, "b": None}
    with pytest.raises(InvalidInputError, match="'n' is not a struct column"):
        table.add_columns(pa.schema([("n.b", pa.int64())]))
    with pytest.raises(InvalidInputError, match=r"has a column 's\.b' already"):
        table.add_columns(pa.schema([("s.b", pa.int64())]))


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (pa.schema([("n", pa.int32())]), "has a column 'n' already"),
        (pa.schema([("N", pa.int32())]), "has a column 'N' already"),
        (pa.schema([("a-b", pa.int32())]), "name that is invalid in Avro"),
        (pa.schema([("__lakedex_x", pa.int32())]), "lakedex's own"),
        (pa.schema([("_hoodie_file_name", pa.string())]), "Hudi's own"),
        (pa.schema([]), "at least one column"),
        (pa.schema([pa.field("more", pa.int64(), nullable=False)]), "'more' cannot be added as one that is never null"),
        (pa.schema([("more", pa.null())]), "'more' has no type"),
    ],
)
def test_columns_that_cannot_be_added(table: Table, added: pa.Schema, message: str) -> None:
    before = picture(Path(table.path))
    with pytest.raises(InvalidInputError, match=message):
        table.add_columns(added)
    assert picture(Path(table.path)) == before


def test_table_without_a_commit(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=rows().schema, partition_by="city")
    table.add_columns(pa.schema([("more", pa.int32())]))
    table.drop_columns("n")
    table.rename_column("more", "other")
    assert table.schema.names == ["id", "city", "ts", "other"]
    table.upsert(pa.table({"id": ["1"], "city": ["a"], "ts": [1], "other": pa.array([7], pa.int32())}))
    assert own(table, "other") == [(7,)]


# ------------------------------------------------------------------------------------------------------------- drop
def test_drop_columns(table: Table) -> None:
    instant = table.snapshot().instant
    files = base_files(Path(table.path))
    table.drop_columns(["N", "f"])
    assert table.schema.names == ["id", "city", "ts", "d", "s"]
    assert base_files(Path(table.path)) == files
    assert "n" not in source_fields(table)
    assert own(table, "id") == [("1",), ("2",), ("3",)]
    table.upsert(frame(row("1", "a", 1), schema=without("n", "f")))
    with pytest.raises(InvalidInputError, match="n"):
        table.scan("n = 1").to_arrow()
    assert own(table.scan("n = 30", as_of=instant).to_arrow(), "id", "n") == [("3", 30)]


def test_a_dropped_name_comes_back_only_after_its_files(table: Table) -> None:
    table.drop_columns("n")
    for again in (
        lambda: table.add_columns(pa.schema([("n", pa.string())])),
        lambda: table.upsert(frame(row("9", "a", 1))),
        lambda: table.rename_column("d", "n"),
    ):
        with pytest.raises(SchemaMismatchError, match=r"3 files still hold it .*rewrite_files") as caught:
            again()
        assert caught.value.column == "n"
    result = table.maintenance.rewrite_files()
    assert result.files_written == 3
    assert (
        "n"
        not in read_schema(
            table.context.files.storage,
            f"{table.path}/{table.inspect.files()['partition'][0].as_py()}"
            f"/{table.inspect.files()['file_name'][0].as_py()}",
        ).names
    )
    assert table.maintenance.rewrite_files().instant is None
    table.add_columns(pa.schema([("n", pa.string())]))
    assert own(table, "id", "n") == [("1", None), ("2", None), ("3", None)]
    assert own(table.scan("n is null").to_arrow(), "id") == [("1",), ("2",), ("3",)]
    assert kept(table, "n = '20'") <= 3


def test_stats_of_an_older_generation(table: Table) -> None:
    """Partition stats of the dropped column must not speak for the new one, touched partition or not."""
    table.drop_columns("n")
    table.maintenance.rewrite_files()
    table.add_columns(pa.schema([("n", pa.int32())]))
    snapshot = table.snapshot()
    for partition, count in (("city=a", 2), ("city=b", 1)):
        record = snapshot.metadata.get_many("partition_stats", [partition_stats_key("n", partition)])
        stat = stat_of(next(iter(record.values())), pa.int32())
        assert stat is not None
        assert (stat.minimum, stat.null_count, stat.value_count) == (None, count, count)
    order = pa.schema([*without("n"), ("n", pa.int32())])
    table.upsert(frame(row("2", "b", 99), schema=order))
    assert own(table.scan("n = 99").to_arrow(), "id") == [("2",)]
    assert kept(table, "n = 20") == 0


@pytest.mark.parametrize(
    "retire",
    [lambda t: t.rename_column("n", "m"), lambda t: (t.drop_columns("n"), t.maintenance.rewrite_files())],
    ids=["renamed", "dropped"],
)
def test_stats_of_a_name_that_another_writer_brings_back(table: Table, retire: Any) -> None:
    """It may not look at older records of the name, so that those say already what will be true."""
    retire(table)
    records = table.snapshot().metadata.scan("partition_stats", [column_stats_prefix("n")])
    stats = [stat_of(record, pa.string()) for record in records.values()]
    assert len(stats) == 2
    assert all(stat is not None and stat.all_null and stat.value_count for stat in stats)


def test_stats_of_an_older_generation_when_a_frame_brings_the_name(table: Table) -> None:
    table.drop_columns("n")
    table.maintenance.rewrite_files()
    order = pa.schema([*without("n"), ("n", pa.int64())])
    table.upsert(frame(row("2", "b", 99), schema=order))
    record = table.snapshot().metadata.get_many("partition_stats", [partition_stats_key("n", "city=a")])
    stat = stat_of(next(iter(record.values())), pa.int64())
    assert stat is not None
    assert (stat.null_count, stat.value_count) == (2, 2)
    assert own(table.scan("n is null").to_arrow(), "id") == [("1",), ("3",)]


# ----------------------------------------------------------------------------------------------------------- rename
def test_rename_column(table: Table) -> None:
    before, instant = own(table, "id", "n"), table.snapshot().instant
    times = own(table, "id", "_hoodie_commit_time", "_hoodie_commit_seqno")
    result = table.rename_column("N", "amount")
    assert (result.operation, result.files_written) == ("ALTER_SCHEMA", 3)
    assert "rewrote 3 files with 'n'" in result.notes[0]
    assert own(table, "id", "amount") == before
    assert own(table, "id", "_hoodie_commit_time", "_hoodie_commit_seqno") == times, "no row changed"
    assert {name for _, name in own(table, "id", "_hoodie_file_name")} == set(
        table.inspect.files().column("file_name").to_pylist()
    )
    assert [f.name for f in table.schema][3] == "amount"
    assert "amount" in source_fields(table)
    assert "n" not in source_fields(table)
    assert kept(table, "amount = 30") == 1
    assert own(table.scan("n = 30", as_of=instant).to_arrow(), "id") == [("3",)]
    assert table.indexes.stats("bloom_filters").files_uncovered == 0
    assert table.indexes.stats("column_stats").files_uncovered == 0
    assert table.upsert(frame(row("1", "a", 0, amount=5), schema=table.schema)).updated == 1
    table.add_columns(pa.schema([("n", pa.int32())]))
    assert own(table, "id", "n", "amount") == [("1", None, 5), ("2", None, 20), ("3", None, 30)]
    assert own(table.scan("n is null").to_arrow(), "id") == [("1",), ("2",), ("3",)]


def test_rename_leaves_files_that_lack_the_column(table: Table) -> None:
    table.add_columns(pa.schema([("more", pa.int32())]))
    table.upsert(frame(row("2", "b", 20, more=1), schema=table.schema))
    assert table.rename_column("more", "other").files_written == 1
    assert own(table, "id", "other") == [("1", None), ("2", 1), ("3", None)]
    table.rename_column("other", "OTHER")
    assert own(table, "id", "OTHER") == [("1", None), ("2", 1), ("3", None)]
    for new, message in (("OTHER", "already has that name"), ("D", "differ by case"), ("x y", "Avro")):
        with pytest.raises(InvalidInputError, match=message):
            table.rename_column("OTHER", new)


# ------------------------------------------------------------------------------------------------------------ widen
@pytest.mark.parametrize(
    ("column", "given", "kind", "rewritten"),
    [
        ("n", "bigint", pa.int64(), 0),
        ("n", "double", pa.float64(), 0),
        ("f", pa.float64(), pa.float64(), 3),
        ("d", "decimal(12, 2)", pa.decimal128(12, 2), 0),
    ],
)
def test_widen_column(table: Table, column: str, given: Any, kind: pa.DataType, rewritten: int) -> None:
    before = table.scan(columns=["id", column]).to_arrow()
    assert table.widen_column(column, given).files_written == rewritten
    assert table.schema.field(column).type == kind
    wanted = {
        row["id"]: pa.scalar(row[column], before.schema.field(column).type).cast(kind).as_py()
        for row in before.to_pylist()
    }
    assert {row["id"]: row[column] for row in table.scan().to_arrow().to_pylist()} == wanted
    values = [value for value in wanted.values() if value is not None]
    literal = f"{max(values)}"
    suffix = "D" if pa.types.is_floating(kind) else ""
    assert table.scan(f"{column} >= {literal}{suffix}").to_arrow().num_rows == values.count(max(values))
    table.upsert(frame(row("2", "b", 5), schema=table.schema))
    assert table.indexes.stats("column_stats").files_uncovered == 0
    assert table.scan(f"{column} < 1000{suffix}").to_arrow().num_rows == 3


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("n", "int"),
        ("n", "float"),
        ("f", "int"),
        ("d", "decimal(8,3)"),
        ("d", "decimal(7,2)"),
        ("n", pa.string()),
        ("s", pa.struct([("a", pa.int64())])),
    ],
)
def test_types_that_do_not_grow(table: Table, column: str, given: Any) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        table.widen_column(column, given)
    assert caught.value.column == column


def test_widened_file_gets_its_type_when_rewritten(table: Table) -> None:
    table.widen_column("n", "bigint")
    assert table.maintenance.rewrite_files().files_written == 3
    assert own(table, "n") == [(10,), (20,), (30,)]
    assert kept(table, "n = 30") == 1


# ---------------------------------------------------------------------------------------------------------- refused
@pytest.mark.parametrize("column", ["id", "city", "ts", "TS"])
def test_columns_that_stay(table: Table, column: str) -> None:
    for call in (
        lambda: table.drop_columns([column]),
        lambda: table.rename_column(column, "x"),
        lambda: table.widen_column(column, "double"),
    ):
        with pytest.raises(InvalidInputError, match="stays as it is"):
            call()


def test_what_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'city'"):
        table.drop_columns("citty")
    with pytest.raises(InvalidInputError, match="names no column"):
        table.drop_columns([])
    with pytest.raises(UnsupportedFeatureError, match="can only be added"):
        table.rename_column("s.a", "b")
    with pytest.raises(InvalidInputError, match="not a type to which column"):
        table.widen_column("n", "interval")
    with pytest.raises(InvalidInputError, match="stays as it is|has no column"):
        table.drop_columns(META_COLUMNS[0])


# -------------------------------------------------------------------------------------------------- several writers
def test_a_commit_in_between(table: Table) -> None:
    result = meanwhile(table, lambda t: t.insert(frame(row("4", "c", 40))), ANNOUNCED).rename_column("n", "amount")
    assert any("conflict" in note for note in result.notes)
    assert own(table, "id", "amount") == [("1", 10), ("2", 20), ("3", 30), ("4", 40)]
    other = meanwhile(table, lambda t: t.drop_columns("f"))
    with pytest.raises((CommitConflictError, SchemaMismatchError)):
        other.upsert(frame(row("5", "c", 1, amount=1), schema=table.schema))
    assert table.schema.names == ["id", "city", "ts", "amount", "d", "s"]
    assert own(table, "id") == [("1",), ("2",), ("3",), ("4",)]
