"""Build ``column_stats`` and ``partition_stats`` of a live table from its data.

Memory: the driver holds the bounds of all files, some 300 bytes for each column of each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakedex.codec.column_bounds import stats_supported
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.index.column_stats.partition_stats import StatsOfFile, partition_records, partition_stats
from lakedex.index.column_stats.stats import (
    ColumnStat,
    covered_columns,
    indexable_columns,
    merge_stats,
    stats_records,
    storable_stats,
    unlisted,
)
from lakedex.index.definitions import (
    DEFINITIONS,
    encode_definitions,
    read_definitions,
    stats_version,
    with_column_stats,
)
from lakedex.index.protocol import BuildContext, IndexUpdate
from lakedex.layout.file_slice import DataFile
from lakedex.metadata.records import COLUMN_STATS, PARTITION_STATS
from lakedex.metadata.writer import Keyed
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import META_COLUMNS

__all__ = ["PartitionBuild", "StatsBuild", "plan_partition_stats", "plan_stats", "stats_types"]


def plan_stats(ctx: BuildContext) -> StatsBuild | None:
    """Choose the columns of a build of ``column_stats``; None if the index has them all."""
    now = ctx.snapshot
    if ctx.recompute:
        return StatsBuild(schema=now.schema, indexed=stats_types(now), is_partial=True)
    present = now.metadata.has(COLUMN_STATS.name)
    known = list(stats_types(now)) if present else []
    chosen = ctx.columns if ctx.columns is not None else ctx.options.indexes.column_stats_columns
    if chosen is not None:
        _check_columns(now, chosen)
    version, limit = _version(now), ctx.options.indexes.column_stats_limit
    wanted = indexable_columns(now.schema, chosen, limit, version)
    if present:
        wanted = [name for name in wanted if name not in known] if chosen is not None else []
    if not wanted:
        return None
    # Java's writers list the columns of their own options at each commit, older files or not: those get records.
    usual = indexable_columns(now.schema, None, limit, version)
    return StatsBuild(
        schema=now.schema,
        indexed=_types(now, [name for name in dict.fromkeys([*wanted, *usual]) if name not in known]),
        columns=tuple(wanted),
        groups=_groups(ctx),
        with_partitions=_covers_partitions(ctx),
    )


def _covers_partitions(ctx: BuildContext) -> bool:
    """Whether ``partition_stats`` are built with the files' stats.

    With some columns only, a new partition would tell Java that the others hold nothing.
    """
    store = ctx.snapshot.metadata
    whole = store.has(PARTITION_STATS.name) or not store.has(COLUMN_STATS.name)
    return bool(ctx.snapshot.config.partition_fields and store.table_version >= 8 and whole)


def _groups(ctx: BuildContext) -> dict[str, int]:
    counts = {COLUMN_STATS.name: ctx.options.indexes.column_stats_groups}
    if _covers_partitions(ctx):
        counts[PARTITION_STATS.name] = ctx.options.indexes.partition_stats_groups
    return {name: count for name, count in counts.items() if not ctx.snapshot.metadata.has(name)}


def _check_columns(now: Snapshot, chosen: Sequence[str]) -> None:
    for name in chosen:
        if name in META_COLUMNS:
            continue
        where = f"{now.files}: column {name!r}"
        if name not in now.schema.names:
            raise InvalidInputError(
                f"{where} is not in the table or lies inside of one: {', '.join(now.schema.names)}", column=name
            )
        if not stats_supported(now.schema.field(name).type, _version(now)):
            raise UnsupportedFeatureError(
                f"{where} is {now.schema.field(name).type}, which column_stats cannot hold",
                feature=f"column_stats of {now.schema.field(name).type}",
            )


def _definitions(now: Snapshot) -> dict[str, Any]:
    return read_definitions(now.files)


def _version(now: Snapshot) -> Any:
    return stats_version(_definitions(now), now.config.version)


def stats_types(now: Snapshot) -> dict[str, pa.DataType]:
    """Columns that ``column_stats`` covers, with their types."""
    return _types(now, covered_columns(_definitions(now), now.schema, now.config.version))


def _types(now: Snapshot, names: Sequence[str]) -> dict[str, pa.DataType]:
    types = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in now.schema}
    return {name: types[name] for name in names if name in types}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsBuild:
    """A build of ``column_stats``.

    Attributes:
        schema: the table's columns.
        indexed: columns that get records, with their types.
        columns: those of them that the index lists then.
        groups: new metadata partitions.
        with_partitions: records of ``partition_stats`` come with the last ones.
        is_partial: only some files are computed, so that neither columns nor partitions change.
    """

    schema: pa.Schema
    indexed: Mapping[str, pa.DataType]
    columns: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    with_partitions: bool = False
    is_partial: bool = False

    @property
    def basis(self) -> object:
        """Schema and columns."""
        return self.schema, dict(self.indexed)

    def task(self, ctx: BuildContext) -> StatsOfFile:
        """Read a file's columns."""
        return StatsOfFile(ctx.snapshot.files, dict(self.indexed))

    def updates(self, ctx: BuildContext, parts: Mapping[DataFile, list[ColumnStat]]) -> Iterator[IndexUpdate]:
        """Records of the files; with the last ones those of their partitions, and the list of columns for Java."""
        now, files = ctx.snapshot, list(parts)
        version = _version(now)
        step = ctx.table.limits.files_per_commit
        for start in range(0, max(len(files), 1), step):
            records: Keyed = []
            for base in files[start : start + step]:
                storable = storable_stats(parts[base], now.metadata.table_version)
                records.extend(stats_records(storable, base.partition, base.name, self.indexed, version))
            updates = {COLUMN_STATS.name: records}
            is_last = start + step >= len(files)
            if self.with_partitions and is_last:
                merged = self._over_partitions(parts)
                updates[PARTITION_STATS.name] = partition_records(merged, self.indexed, ctx.instant, version)
            definitions = self._listed(now, parts) if is_last and not self.is_partial else {}
            yield IndexUpdate(records=updates, definitions_after=definitions)

    def _over_partitions(self, parts: Mapping[DataFile, list[ColumnStat]]) -> dict[str, list[ColumnStat]]:
        by_partition: dict[str, dict[str, list[ColumnStat]]] = {}
        for base, stats in parts.items():
            own = by_partition.setdefault(base.partition, {})
            for stat in stats:
                own.setdefault(stat.column, []).append(stat)
        return {
            path: [merge_stats(name, own.get(name, [])) for name in self.indexed] for path, own in by_partition.items()
        }

    def _listed(self, now: Snapshot, parts: Mapping[DataFile, list[ColumnStat]]) -> dict[str, bytes | None]:
        """List the columns that Java may prune by: not those that hold NaN, which no bound says to it."""
        document = _definitions(now)
        unlistable = {stat.column for stats in parts.values() for stat in stats if stat.has_nan}
        unlistable |= unlisted(now.schema, stats_version(document, now.config.version))
        covered = covered_columns(document, now.schema, now.config.version)
        known = covered if now.metadata.has(COLUMN_STATS.name) else []
        listed = {*known, *(name for name in self.columns if name not in unlistable)}
        ordered = [name for name in (*META_COLUMNS, *now.schema.names) if name in listed]
        content = encode_definitions(with_column_stats(document, ordered, now.config.version))
        return {now.files.path(DEFINITIONS): content}


def plan_partition_stats(ctx: BuildContext) -> PartitionBuild | None:
    """A build of ``partition_stats``; None if the table has them."""
    now = ctx.snapshot
    if ctx.columns is not None:
        raise UnsupportedFeatureError(
            f"{now.files}: partition_stats takes no columns: it has those of column_stats",
            feature="partition_stats of other columns",
        )
    present = now.metadata.has(PARTITION_STATS.name)
    if ctx.recompute:
        return PartitionBuild(schema=now.schema, indexed=stats_types(now)) if present else None
    if now.metadata.table_version < 8:
        raise UnsupportedFeatureError(
            f"{now.files}: tables of version {now.config.version} have no partition_stats",
            feature=f"partition_stats of table version {now.config.version}",
        )
    if not now.config.partition_fields:
        raise InvalidInputError(f"{now.files} has no partitions, so it has no partition_stats")
    if not now.metadata.has(COLUMN_STATS.name):
        raise InvalidInputError(
            f"{now.files}: partition_stats are made of column_stats; create column_stats, which makes both"
        )
    groups = {PARTITION_STATS.name: ctx.options.indexes.partition_stats_groups}
    return None if present else PartitionBuild(schema=now.schema, indexed=stats_types(now), groups=groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBuild:
    """A build of ``partition_stats`` from ``column_stats``."""

    schema: pa.Schema
    indexed: Mapping[str, pa.DataType]
    groups: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of ``column_stats``."""
        return tuple(self.indexed)

    @property
    def basis(self) -> object:
        """Schema and columns."""
        return self.schema, dict(self.indexed)

    def task(self, ctx: BuildContext) -> None:
        """No file is read, but for those whose stats are not to be trusted."""

    def updates(self, ctx: BuildContext, parts: Mapping[DataFile, Any]) -> Iterator[IndexUpdate]:
        """Records of the files' partitions."""
        now, version = ctx.snapshot, _version(ctx.snapshot)
        partitions = {base.partition for base in parts}
        computed, merged = partition_stats(now, partitions, self.indexed, ctx.table.engine.run, version)
        records = partition_records(merged, self.indexed, ctx.instant, version)
        yield IndexUpdate(records={PARTITION_STATS.name: records, COLUMN_STATS.name: computed})
