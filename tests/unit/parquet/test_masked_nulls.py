"""Structs that are null and have required fields, in a file."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.parquet.base_file_writer import fill_masked

KINDS = [
    pa.int32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.decimal128(10, 2),
    pa.list_(pa.field("element", pa.int64())),
    pa.map_(pa.string(), pa.int64()),
]
ALL = pa.struct([pa.field(f"c{place}", kind, nullable=False) for place, kind in enumerate(KINDS)])
DEEP = pa.struct([pa.field("in", ALL, nullable=False)])
LISTED = pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32(), nullable=False)])))
MAPPED = pa.map_(pa.string(), pa.struct([pa.field("x", pa.int32(), nullable=False)]))


def full() -> dict[str, Any]:
    zeros: list[Any] = [1, 1.5, True, "s", b"b", 3, 4, 5, [1], [("k", 1)]]
    return {f"c{place}": value for place, value in enumerate(zeros)}


@pytest.mark.parametrize(
    "values, kind",
    [
        ([None, None], DEEP),
        ([None, {"in": full()}, None], DEEP),
        ([None, [None, {"x": 1}], []], LISTED),
        ([None, [("a", None), ("b", {"x": 1})], []], MAPPED),
    ],
    ids=["nothing but nulls", "nulls", "in lists", "in maps"],
)
def test_they_are_written_and_read_as_null(values: list[Any], kind: pa.DataType) -> None:
    whole = pa.array(values, kind)
    for array in (whole, whole[1:]):
        sink = io.BytesIO()
        pq.write_table(pa.table([fill_masked(array)], schema=pa.schema([("s", kind)])), sink)
        assert pq.read_table(sink).column(0).to_pylist() == array.to_pylist()


def test_nulls_that_show_are_refused() -> None:
    array = pa.array([{"in": {**full(), "c0": None}}, None], DEEP)
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(pa.table([fill_masked(array)], schema=pa.schema([("s", DEEP)])), io.BytesIO())
