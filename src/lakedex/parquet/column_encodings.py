"""Choose how the columns of a new file are encoded and compressed, by a sample of their rows.

==========================  ====================================================================================
column                      encoding
==========================  ====================================================================================
floating point              plain: Spark drops rows by dictionaries that omit NaN and -0.0
numbers, dates, times       a dictionary if few values differ; else plain, or packed differences of neighbours
                            (``DELTA_BINARY_PACKED``), whichever is smaller
(nearly) unique             as numbers, or plain
others, nested columns      a dictionary, as far as Arrow finds it worthwhile
==========================  ====================================================================================

Plain values are compressed if that makes the sample a tenth smaller, packed differences never, all others always.

Memory: the sample, 2,048 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ColumnEncodings", "choose_encodings"]


RUNS, RUN_ROWS = 4, 512
"""Runs of neighbouring rows that make the sample, and rows of each."""


LARGEST_DICTIONARY = 0.5
"""Share of different values in the sample up to which numbers get a dictionary."""


LARGEST_COMPRESSED = 0.9
"""Share of the sample's bytes that compression may leave."""


_BLOCK, _PARTS = 128, 4
"""Differences of a block, and its parts of one bit width each, as Arrow and Java pack them."""


_BLOCK_BYTES = 8
"""Bytes of a block's header, about."""


@dataclass(frozen=True, slots=True)
class ColumnEncodings:
    """Settings of a Parquet writer, by the dotted path of leaves.

    Attributes:
        dictionaries: Leaves with dictionaries.
        packed: Leaves of packed differences; all others are plain.
        compression: Codec of each leaf, as named by pyarrow.
    """

    dictionaries: frozenset[str]
    packed: frozenset[str]
    compression: dict[str, str]


def choose_encodings(
    table: pa.Table,
    leaves: Sequence[tuple[str, pa.DataType]],
    compression: str,
    unique: frozenset[str],
    *,
    packs_numbers: bool,
) -> ColumnEncodings:
    """Choose by rows of a file. If they are few, nothing is sampled, packed, or left uncompressed.

    Args:
        table: Rows of the file, such as its first row group.
        leaves: Paths and types of its leaves.
        compression: Codec of the file, as named by pyarrow.
        unique: Leaves with (nearly) unique values.
        packs_numbers: Whether readers of the table know ``DELTA_BINARY_PACKED``.
    """
    dictionaries = {path for path, kind in leaves if not pa.types.is_floating(kind) and path not in unique}
    codecs = {path: compression for path, _ in leaves}
    packed: set[str] = set()
    if table.num_rows < RUNS * RUN_ROWS:
        return ColumnEncodings(frozenset(dictionaries), frozenset(), codecs)
    for name, values in _sample(table).items():
        if pa.types.is_integer(values.type):
            if name in dictionaries and pc.count_distinct(values).as_py() <= LARGEST_DICTIONARY * len(values):
                continue
            dictionaries.discard(name)
        elif name in dictionaries:
            continue
        plain = _plain_bytes(values)
        compressed = _compressed_size(plain, compression)
        if packs_numbers and pa.types.is_integer(values.type) and _packed_size(values.to_numpy()) <= compressed:
            packed.add(name)
            codecs[name] = "none"
        elif compressed > LARGEST_COMPRESSED * len(plain):
            codecs[name] = "none"
    return ColumnEncodings(frozenset(dictionaries), frozenset(packed), codecs)


def _sample(table: pa.Table) -> dict[str, pa.Array]:
    """Values of top-level columns without nulls, as they are stored: floating point, text, 32-bit or 64-bit numbers."""
    kinds = {column.name: _stored_type(column.type) for column in table.schema}
    names = [name for name, kind in kinds.items() if kind is not None]
    starts = [run * (table.num_rows - RUN_ROWS) // (RUNS - 1) for run in range(RUNS)]
    rows = pa.concat_tables([table.select(names).slice(start, RUN_ROWS) for start in starts])
    found = {name: pa.concat_arrays(rows.column(name).chunks).drop_null().cast(kinds[name]) for name in names}
    return {name: values for name, values in found.items() if len(values) > _BLOCK}


def _stored_type(kind: pa.DataType) -> pa.DataType | None:
    """Type of a column's values in the file; None for one of which nothing is chosen."""
    if pa.types.is_floating(kind) or pa.types.is_string(kind):
        return kind
    if pa.types.is_signed_integer(kind) or pa.types.is_date32(kind):
        return kind if pa.types.is_int64(kind) else pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else None


def _plain_bytes(values: pa.Array) -> bytes | memoryview:
    """Values as plain pages have them, but that the lengths of texts come first."""
    if not pa.types.is_string(values.type):
        return memoryview(values.buffers()[1])
    lengths: bytes = pc.binary_length(values).to_numpy().tobytes()
    return lengths + b"".join(values.cast(pa.binary()).to_pylist())


def _compressed_size(plain: bytes | memoryview, compression: str) -> int:
    if compression.lower() in ("none", "uncompressed"):
        return len(plain)
    name = "lz4_raw" if compression.lower() == "lz4" else compression.lower()
    return len(pa.Codec(name).compress(plain))


def _packed_size(values: npt.NDArray[np.signedinteger]) -> float:
    """Bytes of values as packed differences, about."""
    wide = values.astype(np.int64)
    differences = wide[1:] - wide[:-1]
    blocks = differences[: len(differences) // _BLOCK * _BLOCK].reshape(-1, _PARTS, _BLOCK // _PARTS)
    highest = (blocks.max(axis=2) - blocks.min(axis=(1, 2))[:, np.newaxis]).view(np.uint64)
    _, bits = np.frexp(highest.astype(np.float64))
    return float((bits.sum() * (_BLOCK // _PARTS) / 8 + len(blocks) * _BLOCK_BYTES) * len(values) / blocks.size)
