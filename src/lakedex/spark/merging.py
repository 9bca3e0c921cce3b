"""The rows of a merge on Spark: a join, and the first clause that takes each row. Spark judges all expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lakedex.errors import InvalidInputError
from lakedex.spark.schema import arrow_to_spark, nullable, quoted, store_assigned
from lakedex.types import FILE_NAME, MISFIT, PARTITION_PATH, RECORD_KEY
from lakedex.write.merge import RowAction
from lakedex.write.merge_into import MergeTask
from lakedex.write.merge_spec import Aliases, BoundClause
from lakedex.write.prepare import ACTION, KEY, POSITION

__all__ = ["merged_rows"]

_CLAUSE = "__lakedex_clause"
_VALUE = "__lakedex_value_"
"""Begins the names of columns that hold the expressions of clauses, until they are cast."""


def merged_rows(task: MergeTask, source: DataFrame, target: DataFrame) -> DataFrame:
    """What a merge does, a row for each row that it changes, in ``MERGED_COLUMNS`` and the table's."""
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
