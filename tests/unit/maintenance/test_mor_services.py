"""Services over log files: tables that Hudi 1.2.0 made, undone step by step, cleaned, restored and validated.

The states of a table are those that it has as of each of its commits, meta columns included, before anything is done.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from golden_tables import unpack_java_1_2
from lakedex import Table
from lakedex.codec.log_block import decode_command_block, decode_log_blocks
from lakedex.errors import InvalidInputError
from lakedex.layout.names import marker_name, parse_log_file_name
from lakedex.timeline.instant import State

TABLES = ("mor_v9", "mor_v6")
"""Insert, updates in log files, inserts beside them, deletes, a compaction and an update after it; of versions 9 and 6."""

Rows = dict[str, dict[str, Any]]


def rows(table: Table, **options: Any) -> Rows:
    """Rows with meta columns, by record key."""
    found = table.scan(meta_columns=True, **options).to_arrow().to_pylist()
    assert len({row["_hoodie_record_key"] for row in found}) == len(found)
    return {row["_hoodie_record_key"]: row for row in found}


def commits_of(table: Table) -> list[str]:
    found: list[str] = table.inspect.history()["commit_time"].to_pylist()[::-1]
    return found


def opened(name: str, path: Path) -> tuple[Table, list[str], dict[str, Rows]]:
    """A table, its commits and the state at each of them."""
    table = Table.open(unpack_java_1_2(name, path))
    if name == "mor_v9":
        table.maintenance.rollback(commits_of(table)[-1])
    commits = commits_of(table)
    return table, commits, {instant: rows(table, as_of=instant) for instant in commits}


def uncommit(table: Table, kind: str | None) -> str:
    """Let the newest commit's writer die right before it was complete, with markers of a kind or without any."""
    snapshot = table.snapshot()
    newest = snapshot.timeline.last_completed
    assert newest is not None
    folder = Path(snapshot.timeline.path)
    for stat in snapshot.timeline.commit_metadata(newest).all_stats() if kind else ():
        path = Path(snapshot.files.temp(newest.requested)) / stat.partition_path
        path.mkdir(parents=True, exist_ok=True)
        is_log = parse_log_file_name(stat.file_name) is not None
        (path / marker_name(stat.file_name, str(kind) if is_log else "CREATE")).touch()
    (folder / newest.file_name).unlink()
    for file in folder.glob(f"{newest.requested}.*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return newest.requested


def check(table: Table, expected: Rows) -> None:
    """The rows, whoever lists the files; and what the metadata table says of them."""
    again = Table.open(table.snapshot().files.base_path)
    assert rows(again) == expected
    report = again.maintenance.validate()
    assert report.ok, report


def files_of(table: Table) -> set[str]:
    """Data files in storage, relative to the table."""
    root = Path(table.snapshot().files.base_path)
    return {
        str(file.relative_to(root))
        for file in root.rglob("*")
        if ".hoodie" not in file.parts and (file.suffix == ".parquet" or ".log." in file.name)
    }


def listed(table: Table) -> set[str]:
    """Data files that the metadata table lists."""
    return {
        f"{path}/{name}".lstrip("/")
        for path, names in table.snapshot().listing().items()
        for name in names
        if not name.startswith(".hoodie")
    }


# ------------------------------------------------------------------------------------------------------- rollback


@pytest.mark.parametrize("name", TABLES)
def test_commits_are_rolled_back_newest_first(name: str, tmp_path: Path) -> None:
    """Delta commits, the compaction among them, and inserts into base files."""
    table, commits, states = opened(name, tmp_path)
    while len(commits) > 1:
        undone = commits.pop()
        planned = table.maintenance.rollback(undone, dry_run=True)
        assert planned.latest == table.maintenance.rollback(undone).latest == commits[-1]
        check(table, states[commits[-1]])
        assert listed(table) == files_of(table)


def test_version_6_takes_blocks_back_as_java_does(tmp_path: Path) -> None:
    """A command block in the next log file; both files are named in the rollback and listed (``RollbackHelperV1``)."""
    table, commits, states = opened("mor_v6", tmp_path)
    before = files_of(table)
    done = table.maintenance.rollback(commits[-1])
    added = files_of(table) - before
    assert len(added) == 2
    root = Path(table.snapshot().files.base_path)
    for path in added:
        (block,) = decode_log_blocks((root / path).read_bytes())
        command = decode_command_block(block)
        assert (command.instant, command.target_instant) == (done.instant, commits[-1])
        name = parse_log_file_name(path.rpartition("/")[2])
        assert name is not None
        assert (name.version, name.instant) == (2, commits[-2])
    timeline = table.snapshot().timeline
    (rollback,) = timeline.completed({"rollback"})
    metadata = timeline.rollback_metadata(rollback)
    sizes = {str(root / path): (root / path).stat().st_size for path in added}
    assert {path: size for logs in metadata.command_logs.values() for path, size in logs.items()} == sizes
    assert {path.rpartition("/")[2] for logs in metadata.failed_logs.values() for path in logs} == {
        path.rpartition("/")[2].replace(".log.2_", ".log.1_") for path in added
    }
    assert not any(metadata.deleted.values())
    check(table, states[commits[-2]])


@pytest.mark.parametrize("markers", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_a_delta_commit_whose_writer_died(name: str, markers: bool, tmp_path: Path) -> None:
    """The next writer undoes it, whether it left markers or not; readers never see it."""
    table, commits, states = opened(name, tmp_path)
    kind = ("APPEND" if name == "mor_v6" else "CREATE") if markers else None
    undone = uncommit(table, kind)
    assert rows(Table.open(table.snapshot().files.base_path)) == states[commits[-2]]
    table.maintenance.savepoint(commits[-2])  # Any writer will do.
    assert not table.snapshot().timeline.contains(undone)
    assert not any(f"_{undone}." in path for path in files_of(table))
    check(table, states[commits[-2]])
    assert listed(table) == files_of(table)


def test_a_marker_of_another_commit_deletes_nothing(tmp_path: Path) -> None:
    """From version 8 on a write has its own log files only."""
    table, commits, _ = opened("mor_v9", tmp_path)
    other = next(path for path in files_of(table) if f"_{commits[1]}.log" in path)
    undone = uncommit(table, "CREATE")
    partition, _, name = other.rpartition("/")
    (Path(table.snapshot().files.temp(undone)) / partition / marker_name(name, "CREATE")).touch()
    with pytest.raises(Exception, match=f"log files of {undone}"):
        table.maintenance.rollback(undone)
    assert other in files_of(table)


def begun(table: Table) -> str:
    """Begin the table's pending compaction, and die after its first base file."""
    snapshot = table.snapshot()
    (plan,) = snapshot.timeline.pending({"compaction"})
    folder = Path(snapshot.timeline.path)
    (folder / f"{plan.requested}.compaction.inflight").touch()
    os.utime(folder / f"{plan.requested}.compaction.inflight", (1_000_000_000, 1_000_000_000))
    operation = snapshot.timeline.compaction_plan(plan)[0]
    name = f"{operation.file_id}_0-0-0_{plan.requested}.parquet"
    marker = Path(snapshot.files.temp(plan.requested)) / operation.partition / marker_name(name, "CREATE")
    marker.parent.mkdir(parents=True)
    marker.touch()
    Path(snapshot.files.path(operation.partition, name)).write_bytes(b"half")
    return plan.requested


def test_a_compaction_that_died_becomes_a_plan_again(tmp_path: Path) -> None:
    table, commits, states = opened("mor_pend_v9", tmp_path)
    before = files_of(table)
    with pytest.raises(InvalidInputError, match="plan that nobody has begun"):
        table.maintenance.rollback(table.snapshot().timeline.pending({"compaction"})[0].requested)
    for undone in reversed(commits[2:]):
        table.maintenance.rollback(undone)
    with pytest.raises(InvalidInputError, match="is going to merge its file"):
        table.maintenance.rollback(commits[1])
    table.maintenance.savepoint(commits_of(table)[-1])
    kept = states[commits_of(table)[-1]]
    plan = begun(table)
    assert table.maintenance.rollback(plan, dry_run=True).files_deleted == 1
    assert table.maintenance.rollback(plan).files_deleted == 1
    (pending,) = table.snapshot().timeline.pending({"compaction"})
    assert (pending.requested, pending.state) == (plan, State.REQUESTED)
    assert files_of(table) < before
    check(table, kept)


# ---------------------------------------------------------------------------------------------- clean and archive


@pytest.mark.parametrize("rule", [{"commits": 1}, {"versions": 1}])
@pytest.mark.parametrize("name", TABLES)
def test_old_slices_go_with_all_their_log_files(name: str, rule: dict[str, int], tmp_path: Path) -> None:
    table, commits, states = opened(name, tmp_path)
    current = {file.relative_path for item in table.snapshot().slices() for file in item.files}
    planned = table.maintenance.clean(dry_run=True, **rule)
    done = table.maintenance.clean(**rule)
    assert done.partitions == planned.partitions
    assert files_of(table) == listed(table) == current
    check(table, states[commits[-1]])
    # The compaction is the earliest state whose slices are there.
    first = commits[-2]
    for instant in commits:
        if instant >= first:
            assert rows(table, as_of=instant) == states[instant]
        else:
            with pytest.raises(InvalidInputError, match=f"earliest instant that can be read is {first}"):
                table.scan(as_of=instant)
    with pytest.raises(InvalidInputError, match="the cleaner took"):
        table.changes(commits[0], commits[1])
    assert {k: v for k, v in states[commits[-1]].items() if v["_hoodie_commit_time"] > first} == {
        row["_hoodie_record_key"]: row for row in table.changes(first, meta_columns=True).to_arrow().to_pylist()
    }


def test_a_pending_compaction_keeps_what_it_merges(tmp_path: Path) -> None:
    table, commits, states = opened("mor_pend_v9", tmp_path)
    assert table.maintenance.clean(versions=1).instant is None
    check(table, states[commits[-1]])


@pytest.mark.parametrize("name", TABLES)
def test_a_savepoint_keeps_whole_slices_and_is_restored(name: str, tmp_path: Path) -> None:
    """Over the compaction and log files that came later; the savepoint is of a state in the middle of a slice."""
    table, commits, states = opened(name, tmp_path)
    saved = table.maintenance.savepoint(commits[2])
    table.maintenance.clean(versions=1)
    assert all(rows(table, as_of=instant) == states[instant] for instant in commits)
    planned = table.maintenance.restore(saved, dry_run=True)
    assert planned.undone == tuple(reversed(commits[3:]))
    assert table.maintenance.restore(saved).undone == planned.undone
    check(table, states[saved])
    assert listed(table) == files_of(table)
    assert commits_of(table) == commits[:3]


def test_a_restore_takes_later_plans_away(tmp_path: Path) -> None:
    table, commits, states = opened("mor_pend_v9", tmp_path)
    saved = table.maintenance.savepoint(commits[1])
    begun(table)
    result = table.maintenance.restore(saved)
    assert len(result.undone) == 3
    assert not table.snapshot().timeline.pending()
    check(table, states[saved])
    assert listed(table) == files_of(table)


# ------------------------------------------------------------------------------------- metadata table, validation


@pytest.mark.parametrize("name", [*TABLES, "mor_pend_v9"])
def test_a_rebuilt_metadata_table_has_log_files(name: str, tmp_path: Path) -> None:
    """Their listing, also that of a slice which a compaction of version 6 has opened, and their stats."""
    table, commits, states = opened(name, tmp_path)
    known = listed(table)
    table.maintenance.rebuild_metadata()
    table.indexes.create("column_stats")
    assert listed(table) == files_of(table) == known
    check(table, states[commits[-1]])
    logs = {log.name for item in table.snapshot().slices() for log in item.log_files}
    stats = table.snapshot().metadata.scan("column_stats").values()
    assert logs <= {record["ColumnStatsMetadata"]["fileName"] for record in stats}
    for row in states[commits[-1]].values():
        where = f"fare = {row['fare']} and rider = '{row['rider']}'"
        found = table.scan(where).to_arrow().to_pylist()
        assert row["_hoodie_record_key"] in [match["id"] for match in found]
    # A rollback takes the log files' stats with them, and partitions get bounds of what is left.
    table.maintenance.rollback(commits[-1])
    check(table, states[commits[-2]])
    table.maintenance.clean(versions=1)
    check(table, states[commits[-2]])


def test_partial_updates_have_stats_of_their_own_columns(tmp_path: Path) -> None:
    table = Table.open(unpack_java_1_2("mor_v9", tmp_path))
    table.indexes.create("column_stats")
    assert table.maintenance.validate().ok
    columns: dict[str, set[str]] = {}
    for record in table.snapshot().metadata.scan("column_stats").values():
        found = record["ColumnStatsMetadata"]
        columns.setdefault(found["fileName"], set()).add(found["columnName"])
    partial = {log.name for item in table.snapshot().slices() for log in item.log_files[-1:]}
    assert {name for name, own in columns.items() if "rider" not in own} == partial


@pytest.mark.parametrize("name", TABLES)
def test_a_log_file_that_is_lost_is_found(name: str, tmp_path: Path) -> None:
    """Whether the metadata table lists it or not; one of an older slice is none of the table's rows."""
    table, _, _ = opened(name, tmp_path)
    root = Path(table.snapshot().files.base_path)
    (current,) = {log.name for item in table.snapshot().slices(["sf"]) for log in item.log_files}
    old = next(path for path in sorted(files_of(table)) if path.startswith("sf/.") and not path.endswith(current))
    (root / old).unlink()
    (root / "sf" / current).unlink()
    found = {(one.kind, one.file) for one in table.maintenance.validate().differences}
    assert found == {("lost file", current), ("file gone", old.removeprefix("sf/"))}
    repaired = table.maintenance.repair()
    assert [(one.kind, one.file) for one in repaired.left] == [("lost file", current)]


# ------------------------------------------------------------------------------------------------------- changes


@pytest.mark.parametrize("name", [*TABLES, "mor_pend_v9"])
def test_changes_are_the_rows_of_the_state_at_their_end(name: str, tmp_path: Path) -> None:
    table, commits, states = opened(name, tmp_path)
    for number, since in enumerate(commits):
        for until in (*commits[number + 1 :], None):
            end = until or commits[-1]
            expected = {k: v for k, v in states[end].items() if since < v["_hoodie_commit_time"] <= end}
            found = table.changes(since, until, meta_columns=True).to_arrow().to_pylist()
            assert {row["_hoodie_record_key"]: row for row in found} == expected
    found = table.changes("earliest", commits[2], meta_columns=True).to_arrow().to_pylist()
    assert {row["_hoodie_record_key"]: row for row in found} == states[commits[2]]
