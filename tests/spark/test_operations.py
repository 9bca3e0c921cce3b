"""Overwrites, index builds and schema changes on Spark, and what DataFrames show of the table afterwards."""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegerType, LongType, StructType

from lakedex import Table
from lakedex.errors import LakedexError, SchemaMismatchError

NONE = {"hoodie.metadata.index.column.stats.enable": "false", "hoodie.metadata.index.bloom.filter.enable": "false"}


def frame(spark: SparkSession, low: int, high: int, city: str | None = None) -> DataFrame:
    place = f"'{city}'" if city else "concat('c', id % 3)"
    return spark.sql(
        f"select cast(id as string) id, {place} city, id ts, cast(id as int) n, cast(id / 2 as decimal(10, 2)) m, "
        f"named_struct('a', id) s from range({low}, {high})"
    )


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    made = Table.create(
        tmp_path / "t",
        record_key="id",
        partition_by="city",
        ordering_by="ts",
        options={**NONE, "hoodie.parquet.small.file.limit": "0"},
        spark=spark,
    )
    made.bulk_insert(frame(spark, 0, 30))
    made.insert(frame(spark, 30, 36))
    return made


def numbers(df: DataFrame, column: str = "n") -> list[int]:
    return sorted(row[0] for row in df.select(column).collect())


def test_overwrites(spark: SparkSession, table: Table) -> None:
    table.create_view("svc_trips")
    result = table.insert_overwrite(frame(spark, 100, 103, "c1"))
    assert (result.operation, result.inserted) == ("INSERT_OVERWRITE", 3)
    left = [n for n in range(36) if n % 3 != 1]
    assert numbers(table.to_df()) == [*left, 100, 101, 102]
    assert numbers(table.to_df().where("city = 'c1' and n > 0")) == [100, 101, 102]
    # A frame that is read from what it replaces.
    doubled = table.to_df().where("city = 'c1'").withColumn("n", F.expr("n * 2"))
    table.insert_overwrite(doubled)
    assert numbers(spark.table("svc_trips").where("city = 'c1'")) == [200, 202, 204]
    table.insert_overwrite(frame(spark, 0, 0), partitions={"city": "c1"})
    assert numbers(table.to_df()) == left
    table.insert_overwrite(frame(spark, 7, 9), scope="table")
    assert numbers(spark.table("svc_trips")) == [7, 8]
    table.insert_overwrite(frame(spark, 0, 0), scope="table")
    assert table.to_df().count() == 0


def test_indexes(spark: SparkSession, table: Table) -> None:
    done: list[tuple[int, int]] = []
    result = table.indexes.create("column_stats", progress=lambda *step: done.append(step))
    assert (result.files, done) == (6, [(6, 6)])
    table.indexes.create("bloom_filters")
    assert [row["name"] for row in table.indexes.list().to_pylist()] == [
        "bloom_filters",
        "column_stats",
        "partition_stats",
    ]
    for name in table.indexes.list().column("name").to_pylist():
        assert table.indexes.stats(name).files_uncovered == 0
    assert len(table.scan("n = 35").plan().files) == 1
    assert numbers(table.to_df().where("n >= 30")) == [30, 31, 32, 33, 34, 35]
    updated = table.upsert(frame(spark, 31, 40))
    assert (updated.updated, updated.inserted) == (5, 4)
    table.indexes.drop("column_stats")
    assert numbers(table.to_df().where("n >= 36")) == [36, 37, 38, 39]


def test_schema_changes(spark: SparkSession, table: Table) -> None:
    table.indexes.create("column_stats")
    table.add_columns("more int, note string")
    table.add_columns(StructType().add("s.b", IntegerType()))
    assert table.to_df().select("more", "s.b").distinct().collect() == [(None, None)]
    newer = frame(spark, 0, 3).selectExpr(
        "id", "city", "ts + 1 ts", "n", "m", "named_struct('a', s.a, 'b', 5) s", "1 more", "'x' note"
    )
    assert table.upsert(newer).updated == 3
    assert numbers(table.to_df().where("more = 1 and s.b = 5")) == [0, 1, 2]
    table.rename_column("n", "amount")
    assert numbers(table.to_df(), "amount") == list(range(36))
    assert numbers(table.to_df().where("amount > 33"), "amount") == [34, 35]
    table.widen_column("amount", LongType())
    table.widen_column("m", DecimalType(20, 2))
    assert dict(table.to_df().dtypes)["amount"] == "bigint"
    assert dict(table.to_df().dtypes)["m"] == "decimal(20,2)"
    assert numbers(table.to_df().where("amount = 3 or m = 17.5"), "amount") == [3, 35]
    table.drop_columns(["note", "amount"])
    assert "amount" not in table.to_df().columns
    assert table.maintenance.rewrite_files().files_written == 6
    table.add_columns(pa.schema([("amount", pa.string())]))
    assert numbers(table.to_df().where("amount is null"), "ts") == [1, 2, 3, *range(3, 36)]
    assert table.to_df().where("amount is not null").count() == 0


class Runs:
    """A value whose unpickling makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_value_that_spark_quotes_is_never_run(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Whatever a row holds, Spark's error about it leaves as Spark's."""
    packed = base64.b64encode(pickle.dumps(Runs(tmp_path / "made"))).decode()
    rows = frame(spark, 50, 51, "c1").withColumn("city", F.lit(f"lakedex-error[{packed}]"))
    table.insert(rows)
    quoting = "if(city like 'lakedex%', cast(raise_error(city) as int), 1)"
    lazy = rows.withColumn("n", F.expr(quoting))
    calls: dict[str, Callable[[], Any]] = {
        "update": lambda: table.update({"n": quoting}),
        "delete": lambda: table.delete(where=f"{quoting} = 3"),
        "merge": lambda: (
            table.merge(rows, "t.id = s.id").when_matched_update({"n": quoting.replace("city", "s.city")}).execute()
        ),
        "upsert": lambda: table.upsert(lazy),
        "insert": lambda: table.insert(lazy),
        "bulk_insert": lambda: table.bulk_insert(lazy),
        "insert_overwrite": lambda: table.insert_overwrite(lazy),
        "delete by frame": lambda: table.delete(lazy.where("n = 1").select("id", "city")),
    }
    for name, call in calls.items():
        with pytest.raises(Exception, match="lakedex-error") as caught:
            call()
        assert not isinstance(caught.value, (LakedexError, FileExistsError)), name
        assert not (tmp_path / "made").exists(), name


@pytest.mark.parametrize("ansi", ["false", "true"])
def test_what_an_assignment_cannot_hold_is_refused_in_any_session(spark: SparkSession, table: Table, ansi: str) -> None:
    """Without ANSI mode Spark's plain cast would wrap the number around and make null of the text."""
    before = numbers(table.to_df())
    was = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        merge = table.merge(frame(spark, 3, 4), "t.id = s.id AND t.city = s.city")
        for value in ("5000000000L", "'many'"):
            wrong = "column 'n' is int, which cannot hold '(5000000000|many)', the new value of the row with key '3'"
            with pytest.raises(SchemaMismatchError, match=wrong):
                table.update({"m": "1.5", "n": value}, where="id = '3'")
            with pytest.raises(SchemaMismatchError, match=wrong):
                merge.when_matched_update({"n": value}).execute()
        assert numbers(table.to_df()) == before
        assert table.update({"n": "ts + 1", "m": "2.5"}, where="id = '3'").updated == 1
    finally:
        spark.conf.set("spark.sql.ansi.enabled", was)
    assert table.to_df().where("id = '3'").select("n", "m").collect()[0] == (4, 2.5)


def test_fields_of_structs_are_assigned_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's cast of one struct to another goes by position."""
    table = Table.create(
        tmp_path / "t",
        schema="id string, s struct<a:int,b:int>, l array<struct<a:int,b:int>>",
        record_key="id",
        spark=spark,
    )
    columns = "named_struct('b', {0}, 'a', {1}) s, array(named_struct('b', {0}, 'a', {1})) l"
    table.upsert(spark.sql(f"select 'k' id, {columns.format(2, 1)}"))
    source = spark.sql(f"select explode(array('k', 'new')) id, {columns.format(20, 10)}")
    table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows_by_id(table) == {"k": ((10, 20), [(10, 20)]), "new": ((10, 20), [(10, 20)])}
    table.merge(source, "t.id = s.id").when_matched_update({"s": "named_struct('b', 4L, 'a', s.s.a)"}).execute()
    table.update({"l": "array(named_struct('b', 6, 'a', null))"}, where="id = 'new'")
    assert rows_by_id(table) == {"k": ((10, 4), [(10, 20)]), "new": ((10, 4), [(None, 6)])}
    for value, wrong in (
        ("named_struct('a', 1)", "'s.b' is missing"),
        ("named_struct('a', 1, 'b', 2, 'c', 3)", "'s.c' is not"),
    ):
        with pytest.raises(SchemaMismatchError, match=wrong):
            table.update({"s": value})


def rows_by_id(table: Table) -> dict[str, Any]:
    found = table.to_df().select("id", "s", "l").collect()
    return {row.id: (tuple(row.s), [tuple(item) for item in row.l]) for row in found}
