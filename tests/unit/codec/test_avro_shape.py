"""Schemas that would cost more than the bytes that are read by them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lakedex.codec import avro
from lakedex.codec.avro_schema import avro_to_arrow, check_shape
from lakedex.codec.avro_vectorized import Datums, datum_schema, decode_datums
from lakedex.errors import CorruptFileError, LakedexError


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)]}


NULLS = record("B", "null")
EMPTY = (
    *("null", {"type": "null"}, {"type": "fixed", "name": "F", "size": 0}, {"type": "fixed", "name": "F", "size": -1}),
    *(NULLS, record("B"), record("C", NULLS, "B")),
)


@pytest.mark.parametrize("element", EMPTY, ids=str)
def test_lists_and_maps_of_values_without_bytes_are_refused(element: Any) -> None:
    for kind in ({"type": "array", "items": element}, {"type": "map", "values": element}):
        text = json.dumps(record("A", kind))
        with pytest.raises(CorruptFileError, match="without bytes"):
            avro.parse_json(text, "p")
        with pytest.raises(CorruptFileError) as caught:
            datum_schema(text, "p")
        assert caught.value.path == "p"


@pytest.mark.parametrize("link", ["A", ["null", "A"], {"type": "array", "items": "A"}, record("B", "A")], ids=str)
def test_records_that_hold_themselves_are_refused(link: Any) -> None:
    """fastavro reads them level by level in C, and a long chain ended the process."""
    with pytest.raises(CorruptFileError, match="contains itself"):
        avro.parse_json(json.dumps(record("A", link)), "p")
    with pytest.raises(LakedexError):
        datum_schema(json.dumps(record("A", link)), "p")


def doubled(levels: int, leaf: Any, times: int = 10) -> dict[str, Any]:
    made = record("R0", leaf)
    for level in range(1, levels):
        made = record(f"R{level}", made, *[f"R{level - 1}"] * (times - 1))
    return made


@pytest.mark.parametrize("leaf", ["null", "int"])
def test_few_words_do_not_mean_millions_of_values(leaf: str) -> None:
    text = json.dumps(doubled(8, leaf))
    assert len(text) < 5000
    with pytest.raises(CorruptFileError, match="nodes but describes|take no bytes"):
        avro.parse_json(text, "p")
    with pytest.raises(CorruptFileError):
        avro_to_arrow(json.loads(text), "p")
    with pytest.raises(CorruptFileError):
        decode_datums(Datums(b"", np.zeros(0, np.int64), np.zeros(0, np.int64)), text, ["f0"], "p")


@pytest.mark.parametrize("columns", [256, 2000, 40_000])
def test_a_schema_may_spell_out_any_number_of_columns(columns: int) -> None:
    """A null in a union takes a byte, and what is spelt out is no more than the text says."""
    kinds = [
        ["null", "int"],
        ["null", {"type": "array", "items": ["null", "string"]}],
        ["null", record("S", ["null", "int"])],
    ]
    found = avro.parse_json(json.dumps(record("A", *(kinds[i % 2] for i in range(columns)))), "p")
    assert found is not None
    assert check_shape(record("A", kinds[2], *([kinds[0]] * (columns - 1)))) == columns


@pytest.mark.parametrize("branch", [record("N", *["null"] * 257), record("N", record("M", *["null"] * 257))], ids=str)
def test_a_branch_of_many_values_without_bytes_is_refused(branch: Any) -> None:
    for kind in (["null", branch], {"type": "array", "items": ["null", branch]}):
        with pytest.raises(CorruptFileError, match="take no bytes"):
            avro.parse_json(json.dumps(record("A", kind)), "p")


def test_names_may_be_used_again_but_not_multiply() -> None:
    """Each column of the second kind stands for a hundred types in five words."""
    wide = record("W", *["int"] * 100)
    check_shape(record("A", wide, *["W"] * 600))
    with pytest.raises(ValueError, match="has 6102 nodes but describes 606102"):
        check_shape(record("A", wide, *["W"] * 6000))


def test_chains_of_names_are_as_deep_as_they_stand_for() -> None:
    """Each record is short, but the last one holds the chain of all before it."""
    known = record("R0", "int")
    fields = [known, *(record(f"R{level}", f"R{level - 1}") for level in range(1, 2000))]
    with pytest.raises(CorruptFileError, match="levels"):
        avro.parse_json(json.dumps(record("top", *fields)), "p")


@pytest.mark.parametrize(
    "name", ["HoodieCommitMetadata", "HoodieCleanMetadata", "HoodieRollbackPlan", "HoodieMetadataRecord"]
)
def test_schemas_of_hudi_are_not(name: str) -> None:
    check_shape(json.loads(avro.metadata_schema_json()) if name == "HoodieMetadataRecord" else avro.schema(name))


def test_a_type_may_be_used_by_name() -> None:
    point = record("P", "double", "double")
    schema = avro.parse_json(json.dumps(record("A", point, "P", {"type": "array", "items": "P"}, ["null", "P"])))
    value = {"f0": 1.0, "f1": 2.0}
    whole = {"f0": value, "f1": value, "f2": [value], "f3": value}
    assert avro.decode_datum(schema, avro.encode_datum(schema, whole))["f2"] == [value]


@pytest.mark.parametrize("number", ["1e999", "9" * 30, "-1", "null"])
def test_a_decimal_of_no_digits_is_damage(number: str) -> None:
    text = '{"type":"record","name":"A","fields":[{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":%s}}]}'
    for damaged in (text % number, text.replace('"precision":9', f'"precision":{number}') % 2):
        try:
            datum_schema(damaged, "p")
        except LakedexError:
            continue
        assert "-1" in damaged
