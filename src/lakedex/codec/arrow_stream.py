"""Compute the decompressed size of an Arrow stream from its message headers, before any buffer is decompressed.

A message is a FlatBuffer and a body. ``Message.fbs`` gives the type and the header of a message; field 3 of a record
batch lists its buffers as offset and length, field 4 says that they are compressed. A compressed buffer begins with
its decompressed size in 8 bytes, little endian; -1 marks a buffer stored without compression.
"""

from __future__ import annotations

import struct

import pyarrow as pa

__all__ = ["unpacked_size"]


_DICTIONARY, _BATCH = 2, 3


_HEADER_TYPE, _HEADER = 1, 2


_DATA_OF_DICTIONARY = 1


_BUFFERS, _COMPRESSION = 2, 3


_WORD = 8


def unpacked_size(data: bytes) -> int:
    """Total size of all buffers of an Arrow stream after decompression.

    Raises:
        ValueError: The bytes are not an Arrow stream.
    """
    total = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(data):
            total += _unpacked(memoryview(message.metadata), memoryview(message.body or b""))
    except (struct.error, pa.ArrowInvalid) as error:
        raise ValueError(f"not an Arrow stream: {error}") from error
    return total


def _unpacked(metadata: memoryview, body: memoryview) -> int:
    root = _at(metadata, 0)
    kind = _field(metadata, root, _HEADER_TYPE)
    header = _table(metadata, root, _HEADER)
    if kind and metadata[kind] == _DICTIONARY and header:
        header = _table(metadata, header, _DATA_OF_DICTIONARY)
    elif not kind or metadata[kind] != _BATCH:
        return len(body)
    if not header or not _field(metadata, header, _COMPRESSION):
        return len(body)
    buffers = _table(metadata, header, _BUFFERS)
    count = struct.unpack_from("<I", metadata, buffers)[0] if buffers else 0
    places = struct.unpack_from(f"<{2 * count}q", metadata, buffers + 4)
    total = 0
    for offset, length in zip(places[::2], places[1::2], strict=True):
        if length >= _WORD:
            (size,) = struct.unpack_from("<q", body, offset)
            total += length if size < 0 else size
    return total


def _at(data: memoryview, place: int) -> int:
    """Target of the relative offset stored at ``place``."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Position of a table's field, or 0 if the table does not have it."""
    entries = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, entries)
    entry = 4 + 2 * number
    offset = struct.unpack_from("<H", data, entries + entry)[0] if entry < size else 0
    return table + int(offset) if offset else 0


def _table(data: memoryview, table: int, number: int) -> int:
    """Position of the table or vector that a field refers to, or 0 if the field is absent."""
    place = _field(data, table, number)
    return _at(data, place) if place else 0
