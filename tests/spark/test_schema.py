"""Types of Spark and of Arrow."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.spark.schema import align, arrow_to_spark, declared_schema, nullable, spark_to_arrow

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


LENGTH = "__CHAR_VARCHAR_TYPE_STRING"


@pytest.mark.parametrize("type_", [CharType(3), VarcharType(3)])
@pytest.mark.parametrize("convert", [spark_to_arrow, declared_schema])
def test_text_of_bounded_length_is_refused(type_: DataType, convert: Callable[[StructType], pa.Schema]) -> None:
    nested = StructType([StructField("x", ArrayType(type_))])
    for field, path in ((StructField("c", type_), "c"), (StructField("s", nested), r"s\.x\.element")):
        with pytest.raises(InvalidInputError, match=rf"'{path}' is (var)?char\(3\).*make it STRING"):
            convert(StructType([StructField("id", IntegerType()), field]))


def test_a_length_that_spark_keeps_beside_a_string_counts_where_columns_are_declared() -> None:
    schema = StructType([StructField("c", StringType(), True, {LENGTH: "varchar(3)"})])
    with pytest.raises(InvalidInputError, match=r"'c' is varchar\(3\)"):
        declared_schema(schema)
    assert spark_to_arrow(schema).types == [pa.string()], "the rows of a frame are plain strings"


@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="collations came with Spark 4")
def test_a_collation_is_refused() -> None:
    lower = StringType("UTF8_LCASE")
    nested = StructType([StructField("x", MapType(StringType(), lower))])
    for convert in (spark_to_arrow, declared_schema):
        for field, path in ((StructField("c", lower), "c"), (StructField("s", nested), r"s\.x\.value")):
            with pytest.raises(InvalidInputError, match=rf"'{path}' is string collate UTF8_LCASE.*plain STRING"):
                convert(StructType([field]))
    assert spark_to_arrow(StructType([StructField("c", StringType("UTF8_BINARY"))])).types == [pa.string()]


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
