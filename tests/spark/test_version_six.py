"""A table of version 6 on Spark: tasks ask its timeline, which lies elsewhere, whether they are still wanted."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from lakedex import Table


def test_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": "6"}
    path = tmp_path / "t"
    table = Table.create(path, record_key="id", partition_by="city", ordering_by="ts", options=options, spark=spark)
    frame = "select cast(id as string) id, concat('c', id % 2) city, id ts, {value} n from range({low}, {high})"
    table.bulk_insert(spark.sql(frame.format(value=1, low=0, high=10)))
    result = table.upsert(spark.sql(frame.format(value=2, low=8, high=12)))
    assert (result.updated, result.inserted) == (2, 2)
    assert table.delete(where="id = '3'").deleted == 1
    again = Table.open(path, spark=spark)
    assert sorted(row.id for row in again.to_df().where("n = 2").collect()) == ["10", "11", "8", "9"]
    assert again.to_df().count() == 11
    assert again.snapshot().config.version == 6
    assert again.snapshot().uses_metadata
