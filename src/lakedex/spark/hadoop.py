"""The file systems of a session's Hadoop: the URL under which Spark reads a path, and the storage options it has.

Python and Spark's JVM read files each by its own means. Python takes credentials from the storage options of a table,
by default those of the session's Hadoop (``fs.s3a.*``); the JVM takes them from its Hadoop alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakedex.errors import InvalidInputError, MissingDependencyError
from lakedex.io.store_options import HADOOP_KEYS, PROVIDERS

__all__ = ["hadoop_options", "qualified"]


_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{release}",
    "abfs": "org.apache.hadoop:hadoop-azure:{release}",
    "abfss": "org.apache.hadoop:hadoop-azure:{release}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
}


_AS_S3A = frozenset({"s3", "s3n"})


_EVERYWHERE = "s3.amazonaws.com"
"""What PySpark 3.5 sets itself (SPARK-35878), and S3A takes where nothing is set."""


_KNOWN: WeakKeyDictionary[SparkContext, dict[str, str]] = WeakKeyDictionary()
"""Schemes by which a session reads those of URLs."""


def qualified(path: str) -> str:
    """The URL under which Spark reads a path: with a scheme, and with one that its Hadoop has.

    Executors take a path without one for the cluster's default file system. ``s3://`` is read by S3A, unless
    ``fs.s3.impl`` names a file system for it, as EMR does.

    Raises:
        MissingDependencyError: the session has no class for the scheme; the message names the package.
        InvalidInputError: Hadoop has no file system for the scheme.
    """
    if path.startswith("/"):
        return f"file://{path}"
    scheme, colon, rest = path.partition("://")
    if not colon or scheme not in PROVIDERS:
        return path
    context: SparkContext | None = getattr(SparkContext, "_active_spark_context", None)
    if context is None:  # Spark Connect: its server says itself what it lacks.
        return f"s3a://{rest}" if scheme in _AS_S3A else path
    known = _KNOWN.setdefault(context, {})
    if scheme not in known:
        known[scheme] = _scheme_of(context, scheme)
    return f"{known[scheme]}://{rest}"


def _scheme_of(context: SparkContext, scheme: str) -> str:
    java: Any = context
    settings = java._jsc.hadoopConfiguration()
    if scheme in _AS_S3A and not settings.get(f"fs.{scheme}.impl"):
        scheme = "s3a"
    hadoop = java._jvm.org.apache.hadoop
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, settings)
    except Py4JJavaError as error:
        if scheme not in _PACKAGES:
            raise InvalidInputError(
                f"Spark reads no '{scheme}://' paths; give abfss://container@account.dfs.core.windows.net/… for Azure, "
                "gs:// for Google, s3a:// for S3"
            ) from error
        package = _PACKAGES[scheme].format(release=hadoop.util.VersionInfo.getVersion())
        raise MissingDependencyError(
            f"this Spark session has no file system for '{scheme}://'; add the package before it starts: "
            f".config('spark.jars.packages', '{package}')",
            extra=package,
        ) from error
    return scheme


def hadoop_options(spark: SparkSession, path: str) -> Mapping[str, str]:
    """Storage options that a session's settings have for the store of a path; empty if somebody has to look elsewhere.

    Args:
        spark: a classic or Connect session; of a Connect session those that it was given itself.
        path: a path or URL.
    """
    scheme, _, rest = path.partition("://")
    provider, authority = PROVIDERS.get(scheme.lower()), rest.partition("/")[0]
    found: dict[str, str] = {}
    if provider == "s3":
        own = {key: key.replace("fs.s3a.", f"fs.s3a.bucket.{authority}.") for key in HADOOP_KEYS}
        found = _set_of(spark, [*own, *own.values()])
        if found.get("fs.s3a.endpoint") == _EVERYWHERE:
            del found["fs.s3a.endpoint"]
        # How a store is reached means nothing without saying which, or who asks: then the environment counts whole.
        if not any(key.endswith((".access.key", ".endpoint")) for key in found):
            return {}
    elif provider == "az":
        key = f"fs.azure.account.key.{authority.partition('@')[2]}"
        if value := _set_of(spark, [key]).get(key):
            found["azure_storage_account_key"] = value
    return found


def _set_of(spark: SparkSession, keys: list[str]) -> dict[str, str]:
    """The Hadoop settings that somebody has made; Hadoop's defaults are left out."""
    context: Any = getattr(spark, "_jsc", None)
    if context is None:  # Spark Connect
        given = {key: spark.conf.get(f"spark.hadoop.{key}", None) for key in keys}
        return {key: value for key, value in given.items() if value}
    settings = context.hadoopConfiguration()
    found = {}
    for key in keys:
        sources = settings.getPropertySources(key)
        if sources is not None and any(not str(source).endswith("-default.xml") for source in sources):
            found[key] = str(settings.get(key))
    return found
