"""Index blocks: where the data and meta blocks of an HFile lie.

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

The meta index is the same with a bare name for the key. Large files of HBase have further levels: ``IDXINTE2`` and
``IDXLEAF2`` blocks of a count, count + 1 relative offsets (4 bytes each) and as many entries without the VLong. Their
root ends with 16 bytes about the middle key, which are skipped.

In Hudi: ``HFileRootIndexBlock``, ``HFileMetaIndexBlock``, ``HFileLeafIndexBlock`` (1.1.1). That writer puts a varint
where its own reader expects a VLong; they are the same up to 127, and above it Java cannot read its own file. Both are
read here, the VLong is written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from lakedex.codec.hfile.blocks import HEADER_SIZE
from lakedex.codec.varint import decode_varint, decode_vlong, encode_vlong
from lakedex.errors import CorruptFileError

__all__ = [
    "IndexEntry",
    "check_entries",
    "decode_leaf_index",
    "decode_meta_index",
    "decode_root_index",
    "encode_meta_index",
    "encode_root_index",
]

MIDDLE_KEY_SIZE = 16

_ENTRY = struct.Struct(">qi")
_ROW_SIZE = struct.Struct(">H")


class IndexEntry(NamedTuple):
    """One block: its first key (or its name), offset and size."""

    key: bytes
    offset: int
    size: int


def decode_root_index(payload: bytes, count: int, *, levels: int, base: int = 0, path: str = "") -> list[IndexEntry]:
    """Read a root data index of ``count`` entries.

    Raises:
        CorruptFileError: The payload is not that many entries, with VLongs or with varints.
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
    """Refuse entries that leave the part of the file below ``limit``, or overlap.

    Blocks that do not overlap cannot hold more than the file does, which bounds what a damaged index can make a
    reader fetch.
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
