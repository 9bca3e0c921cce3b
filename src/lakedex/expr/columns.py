"""Conditions built from Python values: ``col("city") == "oslo"`` beside SQL text.

Values become literals of a tree, which is written as SQL that means the same under all settings of Spark's parser: no
value is ever read as SQL.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.expr.nodes import And, Column, Comparison, In, IsNull, Like, Literal, Not, Or, Predicate, Scalar
from lakedex.expr.terms import to_spark_sql

__all__ = ["ColumnExpression", "Condition", "col", "literal_of"]


_EPOCH = datetime.datetime(1970, 1, 1)


_DIGITS = 38
"""Decimal digits that Spark's decimals have at most."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Condition:
    """A condition on rows; combine conditions with ``&``, ``|`` and ``~``."""

    node: Predicate

    @property
    def sql(self) -> str:
        """The condition as Spark SQL."""
        return to_spark_sql(self.node)

    def __and__(self, other: Condition) -> Condition:
        return Condition(And((self.node, _condition(other))))

    def __or__(self, other: Condition) -> Condition:
        return Condition(Or((self.node, _condition(other))))

    def __invert__(self) -> Condition:
        return Condition(Not(self.node))

    def __bool__(self) -> NoReturn:
        raise InvalidInputError("a condition has no truth value: combine conditions with &, | and ~, each in brackets")

    def __str__(self) -> str:
        return self.sql

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False)
class ColumnExpression:
    """A column; its comparisons with values, or with other columns, are conditions. Made by :func:`col`."""

    node: Column

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("=", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("<>", other)

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def eq_null_safe(self, other: object) -> Condition:
        """Equality for which null equals null (SQL's ``<=>``)."""
        return Condition(Comparison("<=>", self.node, _scalar(other)))

    def is_null(self) -> Condition:
        """True for rows whose value is null."""
        return Condition(IsNull(self.node))

    def is_not_null(self) -> Condition:
        """True for rows whose value is not null."""
        return Condition(Not(IsNull(self.node)))

    def isin(self, values: Iterable[object]) -> Condition:
        """True for rows whose value is one of ``values``."""
        literals = tuple(literal_of(value) for value in values)
        return Condition(In(self.node, literals)) if literals else Condition(Literal(False, pa.bool_()))

    def between(self, low: object, high: object) -> Condition:
        """True for rows whose value is from ``low`` to ``high``, both included."""
        return self._compared(">=", low) & self._compared("<=", high)

    def like(self, pattern: str) -> Condition:
        """True for rows whose text matches a pattern: ``%`` any text, ``_`` one character; a backslash escapes."""
        return Condition(Like(self.node, pattern))

    def _compared(self, op: str, other: object) -> Condition:
        if other is None:
            raise InvalidInputError(
                f"column {self.node.name!r} {op} None is never true; use is_null() or is_not_null()"
            )
        return Condition(Comparison(op, self.node, _scalar(other)))


def col(*path: str) -> ColumnExpression:
    """A column to compare with values or other columns.

    Args:
        path: a name, in which dots lead into structs (``col("address.city")``); or several names, each as it is.

    Returns:
        The column; its comparisons are conditions that :meth:`lakedex.Table.scan` and others take in place of SQL text.

    Raises:
        InvalidInputError: no name.

    Example:
        >>> (col("fare") > 12) & col("city").isin(["oslo", "sf"])
        fare > 12 AND city IN ('oslo', 'sf')
    """
    names = tuple(path[0].split(".")) if len(path) == 1 else path
    if not names or not all(names):
        raise InvalidInputError(f"col() takes the name of a column, not {path!r}")
    return ColumnExpression(Column(names))


def _condition(other: object) -> Predicate:
    if not isinstance(other, Condition):
        raise InvalidInputError(f"{other!r} is no condition: put each comparison in brackets")
    return other.node


def _scalar(value: object) -> Scalar:
    return value.node if isinstance(value, ColumnExpression) else literal_of(value)


def literal_of(value: Any) -> Literal:
    """A Python, numpy or pyarrow value as a literal.

    Raises:
        InvalidInputError: a type that SQL has no literal for, or more digits than a decimal has.
    """
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    value = value.item() if type(value).__module__ == "numpy" else value
    if value is None:
        return Literal(None, pa.null())
    if isinstance(value, bool):
        return Literal(value, pa.bool_())
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return Literal(value, pa.float64())
    if isinstance(value, Decimal) and value.is_finite():
        return _decimal(value)
    if isinstance(value, str):
        return Literal(value, pa.string())
    if isinstance(value, bytes):
        return Literal(value, pa.binary())
    if isinstance(value, datetime.datetime):
        zone = None if value.tzinfo is None else "UTC"
        moment = value if zone is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
        return Literal((moment - _EPOCH) // datetime.timedelta(microseconds=1), pa.timestamp("us", zone))
    if isinstance(value, datetime.date):
        return Literal((value - _EPOCH.date()).days, pa.date32())
    raise InvalidInputError(f"{value!r} of type {type(value).__name__} cannot be compared with a column")


def _integer(value: int) -> Literal:
    bits = value.bit_length() + 1
    return Literal(value, pa.int32() if bits <= 32 else pa.int64()) if bits <= 64 else _decimal(Decimal(value))


def _decimal(value: Decimal) -> Literal:
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale)
    if precision > _DIGITS:
        raise InvalidInputError(f"{value} has {precision} digits; a decimal has at most {_DIGITS}")
    return Literal(value, pa.decimal128(precision, scale))
