"""Figures as PNG, by matplotlib, which only the benchmarks' environment has: one picture of several panels each."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from PIL import Image

__all__ = ["MAX_BYTES", "bars", "lines"]

mpl.use("Agg")
mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 80})
OURS, OTHERS, LIMIT = "#1f6feb", "#9aa4b2", "#d4a72c"
MAX_BYTES = 100_000
"""No figure in the repository is larger."""
Seconds = Mapping[str, tuple[float, float, float]]
"""For each name the median, the fastest and the slowest."""


def bars(path: Path, panels: Mapping[str, Seconds], limits: Sequence[str]) -> None:
    """Horizontal bars of seconds on logarithmic axes, one panel for each title, the shortest bar on top."""
    most = max(len(seconds) for seconds in panels.values())
    figure, places = _panels(len(panels), 0.24 * most + 0.7)
    for axes, (title, seconds) in zip(places, panels.items(), strict=False):
        names = sorted(seconds, key=lambda name: -seconds[name][0])
        for place, name in enumerate(names):
            warm, low, high = seconds[name]
            color = OURS if name.startswith("lakedex") else LIMIT if name in limits else OTHERS
            axes.barh(place, warm, color=color, xerr=[[warm - low], [high - warm]], error_kw={"lw": 0.8})
            axes.text(high * 1.05, place, f"{warm:.3g} s", va="center")
        axes.set_yticks(range(len(names)), names)
        axes.set_xscale("log")
        axes.set_title(title, loc="left")
    _save(figure, path)


def lines(path: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> None:
    """Curves of seconds on two logarithmic axes, one panel for each varied quantity; each name says its slope."""
    figure, places = _panels(len(panels), 2.6)
    for axes, (label, curves) in zip(places, panels.items(), strict=False):
        for name, points in curves.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", ms=3, lw=1.2, label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("seconds")
        axes.grid(visible=True, which="major", lw=0.3)
        axes.legend(frameon=False)
    _save(figure, path)


def _panels(count: int, height: float) -> tuple[pyplot.Figure, Sequence[Any]]:
    """A figure with that many panels in two columns, each ``height`` inches high; spare ones are hidden."""
    rows = math.ceil(count / 2)
    figure, grid = pyplot.subplots(rows, 2, figsize=(10, height * rows), squeeze=False)
    places = list(grid.flat)
    for spare in places[count:]:
        spare.set_visible(False)
    return figure, places


def _save(figure: pyplot.Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    pyplot.close(figure)
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path.name} has {size:,} bytes, more than the {MAX_BYTES:,} that the repository takes")
