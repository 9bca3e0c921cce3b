"""Undo in the metadata table what came from a commit that is rolled back or restored away.

A commit's own log files of the metadata table go with it. But what came after it may hold the same: a compaction has
its records in a base file, an index build has computed from its files, and a metadata table that was built again knows
nothing of single commits. Then two delta commits do it, so that readers are right at every moment:

* :func:`prepare_undo`, before the commit is undone and under an instant of the metadata table's own: bounds of whole
  partitions that hold for both states, and entries of the files that become the newest again.
* :func:`record_undo`, under the instant of the rollback or restore, so that it counts once that is complete: the files
  are gone, and the bounds are those of what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from lakedex.index.definitions import replace_definitions
from lakedex.index.protocol import RemovedFiles, UndoContext, merge_records
from lakedex.index.registry import INDEXES
from lakedex.io.liveness import Heartbeat
from lakedex.metadata.records import ALL_PARTITIONS, FILES, all_partitions_record, files_key, files_record
from lakedex.metadata.store import DeltaCommit, MetadataStore
from lakedex.metadata.writer import Keyed, write_delta_commit
from lakedex.options import WriteOptions
from lakedex.parallel import run_threads
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.instant import InstantClock

__all__ = [
    "can_drop_log_files",
    "prepare_undo",
    "record_undo",
    "records_of_removal",
    "snapshot_without",
    "write_metadata",
    "written_since",
]


_THREADS = 8


def snapshot_without(snapshot: Snapshot, undone: Collection[str]) -> Snapshot:
    """The table as it will be read once these commits are pending again."""
    timeline, store = snapshot.timeline.without(undone), snapshot.metadata
    metadata = MetadataStore(store.files, timeline, store.timeline, store.partitions, store.cache)
    return Snapshot(snapshot.files, snapshot.config, timeline, metadata)


def can_drop_log_files(snapshot: Snapshot, undone: Collection[str]) -> bool:
    """Whether taking away the commits' own log files leaves the metadata table as it was before them.

    Not so if the metadata table lacks one of them (it was rebuilt), or if something but a clean was written to it
    since: a compaction, an index build, the correction of another rollback.
    """
    if not snapshot.metadata.has(FILES.name):
        return True
    own = snapshot.metadata.timeline
    return all(own.is_completed(requested) for requested in undone) and not written_since(snapshot, undone)


def written_since(snapshot: Snapshot, undone: Collection[str]) -> bool:
    """Whether the metadata table got more than cleans' records after the first of these commits, but for them."""
    if not undone or not snapshot.metadata.has(FILES.name):
        return False
    first = min(undone)
    cleans = {instant.requested for instant in snapshot.timeline.completed({"clean"})}
    later = (i.requested for i in snapshot.metadata.timeline.completed({"commit", "deltacommit"}))
    return any(requested > first and requested not in undone and requested not in cleans for requested in later)


def prepare_undo(
    snapshot: Snapshot,
    target: Snapshot,
    undone: Collection[str],
    partitions: Collection[str],
    clock: InstantClock,
    options: WriteOptions,
) -> None:
    """Make the metadata table right for the table as it is and without some commits alike.

    Where their own log files can be dropped, only definitions have to be.

    Args:
        snapshot: the table.
        target: the table without the commits.
        undone: instants of the commits.
        partitions: those that the commits touched.
        clock: gives the instant.
        options: of the call.
    """
    touched = () if can_drop_log_files(snapshot, undone) else partitions
    store = snapshot.metadata
    instant = clock.next(max(snapshot.timeline.last_time, store.timeline.last_time)) if touched else ""
    ctx = UndoContext(snapshot=snapshot, instant=instant, run=_run)
    updates = [index.before_undo(ctx, target, touched, options) for index in INDEXES]
    if touched:
        listing: Keyed = [(ALL_PARTITIONS, all_partitions_record(map(files_key, touched)))]
        # Should we die in between: its heartbeat tells the next writer that it is to be removed.
        with Heartbeat(snapshot.files, instant):
            write_metadata(snapshot, instant, merge_records(listing, updates), clock)
    for update in updates:
        replace_definitions(snapshot.files.storage, update.definitions)


def record_undo(
    snapshot: Snapshot,
    files: Mapping[str, Sequence[str]],
    instant: str,
    clock: InstantClock,
    added: Mapping[str, Mapping[str, int]] | None = None,
) -> None:
    """Take files out of the metadata table and say what is left of their partitions.

    Args:
        snapshot: the table after the commits were undone.
        files: names of their files by partition.
        instant: of the rollback or restore, which is still pending.
        clock: for the completion.
        added: by partition, names and sizes of log files that are there from now on; None for none.
    """
    if not snapshot.metadata.has(FILES.name):
        return
    listing = snapshot.listing(files)
    gone = [path for path, names in files.items() if path and not set(listing.get(path, ())) - set(names)]
    removed = RemovedFiles(names=files, partitions=gone, were_current=True)
    write_metadata(snapshot, instant, records_of_removal(snapshot, removed, instant, added), clock)


def records_of_removal(
    snapshot: Snapshot, removed: RemovedFiles, instant: str, added: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Keyed]:
    """Records by metadata partition that take files out (``HoodieTableMetadataUtil.convertMetadataToRecords``).

    A partition without files leaves the list of partitions.

    Args:
        snapshot: the table.
        removed: the files.
        instant: the action that removes them.
        added: files that it adds.
    """
    if not snapshot.metadata.has(FILES.name):
        return {}
    new = added or {}
    changed = {path: (new.get(path, {}), removed.names.get(path, ())) for path in (*removed.names, *new)}
    listed: Keyed = [(files_key(path), files_record(*both)) for path, both in changed.items() if any(both)]
    if removed.partitions:
        listed.append((ALL_PARTITIONS, all_partitions_record((), map(files_key, removed.partitions))))
    ctx = UndoContext(snapshot=snapshot, instant=instant, run=_run)
    return merge_records(listed, [index.undo(ctx, removed) for index in INDEXES])


def write_metadata(
    snapshot: Snapshot, instant: str, updates: Mapping[str, Keyed], clock: InstantClock
) -> DeltaCommit | None:
    """Write a delta commit of the metadata table, without what the table does not have; None if nothing is left."""
    store = snapshot.metadata
    kept = {name: records for name, records in updates.items() if records and store.has(name)}
    if not kept:
        return None
    floor = max(instant, snapshot.timeline.last_time, store.timeline.last_time)
    return write_delta_commit(store, instant, kept, partial(clock.next, floor), _run)[0]


def _run(task: Callable[[Any], Any], items: Sequence[Any], label: str = "") -> list[Any]:
    return run_threads(task, items, _THREADS)
