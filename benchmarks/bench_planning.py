"""Planning over tables of many files: cold, warm, and after one more commit, with requests and bytes.

The tables are metadata only (``synthetic.py``), so nothing is read but what planning reads. hudi-rs lists the same
table beside us; it has no warm state and no bounds at this point, so its number is what a listing costs.

    ./dev bench benchmarks/bench_planning.py [files ...]      default: 1000 10000; the issue's 100000 takes minutes
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.synthetic import add_files, make_table
from lakedex import Table
from lakedex.scan.plan import ScanPlan
from lakedex.types import IoCount

WARM_RUNS = 7


Run = tuple[float, float, ScanPlan]
"""Milliseconds, processor seconds, and the plan."""


def timed(work: Callable[[], ScanPlan]) -> Run:
    started, cpu = time.perf_counter(), time.process_time()
    plan = work()
    return (time.perf_counter() - started) * 1000, time.process_time() - cpu, plan


def row_of(files: int, what: str, when: str, runs: Sequence[Run], read: IoCount) -> dict[str, Any]:
    plan = runs[0][2]
    return {
        "files": files,
        "question": what,
        "state": when,
        "milliseconds": statistics.median(run[0] for run in runs),
        "cpu": statistics.median(run[1] for run in runs),
        "kept": len(plan.slices),
        "requests": read.requests,
        "bytes": read.bytes_read,
    }


def measure(path: Path, files: int, what: str, where: str) -> list[dict[str, Any]]:
    table = Table.open(path)
    counted = table.context.files.storage.counted
    before = counted.copy()
    rows = [row_of(files, what, "cold", [timed(table.scan(where).plan)], counted - before)]
    before = counted.copy()
    runs = [timed(lambda: table.scan(where).plan()) for _ in range(WARM_RUNS)]
    read = counted - before
    one = IoCount(read.requests // WARM_RUNS, read.bytes_read // WARM_RUNS)
    rows.append(row_of(files, what, "warm", runs, one))
    return rows


def measure_refresh(path: Path, files: int, where: str) -> dict[str, Any]:
    table = Table.open(path)
    table.scan(where).plan()
    add_files(path, range(files, files + 10))
    counted = table.context.files.storage.counted
    before = counted.copy()
    runs = [timed(lambda: table.scan(where).plan())]
    return row_of(files, "range of n", "one commit later", runs, counted - before)


def hudi_rs(path: Path) -> tuple[float, int]:
    """Milliseconds in which hudi-rs lists the table, and the slices that it finds."""
    from hudi import HudiTableBuilder  # not in every environment that asks for the rest

    started = time.perf_counter()
    slices = HudiTableBuilder.from_base_uri(str(path)).build().get_file_slices()
    return (time.perf_counter() - started) * 1000, len(slices)


def planning(path: Path, files: int) -> list[dict[str, Any]]:
    """Make a table of so many files, and plan."""
    make_table(path, files)
    middle = files * 500
    span = f"n between {middle} and {middle + 2500}"
    return [
        *measure(path, files, "range of n", span),
        *measure(path, files, "day and n", f"day = '{files // 200:05d}' and n = {middle}"),
        *measure(path, files, "r, which prunes nothing", "r = 5"),
    ]


def show(row: dict[str, Any]) -> None:
    print(
        f"| {row['files']:,} | {row['question']} | {row['state']} | {row['milliseconds']:,.1f} | {row['kept']:,} "
        f"| {row['requests']} | {row['bytes'] / 1024:,.0f} |"
    )


def main(sizes: list[int]) -> None:
    print("| files | query | state | ms | kept | requests | KiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for files in sizes:
        with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as folder:
            path = Path(folder) / "synthetic"
            for row in planning(path, files):
                show(row)
            milliseconds, found = hudi_rs(path)
            print(f"| {files:,} | hudi-rs lists the table | cold | {milliseconds:,.1f} | {found:,} | – | – |")
            middle = files * 500
            show(measure_refresh(path, files, f"n between {middle} and {middle + 2500}"))


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1_000, 10_000])
