"""Which engine works on a table: Spark with a session, threads without.

The one place that imports an engine late, so that ``import lakedex`` needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import Engine
from lakedex.errors import InvalidInputError, MissingDependencyError, MissingEngineError
from lakedex.expr import evaluate_scalar, parse_scalar
from lakedex.local.engine import LocalEngine
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import read_columns
from lakedex.scan.scan import Scan, semi_joined
from lakedex.types import RECORD_KEY
from lakedex.write.merge_into import MergeTask
from lakedex.write.merge_rows import merge_rows
from lakedex.write.prepare import KEY

__all__ = ["Session", "open_session"]


class Session(Protocol):
    """What differs between the engines: how rows come back to the user."""

    engine: Engine
    case_sensitive: bool
    timezone: str

    @property
    def to_frame(self) -> Callable[[Snapshot, ScanPlan, str | None, Sequence[str] | None], Any] | None:
        """Makes a DataFrame of a plan."""

    def keys(self, frame: Any, names: Sequence[str], limit: int) -> pa.Table | None:
        """The distinct keys of a frame of the engine, at most ``limit``; None for anything else."""

    def schema(self, declared: Any) -> pa.Schema | None:
        """A schema that the user gave, as Arrow."""

    def require_same_reading(self, text: str) -> None:
        """Refuse a condition that the engine's own parser may read otherwise than lakedex's."""

    def is_frame(self, data: Any) -> bool:
        """Whether ``data`` is rows rather than a condition."""

    def frame(self, snapshot: Snapshot) -> Any:
        """All rows of a snapshot."""

    def matching(self, snapshot: Snapshot, where: Any, columns: Sequence[str] | None) -> Any:
        """Rows under a condition, as a frame that the engine can write."""

    def changed(self, snapshot: Snapshot, where: Any, assignments: Mapping[str, str]) -> Any:
        """Rows under a condition with some columns computed anew."""

    def merged(self, task: MergeTask) -> Any:
        """What a merge does: a frame with a row for each row that it changes."""

    def create_view(self, name: str, base_path: str, make: Callable[[], Any]) -> None:
        """Make a view."""

    def refresh_view(self, name: str, base_path: str) -> None:
        """Refresh one view."""

    def refresh_views(self, base_path: str) -> None:
        """Refresh the session's views of a table."""


def open_session(spark: Any) -> Session:
    """The session for a Spark session, or the local one for None.

    Raises:
        MissingDependencyError: Spark is asked for and not installed.
    """
    if spark is None:
        return LocalSession()
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(
            f"the first argument is a SparkSession (or None for the local engine), not {type(spark).__name__}"
        )
    try:
        module = import_module("lakedex.spark.table_session")
    except ImportError as error:
        raise MissingDependencyError("Spark is needed: pip install 'lakedex[spark]'", extra="spark") from error
    session: Session = module.SparkTableSession(spark)
    return session


@dataclass(slots=True)
class LocalSession:
    """Rows as Arrow tables."""

    engine: Engine = field(default_factory=LocalEngine)
    case_sensitive: bool = False
    timezone: str = "UTC"

    @property
    def to_frame(self) -> None:
        """No DataFrames here."""
        return

    def keys(self, frame: Any, names: Sequence[str], limit: int) -> None:
        """No DataFrames here."""
        return

    def schema(self, declared: Any) -> pa.Schema | None:
        """See :class:`Session`."""
        return None if declared is None else self.engine.schema_of(_empty(declared))

    def require_same_reading(self, text: str) -> None:
        """There is one parser here."""

    def is_frame(self, data: Any) -> bool:
        """See :class:`Session`."""
        return not isinstance(data, str)

    def frame(self, snapshot: Snapshot) -> Any:
        """See :class:`Session`."""
        return Scan(snapshot=snapshot).to_arrow()

    def matching(self, snapshot: Snapshot, where: Any, columns: Sequence[str] | None) -> Any:
        """See :class:`Session`."""
        return Scan(snapshot=snapshot, where=where, columns=None if columns is None else tuple(columns)).to_arrow()

    def changed(self, snapshot: Snapshot, where: Any, assignments: Mapping[str, str]) -> Any:
        """See :class:`Session`."""
        known: dict[str, Any] = {"case_sensitive": self.case_sensitive, "timezone": self.timezone}
        rows = Scan(snapshot=snapshot, where=where, **known).to_arrow()
        schema = read_columns(snapshot.schema)
        columns = {name: rows.column(name) for name in rows.schema.names}
        for name, text in assignments.items():
            kind = schema.field(name).type
            scalar = parse_scalar(str(text), schema, **known)
            columns[name] = evaluate_scalar(scalar, rows, kind, timezone=self.timezone)
        return pa.table(columns, schema=schema)

    def merged(self, task: MergeTask) -> Any:
        """See :class:`Session`."""
        source = self.engine.collect(task.source)
        return merge_rows(
            self._target(task, source),
            source,
            task.merge,
            task.clauses,
            task.snapshot.schema,
            keyed=task.keyed,
            timezone=self.timezone,
        )

    def _target(self, task: MergeTask, source: pa.Table) -> pa.Table:
        """The stored rows that a merge may look at, file by file where only rows of the source's keys matter."""
        scan = Scan(snapshot=task.snapshot, condition=task.where)
        if not task.equal:
            return scan.to_arrow()
        if not task.keyed:
            return semi_joined(scan, source, task.equal).to_arrow()
        parts = []
        for item in task.snapshot.slices():
            part = replace(scan, snapshot=task.snapshot.with_slices([item])).to_arrow()
            parts.append(part.filter(pc.is_in(part.column(RECORD_KEY), value_set=source.column(KEY).combine_chunks())))
        return pa.concat_tables([read_columns(task.snapshot.schema).empty_table(), *parts])

    def create_view(self, name: str, base_path: str, make: Callable[[], Any]) -> None:
        """See :class:`Session`."""
        raise MissingEngineError(
            f"view {name!r}: the table was opened without Spark; open it with Table.for_path(spark, path)",
            feature="views",
        )

    def refresh_view(self, name: str, base_path: str) -> None:
        """See :class:`Session`."""
        self.create_view(name, base_path, lambda: None)

    def refresh_views(self, base_path: str) -> None:
        """There are none."""


def _empty(declared: Any) -> Any:
    return declared.empty_table() if isinstance(declared, pa.Schema) else declared
