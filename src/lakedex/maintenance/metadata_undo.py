"""Putting right what the metadata table took over from a commit that is undone.

A commit's own log files of the metadata table go with it. But what came after it may hold the same: a compaction has
its records in a base file, an index build has computed from its files, and a metadata table that was made anew knows
nothing of single commits. Then two delta commits do it, so that readers are right at every moment:

* :func:`widen`, before the commit is undone and under an instant of the metadata table's own: bounds of whole
  partitions that hold for both states, and entries of the files that become the newest again.
* :func:`correct`, under the instant of the rollback or restore, so that it counts once that is complete: the files are
  gone, and the bounds are those of what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from lakedex.codec.column_bounds import StatsVersion
from lakedex.index.bloom_filters import BloomOfFile, bloom_records
from lakedex.index.column_stats.index import tombstones
from lakedex.index.column_stats.partition_stats import partition_records, partition_stats
from lakedex.index.column_stats.stats import indexable_columns, merge_stats, stat_record
from lakedex.index.definitions import (
    definitions_path,
    encode_definitions,
    read_definitions,
    source_fields,
    stats_version,
    with_column_stats,
)
from lakedex.io.liveness import Heartbeat
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    all_partitions_record,
    bloom_key,
    files_key,
    is_deleted,
    partition_stats_key,
)
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import Keyed, write_delta_commit
from lakedex.options import WriteOptions
from lakedex.parallel import run_threads
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.instant import InstantClock
from lakedex.types import META_COLUMNS

__all__ = [
    "can_drop_log_files",
    "correct",
    "narrow_definitions",
    "snapshot_without",
    "widen",
    "write_metadata",
    "written_since",
]


_THREADS = 8


def snapshot_without(snapshot: Snapshot, undone: Collection[str]) -> Snapshot:
    """The table as it will be read once these commits are pending again."""
    timeline, store = snapshot.timeline.without(undone), snapshot.metadata
    metadata = MetadataStore(store.storage, store.base_path, timeline, store.timeline, store.partitions, store.cache)
    return Snapshot(snapshot.storage, snapshot.base_path, snapshot.config, timeline, metadata)


def can_drop_log_files(snapshot: Snapshot, undone: Collection[str]) -> bool:
    """Whether taking away the commits' own log files leaves the metadata table as it was before them.

    Not so if the metadata table lacks one of them (it was made anew), or if something but a clean was written to it
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


def narrow_definitions(snapshot: Snapshot, schema: pa.Schema) -> None:
    """Take columns out of Java's list of indexed ones that a schema does not have. Fewer is always right."""
    path = definitions_path(snapshot.base_path)
    document = read_definitions(snapshot.storage, path)
    listed = source_fields(document)
    kept = [name for name in listed if name in META_COLUMNS or name.split(".")[0] in schema.names]
    if kept != listed:
        snapshot.storage.write(path, encode_definitions(with_column_stats(document, kept, snapshot.config.version)))


def _stats_version(snapshot: Snapshot) -> StatsVersion:
    document = read_definitions(snapshot.storage, definitions_path(snapshot.base_path))
    return stats_version(document, snapshot.config.version)


def widen(
    snapshot: Snapshot, target: Snapshot, partitions: Collection[str], clock: InstantClock, options: WriteOptions
) -> None:
    """Make the metadata table right for ``snapshot`` and ``target`` alike in some partitions."""
    store = snapshot.metadata
    indexed, version = _indexed(snapshot, partitions), _stats_version(snapshot)
    updates: dict[str, Keyed] = {FILES.name: [(ALL_PARTITIONS, all_partitions_record(map(files_key, partitions)))]}
    if store.has(COLUMN_STATS.name):
        healed, before = partition_stats(target, partitions, indexed, _run, version)
        updates[COLUMN_STATS.name] = healed
        if store.has(PARTITION_STATS.name):
            _, now = partition_stats(snapshot, partitions, indexed, _run, version)
            updates[PARTITION_STATS.name] = [
                # Without the mark by which lakedex would take it for the partition's own stat.
                (
                    partition_stats_key(name, path),
                    stat_record(merge_stats(name, both), path, kind, version, over_partition=True),
                )
                for path in partitions
                for name, kind in indexed.items()
                for both in ([stat for stat in (*before[path], *now[path]) if stat.column == name],)
            ]
    if store.has(BLOOM_FILTERS.name):
        updates[BLOOM_FILTERS.name] = _missing_blooms(target, partitions, options)
    instant = clock.next(max(snapshot.timeline.last_time, store.timeline.last_time))
    # Should we die in between: its heartbeat tells the next writer that it is to be removed.
    with Heartbeat(snapshot.storage, snapshot.base_path, instant):
        write_metadata(snapshot, instant, updates, clock)


def correct(snapshot: Snapshot, files: Mapping[str, Sequence[str]], instant: str, clock: InstantClock) -> None:
    """Take files out of the metadata table and say what is left of their partitions.

    Args:
        snapshot: the table after the commits were undone.
        files: names of their files by partition.
        instant: of the rollback or restore, which is still pending.
        clock: for the completion.
    """
    store = snapshot.metadata
    if not store.has(FILES.name):
        return
    listing = snapshot.listing(files)
    gone = [path for path, names in files.items() if path and not set(listing.get(path, ())) - set(names)]
    updates = tombstones(snapshot, files, gone, instant)
    if store.has(PARTITION_STATS.name):
        indexed, version = _indexed(snapshot, files), _stats_version(snapshot)
        healed, over_partitions = partition_stats(snapshot, files, indexed, _run, version)
        updates[PARTITION_STATS.name] = partition_records(over_partitions, indexed, instant, version)
        updates[COLUMN_STATS.name] = [*updates.get(COLUMN_STATS.name, ()), *healed]
    write_metadata(snapshot, instant, updates, clock)


def write_metadata(snapshot: Snapshot, instant: str, updates: Mapping[str, Keyed], clock: InstantClock) -> None:
    """Write a delta commit of the metadata table, without what the table does not have."""
    store = snapshot.metadata
    kept = {name: records for name, records in updates.items() if records and store.has(name)}
    if not kept:
        return
    floor = max(instant, snapshot.timeline.last_time, store.timeline.last_time)
    write_delta_commit(store, instant, kept, partial(clock.next, floor), _run)


def _run(task: Callable[[Any], Any], items: Sequence[Any], label: str = "") -> list[Any]:
    return run_threads(task, items, _THREADS)


def _indexed(snapshot: Snapshot, partitions: Iterable[str]) -> dict[str, pa.DataType]:
    """Columns that have records: those that are listed, and those that the partitions have stats of."""
    kinds = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in snapshot.schema}
    possible = [name for name in indexable_columns(snapshot.schema, limit=len(snapshot.schema)) if name in kinds]
    listed = set(source_fields(read_definitions(snapshot.storage, definitions_path(snapshot.base_path))))
    if snapshot.metadata.has(PARTITION_STATS.name):
        keys = {partition_stats_key(name, path): name for path in partitions for name in possible}
        listed |= {keys[key] for key in snapshot.metadata.get_many(PARTITION_STATS.name, list(keys))}
    return {name: kinds[name] for name in possible if name in listed}


def _missing_blooms(target: Snapshot, partitions: Collection[str], options: WriteOptions) -> Keyed:
    """Filters of files that have none in the metadata table, since the index was built when they were not current."""
    bases = {bloom_key(base.partition, base.name): base for base in target.base_files(partitions)}
    known = target.metadata.get_many(BLOOM_FILTERS.name, list(bases))
    missing = [base for key, base in bases.items() if key not in known or is_deleted(known[key])]
    task = BloomOfFile(storage=target.storage, base_path=target.base_path, folder=None, options=options)
    built = dict(zip(missing, _run(task, missing), strict=True))
    return [
        keyed for records in bloom_records(built, missing, len(missing) + 1) for keyed in records[BLOOM_FILTERS.name]
    ]
