"""Rows that Spark reads and shuffles for row-level statements of SQL, beside those of ``Table.merge``.

The keys lie in the order of the files. The source has some keys of one file, and two new ones. Counted are the records
that stages read, of files and of kept rows, and that they write to shuffles.

    ./dev bench row_level [--rows 200000] [--files 20] [--source 300] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.report import table
from benchmarks.results import Results, machine
from lakedex import Table, configure_spark, register_catalog

__all__ = ["Work", "row_level"]

BUILDER = "t.merge"
ON = "MERGE INTO bench_rows.t USING bench_source s ON t.id = s.id"


@dataclass(frozen=True, slots=True)
class Work:
    """What a statement took, in rows."""

    statement: str
    read: int
    shuffled: int


def counted(spark: SparkSession, statement: str, run: Callable[[], object]) -> Work:
    """Run a statement and count the rows of its stages."""
    context = spark.sparkContext._jsc.sc()
    store = context.statusStore()
    others = (False, False, getattr(store, "stageList$default$4")(), getattr(store, "stageList$default$5")())

    def totals() -> tuple[int, int]:
        context.listenerBus().waitUntilEmpty()
        stages = store.stageList(None, *others)
        found = [stages.apply(number) for number in range(stages.size())]
        return sum(one.inputRecords() for one in found), sum(one.shuffleWriteRecords() for one in found)

    before = totals()
    run()
    after = totals()
    return Work(statement, after[0] - before[0], after[1] - before[1])


def row_level(spark: SparkSession, folder: Path, rows: int, files: int, source: int) -> list[Work]:
    """Run each statement on a table of its own; the builder's comes first."""
    each = rows // files
    parts = [
        pa.table({"id": pa.array([f"k{n:09}" for n in range(at, at + each)]), "n": pa.array(range(at, at + each))})
        for at in range(0, rows, each)
    ]
    keys = [f"k{each * (files // 2) + number:09}" for number in range(source - 2)] + ["n1", "n2"]
    frame = spark.createDataFrame([(key, -1) for key in keys], "id string, n long")
    frame.write.mode("overwrite").parquet(str(folder / "source"))
    spark.read.parquet(str(folder / "source")).createOrReplaceTempView("bench_source")
    path = folder / "lake" / "t"
    register_catalog(spark, "bench_rows", str(folder / "lake"))

    def merge() -> Any:
        builder = Table.open(path, spark=spark).merge(spark.table("bench_source"), "t.id = s.id")
        return builder.when_matched_update_all().when_not_matched_insert_all().execute()

    done = []
    for statement in (
        BUILDER,
        f"{ON} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        f"{ON} WHEN MATCHED THEN UPDATE SET *",
        f"{ON} WHEN NOT MATCHED THEN INSERT *",
        "UPDATE bench_rows.t SET n = 1 WHERE id IN (SELECT id FROM bench_source)",
        f"UPDATE bench_rows.t SET n = 1 WHERE id BETWEEN '{keys[0]}' AND '{keys[-3]}'",
        "DELETE FROM bench_rows.t WHERE EXISTS (SELECT 1 FROM bench_source s WHERE s.id = t.id)",
    ):
        made = Table.create(path, parts[0].schema, record_key="id", options={"hoodie.parquet.small.file.limit": "0"})
        for part in parts:
            made.bulk_insert(part)
        done.append(counted(spark, statement, merge if statement == BUILDER else partial(spark.sql, statement)))
        spark.sql("DROP TABLE bench_rows.t")
    return done


def main(given: list[str]) -> int:
    """Run and print; 1 if the MERGE reads a tenth more than the builder, or shuffles more than two rows more."""
    parser = argparse.ArgumentParser(prog="./dev bench row_level", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--source", type=int, default=300)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(given)
    spark = configure_spark(SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "4"))
    session = spark.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as made:
        told = row_level(session, Path(made), asked.rows, asked.files, asked.source)
    print(f"Spark {session.version}, {asked.rows:,} rows in {asked.files} files, a source of {asked.source}")
    print(
        table(
            ["statement", "read", "shuffled"], [[one.statement, f"{one.read:,}", f"{one.shuffled:,}"] for one in told]
        )
    )
    session.stop()
    if asked.json:
        Results(facts=machine(), tables={"row_level": [asdict(one) for one in told]}).write(asked.json)
    builder, merged = told[:2]
    return 0 if merged.read <= 1.1 * builder.read and merged.shuffled <= builder.shuffled + 2 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
