"""``kill -9`` at every change that cleaning, rolling back, restoring and savepoints make.

Whatever the moment: readers see the table before or after, the next writer finishes what was begun, and the indexes are
right afterwards. Of a restore nobody sees half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.timeline.instant import State
from service_kit import commits_of, with_bitmaps
from table_checks import (
    NEXT,
    START,
    THOROUGH,
    Rows,
    check_table,
    deaths,
    frame,
    fresh_copy,
    new_table,
    read,
    timeline_of,
    writes,
)

pytestmark = pytest.mark.heavy

ONE: Rows = {"k0": ("a", 2, 50), "z": ("c", 2, 51)}
TWO: Rows = {"k0": ("a", 3, 70), "k1": ("b", 3, 71), "y": ("d", 3, 72)}
NO_CLEAN = {"hoodie.clean.automatic": "false"}


@dataclass(frozen=True)
class Service:
    """A table, what is done to it, and its rows before and after."""

    prepare: Callable[[Table], object]
    run: Callable[[Table], object]
    before: Rows
    after: Rows
    index_builds: bool = False
    sparse: int = 12


def two_commits(table: Table) -> None:
    table.upsert(frame(ONE))
    table.upsert(frame(TWO))


def overwritten(table: Table) -> None:
    """Two partitions are emptied, so that a clean takes them away."""
    two_commits(table)
    table.insert_overwrite(frame({"x": ("a", 4, 80)}), scope="table")
    table.upsert(frame({"x": ("a", 5, 81)}))


def built_since(table: Table) -> None:
    """The indexes know the last commit by more than its own records."""
    two_commits(table)
    table.indexes.drop("bloom_filters")
    table.indexes.drop("partition_stats", if_exists=True)
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats")
    table.indexes.create("bloom_filters")


def saved(table: Table) -> None:
    """A savepoint, and later commits of which a clean has taken all but the last one's files."""
    table.maintenance.savepoint(comment="good")
    two_commits(table)
    table.insert_overwrite(frame({"x": ("a", 4, 80)}), scope="table")
    table.maintenance.clean(versions=1)


def saved_and_built(table: Table) -> None:
    table.maintenance.savepoint()
    built_since(table)
    table.upsert(frame({"z": ("c", 9, 90)}))


def last(table: Table) -> str:
    return commits_of(table)[-1]


def to_savepoint(table: Table) -> object:
    return table.maintenance.restore(table.maintenance.savepoints()["instant"][0].as_py())


X: Rows = {"x": ("a", 5, 81)}
SERVICES = {
    "clean": Service(overwritten, lambda t: t.maintenance.clean(commits=1), X, X),
    "rollback": Service(
        two_commits, lambda t: t.maintenance.rollback(last(t)), {**START, **ONE, **TWO}, {**START, **ONE}
    ),
    "rollback of an overwrite": Service(
        lambda t: (t.upsert(frame(ONE)), t.insert_overwrite(frame(X), scope="table")),
        lambda t: t.maintenance.rollback(last(t)),
        X,
        {**START, **ONE},
    ),
    "rollback past an index build": Service(
        built_since,
        lambda t: t.maintenance.rollback(last(t)),
        {**START, **ONE, **TWO},
        {**START, **ONE},
        index_builds=True,
    ),
    "restore": Service(saved, to_savepoint, {"x": ("a", 4, 80)}, START, sparse=24),
    "restore past an index build": Service(
        saved_and_built, to_savepoint, {**START, **ONE, **TWO, "z": ("c", 9, 90)}, START, index_builds=True, sparse=24
    ),
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def template(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("service") / "t"
            SERVICES[name].prepare(with_bitmaps(new_table(made[name], START, options=NO_CLEAN)))
        return made[name]

    return template


@pytest.mark.parametrize("name", SERVICES)
def test_kill_at_every_change(name: str, templates: Callable[[str], Path], path: Path) -> None:
    """R31, R32, R49: the next writer finishes the service, and every index agrees with the files."""
    service = SERVICES[name]
    outcomes = set()
    for found in deaths(
        partial(fresh_copy, templates(name), path), writes(service.run), ("after", "during"), service.sparse
    ):
        rows = read(found)
        assert rows in (service.before, service.after)
        begun = any(
            action in ("rollback", "restore") and state is State.INFLIGHT for _, action, state in timeline_of(found)
        )
        planned = any(action == "rollback" and state is State.REQUESTED for _, action, state in timeline_of(found))
        wanted = service.after if begun or planned or rows == service.after else service.before
        outcomes.add((rows == service.after, begun))
        Table.open(found).upsert(frame(NEXT))
        check_table(found, {**wanted, **NEXT}, index_builds=service.index_builds)
    assert len(outcomes) >= (1 if service.before == service.after else 2)


@pytest.mark.parametrize("name", ["clean", "rollback past an index build", "restore"])
def test_kill_inside_of_finishing(name: str, templates: Callable[[str], Path], path: Path) -> None:
    """The one that finishes what died may die too."""
    service, torn = SERVICES[name], path.with_name("torn")
    tables = deaths(partial(fresh_copy, templates(name), torn), writes(service.run), ("after",), sparse=40)
    for number, half_done in enumerate(islice(tables, 0, None, 12 if THOROUGH else 1)):
        kept = half_done.with_name(f"kept{number}")
        half_done.rename(kept)
        run = writes(lambda t: t.upsert(frame(NEXT)))
        for found in deaths(partial(fresh_copy, kept, path), run, ("after",), sparse=40):
            rows = read(found)
            assert rows in (service.before, service.after, {**service.before, **NEXT}, {**service.after, **NEXT})
            Table.open(found).upsert(frame(NEXT))
            Table.open(found).upsert(frame(NEXT))
            final = read(found)
            assert final in ({**service.before, **NEXT}, {**service.after, **NEXT})
            check_table(found, final, index_builds=True)


def test_a_savepoint_that_dies(templates: Callable[[str], Path], path: Path) -> None:
    """It is there or not; the same call made again makes it."""
    service = SERVICES["rollback"]
    for found in deaths(partial(fresh_copy, templates("rollback"), path), writes(lambda t: t.maintenance.savepoint())):
        table = Table.open(found)
        assert read(found) == service.before
        if not table.maintenance.savepoints().num_rows:
            table.maintenance.savepoint()
        assert table.maintenance.savepoints()["instant"].to_pylist() == [last(table)]
        table.upsert(frame(NEXT))
        check_table(found, {**service.before, **NEXT})


def test_deleting_a_savepoint_dies(templates: Callable[[str], Path], path: Path) -> None:
    """It is there or not; no file is lost."""
    template = fresh_copy(templates("rollback"), path.with_name("saved"))
    kept = Table.open(template).maintenance.savepoint()
    delete = writes(lambda t: t.maintenance.delete_savepoint(kept))
    for found in deaths(partial(fresh_copy, template, path), delete):
        table = Table.open(found)
        if table.maintenance.savepoints().num_rows:
            table.maintenance.delete_savepoint(kept)
        assert table.maintenance.savepoints().num_rows == 0
        assert table.maintenance.savepoint() == kept
