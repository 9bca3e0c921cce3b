"""Tables on a Spark session: rows come and go as DataFrames, and Spark computes the rows of a merge.

A merge is a join, and for each row the first clause that applies; Spark evaluates all expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

from lakedex.arrow_types import ArrowFrame
from lakedex.errors import InvalidInputError
from lakedex.expr.conditions import as_sql
from lakedex.scan.plan import ScanPlan, plan_scan
from lakedex.scan.scan import Scan, semi_joined
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark import session
from lakedex.spark.columns import column_sql, is_column
from lakedex.spark.dataframes import planned_frame, table_frame
from lakedex.spark.engine import SparkEngine, SparkFrame
from lakedex.spark.hadoop import hadoop_options
from lakedex.spark.schema import arrow_to_spark, declared_schema, nullable, quoted, store_assigned
from lakedex.spark.session import case_sensitive, check_session, is_connect, other_reading, session_timezone
from lakedex.tagging.keyed_rows import ACTION, KEY, POSITION, RowAction
from lakedex.types import FILE_NAME, MISFIT, PARTITION_PATH, RECORD_KEY, SessionRules
from lakedex.write.merge_clauses import Aliases, BoundClause
from lakedex.write.merge_into import MergeTask

__all__ = ["SparkTableSession", "merged_rows"]


_CLAUSE = "__lakedex_clause"


_VALUE = "__lakedex_value_"
"""Begins the names of columns that hold the expressions of clauses, until they are cast."""


def merged_rows(task: MergeTask, source: DataFrame, target: DataFrame) -> DataFrame:
    """The rows that a merge changes, with ``MERGED_COLUMNS`` and the table's columns."""
    names = task.merge.aliases
    on = _expression(task.merge.on, "on")
    if task.keyed:
        on = (_of(names.target, RECORD_KEY) == _of(names.source, KEY)) & on
    joined = source.alias(names.source).join(target.alias(names.target), on, _how(task.clauses))
    chosen = joined.withColumn(_CLAUSE, _first_clause(task.clauses, names)).where(F.col(_CLAUSE).isNotNull())
    chosen = chosen.withColumns(_values(task.clauses))
    schema = task.snapshot.schema
    # Spark casts no struct to one whose fields are never null; what is null there is refused when it is written.
    types = cast("StructType", nullable(arrow_to_spark(schema)))
    found = chosen.schema
    values = {
        (number, column): store_assigned(
            f"{_VALUE}{number}_{column}", found[f"{_VALUE}{number}_{column}"].dataType, types[column].dataType, column
        )
        for number, clause in enumerate(task.clauses)
        for column in clause.values
    }
    columns = [
        _by_clause([F.lit(int(clause.action)) for clause in task.clauses]).cast("int").alias(ACTION),
        *(_of(names.target, name).alias(name) for name in (RECORD_KEY, PARTITION_PATH, FILE_NAME)),
        F.coalesce(_of(names.source, POSITION), F.lit(-1)).cast("bigint").alias(POSITION),
        *(_value(task, values, column, types[column.name].dataType).alias(column.name) for column in schema),
        *([F.coalesce(*(misfit for _, misfit in values.values())).alias(MISFIT)] if values else []),
    ]
    return chosen.select(*columns)


def _of(alias: str, column: str) -> Column:
    return F.col(f"{quoted(alias)}.{quoted(column)}")


def _expression(value: Any, what: str) -> Column:
    if isinstance(value, str):
        return F.expr(value)
    if type(value).__name__ == "Column":  # Connect has a class of its own.
        column: Column = value
        return column
    raise InvalidInputError(f"merge: {what} is SQL text or a Column, not {type(value).__name__}")


def _how(clauses: Sequence[BoundClause]) -> str:
    """The join that brings the rows for which there are clauses; the source is on its left."""
    kinds = {clause.when for clause in clauses}
    if "not matched by source" in kinds:
        return "full" if "not matched" in kinds else "right"
    return "left" if "not matched" in kinds else "inner"


def _first_clause(clauses: Sequence[BoundClause], names: Aliases) -> Column:
    """The number of the first clause that takes a row; null where none does."""
    stored, incoming = _of(names.target, RECORD_KEY).isNotNull(), _of(names.source, POSITION).isNotNull()
    kinds = {
        "matched": stored & incoming,
        "not matched": incoming & ~stored,
        "not matched by source": stored & ~incoming,
    }
    chain: Any = F
    for number, clause in enumerate(clauses):
        taken = kinds[clause.when]
        if clause.condition is not None:
            taken = taken & _expression(clause.condition, "a condition")
        chain = chain.when(taken, F.lit(number))
    found: Column = chain
    return found


def _by_clause(values: Sequence[Column | None]) -> Column:
    """The value of the row's own clause; null where that has none."""
    chain: Any = F
    for number, value in enumerate(values):
        if value is not None:
            chain = chain.when(F.col(_CLAUSE) == number, value)
    found: Column = F.lit(None) if chain is F else chain
    return found


def _values(clauses: Sequence[BoundClause]) -> dict[str, Column]:
    """The expressions of all clauses in columns of their own, each computed for the rows of its clause only."""
    return {
        f"{_VALUE}{number}_{column}": F.when(F.col(_CLAUSE) == number, _expression(value, f"the value of {column!r}"))
        for number, clause in enumerate(clauses)
        for column, value in clause.values.items()
    }


def _value(
    task: MergeTask, values: Mapping[tuple[int, str], tuple[Column, Column]], column: pa.Field, kind: DataType
) -> Column:
    names = task.merge.aliases
    chosen: list[Column | None] = []
    for number, clause in enumerate(task.clauses):
        if clause.action is RowAction.DELETE:
            chosen.append(None)
        elif (number, column.name) in values:
            chosen.append(values[number, column.name][0])
        elif column.name in clause.copies:
            chosen.append(_of(names.source, clause.copies[column.name]).cast(kind))
        else:
            chosen.append(None if clause.action is RowAction.INSERT else _of(names.target, column.name))
    return _by_clause(chosen).cast(kind)


_NEW = "__lakedex_new_"
"""Begins the names of columns that hold what an update assigns, until it is cast."""


@dataclass(slots=True)
class SparkTableSession:
    """See ``lakedex.write.session.Session``."""

    spark: SparkSession
    engine: SparkEngine = field(init=False)

    def __post_init__(self) -> None:
        check_session(self.spark)
        self.engine = SparkEngine(self.spark)

    @property
    def rules(self) -> SessionRules:
        """How the Spark session reads SQL, by its settings now."""
        return SessionRules(case_sensitive(self.spark), session_timezone(self.spark))

    @property
    def to_frame(self) -> Callable[[Snapshot, ScanPlan, str | None, Sequence[str] | None], Any]:
        """Makes a DataFrame of a plan."""
        return self._planned

    def _planned(
        self, snapshot: Snapshot, plan: ScanPlan, where: str | None, columns: Sequence[str] | None
    ) -> DataFrame:
        if where is not None and other_reading(self.spark, where):
            # Spark's reading of the text decides, so that files are not left out by lakedex's.
            plan = plan_scan(snapshot, None)
        return planned_frame(self.spark, snapshot, plan, where, columns)

    def keys(self, frame: Any, names: Sequence[str], limit: int) -> pa.Table | None:
        """The distinct keys of a DataFrame; None for anything else."""
        if not callable(getattr(type(frame), "dropDuplicates", None)):
            return None
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise InvalidInputError(
                f"the keys have no column {missing[0]!r}: {', '.join(frame.columns)}", column=missing[0]
            )
        chosen = frame.select(*(quoted(name) for name in names)).distinct().limit(limit)
        return self.engine.collect(SparkFrame(chosen, self.engine.schema_of(chosen)))

    def schema(self, declared: Any) -> pa.Schema | None:
        """A schema given as ``StructType``, DDL text, Arrow schema or DataFrame."""
        if declared is None:
            return None
        if isinstance(declared, str):
            declared = _parse_datatype_string(declared)
        if isinstance(declared, StructType):
            return declared_schema(declared)
        if isinstance(declared, pa.Schema):
            declared = declared.empty_table()
        known = getattr(declared, "schema", None)
        return declared_schema(known) if isinstance(known, StructType) else self.engine.schema_of(declared)

    def require_same_reading(self, text: str) -> None:
        """Refuse a condition that the session's settings may give another meaning than lakedex plans by."""
        setting = other_reading(self.spark, text)
        if setting is not None:
            raise InvalidInputError(
                f"the condition {text!r} has characters to which the session's {setting} gives a meaning of its own; "
                "unset it, or write the values in hex: CAST(X'…' AS STRING)"
            )

    def sql(self, where: Any, schema: Callable[[], pa.Schema]) -> Any:
        """See :class:`Session`."""
        if self.evaluates(where):
            return column_sql(self.spark, where, schema(), self.rules)
        return as_sql(where, schema, case_sensitive=self.rules.case_sensitive)

    def evaluates(self, where: Any) -> bool:
        """Whether it is a Column."""
        return is_column(where)

    def is_frame(self, data: Any) -> bool:
        """Whether ``data`` is rows rather than a condition (text or a Column)."""
        # By its class: a frame of Spark Connect takes any attribute for a column's name.
        return not isinstance(data, str) and type(data).__name__ != "Column"

    def frame(self, snapshot: Snapshot) -> DataFrame:
        """All rows of a snapshot; every filter put on the frame prunes files, but on Spark Connect none.

        Connect cannot ask Python for files while it plans, so there the frame has all of them, and Spark skips row
        groups by the files' own statistics.
        """
        if is_connect(self.spark):
            return self._planned(snapshot, plan_scan(snapshot, None), None, None)
        return table_frame(self.spark, snapshot, case_sensitive=self.rules.case_sensitive)

    def matching(self, snapshot: Snapshot, where: Any, columns: Sequence[str] | None) -> DataFrame:
        """Rows under a condition."""
        if isinstance(where, str) and is_connect(self.spark):
            scan = Scan(
                snapshot=snapshot,
                where=where,
                columns=None if columns is None else tuple(columns),
                meta_columns=True,
                rules=self.rules,
                engine=self.engine,
                to_frame=self.to_frame,
            )
            found: DataFrame = scan.to_spark()
            return found
        frame = self.frame(snapshot)
        if where is not None:
            frame = frame.where(where)
        return frame if columns is None else frame.select(*columns)

    def changed(self, snapshot: Snapshot, where: Any, assignments: Mapping[str, Any]) -> DataFrame:
        """Rows under a condition with some columns computed from expressions, in the columns' own types."""
        # Spark casts no struct to one whose fields are never null; what is null there is refused when it is written.
        types = cast("StructType", nullable(arrow_to_spark(read_columns(snapshot.schema))))
        values = {f"{_NEW}{number}": name for number, name in enumerate(assignments)}
        computed = self.matching(snapshot, where, None).withColumns(
            {
                value: F.expr(assignments[name]) if isinstance(assignments[name], str) else assignments[name]
                for value, name in values.items()
            }
        )
        found = computed.schema
        new = {
            name: store_assigned(value, found[value].dataType, types[name].dataType, name)
            for value, name in values.items()
        }
        misfit = F.coalesce(*(misfit for _, misfit in new.values()))
        fitted = {name: column for name, (column, _) in new.items()}
        return computed.withColumns({**fitted, MISFIT: misfit}).drop(*values)

    def merged(self, task: MergeTask) -> DataFrame:
        """The rows that a merge changes, of those that its condition lets it read.

        Not of the frame of :meth:`frame` where files are left out: Spark takes two frames of one instant for one.
        """
        if isinstance(task.merge.on, str):
            self.require_same_reading(task.merge.on)
        scan = Scan(
            snapshot=task.snapshot,
            condition=task.where,
            meta_columns=True,
            rules=self.rules,
            engine=self.engine,
            to_frame=self.to_frame,
        )
        if not task.keyed and isinstance(task.source, ArrowFrame) and task.equal:
            scan = semi_joined(scan, self.engine.collect(task.source), task.equal)
        return merged_rows(task, self.engine.to_dataframe(task.source), scan.to_spark())

    def storage_options(self, path: str) -> Mapping[str, str]:
        """Those of its Hadoop; see :func:`lakedex.spark.hadoop.hadoop_options`."""
        return hadoop_options(self.spark, path)

    def create_view(self, name: str, base_path: str, make: Callable[[], Any]) -> None:
        """Make a temporary view."""
        if not name.isidentifier():
            raise InvalidInputError(f"{name!r} is no name of a view: use letters, digits and '_'")
        session.create_view(self.spark, name, base_path, make)

    def refresh_views(self, base_path: str) -> None:
        """Refresh the session's views of a table."""
        session.refresh_views_of(self.spark, base_path)
