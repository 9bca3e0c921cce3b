"""Encode and decode the bounds in column statistics, and shorten bounds of strings outwards.

Bounds are the wrapper records of ``HoodieMetadataColumnStats``. Their form depends on the version of the index
(``version`` in ``index.json``). V1, in tables of versions below 9, takes bounds as Java reads them from Parquet
footers. V2 has primitive wrappers only; ``valueType`` gives their meaning:

    ====================  ==============================  =====================================================
    Arrow type            V1                              V2: wrapper, type ordinal
    ====================  ==============================  =====================================================
    bool                  BooleanWrapper                  BooleanWrapper, 2
    int8, int16, int32    IntWrapper                      IntWrapper, 3
    int64                 LongWrapper                     LongWrapper, 4
    float, double         FloatWrapper, DoubleWrapper     the same, 5 and 6
    string, binary        StringWrapper, BytesWrapper     the same, 7 and 8
    fixed size binary     none                            BytesWrapper, 9
    date32                DateWrapper (days)              IntWrapper, 12
    time32, time64        none                            IntWrapper, 13 (ms); LongWrapper, 14 (us)
    timestamp             LongWrapper, the column's unit  LongWrapper, 15 to 17 (ms, us, ns); without zone 18 to 20
    decimal               DecimalWrapper at scale 15      BytesWrapper at its own scale, 10 with "precision,scale"
    ====================  ==============================  =====================================================

Unscaled decimals are big-endian and as short as possible.
In Hudi: ``HoodieAvroWrapperUtils.wrapValueIntoAvro``, ``ParquetUtils.convertToNativeJavaType``, ``ValueType``,
``ValueMetadata``, ``HoodieTableMetadataUtil.isColumnTypeSupported`` (1.1.1).

Bounds of record keys are valid in two orders: Spark, HFiles and Parquet order strings by UTF-8 bytes (that is by code
point), Java's tagging compares with ``String.compareTo``, by UTF-16 unit. The orders differ only for code points
above U+D7FF, so a bound of lower code points that is valid in one order is valid in both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Literal

import pyarrow as pa

from lakedex.codec.avro import NAMESPACE
from lakedex.errors import InvalidInputError
from lakedex.types import decimal_of

__all__ = [
    "DECIMAL_PRECISION",
    "DECIMAL_SCALE",
    "LAST_COMMON",
    "MAX_BOUND_LENGTH",
    "NO_VALUES",
    "StatValue",
    "StatsVersion",
    "Wrapped",
    "default_stats_version",
    "is_order_safe",
    "key_bounds",
    "lower_bound",
    "rewrap_stat",
    "stats_supported",
    "timestamp_unit",
    "unwrap_stat",
    "upper_bound",
    "value_type",
    "wrap_stat",
]


StatsVersion = Literal["V1", "V2"]
"""``HoodieIndexVersion`` of column stats and partition stats."""


Wrapped = tuple[str, dict[str, Any]]
"""A wrapper as the record codec takes and returns it: full name and ``{"value": ...}``."""


StatValue = bool | int | float | str | bytes | Decimal


DECIMAL_PRECISION = 30


DECIMAL_SCALE = 15


_EPOCH = date(1970, 1, 1)


_EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])


NO_VALUES: Mapping[str, Any] = {"typeOrdinal": 1, "additionalInfo": None}
"""``valueType`` of records of a file without rows (``ValueType.NULL``)."""


_DECIMAL_ORDINAL = 10


# ValueType ordinals of the timestamps, with and without time zone.
_UNITS = {15: "ms", 16: "us", 17: "ns", 18: "ms", 19: "us", 20: "ns"}


def default_stats_version(table_version: int) -> StatsVersion:
    """Version of a new column stats index (``HoodieIndexVersion.getCurrentVersion``)."""
    return "V1" if table_version < 9 else "V2"


def stats_supported(arrow_type: pa.DataType, version: StatsVersion = "V1") -> bool:
    """Whether columns of this type have column statistics.

    In V1, decimals must fit ``decimal(30, 15)`` after rescaling to 15 (``isColumnTypeSupportedV1``).
    """
    if version == "V2":
        return _primitive_of(arrow_type) is not None
    if pa.types.is_decimal128(arrow_type):
        integer_digits = arrow_type.precision - arrow_type.scale
        return bool(0 <= arrow_type.scale <= DECIMAL_SCALE and integer_digits + DECIMAL_SCALE <= DECIMAL_PRECISION)
    return _wrapper_of(arrow_type) is not None


def wrap_stat(value: Any, arrow_type: pa.DataType, version: StatsVersion = "V1") -> Wrapped | None:
    """Encode one bound; None if there is no bound.

    Args:
        value: Physical value: an int for dates (days), times and timestamps (in the column's unit), a Decimal for
            decimals. A date may also be a ``datetime.date``. None and NaN mean that there is no bound.
        arrow_type: Type of the column; :func:`stats_supported` must hold.
        version: The index's version.

    Raises:
        InvalidInputError: The type has no statistics, or the value does not have the type.
    """
    found = _stored_as(arrow_type, version)
    if found is None:
        raise InvalidInputError(f"no column statistics for type {arrow_type}")
    return _wrapped(value, found, arrow_type)


@functools.lru_cache(maxsize=256)
def _stored_as(arrow_type: pa.DataType, version: StatsVersion) -> tuple[str, Callable[[Any], Any]] | None:
    """Wrapper of a type's bounds and the function that encodes a value; None for a type without statistics."""
    if not stats_supported(arrow_type, version):
        return None
    if version == "V2":
        primitive = _primitive_of(arrow_type)
        return None if primitive is None else primitive[1:]
    return _wrapper_of(arrow_type)


def value_type(arrow_type: pa.DataType, version: StatsVersion) -> dict[str, Any] | None:
    """``valueType`` of the records of a column, with or without bounds; None in V1.

    Raises:
        InvalidInputError: The type has no statistics.
    """
    if version == "V1":
        return None
    found = _primitive_of(arrow_type)
    if found is None:
        raise InvalidInputError(f"no column statistics for type {arrow_type}")
    info = f"{arrow_type.precision},{arrow_type.scale}" if found[0] == _DECIMAL_ORDINAL else None
    return {"typeOrdinal": found[0], "additionalInfo": info}


def rewrap_stat(value: StatValue | None, like: Wrapped, kind: Mapping[str, Any] | None) -> Wrapped | None:
    """Encode a value like the bound of another record; None if it cannot be encoded that way.

    Args:
        value: From :func:`unwrap_stat`.
        like: A bound of that record.
        kind: ``valueType`` of that record.
    """
    name = like[0].rpartition(".")[2]
    scale = _decimal_scale(name, kind)
    convert: Callable[[Any], Any] | None = _CONVERTERS.get(name)
    if scale is not None:
        convert = _unscaled_at(scale)
    if convert is None:
        return None
    try:
        return _wrapped(value, (name, convert), name)
    except InvalidInputError:
        return None


def _wrapped(value: Any, found: tuple[str, Callable[[Any], Any]], what: object) -> Wrapped | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    name, convert = found
    try:
        physical = convert(value)
    except (TypeError, ValueError, OverflowError, ArithmeticError) as error:
        raise InvalidInputError(f"{value!r} is not a value of {what}: {error}") from error
    return f"{NAMESPACE}.{name}", {"value": physical}


def unwrap_stat(wrapped: Wrapped | None, value_type: Mapping[str, Any] | None = None) -> StatValue | None:
    """Decode one bound: physical integers for dates, times and timestamps, a Decimal for decimals.

    None means that there is no bound, or that lakedex does not know its type. It never means that the column is all
    null; the counts tell that.

    Args:
        wrapped: ``minValue`` or ``maxValue`` of a decoded record.
        value_type: ``valueType`` of the same record (V2), None or absent in V1.
    """
    if wrapped is None:
        return None
    name = wrapped[0].rpartition(".")[2]
    value = wrapped[1].get("value")
    if name == "DecimalWrapper" or (value_type or {}).get("typeOrdinal") == _DECIMAL_ORDINAL:
        scale = _decimal_scale(name, value_type)
        if scale is None or not isinstance(value, bytes):
            return None
        return decimal_of(int.from_bytes(value, "big", signed=True), scale)
    return value if isinstance(value, bool | int | float | str | bytes) else None


def timestamp_unit(wrapped: Wrapped | None, value_type: Mapping[str, Any] | None = None) -> str | None:
    """Arrow unit of a timestamp bound if the record states it (V2, or TimestampMicrosWrapper), else None.

    A V1 LongWrapper has the unit of the column in the file that the statistics describe.
    """
    if value_type is not None:
        return _UNITS.get(value_type.get("typeOrdinal", -1))
    if wrapped is not None and wrapped[0].endswith("TimestampMicrosWrapper"):
        return "us"
    return None


def _decimal_scale(name: str, kind: Mapping[str, Any] | None) -> int | None:
    """Scale of a decimal bound; None for other bounds, or if the record does not state it."""
    if name == "DecimalWrapper":
        return DECIMAL_SCALE
    if kind is None or kind.get("typeOrdinal") != _DECIMAL_ORDINAL:
        return None
    try:
        return int(str(kind.get("additionalInfo")).split(",")[1])
    except (IndexError, ValueError):
        return None


def _primitive_of(arrow_type: pa.DataType) -> tuple[int, str, Callable[[Any], Any]] | None:
    """V2: type ordinal, wrapper, and the function that encodes a value."""
    if pa.types.is_decimal128(arrow_type):
        return _DECIMAL_ORDINAL, "BytesWrapper", _unscaled_of(arrow_type.precision, arrow_type.scale)
    if pa.types.is_timestamp(arrow_type):
        ordinal = {"ms": 15, "us": 16, "ns": 17}.get(arrow_type.unit)
        if ordinal is None:
            return None
        return ordinal if arrow_type.tz is not None else ordinal + 3, "LongWrapper", _integer(64)
    for test, ordinal, name, convert in _PRIMITIVES:
        if test(arrow_type):
            return ordinal, name, convert
    return None


def _wrapper_of(arrow_type: pa.DataType) -> tuple[str, Callable[[Any], Any]] | None:
    if pa.types.is_decimal128(arrow_type):
        return "DecimalWrapper", _unscaled_of(DECIMAL_PRECISION, DECIMAL_SCALE)
    for test, name, convert in _WRAPPERS:
        if test(arrow_type):
            return name, convert
    return None


def _boolean(value: Any) -> bool:
    # numpy's bool is not a Python bool, and casts from 0 and 1.
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


def _unscaled_at(scale: int) -> Callable[[Any], bytes]:
    def convert(value: Any) -> bytes:
        number = int(_EXACT.scaleb(_EXACT.create_decimal(value), scale).to_integral_exact(context=_EXACT))
        # BigInteger.toByteArray: the fewest bytes for the magnitude and one bit of sign.
        bits = (number if number >= 0 else ~number).bit_length()
        return number.to_bytes(bits // 8 + 1, "big", signed=True)

    return convert


def _unscaled_of(precision: int, scale: int) -> Callable[[Any], bytes]:
    convert = _unscaled_at(scale)

    def checked(value: Any) -> bytes:
        data = convert(value)
        if abs(int.from_bytes(data, "big", signed=True)) >= 10**precision:
            raise OverflowError(f"beyond decimal({precision}, {scale})")
        return data

    return checked


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


_PRIMITIVES: tuple[tuple[Callable[[pa.DataType], bool], int, str, Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, 2, "BooleanWrapper", _boolean),
    (pa.types.is_int8, 3, "IntWrapper", _integer(8)),
    (pa.types.is_int16, 3, "IntWrapper", _integer(16)),
    (pa.types.is_int32, 3, "IntWrapper", _integer(32)),
    (pa.types.is_int64, 4, "LongWrapper", _integer(64)),
    (pa.types.is_float32, 5, "FloatWrapper", float),
    (pa.types.is_float64, 6, "DoubleWrapper", float),
    (pa.types.is_string, 7, "StringWrapper", _text),
    (pa.types.is_large_string, 7, "StringWrapper", _text),
    (pa.types.is_binary, 8, "BytesWrapper", bytes),
    (pa.types.is_large_binary, 8, "BytesWrapper", bytes),
    (pa.types.is_fixed_size_binary, 9, "BytesWrapper", bytes),
    (pa.types.is_date32, 12, "IntWrapper", _days),
    (lambda kind: kind == pa.time32("ms"), 13, "IntWrapper", _integer(32)),
    (lambda kind: kind == pa.time64("us"), 14, "LongWrapper", _integer(64)),
)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "BooleanWrapper": _boolean,
    "IntWrapper": _integer(32),
    "LongWrapper": _integer(64),
    "FloatWrapper": float,
    "DoubleWrapper": float,
    "StringWrapper": _text,
    "BytesWrapper": bytes,
    "DateWrapper": _integer(32),
    "TimeMicrosWrapper": _integer(64),
    "TimestampMicrosWrapper": _integer(64),
    "LocalDateWrapper": _integer(32),
}


LAST_COMMON = "\ud7ff"
"""Last code point up to which UTF-8 and UTF-16 order agree."""


MAX_BOUND_LENGTH = 256
"""Longest bound written, in code points; longer values are shortened outwards."""


def lower_bound(value: str, limit: int = MAX_BOUND_LENGTH) -> str:
    """String not above ``value``, of at most ``limit`` code points."""
    return value[:limit]


def upper_bound(value: str, limit: int = MAX_BOUND_LENGTH) -> str:
    """String not below any string that starts like ``value``'s first ``limit`` code points.

    Returns ``value`` itself if it is short enough or its prefix has no successor.
    """
    if len(value) <= limit:
        return value
    return _successor(value[:limit], "\U0010ffff") or value


def _successor(prefix: str, last: str) -> str:
    """Smallest string above all that start with ``prefix`` (code points up to ``last``); empty if there is none."""
    prefix = prefix.rstrip(last)
    if not prefix:
        return ""
    point = ord(prefix[-1]) + 1
    # UTF-8 cannot encode surrogates.
    if 0xD800 <= point <= 0xDFFF:
        point = 0xE000
    return prefix[:-1] + chr(point)


def is_order_safe(bound: str) -> bool:
    """Whether comparisons with ``bound`` have the same result in both orders."""
    return not bound or max(bound) <= LAST_COMMON


def key_bounds(minimum: str, maximum: str) -> tuple[str, str]:
    """Bounds of record keys that hold in UTF-8 and UTF-16 order.

    Args:
        minimum: Smallest key in UTF-8 order.
        maximum: Largest key in UTF-8 order.

    Returns:
        Lower and upper bound. If keys *start* with both a supplementary character and one of U+E000..U+FFFF, no upper
        bound holds in both orders; the one returned then holds in UTF-8 order, the order of all reads.
    """
    low = lower_bound(_common_prefix(minimum))
    if is_order_safe(maximum):
        high = upper_bound(maximum)
        return low, high if is_order_safe(high) else maximum
    prefix = _common_prefix(maximum)[:MAX_BOUND_LENGTH]
    high = _successor(prefix, LAST_COMMON)
    if high and is_order_safe(high):
        return low, high
    top = "\uffff" if maximum[0] <= "\uffff" else "\U0010ffff"
    return low, top * (len(maximum) - len(maximum.lstrip(top)) + 1)


def _common_prefix(value: str) -> str:
    for position, character in enumerate(value):
        if character > LAST_COMMON:
            return value[:position]
    return value
