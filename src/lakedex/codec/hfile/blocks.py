"""Encode and decode the frame around every block of an HFile, within a budget for decompressed bytes.

    ======  ====================================================================
    bytes   content (big-endian)
    ======  ====================================================================
    8       magic, which names the kind of block
    4       size on disk without this header (payload and checksums)
    4       size of the payload when not compressed
    8       offset of the previous block, -1 for none; nothing in Hudi reads it
    1       kind of checksum: 0 none, 1 CRC32, 2 CRC32C
    4       bytes that one checksum covers: 16384
    4       size on disk with this header but without checksums
    n       payload, compressed as a whole
    4 x m   checksums, m = size on disk without checksums / 16384, rounded up
    ======  ====================================================================

In Hudi: ``HFileBlock`` (1.1.1), which writes zeros for checksums of kind 0 and skips all checksums on reading, as
this module does. The codecs are gzip and none, as in Hudi's native reader.

The budget exists because gzip can expand a thousandfold, and callers keep the values they asked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lakedex.codec.deflate import InflateError, crc32, deflate, gzip_inflater
from lakedex.errors import CorruptFileError

__all__ = [
    "CODEC_GZIP",
    "CODEC_NONE",
    "DATA",
    "FILE_INFO",
    "HEADER_SIZE",
    "INTERMEDIATE_INDEX",
    "LEAF_INDEX",
    "MAX_RATIO",
    "META",
    "ROOT_INDEX",
    "SMALL_BYTES",
    "Budget",
    "decode_block",
    "encode_block",
]


SMALL_BYTES = 512 << 20
"""Decompressed bytes allowed for any file."""


MAX_RATIO = 200
"""Decompressed bytes allowed per compressed byte above that. Bounds, file names and bitmaps compress about tenfold."""


@dataclass(slots=True)
class Budget:
    """Counts the bytes that one call decompresses from one or several files.

    Attributes:
        limited: False for callers that keep no more than a block, and for bloom filters, which are mostly zeros in
            files of few rows.
    """

    limited: bool = True
    packed: int = 0
    unpacked: int = 0

    def spend(self, packed: int, unpacked: int, path: str, offset: int) -> None:
        """Count a block.

        Raises:
            CorruptFileError: The limit is exceeded.
        """
        self.packed += packed
        self.unpacked += unpacked
        if self.limited and self.unpacked > max(SMALL_BYTES, MAX_RATIO * self.packed):
            expected = f"blocks that decompress to at most {SMALL_BYTES} bytes, or {MAX_RATIO} times their size"
            raise CorruptFileError(path, offset, expected, f"{self.unpacked} bytes from {self.packed}")


DATA = b"DATABLK*"


META = b"METABLKc"


LEAF_INDEX = b"IDXLEAF2"


INTERMEDIATE_INDEX = b"IDXINTE2"


ROOT_INDEX = b"IDXROOT2"


FILE_INFO = b"FILEINF2"


CODEC_GZIP = 1


CODEC_NONE = 2


HEADER_SIZE = 33


BYTES_PER_CHECKSUM = 16384


MAX_PAYLOAD_SIZE = 1 << 30


MAX_DEFLATE_RATIO = 1032
"""Greatest ratio of a deflate stream; a header that declares more is damaged."""


BIG_PAYLOAD_SIZE = 128 << 20
"""Size of a log file. A larger payload is one value, which compresses at most by ``MAX_RATIO``."""


_HEADER = struct.Struct(">8siiqBii")


_NEXT_MEMBER_BYTES = 256


_GZIP_START = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
"""Deflate, no flags, no time, unknown system: as Java 16 and later write it, on every platform."""


_GZIP_END = struct.Struct("<II")


_NOTHING = b"\0\0\0\xff\xff"
"""A deflate block of no bytes: not the last one, stored."""


def decode_block(
    view: bytes | memoryview, magic: bytes, codec: int, *, offset: int, path: str = ""
) -> tuple[bytes, int]:
    """Decompress the block at the start of ``view``.

    Args:
        view: Bytes that start with the block.
        magic: Magic of the expected kind of block.
        codec: Compression of the file, from its trailer.
        offset: Offset of ``view`` in the file.
        path: File named in errors.

    Returns:
        Decompressed payload, and the size of the block on disk.
    """
    if len(view) < HEADER_SIZE:
        raise CorruptFileError(path, offset, f"a block header of {HEADER_SIZE} bytes", f"{len(view)} bytes")
    found, on_disk, plain_size, _previous, _kind, _per, data_size = _HEADER.unpack_from(view)
    if found != magic:
        raise CorruptFileError(path, offset, f"block magic {magic!r}", repr(found))
    available = len(view) - HEADER_SIZE
    if not 0 <= on_disk <= available:
        raise CorruptFileError(path, offset + 8, f"a block of 0 to {available} bytes", f"{on_disk} bytes")
    packed_size = data_size - HEADER_SIZE
    if not 0 <= packed_size <= on_disk:
        raise CorruptFileError(path, offset + 29, f"{HEADER_SIZE} to {HEADER_SIZE + on_disk}", str(data_size))
    limit = packed_size
    if codec != CODEC_NONE:
        likely = max(BIG_PAYLOAD_SIZE, packed_size * MAX_RATIO)
        limit = min(MAX_PAYLOAD_SIZE, packed_size * MAX_DEFLATE_RATIO, likely)
    if not 0 <= plain_size <= limit or (codec == CODEC_NONE and plain_size != packed_size):
        raise CorruptFileError(path, offset + 12, f"a payload that {packed_size} bytes can hold", f"{plain_size} bytes")
    packed = view[HEADER_SIZE : HEADER_SIZE + packed_size]
    payload = bytes(packed) if codec == CODEC_NONE else _gunzip(packed, plain_size, offset + HEADER_SIZE, path)
    return payload, HEADER_SIZE + on_disk


def _gunzip(packed: bytes | memoryview, size: int, offset: int, path: str) -> bytes:
    """Decompress to exactly ``size`` bytes; HBase may write several consecutive gzip members."""
    parts: list[bytes] = []
    left, start, step = size, 0, max(len(packed), 1)
    stream = gzip_inflater()
    while start < len(packed) or not parts:
        piece = packed[start : start + step]
        try:
            # One byte more than expected detects a stream that is too long, and lets the stream reach its checksum.
            part = stream.decompress(piece, left + 1)
        except InflateError as error:
            raise CorruptFileError(path, offset, "a gzip stream", str(error)) from None
        left -= len(part)
        if left < 0:
            raise CorruptFileError(path, offset, f"a gzip stream of {size} bytes", "a longer one")
        parts.append(part)
        start += len(piece) - len(stream.unused_data)
        step *= 2
        is_whole = stream.eof
        if is_whole and start < len(packed):
            # unused_data is a copy, so a member is never given much more than itself.
            stream, step = gzip_inflater(), _NEXT_MEMBER_BYTES
    if not is_whole:
        raise CorruptFileError(path, offset, f"a gzip stream of {size} bytes", "one that has no end")
    if left:
        raise CorruptFileError(path, offset, f"a gzip stream of {size} bytes", f"{size - left} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def encode_block(magic: bytes, payload: bytes, codec: int, *, previous: int = -1) -> bytes:
    """Encode a payload as a block."""
    packed = payload if codec == CODEC_NONE else _gzip(payload)
    checksums = _checksum_size(HEADER_SIZE + len(packed))
    header = _HEADER.pack(
        magic, len(packed) + checksums, len(payload), previous, 0, BYTES_PER_CHECKSUM, HEADER_SIZE + len(packed)
    )
    return b"".join((header, packed, bytes(checksums)))


def _checksum_size(data_size: int) -> int:
    return -(-data_size // BYTES_PER_CHECKSUM) * 4


def _gzip(payload: bytes) -> bytes:
    """Compress so that readers with different checksum counts agree on the end of the stream.

    hudi-rs derives the number of checksums from a size that already includes them. Where the counts differ (a few
    bytes below a multiple of 16384) it truncates the stream, so empty blocks are appended to it. From 64 MiB on the
    counts always differ.
    """
    packed = deflate(payload)
    size = HEADER_SIZE + len(_GZIP_START) + len(packed) + _GZIP_END.size
    checksums = _checksum_size(size)
    missing = 0
    if _checksum_size(size + checksums) != checksums:
        missing = -(-(checksums // 4 * BYTES_PER_CHECKSUM + 1 - size) // len(_NOTHING))
    return b"".join((_GZIP_START, _NOTHING * missing, packed, _GZIP_END.pack(crc32(payload), len(payload))))
