"""Bloom filters and Java's hash against plain code, for arbitrary keys."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex.codec.bloom import DYNAMIC, SIMPLE, BloomBuilder, KeyProbe, build_bloom, decode_bloom, hash_keys
from lakedex.codec.hashing import file_group_index, file_group_index_many, java_hash
from lakedex.errors import CorruptFileError

MASK = 0xFFFFFFFF
KEYS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), max_size=30)


def murmur(data, seed):
    """MurmurHash.hash, byte by byte."""
    m = 0x5BD1E995
    h = (seed ^ len(data)) & MASK
    for at in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & MASK
        k = (k ^ k >> 24) * m & MASK
        h = (h * m & MASK) ^ k
    left = len(data) & 3
    if left:
        for back in range(left, 0, -1):
            byte = data[-back]
            h ^= ((byte - 256 if byte > 127 else byte) << (8 * (back - 1))) & MASK
        h = h * m & MASK
    h = (h ^ h >> 13) * m & MASK
    return h ^ h >> 15


def chain(key, count):
    seed, out = 0, []
    for _ in range(count):
        seed = murmur(key.encode(), seed)
        out.append(min(seed, (1 << 32) - seed))
    return out


@given(KEYS, st.integers(1, 40), st.booleans())
def test_hash_chain_is_murmur(keys, count, large):
    array = pa.array(["pad", *keys, "pad"], pa.large_string() if large else pa.string()).slice(1, len(keys))
    assert hash_keys(array, count).hashes.T.tolist() == [chain(key, count) for key in keys]


@given(KEYS, st.integers(1, 12), st.integers(1, 40), st.sampled_from([SIMPLE, DYNAMIC]), st.integers(0, 30))
def test_batches_do_not_matter_and_members_are_found(keys, entries, most, code, cut):
    settings = {"num_entries": entries, "fpp": 0.05, "type_code": code, "max_entries": most}
    array = pa.array(keys, pa.string())
    bloom = build_bloom(array, **settings)
    builder = BloomBuilder(**settings)
    builder.add(array.slice(0, cut))
    builder.add(pa.chunked_array([array.slice(cut)]))
    assert builder.finish().encode() == bloom.encode()
    again = decode_bloom(bloom.encode(), code)
    assert again.encode() == bloom.encode()
    assert again.probe(array).all()
    assert again.probe(hash_keys(array, 1)).all()


@given(st.binary(max_size=80), st.sampled_from([SIMPLE, DYNAMIC]))
def test_any_bytes_are_a_filter_or_damage(data, code):
    try:
        decode_bloom(data, code)
    except CorruptFileError:
        pass


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(1, 100_000))
def test_java_hash_is_the_sum_over_utf16(keys, n):
    def plain(text):
        units = text.encode("utf-16-be", "surrogatepass")
        h = 0
        for at in range(0, len(units), 2):
            h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & MASK
        return h - (1 << 32) if h >> 31 else h

    assert [java_hash(key) for key in keys] == [plain(key) for key in keys]
    wanted = [abs(plain(key)) % n for key in keys]
    assert file_group_index_many(keys, n).tolist() == wanted
    assert [file_group_index(key, n) for key in keys] == wanted


@settings(deadline=None)
@given(st.data())
def test_a_probe_of_many_filters_finds_what_each_finds(data: st.DataObject) -> None:
    """Of any size, one after the other, in any part of the keys."""
    keys = pa.array(sorted(data.draw(st.sets(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=60))))
    asked = KeyProbe(keys)
    for _ in range(data.draw(st.integers(1, 6))):
        held = data.draw(st.lists(st.sampled_from(keys.to_pylist()), max_size=30))
        bloom = build_bloom(
            pa.array(held, pa.string()),
            num_entries=data.draw(st.sampled_from([5, 5, 40])),
            fpp=data.draw(st.sampled_from([1e-9, 0.3, 0.3, 0.9])),
            type_code=data.draw(st.sampled_from(["SIMPLE", "DYNAMIC_V0"])),
            max_entries=data.draw(st.sampled_from([5, 20])),
        )
        start = data.draw(st.integers(0, len(keys)))
        end = data.draw(st.integers(start, len(keys)))
        wanted = np.flatnonzero(bloom.probe(keys))
        assert asked.passing(bloom, start, end).tolist() == [row for row in wanted.tolist() if start <= row < end]
