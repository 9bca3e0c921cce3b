"""Streams out of tables and into them, each row once: restarts, repeated batches, and SQL in a batch's session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakedex import Table, register_catalog

CREATE = "CREATE TABLE lake.{} (id STRING, city STRING, n INT) USING hudi TBLPROPERTIES (primaryKey = 'id')"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    register_catalog(spark, "lake", str(folder))
    return folder


def incoming(spark: SparkSession, folder: Path, *batches: str) -> DataFrame:
    """A stream of CSV files, each a batch of rows ``id,city,n`` with blanks between them."""
    folder.mkdir(exist_ok=True)
    for rows in batches:
        place = folder / f"{len(list(folder.iterdir()))}.csv"
        place.write_text("\n".join(rows.split()))
    reader = spark.readStream.schema("id STRING, city STRING, n INT").option("maxFilesPerTrigger", 1)
    return reader.csv(str(folder))


def rows_of(table: Table) -> str:
    rows = table.to_arrow().select(["id", "city", "n"]).sort_by("id").to_pylist()
    return " ".join(",".join(str(value) for value in row.values()) for row in rows)


@pytest.mark.smoke
def test_sql_in_the_session_of_a_batch(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    spark.sql(CREATE.format("trips"))

    def each(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("batch")
        batch.sparkSession.sql("INSERT INTO lake.trips SELECT id, city, n FROM batch")
        batch.sparkSession.sql("DELETE FROM lake.trips WHERE n < 0")

    stream = incoming(spark, tmp_path / "in", "a,oslo,1 b,rome,-1", "c,bonn,2")
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "mark"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert rows_of(Table.open(str(lake / "trips"))) == "a,oslo,1 c,bonn,2"
