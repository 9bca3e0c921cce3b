"""The context of one write: when it began, and the notes of its result."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lakedex.options import WriteOptions

__all__ = ["WriteContext"]


@dataclass(slots=True)
class WriteContext:
    """One call of a write, over all of its attempts.

    Attributes:
        notes: remarks for the user, in order; each step adds its own.
        started: when the call began, by ``time.perf_counter``.
    """

    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def begin(cls, options: WriteOptions) -> WriteContext:
        """The context of a call with these options, whose notes come first."""
        return cls(list(options.notes))

    @property
    def seconds(self) -> float:
        """Time since the call began."""
        return time.perf_counter() - self.started
