"""Properties files against ``java.util.Properties`` and real ``hoodie.properties``."""

import json
import time
from pathlib import Path

import pytest

from lakedex.codec.properties import decode_properties, encode_properties, table_checksum
from lakedex.errors import CorruptFileError

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = json.loads((GOLDEN / "vectors" / "properties.json").read_text("utf-8"))["data"]


@pytest.mark.parametrize("case", DATA["store"], ids=lambda case: ascii(case["key"]))
def test_stored_like_java(case):
    entries = {case["key"]: case["value"]}
    stored = encode_properties(entries)
    assert stored == bytes.fromhex(case["stored_hex"])
    assert decode_properties(stored) == entries


@pytest.mark.parametrize("case", DATA["load"], ids=lambda case: ascii(bytes.fromhex(case["hex"])))
def test_loaded_like_java(case):
    data = bytes.fromhex(case["hex"])
    if "error" in case:
        with pytest.raises(CorruptFileError, match="hexadecimal"):
            decode_properties(data, "hoodie.properties")
    else:
        assert decode_properties(data) == case["properties"]


@pytest.mark.parametrize("file", sorted((GOLDEN / "samples").glob("*_hoodie.properties")), ids=lambda file: file.name)
def test_real_files(file):
    data = file.read_bytes()
    entries = decode_properties(data)
    database, table = entries.get("hoodie.database.name"), entries["hoodie.table.name"]
    assert int(entries["hoodie.table.checksum"]) == table_checksum(database, table)
    body = b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"#"))
    assert encode_properties(entries) == body


def test_checksums_are_those_of_java():
    for case in json.loads((GOLDEN / "vectors" / "paths.json").read_text("utf-8"))["data"]["properties_checksum"]:
        assert table_checksum(case["database"], case["table"]) == case["checksum"]


def test_comment_comes_first_and_order_is_kept():
    data = encode_properties({"b": "1", "a": "2"}, "Updated at é\n北")
    assert data == b"#Updated at \xe9\n#\\u5317\nb=1\na=2\n"
    assert list(decode_properties(data)) == ["b", "a"]


def test_error_says_where_the_line_starts():
    with pytest.raises(CorruptFileError) as caught:
        decode_properties(b"a=1\nb=\\u00zz\n", "p")
    assert (caught.value.path, caught.value.offset) == ("p", 4)


def test_lone_surrogates_survive():
    assert decode_properties(encode_properties({"k": "\ud83d"})) == {"k": "\ud83d"}


@pytest.mark.parametrize(
    "many",
    [b"a\n" * 1_000_000, b"#\n" * 1_000_000, b"a\\\n" * 1_000_000, b"a" * 17_000_000],
    ids=["lines", "comments", "continued", "bytes"],
)
def test_no_file_holds_so_much(many):
    with pytest.raises(CorruptFileError, match="t/hoodie.properties: .* at most"):
        decode_properties(many, "t/hoodie.properties")


@pytest.mark.parametrize("short", [b"a\n", b"a\r", b"#\n", b"\\\n", b"\n", b" "])
def test_lines_are_looked_at_once(short):
    """However long the file: a search for each line's end through all that follows would take minutes."""
    started = time.process_time()
    assert decode_properties(short * 50_000 + b"\nb=" + b"x" * 8_000_000)["b"] == "x" * 8_000_000
    assert time.process_time() - started < 15
