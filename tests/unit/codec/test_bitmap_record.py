"""The metadata record with ``BitmapIndexMetadata``: R98, R99, R100."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.metadata_record import (
    BITMAP_RECORD_TYPE,
    BitmapRecord,
    bitmap_cells,
    bitmap_schema_json,
    decode_bitmap_records,
    encode_bitmap_records,
)
from lakedex.errors import CorruptFileError

SCHEMA = parse_schema(json.loads(bitmap_schema_json()))
RECORDS = [
    BitmapRecord(bitmap="OjAAAAAAAAA=", base_file="f_1-0-1_1.parquet", cardinality=0),
    BitmapRecord(coverage=b"\0\xff" * 100),
    BitmapRecord(),
    BitmapRecord(bitmap="x" * 100_000, base_file="é😀.parquet", cardinality=2**40),
]


def generic(value: bytes, reader: Any = None) -> dict[str, Any]:
    stream = io.BytesIO(value)
    found: Any = schemaless_reader(stream, SCHEMA, reader)
    assert stream.tell() == len(value)
    return dict(found)


def written(record: dict[str, Any], schema: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), record)
    return out.getvalue()


def test_the_schema_is_hudis_with_one_more_field() -> None:
    """R98, R99: nothing of Hudi's own record changes."""
    ours, hudis = json.loads(bitmap_schema_json()), json.loads(metadata_schema_json())
    assert ours["fields"][:-1] == hudis["fields"]
    assert {key: ours[key] for key in ours if key != "fields"} == {key: hudis[key] for key in hudis if key != "fields"}
    field = ours["fields"][-1]
    assert field["name"] == "BitmapIndexMetadata" and field["default"] is None
    assert [inner["name"] for inner in field["type"][1]["fields"]] == ["bitmap", "baseFile", "cardinality", "coverage"]
    assert field["type"][1]["fields"][0]["type"] == ["null", "string"], "R100: a string"


@pytest.mark.parametrize("record", RECORDS)
def test_any_avro_reader_sees_the_record(record: BitmapRecord) -> None:
    (value,) = encode_bitmap_records([record])
    found = generic(value)
    assert found["key"] == "" and found["type"] == BITMAP_RECORD_TYPE
    assert found["BitmapIndexMetadata"] == {
        "bitmap": record.bitmap,
        "baseFile": record.base_file,
        "cardinality": record.cardinality,
        "coverage": record.coverage,
    }
    assert all(found[name] is None for name in found if name not in ("key", "type", "BitmapIndexMetadata"))


def test_the_type_is_none_of_hudis() -> None:
    """R92.e: 1 to 7 are taken in Hudi 1.1.1."""
    assert BITMAP_RECORD_TYPE > 7


def test_a_reader_of_hudis_schema_finds_no_payload() -> None:
    (value,) = encode_bitmap_records(RECORDS[:1])
    found = generic(value, parse_schema(json.loads(metadata_schema_json())))
    assert "BitmapIndexMetadata" not in found and found["type"] == BITMAP_RECORD_TYPE


texts = st.none() | st.text(max_size=50)


@given(st.lists(st.builds(BitmapRecord, bitmap=texts, base_file=texts, cardinality=st.none() | st.integers(0, 2**62),
                          coverage=st.none() | st.binary(max_size=50))))  # fmt: skip
def test_records_come_back(records: list[BitmapRecord]) -> None:
    values = encode_bitmap_records(records)
    assert decode_bitmap_records(values, bitmap_schema_json()) == records
    assert decode_bitmap_records([memoryview(value) for value in values], bitmap_schema_json()) == records


@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(0, 2**62))), st.text(max_size=50))
def test_bitmaps_of_one_file_are_such_records(bitmaps: list[tuple[bytes, int]], base_file: str) -> None:
    """R100: base64, the file's name and the cardinality."""
    records = [
        BitmapRecord(bitmap=base64.b64encode(data).decode(), base_file=base_file, cardinality=cardinality)
        for data, cardinality in bitmaps
    ]
    cells = list(bitmap_cells((b"%d" % n, *bitmap, base_file) for n, bitmap in enumerate(bitmaps)))
    assert [key for key, _ in cells] == [b"%d" % n for n in range(len(bitmaps))]
    assert [value for _, value in cells] == encode_bitmap_records(records)


def test_records_of_another_writer_are_read_by_name() -> None:
    """More fields before and after, the payload's in another order: a later schema."""
    schema = json.loads(bitmap_schema_json())
    payload = schema["fields"][-1]["type"][1]
    payload["fields"] = [*reversed(payload["fields"]), {"name": "more", "type": ["null", "long"], "default": None}]
    schema["fields"].append({"name": "Newer", "type": ["null", "string"], "default": None})
    wanted = {"bitmap": "b", "baseFile": "f", "cardinality": 3, "coverage": None, "more": 7}
    value = written({"key": "k", "type": BITMAP_RECORD_TYPE, "BitmapIndexMetadata": wanted, "Newer": "x"}, schema)
    found = decode_bitmap_records([value], json.dumps(schema))
    assert found == [BitmapRecord(bitmap="b", base_file="f", cardinality=3)]


def test_a_head_that_differs_is_read_all_the_same() -> None:
    """A key inside the record, which Hudi leaves empty."""
    wanted = {"bitmap": "b", "baseFile": None, "cardinality": 1, "coverage": None}
    value = written(
        {"key": "inside", "type": BITMAP_RECORD_TYPE, "BitmapIndexMetadata": wanted}, json.loads(bitmap_schema_json())
    )
    assert decode_bitmap_records([value], bitmap_schema_json()) == [BitmapRecord(bitmap="b", cardinality=1)]


@pytest.mark.parametrize("kind, payload", [(2, None), (BITMAP_RECORD_TYPE, None), (5, {"bitmap": "b"})])
def test_other_records_are_refused(kind: int, payload: dict[str, Any] | None) -> None:
    value = written({"key": "", "type": kind, "BitmapIndexMetadata": payload}, json.loads(bitmap_schema_json()))
    with pytest.raises(CorruptFileError, match="bitmap record"):
        decode_bitmap_records([value], bitmap_schema_json(), "a.hfile")


def test_every_truncation_and_bytes_left_over_are_errors() -> None:
    for value in encode_bitmap_records(RECORDS[:2]):
        for end in range(len(value)):
            with pytest.raises(CorruptFileError):
                decode_bitmap_records([value[:end]], bitmap_schema_json())
        with pytest.raises(CorruptFileError, match="1 more bytes"):
            decode_bitmap_records([value + b"\0"], bitmap_schema_json())


def test_flipped_bits_raise_or_give_another_record() -> None:
    (value,) = encode_bitmap_records(RECORDS[:1])
    for place in range(len(value)):
        for bit in range(8):
            damaged = bytearray(value)
            damaged[place] ^= 1 << bit
            try:
                (found,) = decode_bitmap_records([bytes(damaged)], bitmap_schema_json())
            except CorruptFileError:
                continue
            assert isinstance(found, BitmapRecord)


@pytest.mark.parametrize(
    "change", [("cardinality", "cardinalitx"), ('["null","bytes"]', '["null","string"]'), ("baseFile", "baseFilf")]
)
def test_a_schema_whose_fields_are_others_is_damage(change: tuple[str, str]) -> None:
    """A damaged record is an error that names the file."""
    schema = bitmap_schema_json()
    at = schema.rindex("HoodieBitmapIndexInfo")
    other = schema[:at] + schema[at:].replace(*change)
    assert other != schema
    (value,) = encode_bitmap_records([BitmapRecord(coverage=b"x")])
    with pytest.raises(CorruptFileError, match="a bitmap record of") as caught:
        decode_bitmap_records([value], other, "p")
    assert caught.value.path == "p"
