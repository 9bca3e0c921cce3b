"""Tables with what only other writers make: each way into Spark gives the rows that the local engine gives."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from golden_tables import read_by_java, unpack_java_1_2
from lakedex import Table, register_catalog


def frames(spark: SparkSession, path: Path) -> dict[str, DataFrame]:
    """All rows of a table, by each way that this Spark has."""
    table = Table.open(path, spark=spark)
    table.create_view("foreign_view")
    register_catalog(spark, "foreign_lake", str(path.parent))
    found = {
        "to_df": table.to_df(),
        "scan": table.scan().to_spark(),
        "view": spark.table("foreign_view"),
        "catalog": spark.table(f"foreign_lake.{path.name}"),
    }
    if hasattr(spark, "dataSource"):
        found["source"] = spark.read.format("lakedex").load(str(path))
    return found


def rows(df: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return sorted(map(tuple, df.selectExpr(*columns).collect()))


def test_files_in_the_calendar_of_before_1582(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack_java_1_2("legacy_dates", tmp_path)
    dates = [("k0", "0001-01-03"), ("k1", "1000-01-01"), ("k2", "1500-03-01"), ("k3", "1582-10-04")]
    dates += [("k4", "1582-10-15"), ("k5", "2000-01-01")]
    expected = [(key, day, f"{day} 00:00:00") for key, day in dates]
    for way, df in frames(spark, path).items():
        assert rows(df, "id", "string(d)", "string(t)") == expected, way
        assert rows(df.where("d = DATE'1500-03-01'"), "id") == [("k2",)], way
        assert rows(df.where("t <= TIMESTAMP'1582-10-04 00:00:00' AND d > DATE'1000-01-01'"), "id") == [
            ("k2",),
            ("k3",),
        ], way
    Table.open(path, spark=spark).update({"d": "DATE'2001-01-01'"}, "d = DATE'2000-01-01'")
    assert [row[:2] for row in rows(Table.open(path, spark=spark).to_df(), "id", "string(d)")][:5] == dates[:5]


def test_vectors_and_blobs(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack_java_1_2("vector_blob", tmp_path)
    for way, df in frames(spark, path).items():
        assert dict(df.dtypes)["emb"] == "array<float>", way
        found = df.selectExpr("id", "emb", "doc.type", "doc.data", "doc.reference.offset", "ts").collect()
        assert list(map(tuple, found)) == [("k00", [1.0, 0.5, -2.0], "INLINE", b"hello", None, 1000)], way
        assert df.where("emb[1] = 0.5 AND doc.type = 'INLINE'").count() == 1, way


def test_partial_updates(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack_java_1_2("partial_updates", tmp_path)
    expected = sorted((row["id"], row["rider"], row["fare"], row["ts"]) for row in read_by_java(path))
    for way, df in frames(spark, path).items():
        assert rows(df, "id", "rider", "fare", "ts") == expected, way
    assert rows(spark.table("foreign_view").where("fare > 90"), "rider") == [("full",)]
