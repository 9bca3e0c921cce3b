"""``kill -9`` at every change that a write makes, before it, half-way and after it; then again inside the recovery.

Whatever the moment: readers see the table before the write or after it, the next writer removes what is left, and
nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from rust_judge import RustJudge

from faults import run_child
from lakedex import Table
from lakedex.errors import TableNotFoundError
from lakedex.io.storage import TableFiles
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.instant import State
from lakedex.timeline.table_config import read_table_config, update_table_config
from lakedex.write.create_table import create_table
from table_checks import (
    KILLED,
    NEXT,
    SCHEMA,
    START,
    THOROUGH,
    Rows,
    check_table,
    commit_files,
    deaths,
    frame,
    fresh_copy,
    new_table,
    pending_commits,
    read,
    rows_of,
    timeline_of,
    writes,
)


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
    "delete": Write(lambda t: t.delete(where="v < 3"), {key: row for key, row in START.items() if row[2] >= 3}),
    "overwrite": Write(
        lambda t: t.insert_overwrite(frame({"k1": ("b", 0, 100), "n9": ("c", 5, 102)})),
        {**{k: row for k, row in START.items() if row[0] != "b"}, "k1": ("b", 0, 100), "n9": ("c", 5, 102)},
    ),
    "emptied": Write(lambda t: t.insert_overwrite(frame({}), scope="table"), {}),
    "partition": Write(lambda t: t.delete_partition("city=b"), {k: row for k, row in START.items() if row[0] != "b"}),
    "merge": Write(
        lambda t: (
            t.merge(frame({"k1": ("a", 0, 100), "k2": ("a", 0, -1), "n9": ("c", 5, 102)}), "t.id = s.id")
            .when_matched_delete("s.v < 0")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(txn=("app", 1))
        ),
        {**{k: row for k, row in START.items() if k != "k2"}, "k1": ("a", 0, 100), "n9": ("c", 5, 102)},
    ),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with :data:`START`; tests copy it."""
    path = tmp_path_factory.mktemp("crash") / "template"
    new_table(path, START)
    return path


@pytest.fixture
def fresh(template: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes copies of the template, one at a time."""
    return partial(fresh_copy, template, tmp_path / "t")


def die(path: Path, write: Callable[[Table], object], faults: Faults) -> None:
    assert run_child(lambda: write(open_table(path, FaultyStorage(faults)))) == KILLED


def seen_by_readers(path: Path, before: Rows, after: Rows, commits: set[str]) -> Rows:
    """What a plain reader sees now: the table before the write, or after it if its commit is complete."""
    rows = read(path)
    assert rows == (after if commit_files(path) - commits else before)
    return rows


@pytest.mark.parametrize(
    ("name", "sparse"),
    [
        pytest.param("upsert", 2, marks=pytest.mark.heavy),
        ("insert", 6),
        pytest.param("delete", 6, marks=pytest.mark.heavy),
        pytest.param("overwrite", 6, marks=pytest.mark.heavy),
        ("emptied", 6),
        pytest.param("partition", 9, marks=pytest.mark.heavy),
        pytest.param("merge", 9, marks=pytest.mark.heavy),
    ],
)
def test_kill_at_every_change(name: str, sparse: int, fresh: Callable[[], Path]) -> None:
    write = WRITES[name]
    commits = commit_files(fresh())
    outcomes = set()
    for path in deaths(fresh, writes(write.run), sparse=sparse):
        rows = seen_by_readers(path, START, write.after, commits)
        dead = pending_commits(path)
        outcomes.add((rows == START, bool(dead)))
        recover(path, rows, dead)
    seen = {(True, False), (True, True), (False, False)}
    assert outcomes == seen if THOROUGH or sparse <= 2 else outcomes <= seen


def recover(path: Path, rows: Rows, dead: set[str]) -> None:
    """The next write succeeds and leaves nothing of the dead one."""
    result = Table.open(path).upsert(frame(NEXT))
    assert (result.inserted, result.updated) == ((1, 1) if "k0" in rows else (2, 0))
    check_table(path, {**rows, **NEXT})
    undone = {entry for entry in dead if any(entry in note for note in result.notes)}
    assert undone == dead
    rollbacks = [state for _, action, state in timeline_of(path) if action == "rollback"]
    assert rollbacks == [State.COMPLETED] * len(dead)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(8), id="begun", marks=pytest.mark.heavy),
        pytest.param(Faults(1, "after", only=("close_output", ".parquet")), id="file written", marks=pytest.mark.heavy),
        pytest.param(Faults(2, "after", only=("create", ".log.1_")), id="metadata half written"),
        pytest.param(Faults(1, "after", only=("create", ".deltacommit")), id="metadata begun", marks=pytest.mark.heavy),
        pytest.param(Faults(3, "after", only=("create", ".deltacommit")), id="metadata complete"),
    ],
)
def test_kill_inside_the_recovery(faults: Faults, fresh: Callable[[], Path]) -> None:
    path = fresh()
    die(path, WRITES["upsert"].run, faults)
    dead = pending_commits(path)
    assert len(dead) == 1
    torn = path.with_name("torn")
    path.rename(torn)
    again = partial(fresh_copy, torn, path)
    for found in deaths(again, writes(lambda t: t.upsert(frame(NEXT))), ("after", "during"), sparse=7):
        rows = read(found)
        assert rows in (START, {**START, **NEXT})
        result = Table.open(found).upsert(frame(NEXT))
        assert result.inserted + result.updated == 2
        check_table(found, {**START, **NEXT})
        assert not any(requested in dead for requested, _, _ in timeline_of(found))


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize(
    "only",
    [("create", ".rollback"), ("delete", ".parquet"), ("delete_tree", ".temp"), ("delete", "t/.hoodie/timeline/")],
    ids=["rollback", "files", "markers", "instant"],
)
def test_kill_at_a_step_of_the_recovery(when: str, only: tuple[str, str], fresh: Callable[[], Path]) -> None:
    path = fresh()
    die(path, WRITES["upsert"].run, Faults(3, "after", only=("create", ".deltacommit")))
    if when == "during" and only[0] == "delete":
        when = "after"
    die(path, lambda t: t.upsert(frame(NEXT)), Faults(1, when, only=only))
    assert read(path) == START
    Table.open(path).upsert(frame(NEXT))
    check_table(path, {**START, **NEXT})


def test_several_recoveries_die_in_turn(fresh: Callable[[], Path]) -> None:
    path = fresh()
    die(path, WRITES["upsert"].run, Faults(2, "after", only=("create", ".log.1_")))
    for at in (9, 7, 5):
        die(path, WRITES["upsert"].run, Faults(at, "after"))
    assert read(path) == START
    Table.open(path).upsert(frame(NEXT))
    check_table(path, {**START, **NEXT})


@pytest.mark.judge
def test_hudi_rs_sees_the_same(fresh: Callable[[], Path], rust: RustJudge) -> None:
    write = WRITES["upsert"]
    commits = commit_files(fresh())
    for path in deaths(fresh, writes(write.run), ("after",), sparse=7):
        rows = seen_by_readers(path, START, write.after, commits)
        assert rows_of(rust.read(path)) == rows
        Table.open(path).upsert(frame(NEXT))
        assert rows_of(rust.read(path)) == {**rows, **NEXT}


def test_kill_at_every_change_of_create(tmp_path: Path) -> None:
    numbers = count()
    made, unmade = 0, 0
    for path in deaths(lambda: tmp_path / f"t{next(numbers)}", create, ("after", "during"), sparse=7):
        if Table.is_table(path):
            made += 1
        else:
            unmade += 1
            if unmade == 1:
                with pytest.raises(TableNotFoundError):
                    Table.open(path)
        Table.create(path, SCHEMA, record_key="id", partition_by=["city"], ordering_by="ts", exist_ok=True)
        Table.open(path).upsert(frame(START))
        check_table(path, START)
    assert unmade > 5
    assert made or not THOROUGH


def create(path: Path, storage: FaultyStorage) -> None:
    create_table(
        open_table(path, storage).context,
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
        update_table_config(TableFiles(storage, str(path)), {"hoodie.some.key": "new"})

    for path in deaths(fresh, change, sparse=2):
        found = read_table_config(TableFiles(FaultyStorage(), str(path))).raw.get("hoodie.some.key")
        assert found in (None, "new")
        assert read(path) == START
        Table.open(path).upsert(frame(NEXT))
        check_table(path, {**START, **NEXT})
        assert read_table_config(TableFiles(FaultyStorage(), str(path))).raw.get("hoodie.some.key") == found


def test_first_write_dies(path: Path) -> None:
    """The active timeline then begins with the rollback, before which everything unknown counts as archived."""
    template = path.with_name("empty")
    new_table(template, {})
    empty = partial(fresh_copy, template, path)
    write = WRITES["upsert"]
    after = {key: row for key, row in write.after.items() if row[1] == 5}
    for found in deaths(empty, writes(write.run), ("after", "during"), sparse=8):
        rows = seen_by_readers(found, {}, after, set())
        Table.open(found).upsert(frame(NEXT))
        check_table(found, {**rows, **NEXT})
