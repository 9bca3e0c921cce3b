"""``spark.read.format("lakedex")`` on a classic session: Spark's own answers, few files, and each query its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROWS = """
    select cast(id as string) id, concat('c', id % 3) city, id ts, cast(id as int) n, cast(id / 2 as float) f,
      case when id % 5 = 0 then double('nan') when id = 7 then -0.0D else id * 1.5D end d,
      cast(id as decimal(10, 2)) m, id % 2 = 0 b, date_add(date'2024-01-01', cast(id as int)) dt,
      timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, cast(id as int)) tm,
      timestamp_ntz'2024-01-01 00:00:00' + make_interval(0, 0, 0, cast(id as int)) tn,
      cast(concat('x', id) as binary) bin, named_struct('a', id, 's', concat('s', id)) st,
      array(id, id + 1) ar, map('k', id) mp, if(id % 4 = 0, null, if(id = 6, 'v%_', concat('v', id))) nu
    from range(60)
"""
FILTERS = [
    "d > 30", "d = double('nan')", "d = 0.0D", "not (d > 30)", "not (d <=> double('nan'))", "f = float(1.5)",
    "m between 5 and 9.5", "m in (5, 7.00)", "dt = date'2024-01-09'", "dt > date'0001-01-01'",
    "tm >= timestamp'2024-02-01 00:00:00'", "tn < timestamp_ntz'2024-01-03 00:00:00'", "bin = X'783137'",
    "nu is null", "nu is not null and n < 9", "nu like 'v1%'", "nu like 'v\\\\%\\\\_%'", "nu like '%5'", "nu like '%3%'",
    "nu not in ('v1', 'v2')", "nu in ('v1', null)", "nu <=> null", "st.a = 5", "st.s > 's5'", "st is null",
    "id in ('1', '2', 'none')", "b", "not b and n > 50", "n <=> 4", "n <> 4", "pmod(n, 7) = 3 and city = 'c2'",
    "n < 5 and (city = 'c1' or n = 3)", "_hoodie_record_key = '17'", "n < 0",
]  # fmt: skip

NO_ROWS = {"st is null", "n < 0"}
NOT_JUDGED = {"pmod(n, 7) = 3 and city = 'c2'"}

needs_spark_4 = pytest.mark.skipif(VERSION < (4, 0), reason="PySpark 3.5 has no Python Data Source")
needs_pushdown = pytest.mark.skipif(VERSION < (4, 1), reason="PySpark 4.0 hands no filters over")


@pytest.mark.skipif(VERSION >= (4, 0), reason="PySpark 4 finds the format")
def test_there_is_no_such_format_before_spark_4(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"Failed to find the data source: lakedex"):
        spark.read.format("lakedex").load(str(tmp_path))


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    source = spark.sql(ROWS)
    made = Table.create(
        tmp_path_factory.mktemp("source") / "t", record_key="id", partition_by="city", ordering_by="ts", spark=spark
    )
    made.bulk_insert(source)
    return made


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def load(table: Table, **options: str) -> DataFrame:
    return SparkSession.active().read.format("lakedex").options(**options).load(table.path)


def rows(df: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in df.collect())


def own(df: DataFrame) -> DataFrame:
    return df.drop(*[name for name in df.columns if name.startswith("_hoodie_")])


def answers(frames: dict[str, DataFrame]) -> dict[str, str]:
    """Keys of the rows of each filter's frame, all of them found by one query."""
    tagged = [frame.select(F.lit(text).alias("filter"), "id") for text, frame in frames.items()]
    found = reduce(DataFrame.unionAll, tagged).groupBy("filter").agg(F.sort_array(F.collect_list("id")).alias("ids"))
    return {row["filter"]: " ".join(row["ids"]) for row in found.collect()}


@pytest.mark.proves('`format("lakedex")`: read', since=4.0)
@needs_spark_4
@pytest.mark.smoke
def test_all_types_come_back(spark: SparkSession, table: Table) -> None:
    source = spark.sql(ROWS)
    df = load(table)
    assert df.columns == table.scan(meta_columns=True).schema.names
    assert own(df).dtypes == source.dtypes
    assert rows(own(df)) == rows(source)


@needs_spark_4
@pytest.mark.smoke
def test_one_frame_answers_many_queries(table: Table, pushdown: None) -> None:
    """With Spark's own pushdown on, which mixes the queries of a frame up where a reader takes filters."""
    df = load(table)
    assert df.where("n < 5").select("n").union(df.where("n >= 55").select("n")).count() == 10
    assert (df.where("n < 5").count(), df.count(), df.where("city = 'c1'").count()) == (5, 60, 20)
    assert df.where("city = 'c1'").alias("a").join(df.where("city = 'c2'").alias("b"), "n").count() == 0


@pytest.fixture(scope="module")
def wanted(spark: SparkSession) -> dict[str, str]:
    # Not cached: Spark's cache loses the rows that hold NaN by its own statistics.
    source = spark.sql(ROWS).withColumn("_hoodie_record_key", F.col("id"))
    found = answers({text: source.where(text) for text in FILTERS})
    assert found.keys() == set(FILTERS) - NO_ROWS
    return found


@needs_spark_4
def test_conditions_give_sparks_rows(table: Table, wanted: dict[str, str]) -> None:
    judged = [text for text in FILTERS if text not in NOT_JUDGED]
    found = answers({text: load(table, where=text, timeZone="UTC", columns="id") for text in judged})
    assert found == {text: ids for text, ids in wanted.items() if text in judged}


@needs_pushdown
@pytest.mark.smoke
def test_filters_that_spark_hands_over_give_sparks_rows(table: Table, wanted: dict[str, str], pushdown: None) -> None:
    assert answers({text: load(table, singleQuery="true").where(text) for text in FILTERS}) == wanted


@needs_pushdown
def test_filters_that_spark_hands_over_choose_files(table: Table, pushdown: None) -> None:
    chosen = load(table, singleQuery="true", columns="id,n,city").where("city = 'c1' and n > 3")
    assert chosen.rdd.getNumPartitions() == 1
    assert load(table, columns="id,n,city").where("city = 'c1'").rdd.getNumPartitions() == 3
    assert load(table, columns="id", where="city = 'c1'").rdd.getNumPartitions() == 1


@needs_spark_4
@pytest.mark.smoke
def test_two_commits_in_one_query_are_two_tables(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", spark=spark)
    first = table.insert(spark.createDataFrame([("a", 1)], "id string, n int"))
    old = load(table, **{"as.of.instant": str(first.instant)}).cache()
    pinned = load(table)
    assert pinned.count() == 1
    table.insert(spark.createDataFrame([("b", 2)], "id string, n int"))
    assert sorted(row.n for row in load(table).union(old).union(pinned).select("n").collect()) == [1, 1, 1, 2]
    old.unpersist()


@needs_spark_4
def test_sql_reads_the_format(spark: SparkSession, table: Table) -> None:
    spark.sql(f"create or replace temporary view flown using lakedex options (path '{table.path}', columns 'city, n')")
    assert spark.sql("select city, max(n) from flown group by city order by city").collect() == [
        ("c0", 57),
        ("c1", 58),
        ("c2", 59),
    ]
    spark.catalog.dropTempView("flown")


@needs_spark_4
@pytest.mark.smoke
def test_what_is_refused_says_what_to_do(spark: SparkSession, table: Table) -> None:
    with pytest.raises(Exception, match="'colums'.*did you mean 'columns'"):
        load(table, colums="id")
    with pytest.raises(Exception, match=r"exp.*\.where"):
        load(table, where="exp(n) > 0")
    with pytest.raises(Exception, match="is no Hudi table"):
        spark.read.format("lakedex").load(f"{table.path}/none")
