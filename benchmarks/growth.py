"""How time and requests grow with files, rows, columns, commits and batches; each curve beside what it ought to do.

A curve's slope is that of a line through its points on two logarithmic axes, by least squares: 0 does not grow, 1 grows
as fast as what is varied. Slopes are of processor time, which other work on the machine disturbs least; seconds and
requests are kept beside. All runs are without Spark, whose part does not depend on any of this.

    ./dev bench growth [--only files,rows,columns,commits,batch] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench_planning import measure as measure_planning
from benchmarks.bench_tagging import tagging
from benchmarks.coverage import add_coverage, commits_of
from benchmarks.data import Generated, generate, rows_of
from benchmarks.report import table
from benchmarks.results import Results, machine
from benchmarks.synthetic import make_table
from lakedex import Table

__all__ = ["Curve", "curves_table", "slope"]

REPEATS = 3
TOLERANCE = 0.15


@dataclass(slots=True, kw_only=True)
class Point:
    """One measurement."""

    x: float
    seconds: float
    cpu: float
    requests: float = 0
    bytes: float = 0


@dataclass(slots=True, kw_only=True)
class Curve:
    """One curve.

    Attributes:
        axis: what is varied.
        work: what is timed.
        formula: how it ought to grow; *a*, *b* are constants.
        expected: the slope that follows for large values; smaller values, where *a* counts, have a smaller one.
        points: by what is varied.
    """

    axis: str
    work: str
    formula: str
    expected: float
    points: list[Point] = field(default_factory=list)

    @property
    def slope(self) -> float:
        """Of processor time."""
        return slope([(point.x, point.cpu) for point in self.points])

    @property
    def request_slope(self) -> float:
        """Of requests."""
        return slope([(point.x, point.requests) for point in self.points])

    @property
    def is_met(self) -> bool:
        """Whether it grows no faster than expected."""
        return self.slope <= self.expected + TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "slope": round(self.slope, 3)}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Curve:
        """From JSON."""
        own = {name: value for name, value in fields.items() if name != "slope"}
        return cls(**{**own, "points": [Point(**point) for point in fields["points"]]})


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Exponent of the power of x that fits best; NaN for less than two points."""
    real = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in real}) < 2:
        return math.nan
    return statistics.linear_regression([x for x, _ in real], [y for _, y in real]).slope


def measured(x: float, works: Sequence[Callable[[], Any]], table_of: Table | None = None) -> Point:
    """Medians over some calls."""
    seconds, cpu, requests, size = [], [], [], []
    for work in works:
        counted = None if table_of is None else table_of.context.files.storage.counted
        before = None if counted is None else counted.copy()
        started, cpu_started = time.perf_counter(), time.process_time()
        work()
        cpu.append(time.process_time() - cpu_started)
        seconds.append(time.perf_counter() - started)
        if counted is not None and before is not None:
            read = counted - before
            requests.append(read.requests)
            size.append(read.bytes_read)
    return Point(
        x=x,
        seconds=statistics.median(seconds),
        cpu=statistics.median(cpu),
        requests=statistics.median(requests or [0]),
        bytes=statistics.median(size or [0]),
    )


# ------------------------------------------------------------------------------------------------------------ curves
def files(folder: Path, *, quick: bool) -> Iterator[Curve]:
    """Planning and counts on tables of metadata only, tagging on real ones."""
    sizes = (100, 1_000) if quick else (100, 1_000, 10_000, 100_000)
    cold = Curve(axis="files", work="planning, cold", formula="a + b·files (bounds are read once)", expected=1)
    warm = Curve(
        axis="files", work="planning, warm", formula="a + b·files, b ≈ 1 µs (one pass over arrays)", expected=1
    )
    count = Curve(axis="files", work="filtered count, warm", formula="a + b·files (sums over coverage)", expected=1)
    for size in sizes:
        path = folder / f"files-{size}"
        make_table(path, size)
        middle = size * 500
        for row in measure_planning(path, size, "range of n", f"n between {middle} and {middle + 2500}"):
            seconds = row["milliseconds"] / 1000
            point = Point(x=size, seconds=seconds, cpu=row["cpu"], requests=row["requests"], bytes=row["bytes"])
            (cold if row["state"] == "cold" else warm).points.append(point)
        add_coverage(path, commits_of(path), range(size), ("r",), kind="int")
        opened = Table.open(path)
        _count(opened)
        count.points.append(measured(size, [partial(_count, opened)] * 5, opened))
    yield from (cold, warm, count)
    found = Curve(axis="files", work="tagging 10,000 keys, cold", formula="a + b·files, few requests", expected=1)
    for size in sizes[:3]:
        rows = tagging(size, str(folder), modes=("metadata",))
        row = next(row for row in rows if row["question"] == "random keys, whole table")
        point = Point(x=size, seconds=row["seconds"], cpu=row["cpu"], requests=row["requests"], bytes=row["bytes"])
        found.points.append(point)
    yield found


def _count(made: Table) -> int:
    return made.scan("r = 5").count()


def _loaded(folder: Path, spec: Generated) -> tuple[Table, pa.Table]:
    work = generate(folder, spec)
    first = pq.read_table(work.load)
    made = Table.create(
        folder / "tables" / spec.name, first.schema, record_key="key", partition_by="city", ordering_by="ts"
    )
    made.indexes.create("bitmap", list(work.bitmaps), name="asked")
    made.bulk_insert(first)
    return made, first


def _upserts(made: Table, spec: Generated, count: int) -> list[Callable[[], Any]]:
    rng = np.random.default_rng(count)
    batches = [
        rows_of(spec, np.sort(rng.choice(spec.rows, count, replace=False)), version=2 + number)
        for number in range(REPEATS)
    ]
    return [partial(made.upsert, batch) for batch in batches]


def rows(folder: Path, *, quick: bool) -> Iterator[Curve]:
    """An upsert of one in a hundred rows, over all files."""
    load = Curve(axis="rows", work="bulk load", formula="a + b·rows", expected=1)
    curve = Curve(axis="rows", work="upsert of 1 %", formula="a + b·rows (files are rewritten)", expected=1)
    for count in (5_000, 20_000) if quick else (20_000, 50_000, 100_000, 200_000, 500_000):
        spec = Generated(rows=count)
        started = time.process_time()
        made, _ = _loaded(folder, spec)
        load.points.append(Point(x=count, seconds=0, cpu=time.process_time() - started))
        curve.points.append(measured(count, _upserts(made, spec, count // 100), made))
    yield from (load, curve)


def columns(folder: Path, *, quick: bool) -> Iterator[Curve]:
    """The same rows with more columns."""
    curve = Curve(axis="columns", work="upsert of 1 %", formula="a + b·columns", expected=1)
    for count in (8, 16) if quick else (8, 16, 32, 64, 128):
        spec = Generated(rows=5_000 if quick else 50_000, columns=count)
        made, _ = _loaded(folder, spec)
        curve.points.append(measured(count, _upserts(made, spec, spec.rows // 100), made))
    yield curve


def batch(folder: Path, *, quick: bool) -> Iterator[Curve]:
    """Batches of more and more rows into one table."""
    spec = Generated(rows=10_000 if quick else 200_000)
    made, _ = _loaded(folder, spec)
    curve = Curve(axis="batch", work="upsert", formula="a·files touched + b·rows of the batch", expected=1)
    for count in (10, 100) if quick else (10, 100, 1_000, 10_000, 100_000):
        curve.points.append(measured(count, _upserts(made, spec, count), made))
    yield curve


def commits(folder: Path, *, quick: bool) -> Iterator[Curve]:
    """Small commits into one table, with cleaning, archival and upkeep of the metadata after each."""
    spec = Generated(rows=1_000, partitions=2)
    made, _ = _loaded(folder, spec)
    write = Curve(axis="commits", work="upsert of ten rows", formula="a", expected=0)
    plan = Curve(axis="commits", work="planning, cold", formula="a", expected=0)
    rng = np.random.default_rng(1)
    marks = (10, 20) if quick else (10, 30, 100, 300, 1_000)
    window: list[Point] = []
    for number in range(1, marks[-1] + 1):
        incoming = rows_of(spec, rng.choice(spec.rows, 10, replace=False), version=number + 1)
        window.append(measured(number, [partial(made.upsert, incoming)], made))
        if number in marks:
            last = window[-30:]
            middle = {
                name: statistics.median(getattr(point, name) for point in last)
                for name in ("seconds", "cpu", "requests", "bytes")
            }
            write.points.append(Point(x=number, **middle))
            opened = Table.open(folder / "tables" / spec.name)
            plan.points.append(measured(number, [opened.scan("fare > 5").plan], opened))
    yield from (write, plan)


AXES: dict[str, Callable[..., Iterator[Curve]]] = {
    "files": files,
    "rows": rows,
    "columns": columns,
    "batch": batch,
    "commits": commits,
}


def curves_table(curves: Sequence[Curve]) -> str:
    """Formula and slope of each curve."""
    cells = [
        [
            curve.axis,
            f"{curve.points[0].x:,.0f} – {curve.points[-1].x:,.0f}",
            curve.work,
            curve.formula,
            f"≤ {curve.expected:.0f}",
            f"{curve.slope:.2f}",
            f"{curve.points[0].cpu * 1000:,.1f} – {curve.points[-1].cpu * 1000:,.1f} ms",
            f"{curve.points[0].requests:,.0f} – {curve.points[-1].requests:,.0f}",
            "as expected" if curve.is_met else "grows faster",
        ]
        for curve in curves
    ]
    head = ["varied", "from – to", "work", "formula", "slope expected", "measured", "processor", "requests", ""]
    return table(head, cells)


def main(given: Sequence[str]) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="./dev bench growth", description=__doc__)
    parser.add_argument("--only", default=",".join(AXES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(given)
    curves: list[Curve] = []
    for axis in asked.only.split(","):
        with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=asked.folder) as made:
            started = time.monotonic()
            curves += AXES[axis](Path(made), quick=asked.quick)
            print(f"[{axis}] took {time.monotonic() - started:.0f} s", flush=True)
    print("\n" + curves_table(curves))
    if asked.json:
        tables = {"growth": [curve.to_dict() for curve in curves]}
        Results(facts=machine(), tables=tables).write(asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
