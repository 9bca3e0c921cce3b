"""Conditions given as Spark Columns, as SQL text that lakedex plans by and that Spark reads with the same meaning.

A classic session analyses the Column against the table's columns, and prints what it made of it. Spark Connect has no
analysed tree at hand; its message is walked, which knows columns, constants and the operators of conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakedex.errors import UnsupportedFeatureError
from lakedex.expr.nodes import Literal
from lakedex.expr.parser import bind
from lakedex.expr.terms import to_sql
from lakedex.expr.types import quote_name
from lakedex.spark.filters import UntranslatablePredicateError, exact_text
from lakedex.spark.jvm import java_names
from lakedex.spark.schema import arrow_to_spark, nullable
from lakedex.spark.session import is_connect
from lakedex.types import SessionRules

__all__ = ["column_sql", "is_column"]


_ADVICE = "write it as SQL text, or use to_df().where(column)"


def is_column(value: object) -> bool:
    """Whether a value is a Column; Connect has a class of its own."""
    return type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark.sql.")


def column_sql(spark: SparkSession, column: Any, schema: pa.Schema, rules: SessionRules) -> str:
    """A condition given as a Column, as SQL text.

    Args:
        spark: The session.
        column: The Column.
        schema: The table's columns, Hudi's included.
        rules: The session's rules.

    Raises:
        UnsupportedFeatureError: A part that cannot be written as SQL with the same meaning; the message names it.
        InvalidInputError: A column that the table lacks.
    """
    text = _of_message(column.to_plan(spark.client)) if is_connect(spark) else _of_tree(spark, column, schema)
    bound = bind(text, schema, rules)
    if bound.unevaluable:
        raise _refused(bound.unevaluable[0])
    return bound.sql


def _refused(part: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"the Column cannot be converted to a condition of a scan: {part:.200}; {_ADVICE}")


# ------------------------------------------------------------------------------------------------------------ classic


_FOREIGN = re.compile(r"UDF|UDAF|Unresolved|Subquery|Exists|^Invoke$|^StaticInvoke$|^ApplyFunctionExpression$|^Alias$")
"""Expressions whose text may name a function that is not Spark's of that name."""


def _of_tree(spark: SparkSession, column: Any, schema: pa.Schema) -> str:
    nothing = spark.createDataFrame([], cast("StructType", nullable(arrow_to_spark(schema))))
    analysed = nothing.filter(column)._jdf.queryExecution().analyzed()
    if analysed.getClass().getSimpleName() != "Filter":
        raise _refused(str(column))
    condition = analysed.condition()
    if not condition.deterministic():
        raise _refused(f"{column} differs from call to call")
    stack = [condition]
    while stack:
        node = stack.pop()
        if _FOREIGN.search(node.getClass().getSimpleName()):
            raise _refused(str(node.toString()))
        children = node.children()
        stack += [children.apply(place) for place in range(children.size())]
    try:
        return exact_text(java_names(spark.sparkContext._gateway), condition)
    except (UntranslatablePredicateError, Py4JError) as error:
        raise _refused(str(column)) from error


# ------------------------------------------------------------------------------------------------------------ Connect


_OPERATORS = {
    "==": "({0} = {1})", "<=>": "({0} <=> {1})", "<": "({0} < {1})", "<=": "({0} <= {1})", ">": "({0} > {1})",
    ">=": "({0} >= {1})", "and": "({0} AND {1})", "or": "({0} OR {1})", "not": "(NOT {0})", "!": "(NOT {0})",
    "isNull": "({0} IS NULL)", "isnull": "({0} IS NULL)", "isNotNull": "({0} IS NOT NULL)",
    "isnotnull": "({0} IS NOT NULL)", "isNaN": "isnan({0})", "isnan": "isnan({0})", "like": "({0} LIKE {1})",
    "startsWith": "startswith({0}, {1})", "startswith": "startswith({0}, {1})", "endsWith": "endswith({0}, {1})",
    "endswith": "endswith({0}, {1})", "contains": "contains({0}, {1})",
}  # fmt: skip


_PART = re.compile(r"`(?:[^`]|``)+`|[^`.]+")


def _of_message(message: Any) -> str:
    """SQL of an expression of Connect's protocol."""
    kind = message.WhichOneof("expr_type")
    if kind == "literal":
        return to_sql(_literal(message.literal))
    if kind == "unresolved_attribute":
        return _attribute(message.unresolved_attribute.unparsed_identifier)
    if kind == "expression_string":
        return f"({message.expression_string.expression}\n)"
    if kind != "unresolved_function":
        raise _refused(f"the part {kind}")
    call = message.unresolved_function
    arguments = [_of_message(argument) for argument in call.arguments]
    if call.is_user_defined_function or call.is_distinct:
        raise _refused(f"the function {call.function_name}")
    if call.function_name == "in" and len(arguments) > 1:
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    form = _OPERATORS.get(call.function_name)
    if form is None or form.count("{") != len(arguments):
        raise _refused(f"the function {call.function_name}")
    return form.format(*arguments)


def _attribute(text: str) -> str:
    parts = _PART.findall(text)
    if ".".join(parts) != text:
        raise _refused(f"the name {text}")
    names = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]
    return quote_name(names)


_LITERALS: dict[str, Callable[[Any], Literal]] = {
    "boolean": lambda value: Literal(value, pa.bool_()),
    "byte": lambda value: Literal(value, pa.int8()),
    "short": lambda value: Literal(value, pa.int16()),
    "integer": lambda value: Literal(value, pa.int32()),
    "long": lambda value: Literal(value, pa.int64()),
    "float": lambda value: Literal(value, pa.float32()),
    "double": lambda value: Literal(value, pa.float64()),
    "string": lambda value: Literal(value, pa.string()),
    "binary": lambda value: Literal(value, pa.binary()),
    "date": lambda value: Literal(value, pa.date32()),
    "timestamp": lambda value: Literal(value, pa.timestamp("us", "UTC")),
    "timestamp_ntz": lambda value: Literal(value, pa.timestamp("us")),
    "decimal": lambda value: _decimal(value),
}


def _literal(message: Any) -> Literal:
    kind = message.WhichOneof("literal_type")
    make = _LITERALS.get(kind)
    if make is None:
        raise _refused("a comparison with null" if kind == "null" else f"a constant of type {kind}")
    return make(getattr(message, kind))


def _decimal(message: Any) -> Literal:
    return Literal(Decimal(message.value), pa.decimal128(message.precision or 38, message.scale))
