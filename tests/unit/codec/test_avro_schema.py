"""Table schemas against those that Hudi's Spark writer makes."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex.codec.avro_schema import arrow_to_avro, avro_to_arrow, check_names, sanitize_name, with_meta_fields
from lakedex.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = json.loads((GOLDEN / "vectors" / "avro_schemas.json").read_text("utf-8"))["data"]
SPARK = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow(kind):
    """Arrow type of a Spark type in JSON."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            return pa.decimal128(*map(int, kind[8:-1].split(",")))
        return SPARK[kind]
    if kind["type"] == "struct":
        return pa.struct([pa.field(f["name"], arrow(f["type"]), f["nullable"]) for f in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", arrow(kind["elementType"]), kind["containsNull"]))
    return pa.map_(pa.string(), pa.field("value", arrow(kind["valueType"]), kind["valueContainsNull"]))


def text(schema):
    return json.dumps(schema, separators=(",", ":"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{case['table']!a}")
def test_character_for_character_like_java(case):
    avro = arrow_to_avro(pa.schema(list(arrow(case["spark"]))), case["table"])
    assert text(avro) == case["avro"]
    assert text(with_meta_fields(avro)) == case["with_meta_fields"]
    assert with_meta_fields(with_meta_fields(avro)) == with_meta_fields(avro)
    assert f"{avro['namespace']}.{avro['name']}" == case["qualified"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{case['table']!a}")
def test_back_to_arrow_and_again(case):
    schema = avro_to_arrow(json.loads(case["avro"]))
    assert text(arrow_to_avro(schema, case["table"])) == case["avro"]
    if case["name"] == "nested":
        assert schema == pa.schema(list(arrow(case["spark"])))


def test_sanitize_counts_utf16_units():
    assert sanitize_name("a\U0001f600b") == "a____b"
    assert sanitize_name("plain_1") == "plain_1"


def test_arrow_only_types():
    schema = pa.schema(
        [
            pa.field("ls", pa.large_string()),
            pa.field("lb", pa.large_binary()),
            pa.field("ll", pa.large_list(pa.int32())),
            pa.field("fl", pa.list_(pa.int32(), 2)),
            pa.field("d", pa.dictionary(pa.int32(), pa.string())),
            pa.field("t", pa.time64("us")),
            pa.field("tm", pa.time32("ms")),
            pa.field("ms", pa.timestamp("ms", "Europe/Berlin")),
            pa.field("lms", pa.timestamp("ms")),
        ]
    )
    back = avro_to_arrow(arrow_to_avro(schema, "t"))
    items = pa.list_(pa.field("element", pa.int32()))
    assert back.types == [
        pa.string(),
        pa.binary(),
        items,
        items,
        pa.string(),
        pa.time64("us"),
        pa.time32("ms"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("ms"),
    ]


@pytest.mark.parametrize(
    "kind, hint",
    [
        (pa.uint32(), "signed"),
        (pa.timestamp("ns"), "timestamp\\[us\\]"),
        (pa.timestamp("s"), "timestamp\\[us\\]"),
        (pa.null(), "give it a type"),
        (pa.float16(), "halffloat"),
        (pa.decimal256(50, 2), "decimal256"),
        (pa.decimal128(5, -2), "decimal128"),
        (pa.struct([]), "struct"),
        (pa.map_(pa.int32(), pa.string()), "map keys"),
        (pa.date64(), "date64"),
    ],
    ids=str,
)
def test_types_without_a_counterpart_are_refused(kind, hint):
    with pytest.raises(InvalidInputError, match=hint) as caught:
        arrow_to_avro(pa.schema([pa.field("s", pa.struct([pa.field("c", kind)]))]), "t")
    assert caught.value.column == "s.c"


@pytest.mark.parametrize("name", ["", "a b", "1a", "a.b", "é", "a-b", "a\n"])
def test_names_that_avro_forbids(name):
    for schema, path in (
        (pa.schema([(name, pa.int32())]), name),
        (pa.schema([("l", pa.list_(pa.struct([(name, pa.int32())])))]), f"l.{name}"),
        (pa.schema([("m", pa.map_(pa.string(), pa.struct([(name, pa.int32())])))]), f"m.{name}"),
    ):
        with pytest.raises(InvalidInputError, match="Avro") as caught:
            check_names(schema)
        assert caught.value.column == path


def test_names_of_other_scripts_are_those_that_java_takes():
    schema = pa.schema([(name, pa.int32()) for name in ("größe", "名前", "_é1", "ключ", "a٣")])
    check_names(schema, is_new=False)
    with pytest.raises(InvalidInputError, match="'größe' has a name that is invalid in Avro"):
        check_names(schema)
    for name in ("a²", "€", "1a", ""):
        with pytest.raises(InvalidInputError, match="Avro"):
            check_names(pa.schema([(name, pa.int32())]), is_new=False)


def test_names_that_occur_twice():
    with pytest.raises(InvalidInputError, match="twice"):
        check_names(pa.schema([("a", pa.int32()), ("a", pa.int32())]))
    check_names(pa.schema([("a", pa.struct([("a", pa.int32())])), ("_b1", pa.int32())]))


def record(*types):
    return {
        "type": "record",
        "name": "r",
        "namespace": "n",
        "fields": [{"name": f"c{i}", "type": t} for i, t in enumerate(types)],
    }


def test_other_avro_is_read():
    fixed = {"type": "fixed", "name": "f", "size": 4}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    schema = avro_to_arrow(
        record(
            ["int", "null"],
            fixed,
            "n.f",
            "f",
            {"type": "enum", "name": "e", "symbols": ["A"]},
            decimal,
            {"type": "string", "logicalType": "uuid"},
            {"type": {"type": "string", "avro.java.string": "String"}},
            {"type": "long", "logicalType": "timestamp-nanos"},
            {"type": "string", "logicalType": "date"},
            "null",
        )
    )
    assert schema.types == [
        pa.int32(),
        pa.binary(4),
        pa.binary(4),
        pa.binary(4),
        pa.string(),
        pa.decimal128(5, 2),
        pa.string(),
        pa.string(),
        pa.timestamp("ns", "UTC"),
        pa.string(),
        pa.null(),
    ]
    assert [field.nullable for field in schema] == [True, *[False] * 9, True]


@pytest.mark.parametrize(
    "schema, feature",
    [
        (record(["int", "string"]), "Avro union"),
        (record(["null"]), "Avro union"),
        (record(["null", "n.r"]), "recursive Avro record"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}), "decimal256"),
    ],
)
def test_what_has_no_counterpart_is_named(schema, feature):
    with pytest.raises(UnsupportedFeatureError) as caught:
        avro_to_arrow(schema)
    assert caught.value.feature == feature


def test_deep_nesting_ends():
    kind = "int"
    for _ in range(300):
        kind = {"type": "array", "items": kind}
    with pytest.raises(UnsupportedFeatureError, match="nested deeper"):
        avro_to_arrow(record(kind))


@pytest.mark.parametrize(
    "schema", [{}, {"type": "record"}, record("nothing"), record(5), {"type": "array", "items": "int"}, "int", []]
)
def test_what_is_no_record_is_damage(schema):
    with pytest.raises((CorruptFileError, UnsupportedFeatureError)):
        avro_to_arrow(schema, "p")
