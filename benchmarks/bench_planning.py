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
from collections.abc import Callable
from pathlib import Path

from hudi import HudiTableBuilder
from synthetic import add_files, make_table

from lakedex import Table
from lakedex.scan.plan import ScanPlan

WARM_RUNS = 7


def timed(work: Callable[[], ScanPlan]) -> tuple[float, ScanPlan]:
    started = time.perf_counter()
    plan = work()
    return (time.perf_counter() - started) * 1000, plan


def report(files: int, what: str, when: str, milliseconds: float, plan: ScanPlan, requests: int, size: int) -> None:
    kept = f"{len(plan.slices):,}"
    print(f"| {files:,} | {what} | {when} | {milliseconds:,.1f} | {kept} | {requests} | {size / 1024:,.0f} |")


def measure(path: Path, files: int, what: str, where: str) -> None:
    table = Table.open(path)
    counted = table._handle.storage.counted
    for when in ("cold", "warm"):
        before = counted.copy()
        if when == "cold":
            milliseconds, plan = timed(table.scan(where).plan)
            read = counted - before
        else:
            runs = [timed(lambda: table.scan(where).plan()) for _ in range(WARM_RUNS)]
            milliseconds, plan = statistics.median(run[0] for run in runs), runs[0][1]
            read = counted - before
            read.requests, read.bytes_read = read.requests // WARM_RUNS, read.bytes_read // WARM_RUNS
        report(files, what, when, milliseconds, plan, read.requests, read.bytes_read)


def measure_refresh(path: Path, files: int, where: str) -> None:
    table = Table.open(path)
    table.scan(where).plan()
    add_files(path, range(files, files + 10))
    counted = table._handle.storage.counted
    before = counted.copy()
    milliseconds, plan = timed(lambda: table.scan(where).plan())
    read = counted - before
    report(files, "range of n", "one commit later", milliseconds, plan, read.requests, read.bytes_read)


def measure_hudi_rs(path: Path, files: int) -> None:
    started = time.perf_counter()
    slices = HudiTableBuilder.from_base_uri(str(path)).build().get_file_slices()
    milliseconds = (time.perf_counter() - started) * 1000
    print(f"| {files:,} | hudi-rs lists the table | cold | {milliseconds:,.1f} | {len(slices):,} | – | – |")


def main(sizes: list[int]) -> None:
    print("| files | query | state | ms | kept | requests | KiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for files in sizes:
        with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as folder:
            path = Path(folder) / "synthetic"
            make_table(path, files)
            middle = files * 500
            measure(path, files, "range of n", f"n between {middle} and {middle + 2500}")
            measure(path, files, "day and n", f"day = '{files // 200:05d}' and n = {middle}")
            measure(path, files, "r, which prunes nothing", "r = 5")
            measure_hudi_rs(path, files)
            measure_refresh(path, files, f"n between {middle} and {middle + 2500}")


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1_000, 10_000])
