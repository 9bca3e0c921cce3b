"""Read and write integers of variable length: Hadoop's VLong and the varint of protocol buffers.

VLong (``org.apache.hadoop.io.WritableUtils.writeVLong``; in Hudi ``IOUtils.readVarLong``):

    ==================  =============================================================
    first byte          meaning
    ==================  =============================================================
    -112 ... 127        the value itself
    -120 ... -113       ``-112 - first`` big-endian bytes follow
    -128 ... -121       ``-120 - first`` big-endian bytes follow, value is their complement
    ==================  =============================================================

Varint (``CodedInputStream.readRawVarint64``): groups of seven bits, lowest first, high bit set on all but the last;
at most ten bytes, always read as an unsigned 64-bit number.
"""

from __future__ import annotations

from lakedex.errors import CorruptFileError

__all__ = ["decode_varint", "decode_vlong", "encode_varint", "encode_vlong", "vlong_size"]


_MASK64 = (1 << 64) - 1


_MAX_VARINT_SIZE = 10


def vlong_size(first: int) -> int:
    """Size of a VLong, from its first byte (0 ... 255)."""
    if first < 128 or first >= 144:
        return 1
    return 145 - first if first >= 136 else 137 - first


def decode_vlong(buf: bytes | memoryview, pos: int, *, path: str = "", base: int = 0) -> tuple[int, int]:
    """Read a VLong.

    Args:
        buf: Bytes that contain the number.
        pos: Its position in ``buf``.
        path: File named in errors.
        base: Offset of ``buf`` in the file, for errors.

    Returns:
        The value, and the position after it.

    Raises:
        CorruptFileError: ``buf`` ends before the number does.
    """
    if not 0 <= pos < len(buf):
        raise CorruptFileError(path, base + pos, "a VLong", "the end of the bytes")
    first = buf[pos]
    end = pos + vlong_size(first)
    if end == pos + 1:
        return (first if first < 128 else first - 256), end
    if end > len(buf):
        raise CorruptFileError(path, base + pos, f"a VLong of {end - pos} bytes", f"{len(buf) - pos} bytes")
    value = int.from_bytes(buf[pos + 1 : end], "big")
    if first < 136:
        value = ~value
    if not -(1 << 63) <= value < 1 << 63:
        raise CorruptFileError(path, base + pos, "a VLong of 64 bits", str(value))
    return value, end


def encode_vlong(value: int) -> bytes:
    """Write a VLong."""
    if -112 <= value <= 127:
        return bytes((value & 0xFF,))
    lead, magnitude = (-112, value) if value >= 0 else (-120, ~value)
    size = (magnitude.bit_length() + 7) // 8
    return bytes(((lead - size) & 0xFF,)) + magnitude.to_bytes(size, "big")


def decode_varint(buf: bytes | memoryview, pos: int, *, path: str = "", base: int = 0) -> tuple[int, int]:
    """Read a varint as an unsigned number of 64 bits; arguments, result and error as in :func:`decode_vlong`."""
    value = shift = 0
    end = min(len(buf), pos + _MAX_VARINT_SIZE)
    for at in range(pos, end):
        byte = buf[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at + 1
        shift += 7
    found = "the end of the bytes" if end == len(buf) else f"{_MAX_VARINT_SIZE} bytes without an end"
    raise CorruptFileError(path, base + pos, "a varint", found)


def encode_varint(value: int) -> bytes:
    """Write a varint; negative numbers as 64-bit two's complement, as Java does."""
    value &= _MASK64
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
