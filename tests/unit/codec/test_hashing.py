"""Ids and file groups against what Hudi 1.1.1 computed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex.codec.hashing import column_id, file_group_index, file_group_index_many, file_id, java_hash, partition_id
from lakedex.errors import InvalidInputError

VECTORS = Path(__file__).parents[2] / "golden" / "vectors"


def load(name):
    return json.loads((VECTORS / name).read_text("utf-8"))["data"]


@pytest.mark.parametrize("case", load("hash_ids.json")["ids"], ids=lambda case: ascii(case["s"])[:30])
def test_ids_are_those_of_java(case):
    text = case["s"]
    assert column_id(text) == case["column"]["base64"]
    assert file_id(text) == case["file"]["base64"]
    if text:
        assert partition_id(text) == case["partition"]["base64"]


def test_a_table_without_partitions_hashes_a_dot():
    dot = next(case for case in load("hash_ids.json")["ids"] if case["s"] == ".")
    assert partition_id("") == dot["partition"]["base64"]


def test_keys_of_the_metadata_partitions():
    data = load("hash_ids.json")
    for case in data["keys"]:
        assert partition_id(case["partition"]) + file_id(case["file"]) == case["bloom_key"]
        for column, key in case["column_stats"].items():
            assert column_id(column) + partition_id(case["partition"]) + file_id(case["file"]) == key
    for case in data["partition_stats_keys"]:
        assert column_id(case["column"]) + partition_id(case["partition"]) == case["key"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 10, 16, 100, 1000, 10000])
def test_file_groups_are_those_of_java(n):
    cases = load("filegroup_mapping.json")["record_keys"]
    keys = [case["key"] for case in cases]
    wanted = [case["group"][str(n)] for case in cases]
    assert [file_group_index(key, n) for key in keys] == wanted
    assert file_group_index_many(keys, n).tolist() == wanted
    assert file_group_index_many(pa.array(keys), n).tolist() == wanted
    padded = pa.array(["é", *keys, "x"], pa.large_string()).slice(1, len(keys))
    assert file_group_index_many(padded, n).tolist() == wanted
    assert file_group_index_many(pa.chunked_array([keys[:5], [], keys[5:]], pa.string()), n).tolist() == wanted


def test_file_groups_of_secondary_keys():
    for case in load("filegroup_mapping.json")["secondary_index"]:
        for n, wanted in case["group_v1"].items():
            assert file_group_index(case["key"], int(n)) == wanted


@pytest.mark.parametrize(
    "text, wanted", [("", 0), ("a", 97), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899), ("é", 233)]
)
def test_java_hash(text, wanted):
    assert java_hash(text) == wanted


def test_no_keys_have_no_groups():
    assert file_group_index_many([], 3).tolist() == []
    assert file_group_index_many(pa.array([], pa.string()), 3).tolist() == []


@pytest.mark.parametrize("n", [0, -1, 1 << 31])
def test_impossible_counts_are_refused(n):
    with pytest.raises(InvalidInputError, match="file group"):
        file_group_index("k", n)


def test_nulls_are_refused():
    with pytest.raises(InvalidInputError, match="1 null"):
        file_group_index_many(pa.array(["a", None]), 3)
