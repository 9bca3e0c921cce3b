"""Rows and conditions in the forms of other libraries, on Spark: what is no DataFrame goes as Arrow, Columns become SQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lakedex import Table, UnsupportedFeatureError
from lakedex.spark.engine import SparkEngine
from lakedex.types import META_COLUMNS

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("n", pa.int32()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()), ("v", pa.string()), ("s", pa.struct([("y", pa.int64())])),
    ]
)  # fmt: skip
DATA = [
    {
        "id": str(n), "n": n if n % 4 else None, "x": float("nan") if n == 5 else n * 1.5,
        "at": dt.datetime(2024, 1, 1 + n, tzinfo=dt.UTC), "day": dt.date(2024, 1, 1 + n),
        "v": ["it's", "a\\b", "", "${x}"][n % 4], "s": {"y": n},
    }
    for n in range(12)
]  # fmt: skip


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table.create(tmp_path_factory.mktemp("inputs") / "t", SCHEMA, record_key="id", spark=spark)
    made.bulk_insert(DATA)
    return made


@pytest.mark.smoke
def test_rows_that_are_no_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, record_key="id", spark=spark)
    arrow = pa.Table.from_pylist(DATA, SCHEMA)
    assert table.upsert(DATA[:6]).inserted == 6
    assert table.upsert(iter(arrow.to_batches(max_chunksize=5))).inserted == 6
    for data in (DATA, ds.dataset(arrow), arrow.to_reader(), table.scan()):
        assert table.upsert(data).updated == 12
    assert table.to_df().drop(*META_COLUMNS).count() == 12
    assert table.scan("id = '1'").to_spark().columns == SCHEMA.names
    assert table.scan("id = '1'", meta_columns=True).to_spark().columns == [*META_COLUMNS, *SCHEMA.names]


NULL_STRUCT = """
SELECT * FROM VALUES ('a', named_struct('in', named_struct('v', 'q')), array(named_struct('x', 1))), ('c', NULL, NULL)
AS v(id, st, l)
"""


@pytest.mark.parametrize("rows", [1000, 0], ids=["driver", "executors"])
def test_structs_that_are_null_though_their_fields_never_are(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    """Spark's own toArrow fails on them."""
    df = spark.sql(NULL_STRUCT)
    assert not df.schema["st"].dataType["in"].nullable
    table = Table.create(tmp_path / "t", df.schema, record_key="id", spark=spark)
    table.context.engine = SparkEngine(spark, driver_rows=rows, driver_bytes=rows << 10)
    assert table.upsert(df).inserted == 2
    assert table.to_df().orderBy("id").select("id", "st", "l").collect() == df.orderBy("id").collect()


FORMS: list[Any] = [
    ("n", ">", 5), [[("n", "<", 2)], [("id", "=", "7")]], pc.field("x") > 6,
    pc.field("v").isin(["it's", "a\\b"]),
]  # fmt: skip


@pytest.mark.parametrize("where", FORMS, ids=[str(number) for number in range(len(FORMS))])
def test_conditions_of_other_libraries(table: Table, where: Any) -> None:
    found = {row.id for row in table.scan(where, ["id"]).to_spark().collect()}
    assert (
        found
        == set(table.to_arrow(where, ["id"]).column("id").to_pylist())
        == {row["id"] for row in Table.open(table.path).scan(where).to_arrow().to_pylist()}
    )
    assert 0 < len(found) < 12


COLUMNS: list[Callable[[], Column]] = [  # Made late: a classic Column needs its session.
    lambda: F.col("n") > 5,
    lambda: (F.col("n") > 5) | F.col("n").isNull(),
    lambda: ~(F.col("x") > 6),
    lambda: F.col("x") == float("nan"),
    lambda: F.isnan("x"),
    lambda: F.col("id").isin("1", "7"),
    lambda: F.col("`v`") == "it's",
    lambda: F.col("`v`") == "a\\b",
    lambda: F.col("`v`") == "${x}",
    lambda: F.col("s.y") >= 3,
    lambda: F.col("n").between(2, 5),
    lambda: F.col("at") > dt.datetime(2024, 1, 5, tzinfo=dt.UTC),
    lambda: F.col("day") <= dt.date(2024, 1, 3),
    lambda: F.col("id").startswith("1"),
    lambda: F.col("id").like("1_"),
    lambda: F.lit(3).eqNullSafe(F.col("n")),
    lambda: F.expr("n % 2 = 0") & F.col("x").isNotNull(),
]
CLASSIC: list[Callable[[], Column]] = [lambda: F.col("n") + 1 > 5, lambda: F.length("id") == 2]


@pytest.mark.smoke
def test_columns_are_conditions_of_scans(table: Table) -> None:
    for number, make in enumerate([*COLUMNS, *CLASSIC]):
        wanted = sorted(row.id for row in table.to_df().where(make()).collect())
        assert sorted(table.scan(make(), ["id"]).to_arrow().column(0).to_pylist()) == wanted, number
        assert table.count(make()) == len(wanted) > 0, number
    assert table.scan().filter(F.col("n") > 5).count() == 5
    assert table.changes("earliest", where=F.col("n") > 5).count() == 5
    assert sorted(row.id for row in table.scan(F.col("n") > 5).to_spark().collect()) == ["10", "11", "6", "7", "9"]


def test_columns_that_are_refused(table: Table) -> None:
    upper = F.udf(lambda text: text, "string")
    for column in (upper("id") == "1", F.rand() > 0.5, F.col("n") > F.monotonically_increasing_id()):
        with pytest.raises(UnsupportedFeatureError, match=r"use to_df\(\)\.where\(column\)"):
            table.scan(column)


def test_changes_by_conditions_of_other_libraries(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, record_key="id", spark=spark)
    table.bulk_insert(DATA)
    assert table.update({"n": -1}, pc.field("n") > 9).updated == 2
    assert table.update({"n": "n - 1"}, F.col("n") == -1).updated == 2
    assert table.delete(where=("n", "=", -2)).deleted == 2
    assert table.erase(where=F.col("id") == "1").rows == 1
    assert table.count() == 9
