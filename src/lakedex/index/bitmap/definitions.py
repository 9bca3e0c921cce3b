"""Bitmap index definitions of a table, in ``.hoodie/.index_defs/bitmap_index.json``, and how they follow its schema.

The file is one of its own. In ``index.json`` Hudi 1.1.1 takes every entry for a partition of its metadata table, and a
name that it does not know is an error to it (``MetadataPartitionType``).

A run describes a base file under the names that its columns have in it. So a definition may be ahead of the schema or
behind it: a name that the table does not have is not indexed, and entries of it count for nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakedex.codec.properties import decode_json_object
from lakedex.errors import CorruptFileError, InvalidInputError
from lakedex.index.bitmap.builder import column_of
from lakedex.index.bitmap.run_files import BITMAP_INDEX
from lakedex.index.definitions import replace_definitions
from lakedex.io.storage import TableFiles
from lakedex.snapshot.snapshot import Snapshot

__all__ = [
    "BITMAP_DEFINITIONS",
    "DEFAULT_MAX_DISTINCT",
    "BitmapDefinition",
    "bitmap_columns",
    "definitions_file",
    "has_column",
    "in_schema",
    "indexed_limits",
    "known_bitmap_definitions",
    "lost_names",
    "read_bitmap_definitions",
    "with_new_names",
    "write_bitmap_definitions",
]


DEFAULT_MAX_DISTINCT = 10_000
"""Distinct values of a column in one base file past which the column is not indexed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapDefinition:
    """One index: its columns (names, or dotted paths of nested fields), and their cap of distinct values a file."""

    name: str
    columns: tuple[str, ...]
    max_distinct: int = DEFAULT_MAX_DISTINCT


BITMAP_DEFINITIONS = ".hoodie/.index_defs/bitmap_index.json"
"""Where a table keeps its definitions of bitmap indexes."""


def read_bitmap_definitions(files: TableFiles) -> dict[str, BitmapDefinition]:
    """Definitions by name, none for a table without bitmap indexes.

    Raises:
        CorruptFileError: the file is damaged.
    """
    path = files.path(BITMAP_DEFINITIONS)
    try:
        return _decoded(files.storage.read(path), path)
    except FileNotFoundError:
        return {}


def known_bitmap_definitions(snapshot: Snapshot) -> dict[str, BitmapDefinition]:
    """The same for a state of a table and of the folder of its runs, in which they are read once.

    An index that another process defines counts from its first run on.

    Raises:
        CorruptFileError: the file is damaged.
    """
    listing = snapshot.metadata.listing or {}
    runs = tuple(entry.name for entry in listing.get(BITMAP_INDEX, ()))
    try:
        content = snapshot.document(BITMAP_DEFINITIONS, runs)
    except FileNotFoundError:
        return {}
    return _decoded(content, snapshot.files.path(BITMAP_DEFINITIONS))


def _decoded(content: bytes, path: str) -> dict[str, BitmapDefinition]:
    what = "JSON with definitions of bitmap indexes"
    document = decode_json_object(content, what, path)
    try:
        return {name: _definition(name, entry) for name, entry in document["indexDefinitions"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptFileError(path, 0, what, content[:40].decode("utf-8", "replace")) from error


def _definition(name: str, entry: Mapping[str, Any]) -> BitmapDefinition:
    columns = entry["sourceFields"]
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise TypeError("columns")
    limit = int(entry["indexOptions"]["maxDistinctValues"])
    return BitmapDefinition(name=name, columns=tuple(columns), max_distinct=limit)


def definitions_file(files: TableFiles, definitions: Mapping[str, BitmapDefinition]) -> dict[str, bytes | None]:
    """The path of a table's definitions and their content; None, for no file, without any."""
    path = files.path(BITMAP_DEFINITIONS)
    if not definitions:
        return {path: None}
    entries = {
        definition.name: {
            "indexName": definition.name,
            "indexType": "bitmap",
            "sourceFields": list(definition.columns),
            "indexOptions": {"maxDistinctValues": str(definition.max_distinct)},
            "version": "V1",
        }
        for definition in definitions.values()
    }
    return {path: json.dumps({"indexDefinitions": entries}, indent=2, ensure_ascii=False).encode()}


def write_bitmap_definitions(files: TableFiles, definitions: Mapping[str, BitmapDefinition]) -> None:
    """Replace a table's definitions. Call under the table lock."""
    replace_definitions(files.storage, definitions_file(files, definitions))


def indexed_limits(definitions: Mapping[str, BitmapDefinition]) -> dict[str, int]:
    """Columns of all indexes, each once, with their cap: the largest where several indexes have the column."""
    limits: dict[str, int] = {}
    for definition in definitions.values():
        for column in definition.columns:
            limits[column] = max(limits.get(column, 0), definition.max_distinct)
    return limits


def has_column(schema: pa.Schema, name: str) -> bool:
    """Whether a schema has a column, or a nested field, of exactly this name."""
    try:
        column_of(name, schema)
    except InvalidInputError:
        return False
    return True


def bitmap_columns(snapshot: Snapshot, schema: pa.Schema, renames: Mapping[str, str] | None = None) -> dict[str, int]:
    """Columns of all bitmap indexes that a table has, each with its cap of distinct values in a file.

    Args:
        snapshot: the table.
        schema: its columns once the write is done.
        renames: columns that are called otherwise then.

    Raises:
        CorruptFileError: the definitions are damaged.
    """
    limits = indexed_limits(known_bitmap_definitions(snapshot))
    named = {_renamed(name, renames or {}): limit for name, limit in limits.items()}
    return {name: limit for name, limit in named.items() if has_column(schema, name)}


def _renamed(name: str, renames: Mapping[str, str]) -> str:
    top, dot, inner = name.partition(".")
    return f"{renames.get(top, top)}{dot}{inner}"


def with_new_names(
    definitions: Mapping[str, BitmapDefinition], renames: Mapping[str, str]
) -> dict[str, BitmapDefinition]:
    """Definitions that name renamed columns by their new names too."""
    return {
        name: replace(
            index, columns=tuple(dict.fromkeys(one for own in index.columns for one in (own, _renamed(own, renames))))
        )
        for name, index in definitions.items()
    }


def lost_names(
    before: Mapping[str, BitmapDefinition],
    after: Mapping[str, BitmapDefinition],
    renames: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Notes on the columns that definitions lost, but for those that were renamed."""
    notes = []
    for name, index in before.items():
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
