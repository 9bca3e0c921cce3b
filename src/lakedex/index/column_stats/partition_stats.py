"""Stats over whole partitions (``partition_stats``): from the stats of their current files, or from the data.

Log files count as they are, unmerged: bounds widen and counts add up, so that on merge-on-read tables a count is no
number of rows (``HoodieTableMetadataUtil.convertMetadataToPartitionStatRecords``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakedex.codec.column_bounds import StatsVersion
from lakedex.index.column_stats.stats import (
    ColumnStat,
    ColumnStatsBuilder,
    indexable_columns,
    merge_stats,
    partition_mark,
    stat_of,
    stat_record,
    stats_records,
)
from lakedex.index.definitions import read_definitions, source_fields, stats_version
from lakedex.index.protocol import CommitContext, UndoContext
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, DataFile, LogFile
from lakedex.layout.log_reader import DataRows, read_log_files
from lakedex.metadata.records import (
    COLUMN_STATS,
    PARTITION_STATS,
    column_stats_key,
    column_stats_prefix,
    partition_stats_key,
    stats_record,
)
from lakedex.metadata.writer import Keyed
from lakedex.parquet.base_file_reader import iter_base_file
from lakedex.parquet.conform import can_widen, conform
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import META_COLUMNS, RECORD_KEY

__all__ = [
    "StatsOfFile",
    "partition_records",
    "partition_records_of_commit",
    "partition_stats",
    "records_for_both",
    "records_of_partitions",
]


WrittenStats = Mapping[tuple[str, str], Sequence[ColumnStat]]
"""(partition path, file name) → stats of the files that a commit in progress has written."""


def partition_records(
    over_partitions: Mapping[str, Sequence[ColumnStat]],
    indexed: Mapping[str, pa.DataType],
    instant: str,
    version: StatsVersion,
) -> Keyed:
    """Records of ``partition_stats``, from the stats of each partition path; ``instant`` marks whose they are."""
    return [
        (
            partition_stats_key(stat.column, path),
            stat_record(partition_mark(stat, instant), path, indexed[stat.column], version, over_partition=True),
        )
        for path, found in over_partitions.items()
        for stat in found
    ]


@dataclass(frozen=True, slots=True)
class StatsOfFile:
    """Task: stats of a base or log file from its data. A column that the file lacks is all null there.

    Those of a log file are of the rows in its blocks, whether they count or not; partial updates have none of columns
    that one of them leaves alone. ``widened`` bounds are those that are stored, others the values themselves, and of
    columns in another type than the table's there are none.
    """

    files: TableFiles
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    widened: bool = True

    def __call__(self, file: DataFile) -> list[ColumnStat]:
        """Read the file's indexed columns as a stream."""
        builder = ColumnStatsBuilder(self.columns)
        schema = pa.schema(list(self.columns.items()))
        left_alone: set[str] = set()
        for batch, lacking in self._batches(file):
            # Hudi's key generators of times make a partition column text in the schema, a number in files.
            misfits = [] if self.widened else [column.name for column in batch.schema if not self._fits(column)]
            left_alone |= lacking.union(misfits)
            builder.add(conform(batch.drop_columns(misfits), schema))
        found = builder.finish(widened=self.widened, even_empty=isinstance(file, LogFile))
        return [stat for stat in found if stat.column not in left_alone]

    def _fits(self, stored: pa.Field) -> bool:
        return stored.name not in self.columns or can_widen(stored.type, self.columns[stored.name])

    def _batches(self, file: DataFile) -> Iterator[tuple[pa.RecordBatch, set[str]]]:
        """Batches, with the columns that partial updates leave alone."""
        # With the record key, which every file has: without any column there would be no rows to count.
        wanted = list(dict.fromkeys([*self.columns, RECORD_KEY]))
        if isinstance(file, BaseFile):
            for batch in iter_base_file(self.files.storage, self.files.path(file.relative_path), wanted):
                yield batch, set()
            return
        for found in read_log_files(self.files, [file], _any_instant, wanted):
            if isinstance(found, DataRows):
                lacking = set(self.columns) - set(found.rows.schema.names) if found.is_partial else set()
                for batch in found.rows.to_batches():
                    yield batch, lacking


def _any_instant(instant: str) -> bool:
    return True


def partition_stats(
    snapshot: Snapshot,
    partitions: Iterable[str],
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
    version: StatsVersion,
    written: WrittenStats | None = None,
    gone: frozenset[tuple[str, str]] = frozenset(),
) -> tuple[Keyed, dict[str, list[ColumnStat]]]:
    """Corrected records of files that had none to trust, and stats of each partition over all of its files.

    Java prunes whole partitions by these records and takes a missing one as all-null, so each touched partition gets a
    record for every indexed column, computed again. ``written`` are the files of a commit in progress, ``gone`` the
    (partition, file id) of groups whose present file does not count any more with it.
    """
    touched = sorted(set(partitions))
    slices = [item for item in snapshot.slices(touched) if (item.partition, item.file_id) not in gone]
    kept = [file for item in slices for file in item.files]
    stats = {place: {stat.column: stat for stat in found} for place, found in (written or {}).items()}
    known, unknown = _known_stats(snapshot, kept, touched, indexed)
    stats.update(known)
    computed_again: Keyed = []
    if unknown:
        task = StatsOfFile(snapshot.files, dict(indexed))
        for base, computed in zip(unknown, run(task, unknown), strict=True):
            place = (base.partition, base.name)
            # Only what is lacking: a second record of a column would be added to the first one.
            lacking = [stat for stat in computed if stat.column not in known.get(place, ())]
            stats[place] = {stat.column: stat for stat in computed}
            computed_again.extend(stats_records(lacking, base.partition, base.name, indexed, version))
    merged: dict[str, list[ColumnStat]] = {}
    by_partition: dict[str, list[dict[str, ColumnStat]]] = {}
    for (path, _), columns in stats.items():
        by_partition.setdefault(path, []).append(columns)
    for partition in touched:
        own = by_partition.get(partition, [])
        merged[partition] = [
            merge_stats(name, [columns[name] for columns in own if name in columns]) for name in indexed
        ]
    return computed_again, merged


def _known_stats(
    snapshot: Snapshot, kept: Sequence[DataFile], touched: Sequence[str], indexed: Mapping[str, pa.DataType]
) -> tuple[dict[tuple[str, str], dict[str, ColumnStat]], list[DataFile]]:
    """Trusted stats of files that stay, and the files that lack some."""
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
    unknown: list[DataFile] = []
    for base in kept:
        columns: dict[str, ColumnStat] = {}
        for column, kind in indexed.items():
            record = records.get(column_stats_key(column, base.partition, base.name))
            stat = None if record is None else stat_of(record, kind)
            if stat is not None:
                columns[column] = stat
        known[(base.partition, base.name)] = columns
        if len(columns) < len(indexed):
            unknown.append(base)
    return known, unknown


def partition_records_of_commit(
    ctx: CommitContext, written: WrittenStats, indexed: Mapping[str, pa.DataType], version: StatsVersion
) -> tuple[Keyed, Keyed, set[str]]:
    """Records of a commit for ``partition_stats``.

    Args:
        ctx: the commit.
        written: stats of its files.
        indexed: columns with stats, and their types.
        version: the encoding of stats in this table.

    Returns:
        Records of ``column_stats`` for files that had none to trust, records of ``partition_stats``, and the columns
        that hold NaN in the partitions that the commit touched.
    """
    touched = {partition for partition, _ in written}
    computed, merged = partition_stats(ctx.snapshot, touched, indexed, ctx.run, version, written=written, gone=ctx.gone)
    records = partition_records(merged, indexed, ctx.instant, version)
    unbounded = {stat.column for found in merged.values() for stat in found if stat.has_nan}
    known = set(ctx.snapshot.schema.names)
    added = [name for name in ctx.schema.names if name not in known]
    emptied = _emptied(ctx.snapshot, set(merged), ctx.gone)
    again, over_old = _older_generations(ctx.snapshot, {*merged, *emptied}, added, indexed, ctx.run, version)
    records += partition_records(over_old, indexed, ctx.instant, version)
    records += _retired_records(ctx.snapshot, ctx.retired, version)
    records += _emptied_records(emptied, indexed)
    return computed + again, records, unbounded


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


def _emptied(snapshot: Snapshot, written: set[str], gone: frozenset[tuple[str, str]]) -> set[str]:
    """Partitions that lose their last file and get none."""
    emptied = {partition for partition, _ in gone} - written
    if emptied:
        emptied -= {s.partition for s in snapshot.slices(sorted(emptied)) if (s.partition, s.file_id) not in gone}
    return emptied


def _emptied_records(emptied: set[str], indexed: Mapping[str, pa.DataType]) -> Keyed:
    """Records that take back the stats of partitions without a file from now on.

    As Java does for DELETE_PARTITION (``HoodieMetadataWriteUtils.convertMetadataToPartitionStatRecords``); a partition
    that is overwritten by no rows is the same.
    """
    nothing: dict[str, Any] = {"minimum": None, "maximum": None, "value_count": 0, "null_count": 0}
    nothing |= {"total_size": 0, "total_uncompressed_size": 0, "over_partition": True, "deleted": True}
    return [
        (partition_stats_key(column, partition), stats_record(partition, column, **nothing))
        for partition in sorted(emptied)
        for column in indexed
    ]


def records_for_both(ctx: UndoContext, target: Snapshot, partitions: Collection[str]) -> dict[str, Keyed]:
    """Records by which readers are right before and after commits are undone.

    Files that become the newest again get the stats that they lack, and partitions get bounds that hold for both
    states.
    """
    snapshot = ctx.snapshot
    indexed, version = _recorded_columns(snapshot, partitions), _version(snapshot)
    computed, before = partition_stats(target, partitions, indexed, ctx.run, version)
    updates = {COLUMN_STATS.name: computed}
    if snapshot.metadata.has(PARTITION_STATS.name):
        _, now = partition_stats(snapshot, partitions, indexed, ctx.run, version)
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
    return updates


def records_of_partitions(ctx: UndoContext, partitions: Collection[str]) -> tuple[Keyed, Keyed]:
    """Records of ``column_stats`` for files that had none to trust, and of ``partition_stats``, over current files."""
    snapshot = ctx.snapshot
    indexed, version = _recorded_columns(snapshot, partitions), _version(snapshot)
    computed, merged = partition_stats(snapshot, partitions, indexed, ctx.run, version)
    return computed, partition_records(merged, indexed, ctx.instant, version)


def _version(snapshot: Snapshot) -> StatsVersion:
    document = read_definitions(snapshot.files)
    return stats_version(document, snapshot.config.version)


def _recorded_columns(snapshot: Snapshot, partitions: Iterable[str]) -> dict[str, pa.DataType]:
    """Columns that have records: those that are listed, and those that the partitions have stats of."""
    kinds = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in snapshot.schema}
    possible = [name for name in indexable_columns(snapshot.schema, limit=len(snapshot.schema)) if name in kinds]
    listed = set(source_fields(read_definitions(snapshot.files)))
    if snapshot.metadata.has(PARTITION_STATS.name):
        keys = {partition_stats_key(name, path): name for path in partitions for name in possible}
        listed |= {keys[key] for key in snapshot.metadata.get_many(PARTITION_STATS.name, list(keys))}
    return {name: kinds[name] for name in possible if name in listed}
