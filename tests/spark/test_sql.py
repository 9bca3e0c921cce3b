"""Spark SQL on a table: the rows of every kind of query, and the folders that must not be read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table
from spark_plans import files_read, folder_of, nodes

CITIES = ("bonn", "oslo", "rome")
DAYS = tuple(dt.date(2024, 1, day) for day in range(1, 5))
PLAIN = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
}


def trips(rows: int = 48) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "id": [f"t{i:03d}" for i in numbers],
            "city": [CITIES[i % 3] for i in numbers],
            "n": pa.array(numbers, pa.int32()),
            "day": pa.array([DAYS[i // 3 % 4] for i in numbers], pa.date32()),
            "name": [None if i % 5 == 0 else f"x_{i}%" if i % 2 else f"y{i}" for i in numbers],
            "nest": pa.array([{"a": {"b_c": i, "d": str(i)}} for i in numbers]),
            "at": pa.array(
                [dt.datetime(2024, 1, 1, i % 24, tzinfo=dt.UTC) for i in numbers], pa.timestamp("us", "UTC")
            ),
        }
    )


@contextmanager
def setting(spark: SparkSession, **values: object) -> Iterator[None]:
    keys = {name.replace("__", "."): str(value).lower() for name, value in values.items()}
    before = {key: spark.conf.get(key) for key in keys}
    for key, value in keys.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, str(old))


def make(path: Path, data: pa.Table, *, partition_by: tuple[str, ...] = (), **options: str) -> Table:
    """A table written without Spark."""
    made = Table.create(path, schema=data.schema, record_key="id", partition_by=partition_by, options=options or None)
    made.bulk_insert(data)
    return made


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Views ``t``, the table; ``p``, its rows without it; ``d``, a few cities."""
    path = tmp_path_factory.mktemp("sql") / "trips"
    make(path, trips(), partition_by=("city", "day"))
    opened = Table.open(path, spark=spark)
    opened.create_view("t")
    own = [name for name in opened.to_df().columns if not name.startswith("_hoodie")]
    spark.createDataFrame(trips().to_pandas(), opened.to_df().select(*own).schema).cache().createOrReplaceTempView("p")
    # Files: Spark prunes dynamically by a side that it knows to be small.
    few = str(path.with_name("d"))
    cities = spark.createDataFrame([("oslo", 1), ("bergen", 2), ("rome", 9)], "city string, size int")
    cities.coalesce(1).write.parquet(few)
    spark.read.parquet(few).createOrReplaceTempView("d")
    return opened


def rows(df: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in df.collect())


def folders(cities: tuple[str, ...] = CITIES, days: tuple[dt.date, ...] = DAYS) -> set[str]:
    return {f"{city}/{day}" for city in cities for day in days}


QUERIES = {
    "join": "select a.id, b.n from {0} a join {0} b on a.id = b.id where a.city = 'oslo' and b.n > 9",
    "outer": "select a.id, b.id x from {0} a left join (select * from {0} where city = 'rome') b on a.id = b.id",
    "right": "select a.id, d.size from {0} a right join d using (city)",
    "full": "select a.id, d.city from {0} a full join d on a.city = d.city and a.n < 9",
    "semi, anti": "select id from {0} a left semi join d on a.city = d.city "
    "union all select id from {0} a left anti join d on a.city = d.city",
    "cross": "select a.id, b.id y from {0} a cross join {0} b where a.n < 3 and b.day = date'2024-01-02' and b.n < 9",
    "natural": "select id, size from {0} natural join d",
    "scalar": "select id from {0} where n = (select max(n) from {0} where city = 'oslo')",
    "in": "select id from {0} where day in (select day from {0} where n = 5) and city not in (select city from d)",
    "exists": "select id from {0} a where exists (select 1 from {0} b where b.n = a.n + 1 and b.city = 'rome')",
    "correlated": "select id, (select max(b.n) from {0} b where b.city = a.city and b.day = a.day) m from {0} a where n < 9",
    "cte": "with x as (select city, max(n) m from {0} group by city) select a.id from {0} a join x on a.city = x.city and a.n = x.m",
    "sets": "(select city from {0} where n < 9 intersect select city from d) union (select city from {0} except select city from d)",
    "window": "select id, row_number() over (partition by city order by n desc) r, lag(n) over (order by n) l from {0} where day > date'2024-01-02'",
    "cube": "select city, day, count(*), sum(n) from {0} group by cube (city, day)",
    "limit": "select id from (select * from {0} where city = 'bonn' order by n desc limit 3) where n > 40",
    "having": "select city, sum(n) s from {0} where day = date'2024-01-03' group by city having sum(n) > 100",
    "lateral": "select id, e from {0} lateral view explode(array(n, n + 1)) as e where city = 'oslo' and e < 20",
    "pivot": "select * from (select city, day, n from {0}) pivot (max(n) for city in ('oslo', 'rome'))",
    "nested": "select id from {0} where nest.a.b_c > 40 and nest.a.d <> '44'",
}


@pytest.fixture(scope="module")
def answers(spark: SparkSession, table: Table) -> dict[str, list[str]]:
    """What Spark says of the same rows without lakedex."""
    return {name: rows(spark.sql(sql.format("p"))) for name, sql in QUERIES.items()}


@pytest.mark.parametrize("adaptive", [True, False])
def test_every_kind_of_query_gives_sparks_rows(
    spark: SparkSession, table: Table, answers: dict[str, list[str]], adaptive: bool
) -> None:
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        wrong = [name for name, sql in QUERIES.items() if rows(spark.sql(sql.format("t"))) != answers[name]]
    assert wrong == []
    assert all(answers[name] for name in QUERIES)


def test_partition_columns_keep_their_place(spark: SparkSession, table: Table) -> None:
    df = table.to_df()
    assert df.columns[5:] == trips().column_names
    scan = nodes(df, "FileSourceScanExec")[0]
    assert list(scan.relation().partitionSchema().fieldNames()) == ["city", "day"]
    for kind in ("formatted", "cost", "extended", "codegen"):
        assert "city" in str(spark.sql(f"explain {kind} select * from t where city = 'oslo'").collect()[0][0])


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(
    "sql",
    [
        "select t.id from t join d on t.city = d.city where d.size = 1",
        "select id from t where city in (select city from d where size = 1)",
        "select id from t where city = (select city from d where size = 1)",
        "select t.id from t join (select city, date_add(date'2024-01-01', size) day from d where size < 2) x "
        "on t.city = x.city and t.day = x.day",
    ],
)
def test_dynamic_pruning_reads_no_other_folder(spark: SparkSession, table: Table, adaptive: bool, sql: str) -> None:
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        df = spark.sql(sql)
        assert rows(df) == rows(spark.sql(sql.replace(" from t ", " from p t ")))
    # Dynamic filters of several columns may stay two; those of the day alone leave three folders.
    read = [found for found in files_read(df) if not any(folder.endswith("/d") for folder in found)]
    wanted = folders(("oslo",), (DAYS[1],)) if "date_add" in sql else folders(("oslo",))
    assert read == [wanted]


JUDGED = [
    ("city = 'oslo'", folders(("oslo",))),
    ("city <=> 'oslo' and day is not null", folders(("oslo",))),
    ("lower(upper(city)) in ('rome', 'oslo')", folders(("oslo", "rome"))),
    ("pmod(datediff(day, date'2024-01-01'), 3) = 1", folders(days=(DAYS[1],))),
    ("cast(day as string) like '%-0_' and day(day) > 3", folders(days=(DAYS[3],))),
    ("city is null", set()),
    ("not (city = 'oslo' or city is null)", folders(("bonn", "rome"))),
    ("concat(city, day) = 'rome2024-01-02'", folders(("rome",), (DAYS[1],))),
    ("length(city) + day(day) = 5 and n > 2", folders(days=(DAYS[0],))),
    ("cast(day as timestamp) > timestamp'2024-01-03 12:00:00'", folders(days=(DAYS[3],))),
    ("if(city = 'oslo', null, true)", folders(("bonn", "rome"))),
    ("day between date'2024-01-02' and '2024-01-03'", folders(days=DAYS[1:3])),
    ("city in (" + ", ".join(f"'c{i}'" for i in range(300)) + ", 'rome')", folders(("rome",))),
]


@pytest.mark.parametrize("where, wanted", JUDGED, ids=[where[:40] for where, _ in JUDGED])
def test_partition_filters_are_exact(spark: SparkSession, table: Table, where: str, wanted: set[str]) -> None:
    df = spark.table("t").where(where).select("id")
    assert rows(df) == rows(spark.table("p").where(where).select("id"))
    assert set().union(*files_read(df)) == wanted


def test_functions_of_the_user_and_of_chance(spark: SparkSession, table: Table) -> None:
    spark.udf.register("is_oslo", lambda city: city == "oslo", "boolean")
    spark.udf.register("shout", F.udf(lambda city: city.upper(), "string").asNondeterministic())
    for where in ("is_oslo(city)", "shout(city) = 'ROME'", "rand() >= 0 and city = 'bonn'", "is_oslo(city) or n < 3"):
        assert rows(spark.table("t").where(where).select("id")) == rows(spark.table("p").where(where).select("id"))
    df = spark.table("t").where("rand() >= 0").where("city = 'bonn'")
    assert len(df.collect()) == 16


def test_an_error_of_a_partition_filter_is_sparks_own(spark: SparkSession, table: Table) -> None:
    with setting(spark, spark__sql__ansi__enabled=True), pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        spark.table("t").where("cast(city as int) = 3").collect()
    guarded = "city rlike '^[0-9]+$' and cast(city as int) = 3"
    with setting(spark, spark__sql__ansi__enabled=True):
        assert spark.table("t").where(guarded).collect() == []


def test_a_list_of_ten_thousand(spark: SparkSession, table: Table) -> None:
    values = ", ".join(f"'t{i:03d}'" for i in range(40, 10_040))
    df = spark.sql(f"select id, city from t where id in ({values})")
    assert sorted(row.id for row in df.collect()) == [f"t{i:03d}" for i in range(40, 48)]
    wanted = {f"{CITIES[i % 3]}/{DAYS[i // 3 % 4]}" for i in range(40, 48)}
    assert files_read(df) == [wanted], "ranges of the key tell which files hold none of the list"


def test_like_with_an_escape_character(spark: SparkSession, table: Table) -> None:
    for where in ("name like 'x!_%!%' escape '!'", "name like 'x\\\\_1%'", "name not like 'x/_%' escape '/'"):
        assert rows(spark.table("t").where(where).select("id")) == rows(spark.table("p").where(where).select("id"))


def test_names_follow_the_sessions_case_rule(spark: SparkSession, table: Table) -> None:
    df = spark.sql("select ID from t where CITY = 'oslo' and T.Day = date'2024-01-02' and Nest.A.`B_C` >= 0")
    assert len(df.collect()) == 4
    assert files_read(df) == [{"oslo/2024-01-02"}]
    with setting(spark, spark__sql__caseSensitive=True):
        exact = table.to_df().where("city = 'oslo'")
        assert len(exact.collect()) == 16
        with pytest.raises(Exception, match="(?i)cannot be resolved"):
            table.to_df().where("CITY = 'oslo'").collect()


def test_cached_rows(spark: SparkSession, table: Table) -> None:
    spark.catalog.cacheTable("t")
    try:
        df = spark.sql("select id from t where city = 'oslo'")
        assert len(df.collect()) == 16 and nodes(df, "InMemoryTableScanExec") and not files_read(df)
        assert spark.sql("select count(*) from t where day = date'2024-01-01'").collect() == [(12,)]
    finally:
        spark.catalog.uncacheTable("t")
    df = spark.sql("select id from t where city = 'oslo'")
    assert len(df.collect()) == 16 and files_read(df) == [folders(("oslo",))]


def test_input_files(spark: SparkSession, table: Table) -> None:
    found = {folder_of(path) for path in table.to_df().inputFiles()}
    assert found == folders()


# ------------------------------------------------------------------------------ folders that do not tell the value


def kinds(df: DataFrame) -> set[tuple[str, ...]]:
    return {tuple(scan.relation().partitionSchema().fieldNames()) for scan in nodes(df, "FileSourceScanExec")}


def test_null_and_empty_text_share_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.table({"id": ["a", "b", "c", "d"], "p": [None, "", "x", "x"], "n": [1, 2, 3, 4]})
    make(tmp_path / "t", data, partition_by=("p",))
    df = Table.open(tmp_path / "t", spark=spark).to_df()
    assert {(row.id, row.p) for row in df.collect()} == {("a", None), ("b", ""), ("c", "x"), ("d", "x")}
    assert kinds(df) == {("p",), ()}, "the folder of both is read for its values"
    for where, wanted in (
        ("p is null", "a"),
        ("p = ''", "b"),
        ("p <=> null", "a"),
        ("p = 'x'", "cd"),
        ("p > ''", "cd"),
    ):
        assert "".join(sorted(row.id for row in df.where(where).collect())) == wanted, where
    known = df.where("p = 'x'")
    known.collect()
    assert sorted(len(read) for read in files_read(known)) == [0, 1], "of the unknown folder statistics tell it"
    dim = spark.createDataFrame([(None, 1), ("", 2), ("x", 3)], "p string, k int")
    assert {row.id for row in df.join(dim, df.p.eqNullSafe(dim.p)).where("k < 3").collect()} == {"a", "b"}


def test_null_of_another_type_is_known(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.table(
        {"id": ["a", "b", "c"], "p": pa.array([None, 7, -1], pa.int32()), "q": pa.array([True, None, False]),
         "m": pa.array([1, 2, None], pa.decimal128(9, 2))}
    )  # fmt: skip
    make(tmp_path / "t", data, partition_by=("p", "q", "m"))
    df = Table.open(tmp_path / "t", spark=spark).to_df()
    wanted = [("a", None, True, 1), ("b", 7, None, 2), ("c", -1, False, None)]
    assert [tuple(row) for row in df.select("id", "p", "q", "m").orderBy("id").collect()] == wanted
    assert kinds(df) == {("p", "q", "m")}
    for where, found in (("p is null", "a"), ("q is null", "b"), ("m is null", "c"), ("p < 0 or m = 2.00", "bc")):
        assert "".join(sorted(row.id for row in df.where(where).collect())) == found, where


@pytest.mark.parametrize("options", [{}, PLAIN, {**PLAIN, "hoodie.datasource.write.hive_style_partitioning": "true"}])
def test_odd_text_in_folders(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    values = ["a b", "50%25", "p=x", "é€😀", "__HIVE_DEFAULT_PARTITION__", "07", "%41"]
    values += [] if options else ["x/y", "c:d", "*", "q?", "[z]", "100%"]
    data = pa.table({"id": [f"{i:02d}" for i in range(len(values))], "p": values})
    make(tmp_path / "t", data, partition_by=("p",), **options)
    df = Table.open(tmp_path / "t", spark=spark).to_df()
    assert [row.p for row in df.orderBy("id").collect()] == values
    for value in values:
        text = value.replace("\\", "\\\\").replace("'", "\\'")
        assert [row.p for row in df.where(f"p = '{text}'").collect()] == [value]


def test_types_whose_folder_is_not_exact_are_read(spark: SparkSession, tmp_path: Path) -> None:
    at = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]
    data = pa.table({"id": ["a", "b"], "f": [1.5, -0.0], "at": pa.array(at, pa.timestamp("us", "UTC"))})
    for column in ("f", "at"):
        make(tmp_path / column, data, partition_by=(column,))
        df = Table.open(tmp_path / column, spark=spark).to_df()
        assert kinds(df) == {()}
        assert {row.id for row in df.where("f = 0 or at is null").collect()} == {"b"}
