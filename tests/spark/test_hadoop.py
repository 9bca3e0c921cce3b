"""URLs that Spark is given, and storage options that a session has; this one has no S3A."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakedex.errors import InvalidInputError, MissingDependencyError
from lakedex.spark.hadoop import hadoop_options, qualified

OWN = (
    "fs.s3a.path.style.access",
    "fs.s3a.access.key",
    "fs.s3a.bucket.lake.endpoint",
    "fs.azure.account.key.me.dfs.core.windows.net",
)


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Any]:
    """The session's Hadoop settings; what a test sets is taken back."""
    found = spark.sparkContext._jsc.hadoopConfiguration()
    before = {key: found.get(key) for key in OWN}
    yield found
    for key, value in before.items():
        found.unset(key) if value is None else found.set(key, value)


def test_urls_that_spark_reads(spark: SparkSession) -> None:
    assert qualified("/data/t") == "file:///data/t"
    assert qualified("hdfs://host/t") == "hdfs://host/t"
    release = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    for url in ("s3://lake/t", "s3a://lake/t", "s3n://lake/t"):
        with pytest.raises(MissingDependencyError, match=rf"org\.apache\.hadoop:hadoop-aws:{release}'"):
            qualified(url)
    with pytest.raises(MissingDependencyError, match="gcs-connector"):
        qualified("gs://lake/t")
    with pytest.raises(InvalidInputError, match="give abfss://"):
        qualified("az://lake/t")


def test_options_that_a_session_has(spark: SparkSession, settings: Any) -> None:
    assert hadoop_options(spark, "s3://lake/t") == {}, "defaults of Hadoop do not hide the environment"
    settings.set("fs.s3a.path.style.access", "true")
    assert hadoop_options(spark, "s3://lake/t") == {}
    settings.set("fs.s3a.access.key", "key")
    settings.set("fs.s3a.bucket.lake.endpoint", "http://here")
    settings.set("fs.azure.account.key.me.dfs.core.windows.net", "secret")
    plain = {"fs.s3a.access.key": "key", "fs.s3a.path.style.access": "true"}
    assert hadoop_options(spark, "s3a://other/t") == plain
    assert hadoop_options(spark, "s3a://lake/t") == {**plain, "fs.s3a.bucket.lake.endpoint": "http://here"}
    assert hadoop_options(spark, "abfss://c@me.dfs.core.windows.net/t") == {"azure_storage_account_key": "secret"}
    assert hadoop_options(spark, "/data/t") == hadoop_options(spark, "gs://lake/t") == {}
