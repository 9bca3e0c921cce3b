"""``MERGE INTO``, ``UPDATE`` and ``DELETE`` of the Spark SQL catalog: rows and errors, statement by statement."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.row_level import row_level
from golden_tables import unpack
from lakedex import Table, register_catalog

PROPERTIES = "using hudi partitioned by (city) tblproperties (primaryKey = 'id')"
STORED = "('k0', 'oslo', 0), ('k1', 'rome', 1), ('k2', 'bonn', 2), ('k3', 'oslo', 3)"
MERGE = "merge into rows.trips t using"
BY_KEY = "src s on t.id = s.id"


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warehouse with one table, of one file in each of three partitions."""
    folder = tmp_path_factory.mktemp("rows")
    register_catalog(spark, "rows", str(folder))
    spark.sql("create temp view src as select * from values ('k0', 'oslo', 9), ('k4', 'rome', 7) as v(id, city, n)")
    spark.sql(f"create table rows.trips (id string, city string, n int) {PROPERTIES}")
    spark.sql(f"insert into rows.trips values {STORED}")
    yield folder
    spark.catalog.dropTempView("src")


@pytest.fixture
def warehouse(spark: SparkSession, made: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    shutil.copytree(made, folder)
    register_catalog(spark, "rows", str(folder))
    return folder


@pytest.fixture
def trips(warehouse: Path) -> Path:
    return warehouse / "trips"


def rows(spark: SparkSession, query: str = "select id, city, n from rows.trips order by id") -> str:
    return " ".join(":".join(map(str, row)) for row in spark.sql(query).collect())


STATEMENTS = (
    ("update rows.trips set n = 5 where id = 'k1'", "k0:oslo:0 k1:rome:5 k2:bonn:2 k3:oslo:3"),
    ("update rows.trips set n = n + 1", "k0:oslo:1 k1:rome:2 k2:bonn:3 k3:oslo:4"),
    ("update rows.trips set city = 'bonn' where n = 3", "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:bonn:3"),
    ("update rows.trips set n = 1 where n > 100", "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3"),
    ("update rows.trips set id = id, n = null where id = 'k0'", "k0:oslo:None k1:rome:1 k2:bonn:2 k3:oslo:3"),
    (
        "update rows.trips set n = (select max(n) * 10 from src) where id in (select id from src)",
        "k0:oslo:90 k1:rome:1 k2:bonn:2 k3:oslo:3",
    ),
    (
        "update rows.trips t set n = -1 where not exists (select 1 from src s where s.city = t.city)",
        "k0:oslo:0 k1:rome:1 k2:bonn:-1 k3:oslo:3",
    ),
    (
        "update rows.trips t set n = (select max(n) from src s where s.id = t.id) where city = 'oslo'",
        "k0:oslo:9 k1:rome:1 k2:bonn:2 k3:oslo:None",
    ),
    ("delete from rows.trips where length(city) = 4 and n % 2 = 1", "k0:oslo:0 k2:bonn:2"),
    ("delete from rows.trips t where n = (select min(n) from rows.trips)", "k1:rome:1 k2:bonn:2 k3:oslo:3"),
    ("delete from rows.trips where id in (select id from src)", "k1:rome:1 k2:bonn:2 k3:oslo:3"),
    ("delete from rows.trips where id not in (select id from src)", "k0:oslo:0"),
    (
        "delete from rows.trips where id not in (select nullif(id, 'k4') from src)",
        "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3",
    ),
    ("delete from rows.trips where id = 'k1'", "k0:oslo:0 k2:bonn:2 k3:oslo:3"),
    (
        f"{MERGE} {BY_KEY} when matched then update set * when not matched then insert *",
        "k0:oslo:9 k1:rome:1 k2:bonn:2 k3:oslo:3 k4:rome:7",
    ),
    (
        f"{MERGE} {BY_KEY} and t.city = s.city when matched then update set n = s.n + t.n when not matched then insert *",
        "k0:oslo:9 k1:rome:1 k2:bonn:2 k3:oslo:3 k4:rome:7",
    ),
    (
        f"{MERGE} {BY_KEY} when matched and s.n > 8 then update set * when not matched then insert * "
        "when not matched by source and t.n = 2 then delete when not matched by source then update set n = -t.n",
        "k0:oslo:9 k1:rome:-1 k3:oslo:-3 k4:rome:7",
    ),
    (
        f"{MERGE} {BY_KEY} when matched and s.n > 8 then delete when matched then update set n = 1 "
        "when not matched and s.n > 7 then insert * when not matched then insert (id, city) values (s.id, 'bonn')",
        "k1:rome:1 k2:bonn:2 k3:oslo:3 k4:bonn:None",
    ),
    (
        f"{MERGE} (select id, max(n) + 1 n from rows.trips group by id) s on t.id = s.id "
        "when matched then update set n = s.n",
        "k0:oslo:1 k1:rome:2 k2:bonn:3 k3:oslo:4",
    ),
    (
        f"{MERGE} (select * from src union all select * from src) s on t.id = s.id when matched then delete",
        "k1:rome:1 k2:bonn:2 k3:oslo:3",
    ),
    (
        f"{MERGE} (select cast(null as string) id union all select 'k2') s on t.id = s.id when matched then delete",
        "k0:oslo:0 k1:rome:1 k3:oslo:3",
    ),
    (
        f"{MERGE} (select 'rome' c, 3 low) s on t.city = s.c or t.n = s.low when matched then update set city = 'bonn'",
        "k0:oslo:0 k1:bonn:1 k2:bonn:2 k3:bonn:3",
    ),
    (f"{MERGE} {BY_KEY} when not matched then insert *", "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3 k4:rome:7"),
    (
        f"{MERGE} {BY_KEY} when not matched and s.n < 0 then insert * "
        "when not matched then insert (id, city, n) values (upper(s.id), s.city, s.n)",
        "K4:rome:7 k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3",
    ),
    (
        "with w as (select 'k3' id) merge into rows.trips using w on trips.id = w.id when matched then delete",
        "k0:oslo:0 k1:rome:1 k2:bonn:2",
    ),
    (
        f"{MERGE} (select 'k3' ID, 5 N) S on T.Id = S.iD when matched then update set N = S.n",
        "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:5",
    ),
    # ------------------------------------------------------------------------------------------------------- errors
    (
        f"{MERGE} (select * from src union all select * from src) s on t.id = s.id when matched then update set *",
        "MERGE_CARDINALITY_VIOLATION",
    ),
    (
        f"{MERGE} (select * from src union all select 'k0', 'x', 1) s on t.id = s.id when matched and s.n = 9 then delete",
        "MERGE_CARDINALITY_VIOLATION",
    ),
    (
        f"{MERGE} (select cast(null as string) id, 'bonn' city, 1 n) s on t.id = s.id when not matched then insert *",
        "null or empty record key",
    ),
    (
        "update rows.trips set id = 'other' where id = 'k3'",
        "table rows.trips: id is the record key and cannot be updated; DELETE the row and INSERT it again",
    ),
    (
        f"{MERGE} src s on t.n + 9 = s.n when matched then update set id = 'z'",
        "table rows.trips: id is the record key and cannot be updated",
    ),
    (
        f"{MERGE} src s on t.n = s.n when not matched then insert *",
        "a key that is in the table already, for example 'k0'",
    ),
    (
        f"{MERGE} (select 'k9' id, 'rome' city, 1 n union all select 'k9', 'rome', 2) s on t.id = s.id "
        "when not matched then insert *",
        "with key 'k9'",
    ),
    ("update rows.trips set n = 'abc'", "CAST"),
    ("update rows.trips set n = id || 'x' where id = 'k0'", "CAST"),
    ("update rows.trips set missing = 1", "missing"),
)


@pytest.mark.parametrize("statement, expected", STATEMENTS)
def test_statements(spark: SparkSession, trips: Path, statement: str, expected: str) -> None:
    before, commits = rows(spark), Table.open(trips).inspect.history().num_rows
    try:
        spark.sql(statement).collect()
        found = rows(spark)
    except Exception as error:
        found = str(error)
        assert expected in found
        assert "Traceback" not in found and "\tat " not in found
        assert rows(spark) == before, "a statement that fails changes nothing"
        return
    assert found == expected
    assert Table.open(trips).inspect.history().num_rows == commits + (found != before)


@pytest.mark.smoke
def test_plans_say_what_finds_the_rows(spark: SparkSession, trips: Path) -> None:
    ends = {
        f"{MERGE} {BY_KEY} when matched then delete": "the record key (id) in the whole table, reads only files that hold one",
        f"{MERGE} {BY_KEY} and t.city = s.city when not matched then insert *": "(id) in the partition of the row",
        f"{MERGE} src s on t.city = s.city when matched then delete": "files that may hold a value of city of the joined rows",
        f"{MERGE} {BY_KEY} when not matched by source then delete": "the filters of the scan below find the rows",
        "update rows.trips set n = 1 where id in (select id from src)": "UPDATE rows.trips: looks up the record key (id)",
        "delete from rows.trips where length(id) = 3": "DELETE rows.trips: the filters of the scan below find the rows",
    }
    for statement, end in ends.items():
        assert end in rows(spark, f"explain {statement}"), statement
    assert rows(spark) == "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3"


@pytest.mark.smoke
def test_a_merge_reads_and_shuffles_what_the_builder_does(spark: SparkSession, tmp_path: Path) -> None:
    builder, merge, *others = row_level(spark, tmp_path, 4_000, 8, 60)
    assert builder.read >= 500
    assert merge.read <= 1.1 * builder.read + 100 and merge.shuffled <= builder.shuffled + 2, merge
    for other in others:
        assert other.read <= 1.1 * builder.read + 100, other


def test_a_commit_in_between_is_a_conflict(spark: SparkSession, trips: Path) -> None:
    """The function runs in a task, and another writer commits there, after Spark has read the table."""

    def meddle(n: int) -> int:
        table = Table.open(trips)
        if table.scan("id = 'new'").count() == 0:
            table.upsert(pa.table({"id": ["new"], "city": ["oslo"], "n": pa.array([7], pa.int32())}))
        return n + 100

    spark.udf.register("meddle", meddle, "int")
    statement = "update rows.trips set n = meddle(n) where id = 'k1'"
    with pytest.raises(PySparkException, match="came after the rows were read .* nothing was written, run .* again"):
        spark.sql(statement)
    assert rows(spark) == "k0:oslo:0 k1:rome:1 k2:bonn:2 k3:oslo:3 new:oslo:7"
    spark.sql(statement)
    assert rows(spark) == "k0:oslo:0 k1:rome:101 k2:bonn:2 k3:oslo:3 new:oslo:7"


def test_rows_of_a_source_that_changes_each_time(spark: SparkSession, trips: Path) -> None:
    """Files are chosen by the very rows that are joined: a key is never inserted twice."""
    # Spark takes the function for a deterministic one; sources that it knows to be none are refused by Spark 4.3.
    spark.udf.register("chance", lambda n: random.random(), "double")
    spark.sql("insert into rows.trips select concat('r', id), 'rome', 0 from range(40)")
    source = "(select concat('r', id) id, 'rome' city, 1 n from range(40) where chance(id) < 0.3)"
    seen = 0
    for _ in range(4):
        spark.sql(
            f"{MERGE} {source} s on t.id = s.id when matched then update set n = t.n + s.n when not matched then insert *"
        )
        assert spark.sql("select count(*), count(distinct id) from rows.trips").collect() == [(44, 44)]
        total = spark.sql("select sum(n) from rows.trips where id like 'r%'").head()[0]  # type: ignore[index]
        assert total > seen
        seen = total


def test_caches_and_sessions(spark: SparkSession, trips: Path, warehouse: Path) -> None:
    spark.sql("cache table rows.trips")
    try:
        assert rows(spark, "select sum(n) from rows.trips") == "6"
        spark.sql("update rows.trips set n = n + 1 where id in (select id from src)")
        assert rows(spark, "select sum(n) from rows.trips") == "7"
        spark.sql(f"{MERGE} {BY_KEY} when not matched then insert *")
        assert rows(spark, "select sum(n) from rows.trips") == "14"
    finally:
        spark.catalog.clearCache()
    other = spark.newSession()
    register_catalog(other, "rows", str(warehouse))
    other.conf.set("spark.sql.ansi.enabled", "false")
    other.conf.set("spark.sql.caseSensitive", "true")
    other.sql("update rows.trips set n = cast('abc' as int) where id = 'k0'")
    assert rows(spark) == "k0:oslo:None k1:rome:1 k2:bonn:2 k3:oslo:3 k4:rome:7"
    with pytest.raises(PySparkException, match="N"):
        other.sql("update rows.trips set N = 1")


def test_a_table_with_a_record_index_is_not_written(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    path = unpack("mor_v8_trips_8i3u1d", tmp_path / "mor")
    before = sorted(str(file) for file in path.rglob("*"))
    for statement in (
        f"merge into rows.`{path}` t using src s on t.uuid = s.id when matched then delete",
        f"merge into rows.`{path}` t using (select * from rows.`{path}`) s on t.uuid = s.uuid when not matched then insert *",
        f"update rows.`{path}` set fare = 1",
        f"delete from rows.`{path}` where length(uuid) > 0",
        f"delete from rows.`{path}` where uuid = 'x'",
    ):
        with pytest.raises(
            PySparkException, match="it carries the record index .record_index., which lakedex does not maintain"
        ):
            spark.sql(statement)
    assert sorted(str(file) for file in path.rglob("*")) == before


@pytest.mark.smoke
@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="came with PySpark 4.0")
def test_merges_of_frames_and_of_new_columns(spark: SparkSession, trips: Path) -> None:
    frame = spark.table("src").alias("s")
    merged = frame.mergeInto("rows.trips", F.expr("rows.trips.id = s.id"))
    merged.whenMatched(F.col("s.n") > 8).delete().whenNotMatched().insertAll().merge()
    assert rows(spark) == "k1:rome:1 k2:bonn:2 k3:oslo:3 k4:rome:7"
    source = "(select 'k4' id, 'rome' city, 8 n, 'x' more union all select 'k5', 'bonn', 5, 'y')"
    statement = f"merge with schema evolution into rows.trips t using {source} s on t.id = s.id "
    statement += "when matched then update set * when not matched then insert *"
    if pyspark.__version__.startswith("4.0."):
        with pytest.raises(PySparkException, match="(?i)schema evolution"):
            spark.sql(statement)
        return
    spark.sql(statement)
    found = rows(spark, "select id, n, more from rows.trips order by id")
    assert found == "k1:1:None k2:2:None k3:3:None k4:8:x k5:5:y"


@pytest.mark.proves("`MERGE`, `UPDATE`, `DELETE` in SQL")
@pytest.mark.smoke
def test_all_statements_on_each_pyspark(spark: SparkSession, trips: Path) -> None:
    spark.sql(
        f"{MERGE} {BY_KEY} when matched and t.n = 0 then update set * when not matched then insert * "
        "when not matched by source and t.city = 'bonn' then delete"
    )
    assert rows(spark) == "k0:oslo:9 k1:rome:1 k3:oslo:3 k4:rome:7"
    spark.sql("update rows.trips set city = 'bonn', n = (select max(n) from src) where id not in (select id from src)")
    assert rows(spark) == "k0:oslo:9 k1:bonn:9 k3:bonn:9 k4:rome:7"
    spark.sql("delete from rows.trips where length(id) = 2 and id in (select id from src)")
    assert rows(spark) == "k1:bonn:9 k3:bonn:9"
    spark.sql(f"{MERGE} {BY_KEY} when not matched then insert (id, city) values (s.id, s.city)")
    assert rows(spark) == "k0:oslo:None k1:bonn:9 k3:bonn:9 k4:rome:None"
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(
            f"{MERGE} (select * from src union all select * from src) s on t.id = s.id when matched then update set *"
        )


def test_timestamp_keys_in_a_session_of_another_zone(spark: SparkSession, warehouse: Path) -> None:
    """A key is a moment, whatever the session's clock says."""
    spark.sql(
        "create table rows.at (at timestamp, city string, n int) using lakedex partitioned by (city) "
        "tblproperties (primaryKey = 'at')"
    )
    spark.sql(
        "insert into rows.at select timestamp'2026-03-08 12:00:00Z', city, 0 from values ('oslo'), ('rome') v(city)"
    )
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    other.sql(
        "merge into rows.at t using (select timestamp'2026-03-08 08:00:00' at, 'oslo' city, 1 n "
        "union all select timestamp'2026-03-08 12:00:00', 'rome', 2) s on t.at = s.at and t.city = s.city "
        "when matched then update set * when not matched then insert *"
    )
    other.sql("update rows.at set n = n + 10 where at = timestamp'2026-03-08 12:00:00'")
    found = "select cast(at as long) - 1772971200, city, n from rows.at order by 1, 2"
    assert rows(spark, found) == rows(other, found) == "0:oslo:1 0:rome:0 14400:rome:12"


def test_an_insert_that_reads_its_own_table_is_no_merge(spark: SparkSession, trips: Path) -> None:
    """Spark's plan of it looks like that of a MERGE that only inserts."""
    spark.sql(
        "insert into rows.trips select id, city, n from src where not exists (select 1 from rows.trips t where t.n = src.n)"
    )
    assert rows(spark) == "k0:oslo:0 k0:oslo:9 k1:rome:1 k2:bonn:2 k3:oslo:3 k4:rome:7"
