"""Properties files, containers, statistics and table schemas for arbitrary content."""

import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakedex.codec import avro
from lakedex.codec.avro_schema import arrow_to_avro, avro_to_arrow
from lakedex.codec.column_bounds import stats_supported, unwrap_stat, wrap_stat
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.codec.properties import decode_properties, encode_properties
from lakedex.errors import CorruptFileError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=6), st.text(max_size=12))
def test_properties_round_trip(entries, comment):
    assert decode_properties(encode_properties(entries, comment)) == entries
    assert list(decode_properties(encode_properties(entries))) == list(entries)


@given(st.binary(max_size=40))
def test_any_bytes_are_properties_or_damage(data):
    try:
        entries = decode_properties(data)
    except CorruptFileError:
        return
    assert decode_properties(encode_properties(entries)) == entries


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.lists(LONGS, max_size=3), max_size=3))
def test_containers_round_trip(partitions):
    stats = {path: [{"fileId": "f", "numWrites": count} for count in counts] for path, counts in partitions.items()}
    data = avro.write_container("HoodieCommitMetadata", {"partitionToWriteStats": stats})
    _, (record,) = avro.read_container(data)
    read = {path: [stat["numWrites"] for stat in found] for path, found in record["partitionToWriteStats"].items()}
    assert read == partitions


SOUND = avro.write_container("HoodieCleanerPlan", {"policy": "KEEP", "filesToBeDeletedPerPartition": {"p": ["f"]}})


@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4), st.data())
def test_damaged_containers_are_read_or_named(changes, data):
    damaged = bytearray(SOUND)
    for at, byte in changes:
        damaged[at] = byte
    end = data.draw(st.integers(0, len(damaged)))
    for body in (bytes(damaged), bytes(damaged[:end])):
        try:
            avro.read_container(body, "p")
        except CorruptFileError:
            pass


RECORD = encode_metadata_record(
    {"type": 3, "ColumnStatsMetadata": {"minValue": wrap_stat("abc", pa.string()), "isDeleted": False}}
)


@given(st.lists(st.tuples(st.integers(0, len(RECORD) - 1), st.integers(0, 255)), max_size=4))
def test_damaged_records_are_read_or_named(changes):
    damaged = bytearray(RECORD)
    for at, byte in changes:
        damaged[at] = byte
    try:
        decode_metadata_record(bytes(damaged), avro.METADATA_SCHEMA_JSON)
    except CorruptFileError:
        pass


@given(st.data())
def test_bounds_round_trip(data):
    precision = data.draw(st.integers(1, 30))
    scale = data.draw(st.integers(0, precision))
    kind, values = data.draw(
        st.sampled_from(
            [
                (pa.int64(), LONGS),
                (pa.timestamp("us"), LONGS),
                (pa.date32(), st.integers(-(1 << 31), (1 << 31) - 1)),
                (pa.float64(), st.floats(allow_nan=False)),
                (pa.float32(), st.floats(allow_nan=False, width=32)),
                (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
                (pa.binary(), st.binary()),
                (pa.bool_(), st.booleans()),
                (
                    pa.decimal128(precision, scale),
                    st.integers(-(10**precision) + 1, 10**precision - 1).map(
                        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale))
                    ),
                ),
            ]
        )
    )
    if not stats_supported(kind):
        return
    value = data.draw(values)
    record = {"type": 3, "ColumnStatsMetadata": {"maxValue": wrap_stat(value, kind), "isDeleted": False}}
    decoded = decode_metadata_record(encode_metadata_record(record), avro.METADATA_SCHEMA_JSON)
    assert unwrap_stat(decoded["ColumnStatsMetadata"]["maxValue"]) == value


def types(children):
    names = st.dictionaries(NAMES, st.tuples(children, st.booleans()), min_size=1, max_size=3)
    element = st.tuples(children, st.booleans())
    return st.one_of(
        names.map(lambda fields: pa.struct([pa.field(name, *field) for name, field in fields.items()])),
        element.map(lambda field: pa.list_(pa.field("element", *field))),
        element.map(lambda field: pa.map_(pa.string(), pa.field("value", *field))),
    )


LEAVES = st.sampled_from(
    [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.timestamp("ms", "UTC"),
        pa.decimal128(10, 2),
        pa.decimal128(38, 18),
    ]
)


@given(st.dictionaries(NAMES, st.tuples(st.recursive(LEAVES, types, max_leaves=6), st.booleans()), max_size=5))
def test_table_schemas_round_trip(columns):
    schema = pa.schema([pa.field(name, *field) for name, field in columns.items()])
    written = arrow_to_avro(schema, "t")
    assert avro_to_arrow(json.loads(json.dumps(written))) == schema
    avro.parse(written)
