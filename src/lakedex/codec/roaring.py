"""Roaring bitmaps as text: the 32-bit *portable* serialization (RoaringFormatSpec), base64 around it.

That is the form which Java's ``RoaringBitmap.serialize`` writes and ``deserialize`` reads. CRoaring has another form of
its own, and 64-bit bitmaps have two more; none of them is read here.

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
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lakedex.errors import CorruptFileError

__all__ = [
    "bitmap_of",
    "decode_bitmap",
    "deserialize_bitmap",
    "encode_bitmap",
    "serialize_bitmap",
    "serialize_bitmaps",
]

_COOKIE = 12346
_COOKIE_WITH_RUNS = 12347
_MAX_CONTAINERS = 1 << 16
_CONTAINER = 1 << 16
"""Positions that fall into one container."""
_LARGEST_ARRAY = 4096
_BITSET_BYTES = _CONTAINER // 8
_OFFSETS_FROM = 4
"""Containers from which on a bitmap with runs has offsets."""
_ONE_CONTAINER = struct.Struct("<IIHHI")


def bitmap_of(positions: npt.NDArray[np.uint32]) -> BitMap:
    """The bitmap of positions in any order; each counts once."""
    # pyroaring takes this kind of array as a whole, and any other sequence number by number.
    packed = array("I")
    packed.frombytes(np.ascontiguousarray(positions, np.uint32).tobytes())
    return BitMap(packed)


def serialize_bitmap(bitmap: BitMap) -> bytes:
    """Portable bytes, with run containers where they are smaller. The bitmap itself is optimised in place."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def serialize_bitmaps(numbers: npt.NDArray[np.unsignedinteger], count: int) -> tuple[list[int], list[bytes]]:
    """Where each number stands in an array: what :func:`serialize_bitmap` gives for its positions, of all at once.

    The containers are cut out of one sorted array, so a bitmap costs little more than its bytes.

    Args:
        numbers: numbers below ``count``. Of 8 or 16 bits they are sorted by radix, several times faster.
        count: how many numbers there may be.

    Returns:
        For each number how often it stands there, and the portable bytes.
    """
    chunks = [_containers(numbers[start : start + _CONTAINER]) for start in range(0, len(numbers), _CONTAINER)]
    counts, bitmaps = [0] * count, [_EMPTY] * count
    if len(chunks) == 1:
        for number, container in chunks[0]:
            counts[number], bitmaps[number] = container[0], _assembled([(0, container)])
        return counts, bitmaps
    found: dict[int, list[tuple[int, _Container]]] = {}
    for key, chunk in enumerate(chunks):
        for number, container in chunk:
            found.setdefault(number, []).append((key, container))
            counts[number] += container[0]
    for number, containers in found.items():
        bitmaps[number] = _assembled(containers)
    return counts, bitmaps


_EMPTY = struct.pack("<II", _COOKIE, 0)
_Container = tuple[int, bool, bytes]
"""Cardinality, whether it is of runs, content."""


def _containers(numbers: npt.NDArray[np.unsignedinteger]) -> list[tuple[int, _Container]]:
    """The container of each number that stands among up to 65,536."""
    order = np.argsort(numbers, kind="stable")
    ordered, positions = numbers.take(order), order.astype("<u2")
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    ends = np.append(starts[1:], len(numbers))
    # The first of each number begins a run whatever stands before it.
    is_first = np.append(True, positions[1:] != positions[:-1] + np.uint16(1))
    is_first[starts] = True
    sizes, runs = ends - starts, np.add.reduceat(is_first, starts, dtype=np.int64)
    plain = np.where(sizes <= _LARGEST_ARRAY, 2 * sizes, _BITSET_BYTES)
    has_runs = 2 + 4 * runs < plain
    content = positions.tobytes()
    found: list[tuple[int, _Container]] = []
    for number, start, end, is_run in zip(
        ordered[starts].tolist(), starts.tolist(), ends.tolist(), has_runs.tolist(), strict=True
    ):
        if is_run:
            data = _runs(positions[start:end], np.flatnonzero(is_first[start:end]))
        elif end - start <= _LARGEST_ARRAY:
            data = content[2 * start : 2 * end]
        else:
            data = np.packbits(numbers == number, bitorder="little").tobytes().ljust(_BITSET_BYTES, b"\0")
        found.append((number, (end - start, is_run, data)))
    return found


def _runs(positions: npt.NDArray[np.uint16], firsts: npt.NDArray[np.int64]) -> bytes:
    """A container of the runs that begin at these places among the positions."""
    pairs = np.empty((len(firsts), 2), "<u2")
    pairs[:, 0] = positions[firsts]
    pairs[:, 1] = np.diff(firsts, append=len(positions)) - 1
    return struct.pack("<H", len(firsts)) + pairs.tobytes()


def _assembled(containers: Sequence[tuple[int, _Container]]) -> bytes:
    """A bitmap of containers, each with its upper 16 bits, in their order."""
    count = len(containers)
    key, (size, is_run, data) = containers[0]
    if count == 1 and not is_run:
        return _ONE_CONTAINER.pack(_COOKIE, 1, key, size - 1, _ONE_CONTAINER.size) + data
    flags = sum(1 << place for place, (_, (_, is_run, _)) in enumerate(containers) if is_run)
    if flags:
        head = struct.pack("<HH", _COOKIE_WITH_RUNS, count - 1) + flags.to_bytes(-(-count // 8), "little")
    else:
        head = struct.pack("<II", _COOKIE, count)
    parts = [head, *(struct.pack("<HH", key, size - 1) for key, (size, _, _) in containers)]
    if not flags or count >= _OFFSETS_FROM:
        offset = len(head) + 8 * count
        for _, (_, _, data) in containers:
            parts.append(struct.pack("<I", offset))
            offset += len(data)
    return b"".join([*parts, *(data for _, (_, _, data) in containers)])


def encode_bitmap(bitmap: BitMap) -> str:
    """Standard base64 of :func:`serialize_bitmap`."""
    return base64.b64encode(serialize_bitmap(bitmap)).decode("ascii")


def deserialize_bitmap(data: bytes, *, rows: int | None = None, path: str = "") -> BitMap:
    """A bitmap from portable bytes.

    Args:
        data: the bytes, nothing after them.
        rows: positions must be below this; None for any.
        path: where the bytes come from, for errors.

    Raises:
        CorruptFileError: no portable 32-bit bitmap, bytes left over, or a position past the last row.
    """
    cookie = struct.unpack_from("<I", data)[0] if len(data) >= 8 else -1
    if cookie != _COOKIE and cookie & 0xFFFF != _COOKIE_WITH_RUNS:
        raise CorruptFileError(path, 0, "a roaring bitmap in portable 32-bit form", data[:8].hex() or "no bytes")
    if cookie == _COOKIE and struct.unpack_from("<I", data, 4)[0] > _MAX_CONTAINERS:
        raise CorruptFileError(path, 4, f"at most {_MAX_CONTAINERS} containers", data[4:8].hex())
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError, OverflowError) as error:
        raise CorruptFileError(path, 0, "a whole roaring bitmap", f"{len(data)} bytes: {error}") from error
    size = len(bitmap.serialize())
    if size != len(data):
        raise CorruptFileError(path, size, f"a roaring bitmap of {len(data)} bytes", f"one of {size} bytes")
    if rows is not None and len(bitmap) and bitmap.max() >= rows:
        raise CorruptFileError(path, 0, f"row positions below {rows}", str(bitmap.max()))
    return bitmap


def decode_bitmap(text: str, *, rows: int | None = None, path: str = "") -> BitMap:
    """A bitmap from the text of :func:`encode_bitmap`.

    Raises:
        CorruptFileError: as :func:`deserialize_bitmap`, or no base64.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptFileError(path, 0, "base64 of a roaring bitmap", f"{text[:40]!r}: {error}") from error
    return deserialize_bitmap(data, rows=rows, path=path)
