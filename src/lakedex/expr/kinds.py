"""The types that predicates know, and which of their conversions keep the order of values."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pyarrow as pa

__all__ = ["INTEGER_DIGITS", "Kind", "NotJudgeable", "common_decimal", "is_harmless_cast", "kind_of"]

INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Digits of Spark's decimal for an integer type by its bits (DecimalType.forType)."""

_MAX_DIGITS = 38


class NotJudgeable(Exception):
    """The condition is one that we do not judge. Caught where the condition becomes ``Unknown``."""


class Kind(Enum):
    """A class of Arrow types that compare in one way."""

    NULL = "null"
    BOOL = "boolean"
    INT = "integer"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    LOCAL = "timestamp without time zone"

    @property
    def is_number(self) -> bool:
        """Integer, floating point or decimal."""
        return self in (Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)

    @property
    def is_float(self) -> bool:
        """Floating point."""
        return self in (Kind.FLOAT, Kind.DOUBLE)


_TESTS = (
    (pa.types.is_null, Kind.NULL),
    (pa.types.is_boolean, Kind.BOOL),
    (pa.types.is_signed_integer, Kind.INT),
    (pa.types.is_float32, Kind.FLOAT),
    (pa.types.is_float64, Kind.DOUBLE),
    (pa.types.is_date32, Kind.DATE),
    (pa.types.is_string, Kind.STRING),
    (pa.types.is_large_string, Kind.STRING),
    (pa.types.is_string_view, Kind.STRING),
    (pa.types.is_binary, Kind.BINARY),
    (pa.types.is_large_binary, Kind.BINARY),
    (pa.types.is_binary_view, Kind.BINARY),
    (pa.types.is_fixed_size_binary, Kind.BINARY),
)


def kind_of(data_type: pa.DataType) -> Kind:
    """The kind of a type.

    Raises:
        NotJudgeable: Nested types, unsigned integers, nanoseconds, decimals past 38 digits: not Spark's types.
    """
    if pa.types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    if pa.types.is_decimal(data_type):
        if data_type.precision <= _MAX_DIGITS and 0 <= data_type.scale <= data_type.precision:
            return Kind.DECIMAL
    elif pa.types.is_timestamp(data_type):
        if data_type.unit != "ns":
            return Kind.LOCAL if data_type.tz is None else Kind.TIMESTAMP
    else:
        for test, kind in _TESTS:
            if test(data_type):
                return kind
    raise NotJudgeable


def common_decimal(left: Any, right: Any) -> pa.DataType:
    """The decimal that holds both sides exactly; past 38 digits Spark rounds, and we do not judge."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale > _MAX_DIGITS:
        raise NotJudgeable
    return pa.decimal128(max(whole + scale, 1), scale)


def is_harmless_cast(source: Any, target: Any) -> bool:
    """Whether a cast keeps nulls, keeps the order of values (ties allowed) and cannot fail."""
    a, b = kind_of(source), kind_of(target)
    if a is b:
        if a is Kind.INT:
            return bool(source.bit_width <= target.bit_width)
        return a is not Kind.DECIMAL or _fits(source.precision - source.scale, source.scale, target)
    if a is Kind.INT:
        return b.is_float or (b is Kind.DECIMAL and _fits(INTEGER_DIGITS[source.bit_width], 0, target))
    return (a is Kind.FLOAT and b is Kind.DOUBLE) or (a is Kind.DECIMAL and b is Kind.DOUBLE)


def _fits(whole: int, scale: int, target: Any) -> bool:
    return bool(target.precision - target.scale >= whole and target.scale >= scale)
