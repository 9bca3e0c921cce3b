from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from lakedex.codec.log_block import (
    BLOCK_TYPES,
    HEADER_KEYS,
    WINDOW_SIZE,
    LogBlock,
    RollbackCommand,
    decode_command_block,
    decode_delete_block,
    decode_log_blocks,
    encode_delete_block,
    encode_log_block,
    encode_rollback_block,
    read_block_headers,
)
from lakedex.errors import CorruptFileError, InvalidInputError

HEADER = {"INSTANT_TIME": "20260101000000000", "SCHEMA": '{"é": 1}'}


class Fetches:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.calls: list[tuple[int, int]] = []

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.calls += ranges
        return [self.data[start:end] for start, end in ranges]


def two_blocks(size: int = 3) -> bytes:
    return encode_log_block("AVRO_DATA", HEADER, b"a" * size) + encode_log_block("HFILE_DATA", HEADER, b"b" * size)


def test_round_trip_of_several_blocks() -> None:
    data = two_blocks()
    blocks = decode_log_blocks(data)
    assert [(block.block_type, block.header, bytes(block.content)) for block in blocks] == [
        ("AVRO_DATA", HEADER, b"aaa"),
        ("HFILE_DATA", HEADER, b"bbb"),
    ]
    assert [data[b.content_offset : b.content_offset + b.content_length] for b in blocks] == [b"aaa", b"bbb"]
    assert data[blocks[1].offset :].startswith(b"#HUDI#")
    assert b"".join(encode_log_block(b.block_type, b.header, b.content) for b in blocks) == data


def test_content_is_a_view() -> None:
    assert isinstance(decode_log_blocks(two_blocks())[0].content, memoryview)


def test_empty_file_has_no_blocks() -> None:
    assert decode_log_blocks(b"") == []
    assert read_block_headers(Fetches(b""), 0) == []


@pytest.mark.parametrize("block_type", [kind for kind in BLOCK_TYPES if kind != "CORRUPT"])
def test_every_type_and_header_key(block_type: str) -> None:
    header = {key: key.lower() for key in HEADER_KEYS}
    (block,) = decode_log_blocks(encode_log_block(block_type, header, b""))
    assert (block.block_type, block.header, block.content_length) == (block_type, header, 0)


def test_what_cannot_be_encoded() -> None:
    with pytest.raises(InvalidInputError, match="CORRUPT"):
        encode_log_block("CORRUPT", {}, b"")
    with pytest.raises(InvalidInputError, match="'OTHER'"):
        encode_log_block("DELETE", {"OTHER": ""}, b"")


# ---------------------------------------------------------------------------------------------- headers only


def test_headers_of_a_small_file_take_one_request() -> None:
    data = two_blocks()
    fetches = Fetches(data)
    headers = read_block_headers(fetches, len(data))
    assert fetches.calls == [(0, len(data))]
    expected = [
        LogBlock(b.block_type, b.header, b"", b.offset, b.content_offset, b.content_length)
        for b in decode_log_blocks(data)
    ]
    assert headers == expected


def test_headers_of_a_large_file_leave_the_contents_alone() -> None:
    data = two_blocks(1_000_000)
    fetches = Fetches(data)
    headers = read_block_headers(fetches, len(data))
    assert [block.content_length for block in headers] == [1_000_000, 1_000_000]
    assert len(fetches.calls) == 3
    assert sum(end - start for start, end in fetches.calls) < 140_000


def test_header_longer_than_the_window() -> None:
    data = encode_log_block("AVRO_DATA", {"SCHEMA": "s" * 200_000}, b"a" * 100_000)
    (block,) = read_block_headers(Fetches(data), len(data))
    assert block.header == {"SCHEMA": "s" * 200_000}


def test_short_answer_is_damage() -> None:
    data = two_blocks()
    with pytest.raises(CorruptFileError):
        read_block_headers(lambda ranges: [data[start : end - 1] for start, end in ranges], len(data), "f")


# ---------------------------------------------------------------------------------------------- damage


def test_every_truncation_is_damage() -> None:
    data = two_blocks()
    whole = {0, len(data) // 2, len(data)}
    for size in set(range(len(data))) - whole:
        with pytest.raises(CorruptFileError):
            decode_log_blocks(data[:size], "f")
        with pytest.raises(CorruptFileError):
            read_block_headers(Fetches(data[:size]), size)


@pytest.mark.parametrize("tail", [b"\0", bytes(100), b"#HUD", b"#HUDI#" + bytes(100)])
def test_bytes_after_the_last_block_are_damage(tail: bytes) -> None:
    data = two_blocks()
    with pytest.raises(CorruptFileError) as caught:
        decode_log_blocks(data + tail, "f")
    assert caught.value.offset >= len(data)


@pytest.mark.parametrize(
    "at, value, offset",
    [
        (0, b"?", 0),
        (6, struct.pack(">q", 2**40), 6),
        (6, struct.pack(">q", -1), 6),
        (6, struct.pack(">q", 31), 6),
        (14, struct.pack(">i", 0), 14),
        (18, struct.pack(">i", 2), 18),
        (18, struct.pack(">i", 7), 18),
        (18, struct.pack(">i", -1), 18),
        (22, struct.pack(">i", 10), 22),
        (22, struct.pack(">i", -1), 22),
        (22, struct.pack(">i", 3), 68),
        (26, struct.pack(">i", 9), 26),
        (26, struct.pack(">i", 2), 51),
        (30, struct.pack(">i", 2**31 - 1), 30),
        (30, struct.pack(">i", -1), 30),
        (34, b"\xff", 34),
        (68, struct.pack(">q", 4), 68),
        (68, struct.pack(">q", 2**62), 68),
        (79, struct.pack(">i", 1), 79),
        (83, struct.pack(">q", 1), 83),
    ],
)
def test_damage_names_the_field(at: int, value: bytes, offset: int) -> None:
    data = bytearray(encode_log_block("AVRO_DATA", HEADER, b"aaa"))
    assert data[76:79] == b"aaa"
    data[at : at + len(value)] = value
    with pytest.raises(CorruptFileError) as caught:
        decode_log_blocks(bytes(data), "f")
    assert (caught.value.path, caught.value.offset) == ("f", offset)


# ---------------------------------------------------------------------------------------------- commands, deletes


def test_rollback_command() -> None:
    command = RollbackCommand("2", "1")
    (block,) = decode_log_blocks(encode_rollback_block(command))
    assert decode_command_block(block) == command


@pytest.mark.parametrize(
    "block_type, header",
    [
        ("COMMAND", {"COMMAND_BLOCK_TYPE": "1", "INSTANT_TIME": "2", "TARGET_INSTANT_TIME": "1"}),
        ("COMMAND", {"COMMAND_BLOCK_TYPE": "0", "INSTANT_TIME": "2"}),
        ("DELETE", {"COMMAND_BLOCK_TYPE": "0", "INSTANT_TIME": "2", "TARGET_INSTANT_TIME": "1"}),
    ],
)
def test_other_commands_are_damage(block_type: str, header: dict[str, str]) -> None:
    (block,) = decode_log_blocks(encode_log_block(block_type, header, b""))
    with pytest.raises(CorruptFileError):
        decode_command_block(block, "f")


def test_delete_block_round_trip() -> None:
    wrapper = ("org.apache.hudi.avro.model.LongWrapper", {"value": 5})
    records = [
        {"recordKey": "k", "partitionPath": "p", "orderingVal": wrapper},
        {"recordKey": "é", "partitionPath": None, "orderingVal": None},
    ]
    content = encode_delete_block(records)
    assert decode_delete_block(content) == records
    assert decode_delete_block(memoryview(content)) == records
    assert decode_delete_block(encode_delete_block([])) == []


def test_delete_record_that_does_not_fit() -> None:
    with pytest.raises(InvalidInputError):
        encode_delete_block([{"recordKey": 5, "partitionPath": None, "orderingVal": None}])


@pytest.mark.parametrize(
    "content, offset",
    [
        (b"", 50),
        (struct.pack(">ii", 2, 0), 50),
        (struct.pack(">ii", 3, 1), 54),
        (struct.pack(">ii", 3, 1) + b"\2\0", 54),
        (struct.pack(">ii", 3, 2) + b"\0\0", None),
        (struct.pack(">ii", 3, 2) + b"\2\2", None),
        (struct.pack(">ii", 3, 9) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", None),
    ],
)
def test_delete_block_damage(content: bytes, offset: int | None) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_delete_block(content, "f", 50)
    assert caught.value.path == "f"
    assert offset is None or caught.value.offset == offset


# ------------------------------------------------------------------------------------------- what a dead writer leaves
@pytest.mark.parametrize("size", [3, WINDOW_SIZE + 100])
def test_torn_blocks_are_skipped_where_that_is_asked_for(size: int) -> None:
    whole = two_blocks(size)
    first = encode_log_block("AVRO_DATA", HEADER, b"a" * size)
    for cut in (1, 5, 6, 13, 14, 20, len(first) - 1):
        torn = first[:cut]
        # Less than a magic can only be told from other bytes where the file ends after it.
        cases = [(whole + torn, 2), (torn, 0), *([(torn + whole, 2)] if cut >= len(b"#HUDI#") else [])]
        for data, kept in cases:
            assert len(read_block_headers(Fetches(data), len(data), skip_torn=True)) == kept
            with pytest.raises(CorruptFileError):
                read_block_headers(Fetches(data), len(data))


def test_other_damage_stays_an_error() -> None:
    whole = two_blocks()
    for data in (b"x" * 60, whole + b"\0" * 60, b"x" + whole, whole[:14] + b"\0\0\0\2" + whole[18:]):
        with pytest.raises(CorruptFileError):
            read_block_headers(Fetches(data), len(data), skip_torn=True)


def test_so_many_unfinished_blocks_are_damage() -> None:
    """Each was looked for in 64 KiB of its own, and over a network in a request of its own."""
    data = b"#HUDI#" * 200_000
    fetched: list[int] = []

    def fetch(ranges):
        fetched.extend(end - start for start, end in ranges)
        return [data[start:end] for start, end in ranges]

    with pytest.raises(CorruptFileError):
        read_block_headers(fetch, len(data), "p", skip_torn=True)
    few = data[: 6 * 50]
    assert read_block_headers(lambda ranges: [few[a:b] for a, b in ranges], len(few), "p", skip_torn=True) == []
    assert len(fetched) <= 2 * 1001
