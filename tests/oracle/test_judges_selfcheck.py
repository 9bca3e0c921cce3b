"""The judges themselves: each reads what Java wrote, and the comparison sees each kind of difference.

Nothing here uses the library under test. When these tests fail, the other tests of this folder prove nothing.
"""

from __future__ import annotations

import datetime as dt
import decimal
import time
from pathlib import Path

import java_judge
import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import (
    READ_PLAIN,
    READ_SKIPPING,
    WRITE_BLOOM,
    WRITE_BLOOM_FOOTERS,
    WRITE_INDEXED,
    JavaError,
    JavaJudge,
    JudgeTimeoutError,
    metadata_compaction,
)
from rust_judge import RustError, RustJudge
from samples import NAN, all_types

OWN_FILE = {"hoodie.parquet.small.file.limit": "0"}
"""Every insert opens a new file group."""


def properties(table: Path) -> dict[str, str]:
    lines = (table / ".hoodie" / "hoodie.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def numbers(keys: list[str], value: int, part: str = "a") -> pa.Table:
    count = len(keys)
    columns = {"key": keys, "ts": [value] * count, "part": [part] * count, "value": [value] * count}
    schema = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("part", pa.string()), ("value", pa.int32())])
    return pa.table(columns, schema)


@pytest.mark.parametrize("partition", [None, "part"])
def test_all_types_survive_java_and_rust(
    java: JavaJudge, rust: RustJudge, tmp_path: Path, partition: str | None
) -> None:
    rows = all_types()
    java.write(tmp_path, rows, "insert", partition=partition, ordering="ts", options=WRITE_INDEXED)

    stored = properties(tmp_path)
    assert stored["hoodie.table.version"] == "8"
    indexes = {"bloom_filters", "column_stats", "files"} | ({"partition_stats"} if partition else set())
    assert set(stored["hoodie.table.metadata.partitions"].split(",")) == indexes
    assert_same_rows(java.read(tmp_path, options=READ_PLAIN), rows, "key")
    assert_same_rows(java.read(tmp_path, options=READ_SKIPPING), rows, "key")
    assert_same_rows(rust.read(tmp_path), rows, "key")


def test_timestamps_without_zone_survive_java(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    rows = all_types(local_timestamp=True)
    java.write(tmp_path, rows, "bulk_insert", ordering="ts", options=WRITE_INDEXED)

    assert_same_rows(java.read(tmp_path), rows, "key")
    with pytest.raises(RustError, match="not yet implemented"):
        rust.read(tmp_path)


def test_java_skips_files_and_travels_in_time(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    first, second = numbers(["k1", "k2"], 1), numbers(["k3"], 5)
    for rows in (first, second):
        java.write(tmp_path, rows, "insert", partition="part", ordering="ts", options={**WRITE_INDEXED, **OWN_FILE})

    assert len(java.files_read(tmp_path, options=READ_SKIPPING)) == 2
    (file,) = java.files_read(tmp_path, "value = 5", READ_SKIPPING)
    assert file.startswith("part=a/")
    assert java.files_read(tmp_path, "value = 77", READ_SKIPPING) == []
    assert len(java.files_read(tmp_path, "value = 77", READ_PLAIN)) == 2
    assert_same_rows(java.read(tmp_path, "value = 5", options=READ_SKIPPING), second)
    assert java.read(tmp_path, columns=["key", "value + 1 as more"]).column_names == ["key", "more"]

    slices = rust.file_slices(tmp_path)
    assert [(partition, logs) for partition, _, _, logs in slices] == [("part=a", ()), ("part=a", ())]
    assert file in {f"part=a/{base}" for _, _, base, _ in slices}

    instant = min(java.read(tmp_path, columns=["_hoodie_commit_time"]).column(0).to_pylist())
    assert_same_rows(java.read(tmp_path, options={"as.of.instant": instant}), first)
    assert_same_rows(rust.read(tmp_path, as_of=instant), first)
    assert_same_rows(rust.read(tmp_path, [("value", "=", "5")]), second)


@pytest.mark.parametrize("options", [WRITE_BLOOM, WRITE_BLOOM_FOOTERS])
def test_java_updates_deletes_and_compacts_its_metadata(
    java: JavaJudge, rust: RustJudge, tmp_path: Path, options: dict[str, str]
) -> None:
    modes = {**options, **metadata_compaction(2)}
    java.write(tmp_path, numbers(["k1", "k2", "k3"], 1), "insert", partition="part", ordering="ts", options=modes)
    java.write(tmp_path, numbers(["k2", "k4"], 2), "upsert", partition="part", ordering="ts", options=modes)
    java.write(tmp_path, numbers(["k1"], 3), "delete", partition="part", ordering="ts", options=modes)

    expected = pa.concat_tables([numbers(["k2", "k4"], 2), numbers(["k3"], 1)])
    assert_same_rows(java.read(tmp_path, options=READ_SKIPPING), expected, "key")
    assert_same_rows(rust.read(tmp_path), expected, "key")
    assert properties(tmp_path)["hoodie.table.version"] == "8"
    compactions = list((tmp_path / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob("*.compaction.requested"))
    assert compactions


def test_java_runs_sql(java: JavaJudge) -> None:
    rows = java.sql("select 1 as one, cast('NaN' as double) as nan, timestamp_ntz '2020-01-01 00:00:00' as ntz")
    schema = pa.schema([("one", pa.int32()), ("nan", pa.float64()), ("ntz", pa.timestamp("us"))])
    assert_same_rows(rows, pa.table({"one": [1], "nan": [NAN], "ntz": [dt.datetime(2020, 1, 1)]}, schema))


def test_java_errors_carry_the_cause_chain(java: JavaJudge, tmp_path: Path) -> None:
    with pytest.raises(JavaError) as caught:
        java.write(tmp_path, numbers(["k1"], 1), "upsert", key="absent", options=WRITE_BLOOM)
    causes = caught.value.causes
    assert len(causes) > 1
    assert any("absent" in cause for cause in causes)
    assert "caused by: " in str(caught.value)
    assert "    at " in caught.value.stack

    with pytest.raises(JavaError, match="TABLE_OR_VIEW_NOT_FOUND"):
        java.sql("select * from no_such_table")
    assert java.sql("select 1 as one").num_rows == 1


def test_silent_judge_is_ended() -> None:
    if java_judge.missing_reason():
        pytest.skip("needs PySpark and Java")
    with JavaJudge(start_timeout=0.2) as judge:
        started = time.monotonic()
        with pytest.raises(JudgeTimeoutError, match="no answer to 'hello'"):
            judge.start()
        assert time.monotonic() - started < 20


def test_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = java_judge.missing_reason()
    assert reason is not None
    assert "java" in reason or "pyspark" in reason


# ---------------------------------------------------------------------------------------------------- the comparison
def test_order_and_spelling_do_not_matter() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    one = pa.table(
        {
            "d": pa.array([NAN, 0.0]),
            "t": pa.array([dt.datetime(2020, 1, 1, 2, tzinfo=zone), None], pa.timestamp("ms", "+02:00")),
            "s": pa.array(["a", "b"], pa.large_string()),
            "n": pa.array([[{"x": NAN}], [{"x": -0.0}]], pa.list_(pa.struct([("x", pa.float64())]))),
            "m": pa.array([[("a", 1), ("b", 2)], []], pa.map_(pa.string(), pa.int32())),
            "c": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(10, 2)),
        }
    )
    other = pa.table(
        {
            "m": pa.array([[], [("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int32())),
            "n": pa.array([[{"x": 0.0}], [{"x": NAN}]], pa.large_list(pa.struct([("x", pa.float64())]))),
            "s": pa.array(["b", "a"]),
            "t": pa.array([None, dt.datetime(2020, 1, 1, 0)], pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "d": pa.array([-0.0, NAN]),
            "c": pa.array([None, decimal.Decimal("1.50")], pa.decimal128(10, 2)),
        }
    )
    assert_same_rows(one, other)
    assert_same_rows(one, other, "s")


@pytest.mark.parametrize(
    "actual, message",
    [
        ({"k": [1, 2], "v": ["a", "x"]}, "v: 'x' instead of 'b'"),
        ({"k": [1, 3], "v": ["a", "b"]}, "only in actual: 1"),
        ({"k": [1], "v": ["a"]}, "only in expected: 1"),
        ({"k": [1, 2, 2], "v": ["a", "b", "b"]}, r"repeated in actual: \(2,\)"),
        ({"k": [1, 2], "v": ["a", None]}, "v: None instead of 'b'"),
        ({"k": [1, 2]}, "missing columns: v"),
        ({"k": [1, 2], "v": ["a", "b"], "w": [0, 0]}, "unexpected columns: w"),
        ({"k": [1.0, 2.0], "v": ["a", "b"]}, "k: double instead of int64"),
    ],
)
def test_differences_are_shown(actual: dict[str, list[object]], message: str) -> None:
    expected = pa.table({"k": [1, 2], "v": ["a", "b"]})
    with pytest.raises(AssertionError, match=message):
        assert_same_rows(pa.table(actual), expected, "k")
    with pytest.raises(AssertionError):
        assert_same_rows(pa.table(actual), expected)


def test_null_is_neither_nan_nor_zero() -> None:
    for value in (NAN, 0.0):
        with pytest.raises(AssertionError, match="only in actual"):
            assert_same_rows(pa.table({"d": pa.array([None], pa.float64())}), pa.table({"d": [value]}))
