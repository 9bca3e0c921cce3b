"""Parse and format clock times by Spark's datetime patterns (``yyyy-MM-dd HH:mm``), for the common letters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.distinct import per_distinct
from lakedex.expr.types import NotPrunableError
from lakedex.types import IntArray

__all__ = ["formatted", "moments_of_text"]


_PIECE = re.compile(
    r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^A-Za-z'\[\]{}#]+)|(?P<bad>.)", re.DOTALL
)


_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000


_EPOCH = datetime(1970, 1, 1)


_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


_WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


@dataclass(frozen=True, slots=True)
class _Piece:
    letters: str
    text: str = ""


@lru_cache(maxsize=64)
def _pieces(pattern: str) -> tuple[_Piece, ...]:
    pieces = []
    for match in _PIECE.finditer(pattern):
        if match["bad"]:
            raise NotPrunableError(f"unsupported datetime pattern {pattern!r}")
        quoted = match["quoted"]
        text = match["plain"] or ("'" if quoted == "" else (quoted or "").replace("''", "'"))
        pieces.append(_Piece(match["letters"] or "", "" if match["letters"] else text))
    return tuple(pieces)


# Field and regular expression for each run of letters.
_READERS = {
    "yyyy": ("year", r"\d{4}"), "MM": ("month", r"\d{2}"), "M": ("month", r"\d{1,2}"), "dd": ("day", r"\d{2}"),
    "d": ("day", r"\d{1,2}"), "HH": ("hour", r"\d{2}"), "H": ("hour", r"\d{1,2}"), "mm": ("minute", r"\d{2}"),
    "m": ("minute", r"\d{1,2}"), "ss": ("second", r"\d{2}"), "s": ("second", r"\d{1,2}"),
}  # fmt: skip


@lru_cache(maxsize=64)
def _reader(pattern: str) -> re.Pattern[str]:
    parts, fields, flexible = [], set(), False
    for piece in _pieces(pattern):
        if not piece.letters:
            parts.append(re.escape(piece.text))
            flexible = False
            continue
        known = _READERS.get(piece.letters)
        if known is None or known[0] in fields or flexible:
            raise NotPrunableError(f"unsupported datetime pattern {pattern!r}")
        fields.add(known[0])
        flexible = "," in known[1]
        parts.append(f"(?P<{known[0]}>{known[1]})")
    if "year" not in fields:
        raise NotPrunableError(f"the datetime pattern {pattern!r} has no year")
    return re.compile("".join(parts), re.ASCII | re.IGNORECASE)


def moments_of_text(text: Any, pattern: str, *, attempt: bool) -> Any:
    """Parse texts by a pattern into clock times, as int64 microseconds.

    Raises:
        InvalidInputError: A text does not match the pattern and ``attempt`` is False.
        NotPrunableError: The pattern has unsupported letters.
    """
    reader = _reader(pattern)

    def read(one: str) -> int | None:
        match = reader.fullmatch(one)
        try:
            if match is None:
                raise ValueError
            fields = {"month": 1, "day": 1, **{name: int(value) for name, value in match.groupdict().items()}}
            return (datetime(**fields) - _EPOCH) // timedelta(microseconds=1)  # type: ignore[arg-type]
        except ValueError:
            if attempt:
                return None
            raise InvalidInputError(
                f"the text {one!r} does not match the pattern {pattern!r}; try_to_timestamp returns null instead"
            ) from None

    return per_distinct(read, pa.int64(), text)


def _padded(digits: int) -> Callable[[IntArray], Any]:
    return lambda numbers: pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")


def _named(names: list[str], length: int | None) -> Callable[[IntArray], Any]:
    shown = [name[:length] for name in names]  # Arrow imports pandas with its first array of Python's values.
    return lambda numbers: pa.array(shown).take(pa.array(numbers))


_FIELDS: dict[str, Callable[[IntArray, IntArray, IntArray], IntArray]] = {
    "y": lambda months, _, __: months // 12 + 1970,
    "M": lambda months, _, __: months % 12 + 1,
    "d": lambda months, days, _: days - months.astype("M8[M]").astype("M8[D]").astype(np.int64) + 1,
    "H": lambda _, __, time: time // _HOUR,
    "m": lambda _, __, time: time % _HOUR // _MINUTE,
    "s": lambda _, __, time: time % _MINUTE // _SECOND,
    "E": lambda _, days, __: (days + 3) % 7,
}


_WRITERS: dict[str, Callable[[IntArray], Any]] = {
    "yyyy": _padded(4), "y": _padded(1), "yy": lambda years: _padded(2)(years % 100), "MM": _padded(2), "M": _padded(1),
    "MMM": lambda months: _named(_MONTHS, 3)(months - 1), "MMMM": lambda months: _named(_MONTHS, None)(months - 1),
    "dd": _padded(2), "d": _padded(1), "HH": _padded(2), "H": _padded(1), "mm": _padded(2), "m": _padded(1),
    "ss": _padded(2), "s": _padded(1), "EEEE": _named(_WEEKDAYS, None),
    **dict.fromkeys(("E", "EE", "EEE"), _named(_WEEKDAYS, 3)),
}  # fmt: skip


def formatted(clock: IntArray, pattern: str) -> Any:
    """Format clock times in microseconds.

    Raises:
        NotPrunableError: The pattern has unsupported letters, or a year is outside 1 to 9999.
    """
    days, time = np.divmod(clock, _DAY)
    if len(days) and not (days.min() >= _FIRST_DAY and days.max() <= _LAST_DAY):
        raise NotPrunableError("years outside 1 to 9999 are unsupported")
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    parts: list[Any] = []
    for piece in _pieces(pattern):
        if not piece.letters:
            parts.append(pa.scalar(piece.text))
        elif set(piece.letters) == {"S"} and len(piece.letters) <= 6:
            size = len(piece.letters)
            parts.append(_padded(size)(time % _SECOND // 10 ** (6 - size)))
        elif piece.letters in _WRITERS:
            parts.append(_WRITERS[piece.letters](_FIELDS[piece.letters[0]](months, days, time)))
        else:
            raise NotPrunableError(f"unsupported letters {piece.letters} in the datetime pattern {pattern!r}")
    empty = pa.array([""] * 1).take(pa.array(np.zeros(len(clock), np.int64)))
    return pc.binary_join_element_wise(empty, *parts, "")
