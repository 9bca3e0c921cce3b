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

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lakedex.errors import CorruptFileError

__all__ = ["bitmap_of", "decode_bitmap", "deserialize_bitmap", "encode_bitmap", "serialize_bitmap"]

_COOKIE = 12346
_COOKIE_WITH_RUNS = 12347
_MAX_CONTAINERS = 1 << 16


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
