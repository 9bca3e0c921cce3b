"""``kill -9`` at the changes of delta commits, and of services that undo or clean them.

Whatever the moment: readers see the table before or after, the next writer finishes what was begun, and nothing of a
failed write is left: no file that nobody owns, and no block that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.timeline.instant import State
from service_kit import commits_of
from table_checks import (
    NEXT,
    SCHEMA,
    START,
    Rows,
    deaths,
    frame,
    fresh_copy,
    pending_commits,
    read,
    timeline_of,
    writes,
)

pytestmark = pytest.mark.heavy

OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
}
ONE: Rows = {"k0": ("a", 2, 50), "k1": ("b", 2, 51), "n0": ("a", 2, 52)}
TWO: Rows = {"k2": ("a", 3, 60), "k0": ("a", 3, 61)}
GONE = {key: row for key, row in {**START, **ONE}.items() if key not in ("k2", "k3")}


def begin(path: Path, version: str) -> Table:
    """A table with a base file in each of two partitions and log files on both."""
    options = {**OPTIONS, "hoodie.write.table.version": version}
    table = Table.create(
        path, SCHEMA, record_key="id", partition_by=["city"], ordering_by="ts", table_type="mor", options=options
    )
    table.insert(frame(START))
    table.upsert(frame(ONE))
    return table


def delete_two(table: Table) -> None:
    table.delete(frame({key: START[key] for key in ("k2", "k3")}).select(["id", "city"]))


def saved(table: Table) -> None:
    table.maintenance.savepoint()
    delete_two(table)
    table.maintenance.compact()
    table.upsert(frame(TWO))


def to_savepoint(table: Table) -> object:
    return table.maintenance.restore(table.maintenance.savepoints()["instant"][0].as_py())


def compacted(table: Table) -> None:
    table.maintenance.compact()
    table.upsert(frame(TWO))


@dataclass(frozen=True)
class Step:
    """What is done before, what is done and killed, and the rows before and after it."""

    prepare: Callable[[Table], object]
    run: Callable[[Table], object]
    before: Rows
    after: Rows
    sparse: int = 16


BOTH: Rows = {**START, **ONE}
STEPS = {
    "upsert": Step(lambda t: None, lambda t: t.upsert(frame(TWO)), BOTH, {**BOTH, **TWO}, sparse=8),
    "delete": Step(lambda t: None, delete_two, BOTH, GONE),
    "rollback": Step(delete_two, lambda t: t.maintenance.rollback(commits_of(t)[-1]), GONE, BOTH),
    "restore": Step(saved, to_savepoint, {**GONE, **TWO}, BOTH, sparse=24),
    "clean": Step(compacted, lambda t: t.maintenance.clean(versions=1), {**BOTH, **TWO}, {**BOTH, **TWO}),
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    made: dict[tuple[str, str], Path] = {}

    def template(name: str, version: str) -> Path:
        if (name, version) not in made:
            path = made[name, version] = tmp_path_factory.mktemp("logs") / "t"
            STEPS[name].prepare(begin(path, version))
        return made[name, version]

    return template


@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("name", STEPS)
def test_kill_at_every_change(name: str, version: str, templates: Callable[[str, str], Path], tmp_path: Path) -> None:
    step, outcomes = STEPS[name], set()
    fresh = partial(fresh_copy, templates(name, version), tmp_path / "t")
    for path in deaths(fresh, writes(step.run), ("after", "during"), step.sparse):
        rows = read(path)
        assert rows in (step.before, step.after)
        states = {(action, state) for _, action, state in timeline_of(path)}
        begun = ("restore", State.INFLIGHT) in states
        if name == "rollback":
            begun = bool(states & {("rollback", State.REQUESTED), ("rollback", State.INFLIGHT)})
        # A rollback or restore that has begun is finished; a write that has not ended is undone.
        wanted = step.after if begun else rows
        outcomes.add((rows == step.after, bool(pending_commits(path)), begun))
        table = Table.open(path)
        table.upsert(frame(NEXT))
        assert read(path) == {**wanted, **NEXT}
        assert not table.snapshot().timeline.pending()
        report = Table.open(path).maintenance.validate()
        assert report.ok, report
    assert len(outcomes) >= (1 if step.before == step.after else 2)
