"""Text of literals to values: Spark's string escapes, dates, timestamps and time zones.

House rule: text that Spark reads leniently (``'2024-1'``, ``'2024-01-01 10'``, region ids after a time) is not
guessed here; these functions return None and the predicate stays unjudged.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from lakedex.errors import InvalidInputError

__all__ = [
    "date_days",
    "date_text",
    "day_start_micros",
    "local_day",
    "local_micros",
    "session_zone",
    "timestamp_micros",
    "timestamp_text",
    "unescape",
]

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?(Z|[+-]\d{2}:\d{2})?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_SIMPLE_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)


def unescape(body: str) -> str:
    r"""Resolve backslashes as Spark's ``unescapeSQLString`` does: ``\%`` and ``\_`` stay as they are, for LIKE."""

    def one(match: re.Match[str]) -> str:
        short, long, octal, plain = match.groups()
        if plain is not None:
            return plain_escape(plain)
        return chr(int(octal, 8)) if octal is not None else chr(int(short or long, 16))

    def plain_escape(char: str) -> str:
        return "\\" + char if char in "%_" else _SIMPLE_ESCAPES.get(char, char)

    try:
        text = _ESCAPE.sub(one, body)
        # \ud83d\ude00 is one character in Java: join such pairs, refuse a lone half (no UTF-8 has it).
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except (UnicodeDecodeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"the string literal {body!r} is not valid Unicode text") from error


@lru_cache(maxsize=64)
def session_zone(name: str) -> tzinfo:
    """The zone of a Spark session by its name: a region, ``UTC``, ``Z`` or an offset such as ``+09:00``."""
    if name.upper() in ("UTC", "Z", "GMT", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        sign, hours, minutes = offset.groups()
        delta = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-delta if sign == "-" else delta)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInputError(f"unknown time zone {name!r}: use a name such as 'Asia/Seoul' or '+09:00'") from error


def date_days(text: str) -> int | None:
    """Days since 1970 of ``yyyy-[m]m-[d]d``, else None."""
    match = _DATE.fullmatch(text.strip(" "))
    if match is None:
        return None
    try:
        return date(*(int(part) for part in match.groups())).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def date_text(days: int) -> str | None:
    """ISO text of a day, None outside the years 1 to 9999."""
    try:
        return date.fromordinal(days + _EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        return None


def local_micros(moment: datetime) -> int:
    """Microseconds since 1970 of a local time, as if its clock were UTC."""
    return (moment.replace(tzinfo=UTC, fold=0) - _EPOCH) // _MICRO


def _in_zone(moment: datetime, zone: tzinfo, *, refuse_ambiguous: bool) -> int | None:
    # fold=0 is java.time's rule for both oddities: the earlier offset in an overlap, and in a gap the offset
    # before it (which moves the time later by the length of the gap).
    try:
        first = (moment.replace(tzinfo=zone, fold=0).astimezone(UTC) - _EPOCH) // _MICRO
        if refuse_ambiguous and first != (moment.replace(tzinfo=zone, fold=1).astimezone(UTC) - _EPOCH) // _MICRO:
            return None
    except (ValueError, OverflowError):
        return None
    return first


def timestamp_micros(text: str, zone: tzinfo | None, *, refuse_ambiguous: bool = False) -> int | None:
    """UTC microseconds of a timestamp's text, read in ``zone`` unless it ends in an offset; None when not clean.

    Args:
        text: ``yyyy-[m]m-[d]d[( |T)[h]h:[m]m[:[s]s[.ffffff]][Z|±hh:mm]]``.
        zone: The session's zone; None for a timestamp without zone, where an offset is not clean.
        refuse_ambiguous: Also None for a local time that a clock change makes twofold: Spark prints both alike.
    """
    match = _TIMESTAMP.fullmatch(text.strip(" "))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0").ljust(6, "0")),
        )
    except ValueError:
        return None
    if zone is None:
        return None if offset else local_micros(moment)
    if offset:
        return _in_zone(moment, session_zone(offset), refuse_ambiguous=False)
    return _in_zone(moment, zone, refuse_ambiguous=refuse_ambiguous)


def day_start_micros(days: int, zone: tzinfo) -> int | None:
    """UTC microseconds of a day's midnight in ``zone``: Spark's cast of a date to a timestamp.

    Java's ``atStartOfDay`` takes the end of a gap that swallows midnight, not midnight moved by the gap; the
    two differ only when the gap does not begin at midnight: None then.
    """
    try:
        midnight = datetime.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        return None
    micros = _in_zone(midnight, zone, refuse_ambiguous=False)
    if micros is None:
        return None
    in_a_gap = _shown(micros, zone) != midnight
    if in_a_gap and _shown(micros - 1, zone).date() >= midnight.date():
        return None
    return micros


def _shown(micros: int, zone: tzinfo) -> datetime:
    return (_EPOCH + micros * _MICRO).astimezone(zone).replace(tzinfo=None)


def local_day(micros: int, zone: tzinfo) -> int | None:
    """The date that a clock in ``zone`` shows at an instant: Spark's cast of a timestamp to a date."""
    try:
        return _shown(micros, zone).toordinal() - _EPOCH_DAY
    except (ValueError, OverflowError):
        return None


def timestamp_text(micros: int, *, utc: bool) -> str | None:
    """Text that :func:`timestamp_micros` reads back in any session zone (``utc``) or as a time without zone."""
    try:
        moment = (_EPOCH + micros * _MICRO).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat(sep=" ") + ("Z" if utc else "")
