"""Undoing writes that died: what they left is removed, on the data timeline and in the metadata table.

Only expired instants are undone: their writer is dead for sure (its process on this host is gone) or its heartbeat
stopped long ago. Order matters, since a crash may strike here too: the failed instant stays pending, so that nothing
of it is read, until everything else is gone; then its own files go, last of all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from lakedex.errors import CommitConflictError, UnsupportedFeatureError
from lakedex.index.bitmap.runs import remove_runs_of
from lakedex.io.heartbeat import delete_heartbeat, is_expired
from lakedex.io.storage import Storage
from lakedex.layout.names import join_path, parse_base_file_name, parse_log_file_name, parse_marker_name
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import metadata_path
from lakedex.timeline.commit_metadata import (
    RollbackMetadata,
    RollbackPlan,
    RollbackRequest,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from lakedex.timeline.instant import Instant, InstantClock, State
from lakedex.timeline.timeline import WRITE_ACTIONS
from lakedex.timeline.transitions import complete, create_inflight, create_requested, remove_pending

__all__ = ["marked_files", "remove_leftovers", "remove_metadata_of", "roll_back", "roll_back_expired", "temp_path"]


def temp_path(base_path: str, instant: str) -> str:
    """Folder of an instant's markers and spilled filters."""
    return f"{base_path}/.hoodie/.temp/{instant}"


def roll_back_expired(snapshot: Snapshot, clock: InstantClock, interval_ms: int, misses: int) -> list[str]:
    """Undo all expired writes. Call under the table lock.

    Returns:
        The instants that were undone.

    Raises:
        UnsupportedFeatureError: a pending action that lakedex cannot undo and must not write beside.
    """
    undone = []
    for instant in snapshot.timeline.pending():
        if instant.action in ("clustering", "restore", "indexing", "compaction", "logcompaction"):
            raise UnsupportedFeatureError(
                f"{snapshot.base_path}: {instant.action} {instant.requested} is pending; "
                "finish it or roll it back with Hudi before you write",
                feature=f"pending {instant.action}",
            )
        if instant.action not in ("commit", "deltacommit", "replacecommit"):
            continue
        if _expired(snapshot, instant, interval_ms, misses):
            roll_back(snapshot, instant, clock)
            undone.append(instant.requested)
    return undone


def remove_leftovers(snapshot: Snapshot, interval_ms: int, misses: int) -> None:
    """Remove what writers that died at their very end left: markers of completed writes, heartbeats of no write.

    Call under the table lock. A write that is just tidying up after itself has a living heartbeat and is left alone.
    """
    storage, base, timeline = snapshot.storage, snapshot.base_path, snapshot.timeline
    pending = {instant.requested for instant in timeline.pending()}
    completed = {instant.requested for instant in timeline.completed(WRITE_ACTIONS)}
    beats = {entry.name for entry in storage.list(f"{base}/.hoodie/.heartbeat")} - pending
    temps = {entry.name for entry in storage.list(f"{base}/.hoodie/.temp")} & completed
    half_built = {instant.requested for instant in snapshot.metadata.timeline.pending({"deltacommit"})}
    now = int(time.time() * 1000)
    for instant in sorted(beats | temps):
        if is_expired(storage, base, instant, now, interval_ms=interval_ms, misses=misses):
            if instant in half_built and not timeline.contains(instant):
                remove_metadata_of(snapshot, instant)  # An index build has no instant but that one.
            storage.delete_tree(temp_path(base, instant))
            delete_heartbeat(storage, base, instant)


def _expired(snapshot: Snapshot, instant: Instant, interval_ms: int, misses: int) -> bool:
    path = f"{snapshot.timeline.path}/{instant.file_name}"
    try:
        started = snapshot.storage.modified(path)
    except FileNotFoundError:
        return False  # Its own writer is just going on with it, or giving it up.
    return is_expired(
        snapshot.storage,
        snapshot.base_path,
        instant.requested,
        int(time.time() * 1000),
        started_ms=started,
        interval_ms=interval_ms,
        misses=misses,
    )


def roll_back(snapshot: Snapshot, failed: Instant, clock: InstantClock) -> None:
    """Undo one pending write. Call under the table lock; may be repeated after a crash."""
    storage, base, timeline = snapshot.storage, snapshot.base_path, snapshot.timeline
    started = time.time()
    files = marked_files(snapshot, failed.requested)
    rollback = timeline.pending_rollback_of(failed.requested)
    if rollback is None:
        when = clock.next(max(timeline.last_time, snapshot.metadata.timeline.last_time, failed.requested))
        requests = tuple(_requests(base, failed.requested, files))
        plan = RollbackPlan(instant=failed.requested, action=failed.action, requests=requests)
        rollback = create_requested(timeline, when, "rollback", encode_rollback_plan(plan))
    if rollback.state is State.REQUESTED:
        rollback = create_inflight(timeline, rollback)
    remove_metadata_of(snapshot, failed.requested)
    remove_runs_of(storage, base, failed.requested)
    deleted: dict[str, tuple[str, ...]] = {}
    for partition, name in files:
        path = f"{base}/{join_path(partition, name)}"
        if storage.exists(path):
            storage.delete(path)
            deleted[partition] = (*deleted.get(partition, ()), path)
    done = RollbackMetadata(
        started=rollback.requested,
        millis=int((time.time() - started) * 1000),
        instant=failed.requested,
        action=failed.action,
        deleted=deleted,
    )
    completion = clock.next(max(timeline.last_time, rollback.requested))
    complete(timeline, rollback, completion, encode_rollback_metadata(done))
    storage.delete_tree(temp_path(base, failed.requested))
    remove_pending(timeline, failed)
    # Last: while it is there a crash leaves an instant whose writer is known to be dead, not one that may be starting.
    delete_heartbeat(storage, base, failed.requested)


def _requests(base: str, instant: str, files: Iterable[tuple[str, str]]) -> Iterable[RollbackRequest]:
    for partition, name in files:
        parsed = parse_base_file_name(name)
        file_id = parsed.file_id if parsed is not None else ""
        yield RollbackRequest(
            partition_path=partition,
            file_id=file_id,
            files=(f"{base}/{join_path(partition, name)}",),
            latest_base_instant=instant,
        )


def marked_files(snapshot: Snapshot, instant: str) -> list[tuple[str, str]]:
    """(partition, file name) of all files that a write may have made, from markers of both kinds.

    Without any marker folder (a crash before the first, or a writer without markers) partitions are listed.
    """
    storage, root = snapshot.storage, temp_path(snapshot.base_path, instant)
    found: set[tuple[str, str]] = set()
    if storage.exists(root):
        _direct_markers(storage, root, "", found)
        for entry in storage.list(root):
            # Java's timeline server keeps the markers of all tasks as lines of a few files.
            if entry.name.startswith("MARKERS") and entry.name != "MARKERS.type":
                for line in storage.read(f"{root}/{entry.name}").decode("utf-8", "replace").splitlines():
                    partition, _, name = line.strip().rpartition("/")
                    if (marker := parse_marker_name(name)) is not None:
                        found.add((partition, marker[0]))
        return sorted(found)
    for partition in snapshot.listing():
        for entry in storage.list(join_path(snapshot.base_path, partition)):
            if (parsed := parse_base_file_name(entry.name)) is not None and parsed.instant == instant:
                found.add((partition, entry.name))
    return sorted(found)


def _direct_markers(storage: Storage, root: str, partition: str, found: set[tuple[str, str]]) -> None:
    for entry in storage.list(join_path(root, partition)):
        if entry.is_dir:
            _direct_markers(storage, root, join_path(partition, entry.name), found)
        elif (marker := parse_marker_name(entry.name)) is not None:
            found.add((partition, marker[0]))


def remove_metadata_of(snapshot: Snapshot, instant: str) -> None:
    """Take an instant out of the metadata table: its completed file first, then its log files.

    Readers leave its blocks out all the while, since the data instant is still pending.
    """
    storage, root = snapshot.storage, metadata_path(snapshot.base_path)
    timeline = snapshot.metadata.timeline
    own = [entry.name for entry in storage.list(timeline.path) if entry.name.startswith((f"{instant}.", f"{instant}_"))]
    if not own:
        return
    if any(name.startswith(f"{instant}_") and not name.endswith(".deltacommit") for name in own):
        raise CommitConflictError(
            f"{root}: instant {instant} is no delta commit there and cannot be undone; run Hudi's rollback",
            ours=None,
            theirs=instant,
            file_groups=frozenset(),
            retryable=False,
        )
    for name in sorted(own, key=lambda name: not name.startswith(f"{instant}_")):
        if name.startswith(f"{instant}_"):
            storage.delete(f"{timeline.path}/{name}")
    for folder in storage.list(root):
        if not folder.is_dir or folder.name == ".hoodie":
            continue
        for entry in storage.list(f"{root}/{folder.name}"):
            log = parse_log_file_name(entry.name)
            if log is not None and log.instant == instant:
                storage.delete(f"{root}/{folder.name}/{entry.name}")
    remove_pending(timeline, Instant(instant, "deltacommit", State.INFLIGHT, None, ""))
