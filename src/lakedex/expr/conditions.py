"""Conditions of every form that a ``where`` takes, as SQL text."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.arrow_conditions import arrow_condition
from lakedex.expr.columns import ColumnExpression, Condition, col
from lakedex.expr.polars_conditions import is_polars_expression, polars_condition
from lakedex.expr.terms import to_spark_sql

__all__ = ["as_sql"]


_OPERATORS: dict[str, Callable[[ColumnExpression, Any], Condition]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": ColumnExpression.isin,
    "not in": lambda column, values: ~column.isin(values),
}


_FORMS = (
    'SQL text ("fare > 12"), col("fare") > 12, a tuple ("fare", ">", 12), a list of tuples, a list of such lists, a '
    "pyarrow or polars expression"
)


def as_sql(where: Any, schema: Callable[[], pa.Schema], *, case_sensitive: bool = False) -> Any:
    """A condition as SQL text; text and None as they are.

    Args:
        where: SQL text; a :class:`~lakedex.expr.columns.Condition`; a tuple (column, operator, value), which means what
            that means as SQL; a list of tuples, all of which are to be true; a list of such lists, one of which is to
            be true, as in pyarrow's ``filters``; an expression of pyarrow or polars.
        schema: Gives the table's columns, and Hudi's.
        case_sensitive: Whether names that differ in case are different names.

    Raises:
        InvalidInputError: Another form, or a column that the table lacks.
        UnsupportedFeatureError: An expression that cannot be converted exactly; the message names the part.
    """
    if where is None or isinstance(where, str):
        return where
    try:
        return _converted(where, schema, case_sensitive)
    except RecursionError as error:
        raise InvalidInputError("the condition is nested too deeply; use a list for many values") from error


def _converted(where: Any, schema: Callable[[], pa.Schema], case_sensitive: bool) -> str:
    if isinstance(where, Condition):
        return where.sql
    if isinstance(where, tuple | list):
        return _of_tuples(where).sql
    if isinstance(where, pc.Expression):
        return to_spark_sql(arrow_condition(where, schema(), case_sensitive=case_sensitive))
    if is_polars_expression(where):
        return to_spark_sql(polars_condition(where, schema(), case_sensitive=case_sensitive))
    raise InvalidInputError(f"{type(where).__name__} is no condition; give {_FORMS}")


def _of_tuples(where: tuple[Any, ...] | list[Any]) -> Condition:
    if isinstance(where, tuple):
        return _compared(where)
    if not where:
        raise InvalidInputError("an empty list is no condition; None stands for all rows")
    if all(isinstance(part, tuple) for part in where):
        return reduce(operator.and_, map(_compared, where))
    if all(isinstance(part, list) for part in where):
        return reduce(operator.or_, map(_of_tuples, where))
    raise InvalidInputError(f"{where!r:.200} is no condition: a list holds tuples (AND), or lists of tuples (OR)")


def _compared(part: Any) -> Condition:
    if not (isinstance(part, tuple) and len(part) == 3 and isinstance(part[0], str)):
        raise InvalidInputError(
            f'{part!r:.200} is no condition: a tuple is (column, operator, value): ("fare", ">", 12)'
        )
    name, word, value = part
    compare = _OPERATORS.get(" ".join(word.lower().split())) if isinstance(word, str) else None
    if compare is None:
        raise InvalidInputError(f"column {name!r}: {word!r} is none of {', '.join(_OPERATORS)}", column=name)
    if compare in (_OPERATORS["in"], _OPERATORS["not in"]):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise InvalidInputError(f"column {name!r} {word} takes a list of values, not {value!r:.100}", column=name)
        value = list(value)
        if any(one is None for one in value):
            raise InvalidInputError(
                f"column {name!r} {word}: null is never equal; leave None out, and use col({name!r}).is_null()",
                column=name,
            )
    return compare(col(name), value)
