"""Read and write trees of Thrift's compact protocol, the encoding of Parquet footers.

The protocol stores field numbers instead of names, and the kind of each value, so a tree can be read, changed in
places and written again without knowledge of the other fields. Layout (``TCompactProtocol``):

==========  =====================================================================================
struct      fields, then a zero byte
field       ``delta << 4 | kind`` where the number grew by 1 … 15; else ``kind``, zigzag number
truth       a field's kind is its value; in a list it is a byte
number      zigzag varint; 8-bit numbers take a byte; floating point eight bytes, little-endian
binary      varint length, bytes
list, set   ``size << 4 | kind``; from 15 elements on ``0xF0 | kind``, varint size
map         varint size; if there are any, ``kind of keys << 4 | kind of values``; keys and values in turn
==========  =====================================================================================
"""

from __future__ import annotations

from typing import Any, Final

from lakedex.codec.varint import decode_varint, encode_varint
from lakedex.errors import CorruptFileError

__all__ = ["BINARY", "I16", "I32", "I64", "LIST", "STRUCT", "Struct", "decode_struct", "encode_struct", "structs"]


TRUE: Final = 1


FALSE: Final = 2


BYTE: Final = 3


I16: Final = 4


I32: Final = 5


I64: Final = 6


DOUBLE: Final = 7


BINARY: Final = 8


LIST: Final = 9


SET: Final = 10


MAP: Final = 11


STRUCT: Final = 12


Struct = dict[int, tuple[int, Any]]
"""Kind and value by field number.

Numbers are ints, booleans the kind alone (with None), floating point and binary values are bytes, structs are dicts;
lists and sets are (kind, values), maps (kind of keys, kind of values, pairs).
"""


_NUMBERS: Final = frozenset({I16, I32, I64})


_TRUTHS: Final = frozenset({TRUE, FALSE})


_BYTES: Final = frozenset({TRUE, FALSE, BYTE})


_MAX_DEPTH = 64


_LONG = 15


_CONTINUED = 0x80
"""A byte of a varint from which another one follows."""


def _struct(data: bytes, at: int, depth: int, path: str) -> tuple[Struct, int]:
    """A struct at a position, and the position after it.

    Footers of wide files have ten thousands of values: most are numbers of one byte, read here without a call.
    """
    if depth > _MAX_DEPTH:
        raise CorruptFileError(path, at, f"at most {_MAX_DEPTH} levels of Thrift structs", "more")
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if head > _LONG:
            number += head >> 4
        else:
            number, at = _zigzag(data, at, path)
        value: Any
        if kind in _NUMBERS:
            byte = data[at]
            if byte < _CONTINUED:
                value, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                value, at = _zigzag(data, at, path)
        elif kind in _TRUTHS:
            value = None
        else:
            value, at = _value(data, at, kind, depth, path)
        fields[number] = kind, value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int, path: str) -> tuple[Any, int]:
    """A value of a kind, and the position after it; a truth as in a list."""
    if kind in _NUMBERS:
        return _zigzag(data, at, path)
    if kind == BINARY:
        size = data[at]
        if size < _CONTINUED:
            at += 1
        else:
            size, at = decode_varint(data, at, path=path)
        return _taken(data, at, size, path)
    if kind == STRUCT:
        return _struct(data, at, depth + 1, path)
    if kind in (LIST, SET):
        head = data[at]
        of, size, at = head & 0x0F, head >> 4, at + 1
        if size == _LONG:
            size, at = _size(data, at, path)
        values = []
        for _ in range(size):
            value, at = _value(data, at, of, depth + 1, path)
            values.append(value)
        return (of, values), at
    if kind == MAP:
        return _map(data, at, depth, path)
    if kind == DOUBLE:
        return _taken(data, at, 8, path)
    if kind in _BYTES:
        return data[at], at + 1
    raise CorruptFileError(path, at, "a kind of Thrift value", str(kind))


def _map(data: bytes, at: int, depth: int, path: str) -> tuple[tuple[int, int, list[tuple[Any, Any]]], int]:
    size, at = _size(data, at, path)
    kinds = 0
    if size:
        kinds, at = data[at], at + 1
    keys, values = kinds >> 4, kinds & 0x0F
    pairs = []
    for _ in range(size):
        key, at = _value(data, at, keys, depth + 1, path)
        value, at = _value(data, at, values, depth + 1, path)
        pairs.append((key, value))
    return (keys, values, pairs), at


def _zigzag(data: bytes, at: int, path: str) -> tuple[int, int]:
    value, at = decode_varint(data, at, path=path)
    return (value >> 1) ^ -(value & 1), at


def _taken(data: bytes, at: int, size: int, path: str) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise CorruptFileError(path, at, f"{size} bytes", f"{len(data) - at} bytes")
    return data[at:end], end


def _size(data: bytes, at: int, path: str) -> tuple[int, int]:
    # Every element takes at least a byte, so a damaged size cannot exhaust memory.
    size, at = decode_varint(data, at, path=path)
    if size > len(data) - at:
        raise CorruptFileError(path, at, f"{size} elements", f"{len(data) - at} bytes")
    return size, at


def decode_struct(data: bytes, path: str = "") -> Struct:
    """Decode the struct at the start of ``data``.

    Raises:
        CorruptFileError: The bytes are not a struct; the error names ``path``.
    """
    try:
        return _struct(data, 0, 0, path)[0]
    except IndexError:
        raise CorruptFileError(path, len(data), "a Thrift value", "the end") from None


def structs(fields: Struct, number: int) -> list[Struct]:
    """Structs of a list in a field; empty if the field is absent."""
    if number not in fields:
        return []
    found: list[Struct] = fields[number][1][1]
    return found


def encode_struct(fields: Struct) -> bytes:
    """Encode a struct, ordered by field number; structs inside it may be encoded already."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_number(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    if value < _CONTINUED:
        out.append(value)
    else:
        out += encode_varint(value)


def _write_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - before <= _LONG:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_number(out, number)
        before = number
        if kind in _NUMBERS:
            _write_number(out, value)
        elif kind not in _TRUTHS:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _NUMBERS:
        _write_number(out, value)
    elif kind == BINARY:
        out += encode_varint(len(value))
        out += value
    elif kind == STRUCT:
        if isinstance(value, bytes):
            out += value
        else:
            _write_struct(out, value)
    elif kind in (LIST, SET):
        of, values = value
        if len(values) < _LONG:
            out.append(len(values) << 4 | of)
        else:
            out.append(_LONG << 4 | of)
            out += encode_varint(len(values))
        for element in values:
            _write_value(out, of, element)
    elif kind == MAP:
        keys, values, pairs = value
        out += encode_varint(len(pairs))
        if pairs:
            out.append(keys << 4 | values)
        for key, element in pairs:
            _write_value(out, keys, key)
            _write_value(out, values, element)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)
