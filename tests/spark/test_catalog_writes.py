"""Statements of the Spark SQL catalog that change tables."""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakedex import Table, register_catalog


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writes")
    register_catalog(spark, "sea", str(folder))
    return folder


TRIPS = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
        ("m", pa.decimal128(10, 2)),
    ]
)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def trips(spark: SparkSession, warehouse: Path) -> Iterator[Path]:
    """A table with an ordering column and nine rows, 0 to 8, in three partitions."""
    rows = [
        {
            "id": f"k{n}",
            "city": ("oslo", "rome", "bonn")[n % 3],
            "ts": 1,
            "n": n,
            "d": dt.date(2024, 1, 1 + n),
            "at": START + dt.timedelta(hours=n),
            "x": float("nan") if n == 8 else n / 2,
            "m": Decimal(n),
        }
        for n in range(9)
    ]
    path = warehouse / "trips"
    made = Table.create(path, TRIPS, record_key="id", partition_by="city", ordering_by="ts")
    made.insert(pa.Table.from_pylist(rows, TRIPS))
    yield path
    spark.sql("drop table sea.trips")


def added(id: str, city: str, ts: int, n: int) -> str:
    return f"('{id}', '{city}', {ts}, {n}, null, null, null, null)"


def values(spark: SparkSession, query: str) -> list[Any]:
    return sorted((tuple(row) if len(row) > 1 else row[0] for row in spark.sql(query).collect()), key=repr)


def operations(path: Path) -> list[str]:
    return list(Table.open(path).inspect.history().column("operation").to_pylist())[::-1]


def test_create_table_makes_a_hudi_table(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(
        "create table if not exists sea.made (id string, t tinyint, city string, ts bigint) using hudi partitioned by (city) "
        "tblproperties (primaryKey = 'id', preCombineField = 'ts', type = 'cow')"
    )
    config = Table.open(warehouse / "made").scan().snapshot.config
    assert config.record_key_fields == ("id",) and config.partition_fields == ("city",)
    assert config.ordering_fields == ("ts",) and config.table_type == "COPY_ON_WRITE"
    assert spark.table("sea.made").schema["t"].dataType.simpleString() == "int", "Avro has no smaller integer"
    created = values(spark, "show create table sea.made")[0]
    spark.sql("drop table sea.made")
    spark.sql(created)
    assert Table.open(warehouse / "made").scan().snapshot.config.record_key_fields == ("id",)
    spark.sql("drop table sea.made purge")
    assert not (warehouse / "made").exists()


REFUSED = (
    ("create table sea.no (id int) using parquet", "USING parquet"),
    ("create table sea.no (id int, c char(3)) tblproperties (primaryKey = 'id')", r"'c' is char\(3\)"),
    ("create table sea.no (id int, s array<varchar(3)>) tblproperties (primaryKey = 'id')", r"varchar\(3\)"),
    ("alter table sea.trips add columns (extra varchar(3))", r"'extra' is varchar\(3\)"),
    ("create table sea.no (id int) tblproperties (primaryKey = 'key')", "'key' is not in the schema"),
    ("create table sea.no (id int) tblproperties (primaryKey = 'id', hoodie.nonsense = '1')", r"hoodie\.nonsense"),
    ("create table sea.no (id int, d date) partitioned by (years(d)) tblproperties (primaryKey = 'id')", "years"),
    ("create table sea.trips (id int) tblproperties (primaryKey = 'id')", "ALREADY_EXISTS"),
    ("create or replace table sea.trips (id int) tblproperties (primaryKey = 'id')", "'city' is not in the frame"),
    ("alter table sea.trips rename to sea.other", "RENAME TO"),
    ("alter table sea.trips alter column n type string", "n"),
    ("alter table sea.trips rename column missing to there", "missing"),
    ("create index idx on sea.trips using zorder (n)", "zorder"),
    ("create index column_stats on sea.trips (n) options (max_distinct_values = '9')", "only USING bitmap"),
    ("create index idx on sea.trips using bitmap (n) options (max_distinct_values = 'many')", "max_distinct_values"),
    ("create index idx on sea.trips using bitmap (missing)", "missing"),
)


COLLATED = (
    ("create table sea.no (id int, s string collate UTF8_LCASE) tblproperties (primaryKey = 'id')", "UTF8_LCASE"),
    ("create table sea.no (id int, s struct<x: string collate UNICODE>) tblproperties (primaryKey = 'id')", "UNICODE"),
    (
        "create table sea.no using hudi tblproperties (primaryKey = 'id') as "
        "select id, city collate UTF8_LCASE c from sea.trips",
        "'c' is string collate UTF8_LCASE",
    ),
    ("alter table sea.trips add columns (extra string collate UTF8_LCASE)", "'extra' is string collate UTF8_LCASE"),
)


def test_refusals(spark: SparkSession, trips: Path, warehouse: Path) -> None:
    for statement, error in [*REFUSED, *([] if spark.version.startswith("3.") else COLLATED)]:
        with pytest.raises(PySparkException, match=error):
            spark.sql(statement)
    assert not (warehouse / "no").exists()
    assert values(spark, "select count(*) from sea.trips") == [9]


def test_insert_is_an_upsert_where_there_is_an_ordering_column(
    spark: SparkSession, trips: Path, warehouse: Path
) -> None:
    spark.sql(f"insert into sea.trips values {added('k0', 'oslo', 2, 100)}, {added('k3', 'oslo', 0, 100)}")
    assert values(spark, "select id, n from sea.trips where city = 'oslo'") == [("k0", 100), ("k3", 3), ("k6", 6)]
    assert operations(trips)[-1] == "UPSERT"
    spark.sql("set hoodie.spark.sql.insert.into.operation = insert")
    try:
        spark.sql(f"insert into sea.trips values {added('k0', 'oslo', 3, 200)}")
    finally:
        spark.sql("reset hoodie.spark.sql.insert.into.operation")
    assert values(spark, "select n from sea.trips where id = 'k0'") == [100, 200]


def test_frames_are_written(spark: SparkSession, trips: Path) -> None:
    frame = spark.table("sea.trips").where("n < 4")
    frame.withColumn("n", frame.n + 10).withColumn("ts", frame.ts + 1).writeTo("sea.trips").append()
    assert values(spark, "select n from sea.trips") == sorted([10, 11, 12, 13, 4, 5, 6, 7, 8], key=repr)
    new = spark.range(3).selectExpr("id", "id % 2 part").writeTo("sea.made").using("hudi")
    new.tableProperty("primaryKey", "id").partitionedBy(F.col("part")).create()
    assert values(spark, "select * from sea.made") == [(0, 0), (1, 1), (2, 0)]
    spark.sql("drop table sea.made")


def test_cached_names_show_what_python_wrote(spark: SparkSession, trips: Path) -> None:
    table = Table.open(str(trips), spark=spark)
    table.create_view("seen")
    try:
        spark.sql("cache table sea.trips options ('storageLevel' = 'DISK_ONLY')")
        spark.sql("cache table seen")
        level = spark.table("sea.trips").storageLevel
        assert level.useDisk and not level.useMemory
        sums = spark.sql("select sum(n) from sea.trips").cache()
        assert sums.collect() == [(36,)]
        table.update(set={"n": "100"}, where="id = 'k0'")
        assert values(spark, "select n from sea.trips where id = 'k0'") == [100]
        assert values(spark, "select sum(n) from sea.trips") == [136]
        assert values(spark, "select n from seen where id = 'k0'") == [100]
        assert spark.catalog.isCached("seen") and spark.catalog.isCached("sea.trips")
        spark.sql(f"insert into sea.trips values {added('k9', 'oslo', 1, 9)}")
        assert values(spark, "select sum(n) from sea.trips") == values(spark, "select sum(n) from seen") == [145]
        assert spark.catalog.isCached("sea.trips") and spark.table("sea.trips").storageLevel == level
        spark.sql("uncache table sea.trips")
        table.update(set={"n": "1"}, where="id = 'k9'")
        assert not spark.catalog.isCached("sea.trips"), "what is not cached is not cached by a write"
    finally:
        spark.catalog.clearCache()
        spark.catalog.dropTempView("seen")


def test_create_table_as_select(spark: SparkSession, trips: Path, warehouse: Path) -> None:
    properties = "using hudi tblproperties (primaryKey = 'id')"
    spark.sql(f"create table sea.made {properties} as select id, n from sea.trips where n > 6")
    assert values(spark, "select * from sea.made") == [("k7", 7), ("k8", 8)]
    assert operations(warehouse / "made") == ["INSERT"]
    spark.sql("drop table sea.made")
    failing = "cast(raise_error(id) as string) x from sea.trips"
    with pytest.raises(Exception, match="k"):
        spark.sql(f"create table sea.made {properties} as select id, {failing}")
    assert not (warehouse / "made").exists(), "a table whose rows failed is gone"


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def failing_creates(spark: SparkSession, name: str, path: Path, version: int) -> list[Callable[[], Any]]:
    """Ways to make a table in a folder out of rows that fail."""
    rows = "select id, city, cast(raise_error(id) as string) x from sea.trips"
    settings = f"primaryKey = 'id', hoodie.write.table.version = '{version}'"
    frame = spark.sql(rows)
    writer = frame.writeTo(name).using("hudi").tableProperty("primaryKey", "id")
    writer = writer.tableProperty("hoodie.write.table.version", str(version)).partitionedBy(F.col("city"))
    head = f"table {name} using hudi partitioned by (city)"
    return [
        lambda: spark.sql(f"create {head} tblproperties ({settings}) as {rows}"),
        lambda: spark.sql(f"create {head} location '{path}' tblproperties ({settings}) as {rows}"),
        lambda: spark.sql(f"create or replace {head} tblproperties ({settings}) as {rows}"),
        writer.create,
        writer.createOrReplace,
    ]


@pytest.mark.parametrize("version, name", [(6, "made"), (8, "empty"), (9, "by path")])
def test_a_create_that_fails_removes_only_what_it_made(
    spark: SparkSession, trips: Path, warehouse: Path, tmp_path: Path, version: int, name: str
) -> None:
    path = tmp_path / name if name == "by path" else warehouse / name
    if name == "empty":
        path.mkdir()
    before = listed(warehouse)
    for create in failing_creates(spark, f"sea.`{path}`" if name == "by path" else f"sea.{name}", path, version):
        with pytest.raises(Exception, match=r"k\d"):
            create()
        assert listed(warehouse) == before and not listed(tmp_path)
    shutil.rmtree(path, ignore_errors=True)


HOLDING: dict[str, Callable[[Path, Path], object]] = {
    "files of others": lambda path, _: (path.mkdir(), (path / "notes.txt").write_text("mine")),
    "a hidden file": lambda path, _: (path.mkdir(), (path / ".notes.crc").write_text("mine")),
    "a namespace with a table": lambda path, _: Table.create(path / "t", TRIPS, record_key="id"),
    "a table": lambda path, _: Table.create(path, TRIPS, record_key="id"),
    "a folder of a table": lambda path, _: (path / ".hoodie" / "metadata").mkdir(parents=True),
    "a link to files": lambda path, other: ((other / "notes.txt").write_text("mine"), path.symlink_to(other)),
    "a link to an empty folder": lambda path, other: path.symlink_to(other),
    "a link to nowhere": lambda path, other: path.symlink_to(other / "missing"),
    "a file": lambda path, _: path.write_text("mine"),
}


@pytest.mark.parametrize("what", HOLDING)
def test_a_create_takes_no_folder_that_holds_anything(
    spark: SparkSession, trips: Path, warehouse: Path, tmp_path: Path, what: str
) -> None:
    (tmp_path / "other").mkdir()
    for name, path in (("sea.held", warehouse / "held"), (f"sea.`{tmp_path}/held`", tmp_path / "held")):
        HOLDING[what](path, tmp_path / "other")
        before = listed(warehouse), listed(tmp_path)
        plain = f"create table {name} (id string) using hudi tblproperties (primaryKey = 'id')"
        for create in [*failing_creates(spark, name, path, 8), lambda plain=plain: spark.sql(plain)]:
            with pytest.raises((PySparkException, Py4JJavaError), match=r"held|k\d"):
                create()
            assert (listed(warehouse), listed(tmp_path)) == before, what
    held = warehouse / "held"
    held.unlink() if held.is_symlink() or held.is_file() else shutil.rmtree(held)


def test_a_create_that_fails_leaves_what_others_wrote_meanwhile(
    spark: SparkSession, trips: Path, warehouse: Path
) -> None:
    made = warehouse / "made"

    def wrote(row: Any) -> str:
        with contextlib.suppress(Exception):  # an upsert, as Spark tries a failed task again
            Table.open(made).upsert(pa.table({"id": ["theirs"], "x": ["1"]}))
        raise ValueError("no such row")

    frame = spark.table("sea.trips").coalesce(1).select("id", F.udf(wrote, "string")("id").alias("x"))
    with pytest.raises(Exception, match="no such row"):
        frame.writeTo("sea.made").using("hudi").tableProperty("primaryKey", "id").create()
    assert values(spark, "select id from sea.made") == ["theirs"]
    spark.sql("drop table sea.made")


def test_overwrites(spark: SparkSession, trips: Path) -> None:
    counts = "select city, count(*), max(n) from sea.trips group by city"
    spark.sql("insert overwrite sea.trips partition (city = 'rome') values ('x', 1, 99, null, null, null, null)")
    assert values(spark, counts) == [("bonn", 3, 8), ("oslo", 3, 6), ("rome", 1, 99)]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql(f"insert overwrite sea.trips values {added('y', 'oslo', 1, 77)}")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert values(spark, counts) == [("bonn", 3, 8), ("oslo", 1, 77), ("rome", 1, 99)]
    spark.table("sea.trips").where("city = 'bonn' and n = 8").writeTo("sea.trips").overwritePartitions()
    assert values(spark, counts) == [("bonn", 1, 8), ("oslo", 1, 77), ("rome", 1, 99)]
    row = spark.sql("select id, d, at, m from sea.trips where isnan(x)").head()
    assert row is not None and tuple(row)[:2] == ("k8", dt.date(2024, 1, 9)) and row.m == 8
    spark.sql(f"insert overwrite sea.trips values {added('z', 'bern', 1, 1)}")
    assert values(spark, counts) == [("bern", 1, 1)]
    wanted = ["INSERT", "INSERT_OVERWRITE", "INSERT_OVERWRITE", "INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"]
    assert operations(trips) == wanted
    assert not list((trips / ".hoodie" / ".temp").glob("lakedex-sql-*"))


def test_delete(spark: SparkSession, trips: Path) -> None:
    left = set(range(9))
    for where, gone in (
        ("n = null", ""),
        ("id = 'k0' and n > 5", ""),
        ("id in ('k1', \"it's\")", "1"),
        ("city = 'rome' and (n > 6 or n < 2)", "7"),
        ("d = date'2024-01-03' or at >= timestamp'2024-01-01 08:00:00'", "28"),
        ("m = 3.00 or x = 2.5", "35"),
        ("id like 'k%' and not (n < 6)", "6"),
    ):
        assert values(spark, f"select n from sea.trips where {where}") == [int(n) for n in gone]
        spark.sql(f"delete from sea.trips where {where}")
        left -= {int(n) for n in gone}
        assert values(spark, "select n from sea.trips") == sorted(left), where
    for where in (r"id like 'k\\\\%'", "isnan(x)", "id = (select max(id) from sea.trips)"):
        spark.sql(f"delete from sea.trips where {where}")
    assert values(spark, "select n from sea.trips") == [0]
    spark.sql("truncate table sea.trips")
    assert values(spark, "select count(*) from sea.trips") == [0]


def test_columns_change(spark: SparkSession, trips: Path) -> None:
    spark.sql("alter table sea.trips add columns (extra string, size decimal(12, 2))")
    spark.sql("alter table sea.trips alter column n type bigint")
    spark.sql("insert into sea.trips values ('new', 'oslo', 1, 5000000000, null, null, null, null, 'e', null)")
    assert values(spark, "select id, n, extra from sea.trips where n > 7") == [
        ("k8", 8, None),
        ("new", 5000000000, "e"),
    ]
    assert values(spark, "select sum(n) from sea.trips") == [5000000036]
    spark.sql("alter table sea.trips rename column extra to more")
    spark.sql("alter table sea.trips drop column size")
    spark.sql("alter table sea.trips drop column if exists size")
    assert spark.table("sea.trips").columns == ["id", "city", "ts", "n", "d", "at", "x", "m", "more"]
    assert values(spark, "select more from sea.trips where id = 'new'") == ["e"]
    spark.sql("alter table sea.trips set tblproperties (hoodie.embed.timeline.server = 'false')")


def described(spark: SparkSession, table: str) -> dict[str, str]:
    rows = spark.sql(f"describe extended {table}").collect()
    return {
        row["col_name"]: row["comment"] or row["data_type"] for row in rows if row["comment"] or row[0] == "Comment"
    }


def test_comments_are_kept(spark: SparkSession, warehouse: Path) -> None:
    properties = "using hudi comment \"it's rides\" tblproperties (primaryKey = 'id')"
    spark.sql(
        "create table sea.made (id int comment 'the key', s struct<a: int comment 'inside', b: int>, n int) "
        + properties
    )
    spark.sql("alter table sea.made add columns (more int comment 'added')")
    spark.sql("alter table sea.made alter column n comment 'how many'")
    spark.sql("insert into sea.made values (1, named_struct('a', 1, 'b', 2), 3, 4)")
    said = {"id": "the key", "n": "how many", "more": "added", "Comment": "it's rides"}
    assert described(spark, "sea.made") == said
    read = spark.table("sea.made")
    assert read.schema["n"].metadata == {"comment": "how many"}
    assert read.schema["s"].dataType["a"].metadata == {"comment": "inside"}  # type: ignore[index]
    assert values(spark, "select s.a, s.b, n from sea.made where id = 1") == [(1, 2, 3)]
    read.withColumn("n", F.col("n") + 1).writeTo("sea.made").append()
    assert Table.open(warehouse / "made").schema.field("id").metadata == {b"comment": b"the key"}
    spark.sql("alter table sea.made alter column s.b comment 'inside too'")
    created = values(spark, "show create table sea.made")[0]
    spark.sql(f"create table sea.other {properties} as select * from sea.made")
    assert described(spark, "sea.other") == said
    spark.sql("comment on table sea.other is 'others'")
    assert described(spark, "sea.other")["Comment"] == "others"
    spark.sql("comment on table sea.other is null")
    spark.sql("alter table sea.other alter column n comment ''")
    assert described(spark, "sea.other") == {"id": "the key", "more": "added"}
    spark.sql("drop table sea.made")
    spark.sql(created)
    assert described(spark, "sea.made") == said
    assert Table.open(warehouse / "made").schema.field("s").type.field("b").metadata == {b"comment": b"inside too"}
    spark.sql("drop table sea.made")
    spark.sql("drop table sea.other")


def test_indexes(spark: SparkSession, trips: Path) -> None:
    def names() -> set[str]:
        return set(values(spark, "select name from sea.trips.indexes"))

    assert {"column_stats", "bloom_filters"} <= names()
    spark.sql("drop index bloom_filters on sea.trips")
    assert "bloom_filters" not in names()
    spark.sql("create index bloom_filters on sea.trips using bloom_filters (id)")
    spark.sql("create index if not exists bloom_filters on sea.trips (id)")
    with pytest.raises(AnalysisException, match="bloom_filters"):
        spark.sql("create index bloom_filters on sea.trips (id)")
    with pytest.raises(AnalysisException, match="nothing"):
        spark.sql("drop index nothing on sea.trips")
    spark.sql("drop index if exists nothing on sea.trips")
    assert "bloom_filters" in names()


def test_writes_of_a_table_named_by_its_path(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    path = tmp_path / "by path"
    spark.sql(f"create table sea.`{path}` (id string, n int) using hudi tblproperties (primaryKey = 'id')")
    spark.sql(f"insert into sea.`{path}` values ('a', 1)")
    assert values(spark, f"select * from sea.`{path}`") == [("a", 1)]
    with pytest.raises(UnsupportedOperationException, match="drops its own tables only"):
        spark.sql(f"drop table sea.`{path}`")
    assert path.exists()
