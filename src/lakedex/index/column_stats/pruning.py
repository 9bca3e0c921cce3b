"""Pruning by bounds and counts: ``partition_stats`` for partitions, ``column_stats`` for file slices.

Bounds of *subjects* (file slices, or partitions) are cached as Arrow columns of *entries*; ``place`` maps each subject
to its entry. After a commit only places change: unchanged subjects keep their entry, changed ones are read when a query
needs them.

A slice with log files is pruned by the bounds of its base file and of every log file together: a merged row is one of
theirs. If one of them is unknown, the slice is.

A column that was added later is in no older file, and in no entry of one: it has nulls only there. The schema of the
commit that wrote the file proves it, if lakedex wrote the commit. In files of other writers, or of archived commits,
the column stays unknown.

Memory: two bounds and two counts per subject and column that a query needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from lakedex.codec.column_bounds import default_stats_version, stats_supported
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.terms import BoundPredicate
from lakedex.index.column_stats.reader import MANY, StatArrays, stat_arrays, stats_of_files
from lakedex.index.column_stats.stats import ColumnStat, merge_stats, partition_stat_of
from lakedex.index.protocol import PruneResult, UnusedIndex, index_missing
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.metadata.files import MetadataFiles, decode_cell, record_schema
from lakedex.metadata.records import COLUMN_STATS, PARTITION_STATS, PAYLOADS, column_stats_prefix, partition_stats_key
from lakedex.metadata.store import MetadataStore
from lakedex.snapshot.file_system_view import FileSystemView, ViewCache
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.timeline.instant import Instant
from lakedex.types import RECORD_KEY, IntArray

__all__ = ["ColumnStats", "PartitionStats", "nulls_of_absent_columns", "slice_bounds"]


Load = Callable[[IntArray, Mapping[str, pa.DataType]], Mapping[str, Sequence[ColumnStat | None] | StatArrays]]
"""Reads stats of subjects: per column one entry for each of the rows, None where nothing is known; or as arrays."""


NOT_READ = -2


UNKNOWN = -1


@dataclass(slots=True, eq=False)
class _Entries:
    """Cached bounds of one column."""

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
class BoundsCache(ViewCache):
    """Bounds of subjects, read from one partition of the metadata table.

    Attributes:
        partition: ``column_stats`` or ``partition_stats``.
        subjects: how many there are.
        files: the metadata files that the entries come from.
    """

    partition: ClassVar[str]

    subjects: int
    files: MetadataFiles
    columns: dict[str, _Entries] = field(default_factory=dict)

    @classmethod
    def of(cls, view: FileSystemView, store: MetadataStore) -> Self:
        """The cache of a view, whose lock the caller has."""
        return view.caches.get(cls) or view.caches.put(cls(cls.count(view), store.files_of(cls.partition)))

    @staticmethod
    @abstractmethod
    def count(view: FileSystemView) -> int:
        """The number of subjects of a view."""

    @staticmethod
    @abstractmethod
    def rows_before(older: FileSystemView, newer: FileSystemView) -> IntArray:
        """For each subject of a newer view its row in the older one, negative where it is new."""

    @staticmethod
    @abstractmethod
    def rows_named(view: FileSystemView, names: set[str]) -> IntArray:
        """Rows of the subjects that records speak of by name."""

    def bounds(self, columns: Mapping[str, pa.DataType], rows: IntArray, load: Load) -> dict[str, ColumnBounds]:
        """Bounds of columns for some subjects; what was not asked for before is read."""
        for name, kind in columns.items():
            cached = self.columns.get(name)
            if cached is None or cached.kind != kind:
                self.columns[name] = _Entries.empty(kind, self.subjects)
        missing = {name: rows[self.columns[name].place[rows] == NOT_READ] for name in columns}
        wanted = {name: kind for name, kind in columns.items() if len(missing[name])}
        if wanted:
            every = np.unique(np.concatenate([missing[name] for name in wanted]))
            for name, stats in load(every, wanted).items():
                self.columns[name].add(every, stats)
        return {name: self.columns[name].bounds(rows) for name in columns}

    def carry_over(self, older: FileSystemView, newer: FileSystemView, store: MetadataStore) -> Self | None:
        """The bounds that still hold in a newer state: all but those of subjects that later records speak of."""
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
        rows = self.rows_before(older, newer)
        if named:
            rows[self.rows_named(newer, named)] = NOT_READ
        columns = {name: entries.moved(rows) for name, entries in self.columns.items()}
        return type(self)(len(rows), store.files_of(self.partition), columns)


OWN_MARK = "lakedex.version"


def nulls_of_absent_columns(
    snapshot: Snapshot, files: Sequence[BaseFile | None], found: Mapping[str, Sequence[ColumnStat | None]]
) -> dict[str, list[ColumnStat | None]]:
    """Stats with those of absent columns filled in.

    Args:
        snapshot: the table.
        files: what the stats are of; None where it is no base file.
        found: stats by column, None where nothing is known. Dotted names lie in structs.
    """
    filled = {name: list(stats) for name, stats in found.items()}
    holes = [(name, place) for name, stats in filled.items() for place, stat in enumerate(stats) if stat is None]
    schemas: dict[str, pa.Schema | None] = {}
    absent: list[tuple[str, int, BaseFile]] = []
    for name, place in holes:
        base = files[place]
        if base is None:
            continue
        if base.instant not in schemas:
            schemas[base.instant] = _written_schema(snapshot, base.instant)
        schema = schemas[base.instant]
        if schema is not None and not _holds(list(schema), name.split(".")):
            absent.append((name, place, base))
    rows = _row_counts(snapshot, {base for _, _, base in absent})
    for name, place, base in absent:
        if base in rows:
            count = rows[base]
            filled[name][place] = ColumnStat(
                column=name, minimum=None, maximum=None, value_count=count, null_count=count
            )
    return filled


def _written_schema(snapshot: Snapshot, instant: str) -> pa.Schema | None:
    """Columns of the files of a commit; None where they are not known for sure."""
    if not snapshot.timeline.is_completed(instant):
        return None
    commit = snapshot.timeline.commit_notes(instant)
    if commit.schema is None or OWN_MARK not in commit.extra:
        return None
    return snapshot.parse_schema(commit.schema, instant)


def _holds(fields: Sequence[pa.Field], path: Sequence[str]) -> bool:
    """Whether there is a column, or a field inside of one, of this name in any case of letters."""
    for one in fields:
        if one.name.lower() == path[0].lower():
            inner = one.type
            return len(path) == 1 or not pa.types.is_struct(inner) or _holds(list(inner), path[1:])
    return path[0].startswith("_hoodie_")


def _row_counts(snapshot: Snapshot, files: set[BaseFile]) -> dict[BaseFile, int]:
    """Rows of files, by what is stored of their keys: every file has those."""
    wanted = sorted(files, key=lambda base: (base.partition, base.name))
    if not wanted:
        return {}
    places = [(base.partition, base.name) for base in wanted]
    keys = stats_of_files(snapshot.metadata, places, {RECORD_KEY: pa.string()})[RECORD_KEY]
    return {base: stat.value_count for base, stat in zip(wanted, keys, strict=True) if stat is not None}


_FEW_SLICES = 64
"""Up to this number of slices their own stats on an object store are read by fewer requests than both."""


_FEW = 64
"""Up to this number of partitions are looked up by key; more of them are one pass over the column's records."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Prunes file slices."""

    name: ClassVar[str] = COLUMN_STATS.name

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Evaluate slices by the bounds of the predicate's columns."""
        columns, unused = _askable(self.name, snapshot, predicate)
        if not columns:
            return PruneResult(unused=unused)
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
        return SliceBounds.of(view, snapshot.metadata).bounds(columns, rows, _SliceStats(snapshot, view))


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Prunes whole partitions, so that column stats of their files need not be read."""

    name: ClassVar[str] = PARTITION_STATS.name

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Evaluate the partitions of the slices; within one partition nothing is gained, since files come next."""
        if not snapshot.metadata.has(self.name):
            return PruneResult()
        if not snapshot.is_newest:
            detail = "they describe the newest commit only"
            return PruneResult(unused=(UnusedIndex(index=self.name, reason="other instant", detail=detail),))
        if snapshot.files.has_latency and len(rows) <= _FEW_SLICES and snapshot.metadata.has(COLUMN_STATS.name):
            return PruneResult()
        view = snapshot.view()
        partition_of = view.table.partition_of[rows]
        asked, place = np.unique(partition_of, return_inverse=True)
        columns, unused = _askable(self.name, snapshot, predicate)
        columns = {name: kind for name, kind in columns.items() if name not in snapshot.config.partition_fields}
        if not columns or len(asked) < 2:
            return PruneResult()
        with view.lock:
            cached = PartitionBounds.of(view, snapshot.metadata)
            found = cached.bounds(columns, asked, _partition_load(snapshot.metadata, view.table.partitions))
        verdict = _verdict(self.name, predicate, asked, found, unused, "partitions")
        keep, doubtful = verdict.keep, _overtaken(snapshot.timeline)
        if keep is not None and doubtful:
            keep = keep | np.array([view.table.partitions[number] in doubtful for number in asked])
        return PruneResult(
            keep=None if keep is None else keep[place],
            terms=verdict.terms,
            note=verdict.note,
            # Types that are not indexed are reported once, by column_stats.
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


def _askable(
    index: str, snapshot: Snapshot, predicate: BoundPredicate
) -> tuple[dict[str, pa.DataType], tuple[UnusedIndex, ...]]:
    """Columns of the predicate that stats may know, and why not the others."""
    if not predicate.columns:
        return {}, ()
    if not snapshot.metadata.has(index):
        return {}, (index_missing(index, snapshot.metadata),)
    columns: dict[str, pa.DataType] = {}
    unused = []
    # The definition may be older, with fewer types: then there is no record to find.
    version = default_stats_version(snapshot.config.version)
    for column in predicate.columns:
        if stats_supported(column.type, version):
            columns[column.name] = column.type
        else:
            detail = f"type {column.type} is not indexed"
            unused.append(UnusedIndex(index=index, reason="type", detail=detail, column=column.name))
    return columns, tuple(unused)


def _verdict(
    index: str,
    predicate: BoundPredicate,
    rows: IntArray,
    found: Mapping[str, ColumnBounds],
    unused: tuple[UnusedIndex, ...],
    subjects: str,
) -> PruneResult:
    known = {name: bounds for name, bounds in found.items() if (bounds.row_count >= 0).any()}
    unused += tuple(
        UnusedIndex(index=index, reason="no entry", detail="no entry that can be trusted", column=name)
        for name in found
        if name not in known
    )
    keep = prune(predicate.predicate, lambda column: known.get(column.name), len(rows))
    used = predicate.texts_on(known)
    missing = np.zeros(len(rows), bool)
    for bounds in known.values():
        missing |= bounds.row_count < 0
    count = int(missing.sum())
    note = "no entries" if not known else f"not known for {count} {subjects}" if count else ""
    return PruneResult(keep=keep, terms=used, note=note, unused=unused)


# ------------------------------------------------------------------------------------------------- subjects: slices


@dataclass(frozen=True, slots=True)
class _SliceStats:
    """Reads stats of file slices."""

    snapshot: Snapshot
    view: FileSystemView

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


class SliceBounds(BoundsCache):
    """Bounds of file slices."""

    __slots__ = ()

    partition = COLUMN_STATS.name

    @staticmethod
    def count(view: FileSystemView) -> int:
        """See :class:`BoundsCache`."""
        return len(view.table)

    @staticmethod
    def rows_before(older: FileSystemView, newer: FileSystemView) -> IntArray:
        """See :class:`BoundsCache`."""
        return newer.table.rows_in(older.table)

    @staticmethod
    def rows_named(view: FileSystemView, names: set[str]) -> IntArray:
        """See :class:`BoundsCache`."""
        slices = enumerate(view.table.slices)
        found = [row for row, item in slices if names.intersection(name for _, name in _files(item))]
        return np.array(found, np.int64)


# --------------------------------------------------------------------------------------------- subjects: partitions


class PartitionBounds(BoundsCache):
    """Bounds of partitions."""

    __slots__ = ()

    partition = PARTITION_STATS.name

    @staticmethod
    def count(view: FileSystemView) -> int:
        """See :class:`BoundsCache`."""
        return len(view.table.partitions)

    @staticmethod
    def rows_before(older: FileSystemView, newer: FileSystemView) -> IntArray:
        """See :class:`BoundsCache`."""
        known = {path: row for row, path in enumerate(older.table.partitions)}
        return np.array([known.get(path, -1) for path in newer.table.partitions], np.int64)

    @staticmethod
    def rows_named(view: FileSystemView, names: set[str]) -> IntArray:
        """See :class:`BoundsCache`."""
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
