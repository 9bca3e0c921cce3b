"""Read and set comments of columns: ``doc`` of an Avro field, ``comment`` in the metadata of an Arrow field.

Comments are a mapping from dotted paths, in which ``element`` and ``value`` lead into lists and maps, as in Spark's
SQL; the schemas used to read and write rows have none. In Hudi:
``AvroConversionUtils.getAvroSchemaWithDefaults`` (0.11 to 1.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakedex.errors import InvalidInputError

__all__ = ["arrow_comments", "avro_comments", "check_comment", "field_paths", "with_comments", "with_docs"]


_KEY = b"comment"


def check_comment(text: Any, what: str) -> str:
    """Return the text if it can be stored.

    Raises:
        InvalidInputError: It is not a string, or has a lone surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"the comment of {what} must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the comment of {what} is not valid Unicode: {error}") from error
    return text


# ------------------------------------------------------------------------------------------------ Avro


def avro_comments(avro_schema: Any) -> dict[str, str]:
    """Comments by path, of a schema that :func:`lakedex.codec.avro_schema.avro_to_arrow` has accepted."""
    docs = ((path, field.get("doc")) for path, field in _avro_fields(avro_schema, ""))
    return {path: doc for path, doc in docs if doc and isinstance(doc, str)}


def with_docs(avro_schema: dict[str, Any], comments: Mapping[str, str]) -> dict[str, Any]:
    """Put comments into a schema, in place, and return it; comments of unknown fields are ignored."""
    for path, field in _avro_fields(avro_schema, ""):
        if path in comments:
            field["doc"] = comments[path]
    return avro_schema


def _avro_fields(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields of the records in a type, at any depth; a record given by its name was visited where it is defined."""
    if isinstance(node, list):
        for branch in node:
            yield from _avro_fields(branch, path)
    elif isinstance(node, dict):
        kind = node["type"]
        if kind in ("record", "error"):
            for field in node["fields"]:
                below = _below(path, field["name"])
                yield below, field
                yield from _avro_fields(field["type"], below)
        elif kind == "array":
            yield from _avro_fields(node["items"], f"{path}.element")
        elif kind == "map":
            yield from _avro_fields(node["values"], f"{path}.value")
        else:
            yield from _avro_fields(kind, path)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ------------------------------------------------------------------------------------------------ Arrow


def arrow_comments(schema: pa.Schema) -> dict[str, str]:
    """Comments by path.

    Raises:
        InvalidInputError: A comment is not UTF-8; ``column`` names its column.
    """
    return {path: text for path, field in _arrow_fields(schema, "") if (text := _text(path, field))}


def _text(path: str, field: pa.Field[Any]) -> str:
    try:
        return str((field.metadata or {}).get(_KEY, b""), "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the comment of column {path!r} is not UTF-8: {error}", column=path) from error


def field_paths(schema: pa.Schema) -> list[str]:
    """Paths of all columns and nested fields."""
    return [path for path, _ in _arrow_fields(schema, "")]


def _arrow_fields(fields: Iterable[pa.Field[Any]], path: str) -> Iterator[tuple[str, pa.Field[Any]]]:
    for field in fields:
        below = _below(path, field.name)
        yield below, field
        yield from _inside(field.type, below)


def _inside(kind: Any, path: str) -> Iterator[tuple[str, pa.Field[Any]]]:
    if pa.types.is_struct(kind):
        yield from _arrow_fields(kind, path)
    elif pa.types.is_map(kind):
        yield from _inside(kind.item_type, f"{path}.value")
    elif pa.types.is_list(kind):
        yield from _inside(kind.value_type, f"{path}.element")


def with_comments(schema: pa.Schema, comments: Mapping[str, str]) -> pa.Schema:
    """Schema with comments in the metadata of its fields; comments of unknown fields are ignored."""
    return pa.schema(_commented(schema, "", comments)) if comments else schema


def _commented(fields: Iterable[pa.Field[Any]], path: str, comments: Mapping[str, str]) -> list[pa.Field[Any]]:
    found = []
    for field in fields:
        below = _below(path, field.name)
        field = field.with_type(_commented_type(field.type, below, comments))
        found.append(field.with_metadata({_KEY: comments[below].encode()}) if below in comments else field)
    return found


def _commented_type(kind: Any, path: str, comments: Mapping[str, str]) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct(_commented(kind, path, comments))
    if pa.types.is_map(kind):
        value = kind.item_field
        return pa.map_(kind.key_type, value.with_type(_commented_type(value.type, f"{path}.value", comments)))
    if pa.types.is_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(_commented_type(element.type, f"{path}.element", comments)))
    return kind
