"""DataFrames of a table: one whose files are planned anew for every query, and one of a finished plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakedex.expr import parse_filter_or_unknown
from lakedex.expr.nodes import And, Predicate
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.generations import physical_schemas
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import plan_scan, read_columns
from lakedex.spark.file_index import FileEntry, Generation, file_index_frame
from lakedex.spark.reader import read_files
from lakedex.spark.schema import arrow_to_spark
from lakedex.timeline.instant import instant_to_epoch_ms

__all__ = ["TableFrames", "planned_frame", "table_frame"]

KEPT_PLANS = 32
"""Plans remembered of a frame: Spark asks several times in one query."""


@dataclass(slots=True)
class TableFrames:
    """Plans the queries of one pinned snapshot. Called from many threads."""

    snapshot: Snapshot
    case_sensitive: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _plans: dict[tuple[str, ...], ScanPlan] = field(default_factory=dict)

    def plan(self, filters: Sequence[str]) -> ScanPlan:
        """The plan under filters that Spark printed. They hold together; what cannot be read keeps all files."""
        key = tuple(filters)
        with self._lock:
            if key not in self._plans:
                while len(self._plans) >= KEPT_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = plan_scan(self.snapshot, self._predicate(key))
            return self._plans[key]

    def _predicate(self, filters: Sequence[str]) -> Predicate | None:
        schema = read_columns(self.snapshot.schema)
        # Spark prints timestamps in UTC here, whatever the session's zone is.
        parsed = tuple(
            parse_filter_or_unknown(text, schema, case_sensitive=self.case_sensitive, timezone="UTC")
            for text in filters
        )
        return None if not parsed else parsed[0] if len(parsed) == 1 else And(parsed)


def _entry(snapshot: Snapshot, base: BaseFile) -> FileEntry:
    # A base file never changes, so its instant serves as its modification time.
    modified = instant_to_epoch_ms(base.instant, snapshot.config.timezone)
    return FileEntry(f"{snapshot.base_path}/{base.relative_path}", base.size, modified)


def table_frame(spark: SparkSession, snapshot: Snapshot, *, case_sensitive: bool = False) -> DataFrame:
    """A DataFrame of a snapshot; each filter put on it prunes files by the indexes."""
    frames = TableFrames(snapshot, case_sensitive)
    bases = snapshot.base_files()
    schemas = physical_schemas(snapshot, bases)
    wanted = arrow_to_spark(read_columns(snapshot.schema))
    groups: dict[str, tuple[pa.Schema, set[str], int]] = {}
    for base, schema in zip(bases, schemas, strict=True):
        name = str(schema)
        _, names, size = groups.get(name, (schema, set(), 0))
        groups[name] = (schema, names | {base.name}, size + base.size)
    generations = [
        Generation(arrow_to_spark(schema), size, _planner(snapshot, frames, frozenset(names)))
        for schema, names, size in groups.values()
    ]
    if not generations:
        generations = [Generation(wanted, 0, _planner(snapshot, frames, frozenset()))]
    when = f"{snapshot.instant}+{snapshot.last_change}"
    identity = f"lakedex[{snapshot.storage.scheme}:{snapshot.base_path}@{when},case={case_sensitive}]"
    return file_index_frame(
        spark, identity=identity, root=snapshot.base_path, table_schema=wanted, generations=generations
    )


def _planner(snapshot: Snapshot, frames: TableFrames, names: frozenset[str]) -> Callable[[list[str]], list[FileEntry]]:
    def plan(filters: list[str]) -> list[FileEntry]:
        return [_entry(snapshot, base) for base in frames.plan(filters).files if base.name in names]

    return plan


def planned_frame(
    spark: SparkSession, snapshot: Snapshot, plan: ScanPlan, where: str | None, columns: Sequence[str] | None
) -> DataFrame:
    """The rows of a plan's files, the condition applied to them."""
    schemas = physical_schemas(snapshot, plan.files)
    files = [
        (f"{snapshot.base_path}/{base.relative_path}", arrow_to_spark(schema))
        for base, schema in zip(plan.files, schemas, strict=True)
    ]
    frame = read_files(spark, files, arrow_to_spark(read_columns(snapshot.schema)))
    if where is not None:
        frame = frame.where(where)
    return frame if columns is None else frame.select(*(f"`{name}`" for name in columns))
