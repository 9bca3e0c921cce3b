"""Contents of log blocks: what Java wrote is written again, and any rows come back."""

from __future__ import annotations

import base64
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from golden_tables import MERGE_ON_READ, unpack
from lakedex.cli.output import plain_rows
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.avro_vectorized import decode_datums, split_avro_block
from lakedex.codec.log_block import LogBlock, decode_delete_block, decode_log_blocks, encode_delete_block
from lakedex.codec.log_records import AvroBlock, decode_positions, delete_block_content, encode_positions
from lakedex.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lakedex.testing import frames, schemas


@given(st.data())
def test_any_rows_come_back(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    table = data.draw(frames(schema)).combine_chunks()
    for batch in table.to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)]:
        half = batch.slice(batch.num_rows // 2)
        block = AvroBlock()
        block.add(batch)
        block.add(half)
        content = block.content()
        assert (block.rows, block.size) == (batch.num_rows + half.num_rows, len(content))
        text = json.dumps(arrow_to_avro(schema, "t"))
        found = decode_datums(split_avro_block(content), text, schema.names)
        # As the command prints them: Python has no date for some of the days.
        assert plain_rows(found) == plain_rows(pa.Table.from_batches([batch, half]))


MODEL = "org.apache.hudi.avro.model."


@pytest.mark.parametrize(
    "values, wrapper, stored",
    [
        (pa.array([7, 0, None], pa.int64()), "LongWrapper", [7, 0, None]),
        (pa.array([-3, 0, None], pa.int32()), "IntWrapper", [-3, 0, None]),
        (pa.array(["é", "", None]), "StringWrapper", ["é", "", None]),
        (pa.array([1.5, -0.0, None]), "DoubleWrapper", [1.5, -0.0, None]),
        (pa.array([True, False, None]), "BooleanWrapper", [True, False, None]),
        (pa.array([date(1970, 1, 3), date(1969, 12, 31), None]), "DateWrapper", [2, -1, None]),
        (pa.array([5, -5, None], pa.timestamp("us", "UTC")), "TimestampMicrosWrapper", [5, -5, None]),
        (pa.array([5, -5, None], pa.timestamp("ms", "UTC")), "TimestampMicrosWrapper", [5000, -5000, None]),
        (
            pa.array([Decimal("1.5"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
            "DecimalWrapper",
            [b"\x05\x54\x3d\xf7\x29\xc0\x00", b"\xf6\xe7\xb1\x8d\x60\x00", None],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_deletes_are_those_of_the_row_encoder(values: pa.Array, wrapper: str, stored: list[Any]) -> None:
    keys = ["k1", "", "\N{SNOWMAN}"]
    none = (f"{MODEL}IntWrapper", {"value": 0})
    ordering = [none if value is None else (MODEL + wrapper, {"value": value}) for value in stored]
    found = delete_block_content(pa.array(keys), "p=1", [values])
    expected = [{"recordKey": k, "partitionPath": "p=1", "orderingVal": o} for k, o in zip(keys, ordering, strict=True)]
    assert found == encode_delete_block(expected)
    bare = [{**record, "orderingVal": none} for record in expected]
    assert delete_block_content(pa.array(keys), "p=1", []) == encode_delete_block(bare)


def test_deletes_by_several_ordering_fields() -> None:
    columns = [pa.array([1, None, None], pa.int64()), pa.array(["a", "b", None])]
    found = decode_delete_block(delete_block_content(pa.array(["1", "2", "3"]), "", columns))
    parts = [record["orderingVal"] for record in found]
    first, second = (f"{MODEL}LongWrapper", {"value": 1}), (f"{MODEL}StringWrapper", {"value": "a"})
    assert parts[0] == (f"{MODEL}ArrayWrapper", {"wrappedValues": [first, second]})
    assert parts[1][1] == {"wrappedValues": [None, (f"{MODEL}StringWrapper", {"value": "b"})]}
    assert parts[2] == (f"{MODEL}IntWrapper", {"value": 0})
    assert decode_delete_block(delete_block_content(pa.array([], pa.string()), "", columns[:0])) == []


@pytest.mark.parametrize("number", ["1234567890123456", "123456789012345678901234567890123", "1E-16"])
def test_a_decimal_that_its_wrapper_cannot_hold(number: str) -> None:
    value = Decimal(number)
    kind = pa.decimal128(38, 16 if value < 1 else 5)
    with pytest.raises(UnsupportedFeatureError, match="15 digits before or after the point"):
        delete_block_content(pa.array(["1"]), "", [pa.array([value], kind)])


def test_a_type_that_orders_nothing() -> None:
    with pytest.raises(InvalidInputError, match="list<item: int64> cannot order"):
        delete_block_content(pa.array(["1"]), "", [pa.array([[1]])])


@pytest.mark.parametrize("places", [[0], [3, 70_000], list(range(5000))], ids=["one", "two containers", "run"])
def test_positions_are_a_64_bit_bitmap(places: list[int]) -> None:
    found = base64.b64decode(encode_positions(np.array(places)))
    expected = BitMap64(places)
    expected.run_optimize()
    assert found == expected.serialize()
    assert list(decode_positions(encode_positions(np.array(places)))) == places


def test_positions_of_another_form() -> None:
    assert not decode_positions(base64.b64encode(bytes(8)).decode())
    for text in ("*", "", base64.b64encode(BitMap64([1 << 32]).serialize()).decode(), "AQAAAAAAAAABAAAA"):
        with pytest.raises(CorruptFileError, match="positions|bitmap"):
            decode_positions(text)


def java_blocks(path: Path) -> list[LogBlock]:
    """Blocks of all log files of a table."""
    files = sorted(file for file in path.rglob(".*.log.*") if ".hoodie" not in file.parts and file.suffix != ".crc")
    return [block for file in files for block in decode_log_blocks(file.read_bytes())]


@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_blocks_of_java_are_written_again(tmp_path: Path, name: str) -> None:
    blocks = java_blocks(unpack(name, tmp_path))
    assert blocks or name.endswith("_rollback")
    for block in blocks:
        if block.block_type == "DELETE":
            assert encode_delete_block(decode_delete_block(block.content)) == block.content
        if "RECORD_POSITIONS" in block.header:
            bitmap = BitMap64.deserialize(base64.b64decode(block.header["RECORD_POSITIONS"]))
            assert encode_positions(np.array(list(bitmap))) == block.header["RECORD_POSITIONS"]
            assert list(decode_positions(block.header["RECORD_POSITIONS"])) == list(bitmap)
        if block.block_type != "AVRO_DATA":
            continue
        text = block.header["SCHEMA"]
        rows = decode_datums(split_avro_block(block.content), text, [f["name"] for f in json.loads(text)["fields"]])
        again = AvroBlock()
        for batch in rows.to_batches():
            again.add(batch)
        assert again.content() == block.content
