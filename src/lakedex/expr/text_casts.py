"""Cast values from and to text by the rules of Spark's ``CAST`` in ANSI mode."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.arithmetic import rescale
from lakedex.expr.distinct import per_distinct
from lakedex.expr.literals import OFFSET, date_days, day_number, session_zone, trimmed
from lakedex.expr.nodes import LiteralValue
from lakedex.expr.sort_keys import to_micros
from lakedex.expr.types import Kind, NotPrunableError, kind_of
from lakedex.expr.zones import MICROS_PER_DAY, instants_of_clock, shown_by_clock

__all__ = ["by_clock", "clock_text", "float_texts", "texts_of", "timestamp_micros", "value_of_text"]


_LONG_FLOAT = {
    Kind.FLOAT: r"^-?0?[.0]*([1-9][.]?([0-9][.]?){6,})",
    Kind.DOUBLE: r"^-?0?[.0]*([1-9][.]?([0-9][.]?){15,})",
}
"""Number of digits from which on floats do not preserve all decimals: 7, and 16."""


_LEAST_PLAIN, _LEAST_SCIENTIFIC = 1e-3, 1e7


_YEARS = (-719_162, 2_932_896)
"""Days of 0001-01-01 and 9999-12-31."""


def texts_of(values: pa.Array, timezone: str) -> pa.Array:
    """Texts of the values of an array.

    Raises:
        UnsupportedFeatureError: Binary is not UTF-8, or a year is outside 1 to 9999.
    """
    kind = kind_of(values.type)
    if kind in (Kind.BOOL, Kind.INT):
        return values.cast(pa.string())
    if kind.is_float:
        texts = float_texts(values)
        if pc.any(pc.match_substring_regex(texts, _LONG_FLOAT[kind])).as_py():
            raise UnsupportedFeatureError(
                "Java 17 and later releases write this number with different digits",
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
                "binary that is not UTF-8 can be cast to text in Spark only", feature="CAST(binary AS STRING)"
            ) from error
    if kind is Kind.DATE:
        return _day_texts(values.cast(pa.int32()).cast(pa.int64()))
    micros = to_micros(values)
    if kind is Kind.TIMESTAMP:
        micros = by_clock(micros, timezone)
    return clock_text(micros)


def float_texts(values: pa.Array) -> pa.Array:
    """Shortest decimal texts that identify each number, in the format of Java's ``toString``."""
    single = kind_of(values.type) is Kind.FLOAT
    return per_distinct(lambda number: _float_text(number, single=single), pa.string(), values)


def by_clock(micros: pa.Array, timezone: str) -> pa.Array:
    """Clock times of instants, as int64 microseconds; null stays null."""
    known = micros.is_valid()
    shown = shown_by_clock(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), timezone)
    return pc.if_else(known, pa.array(shown, pa.int64()), pa.scalar(None, pa.int64()))


def _day_texts(days: pa.Array) -> pa.Array:
    if pc.any(pc.or_(pc.less(days, _YEARS[0]), pc.greater(days, _YEARS[1]))).as_py():
        raise UnsupportedFeatureError(
            "years outside 1 to 9999 can be cast to text in Spark only", feature="CAST(… AS STRING)"
        )
    return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())


def clock_text(micros: pa.Array) -> pa.Array:
    """``yyyy-MM-dd HH:mm:ss[.f…]`` of clock times in microseconds, the fraction without trailing zeros."""
    clock = np.array(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), np.int64)
    days, rest = np.divmod(clock, MICROS_PER_DAY)
    dates = _day_texts(pa.array(days))
    seconds = pa.array(rest // 1_000_000, pa.int32()).cast(pa.time32("s")).cast(pa.string())
    fraction = pc.utf8_lpad(pa.array(rest % 1_000_000).cast(pa.string()), 6, "0")
    fraction = pc.utf8_rtrim(pc.binary_join_element_wise(".", fraction, ""), "0")
    fraction = pc.if_else(pc.equal(fraction, "."), "", fraction)
    texts = pc.binary_join_element_wise(pc.binary_join_element_wise(dates, seconds, " "), fraction, "")
    return pc.if_else(micros.is_valid(), texts, pa.scalar(None, pa.string()))


def _float_text(value: float, *, single: bool) -> str:
    """Java's ``Double.toString`` and ``Float.toString``: the fewest digits that identify the value."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    number = Decimal(str(np.float32(value)) if single else repr(value))
    if len(number.normalize().as_tuple().digits) == 1:
        # Java extends one digit to the nearest two that still identify the value.
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
        integer = shown[:point].ljust(point, "0") if point > 0 else "0"
        return f"{minus}{integer}.{'0' * max(0, -point)}{shown[max(0, point) :] or '0'}"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_MICRO = timedelta(microseconds=1)


_FIRST, _LAST = ((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO for year in (2, 9999))
"""Range of clock times that Python's datetime supports in all zones."""


_TIMESTAMP = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*)?)?)?)?)?)?",
    re.DOTALL | re.ASCII,
)


_TIME_ALONE = re.compile(r"(T|\d{1,2}:).*", re.DOTALL | re.ASCII)


_ONE_DIGIT = re.compile(r"([+-])(?:(\d)|(\d{2}):(\d)|(\d):(\d{2}))")


_SHORT_NAMES = re.compile("A[CEGR]T|AST|B[ES]T|C[ANS]T|CTT|E[AC]T|EST|HST|I[ES]T|JST|M[IS]T|N[ES]T|P[LNRS]T|SST|VST")
"""Old names of zones, with meanings of Java's own."""


_INTEGER = re.compile(r"[+-]?\d{1,400}", re.ASCII)


_DECIMAL = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,4})?", re.ASCII)


_FLOAT = re.compile(rf"(?P<number>{_DECIMAL.pattern})[dDfF]?", re.ASCII)


_HEX_FLOAT = re.compile(r"[+-]?0[xX].*p.*", re.DOTALL | re.IGNORECASE)


_LONG_NUMBER = re.compile(r"[+-]?\d{401,}.*", re.DOTALL | re.ASCII)


_NAMED_FLOATS = {"nan": math.nan, **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf)}
_NAMED_FLOATS |= dict.fromkeys(("-inf", "-infinity"), -math.inf)


_TRUTHS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)


def value_of_text(text: str, target: pa.DataType, timezone: str) -> LiteralValue:
    """Parse a text to the physical value of a type; None if Spark cannot parse it.

    Raises:
        NotPrunableError: Spark can parse the text, but lakedex does not support it.
    """
    kind = kind_of(target)
    if kind is Kind.BINARY:
        return text.encode("utf-8")
    if kind is Kind.DATE:
        return date_days(text)
    if kind is Kind.TIMESTAMP:
        return timestamp_micros(text, session_zone(timezone))
    if kind is Kind.LOCAL:
        return timestamp_micros(text, None)
    if kind is Kind.BOOL:
        return _TRUTHS.get(trimmed(text).lower())
    if kind is Kind.INT:
        return _integer(trimmed(text), target.bit_width)
    if kind.is_float:
        return _float(text.strip(_JAVA_BLANKS), target)
    return _decimal(text.strip(_JAVA_BLANKS), target) if kind is Kind.DECIMAL else None


_JAVA_BLANKS = "".join(map(chr, range(33)))


def _integer(text: str, bits: int) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def _float(text: str, target: pa.DataType) -> float | None:
    named = _NAMED_FLOATS.get(text.lower())
    if named is not None:
        return named
    match = _FLOAT.fullmatch(text)
    if match is None:
        if _HEX_FLOAT.fullmatch(text) or _LONG_NUMBER.fullmatch(text):
            raise NotPrunableError(f"unsupported number {text[:40]!r}")
        return None
    if target == pa.float32():
        # Rounded once, from the text: via double it would be rounded twice.
        found: float = pa.array([match["number"].lstrip("+")]).cast(pa.float32())[0].as_py()
        return found
    return float(match["number"])


def _decimal(text: str, target: pa.DataType) -> Decimal | None:
    if _DECIMAL.fullmatch(text) is None:
        if _LONG_NUMBER.fullmatch(text):
            raise NotPrunableError(f"unsupported number {text[:40]!r}…")
        return None
    try:
        return rescale(Decimal(text), target)
    except NotPrunableError:
        return None


def timestamp_micros(text: str, zone: tzinfo | None, *, refuse_ambiguous: bool = False) -> int | None:
    """Parse a timestamp to UTC microseconds, in ``zone`` unless it ends in one; None if Spark cannot parse it.

    Args:
        text: ``[+-]yyyy[-[m]m[-[d]d[( |T)[h]h[:[m]m[:[s]s[.f…][zone]]]]]]``.
        zone: The session's zone; None for a timestamp without zone, which ignores the zone in the text.
        refuse_ambiguous: Return None for a local time that a clock change repeats, as Spark prints both alike.

    Raises:
        NotPrunableError: The text is a time without a day.
    """
    text = trimmed(text)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        if _TIME_ALONE.fullmatch(text):
            raise NotPrunableError("a time without a day depends on the day of the query")
        return None
    sign, year, month, day, hour, minute, second, fraction, written = match.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    days = day_number(int(sign + year), int(month or 1), int(day or 1))
    if days is None or clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    micros = days * MICROS_PER_DAY + ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1_000_000
    micros += int((fraction or "")[:6].ljust(6, "0"))
    if written:
        own = _written_zone(written.strip(" "))
        if own is None:
            return None
        zone, refuse_ambiguous = (None if zone is None else own), False
    if zone is None:
        return micros
    fixed = zone.utcoffset(None)
    if fixed is not None:
        return micros - fixed // _MICRO
    return _in_zone(micros, zone, refuse_ambiguous=refuse_ambiguous)


def _in_zone(clock: int, zone: tzinfo, *, refuse_ambiguous: bool) -> int | None:
    if not _FIRST <= clock <= _LAST:
        return int(instants_of_clock(np.array([clock], np.int64), str(zone))[0])
    # fold=0 is java.time's rule for both oddities: the earlier offset in an overlap, and in a gap the offset
    # before it (which moves the time later by the length of the gap).
    moment = _EPOCH.replace(tzinfo=None) + clock * _MICRO
    first, second = ((moment.replace(tzinfo=zone, fold=f).astimezone(UTC) - _EPOCH) // _MICRO for f in (0, 1))
    return None if refuse_ambiguous and first != second else first


def _written_zone(name: str) -> tzinfo | None:
    """Time zone at the end of a text, as Spark's ``getZoneId`` parses it; None if it cannot."""
    if _SHORT_NAMES.fullmatch(name):
        raise NotPrunableError(f"the zone {name} has several meanings")
    match = _ONE_DIGIT.fullmatch(name)
    if match:
        sign, hour, hours, minute, short, minutes = match.groups()
        name = f"{sign}{hour or hours or short:0>2}:{minutes or (minute or '0').rjust(2, '0')}"
    offset = OFFSET.fullmatch(name)
    if offset and (int(offset[2]) * 60 + int(offset[3] or 0) > 18 * 60 or int(offset[3] or 0) > 59):
        return None
    try:
        return session_zone(name)
    except InvalidInputError:
        return None
