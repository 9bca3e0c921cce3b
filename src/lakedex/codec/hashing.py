"""Hash columns, partitions, file names and keys as Hudi does, on Arrow columns.

    ============  ==================================================  ==========
    id            hash                                                text
    ============  ==================================================  ==========
    column        XXH64 of the dotted name                            12 chars
    partition     XXH64 of the path, ``.`` for a table without any    12 chars
    file          MD5 of the file name (without its folder)           24 chars
    ============  ==================================================  ==========

Texts are standard base64 with padding. In Hudi: ``HashID``, ``ColumnIndexID``, ``PartitionIndexID``, ``FileIndexID``,
and ``HoodieTableMetadataUtil.mapRecordKeyToFileGroupIndex`` (1.1.1).
"""

from __future__ import annotations

from base64 import b64encode
from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lakedex.errors import InvalidInputError

__all__ = [
    "Keys",
    "StringChunk",
    "column_id",
    "file_group_index",
    "file_group_index_many",
    "file_id",
    "file_id_bytes",
    "java_hash",
    "partition_id",
    "string_chunks",
]


Keys: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"


StringChunk: TypeAlias = "tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], pa.Array[Any]]"


def string_chunks(keys: Keys, what: str = "key") -> Iterator[StringChunk]:
    """Offsets (from 0), UTF-8 bytes and the array itself, for each chunk that is not empty.

    The bytes of a slice are those of the slice only. Only the offsets are copied.

    Raises:
        InvalidInputError: A key is null, or the type is not a string.
    """
    for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
        if chunk.null_count:
            raise InvalidInputError(f"{chunk.null_count} null {what}(s)", count=chunk.null_count)
        if len(chunk):
            yield _buffers(_as_string(chunk, what))


def _as_string(array: pa.Array[Any], what: str) -> pa.Array[Any]:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        return array.cast(pa.string())
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    raise InvalidInputError(f"a {what} must be a string, not {kind}")


def _buffers(array: pa.Array[Any]) -> StringChunk:
    # Arrow omits empty buffers.
    _, offset_buffer, data_buffer = (buffer if buffer is not None else b"" for buffer in array.buffers())
    width = "<i8" if pa.types.is_large_string(array.type) else "<i4"
    offsets = np.frombuffer(memoryview(offset_buffer), dtype=width)[
        array.offset : array.offset + len(array) + 1
    ].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, np.frombuffer(memoryview(data_buffer), dtype=np.uint8)[first:last], array


# HashID stores 0xdabadaba in an int; XXHash64 sign-extends it to a long.
SEED_64 = 0xFFFFFFFF_DABADABA


NON_PARTITIONED = "."


_INT_MAX = (1 << 31) - 1


_MAX_BMP = 0xFFFF


_MAX_ASCII = 0x7F


@lru_cache(maxsize=4096)
def column_id(name: str) -> str:
    """Id of a column by its (dotted) name."""
    return _xxh64(name)


@lru_cache(maxsize=4096)
def partition_id(path: str) -> str:
    """Id of a partition by its path; ``''`` for a table without partitions."""
    return _xxh64(path or NON_PARTITIONED)


def file_id(name: str) -> str:
    """Id of a file by its name."""
    return file_id_bytes(name).decode("ascii")


def file_id_bytes(name: str) -> bytes:
    """:func:`file_id` in ASCII."""
    return b2a_base64(md5(name.encode(), usedforsecurity=False).digest(), newline=False)


def _xxh64(text: str) -> str:
    return b64encode(xxhash.xxh64_digest(text.encode(), seed=SEED_64)).decode("ascii")


def java_hash(text: str) -> int:
    """``String.hashCode``: a signed 32 bit sum over UTF-16 units."""
    value = int(_hashes(*_units([text]))[0])
    return value - (1 << 32) if value >> 31 else value


def file_group_index(key: str, n: int) -> int:
    """Number of the file group, of the ``n`` of a metadata partition, that stores ``key``."""
    return int(file_group_index_many([key], n)[0])


def file_group_index_many(keys: Sequence[str] | Keys, n: int) -> npt.NDArray[np.int64]:
    """:func:`file_group_index` of each key.

    Raises:
        InvalidInputError: ``n`` is out of range, or a key is null or not a string.
    """
    if not 1 <= n <= _INT_MAX:
        raise InvalidInputError(f"a metadata partition has 1 to {_INT_MAX} file groups, not {n}")
    if n == 1:
        return np.zeros(len(keys), dtype=np.int64)
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        parts = [_arrow_hashes(chunk) for chunk in string_chunks(keys)]
        hashes = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint32)
    else:
        hashes = _hashes(*_units(keys))
    # Java: abs(abs(h) % n). Its abs(INT_MIN) is INT_MIN, whose remainder has the magnitude of 2**31's.
    magnitude = np.abs(hashes.view(np.int32)).view(np.uint32)
    return (magnitude % np.uint32(n)).astype(np.int64)


def _arrow_hashes(chunk: StringChunk) -> npt.NDArray[np.uint32]:
    offsets, data, array = chunk
    if data.size and data.max() > _MAX_ASCII:
        return _hashes(*_units([str(key) for key in array.to_pylist()]))
    return _hashes(data, offsets)


def _units(keys: Sequence[str]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    """UTF-16 units of all keys, concatenated, and the offset of each key (the end as last entry)."""
    joined = "".join(keys)
    units = np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.uint16, copy=False)
    if joined and max(joined) > chr(_MAX_BMP):
        lengths = [len(key.encode("utf-16-le", "surrogatepass")) // 2 for key in keys]
    else:
        lengths = [len(key) for key in keys]
    offsets = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return units, offsets


def _hashes(
    units: npt.NDArray[np.uint16] | npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Sum of ``unit * 31 ** (units after it)`` per key, modulo 2**32."""
    lengths = np.diff(offsets)
    result = np.zeros(len(lengths), dtype=np.uint32)
    filled = lengths > 0
    if not filled.any():
        return result
    powers = np.full(int(lengths.max()), 31, dtype=np.uint32)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    after = np.repeat(offsets[1:], lengths) - np.arange(1, len(units) + 1)
    terms = powers[after] * units
    result[filled] = np.add.reduceat(terms, offsets[:-1][filled])
    return result
