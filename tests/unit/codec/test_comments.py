"""Comments of columns go from Arrow's metadata into an Avro schema and back, at every depth."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakedex.codec.avro_schema import arrow_to_avro, avro_to_arrow, with_meta_fields
from lakedex.codec.comments import arrow_comments, avro_comments, field_paths, with_comments, with_docs
from lakedex.errors import InvalidInputError

POINT = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.int32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("at", POINT),
        pa.field("way", pa.list_(pa.field("element", POINT))),
        pa.field("by", pa.map_(pa.string(), pa.field("value", pa.list_(pa.field("element", POINT))))),
        pa.field("plain", pa.decimal128(5, 2)),
    ]
)
COMMENTS = {
    "id": 'the "key"\n\\ é 😀',
    "at": "where",
    "at.x": "east",
    "way.element.y": "north",
    "by": "by day",
    "by.value.element.x": "east again",
}


def test_comments_are_docs_and_come_back_at_every_depth() -> None:
    commented = with_comments(SCHEMA, COMMENTS)
    assert commented.equals(SCHEMA) and arrow_comments(commented) == COMMENTS
    avro = with_docs(arrow_to_avro(commented, "t"), arrow_comments(commented))
    assert avro["fields"][0] == {"name": "id", "type": "int", "doc": COMMENTS["id"]}
    assert avro["fields"][1]["type"][1]["fields"][0]["doc"] == "east"
    text = json.loads(json.dumps(with_meta_fields(avro)))
    assert avro_comments(text) == COMMENTS, "meta columns have none"
    assert arrow_comments(avro_to_arrow(text)) == {}, "schemas that rows are read by are free of them"


def test_comments_of_fields_that_are_gone_are_left_out() -> None:
    less = pa.schema([SCHEMA.field("id")])
    assert avro_comments(with_docs(arrow_to_avro(less, "t"), COMMENTS)) == {"id": COMMENTS["id"]}
    assert arrow_comments(with_comments(less, COMMENTS)) == {"id": COMMENTS["id"]}


def test_paths_lead_into_lists_and_maps() -> None:
    assert field_paths(SCHEMA) == [
        *("id", "at", "at.x", "at.y", "way", "way.element.x", "way.element.y"),
        *("by", "by.value.element.x", "by.value.element.y", "plain"),
    ]


def test_docs_of_others_are_read_where_they_are_text() -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int", "doc": "deep"}]}
    fields = [
        {"name": "a", "type": ["null", record], "doc": "first"},
        {"name": "b", "type": ["null", "r"], "doc": None},
        {"name": "c", "type": {"type": "int", "fields": 5, "items": 6}, "doc": 7},
    ]
    assert avro_comments({"type": "record", "name": "t", "fields": fields}) == {"a": "first", "a.x": "deep"}


def test_a_comment_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="column 's' is not UTF-8"):
        arrow_comments(pa.schema([pa.field("s", pa.string(), metadata={"comment": b"\xff"})]))
