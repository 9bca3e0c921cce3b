"""From the cells of metadata files to keys and records; what is damaged names its file."""

from __future__ import annotations

from typing import Any

from lakedex.codec.hfile import HFileReader
from lakedex.codec.metadata_record import decode_metadata_record
from lakedex.errors import CorruptFileError

__all__ = ["decode_cell", "key_text", "record_schema"]


def record_schema(layer: HFileReader) -> str:
    """The schema that an HFile's records are written by.

    Raises:
        CorruptFileError: there is none.
    """
    found = layer.info.get("schema")
    try:
        if found is not None:
            return found.decode("utf-8")
    except UnicodeDecodeError:
        pass
    shown = "none" if found is None else repr(found[:40])
    raise CorruptFileError(layer.path, layer.trailer.file_info_offset, "file info with a schema", shown)


def key_text(key: bytes, layer: HFileReader) -> str:
    """A key as text.

    Raises:
        CorruptFileError: it is none.
    """
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(layer.path, 0, "keys in UTF-8", repr(key[:40])) from error


def decode_cell(value: bytes, schema: str, layer: HFileReader, payload: str | None = None) -> dict[str, Any]:
    """The record of a value.

    Args:
        value: the value, not empty.
        schema: of :func:`record_schema`.
        layer: where it comes from.
        payload: the field that records of its partition have.

    Raises:
        CorruptFileError: damaged bytes, or a record of another partition.
    """
    record = decode_metadata_record(value, schema, path=layer.path)
    if payload is not None and record[payload] is None:
        raise CorruptFileError(layer.path, 0, f"records with {payload}", f"one of type {record['type']}")
    return record
