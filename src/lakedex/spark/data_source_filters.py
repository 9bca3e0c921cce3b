"""Translate filters of Spark's Python Data Source API (``pyspark.sql.datasource.Filter``) to predicates.

Each filter has an attribute path and a Python value of the column's own type: Catalyst has added its casts, and does
not push a comparison whose column is cast. A value of any other type is therefore not understood, and the filter
becomes :class:`~lakedex.expr.nodes.Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakedex.expr.arithmetic import float32, rescale
from lakedex.expr.like import escaped
from lakedex.expr.literals import local_micros
from lakedex.expr.nodes import Column, Comparison, In, IsNull, Like, Literal, LiteralValue, Not, Predicate, Unknown
from lakedex.expr.types import Kind, NotPrunableError, kind_of, quote_name

__all__ = ["PushedFilter", "column_at", "pushed_predicate"]


PushedFilter = tuple[str, tuple[str, ...], Any]
"""Class name of a filter, its attribute path, its value; ``Not`` has no path, and its value is another such tuple."""


_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


_AFFIXES = {"StringStartsWith": ("", "%"), "StringEndsWith": ("%", ""), "StringContains": ("%", "%")}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_EPOCH_DAY = date(1970, 1, 1).toordinal()


_SHOWN = 80


def pushed_predicate(pushed: PushedFilter, schema: pa.Schema) -> Predicate:
    """The predicate that a pushed filter means; :class:`Unknown` where it has no exact meaning, never an error.

    Args:
        pushed: The filter as plain values.
        schema: The table's columns.
    """
    name, path, value = pushed
    if name == "Not":
        return Not(pushed_predicate(value, schema))
    column: Column | None = None
    try:
        column = column_at(path, schema)
        return _condition(name, column, value)
    except (NotPrunableError, ValueError, TypeError, ArithmeticError):
        text = f"{name}({quote_name(path)}, {value!r})"
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return Unknown(shown, () if column is None else (column,))


def column_at(path: Sequence[str], schema: pa.Schema) -> Column:
    """The column or nested field at ``path``: each part names exactly one field, or the only one but for case.

    Raises:
        NotPrunableError: There is none, or the path goes on inside a column that is not a struct.
    """
    fields: Any = schema
    names: list[str] = []
    found: Any = None
    for part in path:
        if found is not None:
            if not pa.types.is_struct(found.type):
                raise NotPrunableError
            fields = found.type
        exact = [field for field in fields if field.name == part]
        near = exact or [field for field in fields if field.name.lower() == part.lower()]
        if len(near) != 1:
            raise NotPrunableError
        found = near[0]
        names.append(found.name)
    if found is None:
        raise NotPrunableError
    return Column(tuple(names), found.type)


def _condition(name: str, column: Column, value: Any) -> Predicate:
    if name == "IsNull":
        return IsNull(column)
    if name == "IsNotNull":
        return Not(IsNull(column))
    if name in _COMPARISONS:
        return Comparison(_COMPARISONS[name], column, _literal(value, column.type))
    if name == "In":
        values = tuple(dict.fromkeys(_literal(item, column.type) for item in value))
        if not values:
            raise NotPrunableError
        return In(column, values)
    if name in _AFFIXES and kind_of(column.type) is Kind.STRING:
        if value is None:
            return Literal(None, pa.bool_())
        before, after = _AFFIXES[name]
        return Like(column, before + escaped(_text(value)) + after)
    raise NotPrunableError


def _literal(value: Any, data_type: pa.DataType) -> Literal:
    kind = kind_of(data_type)
    if kind is Kind.TIMESTAMP:
        data_type = pa.timestamp("us", "UTC")
    elif kind is Kind.LOCAL:
        data_type = pa.timestamp("us")
    return Literal(None if value is None else _READERS[kind](value, data_type), data_type)


def _boolean(value: Any, _: pa.DataType) -> LiteralValue:
    if not isinstance(value, bool):
        raise NotPrunableError
    return value


def _integer(value: Any, data_type: Any) -> LiteralValue:
    bound = 2 ** (data_type.bit_width - 1)
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        raise NotPrunableError
    return value


def _double(value: Any, _: pa.DataType) -> LiteralValue:
    if not isinstance(value, float):
        raise NotPrunableError
    return value


def _float(value: Any, _: pa.DataType) -> LiteralValue:
    # NaN is the one value that differs from itself.
    if not isinstance(value, float) or (value == value and float32(value) != value):  # noqa: PLR0124
        raise NotPrunableError
    return value


def _decimal(value: Any, data_type: pa.DataType) -> LiteralValue:
    if not isinstance(value, Decimal):
        raise NotPrunableError
    scaled = rescale(value, data_type)
    if scaled != value:
        raise NotPrunableError
    return scaled


def _string(value: Any, _: pa.DataType) -> LiteralValue:
    return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotPrunableError
    value.encode("utf-8")  # half of a surrogate pair is no text: UnicodeEncodeError is a ValueError
    return value


def _binary(value: Any, _: pa.DataType) -> LiteralValue:
    if not isinstance(value, bytes | bytearray):
        raise NotPrunableError
    return bytes(value)


def _day(value: Any, _: pa.DataType) -> LiteralValue:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise NotPrunableError
    return value.toordinal() - _EPOCH_DAY


def _instant(value: Any, _: pa.DataType) -> LiteralValue:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise NotPrunableError
    return (value - _EPOCH) // timedelta(microseconds=1)


def _local(value: Any, _: pa.DataType) -> LiteralValue:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise NotPrunableError
    return local_micros(value)


def _nothing(value: Any, _: pa.DataType) -> LiteralValue:
    raise NotPrunableError


_READERS: dict[Kind, Callable[[Any, pa.DataType], LiteralValue]] = {
    Kind.NULL: _nothing,
    Kind.BOOL: _boolean,
    Kind.INT: _integer,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.STRING: _string,
    Kind.BINARY: _binary,
    Kind.DATE: _day,
    Kind.TIMESTAMP: _instant,
    Kind.LOCAL: _local,
}
