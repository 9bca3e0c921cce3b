"""Writes of merge-on-read tables from Spark: SQL statements and frames, one after the other on one table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakedex import Table, register_catalog

STATEMENTS = (
    (
        "insert into logs.t values ('k0', 'oslo', 0), ('k1', 'rome', 1), ('k2', 'bonn', 2), ('k3', 'oslo', 3)",
        "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3",
    ),
    ("update logs.t set n = n + 10 where city = 'oslo'", "k0:oslo:10 k1:rome:1 k2:bonn:2 k3:oslo:13"),
    ("delete from logs.t where n = 13", "k0:oslo:10 k1:rome:1 k2:bonn:2"),
    (
        "merge into logs.t t using (select * from values ('k0', 'oslo', 7), ('k2', 'bonn', -1), ('k3', 'oslo', 5), "
        "('k4', 'rome', 4) as v(id, city, n)) s on t.id = s.id when matched and s.n < 0 then delete "
        "when matched then update set * when not matched then insert *",
        "k0:oslo:7 k1:rome:1 k3:oslo:5 k4:rome:4",
    ),
    ("update logs.t set city = 'bonn' where id = 'k1'", "k0:oslo:7 k1:bonn:1 k3:oslo:5 k4:rome:4"),
    ("delete from logs.t where n = (select max(n) from logs.t)", "k1:bonn:1 k3:oslo:5 k4:rome:4"),
    ("insert overwrite logs.t partition (city = 'bonn') select 'k9', 9", "k3:oslo:5 k4:rome:4 k9:bonn:9"),
)


@pytest.mark.proves("merge-on-read tables in SQL and DataFrames")
def test_statements_and_frames(spark: SparkSession, tmp_path: Path) -> None:
    register_catalog(spark, "logs", str(tmp_path))
    spark.sql(
        "create table logs.t (id string, city string, n int) using hudi partitioned by (city) "
        "tblproperties (primaryKey = 'id', type = 'mor')"
    )

    def rows() -> str:
        return " ".join(f"{r.id}:{r.city}:{r.n}" for r in spark.sql("select * from logs.t order by id").collect())

    for statement, expected in STATEMENTS:
        spark.sql(statement)
        assert rows() == expected, statement
    table = Table.open(tmp_path / "t", spark=spark, options={"hoodie.compact.inline": False})
    frame = spark.createDataFrame([("k3", "oslo", 50), ("k8", "rome", 8)], "id string, city string, n int")
    result = table.upsert(frame)
    assert (result.inserted, result.updated) == (1, 1)
    table.delete(where="n = 50")
    table.merge(frame, "t.id = s.id").when_not_matched_insert_all().execute()
    assert rows() == "k3:oslo:50 k4:rome:4 k8:rome:8 k9:bonn:9"
    assert any(item.log_files for item in table.snapshot().slices())
