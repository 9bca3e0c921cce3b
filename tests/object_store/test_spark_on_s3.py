"""Spark on a real S3 server: the JVM reads by S3A, Python by the session's own settings, on ``s3://`` and ``s3a://``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_proxy import FaultProxy
from pyspark.sql import SparkSession
from s3_server import ACCESS_KEY, REGION, SECRET_KEY

from lakedex import Table, configure_spark, register_catalog

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.timeout(600)]

# In place of the whole SDK, of 690 MB, its parts for S3, of the release that this Hadoop was built with.
HADOOP, SDK = "3.5.0", "2.35.4"
PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
JARS = [f"org.apache.hadoop:hadoop-aws:{HADOOP}", *(f"software.amazon.awssdk:{part}:{SDK}" for part in PARTS)]
IVY = os.environ.get("LAKEDEX_IVY") or str(Path(__file__).parents[2] / ".cache" / "ivy")


@pytest.fixture(scope="module")
def spark(running_proxy: FaultProxy) -> Iterator[SparkSession]:
    hadoop = {
        "endpoint": running_proxy.url,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakedex-s3")
    for key, value in {
        "spark.jars.packages": ",".join(JARS),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.jars.ivy": IVY,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in hadoop.items()},
    }.items():
        builder = builder.config(key, value)
    session = configure_spark(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def numbers(frame: Any) -> list[int]:
    return sorted(row[0] for row in frame.select("v").collect())


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_table(spark: SparkSession, proxy: FaultProxy, scheme: str) -> None:
    """Written by tasks on executors, read by each way that a frame has; nothing but the session has options."""
    path = f"{scheme}://lake/{uuid.uuid4().hex}/trips"
    rows = spark.range(200).selectExpr("concat('k', id) id", "cast(id % 2 as string) city", "cast(id as int) v")
    table = Table.create(path, rows.schema, spark=spark, record_key="id", partition_by="city")
    assert table.upsert(rows).inserted == 200
    assert table.upsert(rows.where("v < 20").selectExpr("id", "city", "v + 1000 v")).updated == 20
    assert table.delete(where="v = 199").deleted == 1
    wanted = sorted([*range(20, 199), *range(1000, 1020)])
    assert numbers(table.to_df()) == wanted
    assert numbers(table.to_df().where("city = '1' and v >= 1000")) == [*range(1001, 1020, 2)]
    assert proxy.counts("aws-sdk-java").total() > 0
    table.create_view("trips")
    assert spark.sql("select max(v) from trips").collect()[0][0] == 1019
    assert numbers(table.scan("v >= 1015").to_spark()) == [*range(1015, 1020)]
    assert table.scan("v >= 1015").to_arrow().num_rows == 5
    table.indexes.create("bitmap", ["city"])
    assert table.scan("city = '0'").count() == 100
    assert Table.is_table(path, spark=spark) and table.maintenance.validate().ok


def test_sql(spark: SparkSession, options: dict[str, str]) -> None:
    """A catalog, with options of its own or those of the session."""
    lake = f"s3://lake/{uuid.uuid4().hex}"
    for name, own in (("lake", None), ("lake2", options)):
        register_catalog(spark, name, lake, storage_options=own)
    spark.sql("create table lake.trips (id string, city string, v int) tblproperties (primaryKey = 'id')")
    spark.sql("insert into lake.trips values ('a', 'x', 1), ('b', 'y', 2)")
    spark.sql(
        "merge into lake2.trips t using (select 'b' id, 5 v) s on t.id = s.id when matched then update set v = s.v"
    )
    assert [row.v for row in spark.sql("select v from lake.trips where v > 1").collect()] == [5]
    assert [row.tableName for row in spark.sql("show tables in lake2").collect()] == ["trips"]
    spark.sql("drop table lake.trips")
    assert spark.sql("show tables in lake").collect() == []


def test_the_data_source(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    """It has no session: options that begin with ``storage.``, or the environment."""
    path = f"s3a://lake/{uuid.uuid4().hex}"
    own = {f"storage.{name}": value for name, value in options.items()}
    rows = spark.range(10).selectExpr("concat('k', id) id", "cast(id as int) v")
    rows.write.format("lakedex").options(**own).option("primaryKey", "id").mode("append").save(path)
    frame = spark.read.format("lakedex").options(**own).load(path)
    assert numbers(frame) == [*range(10)]
    assert SECRET_KEY not in frame.schema.json()
    query = spark.readStream.format("lakedex").options(**own).load(path).writeStream.format("memory").queryName("got")
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert numbers(spark.table("got")) == [*range(10)]
