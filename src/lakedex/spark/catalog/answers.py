"""What an index can say of an aggregate, without reading a file: the seam between Spark's rule and the indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakedex.expr.nodes import Predicate
from lakedex.index.bitmap.builder import column_of
from lakedex.index.bitmap.definitions import read_bitmap_definitions
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.answers import answer_aggregates
from lakedex.scan.planner import read_columns

__all__ = ["AggregateRequest", "answer", "may_answer"]

AggregateKind = Literal["count_star", "count", "count_distinct", "min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRequest:
    """An aggregate over the rows under a condition.

    Attributes:
        where: the whole condition, without an unknown part; None for all rows.
        group_by: columns, or dotted paths of fields; rows whose values are null are a group of their own. Without any
            the answer is one row, of no rows too.
        aggregates: function and column each; ``count_star`` has no column.
    """

    where: Predicate | None
    group_by: tuple[str, ...]
    aggregates: tuple[tuple[AggregateKind, str | None], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose values the answer has or counts."""
        return tuple(dict.fromkeys((*self.group_by, *(name for _, name in self.aggregates if name is not None))))


def may_answer(snapshot: Snapshot) -> bool:
    """Whether the table has anything that could answer; asked before the question is translated."""
    return bool(read_bitmap_definitions(snapshot.storage, snapshot.base_path))


def answer(snapshot: Snapshot, request: AggregateRequest) -> pa.Table | None:
    """The exact rows: ``group_by``, then ``aggregates``, in this order and whatever the names; None if not known.

    Counts are ``int64``, other columns have the table's type. No file of rows is read, and no job runs.
    """
    schema = read_columns(snapshot.schema)
    if len(set(request.group_by)) < len(request.group_by) or any(
        "." in n and n in schema.names for n in request.columns
    ):
        return None
    columns = {name: column_of(name, schema) for name in request.columns}
    group_by = [columns[name] for name in request.group_by]
    aggregates = [(kind, None if name is None else columns[name]) for kind, name in request.aggregates]
    return answer_aggregates(snapshot, request.where, group_by, aggregates, index_only=True)
