"""DataFrames of tables: Spark's own scan of pruned files, joined with file slices that Python reads.

Slices are read in Python if they have log files, which Spark's reader does not merge, or if the plan wants few of their
rows, since Spark's reader takes no row positions. One task reads one slice, as Arrow batches; the slices travel in the
task's closure, so this works on Spark Connect too. Spark sees no files there and prunes neither rows nor columns.

Files that Spark reads are grouped by two properties. Values of partition columns come from the folder, unread, if the
folder's name provably gives them. And a column that was widened is narrower in older files, which PySpark 3.5 cannot
read in the table's type, so each file is read by its own schema; a column that a file lacks is null.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakedex.arrow_types import normal_schema
from lakedex.errors import LakedexError
from lakedex.expr.parser import bind, parse_filter_or_unknown
from lakedex.expr.terms import BoundPredicate
from lakedex.index.protocol import RowSelection
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.keys import partition_paths, partition_values
from lakedex.parquet.conform import conform
from lakedex.scan.plan import ScanPlan, plan_scan
from lakedex.scan.slice_reader import SliceReader, iter_slice_rows, packed
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.engine import SparkEngine, SparkFrame
from lakedex.spark.file_index import Generation, PartitionColumns, file_index_frame
from lakedex.spark.jvm import FileStatuses
from lakedex.spark.reader import read_files
from lakedex.spark.schema import arrow_to_spark, quoted
from lakedex.timeline.instant import instant_to_epoch_ms
from lakedex.timeline.table_config import TableConfig
from lakedex.types import SessionRules

__all__ = [
    "PathPartitionValues",
    "TableFrames",
    "folder_values",
    "is_read_in_python",
    "merged_slices_frame",
    "physical_schemas",
    "planned_frame",
    "table_frame",
]


MAX_TASKS = 10_000


_NUMBERS = pa.schema([pa.field("id", pa.int64(), False)])


def is_read_in_python(item: FileSlice, schema: pa.Schema) -> bool:
    """Whether Spark's reader does not give a slice's rows: there are logs to merge, or bytes that are vectors."""
    return bool(item.log_files) or any(pa.types.is_fixed_size_list(column.type) for column in schema)


def merged_slices_frame(
    spark: SparkSession,
    snapshot: Snapshot,
    slices: Sequence[FileSlice],
    needed: pa.Schema,
    selections: Mapping[str, RowSelection] | None = None,
) -> DataFrame:
    """The rows of some slices of a snapshot, log records merged in.

    Args:
        spark: A classic or Connect session.
        snapshot: The table.
        slices: At least one.
        needed: Columns that come out.
        selections: Of base files, by name, the only rows that come out.

    Raises:
        UnsupportedFeatureError: Log records are merged in a way that lakedex does not know.
    """
    names = {item.name for item in slices}
    reader = SliceReader(
        files=snapshot.files,
        table_columns=read_columns(snapshot.schema),
        names=tuple(needed.names),
        merge=MergeSettings.of(snapshot) if any(item.log_files for item in slices) else None,
        selections={name: rows for name, rows in (selections or {}).items() if name in names},
    )
    engine = SparkEngine(spark)
    # A task of Python takes a tenth of a second by itself.
    groups = tuple(packed(slices, engine.parallelism))
    task = _ReadSlices(reader, groups, normal_schema(needed))
    numbers = spark.range(0, len(groups), 1, min(len(groups), MAX_TASKS))
    frame = engine.map(SparkFrame(numbers, _NUMBERS), task)
    if not isinstance(frame, SparkFrame):
        raise TypeError(f"the Spark engine answered with a {type(frame).__name__}")
    return frame.df


@dataclass(frozen=True, slots=True)
class _ReadSlices:
    """Reads the groups whose numbers come in. Memory: the log records of one slice, and a batch of its base file."""

    reader: SliceReader
    groups: tuple[tuple[FileSlice, ...], ...]
    schema: pa.Schema
    """Types that Spark knows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in chain.from_iterable(self.groups[number] for number in batch.column(0).to_pylist()):
                for rows in iter_slice_rows(self.reader, item):
                    yield conform(rows, self.schema)


_DROPPED = "hoodie.datasource.write.drop.partition.columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPartitionValues:
    """Typed values of partition folders.

    Attributes:
        paths: folders whose values are known.
        values: their values, one row each, one column per partition field.
    """

    paths: list[str]
    values: pa.Table


def folder_values(config: TableConfig, schema: pa.Schema, paths: Sequence[str]) -> PathPartitionValues | None:
    """Values of those partition folders that give them exactly; None where no folder of the table does.

    A folder is exact if its values would be written to that very folder, and no others would. Null and the empty
    string share one, so that folder of a text column is left out; of other types it holds null.
    """
    fields = config.partition_fields
    if not fields or not config.folders_are_values or config.raw.get(_DROPPED, "").lower() == "true":
        return None
    if len(set(fields)) < len(fields) or any(
        schema.names.count(name) != 1 or not _exact(schema, name) for name in fields
    ):
        return None
    kinds = [schema.field(name).type for name in fields]
    columns, known = partition_values(paths, fields, kinds, hive_style=config.hive_style, url_encode=config.url_encode)
    back = partition_paths(columns, fields, hive_style=config.hive_style, url_encode=config.url_encode)
    same = np.array([a == b for a, b in zip(back.to_pylist(), paths, strict=True)], dtype=bool)
    chosen = pa.array(np.logical_and.reduce([same, *known]))
    table = pa.table(dict(zip(fields, columns, strict=True))).filter(chosen)
    return PathPartitionValues(paths=pa.array(paths, pa.string()).filter(chosen).to_pylist(), values=table)


def _exact(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    # Not floats (several texts for one value) and not timestamps (microseconds or text, as the writer was set).
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
    )


def physical_schemas(snapshot: Snapshot, files: Sequence[BaseFile]) -> list[pa.Schema]:
    """Schema to read each file by: the table's, with the file's own type where that differs."""
    wanted = read_columns(snapshot.schema)
    by_instant: dict[str, pa.Schema] = {}
    found = []
    for base in files:
        if base.instant not in by_instant:
            by_instant[base.instant] = _with_types_of(wanted, snapshot.stored_schema(base))
        found.append(by_instant[base.instant])
    return found


def _with_types_of(wanted: pa.Schema, stored: pa.Schema) -> pa.Schema:
    fields = []
    for column in wanted:
        position = stored.get_field_index(column.name)
        fields.append(column if position < 0 else column.with_type(stored.field(position).type))
    return pa.schema(fields)


FEW_ROWS = 20
"""A selection is small if the file has at least this many rows for each of its rows."""


CACHED_PLANS = 32
"""Plans cached for a frame: Spark asks several times in one query."""


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
                while len(self._plans) >= CACHED_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = plan_scan(self.snapshot, self._predicate(key))
            return self._plans[key]

    def _predicate(self, filters: Sequence[str]) -> BoundPredicate | None:
        schema = read_columns(self.snapshot.schema)
        # Spark prints timestamps in UTC here, whatever the session's zone is.
        rules = SessionRules(self.case_sensitive, "UTC")
        return BoundPredicate.of(*(parse_filter_or_unknown(text, schema, rules) for text in filters))


@dataclass(slots=True)
class _Group:
    """Files of one physical schema, whose partition columns are known or not."""

    schema: pa.Schema
    folders: PathPartitionValues | None
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
        frames.append(merged_slices_frame(spark, snapshot, merged, read_columns(snapshot.schema)))
    return reduce(DataFrame.unionAll, frames)


def _indexed_frame(spark: SparkSession, snapshot: Snapshot, case_sensitive: bool) -> DataFrame:
    """The slices without log files, read by Spark."""
    frames = TableFrames(snapshot, case_sensitive)
    wanted = arrow_to_spark(read_columns(snapshot.schema))
    generations = [_generation(frames, group, wanted) for group in _groups(snapshot)]
    when = f"{snapshot.instant}+{snapshot.last_completion_time}"
    kind = ",read_optimized" if snapshot.read_optimized else ""
    identity = f"lakedex[{snapshot.files.storage.scheme}:{snapshot.files}@{when},case={case_sensitive}{kind}]"
    return file_index_frame(
        spark, identity=identity, root=snapshot.files.base_path, table_schema=wanted, generations=generations
    )


def _groups(snapshot: Snapshot) -> list[_Group]:
    """Files by physical schema, and by whether their folder gives the values of the partition columns."""
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
        (snapshot.files.path(base.relative_path) for base in files),
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
            (snapshot.files.path(base.relative_path), arrow_to_spark(schema))
            for base, schema in zip(bases, physical_schemas(snapshot, bases), strict=True)
        ]
        frames.append(read_files(spark, files, arrow_to_spark(whole)))
    if sliced:
        needed = whole if columns is None else _needed(whole, where, columns)
        names = [quoted(name) for name in needed.names]
        frames = [frame.select(*names) for frame in frames]
        frames.append(merged_slices_frame(spark, snapshot, sliced, needed, plan.selections))
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
    """The result's columns and those of the condition; all columns if those are unknown."""
    wanted = set(columns)
    if where is not None:
        try:
            predicate = bind(where, whole)
        except LakedexError:
            return whole
        if predicate.unevaluable:
            return whole
        wanted |= predicate.column_names
    return pa.schema([column for column in whole if column.name in wanted])
