"""Tasks that run twice, as Spark's do after a lost executor or by speculation: one result counts, one file stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faults import TwiceEngine
from lakedex import Table
from lakedex.errors import CommitConflictError, CommitError
from lakedex.io.local import LocalStorage
from lakedex.local.engine import LocalEngine
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.write.file_group_tasks import WriteFileGroups
from table_checks import Rows, base_files, check_table, frame, new_table, read

START: Rows = {f"k{i}": ("ab"[i % 2], 1, i) for i in range(8)}
CHANGE: Rows = {"k0": ("a", 5, 100), "k1": ("b", 5, 101), "n0": ("a", 5, 102), "n1": ("new", 5, 103)}
AFTER: Rows = {**START, **CHANGE}
SMALL_BLOOMS = {"hoodie.index.bloom.num_entries": "60000"}
"""Filters of this size are larger than 64 KiB, so that they are spilled to a file."""


def engine_for(wrong: str) -> TwiceEngine:
    return TwiceEngine(LocalEngine(2), WriteFileGroups, wrong)


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("wrong", ["twice", "retry", "late"])
def test_one_attempt_counts(path: Path, wrong: str, spilled: bool) -> None:
    new_table(path, START)
    files = len(base_files(path))
    engine = engine_for(wrong)
    result = open_table(path, LocalStorage(), engine).upsert(frame(CHANGE), options=SMALL_BLOOMS if spilled else None)
    assert (result.inserted, result.updated, result.deleted, result.files_written) == (2, 2, 0, 3)
    assert len(base_files(path)) == files + 3
    check_table(path, AFTER)
    for late in engine.late:
        with pytest.raises(CommitError, match="no longer in flight"):
            late()
    assert len(base_files(path)) == files + 3
    assert read(path) == AFTER
    Table.open(path).upsert(frame({"k3": ("b", 6, 300)}))
    check_table(path, {**AFTER, "k3": ("b", 6, 300)})


@pytest.mark.parametrize("at", ["metadata begins", "commit completes", "markers go"])
def test_a_late_attempt_ends_while_the_commit_is_decided(path: Path, at: str) -> None:
    """Its file comes after those of attempts without result were removed, and before the commit is complete."""
    new_table(path, START)
    moments = {
        "metadata begins": ("before", ("create", "/metadata/.hoodie/timeline/")),
        "commit completes": ("before", ("create", "/table/.hoodie/timeline/2")),
        "markers go": ("before", ("delete_tree", "/.temp/")),
    }
    when, only = moments[at]
    engine = engine_for("late")
    failures = []

    def run_late() -> None:
        for late in engine.late:
            try:
                late()
            except CommitError as error:
                failures.append(error)

    # The third file of the data timeline is the completed one, after requested and inflight.
    faults = Faults(3 if at == "commit completes" else 1, when, only=only, hook=run_late)
    result = open_table(path, FaultyStorage(faults), engine).upsert(frame(CHANGE))
    assert engine.late
    assert bool(failures) == (at == "markers go")
    assert result.notes == ()
    Table.open(path).upsert(frame({"k3": ("b", 6, 300)}))
    check_table(path, {**AFTER, "k3": ("b", 6, 300)})


@pytest.mark.parametrize("engine", ["twice", "late"])
def test_a_conflict_removes_the_files_of_all_attempts(path: Path, engine: str) -> None:
    new_table(path, START)
    twice = engine_for(engine)
    other: Callable[[], object] = lambda: Table.open(path).upsert(frame({"k0": ("a", 3, 50)}))  # noqa: E731
    faults = Faults(1, "after", only=("close_output", ".parquet"), hook=other)
    with pytest.raises(CommitConflictError):
        open_table(path, FaultyStorage(faults), twice).upsert(
            frame(CHANGE), options={"hoodie.write.num.retries.on.conflict.failures": "0"}
        )
    check_table(path, {**START, "k0": ("a", 3, 50)})
    before = base_files(path)
    for late in twice.late:
        with pytest.raises(CommitError):
            late()
    assert base_files(path) == before
    assert read(path) == {**START, "k0": ("a", 3, 50)}


def test_a_late_attempt_that_fails_leaves_no_file(path: Path) -> None:
    """Its finished files wait for the others to be made durable, and the disk fails then."""
    new_table(path, START)
    engine = engine_for("late")
    faults = Faults(error=OSError("the disk is gone"))
    open_table(path, FaultyStorage(faults), engine).upsert(frame(CHANGE))
    faults.only, faults.repeat = ("sync", ""), True
    before = base_files(path)
    assert engine.late
    for late in engine.late:
        with pytest.raises(OSError, match="the disk is gone"):
            late()
    assert base_files(path) == before
    Table.open(path).upsert(frame({"k3": ("b", 6, 300)}))
    check_table(path, {**AFTER, "k3": ("b", 6, 300)})


def test_no_result_comes_before_its_file_is_durable(path: Path) -> None:
    new_table(path, START)
    faults = Faults(1, "before", OSError("the disk is gone"), only=("sync", ""))
    with pytest.raises(OSError, match="the disk is gone"):
        open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    check_table(path, START)
    Table.open(path).upsert(frame(CHANGE))
    check_table(path, AFTER)


def test_a_task_fails_once_and_the_next_write_is_right(path: Path) -> None:
    new_table(path, START)
    faults = Faults(2, "before", OSError("no more space in this task"), only=("close_output", ".parquet"))
    with pytest.raises(OSError, match="no more space in this task"):
        open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    check_table(path, START)
    Table.open(path).upsert(frame(CHANGE))
    check_table(path, AFTER)
