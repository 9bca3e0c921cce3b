"""Stages on Spark and on the driver."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakedex.arrow_types import ArrowFrame
from lakedex.engine import Engine, TaskId, current_task
from lakedex.errors import CommitConflictError, CorruptFileError, FileGoneError, InvalidInputError
from lakedex.io.storage import storage_error
from lakedex.local.engine import LocalEngine
from lakedex.spark.engine import DRIVER_CAP, SparkEngine, SparkFrame

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclasses.dataclass(frozen=True)
class Tag:
    """Adds the task's identity and the position in it; leaves a file behind for each run."""

    found: pa.Schema
    log: str | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.found.append(pa.field("task", pa.string())).append(pa.field("pos", pa.int64()))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{current_task()}\n")
        start = 0
        for batch in batches:
            assert batch.schema.equals(self.found), batch.schema
            n = batch.num_rows
            columns = [
                *batch.columns,
                pa.array([str(current_task())] * n),
                pa.array(range(start, start + n), pa.int64()),
            ]
            start += n
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclasses.dataclass(frozen=True)
class Same:
    """Changes nothing."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches


@dataclasses.dataclass(frozen=True)
class Sums:
    """One row for each task: its keys, in the order they came."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("keys", pa.list_(pa.int64())), ("task", pa.string())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [key for batch in batches for key in batch["k"].to_pylist()]
        if keys:
            yield pa.RecordBatch.from_pylist([{"keys": keys, "task": str(current_task())}], schema=self.schema)


@dataclasses.dataclass(frozen=True)
class Fails:
    error: Exception
    found: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.found

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise self.error
        yield from ()


@pytest.fixture(params=["spark", "spark-small", "local"])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> Engine:
    """The Spark engine with and without a driver path, and the local one."""
    if request.param == "local":
        return LocalEngine(2)
    return SparkEngine(spark) if request.param == "spark-small" else SparkEngine(spark, driver_rows=-1, driver_bytes=1)


def rich_table(n: int = 50) -> pa.Table:
    at, utc = dt.datetime(2024, 3, 10, 7, 30, 0, 123456, tzinfo=dt.UTC), pa.timestamp("us", "UTC")
    rows = [None if i % 7 == 6 else i for i in range(n)]
    return pa.table(
        {
            "k": pa.array(range(n), pa.int64()),
            "i8": pa.array([None if r is None else r % 100 for r in rows], pa.int8()),
            "i16": pa.array(rows, pa.int16()),
            "f": pa.array([float("nan") if r == 3 else r for r in rows], pa.float32()),
            "s": pa.array([None if r is None else f"ключ\U0001f600{r}" for r in rows]),
            "b": pa.array([None if r is None else bytes([r]) for r in rows], pa.binary()),
            "d": pa.array([None if r is None else dt.date(1500, 1, 1) + dt.timedelta(r) for r in rows]),
            "ts": pa.array([None if r is None else at + dt.timedelta(hours=r) for r in rows], utc),
            "ntz": pa.array([None if r is None else at.replace(tzinfo=None) for r in rows], pa.timestamp("us")),
            "dec": pa.array([None if r is None else Decimal(r) / 4 for r in rows], pa.decimal128(20, 3)),
            "l": pa.array([None if r is None else [r, None] for r in rows], pa.list_(pa.field("element", pa.int32()))),
            "st": pa.array([None if r is None else {"x": r, "y": [at]} for r in rows],
                           pa.struct([("x", pa.int64()), ("y", pa.list_(pa.field("element", utc)))])),
            "m": pa.array([None if r is None else [("a", r)] for r in rows], pa.map_(pa.string(), pa.int64())),
        }
    )  # fmt: skip


def by_key(table: pa.Table) -> pa.Table:
    return table.sort_by("k").combine_chunks()


@pytest.mark.smoke
def test_every_type_survives_a_stage(engine: Engine) -> None:
    table = rich_table()
    frame = engine.stage(table, Tag(table.schema))
    out = by_key(engine.collect(frame))
    assert frame.schema == out.schema == Tag(table.schema).schema
    assert out.select(table.column_names).to_pylist().__repr__() == table.to_pylist().__repr__()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_session_zone_does_not_move_timestamps(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        table = rich_table().select(["k", "ts", "ntz", "st"])
        engine = SparkEngine(spark, driver_rows=-1, driver_bytes=1)
        staged = engine.map(engine.stage(table, Same(table.schema)), Tag(table.schema))
        assert by_key(engine.collect(staged)).select(table.column_names).equals(table)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_small_spark_frame_is_prepared_once_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([(i, str(i)) for i in range(10)], "k long, s string").coalesce(1)
    small = spark.range(0, 100, 1, 2).select(F.col("id").alias("k"), F.rand().alias("r"))
    for frame, kind in ((small, ArrowFrame), (df, ArrowFrame)):
        log = tmp_path / f"log-{frame.columns[1]}"
        engine = SparkEngine(spark)
        staged = engine.stage(frame, Tag(engine.schema_of(frame), str(log)))
        assert isinstance(staged, kind)
        assert engine.collect(staged).equals(engine.collect(staged))
        engine.collect(engine.map(staged, Sums()))
        lines = log.read_text().splitlines()
        assert len(lines) == 1


def test_large_frame_is_prepared_once_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = SparkEngine(spark, driver_rows=10, driver_bytes=DRIVER_CAP[1])
    df = spark.range(0, 5_000_000, 1, 3).where("id % 1000 = 0").select(F.col("id").alias("k"), F.rand().alias("r"))
    staged = engine.stage(df, Tag(engine.schema_of(df), str(log)))
    assert isinstance(staged, SparkFrame) and staged.kept
    first, second = engine.collect(staged), engine.collect(staged)
    assert first.num_rows == 5000 and first.equals(second)
    engine.collect(engine.map(engine.exchange(staged, "task", 2, ["k"]), Sums()))
    assert len(log.read_text().splitlines()) == 3
    persistent = spark.sparkContext._jsc.getPersistentRDDs().size()
    engine.release(staged)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == persistent - 1


def test_rows_that_turn_out_few_come_to_the_driver(spark: SparkSession) -> None:
    engine = SparkEngine(spark, driver_rows=DRIVER_CAP[0], driver_bytes=DRIVER_CAP[1])
    df = spark.range(0, 50_000_000, 1, 2).where("id < 7").withColumnRenamed("id", "k")
    staged = engine.stage(df, Tag(engine.schema_of(df)))
    assert isinstance(staged, ArrowFrame) and staged.num_rows == 7
    exploded = spark.range(1).select(F.explode(F.sequence(F.lit(1), F.lit(300_000))).alias("k"))
    staged = engine.stage(exploded, Tag(engine.schema_of(exploded)))
    assert isinstance(staged, SparkFrame)
    engine.release(staged)


def test_pandas_and_other_frames(engine: Engine) -> None:
    """Their schema is told in the types of tables; they are staged in their own."""
    times = pd.to_datetime(["2024-01-01 00:00:00.123456"] * 2).astype("datetime64[ns]")
    frame = pd.DataFrame({"k": [1, 2], "s": ["a", None], "t": times})
    schema = engine.schema_of(frame)
    assert schema == pa.schema([("k", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us"))])
    read = engine.read_frame(frame)
    text = read.schema.field("s").type  # It depends on the version of pandas.
    assert text in (pa.string(), pa.large_string())
    assert read.schema == pa.schema([("k", pa.int64()), ("s", text), ("t", pa.timestamp("ns"))])
    out = by_key(engine.collect(engine.stage(read, Tag(read.schema))))
    assert out["s"].to_pylist() == ["a", None]
    assert out["t"].to_pylist()[0] == dt.datetime(2024, 1, 1, 0, 0, 0, 123456)
    with pytest.raises(InvalidInputError, match="a list has dicts"):
        engine.stage([1, 2], Tag(schema))
    with pytest.raises(InvalidInputError, match="str is not a frame"):
        engine.schema_of("trips")


def test_exchange_brings_equal_values_together_sorted(engine: Engine) -> None:
    n = 1000
    table = pa.table(
        {"k": pa.array(range(n), pa.int64()), "g": pa.array([i * 7 % 12 for i in range(n)], pa.int32()),
         "s": [f"g{i * 7 % 12}" for i in range(n)], "o": [n - i for i in range(n)]}
    )  # fmt: skip
    staged = engine.stage(table, Tag(table.schema))
    for by, tasks in (("g", 12), ("g", 5), ("g", 100), ("s", 3), ("g", 1)):
        out = engine.collect(engine.map(engine.exchange(staged, by, tasks, ["o"]), Sums()))
        seen: list[Any] = []
        assert len(out) <= tasks
        if (by, tasks) in {("g", 12), ("g", 100)}:
            assert len(out) == 12, "each group its own task"
        for keys in out["keys"].to_pylist():
            values = pc.take(table[by], pa.array(keys)).to_pylist()
            assert values == sorted(values)
            for value in set(values):
                mine = [k for k, v in zip(keys, values, strict=True) if v == value]
                assert mine == sorted(mine, reverse=True)
                seen.append(value)
        assert sorted(seen) == sorted(set(table[by].to_pylist()))


def test_exchange_of_nulls_and_nothing(engine: Engine) -> None:
    table = pa.table({"k": pa.array([1, 2, 3], pa.int64()), "g": pa.array([None, 1, None], pa.int32())})
    staged = engine.stage(table, Tag(table.schema))
    out = engine.collect(engine.map(engine.exchange(staged, "g", 3), Sums()))
    assert sorted(sorted(keys) for keys in out["keys"].to_pylist()) == [[1, 3], [2]]
    empty = engine.stage(table.slice(0, 0), Tag(table.schema))
    assert engine.collect(engine.map(engine.exchange(empty, "g", 3), Sums())).num_rows == 0


def test_join(engine: Engine) -> None:
    table = rich_table()
    left = engine.stage(table.select(["k", "s", "i8"]), Tag(table.select(["k", "s", "i8"]).schema))
    right_table = table.select(["k", "s", "l", "st", "m", "ts"]).slice(10, 20)
    for right in (engine.from_arrow(right_table), engine.stage(right_table, Same(right_table.schema))):
        out = by_key(engine.collect(engine.join(left, right, ["k", "s"])))
        assert out.column_names[:5] == ["k", "s", "i8", "task", "pos"]
        assert out["k"].to_pylist() == list(range(50))
        want = [row if 10 <= i < 30 and row is not None else None for i, row in enumerate(table["st"].to_pylist())]
        assert out["st"].to_pylist() == want
        want = [row if 10 <= i < 30 and row is not None else None for i, row in enumerate(table["m"].to_pylist())]
        assert out["m"].to_pylist() == want


def test_join_of_mixed_kinds(spark: SparkSession) -> None:
    table = rich_table()
    far, near = SparkEngine(spark, driver_rows=-1, driver_bytes=1), SparkEngine(spark)
    for left_engine, right_engine in ((far, near), (near, far)):
        left = left_engine.stage(table.select(["k", "ts"]), Tag(table.select(["k", "ts"]).schema))
        right = right_engine.from_arrow(table.select(["k", "m", "d"]).slice(5, 5))
        if right_engine is far:
            right = SparkFrame(far.to_dataframe(right), right.schema)
        out = by_key(near.collect(near.join(left, right, ["k"])))
        assert [k for k, d in zip(out["k"].to_pylist(), out["d"].to_pylist(), strict=True) if d] == [5, 7, 8, 9]
        assert out["ts"].equals(table["ts"])


def work(item: Any) -> Any:
    if isinstance(item, Exception):
        raise item
    return item, str(current_task())


def test_run(engine: Engine) -> None:
    assert engine.run(work, []) == []
    assert engine.run(work, ["x"])[0][0] == "x"
    items = [{"n": i, "table": rich_table(3)} for i in range(5)]
    out = engine.run(work, items)
    assert [value["n"] for value, _ in out] == list(range(5))
    assert len({task for _, task in out}) == 5
    captured = 3
    assert engine.run(lambda x: x + captured, [1, 2]) == [4, 5]


@pytest.mark.parametrize("n", [1, 3])
def test_errors_of_tasks_keep_their_class(engine: Engine, n: int) -> None:
    error = CorruptFileError("/t/f.parquet", 12, "magic", "zeros")
    with pytest.raises(CorruptFileError, match="corrupt at byte 12") as caught:
        engine.run(work, [error, *range(n - 1)])
    assert caught.value.offset == 12
    assert current_task() == TaskId()


@pytest.mark.smoke
def test_errors_of_maps_keep_their_class(engine: Engine) -> None:
    table = rich_table()
    error = InvalidInputError("column 'k': 3 keys are null", column="k", count=3)
    with pytest.raises(InvalidInputError, match="^column 'k': 3 keys are null$") as caught:
        engine.collect(engine.stage(table, Fails(error, table.schema)))
    assert caught.value.count == 3  # type: ignore[attr-defined]
    exchanged = engine.exchange(engine.stage(table, Tag(table.schema)), "k", 5)
    with pytest.raises(InvalidInputError, match="^column 'k': 3 keys are null$"):
        engine.collect(engine.map(exchanged, Fails(error, exchanged.schema)))


def test_retryable_errors_are_left_to_spark(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    error = CommitConflictError("busy", retryable=True)
    with pytest.raises(Exception, match="busy") as caught:
        engine.run(work, [error, 1])
    assert not isinstance(caught.value, CommitConflictError)


def test_failures_of_storage_are_named_once_spark_has_tried_again(spark: SparkSession) -> None:
    error = storage_error("read", "/t/f.parquet", FileNotFoundError(errno.ENOENT, "No such file or directory"))
    with pytest.raises(FileGoneError, match="the cleaner may have removed it") as caught:
        SparkEngine(spark).run(work, [error, 1])
    assert (caught.value.path, caught.value.errno) == ("/t/f.parquet", errno.ENOENT)


def test_exchanged_partitions_run_on_executors(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    table = rich_table()
    exchanged = engine.exchange(engine.from_arrow(table), "k", 4)
    assert isinstance(exchanged, ArrowFrame) and len(exchanged.partitions) == 4
    out = engine.collect(engine.map(exchanged, Tag(table.schema)))
    assert out.select(table.column_names).to_pylist().__repr__() == table.to_pylist().__repr__()
    assert {task.split("-")[0] for task in out["task"].to_pylist()} == {"0", "1", "2", "3"}


def test_schema_of_rejects_what_a_table_cannot_hold(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    for expression in ("interval 1 day as c", "make_interval(1) as c", "struct(interval 1 day as x) as c"):
        with pytest.raises(InvalidInputError, match="column 'c"):
            engine.schema_of(spark.range(1).selectExpr(expression))
    with pytest.raises(InvalidInputError, match="'id' occurs twice"):
        engine.schema_of(spark.range(1).selectExpr("id", "id"))
    with pytest.raises(InvalidInputError, match="time64"):
        engine.schema_of(pa.table({"c": pa.array([1], pa.time64("us"))}))
    assert engine.schema_of(spark.range(1).selectExpr("null as c")).field("c").type == pa.null()
    assert engine.name == "spark" and engine.parallelism == 2


def test_small_stage_needs_no_job(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    table = rich_table()
    spark.sparkContext.setJobGroup("lakedex-test-none", "")
    try:
        engine.collect(engine.map(engine.exchange(engine.stage(table, Tag(table.schema)), "k", 2), Sums()))
        assert engine.run(work, ["x"])[0][0] == "x"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("lakedex-test-none")) == []
