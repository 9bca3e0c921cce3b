"""``kill -9`` at the changes of a write to a table of version 6, of the recovery from it, of a build and of a creation.

There a log file of the metadata table does not tell by its name who wrote it, and a completed instant not when it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from faults import run_child
from lakedex import Table
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.instant import State
from table_checks import (
    KILLED,
    NEXT,
    SCHEMA,
    START,
    check_table,
    commit_files,
    deaths,
    frame,
    fresh_copy,
    new_table,
    pending_commits,
    read,
    timeline_of,
    writes,
)

pytestmark = pytest.mark.heavy

SIX = {"hoodie.write.table.version": "6"}
NONE = {
    **SIX,
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
}
CHANGES = {"k1": ("b", 5, 100), "n0": ("a", 5, 101), "n9": ("c", 5, 102)}
KEPT = {key: row for key, row in START.items() if row[0] != "b"}
WRITES: dict[str, tuple[Callable[[Table], object], dict[str, tuple[str, int, int]]]] = {
    "upsert": (lambda t: t.upsert(frame(CHANGES)), {**START, **CHANGES}),
    "overwrite": (lambda t: t.insert_overwrite(frame({"k1": ("b", 0, 100)})), {**KEPT, "k1": ("b", 0, 100)}),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crash6") / "template"
    new_table(path, START, SIX)
    return path


@pytest.fixture
def fresh(template: Path, tmp_path: Path) -> Callable[[], Path]:
    return partial(fresh_copy, template, tmp_path / "t")


@pytest.mark.parametrize(("name", "sparse"), [("upsert", 4), ("overwrite", 9)])
def test_kill_at_every_change(name: str, sparse: int, fresh: Callable[[], Path]) -> None:
    """R53, R54: whatever the moment, readers see the table before the write or after it, and the next writer mends."""
    run, after = WRITES[name]
    commits = commit_files(fresh())
    outcomes = set()
    for path in deaths(fresh, writes(run), sparse=sparse):
        committed = bool(commit_files(path) - commits)
        rows = read(path)
        assert rows == (after if committed else START)
        dead = pending_commits(path)
        outcomes.add((committed, bool(dead)))
        result = Table.open(path).upsert(frame(NEXT))
        assert (result.inserted, result.updated) == ((1, 1) if "k0" in rows else (2, 0))
        check_table(path, {**rows, **NEXT})
        assert {entry for entry in dead if any(entry in note for note in result.notes)} == dead
        rollbacks = [state for _, action, state in timeline_of(path) if action == "rollback"]
        assert rollbacks == [State.COMPLETED] * len(dead)
    assert {(False, True), (True, False)} <= outcomes


def test_kill_inside_the_recovery(fresh: Callable[[], Path]) -> None:
    path = fresh()
    dying = partial(open_table, path, FaultyStorage(Faults(3, "after", only=("create", ".deltacommit"))))
    assert run_child(lambda: WRITES["upsert"][0](dying())) == KILLED
    (dead,) = pending_commits(path)
    assert Table.open(path).snapshot().metadata.timeline.is_completed(dead)
    torn = path.with_name("torn")
    path.rename(torn)
    again = partial(fresh_copy, torn, path)
    for found in deaths(again, writes(lambda t: t.upsert(frame(NEXT))), ("after", "during"), sparse=9):
        assert read(found) in (START, {**START, **NEXT})
        Table.open(found).upsert(frame(NEXT))
        check_table(found, {**START, **NEXT})
        assert dead not in {requested for requested, _, _ in timeline_of(found)}


def test_kill_in_an_index_build(tmp_path: Path) -> None:
    template = tmp_path / "template"
    new_table(template, START, NONE)

    def build(table: Table) -> None:
        for name in ("column_stats", "bloom_filters"):
            table.indexes.create(name, if_not_exists=True)

    for found in deaths(partial(fresh_copy, template, tmp_path / "t"), writes(build), ("after", "during"), sparse=9):
        assert read(found) == START
        table = Table.open(found)
        table.upsert(frame(NEXT))
        build(table)
        check_table(found, {**START, **NEXT}, index_builds=True)
        for name in ("column_stats", "bloom_filters"):
            assert table.indexes.validate(name).ok
            assert table.indexes.stats(name).files_uncovered == 0


def test_kill_in_the_creation(tmp_path: Path) -> None:
    numbers = count()
    arguments = {"record_key": "id", "partition_by": ["city"], "ordering_by": "ts", "options": SIX}

    def create(path: Path, storage: FaultyStorage) -> None:
        from lakedex.write.create_table import create_table

        create_table(
            open_table(path, storage).context,
            name="t",
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["city"],
            ordering_by=["ts"],
            table_type="cow",
            exist_ok=False,
            options=SIX,
        )

    for path in deaths(lambda: tmp_path / f"t{next(numbers)}", create, ("after", "during"), sparse=9):
        Table.create(path, SCHEMA, exist_ok=True, **arguments).upsert(frame(START))
        check_table(path, START)
        assert Table.open(path).snapshot().config.version == 6
