"""Writers at the same time: what one of them does at a chosen moment of another, and many at once in processes."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from faults import ReadHook, run_child, start_child, wait_child
from lakedex import Table
from lakedex.commit.transaction import LOOKING_MS, Transaction
from lakedex.errors import CommitConflictError, SchemaMismatchError
from lakedex.io.local import LocalStorage
from lakedex.io.retries import Clock
from lakedex.local.session import LocalSession
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.instant import InstantClock, plus_millis
from table_checks import (
    SCHEMA,
    START,
    Rows,
    check_table,
    frame,
    fresh_copy,
    new_table,
    pending_commits,
    read,
    rows_of,
    timeline_of,
)

NO_RETRY = {"hoodie.write.num.retries.on.conflict.failures": "0"}
NEW_FILES = {"hoodie.parquet.small.file.limit": "0"}
IN_STAGE = ("close_output", ".parquet")
"""A moment between the start of a write and its commit, without the lock."""


def at_same_time(
    path: Path, first: Callable[[Table], Any], second: Callable[[Table], Any], only: tuple[str, str] = IN_STAGE
) -> tuple[Any, Any]:
    """Run ``second`` from begin to end while ``first`` writes its files; what both give."""
    done: list[Any] = []
    faults = Faults(1, "after", only=only, hook=lambda: done.append(second(Table.open(path))))
    result = first(open_table(path, FaultyStorage(faults)))
    assert len(done) == 1
    return result, done[0]


def upsert(rows: Rows, options: dict[str, str] | None = None) -> Callable[[Table], Any]:
    return lambda table: table.upsert(frame(rows), options=options)


def insert(rows: Rows, options: dict[str, str] | None = None) -> Callable[[Table], Any]:
    return lambda table: table.insert(frame(rows), options=options)


# ------------------------------------------------------------------------------------------------- two at a time


@pytest.mark.parametrize(("first_ts", "second_ts"), [(5, 6), (6, 5)])
def test_same_key_the_first_goes_again(path: Path, first_ts: int, second_ts: int) -> None:
    new_table(path, START)
    ours, theirs = at_same_time(path, upsert({"k0": ("a", first_ts, 100)}), upsert({"k0": ("a", second_ts, 200)}))
    assert ours.instant is None or ours.instant > theirs.instant  # None: the late row changes nothing
    assert any("conflict" in note and theirs.instant in note for note in ours.notes)
    check_table(path, {**START, "k0": ("a", 6, 100 if first_ts == 6 else 200)})


def test_same_file_without_retries_is_an_error(path: Path) -> None:
    new_table(path, START)
    theirs: list[Any] = []
    second = upsert({"k2": ("a", 5, 200)})
    faults = Faults(1, "after", only=IN_STAGE, hook=lambda: theirs.append(second(Table.open(path))))
    with pytest.raises(CommitConflictError) as caught:
        open_table(path, FaultyStorage(faults)).upsert(frame({"k0": ("a", 5, 100)}), options=NO_RETRY)
    error = caught.value
    assert error.theirs == theirs[0].instant
    assert error.ours
    assert error.ours in str(error)
    assert error.theirs in str(error)
    assert error.retryable
    check_table(path, {**START, "k2": ("a", 5, 200)})


class Patient(LocalStorage):
    """A store whose pauses are noted instead of made."""

    __slots__ = ()
    pauses: ClassVar[list[float]] = []
    clock = Clock(sleep=pauses.append)


@pytest.mark.parametrize(
    "age, state, wait", [(300, "requested", True), (300, "inflight", False), (60_000, "requested", False)]
)
def test_a_commit_waits_until_a_writer_that_has_just_begun_has_looked(
    path: Path, age: int, state: str, wait: bool
) -> None:
    """Java looks for commits a while after it took its instant, and would build on ours under its smaller one."""
    new_table(path, START)
    table = open_table(path, Patient())
    began = plus_millis(InstantClock().next(), -age)
    for name in ["requested"] if state == "requested" else ["requested", "inflight"]:
        (path / ".hoodie" / "timeline" / f"{began}.{'commit.' if name == 'requested' else ''}{name}").touch()
    Patient.pauses.clear()
    table.upsert(frame({"k0": ("a", 5, 500)}))
    assert [0 < pause <= (LOOKING_MS - age) / 1000 for pause in Patient.pauses] == [True] * wait


def test_other_partitions_do_not_conflict(path: Path) -> None:
    new_table(path, START)
    ours, theirs = at_same_time(path, upsert({"k0": ("a", 5, 100), "n0": ("a", 5, 101)}), upsert({"k1": ("b", 5, 200)}))
    assert ours.instant < theirs.instant
    assert ours.notes == theirs.notes == ()
    check_table(path, {**START, "k0": ("a", 5, 100), "n0": ("a", 5, 101), "k1": ("b", 5, 200)})


@pytest.mark.parametrize("city", ["a", "new", None])
@pytest.mark.parametrize("options", [None, NEW_FILES], ids=["small files", "new files"])
def test_same_new_key_of_two_upserts_comes_once(path: Path, city: str | None, options: dict[str, str] | None) -> None:
    """No file overlaps, so Hudi's check sees no conflict and commits the key twice."""
    new_table(path, START, partitioned=city is not None)
    city = city or "a"
    ours, theirs = at_same_time(
        path,
        upsert({"n0": (city, 5, 100), "n1": (city, 5, 101)}, options),
        upsert({"n0": (city, 6, 200), "n2": (city, 6, 202)}, options),
    )
    assert (theirs.inserted, theirs.updated) == (2, 0)
    assert ours.inserted == 1
    check_table(path, {**START, "n0": (city, 6, 200), "n1": (city, 5, 101), "n2": (city, 6, 202)})


def test_upsert_meets_an_insert_of_its_key(path: Path) -> None:
    new_table(path, START)
    at_same_time(path, upsert({"n0": ("a", 7, 100)}, NEW_FILES), insert({"n0": ("a", 6, 200)}, NEW_FILES))
    check_table(path, {**START, "n0": ("a", 7, 100)})


@pytest.mark.parametrize("partitioned", [True, False])
def test_two_inserts_and_the_stats_of_their_partition(path: Path, partitioned: bool) -> None:
    """The earlier instant completes last, so the later one's partition stats, which do not know its file, would win."""
    new_table(path, START, partitioned=partitioned)
    high: Rows = {"n0": ("a", 5, 1_000_000)}
    low: Rows = {"n1": ("a", 5, -1_000_000)}
    ours, _ = at_same_time(path, insert(high, NEW_FILES), insert(low, NEW_FILES))
    check_table(path, {**START, **high, **low})
    assert rows_of(Table.open(path).scan("v > 1000").to_arrow()) == high
    assert rows_of(Table.open(path).scan("v < -1000").to_arrow()) == low
    assert any("conflict" in note for note in ours.notes) == partitioned


def test_a_commit_that_later_partition_stats_do_not_know(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not give way to a later instant that completed first, and its stats lose: partitions are kept then."""
    new_table(path, START)
    high: Rows = {"n0": ("a", 5, 1_000_000)}
    monkeypatch.setattr(Transaction, "_check_partition_stats", lambda *_: None)
    at_same_time(path, insert(high, NEW_FILES), insert({"n1": ("a", 5, 1), "n2": ("b", 5, 1)}, NEW_FILES))
    assert rows_of(Table.open(path).scan("v > 1000").to_arrow()) == high
    monkeypatch.undo()
    # The next write to the partition says it right again; other partitions go on to be pruned.
    Table.open(path).upsert(frame({"k0": ("a", 9, 2_000)}))
    assert len(Table.open(path).scan("v > 1000").to_arrow()) == 2
    assert Table.open(path).scan("v > 5000000").plan().files == ()


def test_delete_and_insert_in_one_partition(path: Path) -> None:
    new_table(path, START)
    delete = frame({"k0": START["k0"]}).select(["id", "city"])
    at_same_time(path, lambda t: t.delete(delete), insert({"n0": ("a", 5, 500)}, NEW_FILES))
    check_table(path, {key: row for key, row in START.items() if key != "k0"} | {"n0": ("a", 5, 500)})


def test_an_added_column_is_not_lost(path: Path) -> None:
    """The schema is that of the largest instant; here it belongs to a write that knows nothing of the new column."""
    new_table(path, START)
    wide = frame({"n0": ("a", 5, 100)}).append_column("more", pa.array([7]))
    ours, _ = at_same_time(path, lambda t: t.upsert(wide), upsert({"k1": ("b", 5, 200)}))
    table = Table.open(path)
    assert table.schema.names == [*SCHEMA.names, "more"]
    assert ours.inserted == 1
    assert table.scan("more = 7").to_arrow().column("id").to_pylist() == ["n0"]
    check_table(path, {**START, "n0": ("a", 5, 100), "k1": ("b", 5, 200)})


def test_a_column_added_meanwhile(path: Path) -> None:
    new_table(path, START)
    wide = frame({"n0": ("b", 5, 100)}).append_column("more", pa.array([7]))
    with pytest.raises(SchemaMismatchError, match="run the write again"):
        at_same_time(path, upsert({"k0": ("a", 5, 200)}), lambda t: t.upsert(wide))
    check_table(path, {**START, "n0": ("b", 5, 100)})


def test_two_first_writes_of_a_table_without_schema(path: Path) -> None:
    Table.create(path, record_key="id", partition_by=["city"], ordering_by="ts")
    ours, _ = at_same_time(path, upsert({"n0": ("a", 5, 100)}), upsert({"n0": ("a", 6, 200), "n1": ("b", 6, 201)}))
    assert ours.inserted + ours.updated <= 1
    check_table(path, {"n0": ("a", 6, 200), "n1": ("b", 6, 201)})


def test_two_creates(path: Path) -> None:
    def make() -> None:
        Table.create(path, SCHEMA, record_key="id", partition_by=["city"], ordering_by="ts", exist_ok=True)

    pids = [start_child(make) for _ in range(3)]
    assert [wait_child(pid) for pid in pids] == [0, 0, 0]
    Table.open(path).upsert(frame(START))
    check_table(path, START)


# --------------------------------------------------------------------------------------- rows read from the table


def test_upsert_of_what_was_read(path: Path) -> None:
    table = new_table(path, START)
    rows = table.to_arrow()
    assert isinstance(rows, pa.Table)
    doubled = pa.array([2 * v for v in rows.column("v").to_pylist()])
    twice = rows.set_column(rows.schema.get_field_index("v"), "v", doubled)
    result = table.upsert(twice)
    assert (result.inserted, result.updated) == (0, 8)
    check_table(path, {key: (city, ts, 2 * v) for key, (city, ts, v) in START.items()})


ACTIONS: dict[str, Callable[[Table], Any]] = {
    "delete": lambda t: t.delete(where="v < 3"),
    "update": lambda t: t.update({"v": "v + 1000"}, "v < 3"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_commit_between_reading_and_writing(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new_table(path, START)
    table = Table.open(path)
    after_reading(monkeypatch, table, lambda: Table.open(path).upsert(frame({"k1": ("b", 5, 500)})))
    with pytest.raises(CommitConflictError) as caught:
        ACTIONS[name](table)
    assert not caught.value.retryable
    check_table(path, {**START, "k1": ("b", 5, 500)})


@pytest.mark.parametrize("name", ACTIONS)
def test_early_instant_that_completes_between_reading_and_writing(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not become the newest instant, and yet the rows that were read are not the table's any more."""
    new_table(path, START)
    go, begun = threading.Event(), threading.Event()
    faults = Faults(1, "after", only=IN_STAGE, hook=lambda: (begun.set(), go.wait(30)))
    slow = threading.Thread(target=lambda: open_table(path, FaultyStorage(faults)).upsert(frame({"k0": ("a", 5, 500)})))
    slow.start()
    assert begun.wait(30)
    Table.open(path).upsert(frame({"k1": ("b", 5, 501)}))

    def finish() -> None:
        go.set()
        slow.join()

    table = Table.open(path)
    after_reading(monkeypatch, table, finish)
    with pytest.raises(CommitConflictError):
        ACTIONS[name](table)
    check_table(path, {**START, "k0": ("a", 5, 500), "k1": ("b", 5, 501)})


@pytest.mark.parametrize("name", ACTIONS)
def test_commit_to_the_same_files_while_writing(path: Path, name: str) -> None:
    new_table(path, START)
    with pytest.raises(CommitConflictError):
        at_same_time(path, ACTIONS[name], upsert({"k0": ("a", 5, 500)}))
    check_table(path, {**START, "k0": ("a", 5, 500)})


def after_reading(monkeypatch: pytest.MonkeyPatch, table: Table, then: Callable[[], object]) -> None:
    """Do something after the rows of a condition were read and before they are written."""
    for method in ("matching", "changed"):
        real = getattr(LocalSession, method)

        def reading(self: LocalSession, *arguments: Any, real: Any = real) -> Any:
            rows = real(self, *arguments)
            if self.engine is table.context.engine:
                then()
            return rows

        monkeypatch.setattr(LocalSession, method, reading)


@pytest.mark.parametrize("where", [None, "v < 3"])
def test_a_reader_sees_one_moment(path: Path, where: str | None) -> None:
    """A whole commit happens at each call of a reader: its rows are those before or those after, never a mixture.

    After the commit the stats of partition a say that nothing there is below 3.
    """
    before: Rows = {"k0": ("a", 1, 1), "k1": ("b", 1, 1), "k2": ("a", 1, 9), "k3": ("b", 1, 9)}
    change: Rows = {"k0": ("a", 2, 8), "k1": ("b", 2, 2)}
    moments = (before, {**before, **change})
    answers = [{key: row for key, row in rows.items() if where is None or row[2] < 3} for rows in moments]
    template = path.with_name("template")
    new_table(template, before)
    for at in count(1):
        fresh_copy(template, path)
        storage = ReadHook(at, lambda: Table.open(path).upsert(frame(change)))
        assert rows_of(open_table(path, storage).scan(where).to_arrow()) in answers, f"a commit at call {at}"
        if not storage.struck:
            assert at > 10
            return


def test_a_snapshot_is_of_one_moment(path: Path) -> None:
    """What its metadata table counts is what its timeline says, also if a commit comes between the two listings."""
    template = path.with_name("template")
    new_table(template, START)
    for at in count(1):
        fresh_copy(template, path)
        storage = ReadHook(at, lambda: Table.open(path).upsert(frame({"k0": ("a", 2, 8)})))
        snapshot = open_table(path, storage).snapshot()
        for instant in snapshot.metadata.timeline.completed():
            known = snapshot.timeline.is_completed(instant.requested) or instant.requested.startswith("0000")
            assert snapshot.metadata.is_valid(instant.requested) == known, f"a commit at call {at}"
        if not storage.struck:
            assert at > 4
            return


# ------------------------------------------------------------------------------------------- the living, the dead


def test_a_paused_writer_on_another_host_is_rolled_back_and_goes_again(path: Path) -> None:
    new_table(path, START)
    ours, theirs = at_same_time(path, upsert({"k0": ("a", 5, 100)}), after_silence(path, {"k1": ("b", 5, 200)}))
    assert any("rolled back" in note for note in theirs.notes)
    assert ours.updated == 1
    assert ours.instant > theirs.instant
    check_table(path, {**START, "k0": ("a", 5, 100), "k1": ("b", 5, 200)})


def test_a_paused_writer_without_retries_learns_that_it_was_rolled_back(path: Path) -> None:
    new_table(path, START)
    with pytest.raises(CommitConflictError, match="rolled back"):
        at_same_time(path, upsert({"k0": ("a", 5, 100)}, NO_RETRY), after_silence(path, {"k1": ("b", 5, 200)}))
    check_table(path, {**START, "k1": ("b", 5, 200)})


def test_a_writer_that_was_rolled_back_before_its_files_came(path: Path) -> None:
    new_table(path, START)
    at_same_time(
        path,
        upsert({"k0": ("a", 5, 100), "k1": ("b", 5, 101)}),
        after_silence(path, {"k1": ("b", 6, 200)}),
        only=("open_output", ".parquet"),
    )
    check_table(path, {**START, "k0": ("a", 5, 100), "k1": ("b", 6, 200)})


def fall_silent(path: Path, host: str = "elsewhere", age_s: float = 600) -> None:
    """Make the only heartbeat look like that of a process on another host that has not beaten for long."""
    (beat,) = (path / ".hoodie/.heartbeat").iterdir()
    beat.write_text(json.dumps({**json.loads(beat.read_text()), "host": host, "pid": 1}))
    os.utime(beat, (time.time() - age_s, time.time() - age_s))


def after_silence(path: Path, rows: Rows) -> Callable[[Table], Any]:
    """A write that comes when the other one has not beaten for long."""

    def write(table: Table) -> Any:
        fall_silent(path)
        return table.upsert(frame(rows))

    return write


@pytest.mark.parametrize("host", ["elsewhere", None])
def test_a_living_writer_is_left_alone(path: Path, host: str | None) -> None:
    new_table(path, START)

    def second(table: Table) -> Any:
        if host:
            fall_silent(path, host, age_s=60)
        (running,) = pending_commits(path)
        result = table.upsert(frame({"k1": ("b", 5, 200)}))
        assert pending_commits(path) == {running}
        return result

    ours, theirs = at_same_time(path, upsert({"k0": ("a", 5, 100)}), second)
    assert ours.notes == theirs.notes == ()
    check_table(path, {**START, "k0": ("a", 5, 100), "k1": ("b", 5, 200)})
    assert not [action for _, action, _ in timeline_of(path) if action == "rollback"]


def test_a_living_process_is_left_alone_and_a_killed_one_is_not(path: Path) -> None:
    new_table(path, START)
    ready, go = os.pipe(), os.pipe()

    def pause() -> None:
        os.write(ready[1], b"x")
        os.read(go[0], 1)

    def slow(value: int) -> Callable[[], object]:
        faults = Faults(1, "after", only=IN_STAGE, hook=pause)
        return lambda: open_table(path, FaultyStorage(faults)).upsert(frame({"k0": ("a", value, value)}))

    pid = start_child(slow(50))
    os.read(ready[0], 1)
    Table.open(path).upsert(frame({"k1": ("b", 5, 200)}))
    os.write(go[1], b"x")
    assert wait_child(pid) == 0
    rows = {**START, "k0": ("a", 50, 50), "k1": ("b", 5, 200)}
    check_table(path, rows)

    pid = start_child(slow(60))
    os.read(ready[0], 1)
    os.kill(pid, 9)
    assert wait_child(pid) == -9
    result = Table.open(path).upsert(frame({"k1": ("b", 6, 300)}))
    assert any("rolled back" in note for note in result.notes)
    check_table(path, {**rows, "k1": ("b", 6, 300)})
    for end in (*ready, *go):
        os.close(end)


# ----------------------------------------------------------------------------------------------------- many at once


@pytest.mark.parametrize("partitioned", [True, False])
def test_many_writers(path: Path, partitioned: bool) -> None:
    """Each writer's rows carry growing ordering values of its own; in the end each key holds the largest of all."""
    writers, commits = 3, 5
    new_table(path, START, partitioned=partitioned)
    batches = {
        (writer, number): batch_of(random.Random(f"{writer} {number}"), writer, number)
        for writer in range(writers)
        for number in range(commits)
    }

    def work(writer: int) -> None:
        for number in range(commits):
            while True:
                try:
                    Table.open(path).upsert(frame(batches[writer, number]))
                    break
                except CommitConflictError as error:
                    if not error.retryable:
                        raise
                    time.sleep(random.random() * 0.05)

    pids = [start_child(lambda writer=writer: work(writer)) for writer in range(writers)]
    assert [wait_child(pid) for pid in pids] == [0] * writers
    model = dict(START)
    for rows in batches.values():
        for key, row in rows.items():
            if key not in model or row[1] > model[key][1]:
                model[key] = row
    check_table(path, model)
    assert len([1 for _, action, _ in timeline_of(path) if action == "commit"]) == 1 + writers * commits


def batch_of(chance: random.Random, writer: int, number: int) -> Rows:
    known = [f"k{i}" for i in chance.sample(range(8), 2)]
    new = [f"n{i}" for i in chance.sample(range(30), 3)]
    ts = 10 + 10 * number + writer
    keys = [*known, *new, f"own{writer}.{number}"]
    cities = {key: START[key][0] if key in START else "ab"[sum(map(ord, key)) % 2] for key in keys}
    return {key: (cities[key], ts, ts * 100 + i) for i, key in enumerate(keys)}


def test_a_lock_of_a_dead_process_is_broken(path: Path) -> None:
    new_table(path, START)
    faults = Faults(1, "after", only=("create", "/lock"))
    assert run_child(lambda: open_table(path, FaultyStorage(faults)).upsert(frame({"k0": ("a", 5, 100)}))) == -9
    assert (path / ".hoodie/lock").exists()
    assert read(path) == START
    Table.open(path).upsert(frame({"k0": ("a", 6, 200)}))
    check_table(path, {**START, "k0": ("a", 6, 200)})
