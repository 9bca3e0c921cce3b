"""Indexes validated and rows erased on Spark: the work is done by tasks, conditions mean what Spark says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakedex import Table
from lakedex.index.bitmap.run_files import BITMAP_FOLDER
from lakedex.types import FILE_NAME


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    made = Table.create(
        tmp_path / "t",
        record_key="id",
        partition_by="city",
        options={"hoodie.parquet.small.file.limit": "0"},
        spark=spark,
    )
    rows = "cast(id as string) id, concat('c', id % 2) city, if(id = 5, 'x', concat('g', id % 3)) g"
    made.bulk_insert(spark.sql(f"select {rows} from range(0, 30)"))
    made.indexes.create("bitmap", ["g"], name="idx")
    return made


def test_erase_on_spark(spark: SparkSession, table: Table) -> None:
    """Point 9: by a condition, by one that only Spark can evaluate, by a DataFrame of keys and by a list."""
    table.create_view("mnt_rows")
    report = table.erase(where="g = 'x'")
    assert (report.rows, report.files_rewritten, report.files_examined, report.proof.rows) == (1, 1, 1, 0)
    assert spark.sql("select count(*) from mnt_rows where g = 'x'").head()[0] == 0
    only_spark = table.erase(where="soundex(g) = soundex('g0') AND id = '0'")
    assert (only_spark.rows, only_spark.proof.rows) == (1, 0)
    by_frame = table.erase(spark.createDataFrame([("1", "c1"), ("2", "c0")], "id string, city string"))
    assert (by_frame.rows, by_frame.is_verified, len(by_frame.retained_in)) == (2, True, 4)
    assert table.erase(keys=["3"], all_partitions=True).rows == 1
    assert table.to_df().count() == 25
    assert table.delete(where=F.col("id") == "4").deleted == 1
    assert table.erase(where=F.col("id") == "6").rows == 1


def test_validate_on_spark(spark: SparkSession, table: Table) -> None:
    """R148: compared by tasks; a run that is damaged is taken out and its files are covered anew."""
    assert table.indexes.validate("idx").ok
    assert table.indexes.validate("column_stats").ok
    assert table.indexes.validate("bloom_filters").ok
    (run,) = Path(table.path, BITMAP_FOLDER).glob("run_*.hfile")
    run.write_bytes(run.read_bytes()[:-50])
    fresh = Table.open(table.path, spark=spark)
    report = fresh.indexes.validate("idx", repair=True)
    assert report.files_repaired == report.files_total == 2
    assert fresh.indexes.validate("idx").ok
    assert fresh.indexes.stats("idx").files_uncovered == 0
    assert fresh.scan("g = 'x'").plan().stage("bitmap").after == 1


@pytest.mark.parametrize("way", [{}, {"order_by": "id"}, {"zorder": ["g", "id"]}], ids=["joined", "linear", "z-order"])
def test_cluster_on_spark(table: Table, way: dict[str, Any]) -> None:
    """Spark moves and sorts the rows; its tasks write the files, of several groups at once."""
    for n in range(2):
        table.insert(pa.table({"id": [f"{n}-{city}" for city in "01"], "city": ["c0", "c1"], "g": ["new", "new"]}))
    before = table.scan(meta_columns=True).to_arrow().drop_columns([FILE_NAME]).sort_by("id")
    done = table.maintenance.cluster(**way)
    assert (done.files_before, done.files_after, done.rows) == (6, 2, 34)
    fresh = Table.open(table.path)
    assert fresh.scan(meta_columns=True).to_arrow().drop_columns([FILE_NAME]).sort_by("id").equals(before)
    assert fresh.indexes.stats("idx").files_uncovered == 0
    assert fresh.maintenance.validate().ok
    if way:
        (base,) = fresh.snapshot().base_files(["city=c0"])
        keys = pq.read_table(Path(table.path, base.relative_path), columns=["id"]).column("id").to_pylist()
        assert (keys == sorted(keys)) == ("order_by" in way)
