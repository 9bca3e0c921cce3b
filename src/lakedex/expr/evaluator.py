"""Evaluate expressions over Arrow batches with Spark's meaning: compute columns, truth values and row filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.arithmetic import calculate
from lakedex.expr.casts import cast_array
from lakedex.expr.functions import FUNCTIONS
from lakedex.expr.like import like_regex
from lakedex.expr.nodes import (
    And,
    Arithmetic,
    Case,
    Cast,
    Column,
    Comparison,
    Function,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Scalar,
    Truth,
    Unknown,
    is_predicate,
)
from lakedex.expr.sort_keys import in_keys, literal_array, ordering_keys
from lakedex.expr.terms import children_of, to_text, unknown_conditions
from lakedex.expr.types import Kind, NotPrunableError, kind_of

__all__ = [
    "cannot_evaluate",
    "column_values",
    "evaluate",
    "evaluate_constant",
    "evaluate_scalar",
    "filter_rows",
    "truth",
    "truth_of_rows",
]


_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


_ONE_ROW = pa.record_batch({"": pa.nulls(1)})


def evaluate_constant(scalar: Scalar) -> Any:
    """Value of a scalar without columns, as an array of one element."""
    return evaluate(scalar, _ONE_ROW)


def column_values(column: Column, batch: pa.RecordBatch) -> pa.Array:
    """Array of a column, with nulls of its parents applied, in the type to which the predicate was bound."""
    index = batch.schema.get_field_index(column.path[0])
    if index < 0:
        names = ", ".join(batch.schema.names)
        raise InvalidInputError(f"column {column.path[0]!r} is not in the data (it has {names})", column=column.path[0])
    values: Any = batch.column(index)
    for part in column.path[1:]:
        values = pc.struct_field(values, part)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


def evaluate(scalar: Scalar, batch: pa.RecordBatch) -> Any:
    """Values of a scalar, as an array of the batch's length."""
    if isinstance(scalar, Column):
        values = column_values(scalar, batch)
        if pa.types.is_nested(scalar.type):
            return values
        same = kind_of(values.type) is kind_of(scalar.type) and kind_of(scalar.type) not in (Kind.DECIMAL, Kind.INT)
        return values if same or values.type == scalar.type else cast_array(values, scalar.type)
    if isinstance(scalar, Literal):
        return pa.repeat(literal_array(scalar)[0], batch.num_rows)
    if isinstance(scalar, Truth):
        return truth(scalar.operand, batch)
    if isinstance(scalar, Case):
        return _case(scalar, batch)
    try:
        if isinstance(scalar, Cast):
            values = evaluate(scalar.operand, batch)
            return cast_array(values, scalar.type, scalar.timezone, attempt=scalar.attempt)
        if isinstance(scalar, Arithmetic):
            return _arithmetic(scalar, batch)
        return _coalesce(scalar, batch) if scalar.name == "coalesce" else _function(scalar, batch)
    except (NotPrunableError, UnsupportedFeatureError) as error:
        text = to_text(scalar)
        raise UnsupportedFeatureError(f"cannot evaluate {text} outside Spark: {error}", feature=text) from error
    except (InvalidInputError, pa.ArrowException, OverflowError) as error:
        raise _named(scalar, error) from error


def _named(scalar: Scalar, error: Exception) -> Exception:
    """Error that names the innermost expression in which ``error`` was raised."""
    if "expression" in error.__dict__:
        return error
    text = to_text(scalar)
    return InvalidInputError(f"{text}: {error}", expression=text)


def _arguments(scalars: Sequence[Scalar], batch: pa.RecordBatch, *, strict: bool) -> list[Any]:
    """Values of arguments: an array for the first, scalars for literals among the others.

    If null makes the result null, Spark skips the arguments after it: they are evaluated only for the other rows, as
    they may fail.
    """
    found: list[Any] = []
    known: Any = None
    for scalar in scalars:
        if found and isinstance(scalar, Literal):
            found.append(literal_array(scalar)[0])
            continue
        if known is not None and strict and may_fail(scalar):
            values = _spread(evaluate(scalar, batch.filter(known)), known)
        else:
            values = evaluate(scalar, batch)
        found.append(values)
        if strict and values.null_count:
            known = values.is_valid() if known is None else pc.and_(known, values.is_valid())
    return found


def _spread(values: Any, rows: Any) -> Any:
    """Spread values of the selected rows over all rows; null in the others."""
    chosen = rows.to_numpy(zero_copy_only=False)
    places = np.cumsum(chosen) - 1
    return values.take(pa.array(np.where(chosen, places, 0), mask=~chosen))


def _has_null(scalars: Sequence[Scalar]) -> bool:
    """Whether one is the literal NULL; Spark then evaluates none of the others."""
    return any(isinstance(scalar, Literal) and scalar.value is None for scalar in scalars)


def _arithmetic(node: Arithmetic, batch: pa.RecordBatch) -> pa.Array:
    sides = (node.left, node.right)
    if _has_null(sides):
        return pa.nulls(batch.num_rows, node.type)
    divides = node.op not in ("+", "-", "*")  # Spark evaluates the divisor first
    found = _arguments(sides[::-1] if divides else sides, batch, strict=True)
    left, right = (pa.repeat(side, batch.num_rows) if isinstance(side, pa.Scalar) else side for side in found)
    return calculate(node.op, *((right, left) if divides else (left, right)), node.type)


def _dividend_and_divisor(scalars: Sequence[Scalar], batch: pa.RecordBatch) -> list[Any]:
    """Evaluate the dividend only where the divisor is neither null nor zero."""
    divisor = evaluate(scalars[1], batch)
    known = pc.fill_null(pc.not_equal(divisor, cast_array(pa.array([0], pa.int32()), divisor.type)[0]), False)
    return [_spread(evaluate(scalars[0], batch.filter(known)), known), divisor]


def _function(node: Function, batch: pa.RecordBatch) -> pa.Array:
    spec = FUNCTIONS[node.name]
    if spec.strict and _has_null(node.arguments):
        return pa.nulls(batch.num_rows).cast(node.type)
    if spec.divisor_first:
        arguments = _dividend_and_divisor(node.arguments, batch)
    else:
        arguments = _arguments(node.arguments, batch, strict=spec.strict)
    settings = {"timezone": node.timezone} if spec.zoned else {}
    return spec.compute(*arguments, **settings, **({"result": node.type} if spec.typed else {}))


def _coalesce(node: Function, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate each argument only for the rows without a value so far."""
    result = evaluate(node.arguments[0], batch)
    for argument in node.arguments[1:]:
        open_rows = result.is_null()
        if not pc.any(open_rows).as_py():
            break
        result = _replaced(result, open_rows, evaluate(argument, batch.filter(open_rows)))
    return result


def _replaced(values: Any, rows: Any, others: Any) -> Any:
    """Replace the values of some rows, in the type of ``values``."""
    if others.type != values.type:
        others = others.cast(values.type)
    return pc.replace_with_mask(values, rows, others)


def _case(node: Case, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate each branch only for the rows that take it, as its expression may fail on others."""
    rows = batch.num_rows
    rest = pa.repeat(pa.scalar(True), rows)
    result: Any = pa.nulls(rows).cast(node.type)
    for condition, value in (*node.branches, (None, node.otherwise)):
        taken = rest
        if condition is not None:
            found = _on_rows(condition, batch, rest)
            taken = pc.and_(rest, pc.fill_null(found, False))
            rest = pc.and_not(rest, taken)
        values = evaluate(value, batch.filter(taken))
        values = values if values.type == node.type else cast_array(values, node.type)
        result = pc.replace_with_mask(result, taken, values)
    return result


def _on_rows(condition: Predicate, batch: pa.RecordBatch, rows: Any) -> pa.Array:
    """Truth values of a condition for some rows; null for the others."""
    return pc.replace_with_mask(pa.nulls(batch.num_rows, pa.bool_()), rows, truth(condition, batch.filter(rows)))


def truth(node: Predicate, batch: pa.RecordBatch) -> pa.Array:
    """True, false or null per row: a BooleanArray of the batch's length.

    Raises:
        UnsupportedFeatureError: The predicate has a condition that lakedex cannot evaluate.
    """
    if isinstance(node, And | Or):
        return _chain(node, batch)
    if isinstance(node, Not):
        return pc.invert(truth(node.operand, batch))
    if isinstance(node, Literal):
        return pa.repeat(pa.scalar(node.value, pa.bool_()), batch.num_rows)
    if isinstance(node, IsNull):
        return _is_null(node.operand, batch)
    if isinstance(node, Comparison):
        return _comparison(node, batch)
    if isinstance(node, In):
        return _in(node, batch)
    if isinstance(node, Like):
        text = evaluate(node.operand, batch).cast(pa.large_string())
        return pc.match_substring_regex(text, like_regex(node.pattern, node.escape))
    raise cannot_evaluate(node)


def cannot_evaluate(node: Unknown) -> UnsupportedFeatureError:
    """Error for a condition that only Spark can evaluate."""
    reason = f": {node.reason}" if node.reason else ""
    return UnsupportedFeatureError(
        f"cannot evaluate {node.text!r} outside Spark{reason}; evaluate it in Spark: scan(where).to_spark() or a filter"
        " on a Spark DataFrame",
        feature=node.text,
    )


def _chain(node: And | Or, batch: pa.RecordBatch) -> pa.Array:
    combine = pc.and_kleene if isinstance(node, And) else pc.or_kleene
    result = truth(node.operands[0], batch)
    for operand in node.operands[1:]:
        if may_fail(operand):
            # Guards such as x <> 0 AND 1 / x > 2: evaluate the right side only for rows that the left does not decide.
            open_rows = pc.fill_null(result if isinstance(node, And) else pc.invert(result), True)
            found = _on_rows(operand, batch, open_rows)
        else:
            found = truth(operand, batch)
        result = combine(result, found)
    return result


def may_fail(node: Predicate | Scalar) -> bool:
    """Whether evaluating a node may fail for some rows."""
    if isinstance(node, In):
        return may_fail(node.operand)
    return isinstance(node, Arithmetic | Cast | Function) or any(may_fail(child) for child in children_of(node))


def _is_null(operand: Scalar | Predicate, batch: pa.RecordBatch) -> pa.Array:
    if is_predicate(operand):
        return truth(operand, batch).is_null()  # type: ignore[arg-type]
    if isinstance(operand, Column):
        return column_values(operand, batch).is_null()
    return evaluate(operand, batch).is_null()  # type: ignore[arg-type]


def _comparison(node: Comparison, batch: pa.RecordBatch) -> pa.Array:
    sides = _arguments((node.left, node.right), batch, strict=node.op != "<=>")
    left = ordering_keys(sides[0])
    one_value = isinstance(node.right, Literal)
    right = ordering_keys(literal_array(node.right))[0] if isinstance(node.right, Literal) else ordering_keys(sides[1])
    if node.op != "<=>":
        return _COMPARE[node.op](left, right)
    equal = pc.fill_null(pc.equal(left, right), False)
    if one_value:
        return equal if right.is_valid else left.is_null()
    return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))


def _in(node: In, batch: pa.RecordBatch) -> pa.Array:
    keys = ordering_keys(evaluate(node.operand, batch))
    known = in_keys(node)
    found = pa.repeat(pa.scalar(False), len(keys)) if known is None else pc.is_in(keys, value_set=known)
    undecided = keys.is_null()
    if (0 if known is None else len(known)) < len(node.values):
        undecided = pc.or_(undecided, pc.invert(found))
    return pc.if_else(undecided, pa.scalar(None, pa.bool_()), found)


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
"""Types to which a value can be assigned without a CAST: the supported part of Spark's store assignment."""


def truth_of_rows(predicate: Predicate, data: pa.Table | pa.RecordBatch) -> pa.Array:
    """True, false or null per row.

    Raises:
        UnsupportedFeatureError: A condition cannot be evaluated; the message quotes it.
    """
    unknown = unknown_conditions(predicate)
    if unknown:
        raise cannot_evaluate(unknown[0])
    return _per_batch(data, lambda batch: truth(predicate, batch), pa.bool_())


def filter_rows(predicate: Predicate, data: pa.Table | pa.RecordBatch) -> pa.Array:
    """Compute the mask of rows that a WHERE selects; it has no nulls, as a null condition selects no row.

    Returns:
        BooleanArray for a record batch, a ChunkedArray for a table.

    Raises:
        UnsupportedFeatureError: A condition cannot be evaluated; the message quotes it.
    """
    return pc.fill_null(truth_of_rows(predicate, data), False)


def evaluate_scalar(
    expression: Scalar, data: pa.Table | pa.RecordBatch, target_type: pa.DataType, *, timezone: str = "UTC"
) -> Any:
    """Compute a column in the type of the target column.

    Raises:
        InvalidInputError: A value does not fit the type, or Spark refuses the assignment too.
        UnsupportedFeatureError: The conversion is unsupported.
    """
    if pa.types.is_null(expression.type):
        return _per_batch(data, lambda batch: pa.nulls(batch.num_rows, target_type), target_type)
    if pa.types.is_nested(target_type) and expression.type == target_type:
        return _per_batch(data, lambda batch: evaluate(expression, batch), target_type)
    if not _is_storable(expression.type, target_type):
        raise UnsupportedFeatureError(
            f"cannot assign a value of type {expression.type} to a column of type {target_type}: write a CAST",
            feature=f"{expression.type} to {target_type}",
        )
    return _per_batch(data, lambda batch: cast_array(evaluate(expression, batch), target_type, timezone), target_type)


def _is_storable(source: pa.DataType, target: pa.DataType) -> bool:
    try:
        return kind_of(target) in _STORABLE[kind_of(source)]
    except NotPrunableError:
        return False


def _per_batch(data: pa.Table | pa.RecordBatch, compute: Any, data_type: Any) -> Any:
    if isinstance(data, pa.RecordBatch):
        return compute(data)
    if not isinstance(data, pa.Table):
        raise InvalidInputError(f"expected a pyarrow Table or RecordBatch, got {type(data).__name__}")
    return pa.chunked_array([compute(batch) for batch in data.to_batches()], data_type)
