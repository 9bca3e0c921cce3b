"""Check that values read from Parquet pages, which have no checksums, are valid for their columns' types.

Arrow copies pages into columns unchecked. Text that is not UTF-8, or a decimal with too many digits, then fails at
first use: in a caller's rows, in a condition or in a file written from them, where the source file is unknown. So
values are checked once, where rows leave their file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["check_values", "columns_to_validate"]


_NOT_ASCII = 0x80


def columns_to_validate(schema: pa.Schema) -> tuple[int, ...]:
    """Positions of columns with text, decimals or times of day, also nested ones."""
    return tuple(place for place, field in enumerate(schema) if _may_fail(field.type))


def check_values(rows: pa.RecordBatch | pa.Table, places: Sequence[int]) -> None:
    """Validate all values of some columns.

    Costs 5 to 10 % of decoding columns of ASCII text, some 5 % of a file that is mostly such, and a quarter of reading
    other text with dictionary pages; nothing for numbers.

    Raises:
        pa.ArrowInvalid: A value is not valid for its type; the message names the column.
    """
    for place in places:
        column = rows.column(place)
        for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            try:
                _check(array)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"column {rows.schema.names[place]!r}: {error}") from error


def _may_fail(kind: pa.DataType) -> bool:
    """Whether stored bytes of a column may be invalid for its type."""
    if pa.types.is_dictionary(kind):
        return _may_fail(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_may_fail(kind.field(place).type) for place in range(kind.num_fields))
    return bool(_is_text(kind) or pa.types.is_decimal(kind) or pa.types.is_time(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check(array: Any) -> None:
    kind = array.type
    if _is_text(kind):
        if not _is_ascii(array):
            array.validate(full=True)
    elif not _may_fail(kind):
        return
    elif pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _check(array.field(place))  # A field is sliced like its struct.
    elif pa.types.is_map(kind):
        for part in (array.keys, array.items):
            _check(_within(part, array.offsets))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check(_within(array.values, array.offsets))
    else:
        array.validate(full=True)


def _within(values: Any, offsets: Any) -> Any:
    """Elements of the lists in a slice."""
    first, last = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return values.slice(first, last - first)


def _is_ascii(array: Any) -> bool:
    """Whether all bytes are ASCII, as most text of tables is; one vectorized check per column."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return True
    width = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
    ends = np.frombuffer(offsets, width)[[array.offset, array.offset + len(array)]]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[1]]
    return not len(text) or bool(text.max() < _NOT_ASCII)
