"""Bound predicates: a condition with its columns, terms and SQL text, each derived once.

Memory: a few lists per condition, and its text; a task that gets one derives them again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakedex.expr.arithmetic import exact_decimal
from lakedex.expr.casts import fold_cast
from lakedex.expr.functions import FUNCTIONS
from lakedex.expr.literals import date_text, timestamp_text, unescape
from lakedex.expr.nodes import (
    And,
    Arithmetic,
    Case,
    Cast,
    Column,
    Comparison,
    Function,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Not,
    Or,
    Predicate,
    Scalar,
    Truth,
    Unknown,
    all_of,
    is_predicate,
)
from lakedex.expr.types import Kind, NotPrunableError, is_harmless_cast, kind_of, quote_name

__all__ = [
    "BoundPredicate",
    "children_of",
    "columns_of",
    "depends_on_zone",
    "equality_values",
    "is_constant",
    "to_spark_sql",
    "to_sql",
    "to_text",
    "unknown_conditions",
    "unknown_texts",
]


_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?P<body>(?:\\.|[^'\\])*)'", re.DOTALL)


_NUMBER = re.compile(
    _QUOTED.pattern
    + r"|CAST\((?P<float>-?[0-9.]+(?:e[+-]?[0-9]+)?)D AS FLOAT\)"
    + r"|(?<![\w.])(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?)(?:D|BD|[LSY])\b",
    re.DOTALL,
)
"""Quoted text, and a number with the suffix that says its type."""


_EXACT_DOUBLE = 2**53


_SHOWN = 100
"""Values of a list that are shown."""


_SQL_TYPES = {
    Kind.BOOL: "BOOLEAN",
    Kind.FLOAT: "FLOAT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "STRING",
    Kind.BINARY: "BINARY",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.LOCAL: "TIMESTAMP_NTZ",
    Kind.NULL: "VOID",
}


_INTEGERS = {8: ("TINYINT", "Y"), 16: ("SMALLINT", "S"), 32: ("INT", ""), 64: ("BIGINT", "L")}


@dataclass(frozen=True)
class BoundPredicate:
    """A predicate on a table's columns, with all that indexes and readers derive from it. Pickles without that.

    Attributes:
        predicate: From the parser: its columns carry the types of the schema, its casts the zone of the session.
    """

    predicate: Predicate

    def __getstate__(self) -> dict[str, Predicate]:
        """The predicate alone."""
        return {"predicate": self.predicate}

    @classmethod
    def of(cls, *predicates: Predicate | None) -> BoundPredicate | None:
        """All of the given predicates together; None where none is given."""
        found = all_of([predicate for predicate in predicates if predicate is not None])
        return None if found is None else cls(found)

    @cached_property
    def operands(self) -> tuple[BoundPredicate, ...]:
        """The conditions that AND, OR, NOT or IS NULL is made of; none for others."""
        node = self.predicate
        if isinstance(node, And | Or):
            return tuple(map(BoundPredicate, node.operands))
        if isinstance(node, Not) or (isinstance(node, IsNull) and is_predicate(node.operand)):
            return (BoundPredicate(node.operand),)  # type: ignore[arg-type]
        return ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Its columns, each once, in order."""
        if self.operands:
            return tuple(dict.fromkeys(column for operand in self.operands for column in operand.columns))
        return tuple(columns_of(self.predicate))

    @cached_property
    def column_names(self) -> frozenset[str]:
        """Names of the top-level columns that its columns are, or are part of."""
        return frozenset(column.path[0] for column in self.columns)

    @cached_property
    def terms(self) -> tuple[BoundPredicate, ...]:
        """The conditions that AND, OR and NOT put together."""
        node = self.predicate.operand if isinstance(self.predicate, Not) else self.predicate
        return tuple(t for operand in self.operands for t in operand.terms) if isinstance(node, And | Or) else (self,)

    @cached_property
    def is_prunable(self) -> bool:
        """Whether bounds of its columns can rule it out (:func:`is_prunable`)."""
        return is_prunable(self.predicate)

    @cached_property
    def prunable_terms(self) -> tuple[BoundPredicate, ...]:
        """The terms that bounds of their columns can rule out."""
        return tuple(term for term in self.terms if term.is_prunable)

    @cached_property
    def unevaluable(self) -> tuple[str, ...]:
        """SQL texts of the conditions in it that only Spark can evaluate."""
        return tuple(unknown_texts(self.predicate))

    @cached_property
    def depends_on_zone(self) -> bool:
        """Whether the session's zone decides it (:func:`depends_on_zone`)."""
        return depends_on_zone(self.predicate)

    @cached_property
    def sql(self) -> str:
        """SQL that means the same under all settings of Spark's parser (:func:`to_spark_sql`)."""
        return to_spark_sql(self.predicate)

    @cached_property
    def text(self) -> str:
        """SQL as plans show it (:func:`to_text`)."""
        return to_text(self.predicate)

    def texts_on(self, names: Collection[str]) -> tuple[str, ...]:
        """Texts of the prunable terms that speak of one of some columns, by their dotted names."""
        found = (t.text for t in self.prunable_terms if any(column.name in names for column in t.columns))
        return tuple(dict.fromkeys(found))


def children_of(node: Predicate | Scalar) -> tuple[Predicate | Scalar, ...]:
    """The nodes directly below a node."""
    if isinstance(node, And | Or):
        return node.operands
    if isinstance(node, Not | IsNull | Like | Cast | Truth):
        return (node.operand,)
    if isinstance(node, Comparison | Arithmetic):
        return (node.left, node.right)
    if isinstance(node, In):
        return (node.operand, *node.values)
    if isinstance(node, Function):
        return node.arguments
    if isinstance(node, Case):
        return (*(child for branch in node.branches for child in branch), node.otherwise)
    return node.columns if isinstance(node, Unknown) else ()


def columns_of(node: Predicate | Scalar) -> list[Column]:
    """The columns below a node, each once, in order."""
    found: dict[Column, None] = {}
    stack: list[Predicate | Scalar] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Column):
            found[here] = None
        stack.extend([here.operand] if isinstance(here, In) else reversed(children_of(here)))
    return list(found)


def is_constant(node: Predicate | Scalar) -> bool:
    """Whether a node has no column below it."""
    if isinstance(node, In):
        return is_constant(node.operand)
    return not isinstance(node, Column) and all(map(is_constant, children_of(node)))


def unknown_texts(node: Predicate | Scalar) -> list[str]:
    """The SQL texts of the conditions that only Spark can evaluate."""
    return [unknown.text for unknown in unknown_conditions(node)]


def unknown_conditions(node: Predicate | Scalar) -> list[Unknown]:
    """The conditions that only Spark can evaluate."""
    if isinstance(node, Unknown):
        return [node]
    if isinstance(node, In):
        return unknown_conditions(node.operand)
    return [found for child in children_of(node) for found in unknown_conditions(child)]


def depends_on_zone(node: Predicate | Scalar) -> bool:
    """Whether the session's zone decides: a cast between a timestamp and a date, local time or text; a clock.

    A filter that Spark prints does not tell the zone of its casts.
    """
    if isinstance(node, Cast):
        kinds = {kind_of(node.operand.type), kind_of(node.type)}
        if Kind.TIMESTAMP in kinds and kinds & {Kind.DATE, Kind.LOCAL, Kind.STRING}:
            return True
    if isinstance(node, Function) and FUNCTIONS[node.name].zoned:
        types = (node.type, *(argument.type for argument in node.arguments))
        if any(pa.types.is_timestamp(t) and t.tz is not None for t in types) or node.name.endswith("to_date"):
            return True
    return any(depends_on_zone(child) for child in children_of(node))


def is_prunable(term: Predicate) -> bool:
    """Whether bounds of a term's columns can rule it out: no function of a column, no cast that may fail."""
    if isinstance(term, Unknown):
        return False
    if isinstance(term, Not):
        return is_prunable(term.operand)
    if isinstance(term, And | Or):
        return all(is_prunable(operand) for operand in term.operands)
    if isinstance(term, Comparison):
        return _is_plain(term.left) and _is_plain(term.right)
    if isinstance(term, IsNull) and is_predicate(term.operand):
        return is_prunable(term.operand)  # type: ignore[arg-type]
    return isinstance(term, Literal) or _is_plain(term.operand)  # type: ignore[arg-type]


def _is_plain(scalar: Scalar) -> bool:
    if isinstance(scalar, Cast) and isinstance(scalar.operand, Cast | Column):
        return _is_plain(scalar.operand) and _keeps_bounds(scalar.operand.type, scalar.type)
    return isinstance(scalar, Column) or is_constant(scalar)


_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL)


def _keeps_bounds(source: pa.DataType, target: pa.DataType) -> bool:
    try:
        return is_harmless_cast(source, target) or (kind_of(source) in _MOMENTS and kind_of(target) in _MOMENTS)
    except NotPrunableError:
        return False


def equality_values(predicate: Predicate, column_name: str) -> list[LiteralValue] | None:
    """The values that a column must have for the predicate to be true.

    Args:
        predicate: From the parser.
        column_name: A column by its dotted name in the schema's spelling.

    Returns:
        Values of the column's type (physical, as in :class:`Literal`), without null, each once; an empty list when no
        value will do; None when the predicate does not tie the column to a list of values.
    """
    found = _equal_to(predicate, column_name)
    return None if found is None else list(found)


def _equal_to(node: Predicate, name: str) -> dict[LiteralValue, None] | None:
    if isinstance(node, And):
        known = [found for operand in node.operands if (found := _equal_to(operand, name)) is not None]
        return {v: None for v in known[0] if all(v in other for other in known[1:])} if known else None
    if isinstance(node, Or):
        each = [_equal_to(operand, name) for operand in node.operands]
        return None if None in each else {v: None for found in each if found for v in found}
    if isinstance(node, Literal):
        return None if node.value is True else {}
    if isinstance(node, In):
        return _values_for(node.operand, node.values, name)
    if isinstance(node, Comparison) and node.op in ("=", "<=>"):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(other, Literal) and (node.op == "=" or other.value is not None):
                found = _values_for(one, (other,), name)
                if found is not None:
                    return found
    return None


def _values_for(operand: Scalar, values: Sequence[Literal], name: str) -> dict[LiteralValue, None] | None:
    column = operand.operand if isinstance(operand, Cast) else operand
    if not isinstance(column, Column) or column.name != name:
        return None
    kept: dict[LiteralValue, None] = {}
    for literal in values:
        if literal.value is None:
            continue
        if isinstance(operand, Cast):
            try:
                back = fold_cast(literal, column.type, operand.timezone)
                again = fold_cast(back, operand.type, operand.timezone)
            except NotPrunableError:
                return None
            if not _is_one_to_one(column.type, operand.type, literal.value):
                return None
            if again.value != literal.value:
                continue  # no value of the column's type equals it
            literal = back
        if isinstance(literal.value, float) and (math.isnan(literal.value) or literal.value == 0):
            return None  # one value in Spark's eyes, several bit patterns to a hash
        kept[literal.value] = None
    return kept


def _is_one_to_one(source: pa.DataType, target: pa.DataType, value: LiteralValue) -> bool:
    a, b = kind_of(source), kind_of(target)
    if a is Kind.INT and b.is_float:
        return isinstance(value, float) and abs(value) < _EXACT_DOUBLE and b is Kind.DOUBLE
    exact = {Kind.INT: (Kind.INT, Kind.DECIMAL), Kind.DECIMAL: (Kind.DECIMAL,), Kind.FLOAT: (Kind.DOUBLE,)}
    return b in exact.get(a, ())


def to_sql(node: Predicate | Scalar) -> str:
    """Readable Spark SQL, which :func:`~lakedex.expr.parse_predicate` reads back to the same meaning."""
    if isinstance(node, Unknown):
        return node.text
    if isinstance(node, And | Or):
        word = " AND " if isinstance(node, And) else " OR "
        return word.join(f"({to_sql(o)})" if isinstance(o, And | Or) else to_sql(o) for o in node.operands)
    if isinstance(node, Not):
        return _negated(node.operand)
    if isinstance(node, IsNull):
        return f"{_inner(node.operand)} IS NULL"
    if isinstance(node, Comparison):
        return f"{_inner(node.left)} {node.op} {_inner(node.right)}"
    if isinstance(node, In):
        return f"{_inner(node.operand)} IN ({', '.join(to_sql(v) for v in node.values)})"
    if isinstance(node, Like):
        escape = "" if node.escape == "\\" else f" ESCAPE {_quoted(node.escape)}"
        return f"{_inner(node.operand)} LIKE {_quoted(node.pattern)}{escape}"
    return _scalar_sql(node)


def to_spark_sql(node: Predicate) -> str:
    """SQL that means the same under all settings of Spark's parser.

    Settings give backslashes another meaning in a string, and put other text in the place of ``${name}``: strings with
    such characters are hex.
    """
    return _QUOTED.sub(_hexed, to_sql(node))


def _hexed(quoted: re.Match[str]) -> str:
    body = quoted["body"]
    if body is None or not set(body) & {"\\", "$"}:
        return quoted[0]
    return f"CAST(X'{unescape(body).encode().hex()}' AS STRING)"


def to_text(node: Predicate | Scalar) -> str:
    """SQL as plans show it, numbers as people write them and long lists cut short: it is not to be read back."""
    return _NUMBER.sub(_plain_number, to_sql(_shortened(node)))


def _plain_number(found: re.Match[str]) -> str:
    """``12.0D`` as ``12``; quoted text stays."""
    number = found["float"] or found["number"]
    return found[0] if number is None else number.removesuffix(".0")


def _shortened(node: Any) -> Any:
    if isinstance(node, And | Or):
        return type(node)(tuple(_shortened(operand) for operand in node.operands))
    if isinstance(node, Not):
        return Not(_shortened(node.operand))
    if isinstance(node, In) and len(node.values) > _SHOWN:
        first = ", ".join(to_sql(value) for value in node.values[:3])
        return Unknown(f"{_inner(node.operand)} IN ({first}, … {len(node.values) - 3:,} more)")
    return node


def _scalar_sql(node: Scalar) -> str:
    if isinstance(node, Column):
        return quote_name(node.path)
    if isinstance(node, Literal):
        return _literal_sql(node)
    if isinstance(node, Cast):
        word = "TRY_CAST" if node.attempt else "CAST"
        return f"{word}({to_sql(node.operand)} AS {_sql_type(node.type)})"
    if isinstance(node, Arithmetic):
        sides = _exact(node.left), _exact(node.right)
        return f"pmod({', '.join(sides)})" if node.op == "pmod" else f"{sides[0]} {node.op} {sides[1]}"
    if isinstance(node, Function):
        return _function_sql(node)
    if isinstance(node, Truth):
        return f"({to_sql(node.operand)})"
    branches = " ".join(f"WHEN {to_sql(condition)} THEN {to_sql(value)}" for condition, value in node.branches)
    return f"CASE {branches} ELSE {to_sql(node.otherwise)} END"


def _function_sql(node: Function) -> str:
    written = FUNCTIONS[node.name].written or node.name
    if "{" not in written:
        return f"{written}({', '.join(_typed(a) or to_sql(a) for a in node.arguments)})"
    values = [a.value if isinstance(a, Literal) else None for a in node.arguments]
    names = [quote_name((value,)) if isinstance(value, str) else value for value in values]
    return written.format(*(_exact(a) for a in node.arguments), **{f"v{n}": name for n, name in enumerate(names)})


def _negated(operand: Predicate) -> str:
    text = to_sql(operand)
    if isinstance(operand, IsNull):
        return text.removesuffix("IS NULL") + "IS NOT NULL"
    if isinstance(operand, In):
        return f"{_inner(operand.operand)} NOT" + text.removeprefix(_inner(operand.operand))
    if isinstance(operand, Like):
        return f"{_inner(operand.operand)} NOT" + text.removeprefix(_inner(operand.operand))
    return f"NOT ({text})"


def _inner(node: Predicate | Scalar) -> str:
    text = to_sql(node)
    return text if isinstance(node, Column | Literal | Cast | Case | Truth) or _is_call(node) else f"({text})"


def _typed(node: Scalar) -> str:
    """A decimal literal whose type is not that of its digits: a calculation's type follows from it."""
    if (
        not isinstance(node, Literal)
        or not isinstance(node.value, Decimal)
        or exact_decimal(node.value).type == node.type
    ):
        return ""
    return f"CAST({_literal_sql(node)} AS {_sql_type(node.type)})"


def _exact(node: Scalar) -> str:
    return _typed(node) or _inner(node)


def _is_call(node: Predicate | Scalar) -> bool:
    return isinstance(node, Function) and "{" not in FUNCTIONS[node.name].written


def _sql_type(data_type: pa.DataType) -> str:
    kind = kind_of(data_type)
    if kind is Kind.INT:
        return _INTEGERS[data_type.bit_width][0]
    if kind is Kind.DECIMAL:
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    return _SQL_TYPES[kind]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _literal_sql(literal: Literal) -> str:
    value, kind = literal.value, kind_of(literal.type)
    if value is None:
        return "NULL" if kind is Kind.NULL else f"CAST(NULL AS {_sql_type(literal.type)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, float):
        return _float_sql(value, kind)
    if kind is Kind.INT:
        return f"{value}{_INTEGERS[literal.type.bit_width][1]}"
    return _temporal_sql(value, kind)


def _float_sql(value: float, kind: Kind) -> str:
    name = _SQL_TYPES[kind]
    if not math.isfinite(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{text}' AS {name})"
    return f"{value!r}D" if kind is Kind.DOUBLE else f"CAST({value!r}D AS FLOAT)"


def _temporal_sql(value: int, kind: Kind) -> str:
    if kind is Kind.DATE:
        text = date_text(value)
    else:
        text = timestamp_text(value, utc=kind is Kind.TIMESTAMP)
    if text is None and kind is not Kind.LOCAL:  # a year that no literal has
        return f"date_from_unix_date({value})" if kind is Kind.DATE else f"timestamp_micros({value}L)"
    return f"{_SQL_TYPES[kind]} '{text if text is not None else value}'"
