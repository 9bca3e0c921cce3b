"""Clock times of instants and instants of clock times, whole columns, by java.time's rules.

Arrow answers for the years that its zone files list. Past 2037 those files have a rule, which Arrow does not read and
:mod:`zoneinfo` does.
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
    """How far a zone's clocks are ahead of UTC at some instants; all of them microseconds."""
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
    listed = np.maximum(instants[~late], _FIRST_YEAR)  # before its first change a zone has one offset
    zoned = pa.array(listed).cast(pa.timestamp("us", timezone))
    offsets[~late] = pc.local_timestamp(zoned).cast(pa.int64()).to_numpy(zero_copy_only=False) - listed
    offsets[late] = _by_rule(instants[late], zone)
    return offsets


def _by_rule(instants: IntArray, zone: tzinfo) -> IntArray:
    """Offsets by the zone's rule: asked once a day, and once an instant on the days of a clock change."""
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
    """The time that a clock shows at instants.

    Raises:
        NotJudgeable: An instant within days of the last that there can be: its clock time would wrap around.
    """
    if np.any((instants > _LIMIT) | (instants < -_LIMIT)):
        raise NotPrunableError("a timestamp at the end of what a timestamp can be")
    return instants + offsets_at(instants, timezone)


def _candidates(clock: IntArray, timezone: str) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Instants by the offset before and after a change close by, and which times no clock shows."""
    before = clock - offsets_at(clock - MICROS_PER_DAY, timezone)
    after = clock - offsets_at(clock + MICROS_PER_DAY, timezone)
    early, late = (shown_by_clock(instants, timezone) == clock for instants in (before, after))
    return before, np.where(late & ~early, after, before), ~early & ~late


def instants_of_clock(clock: IntArray, timezone: str) -> IntArray:
    """Instants of clock times: the first of two, and in a gap the time moved on by the gap's length."""
    return _candidates(clock, timezone)[1]


def day_starts(days: IntArray, timezone: str) -> IntArray:
    """The first instants of days: the end of a gap that takes midnight away."""
    midnights = days * MICROS_PER_DAY
    before, instants, missing = _candidates(midnights, timezone)
    if missing.any():
        # The clock change is the first instant of the new offset.
        low, high = before[missing] - MICROS_PER_DAY, before[missing]
        old = offsets_at(low, timezone)
        for _ in range(_BISECTIONS):
            middle = (low + high) // 2
            changed = offsets_at(middle, timezone) != old
            low, high = np.where(changed, low, middle), np.where(changed, middle, high)
        instants[missing] = high
    return instants
