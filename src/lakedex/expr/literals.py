"""Parse texts as Spark's casts do: string escapes, dates, timestamps, numbers and time zones.

Functions return None for texts that Spark cannot parse.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from lakedex.errors import InvalidInputError

__all__ = [
    "OFFSET",
    "date_days",
    "date_text",
    "day_number",
    "local_micros",
    "session_zone",
    "timestamp_text",
    "trimmed",
    "unescape",
]


_EPOCH_DAY = date(1970, 1, 1).toordinal()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_MICRO = timedelta(microseconds=1)


_BLANKS = "".join(map(chr, (*range(33), 127)))
"""Characters that Spark's casts strip from both ends of a text."""


_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)


OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


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
        # \ud83d\ude00 is one character in Java: join such pairs, refuse lone surrogates, which UTF-8 cannot encode.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except (UnicodeDecodeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"the string literal {body!r} is not valid Unicode text") from error


@lru_cache(maxsize=64)
def session_zone(name: str) -> tzinfo:
    """Time zone of a Spark session by its name: a region, ``UTC``, ``Z`` or an offset such as ``+09:00``."""
    if name.upper() in ("UTC", "Z", "GMT", "UT"):
        return UTC
    offset = OFFSET.fullmatch(name)
    if offset:
        sign, hours, minutes = offset.groups()
        delta = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-delta if sign == "-" else delta)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInputError(f"unknown time zone {name!r}: use a name such as 'Asia/Seoul' or '+09:00'") from error


def trimmed(text: str) -> str:
    """Strip the blanks and control characters that Spark's casts ignore."""
    return text.strip(_BLANKS)


def day_number(year: int, month: int, day: int) -> int | None:
    """Days since 1970 of a date of any year; None if there is no such day."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    first = np.datetime64((year - 1970) * 12 + month - 1, "M")
    start, end = (int(month_.astype("M8[D]").astype(np.int64)) for month_ in (first, first + 1))
    return start + day - 1 if day <= end - start else None


def date_days(text: str) -> int | None:
    """Days since 1970 of ``[+-]yyyy[-[m]m[-[d]d]]``, ignoring anything after a blank or ``T``; None for other texts."""
    match = _DATE.fullmatch(trimmed(text))
    if match is None:
        return None
    sign, year, month, day = match.groups()
    return day_number(int(sign + year), int(month or 1), int(day or 1))


def date_text(days: int) -> str | None:
    """ISO text of a day, None outside the years 1 to 9999."""
    try:
        return date.fromordinal(days + _EPOCH_DAY).isoformat()
    except (ValueError, OverflowError):
        return None


def local_micros(moment: datetime) -> int:
    """Microseconds since 1970 of a local time, as if its clock were UTC."""
    return (moment.replace(tzinfo=UTC, fold=0) - _EPOCH) // _MICRO


def timestamp_text(micros: int, *, utc: bool) -> str | None:
    """Text that :func:`timestamp_micros` parses back in any session zone (``utc``) or as a time without zone."""
    try:
        moment = (_EPOCH + micros * _MICRO).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat(sep=" ") + ("Z" if utc else "")
