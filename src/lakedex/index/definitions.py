"""Index definitions: ``.hoodie/.index_defs/index.json`` (``HoodieIndexMetadata``).

Only ``column_stats`` has an entry of its own here: its ``sourceFields`` say which columns are indexed, and readers
take a file without a record for one of them as holding nulls only. Entries of others are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lakedex.codec.column_bounds import StatsVersion, default_stats_version
from lakedex.codec.properties import decode_json_object
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.io.storage import Storage, TableFiles
from lakedex.snapshot.snapshot import Snapshot

__all__ = [
    "DEFINITIONS",
    "encode_definitions",
    "known_definitions",
    "read_definitions",
    "replace_definitions",
    "source_fields",
    "stats_version",
    "with_column_stats",
    "without_indexes",
]


DEFINITIONS = ".hoodie/.index_defs/index.json"
"""Where a table keeps its definitions (``hoodie.table.index.defs.path``)."""


def read_definitions(files: TableFiles) -> dict[str, Any]:
    """The definitions document; empty when there is none."""
    path = files.path(DEFINITIONS)
    try:
        return _decoded(files.storage.read(path), path)
    except FileNotFoundError:
        return {"indexDefinitions": {}}


def known_definitions(snapshot: Snapshot) -> dict[str, Any]:
    """The same for a table's state, in which they are read once."""
    try:
        return _decoded(snapshot.document(DEFINITIONS), snapshot.files.path(DEFINITIONS))
    except FileNotFoundError:
        return {"indexDefinitions": {}}


def _decoded(content: bytes, path: str) -> dict[str, Any]:
    what = "JSON with indexDefinitions"
    document = decode_json_object(content, what, path)
    entries = document.get("indexDefinitions")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise CorruptFileError(path, 0, what, content[:40].decode("utf-8", "replace"))
    for name, entry in entries.items():
        fields = entry.get("sourceFields")
        if fields is not None and not (isinstance(fields, list) and all(isinstance(item, str) for item in fields)):
            raise CorruptFileError(path, 0, f"sourceFields of {name!r} as a list of columns", repr(fields)[:40])
    return document


def source_fields(document: dict[str, Any]) -> list[str]:
    """Columns that ``column_stats`` covers; empty without that index."""
    entry = document["indexDefinitions"].get("column_stats") or {}
    return list(entry.get("sourceFields") or [])


def stats_version(document: dict[str, Any], table_version: int) -> StatsVersion:
    """Encoding of column stats and partition stats: that of the definition, which an upgrade of the table leaves alone.

    In Hudi: ``HoodieTableMetadataUtil.existingIndexVersionOrDefault``. Definitions of release 1.0.2 have no version.

    Raises:
        UnsupportedFeatureError: a version that lakedex does not know.
    """
    definitions = document["indexDefinitions"]
    for name in ("column_stats", "partition_stats"):
        version = (definitions.get(name) or {}).get("version")
        if version in ("V1", "V2"):
            return "V1" if version == "V1" else "V2"
        if version is not None:
            raise UnsupportedFeatureError(
                f"index.json: {name} is of index version {version}, which lakedex does not know; write the table with "
                "Hudi",
                feature=f"index version {version}",
            )
    return default_stats_version(table_version)


def with_column_stats(document: dict[str, Any], columns: Sequence[str], table_version: int) -> dict[str, Any]:
    """The document with ``column_stats`` covering ``columns``."""
    entry = {
        "indexName": "column_stats",
        "indexType": "column_stats",
        "indexFunction": "column_stats",
        "sourceFields": list(columns),
        "indexOptions": {},
        "version": stats_version(document, table_version),
    }
    return {**document, "indexDefinitions": {**document["indexDefinitions"], "column_stats": entry}}


def without_indexes(document: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The document without the definitions of some indexes."""
    kept = {name: entry for name, entry in document["indexDefinitions"].items() if name not in names}
    return {**document, "indexDefinitions": kept}


def replace_definitions(storage: Storage, files: Mapping[str, bytes | None]) -> None:
    """Write definitions files, given by path; None deletes one. Call under the table lock."""
    for path, content in files.items():
        if content is None:
            storage.delete(path)
        else:
            storage.write(path, content)


def encode_definitions(document: dict[str, Any]) -> bytes:
    """The document's bytes."""
    return json.dumps(document, indent=2, ensure_ascii=False).encode()
