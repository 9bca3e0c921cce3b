"""Temporary views of tables: which this process made, so that its own writes can refresh them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from lakedex.errors import InvalidInputError

__all__ = ["create_view", "refresh_view", "refresh_views_of"]

MakeFrame = Callable[[], DataFrame]


@dataclass(slots=True)
class _Views:
    """Views of one session: name → (table path, how its frame is made)."""

    made: dict[str, tuple[str, MakeFrame]] = field(default_factory=dict)


_sessions: WeakKeyDictionary[SparkSession, _Views] = WeakKeyDictionary()
_lock = threading.Lock()


def _views(spark: SparkSession) -> _Views:
    with _lock:
        return _sessions.setdefault(spark, _Views())


def create_view(spark: SparkSession, name: str, base_path: str, make: MakeFrame) -> None:
    """Make (or replace) a temporary view of a table."""
    make().createOrReplaceTempView(name)
    _views(spark).made[name] = (base_path, make)


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
    """Refresh all views of a table that the session made and that are still there."""
    known = _views(spark).made
    for name, (path, make) in list(known.items()):
        if path != base_path:
            continue
        if spark.catalog.tableExists(name):
            make().createOrReplaceTempView(name)
        else:
            del known[name]
