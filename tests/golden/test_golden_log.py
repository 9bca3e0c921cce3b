"""Log files that Java wrote: read, and written again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import RollbackCommand, decode_command_block, decode_delete_block, decode_log_blocks, encode_delete_block, encode_log_block, encode_rollback_block, read_block_headers

FOLDER = Path(__file__).parent / "log"
PATHS = sorted(FOLDER.iterdir())
EXPECTED = {
    "0712b9f9": ("COMMAND", "20250126040936578"),
    "6d3d1d6e": ("DELETE", "20250618054714114"),
    "ee2ace10": ("PARQUET_DATA", "20250113230424191"),
    "ff32ab89": ("AVRO_DATA", "20250316025828811"),
    "v8_avro_block": ("AVRO_DATA", "20261127215654245"),
    "v8_delete_block": ("DELETE", "20261127215657233"),
    "v8_mdt_files": ("HFILE_DATA", "20261127215553131"),
    "v8_mdt_record_index.": ("HFILE_DATA", "20261127215553131"),
    "v8_mdt_record_index_with_delete": ("DELETE", "20261127215606398"),
}


def load(start: str) -> bytes:
    (path,) = FOLDER.glob(start + "*")
    return path.read_bytes()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_log_files_are_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    blocks = decode_log_blocks(data, path.name)
    assert blocks
    assert b"".join(encode_log_block(b.block_type, b.header, b.content) for b in blocks) == data


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_headers_agree_with_whole_blocks(path: Path) -> None:
    data = path.read_bytes()
    headers = read_block_headers(lambda ranges: [data[start:end] for start, end in ranges], len(data), path.name)
    for ours, whole in zip(headers, decode_log_blocks(data), strict=True):
        assert ours.header == whole.header
        assert data[ours.content_offset : ours.content_offset + ours.content_length] == whole.content


@pytest.mark.parametrize("start", sorted(EXPECTED))
def test_type_and_instant(start: str) -> None:
    (block,) = decode_log_blocks(load(start))
    assert (block.block_type, block.header["INSTANT_TIME"]) == EXPECTED[start]


@pytest.mark.parametrize(
    "start, cells", [("v8_mdt_files", 4), ("v8_mdt_record_index.", 6), ("col-stats-0000-0_20261127215354144", 24)]
)
def test_hfile_within_a_block_is_read_in_place(start: str, cells: int) -> None:
    data = load(start)
    (block,) = decode_log_blocks(data)
    at = block.content_offset
    reader = HFileReader(lambda ranges: [data[at + a : at + b] for a, b in ranges], block.content_length, start)
    found = dict(reader.scan())
    assert len(found) == reader.entry_count == cells
    assert reader.get_many(found) == found
    assert reader.info["schema"].decode() == block.header["SCHEMA"]


@pytest.mark.parametrize("start", ["6d3d1d6e", "v8_delete_block", "v8_mdt_record_index_with_delete"])
def test_delete_blocks_are_written_byte_for_byte(start: str) -> None:
    (block,) = decode_log_blocks(load(start))
    records = decode_delete_block(block.content, start, block.content_offset)
    assert encode_delete_block(records) == block.content


def test_deleted_records() -> None:
    (block,) = decode_log_blocks(load("v8_delete_block"))
    zero = ("org.apache.hudi.avro.model.IntWrapper", {"value": 0})
    assert decode_delete_block(block.content) == [
        {"recordKey": "k001", "partitionPath": "", "orderingVal": zero},
        {"recordKey": "k004", "partitionPath": "", "orderingVal": zero},
    ]


def test_rollback_block_is_written_byte_for_byte() -> None:
    data = load("0712b9f9")
    (block,) = decode_log_blocks(data)
    command = decode_command_block(block)
    assert command == RollbackCommand("20250126040936578", "20250126040826878")
    assert encode_rollback_block(command) == data
