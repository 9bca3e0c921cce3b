"""What a peer does: one protocol for all engines. A peer lives in a process of its own (``worker.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.data import Workload

__all__ = ["QUESTIONS", "STEPS", "Peer", "Settings"]

QUESTIONS = ("by_key", "both", "count")
STEPS = ("load", "upsert", "small", *QUESTIONS)
"""In the order in which a round takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is the same for all peers.

    Attributes:
        cores: threads, or Spark's ``local[n]``.
        memory: heap of a Spark driver.
        scratch: folder for what engines leave about.
        ivy: where Spark keeps jars.
    """

    cores: int = 2
    memory: str = "1500m"
    scratch: str = ""
    ivy: str = ""


class Peer:
    """One engine, set up one way. Steps that it cannot do are not in :attr:`steps`."""

    name = ""
    title = ""
    steps: tuple[str, ...] = STEPS

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.told: dict[str, float] = {}
        """Figures of the last call that the engine gave itself."""

    def start(self) -> None:
        """Make ready: sessions, thread pools."""

    def stop(self) -> None:
        """Let go of what :meth:`start` made."""

    def versions(self) -> Mapping[str, str]:
        """Versions of what was started."""
        return {}

    def counted(self) -> dict[str, int]:
        """Figures that only grow; what a call adds is its own."""
        return {}

    def load(self, work: Workload, path: str) -> None:
        """Make a table of the load file, with all indexes that the engine has for the workload."""
        raise NotImplementedError

    def upsert(self, work: Workload, path: str, rows: str) -> None:
        """Upsert the rows of a Parquet file."""
        raise NotImplementedError

    def open(self, work: Workload, path: str) -> None:
        """Take the table as it is now; the first question after a write begins with it."""

    def ask(self, work: Workload, path: str, question: str) -> int:
        """Answer a question: the number of rows found (fetched, save for ``count``)."""
        raise NotImplementedError

    def examined(self, work: Workload, path: str, question: str) -> dict[str, float]:
        """What a question read, looked at after it was measured."""
        return {}

    def read(self, work: Workload, path: str) -> int:
        """Read all columns of all rows of the table as it is now; how many rows."""
        raise NotImplementedError

    def compact(self, work: Workload, path: str) -> None:
        """Write a table of base files and changes as base files alone. Nothing where there are no changes apart."""

    def cluster(self, path: str, by: str) -> None:
        """Join the small files of a Hudi table; sort its rows by a column, or along a z-order curve of ``x,y``."""
        raise NotImplementedError

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """Rows, and the sum of the value column; not measured."""
        raise NotImplementedError


@dataclass(slots=True)
class Answer:
    """What a measured call took."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    value: Any = None
