"""Parse and format instants: their times and the names of their files.

Layout 2 belongs to table versions 8 and 9, layout 1 to version 6.

Layout::

    <requested>.<action>.requested          an intention
    <requested>.<action>.inflight           work in progress; a commit's is just <requested>.inflight
    <requested>_<completion>.<action>       done; without "_" one of layout 1, maybe taken over by an upgrade

Times are 17 digits, ``yyyyMMddHHmmssSSS``, in the table's zone, and compare as text. In Hudi: InstantGeneratorV1 and
V2, InstantFileNameParserV1 and V2, InstantComparatorV2, HoodieInstantTimeGenerator. Layout 1 is read, not written.
"""

from __future__ import annotations

import datetime
import re
import threading
import time
import zoneinfo
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, total_ordering
from typing import Final

from lakedex.errors import CommitError, InvalidInputError

__all__ = [
    "COMPLETED_ACTION",
    "Instant",
    "InstantClock",
    "State",
    "comparable_action",
    "epoch_ms_to_instant",
    "instant_to_epoch_ms",
    "parse_as_of",
    "parse_instant_name",
    "plus_millis",
    "wall_clock",
]


COMPLETED_ACTION: Final = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
"""Names of completed actions that differ from the pending name."""


_PLAIN_ACTIONS = frozenset(
    {"commit", "deltacommit", "replacecommit", "clean", "rollback", "restore", "indexing", "schemacommit"}
)


_NAME = re.compile(r"([0-9]+)(?:_([0-9]+))?\.([a-z]+)(?:\.([a-z]+))?")


_MILLIS = "%Y%m%d%H%M%S"


class State(IntEnum):
    """State of an instant."""

    REQUESTED = 1
    INFLIGHT = 2
    COMPLETED = 3


def comparable_action(action: str) -> str:
    """Name of the action once completed, common to all files of an instant."""
    return COMPLETED_ACTION.get(action, action)


@total_ordering
@dataclass(frozen=True, slots=True)
class Instant:
    """One action on the timeline. Sorts by requested time, then action, then state.

    ``completed`` is the completion time; for a legacy instant it is the modification time of its file.
    """

    requested: str
    action: str
    state: State
    completed: str | None
    file_name: str

    @property
    def is_completed(self) -> bool:
        """Whether it took effect."""
        return self.state is State.COMPLETED

    @property
    def is_legacy(self) -> bool:
        """Whether its completed file is of layout 1: no completion time in the name, a JSON body."""
        return self.is_completed and "_" not in self.file_name

    def order(self) -> tuple[str, str, int, str, str]:
        """Sort key."""
        return self.requested, comparable_action(self.action), self.state, self.completed or "", self.file_name

    def __lt__(self, other: Instant) -> bool:
        return self.order() < other.order()

    def __str__(self) -> str:
        return f"{self.requested}.{self.action} ({self.state.name.lower()})"


def parse_instant_name(name: str, modified: int | None = None, zone: str = "UTC") -> Instant | None:
    """Parse the name of a timeline file.

    Args:
        name: Name of the file.
        modified: Modification time in epoch milliseconds, the completion time of a legacy instant.
        zone: Zone of the timeline, for ``modified``.

    Returns:
        The instant, cached; None if the name is not one of Hudi's.
    """
    has_time = "_" in name or name.endswith((".requested", ".inflight"))
    return _parsed_name(name, None if has_time else modified, zone)


@lru_cache(maxsize=8192)
def _parsed_name(name: str, modified: int | None, zone: str) -> Instant | None:
    # Cached, as repeated listings of a timeline mostly have the same names.
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    requested, completed, action, state_name = match.groups()
    if state_name is None and action == "inflight":
        return None if completed else Instant(requested, "commit", State.INFLIGHT, None, name)
    if state_name is None:
        if action not in _PLAIN_ACTIONS and action != "savepoint":
            return None
        if completed is None and modified is not None:
            completed = epoch_ms_to_instant(modified, zone)
        return Instant(requested, action, State.COMPLETED, completed or requested, name)
    state = {"requested": State.REQUESTED, "inflight": State.INFLIGHT}.get(state_name)
    known = (
        action in _PLAIN_ACTIONS or action in COMPLETED_ACTION or (action == "savepoint" and state_name != "requested")
    )
    if state is None or completed or not known:
        return None
    return Instant(requested, action, state, None, name)


def _zone(name: str) -> datetime.tzinfo | None:
    """Zone of a name; None is that of the machine, Hudi's ``LOCAL``."""
    if name == "UTC":
        return datetime.UTC
    return None if name == "LOCAL" else zoneinfo.ZoneInfo(name)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def epoch_ms_to_instant(ms: int, zone: str = "UTC") -> str:
    """Write a time as instant text in ``UTC``, ``LOCAL`` or a named zone."""
    when = (_EPOCH + datetime.timedelta(milliseconds=ms)).astimezone(_zone(zone))
    return _format(when)


def _format(when: datetime.datetime) -> str:
    # strftime does not pad years below 1000 everywhere
    return (
        f"{when.year:04d}{when.month:02d}{when.day:02d}{when.hour:02d}{when.minute:02d}{when.second:02d}"
        f"{when.microsecond // 1000:03d}"
    )


def _to_17_digits(instant: str) -> str:
    # HoodieInstantTimeGenerator.fixInstantTimeCompatibility: a time in seconds means the end of the second,
    # longer texts are metadata table instants of old releases with a suffix.
    return instant + "999" if len(instant) == 14 else instant[:17]


def _parse(instant: str) -> datetime.datetime | None:
    text = _to_17_digits(instant)
    if len(text) != 17 or not text.isascii() or not text.isdigit():
        return None
    try:
        when = datetime.datetime.strptime(text[:14], _MILLIS)
    except ValueError:
        return None
    return when.replace(microsecond=int(text[14:]) * 1000)


def instant_to_epoch_ms(instant: str, zone: str = "UTC") -> int:
    """Read instant text of 14, 17 or more digits.

    Raises:
        InvalidInputError: The text is not a time, nor are Hudi's reserved instants of zeros.
    """
    when = _parse(instant)
    if when is None:
        raise InvalidInputError(f"'{instant}' is not an instant time (17 digits, yyyyMMddHHmmssSSS)")
    tz = _zone(zone)
    aware = when.astimezone() if tz is None else when.replace(tzinfo=tz)
    return (aware - _EPOCH) // datetime.timedelta(milliseconds=1)


def plus_millis(instant: str, ms: int) -> str:
    """Add milliseconds to instant text; a reserved one is incremented as a number, as in Hudi."""
    when = _parse(instant)
    if when is None:
        if not (instant.isascii() and instant.isdigit()):
            raise InvalidInputError(f"'{instant}' is not an instant time")
        return f"{int(instant) + ms:017d}"
    return _format(when + datetime.timedelta(milliseconds=ms))


_AS_OF_FORMS = "'yyyyMMddHHmmssSSS', 'yyyyMMddHHmmss', 'yyyy-MM-dd', 'yyyy-MM-dd HH:mm:ss[.SSS]', a date or a datetime"


_SECONDS = re.compile(r".*[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([+-][0-9:]+|Z)?")


def parse_as_of(value: str | datetime.date, zone: str = "UTC") -> str:
    """Convert a user's ``as_of`` to instant text in the table's zone.

    As in Hudi, a time to the second means its last millisecond and a date its midnight. A time with an offset is
    converted; one without is in the table's zone.

    Raises:
        InvalidInputError: The value has none of the accepted forms.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit():
            if len(text) in (14, 17) and _parse(text) is not None:
                return text
            raise InvalidInputError(f"as_of '{value}' is not a time; give {_AS_OF_FORMS}")
        try:
            when = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInputError(f"as_of '{value}' is not a valid time; give {_AS_OF_FORMS}") from None
        if _SECONDS.fullmatch(text):
            when = when.replace(microsecond=999_000)
    elif isinstance(value, datetime.datetime):
        when = value
    elif isinstance(value, datetime.date):
        when = datetime.datetime(value.year, value.month, value.day)
    else:
        raise InvalidInputError(
            f"as_of={value!r} is a {type(value).__name__}; give {_AS_OF_FORMS}. Commits have no numbers: "
            "table.inspect.history() lists their instants"
        )
    return _format(when if when.tzinfo is None else when.astimezone(_zone(zone)))


class _Last:
    """Last time returned by a clock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ms = 0


_PROCESS_LAST = _Last()


_WAIT_MS = 1000


def wall_clock() -> int:
    """This machine's time, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class InstantClock:
    """Source of instant times: strictly increasing in a process, and larger than all on the timeline.

    Call it under the table lock. A timeline ahead of the wall clock means that two writers disagree about the time or
    the zone: the clock waits for up to a second, skips up to ``max_skew_ms``, and refuses more, since instants in
    the wrong order lose data.
    """

    def __init__(
        self, zone: str = "UTC", *, max_skew_ms: int = 300_000, now_ms: Callable[[], int] = wall_clock
    ) -> None:
        self.zone = zone
        self._max_skew_ms = max_skew_ms
        self._now_ms = now_ms
        self._last = _PROCESS_LAST if now_ms is wall_clock else _Last()
        self._taken: frozenset[str] = frozenset()

    def leave_out(self, taken: Collection[str]) -> None:
        """Never return these times, which are in use although no timeline has them."""
        self._taken = self._taken.union(taken)

    def next(self, floor: str = "") -> str:
        """Return a new time.

        Args:
            floor: Largest requested or completion time on the timeline.

        Raises:
            CommitError: ``floor`` is too far in the future.
        """
        when = _parse(floor) if floor else None
        floor_ms = instant_to_epoch_ms(floor, self.zone) if when is not None else 0
        with self._last.lock:
            now = self._now_ms()
            ahead = floor_ms - now
            if ahead > self._max_skew_ms:
                raise CommitError(
                    f"the table's timeline has {floor}, {ahead / 1000:.0f} s after this machine's time "
                    f"{epoch_ms_to_instant(now, self.zone)} (zone {self.zone}); a new commit would sort before it. "
                    "Correct the clock; if the difference is in full hours, a writer used another time zone than "
                    "hoodie.table.timeline.timezone, and writes can continue once that time has passed"
                )
            if 0 <= ahead <= _WAIT_MS and self._now_ms is wall_clock:
                time.sleep((ahead + 1) / 1000)
                now = self._now_ms()
            chosen = max(now, floor_ms + 1, self._last.ms + 1)
            while (text := epoch_ms_to_instant(chosen, self.zone)) in self._taken:
                chosen += 1
            if floor and text <= floor:
                raise CommitError(
                    f"no instant time after {floor} is possible now: the clocks of zone '{self.zone}' are being set "
                    "back; writes can continue once that hour has passed"
                )
            self._last.ms = chosen
            return text
