"""The levels of tagging as batch maps: ranges and filters, the same by buckets, and the key columns of files."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.bloom import BloomFilter, KeyProbe, decode_bloom, hash_keys
from lakedex.index.protocol import KeyFilters
from lakedex.io.liveness import ProcessIdentity
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.parquet.base_file_reader import iter_base_file, read_footer
from lakedex.parquet.conform import conform
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.stored_versions import stored_versions
from lakedex.tagging.candidates import KeyRanges, SortedKeys
from lakedex.tagging.keyed_rows import FILE, KEY, PARTITION
from lakedex.types import RECORD_KEY, IoCount

__all__ = [
    "BUCKET",
    "STORED_ORDERING",
    "ChooseFile",
    "Counts",
    "DropCounts",
    "MatchKeys",
    "ProbeBuckets",
    "ProbeKeys",
    "Reports",
    "SpreadKeys",
]


STORED_ORDERING = "__lakedex_stored_ordering"


BUCKET = "__lakedex_bucket"


_REPORT = "__lakedex_report"


_CANDIDATES = pa.schema([(FILE, pa.int32()), (PARTITION, pa.string()), (KEY, pa.string()), (_REPORT, pa.binary())])


_IN_BUCKETS = pa.schema([(BUCKET, pa.int32()), *list(_CANDIDATES)[1:]])


# --------------------------------------------------------------------------------------------------------- the figures
@dataclass(slots=True)
class Counts:
    """Figures of one task."""

    keys: int = 0
    pairs: int = 0
    candidates: int = 0
    matches: int = 0
    requests: int = 0
    bytes_read: int = 0
    after_ranges: set[int] = field(default_factory=set)
    after_blooms: set[int] = field(default_factory=set)
    unfiltered: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    deleted_in: set[int] = field(default_factory=set)
    matched: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    process: ProcessIdentity = field(default_factory=ProcessIdentity.current)

    def as_batch(self, schema: pa.Schema = _CANDIDATES) -> pa.RecordBatch:
        """The figures as a row among candidates."""
        columns = [pa.nulls(1, column.type) for column in schema]
        columns[0], columns[3] = pa.array([-1], pa.int32()), pa.array([pickle.dumps(self)], pa.binary())
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def read(self, count: IoCount) -> None:
        """Note what the task read."""
        self.requests, self.bytes_read = count.requests, count.bytes_read

    def clock(self, level: str, started: float) -> None:
        """Add the time since ``started`` to a level."""
        self.seconds[level] = self.seconds.get(level, 0.0) + time.perf_counter() - started


def _pairs(number: int, partitions: pa.Array, keys: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    numbers = pa.array(np.full(len(keys), number, np.int32))
    return pa.RecordBatch.from_arrays([numbers, partitions, keys, pa.nulls(len(keys), pa.binary())], schema=schema)


# ------------------------------------------------------------------------------------------- ranges and bloom filters
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeKeys:
    """Levels 1 and 2: for each file the incoming keys that it may hold.

    ``paths`` numbers the partitions, None for keys of any partition; ``gathered`` are filters that came with the task.

    Memory: one task's distinct keys, with their hashes (4 bytes each, 30 at Hudi's default rate), and one batch of
    filters.
    """

    files: TableFiles
    partitions: pa.Array
    names: pa.Array
    ranges: KeyRanges
    paths: tuple[str, ...] | None
    filters: KeyFilters | None
    gathered: Mapping[int, BloomFilter] | None = None
    reads: ClassVar[tuple[str, ...]] = (KEY, PARTITION)

    @property
    def schema(self) -> pa.Schema:
        """(file number, partition, key, report)."""
        return _CANDIDATES

    def holding(self, filters: Mapping[int, BloomFilter]) -> ProbeKeys:
        """The same with filters that need not be read."""
        return replace(self, gathered=filters)

    def located(self, places: npt.NDArray[np.intp]) -> list[tuple[str, str]]:
        """(partition, name) of some files."""
        at = pa.array(places)
        return list(zip(self.partitions.take(at).to_pylist(), self.names.take(at).to_pylist(), strict=True))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Probe one task's keys."""
        counts, before = Counts(), self.files.storage.counted.copy()
        keys = _sorted_keys(batches, self.paths)
        counts.keys = len(keys)
        yield from self.probe(np.arange(len(self.ranges)), keys, counts)
        counts.read(self.files.storage.counted - before)
        yield counts.as_batch()

    def probe(self, files: npt.NDArray[np.intp], keys: SortedKeys, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Candidates among some of the files."""
        started = time.perf_counter()
        starts, ends = self.ranges.take(files).slices(keys)
        touched = np.flatnonzero(starts < ends)
        files, starts, ends = files[touched], starts[touched], ends[touched]
        counts.after_ranges.update(files.tolist())
        counts.clock("ranges", started)
        asked = KeyProbe(keys.keys)
        left = set(range(len(files)))
        bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
        for place, bloom in self._filters(files):
            started = time.perf_counter()
            left.discard(place)
            start, end = bounds[place]
            counts.pairs += end - start
            passed = asked.passing(bloom, start, end)
            if len(passed):
                yield from self._passed(int(files[place]), keys.keys.take(pa.array(passed)), counts)
            counts.clock("blooms", started)
        for place in sorted(left):
            counts.unfiltered.add(int(files[place]))
            start, end = int(starts[place]), int(ends[place])
            yield from self._passed(int(files[place]), keys.keys.slice(start, end - start), counts)

    def _filters(self, files: npt.NDArray[np.intp]) -> Iterator[tuple[int, BloomFilter]]:
        if self.gathered is not None:
            yield from (
                (place, self.gathered[file]) for place, file in enumerate(files.tolist()) if file in self.gathered
            )
        elif self.filters is not None:
            yield from self.filters.read(self.located(files))
        else:
            for place, (partition, name) in enumerate(self.located(files)):
                path = self.files.path(partition, name)
                footer = read_footer(self.files.storage, path)
                if footer.bloom is not None:
                    yield place, decode_bloom(footer.bloom, footer.bloom_type, path)

    def _passed(self, file: int, keys: pa.Array, counts: Counts) -> Iterator[pa.RecordBatch]:
        if len(keys):
            counts.after_blooms.add(file)
            yield _pairs(file, pa.repeat(self.partitions[file], len(keys)), keys, _CANDIDATES)


def _sorted_keys(batches: Iterator[pa.RecordBatch], paths: Sequence[str] | None) -> SortedKeys:
    """Distinct keys of prepared rows: key, partition path and more."""
    pairs = [batch.select([0, 1]) for batch in batches]
    if not pairs:
        return SortedKeys(np.empty(0, np.int32), pa.array([], pa.string()))
    table = pa.Table.from_batches(pairs)
    return SortedKeys.of(table.column(0), None if paths is None else table.column(1), paths or ())


@dataclass(frozen=True, slots=True, eq=False)
class SpreadKeys:
    """Send each distinct key to the buckets whose files' ranges hold it. Memory: one task's distinct keys."""

    ranges: KeyRanges
    paths: tuple[str, ...] | None
    buckets: npt.NDArray[np.int32]
    splits: int
    reads: ClassVar[tuple[str, ...]] = (KEY, PARTITION)

    @property
    def schema(self) -> pa.Schema:
        """(bucket and split, partition, key, report)."""
        return _IN_BUCKETS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's keys."""
        counts, started = Counts(), time.perf_counter()
        keys = _sorted_keys(batches, self.paths)
        counts.keys = len(keys)
        starts, ends = self.ranges.slices(keys)
        paths = pa.array(self.paths or (None,), pa.string())
        split = hash_keys(keys.keys, 1).hashes[0] % np.uint32(self.splits) if self.splits > 1 and len(keys) else None
        for bucket in range(int(self.buckets.max()) + 1):
            own = (self.buckets == bucket) & (starts < ends)
            edges = np.zeros(len(keys) + 1, np.int64)
            np.add.at(edges, starts[own], 1)
            np.add.at(edges, ends[own], -1)
            wanted = np.cumsum(edges)[:-1] > 0
            for part in range(self.splits):
                rows = np.flatnonzero(wanted if split is None else wanted & (split == part))
                if len(rows):
                    at = pa.array(rows)
                    partitions = paths.take(pa.array(keys.codes[rows]))
                    yield _pairs(bucket * self.splits + part, partitions, keys.keys.take(at), _IN_BUCKETS)
        counts.clock("ranges", started)
        yield counts.as_batch(_IN_BUCKETS)


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBuckets:
    """Levels 1 and 2 for the keys of some buckets. Memory: the keys of a task's buckets, and as :class:`Probe`."""

    probe: ProbeKeys
    buckets: npt.NDArray[np.int32]
    splits: int

    @property
    def schema(self) -> pa.Schema:
        """As of the candidates."""
        return _CANDIDATES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Probe one task's buckets."""
        counts, before = Counts(), self.probe.files.storage.counted.copy()
        wanted: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            for number in np.unique(numbers).tolist():
                rows = batch.filter(pa.array(numbers == number))
                if number < 0:
                    yield pa.RecordBatch.from_arrays(rows.columns, schema=_CANDIDATES)
                else:
                    wanted.setdefault(number, []).append(rows.select([2, 1]))
        for number in sorted(wanted):
            keys = _sorted_keys(iter(wanted.pop(number)), self.probe.paths)
            files = np.flatnonzero(self.buckets == number // self.splits)
            yield from self.probe.probe(files, keys, counts)
        counts.read(self.probe.files.storage.counted - before)
        yield counts.as_batch()


# ----------------------------------------------------------------------------------------------------- the key columns
@dataclass(frozen=True, slots=True)
class MatchKeys:
    """Level 3: read the key column of each candidate file, and its log files.

    Memory: one file's candidate keys and one batch; where there are log files also
    :mod:`lakedex.snapshot.stored_versions`.

    Attributes:
        files: the table's files.
        bases: the candidates.
        ordering: column whose stored value comes with each key.
        merging: slices of those candidates that have log files, by number, and how these are merged; None where no
            candidate has any.
        with_deleted: keys that a log file deleted come too, with the number of the candidate plus that of all.
    """

    light: ClassVar[bool] = True

    files: TableFiles
    bases: tuple[BaseFile, ...]
    ordering: pa.Field | None = None
    merging: tuple[Mapping[int, FileSlice], MergeSettings] | None = None
    with_deleted: bool = False

    @property
    def schema(self) -> pa.Schema:
        """As of the candidates, and the ordering value if that is asked for."""
        return _CANDIDATES if self.ordering is None else _CANDIDATES.append(self._stored)

    @property
    def _stored(self) -> pa.Field:
        return pa.field(STORED_ORDERING, self.ordering.type if self.ordering is not None else pa.null())

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Confirm one task's candidates."""
        wanted: dict[int, list[pa.Array]] = {}
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            for number in np.unique(numbers).tolist():
                rows = batch.filter(pa.array(numbers == number))
                if number < 0:
                    extra = [pa.nulls(rows.num_rows, column.type) for column in list(self.schema)[4:]]
                    yield pa.RecordBatch.from_arrays([*rows.columns, *extra], schema=self.schema)
                else:
                    wanted.setdefault(number, []).append(rows.column(2))
        for number, parts in wanted.items():
            counts = Counts(opened={number})
            started, before = time.perf_counter(), self.files.storage.counted.copy()
            keys = pc.unique(pa.chunked_array(parts))
            base = self.bases[number]
            if self.merging is not None and number in self.merging[0]:
                seen, found, deleted = self._merged(self.merging[0][number], self.merging[1], keys)
            else:
                (seen, found), deleted = self._present(base, keys), keys.slice(0, 0)
            counts.read(self.files.storage.counted - before)
            counts.candidates, counts.matches, counts.matched = len(keys), seen, {base.partition: seen + len(deleted)}
            counts.clock("keys", started)
            none = [pa.nulls(len(deleted), column.type) for column in found[1:]]
            for place, columns in ((number, found), (number + len(self.bases), [deleted, *none])):
                if len(columns[0]):
                    paths = pa.repeat(pa.scalar(base.partition), len(columns[0]))
                    rows = _pairs(place, paths, columns[0], _CANDIDATES)
                    yield pa.RecordBatch.from_arrays([*rows.columns, *columns[1:]], schema=self.schema)
            if len(deleted):
                counts.deleted_in.add(number)
            yield counts.as_batch(self.schema)

    def _merged(self, item: FileSlice, merge: MergeSettings, keys: pa.Array) -> tuple[int, list[pa.Array], pa.Array]:
        """The same of a slice with log files, and keys that these have deleted."""
        stored = stored_versions(self.files, item, keys, merge, [] if self.ordering is None else [self.ordering.name])
        live = pa.array(stored.live)
        found = [keys.filter(live)]
        if self.ordering is not None:
            found.append(stored.rows.column(self.ordering.name).combine_chunks().filter(live).cast(self.ordering.type))
        deleted = keys.filter(pa.array(stored.known & ~stored.live & self.with_deleted))
        return int(stored.live.sum()), found, deleted

    def _present(self, base: BaseFile, keys: pa.Array) -> tuple[int, list[pa.Array]]:
        """How many of the keys a file holds, and these, with the ordering values of their rows if asked for."""
        columns = pa.schema([(RECORD_KEY, pa.string()), *([] if self.ordering is None else [self.ordering])])
        path = self.files.path(base.relative_path)
        seen = np.zeros(len(keys), bool)
        pairs: list[pa.RecordBatch] = []
        for batch in iter_base_file(self.files.storage, path, columns.names, size=base.size):
            stored = conform(batch, columns)
            places = pc.index_in(stored.column(0), value_set=keys)
            seen[places.drop_null().to_numpy()] = True
            if self.ordering is not None:
                pairs.append(stored.filter(places.is_valid()))
        if self.ordering is None:
            return int(seen.sum()), [keys.filter(pa.array(seen))]
        # A key that a file holds twice comes twice, each time with its own value.
        rows = pa.Table.from_batches(pairs, columns).combine_chunks()
        found = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in rows.columns]
        return int(seen.sum()), found


@dataclass(frozen=True, slots=True)
class ChooseFile:
    """Leave tags of deleted keys out where the key lives in another file, and all but one of the others.

    Tags come sorted by key, partition and file. Memory: one task's.

    Attributes:
        schema: of the tags.
        files: how many candidates there are; higher numbers are of deleted keys.
    """

    schema: pa.Schema
    files: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's tags."""
        tags = pa.Table.from_batches(batches, self.schema).combine_chunks()
        if not tags.num_rows:
            return
        numbers = tags.column(FILE).to_numpy()
        same = np.ones(tags.num_rows - 1, bool)
        for name in (KEY, PARTITION):
            column = tags.column(name)
            same &= pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
        # Files of living keys have the lower numbers and come first.
        yield from tags.filter(pa.array((numbers < self.files) | np.append(True, ~same))).to_batches()


@dataclass(frozen=True, slots=True)
class Reports:
    """Keep the figures."""

    @property
    def schema(self) -> pa.Schema:
        """Pickled :class:`Counts`."""
        return pa.schema([(_REPORT, pa.binary())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those of one task."""
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(3).drop_null()], schema=self.schema)


@dataclass(frozen=True, slots=True)
class DropCounts:
    """Keep the tags."""

    found: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """All columns but the figures."""
        return pa.schema([column for column in self.found if column.name != _REPORT])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those of one task."""
        for batch in batches:
            tags = batch.filter(pc.greater_equal(batch.column(0), 0))
            yield tags.select(self.schema.names)
