"""Deflate, the compression within gzip: by ISA-L where it is installed, else by zlib.

ISA-L needs a quarter of zlib's time for what an HFile holds (text of bitmaps and of bloom filters), half of it to read
that back, and its streams are no longer. Either reads what the other wrote, and so does Java. Without a wheel of
``isal`` for the machine all is as before, only slower.
"""

from __future__ import annotations

import zlib
from typing import Protocol

__all__ = ["InflateError", "Inflater", "crc32", "deflate", "deflate_as_java", "gzip_inflater"]


_RAW, _GZIP = -15, 31


_JAVA_LEVEL = 6


_ISAL_LEVEL = 2
"""Of 0 to 3: costs what 1 does, is a percent shorter; 3 takes a fifth longer for another half of a percent."""


class Inflater(Protocol):
    """What reads one gzip member, with its checksum."""

    @property
    def eof(self) -> bool:
        """Whether the member's end was reached, and it is whole."""

    @property
    def unused_data(self) -> bytes:
        """What came after the end."""

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        """At most so many of the next bytes.

        Raises:
            InflateError: damaged bytes.
        """


def deflate_as_java(data: bytes) -> bytes:
    """A raw stream, byte for byte the one of ``java.util.zip`` where zlib is not one of its forks."""
    return zlib.compress(data, _JAVA_LEVEL, _RAW)


try:
    from isal import isal_zlib
except ImportError:
    InflateError: type[Exception] = zlib.error
    crc32, deflate = zlib.crc32, deflate_as_java

    def gzip_inflater() -> Inflater:
        """A reader of one gzip member."""
        return zlib.decompressobj(_GZIP)
else:
    InflateError = isal_zlib.error  # type: ignore[assignment]  # The stub takes the class for an instance.
    crc32 = isal_zlib.crc32

    def deflate(data: bytes) -> bytes:
        """A raw stream."""
        return isal_zlib.compress(data, _ISAL_LEVEL, _RAW)

    def gzip_inflater() -> Inflater:
        """A reader of one gzip member."""
        return isal_zlib.decompressobj(_GZIP)
