"""File slices with log files as a DataFrame: each is one task that merges it in Python, on Arrow batches.

Works on every session, Spark Connect too: the slices travel in the task's closure, not as rows, and only their
descriptions do. Spark sees no files here, so it prunes neither rows nor columns: whoever plans leaves out slices, and
names the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakedex.arrow_frames import normal_schema
from lakedex.io.storage import Storage
from lakedex.layout.file_slice import FileSlice
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.merge_read import MergeSettings, iter_merged_slice
from lakedex.spark.engine import SparkEngine, SparkFrame

__all__ = ["merged_frame"]

MAX_TASKS = 10_000
_NUMBERS = pa.schema([pa.field("id", pa.int64(), False)])


def merged_frame(spark: SparkSession, snapshot: Snapshot, slices: Sequence[FileSlice], needed: pa.Schema) -> DataFrame:
    """The rows of some slices of a snapshot, log records merged in.

    Args:
        spark: A classic or Connect session.
        snapshot: The table.
        slices: At least one.
        needed: Columns that come out.

    Raises:
        UnsupportedFeatureError: Log records are merged in a way that lakedex does not know.
    """
    task = _MergeSlices(snapshot.storage, snapshot.base_path, tuple(slices), needed, MergeSettings.of(snapshot))
    numbers = spark.range(0, len(slices), 1, min(len(slices), MAX_TASKS))
    frame = SparkEngine(spark).map(SparkFrame(numbers, _NUMBERS), task)
    if not isinstance(frame, SparkFrame):
        raise TypeError(f"the Spark engine answered with a {type(frame).__name__}")
    return frame.df


@dataclass(frozen=True, slots=True)
class _MergeSlices:
    """Merges the slices whose numbers come in. Memory: the log records of one slice, and a batch of its base file."""

    storage: Storage
    base_path: str
    slices: tuple[FileSlice, ...]
    needed: pa.Schema
    merge: MergeSettings

    @property
    def schema(self) -> pa.Schema:
        """Types that Spark knows."""
        return normal_schema(self.needed)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = self.slices[number]
                yield from iter_merged_slice(self.storage, self.base_path, item, self.needed, self.merge)
