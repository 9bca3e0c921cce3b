from __future__ import annotations

import pytest

from lakedex.codec.varint import decode_varint, decode_vlong, encode_varint, encode_vlong, vlong_size
from lakedex.errors import CorruptFileError


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "00"),
        (127, "7f"),
        (-1, "ff"),
        (-112, "90"),
        (128, "8f80"),
        (255, "8fff"),
        (256, "8e0100"),
        (-113, "8770"),
        (-256, "87ff"),
        (-257, "860100"),
        (2**63 - 1, "887fffffffffffffff"),
        (-(2**63), "807fffffffffffffff"),
    ],
)
def test_vlong_has_the_bytes_of_hadoop(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_vlong(value) == data
    assert decode_vlong(b"?" + data + b"?", 1) == (value, 1 + len(data))
    assert vlong_size(data[0]) == len(data)


@pytest.mark.parametrize(
    "value, text", [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")]
)
def test_varint_has_the_bytes_of_protobuf(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_varint(value) == data
    assert decode_varint(b"?" + data + b"?", 1) == (value, 1 + len(data))


def test_negative_varint_is_its_64_bit_complement() -> None:
    assert decode_varint(encode_varint(-1), 0) == (2**64 - 1, 10)


@pytest.mark.parametrize("text", ["", "8f", "8801020304050607", "8880" + "00" * 7])
def test_broken_vlong_names_its_place(text: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_vlong(bytes.fromhex(text), 0, path="f", base=100)
    assert (caught.value.path, caught.value.offset) == ("f", 100)


@pytest.mark.parametrize("text", ["", "80", "ff" * 10 + "01"])
def test_broken_varint_names_its_place(text: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        decode_varint(bytes.fromhex(text), 0, path="f", base=100)
    assert (caught.value.path, caught.value.offset) == ("f", 100)
