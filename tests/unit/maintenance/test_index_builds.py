"""Indexes built on live tables and taken out again: what is listed, what each covers, what goes on meanwhile."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import (
    CommitConflictError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lakedex.index import bloom_filters as bloom_builds
from lakedex.parquet.base_file_reader import read_footer
from lakedex.snapshot.snapshot import Limits
from lakedex.timeline.instant import wall_clock
from seams import meanwhile, with_context
from table_kit import OWN_FILE, make, own, properties, rows, set_properties

PLAIN = {
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
    **OWN_FILE,
}
NO_RETRY = {"hoodie.write.num.retries.on.conflict.failures": "0"}
LISTED = "hoodie.table.metadata.partitions"


def _made(path: Path) -> Table:
    """Four files in three partitions, no index."""
    made = make(path, partition_by="city", ordering_by="ts", options=PLAIN)
    made.insert(rows(("1", "a", 1, 10), ("2", "a", 2, 20), ("3", "b", 3, 30)))
    made.insert(rows(("4", "a", 4, 40), ("5", "c", 5, 50)))
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def names_of(table: Table) -> list[str]:
    return list(table.indexes.list().column("name").to_pylist())


def source_fields(path: Path) -> list[str]:
    document = json.loads((path / ".hoodie/.index_defs/index.json").read_text())
    return list(document["indexDefinitions"]["column_stats"]["sourceFields"])


def kept(table: Table, where: str) -> int:
    return len(Table.open(table.path).scan(where).plan().files)


def test_column_stats(table: Table, tmp_path: Path) -> None:
    assert names_of(table) == []
    assert kept(table, "n = 40") == 4
    result = table.indexes.create("column_stats")
    assert (result.files, result.entries) == (4, 4 * 7), "three meta columns, four of the table"
    assert result.columns[-4:] == ("id", "city", "ts", "n")
    assert properties(tmp_path / "t")[LISTED] == "column_stats,files,partition_stats"
    assert kept(table, "n = 40") == 1
    assert kept(table, "n > 50") == 0
    found = table.indexes.list().to_pylist()
    assert [(row["name"], row["state"], row["maintained"]) for row in found] == [
        ("column_stats", "complete", True),
        ("partition_stats", "complete", True),
    ]
    stats = table.indexes.stats("column_stats")
    assert (stats.files_covered, stats.files_uncovered) == (4, 0)
    assert stats.bytes > 0
    over = table.indexes.stats("partition_stats")
    assert (over.files_covered, over.files_uncovered) == (3, 0)


def test_bloom_filters(table: Table) -> None:
    result = table.indexes.create("bloom_filters", "id", name="bloom_filters")
    assert (result.files, result.entries) == (4, 4)
    assert table.indexes.stats("bloom_filters").files_covered == 4
    assert kept(table, "id = '4'") == 1
    updated = table.upsert(rows(("1", "a", 9, 11)))
    assert (updated.updated, updated.tagging.files_opened) == (1, 1)
    assert table.indexes.stats("bloom_filters").files_uncovered == 0


def test_large_filters_go_through_files(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "big"
    made = make(path, partition_by="city", options={**PLAIN, "hoodie.index.bloom.num_entries": "20000"})
    made.insert(rows(("1", "a", 1, 1), ("2", "b", 1, 1)))
    assert made.indexes.create("bloom_filters").entries == 2
    assert kept(made, "id = '2'") == 1
    assert list((path / ".hoodie/.temp").iterdir()) == []


def test_filters_of_files_without_one(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other writers may leave the filter out of the footer: the keys are read then."""

    def without(*arguments: Any) -> Any:
        found = read_footer(*arguments)
        return type(found)(rows=found.rows, bloom=None, bloom_type="SIMPLE", min_key=None, max_key=None)

    monkeypatch.setattr(bloom_builds, "read_footer", without)
    table.indexes.create("bloom_filters")
    assert kept(table, "id = '4'") == 1
    assert kept(table, "id = 'none'") == 0


def test_existing_indexes(table: Table) -> None:
    table.indexes.create("bloom_filters")
    table.indexes.create("column_stats", ["n"])
    for name, columns in (("bloom_filters", None), ("column_stats", None), ("column_stats", ["n"])):
        with pytest.raises(IndexExistsError) as caught:
            table.indexes.create(name, columns)
        assert caught.value.index == name
        assert "exists already" in table.indexes.create(name, columns, if_not_exists=True).notes[0]


def test_columns_are_added(table: Table, tmp_path: Path) -> None:
    table.indexes.create("column_stats", "n")
    path = tmp_path / "t"
    assert source_fields(path)[3:] == ["n"]
    result = table.indexes.create("column_stats", ["ts", "n"])
    assert (result.columns, result.files) == (("ts",), 4)
    assert result.entries == 3 * 4, "Java's writers go on to list all columns that they would choose themselves"
    assert source_fields(path)[3:] == ["ts", "n"]
    assert kept(table, "ts = 5") == 1
    assert table.indexes.stats("column_stats").files_uncovered == 0
    assert table.indexes.stats("partition_stats").files_uncovered == 0
    table.upsert(rows(("5", "c", 9, 51)))
    assert table.indexes.stats("column_stats").files_uncovered == 0
    assert source_fields(path)[3:] == ["ts", "n"], "a write does not add columns that nobody asked for"


def test_nan_leaves_the_list(tmp_path: Path) -> None:
    data = pa.table({"id": ["1", "2"], "x": pa.array([1.0, math.nan]), "y": pa.array([1.0, 2.0])})
    table = make(tmp_path / "t", data, options=PLAIN)
    table.indexes.create("column_stats")
    assert source_fields(tmp_path / "t")[3:] == ["id", "y"]
    assert own(table.scan("x > 1e9").to_arrow(), "id") == [("2",)]


def test_added_columns_are_null_in_older_files(table: Table) -> None:
    table.insert(rows(("6", "a", 6, 60)).append_column("more", pa.array([1], pa.int32())))
    table.indexes.create("column_stats", ["more"])
    assert table.indexes.stats("column_stats").files_uncovered == 0
    assert kept(table, "more = 1") == 1
    assert kept(table, "more is null") == 4


def test_partition_stats_alone(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="create column_stats"):
        table.indexes.create("partition_stats")
    table.indexes.create("column_stats")
    table.indexes.drop("partition_stats")
    assert names_of(table) == ["column_stats"]
    table.indexes.create("partition_stats")
    assert table.indexes.stats("partition_stats").files_uncovered == 0
    unpartitioned = make(Path(table.path).with_name("u"), rows(("1", "a", 1, 1)))
    assert names_of(unpartitioned) == ["bloom_filters", "column_stats"]
    with pytest.raises(InvalidInputError, match="has no partitions"):
        unpartitioned.indexes.create("partition_stats")


def test_empty_table(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=rows().schema, partition_by="city", options=PLAIN)
    for name in ("column_stats", "bloom_filters"):
        assert table.indexes.create(name).entries == 0
    table.upsert(rows(("1", "a", 1, 1), ("2", "b", 1, 9)))
    assert kept(table, "n = 9") == 1
    for name in names_of(table):
        assert table.indexes.stats(name).files_uncovered == 0


def test_what_is_refused(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="build others with Hudi"):
        table.indexes.create("record_index")
    with pytest.raises(InvalidInputError, match="use that name"):
        table.indexes.create("column_stats", name="idx")
    with pytest.raises(InvalidInputError, match="'m' is not in the table"):
        table.indexes.create("column_stats", ["m"])
    with pytest.raises(UnsupportedFeatureError, match="covers the record key"):
        table.indexes.create("bloom_filters", ["n"])
    nested = make(tmp_path / "n", pa.table({"id": ["1"], "l": [[1]]}), options=PLAIN)
    with pytest.raises(UnsupportedFeatureError, match="'l' is list"):
        nested.indexes.create("column_stats", ["l"])


def test_drop_and_make_again(table: Table, tmp_path: Path) -> None:
    table.indexes.create("column_stats")
    table.indexes.create("bloom_filters")
    assert "dropped partition_stats with it" in table.indexes.drop("column_stats").notes
    path = tmp_path / "t/.hoodie"
    assert names_of(table) == ["bloom_filters"]
    assert not (path / "metadata/column_stats").exists()
    assert not (path / "metadata/partition_stats").exists()
    assert "column_stats" not in json.loads((path / ".index_defs/index.json").read_text())["indexDefinitions"]
    with pytest.raises(IndexNotFoundError, match="it has bloom_filters") as caught:
        table.indexes.drop("column_stats")
    assert isinstance(caught.value, KeyError)
    assert "no such index" in table.indexes.drop("column_stats", if_exists=True).notes[0]
    table.upsert(rows(("1", "a", 9, 90), ("6", "c", 1, 60)))
    assert own(table, "n") == [(20,), (30,), (40,), (50,), (60,), (90,)]
    table.indexes.create("column_stats")
    assert kept(table, "n = 90") == 1
    assert table.indexes.stats("column_stats").files_uncovered == 0
    table.indexes.drop("bloom_filters")
    assert kept(table, "id = '6'") >= 1
    with pytest.raises(InvalidInputError, match="not an index"):
        table.indexes.drop("files")


def test_dropping_what_lakedex_does_not_keep_up(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "t"
    set_properties(path, {LISTED: "files,record_index,secondary_index_x"})
    for name in ("record_index", "secondary_index_x"):
        (path / ".hoodie/metadata" / name).mkdir()
    assert [row["maintained"] for row in table.indexes.list().to_pylist()] == [False, False]
    with pytest.raises(UnsupportedFeatureError, match="does not read"):
        table.indexes.stats("record_index")
    with pytest.raises(UnsupportedFeatureError, match="record_index"):
        table.upsert(rows(("1", "a", 9, 90)))
    with pytest.raises(InvalidInputError, match="secondary_index_x are built on record_index"):
        table.indexes.drop("record_index")
    table.indexes.drop("secondary_index_x")
    table.indexes.drop("record_index")
    assert table.upsert(rows(("1", "a", 9, 90))).updated == 1


def test_progress_and_groups(table: Table, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    options = {"hoodie.metadata.index.bloom.filter.file.group.count": "7"}
    table.indexes.create("bloom_filters", options=options, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 4)]
    logs = (tmp_path / "t/.hoodie/metadata/bloom_filters").glob(".bloom-filters-*.log.1_*")
    assert len({log.name.split("_")[0] for log in logs}) == 7


def test_many_files_take_several_metadata_commits(table: Table) -> None:
    table = with_context(table, limits=Limits(files_per_commit=3))
    for name in ("column_stats", "bloom_filters"):
        table.indexes.create(name)
        assert table.indexes.stats(name).files_uncovered == 0
    assert table.indexes.stats("partition_stats").files_uncovered == 0
    assert kept(table, "n = 40") == 1


# ------------------------------------------------------------------------------------------------- several writers


def once_done(table: Table, action: Callable[[Table], object]) -> Callable[[int, int], None]:
    """A progress callback: ``action`` happens once, when the files are read and nothing is published yet."""
    left = [action]

    def progress(done: int, total: int) -> None:
        if left:
            left.pop()(Table.open(table.path, options=OWN_FILE))

    return progress


@pytest.mark.parametrize("name", ["column_stats", "bloom_filters"])
def test_files_that_came_during_the_build(table: Table, name: str) -> None:
    def more(t: Table) -> None:
        t.upsert(rows(("1", "a", 9, 90), ("7", "d", 1, 70)))
        t.insert_overwrite(rows(("5", "c", 9, 55)))

    result = table.indexes.create(name, progress=once_done(table, more))
    assert result.files == 5
    assert table.indexes.stats(name).files_uncovered == 0
    assert kept(table, "id = '7'") == 1
    assert own(table, "id") == [("1",), ("2",), ("3",), ("4",), ("5",), ("7",)]


@pytest.mark.parametrize(("name", "using"), [("column_stats", None), ("idx", "bitmap")])
def test_no_writer_takes_the_instant_of_a_build(table: Table, name: str, using: str | None) -> None:
    """Another process, whose clock stands where the build's stood when it began."""
    now = wall_clock() + 1000
    mine, other = (with_context(table, now_ms=lambda: now) for _ in range(2))
    taken: list[set[str]] = []

    def write(_: Table) -> None:
        build = {file.name for file in (Path(table.path) / ".hoodie/.heartbeat").iterdir()}
        taken.extend([build, {str(other.upsert(rows(("1", "a", 9, 90))).instant)}])

    mine.indexes.create(using, ["n"], name=name, progress=once_done(table, write))
    build, write = taken
    assert len(build) == 1
    assert build.isdisjoint(write)


def test_changes_that_a_build_does_not_outlive(table: Table) -> None:
    wider = rows(("9", "a", 9, 90)).append_column("more", pa.array([1], pa.int32()))
    for change in (lambda t: t.insert(wider), lambda t: t.indexes.create("column_stats")):
        with pytest.raises(CommitConflictError, match="create it again"):
            table.indexes.create("column_stats", progress=once_done(table, change))
    assert table.indexes.stats("column_stats").files_uncovered == 0


def test_a_write_of_another_engine(table: Table, tmp_path: Path) -> None:
    timeline = tmp_path / "t/.hoodie/timeline"
    pending = [timeline / "20300101000000000.commit.requested", timeline / "20300101000000000.inflight"]

    def begin(_: Table) -> None:
        for file in pending:
            file.touch()

    with pytest.raises(CommitConflictError, match="of another engine is under way"):
        table.indexes.create("bloom_filters", progress=once_done(table, begin))
    assert names_of(table) == []
    assert not (tmp_path / "t/.hoodie/metadata/bloom_filters").exists()
    for file in pending:
        file.unlink()
    assert table.indexes.create("bloom_filters").files == 4


@pytest.mark.parametrize("name", ["bloom_filters", "column_stats"])
def test_a_write_under_way_while_an_index_comes(table: Table, name: str) -> None:
    result = meanwhile(table, lambda t: t.indexes.create(name)).upsert(rows(("1", "a", 9, 99), ("8", "b", 8, 80)))
    # The partition stats of the build are of a later instant than the write: it takes a new one.
    assert any("conflict" in note for note in result.notes) == (name == "column_stats")
    for index in names_of(table):
        assert table.indexes.stats(index).files_uncovered == 0
    assert kept(table, "id = '8'") == 1
    assert own(table.scan("n = 99 or n = 80").to_arrow(), "id") == [("1",), ("8",)]


def test_a_write_under_way_while_columns_come(tmp_path: Path) -> None:
    table = make(tmp_path / "u", rows(("1", "a", 1, 1)), options=PLAIN)
    few = {"hoodie.metadata.index.column.stats.column.list": "n", **NO_RETRY}
    table.indexes.create("column_stats", ["n"])
    other = meanwhile(table, lambda t: t.indexes.create("column_stats", ["ts"]))
    with pytest.raises(CommitConflictError, match="column_stats has ts"):
        other.upsert(rows(("2", "a", 2, 2)), options=few)
    table.upsert(rows(("2", "a", 2, 2)), options=few)
    assert table.indexes.stats("column_stats").files_uncovered == 0
    assert source_fields(tmp_path / "u")[3:] == ["ts", "n"]


@pytest.mark.parametrize("name", ["bloom_filters", "column_stats"])
def test_a_write_under_way_while_an_index_goes(table: Table, name: str) -> None:
    for index in ("bloom_filters", "column_stats"):
        table.indexes.create(index)
    meanwhile(table, lambda t: t.indexes.drop(name)).upsert(rows(("1", "a", 9, 99)))
    assert name not in names_of(table)
    assert own(table.scan("n = 99").to_arrow(), "id") == [("1",)]
    assert not (Path(table.path) / ".hoodie/metadata" / name).exists()
