"""Rows whose types the user did not choose, dictionaries and pandas frames, as Arrow tables of the table's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from lakedex.arrow_types import as_table, is_pandas, require_one_time
from lakedex.errors import InvalidInputError, LakedexError, SchemaMismatchError
from lakedex.lossless_cast import StoreAssignment, can_assign, match_names
from lakedex.parquet.conform import can_widen
from lakedex.snapshot.schema import nearest
from lakedex.types import META_COLUMNS

__all__ = ["array_of", "dict_rows", "pandas_rows"]


def dict_rows(
    data: Any,
    schema: pa.Schema,
    table: str,
    *,
    null_for_missing: bool = False,
    case_sensitive: bool = False,
    more: bool = False,
) -> Any:
    """Rows given as a list or an iterator of dictionaries, or by pandas, as an Arrow table; anything else as it is.

    Arrow guesses no types: numbers take the type of their column, and the values are neither rounded nor cut.
    Memory: one array per column beside the dictionaries.

    Args:
        data: what the user gave.
        schema: columns of the table; empty if it has none yet.
        table: its name, for errors.
        null_for_missing: fields that some rows lack are null instead of refused.
        case_sensitive: whether names that differ by letter case are different names.
        more: whether rows may have fields that the table lacks, as the source of a merge may.

    Raises:
        InvalidInputError: one dictionary instead of a list of them, an unknown field, or values that Arrow cannot read.
        SchemaMismatchError: a field that only some rows have, or a value that its column cannot hold.
    """
    if isinstance(data, Mapping):
        raise InvalidInputError(
            f"table {table}: one dict is neither rows nor columns; pass [row] for a row, pa.table(columns) for columns"
        )
    data, is_rows = _listed(data)
    if not is_rows:
        return pandas_rows(data, schema, case_sensitive=case_sensitive) if is_pandas(data) else data
    rows = list(data)
    if not rows and not schema.names:
        raise InvalidInputError(f"table {table}: an empty list has no columns, and the table has none yet")
    names: dict[str, None] = dict.fromkeys(name for row in rows for name in row if name not in META_COLUMNS)
    if rows and not names:
        raise InvalidInputError(f"table {table}: the rows have no fields, so their keys are missing")
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"table {table}: names of fields are text, as in {{'id': 1}}; got {list(names)!r:.100}")
    known = match_names(schema.names, list(names), case_sensitive=case_sensitive)
    columns: dict[str, Any] = {}
    for name in names:
        if name not in known and not (more or not schema.names):
            place = next(number for number, row in enumerate(rows) if name in row)
            raise InvalidInputError(
                f"table {table}: row {place} has a field {name!r} that the table lacks"
                f"{nearest(name, schema.names)}. New columns come by add_columns(), or with an Arrow table",
                column=name,
            )
        lacking = next((number for number, row in enumerate(rows) if name not in row), None)
        if lacking is not None and not null_for_missing:
            raise SchemaMismatchError(
                f"table {table}: row {lacking} lacks the field {name!r}, which other rows have; give None, or set "
                "hoodie.write.set.null.for.missing.columns=true to write nulls",
                column=name,
            )
        own = known.get(name, name)
        field = schema.field(own) if name in known else pa.field(own, pa.null())
        columns[own] = array_of([row.get(name) for row in rows], field, table)
    return pa.table(columns) if rows else schema.empty_table()


def pandas_rows(data: object, schema: pa.Schema, *, case_sensitive: bool = False) -> pa.Table:
    """A pandas frame as an Arrow table.

    pandas makes a column of missing values ``float64``, and integers beside them too. So a column without values fits
    any type, and one whose values all fit a narrower column of the table does not widen it.

    Args:
        data: the frame.
        schema: columns of the table.
        case_sensitive: whether names that differ by letter case are different names.
    """
    rows = as_table(data)
    known = match_names(schema.names, rows.schema.names, case_sensitive=case_sensitive)
    columns = [
        _narrowed(rows.column(name), schema.field(known[name]).type) if name in known else rows.column(name)
        for name in rows.schema.names
    ]
    return pa.table(columns, rows.schema.names)


def _narrowed(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """A column in the type ``target`` if that is narrower and holds all values."""
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), target)])
    is_narrower = column.type != target and can_widen(target, column.type)
    if not (is_narrower and (pa.types.is_integer(target) or pa.types.is_floating(target))):
        return column
    try:
        narrowed = column.cast(target)
    except pa.ArrowInvalid:
        return column
    # Arrow rounds a double to the nearest float.
    return narrowed if narrowed.cast(column.type).equals(column) else column


def _listed(data: Any) -> tuple[Any, bool]:
    """An iterator of dictionaries as a list, any other input as it is; and whether it is rows of dictionaries."""
    if isinstance(data, Iterator) and not isinstance(data, pa.RecordBatchReader):
        first = list(_first(data))
        if not all(isinstance(row, Mapping) for row in first):
            return chain(first, data), False
        data = [*first, *data]
    if not isinstance(data, list | tuple):
        return data, False
    dictionaries = [isinstance(row, Mapping) for row in data]
    if any(dictionaries) and not all(dictionaries):
        place = dictionaries.index(False)
        raise InvalidInputError(
            f"row {place} is of type {type(data[place]).__name__}; a list of rows has dictionaries only"
        )
    return data, all(dictionaries)


def _first(data: Iterable[Any]) -> Iterator[Any]:
    for value in data:
        yield value
        return


def array_of(values: Sequence[Any], field: pa.Field[Any], table: str) -> Any:
    """Python values as an array of a column's type, or of a type that holds all of them and can be converted to it.

    Args:
        values: The values; None is null.
        field: The column; its type is null where it is not known.
        table: Name of the table, for errors.

    Raises:
        InvalidInputError: Values that are not of one type.
        SchemaMismatchError: A number that the column cannot hold.
    """
    where = f"table {table}: column {field.name!r}"
    try:
        if pa.types.is_map(field.type):
            return _maps(values, field, table)
        found = pa.array(values, _type_of(values, field.type))
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{where}: {error}", column=field.name) from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        found = next((f" (row {n} has {v!r:.80})" for n, v in enumerate(values) if not _is_readable(v, field.type)), "")
        raise InvalidInputError(
            f"{where} is {field.type}; the values cannot be read as that{found}: {error}", column=field.name
        ) from error
    require_one_time(field.name, values, found.type, f"of table {table}'s rows")
    if not (pa.types.is_null(field.type) or can_assign(found.type, field.type)):
        raise SchemaMismatchError(
            f"{where} is {field.type}, and the values are {found.type}; convert them",
            column=field.name,
            expected=str(field.type),
            found=str(found.type),
        )
    if pa.types.is_floating(found.type) and pa.types.is_integer(field.type):
        # Arrow would cut them.
        return StoreAssignment(pa.schema([field]), table).column(found, field)
    return found


def _is_readable(value: object, target: pa.DataType) -> bool:
    """Whether a value by itself can be read in the type of a column."""
    try:
        pa.array([value], _type_of([value], target))
    except (LakedexError, pa.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return True


def _type_of(values: Sequence[Any], target: pa.DataType) -> pa.DataType:
    """The type to read values in: numbers and nulls in that of the column, all else in its own."""
    if pa.types.is_decimal(target) and not any(isinstance(value, float) for value in values):
        return target
    return _fitted(pa.array(values).type, target)


def _fitted(found: pa.DataType, target: pa.DataType) -> pa.DataType:
    if pa.types.is_null(found):
        return target
    is_number = pa.types.is_integer(target) or pa.types.is_floating(target) or pa.types.is_decimal(target)
    if is_number and pa.types.is_integer(found):
        return target
    if pa.types.is_floating(found) and pa.types.is_floating(target):
        return target
    if pa.types.is_decimal(found) and pa.types.is_decimal(target):
        return target
    if pa.types.is_struct(found) and pa.types.is_struct(target):
        fields = {field.name: field.type for field in target}
        return pa.struct([field.with_type(_inner(field, fields.get(field.name, pa.null()))) for field in found])
    if pa.types.is_list(found) and pa.types.is_list(target):
        return pa.list_(found.value_field.with_type(_inner(found.value_field, target.value_type)))
    return found


def _inner(field: pa.Field[Any], target: pa.DataType) -> pa.DataType:
    if pa.types.is_map(target) and not pa.types.is_null(field.type):
        raise TypeError("maps inside of other values come as an Arrow table")
    if pa.types.is_floating(field.type) and pa.types.is_integer(target):
        raise SchemaMismatchError(f"the field {field.name!r} is {target}, and the values have fractions")
    return _fitted(field.type, target)


def _maps(values: Sequence[Any], field: pa.Field[Any], table: str) -> pa.Array:
    """Maps given as dictionaries, or as lists of pairs."""
    pairs = [
        None if value is None else list(value.items() if isinstance(value, Mapping) else value) for value in values
    ]
    flat = [pair for own in pairs if own is not None for pair in own]
    ends = [0]
    for own in pairs:
        ends.append(ends[-1] + len(own or ()))
    keys = array_of([key for key, _ in flat], field.type.key_field.with_name(field.name), table)
    items = array_of([item for _, item in flat], field.type.item_field.with_name(field.name), table)
    starts = [None if own is None else start for own, start in zip(pairs, ends, strict=False)]
    return pa.MapArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), keys, items)
