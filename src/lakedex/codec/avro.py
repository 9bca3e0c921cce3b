r"""Read, write and skip Avro values of Hudi's own records, alone and in object container files.

A timeline body is an object container file with one record:

    =========  ==================================================================
    bytes      content
    =========  ==================================================================
    4          ``Obj\x01``
    map        metadata: ``avro.schema`` (the writer's schema, JSON), ``avro.codec``
    16         sync marker
    blocks     count (long), size in bytes (long), that many bytes, sync marker
    =========  ==================================================================

In Hudi: ``TimelineMetadataUtils.serializeAvroMetadata`` and ``CommitMetadataSerDe`` (1.1.1). Both use the codec
``null``, the only one supported here.

Logical types are removed before a datum is read or written, so a value is always physical (an ``int`` for a date,
``bytes`` for a decimal), and dates beyond Python's range do not stop a reader.

Skipping saves time where few fields are needed: a commit of 25,000 files carries megabytes of write stats in front of
its schema. One regular expression skips all consecutive values of bounded shape (numbers, booleans, enums and optional
ones), so a write stat of 31 fields takes about ten steps.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from hashlib import md5
from importlib import resources
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException

from lakedex.codec.avro_schema import check_shape
from lakedex.errors import CorruptFileError, InvalidInputError

__all__ = [
    "DATUM_FAILURES",
    "ParsedSchema",
    "Skip",
    "decode_datum",
    "encode_datum",
    "metadata_schema_json",
    "named_types",
    "parse",
    "parse_json",
    "parsed",
    "read_container",
    "schema",
    "skip_of",
    "write_container",
]


Skip = Callable[[bytes, int], int]
"""Maps the offset of a value to the offset after it; raises ``ValueError`` or ``IndexError`` on invalid bytes."""


_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"


_SHAPES = {
    "null": b"",
    "boolean": rb"[\x00\x01]",
    "int": _VARINT,
    "long": _VARINT,
    "float": rb"[\x00-\xff]{4}",
    "double": rb"[\x00-\xff]{8}",
}


def skip_of(node: Any, known: Mapping[str, Any]) -> Skip:
    """Build the function that skips values of a type.

    Args:
        node: Type as parsed by fastavro; names are full names.
        known: Named types that ``node`` may refer to.

    Raises:
        ValueError: The type refers to itself or to an unknown type.
    """
    return _compiled(_parts(node, known, ()))


def _parts(node: Any, known: Mapping[str, Any], inside: tuple[str, ...]) -> list[bytes | Skip]:
    """Regular expressions and steps, in the order of the bytes."""
    if isinstance(node, list):
        return _union_parts([_parts(branch, known, inside) for branch in node])
    if isinstance(node, str):
        if node in _SHAPES:
            return [_SHAPES[node]]
        if node in ("string", "bytes"):
            return [_skip_text]
        if node in inside or node not in known:
            raise ValueError(f"cannot skip values of Avro type {node!r}")
        return _parts(known[node], known, inside)
    kind = node["type"]
    if kind in ("record", "error"):
        within = (*inside, node["name"])
        return [part for field in node["fields"] for part in _parts(field["type"], known, within)]
    if kind == "array":
        return [_blocks(_compiled(_parts(node["items"], known, inside)))]
    if kind == "map":
        return [_blocks(_compiled([_skip_text, *_parts(node["values"], known, inside)]))]
    if kind == "enum":
        return [_VARINT]
    if kind == "fixed":
        return [rb"[\x00-\xff]{%d}" % node["size"]]
    return _parts(kind, known, inside)


def _union_parts(branches: list[list[bytes | Skip]]) -> list[bytes | Skip]:
    shapes = [b"".join(part for part in parts if isinstance(part, bytes)) for parts in branches]
    if len(branches) < 64 and all(isinstance(part, bytes) for parts in branches for part in parts):
        choices = (re.escape(bytes((2 * place,))) + shape for place, shape in enumerate(shapes))
        return [b"(?:" + b"|".join(choices) + b")"]
    if branches == [[b""], [_skip_text]]:
        return [_skip_optional_text]
    steps = [_compiled(parts) for parts in branches]

    def skip(data: bytes, pos: int) -> int:
        place, pos = _number(data, pos)
        if not 0 <= place < len(steps):
            raise ValueError("union branch out of range")
        return steps[place](data, pos)

    return [skip]


def _compiled(parts: list[bytes | Skip]) -> Skip:
    """Join all parts into one function, merging adjacent regular expressions."""
    steps: list[Skip] = []
    run = b""
    for part in parts:
        if isinstance(part, bytes):
            run += part
            continue
        if run:
            steps.append(_matching(run))
            run = b""
        steps.append(part)
    if run:
        steps.append(_matching(run))
    if not steps:
        return lambda _, pos: pos
    if len(steps) == 1:
        return steps[0]

    def skip(data: bytes, pos: int) -> int:
        for step in steps:
            pos = step(data, pos)
        return pos

    return skip


def _matching(expression: bytes) -> Skip:
    match = re.compile(expression, re.DOTALL).match

    def skip(data: bytes, pos: int) -> int:
        found = match(data, pos)
        if found is None:
            raise ValueError("the bytes do not match the schema")
        return found.end()

    return skip


def _number(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise ValueError("a varint longer than ten bytes")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), pos


def _skip_text(data: bytes, pos: int) -> int:
    byte = data[pos]
    if byte < 0x80:
        size, pos = (byte >> 1) ^ -(byte & 1), pos + 1
    else:
        size, pos = _number(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise ValueError("a string that runs past the end")
    return end


def _skip_optional_text(data: bytes, pos: int) -> int:
    if data[pos] == 0:
        return pos + 1
    if data[pos] != 2:
        raise ValueError("union branch out of range")
    return _skip_text(data, pos + 1)


def _blocks(step: Skip) -> Skip:
    def skip(data: bytes, pos: int) -> int:
        count, pos = _number(data, pos)
        while count:
            if count < 0:  # The block's size follows.
                _, pos = _number(data, pos)
            before = pos
            for _ in range(abs(count)):
                pos = step(data, pos)
                if pos == before:
                    raise ValueError("entries without bytes")
            count, pos = _number(data, pos)
        return pos

    return skip


ParsedSchema = dict[str, Any]
"""A schema prepared by fastavro, as :func:`parsed` and :func:`parse` return it."""


MAGIC = b"Obj\x01"


SYNC_SIZE = 16


NAMESPACE = "org.apache.hudi.avro.model"


DATUM_FAILURES = (
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    AttributeError,
    StopIteration,
    RecursionError,
    MemoryError,
    struct.error,
)
"""Exceptions that fastavro raises for bytes or values that do not match the schema."""


@cache
def _packaged() -> dict[str, dict[str, Any]]:
    text = resources.files("lakedex.codec").joinpath("schemas/avro_1.1.1.json").read_text("utf-8")
    schemas: dict[str, dict[str, Any]] = json.loads(text)
    return schemas


@cache
def metadata_schema_json(table_version: int = 8) -> str:
    """Schema of a metadata record on disk, character for character as Java 1.1.1 writes it.

    It is stored in the file info of metadata HFiles and in the header of their log blocks. It includes the five meta
    fields although the metadata table does not populate them.

    Args:
        table_version: Version of the table. Below 8 the schema is that of Java 0.15.0, which may not read later ones.
    """
    release = "0.15.0" if table_version < 8 else "1.1.1"
    file = resources.files("lakedex.codec").joinpath(f"schemas/metadata_record_{release}.json")
    return file.read_text("utf-8").strip()


def __getattr__(name: str) -> str:
    if name == "METADATA_SCHEMA_JSON":
        return metadata_schema_json()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def schema(name: str) -> dict[str, Any]:
    """Schema of one of Hudi's records, by its bare name. Callers must not change it.

    Raises:
        InvalidInputError: lakedex has no schema of that name.
    """
    try:
        return _packaged()[name]
    except KeyError:
        raise InvalidInputError(f"no Avro schema named {name!r}; known: {', '.join(sorted(_packaged()))}") from None


@cache
def parsed(name: str) -> ParsedSchema:
    """Schema of one of Hudi's records, ready for reading and writing datums (logical types removed)."""
    return parse(schema(name))


def parse(avro_schema: Any) -> ParsedSchema:
    """Prepare the schema of a record for reading and writing datums (logical types removed).

    Raises:
        InvalidInputError: ``avro_schema`` is not the schema of a record.
    """
    try:
        check_shape(avro_schema)
        result = parse_schema(_physical(avro_schema))
    except (SchemaParseException, *DATUM_FAILURES) as error:
        raise InvalidInputError(f"not an Avro schema: {error}") from error
    if not isinstance(result, dict) or result.get("type") != "record":
        raise InvalidInputError("not the Avro schema of a record")
    return result


def parse_json(text: str, path: str = "", offset: int = 0) -> ParsedSchema:
    """Prepare the schema that a file carries as JSON text; equal texts are prepared once.

    Raises:
        CorruptFileError: The text is not the schema of a record.
    """
    try:
        return _parse_text(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(path, offset, "the Avro schema of a record", f"{text[:60]!r} ({error})") from error


@lru_cache(maxsize=256)
def _parse_text(text: str) -> ParsedSchema:
    return parse(json.loads(text))


def _physical(node: Any) -> Any:
    """Copy of a schema without its logical types."""
    if isinstance(node, list):
        return [_physical(branch) for branch in node]
    if not isinstance(node, dict):
        return node
    plain = {key: value for key, value in node.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = _physical(plain[key])
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [{**field, "type": _physical(field["type"])} for field in plain["fields"]]
    return plain


def encode_datum(parsed_schema: ParsedSchema, record: Mapping[str, Any]) -> bytes:
    """Avro binary form of one record.

    A member of a union of several records is written as ``("org.apache.hudi.avro.model.IntWrapper", {"value": 1})``.

    Raises:
        InvalidInputError: The record does not match the schema.
    """
    out = io.BytesIO()
    try:
        schemaless_writer(out, parsed_schema, record)
    except DATUM_FAILURES as error:
        raise InvalidInputError(f"record does not match {parsed_schema.get('name')}: {error}") from error
    return out.getvalue()


def decode_datum(
    parsed_schema: ParsedSchema, data: bytes | memoryview, path: str = "", offset: int = 0
) -> dict[str, Any]:
    """One record from its Avro binary form, which must fill ``data`` exactly.

    Members of a union of several records are returned as ``(full name, record)``.

    Raises:
        CorruptFileError: The bytes do not match the schema. ``offset`` is where ``data`` starts in the file.
    """
    stream = io.BytesIO(data)
    record = _read_one(parsed_schema, stream, path, offset)
    if stream.tell() != len(data):
        found = f"{len(data) - stream.tell()} more bytes"
        raise CorruptFileError(path, offset + stream.tell(), "the end of an Avro record", found)
    return record


def _read_one(parsed_schema: ParsedSchema, stream: io.BytesIO, path: str, offset: int) -> dict[str, Any]:
    try:
        record = schemaless_reader(
            stream,
            parsed_schema,
            None,
            return_record_name=True,
            return_record_name_override=True,
        )
    except DATUM_FAILURES as error:
        expected = f"an Avro record {parsed_schema.get('name')}"
        raise CorruptFileError(path, offset + stream.tell(), expected, f"{type(error).__name__}: {error}") from error
    if not isinstance(record, dict):
        raise CorruptFileError(path, offset, "an Avro record", type(record).__name__)
    return record


def _read_fields(
    readers: list[tuple[str, ParsedSchema, Skip | None]],
    parsed_schema: ParsedSchema,
    stream: io.BytesIO,
    path: str,
    offset: int,
) -> dict[str, Any]:
    """Some fields of the next record."""
    record: dict[str, Any] = {}
    data = stream.getvalue()
    for name, own, skip in readers:
        if skip is None:
            record |= _read_one(own, stream, path, offset)
            continue
        try:
            stream.seek(skip(data, stream.tell()))
        except (ValueError, IndexError) as error:
            expected = f"{name!r} of an Avro record {parsed_schema.get('name')}"
            raise CorruptFileError(path, offset + stream.tell(), expected, str(error)) from error
    return record


@lru_cache(maxsize=64)
def _field_readers(text: str, fields: frozenset[str]) -> list[tuple[str, ParsedSchema, Skip | None]] | None:
    """Name, schema and skip function (None: read it) of each field; None if the schema cannot be cut by field."""
    prepared, original = _parse_text(text), json.loads(text)
    known = named_types(prepared)
    try:
        return [
            (field["name"], prepared, skip_of(ready["type"], known))
            if field["name"] not in fields
            else (field["name"], parse({**original, "fields": [field]}), None)
            for field, ready in zip(original["fields"], prepared["fields"], strict=True)
        ]
    except (InvalidInputError, *DATUM_FAILURES):
        return None  # Recursive types, types defined by an earlier field, or a damaged schema.


def named_types(node: Any) -> dict[str, Any]:
    """Named types within a parsed schema by their full names."""
    found: dict[str, Any] = {}
    todo = [node]
    while todo:
        here = todo.pop()
        if isinstance(here, list):
            todo += here
        elif isinstance(here, dict):
            if here.get("type") in ("record", "enum", "fixed"):
                found[str(here["name"])] = here
            todo += [here[key] for key in ("type", "items", "values") if isinstance(here.get(key), dict | list)]
            todo += [field["type"] for field in here.get("fields", ())]
    return found


def write_container(schema_name: str, record: Mapping[str, Any], *, sync: bytes | None = None) -> bytes:
    """Object container file with one record of one of Hudi's schemas.

    Args:
        schema_name: Bare name of the record, e.g. ``HoodieCommitMetadata``.
        record: The record.
        sync: The 16 byte sync marker. Derived from the content if None, so equal records give equal bytes.
    """
    datum = encode_datum(parsed(schema_name), record)
    marker = md5(datum, usedforsecurity=False).digest() if sync is None else sync
    if len(marker) != SYNC_SIZE:
        raise InvalidInputError(f"an Avro sync marker has {SYNC_SIZE} bytes, not {len(marker)}")
    # Java's container reader takes an absent avro.codec for null, and its writer leaves it out as well.
    text = json.dumps(schema(schema_name), separators=(",", ":"), ensure_ascii=False).encode()
    header = b"".join((_long(1), _long(len(b"avro.schema")), b"avro.schema", _long(len(text)), text, _long(0)))
    return b"".join((MAGIC, header, marker, _long(1), _long(len(datum)), datum, marker))


def read_container(
    data: bytes | memoryview, path: str = "", fields: frozenset[str] | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Writer's schema and all records of an object container file.

    Fields are those of the writer's schema; fields that an older release did not have are absent.

    Args:
        data: The file.
        path: Named in errors.
        fields: Names of the fields to return, others are skipped; None returns all.

    Raises:
        CorruptFileError: The bytes are damaged, or compressed.
    """
    reader = _Cursor(bytes(data), path)
    reader.expect(MAGIC, "the magic of an Avro container")
    meta = reader.meta_map()
    codec = meta.get("avro.codec", b"null")
    if codec != b"null":
        raise CorruptFileError(path, len(MAGIC), "Avro codec null", repr(codec[:20]))
    text = meta.get("avro.schema")
    if text is None:
        raise CorruptFileError(path, len(MAGIC), "avro.schema in the header", "none")
    try:
        writer_schema = parse_json(text.decode(), path, len(MAGIC))
        original = json.loads(text)
    except UnicodeDecodeError as error:
        raise CorruptFileError(path, len(MAGIC), "a schema in UTF-8", str(error)) from error
    readers = None if fields is None else _field_readers(text.decode(), fields)
    sync = reader.take(SYNC_SIZE, "a sync marker")
    records: list[dict[str, Any]] = []
    while reader.pos < len(reader.data):
        records.extend(_read_block(reader, writer_schema, path, readers))
        reader.expect(sync, "the sync marker")
    return original, records


def _read_block(
    reader: _Cursor,
    writer_schema: ParsedSchema,
    path: str,
    readers: list[tuple[str, ParsedSchema, Skip | None]] | None,
) -> list[dict[str, Any]]:
    start = reader.pos
    count = reader.long()
    size = reader.long()
    # Every record of Hudi takes bytes, so a count beyond the size is damage, not a reason to loop.
    if count < 0 or count > size:
        raise CorruptFileError(path, start, f"a record count within {size} bytes", str(count))
    begin = reader.pos
    stream = io.BytesIO(reader.take(size, "a block of records"))
    read = _read_one if readers is None else partial(_read_fields, readers)
    records = [read(writer_schema, stream, path, begin) for _ in range(count)]
    if stream.tell() != size:
        found = f"{size - stream.tell()} more bytes"
        raise CorruptFileError(path, begin + stream.tell(), "the end of the block", found)
    return records


def _long(value: int) -> bytes:
    rest = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Cursor:
    """Reads a container's header and block frames."""

    __slots__ = ("data", "path", "pos")

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        self.pos = 0

    def take(self, size: int, what: str) -> bytes:
        """The next ``size`` bytes."""
        left = len(self.data) - self.pos
        if size < 0 or size > left:
            raise CorruptFileError(self.path, self.pos, f"{what} of {size} bytes", f"{left} bytes")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def expect(self, wanted: bytes, what: str) -> None:
        """Skip bytes that must equal ``wanted``."""
        start = self.pos
        found = self.take(len(wanted), what)
        if found != wanted:
            raise CorruptFileError(self.path, start, f"{what} {wanted.hex()}", found.hex())

    def long(self) -> int:
        """A zigzag varint."""
        start = self.pos
        value = shift = 0
        while True:
            if self.pos >= len(self.data) or shift > 63:
                raise CorruptFileError(self.path, start, "an Avro long", "its end missing")
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def meta_map(self) -> dict[str, bytes]:
        """The header's map of bytes."""
        entries: dict[str, bytes] = {}
        while count := self.long():
            if count < 0:  # Avro: a negative count is followed by the block's size.
                count = -count
                self.long()
            for _ in range(count):
                key = self.take(self.long(), "a header key").decode("utf-8", "replace")
                entries[key] = self.take(self.long(), "a header value")
        return entries
