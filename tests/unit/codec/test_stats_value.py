"""Bounds of column statistics against the wrappers of Hudi 1.1.1."""

import json
from datetime import date
from decimal import Context, Decimal, localcontext
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex.codec import avro
from lakedex.codec.column_bounds import rewrap_stat, stats_supported, timestamp_unit, unwrap_stat, value_type, wrap_stat
from lakedex.codec.metadata_record import decode_metadata_record
from lakedex.errors import InvalidInputError

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = json.loads((GOLDEN / "vectors" / "metadata_records.json").read_text("utf-8"))["data"]
US = 1704067200123456


def stats(name):
    case = next(case for case in DATA["records"] if case["name"] == f"column_stats {name}")
    data = bytes.fromhex(case["avro_with_meta_fields_hex"])
    return decode_metadata_record(data, avro.METADATA_SCHEMA_JSON)["ColumnStatsMetadata"]


@pytest.mark.parametrize(
    "name, kind, low, high",
    [
        ("V1 boolean", pa.bool_(), False, True),
        ("V1 int", pa.int32(), -5, 7),
        ("V1 int", pa.int8(), -5, 7),
        ("V1 int", pa.int16(), -5, 7),
        ("V1 long", pa.int64(), -5000000000, 8589934592),
        ("V1 double", pa.float64(), -0.5, 3.25),
        ("V1 string", pa.string(), "a", "北京"),
        ("V1 string", pa.large_string(), "a", "北京"),
        ("V1 bytes", pa.binary(), b"\0\1", b"\xff"),
        ("V1 java.sql.Date", pa.date32(), 19723, 19724),
        ("V1 java.sql.Date", pa.date32(), date(2024, 1, 1), date(2024, 1, 2)),
        ("V1 BigDecimal", pa.decimal128(10, 2), Decimal("-1.25"), Decimal("123.45")),
        ("V2 timestamp-micros", pa.timestamp("us", "UTC"), US, 1704153600000000),  # V1 of a footer is a long, too
    ],
)
def test_wrapped_like_java(name, kind, low, high):
    wanted = stats(name)
    assert wrap_stat(low, kind) == wanted["minValue"]
    assert wrap_stat(high, kind) == wanted["maxValue"]


@pytest.mark.parametrize(
    "name, low, unit",
    [
        ("V1 java.sql.Timestamp", US, "us"),
        ("V1 LocalDate", 19723, None),
        ("V1 BigDecimal", Decimal("-1.25"), None),
        ("V2 boolean", False, None),
        ("V2 date", 19723, None),
        ("V2 decimal(10,2)", Decimal("-1.25"), None),
        ("V2 timestamp-micros", US, "us"),
        ("V2 timestamp-millis", US // 1000, "ms"),
        ("V2 local-timestamp-micros", US, "us"),
        ("V2 time-micros", 1000000, None),
    ],
)
def test_unwrapped(name, low, unit):
    record = stats(name)
    assert unwrap_stat(record["minValue"], record["valueType"]) == low
    assert timestamp_unit(record["minValue"], record["valueType"]) == unit


def test_no_bound_and_unknown_bounds():
    assert unwrap_stat(None) is None
    assert unwrap_stat(("x.ArrayWrapper", {"wrappedValues": []})) is None
    assert unwrap_stat(("x.BytesWrapper", {"value": b"\1"}), {"typeOrdinal": 10, "additionalInfo": "?"}) is None
    assert unwrap_stat(("x.DecimalWrapper", {"value": 1})) is None
    assert wrap_stat(None, pa.int32()) is None
    assert wrap_stat(float("nan"), pa.float64()) is None


@pytest.mark.parametrize("text", ["0", "-128E-15", "128E-15", "999999999999999.999999999999999", "-1E14", "-0.5"])
def test_decimals_are_exact_whatever_the_context(text):
    kind = pa.decimal128(30, 15)
    with localcontext() as context:
        context.prec = 3
        wrapped = wrap_stat(Decimal(text), kind)
        assert wrapped is not None
        value = unwrap_stat(wrapped)
    assert value == Decimal(text)
    with localcontext() as context:
        context.prec = 60
        unscaled = int(Decimal(text).scaleb(15))
    body = wrapped[1]["value"]
    assert int.from_bytes(body, "big", signed=True) == unscaled
    assert len(body) == 1 or int.from_bytes(body[1:], "big", signed=True) != unscaled


@pytest.mark.parametrize(
    "kind",
    [
        pa.bool_(),
        pa.int8(),
        pa.int64(),
        pa.float32(),
        pa.large_binary(),
        pa.date32(),
        pa.timestamp("ms"),
        pa.decimal128(15, 0),
        pa.decimal128(30, 15),
        pa.decimal128(10, 2),
    ],
    ids=str,
)
def test_supported(kind):
    assert stats_supported(kind)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.map_(pa.string(), pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.uint8(),
        pa.time64("us"),
        pa.null(),
        pa.date64(),
        pa.decimal128(16, 0),
        pa.decimal128(20, 16),
        pa.decimal128(38, 10),
        pa.decimal256(10, 2),
    ],
    ids=str,
)
def test_not_supported(kind):
    assert not stats_supported(kind)
    with pytest.raises(InvalidInputError, match="no column statistics"):
        wrap_stat(None, kind)


@pytest.mark.parametrize(
    "value, kind",
    [
        (1.5, pa.int32()),
        (128, pa.int8()),
        (1 << 63, pa.int64()),
        ("a", pa.int32()),
        (b"a", pa.string()),
        ("a", pa.binary()),
        (2, pa.bool_()),
        (Decimal("1E-16"), pa.decimal128(10, 2)),
        (Decimal("1E15"), pa.decimal128(10, 2)),
        (Decimal("Infinity"), pa.decimal128(10, 2)),
        ("x", pa.decimal128(10, 2)),
    ],
)
def test_values_of_other_types_are_refused(value, kind):
    with pytest.raises(InvalidInputError, match="is not a value of"):
        wrap_stat(value, kind)


V2 = [
    ("boolean", pa.bool_(), False, True),
    ("int", pa.int32(), -5, 7),
    ("int", pa.int16(), -5, 7),
    ("long", pa.int64(), -5000000000, 8589934592),
    ("double", pa.float64(), -0.5, 3.25),
    ("string", pa.string(), "a", "北京"),
    ("bytes", pa.binary(), b"\0\1", b"\xff"),
    ("date", pa.date32(), 19723, 19724),
    ("decimal(10,2)", pa.decimal128(10, 2), Decimal("-1.25"), Decimal("123.45")),
    ("timestamp-micros", pa.timestamp("us", "UTC"), US, 1704153600000000),
    ("timestamp-millis", pa.timestamp("ms", "UTC"), US // 1000, 1704153600000),
    ("local-timestamp-micros", pa.timestamp("us"), US, 1704153600000000),
    ("time-micros", pa.time64("us"), 1000000, 86399999999),
]


@pytest.mark.parametrize("name, kind, low, high", V2, ids=[f"{case[0]} {case[1]}" for case in V2])
def test_wrapped_like_java_in_v2(name, kind, low, high):
    """Index version V2, of table version 9: primitive wrappers, and what they mean beside them (R71)."""
    wanted = stats(f"V2 {name}")
    assert wrap_stat(low, kind, "V2") == wanted["minValue"]
    assert wrap_stat(high, kind, "V2") == wanted["maxValue"]
    assert value_type(kind, "V2") == wanted["valueType"]
    assert unwrap_stat(wrap_stat(low, kind, "V2"), wanted["valueType"]) == low
    assert value_type(kind, "V1") is None


@pytest.mark.parametrize(
    "digits", ["1", "-1", "99999999999999999999999999999999999999", "-12345678901234567890123456789"]
)
@pytest.mark.parametrize("scale", [0, 10, 38])
def test_every_decimal_has_its_bounds_in_v2(digits, scale):
    kind = pa.decimal128(38, scale)
    number = Decimal(digits).scaleb(-scale, Context(prec=40))
    assert stats_supported(kind, "V2")
    wrapped = wrap_stat(number, kind, "V2")
    assert unwrap_stat(wrapped, value_type(kind, "V2")) == number
    assert rewrap_stat(number, wrapped, value_type(kind, "V2")) == wrapped


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.uint8(), pa.null(), pa.time64("ns"), pa.timestamp("s")], ids=str
)
def test_not_supported_in_v2(kind):
    assert not stats_supported(kind, "V2")
    for refused in (lambda: wrap_stat(None, kind, "V2"), lambda: value_type(kind, "V2")):
        with pytest.raises(InvalidInputError, match="no column statistics"):
            refused()


def test_beyond_a_decimal_of_v2():
    with pytest.raises(InvalidInputError, match="is not a value of"):
        wrap_stat(Decimal("1000.00"), pa.decimal128(5, 2), "V2")
    assert rewrap_stat("text", ("x.IntWrapper", {"value": 1}), None) is None
    assert rewrap_stat(1, ("x.ArrayWrapper", {}), None) is None
