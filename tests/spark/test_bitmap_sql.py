"""Bitmap indexes in Spark SQL: made, listed and dropped by statements, and used by scans of Spark's own reader
(R86–R89, R139, R140, R142, R92.c)."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lakedex import Table, register_catalog
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.parquet.base_file_writer import BaseFileWriter
from spark_plans import files_read, nodes
from table_kit import OWN_FILE

ROWS, GROUP = 2000, 250
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("p", pa.string()),
        ("k", pa.string()),
        ("g", pa.string()),
        ("s", pa.struct([("x", pa.int32())])),
        ("pad", pa.string()),
    ]
)


def values_of(number: int) -> str:
    """In each row group one value of its own, between two that all groups have: no bounds tell them apart."""
    place = number % GROUP
    return "a" if place == 0 else "z" if place == GROUP - 1 else f"m{number // GROUP % 8}"


@pytest.fixture(scope="module")
def town(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of eight row groups, with a bitmap index that SQL made."""
    warehouse = tmp_path_factory.mktemp("town")
    whole = BaseFileWriter.write

    def in_groups(writer: BaseFileWriter, batch: pa.RecordBatch, hashed: object = None) -> None:
        for first in range(0, batch.num_rows, GROUP):
            whole(writer, batch.slice(first, GROUP))
            writer.end_row_group()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseFileWriter, "write", in_groups)
        options = OWN_FILE
        table = Table.create(warehouse / "t", SCHEMA, record_key="id", partition_by="p", options=options)
        for first, partition in ((0, "a"), (ROWS, "b")):
            numbers = range(first, first + ROWS)
            rows = {
                "id": [f"k{n:05d}" for n in numbers],
                "p": [partition] * ROWS,
                "k": [values_of(n) for n in numbers],
                "g": [("female", "male", None)[n % 3] for n in numbers],
                "s": [{"x": n % 4} for n in numbers],
                "pad": [hashlib.sha1(f"{n}".encode()).hexdigest() * 2 for n in numbers],
            }
            table.bulk_insert(pa.table(rows, schema=SCHEMA), options=options)
    register_catalog(spark, "town", str(warehouse))
    spark.sql("create index people on town.t using bitmap (k, g, s.x) options (max_distinct_values = '5000')")
    return warehouse


def size_read(frame: DataFrame) -> int:
    (scan,) = nodes(frame, "BatchScanExec")
    inputs = scan.batch().planInputPartitions()
    return sum(file.length() for part in inputs for file in part.files())


def test_an_index_is_made_listed_and_dropped_by_sql(spark: SparkSession, town: Path) -> None:
    definition = read_bitmap_definitions(TableFiles(LocalStorage(), str(town / "t")))["people"]
    assert definition.columns == ("k", "g", "s.x") and definition.max_distinct == 5000
    listed = spark.sql("select name, using, columns from town.t.indexes where using = 'bitmap'").collect()
    assert [tuple(row) for row in listed] == [("people", "bitmap", ["k", "g", "s.x"])]
    catalog = spark._jsparkSession.sessionState().catalogManager().catalog("town")
    view = spark.sparkContext._jvm
    assert view is not None
    identifier = view.org.apache.spark.sql.connector.catalog.Identifier.of(["t"][:0] or _strings(spark), "t")
    indexes = [index for index in catalog.loadTable(identifier).listIndexes() if index.indexName() == "people"]
    assert [list(column.fieldNames()) for column in indexes[0].columns()] == [["k"], ["g"], ["s", "x"]]
    with pytest.raises(AnalysisException, match="people"):
        spark.sql("create index people on town.t using bitmap (k)")
    spark.sql("create index if not exists people on town.t using bitmap (k)")
    spark.sql("create index more on town.t using bitmap (p)")
    spark.sql("drop index more on town.t")
    assert set(read_bitmap_definitions(TableFiles(LocalStorage(), str(town / "t")))) == {"people"}
    with pytest.raises(AnalysisException, match="more"):
        spark.sql("drop index more on town.t")


def _strings(spark: SparkSession) -> object:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return gateway.new_array(gateway.jvm.java.lang.String, 0)


@pytest.mark.smoke
def test_only_row_groups_with_a_row_are_read(spark: SparkSession, town: Path) -> None:
    query = "select id from town.t where k = 'm3'"
    frame = spark.sql(query)
    found = sorted(row["id"] for row in frame.collect())
    assert found == [f"k{n:05d}" for n in range(2 * ROWS) if values_of(n) == "m3"]
    whole = sum(path.stat().st_size for path in (town / "t").glob("p=*/*.parquet"))
    assert size_read(frame) < 0.2 * whole
    shown = spark.sql(f"explain formatted {query}").head()
    assert shown is not None and "row groups 2 of 16 in 2 files" in shown[0], shown[0]
    assert "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString()


ANSWERED = (
    ("select count(*) from town.t where g = 'female' and k = 'm3'", [(165,)]),
    ("select g, count(*) from town.t group by g", [("female", 1334), ("male", 1333), (None, 1333)]),
    ("select g, count(*), max(k) from town.t where k > 'm6' group by g having count(*) > 1", None),
    ("select min(k), max(s.x), count(distinct g), count(g) from town.t", [("a", 3, 2, 2667)]),
    ("select s.x, count(*) from town.t where s.x < 2 group by s.x", [(0, 1000), (1, 1000)]),
    ("select count(*), max(k) from town.t where k = 'nothing'", [(0, None)]),
)


@pytest.mark.proves("bitmap index in SQL")
@pytest.mark.smoke
def test_aggregates_are_answered_without_a_job(spark: SparkSession, town: Path) -> None:
    tracker = spark.sparkContext.statusTracker()
    for query, rows in ANSWERED:
        spark.sparkContext.setJobGroup("bitmaps", query)
        frame = spark.sql(query)
        found = [tuple(row) for row in frame.collect()]
        assert list(tracker.getJobIdsForGroup("bitmaps")) == [], query
        spark.sparkContext._jsc.clearJobGroup()
        assert nodes(frame, "AnswerScan") and (rows is None or sorted(found, key=repr) == sorted(rows, key=repr)), query
        plain = spark.sql(query.replace("town.t", "(select * from town.t where pad is not null)")).collect()
        assert sorted(found, key=repr) == sorted((tuple(row) for row in plain), key=repr), query


COUNTED = "select g, count(*) as n from town.t group by g"

ABOVE_AN_ANSWER = (
    f"{COUNTED} order by g",
    f"{COUNTED} order by n desc, g limit 2",
    f"select t.id, a.n from town.t t join ({COUNTED}) a on t.g = a.g order by t.id limit 3",
    f"select /*+ merge(a) */ t.id, a.n from town.t t join ({COUNTED}) a on t.g = a.g order by t.id limit 3",
    f"select g, n, rank() over (order by n, g) from ({COUNTED})",
    f"{COUNTED} union all select 'more', 1",
    f"{COUNTED} union select p, 1 from town.t",
    f"select distinct n from ({COUNTED})",
)
"""Tasks of these get the plan below them, as part of closures and of generated code."""


@pytest.mark.smoke
@pytest.mark.parametrize("query", ABOVE_AN_ANSWER)
def test_operators_above_an_answer_run_on_executors(spark: SparkSession, town: Path, query: str) -> None:
    frame = spark.sql(query)
    found = sorted(repr(tuple(row)) for row in frame.collect())
    assert nodes(frame, "AnswerScan")
    plain = spark.sql(query.replace("count(*)", "sum(1)"))
    assert found == sorted(repr(tuple(row)) for row in plain.collect()) and not nodes(plain, "AnswerScan")


def test_a_join_reads_the_row_groups_of_its_partition(spark: SparkSession, town: Path) -> None:
    spark.createDataFrame([("b", 1), ("y", 2)], "p string, n int").createOrReplaceTempView("parts")
    query = "select /*+ BROADCAST(d) */ id from town.t t join parts d on t.p = d.p where t.k = 'm5' and d.n = 1"
    found = sorted(row["id"] for row in spark.sql(query).collect())
    assert found == [f"k{n:05d}" for n in range(ROWS, 2 * ROWS) if values_of(n) == "m5"]


def test_what_no_bitmap_covers_is_left_to_spark(spark: SparkSession, town: Path) -> None:
    for query in ("select count(*) from town.t where pad > 'f'", "select pad, count(*) from town.t group by pad"):
        assert not nodes(spark.sql(query), "AnswerScan")
        assert "Aggregate" in spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()


def test_dates_of_timestamps_are_those_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    """A bitmap index must not take the day in UTC where Spark takes it elsewhere."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    table = Table.create(tmp_path / "t", schema, record_key="id", options=OWN_FILE)
    for number, hour in enumerate((3, 20)):
        moments = [dt.datetime(2020, 1, 2, hour, tzinfo=dt.UTC)] * 2
        table.insert(pa.table({"id": [f"{number}a", f"{number}b"], "ts": moments}, schema=schema))
    table.indexes.create("bitmap", ["ts"], name="moments")
    register_catalog(spark, "zones", str(tmp_path))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for where in ("cast(ts as date) = date'2020-01-01'", "ts < date'2020-01-02'", "to_date(ts) < date'2020-01-02'"):
            assert spark.sql(f"select count(*) from zones.t where {where}").collect() == [(2,)], where
            assert len(spark.sql(f"select id from zones.t where {where}").collect()) == 2, where
        assert spark.sql("select count(*) from zones.t where ts < timestamp'2020-01-02 00:00:00'").collect() == [(2,)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_view_leaves_out_files_that_bounds_cannot(spark: SparkSession, tmp_path: Path) -> None:
    """The frame behind a view plans with bitmaps as the catalog does (R94, R142)."""
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("g", pa.string()), ("h", pa.string())])
    table = Table.create(tmp_path / "t", schema, name="seen", record_key="id", partition_by="p", spark=spark)
    for part, middle in (("one", "m"), ("two", "n")):
        rows = [(f"{part}{n}", part, g, h) for n, (g, h) in enumerate((("a", "y"), (middle, "x"), ("z", "y")))]
        table.insert(pa.table(list(zip(*rows, strict=True)), schema=schema))
    table.indexes.create("bitmap", ["g", "h"], name="both")
    table.create_view("seen")
    for where, folders in (
        ("g = 'm'", {"one"}),
        ("g <> 'a' AND g <> 'z' AND g <> 'm'", {"two"}),
        ("g = 'n' AND h = 'x'", {"two"}),
        ("g IN ('m', 'n')", {"one", "two"}),
    ):
        frame = spark.sql(f"SELECT id FROM seen WHERE {where}")
        assert len(frame.collect()) == len(folders)
        assert {folder.rsplit("/", 1)[-1] for folder in set().union(*files_read(frame))} == folders, where


def test_log_files(spark: SparkSession, town: Path) -> None:
    """Groups come from the index where slices have log files; of the base files only row groups in question are read."""
    schema = pa.schema([("id", pa.string()), ("k", pa.string())])
    options = {**OWN_FILE, "hoodie.compact.inline": False}
    table = Table.create(town / "logs", schema, record_key="id", table_type="mor", options=options)
    table.insert(pa.table({"id": [f"k{n}" for n in range(40)], "k": ["abcd"[n % 4] for n in range(40)]}))
    table.indexes.create("bitmap", ["k"])
    table.upsert(pa.table({"id": ["k0", "k1"], "k": ["e", "a"]}))
    table.delete(["k2"])
    query = "select k, count(*) from town.logs group by k"
    assert "LocalTableScan" in spark.sql(query)._jdf.queryExecution().executedPlan().toString()
    wanted = {"a": 10, "b": 9, "c": 9, "d": 10, "e": 1}
    assert {row[0]: row[1] for row in spark.sql(query).collect()} == wanted
    assert table.scan("k = 'a'").explain(answer="count").from_index
    for key, count in wanted.items():
        assert spark.sql(f"select * from town.logs where k = '{key}'").count() == count
        read = Table.open(table.path, spark=spark).scan(f"k = '{key}'", cost_gate=False)
        assert read.plan().selections and len(read.to_spark().collect()) == count
