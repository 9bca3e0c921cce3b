"""Spark's V2 predicates as Spark SQL text with the same meaning, or not at all.

``DELETE`` runs on this text, so there is no nearly: an expression that is not listed is refused.
"""

from __future__ import annotations

import datetime
from typing import Any

__all__ = ["UntoldPredicateError", "literal_text", "predicate_text"]

_BINARY = {"=", "<=>", "<", "<=", ">", ">=", "<>", "AND", "OR", "+", "-", "*", "/", "%"}
_FUNCTIONS = {
    "STARTS_WITH": "startswith",
    "ENDS_WITH": "endswith",
    "CONTAINS": "contains",
    "COALESCE": "coalesce",
    "ABS": "abs",
    "UPPER": "upper",
    "LOWER": "lower",
}
_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_EPOCH = datetime.datetime(1970, 1, 1)


class UntoldPredicateError(Exception):
    """An expression that is not translated; its text."""


def predicate_text(expression: Any) -> str:
    """The text, columns quoted and timestamps in UTC.

    Raises:
        UntoldPredicateError: names the part that has no exact text.
    """
    kind = expression.getClass().getSimpleName()
    if kind == "FieldReference":
        return ".".join("`" + str(part).replace("`", "``") + "`" for part in expression.fieldNames())
    if kind == "LiteralValue":
        return literal_text(expression)
    if kind == "AlwaysTrue":
        return "TRUE"
    if kind == "AlwaysFalse":
        return "FALSE"
    if kind == "Cast":
        inner = predicate_text(expression.expression())
        return f"CAST({inner} AS {expression.dataType().sql()})"
    if kind not in ("Predicate", "GeneralScalarExpression", "And", "Or", "Not"):
        raise UntoldPredicateError(str(expression.toString()))
    name = str(expression.name())
    parts = [predicate_text(child) for child in expression.children()]
    text = _combined(name, parts)
    if text is None:
        raise UntoldPredicateError(str(expression.toString()))
    return text


def _combined(name: str, parts: list[str]) -> str | None:
    if name in _BINARY and len(parts) == 2:
        return f"({parts[0]} {name} {parts[1]})"
    if name == "-" and len(parts) == 1:
        return f"(- {parts[0]})"
    if name == "NOT" and len(parts) == 1:
        return f"(NOT {parts[0]})"
    if name == "IS_NULL":
        return f"({parts[0]} IS NULL)"
    if name == "IS_NOT_NULL":
        return f"({parts[0]} IS NOT NULL)"
    if name == "IN":
        return f"({parts[0]} IN ({', '.join(parts[1:])}))" if len(parts) > 1 else "FALSE"
    if name == "BOOLEAN_EXPRESSION" and len(parts) == 1:
        return parts[0]
    if name in _FUNCTIONS:
        return f"{_FUNCTIONS[name]}({', '.join(parts)})"
    return None


def literal_text(literal: Any) -> str:
    """A literal by its type. Values are as Catalyst keeps them: days, microseconds, ``UTF8String``."""
    kind = str(literal.dataType().simpleString())
    value = literal.value()
    if value is None:
        return f"CAST(NULL AS {literal.dataType().sql()})"
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind in _INTEGERS:
        return f"CAST({int(value)} AS {kind.upper()})"
    if kind == "string":
        return _quoted(str(value) if isinstance(value, str) else str(value.toString()))
    if kind in ("float", "double"):
        return f"CAST('{value!r}' AS {kind.upper()})"
    if kind.startswith("decimal"):
        plain = value if isinstance(value, str) else value.toString()
        return f"CAST('{plain}' AS {kind.upper()})"
    if kind == "binary":
        return f"X'{bytes(value).hex()}'"
    try:
        return _time_text(kind, int(value))
    except (OverflowError, TypeError, ValueError) as error:
        raise UntoldPredicateError(str(literal.toString())) from error


def _time_text(kind: str, value: int) -> str:
    if kind == "date":
        return f"DATE '{(_EPOCH + datetime.timedelta(days=value)).date().isoformat()}'"
    if kind not in ("timestamp", "timestamp_ntz"):
        raise UntoldPredicateError(kind)
    moment = (_EPOCH + datetime.timedelta(microseconds=value)).isoformat(sep=" ")
    return f"TIMESTAMP '{moment}+00:00'" if kind == "timestamp" else f"TIMESTAMP_NTZ '{moment}'"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
