"""Spark Connect, which has no JVM at hand: every action, scans that skip files, and the rows of the local engine."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table
from lakedex.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.spark.error_transport import Seal
from lakedex.spark.session import is_connect

ROWS = """
    select cast(id as string) id, concat('c', id % 3) city, id ts, cast(id as int) n, cast(id / 2 as float) f,
      case when id % 5 = 0 then double('nan') when id = 7 then -0.0D else id * 1.5D end d,
      cast(id as decimal(10, 2)) m, id % 2 = 0 b, date_add(date'2024-01-01', cast(id as int)) dt,
      timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, cast(id as int)) tm,
      timestamp_ntz'2024-01-01 00:00:00' tn, cast(concat('x', id) as binary) bin,
      named_struct('a', id, 's', concat('s', id)) st, array(id, id + 1) ar, map('k', id) mp,
      if(id % 4 = 0, null, concat('v', id)) nu
    from range({rows})
"""


def frame(spark: SparkSession, rows: int = 60) -> DataFrame:
    return spark.sql(ROWS.format(rows=rows))


def make(spark: SparkSession, path: Path) -> Table:
    source = frame(spark)
    made = Table.create(path, schema=source.schema, record_key="id", partition_by="city", ordering_by="ts", spark=spark)
    made.bulk_insert(source)
    return made


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return make(spark, tmp_path / "t")


@pytest.fixture(scope="module")
def only_read(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return make(spark, tmp_path_factory.mktemp("read") / "t")


def rows(df: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in df.collect())


def own(df: DataFrame) -> DataFrame:
    return df.drop(*[name for name in df.columns if name.startswith("_hoodie_")])


def load(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    return spark.read.format("lakedex").options(**options).load(table.path)


def test_the_session_is_what_these_tests_are_about(spark: SparkSession) -> None:
    assert is_connect(spark)


@pytest.mark.proves('`format("lakedex")`: read')
@pytest.mark.proves("all types")
def test_all_types_come_back_by_every_way(spark: SparkSession, only_read: Table) -> None:
    wanted = rows(frame(spark))
    for df in (only_read.to_df(), only_read.scan().to_spark(), load(spark, only_read)):
        assert rows(own(df)) == wanted
        assert own(df).dtypes == frame(spark).dtypes


@pytest.mark.proves('`format("lakedex")`: write')
def test_frames_are_written_by_format(spark: SparkSession, tmp_path: Path) -> None:
    source, path = frame(spark, 20), str(tmp_path / "t")
    key = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "city"}
    source.write.format("lakedex").options(**key).mode("append").save(path)
    source.write.format("lakedex").mode("append").save(path)
    back = spark.read.format("lakedex").load(path)
    assert rows(own(back)) == rows(source)
    assert own(back).dtypes == source.dtypes
    with pytest.raises(
        Exception, match=r"Failed to initialize.*: lakedex\.errors\.\w+: table t: the frame lacks column 'd'"
    ):
        source.drop("d").write.format("lakedex").mode("append").save(path)


def test_scans_give_sparks_rows(spark: SparkSession, only_read: Table) -> None:
    conditions = [
        "d = double('nan')",
        "NOT (d > 30)",
        "d = 0.0",
        "st.a = 5",
        "nu in ('v1', null)",
        "id = '17' or n < 3",
    ]

    def answers(frames: list[DataFrame]) -> list[tuple[int, str]]:
        tagged = [frame.select(F.lit(i).alias("i"), "id") for i, frame in enumerate(frames)]
        return sorted((row.i, row.id) for row in reduce(DataFrame.unionAll, tagged).collect())

    wanted = answers([frame(spark).where(where) for where in conditions])
    assert {i for i, _ in wanted} == set(range(len(conditions)))
    assert answers([only_read.scan(where).to_spark() for where in conditions]) == wanted
    assert answers([load(spark, only_read, where=where) for where in conditions]) == wanted


@pytest.mark.proves("filters of DataFrames skip files")
def test_scans_read_kept_files_only(spark: SparkSession, only_read: Table) -> None:
    scan = only_read.scan("city = 'c1' and id = '19'", columns=["ID", "n"])
    assert len(scan.plan().files) == 1
    found = scan.to_spark()
    assert len(found.inputFiles()) == 1
    assert [row.asDict() for row in found.collect()] == [{"id": "19", "n": 19}]
    assert len(only_read.to_df().inputFiles()) == 3


@pytest.mark.proves("create, write and read by `Table`")
def test_every_action(spark: SparkSession, table: Table) -> None:
    change = frame(spark, 70).where("id >= 50").withColumn("n", F.col("n") + 1000).withColumn("ts", F.col("ts") + 1)
    result = table.upsert(change)
    assert (result.inserted, result.updated, result.deleted) == (10, 10, 0)
    assert table.update({"n": "n + 1", "nu": "upper(city)"}, where="id = '55'").updated == 1
    assert table.scan("id = '55'", columns=["n", "nu"]).to_spark().collect() == [(1056, "C1")]
    assert table.update({"n": F.lit(5)}, where=F.col("id") == "56").updated == 1
    assert table.delete(where="n = 5 and id = '56'").deleted == 1
    assert table.delete(where=F.col("id") == "57").deleted == 1
    assert table.delete(frame(spark, 70).where("id in (58, 59)").select("id"), all_partitions=True).deleted == 2
    assert table.insert(frame(spark, 80).where("id >= 75")).inserted == 5
    assert table.to_df().count() == load(spark, table).count() == table.scan().to_arrow().num_rows == 71


def test_frames_of_other_types_become_the_tables(spark: SparkSession, table: Table) -> None:
    change = frame(spark).where("id = 7").withColumns({"ts": F.lit(10_000.0), "nu": F.lit(None), "N": F.lit(70)})
    assert table.upsert(change).updated == 1
    assert table.scan("id = '7'", columns=["ts", "n", "nu"]).to_spark().collect() == [(10_000, 70, None)]
    with pytest.raises(
        SchemaMismatchError, match="column 'ts' is int64, which cannot hold 0.5 exactly, double in row 0"
    ):
        table.upsert(change.withColumn("ts", F.lit(0.5)))


def test_large_input_stays_on_the_executors(spark: SparkSession, table: Table) -> None:
    from lakedex.spark.engine import SparkEngine

    table.context.engine = SparkEngine(spark, driver_rows=0, driver_bytes=0)
    change = frame(spark, 65).where("id % 10 = 0").withColumn("n", F.lit(-1)).withColumn("ts", F.col("ts") + 1)
    result = table.upsert(change.union(change))
    assert (result.updated, result.inserted) == (6, 1)
    assert table.to_df().where("n = -1").count() == 7


def test_views_follow_this_sessions_writes(spark: SparkSession, table: Table) -> None:
    table.create_view("flown")
    table.upsert(frame(spark).where("id = 1").withColumn("n", F.lit(10_001)).withColumn("ts", F.col("ts") + 1))
    assert spark.sql("select max(n) from flown where city = 'c1'").collect() == [(10_001,)]


def test_a_frame_of_an_earlier_commit_keeps_its_rows(spark: SparkSession, table: Table) -> None:
    first = table.inspect.history().column("commit_time")[0].as_py()
    loaded = load(spark, table)
    assert loaded.count() == 60
    table.upsert(frame(spark, 61).where("id = 60"))
    assert load(spark, table, asOf=first).count() == table.to_df(as_of=first).count() == 60
    assert load(spark, table).count() == 61


@pytest.mark.proves("columns that come later")
def test_the_schema_grows(spark: SparkSession, table: Table) -> None:
    grown = frame(spark).where("id = 5").withColumn("n", F.expr("5000000000L")).withColumn("extra", F.lit("e"))
    table.upsert(grown.withColumn("ts", F.col("ts") + 1))
    for df in (table.to_df(), load(spark, table)):
        assert df.where("n > 4000 or n = 3").orderBy("n").select("n", "extra").collect() == [
            (3, None),
            (5 * 10**9, "e"),
        ]


def test_errors_keep_their_class(spark: SparkSession, table: Table) -> None:
    with pytest.raises(SchemaMismatchError, match=r"'n'.*int32.*string"):
        table.upsert(frame(spark).withColumn("n", F.lit("text")))
    with pytest.raises(InvalidInputError, match="null or empty record key"):
        table.upsert(frame(spark, 3).withColumn("id", F.lit("")))
    imitation = Seal(b"another key").wrap(InvalidInputError("forged"))
    with pytest.raises(Exception, match="CAST_INVALID_INPUT") as caught:
        table.upsert(frame(spark, 3).withColumn("n", F.lit(str(imitation)).cast("int")))
    assert not isinstance(caught.value, InvalidInputError)


@pytest.mark.parametrize("options", [{"colums": "id"}, {"columns": "idd"}, {"where": "exp(n) > 0"}])
def test_bad_options_fail_at_load(spark: SparkSession, only_read: Table, options: dict[str, Any]) -> None:
    word = next(iter(options.values())) if "where" in options or "columns" in options else "columns"
    with pytest.raises(Exception, match=word.split("(")[0]):
        load(spark, only_read, **options).schema  # noqa: B018


@pytest.mark.proves("`Table.merge`")
def test_merges(spark: SparkSession, table: Table) -> None:
    source = frame(spark, 62).where("id >= 58").withColumn("op", F.expr("if(id = 58, 'D', 'U')"))
    merge = table.merge(source, "t.id = s.id AND t.city = s.city").when_matched_delete("s.op = 'D'")
    result = merge.when_matched_update({"n": F.col("t.n") * 2}).when_not_matched_insert_all().execute(txn=("app", 1))
    assert (result.inserted, result.updated, result.deleted) == (2, 1, 1)
    assert merge.execute(txn=("app", 1)).instant is None
    joined = table.merge(source.where("id = 61"), "t.n = s.n + 57").when_matched_update({"n": "-1"})
    assert joined.execute().updated == 1
    assert sorted(row.n for row in table.to_df().where("id in ('58', '59', '60', '61') or n < 0").collect()) == [
        -1,
        60,
        61,
    ]


def columns() -> list[Any]:
    """Conditions; Columns need a session."""
    return [
        "n > 5 AND id IN ('7', '8')", F.col("n") > 5, (F.col("n") > 5) | F.col("nu").isNull(), ~F.col("b"), F.isnan("d"),
        F.col("d") == float("nan"), F.col("city").isin("c1", "c2"), F.col("city") == "c1", F.col("st.a") >= 3,
        F.col("n").between(2, 5), F.col("tm") > dt.datetime(2024, 1, 1, 0, 0, 30, tzinfo=dt.UTC),
        F.col("dt") <= dt.date(2024, 1, 3), F.col("id").startswith("1"), F.col("id").like("1_"), F.col("m") == Decimal("3.00"),
        F.lit(3).eqNullSafe(F.col("n")), F.expr("n % 2 = 0") & F.col("nu").isNotNull(), F.col("`bin`") == F.lit(b"x3"),
    ]  # fmt: skip


def test_conditions_of_other_forms(only_read: Table) -> None:
    df = only_read.to_df()
    for column in columns():
        wanted = sorted(row.id for row in df.where(column).select("id").collect())
        assert sorted(only_read.scan(column, ["id"]).to_arrow().column(0).to_pylist()) == wanted, str(column)
        assert wanted, str(column)
    assert only_read.count(("n", ">", 5)) == only_read.count(pc.field("n") > 5) == 54
    for column in (F.rand() > 0.5, F.udf(lambda text: text, "string")("id") == "1", F.upper("id") == "1"):
        with pytest.raises(UnsupportedFeatureError, match=r"use to_df\(\)\.where\(column\)"):
            only_read.scan(column)


def test_rows_that_are_no_dataframe(table: Table) -> None:
    rows = table.scan("n < 3").to_arrow()
    assert table.upsert(rows.to_pylist()).updated == 3
    assert table.upsert(rows.to_batches()).updated == 3
    assert table.update({"n": 70}, F.col("n") == 1).updated == 1
    assert table.delete(where=("n", "=", 70)).deleted == 1
