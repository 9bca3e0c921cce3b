"""Encode and decode records of the metadata table as HFile values, one by one or as Arrow columns.

The schema on disk has Hudi's five meta fields before the record's own, all null, and the record's ``key`` is empty:
the HFile's key stands for it. In Hudi: ``HoodieMetadataPayload``, ``HoodieAvroHFileReaderImplBase`` (1.1.1).

Records are read by the schema of their file. Fields missing from an older release are filled with their defaults;
fields of a later release are preserved. Bounds of column statistics are wrappers (:mod:`lakedex.codec.column_bounds`).

:func:`payload_columns` reads many records as Arrow columns. It leaves schemas of another shape, records without the
payload and damaged bytes to :func:`decode_many`, which reads them or reports what is wrong.

``BitmapIndexMetadata`` is the record type that RFC-92 adds to Hudi's metadata record. Hudi has no such field in any
release, so its schema is the metadata record of 1.1.1 with one more field at the end, null in all other records. A
reader that resolves fields by name sees such a record as one without a payload.
null in all other records. A reader that resolves by field names takes such a record as one without a payload.

    ============  ===============  ====================================================================
    field         type             content
    ============  ===============  ====================================================================
    bitmap        string or null   row positions in the base file: portable roaring, base64
    baseFile      string or null   name of the base file that the positions are of
    cardinality   long or null     how many positions
    coverage      bytes or null    in coverage records instead: an Arrow stream
    ============  ===============  ====================================================================
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader, schemaless_writer

from lakedex.codec.avro import DATUM_FAILURES, decode_datum, metadata_schema_json, named_types, parse, parse_json
from lakedex.codec.avro_vectorized import Datums, FlatType, arrow_of, flat_type, read_columns
from lakedex.codec.varint import encode_varint
from lakedex.errors import CorruptFileError, InvalidInputError

__all__ = [
    "BITMAP_RECORD_TYPE",
    "BitmapEntry",
    "BitmapRecord",
    "bitmap_cells",
    "bitmap_schema_json",
    "decode_bitmap_records",
    "decode_many",
    "decode_metadata_record",
    "encode_bitmap_records",
    "encode_many",
    "encode_metadata_record",
    "is_metadata_schema",
    "payload_columns",
    "wrapper_names",
]


Gaps = tuple[tuple[str | None, dict[str, Any]], ...]
"""Defaults of missing fields by the part of the record that lacks them (None for the record itself)."""


def encode_metadata_record(record: Mapping[str, Any], *, keep_key: bool = False, table_version: int = 8) -> bytes:
    """Encode one record with the schema for this table version, with meta fields.

    Args:
        record: The record. Absent fields get their defaults; fields that the schema lacks are dropped.
        keep_key: Write ``key`` instead of leaving it empty as on disk.
        table_version: See :func:`~lakedex.codec.avro.metadata_schema_json`.

    Raises:
        InvalidInputError: The record does not match the schema.
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
    """Decode one record from its HFile value.

    Args:
        data: HFile value.
        writer_schema_json: Schema of the file (file info ``schema``, or the log block's header).
        key: The HFile key, which replaces an empty ``key``.
        path: File, for errors.

    Raises:
        CorruptFileError: The bytes are damaged, or the schema is not that of a metadata record.
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
    """Whether :func:`decode_many` can read records of this schema."""
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
    """Fields to fill in for a writer's schema.

    Raises:
        ValueError: The schema is not that of a metadata record, or a field has an incompatible type.
    """
    writer = parse_json(writer_schema_json)
    fields = _fields(writer)
    if not {"key", "type"} <= fields.keys():
        raise ValueError("it has no fields key and type")
    for name, known in _fields(parse_json(metadata_schema_json())).items():
        if name in fields:
            _require_fitting(fields[name], known, name, named_types(writer), fillable=_record_of(known) is not None)
    gaps: list[tuple[str | None, dict[str, Any]]] = []
    for part, known in _known_fields().items():
        has = fields if part is None else _fields(fields.get(part))
        missing = {name: default for name, default in known.items() if name not in has}
        # A part that the writer lacks is null in every record.
        if missing and (part is None or has):
            gaps.append((part, missing))
    return tuple(gaps)


def _require_fitting(writer: Any, known: Any, name: str, named: dict[str, Any], *, fillable: bool = False) -> None:
    """Refuse a writer's type that readers of field ``name`` cannot use.

    Args:
        writer: Type in the writer's schema.
        known: Type in the release that lakedex writes.
        name: Name of the field.
        named: Named types of the writer.
        fillable: Accept absent fields of this record that have a default.
    """
    kinds = _branches(known, _known_names())
    # Bounds are a union of records, and a later release may add some (:func:`unwrap_stat`).
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
    """Branches of a union, or the type itself, by kind; records by their full name, which readers dispatch on."""
    found: dict[str, Any] = {}
    for branch in node if isinstance(node, list) else [node]:
        kind = named.get(branch, branch) if isinstance(branch, str) else branch
        if isinstance(kind, dict) and isinstance(kind.get("type"), dict | list):
            found |= _branches(kind["type"], named)
        elif isinstance(kind, dict):
            found[str(kind["name"] if kind["type"] == "record" else kind["type"])] = kind
        else:
            found[str(kind)] = kind
    return found


@cache
def _known_names() -> dict[str, Any]:
    return named_types(parse_json(metadata_schema_json()))


@cache
def _known_fields() -> dict[str | None, dict[str, Any]]:
    """Defaults of all fields in the release that lakedex writes: of the record, and of its parts by their field."""
    top = _fields(parse_json(metadata_schema_json()))
    payloads = {name: None for name, kind in top.items() if isinstance(kind, list) and "null" in kind}
    known: dict[str | None, dict[str, Any]] = {None: payloads | _defaults(parse_json(metadata_schema_json()))}
    for name, branch in top.items():
        defaults = _defaults(_record_of(branch))
        if defaults:
            known[name] = defaults
    return known


def _record_of(schema: Any) -> Any:
    """Record in ``["null", record]``."""
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


def payload_columns(
    values: Sequence[bytes], writer_schema_json: str, payload: str, fields: frozenset[str]
) -> pa.StructArray | None:
    """Read some payload fields of each record; None if the vectorized reader does not support them.

    Fields missing from the writer's release are left out. A union of several wrappers becomes a dense union, whose
    branches are named by their positions (:func:`wrapper_names`).

    Args:
        values: HFile values.
        writer_schema_json: Schema of the file.
        payload: Name of the payload field that all records have.
        fields: Names of the fields.
    """
    record = _metadata_type(writer_schema_json)
    part = None if record is None else _part(record, payload)
    if record is None or part is None:
        return None
    types = {payload: arrow_of(part, fields)}
    try:
        found = read_columns(Datums.of(values), record, types, (payload,))[payload]
    except (pa.ArrowException, *DATUM_FAILURES):
        return None
    return found if isinstance(found, pa.StructArray) and not found.null_count else None


def wrapper_names(writer_schema_json: str, payload: str, field: str) -> tuple[str, ...]:
    """Bare names of the branches of a field that is a union of wrappers; empty for other fields."""
    record = _metadata_type(writer_schema_json)
    part = None if record is None else _part(record, payload)
    if part is None or field not in part.names:
        return ()
    return tuple(child.name.rpartition(".")[2] for child in part.children[part.names.index(field)].children)


@lru_cache(maxsize=64)
def _metadata_type(writer_schema_json: str) -> FlatType | None:
    if not is_metadata_schema(writer_schema_json):
        return None
    try:
        found = flat_type(json.loads(writer_schema_json), partly=True)
    except DATUM_FAILURES:
        return None
    return found if found is not None and found.kind == "record" else None


def _part(record: FlatType, payload: str) -> FlatType | None:
    if payload not in record.names:
        return None
    part = record.children[record.names.index(payload)]
    part = part.children[0] if part.kind == "union" else part
    return part if part.kind == "record" else None


BITMAP_RECORD_TYPE = 92
"""``type`` of the record. Hudi 1.1.1 uses 1 to 7 and reserves none; RFC-92's number is far from them."""


_FIELD = "BitmapIndexMetadata"


_KINDS: dict[str, type] = {"bitmap": str, "baseFile": str, "cardinality": int, "coverage": bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapRecord:
    """Payload of one record; the module docstring describes its fields."""

    bitmap: str | None = None
    base_file: str | None = None
    cardinality: int | None = None
    coverage: bytes | None = None


BitmapEntry = tuple[bytes, bytes, int, str]
"""Key of a bitmap, its portable bytes, its cardinality, and the base file of its positions."""


@cache
def bitmap_schema_json() -> str:
    """Schema as stored in the file info of each run."""
    schema = json.loads(metadata_schema_json())
    payload = {
        "type": "record",
        "name": "HoodieBitmapIndexInfo",
        "doc": "Rows of one base file that hold one value of a column (RFC-92)",
        "fields": [
            {"name": name, "type": ["null", kind], "default": None}
            for name, kind in (
                ("bitmap", "string"),
                ("baseFile", "string"),
                ("cardinality", "long"),
                ("coverage", "bytes"),
            )
        ],
    }
    schema["fields"].append({"name": _FIELD, "type": ["null", payload], "default": None})
    return json.dumps(schema, separators=(",", ":"))


def encode_bitmap_records(records: Iterable[BitmapRecord]) -> list[bytes]:
    """Encode records as HFile values, with an empty ``key`` as in all metadata HFiles."""
    # Encoded by hand, byte for byte as fastavro would, since a column of many values has a record per value and file:
    # a union of null and a type is one byte, the zigzag number 0 or 1, before the value.
    head = _head()
    return [
        b"".join(
            (
                head,
                _sized(None if record.bitmap is None else record.bitmap.encode()),
                _text(record.base_file),
                b"\0" if record.cardinality is None else b"\x02" + _zigzag(record.cardinality),
                _sized(record.coverage),
            )
        )
        for record in records
    ]


def bitmap_cells(entries: Iterable[BitmapEntry]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and encoded records of bitmaps, as :func:`encode_bitmap_records` encodes them.

    Yields one cell at a time, so that a value goes into its block while it is still in the processor's cache.
    """
    head, encoded = _head() + b"\x02", base64.b64encode
    # Standard base64: four characters for every three bytes or part of them.
    for key, data, cardinality, base_file in entries:
        size, name = _zigzag((len(data) + 2) // 3 * 4), _text(base_file)
        yield key, b"".join((head, size, encoded(data), name, b"\x02", _zigzag(cardinality), b"\0"))


@lru_cache(maxsize=4096)
def _text(text: str | None) -> bytes:
    """Encode the name of a base file; cached, as it is repeated for each value."""
    return _sized(None if text is None else text.encode())


def _sized(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\x02" + _zigzag(len(data)) + data


@lru_cache(maxsize=1 << 16)
def _zigzag(number: int) -> bytes:
    return encode_varint(number << 1 if number >= 0 else ~(number << 1))


def decode_bitmap_records(
    values: Sequence[bytes | memoryview], writer_schema_json: str, path: str = ""
) -> list[BitmapRecord]:
    """Decode records from HFile values.

    Args:
        values: HFile values.
        writer_schema_json: Schema of the file.
        path: File named in errors.

    Raises:
        CorruptFileError: The bytes are damaged, or the records have another type.
    """
    head, payload = _head(), _payload_schema()
    if writer_schema_json != bitmap_schema_json() or not all(bytes(value[: len(head)]) == head for value in values):
        return [
            _bitmap_record(record.get(_FIELD), record, path)
            for record in decode_many(values, writer_schema_json, path=path)
        ]
    return [_bitmap_record(decode_datum(payload, value[len(head) :], path, len(head)), None, path) for value in values]


@cache
def _payload_schema() -> Any:
    schema = json.loads(bitmap_schema_json())
    return parse(schema["fields"][-1]["type"][1])


@cache
def _head() -> bytes:
    """Bytes before the payload of a bitmap record; the same in every record.

    Written and skipped at once, since a metadata record has some thirty fields and an index millions of records.
    """
    out = io.BytesIO()
    schemaless_writer(out, parse_json(bitmap_schema_json()), {"key": "", "type": BITMAP_RECORD_TYPE, _FIELD: None})
    # The last byte is the branch of the union: zigzag of 0 for null, of 1 for the payload.
    return out.getvalue()[:-1] + b"\x02"


def _bitmap_record(payload: dict[str, Any] | None, record: dict[str, Any] | None, path: str) -> BitmapRecord:
    if payload is None or (record is not None and record.get("type") != BITMAP_RECORD_TYPE):
        kind = None if record is None else record.get("type")
        raise CorruptFileError(path, 0, "a bitmap record", f"a metadata record of type {kind}")
    if any(name not in payload or not isinstance(payload[name], kind | None) for name, kind in _KINDS.items()):
        raise CorruptFileError(path, 0, f"a bitmap record of {', '.join(_KINDS)}", str(payload)[:80])
    return BitmapRecord(
        bitmap=payload["bitmap"],
        base_file=payload["baseFile"],
        cardinality=payload["cardinality"],
        coverage=payload["coverage"],
    )
