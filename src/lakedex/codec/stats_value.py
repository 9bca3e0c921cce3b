"""Minimum and maximum values in column statistics: the wrapper records of ``HoodieMetadataColumnStats``.

Written in the form of index version V1 (table version 8), as Java takes them from parquet footers:

    ==========================  =======================================================
    Arrow type                  wrapper
    ==========================  =======================================================
    bool                        BooleanWrapper
    int8, int16, int32          IntWrapper
    int64, timestamp            LongWrapper (a timestamp as the column's own integer)
    float, double               FloatWrapper, DoubleWrapper
    string, binary              StringWrapper, BytesWrapper
    date32                      DateWrapper (days)
    decimal                     DecimalWrapper (unscaled at scale 15, big-endian, as short as it can be)
    ==========================  =======================================================

Read are V1 and V2 (table version 9): V2 has primitive wrappers only, and ``valueType`` says what they mean.
In Hudi: ``HoodieAvroWrapperUtils.wrapValueIntoAvro``, ``ParquetUtils.convertToNativeJavaType``, ``ValueType`` (1.1.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

from lakedex.codec.avro import NAMESPACE
from lakedex.errors import InvalidInputError

__all__ = ["StatValue", "Wrapped", "stats_supported", "timestamp_unit", "unwrap_stat", "wrap_stat"]

Wrapped = tuple[str, dict[str, Any]]
"""A wrapper as the record codec takes and gives it: full name and ``{"value": ...}``."""

StatValue = bool | int | float | str | bytes | Decimal

DECIMAL_PRECISION = 30
DECIMAL_SCALE = 15

_EPOCH = date(1970, 1, 1)
_EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])
_DECIMAL_ORDINAL = 10
# ValueType ordinals of the timestamps, with and without time zone.
_UNITS = {15: "ms", 16: "us", 17: "ns", 18: "ms", 19: "us", 20: "ns"}


def stats_supported(arrow_type: pa.DataType) -> bool:
    """Whether a column of this type gets column statistics.

    Decimals must fit ``decimal(30, 15)`` once they are at scale 15 (``isColumnTypeSupportedV1``).
    """
    if pa.types.is_decimal128(arrow_type):
        whole_digits = arrow_type.precision - arrow_type.scale
        return bool(0 <= arrow_type.scale <= DECIMAL_SCALE and whole_digits + DECIMAL_SCALE <= DECIMAL_PRECISION)
    return _wrapper_of(arrow_type) is not None


def wrap_stat(value: Any, arrow_type: pa.DataType) -> Wrapped | None:
    """Wrapper of one bound, or None for no bound.

    Args:
        value: Physical value: an int for dates (days) and timestamps (in the column's unit), a Decimal for decimals.
            A date may also be a ``datetime.date``. None and NaN are no bounds.
        arrow_type: Type of the column; :func:`stats_supported` must hold.

    Raises:
        InvalidInputError: A type without statistics, or a value that is not of the type.
    """
    found = _wrapper_of(arrow_type)
    if found is None or not stats_supported(arrow_type):
        raise InvalidInputError(f"no column statistics for type {arrow_type}")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    name, convert = found
    try:
        physical = convert(value)
    except (TypeError, ValueError, OverflowError, ArithmeticError) as error:
        raise InvalidInputError(f"{value!r} is no value of {arrow_type}: {error}") from error
    return f"{NAMESPACE}.{name}", {"value": physical}


def unwrap_stat(wrapped: Wrapped | None, value_type: Mapping[str, Any] | None = None) -> StatValue | None:
    """Value of one bound: physical integers for dates, times and timestamps, a Decimal for decimals.

    None is no bound: either there was none, or it is of a kind that lakedex does not know. It never means that the
    column is all null; that is what the counts say.

    Args:
        wrapped: ``minValue`` or ``maxValue`` of a decoded record.
        value_type: ``valueType`` of the same record (V2), None or absent in V1.
    """
    if wrapped is None:
        return None
    name = wrapped[0].rpartition(".")[2]
    value = wrapped[1].get("value")
    if name == "DecimalWrapper":
        return _from_unscaled(value, DECIMAL_SCALE) if isinstance(value, bytes) else None
    if value_type is not None and value_type.get("typeOrdinal") == _DECIMAL_ORDINAL:
        scale = _scale(value_type.get("additionalInfo"))
        return _from_unscaled(value, scale) if scale is not None and isinstance(value, bytes) else None
    return value if isinstance(value, bool | int | float | str | bytes) else None


def timestamp_unit(wrapped: Wrapped | None, value_type: Mapping[str, Any] | None = None) -> str | None:
    """Arrow unit of a timestamp bound where the record says it (V2, or TimestampMicrosWrapper), else None.

    A V1 LongWrapper has the unit of the column in the file that the statistics are of.
    """
    if value_type is not None:
        return _UNITS.get(value_type.get("typeOrdinal", -1))
    if wrapped is not None and wrapped[0].endswith("TimestampMicrosWrapper"):
        return "us"
    return None


def _wrapper_of(arrow_type: pa.DataType) -> tuple[str, Callable[[Any], Any]] | None:
    if pa.types.is_decimal128(arrow_type):
        return "DecimalWrapper", _to_unscaled
    for test, name, convert in _WRAPPERS:
        if test(arrow_type):
            return name, convert
    return None


def _boolean(value: Any) -> bool:
    # numpy's own bool is no bool; 0 and 1 are what it casts from.
    if value in (True, False):
        return bool(value)
    raise TypeError("not a boolean")


def _integer(bits: int) -> Callable[[Any], int]:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        number = int(value)
        if number != value:
            raise ValueError("not an integer")
        if not -limit <= number < limit:
            raise OverflowError(f"beyond {bits} bits")
        return number

    return convert


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _days(value: Any) -> int:
    return (value - _EPOCH).days if isinstance(value, date) else _integer(32)(value)


def _to_unscaled(value: Any) -> bytes:
    unscaled = int(_EXACT.scaleb(_EXACT.create_decimal(value), DECIMAL_SCALE).to_integral_exact(context=_EXACT))
    if abs(unscaled) >= 10**DECIMAL_PRECISION:
        raise OverflowError(f"beyond decimal({DECIMAL_PRECISION}, {DECIMAL_SCALE})")
    # BigInteger.toByteArray: just enough bytes for the magnitude and one bit of sign.
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _from_unscaled(data: bytes, scale: int) -> Decimal:
    # Built from digits, so the caller's decimal context does not round it.
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((1 if unscaled < 0 else 0, digits, -scale))


def _scale(info: Any) -> int | None:
    """Scale from ``precision,scale``."""
    try:
        return int(str(info).split(",")[1])
    except (IndexError, ValueError):
        return None


_WRAPPERS: tuple[tuple[Callable[[pa.DataType], bool], str, Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, "BooleanWrapper", _boolean),
    (pa.types.is_int8, "IntWrapper", _integer(8)),
    (pa.types.is_int16, "IntWrapper", _integer(16)),
    (pa.types.is_int32, "IntWrapper", _integer(32)),
    (pa.types.is_int64, "LongWrapper", _integer(64)),
    (pa.types.is_timestamp, "LongWrapper", _integer(64)),
    (pa.types.is_float32, "FloatWrapper", float),
    (pa.types.is_float64, "DoubleWrapper", float),
    (pa.types.is_string, "StringWrapper", _text),
    (pa.types.is_large_string, "StringWrapper", _text),
    (pa.types.is_binary, "BytesWrapper", bytes),
    (pa.types.is_large_binary, "BytesWrapper", bytes),
    (pa.types.is_date32, "DateWrapper", _days),
)
