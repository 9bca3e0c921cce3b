"""A table as a stream of batches: each row once whatever the limits, and errors where a row would be missed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from golden_tables import unpack
from lakedex import Table
from lakedex.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.io.locations import open_storage
from lakedex.scan.slice_reader import reader_for
from lakedex.scan.stream import (
    Limits,
    Position,
    Start,
    TableStream,
    admitted,
    files_between,
    first_position,
    iter_stream_rows,
    newest_position,
)
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import create_inflight, create_requested
from lakedex.timeline.instant import plus_millis
from table_kit import ROWS, complete_later, make, rows

SMALL = {"hoodie.parquet.small.file.limit": "0"}

FROM_ALL, UNLIMITED = Start(), Limits()

LIMITS = [Limits(), Limits(commits=1), Limits(files=1), Limits(files=2), Limits(commits=2, files=3)]


def loaded(table: Table) -> Snapshot:
    return Snapshot.load(open_storage(table.path))


def rows_between(table: Table, start: Position, end: Position, begin: Start = FROM_ALL) -> list[str]:
    newest = loaded(table)
    reader = reader_for(newest, None, ["id", "n"])
    found = []
    for files in files_between(newest, start, end, begin):
        for batch in iter_stream_rows(reader, files):
            found += [f"{row['id']}{row['n']}" for row in batch.to_pylist()]
    return found


class Stream:
    """A stream that forgets everything but its JSON between batches, as one that is restarted does."""

    def __init__(self, table: Table, start: Start = FROM_ALL, limits: Limits = UNLIMITED) -> None:
        self.table, self.start, self.limits = table, start, limits
        self.kept = json.dumps(first_position(loaded(table), start).to_json())
        self.batches = 0

    def ends(self, until: Position | None = None) -> Iterator[tuple[Position, Position]]:
        while True:
            position = Position.from_json(json.loads(self.kept))
            end = admitted(loaded(self.table), position, self.start, self.limits, until)
            if end == position:
                return
            self.batches += 1
            self.kept = json.dumps(end.to_json())
            yield position, end

    def take(self, until: Position | None = None) -> str:
        """Rows that have not been read yet."""
        found = []
        for start, end in self.ends(until):
            batch = rows_between(self.table, start, end, self.start)
            assert batch == rows_between(self.table, start, end, self.start)
            found += batch
        return " ".join(sorted(found))


def two_partitions(path: Path, version: int = 9) -> Table:
    options = {**SMALL, "hoodie.write.table.version": str(version)}
    table = make(path, schema=rows().schema, partition_by="city", options=options)
    table.insert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    return table


def four_commits(table: Table) -> list[str]:
    """Update a and insert c; update a again; delete b; overwrite y by d."""
    return [
        str(result.instant)
        for result in (
            table.upsert(rows(("a", "x", 2, 2), ("c", "y", 2, 2)), options=SMALL),
            table.upsert(rows(("a", "x", 3, 3)), options=SMALL),
            table.delete(where="id = 'b'"),
            table.insert_overwrite(rows(("d", "y", 5, 5)), options=SMALL),
        )
    ]


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_each_commit_once_whatever_the_limits(tmp_path: Path, version: int, limits: Limits) -> None:
    table = two_partitions(tmp_path / "t", version)
    stream = Stream(table, limits=limits)
    assert stream.take() == "a1 b1"
    assert stream.take() == ""
    four_commits(table)
    before = stream.batches
    assert stream.take() == "a2 a3 c2 d5"
    batches = stream.batches - before
    assert batches == {str(Limits()): 1, str(Limits(commits=1)): 4}.get(str(limits), batches)
    late = Stream(table, limits=limits)
    assert late.take() == "a3 d5" and late.take() == ""


def test_starts(tmp_path: Path) -> None:
    table = two_partitions(tmp_path / "t")
    first = str(loaded(table).instant)
    latest, empty = Stream(table, Start(at="latest")), make(tmp_path / "e", schema=rows().schema)
    assert latest.take() == ""
    _, two, three, four = four_commits(table)
    assert latest.take() == Stream(table, Start(after=first)).take() == "a2 a3 c2 d5"
    assert Stream(table, Start(at=first)).take() == "a1 a2 a3 b1 c2 d5"
    assert Stream(table, Start(at=two)).take() == "a3 d5"
    assert Stream(table, Start(after=two)).take() == Stream(table, Start(after=three)).take() == "d5"
    assert Stream(table, Start(at="2020-01-01")).take() == "a1 a2 a3 b1 c2 d5"
    assert Stream(table, Start(at="2999-01-01")).take() == ""
    done = {row["commit_time"]: row["state_transition_time"] for row in table.inspect.history().to_pylist()}
    assert Stream(table, Start(at=done[four])).take() == "d5"
    assert Stream(table, Start(after=done[four])).take() == ""
    with pytest.raises(InvalidInputError, match="the start of the stream"):
        Stream(table, Start(at="tomorrow"))
    streams = [Stream(empty), Stream(empty, Start(at="latest"))]
    assert [stream.take() for stream in streams] == ["", ""]
    empty.insert(rows(("a", "x", 1, 1)))
    assert [stream.take() for stream in streams] == ["a1", "a1"]


@pytest.mark.parametrize("start", [FROM_ALL, Start(at="latest")], ids=str)
def test_batches_that_end_at_the_newest_commit(tmp_path: Path, start: Start) -> None:
    """As PySpark before 4.2 has them, which asks for an end before it says where a batch begins."""
    table = two_partitions(tmp_path / "t")
    end, begin = newest_position(loaded(table)), first_position(loaded(table), start)
    assert sorted(rows_between(table, begin, end, start)) == (["a1", "b1"] if start == FROM_ALL else [])
    four_commits(table)
    assert sorted(rows_between(table, end, newest_position(loaded(table)), start)) == ["a2", "a3", "c2", "d5"]


def test_what_comes_after_the_end_waits(tmp_path: Path) -> None:
    table = two_partitions(tmp_path / "t")
    stream, until = Stream(table, limits=Limits(files=1)), newest_position(loaded(table))
    four_commits(table)
    assert stream.take(until) == "a1 b1" and stream.take(until) == ""
    until = newest_position(loaded(table))
    table.insert(rows(("e", "x", 6, 6)))
    assert stream.take(until) == "a2 a3 c2 d5" and stream.take() == "e6"


def test_a_batch_that_comes_again_has_the_rows_that_it_had(tmp_path: Path) -> None:
    """Of a stream that never finished its first batch, too: what was the newest state then is not any more."""
    table = two_partitions(tmp_path / "t")
    start = first_position(loaded(table), Start())
    end = admitted(loaded(table), start, Start(), Limits())
    four_commits(table)
    assert sorted(rows_between(table, first_position(loaded(table), Start()), end)) == ["a1", "b1"]


def test_commits_that_complete_out_of_turn(tmp_path: Path) -> None:
    table = two_partitions(tmp_path / "t")
    stream = Stream(table)
    assert stream.take() == "a1 b1"
    one, *_ = four_commits(table)
    complete_later(Path(table.path), one, "29991231235959999")
    table = stream.table = Table.open(table.path)
    assert stream.take() == "a2 a3 c2 d5"
    storage = loaded(table).files.storage
    assert storage.exists(f"{table.path}/.hoodie/timeline/{one}_29991231235959999.commit")
    assert Position.from_json(json.loads(stream.kept)).instant == one


@pytest.mark.parametrize("version", [6, 8, 9])
def test_an_open_write_is_waited_for_and_never_skipped(tmp_path: Path, version: int) -> None:
    table = two_partitions(tmp_path / "t", version)
    stream = Stream(table)
    assert stream.take() == "a1 b1"
    newest = loaded(table)
    create_inflight(newest.timeline, create_requested(newest.timeline, plus_millis(str(newest.instant), 1), "commit"))
    table.upsert(rows(("a", "x", 2, 2)), options={"hoodie.clean.failed.writes.policy": "LAZY"} | SMALL)
    assert stream.take() == ("" if version == 6 else "a2")
    (tmp_path / "t" / ".hoodie").joinpath("timeline" if version > 6 else ".")
    for file in (tmp_path / "t").rglob(f"{plus_millis(str(newest.instant), 1)}*"):
        file.unlink()
    assert stream.take() == ("a2" if version == 6 else "")


def test_a_commit_that_was_delivered_and_rolled_back(tmp_path: Path) -> None:
    table = two_partitions(tmp_path / "t")
    stream, behind = Stream(table), Stream(table)
    assert stream.take() == behind.take() == "a1 b1"
    last = str(table.upsert(rows(("a", "x", 2, 2))).instant)
    assert stream.take() == "a2"
    table.maintenance.rollback(last)
    table.upsert(rows(("a", "x", 3, 3)))
    with pytest.raises(InvalidInputError, match=f"{last}, which the stream has delivered, was rolled back"):
        stream.take()
    assert behind.take() == "a3"


def test_a_batch_whose_commit_was_rolled_back_before_it_was_read(tmp_path: Path) -> None:
    table = two_partitions(tmp_path / "t")
    stream = Stream(table)
    assert stream.take() == "a1 b1"
    last = str(table.upsert(rows(("a", "x", 2, 2))).instant)
    ((start, end),) = list(stream.ends())
    table.maintenance.rollback(last)
    with pytest.raises(InvalidInputError, match=f"{last}, which the stream has delivered, was rolled back"):
        files_between(loaded(table), start, end, FROM_ALL)


def test_a_start_that_was_cleaned_names_the_first_one_left(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=rows().schema)
    instants = [str(table.upsert(rows(("a", "x", n, n))).instant) for n in range(1, 7)]
    behind, state = Stream(table, Start(at=instants[1])), Stream(table, limits=Limits(files=1))
    table.maintenance.clean(options={"hoodie.clean.commits.retained": "2"})
    there = sorted(file.name.rsplit("_", 1)[1][:17] for file in (tmp_path / "t").glob("*.parquet"))
    assert instants[1] not in there
    with pytest.raises(InvalidInputError, match=f"took 1 files of commit .* first instant left is '{there[0]}'"):
        behind.take()
    assert Stream(table, Start(at=there[0])).take().split() == [f"a{n}" for n in range(7 - len(there), 7)]
    assert state.take() == "a6"


def test_a_start_that_was_archived(tmp_path: Path) -> None:
    options = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "2"}
    table = make(tmp_path / "t", schema=rows().schema)
    instants = [str(table.upsert(rows(("a", "x", n, n)), options=options).instant) for n in range(1, 10)]
    table.maintenance.archive(options=options)
    with pytest.raises(InvalidInputError, match="are archived, the first is .*the first instant left is"):
        Stream(table, Start(at=instants[0])).take()
    with pytest.raises(InvalidInputError, match="cannot go on"):
        Stream(table, Start(at="2020-01-01")).take()
    assert Stream(table, Start(at=instants[-1])).take() == Stream(table, Start(after=instants[-2])).take() == "a9"
    assert Stream(table).take() == "a9"


def test_a_schema_that_grew(tmp_path: Path) -> None:
    table = two_partitions(tmp_path / "t")
    stream = Stream(table)
    whole, some = (TableStream(loaded(table), names, FROM_ALL, UNLIMITED) for names in (ROWS.names, ["id"]))
    assert stream.take() == "a1 b1"
    four_commits(table)
    table.widen_column("n", "bigint")
    table.add_columns(pa.schema([("extra", pa.string())]))
    assert stream.take() == "a2 a3 c2 d5"
    with pytest.raises(SchemaMismatchError, match="column 'n' was added or changed.*start the query again"):
        whole.first()
    assert some.admitted(some.first()) == replace(some.last(), kind="state")


@pytest.mark.parametrize(
    "version, limits", [(6, Limits()), (8, Limits(files=1)), (9, Limits(commits=1)), (9, Limits())]
)
def test_commits_of_a_merge_on_read_table(tmp_path: Path, version: int, limits: Limits) -> None:
    options = {**SMALL, "hoodie.write.table.version": str(version), "hoodie.compact.inline": False}
    options |= {"hoodie.spark.sql.merge.into.partial.updates": True}
    given = {"schema": ROWS, "partition_by": "city", "ordering_by": "ts", "table_type": "mor", "options": options}
    table = make(tmp_path / "t", **given)
    table.insert(rows(("a", "x", 2, 1), ("b", "y", 2, 1)))
    stream, steps = Stream(table, limits=limits), []

    def step(call: Callable[[], Any], expected: str) -> None:
        call()
        steps.append((table.snapshot().instant, expected))
        assert stream.take() == expected

    planned: list[str] = []
    assert stream.take() == "a1 b1"
    step(lambda: table.upsert(rows(("a", "x", 3, 2), ("b", "y", 1, 2), ("c", "y", 2, 2))), "a2 c2")
    step(lambda: table.update({"n": "n + 1"}, where="id = 'a'"), "a3")
    step(lambda: table.delete(where="id = 'b'"), "")
    step(lambda: planned.extend(table.maintenance.compact(plan_only=True).instants), "")
    step(lambda: table.update({"n": "n + 1"}, where="id in ('a', 'c')"), "a4 c3")
    step(lambda: table.maintenance.compact(instant=planned[0]), "")
    step(lambda: table.upsert(rows(("b", "y", 5, 6), ("d", "x", 5, 6))), "b6 d6")
    step(lambda: table.maintenance.cluster(), "")
    step(lambda: table.insert_overwrite(rows(("e", "y", 5, 7))), "e7")
    step(lambda: table.update({"n": "n + 1"}), "a5 d7 e8")
    # Whoever comes later, and has all of that at once, reads the same.
    first = table.snapshot().timeline.completed()[0].requested
    late = Stream(table, Start(after=first))
    assert late.take() == " ".join(sorted(" ".join(rows for _, rows in steps).split()))
    assert Stream(table).take() == "a5 d7 e8"
    table.maintenance.clean(versions=1)
    with pytest.raises(InvalidInputError, match="the cleaner took"):
        Stream(table, Start(after=first)).take()


def test_tables_that_have_no_streams(tmp_path: Path) -> None:
    table = Table.open(unpack("v8_simplekeygen_hivestyle_no_metafields", tmp_path))
    with pytest.raises(UnsupportedFeatureError, match="no meta columns"):
        Stream(table)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kind": "begin"},
        {"kind": "commit", "time": "x' OR 1", "instant": "1", "highest": "1", "files": 0, "whole": True},
        {"kind": "commit", "time": "1", "instant": "1", "highest": "1", "files": -1, "whole": False},
    ],
    ids=str,
)
def test_offsets_that_are_none(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="not one of lakedex"):
        Position.from_json(values)
