"""Bounds of columns per subject (a file slice, or a partition), as arrays that stay from query to query.

What was read is held as Arrow columns of *entries*; ``place`` says which entry belongs to which subject. When the table
moves on, only places move: unchanged subjects keep their entry, changed ones are read when they are asked for.

Memory: two bounds and two counts per subject and column that a query asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakedex.expr import ColumnBounds
from lakedex.index.column_stats import ColumnStat
from lakedex.index.stat_arrays import StatArrays
from lakedex.metadata.cells import decode_cell, record_schema
from lakedex.metadata.file_view import FileView, MetadataFiles
from lakedex.metadata.partitions import column_stats_prefix
from lakedex.metadata.records import PAYLOADS
from lakedex.metadata.store import MetadataStore
from lakedex.types import RECORD_KEY, IntArray

__all__ = [
    "HeldBounds",
    "Load",
]

Load = Callable[[IntArray, Mapping[str, pa.DataType]], Mapping[str, Sequence[ColumnStat | None] | StatArrays]]
"""Reads stats of subjects: per column one entry for each of the rows, None where nothing is known; or as arrays."""

NOT_READ = -2
UNKNOWN = -1


@dataclass(slots=True, eq=False)
class _Entries:
    """What is held of one column."""

    kind: pa.DataType
    place: IntArray
    low: pa.Array
    high: pa.Array
    nulls: IntArray
    counts: IntArray

    @classmethod
    def empty(cls, kind: pa.DataType, subjects: int) -> _Entries:
        none = np.empty(0, np.int64)
        return cls(kind, np.full(subjects, NOT_READ, np.int64), pa.array([], kind), pa.array([], kind), none, none)

    def add(self, rows: IntArray, stats: Sequence[ColumnStat | None] | StatArrays) -> None:
        found = stats if isinstance(stats, StatArrays) else StatArrays.of(stats, self.kind)
        places = np.full(len(rows), UNKNOWN, np.int64)
        places[found.known] = len(self.nulls) + np.arange(len(found.nulls))
        self.place[rows] = places
        self.low = pa.concat_arrays([self.low, found.low])
        self.high = pa.concat_arrays([self.high, found.high])
        self.nulls = np.concatenate([self.nulls, found.nulls])
        self.counts = np.concatenate([self.counts, found.counts])

    def bounds(self, rows: IntArray) -> ColumnBounds:
        place = self.place[rows]
        if len(place) == len(self.nulls) and np.array_equal(place, np.arange(len(place))):
            return ColumnBounds(self.low, self.high, self.nulls, self.counts)
        known = place >= 0
        if not known.any():
            nothing, minus = pa.nulls(len(place), self.kind), np.full(len(place), -1, np.int64)
            return ColumnBounds(nothing, nothing, minus, minus)
        safe = np.where(known, place, 0)
        at = pa.array(safe, mask=~known)
        nulls, counts = (np.where(known, numbers[safe], -1) for numbers in (self.nulls, self.counts))
        return ColumnBounds(self.low.take(at), self.high.take(at), nulls, counts)

    def moved(self, rows: IntArray) -> _Entries:
        """The same entries for other subjects: each of ``rows`` is an old row, or negative."""
        place = np.where(rows >= 0, self.place[np.maximum(rows, 0)] if len(self.place) else NOT_READ, NOT_READ)
        if len(self.nulls) <= 2 * len(rows) + 1024:
            return _Entries(self.kind, place, self.low, self.high, self.nulls, self.counts)
        # Entries of subjects that are no more would pile up.
        used = np.unique(place[place >= 0])
        again = np.searchsorted(used, place)
        at = pa.array(used)
        return _Entries(
            self.kind,
            np.where(place >= 0, again, place),
            self.low.take(at),
            self.high.take(at),
            self.nulls[used],
            self.counts[used],
        )


@dataclass(slots=True, eq=False)
class HeldBounds:
    """Bounds of subjects, read from one partition of the metadata table.

    Attributes:
        partition: ``column_stats`` or ``partition_stats``.
        subjects: how many there are.
        files: the metadata files that the entries come from.
        row_map: for a newer view, each subject's row in the older one (negative where it is new).
        rows_named: rows of a view's subjects that records speak of by name.
    """

    partition: str
    subjects: int
    files: MetadataFiles
    row_map: Callable[[FileView, FileView], IntArray]
    rows_named: Callable[[FileView, set[str]], IntArray]
    columns: dict[str, _Entries] = field(default_factory=dict)

    def bounds(self, columns: Mapping[str, pa.DataType], rows: IntArray, load: Load) -> dict[str, ColumnBounds]:
        """Bounds of columns for some subjects; what was not asked for before is read."""
        for name, kind in columns.items():
            held = self.columns.get(name)
            if held is None or held.kind != kind:
                self.columns[name] = _Entries.empty(kind, self.subjects)
        missing = {name: rows[self.columns[name].place[rows] == NOT_READ] for name in columns}
        wanted = {name: kind for name, kind in columns.items() if len(missing[name])}
        if wanted:
            every = np.unique(np.concatenate([missing[name] for name in wanted]))
            for name, stats in load(every, wanted).items():
                self.columns[name].add(every, stats)
        return {name: self.columns[name].bounds(rows) for name in columns}

    def carried(self, older: FileView, newer: FileView, store: MetadataStore) -> HeldBounds | None:
        """What still holds in a newer state: all but the subjects that later records speak of."""
        if not store.has(self.partition):
            return None
        added = store.added_since(self.partition, self.files)
        if added is None:
            return None
        named: set[str] = set()
        # A partition's bounds are trusted by the mark of its keys' record.
        prefixes = [column_stats_prefix(name).encode() for name in {RECORD_KEY, *self.columns}]
        for layer in added:
            schema = record_schema(layer)
            for _, value in layer.scan_prefixes(prefixes):
                if not value:
                    return None
                named.add(
                    decode_cell(value, schema, layer, PAYLOADS[self.partition])["ColumnStatsMetadata"]["fileName"]
                )
        rows = self.row_map(older, newer)
        if named:
            rows[self.rows_named(newer, named)] = NOT_READ
        columns = {name: entries.moved(rows) for name, entries in self.columns.items()}
        files = store.files_of(self.partition)
        return HeldBounds(self.partition, len(rows), files, self.row_map, self.rows_named, columns)
