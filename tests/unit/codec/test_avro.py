"""Containers and datums against files that Hudi wrote."""

import json
from pathlib import Path

import pytest

from avro_parts import container
from lakedex.codec import avro
from lakedex.errors import CorruptFileError, InvalidInputError

SAMPLES = Path(__file__).parents[2] / "golden" / "samples"
FILES = sorted(SAMPLES.glob("*.avro"))
SYNC = bytes(range(16))


def sync_of(data):
    """The marker is the file's last 16 bytes."""
    return data[-16:]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_containers_of_java_are_read(file):
    wanted = json.loads((SAMPLES / "decoded_avro.json").read_text("utf-8"))[file.name]
    schema, records = avro.read_container(file.read_bytes(), str(file))
    assert schema["name"] == wanted["schema_name"].rpartition(".")[2]
    assert records == wanted["records"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_containers_are_written_back(file):
    data = file.read_bytes()
    schema, records = avro.read_container(data)
    written = avro.write_container(schema["name"], records[0], sync=sync_of(data))
    assert avro.read_container(written)[1] == records
    if schema == avro.schema(schema["name"]):  # Java's file has no doc texts: equal bytes
        assert written == data


def test_equal_records_make_equal_bytes():
    record = {"extraMetadata": {"schema": "x"}, "operationType": "INSERT"}
    data = avro.write_container("HoodieCommitMetadata", record)
    assert data == avro.write_container("HoodieCommitMetadata", dict(record))
    assert data != avro.write_container("HoodieCommitMetadata", record, sync=SYNC)
    assert avro.read_container(memoryview(data))[1][0]["extraMetadata"] == {"schema": "x"}


def test_every_packaged_schema_parses():
    for name in [
        "HoodieCleanMetadata",
        "HoodieCleanerPlan",
        "HoodieCommitMetadata",
        "HoodieCompactionPlan",
        "HoodieDeleteRecordList",
        "HoodieIndexCommitMetadata",
        "HoodieIndexPlan",
        "HoodieMetadataRecord",
        "HoodieReplaceCommitMetadata",
        "HoodieRequestedReplaceMetadata",
        "HoodieRestoreMetadata",
        "HoodieRollbackMetadata",
        "HoodieRollbackPlan",
        "HoodieSavepointMetadata",
    ]:
        assert avro.schema(name)["name"] == name
        assert avro.parsed(name)["type"] == "record"


def test_metadata_schema_is_a_constant():
    assert avro.metadata_schema_json() == avro.METADATA_SCHEMA_JSON
    assert json.loads(avro.METADATA_SCHEMA_JSON)["name"] == "HoodieMetadataRecord"
    with pytest.raises(AttributeError):
        _ = avro.NOT_THERE


def test_values_are_physical():
    wrapper = f"{avro.NAMESPACE}.DecimalWrapper"
    record = {"deleteRecordList": [{"recordKey": "k", "orderingVal": (wrapper, {"value": b"\1"})}]}
    data = avro.encode_datum(avro.parsed("HoodieDeleteRecordList"), record)
    decoded = avro.decode_datum(avro.parsed("HoodieDeleteRecordList"), data)
    assert decoded["deleteRecordList"][0]["orderingVal"] == (wrapper, {"value": b"\1"})


def test_unknown_names_and_bad_records_are_refused():
    with pytest.raises(InvalidInputError, match="HoodieCommitMetadata"):
        avro.schema("Nothing")
    with pytest.raises(InvalidInputError, match="does not match"):
        avro.write_container("HoodieCommitMetadata", {"operationType": 5})
    with pytest.raises(InvalidInputError, match="16 bytes"):
        avro.write_container("HoodieCommitMetadata", {}, sync=b"short")
    with pytest.raises(InvalidInputError, match="not an Avro schema"):
        avro.parse({"type": "nothing"})


def container_of(schema='"record"', *, codec=None, block=b"\2\2\0"):
    text = f'{{"type":{schema},"name":"r","fields":[{{"name":"a","type":"int"}}]}}'.encode()
    return container({b"avro.schema": text} | ({b"avro.codec": codec} if codec else {}), block, SYNC)


def test_hand_made_container():
    assert avro.read_container(container_of())[1] == [{"a": 0}]
    assert avro.read_container(container_of(codec=b"null"))[1] == [{"a": 0}]
    assert avro.read_container(container_of(block=b"\4\4\2\3"))[1] == [{"a": 1}, {"a": -2}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Obj\2",
        b"Obj\1\0" + SYNC,
        container_of(codec=b"deflate"),
        container_of('"enum"'),
        container_of('"unknown"'),
        container_of()[:-1],
        container_of()[:-16] + bytes(16),
        container_of(block=b"\4\2\0"),
        container_of(block=b"\2\4\0\0"),
        container_of(block=b"\1\2\0"),
        container_of(block=b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\2\0"),
        container_of(block=b"\2\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0"),
        b"Obj\1\2\x16avro.schema\4\xff\xff\0" + SYNC,
        b"Obj\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1",
    ],
)
def test_damage_is_named(data):
    with pytest.raises(CorruptFileError) as caught:
        avro.read_container(data, "c.commit")
    assert caught.value.path == "c.commit"


def test_counts_of_values_without_bytes_are_not_trusted():
    with pytest.raises(InvalidInputError, match="without bytes"):
        avro.parse(
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "map", "values": "null"}}]}
        )


@pytest.mark.parametrize("schema", ["int", ["null", "int"], {"type": "array", "items": "int"}, None])
def test_only_records_are_prepared(schema):
    with pytest.raises(InvalidInputError):
        avro.parse(schema)


def test_bytes_after_a_datum_are_damage():
    data = avro.encode_datum(avro.parsed("HoodieRollbackPlan"), {})
    assert avro.decode_datum(avro.parsed("HoodieRollbackPlan"), data)["instantToRollback"] is None
    with pytest.raises(CorruptFileError) as caught:
        avro.decode_datum(avro.parsed("HoodieRollbackPlan"), data + b"x", "p", 100)
    assert caught.value.offset == 100 + len(data)
