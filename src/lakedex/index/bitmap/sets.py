"""The rows of one file for which a condition may be true, false or null, as bitmaps.

What is not known is in all three. So a row is surely no match if it is not in the first, and the first is exact if it
has no row in common with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap

from lakedex.expr.nodes import Literal
from lakedex.index.bitmap.condition import Condition, IsUnknown, Joined, Negated, Open, Term

__all__ = ["RowSets", "all_rows", "row_sets"]


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
    may_be: Callable[[Open], tuple[BitMap, BitMap, BitMap] | None] = lambda part: None,
) -> RowSets:
    """The rows of a condition.

    Args:
        condition: from :func:`~lakedex.index.bitmap.condition.divide`.
        rows: of the file.
        terms: the rows of its terms; one that is missing is unknown.
        may_be: what something else (statistics of row groups) says of a condition without bitmaps.
    """
    whole = all_rows(rows)
    nothing = BitMap()

    def walk(node: Condition) -> RowSets:
        if isinstance(node, Term):
            return terms.get(node) or RowSets(whole, whole, whole)
        if isinstance(node, Negated):
            inner = walk(node.part)
            return RowSets(inner.false, inner.true, inner.null)
        if isinstance(node, IsUnknown):
            inner = walk(node.part)
            return RowSets(inner.null, inner.true | inner.false, nothing)
        if isinstance(node, Open):
            if isinstance(node.predicate, Literal):
                return RowSets(*(whole if node.predicate.value is v else nothing for v in (True, False, None)))
            said = may_be(node)
            return RowSets(whole, whole, whole) if said is None else RowSets(*said)
        return joined(node)

    def joined(node: Joined) -> RowSets:
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
