"""Build, probe, encode and size bloom filters over record keys, bit for bit those of Hudi, on Arrow columns.

The text form is standard base64 of big-endian bytes:

    ==========  ================================================================================
    SIMPLE      ``i32 -1 | i32 hashes | u8 1 (murmur) | i32 bits | ceil(bits / 8) bytes``;
                bit *i* is ``1 << (i & 7)`` of byte ``i >> 3``
    DYNAMIC_V0  ``i32 -1 | i32 hashes | u8 1 | i32 bits | i32 entries per row | i32 entries in the
                last row | i32 rows`` and that many SIMPLE filters, headers included
    ==========  ================================================================================

Hash: Hadoop's Murmur2, each hash seeded by the one before (first seed 0); bit ``abs(hash % bits)`` with Java's
remainder. In Hudi: ``SimpleBloomFilter``, ``HoodieDynamicBoundedBloomFilter``, ``InternalBloomFilter``,
``InternalDynamicBloomFilter``, ``BloomFilterUtils``, ``MurmurHash`` (1.1.1). Unsupported, since Hudi does not write
them: filters of Hadoop's unversioned form and filters with another hash function.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakedex.codec.hashing import Keys, string_chunks
from lakedex.errors import CorruptFileError, InvalidInputError

__all__ = [
    "DYNAMIC",
    "PLACED",
    "SIMPLE",
    "BloomBuilder",
    "BloomFilter",
    "BloomSizing",
    "HashedKeys",
    "KeyProbe",
    "build_bloom",
    "decode_bloom",
    "filter_size",
    "hash_keys",
]


SIMPLE = "SIMPLE"


DYNAMIC = "DYNAMIC_V0"


Bytes = npt.NDArray[np.uint8]


Words = npt.NDArray[np.uint32]


_ROW_HEADER = struct.Struct(">iiBi")


_DYNAMIC_HEADER = struct.Struct(">iiBiiii")


_VERSION = -1


_MURMUR = 1


_INT_MAX = (1 << 31) - 1


# The smallest double as false-positive rate asks for 1075 hashes.
_MAX_HASHES = 1100


_M = np.uint32(0x5BD1E995)


_R = np.uint32(24)


# Keys hashed at a time: the working set then fits a core's cache.
_BLOCK = 16_384


# Up to this many keys are probed with all of their hashes at once: numpy calls would cost more than they save.
_FEW = 64


# ------------------------------------------------------------------------------------------------ hashing


@dataclass(frozen=True, slots=True, eq=False)
class HashedKeys:
    """Column of keys with its first hashes, computed once to probe many filters of any size."""

    keys: Keys
    hashes: Words
    """Magnitudes of the hash chain: one row per hash, one column per key."""

    @property
    def num_hashes(self) -> int:
        """Length of the chain."""
        return len(self.hashes)

    def __len__(self) -> int:
        return int(self.hashes.shape[1])

    def slice(self, start: int, length: int) -> HashedKeys:
        """``length`` consecutive keys from ``start`` on."""
        return HashedKeys(self.keys.slice(start, length), self.hashes[:, start : start + length])


def hash_keys(keys: Keys, num_hashes: int) -> HashedKeys:
    """Hash a string column for :meth:`BloomFilter.probe`.

    Args:
        keys: Array or chunked array of string or large_string.
        num_hashes: Number of hashes that the filters use (``max(f.num_hashes for f in filters)``).

    Raises:
        InvalidInputError: A key is null or empty, or the type is not a string.
    """
    _check_hashes(num_hashes)
    hashes = np.empty((num_hashes, len(keys)), dtype=np.uint32)
    at = 0
    for block in _blocks(keys):
        block.fill(hashes[:, at : at + block.size])
        at += block.size
    return HashedKeys(keys, hashes)


class _Block:
    """Keys cut into little-endian words with the seed-independent part of the hash already applied.

    Keys are ordered by decreasing length, so the keys that have a *j*-th word form a prefix.
    """

    __slots__ = ("_has_tails", "_lengths", "_order", "_tail", "_tail_factor", "_words", "size")

    def __init__(self, offsets: npt.NDArray[np.int64], data: Bytes) -> None:
        lengths = np.diff(offsets)
        starts = offsets[:-1]
        self.size = len(lengths)
        counts = lengths >> 2
        self._order: npt.NDArray[np.intp] | None = None
        if counts[0] != counts[-1] or (counts != counts[0]).any():
            self._order = np.argsort(-counts, kind="stable")
            lengths, starts, counts = lengths[self._order], starts[self._order], counts[self._order]
        self._lengths = lengths.astype(np.uint32)
        self._words = _words(data, starts, counts)
        left = lengths & 3
        self._has_tails = bool(left.any())
        self._tail, self._tail_factor = _tails(data, starts + lengths, left)

    def fill(self, out: Words) -> None:
        """Write the magnitudes of the chain to ``out``, one hash per row, in the original order of the keys."""
        for row, magnitudes in zip(out, self.chain(len(out)), strict=True):
            if self._order is None:
                row[:] = magnitudes
            else:
                row[self._order] = magnitudes

    @property
    def order(self) -> npt.NDArray[np.intp] | None:
        """Original positions of the keys in the order of :meth:`chain`; None if the order is unchanged."""
        return self._order

    def chain(self, length: int) -> Iterator[Words]:
        """Magnitudes of each hash; an array is valid only until the next one is requested."""
        hashed = np.zeros(self.size, dtype=np.uint32)
        scratch = np.empty_like(hashed)
        # With few keys most of the time would go into views and calls.
        parts = [(hashed[: len(word)], word) for word in self._words]
        for _ in range(length):
            np.bitwise_xor(hashed, self._lengths, out=hashed)
            for part, word in parts:
                np.multiply(part, _M, out=part)
                np.bitwise_xor(part, word, out=part)
            if self._has_tails:
                np.bitwise_xor(hashed, self._tail, out=hashed)
                np.multiply(hashed, self._tail_factor, out=hashed)
            np.right_shift(hashed, 13, out=scratch)
            np.bitwise_xor(hashed, scratch, out=hashed)
            np.multiply(hashed, _M, out=hashed)
            np.right_shift(hashed, 15, out=scratch)
            np.bitwise_xor(hashed, scratch, out=hashed)
            # abs(INT_MIN) stays INT_MIN, which as unsigned is the magnitude in Java's remainder.
            np.abs(hashed.view(np.int32), out=scratch.view(np.int32))
            yield scratch


def _blocks(keys: Keys) -> list[_Block]:
    blocks: list[_Block] = []
    for offsets, data, _ in string_chunks(keys, "record key"):
        empty = int((offsets[1:] == offsets[:-1]).sum())
        if empty:
            raise InvalidInputError(f"{empty} empty record key(s)", count=empty)
        starts = range(0, len(offsets) - 1, _BLOCK)
        blocks.extend(_Block(offsets[start : start + _BLOCK + 1], data) for start in starts)
    return blocks


def _words(data: Bytes, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> list[Words]:
    """Mixed *j*-th words of all keys that have one, for each *j*."""
    most = int(counts[0])
    if not most:
        return []
    windows = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    # counts falls, so those above j end where -counts reaches -j.
    ends = np.searchsorted(-counts, -np.arange(most), side="left")
    words = []
    for j in range(most):
        word = windows[starts[: ends[j]] + 4 * j].astype(np.uint32)
        word *= _M
        word ^= word >> _R
        word *= _M
        words.append(word)
    return words


def _tails(data: Bytes, ends: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> tuple[Words, Words]:
    """Value to xor for the last 1 to 3 bytes, and the factor to multiply by (1 if there are no such bytes).

    Java's bytes are signed, so each one is sign-extended.
    """
    signed = data.view(np.int8)
    tail = np.zeros(len(ends), dtype=np.uint32)
    for back in (1, 2, 3):
        has = np.flatnonzero(left >= back)
        if has.size:
            byte = signed[ends[has] - back].astype(np.int32).view(np.uint32)
            tail[has] ^= byte << np.uint32(8 * (back - 1))
    return tail, np.where(left > 0, _M, np.uint32(1))


def _check_hashes(num_hashes: int) -> None:
    if not 1 <= num_hashes <= _MAX_HASHES:
        raise InvalidInputError(f"a bloom filter uses 1 to {_MAX_HASHES} hashes, not {num_hashes}")


class _BitSetter:
    """Sets bits of packed rows; uses a byte per bit where the number of bits makes that faster."""

    __slots__ = ("_bytes", "_packed", "_positions", "_quotients")

    def __init__(self, packed: Bytes, keys: int, hashes: int) -> None:
        self._packed = packed
        self._bytes = np.zeros(packed.size * 8, dtype=np.bool_) if keys * hashes >= packed.size else None
        # numpy indexes with this integer type and would copy any other.
        self._positions = np.empty(keys, dtype=np.intp)
        self._quotients = np.empty(keys, dtype=np.uint32)

    def set(self, hashes: Words, bits: int, begins: npt.NDArray[np.intp] | None) -> None:
        """Set the bit of each hash in the row that starts at ``begins``; None means the first row."""
        positions, divisor = self._positions, np.uint32(bits)
        # numpy divides by a scalar several times faster than it computes remainders.
        quotients = np.floor_divide(hashes, divisor, out=self._quotients)
        np.multiply(quotients, divisor, out=quotients)
        np.subtract(hashes, quotients, out=positions, casting="unsafe", dtype=np.uint32)
        if begins is not None:
            positions += begins
        if self._bytes is not None:
            self._bytes[positions] = True
        else:
            mask = np.uint8(1) << (positions & 7).astype(np.uint8)
            np.bitwise_or.at(self._packed.reshape(-1), positions >> 3, mask)

    def finish(self) -> None:
        """Pack all bits into the rows."""
        if self._bytes is not None:
            self._packed |= np.packbits(self._bytes, bitorder="little").reshape(self._packed.shape)


# ------------------------------------------------------------------------------------------------ filters


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """A bloom filter as Hudi stores it."""

    type_code: str
    num_hashes: int
    bits: int
    """Bits per row."""
    rows: Bytes
    """Rows of packed bits; only a DYNAMIC_V0 filter can have several."""
    entries_per_row: int = 0
    """DYNAMIC_V0 only."""
    last_row_entries: int = 0
    """DYNAMIC_V0 only: keys added to the last row."""

    def probe(self, keys: Keys | HashedKeys) -> npt.NDArray[np.bool_]:
        """Mask of the keys that may be in the filter: False is certain, True is not.

        Raises:
            InvalidInputError: A key is null or empty, or the type is not a string.
        """
        hashed = keys if isinstance(keys, HashedKeys) else hash_keys(keys, self.num_hashes)
        if hashed.num_hashes < self.num_hashes:
            hashed = hash_keys(hashed.keys, self.num_hashes)
        chain = hashed.hashes[: self.num_hashes]
        found = np.zeros(len(hashed), dtype=np.bool_)
        for row in self.rows:
            todo = None if not found.any() else np.flatnonzero(~found)
            found[_survivors(row, chain, self.bits, todo)] = True
        return found

    def encode(self) -> bytes:
        """Encode as text."""
        row_header = _ROW_HEADER.pack(_VERSION, self.num_hashes, _MURMUR, self.bits)
        parts: list[bytes] = []
        if self.type_code == DYNAMIC:
            shape = (self.entries_per_row, self.last_row_entries, len(self.rows))
            parts.append(_DYNAMIC_HEADER.pack(_VERSION, self.num_hashes, _MURMUR, self.bits, *shape))
        for row in self.rows:
            parts += (row_header, row.tobytes())
        return base64.b64encode(b"".join(parts))


def _survivors(row: Bytes, chain: Words, bits: int, alive: npt.NDArray[np.intp] | None) -> npt.NDArray[np.intp] | slice:
    """Positions of keys whose bits are all set; of many keys, each hash is probed only for those that passed so far."""
    if chain.shape[1] <= _FEW and alive is None:
        positions = chain % np.uint32(bits)
        hit = (row[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).astype(np.bool_).all(axis=0)
        return slice(None) if hit.all() else np.flatnonzero(hit)
    for hashes in chain:
        positions = (hashes if alive is None else hashes[alive]) % np.uint32(bits)
        hit = (row[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).astype(np.bool_)
        if alive is None:
            if not hit.all():
                alive = np.flatnonzero(hit)
        else:
            alive = alive[hit]
        if alive is not None and not alive.size:
            break
    return slice(None) if alive is None else alive


def filter_size(num_entries: int, fpp: float) -> tuple[int, int]:
    """Number of bits and hashes for a number of keys and a false-positive rate (``BloomFilterUtils``).

    Raises:
        InvalidInputError: ``num_entries`` is below 1, or ``fpp`` is not between 0 and 1.
    """
    if num_entries < 1 or not 0 < fpp < 1:
        raise InvalidInputError(f"a bloom filter needs entries >= 1 and 0 < fpp < 1, not {num_entries} and {fpp}")
    bits = math.ceil(num_entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
    if bits > _INT_MAX:
        raise InvalidInputError(f"a bloom filter of {num_entries} entries at {fpp} takes more than 2**31 bits")
    return bits, math.ceil(math.log(2) * bits / num_entries)


class BloomBuilder:
    """Builds one filter from batches of keys.

    A DYNAMIC_V0 filter starts a new row after every ``num_entries`` keys until its rows hold ``max_entries``; the
    next key goes to row 0 and the following ones to all rows in turn, again from row 0.
    """

    def __init__(self, *, num_entries: int, fpp: float, type_code: str = DYNAMIC, max_entries: int = 100_000) -> None:
        if type_code not in (SIMPLE, DYNAMIC):
            raise InvalidInputError(f"a bloom filter is {SIMPLE} or {DYNAMIC}, not {type_code!r}")
        self._type_code = type_code
        self._bits, self._num_hashes = filter_size(num_entries, fpp)
        self._row_size = -(-self._bits // 8)
        self._num_entries = num_entries
        self._max_rows = 1 if type_code == SIMPLE else max(1, -(-max_entries // num_entries))
        self._added = 0
        self._rows = np.zeros((1, self._row_size), dtype=np.uint8)

    def add(self, keys: Keys | HashedKeys) -> None:
        """Add a string column.

        Raises:
            InvalidInputError: A key is null or empty, or the type is not a string; no key is added.
        """
        if isinstance(keys, HashedKeys) and keys.num_hashes >= self._num_hashes:
            if len(keys):
                self._set(len(keys), None, keys.hashes[: self._num_hashes])
            return
        for block in _blocks(keys.keys if isinstance(keys, HashedKeys) else keys):
            self._set(block.size, block.order, block.chain(self._num_hashes))

    def _set(self, size: int, order: npt.NDArray[np.intp] | None, chain: Iterable[Words]) -> None:
        rows, begins = self._rows, None
        if self._max_rows > 1:
            row_of = self._row_of(np.arange(self._added, self._added + size))
            first, last = int(row_of.min()), int(row_of.max())
            self._grow(last + 1)
            rows = self._rows[first : last + 1]
            if first != last:
                begins = (row_of if order is None else row_of[order]) - first
                begins *= self._row_size * 8
        setter = _BitSetter(rows, size, self._num_hashes)
        for hashes in chain:
            setter.set(hashes, self._bits, begins)
        setter.finish()
        self._added += size

    def _row_of(self, nth: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row of the n-th key (from 0)."""
        full = self._max_rows * self._num_entries
        if nth[-1] < full:
            return nth // self._num_entries
        in_turn = np.maximum(nth - full - 1, 0) % self._max_rows
        return np.where(nth < full, nth // self._num_entries, in_turn)

    def _grow(self, rows: int) -> None:
        missing = rows - len(self._rows)
        if missing > 0:
            self._rows = np.concatenate([self._rows, np.zeros((missing, self._row_size), dtype=np.uint8)])

    def finish(self) -> BloomFilter:
        """Return the filter over all keys added."""
        rows = self._rows.copy()
        if self._type_code == SIMPLE:
            return BloomFilter(SIMPLE, self._num_hashes, self._bits, rows)
        in_last = self._added - (len(rows) - 1) * self._num_entries
        return BloomFilter(DYNAMIC, self._num_hashes, self._bits, rows, self._num_entries, in_last)


def build_bloom(
    keys: Keys, *, num_entries: int, fpp: float, type_code: str = DYNAMIC, max_entries: int = 100_000
) -> BloomFilter:
    """Build the filter over a string column, equal to Java's for the same keys in the same order.

    Args:
        keys: Array or chunked array of string or large_string.
        num_entries: ``hoodie.index.bloom.num_entries``.
        fpp: ``hoodie.index.bloom.fpp``.
        type_code: ``hoodie.bloom.index.filter.type``.
        max_entries: ``hoodie.bloom.index.filter.dynamic.max.entries``.

    Raises:
        InvalidInputError: A key is null or empty, the type is not a string, or a parameter is out of range.
    """
    builder = BloomBuilder(num_entries=num_entries, fpp=fpp, type_code=type_code, max_entries=max_entries)
    builder.add(keys)
    return builder.finish()


# ------------------------------------------------------------------------------------------------ decoding


def decode_bloom(text: bytes | str, type_code: str, path: str = "") -> BloomFilter:
    """Decode a filter from its text form. Offsets in errors count decoded bytes.

    Raises:
        CorruptFileError: The text is damaged, or the filter type or hash function is unknown.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptFileError(path, 0, "a bloom filter in base64", str(error)) from error
    kind = type_code.upper()
    if kind == SIMPLE:
        num_hashes, bits = _shape(data, path)
        rows = _rows(data, path, _ROW_HEADER.size, 1, -(-bits // 8))
        return BloomFilter(SIMPLE, num_hashes, bits, rows)
    if kind == DYNAMIC:
        return _decode_dynamic(data, path)
    raise CorruptFileError(path, 0, f"bloom filter type {SIMPLE} or {DYNAMIC}", repr(type_code))


def _decode_dynamic(data: bytes, path: str) -> BloomFilter:
    num_hashes, bits = _shape(data, path)
    if len(data) < _DYNAMIC_HEADER.size:
        raise CorruptFileError(path, len(data), f"a header of {_DYNAMIC_HEADER.size} bytes", f"{len(data)} bytes")
    *_, per_row, in_last, count = _DYNAMIC_HEADER.unpack_from(data)
    if count < 1 or per_row < 1 or in_last < 0:
        found = f"{count} rows of {per_row}, {in_last} in the last"
        raise CorruptFileError(path, _ROW_HEADER.size, "a filter with rows", found)
    row_size = _ROW_HEADER.size - (-bits // 8)
    with_headers = _rows(data, path, _DYNAMIC_HEADER.size, count, row_size)
    expected = _ROW_HEADER.pack(_VERSION, num_hashes, _MURMUR, bits)
    rows = with_headers[:, _ROW_HEADER.size :]
    if count == 1 and data.startswith(expected, _DYNAMIC_HEADER.size):
        return BloomFilter(DYNAMIC, num_hashes, bits, rows, per_row, in_last)
    row_header = np.frombuffer(expected, dtype=np.uint8)
    wrong = np.flatnonzero((with_headers[:, : _ROW_HEADER.size] != row_header).any(axis=1))
    if wrong.size:
        offset = _DYNAMIC_HEADER.size + int(wrong[0]) * with_headers.shape[1]
        found = with_headers[wrong[0], : _ROW_HEADER.size].tobytes().hex()
        raise CorruptFileError(path, offset, f"the row header {row_header.tobytes().hex()}", found)
    return BloomFilter(DYNAMIC, num_hashes, bits, rows, per_row, in_last)


def _shape(data: bytes, path: str) -> tuple[int, int]:
    """Number of hashes and bits, from the header common to both forms."""
    if len(data) < _ROW_HEADER.size:
        raise CorruptFileError(path, len(data), f"a header of {_ROW_HEADER.size} bytes", f"{len(data)} bytes")
    version, num_hashes, hash_type, bits = _ROW_HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptFileError(path, 0, f"bloom filter version {_VERSION}", str(version))
    if not 1 <= num_hashes <= _MAX_HASHES:
        raise CorruptFileError(path, 4, f"1 to {_MAX_HASHES} hashes", str(num_hashes))
    if hash_type != _MURMUR:
        raise CorruptFileError(path, 8, f"hash type {_MURMUR} (murmur)", str(hash_type))
    if bits < 1:
        raise CorruptFileError(path, 9, "a positive number of bits", str(bits))
    return num_hashes, bits


def _rows(data: bytes, path: str, start: int, count: int, row_size: int) -> Bytes:
    """View of the rows, which must fill ``data`` from ``start`` on."""
    if len(data) - start != count * row_size:
        expected = f"{count} row(s) of {row_size} bytes"
        raise CorruptFileError(path, start, expected, f"{len(data) - start} bytes")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(count, row_size)


_SIZES = 4


PLACED = 6
"""Number of hashes per key with precomputed bits. In a full filter one absent key of 64 needs more."""


_FEW_ALIVE = 4096


class KeyProbe:
    """Column of keys to probe in many filters of few different sizes.

    Keys are hashed once, and the bits of a key's first hashes are computed once per filter size.
    Memory per key: 4 bytes per hash (30 at Hudi's default rate), and ``PLACED`` x 9 bytes for each of 4 sizes.
    """

    __slots__ = ("_hashed", "_keys", "_placed")

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._hashed: HashedKeys | None = None
        self._placed: dict[int, list[tuple[npt.NDArray[np.intp], Bytes]]] = {}

    def passing(self, bloom: BloomFilter, start: int, end: int) -> npt.NDArray[np.intp]:
        """Positions, among the keys from ``start`` to ``end``, of those that may be in a filter.

        Raises:
            InvalidInputError: A key is null or empty, or the type is not a string.
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
            elif alive.size <= _FEW_ALIVE:
                # Most of these are in the filter: probing hash by hash would save nothing.
                at, mask = _place(chain[number:, alive], bits)
                passing: npt.NDArray[np.bool_] = ((row.take(at) & mask) != 0).all(axis=0)
                return alive[passing]
            else:
                at, mask = _place(chain[number][alive], bits)
            alive = alive[(row.take(at) & mask) != 0]
        return alive


def _place(hashes: Words, bits: int) -> tuple[npt.NDArray[np.intp], Bytes]:
    """Byte offset and mask of the bit of each hash."""
    positions = hashes % np.uint32(bits)
    return (positions >> 3).astype(np.intp), np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomSizing:
    """Type and size of the bloom filters to write.

    Attributes:
        num_entries: Number of keys per filter, or per row of a DYNAMIC_V0 one (``hoodie.index.bloom.num_entries``);
            None sizes the filter for the keys of the file.
        fpp: False-positive rate (``hoodie.index.bloom.fpp``).
        type_code: SIMPLE or DYNAMIC_V0 (``hoodie.bloom.index.filter.type``).
        max_entries: Number of keys at which a DYNAMIC_V0 filter stops growing
            (``hoodie.bloom.index.filter.dynamic.max.entries``).
    """

    num_entries: int | None = None
    fpp: float = 1e-9
    type_code: str = DYNAMIC
    max_entries: int = 100_000

    def builder(self, keys: int) -> BloomBuilder:
        """Builder for a file of about ``keys`` keys."""
        entries = self.num_entries or max(keys, 1)
        return BloomBuilder(
            num_entries=entries, fpp=self.fpp, type_code=self.type_code, max_entries=self._largest(entries)
        )

    def _largest(self, entries: int) -> int:
        # The cap must not be below the number of keys that the filter is sized for.
        return max(self.max_entries, entries)

    def fits(self, bloom: BloomFilter, keys: int) -> bool:
        """Whether a filter over ``keys`` keys has this type, rate and size; up to twice the size is accepted."""
        if bloom.type_code != self.type_code:
            return False
        if self.num_entries is not None:
            return self._has_given_size(bloom, keys, self.num_entries)
        keys = max(keys, 1)
        if bloom.type_code == SIMPLE:
            bits, hashes = filter_size(keys, self.fpp)
            # A filter does not store the number of keys it was sized for; the number of hashes is rounded up.
            return bits <= bloom.bits <= 2 * bits and abs(bloom.num_hashes - hashes) <= 1
        entries = bloom.entries_per_row
        shape = filter_size(entries, self.fpp)
        return len(bloom.rows) == 1 and keys <= entries <= 2 * keys and (bloom.bits, bloom.num_hashes) == shape

    def _has_given_size(self, bloom: BloomFilter, keys: int, entries: int) -> bool:
        if (bloom.bits, bloom.num_hashes) != filter_size(entries, self.fpp):
            return False
        rows = min(max(-(-keys // entries), 1), -(-self._largest(entries) // entries))
        return bloom.type_code == SIMPLE or (bloom.entries_per_row == entries and len(bloom.rows) == rows)
