"""Rows as Spark hands them over, in the types that a table has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakedex.arrow_frames import conform

LOOSE = pa.struct(
    [
        ("a", pa.int64()),
        ("l", pa.list_(pa.field("item", pa.struct([("x", pa.int32())])))),
        ("m", pa.map_(pa.string(), pa.struct([("y", pa.date32())]))),
    ]
)
STRICT = pa.struct(
    [
        pa.field("a", pa.int64(), nullable=False),
        ("l", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32(), nullable=False)])))),
        ("m", pa.map_(pa.string(), pa.struct([pa.field("y", pa.date32(), nullable=False)]))),
    ]
)


def test_null_structs_with_required_fields() -> None:
    """A struct that is null may have nulls below, whatever its fields are; Arrow's own cast refuses it."""
    values: list[Any] = [
        {"a": 9, "l": None, "m": None},
        None,
        {"a": 1, "l": [{"x": 2}, None], "m": [("k", {"y": None}), ("z", None)]},
        {"a": 3, "l": [], "m": []},
    ]
    whole = pa.array(values, LOOSE)
    for array in (whole, whole[1:], whole[1:3], whole[:0]):
        batch = pa.RecordBatch.from_arrays([array], names=["s"])
        table = pa.table([pa.chunked_array([array, array[1:]], LOOSE)], names=["s"])
        for given in (batch, table):
            found = conform(given, pa.schema([("s", STRICT)]))
            assert found.schema.field("s").type == STRICT
            assert found.column(0).to_pylist() == given.column(0).to_pylist()
    empty = conform(pa.table([pa.chunked_array([], LOOSE)], names=["s"]), pa.schema([("s", STRICT)]))
    assert empty.num_rows == 0
