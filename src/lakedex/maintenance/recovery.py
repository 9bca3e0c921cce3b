"""Recovery before a write: finish interrupted restores, roll back expired writes, delete their temporary files.

A restore takes a table back to a savepoint (``BaseRestoreActionExecutor``, ``RestorePlanActionExecutor``). All commits
that completed after the savepoint's are undone, the last one first. They count as pending for every reader of lakedex
from the moment that the restore is inflight (:mod:`lakedex.timeline.active`), since files of the states in between may
have been cleaned; readers of Hudi see these states while it runs, as they do when Hudi restores. A restore whose
process died is finished by the next writer, Hudi's too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakedex.display.blocks import Card, notes
from lakedex.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from lakedex.io.liveness import Heartbeat, delete_heartbeat
from lakedex.io.locks import Lock
from lakedex.layout.contained_files import list_folder
from lakedex.layout.names import instant_of, join_path, parse_base_file_name
from lakedex.maintenance.metadata_undo import (
    prepare_undo,
    record_undo,
    snapshot_without,
    written_since,
)
from lakedex.maintenance.undo_write import (
    PLANNED,
    HeartbeatPolicy,
    committed_files,
    kept_log_files,
    remove_metadata_of,
    remove_orphans,
    replace_metadata_timeline,
    roll_back,
    rollback_failed_writes,
)
from lakedex.options import HeartbeatOptions, WriteOptions
from lakedex.parallel import overlapped
from lakedex.reports import Report, counted
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import (
    WRITE_ACTIONS,
    Timeline,
    complete,
    create_inflight,
    create_requested,
    remove_file,
    remove_pending,
)
from lakedex.timeline.commit_metadata import RollbackMetadata
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import COMPLETED_ACTION, Instant, InstantClock, State
from lakedex.timeline.service_metadata import (
    RestoreMetadata,
    RestorePlan,
    SavepointMetadata,
    encode_restore_metadata,
    encode_restore_plan,
)
from lakedex.timeline.table_config import CONFIG_BACKUP, recover_table_config

__all__ = [
    "INFLIGHT_PARTITIONS",
    "RecoveredTable",
    "RestoreResult",
    "finish_restores",
    "planned_restore",
    "recover",
    "recovered",
    "restore_to",
    "undone_partitions",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestoreResult(Report):
    """The result of a restore.

    Attributes:
        savepoint: the commit that the table is at again.
        instant: the restore; None when no commit came after the savepoint.
        undone: commits that are gone, the last one first.
        files_deleted: base files that are gone with them.
        seconds: the whole call.
        notes: what else the user should know.
        dry_run: whether nothing was changed.
    """

    savepoint: str
    instant: str | None = None
    undone: tuple[str, ...] = ()
    files_deleted: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    dry_run: bool = False

    def card(self) -> Card:
        """The number of commits undone."""
        undone, deleted = counted(len(self.undone), "commit"), counted(self.files_deleted, "file")
        be = "would be " if self.dry_run else ""
        named = self.instant or ("(dry run)" if self.dry_run and self.undone else "(nothing to undo)")
        title = f"restore {named} to {self.savepoint}"
        head = f"{undone} {be}undone, {deleted} {be}deleted, {self.seconds:.2f} s"
        return Card(title, head, [notes(self.notes)])


def restore_to(
    snapshot: Snapshot, savepoint: Instant, clock: InstantClock, options: WriteOptions, started: float
) -> RestoreResult:
    """Undo what completed after a savepoint's commit. Call under the table lock, with no write pending.

    Raises:
        InvalidInputError: files of the savepoint are gone.
    """
    timeline = snapshot.timeline
    undone = _after(timeline, savepoint.requested)
    if not undone:
        return RestoreResult(savepoint=savepoint.requested, seconds=time.perf_counter() - started)
    names = {instant.requested for instant in undone}
    partitions = undone_partitions(timeline, undone)
    _require_files(snapshot, timeline.savepoint_metadata(savepoint), savepoint.requested, partitions)
    _require_commits(snapshot, savepoint.requested)
    target = snapshot_without(snapshot, names)
    _require_services(target, timeline.savepoint_metadata(savepoint), savepoint.requested)
    prepare_undo(snapshot, target, names, partitions, clock, options)
    plan = RestorePlan(savepoint=savepoint.requested, instants=tuple((i.requested, i.action) for i in undone))
    when = clock.next(max(timeline.last_time, snapshot.metadata.timeline.reload().last_time))
    with Heartbeat(snapshot.files, when):
        requested = create_requested(timeline, when, "restore", encode_restore_plan(plan))
        inflight = create_inflight(timeline, requested)
        hidden = replace_metadata_timeline(snapshot_without(snapshot, names))
        done = _run(hidden, inflight, plan, clock)
    _remove_traces(timeline.reload())
    return RestoreResult(
        savepoint=savepoint.requested,
        instant=when,
        undone=tuple(i.requested for i in undone),
        files_deleted=sum(
            len(files) for found in done.rollbacks.values() for one in found for files in one.deleted.values()
        ),
        seconds=time.perf_counter() - started,
    )


def planned_restore(snapshot: Snapshot, savepoint: Instant, started: float) -> RestoreResult:
    """The result that :func:`restore_to` would have.

    Raises:
        InvalidInputError: files of the savepoint are gone.
    """
    timeline = snapshot.timeline
    undone = _after(timeline, savepoint.requested)
    saved = timeline.savepoint_metadata(savepoint)
    _require_files(snapshot, saved, savepoint.requested, undone_partitions(timeline, undone))
    _require_commits(snapshot, savepoint.requested)
    target = snapshot_without(snapshot, {instant.requested for instant in undone})
    _require_services(target, saved, savepoint.requested)
    return RestoreResult(
        savepoint=savepoint.requested,
        undone=tuple(i.requested for i in undone),
        files_deleted=sum(len(timeline.commit_metadata(i).all_stats()) for i in undone if i.is_completed),
        seconds=time.perf_counter() - started,
        dry_run=True,
    )


_COMPACTIONS = frozenset({"COMPACT", "LOG_COMPACT"})
"""Operations of commits that hold rows of earlier commits only."""


def _after(timeline: Timeline, savepoint: str) -> list[Instant]:
    """Commits that completed after the savepoint's, the last one first; before them later plans of compactions.

    Version 6 goes by when they were requested: there completion times are those of files, which a copy changes.

    A compaction that was requested before the savepoint's commit has only rows that were there before it: it stays, and
    so do the log files that version 6 names after it.
    """

    def time_of(instant: Instant) -> str:
        return instant.requested if timeline.layout == 1 else instant.completed or instant.requested

    bound = savepoint if timeline.layout == 1 else timeline.completion_time(savepoint) or savepoint
    commits = [
        instant
        for instant in timeline.completed(WRITE_ACTIONS)
        if time_of(instant) > bound
        and instant.requested != savepoint
        and not (instant.requested < savepoint and timeline.commit_notes(instant).operation in _COMPACTIONS)
    ]
    plans = [instant for instant in timeline.pending(PLANNED) if instant.requested > savepoint]
    commits.sort(key=time_of, reverse=True)
    return [*reversed(plans), *commits]


def undone_partitions(timeline: Timeline, undone: list[Instant]) -> list[str]:
    """Partitions that commits wrote to or replaced files of."""
    commits = [timeline.commit_metadata(instant) for instant in undone if instant.is_completed]
    return sorted({path for commit in commits for path in (*commit.write_stats, *(commit.replaced or {}))})


def _require_files(snapshot: Snapshot, saved: SavepointMetadata, savepoint: str, partitions: list[str]) -> None:
    """The restore's own conditions: what it goes back to is all there."""
    for partition in partitions:
        present = {entry.name for entry in list_folder(snapshot.files, partition)}
        missing = sorted(set(saved.files.get(partition, ())) - present)
        if missing:
            raise InvalidInputError(
                f"{snapshot.files} cannot be restored to {savepoint}: {len(missing)} files of its savepoint are "
                f"gone, among them {join_path(partition, missing[0])}. Nothing was changed"
            )


def _require_services(target: Snapshot, saved: SavepointMetadata, savepoint: str) -> None:
    """What table services planned before the savepoint's commit made of its files later is there: they stay.

    No savepoint retains that: once later commits had replaced it, cleaning may have taken it.
    """
    found = [(path, parse_base_file_name(name)) for path, names in saved.files.items() for name in names]
    bases = {(path, base.file_id): base.instant for path, base in found if base is not None}
    for commit in target.timeline.completed(WRITE_ACTIONS):
        if commit.requested >= savepoint:
            continue
        done = target.timeline.commit_metadata(commit)
        replaced = {(path, file_id) for path, ids in (done.replaced or {}).items() for file_id in ids}
        files = sorted(file for file in committed_files(target.timeline, commit) if parse_base_file_name(file[1]))
        newer = {
            (path, stat.file_id) for path, stats in done.write_stats.items() for stat in stats if not stat.log_files
        }
        if not bases.keys() & replaced and all(bases.get(group, "~") >= commit.requested for group in newer):
            continue
        present = {path: {entry.name for entry in list_folder(target.files, path)} for path in dict(files)}
        if missing := [join_path(path, name) for path, name in files if name not in present[path]]:
            raise InvalidInputError(
                f"{target.files} cannot be restored to {savepoint}: {done.operation or commit.action} "
                f"{commit.requested}, planned before it and completed after it, has lost {len(missing)} of its files "
                f"to cleaning, among them {missing[0]}. Nothing was changed"
            )


def _require_commits(snapshot: Snapshot, savepoint: str) -> None:
    """All that came after the savepoint can be undone: nothing of it is archived."""
    names = [name for files in snapshot.listing().values() for name in files]
    found = set(filter(None, map(instant_of, names)))
    timeline = snapshot.timeline
    archived = sorted(i for i in found if i > savepoint and timeline.is_committed(i) and not timeline.contains(i))
    if archived:
        raise InvalidInputError(
            f"{snapshot.files} cannot be restored to {savepoint}: {len(archived)} commits after it were archived "
            f"(hoodie.archive.beyond.savepoint), the first of them {archived[0]}. Nothing was changed"
        )


def _run(snapshot: Snapshot, restore: Instant, plan: RestorePlan, clock: InstantClock) -> RestoreMetadata:
    """Undo the commits of an inflight restore and complete it; goes on where another process died."""
    timeline, started = snapshot.timeline, time.time()
    done = _done_before(timeline, restore, plan)
    left = {i.requested: i for i in timeline.pending(WRITE_ACTIONS | COMPLETED_ACTION.keys())}
    for requested, _ in plan.instants:
        if requested in left and requested not in done:
            done[requested] = (roll_back(snapshot, left[requested], clock, part_of_restore=True),)
        else:
            remove_metadata_of(snapshot, requested)  # Hudi has removed its instant, and restores the metadata last.
    names = {requested for requested, _ in plan.instants}
    kept = kept_log_files(snapshot.files, (one for found in done.values() for one in found))
    if kept or written_since(replace_metadata_timeline(snapshot), names):
        remove_metadata_of(snapshot, restore.requested)
        now = replace_metadata_timeline(snapshot)
        record_undo(now, _listed_still(now, names, done), restore.requested, clock, added=kept)
    metadata = RestoreMetadata(
        started=restore.requested,
        millis=int((time.time() - started) * 1000),
        instants=plan.instants,
        rollbacks=done,
    )
    floor = max(timeline.reload().last_time, restore.requested)
    complete(timeline, restore, clock.next(floor), encode_restore_metadata(metadata))
    return metadata


def _listed_still(
    snapshot: Snapshot, undone: set[str], done: Mapping[str, tuple[RollbackMetadata, ...]]
) -> dict[str, list[str]]:
    """Files of commits that the metadata table lists although these are undone, in every partition that lost files."""
    found: dict[str, list[str]] = {path: [] for rollbacks in done.values() for one in rollbacks for path in one.deleted}
    for path, names in snapshot.listing().items():
        for name in names:
            if instant_of(name) in undone:
                found.setdefault(path, []).append(name)
    return found


def _done_before(timeline: Timeline, restore: Instant, plan: RestorePlan) -> dict[str, tuple[RollbackMetadata, ...]]:
    """Rollbacks of this restore that completed before its process died."""
    names = {requested for requested, _ in plan.instants}
    done: dict[str, tuple[RollbackMetadata, ...]] = {}
    for instant in timeline.completed({"rollback"}):
        if instant.requested > restore.requested:
            metadata = timeline.rollback_metadata(instant)
            if metadata.instant in names:
                done[metadata.instant] = (metadata,)
    return done


def finish_restores(snapshot: Snapshot, clock: InstantClock, expiry: HeartbeatPolicy) -> bool:
    """Finish restores that died. Call under the table lock.

    Returns:
        Whether anything was done.

    Raises:
        CommitConflictError: a restore of a living process is under way.
        UnsupportedFeatureError: Hudi's own, and it died while it restored the metadata table.
    """
    changed = False
    for restore in snapshot.timeline.pending({"restore"}):
        if not expiry.is_expired_write(snapshot, restore):
            raise CommitConflictError(
                f"{snapshot.files}: the restore {restore.requested} is under way; nothing was written, try again "
                "once it is done",
                ours=None,
                theirs=restore.requested,
                file_groups=frozenset(),
                retryable=False,
            )
        changed = True
        if restore.state is State.REQUESTED:
            remove_pending(snapshot.timeline, restore)  # It has not begun.
        else:
            if snapshot.metadata.timeline.pending({"restore", "rollback"}):
                raise UnsupportedFeatureError(
                    f"{snapshot.files}: the restore {restore.requested} is half done in the metadata table; "
                    "finish it with Hudi (restore to the same savepoint again)",
                    feature="finishing a restore of the metadata table",
                )
            _run(snapshot, restore, snapshot.timeline.restore_plan(restore.requested), clock)
        delete_heartbeat(snapshot.files, restore.requested)
    return _remove_traces(snapshot.timeline.reload() if changed else snapshot.timeline) or changed


def _remove_traces(timeline: Timeline) -> bool:
    """Remove the instants that a completed restore undid, and its rollbacks, as Hudi does at the end of a restore."""
    removed = False
    for restore in timeline.completed({"restore"}):
        metadata = timeline.restore_metadata(restore)
        gone = {requested for requested, _ in metadata.instants}
        own = {one.started for found in metadata.rollbacks.values() for one in found}
        for instant in timeline.instants:
            if instant.requested in gone and not instant.is_completed:
                remove_pending(timeline, instant)
                removed = True
            elif instant.requested in own and instant.action == "rollback":
                if instant.is_completed:
                    remove_file(timeline, instant.file_name)
                remove_pending(timeline, instant)
                removed = True
    return removed


@dataclass(frozen=True, slots=True)
class RecoveredTable:
    """A table after recovery.

    Attributes:
        snapshot: the table now.
        clock: gives instants in its zone.
        undone: failed writes that were rolled back.
        has_bucket_index: whether there is a folder of Hudi's consistent hashing index.
    """

    snapshot: Snapshot
    clock: InstantClock
    undone: tuple[str, ...] = ()
    has_bucket_index: bool = False


def recover(
    handle: TableContext, options: HeartbeatOptions, lock: Lock, base: Snapshot | None = None
) -> RecoveredTable:
    """Finish restores and undo writes that died. Call under the table lock.

    Args:
        handle: the table.
        options: say when a writer counts as dead.
        lock: the table lock.
        base: the table as the caller has seen it before; None for a caller that has not.

    Raises:
        UnsupportedFeatureError: lakedex does not write this table, or cannot undo what is pending.
        CommitConflictError: a restore of another process is under way.
    """
    listed: list[Callable[[], Any]] = [partial(list_folder, handle.files, ".hoodie")]
    # Read at once with the listing, and again if that shows that the settings have to be put right first.
    ahead = handle.files.has_latency
    if ahead:
        listed.append(partial(_reread, handle, base))
    entries, *found = overlapped(listed, at_once=ahead)
    own = {entry.name for entry in entries}
    if CONFIG_BACKUP in own:
        recover_table_config(handle.files)
    snapshot = found[0] if found and CONFIG_BACKUP not in own else _reread(handle, base)
    require_writable(snapshot.config)
    clock = handle.clock(snapshot.config.timezone)
    expiry = HeartbeatPolicy(options)
    restored = finish_restores(snapshot, clock, expiry)
    if restored:
        snapshot = snapshot.refreshed(is_locked=True)
    undone = rollback_failed_writes(snapshot, clock, expiry)
    if undone:
        snapshot = snapshot.refreshed(is_locked=True)
    clock.leave_out(remove_orphans(snapshot, expiry, own))
    if restored or undone:
        lock.check()
    return RecoveredTable(snapshot, clock, tuple(undone), ".bucket_index" in own)


def _reread(handle: TableContext, base: Snapshot | None) -> Snapshot:
    return handle.snapshot(is_locked=True) if base is None else base.refreshed(is_locked=True)


INFLIGHT_PARTITIONS = "hoodie.table.metadata.partitions.inflight"


def recovered(handle: TableContext, options: WriteOptions, lock: Lock) -> tuple[Snapshot, InstantClock]:
    """The table without leftovers of dead writers and index builds. Call under the table lock.

    Raises:
        UnsupportedFeatureError: lakedex does not write this table.
    """
    done = recover(handle, options.heartbeat, lock)
    return done.snapshot.refreshed(is_locked=True), done.clock
