"""``CREATE OR REPLACE TABLE``, ``saveAsTable`` and ``writeTo``: one commit, and nothing of one that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table, register_catalog

KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ON_SPARK_3 = pyspark.__version__.startswith("3.")
needs_spark_4 = pytest.mark.skipif(ON_SPARK_3, reason="on PySpark 3.5 Spark looks for a data source of this name")


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    register_catalog(spark, "sea", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    source = "select cast(id as string) id, concat('c', id % 2) city, id * 1.5D fare from range(4)"
    return spark.sql(source).localCheckpoint()


def saved(rows: DataFrame, name: str = "sea.trips", mode: str = "errorifexists", **options: str) -> None:
    rows.write.format("lakedex").mode(mode).options(**options).saveAsTable(name)


def made(rows: DataFrame) -> None:
    rows.writeTo("sea.trips").using("lakedex").tableProperty("primaryKey", "id").create()


def state(path: Path) -> tuple[list[str], int, list[str]]:
    """Columns, number of rows and operations of a table."""
    table = Table.open(path)
    operations = table.inspect.history().column("operation").to_pylist()
    return table.schema.names, table.scan().count(), operations


@needs_spark_4
def test_save_as_table_makes_replaces_and_appends(rows: DataFrame, lake: Path) -> None:
    saved(rows, **{KEY: "id", PARTITION: "city", "hoodie.table.name": "rides"})
    table = Table.open(lake / "trips")
    config = table.snapshot().config
    assert (config.name, config.record_key_fields, config.partition_fields) == ("rides", ("id",), ("city",))
    first = table.snapshot().instant
    saved(rows.limit(1), mode="append", **{KEY: "id"})
    with pytest.raises(Exception, match="ALREADY_EXISTS|already exists"):
        saved(rows)
    saved(rows, mode="ignore")
    replaced = rows.limit(3).select("id", "city", F.lit(1).alias("n"))
    saved(replaced, mode="overwrite")
    columns, count, operations = state(lake / "trips")
    assert (columns, count, operations[0]) == (["id", "city", "n"], 3, "INSERT_OVERWRITE_TABLE")
    before = Table.open(lake / "trips").scan(as_of=first)
    assert (before.count(), before.snapshot.schema.names) == (4, ["id", "city", "fare"])


def test_frames_make_and_replace_tables(rows: DataFrame, lake: Path) -> None:
    trips = lake / "trips"

    def writer(frame: DataFrame = rows) -> Any:
        return frame.writeTo("sea.trips").using("lakedex")

    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND|cannot be found"):
        writer().replace()
    writer().option(KEY, "id").createOrReplace()
    writer(rows.limit(2).drop("fare")).createOrReplace()
    assert state(trips)[:2] == (["id", "city"], 2)
    writer(rows).tableProperty("primaryKey", "id").replace()
    assert state(trips)[:2] == (["id", "city", "fare"], 4)
    with pytest.raises(Exception, match=r"recordkey.field is 'id' and cannot become 'city'"):
        writer().tableProperty("primaryKey", "city").createOrReplace()
    with pytest.raises(Exception, match=r"partitionpath.field is '' and cannot become 'city'"):
        writer().partitionedBy(F.col("city")).createOrReplace()
    with pytest.raises(Exception, match=r"unknown option 'hodie.table.name'.*did you mean 'hoodie.table.name'"):
        writer().option("hodie.table.name", "x").createOrReplace()
    assert state(trips)[1] == 4


def test_sql_replaces_columns_and_rows(spark: SparkSession, rows: DataFrame, lake: Path) -> None:
    trips = lake / "trips"
    made(rows)
    spark.sql(
        "create or replace table sea.trips using lakedex as select id, city, 2 as n from sea.trips where id < '3'"
    )
    assert state(trips)[:2] == (["id", "city", "n"], 3)
    spark.sql(
        "create or replace table sea.trips (id string, city string comment 'where', z date) using lakedex "
        "comment 'all of them' tblproperties (primaryKey = 'id')"
    )
    assert state(trips)[:2] == (["id", "city", "z"], 0)
    table = Table.open(trips)
    assert (table.comment, table.schema.field("city").metadata[b"comment"]) == ("all of them", b"where")
    spark.sql("create or replace table sea.trips using lakedex as select '1' id, 'x' city")
    with pytest.raises(Exception, match="column 'city' is string, and a replacement cannot make it 'city' of type int"):
        spark.sql("create or replace table sea.trips using lakedex as select '1' id, 2 city")
    assert state(trips)[:2] == (["id", "city"], 1)


FAILING: list[Callable[[DataFrame], None]] = [
    lambda frame: frame.writeTo("sea.trips").using("lakedex").option(KEY, "id").createOrReplace(),
    *([] if ON_SPARK_3 else [lambda frame: saved(frame, mode="overwrite", **{KEY: "id"})]),
]


@pytest.mark.parametrize("exists", [False, True])
def test_a_replacement_that_fails_changes_nothing(rows: DataFrame, lake: Path, exists: bool) -> None:
    if exists:
        made(rows)
    broken = rows.select("id", F.expr("raise_error('no fare')").cast("int").alias("n"))
    for write in FAILING:
        with pytest.raises(Exception, match="no fare"):
            write(broken)
    if exists:
        assert state(lake / "trips")[1:] == (4, ["INSERT"])
    else:
        assert not (lake / "trips").exists()


def test_replace_where(spark: SparkSession, rows: DataFrame, lake: Path) -> None:
    more = rows.withColumn("day", F.expr("date_add(date'2024-01-01', cast(id as int))"))
    more.writeTo("sea.trips").using("lakedex").tableProperty("primaryKey", "id").partitionedBy("city", "day").create()
    insert = "insert into sea.trips replace where {} select '{}', '{}', 9.0D, date'2024-01-{}'".format
    spark.sql(insert("day >= date'2024-01-03'", "x", "c9", "09"))
    assert sorted(row.id for row in spark.table("sea.trips").collect()) == ["0", "1", "x"]
    spark.sql(insert("city in ('c0', 'c9') and day < date'2024-01-10'", "y", "c0", "01"))
    assert sorted(row.id for row in spark.table("sea.trips").collect()) == ["1", "y"]
    for condition, message in (
        ("day > date'2025-01-01'", r"'city=c0/day=2024-01-01', are not under the condition"),
        ("fare > 1", r"a condition on partition columns \(city, day\), or of all rows; for other columns DELETE"),
    ):
        with pytest.raises(Exception, match=message):
            spark.sql(insert(condition, "z", "c0", "01"))
    assert state(lake / "trips")[1:] == (2, ["INSERT_OVERWRITE", "INSERT_OVERWRITE", "INSERT"])
