"""A condition as bitmaps see it: terms that speak of one indexed column each, put together by AND, OR and NOT.

Any condition on one column, however it is made (``upper(c) LIKE 'A%' OR c IS NULL``), is answered by looking at each
distinct value of the column once. So whole subtrees of one column are one term.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import LakedexError
from lakedex.expr import columns_of, depends_on_zone, unknown_texts
from lakedex.expr.compute import truth
from lakedex.expr.nodes import And, Column, IsNull, Literal, Not, Or, Predicate, is_predicate

__all__ = [
    "FALSE",
    "TRUE",
    "UNDECIDED",
    "Condition",
    "IsUnknown",
    "Joined",
    "Negated",
    "Open",
    "Term",
    "divide",
    "has_open_part",
    "judge_values",
    "terms_in",
]

FALSE, TRUE, UNDECIDED = 0, 1, 2
"""What a condition is for a value: false, true, null."""


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on one indexed column."""

    predicate: Predicate
    column: Column


@dataclass(frozen=True, slots=True)
class Open:
    """A condition that bitmaps cannot answer."""

    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions put together by AND (``every``) or OR."""

    parts: tuple[Condition, ...]
    every: bool


@dataclass(frozen=True, slots=True)
class Negated:
    """NOT of a condition."""

    part: Condition


@dataclass(frozen=True, slots=True)
class IsUnknown:
    """``(condition) IS NULL``."""

    part: Condition


Condition = Term | Open | Joined | Negated | IsUnknown


def divide(predicate: Predicate, indexed: Collection[str]) -> Condition:
    """The condition's terms.

    Args:
        predicate: from the parser.
        indexed: names of the columns that have bitmaps.
    """
    columns = columns_of(predicate)
    # The zone of a cast is not known where Spark gave the condition; bounds are wide enough for any.
    judged = not unknown_texts(predicate) and not depends_on_zone(predicate)
    if judged and len(columns) == 1 and columns[0].name in indexed:
        return Term(predicate, columns[0])
    if isinstance(predicate, And | Or):
        return _joined(predicate, indexed)
    if isinstance(predicate, Not):
        return Negated(divide(predicate.operand, indexed))
    if isinstance(predicate, IsNull) and is_predicate(predicate.operand):
        return IsUnknown(divide(predicate.operand, indexed))  # type: ignore[arg-type]
    return Open(predicate)


def _joined(predicate: And | Or, indexed: Collection[str]) -> Condition:
    """Operands of the same column become one term, which knows more than they do apart."""
    kind = type(predicate)
    own: dict[Column, list[Predicate]] = {}
    parts: list[Condition] = []
    for operand in predicate.operands:
        found = divide(operand, indexed)
        if isinstance(found, Term):
            own.setdefault(found.column, []).append(found.predicate)
        else:
            parts.append(found)
    terms = [Term(same[0] if len(same) == 1 else kind(tuple(same)), column) for column, same in own.items()]
    return Joined((*terms, *parts), kind is And)


def terms_in(condition: Condition) -> list[Term]:
    """The terms of a condition."""
    if isinstance(condition, Term):
        return [condition]
    if isinstance(condition, Joined):
        return [term for part in condition.parts for term in terms_in(part)]
    return [] if isinstance(condition, Open) else terms_in(condition.part)


def has_open_part(condition: Condition) -> bool:
    """Whether bitmaps leave a part of a condition open."""
    if isinstance(condition, Joined):
        return any(has_open_part(part) for part in condition.parts)
    if isinstance(condition, Open):
        return not isinstance(condition.predicate, Literal)
    return not isinstance(condition, Term) and has_open_part(condition.part)


def judge_values(term: Term, values: pa.Array) -> npt.NDArray[np.int8] | None:
    """What a term is for each of some values of its column; None where it cannot be said.

    Args:
        term: the term.
        values: of the column's type, nulls among them.
    """
    column = values
    for part in reversed(term.column.path[1:]):
        column = pa.StructArray.from_arrays([column], names=[part])
    batch = pa.RecordBatch.from_arrays([column], names=[term.column.path[0]])
    try:
        found = truth(term.predicate, batch)
    except (LakedexError, pa.ArrowException):
        return None  # It fails for a value, which may be one that no row of this scan has.
    known = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return np.where(found.is_null().to_numpy(zero_copy_only=False), UNDECIDED, known).astype(np.int8)
