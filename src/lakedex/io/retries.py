"""Repeat requests: bounded tries with full jitter, one budget of time an operation, pauses that all threads share.

A request is repeated until it was in trouble for :data:`REQUEST_SECONDS` and sent :data:`MIN_TRIES` times, whichever
is later, or until the budget of the operation is spent. The budget is the time in which at least one request of the
operation was failing or waiting, so an outage ends an operation within a minute or so, however many requests and
threads it has. Success earns some of it back: a long operation survives many short disturbances.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FunctionType
from typing import TypeVar

from lakedex.io.object_store import Failure, RequestError

__all__ = [
    "MIN_TRIES",
    "OPERATION_SECONDS",
    "REQUEST_SECONDS",
    "Clock",
    "Retries",
    "clock_of",
    "one_operation",
    "with_one_budget",
]


C = TypeVar("C", bound=type)


T = TypeVar("T")


OPERATION_SECONDS = 60.0


REQUEST_SECONDS = 30.0


MIN_TRIES = 8


_EARNED = 0.05
"""Seconds of the budget that a successful request earns."""


_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


_TRIES_TO_CONNECT = 3
"""Tries while the store has never answered this process: its address may be wrong."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that only rise, a pause, and chance; tests give others.

    Attributes:
        now: the time, in seconds.
        sleep: waits for a number of seconds.
        chance: a number between two others, for pauses.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[float, float], float] = random.uniform


def clock_of(storage: object) -> Clock:
    """The clock of a storage that has one, else the system's."""
    found: Clock | None = getattr(storage, "clock", None)
    return found or Clock()


class _Budget:
    """Time that an operation may spend on requests in trouble; threads that are in trouble at once spend it once."""

    def __init__(self, seconds: float) -> None:
        self._most = self._left = seconds
        self._spent_until = float("-inf")
        self._guard = threading.Lock()

    def spend(self, start: float, end: float) -> bool:
        """Spend the time from ``start`` to ``end``; False if it is more than what is left."""
        with self._guard:
            self._left -= max(0.0, end - max(start, self._spent_until))
            self._spent_until = max(self._spent_until, end)
            return self._left >= 0

    def earn(self) -> None:
        """Earn some time back."""
        with self._guard:
            if self._left >= 0:
                self._left = min(self._most, self._left + _EARNED)


_BUDGET: ContextVar[_Budget | None] = ContextVar("lakedex_retry_budget", default=None)


@contextlib.contextmanager
def one_operation(seconds: float = OPERATION_SECONDS) -> Iterator[None]:
    """Let all requests within share one budget; within another operation, its budget counts.

    Args:
        seconds: the budget.
    """
    if _BUDGET.get() is not None:
        yield
        return
    token = _BUDGET.set(_Budget(seconds))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def with_one_budget(cls: C) -> C:
    """Let each call of a public method of a class be an operation."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, one_operation()(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(one_operation()(member.__func__)))
    return cls


@dataclass(slots=True)
class Retries:
    """The requests of this process to one store."""

    clock: Clock = field(default_factory=Clock)
    _slow_until: float = float("-inf")
    _answered: bool = False

    def run(self, send: Callable[[bool], T]) -> T:
        """Send a request until it succeeds or repeating it is of no use.

        Args:
            send: sends it once; its argument says whether an earlier try may have taken effect.

        Returns:
            What ``send`` returned.

        Raises:
            RequestError: the last failure, with the number of tries and whether any may have taken effect.
        """
        clock, tries, may_have_happened, may_happen_yet = self.clock, 0, False, False
        began = clock.now()
        budget = _BUDGET.get() or _Budget(OPERATION_SECONDS)
        while True:
            if (pause := self._slow_until - clock.now()) > 0:
                clock.sleep(pause)
            started = clock.now()
            try:
                result = send(may_have_happened)
            except RequestError as error:
                tries += 1
                may_have_happened = may_have_happened or error.may_have_happened
                may_happen_yet = may_happen_yet or error.may_happen_yet
                error.tries, error.may_have_happened, error.may_happen_yet = tries, may_have_happened, may_happen_yet
                self._answered = self._answered or error.status is not None
                if not error.failure.is_temporary or self._is_too_late(error, began):
                    raise
                pause = clock.chance(0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(tries - 1, 16)))
                if not budget.spend(started, clock.now() + pause):
                    raise
                if error.failure is Failure.SLOW:
                    self._slow_until = max(self._slow_until, clock.now() + pause)
                clock.sleep(pause)
            else:
                self._answered = True
                budget.earn()
                return result

    def _is_too_late(self, error: RequestError, began: float) -> bool:
        if error.failure is Failure.UNREACHABLE and not self._answered:
            return error.tries >= _TRIES_TO_CONNECT
        return error.tries >= MIN_TRIES and self.clock.now() - began >= REQUEST_SECONDS
