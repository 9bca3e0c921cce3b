"""One Spark Connect server of this machine for all tests here. A process has a classic session or this, never both."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakedex.spark.session import configure_spark


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but not those that PySpark raises about its own dependencies and files."""
    for line in (
        "ignore:PySpark does not yet fully support pandas:FutureWarning",
        "ignore:unclosed:ResourceWarning",
    ):
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["TZ"] = "UTC"
    builder = (
        SparkSession.builder.remote("local[2]")
        .appName("lakedex-connect-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.log.level", "ERROR")
    )
    session = configure_spark(builder).getOrCreate()
    yield session
    session.stop()
