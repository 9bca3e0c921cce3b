"""The metadata records of a commit: what each written file adds to every partition that the table has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.index.column_stats import (
    ColumnStat,
    ColumnStatsBuilder,
    merge_stats,
    partition_mark,
    stat_of,
    stat_record,
    stats_records,
)
from lakedex.io.storage import Storage
from lakedex.layout.base_file import iter_base_file
from lakedex.layout.conform import conform
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.delta_commit import SpilledBloom
from lakedex.metadata.partitions import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    bloom_key,
    column_stats_key,
    column_stats_prefix,
    files_key,
    partition_stats_key,
)
from lakedex.metadata.records import Record, all_partitions_record, bloom_record, files_record
from lakedex.metadata.snapshot import Snapshot
from lakedex.types import RECORD_KEY
from lakedex.write.stage import GroupResult

__all__ = ["Keyed", "StatsOfFile", "build_updates", "partition_records", "partition_stats"]

Keyed = list[tuple[str, Record | SpilledBloom]]


def build_updates(
    snapshot: Snapshot,
    results: Sequence[GroupResult],
    instant: str,
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
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
        stats: Keyed = []
        for result in results:
            stats.extend(stats_records(result.stats, result.partition, result.file_name, indexed))
        updates[COLUMN_STATS.name] = stats
    if store.has(PARTITION_STATS.name):
        healed, over_partitions = partition_stats(
            snapshot, {result.partition for result in results}, indexed, run, results, gone
        )
        updates[PARTITION_STATS.name] = partition_records(over_partitions, indexed, instant)
        nan.update(stat.column for found in over_partitions.values() for stat in found if stat.has_nan)
        again, over_old = _older_generations(snapshot, set(over_partitions), added, indexed, run)
        healed.extend(again)
        updates[PARTITION_STATS.name].extend(partition_records(over_old, indexed, instant))
        updates[PARTITION_STATS.name].extend(_retired_records(snapshot, retired))
        if COLUMN_STATS.name in updates:
            updates[COLUMN_STATS.name].extend(healed)
    return updates, frozenset(nan)


def _older_generations(
    snapshot: Snapshot,
    touched: set[str],
    added: Sequence[str],
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
) -> tuple[Keyed, dict[str, list[ColumnStat]]]:
    """Stats of added columns in partitions that have records of an earlier column of that name.

    Those records would go on to speak for the new column, of which the partition holds nulls only.
    """
    names = [name for name in added if name in indexed]
    records = snapshot.metadata.scan(PARTITION_STATS.name, [column_stats_prefix(name) for name in names])
    if not names or not records:
        return [], {}
    partitions = {str(record["ColumnStatsMetadata"]["fileName"]) for record in records.values()} - touched
    return partition_stats(snapshot, partitions, {name: indexed[name] for name in names}, run)


def _retired_records(snapshot: Snapshot, retired: Sequence[str]) -> Keyed:
    """Records that say of columns which are no more what a new column of that name will be there: null."""
    prefixes = [column_stats_prefix(name) for name in retired]
    records: Keyed = []
    for key, record in snapshot.metadata.scan(PARTITION_STATS.name, prefixes).items() if prefixes else ():
        payload = record["ColumnStatsMetadata"]
        rows = payload["valueCount"] or 0
        stat = ColumnStat(column=payload["columnName"], minimum=None, maximum=None, value_count=rows, null_count=rows)
        records.append((key, stat_record(stat, payload["fileName"], pa.string(), over_partition=True)))
    return records


def partition_records(
    over_partitions: Mapping[str, Sequence[ColumnStat]], indexed: Mapping[str, pa.DataType], instant: str
) -> Keyed:
    """Records of ``partition_stats``, from the stats of each partition path; ``instant`` marks whose they are."""
    return [
        (
            partition_stats_key(stat.column, path),
            stat_record(partition_mark(stat, instant), path, indexed[stat.column], over_partition=True),
        )
        for path, found in over_partitions.items()
        for stat in found
    ]


def _files(results: Sequence[GroupResult]) -> Keyed:
    added: dict[str, dict[str, int]] = {}
    for result in results:
        added.setdefault(result.partition, {})[result.file_name] = result.size
    records: Keyed = [(files_key(partition), files_record(files)) for partition, files in added.items()]
    return [*records, (ALL_PARTITIONS, all_partitions_record(files_key(partition) for partition in added))]


def _bloom(result: GroupResult, instant: str) -> Record | SpilledBloom:
    if result.bloom is not None:
        return bloom_record(result.bloom_type, instant, result.bloom)
    return SpilledBloom(str(result.bloom_path), result.bloom_type, instant)


@dataclass(frozen=True, slots=True)
class StatsOfFile:
    """Task: stats of a base file from its data. A column that the file lacks is all null there.

    ``widened`` bounds are those that are stored, others the values themselves.
    """

    storage: Storage
    base_path: str
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    widened: bool = True

    def __call__(self, base: BaseFile) -> list[ColumnStat]:
        """Read the file's indexed columns as a stream."""
        builder = ColumnStatsBuilder(self.columns)
        schema = pa.schema(list(self.columns.items()))
        # With the record key, which every file has: without any column there would be no rows to count.
        wanted = list(dict.fromkeys([*self.columns, RECORD_KEY]))
        for batch in iter_base_file(self.storage, f"{self.base_path}/{base.relative_path}", wanted):
            builder.add(conform(batch, schema))
        return builder.finish(widened=self.widened)


def partition_stats(
    snapshot: Snapshot,
    partitions: Iterable[str],
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
    results: Sequence[GroupResult] = (),
    gone: frozenset[tuple[str, str]] = frozenset(),
) -> tuple[Keyed, dict[str, list[ColumnStat]]]:
    """Corrected records of files that had none to trust, and stats of each partition over all of its files.

    Java prunes whole partitions by these records and takes a missing one as all-null, so each touched partition gets a
    record for every indexed column, computed anew. ``results`` and ``gone`` are those of a commit in progress.
    """
    touched = sorted(set(partitions))
    kept = [base for base in snapshot.base_files(touched) if (base.partition, base.file_id) not in gone]
    stats = {(r.partition, r.file_name): {s.column: s for s in r.stats} for r in results}
    known, unknown = _known_stats(snapshot, kept, touched, indexed)
    stats.update(known)
    healed: Keyed = []
    if unknown:
        task = StatsOfFile(snapshot.storage, snapshot.base_path, dict(indexed))
        for base, computed in zip(unknown, run(task, unknown), strict=True):
            stats[(base.partition, base.name)] = {stat.column: stat for stat in computed}
            healed.extend(stats_records(computed, base.partition, base.name, indexed))
    merged: dict[str, list[ColumnStat]] = {}
    for partition in touched:
        own = [columns for (path, _), columns in stats.items() if path == partition]
        merged[partition] = [
            merge_stats(name, [columns[name] for columns in own if name in columns]) for name in indexed
        ]
    return healed, merged


def _known_stats(
    snapshot: Snapshot, kept: Sequence[BaseFile], touched: Sequence[str], indexed: Mapping[str, pa.DataType]
) -> tuple[dict[tuple[str, str], dict[str, ColumnStat]], list[BaseFile]]:
    """Trusted stats of files that stay, and the files that lack any."""
    if not kept:
        return {}, []
    store = snapshot.metadata
    if len(kept) <= 2 * len(touched):
        keys = [column_stats_key(column, base.partition, base.name) for column in indexed for base in kept]
        records = store.get_many(COLUMN_STATS.name, keys)
    else:
        prefixes = [column_stats_prefix(column, partition) for column in indexed for partition in touched]
        records = store.scan(COLUMN_STATS.name, prefixes)
    known: dict[tuple[str, str], dict[str, ColumnStat]] = {}
    unknown: list[BaseFile] = []
    for base in kept:
        columns: dict[str, ColumnStat] = {}
        for column, kind in indexed.items():
            record = records.get(column_stats_key(column, base.partition, base.name))
            stat = None if record is None else stat_of(record, kind)
            if stat is None:
                break
            columns[column] = stat
        if len(columns) == len(indexed):
            known[(base.partition, base.name)] = columns
        else:
            unknown.append(base)
    return known, unknown
