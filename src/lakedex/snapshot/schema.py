"""Columns of a table: their names over schema changes, and how a frame's or a user's names match them.

A table that was changed under ``hoodie.schema.on.read.enable`` carries ``latest_schema`` in its commits and the history
of its schemas in ``.hoodie/.schema``. lakedex, Spark and hudi-rs match the columns of files by name, which is right for
such a table as long as no name ever meant another column.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.lossless_cast import match_names
from lakedex.types import META_COLUMNS

__all__ = ["LATEST_SCHEMA", "moved_names", "nearest", "read_columns", "require_columns", "root_columns", "spelled"]


LATEST_SCHEMA: Final = "latest_schema"
"""The key in ``extraMetadata``."""


def read_columns(schema: pa.Schema) -> pa.Schema:
    """Columns that reading a table gives: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


def moved_names(latest: str, history: str = "") -> list[str]:
    """Columns (``a.b`` for nested ones) that had another name before, or whose name meant another column.

    Args:
        latest: the current schema, JSON text.
        history: all schemas, as ``{"schemas": […]}``.

    Raises:
        ValueError: text that is none of both.
    """
    try:
        current = dict(_ids(json.loads(latest), ""))
        older = [dict(_ids(version, "")) for version in json.loads(history)["schemas"]] if history else []
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"no internal schema of Hudi: {error}") from error
    moved = []
    for number, name in current.items():
        for version in older:
            by_name = {other: place for place, other in version.items()}
            if version.get(number, name) != name or by_name.get(name, number) != number:
                moved.append(name)
                break
    return moved


def _ids(record: Mapping[str, Any], prefix: str) -> Iterator[tuple[int, str]]:
    for column in record["fields"]:
        name = f"{prefix}{column['name']}"
        yield int(column["id"]), name
        yield from _inner(column["type"], name)


def _inner(kind: object, name: str) -> Iterator[tuple[int, str]]:
    """Ids inside of a column's type."""
    if not isinstance(kind, Mapping):
        return
    if kind.get("type") == "record":
        yield from _ids(kind, f"{name}.")
    elif kind.get("type") == "array":
        yield int(kind["element_id"]), f"{name}.element"
        yield from _inner(kind["element"], f"{name}.element")
    elif kind.get("type") == "map":
        yield int(kind["key_id"]), f"{name}.key"
        yield int(kind["value_id"]), f"{name}.value"
        yield from _inner(kind["value"], f"{name}.value")


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


def root_columns(schema: pa.Schema, fields: Iterable[str]) -> tuple[str, ...]:
    """The columns that fields are or lie in, each once."""
    return tuple(dict.fromkeys(name if name in schema.names else name.split(".")[0] for name in fields))


def spelled(schema: pa.Schema, columns: Sequence[str], case_sensitive: bool) -> pa.Schema:
    """A schema in which some columns, or the structs that they lie in, are spelled as a table spells them."""
    heads = [*columns, *(column.split(".")[0] for column in columns if "." in column)]
    ours = match_names(heads, schema.names, case_sensitive=case_sensitive)
    return pa.schema([field.with_name(ours.get(field.name, field.name)) for field in schema])


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint at the name that was meant."""
    near = difflib.get_close_matches(name, names, n=1) or [other for other in names if other.lower() == name.lower()]
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names) or 'no columns'}"
