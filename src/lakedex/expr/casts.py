"""Casts of whole columns with Spark's meaning.

Where Spark's two modes part (null or wrap-around against an error) for a value that is really there, this raises:
a wrong row is worse than no answer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.fold import fold_cast
from lakedex.expr.keys import literal_array, to_micros
from lakedex.expr.kinds import Kind, NotJudgeable, kind_of
from lakedex.expr.literals import session_zone
from lakedex.expr.nodes import Literal

__all__ = ["MICROS_PER_DAY", "cast_array", "days_of_micros"]

MICROS_PER_DAY = 86_400_000_000
_MICRO = timedelta(microseconds=1)


def cast_array(values: Any, target: Any, timezone: str = "UTC") -> Any:
    """``CAST(values AS target)``.

    Raises:
        InvalidInputError: A value that does not fit the target or does not read as one.
        UnsupportedFeatureError: A pair of types that we do not cast.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == target:
        return values
    source, kind = kind_of(values.type), kind_of(target)
    if source is Kind.NULL:
        return pa.nulls(len(values), target)
    try:
        return _cast(values, source, kind, target, timezone)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"a value cannot be cast from {values.type} to {target}: {error}") from error


def _cast(values: Any, source: Kind, kind: Kind, target: pa.DataType, timezone: str) -> Any:
    if source is Kind.STRING and kind is not Kind.STRING:
        return values.cast(target) if kind is Kind.BINARY else _each_distinct(values, target, timezone)
    if kind is Kind.DECIMAL and source in (Kind.INT, Kind.DECIMAL):
        return _to_decimal(values, source, target)
    if kind.is_float and source.is_number:
        # By way of text: Arrow's own decimal to double may be one step off, its parser is exact as Java's is.
        return values.cast(pa.string()).cast(target) if source is Kind.DECIMAL else values.cast(target, safe=False)
    if kind is Kind.INT and source.is_number and source is not Kind.INT:
        return pc.trunc(values).cast(target)
    if kind in (Kind.TIMESTAMP, Kind.LOCAL, Kind.DATE) and source in (Kind.TIMESTAMP, Kind.LOCAL, Kind.DATE):
        return _temporal(values, source, kind, target, timezone)
    printable = kind is Kind.STRING and source in (Kind.BOOL, Kind.INT, Kind.DATE)
    if source is kind or printable or (source is Kind.BOOL and kind is Kind.INT):
        return values.cast(target)
    raise UnsupportedFeatureError(f"cannot cast {values.type} to {target}", feature=f"CAST({values.type} AS {target})")


def _to_decimal(values: Any, source: Kind, target: Any) -> Any:
    # Through 256 bits: Arrow's own rescaling of 128 bits wraps around silently (99999999999999999999 to scale 28).
    scale = 0 if source is Kind.INT else values.type.scale
    wide = values.cast(pa.decimal256(76, scale))
    if scale > target.scale:
        wide = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    return wide.cast(pa.decimal256(76, target.scale)).cast(target)


def _each_distinct(values: Any, target: pa.DataType, timezone: str) -> Any:
    """Text to values: each distinct text once, by the parser's own rules for literals."""
    encoded = pc.dictionary_encode(values)
    mapped = []
    for text in encoded.dictionary.to_pylist():
        try:
            literal = fold_cast(Literal(text.strip(" \t\n\r"), pa.string()), target, timezone)
        except NotJudgeable:
            raise InvalidInputError(f"the text {text!r} cannot be cast to {target}") from None
        mapped.append(literal_array(literal))
    dictionary = pa.concat_arrays(mapped).cast(target) if mapped else pa.array([], target)
    return dictionary.take(encoded.indices)


def _temporal(values: Any, source: Kind, kind: Kind, target: pa.DataType, timezone: str) -> Any:
    if source is kind:
        return values.cast(target)
    if kind is Kind.DATE:
        micros = to_micros(values)
        if source is Kind.TIMESTAMP:
            micros = _local(micros, timezone)
        return days_of_micros(micros).cast(pa.int32()).cast(pa.date32())
    days = values.cast(pa.int32())
    if kind is Kind.LOCAL and source is Kind.DATE:
        micros = pc.multiply_checked(days.cast(pa.int64()), MICROS_PER_DAY)
        return micros.cast(pa.timestamp("us")).cast(target)
    if source is Kind.DATE:
        micros = _instant(pc.multiply_checked(days.cast(pa.int64()), MICROS_PER_DAY), timezone)
        return micros.cast(pa.timestamp("us", "UTC")).cast(target)
    raise UnsupportedFeatureError(f"cannot cast {values.type} to {target}", feature=f"CAST({values.type} AS {target})")


def days_of_micros(micros: Any) -> Any:
    """Whole days, rounded down, of int64 microseconds."""
    days = pc.divide(micros, MICROS_PER_DAY)
    below = pc.less(micros, pc.multiply(days, MICROS_PER_DAY))
    return pc.if_else(below, pc.subtract(days, 1), days)


def _local(micros: Any, timezone: str) -> Any:
    """Clock time of instants, both as int64 microseconds."""
    offset = session_zone(timezone).utcoffset(None)
    if offset is not None:
        return pc.add_checked(micros, offset // _MICRO)
    zoned = micros.cast(pa.timestamp("us", timezone))
    return pc.local_timestamp(zoned).cast(pa.int64())


def _instant(midnights: Any, timezone: str) -> Any:
    """Instants of local midnights: as java.time's ``atStartOfDay``, the end of a gap and the first of two."""
    offset = session_zone(timezone).utcoffset(None)
    if offset is not None:
        return pc.subtract_checked(midnights, offset // _MICRO)
    local = midnights.cast(pa.timestamp("us"))
    return pc.assume_timezone(local, timezone, ambiguous="earliest", nonexistent="latest").cast(pa.int64())
