"""Encode Arrow columns as Avro datums, column by column: the reverse of :mod:`lakedex.codec.avro_vectorized`.

The Avro schema is the one that :func:`lakedex.codec.avro_schema.arrow_to_avro` makes of the Arrow schema: a nullable
field is a union with null first, a decimal a fixed, as short as can be. Each value becomes an entry of a binary array;
the entries of a row are joined, those of the elements of a list are neighbours and need no copy.

Memory: about three times the datums of one call. A call encodes up to 2 GiB, so callers give it some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.types import IntArray

__all__ = ["encode_datums", "encode_numbers", "encode_texts", "encode_values", "joined", "runs_of"]


_NULL, _VALUE, _END = b"\x00", b"\x02", b"\x00"
"""Places of the two branches of a union, and the end of an array or map."""


_DECIMAL_BYTES = 16


def encode_datums(rows: pa.RecordBatch) -> pa.BinaryArray:
    """One datum for each row.

    Raises:
        InvalidInputError: a column of a type that a Hudi table cannot store; names it.
    """
    parts: list[Any] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        try:
            parts += _field(column, field)
        except InvalidInputError as error:
            raise InvalidInputError(f"column {field.name!r}: {error}", column=field.name) from error
    return joined(parts, rows.num_rows)


def encode_values(column: pa.Array) -> pa.BinaryArray:
    """The values of a column; nulls as some value of its type."""
    return joined(_values(column), len(column))


def encode_texts(column: pa.Array) -> pa.BinaryArray:
    """Strings or bytes with their lengths."""
    return joined(_text(column), len(column))


def encode_numbers(numbers: npt.NDArray[np.integer[Any]]) -> pa.BinaryArray:
    """Zigzag numbers of up to ten bytes."""
    signed = numbers.astype(np.int64, copy=False)
    plain = (signed.view(np.uint64) << np.uint64(1)) ^ (signed >> np.int64(63)).view(np.uint64)
    sizes = np.ones(len(plain), np.int64)
    for place in range(1, 10):
        more = plain >= np.uint64(1) << np.uint64(7 * place)
        if not more.any():
            break
        sizes += more
    places = np.arange(int(sizes.max(initial=1)))
    groups = (plain[:, None] >> (np.uint64(7) * places.astype(np.uint64))) & np.uint64(0x7F)
    groups |= np.where(places < (sizes - 1)[:, None], np.uint64(0x80), np.uint64(0))
    data = groups.astype(np.uint8)[places < sizes[:, None]]
    return _binary(data, np.concatenate([[0], np.cumsum(sizes)]))


def joined(parts: Sequence[Any], rows: int) -> pa.BinaryArray:
    """The bytes of several columns, some of which may be constants, row by row."""
    if not any(isinstance(part, pa.Array) for part in parts):
        parts = [pa.array([b"".join(parts)] * rows, pa.binary())]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, bytes) else p for p in parts), b"")


def runs_of(entries: pa.BinaryArray, edges: IntArray) -> pa.BinaryArray:
    """Entries ``edges[i]`` to ``edges[i + 1]`` as entry ``i``, without a copy."""
    _, offsets, data = entries.buffers()
    ends = np.frombuffer(offsets, np.int32)[entries.offset : entries.offset + len(entries) + 1]
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(ends[edges].copy()), data])


def _field(column: Any, field: Any) -> list[Any]:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if not field.nullable:
        return _values(column)
    if not column.null_count:
        return [_VALUE, *_values(column)]
    if column.null_count == len(column):
        return [_NULL]
    values = joined([_VALUE, *_values(column)], len(column))
    return [pc.if_else(column.is_valid(), values, pa.scalar(_NULL))]


def _values(column: Any) -> list[Any]:
    kind = column.type
    for test, encode in _ENCODERS:
        if test(kind):
            return encode(column)
    raise InvalidInputError(f"lakedex does not write {kind} into log files")


def _integer(column: Any) -> list[Any]:
    width = pa.int64() if column.type.bit_width == 64 else pa.int32()
    plain = column.view(width) if pa.types.is_temporal(column.type) else column
    return [encode_numbers(plain.fill_null(0).to_numpy(zero_copy_only=False))]


def _boolean(column: Any) -> list[Any]:
    bits = column.fill_null(False).to_numpy(zero_copy_only=False)
    return [_fixed(bits.astype(np.uint8)[:, None])]


def _float(column: Any) -> list[Any]:
    kind = "<f4" if column.type == pa.float32() else "<f8"
    numbers = np.ascontiguousarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), kind)
    return [_fixed(numbers.view(np.uint8).reshape(len(numbers), -1))]


def _text(column: Any) -> list[Any]:
    plain = column.cast(pa.string() if _is_text(column.type) else pa.binary()).fill_null("")
    return [encode_numbers(pc.binary_length(plain).to_numpy(zero_copy_only=False)), plain.cast(pa.binary())]


def _decimal(column: Any) -> list[Any]:
    size = (10**column.type.precision - 1).bit_length() // 8 + 1
    start = column.offset
    raw = np.frombuffer(column.buffers()[1], np.uint8)[_DECIMAL_BYTES * start :]
    # Stored with the lowest byte first; Avro has the highest first.
    return [_fixed(raw[: _DECIMAL_BYTES * len(column)].reshape(-1, _DECIMAL_BYTES)[:, size - 1 :: -1])]


def _struct(column: Any) -> list[Any]:
    places = range(column.type.num_fields)
    return [part for place in places for part in _field(column.field(place), column.type.field(place))]


def _list(column: Any) -> list[Any]:
    first, edges, lengths = _extent(column)
    items = column.values.slice(first, int(edges[-1]))
    return _collection(joined(_field(items, column.type.value_field), len(items)), edges, lengths)


def _map(column: Any) -> list[Any]:
    first, edges, lengths = _extent(column)
    keys = column.keys.slice(first, int(edges[-1]))
    items = column.items.slice(first, int(edges[-1]))
    entries = [*_values(keys), *_field(items, column.type.item_field)]
    return _collection(joined(entries, len(keys)), edges, lengths)


def _extent(column: Any) -> tuple[int, IntArray, IntArray]:
    """The first element, and where each row's elements start from there; with the end, and how many there are."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return int(offsets[0]), offsets - offsets[0], np.diff(offsets)


def _collection(entries: pa.BinaryArray, edges: IntArray, lengths: IntArray) -> list[Any]:
    """Elements of each row as one block of Avro's: their number, they, and the end; the end alone of none."""
    counts = encode_numbers(lengths)
    if not lengths.all():
        counts = pc.if_else(pa.array(lengths > 0), counts, pa.scalar(b""))
    return [counts, runs_of(entries, edges), _END]


def _fixed(values: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Values of one size, a row each."""
    rows, size = values.shape
    return _binary(np.ascontiguousarray(values), np.arange(rows + 1) * size)


def _binary(data: npt.NDArray[np.uint8], offsets: IntArray) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_ENCODERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], list[Any]]], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_date32, _integer),
    (pa.types.is_timestamp, _integer),
    (pa.types.is_time, _integer),
    (pa.types.is_float32, _float),
    (pa.types.is_float64, _float),
    (_is_text, _text),
    (pa.types.is_binary, _text),
    (pa.types.is_large_binary, _text),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (pa.types.is_map, _map),
)
