"""The same jobs on a Spark cluster of two workers on this machine, and one of its executors killed in mid-write.

``local-cluster[2,1,1024]`` starts two executors as processes of their own, so rows, pickles and results really travel.
What the driver gathers is the sum of the results that tasks send it, as Spark counts them; staged input of more than
200,000 rows or 32 MiB must not be among it (``SparkEngine``): executors keep that, each row twice. One is killed
(SIGKILL) as soon as the first new base file of a merge is there and tasks are running; the write has to succeed, and
every row has to be right.

    ./dev bench scale_out [--rows 400000] [--driver-rows 200000] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.data import Generated, rows_of
from benchmarks.report import table
from benchmarks.results import Results, machine
from benchmarks.usage import children, watched
from lakedex import Table, configure_spark
from lakedex.spark import engine
from lakedex.spark.engine import DRIVER_CAP

__all__ = ["CAP_BYTES", "cluster", "scale_out"]

CAP_BYTES = DRIVER_CAP[1]
"""Staged input that the driver may hold (``SparkEngine``'s ``driver_bytes``)."""
PARTITIONS = 8


def cluster(scratch: str, workers: int = 2, memory: int = 1024) -> SparkSession:
    """A session on executors of their own processes, one core each."""
    made = SparkSession.builder.master(f"local-cluster[{workers},1,{memory}]").appName("lakedex-scale-out")
    options = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": f"{memory}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": scratch,
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in options.items():
        made = made.config(name, value)
    spark: SparkSession = configure_spark(made).getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # a killed executor is meant
    return spark


def executors() -> list[int]:
    """Process ids of the session's executors."""
    found = []
    for pid in children(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in line:
            found.append(pid)
    return found


def gathered(spark: SparkSession) -> int:
    """Bytes of all results that tasks sent to the driver so far."""
    store = spark._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    stages = {
        jobs.apply(at).stageIds().apply(n) for at in range(jobs.size()) for n in range(jobs.apply(at).stageIds().size())
    }
    total = 0
    for stage in stages:
        tasks = store.taskList(stage, 0, 10_000)
        for at in range(tasks.size()):
            metrics = tasks.apply(at).taskMetrics()
            total += metrics.get().resultSize() if metrics.isDefined() else 0
    return total


class Killer:
    """Kills an executor once a write is under way."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._tracker, self._folder = spark.sparkContext.statusTracker(), folder
        self._before = set(folder.rglob("*.parquet"))
        self.killed: int | None = None
        self.running = 0

    def look(self) -> bool:
        """Whether it did."""
        new = [path for path in self._folder.glob("*/*.parquet") if path not in self._before]
        running = self._running() if new else 0
        if running:
            victim = executors()[0]
            os.kill(victim, signal.SIGKILL)
            self.killed, self.running = victim, running
        return running > 0

    def _running(self) -> int:
        stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


def scale_out(rows: int, folder: Path) -> list[dict[str, Any]]:
    """Load, upsert of more rows than the driver may hold, upsert with an executor killed, count; a row for each."""
    spec = Generated(rows=rows, partitions=PARTITIONS)
    first = rows_of(spec, np.arange(rows))
    pq.write_table(first, folder / "load.parquet")
    for name, version in (("many", 2), ("again", 3)):
        pq.write_table(rows_of(spec, np.arange(0, rows * 3 // 4), version), folder / f"{name}.parquet")
    wanted = pc.sum(first.column("fare")).as_py()
    path = folder / "table"
    spark = cluster(str(folder / "spark"))
    try:
        made = Table.create(
            path, first.schema, name="trips", record_key="key", partition_by="city", ordering_by="ts", spark=spark
        )
        made.indexes.create("bitmap", ["zone", "status"], name="asked")
        told: list[dict[str, Any]] = []

        def step(work: str, call: Callable[[], Any], **more: Any) -> None:
            before, started = gathered(spark), time.monotonic()
            call()
            told.append(
                {"work": work, "seconds": time.monotonic() - started, "gathered": gathered(spark) - before, **more}
            )

        step("bulk load", lambda: made.bulk_insert(spark.read.parquet(str(folder / "load.parquet"))))
        step("upsert of three in four", lambda: made.upsert(spark.read.parquet(str(folder / "many.parquet"))))
        check(path, rows, wanted + rows * 3 // 4)
        killer = Killer(spark, path)
        with watched(killer.look, 0.01):
            step("the same, an executor killed", lambda: made.upsert(spark.read.parquet(str(folder / "again.parquet"))))
        told[-1] |= {"killed": killer.killed, "running": killer.running}
        check(path, rows, wanted + 2 * (rows * 3 // 4))
        where = "zone = 'z0042' AND status = 's0007'"
        step("two predicates", lambda: made.scan(where).to_spark().collect())
        return told
    finally:
        spark.stop()
        shutil.rmtree(folder / "spark", ignore_errors=True)


def check(path: Path, rows: int, total: float) -> None:
    """Stop unless the table holds what it should: each key once, and the sum of the newest values."""
    found = Table.open(path).scan(columns=["key", "fare"], use_indexes=False).to_arrow()
    keys, fares = pc.count_distinct(found.column("key")).as_py(), pc.sum(found.column("fare")).as_py()
    if found.num_rows != rows or keys != rows or abs(fares - total) > 1e-6 * total:
        raise SystemExit(f"{found.num_rows} rows, {keys} keys, sum {fares}; {rows} rows and {total} were written")


def main(given: list[str]) -> int:
    """Run and print; 1 if no executor was killed in mid-write, or the driver held more than it may."""
    parser = argparse.ArgumentParser(prog="./dev bench scale_out", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--driver-rows", type=int, default=DRIVER_CAP[0], help="of staged input that the driver holds")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(given)
    # A session's engine has no option for it: the cap is what it promises.
    engine.DRIVER_CAP = asked.driver_rows, CAP_BYTES
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=asked.folder) as made:
        told = scale_out(asked.rows, Path(made))
    cells = [[row["work"], f"{row['seconds']:.1f}", f"{row['gathered'] / 2**20:.2f}"] for row in told]
    print(table(["work on two executors", "s", "MiB that came to the driver"], cells))
    killed = [row for row in told if row.get("killed")]
    print(
        f"executor killed while {killed[0]['running']} tasks ran" if killed else "no executor was killed in mid-write"
    )
    if asked.json:
        Results(facts=machine(), tables={"scale_out": told}).write(asked.json)
    return 0 if killed and all(row["gathered"] < CAP_BYTES for row in told) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
