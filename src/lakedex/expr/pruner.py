"""Prune files by bounds: find those that may hold a row for which a predicate is true.

Every result is three arrays over files, *may be true*, *may be false*, *may be null*; the unknown is all three. So NOT
swaps the first two, AND and OR follow Kleene, and a file is dropped only where "may be true" is disproved.

Bounds may be wider than the values (those of long strings are): they prove what lies outside them, and min = max proves
that every value is that one. They never prove that a value exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, LakedexError
from lakedex.expr.casts import cast_array, days_of_micros
from lakedex.expr.evaluator import evaluate_constant
from lakedex.expr.like import like_prefix
from lakedex.expr.nodes import (
    And,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Scalar,
    Unknown,
    is_predicate,
)
from lakedex.expr.sort_keys import in_keys, literal_array, ordering_keys
from lakedex.expr.terms import is_constant
from lakedex.expr.types import Kind, NotPrunableError, is_harmless_cast, kind_of
from lakedex.expr.zones import MICROS_PER_DAY
from lakedex.types import BoolArray

__all__ = ["Bounds", "ColumnBounds", "evaluate_bounds", "prune"]


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds and counts of one column, an entry per file.

    Attributes:
        minimum: Lower bounds, of the column's type; null where unknown.
        maximum: Upper bounds. Of floats NaN is the greatest: where a NaN may be outside the bounds, give null.
        null_count: Nulls per file, -1 where unknown.
        row_count: Rows per file, nulls among them; -1 where unknown.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: npt.NDArray[np.int64]
    row_count: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        """Refuse entries that do not line up."""
        if len({len(self.minimum), len(self.maximum), len(self.null_count), len(self.row_count)}) > 1:
            raise InvalidInputError("bounds, null counts and row counts must have one entry per file each")


Bounds = Callable[[Column], ColumnBounds | None]


def prune(predicate: Predicate, bounds: Bounds, n: int) -> BoolArray:
    """Say which files to keep.

    Args:
        predicate: From :func:`lakedex.expr.parse_predicate`.
        bounds: What is known of a column; None for nothing.
        n: The number of files.

    Returns:
        True per file that may hold a matching row.
    """
    return _BoundsEvaluator(bounds, n).evaluate(predicate).true


def evaluate_bounds(predicate: Predicate, bounds: Bounds, n: int) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Per file whether a row may be there for which the predicate is true, false, null; arguments as :func:`prune`."""
    found = _BoundsEvaluator(bounds, n).evaluate(predicate)
    return found.true, found.false, found.null


@dataclass(frozen=True, slots=True)
class _Tri:
    true: BoolArray
    false: BoolArray
    null: BoolArray


@dataclass(frozen=True, slots=True)
class _Range:
    """Ordering keys of the bounds of a scalar (null where unknown), and whether nulls and values may occur."""

    low: pa.Array
    high: pa.Array
    may_null: BoolArray
    may_value: BoolArray


class _BoundsEvaluator:
    """One pass over a predicate; remembers the range of each scalar."""

    def __init__(self, bounds: Bounds, n: int) -> None:
        self._bounds, self._n = bounds, n
        self._ranges: dict[Scalar, _Range] = {}
        self._values: dict[Scalar, tuple[pa.Array, ...]] = {}
        self._yes, self._no = np.ones(n, np.bool_), np.zeros(n, np.bool_)

    def evaluate(self, node: Predicate) -> _Tri:
        if isinstance(node, And | Or):
            return self._chain(node)
        if isinstance(node, Not):
            inner = self.evaluate(node.operand)
            return _Tri(inner.false, inner.true, inner.null)
        if isinstance(node, Unknown):
            return _Tri(self._yes, self._yes, self._yes)
        if isinstance(node, Literal):
            return _Tri(*(self._yes if node.value is v else self._no for v in (True, False, None)))
        if isinstance(node, IsNull):
            null, value = self._nullness(node.operand)
            return _Tri(null, value, self._no)
        if isinstance(node, Comparison):
            return self._compare(node.op, self._range(node.left), self._range(node.right))
        if isinstance(node, In):
            return self._in(node)
        return self._like(node)

    def _chain(self, node: And | Or) -> _Tri:
        result: _Tri | None = None
        for operand in node.operands:
            one = self.evaluate(operand)
            if isinstance(node, Or):
                one = _Tri(one.false, one.true, one.null)
            if result is not None:
                null = (result.null & (one.true | one.null)) | (result.true & one.null)
                one = _Tri(result.true & one.true, result.false | one.false, null)
            result = one
        if result is None:
            return _Tri(self._yes, self._yes, self._yes)
        return _Tri(result.false, result.true, result.null) if isinstance(node, Or) else result

    def _nullness(self, operand: Scalar | Predicate) -> tuple[BoolArray, BoolArray]:
        if is_predicate(operand):
            inner = self.evaluate(operand)  # type: ignore[arg-type]
            return inner.null, inner.true | inner.false
        found = self._range(operand)  # type: ignore[arg-type]
        return found.may_null, found.may_value

    def _compare(self, op: str, a: _Range, b: _Range) -> _Tri:
        if op in ("<", "<=", ">", ">="):
            if op[0] == ">":
                a, b = b, a
            strict = len(op) == 1
            true = _possible(pc.less if strict else pc.less_equal, a.low, b.high)
            false = _possible(pc.greater_equal if strict else pc.greater, a.high, b.low)
        else:
            true = _possible(pc.less_equal, a.low, b.high) & _possible(pc.less_equal, b.low, a.high)
            false = ~(_proved_equal(a.low, a.high) & _proved_equal(b.low, b.high) & _proved_equal(a.low, b.low))
        if op == "<>":
            true, false = false, true
        values = a.may_value & b.may_value
        if op == "<=>":
            one_null = (a.may_null & b.may_value) | (a.may_value & b.may_null)
            return _Tri((true & values) | (a.may_null & b.may_null), (false & values) | one_null, self._no)
        return _Tri(true & values, false & values, a.may_null | b.may_null)

    def _in(self, node: In) -> _Tri:
        found = self._range(node.operand)
        ordered = in_keys(node)
        has_null = (0 if ordered is None else len(ordered)) < len(node.values)
        true, certain = self._no, self._no
        if ordered is not None:
            true = self._some_within(ordered, found)
            certain = _proved_equal(found.low, found.high) & _filled(pc.is_in(found.low, value_set=ordered), False)
        true, false = true & found.may_value, ~certain & found.may_value
        if has_null:
            return _Tri(true, self._no, found.may_null | false)
        return _Tri(true, false, found.may_null)

    def _some_within(self, ordered: pa.Array, found: _Range) -> BoolArray:
        """Whether one of the sorted keys lies within the bounds, by binary search."""
        known = _filled(pc.and_(pc.is_valid(found.low), pc.is_valid(found.high)), False)
        values = ordered.to_numpy(zero_copy_only=False)
        first = np.zeros(self._n, np.int64)
        after = np.full(self._n, len(values), np.int64)
        mask = pa.array(known)
        first[known] = np.searchsorted(values, found.low.filter(mask).to_numpy(zero_copy_only=False), "left")
        after[known] = np.searchsorted(values, found.high.filter(mask).to_numpy(zero_copy_only=False), "right")
        below = _possible(pc.less_equal, found.low, ordered[-1])
        above = _possible(pc.greater_equal, found.high, ordered[0])
        return np.where(known, after > first, below & above)

    def _like(self, node: Like) -> _Tri:
        found = self._range(node.operand)
        text, exact, only_prefix = like_prefix(node.pattern, node.escape)
        if exact:
            return self._compare("=", found, self._range(Literal(text, pa.string())))
        prefix = text.encode("utf-8")
        # Cut to the prefix's length, bounds compare with the prefix as any value between them does.
        low, high = (pc.binary_slice(keys, 0, len(prefix)) for keys in (found.low, found.high))
        wanted = pa.scalar(prefix, pa.large_binary())
        true = _possible(pc.less_equal, low, wanted) & _possible(pc.greater_equal, high, wanted)
        false = self._yes
        if only_prefix:
            both = _filled(pc.and_(pc.equal(low, wanted), pc.equal(high, wanted)), False)
            false = ~(both | self._yes) if not prefix else ~both
        return _Tri(true & found.may_value, false & found.may_value, found.may_null)

    def _range(self, scalar: Scalar) -> _Range:
        found = self._ranges.get(scalar)
        if found is None:
            try:
                found = self._find_range(scalar)
            except (NotPrunableError, LakedexError, pa.ArrowException, OverflowError):
                found = self._unknown(scalar)
            self._ranges[scalar] = found
        return found

    def _unknown(self, scalar: Scalar) -> _Range:
        try:
            nothing: Any = ordering_keys(pa.nulls(self._n).cast(scalar.type))
        except (NotPrunableError, pa.ArrowException):
            nothing = pa.nulls(self._n, pa.int64())
        return _Range(nothing, nothing, self._yes, self._yes)

    def _find_range(self, scalar: Scalar) -> _Range:
        if isinstance(scalar, Column):
            return self._column(scalar)
        if isinstance(scalar, Cast) and isinstance(scalar.operand, Column | Cast):
            return self._through_cast(scalar)
        if is_constant(scalar):
            value = literal_array(scalar) if isinstance(scalar, Literal) else evaluate_constant(scalar)
            keys = pa.repeat(ordering_keys(value)[0], self._n)
            null = not value[0].is_valid
            return _Range(keys, keys, self._yes if null else self._no, self._no if null else self._yes)
        return self._unknown(scalar)

    def _column(self, column: Column) -> _Range:
        known = self._bounds(column)
        if known is None:
            return self._unknown(column)
        if len(known.minimum) != self._n:
            raise ValueError(f"bounds of {column.name} have {len(known.minimum)} entries for {self._n} files")
        nulls, rows = np.asarray(known.null_count), np.asarray(known.row_count)
        sane = (nulls >= 0) & ((rows < 0) | (nulls <= rows))
        may_null = ~(sane & (nulls == 0))
        may_value = ~(sane & (rows > 0) & (nulls == rows))
        try:
            values = tuple(_as_column(v, column.type) for v in (known.minimum, known.maximum))
            low, high = (ordering_keys(v) for v in values)
        except (NotPrunableError, LakedexError, pa.ArrowException):
            return _Range(*(self._unknown(column).low,) * 2, may_null, may_value)
        self._values[column] = values
        if pa.types.is_floating(column.type):
            # A lower bound of NaN would say that all values are NaN; writers put it there for other reasons.
            nan = ordering_keys(pa.array([np.nan]))[0]
            low = pc.if_else(pc.equal(low, nan), pa.scalar(None, pa.int64()), low)
        crossed = _filled(pc.greater(low, high), False)
        if crossed.any():
            nothing = pa.scalar(None, low.type)
            low, high = (pc.if_else(pa.array(crossed), nothing, keys) for keys in (low, high))
        return _Range(low, high, may_null, may_value)

    def _through_cast(self, cast: Cast) -> _Range:
        inner = self._range(cast.operand)
        source, target = kind_of(cast.operand.type), kind_of(cast.type)
        values = self._values.get(cast.operand)
        if values is not None and is_harmless_cast(cast.operand.type, cast.type):
            low, high = (ordering_keys(cast_array(v, cast.type)) for v in values)
            # What made a bound useless as a key makes it useless here.
            low, high = (
                pc.if_else(k.is_valid(), new, pa.scalar(None, new.type))
                for k, new in ((inner.low, low), (inner.high, high))
            )
        elif source is Kind.DATE and target is Kind.LOCAL:
            low, high = (pc.multiply_checked(keys, MICROS_PER_DAY) for keys in (inner.low, inner.high))
        elif source is Kind.LOCAL and target is Kind.DATE:
            low, high = days_of_micros(inner.low), days_of_micros(inner.high)
        elif source is Kind.DATE and target is Kind.TIMESTAMP:
            # No zone is more than a day from UTC: a margin that holds in all of them.
            low = pc.multiply_checked(pc.subtract_checked(inner.low, 1), MICROS_PER_DAY)
            high = pc.multiply_checked(pc.add_checked(inner.high, 1), MICROS_PER_DAY)
        elif source is Kind.TIMESTAMP and target is Kind.DATE:
            low = days_of_micros(pc.subtract_checked(inner.low, MICROS_PER_DAY))
            high = days_of_micros(pc.add_checked(inner.high, MICROS_PER_DAY))
        else:
            # A cast that may fail makes nulls of values (not in ANSI mode); of nulls it makes nothing else.
            return replace(self._unknown(cast), may_value=inner.may_value)
        return _Range(low, high, inner.may_null, inner.may_value)


def _as_column(values: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array:
    """Bounds in the column's type: an older file's may be narrower."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values)).cast(target)
    if not is_harmless_cast(values.type, target):
        raise NotPrunableError
    same_kind = kind_of(values.type) is kind_of(target) and kind_of(target) is not Kind.DECIMAL
    return values if same_kind else cast_array(values, target)


def _filled(found: pa.BooleanArray, default: bool) -> BoolArray:
    mask: BoolArray = pc.fill_null(found, default).to_numpy(zero_copy_only=False)
    return mask


def _possible(test: Callable[..., pa.BooleanArray], left: pa.Array, right: pa.Array | pa.Scalar) -> BoolArray:
    """The test per file, true where a bound is unknown."""
    return _filled(test(left, right), True)


def _proved_equal(left: pa.Array, right: pa.Array) -> BoolArray:
    return _filled(pc.equal(left, right), False)
