"""Open base and log files of the metadata table for keyed reads, cache them and decode their records.

A log file of version 8 is written once and never appended to, so it can be cached. In version 6 Java may append to it
if the store supports that; its size then differs. Small files are read in one request; of large ones only headers, the
HFile's index and the required blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import (
    LogBlock,
    decode_command_block,
    decode_delete_block,
    decode_log_blocks,
    read_block_headers,
)
from lakedex.codec.metadata_record import decode_metadata_record
from lakedex.errors import CorruptFileError
from lakedex.io.storage import FileInfo, Storage
from lakedex.timeline.instant import Instant

__all__ = [
    "SINGLE_READ_BYTES",
    "Layer",
    "MetadataBlock",
    "MetadataFileCache",
    "MetadataFiles",
    "MetadataLogFile",
    "decode_cell",
    "key_text",
    "open_hfile",
    "record_schema",
]


def record_schema(layer: HFileReader) -> str:
    """Schema of the records in an HFile.

    Raises:
        CorruptFileError: The file has none.
    """
    found = layer.info.get("schema")
    try:
        if found is not None:
            return found.decode("utf-8")
    except UnicodeDecodeError:
        pass
    shown = "none" if found is None else repr(found[:40])
    raise CorruptFileError(layer.path, layer.trailer.file_info_offset, "file info with a schema", shown)


def key_text(key: bytes, layer: HFileReader) -> str:
    """Decode a key.

    Raises:
        CorruptFileError: It is not UTF-8.
    """
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(layer.path, 0, "keys in UTF-8", repr(key[:40])) from error


def decode_cell(value: bytes, schema: str, layer: HFileReader, payload: str | None = None) -> dict[str, Any]:
    """Decode a record.

    Args:
        value: Encoded record, not empty.
        schema: Result of :func:`record_schema`.
        layer: File of the record.
        payload: Payload field of records in this partition; None skips the check.

    Raises:
        CorruptFileError: The bytes are damaged, or the record belongs to another partition.
    """
    record = decode_metadata_record(value, schema, path=layer.path)
    if payload is not None and record[payload] is None:
        raise CorruptFileError(layer.path, 0, f"records with {payload}", f"one of type {record['type']}")
    return record


SINGLE_READ_BYTES = 1 << 20
"""Files up to this size are read in one request."""


WRITTEN_FILES = 64
"""Log files of this process that are remembered until they are opened."""


Layer = HFileReader | frozenset[bytes]
"""Records of a data block, or keys of a delete block."""


@dataclass(frozen=True, slots=True)
class MetadataBlock:
    """A log block with content.

    Attributes:
        instant: Delta commit that wrote it.
        layer: Records or deleted keys; None for a command block.
        takes_back: Instant whose earlier blocks a command block rolls back.
    """

    instant: str
    layer: Layer | None = None
    takes_back: str = ""


class MetadataLogFile:
    """Blocks of one log file, oldest first.

    Attributes:
        blocks: All blocks except delete blocks without keys.
        size: Size of the file when it was opened.

    With ``skip_torn`` unfinished blocks are skipped. ``content`` is that of the file if it is known.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        size: int | None = None,
        *,
        skip_torn: bool = False,
        content: bytes | None = None,
    ) -> None:
        self._storage = storage
        self._path = path
        self.blocks: list[MetadataBlock] = []
        self.size = storage.size(path) if size is None else size
        if self.size <= SINGLE_READ_BYTES and not skip_torn:
            content = storage.read(path) if content is None else content
            for block in decode_log_blocks(content, path):
                self._add(block, bytes(block.content))
        else:
            for block in read_block_headers(self._fetch, self.size, path, skip_torn=skip_torn):
                self._add(block, None)

    def warm(self) -> None:
        """Load the indexes of the blocks."""
        for block in self.blocks:
            if isinstance(block.layer, HFileReader):
                block.layer.warm()

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._storage.read_ranges(self._path, ranges)

    def _add(self, block: LogBlock, content: bytes | None) -> None:
        instant = block.header.get("INSTANT_TIME", "")
        if block.block_type == "HFILE_DATA":
            if content is not None:
                reader = HFileReader.from_bytes(content, self._path)
            else:
                reader = HFileReader(self._shifted(block.content_offset), block.content_length, self._path)
            self.blocks.append(MetadataBlock(instant, reader))
        elif block.block_type == "DELETE":
            if content is None:
                (content,) = self._fetch([(block.content_offset, block.content_offset + block.content_length)])
            records = decode_delete_block(content, self._path, block.content_offset)
            if any(record["recordKey"] is None for record in records):
                raise CorruptFileError(self._path, block.content_offset, "a key in each deleted record", "none")
            keys = frozenset(str(record["recordKey"]).encode() for record in records)
            if keys:
                self.blocks.append(MetadataBlock(instant, keys))
        elif block.block_type == "COMMAND":
            target = decode_command_block(block, self._path).target_instant
            self.blocks.append(MetadataBlock(instant, takes_back=target))
        else:
            # Skipping it would silently lose its records.
            expected = "HFILE_DATA, DELETE or COMMAND in a log file of the metadata table"
            raise CorruptFileError(self._path, block.offset, expected, block.block_type)

    def _shifted(self, start: int) -> _Shifted:
        return _Shifted(self._storage, self._path, start)


class _Shifted:
    """Fetches ranges of an HFile within a log file."""

    def __init__(self, storage: Storage, path: str, start: int) -> None:
        self._storage, self._path, self._start = storage, path, start

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        moved = [(start + self._start, end + self._start) for start, end in ranges]
        return self._storage.read_ranges(self._path, moved)


def open_hfile(storage: Storage, path: str, size: int | None = None) -> HFileReader:
    """Open a base HFile for keyed reads."""
    size = storage.size(path) if size is None else size
    if size <= SINGLE_READ_BYTES:
        return HFileReader.from_bytes(storage.read(path), path)
    return HFileReader(_Shifted(storage, path, 0), size, path)


class MetadataFileCache:
    """Cache of opened metadata files of one table. The oldest are evicted first.

    Files never change, but in layout 1 a log file's name comes back: Java names the next one by the slice, a version
    and the write token of the one before, so that once a rollback has deleted it, another commit's file may have its
    name and size. :meth:`saw` drops those.

    Attributes:
        completeness: Instants of the metadata timeline and the damage found at that state, by metadata partition.
    """

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._open: dict[str, HFileReader | MetadataLogFile] = {}
        self._written: dict[str, bytes] = {}
        self._modified: dict[str, dict[str, int]] = {}
        self.completeness: dict[str, tuple[tuple[Instant, ...], str]] = {}
        self.lock = threading.RLock()

    def recheck(self) -> None:
        """Look at the files of metadata partitions again before they are used, as some may have been deleted."""
        self.completeness.clear()

    def saw(self, folder: str, entries: Iterable[FileInfo]) -> None:
        """Drop log files that were deleted or replaced since the folder was listed last.

        Args:
            folder: path of a metadata partition.
            entries: all of its files; those that this process has just written have no time.
        """
        with self.lock:
            before = self._modified.get(folder, {})
            self._modified[folder] = now = {entry.name: entry.modified for entry in entries if entry.modified}
            for name in (name for name, modified in before.items() if now.get(name) != modified):
                if isinstance(self._open.get(f"{folder}/{name}"), MetadataLogFile):
                    del self._open[f"{folder}/{name}"]

    def is_open(self, path: str, size: int) -> bool:
        """Whether a file of this size is open, or need not be read to open it."""
        if len(self._written.get(path, b"")) == size > 0:
            return True
        found = self._open.get(path)
        return found is not None and (isinstance(found, HFileReader) or found.size == size)

    def hfile(self, storage: Storage, path: str, size: int) -> HFileReader:
        """Open a base file once."""
        found = self._open.get(path)
        if not isinstance(found, HFileReader):
            found = open_hfile(storage, path, size)
            self._keep(path, found)
        return found

    def log(self, storage: Storage, path: str, size: int, *, skip_torn: bool = False) -> MetadataLogFile:
        """Open a log file once per size."""
        found = self._open.get(path)
        if not isinstance(found, MetadataLogFile) or found.size != size:
            written = self._written.pop(path, None)
            content = written if written is not None and len(written) == size else None
            found = MetadataLogFile(storage, path, size, skip_torn=skip_torn, content=content)
            self._keep(path, found)
        return found

    def keep_written(self, path: str, content: bytes) -> None:
        """Remember the content of a log file that this process has just written, up to :data:`WRITTEN_FILES`."""
        with self.lock:
            while len(self._written) >= WRITTEN_FILES:
                self._written.pop(next(iter(self._written)), None)
            self._open.pop(path, None)
            self._written[path] = content

    def __reduce__(self) -> tuple[type[MetadataFileCache], tuple[int]]:
        """Pickle as an empty cache: tasks start without open files."""
        return type(self), (self._limit,)

    def _keep(self, path: str, opened: HFileReader | MetadataLogFile) -> None:
        with self.lock:
            while len(self._open) >= self._limit:
                del self._open[next(iter(self._open))]
            self._open[path] = opened


MetadataFiles = Mapping[str, tuple[str, frozenset[tuple[str, int, tuple[str, ...]]]]]
"""Path of the base file, and log files with sizes and, in layout 1, instants of the blocks that count, by file id."""
