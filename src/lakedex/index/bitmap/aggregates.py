"""Numbers of rows by groups of values, from a bitmap index alone.

Coverage has the rows of each value of a file, so most files are answered without a bitmap. Where several columns meet
in a file, the bitmaps of its values are put together: value by value if there are few, else as one array of value
numbers a column.

Memory: coverage; the bitmaps of a batch of files, about ``BATCH_BYTES``, at least one file's; and for one file four
bytes a row and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lakedex.expr.nodes import Column, IsNull
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.condition import (
    TRUE,
    BoundsEvaluator,
    Combination,
    Condition,
    CountEvaluator,
    Counts,
    Negation,
    NullTest,
    RowSets,
    Term,
    UnindexedTerm,
    all_rows,
    exact_rows,
    row_sets,
    to_bitmap_expr,
)
from lakedex.index.bitmap.loaded_index import NULL, Coverage
from lakedex.index.bitmap.log_coverage import SliceLogs, joined
from lakedex.index.bitmap.pruning import bitmap_cost, bitmaps_cost, bounds_of, fetch_rows
from lakedex.types import BoolArray, IntArray

__all__ = ["COUNT", "BitmapAggregates", "cross_tab", "key_name"]


BATCH_BYTES = 16 * 1024 * 1024


BATCH_FILES = 256


PAIR_ROWS = 40
"""Putting two bitmaps together takes about as long as decoding this number of positions."""


COUNT = "n"
"""Column of the rows of a group; those of its values are named by :func:`key_name`."""


def key_name(number: int) -> str:
    """Name of a group column in answers, by its place: a table's own names may be any."""
    return f"k{number}"


_Question = tuple[BoundPredicate | None, frozenset[str]]
"""A condition, and the columns with bitmaps."""


class BitmapAggregates:
    """One question to some slices: rows under a condition by the values of columns. Keep the lock of the coverage."""

    def __init__(
        self,
        coverage: Coverage,
        files: IntArray,
        predicate: BoundPredicate | None,
        columns: Sequence[Column],
        indexed: frozenset[str],
        bounds: BoundsEvaluator,
        logs: Mapping[int, SliceLogs] | None = None,
    ) -> None:
        """Ask.

        Args:
            coverage: what the runs say.
            files: a file number each, negative for a slice that no run speaks of.
            predicate: the condition; None for all rows.
            columns: the groups' columns; none counts all rows together.
            indexed: columns with bitmaps.
            bounds: what other indexes say of conditions on other columns.
            logs: by place in ``files`` the log files of slices that have some.
        """
        self.coverage, self.files, self.columns = coverage, files, tuple(columns)
        self.evaluator = CountEvaluator(coverage, files, np.ones(len(files), np.int64), bounds)
        self._bounds = bounds
        self._condition: Condition = Combination((), True) if predicate is None else to_bitmap_expr(predicate, indexed)
        counts = self.evaluator.evaluate(self._condition)
        covered = files >= 0
        self._rows = np.where(covered, self.evaluator.rows, 0)
        grouped = covered.copy()
        asked = dict.fromkeys(self.evaluator.terms)
        for term in (Term(BoundPredicate(IsNull(column)), column) for column in self.columns):
            # Its numbers are known where each row of the file is accounted for.
            self.evaluator.evaluate(term)
            grouped &= self.evaluator.terms[term].known if term.column.name in indexed else False
        self._terms = tuple(asked)
        self.least = np.where(covered, counts.true[0], 0)
        self.none = counts.true[1] == 0
        self.whole = covered & (counts.true[0] == self.evaluator.rows) & ~self.none
        self.by_counts = ~self.none & covered & grouped & self._from_numbers(counts)
        known = np.logical_and.reduce([covered, *(self.evaluator.terms[term].known for term in self._terms)])
        decided = self.whole | (known & self._decided(self._condition))
        self.by_bitmaps = ~self.none & ~self.by_counts & grouped & decided
        self._logs = logs or {}
        self._of_logs: _LogAnswers | None = None
        self._no_base = np.zeros(len(files), np.bool_)
        if self._logs:
            self._of_logs = _LogAnswers.of(self, self._logs, (predicate, indexed), bounds)
            self._take_logs(self._of_logs, grouped & decided)
        self.open: BoolArray = ~(self.none | self.by_counts | self.by_bitmaps)

    def _take_logs(self, found: _LogAnswers, decided: BoolArray) -> None:
        """Answer slices with log files: untouched rows of the base file, and rows of the log files."""
        has = np.zeros(len(self.files), np.bool_)
        has[list(self._logs)] = True
        touched, ordered = np.zeros(len(has), np.int64), ~has
        for place, logs in self._logs.items():
            touched[place], ordered[place] = len(logs.touched), logs.is_ordered
        no_base = has & self.none
        self.none = self.none & (~has | found.none)
        # A record that may lose leaves it open which row of the two is there.
        answered = has & ~self.none & (found.none | (found.known & ordered))
        by_counts = answered & (no_base | (self.by_counts & (touched == 0)))
        if not self.columns:
            by_counts |= answered & self.whole & ordered
        by_bitmaps = answered & ~by_counts & decided
        self.least = np.where(has, np.maximum(self.least - touched, 0), self.least)
        self.by_counts = np.where(has, by_counts, self.by_counts)
        self.by_bitmaps = np.where(has, by_bitmaps, self.by_bitmaps)
        self._no_base = no_base

    # ----------------------------------------------------------------------------------------------- what can be said

    def _from_numbers(self, counts: Counts) -> BoolArray:
        """Files for which coverage has the answer."""
        if not self.columns:
            return exact_rows(counts)
        if len(self.columns) == 1 and self._own_term is not None:
            return self.evaluator.terms[self._own_term].known
        varied = sum(((self._sizes(column) > 1).astype(np.int64) for column in self.columns), np.zeros(1, np.int64))
        constant: BoolArray = self.whole & (varied <= 1)
        return constant

    @property
    def rows(self) -> IntArray:
        """Rows of each file, 0 where they are not known."""
        return self._rows

    @property
    def _own_term(self) -> Term | None:
        """The condition, if it speaks of the only group column and nothing else."""
        own = isinstance(self._condition, Term) and (self._condition.column,) == self.columns
        return self._condition if own else None  # type: ignore[return-value]

    def _decided(self, condition: Condition) -> BoolArray:
        """Files in which what bitmaps do not answer is decided by other indexes."""
        if isinstance(condition, Combination):
            all_told: BoolArray = np.logical_and.reduce(
                [np.ones(len(self.files), bool), *map(self._decided, condition.parts)]
            )
            return all_told
        if isinstance(condition, Negation | NullTest):
            return self._decided(condition.part)
        masks = None if isinstance(condition, Term) else self._masks(condition)
        return np.ones(len(self.files), bool) if masks is None else np.sum(masks, axis=0) == 1

    def _masks(self, condition: UnindexedTerm) -> tuple[BoolArray, BoolArray, BoolArray]:
        yes, no = np.ones(len(self.files), bool), np.zeros(len(self.files), bool)
        if condition.literal is not None:
            value = condition.literal.value
            true, false, null = (yes if value is known else no for known in (True, False, None))
            return true, false, null
        return self._bounds(condition.predicate) or (yes, yes, yes)

    def _sizes(self, column: Column) -> IntArray:
        """Distinct values of a column in each file, null among them."""
        stored = self.coverage.column(column.name)
        entries = stored.entries_of(self.files)
        sizes = np.zeros(len(entries), np.int64)
        there = entries >= 0
        sizes[there] = stored.sizes[entries[there]] + (stored.nulls[entries[there]] > 0)
        return sizes

    def cost(self) -> npt.NDArray[np.float64]:
        """About the bytes of the bitmaps that each file takes."""
        total = np.zeros(len(self.files))
        for term in self._terms:
            mixed = self.evaluator.terms[term].counts.max(axis=0) < self._rows
            total += np.where(mixed, bitmap_cost(self.evaluator, term), 0.0)
        for column in self.columns:
            total += bitmaps_cost(self._rows, self._sizes(column), self._rows)
        return total

    @property
    def unanswered(self) -> BoolArray:
        """Slices that numbers of rows do not answer."""
        left: BoolArray = self.open | self.by_bitmaps
        return left

    def leave(self, places: BoolArray) -> None:
        """Read no bitmaps of these slices."""
        self.by_bitmaps &= ~places
        self.open |= places & ~self.none & ~self.by_counts

    # ---------------------------------------------------------------------------------------------------- by counts

    def from_counts(self) -> pa.Table:
        """Groups of the files that coverage answers."""
        groups = self.counted(np.flatnonzero(self.by_counts & ~self._no_base))
        return groups if self._of_logs is None else pa.concat_tables([groups, self._of_logs.groups(self.by_counts)])

    def counted(self, places: IntArray) -> pa.Table:
        """Groups of some files by their numbers of rows."""
        if not self.columns:
            return self._table([], self.least[places])
        if len(self.columns) > 1:
            return self._constant(places)
        (column,) = self.columns
        stored = self.coverage.column(column.name)
        entries = stored.entries_of(self.files[places])
        at = stored.places(entries)
        totals = np.zeros(len(stored.values) + 1, np.int64)
        np.add.at(totals, stored.codes[at], stored.counts[at])
        totals[-1] = stored.nulls[entries].sum()
        if self._own_term is not None:
            of_value = self.evaluator.terms[self._own_term].of_value
            totals = np.where(of_value == TRUE, totals, 0) if of_value is not None else totals
        codes = np.flatnonzero(totals)
        return self._table([codes], totals[codes])

    def _constant(self, places: IntArray) -> pa.Table:
        """Files in which at most one of the columns has several values: its numbers are those of the groups."""
        rows: list[tuple[int, ...]] = []
        for place in places.tolist():
            own = [self._values(column, place) for column in self.columns]
            counts = max(own, key=len)
            rows += [(*codes, counts[codes[own.index(counts)]]) for codes in product(*own)]
        flat = np.array(rows, np.int64).reshape(len(rows), len(self.columns) + 1)
        return self._table(list(flat[:, :-1].T), flat[:, -1])

    def _values(self, column: Column, place: int) -> dict[int, int]:
        """Numbers of the values of a column in a file, :data:`NULL` for null, and the rows of each."""
        stored = self.coverage.column(column.name)
        entry = int(stored.entry_of[self.files[place]])
        span = stored.span(entry)
        found = dict(zip(stored.codes[span].tolist(), stored.counts[span].tolist(), strict=True))
        return found | ({NULL: int(stored.nulls[entry])} if stored.nulls[entry] else {})

    def _table(self, codes: Sequence[IntArray], counts: IntArray) -> pa.Table:
        columns = {}
        for number, (column, own) in enumerate(zip(self.columns, codes, strict=True)):
            values, _ = self.coverage.column(column.name).typed(column.name, column.type)
            columns[key_name(number)] = values.take(pa.array(np.where(own == NULL, len(values) - 1, own)))
        return pa.table({**columns, COUNT: pa.array(counts, pa.int64())})

    # --------------------------------------------------------------------------------------------------- by bitmaps

    def from_bitmaps(self) -> Iterator[tuple[int, pa.Table]]:
        """Number of files and their groups, a batch of files at a time. A file whose bitmaps fail becomes open."""
        places = np.flatnonzero(self.by_bitmaps)
        batch = np.cumsum(self.cost()[places]) // BATCH_BYTES
        for share in np.unique(batch).tolist():
            own = places[batch == share]
            for start in range(0, len(own), BATCH_FILES):
                yield self._batch(own[start : start + BATCH_FILES])

    def _batch(self, places: IntArray) -> tuple[int, pa.Table]:
        numbers = self.files[places]
        terms: dict[Term, dict[int, RowSets]] = {}
        partly = self.files[places[~self.whole[places]]]
        for term in self._terms if len(partly) else ():
            of_value = self.evaluator.terms[term].of_value
            if of_value is not None:
                terms[term] = fetch_rows(self.coverage, term, of_value, partly)
        groups = [self._bitmaps(column, places) for column in self.columns]
        found: list[tuple[list[IntArray], IntArray]] = []
        failed = []
        for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
            own = [column.get(number) for column in groups]
            answer = self._file(place, {term: rows[number] for term, rows in terms.items() if number in rows}, own)
            if answer is None:
                self.by_bitmaps[place], self.open[place] = False, True
                failed.append(place)
            else:
                found.append(answer)
        if found and not self.columns:
            tables = [self._table([], np.array([sum(int(counts.sum()) for _, counts in found)], np.int64))]
        else:
            tables = [self._table(codes, counts) for codes, counts in found]
        if self._of_logs is not None and found:
            answered = np.zeros(len(self.files), np.bool_)
            answered[np.setdiff1d(places, failed)] = True
            tables.append(self._of_logs.groups(answered))
        nothing = np.empty(0, np.int64)
        return len(found), pa.concat_tables(tables or [self._table([nothing] * len(self.columns), nothing)])

    def _bitmaps(self, column: Column, places: IntArray) -> dict[int, dict[int, BitMap]]:
        """All bitmaps of a column, by file and value."""
        wanted = {int(self.files[place]): list(self._values(column, place)) for place in places.tolist()}
        bitmaps = self.coverage.bitmaps(column.name, wanted)
        return {
            number: {code: bitmaps[number, code] for code in codes}
            for number, codes in wanted.items()
            if all((number, code) in bitmaps for code in codes)
        }

    def _file(
        self, place: int, terms: Mapping[Term, RowSets], groups: Sequence[Mapping[int, BitMap] | None]
    ) -> tuple[list[IntArray], IntArray] | None:
        """Groups of one file; None where they do not account for each matching row."""
        rows = int(self._rows[place])
        truth: BitMap | None = None
        if not self.whole[place]:
            sets = row_sets(self._condition, rows, terms, self._may_be(place, rows))
            if not sets.is_exact:
                return None
            truth = sets.true
        logs = self._logs.get(place)
        if logs is not None:
            matching = all_rows(rows) if truth is None else truth
            if not logs.is_ordered and not matching.isdisjoint(logs.touched):
                return None
            truth = matching - logs.touched
        known = [column for column in groups if column is not None]
        if len(known) < len(groups):
            return None
        codes, counts = cross_tab(rows, truth, known)
        return (codes, counts) if int(counts.sum()) == (rows if truth is None else len(truth)) else None

    def _may_be(self, place: int, rows: int) -> Callable[[UnindexedTerm], tuple[BitMap, BitMap, BitMap] | None]:
        def said(condition: UnindexedTerm) -> tuple[BitMap, BitMap, BitMap] | None:
            true, false, null = (all_rows(rows) if mask[place] else BitMap() for mask in self._masks(condition))
            return true, false, null

        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogAnswers:
    """The answers of coverage for the log files of slices.

    Attributes:
        asked: the question to the log files instead of base files.
        owners: the place of the slice of each.
        live: rows of each that are in the table; negative where that is not known.
        counted: log files whose matching rows are in the table, all of them, and have numbers.
        whole: log files of which all rows match, where how many of them are in the table is all that is asked.
        none: slices of whose log files no row matches.
        known: slices all of whose log files have an answer.
    """

    asked: BitmapAggregates
    owners: IntArray
    live: IntArray
    counted: BoolArray
    whole: BoolArray
    none: BoolArray
    known: BoolArray

    @classmethod
    def of(
        cls, slices: BitmapAggregates, logs: Mapping[int, SliceLogs], question: _Question, bounds: BoundsEvaluator
    ) -> _LogAnswers:
        """Ask the log files of slices, given by place, the same question."""
        numbers, owners = joined(logs)
        predicate, indexed = question
        asked = BitmapAggregates(
            slices.coverage, numbers, predicate, slices.columns, indexed, bounds_of(bounds, owners)
        )
        live = np.concatenate([own.live for own in logs.values()])
        counted = asked.by_counts & np.concatenate([own.disjoint for own in logs.values()])
        whole = asked.whole & (live >= 0) & (not slices.columns)
        known = asked.none | counted | whole
        each = [np.bincount(owners[~own], minlength=len(slices.files)) == 0 for own in (asked.none, known)]
        return cls(asked=asked, owners=owners, live=live, counted=counted, whole=whole, none=each[0], known=each[1])

    def groups(self, slices: BoolArray) -> pa.Table:
        """Groups of the rows in the log files of some slices."""
        chosen = slices[self.owners] & ~self.asked.none
        if self.asked.columns:
            return self.asked.counted(np.flatnonzero(chosen))
        rows = np.where(self.whole, self.live, self.asked.least)[chosen]
        return pa.table({COUNT: pa.array(rows, pa.int64())})


def cross_tab(
    rows: int, truth: BitMap | None, columns: Sequence[Mapping[int, BitMap]]
) -> tuple[list[IntArray], npt.NDArray[np.int64]]:
    """How many rows of a file hold each combination of values.

    Args:
        rows: of the file.
        truth: the rows that count; None for all.
        columns: for each the rows of its values, by their numbers.

    Returns:
        The numbers of the values, an array a column, and the rows of each combination; those without rows left out.
    """
    if not columns:
        return [], np.array([rows if truth is None else len(truth)], np.int64)
    if len(columns) == 1:
        ((codes, bitmaps),) = [(list(column), list(column.values())) for column in columns]
        counts = [len(b) if truth is None else truth.intersection_cardinality(b) for b in bitmaps]
        return _with_rows([np.array(codes, np.int64)], np.array(counts, np.int64))
    if len(columns) == 2 and len(columns[0]) * len(columns[1]) <= rows // PAIR_ROWS + 64:
        return _pairs(truth, *columns)
    return _decoded(rows, truth, columns)


def _with_rows(codes: list[IntArray], counts: IntArray) -> tuple[list[IntArray], IntArray]:
    kept = counts > 0
    return [own[kept] for own in codes], counts[kept]


def _pairs(
    truth: BitMap | None, left: Mapping[int, BitMap], right: Mapping[int, BitMap]
) -> tuple[list[IntArray], IntArray]:
    counts = []
    for bitmap in left.values():
        own = bitmap if truth is None else bitmap & truth
        counts += [own.intersection_cardinality(other) if own else 0 for other in right.values()]
    codes = [np.repeat(np.array(list(left), np.int64), len(right)), np.tile(np.array(list(right), np.int64), len(left))]
    return _with_rows(codes, np.array(counts, np.int64))


def _decoded(
    rows: int, truth: BitMap | None, columns: Sequence[Mapping[int, BitMap]]
) -> tuple[list[IntArray], IntArray]:
    """By the value of each row that counts."""
    chosen = slice(None) if truth is None else np.asarray(truth.to_array(), np.int64)
    places, combined = [], np.zeros(rows, np.int64)[chosen]
    for column in columns:
        own = np.full(rows, len(column), np.int32)
        for place, bitmap in enumerate(column.values()):
            own[np.asarray(bitmap.to_array(), np.int64)] = place
        places.append(own[chosen])
        # Numbered again each time, combinations stay below the number of rows.
        combined = np.unique(combined * (len(column) + 1) + places[-1], return_inverse=True)[1]
    _, first, counts = np.unique(combined, return_index=True, return_counts=True)
    has_value = np.logical_and.reduce([own[first] < len(column) for own, column in zip(places, columns, strict=True)])
    kept, counts = first[has_value], counts[has_value].astype(np.int64)
    return [np.array(list(c), np.int64)[own[kept]] for own, c in zip(places, columns, strict=True)], counts
