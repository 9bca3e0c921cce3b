"""How large a file's bloom filter is to be, and whether one that is there will do."""

from __future__ import annotations

from dataclasses import dataclass

from lakedex.codec.bloom import DYNAMIC, SIMPLE, BloomBuilder, BloomFilter, filter_size

__all__ = ["BloomSizing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomSizing:
    """What filters are wanted.

    Attributes:
        num_entries: keys that a filter (a row of a DYNAMIC_V0 one) is made for, ``hoodie.index.bloom.num_entries``;
            None for as many as the file has.
        fpp: false-positive rate, ``hoodie.index.bloom.fpp``.
        type_code: SIMPLE or DYNAMIC_V0, ``hoodie.bloom.index.filter.type``.
        max_entries: where a DYNAMIC_V0 filter stops to grow, ``hoodie.bloom.index.filter.dynamic.max.entries``.
    """

    num_entries: int | None = None
    fpp: float = 1e-9
    type_code: str = DYNAMIC
    max_entries: int = 100_000

    def builder(self, keys: int) -> BloomBuilder:
        """A builder for a file of about so many keys."""
        entries = self.num_entries or max(keys, 1)
        return BloomBuilder(
            num_entries=entries, fpp=self.fpp, type_code=self.type_code, max_entries=self._largest(entries)
        )

    def _largest(self, entries: int) -> int:
        # A filter that is sized for the keys must not be capped below them.
        return max(self.max_entries, entries)

    def fits(self, bloom: BloomFilter, keys: int) -> bool:
        """Whether a filter over ``keys`` keys is of that type, rate and size; one for up to twice the keys will do."""
        if bloom.type_code != self.type_code:
            return False
        if self.num_entries is not None:
            return self._has_given_size(bloom, keys, self.num_entries)
        keys = max(keys, 1)
        if bloom.type_code == SIMPLE:
            bits, hashes = filter_size(keys, self.fpp)
            # A filter does not say for how many keys it was made; a part of a hash is rounded up.
            return bits <= bloom.bits <= 2 * bits and abs(bloom.num_hashes - hashes) <= 1
        entries = bloom.entries_per_row
        shape = filter_size(entries, self.fpp)
        return len(bloom.rows) == 1 and keys <= entries <= 2 * keys and (bloom.bits, bloom.num_hashes) == shape

    def _has_given_size(self, bloom: BloomFilter, keys: int, entries: int) -> bool:
        if (bloom.bits, bloom.num_hashes) != filter_size(entries, self.fpp):
            return False
        rows = min(max(-(-keys // entries), 1), -(-self._largest(entries) // entries))
        return bloom.type_code == SIMPLE or (bloom.entries_per_row == entries and len(bloom.rows) == rows)
