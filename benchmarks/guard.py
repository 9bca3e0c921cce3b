"""What must not get worse unseen: counts that no machine changes, exactly; processor time as ratios of the same run.

The baseline is a JSON file of the tree. Seconds are not in it: those of another machine, or another hour, say nothing.
Processor time is what other work on the machine disturbs least.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import Results

__all__ = ["Baseline", "broken", "taken"]

EXACT = ("rows_written", "files_written", "files_opened", "files_read", "row_groups", "spark_jobs", "spark_tasks")
"""Figures that are the same each time."""
REQUESTS = ("requests", "tagging_requests")
BYTES = ("bytes_written", "bytes_read", "tagging_bytes")
MORE_REQUESTS, MORE_BYTES, NEARLY = 4, 128 << 10, 0.03
"""Names of new files are of chance, and their hashes say which of the four file groups of filters has theirs: so many
requests or bytes, or this share, may come of that."""
SLACK = 1.5
"""A ratio may be so many times the baseline's before it is a fault: two shared cores are noisy."""
OURS = ("lakedex", "lakedex-arrow")
RATIOS = (
    ("load", "lakedex", "spark-parquet"),
    ("load", "lakedex-arrow", "pyarrow"),
    ("upsert", "lakedex-arrow", "pyarrow"),
    ("upsert", "lakedex-arrow", "deltalake"),
    ("small", "lakedex-arrow", "deltalake"),
    ("by_key", "lakedex-arrow", "pyarrow"),
    ("both", "lakedex-arrow", "pyarrow"),
    ("count", "lakedex-arrow", "pyarrow"),
    ("by_key", "lakedex", "spark-parquet"),
    ("both", "lakedex", "spark-parquet"),
    ("count", "lakedex", "spark-parquet"),
)
"""Step, ours, and a peer that needs no jar."""


@dataclass(slots=True, kw_only=True)
class Baseline:
    """What was once measured.

    Attributes:
        settings: of the run that is compared: rows, rounds, peers.
        counts: ``work/peer/step`` → name → value.
        ratios: ``work/step/ours/peer`` → value.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """From a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """To a file."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def taken(results: Results, settings: Mapping[str, Any]) -> Baseline:
    """The baseline that a run makes."""
    made = Baseline(settings=dict(settings))
    for work in results.works():
        for peer in OURS:
            for item in [item for item in results.measured if (item.work, item.peer) == (work, peer)]:
                found = results.figure(peer, work, item.step)
                if found is not None:
                    own = {
                        name: float(found.counts[name]) for name in (*EXACT, *REQUESTS, *BYTES) if name in found.counts
                    }
                    made.counts[f"{work}/{peer}/{item.step}"] = own
        for step, ours, peer in RATIOS:
            ratio = results.ratio(work, step, ours, peer, "cpu")
            if ratio is not None:
                made.ratios[f"{work}/{step}/{ours}/{peer}"] = round(ratio, 3)
    return made


def broken(now: Baseline, before: Baseline, slack: float = SLACK) -> list[str]:
    """What is worse, or merely other, than the baseline says; empty if all is as it was."""
    return [*_changed(now, before), *_slower(now, before, slack)]


def _changed(now: Baseline, before: Baseline) -> Iterator[str]:
    for place, counts in before.counts.items():
        own = now.counts.get(place)
        if own is None:
            yield f"{place}: not measured; the baseline has it"
            continue
        for name, value in counts.items():
            new = own.get(name)
            if new is None:
                yield f"{place}: no figure of {name}; the baseline has {value:,.0f}"
            elif abs(new - value) > _room(name, value):
                word = "more" if new > value else "fewer"
                yield f"{place}: {new:,.0f} {name}, {word} than the baseline's {value:,.0f}"


def _room(name: str, value: float) -> float:
    if name in EXACT:
        return 0
    return max(MORE_BYTES if name in BYTES else MORE_REQUESTS, NEARLY * value)


def _slower(now: Baseline, before: Baseline, slack: float) -> Iterator[str]:
    for place, value in before.ratios.items():
        new = now.ratios.get(place)
        work, step, ours, peer = place.split("/")
        if new is None:
            yield f"{place}: not measured; the baseline has {value:.2f}"
        elif new > value * slack:
            over = f"more than {slack} × the baseline's {value:.2f}"
            yield f"{work}, {step}: {ours} takes {new:.2f} × {peer}'s processor time, {over}"
