"""Bitmaps as bytes: R90, R100, R101, lessons B38. What Java writes is in ``tests/golden/bitmap``."""

from __future__ import annotations

import base64
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from lakedex.codec.roaring import bitmap_of, decode_bitmap, deserialize_bitmap, encode_bitmap, serialize_bitmap
from lakedex.errors import CorruptFileError
from roaring_cases import cases, golden


@pytest.mark.parametrize("name", cases())
def test_the_bytes_are_those_of_java(name: str) -> None:
    """R101: portable form, both ways."""
    positions, data = cases()[name], golden()[name]
    assert serialize_bitmap(bitmap_of(positions)) == data
    assert np.array_equal(np.array(deserialize_bitmap(data), np.uint32), positions)
    assert decode_bitmap(encode_bitmap(bitmap_of(positions))) == bitmap_of(positions)


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
    assert found.copy() == BitMap(positions.tolist())


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
