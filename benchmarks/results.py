"""What was measured, as values and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["Figure", "Measured", "Results", "machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One call of one peer.

    Attributes:
        peer, work, step: whose, on which rows, what.
        round: 0 is the first of its session and stands for *cold*; the others are *warm*.
        seconds: of the call; of each repetition of a question, whose first one opens the table.
        cpu: processor time of the peer's processes, as many.
        counts: figures that do not depend on the machine, and what the engine told.
        value: the answer to a question.
        error: why there are no figures.
    """

    peer: str
    work: str
    step: str
    round: int = 0
    seconds: tuple[float, ...] = ()
    cpu: tuple[float, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    value: Any = None
    error: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Measured:
        """From JSON."""
        return cls(**{**fields, "seconds": tuple(fields["seconds"]), "cpu": tuple(fields["cpu"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Medians of a peer's step.

    Attributes:
        warm, low, high: seconds of rounds after the first: median, fastest, slowest; without such rounds of the first.
        cold: seconds of the first call in a session; of a question, the median of those that open the table.
        cpu: median processor seconds of warm calls.
        calls: warm calls.
        counts: of the last warm round.
    """

    warm: float
    low: float
    high: float
    cold: float
    cpu: float
    calls: int
    counts: Mapping[str, float]


@dataclass(slots=True, kw_only=True)
class Results:
    """All that one run measured; ``facts`` are of the machine and the versions, ``tables`` further measurements."""

    facts: dict[str, Any] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, item: Measured) -> None:
        """Take in one call."""
        self.measured.append(item)

    def of(self, peer: str, work: str, step: str) -> list[Measured]:
        """A peer's calls of a step that gave figures."""
        return [
            item
            for item in self.measured
            if (item.peer, item.work, item.step) == (peer, work, step) and not item.error and item.seconds
        ]

    def error(self, peer: str, work: str, step: str) -> str:
        """Why a step has no figures, if it was tried."""
        errors = [item.error for item in self.measured if (item.peer, item.work, item.step) == (peer, work, step)]
        return next((error for error in errors if error), "")

    def figure(self, peer: str, work: str, step: str) -> Figure | None:
        """Medians of a step, None where it was not measured."""
        calls = self.of(peer, work, step)
        if not calls:
            return None
        warm = [item for item in calls if item.round > 0] or calls
        if len(warm[0].seconds) > 1:
            seconds = [one for item in warm for one in item.seconds[1:]]
            cpu = [one for item in warm for one in item.cpu[1:]]
            cold = statistics.median(item.seconds[0] for item in warm)
        else:
            seconds = [item.seconds[0] for item in warm]
            cpu = [item.cpu[0] for item in warm]
            cold = calls[0].seconds[0]
        return Figure(
            warm=statistics.median(seconds),
            low=min(seconds),
            high=max(seconds),
            cold=cold,
            cpu=statistics.median(cpu),
            calls=len(seconds),
            counts=warm[-1].counts,
        )

    def works(self) -> list[str]:
        """Names of the rows that were worked on."""
        return list(dict.fromkeys(item.work for item in self.measured))

    def peers(self, work: str) -> list[str]:
        """Peers that took part."""
        return list(dict.fromkeys(item.peer for item in self.measured if item.work == work))

    def ratio(self, work: str, step: str, over: str, under: str, of: str = "warm") -> float | None:
        """How many times as long ``over`` takes as ``under``: median of the rounds' own ratios where both have them.

        Rounds are paired: what disturbs the machine for a minute disturbs both.
        """
        one = {(item.round, number): item for number, item in _numbered(self.of(over, work, step))}
        two = {(item.round, number): item for number, item in _numbered(self.of(under, work, step))}
        both = [key for key in one if key in two]
        both = [key for key in both if key[0] > 0] or both
        if not both:
            first, second = self.figure(over, work, step), self.figure(under, work, step)
            return None if first is None or second is None else getattr(first, of) / max(getattr(second, of), 1e-9)
        pick = _cpu if of == "cpu" else _seconds
        return statistics.median(pick(one[key]) / max(pick(two[key]), 1e-9) for key in both)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(
            {"facts": self.facts, "measured": [asdict(item) for item in self.measured], "tables": self.tables}, indent=1
        )

    def write(self, path: Path) -> None:
        """To a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, text: str) -> Results:
        """From text."""
        found = json.loads(text)
        return cls(
            facts=found["facts"], measured=[Measured.of(item) for item in found["measured"]], tables=found["tables"]
        )

    @classmethod
    def read(cls, path: Path) -> Results:
        """From a file."""
        return cls.from_json(path.read_text(encoding="utf-8"))


def _numbered(items: Sequence[Measured]) -> Iterable[tuple[int, Measured]]:
    seen: dict[int, int] = {}
    for item in items:
        seen[item.round] = seen.get(item.round, -1) + 1
        yield seen[item.round], item


def _seconds(item: Measured) -> float:
    return statistics.median(item.seconds[1:] or item.seconds)


def _cpu(item: Measured) -> float:
    return statistics.median(item.cpu[1:] or item.cpu)


def machine() -> dict[str, Any]:
    """What the figures depend on, without the machine's name."""
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = platform.processor()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }
