"""Avro columns against fastavro, on sound and on damaged bytes."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakedex.codec import avro_vectorized as avro_columns
from lakedex.codec.avro_vectorized import Datums, decode_datums
from lakedex.errors import CorruptFileError
from mor_kit import datums

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "namespace": "a.b",
    "fields": [
        {"name": "t", "type": ["null", "string"]},
        {"name": "l", "type": ["long", "null"]},
        {"name": "i", "type": "int"},
        {"name": "d", "type": ["null", "double"]},
        {"name": "f", "type": "float"},
        {"name": "b", "type": ["null", "boolean"]},
        {"name": "y", "type": ["null", "bytes"]},
        {"name": "e", "type": ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]},
        {"name": "x", "type": ["null", {"type": "fixed", "name": "F", "size": 3}]},
        {
            "name": "s",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "s",
                    "fields": [{"name": "x", "type": ["null", "F"]}, {"name": "n", "type": ["null", "int"]}],
                },
            ],
        },
    ],
}
TEXT = json.dumps(SCHEMA)
NAMES = [field["name"] for field in SCHEMA["fields"]]
THREE = st.binary(min_size=3, max_size=3)
INTS = st.integers(-(2**31), 2**31 - 1)
ROW = st.fixed_dictionaries(
    {
        "t": st.none() | st.text(max_size=5),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "i": INTS,
        "d": st.none() | st.floats(allow_nan=False),
        "f": st.floats(width=32, allow_nan=False),
        "b": st.none() | st.booleans(),
        "y": st.none() | st.binary(max_size=4),
        "e": st.none() | st.sampled_from(["A", "B"]),
        "x": st.none() | THREE,
        "s": st.none() | st.fixed_dictionaries({"x": st.none() | THREE, "n": st.none() | INTS}),
    }
)


class Rows:
    """Just enough of a table for the writer."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def to_pylist(self, **_: Any) -> list[dict[str, Any]]:
        return self.rows


def by_fastavro(found: Datums) -> pa.Table:
    # What is made of a text is cached: another text of the same schema.
    with mock.patch.object(avro_columns, "flat_type", return_value=None):
        return decode_datums(found, f"{TEXT} ", NAMES)


@given(st.lists(ROW, max_size=6), st.sets(st.sampled_from(NAMES)))
def test_both_ways_agree(rows: list[dict[str, Any]], names: set[str]) -> None:
    found = Datums.of(datums(Rows(rows), TEXT))  # type: ignore[arg-type]
    table = decode_datums(found, TEXT, NAMES)
    assert table.to_pylist() == rows
    assert by_fastavro(found).equals(table)
    if names:
        assert decode_datums(found, TEXT, names).equals(table.select([name for name in NAMES if name in names]))


@given(st.lists(ROW, min_size=1, max_size=3), st.data())
def test_damaged_bytes_are_refused_or_read_alike(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    parts = datums(Rows(rows), TEXT)  # type: ignore[arg-type]
    damaged = bytearray(parts[0])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    found = Datums.of([bytes(damaged), *parts[1:]])
    try:
        table = decode_datums(found, TEXT, NAMES)
    except CorruptFileError:
        return
    assert repr(by_fastavro(found).to_pylist()) == repr(table.to_pylist())
