"""Filter rows and compute columns without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.casts import cast_array
from lakedex.expr.compute import cannot_evaluate, evaluate, truth
from lakedex.expr.kinds import Kind, kind_of
from lakedex.expr.nodes import Predicate, Scalar
from lakedex.expr.terms import unknown_conditions

__all__ = ["evaluate_scalar", "filter_rows", "truth_of_rows"]

_STORABLE: dict[Kind, frozenset[Kind]] = {
    Kind.NULL: frozenset(Kind),
    Kind.BOOL: frozenset({Kind.BOOL, Kind.STRING}),
    Kind.INT: frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.STRING}),
    Kind.FLOAT: frozenset({Kind.FLOAT, Kind.DOUBLE, Kind.INT}),
    Kind.DOUBLE: frozenset({Kind.FLOAT, Kind.DOUBLE, Kind.INT}),
    Kind.DECIMAL: frozenset({Kind.DECIMAL, Kind.INT, Kind.FLOAT, Kind.DOUBLE}),
    Kind.STRING: frozenset({Kind.STRING}),
    Kind.BINARY: frozenset({Kind.BINARY}),
    Kind.DATE: frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.LOCAL, Kind.STRING}),
    Kind.TIMESTAMP: frozenset({Kind.TIMESTAMP, Kind.DATE}),
    Kind.LOCAL: frozenset({Kind.LOCAL, Kind.DATE}),
}
"""What a value may be assigned to without a CAST: the part of Spark's store assignment that we convert."""


def truth_of_rows(predicate: Predicate, data: pa.Table | pa.RecordBatch) -> Any:
    """True, false or null per row.

    Raises:
        UnsupportedFeatureError: A condition in it cannot be judged; the error has its text.
    """
    unknown = unknown_conditions(predicate)
    if unknown:
        raise cannot_evaluate(unknown[0])
    return _per_batch(data, lambda batch: truth(predicate, batch), pa.bool_())


def filter_rows(predicate: Predicate, data: pa.Table | pa.RecordBatch) -> Any:
    """Say which rows a WHERE keeps: a mask without nulls (a null condition keeps no row).

    Returns:
        A BooleanArray for a record batch, a ChunkedArray for a table.

    Raises:
        UnsupportedFeatureError: A condition in it cannot be judged; the error has its text.
    """
    return pc.fill_null(truth_of_rows(predicate, data), False)


def evaluate_scalar(
    expression: Scalar, data: pa.Table | pa.RecordBatch, target_type: pa.DataType, *, timezone: str = "UTC"
) -> Any:
    """Compute a column, in the type of the column that it is assigned to.

    Raises:
        InvalidInputError: A value that does not fit the type, or an assignment that Spark refuses too.
        UnsupportedFeatureError: A conversion that lakedex does not do.
    """
    source, kind = kind_of(expression.type), kind_of(target_type)
    if kind not in _STORABLE[source]:
        raise UnsupportedFeatureError(
            f"cannot assign a value of type {expression.type} to a column of type {target_type}: write a CAST",
            feature=f"{expression.type} to {target_type}",
        )
    return _per_batch(data, lambda batch: cast_array(evaluate(expression, batch), target_type, timezone), target_type)


def _per_batch(data: pa.Table | pa.RecordBatch, compute: Any, data_type: Any) -> Any:
    if isinstance(data, pa.RecordBatch):
        return compute(data)
    if not isinstance(data, pa.Table):
        raise InvalidInputError(f"expected a pyarrow Table or RecordBatch, got {type(data).__name__}")
    return pa.chunked_array([compute(batch) for batch in data.to_batches()], data_type)
