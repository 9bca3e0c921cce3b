"""DDL of the catalog: defaults, properties, locations, nested columns; the statements that are refused."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from lakedex import Table, register_catalog

KEY = "using hudi tblproperties (primaryKey = 'id')"


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ddl")
    register_catalog(spark, "ddl", str(folder))
    return folder


def values(spark: SparkSession, statement: str) -> list[Any]:
    return [tuple(row) if len(row) > 1 else row[0] for row in spark.sql(statement).collect()]


def properties(spark: SparkSession, name: str) -> dict[str, str]:
    return dict(values(spark, f"show tblproperties {name}"))


@pytest.mark.smoke
def test_defaults_are_kept_and_applied(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(
        "create table ddl.d (id int, n int default 42, s string default 'it\\'s', d date default date'2024-02-29', "
        f"at timestamp default current_timestamp()) {KEY}"
    )
    spark.sql("insert into ddl.d values (1, default, default, default, default), (2, null, 'x', null, null)")
    found = values(spark, "select id, n, s, d, at is null from ddl.d order by id")
    assert found == [(1, 42, "it's", dt.date(2024, 2, 29), False), (2, None, "x", None, True)]
    spark.sql("alter table ddl.d rename column s to t")
    spark.sql("alter table ddl.d alter column d drop default")
    spark.sql("alter table ddl.d alter column n set default -1")
    spark.sql("alter table ddl.d drop column at")
    spark.sql("insert into ddl.d values (3, default, default, default)")
    assert values(spark, "select n, t, d from ddl.d where id = 3") == [(-1, "it's", None)]
    if not spark.version.startswith(("3.", "4.0.")):  # These fill left out columns of tables of their own only.
        spark.sql("insert into ddl.d (id) values (4)")
        assert values(spark, "select n, t, d from ddl.d where id = 4") == [(-1, "it's", None)]
    created = values(spark, "show create table ddl.d")[0]
    assert "DEFAULT -1" in created and "DEFAULT cast(X'69742773' as string)" in created
    kept = {k: v for k, v in Table.open(warehouse / "d").properties.items() if k.startswith("lakedex.default.")}
    assert kept == {"lakedex.default.n": "-1", "lakedex.default.t": r"'it\'s'"}
    spark.sql("alter table ddl.d add columns (z bigint)")
    spark.sql("alter table ddl.d alter column z set default 9")
    spark.sql("insert into ddl.d values (5, default, default, default, default)")
    assert values(spark, "select id, z from ddl.d where id in (3, 5) order by id") == [(3, None), (5, 9)]
    assert values(spark, "select id from ddl.d where z is null and id < 4 order by id") == [1, 2, 3]
    assert Table.open(warehouse / "d").scan("id = 5").to_arrow()["z"].to_pylist() == [9]


def test_a_default_of_others_is_no_code(spark: SparkSession, warehouse: Path) -> None:
    Table.create(warehouse / "evil", pa.schema([("id", pa.int32()), ("s", pa.string())]), record_key="id")
    with (warehouse / "evil" / ".hoodie" / "hoodie.properties").open("a") as file:
        file.write("lakedex.default.s=java_method('java.lang.System', 'getProperty', 'user.name')\n")
    spark.sql("insert into ddl.evil values (1, default)")
    assert values(spark, "select s from ddl.evil") == [None]


def test_properties_of_users(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(
        "create table ddl.p (id int, ts bigint, city string) using hudi partitioned by (city) comment 'rides' "
        "tblproperties ('hoodie.datasource.write.recordkey.field' = 'id', preCombineField = 'ts', team = 'bikes', "
        "'hoodie.write.table.version' = '9', 'hoodie.datasource.write.hive_style_partitioning' = 'false')"
    )
    spark.sql("alter table ddl.p set tblproperties ('owner team' = 'x = ü\n', 'a.b' = '')")
    spark.sql("alter table ddl.p unset tblproperties (team, nothing)")
    said = {
        "a.b": "",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.write.table.version": "9",
        "owner team": "x = ü\n",
        "preCombineField": "ts",
        "primaryKey": "id",
        "type": "cow",
    }
    assert properties(spark, "ddl.p") == said
    assert Table.open(warehouse / "p").properties["owner team"] == "x = ü\n"
    created = values(spark, "show create table ddl.p")[0]
    assert "LOCATION" not in created
    spark.sql("drop table ddl.p")
    spark.sql(created)
    assert properties(spark, "ddl.p") == said
    described = {row[0]: row[1] for row in spark.sql("describe extended ddl.p").collect()}
    assert described["Comment"] == "rides" and described["Type"] == "MANAGED"


def test_nested_columns_and_nulls(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(f"create table ddl.n (id int, s struct<a: int>, m int not null) {KEY}")
    spark.sql("insert into ddl.n values (1, named_struct('a', 1), 1)")
    with pytest.raises(Exception, match="m"):
        spark.sql("insert into ddl.n values (2, null, null)")
    spark.sql("alter table ddl.n add column s.b string comment 'inside'")
    spark.sql("alter table ddl.n add columns (t struct<x: int> comment 'more')")
    spark.sql("alter table ddl.n alter column m drop not null")
    spark.sql("insert into ddl.n values (2, named_struct('a', 2, 'b', 'x'), null, named_struct('x', 3))")
    found = values(spark, "select s, m, t.x from ddl.n order by id")
    assert found == [(Row(a=1, b=None), 1, None), (Row(a=2, b="x"), None, 3)]
    assert spark.table("ddl.n").schema["s"].dataType["b"].metadata == {"comment": "inside"}  # type: ignore[index]


def test_a_table_elsewhere_has_an_entry(spark: SparkSession, warehouse: Path, tmp_path: Path) -> None:
    place = tmp_path / "rides"
    spark.sql(f"create table ddl.e (id int, n int) using hudi location '{place}' tblproperties (primaryKey = 'id')")
    spark.sql("insert into ddl.e values (1, 2)")
    spark.sql("create namespace if not exists ddl.west")
    spark.sql(f"create table ddl.west.f using hudi location 'file:{place}'")
    assert values(spark, "select * from ddl.west.f") == [(1, 2)] == values(spark, f"select * from ddl.`{place}`")
    described = {row[0]: row[1] for row in spark.sql("describe extended ddl.west.f").collect()}
    assert described["Type"] == "EXTERNAL" and described["Location"] == str(place)
    assert f"LOCATION '{place}'" in values(spark, "show create table ddl.e")[0]
    assert [row.tableName for row in spark.sql("show tables in ddl.west").collect()] == ["f"]
    assert values(spark, "select count(*) from ddl.west.f.files") == [1]
    spark.sql("alter table ddl.west.f rename to ddl.west.g")
    spark.sql("alter table ddl.west.g add columns (more int)")
    assert values(spark, "select * from ddl.e") == [(1, 2, None)]
    for clause, error in (
        ("(id int, other int) using hudi", "other columns"),
        ("using hudi partitioned by (n)", "other PARTITIONED BY|Columns|columns|partition"),
        ("using hudi tblproperties (primaryKey = 'n')", "other primaryKey"),
        ("using hudi tblproperties (hoodie.write.table.version = '6')", r"other hoodie\.\* properties"),
    ):
        head, _, rest = clause.partition("tblproperties")
        tail = f"tblproperties{rest}" if rest else ""
        with pytest.raises(PySparkException, match=error):
            spark.sql(f"create table ddl.no {head} location '{place}' {tail}")
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        spark.sql(f"create table ddl.no location '{place}' tblproperties (primaryKey = 'id') as select 1 id")
    with pytest.raises(Exception, match="boom"):
        spark.sql(
            f"create table ddl.no using hudi location '{tmp_path}/new' tblproperties (primaryKey = 'id') as "
            "select cast(raise_error('boom') as int) id"
        )
    assert not (warehouse / "no").exists() and not (tmp_path / "new").exists()
    spark.sql("drop table ddl.e")
    assert values(spark, "select id from ddl.west.g") == [1]
    spark.sql("drop namespace ddl.west cascade")
    assert place.exists() and not (warehouse / "west").exists()
    spark.sql(f"create table ddl.gone using hudi location '{place}'")
    shutil.rmtree(place)
    with pytest.raises(PySparkException, match="gone"):
        spark.sql("select * from ddl.gone")
    spark.sql("drop table ddl.gone")
    assert not (warehouse / "gone").exists()


def test_metadata_tables(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(f"create table ddl.m (id int, city string) {KEY.replace('tbl', 'partitioned by (city) tbl')}")
    spark.sql("insert into ddl.m values (1, 'oslo'), (2, 'rome')")
    kept = Table.open(warehouse / "m").maintenance.savepoint(comment="keep")
    Table.open(warehouse / "m").indexes.create("bitmap", ["city"])
    for query, found in (
        ("select partition, file_slices from ddl.m.partitions", [("city=oslo", 1), ("city=rome", 1)]),
        ("select instant, has_savepoint, is_readable from ddl.m.snapshots", [(kept, True, True)]),
        ("select instant, comment from ddl.m.savepoints", [(kept, "keep")]),
        ("select value from ddl.m.properties where key = 'hoodie.table.recordkey.fields'", ["id"]),
        ("select column, value, cardinality from ddl.m.bitmaps", [("city", "oslo", 1), ("city", "rome", 1)]),
        (
            "select partition, min_value, max_value from ddl.m.partition_stats where column_name = 'id'",
            [("city=oslo", "1", "1"), ("city=rome", "2", "2")],
        ),
        ("select count(*) from ddl.m.files", [2]),
        ("select f.partition from ddl.m.files f join ddl.m.history h on f.instant = h.commit_time", None),
    ):
        rows = values(spark, query)
        assert rows == found if found is not None else len(rows) == 2, query


REFUSED = (
    ("create table ddl.no (id int, g int generated always as (id + 1)) {key}", "GENERATED ALWAYS AS .*'g'.*date_trunc"),
    ("create table ddl.no (id int, d date) using hudi partitioned by (days(d))", r"days\(d\).*date_trunc"),
    ("create table ddl.no (id int) using hudi partitioned by (bucket(4, id))", r"bucket\(4, id\).*date_trunc"),
    ("create table ddl.no (id int) using hudi clustered by (id) into 4 buckets", r"bucket\(4, id\).*date_trunc"),
    ("create table ddl.no (id int, x int default 1 + 1) {key}", "DEFAULT 1 . 1 of column 'x'"),
    ("create table ddl.no (id int, c char(3)) {key}", r"char\(3\)"),
    ("create table ddl.no (id int, ts int) using hudi tblproperties (preCombineField = 'ts')", "ordering field ts"),
    ("create table ddl.no (id int) {key2}", "two properties name the record_key"),
    ("alter table ddl.t alter column n first", "FIRST and AFTER are not supported"),
    ("alter table ddl.t add column x int after id", "without FIRST, AFTER or DEFAULT"),
    ("alter table ddl.t add column x int default 3", "without FIRST, AFTER or DEFAULT"),
    ("alter table ddl.t replace columns (id int, x int)", "REPLACE COLUMNS is not supported"),
    ("alter table ddl.t drop column s.a", "drop_columns of 's.a'"),
    ("alter table ddl.t rename column s.a to b", "rename_column of 's.a'"),
    ("alter table ddl.t alter column n type string", "cannot be widened"),
    ("alter table ddl.t alter column id type bigint", "'id' is part of the record key"),
    ("alter table ddl.t alter column id drop not null", "'id' is part of the record key"),
    ("alter table ddl.t alter column n set default (select 1)", "DEFAULT|subquery"),
    ("alter table ddl.t rename to ddl.u", "RENAME TO is not supported"),
    ("alter table ddl.t set location '/elsewhere'", "location is fixed"),
    ("alter table ddl.t set tblproperties (primaryKey = 'n')", "primaryKey is fixed"),
    ("alter table ddl.t set tblproperties (hoodie.clean.commits.retained = '3')", r"SET hoodie\.clean\.commits"),
    ("alter table ddl.t set tblproperties (hoodie.nonsense = '3')", r"hoodie\.nonsense"),
    ("alter table ddl.t set tblproperties (lakedex.comment = '3')", r"'lakedex\.comment' is a setting"),
    ("alter table ddl.t unset tblproperties (hoodie.table.name)", "fixed"),
)
"""Statement → our sentence; the first line of the error is all of it."""
REFUSED_BY_4 = (
    ("create table ddl.no (id int) using hudi cluster by (id)", "CLUSTER BY .*date_trunc"),
    ("alter table ddl.t cluster by (n)", "CLUSTER BY is not supported"),
)


def test_refusals_are_one_line_and_change_nothing(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(f"create table ddl.t (id int, n int, s struct<a: int>) {KEY}")
    spark.sql("insert into ddl.t values (1, 2, null)")
    before = sorted(str(path) for path in warehouse.rglob("*"))
    twice = "using hudi tblproperties (primaryKey = 'id', 'hoodie.datasource.write.recordkey.field' = 'n')"
    for statement, error in (*REFUSED, *(() if spark.version.startswith("3.") else REFUSED_BY_4)):
        with pytest.raises(PySparkException, match=error) as refused:
            spark.sql(statement.format(key=KEY, key2=twice))
        text = str(refused.value).strip()
        assert "Traceback" not in text and "\tat " not in text, text
    assert sorted(str(path) for path in warehouse.rglob("*")) == before
