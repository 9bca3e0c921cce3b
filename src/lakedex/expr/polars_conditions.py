"""Conditions made with polars (``pl.col("fare") > 12``), which keep their meaning; polars itself is not imported.

polars shows the parts of an expression as JSON, whose shape follows its version: a part of a shape that is not known is
refused. Its order of floats (NaN above all, and equal to itself) and its nulls are Spark's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.expr.columns import literal_of
from lakedex.expr.nodes import And, Column, Comparison, IsNull, Literal, Not, Or, Predicate
from lakedex.expr.typed_conditions import Node, TypedConditions, joined, time_literal
from lakedex.types import decimal_of

__all__ = ["is_polars_expression", "polars_condition"]


_NAME = "polars expression"


_COMPARISONS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "EqValidity": "<=>"}


_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


_UNITS = {"Milliseconds": 1_000, "Microseconds": 1_000_000, "Nanoseconds": 1_000_000_000}


_PLAIN = ("Boolean", "String", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")


_EXACT_FLOAT = 2**24


_OLDEST = 2
"""Before this version expressions have other shapes, and ``is_in`` other nulls."""


def is_polars_expression(value: object) -> bool:
    """Whether a value is an expression of polars."""
    return type(value).__module__.startswith("polars.") and hasattr(value, "meta")


def polars_condition(expression: Any, schema: pa.Schema, *, case_sensitive: bool = False) -> Predicate:
    """The condition that is true for the rows that polars would keep, and false or null as polars has it.

    Args:
        expression: A condition on columns of the table.
        schema: The table's columns, and Hudi's.
        case_sensitive: Whether names that differ in case are different names.

    Raises:
        UnsupportedFeatureError: A part without an exact equal in Spark SQL; the message names it.
        InvalidInputError: A column that the table lacks.
    """
    make = TypedConditions(_NAME, schema, case_sensitive)
    version = str(sys.modules["polars"].__version__)
    if int(version.partition(".")[0]) < _OLDEST:
        raise make.refused(f"it is one of polars {version}", f"expressions of polars {_OLDEST} are; or give SQL text")
    return make.condition(_Reader(make).node(json.loads(expression.meta.serialize(format="json"))))


@dataclass(frozen=True, slots=True)
class _Reader:
    make: TypedConditions

    def unknown(self, tree: object) -> Exception:
        """The error for a part of another shape."""
        name = next(iter(tree)) if isinstance(tree, Mapping) and tree else tree
        inner = tree[name] if isinstance(tree, Mapping) and name in ("Agg", "Literal", "Scalar", "Selector") else None
        shown = f"{name} {next(iter(inner))}" if isinstance(inner, Mapping) and inner else str(name)
        return self.make.refused(f"the part {shown}")

    def node(self, tree: Any) -> Node:
        """A part of the expression."""
        match tree:
            case {"Column": str(name)}:
                if name.startswith("^") and name.endswith("$"):
                    raise self.make.refused(f"the pattern {name!r} for columns", "name each column")
                return self.make.column(name)
            case {"Literal": {"Dyn": dynamic}}:
                return self.dynamic(dynamic)
            case {"Literal": {"Scalar": scalar}}:
                return self.scalar(scalar)
            case {"BinaryExpr": {"left": left, "op": str(op), "right": right}}:
                return self.binary(op, left, right)
            case {"Function": {"input": [first, *others], "function": {"StructExpr": {"FieldByName": str(name)}}}}:
                parent = self.node(first)
                if others or not isinstance(parent, Column):
                    raise self.unknown(tree)
                return self.make.column(*parent.path, name)
            case {"Function": {"input": [first, *others], "function": {"Boolean": call}}}:
                return self.boolean(call, first, others)
            case {"Function": {"input": [text, part], "function": {"StringExpr": call}}}:
                return self.text(call, text, part)
            case {"Function": {"function": call}}:
                raise self.make.refused(f"the function {json.dumps(call)[:80]}")
            case _:
                raise self.unknown(tree)

    def binary(self, op: str, left: Any, right: Any) -> Predicate:
        """A comparison, or conditions put together."""
        if op in ("And", "Or", "LogicalAnd", "LogicalOr"):
            parts = self._spine(op, left), self._spine(op, right)
            return joined(And if op.endswith("And") else Or, *(self.make.condition(p) for own in parts for p in own))
        if op == "NotEqValidity":
            return Not(self.binary("EqValidity", left, right))
        if op not in _COMPARISONS:
            raise self.make.refused(f"the operator {op}")
        return self.compared(_COMPARISONS[op], left, right)

    def _spine(self, op: str, tree: Any) -> list[Node]:
        """Operands of a chain, without a call for each."""
        rest = []
        while isinstance(tree, Mapping) and tree.get("BinaryExpr", {}).get("op") == op:
            rest.append(tree["BinaryExpr"]["right"])
            tree = tree["BinaryExpr"]["left"]
        return [self.node(part) for part in (tree, *reversed(rest))]

    def compared(self, op: str, left: Any, right: Any) -> Comparison:
        """A comparison; a Python number takes part in the type that polars gives it."""
        one, other = self.node(left), self.node(right)
        return self.make.compared(op, self._beside(left, one, other), self._beside(right, other, one))

    def _beside(self, tree: Any, side: Node, other: Node) -> Node:
        """A Python number beside a column of floats becomes such a float; with a type of its own it stays."""
        is_dynamic = isinstance(side, Literal) and "Dyn" in tree["Literal"]
        if not is_dynamic or not (isinstance(other, Column) and other.type == pa.float32()):
            return side
        number: Any = side.value  # type: ignore[union-attr]
        if isinstance(number, float):
            return Literal(float(np.float32(number)), pa.float32())
        if abs(number) > _EXACT_FLOAT:
            raise self.make.refused(f"{number} beside column {other.name!r}, which no float has exactly")
        return side

    def boolean(self, call: Any, first: Any, others: Sequence[Any]) -> Predicate:
        """A function that answers true or false."""
        operand = self.node(first)
        match call, others:
            case "IsNull", []:
                return IsNull(operand)
            case "IsNotNull", []:
                return Not(IsNull(operand))
            case "Not", []:
                return Not(self.make.condition(operand))
            case (("IsNan" | "IsNotNan"), []):
                value = self.make.value(operand)
                if not self.make.kind(value).is_float:
                    raise self.make.refused(f"{call} of a column that is {value.type}")
                return Comparison("=" if call == "IsNan" else "<>", value, Literal(float("nan"), value.type))
            case {"IsBetween": {"closed": str(closed)}}, [low, high] if closed in _BETWEEN:
                above, below = _BETWEEN[closed]
                return joined(And, self.compared(above, first, low), self.compared(below, first, high))
            case {"IsIn": {"nulls_equal": bool(nulls_equal)}}, [values]:
                return self.is_in(operand, values, nulls_equal=nulls_equal)
            case _:
                raise self.make.refused(f"the function {json.dumps(call)[:80]}")

    def is_in(self, operand: Node, values: Any, *, nulls_equal: bool) -> Predicate:
        """Whether a column has one of some values."""
        match values:
            case {"Literal": {"Scalar": {"List": [*packed]}}} | {"Literal": {"Series": [*packed]}}:
                found = _unpacked(packed)
            case _:
                raise self.make.refused("is_in() without a list of values")
        column = self.make.value(operand)
        if found.null_count:
            raise self.make.refused("is_in() with null in its list", "leave null out, and add .is_null() with |")
        if pa.types.is_floating(found.type) and found.type != column.type:
            raise self.make.refused(f"is_in() of {found.type} values for a column that is {column.type}")
        listed = self.make.listed(column, [self._item(value) for value in found])
        return And((Not(IsNull(column)), listed)) if nulls_equal else listed

    def _item(self, scalar: Any) -> Literal:
        kind = scalar.type
        if pa.types.is_timestamp(kind):
            units = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
            found = time_literal(scalar.value, units[kind.unit], kind.tz)
            if found is None:
                raise self.make.refused(f"the value {scalar}, which has nanoseconds")
            return found
        if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_nested(kind):
            raise self.make.refused(f"values of type {kind}")
        literal = literal_of(scalar)
        return Literal(literal.value, kind) if pa.types.is_floating(kind) else literal

    def text(self, call: Any, text: Any, part: Any) -> Predicate:
        """A search in a text."""
        ends = {"StartsWith": ("", "%"), "EndsWith": ("%", "")}
        match call, part:
            case (("StartsWith" | "EndsWith"), {"Literal": {"Scalar": {"String": str(found)}}}):
                return self.make.affix(self.node(text), found, *ends[call])
            case {"Contains": {"literal": True}}, {"Literal": {"Scalar": {"String": str(found)}}}:
                return self.make.affix(self.node(text), found, "%", "%")
            case {"Contains": {"literal": False}}, _:
                raise self.make.refused("str.contains() of a pattern", "give literal=True, or write RLIKE as SQL text")
            case _:
                raise self.make.refused(f"the function {json.dumps(call)[:80]}")

    def dynamic(self, value: Any) -> Literal:
        """A Python number, whose type follows from what it is compared with."""
        match value:
            case {"Int": int(number)}:
                return literal_of(number)
            case {"Float": float(number)}:
                return Literal(number, pa.float64())
            case {"Float": None}:
                raise self.make.refused("NaN or an infinite number", "use is_nan()")
            case _:
                raise self.unknown({"Literal": value})

    def scalar(self, value: Any) -> Literal:
        """A constant of a type."""
        if not isinstance(value, Mapping) or len(value) != 1:
            raise self.unknown({"Scalar": value})
        ((name, content),) = value.items()
        reader = _SCALARS.get(name)
        found = None
        try:
            found = literal_of(content) if name in _PLAIN else None if reader is None else reader(content)
        except (TypeError, ValueError, KeyError, AttributeError):
            pass
        if found is None:
            raise self.unknown({"Scalar": value})
        return found


def _float(kind: pa.DataType) -> Callable[[Any], Literal | None]:
    return lambda value: Literal(value, kind) if isinstance(value, float) else None


def _moment(content: Any) -> Literal | None:
    value, unit, zone = content
    return time_literal(value, _UNITS[unit], None if zone is None else "UTC")


def _number(content: Any) -> Literal:
    value, _, scale = content
    return literal_of(decimal_of(value, scale))


_SCALARS: dict[str, Callable[[Any], Literal | None]] = {
    "Null": lambda _: Literal(None, pa.null()),
    "Float32": _float(pa.float32()),
    "Float64": _float(pa.float64()),
    "Date": lambda days: Literal(int(days), pa.date32()),
    "Datetime": _moment,
    "DatetimeOwned": _moment,
    "Decimal": _number,
    "Binary": lambda content: Literal(bytes(content), pa.binary()),
}


def _unpacked(packed: Sequence[int]) -> Any:
    """The values of a list, which polars writes as an Arrow stream of one column."""
    column = pa.ipc.open_stream(bytes(packed)).read_all().column(0).combine_chunks()
    return column.flatten() if pa.types.is_nested(column.type) else column
