"""Types of Spark and of Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    CharType,
    DayTimeIntervalType,
    IntegerType,
    StructField,
    StructType,
    VarcharType,
)

from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.spark.schema import align, arrow_to_spark, nullable, spark_to_arrow

DDL = (
    "a boolean, b tinyint, c smallint, d int not null, e bigint, f float, g double, h string, i binary, j date, "
    "k timestamp, l timestamp_ntz, m decimal(38, 18), n array<int>, o map<string, array<date>>, "
    "p struct<x: int, y: struct<`odd name`: timestamp>>"
)


@pytest.mark.smoke
def test_both_ways(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], DDL).schema
    arrow = spark_to_arrow(schema)
    assert arrow_to_spark(arrow) == schema
    assert arrow.field("k").type == pa.timestamp("us", "UTC")
    assert arrow.field("n").type.value_field.name == "element"
    assert not arrow.field("d").nullable
    inner = nullable(schema)
    assert isinstance(inner, StructType) and inner["d"].nullable


def test_text_of_bounded_length_is_text() -> None:
    schema = StructType([StructField("c", CharType(3)), StructField("v", VarcharType(3))])
    assert spark_to_arrow(schema).types == [pa.string(), pa.string()]


def test_refused_types_name_the_column() -> None:
    with pytest.raises(InvalidInputError, match=r"column 's\.x'") as caught:
        spark_to_arrow(StructType([StructField("s", StructType([StructField("x", DayTimeIntervalType())]))]))
    assert caught.value.column == "s.x"  # type: ignore[attr-defined]
    for arrow in (pa.time64("us"), pa.duration("s"), pa.month_day_nano_interval()):
        with pytest.raises(InvalidInputError, match="column 'c'"):
            arrow_to_spark(pa.schema([("c", arrow)]))


def test_align_adds_casts_and_reorders(spark: SparkSession) -> None:
    found = spark.createDataFrame(
        [], "`o.dd` int, s struct<a: int, b: string>, l array<struct<x: int>>, m map<string, int>"
    )
    wanted = spark.createDataFrame(
        [], "new date, l array<struct<x: bigint, y: string>>, `o.dd` bigint, "
        "s struct<b: string, c: date, a: bigint>, m map<string, bigint>",
    ).schema  # fmt: skip
    frame = spark.sql(
        "select 1 as `o.dd`, named_struct('a', 2, 'b', 'z') s, array(named_struct('x', 3), null) l, map('k', 4) m "
        "union all select null, null, null, null"
    )
    out = align(frame, found.schema, wanted)
    assert nullable(out.schema) == nullable(wanted)
    first, second = out.collect()
    assert first.asDict(recursive=True) == {
        "new": None,
        "l": [{"x": 3, "y": None}, None],
        "o.dd": 1,
        "s": {"b": "z", "c": None, "a": 2},
        "m": {"k": 4},
    }
    assert set(second.asDict().values()) == {None}


def test_align_refuses_other_shapes(spark: SparkSession) -> None:
    found = StructType([StructField("c", IntegerType())])
    wanted = StructType([StructField("c", found)])
    with pytest.raises(SchemaMismatchError, match="column 'c' is int in some files"):
        align(spark.createDataFrame([], found), found, wanted)
