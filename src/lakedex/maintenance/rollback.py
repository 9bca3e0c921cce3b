"""Roll back the last commit, restore savepoints and create them, on request.

A savepoint is a commit whose files cleaning retains and to which a restore can return (``SavepointActionExecutor``).
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakedex.display.blocks import Card, notes
from lakedex.errors import CommitConflictError, InvalidInputError
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import table_lock
from lakedex.layout.contained_files import list_folder
from lakedex.layout.names import instant_of, join_path, parse_log_file_name
from lakedex.maintenance.clean import finish_cleans, last_clean, require_no_clean, savepoint_times
from lakedex.maintenance.clustering import require_not_run
from lakedex.maintenance.compaction_plan import COMPACTION_CALLS
from lakedex.maintenance.metadata_undo import prepare_undo, snapshot_without
from lakedex.maintenance.recovery import (
    RecoveredTable,
    RestoreResult,
    planned_restore,
    recover,
    restore_to,
    undone_partitions,
)
from lakedex.maintenance.undo_write import (
    PLANNED,
    HeartbeatPolicy,
    committed_files,
    marked_files,
    replace_metadata_timeline,
    roll_back,
)
from lakedex.options import HeartbeatOptions, WriteOptions
from lakedex.reports import Report, counted
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS, complete, create_inflight, remove_pending, revert_completed
from lakedex.timeline.commit_metadata import NO_PREVIOUS_COMMIT, RollbackMetadata
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import Instant, State
from lakedex.timeline.service_metadata import SavepointMetadata, encode_savepoint_metadata

__all__ = [
    "RollbackResult",
    "delete_savepoint",
    "list_savepoints",
    "plan_restore",
    "plan_rollback",
    "restore",
    "rollback",
    "savepoint",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RollbackResult(Report):
    """Result of a rollback.

    Attributes:
        undone: Commit that was rolled back.
        instant: Instant of the rollback.
        latest: Last commit of the table now; None if it has none.
        files_deleted: Number of deleted base files.
        seconds: Duration of the call.
        notes: Further remarks for the user.
        dry_run: Whether nothing was changed.
    """

    undone: str
    instant: str | None
    latest: str | None
    files_deleted: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    dry_run: bool = False

    def card(self) -> Card:
        """The commit undone, and where the table is now."""
        named = self.instant or ("(dry run)" if self.dry_run else "")
        title = f"rollback {named} of {self.undone}".replace("  ", " ")
        deleted, now = ("would be deleted", "would be") if self.dry_run else ("deleted", "is")
        head = (
            f"{counted(self.files_deleted, 'file')} {deleted}, the table {now} at {self.latest or 'no commit'}, "
            f"{self.seconds:.2f} s"
        )
        return Card(title, head, [notes(self.notes)])


def rollback(handle: TableContext, options: WriteOptions, instant: str) -> RollbackResult:
    """Undo the last commit, or a failed write; see :meth:`lakedex.Maintenance.rollback`."""
    started = time.perf_counter()
    finish_cleans(handle, options)
    with table_lock(handle.files, options.lock) as lock:
        recovered = recover(handle, options.heartbeat, lock)
        require_no_clean(recovered.snapshot)
        if instant in recovered.undone:
            return _result(recovered.snapshot, instant, None, 0, started)
        plan = _plan_named(recovered.snapshot, instant)
        if plan is not None:
            require_not_run(recovered.snapshot, plan, options)
            removed = roll_back(recovered.snapshot, plan, recovered.clock)
            return _result(handle.snapshot(), instant, removed.started, _deleted(removed), started)
        undone = _to_undo(recovered.snapshot, instant, options)
        deleted, last = 0, ""
        for found in undone:
            now = _prepared(recovered, found, options)
            with Heartbeat(handle.files, found.requested, options.heartbeat.interval_ms):
                done = roll_back(now, found, recovered.clock)
            deleted, last = deleted + _deleted(done), done.started
            recovered = replace(recovered, snapshot=handle.snapshot(is_locked=True))
        result = _result(recovered.snapshot, instant, last, deleted, started)
        return replace(result, notes=_notes(undone))


def _plan_named(snapshot: Snapshot, instant: str) -> Instant | None:
    """The pending clustering of this instant, if there is one."""
    return next((i for i in snapshot.timeline.pending_clusterings() if i.requested == instant), None)


def _deleted(done: RollbackMetadata) -> int:
    return sum(map(len, done.deleted.values()))


def plan_rollback(handle: TableContext, options: WriteOptions, instant: str) -> RollbackResult:
    """The result that :func:`rollback` would have; nothing is changed."""
    started = time.perf_counter()
    snapshot = handle.snapshot()
    require_writable(snapshot.config)
    timeline, expiry = snapshot.timeline, HeartbeatPolicy(options.heartbeat)
    plan = _plan_named(snapshot, instant)
    if plan is not None:
        require_not_run(snapshot, plan, options)
        return replace(_result(snapshot, instant, None, 0, started), dry_run=True)
    pending = next((i for i in timeline.pending(WRITE_ACTIONS) if i.requested == instant), None)
    if pending is not None and expiry.is_expired_write(snapshot, pending):
        return replace(_result(snapshot, instant, None, 0, started), dry_run=True)
    undone = _to_undo(snapshot, instant, options)
    written = sum(map(len, (_files_of(snapshot, found) for found in undone)))
    left = snapshot_without(snapshot, {found.requested for found in undone})
    return replace(_result(left, instant, None, written, started), dry_run=True, notes=_notes(undone))


def _files_of(snapshot: Snapshot, undone: Instant) -> Sequence[object]:
    """Files that a rollback deletes. In version 6 log files stay, and get a block that takes others back."""
    timeline = snapshot.timeline
    if not undone.is_completed:
        return list(marked_files(snapshot, undone))
    stats = timeline.commit_metadata(undone).all_stats()
    return [stat for stat in stats if timeline.layout > 1 or parse_log_file_name(stat.file_name) is None]


def _notes(undone: Sequence[Instant]) -> tuple[str, ...]:
    return tuple(f"the compaction {found.requested} came after it and is undone too" for found in undone[:-1])


def _result(now: Snapshot, undone: str, instant: str | None, deleted: int, started: float) -> RollbackResult:
    last = now.timeline.last_completed
    return RollbackResult(
        undone=undone,
        instant=instant,
        latest=None if last is None else last.requested,
        files_deleted=deleted,
        seconds=time.perf_counter() - started,
    )


def _begun_compaction(snapshot: Snapshot, instant: str, options: WriteOptions) -> Instant | None:
    """A compaction that died while it ran; None for any other instant.

    Raises:
        InvalidInputError: it is a plan that nobody has begun to carry out.
        CommitConflictError: whoever runs it may be alive.
    """
    found = next((i for i in snapshot.timeline.pending(PLANNED) if i.requested == instant), None)
    if found is None:
        return None
    if found.state is State.REQUESTED:
        raise InvalidInputError(
            f"{snapshot.files}: {found.action} {instant} is a plan that nobody has begun, so there is nothing to roll "
            f"back; {COMPACTION_CALLS.format(instant)}"
        )
    if not HeartbeatPolicy(options.heartbeat).is_expired_write(snapshot, found):
        _refuse_other(snapshot, instant, options.heartbeat)
    return found


def _to_undo(snapshot: Snapshot, instant: str, options: WriteOptions) -> list[Instant]:
    """The compactions that came after a commit, the last one first, and the commit; or a compaction that died.

    The table without a commit has to be all there, and nobody may rely on the commit's files.
    """
    if begun := _begun_compaction(snapshot, instant, options):
        return [begun]
    undone = _last_commit(snapshot, instant, options)
    for commit in undone:
        _require_versions(snapshot, commit)
        _require_beginning(snapshot, commit)
        _require_unplanned(snapshot, commit)
        snapshot = snapshot_without(snapshot, {commit.requested})
    return undone


def _later(snapshot: Snapshot, found: Instant) -> list[Instant]:
    """Commits that came after one."""
    by_completion = snapshot.timeline.layout >= 2  # Version 6 has the times of files, which a copy changes.
    return [
        i
        for i in snapshot.timeline.completed(WRITE_ACTIONS)
        if i.requested > found.requested or (by_completion and (i.completed or "") > (found.completed or i.requested))
    ]


def _require_unplanned(snapshot: Snapshot, undone: Instant) -> None:
    """Refuse a commit whose files a pending compaction is going to merge: it would find them gone, or their rows."""
    written = committed_files(snapshot.timeline, undone)
    for pending in snapshot.timeline.pending({"compaction"}):
        planned = {
            (operation.partition, name)
            for operation in snapshot.timeline.compaction_plan(pending)
            for name in (*operation.logs, operation.base or "")
        }
        if shared := sorted(written & planned):
            raise InvalidInputError(
                f"{snapshot.files}: the commit {undone.requested} cannot be rolled back: the pending compaction "
                f"{pending.requested} is going to merge its file {join_path(*shared[0])}. Nothing was changed; run "
                "the compaction, or restore to a savepoint"
            )


def _last_commit(snapshot: Snapshot, instant: str, options: WriteOptions) -> list[Instant]:
    """The commit of an instant, after the compactions that came later, the last one first: these change no row."""
    timeline, base = snapshot.timeline, snapshot.files.base_path
    found = next((i for i in timeline.completed(WRITE_ACTIONS) if i.requested == instant), None)
    if found is None:
        _refuse_other(snapshot, instant, options.heartbeat)
        last = timeline.last_completed
        raise InvalidInputError(
            f"{base} has no commit {instant} to roll back; the last one is {'none' if last is None else last.requested}"
        )
    later = _later(snapshot, found)
    writes = [i.requested for i in later if not timeline.commit_metadata(i).compacted]
    undone = {instant} if writes else {instant, *(i.requested for i in later)}
    if saved := savepoint_times(timeline) & undone:
        kept = max(saved)
        raise InvalidInputError(
            f"{base}: the commit {kept} has a savepoint; maintenance.delete_savepoint({kept!r}) first"
        )
    if writes:
        raise InvalidInputError(
            f"{base}: {len(writes)} commits came after {instant} ({', '.join(writes[:3])}); roll them back first, the "
            "last one first, or restore to a savepoint"
        )
    require_no_writes(snapshot)
    return [*sorted(later, key=lambda i: i.completed or i.requested, reverse=True), found]


def _refuse_other(snapshot: Snapshot, instant: str, options: HeartbeatOptions) -> None:
    """Raise the reason why an instant other than a completed commit cannot be rolled back."""
    found = next((i for i in snapshot.timeline.instants if i.requested == instant), None)
    if found is None:
        return
    if found.action in WRITE_ACTIONS | PLANNED and not found.is_completed:
        raise CommitConflictError(
            f"{snapshot.files}: the writer of {found} may be alive; it counts as dead after "
            f"{options.interval_ms * options.misses / 1000:.0f} s of silence, and the next writer rolls it back then",
            ours=None,
            theirs=instant,
            file_groups=frozenset(),
            retryable=True,
        )
    raise InvalidInputError(f"{snapshot.files}: {found} is not a commit; only commits can be rolled back")


def require_no_writes(snapshot: Snapshot) -> None:
    """Refuse while writes are pending: they have read undone commits, and would commit their rows again."""
    pending = snapshot.timeline.pending(WRITE_ACTIONS | {"clustering"})
    if pending:
        plan = _plan_named(snapshot, pending[0].requested)
        what = "try again once no one writes"
        if plan is not None:  # It may have read what is to be undone.
            what = f"maintenance.cluster(instant='{plan.requested}') runs the plan, maintenance.rollback removes it"
        raise CommitConflictError(
            f"{snapshot.files}: {pending[0]} is {'pending' if plan else 'under way'}; nothing was changed, {what}",
            ours=None,
            theirs=pending[0].requested,
            file_groups=frozenset(),
            retryable=True,
        )


def _require_versions(snapshot: Snapshot, undone: Instant) -> None:
    """Check that all files that become the newest again exist."""
    target = snapshot_without(snapshot, {undone.requested})
    commit = snapshot.timeline.commit_metadata(undone)
    needed: dict[tuple[str, str], str | None] = {
        (path, stat.file_id): stat.prev_commit
        for path, stats in commit.write_stats.items()
        for stat in stats
        # A log file is on top of a slice, and takes no other's place.
        if stat.prev_commit != NO_PREVIOUS_COMMIT and parse_log_file_name(stat.file_name) is None
    }
    needed |= {(path, file_id): None for path, ids in (commit.replaced or {}).items() for file_id in ids}
    there = {(item.partition, item.file_id): item for item in target.slices({path for path, _ in needed})}
    for group, version in sorted(needed.items()):
        found = there.get(group)
        if (
            found is None
            or (found.base_file is not None and version not in (None, found.base_instant))
            or not all(_is_stored(snapshot, file.relative_path) for file in found.files)
        ):
            raise InvalidInputError(
                f"{snapshot.files}: the commit {undone.requested} cannot be rolled back, since the cleaner took "
                f"the version of {join_path(*group)} that it rewrote. Nothing was changed"
            )


def _require_beginning(snapshot: Snapshot, undone: Instant) -> None:
    """Refuse the only commit that is not archived: files of archived commits must be older than another one."""
    timeline, left = snapshot.timeline, snapshot.timeline.once_gone({undone.requested})
    names = [name for files in snapshot.listing().values() for name in files]
    found = set(filter(None, map(instant_of, names)))
    lost = sorted(i for i in found - {undone.requested} if timeline.is_committed(i) and not left.is_committed(i))
    if lost:
        raise InvalidInputError(
            f"{snapshot.files}: the commit {undone.requested} cannot be rolled back: it is the only one that is "
            f"not archived, and without it no reader would take files of archived ones, the last of them {lost[-1]}, "
            "for committed. Nothing was changed; write the previous rows again instead"
        )


def _is_stored(snapshot: Snapshot, relative_path: str) -> bool:
    return snapshot.files.storage.exists(snapshot.files.path(relative_path))


def _prepared(recovered: RecoveredTable, undone: Instant, options: WriteOptions) -> Snapshot:
    """Snapshot after preparing the metadata for the undo."""
    snapshot, names = recovered.snapshot, {undone.requested}
    if not undone.is_completed:
        return snapshot
    target = snapshot_without(snapshot, names)
    touched = undone_partitions(snapshot.timeline, [undone])
    prepare_undo(snapshot, target, names, touched, recovered.clock, options)
    return replace_metadata_timeline(snapshot)


def restore(handle: TableContext, options: WriteOptions, savepoint: str) -> RestoreResult:
    """Undo all commits after a savepoint; see :meth:`lakedex.Maintenance.restore`."""
    started = time.perf_counter()
    finish_cleans(handle, options)
    with table_lock(handle.files, options.lock) as lock:
        recovered = recover(handle, options.heartbeat, lock)
        snapshot = recovered.snapshot
        require_no_clean(snapshot)
        require_no_writes(snapshot)
        return restore_to(snapshot, _savepoint_named(snapshot, savepoint), recovered.clock, options, started)


def plan_restore(handle: TableContext, savepoint: str) -> RestoreResult:
    """The result that :func:`restore` would have; nothing is changed."""
    started = time.perf_counter()
    snapshot = handle.snapshot()
    require_writable(snapshot.config)
    require_no_writes(snapshot)
    return planned_restore(snapshot, _savepoint_named(snapshot, savepoint), started)


def _savepoint_named(snapshot: Snapshot, savepoint: str) -> Instant:
    found = next((i for i in snapshot.timeline.completed({"savepoint"}) if i.requested == savepoint), None)
    if found is None:
        known = ", ".join(sorted(savepoint_times(snapshot.timeline))) or "none"
        raise InvalidInputError(f"{snapshot.files} has no savepoint {savepoint}; it has {known}")
    return found


_SAVEPOINTS = pa.schema(
    [
        ("instant", pa.string()),
        ("user", pa.string()),
        ("comment", pa.string()),
        ("made_at", pa.timestamp("ms", "UTC")),
        ("files", pa.int64()),
        ("partitions", pa.int64()),
    ]
)


def savepoint(handle: TableContext, options: WriteOptions, instant: str | None, comment: str, user: str) -> str:
    """Retain the files of a commit; see :meth:`lakedex.Maintenance.savepoint`."""
    finish_cleans(handle, options)
    with table_lock(handle.files, options.lock) as lock:
        recovered = recover(handle, options.heartbeat, lock)
        snapshot, timeline = recovered.snapshot, recovered.snapshot.timeline
        require_no_clean(snapshot)
        commit = _commit(snapshot, instant)
        if commit in savepoint_times(timeline):
            raise InvalidInputError(f"{handle.files}: the commit {commit} has a savepoint already")
        require_no_older_plan(snapshot, commit)
        files = _files_at(snapshot, commit)
        body = SavepointMetadata(by=user or _user(), at=int(time.time() * 1000), comment=comment, files=files)
        pending = Instant(commit, "savepoint", State.INFLIGHT, None, "")
        # A process may have died while creating a savepoint.
        if timeline.state_of(commit, "savepoint") is None:
            create_inflight(timeline, pending)
        when = recovered.clock.next(snapshot.last_time)
        complete(timeline, pending, when, encode_savepoint_metadata(body))
    return commit


def require_no_older_plan(snapshot: Snapshot, commit: str) -> None:
    """No write or plan that replaces files of the commit began before it.

    Hudi 1.1.1 archives up to the first savepoint, also what replaced files that the savepoint retains: they are current
    again then, beside the new ones. Archiving in lakedex stops before that.
    """
    older = [i.requested for i in snapshot.timeline.pending({"replacecommit", "clustering"}) if i.requested < commit]
    if older:
        raise InvalidInputError(
            f"{snapshot.files}: {older[0]}, which replaces files, began before the commit {commit} and is not "
            f"complete, so that commit cannot have a savepoint: Hudi would show the replaced rows again after it "
            f"archives. Complete it first, with maintenance.cluster(instant={older[0]!r}), or take it back with "
            f"maintenance.rollback({older[0]!r})"
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "lakedex"


def _commit(snapshot: Snapshot, instant: str | None) -> str:
    commits = snapshot.timeline.completed(WRITE_ACTIONS)
    if not commits:
        raise InvalidInputError(f"{snapshot.files} has no commit yet, so there is nothing to keep")
    if instant is None:
        return commits[-1].requested
    if all(commit.requested != instant for commit in commits):
        raise InvalidInputError(
            f"{snapshot.files} has no commit {instant} on its active timeline; it goes from "
            f"{commits[0].requested} to {commits[-1].requested}"
        )
    return instant


def _files_at(snapshot: Snapshot, commit: str) -> dict[str, tuple[str, ...]]:
    """Names of the files that the table had at a commit, by partition.

    Raises:
        InvalidInputError: Cleaning may have deleted some of them.
    """
    last = last_clean(snapshot.timeline)
    current = snapshot.instant
    if last is not None and commit != current:
        # HoodieSavepointException: beyond the lookup window. A clean by versions retained only the last commit.
        first = last.earliest or (current or "")
        if commit < first:
            raise InvalidInputError(
                f"{snapshot.files}: files of the commit {commit} may have been cleaned; the earliest commit that "
                f"can have a savepoint is {first}"
            )
    files: dict[str, list[str]] = {}
    for found in snapshot.at(commit).slices():
        files.setdefault(found.partition, []).extend(file.name for file in found.files)
    for partition, names in files.items():
        present = {entry.name for entry in list_folder(snapshot.files, partition)}
        missing = sorted(set(names) - present)
        if missing:
            raise InvalidInputError(
                f"{snapshot.files}: {join_path(partition, missing[0])} of the commit {commit} is gone, so it "
                "cannot have a savepoint"
            )
    return {partition: tuple(sorted(names)) for partition, names in files.items()}


def list_savepoints(snapshot: Snapshot) -> pa.Table:
    """Savepoints, oldest first: commit, user, comment, time, and numbers of retained files and partitions."""
    rows = []
    for instant in snapshot.timeline.completed({"savepoint"}):
        saved = snapshot.timeline.savepoint_metadata(instant)
        rows.append(
            {
                "instant": instant.requested,
                "user": saved.by,
                "comment": saved.comment,
                "made_at": saved.at,
                "files": sum(map(len, saved.files.values())),
                "partitions": len(saved.files),
            }
        )
    return pa.Table.from_pylist(rows, _SAVEPOINTS)


def delete_savepoint(handle: TableContext, options: WriteOptions, instant: str) -> None:
    """Allow cleaning to delete the files of a savepoint; see :meth:`lakedex.Maintenance.delete_savepoint`."""
    with table_lock(handle.files, options.lock) as lock:
        timeline = recover(handle, options.heartbeat, lock).snapshot.timeline
        found = next((i for i in timeline.completed({"savepoint"}) if i.requested == instant), None)
        if found is None:
            known = ", ".join(sorted(savepoint_times(timeline))) or "none"
            raise InvalidInputError(f"{handle.files} has no savepoint {instant}; it has {known}")
        revert_completed(timeline, found)
        remove_pending(timeline, replace(found, state=State.INFLIGHT, completed=None))
