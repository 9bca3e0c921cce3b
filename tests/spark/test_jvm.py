"""What crosses to the JVM, without one: bytes of file statuses, and which folders tell their values."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from lakedex.codec.varint import decode_varint, encode_varint
from lakedex.spark.dataframes import folder_values
from lakedex.spark.jvm import FileStatuses
from lakedex.timeline.table_config import TableConfig

PATHS = ["/t/a.parquet", "hdfs://b/é€😀/" + "x" * 300, "/" + "y" * 20_000]
SIZES = [0, 5_000_000_000, 127]
TIMES = [0, 1_700_000_000_123, 1]


def fields(status: bytes) -> dict[int, int | bytes]:
    """A protobuf message, taken apart."""
    found: dict[int, int | bytes] = {}
    at = 0
    while at < len(status):
        tag, at = decode_varint(status, at)
        value, at = decode_varint(status, at)
        if tag & 7 == 2:
            found[tag >> 3], at = status[at : at + value], at + value
        else:
            found[tag >> 3] = value
    return found


def test_file_statuses_are_messages_of_hadoop() -> None:
    files = FileStatuses.of(PATHS, SIZES, TIMES)
    sent = files.two_dimensional(np.array([0, 2]), np.array([1, 0, 1]))
    assert np.frombuffer(sent[:16], ">i4").tolist() == [3, 1, 0, 1]
    at = 16
    for place in (0, 2):
        length = int.from_bytes(sent[at : at + 4], "big")
        found = fields(sent[at + 4 : at + 4 + length])
        assert found == {1: 2, 2: f"file://{PATHS[place]}".encode(), 3: SIZES[place], 4: b"\x08" + encode_varint(0o644),
                         7: TIMES[place], 10: 1, 11: 128 << 20}  # fmt: skip
        at += 4 + length
    assert at == len(sent)
    assert files.two_dimensional(np.array([], np.int64), np.array([0])) == bytes([0, 0, 0, 1, 0, 0, 0, 0])
    whole = files.two_dimensional(np.arange(3), np.array([3]))
    assert b"hdfs://b/" in whole and len(whole) > 20_300


def test_many_files_are_encoded_at_once() -> None:
    files = FileStatuses.of((f"/t/p={i % 10}/{i}.parquet" for i in range(20_000)), range(20_000), [7] * 20_000)
    part = files.two_dimensional(np.arange(10_000, 20_000), np.array([10_000]))
    assert fields(part[12 : 12 + int.from_bytes(part[8:12], "big")])[2] == b"file:///t/p=0/10000.parquet"
    assert files.sizes.sum() == sum(range(20_000))


SCHEMA = pa.schema(
    [("s", pa.string()), ("i", pa.int32()), ("d", pa.date32()), ("f", pa.float64()), ("t", pa.timestamp("us", "UTC"))]
)


def config(partition_by: str, **changes: str) -> TableConfig:
    raw = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "8",
        "hoodie.table.partition.fields": partition_by,
        "hoodie.table.keygenerator.type": "COMPLEX",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    }
    return TableConfig.from_properties(raw | {key.replace("__", "."): value for key, value in changes.items()})


def test_folders_that_tell_their_values() -> None:
    paths = ["s=a%2Fb/i=7", "s=x/i=__HIVE_DEFAULT_PARTITION__", "s=__HIVE_DEFAULT_PARTITION__/i=1", "s=a/b/i=1",
             "s=x/i=07", "s=x/i=+7", "s=x/7", "s=%2f/i=1", "s=é/i=-1"]  # fmt: skip
    found = folder_values(config("s,i"), SCHEMA, paths)
    assert found is not None
    assert found.paths == ["s=a%2Fb/i=7", "s=x/i=__HIVE_DEFAULT_PARTITION__", "s=é/i=-1"]
    assert found.values.to_pylist() == [{"s": "a/b", "i": 7}, {"s": "x", "i": None}, {"s": "é", "i": -1}]
    days = folder_values(config("d"), SCHEMA, ["d=2024-01-02", "d=2024/01/02", "d=19000", "d=2024-1-2"])
    assert days is not None and days.values.to_pylist() == [{"d": dt.date(2024, 1, 2)}]


def test_folders_are_plain_text_where_the_table_says_so() -> None:
    plain = {
        "hoodie__datasource__write__hive_style_partitioning": "false",
        "hoodie__datasource__write__partitionpath__urlencode": "false",
    }
    found = folder_values(config("s", **plain), SCHEMA, ["50%", "%41", "s=x", "a b", "__HIVE_DEFAULT_PARTITION__"])
    assert found is not None and found.paths == ["50%", "a b"], "what might be either is not used"


@pytest.mark.parametrize(
    "made",
    [
        config("f"),
        config("t"),
        config("s,f"),
        config("absent"),
        config(""),
        config("s", hoodie__table__keygenerator__type="TIMESTAMP"),
        config("s", hoodie__table__keygenerator__type="CUSTOM"),
        config("s", hoodie__datasource__write__drop__partition__columns="true"),
    ],
    ids=lambda made: f"{made.key_generator} {made.partition_fields}",
)
def test_tables_whose_folders_are_not_used(made: TableConfig) -> None:
    assert folder_values(made, SCHEMA, ["s=a"]) is None
