"""What the cost gate of the bitmap index weighs: its constants, measured (``index/bitmap/pruning.py``).

All is CPU time of this process, the least of several runs, as bytes of data that could be decoded in that time:

* a value of a column that is judged, where the column is read anyhow, and where the condition alone speaks of it;
* a bitmap: found in its run and decoded, and taken from memory.

    ./dev bench benchmarks/bench_gate.py [rows]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.data import Generated, generate
from lakedex import Table

RUNS = 9


def least(*works: Callable[[], Any]) -> list[float]:
    """Seconds of each, run in turn."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(RUNS):
        for own, work in zip(found, works, strict=True):
            started = time.process_time()
            work()
            own.append(time.process_time() - started)
    return [min(own) for own in found]


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        work = generate(Path(folder), Generated(rows=rows))
        path = Path(folder) / "t"
        schema = pq.read_schema(work.load)
        table = Table.create(path, schema, record_key=work.key, partition_by=work.partition)
        table.indexes.create("bitmap", [*work.bitmaps, "rider"], name="asked")
        table.bulk_insert(pq.read_table(work.load))
        whole = table.scan()
        (all_rows,) = least(whole.to_arrow)
        stored = whole.plan().bytes_total
        byte = all_rows / stored
        print(f"{rows:,} rows in {len(whole.plan().slices)} files: {byte * 1e9:.1f} ns for a stored byte")
        print("\n| condition | values judged | result | ns spared a value | bytes |\n| --- | --- | --- | --- | --- |")
        conditions = {1: ["zone = 'z0071'", "status = 's0010'", "rider = 'r0017'"], 2: [work.sql("both")]}
        for names, texts in conditions.items():
            for text in texts:
                for columns in (None, ["fare"]):
                    plain, known = (
                        table.scan(text, columns, use_indexes=False),
                        table.scan(text, columns, cost_gate=False),
                    )
                    planned, read, spared = least(known.plan, plain.to_arrow, known.to_arrow)
                    each = (read - spared + planned) / (names * rows)
                    what = "all columns" if columns is None else "another column"
                    print(f"| {text} | {names} a row | {what} | {each * 1e9:.1f} | {each / byte:.2f} |")
        count = 2 * len(whole.plan().slices)
        both = work.sql("both")

        def cold(gate: bool) -> None:
            Table.open(path).scan(both, cost_gate=gate).plan()

        new, without, warm, gated = least(
            lambda: cold(False), lambda: cold(True), table.scan(both, cost_gate=False).plan, table.scan(both).plan
        )
        for what, seconds in (("read", new - without), ("held", warm - gated)):
            print(f"\na bitmap {what}: {seconds / count * 1e6:.0f} µs, as {seconds / count / byte:,.0f} bytes of data")


if __name__ == "__main__":
    main()
