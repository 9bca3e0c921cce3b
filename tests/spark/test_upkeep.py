"""Upkeep on Spark: large file groups of the metadata table are compacted by tasks, and writes do all of it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from lakedex import Table
from lakedex.snapshot.snapshot import Limits

OPTIONS = {
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
}


def test_compaction_in_tasks_and_archival(spark: SparkSession, tmp_path: Path) -> None:
    """R37: what runs after a write on the local engine runs on Spark too."""
    table = Table.create(tmp_path / "t", record_key="id", options=OPTIONS, spark=spark)
    table.context.limits = Limits(thread_merge_bytes=0)
    for number in range(5):
        frame = spark.sql(f"select cast(id as string) id, id * {number} v from range({number}, {number + 3})")
        assert all(note.startswith("cleaned ") for note in table.upsert(frame).notes)
    timeline = table.snapshot().metadata.timeline
    assert timeline.completed({"commit"})
    bases = list((tmp_path / "t/.hoodie/metadata/column_stats").glob("*.hfile"))
    assert all(base.name.split("_")[1].split("-")[1] != "0" for base in bases), "a token of Spark's stages"
    assert table.inspect.history().num_rows < 5 == table.inspect.history(archived=True).num_rows
    rows = {row.id: row.v for row in table.to_df().select("id", "v").collect()}
    assert rows == {str(i): i * min(i, 4) for i in range(7)}
    assert table.scan("v = 16").count() == 1
    assert Table.open(tmp_path / "t").indexes.validate("bloom_filters").ok
