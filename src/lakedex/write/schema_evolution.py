"""A frame's schema against the table's: equal, an added column, a lossless widening, or a refusal.

Every reader matches columns by name, in base files and in the blocks of log files. A dropped name that comes back would
show the old values again, so it is refused until the files that hold it are rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro, avro_to_arrow, check_names
from lakedex.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.layout.file_slice import DataFile, FileSlice
from lakedex.layout.keys import value_text
from lakedex.layout.log_reader import log_schemas
from lakedex.lossless_cast import can_assign, match_names
from lakedex.parallel import run_threads
from lakedex.parquet.conform import can_widen
from lakedex.snapshot.schema import nearest
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import META_COLUMNS, MISFIT

__all__ = [
    "Growth",
    "added_paths",
    "evolve",
    "files_holding",
    "own_columns",
    "pruned",
    "replaced_columns",
    "require_free_names",
    "require_known",
    "stored_columns",
    "stored_schema",
    "type_at",
    "unknown_column",
    "wider",
]


_RESERVED = "__lakedex_"


_THREADS = 8


_GROWS: dict[str, tuple[str, ...]] = {
    "int32": ("int64", "double"),
    "float": ("double",),
}
"""Widenings of a stored column that Hudi's readers make too (``SchemaCompatibility``), decimals apart."""


def own_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a frame without those that stored rows carry along: Hudi's meta columns, and misfits."""
    return pa.schema([field for field in schema if field.name not in (*META_COLUMNS, MISFIT)])


def stored_schema(schema: pa.Schema, table_name: str, known: Collection[str] = ()) -> pa.Schema:
    """The schema that comes back from disk: bytes and shorts are ints there, large strings plain ones.

    Args:
        schema: the columns.
        table_name: for messages and Avro names.
        known: names of columns that the table has already.

    Raises:
        InvalidInputError: a column name that Avro does not allow, two that Spark cannot tell apart, or a type that no
            table can hold.
    """
    check_names(pa.schema([field for field in schema if field.name not in known]))
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
        others = [name for name in frame.names if name not in ours]
        raise SchemaMismatchError(
            f"table {table_name}: the frame lacks column {', '.join(map(repr, missing))}"
            f"{nearest(missing[0], others) if others else ''}; add it, or set "
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


def replaced_columns(
    table: pa.Schema, columns: pa.Schema, table_name: str, *, fixed: Collection[str] = ()
) -> pa.Schema:
    """The schema of a table whose rows are all replaced. A column that keeps its name keeps its type, or widens it.

    Older files and their statistics stay until they are cleaned, and readers find columns by name.

    Raises:
        SchemaMismatchError: a type that files of the same column name do not go with.
    """
    stored = stored_schema(own_columns(columns), table_name, table.names)
    older = {field.name.lower(): field for field in table}
    for field in stored:
        known = older.get(field.name.lower())
        if known is None:
            continue
        grown = None if field.name in fixed else wider(known.type, field.type)
        if field.name != known.name or field.type not in (known.type, grown):
            raise SchemaMismatchError(
                f"table {table_name}: column {known.name!r} is {known.type}, and a replacement cannot make it "
                f"{field.name!r} of type {field.type}: older files stay until they are cleaned; give it another name, "
                "or drop the table and create it",
                column=known.name,
                expected=str(known.type),
                found=str(field.type),
            )
    return stored


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
    """The type of a column after a frame of another type; see :func:`evolve`."""

    table: str
    null_for_missing: bool = False
    case_sensitive: bool = False

    def field(self, field: pa.Field, found: pa.DataType, *, fixed: bool = False) -> pa.Field:
        """The column, or field of a struct, after the write.

        Raises:
            SchemaMismatchError: a type whose values have no equal in the column's.
        """
        grown = None if fixed else wider(field.type, found)
        return field.with_type(grown or self._type_of(field.type, found, field.name))

    def _type_of(self, kind: pa.DataType, found: pa.DataType, path: str) -> pa.DataType:
        """A type that stays, but for the fields that its structs get."""
        if pa.types.is_struct(kind) and pa.types.is_struct(found):
            return pa.struct(self._fields(list(kind), list(found), path))
        if pa.types.is_list(kind) and pa.types.is_list(found):
            element = kind.value_field
            return pa.list_(element.with_type(self._type_of(element.type, found.value_type, f"{path}.element")))
        if pa.types.is_map(kind) and pa.types.is_map(found):
            self._type_of(kind.key_type, found.key_type, f"{path}.key")
            value = kind.item_field
            return pa.map_(kind.key_type, value.with_type(self._type_of(value.type, found.item_type, f"{path}.value")))
        if not can_assign(found, kind):
            raise SchemaMismatchError(
                f"table {self.table}: column {path!r} is {kind} in the table but {found} in the frame; cast it",
                column=path,
                expected=str(kind),
                found=str(found),
            )
        return kind

    def _fields(self, stored: Sequence[pa.Field], found: Sequence[pa.Field], path: str) -> list[pa.Field]:
        ours = match_names(
            [field.name for field in stored], [field.name for field in found], case_sensitive=self.case_sensitive
        )
        theirs = {ours[field.name]: field.type for field in found if field.name in ours}
        added = [field.with_nullable(True) for field in found if field.name not in ours]
        fields = []
        for field in stored:
            if field.name in theirs:
                fields.append(field.with_type(self._type_of(field.type, theirs[field.name], f"{path}.{field.name}")))
                continue
            if not (self.null_for_missing and field.nullable):
                raise self._lacks(field, f"{path}.{field.name}", [other.name for other in added])
            fields.append(field)
        _require_distinct(pa.schema(stored), [field.name for field in added], self.table)
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


def require_key_types(schema: pa.Schema, columns: Sequence[str], table_name: str) -> None:
    """Refuse a column of the record key or partition path whose values have no text there.

    Raises:
        UnsupportedFeatureError: names the column.
    """
    for column in columns:
        try:
            value_text(pa.array([], type_at(schema, column)))
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(
                f"table {table_name}: column {column!r}: {error}", feature=error.feature
            ) from None


def type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Type of a column, or of a field inside of structs (``a.b``), whatever the case of its name; None if absent."""
    fields: Sequence[pa.Field] = list(schema)
    found: pa.DataType | None = None
    for name in path.split("."):
        match = next((field for field in fields if field.name.lower() == name.lower()), None)
        if match is None:
            return None
        found = match.type
        fields = list(found) if pa.types.is_struct(found) else []
    return found


def added_paths(before: pa.Schema, after: pa.Schema) -> list[str]:
    """Columns, and fields of structs, that ``after`` has and ``before`` has not. Inside of lists and maps too."""
    return list(_added(list(before), list(after), ""))


def _added(before: Sequence[pa.Field], after: Sequence[pa.Field], prefix: str) -> Iterable[str]:
    known = {field.name: field.type for field in before}
    for field in after:
        path = f"{prefix}{field.name}"
        if field.name not in known:
            yield path
        elif pa.types.is_struct(field.type) and pa.types.is_struct(known[field.name]):
            yield from _added(list(known[field.name]), list(field.type), f"{path}.")


def stored_columns(snapshot: Snapshot) -> Iterator[tuple[FileSlice, list[tuple[DataFile, pa.Schema]]]]:
    """The newest slices, each with its files and their columns; a log file comes once for each schema of its blocks.

    Commits say it of base files, one look per commit. Blocks of log files have the schema in their headers.
    """
    slices, of_commit = snapshot.slices(), dict[str, pa.Schema]()
    with_logs = [item for item in slices if item.log_files]
    blocks = run_threads(lambda item: log_schemas(snapshot.files, item.log_files), with_logs, _THREADS)
    of_logs = dict(zip(with_logs, blocks, strict=True))
    for item in slices:
        base = item.base_file
        if base is not None and base.instant not in of_commit:
            of_commit[base.instant] = snapshot.stored_schema(base)
        found: list[tuple[DataFile, pa.Schema]] = [] if base is None else [(base, of_commit[base.instant])]
        found += [(log, snapshot.parse_schema(text, log.name)) for log, text in of_logs.get(item, ())]
        yield item, found


def files_holding(snapshot: Snapshot, path: str) -> dict[FileSlice, list[DataFile]]:
    """Newest slices with a column in some of their files, and these files."""
    holding = {}
    for item, stored in stored_columns(snapshot):
        found = dict.fromkeys(file for file, columns in stored if type_at(columns, path) is not None)
        if found:
            holding[item] = list(found)
    return holding


def require_free_names(snapshot: Snapshot, after: pa.Schema) -> None:
    """Refuse a schema that brings back a name which a live file still holds.

    Raises:
        SchemaMismatchError: names the column, a file and the call that helps.
    """
    if not snapshot.schema.names:
        return
    for path in added_paths(snapshot.schema, after):
        holding = [file for files in files_holding(snapshot, path).values() for file in files]
        if holding:
            raise SchemaMismatchError(
                f"{snapshot.files}: column {path!r} was dropped or renamed, and {len(holding)} files still hold it "
                f"(for example {holding[0].relative_path}), so its old values would come back; run "
                "maintenance.rewrite_files() first, or take another name",
                column=path,
                expected="a new name",
                found=f"{path} in {holding[0].name}",
            )
