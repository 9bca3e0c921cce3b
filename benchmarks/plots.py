"""Figures as SVG, by matplotlib, which only the benchmarks' environment has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

__all__ = ["bars", "lines"]

mpl.use("Agg")
mpl.rcParams.update({"svg.hashsalt": "lakedex", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
OURS, OTHERS, LIMIT = "#1f6feb", "#9aa4b2", "#d4a72c"


def bars(path: Path, title: str, seconds: Mapping[str, tuple[float, float, float]], limits: Sequence[str]) -> None:
    """Horizontal bars of seconds on a logarithmic axis: median, fastest, slowest; the shortest on top."""
    names = sorted(seconds, key=lambda name: -seconds[name][0])
    figure, axes = pyplot.subplots(figsize=(7, 0.32 * len(names) + 0.9))
    for place, name in enumerate(names):
        warm, low, high = seconds[name]
        color = OURS if name.startswith("lakedex") else LIMIT if name in limits else OTHERS
        axes.barh(place, warm, color=color, xerr=[[warm - low], [high - warm]], error_kw={"lw": 0.8})
        axes.text(high * 1.05, place, f"{warm:.3g} s", va="center")
    axes.set_yticks(range(len(names)), names)
    axes.set_xscale("log")
    axes.set_title(title, loc="left")
    _save(figure, path)


def lines(path: Path, title: str, label: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Curves on two logarithmic axes; each name says its slope."""
    figure, axes = pyplot.subplots(figsize=(7, 3.4))
    for name, points in curves.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", ms=3, lw=1.2, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("seconds")
    axes.grid(visible=True, which="major", lw=0.3)
    axes.legend(frameon=False)
    axes.set_title(title, loc="left")
    _save(figure, path)


def _save(figure: pyplot.Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
