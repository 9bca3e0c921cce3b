"""Ordering values: which of two versions of a row is the newer, as Java compares them, on whole columns.

Null is the smallest; an int that is null counts as 0, which is Java's default ordering value. NaN is the largest and
-0.0 is below 0.0 (``Double.compareTo``). Text compares by its UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import UnsupportedFeatureError

__all__ = ["compare", "delete_values", "ranks", "sortable"]

_WRAPPER_SCALE = 15
_INTEGERS = ("Int", "Long", "Date", "TimestampMicros", "TimeMicros", "LocalDate")


def sortable(column: Any) -> Any:
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


def ranks(column: Any) -> npt.NDArray[np.int64]:
    """Numbers in the order of a column's values; equal values have equal ones, nulls the smallest."""
    found = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    numbers: npt.NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(_flag(column.is_null()), 0, numbers)


def compare(left: Sequence[Any], right: Sequence[Any], rows: int) -> npt.NDArray[np.int64]:
    """-1, 0 or 1 for each row: how the values of ``left`` stand to those of ``right``, column by column."""
    answer = np.zeros(rows, np.int64)
    for ours, theirs in zip(left, right, strict=True):
        step = _sign(pc.greater(ours, theirs)) - _sign(pc.less(ours, theirs))
        step = np.where(_flag(ours.is_null()), -1, np.where(_flag(theirs.is_null()), 1, step))
        step[_flag(ours.is_null()) & _flag(theirs.is_null())] = 0
        answer = np.where(answer == 0, step, answer)
    return answer


def _flag(array: Any) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = array.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _sign(array: Any) -> npt.NDArray[np.int64]:
    return _flag(array).astype(np.int64)


def delete_values(
    stored: Sequence[Any], kinds: Sequence[pa.DataType], path: str
) -> tuple[npt.NDArray[np.bool_], list[Any]]:
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
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-_WRAPPER_SCALE)
    same = (
        (name == "String" and pa.types.is_string(kind))
        or (name == "Boolean" and pa.types.is_boolean(kind))
        or (name == "Bytes" and pa.types.is_binary(kind))
    )
    if not same:
        raise _unlike(path, f"a {name} as ordering value of a delete", f"the column's {kind}")
    return value


def _built(values: list[Any], kind: pa.DataType) -> Any:
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
