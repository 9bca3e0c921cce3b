"""Encode the contents of a log file's blocks from columns: data blocks, delete blocks, and positions of their records.

The layouts are in :mod:`lakedex.codec.avro_vectorized` (AVRO_DATA) and :mod:`lakedex.codec.log_block` (DELETE).
``RECORD_POSITIONS`` is a roaring bitmap of 64-bit numbers in its portable form, in base64: the n-th record of a block
is for the n-th position, so records are in the order of their positions (``HoodieLogBlock``, ``LogReaderUtils``).
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakedex.codec.avro import schema
from lakedex.codec.avro_columns import encode_datums, encode_numbers, encode_texts, encode_values, joined
from lakedex.codec.column_bounds import DECIMAL_PRECISION, DECIMAL_SCALE
from lakedex.codec.roaring import bitmap_of, deserialize_bitmap, serialize_bitmap
from lakedex.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lakedex.lossless_cast import to_decimals

__all__ = ["AvroBlock", "decode_positions", "delete_block_content", "encode_positions", "require_ordering_type"]


_VERSION = 3


_ROWS_AT_ONCE = 32_768


class AvroBlock:
    """Content of an AVRO_DATA block, from batches of rows. Memory: the encoded rows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.rows = 0
        self.size = 2 * 4

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows.

        Raises:
            InvalidInputError: a column of a type that a Hudi table cannot store.
        """
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            datums = encode_datums(rows.slice(start, _ROWS_AT_ONCE))
            sizes = pc.binary_length(datums).to_numpy(zero_copy_only=False)
            heads = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(4), len(datums), [None, pa.py_buffer(sizes.astype(">i4"))]
            )
            self._parts.append(_bytes_of(joined([heads.cast(pa.binary()), datums], len(datums))))
            self.size += len(self._parts[-1])
        self.rows += rows.num_rows

    def content(self) -> bytes:
        """The block's content."""
        return b"".join((struct.pack(">ii", _VERSION, self.rows), *self._parts))


def encode_positions(positions: npt.NDArray[np.integer[Any]]) -> str:
    """The header ``RECORD_POSITIONS`` of a block whose records are for these rows of the base file, ascending."""
    bitmap = serialize_bitmap(bitmap_of(positions.astype(np.uint32)))
    return base64.b64encode(struct.pack("<qi", 1, 0) + bitmap).decode("ascii")


def decode_positions(text: str, path: str = "") -> BitMap:
    """The rows of the base file in a header ``RECORD_POSITIONS``.

    Raises:
        CorruptFileError: it is not of this form, or a row is beyond those that Hudi can number.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptFileError(path, 0, "base64 of record positions", f"{text[:40]!r}: {error}") from error
    if data == struct.pack("<q", 0):
        return BitMap()
    if len(data) < 12 or struct.unpack_from("<qi", data) != (1, 0):
        raise CorruptFileError(path, 0, "record positions below 2 ** 32", f"{data[:12].hex()}")
    return deserialize_bitmap(data[12:], path=path)


def delete_block_content(keys: pa.Array, partition: str, ordering: Sequence[pa.Array]) -> bytes:
    """The content of a delete block.

    Args:
        keys: record keys.
        partition: their partition path.
        ordering: the columns of the ordering values with which the keys are deleted. A key without any (none at all,
            or all null) is deleted as of the commit, for which Java writes the int 0.

    Raises:
        InvalidInputError: an ordering column of a type that has no wrapper.
        UnsupportedFeatureError: a decimal that its wrapper cannot hold.
    """
    rows = len(keys)
    zero = _branch("Int") + b"\x00"
    values: Any = zero
    if ordering:
        known = pc.invert(ordering[0].is_null())
        for column in ordering[1:]:
            known = pc.or_(known, column.is_valid())
        values = _wrapped(ordering[0]) if len(ordering) == 1 else _array_of(ordering)
        values = pc.if_else(known, values, pa.scalar(zero))
    path = _bytes_of(encode_texts(pa.array([partition])))
    records = joined([b"\x02", encode_texts(keys), b"\x02" + path, values], rows)
    count = _bytes_of(encode_numbers(np.array([rows])))
    datum = b"".join((count, _bytes_of(records), b"\x00")) if rows else b"\x00"
    return struct.pack(">ii", _VERSION, len(datum)) + datum


def require_ordering_type(kind: pa.DataType) -> None:
    """Check that values of a type can order deletes.

    Raises:
        InvalidInputError: they cannot.
    """
    _wrapper_of(kind)


def _array_of(ordering: Sequence[pa.Array]) -> pa.BinaryArray:
    """Several ordering values of a record in an ArrayWrapper, whose elements may be null."""
    elements = [pc.if_else(column.is_valid(), _wrapped(column, inside=True), pa.scalar(b"\x00")) for column in ordering]
    count = _bytes_of(encode_numbers(np.array([len(ordering)])))
    return joined([_branch("Array") + b"\x02" + count, *elements, b"\x00"], len(ordering[0]))


def _wrapped(column: Any, *, inside: bool = False) -> pa.BinaryArray:
    """Values in the wrapper of their type; of nulls some value."""
    kind = column.type
    name = _wrapper_of(kind)
    if pa.types.is_decimal(kind):
        column = _unscaled(column)
    elif pa.types.is_timestamp(kind) and kind.unit == "ms":
        column = pc.multiply(column.view(pa.int64()), 1000)
    return joined([_branch(name, inside=inside), encode_values(column)], len(column))


def _unscaled(column: Any) -> pa.Array:
    """Decimals as the shortest numbers of bytes, of the wrapper's scale."""
    try:
        scaled = to_decimals(column, pa.decimal128(DECIMAL_PRECISION, DECIMAL_SCALE)).fill_null(Decimal(0))
    except pa.ArrowInvalid as error:
        raise UnsupportedFeatureError(
            f"a value of the ordering column ({column.type}) has more than 15 digits before or after the point, which "
            "the deletes of Hudi's log files cannot hold (DecimalWrapper); order by another column",
            feature="deletes by long decimals",
        ) from error
    raw = np.frombuffer(scaled.buffers()[1], np.uint8).reshape(-1, 16)[scaled.offset :][: len(scaled), ::-1]
    sign = np.where(raw[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # A leading byte says nothing where it and the next bit repeat the sign.
    same = (raw[:, :-1] == sign) & ((raw[:, 1:] >= 0x80) == (sign >= 0x80))
    skipped = np.cumprod(same, axis=1).sum(axis=1)
    data = raw[np.arange(16) >= skipped[:, None]]
    ends = np.concatenate([[0], np.cumsum(16 - skipped)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(scaled), [None, pa.py_buffer(ends), pa.py_buffer(data)])


_WRAPPERS = (
    (pa.types.is_boolean, "Boolean"),
    (pa.types.is_int64, "Long"),
    (pa.types.is_signed_integer, "Int"),
    (pa.types.is_float32, "Float"),
    (pa.types.is_float64, "Double"),
    (pa.types.is_string, "String"),
    (pa.types.is_binary, "Bytes"),
    (pa.types.is_date32, "Date"),
    (pa.types.is_decimal128, "Decimal"),
    (pa.types.is_timestamp, "TimestampMicros"),
)


def _wrapper_of(kind: pa.DataType) -> str:
    found = next((name for test, name in _WRAPPERS if test(kind)), None)
    if found is None:
        raise InvalidInputError(f"values of type {kind} cannot order the rows of a merge-on-read table")
    return found


@lru_cache(maxsize=64)
def _branch(name: str, *, inside: bool = False) -> bytes:
    """Place of a wrapper in its union: that of a record, or that of the elements of an array of values."""
    (records,) = schema("HoodieDeleteRecordList")["fields"]
    union = next(f["type"] for f in records["type"]["items"]["fields"] if f["name"] == "orderingVal")
    if inside:
        array = next(one for one in union if isinstance(one, dict) and one["name"] == "ArrayWrapper")
        union = array["fields"][0]["type"][1]["items"]
    names = [one if isinstance(one, str) else one["name"] for one in union]
    return _bytes_of(encode_numbers(np.array([names.index(f"{name}Wrapper")])))


def _bytes_of(entries: pa.BinaryArray) -> bytes:
    """All entries in a row."""
    _, offsets, data = entries.buffers()
    ends = np.frombuffer(offsets, np.int32)[entries.offset : entries.offset + len(entries) + 1]
    return b"" if data is None else bytes(memoryview(data)[int(ends[0]) : int(ends[-1])])
