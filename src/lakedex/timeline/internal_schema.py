"""Hudi's schema-on-read: columns with ids, whose names may change without any file being rewritten (``SerDeHelper``).

A table that was changed under ``hoodie.schema.on.read.enable`` carries ``latest_schema`` in its commits and the history
of its schemas in ``.hoodie/.schema``. lakedex, Spark and hudi-rs match the columns of files by name, which is right for
such a table as long as no name ever meant another column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["LATEST_SCHEMA", "moved_names"]

LATEST_SCHEMA: Final = "latest_schema"
"""The key in ``extraMetadata``."""


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


def _inner(kind: Any, name: str) -> Iterator[tuple[int, str]]:
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
