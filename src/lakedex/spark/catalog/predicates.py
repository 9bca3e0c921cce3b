"""Spark's V2 predicates as Spark's own expressions, or not at all; their values are never text that a parser reads.

``DELETE`` runs on these expressions, so there is no nearly: a part that is not listed (``LakedexBridge.catalyst``) is
refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column

from lakedex.spark.catalog.java import JavaSide

__all__ = ["UntoldPredicateError", "bound_condition", "condition_of", "value_of"]

_EPOCH = datetime.datetime(1970, 1, 1)
_PLAIN = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double"})


class UntoldPredicateError(Exception):
    """An expression that is not translated; its text."""


def condition_of(side: JavaSide, predicates: Iterable[Any]) -> Column | None:
    """All predicates together, for a DataFrame with their columns; None for no predicate.

    Raises:
        UntoldPredicateError: names the predicate that has no exact translation.
    """
    found = None
    for predicate in predicates:
        expression = side.bridge.catalyst(predicate)
        if expression is None:
            raise UntoldPredicateError(str(predicate.toString()))
        column = Column(_java_column(side, expression))
        found = column if found is None else found & column
    return found


def _java_column(side: JavaSide, expression: Any) -> Any:
    if side.is_spark_3:
        return side.view.org.apache.spark.sql.Column(expression)
    return side.view.org.apache.spark.sql.classic.ExpressionUtils.column(expression)


def bound_condition(side: JavaSide, predicate: Any, schema: Any) -> Any:
    """A predicate over columns of a Java ``StructType``, as ``Seq[Expression]`` whose columns are known.

    Raises:
        UntoldPredicateError: it has no exact translation.
    """
    column: Any = condition_of(side, [predicate])
    nothing = side.session.createDataFrame(side.view.java.util.ArrayList(), schema)
    analyzed = nothing.filter(column._jc).queryExecution().analyzed()
    return side.utils.toSeq([analyzed.condition()])


def value_of(literal: Any) -> Any:
    """The Python value of a V2 literal. Catalyst keeps days, microseconds and ``UTF8String``.

    Raises:
        UntoldPredicateError: a type or value that Python does not have.
    """
    kind, value = str(literal.dataType().simpleString()), literal.value()
    if value is None or kind in _PLAIN:
        return value
    try:
        if kind == "string":
            return value if isinstance(value, str) else bytes(value.getBytes()).decode()
        if kind.startswith("decimal"):
            return value.toJavaBigDecimal()
        if kind == "binary":
            return bytes(value)
        if kind == "date":
            return (_EPOCH + datetime.timedelta(days=int(value))).date()
        if kind in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + datetime.timedelta(microseconds=int(value))
            return moment.replace(tzinfo=datetime.UTC) if kind == "timestamp" else moment
    except (OverflowError, TypeError, ValueError) as error:
        raise UntoldPredicateError(str(literal.toString())) from error
    raise UntoldPredicateError(f"{literal.toString()} ({kind})")
