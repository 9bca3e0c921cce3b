"""Encode and decode the index blocks of an HFile and the cells of its data blocks.

Index blocks locate the data and meta blocks.

Payload of a root data index, once for each block below it:

    ======  ====================================================================
    bytes   content (big-endian)
    ======  ====================================================================
    8       offset of the block
    4       its size on disk, header included
    VLong   size of the key
    2       n, size of the row
    n       row: not above the first key of the block, above the last of the one before
    rest    family, timestamp, type: only in files of HBase
    ======  ====================================================================

The meta index is the same with a bare name as the key. Large files of HBase have further levels: ``IDXINTE2`` and
``IDXLEAF2`` blocks of a count, count + 1 relative offsets (4 bytes each) and as many entries without the VLong. Their
root ends with 16 bytes about the middle key, which are skipped.

In Hudi: ``HFileRootIndexBlock``, ``HFileMetaIndexBlock``, ``HFileLeafIndexBlock`` (1.1.1). That writer stores a varint
where its own reader expects a VLong; they are equal up to 127, and above it Java cannot read its own file. This module
reads both and writes the VLong.

Cells are the key-value pairs in the payload of a data block:

    ======  ====================================================================
    bytes   content (big-endian)
    ======  ====================================================================
    4       size of the key: n + 12
    4       size of the value
    2       n, size of the row, which is the key that a user of the file sees
    n       row
    1       size of the column family: 0
    8       timestamp: 2**63 - 1
    1       type: 4 (put)
    v       value
    1 - 9   VLong: number of the writing transaction, 0 in files of Hudi
    ======  ====================================================================

In Hudi: ``HFileDataBlock``, ``KeyValue`` and ``Key`` (1.1.1). The rest of the key is skipped on reading, at any
length, because files that HBase wrote for Hudi 0.x may have a column family. HBase's tags are unsupported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from lakedex.codec.hfile.blocks import HEADER_SIZE
from lakedex.codec.varint import decode_varint, decode_vlong, encode_vlong, vlong_size
from lakedex.errors import CorruptFileError

__all__ = [
    "CELL_OVERHEAD",
    "MAX_ROW_SIZE",
    "Cell",
    "IndexEntry",
    "cell_parts",
    "check_entries",
    "decode_cells",
    "decode_leaf_index",
    "decode_meta_index",
    "decode_root_index",
    "encode_meta_index",
    "encode_root_index",
    "find_cells",
]


MIDDLE_KEY_SIZE = 16


_ENTRY = struct.Struct(">qi")


_ROW_SIZE = struct.Struct(">H")


class IndexEntry(NamedTuple):
    """Location of one block: its first key (or its name), offset and size."""

    key: bytes
    offset: int
    size: int


def decode_root_index(payload: bytes, count: int, *, levels: int, base: int = 0, path: str = "") -> list[IndexEntry]:
    """Read a root data index of ``count`` entries.

    Raises:
        CorruptFileError: The payload does not have that many entries, with VLongs or with varints.
    """
    spare = (0, MIDDLE_KEY_SIZE) if levels > 1 else (0,)
    try:
        entries = _decode(payload, count, decode_vlong, base=base, path=path, spare=spare)
        return [IndexEntry(_row(entry.key, base, path), entry.offset, entry.size) for entry in entries]
    except CorruptFileError as error:
        try:
            entries = _decode(payload, count, decode_varint, base=base, path=path, spare=spare)
            return [IndexEntry(_row(entry.key, base, path), entry.offset, entry.size) for entry in entries]
        except CorruptFileError:
            raise error from None


def decode_meta_index(payload: bytes, count: int, *, base: int = 0, path: str = "") -> list[IndexEntry]:
    """Read a meta index of ``count`` entries."""
    try:
        return _decode(payload, count, decode_vlong, base=base, path=path)
    except CorruptFileError as error:
        try:
            return _decode(payload, count, decode_varint, base=base, path=path)
        except CorruptFileError:
            raise error from None


def _decode(
    payload: bytes,
    count: int,
    decode_size: Callable[..., tuple[int, int]],
    *,
    base: int,
    path: str,
    spare: tuple[int, ...] = (0,),
) -> list[IndexEntry]:
    entries: list[IndexEntry] = []
    pos, end = 0, len(payload)
    while len(entries) < count:
        if end - pos <= _ENTRY.size:
            raise CorruptFileError(path, base + pos, f"{count} index entries", f"{len(entries)}")
        offset, size = _ENTRY.unpack_from(payload, pos)
        key_size, start = decode_size(payload, pos + _ENTRY.size, path=path, base=base)
        if not 0 <= key_size <= end - start:
            raise CorruptFileError(path, base + start, f"an index key of 0 to {end - start} bytes", str(key_size))
        pos = start + key_size
        entries.append(IndexEntry(payload[start:pos], offset, size))
    if end - pos not in spare:
        raise CorruptFileError(path, base + pos, f"the end of {count} index entries", f"{end - pos} more bytes")
    return entries


def _row(key: bytes, base: int, path: str) -> bytes:
    if len(key) >= _ROW_SIZE.size:
        (size,) = _ROW_SIZE.unpack_from(key)
        if size <= len(key) - _ROW_SIZE.size:
            return key[_ROW_SIZE.size : _ROW_SIZE.size + size]
    raise CorruptFileError(path, base, "an index key with its row", f"{len(key)} bytes that hold none")


def decode_leaf_index(payload: bytes, *, base: int = 0, path: str = "") -> list[IndexEntry]:
    """Read a leaf or an intermediate index block."""
    end = len(payload)
    count = int.from_bytes(payload[:4], "big", signed=True)
    start = 4 * (count + 2)
    if end < 4 or count < 0 or start > end:
        raise CorruptFileError(path, base, f"a count of index entries that {end} bytes can hold", str(count))
    stops = struct.unpack_from(f">{count + 1}i", payload, 4)
    if stops[0] != 0 or stops[-1] != end - start:
        raise CorruptFileError(path, base + 4, f"entries from 0 to {end - start}", f"{stops[0]} to {stops[-1]}")
    entries: list[IndexEntry] = []
    for first, stop in pairwise(stops):
        if stop - first < _ENTRY.size:
            raise CorruptFileError(path, base + start + first, "an index entry", f"{stop - first} bytes")
        offset, size = _ENTRY.unpack_from(payload, start + first)
        key = payload[start + first + _ENTRY.size : start + stop]
        entries.append(IndexEntry(_row(key, base + start + first, path), offset, size))
    return entries


def check_entries(entries: Iterable[IndexEntry], limit: int, *, base: int = 0, path: str = "") -> None:
    """Refuse entries that overlap or end above ``limit``.

    Blocks that do not overlap cannot exceed the size of the file, which bounds the fetches that a damaged index causes.
    """
    end = 0
    for entry in entries:
        if not (end <= entry.offset <= limit and HEADER_SIZE <= entry.size <= limit - entry.offset):
            raise CorruptFileError(
                path,
                base,
                f"a block between bytes {end} and {limit}",
                f"one of {entry.size} bytes at {entry.offset}",
            )
        end = entry.offset + entry.size


def encode_root_index(entries: Iterable[IndexEntry]) -> bytes:
    """Write a root data index."""
    parts: list[bytes] = []
    for key, offset, size in entries:
        parts += (_ENTRY.pack(offset, size), encode_vlong(len(key) + 2), _ROW_SIZE.pack(len(key)), key)
    return b"".join(parts)


def encode_meta_index(entries: Iterable[IndexEntry]) -> bytes:
    """Write a meta index."""
    parts: list[bytes] = []
    for name, offset, size in entries:
        parts += (_ENTRY.pack(offset, size), encode_vlong(len(name)), name)
    return b"".join(parts)


Cell = tuple[bytes, bytes]
"""Key and value."""


CELL_OVERHEAD = 21
"""Bytes of a cell besides its row and its value (``EXTRA_BYTES_PER_DATA_ENTRY`` of ``HFileWriterImpl``)."""


MAX_ROW_SIZE = 0x7FFF
"""Java reads the size of a row as a signed short."""


_CELL = struct.Struct(">iiH")


_KEY_OVERHEAD = 12


_AFTER_ROW = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"


_NO_TRANSACTION = b"\x00"


_SEARCH_AT_MOST = 8
"""Up to this many keys are first searched in the raw bytes; for more, one walk over the cells is cheaper."""


def cell_parts(key: bytes, value: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Parts of a cell, in the order in which they are written."""
    size = len(key)
    return _CELL.pack(size + _KEY_OVERHEAD, len(value), size), key, _AFTER_ROW, value, _NO_TRANSACTION


def decode_cells(payload: bytes, *, base: int = 0, path: str = "") -> list[Cell]:
    """All cells of a data block, in their order.

    Args:
        payload: Content of the block, decompressed.
        base: Offset of the payload in the file, for errors.
        path: File named in errors.
    """
    cells: list[Cell] = []
    append = cells.append
    unpack = _CELL.unpack_from
    pos, end = 0, len(payload)
    while pos < end:
        if end - pos < CELL_OVERHEAD:
            raise _bad_cell(payload, pos, base, path)
        key_size, value_size, row_size = unpack(payload, pos)
        row = pos + 10
        value = pos + 8 + key_size
        value_end = value + value_size
        if key_size < row_size + 12 or value_size < 0 or value_end >= end:
            raise _bad_cell(payload, pos, base, path)
        append((payload[row : row + row_size], payload[value:value_end]))
        pos = value_end + 1
        if 127 < payload[value_end] < 144:
            pos += vlong_size(payload[value_end]) - 1
    if pos != end:
        raise CorruptFileError(path, base + end, "a transaction number at the end of the last cell", "a part of it")
    return cells


def find_cells(
    payload: bytes, keys: Sequence[bytes], found: dict[bytes, bytes], *, base: int = 0, path: str = ""
) -> None:
    """Put the first cell of each key into ``found``, in the order of the cells; absent keys are ignored.

    Few keys are first searched in the raw bytes: a key that does not occur there is absent, without a walk over the
    cells. Cells may be in any order, as Java sorts by UTF-16 units.
    """
    wanted = {key for key in keys if len(key) <= MAX_ROW_SIZE and key not in found}
    if len(wanted) <= _SEARCH_AT_MOST:
        wanted = {key for key in wanted if _ROW_SIZE.pack(len(key)) + key in payload}
    unpack = _CELL.unpack_from
    pos, end = 0, len(payload)
    while wanted and pos < end:
        if end - pos < CELL_OVERHEAD:
            raise _bad_cell(payload, pos, base, path)
        key_size, value_size, row_size = unpack(payload, pos)
        value = pos + 8 + key_size
        value_end = value + value_size
        if key_size < row_size + 12 or value_size < 0 or value_end >= end:
            raise _bad_cell(payload, pos, base, path)
        key = payload[pos + 10 : pos + 10 + row_size]
        if key in wanted:
            found[key] = payload[value:value_end]
            wanted.remove(key)
        pos = value_end + 1
        if 127 < payload[value_end] < 144:
            pos += vlong_size(payload[value_end]) - 1


def _bad_cell(payload: bytes, pos: int, base: int, path: str) -> CorruptFileError:
    left = len(payload) - pos
    expected = f"a cell within the remaining {left} bytes of its block"
    if left < CELL_OVERHEAD:
        return CorruptFileError(path, base + pos, expected, f"less than the {CELL_OVERHEAD} bytes of the smallest")
    key_size, value_size, row_size = _CELL.unpack_from(payload, pos)
    found = f"a key of {key_size} bytes with a row of {row_size}, and a value of {value_size}"
    return CorruptFileError(path, base + pos, expected, found)
