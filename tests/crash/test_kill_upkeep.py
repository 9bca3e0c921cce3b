"""``kill -9`` at every change of a compaction, a cleaning and an archival: any reader is right, the next writer mends.

Rows that were never committed are never seen, and every listed file exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.layout.names import parse_base_file_name
from lakedex.maintenance import metadata_cleaning
from lakedex.maintenance.schedule import clean_metadata_if_due
from lakedex.options import parse_options
from lakedex.timeline.archived import read_history
from limits import Limits
from table_checks import NEXT, START, Rows, check_table, deaths, frame, fresh_copy, new_table, read, writes

pytestmark = pytest.mark.heavy

OFF = {
    "hoodie.metadata.compact.max.delta.commits": "99",
    "hoodie.archive.automatic": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
}
TIGHT = {
    "hoodie.archive.automatic": "true",
    "hoodie.metadata.compact.max.delta.commits": "2",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.timeline.compaction.batch.size": "2",
}
STILL = {**TIGHT, "hoodie.archive.automatic": "false"}


@pytest.fixture(autouse=True)
def _few_commits_are_many(limits: Limits) -> None:
    limits(metadata_cleaning, LEAST_COMMITS=2)


def commits(path: Path, count: int, options: dict[str, str]) -> None:
    """START, one key after the other written again."""
    table = new_table(path, START, OFF)
    table = Table.open(path, options={**OFF, **options})
    for key in list(START)[:count]:
        table.upsert(frame({key: START[key]}))


def archivable(path: Path) -> None:
    """Archived once already, so that the next archival merges files of the history."""
    commits(path, 6, STILL)
    table = Table.open(path, options={**OFF, **TIGHT})
    table.maintenance.archive()
    commits_of(table, 4)


def commits_of(table: Table, count: int) -> None:
    writer = Table.open(table.path, options={**OFF, **STILL})
    for key in list(START)[:count]:
        writer.upsert(frame({key: START[key]}))


def cleanable(path: Path) -> None:
    """Compacted several times, and nothing cleaned yet; cleaning does not follow on the heels of a compaction."""
    metadata_cleaning.LEAST_COMMITS = 50
    commits(path, 8, STILL)
    Table.open(path, options=OFF).upsert(frame({"k0": START["k0"]}))
    metadata_cleaning.LEAST_COMMITS = 2


def clean(table: Table) -> object:
    """What runs after a write, if it is due."""
    return clean_metadata_if_due(table.context, parse_options(STILL), table.snapshot())


@dataclass(frozen=True)
class Case:
    """What is done to which table."""

    prepare: Callable[[Path], object]
    run: Callable[[Table], object]
    sparse: int


CASES = {
    "compaction": Case(lambda path: commits(path, 3, {}), lambda t: t.maintenance.compact_metadata(), 6),
    "archival": Case(archivable, lambda t: t.maintenance.archive(options=TIGHT), 12),
    "cleaning": Case(cleanable, clean, 8),
}


@pytest.mark.parametrize("name", CASES)
def test_kill(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    template, path = tmp_path / "template", tmp_path / "table"
    case.prepare(template)
    count = 0
    for dead in deaths(lambda: fresh_copy(template, path), writes(case.run), sparse=case.sparse):
        count += 1
        assert read(dead) == START
        rows: Rows = {**START, **NEXT}
        result = Table.open(dead, options={**OFF, **TIGHT}).upsert(frame(NEXT))
        assert not [note for note in result.notes if "after the write failed" in note], result.notes
        check_table(dead, rows, index_builds=True)
        _check_upkeep(dead)
        Table.open(dead, options={**OFF, **TIGHT}).upsert(frame({"k1": START["k1"]}))
        assert read(dead) == rows
        _check_upkeep(dead)
    assert count > 5


def _check_upkeep(path: Path) -> None:
    """No half-done action, no base file of an unfinished compaction, nothing archived twice and nothing lost."""
    snapshot = Table.open(path).snapshot()
    own = snapshot.metadata.timeline
    assert not own.pending()
    for folder in snapshot.metadata.folders():
        bases = [parse_base_file_name(entry.name) for entry in (path / ".hoodie/metadata" / folder).iterdir()]
        per_slice = Counter((base.file_id, base.instant) for base in bases if base is not None)
        assert set(per_slice.values()) <= {1}
        assert all(own.is_committed(instant) for _, instant in per_slice)
    for timeline, base in ((snapshot.timeline, path), (own, path / ".hoodie/metadata")):
        archived = [item.requested for item in read_history(snapshot.files.storage, f"{base}/.hoodie/timeline/history")]
        active = {instant.requested for instant in timeline.completed()}
        assert not active & set(archived)
        assert sorted(set(archived)) == sorted(archived)
    whole = Table.open(path).inspect.history(archived=True).num_rows
    assert whole == len(set(Table.open(path).inspect.history(archived=True).column("commit_time").to_pylist()))


def test_the_cases_do_what_they_say(tmp_path: Path) -> None:
    """Each of them has its action in it: else the deaths above are those of something else."""
    for name, case in CASES.items():
        case.prepare(tmp_path / name)
        before = Table.open(tmp_path / name).snapshot()
        case.run(Table.open(tmp_path / name))
        after = Table.open(tmp_path / name).snapshot()
        seen = {"compaction": "commit", "cleaning": "clean"}.get(name)
        if seen is not None:
            assert len(after.metadata.timeline.completed({seen})) > len(before.metadata.timeline.completed({seen}))
        else:
            assert len(after.timeline.instants) < len(before.timeline.instants)
            levels = [p.name.rsplit("_", 1)[1] for p in (tmp_path / name).glob(".hoodie/timeline/history/*.parquet")]
            assert "1.parquet" in levels
