"""Metadata files whose frames are sound and whose contents are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.log_block import RollbackCommand, encode_delete_block, encode_log_block, encode_rollback_block
from lakedex.codec.metadata_record import encode_metadata_record
from lakedex.errors import CorruptFileError
from lakedex.index.column_stats.reader import bound_array
from lakedex.index.column_stats.stats import stat_of
from lakedex.io.local import LocalStorage
from lakedex.metadata.files import MetadataLogFile, decode_cell, key_text, record_schema
from lakedex.metadata.records import MERGE_RULES, stats_record

INT, STRING = "org.apache.hudi.avro.model.IntWrapper", "org.apache.hudi.avro.model.StringWrapper"


def opened(tmp_path: Path, data: bytes) -> MetadataLogFile:
    path = tmp_path / ".files-0000-0_1.log.1_0-0-0"
    path.write_bytes(data)
    return MetadataLogFile(LocalStorage(), str(path))


@pytest.mark.parametrize("kind", ["AVRO_DATA", "PARQUET_DATA", "CDC_DATA"])
def test_a_block_of_a_type_that_metadata_has_not_is_no_silence(tmp_path: Path, kind: str) -> None:
    """One changed number made a data block one of Parquet, which was left out with all its records."""
    with pytest.raises(CorruptFileError, match=kind):
        opened(tmp_path, encode_log_block(kind, {"INSTANT_TIME": "1"}, b"x"))


def test_a_command_without_a_target_is_damage(tmp_path: Path) -> None:
    whole = encode_rollback_block(RollbackCommand("2", "1"))
    assert [block.takes_back for block in opened(tmp_path, whole).blocks] == ["1"]
    with pytest.raises(CorruptFileError):
        opened(tmp_path, encode_log_block("COMMAND", {"INSTANT_TIME": "2", "COMMAND_BLOCK_TYPE": "0"}, b""))


def test_a_deleted_record_has_a_key(tmp_path: Path) -> None:
    content = encode_delete_block([{"recordKey": None, "partitionPath": "files", "orderingVal": None}])
    with pytest.raises(CorruptFileError, match="a key in each deleted record"):
        opened(tmp_path, encode_log_block("DELETE", {"INSTANT_TIME": "1"}, content))


@pytest.mark.parametrize("info", [{}, {"schema": b"\xff"}])
def test_an_hfile_without_a_schema_is_damage(info: dict[str, bytes]) -> None:
    layer = HFileReader.from_bytes(write_hfile([], info=info), "p")
    with pytest.raises(CorruptFileError, match="file info with a schema") as caught:
        record_schema(layer)
    assert caught.value.path == "p"


def test_keys_are_text_and_records_have_their_payload() -> None:
    layer = HFileReader.from_bytes(write_hfile([], info={}), "p")
    with pytest.raises(CorruptFileError, match="keys in UTF-8"):
        key_text(b"\xff", layer)
    value = encode_metadata_record({"type": 2, "filesystemMetadata": {}})
    with pytest.raises(CorruptFileError, match="records with ColumnStatsMetadata"):
        decode_cell(value, metadata_schema_json(), layer, "ColumnStatsMetadata")


def _stat(low: object, high: object, rows: int = 2, nulls: int = 0) -> dict:
    sizes = {"value_count": rows, "null_count": nulls, "total_size": 0, "total_uncompressed_size": 0}
    record = stats_record("f", "c", minimum=low, maximum=high, **sizes)
    record["ColumnStatsMetadata"]["valueType"] = None
    return record


def test_bounds_of_two_kinds_merge_to_none() -> None:
    merged = MERGE_RULES["column_stats"](_stat((INT, {"value": 1}), None), _stat((STRING, {"value": "2"}), None))
    assert merged["ColumnStatsMetadata"]["minValue"] is None


@pytest.mark.parametrize(("rows", "nulls"), [(-1, -1), (1, 2), (5, -1), (1 << 63, 0)])
def test_counts_that_cannot_be_say_nothing(rows: int, nulls: int) -> None:
    """``-1`` of ``-1`` rows is not "all null"."""
    record = _stat((INT, {"value": 1}), (INT, {"value": 1}), rows, nulls)
    record["ColumnStatsMetadata"]["isTightBound"] = True
    assert stat_of(record, pa.int32()) is None


def test_a_bound_that_its_column_cannot_hold_is_not_known() -> None:
    assert bound_array([1, 1 << 40, None, -3], pa.int32()).to_pylist() == [1, None, None, -3]
    assert bound_array([1 << 70], pa.timestamp("us")).to_pylist() == [None]
    assert np.array_equal(bound_array([], pa.int32()), [])
