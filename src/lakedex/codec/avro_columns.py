"""Avro datums of one schema as Arrow columns: the content of AVRO_DATA log blocks, and the values of HFILE_DATA ones.

    ======  ====================================================================
    bytes   content of an AVRO_DATA block (big-endian)
    ======  ====================================================================
    4       version of the content: 1 to 3, which do not differ
    4       number of records
    n       for each record its size (4 bytes) and its datum
    ======  ====================================================================

In Hudi: ``HoodieAvroDataBlock`` (1.1.1).

Flat schemas are read column by column (:mod:`lakedex.codec.avro_vector`). Those with lists or maps go to fastavro, many
datums in one call, whose values Arrow takes over. Both give physical values; logical types are put on whole columns
afterwards. Memory: the Python values of ``ROWS_AT_ONCE`` records besides the columns.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from lakedex.codec.avro import DATUM_FAILURES
from lakedex.codec.avro_schema import avro_to_arrow
from lakedex.codec.avro_shape import check_shape
from lakedex.codec.avro_vector import Datums, FlatType, flat_type, read_columns
from lakedex.codec.vectors import vector_bytes, vectors
from lakedex.errors import CorruptFileError, UnsupportedFeatureError

__all__ = ["ROWS_AT_ONCE", "Datums", "datum_schema", "decimals", "decode_datums", "split_avro_block"]

ROWS_AT_ONCE = 32_768
_INT = struct.Struct(">i")
_VERSIONS = (1, 2, 3)
_DECIMAL_BYTES = 16


def split_avro_block(content: bytes | memoryview, path: str = "", offset: int = 0) -> Datums:
    """The datums of a block's content.

    Raises:
        CorruptFileError: Sizes that do not fill the content, or another version.
    """
    view = memoryview(content)
    if len(view) < 2 * _INT.size:
        raise CorruptFileError(path, offset, f"a data block of at least {2 * _INT.size} bytes", str(len(view)))
    (version,), (records,) = _INT.unpack_from(view), _INT.unpack_from(view, _INT.size)
    if version not in _VERSIONS:
        raise CorruptFileError(path, offset, f"data block version {_VERSIONS[-1]}", str(version))
    if not 0 <= records <= len(view) // _INT.size:
        raise CorruptFileError(path, offset + _INT.size, f"a record count within {len(view)} bytes", str(records))
    starts = []
    pos = 2 * _INT.size
    size_at = _INT.unpack_from
    for _ in range(records):
        # Each size tells where the next one is, so this is the one step that cannot be done for all records at once.
        start = pos + _INT.size
        size = size_at(view, pos)[0] if start <= len(view) else -1
        if size < 0:
            raise CorruptFileError(path, offset + pos, f"the size of a datum in {len(view) - pos} bytes", str(size))
        starts.append(start)
        pos = start + size
    if pos != len(view):
        expected = f"{records} datums in {len(view)} bytes"
        raise CorruptFileError(path, offset + len(view), expected, f"datums of {pos} bytes")
    begin = np.array(starts, np.int64)
    return Datums(view, begin, np.append(begin[1:] - _INT.size, pos)[: len(begin)])


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A record's Arrow schema, and how its datums are read.

    Attributes:
        schema: with logical types.
        array: what fastavro reads an array of such records by.
        flat: the record if it is a flat one.
        least: fewest bytes of a datum.
    """

    schema: pa.Schema
    array: Any
    flat: FlatType | None
    least: int


@lru_cache(maxsize=256)
def _prepared(text: str) -> _Prepared:
    node = json.loads(text)
    schema = avro_to_arrow(node)
    array = parse_schema({"type": "array", "items": _physical(node, count())})
    return _Prepared(schema, array, flat_type(node), check_shape(node))


def datum_schema(text: str, path: str = "", offset: int = 0) -> pa.Schema:
    """Arrow schema of the record whose Avro schema is ``text``.

    Raises:
        CorruptFileError: The text is no schema of a record.
        UnsupportedFeatureError: It has a type without counterpart in Arrow.
    """
    return _prepare(text, path, offset).schema


def _prepare(text: str, path: str, offset: int) -> _Prepared:
    try:
        return _prepared(text)
    except CorruptFileError as error:
        raise CorruptFileError(path, offset, error.expected, error.found) from error
    except UnsupportedFeatureError:
        raise
    except (SchemaParseException, *DATUM_FAILURES) as error:
        raise CorruptFileError(path, offset, "the Avro schema of a record", f"{text[:60]!r} ({error})") from error


def _physical(node: Any, numbers: count[int]) -> Any:
    """Copy of a schema without logical types, and with maps as lists of entries, which is what they are in bytes."""
    if isinstance(node, list):
        return [_physical(branch, numbers) for branch in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "map":
        fields = [{"name": "key", "type": "string"}, {"name": "value", "type": _physical(node["values"], numbers)}]
        entry = {"type": "record", "name": f"lakedex.entry{next(numbers)}", "fields": fields}
        return {"type": "array", "items": entry}
    plain = {key: value for key, value in node.items() if key not in ("logicalType", "precision", "scale")}
    if "items" in plain:
        plain["items"] = _physical(plain["items"], numbers)
    if isinstance(plain.get("type"), (dict, list)):
        plain["type"] = _physical(plain["type"], numbers)
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [{**field, "type": _physical(field["type"], numbers)} for field in plain["fields"]]
    return plain


def decode_datums(datums: Datums, text: str, columns: Collection[str], path: str = "", offset: int = 0) -> pa.Table:
    """Some columns of records of one schema.

    Args:
        datums: The records in Avro's binary form.
        text: The schema of all of them, as JSON.
        columns: Names of the columns; those that the schema lacks are left out.
        path: Named in errors.
        offset: Where the datums begin in the file, for errors.

    Returns:
        The columns in the schema's order, with its types.

    Raises:
        CorruptFileError: Bytes that do not fit the schema.
        UnsupportedFeatureError: A type without counterpart in Arrow.
    """
    prepared = _prepare(text, path, offset)
    schema = prepared.schema
    wanted = pa.schema([field for field in schema if field.name in columns])
    plain = pa.schema([field.with_type(_plain_type(field.type)) for field in schema])
    batches = []
    for start in range(0, len(datums), ROWS_AT_ONCE):
        part = datums.slice(start, ROWS_AT_ONCE)
        try:
            if prepared.flat is not None:
                types = dict(zip(plain.names, plain.types, strict=True))
                values = read_columns(part, prepared.flat, types, wanted.names)
            else:
                rows = _read_array(part, prepared, path, offset)
                struct = pa.array(rows, pa.struct([plain.field(name) for name in wanted.names]))
                values = {name: struct.field(name) for name in wanted.names}
            arrays = [_logical(values[field.name], field.type) for field in wanted]
        except (pa.ArrowException, OverflowError, ValueError) as error:
            if isinstance(error, CorruptFileError):
                raise
            raise CorruptFileError(path, offset, "Avro records of the block's schema", str(error)) from error
        if len(wanted):
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=wanted))
    return pa.Table.from_batches(batches, wanted)


def _read_array(datums: Datums, prepared: _Prepared, path: str, offset: int) -> list[Any]:
    """All datums in one call: together, between their number and a zero, they are an Avro array."""
    if not prepared.least and (datums.ends > datums.starts).any():
        # fastavro would take what they hold for the numbers of further records, which cost it time and no bytes.
        raise CorruptFileError(path, offset, "datums without bytes, as their schema has it", "datums with bytes")
    head, rest = bytearray(), len(datums) << 1
    while rest > 0x7F:
        head.append(rest & 0x7F | 0x80)
        rest >>= 7
    head.append(rest)
    stream = io.BytesIO(b"".join((head, *datums.parts(), b"\0")))
    try:
        rows: Any = schemaless_reader(stream, prepared.array, None)
    except DATUM_FAILURES as error:
        expected = "Avro records of the block's schema"
        raise CorruptFileError(path, offset, expected, f"{type(error).__name__}: {error}") from error
    if len(rows) != len(datums) or stream.read(1):
        raise CorruptFileError(path, offset, f"{len(datums)} Avro records and nothing after them", f"{len(rows)}")
    return list(rows)


# ------------------------------------------------------------------------------------------- physical and logical


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type whose values fastavro gives for a column of ``kind``."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_decimal(kind):
        return pa.binary()
    if pa.types.is_fixed_size_list(kind):
        return pa.binary(vector_bytes(kind))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        entry = [pa.field("key", pa.string(), False), kind.item_field.with_type(_plain_type(kind.item_type))]
        return pa.list_(pa.field("element", pa.struct(entry), False))
    return kind


def _logical(array: Any, kind: pa.DataType) -> Any:
    """A column of plain values as what they stand for."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [_logical(array.field(i), field.type) for i, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _logical(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if pa.types.is_map(kind):
        entries = array.values
        items = _logical(entries.field(1), kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, entries.field(0), items, type=kind, mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        return vectors(array, kind)
    return _in_range(decimals(array, kind) if pa.types.is_decimal(kind) else array.view(kind))


def _in_range(array: Any) -> Any:
    """The column, whose decimals have no more digits and whose times of day no more hours than their type."""
    if pa.types.is_decimal(array.type) or pa.types.is_time(array.type):
        array.validate(full=True)
    return array


def decimals(array: Any, kind: pa.DataType) -> Any:
    """Two's complement big-endian numbers of any length up to 16 bytes as decimals of ``kind``.

    Raises:
        ValueError: A number is longer.
    """
    rows = len(array)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + rows + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    ends, lengths = offsets[1:], np.diff(offsets)
    if rows and lengths.max() > _DECIMAL_BYTES:
        raise ValueError(f"a decimal of {lengths.max()} bytes")
    negative = np.zeros(rows, bool)
    filled = lengths > 0
    negative[filled] = raw[offsets[:-1][filled]] >= 0x80
    words = np.zeros((rows, _DECIMAL_BYTES), np.uint8)
    for place in range(_DECIMAL_BYTES):
        there = lengths > place
        words[there, place] = raw[ends[there] - 1 - place]
        words[negative & ~there, place] = 0xFF
    valid = None if not array.null_count else pa.array(array.is_valid()).buffers()[1]
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(words)])
