"""Aggregates that an index answers: the rule asks only what it understands, and Spark shows the same rows and types."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakedex import Table, register_catalog
from lakedex.expr.evaluator import filter_rows
from lakedex.scan.scan import Scan
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog import aggregates
from lakedex.spark.catalog.aggregates import AggregateRequest
from spark_plans import nodes
from table_kit import OWN_FILE

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("g", pa.string()),
        ("Mixed", pa.string()),
        ("i", pa.int32()),
        ("b", pa.bool_()),
        ("f", pa.float64()),
        ("h", pa.float32()),
        ("m", pa.decimal128(12, 2)),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("y", pa.binary()),
        ("s", pa.struct([("x", pa.int64())])),
    ]
)
NAN = float("nan")


def made(number: int) -> dict[str, Any]:
    return {
        "id": f"k{number:03d}",
        "g": [None, "", "female", "male", "é'`\\"][number % 5],
        "Mixed": "ab"[number % 2],
        "i": None if number % 7 == 0 else number % 4,
        "b": [True, False, None][number % 3],
        "f": [NAN, -0.0, 0.0, 1.5, None, -math.inf][number % 6],
        "h": [0.1, -2.5, None, NAN][number % 4],
        "m": None if number % 9 == 0 else Decimal(number - 20) / 4,
        "d": dt.date(1999, 12, 30) + dt.timedelta(days=number % 3),
        "ts": dt.datetime(1960, 1, 1, 0, 0, 0, number % 2, tzinfo=dt.UTC),
        "y": [b"", b"\x00\xff", None][number % 3],
        "s": None if number % 8 == 0 else {"x": number % 3},
    }


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with ``t``, three files, and ``none``, no rows."""
    warehouse = tmp_path_factory.mktemp("answers")
    table = Table.create(warehouse / "t", SCHEMA, record_key="id", options=OWN_FILE)
    for first in (0, 20, 40):
        table.insert(pa.Table.from_pylist([made(number) for number in range(first, first + 20)], SCHEMA))
    Table.create(warehouse / "none", SCHEMA, record_key="id")
    register_catalog(spark, "ask", str(warehouse))
    register_catalog(spark, "ask", str(warehouse))
    return warehouse


def key(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def order(value: Any) -> Any:
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    found: list[Any] = rows
    for part in name.split("."):
        found = [None if value is None else value[part] for value in found]
    return found


def kind_of(snapshot: Snapshot, name: str) -> pa.DataType:
    schema: Any = read_columns(snapshot.schema)
    for part in name.split("."):
        schema = schema.field(part).type
    return schema


class Index:
    """Stands for an index: says from the rows what an index would know."""

    def __init__(self) -> None:
        self.requests: list[AggregateRequest] = []
        self.failing = False

    def answer(self, snapshot: Snapshot, request: AggregateRequest) -> pa.Table | None:
        self.requests.append(request)
        if self.failing:
            raise RuntimeError("broken index")
        table = Scan(snapshot=snapshot).to_arrow()
        if request.where is not None:
            table = table.filter(filter_rows(request.where.predicate, table))
        rows = table.to_pylist()
        keys = [column(rows, name) for name in request.group_by]
        groups: dict[Any, list[int]] = {} if request.group_by else {(): []}
        for at in range(len(rows)):
            groups.setdefault(tuple(key(values[at]) for values in keys), []).append(at)
        found: list[list[Any]] = [[] for _ in (*request.group_by, *request.aggregates)]
        for members in groups.values():
            told = [values[members[0]] for values in keys]
            for call, name in request.aggregates:
                values = (
                    [] if name is None else [v for v in column([rows[at] for at in members], name) if v is not None]
                )
                told.append(
                    len(members) if call == "count_star" else len(values) if call == "count"
                    else len({key(v) for v in values}) if call == "count_distinct"
                    else {"min": min, "max": max}[call](values, key=order, default=None)
                )  # fmt: skip
            for values, value in zip(found, told, strict=True):
                values.append(value)
        kinds = [kind_of(snapshot, name) for name in request.group_by]
        kinds += [
            kind_of(snapshot, name) if call in ("min", "max") and name else pa.int64()
            for call, name in request.aggregates
        ]
        arrays = [pa.array(values, kind) for values, kind in zip(found, kinds, strict=True)]
        return pa.table(arrays, names=[f"c{number}" for number in range(len(arrays))])


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index()
    monkeypatch.setattr(aggregates, "may_answer", lambda snapshot: True)
    monkeypatch.setattr(aggregates, "answer", made.answer)
    return made


def texts(frame: DataFrame) -> list[str]:
    """Rows as text, in which -0.0 and NaN are seen."""
    return sorted(repr(tuple(row)) for row in frame.collect())


ANSWERED = [
    "select count(*) from ask.t where g = 'female'",
    "select count(1), count(i), count(distinct g), min(i), max(i) from ask.t",
    "select count(*) from ask.t where g is null or i in (1, 2) and not b",
    "select count(*), min(g), max(m) from ask.t where g = 'nobody'",
    "select g, count(*) from ask.t group by g",
    "select G, MIXED, count(*) c, max(d), min(ts), max(y), min(b) from ask.t where MIXED <> 'b' group by g, mixed",
    "select i, count(g), min(m), max(m), min(h) from ask.t where d >= date'1999-12-31' group by i having count(*) > 3",
    "select f, count(*) from ask.t group by f",
    "select h, count(distinct f) from ask.t group by h",
    "select m, count(*) from ask.t where ts < timestamp'1960-01-01 00:00:00.000001' group by m",
    "select b, y, d, ts, count(*) from ask.t group by b, y, d, ts",
    "select s.x, count(*), max(s.x) from ask.t where s.x > 0 group by s.x",
    "select count(distinct s.x), count(s.x) from ask.t",
    "select distinct g from ask.t",
    "select count(*) + 1 as more, concat(max(g), '!') as shout, count(*) as same from ask.t",
    "select upper(g) u, count(*) * 2 from ask.t group by g",
    "select count(*), max(i) from ask.none",
    "select g, count(*) from ask.none group by g",
    "select x.g, c from (select g, count(*) c from ask.t group by g) x join ask.t y on x.g = y.g where y.id = 'k002'",
    "select (select max(i) from ask.t where g = 'male') + 1 as next",
    "select c from (select Mixed as q, count(*) c from ask.t where i > 0 group by Mixed) where q = 'a'",
]


@pytest.mark.parametrize("query", ANSWERED)
def test_an_answer_is_what_spark_would_say(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    plain = spark.sql(query)
    wanted, fields = texts(plain), plain.schema
    index = Index()
    monkeypatch.setattr(aggregates, "may_answer", lambda snapshot: True)
    monkeypatch.setattr(aggregates, "answer", index.answer)
    frame = spark.sql(query)
    assert texts(frame) == wanted and frame.schema == fields
    assert index.requests, "asked"
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "Aggregate" not in plan, plan


def test_no_job_runs_and_explain_says_who_answered(spark: SparkSession, lake: Path, index: Index) -> None:
    context = spark.sparkContext
    query = "select Mixed, count(*) as c, max(i) as m from ask.t where g = 'female' group by Mixed"
    context.setJobGroup("asked", "an aggregate")
    frame = spark.sql(query)
    assert len(frame.collect()) == 2
    assert spark.table("ask.t").where("i = 1").count() == len([n for n in range(60) if made(n)["i"] == 1])
    assert list(context.statusTracker().getJobIdsForGroup("asked")) == []
    context._jsc.clearJobGroup()
    assert len(nodes(frame, "AnswerScan")) == 1
    for mode in ("", "formatted", "extended"):
        shown = spark.sql(f"explain {mode} {query}").head()
        assert shown is not None and "LocalTableScan" in shown[0] and "answered by the index" in shown[0], shown[0]
    assert index.requests[0].group_by == ("Mixed",) and index.requests[0].aggregates == (
        ("count_star", None),
        ("max", "i"),
    )


LEFT = [
    "select sum(i), avg(i) from ask.t",
    "select count(*) filter (where i = 1) from ask.t",
    "select count(g, i) from ask.t",
    "select count(distinct g, i) from ask.t",
    "select count(distinct g), count(distinct i) from ask.t",
    "select upper(g), count(*) from ask.t group by upper(g)",
    "select max(i + 1) from ask.t",
    "select g, i, count(*) from ask.t group by rollup(g, i)",
    "select count(*) from (select * from ask.t limit 5)",
    "select count(*) from ask.t where rand(1) < 0.5",
    "select count(*) from ask.t where g in (select g from ask.t where i = 2)",
    "select count(*) from ask.t where hash(g) % 2 = 0",
    "select count(*) from ask.t where i > 1 and hash(g) % 2 = 0",
    "select first(i) from ask.t where i = 2",
    "select count(*) from ask.t a join ask.t b on a.id = b.id",
    "select g, row_number() over (partition by g order by id) from ask.t",
    "select count(*) from ask.t.files",
    "select count(*) from ask.t tablesample (100 percent)",
]


@pytest.mark.parametrize("query", LEFT)
def test_what_is_not_understood_is_left_to_spark(spark: SparkSession, lake: Path, index: Index, query: str) -> None:
    plan = spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()
    assert not index.requests and "LocalRelation" not in plan


def test_an_error_or_no_answer_leaves_the_plan(
    spark: SparkSession, lake: Path, index: Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    query = "select g, count(*) from ask.t group by g"
    wanted = texts(spark.sql(query))
    index.failing = True
    with caplog.at_level("DEBUG", "lakedex.spark.catalog.aggregates"):
        assert texts(spark.sql(query)) == wanted
    assert "broken index" in caplog.text
    for wrong in (
        None,
        pa.table({"g": ["x"]}),
        pa.table({"g": ["x"], "c": pa.array([1], pa.int32())}),
        pa.table({"g": ["x"] * (aggregates.MOST_ROWS + 1), "c": [1] * (aggregates.MOST_ROWS + 1)}),
    ):
        monkeypatch.setattr(aggregates, "answer", lambda snapshot, request, rows=wrong: rows)
        assert texts(spark.sql(query)) == wanted
    monkeypatch.setattr(aggregates, "answer", lambda snapshot, request: pa.table({"c": [1, 2]}))
    assert texts(spark.sql("select count(*) from ask.t")) == ["(60,)"]


def test_a_zero_that_has_two_signs_is_left_to_spark(spark: SparkSession, lake: Path, index: Index) -> None:
    for query, said in (
        ("select min(f) from ask.t where f = 0 and f <> -1", "(-0.0,)"),
        ("select max(f) m from ask.t", "(nan,)"),
    ):
        assert texts(spark.sql(query)) in ([said], ["(0.0,)"])
    assert (
        "Aggregate"
        in spark.sql("select min(f) from ask.t where f = 0")._jdf.queryExecution().optimizedPlan().toString()
    )


def test_time_travel_and_new_commits_are_asked_of_their_own_state(
    spark: SparkSession, tmp_path: Path, index: Index
) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, record_key="id")
    first = table.insert(pa.Table.from_pylist([made(2)], SCHEMA)).instant
    register_catalog(spark, "moving", str(tmp_path))

    def counted(at: str) -> int:
        return int(spark.sql(f"select count(*) from moving.t {at}").collect()[0][0])

    assert counted("") == 1
    table.insert(pa.Table.from_pylist([made(3)], SCHEMA))
    assert (counted(""), counted(f"version as of '{first}'")) == (2, 1)
    assert len(index.requests) == 3


def test_the_rule_is_there_once_beside_the_users_own(spark: SparkSession, lake: Path) -> None:
    given = spark._jsparkSession.experimental().extraOptimizations()
    names = [given.apply(number).getClass().getSimpleName() for number in range(given.size())]
    assert names.count("AnswerRule") == 1
