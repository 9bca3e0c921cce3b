"""Temporary views and catalog names of tables that this process knows, so that its own writes refresh them.

A view is pinned to an instant. From Spark 4.1 on so is a catalog's table that is cached (``CACHE TABLE``): its name
means the cached state until a write of Spark's own refreshes it. Before, a name means the newest state, and rows cached
of another one are not used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from lakedex.errors import InvalidInputError
from lakedex.spark.session import is_connect

__all__ = ["create_view", "name_table", "refresh_view", "refresh_views_of"]

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


def refresh_view(spark: SparkSession, name: str, base_path: str) -> None:
    """Point a view to the table's newest commit.

    Raises:
        InvalidInputError: this session made no such view of the table.
    """
    known = _views(spark).made
    if name not in known or known[name][0] != base_path:
        own = ", ".join(sorted(view for view, (path, _) in known.items() if path == base_path)) or "none"
        raise InvalidInputError(f"{name!r} is no view that this session made of {base_path}; there are: {own}")
    known[name][1]().createOrReplaceTempView(name)


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
        if spark.catalog.tableExists(name):
            spark.catalog.refreshTable(name)
        else:
            del known.resolved[name]


def _caches_anything(spark: SparkSession) -> bool:
    return not is_connect(spark) and not spark._jsparkSession.sharedState().cacheManager().isEmpty()


def _replace(spark: SparkSession, name: str, make: MakeFrame, *, cached: bool) -> None:
    """Replace a view; Spark forgets what it cached of the old one."""
    level = spark.table(name).storageLevel if cached else None
    make().createOrReplaceTempView(name)
    if level is not None and (level.useMemory or level.useDisk):
        spark.catalog.cacheTable(name, level)
