"""Bitmaps that were read, kept for the next query. Runs never change, so what was read of one stays true."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap

__all__ = ["HELD_BYTES", "HeldBitmaps"]

HELD_BYTES = 32 << 20
"""Of a table's bitmaps; the ones asked for last stay."""
_ENTRY_BYTES = 400
"""Of a key, its place and an empty bitmap."""


class _Held(NamedTuple):
    base_file: str
    bitmap: BitMap
    size: int


@dataclass(slots=True, eq=False)
class HeldBitmaps:
    """By run and key, each with the base file whose rows it tells. Not for several threads at once."""

    _bitmaps: dict[tuple[str, bytes], _Held] = field(default_factory=dict)
    _size: int = 0

    def get(self, run: str, key: bytes, base_file: str, rows: int) -> BitMap | None:
        """A bitmap of so many rows of a base file, if it is held."""
        held = self._bitmaps.pop((run, key), None)
        if held is None:
            return None
        self._bitmaps[run, key] = held
        return held.bitmap if held.base_file == base_file and len(held.bitmap) == rows else None

    def keep(self, run: str, key: bytes, base_file: str, bitmap: BitMap) -> None:
        """Hold a bitmap, which nobody changes from now on."""
        if (run, key) in self._bitmaps:
            return
        held = _Held(base_file, bitmap, _ENTRY_BYTES + len(key) + _bytes_of(bitmap))
        self._bitmaps[run, key] = held
        self._size += held.size
        while self._size > HELD_BYTES:
            self._size -= self._bitmaps.pop(next(iter(self._bitmaps))).size


def _bytes_of(bitmap: BitMap) -> int:
    """What the containers take: that of 65,536 rows is 8 KiB at most."""
    return min(2 * len(bitmap), 8192 * (1 + (bitmap.max() >> 16) if len(bitmap) else 0))
