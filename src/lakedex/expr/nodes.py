"""Nodes of predicates and scalars: immutable, typed, hashable.

A *scalar* has a value per row and a :attr:`type`; a *predicate* is true, false or null per row. Trees come from
:mod:`lakedex.expr.parser`, which brings both sides of a comparison to one type as Spark does, so pruning and
filtering need no conversion.

Literals have physical values: an ``int`` of days for a date, of UTC microseconds for a timestamp (of local
microseconds for a timestamp without zone), ``bytes`` for binary, ``Decimal`` for a decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = [
    "And",
    "Arithmetic",
    "Case",
    "Cast",
    "Column",
    "Comparison",
    "Function",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "LiteralValue",
    "Not",
    "Or",
    "Predicate",
    "Scalar",
    "Truth",
    "Unknown",
    "all_of",
    "is_predicate",
]


LiteralValue = bool | int | float | Decimal | str | bytes | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field inside a struct column. Columns are equal if their paths are."""

    path: tuple[str, ...]
    type: pa.DataType = field(default_factory=pa.null, compare=False)

    @property
    def name(self) -> str:
        """Path joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; TRUE, FALSE or NULL as a predicate."""

    value: LiteralValue
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Cast:
    """``CAST(operand AS type)``, explicit or inserted by Spark's coercion rules; ``TRY_CAST`` if ``attempt``.

    ``timezone`` is that of the session, for casts between dates, timestamps and text.
    """

    operand: Scalar
    type: pa.DataType
    timezone: str = "UTC"
    attempt: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left op right`` with op one of ``+ - * / %``; both sides have the same type."""

    op: str
    left: Scalar
    right: Scalar
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Function:
    """``name(arguments)``; the name is a key of :data:`lakedex.expr.functions.FUNCTIONS`.

    ``timezone`` is that of the session, for functions of clock times.
    """

    name: str
    arguments: tuple[Scalar, ...]
    type: pa.DataType
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Case:
    """``CASE WHEN condition THEN value … ELSE otherwise END``."""

    branches: tuple[tuple[Predicate, Scalar], ...]
    otherwise: Scalar
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition as a value: true, false or null."""

    operand: Predicate
    type: pa.DataType = field(default_factory=pa.bool_, init=False, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right``, op one of ``= <> < <= > >= <=>``."""

    op: str
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True)
class In:
    """``operand IN (values)``; the literals have the operand's type and may include null.

    ``cached`` is for :func:`~lakedex.expr.sort_keys.in_keys`: a join may have tens of thousands of keys.
    """

    operand: Scalar
    values: tuple[Literal, ...]
    cached: Any = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Hash only a few values, as plans look conditions up repeatedly."""
        return hash((self.operand, len(self.values), self.values[:4]))


@dataclass(frozen=True, slots=True)
class IsNull:
    """``operand IS NULL`` of a scalar or of a predicate. Columns may have any type, including nested ones."""

    operand: Scalar | Predicate


@dataclass(frozen=True, slots=True)
class Like:
    """``operand LIKE pattern ESCAPE escape``."""

    operand: Scalar
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT operand``."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of all operands, by Kleene's logic."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of all operands, by Kleene's logic."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that cannot be evaluated, with its SQL text and the reason if known; true, false or null."""

    text: str
    columns: tuple[Column, ...] = ()
    reason: str = field(default="", compare=False)


Predicate = Comparison | In | IsNull | Like | Not | And | Or | Literal | Unknown


Condition = Comparison | In | IsNull | Like | Not | And | Or | Unknown


Scalar = Column | Literal | Cast | Arithmetic | Function | Case | Truth


def all_of(predicates: Sequence[Predicate]) -> Predicate | None:
    """Conjunction of the predicates; None if there are none."""
    return None if not predicates else predicates[0] if len(predicates) == 1 else And(tuple(predicates))


def is_predicate(node: Predicate | Scalar) -> bool:
    """Whether the node is a condition rather than a value (a literal is both)."""
    return isinstance(node, Comparison | In | IsNull | Like | Not | And | Or | Unknown)
