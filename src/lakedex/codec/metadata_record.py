"""Records of the metadata table: ``HoodieMetadataRecord`` as the value of an HFile entry.

The schema on disk has Hudi's five meta fields before the record's own, all null, and the record's ``key`` is empty:
the HFile's key stands for it. In Hudi: ``HoodieMetadataPayload``, ``HoodieAvroHFileReaderImplBase`` (1.1.1).

Records are read by the schema that their file carries. Fields that its release did not have yet are filled in with
their defaults; fields that only a later release has are kept. Bounds of column statistics come and go as wrappers
(:mod:`lakedex.codec.stats_value`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from fastavro import schemaless_reader, schemaless_writer

from lakedex.codec.avro import DATUM_FAILURES, metadata_schema_json, named_types, parse_json
from lakedex.errors import CorruptFileError, InvalidInputError

__all__ = ["decode_many", "decode_metadata_record", "encode_many", "encode_metadata_record", "is_metadata_schema"]

Gaps = tuple[tuple[str | None, dict[str, Any]], ...]
"""Fields to fill in: name of the part of the record that lacks them (None for the record itself), and defaults."""


def encode_metadata_record(record: Mapping[str, Any], *, keep_key: bool = False, table_version: int = 8) -> bytes:
    """HFile value of one record, by the schema that a table of this version has, with meta fields.

    Args:
        record: The record; fields that are not given have their defaults, those that the schema lacks go.
        keep_key: Write ``key`` as it is instead of leaving it empty as on disk.
        table_version: See :func:`~lakedex.codec.avro.metadata_schema_json`.

    Raises:
        InvalidInputError: The record does not fit the schema.
    """
    return encode_many([record], keep_key=keep_key, table_version=table_version)[0]


def encode_many(records: Iterable[Mapping[str, Any]], *, keep_key: bool = False, table_version: int = 8) -> list[bytes]:
    """:func:`encode_metadata_record` of each record."""
    writer = parse_json(metadata_schema_json(table_version))
    encoded = []
    out = io.BytesIO()
    for record in records:
        out.seek(0)
        out.truncate()
        try:
            schemaless_writer(out, writer, record if keep_key else {**record, "key": ""})
        except DATUM_FAILURES as error:
            raise InvalidInputError(f"not a metadata record: {error}") from error
        encoded.append(out.getvalue())
    return encoded


def decode_metadata_record(
    data: bytes | memoryview, writer_schema_json: str, *, key: str = "", path: str = ""
) -> dict[str, Any]:
    """One record from its HFile value.

    Args:
        data: The value.
        writer_schema_json: The file's own schema (file info ``schema``, or the log block's header).
        key: The HFile key, put in place of an empty ``key``.
        path: File, for errors.

    Raises:
        CorruptFileError: Damaged bytes, or a schema of something else.
    """
    return decode_many([data], writer_schema_json, keys=[key], path=path)[0]


def decode_many(
    values: Sequence[bytes | memoryview],
    writer_schema_json: str,
    *,
    keys: Sequence[str] | None = None,
    path: str = "",
) -> list[dict[str, Any]]:
    """:func:`decode_metadata_record` of each value; ``offset`` of an error counts within its value."""
    writer = parse_json(writer_schema_json, path)
    try:
        gaps = _gaps(writer_schema_json)
    except DATUM_FAILURES as error:
        raise CorruptFileError(path, 0, "the schema of a metadata record", f"{writer.get('name')}: {error}") from error
    records = []
    for value in values:
        stream = io.BytesIO(value)
        try:
            record: Any = schemaless_reader(
                stream,
                writer,
                None,
                return_record_name=True,
                return_record_name_override=True,
            )
        except DATUM_FAILURES as error:
            found = f"{type(error).__name__}: {error}"
            raise CorruptFileError(path, stream.tell(), "a metadata record", found) from error
        if stream.tell() != len(value):
            found = f"{len(value) - stream.tell()} more bytes"
            raise CorruptFileError(path, stream.tell(), "the end of a metadata record", found)
        records.append(record)
    for part, defaults in gaps:
        _fill(records, part, defaults)
    if keys is not None:
        for record, key in zip(records, keys, strict=True):
            record["key"] = record["key"] or key
    return records


def is_metadata_schema(writer_schema_json: str) -> bool:
    """Whether a file's schema is one whose records :func:`decode_many` takes."""
    try:
        _gaps(writer_schema_json)
    except DATUM_FAILURES:
        return False
    return True


def _fill(records: list[dict[str, Any]], part: str | None, defaults: dict[str, Any]) -> None:
    for record in records:
        target = record if part is None else record[part]
        if target is not None:
            target.update(defaults)


@lru_cache(maxsize=64)
def _gaps(writer_schema_json: str) -> Gaps:
    """What to fill in for a writer's schema.

    Raises:
        ValueError: the schema of something else, or one whose values are not what fields of these names hold.
    """
    writer = parse_json(writer_schema_json)
    fields = _fields(writer)
    if not {"key", "type"} <= fields.keys():
        raise ValueError("no key and type")
    for name, known in _fields(parse_json(metadata_schema_json())).items():
        if name in fields:
            _require_fitting(fields[name], known, name, named_types(writer), fillable=_record_of(known) is not None)
    gaps: list[tuple[str | None, dict[str, Any]]] = []
    for part, known in _known_fields().items():
        has = fields if part is None else _fields(fields.get(part))
        missing = {name: default for name, default in known.items() if name not in has}
        # A part that the writer does not have at all is null in every record.
        if missing and (part is None or has):
            gaps.append((part, missing))
    return tuple(gaps)


def _require_fitting(writer: Any, known: Any, name: str, named: dict[str, Any], *, fillable: bool = False) -> None:
    """Refuse a writer's type whose values those who read ``name`` cannot take.

    Args:
        writer: the type.
        known: the type in the release that is written.
        name: of the field.
        named: the writer's named types.
        fillable: absent fields of this record are filled in, if they have a default.
    """
    kinds = _branches(known, _known_names())
    # Bounds come in one of many records, and a later release may have more of them (:func:`unwrap_stat`).
    is_open = sum(isinstance(other, dict) for other in kinds.values()) > 1
    for kind, node in _branches(writer, named).items():
        if kind not in kinds and is_open and isinstance(node, dict):
            continue
        if kind not in kinds and not (kind == "int" and "long" in kinds):
            raise ValueError(f"{kind} in {name!r}")
        if kind == "array":
            _require_fitting(node["items"], kinds[kind]["items"], name, named)
        elif kind == "map":
            _require_fitting(node["values"], kinds[kind]["values"], name, named)
        elif isinstance(node, dict) and node.get("type") == "record":
            own, wanted = _fields(node), _fields(kinds[kind])
            filled = _defaults(kinds[kind]).keys() if fillable else set()
            if missing := [field for field in wanted if field not in own and field not in filled]:
                raise ValueError(f"no {missing[0]!r} in {name!r}")
            for field in own.keys() & wanted.keys():
                _require_fitting(own[field], wanted[field], f"{name}.{field}", named)


def _branches(node: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Branches of a union, or the type itself, by kind; records by their full name, which readers tell them by."""
    found: dict[str, Any] = {}
    for branch in node if isinstance(node, list) else [node]:
        whole = named.get(branch, branch) if isinstance(branch, str) else branch
        if isinstance(whole, dict) and isinstance(whole.get("type"), dict | list):
            found |= _branches(whole["type"], named)
        elif isinstance(whole, dict):
            found[str(whole["name"] if whole["type"] == "record" else whole["type"])] = whole
        else:
            found[str(whole)] = whole
    return found


@cache
def _known_names() -> dict[str, Any]:
    return named_types(parse_json(metadata_schema_json()))


@cache
def _known_fields() -> dict[str | None, dict[str, Any]]:
    """Defaults of all fields of the release that is written: of the record, and of its parts by their field."""
    top = _fields(parse_json(metadata_schema_json()))
    payloads = {name: None for name, kind in top.items() if isinstance(kind, list) and "null" in kind}
    known: dict[str | None, dict[str, Any]] = {None: payloads | _defaults(parse_json(metadata_schema_json()))}
    for name, branch in top.items():
        defaults = _defaults(_record_of(branch))
        if defaults:
            known[name] = defaults
    return known


def _record_of(schema: Any) -> Any:
    """The record in ``["null", record]``."""
    if isinstance(schema, list):
        return next((branch for branch in schema if isinstance(branch, dict)), None)
    return schema


def _fields(schema: Any) -> dict[str, Any]:
    """Types of a record's fields by name."""
    record = _record_of(schema)
    if not isinstance(record, dict) or record.get("type") != "record":
        return {}
    return {field["name"]: field["type"] for field in record["fields"]}


def _defaults(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return {}
    return {field["name"]: field["default"] for field in schema["fields"] if "default" in field}
