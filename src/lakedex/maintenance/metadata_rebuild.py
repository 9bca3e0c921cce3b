"""A missing or damaged metadata table: repaired before a write, rebuilt on request, removed where it is not wanted.

Readers need none of this: they list storage where the metadata table is not complete. A writer must not leave it so,
since Java trusts what ``hoodie.properties`` lists. As in Hudi (``HoodieBackedTableMetadataWriter.initializeIfNeeded``)
the next write makes a metadata table that is missing, unless ``hoodie.metadata.enable=false`` has it taken away.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from lakedex.codec.table_paths import is_instant
from lakedex.errors import CommitConflictError
from lakedex.index.protocol import CommitPolicy, Index
from lakedex.index.registry import INDEXES, table_indexes
from lakedex.io.liveness import Heartbeat, is_expired
from lakedex.io.locks import table_lock
from lakedex.layout.contained_files import delete_partition
from lakedex.maintenance.index_lifecycle import build_index, refresh_live
from lakedex.maintenance.metadata_init import REBUILDING, Folders, make_metadata_table, remove_metadata_table
from lakedex.maintenance.recovery import INFLIGHT_PARTITIONS
from lakedex.metadata.records import FILES, metadata_partitions_property
from lakedex.options import HeartbeatOptions, LockOptions, WriteOptions
from lakedex.reports import IndexResult, RebuildResult
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.table_config import TableConfig, recover_table_config, update_table_config
from lakedex.types import Progress

__all__ = ["disable_partitions", "needs_repair", "rebuild_metadata", "repair_metadata"]


def _required() -> tuple[Index, ...]:
    """Indexes of the metadata table that lakedex builds, each before those that are made of it."""
    found = [index for index in INDEXES if index.is_built and index.commit_policy is CommitPolicy.REQUIRED]
    return tuple(
        one
        for index in found
        if not index.made_of
        for one in (index, *(other for other in found if index.name in other.made_of))
    )


def rebuild_metadata(handle: TableContext, options: WriteOptions, progress: Progress | None = None) -> RebuildResult:
    """Rebuild the metadata table; see :meth:`lakedex.Maintenance.rebuild_metadata`."""
    started = time.perf_counter()
    before = handle.snapshot()
    listing, built = _rebuild(handle, options, before, progress)
    built += [
        refresh_live(handle, options, index, name, progress=progress)
        for name, index in table_indexes(handle.snapshot()).items()
        if index is not None and index.commit_policy is CommitPolicy.BEST_EFFORT
    ]
    return RebuildResult(
        partitions=len(listing),
        files=sum(map(len, listing.values())),
        indexes=tuple(built),
        seconds=time.perf_counter() - started,
        notes=options.notes,
    )


def needs_repair(snapshot: Snapshot, options: WriteOptions) -> bool:
    """Whether a write has to see to the metadata table first."""
    config = snapshot.config
    if not options.metadata.enabled:
        return bool(config.metadata_partitions or config.metadata_partitions_inflight)
    snapshot.read_partitions()  # Bytes that cannot be read are found here.
    return not snapshot.uses_metadata or bool(snapshot.lost_metadata) or _was_cut_short(snapshot, options.heartbeat)


def repair_metadata(handle: TableContext, options: WriteOptions) -> list[str]:
    """Complete the metadata table, or take it away where it is not wanted. Call without the lock.

    While a write of another engine is under way nothing can be built; what is damaged is disabled then, which is as
    safe: the next write makes it.

    Returns:
        Notes for the write's result.
    """
    snapshot = handle.snapshot()
    if not options.metadata.enabled:
        with table_lock(handle.files, options.lock) as lock:
            recover_table_config(handle.files)
            lock.check()
            remove_metadata_table(handle.files, handle.snapshot().config)
        return ["hoodie.metadata.enable=false: the metadata table was taken away"]
    damaged = snapshot.lost_metadata
    reasons = [f"{name}: {wrong}" for name, wrong in damaged.items()]
    reasons += ["a rebuild was cut short"] if snapshot.uses_metadata and REBUILDING in snapshot.config.raw else []
    why = "; ".join(reasons) or "there was none"
    try:
        if not snapshot.uses_metadata:
            made, built = _rebuild(handle, options, snapshot, None, only_if_lost=True)
            what = ", ".join([FILES.name, *(result.name for result in built)])
            return [f"the metadata table was rebuilt ({why}): {what}, of {sum(map(len, made.values()))} files"]
        names = _with_dependents({*damaged, *_unbuilt(snapshot)}, snapshot)
        columns = _columns_of(snapshot)
        if damaged:
            _disable(handle, options.lock, [name for name in names if name in snapshot.config.metadata_partitions])
        _build(handle, options, names, columns, None)
        _forget_memo(handle, options.lock)
        return [f"rebuilt: {', '.join(names)} ({why})"]
    except CommitConflictError as conflict:
        handle.cache.recheck()
        if damaged := handle.snapshot().lost_metadata:
            _disable(handle, options.lock, tuple(damaged))
        return [f"the metadata table is not complete ({why}) and was not rebuilt: {conflict}"]


def _rebuild(
    handle: TableContext,
    options: WriteOptions,
    before: Snapshot,
    progress: Progress | None,
    only_if_lost: bool = False,
) -> tuple[Folders, list[IndexResult]]:
    """``files``, then the indexes. Which they are is kept in the settings until they are there."""
    names, columns = _wanted(before, options), _columns_of(before)
    name = handle.clock(before.config.timezone).next()
    with Heartbeat(handle.files, name, options.heartbeat.interval_ms):
        memo = f"{name} {','.join(names)}" if names else None
        made = make_metadata_table(handle, options, memo, only_if_lost=only_if_lost)
        built = _build(handle, options, names, columns, progress)
        _forget_memo(handle, options.lock)
    return made, built


def _unbuilt(snapshot: Snapshot) -> frozenset[str]:
    """Indexes that a rebuild was still to make."""
    names = snapshot.config.raw.get(REBUILDING, "").rpartition(" ")[2].split(",")
    return frozenset(names) & {index.name for index in _required()} - snapshot.config.metadata_partitions


def _was_cut_short(snapshot: Snapshot, options: HeartbeatOptions) -> bool:
    memo = snapshot.config.raw.get(REBUILDING)
    if memo is None:
        return False
    interval, misses = options.interval_ms, options.misses
    now, builder = int(time.time() * 1000), memo.partition(" ")[0]
    if not is_instant(builder):
        return True
    return is_expired(snapshot.files, builder, now, interval_ms=interval, misses=misses)


def _forget_memo(handle: TableContext, options: LockOptions) -> None:
    with table_lock(handle.files, options) as lock:
        recover_table_config(handle.files)
        lock.check()
        if REBUILDING in handle.snapshot().config.raw:
            update_table_config(handle.files, {REBUILDING: None})


def _disable(handle: TableContext, options: LockOptions, names: Collection[str]) -> None:
    """Take metadata partitions out of the settings, so that nobody trusts them; all of them with ``files``."""
    with table_lock(handle.files, options) as lock:
        recover_table_config(handle.files)
        lock.check()
        disable_partitions(handle, handle.snapshot().config, names)


def disable_partitions(handle: TableContext, config: TableConfig, names: Collection[str]) -> None:
    """The same under the table lock."""
    files = handle.files
    if FILES.name in names:
        remove_metadata_table(files, config)
        return
    changes = metadata_partitions_property(config.metadata_partitions - set(names))
    changes[INFLIGHT_PARTITIONS] = ",".join(sorted(config.metadata_partitions_inflight - set(names)))
    update_table_config(files, changes)
    for name in names:
        delete_partition(files.metadata, name)


def _with_dependents(damaged: Collection[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Damaged indexes, and those that are made of them."""
    has_partitions = bool(snapshot.config.partition_fields)
    return tuple(
        index.name
        for index in _required()
        if index.name in damaged or (has_partitions and index.made_of & set(damaged))
    )


def _wanted(snapshot: Snapshot, options: WriteOptions) -> tuple[str, ...]:
    """Indexes of a new metadata table: those that the table lists; where it lists none at all, those of the options."""
    listed = snapshot.config.metadata_partitions | _unbuilt(snapshot)
    return tuple(
        index.name for index in _required() if (index.name in listed if listed else index.is_wanted(options.indexes))
    )


def _columns_of(snapshot: Snapshot) -> dict[str, Sequence[str] | None]:
    return {index.name: index.columns_again(snapshot) for index in _required()}


def _build(
    handle: TableContext,
    options: WriteOptions,
    names: Sequence[str],
    columns: Mapping[str, Sequence[str] | None],
    progress: Progress | None,
) -> list[IndexResult]:
    return [
        build_index(handle, options, index, columns=columns[index.name], if_not_exists=True, progress=progress)
        for index in _required()
        if index.name in names and not index.made_of & set(names)  # Else it comes with those.
    ]
