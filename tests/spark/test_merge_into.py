"""``merge`` and batches on Spark: Spark judges the expressions, and a streaming query may repeat its batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table
from lakedex.errors import InvalidInputError

NONE = {"hoodie.metadata.index.column.stats.enable": "false", "hoodie.metadata.index.bloom.filter.enable": "false"}


def frame(spark: SparkSession, low: int, high: int) -> DataFrame:
    return spark.sql(f"""
        select cast(id as string) id, concat('c', id % 3) city, id ts, cast(id as int) n, named_struct('a', id) s
        from range({low}, {high})
    """)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    schema = "id string, city string, ts long, n int, s struct<a: long not null>"
    made = Table.create(
        tmp_path / "t", schema, record_key="id", partition_by="city", ordering_by="ts", options=NONE, spark=spark
    )
    made.bulk_insert(frame(spark, 0, 9))
    return made


def values(table: Table) -> dict[str, int]:
    return {row.id: row.n for row in table.to_df().select("id", "n").collect()}


@pytest.mark.proves("`Table.merge`")
@pytest.mark.smoke
def test_a_merge_by_key(spark: SparkSession, table: Table) -> None:
    """A source that is read from the table, and expressions that only Spark evaluates."""
    table.create_view("merge_view")
    stored = table.to_df().where("id > 5").select("id", "city", "ts", "n", "s")
    source = stored.union(frame(spark, 9, 12)).withColumn("op", F.expr("if(id = '6', 'D', 'U')"))
    result = (
        table.merge(source, "t.id = s.id AND t.city = s.city")
        .when_matched_delete("s.op = 'D'")
        .when_matched_update({"n": "length(repeat(s.id, 3)) + t.n", "s": "named_struct('a', s.ts)"}, "s.id RLIKE '^7'")
        .when_matched_update_all(F.col("t.n") > 100)
        .when_not_matched_insert_all(F.col("s.n") < F.lit(11))
        .execute()
    )
    assert (result.inserted, result.updated, result.deleted) == (2, 1, 1)
    assert result.tagging.source != "none"
    expected = {str(n): n for n in range(11)} | {"7": 10}
    del expected["6"]
    assert values(table) == expected
    assert spark.table("merge_view").count() == 10


def test_a_merge_by_a_join(spark: SparkSession, table: Table) -> None:
    source = spark.createDataFrame([("8", "c9", 1, 80), ("x", "c9", 2, 1)], "id string, city string, ts long, n int")
    merge = table.merge(source, F.col("t.ts") == F.col("s.n") / 10).when_matched_update({"n": F.col("s.n")})
    assert "the condition is a Column" in merge.explain()
    merge = merge.when_not_matched_insert({"id": "concat(s.id, '!')", "city": "s.city", "n": "s.n"})
    result = merge.when_not_matched_by_source_delete("t.n < 3").execute()
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 3)
    assert values(table) == {**{str(n): n for n in range(3, 8)}, "8": 80, "x!": 1}
    moved = table.merge(source.limit(1).withColumn("s", F.expr("named_struct('a', 1L)")), "t.id = s.id")
    assert moved.when_matched_update_all().execute().updated == 1
    assert table.to_df().where("id = '8'").select("city", "n").collect() == [("c9", 80)]
    twice = source.union(source)
    with pytest.raises(InvalidInputError, match="2 rows of the merge's source go to the row with key '8'"):
        table.merge(twice, "t.id = s.id").when_matched_delete("s.n > 0").execute()
    with pytest.raises(InvalidInputError, match="1 rows that the merge inserts have a key that is in the table"):
        table.merge(source, "t.n = s.ts").when_not_matched_insert({"id": "'3'", "city": "'c0'"}, "s.id = 'x'").execute()


def test_a_stream_that_repeats_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A query that dies after a batch was written and before Spark noted it runs the batch again."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    table = Table.create(
        tmp_path / "t",
        "id string, city string, ts long, n int, s struct<a: long>",
        record_key="id",
        options=NONE,
        spark=spark,
    )
    batches: list[int] = []
    dies = True

    def write(batch: DataFrame, number: int) -> None:
        batches.append(number)
        table.insert(batch, txn=("trips", number))
        if dies and number == 1:
            raise RuntimeError("the driver dies")

    def run() -> Any:
        stream = spark.readStream.schema(table.to_df().select("id", "city", "ts", "n", "s").schema).parquet(str(source))
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        return query.trigger(availableNow=True).start().awaitTermination()

    frame(spark, 0, 4).coalesce(1).write.parquet(str(source), mode="append")
    run()
    frame(spark, 4, 6).coalesce(1).write.parquet(str(source), mode="append")
    with pytest.raises(Exception, match="the driver dies"):
        run()
    dies = False
    run()
    assert batches == [0, 1, 1]
    assert sorted(row.id for row in table.to_df().collect()) == [str(n) for n in range(6)]
    assert table.inspect.history().num_rows == 2
