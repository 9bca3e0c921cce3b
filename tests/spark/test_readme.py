"""The examples of the README and of the first page run as they stand, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from documentation import run_blocks, sql_statements
from lakedex import register_catalog


@pytest.mark.parametrize(
    "page, printed",
    [
        ("README.md", ("t2  oslo", "partition_stats", "|  sf|       2|", "metadata agrees with the files")),
        ("docs/start.md", ("| t5|21.0|", "|  sf|       3|")),
        ("docs/tutorials/merge_pipeline.md", ("|  2|  paid|",)),
        ("docs/tutorials/stream.md", ()),
    ],
)
def test_pages_run_as_they_stand(
    page: str, printed: tuple[str, ...], spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks(page, tmp_path)
    seen = capsys.readouterr().out
    assert all(text in seen for text in printed), seen


def test_sql_of_the_page_on_sql(spark: SparkSession, tmp_path: Path) -> None:
    register_catalog(spark, "lake", str(tmp_path))
    for statement in sql_statements("docs/sql.md"):
        if not (statement.startswith("CALL") and spark.version.startswith("3.")):
            spark.sql(statement).collect()
    assert [row.id for row in spark.table("lake.west.trips").collect()] == ["t1"]


def test_sql_of_the_page_on_queries(spark: SparkSession, tmp_path: Path) -> None:
    register_catalog(spark, "lake", str(tmp_path))
    for statement in sql_statements("docs/queries.md"):
        if "AS OF" not in statement and "/any/path" not in statement:  # A state and a place that only a reader has.
            spark.sql(statement).collect()
    assert sorted(row.id for row in spark.table("lake.trips").collect()) == ["t2", "t3"]


def test_sql_of_the_page_on_writing(spark: SparkSession, tmp_path: Path) -> None:
    register_catalog(spark, "lake", str(tmp_path))
    for statement in sql_statements("docs/writing.md"):
        spark.sql(statement).collect()
    assert [tuple(row) for row in spark.table("lake.rides").orderBy("id").collect()] == [
        ("r1", "sf", 9.5, 1.0),
        ("r2", "oslo", 7.0, 0.0),
    ]
    spark.catalog.dropTempView("news")
