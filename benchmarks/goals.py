"""What we mean to reach, each goal with how it is measured. A ratio is the median of the rounds' own ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.results import Results

__all__ = ["Goal", "Verdict", "verdicts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal.

    Attributes:
        work: what is done.
        asked: the measure, in words.
        limit: what it may be at most, or has to be at least.
        at_least: whether more is better.
        unit: of the figure.
        measure: takes it from results and the name of the rows; None where it was not measured.
    """

    work: str
    asked: str
    limit: float
    at_least: bool = False
    unit: str = ""
    measure: Callable[[Results, str], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A goal and what was measured."""

    goal: Goal
    value: float | None

    @property
    def is_met(self) -> bool | None:
        """None where it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.goal.limit if self.goal.at_least else self.value <= self.goal.limit

    @property
    def word(self) -> str:
        """For tables."""
        return {None: "not measured", True: "met", False: "missed"}[self.is_met]

    @property
    def asked(self) -> str:
        """The goal as text."""
        return f"{self.goal.asked} {'≥' if self.goal.at_least else '≤'} {_text(self.goal.limit, self.goal.unit)}"

    @property
    def text(self) -> str:
        """The figure as text."""
        return "–" if self.value is None else _text(self.value, self.goal.unit)


def _text(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.1f} %"
    if unit == "GiB":
        return f"{value:.2f} GiB"
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} {unit}".strip()


def _ratio(step: str, over: str, under: str) -> Callable[[Results, str], float | None]:
    return lambda results, work: results.ratio(work, step, over, under)


def _warm(peer: str, step: str) -> Callable[[Results, str], float | None]:
    def measure(results: Results, work: str) -> float | None:
        found = results.figure(peer, work, step)
        return None if found is None else found.warm

    return measure


def _count(peer: str, step: str, name: str) -> Callable[[Results, str], float | None]:
    def measure(results: Results, work: str) -> float | None:
        found = results.figure(peer, work, step)
        return None if found is None or name not in found.counts else float(found.counts[name])

    return measure


def _bitmap_share(results: Results, work: str) -> float | None:
    found = results.figure("lakedex", work, "upsert")
    if found is None or not found.counts.get("result_seconds"):
        return None
    return float(found.counts["bitmap_seconds"] / found.counts["result_seconds"])


def _rows(results: Results, name: str, **equal: Any) -> Iterator[Mapping[str, Any]]:
    for row in results.tables.get(name, []):
        if all(row.get(key) == value for key, value in equal.items()):
            yield row


def _tagging(files: int, name: str) -> Callable[[Results, str], float | None]:
    question = "random keys, whole table"

    def measure(results: Results, work: str) -> float | None:
        ours = next(_rows(results, "tagging", files=files, question=question, mode="metadata"), None)
        theirs = next(_rows(results, "tagging", files=files, question=question, mode="footers"), None)
        return None if ours is None or theirs is None else float(theirs[name] / ours[name])

    return measure


def _planning(files: int) -> Callable[[Results, str], float | None]:
    def measure(results: Results, work: str) -> float | None:
        row = next(_rows(results, "planning", files=files, question="range of n", state="warm"), None)
        return None if row is None else float(row["milliseconds"])

    return measure


def _memory(results: Results, work: str) -> float | None:
    peaks = [row["peak"] for row in _rows(results, "memory", mebibytes=1024)]
    return float(max(peaks) / 2**30) if peaks else None


GOALS = (
    Goal(
        work="bulk load with all indexes",
        asked="lakedex ÷ Spark's partitioned Parquet",
        limit=1.5,
        unit="×",
        measure=_ratio("load", "lakedex", "spark-parquet"),
    ),
    Goal(
        work="bulk load with all indexes",
        asked="Hudi Java ÷ lakedex",
        limit=8,
        at_least=True,
        unit="×",
        measure=_ratio("load", "hudi", "lakedex"),
    ),
    Goal(
        work="upsert of 1 % in all files, two bitmap columns",
        asked="lakedex without Spark ÷ deltalake",
        limit=1.0,
        unit="×",
        measure=_ratio("upsert", "lakedex-arrow", "deltalake"),
    ),
    Goal(
        work="upsert of 1 % in all files, two bitmap columns",
        asked="lakedex on Spark ÷ deltalake",
        limit=1.0,
        unit="×",
        measure=_ratio("upsert", "lakedex", "deltalake"),
    ),
    Goal(
        work="upsert of 1 % in all files, two bitmap columns",
        asked="Hudi Java, metadata bloom ÷ lakedex",
        limit=10,
        at_least=True,
        unit="×",
        measure=_ratio("upsert", "hudi", "lakedex"),
    ),
    Goal(
        work="upsert of 10 rows in one file, warm",
        asked="lakedex on Spark",
        limit=0.5,
        unit="s",
        measure=_warm("lakedex", "small"),
    ),
    Goal(
        work="upsert of 10 rows in one file, warm",
        asked="Hudi Java ÷ lakedex",
        limit=8,
        at_least=True,
        unit="×",
        measure=_ratio("small", "hudi", "lakedex"),
    ),
    *(
        goal
        for files in (1_000, 10_000)
        for goal in (
            Goal(
                work=f"tagging 10,000 keys in {files:,} files",
                asked="requests by footers ÷ by metadata",
                limit=100,
                at_least=True,
                unit="×",
                measure=_tagging(files, "requests"),
            ),
            Goal(
                work=f"tagging 10,000 keys in {files:,} files, 20 ms a request",
                asked="seconds by footers ÷ by metadata",
                limit=20,
                at_least=True,
                unit="×",
                measure=_tagging(files, "slow_seconds"),
            ),
        )
    ),
    Goal(work="row by key", asked="SQL", limit=0.3, unit="s", measure=_warm("lakedex", "by_key")),
    Goal(work="row by key", asked="Arrow", limit=0.02, unit="s", measure=_warm("lakedex-arrow", "by_key")),
    Goal(work="two-predicate bitmap query", asked="SQL", limit=0.4, unit="s", measure=_warm("lakedex", "both")),
    Goal(
        work="two-predicate bitmap query", asked="Arrow", limit=0.02, unit="s", measure=_warm("lakedex-arrow", "both")
    ),
    Goal(work="filtered count", asked="from the index", limit=0.005, unit="s", measure=_warm("lakedex-arrow", "count")),
    Goal(
        work="filtered count",
        asked="data files opened",
        limit=0,
        measure=_count("lakedex-arrow", "count", "files_read"),
    ),
    Goal(
        work="bitmaps of two columns kept by the upsert",
        asked="their seconds, added up over tasks ÷ the write's",
        limit=0.05,
        unit="%",
        measure=_bitmap_share,
    ),
    *(
        Goal(work=f"planning warm, {files:,} files", asked="a range", limit=limit, unit="ms", measure=_planning(files))
        for files, limit in ((1_000, 5), (10_000, 20), (100_000, 100))
    ),
    Goal(
        work="merge into a file of 1 GiB",
        asked="peak of the process, with or without Spark",
        limit=1.0,
        unit="GiB",
        measure=_memory,
    ),
)


def verdicts(results: Results, work: str) -> list[Verdict]:
    """Each goal and what the results say."""
    return [Verdict(goal=goal, value=goal.measure(results, work)) for goal in GOALS]
