"""Cells: the key-value pairs in the payload of a data block.

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

In Hudi: ``HFileDataBlock``, ``KeyValue`` and ``Key`` (1.1.1). What follows the row is skipped on reading, whatever its
length, because files that HBase wrote for Hudi 0.x may hold a family there. Tags of HBase are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lakedex.codec.varint import vlong_size
from lakedex.errors import CorruptFileError

__all__ = ["CELL_OVERHEAD", "MAX_ROW_SIZE", "Cell", "cell_parts", "decode_cells", "find_cells"]

Cell = tuple[bytes, bytes]
"""Key and value."""

CELL_OVERHEAD = 21
"""Bytes of a cell besides its row and its value (``EXTRA_BYTES_PER_DATA_ENTRY`` of ``HFileWriterImpl``)."""

MAX_ROW_SIZE = 0x7FFF
"""Java reads the size of a row as a signed short."""

_CELL = struct.Struct(">iiH")
_ROW_SIZE = struct.Struct(">H")
_KEY_OVERHEAD = 12
_AFTER_ROW = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
_NO_TRANSACTION = b"\x00"
_SEARCH_AT_MOST = 8
"""So many keys are first looked for in the bytes as a whole; beyond it, one walk over the cells is cheaper."""


def cell_parts(key: bytes, value: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """The pieces whose concatenation is the cell."""
    size = len(key)
    return _CELL.pack(size + _KEY_OVERHEAD, len(value), size), key, _AFTER_ROW, value, _NO_TRANSACTION


def decode_cells(payload: bytes, *, base: int = 0, path: str = "") -> list[Cell]:
    """All cells of a data block, in their order.

    Args:
        payload: Content of the block, decompressed.
        base: Offset of the payload in the file, for the error.
        path: Named in the error.
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
    """Put the first cell of each key into ``found``, in the order of the cells; keys that are absent are left out.

    Few keys are first searched as plain bytes: what does not occur in the payload at all is no key of it, and the
    walk over the cells is saved. The order of the cells is not relied upon, as Java sorts by UTF-16 units.
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
    expected = f"a cell within the {left} bytes that are left of its block"
    if left < CELL_OVERHEAD:
        return CorruptFileError(path, base + pos, expected, f"less than the {CELL_OVERHEAD} bytes of the smallest")
    key_size, value_size, row_size = _CELL.unpack_from(payload, pos)
    found = f"a key of {key_size} bytes with a row of {row_size}, and a value of {value_size}"
    return CorruptFileError(path, base + pos, expected, found)
