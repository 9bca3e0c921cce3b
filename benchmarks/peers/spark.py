"""Spark as the engines beside us get it, and its own Parquet: the limit of a bulk load."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from benchmarks.data import Workload
from benchmarks.peers.protocol import Peer, Settings

__all__ = ["SparkParquet", "SparkPeer", "builder"]


def builder(settings: Settings) -> Any:
    """A session builder with what is the same for all: cores, heap, width of a shuffle."""
    options = {
        "spark.driver.memory": settings.memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": os.path.join(settings.scratch, "spark"),
        "spark.sql.warehouse.dir": os.path.join(settings.scratch, "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Two tasks a core. Spark's 200 would cost those most that shuffle most.
        "spark.sql.shuffle.partitions": str(2 * settings.cores),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if settings.ivy:
        options["spark.jars.ivy"] = settings.ivy
    made = SparkSession.builder.master(f"local[{settings.cores}]").appName("lakedex-bench")
    for name, value in options.items():
        made = made.config(name, value)
    return made


class SparkPeer(Peer):
    """An engine in a Spark session; asked by SQL over a view of its table."""

    spark: SparkSession
    packages = ""
    conf: Mapping[str, str] = {}
    source = ""
    read_options: Mapping[str, str] = {}

    def start(self) -> None:
        """Start Spark, and run a job."""
        made = builder(self.settings)
        if self.packages:
            made = made.config("spark.jars.packages", self.packages)
        for name, value in self.conf.items():
            made = made.config(name, value)
        self.spark = self.session(made)
        self.spark.sparkContext.setLogLevel("ERROR")
        self.spark.range(1000).selectExpr("sum(id)").collect()

    def session(self, made: Any) -> SparkSession:
        """The session of a builder."""
        found: SparkSession = made.getOrCreate()
        return found

    def stop(self) -> None:
        """Stop Spark."""
        self.spark.stop()
        shutil.rmtree(os.path.join(self.settings.scratch, "spark"), ignore_errors=True)

    def versions(self) -> Mapping[str, str]:
        """Spark's, and that of the jar."""
        jvm = self.spark._jvm
        java = jvm.System.getProperty("java.version") if jvm is not None else ""
        return {"pyspark": pyspark.__version__, "java": java, **({"jar": self.packages} if self.packages else {})}

    def counted(self) -> dict[str, int]:
        """Spark's jobs and tasks."""
        jobs = self.spark._jsc.sc().statusStore().jobsList(None)
        found = [jobs.apply(place) for place in range(jobs.size())]
        return {"spark_jobs": len(found), "spark_tasks": sum(job.numCompletedTasks() for job in found)}

    def rows(self, path: str) -> DataFrame:
        """The rows of an input file."""
        return self.spark.read.parquet(path)

    def frame(self, path: str) -> DataFrame:
        """The table as it is now."""
        return self.spark.read.format(self.source).options(**self.read_options).load(path)

    def relation(self, work: Workload, path: str) -> str:
        """What stands after FROM."""
        return "asked"

    def open(self, work: Workload, path: str) -> None:
        """Make the view anew."""
        self.frame(path).createOrReplaceTempView("asked")

    def ask(self, work: Workload, path: str, question: str) -> int:
        """By SQL; rows are collected."""
        what = "count(*)" if question == "count" else "*"
        found = self.spark.sql(f"SELECT {what} FROM {self.relation(work, path)} WHERE {work.sql(question)}").collect()
        return int(found[0][0]) if question == "count" else len(found)

    def read(self, work: Workload, path: str) -> int:
        """By SQL, a number of all columns together."""
        self.open(work, path)
        text = f"SELECT count(*), bit_xor(xxhash64(*)) FROM {self.relation(work, path)}"
        return int(self.spark.sql(text).collect()[0][0])

    def checksum(self, work: Workload, path: str) -> tuple[int, float]:
        """By SQL."""
        self.open(work, path)
        text = f"SELECT count(*), sum({work.value}) FROM {self.relation(work, path)}"
        count, total = self.spark.sql(text).collect()[0]
        return int(count), float(total)


class SparkParquet(SparkPeer):
    """Spark's own partitioned Parquet: no keys, no index, no commit."""

    name = "spark-parquet"
    title = "Spark, partitioned Parquet (limit)"
    steps = ("load", "by_key", "both", "count")
    source = "parquet"

    def load(self, work: Workload, path: str) -> None:
        """``df.write.partitionBy(…).parquet``."""
        self.rows(work.load).write.partitionBy(work.partition).parquet(path)
