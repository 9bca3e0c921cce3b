"""The context of one write: when it began, and the notes of its result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakedex.options import WriteOptions
from lakedex.progress import reported_step

__all__ = ["WriteContext"]


@dataclass(slots=True)
class WriteContext:
    """One call of a write, over all of its attempts.

    Attributes:
        notes: remarks for the user, in order; each step adds its own.
        started: when the call began, by ``time.perf_counter``.
        phases: seconds of each phase so far, those of all attempts together.
    """

    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    phases: dict[str, float] = field(default_factory=dict)

    @classmethod
    def begin(cls, options: WriteOptions) -> WriteContext:
        """The context of a call with these options, whose notes come first."""
        return cls(list(options.notes))

    @property
    def seconds(self) -> float:
        """Time since the call began."""
        return time.perf_counter() - self.started

    @contextmanager
    def phase(self, name: str, text: str = "") -> Iterator[None]:
        """Count the time of the block; with ``text`` name it on a terminal if it takes long."""
        began = time.perf_counter()
        try:
            if text:
                with reported_step(text):
                    yield
            else:
                yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began
