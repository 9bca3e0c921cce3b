"""``Scan``: a lazy, immutable question to a table. Planning and reading happen when an answer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakedex.arrow_frames import run_threads
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr import columns_of, filter_rows, parse_predicate
from lakedex.expr.nodes import Predicate
from lakedex.io.storage import Storage
from lakedex.layout.base_file import iter_base_file, read_footer
from lakedex.layout.conform import conform_stored
from lakedex.layout.file_slice import FileSlice
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.merge_read import MergeSettings, iter_merged_slice
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import plan_scan, read_columns
from lakedex.types import RECORD_KEY

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Scan"]

FrameReader = Callable[[Snapshot, ScanPlan, str | None, Sequence[str] | None], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Rows of a table under a condition.

    Attributes:
        snapshot: the table, pinned when the scan was made.
        where: a Spark SQL boolean expression; None for all rows.
        columns: columns of the result; None for all, meta columns included.
        skipping: False reads all files.
        case_sensitive, timezone: the session's rules for names and timestamp literals.
        threads: files read at once.
        to_frame: makes a DataFrame of a plan; None without Spark.
    """

    snapshot: Snapshot
    where: str | None = None
    columns: tuple[str, ...] | None = None
    skipping: bool = True
    case_sensitive: bool = False
    timezone: str = "UTC"
    threads: int = 4
    to_frame: FrameReader | None = field(default=None, repr=False)

    def filter(self, where: str) -> Scan:
        """The scan with one more condition."""
        return replace(self, where=where if self.where is None else f"({self.where}) AND ({where})")

    def select(self, *columns: str) -> Scan:
        """The scan with other columns."""
        return replace(self, columns=columns)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        whole = read_columns(self.snapshot.schema)
        if self.columns is None:
            return whole
        return pa.schema([whole.field(self._spelling(name, whole)) for name in self.columns])

    def _spelling(self, name: str, schema: pa.Schema) -> str:
        if name in schema.names:
            return name
        near = [known for known in schema.names if known.lower() == name.lower()]
        if near and not self.case_sensitive:
            return str(near[0])
        raise InvalidInputError(
            f"table {self.snapshot.config.name} has no column {name!r}: {', '.join(schema.names)}", column=name
        )

    def _predicate(self) -> Predicate | None:
        if self.where is None:
            return None
        schema = read_columns(self.snapshot.schema)
        return parse_predicate(self.where, schema, case_sensitive=self.case_sensitive, timezone=self.timezone)

    def plan(self) -> ScanPlan:
        """Which files are needed, and why."""
        return self._planned(self._predicate())

    def _planned(self, predicate: Predicate | None) -> ScanPlan:
        return plan_scan(self.snapshot, predicate, skipping=self.skipping)

    def explain(self) -> ScanPlan:
        """The plan; it prints as a table of what each index did."""
        return self.plan()

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table. Only needed columns of kept files are read, in threads.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.
        """
        predicate, schema = self._predicate(), self.schema
        needed = self._needed(schema, predicate)
        slices = self._planned(predicate).slices
        task = _ReadSlice(self._reader(slices), schema, predicate, needed)
        tables = run_threads(task, slices, self.threads)
        return pa.concat_tables([schema.empty_table(), *tables])

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_spark(self) -> Any:
        """The rows as a Spark DataFrame: planned here, kept files read by Spark, the condition applied again.

        Raises:
            UnsupportedFeatureError: the table was opened without Spark.
        """
        if self.to_frame is None:
            raise UnsupportedFeatureError(
                "the table was opened without Spark; open it with Table.for_path(spark, path)", feature="to_spark"
            )
        names = None if self.columns is None else tuple(self.schema.names)
        return self.to_frame(self.snapshot, self.plan(), self.where, names)

    def count(self) -> int:
        """Number of rows. Without a condition only footers are read."""
        predicate = self._predicate()
        slices = self._planned(predicate).slices
        reader = self._reader(slices)
        if predicate is None:
            return sum(run_threads(_CountRows(reader), slices, self.threads))
        needed = self._needed(pa.schema([]), predicate)
        return sum(run_threads(_CountMatching(reader, predicate, needed), slices, self.threads))

    def _reader(self, slices: Sequence[FileSlice]) -> _SliceReader:
        merge = MergeSettings.of(self.snapshot) if any(item.log_files for item in slices) else None
        return _SliceReader(self.snapshot.storage, self.snapshot.base_path, merge)

    def _needed(self, schema: pa.Schema, predicate: Predicate | None) -> pa.Schema:
        """Columns to read: those of the result and those of the condition."""
        whole = read_columns(self.snapshot.schema)
        wanted = set(schema.names)
        if predicate is not None:
            wanted |= {column.path[0] for column in columns_of(predicate)}
        return pa.schema([column for column in whole if column.name in wanted])

    def __str__(self) -> str:
        return str(self.plan())

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


@dataclass(frozen=True, slots=True)
class _SliceReader:
    """Batches of one slice."""

    storage: Storage
    base_path: str
    merge: MergeSettings | None

    def rows(self, item: FileSlice, needed: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self.merge is not None and item.log_files:
            yield from iter_merged_slice(self.storage, self.base_path, item, needed, self.merge)
        elif item.base_file is not None:
            for stored in iter_base_file(
                self.storage, f"{self.base_path}/{item.base_file.relative_path}", needed.names
            ):
                yield conform_stored(stored, needed)


@dataclass(frozen=True, slots=True)
class _CountRows:
    reader: _SliceReader

    def __call__(self, item: FileSlice) -> int:
        if item.base_file is not None and not item.log_files:
            path = f"{self.reader.base_path}/{item.base_file.relative_path}"
            return read_footer(self.reader.storage, path).rows
        key = pa.schema([(RECORD_KEY, pa.string())])
        return sum(batch.num_rows for batch in self.reader.rows(item, key))


@dataclass(frozen=True, slots=True)
class _CountMatching:
    """How many rows of one slice match. Memory: one batch of the condition's columns, and the slice's log records."""

    reader: _SliceReader
    predicate: Predicate
    needed: pa.Schema

    def __call__(self, item: FileSlice) -> int:
        masks = (filter_rows(self.predicate, batch) for batch in self.reader.rows(item, self.needed))
        return sum(mask.true_count for mask in masks)


@dataclass(frozen=True, slots=True)
class _ReadSlice:
    """Matching rows of one slice. Memory: its matching rows, one batch, and its log records."""

    reader: _SliceReader
    schema: pa.Schema
    predicate: Predicate | None
    needed: pa.Schema

    def __call__(self, item: FileSlice) -> pa.Table:
        return pa.Table.from_batches(list(self._batches(item)), self.schema)

    def _batches(self, item: FileSlice) -> Iterator[pa.RecordBatch]:
        for batch in self.reader.rows(item, self.needed):
            matching = batch
            if self.predicate is not None:
                matching = batch.filter(filter_rows(self.predicate, batch))
            yield matching.select(self.schema.names)
