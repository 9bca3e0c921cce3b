"""File slices that Python reads, as a DataFrame: one task a slice, on Arrow batches.

For slices with log files, which Spark's reader does not merge, and for those of which the plan wants few rows: Spark's
reader takes no row positions. Works on every session, Spark Connect too: the slices travel in the task's closure, not
as rows, and only their descriptions do. Spark sees no files here, so it prunes neither rows nor columns: whoever plans
leaves out slices, and names the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakedex.frame_input import normal_schema
from lakedex.index.bitmap.selection import RowSelection
from lakedex.layout.conform import conform
from lakedex.layout.file_slice import FileSlice
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.merge_read import MergeSettings, require_mergeable
from lakedex.scan.planner import read_columns
from lakedex.scan.slice_rows import SliceReader, iter_slice_rows
from lakedex.spark.engine import SparkEngine, SparkFrame

__all__ = ["is_read_in_python", "sliced_frame"]

MAX_TASKS = 10_000
_NUMBERS = pa.schema([pa.field("id", pa.int64(), False)])


def is_read_in_python(item: FileSlice, schema: pa.Schema) -> bool:
    """Whether Spark's reader does not give a slice's rows: there are logs to merge, or bytes that are vectors."""
    return bool(item.log_files) or any(pa.types.is_fixed_size_list(column.type) for column in schema)


def sliced_frame(
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
    require_mergeable(snapshot, slices)
    names = {item.name for item in slices}
    reader = SliceReader(
        storage=snapshot.storage,
        base_path=snapshot.base_path,
        table_columns=read_columns(snapshot.schema),
        names=tuple(needed.names),
        merge=MergeSettings.of(snapshot) if any(item.log_files for item in slices) else None,
        selections={name: rows for name, rows in (selections or {}).items() if name in names},
    )
    task = _ReadSlices(reader, tuple(slices), normal_schema(needed))
    numbers = spark.range(0, len(slices), 1, min(len(slices), MAX_TASKS))
    frame = SparkEngine(spark).map(SparkFrame(numbers, _NUMBERS), task)
    if not isinstance(frame, SparkFrame):
        raise TypeError(f"the Spark engine answered with a {type(frame).__name__}")
    return frame.df


@dataclass(frozen=True, slots=True)
class _ReadSlices:
    """Reads the slices whose numbers come in. Memory: the log records of one slice, and a batch of its base file."""

    reader: SliceReader
    slices: tuple[FileSlice, ...]
    schema: pa.Schema
    """Types that Spark knows."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in iter_slice_rows(self.reader, self.slices[number]):
                    yield conform(rows, self.schema)
