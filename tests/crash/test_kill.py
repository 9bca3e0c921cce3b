"""``kill -9`` at every change that a write makes, before it, half-way and after it; then again inside the recovery.

Whatever the moment: readers see the table before the write or after it, the next writer removes what is left, and
nothing is lost or doubled.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults import Faults, FaultyStorage, run_child
from rust_judge import RustJudge
from table_checks import SCHEMA, Rows, check_table, commit_files, frame, new_table, open_with, pending_commits, read, rows_of, timeline_of

from lakedex import Table
from lakedex.errors import TableNotFoundError
from lakedex.timeline.instant import State
from lakedex.timeline.table_config import read_table_config, update_table_config
from lakedex.write.create import create_table

START: Rows = {f"k{i}": ("ab"[i % 2], 1, i) for i in range(8)}
NEXT: Rows = {"k0": ("a", 9, 900), "n1": ("b", 9, 901)}
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Write:
    """A write and what it makes of :data:`START`."""

    run: Callable[[Table], object]
    after: Rows


WRITES = {
    "upsert": Write(
        lambda t: t.upsert(frame({"k1": ("b", 5, 100), "n0": ("a", 5, 101), "n9": ("c", 5, 102)})),
        {**START, "k1": ("b", 5, 100), "n0": ("a", 5, 101), "n9": ("c", 5, 102)},
    ),
    "insert": Write(
        lambda t: t.insert(frame({"n0": ("c", 5, 101)}), options={"hoodie.parquet.small.file.limit": "0"}),
        {**START, "n0": ("c", 5, 101)},
    ),
    "delete": Write(lambda t: t.delete("v < 3"), {key: row for key, row in START.items() if row[2] >= 3}),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with :data:`START`; tests copy it."""
    path = tmp_path_factory.mktemp("crash") / "template"
    new_table(path, START)
    return path


@pytest.fixture
def fresh(template: Path, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Makes copies of the template, one at a time."""
    path = tmp_path / "t"

    def copy() -> Path:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, path)
        return path

    return copy


def changes_of(path: Path, run: Callable[[Table], object]) -> list[tuple[str, str]]:
    """The changes that a write makes when nothing goes wrong."""
    faults = Faults()
    run(open_with(path, FaultyStorage(faults)))
    return faults.seen


def kill_points(changes: list[tuple[str, str]]) -> list[tuple[int, str]]:
    points = [(n, when) for n in range(1, len(changes) + 1) for when in ("before", "after")]
    half = [n for n, (call, _) in enumerate(changes, 1) if call in ("create", "write", "delete_tree")]
    return points + [(n, "during") for n in half]


def die(path: Path, run: Callable[[Table], object], at: int, when: str) -> None:
    code = run_child(lambda: run(open_with(path, FaultyStorage(Faults(at, when)))))
    assert code == KILLED, f"ended with {code}"


def seen_by_readers(path: Path, before: Rows, after: Rows, commits: set[str]) -> Rows:
    """What a plain reader sees now: the table before the write, or after it if its commit is complete."""
    rows = read(path)
    assert rows == (after if commit_files(path) - commits else before)
    return rows


@pytest.mark.parametrize("name", WRITES)
def test_kill_at_every_change(name: str, fresh: Callable[[], Path]) -> None:
    write = WRITES[name]
    path = fresh()
    commits = commit_files(path)
    points = kill_points(changes_of(path, write.run))
    assert len(points) > 60
    outcomes = set()
    for at, when in points:
        path = fresh()
        die(path, write.run, at, when)
        rows = seen_by_readers(path, START, write.after, commits)
        dead = pending_commits(path)
        outcomes.add((rows == START, bool(dead)))
        recover(path, rows, dead)
    assert outcomes == {(True, False), (True, True), (False, False)}


def recover(path: Path, rows: Rows, dead: set[str]) -> None:
    """The next write succeeds and leaves nothing of the dead one."""
    result = Table.open(path).upsert(frame(NEXT))
    assert (result.inserted, result.updated) == ((1, 1) if "k0" in rows else (2, 0))
    check_table(path, {**rows, **NEXT})
    undone = {entry for entry in dead if any(entry in note for note in result.notes)}
    assert undone == dead
    rollbacks = [state for _, action, state in timeline_of(path) if action == "rollback"]
    assert rollbacks == [State.COMPLETED] * len(dead)


@pytest.mark.parametrize("share", [0.3, 0.55, 0.8])
def test_kill_inside_the_recovery(share: float, fresh: Callable[[], Path]) -> None:
    write = WRITES["upsert"]
    path = fresh()
    changes = changes_of(path, write.run)
    last = next(n for n, (_, file) in enumerate(changes, 1) if commits_data(file))
    at = {0.3: 8, 0.55: last // 2, 0.8: last}[share]
    torn = path.with_name("torn")
    path = fresh()
    die(path, write.run, at, "before")
    path.rename(torn)

    def again() -> Path:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(torn, path)
        return path

    recovery = changes_of(again(), lambda t: t.upsert(frame(NEXT)))
    end = next(n for n, (_, file) in enumerate(recovery, 1) if file.endswith(".commit.requested") and recovery[n - 1][0] == "create")
    assert end > 5
    for point, when in kill_points(recovery[: end + 1]):
        die(again(), lambda t: t.upsert(frame(NEXT)), point, when)
        assert read(path) == START
        result = Table.open(path).upsert(frame(NEXT))
        assert (result.inserted, result.updated) == (1, 1)
        check_table(path, {**START, **NEXT})


def commits_data(file: str) -> bool:
    return file.endswith(".commit") and "/metadata/" not in file


def test_three_recoveries_die_in_turn(fresh: Callable[[], Path]) -> None:
    path = fresh()
    run = WRITES["upsert"].run
    for at in (25, 9, 7, 5):
        die(path, run, at, "after")
    assert read(path) == START
    Table.open(path).upsert(frame(NEXT))
    check_table(path, {**START, **NEXT})


@pytest.mark.judge
def test_hudi_rs_sees_the_same(fresh: Callable[[], Path], rust: RustJudge) -> None:
    write = WRITES["upsert"]
    path = fresh()
    commits = commit_files(path)
    for at, when in kill_points(changes_of(path, write.run))[::6]:
        path = fresh()
        die(path, write.run, at, when)
        rows = seen_by_readers(path, START, write.after, commits)
        assert rows_of(rust.read(path)) == rows
        Table.open(path).upsert(frame(NEXT))
        assert rows_of(rust.read(path)) == {**rows, **NEXT}


def test_kill_at_every_change_of_create(tmp_path: Path) -> None:
    def create(path: Path, storage: FaultyStorage) -> None:
        table = open_with(path, storage)
        make(table)

    faults = Faults()
    create(tmp_path / "whole", FaultyStorage(faults))
    points = kill_points(faults.seen)
    assert len(points) > 60
    made = 0
    for number, (at, when) in enumerate(points):
        path = tmp_path / f"t{number}"
        code = run_child(lambda at=at, when=when, path=path: create(path, FaultyStorage(Faults(at, when))))
        assert code == KILLED
        if Table.is_table(path):
            made += 1
        else:
            with pytest.raises(TableNotFoundError):
                Table.open(path)
        table = Table.create(None, path, SCHEMA, record_key="id", partition_by=["city"], ordering_by="ts", exist_ok=True)
        table.upsert(frame(START))
        check_table(path, START)
    assert 0 < made < len(points)


def make(table: Table) -> None:
    create_table(
        table._handle,
        name="t",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["city"],
        ordering_by=["ts"],
        table_type="cow",
        exist_ok=False,
        options=None,
    )


def test_kill_at_every_change_of_the_settings(fresh: Callable[[], Path]) -> None:
    def change(path: Path, storage: FaultyStorage) -> None:
        update_table_config(storage, str(path), {"hoodie.some.key": "new"})

    faults = Faults()
    change(fresh(), FaultyStorage(faults))
    for at, when in kill_points(faults.seen):
        path = fresh()
        assert run_child(lambda at=at, when=when, path=path: change(path, FaultyStorage(Faults(at, when)))) == KILLED
        found = read_table_config(FaultyStorage(), str(path)).raw.get("hoodie.some.key")
        assert found in (None, "new")
        assert read(path) == START
        Table.open(path).upsert(frame(NEXT))
        check_table(path, {**START, **NEXT})
        assert read_table_config(FaultyStorage(), str(path)).raw.get("hoodie.some.key") == found


def test_first_write_dies(path: Path) -> None:
    """The active timeline then begins with the rollback, before which everything unknown counts as archived."""
    new_table(path, {})
    template = path.with_name("empty")
    path.rename(template)
    shutil.copytree(template, path)
    write = WRITES["upsert"]
    after = {key: row for key, row in write.after.items() if row[1] == 5}
    for at, when in kill_points(changes_of(path, write.run))[::5]:
        shutil.rmtree(path)
        shutil.copytree(template, path)
        die(path, write.run, at, when)
        rows = seen_by_readers(path, {}, after, set())
        Table.open(path).upsert(frame(NEXT))
        check_table(path, {**rows, **NEXT})
