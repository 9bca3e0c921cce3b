"""Peak memory of one task that merges ten rows into a large base file, in a process of its own.

The file is 1 GiB unless told otherwise, of rows that hardly compress. Resident memory before the merge and the peak
during it are the kernel's figures (``VmHWM``), so they hold what Arrow and zstd take outside of Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakedex import Table

__all__ = ["memory"]

ROOT = Path(__file__).resolve().parents[1]
PAYLOAD = 1000
HUGE = {"hoodie.parquet.max.file.size": str(64 << 30), "hoodie.parquet.small.file.limit": str(32 << 30)}


def rows_of(first: int, count: int) -> pa.Table:
    """Rows of a kilobyte that looks like chance."""
    rng = np.random.default_rng(first + 1)
    payload = pa.Array.from_buffers(pa.binary(PAYLOAD), count, [None, pa.py_buffer(rng.bytes(count * PAYLOAD))])
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "key": pa.array(np.char.mod("k%09d", numbers)),
            "part": pa.array(["p"] * count),
            "n": pa.array(numbers),
            "payload": payload.cast(pa.binary()),
        }
    )


def make(path: str, mebibytes: int) -> None:
    """A table of one file."""
    count = mebibytes * 2**20 // (PAYLOAD + 20)
    batch = 50_000
    parts = [rows_of(first, min(batch, count - first)) for first in range(0, count, batch)]
    table = Table.create(None, path, parts[0].schema, record_key="key", partition_by="part", options=HUGE)
    table.bulk_insert(pa.concat_tables(parts), options=HUGE)


def merge(path: str) -> dict[str, Any]:
    """Upsert ten rows; memory before and at the peak."""
    table = Table.open(path, options=HUGE)
    table.scan("n = -1").plan()
    before = _held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    started = time.perf_counter()
    result = table.upsert(rows_of(0, 10))
    return {
        "seconds": time.perf_counter() - started,
        "before": before,
        "peak": _held("VmHWM"),
        "files_written": result.files_written,
        "file_bytes": result.bytes_written,
    }


def _held(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def memory(mebibytes: int = 1024, folder: str | None = None) -> list[dict[str, Any]]:
    """One row: the file's bytes, resident bytes before the merge and at its peak."""
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=folder) as made:
        path = str(Path(made) / "table")
        for what in (["make", path, str(mebibytes)], ["merge", path]):
            command = [sys.executable, "-m", "benchmarks.memory", *what]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
            if done.returncode:
                raise SystemExit(done.stderr)
        return [{"mebibytes": mebibytes, **json.loads(done.stdout)}]


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["merge"]:
        print(json.dumps(merge(sys.argv[2])))
    else:
        print(memory(int(sys.argv[1]) if len(sys.argv) > 1 else 1024))
