"""Which columns a write makes bitmaps of, and how definitions follow the table's schema.

A run speaks of a base file as it lies there, under the names that its columns have in it. So what a definition names
may be ahead of the schema or behind it: a name that the table does not have is not indexed, and what runs say of it
counts for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.index.bitmap.builder import column_of
from lakedex.index.bitmap.definitions import (
    BitmapDefinition,
    indexed_limits,
    read_bitmap_definitions,
    write_bitmap_definitions,
)
from lakedex.io.storage import Storage

__all__ = ["add_new_names", "bitmap_columns", "has_column", "in_schema", "remove_old_names"]


def has_column(schema: pa.Schema, name: str) -> bool:
    """Whether a schema has a column, or a nested field, of exactly this name."""
    try:
        column_of(name, schema)
    except InvalidInputError:
        return False
    return True


def bitmap_columns(
    storage: Storage, base_path: str, schema: pa.Schema, renames: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Columns of all bitmap indexes that a table has, each with its cap of distinct values in a file.

    Args:
        storage: where the table lies.
        base_path: its folder.
        schema: its columns once the write is done.
        renames: columns that are called otherwise then.

    Raises:
        CorruptFileError: the definitions are damaged.
    """
    limits = indexed_limits(read_bitmap_definitions(storage, base_path))
    named = {_renamed(name, renames or {}): limit for name, limit in limits.items()}
    return {name: limit for name, limit in named.items() if has_column(schema, name)}


def _renamed(name: str, renames: Mapping[str, str]) -> str:
    top, dot, inner = name.partition(".")
    return f"{renames.get(top, top)}{dot}{inner}"


def add_new_names(storage: Storage, base_path: str, renames: Mapping[str, str]) -> None:
    """Name renamed columns by their new names too, before the commit that renames them completes.

    The old names go once it is complete (:func:`remove_old_names`), so that an index loses no column whatever happens
    in between. Call under the table lock.
    """
    definitions = read_bitmap_definitions(storage, base_path) if renames else {}
    after = {
        name: replace(
            index, columns=tuple(dict.fromkeys(one for own in index.columns for one in (own, _renamed(own, renames))))
        )
        for name, index in definitions.items()
    }
    if after != definitions:
        write_bitmap_definitions(storage, base_path, after)


def remove_old_names(
    storage: Storage, base_path: str, schema: pa.Schema, renames: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Take names that the table does not have out of the definitions, and indexes that have none left.

    Call under the table lock. ``renames`` is for the notes.

    Returns:
        What was taken out, for people.
    """
    definitions = read_bitmap_definitions(storage, base_path)
    after = in_schema(definitions, schema)
    if after == definitions:
        return ()
    write_bitmap_definitions(storage, base_path, after)
    notes = []
    for name, index in definitions.items():
        left = after[name].columns if name in after else ()
        gone = ", ".join(
            repr(own) for own in index.columns if own not in left and _renamed(own, renames or {}) not in left
        )
        if not left:
            notes.append(f"the bitmap index {name!r} is gone with its column {gone}")
        elif gone:
            notes.append(f"the bitmap index {name!r} no longer has column {gone}")
    return tuple(notes)


def in_schema(definitions: Mapping[str, BitmapDefinition], schema: pa.Schema) -> dict[str, BitmapDefinition]:
    """Definitions with the columns that a schema has."""
    kept = {
        name: replace(index, columns=tuple(own for own in index.columns if has_column(schema, own)))
        for name, index in definitions.items()
    }
    return {name: index for name, index in kept.items() if index.columns}
