"""Encode and decode blocks of log files, including the content of DELETE and command blocks.

    ======  ====================================================================
    bytes   content (big-endian)
    ======  ====================================================================
    6       ``#HUDI#``
    8       size of the block after this field
    4       version of the layout: 1
    4       type of the block: its place in ``BLOCK_TYPES``
    map     header: a count, then for each entry (4 bytes each) its place in ``HEADER_KEYS`` and size, then UTF-8 text
    8       size of the content
    n       content
    4       footer: a map without entries
    8       size of the block with the magic and without the first size field
    ======  ====================================================================

In Hudi: ``HoodieLogFormatWriter``, ``HoodieLogFileReader`` and ``HoodieLogBlock`` (1.1.1). Its reader considers a
block corrupt if its two sizes differ or if neither the end of the file nor the magic follows, and resumes at the next
magic, losing records silently. This reader skips only the remains of an interrupted writer (``skip_torn``): a block
that runs past the end of the file or whose two sizes differ. All other damage is an error. An empty log file has no
blocks: its writer ended before the first one.

Hudi keeps the header in a hash map of enums, so its order differs from run to run; here it is that of the dict.

Content of DELETE log blocks:

    ======  ====================================================================
    bytes   content (big-endian)
    ======  ====================================================================
    4       version of the content: 3
    4       size of the datum
    n       Avro datum ``HoodieDeleteRecordList``
    ======  ====================================================================

In Hudi: ``HoodieDeleteBlock`` (1.1.1). Its versions 1 and 2 are objects serialized by Java and Kryo; tables of the
supported versions do not contain them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lakedex.codec.avro import decode_datum, encode_datum, parsed
from lakedex.codec.hfile.reader import Fetch
from lakedex.errors import CorruptFileError, InvalidInputError

__all__ = [
    "BLOCK_TYPES",
    "HEADER_KEYS",
    "LogBlock",
    "RollbackCommand",
    "decode_command_block",
    "decode_delete_block",
    "decode_log_blocks",
    "encode_delete_block",
    "encode_log_block",
    "encode_rollback_block",
    "read_block_headers",
]


BLOCK_TYPES = ("COMMAND", "DELETE", "CORRUPT", "AVRO_DATA", "HFILE_DATA", "PARQUET_DATA", "CDC_DATA")


HEADER_KEYS = (
    "INSTANT_TIME",
    "TARGET_INSTANT_TIME",
    "SCHEMA",
    "COMMAND_BLOCK_TYPE",
    "COMPACTED_BLOCK_TIMES",
    "RECORD_POSITIONS",
    "BLOCK_IDENTIFIER",
    "IS_PARTIAL",
    "BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS",
)


WINDOW_SIZE = 64 * 1024
"""Bytes fetched at once when only headers are read: a header is a schema and little more."""


MAX_TORN_BLOCKS = 1000
"""Limit of unfinished blocks: interrupted writers do not explain more, and each takes requests."""


_FIRST_SEARCH = 256


_MAGIC = b"#HUDI#"


_VERSION = 1


_ROLLBACK = "0"


_MAX_BLOCK_SIZE = 2**31 - 1


_CORRUPT = BLOCK_TYPES.index("CORRUPT")


_START = struct.Struct(">6sqiii")


_ENTRY = struct.Struct(">ii")


_LONG = struct.Struct(">q")


_END = struct.Struct(">iq")


_SIZE_AT = len(_MAGIC)


_SIZED_FROM = _SIZE_AT + 8


_MIN_SIZE = 4 + 4 + 4 + 8 + _END.size


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block.

    Attributes:
        block_type: One of ``BLOCK_TYPES``.
        header: Texts by the names of ``HEADER_KEYS``, in the order of the file.
        content: View of the content; empty if only headers were read.
        offset: Offset of the block in the file.
        content_offset: Offset of its content in the file.
        content_length: Size of the content.
    """

    block_type: str
    header: dict[str, str]
    content: bytes | memoryview
    offset: int
    content_offset: int
    content_length: int


@dataclass(frozen=True, slots=True)
class RollbackCommand:
    """A command to ignore the preceding blocks written by ``target_instant``."""

    instant: str
    target_instant: str


class _Source(Protocol):
    """Bytes of a log file; the caller stays within its size."""

    size: int

    def take(self, start: int, end: int) -> bytes | memoryview: ...


class _Buffer:
    """A log file in memory."""

    __slots__ = ("size", "view")

    def __init__(self, buf: bytes | memoryview) -> None:
        self.view = memoryview(buf)
        self.size = len(self.view)

    def take(self, start: int, end: int) -> memoryview:
        return self.view[start:end]


class _Window:
    """A log file read in windows, as adjacent blocks are needed together."""

    __slots__ = ("buffer", "fetch", "path", "size", "start")

    def __init__(self, fetch: Fetch, size: int, path: str) -> None:
        self.fetch = fetch
        self.size = size
        self.path = path
        self.start = 0
        self.buffer: bytes | memoryview = b""

    def take(self, start: int, end: int) -> bytes | memoryview:
        if not self.start <= start or end > self.start + len(self.buffer):
            stop = min(max(end, start + WINDOW_SIZE), self.size)
            (self.buffer,) = self.fetch([(start, stop)])
            self.start = start
            if len(self.buffer) != stop - start:
                raise CorruptFileError(self.path, start, f"{stop - start} bytes", f"{len(self.buffer)} bytes")
        return self.buffer[start - self.start : end - self.start]


def decode_log_blocks(buf: bytes | memoryview, path: str = "") -> list[LogBlock]:
    """Read all blocks of a log file in memory; their contents are views of ``buf``.

    Raises:
        CorruptFileError: The bytes are damaged; ``offset`` is that of the first invalid field.
    """
    source = _Buffer(buf)
    blocks: list[LogBlock] = []
    pos = 0
    while pos < source.size:
        block, pos = _read_block(source, pos, path)
        start = block.content_offset
        content = source.view[start : start + block.content_length]
        blocks.append(LogBlock(block.block_type, block.header, content, block.offset, start, block.content_length))
    return blocks


def read_block_headers(fetch: Fetch, size: int, path: str = "", *, skip_torn: bool = False) -> list[LogBlock]:
    """Read all blocks of a log file without their contents.

    Blocks within 64 KiB share one call of ``fetch``; otherwise each block takes one call, for the end of
    one block and the header of the next.

    Args:
        fetch: Reads half-open ranges ``(start, end)`` of the file.
        size: Size of the file.
        path: File named in errors.
        skip_torn: Skip blocks that a writer did not finish, as Hudi's reader does.

    Raises:
        CorruptFileError: The bytes outside of the contents are damaged.
    """
    source = _Window(fetch, size, path)
    blocks: list[LogBlock] = []
    pos = torn = 0
    while pos < size:
        try:
            block, after = _read_block(source, pos, path)
        except CorruptFileError:
            if not (skip_torn and torn < MAX_TORN_BLOCKS and _is_torn(source, pos)):
                raise
            torn += 1
            pos = _next_magic(source, pos + len(_MAGIC))
            continue
        blocks.append(block)
        pos = after
    return blocks


def _is_torn(source: _Source, offset: int) -> bool:
    """Whether these bytes are the remains of an interrupted writer (``HoodieLogFileReader.isBlockCorrupted``)."""
    left = source.size - offset
    if left < len(_MAGIC):
        return True
    if source.take(offset, offset + len(_MAGIC)) != _MAGIC:
        return False
    if left < _SIZED_FROM:
        return True
    (size,) = _LONG.unpack(source.take(offset + _SIZE_AT, offset + _SIZED_FROM))
    if not _LONG.size <= size <= left - _SIZED_FROM:
        return True
    end = offset + _SIZED_FROM + size
    (size_again,) = _LONG.unpack(source.take(end - _LONG.size, end))
    return bool(size_again != size + len(_MAGIC))


def _next_magic(source: _Source, start: int) -> int:
    """Offset of the next block at or after ``start``; the size of the file if there is none."""
    step = _FIRST_SEARCH
    while start < source.size:
        stop = min(start + step, source.size)
        step = min(2 * step, WINDOW_SIZE)
        found = bytes(source.take(start, stop)).find(_MAGIC)
        if found >= 0:
            return start + found
        start = stop if stop == source.size else stop - len(_MAGIC) + 1
    return source.size


def _read_block(source: _Source, offset: int, path: str) -> tuple[LogBlock, int]:
    """Read the block at an offset, without its content; return it with the offset after it."""
    left = source.size - offset
    if left < _SIZED_FROM + _MIN_SIZE:
        raise CorruptFileError(path, offset, f"a log block of at least {_SIZED_FROM + _MIN_SIZE} bytes", f"{left}")
    magic, size, version, kind, count = _START.unpack(source.take(offset, offset + _START.size))
    if magic != _MAGIC:
        raise CorruptFileError(path, offset, f"log block magic {_MAGIC!r}", repr(magic))
    if not _MIN_SIZE <= size <= min(left - _SIZED_FROM, _MAX_BLOCK_SIZE):
        expected = f"a log block of {_MIN_SIZE} to {left - _SIZED_FROM} bytes"
        raise CorruptFileError(path, offset + _SIZE_AT, expected, f"{size} bytes")
    if version != _VERSION:
        raise CorruptFileError(path, offset + _SIZED_FROM, f"log format version {_VERSION}", str(version))
    if not 0 <= kind < len(BLOCK_TYPES) or kind == _CORRUPT:
        raise CorruptFileError(path, offset + _SIZED_FROM + 4, "a type of log block that Hudi writes", str(kind))
    end = offset + _SIZED_FROM + size
    header, pos = _read_header(source, offset + _START.size, count, end - _END.size - _LONG.size, path)
    (content_length,) = _LONG.unpack(source.take(pos, pos + _LONG.size))
    content_offset = pos + _LONG.size
    if content_length != end - _END.size - content_offset:
        expected = f"content of {end - _END.size - content_offset} bytes"
        raise CorruptFileError(path, pos, expected, f"{content_length} bytes")
    footer, size_again = _END.unpack(source.take(end - _END.size, end))
    if footer != 0:
        raise CorruptFileError(path, end - _END.size, "a footer without entries", f"{footer} entries")
    if size_again != size + len(_MAGIC):
        raise CorruptFileError(path, end - _LONG.size, f"the block size {size + len(_MAGIC)} repeated", str(size_again))
    return LogBlock(BLOCK_TYPES[kind], header, b"", offset, content_offset, content_length), end


def _read_header(source: _Source, pos: int, count: int, limit: int, path: str) -> tuple[dict[str, str], int]:
    """Read the entries of a header, which must end at or before ``limit``."""
    if not 0 <= count <= len(HEADER_KEYS):
        raise CorruptFileError(path, pos - 4, f"0 to {len(HEADER_KEYS)} header entries", str(count))
    header: dict[str, str] = {}
    for _ in range(count):
        text_at = pos + _ENTRY.size
        if text_at > limit:
            raise CorruptFileError(path, pos, f"{count} header entries in the block", f"{len(header)}")
        ordinal, size = _ENTRY.unpack(source.take(pos, text_at))
        if not 0 <= ordinal < len(HEADER_KEYS) or HEADER_KEYS[ordinal] in header:
            expected = f"a header key of 0 to {len(HEADER_KEYS) - 1}, once"
            raise CorruptFileError(path, pos, expected, str(ordinal))
        if not 0 <= size <= limit - text_at:
            expected = f"a header text of 0 to {limit - text_at} bytes"
            raise CorruptFileError(path, pos + 4, expected, f"{size} bytes")
        pos = text_at + size
        try:
            header[HEADER_KEYS[ordinal]] = str(source.take(text_at, pos), "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptFileError(path, text_at, "a header text in UTF-8", str(error)) from None
    return header, pos


def encode_log_block(block_type: str, header: Mapping[str, str], content: bytes | memoryview) -> bytes:
    """Encode a block.

    Args:
        block_type: One of ``BLOCK_TYPES`` except ``CORRUPT``.
        header: Texts by the names of ``HEADER_KEYS``. Hudi requires INSTANT_TIME, and SCHEMA on data and delete blocks.
        content: Complete content.

    Raises:
        InvalidInputError: The type or a header key is unknown to Hudi, or the block is too large for its reader.
    """
    if block_type not in BLOCK_TYPES or block_type == "CORRUPT":
        raise InvalidInputError(f"log block type {block_type!r} is not one that Hudi writes")
    head = bytearray()
    for key, text in header.items():
        if key not in HEADER_KEYS:
            raise InvalidInputError(f"log block header key {key!r} is not one of {', '.join(HEADER_KEYS)}")
        data = text.encode()
        head += _ENTRY.pack(HEADER_KEYS.index(key), len(data)) + data
    size = _MIN_SIZE + len(head) + len(content)
    if size + _SIZED_FROM > _MAX_BLOCK_SIZE:
        raise InvalidInputError(f"a log block of {size} bytes is larger than Hudi reads")
    start = _START.pack(_MAGIC, size, _VERSION, BLOCK_TYPES.index(block_type), len(header))
    return b"".join((start, head, _LONG.pack(len(content)), content, _END.pack(0, size + len(_MAGIC))))


def decode_command_block(block: LogBlock, path: str = "") -> RollbackCommand:
    """Decode a command block. It is stored in the header; Hudi's only command is the rollback.

    Raises:
        CorruptFileError: The command is not a rollback, or the header lacks an instant.
    """
    header = block.header
    if block.block_type != "COMMAND" or header.get("COMMAND_BLOCK_TYPE") != _ROLLBACK:
        found = f"{block.block_type} {header.get('COMMAND_BLOCK_TYPE')}"
        raise CorruptFileError(path, block.offset, f"COMMAND {_ROLLBACK} (rollback)", found)
    if "INSTANT_TIME" not in header or "TARGET_INSTANT_TIME" not in header:
        expected = "INSTANT_TIME and TARGET_INSTANT_TIME"
        raise CorruptFileError(path, block.offset, expected, ", ".join(header))
    return RollbackCommand(header["INSTANT_TIME"], header["TARGET_INSTANT_TIME"])


def encode_rollback_block(command: RollbackCommand) -> bytes:
    """Encode a command block that rolls an instant back."""
    header = {
        "INSTANT_TIME": command.instant,
        "COMMAND_BLOCK_TYPE": _ROLLBACK,
        "TARGET_INSTANT_TIME": command.target_instant,
    }
    return encode_log_block("COMMAND", header, b"")


_DELETE_VERSION = 3


_DELETE_START = struct.Struct(">ii")


_SCHEMA = "HoodieDeleteRecordList"


_LIST = "deleteRecordList"


def decode_delete_block(content: bytes | memoryview, path: str = "", offset: int = 0) -> list[dict[str, Any]]:
    """Decode the deleted records.

    Args:
        content: Content of the block.
        path: File named in errors.
        offset: Offset of the content in the file, for errors.

    Returns:
        A dict per record: ``recordKey``, ``partitionPath`` and ``orderingVal``, which is None or a pair of the full
        name of a wrapper record and that record.

    Raises:
        CorruptFileError: The bytes are damaged, or the version is unknown.
    """
    if len(content) < _DELETE_START.size:
        raise CorruptFileError(path, offset, f"a delete block of at least {_START.size} bytes", f"{len(content)}")
    version, size = _DELETE_START.unpack_from(content)
    if version != _DELETE_VERSION:
        raise CorruptFileError(path, offset, f"delete block version {_VERSION}", str(version))
    if size != len(content) - _DELETE_START.size:
        raise CorruptFileError(path, offset + 4, f"a datum of {len(content) - _START.size} bytes", str(size))
    record = decode_datum(parsed(_SCHEMA), content[_DELETE_START.size :], path, offset + _DELETE_START.size)
    records: list[dict[str, Any]] = record[_LIST]
    return records


def encode_delete_block(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode the content of a delete block; records as :func:`decode_delete_block` returns them.

    Raises:
        InvalidInputError: A record does not match ``HoodieDeleteRecordList``.
    """
    datum = encode_datum(parsed(_SCHEMA), {_LIST: list(records)})
    return _DELETE_START.pack(_DELETE_VERSION, len(datum)) + datum
