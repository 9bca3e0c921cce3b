"""``Scan``: a lazy, immutable question to a table. Planning and reading happen when an answer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from lakedex.arrow_frames import run_threads
from lakedex.engine import Engine
from lakedex.errors import InvalidInputError, MissingDependencyError, UnsupportedFeatureError
from lakedex.expr import parse_predicate
from lakedex.expr.nodes import Predicate
from lakedex.layout.base_file import read_footer
from lakedex.layout.file_slice import FileSlice
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.analysis import AnalyzedPlan, Measurer
from lakedex.scan.merge_read import MergeSettings
from lakedex.scan.ordered import stream_ordered
from lakedex.scan.plan import ScanPlan
from lakedex.scan.planner import plan_scan, read_columns
from lakedex.scan.slice_rows import Part, ReadCount, SliceReader, iter_slice_rows

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

__all__ = ["Scan"]

FrameReader = Callable[[Snapshot, ScanPlan, str | None, Sequence[str] | None], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Rows of a table under a condition.

    Attributes:
        snapshot: the table, pinned when the scan was made.
        where: a Spark SQL boolean expression; None for all rows.
        columns: columns of the result; None for all, meta columns included.
        max_rows: rows at most; None for all. Without Spark they are the first ones in the order of files and rows.
        skipping: False reads all files and row groups.
        verify: ``full`` reads the dropped files too, before any answer, and raises if a row of them matches.
        case_sensitive, timezone: the session's rules for names and timestamp literals.
        threads: files read at once.
        engine: runs the tasks of large analyses; None reads in threads.
        to_frame: makes a DataFrame of a plan; None without Spark.
    """

    snapshot: Snapshot
    where: str | None = None
    columns: tuple[str, ...] | None = None
    max_rows: int | None = None
    skipping: bool = True
    verify: Literal["full"] | None = None
    case_sensitive: bool = False
    timezone: str = "UTC"
    threads: int = 4
    engine: Engine | None = field(default=None, repr=False)
    to_frame: FrameReader | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse arguments that mean nothing."""
        if self.max_rows is not None and self.max_rows < 0:
            raise InvalidInputError(f"limit is a number of rows from 0 on, not {self.max_rows!r}")
        if self.verify not in (None, "full"):
            raise InvalidInputError(f"verify is 'full' or None, not {self.verify!r}")

    def filter(self, where: str) -> Scan:
        """The scan with one more condition."""
        return replace(self, where=where if self.where is None else f"({self.where}\n) AND ({where}\n)")

    def select(self, *columns: str) -> Scan:
        """The scan with other columns."""
        return replace(self, columns=columns)

    def limit(self, rows: int) -> Scan:
        """The scan with at most so many rows."""
        return replace(self, max_rows=rows if self.max_rows is None else min(self.max_rows, rows))

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

    # ----------------------------------------------------------------------------------------------------- planning

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

    def _verified(self, predicate: Predicate | None) -> ScanPlan:
        """The plan, checked if that was asked for."""
        plan = self._planned(predicate)
        if self.verify is not None and predicate is not None:
            self._measurer(predicate).verify(plan)
        return plan

    def _measurer(self, predicate: Predicate | None) -> Measurer:
        return Measurer(
            snapshot=self.snapshot, reader=self._reader(predicate, ()), engine=self.engine, threads=self.threads
        )

    def _reader(self, predicate: Predicate | None, names: Sequence[str]) -> SliceReader:
        return SliceReader(
            storage=self.snapshot.storage,
            base_path=self.snapshot.base_path,
            table_columns=read_columns(self.snapshot.schema),
            names=tuple(names),
            predicate=predicate,
            skipping=self.skipping,
            merge=MergeSettings.of(self.snapshot) if self.snapshot.view().table.has_logs.any() else None,
        )

    @overload
    def explain(self, *, analyze: Literal[False] = False, verify: None = None) -> ScanPlan: ...

    @overload
    def explain(self, *, analyze: bool = ..., verify: Literal["full"] | None = ...) -> ScanPlan | AnalyzedPlan: ...

    def explain(self, *, analyze: bool = False, verify: Literal["full"] | None = None) -> ScanPlan | AnalyzedPlan:
        """The plan; it prints as a table of what each index did.

        Args:
            analyze: run the scan too, and say what its files and row groups held.
            verify: ``full`` also reads the files that the plan drops.

        Returns:
            A :class:`ScanPlan`; an :class:`AnalyzedPlan` if anything was read.

        Raises:
            IndexInconsistentError: ``verify`` found a matching row in a dropped file.
            UnsupportedFeatureError: the scan is to be run, and only Spark can evaluate its condition.
        """
        if verify not in (None, "full"):
            raise InvalidInputError(f"verify is 'full' or None, not {verify!r}")
        verify = verify or self.verify
        predicate = self._predicate()
        plan = self._planned(predicate)
        if not analyze and verify is None:
            return plan
        return self._measurer(predicate).analyze(plan, verify=verify is not None)

    # ------------------------------------------------------------------------------------------------------ answers

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """The rows as a stream of record batches, in the order of files and rows.

        Files, and row groups of few files, are read in threads; three batches a thread are held at most. A consumer
        that stops early stops the reading.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.
        """
        predicate = self._predicate()
        reader = self._reader(predicate, self.schema.names)
        slices = self._verified(predicate).slices
        parts = max(1, -(-self.threads // max(1, len(slices)))) if self.threads > 1 else 1
        work = [(item, Part(number, parts)) for item in slices for number in range(parts)]
        left = self.max_rows
        with closing(stream_ordered(_ReadPart(reader), work, self.threads)) as batches:
            for batch in [] if left == 0 else batches:
                if left is None or batch.num_rows < left:
                    left = None if left is None else left - batch.num_rows
                    yield batch
                else:
                    yield batch.slice(0, left)
                    return

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table. Only needed columns of kept files and row groups are read, in threads.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.
        """
        schema = self.schema
        batches = list(self.to_batches())
        if not schema.names:
            # A table made of batches without columns forgets their rows.
            return pa.table({"": pa.nulls(sum(batch.num_rows for batch in batches))}).select([])
        return pa.Table.from_batches(batches, schema)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        _optional("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame.

        Raises:
            MissingDependencyError: polars is not installed.
        """
        frame: pl.DataFrame = _optional("polars").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation, which more SQL can be put on.

        Args:
            connection: a DuckDB connection; its default one if None.

        Raises:
            MissingDependencyError: duckdb is not installed.
        """
        module = _optional("duckdb")
        relation: duckdb.DuckDBPyRelation = (module if connection is None else connection).from_arrow(self.to_arrow())
        return relation

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
        frame = self.to_frame(self.snapshot, self._verified(self._predicate()), self.where, names)
        return frame if self.max_rows is None else frame.limit(self.max_rows)

    def count(self) -> int:
        """Number of rows. Without a condition only footers are read."""
        if self.max_rows is not None and self.where is not None:
            with closing(replace(self, columns=()).to_batches()) as batches:
                return sum(batch.num_rows for batch in batches)
        predicate = self._predicate()
        task = _CountRows(self._reader(predicate, ()))
        rows = sum(run_threads(task, self._verified(predicate).slices, self.threads))
        return rows if self.max_rows is None else min(rows, self.max_rows)

    def __str__(self) -> str:
        return str(self.plan())

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


def _optional(package: str) -> Any:
    """A package that only one kind of answer needs."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependencyError(f"{package} is needed: pip install 'lakedex[{package}]'", extra=package) from error


@dataclass(frozen=True, slots=True)
class _ReadPart:
    """Matching rows of a share of one slice. Memory: one batch."""

    reader: SliceReader

    def __call__(self, work: tuple[FileSlice, Part]) -> Iterator[pa.RecordBatch]:
        item, part = work
        return iter_slice_rows(self.reader, item, part)


@dataclass(frozen=True, slots=True)
class _CountRows:
    """How many rows of one slice match. Memory: one batch of the condition's columns."""

    reader: SliceReader

    def __call__(self, item: FileSlice) -> int:
        if self.reader.predicate is None and item.base_file is not None and not item.log_files:
            path = f"{self.reader.base_path}/{item.base_file.relative_path}"
            return read_footer(self.reader.storage, path).rows
        count = ReadCount()
        for _ in iter_slice_rows(self.reader, item, count=count):
            pass
        return count.matched
