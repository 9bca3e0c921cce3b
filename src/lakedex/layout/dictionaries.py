"""Text columns as Arrow dictionaries, from the pages of one base file to those of the next.

A column that the old file has in dictionary pages is neither spelt out row by row when it is read, nor hashed row by
row when it is written: a merge takes numbers. Values that no row has any more are dropped before they are written.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ENCODED", "compact", "encoded", "encoded_columns", "is_encoded", "plain", "shaped", "with_dictionaries"]

ENCODED = pa.dictionary(pa.int32(), pa.string())

_DICTIONARY_BYTES = 1 << 20
"""Where writers give a dictionary up: Parquet's Java and C++ libraries have the same default."""
_CODE_BYTES = 2


def encoded_columns(metadata: pq.FileMetaData, schema: pa.Schema, wanted: Collection[str]) -> list[str]:
    """Those of some text columns that a file has in dictionaries, as far as the footer tells.

    The footer does not say whether a column chunk went over to plain values after a while. One that is no larger than
    a dictionary and its codes hardly did; if it did, it is read rightly, only not faster.
    """
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    texts = [name for name in wanted if name in places and name in schema.names]
    texts = [name for name in texts if pa.types.is_string(schema.field(name).type)]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [name for name in texts if groups and all(is_encoded(group.column(places[name])) for group in groups)]


def is_encoded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a column chunk has numbers of a dictionary, as far as the footer tells."""
    most = _DICTIONARY_BYTES + _CODE_BYTES * chunk.num_values
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size <= most)


def with_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """A schema in which some text columns are dictionaries."""
    return pa.schema([column.with_type(ENCODED) if column.name in names else column for column in schema])


def encoded(column: pa.Array) -> pa.Array:
    """A text column as a dictionary."""
    return column.dictionary_encode()


def shaped(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A text column as a dictionary if ``kind`` is that, and without one if not; any other column as it is."""
    if kind == ENCODED:
        return encoded(column) if pa.types.is_string(column.type) else column
    return plain(column)


def plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def compact(column: pa.Array) -> pa.Array:
    """A dictionary column without values that no row has; any other column as it is."""
    if not pa.types.is_dictionary(column.type):
        return column
    if len(column.dictionary) == 1 and column.null_count < len(column):
        return column
    codes = (column.indices.drop_null() if column.null_count else column.indices).to_numpy()
    used = np.bincount(codes, minlength=len(column.dictionary)) > 0
    if used.all():
        return column
    numbers = pa.array((np.cumsum(used) - 1).astype(np.int32)).take(column.indices)
    return pa.DictionaryArray.from_arrays(numbers, column.dictionary.filter(pa.array(used)))
