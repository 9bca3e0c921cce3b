"""What the metadata table says of files that are gone (``HoodieTableMetadataUtil.convertMetadataToRecords``).

The entry of a file is marked deleted in ``files``, ``bloom_filters`` and ``column_stats``; merging never brings it back
to life. A partition without files leaves the list of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakedex.index.column_stats.pruning import ColumnStats
from lakedex.index.column_stats.stats import ColumnStat, ColumnStatsBuilder, covered_columns, indexable_columns
from lakedex.index.definitions import definitions_path, read_definitions, source_fields, stats_version
from lakedex.index.protocol import CollectContext, UnindexedBase
from lakedex.index.written_file import FinishedFile
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    Record,
    all_partitions_record,
    bloom_key,
    bloom_record,
    column_stats_key,
    deleted_stats_record,
    files_key,
    files_record,
    is_deleted,
)
from lakedex.metadata.writer import Keyed
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.types import META_COLUMNS

__all__ = ["CollectColumnStats", "ColumnStatsIndex", "tombstones"]


class ColumnStatsIndex(ColumnStats, UnindexedBase):
    """``column_stats``."""

    __slots__ = ()

    def collector(self, ctx: CollectContext) -> CollectColumnStats:
        """Collect the columns that the table lists, and those that Java would choose.

        Also of a table without the index: a build may publish one while the write is under way.
        """
        snapshot, schema, options = ctx.snapshot, ctx.schema, ctx.options
        document = read_definitions(snapshot.storage, definitions_path(snapshot.base_path))
        version = stats_version(document, snapshot.config.version)
        chosen = indexable_columns(schema, options.column_stats_columns, options.column_stats_limit, version)
        has_stats = snapshot.metadata.has(self.name)
        listed = covered_columns(document, schema, snapshot.config.version) if has_stats else source_fields(document)
        wanted = {*chosen, *listed}
        possible = indexable_columns(schema, limit=len(schema), version=version)
        types = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in schema}
        return CollectColumnStats({name: types[name] for name in possible if name in wanted})


@dataclass(frozen=True, slots=True)
class CollectColumnStats:
    """Collects the stats of some columns, given with their types: a tuple of :class:`ColumnStat` for each file."""

    columns: Mapping[str, pa.DataType]

    @property
    def repeating(self) -> frozenset[str]:
        """None: any column has bounds."""
        return frozenset()

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
        return tuple(self.builder.finish(file.summary.column_bytes))


KEYS_AT_ONCE = 100_000
"""Stats that are looked up at a time: some 50 MB of records."""


def tombstones(
    snapshot: Snapshot, files: Mapping[str, Sequence[str]], gone: Collection[str], instant: str
) -> dict[str, Keyed]:
    """Records by metadata partition that take files out, for those partitions that the table has.

    Args:
        snapshot: the table.
        files: names of the files by partition.
        gone: partitions that have no file any more.
        instant: the action that removes them.
    """
    store = snapshot.metadata
    if not store.has(FILES.name):
        return {}
    listed: Keyed = [(files_key(path), files_record({}, names)) for path, names in files.items() if names]
    if gone:
        listed.append((ALL_PARTITIONS, all_partitions_record((), map(files_key, gone))))
    updates = {FILES.name: listed}
    if store.has(BLOOM_FILTERS.name):
        keys = [bloom_key(path, name) for path, names in files.items() for name in names]
        known = store.get_many(BLOOM_FILTERS.name, keys)
        updates[BLOOM_FILTERS.name] = [(key, bloom_record("", instant, b"", deleted=True)) for key in _live(known)]
    if store.has(COLUMN_STATS.name):
        updates[COLUMN_STATS.name] = _stats(snapshot, files)
    return updates


def _live(records: Mapping[str, Record]) -> list[str]:
    return [key for key, record in records.items() if not is_deleted(record)]


def _stats(snapshot: Snapshot, files: Mapping[str, Sequence[str]]) -> Keyed:
    columns = _columns(snapshot)
    subjects = [
        (column_stats_key(column, path, name), name, column)
        for path, names in files.items()
        for name in names
        for column in columns
    ]
    found: Keyed = []
    for start in range(0, len(subjects), KEYS_AT_ONCE):
        part = {key: (name, column) for key, name, column in subjects[start : start + KEYS_AT_ONCE]}
        live = _live(snapshot.metadata.get_many(COLUMN_STATS.name, list(part)))
        found.extend((key, deleted_stats_record(*part[key])) for key in live)
    return found


def _columns(snapshot: Snapshot) -> list[str]:
    """Columns that a file may have stats of: those of every schema that the timeline still knows, and the listed."""
    names = {*META_COLUMNS, *source_fields(read_definitions(snapshot.storage, definitions_path(snapshot.base_path)))}
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
