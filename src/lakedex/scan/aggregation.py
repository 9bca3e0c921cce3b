"""Group rows by values as Spark does: null is a value, all NaN are one, and -0.0 is 0.0.

A *table of groups* has the columns of the groups (named by :func:`~lakedex.index.bitmap.aggregates.key_name`) and
``n``, the number of their rows.

Memory: the distinct groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.nodes import Column
from lakedex.expr.sort_keys import ordering_keys
from lakedex.expr.types import Kind, NotAStructError, NotPrunableError, kind_of, resolve_column
from lakedex.index.bitmap.aggregates import COUNT, key_name
from lakedex.index.bitmap.keys import normal_values

__all__ = [
    "GroupTally",
    "aggregate",
    "check_groupable",
    "find_column",
    "group_starts",
    "groups_of",
    "only_ends",
    "sorted_groups",
]


MAX_PENDING = 1 << 20
"""Rows of tables that are kept before equal groups among them are put together."""


def find_column(name: str, schema: pa.Schema, *, case_sensitive: bool) -> Column:
    """The column of a name, or the field of a dotted path, by the session's rules.

    Raises:
        InvalidInputError: there is none, or it has no order.
    """
    parts = (name,) if name in schema.names else name.split(".")
    try:
        found = resolve_column(parts, schema, case_sensitive=case_sensitive)
    except NotAStructError:
        raise InvalidInputError(f"{name!r} goes into a map or a list", column=name) from None
    check_groupable(found)
    return found


def check_groupable(column: Column) -> None:
    """Refuse a column whose values have no order.

    Raises:
        InvalidInputError: names the column and its type.
    """
    try:
        if kind_of(column.type) is not Kind.NULL:
            return
    except NotPrunableError:
        pass
    raise InvalidInputError(
        f"column {column.name!r} is {column.type}: groups and bounds are of numbers, text, binary, dates and times",
        column=column.name,
    )


def groups_of(values: Sequence[pa.Array], rows: int) -> pa.Table:
    """Groups of the rows of a batch.

    Args:
        values: an array a column.
        rows: of the batch.
    """
    if not values:
        return pa.table({COUNT: pa.array([rows], pa.int64())})
    plain = [normal_values(own) if kind_of(own.type).is_float else own for own in values]
    names = [key_name(number) for number in range(len(plain))]
    table = pa.table({**dict(zip(names, plain, strict=True)), COUNT: pa.repeat(pa.scalar(1, pa.int64()), rows)})
    return _together(table, names)


def _together(table: pa.Table, names: Sequence[str]) -> pa.Table:
    found = table.group_by(list(names), use_threads=False).aggregate([(COUNT, "sum")])
    return found.rename_columns([COUNT if name == f"{COUNT}_sum" else name for name in found.column_names]).select(
        [*names, COUNT]
    )


def only_ends(groups: pa.Table) -> pa.Table:
    """Of groups of one column those of the least and the greatest value, null left out."""
    known = groups.filter(pc.is_valid(groups.column(0)))
    if known.num_rows < 3:
        return known
    order = pc.sort_indices(ordering_keys(known.column(0).combine_chunks()))
    return known.take(pa.array([order[0].as_py(), order[-1].as_py()]))


class GroupTally:
    """Adds up groups from several places."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        """Begin.

        Args:
            types: of the group columns, as the table has them.
        """
        self._names = [key_name(number) for number in range(len(types))]
        fields = [*zip(self._names, types, strict=True), (COUNT, pa.int64())]
        self._schema = pa.schema(fields)
        self._parts: list[pa.Table] = []
        self._pending = 0
        self.rows = 0

    def add(self, groups: pa.Table) -> None:
        """Count more groups in."""
        self.rows += pc.sum(groups.column(COUNT)).as_py() or 0
        if not self._names or not groups.num_rows:
            return
        self._parts.append(groups.cast(self._schema))
        self._pending += groups.num_rows
        if self._pending > MAX_PENDING:
            self._parts = [self._merged()]
            # Groups that are all different would be sorted through with each batch.
            self._pending = 0

    def _merged(self) -> pa.Table:
        return _together(pa.concat_tables(self._parts), self._names)

    def table(self) -> pa.Table:
        """Each group once, with at least one row, in the order of the groups; without columns one row."""
        if not self._names:
            return pa.table({COUNT: pa.array([self.rows], pa.int64())})
        if not self._parts:
            return self._schema.empty_table()
        return sorted_groups(self._merged())


def sorted_groups(groups: pa.Table) -> pa.Table:
    """Groups in Spark's ascending order: null first, NaN last."""
    keys: dict[str, Any] = {}
    order = []
    for number, column in enumerate(groups.columns[:-1]):
        values = column.combine_chunks()
        values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
        keys |= {f"v{number}": values.is_valid(), key_name(number): ordering_keys(values)}
        order += [(f"v{number}", "ascending"), (key_name(number), "ascending")]
    return groups.take(pc.sort_indices(pa.table(keys), sort_keys=order)).combine_chunks()


def group_starts(groups: pa.Table, columns: int) -> npt.NDArray[np.int64]:
    """Rows of sorted groups at which one of the first ``columns`` columns has a new value."""
    new = np.zeros(groups.num_rows, bool)
    new[:1] = True
    for number in range(columns):
        encoded = pc.dictionary_encode(groups.column(number).combine_chunks(), null_encoding="encode")
        codes = (encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded).indices
        new[1:] |= np.diff(codes.to_numpy(zero_copy_only=False)) != 0
    return np.flatnonzero(new)


def aggregate(groups: pa.Table, starts: npt.NDArray[np.int64], kind: str) -> pa.Array:
    """An aggregate of the last group column, for each of the groups that begin at ``starts``.

    Args:
        groups: sorted; the last of the group columns is the one that is aggregated, so that null comes first in each.
        starts: from :func:`group_starts` of the columns before it.
        kind: ``count``, ``count_distinct``, ``min`` or ``max``.
    """
    values = groups.column(groups.num_columns - 2).combine_chunks()
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if kind in ("min", "max"):
        ends = np.append(starts[1:], groups.num_rows)
        # Null is one group, before the values; a group of nothing else has it at its end too.
        places = np.minimum(starts + ~valid[starts], ends - 1) if kind == "min" else ends - 1
        return values.take(pa.array(places, pa.int64()))
    counts = groups.column(COUNT).to_numpy() if kind == "count" else np.ones(len(valid), np.int64)
    return pa.array(np.add.reduceat(np.where(valid, counts, 0), starts), pa.int64())
