"""Peak memory of one task that merges ten rows into a large base file: without Spark, and in Spark's Python worker.

The file is 1 GiB unless told otherwise, of rows that hardly compress. Resident memory before the merge and the peak
during it are the kernel's figures (``VmHWM``), so they hold what Arrow and zstd take outside of Python. Without Spark
the merge has a process of its own; on Spark it is a task of an executor (``local-cluster``), whose Python process is
watched from outside. Two other files of a row each are merged along with it: one or two files alone the driver merges.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.scale_out import cluster
from benchmarks.usage import children, watched
from lakedex import Table

__all__ = ["memory"]

ROOT = Path(__file__).resolve().parents[1]
PAYLOAD = 1000
OTHERS = ("q", "r")
HUGE = {"hoodie.parquet.max.file.size": str(64 << 30), "hoodie.parquet.small.file.limit": str(32 << 30)}


def rows_of(first: int, count: int, part: str = "p") -> pa.Table:
    """Rows of a kilobyte that looks like chance."""
    rng = np.random.default_rng(first + 1)
    payload = pa.Array.from_buffers(pa.binary(PAYLOAD), count, [None, pa.py_buffer(rng.bytes(count * PAYLOAD))])
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "key": pa.array(np.char.mod("k%09d", numbers)),
            "part": pa.array([part] * count),
            "n": pa.array(numbers),
            "payload": payload.cast(pa.binary()),
        }
    )


def incoming() -> pa.Table:
    """Ten rows of the large file, and the row of each other one."""
    return pa.concat_tables([rows_of(0, 10), *(rows_of(0, 1, part) for part in OTHERS)])


def make(path: str, mebibytes: int) -> None:
    """A table of a large file and two small ones."""
    count = mebibytes * 2**20 // (PAYLOAD + 20)
    batch = 50_000
    parts = [rows_of(first, min(batch, count - first)) for first in range(0, count, batch)]
    parts += [rows_of(0, 1, part) for part in OTHERS]
    table = Table.create(path, parts[0].schema, record_key="key", partition_by="part", options=HUGE)
    table.bulk_insert(pa.concat_tables(parts), options=HUGE)


def merge(path: str) -> dict[str, Any]:
    """Upsert; memory before and at the peak."""
    table = Table.open(path, options=HUGE)
    table.scan("n = -1").plan()
    before = _held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    started = time.perf_counter()
    result = table.upsert(incoming())
    return {
        "seconds": time.perf_counter() - started,
        "before": before,
        "peak": _held("VmHWM"),
        "files_written": result.files_written,
        "file_bytes": result.bytes_written,
    }


class Workers:
    """The Python processes of a session's executors: what each began with, and its peak."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.peaks: dict[int, int] = {}

    def look(self) -> bool:
        """Look at them; there may always be more to see."""
        for pid in children(os.getpid()):
            try:
                if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    self.first.setdefault(pid, _held("VmRSS", pid))
                    self.peaks[pid] = _held("VmHWM", pid)
            except (OSError, StopIteration):
                continue  # It ended in between.
        return False


def merge_on_spark(path: str) -> dict[str, Any]:
    """The same by an executor's Python worker."""
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as scratch:
        spark = cluster(scratch, workers=1)
        try:
            table = Table.open(path, options=HUGE, spark=spark)
            rows = spark.createDataFrame(incoming().to_pylist(), "key string, part string, n bigint, payload binary")
            workers, started = Workers(), time.perf_counter()
            with watched(workers.look, 0.02):
                result = table.upsert(rows)
            seconds = time.perf_counter() - started
        finally:
            spark.stop()
    worker, peak = max(workers.peaks.items(), key=lambda one: one[1])
    return {
        "seconds": seconds,
        "before": workers.first[worker],
        "peak": peak,
        "files_written": result.files_written,
        "file_bytes": result.bytes_written,
    }


def _held(name: str, pid: int | str = "self") -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def memory(mebibytes: int = 1024, folder: str | None = None) -> list[dict[str, Any]]:
    """A row for each engine: the file's bytes, resident bytes before the merge and at its peak."""
    told = []
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=folder) as made:
        path = str(Path(made) / "table")
        _own_process("make", path, str(mebibytes))
        for engine, what in (("without Spark", "merge"), ("Spark's Python worker", "merge_on_spark")):
            told.append({"mebibytes": mebibytes, "engine": engine, **json.loads(_own_process(what, path))})
    return told


def _own_process(*what: str) -> str:
    command = [sys.executable, "-m", "benchmarks.memory", *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["merge"]:
        print(json.dumps(merge(sys.argv[2])))
    elif sys.argv[1:2] == ["merge_on_spark"]:
        print(json.dumps(merge_on_spark(sys.argv[2])))
    else:
        print(memory(int(sys.argv[1]) if len(sys.argv) > 1 else 1024))
