"""DataFrames of a table: one whose files are planned anew for every query, and one of a finished plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakedex.errors import LakedexError
from lakedex.expr import columns_of, parse_filter_or_unknown, parse_predicate
from lakedex.expr.nodes import And, Predicate
from lakedex.expr.terms import unknown_texts
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.generations import physical_schemas
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import plan_scan, read_columns
from lakedex.spark.file_index import FileEntry, Generation, file_index_frame
from lakedex.spark.merged import merged_frame
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
    """A DataFrame of a snapshot; each filter put on it prunes files by the indexes.

    Slices with log files are merged in Python. No filter reaches them before that: what the base file alone holds says
    nothing about the merged rows.
    """
    slices = snapshot.slices()
    merged = [item for item in slices if item.log_files]
    frames = [] if merged and len(merged) == len(slices) else [_indexed_frame(spark, snapshot, case_sensitive)]
    if merged:
        frames.append(merged_frame(spark, snapshot, merged, read_columns(snapshot.schema)))
    return reduce(DataFrame.unionAll, frames)


def _indexed_frame(spark: SparkSession, snapshot: Snapshot, case_sensitive: bool) -> DataFrame:
    """The slices without log files, read by Spark."""
    frames = TableFrames(snapshot, case_sensitive)
    bases = _plain_files(snapshot.slices())
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
    kind = ",read_optimized" if snapshot.read_optimized else ""
    identity = f"lakedex[{snapshot.storage.scheme}:{snapshot.base_path}@{when},case={case_sensitive}{kind}]"
    return file_index_frame(
        spark, identity=identity, root=snapshot.base_path, table_schema=wanted, generations=generations
    )


def _plain_files(slices: Sequence[FileSlice]) -> list[BaseFile]:
    return [item.base_file for item in slices if item.base_file is not None and not item.log_files]


def _planner(snapshot: Snapshot, frames: TableFrames, names: frozenset[str]) -> Callable[[list[str]], list[FileEntry]]:
    def plan(filters: list[str]) -> list[FileEntry]:
        return [_entry(snapshot, base) for base in frames.plan(filters).files if base.name in names]

    return plan


def planned_frame(
    spark: SparkSession, snapshot: Snapshot, plan: ScanPlan, where: str | None, columns: Sequence[str] | None
) -> DataFrame:
    """The rows of a plan's slices, the condition applied to them."""
    whole = read_columns(snapshot.schema)
    bases = _plain_files(plan.slices)
    merged = [item for item in plan.slices if item.log_files]
    frames = []
    if bases or not merged:
        files = [
            (f"{snapshot.base_path}/{base.relative_path}", arrow_to_spark(schema))
            for base, schema in zip(bases, physical_schemas(snapshot, bases), strict=True)
        ]
        frames.append(read_files(spark, files, arrow_to_spark(whole)))
    if merged:
        needed = whole if columns is None else _needed(whole, where, columns)
        names = [f"`{name}`" for name in needed.names]
        frames = [frame.select(*names) for frame in frames]
        frames.append(merged_frame(spark, snapshot, merged, needed))
    frame = reduce(DataFrame.unionAll, frames)
    if where is not None:
        frame = frame.where(where)
    return frame if columns is None else frame.select(*(f"`{name}`" for name in columns))


def _needed(whole: pa.Schema, where: str | None, columns: Sequence[str]) -> pa.Schema:
    """The result's columns and those of the condition; all of them where it cannot be told."""
    wanted = set(columns)
    if where is not None:
        try:
            predicate = parse_predicate(where, whole)
        except LakedexError:
            return whole
        if unknown_texts(predicate):
            return whole
        wanted |= {column.path[0] for column in columns_of(predicate)}
    return pa.schema([column for column in whole if column.name in wanted])
