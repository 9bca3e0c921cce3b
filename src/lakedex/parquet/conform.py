"""Rows in a table's schema: match by name, add nulls, widen, keep or decode dictionaries.

Rows of an older or foreign schema in the table's schema: match by name, add nulls, widen.

Only lossless widenings are taken; everything else is a :class:`SchemaMismatchError` that names column and both types.

Text columns as Arrow dictionaries, from the pages of one base file to those of the next.

A column that the old file has in dictionary pages is neither spelt out row by row when it is read, nor hashed row by
row when it is written: a merge takes numbers. Values that no row has any more are dropped before they are written.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.codec.vectors import is_vector_of, vectors
from lakedex.errors import SchemaMismatchError

__all__ = [
    "ENCODED",
    "can_widen",
    "compact",
    "conform",
    "conform_array",
    "conform_stored",
    "encoded",
    "encoded_columns",
    "is_dictionary_encoded",
    "plain",
    "shaped",
    "with_dictionaries",
]


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def can_widen(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether each value of ``source`` has the same value in ``target``."""
    if source == target:
        return True
    if source in _INTEGERS and target in _INTEGERS:
        return bool(_INTEGERS.index(source) <= _INTEGERS.index(target))
    if source in _INTEGERS[:3] and pa.types.is_float64(target):
        return True
    if source in _INTEGERS[:2] and pa.types.is_float32(target):
        return True
    if pa.types.is_float32(source) and pa.types.is_float64(target):
        return True
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return bool(target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale)
    if source in _INTEGERS and pa.types.is_decimal(target):
        digits = (3, 5, 10, 19)[_INTEGERS.index(source)]
        return bool(target.precision - target.scale >= digits)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        units = ("s", "ms", "us", "ns")
        return (source.tz is None) == (target.tz is None) and units.index(source.unit) <= units.index(target.unit)
    if _is_text(source) and _is_text(target):
        return True
    if _is_bytes(source) and _is_bytes(target):
        return True
    return is_vector_of(source, target) or _can_widen_nested(source, target)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _can_widen_nested(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        names = {field.name for field in target}
        return all(field.name in names for field in source) and all(
            source.get_field_index(field.name) < 0 or can_widen(source.field(field.name).type, field.type)
            for field in target
        )
    if (_is_list(source) or pa.types.is_fixed_size_list(source)) and _is_list(target):
        return can_widen(source.value_type, target.value_type)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return can_widen(source.key_type, target.key_type) and can_widen(source.item_type, target.item_type)
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Rows of ``batch`` in schema ``target``; missing columns are null, columns too many are left out."""
    if batch.schema.equals(target):
        return batch
    columns = []
    for field in target:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(conform_array(batch.column(position), field.type, field.name))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def conform_stored(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Stored rows of an older schema in schema ``target``.

    As :func:`conform`; besides, a column of whole numbers or dates may have become text since, which a writer has to
    ask for and a reader has to take as it finds it, and Parquet has the text of enums as bytes.
    """
    for place, (name, array) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        wanted = target.get_field_index(name)
        is_plain = pa.types.is_integer(array.type) or pa.types.is_date32(array.type)
        if wanted >= 0 and is_plain and pa.types.is_string(target.field(wanted).type):
            batch = batch.set_column(place, name, array.cast(pa.string()))
        elif wanted >= 0 and _has_enum(array.type, target.field(wanted).type):
            batch = batch.set_column(place, name, _enum_text(array, target.field(wanted).type))
    return conform(batch, target)


def _has_enum(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return any(
            _has_enum(field.type, target.field(field.name).type)
            for field in source
            if target.get_field_index(field.name) >= 0
        )
    return bool(pa.types.is_binary(source) and pa.types.is_string(target))


def _enum_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Bytes as text, in structs too."""
    if not _has_enum(array.type, target):
        return array
    if not pa.types.is_struct(target):
        return array.cast(pa.string())
    compact = pa.concat_arrays([array]) if array.offset else array
    parts = [
        _enum_text(compact.field(place), target.field(field.name).type)
        if target.get_field_index(field.name) >= 0
        else compact.field(place)
        for place, field in enumerate(array.type)
    ]
    fields = [field.with_type(part.type) for field, part in zip(array.type, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=compact.is_null())


def conform_array(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """``array`` as ``target``.

    Raises:
        SchemaMismatchError: where that is no lossless widening.
    """
    if array.type.equals(target, check_metadata=False) and array.type == target:
        return array
    if not can_widen(array.type, target):
        raise SchemaMismatchError(
            f"column {name!r} is {array.type} but the table has {target}; cast the column",
            column=name,
            expected=str(target),
            found=str(array.type),
        )
    if pa.types.is_struct(target):
        children = []
        for field in target:
            if array.type.get_field_index(field.name) < 0:
                children.append(pa.nulls(len(array), field.type))
            else:
                child = (
                    array.field(field.name)
                    if array.offset == 0
                    else array.flatten()[array.type.get_field_index(field.name)]
                )
                children.append(conform_array(child, field.type, f"{name}.{field.name}"))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if is_vector_of(array.type, target):
        return vectors(array, target)
    if _is_list(target):
        if pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        compact = pa.concat_arrays([array]) if array.offset else array
        values = conform_array(compact.values, target.value_type, f"{name}.element")
        kind = pa.LargeListArray if pa.types.is_large_list(target) else pa.ListArray
        offsets = compact.offsets.cast(pa.int64() if pa.types.is_large_list(target) else pa.int32())
        return kind.from_arrays(offsets, values, type=target, mask=compact.is_null())
    if pa.types.is_map(target):
        compact = pa.concat_arrays([array]) if array.offset else array
        keys = conform_array(compact.keys, target.key_type, f"{name}.key")
        items = conform_array(compact.items, target.item_type, f"{name}.value")
        return pa.MapArray.from_arrays(compact.offsets, keys, items, type=target, mask=compact.is_null())
    return array.cast(target)


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
    return [
        name for name in texts if groups and all(is_dictionary_encoded(group.column(places[name])) for group in groups)
    ]


def is_dictionary_encoded(chunk: pq.ColumnChunkMetaData) -> bool:
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
