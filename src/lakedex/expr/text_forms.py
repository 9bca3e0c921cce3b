"""The text of values as Spark's ``CAST(… AS STRING)`` writes it in ANSI mode."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.distinct import per_distinct
from lakedex.expr.keys import to_micros
from lakedex.expr.kinds import Kind, kind_of
from lakedex.expr.zones import MICROS_PER_DAY, shown_by_clock

__all__ = ["by_clock", "clock_text", "float_texts", "texts_of"]

_LONG_FLOAT = {
    Kind.FLOAT: r"^-?0?[.0]*([1-9][.]?([0-9][.]?){6,})",
    Kind.DOUBLE: r"^-?0?[.0]*([1-9][.]?([0-9][.]?){15,})",
}
"""More digits than all decimals of that length keep in a float: from 7, and from 16, on."""
_LEAST_PLAIN, _LEAST_SCIENTIFIC = 1e-3, 1e7
_YEARS = (-719_162, 2_932_896)
"""Days of 0001-01-01 and 9999-12-31."""


def texts_of(values: Any, timezone: str) -> Any:
    """The texts of an array's values.

    Raises:
        UnsupportedFeatureError: Binary that is no UTF-8, a year outside 1 to 9999.
    """
    kind = kind_of(values.type)
    if kind in (Kind.BOOL, Kind.INT):
        return values.cast(pa.string())
    if kind.is_float:
        texts = float_texts(values)
        if pc.any(pc.match_substring_regex(texts, _LONG_FLOAT[kind])).as_py():
            raise UnsupportedFeatureError(
                "Java 17 and later releases write other digits of such a number",
                feature=f"CAST({values.type} AS STRING)",
            )
        return texts
    if kind is Kind.DECIMAL:
        return per_distinct(lambda number: f"{number:f}", pa.string(), values)
    if kind is Kind.BINARY:
        try:
            return values.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise UnsupportedFeatureError(
                "binary that is not UTF-8 has no text outside Spark", feature="CAST(binary AS STRING)"
            ) from error
    if kind is Kind.DATE:
        return _day_texts(values.cast(pa.int32()).cast(pa.int64()))
    micros = to_micros(values)
    if kind is Kind.TIMESTAMP:
        micros = by_clock(micros, timezone)
    return clock_text(micros)


def float_texts(values: Any) -> Any:
    """The fewest digits that tell each number, in the form of Java's ``toString``."""
    single = kind_of(values.type) is Kind.FLOAT
    return per_distinct(lambda number: _float_text(number, single=single), pa.string(), values)


def by_clock(micros: Any, timezone: str) -> Any:
    """What a clock shows at instants, as int64 microseconds; null stays null."""
    known = micros.is_valid()
    shown = shown_by_clock(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), timezone)
    return pc.if_else(known, pa.array(shown, pa.int64()), pa.scalar(None, pa.int64()))


def _day_texts(days: Any) -> Any:
    if pc.any(pc.or_(pc.less(days, _YEARS[0]), pc.greater(days, _YEARS[1]))).as_py():
        raise UnsupportedFeatureError("a year outside 1 to 9999 has no text outside Spark", feature="CAST(… AS STRING)")
    return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())


def clock_text(micros: Any) -> Any:
    """``yyyy-MM-dd HH:mm:ss[.f…]`` of clock times in microseconds, the fraction without trailing zeros."""
    whole = np.array(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), np.int64)
    days, rest = np.divmod(whole, MICROS_PER_DAY)
    dates = _day_texts(pa.array(days))
    seconds = pa.array(rest // 1_000_000, pa.int32()).cast(pa.time32("s")).cast(pa.string())
    fraction = pc.utf8_lpad(pa.array(rest % 1_000_000).cast(pa.string()), 6, "0")
    fraction = pc.utf8_rtrim(pc.binary_join_element_wise(".", fraction, ""), "0")
    fraction = pc.if_else(pc.equal(fraction, "."), "", fraction)
    texts = pc.binary_join_element_wise(pc.binary_join_element_wise(dates, seconds, " "), fraction, "")
    return pc.if_else(micros.is_valid(), texts, pa.scalar(None, pa.string()))


def _float_text(value: float, *, single: bool) -> str:
    """Java's ``Double.toString`` and ``Float.toString``: the fewest digits that tell the value."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    number = Decimal(str(np.float32(value)) if single else repr(value))
    if len(number.normalize().as_tuple().digits) == 1:
        # Of one digit Java makes the nearest two that still tell the value.
        two = Decimal(f"{value:.1e}")
        number = two if (np.float32(two) if single else float(two)) == value else number
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidInputError(f"{value!r} is not a number")
    shown = "".join(map(str, digits)).lstrip("0").rstrip("0")
    point = exponent + len(digits)  # digits before the decimal point
    minus = "-" if sign else ""
    if not shown:
        return minus + "0.0"
    if _LEAST_PLAIN <= abs(value) < _LEAST_SCIENTIFIC:
        whole = shown[:point].ljust(point, "0") if point > 0 else "0"
        return f"{minus}{whole}.{'0' * max(0, -point)}{shown[max(0, point) :] or '0'}"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"
