"""Which indexes a table has, and how much of the table each covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakedex.errors import CorruptFileError, IndexInconsistentError, IndexNotFoundError, UnsupportedFeatureError
from lakedex.index.bitmap.coverage import load_bitmap_index
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.index.bitmap.index import BitmapIndex
from lakedex.index.bitmap.stats import bitmap_index_stats, coverage_text
from lakedex.index.bloom_filters import BloomFilters
from lakedex.index.column_stats.index import ColumnStatsIndex
from lakedex.index.column_stats.stats import covered_columns
from lakedex.index.definitions import definitions_path, read_definitions
from lakedex.index.protocol import CollectContext, Index
from lakedex.index.written_file import Collector
from lakedex.metadata.records import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    SUPPORTED,
    bloom_key,
    column_stats_key,
    is_deleted,
    partition_stats_key,
)
from lakedex.metadata.store import metadata_path
from lakedex.reports import ColumnIndexStats, IndexStats
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import RECORD_KEY

__all__ = ["INDEXES", "collectors", "index_stats", "list_indexes", "require_index"]


INDEXES: tuple[Index, ...] = (BloomFilters(), ColumnStatsIndex(), BitmapIndex())
"""All indexes that lakedex knows."""


def collectors(ctx: CollectContext) -> dict[str, Collector]:
    """What a write collects of each file, by index."""
    found = {index.name: index.collector(ctx) for index in INDEXES}
    return {name: collector for name, collector in found.items() if collector is not None}


_INDEXES = pa.schema(
    [
        ("name", pa.string()),
        ("using", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("state", pa.string()),
        ("maintained", pa.bool_()),
    ]
)


_KINDS = {"secondary_index_": "secondary_index", "expr_index_": "expression_index", "record_index": "record_index"}


def list_indexes(snapshot: Snapshot) -> pa.Table:
    """Indexes of a table: name, kind, columns, state, and whether lakedex keeps it up.

    The state is ``complete``, ``inflight``, or ``damaged`` with the reason; of a bitmap index also how many files are
    covered.
    """
    config = snapshot.config
    document = read_definitions(snapshot.storage, definitions_path(snapshot.base_path))
    entries = document["indexDefinitions"]
    damaged = snapshot.lost_metadata
    rows = []
    for name in sorted((config.metadata_partitions | config.metadata_partitions_inflight) - {FILES.name}):
        kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), name)
        if name in (BLOOM_FILTERS.name, "record_index"):
            columns = [RECORD_KEY]
        elif name in (COLUMN_STATS.name, PARTITION_STATS.name):
            columns = covered_columns(document, snapshot.schema, config.version)
        else:
            columns = list((entries.get(name) or {}).get("sourceFields") or [])
        state = "complete" if name in config.metadata_partitions else "inflight"
        state = f"damaged: {lost}" if (lost := damaged.get(name) or damaged.get(FILES.name)) else state
        rows.append({"name": name, "using": kind, "columns": columns, "state": state, "maintained": name in SUPPORTED})
    return pa.Table.from_pylist([*rows, *_bitmap_rows(snapshot)], _INDEXES)


def _bitmap_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    try:
        definitions = read_bitmap_definitions(snapshot.storage, snapshot.base_path)
    except CorruptFileError as error:
        return [{"name": "?", "using": "bitmap", "columns": [], "state": f"damaged: {error}", "maintained": False}]
    try:
        held = load_bitmap_index(snapshot)
        damage = ""
    except CorruptFileError as error:
        held, damage = None, f"damaged: {error}"
    return [
        {
            "name": name,
            "using": "bitmap",
            "columns": list(definition.columns),
            "state": coverage_text(held, snapshot, definition.columns) if held is not None else damage,
            "maintained": True,
        }
        for name, definition in sorted(definitions.items())
    ]


def require_index(snapshot: Snapshot, name: str) -> None:
    """Refuse a name that is no index of the metadata table whose records lakedex reads.

    Raises:
        IndexNotFoundError: the table does not have it.
        IndexInconsistentError: files of it are missing or damaged.
        UnsupportedFeatureError: an index whose records lakedex does not read.
    """
    if name == FILES.name or name not in snapshot.metadata.partitions:
        bitmaps = read_bitmap_definitions(snapshot.storage, snapshot.base_path)
        present = ", ".join(sorted({*snapshot.config.metadata_partitions, *bitmaps} - {FILES.name})) or "none"
        raise IndexNotFoundError(f"{snapshot.base_path} has no index {name!r}; it has {present}", index=name)
    if name not in SUPPORTED:
        raise UnsupportedFeatureError(
            f"{snapshot.base_path}: lakedex does not read the index {name!r}", feature=f"index {name}"
        )
    wrong = snapshot.metadata.why_lost(FILES.name) or snapshot.metadata.why_lost(name)
    if wrong:
        raise IndexInconsistentError(
            f"{snapshot.base_path}: the index {name!r} is damaged: {wrong}; maintenance.rebuild_metadata() makes it "
            "anew",
            table=snapshot.base_path,
            index=name,
        )


def index_stats(snapshot: Snapshot, name: str) -> IndexStats:
    """Entries and coverage of an index.

    Raises:
        IndexNotFoundError: the table does not have it.
        IndexInconsistentError: files of it are missing or damaged.
        UnsupportedFeatureError: an index whose records lakedex does not read.
        CorruptFileError: definitions or the manifest of a bitmap index are damaged.
    """
    definition = read_bitmap_definitions(snapshot.storage, snapshot.base_path).get(name)
    if definition is not None:
        return bitmap_index_stats(snapshot, definition)
    require_index(snapshot, name)
    columns, wanted = _wanted_keys(snapshot, name)
    records = snapshot.metadata.scan(name)
    live = {key for key, record in records.items() if not is_deleted(record)}
    covered = sum(all(key in live for key in keys) for keys in wanted)
    entries = [sum(keys[number] in live for keys in wanted) for number in range(len(columns))]
    folder = f"{metadata_path(snapshot.base_path)}/{name}"
    return IndexStats(
        name=name,
        entries=sum(entries),
        files_covered=covered,
        files_uncovered=len(wanted) - covered,
        bytes=sum(entry.size for entry in snapshot.storage.list(folder) if not entry.is_dir),
        columns=tuple(
            ColumnIndexStats(column=column, entries=count, files_indexed=count)
            for column, count in zip(columns, entries, strict=True)
        ),
    )


def _wanted_keys(snapshot: Snapshot, name: str) -> tuple[Sequence[str], list[list[str]]]:
    """Columns of an index, and for each current base file or partition their keys in a full index."""
    files = snapshot.base_files()
    if name == BLOOM_FILTERS.name:
        return [RECORD_KEY], [[bloom_key(base.partition, base.name)] for base in files]
    document = read_definitions(snapshot.storage, definitions_path(snapshot.base_path))
    columns = covered_columns(document, snapshot.schema, snapshot.config.version)
    if name == COLUMN_STATS.name:
        return columns, [[column_stats_key(column, base.partition, base.name) for column in columns] for base in files]
    return columns, [
        [partition_stats_key(column, partition) for column in columns]
        for partition in sorted({base.partition for base in files})
    ]
