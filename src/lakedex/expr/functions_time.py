"""Functions of dates and timestamps: parts, truncation and arithmetic in the proleptic Gregorian calendar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.casts import decimal_seconds
from lakedex.expr.datetime_patterns import formatted, moments_of_text
from lakedex.expr.signatures import Datum, FunctionSpec, Takes, same_as_first
from lakedex.expr.sort_keys import to_micros
from lakedex.expr.text_casts import by_clock
from lakedex.expr.zones import MICROS_PER_DAY, day_starts, instants_of_clock, shown_by_clock
from lakedex.types import IntArray

__all__ = ["DATE_PARTS", "TIME_FUNCTIONS", "TIME_PARTS", "is_unit"]


_LAST_MICRO = 9.2e18


_SECOND, _MINUTE, _HOUR = 1_000_000, 60_000_000, 3_600_000_000


_INT_LIMITS = (-(2**31), 2**31 - 1)


_INSTANT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


def _numbers(values: Datum) -> IntArray:
    return np.array(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)


def _like(found: IntArray, values: Datum, data_type: pa.DataType) -> pa.Array:
    """Array of physical values, null wherever ``values`` is null."""
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(data_type):
        return pa.array(found, pa.int64(), mask=nulls).cast(data_type)
    small = pa.array(np.asarray(found, np.int64), mask=nulls)
    return small.cast(pa.int32()).cast(data_type) if pa.types.is_date32(data_type) else small.cast(data_type)


def _days(dates: Datum) -> IntArray:
    return _numbers(dates.cast(pa.int32()))


def _months_since_1970(days: IntArray) -> IntArray:
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _first_of_month(months: IntArray) -> IntArray:
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _monday(days: IntArray) -> IntArray:
    """Day of the week, 0 for Monday."""
    return (days + 3) % 7


def _day_of_month(days: IntArray) -> IntArray:
    return days - _first_of_month(_months_since_1970(days)) + 1


def _year(days: IntArray) -> IntArray:
    return _months_since_1970(days) // 12 + 1970


def _iso_week_and_year(days: IntArray) -> tuple[IntArray, IntArray]:
    thursday = days - _monday(days) + 3
    year = _year(thursday)
    return (thursday - _first_of_month((year - 1970) * 12)) // 7 + 1, year


DATE_PARTS: dict[str, Callable[[IntArray], IntArray]] = {
    "year": _year,
    "quarter": lambda days: _months_since_1970(days) % 12 // 3 + 1,
    "month": lambda days: _months_since_1970(days) % 12 + 1,
    "day": _day_of_month,
    "dayofweek": lambda days: (days + 4) % 7 + 1,
    "weekday": _monday,
    "dayofyear": lambda days: days - _first_of_month(_months_since_1970(days) // 12 * 12) + 1,
    "weekofyear": lambda days: _iso_week_and_year(days)[0],
    "yearofweek": lambda days: _iso_week_and_year(days)[1],
    "dayofweek_iso": lambda days: _monday(days) + 1,
}


TIME_PARTS: dict[str, Callable[[IntArray], IntArray]] = {
    "hour": lambda micros: micros % MICROS_PER_DAY // _HOUR,
    "minute": lambda micros: micros % _HOUR // _MINUTE,
    "second": lambda micros: micros % _MINUTE // _SECOND,
}


_BY_EXTRACT = ("yearofweek", "dayofweek_iso")


def _date_part(name: str, part: Callable[[IntArray], IntArray]) -> FunctionSpec:
    written = f"extract({name.upper()} FROM {{0}})" if name in _BY_EXTRACT else ""
    return FunctionSpec(
        (Takes.DATE,), pa.int32(), lambda dates: _like(part(_days(dates)), dates, pa.int32()), written=written
    )


def _clock(moments: Datum, timezone: str) -> IntArray:
    """Clock time in microseconds."""
    micros = to_micros(moments)
    return _numbers(micros if moments.type.tz is None else by_clock(micros, timezone))


def _time_part(part: Callable[[IntArray], IntArray]) -> FunctionSpec:
    def compute(moments: Datum, timezone: str) -> pa.Array:
        return _like(part(_clock(moments, timezone)), moments, pa.int32())

    return FunctionSpec((Takes.MOMENT,), pa.int32(), compute, zoned=True)


def _seconds_with_fraction(moments: Datum, timezone: str) -> pa.Array:
    micros = _like(_clock(moments, timezone) % _MINUTE, moments, pa.int64())
    return decimal_seconds(micros).cast(pa.decimal128(8, 6))


# ------------------------------------------------------------------------------------------------------- truncation


def _start_of_units(unit: str) -> Callable[[IntArray], IntArray] | None:
    """Function that maps days to the first day of their week, month, quarter or year."""
    unit = unit.upper()
    if unit == "WEEK":
        return lambda days: days - _monday(days)
    months = {"MONTH": 1, "MM": 1, "MON": 1, "QUARTER": 3, "YEAR": 12, "YYYY": 12, "YY": 12}.get(unit)
    return None if months is None else lambda days: _first_of_month(_months_since_1970(days) // months * months)


def is_unit(unit: str, *, dates: bool) -> bool:
    """Whether ``trunc`` (of dates) or ``date_trunc`` knows the unit; the result is null for other units."""
    short = unit.upper() in (*_SHORT_UNITS, *_CLOCK_UNITS)
    return _start_of_units(unit) is not None or (short and not dates)


def _trunc(dates: Datum, unit: Datum) -> pa.Array:
    start = _start_of_units(unit.as_py())
    if start is None:
        raise InvalidInputError(f"unknown unit {unit.as_py()!r}")
    return _like(start(_days(dates)), dates, pa.date32())


_SHORT_UNITS = {"MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": _SECOND}


_CLOCK_UNITS = {"MINUTE": _MINUTE, "HOUR": _HOUR, "DAY": MICROS_PER_DAY, "DD": MICROS_PER_DAY}


def _date_trunc(moments: Datum, unit: Datum, result: pa.DataType, timezone: str) -> pa.Array:
    unit = unit.as_py().upper()
    micros, zone = _numbers(to_micros(moments)), timezone
    start = _start_of_units(unit)
    if unit in _SHORT_UNITS:
        found = micros - micros % _SHORT_UNITS[unit]
    elif unit in _CLOCK_UNITS:
        clock = shown_by_clock(micros, zone)
        found = _moved(micros, clock - clock % _CLOCK_UNITS[unit], zone)
    elif start is not None:
        found = day_starts(start(shown_by_clock(micros, zone) // MICROS_PER_DAY), zone)
    else:
        raise InvalidInputError(f"unknown unit {unit!r}")
    return _like(found, moments, result)


def _moved(instants: IntArray, clock: IntArray, timezone: str) -> IntArray:
    """Instants of clock times; an ambiguous one keeps the offset of the original instant."""
    same_offset = clock - (shown_by_clock(instants, timezone) - instants)
    valid = shown_by_clock(same_offset, timezone) == clock
    return np.where(valid, same_offset, instants_of_clock(clock, timezone))


# -------------------------------------------------------------------------------------------------------- arithmetic


def _broadcast(values: Datum, rows: int) -> pa.Array:
    return pa.repeat(values, rows) if isinstance(values, pa.Scalar) else values


def _both(first: Datum, second: Datum) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Both arrays, and a copy of the first that is null wherever either is."""
    second = _broadcast(second, len(first))
    return first, second, pc.if_else(second.is_valid(), first, pa.scalar(None, first.type))


def _checked_days(days: IntArray, known: Datum, data_type: pa.DataType) -> pa.Array:
    lost = (days < _INT_LIMITS[0]) | (days > _INT_LIMITS[1])
    if lost[known.is_valid().to_numpy(zero_copy_only=False)].any():
        raise InvalidInputError("the date is out of the range of dates")
    return _like(np.where(lost, 0, days), known, data_type)


def _date_add(sign: int) -> Callable[..., pa.Array]:
    def add(dates: Datum, number: Datum) -> pa.Array:
        dates, number, known = _both(dates, number)
        return _checked_days(_days(dates) + sign * _numbers(number), known, pa.date32())

    return add


def _datediff(end: Datum, start: Datum) -> pa.Array:
    end, start, known = _both(end, start)
    return _checked_days(_days(end) - _days(start), known, pa.int32())


def _plus_months(days: IntArray, number: IntArray) -> IntArray:
    """Add months to days; a day missing from the target month becomes its last day."""
    months = _months_since_1970(days) + number
    last = _first_of_month(months + 1) - 1
    found: IntArray = np.minimum(_first_of_month(months) + _day_of_month(days) - 1, last)
    return found


def _add_months(dates: Datum, number: Datum) -> pa.Array:
    dates, number, known = _both(dates, number)
    return _checked_days(_plus_months(_days(dates), _numbers(number)), known, pa.date32())


def _last_day(dates: Datum) -> pa.Array:
    return _like(_first_of_month(_months_since_1970(_days(dates)) + 1) - 1, dates, pa.date32())


def _plus_interval_months(moments: Datum, number: Datum, result: pa.DataType, timezone: str) -> pa.Array:
    if pa.types.is_date32(moments.type):
        return _add_months(moments, number)
    moments, number, known = _both(moments, number)
    micros = _numbers(to_micros(moments))
    zone = "UTC" if moments.type.tz is None else timezone
    clock = shown_by_clock(micros, zone)
    days = _plus_months(clock // MICROS_PER_DAY, _numbers(number))
    return _like(_moved(micros, days * MICROS_PER_DAY + clock % MICROS_PER_DAY, zone), known, result)


def _plus_interval_micros(moments: Datum, number: Datum, result: pa.DataType, timezone: str) -> pa.Array:
    """Full days of the interval are calendar days, the rest is time."""
    moments, number, known = _both(moments, number)
    micros, change = _numbers(to_micros(moments)), _numbers(number)
    zone = "UTC" if moments.type.tz is None else timezone
    days = (change - np.fmod(change, MICROS_PER_DAY)) // MICROS_PER_DAY
    if np.any(np.abs(micros.astype(np.float64) + change) > _LAST_MICRO):
        raise InvalidInputError("the timestamp is out of the range of timestamps")
    clock = shown_by_clock(micros, zone) + days * MICROS_PER_DAY
    found = np.where(days == 0, micros, _moved(micros, clock, zone)) + np.fmod(change, MICROS_PER_DAY)
    return _like(found, known, result)


def _next_day(dates: Datum, name: Datum) -> pa.Array:
    wanted = _WEEKDAYS.get(name.as_py().strip().upper())
    if wanted is None:
        raise InvalidInputError(f"{name.as_py()!r} is not a day of the week")
    days = _days(dates)
    return _like(days + 1 + (wanted - _monday(days + 1)) % 7, dates, pa.date32())


_WEEKDAYS = {
    name: number
    for number, names in enumerate(
        ("MO MON MONDAY", "TU TUE TUESDAY", "WE WED WEDNESDAY", "TH THU THURSDAY", "FR FRI FRIDAY", "SA SAT SATURDAY",
         "SU SUN SUNDAY")
    )
    for name in names.split()
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ parsing


def _parsed(*, attempt: bool) -> Callable[..., pa.Array]:
    def parse(text: Datum, pattern: Datum, result: pa.DataType, timezone: str) -> pa.Array:
        clock = moments_of_text(text, pattern.as_py(), attempt=attempt)
        micros = _numbers(clock)
        if pa.types.is_date32(result):
            return _like(micros // MICROS_PER_DAY, clock, result)
        return _like(instants_of_clock(micros, timezone), clock, result)

    return parse


def _date_format(moments: Datum, pattern: Datum, timezone: str) -> pa.Array:
    known = to_micros(moments)
    found = formatted(_clock(moments, timezone), pattern.as_py())
    return pc.if_else(known.is_valid(), found, pa.scalar(None, pa.string()))


def _unix_micros(divisor: int) -> Callable[[pa.Array], pa.Array]:
    return lambda moments: _like(_numbers(to_micros(moments)) // divisor, moments, pa.int64())


def _unix_timestamp(moments: Datum) -> pa.Array:
    """Seconds since 1970, rounded towards zero; clock times count as UTC."""
    micros = _numbers(to_micros(moments))
    return _like((micros - np.fmod(micros, _SECOND)) // _SECOND, moments, pa.int64())


def _from_unix(factor: int) -> Callable[[pa.Array], pa.Array]:
    def convert(numbers: Datum) -> pa.Array:
        try:
            return pc.multiply_checked(numbers.cast(pa.int64()), factor).cast(_INSTANT)
        except pa.ArrowInvalid as error:
            raise InvalidInputError("the number is out of the range of timestamps") from error

    return convert


def _timestamp_seconds(numbers: Datum) -> pa.Array:
    """Fractions count: those of decimals exactly, those of doubles cut to microseconds, as in Spark."""
    if pa.types.is_decimal(numbers.type):
        try:
            exact = numbers.cast(pa.decimal256(44, 6))
            micros = pc.multiply(exact, pa.scalar(_SECOND, pa.decimal256(7, 0))).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidInputError("seconds with more than six decimals, or out of the range of timestamps") from error
        return micros.cast(_INSTANT)
    if not pa.types.is_floating(numbers.type):
        return _from_unix(_SECOND)(numbers)
    seconds = numbers.cast(pa.float64())
    micros = pc.trunc(pc.multiply(seconds, float(_SECOND)))
    within = pc.if_else(pc.is_finite(seconds), micros, None)
    low, high = pc.less_equal(within, -(2.0**63)), pc.greater_equal(within, 2.0**63)
    whole = pc.if_else(pc.or_(low, high), 0.0, within).cast(pa.int64())
    return pc.case_when(pc.make_struct(low, high), -(2**63), 2**63 - 1, whole).cast(_INSTANT)


def _own_moment(arguments: Any) -> pa.DataType:
    return _LOCAL if pa.types.is_timestamp(arguments[0].type) and arguments[0].type.tz is None else _INSTANT


_DATE, _MOMENT, _INT, _WORD = Takes.DATE, Takes.MOMENT, Takes.INT, Takes.WORD


_CLOCKED: dict[str, Any] = {"zoned": True, "typed": True}


TIME_FUNCTIONS: dict[str, FunctionSpec] = {
    **{name: _date_part(name, part) for name, part in DATE_PARTS.items()},
    **{name: _time_part(part) for name, part in TIME_PARTS.items()},
    "seconds": FunctionSpec((_MOMENT,), pa.decimal128(8, 6), _seconds_with_fraction, zoned=True,
                            written="extract(SECOND FROM {0})"),
    "trunc": FunctionSpec((_DATE, _WORD), pa.date32(), _trunc),
    "date_trunc": FunctionSpec((Takes.INSTANT, _WORD), _INSTANT, _date_trunc, **_CLOCKED,
                               written="date_trunc({1}, {0})"),
    "date_add": FunctionSpec((_DATE, _INT), pa.date32(), _date_add(1)),
    "date_sub": FunctionSpec((_DATE, _INT), pa.date32(), _date_add(-1)),
    "datediff": FunctionSpec((_DATE, _DATE), pa.int32(), _datediff),
    "add_months": FunctionSpec((_DATE, _INT), pa.date32(), _add_months),
    "last_day": FunctionSpec((_DATE,), pa.date32(), _last_day),
    "next_day": FunctionSpec((_DATE, _WORD), pa.date32(), _next_day),
    "plus_months": FunctionSpec((Takes.ANY, _INT), same_as_first, _plus_interval_months, **_CLOCKED,
                                written="{0} + INTERVAL '{v1}' MONTH"),
    "plus_micros": FunctionSpec((_MOMENT, Takes.LONG), _own_moment, _plus_interval_micros, **_CLOCKED,
                                written="{0} + INTERVAL '{v1}' MICROSECOND"),
    "to_date": FunctionSpec((Takes.TEXT, _WORD), pa.date32(), _parsed(attempt=False), **_CLOCKED),
    "try_to_date": FunctionSpec((Takes.TEXT, _WORD), pa.date32(), _parsed(attempt=True), **_CLOCKED),
    "to_timestamp": FunctionSpec((Takes.TEXT, _WORD), _INSTANT, _parsed(attempt=False), **_CLOCKED),
    "try_to_timestamp": FunctionSpec((Takes.TEXT, _WORD), _INSTANT, _parsed(attempt=True), **_CLOCKED),
    "date_format": FunctionSpec((_MOMENT, _WORD), pa.string(), _date_format, zoned=True),
    "unix_date": FunctionSpec((_DATE,), pa.int32(), lambda dates: dates.cast(pa.int32())),
    "date_from_unix_date": FunctionSpec((_INT,), pa.date32(), lambda days: days.cast(pa.int32()).cast(pa.date32())),
    "unix_micros": FunctionSpec((Takes.INSTANT,), pa.int64(), _unix_micros(1)),
    "unix_millis": FunctionSpec((Takes.INSTANT,), pa.int64(), _unix_micros(1000)),
    "unix_seconds": FunctionSpec((Takes.INSTANT,), pa.int64(), _unix_micros(_SECOND)),
    "unix_timestamp": FunctionSpec((_MOMENT,), pa.int64(), _unix_timestamp),
    "timestamp_micros": FunctionSpec((Takes.LONG,), _INSTANT, _from_unix(1)),
    "timestamp_millis": FunctionSpec((Takes.LONG,), _INSTANT, _from_unix(1000)),
    "timestamp_seconds": FunctionSpec((Takes.NO_TEXT,), _INSTANT, _timestamp_seconds),
}  # fmt: skip
