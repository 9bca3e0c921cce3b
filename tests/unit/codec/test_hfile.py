from __future__ import annotations

import base64
import gzip
import random
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Sequence

import pytest

from lakedex.codec.hfile.blocks import CODEC_GZIP, CODEC_NONE, DATA, HEADER_SIZE, Budget, decode_block, encode_block
from lakedex.codec.hfile.index import (
    IndexEntry,
    check_entries,
    decode_cells,
    decode_leaf_index,
    decode_root_index,
    find_cells,
)
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.trailer import TRAILER_SIZE, Trailer, decode_trailer, encode_trailer
from lakedex.codec.hfile.writer import MAX_BLOCK_SIZE, write_hfile
from lakedex.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from limits import Limits


class Fetches:
    """A file that remembers what was asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.calls: list[list[tuple[int, int]]] = []

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.calls.append(list(ranges))
        return [self.data[start:end] for start, end in ranges]


def rows(count: int, size: int = 20) -> list[tuple[bytes, bytes]]:
    return [(b"key-%06d" % i, b"%d" % i * size) for i in range(count)]


@pytest.fixture(params=["gz", "none"])
def compression(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------------------------------------- writing


def test_round_trip(compression: str) -> None:
    items = rows(5000)
    data = write_hfile(iter(items), compression=compression, info={"schema": b"{}"}, meta={"bloomFilter": b"bits"})
    reader = HFileReader.from_bytes(data)
    assert list(reader.scan()) == items
    assert reader.get_many(key for key, _ in reversed(items)) == dict(items)
    assert reader.entry_count == 5000
    assert reader.info["schema"] == b"{}"
    assert reader.meta("bloomFilter") == b"bits"
    assert reader.meta("other") is None
    assert reader.meta_names == ["bloomFilter"]


def test_empty_file(compression: str) -> None:
    reader = HFileReader.from_bytes(write_hfile([], compression=compression, info={}))
    assert list(reader.scan()) == []
    assert list(reader.scan(b"a")) == []
    assert reader.get(b"a") is None
    assert reader.first_keys == []
    assert reader.info["hfile.LASTKEY"] == b""
    assert reader.trailer.first_data_block_offset == -1


def test_equal_input_gives_equal_bytes(compression: str) -> None:
    assert write_hfile(rows(99), compression=compression, info={}) == write_hfile(
        rows(99), compression=compression, info={}
    )


def test_blocks_stay_within_the_limit_that_java_reads() -> None:
    items = [(b"k%06d" % i, b"") for i in range(20000)]
    items[5000] = (items[5000][0], b"v" * 200_000)
    data = write_hfile(items, compression="none", info={})
    reader = HFileReader.from_bytes(data)
    first = [reader.first_keys.index(items[5000][0])]
    sizes = [entry.size - HEADER_SIZE for entry in reader.entries]
    for at, size in enumerate(sizes):
        checksums = 4 * -(-(HEADER_SIZE + size) // 16384)
        assert at in first or size - checksums <= MAX_BLOCK_SIZE
    assert list(reader.scan()) == items
    assert reader.get(items[5000][0]) == b"v" * 200_000
    assert reader.first_keys[first[0] + 1] == items[5001][0]  # the large cell stands alone


def test_computed_info_takes_the_place_of_given() -> None:
    given = {"hfile.LASTKEY": b"wrong", "schema": b"{}", "hfile.CREATE_TIME_TS": struct.pack(">q", 17)}
    info = HFileReader.from_bytes(write_hfile([(b"ab", b"cdef")], info=given)).info
    assert list(info)[:3] == list(given)
    assert info["hfile.LASTKEY"] == b"\0\2ab"
    assert info["hfile.AVG_KEY_LEN"] == struct.pack(">i", 2)
    assert info["hfile.AVG_VALUE_LEN"] == struct.pack(">i", 4)
    assert info["hfile.CREATE_TIME_TS"] == struct.pack(">q", 17)


@pytest.mark.parametrize(
    "items, message",
    [
        ([(b"b", b""), (b"a", b"")], "ascending byte order: b'a' after b'b'"),
        ([(b"a", b""), (b"a", b"")], "unique: b'a'"),
        ([(b"", b"")], "empty"),
        ([(b"k" * 32768, b"")], "32768 bytes"),
    ],
)
def test_keys_that_cannot_be_written(items: list[tuple[bytes, bytes]], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        write_hfile(items, info={})


@pytest.mark.parametrize("options", [{"compression": "snappy"}, {"block_size": 0}, {"block_size": 65537}])
def test_options_that_cannot_be_used(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        write_hfile([], info={}, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 124, 125, 126, 127, 128, 253, 254, 300, 20000, 32767])
def test_first_keys_of_any_length(size: int, compression: str) -> None:
    items = [(b"k" * (size - 1) + bytes((i,)), b"v") for i in range(40)]
    data = write_hfile(items, compression=compression, block_size=512, info={})
    reader = HFileReader.from_bytes(data)
    assert list(reader.scan()) == items
    assert all(reader.get(key) == b"v" for key, _ in items)


def test_gzip_size_is_the_same_for_readers_that_count_checksums_otherwise() -> None:
    # Random bytes do not compress, so that the sizes run through the whole neighbourhood of multiples of 16384.
    noise = random.Random(1).randbytes(66_000)
    filled = 0
    for size in (*range(16_280, 16_360), *range(65_400, 65_500)):
        block = encode_block(DATA, noise[:size], CODEC_GZIP)
        on_disk, data_size = struct.unpack_from(">i", block, 8)[0], struct.unpack_from(">i", block, 29)[0]
        assert -(-(on_disk + HEADER_SIZE) // 16384) == -(-data_size // 16384)
        packed = block[HEADER_SIZE:data_size]
        assert gzip.decompress(packed) == noise[:size]
        assert decode_block(block, DATA, CODEC_GZIP, offset=0) == (noise[:size], len(block))
        filled += packed[10:15] == b"\0\0\0\xff\xff"
    assert 10 < filled < 40


# ---------------------------------------------------------------------------------------------- requests


def big_file() -> tuple[Fetches, HFileReader, list[tuple[bytes, bytes]]]:
    items = rows(40_000, 10)
    fetches = Fetches(write_hfile(items, compression="none", info={}))
    return fetches, HFileReader(fetches, len(fetches.data)), items


def test_opening_takes_one_request_and_waits_for_first_use() -> None:
    fetches, reader, _ = big_file()
    assert fetches.calls == []
    assert reader.entry_count == 40_000
    assert reader.info
    assert len(reader.first_keys) > 20
    assert fetches.calls == [[(len(fetches.data) - 65536, len(fetches.data))]]


def test_opening_takes_two_requests_when_the_index_is_long() -> None:
    items = [(b"k" * 1000 + b"%05d" % i, b"") for i in range(200)]
    fetches = Fetches(write_hfile(items, compression="none", block_size=1, info={}))
    reader = HFileReader(fetches, len(fetches.data))
    assert len(reader.first_keys) == 200
    load = reader.trailer.load_on_open_offset
    tail = len(fetches.data) - 65536
    assert fetches.calls == [[(tail, len(fetches.data))], [(load, tail)]]


def test_get_reads_one_block() -> None:
    fetches, reader, items = big_file()
    first_keys = reader.first_keys
    fetches.calls.clear()
    assert reader.get(items[20_000][0]) == items[20_000][1]
    ((only,),) = fetches.calls
    assert only[1] - only[0] < MAX_BLOCK_SIZE + 100
    assert first_keys == reader.first_keys


def test_get_of_a_key_before_all_reads_nothing() -> None:
    fetches, reader, _ = big_file()
    reader.entry_count  # noqa: B018
    fetches.calls.clear()
    assert reader.get(b"a") is None
    assert reader.get_many([]) == {}
    assert fetches.calls == []


def test_get_many_reads_each_needed_block_once_in_one_call() -> None:
    fetches, reader, items = big_file()
    reader.entry_count  # noqa: B018
    fetches.calls.clear()
    asked = [items[at] for at in (39_999, 0, 1, 2, 20_000, 20_001)]
    found = reader.get_many([*(key for key, _ in asked), b"a", b"key-020000x", b"z"])
    assert list(found.items()) == sorted(asked)
    ((first, second, third),) = fetches.calls
    assert first[0] == 0
    assert first[1] < second[0] < second[1] < third[0]


def test_prefix_scan_reads_only_its_blocks() -> None:
    fetches, reader, items = big_file()
    reader.entry_count  # noqa: B018
    fetches.calls.clear()
    assert list(reader.scan(b"key-0200")) == items[20_000:20_100]
    ((only,),) = fetches.calls
    assert only[1] - only[0] < MAX_BLOCK_SIZE + 100


def test_scan_of_prefixes_in_any_order_gives_each_cell_once() -> None:
    fetches, reader, items = big_file()
    reader.entry_count  # noqa: B018
    fetches.calls.clear()
    found = list(reader.scan_prefixes([b"key-0300", b"key-0000", b"key-00001", b"key-0000", b"a"]))
    assert found == items[:100] + items[30_000:30_100]
    ((first, second),) = fetches.calls
    assert first[1] < second[0]
    assert list(reader.scan_prefixes([])) == []
    assert list(reader.scan_prefixes([b"", b"key"])) == items


def test_scan_is_fetched_in_batches(limits: Limits) -> None:
    limits("lakedex.codec.hfile.reader", SCAN_BATCH_SIZE=200_000)
    fetches, reader, items = big_file()
    assert list(reader.scan()) == items
    assert len(fetches.calls) > 5
    assert all(sum(end - start for start, end in call) <= 200_000 for call in fetches.calls)


AROUND = [
    b"a",
    b"a\xfd",
    b"a\xfe",
    b"a\xfe\x00",
    b"a\xff",
    b"a\xff\x01",
    b"a\xff\xff",
    b"b",
    b"\xff",
    b"\xff\xff",
    b"\xff\xff\xff",
]


@pytest.mark.parametrize("prefix", [b"a", b"a\xff", b"\xff\xff", b"", b"a\xfe"])
def test_keys_with_a_prefix_end_before_the_smallest_bytes_after_it(prefix: bytes) -> None:
    """There is no such key after bytes that are all 0xFF."""
    data = write_hfile([(key, b"") for key in AROUND], block_size=1, info={})
    found = [key for key, _ in HFileReader.from_bytes(data).scan_prefixes([prefix])]
    assert found == [key for key in AROUND if key.startswith(prefix)]


def test_short_answer_is_damage() -> None:
    data = write_hfile(rows(10), info={})
    reader = HFileReader(lambda ranges: [data[start : end - 1] for start, end in ranges], len(data), "f")
    with pytest.raises(CorruptFileError, match="f: corrupt"):
        reader.get(b"a")


# ---------------------------------------------------------------------------------------------- odd but readable


def splice(items: list[tuple[bytes, bytes]], order: list[int]) -> bytes:
    """A file with one cell a block, whose cells stand in another order."""
    data = bytearray(write_hfile(items, compression="none", block_size=1, info={}))
    reader = HFileReader.from_bytes(bytes(data))
    entries = reader.entries
    pieces = [bytes(data[entries[at].offset : entries[at].offset + entries[at].size]) for at in order]
    data[: reader.trailer.load_on_open_offset] = b"".join(pieces)
    at = reader.trailer.load_on_open_offset + HEADER_SIZE
    for entry, other in zip(entries, order, strict=True):
        key = entries[other].key
        data[at : at + 15 + len(key)] = struct.pack(">qibH", entry.offset, entry.size, len(key) + 2, len(key)) + key
        at += 15 + len(key)
    return bytes(data)


def test_order_of_utf16_units_is_read_as_well() -> None:
    # Java puts U+1F600 (a pair of surrogates) before U+FFFD; their bytes are in the other order.
    items = sorted((key.encode(), b"v") for key in ("abcd", "\U0001f600", "�a", "zzzz"))
    at = [key.decode() for key, _ in items]
    order = [at.index(key) for key in ("abcd", "zzzz", "\U0001f600", "�a")]
    reader = HFileReader.from_bytes(splice(items, order))
    assert [key.decode() for key, _ in reader.scan()] == ["abcd", "zzzz", "\U0001f600", "�a"]
    assert all(reader.get(key) == b"v" for key, _ in items)
    assert reader.get(b"nope") is None
    assert [key for key, _ in reader.scan("\U0001f600".encode())] == ["\U0001f600".encode()]


def test_transaction_numbers_of_several_bytes() -> None:
    cell = struct.pack(">iiH", 13, 1, 1) + b"a\0" + bytes(8) + b"\4" + b"v" + b"\x8e\x01\x00"
    assert decode_cells(cell * 2) == [(b"a", b"v")] * 2
    found: dict[bytes, bytes] = {}
    find_cells(cell + cell.replace(b"a", b"b"), [b"b"], found)
    assert found == {b"b": b"v"}
    with pytest.raises(CorruptFileError):
        decode_cells(cell[:-1])


def test_family_after_the_row_is_skipped() -> None:
    cell = struct.pack(">iiH", 15, 1, 1) + b"a\1fq" + bytes(8) + b"\4" + b"v\0"
    assert decode_cells(cell) == [(b"a", b"v")]


def test_key_bytes_within_a_value_are_no_key() -> None:
    inner = struct.pack(">H", 3) + b"key"
    reader = HFileReader.from_bytes(write_hfile([(b"a", inner), (b"z", b"")], info={}))
    assert reader.get(b"key") is None


def test_gzip_of_several_members() -> None:
    payload = b"one two"
    packed = zlib.compress(b"one ", 6, 31) + zlib.compress(b"two", 6, 31)
    head = struct.pack(">8siiqBii", DATA, len(packed), len(payload), -1, 0, 16384, HEADER_SIZE + len(packed))
    assert decode_block(head + packed, DATA, CODEC_GZIP, offset=0) == (payload, HEADER_SIZE + len(packed))


def test_first_of_several_cells_of_a_key_is_found() -> None:
    cell = struct.pack(">iiH", 13, 1, 1) + b"a\0" + bytes(8) + b"\4"
    found: dict[bytes, bytes] = {}
    find_cells(cell + b"1\0" + cell + b"2\0", [b"a"], found)
    assert found == {b"a": b"1"}


# ---------------------------------------------------------------------------------------------- damage


def test_declared_size_cannot_exhaust_memory() -> None:
    bomb = zlib.compress(bytes(50_000_000), 9, 31)
    tracemalloc.start()
    try:
        for declared in (10, 2**31 - 1, -1):
            head = struct.pack(">8siiqBii", DATA, len(bomb), declared, -1, 0, 16384, HEADER_SIZE + len(bomb))
            with pytest.raises(CorruptFileError):
                decode_block(head + bomb, DATA, CODEC_GZIP, offset=0)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_block_unpacks_to_what_a_real_one_holds() -> None:
    """Beyond 128 MiB a block is one large value, and those do not pack to a thousandth."""
    bomb = zlib.compress(bytes(1 << 20), 9, 31) * 129
    head = struct.pack(">8siiqBii", DATA, len(bomb), 129 << 20, -1, 0, 16384, HEADER_SIZE + len(bomb))
    with pytest.raises(CorruptFileError, match=r"t/x\.hfile: .*a payload that .* can hold"):
        decode_block(head + bomb, DATA, CODEC_GZIP, offset=0, path="t/x.hfile")


def test_a_call_unpacks_no_more_than_real_files_hold(limits: Limits) -> None:
    """What is held of all blocks together, of one file or of several, and whatever asks for it."""
    limits("lakedex.codec.hfile.blocks", SMALL_BYTES=3 << 20)
    zeros = [(b"%04d" % number, bytes(100_000)) for number in range(40)]
    reader = HFileReader.from_bytes(write_hfile(zeros, compression="gz", info={}), "t/x.hfile")
    calls: list[Callable[[], object]] = [
        lambda: list(reader.scan_prefixes([b""])),
        lambda: list(reader.scan(b"0")),
        lambda: reader.get_many(key for key, _ in zeros),
    ]
    for call in calls:
        with pytest.raises(CorruptFileError, match=r"t/x\.hfile: .*decompress to at most"):
            call()
    assert len(reader.get_many(key for key, _ in zeros[:20])) == 20
    budget = Budget()
    assert [len(list(reader.scan_prefixes([prefix], budget))) for prefix in (b"000", b"001")] == [10, 10]
    with pytest.raises(CorruptFileError, match="decompress to at most"):
        list(reader.scan_prefixes([b"002", b"003"], budget))
    assert sum(1 for _ in reader.scan()) == 40, "a block at a time"
    noise = random.Random(1)
    own = [(b"%04d" % number, noise.randbytes(100_000)) for number in range(40)]
    assert len(HFileReader.from_bytes(write_hfile(own, compression="gz", info={})).get_many(k for k, _ in own)) == 40


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_NONE])
@pytest.mark.parametrize(
    "at, value, offset",
    [(0, b"X", 100), (8, b"\xff", 108), (8, b"\x7f", 108), (29, b"\xff", 129), (29, b"\x7f", 129), (12, b"\x7f", 112)],
)
def test_block_header_damage_names_the_field(codec: int, at: int, value: bytes, offset: int) -> None:
    block = bytearray(encode_block(DATA, b"payload" * 5, codec))
    block[at : at + 1] = value
    with pytest.raises(CorruptFileError) as caught:
        decode_block(bytes(block), DATA, codec, offset=100, path="f")
    assert (caught.value.path, caught.value.offset) == ("f", offset)


def test_gzip_damage() -> None:
    block = bytearray(encode_block(DATA, b"payload" * 5, CODEC_GZIP))
    for at in range(HEADER_SIZE + 10, len(block) - 4):
        broken = bytearray(block)
        broken[at] ^= 0x55
        with pytest.raises(CorruptFileError):
            decode_block(bytes(broken), DATA, CODEC_GZIP, offset=0)
    short = struct.pack(">i", 34)
    for declared in (short, struct.pack(">i", 36)):
        with pytest.raises(CorruptFileError):
            decode_block(bytes(block[:12]) + declared + bytes(block[16:]), DATA, CODEC_GZIP, offset=0)


@pytest.mark.parametrize(
    "payload",
    [
        b"x",
        struct.pack(">iiH", 13, 100, 1) + bytes(20),
        struct.pack(">iiH", -5, 1, 1) + bytes(20),
        struct.pack(">iiH", 13, -1, 1) + bytes(20),
        struct.pack(">iiH", 13, 0, 2) + bytes(20),
        struct.pack(">iiH", 2**31 - 1, 2**31 - 1, 1) + bytes(20),
    ],
)
def test_cells_that_leave_their_block(payload: bytes) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_cells(payload, base=7, path="f")
    assert caught.value.offset == 7
    with pytest.raises(CorruptFileError):
        find_cells(payload, [b"%d" % i for i in range(20)], {}, base=7)


def test_index_that_asks_for_more_than_the_file_holds() -> None:
    entries = [IndexEntry(b"a", 0, 100), IndexEntry(b"b", 100, 100)]
    check_entries(entries, 200)
    for entry in (IndexEntry(b"b", 99, 100), IndexEntry(b"b", 100, 101), IndexEntry(b"b", 100, 32)):
        with pytest.raises(CorruptFileError):
            check_entries([entries[0], entry], 200)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        struct.pack(">i", -1),
        struct.pack(">i", 2**30),
        struct.pack(">iii", 1, 0, 100) + bytes(20),
        struct.pack(">iii", 1, 1, 20) + bytes(20),
        struct.pack(">iiii", 2, 0, -4, 20) + bytes(20),
        struct.pack(">iii", 1, 0, 13) + bytes(13),
        struct.pack(">iii", 1, 0, 14) + bytes(12) + b"\0\5",
    ],
)
def test_leaf_index_damage(payload: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_leaf_index(payload)


def test_root_index_damage() -> None:
    entry = struct.pack(">qibH", 0, 50, 3, 1) + b"k"
    assert decode_root_index(entry * 2, 2, levels=1) == [IndexEntry(b"k", 0, 50)] * 2
    assert decode_root_index(entry + bytes(16), 1, levels=2) == [IndexEntry(b"k", 0, 50)]
    for payload, count in ((entry, 2), (entry * 2, 1), (entry[:-1], 1), (entry + bytes(16), 1), (entry, 2**31)):
        with pytest.raises(CorruptFileError):
            decode_root_index(payload, count, levels=1)


def trailer_of(**changes: object) -> Trailer:
    return Trailer(**({"file_info_offset": 20, "load_on_open_offset": 10} | changes))  # type: ignore[arg-type]


def test_trailer_round_trip() -> None:
    trailer = trailer_of(data_index_count=3, total_uncompressed_bytes=5, codec=CODEC_GZIP, comparator="x")
    data = encode_trailer(trailer)
    assert len(data) == TRAILER_SIZE
    assert decode_trailer(data, offset=100) == trailer


@pytest.mark.parametrize(
    "changes",
    [
        {"codec": 3},
        {"file_info_offset": 101},
        {"load_on_open_offset": 21},
        {"load_on_open_offset": -1},
        {"data_index_levels": 0},
        {"data_index_levels": 17},
        {"entry_count": -1},
    ],
)
def test_trailer_with_numbers_that_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptFileError):
        decode_trailer(encode_trailer(trailer_of(**changes)), offset=100)


def test_codec_is_named() -> None:
    with pytest.raises(CorruptFileError, match="found 3 \\(snappy\\)"):
        decode_trailer(encode_trailer(trailer_of(codec=3)), offset=100)


def test_trailer_damage() -> None:
    good = encode_trailer(trailer_of())
    message = b'TRABLK"$'
    bad = [
        good[:-1],
        b"X" + good[1:],
        good[:-1] + b"\2",
        message + b"\xff\x7f" + good[10:],
        message + b"\2\x0b\1" + bytes(TRAILER_SIZE - 14) + b"\0\0\3",
        message + b"\2\x0a\x7f" + bytes(TRAILER_SIZE - 14) + b"\0\0\3",
        message + b"\2\x0a\0" + bytes(TRAILER_SIZE - 14) + b"\0\0\3",
    ]
    for data in bad:
        with pytest.raises(CorruptFileError):
            decode_trailer(data, offset=100)


def test_unknown_trailer_fields_are_skipped() -> None:
    good = encode_trailer(trailer_of())
    size = good[8]
    extra = b"\x6a\2ab\x75" + bytes(4) + b"\x79" + bytes(8)
    data = good[:8] + bytes((size + len(extra),)) + good[9 : 9 + size] + extra
    data += bytes(TRAILER_SIZE - len(data) - 1) + b"\3"
    assert decode_trailer(data, offset=100) == trailer_of()


@pytest.mark.parametrize("size", [0, 10, 4095, 4096])
def test_bytes_that_are_no_hfile(size: int) -> None:
    reader = HFileReader.from_bytes(bytes(size), "f")
    with pytest.raises(CorruptFileError):
        reader.get(b"a")


def test_wrong_number_of_cells_shows_in_a_full_scan() -> None:
    data = write_hfile(rows(9), compression="none", info={})
    trailer = HFileReader.from_bytes(data).trailer
    other = Trailer(**{name: getattr(trailer, name) for name in Trailer.__slots__} | {"entry_count": 8})
    with pytest.raises(CorruptFileError, match="expected 8 cells, found 9"):
        list(HFileReader.from_bytes(data[:-TRAILER_SIZE] + encode_trailer(other)).scan())


def test_tags_are_refused_by_name() -> None:
    data = write_hfile(rows(9), info={"hfile.MAX_TAGS_LEN": bytes(4)})
    with pytest.raises(UnsupportedFeatureError, match="tags"):
        HFileReader.from_bytes(data).get(b"a")


def test_every_truncation_is_damage() -> None:
    data = write_hfile(rows(20), info={})
    for size in range(0, len(data), 13):
        with pytest.raises(CorruptFileError):
            list(HFileReader.from_bytes(data[:size]).scan())


def test_very_many_gzip_members_take_no_more_time_than_their_bytes() -> None:
    """zlib copies what a member leaves over, so 60,000 members of 20 bytes cost 36 GB of copies."""
    payload = b"x" * 100
    stream = zlib.compress(b"", 6, 31) * 60_000 + zlib.compress(payload, 6, 31)
    header = struct.pack(">8siiqBii", DATA, len(stream), len(payload), -1, 0, 16384, HEADER_SIZE + len(stream))
    started = time.process_time()
    assert decode_block(header + stream, DATA, CODEC_GZIP, offset=0) == (payload, HEADER_SIZE + len(stream))
    assert time.process_time() - started < 1


@pytest.mark.parametrize("tail", [b"", b"\x1f", zlib.compress(b"", 6, 31)[:-1]])
def test_members_without_an_end_are_damage(tail: bytes) -> None:
    stream = (zlib.compress(b"ab", 6, 31) + tail)[: None if tail else -1]
    header = struct.pack(">8siiqBii", DATA, len(stream), 2, -1, 0, 16384, HEADER_SIZE + len(stream))
    with pytest.raises(CorruptFileError, match="no end"):
        decode_block(header + stream, DATA, CODEC_GZIP, offset=0)


def test_text_without_repetitions_comes_out_no_longer_than_from_zlib() -> None:
    """Base64, as bloom filters and bitmaps are: three quarters."""
    text = base64.b64encode(random.Random(7).randbytes(150_000))
    packed = write_hfile([(b"k", text)], info={})
    assert len(packed) < len(zlib.compress(text, 6)) + 4_500  # Trailer and index.
    assert HFileReader.from_bytes(packed).get(b"k") == text
    assert len(write_hfile([(b"k", b"the same again " * 10_000)], info={})) < 6_000


@pytest.mark.parametrize("name", [b"", b"a name\0"])
def test_gzip_header_with_a_name_is_read(name: bytes) -> None:
    packed = zlib.compress(b"payload", 6, 31)
    packed = packed[:3] + (b"\x08" if name else b"\0") + packed[4:10] + name + packed[10:]
    head = struct.pack(">8siiqBii", DATA, len(packed), 7, -1, 0, 16384, HEADER_SIZE + len(packed))
    assert decode_block(head + packed, DATA, CODEC_GZIP, offset=0)[0] == b"payload"
