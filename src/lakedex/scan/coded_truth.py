"""The truth of a condition over rows whose text columns may be dictionaries: each value is judged once, not each row.

Parts of the condition that AND joins are looked at one by one. One that speaks of one such column is judged over its
dictionary; what is left is judged over the rows that passed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakedex.errors import LakedexError
from lakedex.expr import columns_of, filter_rows, unknown_texts
from lakedex.expr.nodes import And, Predicate, all_of
from lakedex.types import BoolArray

__all__ = ["truth_of"]


def truth_of(predicate: Predicate, batch: pa.RecordBatch) -> BoolArray:
    """For which rows of a batch a condition is true.

    Raises:
        UnsupportedFeatureError: it has a part that only Spark can evaluate.
    """
    coded = {name for name, column in zip(batch.schema.names, batch.columns, strict=True) if _is_coded(column)}
    if not coded or unknown_texts(predicate):
        return _plain_truth(predicate, batch)
    passed: BoolArray | None = None
    rest: list[Predicate] = []
    for part in predicate.operands if isinstance(predicate, And) else (predicate,):
        name = _only_column(part)
        found = _by_values(part, name, batch) if name in coded else None
        if found is None:
            rest.append(part)
        else:
            passed = found if passed is None else passed & found
    if passed is None:
        return _plain_truth(predicate, batch)
    return _narrowed(passed, rest, batch)


def _narrowed(passed: BoolArray, rest: Sequence[Predicate], batch: pa.RecordBatch) -> BoolArray:
    """The rows of some for which the rest of a condition is true as well."""
    left = all_of(list(rest))
    if left is None or not passed.any():
        return passed
    # What the parts before it rule out, the rest may fail for: ``n <> 0 AND 1 / n > 2``.
    own = {column.path[0] for column in columns_of(left)}
    names = [name for name in batch.schema.names if name in own]
    if not names:
        return passed & _plain_truth(left, batch)
    passed[passed] = _plain_truth(left, batch.select(names).filter(pa.array(passed)))
    return passed


def _is_coded(column: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _only_column(predicate: Predicate) -> str | None:
    """The column that a condition speaks of, if it is a single one."""
    columns = columns_of(predicate)
    return columns[0].path[0] if len(columns) == 1 and len(columns[0].path) == 1 else None


def _by_values(predicate: Predicate, name: str | None, batch: pa.RecordBatch) -> BoolArray | None:
    """The truth of a condition on one column; None if it fails for a value, which may be one that no row has."""
    column = batch.column(batch.schema.get_field_index(name))
    values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
    try:
        truths = _plain_truth(predicate, pa.RecordBatch.from_arrays([values], names=[name]))
    except (LakedexError, pa.ArrowException):
        return None
    codes = column.indices.fill_null(len(values) - 1) if column.null_count else column.indices
    found: BoolArray = truths[codes.to_numpy(zero_copy_only=False)]
    return found


def _plain_truth(predicate: Predicate, batch: pa.RecordBatch) -> BoolArray:
    return np.array(filter_rows(predicate, batch).to_numpy(zero_copy_only=False), np.bool_)
