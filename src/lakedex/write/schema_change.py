"""What a frame's columns mean for the table's schema: the same, an added column, a lossless widening, or a refusal."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro, avro_to_arrow, check_names
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.layout.conform import can_widen
from lakedex.layout.store_assignment import can_assign, match_names
from lakedex.types import META_COLUMNS, MISFIT

__all__ = [
    "Growth",
    "evolve",
    "nearest",
    "own_columns",
    "pruned",
    "require_columns",
    "require_known",
    "spelled",
    "stored_schema",
    "unknown_column",
    "wider",
]

_RESERVED = "__lakedex_"

_GROWS: dict[str, tuple[str, ...]] = {
    "int32": ("int64", "double"),
    "float": ("double",),
}
"""Widenings of a stored column that Hudi's readers make too (``SchemaCompatibility``); decimals are judged apart."""


def own_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a frame without those that stored rows carry along: Hudi's meta columns, and misfits."""
    return pa.schema([field for field in schema if field.name not in (*META_COLUMNS, MISFIT)])


def stored_schema(schema: pa.Schema, table_name: str) -> pa.Schema:
    """The schema that comes back from disk: bytes and shorts are ints there, large strings plain ones.

    Raises:
        InvalidInputError: a column name that Avro does not allow, two that Spark cannot tell apart, or a type that no
            table can hold.
    """
    check_names(schema)
    spelled: dict[str, str] = {}
    for name, kind in zip(schema.names, schema.types, strict=True):
        other = spelled.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(f"columns {other!r} and {name!r} differ by case only; rename one", column=name)
        if name.startswith(_RESERVED):
            raise InvalidInputError(
                f"column {name!r}: names that start with {_RESERVED} are lakedex's own", column=name
            )
        if pa.types.is_null(kind):
            raise InvalidInputError(f"column {name!r} has no type (all of it is null); cast it to one", column=name)
    return avro_to_arrow(arrow_to_avro(schema, table_name))


def require_columns(
    schema: pa.Schema,
    columns: Sequence[str],
    what: str,
    table: str,
    *,
    where: str = "the frame",
    case_sensitive: bool = True,
    advice: str = "",
) -> None:
    """Refuse a schema that lacks a key, partition or ordering column, or the field of a struct that one is.

    Raises:
        InvalidInputError: names the column and the nearest one that is there.
    """
    own = spelled(schema, columns, case_sensitive)
    known = set(own.names)
    for column in columns:
        if column in known:
            continue
        path = column.split(".")
        fields, case = list(own), True
        for name in path:
            names = [field.name for field in fields]
            found = next(iter(match_names([name], names, case_sensitive=case)), None)
            if found is None:
                hint = nearest(name if len(path) > 1 else column, names)
                raise InvalidInputError(
                    f"table {table}: {what} column {column!r} is not in {where}{hint}{advice}", column=column
                )
            kind = fields[names.index(found)].type
            fields, case = list(kind) if pa.types.is_struct(kind) else [], case_sensitive


def spelled(schema: pa.Schema, columns: Sequence[str], case_sensitive: bool) -> pa.Schema:
    """A schema in which some columns, or the structs that they lie in, are spelled as a table spells them."""
    heads = [*columns, *(column.split(".")[0] for column in columns if "." in column)]
    ours = match_names(heads, schema.names, case_sensitive=case_sensitive)
    return pa.schema([field.with_name(ours.get(field.name, field.name)) for field in schema])


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint at the name that was meant."""
    near = difflib.get_close_matches(name, names, n=1) or [other for other in names if other.lower() == name.lower()]
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names) or 'no columns'}"


def require_known(table: pa.Schema, frame: pa.Schema, table_name: str, *, case_sensitive: bool) -> None:
    """Refuse a frame with a column that the table does not have.

    Raises:
        InvalidInputError: names the column and the nearest one of the table.
    """
    own = own_columns(frame).names
    known = match_names(table.names, own, case_sensitive=case_sensitive)
    for name in own:
        if name not in known:
            raise unknown_column(table, name, table_name, "the frame's")


def unknown_column(table: pa.Schema, name: str, table_name: str, what: str) -> InvalidInputError:
    """An error that names a column that is not in a table, and the nearest one that is."""
    return InvalidInputError(
        f"table {table_name}: {what} column {name!r} is not in the table{nearest(name, table.names)}", column=name
    )


def pruned(schema: pa.Schema, paths: Collection[str]) -> pa.Schema:
    """The columns of a schema that some paths name, of structs only the fields on the way, all of them nullable."""
    known = set(schema.names)
    parts = [[path] if path in known else path.split(".") for path in paths]
    return pa.schema(_pruned(list(schema), parts))


def _pruned(fields: Sequence[pa.Field], paths: Sequence[Sequence[str]]) -> list[pa.Field]:
    rest: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        rest.setdefault(path[0], []).append(path[1:])
    found = []
    for field in fields:
        below = rest.get(field.name, [])
        if [] in below:
            found.append(field.with_nullable(True))
        elif below and pa.types.is_struct(field.type):
            found.append(pa.field(field.name, pa.struct(_pruned(list(field.type), below))))
    return found


def evolve(
    table: pa.Schema,
    frame: pa.Schema,
    table_name: str,
    *,
    fixed: Collection[str] = (),
    null_for_missing: bool = False,
    case_sensitive: bool = False,
) -> pa.Schema:
    """The table's schema once the frame is written.

    Args:
        table: columns of the table; empty if it has none yet.
        frame: columns of the frame.
        table_name: for messages and Avro names.
        fixed: columns whose type stays, as those of the record key and partition path must.
        null_for_missing: columns and fields that the frame lacks are null instead of refused.
        case_sensitive: whether names that differ by letter case are different names.

    Raises:
        SchemaMismatchError: a type that neither fits nor widens losslessly (names both), or a missing column.
    """
    frame = own_columns(frame)
    if not table.names:
        return stored_schema(frame, table_name)
    ours = match_names(table.names, frame.names, case_sensitive=case_sensitive)
    theirs = {own: frame.field(name) for name, own in ours.items()}
    missing = [name for name in table.names if name not in theirs]
    if missing and not null_for_missing:
        raise SchemaMismatchError(
            f"table {table_name}: the frame lacks column {', '.join(map(repr, missing))}"
            f"{nearest(missing[0], [name for name in frame.names if name not in ours])}; add it, or set "
            "hoodie.write.set.null.for.missing.columns=true to write nulls",
            column=missing[0],
            expected=str(table.field(missing[0]).type),
            found="nothing",
        )
    _require_distinct(table, [name for name in frame.names if name not in ours], table_name)
    growth = Growth(table_name, null_for_missing, case_sensitive)
    fields = [
        growth.field(field, theirs[field.name].type, fixed=field.name in fixed) if field.name in theirs else field
        for field in table
    ]
    added = stored_schema(pa.schema([field for field in frame if field.name not in ours]), table_name)
    return pa.schema([*fields, *(field.with_nullable(True) for field in added)])


def _require_distinct(table: pa.Schema, added: Sequence[str], table_name: str) -> None:
    by_lower = {own.lower(): own for own in reversed(table.names)}
    for name in added:
        clash = by_lower.get(name.lower())
        if clash is not None:
            raise SchemaMismatchError(
                f"table {table_name}: column {name!r} differs from {clash!r} by case only; rename it",
                column=name,
                expected=clash,
                found=name,
            )


@dataclass(frozen=True, slots=True)
class Growth:
    """What becomes of a column's type under a frame's; see :func:`evolve`."""

    table: str
    null_for_missing: bool = False
    case_sensitive: bool = False

    def field(self, field: pa.Field, found: pa.DataType, *, fixed: bool = False) -> pa.Field:
        """The column, or field of a struct, after the write.

        Raises:
            SchemaMismatchError: a type whose values have no equal in the column's.
        """
        grown = None if fixed else wider(field.type, found)
        return field.with_type(grown or self._kept(field.type, found, field.name))

    def _kept(self, kind: pa.DataType, found: pa.DataType, path: str) -> pa.DataType:
        """A type that stays, but for the fields that its structs get."""
        if pa.types.is_struct(kind) and pa.types.is_struct(found):
            return pa.struct(self._fields(list(kind), list(found), path))
        if pa.types.is_list(kind) and pa.types.is_list(found):
            element = kind.value_field
            return pa.list_(element.with_type(self._kept(element.type, found.value_type, f"{path}.element")))
        if pa.types.is_map(kind) and pa.types.is_map(found):
            self._kept(kind.key_type, found.key_type, f"{path}.key")
            value = kind.item_field
            return pa.map_(kind.key_type, value.with_type(self._kept(value.type, found.item_type, f"{path}.value")))
        if not can_assign(found, kind):
            raise SchemaMismatchError(
                f"table {self.table}: column {path!r} is {kind} in the table but {found} in the frame; cast it",
                column=path,
                expected=str(kind),
                found=str(found),
            )
        return kind

    def _fields(self, kept: Sequence[pa.Field], found: Sequence[pa.Field], path: str) -> list[pa.Field]:
        ours = match_names(
            [field.name for field in kept], [field.name for field in found], case_sensitive=self.case_sensitive
        )
        theirs = {ours[field.name]: field.type for field in found if field.name in ours}
        added = [field.with_nullable(True) for field in found if field.name not in ours]
        fields = []
        for field in kept:
            if field.name in theirs:
                fields.append(field.with_type(self._kept(field.type, theirs[field.name], f"{path}.{field.name}")))
                continue
            if not (self.null_for_missing and field.nullable):
                raise self._lacks(field, f"{path}.{field.name}", [other.name for other in added])
            fields.append(field)
        _require_distinct(pa.schema(kept), [field.name for field in added], self.table)
        return [*fields, *stored_schema(pa.schema(added), self.table)]

    def _lacks(self, field: pa.Field, path: str, others: Sequence[str]) -> SchemaMismatchError:
        way_out = ", or set hoodie.write.set.null.for.missing.columns=true to write nulls" if field.nullable else ""
        hint = nearest(field.name, others) if others else ""
        return SchemaMismatchError(
            f"table {self.table}: the frame lacks field {path!r}{hint}; add it{way_out}",
            column=path,
            expected=str(field.type),
            found="nothing",
        )


def wider(kind: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    """A frame's type where a column takes it since it is wider; ``None`` where the column keeps its own."""
    if can_widen(found, kind):
        return None
    if str(found) in _GROWS.get(str(kind), ()):
        return found
    both_decimal = pa.types.is_decimal(found) and pa.types.is_decimal(kind)
    return found if both_decimal and found.scale == kind.scale and can_widen(kind, found) else None
