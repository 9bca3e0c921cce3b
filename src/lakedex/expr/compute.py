"""Values and truth of expressions over Arrow batches, with Spark's meaning: whole columns at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.casts import cast_array
from lakedex.expr.keys import in_keys, literal_array, ordering_keys
from lakedex.expr.kinds import Kind, kind_of
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
    is_predicate,
)
from lakedex.expr.patterns import like_regex
from lakedex.expr.terms import children_of

__all__ = ["column_values", "evaluate", "evaluate_constant", "truth"]

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked, "/": pc.divide}
_ONE_ROW = pa.record_batch({"": pa.array([0])})


def evaluate_constant(scalar: Scalar) -> Any:
    """The value of a scalar without columns, as an array of one."""
    return evaluate(scalar, _ONE_ROW)


def column_values(column: Column, batch: pa.RecordBatch) -> Any:
    """A column's array, nested fields with their parents' nulls, in the type the predicate was bound to."""
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
    """The values of a scalar: an array of the batch's length."""
    if isinstance(scalar, Column):
        values = column_values(scalar, batch)
        same = kind_of(values.type) is kind_of(scalar.type) and kind_of(scalar.type) not in (Kind.DECIMAL, Kind.INT)
        return values if same or values.type == scalar.type else cast_array(values, scalar.type)
    if isinstance(scalar, Literal):
        return pa.repeat(literal_array(scalar)[0], batch.num_rows)
    if isinstance(scalar, Cast):
        return cast_array(evaluate(scalar.operand, batch), scalar.type, scalar.timezone)
    if isinstance(scalar, Arithmetic):
        return _arithmetic(scalar, batch)
    if isinstance(scalar, Case):
        return _case(scalar, batch)
    return _function(scalar, [evaluate(a, batch) for a in scalar.arguments])


def _arithmetic(node: Arithmetic, batch: pa.RecordBatch) -> Any:
    left, right = evaluate(node.left, batch), evaluate(node.right, batch)
    kind = kind_of(node.type)
    try:
        if node.op in "/%":
            zero = pc.and_(pc.equal(right, pa.scalar(0, right.type)), left.is_valid())
            if pc.any(zero).as_py():
                raise InvalidInputError("division by zero (null in Spark, an error in ANSI Spark): guard it with CASE")
        if node.op == "%":
            return _remainder(left, right, node.type)
        if kind.is_float or kind is Kind.DECIMAL:
            plain = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}[node.op](left, right)
            return plain if plain.type == node.type else plain.cast(node.type)
        return _CHECKED[node.op](left, right)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{node.op} does not fit {node.type}: {error}") from error


def _remainder(left: Any, right: Any, data_type: pa.DataType) -> Any:
    null = pc.or_(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
    one = pa.scalar(1, right.type)
    top, bottom = (pc.fill_null(side, one).to_numpy(zero_copy_only=False) for side in (left, right))
    with np.errstate(all="ignore"):
        return pa.array(np.fmod(top, bottom), data_type, mask=null)


def _case(node: Case, batch: pa.RecordBatch) -> Any:
    """Each branch only over the rows that take it: its expression may fail on the others."""
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


def _on_rows(condition: Predicate, batch: pa.RecordBatch, rows: Any) -> Any:
    """The truth of a condition on some rows; null on the others."""
    return pc.replace_with_mask(pa.nulls(batch.num_rows, pa.bool_()), rows, truth(condition, batch.filter(rows)))


def _function(node: Function, arguments: list[Any]) -> Any:
    first = arguments[0]
    if node.name == "negate":
        try:
            return pc.negate(first) if pa.types.is_decimal(first.type) else pc.negate_checked(first)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"- does not fit {node.type}: {error}") from error
    if node.name == "coalesce":
        return pc.coalesce(*(a if a.type == node.type else a.cast(node.type) for a in arguments))
    if node.name == "concat":
        return pc.binary_join_element_wise(*(a.cast(pa.string()) for a in arguments), "")
    if node.name == "isnan":
        return pc.fill_null(pc.is_nan(first), False)
    text = first.cast(pa.string())
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return pc.ascii_upper(text) if node.name == "upper" else pc.ascii_lower(text)
    # Java maps one character to several where Unicode says so (ß to SS); Arrow does not, Python does.
    encoded = pc.dictionary_encode(text)
    changed = [t.upper() if node.name == "upper" else t.lower() for t in encoded.dictionary.to_pylist()]
    return pa.array(changed, pa.string()).take(encoded.indices)


def truth(node: Predicate, batch: pa.RecordBatch) -> Any:
    """True, false or null per row: a BooleanArray of the batch's length.

    Raises:
        UnsupportedFeatureError: The predicate has a condition that lakedex cannot judge.
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
    raise UnsupportedFeatureError(
        f"cannot evaluate {node.text!r} outside Spark: filter with a Spark DataFrame instead", feature=node.text
    )


def _chain(node: And | Or, batch: pa.RecordBatch) -> Any:
    combine = pc.and_kleene if isinstance(node, And) else pc.or_kleene
    result = truth(node.operands[0], batch)
    for operand in node.operands[1:]:
        if _may_fail(operand):
            # Guards such as x <> 0 AND 1 / x > 2: the right side is for rows that the left leaves open.
            open_rows = pc.fill_null(result if isinstance(node, And) else pc.invert(result), True)
            found = _on_rows(operand, batch, open_rows)
        else:
            found = truth(operand, batch)
        result = combine(result, found)
    return result


def _may_fail(node: Predicate | Scalar) -> bool:
    if isinstance(node, In):
        return _may_fail(node.operand)
    return isinstance(node, Arithmetic | Cast | Function) or any(_may_fail(child) for child in children_of(node))


def _is_null(operand: Scalar | Predicate, batch: pa.RecordBatch) -> Any:
    if is_predicate(operand):
        return truth(operand, batch).is_null()  # type: ignore[arg-type]
    if isinstance(operand, Column):
        return column_values(operand, batch).is_null()
    return evaluate(operand, batch).is_null()  # type: ignore[arg-type]


def _comparison(node: Comparison, batch: pa.RecordBatch) -> Any:
    left, right = (_keys(side, batch) for side in (node.left, node.right))
    if node.op != "<=>":
        return _COMPARE[node.op](left, right)
    equal = pc.fill_null(pc.equal(left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _keys(side: Scalar, batch: pa.RecordBatch) -> Any:
    if isinstance(side, Literal):
        return ordering_keys(literal_array(side))[0]
    return ordering_keys(evaluate(side, batch))


def _in(node: In, batch: pa.RecordBatch) -> Any:
    keys = ordering_keys(evaluate(node.operand, batch))
    known = in_keys(node)
    found = pa.repeat(pa.scalar(False), len(keys)) if known is None else pc.is_in(keys, value_set=known)
    undecided = keys.is_null()
    if (0 if known is None else len(known)) < len(node.values):
        undecided = pc.or_(undecided, pc.invert(found))
    return pc.if_else(undecided, pa.scalar(None, pa.bool_()), found)
