"""Tagging: the file of each incoming key, in three levels (RFC-37, ``HoodieBloomIndex``).

1. Key ranges of the base files, from ``column_stats`` of ``_hoodie_record_key``.
2. Bloom filters of the files whose range holds a key, from ``bloom_filters``.
3. The key column of the files that are left.

Candidates are all base files of the touched partitions; a level removes only what it can prove. A file without stats
or filter stays. Where the metadata lacks a partition, footers are read instead and the report says so.
"""

from __future__ import annotations

import pickle
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.bloom import BloomFilter, HashedKeys, decode_bloom, hash_keys
from lakedex.engine import Engine, Frame
from lakedex.index.bloom_filters import load_filters
from lakedex.index.column_stats import ColumnStat, stat_of
from lakedex.io.storage import Storage
from lakedex.layout.base_file import iter_base_file, read_footer
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.string_bounds import is_order_safe
from lakedex.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS, column_stats_key, column_stats_prefix
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import MetadataStore
from lakedex.options import WriteOptions
from lakedex.types import RECORD_KEY
from lakedex.write.prepare import FILE, KEY, PARTITION
from lakedex.write.result import TaggingReport

__all__ = ["TagFile", "Tags", "find_key_ranges", "nearest_first", "tag"]

_REPORT = "__lakedex_report"
_CANDIDATES = pa.schema([(FILE, pa.int32()), (PARTITION, pa.string()), (KEY, pa.string()), (_REPORT, pa.binary())])


@dataclass(frozen=True, slots=True)
class TagFile:
    """A candidate: base file ``number``, with its key range where known (None is unknown) and its row count (-1)."""

    number: int
    base: BaseFile
    low: str | None = None
    high: str | None = None
    rows: int = -1


@dataclass(slots=True)
class Tags:
    """Where keys are: a frame of (file number, partition, key), one row per file that holds the key."""

    frame: Frame
    files: Sequence[TagFile]
    report: TaggingReport
    matched: dict[str, int] = field(default_factory=dict)


def find_key_ranges(
    engine: Engine, snapshot: Snapshot, options: WriteOptions, report: TaggingReport, partitions: Sequence[str] | None
) -> list[TagFile]:
    """All base files of the partitions (of the table for None) with what is known of their keys."""
    bases = snapshot.base_files(partitions)
    report.files_listed = len(bases)
    if not bases:
        return []
    store = snapshot.metadata
    if options.use_metadata_blooms and store.has(COLUMN_STATS.name):
        report.source = "metadata"
        stats = _stats_from_metadata(store, bases)
        return [_tag_file(number, base, stats.get(base.name)) for number, base in enumerate(bases)]
    report.source = "footers"
    if options.use_metadata_blooms:
        report.notes.append("the table's metadata has no column_stats: key ranges were read from footers")
    footers = engine.run(
        _FooterRange(snapshot.storage, snapshot.base_path),
        bases,
        f"lakedex {snapshot.config.name}: key ranges of {len(bases)} footers",
    )
    return [TagFile(number, base, *found) for number, (base, found) in enumerate(zip(bases, footers, strict=True))]


def nearest_first(files: Sequence[TagFile], keys: Sequence[str]) -> list[TagFile]:
    """Files in the order in which new keys widen their ranges least, so that ranges go on to prune.

    Files of unknown range come last, smallest first; without keys all do.
    """
    ranged = sorted(
        (file for file in files if file.low is not None and file.high is not None), key=lambda file: str(file.high)
    )
    others = sorted((file for file in files if file.low is None or file.high is None), key=lambda file: file.base.size)
    if not keys:
        return sorted(files, key=lambda file: file.base.size)
    place = bisect_left([str(file.high) for file in ranged], min(keys))
    order = sorted(range(len(ranged)), key=lambda index: (abs(index - place), index))
    return [ranged[index] for index in order] + others


def _stats_from_metadata(store: MetadataStore, bases: Sequence[BaseFile]) -> dict[str, ColumnStat]:
    partitions = {base.partition for base in bases}
    if len(partitions) > 256:
        found = store.scan(COLUMN_STATS.name, [column_stats_prefix(RECORD_KEY)])
    elif len(bases) <= 4 * len(partitions):
        found = store.get_many(COLUMN_STATS.name, [column_stats_key(RECORD_KEY, b.partition, b.name) for b in bases])
    else:
        found = store.scan(COLUMN_STATS.name, [column_stats_prefix(RECORD_KEY, partition) for partition in partitions])
    stats: dict[str, ColumnStat] = {}
    for record in found.values():
        stat = stat_of(record, pa.string())
        if stat is not None:
            stats[record["ColumnStatsMetadata"]["fileName"]] = stat
    return stats


def _tag_file(number: int, base: BaseFile, stat: ColumnStat | None) -> TagFile:
    if stat is None or stat.all_null:
        return TagFile(number, base)
    if not (is_order_safe(stat.minimum) and is_order_safe(stat.maximum)):
        # Written by somebody who compares in another order: no proof either way.
        return TagFile(number, base, rows=stat.value_count)
    return TagFile(number, base, stat.minimum, stat.maximum, stat.value_count)


@dataclass(frozen=True, slots=True)
class _FooterRange:
    storage: Storage
    base_path: str

    def __call__(self, base: BaseFile) -> tuple[str | None, str | None, int]:
        footer = read_footer(self.storage, f"{self.base_path}/{base.relative_path}")
        low, high = footer.min_key, footer.max_key
        if low is None or high is None or not (is_order_safe(low) and is_order_safe(high)):
            return None, None, footer.rows
        return low, high, footer.rows


def tag(
    engine: Engine,
    keyed: Frame,
    snapshot: Snapshot,
    files: Sequence[TagFile],
    options: WriteOptions,
    report: TaggingReport,
    *,
    any_partition: bool = False,
) -> Tags:
    """Find the files of the keys of ``keyed``.

    Args:
        engine: runs the stages.
        keyed: prepared rows (key, partition path, …).
        snapshot: the table.
        files: candidates, from :func:`find_key_ranges`.
        options: which levels to use.
        report: is filled in.
        any_partition: keys come without a partition path; look in all partitions.
    """
    blooms = options.use_metadata_blooms and snapshot.metadata.has(BLOOM_FILTERS.name)
    if files and options.use_metadata_blooms and not blooms:
        report.notes.append("the table's metadata has no bloom_filters: filters were read from footers")
    probe = Probe(
        storage=snapshot.storage,
        base_path=snapshot.base_path,
        files=tuple(files),
        store=snapshot.metadata if blooms else None,
        use_ranges=options.prune_by_ranges,
        any_partition=any_partition,
    )
    match = MatchKeys(snapshot.storage, snapshot.base_path, tuple(file.base for file in files))
    tasks = max(1, min(len(files), 8 * engine.parallelism))
    candidates = engine.exchange(engine.map(keyed, probe), FILE, tasks)
    found = engine.keep(engine.map(candidates, match))
    reports = engine.collect(engine.map(found, _Reports()))
    tags = Tags(engine.map(found, _TagsOnly()), files, report)
    opened: set[int] = set()
    after_ranges: set[int] = set()
    after_blooms: set[int] = set()
    for raw in reports.column(0).to_pylist():
        part: _Counts = pickle.loads(raw)  # noqa: S301 - our own tasks' figures
        after_ranges |= part.after_ranges
        after_blooms |= part.after_blooms
        opened |= part.opened
        report.keys_probed += part.keys
        report.candidates += part.candidates
        report.matches += part.matches
        report.requests += part.requests
        report.bytes_read += part.bytes_read
        for path, count in part.matched.items():
            tags.matched[path] = tags.matched.get(path, 0) + count
        for level, seconds in part.seconds.items():
            report.seconds[level] = report.seconds.get(level, 0.0) + seconds
    report.files_after_ranges, report.files_after_blooms = len(after_ranges), len(after_blooms)
    report.files_opened = len(opened)
    return tags


@dataclass(slots=True)
class _Counts:
    """Figures of one task."""

    keys: int = 0
    candidates: int = 0
    matches: int = 0
    requests: int = 0
    bytes_read: int = 0
    after_ranges: set[int] = field(default_factory=set)
    after_blooms: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    matched: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def as_batch(self) -> pa.RecordBatch:
        """The figures as a row among candidates."""
        columns = [
            pa.array([-1], pa.int32()),
            pa.nulls(1, pa.string()),
            pa.nulls(1, pa.string()),
            pa.array([pickle.dumps(self)]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_CANDIDATES)


def _rows(number: int, partition: str, keys: pa.Array) -> pa.RecordBatch:
    count = len(keys)
    columns = [
        pa.array(np.full(count, number, np.int32)),
        pa.repeat(pa.scalar(partition, pa.string()), count),
        keys,
        pa.nulls(count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_CANDIDATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Levels 1 and 2: for each file the incoming keys that it may hold.

    Memory: one task's distinct keys with their hashes, and one batch of filters.
    """

    storage: Storage
    base_path: str
    files: tuple[TagFile, ...]
    store: MetadataStore | None
    use_ranges: bool
    any_partition: bool

    @property
    def schema(self) -> pa.Schema:
        """(file number, partition, key, report)."""
        return _CANDIDATES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Probe one task's keys."""
        counts = _Counts()
        before = self.storage.counted.copy()
        for partition, keys in self._by_partition(batches):
            files = [file for file in self.files if partition is None or file.base.partition == partition]
            counts.keys += len(keys)
            yield from self._probe(files, keys, counts)
        read = self.storage.counted - before
        counts.requests, counts.bytes_read = read.requests, read.bytes_read
        yield counts.as_batch()

    def _by_partition(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str | None, pa.Array]]:
        held = [batch.select([0, 1]) for batch in batches]
        if not held:
            return
        table = pa.Table.from_batches(held).combine_chunks()
        paths: list[str | None] = [None] if self.any_partition else pc.unique(table.column(1)).to_pylist()
        for path in paths:
            keys = table.column(0) if len(paths) == 1 else table.column(0).filter(pc.equal(table.column(1), path))
            distinct = pc.unique(keys.drop_null())
            if isinstance(distinct, pa.ChunkedArray):
                distinct = distinct.combine_chunks()
            if len(distinct):
                yield path, distinct.take(pc.sort_indices(distinct))

    def _probe(self, files: Sequence[TagFile], keys: pa.Array, counts: _Counts) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        ranges: dict[str, tuple[TagFile, int, int]] = {}
        for file in files:
            start, end = self._range(file, keys)
            if start < end:
                ranges[file.base.name] = (file, start, end)
                counts.after_ranges.add(file.number)
        _clock(counts, "ranges", started)
        hashed: HashedKeys | None = None
        left = dict(ranges)
        for name, bloom in self._filters([file for file, _, _ in ranges.values()]):
            started = time.perf_counter()
            file, start, end = left.pop(name)
            if hashed is None or hashed.num_hashes < bloom.num_hashes:
                hashed = hash_keys(keys, bloom.num_hashes)
            part = HashedKeys(keys.slice(start, end - start), hashed.hashes[:, start:end])
            yield from self._candidates(file, part.keys, bloom.probe(part), counts)
            _clock(counts, "blooms", started)
        for file, start, end in left.values():
            yield from self._candidates(file, keys.slice(start, end - start), None, counts)

    def _range(self, file: TagFile, keys: pa.Array) -> tuple[int, int]:
        """Which of the sorted keys lie in a file's range."""
        if not self.use_ranges or file.low is None or file.high is None:
            return 0, len(keys)
        return _bisect(keys, file.low, after=False), _bisect(keys, file.high, after=True)

    def _filters(self, files: Sequence[TagFile]) -> Iterator[tuple[str, BloomFilter]]:
        if self.store is not None:
            partitions: dict[str, list[str]] = {}
            for file in files:
                partitions.setdefault(file.base.partition, []).append(file.base.name)
            for partition, names in partitions.items():
                yield from load_filters(self.store, partition, names)
            return
        for file in files:
            path = f"{self.base_path}/{file.base.relative_path}"
            footer = read_footer(self.storage, path)
            if footer.bloom is not None:
                yield file.base.name, decode_bloom(footer.bloom, footer.bloom_type, path)

    @staticmethod
    def _candidates(
        file: TagFile, keys: pa.Array, mask: npt.NDArray[np.bool_] | None, counts: _Counts
    ) -> Iterator[pa.RecordBatch]:
        kept = keys if mask is None else keys.filter(pa.array(mask))
        if len(kept):
            counts.after_blooms.add(file.number)
            yield _rows(file.number, file.base.partition, kept)


def _bisect(keys: pa.Array, bound: str, *, after: bool) -> int:
    """Position of ``bound`` among sorted keys. Text compares by code point, as UTF-8 bytes do."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        key = keys[middle].as_py()
        if key < bound or (after and key == bound):
            low = middle + 1
        else:
            high = middle
    return low


def _clock(counts: _Counts, level: str, started: float) -> None:
    counts.seconds[level] = counts.seconds.get(level, 0.0) + time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class MatchKeys:
    """Level 3: read the key column of each candidate file. Memory: one file's candidate keys and one batch."""

    light: ClassVar[bool] = True

    storage: Storage
    base_path: str
    files: tuple[BaseFile, ...]

    @property
    def schema(self) -> pa.Schema:
        """As of the candidates."""
        return _CANDIDATES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Confirm one task's candidates."""
        wanted: dict[int, list[pa.Array]] = {}
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            for number in np.unique(numbers):
                rows = batch.filter(pa.array(numbers == number))
                if number < 0:
                    yield rows
                else:
                    wanted.setdefault(int(number), []).append(rows.column(2))
        for number, parts in wanted.items():
            counts = _Counts(opened={number})
            started, before = time.perf_counter(), self.storage.counted.copy()
            keys = pc.unique(pa.chunked_array(parts))
            base = self.files[number]
            found = self._present(f"{self.base_path}/{base.relative_path}", keys)
            read = self.storage.counted - before
            counts.candidates, counts.matches = len(keys), len(found)
            counts.requests, counts.bytes_read = read.requests, read.bytes_read
            counts.matched = {base.partition: len(found)}
            _clock(counts, "keys", started)
            if len(found):
                yield _rows(number, base.partition, found)
            yield counts.as_batch()

    def _present(self, path: str, keys: pa.Array) -> pa.Array:
        seen = np.zeros(len(keys), bool)
        for batch in iter_base_file(self.storage, path, [RECORD_KEY]):
            places = pc.index_in(batch.column(0), value_set=keys).drop_null().to_numpy()
            seen[places] = True
        return keys.filter(pa.array(seen))


@dataclass(frozen=True, slots=True)
class _Reports:
    """Keep the figures."""

    schema: pa.Schema = pa.schema([(_REPORT, pa.binary())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([batch.column(3).drop_null()], schema=self.schema)


@dataclass(frozen=True, slots=True)
class _TagsOnly:
    """Keep the tags."""

    schema: pa.Schema = pa.schema([(FILE, pa.int32()), (PARTITION, pa.string()), (KEY, pa.string())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            tags = batch.filter(pc.greater_equal(batch.column(0), 0))
            yield pa.RecordBatch.from_arrays(tags.columns[:3], schema=self.schema)
