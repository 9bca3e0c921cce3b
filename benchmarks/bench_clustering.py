"""Cluster many small files: joined as they are, ordered by a column, and along a z-order curve, in one process.

Rows of each file are spread over the whole range of both columns, so that before every file has to be read for a value.

    ./dev bench benchmarks/bench_clustering.py [files] [bytes of a file]      default: 1000 1000000
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex import Table

LOAD = 100
"""Files of one commit."""
PAD = 200
"""Bytes of a row that do not compress; with its key and numbers a row takes some 230."""
OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.automatic": "false",
    "hoodie.clustering.plan.strategy.max.num.groups": "1000",
}
WAYS: dict[str, dict[str, Any]] = {"joined": {}, "x": {"order_by": "x"}, "z-order x, y": {"zorder": ["x", "y"]}}


def made(first: int, rows: int) -> pa.Table:
    random = np.random.default_rng(first)
    pads = random.bytes(PAD * rows)
    return pa.table(
        {
            "id": np.char.mod("k%010d", np.arange(first, first + rows)),
            "x": random.integers(0, 10**6, rows),
            "y": random.integers(0, 10**6, rows),
            "pad": pa.array([pads[start : start + PAD] for start in range(0, PAD * rows, PAD)], pa.binary()),
        }
    )


def small_files(path: Path, files: int, size: int) -> Table:
    table = Table.create(path, made(0, 1).schema, record_key="id", options=OPTIONS)
    rows, number = max(size // (PAD + 30), 1), 0
    while number < files:
        count = min(LOAD, files - number)
        # A load into no known file takes rows for five times smaller on disk than in memory; these are not.
        own = {"hoodie.parquet.max.file.size": str(size // 5), "hoodie.bulkinsert.sort.mode": "NONE"}
        table.bulk_insert(made(number * rows, count * rows), options=own)
        number += count
    return table


def main(files: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small_files(Path(folder) / "small", files, size)
        for way, arguments in WAYS.items():
            path = Path(folder) / "t"
            shutil.copytree(Path(folder) / "small", path)
            table = Table.open(path, options=OPTIONS)
            before = len(table.scan("y = 500000").plan().files)
            used, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            done = table.maintenance.cluster(**arguments)
            seconds, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
            cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            after = [len(table.scan(f"{column} = 500000").plan().files) for column in ("x", "y")]
            print(
                f"{way:14} {done.files_before} files, {done.bytes_before / 1e6:.0f} MB, into {done.files_after}: "
                f"{seconds:.1f} s, {cpu:.1f} s of processors, {done.bytes_before / seconds / 1e6:.0f} MB/s, "
                f"peak {now.ru_maxrss / 1024:.0f} MiB; files for a value of y {before} before, of x and y "
                f"{after[0]} and {after[1]} after",
                flush=True,
            )
            shutil.rmtree(path)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:3]]
    main(*(given + [1000, 1_000_000][len(given) :]))
