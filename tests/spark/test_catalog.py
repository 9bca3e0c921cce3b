"""The Spark SQL catalog: names, reads that skip files, time travel, and what keeps queries apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

from lakedex import Table, configure_spark, register_catalog
from lakedex.errors import InvalidInputError, OptionError
from lakedex.spark.error_transport import unwrapping_errors

OWN_FILES = {"hoodie.parquet.small.file.limit": "0"}
TRIPS = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("n", pa.int32())])


def batch(*rows: tuple[Any, ...], schema: pa.Schema = TRIPS) -> pa.Table:
    return pa.table([pa.array(list(c), f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one table of four files: ``trips``."""
    warehouse = tmp_path_factory.mktemp("lake")
    table = Table.create(
        warehouse / "trips", TRIPS, record_key="id", partition_by="city", ordering_by="ts", options=OWN_FILES
    )
    table.insert(batch(("a", "oslo", 1, 1), ("b", "oslo", 1, 2)))
    table.insert(batch(("c", "rome", 1, 3), ("d", "rome", 1, 4)))
    table.insert(batch(("e", "rome", 1, 50), ("f", "rome", 1, 60)))
    table.insert(batch(("g", "bonn", 1, 7)))
    register_catalog(spark, "lake", str(warehouse))
    return warehouse


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Any]:
    """Settings of the session, put back."""
    changed: list[str] = []

    def change(name: str, value: str) -> None:
        changed.append(name)
        spark.conf.set(name, value)

    yield change
    for name in changed:
        spark.conf.unset(name)


def values(spark: SparkSession, query: str) -> list[Any]:
    return sorted((tuple(row) if len(row) > 1 else row[0] for row in spark.sql(query).collect()), key=repr)


def files_kept(spark: SparkSession, query: str) -> tuple[int, int]:
    plan = spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()
    described = spark.sql(f"EXPLAIN FORMATTED {query}").head()
    assert described is not None
    found = re.search(r"(\d+) of (\d+) files", described[0])
    assert found is not None, described[0] + plan
    return int(found[1]), int(found[2])


def test_filters_leave_files_out_and_rows_are_exact(spark: SparkSession, lake: Path) -> None:
    assert values(spark, "select id from lake.trips") == list("abcdefg")
    for where, kept, ids in (
        ("city = 'rome'", 2, "cdef"),
        ("city = 'rome' and n > 10", 1, "ef"),
        ("n between 4 and 7", 2, "dg"),
        ("id = 'a' or city = 'bonn'", 2, "ag"),
        ("n + 0 = 4", 4, "d"),
        ("_hoodie_partition_path = 'city=bonn'", 1, "g"),
    ):
        query = f"select id from lake.trips where {where}"
        assert values(spark, query) == list(ids)
        assert files_kept(spark, query)[0] <= kept and files_kept(spark, query)[1] == 4


def test_columns_and_meta_columns(spark: SparkSession, lake: Path) -> None:
    assert spark.table("lake.trips").columns == ["id", "city", "ts", "n"]
    assert values(spark, "select _hoodie_record_key, n from lake.trips where n < 3") == [("a", 1), ("b", 2)]
    assert values(spark, "select count(*) from lake.trips") == [7]
    plan = spark.sql("select n from lake.trips")._jdf.queryExecution().executedPlan().toString()
    assert "ColumnarToRow" in plan and "city" not in plan.split("lakedex")[0]


def test_a_limit_reads_fewer_files(spark: SparkSession, lake: Path) -> None:
    query = "select id from lake.trips limit 1"
    assert len(values(spark, query)) == 1
    assert files_kept(spark, query)[0] == 1
    assert len(values(spark, "select id from lake.trips limit 5")) == 5
    assert len(values(spark, "select id from lake.trips where n > 3 limit 4")) == 4


def test_the_first_rows_by_a_column_read_fewer_files(spark: SparkSession, lake: Path) -> None:
    for query, first in (
        ("select n from lake.trips order by n desc limit 2", [60, 50]),
        ("select n from lake.trips order by n, id desc limit 1", [1]),
    ):
        frame = spark.sql(query)
        assert [row[0] for row in frame.collect()] == first
        assert files_kept(spark, query) == (1, 4)
    filtered = "select n from lake.trips where n % 10 <> 0 order by n desc limit 2"
    assert [row[0] for row in spark.sql(filtered).collect()] == [7, 4]
    assert [row[0] for row in spark.sql("select n from lake.trips order by n + 1 desc limit 1").collect()] == [60]


def test_files_skipped_are_metrics_of_the_scan(spark: SparkSession, lake: Path) -> None:
    frame = spark.sql("select id from lake.trips where city = 'rome'")
    assert len(frame.collect()) == 4
    metrics = frame._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    if spark.version.startswith("3."):
        assert not metrics.contains("lakedexFilesSkipped"), "Spark 3.5 has no class for a metric of Python's"
    else:
        assert metrics.apply("lakedexFilesTotal").value() == 4
        assert metrics.apply("lakedexFilesSkipped").value() == 2


def test_a_join_leaves_files_out_while_it_runs(spark: SparkSession, lake: Path) -> None:
    query = (
        "select /*+ BROADCAST(d) */ t.id from lake.trips t join (select city from lake.trips where n = 7) d "
        "on t.city = d.city"
    )
    frame = spark.sql(query)
    assert [row[0] for row in frame.collect()] == ["g"]
    assert "dynamicpruning" in frame._jdf.queryExecution().optimizedPlan().toString().lower()
    # The scan of the filtered side is not narrowed by the join.
    assert sorted(row[0] for row in frame.union(spark.table("lake.trips").select("id")).collect()) == [*"abcdefgg"]


def test_views_joins_and_subqueries(spark: SparkSession, lake: Path) -> None:
    assert values(spark, "with r as (select * from lake.trips where city = 'rome') select max(n) from r") == [60]
    assert values(spark, "select a.id from lake.trips a join lake.trips b on a.id = b.id where b.n > 10") == ["e", "f"]
    assert values(spark, "select id from lake.trips where n = (select min(n) from lake.trips)") == ["a"]
    assert values(spark, f"select count(*) from lake.`{lake}/trips`") == [7]


def test_time_travel(spark: SparkSession, lake: Path) -> None:
    instants = sorted(Table.open(lake / "trips").inspect.history().column("commit_time").to_pylist())
    assert values(spark, f"select id from lake.trips version as of '{instants[0]}'") == ["a", "b"]
    assert values(spark, f"select id from lake.trips version as of '{instants[1]}' where n > 3") == ["d"]
    both = f"select a.id from lake.trips a left anti join lake.trips version as of '{instants[2]}' b on a.id = b.id"
    assert values(spark, both) == ["g"]
    assert len(values(spark, "select id from lake.trips timestamp as of current_timestamp()")) == 7
    with pytest.raises(IllegalArgumentException, match="no commit at or before"):
        spark.sql("select * from lake.trips timestamp as of '2001-01-01'").collect()


def test_two_instants_and_two_tables_in_one_cache(spark: SparkSession, lake: Path) -> None:
    other = Table.create(lake / "twin", TRIPS, record_key="id", partition_by="city", ordering_by="ts")
    other.insert(batch(("z", "oslo", 1, 26)))
    twin = spark.table("lake.twin").cache()
    try:
        assert [row.id for row in twin.collect()] == ["z"]
        assert len(values(spark, "select id from lake.trips")) == 7
        other.insert(batch(("y", "oslo", 1, 25)))
        # Spark 4 reads a cached table as it was cached, by its name; to 3.5 a newer commit is another relation.
        cached = ["y", "z"] if spark.version.startswith("3.") else ["z"]
        assert values(spark, "select id from lake.twin") == cached
        assert values(spark, f"select id from lake.`{lake}/twin`") == ["y", "z"]
        spark.sql("refresh table lake.twin")
        assert values(spark, "select id from lake.twin") == ["y", "z"]
    finally:
        twin.unpersist()
        spark.sql("drop table lake.twin")


def test_looking_at_a_table(spark: SparkSession, lake: Path) -> None:
    assert set(values(spark, "select name from lake.trips.indexes")) >= {"column_stats", "bloom_filters"}
    assert values(spark, "select count(*) from lake.trips.files") == [4]
    assert values(spark, "select count(*) from lake.trips.history where operation = 'INSERT'") == [4]
    described = {row[0]: row[1] for row in spark.sql("describe extended lake.trips").collect()}
    assert described["city"] == "string" and described["Provider"] == "hudi"
    assert described["Location"] == str(lake / "trips")
    created = values(spark, "show create table lake.trips")[0]
    assert "PARTITIONED BY (city)" in created and "'primaryKey' = 'id'" in created
    assert [row.tableName for row in spark.sql("show tables in lake").collect()] == ["trips"]


def test_namespaces_are_folders(spark: SparkSession, lake: Path) -> None:
    spark.sql("create namespace lake.west")
    assert values(spark, "show namespaces in lake") == ["west"]
    spark.sql("create table lake.west.t (id int) using hudi tblproperties (primaryKey = 'id')")
    assert (lake / "west" / "t" / ".hoodie").is_dir()
    with pytest.raises(AnalysisException, match="west"):
        spark.sql("drop namespace lake.west")
    spark.sql("drop namespace lake.west cascade")
    assert not (lake / "west").exists()
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql("show tables in lake.west")


def test_errors_are_those_of_spark_or_say_what_lakedex_says(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("select * from lake.nothing")
    spark.sql("drop table if exists lake.nothing")
    with pytest.raises(IllegalArgumentException, match="is no name in a catalog of folders"):
        spark.sql("select * from lake.`../trips`")
    with pytest.raises(InvalidInputError, match="is no name"), unwrapping_errors():
        spark.sql("select * from lake.`..`")


def test_names_of_catalogs(spark: SparkSession, lake: Path) -> None:
    for name in ("spark_catalog", "a.b", ""):
        with pytest.raises(InvalidInputError, match="no name for a catalog"):
            register_catalog(spark, name, str(lake))
    with pytest.raises(OptionError, match="register_catalog"):
        configure_spark(SparkSession.builder, catalog=str(lake))  # type: ignore[arg-type]


def test_every_session_finds_the_catalog(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.caseSensitive", "true")
    assert other.sql("select count(*) from lake.trips").head()[0] == 7  # type: ignore[index]
    with pytest.raises(AnalysisException, match="lake"):
        other.sql("select * from lake.nothing")
    with pytest.raises(AnalysisException, match="TRIPS|Trips|N"):
        other.sql("select N from lake.trips").collect()
    assert spark.sql("select N from lake.trips").count() == 7
    register_catalog(other, "lake", str(tmp_path))
    assert not other.catalog.tableExists("lake.trips") and spark.catalog.tableExists("lake.trips")
    built = configure_spark(SparkSession.builder, catalog={"second": str(lake)}).getOrCreate()
    assert built.sql("select count(*) from second.trips").head()[0] == 7


def test_eight_threads(spark: SparkSession, lake: Path) -> None:
    def ask(number: int) -> list[Any]:
        return values(spark, f"select id from lake.trips where n >= {number % 4 + 1} and n < 5")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(16)))
    assert answers == [list("abcd")[number % 4 :] for number in range(16)]


def test_files_of_two_widths(spark: SparkSession, tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.string()), ("n", pa.int32()), ("s", pa.struct([("x", pa.int32())]))])
    wide = pa.schema([("id", pa.string()), ("n", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])
    table = Table.create(tmp_path / "w", narrow, record_key="id", options=OWN_FILES)
    table.insert(batch(("a", 1, {"x": 1}), ("b", None, None), schema=narrow))
    table.insert(batch(("c", 1 << 40, {"x": 3}), schema=wide))
    register_catalog(spark, "wide", str(tmp_path))
    assert values(spark, "select id, n from wide.w where n > 0") == [("a", 1), ("c", 1 << 40)]
    assert values(spark, "select count(*), sum(n), max(s.x) from wide.w") == [(3, (1 << 40) + 1, 3)]
    assert values(spark, "select s.x from wide.w where id = 'a'") == [1]
    assert values(spark, "select count(*) from wide.w") == [3]
    plan = spark.sql("select n from wide.w")._jdf.queryExecution().executedPlan().toString()
    assert "RowDataSource" in plan or "Scan" in plan
    query = "select n from wide.w where n > 100"
    assert values(spark, query) == [1 << 40]
    assert "ColumnarToRow" in spark.sql(query)._jdf.queryExecution().executedPlan().toString(), "one width: one reader"
    joined = "select a.n from wide.w a join wide.w b on a.id = b.id where b.n = 1"
    assert values(spark, joined) == [1]
