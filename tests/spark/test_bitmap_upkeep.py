"""Bitmap indexes built, kept up and folded by Spark tasks: the same as without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bitmap_table_kit import batch, run_names, same_answers, uncovered
from lakedex import Table
from lakedex.snapshot.snapshot import Limits

COLUMNS = ("g", "n", "s.k")
ASKED = ("g = 'x'", "g is null and n = 2", "s.k = 1 or n > 2", "g = 'changed'")


def contents(table: Table) -> dict[str, bytes]:
    folder = Path(table.path) / ".hoodie/metadata/bitmap_index"
    return {path.name.split("_", 2)[-1]: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.smoke
def test_build_and_upkeep(spark: SparkSession, tmp_path: Path) -> None:
    """R121, R124-R134: one task a file, same bytes as on the local engine; then the write stage makes them."""
    plain = Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering_by="ts")
    plain.insert(batch(0, 300))
    shutil.copytree(tmp_path / "t", tmp_path / "u")
    # Results come back through files, as large ones do.
    table = Table.open(tmp_path / "u", spark=spark)
    table.context.limits = Limits(build_inline_bytes=100, write_inline_bytes=100, driver_run_bytes=0)
    # A query that ran here before may have left an empty one behind.
    label = spark.sparkContext.getLocalProperty("spark.job.description")
    built = table.indexes.create("bitmap", list(COLUMNS), name="idx")
    plain.indexes.create("bitmap", list(COLUMNS), name="idx")
    assert contents(table) == contents(plain)
    assert built.files == 3
    assert spark.sparkContext.getLocalProperty("spark.job.description") == label

    schema = "id string, city string, ts bigint, g string, n int, s struct<k: bigint>"
    for number in range(3):
        # Of one partition each, so that every run has something that counts when they are folded.
        new = batch(0, 90, number + 2, g="changed").to_pylist()
        rows = [tuple(row.values()) for row in new if row["city"] == "abc"[number]]
        result = table.upsert(spark.createDataFrame(rows, schema))
        assert result.bitmap_bytes > 0
        assert result.notes == ()
        assert uncovered(table, *COLUMNS) == []
    assert [name.split("_")[2] for name in run_names(table)] == ["fold"]
    same_answers(table, *ASKED)
    assert table.indexes.refresh("idx").files == 0
    assert table.to_df().where("g = 'changed'").count() == 90
