"""The bitmap index: its size, its cost to build and to keep, and what it saves, beside a full scan and beside Lance.

One million rows in 20 files; columns of 2, 12, 100 and 10,000 values, in random order, which is where an index of this
kind gains least: every file has every value of the first three. Lance (pylance) holds the same rows with its own bitmap
indexes. The last part is a query that cannot gain, with the cost gate on and off.

    ./dev bench benchmarks/bench_bitmaps.py [rows]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex import Table

PARTITIONS = 20
RUNS = 7
VALUES = (2, 12, 100, 10_000)
SMALL_GROUPS = {"hoodie.parquet.block.size": str(1 << 20)}


def rows(count: int, picked: np.ndarray | None = None) -> pa.Table:
    """Rows with a column for each number of values; ``picked`` chooses some of them, changed."""
    rng = np.random.default_rng(11)
    columns: dict[str, Any] = {
        "key": np.char.add("k", np.char.zfill(np.arange(count).astype(str), 9)),
        "part": np.char.add("p", (np.arange(count) % PARTITIONS).astype(str)),
        "age": rng.integers(0, 100, count),
        **{f"c{n}": np.char.add("v", rng.integers(0, n, count).astype(str)) for n in VALUES},
    }
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if picked is None:
        return table
    table = table.take(pa.array(picked))
    return table.set_column(3 - 1, "age", pc.add(table.column("age"), 1))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def median_ms(work: Callable[[], Any]) -> float:
    work()
    return statistics.median(timed(work)[0] for _ in range(RUNS)) * 1000


def sizes(folder: Path, data: pa.Table, loaded: float) -> None:
    print("\n| values of the column | index bytes a row | build, s | build / bulk load | Lance bitmap build, s |")
    print("| --- | --- | --- | --- | --- |")
    peer = lance.write_dataset(data, str(folder / "sizes.lance"))
    table = Table.open(folder / "plain")
    for values in VALUES:
        seconds, result = timed(lambda n=values: table.indexes.create("bitmap", [f"c{n}"], name=f"b{n}"))
        theirs, _ = timed(lambda n=values: peer.create_scalar_index(f"c{n}", "BITMAP"))
        print(
            f"| {values:,} | {result.bytes_written / data.num_rows:.3f} | {seconds:.2f} | {seconds / loaded:.2f} "
            f"| {theirs:.2f} |"
        )
        table.indexes.drop(f"b{values}")


def upkeep(folder: Path, change: pa.Table) -> None:
    print("\n| upsert of 1 %, all files | seconds | bitmaps, s | bitmaps, KiB |\n| --- | --- | --- | --- |")
    plain = Table.open(folder / "plain")
    without, _ = timed(lambda: plain.upsert(change))
    print(f"| without bitmaps | {without:.2f} | – | – |")
    for name, columns in (("few", "2, 12 and 100 values"), ("indexed", "10,000 values too")):
        table = Table.open(folder / name)
        seconds, result = timed(lambda table=table: table.upsert(change))
        bitmaps = f"{result.bitmap_seconds:.2f} | {result.bitmap_bytes / 1024:,.0f}"
        print(f"| {columns} | {seconds:.2f} ({seconds / without:.2f} times) | {bitmaps} |")


def queries(folder: Path, data: pa.Table) -> None:
    table = Table.open(folder / "indexed")
    peer = lance.write_dataset(data, str(folder / "queries.lance"))
    for values in VALUES:
        peer.create_scalar_index(f"c{values}", "BITMAP")
    pairs = [("c2 = 'v1' AND c12 = 'v7'", "2 × 12"), ("c12 = 'v3' AND c100 = 'v42'", "12 × 100")]
    pairs += [("c100 = 'v42' AND c10000 = 'v4711'", "100 × 10,000")]
    print("\n| query | values | lakedex, ms | full scan, ms | Lance, ms | full scan / ours | Lance / ours |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for where, label in pairs:
        smallest = [
            median_ms(lambda w=where: pc.min(table.scan(w, ["age"]).to_arrow().column("age"))),
            median_ms(lambda w=where: pc.min(table.scan(w, ["age"], use_indexes=False).to_arrow().column("age"))),
            median_ms(lambda w=where: pc.min(peer.to_table(columns=["age"], filter=w).column("age"))),
        ]
        counted = [
            median_ms(lambda w=where: table.scan(w).count()),
            median_ms(lambda w=where: table.scan(w, use_indexes=False).count()),
            median_ms(lambda w=where: peer.count_rows(filter=w)),
        ]
        for what, (ours, full, theirs) in (("min(age) where", smallest), ("count where", counted)):
            ratios = f"{full / ours:.1f} | {theirs / ours:.1f}"
            print(f"| {what} both hold | {label} | {ours:.1f} | {full:.1f} | {theirs:.1f} | {ratios} |")


def losing(folder: Path) -> None:
    table = Table.open(folder / "indexed")
    table.scan("c12 = 'v7'").plan()  # coverage is read once, whatever the gate says
    print("\n| random equality, all columns read | ms | index bytes read |\n| --- | --- | --- |")
    for gate in (True, False):
        scan = table.scan("c12 = 'v7'", cost_gate=gate)
        stage = scan.plan().stage("bitmap")
        print(f"| gate {'on' if gate else 'off'} | {median_ms(scan.to_arrow):.0f} | {stage.bytes_read:,} |")
    full = median_ms(table.scan("c12 = 'v7'", use_indexes=False).to_arrow)
    print(f"| without any index | {full:.0f} | – |")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    data = rows(count)
    change = rows(count, np.random.default_rng(1).choice(count, count // 100, replace=False))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("plain", "few", "indexed"):
            table = Table.create(
                folder / name, schema=data.schema, record_key="key", partition_by="part", options=SMALL_GROUPS
            )
            loaded, _ = timed(lambda table=table: table.bulk_insert(data))
        for name, values in (("few", VALUES[:-1]), ("indexed", VALUES)):
            Table.open(folder / name).indexes.create("bitmap", [f"c{n}" for n in values], name="all")
        print(f"{count:,} rows, {len(table.scan().plan().slices)} files, bulk load {loaded:.1f} s")
        sizes(folder, data, loaded)
        queries(folder, data)
        losing(folder)
        upkeep(folder, change)


if __name__ == "__main__":
    main()
