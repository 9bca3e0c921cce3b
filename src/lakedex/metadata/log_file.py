"""One log file of the metadata table, opened for keyed reads.

A log file of version 8 is written once and never appended to, so what was read of it stays true.
Small files are read whole, in one request; of large ones only headers, the HFile's index and the blocks needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakedex.codec.delete_block import decode_delete_block
from lakedex.codec.hfile import HFileReader
from lakedex.codec.log_block import LogBlock, decode_log_blocks, read_block_headers
from lakedex.io.storage import Storage

__all__ = ["WHOLE_FILE_BYTES", "MetadataLogFile", "open_hfile"]

WHOLE_FILE_BYTES = 1 << 20
"""Files up to this size are read in one request."""


class MetadataLogFile:
    """Blocks of one log file, oldest first.

    Attributes:
        layers: an HFile reader per data block, or the set of keys that a delete block removes.
        rolled_back: instants whose earlier blocks a command block takes back.
    """

    def __init__(self, storage: Storage, path: str, size: int | None = None) -> None:
        self._storage = storage
        self._path = path
        self.layers: list[HFileReader | frozenset[bytes]] = []
        self.rolled_back: set[str] = set()
        size = storage.size(path) if size is None else size
        if size <= WHOLE_FILE_BYTES:
            content = storage.read(path)
            for block in decode_log_blocks(content, path):
                self._add(block, bytes(block.content))
        else:
            for block in read_block_headers(self._fetch, size, path):
                self._add(block, None)

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._storage.read_ranges(self._path, ranges)

    def _add(self, block: LogBlock, content: bytes | None) -> None:
        if block.block_type == "HFILE_DATA":
            if content is not None:
                self.layers.append(HFileReader.from_bytes(content, self._path))
            else:
                self.layers.append(HFileReader(self._shifted(block.content_offset), block.content_length, self._path))
        elif block.block_type == "DELETE":
            if content is None:
                (content,) = self._fetch([(block.content_offset, block.content_offset + block.content_length)])
            keys = frozenset(str(record["recordKey"]).encode() for record in decode_delete_block(content, self._path))
            if keys:
                self.layers.append(keys)
        elif block.block_type == "COMMAND" and "TARGET_INSTANT_TIME" in block.header:
            self.rolled_back.add(block.header["TARGET_INSTANT_TIME"])

    def _shifted(self, start: int) -> _Shifted:
        return _Shifted(self._storage, self._path, start)


class _Shifted:
    """Fetches ranges of an HFile that lies inside of a log file."""

    def __init__(self, storage: Storage, path: str, start: int) -> None:
        self._storage, self._path, self._start = storage, path, start

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        moved = [(start + self._start, end + self._start) for start, end in ranges]
        return self._storage.read_ranges(self._path, moved)


def open_hfile(storage: Storage, path: str, size: int | None = None) -> HFileReader:
    """A base HFile, opened for keyed reads."""
    size = storage.size(path) if size is None else size
    if size <= WHOLE_FILE_BYTES:
        return HFileReader.from_bytes(storage.read(path), path)
    return HFileReader(_Shifted(storage, path, 0), size, path)
