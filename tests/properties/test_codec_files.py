"""HFiles and log blocks: whatever is written is read, and damaged bytes are an error or do no harm."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from lakedex.codec.hfile.blocks import CODEC_GZIP, CODEC_NONE, DATA, decode_block
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import CREATE_TIME, write_hfile
from lakedex.codec.log_block import (
    BLOCK_TYPES,
    HEADER_KEYS,
    decode_delete_block,
    decode_log_blocks,
    encode_delete_block,
    encode_log_block,
    read_block_headers,
)
from lakedex.codec.varint import decode_varint, decode_vlong, encode_varint, encode_vlong
from lakedex.errors import CorruptFileError

KEYS = st.binary(min_size=1, max_size=40) | st.text("ab", min_size=1, max_size=6).map(str.encode)
CELLS = st.dictionaries(KEYS, st.binary(max_size=60), max_size=60).map(lambda cells: dict(sorted(cells.items())))
COMPRESSION = st.sampled_from(["gz", "none"])
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
HEADERS = st.dictionaries(st.sampled_from(HEADER_KEYS), TEXT)
TYPES = st.sampled_from([kind for kind in BLOCK_TYPES if kind != "CORRUPT"])


@st.composite
def damage(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A change to a byte or two, a cut, or something put in; half of them near one of the ends."""
    kind = draw(st.sampled_from(["flip", "flip", "flip2", "cut", "insert", "tail"]))
    where = draw(st.floats(0, 1, exclude_max=True))
    near = draw(st.sampled_from([0, 0, 200, -200]))
    bits = draw(st.integers(1, 255))
    extra = draw(st.binary(min_size=1, max_size=5))

    def apply(data: bytes) -> bytes:
        span = abs(near) or len(data)
        at = int(where * min(span, len(data))) if near >= 0 else len(data) - 1 - int(where * min(span, len(data)))
        broken = bytearray(data)
        if kind in ("flip", "flip2"):
            broken[at] ^= bits
            if kind == "flip2":
                broken[(at * 7 + bits) % len(broken)] ^= bits
        elif kind == "cut":
            del broken[at : at + bits]
        elif kind == "insert":
            broken[at:at] = extra
        else:
            broken = broken[:at]
        return bytes(broken)

    return apply


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_vlong_round_trip(value: int, tail: bytes) -> None:
    data = encode_vlong(value)
    assert decode_vlong(data + tail, 0) == (value, len(data))


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_varint_round_trip(value: int, tail: bytes) -> None:
    data = encode_varint(value)
    assert decode_varint(data + tail, 0) == (value, len(data))


@given(CELLS, COMPRESSION, st.integers(1, 400), st.dictionaries(TEXT, st.binary(max_size=50), max_size=3))
@example({b"\x00": b""}, "gz", 1, {"hfile.LASTKEY": b"", "hfile.CREATE_TIME_TS": bytes(8)})
def test_hfile_round_trip(
    cells: dict[bytes, bytes], compression: str, block_size: int, extra: dict[str, bytes]
) -> None:
    data = write_hfile(cells.items(), compression=compression, block_size=block_size, info=extra, meta=extra)
    reader = HFileReader.from_bytes(data)
    assert list(reader.scan()) == list(cells.items())
    assert reader.entry_count == len(cells)
    computed = dict(HFileReader.from_bytes(write_hfile(cells.items(), info={})).info)
    created = {CREATE_TIME: computed.pop(CREATE_TIME)}
    assert dict(reader.info) == {**created, **extra, **computed}
    assert {name: reader.meta(name) for name in reader.meta_names} == extra


@given(CELLS, COMPRESSION, st.integers(1, 400), st.lists(KEYS, max_size=20))
def test_lookups_agree_with_a_dict(
    cells: dict[bytes, bytes], compression: str, block_size: int, others: list[bytes]
) -> None:
    reader = HFileReader.from_bytes(write_hfile(cells.items(), compression=compression, block_size=block_size, info={}))
    asked = [*others, *list(cells)[::2]]
    assert list(reader.get_many(asked).items()) == [(key, cells[key]) for key in sorted(set(asked)) if key in cells]
    for key in others:
        assert reader.get(key) == cells.get(key)
        prefix = key[:2]
        assert list(reader.scan(prefix)) == [cell for cell in cells.items() if cell[0].startswith(prefix)]
    prefixes = tuple(key[:2] for key in others)
    assert list(reader.scan_prefixes(prefixes)) == [cell for cell in cells.items() if cell[0].startswith(prefixes)]


def use(data: bytes, cells: dict[bytes, bytes]) -> tuple[list[tuple[bytes, bytes]], dict[bytes, bytes]]:
    reader = HFileReader.from_bytes(data, "f")
    for name in reader.meta_names:
        reader.meta(name)
    return list(reader.scan()), reader.get_many([*cells, b"other"])


@given(CELLS, st.integers(1, 400), damage())
def test_damaged_gzip_hfile_is_an_error_or_right(
    cells: dict[bytes, bytes], block_size: int, broken: Callable[[bytes], bytes]
) -> None:
    data = write_hfile(cells.items(), compression="gz", block_size=block_size, info={"schema": b"{}"}, meta={"m": b"x"})
    try:
        found = use(broken(data), cells)
    except CorruptFileError:
        return
    assert found == (list(cells.items()), cells)


@given(CELLS, st.integers(1, 400), damage())
def test_damaged_plain_hfile_raises_nothing_else(
    cells: dict[bytes, bytes], block_size: int, broken: Callable[[bytes], bytes]
) -> None:
    # Without compression there is no checksum, so changed keys and values go unnoticed; their number does not.
    data = write_hfile(cells.items(), compression="none", block_size=block_size, info={"s": b"{}"}, meta={"m": b"x"})
    try:
        found, _ = use(broken(data), cells)
    except CorruptFileError:
        return
    assert sum(len(key) + len(value) for key, value in found) <= len(data)


@given(st.binary(max_size=200), st.sampled_from([CODEC_GZIP, CODEC_NONE]))
def test_arbitrary_bytes_are_no_block(data: bytes, codec: int) -> None:
    try:
        decode_block(DATA + data, DATA, codec, offset=0)
    except CorruptFileError:
        return


@given(st.lists(st.tuples(TYPES, HEADERS, st.binary(max_size=100)), max_size=4))
def test_log_round_trip(blocks: list[tuple[str, dict[str, str], bytes]]) -> None:
    data = b"".join(encode_log_block(*block) for block in blocks)
    found = decode_log_blocks(data)
    assert [(block.block_type, block.header, bytes(block.content)) for block in found] == blocks
    headers = read_block_headers(lambda ranges: [data[start:end] for start, end in ranges], len(data))
    assert [block.content_offset for block in headers] == [block.content_offset for block in found]


@given(st.lists(st.tuples(TYPES, HEADERS, st.binary(max_size=100)), min_size=1, max_size=3), damage())
def test_damaged_log_raises_nothing_else(
    blocks: list[tuple[str, dict[str, str], bytes]], broken: Callable[[bytes], bytes]
) -> None:
    data = broken(b"".join(encode_log_block(*block) for block in blocks))
    outcomes = []
    for read in (
        lambda: decode_log_blocks(data, "f"),
        lambda: read_block_headers(lambda ranges: [data[start:end] for start, end in ranges], len(data), "f"),
    ):
        try:
            outcomes.append([(block.block_type, block.header, block.content_offset) for block in read()])
        except CorruptFileError as error:
            outcomes.append((error.offset, error.expected, error.found))
    assert outcomes[0] == outcomes[1]


WRAPPERS = st.none() | st.integers(-(2**63), 2**63 - 1).map(
    lambda value: ("org.apache.hudi.avro.model.LongWrapper", {"value": value})
)
DELETES = st.fixed_dictionaries(
    {"recordKey": st.none() | TEXT, "partitionPath": st.none() | TEXT, "orderingVal": WRAPPERS}
)


@given(st.lists(DELETES, max_size=5))
def test_delete_block_round_trip(records: list[dict[str, object]]) -> None:
    assert decode_delete_block(encode_delete_block(records)) == records


@given(st.lists(DELETES, min_size=1, max_size=5), damage())
def test_damaged_delete_block_raises_nothing_else(
    records: list[dict[str, object]], broken: Callable[[bytes], bytes]
) -> None:
    try:
        found = decode_delete_block(broken(encode_delete_block(records)), "f")
    except CorruptFileError:
        return
    assert len(found) < 1000
