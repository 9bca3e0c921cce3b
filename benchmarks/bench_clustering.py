"""Cluster many small files: joined as they are, and ordered by a column; lakedex without Spark beside Hudi in Java.

Both cluster copies of one table, each in a warm process of its own. Rows of each file are spread over the whole range
of the columns, so that before every file has to be read for a value. Along a z-order curve only lakedex is asked.

    ./dev bench benchmarks/bench_clustering.py [--files 1000] [--bytes 1000000] [--peers NAMES] [--json FILE]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.protocol import Settings
from benchmarks.report import table
from benchmarks.results import Results, machine
from benchmarks.sessions import Sessions
from lakedex import Table

__all__ = ["clustering_table"]

LOAD = 100
"""Files of one commit."""
PAD = 200
"""Bytes of a row that do not compress; with its key and numbers a row takes some 230."""
OPTIONS = {"hoodie.parquet.small.file.limit": "0", "hoodie.clean.automatic": "false"}
WAYS = {"joined": "", "ordered by x": "x", "z-order of x, y": "x,y"}
"""Title of a way, and the columns as :meth:`Peer.cluster` has them."""
OURS = "lakedex-arrow"
WARM_FILES = 20
PATIENCE = 1800.0


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


def small_files(path: Path, files: int, size: int) -> Path:
    table = Table.create(path, made(0, 1).schema, record_key="id", options=OPTIONS)
    rows, number = max(size // (PAD + 30), 1), 0
    while number < files:
        count = min(LOAD, files - number)
        # A load into no known file takes rows for five times smaller on disk than in memory; these are not.
        own = {"hoodie.parquet.max.file.size": str(size // 5), "hoodie.bulkinsert.sort.mode": "NONE"}
        table.bulk_insert(made(number * rows, count * rows), options=own)
        number += count
    return path


def planned(path: Path) -> list[int]:
    """Files that a plan keeps for a value of each column."""
    table = Table.open(path)
    return [len(table.scan(f"{column} = 500000").plan().files) for column in ("x", "y")]


def measured(files: int, size: int, peers: Iterable[str]) -> list[dict[str, Any]]:
    """A row for each way and peer that has it; both have to end with as many rows."""
    found = []
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as made_in:
        folder = Path(made_in)
        warm, cold = small_files(folder / "warm", WARM_FILES, size), small_files(folder / "small", files, size)
        rows = Table.open(cold).count()
        with Sessions(Settings(scratch=str(folder))) as sessions:
            for way, by in WAYS.items():
                for peer in peers:
                    if "," in by and peer != OURS:
                        continue
                    for source in (warm, cold):
                        path = folder / "t"
                        shutil.copytree(source, path)
                        told = sessions.ask(peer, "cluster", PATIENCE, path=str(path), by=by)
                        if source == cold:
                            if Table.open(path).count() != rows:
                                raise SystemExit(f"{peer}, {way}: rows are not the same")
                            kept = dict(zip(("files_x", "files_y"), planned(path), strict=True))
                            own = {name: told[name] for name in told if name != "id"}
                            left = len(Table.open(path).scan().plan().files)
                            found.append({"way": way, "peer": peer, "files": files, "left": left, **own, **kept})
                            print(f"{way}, {peer}: {told['seconds']:.1f} s", flush=True)
                        shutil.rmtree(path)
    return found


def clustering_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """As the page has it."""
    kept = list(rows)
    ours = {row["way"]: row["seconds"] for row in kept if row["peer"] == OURS}
    cells = [
        [
            row["way"],
            row["peer"],
            f"{row['seconds']:.1f}",
            f"{row['seconds'] / ours[row['way']]:.1f} ×" if row["way"] in ours else "–",
            f"{row['cpu']:.1f}",
            f"{row['peak'] / 2**20:,.0f} MiB" if row["peer"] == OURS else "–",
            f"{row['files']:,} → {row['left']:,}",
            f"{row['files_x']:,} and {row['files_y']:,}",
        ]
        for row in kept
    ]
    head = ["way", "engine", "s", "÷ lakedex", "processor s", "peak", "files", "files for a value of x, of y"]
    return table(head, cells)


def main(given: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="./dev bench benchmarks/bench_clustering.py", description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=1_000_000, help="of a file")
    parser.add_argument("--peers", default=f"{OURS},hudi")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(given)
    rows = measured(asked.files, asked.bytes, asked.peers.split(","))
    print(clustering_table(rows))
    if asked.json:
        Results(facts=machine(), tables={"clustering": rows}).write(asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
