"""Undoing what was committed: the last commit, or all that came after a savepoint."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lakedex.errors import CommitConflictError, InvalidInputError
from lakedex.io.heartbeat import Heartbeat
from lakedex.layout.names import join_path, parse_base_file_name
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.printing import printed
from lakedex.services.clean import finish_cleans, require_no_clean
from lakedex.services.clean_plan import savepoint_times
from lakedex.services.correction import knows_commits, narrow_definitions, undone_snapshot, widen
from lakedex.services.locking import require_exclusive_create, table_lock
from lakedex.services.restore import RestoreResult, restore_to, undone_partitions
from lakedex.services.rollback import Patience, replace_metadata_timeline, roll_back
from lakedex.services.tidying import Tidied, tidy
from lakedex.timeline.commit_metadata import NO_PREVIOUS_COMMIT
from lakedex.timeline.instant import Instant
from lakedex.timeline.timeline import WRITE_ACTIONS

__all__ = ["RollbackResult", "restore", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackResult:
    """What a rollback did.

    Attributes:
        undone: the commit that is gone.
        instant: the rollback.
        latest: the commit that the table is at now; None when it has none.
        files_deleted: base files that are gone with it.
        seconds: the whole call.
        notes: what else the user should know.
    """

    undone: str
    instant: str | None
    latest: str | None
    files_deleted: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        head = (
            f"rollback {self.instant or ''} of {self.undone}: {self.files_deleted} files deleted, the table is at "
            f"{self.latest or 'no commit'}, {self.seconds:.2f} s"
        )
        return printed([head, *(f"  note: {note}" for note in self.notes)])


def rollback(handle: TableHandle, options: WriteOptions, instant: str) -> RollbackResult:
    """Undo the last commit, or a pending write that died; see :meth:`lakedex.Table.rollback`."""
    started = time.perf_counter()
    require_exclusive_create(handle.storage, handle.base_path)
    finish_cleans(handle, options)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        tidied = tidy(handle, options, lock)
        require_no_clean(tidied.snapshot)
        if instant in tidied.undone:
            return _result(tidied.snapshot, instant, None, 0, started)
        found = _to_undo(tidied.snapshot, instant, options)
        _require_versions(tidied.snapshot, found)
        _require_beginning(tidied.snapshot, found)
        now = _prepared(tidied, found, options)
        with Heartbeat(handle.storage, handle.base_path, instant, int(options.heartbeat_interval * 1000)):
            done = roll_back(now, found, tidied.clock)
        deleted = sum(map(len, done.deleted.values()))
        return _result(handle.snapshot(), instant, done.started, deleted, started)


def _result(now: Snapshot, undone: str, instant: str | None, deleted: int, started: float) -> RollbackResult:
    last = now.timeline.last_completed
    return RollbackResult(
        undone=undone,
        instant=instant,
        latest=None if last is None else last.requested,
        files_deleted=deleted,
        seconds=time.perf_counter() - started,
    )


def _to_undo(snapshot: Snapshot, instant: str, options: WriteOptions) -> Instant:
    """The commit to undo, if it may be."""
    timeline, base = snapshot.timeline, snapshot.base_path
    commits = timeline.completed(WRITE_ACTIONS)
    found = next((i for i in commits if i.requested == instant), None)
    if found is None:
        _refuse_other(snapshot, instant, options)
        last = timeline.last_completed
        raise InvalidInputError(
            f"{base} has no commit {instant} to roll back; the last one is {'none' if last is None else last.requested}"
        )
    if instant in savepoint_times(timeline):
        raise InvalidInputError(f"{base}: the commit {instant} has a savepoint; delete_savepoint({instant!r}) first")
    later = [
        i.requested for i in commits if i.requested > instant or (i.completed or "") > (found.completed or instant)
    ]
    if later:
        raise InvalidInputError(
            f"{base}: {len(later)} commits came after {instant} ({', '.join(later[:3])}); roll them back first, the "
            "last one first, or restore to a savepoint"
        )
    require_no_writes(snapshot)
    return found


def _refuse_other(snapshot: Snapshot, instant: str, options: WriteOptions) -> None:
    """Say why an instant that is on the timeline, and no completed commit, cannot be rolled back."""
    found = next((i for i in snapshot.timeline.instants if i.requested == instant), None)
    if found is None:
        return
    if found.action in WRITE_ACTIONS and not found.is_completed:
        silence = Patience.of(options)
        raise CommitConflictError(
            f"{snapshot.base_path}: the writer of {found} may be alive; it counts as dead after "
            f"{silence.interval_ms * silence.misses / 1000:.0f} s of silence, and the next writer rolls it back then",
            ours=None,
            theirs=instant,
            file_groups=frozenset(),
            retryable=True,
        )
    raise InvalidInputError(f"{snapshot.base_path}: {found} is no commit; only commits can be rolled back")


def require_no_writes(snapshot: Snapshot) -> None:
    """Refuse while somebody writes: what they read would be gone, and what they commit would hold it still."""
    pending = snapshot.timeline.pending(WRITE_ACTIONS)
    if pending:
        raise CommitConflictError(
            f"{snapshot.base_path}: {pending[0]} is under way; nothing was changed, try again once no one writes",
            ours=None,
            theirs=pending[0].requested,
            file_groups=frozenset(),
            retryable=True,
        )


def _require_versions(snapshot: Snapshot, undone: Instant) -> None:
    """All files that become the newest again are there."""
    target = undone_snapshot(snapshot, {undone.requested})
    commit = snapshot.timeline.commit_metadata(undone)
    needed: dict[tuple[str, str], str | None] = {
        (path, stat.file_id): stat.prev_commit
        for path, stats in commit.write_stats.items()
        for stat in stats
        if stat.prev_commit != NO_PREVIOUS_COMMIT
    }
    needed |= {(path, file_id): None for path, ids in (commit.replaced or {}).items() for file_id in ids}
    there = {(base.partition, base.file_id): base for base in target.base_files({path for path, _ in needed})}
    for group, version in sorted(needed.items()):
        base = there.get(group)
        if base is None or version not in (None, base.instant) or not _is_stored(snapshot, base.relative_path):
            raise InvalidInputError(
                f"{snapshot.base_path}: the commit {undone.requested} cannot be rolled back, since the cleaner took "
                f"the version of {join_path(*group)} that it rewrote. Nothing was changed"
            )


def _require_beginning(snapshot: Snapshot, undone: Instant) -> None:
    """What archived commits wrote is read since it is older than the active timeline, which has to begin somewhere."""
    timeline, left = snapshot.timeline, snapshot.timeline.once_gone({undone.requested})
    names = [name for files in snapshot.listing().values() for name in files]
    found = {parsed.instant for parsed in map(parse_base_file_name, names) if parsed is not None}
    lost = sorted(i for i in found - {undone.requested} if timeline.is_committed(i) and not left.is_committed(i))
    if lost:
        raise InvalidInputError(
            f"{snapshot.base_path}: the commit {undone.requested} cannot be rolled back: it is the only one that is "
            f"not archived, and without it no reader would take files of archived ones, the last of them {lost[-1]}, "
            "for committed. Nothing was changed; write the rows of before anew instead"
        )


def _is_stored(snapshot: Snapshot, relative_path: str) -> bool:
    return snapshot.storage.exists(f"{snapshot.base_path}/{relative_path}")


def _prepared(tidied: Tidied, undone: Instant, options: WriteOptions) -> Snapshot:
    """The table, whose metadata can lose the commit."""
    snapshot, names = tidied.snapshot, {undone.requested}
    target = undone_snapshot(snapshot, names)
    if not knows_commits(snapshot, names):
        widen(snapshot, target, undone_partitions(snapshot.timeline, [undone]), tidied.clock, options)
    narrow_definitions(snapshot, target.schema)
    return replace_metadata_timeline(snapshot)


def restore(handle: TableHandle, options: WriteOptions, savepoint: str) -> RestoreResult:
    """Undo what came after a savepoint; see :meth:`lakedex.Table.restore`."""
    started = time.perf_counter()
    require_exclusive_create(handle.storage, handle.base_path)
    finish_cleans(handle, options)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        tidied = tidy(handle, options, lock)
        snapshot = tidied.snapshot
        require_no_clean(snapshot)
        require_no_writes(snapshot)
        found = next((i for i in snapshot.timeline.completed({"savepoint"}) if i.requested == savepoint), None)
        if found is None:
            known = ", ".join(sorted(savepoint_times(snapshot.timeline))) or "none"
            raise InvalidInputError(f"{handle.base_path} has no savepoint {savepoint}; it has {known}")
        return restore_to(snapshot, found, tidied.clock, options, started)
