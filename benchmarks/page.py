"""``./dev bench page``: rewrite the figures of docs/performance.md from the JSON files in benchmarks/results.

``./dev bench --json benchmarks/results/bench.json`` and the like of the others in ``PARTS`` make those files; of
several (``bench-flights.json``) each has its part.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bench_clustering import clustering_table
from benchmarks.growth import Curve, curves_table
from benchmarks.merge_on_read import goals, seconds_by_step
from benchmarks.peers import LIMITS
from benchmarks.peers.protocol import STEPS
from benchmarks.plots import bars, lines
from benchmarks.report import STEP_TEXTS, facts_text, page_text, table, write_page
from benchmarks.results import Results

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "performance"
TITLES = {
    "bench": "One million rows, all peers",
    "bench-others": "Other rows",
    "bench-ten-million": "Ten million rows",
}
"""Headings of the files in ``benchmarks/results``."""


def _peers(results: Results, source: str) -> Iterator[str]:
    """Figures and plots of the harness."""
    yield f"## {TITLES.get(source, source)} (`{source}.json`)"
    pictures = {}
    for work in results.works():
        panels = {}
        for step in STEPS:
            found = {peer: results.figure(peer, work, step) for peer in results.peers(work)}
            if seconds := {peer: (own.warm, own.low, own.high) for peer, own in found.items() if own is not None}:
                panels[STEP_TEXTS[step]] = seconds
        if panels:
            name = re.sub(r"\W+", "-", f"{source}-{work}")
            bars(PLOTS / f"{name}.png", panels, LIMITS)
            pictures[work] = f"performance/{name}.png"
    yield page_text(results, pictures, goals=source == "bench")


def _growth(results: Results, source: str) -> Iterator[str]:
    """Slopes and curves."""
    curves = [Curve.of(row) for row in results.tables["growth"]]
    yield "## Growth"
    yield f"{results.facts['date']}, commit {results.facts['commit']}, without Spark."
    yield curves_table(curves)
    panels = {
        axis: {
            f"{curve.work} (slope {curve.slope:.2f})": [(point.x, point.cpu) for point in curve.points]
            for curve in curves
            if curve.axis == axis
        }
        for axis in dict.fromkeys(curve.axis for curve in curves)
    }
    lines(PLOTS / f"{source}.png", panels)
    yield f"![processor time by {', '.join(panels)}](performance/{source}.png)"


def _scale_out(results: Results, source: str) -> Iterator[str]:
    """Two workers."""
    rows = results.tables["scale_out"]
    yield f"## Two workers, one killed (`{source}.json`)"
    cells = [
        [row["work"], f"{row['seconds']:.1f}", f"{row['gathered'] / 2**20:.2f}", str(row.get("running", "–"))]
        for row in rows
    ]
    yield table(["work", "s", "MiB that came to the driver", "tasks running when an executor was killed"], cells)


def _merge_on_read(results: Results, source: str) -> Iterator[str]:
    """Seconds of each step and peer, and the goals."""
    yield f"## Merge-on-read beside copy-on-write (`{source}.json`)"
    yield facts_text(results)
    for work in results.works():
        yield f"### {work}: seconds"
        yield seconds_by_step(results, work)
        yield "\n".join(f"* {line}" for line in goals(results, work))


def _clustering(results: Results, source: str) -> Iterator[str]:
    """Ways and peers."""
    yield f"## Clustering of small files (`{source}.json`)"
    yield f"{results.facts['date']}, commit {results.facts['commit']}; lakedex without Spark."
    yield clustering_table(results.tables["clustering"])


PARTS = {
    "bench": _peers,
    "merge_on_read": _merge_on_read,
    "clustering": _clustering,
    "growth": _growth,
    "scale_out": _scale_out,
}


def main(given: Sequence[str]) -> int:
    """Write the page from what is there."""
    if given:
        raise SystemExit(f"./dev bench page takes no arguments: {' '.join(given)}")
    parts: list[str] = []
    for old in PLOTS.iterdir() if PLOTS.is_dir() else ():
        old.unlink()
    for name, part in PARTS.items():
        for place in sorted(RESULTS.glob(f"{name}*.json"), key=lambda place: place.stem):
            parts += part(Results.read(place), place.stem)
    write_page(PAGE, "\n\n".join(parts))
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
