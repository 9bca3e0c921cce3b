"""Convert between instants and clock times, on Arrow columns, by java.time's rules.

Arrow knows the years listed in its zone files. Past 2037 these files have a rule, which only :mod:`zoneinfo` reads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.literals import session_zone
from lakedex.expr.types import NotPrunableError
from lakedex.types import IntArray

__all__ = ["MICROS_PER_DAY", "day_starts", "instants_of_clock", "offsets_at", "shown_by_clock"]


MICROS_PER_DAY = 86_400_000_000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_MICRO = timedelta(microseconds=1)


_LISTED_UNTIL = (datetime(2037, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO


_RULED_UNTIL = (datetime(9990, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO


_FIRST_YEAR = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO


_LIMIT = 2**63 - 1_000_000_000_000


_CYCLE = 146_097 * MICROS_PER_DAY


_BISECTIONS = 48


def offsets_at(instants: IntArray, timezone: str) -> IntArray:
    """Offsets of a zone from UTC at some instants, both in microseconds."""
    zone = session_zone(timezone)
    fixed = zone.utcoffset(None)
    if fixed is not None:
        return np.full(len(instants), fixed // _MICRO, np.int64)
    past = instants > _RULED_UNTIL
    if past.any():  # a rule repeats with the calendar, every 400 years
        cycles = -((_RULED_UNTIL - instants) // _CYCLE)
        instants = np.where(past, instants - cycles * _CYCLE, instants)
    late = instants >= _LISTED_UNTIL
    offsets = np.zeros(len(instants), np.int64)
    listed = np.maximum(instants[~late], _FIRST_YEAR)  # a zone has one offset before its first change
    zoned = pa.array(listed).cast(pa.timestamp("us", timezone))
    offsets[~late] = pc.local_timestamp(zoned).cast(pa.int64()).to_numpy(zero_copy_only=False) - listed
    offsets[late] = _by_rule(instants[late], zone)
    return offsets


def _by_rule(instants: IntArray, zone: tzinfo) -> IntArray:
    """Offsets by the zone's rule, looked up once a day, or once an instant on days with a clock change."""
    days, where = np.unique(instants // MICROS_PER_DAY, return_inverse=True)
    first = np.array([_offset(int(day) * MICROS_PER_DAY, zone) for day in days], np.int64)
    last = np.array([_offset(int(day + 1) * MICROS_PER_DAY - 1, zone) for day in days], np.int64)
    offsets: IntArray = first[where]
    changing = (first != last)[where]
    moments, place = np.unique(instants[changing], return_inverse=True)
    offsets[changing] = np.array([_offset(int(moment), zone) for moment in moments], np.int64)[place]
    return offsets


def _offset(instant: int, zone: tzinfo) -> int:
    delta = (_EPOCH + instant * _MICRO).astimezone(zone).utcoffset()
    return 0 if delta is None else delta // _MICRO


def shown_by_clock(instants: IntArray, timezone: str) -> IntArray:
    """Clock times at instants.

    Raises:
        NotPrunableError: An instant is so close to the last possible one that its clock time would wrap around.
    """
    if np.any((instants > _LIMIT) | (instants < -_LIMIT)):
        raise NotPrunableError("a timestamp is too close to the end of their range")
    return instants + offsets_at(instants, timezone)


def _candidates(clock: IntArray, timezone: str) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Instants by the offsets before and after a nearby change, and a mask of clock times that it skips."""
    before = clock - offsets_at(clock - MICROS_PER_DAY, timezone)
    after = clock - offsets_at(clock + MICROS_PER_DAY, timezone)
    early, late = (shown_by_clock(instants, timezone) == clock for instants in (before, after))
    return before, np.where(late & ~early, after, before), ~early & ~late


def instants_of_clock(clock: IntArray, timezone: str) -> IntArray:
    """Instants of clock times: the earlier one if repeated, and moved by the gap's length if skipped."""
    return _candidates(clock, timezone)[1]


def day_starts(days: IntArray, timezone: str) -> IntArray:
    """First instants of days; the end of the gap if a clock change skips midnight."""
    midnights = days * MICROS_PER_DAY
    before, instants, missing = _candidates(midnights, timezone)
    if missing.any():
        # The day starts at the clock change, the first instant of the new offset.
        low, high = before[missing] - MICROS_PER_DAY, before[missing]
        old = offsets_at(low, timezone)
        for _ in range(_BISECTIONS):
            middle = (low + high) // 2
            changed = offsets_at(middle, timezone) != old
            low, high = np.where(changed, low, middle), np.where(changed, middle, high)
        instants[missing] = high
    return instants
