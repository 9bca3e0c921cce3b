"""Pruning by bounds and counts: ``partition_stats`` for whole partitions, ``column_stats`` for file slices.

A slice with log files is judged by the bounds of its base file and of every log file together: a merged row is one of
theirs. If one of them is not known, the slice is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakedex.codec.stats_value import default_stats_version, stats_supported
from lakedex.expr import ColumnBounds, columns_of, prune
from lakedex.expr.nodes import Predicate
from lakedex.index.absent_columns import nulls_of_absent_columns
from lakedex.index.column_stats import ColumnStat, merge_stats, partition_stat_of
from lakedex.index.file_bounds import stats_of_files
from lakedex.index.held_bounds import HeldBounds, Load
from lakedex.index.protocol import Unused, Verdict, not_there, terms_on
from lakedex.index.stat_arrays import MANY, StatArrays, stat_arrays
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.metadata.file_view import FileView
from lakedex.metadata.partitions import COLUMN_STATS, PARTITION_STATS, column_stats_prefix, partition_stats_key
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import MetadataStore
from lakedex.timeline.instant import Instant
from lakedex.timeline.timeline import WRITE_ACTIONS, Timeline
from lakedex.types import RECORD_KEY, IntArray

__all__ = ["ColumnStats", "PartitionStats", "slice_bounds"]

_FEW = 64
"""Up to so many partitions are looked up by key; more of them are one pass over the column's records."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Prunes file slices."""

    @property
    def name(self) -> str:
        """``column_stats``."""
        return COLUMN_STATS.name

    def prune(self, snapshot: Snapshot, predicate: Predicate, rows: IntArray) -> Verdict:
        """Judge slices by the bounds of the columns that the predicate speaks of."""
        columns, unused = _askable(self.name, snapshot, predicate)
        if not columns:
            return Verdict(unused=unused)
        found = slice_bounds(snapshot, columns, rows) or {}
        return _verdict(self.name, predicate, rows, found, unused, "files")


def slice_bounds(
    snapshot: Snapshot, columns: Mapping[str, pa.DataType], rows: IntArray
) -> dict[str, ColumnBounds] | None:
    """Bounds of columns of slices, as far as ``column_stats`` know them; None without that index.

    Args:
        snapshot: the table.
        columns: dotted names, and the types that they have now.
        rows: rows of the snapshot's view.
    """
    version = default_stats_version(snapshot.config.version)
    if not snapshot.metadata.has(COLUMN_STATS.name) or not all(stats_supported(k, version) for k in columns.values()):
        return None
    view = snapshot.view()
    with view.lock:
        held = _held(view, snapshot.metadata, COLUMN_STATS.name, len(view.table), _slice_rows, _slices_named)
        return held.bounds(columns, rows, _SliceStats(snapshot, view))


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Prunes whole partitions, so that column stats of their files need not be read."""

    @property
    def name(self) -> str:
        """``partition_stats``."""
        return PARTITION_STATS.name

    def prune(self, snapshot: Snapshot, predicate: Predicate, rows: IntArray) -> Verdict:
        """Judge the partitions of the slices; nothing to gain within one partition, where files are judged next."""
        if not snapshot.metadata.has(self.name):
            return Verdict()
        if not snapshot.is_newest:
            detail = "they describe the newest commit only"
            return Verdict(unused=(Unused(index=self.name, reason="other instant", detail=detail),))
        view = snapshot.view()
        partition_of = view.table.partition_of[rows]
        asked, place = np.unique(partition_of, return_inverse=True)
        columns, unused = _askable(self.name, snapshot, predicate)
        columns = {name: kind for name, kind in columns.items() if name not in snapshot.config.partition_fields}
        if not columns or len(asked) < 2:
            return Verdict()
        with view.lock:
            count = len(view.table.partitions)
            held = _held(view, snapshot.metadata, self.name, count, _partition_rows, _partitions_named)
            found = held.bounds(columns, asked, _partition_load(snapshot.metadata, view.table.partitions))
        verdict = _verdict(self.name, predicate, asked, found, unused, "partitions")
        keep, doubtful = verdict.keep, _overtaken(snapshot.timeline)
        if keep is not None and doubtful:
            keep = keep | np.array([view.table.partitions[number] in doubtful for number in asked])
        return Verdict(
            keep=None if keep is None else keep[place],
            terms=verdict.terms,
            note=verdict.note,
            # Types that are not indexed are told once, by column_stats.
            unused=tuple(item for item in verdict.unused if item.reason == "no entry"),
        )


def _overtaken(timeline: Timeline) -> frozenset[str]:
    """Partitions to which a commit came after one with a later instant, whose stats have the last word.

    The metadata table's log files are merged in the order of their instants. A write of lakedex gives way there; one of
    Java's goes on, and the stats of the later instant do not know its files.
    """
    doubtful: set[str] = set()
    later: list[Instant] = []
    first = ""
    for instant in reversed(timeline.completed(WRITE_ACTIONS)):
        done = _completion(instant)
        if first and first < done:
            before = [other for other in later if _completion(other) < done]
            written = set[str]().union(*(_partitions_of(timeline, other) for other in before))
            doubtful |= _partitions_of(timeline, instant) & written
        later.append(instant)
        first = min(first or done, done)
    return frozenset(doubtful)


def _completion(instant: Instant) -> str:
    return instant.completed or instant.requested


def _partitions_of(timeline: Timeline, instant: Instant) -> set[str]:
    return {partition for partition, _ in timeline.commit_metadata(instant).touched_file_groups()}


def _askable(index: str, snapshot: Snapshot, predicate: Predicate) -> tuple[dict[str, pa.DataType], tuple[Unused, ...]]:
    """Columns of the predicate that stats may know, and why not the others."""
    asked = columns_of(predicate)
    if not asked:
        return {}, ()
    if not snapshot.metadata.has(index):
        return {}, (not_there(index, snapshot.metadata),)
    columns: dict[str, pa.DataType] = {}
    unused = []
    # The definition may be older, with fewer types: then there is no record to find.
    version = default_stats_version(snapshot.config.version)
    for column in asked:
        if stats_supported(column.type, version):
            columns[column.name] = column.type
        else:
            detail = f"type {column.type} is not indexed"
            unused.append(Unused(index=index, reason="type", detail=detail, column=column.name))
    return columns, tuple(unused)


def _verdict(
    index: str,
    predicate: Predicate,
    rows: IntArray,
    found: Mapping[str, ColumnBounds],
    unused: tuple[Unused, ...],
    subjects: str,
) -> Verdict:
    known = {name: bounds for name, bounds in found.items() if (bounds.row_count >= 0).any()}
    unused += tuple(
        Unused(index=index, reason="no entry", detail="no entry that can be trusted", column=name)
        for name in found
        if name not in known
    )
    keep = prune(predicate, lambda column: known.get(column.name), len(rows))
    used = terms_on(predicate, lambda column: column.name in known)
    missing = np.zeros(len(rows), bool)
    for bounds in known.values():
        missing |= bounds.row_count < 0
    count = int(missing.sum())
    note = "no entries" if not known else f"not known for {count} {subjects}" if count else ""
    return Verdict(keep=keep, terms=used, note=note, unused=unused)


def _held(view: FileView, store: MetadataStore, name: str, count: int, row_map: object, named: object) -> HeldBounds:
    held = view.derived.get(name)
    if not isinstance(held, HeldBounds):
        held = HeldBounds(name, count, store.files_of(name), row_map, named)  # type: ignore[arg-type]
        view.derived[name] = held
    return held


# ------------------------------------------------------------------------------------------------- subjects: slices


@dataclass(frozen=True, slots=True)
class _SliceStats:
    """Reads stats of file slices."""

    snapshot: Snapshot
    view: FileView

    def __call__(
        self, rows: IntArray, columns: Mapping[str, pa.DataType]
    ) -> dict[str, Sequence[ColumnStat | None] | StatArrays]:
        arrays = self._as_arrays(rows, columns)
        left = {name: kind for name, kind in columns.items() if name not in arrays}
        return {**arrays, **(self._one_by_one(rows, left) if left else {})}

    def _as_arrays(self, rows: IntArray, columns: Mapping[str, pa.DataType]) -> dict[str, StatArrays]:
        """Stats of many slices that are base files alone."""
        table = self.view.table
        if len(rows) < MANY or table.has_logs[rows].any():
            return {}
        bases = [item.base_file for item in table.take(rows)]
        files = [(base.partition, base.name) for base in bases if base is not None]
        found = stat_arrays(self.snapshot.metadata, files, columns)
        for name, stats in found.items():
            holes = np.flatnonzero(~stats.known).tolist()
            if holes:
                unknown = {name: [None] * len(holes)}
                filled = nulls_of_absent_columns(self.snapshot, [bases[place] for place in holes], unknown)
                found[name] = stats.filled(filled[name])
        return found

    def _one_by_one(
        self, rows: IntArray, columns: Mapping[str, pa.DataType]
    ) -> dict[str, Sequence[ColumnStat | None] | StatArrays]:
        slices = self.view.table.take(rows)
        files = [_files(item) for item in slices]
        flat = [file for own in files for file in own]
        found = stats_of_files(self.snapshot.metadata, flat, columns)
        bases = [base for item in slices for base in (*_bases(item), *(None for _ in item.log_files))]
        found = nulls_of_absent_columns(self.snapshot, bases, found)
        if len(flat) == len(slices):
            return dict(found)
        ends = np.cumsum([len(own) for own in files]).tolist()
        starts = [0, *ends[:-1]]
        return {
            name: [_over(name, stats[start:end]) for start, end in zip(starts, ends, strict=True)]
            for name, stats in found.items()
        }


def _bases(item: FileSlice) -> tuple[BaseFile, ...]:
    return () if item.base_file is None else (item.base_file,)


def _files(item: FileSlice) -> list[tuple[str, str]]:
    names = [] if item.base_file is None else [item.base_file.name]
    return [(item.partition, name) for name in (*names, *(log.name for log in item.log_files))]


def _over(column: str, stats: Sequence[ColumnStat | None]) -> ColumnStat | None:
    known = [stat for stat in stats if stat is not None]
    if len(known) < len(stats):
        return None
    return known[0] if len(known) == 1 else merge_stats(column, known)


def _slice_rows(older: FileView, newer: FileView) -> IntArray:
    return newer.table.rows_in(older.table)


def _slices_named(view: FileView, names: set[str]) -> IntArray:
    found = [row for row, item in enumerate(view.table.slices) if names.intersection(name for _, name in _files(item))]
    return np.array(found, np.int64)


# --------------------------------------------------------------------------------------------- subjects: partitions


def _partition_rows(older: FileView, newer: FileView) -> IntArray:
    known = {path: row for row, path in enumerate(older.table.partitions)}
    return np.array([known.get(path, -1) for path in newer.table.partitions], np.int64)


def _partitions_named(view: FileView, names: set[str]) -> IntArray:
    paths = {"" if name == "." else name for name in names}
    return np.array([row for row, path in enumerate(view.table.partitions) if path in paths], np.int64)


def _partition_load(store: MetadataStore, paths: Sequence[str]) -> Load:
    def load(rows: IntArray, columns: Mapping[str, pa.DataType]) -> dict[str, Sequence[ColumnStat | None]]:
        wanted = [paths[row] for row in rows.tolist()]
        names = [*columns, *({RECORD_KEY} - columns.keys())]
        if len(wanted) <= _FEW:
            keys = [partition_stats_key(name, path) for name in names for path in wanted]
            records = store.get_many(PARTITION_STATS.name, keys)
        else:
            records = store.scan(PARTITION_STATS.name, [column_stats_prefix(name) for name in names])
        keyed = {path: records.get(partition_stats_key(RECORD_KEY, path)) for path in wanted}
        return {
            name: [
                partition_stat_of(records.get(partition_stats_key(name, path)), keyed[path], kind) for path in wanted
            ]
            for name, kind in columns.items()
        }

    return load
