"""Statements about partitions, on folders of every style and on typed values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lakedex import Table, register_catalog

ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
        ("m", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("l", pa.int64()),
    ]
)
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
VALUES = [
    {
        "id": "a",
        "s": "oslo",
        "n": 1,
        "d": dt.date(2024, 1, 1),
        "b": True,
        "m": Decimal("1.50"),
        "at": NOON,
        "l": 1 << 40,
    },
    {
        "id": "b",
        "s": "ro/me = 1%",
        "n": -7,
        "d": dt.date(1969, 12, 31),
        "b": False,
        "m": Decimal(-2),
        "at": NOON,
        "l": -1,
    },
    {"id": "c", "s": None, "n": None, "d": None, "b": None, "m": None, "at": None, "l": None},
]
COLUMNS = {
    "s": ("'oslo'", "'ro/me = 1%'"),
    "n": ("1", "-7"),
    "d": ("'2024-01-01'", "date'1969-12-31'"),
    "b": ("true", "false"),
    "m": ("1.5", "-2"),
    "l": ("1099511627776", "'-1'"),
}
"""Partition column → the values of the first two rows in SQL."""
SHOWN = {
    "s": ["s=null", "s=oslo", "s=ro%2Fme %3D 1%25"],
    "n": ["n=-7", "n=1", "n=null"],
    "d": ["d=1969-12-31", "d=2024-01-01", "d=null"],
    "b": ["b=false", "b=null", "b=true"],
    "m": ["m=-2.00", "m=1.50", "m=null"],
    "l": ["l=-1", "l=1099511627776", "l=null"],
}


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    register_catalog(spark, "parts", str(folder))
    return folder


def shown(spark: SparkSession, statement: str) -> list[Any]:
    return [row[0] for row in spark.sql(statement).collect()]


def made(path: Path, partition_by: list[str], **options: str) -> Table:
    table = Table.create(path, ROWS, record_key="id", partition_by=partition_by, options=options)
    table.insert(pa.Table.from_pylist(VALUES, ROWS))
    return table


@pytest.mark.parametrize("hive, encode", [("true", "true"), ("false", "true"), ("true", "false")])
@pytest.mark.parametrize("column", COLUMNS)
def test_partitions_of_every_type_and_style(
    spark: SparkSession, warehouse: Path, column: str, hive: str, encode: str
) -> None:
    if column == "s" and encode == "false":
        pytest.skip("a slash in a value needs escapes")
    name = f"t_{column}_{hive}_{encode}"
    settings = {
        "hoodie.datasource.write.hive_style_partitioning": hive,
        "hoodie.datasource.write.partitionpath.urlencode": encode,
    }
    made(warehouse / name, [column], **settings)
    assert shown(spark, f"show partitions parts.{name}") == SHOWN[column]
    first, second = COLUMNS[column]
    assert len(shown(spark, f"show partitions parts.{name} partition ({column} = {second})")) == 1
    spark.sql(f"alter table parts.{name} drop partition ({column} = {second})")
    assert shown(spark, f"select id from parts.{name} order by id") == ["a", "c"]
    spark.sql(f"truncate table parts.{name} partition ({column} = null)")
    assert shown(spark, f"select id from parts.{name}") == ["a"]
    spark.sql(f"alter table parts.{name} drop if exists partition ({column} = {second})")
    with pytest.raises(AnalysisException, match="cannot be found|does not exist"):
        spark.sql(f"alter table parts.{name} drop partition ({column} = {second})")
    spark.sql(f"truncate table parts.{name} partition ({column} = {first})")
    assert shown(spark, f"show partitions parts.{name}") == []


@pytest.mark.proves("partitions in SQL")
@pytest.mark.smoke
def test_partitions_of_two_columns(spark: SparkSession, warehouse: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(warehouse / "two", ["s", "d"])
    every = ["s=null/d=null", "s=oslo/d=2024-01-01", "s=ro%2Fme %3D 1%25/d=1969-12-31"]
    assert shown(spark, "show partitions parts.two") == every
    assert shown(spark, "show partitions parts.two partition (d = '2024-01-01')") == every[1:2]
    assert shown(spark, "show partitions parts.two partition (s = null)") == every[:1]
    if not spark.version.startswith("3."):
        extended = "show table extended in parts like 'two' partition (s = 'oslo', d = '2024-01-01')"
        assert "file_slices: 1" in spark.sql(extended).collect()[0].information
    spark.sql("alter table parts.two add partition (s = 'bern', d = null)")
    assert "ADD PARTITION does nothing" in caplog.text and shown(spark, "show partitions parts.two") == every
    with pytest.raises(AnalysisException, match="already exist"):
        spark.sql("alter table parts.two add partition (s = 'oslo', d = '2024-01-01')")
    commits = table.inspect.history().num_rows
    spark.sql("alter table parts.two drop partition (s = 'oslo', d = '2024-01-01'), partition (s = null, d = null)")
    assert table.inspect.history().num_rows == commits + 1, "one commit for both"
    assert shown(spark, "select id from parts.two") == ["b"]
    spark.sql("truncate table parts.two partition (s = 'nowhere')")
    spark.sql("truncate table parts.two partition (s = 'ro/me = 1%')")
    assert shown(spark, "select count(*) from parts.two") == [0]


def test_refused_statements_about_partitions(spark: SparkSession, warehouse: Path) -> None:
    made(warehouse / "none", [])
    made(warehouse / "some", ["s"])
    odd = made(warehouse / "odd", ["n"])
    moved = warehouse / "odd" / ".hoodie" / "hoodie.properties"
    moved.write_text(moved.read_text().replace("hive_style_partitioning=true", "hive_style_partitioning=false"))
    assert odd.path
    for statement, error in (
        ("show partitions parts.none", "not partitioned|PARTITION_SCHEMA_IS_EMPTY"),
        ("truncate table parts.some partition (nope = 1)", "nope"),
        ("alter table parts.some partition (s = 'oslo') rename to partition (s = 'x')", "RENAME PARTITION is not"),
        ("alter table parts.some drop partition (s = 'oslo') purge", "(?i)purge"),
        ("alter table parts.some add partition (s = 'x') location '/elsewhere'", "ADD PARTITION … LOCATION"),
        ("show partitions parts.odd", "folder 'n=-7' is not the text of a value of n"),
    ):
        with pytest.raises(PySparkException, match=error):
            spark.sql(statement).collect()
    assert shown(spark, "select count(*) from parts.some") == [3]
