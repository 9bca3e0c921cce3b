"""JSON of other shapes than Hudi writes."""

from __future__ import annotations

import pytest

from lakedex.codec.properties import decode_json_object
from lakedex.errors import CorruptFileError


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":"\\ud800"}',
        b'{"\\udc00":1}',
        b"\xff{}",
        b'{"a":' + b"[" * 100000,
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"\xff"}',
    ],
    ids=lambda data: repr(data[:16]),
)
def test_what_is_no_object_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_json_object(data, "a thing", "p")
    assert caught.value.path == "p"
    assert caught.value.expected == "a thing"


def test_pairs_of_escapes_are_one_character() -> None:
    assert decode_json_object(b'{"a":"\\ud83d\\ude00"}', "x") == {"a": "\U0001f600"}
    assert decode_json_object('{"a":"\\u00e9"}', "x") == {"a": "é"}
