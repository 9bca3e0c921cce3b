"""Conditions made with pyarrow (``pc.field("fare") > 12``), which keep their meaning.

pyarrow shows the parts of an expression in its pickled form only: a schema whose metadata lists them in Polish
notation, and a row with the constants. Its meaning differs from Spark's: comparisons with NaN are false, ``isin`` of
null is false. The conversion says that in SQL.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.columns import literal_of
from lakedex.expr.nodes import And, Column, Comparison, IsNull, Literal, Not, Or, Predicate
from lakedex.expr.typed_conditions import Node, TypedConditions, joined, time_literal
from lakedex.expr.types import Kind

__all__ = ["arrow_condition"]


_NAME = "pyarrow expression"


_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


_COMPARISONS = {
    "equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip


_AFFIXES = {"starts_with": ("", "%"), "ends_with": ("%", ""), "match_substring": ("%", "%")}


_MATCH, _SKIP, _EMIT_NULL, _INCONCLUSIVE = range(4)
"""Meanings of null in ``is_in`` (``SetLookupOptions.NullMatchingBehavior``)."""


def arrow_condition(expression: pc.Expression, schema: pa.Schema, *, case_sensitive: bool = False) -> Predicate:
    """The condition that is true for the rows that pyarrow would keep, and false or null as pyarrow has it.

    Args:
        expression: A condition on columns of the table.
        schema: The table's columns, and Hudi's.
        case_sensitive: Whether names that differ in case are different names.

    Raises:
        UnsupportedFeatureError: A part without an exact equal in Spark SQL; the message names it.
        InvalidInputError: A column that the table lacks.
    """
    make = TypedConditions(_NAME, schema, case_sensitive)
    calls = [_Call("")]
    for kind, value in _parts(expression, make):
        here = calls[-1]
        if kind == "call":
            calls.append(_Call(value))
        elif kind == "column":
            here.arguments.append(make.column(*value))
        elif kind == "literal":
            here.arguments.append(_literal(value, make))
        elif kind == "options":
            here.options = value
        else:
            calls.pop()
            calls[-1].arguments.append(_called(here, make))
    return make.condition(calls[0].arguments[0])


@dataclass(slots=True)
class _Call:
    """A call whose parts are being read."""

    name: str
    arguments: list[Node] = field(default_factory=list)
    options: pa.StructScalar | None = None

    def option(self, name: str) -> Any:
        """The value of an option; None without it."""
        return None if self.options is None or name not in self.options else self.options[name]


# ---------------------------------------------------------------------------------------------------- the pickled form


def _parts(expression: pc.Expression, make: TypedConditions) -> Iterator[tuple[str, Any]]:
    """Parts of an expression: a call, its arguments and options, its end."""
    try:
        (packed,) = expression.__reduce__()[1]
        values = pa.ipc.open_file(packed).get_batch(0)
        pairs = _metadata(memoryview(pa.ipc.read_message(packed.slice(8)).metadata))
    except (pa.ArrowException, struct.error, ValueError, TypeError) as error:
        raise make.refused(f"a part that pyarrow {pa.__version__} does not show ({error})") from error
    path: list[str] = []
    left = 1
    for kind, value in pairs:
        if kind == "nested_field_ref":
            left = int(value)
        elif kind == "field_ref":
            path.append(value)
            left -= 1
            if left == 0:
                yield "column", tuple(path)
                path, left = [], 1
        elif kind in ("literal", "options"):
            yield kind, values.column(int(value))[0]
        elif kind in ("call", "end"):
            yield kind, value
        else:
            raise make.refused(f"a part {kind!r}, which is new in pyarrow {pa.__version__}")


def _metadata(message: memoryview) -> list[tuple[str, str]]:
    """Pairs of a schema's metadata in order, keys more than once: a Flatbuffers ``Message`` of a ``Schema``."""

    def number(form: str, place: int) -> int:
        return int(struct.unpack_from(form, message, place)[0])

    def slot(table: int, index: int) -> int:
        """Where a field of a table points to; 0 if it is absent."""
        offsets = table - number("<i", table)
        known = 4 + 2 * index < number("<H", offsets)
        place = number("<H", offsets + 4 + 2 * index) if known else 0
        return table + place + number("<I", table + place) if place else 0

    def text(place: int) -> str:
        return bytes(message[place + 4 : place + 4 + number("<I", place)]).decode()

    schema = slot(number("<I", 0), 2)
    pairs = slot(schema, 2)
    entries = [pairs + 4 + 4 * index for index in range(number("<I", pairs))] if pairs else []
    tables = [entry + number("<I", entry) for entry in entries]
    return [(text(slot(table, 0)), text(slot(table, 1))) for table in tables]


def _literal(scalar: Any, make: TypedConditions) -> Literal:
    if isinstance(scalar, pa.DictionaryScalar | pa.ExtensionScalar):
        raise make.refused(f"a constant of type {scalar.type}")
    if not scalar.is_valid:
        return Literal(None, pa.null())
    if pa.types.is_timestamp(scalar.type):
        found = time_literal(scalar.value, _UNITS[scalar.type.unit], scalar.type.tz)
        if found is None:
            raise make.refused(f"the constant {scalar}, which has nanoseconds")
        return found
    if pa.types.is_date64(scalar.type) or pa.types.is_time(scalar.type) or pa.types.is_duration(scalar.type):
        raise make.refused(f"a constant of type {scalar.type}")
    return literal_of(scalar)


# ----------------------------------------------------------------------------------------------------------- meaning


def _called(call: _Call, make: TypedConditions) -> Node:
    arguments = call.arguments
    if call.name in _COMPARISONS and len(arguments) == 2:
        return _compared(_COMPARISONS[call.name], arguments[0], arguments[1], make)
    if call.name in _AFFIXES and not _truth(call.option("ignore_case")):
        return make.affix(arguments[0], call.option("pattern").as_py(), *_AFFIXES[call.name])
    meaning = _MEANINGS.get(call.name)
    if meaning is None or (call.name in _AFFIXES):
        raise make.refused(f"{call.name}()")
    return meaning(call, make)


def _truth(option: Any) -> bool:
    return option is not None and bool(option.as_py())


def _compared(op: str, left: Node, right: Node, make: TypedConditions) -> Predicate:
    """A comparison in which NaN equals nothing and is not greater than anything, and null makes null."""
    found = make.compared(op, left, right)
    columns = [side for side in (found.left, found.right) if isinstance(side, Column)]
    values = [side.value for side in (found.left, found.right) if isinstance(side, Literal)]
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return _constant(op == "<>", columns)
    floats = [column for column in columns if make.kind(column).is_float]
    numbers = [Comparison("<>", column, Literal(math.nan, column.type)) for column in floats]
    if floats and len(columns) == 2:
        guard = Or((joined(And, *numbers), *map(IsNull, columns)))
        return joined(Or, found, Not(guard)) if op == "<>" else joined(And, found, guard)
    # Spark has NaN above all numbers, and equal to itself.
    is_wrong = op in ((">", ">=") if found.left in columns else ("<", "<="))
    return joined(And, found, *numbers) if floats and is_wrong else found


def _constant(value: bool, columns: list[Column]) -> Predicate:
    """True or false for values, null for null."""
    if not columns:
        return Literal(value, pa.bool_())
    equal = tuple(Comparison("=", column, column) for column in columns)
    return joined(And, *equal) if value else Not(joined(And, *equal))


def _and(call: _Call, make: TypedConditions) -> Predicate:
    return joined(And, *map(make.condition, call.arguments))


def _or(call: _Call, make: TypedConditions) -> Predicate:
    return joined(Or, *map(make.condition, call.arguments))


def _not(call: _Call, make: TypedConditions) -> Predicate:
    return Not(make.condition(call.arguments[0]))


def _is_null(call: _Call, make: TypedConditions) -> Predicate:
    (operand,) = call.arguments
    null = IsNull(operand)
    if not _truth(call.option("nan_is_null")) or not (
        isinstance(operand, Column) and pa.types.is_floating(operand.type)
    ):
        return null
    return joined(Or, null, And((Not(null), _is_nan(call, make))))


def _is_valid(call: _Call, make: TypedConditions) -> Predicate:
    return Not(IsNull(call.arguments[0]))


def _is_nan(call: _Call, make: TypedConditions) -> Predicate:
    operand = make.value(call.arguments[0])
    if not make.kind(operand).is_float:
        raise make.refused(f"is_nan() of a column that is {operand.type}")
    # Spark's isnan has no null; its equality has, and NaN equals itself there.
    return Comparison("=", operand, Literal(math.nan, operand.type))


def _is_in(call: _Call, make: TypedConditions) -> Predicate:
    operand, mode = make.value(call.arguments[0]), call.option("null_matching_behavior")
    values = call.option("value_set")
    if values is None or mode is None or not isinstance(operand, Column):
        raise make.refused("is_in() without a list of values")
    mode, literals = mode.as_py(), [_literal(value, make) for value in values]
    has_null = any(literal.value is None for literal in literals)
    known = [_of_type(literal, operand, make) for literal in literals if literal.value is not None]
    if mode == _INCONCLUSIVE and has_null:
        raise make.refused("is_in() with null in its list that makes null", "leave null out of the list")
    found, null = make.listed(operand, known), IsNull(operand)
    if mode in (_EMIT_NULL, _INCONCLUSIVE):
        return found
    return joined(Or, null, found) if has_null and mode == _MATCH else joined(And, Not(null), found)


def _of_type(literal: Literal, operand: Column, make: TypedConditions) -> Literal:
    """A value of a list, which pyarrow casts to the column's type, and of which it compares the bits."""
    kind, value = make.kind(operand), literal.value
    if not kind.is_float:
        return literal
    if not isinstance(value, float):
        raise make.refused(f"is_in() of column {operand.name!r} with {value!r}", "give floats")
    if value == 0:
        raise make.refused("is_in() of floats with 0.0, which takes -0.0 for another value", "use ==")
    return Literal(float(np.float32(value)) if kind is Kind.FLOAT else value, operand.type)


_MEANINGS: dict[str, Callable[[_Call, TypedConditions], Predicate]] = {
    "and_kleene": _and,
    "or_kleene": _or,
    "invert": _not,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_nan": _is_nan,
    "is_in": _is_in,
}
