"""The rows of a merge without Spark: pairs of target and source rows, and the first clause that takes each.

A hash join by the key where that was looked up, else by the columns that the condition sets equal; without any, all
pairs, in blocks. The whole condition is evaluated on each pair.

Memory: the target rows that were read, the source, the pairs that match, and one block of pairs that may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.errors import UnsupportedFeatureError
from lakedex.expr.evaluator import evaluate, evaluate_scalar, filter_rows
from lakedex.expr.nodes import And, Comparison, Predicate, Scalar
from lakedex.expr.parser import parse_predicate, parse_scalar
from lakedex.expr.sort_keys import ordering_keys
from lakedex.expr.terms import columns_of
from lakedex.parquet.conform import conform_array
from lakedex.tagging.keyed_rows import ACTION, KEY, POSITION, RowAction
from lakedex.types import DEFAULT_RULES, FILE_NAME, PARTITION_PATH, RECORD_KEY, IntArray, SessionRules
from lakedex.write.merge_clauses import Aliases, BoundClause, Merge, side_columns

__all__ = ["MERGED_COLUMNS", "merge_rows"]


MERGED_COLUMNS = pa.schema(
    [
        (ACTION, pa.int32()),
        (RECORD_KEY, pa.string()),
        (PARTITION_PATH, pa.string()),
        (FILE_NAME, pa.string()),
        (POSITION, pa.int64()),
    ]
)
"""The columns that an engine gives each row of a merge: its action, the stored row's place, and its source row."""


PAIRS = 1 << 18
"""Pairs that are evaluated at once."""


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides and how expressions are read over them. Row -1 of a side is no row: all its columns are null."""

    target: pa.Table
    source: pa.Table
    aliases: Aliases
    schema: pa.Schema
    rules: SessionRules

    def rows(self, names: Iterable[str], target: IntArray, source: IntArray) -> pa.Table:
        """The named columns of ``schema`` for pairs of row numbers."""
        columns = {}
        for name in names:
            kind = self.schema.field(name).type
            if name == self.aliases.target:
                columns[name] = _struct(self.target, kind, target)
            elif name == self.aliases.source:
                columns[name] = _struct(self.source, kind, source)
            elif name in self.target.column_names:
                columns[name] = _taken(self.target.column(name), target)
            else:
                columns[name] = _taken(self.source.column(name), source)
        # With a column of its own: expressions without columns need to know how many rows there are.
        columns[_ROW] = pa.array(np.arange(len(target)))
        return pa.table(columns).combine_chunks()

    def predicate(self, text: str) -> Predicate:
        return parse_predicate(text, self.schema, self.rules)

    def scalar(self, text: str) -> Scalar:
        return parse_scalar(text, self.schema, self.rules)


_ROW = "__lakedex_row"


def _taken(column: pa.ChunkedArray, places: IntArray) -> pa.Array:
    taken = column.take(pa.array(places, mask=places < 0))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _struct(table: pa.Table, kind: pa.StructType, places: IntArray) -> pa.Array:
    columns = [_taken(table.column(field.name), places) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(places < 0))


def _mask(condition: Predicate, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Rows for which a condition is true."""
    mask = pa.chunked_array(filter_rows(condition, rows).chunks, pa.bool_())
    return np.asarray(mask.to_numpy(), dtype=bool)


def _names(node: Predicate | Scalar) -> list[str]:
    return sorted({column.path[0] for column in columns_of(node)})


def merge_rows(
    target: pa.Table,
    source: pa.Table,
    merge: Merge,
    clauses: Sequence[BoundClause],
    table_schema: pa.Schema,
    *,
    keyed: bool,
    rules: SessionRules = DEFAULT_RULES,
) -> pa.Table:
    """The result of a merge: a row for each row that it changes, in ``MERGED_COLUMNS`` and the table's.

    Args:
        target: stored rows, meta columns included.
        source: staged source rows.
        merge: the condition and the aliases.
        clauses: its clauses over the table.
        table_schema: the table's columns.
        keyed: equal keys are what the condition demands at least.
        rules: how the session reads SQL.
    """
    schema = side_columns(merge.aliases, target.schema, source.schema)
    sides = _Sides(target, source, merge.aliases, schema, rules)
    t_rows, s_rows = _matches(sides, sides.predicate(str(merge.on)), keyed=keyed)
    parts = [_of_kind(sides, clauses, table_schema, "matched", t_rows, s_rows)]
    if any(clause.when == "not matched" for clause in clauses):
        alone = np.setdiff1d(np.arange(source.num_rows), s_rows)
        parts.append(_of_kind(sides, clauses, table_schema, "not matched", np.full(len(alone), -1), alone))
    if any(clause.when == "not matched by source" for clause in clauses):
        alone = np.setdiff1d(np.arange(target.num_rows), t_rows)
        parts.append(_of_kind(sides, clauses, table_schema, "not matched by source", alone, np.full(len(alone), -1)))
    out = pa.schema([*MERGED_COLUMNS, *table_schema])
    return pa.concat_tables([out.empty_table(), *chain.from_iterable(parts)])


# ---------------------------------------------------------------------------------------------------------- pairing


def _matches(sides: _Sides, condition: Predicate, *, keyed: bool) -> tuple[IntArray, IntArray]:
    """Row numbers of all pairs for which the condition is true."""
    names = _names(condition)
    found: list[tuple[IntArray, IntArray]] = []
    for t_rows, s_rows in _candidates(sides, condition, keyed=keyed):
        keep = _mask(condition, sides.rows(names, t_rows, s_rows))
        found.append((t_rows[keep], s_rows[keep]))
    empty = np.empty(0, np.int64)
    return tuple(np.concatenate([empty, *side]) for side in zip(*found, strict=True)) if found else (empty, empty)  # type: ignore[return-value]


def _candidates(sides: _Sides, condition: Predicate, *, keyed: bool) -> Iterator[tuple[IntArray, IntArray]]:
    pairs = [(sides.target.column(RECORD_KEY), sides.source.column(KEY))] if keyed else _equal(sides, condition)
    if not pairs:
        yield from _all_pairs(sides.target.num_rows, sides.source.num_rows)
        return
    names = [f"k{number}" for number in range(len(pairs))]
    left = pa.table([*(a for a, _ in pairs), pa.array(np.arange(sides.target.num_rows))], [*names, "t"])
    right = pa.table([*(b for _, b in pairs), pa.array(np.arange(sides.source.num_rows))], [*names, "s"])
    joined = left.join(right, keys=names, join_type="inner")
    t_rows, s_rows = (joined.column(name).to_numpy() for name in ("t", "s"))
    for start in range(0, len(t_rows), PAIRS):
        yield t_rows[start : start + PAIRS], s_rows[start : start + PAIRS]


def _all_pairs(targets: int, sources: int) -> Iterator[tuple[IntArray, IntArray]]:
    step = max(1, PAIRS // max(targets, 1))
    for start in range(0, sources, step):
        rows = np.arange(start, min(start + step, sources))
        yield np.tile(np.arange(targets), len(rows)), np.repeat(rows, targets)


def _equal(sides: _Sides, condition: Predicate) -> list[tuple[pa.Array, pa.Array]]:
    """Both sides of each equality of a target value with a source value, in a form whose equality is Spark's."""
    pairs = []
    for node in condition.operands if isinstance(condition, And) else (condition,):
        if not isinstance(node, Comparison) or node.op != "=":
            continue
        found = {_side(sides, value): value for value in (node.left, node.right)}
        if found.keys() != {"target", "source"}:
            continue
        values = [
            ordering_keys(_values(sides, found["target"], np.arange(sides.target.num_rows), None)),
            ordering_keys(_values(sides, found["source"], None, np.arange(sides.source.num_rows))),
        ]
        if values[0].type == values[1].type:
            pairs.append((values[0], values[1]))
    return pairs


def _side(sides: _Sides, value: Scalar) -> str:
    """The one side whose columns a value is made of."""
    owners = set()
    for name in _names(value):
        is_target = name == sides.aliases.target or name in sides.target.column_names
        owners.add("target" if is_target and name != sides.aliases.source else "source")
    return owners.pop() if len(owners) == 1 else ""


def _values(sides: _Sides, value: Scalar, target: IntArray | None, source: IntArray | None) -> Any:
    rows = len(target if target is not None else source if source is not None else ())
    none = np.full(rows, -1, np.int64)
    table = sides.rows(_names(value), none if target is None else target, none if source is None else source)
    return evaluate(value, _one(table))


def _one(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


# ---------------------------------------------------------------------------------------------------------- clauses


def _of_kind(
    sides: _Sides, clauses: Sequence[BoundClause], schema: pa.Schema, when: str, t_rows: IntArray, s_rows: IntArray
) -> list[pa.Table]:
    """The rows of one kind, each under the first clause that takes it."""
    parts = []
    for clause in clauses:
        if clause.when != when or not len(t_rows):
            continue
        taken = np.ones(len(t_rows), bool)
        if clause.condition is not None:
            condition = sides.predicate(str(clause.condition))
            taken = _mask(condition, sides.rows(_names(condition), t_rows, s_rows))
        parts.append(_changed(sides, clause, schema, t_rows[taken], s_rows[taken]))
        t_rows, s_rows = t_rows[~taken], s_rows[~taken]
    return parts


def _changed(sides: _Sides, clause: BoundClause, schema: pa.Schema, t_rows: IntArray, s_rows: IntArray) -> pa.Table:
    count = len(t_rows)
    columns = [
        pa.array(np.full(count, int(clause.action), np.int32)),
        *(_taken(sides.target.column(name), t_rows).cast(pa.string()) for name in MERGED_COLUMNS.names[1:4]),
        _taken(sides.source.column(POSITION), s_rows).fill_null(-1),
    ]
    values = _assigned(sides, clause.values, schema, t_rows, s_rows)
    for column in schema:
        if clause.action is RowAction.DELETE:
            columns.append(pa.nulls(count, column.type))
        elif column.name in values:
            columns.append(values[column.name])
        elif column.name in clause.copies:
            copied = _taken(sides.source.column(clause.copies[column.name]), s_rows)
            columns.append(conform_array(copied, column.type, column.name))
        else:
            columns.append(_taken(sides.target.column(column.name), t_rows))
    return pa.Table.from_arrays(columns, schema=pa.schema([*MERGED_COLUMNS, *schema]))


def _assigned(
    sides: _Sides, values: Mapping[str, Any], schema: pa.Schema, t_rows: IntArray, s_rows: IntArray
) -> dict[str, pa.Array]:
    """The values of assignments, in the columns' types."""
    found = {}
    for name, text in values.items():
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            found[name] = _whole_column(sides, str(text), name, kind, t_rows, s_rows)
            continue
        scalar = sides.scalar(str(text))
        rows = _one(sides.rows(_names(scalar), t_rows, s_rows))
        found[name] = evaluate_scalar(scalar, rows, kind, timezone=sides.rules.timezone)
    return found


def _whole_column(
    sides: _Sides, text: str, name: str, kind: pa.DataType, t_rows: IntArray, s_rows: IntArray
) -> pa.Array:
    """A nested value: null, or a column as it is. Expressions that make one are Spark's."""
    if text.strip().upper() == "NULL":
        return pa.nulls(len(t_rows), kind)
    alias, _, column = text.strip().replace("`", "").partition(".")
    target, source = (sides.aliases.target, sides.target, t_rows), (sides.aliases.source, sides.source, s_rows)
    for owner, table, places in (target, source):
        if alias == owner and column in table.column_names:
            return conform_array(_taken(table.column(column), places), kind, name)
    raise UnsupportedFeatureError(
        f"merge: cannot evaluate {text!r} for column {name!r} outside Spark: a nested value is a whole column, as in "
        f"{sides.aliases.source}.{name}, or NULL",
        feature=text,
    )
