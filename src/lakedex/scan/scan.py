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
from lakedex.layout.conform import conform
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import plan_scan, read_columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ReadFile", "Scan"]

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
        task = ReadFile(self.snapshot.storage, self.snapshot.base_path, schema, predicate, needed)
        tables = run_threads(task, self._planned(predicate).files, self.threads)
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
        files = self._planned(predicate).files
        if predicate is None:
            counts = run_threads(_CountRows(self.snapshot.storage, self.snapshot.base_path), files, self.threads)
            return sum(counts)
        needed = self._needed(pa.schema([]), predicate)
        task = _CountMatching(self.snapshot.storage, self.snapshot.base_path, predicate, needed)
        return sum(run_threads(task, files, self.threads))

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
class _CountRows:
    storage: Storage
    base_path: str

    def __call__(self, base: BaseFile) -> int:
        return read_footer(self.storage, f"{self.base_path}/{base.relative_path}").rows


@dataclass(frozen=True, slots=True)
class _CountMatching:
    """How many rows of one file match. Memory: one batch of the condition's columns."""

    storage: Storage
    base_path: str
    predicate: Predicate
    needed: pa.Schema

    def __call__(self, base: BaseFile) -> int:
        batches = iter_base_file(self.storage, f"{self.base_path}/{base.relative_path}", self.needed.names)
        masks = (filter_rows(self.predicate, conform(stored, self.needed)) for stored in batches)
        return sum(mask.true_count for mask in masks)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Matching rows of one file, for threads and for tasks of Spark. Memory: its matching rows and one batch."""

    storage: Storage
    base_path: str
    schema: pa.Schema
    predicate: Predicate | None
    needed: pa.Schema

    def __call__(self, base: BaseFile) -> pa.Table:
        """Matching rows as one table."""
        return pa.Table.from_batches(list(self.batches(base)), self.schema)

    def batches(self, base: BaseFile) -> Iterator[pa.RecordBatch]:
        """Matching rows, batch by batch. Memory: one batch."""
        path = f"{self.base_path}/{base.relative_path}"
        for stored in iter_base_file(self.storage, path, self.needed.names):
            batch = conform(stored, self.needed)
            if self.predicate is not None:
                batch = batch.filter(filter_rows(self.predicate, batch))
            yield batch.select(self.schema.names)
