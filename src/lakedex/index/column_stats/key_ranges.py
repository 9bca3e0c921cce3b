"""Key ranges of base files, from the stats of ``_hoodie_record_key``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakedex.codec.column_bounds import is_order_safe
from lakedex.index.column_stats.reader import MANY, stat_arrays
from lakedex.index.column_stats.stats import stat_of
from lakedex.index.protocol import KeyRange
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.records import COLUMN_STATS, column_stats_key, column_stats_prefix
from lakedex.metadata.store import MetadataStore
from lakedex.types import RECORD_KEY

__all__ = ["stored_key_ranges"]


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
