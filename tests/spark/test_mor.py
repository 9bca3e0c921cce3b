"""Merge-on-read tables of Java as Spark DataFrames: native for plain slices, merged in Python where there are logs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare import assert_same_rows
from pyspark.sql import DataFrame, SparkSession

from golden_tables import unpack
from lakedex import Table, register_catalog
from lakedex.errors import UnsupportedFeatureError
from lakedex.types import META_COLUMNS
from mor_kit import OWN, avro_schema, data_block, rows, with_meta
from table_kit import set_properties


def collected(df: DataFrame, schema: pa.Schema) -> pa.Table:
    """Rows of a frame in the table's types."""
    if hasattr(df, "toArrow"):
        table = df.toArrow()
    else:
        batches = df._collect_as_arrow()
        table = pa.Table.from_batches(batches) if batches else schema.empty_table()
    wanted = pa.schema([schema.field(name) for name in table.schema.names])
    return table.cast(wanted)


@pytest.mark.parametrize(
    "name", ["mor_v6_nonpartitioned", "mor_v6_trips_8i3d", "mor_v8_trips_8i3u1d", "mor_v9_txns_nonpart_nometa"]
)
def test_rows_are_those_of_the_local_engine(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    plain, table = Table.open(path), Table.open(path, spark=spark)
    for query_type in ("snapshot", "read_optimized"):
        expected = plain.scan(query_type=query_type, meta_columns=True).to_arrow()
        assert_same_rows(collected(table.to_df(query_type=query_type), expected.schema), expected)
    first = plain.inspect.history().column("commit_time").to_pylist()[-1]
    expected = plain.scan(as_of=first).to_arrow()
    assert_same_rows(collected(table.scan(as_of=first).to_spark(), expected.schema), expected)


def test_conditions_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack("mor_v6_trips_8i3d", tmp_path)
    plain, table = Table.open(path), Table.open(path, spark=spark)
    for where in ("fare > 30", "city = 'sao_paulo' and upper(rider) > 'RIDER-D'", "sqrt(fare) > 5", "1 = 0"):
        keys = sorted(row.uuid for row in table.to_df().where(where).select("uuid").collect())
        planned = table.scan(where, ["uuid"]).to_spark()
        assert planned.columns == ["uuid"]
        assert sorted(row.uuid for row in planned.collect()) == keys
        if "sqrt" not in where:
            assert sorted(plain.scan(where).to_arrow().column("uuid").to_pylist()) == keys
    df = table.to_df()
    assert df.join(df.withColumnRenamed("fare", "again").select("uuid", "again"), "uuid").count() == df.count()
    assert df.cache().groupBy("city").count().agg({"count": "sum"}).first()[0] == plain.scan().count()
    df.unpersist()
    table.create_view("trips")
    assert spark.sql("select count(*) from trips where fare > 30").first()[0] == plain.scan("fare > 30").count()


def test_slices_of_both_kinds(spark: SparkSession, tmp_path: Path) -> None:
    """A table of version 6 without metadata, whose files are laid out by hand."""
    source = unpack("mor_v6_nonpartitioned", tmp_path / "from")
    path = tmp_path / "table"
    (path / ".hoodie").mkdir(parents=True)
    shutil.copy(source / ".hoodie" / "hoodie.properties", path / ".hoodie")
    set_properties(path, {"hoodie.table.recordkey.fields": "key", "hoodie.table.precombine.field": "ts"})
    base, more = rows(("a", 10, 1), ("b", 10, 2)), rows(("c", 10, 3))
    done = "20260101000000000"
    for file_id, table in (("f", base), ("g", more)):
        pq.write_table(with_meta(table, done), path / f"{file_id}-0_0-0-0_{done}.parquet")
    (path / f".f-0_{done}.log.1_0-0-0").write_bytes(data_block(rows(("b", 1, 9), ("d", 1, 4)), "20260101000000001"))
    (path / ".hoodie_partition_metadata").write_text("commitTime=1\npartitionDepth=0\n")
    for number, action in ((0, "commit"), (1, "deltacommit")):
        body = json.dumps({"operationType": "UPSERT", "extraMetadata": {"schema": avro_schema(OWN)}})
        (path / ".hoodie" / f"2026010100000000{number}.{action}").write_text(body)

    table = Table.open(path, spark=spark)
    expected = [("a", 1), ("b", 9), ("c", 3), ("d", 4)]
    assert sorted((row.key, row.value) for row in table.to_df().collect()) == expected
    assert sorted((row.key, row.value) for row in table.scan().to_spark().collect()) == expected
    frame = table.scan("value >= 3", ["key"]).to_spark()
    assert sorted(row.key for row in frame.collect()) == ["b", "c", "d"]
    assert table.scan(query_type="read_optimized").count() == 3
    set_properties(path, {"hoodie.compaction.payload.class": "com.example.Mine"})
    for read in (table.to_df, lambda: table.scan().to_spark(), lambda: table.scan().to_arrow()):
        with pytest.raises(UnsupportedFeatureError, match=r"com\.example\.Mine"):
            read()
    assert table.to_df(query_type="read_optimized").count() == 3


def test_errors_of_a_task_name_the_file(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack("mor_v6_trips_8i3d", tmp_path)
    (log,) = (file for file in path.rglob(".*.log.*") if ".hoodie" not in file.relative_to(path).parts)
    log.write_bytes(b"#WRONG" + log.read_bytes()[6:])
    with pytest.raises(Exception, match=r"\.log\.1_.*log block magic"):
        Table.open(path, spark=spark).to_df().collect()


def test_meta_columns_come_along(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.open(unpack("mor_v6_trips_8i3d", tmp_path), spark=spark)
    assert table.to_df().columns[: len(META_COLUMNS)] == list(META_COLUMNS)


def test_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack("mor_v8_trips_8i3u1d", tmp_path)
    register_catalog(spark, "logs", str(tmp_path / "warehouse"))
    plain = Table.open(path)
    expected = sorted(plain.scan("fare > 30").to_arrow().column("uuid").to_pylist())
    found = spark.sql(f"SELECT uuid, fare FROM logs.`{path}` WHERE fare > 30")
    assert sorted(row.uuid for row in found.collect()) == expected
    assert "read in Python" in found._jdf.queryExecution().toString()
