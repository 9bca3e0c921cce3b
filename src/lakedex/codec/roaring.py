"""Encode and decode roaring bitmaps in the 32-bit *portable* format (RoaringFormatSpec) and its base64 text.

Java's ``RoaringBitmap.serialize`` writes this format. CRoaring's own format and the two formats of 64-bit bitmaps are
unsupported.

    ==========  =====================================================================
    bytes       content (little endian)
    ==========  =====================================================================
    4           cookie: 12346, then containers as 4 bytes; or 12347 with ``containers - 1`` in the upper half, when
                some containers are runs, then one bit a container that says which
    4 each      per container: upper 16 bits of its values, cardinality - 1
    4 each      per container its offset (always after cookie 12346, after 12347 from four containers on)
    …           containers: sorted 16-bit values (up to 4,096 of them), 8 KiB of bits, or runs as (start, length - 1)
    ==========  =====================================================================
"""

from __future__ import annotations

import base64
import binascii
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lakedex.errors import CorruptFileError

__all__ = ["bitmap_of", "decode_bitmap", "deserialize_bitmap", "encode_bitmap", "serialize_bitmap", "serialize_bitmaps"]


_COOKIE = 12346


_COOKIE_WITH_RUNS = 12347


_MAX_CONTAINERS = 1 << 16


_CONTAINER = 1 << 16
"""Positions per container."""


_LARGEST_ARRAY = 4096


_BITSET_BYTES = _CONTAINER // 8


_FEW = 1024
"""Up to this many numbers, searching for the start of each is faster than a pass over all rows."""


_ROWS = np.arange(_CONTAINER, dtype=np.uint32)


_ONE_CONTAINER = struct.Struct("<IIHHI")


_ONE_OF_RUNS = struct.Struct("<HHBHH")


_OFFSETS_FROM = 4
"""Number of containers from which on a bitmap with runs has offsets."""


def bitmap_of(positions: npt.NDArray[np.uint32]) -> BitMap:
    """Bitmap of positions in any order; duplicates are ignored."""
    # pyroaring copies this type of array at once, and other sequences number by number.
    packed = array("I")
    packed.frombytes(np.ascontiguousarray(positions, np.uint32).tobytes())
    return BitMap(packed)


def serialize_bitmap(bitmap: BitMap) -> bytes:
    """Portable bytes, with run containers where they are smaller. The bitmap itself is optimised in place."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def serialize_bitmaps(numbers: npt.NDArray[np.unsignedinteger], count: int) -> tuple[list[int], list[bytes]]:
    """Bitmaps of the positions of each number in an array, as :func:`serialize_bitmap` encodes them.

    All containers are cut from one sorted array, so a bitmap costs little more than its bytes.

    Args:
        numbers: Numbers below ``count``. Those of 8 or 16 bits are sorted in half the time.
        count: Upper limit of the numbers.

    Returns:
        For each number its frequency and the portable bytes of its bitmap.
    """
    counts, bitmaps = [0] * count, [struct.pack("<II", _COOKIE, 0)] * count
    chunks = [_containers(numbers[start : start + _CONTAINER], count) for start in range(0, len(numbers), _CONTAINER)]
    for number, size, bitmap in _of_one(*chunks[0]) if len(chunks) == 1 else _joined(chunks):
        counts[number], bitmaps[number] = size, bitmap
    return counts, bitmaps


_Containers = tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64], npt.NDArray[np.bool_], list[bytes]]
"""For each container: the number, its frequency, whether the container has runs, the content."""


def _containers(numbers: npt.NDArray[np.unsignedinteger], count: int) -> _Containers:
    """Containers of the numbers in up to 65,536 rows, in the order of the numbers.

    A number and its row are sorted as one integer: NumPy 2 sorts integers with vector instructions, faster and in
    less memory than an argsort of small numbers.
    """
    wide: Any = np.uint32 if numbers.itemsize <= _ROWS.itemsize // 2 else np.uint64
    keys = numbers.astype(wide)
    keys <<= wide(16)
    keys |= _ROWS[: len(numbers)]
    keys.sort()
    positions = keys.astype("<u2")
    if count <= _FEW:
        every = np.arange(count, dtype=wide)
        starts = np.searchsorted(keys, every << wide(16))
        is_there = np.diff(starts, append=len(numbers)) > 0
        starts, present = starts[is_there], every[is_there]
    else:
        ordered = keys >> wide(16)
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        present = ordered[starts]
    present = present.astype(numbers.dtype)
    ends = np.append(starts[1:], len(numbers))
    is_first = np.empty(len(numbers), bool)
    np.not_equal(positions[1:], positions[:-1] + np.uint16(1), out=is_first[1:])
    # The first row of each number always starts a run.
    is_first[starts] = True
    sizes, runs = ends - starts, np.add.reduceat(is_first.view(np.uint8), starts, dtype=np.int64)
    plain = np.where(sizes <= _LARGEST_ARRAY, 2 * sizes, _BITSET_BYTES)
    is_run = 2 + 4 * runs < plain
    of_runs = is_run.tolist()
    packed = positions.tobytes()
    contents: list[bytes] = []
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if of_runs[place]:
            contents.append(_runs(positions[start:end], np.flatnonzero(is_first[start:end])))
        elif end - start <= _LARGEST_ARRAY:
            contents.append(packed[2 * start : 2 * end])
        else:
            bits = np.packbits(numbers == present[place], bitorder="little")
            contents.append(bits.tobytes().ljust(_BITSET_BYTES, b"\0"))
    return present, sizes, is_run, contents


def _of_one(
    numbers: npt.NDArray[np.unsignedinteger],
    sizes: npt.NDArray[np.int64],
    is_run: npt.NDArray[np.bool_],
    contents: list[bytes],
) -> Iterator[tuple[int, int, bytes]]:
    """Bitmaps of one container each: number, cardinality, bytes."""
    plain, runs = _ONE_CONTAINER.pack, _ONE_OF_RUNS.pack
    for number, size, has_runs, content in zip(
        numbers.tolist(), sizes.tolist(), is_run.tolist(), contents, strict=True
    ):
        if has_runs:
            yield number, size, runs(_COOKIE_WITH_RUNS, 0, 1, 0, size - 1) + content
        else:
            yield number, size, plain(_COOKIE, 1, 0, size - 1, _ONE_CONTAINER.size) + content


def _joined(chunks: Sequence[_Containers]) -> Iterator[tuple[int, int, bytes]]:
    """Bitmaps of several containers, by number: number, cardinality, bytes."""
    if not chunks:
        return
    numbers, sizes, is_run = (np.concatenate(own) for own in zip(*(own[:3] for own in chunks), strict=True))
    keys = np.repeat(np.arange(len(chunks)), [len(own[0]) for own in chunks])
    plain = list(chain.from_iterable(own[3] for own in chunks))
    order = np.argsort(numbers, kind="stable")
    numbers, sizes, is_run, keys = (own.take(order) for own in (numbers, sizes, is_run, keys))
    contents = [plain[place] for place in order.tolist()]
    firsts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    each = np.diff(firsts, append=len(numbers))
    # For all bitmaps at once: the key and cardinality of each container, and its offset in a bitmap without runs.
    pairs = np.stack([keys, sizes - 1], axis=1).astype("<u2").tobytes()
    starts = np.cumsum([0, *map(len, contents[:-1])])
    offsets = starts - np.repeat(starts[firsts] - 8 - 8 * each, each)
    packed = offsets.astype("<u4").tobytes()
    totals, has_runs = np.add.reduceat(sizes, firsts), np.logical_or.reduceat(is_run, firsts)
    for place, (number, first, size) in enumerate(
        zip(numbers[firsts].tolist(), firsts.tolist(), each.tolist(), strict=True)
    ):
        end = first + size
        if has_runs[place]:
            flags = np.packbits(is_run[first:end], bitorder="little").tobytes()
            head = struct.pack("<HH", _COOKIE_WITH_RUNS, size - 1) + flags
            # A header of another length shifts all containers.
            own = (offsets[first:end] + len(head) - 8).astype("<u4").tobytes() if size >= _OFFSETS_FROM else b""
        else:
            head, own = struct.pack("<II", _COOKIE, size), packed[4 * first : 4 * end]
        yield number, int(totals[place]), b"".join((head, pairs[4 * first : 4 * end], own, *contents[first:end]))


def _runs(positions: npt.NDArray[np.uint16], firsts: npt.NDArray[np.int64]) -> bytes:
    """Run container for the runs that start at ``firsts``."""
    pairs = np.empty((len(firsts), 2), "<u2")
    pairs[:, 0] = positions[firsts]
    pairs[:, 1] = np.diff(firsts, append=len(positions)) - 1
    return struct.pack("<H", len(firsts)) + pairs.tobytes()


def encode_bitmap(bitmap: BitMap) -> str:
    """Standard base64 of :func:`serialize_bitmap`."""
    return base64.b64encode(serialize_bitmap(bitmap)).decode("ascii")


def deserialize_bitmap(data: bytes, *, rows: int | None = None, path: str = "") -> BitMap:
    """Decode a bitmap from portable bytes.

    Args:
        data: Bytes of exactly one bitmap.
        rows: Exclusive limit of positions; None allows any.
        path: File named in errors.

    Raises:
        CorruptFileError: The bytes are not exactly one portable 32-bit bitmap, or a position is not below ``rows``.
    """
    cookie = struct.unpack_from("<I", data)[0] if len(data) >= 8 else -1
    if cookie != _COOKIE and cookie & 0xFFFF != _COOKIE_WITH_RUNS:
        raise CorruptFileError(path, 0, "a roaring bitmap in portable 32-bit form", data[:8].hex() or "no bytes")
    if cookie == _COOKIE and struct.unpack_from("<I", data, 4)[0] > _MAX_CONTAINERS:
        raise CorruptFileError(path, 4, f"at most {_MAX_CONTAINERS} containers", data[4:8].hex())
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptFileError(path, 0, "a complete roaring bitmap", f"{len(data)} bytes: {error}") from error
    size = len(bitmap.serialize())
    if size != len(data):
        raise CorruptFileError(path, size, f"a roaring bitmap of {len(data)} bytes", f"one of {size} bytes")
    if rows is not None and len(bitmap) and bitmap.max() >= rows:
        raise CorruptFileError(path, 0, f"row positions below {rows}", str(bitmap.max()))
    return bitmap


def decode_bitmap(text: str, *, rows: int | None = None, path: str = "") -> BitMap:
    """Decode a bitmap from the text of :func:`encode_bitmap`.

    Raises:
        CorruptFileError: As for :func:`deserialize_bitmap`, or the text is not base64.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptFileError(path, 0, "base64 of a roaring bitmap", f"{text[:40]!r}: {error}") from error
    return deserialize_bitmap(data, rows=rows, path=path)
