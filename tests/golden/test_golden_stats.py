"""Column stats of Java's tables of version 9 (index version V2): decoded, and encoded again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from golden_tables import unpack
from lakedex import Table
from lakedex.io.storage import TableFiles
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.codec.column_bounds import unwrap_stat, value_type, wrap_stat
from lakedex.index.column_stats.stats import stat_of
from lakedex.io.local import LocalStorage
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import META_COLUMNS


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("v9_txns_simple_overwrite", 240),
        ("v9_timebasedkeygen_epochmillis", 208),
        ("mor_v9_nonpartitioned_rollback", 30),
    ],
)
def test_bytes_of_java(tmp_path: Path, name: str, records: int) -> None:
    snapshot = Snapshot.load(TableFiles(LocalStorage(), str(unpack(name, tmp_path))))
    types = {column.name: column.type for column in snapshot.schema} | {name: pa.string() for name in META_COLUMNS}
    seen = 0
    kinds = set()
    for partition in ("column_stats", "partition_stats"):
        for group in snapshot.metadata.file_groups(partition):
            for layer in snapshot.metadata.layers(group):
                assert isinstance(layer, HFileReader)
                for key, value in layer.scan_prefixes([b""]):
                    record = decode_metadata_record(value, layer.info["schema"].decode(), key=key.decode())
                    payload = record["ColumnStatsMetadata"]
                    # A time-based key generator's partition column is read as the text of its folder.
                    if payload["isDeleted"] or payload["columnName"] in snapshot.config.partition_fields:
                        continue
                    kind = types[payload["columnName"]]
                    again = {
                        bound: wrap_stat(unwrap_stat(payload[bound], payload["valueType"]), kind, "V2")
                        for bound in ("minValue", "maxValue")
                    }
                    again["valueType"] = value_type(kind, "V2")
                    assert encode_metadata_record({**record, "ColumnStatsMetadata": {**payload, **again}}) == bytes(value)
                    stat = stat_of(record, kind)
                    assert stat is None or stat.all_null or stat.minimum <= stat.maximum
                    kinds.add(payload["valueType"]["typeOrdinal"])
                    seen += 1
    assert seen >= records, seen
    assert kinds >= {7}


def test_a_table_of_a_time_based_key_generator_is_validated(tmp_path: Path) -> None:
    """Its partition column is text in the schema and a number in files, so that its stats are not compared."""
    report = Table.open(unpack("v9_timebasedkeygen_epochmillis", tmp_path)).maintenance.validate()
    assert report.ok
    assert report.files_compared > 0
