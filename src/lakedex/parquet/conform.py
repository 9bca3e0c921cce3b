"""Convert rows to a table's schema: match columns by name, add nulls, widen types, keep or decode dictionaries.

Only lossless widening is allowed; everything else is a :class:`SchemaMismatchError` that names the column and both
types.

Text columns with dictionary pages stay dictionaries from one base file to the next: they are neither decoded row by
row on reading nor hashed row by row on writing, and a merge works on indices. Unused values are dropped before writing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.codec.vectors import is_vector_of, vectors
from lakedex.errors import SchemaMismatchError, UnsupportedFeatureError

__all__ = [
    "ENCODED",
    "can_widen",
    "conform",
    "conform_array",
    "conform_stored",
    "decode_dictionary",
    "drop_unused_values",
    "encode_like",
    "encoded",
    "is_dictionary_encoded",
    "with_dictionaries",
]


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def can_widen(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of ``source`` can be represented in ``target``."""
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
    """Convert a batch to schema ``target``; missing columns become null, extra columns are dropped."""
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
    """Convert stored rows of an older schema to schema ``target``.

    As :func:`conform`; in addition, integers or dates may become text, a change that writers make only on request,
    and bytes may become text, as Parquet stores enums.

    Raises:
        UnsupportedFeatureError: numbers that another writer gave a wider type which does not hold all of them.
        SchemaMismatchError: types that do not go together.
    """
    for place, (name, array) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        wanted = target.get_field_index(name)
        if wanted < 0:
            continue
        kind = target.field(wanted).type
        is_plain = pa.types.is_integer(array.type) or pa.types.is_date32(array.type)
        if is_plain and pa.types.is_string(kind):
            batch = batch.set_column(place, name, array.cast(pa.string()))
        elif _has_enum(array.type, kind):
            batch = batch.set_column(place, name, _enum_text(array, kind))
        elif _was_promoted(array.type, kind):
            raise UnsupportedFeatureError(
                f"column {name!r} is {array.type} in older files and {kind} in the table, which does not hold all "
                "such numbers exactly, so lakedex does not read them; Spark does (to_df), and Hudi can write the rows "
                "again",
                feature="columns that were promoted with loss",
            )
    return conform(batch, target)


def _was_promoted(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Hudi promotes numbers so on write (int → float, long → double, double → text), and we do not follow."""
    is_number = pa.types.is_integer(source) or pa.types.is_floating(source)
    is_wider = pa.types.is_floating(target) or pa.types.is_string(target)
    return is_number and is_wider and not can_widen(source, target)


def _has_enum(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return any(
            _has_enum(field.type, target.field(field.name).type)
            for field in source
            if target.get_field_index(field.name) >= 0
        )
    return bool(pa.types.is_binary(source) and pa.types.is_string(target))


def _enum_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert bytes to text, also within structs."""
    if not _has_enum(array.type, target):
        return array
    if not pa.types.is_struct(target):
        return array.cast(pa.string())
    drop_unused_values = pa.concat_arrays([array]) if array.offset else array
    parts = [
        _enum_text(drop_unused_values.field(place), target.field(field.name).type)
        if target.get_field_index(field.name) >= 0
        else drop_unused_values.field(place)
        for place, field in enumerate(array.type)
    ]
    fields = [field.with_type(part.type) for field, part in zip(array.type, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=drop_unused_values.is_null())


def conform_array(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """Convert ``array`` to type ``target``.

    Raises:
        SchemaMismatchError: The conversion is not a lossless widening.
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
        drop_unused_values = pa.concat_arrays([array]) if array.offset else array
        values = conform_array(drop_unused_values.values, target.value_type, f"{name}.element")
        kind = pa.LargeListArray if pa.types.is_large_list(target) else pa.ListArray
        offsets = drop_unused_values.offsets.cast(pa.int64() if pa.types.is_large_list(target) else pa.int32())
        return kind.from_arrays(offsets, values, type=target, mask=drop_unused_values.is_null())
    if pa.types.is_map(target):
        drop_unused_values = pa.concat_arrays([array]) if array.offset else array
        keys = conform_array(drop_unused_values.keys, target.key_type, f"{name}.key")
        items = conform_array(drop_unused_values.items, target.item_type, f"{name}.value")
        return pa.MapArray.from_arrays(
            drop_unused_values.offsets, keys, items, type=target, mask=drop_unused_values.is_null()
        )
    return array.cast(target)


ENCODED = pa.dictionary(pa.int32(), pa.string())


_DICTIONARY_BYTES = 1 << 20
"""Size at which writers abandon a dictionary; Parquet's Java and C++ libraries have the same default."""


_CODE_BYTES = 2


def is_dictionary_encoded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a column chunk probably has dictionary indices throughout.

    The footer does not record whether it switched to plain values. A chunk no larger than a dictionary and its indices
    hardly did; if it did, reading it as a dictionary is correct but slower.
    """
    most = _DICTIONARY_BYTES + _CODE_BYTES * chunk.num_values
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size <= most)


def with_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Schema in which the given text columns are dictionaries."""
    return pa.schema([column.with_type(ENCODED) if column.name in names else column for column in schema])


def encoded(column: pa.Array) -> pa.Array:
    """Encode a text column as a dictionary."""
    return column.dictionary_encode()


def encode_like(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Encode or decode a text column to match ``kind``; return other columns unchanged."""
    if kind == ENCODED:
        return encoded(column) if pa.types.is_string(column.type) else column
    return decode_dictionary(column)


def decode_dictionary(column: pa.Array) -> pa.Array:
    """Decode a dictionary column; return other columns unchanged."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def drop_unused_values(column: pa.Array) -> pa.Array:
    """Drop values of a dictionary that no row has; return other columns unchanged."""
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


def constant_text(text: str, count: int) -> pa.DictionaryArray:
    """One text in each row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))
