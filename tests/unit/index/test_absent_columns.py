"""What becomes of a file's stats when the schema moves on: the choice that RFC-37 leaves open, and why it is safe."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.index.column_stats.pruning import OWN_MARK
from lakedex.metadata.records import column_stats_key
from lakedex.timeline.active import Timeline
from lakedex.timeline.commit_metadata import CommitNotes
from table_kit import OWN_FILE, make, own

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("s", pa.struct([("a", pa.int32())]))])


def rows(key: str, n: int, schema: pa.Schema = SCHEMA, **more: object) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "n": n, "s": {"a": n}, **more}], schema)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A file without column ``m``, and one that has it."""
    made = make(tmp_path / "t", rows("1", 5), options=OWN_FILE)
    made.add_columns(pa.schema([("m", pa.int32()), ("s.b", pa.int32())]))
    made.insert(rows("2", 6, made.schema, m=60))
    return made


def kept(table: Table, where: str) -> int:
    return len(Table.open(table.path).scan(where).plan().files)


def test_an_evolved_schema_is_detected_for_the_query(table: Table) -> None:
    """R74, R75: planning asks which schema a file was written in. Where the RFC would add a predicate, the file counts
    as one of nulls, so that every condition is judged by its own rules."""
    assert kept(table, "m = 60") == 1
    assert kept(table, "m <> 60") == 0
    assert kept(table, "m is null") == 1
    assert kept(table, "not (m is null)") == 1
    assert kept(table, "m is null and n = 6") == 0
    assert kept(table, "coalesce(m, 1) = 1") == 2, "a function: not judged"
    assert own(table.scan("m is null").to_arrow(), "id") == [("1",)]
    assert "column_stats" in str(table.scan("m = 60").plan())


def test_no_fallback(table: Table) -> None:
    """R80, R82: a change of the schema switches nothing off for files that are well known."""
    table.widen_column("n", "bigint")
    table.rename_column("m", "k")
    assert kept(table, "n = 5") == 1
    assert kept(table, "k = 60") == 1
    assert kept(table, "k = 1") == 0


def test_keys_have_no_version(table: Table) -> None:
    """R67, R77, R78, R79: the RFC's other option puts a version into the key, and a look-up of one entry becomes a
    search by prefix over all of them. Names that come back only on files without the name need none."""
    table.drop_columns("m")
    table.maintenance.rewrite_files()
    table.add_columns(pa.schema([("m", pa.string())]))
    snapshot = Table.open(table.path).snapshot()
    for base in snapshot.base_files():
        keys = [column_stats_key("m", base.partition, base.name)]
        assert keys == [column_stats_key("m", base.partition, base.name)]
        assert snapshot.metadata.get_many("column_stats", keys) == {}
    assert kept(table, "m = '60'") == 0
    assert kept(table, "m is null") == 2


def test_counts_of_absent_columns_are_exact(table: Table) -> None:
    assert table.scan("m is null").count() == 1
    assert table.scan("m is not null").count() == 1


def test_files_of_others_stay_unknown(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema that another engine keeps with a commit is not proof of what its files hold."""
    read = Timeline.commit_notes

    def foreign(self: Timeline, instant: object) -> CommitNotes:
        found = read(self, instant)  # type: ignore[arg-type]
        extra = {key: value for key, value in found.extra.items() if key != OWN_MARK}
        return CommitNotes(operation=found.operation, extra=extra)

    monkeypatch.setattr(Timeline, "commit_notes", foreign)
    assert kept(table, "m = 60") == 2
    assert kept(table, "n = 5") == 1


def test_files_without_a_known_count_stay_unknown(table: Table) -> None:
    """Without a record of the key nobody knows how many nulls there are."""
    definitions = Path(table.path) / ".hoodie/.index_defs/index.json"
    columns = json.loads(definitions.read_text())["indexDefinitions"]["column_stats"]["sourceFields"]
    assert "m" in columns
    snapshot = Table.open(table.path).snapshot()
    assert snapshot.metadata.has("column_stats")
    table.indexes.drop("column_stats")
    assert kept(table, "m = 60") == 2
