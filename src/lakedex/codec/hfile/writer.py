"""Write HFiles in the order of ``HFileWriterImpl`` (Hudi 1.1.1).

Without compression, and with the file info of another file passed in, the bytes equal those of Hudi. There are two
differences, because Java cannot read its own output: sizes of index keys are VLongs (see ``index``), and no block
exceeds 64 KiB unless one cell does. Hudi's reader underestimates the end of a block by four bytes per 16 KiB; up to
64 KiB that is less than the smallest cell.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from lakedex.codec.hfile.blocks import CODEC_GZIP, CODEC_NONE, DATA, FILE_INFO, META, ROOT_INDEX, encode_block
from lakedex.codec.hfile.index import (
    CELL_OVERHEAD,
    MAX_ROW_SIZE,
    IndexEntry,
    cell_parts,
    encode_meta_index,
    encode_root_index,
)
from lakedex.codec.hfile.trailer import Trailer, encode_file_info, encode_trailer
from lakedex.errors import InvalidInputError

__all__ = ["MAX_BLOCK_SIZE", "Compression", "stream_hfile", "write_hfile"]


Compression = Literal["gz", "none"]


MAX_BLOCK_SIZE = 64 * 1024


MAX_FILE_SIZE = 2**31 - 1
"""Java stores offsets within an HFile as ints."""


CREATE_TIME = "hfile.CREATE_TIME_TS"


_CODECS: dict[str, int] = {"gz": CODEC_GZIP, "none": CODEC_NONE}


class _DataBlocks:
    """Collects cells into blocks and writes each block as soon as it is full."""

    __slots__ = (
        "cells",
        "codec",
        "entries",
        "first",
        "key_bytes",
        "last",
        "limit",
        "parts",
        "size",
        "total",
        "write",
    )

    def __init__(self, codec: int, limit: int, write: Callable[[bytes], object]) -> None:
        self.codec = codec
        self.limit = limit
        self.write = write
        self.size = 0
        self.entries: list[IndexEntry] = []
        self.parts: list[bytes] = []
        self.first = self.last = b""
        self.cells = self.key_bytes = self.total = 0

    def add_all(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        limit = self.limit
        last = b""
        parts = self.parts
        block_size = cells = key_bytes = total = 0
        for key, value in items:
            if key <= last or len(key) > MAX_ROW_SIZE:
                raise _bad_key(key, last)
            size = len(key) + len(value) + CELL_OVERHEAD
            if block_size + size > limit and parts:
                self._flush()
                total += block_size
                block_size = 0
            if not block_size:
                self.first = key
            parts += cell_parts(key, value)
            block_size += size
            cells += 1
            key_bytes += len(key)
            last = key
        if parts:
            self._flush()
        self.last = last
        self.cells, self.key_bytes, self.total = cells, key_bytes, total + block_size

    def _flush(self) -> None:
        # Java stores every block's own offset as that of the previous block, except in the first; nothing reads it.
        block = encode_block(DATA, b"".join(self.parts), self.codec, previous=self.size or -1)
        self.entries.append(IndexEntry(self.first, self.size, len(block)))
        self.parts.clear()
        self.append(block)

    def append(self, block: bytes) -> None:
        self.size += len(block)
        if self.size > MAX_FILE_SIZE:
            raise InvalidInputError(f"Hudi cannot read an HFile of more than {MAX_FILE_SIZE} bytes")
        self.write(block)


def write_hfile(
    items: Iterable[tuple[bytes, bytes]],
    *,
    compression: Compression = "gz",
    block_size: int = MAX_BLOCK_SIZE,
    info: Mapping[str, bytes],
    meta: Mapping[str, bytes] | None = None,
) -> bytes:
    """Write an HFile.

    Args:
        items: Keys and values, in strictly ascending byte order of the keys. Iterated once.
        compression: ``gz`` or ``none``.
        block_size: Largest block before compression, at most 64 KiB; a single larger cell gets a block of its own.
        info: Entries of the file info, in their order. Entries that describe the cells are computed and
            override given ones; ``hfile.CREATE_TIME_TS`` (milliseconds, 8 bytes) is 0 unless given.
        meta: Meta blocks by name, in their order.

    Raises:
        InvalidInputError: A key is empty, longer than 32767 bytes, not ascending or not unique; the
            compression or block size is unknown; the file reaches 2 GiB.
    """
    out: list[bytes] = []
    stream_hfile(
        out.append,
        items,
        lambda: (info, meta or {}),
        compression=compression,
        block_size=block_size,
    )
    return b"".join(out)


def stream_hfile(
    write: Callable[[bytes], object],
    items: Iterable[tuple[bytes, bytes]],
    describe: Callable[[], tuple[Mapping[str, bytes], Mapping[str, bytes]]],
    *,
    compression: Compression = "gz",
    block_size: int = MAX_BLOCK_SIZE,
) -> int:
    """Write an HFile block by block.

    Memory: one block, and one index entry per block.

    Args:
        write: Receives the bytes of the file, in order.
        items: As for :func:`write_hfile`.
        describe: Returns ``info`` and ``meta`` as for :func:`write_hfile`; called after all items have been read.
        compression: As for :func:`write_hfile`.
        block_size: As for :func:`write_hfile`.

    Returns:
        Size of the file.

    Raises:
        InvalidInputError: As for :func:`write_hfile`; some bytes may have been written.
    """
    if compression not in _CODECS:
        raise InvalidInputError(f"HFile compression {compression!r} is not one of {', '.join(_CODECS)}")
    if not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise InvalidInputError(f"an HFile block size must be 1 to {MAX_BLOCK_SIZE} bytes, not {block_size}")
    codec = _CODECS[compression]
    blocks = _DataBlocks(codec, block_size, write)
    blocks.add_all(items)
    info, meta = describe()
    last_block = blocks.entries[-1].offset if blocks.entries else 0
    meta_entries: list[IndexEntry] = []
    for name, value in meta.items():
        block = encode_block(META, value, codec)
        meta_entries.append(IndexEntry(name.encode(), blocks.size, len(block)))
        blocks.append(block)
    load_on_open = blocks.size
    blocks.append(encode_block(ROOT_INDEX, encode_root_index(blocks.entries), codec))
    blocks.append(encode_block(ROOT_INDEX, encode_meta_index(meta_entries), codec))
    file_info_offset = blocks.size
    blocks.append(encode_block(FILE_INFO, encode_file_info(_file_info(info, blocks)), codec))
    trailer = Trailer(
        file_info_offset=file_info_offset,
        load_on_open_offset=load_on_open,
        # Hudi stores the size of the data under this name.
        uncompressed_data_index_size=blocks.total,
        data_index_count=len(blocks.entries),
        meta_index_count=len(meta_entries),
        entry_count=blocks.cells,
        first_data_block_offset=0 if blocks.entries else -1,
        last_data_block_offset=last_block,
        codec=codec,
    )
    blocks.append(encode_trailer(trailer))
    return blocks.size


def _file_info(given: Mapping[str, bytes], blocks: _DataBlocks) -> dict[str, bytes]:
    cells = max(blocks.cells, 1)
    value_bytes = blocks.total - blocks.key_bytes - CELL_OVERHEAD * blocks.cells
    info = dict(given)
    info["hfile.LASTKEY"] = struct.pack(">H", len(blocks.last)) + blocks.last if blocks.cells else b""
    info["hfile.AVG_KEY_LEN"] = struct.pack(">i", blocks.key_bytes // cells)
    info["hfile.AVG_VALUE_LEN"] = struct.pack(">i", value_bytes // cells)
    info.setdefault(CREATE_TIME, bytes(8))
    info["KEY_VALUE_VERSION"] = struct.pack(">i", 1)
    info["MAX_MEMSTORE_TS_KEY"] = bytes(8)
    return info


def _bad_key(key: bytes, last: bytes) -> InvalidInputError:
    if not key:
        return InvalidInputError("an HFile key must not be empty")
    if len(key) > MAX_ROW_SIZE:
        return InvalidInputError(f"an HFile key of {len(key)} bytes is longer than {MAX_ROW_SIZE}: {key[:64]!r}...")
    if key == last:
        return InvalidInputError(f"HFile keys must be unique: {key!r}")
    return InvalidInputError(f"HFile keys must be in ascending byte order: {key!r} after {last!r}")
