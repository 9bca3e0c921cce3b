"""Many bloom filters asked for the same keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakedex.codec._strings import Keys
from lakedex.codec.bloom import BloomFilter, Bytes, HashedKeys, Words, hash_keys

__all__ = ["PLACED", "KeyProbe"]

_SIZES = 4
PLACED = 6
"""Of so many hashes of each key the bits are worked out beforehand. In a full filter one key of 64 gets further."""
_FEW = 4096


class KeyProbe:
    """A column of keys that is looked up in many filters, mostly of few sizes.

    Keys are hashed once, and where a key's first bits lie is worked out once for all filters of a size.
    Memory per key: 4 bytes for each hash (30 at Hudi's default rate), and ``PLACED`` x 9 bytes for each of 4 sizes.
    """

    __slots__ = ("_hashed", "_keys", "_placed")

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._hashed: HashedKeys | None = None
        self._placed: dict[int, list[tuple[npt.NDArray[np.intp], Bytes]]] = {}

    def passing(self, bloom: BloomFilter, start: int, end: int) -> npt.NDArray[np.intp]:
        """Places among the keys, from ``start`` to ``end``, of those that may be in a filter.

        Raises:
            InvalidInputError: Null or empty keys, or a type that is no string.
        """
        chain = self._chain(bloom)
        found = None
        for row in bloom.rows:
            passed = self._passing_row(row, chain, bloom.bits, start, end)
            found = passed if found is None else np.union1d(found, passed)
        return np.empty(0, np.intp) if found is None else found

    def _chain(self, bloom: BloomFilter) -> Words:
        if self._hashed is None or self._hashed.num_hashes < bloom.num_hashes:
            self._hashed = hash_keys(self._keys, bloom.num_hashes)
        chain = self._hashed.hashes[: bloom.num_hashes]
        if len(self._placed.get(bloom.bits, ())) < min(PLACED, bloom.num_hashes):
            if len(self._placed) == _SIZES:
                del self._placed[next(iter(self._placed))]
            self._placed[bloom.bits] = [_place(hashes, bloom.bits) for hashes in chain[:PLACED]]
        return chain

    def _passing_row(self, row: Bytes, chain: Words, bits: int, start: int, end: int) -> npt.NDArray[np.intp]:
        placed = self._placed[bits]
        at, mask = placed[0]
        alive = np.flatnonzero((row.take(at[start:end]) & mask[start:end]) != 0)
        alive += start
        for number in range(1, len(chain)):
            if not alive.size:
                break
            if number < len(placed):
                at, mask = placed[number]
                at, mask = at[alive], mask[alive]
            elif alive.size <= _FEW:
                # Most of these are in the filter: nothing is saved by looking hash by hash, and calls cost more.
                at, mask = _place(chain[number:, alive], bits)
                passing: npt.NDArray[np.bool_] = ((row.take(at) & mask) != 0).all(axis=0)
                return alive[passing]
            else:
                at, mask = _place(chain[number][alive], bits)
            alive = alive[(row.take(at) & mask) != 0]
        return alive


def _place(hashes: Words, bits: int) -> tuple[npt.NDArray[np.intp], Bytes]:
    """Byte and mask of the bit that each hash stands for."""
    positions = hashes % np.uint32(bits)
    return (positions >> 3).astype(np.intp), np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))
