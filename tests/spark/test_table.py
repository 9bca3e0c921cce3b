"""The façade on Spark: every action, views that prune, schema growth, and the rows that must never get lost."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table
from lakedex.errors import CorruptFileError, InvalidInputError, SchemaMismatchError

ALL_TYPES = """
    select cast(id as string) id, concat('c', id % 3) city, id ts, cast(id as int) n, cast(id / 2 as float) f,
      case when id % 5 = 0 then double('nan') when id = 7 then -0.0D else id * 1.5D end d,
      cast(id as decimal(10, 2)) m, cast(id as decimal(20, 4)) big, id % 2 = 0 b,
      date_add(date'2024-01-01', cast(id as int)) dt, timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, cast(id as int)) tm,
      timestamp_ntz'2024-01-01 00:00:00' tn, cast(concat('x', id) as binary) bin,
      named_struct('a', id, 's', concat('s', id)) st, array(id, id + 1) ar, map('k', id) mp,
      if(id % 4 = 0, null, concat('v', id)) nu
    from range({rows})
"""


def frame(spark: SparkSession, rows: int = 60) -> DataFrame:
    return spark.sql(ALL_TYPES.format(rows=rows))


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table that no test changes."""
    source = frame(spark)
    path = tmp_path_factory.mktemp("table") / "t"
    made = Table.create(path, schema=source.schema, record_key="id", partition_by="city", ordering_by="ts", spark=spark)
    made.bulk_insert(source)
    return made


@pytest.fixture
def table(spark: SparkSession, written: Table, tmp_path: Path) -> Table:
    """A table of a test's own."""
    shutil.copytree(written.path, tmp_path / "t")
    return Table.open(tmp_path / "t", spark=spark)


def rows(df: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in df.collect())


def own(df: DataFrame) -> DataFrame:
    return df.drop(*[name for name in df.columns if name.startswith("_hoodie_")])


@pytest.mark.proves("all types")
@pytest.mark.smoke
def test_all_types_come_back(spark: SparkSession, table: Table) -> None:
    assert rows(own(table.to_df())) == rows(frame(spark))
    assert own(table.scan().to_spark()).dtypes == frame(spark).dtypes
    assert table.scan().to_arrow().num_rows == 60


@pytest.mark.parametrize(
    "where",
    [
        "d > 30",
        "d = double('nan')",
        "d = 0.0",
        "NOT (d > 30)",
        "m between 5 and 9.5",
        "big > 55.5",
        "dt = date'2024-01-09'",
        "tm >= timestamp'2024-02-01 00:00:00'",
        "nu is null",
        "nu like 'v1%' and city <> 'c1'",
        "nu in ('v1', 'v2', null)",
        "st.a = 5",
        "id = '17'",
        "id in ('1', '2', 'none')",
        "b or n < 3",
        "n <=> 4",
        "pmod(n, 7) = 3 and city = 'c2'",
    ],
)
def test_filters_give_sparks_rows(spark: SparkSession, written: Table, where: str) -> None:
    wanted = rows(frame(spark).where(where))
    assert rows(own(written.to_df().where(where))) == wanted
    assert rows(own(written.scan(where).to_spark())) == wanted


@pytest.mark.smoke
def test_filters_skip_files(spark: SparkSession, table: Table) -> None:
    plan = table.scan("city = 'c1' and n >= 0").plan()
    assert (plan.stage("partition").before, plan.stage("partition").after) == (3, 1)
    assert table.scan("id = '17'").plan().stage("bloom_filters").after == 1
    assert len(table.to_df().where("city = 'c1'").inputFiles()) >= 1
    assert table.scan("n > 1000").plan().files == ()


@pytest.mark.proves("create, write and read by `Table`")
@pytest.mark.smoke
@pytest.mark.parametrize("merged_by", ["driver", "executors"])
def test_every_action(spark: SparkSession, table: Table, merged_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if merged_by == "executors":
        # What a master of other machines does; here threads of the driver would merge.
        monkeypatch.setattr(table.context.engine, "_alone", False)
    change = frame(spark, 70).where("id >= 50").withColumn("n", F.col("n") + 1000).withColumn("ts", F.col("ts") + 1)
    result = table.upsert(change)
    assert (result.inserted, result.updated, result.deleted) == (10, 10, 0)
    assert result.tagging.files_listed == 3
    assert result.tagging.matches == 10
    late = frame(spark, 70).where("id = 55").withColumn("ts", F.lit(0).cast("long"))
    table.upsert(late)
    assert table.to_df().where("id = '55'").select("n").collect() == [(1055,)]
    changed = {"n": "n + 1", "nu": "upper(city)", "st": "named_struct('a', st.a + 1, 's', st.s)"}
    assert table.update(changed, where="id = '55'").updated == 1
    assert table.to_df().where("id = '55'").select("n", "nu", "st.a").collect() == [(1056, "C1", 56)]
    assert table.update({"n": F.lit(5)}, where=F.col("id") == "56").updated == 1
    assert table.delete(where="n = 5 and id = '56'").deleted == 1
    assert table.delete(where=F.col("id") == "57").deleted == 1
    assert table.delete(frame(spark, 70).where("id in (58, 59)").select("id"), all_partitions=True).deleted == 2
    assert table.delete(frame(spark, 70).where("id = 60").select("id", "city")).deleted == 1
    assert table.insert(frame(spark, 80).where("id >= 75")).inserted == 5
    assert table.to_df().count() == 60 + 10 - 5 + 5
    assert table.scan().to_arrow().num_rows == table.to_df().count()
    assert table.inspect.history().num_rows == 9


def test_a_table_takes_its_own_changed_rows(spark: SparkSession, table: Table) -> None:
    result = table.upsert(table.to_df().where("n < 30").withColumn("n", F.col("n") + 100))
    assert (result.updated, result.inserted) == (30, 0)
    assert table.to_df().agg(F.sum("n")).collect() == [(sum(range(60)) + 3000,)]


@pytest.mark.smoke
def test_spark_is_handed_no_file_behind_a_link(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    folder = tmp_path / "t" / "city=c0"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    for read in (table.to_df, table.scan("n = 1").to_spark, lambda: table.upsert(frame(spark, 3))):
        with pytest.raises(CorruptFileError, match="city=c0.*link"):
            read()


def test_views_are_pinned_and_refreshed(spark: SparkSession, table: Table) -> None:
    table.create_view("flown")
    pinned = table.to_df()
    before = spark.sql("select sum(n) from flown").collect()[0][0]
    table.upsert(frame(spark).where("id = 1").withColumn("n", F.lit(10_001)).withColumn("ts", F.col("ts") + 1))
    assert spark.sql("select sum(n) from flown").collect()[0][0] == before + 10_000
    assert pinned.agg(F.sum("n")).collect()[0][0] == before
    other = Table.open(table.path, spark=spark)
    other.delete(where="id = '2'")
    table.create_view("flown")
    assert spark.sql("select count(*) from flown").collect() == [(59,)]


def test_sql_on_views(spark: SparkSession, table: Table) -> None:
    table.create_view("v")
    joined = "select a.id from v a join v b on a.id = b.id where a.city = 'c1' and b.n > 50 order by a.n limit 3"
    assert [row.id for row in spark.sql(joined).collect()] == ["52", "55", "58"]
    scalar = "select count(*) from v where n = (select max(n) from v where city = 'c0')"
    assert spark.sql(scalar).collect() == [(1,)]
    cte = "with x as (select * from v where d > 10) select city, count(*) c from x group by city order by city"
    assert [row.c for row in spark.sql(cte).collect()] == [
        row["c"]
        for row in frame(spark).where("d > 10").groupBy("city").agg(F.count("*").alias("c")).orderBy("city").collect()
    ]


def test_two_tables_of_one_schema_are_never_mixed_up(spark: SparkSession, tmp_path: Path) -> None:
    made = []
    for number in range(2):
        one = Table.create(tmp_path / f"t{number}", record_key="id", spark=spark)
        one.insert(spark.createDataFrame([(str(number), number)], "id string, n int"))
        made.append(one.to_df().cache())
    assert [df.select("n").collect()[0].n for df in made] == [0, 1]
    both = made[0].select("n").union(made[1].select("n"))
    assert sorted(row.n for row in both.collect()) == [0, 1]


@pytest.mark.proves("columns that come later")
@pytest.mark.smoke
def test_the_schema_grows(spark: SparkSession, table: Table) -> None:
    grown = (
        frame(spark)
        .where("id between 5 and 7")
        .withColumn("n", F.expr("cast(n as bigint) + 5000000000"))
        .withColumn("f", F.expr("cast(f as double)"))
        .withColumn("extra", F.lit("e"))
        .withColumn("ts", F.col("ts") + 1)
    )
    table.upsert(grown)
    table.create_view("grown")
    found = spark.sql("select id, n, f, extra from grown where n > 4000 order by n").collect()
    assert [(row.id, row.n, row.f, row.extra) for row in found] == [
        (str(i), i + 5_000_000_000, i / 2, "e") for i in (5, 6, 7)
    ]
    assert spark.sql("select count(*), count(extra) from grown").collect() == [(60, 3)]
    table.delete(where="id in ('5', '6', '7')")  # all files are rewritten in the new schema
    assert spark.sql("select max(n), max(f) from grown").collect() == [(59, 29.5)]
    assert table.scan("n = 8 and extra is null").to_spark().count() == 1


def test_a_column_that_does_not_fit_is_refused(spark: SparkSession, table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match=r"'n'.*int32.*string") as caught:
        table.upsert(frame(spark).withColumn("n", F.lit("text")))
    assert caught.value.column == "n"
    with pytest.raises(InvalidInputError, match="2 of 3 rows have a null or empty record key"):
        table.upsert(
            frame(spark, 3).withColumn("id", F.expr("case id when '0' then null when '1' then '' else id end"))
        )
    assert table.inspect.history().num_rows == 1


def test_an_arrow_table_and_a_pandas_frame_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", spark=spark)
    table.insert(pa.table({"id": ["a"], "n": [1]}))
    table.upsert(pa.table({"id": ["b"], "n": [2]}).to_pandas())
    assert sorted(row.id for row in table.to_df().collect()) == ["a", "b"]


@pytest.mark.smoke
def test_large_input_stays_on_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    from lakedex.spark.engine import SparkEngine

    source = frame(spark, 500)
    table = Table.create(tmp_path / "t", record_key="id", partition_by="city", ordering_by="ts", spark=spark)
    table.context.engine = SparkEngine(spark, driver_rows=0, driver_bytes=0)
    table.bulk_insert(source, options={"hoodie.parquet.max.file.size": 3_000})
    files = table.inspect.files().num_rows
    assert files > 3
    change = frame(spark, 550).where("id % 10 = 0").withColumn("n", F.lit(-1)).withColumn("ts", F.col("ts") + 1)
    result = table.upsert(change.union(change))
    assert (result.updated, result.inserted) == (50, 5)
    assert result.tagging.keys_probed >= 55
    assert table.delete(source.where("id < 5").select("id", "city")).deleted == 5
    keys = [row[0] for row in table.to_df().select("id").collect()]
    assert len(keys) == len(set(keys)) == 500
    assert table.to_df().where("n = -1").count() == 54


def test_many_threads_plan_at_once(spark: SparkSession, table: Table) -> None:
    df = table.to_df()
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda i: df.where(f"id = '{i}'").count(), range(24)))
    assert counts == [1] * 24


def test_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema="id string, n int", record_key="id", spark=spark)
    assert table.to_df().count() == 0
    assert table.scan("n > 5").to_spark().count() == 0
    assert table.upsert(spark.createDataFrame([], "id string, n int")).instant is None
    table.create_view("empty")
    assert spark.sql("select * from empty").collect() == []


def test_where_a_column_or_a_path_is_odd(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"\$"):
        Table.create(tmp_path / "t", schema="id string, `$n` int", record_key="id", spark=spark)
    odd = Table.create(
        tmp_path / "a b%{c}[d]", schema="id string, p string", record_key="id", partition_by="p", spark=spark
    )
    odd.insert(spark.createDataFrame([("1", "x/y=z%"), ("2", "sp ace*"), ("3", None)], "id string, p string"))
    assert sorted(row.id for row in odd.to_df().collect()) == ["1", "2", "3"]
    assert odd.to_df().where("p = 'x/y=z%'").count() == 1
    assert odd.to_df().where("p is null").count() == 1
    assert odd.scan("p = 'sp ace*'").to_spark().count() == 1


@pytest.mark.smoke
@pytest.mark.parametrize("place", ["driver", "executors"])
def test_frames_of_other_types_become_the_tables(spark: SparkSession, tmp_path: Path, place: str) -> None:
    from lakedex.spark.engine import SparkEngine

    schema = "id double, p int, v decimal(9, 2), s struct<k: int, n: string>"
    table = Table.create(tmp_path / "t", schema=schema, record_key="id", partition_by="p", spark=spark)
    if place == "executors":
        table.context.engine = SparkEngine(spark, driver_rows=0, driver_bytes=0)
    table.insert(spark.sql("select 1D id, 1 p, cast(1.5 as decimal(9, 2)) v, named_struct('k', 1, 'n', 'a') s"))
    # Other types, letter case and order of fields, and a column without a type.
    other = "select {id} ID, {p} P, {v} V, named_struct('N', 'b', 'K', 2L) s"
    assert table.upsert(spark.sql(other.format(id="1", p="1L", v="null"))).updated == 1
    assert own(table.to_df()).collect() == [(1.0, 1, None, (2, "b"))]
    merge = table.merge(spark.sql(other.format(id="1", p="1S", v="7L")), "t.id = s.id AND t.p = s.p")
    assert merge.when_matched_update_all().execute().updated == 1
    assert table.to_df().select("v").collect() == [(Decimal("7.00"),)]
    arrow = pa.table(
        {
            "id": pa.array([1], pa.uint8()),
            "p": pa.array([1.0]).dictionary_encode(),
            "v": pa.array([Decimal(8)], pa.decimal64(18, 0)),
            "s": pa.array([{"k": 3, "n": "c"}], pa.struct([("k", pa.int8()), ("n", pa.string_view())])),
        }
    )
    assert table.upsert(arrow).updated == 1
    assert own(table.to_df()).collect() == [(1.0, 1, Decimal("8.00"), (3, "c"))]
    for change, column in (({"p": "4294967296"}, "p"), ({"v": "cast(0.125 as decimal(9, 3))"}, "v")):
        wrong = spark.sql(other.format(**{"id": "1", "p": "1", "v": "null", **change}))
        with pytest.raises(SchemaMismatchError, match=f"table t: column '{column}' .* in row 0 ") as caught:
            table.upsert(wrong)
        assert caught.value.column == column
    with pytest.raises(InvalidInputError, match="did you mean 'pp'.*all_partitions=True"):
        table.delete(spark.sql("select 1 id, 1 pp"))
    assert table.delete(spark.sql("select 1 id, 1L P")).deleted == 1
