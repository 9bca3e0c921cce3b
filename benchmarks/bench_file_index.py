"""What Spark's planning costs with the file index: many files, many partitions, a long IN list. No data is needed.

    ./dev bench benchmarks/bench_file_index.py [files partitions]

Prints seconds of the Python side (encoding, once per frame; the bytes of one answer) and of one ``listFiles``.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakedex.spark.file_index import Generation, PartitionColumns, file_index_frame
from lakedex.spark.jvm import FileStatuses
from lakedex.spark.schema import arrow_to_spark
from lakedex.spark.session import configure_spark


@contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    print(f"{what:<58}{time.perf_counter() - started:>9.3f} s")


def main(files: int, partitions: int) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure_spark(builder.config("spark.driver.memory", "1500m")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    schema = arrow_to_spark(pa.schema([("id", pa.string()), ("p", pa.int32()), ("n", pa.int64())]))
    of_file = np.sort(np.arange(files) % partitions)
    name = "788db8b6-94e6-4157-90e3-{:012d}-0_0-3-0_20261128040851071.parquet"
    with timed(f"encode {files} file statuses, once per frame"):
        statuses = FileStatuses.of(
            (f"/nowhere/trips/p={p}/{name.format(i)}" for i, p in enumerate(of_file.tolist())),
            [1000] * files,
            [1] * files,
        )
    with timed("bytes of an answer with all files"):
        statuses.two_dimensional(np.arange(files), np.bincount(of_file))
    texts: list[list[str]] = []

    def plan(filters: list[str]) -> np.ndarray:
        texts.append(filters)
        return np.arange(files)

    columns = PartitionColumns(
        schema=StructType([schema["p"]]),
        values=pa.table({"p": pa.array(range(partitions), pa.int32())}),
        of_file=of_file,
    )
    generation = Generation(physical_schema=schema, files=statuses, plan=plan, partitions=columns)
    df = file_index_frame(spark, identity="bench", root="/nowhere/trips", table_schema=schema, generations=[generation])

    def planned(where: str, what: str) -> None:
        with timed(f"plan and listFiles: {what}"):
            scan = df.where(where)._jdf.queryExecution().sparkPlan()
            while scan.children().nonEmpty():
                scan = scan.children().head()
            kept = scan.relation().location().listFiles(scan.partitionFilters(), scan.dataFilters())
        print(f"    partitions kept {kept.size()}")

    for what in ("first", "again"):
        planned("n > 0", f"all files, {what}")
    for what in ("first", "again"):
        planned("pmod(p, 10) = 3", f"a tenth of the partitions, {what}")
    planned("p = 3", "one partition")
    for count in (1_000, 10_000):
        tracemalloc.start()
        planned(f"p = 3 and id in ({', '.join(repr(f'key-{i:08d}') for i in range(count))})", f"IN of {count}")
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        print(f"    text {max(map(len, texts[-1]))} characters, Python's peak {peak:.1f} MB")
        tracemalloc.stop()
    spark.stop()


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:3]) if len(sys.argv) == 3 else (100_000, 1_000))
