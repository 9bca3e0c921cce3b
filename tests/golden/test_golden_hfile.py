"""HFiles that Java wrote: read, and written again."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from lakedex.codec.deflate import deflate_as_java
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.hfile.blocks import CODEC_GZIP, DATA, HEADER_SIZE, ROOT_INDEX, decode_block
from lakedex.codec.hfile.trailer import TRAILER_SIZE

FOLDER = Path(__file__).parent / "hfile"
LISTING: list[dict[str, Any]] = json.loads((FOLDER / "listing.json").read_text())["data"]
NAMES = [entry["file"].removeprefix("hfile/") for entry in LISTING]
HBASE = sorted(path.name for path in FOLDER.glob("hudi_1_0_hbase*"))

# Files whose bytes we would not write: Java cannot read all of these back.
LARGE_BLOCKS = {"big_block_none_tiny_values.hfile.gz", "big_block_gz_tiny_values.hfile.gz"}
VARINT_KEYS = {"long_first_keys_none.hfile", "key126_none.hfile"}


def load(name: str) -> bytes:
    data = (FOLDER / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def expected(entry: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    if "entries" in entry:
        return [(key.encode(), bytes.fromhex(value)) for key, value in entry["entries"]]
    return [(b"k%06d" % i, b"") for i in range(entry["num_written"])]


def rewrite(reader: HFileReader, block_size: int) -> bytes:
    return write_hfile(
        reader.scan(),
        compression="gz" if reader.trailer.codec == CODEC_GZIP else "none",
        block_size=block_size,
        info=reader.info,
        meta={name: reader.meta(name) or b"" for name in reader.meta_names},
    )


@pytest.mark.parametrize("entry", LISTING, ids=NAMES)
def test_native_files_are_read(entry: dict[str, Any]) -> None:
    data = load(entry["file"].removeprefix("hfile/"))
    assert hashlib.sha256(data).hexdigest() == entry["sha256"]
    cells = expected(entry)
    reader = HFileReader.from_bytes(data, entry["file"])
    assert reader.entry_count == entry["num_written"]
    assert list(reader.scan()) == cells
    assert reader.get_many(key for key, _ in cells) == dict(cells)
    assert [reader.get(key) for key, _ in cells[::2999]] == [value for _, value in cells[::2999]]
    assert reader.get_many([b"", b"\xff", *(key + b"\0" for key, _ in cells[::97])]) == {}
    assert {name: reader.meta(name) for name in reader.meta_names} == {
        name: text.encode() for name, text in entry["meta"].items()
    }
    for name, text in entry["info"].items():
        assert reader.info[name] == text.encode()


def contents(data: bytes) -> list[tuple[bytes, bytes]]:
    """Magic and payload of each block; of an index the magic alone, since its offsets depend on the deflate."""
    reader = HFileReader.from_bytes(data)
    found, at, end = [], 0, len(data) - TRAILER_SIZE
    while at < end:
        magic = data[at : at + 8]
        payload, size = decode_block(data[at:end], magic, reader.trailer.codec, offset=at)
        found.append((magic, b"" if magic == ROOT_INDEX else payload))
        at += size
    return found


REWRITTEN = pytest.mark.parametrize(
    "entry",
    [entry for entry, name in zip(LISTING, NAMES, strict=True) if name not in LARGE_BLOCKS | VARINT_KEYS],
    ids=lambda entry: entry["file"],
)


@REWRITTEN
def test_native_files_are_written_byte_for_byte(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With zlib, as Java has it; another deflate packs the same bytes otherwise."""
    monkeypatch.setattr("lakedex.codec.hfile.blocks.deflate", deflate_as_java)
    data = load(entry["file"].removeprefix("hfile/"))
    ours = rewrite(HFileReader.from_bytes(data), entry["block_size"])
    if entry["codec"] == "GZIP" and "ng" in zlib.ZLIB_RUNTIME_VERSION:
        pytest.skip("another deflate than Java's")
    assert ours == data


@REWRITTEN
def test_every_block_is_that_of_the_native_file(entry: dict[str, Any]) -> None:
    data = load(entry["file"].removeprefix("hfile/"))
    reader = HFileReader.from_bytes(data)
    ours = rewrite(reader, entry["block_size"])
    assert contents(ours) == contents(data)
    again = HFileReader.from_bytes(ours)
    assert list(again.scan()) == list(reader.scan())
    assert again.first_keys == reader.first_keys


@pytest.mark.parametrize("name", sorted(VARINT_KEYS))
def test_all_but_the_index_is_the_same_where_java_writes_varints(name: str) -> None:
    entry = LISTING[NAMES.index(name)]
    data = load(name)
    reader = HFileReader.from_bytes(data)
    ours = rewrite(reader, entry["block_size"])
    again = HFileReader.from_bytes(ours)
    start = reader.trailer.load_on_open_offset
    assert ours[:start] == data[:start]
    assert (again.trailer, again.info, again.entries) == (reader.trailer, reader.info, reader.entries)
    assert ours != data


def test_metadata_table_file_is_written_byte_for_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakedex.codec.hfile.blocks.deflate", deflate_as_java)
    data = load("v8_mdt_files_compacted.hfile")
    reader = HFileReader.from_bytes(data)
    assert [key for key, _ in reader.scan()] == [b"__all_partitions__"]
    assert reader.info["schema"].startswith(b'{"type":"record","name":"HoodieMetadataRecord"')
    ours = rewrite(reader, 65536)
    if "ng" in zlib.ZLIB_RUNTIME_VERSION:
        pytest.skip("another deflate than Java's")
    assert ours == data


@pytest.mark.parametrize("name", HBASE)
def test_hbase_files_are_read(name: str) -> None:
    reader = HFileReader.from_bytes(load(name), name)
    cells = list(reader.scan())
    assert len(cells) == reader.entry_count
    keys = [key for key, _ in cells]
    assert keys == sorted(keys)
    first: dict[bytes, bytes] = {}
    for key, value in cells:
        first.setdefault(key, value)
    assert reader.get_many(keys) == first
    for key in keys[::1499]:
        assert reader.get(key) == first[key]
        assert reader.get(key + b"\0") is None
        assert list(reader.scan(key)) == [cell for cell in cells if cell[0].startswith(key)]
    assert reader.meta("bloomFilter")
    if cells:
        assert reader.info["hudi_hfile_testing.custom_key"] == b"hudi_custom_value"


def test_hbase_values() -> None:
    reader = HFileReader.from_bytes(load("hudi_1_0_hbase_2_4_9_16KB_GZ_20000.hfile"))
    assert reader.get(b"hudi-key-000012345") == b"hudi-value-000012345"


def test_hbase_keys_in_several_cells() -> None:
    reader = HFileReader.from_bytes(load("hudi_1_0_hbase_2_4_9_16KB_GZ_200_20_non_unique.hfile"))
    cells = list(reader.scan(b"hudi-key-000000100"))
    assert len(cells) == 21
    assert reader.get(b"hudi-key-000000100") == cells[0][1] == b"hudi-value-000000100"


def test_hbase_deep_index_has_three_levels() -> None:
    reader = HFileReader.from_bytes(load("hudi_1_0_hbase_2_4_13_1KB_GZ_10000_large_keys_deep_index.hfile"))
    assert reader.trailer.data_index_levels == 3
    assert len(reader.first_keys) > 1000


def test_hbase_index_key_may_lie_between_two_blocks() -> None:
    data = load("hudi_1_0_hbase_2_4_13_16KB_GZ_20000_fake_first_key.hfile")
    reader = HFileReader.from_bytes(data)
    entry = reader.entries[1]
    payload, _ = decode_block(data[entry.offset :], DATA, CODEC_GZIP, offset=entry.offset)
    assert entry.key == b"hudi-key-000000235"
    assert payload[10 : 10 + 29] == b"hudi-key-000000235-abcdefghij"
    assert reader.get(b"hudi-key-000000235") is None
    assert reader.get(b"hudi-key-000000235-abcdefghij") is not None


def test_native_block_holds_zeros_for_checksums() -> None:
    data = load("single_none.hfile")
    assert data[HEADER_SIZE + 23 : HEADER_SIZE + 27] == bytes(4)
