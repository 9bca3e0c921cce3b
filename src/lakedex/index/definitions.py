"""Index definitions: ``.hoodie/.index_defs/index.json`` (``HoodieIndexMetadata``).

Only ``column_stats`` has an entry of its own here: its ``sourceFields`` say which columns are indexed, and readers
take a file without a record for one of them as holding nulls only. Entries of others are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage

__all__ = [
    "definitions_path",
    "encode_definitions",
    "read_definitions",
    "source_fields",
    "with_column_stats",
    "without_indexes",
]


def definitions_path(base_path: str, relative: str = ".hoodie/.index_defs/index.json") -> str:
    """Where a table keeps its definitions (``hoodie.table.index.defs.path``)."""
    return f"{base_path}/{relative}"


def read_definitions(storage: Storage, path: str) -> dict[str, Any]:
    """The definitions document; empty when there is none."""
    try:
        content = storage.read(path)
    except FileNotFoundError:
        return {"indexDefinitions": {}}
    try:
        document = json.loads(content)
        if not isinstance(document["indexDefinitions"], dict):
            raise TypeError
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            path, 0, "JSON with indexDefinitions", content[:40].decode("utf-8", "replace")
        ) from error
    return dict(document)


def source_fields(document: dict[str, Any]) -> list[str]:
    """Columns that ``column_stats`` covers; empty without that index."""
    entry = document["indexDefinitions"].get("column_stats") or {}
    return list(entry.get("sourceFields") or [])


def with_column_stats(document: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The document with ``column_stats`` covering ``columns``."""
    entry = {
        "indexName": "column_stats",
        "indexType": "column_stats",
        "indexFunction": "column_stats",
        "sourceFields": list(columns),
        "indexOptions": {},
        "version": "V1",
    }
    return {**document, "indexDefinitions": {**document["indexDefinitions"], "column_stats": entry}}


def without_indexes(document: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The document without the definitions of some indexes."""
    kept = {name: entry for name, entry in document["indexDefinitions"].items() if name not in names}
    return {**document, "indexDefinitions": kept}


def encode_definitions(document: dict[str, Any]) -> bytes:
    """The document's bytes."""
    return json.dumps(document, indent=2, ensure_ascii=False).encode()
