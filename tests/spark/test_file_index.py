"""Frames whose files Python chooses while Spark plans."""

from __future__ import annotations

import datetime as dt
import gc
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.spark.error_transport import unwrapping_errors
from lakedex.spark.file_index import Generation, file_index_frame
from lakedex.spark.jvm import FileStatuses
from lakedex.spark.reader import read_files
from lakedex.spark.schema import arrow_to_spark


@dataclass(frozen=True)
class FileEntry:
    path: str
    size: int
    modified_ms: int


def statuses(entries: Sequence[FileEntry]) -> FileStatuses:
    return FileStatuses.of([e.path for e in entries], [e.size for e in entries], [e.modified_ms for e in entries])


def write(folder: Path, name: str, table: pa.Table, **options: Any) -> FileEntry:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    pq.write_table(table, path, **options)
    return FileEntry(str(path), path.stat().st_size, int(path.stat().st_mtime * 1000))


class Planner:
    """Notes the filters of each plan; drops the files that an equality on ``city`` excludes."""

    def __init__(self, entries: Sequence[FileEntry]) -> None:
        self.entries = list(entries)
        self.calls: list[list[str]] = []
        self.kept: list[int] = []
        self.lock = threading.Lock()

    def __call__(self, filters: list[str]) -> list[FileEntry]:
        wanted = [m[1] for text in filters if (m := re.fullmatch(r"\(`city` = '(\w+)'\)", text))]
        kept = [e for e in self.entries if all(f"city={city}" in e.path for city in wanted)]
        with self.lock:
            self.calls.append(filters)
            self.kept.append(len(kept))
        return kept


def trips(folder: Path, label: str = "t", cities: Sequence[str] = ("oslo", "rome", "bonn")) -> list[FileEntry]:
    return [
        write(
            folder / f"city={city}",
            f"{label}.parquet",
            pa.table({"id": [f"{label}-{city}-{x}" for x in "0123"], "city": 4 * [city],
                      "n": range(c * 10, c * 10 + 4)}),
        )
        for c, city in enumerate(cities)
    ]  # fmt: skip


TRIPS = arrow_to_spark(pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())]))


Plan = Callable[[list[str]], list[FileEntry]]


def generation(schema: StructType, plan: Plan, entries: Sequence[FileEntry] | None = None) -> Generation:
    """Files ``entries``, those without filters by default, of which ``plan`` chooses."""
    known = plan([]) if entries is None else list(entries)
    places = {entry.path: place for place, entry in enumerate(known)}

    def positions(filters: list[str]) -> np.ndarray:
        return np.array(sorted(places[entry.path] for entry in plan(filters)), dtype=np.int64)

    return Generation(physical_schema=schema, files=statuses(known), plan=positions)


def frame_of(
    spark: SparkSession, plan: Plan, folder: Path, schema: StructType = TRIPS,
    entries: Sequence[FileEntry] | None = None,
) -> DataFrame:  # fmt: skip
    return file_index_frame(
        spark, identity=f"lakedex {folder}@1", root=str(folder), table_schema=schema,
        generations=[generation(schema, plan, entries)],
    )  # fmt: skip


@pytest.mark.proves("filters of DataFrames skip files")
@pytest.mark.smoke
def test_filters_prune_and_rows_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    planner = Planner(trips(tmp_path))
    df = frame_of(spark, planner, tmp_path)
    assert df.schema == TRIPS
    assert df.count() == 12 and planner.kept[-1] == 3
    rows = df.filter("city = 'rome' and n > 11").collect()
    assert {row.n for row in rows} == {12, 13} and planner.kept[-1] == 1
    assert "(`n` > 11L)" in planner.calls[-1]
    df.createOrReplaceTempView("trips")
    assert spark.sql("select count(*) c from trips t where t.city = 'bonn'").head()[0] == 4  # type: ignore[index]
    assert planner.kept[-1] == 1
    assert spark.sql("select max(n) from (select * from trips where city = 'oslo') x where x.n < 3").head()[0] == 2  # type: ignore[index]
    assert planner.kept[-1] == 1
    assert sorted(df.inputFiles()) == sorted(f"file://{e.path}" for e in planner.entries)
    assert df.filter("city = 'nowhere'").collect() == []


def test_joins_and_subqueries(spark: SparkSession, tmp_path: Path) -> None:
    planner = Planner(trips(tmp_path))
    df = frame_of(spark, planner, tmp_path)
    df.createOrReplaceTempView("trips")
    for hint in ("", "/*+ MERGE(b) */", "/*+ BROADCAST(b) */"):
        planner.kept.clear()
        got = spark.sql(
            f"select {hint} a.id, b.n from trips a join trips b on a.id = b.id "
            "where a.city = 'rome' and b.city = 'rome'"
        )
        assert got.count() == 4
        assert set(planner.kept) == {1}
    got = spark.sql("select * from trips where n = (select max(n) from trips where city = 'oslo')").collect()
    assert [row.n for row in got] == [3]
    got = spark.sql("select * from trips where id in (select id from trips where city = 'bonn' and n > 22)").collect()
    assert [row.n for row in got] == [23]
    got = spark.sql("select city, count(*) c from trips group by city union all select 'x', 1 order by c").collect()
    assert [row.c for row in got] == [1, 4, 4, 4]


def test_tables_of_one_schema_are_never_mixed_up(spark: SparkSession, tmp_path: Path) -> None:
    a, b = Planner(trips(tmp_path / "a", "a")), Planner(trips(tmp_path / "b", "b"))
    first, second = frame_of(spark, a, tmp_path / "a"), frame_of(spark, b, tmp_path / "b")
    both = first.join(second, "city").select(first.id.alias("x"), second.id.alias("y")).collect()
    assert len(both) == 48 and {(r.x[0], r.y[0]) for r in both} == {("a", "b")}
    assert {r.id[0] for r in first.union(second).collect()} == {"a", "b"}
    first.cache()
    assert first.count() == 12
    assert {r.id[0] for r in second.collect()} == {"b"}
    again = frame_of(spark, a, tmp_path / "a")
    calls = len(a.calls)
    assert {r.id[0] for r in again.collect()} == {"a"} and len(a.calls) == calls, "same identity: the cached rows"
    first.unpersist()
    other = file_index_frame(spark, identity="later", root=str(tmp_path / "a"), table_schema=TRIPS,
                             generations=[generation(TRIPS, lambda _: b.entries)])  # fmt: skip
    assert {r.id[0] for r in first.union(other).collect()} == {"a", "b"}


def test_size_decides_joins(spark: SparkSession, tmp_path: Path) -> None:
    entries = trips(tmp_path)
    large = [FileEntry(entry.path, 1 << 50, entry.modified_ms) for entry in entries]
    huge = frame_of(spark, Planner(large), tmp_path)
    assert int(str(huge._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())) >= 1 << 50
    assert "BroadcastHashJoin" not in huge.join(huge, "id")._jdf.queryExecution().executedPlan().toString()


@pytest.mark.smoke
def test_filter_text(spark: SparkSession, tmp_path: Path) -> None:
    at = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    table = pa.table(
        {"and": ["x"], "a.b c": ["y"], "t`ick": ["z"], "s": [{"x": 1, "y z": 2}],
         "ts": pa.array([at], pa.timestamp("us", "UTC")),
         "lower": ["q"], "f": pa.array([1.5], pa.float32()), "dec": pa.array([1], pa.decimal128(10, 2)), "b": [b"\x01"]}
    )  # fmt: skip
    planner = Planner([write(tmp_path, "f.parquet", table)])
    schema = arrow_to_spark(table.schema)
    frame_of(spark, planner, tmp_path, schema).createOrReplaceTempView("odd")

    def texts(where: str) -> set[str]:
        planner.calls.clear()
        spark.sql(f"select * from odd o where {where}").collect()
        return {text for text in planner.calls[-1] if not text.endswith("IS NOT NULL)") and "isnotnull" not in text}

    assert texts("o.`and` = 'it\\'s `and` odd.and'") == {"(`and` = 'it\\'s `and` odd.and')"}
    assert texts("`a.b c` = 'y' or o.`t``ick` = 'z'") == {"((`a.b c` = 'y') OR (`t``ick` = 'z'))"}
    assert texts("s.x > 0 and s.`y z` < 9") == {"(`s`.`x` > 0L)", "(`s`.`y z` < 9L)"}
    assert texts("lower(lower) = 'q'") == {"(lower(`lower`) = 'q')"}
    assert texts("`and` like 'a%'") == {"startswith(`and`, 'a')"}
    assert texts("b = X'01'") == {"(`b` = X'01')"}
    assert texts("dec < 1.25") in ({"(`dec` < 1.25BD)"}, {"(`dec` < CAST(1.25BD AS DECIMAL(10,2)))"})
    many = ", ".join(f"'v{i}'" for i in range(300))
    (text,) = texts(f"`and` in ({many})")
    assert all(f"'v{i}'" in text for i in range(300)) and text.startswith("(`and` IN (")
    assert texts("`and` like 'x!_%y_' escape '!'") == {"`and` LIKE 'x!_%y_' ESCAPE '!'"}
    several = "`and` like 'a_b%c' or t`ick like '!%x_' escape '!' or lower(`and`) like '_\\\\%z' or `and` like '\\'_' escape '\\''"
    (text,) = texts(several.replace("t`ick", "`t``ick`"))
    assert [part.partition(" LIKE ")[2].rstrip(")") for part in text.split(" OR ")] == [
        "'a_b%c'", "'!%x_' ESCAPE '!'", "'_\\\\%z'", "'\\'_' ESCAPE '\\''"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "where", "text"),
    [
        ("UTC", "ts > timestamp '2024-07-01 00:00:00.5'", "2024-07-01 00:00:00.500000+00:00"),
        ("America/New_York", "ts > timestamp '2024-07-01 00:00:00'", "2024-07-01 04:00:00+00:00"),
        ("America/New_York", "ts > timestamp '2024-11-03 05:30:00Z'", None),
        ("America/New_York", "ts > timestamp '2024-11-03 06:30:00Z'", None),
        ("+05:30", "ts > timestamp '2024-07-01 00:00:00'", "2024-06-30 18:30:00+00:00"),
        ("UTC", "ts > timestamp '+20000-01-01 00:00:00'", None),
    ],
)
def test_timestamps_are_told_in_utc(
    spark: SparkSession, tmp_path: Path, zone: str, where: str, text: str | None
) -> None:
    at = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    table = pa.table({"ts": pa.array([at], pa.timestamp("us", "UTC")), "n": [1]})
    planner = Planner([write(tmp_path, "f.parquet", table)])
    df = frame_of(spark, planner, tmp_path, arrow_to_spark(table.schema))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df.filter(where).filter("n > 0").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    told = [t for t in planner.calls[-1] if " > TIMESTAMP" in t]
    assert told == ([f"(`ts` > TIMESTAMP '{text}')"] if text else [])
    assert "(`n` > 0L)" in planner.calls[-1]


def old_and_new(folder: Path) -> tuple[list[tuple[StructType, FileEntry]], StructType]:
    old = pa.table({"id": ["a"], "n": pa.array([1], pa.int32()), "f": pa.array([0.1], pa.float32()),
                    "d": pa.array([1], pa.decimal128(5, 2)), "s": [{"x": pa.scalar(1, pa.int32())}]},
                   schema=pa.schema([("id", pa.string()), ("n", pa.int32()), ("f", pa.float32()),
                                     ("d", pa.decimal128(5, 2)), ("s", pa.struct([("x", pa.int32())]))]))  # fmt: skip
    new = pa.table({"id": ["b"], "n": [1 << 40], "f": [0.1], "d": pa.array([123456], pa.decimal128(20, 2)),
                    "s": [{"x": 1 << 40, "y": "q"}], "extra": [7]})  # fmt: skip
    files = [
        (arrow_to_spark(table.schema), write(folder, f"{name}.parquet", table))
        for name, table in (("old", old), ("new", new))
    ]
    return files, arrow_to_spark(new.schema)


def check_generations(df: DataFrame, schema: StructType) -> None:
    assert df.schema == schema
    rows = {row.id: row.asDict(recursive=True) for row in df.collect()}
    assert rows["a"]["n"] == 1 and rows["b"]["n"] == 1 << 40
    assert rows["a"]["s"] == {"x": 1, "y": None} and rows["a"]["extra"] is None
    assert float(rows["b"]["d"]) == 123456 and float(rows["a"]["d"]) == 1
    assert [row.id for row in df.filter("n > 5").collect()] == ["b"]
    assert [row.id for row in df.filter("extra is null").collect()] == ["a"]
    assert df.select("extra").distinct().count() == 2


@pytest.mark.smoke
def test_generations(spark: SparkSession, tmp_path: Path) -> None:
    files, schema = old_and_new(tmp_path)
    planners = [Planner([entry]) for _, entry in files]
    generations = [generation(s, p) for (s, _), p in zip(files, planners, strict=True)]
    df = file_index_frame(spark, identity="g", root=str(tmp_path), table_schema=schema, generations=generations)
    check_generations(df, schema)
    planners[0].calls.clear()
    df.filter("n > 5").collect()
    assert any("`n`" in text for text in planners[0].calls[-1])
    check_generations(read_files(spark, [(e.path, s) for s, e in files], schema), schema)


def test_no_files(spark: SparkSession, tmp_path: Path) -> None:
    for df in (
        file_index_frame(spark, identity="e", root=str(tmp_path), table_schema=TRIPS, generations=[]),
        frame_of(spark, lambda _: [], tmp_path),
        read_files(spark, [], TRIPS),
    ):
        assert df.schema == TRIPS and df.collect() == [] and df.filter("n = 1").count() == 0


def test_odd_paths(spark: SparkSession, tmp_path: Path) -> None:
    cities = ["a b", "50%", "x%2Fy", "[z]", "{q,r}", "ключ", "a+b", "s*t", "c#d", "e?f", "g=h", "i\\j"]
    entries = trips(tmp_path, cities=cities)
    df = frame_of(spark, lambda _: entries, tmp_path)
    assert {row.city for row in df.collect()} == set(cities)
    planned = read_files(spark, [(entry.path, TRIPS) for entry in entries], TRIPS)
    assert {row.city for row in planned.collect()} == set(cities)
    assert planned.schema == TRIPS


def test_floats_written_without_statistics_are_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    values = [1.0, float("nan"), -0.0, 0.0, 5.0, None]
    table = pa.table({"f": pa.array(values, pa.float32()), "d": values, "n": range(6)})
    entry = write(tmp_path, "f.parquet", table, write_statistics=["n"], use_dictionary=["n"])
    df = frame_of(spark, lambda _: [entry], tmp_path, arrow_to_spark(table.schema))
    for column in ("f", "d"):
        assert df.filter(F.isnan(column)).count() == 1
        assert df.filter(F.col(column) > 4).count() == 2, "NaN is the largest"
        assert df.filter(f"{column} = 0.0D").count() == 2
        assert df.filter(f"{column} = double('NaN')").count() == 1
        assert df.filter(f"{column} is null").count() == 1


def test_old_dates_are_read_as_written(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"d": [dt.date(1200, 1, 1)], "t": pa.array([dt.datetime(1200, 1, 1)], pa.timestamp("us", "UTC"))})
    entry = write(tmp_path, "f.parquet", table)
    schema = arrow_to_spark(table.schema)
    for df in (frame_of(spark, lambda _: [entry], tmp_path, schema), read_files(spark, [(entry.path, schema)], schema)):
        assert df.selectExpr("cast(d as string)", "cast(t as string)").head()[:] == (
            "1200-01-01",
            "1200-01-01 00:00:00",
        )  # type: ignore[index]


@pytest.mark.smoke
def test_errors_of_the_planner_keep_their_message(spark: SparkSession, tmp_path: Path) -> None:
    corrupt = CorruptFileError("/t/.hoodie/metadata/files/x.hfile", 7, "magic", "zeros")

    def failing(error: Exception) -> DataFrame:
        def plan(filters: list[str]) -> list[FileEntry]:
            raise error

        return frame_of(spark, plan, tmp_path, entries=[])

    with pytest.raises(Exception, match=f"^{re.escape(str(corrupt))}$"):
        failing(corrupt).collect()
    with pytest.raises(CorruptFileError) as caught, unwrapping_errors():
        failing(corrupt).filter("n = 1").count()
    assert caught.value is corrupt
    with pytest.raises(Exception, match="^no such thing$"):
        failing(UnsupportedFeatureError("no such thing")).collect()
    with pytest.raises(Exception, match="^KeyError: 'x'$"):
        failing(KeyError("x")).collect()
    joined = spark.range(3).toDF("x").join(F.broadcast(failing(corrupt)), F.col("n") == F.col("x"))
    with pytest.raises(CorruptFileError), unwrapping_errors():
        joined.collect()


def test_many_threads_plan_at_once(spark: SparkSession, tmp_path: Path) -> None:
    planners = [Planner(trips(tmp_path / str(i), f"t{i}")) for i in range(4)]
    frames = [frame_of(spark, planner, tmp_path / str(i)) for i, planner in enumerate(planners)]

    def query(i: int) -> None:
        df = frames[i % 4]
        rows = df.join(F.broadcast(df.select("id")), "id").filter("city = 'rome'").collect()
        assert {r.id.split("-")[0] for r in rows} == {f"t{i % 4}"} and len(rows) == 4
        gc.collect()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(query, range(24)))


def test_frames_live_without_their_maker(spark: SparkSession, tmp_path: Path) -> None:
    entries = trips(tmp_path)
    frame_of(spark, Planner(entries), tmp_path).createOrReplaceTempView("kept")
    for _ in range(3):
        gc.collect()
        spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]
    assert spark.sql("select * from kept").count() == 12
    other = spark.newSession()
    assert frame_of(other, Planner(entries), tmp_path).filter("city = 'oslo'").count() == 4


def test_thousands_of_files_cross_at_once(spark: SparkSession, tmp_path: Path) -> None:
    entry = trips(tmp_path)[0]
    entries = [FileEntry(f"{os.fspath(tmp_path)}/city=x/{i:05d}.parquet", 1000 + i, 1) for i in range(3000)]
    df = frame_of(spark, lambda _: [*entries, entry], tmp_path)
    plan = df._jdf.queryExecution().executedPlan()
    assert "3001" in str(len(df.inputFiles()))
    assert plan.toString()
