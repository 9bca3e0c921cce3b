"""Compress and decompress gzip streams with ISA-L if it is installed, else with zlib.

ISA-L takes a quarter of zlib's time to compress the text of bitmaps and bloom filters in an HFile, and half of it to
decompress; its streams are no longer. Each reads what the other wrote, and so does Java. Without a wheel of ``isal``
for the platform only speed differs.
"""

from __future__ import annotations

import zlib
from typing import Protocol

__all__ = ["InflateError", "Inflater", "crc32", "deflate", "deflate_as_java", "gzip_inflater"]


_RAW, _GZIP = -15, 31


_JAVA_LEVEL = 6


_ISAL_LEVEL = 2
"""Of 0 to 3: as fast as 1 and a percent smaller; 3 takes a fifth longer to save another half percent."""


class Inflater(Protocol):
    """Reader of one gzip member that verifies its checksum."""

    @property
    def eof(self) -> bool:
        """Whether the member was read to its end and its checksum matches."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the member."""

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        """Return at most ``max_length`` of the next decompressed bytes.

        Raises:
            InflateError: The bytes are damaged.
        """


def deflate_as_java(data: bytes) -> bytes:
    """Compress to a raw stream, byte for byte that of ``java.util.zip`` unless zlib is one of its forks."""
    return zlib.compress(data, _JAVA_LEVEL, _RAW)


try:
    from isal import isal_zlib
except ImportError:
    InflateError: type[Exception] = zlib.error
    crc32, deflate = zlib.crc32, deflate_as_java

    def gzip_inflater() -> Inflater:
        """Reader of one gzip member."""
        return zlib.decompressobj(_GZIP)
else:
    InflateError = isal_zlib.error  # type: ignore[assignment]  # The stub declares the class as an instance.
    crc32 = isal_zlib.crc32

    def deflate(data: bytes) -> bytes:
        """Compress to a raw stream."""
        return isal_zlib.compress(data, _ISAL_LEVEL, _RAW)

    def gzip_inflater() -> Inflater:
        """Reader of one gzip member."""
        return isal_zlib.decompressobj(_GZIP)
