"""A bitmap index of a few files, made to see what it would be worth.

Memory: the bitmaps of the sampled files; the files of runs lie in a temporary folder meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.roaring import deserialize_bitmap
from lakedex.expr.compute import column_values
from lakedex.expr.keys import ordering_keys
from lakedex.expr.nodes import Column, Predicate
from lakedex.index.bitmap.builder import INDEXED, TOO_MANY, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.condition import divide
from lakedex.index.bitmap.counts import CountJudge
from lakedex.index.bitmap.coverage import Coverage
from lakedex.index.bitmap.files import BATCH_ROWS, BitmapsOfFile
from lakedex.index.bitmap.pruning import fetch_rows
from lakedex.index.bitmap.runs import Run, encode_run, list_runs, write_run
from lakedex.index.bitmap.sets import row_sets
from lakedex.index.bitmap.values import normal_values
from lakedex.io.local import LocalStorage
from lakedex.io.storage import Storage
from lakedex.layout.conform import conform_stored
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.row_groups import open_base_file
from lakedex.metadata.table_cache import TableCache

__all__ = ["ColumnSample", "EqualityShares", "Sample", "sampled"]

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSample:
    """One column of the sampled files.

    Attributes:
        column: the column.
        files: its bitmaps, a file each.
        bytes: size of its run.
        seconds: what building took, reading the column with it.
        too_many: distinct values of the first file, where there are more than the cap; else 0.
    """

    column: Column
    files: tuple[ColumnBitmaps, ...]
    bytes: int
    seconds: float
    too_many: int = 0

    @property
    def not_indexed(self) -> tuple[str, ...]:
        """Per file that has no bitmaps of the column, why."""
        return tuple(own.state for own in self.files if own.state != INDEXED)

    @property
    def distinct(self) -> float:
        """Distinct values a file, on average of the indexed ones."""
        found = [len(own.texts) for own in self.files if own.state == INDEXED]
        return float(np.mean(found)) if found else 0.0


@dataclass(frozen=True, slots=True)
class EqualityShares:
    """Shares that ``column = value`` leaves of files, row groups and bytes, each value as often as rows hold it."""

    files: float
    groups: float
    bytes: float


class Sample:
    """The index over the sampled files; valid within :func:`sampled`."""

    def __init__(self, coverage: Coverage, files: Sequence[FileBitmaps], columns: Mapping[str, ColumnSample]) -> None:
        self._coverage, self._files = coverage, files
        self.columns = dict(columns)
        names = [(item.partition, item.base_file) for item in files]
        coverage.column(next(iter(columns), ""))
        self._numbers = np.array([coverage.numbers.get(name, -1) for name in names], np.int64)

    @property
    def rows(self) -> int:
        """Rows of the files."""
        return sum(item.rows for item in self._files)

    @property
    def group_bytes(self) -> list[list[int]]:
        """Bytes of the row groups of each file."""
        return [[group.size for group in item.row_groups] for item in self._files]

    def groups_left(self, predicate: Predicate, indexed: frozenset[str]) -> list[npt.NDArray[np.bool_] | None]:
        """Per file the row groups that bitmaps of some columns leave; None where they say nothing."""
        condition = divide(predicate, indexed)
        judge = CountJudge(self._coverage, self._numbers, np.ones(len(self._numbers), np.int64))
        counts = judge.judge(condition)
        known = {
            term: fetch_rows(self._coverage, term, found.of_value, self._numbers[found.known & (counts.true[1] > 0)])
            for term, found in judge.terms.items()
            if found.of_value is not None
        }
        left: list[npt.NDArray[np.bool_] | None] = []
        for item, number, most in zip(self._files, self._numbers.tolist(), counts.true[1].tolist(), strict=True):
            ends = [0, *accumulate(group.rows for group in item.row_groups)]
            own = {term: rows[number] for term, rows in known.items() if number in rows}
            if not most:
                left.append(np.zeros(len(item.row_groups), bool))
            elif not own:
                left.append(None)
            else:
                rows = row_sets(condition, item.rows, own).true
                left.append(np.array([rows.range_cardinality(a, b) > 0 for a, b in pairwise(ends)], bool))
        return left

    def equality(self, name: str) -> tuple[EqualityShares, EqualityShares] | None:
        """What equality with a value leaves by bounds of files and row groups, and by bitmaps; None without values."""
        sample, coverage = self.columns[name], self._coverage.column(name)
        if not len(coverage.values) or not len(coverage.states):
            return None
        values, good = coverage.typed(name, sample.column.type)
        keys = ordering_keys(values)
        rank = np.empty(len(values), np.int64)
        rank[pc.sort_indices(keys).to_numpy()] = np.arange(len(values))
        weight = np.zeros(len(values))
        np.add.at(weight, coverage.codes, coverage.counts)
        if not weight.sum() or not good.all():
            return None
        weight /= weight.sum()
        below = np.concatenate([[0.0], np.cumsum(weight[np.argsort(rank)])])
        by_bounds, by_bitmaps = np.zeros(3), np.zeros(3)
        total = np.zeros(3)
        for item, own, number in zip(self._files, sample.files, self._numbers.tolist(), strict=True):
            sizes = np.array([group.size for group in item.row_groups], np.float64)
            total += (1, len(sizes), sizes.sum())
            entry = int(coverage.entry_of[number]) if number >= 0 else -1
            if entry < 0 or own.state != INDEXED:
                by_bounds += (1, len(sizes), sizes.sum())
                by_bitmaps += (1, len(sizes), sizes.sum())
                continue
            span = coverage.span(entry)
            codes = coverage.codes[span]
            ranges = _group_ranks(own, rank[codes], item)
            shares = np.array([below[high + 1] - below[low] if high >= 0 else 0.0 for low, high in ranges])
            whole = rank[codes]
            file_share = below[whole.max() + 1] - below[whole.min()] if len(whole) else 0.0
            by_bounds += (file_share, shares.sum(), (shares * sizes).sum())
            kept = float((weight[codes] * coverage.groups[span]).sum())
            by_bitmaps += (weight[codes].sum(), kept, kept * sizes.mean() if len(sizes) else 0.0)
        total = np.maximum(total, 1)
        return EqualityShares(*(by_bounds / total).tolist()), EqualityShares(*(by_bitmaps / total).tolist())


def _group_ranks(own: ColumnBitmaps, rank: npt.NDArray[np.int64], item: FileBitmaps) -> list[tuple[int, int]]:
    """Ranks of the least and the greatest value of each row group; (0, -1) for one of nothing but nulls."""
    order = np.argsort(rank).tolist()
    ends = [0, *accumulate(group.rows for group in item.row_groups)]
    bitmaps = [deserialize_bitmap(data) for data in own.bitmaps] if len(ends) > 2 else []
    found = []
    for start, end in pairwise(ends):
        if len(ends) == 2:
            found.append((int(rank.min()), int(rank.max())) if len(rank) else (0, -1))
            continue
        low = next((at for at in order if bitmaps[at].range_cardinality(start, end)), None)
        high = next((at for at in reversed(order) if bitmaps[at].range_cardinality(start, end)), None)
        found.append((0, -1) if low is None or high is None else (int(rank[low]), int(rank[high])))
    return found


@contextmanager
def sampled(
    storage: Storage,
    base_path: str,
    schema: pa.Schema,
    files: Sequence[BaseFile],
    columns: Mapping[str, tuple[Column, int]],
) -> Iterator[Sample]:
    """Build the index of some files, a column at a time so that each can be measured.

    Args:
        storage: of the table.
        base_path: the table.
        schema: its columns.
        files: the sample.
        columns: columns by name, with their cap of distinct values.
    """
    with TemporaryDirectory(prefix="lakedex-sample-") as folder:
        own = LocalStorage()
        built: list[FileBitmaps] = []
        found: dict[str, ColumnSample] = {}
        for number, (name, (column, limit)) in enumerate(columns.items()):
            started = time.perf_counter()
            task = BitmapsOfFile(storage=storage, base_path=base_path, columns={name: limit}, schema=schema)
            built = [task(base) for base in files]
            content = encode_run(built)
            seconds = time.perf_counter() - started
            write_run(own, folder, Run(f"{number:017d}", "build", 0), content)
            bitmaps = tuple(item.columns[0] for item in built)
            too_many = _distinct(task, files[0], column) if files and bitmaps[0].state == TOO_MANY else 0
            found[name] = ColumnSample(
                column=column, files=bitmaps, bytes=len(content), seconds=seconds, too_many=too_many
            )
        coverage = Coverage(own, folder, TableCache())
        coverage.refresh(list_runs(own, folder))
        yield Sample(coverage, built, found)


def _distinct(task: BitmapsOfFile, base: BaseFile, column: Column) -> int:
    """Distinct values of a column of a file; they are held in memory."""
    needed = pa.schema([task.schema.field(column.path[0])])
    with open_base_file(task.storage, f"{task.base_path}/{base.relative_path}") as source:
        batches = source.batches(needed.names, range(source.row_groups), BATCH_ROWS)
        values = (normal_values(column_values(column, conform_stored(stored, needed))) for stored in batches)
        parts = [pc.unique(own) for own in values]
    return int(pc.count_distinct(pa.chunked_array(parts), mode="only_valid").as_py())
