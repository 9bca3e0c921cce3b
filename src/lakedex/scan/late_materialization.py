"""Late materialization: read the predicate's columns first, the others only for rows that match.

A row group is read in windows. The other columns of a window are decoded if it has a match; windows before it are
skipped then, and nothing after the last match is decoded. If matches are found up to the end of most windows, a second
pass costs more than it saves: all columns are then read at once (:class:`SelectivityTracker`).

Text that is dictionary-encoded in the file stays so until rows are filtered. The parts of a condition that AND joins
are evaluated one by one: a part on one such column over the values of its dictionary, the rest over the rows that
passed.

Where few pages of a file hold the rows that may match, only these are decoded (:mod:`lakedex.parquet.page_reader`).

Memory: a window of the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakedex.errors import LakedexError
from lakedex.expr.evaluator import filter_rows
from lakedex.expr.nodes import And, Predicate, all_of
from lakedex.expr.terms import BoundPredicate
from lakedex.parquet.base_file_reader import BaseFileReader
from lakedex.parquet.conform import conform_stored, decode_dictionary, with_dictionaries
from lakedex.types import BoolArray

__all__ = ["BATCH_ROWS", "LateMaterializer", "SelectivityTracker", "evaluate_mask"]


def evaluate_mask(predicate: BoundPredicate, batch: pa.RecordBatch) -> BoolArray:
    """For which rows of a batch a condition is true.

    Raises:
        UnsupportedFeatureError: it has a part that only Spark can evaluate.
    """
    encoded = {
        name for name, column in zip(batch.schema.names, batch.columns, strict=True) if _is_dictionary_encoded(column)
    }
    if not encoded or predicate.unevaluable:
        return _evaluate(predicate.predicate, batch)
    passed: BoolArray | None = None
    rest: list[BoundPredicate] = []
    for part in predicate.operands if isinstance(predicate.predicate, And) else (predicate,):
        name = _only_column(part)
        found = _evaluate_dictionary(part.predicate, name, batch) if name in encoded else None
        if found is None:
            rest.append(part)
        else:
            passed = found if passed is None else passed & found
    if passed is None:
        return _evaluate(predicate.predicate, batch)
    return _narrowed(passed, rest, batch)


def _narrowed(passed: BoolArray, rest: Sequence[BoundPredicate], batch: pa.RecordBatch) -> BoolArray:
    """The rows of some for which the rest of a condition is true as well."""
    left = all_of([part.predicate for part in rest])
    if left is None or not passed.any():
        return passed
    # What the parts before it rule out, the rest may fail for: ``n <> 0 AND 1 / n > 2``.
    own = frozenset().union(*(part.column_names for part in rest))
    names = [name for name in batch.schema.names if name in own]
    if not names:
        return passed & _evaluate(left, batch)
    passed[passed] = _evaluate(left, batch.select(names).filter(pa.array(passed)))
    return passed


def _is_dictionary_encoded(column: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _only_column(predicate: BoundPredicate) -> str | None:
    """The column that a condition speaks of, if it is a single one."""
    columns = predicate.columns
    return columns[0].path[0] if len(columns) == 1 and len(columns[0].path) == 1 else None


def _evaluate_dictionary(predicate: Predicate, name: str | None, batch: pa.RecordBatch) -> BoolArray | None:
    """The truth of a condition on one column; None if it fails for a value, which may be one that no row has."""
    column = batch.column(batch.schema.get_field_index(name))
    values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
    try:
        truths = _evaluate(predicate, pa.RecordBatch.from_arrays([values], names=[name]))
    except (LakedexError, pa.ArrowException):
        return None
    codes = column.indices.fill_null(len(values) - 1) if column.null_count else column.indices
    found: BoolArray = truths[codes.to_numpy(zero_copy_only=False)]
    return found


def _evaluate(predicate: Predicate, batch: pa.RecordBatch) -> BoolArray:
    return np.array(filter_rows(predicate, batch).to_numpy(zero_copy_only=False), np.bool_)


BATCH_ROWS = 65_536
"""Rows that are evaluated at once."""


SPARED_SHARE = 0.05
"""Share of the time of decoding a file's rows that a second pass over it takes."""


@dataclass(slots=True)
class SelectivityTracker:
    """Selectivity of the windows of a scan so far. Mutable, and shared by threads: a lost count does no harm.

    Attributes:
        rows: of the windows that were evaluated.
        spared: those of them for which other columns were not decoded.
    """

    rows: int = 0
    spared: int = 0

    def add(self, rows: int, decoded: int) -> None:
        """Count a window by its rows, and those of them for which other columns were, or would be, decoded."""
        self.rows += rows
        self.spared += rows - decoded

    @property
    def is_worthwhile(self) -> bool:
        """Whether reading the condition's columns first saves enough of the others."""
        return self.spared >= SPARED_SHARE * self.rows


@dataclass(slots=True, kw_only=True)
class LateMaterializer:
    """Matching rows of one row group after the other.

    Attributes:
        source: the file.
        predicate: the condition that is left to evaluate; None where ``wanted`` has the matching rows.
        predicate_columns: columns of the predicate, with the leaves that are read.
        predicate_leaves: these, as the file names them.
        others: columns of the result besides.
        schema: of the result.
        pinned: columns of the result that have one value in all matching rows.
        selectivity: counts each window.
        bytes_read: stored size of what was read.
    """

    source: BaseFileReader
    predicate: BoundPredicate | None
    predicate_columns: pa.Schema
    predicate_leaves: Sequence[str]
    others: pa.Schema
    schema: pa.Schema
    pinned: Mapping[str, pa.Scalar] = field(default_factory=dict)
    selectivity: SelectivityTracker = field(default_factory=SelectivityTracker)
    bytes_read: int = 0

    def rows(self, group: int, wanted: BoolArray | None) -> Iterator[pa.RecordBatch]:
        """Matching rows of a row group.

        Args:
            group: its number.
            wanted: which of its rows may match; None for all.
        """
        constants = self.source.constant_columns(self.others.names, group)
        duplicates = self.source.duplicate_columns(_texts(self.predicate_columns), _texts(self.others), group)
        left = [column for column in self.others if column.name not in constants and column.name not in duplicates]
        others = _Others(self.source, group, pa.schema(left))
        try:
            for start, mask, found in self._windows(group, wanted, {*self.schema.names, *duplicates.values()}):
                decoded = 0
                if mask.any():
                    decoded = _end_of(mask)
                    columns = _columns(found)
                    columns |= {name: columns[other] for name, other in duplicates.items()}
                    rows = int(np.count_nonzero(mask))
                    columns |= self._constants(constants, rows)
                    columns |= {name: pa.repeat(value, rows) for name, value in self.pinned.items()}
                    if left:
                        columns |= others.rows(start, mask)
                        decoded = min(decoded, others.decoded)
                    yield pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
                if self.predicate is not None and len(self.predicate_columns):
                    self.selectivity.add(len(mask), decoded)
        finally:
            self.bytes_read += others.bytes_read

    def _constants(self, constants: Mapping[str, pa.Scalar], rows: int) -> dict[str, pa.Array]:
        """Columns of one value each, which the footer has, for a number of rows."""
        if not constants:
            return {}
        stored = pa.RecordBatch.from_arrays(
            [pa.repeat(value, rows) for value in constants.values()], names=list(constants)
        )
        return _columns(conform_stored(stored, pa.schema([self.others.field(name) for name in constants])))

    def _windows(
        self, group: int, wanted: BoolArray | None, names: Collection[str]
    ) -> Iterator[tuple[int, BoolArray, pa.RecordBatch | None]]:
        """First row of a window, which of its rows match, and of these the predicate's columns among ``names``."""
        if self.predicate is None or not len(self.predicate_columns):
            rows = self.source.rows_per_group[group]
            mask = np.ones(rows, np.bool_) if wanted is None else wanted
            if self.predicate is not None:  # A condition without columns.
                mask = mask & evaluate_mask(self.predicate, pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]))
            yield from ((start, mask[start : start + BATCH_ROWS], None) for start in range(0, rows, BATCH_ROWS))
            return
        end = 0
        if wanted is not None and not wanted.all():
            for start, mask, found in self._paged_windows(self.predicate, group, wanted, names):
                yield start, mask, found
                end = start + len(mask)
        if end == self.source.rows_per_group[group]:
            return
        self.bytes_read += self.source.bytes_of(self.predicate_leaves, [group])
        start = 0
        for stored in self.source.batches(self.predicate_leaves, [group], BATCH_ROWS, dictionaries=True):
            # Rows before ``end`` have come from pages.
            rows = stored.slice(min(max(end - start, 0), stored.num_rows))
            start += stored.num_rows
            if rows.num_rows:
                batch = _with_dictionaries(rows, self.predicate_columns)
                mask = evaluate_mask(self.predicate, batch)
                if wanted is not None:
                    mask &= wanted[start - len(mask) : start]
                yield start - len(mask), mask, self._matching(batch, mask, names)

    def _paged_windows(
        self, predicate: BoundPredicate, group: int, wanted: BoolArray, names: Collection[str]
    ) -> Iterator[tuple[int, BoolArray, pa.RecordBatch | None]]:
        """Windows as long as reading the predicate's columns by pages pays: see :meth:`_windows`."""
        known = set(self.source.schema.names)
        for start in range(0, len(wanted), BATCH_ROWS):
            mask = wanted[start : start + BATCH_ROWS].copy()
            rows = np.flatnonzero(mask)
            if not len(rows):
                yield start, mask, None
                continue
            present = [name for name in self.predicate_columns.names if name in known]
            if not set(self.predicate_leaves) <= set(self.predicate_columns.names) or not present:
                return
            found = self.source.rows_by_page(present, group, start + rows)
            if len(found) < len(present):
                return
            batch = conform_stored(
                pa.RecordBatch.from_arrays(list(found.values()), names=list(found)), self.predicate_columns
            )
            truths = evaluate_mask(predicate, batch)
            mask[rows] = truths
            yield start, mask, self._matching(batch, truths, names)

    def _matching(self, batch: pa.RecordBatch, mask: BoolArray, wanted: Collection[str]) -> pa.RecordBatch | None:
        """Matching rows of some of the predicate's columns."""
        names = [name for name in batch.schema.names if name in wanted]
        if not names or not mask.any():
            return None
        own = pa.schema([self.predicate_columns.field(name) for name in names])
        return conform_stored(_plain_rows(_filtered(batch.select(names), mask)), own)


def _filtered(batch: pa.RecordBatch, mask: BoolArray) -> pa.RecordBatch:
    return batch if mask.all() else batch.filter(pa.array(mask))


def _with_dictionaries(stored: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Stored rows in their columns of the table, text in dictionaries where it was stored so."""
    kinds = {column.name: column.type for column in schema}
    for place, (name, column) in enumerate(zip(stored.schema.names, stored.columns, strict=True)):
        if pa.types.is_dictionary(column.type) and column.type != pa.dictionary(pa.int32(), kinds[name]):
            stored = stored.set_column(place, name, decode_dictionary(column))
    encoded = {column.name for column in stored.schema if pa.types.is_dictionary(column.type)}
    return conform_stored(stored, with_dictionaries(schema, encoded) if encoded else schema)


def _texts(schema: pa.Schema) -> list[str]:
    return [column.name for column in schema if column.type == pa.string()]


def _columns(batch: pa.RecordBatch | None) -> dict[str, pa.Array]:
    return {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))


@dataclass(slots=True)
class _Others:
    """The columns of a row group that are decoded for matching rows only, by pages where few hold the rows.

    Attributes:
        decoded: rows of the last window that were decoded, the most of any column.
    """

    source: BaseFileReader
    group: int
    columns: pa.Schema
    decoded: int = 0
    _whole: list[_WholeChunks] = field(default_factory=list)

    @property
    def bytes_read(self) -> int:
        """Stored size of the chunks that were read whole."""
        return sum(chunks.bytes_read for chunks in self._whole)

    def rows(self, start: int, mask: BoolArray) -> dict[str, pa.Array]:
        """The rows of ``mask``, which begins at row ``start``. Windows come in their order."""
        known = set(self.source.schema.names).difference(*(chunks.columns.names for chunks in self._whole))
        present = [name for name in self.columns.names if name in known]
        rows = start + np.flatnonzero(mask)
        found = self.source.rows_by_page(present, self.group, rows) if present else {}
        done = {*found, *(name for chunks in self._whole for name in chunks.columns.names)}
        left = [column for column in self.columns if column.name not in done]
        if left:
            self._whole.append(_WholeChunks(self.source, self.group, pa.schema(left)))
        self.decoded = _end_of(mask) if self._whole else len(rows)
        columns: dict[str, pa.Array] = {}
        if found:
            own = pa.schema([self.columns.field(name) for name in found])
            stored = pa.RecordBatch.from_arrays(list(found.values()), names=list(found))
            columns |= _columns(conform_stored(stored, own))
        for chunks in self._whole:
            columns |= _columns(chunks.rows(start, mask))
        return columns


@dataclass(slots=True)
class _WholeChunks:
    """Columns that are decoded when the first of their rows is asked for, and as far as the last."""

    source: BaseFileReader
    group: int
    columns: pa.Schema
    bytes_read: int = 0
    _batches: Iterator[pa.RecordBatch] | None = None
    _present: list[str] = field(default_factory=list)
    _batch: pa.RecordBatch | None = None
    _end: int = 0

    def rows(self, start: int, mask: BoolArray) -> pa.RecordBatch:
        """As :meth:`_Others.rows`."""
        if self._batches is None:
            known = set(self.source.schema.names)
            self._present = [name for name in self.columns.names if name in known]
            # A row group of one window is decoded as far as its last match.
            whole = len(mask) == self.source.rows_per_group[self.group]
            step = _end_of(mask) if whole else BATCH_ROWS
            self._batches = self.source.batches(self._present, [self.group], step, dictionaries=True)
            self.bytes_read = self.source.bytes_of(self._present, [self.group])
        if not self._present:
            nothing = [pa.nulls(int(mask.sum()), column.type) for column in self.columns]
            return pa.RecordBatch.from_arrays(nothing, schema=self.columns)
        parts = [conform_stored(_plain_rows(part), self.columns) for part in self._parts(start, mask)]
        if len(parts) == 1:
            return parts[0]
        table = pa.Table.from_batches(parts, self.columns).combine_chunks()
        return table.to_batches()[0]

    def _parts(self, start: int, mask: BoolArray) -> Iterator[pa.RecordBatch]:
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
                    yield _filtered(batch.slice(max(start - first, 0), len(own)), own)
                if self._end >= end:
                    return
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise pa.ArrowInvalid(f"column chunks of row group {self.group} have different numbers of rows")
            self._end += self._batch.num_rows


def _end_of(mask: BoolArray) -> int:
    """One behind the last row of a mask that has some."""
    return int(np.flatnonzero(mask)[-1]) + 1


def _plain_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with values in the place of numbers of a dictionary."""
    return pa.RecordBatch.from_arrays([decode_dictionary(column) for column in batch.columns], names=batch.schema.names)
