"""``Scan``: a lazy, immutable query of a table, which is planned and read when a result is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import pyarrow as pa

from lakedex.engine import Engine
from lakedex.errors import InvalidInputError, MissingDependencyError, MissingEngineError
from lakedex.expr.conditions import as_sql
from lakedex.expr.nodes import Column, Predicate, all_of
from lakedex.expr.parser import bind
from lakedex.expr.terms import BoundPredicate, to_spark_sql
from lakedex.io.retries import with_one_budget
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.names import join_path
from lakedex.parallel import stream_ordered
from lakedex.scan.aggregate_pushdown import AggregatePlan, AggregateQuery, AggregateResult
from lakedex.scan.aggregate_pushdown import answer as answer_query
from lakedex.scan.aggregation import find_column
from lakedex.scan.analyze import AnalyzedPlan, PlanAnalyzer
from lakedex.scan.plan import ScanPlan, indexes_for, plan_scan
from lakedex.scan.semi_join import KeyReader, key_condition
from lakedex.scan.slice_reader import Part, SliceReader, iter_slice_rows, kept_row_groups, reader_for
from lakedex.snapshot.schema import nearest, read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import DEFAULT_RULES, SessionRules

__all__ = ["FileScanTask", "Scan", "semi_joined"]


if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


PART_BYTES = 8 << 20
"""A file is read in parts, each of which reads the footer, only if they are larger than this."""


FEW_KEYS = 1_000
"""Up to this number of keys a join that is evaluated elsewhere again prunes by them."""


AnswerKind = Literal["count", "count_by", "count_distinct", "min", "max", "exists"]


ConditionReader = Callable[[Any, Callable[[], pa.Schema]], Any]


FrameReader = Callable[[Snapshot, ScanPlan, str | None, Sequence[str] | None], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScanTask:
    """The work of one file slice, for engines that read files themselves (Ray, Daft, DuckDB). It pickles.

    Attributes:
        path: the base file; the first log file of a slice without one.
        slice: the file slice.
        log_files: paths of the log files that have to be merged into the base file.
        row_groups: row groups of the base file that may hold a matching row; None stands for all of them.
        residual: the condition that rows still have to meet, as Spark SQL; None if all rows match.
        reader: reads the slice as lakedex does.
    """

    path: str
    slice: FileSlice
    log_files: tuple[str, ...] = ()
    row_groups: tuple[int, ...] | None = None
    residual: str | None = None
    reader: SliceReader = field(repr=False, compare=False)

    def to_arrow(self) -> pa.Table:
        """The matching rows of the slice, log files merged.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate, or log files that lakedex cannot merge.
        """
        return pa.Table.from_batches(iter_slice_rows(self.reader, self.slice), self.reader.schema)


@with_one_budget
@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Rows of a table under a condition; made by :meth:`lakedex.Table.scan`.

    Attributes:
        snapshot: the table, pinned when the scan was made.
        where: a Spark SQL boolean expression; None reads all rows.
        condition: one more condition, ready made: that of joins.
        columns: columns of the result; None reads the table's own.
        meta_columns: whether Hudi's five meta columns come before the table's own where ``columns`` is None.
        max_rows: rows at most; None reads all rows. Without Spark they are the first ones in the order of files and
            rows.
        use_indexes: False reads all files and row groups.
        verify: ``full`` reads the dropped files too, before any answer, and raises if a row of them matches.
        rules: the session's, for names and timestamp literals.
        cost_gate: False reads bitmaps wherever they could tell something, also where the forecast is a loss.
        threads: files read at once.
        engine: runs the tasks of large analyses; None reads in threads.
        to_frame: makes a DataFrame of a plan; None without Spark.
        to_keys: collects the keys of a Spark DataFrame; None without Spark.
        to_sql: makes SQL text of conditions that only the session knows; None knows those of :func:`as_sql`.
    """

    snapshot: Snapshot
    where: str | None = None
    condition: Predicate | None = None
    columns: tuple[str, ...] | None = None
    meta_columns: bool = False
    max_rows: int | None = None
    use_indexes: bool = True
    verify: Literal["full"] | None = None
    rules: SessionRules = DEFAULT_RULES
    cost_gate: bool = True
    threads: int = 4
    engine: Engine | None = field(default=None, repr=False)
    to_frame: FrameReader | None = field(default=None, repr=False)
    to_keys: KeyReader | None = field(default=None, repr=False)
    to_sql: ConditionReader | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse arguments that mean nothing."""
        if self.max_rows is not None and self.max_rows < 0:
            raise InvalidInputError(f"limit is a number of rows from 0 on, not {self.max_rows!r}")
        if self.verify not in (None, "full"):
            raise InvalidInputError(f"verify is 'full' or None, not {self.verify!r}")

    def filter(self, where: Any) -> Scan:
        """The scan with one more condition.

        Args:
            where: a condition, as :meth:`lakedex.Table.scan` takes it.

        Returns:
            A scan of the rows under both conditions.

        Example:
            >>> table.scan("city = 'oslo'").filter("fare > 10").count()
            1
        """
        text = (self.to_sql or as_sql)(where, lambda: read_columns(self.snapshot.schema))
        return replace(self, where=text if self.where is None else f"({self.where}\n) AND ({text}\n)")

    def semi_join(self, keys: Any, on: str | Sequence[str] | Mapping[str, str]) -> Scan:
        """The scan's rows that have a match among keys: SQL's LEFT SEMI JOIN. The keys become a condition.

        So indexes prune files, row groups and rows by them, and :meth:`count` need not read the table. Joins with
        several dimensions are put after each other.

        Args:
            keys: an Arrow table, a pandas or polars frame, another :class:`Scan` or, on Spark, a DataFrame, whose
                columns ``on`` names; for one column also values. Up to a million different ones.
            on: the column, or columns, of both sides; or this table's columns with those of the keys.

        Returns:
            A scan of the rows with a match.

        Raises:
            InvalidInputError: too many keys, or a type that Spark does not compare with the column's without a cast
                that may fail.

        Example:
            >>> table.scan().semi_join(["ana", "dee"], on="rider").count()
            1
        """
        return self._joined(keys, on, anti=False)

    def anti_join(self, keys: Any, on: str | Sequence[str] | Mapping[str, str]) -> Scan:
        """The scan's rows without a match among keys: SQL's LEFT ANTI JOIN, so rows with null stay.

        Args:
            keys: keys, as :meth:`semi_join` takes them.
            on: columns, as :meth:`semi_join` takes them.

        Returns:
            A scan of the rows without a match.

        Raises:
            InvalidInputError: too many keys, or a type that Spark does not compare with the column's without a cast
                that may fail.

        Example:
            >>> table.scan().anti_join(["ana", "dee"], on="rider").count()
            2
        """
        return self._joined(keys, on, anti=True)

    def _joined(self, keys: Any, on: str | Sequence[str] | Mapping[str, str], *, anti: bool) -> Scan:
        if self.max_rows is not None:
            raise InvalidInputError("put the limit after the join: which rows it keeps is not settled")
        found = key_condition(keys, on, self._column, self.to_keys, anti=anti, timezone=self.rules.timezone)
        return replace(self, condition=all_of([*([] if self.condition is None else [self.condition]), found]))

    def _column(self, name: str) -> Column:
        return find_column(name, read_columns(self.snapshot.schema), case_sensitive=self.rules.case_sensitive)

    def select(self, *columns: str) -> Scan:
        """The scan with other columns.

        Args:
            columns: columns of the result, in their order.

        Returns:
            A scan of these columns.

        Example:
            >>> table.scan().select("id", "fare").to_arrow().num_columns
            2
        """
        return replace(self, columns=columns)

    def limit(self, rows: int) -> Scan:
        """The scan with a limited number of rows.

        Args:
            rows: number of rows at most.

        Returns:
            A scan of the first rows.

        Raises:
            InvalidInputError: a negative number.

        Example:
            >>> table.scan().limit(2).to_arrow().num_rows
            2
        """
        return replace(self, max_rows=rows if self.max_rows is None else min(self.max_rows, rows))

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result.

        Raises:
            InvalidInputError: a column that the table lacks.
        """
        whole = read_columns(self.snapshot.schema)
        if self.columns is None:
            return whole if self.meta_columns else self.snapshot.schema
        return pa.schema([whole.field(self._spelling(name, whole)) for name in self.columns])

    def _spelling(self, name: str, schema: pa.Schema) -> str:
        if name in schema.names:
            return name
        near = [known for known in schema.names if known.lower() == name.lower()]
        if near and not self.rules.case_sensitive:
            return str(near[0])
        table = self.snapshot.config.name
        raise InvalidInputError(f"table {table} has no column {name!r}{nearest(name, schema.names)}", column=name)

    # ----------------------------------------------------------------------------------------------------- planning

    def _predicate(self, *, by_spark: bool = False) -> BoundPredicate | None:
        if self.where is None:
            return BoundPredicate.of(self.condition)
        schema = read_columns(self.snapshot.schema)
        # A Spark session may have ANSI mode off: then only what both modes answer alike may remove files.
        try:
            bound = bind(self.where, schema, self.rules, ansi=not by_spark)
        except InvalidInputError as error:
            # Conditions know columns, not whose they are.
            message, table = str(error.args[0]), f"table {self.snapshot.config.name}"
            error.args = (f"{table} has {message}" if message.startswith("no column ") else f"{table}: {message}",)
            raise
        return bound if self.condition is None else BoundPredicate.of(bound.predicate, self.condition)

    @property
    def _sql(self) -> str | None:
        """All of the condition as SQL for Spark."""
        if self.condition is None:
            return self.where
        made = to_spark_sql(self.condition)
        return made if self.where is None else f"({self.where}\n) AND ({made})"

    def plan(self) -> ScanPlan:
        """The files that are needed, and what each index did.

        Returns:
            The plan; it prints as a table.

        Raises:
            InvalidInputError: a condition that is no SQL, or a column that the table lacks.

        Example:
            >>> len(table.scan("city = 'oslo'").plan().files)
            1
        """
        return self._planned(self._predicate())

    def plan_files(self) -> tuple[FileScanTask, ...]:
        """One task a file slice, for engines that read files themselves.

        Under a condition the footers of base files are read, so that tasks name row groups; a slice of which none can
        match has no task. A limit is not applied.

        Returns:
            The tasks, in the order of files.

        Raises:
            InvalidInputError: a condition that is no SQL, or a column that the table lacks.

        Example:
            >>> [task] = table.scan("fare > 20", ["id"]).plan_files()
            >>> task.row_groups, task.residual, task.to_arrow()["id"].to_pylist()
            ((0,), 'fare > 20', ['t3'])
        """
        predicate = self._predicate()
        plan = self._verified(predicate)
        reader = self._reader(predicate, self.schema.names, plan)
        is_whole = predicate is None
        groups = (
            [None] * len(plan.slices) if is_whole else stream_ordered(_RowGroups(reader), plan.slices, self.threads)
        )
        return tuple(
            self._task(reader, item, kept) for item, kept in zip(plan.slices, groups, strict=True) if kept != ()
        )

    def _task(self, reader: SliceReader, item: FileSlice, row_groups: tuple[int, ...] | None) -> FileScanTask:
        base = self.snapshot.files.base_path
        names = [item.base_file.relative_path] if item.base_file is not None else []
        logs = [join_path(item.partition, log.name) for log in item.log_files]
        return FileScanTask(
            path=f"{base}/{[*names, *logs][0]}",
            slice=item,
            log_files=tuple(f"{base}/{log}" for log in logs),
            row_groups=row_groups,
            residual=self._sql,
            reader=reader,
        )

    def _planned(self, predicate: BoundPredicate | None, *, by_spark: bool = False) -> ScanPlan:
        # Spark looks at the condition again, so it reads the columns of it in any case.
        result = None if by_spark else frozenset(self.schema.names)
        indexes = indexes_for(select=True, cost_gate=self.cost_gate, result=result)
        return plan_scan(self.snapshot, predicate, use_indexes=self.use_indexes, indexes=indexes)

    def _verified(self, predicate: BoundPredicate | None, *, by_spark: bool = False) -> ScanPlan:
        """The plan, checked if that was asked for."""
        plan = self._planned(predicate, by_spark=by_spark)
        if self.verify is not None and predicate is not None:
            self._measurer(predicate).verify(plan)
        return plan

    def _measurer(self, predicate: BoundPredicate | None) -> PlanAnalyzer:
        return PlanAnalyzer(
            snapshot=self.snapshot, reader=self._reader(predicate, ()), engine=self.engine, threads=self.threads
        )

    def _reader(
        self, predicate: BoundPredicate | None, names: Sequence[str], plan: ScanPlan | None = None
    ) -> SliceReader:
        selections = {} if plan is None else plan.selections
        return reader_for(self.snapshot, predicate, names, use_indexes=self.use_indexes, selections=selections)

    @overload
    def explain(self, *, analyze: Literal[False] = False, verify: None = None, answer: None = None) -> ScanPlan: ...

    @overload
    def explain(self, *, answer: AnswerKind, columns: str | Sequence[str] = ...) -> AggregatePlan: ...

    @overload
    def explain(self, *, analyze: bool = ..., verify: Literal["full"] | None = ...) -> ScanPlan | AnalyzedPlan: ...

    def explain(
        self,
        *,
        analyze: bool = False,
        verify: Literal["full"] | None = None,
        answer: AnswerKind | None = None,
        columns: str | Sequence[str] = (),
    ) -> ScanPlan | AnalyzedPlan | AggregatePlan:
        """The plan; it prints as a table of what each index did.

        Args:
            analyze: run the scan too, and say what its files and row groups held.
            verify: ``full`` also reads the files that the plan drops.
            answer: ``count``, ``count_by``, ``count_distinct``, ``min``, ``max`` or ``exists``: work that answer out,
                and say how many files each index answered.
            columns: of that answer.

        Returns:
            A :class:`ScanPlan`; an :class:`AnalyzedPlan` if anything was read; an :class:`AggregatePlan` of an answer.

        Raises:
            IndexInconsistentError: ``verify`` found a matching row in a dropped file.
            UnsupportedFeatureError: the scan is to be run, and only Spark can evaluate its condition.

        Example:
            >>> print(table.scan("city = 'oslo'").explain())  # doctest: +ELLIPSIS
            scan of trips: 1 of 2 files ...
        """
        if answer is not None:
            return self._ask(answer, (columns,) if isinstance(columns, str) else tuple(columns)).plan
        if verify not in (None, "full"):
            raise InvalidInputError(f"verify is 'full' or None, not {verify!r}")
        verify = verify or self.verify
        predicate = self._predicate()
        plan = self._planned(predicate)
        if not analyze and verify is None:
            return plan
        return self._measurer(predicate).analyze(plan, verify=verify is not None)

    # ------------------------------------------------------------------------------------------------------ answers

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, in the order of files and rows.

        Files, and row groups of few files, are read in threads; three batches a thread are held at most. Closing the
        reader stops the reading. Errors after the first batch are ``pyarrow.ArrowException`` that quote the error of
        lakedex; :meth:`to_arrow` raises that itself.

        Returns:
            A reader, which DuckDB, polars and others take as it is.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.

        Example:
            >>> with table.scan(columns=["id"]).to_batches() as reader:
            ...     sum(batch.num_rows for batch in reader)
            3
        """
        rows = self._batches()
        first = list(islice(rows, 1))  # What cannot be read at all raises here, as an error of lakedex.
        batches = chain(first, rows)
        # Closing a reader of a Python iterator leaves the iterator alone; releasing an Arrow stream of it does not.
        return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(self.schema, batches))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches; the plan is made and verified at once."""
        predicate = self._predicate()
        plan = self._verified(predicate)
        return self._read(self._reader(predicate, self.schema.names, plan), plan.slices)

    def _read(self, reader: SliceReader, slices: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
        parts = max(1, -(-self.threads // max(1, len(slices)))) if self.threads > 1 else 1
        work = [
            (item, Part(number, own))
            for item in slices
            for own in [min(parts, 1 + item.size // PART_BYTES)]
            for number in range(own)
        ]
        left = self.max_rows
        with closing(stream_ordered(_ReadPart(reader), work, self.threads)) as batches:
            for batch in [] if left == 0 else batches:
                if left is None or batch.num_rows < left:
                    left = None if left is None else left - batch.num_rows
                    yield batch
                else:
                    yield batch.slice(0, left)
                    return

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream, so that ``pa.table(scan)``, ``pl.DataFrame(scan)`` and DuckDB take a scan."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table. Only needed columns of kept files and row groups are read, in threads.

        Returns:
            The rows, in the order of files and rows.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.

        Example:
            >>> table.scan("rider = 'bo'", ["id"]).to_arrow()["id"].to_pylist()
            ['t2']
        """
        schema = self.schema
        batches = list(self._batches())
        if not schema.names:
            # A table made of batches without columns forgets their rows.
            return pa.table({"": pa.nulls(sum(batch.num_rows for batch in batches))}).select([])
        return pa.Table.from_batches(batches, schema)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame.

        Returns:
            The rows, in the order of files and rows.

        Raises:
            MissingDependencyError: pandas is not installed.
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.

        Example:
            >>> table.scan("rider = 'bo'", ["id"]).to_pandas().shape
            (1, 1)
        """
        _optional("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame.

        Returns:
            The rows, in the order of files and rows.

        Raises:
            MissingDependencyError: polars is not installed.
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.

        Example:
            >>> table.scan("rider = 'bo'", ["id"]).to_polars().shape
            (1, 1)
        """
        frame: pl.DataFrame = _optional("polars").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation, which more SQL can be put on.

        Args:
            connection: a DuckDB connection; None takes DuckDB's default one.

        Returns:
            The relation.

        Raises:
            MissingDependencyError: duckdb is not installed.
            UnsupportedFeatureError: a condition that only Spark can evaluate; use :meth:`to_spark`.

        Example:
            >>> table.scan().to_duckdb().aggregate("sum(fare)").fetchall()
            [(47.5,)]
        """
        module = _optional("duckdb")
        relation: duckdb.DuckDBPyRelation = (module if connection is None else connection).from_arrow(self.to_arrow())
        return relation

    def to_spark(self) -> Any:
        """The rows as a Spark DataFrame: planned here, kept files read by Spark, the condition applied again.

        Returns:
            A DataFrame.

        Raises:
            MissingEngineError: the table was opened without Spark.

        Example:
            >>> Table.open(path, spark=spark).scan("city = 'oslo'").to_spark().show()  # doctest: +SKIP
        """
        if self.to_frame is None:
            raise MissingEngineError(
                "the table was opened without Spark; open it with Table.open(path, spark=spark)", feature="to_spark"
            )
        names = None if self.columns is None and self.meta_columns else tuple(self.schema.names)
        frame = self.to_frame(
            self.snapshot, self._verified(self._predicate(by_spark=True), by_spark=True), self._sql, names
        )
        return frame if self.max_rows is None else frame.limit(self.max_rows)

    def _ask(self, kind: AnswerKind, names: Sequence[str] = ()) -> AggregateResult:
        stop_at = 1 if kind == "exists" else self.max_rows if kind == "count" else None
        if kind not in get_args(AnswerKind) or (len(names) == 0) != (kind in ("count", "exists")):
            raise InvalidInputError(
                f"answers are {', '.join(get_args(AnswerKind))}, the first and last without columns"
            )
        if kind not in ("count", "exists") and self.max_rows is not None:
            raise InvalidInputError(f"{kind} of a limited number of rows is not settled: take the limit off")
        predicate, columns = self._predicate(), tuple(self._column(name) for name in names)
        if self.verify is not None:
            self._verified(predicate)
        query = AggregateQuery(
            snapshot=self.snapshot,
            predicate=predicate,
            reader=self._reader(predicate, list(dict.fromkeys(column.path[0] for column in columns))),
            columns=columns,
            min_max_only=kind in ("min", "max"),
            stop_at=stop_at,
            cost_gate=self.cost_gate,
            use_indexes=self.use_indexes,
            threads=self.threads,
            description=f"{kind}({', '.join(names)})",
        )
        return answer_query(query)

    def count(self) -> int:
        """Number of rows, from indexes and footers as far as they tell it; only the rest is read.

        Returns:
            The number, at most the limit.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.scan("fare > 12").count()
            2
        """
        rows = self._ask("count").rows
        return rows if self.max_rows is None else min(rows, self.max_rows)

    def exists(self) -> bool:
        """Whether there is a row; reading stops at the first one found.

        Returns:
            True if a row matches.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.scan("fare > 100").exists()
            False
        """
        return self.max_rows != 0 and self._ask("exists").rows > 0

    def count_by(self, *columns: str) -> pa.Table:
        """Number of rows of each value of a column, or of each combination of values of several.

        Null is a value, -0.0 is 0.0 and NaN is one value. Bitmap indexes answer it where the columns have them.

        Args:
            columns: columns to group by.

        Returns:
            The columns in their own types, and ``count``; in the order of the columns, null first.

        Raises:
            InvalidInputError: no column, or one named ``count``.
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.scan().count_by("city").to_pydict()
            {'city': ['oslo', 'sf'], 'count': [2, 1]}
        """
        if "count" in columns:
            raise InvalidInputError("the column 'count' has the name of the number of rows", column="count")
        found = self._ask("count_by", columns).groups
        return found.rename_columns([*(self._column(name).name for name in columns), "count"])

    def count_distinct(self, column: str) -> int:
        """Number of different values of a column; null is none.

        Args:
            column: the column.

        Returns:
            The number.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.scan().count_distinct("city")
            2
        """
        return len(self._ask("count_distinct", (column,)).groups.column(0).drop_null())

    def min(self, column: str) -> Any:
        """Least value of a column in Spark's order.

        Args:
            column: the column.

        Returns:
            The value; None if there is none.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.scan().min("fare")
            9.0
        """
        return self._outermost("min", column, 0)

    def max(self, column: str) -> Any:
        """Greatest value of a column in Spark's order, in which NaN is above all.

        Args:
            column: the column.

        Returns:
            The value; None if there is none.

        Raises:
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.scan().max("fare")
            21.0
        """
        return self._outermost("max", column, -1)

    def _outermost(self, kind: AnswerKind, column: str, place: int) -> Any:
        values = self._ask(kind, (column,)).groups.column(0).drop_null()
        return values[place].as_py() if len(values) else None

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
class _RowGroups:
    """Row groups of a slice that may hold a matching row."""

    reader: SliceReader

    def __call__(self, item: FileSlice) -> Iterator[tuple[int, ...] | None]:
        yield kept_row_groups(self.reader, item)


def semi_joined(scan: Scan, keys: pa.Table, on: Mapping[str, str]) -> Scan:
    """A scan that leaves out rows without a match among keys, as far as the keys are few and of a type that can prune.

    For joins that are evaluated again afterwards.
    """
    if keys.num_rows > FEW_KEYS:
        return scan
    try:
        return scan.semi_join(keys.select(list(dict.fromkeys(on.values()))), on)
    except InvalidInputError:
        return scan
