"""A predicate over bitmaps: indexed terms combined by AND, OR and NOT, with row counts and row sets.

Any condition on one column, however it is made (``upper(c) LIKE 'A%' OR c IS NULL``), is evaluated once for each
distinct value of the column. So whole subtrees of one column are one term.

*Row counts* are a lower and an upper bound per file. For a term both are the same: coverage has the rows of each value.
For ``a AND b`` they may differ: between none and all of the fewer rows match. A file is ruled out where the upper bound
of true rows is 0.

*Row sets* are the rows of one file for which a condition may be true, false or null. An unknown row is in all three. So
a row is surely no match if it is not in the first, and the first is exact if it has no row in common with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakedex.errors import LakedexError
from lakedex.expr.evaluator import truth
from lakedex.expr.nodes import And, Column, Literal, Not, Or
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.loaded_index import ColumnCoverage, Coverage
from lakedex.index.bitmap.run_files import IS_INDEXED
from lakedex.types import BoolArray, IntArray

__all__ = [
    "FALSE",
    "TRUE",
    "UNDECIDED",
    "BoundsEvaluator",
    "Combination",
    "Condition",
    "CountEvaluator",
    "Counts",
    "Negation",
    "NullTest",
    "RowSets",
    "Term",
    "TermCounts",
    "UnindexedTerm",
    "all_rows",
    "evaluate_values",
    "exact_rows",
    "needs_data",
    "row_sets",
    "terms_in",
    "to_bitmap_expr",
]


FALSE, TRUE, UNDECIDED = 0, 1, 2
"""The truth of a condition for a value: false, true, null."""


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on one indexed column."""

    predicate: BoundPredicate
    column: Column


@dataclass(frozen=True, slots=True)
class UnindexedTerm:
    """A condition that bitmaps cannot answer."""

    predicate: BoundPredicate

    @property
    def literal(self) -> Literal | None:
        """The constant that the condition is, if it is one."""
        return self.predicate.predicate if isinstance(self.predicate.predicate, Literal) else None


@dataclass(frozen=True, slots=True)
class Combination:
    """Conditions put together by AND (``every``) or OR."""

    parts: tuple[Condition, ...]
    every: bool


@dataclass(frozen=True, slots=True)
class Negation:
    """NOT of a condition."""

    part: Condition


@dataclass(frozen=True, slots=True)
class NullTest:
    """``(condition) IS NULL``."""

    part: Condition


Condition = Term | UnindexedTerm | Combination | Negation | NullTest


def to_bitmap_expr(predicate: BoundPredicate, indexed: Collection[str]) -> Condition:
    """The condition's terms.

    Args:
        predicate: from the parser.
        indexed: names of the columns that have bitmaps.
    """
    columns = predicate.columns
    # The zone of a cast is not known where Spark gave the condition; bounds are wide enough for any.
    if len(columns) == 1 and columns[0].name in indexed and not predicate.unevaluable and not predicate.depends_on_zone:
        return Term(predicate, columns[0])
    if isinstance(predicate.predicate, And | Or):
        return _joined(predicate, type(predicate.predicate), indexed)
    if predicate.operands:
        inner = to_bitmap_expr(predicate.operands[0], indexed)
        return Negation(inner) if isinstance(predicate.predicate, Not) else NullTest(inner)
    return UnindexedTerm(predicate)


def _joined(predicate: BoundPredicate, kind: type[And | Or], indexed: Collection[str]) -> Condition:
    """Operands of the same column become one term, which knows more than they do apart."""
    own: dict[Column, list[BoundPredicate]] = {}
    parts: list[Condition] = []
    for operand in predicate.operands:
        found = to_bitmap_expr(operand, indexed)
        if isinstance(found, Term):
            own.setdefault(found.column, []).append(found.predicate)
        else:
            parts.append(found)
    terms = [
        Term(same[0] if len(same) == 1 else BoundPredicate(kind(tuple(one.predicate for one in same))), column)
        for column, same in own.items()
    ]
    return Combination((*terms, *parts), kind is And)


def terms_in(condition: Condition) -> list[Term]:
    """The terms of a condition."""
    if isinstance(condition, Term):
        return [condition]
    if isinstance(condition, Combination):
        return [term for part in condition.parts for term in terms_in(part)]
    return [] if isinstance(condition, UnindexedTerm) else terms_in(condition.part)


def needs_data(condition: Condition) -> bool:
    """Whether bitmaps leave a part of a condition open."""
    if isinstance(condition, Combination):
        return any(needs_data(part) for part in condition.parts)
    if isinstance(condition, UnindexedTerm):
        return condition.literal is None
    return not isinstance(condition, Term) and needs_data(condition.part)


def evaluate_values(term: Term, values: pa.Array) -> npt.NDArray[np.int8] | None:
    """The truth of a term for each of some values of its column; None where it is not known.

    Args:
        term: the term.
        values: of the column's type, nulls among them.
    """
    column = values
    for part in reversed(term.column.path[1:]):
        column = pa.StructArray.from_arrays([column], names=[part])
    batch = pa.RecordBatch.from_arrays([column], names=[term.column.path[0]])
    try:
        found = truth(term.predicate.predicate, batch)
    except (LakedexError, pa.ArrowException):
        return None  # It fails for a value, which may be one that no row of this scan has.
    known = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return np.where(found.is_null().to_numpy(zero_copy_only=False), UNDECIDED, known).astype(np.int8)


BoundsEvaluator = Callable[[BoundPredicate], tuple[BoolArray, BoolArray, BoolArray] | None]
"""Whether a condition may be true, false, null in each file, from other indexes; None for nothing."""


UNKNOWN_ROWS = 1 << 40
"""Rows of a file that nothing is known of."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Bounds of the rows for which a condition is true, false and null, an entry a file.

    ``share`` is the expected share of rows for which it is true if columns do not depend on each other, and ``groups``
    the expected number of row groups with such a row, at most all of them.
    """

    true: tuple[IntArray, IntArray]
    false: tuple[IntArray, IntArray]
    null: tuple[IntArray, IntArray]
    share: npt.NDArray[np.float64]
    groups: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TermCounts:
    """A term in the files asked about.

    Attributes:
        of_value: what the term is for each value of the column, the last one for null; None where that cannot be said.
        known: files for which coverage answers the term.
        counts: rows false, true and null, a line each; 0 where not known.
        groups: row groups with a row for which it is true.
        records: bitmaps that tell its rows: of the values of all answers but the one that most values have.
    """

    of_value: npt.NDArray[np.int8] | None
    known: BoolArray
    counts: IntArray
    groups: IntArray
    records: IntArray


class CountEvaluator:
    """One pass over a condition for some files."""

    def __init__(
        self,
        coverage: Coverage,
        files: IntArray,
        groups: IntArray,
        bounds: BoundsEvaluator = lambda predicate: None,
    ) -> None:
        """Ask about files.

        Args:
            coverage: what the runs say; the caller has its lock.
            files: a file number each, negative for a file that no run speaks of.
            groups: how many row groups each has, 1 where it is not known.
            bounds: what other indexes say of conditions that bitmaps do not answer.
        """
        self._coverage, self._files, self._bounds = coverage, files, bounds
        covered = files >= 0
        self.rows = np.where(covered, coverage.rows[np.maximum(files, 0)] if len(coverage.rows) else 0, UNKNOWN_ROWS)
        self._all = groups.astype(np.float64)
        self.terms: dict[Term, TermCounts] = {}

    def evaluate(self, condition: Condition) -> Counts:
        """The numbers for a condition."""
        if isinstance(condition, Term):
            return self._term(condition)
        if isinstance(condition, Combination):
            return self._joined(condition)
        if isinstance(condition, Negation):
            inner = self.evaluate(condition.part)
            return Counts(inner.false, inner.true, inner.null, np.clip(1 - inner.share, 0, 1), self._all)
        if isinstance(condition, NullTest):
            inner = self.evaluate(condition.part)
            none = np.zeros_like(self.rows)
            false = (self.rows - inner.null[1], self.rows - inner.null[0])
            return Counts(inner.null, false, (none, none), np.ones(len(self.rows)), self._all)
        return self._open(condition)

    def _open(self, condition: UnindexedTerm) -> Counts:
        none = np.zeros_like(self.rows)
        if condition.literal is not None:
            value = condition.literal.value
            true, false, null = ((self.rows, self.rows) if value is v else (none, none) for v in (True, False, None))
            return Counts(true, false, null, np.full(len(none), float(value is True)), self._all)
        said = self._bounds(condition.predicate)
        yes = np.ones(len(none), np.bool_)
        masks = (yes, yes, yes) if said is None else said
        # Where it can only be one of the three, all rows are that one.
        sure = np.sum(masks, axis=0) == 1
        true, false, null = ((np.where(mask & sure, self.rows, 0), np.where(mask, self.rows, 0)) for mask in masks)
        return Counts(true, false, null, np.where(masks[0], 1.0, 0.0), np.where(masks[0], self._all, 0.0))

    def _term(self, term: Term) -> Counts:
        found = self.terms.get(term)
        if found is None:
            found = self.terms[term] = self._count(term)
        upper = np.where(found.known, found.counts, self.rows)
        false, true, null = ((np.where(found.known, found.counts[at], 0), upper[at]) for at in (FALSE, TRUE, UNDECIDED))
        share = np.where(found.known, found.counts[TRUE] / np.maximum(self.rows, 1), 1.0)
        return Counts(true, false, null, share, np.where(found.known, found.groups, self._all))

    def _count(self, term: Term) -> TermCounts:
        """Rows of each file for which a term is true, false and null: sums over the file's values."""
        files = self._files
        none = np.zeros((3, len(files)), np.int64)
        nothing = TermCounts(None, np.zeros(len(files), np.bool_), none, none[0], none[0])
        column = self._coverage.column(term.column.name)
        if not len(column.states):
            return nothing
        values, good = column.typed(term.column.name, term.column.type)
        of_value = evaluate_values(term, values)
        if of_value is None:
            return nothing
        entries = column.entries_of(files)
        at = np.maximum(entries, 0)
        known = (entries >= 0) & (column.states[at] == IS_INDEXED)
        counts, groups, values = _answers(column, of_value)
        counts, values = counts[:, at], values[:, at]
        counts[of_value[-1]] += column.nulls[at]
        values[of_value[-1]] += column.nulls[at] > 0
        groups = groups[at] + (column.null_groups[at] if of_value[-1] == TRUE else 0)
        # Rows that are not accounted for, or values that the column's type cannot have now: nothing is believed.
        known &= column.totals[at] + column.nulls[at] == self.rows
        if not good.all():
            known &= np.bincount(column.owners, weights=~good[column.codes], minlength=len(column.states))[at] == 0
        groups = np.minimum(groups, self._all).astype(np.int64)
        records = values.sum(axis=0) - values.max(axis=0)
        return TermCounts(of_value, known, np.where(known, counts, 0), groups, records)

    def _joined(self, condition: Combination) -> Counts:
        result: Counts | None = None
        for part in condition.parts:
            one = self.evaluate(part)
            if not condition.every:
                one = _swapped(one)
            result = one if result is None else self._both(result, one)
        if result is None:
            return self._open(UnindexedTerm(BoundPredicate(Literal(condition.every, pa.bool_()))))
        groups = self._groups(condition, result)
        result = result if condition.every else _swapped(result)
        return Counts(result.true, result.false, result.null, result.share, groups)

    def _both(self, a: Counts, b: Counts) -> Counts:
        rows, zero = self.rows, np.int64(0)
        true = (np.maximum(a.true[0] + b.true[0] - rows, zero), np.minimum(a.true[1], b.true[1]))
        false = (np.maximum(a.false[0], b.false[0]), np.minimum(a.false[1] + b.false[1], rows))
        null = (np.maximum(rows - true[1] - false[1], zero), np.maximum(rows - true[0] - false[0], zero))
        null = (null[0], np.minimum(null[1], a.null[1] + b.null[1]))
        return Counts(true, false, null, a.share * b.share, np.minimum(a.groups, b.groups))

    def _groups(self, condition: Combination, result: Counts) -> npt.NDArray[np.float64]:
        if condition.every:
            return result.groups
        total = sum((self.evaluate(part).groups for part in condition.parts), np.zeros(len(self.rows)))
        return np.minimum(total, self._all)


def _swapped(counts: Counts) -> Counts:
    return Counts(counts.false, counts.true, counts.null, 1 - counts.share, counts.groups)


def _answers(column: ColumnCoverage, of_value: npt.NDArray[np.int8]) -> tuple[IntArray, IntArray, IntArray]:
    """Per entry, without its nulls: rows false, true and null, a line each; row groups with a true one; values of each.

    What is false is what is left, since a term is false for most values.
    """
    entries = len(column.states)
    counts, values = np.zeros((2, 3, entries), np.int64)
    groups = np.zeros(entries, np.int64)
    truths = of_value[column.codes]
    for answer in (TRUE, UNDECIDED):
        found = np.flatnonzero(truths == answer)
        owners = column.owners[found]
        # Sums of fewer than 2 ** 53 rows are exact as floats.
        counts[answer] = np.bincount(owners, weights=column.counts[found], minlength=entries)
        values[answer] = np.bincount(owners, minlength=entries)
        if answer == TRUE:
            groups[:] = np.bincount(owners, weights=column.groups[found], minlength=entries)
    counts[FALSE] = column.totals - counts[TRUE] - counts[UNDECIDED]
    values[FALSE] = column.sizes - values[TRUE] - values[UNDECIDED]
    return counts, groups, values


def exact_rows(counts: Counts) -> BoolArray:
    """Files in which the number of rows that match is known."""
    exact: BoolArray = counts.true[0] == counts.true[1]
    return exact


@dataclass(frozen=True, slots=True)
class RowSets:
    """Row positions for which a condition may be true, false, null."""

    true: BitMap
    false: BitMap
    null: BitMap

    @property
    def is_exact(self) -> bool:
        """Whether the condition is true for all of :attr:`true`."""
        return bool(self.true.isdisjoint(self.false) and self.true.isdisjoint(self.null))


def all_rows(rows: int) -> BitMap:
    """All positions of a file."""
    whole = BitMap()
    whole.add_range(0, rows)
    return whole


def row_sets(
    condition: Condition,
    rows: int,
    terms: Mapping[Term, RowSets],
    may_be: Callable[[UnindexedTerm], tuple[BitMap, BitMap, BitMap] | None] = lambda part: None,
) -> RowSets:
    """The rows of a condition.

    Args:
        condition: from :func:`~lakedex.index.bitmap.condition.to_bitmap_expr`.
        rows: of the file.
        terms: the rows of its terms; one that is missing is unknown.
        may_be: what something else (statistics of row groups) says of a condition without bitmaps.
    """
    whole = all_rows(rows)
    nothing = BitMap()

    def walk(node: Condition) -> RowSets:
        if isinstance(node, Term):
            return terms.get(node) or RowSets(whole, whole, whole)
        if isinstance(node, Negation):
            inner = walk(node.part)
            return RowSets(inner.false, inner.true, inner.null)
        if isinstance(node, NullTest):
            inner = walk(node.part)
            return RowSets(inner.null, inner.true | inner.false, nothing)
        if isinstance(node, UnindexedTerm):
            if node.literal is not None:
                return RowSets(*(whole if node.literal.value is v else nothing for v in (True, False, None)))
            said = may_be(node)
            return RowSets(whole, whole, whole) if said is None else RowSets(*said)
        return joined(node)

    def joined(node: Combination) -> RowSets:
        result: RowSets | None = None
        for part in node.parts:
            one = walk(part)
            if not node.every:
                one = RowSets(one.false, one.true, one.null)
            if result is not None:
                null = (result.null & (one.true | one.null)) | (result.true & one.null)
                one = RowSets(result.true & one.true, result.false | one.false, null)
            result = one
        if result is None:
            return RowSets(whole, nothing, nothing) if node.every else RowSets(nothing, whole, nothing)
        return result if node.every else RowSets(result.false, result.true, result.null)

    return walk(condition)
