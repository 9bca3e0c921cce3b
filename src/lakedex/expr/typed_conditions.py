"""Conditions of other libraries on typed columns: what means the same in Spark SQL, and refusals of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakedex.errors import UnsupportedFeatureError
from lakedex.expr.like import escaped
from lakedex.expr.nodes import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    Predicate,
    Scalar,
    is_predicate,
)
from lakedex.expr.types import Kind, NotPrunableError, kind_of, resolve_column

__all__ = ["Node", "TypedConditions", "joined", "time_literal"]


Node = Scalar | Predicate


_TRUE = Literal(True, pa.bool_())


_EXACT_KINDS = (Kind.INT, Kind.DECIMAL)


@dataclass(frozen=True, slots=True)
class TypedConditions:
    """Makes conditions on the columns of a table.

    Attributes:
        source: What the condition is, for errors: ``pyarrow expression``.
        schema: The table's columns, and Hudi's.
        case_sensitive: Whether names that differ in case are different names.
    """

    source: str
    schema: pa.Schema
    case_sensitive: bool = False

    def refused(self, part: str, advice: str = "") -> UnsupportedFeatureError:
        """The error for a part that has no exact equal."""
        return UnsupportedFeatureError(
            f"the {self.source} cannot be converted: {part}; {advice or 'write the condition as SQL text'}",
            feature=part,
        )

    def column(self, *path: str) -> Column:
        """A column, or a field of a struct column.

        Raises:
            InvalidInputError: There is none; the message has similar names.
        """
        first = resolve_column(path[:1], self.schema, case_sensitive=self.case_sensitive)
        if len(path) == 1:
            return first
        return resolve_column((first.path[0], *path[1:]), self.schema, case_sensitive=self.case_sensitive)

    def condition(self, node: Node) -> Predicate:
        """A node as a condition: a boolean column is one."""
        if is_predicate(node) or (isinstance(node, Literal) and isinstance(node.value, bool)):
            return node  # type: ignore[return-value]
        if isinstance(node, Column) and self.kind(node) is Kind.BOOL:
            return Comparison("=", node, _TRUE)
        raise self.refused(f"{_named(node)} as a condition", "compare it with a value")

    def value(self, node: Node) -> Column | Literal:
        """A node as an operand: a column, or a value that is not null."""
        if isinstance(node, Literal) and node.value is None:
            raise self.refused("a comparison with null", "use is_null() or is_valid(), is_not_null()")
        if isinstance(node, Column | Literal):
            return node
        raise self.refused("a comparison of conditions", "combine conditions with &, | and ~")

    def kind(self, operand: Column | Literal) -> Kind:
        """The kind of an operand's type."""
        try:
            return kind_of(operand.type)
        except NotPrunableError:
            raise self.refused(f"a comparison of {_named(operand)}, which is {operand.type}") from None

    def compared(self, op: str, left: Node, right: Node) -> Comparison:
        """A comparison of operands that both sides compare alike: of one kind, or numbers.

        Decimals with floats are not: digits are rounded in different ways.
        """
        one, other = self.value(left), self.value(right)
        a, b = self.kind(one), self.kind(other)
        exact = a in _EXACT_KINDS and b in _EXACT_KINDS
        floats = a.is_number and b.is_number and Kind.DECIMAL not in (a, b)
        if not (a is b or exact or floats):
            raise self.refused(
                f"a comparison of {_named(one)}, which is {a.value}, with {_named(other)}, which is {b.value}",
                "give a value of the column's type (a datetime with a time zone for a timestamp)",
            )
        return Comparison(op, one, other)

    def listed(self, operand: Node, values: Sequence[Literal]) -> Predicate:
        """Whether a column has one of some values, of its kind and not null; null for null."""
        column = self.value(operand)
        for value in values:
            self.compared("=", column, value)
        if values:
            return In(column, tuple(dict.fromkeys(values)))
        # Null for null, and false for any value.
        return And((IsNull(column), Comparison("=", column, column)))

    def affix(self, operand: Node, text: object, before: str, after: str) -> Predicate:
        """Whether a text begins with, ends with, or contains another."""
        column = self.value(operand)
        if self.kind(column) is not Kind.STRING or not isinstance(text, str):
            raise self.refused(f"a search for {text!r} in {_named(column)}", "search for a text in a text column")
        return Like(column, f"{before}{escaped(text)}{after}")


def joined(kind: type[And | Or], *parts: Predicate) -> Predicate:
    """A conjunction or disjunction; parts of the same kind are taken into it, so that long chains stay flat."""
    flat = [own for part in parts for own in (part.operands if isinstance(part, kind) else (part,))]
    return kind(tuple(flat))


def time_literal(value: int, per_second: int, zone: str | None) -> Literal | None:
    """A timestamp that counts some units a second, as one in microseconds; None if it has a part of one."""
    micros, rest = divmod(value * 1_000_000, per_second)
    return None if rest else Literal(micros, pa.timestamp("us", None if zone is None else "UTC"))


def _named(node: Any) -> str:
    if isinstance(node, Column):
        return f"column {node.name!r}"
    return f"the value {node.value!r}" if isinstance(node, Literal) else "a condition"
