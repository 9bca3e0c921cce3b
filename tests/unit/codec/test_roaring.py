"""Bitmaps as bytes: R90, R100, R101. What Java writes is in ``tests/golden/bitmap``."""

from __future__ import annotations

import base64
import struct
from array import array

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from lakedex.codec.roaring import (
    bitmap_of,
    decode_bitmap,
    deserialize_bitmap,
    encode_bitmap,
    serialize_bitmap,
    serialize_bitmaps,
)
from lakedex.errors import CorruptFileError
from roaring_cases import cases, golden


@pytest.mark.parametrize("name", cases())
def test_the_bytes_are_those_of_java(name: str) -> None:
    """R101: portable form, both ways."""
    positions, data = cases()[name], golden()[name]
    assert serialize_bitmap(bitmap_of(positions)) == data
    assert np.array_equal(np.array(deserialize_bitmap(data), np.uint32), positions)
    assert decode_bitmap(encode_bitmap(bitmap_of(positions))) == bitmap_of(positions)


@pytest.mark.parametrize("name", [name for name, own in cases().items() if own.max(initial=0) < 1 << 22])
def test_all_bitmaps_of_a_column_have_the_bytes_of_java(name: str) -> None:
    """R101: the positions of one number among those of two others."""
    positions = cases()[name]
    numbers = np.zeros(int(positions.max(initial=0)) + 2, np.uint8)
    numbers[1::2] = 2
    numbers[positions] = 1
    counts, found = serialize_bitmaps(numbers, 4)
    assert found[1] == golden()[name]
    assert_each_is_as_alone(numbers, 4)
    assert counts[3] == 0 and found[3] == serialize_bitmap(BitMap())


def assert_each_is_as_alone(numbers: npt.NDArray[np.unsignedinteger], count: int) -> None:
    """What is made for all numbers at once is what CRoaring makes for each."""
    counts, found = serialize_bitmaps(numbers, count)
    for number in range(count):
        positions = np.flatnonzero(numbers == number).astype(np.uint32)
        assert counts[number] == len(positions)
        assert found[number] == serialize_bitmap(bitmap_of(positions)), number


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 40) | st.sampled_from([4095, 4096, 4097, 65_536])), max_size=40
    ),
    st.sampled_from([np.uint8, np.uint16, np.uint32]),
    st.integers(0, 2**32 - 1),
)
def test_all_bitmaps_of_a_column_are_those_of_croaring(spans: list[tuple[int, int]], kind: type, seed: int) -> None:
    """Stretches of one number, of none in particular (0), and of every second row (6)."""
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, 4, size) if own == 0 else np.full(size, own) for own, size in spans]
    for (own, size), part in zip(spans, parts, strict=True):
        if own == 6:
            part[: size // 2 * 2 : 2] = 5
    assert_each_is_as_alone(np.concatenate([np.empty(0), *parts]).astype(kind), 8)


@pytest.mark.parametrize("runs", range(2040, 2056))
def test_as_many_runs_as_make_a_bitset_as_small(runs: int) -> None:
    numbers = np.zeros(65_536, np.uint8)
    numbers[(np.arange(runs)[:, None] * 8 + np.arange(3)).ravel()] = 1
    assert_each_is_as_alone(numbers, 2)


def test_all_kinds_of_containers_are_among_the_cases() -> None:
    cookies = {struct.unpack_from("<H", data)[0] for data in golden().values()}
    assert cookies == {12346, 12347}
    assert max(len(data) for data in golden().values()) > 2 * 8192, "bitsets of 8 KiB"
    assert golden()["run over containers"][4:5] == b"\x0f", "all four containers are runs"


@given(st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 70_000), max_size=300))
def test_any_set_comes_back(positions: set[int]) -> None:
    bitmap = bitmap_of(np.array(list(positions), np.uint32))
    assert set(decode_bitmap(encode_bitmap(bitmap))) == positions


def test_positions_in_any_order_count_once() -> None:
    assert list(bitmap_of(np.array([5, 1, 5, 2**32 - 1, 0], np.uint32))) == [0, 1, 5, 2**32 - 1]
    assert list(bitmap_of(np.arange(10, dtype=np.uint32)[::3])) == [0, 3, 6, 9]


def test_a_low_cardinality_column_is_compact() -> None:
    """R90: half of a million rows in a block takes a few bytes; scattered, a bit a row."""
    assert len(serialize_bitmap(bitmap_of(np.arange(500_000, dtype=np.uint32)))) < 150
    scattered = np.flatnonzero(np.random.default_rng(1).random(1_000_000) < 0.5).astype(np.uint32)
    assert len(serialize_bitmap(bitmap_of(scattered))) < 1_000_000 / 8 * 1.06


@pytest.mark.parametrize("name", cases())
def test_every_truncation_is_an_error(name: str) -> None:
    data = golden()[name]
    lengths = range(len(data)) if len(data) < 600 else [*range(300), *range(300, len(data), 97), len(data) - 1]
    for length in lengths:
        with pytest.raises(CorruptFileError):
            deserialize_bitmap(data[:length])
    with pytest.raises(CorruptFileError):
        deserialize_bitmap(data + b"\0")


def same_or_error(data: bytes) -> None:
    """Damaged bytes raise, or are the bytes of a bitmap: never a set that is no set."""
    try:
        found = deserialize_bitmap(data)
    except CorruptFileError:
        return
    positions = np.array(found, np.uint64)
    assert (np.diff(positions.astype(np.int64)) > 0).all() and len(positions) == len(found)
    assert found.copy() == BitMap(array("I", positions.astype(np.uint32).tobytes()))


@pytest.mark.parametrize("name", [name for name, data in golden().items() if len(data) < 2_000])
def test_every_flipped_bit_is_an_error_or_another_bitmap(name: str) -> None:
    data = bytearray(golden()[name])
    places = range(len(data)) if len(data) < 200 else [*range(100), *range(100, len(data), 31)]
    for place in places:
        for bit in range(8):
            data[place] ^= 1 << bit
            same_or_error(bytes(data))
            data[place] ^= 1 << bit


@given(st.binary(max_size=64), st.sampled_from([b"", b"\x3a\x30\0\0", b"\x3b\x30\0\0", b"\x3b\x30\x03\0"]))
def test_any_bytes_raise_or_are_a_bitmap(data: bytes, start: bytes) -> None:
    same_or_error(start + data)


@pytest.mark.parametrize(
    "data, found",
    [
        (BitMap64([3, 4, 100]).serialize(), "portable 32-bit"),
        (b"\x02" + BitMap([3, 4, 100]).serialize(), "portable 32-bit"),
        (struct.pack("<II", 12346, 65_537) + bytes(600_000), "at most 65536 containers"),
        (b"", "no bytes"),
    ],
    ids=["64 bit", "CRoaring's own form", "too many containers", "nothing"],
)
def test_other_forms_are_refused(data: bytes, found: str) -> None:
    with pytest.raises(CorruptFileError, match=found):
        deserialize_bitmap(data)


def test_rows_past_the_file_are_refused() -> None:
    data = serialize_bitmap(BitMap([0, 9]))
    assert list(deserialize_bitmap(data, rows=10)) == [0, 9]
    with pytest.raises(CorruptFileError, match="below 9") as raised:
        deserialize_bitmap(data, rows=9, path="a/run.hfile")
    assert raised.value.path == "a/run.hfile"
    assert list(deserialize_bitmap(serialize_bitmap(BitMap()), rows=0)) == []


@pytest.mark.parametrize("text", ["", "*", "OjAAAA=", "é", "OjAA\nAAAAAAA=", "OjAAAAEAAAAAAAAAEAAAAAA"])
def test_text_that_is_no_base64_of_a_bitmap(text: str) -> None:
    with pytest.raises(CorruptFileError):
        decode_bitmap(text)


def test_the_text_is_plain_base64() -> None:
    """R100: a string, without line breaks, in the alphabet that ``java.util.Base64.getDecoder`` takes."""
    text = encode_bitmap(bitmap_of(np.arange(0, 60_000, 3, dtype=np.uint32)))
    assert base64.b64decode(text, validate=True)[:4] == b"\x3a\x30\0\0"
