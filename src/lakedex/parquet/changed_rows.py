"""A batch of stored rows, some of them changed, and the columns in which nothing did: their chunks can be reused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.parquet.conform import decode_dictionary
from lakedex.types import FILE_NAME, RECORD_KEY

__all__ = ["Changed", "replaced_rows", "unchanged_columns"]


@dataclass(frozen=True, slots=True)
class Changed:
    """A batch of a base file as it is in the next one.

    Attributes:
        rows: in the new file's schema.
        unchanged: columns that have the stored values, bit by bit.
        is_whole: none of the stored rows is missing.
    """

    rows: pa.RecordBatch
    unchanged: frozenset[str] = frozenset()
    is_whole: bool = True


def replaced_rows(
    stored: pa.RecordBatch, incoming: pa.RecordBatch, take: npt.NDArray[np.int64], same: Collection[str]
) -> pa.RecordBatch:
    """Rows of ``stored`` and after them those of ``incoming``, by number; columns that are the ``same`` stay."""
    numbers, columns = pa.array(take), []
    for name, ours, theirs in zip(stored.schema.names, stored.columns, incoming.columns, strict=True):
        if name in same:
            columns.append(ours)
            continue
        both = pa.chunked_array([ours, theirs]).unify_dictionaries().combine_chunks()
        columns.append(both.take(numbers))
    return pa.RecordBatch.from_arrays(columns, schema=stored.schema)


_FIRST_ROWS = 64
"""Columns that an update changes mostly differ in its first rows."""


def unchanged_columns(
    stored: pa.RecordBatch,
    incoming: pa.RecordBatch,
    places: npt.NDArray[np.int64],
    partners: npt.NDArray[np.int64],
) -> frozenset[str]:
    """Columns in which some incoming rows have the values of the stored rows that they replace, bit by bit."""
    names = [name for name in stored.schema.names if name != FILE_NAME]
    for rows in (slice(0, _FIRST_ROWS), slice(_FIRST_ROWS, None)):
        ours, theirs = pa.array(places[rows]), pa.array(partners[rows])
        if not len(ours):
            break
        names = [
            name
            for name in names
            if name == RECORD_KEY
            or _same_bits(
                decode_dictionary(stored.column(name).take(ours)), decode_dictionary(incoming.column(name).take(theirs))
            )
        ]
    return frozenset(names)


def _same_bits(ours: pa.Array, theirs: pa.Array) -> bool:
    """Whether two columns are equal; floats, of which 0.0 equals -0.0, by their bits."""
    if pa.types.is_floating(ours.type):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[ours.type.bit_width]
        ours, theirs = ours.view(bits), theirs.view(bits)
    elif pa.types.is_nested(ours.type) and _has_floats(ours.type):
        return False
    return bool(ours.equals(theirs))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))
