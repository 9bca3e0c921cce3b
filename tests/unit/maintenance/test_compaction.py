"""Compaction of merge-on-read tables: rows stay as they are, plans are Hudi's, and a run that fails leaves the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import MERGE_ON_READ, unpack, unpack_java_1_2
from lakedex import Table
from lakedex.errors import CommitConflictError, CommitError, CorruptFileError, InvalidInputError, LakedexError
from lakedex.io.liveness import Heartbeat
from lakedex.maintenance.compaction import compact_if_due
from lakedex.maintenance.compaction_plan import compaction_due, plan_operations, planned_slices
from lakedex.options import CompactionOptions, WriteOptions, parse_options
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.instant import State, instant_to_epoch_ms
from lakedex.timeline.service_metadata import CompactionOperation, encode_compaction_plan
from lakedex.types import FILE_NAME, RECORD_KEY
from mor_kit import in_place
from seams import ANNOUNCED, meanwhile
from table_kit import make, picture, rows

JAVA_1_2 = ["bucket_consistent", "mor_pend_v9", "mor_soft_delete", "mor_v6"]
NOT_WRITTEN = {"mor_v8_trips_8i3u1d", "mor_v9_nonpartitioned_rollback", "mor_v9_timebasedkeygen_nonhivestyle"}
PLANNED = "20261129073449099"
"""The plan that Java left pending in ``mor_pend_v9``."""


def opened(name: str, path: Path) -> Table:
    return Table.open((unpack_java_1_2 if name in [*JAVA_1_2, "mor_v9"] else unpack)(name, path))


def rows_of(table: Table, **scan: Any) -> list[dict[str, Any]]:
    """Rows with meta columns but for the file's name, by key."""
    found = (
        Table.open(table.path)
        .scan(scan.pop("where", None), meta_columns=True, **scan)
        .to_arrow()
        .drop_columns([FILE_NAME])
        .to_pylist()
    )
    return sorted(found, key=lambda row: str(row[RECORD_KEY]))


def logs_of(table: Table) -> int:
    return sum(len(item.log_files) for item in Table.open(table.path).snapshot().slices())


def pending(table: Table) -> list[tuple[str, State]]:
    timeline = Table.open(table.path).snapshot().timeline
    return [(i.requested, i.state) for i in timeline.pending({"compaction"})]


@pytest.mark.parametrize("name", sorted({*JAVA_1_2, *MERGE_ON_READ} - NOT_WRITTEN))
def test_rows_stay_as_they_are(name: str, tmp_path: Path) -> None:
    table = opened(name, tmp_path)
    before, logs = rows_of(table), logs_of(table)
    history = table.inspect.history()["commit_time"].to_pylist()
    earlier = {instant: rows_of(table, as_of=instant) for instant in history[1:3]}
    done = table.maintenance.compact()
    assert bool(done.instants) == bool(logs)
    assert logs_of(table) == 0
    assert pending(table) == []
    assert rows_of(table) == rows_of(table, query_type="read_optimized") == before
    assert {instant: rows_of(table, as_of=instant) for instant in earlier} == earlier
    files = {row[FILE_NAME] for row in Table.open(table.path).scan(meta_columns=True).to_arrow().to_pylist()}
    assert files <= {item.name for item in Table.open(table.path).snapshot().slices()}
    assert Table.open(table.path).maintenance.validate().ok
    assert not list(Path(table.path, ".hoodie/.temp").glob("*"))
    assert table.maintenance.compact().instants == ()


@pytest.mark.parametrize("name", ["mor_v6", "mor_v9"])
def test_a_base_file_is_what_java_made_of_the_same_plan(name: str, tmp_path: Path) -> None:
    """Rows in their order, and the numbers of its write stats."""
    snapshot = opened(name, tmp_path).snapshot()
    (done,) = snapshot.timeline.completed({"commit"})
    plan = snapshot.timeline.compaction_plan(replace(done, action="compaction"))
    stats = {stat.file_id: stat for stat in snapshot.timeline.commit_metadata(done).all_stats()}
    for item in planned_slices(snapshot, done, plan):
        rows, counts = in_place(snapshot.files, item, MergeSettings.of(snapshot.at(done.requested)))
        theirs = stats[item.file_id]
        assert rows.drop_columns([FILE_NAME]).equals(
            pq.read_table(snapshot.files.path(theirs.path))
            .drop_columns([FILE_NAME])
            .cast(rows.drop_columns([FILE_NAME]).schema)
        )
        ours = {
            "numWrites": rows.num_rows,
            "numUpdateWrites": counts.updated,
            "numDeletes": counts.deleted,
            "numInserts": counts.inserted,
            "totalLogRecords": counts.records,
            "totalLogBlocks": counts.blocks,
            "totalLogFilesCompacted": len(item.log_files),
            "totalLogSizeCompacted": counts.bytes,
            "totalUpdatedRecordsCompacted": counts.keys,
        }
        assert ours == {name: theirs.raw[name] for name in ours}
        assert theirs.prev_commit == item.base_instant


def test_a_plan_is_java_s(tmp_path: Path) -> None:
    table = opened("mor_pend_v9", tmp_path)
    snapshot = table.snapshot()
    (instant,) = snapshot.timeline.pending({"compaction"})
    theirs = snapshot.timeline.compaction_plan(instant)
    assert plan_operations(snapshot, "9" * 17, 1) == ()  # All groups with log files are in it.
    table.maintenance.unschedule_compaction(PLANNED)
    assert pending(table) == []
    ours = plan_operations(Table.open(table.path).snapshot(), PLANNED, 1)
    assert sorted(ours, key=str) == sorted(theirs, key=str)
    assert {o.file_id: o.metrics for o in ours} == {o.file_id: o.metrics for o in theirs}
    sizes = [o.metrics["TOTAL_LOG_FILES_SIZE"] for o in ours]
    assert sizes == sorted(sizes, reverse=True)


def test_java_s_plan_is_run_beside_later_writes(tmp_path: Path) -> None:
    """Later log files stay, in the new slices."""
    table = opened("mor_pend_v9", tmp_path)
    before = rows_of(table)
    done = table.maintenance.compact(instant=PLANNED)
    assert (done.instants, done.found, done.file_groups, done.log_files) == ((PLANNED,), (PLANNED,), 2, 2)
    slices = [item for item in Table.open(table.path).snapshot().slices() if item.log_files]
    assert [len(item.log_files) for item in slices] == [2, 1]
    assert {item.base_instant for item in slices} == {PLANNED}
    assert rows_of(table) == before
    assert Table.open(table.path).maintenance.validate().ok
    with pytest.raises(InvalidInputError, match="no pending compaction"):
        table.maintenance.compact(instant=PLANNED)


def test_planning_only_and_by_parts(tmp_path: Path) -> None:
    table = opened("mor_v6", tmp_path)
    before = rows_of(table)
    planned = table.maintenance.compact(plan_only=True, partitions=["sf"])
    assert (planned.planned_only, planned.file_groups, planned.log_files) == (True, 1, 1)
    assert "planned: 1 log file of 1 file group" in str(planned)
    assert pending(table) == [(planned.instants[0], State.REQUESTED)]
    assert rows_of(table) == before
    other = table.maintenance.compact(plan_only=True)
    assert other.file_groups == 1
    assert other.instant == other.instants[0]
    assert table.maintenance.compact(plan_only=True).instant is None
    done = table.maintenance.compact()
    assert done.instants == done.found == (*planned.instants, *other.instants)
    assert rows_of(table) == before
    bounded = opened("bucket_consistent", tmp_path / "buckets")
    assert bounded.maintenance.compact(target_io=1).file_groups == 1
    assert bounded.maintenance.compact().file_groups == 6


def test_bitmaps_cover_what_was_compacted(tmp_path: Path) -> None:
    table = opened("mor_v6", tmp_path)
    table.indexes.create("bitmap", ["city", "rider"], name="bits")
    table.maintenance.compact()
    table = Table.open(table.path)
    (stats,) = [table.indexes.stats("bits")]
    assert (stats.files_covered, stats.files_uncovered) == (3, 0)
    assert table.maintenance.validate().ok
    city = table.scan("city = 'sf'")
    assert city.to_arrow().num_rows == table.scan("city = 'sf'", use_indexes=False).to_arrow().num_rows


def instant_at(table: Table, state: State) -> Path:
    return Path(table.path, ".hoodie/timeline", f"{PLANNED}.compaction.{state.name.lower()}")


def test_a_run_of_somebody_else(tmp_path: Path) -> None:
    """One that lives is left alone, one that died is undone first."""
    table = opened("mor_pend_v9", tmp_path)
    before = rows_of(table)
    instant_at(table, State.INFLIGHT).touch()
    with Heartbeat(table.context.files, PLANNED):
        shown = picture(tmp_path)
        with pytest.raises(CommitConflictError, match="is being run by another process"):
            table.maintenance.compact()
        with pytest.raises(CommitConflictError, match="is being run"):
            table.maintenance.unschedule_compaction(PLANNED)
        assert picture(tmp_path) == shown
    (base,) = [item.base_file for item in table.snapshot().slices(["sf"])]
    assert base is not None
    name = f"{base.file_id}_9-9-9_{PLANNED}.parquet"
    left = Path(table.path, "sf", name)
    left.write_bytes(b"PAR1")
    marker = Path(table.path, ".hoodie/.temp", PLANNED, "sf", f"{name}.marker.CREATE")
    marker.parent.mkdir(parents=True)
    marker.touch()
    done = table.maintenance.compact(options={"hoodie.clean.failed.writes.policy": "EAGER"})
    assert PLANNED in done.found
    assert not left.exists()
    assert rows_of(table) == before
    assert [i.action for i in Table.open(table.path).snapshot().timeline.completed({"rollback"})] == ["rollback"]


@pytest.mark.parametrize("only", [("close_output", ".parquet"), ("create", ".commit"), ("create", ".log.")])
def test_a_run_that_fails_leaves_the_plan(only: tuple[str, str], tmp_path: Path) -> None:
    table = opened("mor_pend_v9", tmp_path)
    before, files = rows_of(table), set(tmp_path.rglob("*.parquet"))
    storage = FaultyStorage(Faults(1, "before", error=OSError(28, "disk full"), only=only))
    with pytest.raises((LakedexError, OSError), match="disk full"):
        open_table(Path(table.path), storage).maintenance.compact()
    assert pending(table) == [(PLANNED, State.REQUESTED)]
    assert rows_of(table) == before
    assert set(tmp_path.rglob("*.parquet")) == files
    assert Table.open(table.path).maintenance.validate().ok
    table.maintenance.compact()
    assert rows_of(table) == before


def edited(change: Callable[[list[CompactionOperation]], object]) -> Callable[[Table], None]:
    def edit(table: Table) -> None:
        snapshot = table.snapshot()
        operations = list(snapshot.timeline.compaction_plan(snapshot.timeline.pending({"compaction"})[0]))
        change(operations)
        instant_at(table, State.REQUESTED).write_bytes(encode_compaction_plan(operations))

    return edit


def changed(**values: Any) -> Callable[[list[CompactionOperation]], object]:
    return lambda found: found.__setitem__(0, replace(found[0], **values))


HOSTILE: dict[str, tuple[Callable[[Table], None], str]] = {
    "damaged": (lambda table: instant_at(table, State.REQUESTED).write_bytes(b"Obj"), "compaction.requested"),
    "a missing log file": (edited(changed(logs=(".g_20261129073445412.log.1_1-1-1",))), "does not exist"),
    "no log file": (edited(changed(logs=())), "leaves out"),
    "a group twice": (edited(lambda found: found.append(found[0])), "twice"),
    "another group": (edited(changed(file_id="f-0")), "of the group f-0"),
    "outside": (edited(changed(partition="../elsewhere")), "below the table"),
    "no data file": (edited(changed(base="hoodie.properties")), "base or log file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_plans_that_cannot_be_run_are_refused(case: str, tmp_path: Path) -> None:
    table = opened("mor_pend_v9", tmp_path)
    change, message = HOSTILE[case]
    change(table)
    before = picture(tmp_path)
    with pytest.raises((CorruptFileError, CommitError), match=message):
        table.maintenance.compact()
    assert picture(tmp_path) == before


def test_what_cannot_be_compacted(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "cow", pa.schema([("id", pa.string())]), record_key="id")
    with pytest.raises(InvalidInputError, match="copy-on-write"):
        table.maintenance.compact()
    with pytest.raises(CommitConflictError, match="not pending any more"):
        table.maintenance.unschedule_compaction(PLANNED)
    mor = opened("mor_v6", tmp_path)
    with pytest.raises(InvalidInputError, match="give one of them"):
        mor.maintenance.compact(plan_only=True, instant=PLANNED)
    with pytest.raises(InvalidInputError, match="from 1 up"):
        mor.maintenance.compact(target_io=0)
    with pytest.raises(LakedexError, match="omit one"):
        parse_options({"hoodie.compact.inline": "true", "hoodie.compact.schedule.inline": "true"})


def test_version_6_plans_beside_writers(tmp_path: Path) -> None:
    """Log files have the plan's instant in their names there."""
    table = opened("mor_v6", tmp_path)
    folder = Path(table.path, ".hoodie")
    begun = folder / "20300101000000000.deltacommit.requested"
    begun.touch()
    with pytest.raises(CommitConflictError, match="beside a write"):
        table.maintenance.compact(plan_only=True)
    begun.unlink()
    (planned,) = table.maintenance.compact(plan_only=True).instants
    table.maintenance.unschedule_compaction(planned)
    (planned,) = table.maintenance.compact(plan_only=True).instants
    last = max(folder.glob("*.deltacommit"))
    later = str(int(planned) + 1)
    for kind in ("", ".requested", ".inflight"):
        (folder / f"{later}.deltacommit{kind}").write_bytes((folder / f"{last.name}{kind}").read_bytes())
    with pytest.raises(InvalidInputError, match="run the plan"):
        Table.open(table.path).maintenance.unschedule_compaction(planned)


DUE = [
    (CompactionOptions(delta_commits=4), 0, True),
    (CompactionOptions(delta_commits=5), 10**6, False),
    (CompactionOptions(delta_commits=2, trigger="NUM_COMMITS_AFTER_LAST_REQUEST"), 0, True),
    (CompactionOptions(delta_commits=3, trigger="NUM_COMMITS_AFTER_LAST_REQUEST"), 0, False),
    (CompactionOptions(delta_commits=9, trigger="TIME_ELAPSED"), 3600, True),
    (CompactionOptions(delta_commits=1, trigger="TIME_ELAPSED"), 3599, False),
    (CompactionOptions(delta_commits=9, trigger="NUM_OR_TIME"), 3600, True),
    (CompactionOptions(delta_commits=4, trigger="NUM_OR_TIME"), 0, True),
    (CompactionOptions(delta_commits=9, trigger="NUM_OR_TIME"), 0, False),
    (CompactionOptions(delta_commits=4, trigger="NUM_AND_TIME"), 3600, True),
    (CompactionOptions(delta_commits=4, trigger="NUM_AND_TIME"), 0, False),
]


def test_when_a_compaction_is_due(tmp_path: Path) -> None:
    """The table has four delta commits, two of them after a plan."""
    snapshot = opened("mor_pend_v9", tmp_path).snapshot()
    first = instant_to_epoch_ms(snapshot.timeline.completed({"deltacommit"})[0].requested)
    for options, seconds, due in DUE:
        assert compaction_due(snapshot, options, first + seconds * 1000) is due, options


SERVICES: list[tuple[CompactionOptions, str, int]] = [
    (CompactionOptions(inline=False, delta_commits=1), "", 1),
    (CompactionOptions(delta_commits=1), "compacted 4 file groups with 5 log files", 0),
    (CompactionOptions(delta_commits=9), "compacted 2 file groups with 2 log files", 0),
    (CompactionOptions(schedule_inline=True, delta_commits=1), "", 1),
]


@pytest.mark.parametrize("options, note, left", SERVICES)
def test_after_a_write(options: CompactionOptions, note: str, left: int, tmp_path: Path) -> None:
    """A pending plan is run whatever is due; none is made beside it where plans are only made."""
    table = opened("mor_pend_v9", tmp_path)
    found = compact_if_due(table.context, WriteOptions(compaction=options), table.snapshot())
    assert note in " ".join(found or ())
    assert (found is None) == (not note)
    assert len(pending(table)) == left


def test_only_plans_after_a_write(tmp_path: Path) -> None:
    table = opened("mor_soft_delete", tmp_path)
    options = WriteOptions(compaction=CompactionOptions(schedule_inline=True, inline=False, delta_commits=3))
    (note,) = compact_if_due(table.context, options, table.snapshot()) or ()
    assert note.startswith("planned the compaction of 1 file group with 2 log files")
    assert [state for _, state in pending(table)] == [State.REQUESTED]


VERSIONS = ["6", "8", "9"]
FIRST = [(f"k{i}", "ab"[i % 2], 1, i) for i in range(8)]


def with_logs(path: Path, version: str, **options: str) -> Table:
    """A table of ours with log files in both partitions."""
    given = {"hoodie.write.table.version": version, "hoodie.compact.inline": "false", **options}
    table = make(path, rows(*FIRST), partition_by="city", ordering_by="ts", table_type="mor", options=given)
    table.indexes.create("bitmap", ["n"], name="bits")
    table.upsert(rows(("k0", "a", 2, 10), ("k1", "b", 2, 11)))
    return table


@pytest.mark.parametrize("version", VERSIONS)
def test_inline(version: str, tmp_path: Path) -> None:
    table = with_logs(tmp_path, version)
    assert logs_of(table) == 2
    options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
    done = table.upsert(rows(("k0", "a", 3, 20)), options=options)
    assert any("compacted 2 file groups with 3 log files" in note for note in done.notes)
    assert logs_of(table) == 0
    assert table.upsert(rows(("k0", "a", 4, 30)), options=options).notes == ()
    table.delete(["k1"], all_partitions=True)
    before = rows_of(table)
    table.maintenance.compact()
    assert rows_of(table) == before
    assert [row["n"] for row in before] == [30, 2, 3, 4, 5, 6, 7]
    assert Table.open(tmp_path).maintenance.validate().ok
    assert table.indexes.stats("bits").files_uncovered == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_is_rolled_back_with_the_compactions_after_it(version: str, tmp_path: Path) -> None:
    table = with_logs(tmp_path, version)
    before = rows_of(table)
    options = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
    undone = str(table.upsert(rows(("k0", "a", 3, 20), ("new", "b", 3, 1)), options=options).instant)
    (compacted,) = (i.requested for i in table.snapshot().timeline.instants if i.requested > undone)
    saved = table.maintenance.savepoint()
    with pytest.raises(InvalidInputError, match=f"the commit {saved} has a savepoint"):
        table.maintenance.rollback(undone)
    table.maintenance.delete_savepoint(saved)
    planned = table.maintenance.rollback(undone, dry_run=True)
    done = table.maintenance.rollback(undone)
    assert done.notes == planned.notes == (f"the compaction {compacted} came after it and is undone too",)
    assert (done.undone, done.files_deleted, done.latest) == (undone, planned.files_deleted, planned.latest)
    assert rows_of(table) == before
    assert pending(table) == []
    assert Table.open(tmp_path).maintenance.validate().ok
    assert table.upsert(rows(("k0", "a", 3, 20)), options=options).updated == 1
    assert logs_of(table) == 0


@pytest.mark.parametrize("version", ["8", "9"])
@pytest.mark.parametrize("plan_only", [True, False])
def test_a_write_that_began_before_the_plan(version: str, plan_only: bool, tmp_path: Path) -> None:
    """It completes after it, without a conflict, and its rows are in the slices that the compaction opens."""
    table = with_logs(tmp_path, version)
    writer = meanwhile(table, lambda other: other.maintenance.compact(plan_only=plan_only), ANNOUNCED)
    done = writer.upsert(rows(("k0", "a", 3, 20), ("k2", "a", 3, 22)))
    assert done.notes == ()
    assert bool(pending(table)) == plan_only
    assert {row["id"]: row["n"] for row in rows_of(table)} == {
        **{key: n for key, _, _, n in FIRST}, "k0": 20, "k1": 11, "k2": 22,
    }  # fmt: skip
    before = rows_of(table)
    if plan_only:
        planned = pending(table)[0][0]
        assert table.maintenance.compact(instant=planned).log_files == 2
    assert logs_of(table) == 1
    assert rows_of(table) == before
    assert [row["id"] for row in rows_of(table, where="n = 22")] == ["k2"]
    assert Table.open(tmp_path).maintenance.validate().ok
    table.maintenance.compact()
    assert rows_of(table) == before


def test_log_files_beside_a_plan_in_version_6(tmp_path: Path) -> None:
    """They have the plan's instant in their names."""
    table = with_logs(tmp_path, "6")
    writer = meanwhile(table, lambda other: refused_beside_a_write(other), ANNOUNCED)
    writer.upsert(rows(("k3", "b", 3, 33)))
    (planned,) = table.maintenance.compact(plan_only=True).instants
    table.upsert(rows(("k0", "a", 3, 20), ("k2", "a", 3, 22)))
    table.delete(["k1"], all_partitions=True)
    before = rows_of(table)
    assert [row["n"] for row in before] == [20, 22, 33, 4, 5, 6, 7]
    names = sorted(path.name for path in tmp_path.rglob(f".*_{planned}.log.1_*"))
    assert len(names) == 2
    with pytest.raises(InvalidInputError, match="run the plan"):
        table.maintenance.unschedule_compaction(planned)
    assert table.maintenance.compact(instant=planned).log_files == 3
    assert rows_of(table) == before
    assert logs_of(table) == 2
    table.maintenance.compact()
    assert rows_of(table) == before
    assert Table.open(tmp_path).maintenance.validate().ok


def refused_beside_a_write(table: Table) -> None:
    with pytest.raises(CommitConflictError, match="beside a write"):
        table.maintenance.compact(plan_only=True)


@pytest.mark.parametrize("plan_only", [True, False])
def test_a_dry_run_is_what_comes(plan_only: bool, tmp_path: Path) -> None:
    table = with_logs(tmp_path, "9")
    before = picture(tmp_path)
    planned = table.maintenance.compact(dry_run=True, plan_only=plan_only)
    assert picture(tmp_path) == before
    assert "would merge 2 log files of 2 file groups" in str(planned)
    done = table.maintenance.compact(plan_only=plan_only)
    assert (planned.file_groups, planned.log_files, planned.bytes_read) == (2, 2, done.bytes_read)
    assert (done.file_groups, done.log_files) == (2, 2)


def test_a_failed_run_that_could_not_be_undone_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a schedule of faults: without heartbeat it counted as alive for two minutes."""
    table = make(tmp_path, table_type="mor", options={"hoodie.compact.inline": False})
    for ts in (1, 2):
        table.upsert(rows(("k1", "a", ts, ts)))
    planned = table.maintenance.compact(plan_only=True).instants

    def outage(*_: Any, **__: Any) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        for name in ("CompactFileGroup", "roll_back"):
            patched.setattr(f"lakedex.maintenance.compaction.{name}", outage)
        with pytest.raises(OSError, match="gone"):
            table.maintenance.compact()
    assert pending(table) == [(planned[0], State.INFLIGHT)]
    assert Table.open(tmp_path).maintenance.compact().instants == planned
    assert not list(tmp_path.glob(".hoodie/.heartbeat/2*"))
