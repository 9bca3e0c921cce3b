"""Which bitmap indexes a table has: ``.hoodie/.index_defs/bitmap_index.json``.

A file of its own. In ``index.json`` Hudi 1.1.1 takes every entry for a partition of its metadata table, and a name that
it does not know is an error to it (``MetadataPartitionType``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakedex.codec.json_object import decode_json_object
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage

__all__ = [
    "DEFAULT_MAX_DISTINCT",
    "BitmapDefinition",
    "bitmap_definitions_path",
    "indexed_limits",
    "read_bitmap_definitions",
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


def bitmap_definitions_path(base_path: str) -> str:
    """Where a table's definitions lie."""
    return f"{base_path}/.hoodie/.index_defs/bitmap_index.json"


def read_bitmap_definitions(storage: Storage, base_path: str) -> dict[str, BitmapDefinition]:
    """Definitions by name, none for a table without bitmap indexes.

    Raises:
        CorruptFileError: the file is damaged.
    """
    path = bitmap_definitions_path(base_path)
    try:
        content = storage.read(path)
    except FileNotFoundError:
        return {}
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


def write_bitmap_definitions(storage: Storage, base_path: str, definitions: Mapping[str, BitmapDefinition]) -> None:
    """Replace a table's definitions; without any the file goes. Call under the table lock."""
    path = bitmap_definitions_path(base_path)
    if not definitions:
        storage.delete(path)
        return
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
    storage.write(path, json.dumps({"indexDefinitions": entries}, indent=2, ensure_ascii=False).encode())


def indexed_limits(definitions: Mapping[str, BitmapDefinition]) -> dict[str, int]:
    """Columns of all indexes, each once, with their cap: the largest where several indexes have the column."""
    limits: dict[str, int] = {}
    for definition in definitions.values():
        for column in definition.columns:
            limits[column] = max(limits.get(column, 0), definition.max_distinct)
    return limits
