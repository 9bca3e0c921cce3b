"""Bloom filters against those that Hudi 1.1.1 built."""

import base64
import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakedex.codec.bloom import DYNAMIC, SIMPLE, BloomBuilder, build_bloom, decode_bloom, filter_size, hash_keys
from lakedex.errors import CorruptFileError, InvalidInputError

VECTORS = Path(__file__).parents[2] / "golden" / "vectors"


def load(name):
    return json.loads((VECTORS / name).read_text("utf-8"))["data"]


CASES = load("bloom_simple.json") + load("bloom_dynamic.json")


def name_of(case):
    return f"{case['type']}-{case['num_entries']}-{case['fpp']}-{case['dynamic_max_entries']}-{case['num_keys']}"


def keys_of(case):
    return case["keys"] if case["keys"] is not None else [f"key-{i:06d}" for i in range(case["num_keys"])]


def settings(case):
    return {
        "num_entries": case["num_entries"],
        "fpp": case["fpp"],
        "type_code": case["type"],
        "max_entries": case["dynamic_max_entries"],
    }


def digest(text):
    return hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_built_like_java(case):
    text = build_bloom(pa.array(keys_of(case), pa.string()), **settings(case)).encode()
    assert digest(text) == case["serialized_sha256"]
    assert case["serialized"] in (None, text.decode())


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_built_in_batches_like_java(case):
    builder = BloomBuilder(**settings(case))
    keys = pa.array(["before", *keys_of(case), "after"], pa.large_string())
    at, end = 1, len(keys) - 1
    for size in (1, 2, 3, 5, 7, 11, end):
        count = min(size, end - at)
        builder.add(keys.slice(at, count))
        at += count
    assert digest(builder.finish().encode()) == case["serialized_sha256"]


@pytest.mark.parametrize("case", [case for case in CASES if case["serialized"]], ids=name_of)
def test_decoded_and_encoded_again(case):
    bloom = decode_bloom(case["serialized"], case["type"])
    assert bloom.encode().decode() == case["serialized"]
    keys, wanted = zip(*case["probes"], strict=True)
    assert bloom.probe(pa.array(keys)).tolist() == list(wanted)
    assert bloom.probe(pa.chunked_array([keys[:9], keys[9:]], pa.large_string())).tolist() == list(wanted)


@pytest.mark.parametrize("case", load("bloom_sizing.json"), ids=lambda case: f"{case['num_entries']}-{case['fpp']}")
def test_sized_like_java(case):
    assert filter_size(case["num_entries"], case["fpp"]) == (case["bit_size"], case["num_hashes"])


def test_first_hash_is_murmur_with_seed_zero():
    wanted = {}
    for case in load("murmur.json"):
        data = bytes.fromhex(case["hex"])
        try:
            key = data.decode()
        except UnicodeDecodeError:
            continue
        if case["seed"] == 0 and key:
            wanted[key] = abs(case["hash"])
    hashed = hash_keys(pa.array(list(wanted)), 1)
    assert hashed.hashes[0].tolist() == list(wanted.values())
    assert len(wanted) > 8


def test_keys_hashed_once_probe_filters_of_other_sizes():
    keys = pa.array([f"k{i}" for i in range(300)])
    few = build_bloom(keys.slice(0, 100), num_entries=100, fpp=0.01)
    many = build_bloom(keys.slice(100), num_entries=5000, fpp=1e-9, type_code=SIMPLE)
    hashed = hash_keys(keys, few.num_hashes)
    assert len(hashed) == 300
    for bloom in (few, many):  # the second one needs more hashes than there are
        assert bloom.probe(hashed).tolist() == bloom.probe(keys).tolist()
    assert few.probe(hashed)[:100].all()
    assert many.probe(hashed)[100:].all()
    assert not many.probe(hashed)[:100].any()


def test_more_keys_than_a_block_and_uneven_lengths():
    keys = ["é" * (i % 7) + "x" * (i % 31) + str(i) for i in range(40_000)]
    whole = build_bloom(pa.array(keys), num_entries=60_000, fpp=1e-6)
    reversed_keys = pa.chunked_array([keys[:15_000:-1], keys[15_000::-1]])
    assert build_bloom(reversed_keys, num_entries=60_000, fpp=1e-6).encode() == whole.encode()
    assert whole.probe(pa.array(keys[::-7])).all()
    assert whole.probe(pa.array([f"absent-{i}" for i in range(2000)])).sum() == 0


def test_other_string_types():
    plain = pa.array(["a", "bb", "a", "cccc"])
    wanted = build_bloom(plain, num_entries=10, fpp=0.01).encode()
    for keys in (plain.dictionary_encode(), plain.cast(pa.string_view()), plain.cast(pa.large_string())):
        assert build_bloom(keys, num_entries=10, fpp=0.01).encode() == wanted


@pytest.mark.parametrize(
    "keys, message",
    [
        (pa.array(["a", None]), "1 null record key"),
        (pa.array(["a", "", ""]), "2 empty record key"),
        (pa.array([1, 2]), "must be a string"),
        (pa.array([b"a"]), "must be a string"),
    ],
)
def test_unusable_keys_are_refused(keys, message):
    builder = BloomBuilder(num_entries=10, fpp=0.01)
    before = builder.finish()
    with pytest.raises(InvalidInputError, match=message):
        builder.add(keys)
    assert builder.finish().encode() == before.encode()
    with pytest.raises(InvalidInputError, match=message):
        before.probe(keys)


@pytest.mark.parametrize("entries, fpp", [(0, 0.1), (-1, 0.1), (10, 0.0), (10, 1.0), (10, float("nan"))])
def test_impossible_sizes_are_refused(entries, fpp):
    with pytest.raises(InvalidInputError, match="bloom filter"):
        BloomBuilder(num_entries=entries, fpp=fpp)


def test_other_types_and_hash_counts_are_refused():
    with pytest.raises(InvalidInputError, match="SIMPLE"):
        BloomBuilder(num_entries=1, fpp=0.1, type_code="CUCKOO")
    with pytest.raises(InvalidInputError, match="more than 2"):
        filter_size(1 << 40, 0.01)
    with pytest.raises(InvalidInputError, match="hashes"):
        hash_keys(pa.array(["a"]), 0)


def simple(version=-1, hashes=2, kind=1, bits=16, data=b"\1\2"):
    return base64.b64encode(struct.pack(">iiBi", version, hashes, kind, bits) + data)


def dynamic(hashes=2, bits=16, per_row=5, last=1, rows=1, data=None):
    row = struct.pack(">iiBi", -1, 2, 1, 16) + b"\1\2"
    head = struct.pack(">iiBiiii", -1, hashes, 1, bits, per_row, last, rows)
    return base64.b64encode(head + (row * max(rows, 0) if data is None else data))


@pytest.mark.parametrize(
    "text, code",
    [
        (b"", SIMPLE),
        (b"!!!", SIMPLE),
        ("é", SIMPLE),
        (simple()[:-4], SIMPLE),
        (simple(version=3), SIMPLE),
        (simple(hashes=10**9), SIMPLE),
        (simple(hashes=0), SIMPLE),
        (simple(kind=0), SIMPLE),
        (simple(bits=0), SIMPLE),
        (simple(bits=-8), SIMPLE),
        (simple(bits=2**31 - 1), SIMPLE),
        (simple(data=b"\1\2\3"), SIMPLE),
        (simple(), DYNAMIC),
        (simple(), "CUCKOO"),
        (dynamic(hashes=10**9), DYNAMIC),
        (dynamic(bits=0), DYNAMIC),
        (dynamic(rows=0), DYNAMIC),
        (dynamic(rows=-1), DYNAMIC),
        (dynamic(per_row=0), DYNAMIC),
        (dynamic(last=-1), DYNAMIC),
        (dynamic(rows=2**31 - 1, data=b""), DYNAMIC),
        (dynamic(hashes=3), DYNAMIC),
    ],
)
def test_damage_is_named(text, code):
    with pytest.raises(CorruptFileError) as caught:
        decode_bloom(text, code, "f.parquet")
    assert caught.value.path == "f.parquet"


def test_sound_hand_made_filters_are_read():
    assert decode_bloom(simple(), "simple").encode() == simple()
    grown = decode_bloom(dynamic(rows=3), DYNAMIC)
    assert grown.encode() == dynamic(rows=3)
    assert grown.rows.shape == (3, 2)
    assert grown.probe(pa.array([], pa.string())).dtype == np.bool_
