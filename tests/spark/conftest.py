"""One small Spark session for all tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

from lakedex.spark.session import configure_spark

MASTER = "local[2, 2]" if pyspark_version.startswith("3.") else "local[2]"
"""After a task whose JVM side failed, PySpark 3.5 may hand the next task a worker with a closed socket. A cluster tries
that task again, and so do these tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but not those that PySpark raises about its own dependencies and files."""
    for line in (
        "ignore:PySpark does not yet fully support pandas:FutureWarning",
        "ignore:distutils Version classes are deprecated:DeprecationWarning",
        "ignore:unclosed:ResourceWarning",
    ):
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["TZ"] = "UTC"
    builder = (
        SparkSession.builder.master(MASTER)
        .appName("lakedex-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.log.level", "ERROR")
    )
    session = configure_spark(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
