"""Bounds of columns: how they are built, stored, believed and merged."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import all_types

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.index.column_stats.reader import bounds_of_files
from lakedex.index.column_stats.stats import (
    ALWAYS_INDEXED,
    ColumnStat,
    ColumnStatsBuilder,
    indexable_columns,
    merge_stats,
    stat_of,
    stat_record,
    stats_records,
)
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.records import column_stats_key, partition_stats_key
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import RECORD_KEY
from table_kit import OWN_FILE, make, rows

NAN, INF = math.nan, math.inf
UTC = dt.UTC
STAMP = pa.timestamp("us", "UTC")


def build(values: list[Any], kind: pa.DataType, *, chunks: int = 1, name: str = "c") -> ColumnStat:
    builder = ColumnStatsBuilder({name: kind})
    array = pa.array(values, kind)
    for part in np.array_split(np.arange(len(array)), chunks):
        if len(part):
            builder.add(pa.record_batch({name: array.slice(part[0], len(part))}))
    (stat,) = builder.finish({name: (3, 4)})
    assert (stat.value_count, stat.null_count) == (len(values), array.null_count)
    assert (stat.total_size, stat.total_uncompressed_size) == (3, 4)
    return stat


def stored(stat: ColumnStat, kind: pa.DataType, *, tight: bool = True) -> ColumnStat | None:
    """The stat as it comes back from bytes."""
    record = stat_record(stat, "f", kind)
    record["ColumnStatsMetadata"]["isTightBound"] = tight
    return stat_of(decode_metadata_record(encode_metadata_record(record), metadata_schema_json()), kind)


BOUNDS: list[tuple[pa.DataType, list[Any], Any, Any]] = [
    (pa.bool_(), [True, None, False], False, True),
    (pa.int8(), [3, -4, None], -4, 3),
    (pa.int32(), [3, -4, None], -4, 3),
    (pa.int64(), [2**62, -(2**63)], -(2**63), 2**62),
    (pa.float64(), [1.5, None, -2.5], -2.5, 1.5),
    (pa.float32(), [1.5, None, -2.5], -2.5, 1.5),
    (pa.float64(), [-INF, 1.0], -INF, 1.0),
    (pa.decimal128(10, 2), [Decimal("9.99"), Decimal("-1.50"), None], Decimal("-1.50"), Decimal("9.99")),
    (pa.date32(), [dt.date(1970, 1, 2), dt.date(1969, 12, 31), None], -1, 1),
    (
        STAMP,
        [dt.datetime(1970, 1, 1, 0, 0, 0, 7, UTC), None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)],
        -1,
        7,
    ),
    (pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 1)], 1_000_000, 1_000_000),
    (pa.timestamp("ms", "UTC"), [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], 1000, 1000),
    (pa.string(), ["b", None, "é", ""], "", "é"),
    (pa.string(), ["k\uff21", "k\U0001f600"], "k\uff21", "k\U0001f600"),
    (pa.binary(), [b"\x80", None, b"\x00", b""], b"", b"\x80"),
]


@pytest.mark.parametrize("kind, values, low, high", BOUNDS, ids=range(len(BOUNDS)))
@pytest.mark.parametrize("chunks", [1, 3])
def test_bounds(kind: pa.DataType, values: list[Any], low: Any, high: Any, chunks: int) -> None:
    stat = build(values, kind, chunks=chunks)
    assert (stat.minimum, stat.maximum) == (low, high)
    assert not stat.all_null
    back = stored(stat, kind)
    assert back is not None
    assert (back.minimum, back.maximum, back.value_count, back.null_count) == (
        low,
        high,
        stat.value_count,
        stat.null_count,
    )


@pytest.mark.parametrize("kind", sorted({str(kind): kind for kind, *_ in BOUNDS}.values(), key=str), ids=str)
def test_all_null(kind: pa.DataType) -> None:
    stat = build([None, None], kind)
    assert stat.all_null
    assert (stat.minimum, stat.maximum) == (None, None)
    assert stored(stat, kind) == ColumnStat(
        column="c", minimum=None, maximum=None, value_count=2, null_count=2, total_size=3, total_uncompressed_size=4
    )


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_nan_is_the_largest_value(kind: pa.DataType, chunks: int) -> None:
    stat = build([1.5, NAN, None, -1.0], kind, chunks=chunks)
    assert stat.minimum == -1.0
    assert math.isnan(stat.maximum)
    # Java cannot judge by a NaN bound, so it lies there as infinity.
    record = stat_record(stat, "f", kind)["ColumnStatsMetadata"]
    assert record["maxValue"][1] == {"value": INF}
    back = stored(stat, kind)
    assert back is not None
    assert math.isnan(back.maximum)


def test_nothing_but_nan() -> None:
    stat = build([NAN, None, NAN], pa.float64())
    assert math.isnan(stat.minimum)
    assert math.isnan(stat.maximum)
    assert (stat.value_count, stat.null_count) == (3, 1)


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0]])
def test_a_zero_stands_for_both(values: list[float]) -> None:
    stat = build(values, pa.float64())
    assert math.copysign(1, stat.minimum) == -1
    assert math.copysign(1, stat.maximum) == 1
    assert stat.minimum == stat.maximum == 0


def test_long_strings_are_widened_never_left_out() -> None:
    stat = build(["a" * 5000, "z" * 5000], pa.string())
    assert stat.minimum == "a" * 256
    assert stat.maximum == "z" * 255 + "{"
    stat = build(["\ud7ff" * 300, "\U0010ffff" * 300], pa.string())
    assert stat.minimum <= "\ud7ff" * 300
    assert stat.maximum == "\U0010ffff" * 300
    stat.maximum.encode()


def test_bounds_of_the_record_key_hold_in_both_orders() -> None:
    stat = build(["k\uff21", "k\U0001f600"], pa.string(), name=RECORD_KEY)
    assert (stat.minimum, stat.maximum) == ("k", "l")


def test_no_rows_no_record() -> None:
    builder = ColumnStatsBuilder({"c": pa.int32()})
    assert builder.finish() == []
    builder.add(pa.record_batch({"c": pa.array([], pa.int32())}))
    assert builder.finish() == []


ANY = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, NAN, INF, -INF]))


@given(st.lists(ANY, min_size=1), st.integers(1, 4))
def test_float_bounds_hold_whatever_comes(values: list[float | None], chunks: int) -> None:
    stat = build(values, pa.float64(), chunks=chunks)
    back = stored(stat, pa.float64())
    assert back is not None
    some = [value for value in values if value is not None]
    assert back.all_null == (not some)
    for value in some:
        assert math.isnan(back.maximum) or (value <= back.maximum and back.maximum < INF)
        assert math.isnan(value) or math.isnan(back.maximum) or value <= back.maximum
        assert math.isnan(value) or back.minimum <= value


# --------------------------------------------------------------------------------------------------------- trust
def foreign(kind: pa.DataType, low: Any, high: Any, nulls: int, rows: int = 10, **changes: Any) -> ColumnStat | None:
    stat = ColumnStat(column="c", minimum=low, maximum=high, value_count=rows, null_count=nulls)
    record = stat_record(stat, "f", kind)
    record["ColumnStatsMetadata"].update({"isTightBound": False, **changes})
    return stat_of(record, kind)


@pytest.mark.parametrize(
    "kind, low, high, nulls",
    [
        (pa.float64(), 0.0, 0.0, 0),  # What Java makes of any chunk with a NaN.
        (pa.float32(), 1.0, 2.0, 0),
        (pa.float64(), 0.0, 0.0, 10),
        (pa.string(), None, None, 10),  # Either all null, or a value too long for the footer's statistics.
        (pa.binary(), None, None, 10),
        (pa.string(), "a", "b", 3),
        (pa.string(), "a", "\uff21", 0),  # The largest in UTF-16 order, which is not that of UTF-8.
        (pa.string(), "\U0001f600", "\uff21", 0),
        (pa.binary(), b"\x01\x80", b"\x02", 0),  # The smallest of signed bytes; b"\x01\x10" is smaller.
        (pa.timestamp("ms", "UTC"), 1, 2, 0),
        (pa.int32(), None, None, 0),
        (pa.int32(), 1, None, 0),
    ],
    ids=str,
)
def test_what_others_wrote_is_not_believed(kind: pa.DataType, low: Any, high: Any, nulls: int) -> None:
    assert foreign(kind, low, high, nulls) is None


@pytest.mark.parametrize(
    "kind, low, high, nulls",
    [
        (pa.int32(), 1, 5, 3),
        (pa.bool_(), False, True, 0),
        (pa.decimal128(10, 2), Decimal("1.25"), Decimal(3), 0),
        (pa.date32(), 1, 2, 0),
        (pa.timestamp("us", "UTC"), 1, 2, 0),
        (pa.string(), "a", "\ud7ff", 0),
    ],
    ids=str,
)
def test_what_others_wrote_is_believed(kind: pa.DataType, low: Any, high: Any, nulls: int) -> None:
    stat = foreign(kind, low, high, nulls)
    assert stat is not None
    assert (stat.minimum, stat.maximum, stat.null_count) == (low, high, nulls)


def test_all_null_of_others_has_no_bounds() -> None:
    stat = foreign(pa.int32(), 0, 0, 10)  # Java's way to say it.
    assert stat is not None
    assert (stat.minimum, stat.maximum, stat.all_null) == (None, None, True)


@pytest.mark.parametrize("changes", [{"isDeleted": True}, {"valueCount": None}, {"nullCount": None}])
def test_a_record_without_counts_says_nothing(changes: dict[str, Any]) -> None:
    assert foreign(pa.int32(), 1, 2, 0, **changes) is None
    assert foreign(pa.int32(), 1, 2, 0, **changes, isTightBound=True) is None


# --------------------------------------------------------------------------------------------------------- merge
def stat(low: Any, high: Any, rows: int = 2, nulls: int = 0) -> ColumnStat:
    return ColumnStat(column="c", minimum=low, maximum=high, value_count=rows, null_count=nulls, total_size=1)


def test_merged() -> None:
    merged = merge_stats("c", [stat(3, 5), stat(None, None, 4, 4), stat(1, 4, 3, 1)])
    assert merged == ColumnStat(column="c", minimum=1, maximum=5, value_count=9, null_count=5, total_size=3)
    assert merge_stats("c", []) == ColumnStat(column="c", minimum=None, maximum=None, value_count=0, null_count=0)
    assert merge_stats("c", [stat(None, None, 1, 1)]).all_null


@pytest.mark.parametrize(
    "others", [[stat(NAN, NAN), stat(1.0, 2.0)], [stat(1.0, 2.0), stat(1.5, NAN)], [stat(1.0, 2.0), stat(NAN, NAN)]]
)
def test_nan_survives_merging(others: list[ColumnStat]) -> None:
    merged = merge_stats("c", others)
    assert merged.minimum == 1.0
    assert math.isnan(merged.maximum)


def test_stats_of_before_a_widening_are_in_the_new_type() -> None:
    old = stored(stat(1, 5), pa.int32())
    assert old == stat(1, 5)
    widened = stat_of(stats_records([stat(1, 5)], "p", "f", {"c": pa.int32()})[0][1], pa.float64())
    assert widened is not None
    assert isinstance(widened.minimum, float)
    assert isinstance(widened.maximum, float)
    assert math.isnan(merge_stats("c", [widened, stat(2.0, NAN)]).maximum)


@pytest.mark.parametrize(
    "before, value, after",
    [
        (pa.int64(), 7, pa.string()),
        (pa.float64(), 7.5, pa.string()),
        (pa.string(), "x", pa.int64()),
        (pa.int32(), 7, pa.decimal128(10, 2)),
        (pa.float64(), 7.5, pa.int64()),
        (pa.bool_(), True, pa.int32()),
    ],
)
def test_bounds_of_another_type_are_unknown(before: pa.DataType, value: Any, after: pa.DataType) -> None:
    """Hudi lets a number become text: the older files' bounds say nothing about the order of texts."""
    record = stat_record(build([value], before), "f", before)
    record["ColumnStatsMetadata"]["isTightBound"] = True
    assert stat_of(record, after) is None


# ------------------------------------------------------------------------------------------------------- choosing
def test_columns_are_chosen_as_java_chooses() -> None:
    table = all_types(local_timestamp=True)
    assert indexable_columns(table.schema) == [
        *ALWAYS_INDEXED,
        *("key", "ts", "part", "flag", "small", "large", "single", "double", "money", "text", "bytes", "day", "moment", "ntz"),
    ]  # fmt: skip
    assert indexable_columns(table.schema, ["text", "place", "nope", "key"]) == [*ALWAYS_INDEXED, "key", "text"]
    assert indexable_columns(table.schema, limit=2) == [*ALWAYS_INDEXED, "key", "ts"]
    assert indexable_columns(pa.schema([])) == list(ALWAYS_INDEXED)
    many = pa.schema([(f"c{n}", pa.int32()) for n in range(40)])
    assert len(indexable_columns(many)) == 3 + 32


@pytest.mark.parametrize(
    "kind, supported",
    [
        (pa.decimal128(10, 2), True), (pa.decimal128(15, 0), True), (pa.decimal128(19, 4), True), (pa.decimal128(30, 15), True),
        (pa.decimal128(20, 4), False), (pa.decimal128(18, 0), False), (pa.decimal128(30, 18), False), (pa.decimal128(38, 15), False),
        (pa.list_(pa.int32()), False), (pa.struct([("x", pa.int32())]), False), (pa.map_(pa.string(), pa.int32()), False),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_the_encoding_holds(kind: pa.DataType, supported: bool) -> None:
    assert ("c" in indexable_columns(pa.schema([("c", kind)]))) == supported


# ------------------------------------------------------------------------------------------------------- in tables
def load(path: Path) -> Snapshot:
    return Snapshot.load(TableFiles(LocalStorage(), str(path)))


def test_every_file_has_a_record_for_every_listed_column(tmp_path: Path) -> None:
    table = make(tmp_path, all_types(local_timestamp=True), record_key="key", partition_by="part", ordering_by="ts")
    table.upsert(all_types(local_timestamp=True).slice(1, 2))
    snapshot = load(tmp_path)
    columns = indexable_columns(snapshot.schema)
    for item in snapshot.slices():
        assert item.base_file is not None
        keys = [column_stats_key(name, item.partition, item.base_file.name) for name in columns]
        records = snapshot.metadata.get_many("column_stats", keys)
        assert set(records) == set(keys)
        payloads = [record["ColumnStatsMetadata"] for record in records.values()]
        assert len({payload["valueCount"] for payload in payloads}) == 1
        assert all(payload["totalSize"] > 0 for payload in payloads)
        assert {payload["fileName"] for payload in payloads} == {item.base_file.name}


def test_partition_stats_are_those_of_all_files(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 5), ("2", "b", 1, 6)), partition_by="city", options=OWN_FILE)
    table.upsert(rows(("3", "a", 2, 9), ("4", "a", 2, None)))
    table.upsert(rows(("1", "a", 3, 7)))  # The 5 is gone: bounds may shrink.
    snapshot = load(tmp_path)
    found = snapshot.metadata.get_many("partition_stats", [partition_stats_key("n", p) for p in ("city=a", "city=b")])
    payload = found[partition_stats_key("n", "city=a")]["ColumnStatsMetadata"]
    assert (payload["minValue"][1]["value"], payload["maxValue"][1]["value"]) == (7, 9)
    assert (payload["valueCount"], payload["nullCount"], payload["isTightBound"]) == (3, 1, True)
    assert payload["fileName"] == "city=a"
    payload = found[partition_stats_key("n", "city=b")]["ColumnStatsMetadata"]
    assert (payload["minValue"][1]["value"], payload["valueCount"]) == (6, 1)


def test_partition_stats_after_the_last_row_is_deleted(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 5), ("2", "b", 1, 6)), partition_by="city")
    table.delete(where="id = '1'")
    key = partition_stats_key("n", "city=a")
    payload = load(tmp_path).metadata.get_many("partition_stats", [key])[key]["ColumnStatsMetadata"]
    assert (payload["minValue"], payload["valueCount"]) == (None, 0)
    assert table.scan("n = 5").count() == 0
    assert table.scan("city = 'a'").count() == 0
    table.upsert(rows(("1", "a", 1, 8)))
    assert table.scan("n = 8").count() == 1


def test_bounds_as_arrays(tmp_path: Path) -> None:
    table = make(tmp_path, all_types(local_timestamp=True), record_key="key", partition_by="part", ordering_by="ts")
    snapshot = load(tmp_path)
    files = [item.base_file for item in snapshot.slices() if item.base_file is not None]
    unknown = BaseFile("part=a", "none-0_0-0-0_001.parquet", 1, "none-0", "001")
    types = {field.name: field.type for field in snapshot.schema if field.name in indexable_columns(snapshot.schema)}
    found = bounds_of_files(snapshot.metadata, [unknown, *files], types)
    for name, kind in types.items():
        bounds = found[name]
        assert bounds.minimum.type == bounds.maximum.type == kind
        assert bounds.row_count.tolist() == [-1, 2, 2]
        assert bounds.null_count[0] == -1
        assert bounds.minimum[0].as_py() is None
    assert found["money"].minimum.to_pylist() == [None, Decimal("-99999999.99"), Decimal("0.00")]
    assert found["day"].maximum.to_pylist() == [None, dt.date(1970, 1, 1), dt.date(2999, 1, 2)]
    assert table.schema.field("day").type == pa.date32()
    # Many files: by prefix instead of by key; the same.
    many = bounds_of_files(snapshot.metadata, [*files, *[unknown] * 20], types)
    assert many["money"].minimum.to_pylist()[:2] == found["money"].minimum.to_pylist()[1:]
