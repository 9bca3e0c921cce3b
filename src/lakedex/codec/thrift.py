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

from dataclasses import dataclass
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


_MAX_DEPTH = 64


_LONG = 15


@dataclass(slots=True)
class _Reader:
    data: bytes
    path: str
    position: int = 0

    def corrupt(self, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError(self.path, self.position, expected, found)

    def byte(self) -> int:
        if self.position >= len(self.data):
            raise self.corrupt("a Thrift value", "the end")
        self.position += 1
        return self.data[self.position - 1]

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise self.corrupt(f"{size} bytes", f"{len(self.data) - self.position} bytes")
        found = self.data[self.position : end]
        self.position = end
        return found

    def varint(self) -> int:
        value, self.position = decode_varint(self.data, self.position, path=self.path)
        return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> Struct:
        if depth > _MAX_DEPTH:
            raise self.corrupt(f"at most {_MAX_DEPTH} levels of Thrift structs", "more")
        fields: Struct = {}
        number = 0
        while head := self.byte():
            kind, delta = head & 0x0F, head >> 4
            number = number + delta if delta else self.zigzag()
            fields[number] = kind, None if kind in (TRUE, FALSE) else self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            head = self.byte()
            size = head >> 4 if head >> 4 < _LONG else self.size()
            return head & 0x0F, [self.value(head & 0x0F, depth + 1) for _ in range(size)]
        if kind == MAP:
            return self.map(depth)
        if kind == DOUBLE:
            return self.take(8)
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        raise self.corrupt("a kind of Thrift value", str(kind))

    def size(self) -> int:
        # Every element takes at least a byte, so a damaged size cannot exhaust memory.
        size = self.varint()
        if size > len(self.data) - self.position:
            raise self.corrupt(f"{size} elements", f"{len(self.data) - self.position} bytes")
        return size

    def map(self, depth: int) -> tuple[int, int, list[tuple[Any, Any]]]:
        size = self.size()
        kinds = self.byte() if size else 0
        keys, values = kinds >> 4, kinds & 0x0F
        return keys, values, [(self.value(keys, depth + 1), self.value(values, depth + 1)) for _ in range(size)]


def decode_struct(data: bytes, path: str = "") -> Struct:
    """Decode the struct at the start of ``data``.

    Raises:
        CorruptFileError: The bytes are not a struct; the error names ``path``.
    """
    return _Reader(data, path).struct(0)


def structs(fields: Struct, number: int) -> list[Struct]:
    """Structs of a list in a field; empty if the field is absent."""
    if number not in fields:
        return []
    found: list[Struct] = fields[number][1][1]
    return found


def encode_struct(fields: Struct) -> bytes:
    """Encode a struct, ordered by field number."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_zigzag(out: bytearray, value: int) -> None:
    out += encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - before <= _LONG:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, number)
        before = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_zigzag(out, value)
    elif kind == BINARY:
        out += encode_varint(len(value))
        out += value
    elif kind == STRUCT:
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
