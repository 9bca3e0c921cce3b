"""Twelve everyday jobs, each statement as a user types it who knows Spark and another table format.

Spark Connect has its own: ``tests/connect``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import __version__ as PYSPARK
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, lit

from lakedex import Table, register_catalog

VERSION = float(".".join(PYSPARK.split(".")[:2]))


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        name: what it is for.
        steps: the first PySpark that has it, and SQL or Python with ``spark``, a frame ``df`` and a folder ``p``.
        shows: a query → its rows at the end.
    """

    name: str
    steps: tuple[tuple[float, str], ...]
    shows: dict[str, str]


JOBS = (
    Job(
        "append a frame",
        (
            (3.5, 'df.writeTo("jobs.one").using("lakedex").create()'),
            (3.5, 'df.writeTo("jobs.one").append()'),
            (4.0, 'df.write.format("lakedex").mode("append").save(f"{p}/frame")'),
            (4.0, 'df.write.format("lakedex").mode("append").save(f"{p}/frame")'),
            (4.0, 'df.write.format("lakedex").saveAsTable("jobs.saved")'),
        ),
        {"select count(*), count(distinct _hoodie_record_key) from jobs.one": "6 6"},
    ),
    Job(
        "read it",
        (
            (3.5, 'spark.table("jobs.trips").where("fare > 10").count()'),
            (3.5, 'spark.read.table("jobs.trips").groupBy("city").count().collect()'),
            (3.5, 'Table.open(f"{p}/trips").to_pandas()'),
            (4.0, 'spark.read.format("lakedex").load(f"{p}/trips").where("city = \'oslo\'").collect()'),
            (3.5, "SELECT * FROM jobs.`{p}/trips` WHERE fare > 10"),
        ),
        {"select id, fare from jobs.trips where city = 'oslo' order by id": "a 9.0, c 30.0"},
    ),
    Job(
        "change rows",
        (
            (3.5, "MERGE INTO jobs.trips t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
                  "WHEN NOT MATCHED THEN INSERT *"),
            (3.5, "UPDATE jobs.trips SET fare = fare + 1 WHERE id IN (SELECT id FROM news)"),
            (3.5, "DELETE FROM jobs.trips WHERE fare > (SELECT avg(fare) FROM jobs.trips) AND id <> 'd'"),
            (4.0, 'spark.table("news").mergeInto("jobs.trips", expr("jobs.trips.id = news.id"))'
                  ".whenMatched().updateAll().merge()"),
        ),
        {"select id from jobs.trips order by id": "a, d"},
    ),
    Job(
        "merge the batches of a stream",
        (
            (3.5, """
                def each(batch, number):
                    batch.createOrReplaceTempView("batch")
                    batch.sparkSession.sql("MERGE INTO jobs.trips t USING batch s ON t.id = s.id "
                                           "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

                source = spark.readStream.schema(df.schema).parquet(f"{p}/in")
                query = source.writeStream.foreachBatch(each).option("checkpointLocation", f"{p}/.each")
                query.trigger(availableNow=True).start().awaitTermination()
                """),
        ),
        {"select count(*) from jobs.trips": "3"},
    ),
    Job(
        "streams in and out",
        (
            (3.5, 'query = spark.readStream.table("jobs.trips").writeStream.format("lakedex")'),
            (3.5, 'query = query.option("checkpointLocation", f"{p}/.name").trigger(availableNow=True)'),
            (3.5, 'query.toTable("jobs.copy").awaitTermination()'),
            (4.0, 'frames = spark.readStream.format("lakedex").load(f"{p}/trips").writeStream.format("lakedex")'),
            (4.0, 'frames = frames.option("checkpointLocation", f"{p}/.path").trigger(availableNow=True)'),
            (4.0, 'frames.start(f"{p}/other").awaitTermination()'),
        ),
        {"select id from jobs.copy order by id": "a, b, c"},
    ),
    Job(
        "read what changed",
        (
            (3.5, 'first = spark.sql("SELECT min(commit_time) FROM jobs.trips.history").head()[0]'),
            (3.5, "INSERT INTO jobs.trips VALUES ('e', 'bonn', 1.0, 3)"),
            (3.5, 'assert Table.open(f"{p}/trips", spark=spark).changes(since=first).to_spark().count() == 1'),
            (4.0, 'read = spark.read.format("lakedex").option("hoodie.datasource.query.type", "incremental")'),
            (4.0, 'assert read.option("hoodie.datasource.read.begin.instanttime", first).load(f"{p}/trips").count() == 1'),
        ),
        {"select count(*) from jobs.trips": "4"},
    ),
    Job(
        "small files and old ones",
        (
            (3.5, "INSERT INTO jobs.trips VALUES ('e', 'oslo', 1.0, 3)"),
            (3.5, 'assert Table.open(f"{p}/trips").inspect.files().num_rows == 2'),
            (3.5, 'Table.open(f"{p}/trips").maintenance.clean(commits=1)'),
            (4.0, "CALL jobs.system.run_clean(table => 'trips', retain_commits => 1)"),
            (4.0, "CALL jobs.system.show_commits(table => 'trips')"),
        ),
        {"select count(*) from jobs.trips": "4"},
    ),
    Job(
        "a new column",
        (
            (3.5, "ALTER TABLE jobs.trips ADD COLUMNS (tip DOUBLE COMMENT 'paid in cash')"),
            (3.5, "INSERT INTO jobs.trips VALUES ('f', 'oslo', 1.0, 3, 0.5)"),
            (3.5, 'Table.open(f"{p}/trips", spark=spark).upsert(df.withColumn("tip", lit(1.0)).withColumn("rating", lit(5)))'),
            (4.0, 'df.withColumn("kind", lit("x")).withColumn("tip", lit(2.0)).write.format("lakedex").mode("append")'
                  '.option("mergeSchema", "true").save(f"{p}/trips")'),
            (4.1, "MERGE WITH SCHEMA EVOLUTION INTO jobs.trips t USING (SELECT 'a' id, 'cash' paid) s ON t.id = s.id "
                  "WHEN MATCHED THEN UPDATE SET *"),
        ),
        {"select count(*), count(tip) from jobs.trips": "4 4"},
    ),
    Job(
        "a table of Spark's own catalog",
        (
            (3.5, "CREATE TABLE jobs.there USING lakedex LOCATION '{p}/trips'"),
            (3.5, 'assert spark.table("jobs.there").count() == 3'),
            (4.0, "CREATE TABLE plain USING lakedex LOCATION '{p}/trips'"),
            (4.0, 'assert spark.table("plain").count() == 3'),
            (4.0, "DROP TABLE plain"),
        ),
        {"select count(*) from jobs.trips": "3"},
    ),
    Job(
        "the statements of dbt",
        (
            (3.5, "CREATE OR REPLACE TABLE jobs.model USING lakedex PARTITIONED BY (city) COMMENT 'by day' "
                  "AS SELECT * FROM jobs.trips"),
            (3.5, "CREATE OR REPLACE TABLE jobs.model USING lakedex PARTITIONED BY (city) AS SELECT * FROM jobs.trips"),
            (3.5, "INSERT OVERWRITE jobs.model SELECT * FROM news"),
            (3.5, "ALTER TABLE jobs.model ADD COLUMN tip DOUBLE"),
            (3.5, "ALTER TABLE jobs.model ALTER COLUMN fare COMMENT 'in euros'"),
            (3.5, "COMMENT ON TABLE jobs.model IS 'all of them'"),
            (3.5, "CREATE OR REPLACE TEMPORARY VIEW mart AS SELECT * FROM jobs.model"),
            (3.5, "DESCRIBE TABLE EXTENDED jobs.model"),
            (3.5, "SHOW TABLES IN jobs"),
        ),
        {"select id, city, tip from mart order by id": "a oslo None, d rome None"},
    ),
    Job(
        "the quick start of Hudi, without a key",
        (
            (3.5, "CREATE TABLE jobs.quick (id INT, name STRING, price DOUBLE) USING hudi"),
            (3.5, "INSERT INTO jobs.quick VALUES (1, 'a', 10.0), (1, 'a', 10.0), (2, 'b', 20.0)"),
            (3.5, "UPDATE jobs.quick SET price = price * 2 WHERE id = 2"),
            (3.5, "DELETE FROM jobs.quick WHERE id = 1 AND _hoodie_record_key LIKE '%_0'"),
            (3.5, "MERGE INTO jobs.quick t USING (SELECT 2 id, 'c' name, 1.0D price UNION ALL SELECT 3, 'd', 3.0D) s "
                  "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"),
            (3.5, "INSERT OVERWRITE jobs.quick SELECT id, name, price + 1 FROM jobs.quick"),
        ),
        {"select id, name, price from jobs.quick order by id": "1 a 11.0, 2 c 2.0, 3 d 4.0",
         "select count(distinct _hoodie_record_key) from jobs.quick": "3"},
    ),
    Job(
        "look back, and go back",
        (
            (3.5, 'first = spark.sql("SELECT max(commit_time) FROM jobs.trips.history").head()[0]'),
            (3.5, "DELETE FROM jobs.trips"),
            (3.5, 'assert spark.sql(f"SELECT * FROM jobs.trips VERSION AS OF \'{first}\'").count() == 3'),
            (3.5, "SHOW CREATE TABLE jobs.trips"),
            (3.5, "SELECT * FROM jobs.trips.files"),
            (3.5, 'last = spark.sql("SELECT max(commit_time) FROM jobs.trips.history").head()[0]'),
            (3.5, 'Table.open(f"{p}/trips").maintenance.rollback(last)'),
        ),
        {"select count(*) from jobs.trips": "3"},
    ),
)  # fmt: skip
TYPED = {3.5: 46, 4.0: 62, 4.1: 63, 4.3: 63}
"""PySpark → the statements here that it knows; each works as it is typed."""


@pytest.fixture
def p(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A warehouse with a table of three rows, and a folder of files for a stream."""
    register_catalog(spark, "jobs", str(tmp_path))
    rows = "select * from values ('a', 'oslo', 9.0D, 1L), ('b', 'sf', 17.5D, 1L), ('c', 'oslo', 30.0D, 1L) as v(id, city, fare, ts)"
    spark.sql(f"create temp view first as {rows}")
    spark.sql(
        "create temp view news as select * from values ('a', 'oslo', 8.0D, 2L), ('d', 'rome', 5.0D, 2L) as v(id, city, fare, ts)"
    )
    trips = pa.table(
        {"id": ["a", "b", "c"], "city": ["oslo", "sf", "oslo"], "fare": [9.0, 17.5, 30.0], "ts": [1, 1, 1]}
    )
    Table.create(tmp_path / "trips", trips.schema, record_key="id", partition_by="city", ordering_by="ts").insert(trips)
    (tmp_path / "in").mkdir()
    pq.write_table(trips, tmp_path / "in" / "trips.parquet")
    yield tmp_path
    for name in ("first", "news", "mart", "batch"):
        spark.catalog.dropTempView(name)


@pytest.mark.proves("everyday jobs in SQL and DataFrames")
@pytest.mark.smoke
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_works_as_it_is_typed(spark: SparkSession, p: Path, job: Job) -> None:
    df = spark.table("first")
    names: dict[str, Any] = {"spark": spark, "df": df, "p": p, "Table": Table, "expr": expr, "lit": lit}
    for since, typed in job.steps:
        if since > VERSION:
            continue
        if typed.split()[0].isupper():
            spark.sql(typed.replace("{p}", str(p))).collect()
        else:
            exec(textwrap.dedent(typed), names)
    for query, rows in job.shows.items():
        assert ", ".join(" ".join(map(str, row)) for row in spark.sql(query).collect()) == rows, query


def test_the_number_of_statements_is_told() -> None:
    counts = {version: sum(since <= version for job in JOBS for since, _ in job.steps) for version in TYPED}
    assert counts == TYPED
