"""The tasks that write clustered files: sorted rows, or the row groups of several files one after the other.

A row keeps its commit time, sequence number, key and partition path; the file's name is the new one. Each index's
collector sees the rows in the same pass. Row groups of plain base files are decoded for the collectors, but their
encoded column chunks are copied (:mod:`lakedex.parquet.chunk_reuse`); small ones are joined and encoded again.

Memory: one batch and one row group where files are joined; all rows of one new file where rows are sorted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from lakedex.codec.bloom import BloomSizing
from lakedex.engine import current_task
from lakedex.index.written_file import Collector, FileCollector, WrittenFile
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.names import BaseFileName
from lakedex.parquet.base_file_reader import ExistingBaseFile, open_for_merge
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter
from lakedex.parquet.conform import conform_stored
from lakedex.scan.slice_reader import SliceReader, iter_slice_rows
from lakedex.tagging.keyed_rows import GROUP
from lakedex.types import FILE_NAME, RECORD_KEY
from lakedex.write.clustering_order import RowOrder, Sample
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_tasks import WriteFileGroups
from lakedex.write.file_group_writer import FileOutput, IncomingRecords

__all__ = ["CURVE", "ClusteredFileWriter", "JoinSlices", "ReadOrderedRows", "SampleSlice"]


CURVE = "__lakedex_curve"
"""Column of a row's place on a z-order curve."""


_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class SampleSlice:
    """Task: some rows of a slice, evenly spread, and how many it has. ``reader`` reads the order's columns."""

    reader: SliceReader
    most: int

    def __call__(self, item: FileSlice) -> Sample:
        """Read those columns of the slice."""
        schema = self.reader.schema
        table = pa.Table.from_batches(iter_slice_rows(self.reader, item), schema)
        places = np.unique(np.linspace(0, max(table.num_rows - 1, 0), min(self.most, table.num_rows)).astype(np.int64))
        taken = table.take(pa.array(places)).combine_chunks()
        batches = taken.to_batches()
        return Sample(table.num_rows, batches[0] if batches else pa.RecordBatch.from_pylist([], schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrderedRows:
    """Batch map from numbers of slices to their rows: number of the new file, place on the curve, then all columns.

    Attributes:
        reader: reads all columns.
        slices: the slices, by number.
        order_of: the number of each slice's order.
        orders: an order, and the number of its first file, for each group of the plan.
    """

    reader: SliceReader
    slices: Sequence[FileSlice]
    order_of: Sequence[int]
    orders: Sequence[tuple[RowOrder, int]]

    @property
    def schema(self) -> pa.Schema:
        """File number and place on the curve, then the columns of base files."""
        return pa.schema([(GROUP, pa.int32()), (CURVE, pa.int64()), *self.reader.schema])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one task's slices."""
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                order, first = self.orders[self.order_of[number]]
                for rows in iter_slice_rows(self.reader, self.slices[number]):
                    files = pa.array(order.files(rows) + np.int32(first), pa.int32())
                    columns = [files, pa.array(order.curve(rows), pa.int64()), *rows.columns]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredFileWriter:
    """Writes the new file of a clustered group: incoming rows, then those of whole slices.

    Attributes:
        files: the table's files.
        instant: the clustering's instant.
        reader: reads all columns of slices; its schema is that of base files.
        settings: how files are written.
        slices: by file id of the new group, the slices whose rows it takes as they are.
    """

    files: TableFiles
    instant: str
    reader: SliceReader
    settings: BaseFileSettings
    slices: Mapping[str, Sequence[FileSlice]]

    @property
    def texts(self) -> set[str]:
        """No text columns come dictionary-encoded."""
        return set()

    @property
    def hashes_keys(self) -> BloomSizing | None:
        """None: keys are hashed as they are written."""
        return None

    def write(
        self,
        target: FileGroupTarget,
        records: IncomingRecords,
        collectors: Mapping[str, Collector],
        output: FileOutput,
    ) -> tuple[WrittenFile, ...]:
        """Write the group's file; none if there is no row."""
        started = time.perf_counter()
        name = str(BaseFileName(target.file_id, str(current_task()), self.instant))
        schema = self.reader.schema
        slices = self.slices.get(target.file_id, ())
        path = output.announce(target, name, "CREATE")
        writer = BaseFileWriter(
            output.files.storage,
            path,
            schema,
            self.settings,
            expected_rows=max(target.expected_rows, records.rows.num_rows, 1),
            splices=any(not item.log_files for item in slices),
        )
        collecting = {index: collector.begin(schema) for index, collector in collectors.items()}
        built = _ClusteredFile(writer, tuple(collecting.values()), schema, name, self.settings.row_group_bytes)
        try:
            if records.rows.num_rows:
                rows = records.rows.select(schema.names)
                for start in range(0, rows.num_rows, _BATCH_ROWS):
                    built.add(rows.slice(start, _BATCH_ROWS))
            for item in slices:
                self._copy(built, item)
            if not built.rows:
                writer.abort()
                return ()
            summary = writer.close()
        except BaseException:
            writer.abort()
            raise
        written = output.finished(target, name, summary).written(collecting, started)
        return (replace(written, inserted=summary.rows),)

    def _copy(self, built: _ClusteredFile, item: FileSlice) -> None:
        """Write all rows of a slice as they are."""
        if item.log_files or item.base_file is None:
            for batch in iter_slice_rows(replace(self.reader, footers=None), item):
                built.add(batch)
            return
        path = self.files.path(item.base_file.relative_path)
        with open_for_merge(self.files.storage, path, without=(FILE_NAME,), size=item.base_file.size) as stored:
            for group, batches in stored.groups():
                built.copy_group(stored, group, batches)


@dataclass(frozen=True, slots=True)
class JoinSlices:
    """Task: write one new file of whole slices, those that ``task.writer`` has for it; None if they have no row."""

    task: WriteFileGroups

    def __call__(self, target: FileGroupTarget) -> WrittenFile | None:
        """See :meth:`WriteFileGroups.rewrite`."""
        return self.task.rewrite(target, pa.RecordBatch.from_arrays([], names=[]))


@dataclass(slots=True)
class _ClusteredFile:
    """A base file that is being written.

    Attributes:
        writer: of the file.
        collectors: what indexes collect of its rows.
        schema: its columns.
        name: its name, which every row gets.
        row_group_bytes: size of a row group in memory; a larger one is not copied but split.
        rows: how many were written.
    """

    writer: BaseFileWriter
    collectors: tuple[FileCollector, ...]
    schema: pa.Schema
    name: str
    row_group_bytes: int
    rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        rows = self._named(batch)
        self._collect(rows, self.writer.write(rows))

    def copy_group(self, stored: ExistingBaseFile, group: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Write a row group of another file, its chunks copied if it is neither small nor too large."""
        if stored.chunks is None or not stored.is_large(group):
            for batch in batches:
                self.add(batch)
            return
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            waiting.append(self._named(batch))
            size += batch.nbytes
            if size > 2 * self.row_group_bytes:
                for rows in chain(waiting, batches):
                    self.add(rows)
                return
        unchanged = frozenset(self.schema.names) - {FILE_NAME}
        found = [rows for rows in waiting if rows.num_rows]
        if found:
            for rows, keys in zip(found, self.writer.write_group(found, group, unchanged, stored.chunks), strict=True):
                self._collect(rows, keys)

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the file's columns and with its name."""
        rows = conform_stored(batch, self.schema)
        names = pa.array([self.name], pa.string()).take(pa.array(np.zeros(rows.num_rows, np.int64)))
        place = self.schema.get_field_index(FILE_NAME)
        return rows.set_column(place, self.schema.field(place), names)

    def _collect(self, rows: pa.RecordBatch, keys: tuple[str, str] | None) -> None:
        self.rows += rows.num_rows
        bounds = {} if keys is None else {RECORD_KEY: keys}
        for collector in self.collectors:
            collector.add(rows, bounds)
