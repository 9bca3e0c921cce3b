"""Records of the metadata table against the bytes of Hudi 1.1.1."""

import json
from pathlib import Path

import pytest

from lakedex.codec import avro
from lakedex.codec.metadata_record import decode_many, decode_metadata_record, encode_many, encode_metadata_record
from lakedex.errors import CorruptFileError, InvalidInputError

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = json.loads((GOLDEN / "vectors" / "metadata_records.json").read_text("utf-8"))["data"]
OLDER = json.loads((GOLDEN / "vectors" / "metadata_record_older_schemas.json").read_text("utf-8"))
PLAIN = json.dumps(DATA["schema_plain"])
FULL = avro.METADATA_SCHEMA_JSON
INT = f"{avro.NAMESPACE}.IntWrapper"


def test_schema_text_is_that_of_java():
    assert json.loads(FULL) == DATA["schema_with_meta_fields"]
    assert FULL.encode() in (GOLDEN / "log" / "v8_mdt_files.log").read_bytes()


CASES = [case for case in DATA["records"] if case["avro_plain_hex"]]  # a deleted record has no value


@pytest.mark.parametrize("case", CASES, ids=[f"{nth}-{case['name']}" for nth, case in enumerate(CASES)])
def test_records_of_java_round_trip(case):
    plain = bytes.fromhex(case["avro_plain_hex"])
    record = decode_metadata_record(plain, PLAIN)
    assert record["key"] == case["key"]
    assert avro.encode_datum(avro.parse(DATA["schema_plain"]), record) == plain
    if "avro_with_meta_fields_hex" in case:
        full = bytes.fromhex(case["avro_with_meta_fields_hex"])
        assert decode_metadata_record(full, FULL) == record
        assert encode_metadata_record(record, keep_key=True) == full
    if "avro_with_meta_fields_key_blanked_hex" in case:
        blank = bytes.fromhex(case["avro_with_meta_fields_key_blanked_hex"])
        assert decode_metadata_record(blank, FULL)["key"] == ""
        assert decode_metadata_record(blank, FULL, key=case["key"]) == record
        assert encode_metadata_record(record) == blank


def test_many_at_once():
    cases = [case for case in DATA["records"] if "avro_with_meta_fields_key_blanked_hex" in case]
    values = [bytes.fromhex(case["avro_with_meta_fields_key_blanked_hex"]) for case in cases]
    records = decode_many(values, FULL, keys=[case["key"] for case in cases])
    assert [record["key"] for record in records] == [case["key"] for case in cases]
    assert encode_many(records) == values


@pytest.mark.parametrize("release", sorted(OLDER))
def test_older_releases_are_filled_in(release):
    text = json.dumps(OLDER[release])
    stats = {"fileName": "f", "minValue": (INT, {"value": 1}), "isDeleted": False}
    old = avro.encode_datum(avro.parse(OLDER[release]), {"key": "k", "type": 3, "ColumnStatsMetadata": stats})
    record = decode_metadata_record(old, text)
    assert record["ColumnStatsMetadata"]["minValue"] == (INT, {"value": 1})
    assert record["ColumnStatsMetadata"]["isTightBound"] is False
    assert record["ColumnStatsMetadata"]["valueType"] is None
    assert record["SecondaryIndexMetadata"] is None
    assert record["_hoodie_file_name"] is None
    assert decode_metadata_record(encode_metadata_record(record), FULL, key="k") == record


def test_fields_of_a_later_release_are_kept():
    later = json.loads(FULL)
    later["fields"].append({"name": "later", "type": ["null", "string"], "default": None})
    data = avro.encode_datum(avro.parse(later), {"key": "", "type": 2, "later": "x"})
    record = decode_metadata_record(data, json.dumps(later), key="k")
    assert record["later"] == "x"
    assert decode_metadata_record(encode_metadata_record(record), FULL)["type"] == 2


@pytest.mark.parametrize("schema", ["", "{", '"string"', '{"type":"record","name":"x","fields":[]}', "[]"])
def test_other_schemas_are_damage(schema):
    with pytest.raises(CorruptFileError):
        decode_metadata_record(b"\0", schema, path="f.hfile")


def test_damaged_values_are_named():
    value = encode_metadata_record(
        {"key": "k", "type": 2, "filesystemMetadata": {"a": {"size": 1, "isDeleted": False}}}
    )
    for damaged in (b"", value[:-1], value + b"\0", b"\xff" * 40):
        with pytest.raises(CorruptFileError) as caught:
            decode_metadata_record(damaged, FULL, path="f.hfile")
        assert caught.value.path == "f.hfile"


def test_records_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="not a metadata record"):
        encode_metadata_record({"key": "k", "type": "two"})


def _changed(field: str, change) -> str:
    schema = json.loads(avro.metadata_schema_json())
    change(next(entry for entry in schema["fields"] if entry["name"] == field))
    return json.dumps(schema)


def _rename_size(entry) -> None:
    entry["type"][1]["values"]["fields"][0]["name"] = "sise"


def _texts_for_sizes(entry) -> None:
    entry["type"][1]["values"]["fields"][0]["type"] = "string"


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("type", lambda entry: entry.update(type="string")),
        ("filesystemMetadata", _rename_size),
        ("filesystemMetadata", _texts_for_sizes),
        ("filesystemMetadata", lambda entry: entry.update(type="string")),
        ("ColumnStatsMetadata", lambda entry: entry.update(type=["null", "long"])),
        ("BloomFilterMetadata", lambda entry: entry["type"][1]["fields"][0].update(type="bytes")),
    ],
)
def test_a_schema_whose_fields_are_of_other_types_is_no_metadata_schema(field, change) -> None:
    """Readers would meet values that they cannot take."""
    with pytest.raises(CorruptFileError, match="the schema of a metadata record") as caught:
        decode_metadata_record(b"", _changed(field, change), path="f")
    assert caught.value.path == "f"


def test_a_schema_without_a_payload_has_none_of_it() -> None:
    schema = json.loads(avro.metadata_schema_json())
    schema["fields"] = [entry for entry in schema["fields"] if entry["name"] != "filesystemMetadata"]
    writer = avro.parse(schema)
    value = avro.encode_datum(writer, {"key": "", "type": 2})
    assert decode_metadata_record(value, json.dumps(schema))["filesystemMetadata"] is None


def test_a_later_kind_of_bound_is_kept() -> None:
    schema = json.loads(avro.metadata_schema_json())
    stats = next(entry for entry in schema["fields"] if entry["name"] == "ColumnStatsMetadata")["type"][1]
    low = next(entry for entry in stats["fields"] if entry["name"] == "minValue")
    low["type"].append({"type": "record", "name": "LaterWrapper", "fields": [{"name": "value", "type": "string"}]})
    bound = (f"{schema['namespace']}.LaterWrapper", {"value": "x"})
    value = {"key": "", "type": 3, "ColumnStatsMetadata": {"minValue": bound, "isDeleted": False}}
    writer = avro.parse(schema)
    record = decode_metadata_record(avro.encode_datum(writer, value), json.dumps(schema))
    assert record["ColumnStatsMetadata"]["minValue"][1] == {"value": "x"}
