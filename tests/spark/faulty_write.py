"""Run by test_faults.py as a program: writes whose tasks fail after their file is written, or run twice.

faulty_write.py <folder>: a table in it for each kind of fault
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lakedex import Table, configure_spark
from lakedex.engine import BatchMap, Frame, current_task
from lakedex.spark.engine import SparkEngine
from lakedex.write.file_group_tasks import WriteFileGroups


@dataclass(frozen=True)
class FailsOnce:
    """The first attempt of each task dies when its files are there."""

    inner: Any

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = list(self.inner(batches))
        if current_task().attempt == 0 and results:
            raise OSError("the executor lost its connection")
        yield from results


@dataclass(frozen=True)
class RunsTwice:
    """Each task runs once more under another attempt number, as a speculative copy does; the second one counts."""

    inner: Any

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        list(self.inner(iter(held)))
        from lakedex.engine import in_task

        token = in_task.set(replace(current_task(), attempt=current_task().attempt + 100))
        try:
            yield from self.inner(iter(held))
        finally:
            in_task.reset(token)


KINDS: dict[str, type] = {"fail": FailsOnce, "twice": RunsTwice}


class FaultyEngine(SparkEngine):
    """Wraps the write stage."""

    wrapper: type = FailsOnce

    def map(self, frame: Frame, fn: BatchMap) -> Frame:
        return super().map(frame, self.wrapper(fn) if isinstance(fn, WriteFileGroups) else fn)


def write(spark: SparkSession, kind: str, path: str) -> None:
    table = Table.create(path, record_key="id", partition_by="p", ordering_by="ts", spark=spark)
    table.bulk_insert(spark.sql("select cast(id as string) id, concat('p', id % 5) p, 1L ts, id n from range(200)"))
    engine = FaultyEngine(spark, driver_rows=0, driver_bytes=0)
    engine.wrapper = KINDS[kind]
    table.context.engine = engine
    change = spark.sql("select cast(id as string) id, concat('p', id % 5) p, 2L ts, -1L n from range(100, 250)")
    result = table.upsert(change)
    print(f"{kind} RESULT {result.inserted} {result.updated} {result.files_written}")
    print(f"{kind} COUNT {table.to_df().count()} {table.to_df().where('n = -1').count()}")


def main() -> None:
    (folder,) = sys.argv[1:]
    # Attempts of a task that the tests' own session does not have.
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1")
    spark = configure_spark(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for kind in KINDS:
        try:
            write(spark, kind, f"{folder}/{kind}")
        except Exception:
            traceback.print_exc()
    spark.stop()


if __name__ == "__main__":
    main()
