"""``BitmapIndexMetadata``: the record type that RFC-92 adds to Hudi's metadata record.

Hudi has no such field in any release, so this schema is its metadata record of 1.1.1 with one more field at the end,
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from fastavro import schemaless_writer

from lakedex.codec.avro import decode_datum, metadata_schema_json, parse, parse_json
from lakedex.codec.metadata_record import decode_many
from lakedex.codec.varint import encode_varint
from lakedex.errors import CorruptFileError

__all__ = [
    "BITMAP_RECORD_TYPE",
    "BitmapEntry",
    "BitmapRecord",
    "bitmap_cells",
    "bitmap_schema_json",
    "decode_bitmap_records",
    "encode_bitmap_records",
]

BITMAP_RECORD_TYPE = 92
"""The record's ``type``. Hudi 1.1.1 uses 1 to 7 and reserves none; the RFC's number is far from them."""

_FIELD = "BitmapIndexMetadata"
_KINDS: dict[str, type] = {"bitmap": str, "baseFile": str, "cardinality": int, "coverage": bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapRecord:
    """One payload; see the table above."""

    bitmap: str | None = None
    base_file: str | None = None
    cardinality: int | None = None
    coverage: bytes | None = None


BitmapEntry = tuple[bytes, bytes, int, str]
"""The key of a bitmap, its portable bytes, how many positions they are, and the base file that these are of."""


@cache
def bitmap_schema_json() -> str:
    """The schema as it stands in the file info of each run."""
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
    """HFile values of records, their ``key`` empty as in all metadata HFiles."""
    # By hand what fastavro would write, since a column of many values has a record a value and file: unions of null
    # and a type are one byte, 0 or 1 as a zigzag number, before the value.
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
    """Keys, and what :func:`encode_bitmap_records` gives for their bitmaps, without a record for each.

    One at a time: a value that goes into its block as soon as it is made has not left the processor's cache.
    """
    head, encoded = _head() + b"\x02", base64.b64encode
    # Standard base64: four letters for every three bytes, or a part of them.
    for key, data, cardinality, base_file in entries:
        size, name = _zigzag((len(data) + 2) // 3 * 4), _text(base_file)
        yield key, b"".join((head, size, encoded(data), name, b"\x02", _zigzag(cardinality), b"\0"))


@lru_cache(maxsize=4096)
def _text(text: str | None) -> bytes:
    """The name of a base file, which comes with each of its values."""
    return _sized(None if text is None else text.encode())


def _sized(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\x02" + _zigzag(len(data)) + data


@lru_cache(maxsize=1 << 16)
def _zigzag(number: int) -> bytes:
    return encode_varint(number << 1 if number >= 0 else ~(number << 1))


def decode_bitmap_records(
    values: Sequence[bytes | memoryview], writer_schema_json: str, path: str = ""
) -> list[BitmapRecord]:
    """Records from HFile values.

    Args:
        values: the values.
        writer_schema_json: the file's own schema.
        path: the file, for errors.

    Raises:
        CorruptFileError: damaged bytes, or records of another type.
    """
    head, payload = _head(), _payload_schema()
    if writer_schema_json != bitmap_schema_json() or not all(bytes(value[: len(head)]) == head for value in values):
        return [_record(whole.get(_FIELD), whole, path) for whole in decode_many(values, writer_schema_json, path=path)]
    return [_record(decode_datum(payload, value[len(head) :], path, len(head)), None, path) for value in values]


@cache
def _payload_schema() -> Any:
    schema = json.loads(bitmap_schema_json())
    return parse(schema["fields"][-1]["type"][1])


@cache
def _head() -> bytes:
    """What every bitmap record begins with, up to its payload: a record's other fields are always the same.

    Written and skipped as a whole, since a metadata record has some thirty fields and an index millions of records.
    """
    out = io.BytesIO()
    schemaless_writer(out, parse_json(bitmap_schema_json()), {"key": "", "type": BITMAP_RECORD_TYPE, _FIELD: None})
    # The last byte is the branch of the union: zigzag of 0 for null, of 1 for the payload.
    return out.getvalue()[:-1] + b"\x02"


def _record(payload: dict[str, Any] | None, whole: dict[str, Any] | None, path: str) -> BitmapRecord:
    if payload is None or (whole is not None and whole.get("type") != BITMAP_RECORD_TYPE):
        kind = None if whole is None else whole.get("type")
        raise CorruptFileError(path, 0, "a bitmap record", f"a metadata record of type {kind}")
    if any(name not in payload or not isinstance(payload[name], kind | None) for name, kind in _KINDS.items()):
        raise CorruptFileError(path, 0, f"a bitmap record of {', '.join(_KINDS)}", str(payload)[:80])
    return BitmapRecord(
        bitmap=payload["bitmap"],
        base_file=payload["baseFile"],
        cardinality=payload["cardinality"],
        coverage=payload["coverage"],
    )
