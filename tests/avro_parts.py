"""The parts of an Avro object container, for files that no writer would make."""

from __future__ import annotations

from collections.abc import Mapping

from lakedex.codec.avro import MAGIC
from lakedex.codec.varint import decode_varint, encode_varint


def avro_long(value: int) -> bytes:
    """A zigzag varint."""
    return encode_varint((value << 1) ^ (value >> 63))


def avro_bytes(content: bytes) -> bytes:
    """Bytes after their length."""
    return avro_long(len(content)) + content


def container(meta: Mapping[bytes, bytes], block: bytes, sync: bytes = bytes(16)) -> bytes:
    """A file with one block."""
    entries = b"".join(avro_bytes(part) for entry in meta.items() for part in entry)
    return b"".join((MAGIC, avro_long(len(meta)), entries, avro_long(0), sync, block, sync))


def schema_and_datum(content: bytes) -> tuple[str, bytes]:
    """The schema of a container with one record, and the record's bytes."""
    at = len(MAGIC)

    def long() -> int:
        nonlocal at
        value, at = decode_varint(content, at)
        return value >> 1 ^ -(value & 1)

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return content[at - size : at]

    meta = {take(long()): take(long()) for _ in range(long())}
    assert long() == 0
    take(16)
    assert long() == 1
    return meta[b"avro.schema"].decode(), take(long())
