"""Undo a write, failed or completed, on the data timeline and in the metadata table; and find the failed ones.

By themselves only failed writes are rolled back: their writer is dead for sure (its process on this host is gone) or
its heartbeat stopped long ago. Order matters, since a crash may strike here too. A completed commit becomes pending
first, in one step. A pending one stays so, and nothing of it is read, until everything else is gone; then its own files
go, last of all.

Files whose names have the write's instant are deleted, log files too. In version 6 a delta commit also writes log files
that are named after the base file of their slice: those stay, and a command block in the next log file of the slice
takes their blocks back (``RollbackHelperV1``); both are listed in the metadata table. A compaction that is pending
becomes a plan again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lakedex.codec.table_paths import file_path, is_instant, last_part
from lakedex.errors import CommitConflictError, CorruptFileError, UnsupportedFeatureError
from lakedex.index.registry import INDEXES
from lakedex.index.written_file import WrittenFile
from lakedex.io.liveness import delete_heartbeat, is_expired
from lakedex.io.storage import FileInfo, Storage, TableFiles
from lakedex.layout.contained_files import (
    delete_files,
    delete_temp,
    inner_folders,
    list_folder,
    require_folders,
)
from lakedex.layout.names import instant_of, join_path, parse_base_file_name, parse_log_file_name, parse_marker_name
from lakedex.layout.rolled_back_logs import log_files_with, take_back
from lakedex.maintenance.metadata_undo import record_undo, snapshot_without, written_since
from lakedex.metadata.store import MetadataStore
from lakedex.options import HeartbeatOptions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import (
    WRITE_ACTIONS,
    Timeline,
    complete,
    create_inflight,
    create_requested,
    remove_file,
    remove_pending,
    revert_completed,
)
from lakedex.timeline.commit_metadata import (
    RollbackMetadata,
    RollbackPlan,
    RollbackRequest,
    encode_requested_replace,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from lakedex.timeline.instant import COMPLETED_ACTION, Instant, InstantClock, State, parse_instant_name
from lakedex.types import TableType

__all__ = [
    "PLANNED",
    "HeartbeatPolicy",
    "by_partition",
    "committed_files",
    "kept_log_files",
    "marked_files",
    "planned_files",
    "remove_metadata_of",
    "remove_orphans",
    "remove_unaccepted",
    "replace_metadata_timeline",
    "roll_back",
    "rollback_failed_writes",
]


PLANNED = frozenset({"compaction", "logcompaction"})
"""Actions whose plan stays when its execution is undone: writers have gone on as if it was to be carried out."""


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy:
    """How long a writer may be silent before it counts as dead: ``misses`` beats of ``interval``.

    ``failed_writes`` is ``hoodie.clean.failed.writes.policy``. EAGER takes a pending action without a heartbeat for
    dead at once, as Hudi does: a single Java writer has none. Writers that show that they live are left alone in any
    case. With NEVER no write is undone.
    """

    options: HeartbeatOptions

    def is_expired_write(self, snapshot: Snapshot, instant: Instant) -> bool:
        """Whether the writer of a pending instant is dead."""
        try:
            started = snapshot.files.storage.modified(f"{snapshot.timeline.path}/{instant.file_name}")
        except FileNotFoundError:
            return False  # Its own writer is just going on with it, or giving it up.
        return self._is_expired(snapshot, instant.requested, None if self.options.failed_writes == "EAGER" else started)

    def has_stopped(self, snapshot: Snapshot, instant: str) -> bool:
        """Whether the heartbeat of an instant that nobody should be working on has stopped, or there is none."""
        return self._is_expired(snapshot, instant, None)

    def _is_expired(self, snapshot: Snapshot, instant: str, started: int | None) -> bool:
        return is_expired(
            snapshot.files,
            instant,
            int(time.time() * 1000),
            started_ms=started,
            interval_ms=self.options.interval_ms,
            misses=self.options.misses,
        )


def rollback_failed_writes(snapshot: Snapshot, clock: InstantClock, expiry: HeartbeatPolicy) -> list[str]:
    """Undo all expired writes, and go on with rollbacks whose own process died. Call under the table lock.

    Returns:
        The instants that were undone.

    Raises:
        UnsupportedFeatureError: a pending action that lakedex cannot undo and must not write beside.
    """
    undone = []
    for instant in (*snapshot.timeline.pending(), *_half_undone(snapshot, expiry)):
        if snapshot.timeline.is_clustering(instant):
            continue  # Its plan stays until it is run; writes keep off its file groups.
        if instant.action in PLANNED and snapshot.config.table_type == TableType.MERGE_ON_READ:
            _finish_revert(snapshot, instant, clock, expiry)
            continue
        if instant.action in ("indexing", *PLANNED):
            raise UnsupportedFeatureError(
                f"{snapshot.files}: {instant.action} {instant.requested} is pending; "
                "finish it or roll it back with Hudi before you write",
                feature=f"pending {instant.action}",
            )
        if instant.action == "savepoint" and expiry.is_expired_write(snapshot, instant):
            remove_pending(snapshot.timeline, instant)
        if instant.action not in WRITE_ACTIONS:
            continue
        if expiry.options.failed_writes != "NEVER" and (
            instant.is_completed or expiry.is_expired_write(snapshot, instant)
        ):
            roll_back(snapshot, instant, clock)
            snapshot = replace_metadata_timeline(snapshot)
            undone.append(instant.requested)
    return undone


def _finish_revert(snapshot: Snapshot, instant: Instant, clock: InstantClock, expiry: HeartbeatPolicy) -> None:
    """Go on with the rollback of a compaction whose process died; others are left to whoever runs the plan."""
    if snapshot.timeline.pending_rollback_of(instant.requested) and expiry.is_expired_write(snapshot, instant):
        roll_back(snapshot, instant, clock)


def _half_undone(snapshot: Snapshot, expiry: HeartbeatPolicy) -> Iterator[Instant]:
    """Instants of pending rollbacks that are not pending themselves: completed commits, or instants gone already.

    Java removes the instant before it completes its rollback, so there is one without the other if it dies there.
    """
    timeline = snapshot.timeline
    completed = {instant.requested: instant for instant in timeline.completed(WRITE_ACTIONS)}
    for rollback in timeline.pending({"rollback"}):
        plan = timeline.begun_rollback_plan(rollback.requested)
        if plan is None or not expiry.is_expired_write(snapshot, replace(rollback, requested=plan.instant)):
            continue  # Who undoes a completed commit keeps up that commit's heartbeat.
        if plan.instant in completed and plan.action not in PLANNED:
            yield completed[plan.instant]
        if plan.action in WRITE_ACTIONS and not timeline.contains(plan.instant):
            # Without a file of its own: what has to go is in the plan.
            yield Instant(plan.instant, plan.action, State.COMPLETED, None, "")


def remove_orphans(snapshot: Snapshot, expiry: HeartbeatPolicy, own: Collection[str] | None = None) -> set[str]:
    """Remove what writers that died at their very end left: markers of completed writes, heartbeats of no write.

    Call under the table lock. A write that is just tidying up after itself has a living heartbeat and is left alone.

    Args:
        snapshot: the table.
        expiry: says which heartbeats have stopped.
        own: names of the entries of ``.hoodie``, to list no folder that is not there; None lists all.

    Returns:
        Instants with a living heartbeat that are not pending, as those of index builds.
    """
    files, timeline = snapshot.files, snapshot.timeline
    pending = {instant.requested for instant in timeline.pending()}
    completed = {instant.requested for instant in timeline.completed(WRITE_ACTIONS)}
    listed = {
        name: {entry.name for entry in list_folder(files, f".hoodie/{name}")} if own is None or name in own else set()
        for name in (".heartbeat", ".temp")
    }
    beats = set(filter(is_instant, listed[".heartbeat"])) - pending
    temps = listed[".temp"] & completed
    half_built = {instant.requested for instant in snapshot.metadata.timeline.pending({"deltacommit"})}
    for instant in sorted(beats | temps):
        if expiry.has_stopped(snapshot, instant):
            if instant in half_built and not timeline.contains(instant):
                remove_metadata_of(snapshot, instant)  # An index build has no instant but that one.
            delete_temp(files, instant)
            delete_heartbeat(files, instant)
            beats.discard(instant)
    return beats


def roll_back(
    snapshot: Snapshot,
    undone: Instant,
    clock: InstantClock,
    *,
    part_of_restore: bool = False,
    keeps_plan: bool = False,
) -> RollbackMetadata:
    """Undo one write, pending or completed. Call under the table lock; may be repeated after a crash.

    A pending compaction becomes a plan that has not begun. A restore takes plans away too, puts the metadata table
    right itself when all of its commits are undone, and keeps their instants pending until then. With
    ``keeps_plan`` an inflight clustering is requested again too, as Hudi leaves it.

    Raises:
        CorruptFileError: a file of the commit, of its markers or of the rollback's plan is none of the table; nothing
            was changed.
    """
    files, timeline = snapshot.files, snapshot.timeline
    started = time.time()
    found = {*marked_files(snapshot, undone)} | committed_files(timeline, undone)
    rollback = timeline.pending_rollback_of(undone.requested)
    planned = None if rollback is None else timeline.rollback_plan(rollback.requested)
    action = undone.action if planned is None else planned.action
    keeps_plan = keeps_plan or (action in PLANNED and not part_of_restore)
    if planned is not None:
        found |= planned_files(planned)
    names, shared = _split(snapshot, undone.requested, found, keeps_plan)
    require_folders(files, {partition for partition, _ in (*names, *shared)})
    if rollback is None:
        when = clock.next(max(snapshot.last_time, undone.requested))
        requests = (*_requests(files, undone.requested, sorted(names)), *_log_requests(files, shared))
        plan = RollbackPlan(instant=undone.requested, action=undone.action, requests=requests)
        rollback = create_requested(timeline, when, "rollback", encode_rollback_plan(plan))
    if rollback.state is State.REQUESTED:
        rollback = create_inflight(timeline, rollback)
    pending = _made_pending(timeline, undone)
    remove_metadata_of(snapshot, undone.requested)
    for index in INDEXES:
        index.discard(snapshot, undone.requested)
    deleted: dict[str, tuple[str, ...]] = {}
    for partition, name in sorted(names):
        path = files.path(partition, name)
        if files.storage.exists(path):
            delete_files(files, [(partition, name)])
            deleted[partition] = (*deleted.get(partition, ()), path)
    commands, failed = take_back(files, shared, undone.requested, rollback.requested)
    done = RollbackMetadata(
        started=rollback.requested,
        millis=int((time.time() - started) * 1000),
        instant=undone.requested,
        action=undone.action,
        deleted=deleted,
        command_logs=_absolute(files, commands),
        failed_logs=_absolute(files, failed),
    )
    if not part_of_restore and (commands or written_since(replace_metadata_timeline(snapshot), {undone.requested})):
        _correct(snapshot, done, names, clock)
    completion = clock.next(max(timeline.last_time, rollback.requested))
    complete(timeline, rollback, completion, encode_rollback_metadata(done))
    delete_temp(files, undone.requested)
    if keeps_plan:
        remove_file(timeline, f"{undone.requested}.{action}.inflight")
    elif not part_of_restore:
        remove_pending(timeline, pending)
    if not part_of_restore:
        # Last: while it is there a crash leaves an instant whose writer is known to be dead, not one that may be
        # starting.
        delete_heartbeat(files, undone.requested)
    return done


def _has_completed_file(instant: Instant) -> bool:
    """Whether the instant is completed, or was until a restore that is under way."""
    named = parse_instant_name(instant.file_name)
    return named is not None and named.is_completed


def _made_pending(timeline: Timeline, undone: Instant) -> Instant:
    """A completed commit made pending; its pending files may bear another action's name (clustering)."""
    action = next(
        (
            alias
            for alias, name in COMPLETED_ACTION.items()
            if name == undone.action
            and timeline.storage.exists(f"{timeline.path}/{undone.requested}.{alias}.requested")
        ),
        undone.action,
    )
    pending = replace(undone, action=action, state=State.INFLIGHT, completed=None)
    if _has_completed_file(undone):
        revert_completed(timeline, pending, encode_requested_replace() if action == "replacecommit" else b"")
    return pending


def _absolute(files: TableFiles, logs: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {path: {files.path(path, name): size for name, size in own.items()} for path, own in logs.items()}


def _split(
    snapshot: Snapshot, undone: str, found: Iterable[tuple[str, str]], keeps_plan: bool
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Files to delete, and log files of which only some blocks are the write's own (version 6).

    On a merge-on-read table all files of the touched partitions go that are named after the instant: a log file that
    rolled over, and in version 6 those of the slice that a compaction opened. While its plan stays those stay too.

    Raises:
        CorruptFileError: a log file of another instant, where log files are named after the one that wrote them.
    """
    own, shared = set(), set()
    for partition, name in found:
        log = parse_log_file_name(name)
        if log is None or log.instant == undone:
            own.add((partition, name))
        elif snapshot.timeline.layout == 1:
            shared.add((partition, name))
        else:
            where = snapshot.files.temp(undone)
            raise CorruptFileError(where, 0, f"log files of {undone}", join_path(partition, name))
    if keeps_plan and snapshot.timeline.layout == 1:
        return {(path, name) for path, name in own if parse_base_file_name(name) is not None}, set()
    if snapshot.config.table_type == TableType.MERGE_ON_READ:
        for partition in {path for path, _ in (*own, *shared)}:
            entries = list_folder(snapshot.files, partition)
            own |= {(partition, entry.name) for entry in entries if instant_of(entry.name) == undone}
    return own, shared


def _correct(snapshot: Snapshot, done: RollbackMetadata, files: Iterable[tuple[str, str]], clock: InstantClock) -> None:
    """Write the correction again if a rollback that died has written it."""
    remove_metadata_of(snapshot, done.started)
    own = replace_metadata_timeline(snapshot_without(snapshot, {done.instant}))
    record_undo(own, by_partition(files), done.started, clock, added=kept_log_files(snapshot.files, [done]))


def replace_metadata_timeline(snapshot: Snapshot) -> Snapshot:
    """The same table with its metadata table as it is now."""
    old = snapshot.metadata
    fresh = MetadataStore(old.files, snapshot.timeline, old.timeline.reload(), old.partitions, old.cache)
    return replace(snapshot, metadata=fresh, _view=None)


def kept_log_files(files: TableFiles, rollbacks: Iterable[RollbackMetadata]) -> dict[str, dict[str, int]]:
    """Log files that rollbacks of version 6 left and added and that are still there, with their sizes, by partition.

    A later rollback of the same restore may have deleted some, also before it died and was begun again.
    """
    named: dict[str, set[str]] = {}
    for one in rollbacks:
        for logs in (one.failed_logs, one.command_logs):
            for partition, sizes in logs.items():
                named.setdefault(partition, set()).update(map(last_part, sizes))
    present = {path: {entry.name: entry.size for entry in list_folder(files, path)} for path in named}
    kept = {path: {name: present[path][name] for name in own & present[path].keys()} for path, own in named.items()}
    return {path: logs for path, logs in kept.items() if logs}


def by_partition(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """File names by partition."""
    found: dict[str, list[str]] = {}
    for partition, name in sorted(files):
        found.setdefault(partition, []).append(name)
    return found


def committed_files(timeline: Timeline, instant: Instant) -> set[tuple[str, str]]:
    """(partition, file name) of all files that a completed commit has written; none for a pending one.

    Raises:
        CorruptFileError: one of them is no data file.
    """
    if not _has_completed_file(instant):
        return set()
    stats = timeline.commit_metadata(instant).write_stats
    files = {(partition, stat.file_name) for partition, written in stats.items() for stat in written if stat.path}
    for partition, name in files:
        file_path(partition, name, f"{timeline.path}/{instant.file_name}")
    return files


def planned_files(plan: RollbackPlan) -> set[tuple[str, str]]:
    """(partition, file name) of all files that a rollback sets out to delete or to take blocks back of."""
    return {
        (request.partition_path, last_part(path))
        for request in plan.requests
        for path in (*request.files, *request.log_files)
    }


def _requests(own: TableFiles, instant: str, files: Iterable[tuple[str, str]]) -> Iterable[RollbackRequest]:
    for partition, name in files:
        parsed = parse_base_file_name(name)
        file_id = parsed.file_id if parsed is not None else ""
        yield RollbackRequest(
            partition_path=partition,
            file_id=file_id,
            files=(own.path(partition, name),),
            latest_base_instant=instant,
        )


def _log_requests(own: TableFiles, logs: Iterable[tuple[str, str]]) -> Iterable[RollbackRequest]:
    for partition, name in sorted(logs):
        parsed, path = parse_log_file_name(name), own.path(partition, name)
        if parsed is not None and own.storage.exists(path):
            yield RollbackRequest(
                partition_path=partition,
                file_id=parsed.file_id,
                latest_base_instant=parsed.instant,
                log_files={path: own.storage.size(path)},
            )


def marked_files(snapshot: Snapshot, undone: Instant | str) -> list[tuple[str, str]]:
    """(partition, file name) of all files that a write may have made, from markers of both kinds.

    Without any marker folder (a crash before the first, or a writer without markers) partitions are listed, unless the
    write is completed: then its commit says what is left of it. In version 6 the headers of all log files are read
    then.

    Raises:
        CorruptFileError: a marker of something that is no data file of the table.
    """
    instant = undone if isinstance(undone, str) else undone.requested
    files, root = snapshot.files, snapshot.files.temp(instant)
    found: set[tuple[str, str]] = set()
    if files.storage.exists(root):
        require_folders(files, [f".hoodie/.temp/{instant}"])
        for entry in _direct_markers(files.storage, root, "", found):
            # Java's timeline server keeps the markers of all tasks as lines of a few files.
            if entry.name.startswith("MARKERS") and entry.name != "MARKERS.type":
                for line in files.storage.read(f"{root}/{entry.name}").decode("utf-8", "replace").splitlines():
                    _add_marked(line.strip(), f"{root}/{entry.name}", found)
        return sorted(found)
    if not isinstance(undone, str) and (undone.is_completed or _has_completed_file(undone)):
        return []
    for partition in snapshot.listing():
        for entry in list_folder(files, partition):
            if instant_of(entry.name) == instant:
                found.add((partition, entry.name))
    if snapshot.timeline.layout == 1 and snapshot.config.table_type == TableType.MERGE_ON_READ:
        found |= log_files_with(files, snapshot.listing(), instant)
    return sorted(found)


def remove_unaccepted(snapshot: Snapshot, instant: str, accepted: Iterable[WrittenFile]) -> None:
    """Delete files of a write's attempts whose result did not count. A plain listing must not find them later."""
    kept = {(file.partition, file.file_name) for file in accepted}
    for partition, name in marked_files(snapshot, instant):
        if (partition, name) not in kept:
            delete_files(snapshot.files, [(partition, name)])


def _direct_markers(storage: Storage, root: str, partition: str, found: set[tuple[str, str]]) -> list[FileInfo]:
    """Add the files that markers of tasks announce; the entries of the marker folder of ``partition``."""
    folder = join_path(root, partition)
    entries = storage.list(folder)
    for name in inner_folders(folder, entries):
        _direct_markers(storage, root, join_path(partition, name), found)
    for entry in entries:
        if not entry.is_dir:
            _add_marked(join_path(partition, entry.name), folder, found)
    return entries


def _add_marked(marker: str, source: str, found: set[tuple[str, str]]) -> None:
    """The file that a marker announces; ``source`` is where the marker's path was found."""
    partition, _, name = marker.rpartition("/")
    if (parsed := parse_marker_name(name)) is not None:
        file_path(partition, parsed[0], source)
        found.add((partition, parsed[0]))


def remove_metadata_of(snapshot: Snapshot, instant: str) -> None:
    """Take an instant out of the metadata table: its completed file first, then its log files.

    Readers leave its blocks out all the while, since the data instant is still pending.
    """
    files, store = snapshot.files.metadata, snapshot.metadata
    timeline = store.timeline
    named = ((entry.name, parse_instant_name(entry.name)) for entry in files.storage.list(timeline.path))
    own = [(name, found) for name, found in named if found is not None and found.requested == instant]
    if not own:
        return
    completed = [(name, found.action) for name, found in own if found.is_completed]
    if any(action != "deltacommit" for _, action in completed):
        raise CommitConflictError(
            f"{files}: instant {instant} is no delta commit there and cannot be undone; run Hudi's rollback",
            ours=None,
            theirs=instant,
            file_groups=frozenset(),
            retryable=False,
        )
    for name, _ in completed:
        remove_file(timeline, name)
    for folder in inner_folders(files.base_path, files.storage.list(files.base_path)):
        for entry in files.storage.list(files.path(folder)):
            if store.wrote(instant, files.path(folder, entry.name), entry.size):
                delete_files(files, [(folder, entry.name)])
    remove_pending(timeline, Instant(instant, "deltacommit", State.INFLIGHT, None, ""))
