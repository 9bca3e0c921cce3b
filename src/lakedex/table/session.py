"""Engine and session of an open table, which ``Table`` and its namespaces share.

The one place that imports an engine late, so that ``import lakedex`` needs no Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, cast

from lakedex.commit.idempotency import checked_txn, find_committed_batch
from lakedex.errors import InvalidInputError, MissingDependencyError
from lakedex.local.session import LocalSession
from lakedex.options import WriteOptions, parse_options
from lakedex.reports import WriteResult
from lakedex.scan.time_travel import snapshot_at
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.types import Operation
from lakedex.write.clustering import clustered_after
from lakedex.write.session import Session

__all__ = ["AsOf", "OpenedTable", "Options", "Txn", "Where", "as_names", "open_session", "with_notes"]


AsOf = str | datetime.datetime | datetime.date | None


Options = Mapping[str, Any] | None


Txn = tuple[str, int] | None


Where = Any
"""A condition of any form that ``lakedex.expr.conditions.as_sql`` knows, or a Spark Column; None for all rows."""


R = TypeVar("R")


QUERY_TYPES = ("snapshot", "read_optimized")


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """The context and session that ``Table`` and its namespaces work with."""

    context: TableContext
    session: Session

    def parse(self, options: Options, operation: str = "", txn: Txn = None) -> WriteOptions:
        """The table's options with those of one call."""
        return replace(parse_options(self.context.options, options, operation), txn=checked_txn(txn))

    def snapshot(self, as_of: AsOf = None, query_type: str = "snapshot") -> Snapshot:
        """The table now, or as of an instant or time."""
        if query_type not in QUERY_TYPES:
            raise InvalidInputError(f"query_type {query_type!r} is none of: {', '.join(QUERY_TYPES)}")
        return snapshot_at(partial(self.context.snapshot, read_optimized=query_type == "read_optimized"), as_of)

    def refresh_views(self) -> None:
        """Point the session's views of the table to its newest commit."""
        self.session.refresh_views(self.context.files.base_path)

    def finished(self, result: WriteResult, options: WriteOptions) -> WriteResult:
        """The result of a write, once what is due after it is done and the session's views are refreshed."""
        if options.clustering.after_write:
            result = clustered_after(self.context, options, result)
        self.refresh_views()
        return replace(result, latest=result.instant or self.snapshot().instant)

    def commit(self, operation: Operation, options: WriteOptions, write: Callable[[], WriteResult]) -> WriteResult:
        """Run a write, unless its batch (``txn``) is committed already."""
        return self.finished(find_committed_batch(self.context, options, operation) or write(), options)


def with_notes(result: R, options: WriteOptions) -> R:
    """A result with the notes on its call's options before its own."""
    report = cast("Any", result)
    noted: R = replace(report, notes=(*options.notes, *report.notes))
    return noted


def as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names given as one name (commas separate several, as in Hudi's options) or as a list."""
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    return tuple(given)


def open_session(spark: Any) -> Session:
    """The session for a Spark session, or the local one for None.

    Raises:
        MissingDependencyError: Spark is asked for and not installed.
    """
    if spark is None:
        return LocalSession()
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(
            f"spark= takes a SparkSession (None selects the local engine), not {type(spark).__name__}"
        )
    try:
        module = import_module("lakedex.spark.table_session")
    except ImportError as error:
        raise MissingDependencyError("Spark is needed: pip install 'lakedex[spark]'", extra="spark") from error
    session: Session = module.SparkTableSession(spark)
    return session
