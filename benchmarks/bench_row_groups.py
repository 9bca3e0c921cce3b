"""Row groups left out of Spark's own reader by a bitmap index, and counts without a job, in Spark SQL: bytes, seconds.

Each value of ``k`` lies in a few row groups, between two values that all of them have, so neither column stats nor
Parquet's own statistics can tell them apart. Before the index every row group is read; then only those with the value.

    ./dev bench benchmarks/bench_row_groups.py [rows]      default: 1000000
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lakedex import Table, configure_spark, register_catalog

RUNS = 5
FILES = 2
RUN = 2000
"""Rows in a row that share a value, as rows of one day or one upload do."""
OPTIONS = {"hoodie.parquet.small.file.limit": "0", "hoodie.parquet.block.size": str(2 << 20)}


def made(first: int, rows: int, partition: str) -> pa.Table:
    number = np.arange(first, first + rows)
    values = np.where(number % RUN == 0, "a", np.where(number % RUN == 1, "z", np.char.mod("m%05d", number // RUN)))
    pads = [hashlib.sha1(int(n).to_bytes(8, "big")).hexdigest() for n in number]
    ids = np.char.mod("k%09d", number)
    return pa.table({"id": ids, "p": [partition] * rows, "k": values, "n": number, "pad": pads})


def measured(spark: SparkSession, query: str) -> tuple[Any, int, float]:
    """Result, bytes given to tasks, median seconds."""
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        frame = spark.sql(query)
        found = frame.collect()
        seconds.append(time.perf_counter() - started)
    plan = frame._jdf.queryExecution().executedPlan()
    plan = plan.executedPlan() if hasattr(plan, "executedPlan") and "Adaptive" in plan.getClass().getName() else plan
    leaf = plan.collectLeaves().head()
    while "QueryStage" in leaf.getClass().getName():
        leaf = leaf.plan().collectLeaves().head()
    inputs = leaf.batch().planInputPartitions() if "BatchScan" in leaf.getClass().getName() else []
    return found, sum(file.length() for part in inputs for file in part.files()), statistics.median(seconds)


def main(rows: int) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1500m")
    spark = configure_spark(builder.config("spark.ui.enabled", "false")).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        own = rows // FILES
        schema = made(0, 1, "0").schema
        table = Table.create(Path(folder) / "t", schema, record_key="id", partition_by="p", options=OPTIONS)
        for number in range(FILES):
            table.bulk_insert(made(number * own, own, str(number)), options=OPTIONS)
        # A file that is rewritten gets row groups of 65,536 rows, a small one that is new a single one.
        first = [made(number * own, 1, str(number)) for number in range(FILES)]
        table.upsert(pa.concat_tables(first), options=OPTIONS)
        register_catalog(spark, "bench", folder)
        value = f"m{(rows // 2 + 10 * RUN) // RUN:05d}"
        query = f"select count(pad), max(n) from bench.t where k = '{value}' and n >= 0"
        print(f"Spark {spark.version}, {rows:,} rows, {FILES} files")
        print("\n| | bytes given to tasks | ms |\n| --- | --- | --- |")
        asked = (("rows", query), ("count", f"select count(*), max(k) from bench.t where k > '{value}'"))
        before = [measured(spark, text) for _, text in asked]
        started = time.perf_counter()
        spark.sql("create index ks on bench.t using bitmap (k)")
        built = time.perf_counter() - started
        after = [measured(spark, text) for _, text in asked]
        if [found for found, _, _ in before] != [found for found, _, _ in after]:
            raise SystemExit(f"{before} before, {after} with the index")
        for when, figures in (("no index", before), ("bitmap index", after)):
            for (what, _), (_, size, seconds) in zip(asked, figures, strict=True):
                print(f"| {what}, {when} | {size:,} | {seconds * 1000:,.0f} |")
        print(f"\nbuilt in {built:.1f} s; same answers: {[found for found, _, _ in after]}")
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
