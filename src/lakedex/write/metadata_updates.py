"""The metadata records of a commit: what each written file adds to every partition that the table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakedex.codec.stats_value import StatsVersion
from lakedex.index.column_stats import ColumnStat, stat_record, stats_records, storable_stats
from lakedex.index.partition_stats import partition_records, partition_stats
from lakedex.metadata.delta_commit import Keyed, SpilledBloom
from lakedex.metadata.partitions import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    bloom_key,
    column_stats_prefix,
    files_key,
    partition_stats_key,
)
from lakedex.metadata.records import Record, all_partitions_record, bloom_record, files_record, stats_record
from lakedex.metadata.snapshot import Snapshot
from lakedex.write.stage import GroupResult

__all__ = ["build_updates"]


def build_updates(
    snapshot: Snapshot,
    results: Sequence[GroupResult],
    instant: str,
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
    version: StatsVersion,
    gone: frozenset[tuple[str, str]] = frozenset(),
    added: Sequence[str] = (),
    retired: Sequence[str] = (),
) -> tuple[dict[str, Keyed], frozenset[str]]:
    """Records of one commit by metadata partition, for those partitions that the table has.

    Args:
        snapshot: the table as it is under the lock.
        results: accepted results of the write stage.
        instant: the commit's instant.
        indexed: columns of ``column_stats`` with their types.
        run: an engine's ``run``, for files whose stats have to be computed from the data.
        version: the encoding of column stats in this table.
        gone: (partition, file id) of groups whose present file does not count from this commit on. Replaced files
            themselves stay listed, with all of their records, until a cleaner removes them.
        added: columns that the commit adds to the schema.
        retired: columns that are in no live file any more from this commit on.

    Returns:
        The records, and the columns that hold NaN as far as the commit looked: in its own files, and in all files of
        the partitions that it touched where the table has ``partition_stats``.
    """
    store = snapshot.metadata
    updates: dict[str, Keyed] = {}
    nan = {stat.column for result in results for stat in result.stats if stat.has_nan}
    if not store.has(FILES.name):
        return updates, frozenset(nan)
    updates[FILES.name] = _files(results)
    if store.has(BLOOM_FILTERS.name):
        updates[BLOOM_FILTERS.name] = [(bloom_key(r.partition, r.file_name), _bloom(r, instant)) for r in results]
    if store.has(COLUMN_STATS.name):
        updates[COLUMN_STATS.name] = _stats(results, store.table_version, indexed, version)
    if store.has(PARTITION_STATS.name):
        healed, over_partitions = partition_stats(
            snapshot,
            {result.partition for result in results},
            indexed,
            run,
            version,
            written={(result.partition, result.file_name): result.stats for result in results},
            gone=gone,
        )
        updates[PARTITION_STATS.name] = partition_records(over_partitions, indexed, instant, version)
        nan.update(stat.column for found in over_partitions.values() for stat in found if stat.has_nan)
        again, over_old = _older_generations(snapshot, set(over_partitions), added, indexed, run, version)
        healed.extend(again)
        updates[PARTITION_STATS.name].extend(partition_records(over_old, indexed, instant, version))
        updates[PARTITION_STATS.name].extend(_retired_records(snapshot, retired, version))
        updates[PARTITION_STATS.name].extend(_emptied_records(snapshot, set(over_partitions), indexed, gone))
        if COLUMN_STATS.name in updates:
            updates[COLUMN_STATS.name].extend(healed)
    return updates, frozenset(nan)


def _stats(
    results: Sequence[GroupResult], table_version: int, indexed: Mapping[str, pa.DataType], version: StatsVersion
) -> Keyed:
    records: Keyed = []
    for result in results:
        kept = storable_stats(result.stats, table_version)
        records.extend(stats_records(kept, result.partition, result.file_name, indexed, version))
    return records


def _older_generations(
    snapshot: Snapshot,
    touched: set[str],
    added: Sequence[str],
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
    version: StatsVersion,
) -> tuple[Keyed, dict[str, list[ColumnStat]]]:
    """Stats of added columns in partitions that have records of an earlier column of that name.

    Those records would go on to speak for the new column, of which the partition holds nulls only.
    """
    names = [name for name in added if name in indexed]
    records = snapshot.metadata.scan(PARTITION_STATS.name, [column_stats_prefix(name) for name in names])
    if not names or not records:
        return [], {}
    partitions = {str(record["ColumnStatsMetadata"]["fileName"]) for record in records.values()} - touched
    return partition_stats(snapshot, partitions, {name: indexed[name] for name in names}, run, version)


def _retired_records(snapshot: Snapshot, retired: Sequence[str], version: StatsVersion) -> Keyed:
    """Records that say of columns which are no more what a new column of that name will be there: null."""
    prefixes = [column_stats_prefix(name) for name in retired]
    records: Keyed = []
    for key, record in snapshot.metadata.scan(PARTITION_STATS.name, prefixes).items() if prefixes else ():
        payload = record["ColumnStatsMetadata"]
        rows = payload["valueCount"] or 0
        stat = ColumnStat(column=payload["columnName"], minimum=None, maximum=None, value_count=rows, null_count=rows)
        records.append((key, stat_record(stat, payload["fileName"], pa.string(), version, over_partition=True)))
    return records


def _emptied_records(
    snapshot: Snapshot, written: set[str], indexed: Mapping[str, pa.DataType], gone: frozenset[tuple[str, str]]
) -> Keyed:
    """Records that take back the stats of partitions without a file from now on.

    As Java does for DELETE_PARTITION (``HoodieMetadataWriteUtils.convertMetadataToPartitionStatRecords``); a partition
    that is overwritten by no rows is the same.
    """
    emptied = {partition for partition, _ in gone} - written
    if emptied:
        emptied -= {b.partition for b in snapshot.base_files(sorted(emptied)) if (b.partition, b.file_id) not in gone}
    nothing: dict[str, Any] = {"minimum": None, "maximum": None, "value_count": 0, "null_count": 0}
    nothing |= {"total_size": 0, "total_uncompressed_size": 0, "over_partition": True, "deleted": True}
    return [
        (partition_stats_key(column, partition), stats_record(partition, column, **nothing))
        for partition in sorted(emptied)
        for column in indexed
    ]


def _files(results: Sequence[GroupResult]) -> Keyed:
    added: dict[str, dict[str, int]] = {}
    for result in results:
        added.setdefault(result.partition, {})[result.file_name] = result.size
    records: Keyed = [(files_key(partition), files_record(files)) for partition, files in added.items()]
    return [*records, (ALL_PARTITIONS, all_partitions_record(files_key(partition) for partition in added))]


def _bloom(result: GroupResult, instant: str) -> Record | SpilledBloom:
    if result.bloom_spilled is not None:
        return SpilledBloom(result.bloom_spilled, result.bloom_type, instant)
    return bloom_record(result.bloom_type, instant, result.bloom or b"")
