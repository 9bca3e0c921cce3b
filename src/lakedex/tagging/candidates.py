"""The base files that may hold an incoming key, from key ranges.

RFC-37 builds an interval tree of the files' ranges and asks it key by key. With all keys of a task at hand, sorting
them once among the bounds gives each range the slice of sorted keys that lies in it: n keys and m files cost
O((n + m) log(n + m)), and no step is taken key by key.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.column_bounds import is_order_safe
from lakedex.engine import Engine
from lakedex.index.registry import INDEXES
from lakedex.io.liveness import ProcessIdentity
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.records import BLOOM_FILTERS, COLUMN_STATS, FILES
from lakedex.options import TaggingOptions
from lakedex.parquet.base_file_reader import read_footer
from lakedex.reports import TaggingReport
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import IntArray, IoCount

__all__ = ["CandidateFile", "KeyRanges", "SortedKeys", "by_key_distance", "find_key_ranges"]


FOOTER_TASKS = 8
"""Tasks for each slot of the engine that footers are shared out to."""


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """A candidate: base file ``number``, with its key range where known (None is unknown) and its row count (-1)."""

    number: int
    base: BaseFile
    low: str | None = None
    high: str | None = None
    rows: int = -1


def find_key_ranges(
    engine: Engine, snapshot: Snapshot, options: TaggingOptions, report: TaggingReport, partitions: Sequence[str] | None
) -> list[CandidateFile]:
    """All base files of some partitions with the ranges of their keys; ``None`` takes those of the whole table.

    The report gains the time and the reads. Ranges come from ``column_stats`` of ``_hoodie_record_key``, from footers
    where the table has none or its metadata is not to be used, and from nowhere with
    ``hoodie.bloom.index.prune.by.ranges=false``.
    """
    before, started = snapshot.files.storage.counted.copy(), time.perf_counter()
    files = _find_key_ranges(engine, snapshot, options, report, partitions)
    read = snapshot.files.storage.counted - before
    report.requests += read.requests
    report.bytes_read += read.bytes_read
    report.seconds["ranges"] = time.perf_counter() - started
    return files


def _find_key_ranges(
    engine: Engine, snapshot: Snapshot, options: TaggingOptions, report: TaggingReport, partitions: Sequence[str] | None
) -> list[CandidateFile]:
    if options.use_metadata:
        snapshot.metadata.list_folders((FILES.name, COLUMN_STATS.name, BLOOM_FILTERS.name))
    bases = snapshot.base_files(partitions)
    report.files_listed = len(bases)
    if not bases:
        return []
    report.source = "metadata" if options.use_metadata else "footers"
    if not options.prune_by_ranges:
        return [CandidateFile(number, base) for number, base in enumerate(bases)]
    for index in INDEXES if options.use_metadata else ():
        ranges = index.key_ranges(snapshot, bases)
        if ranges is not None:
            found = enumerate(zip(bases, ranges, strict=True))
            return [CandidateFile(number, base, *own) for number, (base, own) in found]
    report.source = "footers"
    if options.use_metadata:
        report.notes.append("the table's metadata has no column_stats: key ranges were read from footers")
    return _from_footers(engine, snapshot, bases, report)


def _from_footers(
    engine: Engine, snapshot: Snapshot, bases: Sequence[BaseFile], report: TaggingReport
) -> list[CandidateFile]:
    size = -(-len(bases) // (FOOTER_TASKS * engine.parallelism))
    chunks = [bases[start : start + size] for start in range(0, len(bases), size)]
    label = f"lakedex {snapshot.config.name}: key ranges of {len(bases)} footers"
    parts = engine.run(_FooterRanges(snapshot.files), chunks, label)
    here = ProcessIdentity.current()
    for _, process, read in parts:
        if process != here:  # The caller counts what this process reads.
            report.requests += read.requests
            report.bytes_read += read.bytes_read
    found = [item for items, _, _ in parts for item in items]
    return [CandidateFile(number, base, *item) for number, (base, item) in enumerate(zip(bases, found, strict=True))]


def by_key_distance(files: Sequence[CandidateFile], keys: Sequence[str]) -> list[CandidateFile]:
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


@dataclass(frozen=True, slots=True)
class _FooterRanges:
    """Task: low key, high key and rows of some files, with the process that read them and what that took."""

    files: TableFiles

    def __call__(
        self, bases: Sequence[BaseFile]
    ) -> tuple[list[tuple[str | None, str | None, int]], ProcessIdentity, IoCount]:
        before = self.files.storage.counted.copy()
        found = [self._range(base) for base in bases]
        return found, ProcessIdentity.current(), self.files.storage.counted - before

    def _range(self, base: BaseFile) -> tuple[str | None, str | None, int]:
        footer = read_footer(self.files.storage, self.files.path(base.relative_path))
        low, high = footer.min_key, footer.max_key
        if low is None or high is None or not (is_order_safe(low) and is_order_safe(high)):
            return None, None, footer.rows
        return low, high, footer.rows


@dataclass(frozen=True, slots=True, eq=False)
class SortedKeys:
    """Distinct keys, by the number of their data partition, then by UTF-8 bytes."""

    codes: npt.NDArray[np.int32]
    keys: pa.Array

    @classmethod
    def of(cls, keys: pa.Array, partitions: pa.Array | None, numbered: Sequence[str]) -> SortedKeys:
        """Sort keys; those of partitions that are not ``numbered``, and nulls, are left out.

        Args:
            keys: record keys, chunked or not.
            partitions: their partition paths; None if each may lie in any partition.
            numbered: partition paths; their places are the codes.
        """
        if partitions is None:
            codes = pa.repeat(pa.scalar(0, pa.int32()), len(keys))
        else:
            codes = pc.index_in(partitions, value_set=pa.array(numbered, pa.string()))
        table = pa.table({"code": codes, "key": keys}).group_by(["code", "key"], use_threads=False).aggregate([])
        table = table.select(["code", "key"]).drop_null()
        table = table.take(pc.sort_indices(table, sort_keys=[("code", "ascending"), ("key", "ascending")]))
        table = table.combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns]
        return cls(columns[0].to_numpy(), columns[1])

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class KeyRanges:
    """Files with the numbers of their data partitions and their key ranges; a null bound is unknown."""

    codes: npt.NDArray[np.int32]
    lows: pa.Array
    highs: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, places: npt.NDArray[np.intp]) -> KeyRanges:
        """Some of the files."""
        at = pa.array(places)
        return KeyRanges(self.codes[places], self.lows.take(at), self.highs.take(at))

    def without_bounds(self) -> KeyRanges:
        """All ranges unknown."""
        none = pa.nulls(len(self), pa.string())
        return KeyRanges(self.codes, none, none)

    def slices(self, keys: SortedKeys) -> tuple[IntArray, IntArray]:
        """Start and end, among ``keys``, of those that lie in each file's range.

        A file without both bounds, or with bounds the wrong way round, gets all keys of its partition.
        """
        starts = np.searchsorted(keys.codes, self.codes, side="left").astype(np.int64)
        ends = np.searchsorted(keys.codes, self.codes, side="right").astype(np.int64)
        known = pc.less_equal(self.lows, self.highs).fill_null(False)
        places = np.flatnonzero(known.to_numpy(zero_copy_only=False))
        if len(places) and len(keys):
            codes, at = self.codes[places], pa.array(places)
            starts[places], ends[places] = _bounded(keys, codes, self.lows.take(at), self.highs.take(at))
        return starts, ends


def _bounded(
    keys: SortedKeys, codes: npt.NDArray[np.int32], lows: pa.Array, highs: pa.Array
) -> tuple[IntArray, IntArray]:
    """The sweep: how many keys come before each bound. A lower bound sorts before an equal key, an upper one after."""
    count, files = len(keys), len(codes)
    table = pa.table(
        {
            "code": np.concatenate([keys.codes, codes, codes]),
            "text": pa.chunked_array([keys.keys, lows, highs]).combine_chunks(),
            "side": np.repeat(np.array([1, 0, 2], np.int8), [count, files, files]),
        }
    )
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.schema.names]).to_numpy()
    is_key = order < count
    before = np.cumsum(is_key) - is_key
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return before[place[count : count + files]], before[place[count + files :]]
