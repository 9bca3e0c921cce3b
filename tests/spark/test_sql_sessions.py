"""Frames through time: instants, schema generations, caches, threads, streams, sessions and what is left of them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakedex import Table
from spark_plans import files_read, nodes

FIRST = pa.schema(
    [("id", pa.string()), ("p", pa.string()), ("n", pa.int32()), ("f", pa.float32()), ("m", pa.decimal128(6, 2))]
)
GROWN = pa.schema(
    [("id", pa.string()), ("p", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("m", pa.decimal128(12, 2))]
)


def write(table: Table, schema: pa.Schema, ids: list[str], n: int, **extra: list[Any]) -> str:
    values = {"id": ids, "p": [name[0] for name in ids], "n": [n + i for i in range(len(ids))],
              "f": [0.5] * len(ids), "m": [Decimal("1.25")] * len(ids), **extra}  # fmt: skip
    return str(table.upsert(pa.table(values, schema=schema)).instant)


@pytest.fixture(scope="module")
def grown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, list[str]]:
    """Three generations: narrow types; wide ones; one column more."""
    path = tmp_path_factory.mktemp("grown") / "t"
    local = Table.create(path, schema=FIRST, record_key="id", partition_by="p")
    instants = [
        write(local, FIRST, ["a1", "b1", "c1"], 1),
        write(local, GROWN, ["a2", "d2"], 5_000_000_000),
        write(local, GROWN.append(pa.field("extra", pa.string())), ["b3", "e3"], 3, extra=["x", None]),
    ]
    return Table.open(path, spark=spark), instants


def ids(df: DataFrame) -> str:
    return " ".join(sorted(row.id for row in df.collect()))


def test_three_generations_of_a_schema(spark: SparkSession, grown: tuple[Table, list[str]], tmp_path: Path) -> None:
    table, _ = grown
    df = table.to_df()
    assert dict(df.dtypes) | {"n": "bigint", "f": "double", "m": "decimal(12,2)", "extra": "string"} == dict(df.dtypes)
    assert ids(df) == "a1 a2 b1 b3 c1 d2 e3"
    assert {(row.id, row.n, row.f, row.m, row.extra) for row in df.where("n < 5").collect()} == {
        (name, n, 0.5, Decimal("1.25"), extra)
        for name, n, extra in (("a1", 1, None), ("b1", 2, None), ("c1", 3, None), ("b3", 3, "x"), ("e3", 4, None))
    }
    assert ids(df.where("n > 4000000000 and m = 1.25 and f = 0.5")) == "a2 d2"
    assert ids(df.where("extra is null and p in ('b', 'e')")) == "b1 e3"
    df.createOrReplaceTempView("grown")
    few = str(tmp_path / "few")
    spark.createDataFrame([("c", 1), ("e", 2)], "p string, k int").coalesce(1).write.parquet(few)
    spark.read.parquet(few).createOrReplaceTempView("few")
    joined = spark.sql("select grown.id from grown join few on grown.p = few.p where few.k < 3")
    assert ids(joined) == "c1 e3"
    read = {folder for found in files_read(joined) for folder in found if not folder.endswith("/few")}
    assert {folder[-1] for folder in read} == {"c", "e"}, "pruned in each generation"


def test_two_instants_in_one_query(spark: SparkSession, grown: tuple[Table, list[str]]) -> None:
    table, instants = grown
    old, new = table.to_df(as_of=instants[0]), table.to_df()
    assert ids(old) == "a1 b1 c1"
    gone = new.join(old.select("id"), "id", "left_anti")
    assert ids(gone) == "a2 b3 d2 e3"
    old.cache()
    try:
        assert old.count() == 3
        assert new.count() == 7
        assert ids(old.select("id").union(new.select("id"))) == "a1 a1 a2 b1 b1 b3 c1 c1 d2 e3"
        again = table.to_df(as_of=instants[0])
        assert ids(again) == "a1 b1 c1" and nodes(again, "InMemoryTableScanExec"), "the same instant: the cached rows"
        between = table.to_df(as_of=instants[1])
        assert ids(between) == "a1 a2 b1 c1 d2"
    finally:
        old.unpersist()


def test_equal_exchanges_are_run_once_and_others_are_not(spark: SparkSession, grown: tuple[Table, list[str]]) -> None:
    table, instants = grown
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        frames = [table.to_df(as_of=when).groupBy("p").count() for when in (instants[0], instants[0], instants[1])]
        same = frames[0].union(frames[1])
        assert sorted(row["count"] for row in same.collect()) == [1] * 6 and len(nodes(same, "ReusedExchangeExec")) == 1
        other = frames[0].union(frames[2])
        assert sorted(row["count"] for row in other.collect()) == [1, 1, 1, 1, 1, 1, 2]
        assert not nodes(other, "ReusedExchangeExec")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", str(before))


def test_eight_threads_prune_partitions(spark: SparkSession, grown: tuple[Table, list[str]]) -> None:
    df = grown[0].to_df()

    def query(number: int) -> None:
        letter = "abcde"[number % 5]
        assert {row.p for row in df.where(f"lower(p) = '{letter}'").collect()} == {letter}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(query, range(16)))


def test_planning_inside_a_stream(spark: SparkSession, grown: tuple[Table, list[str]], tmp_path: Path) -> None:
    df = grown[0].to_df()
    found: list[str] = []

    def each(batch: DataFrame, number: int) -> None:
        found.append(ids(batch.join(df, "p").where("n < 4").select("id")))

    source = tmp_path / "in"
    spark.createDataFrame([("b",), ("c",)], "p string").coalesce(1).write.parquet(str(source))
    query = (
        spark.readStream.schema("p string").parquet(str(source)).writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "mark")).foreachBatch(each).start()
    )  # fmt: skip
    query.awaitTermination(120)
    assert query.exception() is None and found == ["b1 b3 c1"]


def test_streams_from_a_table_are_refused(spark: SparkSession, grown: tuple[Table, list[str]], tmp_path: Path) -> None:
    df = grown[0].to_df()
    with pytest.raises(Exception, match="(?i)can be called only on streaming"):
        df.writeStream.format("noop").start()
    df.createOrReplaceTempView("still")
    with pytest.raises(Exception, match="(?i)streaming"):
        spark.readStream.table("still").writeStream.format("noop").start()
    with pytest.raises(Exception, match="(?i)hudi"):
        streamed(spark, "hudi", grown[0].path, tmp_path / "hudi")


def streamed(spark: SparkSession, name: str, path: str, checkpoint: Path) -> None:
    writer = spark.readStream.format(name).load(path).writeStream.format("noop")
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(60)


def test_another_session_of_the_context(spark: SparkSession, grown: tuple[Table, list[str]]) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    table = Table.open(grown[0].path, spark=other)
    table.create_view("elsewhere")
    assert ids(other.sql("select id from elsewhere where p = 'a'")) == "a1 a2"
    assert not spark.catalog.tableExists("elsewhere")


def pool(spark: SparkSession) -> Iterator[int]:
    """How many proxies Python keeps for the JVM, again and again while the JVM collects its garbage."""
    gateway: Any = spark.sparkContext._gateway
    for _ in range(40):
        gc.collect()
        gateway.jvm.System.gc()
        gateway.jvm.System.runFinalization()
        yield len(gateway.gateway_property.pool)
        time.sleep(0.1)


def settled_pool(spark: SparkSession) -> int:
    """The size of the pool when nothing has left it for a while."""
    sizes: list[int] = []
    for size in pool(spark):
        sizes.append(size)
        if len(sizes) > 8 and min(sizes[-8:]) >= min(sizes[:-8]):
            break
    return min(sizes)


def test_dropped_frames_leave_nothing_behind(spark: SparkSession, grown: tuple[Table, list[str]]) -> None:
    table, _ = grown
    table.to_df().where("p = 'a'").collect()
    spark.catalog.clearCache()
    before = settled_pool(spark)
    for _ in range(15):
        table.to_df().where("p = 'a'").collect()
    for name in ("grown", "still", "left"):
        table.to_df().createOrReplaceTempView(name)
        spark.catalog.dropTempView(name)
    # A few stay for as long as Spark remembers the last query.
    assert any(size <= before + 6 for size in pool(spark)), "45 frames were dropped"


RESTART = """
import sys
from pyspark.sql import SparkSession
from lakedex import Table
from lakedex.spark.session import configure_spark

def session():
    made = configure_spark(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "800m")
        .config("spark.sql.shuffle.partitions", "1")).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made

for round in range(2):
    spark = session()
    table = Table.open(sys.argv[1], spark=spark)
    table.create_view("t")
    print("rows", sorted(row.id for row in spark.sql("select id from t where p = 'a'").collect()))
    stale = table.to_df()
    spark.stop()
try:
    stale.collect()
except Exception as error:
    print("stopped", type(error).__name__)
"""


def test_a_session_is_stopped_and_started_again(spark: SparkSession, grown: tuple[Table, list[str]]) -> None:
    done = subprocess.run([sys.executable, "-c", RESTART, grown[0].path], capture_output=True, text=True,
                          timeout=240, check=False, env=dict(os.environ))  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:2] == ["rows ['a1', 'a2']"] * 2 and lines[2].startswith("stopped"), done.stdout + done.stderr[-2000:]
