"""A few fields of a container's records, the others stepped over."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.codec.avro import encode_datum, parse, read_container, skip_of
from lakedex.errors import CorruptFileError
from lakedex.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
    decode_commit_notes,
    encode_commit_metadata,
)

TEXTS = st.text(max_size=200)
SHAPE = {
    "type": "record",
    "name": "Whole",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "t", "type": ["null", "string"]},
        {"name": "u", "type": ["int", {"type": "record", "name": "Part", "fields": [{"name": "d", "type": "double"}]}]},
        {"name": "m", "type": {"type": "map", "values": ["null", "Part", "bytes"]}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["a", "b"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "l", "type": {"type": "array", "items": {"type": "array", "items": "boolean"}}},
        {"name": "g", "type": "float"},
    ],
}
WHOLE = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "t": st.none() | TEXTS,
        "u": st.integers(-(2**31), 2**31 - 1) | st.fixed_dictionaries({"d": st.floats()}),
        "m": st.dictionaries(TEXTS, st.none() | st.fixed_dictionaries({"d": st.floats()}) | st.binary(max_size=100)),
        "e": st.sampled_from(["a", "b"]),
        "f": st.binary(min_size=3, max_size=3),
        "l": st.lists(st.lists(st.booleans())),
        "g": st.floats(width=32),
    }
)


@given(WHOLE, st.binary(max_size=5))
def test_a_value_is_stepped_over_to_its_end(record: dict[str, object], rest: bytes) -> None:
    schema = parse(SHAPE)
    data = encode_datum(schema, record)
    known = {"Part": {"type": "record", "name": "Part", "fields": [{"name": "d", "type": "double"}]}}
    assert skip_of(SHAPE, known)(data + rest, 0) == len(data)
    if data:
        with pytest.raises((ValueError, IndexError)):
            skip_of(SHAPE, known)(data[:-1], 0)


PARTITIONS = st.sampled_from(["", "p", "city=Zürich/day=1", "a b/c:d", "🌊"])
NAMES = st.sampled_from(["f-0_1-2-3_20250101000000000.parquet", ".f-0_20250101000000000.log.1_0-1-0"])
STATS = st.builds(
    WriteStat,
    file_id=TEXTS,
    path=st.builds("{}/{}".format, PARTITIONS, NAMES),
    partition_path=PARTITIONS,
    file_size=st.integers(0, 2**40),
    num_writes=st.integers(0, 2**40),
    base_file=st.none() | NAMES,
    log_files=st.none() | st.lists(NAMES, max_size=3).map(tuple),
)


@given(
    st.dictionaries(PARTITIONS, st.lists(STATS, max_size=3).map(tuple), max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_notes_are_those_of_the_whole_commit(
    stats: dict[str, tuple[WriteStat, ...]], extra: dict[str, str], replaces: bool, layout: int
) -> None:
    replaced = {"p": ("a", "b")} if replaces else None
    commit = CommitMetadata(operation="UPSERT", write_stats=stats, extra=extra, replaced=replaced)
    data = encode_commit_metadata(commit, layout)
    assert decode_commit_notes(data) == decode_commit_metadata(data).notes


@given(st.data())
def test_damage_is_named(data: st.DataObject) -> None:
    """Whatever byte changes, the notes are read or it is a CorruptFileError."""
    commit = CommitMetadata(
        operation="UPSERT",
        write_stats={"p": (WriteStat(file_id="f", path="p/f", partition_path="p", file_size=3),)},
        extra={"schema": "{}"},
    )
    bytes_ = bytearray(encode_commit_metadata(commit, 2))
    bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptFileError):
        decode_commit_notes(bytes(bytes_), "a.commit")


def test_only_some_fields_are_given() -> None:
    data = encode_commit_metadata(CommitMetadata(operation="UPSERT", extra={"a": "b"}), 2)
    _, (some,) = read_container(data, "", frozenset({"operationType"}))
    assert some == {"operationType": "UPSERT"}


def test_a_field_whose_type_stands_in_another_comes_with_the_whole_record() -> None:
    """The second use of a named type is its name alone."""
    part = {"type": "record", "name": "Part", "fields": [{"name": "d", "type": "double"}]}
    nested = {"type": "record", "name": "N", "fields": [{"name": "a", "type": part}, {"name": "b", "type": "Part"}]}
    datum = encode_datum(parse(nested), {"a": {"d": 1.0}, "b": {"d": 2.0}})
    text, sync = json.dumps(nested).encode(), bytes(16)
    head = b"".join((b"Obj\x01", b"\x02", b"\x16avro.schema", varint(len(text)), text, b"\x00", sync))
    _, (found,) = read_container(head + b"".join((b"\x02", varint(len(datum)), datum, sync)), "", frozenset({"b"}))
    assert found["b"] == {"d": 2.0}


def varint(number: int) -> bytes:
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))
