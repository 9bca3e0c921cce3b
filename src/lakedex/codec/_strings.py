"""Arrow string columns as plain numpy buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.errors import InvalidInputError

__all__ = ["Keys", "StringChunk", "string_chunks"]

Keys: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"
StringChunk: TypeAlias = "tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], pa.Array[Any]]"


def string_chunks(keys: Keys, what: str = "key") -> Iterator[StringChunk]:
    """Offsets (from 0), UTF-8 bytes and the array itself, per chunk that is not empty.

    Slices are honoured: the bytes are those of the slice only. Nothing is copied but the offsets.

    Raises:
        InvalidInputError: Nulls, or a type that is no string.
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
    # Arrow leaves a buffer out when there is nothing in it.
    _, offset_buffer, data_buffer = (buffer if buffer is not None else b"" for buffer in array.buffers())
    width = "<i8" if pa.types.is_large_string(array.type) else "<i4"
    offsets = np.frombuffer(memoryview(offset_buffer), dtype=width)[
        array.offset : array.offset + len(array) + 1
    ].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, np.frombuffer(memoryview(data_buffer), dtype=np.uint8)[first:last], array
