"""What a frame's columns mean for the table's schema: the same, an added column, a lossless widening, or a refusal."""

from __future__ import annotations

import difflib

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro, avro_to_arrow, check_names
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.layout.conform import can_widen
from lakedex.types import META_COLUMNS

__all__ = ["evolve", "grown_type", "own_columns", "require_columns", "stored_schema"]

_RESERVED = "__lakedex_"

_GROWS: dict[str, tuple[str, ...]] = {
    "int32": ("int64", "double"),
    "float": ("double",),
}
"""Widenings of a stored column that Hudi's readers make too (``SchemaCompatibility``); decimals are judged apart."""


def own_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a frame without Hudi's meta columns, which a frame read from a table carries along."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def stored_schema(schema: pa.Schema, table_name: str) -> pa.Schema:
    """The schema that comes back from disk: bytes and shorts are ints there, large strings plain ones.

    Raises:
        InvalidInputError: a column name that Avro does not allow, two that Spark cannot tell apart, or a type that no
            table can hold.
    """
    check_names(schema)
    spelled: dict[str, str] = {}
    for name in schema.names:
        other = spelled.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(f"columns {other!r} and {name!r} differ by case only; rename one", column=name)
        if name.startswith(_RESERVED):
            raise InvalidInputError(
                f"column {name!r}: names that start with {_RESERVED} are lakedex's own", column=name
            )
    return avro_to_arrow(arrow_to_avro(schema, table_name))


def require_columns(
    schema: pa.Schema, columns: tuple[str, ...], what: str, table: str, *, where: str = "the frame"
) -> None:
    """Refuse a schema that lacks a key, partition or ordering column.

    Raises:
        InvalidInputError: names the column and the nearest one that is there.
    """
    for column in columns:
        head = column if column in schema.names else column.split(".")[0]
        if head not in schema.names:
            near = difflib.get_close_matches(column, schema.names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(schema.names) or 'no columns'}"
            raise InvalidInputError(f"table {table}: {what} column {column!r} is not in {where}{hint}", column=column)


def evolve(table: pa.Schema, frame: pa.Schema, table_name: str, *, null_for_missing: bool = False) -> pa.Schema:
    """The table's schema once the frame is written.

    Args:
        table: columns of the table; empty if it has none yet.
        frame: columns of the frame.
        table_name: for messages and Avro names.
        null_for_missing: columns that the frame lacks are null instead of refused.

    Raises:
        SchemaMismatchError: a type that neither fits nor widens losslessly (names both), or a missing column.
    """
    incoming = stored_schema(own_columns(frame), table_name)
    if not table.names:
        return incoming
    missing = [name for name in table.names if name not in incoming.names]
    if missing and not null_for_missing:
        raise SchemaMismatchError(
            f"table {table_name}: the frame lacks column {', '.join(map(repr, missing))}; add it, or set "
            "hoodie.write.set.null.for.missing.columns=true to write nulls",
            column=missing[0],
            expected=str(table.field(missing[0]).type),
            found="nothing",
        )
    fields = []
    for field in table:
        position = incoming.get_field_index(field.name)
        kind = field.type if position < 0 else grown_type(field, incoming.field(position).type, table_name)
        fields.append(field.with_type(kind))
    added = [field.with_nullable(True) for field in incoming if field.name not in table.names]
    for field in added:
        clash = [name for name in table.names if name.lower() == field.name.lower()]
        if clash:
            raise SchemaMismatchError(
                f"table {table_name}: column {field.name!r} differs from {clash[0]!r} by case only; rename it",
                column=field.name,
                expected=clash[0],
                found=field.name,
            )
    return pa.schema([*fields, *added])


def grown_type(field: pa.Field, found: pa.DataType, table_name: str) -> pa.DataType:
    """The column's type after the write: its own where the frame's fits in, the frame's where that is wider."""
    if can_widen(found, field.type):
        return field.type
    if str(found) in _GROWS.get(str(field.type), ()):
        return found
    both_decimal = pa.types.is_decimal(found) and pa.types.is_decimal(field.type)
    if both_decimal and found.scale == field.type.scale and can_widen(field.type, found):
        return found
    if pa.types.is_nested(found) and can_widen(field.type, found) and _same_kind(found, field.type):
        return found
    raise SchemaMismatchError(
        f"table {table_name}: column {field.name!r} is {field.type} in the table but {found} in the frame; cast it",
        column=field.name,
        expected=str(field.type),
        found=str(found),
    )


def _same_kind(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether nested types differ by added struct fields only."""
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return all(_same_kind(a.field(child.name).type, child.type) for child in b)
    if pa.types.is_list(a) and pa.types.is_list(b):
        return _same_kind(a.value_type, b.value_type)
    if pa.types.is_map(a) and pa.types.is_map(b):
        return bool(a.key_type == b.key_type) and _same_kind(a.item_type, b.item_type)
    return bool(a == b)
