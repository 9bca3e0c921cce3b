"""DataFrames of a table: one whose files are planned anew for every query, and one of a finished plan."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakedex.errors import LakedexError
from lakedex.expr import columns_of, parse_filter_or_unknown, parse_predicate
from lakedex.expr.nodes import Predicate, all_of
from lakedex.expr.terms import unknown_texts
from lakedex.index.bitmap.selection import RowSelection
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.generations import physical_schemas
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import plan_scan, read_columns
from lakedex.spark.file_index import Generation, PartitionColumns, file_index_frame
from lakedex.spark.jvm import FileStatuses
from lakedex.spark.partitions import FolderValues, folder_values
from lakedex.spark.reader import read_files
from lakedex.spark.schema import arrow_to_spark, quoted
from lakedex.spark.sliced import is_read_in_python, sliced_frame
from lakedex.timeline.instant import instant_to_epoch_ms

__all__ = ["TableFrames", "planned_frame", "table_frame"]

FEW_ROWS = 20
"""One row in so many of a file is few."""
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
        return all_of(parsed)


@dataclass(slots=True)
class _Group:
    """Files of one physical schema, whose partition columns are known or not."""

    schema: pa.Schema
    folders: FolderValues | None
    files: list[BaseFile] = field(default_factory=list)


def table_frame(spark: SparkSession, snapshot: Snapshot, *, case_sensitive: bool = False) -> DataFrame:
    """A DataFrame of a snapshot; each filter put on it prunes files by the indexes.

    Slices with log files are merged in Python. No filter reaches them before that: what the base file alone holds says
    nothing about the merged rows.
    """
    slices = snapshot.slices()
    merged = [item for item in slices if is_read_in_python(item, snapshot.schema)]
    frames = [] if merged and len(merged) == len(slices) else [_indexed_frame(spark, snapshot, case_sensitive)]
    if merged:
        frames.append(sliced_frame(spark, snapshot, merged, read_columns(snapshot.schema)))
    return reduce(DataFrame.unionAll, frames)


def _indexed_frame(spark: SparkSession, snapshot: Snapshot, case_sensitive: bool) -> DataFrame:
    """The slices without log files, read by Spark."""
    frames = TableFrames(snapshot, case_sensitive)
    wanted = arrow_to_spark(read_columns(snapshot.schema))
    generations = [_generation(frames, group, wanted) for group in _groups(snapshot)]
    when = f"{snapshot.instant}+{snapshot.last_change}"
    kind = ",read_optimized" if snapshot.read_optimized else ""
    identity = f"lakedex[{snapshot.storage.scheme}:{snapshot.base_path}@{when},case={case_sensitive}{kind}]"
    return file_index_frame(
        spark, identity=identity, root=snapshot.base_path, table_schema=wanted, generations=generations
    )


def _groups(snapshot: Snapshot) -> list[_Group]:
    """Files by physical schema, and by whether their folder tells the values of the partition columns."""
    bases = _plain_files(snapshot.slices())
    paths = sorted({base.partition for base in bases})
    known = folder_values(snapshot.config, snapshot.schema, paths)
    exact = set() if known is None else set(known.paths)
    # One schema is the same object for all files of a commit.
    schemas = physical_schemas(snapshot, bases)
    names = {number: str(schema) for number, schema in {id(schema): schema for schema in schemas}.items()}
    groups: dict[tuple[str, bool], _Group] = {}
    for base, schema in zip(bases, schemas, strict=True):
        is_exact = base.partition in exact
        key = (names[id(schema)], is_exact)
        if key not in groups:
            groups[key] = _Group(schema, known if is_exact else None)
        groups[key].files.append(base)
    return list(groups.values()) or [_Group(read_columns(snapshot.schema), None)]


def _plain_files(slices: Sequence[FileSlice]) -> list[BaseFile]:
    return [item.base_file for item in slices if item.base_file is not None and not item.log_files]


def _generation(frames: TableFrames, group: _Group, wanted: StructType) -> Generation:
    snapshot = frames.snapshot
    found = arrow_to_spark(group.schema)
    files = sorted(group.files, key=lambda base: (base.partition, base.name))
    places = {(base.partition, base.name): place for place, base in enumerate(files)}

    def plan(filters: list[str]) -> npt.NDArray[np.int64]:
        kept = (places.get((base.partition, base.name)) for base in frames.plan(filters).files)
        return np.array(sorted(place for place in kept if place is not None), dtype=np.int64)

    partitions = None
    if group.folders is not None:
        used = {base.partition for base in files}
        rows = pa.array([path in used for path in group.folders.paths])
        numbers = {path: number for number, path in enumerate(path for path in group.folders.paths if path in used)}
        columns = group.folders.values
        partitions = PartitionColumns(
            schema=StructType([wanted[name] for name in columns.column_names]),
            values=columns.filter(rows),
            of_file=np.fromiter((numbers[base.partition] for base in files), np.int64, len(files)),
        )
        # These columns come from the folder, in the type that the table has now.
        found = StructType([wanted[f.name] if f.name in columns.column_names else f for f in found.fields])
    # A base file never changes, so its instant serves as its modification time.
    zone = snapshot.config.timezone
    times = {instant: instant_to_epoch_ms(instant, zone) for instant in {base.instant for base in files}}
    statuses = FileStatuses.of(
        (f"{snapshot.base_path}/{base.relative_path}" for base in files),
        (base.size for base in files),
        (times[base.instant] for base in files),
    )
    return Generation(physical_schema=found, files=statuses, plan=plan, partitions=partitions)


def planned_frame(
    spark: SparkSession, snapshot: Snapshot, plan: ScanPlan, where: str | None, columns: Sequence[str] | None
) -> DataFrame:
    """The rows of a plan's slices, the condition applied to them.

    Slices with log files are read in Python, and so are those of which the plan selects few rows.
    """
    whole = read_columns(snapshot.schema)
    sliced = [
        item
        for item in plan.slices
        if is_read_in_python(item, snapshot.schema) or _few_rows(plan.selections.get(item.name))
    ]
    own = {item.name for item in sliced}
    bases = _plain_files([item for item in plan.slices if item.name not in own])
    frames = []
    if bases or not sliced:
        files = [
            (f"{snapshot.base_path}/{base.relative_path}", arrow_to_spark(schema))
            for base, schema in zip(bases, physical_schemas(snapshot, bases), strict=True)
        ]
        frames.append(read_files(spark, files, arrow_to_spark(whole)))
    if sliced:
        needed = whole if columns is None else _needed(whole, where, columns)
        names = [quoted(name) for name in needed.names]
        frames = [frame.select(*names) for frame in frames]
        frames.append(sliced_frame(spark, snapshot, sliced, needed, plan.selections))
    frame = reduce(DataFrame.unionAll, frames)
    if where is not None:
        frame = frame.where(where)
    return frame if columns is None else frame.select(*(quoted(name) for name in columns))


def _few_rows(selection: RowSelection | None) -> bool:
    """Whether reading just the selected rows beats Spark's reader, which takes whole files here."""
    if selection is None:
        return False
    kept = sum(selection.groups[number].size for number in selection.kept_groups())
    rows = sum(group.rows for group in selection.groups)
    return 2 * kept <= sum(group.size for group in selection.groups) or FEW_ROWS * selection.count <= rows


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
