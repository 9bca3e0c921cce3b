"""Cast Arrow columns and constants with the meaning of Spark's ANSI mode, its default from version 4 on.

The cast from one kind of type to another is a function in a table. It returns null for values that do not fit;
:func:`cast_array` raises an error for these, or leaves them null for ``TRY_CAST``. In Spark's other mode such values
become null or wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, LakedexError, UnsupportedFeatureError
from lakedex.expr.arithmetic import rescale
from lakedex.expr.distinct import per_distinct
from lakedex.expr.nodes import Literal
from lakedex.expr.sort_keys import literal_array, literals_of, to_micros
from lakedex.expr.text_casts import by_clock, float_texts, texts_of, value_of_text
from lakedex.expr.types import Kind, NotPrunableError, kind_of
from lakedex.expr.zones import MICROS_PER_DAY, day_starts, instants_of_clock

__all__ = ["can_cast", "cast_array", "days_of_micros", "decimal_seconds", "fold_cast"]


_MICROS = 1_000_000


_MILLION, _MILLIONTH = Decimal(1_000_000), Decimal("0.000001")


_PLAIN_INTEGER = r"^-?[0-9]{1,18}$"


_PLAIN_DOUBLE = r"^-?[0-9]{1,200}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,2})?$"


_PLAIN_DATE = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"


_SHOWN = 60


_CastOne = Callable[[Any, Any, str], Any]


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of type ``source`` can be cast to ``target``."""
    pair = (kind_of(source), kind_of(target))
    return pair[0] is Kind.NULL or source == target or pair in _CASTS


def cast_array(values: pa.Array, target: pa.DataType, timezone: str = "UTC", *, attempt: bool = False) -> pa.Array:
    """``CAST(values AS target)``, or ``TRY_CAST`` if ``attempt``.

    Raises:
        InvalidInputError: A value does not fit the target type or cannot be parsed.
        UnsupportedFeatureError: Casts between these types are unsupported.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == target:
        return values
    source, kind = kind_of(values.type), kind_of(target)
    if source is Kind.NULL:
        return pa.nulls(len(values), target)
    function = _CASTS.get((source, kind))
    if function is None:
        raise UnsupportedFeatureError(
            f"cannot cast {values.type} to {target}", feature=f"CAST({values.type} AS {target})"
        )
    try:
        found = function(values, target, timezone)
    except NotPrunableError as error:
        raise UnsupportedFeatureError(
            f"cannot cast {values.type} to {target} outside Spark: {error}", feature=f"CAST({values.type} AS {target})"
        ) from error
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"a value cannot be cast from {values.type} to {target}: {error}") from error
    lost = pc.and_(found.is_null(), values.is_valid())
    if source.is_float and kind is Kind.DECIMAL:
        lost = pc.and_(lost, pc.fill_null(pc.is_finite(values), False))  # Spark casts NaN and infinity to null
    if not attempt and lost.true_count:
        row = pc.index(lost, True).as_py()
        shown = repr(values[row].as_py())[:_SHOWN]
        raise InvalidInputError(
            f"the value {shown} ({values.type}) cannot be cast to {target}; try_cast returns null instead"
        )
    return found


def _same(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    return values.cast(target)


def _where(test: pa.Array, values: pa.Array) -> pa.Array:
    """Values for which a test holds, null for the others."""
    return pc.if_else(test, values, pa.scalar(None, values.type))


def _within_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    limit = 2 ** (target.bit_width - 1)
    kind = values.type
    low, high = (pa.scalar(Decimal(edge) if pa.types.is_decimal(kind) else edge, kind) for edge in (-limit, limit - 1))
    return _where(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)), values).cast(target)


def _integer_to_integer(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    wide = values.cast(pa.int64())
    return wide.cast(target) if target.bit_width >= values.type.bit_width else _within_integer(wide, target)


def _decimal_to_integer(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    return _within_integer(pc.trunc(values.cast(pa.decimal256(76, values.type.scale))), target)


def _float_to_integer(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    limit = 2.0 ** (target.bit_width - 1)
    numbers = pc.trunc(values.cast(pa.float64()))
    if target.bit_width < 64:
        return _where(pc.and_(pc.greater_equal(numbers, -limit), pc.less(numbers, limit)), numbers).cast(target)
    # 2**63 saturates to the greatest long, as Java's comparison accepts it.
    fits = pc.and_(pc.greater_equal(numbers, -limit), pc.less_equal(numbers, limit))
    most = pc.equal(numbers, limit)
    integers = _where(pc.and_not(fits, most), numbers).cast(target)
    return pc.if_else(pc.fill_null(most, False), pa.scalar(2**63 - 1, target), integers)


def _to_float(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    return values.cast(target, safe=False)


def _decimal_to_float(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    # Via text: Arrow's decimal to double may be off by one unit, while its parser is exact like Java's.
    return values.cast(pa.string()).cast(target)


def _to_decimal(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    # Via 256 bits: Arrow's rescaling of 128 bits wraps around silently (99999999999999999999 to scale 28).
    scale = 0 if kind_of(values.type) is Kind.INT else values.type.scale
    wide = values.cast(pa.decimal256(76, scale))
    if scale > target.scale:
        wide = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    limit = pa.scalar(Decimal(10) ** (target.precision - target.scale), pa.decimal256(76, scale))
    fits = pc.less(pc.abs(wide), limit)
    return _where(fits, wide).cast(pa.decimal256(76, target.scale)).cast(target)


def _float_to_decimal(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    return per_distinct(lambda text: _decimal_of(text, target), target, float_texts(values))


def _decimal_of(text: str, target: pa.DataType) -> Decimal | None:
    number = Decimal(text)
    try:
        return rescale(number, target) if number.is_finite() else None
    except NotPrunableError:
        return None


def _to_boolean(values: pa.Array, _: pa.DataType, __: str) -> pa.Array:
    zero = Decimal(0) if pa.types.is_decimal(values.type) else 0
    return pc.not_equal(values, pa.scalar(zero, values.type))


def _boolean_to_number(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    return _CASTS[Kind.INT, kind_of(target)](values.cast(pa.int8()), target, timezone)


def _to_text(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    return texts_of(values, timezone).cast(target)


def _text_to_binary(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    return values.cast(pa.large_binary()).cast(target)


def _from_text(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    """Parse each distinct text once; Arrow parses those in its own format."""
    kind = kind_of(target)
    plain = {Kind.INT: _PLAIN_INTEGER, Kind.DOUBLE: _PLAIN_DOUBLE, Kind.DATE: _PLAIN_DATE}.get(kind)
    if plain is not None and pc.all(pc.match_substring_regex(values, plain)).as_py():
        if kind is Kind.INT:
            return _integer_to_integer(values.cast(pa.int64()), target, timezone)
        return values.cast(target)
    moment = kind in (Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL)
    stored = (pa.int32() if kind is Kind.DATE else pa.int64()) if moment else target
    found = per_distinct(lambda text: value_of_text(text, target, timezone), stored, values)
    if moment:
        found = found.cast(literal_array(Literal(None, target)).type)
    return found.cast(target)


def _number_to_instant(values: pa.Array, target: pa.DataType, _: str) -> pa.Array:
    kind = kind_of(values.type)
    if kind is Kind.INT:
        seconds = values.cast(pa.int64())
        limit = 2**63 // _MICROS
        micros = pc.multiply(pc.max_element_wise(pc.min_element_wise(seconds, limit), -limit - 1), _MICROS)
        micros = pc.if_else(pc.greater(seconds, limit), pa.scalar(2**63 - 1), micros)
        micros = pc.if_else(pc.less(seconds, -limit), pa.scalar(-(2**63)), micros)
    elif kind is Kind.DECIMAL:
        wide = pc.multiply(values.cast(pa.decimal256(68, values.type.scale)), pa.scalar(_MILLION, pa.decimal256(7, 0)))
        micros = _decimal_to_integer(wide, pa.int64(), "")
        if micros.null_count > values.null_count:
            raise NotPrunableError("this number of seconds wraps around in Spark")
    else:
        micros = _float_to_integer(pc.multiply(values.cast(pa.float64()), float(_MICROS)), pa.int64(), "")
    return (
        pc.if_else(values.is_valid(), micros, pa.scalar(None, pa.int64())).cast(pa.timestamp("us", "UTC")).cast(target)
    )


def _instant_to_number(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    micros = to_micros(values)
    if kind_of(target) is Kind.INT:
        below = pc.less(micros, pc.multiply(pc.divide(micros, _MICROS), _MICROS))
        seconds = pc.if_else(below, pc.subtract(pc.divide(micros, _MICROS), 1), pc.divide(micros, _MICROS))
        return _integer_to_integer(seconds, target, timezone)
    if kind_of(target) is Kind.DECIMAL:
        return _to_decimal(decimal_seconds(micros), target, timezone)
    return pc.divide(micros.cast(pa.float64(), safe=False), float(_MICROS)).cast(target, safe=False)


def decimal_seconds(micros: pa.Array) -> pa.Array:
    """Microseconds as seconds in decimals, which are exact."""
    return pc.multiply(micros.cast(pa.decimal128(19, 0)), pa.scalar(_MILLIONTH, pa.decimal128(6, 6)))


def _moment_to_date(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    micros = to_micros(values)
    if kind_of(values.type) is Kind.TIMESTAMP:
        micros = by_clock(micros, timezone)
    return days_of_micros(micros).cast(pa.int32()).cast(target)


def _date_to_moment(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    days = values.cast(pa.int32()).cast(pa.int64())
    if kind_of(target) is Kind.LOCAL:
        return pc.multiply_checked(days, MICROS_PER_DAY).cast(pa.timestamp("us")).cast(target)
    starts = day_starts(pc.fill_null(days, 0).to_numpy(zero_copy_only=False), timezone)
    return _moments(starts, days, pa.timestamp("us", "UTC")).cast(target)


def _local_to_instant(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    micros = to_micros(values)
    instants = instants_of_clock(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), timezone)
    return _moments(instants, micros, pa.timestamp("us", "UTC")).cast(target)


def _instant_to_local(values: pa.Array, target: pa.DataType, timezone: str) -> pa.Array:
    return by_clock(to_micros(values), timezone).cast(pa.timestamp("us")).cast(target)


def _moments(micros: pa.Array, like: pa.Array, data_type: pa.DataType) -> pa.Array:
    found = pa.array(np.asarray(micros, np.int64), mask=like.is_null().to_numpy(zero_copy_only=False))
    return found.cast(data_type)


def days_of_micros(micros: pa.Array) -> pa.Array:
    """Days since 1970, rounded down, of int64 microseconds."""
    days = pc.divide(micros, MICROS_PER_DAY)
    below = pc.less(micros, pc.multiply(days, MICROS_PER_DAY))
    return pc.if_else(below, pc.subtract(days, 1), days)


_NUMBERS = (Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL)


_FLOATS = (Kind.FLOAT, Kind.DOUBLE)


_CASTS: dict[tuple[Kind, Kind], _CastOne] = {
    **{(kind, kind): _same for kind in Kind if kind not in _NUMBERS},
    (Kind.INT, Kind.INT): _integer_to_integer,
    (Kind.DECIMAL, Kind.INT): _decimal_to_integer,
    **{(kind, Kind.INT): _float_to_integer for kind in _FLOATS},
    **{(kind, other): _to_float for kind in (Kind.INT, *_FLOATS) for other in _FLOATS},
    **{(Kind.DECIMAL, kind): _decimal_to_float for kind in _FLOATS},
    **{(kind, Kind.DECIMAL): _to_decimal for kind in (Kind.INT, Kind.DECIMAL)},
    **{(kind, Kind.DECIMAL): _float_to_decimal for kind in _FLOATS},
    **{(kind, Kind.BOOL): _to_boolean for kind in _NUMBERS},
    **{(Kind.BOOL, kind): _boolean_to_number for kind in _NUMBERS},
    **{(kind, Kind.STRING): _to_text for kind in Kind if kind not in (Kind.NULL, Kind.STRING)},
    **{(Kind.STRING, kind): _from_text for kind in Kind if kind not in (Kind.NULL, Kind.STRING, Kind.BINARY)},
    (Kind.STRING, Kind.BINARY): _text_to_binary,
    **{(kind, Kind.TIMESTAMP): _number_to_instant for kind in _NUMBERS},
    **{(Kind.TIMESTAMP, kind): _instant_to_number for kind in _NUMBERS},
    **{(kind, Kind.DATE): _moment_to_date for kind in (Kind.TIMESTAMP, Kind.LOCAL)},
    **{(Kind.DATE, kind): _date_to_moment for kind in (Kind.TIMESTAMP, Kind.LOCAL)},
    (Kind.LOCAL, Kind.TIMESTAMP): _local_to_instant,
    (Kind.TIMESTAMP, Kind.LOCAL): _instant_to_local,
}


# Literals are in microseconds, in whatever unit the column is.
_LITERAL_TYPES: dict[Kind, pa.DataType] = {Kind.TIMESTAMP: pa.timestamp("us", "UTC"), Kind.LOCAL: pa.timestamp("us")}


def fold_cast(literal: Literal, target: pa.DataType, timezone: str) -> Literal:
    """Evaluate ``CAST(literal AS target)`` at parse time.

    Raises:
        NotPrunableError: Spark's two modes differ (overflow, malformed text), or this pair of types is unsupported.
    """
    if literal.value is None or kind_of(target) is Kind.NULL:
        return Literal(literal.value, target if literal.value is None else literal.type)
    source, kind = kind_of(literal.type), kind_of(target)
    target = _LITERAL_TYPES.get(kind, target)
    if source is kind and kind not in (Kind.INT, Kind.DECIMAL):
        return Literal(literal.value, target)
    try:
        found = literals_of(cast_array(literal_array(literal), target, timezone))
    except LakedexError as error:
        raise NotPrunableError from error
    return found[0] if found else Literal(None, target)
