"""Reading rows under a condition: its own columns first, the others only where a row matched.

A row group goes by in windows. The other columns of a window are decoded when it has a match, and those before it are
skipped then; what comes after the last match is never decoded. Strings of few values stay numbers until they are
filtered. Memory: a window of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.expr import filter_rows
from lakedex.expr.nodes import Predicate
from lakedex.layout.conform import conform_stored
from lakedex.layout.dictionaries import plain
from lakedex.layout.row_groups import BaseFileReader

__all__ = ["Sifter"]

BATCH_ROWS = 65_536
"""Rows that are judged at once."""
Wanted = npt.NDArray[np.bool_]


@dataclass(slots=True, kw_only=True)
class Sifter:
    """Matching rows of one row group after the other.

    Attributes:
        source: the file.
        predicate: what is left to judge; None where ``wanted`` says all.
        judged: columns that the predicate speaks of, and the leaves of them that are read.
        judged_leaves: these, as the file names them.
        others: columns of the result besides.
        names: of the result, in its order.
        bytes_read: stored size of what was read.
    """

    source: BaseFileReader
    predicate: Predicate | None
    judged: pa.Schema
    judged_leaves: Sequence[str]
    others: pa.Schema
    names: Sequence[str]
    bytes_read: int = 0

    def rows(self, group: int, wanted: Wanted | None) -> Iterator[pa.RecordBatch]:
        """Matching rows of a row group.

        Args:
            group: its number.
            wanted: which of its rows may match; None for all.
        """
        others = _Others(self.source, group, self.others)
        fields = {column.name: column for column in (*self.judged, *self.others)}
        schema = pa.schema([fields[name] for name in self.names])
        try:
            for start, mask, found in self._windows(group, wanted):
                if mask.any():
                    columns = _columns(found)
                    if len(self.others):
                        columns |= _columns(others.rows(start, mask))
                    yield pa.RecordBatch.from_arrays([columns[name] for name in self.names], schema=schema)
        finally:
            self.bytes_read += others.bytes_read

    def _windows(self, group: int, wanted: Wanted | None) -> Iterator[tuple[int, Wanted, pa.RecordBatch | None]]:
        """First row of a window, which of its rows match, and the judged columns of these."""
        if self.predicate is None or not len(self.judged):
            rows = self.source.rows_per_group[group]
            mask = np.ones(rows, np.bool_) if wanted is None else wanted
            if self.predicate is not None:  # A condition without columns.
                mask = mask & _truth(self.predicate, pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]))
            yield from ((start, mask[start : start + BATCH_ROWS], None) for start in range(0, rows, BATCH_ROWS))
            return
        self.bytes_read += self.source.bytes_of(self.judged_leaves, [group])
        start = 0
        for stored in self.source.batches(self.judged_leaves, [group], BATCH_ROWS):
            batch = conform_stored(stored, self.judged)
            mask = _truth(self.predicate, batch)
            if wanted is not None:
                mask &= wanted[start : start + len(mask)]
            yield start, mask, batch.filter(pa.array(mask))
            start += batch.num_rows


def _columns(batch: pa.RecordBatch | None) -> dict[str, pa.Array]:
    return {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))


def _truth(predicate: Predicate, batch: pa.RecordBatch) -> Wanted:
    found = filter_rows(predicate, batch)
    return np.array(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


@dataclass(slots=True)
class _Others:
    """The columns of a row group that are decoded when the first of its rows is asked for, and as far as the last."""

    source: BaseFileReader
    group: int
    columns: pa.Schema
    bytes_read: int = 0
    _batches: Iterator[pa.RecordBatch] | None = None
    _present: list[str] = field(default_factory=list)
    _batch: pa.RecordBatch | None = None
    _end: int = 0

    def rows(self, start: int, mask: Wanted) -> pa.RecordBatch:
        """The rows of ``mask``, which begins at row ``start``. Windows come in their order."""
        if self._batches is None:
            known = set(self.source.schema.names)
            self._present = [name for name in self.columns.names if name in known]
            # A row group of one window is decoded as far as its last match.
            whole = len(mask) == self.source.rows_per_group[self.group]
            step = _end_of(mask) if whole else BATCH_ROWS
            self._batches = self.source.batches(self._present, [self.group], step, coded=True)
            self.bytes_read = self.source.bytes_of(self._present, [self.group])
        if not self._present:
            nothing = [pa.nulls(int(mask.sum()), column.type) for column in self.columns]
            return pa.RecordBatch.from_arrays(nothing, schema=self.columns)
        parts = [conform_stored(_plain_rows(part), self.columns) for part in self._parts(start, mask)]
        if len(parts) == 1:
            return parts[0]
        table = pa.Table.from_batches(parts, self.columns).combine_chunks()
        return table.to_batches()[0]

    def _parts(self, start: int, mask: Wanted) -> Iterator[pa.RecordBatch]:
        """Rows of the mask, batch by batch; Arrow cuts batches where the dictionary of a column ends."""
        if self._batches is None:
            return
        end = start + _end_of(mask)
        while True:
            batch = self._batch
            if batch is not None:
                first = self._end - batch.num_rows
                own = mask[max(first - start, 0) : max(self._end - start, 0)]
                if own.any():
                    yield batch.slice(max(start - first, 0), len(own)).filter(pa.array(own))
                if self._end >= end:
                    return
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise pa.ArrowInvalid(f"column chunks of row group {self.group} have different numbers of rows")
            self._end += self._batch.num_rows


def _end_of(mask: Wanted) -> int:
    """One behind the last row of a mask that has some."""
    return int(np.flatnonzero(mask)[-1]) + 1


def _plain_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with values in the place of numbers of a dictionary."""
    return pa.RecordBatch.from_arrays([plain(column) for column in batch.columns], names=batch.schema.names)
