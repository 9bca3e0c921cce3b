"""Decode Avro datums of one schema into Arrow columns, column by column with numpy.

Every record has a cursor, and all cursors advance together: a field takes a few array operations for any number of
records. Lists and maps would take a step per element, so schemas with them, or with unions of several types, go to
fastavro, many datums per call. :mod:`lakedex.codec.metadata_record` reads records that may contain both: unions of
several types become dense unions of Arrow, lists and maps must be null. Either way values are physical at first;
logical types are applied to complete columns afterwards.

Datums come from the values of HFILE_DATA log blocks or from the content of AVRO_DATA ones:

    ======  ====================================================================
    bytes   content of an AVRO_DATA block (big-endian)
    ======  ====================================================================
    4       version of the content: 1 to 3, which do not differ
    4       number of records
    n       for each record its size (4 bytes) and its datum
    ======  ====================================================================

In Hudi: ``HoodieAvroDataBlock`` (1.1.1).

Memory: the columns, and the Python values of ``ROWS_AT_ONCE`` records where fastavro reads.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from lakedex.codec.avro import DATUM_FAILURES
from lakedex.codec.avro_schema import PRIMITIVES, avro_to_arrow, check_shape
from lakedex.codec.vectors import vector_bytes, vectors
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.types import IntArray

__all__ = [
    "ROWS_AT_ONCE",
    "DatumError",
    "Datums",
    "FlatType",
    "arrow_of",
    "datum_schema",
    "decimals",
    "decode_datums",
    "flat_type",
    "read_columns",
    "split_avro_block",
]


_MAX_VARINT = 10


_MAX_OFFSET = (1 << 31) - 1


_LONG_TEXT = 256
"""Longer texts are copied one by one: indexing each of their bytes would take eight times their size."""


_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class DatumError(ValueError):
    """Bytes that do not match the schema; internal, callers add the file's name."""


@dataclass(frozen=True, slots=True)
class FlatType:
    """Type that the vectorized reader supports.

    ``kind`` is the Avro type, or ``choice`` for a union of several types, ``opaque`` for an unsupported one;
    ``null`` is the branch of null in the enclosing union, None without one. ``name`` is that of a named type.
    """

    kind: str
    names: tuple[str, ...] = ()
    children: tuple[FlatType, ...] = ()
    size: int = 0
    null: int | None = None
    symbols: tuple[str, ...] = field(default=())
    name: str = ""


_OPAQUE = FlatType("opaque")


def flat_type(
    node: Any, known: dict[str, FlatType] | None = None, namespace: str = "", *, partly: bool = False
) -> FlatType | None:
    """Translate a schema; None if the vectorized reader does not support it.

    Args:
        node: Avro schema.
        known: Named types that it may refer to; types that it defines are added.
        namespace: Namespace of the enclosing type.
        partly: Read unions of several types as ``choice``, and unsupported types as ``opaque``.
    """
    known = {} if known is None else known
    found = _flat(node, known, namespace, partly)
    return _OPAQUE if found is None and partly else found


def _flat(node: Any, known: dict[str, FlatType], namespace: str, partly: bool) -> FlatType | None:
    if isinstance(node, list):
        return _flat_union(node, known, namespace, partly)
    if isinstance(node, str):
        if node in _PRIMITIVES:
            return FlatType(node)
        return known.get(node) or known.get(f"{namespace}.{node}")
    kind = node["type"]
    if isinstance(kind, (dict, list)):
        return flat_type(kind, known, namespace, partly=partly)
    if kind in _PRIMITIVES:
        return FlatType(kind)
    if kind not in ("record", "fixed", "enum"):
        return known.get(kind) or known.get(f"{namespace}.{kind}")
    name = str(node["name"])
    inner = name.rpartition(".")[0] if "." in name else str(node.get("namespace", namespace))
    full = name if "." in name or not inner else f"{inner}.{name}"
    if kind == "record":
        children = [flat_type(entry["type"], known, inner, partly=partly) for entry in node["fields"]]
        found = [child for child in children if child is not None]
        if len(found) != len(children) or not found:
            return None
        made = FlatType("record", tuple(entry["name"] for entry in node["fields"]), tuple(found), name=full)
    else:
        made = FlatType(kind, size=int(node.get("size", 0)), symbols=tuple(node.get("symbols", ())), name=full)
    known[full] = made
    return made


def _flat_union(branches: list[Any], known: dict[str, FlatType], namespace: str, partly: bool) -> FlatType | None:
    others = [place for place, branch in enumerate(branches) if branch != "null"]
    if len(others) != 1 or len(branches) > 2:
        if not partly or not others:
            return None
        found = (flat_type(branch, known, namespace, partly=True) for branch in branches)
        return FlatType("choice", children=tuple(child or _OPAQUE for child in found))
    child = flat_type(branches[others[0]], known, namespace, partly=partly)
    if child is None or child.kind == "null":
        return None
    null = 1 - others[0] if len(branches) == 2 else None
    return FlatType("union", children=(child,), null=null)


_ARROW = {**PRIMITIVES, "opaque": pa.null(), "enum": pa.string()}


def arrow_of(kind: FlatType, wanted: Collection[str] | None = None) -> pa.DataType:
    """Arrow type of the values of ``kind``. ``wanted`` limits the fields of a record; None takes all."""
    if kind.kind == "union":
        return arrow_of(kind.children[0], wanted)
    if kind.kind == "record":
        fields = zip(kind.names, kind.children, strict=True)
        return pa.struct([(name, arrow_of(child)) for name, child in fields if wanted is None or name in wanted])
    if kind.kind == "choice":
        return pa.dense_union([pa.field(str(place), arrow_of(child)) for place, child in enumerate(kind.children)])
    return pa.binary(kind.size) if kind.kind == "fixed" else _ARROW[kind.kind]


@dataclass(frozen=True, slots=True)
class Datums:
    """Records in Avro's binary form, as offsets into one buffer."""

    data: bytes | memoryview
    starts: IntArray
    ends: IntArray

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Datums:
        """Join separate datums."""
        sizes = np.fromiter((len(part) for part in parts), np.int64, len(parts))
        ends = np.cumsum(sizes)
        return cls(b"".join(parts), ends - sizes, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def slice(self, start: int, rows: int) -> Datums:
        """``rows`` datums from ``start`` on."""
        return Datums(self.data, self.starts[start : start + rows], self.ends[start : start + rows])

    def parts(self) -> list[memoryview]:
        """Bytes of each datum."""
        view = memoryview(self.data)
        return [view[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


def read_columns(
    datums: Datums, record: FlatType, types: Mapping[str, pa.DataType], wanted: Collection[str]
) -> dict[str, Any]:
    """Read some top-level columns of all datums.

    Args:
        datums: Records; each must fill its bytes exactly.
        record: Type of the records.
        types: Arrow type of each top-level column, as fastavro would give its values.
        wanted: Names of the columns.

    Raises:
        DatumError: Bytes that do not match the schema.
    """
    reader = _Reader(datums)
    rows = np.arange(len(datums))
    columns = {}
    for name, child in zip(record.names, record.children, strict=True):
        column = reader.read(child, rows, types[name] if name in wanted else None)
        if name in wanted:
            columns[name] = column
    if (reader.position != reader.end).any():
        raise DatumError("a datum is longer than its schema allows")
    return columns


class _Reader:
    """Cursors over all datums. Each ``read`` returns one value per row; without a type it only advances the cursors."""

    def __init__(self, datums: Datums) -> None:
        self.data = np.frombuffer(datums.data, np.uint8)
        self.position = datums.starts.copy()
        self.end = datums.ends

    def read(self, kind: FlatType, rows: IntArray, arrow: pa.DataType | None) -> Any:
        if kind.kind == "union":
            return self._union(kind, rows, arrow)
        if kind.kind == "record":
            return self._record(kind, rows, arrow)
        if kind.kind == "choice":
            return self._choice(kind, rows, arrow)
        if kind.kind == "opaque" and len(rows):
            raise DatumError("a list, a map or another unsupported type")
        if kind.kind in ("null", "opaque"):
            return None if arrow is None else pa.nulls(len(rows), arrow)
        if kind.kind in ("int", "long"):
            return self._integer(rows, arrow)
        if kind.kind in ("bytes", "string"):
            return self._text(rows, arrow)
        if kind.kind == "enum":
            return self._enum(kind, rows, arrow)
        size = {"boolean": 1, "float": 4, "double": 8}.get(kind.kind, kind.size)
        return self._fixed(kind.kind, size, rows, arrow)

    def _union(self, kind: FlatType, rows: IntArray, arrow: pa.DataType | None) -> Any:
        branch = self._varint(rows)
        if kind.null is None:
            if branch.any():
                raise DatumError("union branch out of range")
            return self.read(kind.children[0], rows, arrow)
        if ((branch != 0) & (branch != 1)).any():
            raise DatumError("union branch out of range")
        there = branch != kind.null
        if there.all():
            return self.read(kind.children[0], rows, arrow)
        if not there.any():
            return None if arrow is None else pa.nulls(len(rows), arrow)
        values = self.read(kind.children[0], rows[there], arrow)
        if values is None:
            return None
        return values.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))

    def _choice(self, kind: FlatType, rows: IntArray, arrow: pa.DataType | None) -> Any:
        branch = self._varint(rows)
        if len(rows) and not (branch.min() >= 0 and branch.max() < len(kind.children)):
            raise DatumError("union branch out of range")
        offsets = np.zeros(len(rows), np.int32)
        children = []
        for place, child in enumerate(kind.children):
            own = np.flatnonzero(branch == place)
            offsets[own] = np.arange(len(own))
            to = None if arrow is None else arrow.field(place).type
            values = self.read(child, rows[own], to) if len(own) else None
            children.append(pa.nulls(0, to) if values is None and to is not None else values)
        if arrow is None:
            return None
        names = [str(place) for place in range(len(children))]
        types = pa.array(branch.astype(np.int8))
        return pa.UnionArray.from_dense(types, pa.array(offsets), children, names)

    def _record(self, kind: FlatType, rows: IntArray, arrow: pa.DataType | None) -> Any:
        wanted = {} if arrow is None else {part.name: part for part in arrow}
        children, fields = [], []
        for name, child in zip(kind.names, kind.children, strict=True):
            part = wanted.get(name)
            column = self.read(child, rows, None if part is None else part.type)
            if part is not None:
                children.append(column)
                fields.append(part)
        return None if arrow is None else pa.StructArray.from_arrays(children, fields=fields)

    def _integer(self, rows: IntArray, arrow: pa.DataType | None) -> Any:
        values = self._varint(rows)
        if arrow is None:
            return None
        if arrow == pa.int32() and len(values) and (values.min() < -(2**31) or values.max() >= 2**31):
            raise DatumError("an int of more than 32 bits")
        return pa.array(values.astype(arrow.to_pandas_dtype(), copy=False), arrow)

    def _text(self, rows: IntArray, arrow: pa.DataType | None) -> Any:
        lengths = self._varint(rows)
        begin = self._take(rows, lengths)
        if arrow is None:
            return None
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > _LONG_TEXT * len(rows):
            view, ends = self.data.data, (begin + lengths).tolist()
            text = pa.py_buffer(b"".join([view[low:high] for low, high in zip(begin.tolist(), ends, strict=True)]))
        else:
            text = pa.py_buffer(self.data[np.repeat(begin - offsets[:-1], lengths) + np.arange(offsets[-1])])
        if offsets[-1] > _MAX_OFFSET:
            raise DatumError("more text than one column can hold")
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), text]
        array = pa.Array.from_buffers(arrow, len(rows), buffers)
        array.validate(full=True)
        return array

    def _enum(self, kind: FlatType, rows: IntArray, arrow: pa.DataType | None) -> Any:
        places = self._varint(rows)
        if len(places) and not (places.min() >= 0 and places.max() < len(kind.symbols)):
            raise DatumError("enum symbol out of range")
        return None if arrow is None else pa.array(kind.symbols, arrow).take(pa.array(places))

    def _fixed(self, kind: str, size: int, rows: IntArray, arrow: pa.DataType | None) -> Any:
        begin = self._take(rows, np.full(len(rows), size, np.int64))
        if arrow is None:
            return None
        found = self.data[begin[:, None] + np.arange(size)]
        if kind == "boolean":
            if (found > 1).any():
                raise DatumError("a boolean that is neither 0 nor 1")
            return pa.array(found[:, 0] == 1)
        if kind in ("float", "double"):
            return pa.array(found.view("<f4" if kind == "float" else "<f8")[:, 0], arrow)
        flat = pa.py_buffer(found)
        if pa.types.is_fixed_size_binary(arrow):
            return pa.Array.from_buffers(arrow, len(rows), [None, flat])
        offsets = pa.py_buffer(np.arange(len(rows) + 1, dtype=np.int32) * np.int32(size))
        return pa.Array.from_buffers(arrow, len(rows), [None, offsets, flat])

    def _take(self, rows: IntArray, lengths: IntArray) -> IntArray:
        """Advance each cursor by its length; return the positions before."""
        begin = self.position[rows]
        if (lengths < 0).any() or (lengths > self.end[rows] - begin).any():
            raise DatumError("a value that runs past the end of its datum")
        self.position[rows] = begin + lengths
        return begin

    def _varint(self, rows: IntArray) -> IntArray:
        """Zigzag numbers of up to ten bytes."""
        position, end = self.position[rows], self.end[rows]
        if (position >= end).any():
            raise DatumError("a number that runs past the end of its datum")
        byte = self.data[position]
        value = (byte & np.uint8(0x7F)).astype(np.uint64)
        position += 1
        left = np.flatnonzero(byte >= 0x80)
        for place in range(1, _MAX_VARINT + 1):
            if not len(left):
                break
            if place == _MAX_VARINT:
                raise DatumError("a varint of more than ten bytes")
            at = position[left]
            if (at >= end[left]).any():
                raise DatumError("a number that runs past the end of its datum")
            byte = self.data[at]
            value[left] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
            position[left] = at + 1
            left = left[byte >= 0x80]
        self.position[rows] = position
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)


ROWS_AT_ONCE = 32_768


_INT = struct.Struct(">i")


_VERSIONS = (1, 2, 3)


_DECIMAL_BYTES = 16


def split_avro_block(content: bytes | memoryview, path: str = "", offset: int = 0) -> Datums:
    """Locate the datums in the content of an AVRO_DATA block.

    Raises:
        CorruptFileError: The sizes do not add up to the content, or the version is unknown.
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
        # Each size gives the position of the next, so this step cannot be vectorized.
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
    """Arrow schema of a record, and the schemas that its datums are read with.

    Attributes:
        schema: Arrow schema with logical types.
        array: Avro schema with which fastavro reads an array of such records.
        flat: Type for the vectorized reader; None if it does not support the record.
        least: Least number of bytes of a datum.
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
        CorruptFileError: The text is not the schema of a record.
        UnsupportedFeatureError: The schema has a type without counterpart in Arrow.
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
    """Copy of a schema without logical types, and with maps as lists of entries, as they are encoded."""
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
    """Decode some columns of records of one schema.

    Args:
        datums: Records in Avro's binary form.
        text: Schema of the records, as JSON.
        columns: Names of the columns; names that the schema lacks are ignored.
        path: File named in errors.
        offset: Offset of the datums in the file, for errors.

    Returns:
        Columns in the schema's order, with its types.

    Raises:
        CorruptFileError: The bytes do not match the schema.
        UnsupportedFeatureError: The schema has a type without counterpart in Arrow.
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
    """Read all datums in one call: framed by their count and a zero they form an Avro array."""
    if not prepared.least and (datums.ends > datums.starts).any():
        # fastavro would read the extra bytes as counts of further records, which cost it time and no bytes.
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
    """Type of the values that fastavro returns for a column of ``kind``."""
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
    """Convert a column of physical values to its logical type."""
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
    """Return the column after checking that decimals and times of day are within the range of their type."""
    if pa.types.is_decimal(array.type) or pa.types.is_time(array.type):
        array.validate(full=True)
    return array


def decimals(array: Any, kind: pa.DataType) -> Any:
    """Convert two's complement big-endian numbers of up to 16 bytes to decimals of type ``kind``.

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
