"""Files and values that Hudi's own classes wrote."""

import json
from pathlib import Path

import pytest

from lakedex.codec.properties import decode_properties
from lakedex.errors import InvalidInputError
from lakedex.timeline.commit_metadata import CommitMetadata, decode_body, decode_commit_metadata, decode_rollback_metadata, decode_rollback_plan, encode_commit_metadata, encode_requested_replace, encode_rollback_metadata, encode_rollback_plan
from lakedex.timeline.instant import epoch_ms_to_instant, instant_to_epoch_ms, plus_millis
from lakedex.timeline.table_config import TableConfig
from lakedex.timeline.table_config import metadata_table_properties, new_table_properties

HERE = Path(__file__).parent
DECODED = json.loads((HERE / "decoded.json").read_text())
TIMES = json.loads((HERE / "instant_time.json").read_text())["data"]


def properties(name: str) -> dict[str, str]:
    return decode_properties((HERE / name).read_bytes())


@pytest.mark.parametrize("name", sorted(DECODED))
def test_bodies_of_hudi(name: str) -> None:
    assert decode_body((HERE / name).read_bytes(), name) == DECODED[name]["records"][0]


@pytest.mark.parametrize("name", ["v8_commit.avro", "v8_replacecommit.avro", "v9_deltacommit.avro"])
def test_a_commit_that_is_decoded_and_encoded_says_the_same(name: str) -> None:
    ours = encode_commit_metadata(decode_commit_metadata((HERE / name).read_bytes()), 2)
    assert decode_body(ours) == DECODED[name]["records"][0]


def test_commit() -> None:
    commit = decode_commit_metadata((HERE / "v8_commit.avro").read_bytes())
    assert commit.operation == "UPSERT"
    assert commit.replaced is None
    assert set(commit.write_stats) == {"part=p b", "part=x%2Fy", "part=p%3Da"}
    (stat,) = commit.write_stats["part=p b"]
    assert stat.file_name == "5baeca0a-2b49-429b-a282-362f4b275207-0_0-514-847_20261127215601025.parquet"
    assert (stat.file_size, stat.num_writes, stat.num_updates, stat.num_inserts) == (437247, 4, 2, 0)
    assert stat.prev_commit == "20261127215553131"
    assert json.loads(commit.schema or "")["name"] == "t1_record"
    assert ("part=p b", stat.file_id) in commit.touched_file_groups()


def test_replace_commit() -> None:
    commit = decode_commit_metadata((HERE / "v8_replacecommit.avro").read_bytes())
    assert commit.replaced == {"part=p%3Da": ("83e1e866-7db0-4c5c-8d09-c7740582f7ab-0",)}
    assert commit.all_stats()[0].prev_commit == "null"


@pytest.mark.parametrize("name", ["v6_commit.json", "v6_replacecommit.json"])
def test_json_bodies_of_old_tables(name: str) -> None:
    commit = decode_commit_metadata((HERE / name).read_bytes())
    assert commit.schema
    assert all(stat.file_id for stat in commit.all_stats())
    assert (commit.replaced is not None) == ("replace" in name)


def test_rollback_bodies() -> None:
    plan = decode_rollback_plan((HERE / "v8_rollback_requested.avro").read_bytes())
    assert (plan.instant, plan.action) == ("20261127222717759", "commit")
    assert decode_body(encode_rollback_plan(plan)) == DECODED["v8_rollback_requested.avro"]["records"][0]
    done = decode_rollback_metadata((HERE / "v8_rollback.avro").read_bytes())
    assert (done.instant, done.action) == ("20261127222717759", "commit")
    assert decode_body(encode_rollback_metadata(done)) == DECODED["v8_rollback.avro"]["records"][0]


def test_requested_replace() -> None:
    assert decode_body(encode_requested_replace()) == DECODED["v6_replacecommit_requested.avro"]["records"][0]


def test_empty_commit_round_trip() -> None:
    empty = CommitMetadata(operation="DELETE", extra={"schema": "{}"})
    assert decode_commit_metadata(encode_commit_metadata(empty, 2)) == empty


@pytest.mark.parametrize("jvm_zone", sorted(TIMES["format_by_jvm_timezone"]))
def test_instants_by_zone(jvm_zone: str) -> None:
    for setting, pairs in TIMES["format_by_jvm_timezone"][jvm_zone].items():
        zone = "UTC" if setting == "UTC" else jvm_zone
        for ms, text in pairs:
            assert epoch_ms_to_instant(ms, zone) == text


def test_parsed_instants() -> None:
    for text, ms in TIMES["parse_to_epoch_ms_jvm_utc"]:
        assert instant_to_epoch_ms(text) == ms
    for text, ms in TIMES["parse_to_epoch_ms_jvm_new_york"]:
        assert instant_to_epoch_ms(text, "America/New_York") == ms
    for text, result in TIMES["timelineutils_parse_jvm_utc"]:
        if str(result).startswith("ERR"):
            with pytest.raises(InvalidInputError):
                instant_to_epoch_ms(text)
        else:
            assert instant_to_epoch_ms(text) == result


def test_instant_arithmetic() -> None:
    for text, ms, result in TIMES["plus_millis_utc"]:
        assert plus_millis(text, ms) == result
    for text, ms, result in TIMES["minus_millis_utc"]:
        assert plus_millis(text, -ms) == result


def test_new_table_has_what_both_releases_write() -> None:
    ours = new_table_properties(
        "t1",
        ["key"],
        ["part"],
        ["ts"],
        hive_style=True,
        url_encode=True,
        metadata_partitions=["files", "column_stats", "partition_stats", "bloom_filters", "record_index"],
        timezone="LOCAL",
    )
    old, new = properties("v8_1.0.2_hoodie.properties"), properties("v8_1.1.1_hoodie.properties")
    new.pop("hoodie.table.format")  # optional, and unknown to 1.0.2
    assert ours == {**old, **new}
    assert list(ours)[-1] == "hoodie.table.checksum"


def test_new_table_of_version_9() -> None:
    ours = new_table_properties(
        "t1",
        ["key"],
        ["part"],
        ["ts"],
        version=9,
        hive_style=True,
        url_encode=True,
        metadata_partitions=["files", "column_stats", "partition_stats", "bloom_filters", "record_index"],
        timezone="LOCAL",
    )
    assert ours == properties("v9_1.1.1_hoodie.properties")
    assert list(ours)[-1] == "hoodie.table.checksum"


def test_metadata_table() -> None:
    ours = metadata_table_properties("t1", 9)
    assert ours.pop("hoodie.table.timeline.timezone") == "UTC"
    assert ours == properties("v9_1.1.1_metadata_hoodie.properties")
    assert metadata_table_properties("t1")["hoodie.table.version"] == "8"


@pytest.mark.parametrize("version", ["v6_0.15", "v8_1.0.2", "v8_1.1.1", "v9_1.1.1"])
def test_configs_of_hudi(version: str) -> None:
    config = TableConfig.from_properties(properties(f"{version}_hoodie.properties"))
    assert config.name == "t1"
    assert config.version == int(version[1])
    assert config.layout_version == (1 if version.startswith("v6") else 2)
    assert config.record_key_fields == ("key",)
    assert config.partition_fields == ("part",)
    assert config.ordering_fields == ("ts",)
    assert config.key_generator == "SIMPLE"
    assert config.hive_style and config.url_encode and config.populate_meta_fields
    assert "record_index" in config.metadata_partitions
    assert not config.metadata_partitions_inflight
    assert config.timezone == "LOCAL"
    if not version.startswith("v6"):
        assert config.merge_mode == "EVENT_TIME_ORDERING"
        assert config.timeline_path == ".hoodie/timeline"
