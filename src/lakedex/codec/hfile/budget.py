"""What one call may unpack of HFiles: gzip makes a thousand bytes of one, and callers hold what they asked for."""

from __future__ import annotations

from dataclasses import dataclass

from lakedex.errors import CorruptFileError

__all__ = ["MAX_RATIO", "SMALL_BYTES", "Budget"]

SMALL_BYTES = 512 << 20
"""So much may be unpacked of any file."""

MAX_RATIO = 200
"""Beyond it, so many bytes for each packed one. Bounds, file names and bitmaps pack to a tenth or so."""


@dataclass(slots=True)
class Budget:
    """Counts the bytes that a call unpacks of one or several files.

    Attributes:
        limited: not so for callers that hold no more than a block, and for bloom filters, which are zeros in truth
            where files have few rows.
    """

    limited: bool = True
    packed: int = 0
    unpacked: int = 0

    def spend(self, packed: int, unpacked: int, path: str, offset: int) -> None:
        """Count a block.

        Raises:
            CorruptFileError: More than any real file holds.
        """
        self.packed += packed
        self.unpacked += unpacked
        if self.limited and self.unpacked > max(SMALL_BYTES, MAX_RATIO * self.packed):
            expected = f"blocks that unpack to at most {SMALL_BYTES} bytes, or {MAX_RATIO} times their size"
            raise CorruptFileError(path, offset, expected, f"{self.unpacked} bytes from {self.packed}")
