"""Archival: what goes and what has to stay, and a table that lives on with a short timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from golden_tables import VERSION_6, unpack
from lakedex import Table
from lakedex.codec.avro import write_container
from lakedex.errors import InvalidInputError, OptionError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.maintenance.archive import archive_data, data_to_archive, metadata_to_archive
from lakedex.options import WriteOptions, parse_options
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS, Timeline, create_inflight, create_requested
from lakedex.timeline.archived import read_archive_log, read_history
from table_checks import THOROUGH
from table_kit import make, own, rows

STORE = LocalStorage()
OFF = {
    "hoodie.archive.automatic": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
}
SMALL = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "1"}
OPTIONS = parse_options(SMALL)


def with_bounds(*, clean: int, least: int | None = None, most: int | None = None) -> WriteOptions:
    """``OPTIONS`` with other bounds, also those that ``parse_options`` refuses."""
    archive = OPTIONS.archive
    bounds = replace(archive, min_commits=least or archive.min_commits, max_commits=most or archive.max_commits)
    return replace(OPTIONS, clean=replace(OPTIONS.clean, commits=clean), archive=bounds)


def state(path: Path | str) -> Snapshot:
    return Snapshot.load(TableFiles(STORE, str(path)))


def filled(path: Path, commits: int, options: dict[str, str] | None = None) -> Table:
    table = make(path, options={**OFF, **(options or {})})
    for number in range(commits):
        table.upsert(rows((f"k{number % 4}", "a", number, number)))
    return table


def instants(path: Path) -> list[str]:
    return [i.requested for i in state(path).timeline.completed({"commit"})]


def going(path: Path, options: Any = OPTIONS) -> list[str]:
    return [i.requested for i in data_to_archive(state(path), options)]


def _made(path: Path) -> Table:
    """Eight commits, all of them in a compaction of the metadata table."""
    table = filled(path, 8)
    table.maintenance.compact_metadata()
    return table


@pytest.fixture
def compacted(once: Callable[..., Table], tmp_path: Path) -> Path:
    return Path(once(_made, tmp_path).path)


def test_it_goes_down_to_the_least(compacted: Path) -> None:
    commits = instants(compacted)
    assert going(compacted) == commits[:5]
    assert going(compacted, parse_options({**SMALL, "hoodie.keep.max.commits": "8"})) == []
    result = Table.open(compacted, options=SMALL).maintenance.archive()
    assert result.instants == tuple(commits[:5])
    assert "5 instants" in str(result)
    assert instants(compacted) == commits[5:]
    names = [
        entry.name for entry in (compacted / ".hoodie/timeline").iterdir() if entry.name.startswith(tuple(commits[:5]))
    ]
    assert names == []
    archived = list(read_history(STORE, f"{compacted}/.hoodie/timeline/history"))
    assert [item.requested for item in archived] == commits[:5]
    assert all(item.metadata and item.action == "commit" and item.completed > item.requested for item in archived)
    assert "nothing is due" in str(Table.open(compacted, options=SMALL).maintenance.archive())


def test_nothing_goes_before_the_metadata_table_was_compacted(tmp_path: Path) -> None:
    table = filled(tmp_path, 6)
    assert going(tmp_path) == []
    table.maintenance.compact_metadata()
    table.upsert(rows(("k9", "a", 1, 1)), options=OFF)
    assert going(tmp_path) == instants(tmp_path)[:4], "six are compacted, three of seven stay"


def test_what_completed_after_the_compaction_stays(compacted: Path) -> None:
    table = Table.open(compacted, options=OFF)
    commits = instants(compacted)
    for number in range(4):
        table.upsert(rows((f"n{number}", "a", 1, 1)))
    assert going(compacted) == commits, "twelve less three would be nine, but the ninth is in no base file"


def test_nothing_goes_past_a_pending_write(compacted: Path) -> None:
    commits = instants(compacted)
    pending = str(int(commits[3]) + 1)
    create_inflight(state(compacted).timeline, create_requested(state(compacted).timeline, pending, "commit"))
    wide = with_bounds(clean=50)
    assert going(compacted, wide) == commits[:3], "the last commit before it stays, so that the timeline begins there"
    assert going(compacted) == commits[:2], "and so does what the cleaner may still look at"


def test_what_completed_since_a_pending_write_began_stays(compacted: Path) -> None:
    """Its conflict check has to find a commit that was requested before it and completed after."""
    timeline = state(compacted).timeline
    commits = timeline.completed({"commit"})
    pending = str(int(commits[5].requested) + 1)
    create_inflight(timeline, create_requested(timeline, pending, "commit"))
    wide = with_bounds(clean=50)
    assert going(compacted, wide) == instants(compacted)[:5]
    early, folder = commits[2], compacted / ".hoodie/timeline"
    (folder / early.file_name).rename(folder / f"{early.requested}_{int(pending) + 1}.commit")
    assert going(compacted, wide) == instants(compacted)[:2]


def savepoint(path: Path, instant: str) -> None:
    body = {"savepointedBy": "u", "savepointedAt": 1, "comments": "", "partitionMetadata": {}, "version": 1}
    name = f"{instant}_{int(instant) + 1}.savepoint"
    (path / ".hoodie/timeline" / name).write_bytes(write_container("HoodieSavepointMetadata", body))


def test_nothing_goes_past_a_savepoint(compacted: Path) -> None:
    commits = instants(compacted)
    savepoint(compacted, commits[2])
    assert going(compacted) == commits[:2]


def test_beyond_a_savepoint_holes_are_committed(compacted: Path) -> None:
    """``hoodie.archive.beyond.savepoint``: the savepointed commit stays, and files of those around it still count."""
    commits = instants(compacted)
    content = own(Table.open(compacted))
    savepoint(compacted, commits[2])
    beyond = {**SMALL, "hoodie.archive.beyond.savepoint": "true"}
    assert going(compacted, parse_options(beyond)) == [*commits[:2], *commits[3:6]]
    Table.open(compacted, options=beyond).maintenance.archive()
    timeline = state(compacted).timeline
    assert [i.requested for i in timeline.completed({"commit"})] == [commits[2], *commits[6:]]
    assert timeline.first_active is not None
    assert timeline.first_active.requested == commits[6]
    assert all(timeline.is_committed(instant) for instant in commits)
    assert not timeline.is_committed(str(int(commits[6]) + 1))
    assert own(Table.open(compacted)) == content


def test_a_restore_that_stays_makes_no_hole(compacted: Path) -> None:
    """Commits after it are archived while it stays: their files count all the same."""
    commits = instants(compacted)
    content = own(Table.open(compacted))
    when = str(int(commits[1]) + 1)
    (compacted / ".hoodie/timeline" / f"{when}_{int(when) + 1}.restore").write_bytes(b"not read")
    Table.open(compacted, options=SMALL).maintenance.archive()
    timeline = Timeline.load(TableFiles(STORE, str(compacted)))
    assert timeline.instants[0].action == "restore"
    assert all(timeline.is_committed(instant) for instant in commits)
    assert own(Table.open(compacted)) == content


def clean(path: Path, earliest: str) -> str:
    """A completed clean with a plan, that deletes nothing."""
    when = str(int(instants(path)[-1]) + 1)
    plan = {
        "earliestInstantToRetain": {"timestamp": earliest, "action": "commit", "state": "COMPLETED"},
        "policy": "KEEP_LATEST_COMMITS",
        "filePathsToBeDeletedPerPartition": {},
        "extraMetadata": {},
    }
    folder = path / ".hoodie/timeline"
    (folder / f"{when}.clean.requested").write_bytes(write_container("HoodieCleanerPlan", plan))
    (folder / f"{when}_{int(when) + 1}.clean").write_bytes(b"not read")
    return when


def test_replaced_files_have_to_be_cleaned_first(tmp_path: Path) -> None:
    """Without its replace commit a replaced file would be back."""
    table = filled(tmp_path, 2)
    table.insert_overwrite(rows(("r1", "a", 5, 5)))
    replacing = state(tmp_path).timeline.completed({"replacecommit"})[0].requested
    for number in range(5):
        table.upsert(rows((f"k{number}", "a", number, number)))
    table.maintenance.compact_metadata()
    assert going(tmp_path) == instants(tmp_path)[:2]
    clean(tmp_path, instants(tmp_path)[-1])
    assert going(tmp_path) == instants(tmp_path)[:2], "it says so, but the files are there"
    table.maintenance.clean(commits=1)
    assert replacing in going(tmp_path)


def test_cleans_and_rollbacks_go_along(compacted: Path) -> None:
    commits = instants(compacted)
    early, late = str(int(commits[2]) + 1), str(int(commits[6]) + 1)
    for when in (early, late):
        (compacted / ".hoodie/timeline" / f"{when}.rollback.requested").write_bytes(b"plan")
        (compacted / ".hoodie/timeline" / f"{when}.rollback.inflight").write_bytes(b"")
        (compacted / ".hoodie/timeline" / f"{when}_{int(when) + 1}.rollback").write_bytes(b"done")
    result = Table.open(compacted, options=SMALL).maintenance.archive()
    assert early in result.instants
    assert late not in result.instants
    (item,) = (i for i in read_history(STORE, f"{compacted}/.hoodie/timeline/history") if i.action == "rollback")
    assert (item.requested, item.metadata, item.plan) == (early, b"done", None)


def test_what_the_cleaner_looks_at_is_kept() -> None:
    """``HoodieWriteConfig.validate``, and ``ArchivalUtils`` where only one option is given."""
    with pytest.raises(OptionError, match="keep.max.commits"):
        parse_options({"hoodie.keep.min.commits": "30"})
    with pytest.raises(OptionError, match="must be greater than hoodie.clean.commits.retained"):
        parse_options({"hoodie.keep.min.commits": "5", "hoodie.clean.commits.retained": "5"})
    assert parse_options({"hoodie.keep.min.commits": "5"}).archive.min_commits == 5


def test_the_least_adapts_to_the_cleaner(compacted: Path) -> None:
    less = parse_options({"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "5"})
    assert len(instants(compacted)) == 8
    assert going(compacted, less) == instants(compacted)[:5], "no commit is out of the cleaner's window of ten yet"
    # Six commits retained by the cleaner ask for seven here, and for two more before anything goes.
    assert going(compacted, with_bounds(clean=6, least=3, most=5)) == []


def test_the_metadata_timeline_stays_as_long_as_the_datas(compacted: Path) -> None:
    """``HoodieTableMetadataUtil.processRollbackMetadata`` looks there for what was committed."""
    table = Table.open(compacted, options={**SMALL, "hoodie.archive.automatic": "false"})
    for number in range(20):
        table.upsert(rows((f"k{number % 4}", "a", number, number)))
    first = instants(compacted)[0]
    assert [i for i in metadata_to_archive(state(compacted), OPTIONS) if i.requested >= first] == []
    table.maintenance.archive()
    assert {i.requested for i in state(compacted).timeline.completed({"commit"})} <= {
        i.requested for i in state(compacted).metadata.timeline.completed({"deltacommit"})
    }


COMMITS = 300 if THOROUGH else 70


@pytest.mark.heavy
def test_a_table_that_lives_on(tmp_path: Path) -> None:
    """Many small commits: the timelines stay short, a write costs the same, and every state that is there reads right.

    R37: the metadata table keeps its size, and what a write reads does not grow with the table's age.
    """
    options = {
        "hoodie.metadata.compact.max.delta.commits": "5",
        "hoodie.keep.min.commits": "6",
        "hoodie.keep.max.commits": "9",
        "hoodie.clean.commits.retained": "3",
    }
    table = make(tmp_path, partition_by=["city"], ordering_by="ts", options=options)
    storage = table.context.files.storage
    states: dict[str, list[Any]] = {}
    held: dict[str, tuple[Any, ...]] = {}
    costs: list[int] = []
    files: list[int] = []
    for number in range(COMMITS):
        row = (f"k{number % 7}", "ab"[number % 2], number, number)
        held[row[0] + row[1]] = row
        before = storage.counted.requests
        result = table.upsert(rows(row))
        costs.append(storage.counted.requests - before)
        assert not [note for note in result.notes if not note.startswith("cleaned ")], result.notes
        states[str(result.instant)] = sorted(held.values(), key=repr)
        hidden = [
            *(tmp_path / ".hoodie/timeline").glob("*"),
            *(tmp_path / ".hoodie/metadata").glob(".hoodie/timeline/*"),
        ]
        files.append(len(hidden))
    # Nine commits of three files and as many cleans, 25 of the metadata table (its cleaning wants 22), and cleans there.
    assert max(files) < 2 * 3 * (9 + 1) + 3 * (25 + 5) + 3 * 8
    assert median(costs[-25:]) <= median(costs[20:45]) + 8
    # Ten files of the history become one now and then, which the first writes do not see.
    assert max(costs[-25:]) <= max(costs[20:45]) + 60
    fresh = Table.open(tmp_path)
    active = [str(time) for time in fresh.inspect.history().column("commit_time").to_pylist()]
    assert len(active) <= 10
    assert list(reversed(active)) == list(states)[-len(active) :]
    for age, instant in enumerate(active):
        try:
            found = own(fresh.scan(as_of=instant).to_arrow())
        except InvalidInputError as error:
            message = str(error)
        else:
            assert found == states[instant]
            continue
        assert age > 3, "a commit that the cleaner has to keep"
        assert "the cleaner took" in message
    whole = fresh.inspect.history(archived=True).column("commit_time").to_pylist()
    assert list(reversed(whole)) == list(states)
    assert fresh.inspect.history(12, archived=True).num_rows == 12
    assert fresh.indexes.validate("column_stats").ok
    assert fresh.indexes.validate("bloom_filters").ok
    history = list((tmp_path / ".hoodie/timeline/history").glob("*.parquet"))
    assert len(history) < 25


class _Held:
    """A lock that is held."""

    def check(self) -> None:
        """Still ours."""


OF_ONE_COMMIT = ("v6_empty", "v6_simplekeygen_hivestyle_no_metafields")
"""Nothing of these can go: a table keeps its last commit."""


@pytest.mark.parametrize("name", [name for name in VERSION_6 if name not in OF_ONE_COMMIT])
def test_tables_of_version_6_get_their_own_archive(tmp_path: Path, name: str) -> None:
    """Instants that Java 0.15 wrote, with JSON bodies, become entries of its archive; every state is one."""
    path = unpack(name, tmp_path)
    before = state(path)
    content = own(Table.open(path))
    few = with_bounds(clean=9, least=1, most=1)
    going = archive_data(before, few, _Held())  # type: ignore[arg-type]
    assert going
    left = state(path).timeline.instants
    assert len(left) == len(before.timeline.instants) - len(going)
    entries = list(read_archive_log(STORE, before.history_path))
    assert [(e["commitTime"], e["actionState"]) for e in entries] == [
        (instant.requested, kind) for instant in going for kind in ("REQUESTED", "INFLIGHT", "COMPLETED")
    ]
    assert all(e["hoodieCommitMetadata"]["partitionToWriteStats"] for e in entries if e["actionState"] == "COMPLETED")
    assert own(Table.open(path)) == content
    whole = Table.open(path).inspect.history(archived=True).column("commit_time").to_pylist()
    assert list(reversed(whole)) == [i.requested for i in before.timeline.completed(WRITE_ACTIONS)]
