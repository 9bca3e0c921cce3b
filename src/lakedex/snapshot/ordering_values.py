"""Ordering values: compare whole columns of them as Java does, and read those of the deletes in log files.

Null is the smallest, and a null int counts as 0, Java's default ordering value. NaN is the largest and -0.0 is below
0.0 (``Double.compareTo``). Text compares by its UTF-8 bytes. Deletes hold theirs in the wrapper records of
``HoodieDeleteRecord`` (``HoodieAvroWrapperUtils``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.column_bounds import DECIMAL_SCALE
from lakedex.errors import UnsupportedFeatureError
from lakedex.types import BoolArray, IntArray, decimal_of

__all__ = ["compare", "delete_values", "is_true", "ranks", "sortable"]


_INTEGERS = ("Int", "Long", "Date", "TimestampMicros", "TimeMicros", "LocalDate")


def sortable(column: pa.Array) -> pa.Array:
    """A column whose own order is that of the ordering values: floats as ints of the same order."""
    kind = column.type
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float64())
        bits = pc.fill_null(wide, 0.0).to_numpy(zero_copy_only=False).view(np.int64)
        nan = np.isnan(bits.view(np.float64))
        bits = np.where(nan, np.int64(0x7FF8000000000000), bits)
        ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
        return pa.array(ordered, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.view(pa.int64())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    return column.fill_null(0) if kind == pa.int32() else column


def ranks(column: pa.Array) -> IntArray:
    """Numbers in the order of a column's values; equal values have equal ones, nulls the smallest."""
    found = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    numbers: IntArray = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(is_true(column.is_null()), 0, numbers)


def compare(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> IntArray:
    """-1, 0 or 1 for each row: how the values of ``left`` stand to those of ``right``, column by column."""
    answer = np.zeros(rows, np.int64)
    for ours, theirs in zip(left, right, strict=True):
        step = _sign(pc.greater(ours, theirs)) - _sign(pc.less(ours, theirs))
        step = np.where(is_true(ours.is_null()), -1, np.where(is_true(theirs.is_null()), 1, step))
        step[is_true(ours.is_null()) & is_true(theirs.is_null())] = 0
        answer = np.where(answer == 0, step, answer)
    return answer


def is_true(array: pa.BooleanArray) -> BoolArray:
    """A mask of conditions, null for False."""
    mask: BoolArray = array.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _sign(array: pa.Array) -> IntArray:
    return is_true(array).astype(np.int64)


def delete_values(stored: Sequence[Any], kinds: Sequence[pa.DataType], path: str) -> tuple[BoolArray, list[pa.Array]]:
    """Ordering values of the records of a delete block.

    Args:
        stored: for each record None, or the full name of a wrapper and the wrapper's record.
        kinds: types of the ordering columns.
        path: named in errors.

    Returns:
        Where a delete has none (Java writes the int 0), so that it wins over all that was before; and the columns.

    Raises:
        UnsupportedFeatureError: a value that cannot be compared with its column.
    """
    final = np.zeros(len(stored), bool)
    columns: list[list[Any]] = [[] for _ in kinds]
    for place, wrapped in enumerate(stored):
        name, value = _unwrapped(wrapped)
        if value is None or (name == "Int" and value == 0) or not kinds:
            final[place] = True
            parts: list[Any] = [(name, None)] * len(kinds)
        else:
            parts = [_unwrapped(part) for part in value] if name == "Array" else [(name, value)]
        if len(parts) != len(kinds):
            raise _unlike(path, f"{len(parts)} ordering values", f"{len(kinds)} ordering columns")
        for column, kind, (part_name, part) in zip(columns, kinds, parts, strict=True):
            column.append(None if part is None else _value(part_name, part, kind, path))
    try:
        return final, [_built(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise _unlike(path, "an ordering value", f"one of its column ({error})") from error


def _unwrapped(wrapped: Any) -> tuple[str, Any]:
    """Kind of a wrapper and what is in it."""
    if wrapped is None:
        return "", None
    name, record = wrapped
    kind = str(name).rpartition(".")[2].removesuffix("Wrapper")
    return kind, record["wrappedValues"] if kind == "Array" else record["value"]


def _value(name: str, value: Any, kind: pa.DataType, path: str) -> Any:
    """A wrapper's value as the physical value of a column's type."""
    if name in _INTEGERS and (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        if name == "TimestampMicros" and pa.types.is_timestamp(kind) and kind.unit == "ms":
            return value // 1000
        return value
    if name in ("Float", "Double", "Int", "Long") and pa.types.is_floating(kind):
        return float(value)
    if name == "Decimal" and pa.types.is_decimal(kind):
        return decimal_of(int.from_bytes(value, "big", signed=True), DECIMAL_SCALE)
    same = (
        (name == "String" and pa.types.is_string(kind))
        or (name == "Boolean" and pa.types.is_boolean(kind))
        or (name == "Bytes" and pa.types.is_binary(kind))
    )
    if not same:
        raise _unlike(path, f"a {name} as ordering value of a delete", f"the column's {kind}")
    return value


def _built(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def _unlike(path: str, found: str, wanted: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{path}: {found} cannot be compared with {wanted}; have Hudi compact the table, or read it with Hudi",
        feature="ordering value of a delete",
    )
