"""Thrift trees: footers of Java and of Arrow come back byte for byte, damage is an error."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_tables import ALL, TABLES
from lakedex.codec.thrift import Struct, decode_struct, encode_struct, structs
from lakedex.errors import CorruptFileError

NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLAIN = {5: NUMBERS, 6: NUMBERS, 7: st.binary(min_size=8, max_size=8), 8: st.binary(max_size=20)}


def _of(kind: int, deeper: st.SearchStrategy[Struct]) -> st.SearchStrategy[Any]:
    if kind in (1, 2):
        return st.none()
    if kind == 3:
        return st.integers(0, 255)
    if kind in (9, 10):
        return st.one_of(*[st.tuples(st.just(of), st.lists(plain, max_size=20)) for of, plain in PLAIN.items()])
    if kind == 11:
        pairs = st.lists(st.tuples(st.binary(max_size=3), NUMBERS), min_size=1, max_size=4)
        return st.one_of(st.tuples(st.just(8), st.just(6), pairs), st.just((0, 0, [])))
    return deeper if kind == 12 else PLAIN[kind]


def _structs(deeper: st.SearchStrategy[Struct]) -> st.SearchStrategy[Struct]:
    kinds = [1, 2, 3, *PLAIN, 9, 10, 11, 12]
    values = st.one_of(*[st.tuples(st.just(kind), _of(kind, deeper)) for kind in kinds])
    return st.dictionaries(st.integers(1, 2000), values, max_size=6)


TREES = st.recursive(st.just({}), _structs, max_leaves=8)


@given(tree=TREES, rest=st.binary(max_size=3))
def test_a_tree_comes_back(tree: Struct, rest: bytes) -> None:
    assert decode_struct(encode_struct(tree) + rest) == tree


@given(tree=TREES, cut=st.integers(1, 40), bits=st.integers(1, 255), place=st.integers(0, 2**20))
def test_damage_is_an_error_or_another_tree(tree: Struct, cut: int, bits: int, place: int) -> None:
    whole = encode_struct(tree)
    with pytest.raises(CorruptFileError, match="here"):
        decode_struct(whole[:-cut], "here")
    broken = bytearray(whole)
    broken[place % len(broken)] ^= bits
    with suppress(CorruptFileError):
        encode_struct(decode_struct(bytes(broken), "here"))


def _footers(name: str) -> Iterator[bytes]:
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        for member in archive.namelist():
            content = archive.read(member) if member.endswith(".parquet") else b""
            if content[-4:] == b"PAR1":
                yield content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


@pytest.mark.parametrize("name", ALL)
def test_footers_of_hudi_come_back_byte_for_byte(name: str) -> None:
    found = list(_footers(name))
    for footer in found:
        tree = decode_struct(footer)
        assert encode_struct(tree) == footer
        assert sum(group[3][1] for group in structs(tree, 4)) == tree[3][1]


def test_footers_of_arrow_come_back_byte_for_byte() -> None:
    nested = pa.schema([("s", pa.struct([("x", pa.list_(pa.float64()))])), ("m", pa.map_(pa.string(), pa.int32()))])
    rows = pa.table({"s": [{"x": [1.5, None]}] * 40, "m": [[("k", 1)]] * 40}, schema=nested)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=2)
    content = sink.getvalue().to_pybytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    assert encode_struct(decode_struct(footer)) == footer
    assert len(structs(decode_struct(footer), 4)) == 20


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "a Thrift value"),
        (b"\x18\x05ab", "5 bytes"),
        (b"\x1d", "a kind"),
        (b"\x19\xfc\xff\xff\xff\xff\x07", "elements"),
        (b"\x1b\xff\x7f", "elements"),
        (b"\x16" + b"\xff" * 11, "varint"),
        (b"\x1c" * 100, "levels"),
    ],
)
def test_what_is_damaged_is_said(data: bytes, expected: str) -> None:
    """Sizes that no bytes stand behind ask for no memory, depth without end for no stack."""
    with pytest.raises(CorruptFileError, match=expected):
        decode_struct(data)
