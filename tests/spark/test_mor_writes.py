"""Writes of merge-on-read tables from Spark: statements and frames change one as they change a copy-on-write table."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from lakedex import Table, register_catalog

STATEMENTS = (
    "insert into {t} values ('k0', 'oslo', 0), ('k1', 'rome', 1), ('k2', 'bonn', 2), ('k3', 'oslo', 3)",
    "update {t} set n = n + 10 where city = 'oslo'",
    "delete from {t} where n = 13",
    "merge into {t} t using (select * from values ('k0', 'oslo', 7), ('k2', 'bonn', -1), ('k3', 'oslo', 5), "
    "('k4', 'rome', 4) as v(id, city, n)) s on t.id = s.id when matched and s.n < 0 then delete "
    "when matched then update set * when not matched then insert *",
    "update {t} set city = 'bonn' where id = 'k1'",
    "delete from {t} where n = (select max(n) from {t})",
    "insert overwrite {t} partition (city = 'bonn') select 'k9', 9",
    "update {t} set n = length(city) + n where n > 1",
)


def test_statements_and_frames(spark: SparkSession, tmp_path: Path) -> None:
    register_catalog(spark, "logs", str(tmp_path))
    properties = "primaryKey = 'id', 'hoodie.parquet.small.file.limit' = '0'"
    for name in ("cow", "mor"):
        spark.sql(
            f"create table logs.{name} (id string, city string, n int) using hudi partitioned by (city) "
            f"tblproperties ({properties}, type = '{name}')"
        )

    def rows(name: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark.sql(f"select id, city, n from logs.{name} order by id").collect()]

    for statement in STATEMENTS:
        for name in ("cow", "mor"):
            spark.sql(statement.format(t=f"logs.{name}"))
        assert rows("mor") == rows("cow"), statement
        assert rows("mor") == sorted(
            (row["id"], row["city"], row["n"]) for row in Table.open(tmp_path / "mor").to_arrow().to_pylist()
        )
    frame = spark.createDataFrame([("k0", "oslo", 50), ("k8", "rome", 8)], "id string, city string, n int")
    counts = []
    for name in ("cow", "mor"):
        table = Table.open(tmp_path / name, spark=spark)
        result = table.upsert(frame)
        counts.append((result.inserted, result.updated))
        table.delete(where="n = 50")
        table.merge(frame, "t.id = s.id").when_not_matched_insert_all().execute()
    assert counts[0] == counts[1]
    assert rows("mor") == rows("cow")
    slices = Table.open(tmp_path / "mor").snapshot().slices()
    assert any(item.log_files for item in slices)
    assert spark.sql("select count(*) from logs.mor").first()[0] == len(rows("cow"))
