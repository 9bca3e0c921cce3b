"""A lost or damaged metadata table: mended before a write, made anew on demand, given up where it is not wanted.

Readers need none of this: they list storage where the metadata table is not whole. A writer must not leave it so, since
Java trusts what ``hoodie.properties`` lists. As in Hudi (``HoodieBackedTableMetadataWriter.initializeIfNeeded``) the
next write makes a metadata table that is missing, unless ``hoodie.metadata.enable=false`` has it taken away.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from lakedex.codec.column_bounds import stats_supported
from lakedex.codec.table_paths import is_instant
from lakedex.errors import CommitConflictError
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.definitions import definitions_path, read_definitions, source_fields, stats_version
from lakedex.io.liveness import Heartbeat, is_expired
from lakedex.io.locks import table_lock
from lakedex.layout.table_files import delete_partition
from lakedex.maintenance.bitmap_lifecycle import refresh_bitmap_index
from lakedex.maintenance.index_lifecycle import build_index
from lakedex.maintenance.metadata_init import REBUILDING, Folders, make_metadata_table, remove_metadata_table
from lakedex.maintenance.recovery import INFLIGHT_PARTITIONS
from lakedex.metadata.records import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, metadata_partitions_property
from lakedex.metadata.store import metadata_path
from lakedex.options import WriteOptions
from lakedex.reports import IndexResult, RebuildResult
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import TableConfig, recover_table_config, update_table_config
from lakedex.types import META_COLUMNS, Progress

__all__ = ["disable_partitions", "needs_repair", "rebuild_metadata", "repair_metadata"]


_ORDER = (COLUMN_STATS.name, PARTITION_STATS.name, BLOOM_FILTERS.name)


def rebuild_metadata(handle: TableContext, options: WriteOptions, progress: Progress | None = None) -> RebuildResult:
    """Make the metadata table anew; see :meth:`lakedex.Maintenance.rebuild_metadata`."""
    started = time.perf_counter()
    before = handle.snapshot()
    listing, built = _remade(handle, options, before, progress)
    built += [
        refresh_bitmap_index(handle, options, name, progress=progress)
        for name in sorted(read_bitmap_definitions(handle.storage, handle.base_path))
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
    if not options.metadata:
        return bool(config.metadata_partitions or config.metadata_partitions_inflight)
    snapshot.read_partitions()  # Bytes that cannot be read are found here.
    return not snapshot.uses_metadata or bool(snapshot.lost_metadata) or _was_cut_short(snapshot, options)


def repair_metadata(handle: TableContext, options: WriteOptions) -> list[str]:
    """Make the metadata table whole, or take it away where it is not wanted. Call without the lock.

    While a write of another engine is under way nothing can be built; what is damaged is given up then, which is as
    safe: the next write makes it.

    Returns:
        Notes for the write's result.
    """
    snapshot = handle.snapshot()
    if not options.metadata:
        with table_lock(handle.storage, handle.base_path, options) as lock:
            recover_table_config(handle.storage, handle.base_path)
            lock.check()
            remove_metadata_table(handle.storage, handle.base_path, handle.snapshot().config)
        return ["hoodie.metadata.enable=false: the metadata table was taken away"]
    lost = snapshot.lost_metadata
    reasons = [f"{name}: {wrong}" for name, wrong in lost.items()]
    reasons += ["a rebuild was cut short"] if snapshot.uses_metadata and REBUILDING in snapshot.config.raw else []
    why = "; ".join(reasons) or "there was none"
    try:
        if not snapshot.uses_metadata:
            made, built = _remade(handle, options, snapshot, None, only_if_lost=True)
            what = ", ".join([FILES.name, *(result.name for result in built)])
            return [f"the metadata table was made anew ({why}): {what}, of {sum(map(len, made.values()))} files"]
        names = _with_parents({*lost, *_unbuilt(snapshot)}, snapshot)
        columns = _stats_columns(snapshot)
        if lost:
            _retire(handle, options, [name for name in names if name in snapshot.config.metadata_partitions])
        _build(handle, options, names, columns, None)
        _forget_memo(handle, options)
        return [f"built anew: {', '.join(names)} ({why})"]
    except CommitConflictError as conflict:
        handle.cache.completeness.clear()
        if lost := handle.snapshot().lost_metadata:
            _retire(handle, options, tuple(lost))
        return [f"the metadata table is not whole ({why}) and was not made anew: {conflict}"]


def _remade(
    handle: TableContext,
    options: WriteOptions,
    before: Snapshot,
    progress: Progress | None,
    only_if_lost: bool = False,
) -> tuple[Folders, list[IndexResult]]:
    """``files``, then the indexes. Which they are is kept in the settings until they are there."""
    names, columns = _wanted(before, options), _stats_columns(before)
    name = InstantClock(before.config.timezone).next()
    with Heartbeat(handle.storage, handle.base_path, name, int(options.heartbeat_interval * 1000)):
        memo = f"{name} {','.join(names)}" if names else None
        made = make_metadata_table(handle, options, memo, only_if_lost=only_if_lost)
        built = _build(handle, options, names, columns, progress)
        _forget_memo(handle, options)
    return made, built


def _unbuilt(snapshot: Snapshot) -> frozenset[str]:
    """Indexes that a rebuild was still to make."""
    names = snapshot.config.raw.get(REBUILDING, "").rpartition(" ")[2].split(",")
    return frozenset(names) & frozenset(_ORDER) - snapshot.config.metadata_partitions


def _was_cut_short(snapshot: Snapshot, options: WriteOptions) -> bool:
    memo = snapshot.config.raw.get(REBUILDING)
    if memo is None:
        return False
    interval, misses = int(options.heartbeat_interval * 1000), options.heartbeat_misses
    now, builder = int(time.time() * 1000), memo.partition(" ")[0]
    if not is_instant(builder):
        return True
    return is_expired(snapshot.storage, snapshot.base_path, builder, now, interval_ms=interval, misses=misses)


def _forget_memo(handle: TableContext, options: WriteOptions) -> None:
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(handle.storage, handle.base_path)
        lock.check()
        if REBUILDING in handle.snapshot().config.raw:
            update_table_config(handle.storage, handle.base_path, {REBUILDING: None})


def _retire(handle: TableContext, options: WriteOptions, names: Collection[str]) -> None:
    """Take metadata partitions out of the settings, so that nobody trusts them; all of them with ``files``."""
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(handle.storage, handle.base_path)
        lock.check()
        disable_partitions(handle, handle.snapshot().config, names)


def disable_partitions(handle: TableContext, config: TableConfig, names: Collection[str]) -> None:
    """The same under the table lock."""
    storage, base = handle.storage, handle.base_path
    if FILES.name in names:
        remove_metadata_table(storage, base, config)
        return
    changes = metadata_partitions_property(config.metadata_partitions - set(names))
    changes[INFLIGHT_PARTITIONS] = ",".join(sorted(config.metadata_partitions_inflight - set(names)))
    update_table_config(storage, base, changes)
    for name in names:
        delete_partition(storage, metadata_path(base), name)


def _with_parents(lost: Collection[str], snapshot: Snapshot) -> tuple[str, ...]:
    """Damaged indexes and those that are built with them: ``partition_stats`` comes of ``column_stats``."""
    names = set(lost)
    if COLUMN_STATS.name in names and snapshot.config.partition_fields:
        names.add(PARTITION_STATS.name)
    return tuple(name for name in _ORDER if name in names)


def _wanted(snapshot: Snapshot, options: WriteOptions) -> tuple[str, ...]:
    """Indexes of a new metadata table: those that the table lists; where it lists none at all, those of the options."""
    listed = snapshot.config.metadata_partitions | _unbuilt(snapshot)
    if listed:
        return tuple(name for name in _ORDER if name in listed)
    stats = (COLUMN_STATS.name,) if options.column_stats else ()
    return (*stats, *((BLOOM_FILTERS.name,) if options.bloom_filters else ()))


def _stats_columns(snapshot: Snapshot) -> Sequence[str] | None:
    """Columns that ``column_stats`` had, as far as they are still there; None where nobody knows."""
    document = read_definitions(snapshot.storage, definitions_path(snapshot.base_path))
    listed = [name for name in source_fields(document) if name not in META_COLUMNS]
    schema, version = snapshot.schema, stats_version(document, snapshot.config.version)
    found = [name for name in listed if name in schema.names and stats_supported(schema.field(name).type, version)]
    return found or None


def _build(
    handle: TableContext,
    options: WriteOptions,
    names: Sequence[str],
    columns: Sequence[str] | None,
    progress: Progress | None,
) -> list[IndexResult]:
    results = []
    for name in names:
        if name == PARTITION_STATS.name and COLUMN_STATS.name in names:
            continue  # Comes with it.
        chosen = columns if name == COLUMN_STATS.name else None
        results.append(build_index(handle, options, name, columns=chosen, if_not_exists=True, progress=progress))
    return results
