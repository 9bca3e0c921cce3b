from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from compare import assert_same_rows
from samples import all_types

from lakedex.codec import avro_vectorized as avro_columns
from lakedex.codec.avro_vectorized import Datums, decimals, decode_datums, split_avro_block
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from limits import Limits
from mor_kit import OWN, avro_content, avro_schema, datums, rows, with_meta


def test_all_types(limits: Limits) -> None:
    own = all_types(local_timestamp=True)
    text = avro_schema(own.schema)
    found = datums(with_meta(own, "001"), text)
    for at_once in (3, 100):
        limits(avro_columns, ROWS_AT_ONCE=at_once)
        table = decode_datums(Datums.of(found), text, own.schema.names)
        assert_same_rows(table, own, "key")
        assert table.schema.names == own.schema.names
    flat = own.drop_columns(["list", "map"])
    text = avro_schema(flat.schema)
    found = datums(with_meta(flat, "001"), text)
    assert_same_rows(decode_datums(Datums.of(found), text, flat.schema.names), flat, "key")


def test_dates_and_numbers_that_python_cannot_hold() -> None:
    text = (
        '{"type":"record","name":"r","fields":[{"name":"d","type":{"type":"int","logicalType":"date"}},'
        '{"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}}]}'
    )
    table = decode_datums(
        Datums.of([b"\xfe\xff\xff\xff\x0f\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"]), text, ["d", "t"]
    )
    assert table["d"].cast(pa.int32()).to_pylist() == [2**31 - 1]
    assert table["t"].cast(pa.int64()).to_pylist() == [2**63 - 1]


def test_decimals_of_any_length() -> None:
    numbers = [0, 1, -1, 127, 128, -128, -129, 10**37, -(10**37), 255, None]
    stored = [None if n is None else n.to_bytes(max(1, (n.bit_length() + 8) // 8), "big", signed=True) for n in numbers]
    stored[1] = b"\0" * 15 + b"\1"
    stored[2] = b"\xff" * 16
    expected = [None if n is None else Decimal(n).scaleb(-3) for n in numbers]
    assert decimals(pa.array(stored, pa.binary()), pa.decimal128(38, 3)).to_pylist() == expected
    assert decimals(pa.array(stored, pa.binary())[7:], pa.decimal128(38, 3)).to_pylist() == expected[7:]
    assert decimals(pa.array([], pa.binary()), pa.decimal128(5, 0)).to_pylist() == []
    with pytest.raises(ValueError, match="17 bytes"):
        decimals(pa.array([b"\0" * 17]), pa.decimal128(5, 0))


def test_some_columns_and_none() -> None:
    text = avro_schema(OWN)
    found = datums(with_meta(rows(("a", 1, 2), ("b", 3, None)), "001"), text)
    assert decode_datums(Datums.of(found), text, ["value", "absent"]).to_pydict() == {"value": [2, None]}
    assert decode_datums(Datums.of([]), text, ["value"]).num_rows == 0
    assert decode_datums(Datums.of(found), text, []).num_columns == 0


def test_blocks_are_split_by_their_sizes() -> None:
    content = avro_content([b"abc", b"", b"d"])
    assert [bytes(datum) for datum in split_avro_block(content).parts()] == [b"abc", b"", b"d"]
    assert len(split_avro_block(avro_content([]))) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0\3",
        b"\0\0\0\x09\0\0\0\0",
        b"\0\0\0\3\x7f\0\0\0",
        b"\0\0\0\3\xff\xff\xff\xff",
        b"\0\0\0\3\0\0\0\1\0\0\0\2a",
        b"\0\0\0\3\0\0\0\1\xff\xff\xff\xff",
        avro_content([b"abc"]) + b"x",
    ],
)
def test_damaged_blocks(content: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"p: corrupt at byte \d"):
        split_avro_block(content, "p", 7)


def test_damaged_datums() -> None:
    text = avro_schema(OWN)
    (good,) = datums(with_meta(rows(("a", 1, 2)), "001"), text)
    for bad in ([good[:-1]], [good + b"\0"], [b"\x05" + good[1:]], [b""]):
        with pytest.raises(CorruptFileError, match="p: corrupt at byte 7"):
            decode_datums(Datums.of(bad), text, ["key"], "p", 7)
    for schema in ("{", '"string"', '{"type": "record"}', '{"type":"record","name":"r","fields":[{"name":"x"}]}'):
        with pytest.raises(CorruptFileError, match="p: corrupt at byte 7"):
            decode_datums(Datums.of([good]), schema, ["key"], "p", 7)
    union = '{"type":"record","name":"r","fields":[{"name":"x","type":["int","string"]}]}'
    with pytest.raises(UnsupportedFeatureError, match="union"):
        decode_datums(Datums.of([b"\0\2"]), union, ["x"])


def test_a_map_may_come_in_several_blocks() -> None:
    # Avro: a negative count is followed by the block's size in bytes.
    text = '{"type":"record","name":"r","fields":[{"name":"m","type":{"type":"map","values":"int"}}]}'
    datum = b"\x02\x02a\x02" + b"\x01\x06\x02b\x04" + b"\x00"
    (value,) = decode_datums(Datums.of([datum]), text, ["m"])["m"].to_pylist()
    assert value == [("a", 1), ("b", 2)]


def test_dates_are_dates() -> None:
    own = pa.table({"key": ["k"], "day": pa.array([dt.date(1899, 12, 31)])})
    text = avro_schema(own.schema)
    assert decode_datums(Datums.of(datums(with_meta(own, "1"), text)), text, ["day"])["day"].to_pylist() == [
        dt.date(1899, 12, 31)
    ]


@pytest.mark.parametrize(
    ("kind", "datum", "found"),
    [
        (
            '{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}',
            b"\x04\x27\x10",
            "does not fit in precision",
        ),
        ('{"type":"int","logicalType":"time-millis"}', b"\x80\xf0\xb2\x52", "not within the acceptable range"),
        ('{"type":"long","logicalType":"time-micros"}', b"\x01", "not within the acceptable range"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_values_past_their_type(kind: str, datum: bytes, found: str, nested: bool) -> None:
    """Found by fuzzing (``log.raw``): 100.00 in four digits failed later, where no error named the file."""
    kind, datum = (f'{{"type":"array","items":{kind}}}', b"\2" + datum + b"\0") if nested else (kind, datum)
    text = f'{{"type":"record","name":"r","fields":[{{"name":"v","type":{kind}}}]}}'
    with pytest.raises(CorruptFileError, match=found):
        decode_datums(Datums.of([datum]), text, ["v"], "/t/log")


@pytest.mark.parametrize(
    "fields",
    ['""', "[]", '[{"name":"s","type":{"type":"record","name":"e","fields":[]}}]', '[{"name":"n","type":"null"}]'],
)
def test_records_without_bytes(fields: str) -> None:
    """Found by fuzzing (``log.inside``): bytes of the record were taken for the number of further ones, 2**61 and more."""
    text = f'{{"type":"record","name":"r","fields":{fields}}}'
    with pytest.raises(CorruptFileError, match="datum"):
        decode_datums(Datums.of([b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"]), text, ["n"], "/t/log")
    assert decode_datums(Datums.of([b"", b""]), text, ["n"]).num_rows in (0, 2)
