"""``column_stats`` as an index: collected in the pass that writes a file, recorded, and undone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from lakedex.codec.column_bounds import is_order_safe, stats_supported
from lakedex.errors import CommitConflictError, UnsupportedFeatureError
from lakedex.index.column_stats.build import PartitionBuild, StatsBuild, plan_partition_stats, plan_stats
from lakedex.index.column_stats.partition_stats import (
    partition_records_of_commit,
    records_for_both,
    records_of_partitions,
)
from lakedex.index.column_stats.pruning import ColumnStats, PartitionStats
from lakedex.index.column_stats.reader import MANY, stat_arrays
from lakedex.index.column_stats.stats import (
    ColumnStat,
    ColumnStatsBuilder,
    covered_columns,
    indexable_columns,
    stat_of,
    stats_records,
    storable_stats,
    unlisted,
)
from lakedex.index.column_stats.validate import PartitionValidation, StatsValidation
from lakedex.index.definitions import (
    DEFINITIONS,
    encode_definitions,
    known_definitions,
    read_definitions,
    source_fields,
    stats_version,
    with_column_stats,
)
from lakedex.index.metadata_index import MetadataIndex
from lakedex.index.protocol import (
    BuildContext,
    CollectContext,
    CommitContext,
    IndexUpdate,
    KeyRange,
    RemovedFiles,
    UndoContext,
    ValidationContext,
)
from lakedex.index.written_file import FinishedFile, WrittenFile
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.names import parse_log_file_name
from lakedex.metadata.records import (
    COLUMN_STATS,
    PARTITION_STATS,
    MetadataPartition,
    column_stats_key,
    column_stats_prefix,
    deleted_stats_record,
    is_deleted,
    partition_stats_key,
)
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import Keyed
from lakedex.options import IndexOptions, WriteOptions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.types import META_COLUMNS, RECORD_KEY

__all__ = ["CollectColumnStats", "ColumnStatsIndex", "PartitionStatsIndex"]


class PartitionStatsIndex(PartitionStats, MetadataIndex):
    """``partition_stats``; commits and undos record it with ``column_stats``, which it is made of."""

    __slots__ = ()

    partition: ClassVar[MetadataPartition] = PARTITION_STATS
    made_of: ClassVar[frozenset[str]] = frozenset({COLUMN_STATS.name})
    covers_logs: ClassVar[bool] = True

    def columns(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Those of ``column_stats``."""
        return ColumnStatsIndex().columns(snapshot)

    def keys(self, snapshot: Snapshot) -> list[list[str]]:
        """A record for each column of each partition."""
        columns = self.columns(snapshot)
        partitions = sorted({item.partition for item in snapshot.slices()})
        return [[partition_stats_key(column, partition) for column in columns] for partition in partitions]

    def validate(self, ctx: ValidationContext) -> PartitionValidation:
        """Compare bounds with those of the files that were compared before."""
        if COLUMN_STATS.name not in ctx.earlier and not ctx.of_table:
            raise UnsupportedFeatureError(
                f"{ctx.snapshot.files}: {ctx.name} are made of column_stats: validate those; "
                f"indexes.drop({ctx.name!r}) and indexes.create({ctx.name!r}) build them again",
                feature=f"validation of {ctx.name}",
            )
        return PartitionValidation(ctx=ctx)

    def build(self, ctx: BuildContext) -> PartitionBuild | None:
        """Merge the stats of each partition's files."""
        return plan_partition_stats(ctx)


class ColumnStatsIndex(ColumnStats, MetadataIndex):
    """``column_stats``."""

    __slots__ = ()

    partition: ClassVar[MetadataPartition] = COLUMN_STATS
    covers_logs: ClassVar[bool] = True

    def columns(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Columns that its definition lists."""
        document = known_definitions(snapshot)
        return tuple(covered_columns(document, snapshot.schema, snapshot.config.version))

    def is_wanted(self, options: IndexOptions) -> bool:
        """``hoodie.metadata.index.column.stats.enable``."""
        return options.column_stats

    def columns_again(self, snapshot: Snapshot) -> Sequence[str] | None:
        """Columns that its definition lists, as far as they are still there."""
        document = read_definitions(snapshot.files)
        listed = [name for name in source_fields(document) if name not in META_COLUMNS]
        schema, version = snapshot.schema, stats_version(document, snapshot.config.version)
        found = [name for name in listed if name in schema.names and stats_supported(schema.field(name).type, version)]
        return found or None

    def keys(self, snapshot: Snapshot) -> list[list[str]]:
        """A record for each column of each file."""
        columns, files = self.columns(snapshot), snapshot.base_files()
        return [[column_stats_key(column, base.partition, base.name) for column in columns] for base in files]

    def key_ranges(self, snapshot: Snapshot, files: Sequence[BaseFile]) -> list[KeyRange] | None:
        """Bounds of the record key."""
        return stored_key_ranges(snapshot.metadata, files) if snapshot.metadata.has(self.name) else None

    def validate(self, ctx: ValidationContext) -> StatsValidation:
        """Compare entries with the values of files."""
        return StatsValidation(ctx=ctx)

    def build(self, ctx: BuildContext) -> StatsBuild | None:
        """Compute the stats of all files, and those of partitions with them."""
        return plan_stats(ctx)

    def collector(self, ctx: CollectContext) -> CollectColumnStats:
        """Collect the columns that the table lists, and those that Java would choose.

        Also of a table without the index: a build may publish one while the write is under way.
        """
        snapshot, schema, options = ctx.snapshot, ctx.schema, ctx.options.indexes
        document = known_definitions(snapshot)
        version = stats_version(document, snapshot.config.version)
        chosen = indexable_columns(schema, options.column_stats_columns, options.column_stats_limit, version)
        has_stats = snapshot.metadata.has(self.name)
        listed = covered_columns(document, schema, snapshot.config.version) if has_stats else source_fields(document)
        wanted = {*chosen, *listed}
        possible = indexable_columns(schema, limit=len(schema), version=version)
        types = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in schema}
        return CollectColumnStats({name: types[name] for name in possible if name in wanted})

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        """Stats of the commit's files, of the partitions that it touched, and the columns that Java may prune by."""
        snapshot, collector = ctx.snapshot, ctx.collectors.get(self.name)
        store = snapshot.metadata
        by_partition = store.has(PARTITION_STATS.name)
        if not isinstance(collector, CollectColumnStats) or not (store.has(self.name) or by_partition):
            return IndexUpdate()
        indexed = collector.columns
        document = known_definitions(snapshot)
        version = stats_version(document, snapshot.config.version)
        stats = {(file.partition, file.file_name): file.part(self.name, tuple) or () for file in files}
        nan = {stat.column for found in stats.values() for stat in found if stat.has_nan}
        records: Keyed = []
        for (partition, name), found in stats.items():
            storable = storable_stats(found, store.table_version)
            records.extend(stats_records(storable, partition, name, indexed, version))
        updates = {self.name: records}
        if by_partition:
            computed, over_partitions, unbounded = partition_records_of_commit(ctx, stats, indexed, version)
            records.extend(computed)
            nan |= unbounded
            updates[PARTITION_STATS.name] = over_partitions
        definitions = self._definitions(ctx, frozenset(nan), document, indexed)
        return IndexUpdate(
            records={name: own for name, own in updates.items() if store.has(name)}, definitions=definitions
        )

    def before_undo(
        self, ctx: UndoContext, target: Snapshot, partitions: Collection[str], options: WriteOptions
    ) -> IndexUpdate:
        """Stats that hold with and without the commits, and only columns that both states have in the list for Java."""
        snapshot = ctx.snapshot
        path = snapshot.files.path(DEFINITIONS)
        document = read_definitions(snapshot.files)
        listed = source_fields(document)
        kept = [name for name in listed if name in META_COLUMNS or name.split(".")[0] in target.schema.names]
        definitions: dict[str, bytes | None] = {}
        if kept != listed:
            definitions[path] = encode_definitions(with_column_stats(document, kept, snapshot.config.version))
        if not partitions or not snapshot.metadata.has(self.name):
            return IndexUpdate(definitions=definitions)
        return IndexUpdate(records=records_for_both(ctx, target, partitions), definitions=definitions)

    def undo(self, ctx: UndoContext, removed: RemovedFiles) -> IndexUpdate:
        """Mark the files' stats deleted; compute those of partitions again whose current files changed."""
        store = ctx.snapshot.metadata
        records = {self.name: _tombstones(ctx.snapshot, removed.names)} if store.has(self.name) else {}
        if removed.were_current and store.has(PARTITION_STATS.name):
            computed, over_partitions = records_of_partitions(ctx, removed.names)
            records[PARTITION_STATS.name] = over_partitions
            records.setdefault(self.name, []).extend(computed)
        return IndexUpdate(records=records)

    def _definitions(
        self, ctx: CommitContext, nan: frozenset[str], document: dict[str, Any], indexed: Mapping[str, pa.DataType]
    ) -> dict[str, bytes | None]:
        """Say which columns Java may prune by, before a record of the commit becomes visible.

        A column that the write adds to the schema joins the list; a listed one that lakedex cannot keep leaves it, and
        so does one that holds NaN, which no bound says to Java's reader, and one that becomes a double, whose older
        bounds Java's reader casts and fails. Narrowing is always safe; lakedex itself plans by the records, whatever
        the list says.
        """
        snapshot, listed = ctx.snapshot, source_fields(document)
        if not listed or not snapshot.metadata.has(self.name):
            return {}
        before = set(ctx.before.names)
        version = stats_version(document, snapshot.config.version)
        possible = indexable_columns(ctx.schema, None, len(ctx.schema), version)
        added = [name for name in listed if name in possible and name in before and name not in indexed]
        if added:
            raise CommitConflictError(
                f"{snapshot.files}: the write did not know that column_stats has {', '.join(added)} since an index "
                f"build: {ctx.instant}; nothing was written, run the write again",
                ours=ctx.instant,
                theirs=None,
                file_groups=frozenset(),
                retryable=True,
            )
        unlistable = nan | _become_double(ctx.before, ctx.schema) | unlisted(ctx.schema, version)
        wanted = [name for name in indexed if name not in unlistable and (name in listed or name not in before)]
        if wanted == listed:
            return {}
        content = encode_definitions(with_column_stats(document, wanted, snapshot.config.version))
        return {snapshot.files.path(DEFINITIONS): content}


def _become_double(before: pa.Schema, after: pa.Schema) -> frozenset[str]:
    """Columns that were integers or floats."""
    return frozenset(
        column.name
        for column in after
        if pa.types.is_float64(column.type)
        and column.name in before.names
        and before.field(column.name).type != column.type
    )


@dataclass(frozen=True, slots=True)
class CollectColumnStats:
    """Collects the stats of some columns, given with their types: a tuple of :class:`ColumnStat` for each file."""

    columns: Mapping[str, pa.DataType]

    @property
    def repeating(self) -> frozenset[str]:
        """None: any column has bounds."""
        return frozenset()

    @property
    def takes_logs(self) -> bool:
        """True: a log file has a record for each column, as a base file has."""
        return True

    def begin(self, schema: pa.Schema) -> _FileStats:
        """Begin a file."""
        return _FileStats(ColumnStatsBuilder(self.columns))


@dataclass(frozen=True, slots=True)
class _FileStats:
    """Stats of one file."""

    builder: ColumnStatsBuilder

    def add(self, batch: pa.RecordBatch, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        self.builder.add(batch, bounds)

    def finish(self, file: FinishedFile) -> tuple[ColumnStat, ...]:
        # A log file of deletes alone has records of no values.
        is_log = parse_log_file_name(file.name) is not None
        return tuple(self.builder.finish(file.summary.column_bytes, even_empty=is_log))


KEYS_AT_ONCE = 100_000
"""Stats that are looked up at a time: some 50 MB of records."""


def _tombstones(snapshot: Snapshot, files: Mapping[str, Sequence[str]]) -> Keyed:
    """Records that take files out. Merging never brings a deleted entry back to life."""
    columns = _columns_ever(snapshot)
    subjects = [
        (column_stats_key(column, path, name), name, column)
        for path, names in files.items()
        for name in names
        for column in columns
    ]
    found: Keyed = []
    for start in range(0, len(subjects), KEYS_AT_ONCE):
        part = {key: (name, column) for key, name, column in subjects[start : start + KEYS_AT_ONCE]}
        known = snapshot.metadata.get_many(COLUMN_STATS.name, list(part))
        found.extend((key, deleted_stats_record(*part[key])) for key, record in known.items() if not is_deleted(record))
    return found


def _columns_ever(snapshot: Snapshot) -> list[str]:
    """Columns that a file may have stats of: those of every schema that the timeline still knows, and the listed."""
    names = {*META_COLUMNS, *source_fields(known_definitions(snapshot))}
    names.update(indexable_columns(snapshot.schema, limit=len(snapshot.schema)))
    texts: dict[str, str] = {}
    for instant in snapshot.timeline.completed(WRITE_ACTIONS):
        text = snapshot.timeline.commit_notes(instant).schema
        if text is not None:
            texts.setdefault(text, instant.file_name)
    for text, source in texts.items():
        schema = snapshot.parse_schema(text, source)
        names.update(indexable_columns(schema, limit=len(schema)))
    return sorted(names)


def stored_key_ranges(store: MetadataStore, files: Sequence[BaseFile]) -> list[KeyRange]:
    """Ranges of base files. Bounds of a writer that compares in another order are no proof, and left out."""
    found = _from_arrays(store, files) if len(files) >= MANY else None
    return _from_records(store, files) if found is None else found


def _from_records(store: MetadataStore, files: Sequence[BaseFile]) -> list[KeyRange]:
    """A record that names another file, whose hashes are the same, says nothing."""
    keys = [column_stats_key(RECORD_KEY, base.partition, base.name) for base in files]
    partitions = {base.partition for base in files}
    if len(partitions) > 256:
        found = store.scan(COLUMN_STATS.name, [column_stats_prefix(RECORD_KEY)])
    elif len(files) <= 4 * len(partitions):
        found = store.get_many(COLUMN_STATS.name, keys)
    else:
        found = store.scan(COLUMN_STATS.name, [column_stats_prefix(RECORD_KEY, partition) for partition in partitions])
    ranges = []
    for key, base in zip(keys, files, strict=True):
        record = found.get(key)
        own = record is not None and (record["ColumnStatsMetadata"] or {}).get("fileName") == base.name
        stat = stat_of(record, pa.string()) if record is not None and own else None
        if stat is None or stat.all_null:
            ranges.append(KeyRange())
        else:
            ranges.append(_range(stat.minimum, stat.maximum, stat.value_count))
    return ranges


def _from_arrays(store: MetadataStore, files: Sequence[BaseFile]) -> list[KeyRange] | None:
    """The records of all files at once; None if that fails."""
    named = [(base.partition, base.name) for base in files]
    stats = stat_arrays(store, named, {RECORD_KEY: pa.string()}, named=True).get(RECORD_KEY)
    if stats is None:
        return None
    known = zip(stats.low.to_pylist(), stats.high.to_pylist(), stats.nulls.tolist(), stats.counts.tolist(), strict=True)
    ranges = []
    for is_known in stats.known.tolist():
        low, high, nulls, rows = next(known) if is_known else (None, None, 0, 0)
        ranges.append(KeyRange() if not is_known or nulls == rows else _range(str(low), str(high), rows))
    return ranges


def _range(low: str, high: str, rows: int) -> KeyRange:
    return KeyRange(low, high, rows) if is_order_safe(low) and is_order_safe(high) else KeyRange(rows=rows)
