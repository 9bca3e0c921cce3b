"""Encode and decode the trailer and the file info of an HFile, both messages of protocol buffers.

Trailer, the last 4096 bytes of the file:

    ======  ====================================================================
    bytes   content
    ======  ====================================================================
    8       ``TRABLK"$``
    varint  size of the message
    n       ``TrailerProto``: the fields of :class:`Trailer`, numbered from 1
    zeros   up to byte 4092
    1       minor version (3 by HBase, 0 by Hudi)
    3       major version: 3
    ======  ====================================================================

Payload of the file info block: ``PBUF``, a varint with the size of the message, and ``InfoProto``: repeated field 1,
a message of field 1 (name) and field 2 (value).

In Hudi: ``HFileTrailer``, ``HFileFileInfoBlock`` and ``HFileWriterImpl`` (1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakedex.codec.hfile.blocks import CODEC_GZIP, CODEC_NONE
from lakedex.codec.varint import decode_varint, encode_varint
from lakedex.errors import CorruptFileError

__all__ = ["TRAILER_SIZE", "Trailer", "decode_file_info", "decode_trailer", "encode_file_info", "encode_trailer"]


TRAILER_SIZE = 4096


COMPARATOR = "org.apache.hudi.io.storage.HoodieHBaseKVComparator"


_MAGIC = b'TRABLK"$'


_INFO_MAGIC = b"PBUF"


_MAJOR_VERSION = 3


_MAX_INDEX_LEVELS = 16


_CODEC_NAMES = {0: "lzo", 3: "snappy", 4: "lz4", 5: "bzip2", 6: "zstd", 7: "lzma"}


_NO_OFFSET = (1 << 64) - 1


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


_COMPARATOR_FIELD = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Trailer:
    """Trailer of an HFile. Offsets count from the start of the HFile."""

    file_info_offset: int
    load_on_open_offset: int
    uncompressed_data_index_size: int = 0
    total_uncompressed_bytes: int | None = None
    data_index_count: int = 0
    meta_index_count: int = 0
    entry_count: int = 0
    data_index_levels: int = 1
    first_data_block_offset: int = -1
    last_data_block_offset: int = 0
    comparator: str = COMPARATOR
    codec: int = CODEC_NONE


_NUMBERS = {
    1: "file_info_offset",
    2: "load_on_open_offset",
    3: "uncompressed_data_index_size",
    4: "total_uncompressed_bytes",
    5: "data_index_count",
    6: "meta_index_count",
    7: "entry_count",
    8: "data_index_levels",
    9: "first_data_block_offset",
    10: "last_data_block_offset",
    12: "codec",
}


def _fields(message: bytes, base: int, path: str) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a message; fixed-size values are returned as bytes."""
    pos, end = 0, len(message)
    while pos < end:
        tag, at = decode_varint(message, pos, path=path, base=base)
        kind = tag & 7
        if kind == _VARINT:
            number, pos = decode_varint(message, at, path=path, base=base)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, at = decode_varint(message, at, path=path, base=base)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise CorruptFileError(path, base + pos, "a protobuf field of wire type 0, 1, 2 or 5", str(kind))
        if size > end - at:
            raise CorruptFileError(path, base + at, f"a protobuf field within {end - at} bytes", f"{size} bytes")
        pos = at + size
        yield tag >> 3, message[at:pos]


def decode_trailer(tail: bytes | memoryview, *, offset: int = 0, path: str = "") -> Trailer:
    """Decode the trailer.

    Args:
        tail: The last 4096 bytes of the file.
        offset: Their offset in the file, also the limit of all offsets in the trailer.
        path: File named in errors.

    Raises:
        CorruptFileError: The bytes are damaged, the version is not 3, or the codec is neither gzip nor none.
    """
    if len(tail) != TRAILER_SIZE:
        raise CorruptFileError(path, offset, f"a trailer of {TRAILER_SIZE} bytes", f"{len(tail)} bytes")
    data = bytes(tail)
    if not data.startswith(_MAGIC):
        raise CorruptFileError(path, offset, f"trailer magic {_MAGIC!r}", repr(data[: len(_MAGIC)]))
    major = int.from_bytes(data[-3:], "big")
    if major != _MAJOR_VERSION:
        raise CorruptFileError(path, offset + TRAILER_SIZE - 3, f"HFile version {_MAJOR_VERSION}", str(major))
    size, start = decode_varint(data, len(_MAGIC), path=path, base=offset)
    if size > TRAILER_SIZE - 4 - start:
        raise CorruptFileError(path, offset + len(_MAGIC), "a trailer message within its block", f"{size} bytes")
    numbers: dict[str, int] = {"file_info_offset": -1, "load_on_open_offset": -1}
    comparator = ""
    for field, value in _fields(data[start : start + size], offset + start, path):
        if field in _NUMBERS:
            if isinstance(value, bytes):
                raise CorruptFileError(path, offset + start, f"a number in trailer field {field}", "bytes")
            numbers[_NUMBERS[field]] = -1 if value == _NO_OFFSET else value
        elif field == _COMPARATOR_FIELD and isinstance(value, bytes):
            comparator = value.decode("utf-8", "replace")
    trailer = Trailer(comparator=comparator, **numbers)
    _check(trailer, offset, path)
    return trailer


def _check(trailer: Trailer, offset: int, path: str) -> None:
    if trailer.codec not in (CODEC_GZIP, CODEC_NONE):
        found = f"{trailer.codec} ({_CODEC_NAMES.get(trailer.codec, 'unknown')})"
        raise CorruptFileError(path, offset, "compression codec 1 (gzip) or 2 (none)", found)
    if not 0 <= trailer.load_on_open_offset <= trailer.file_info_offset <= offset:
        raise CorruptFileError(
            path,
            offset,
            f"root index and file info in this order below byte {offset}",
            f"{trailer.load_on_open_offset} and {trailer.file_info_offset}",
        )
    if not 1 <= trailer.data_index_levels <= _MAX_INDEX_LEVELS:
        raise CorruptFileError(path, offset, f"1 to {_MAX_INDEX_LEVELS} index levels", str(trailer.data_index_levels))
    # The counts only bound loops, so only negative ones are refused.
    if min(trailer.data_index_count, trailer.meta_index_count, trailer.entry_count) < 0:
        raise CorruptFileError(path, offset, "counts of at least 0", repr(trailer))


def encode_trailer(trailer: Trailer) -> bytes:
    """Encode a trailer, with the fields in Hudi's order."""
    name = trailer.comparator.encode()
    message = bytearray()
    for field in range(1, 13):
        if field == _COMPARATOR_FIELD:
            message += encode_varint(field << 3 | _BYTES) + encode_varint(len(name)) + name
            continue
        value: int | None = getattr(trailer, _NUMBERS[field])
        if value is not None:
            message += encode_varint(field << 3 | _VARINT) + encode_varint(value)
    head = _MAGIC + encode_varint(len(message)) + message
    return head + bytes(TRAILER_SIZE - len(head) - 1) + bytes((_MAJOR_VERSION,))


def decode_file_info(payload: bytes, *, base: int = 0, path: str = "") -> dict[str, bytes]:
    """Decode the payload of the file info block, in its order."""
    if not payload.startswith(_INFO_MAGIC):
        raise CorruptFileError(path, base, f"file info magic {_INFO_MAGIC!r}", repr(payload[: len(_INFO_MAGIC)]))
    size, start = decode_varint(payload, len(_INFO_MAGIC), path=path, base=base)
    if size != len(payload) - start:
        raise CorruptFileError(path, base + start, f"a file info of {len(payload) - start} bytes", str(size))
    info: dict[str, bytes] = {}
    for field, entry in _fields(payload[start:], base + start, path):
        if field != 1 or isinstance(entry, int):
            raise CorruptFileError(path, base + start, "entries of file info in field 1", f"field {field}")
        pair = dict(_fields(entry, base + start, path))
        name, value = pair.get(1, b""), pair.get(2, b"")
        if isinstance(name, int) or isinstance(value, int):
            raise CorruptFileError(path, base + start, "a name and a value in file info", repr(pair))
        try:
            info[name.decode()] = value
        except UnicodeDecodeError:
            raise CorruptFileError(path, base + start, "a UTF-8 name in file info", repr(name)) from None
    return info


def encode_file_info(info: Mapping[str, bytes]) -> bytes:
    """Encode the payload of the file info block, in the order of the mapping."""
    message = bytearray()
    for name, value in info.items():
        key = name.encode()
        entry = b"".join((b"\x0a", encode_varint(len(key)), key, b"\x12", encode_varint(len(value)), value))
        message += b"\x0a" + encode_varint(len(entry)) + entry
    return b"".join((_INFO_MAGIC, encode_varint(len(message)), message))
