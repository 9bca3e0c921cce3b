"""Which of two versions of a row wins; where rows go."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.layout.file_slice import BaseFile
from lakedex.options import FileOptions
from lakedex.write.file_assignment import FileAssignment, InsertBuckets, assign_inserts, key_numbers
from table_kit import ROWS, base_files, make, own, rows

NAN = float("nan")


def ordered(values: list[Any], kind: pa.DataType = pa.int64(), key: str = "k") -> pa.Table:  # noqa: B008
    """Rows of one key; ``v`` is the position."""
    return pa.table({"id": [key] * len(values), "o": pa.array(values, kind), "v": list(range(len(values)))})


def winner(table: Table) -> Any:
    ((found,),) = own(table, "v")
    return found


# ---------------------------------------------------------------------------------------------- inside of a batch
@pytest.mark.parametrize(
    "kind, values, wins",
    [
        (pa.int64(), [1, 3, 2], 1),
        (pa.int64(), [3, 3, 1], 1),  # A tie: the last by position.
        (pa.int64(), [None, 1, None], 1),
        (pa.int64(), [None, None], 1),
        (pa.float64(), [NAN, 1.0, float("inf")], 0),
        (pa.float64(), [1.0, -0.0, 0.0], 0),
        (pa.float64(), [-0.0, 0.0, -1.0], 1),
        (pa.string(), ["b", "a", "é"], 2),
        (pa.date32(), [dt.date(2020, 1, 2), dt.date(2020, 1, 1)], 0),
        (
            pa.timestamp("us", "UTC"),
            [dt.datetime(2020, 1, 1, 0, 0, 0, 2, dt.UTC), dt.datetime(2020, 1, 1, 0, 0, 0, 1, dt.UTC)],
            0,
        ),
        (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.10"), Decimal("0.01")], 1),
        (pa.bool_(), [True, False], 0),
    ],
    ids=str,
)
def test_of_equal_keys_the_larger_ordering_value(
    tmp_path: Path, kind: pa.DataType, values: list[Any], wins: int
) -> None:
    table = make(tmp_path, ordering_by="o")
    result = table.upsert(ordered(values, kind))
    assert winner(table) == wins
    assert (result.inserted, result.updated) == (1, 0)
    # The same against stored rows: one by one, in order. -0.0 and 0.0 tie, NaN is the largest.
    other = make(tmp_path / "singly", ordering_by="o")
    for n in range(len(values)):
        other.upsert(ordered(values, kind).slice(n, 1))
    assert winner(other) == wins


def test_without_ordering_the_last_by_position(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.upsert(ordered([9, 5, 1]))
    assert winner(table) == 2
    table.upsert(ordered([9, 5]))
    assert winner(table) == 1


def test_the_last_by_position_over_many_batches(tmp_path: Path) -> None:
    count = 200_000  # More than one task of the local engine.
    data = pa.table({"id": pa.array([str(n % 1000) for n in range(count)]), "v": pa.array(range(count), pa.int64())})
    table = make(tmp_path)
    assert table.upsert(data).inserted == 1000
    assert sorted(v for (v,) in own(table, "v")) == list(range(count - 1000, count))


# -------------------------------------------------------------------------------------------- against stored rows
@pytest.mark.parametrize(
    "stored, incoming, wins",
    [(5, 6, "new"), (5, 5, "new"), (5, 4, "old"), (5, None, "old"), (None, 1, "new"), (None, None, "new")],
)
def test_a_late_row_loses(tmp_path: Path, stored: int | None, incoming: int | None, wins: str) -> None:
    table = make(tmp_path, rows(("1", "a", stored, 0), ("2", "a", 0, 0)), ordering_by="ts")
    result = table.upsert(rows(("1", "a", incoming, 1)))
    assert dict(own(table, "id", "n"))["1"] == (1 if wins == "new" else 0)
    assert result.updated == (1 if wins == "new" else 0)
    assert table.scan().count() == 2


def test_nan_against_stored(tmp_path: Path) -> None:
    table = make(tmp_path, ordered([NAN], pa.float64()), ordering_by="o")
    table.upsert(ordered([1.0, 2.0], pa.float64()).slice(1))
    assert winner(table) == 0
    table.upsert(ordered([1.0, NAN], pa.float64()).slice(1))
    assert winner(table) == 1
    table.upsert(ordered([1.0, 1.0, float("inf")], pa.float64()).slice(2))
    assert winner(table) == 1


def test_infinity_and_nan_are_two_values(tmp_path: Path) -> None:
    table = make(tmp_path, ordering_by="o")
    table.upsert(ordered([NAN, float("inf")], pa.float64()))
    assert winner(table) == 0


def test_commit_time_mode(tmp_path: Path) -> None:
    table = make(
        tmp_path, rows(("1", "a", 5, 0)), ordering_by="ts", options={"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
    )
    table.upsert(rows(("1", "a", 1, 1)))
    assert own(table) == [("1", "a", 1, 1)]
    table.upsert(rows(("1", "a", 9, 2), ("1", "a", 0, 3)))
    assert own(table) == [("1", "a", 0, 3)]


def test_an_ordering_column_that_grows(tmp_path: Path) -> None:
    table = make(tmp_path, ordered([5], pa.int32()), ordering_by="o")
    table.upsert(ordered([1, 2**40], pa.int64()).slice(1))
    assert winner(table) == 1
    table.upsert(ordered([1, 1, 7], pa.int32()).slice(2))
    assert winner(table) == 1


# ------------------------------------------------------------------------------------------------------ soft deletes
SOFT = pa.schema([*ROWS, ("_hoodie_is_deleted", pa.bool_())])


def test_rows_marked_as_deleted(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 5, 1, False), ("2", "a", 5, 2, None), schema=SOFT), ordering_by="ts")
    result = table.upsert(
        rows(
            ("1", "a", 6, 1, True), ("2", "a", 4, 2, True), ("3", "a", 1, 3, True), ("4", "a", 1, 4, False), schema=SOFT
        )
    )
    # A late delete loses, one of an unknown key is nothing.
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 1)
    assert own(table, "id") == [("2",), ("4",)]


def test_the_newest_of_a_batch_may_be_a_delete(tmp_path: Path) -> None:
    table = make(tmp_path, schema=SOFT, ordering_by="ts")
    table.upsert(
        rows(
            ("1", "a", 1, 1, False),
            ("1", "a", 2, 1, True),
            ("2", "a", 2, 1, False),
            ("2", "a", 1, 1, True),
            schema=SOFT,
        )
    )
    assert own(table, "id") == [("2",)]


def test_only_deletes_of_unknown_keys_write_nothing(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 5, 1, False), schema=SOFT))
    result = table.upsert(rows(("9", "a", 5, 1, True), schema=SOFT))
    assert result.inserted == 0
    assert own(table, "id") == [("1",)]


# ------------------------------------------------------------------------------------------------------ file sizing
def many(count: int, start: int = 0, city: str = "a") -> pa.Table:
    # Text that does not compress, so that sizes mean something.
    import hashlib

    texts = [hashlib.sha256(str(n).encode()).hexdigest() * 2 for n in range(start, start + count)]
    return pa.table({"id": [f"k{n:06d}" for n in range(start, start + count)], "city": [city] * count, "text": texts})


@pytest.mark.parametrize("action", ["bulk_insert", "insert", "upsert"])
def test_a_load_is_cut_into_files(tmp_path: Path, action: str) -> None:
    table = make(tmp_path, options={"hoodie.parquet.max.file.size": "10000", "hoodie.parquet.small.file.limit": "0"})
    result = getattr(table, action)(many(2000))
    files = base_files(tmp_path)
    assert result.files_written == len(files)
    assert 3 < len(files) < 40
    assert table.scan().count() == 2000
    assert len(set(own(table, "id"))) == 2000
    ranges = {}
    for row in table.inspect.column_stats().to_pylist():
        if row["column_name"] == "_hoodie_record_key":
            ranges[row["file_name"]] = (row["min_value"], row["max_value"])
    if action == "bulk_insert":  # Sorted by key: ranges do not overlap.
        ordered_ranges = sorted(ranges.values())
        assert all(a[1] < b[0] for a, b in zip(ordered_ranges, ordered_ranges[1:], strict=False))
        assert len(table.scan("id = 'k000777'").plan().files) == 1
    assert table.upsert(many(2000)).updated == 2000
    assert table.scan().count() == 2000


def test_small_files_are_filled_first(tmp_path: Path) -> None:
    table = make(tmp_path, many(10), partition_by="city")
    first = table.inspect.files().column("file_id").to_pylist()
    for start in (10, 20):
        result = table.insert(many(10, start))
        assert result.files_written == 1
        assert table.inspect.files().column("file_id").to_pylist() == first
    table.insert(many(10, 30, "b"))
    assert len(table.inspect.files()) == 2
    table.upsert(many(10, 40), options={"hoodie.parquet.small.file.limit": "0"})
    assert len(table.inspect.files()) == 3
    assert table.scan().count() == 50
    assert len(set(own(table, "id"))) == 50


def test_a_full_file_is_left_alone(tmp_path: Path) -> None:
    options = {"hoodie.parquet.max.file.size": "60000", "hoodie.parquet.small.file.limit": "30000"}
    table = make(tmp_path, options=options)
    table.bulk_insert(many(500))
    before = table.inspect.files().num_rows
    big = {row["file_id"] for row in table.inspect.files().to_pylist() if row["size"] >= 30000}
    table.insert(many(50, 1000))
    now = {row["file_id"]: row["instant"] for row in table.inspect.files().to_pylist()}
    first = table.inspect.history().column("commit_time").to_pylist()[-1]
    assert all(now[file_id] == first for file_id in big)
    assert len(now) >= before
    assert table.scan().count() == 550


def test_unsorted_bulk_insert(tmp_path: Path) -> None:
    table = make(tmp_path, options={"hoodie.bulkinsert.sort.mode": "NONE"})
    data = many(100).take(pa.array(list(reversed(range(100)))))
    table.bulk_insert(data)
    assert table.scan().to_arrow().column("id").to_pylist() == data.column("id").to_pylist()
    sorted_table = make(tmp_path / "sorted")
    sorted_table.bulk_insert(data)
    assert sorted_table.scan().to_arrow().column("id").to_pylist() == sorted(data.column("id").to_pylist())


# --------------------------------------------------------------------------------------------------------- planning
def base(file_id: str, size: int) -> BaseFile:
    return BaseFile("p", f"{file_id}_0-0-0_001.parquet", size, file_id, "001")


def test_planned_inserts() -> None:
    options = FileOptions(max_file_size=1000)
    targets = FileAssignment()
    assign_inserts(targets, "p", 100, 10.0, [(base("a", 900), 90), (base("b", 500), 50)], options)
    # In the order given: a takes 10, b 50, the rest is one new group.
    assert [target.file_id for target in targets.groups[:2]] == ["a", "b"]
    assert [target.base is None for target in targets.groups] == [False, False, True]
    assert [target.expected_rows for target in targets.groups] == [100, 100, 40]
    bins = targets.inserts["p"]
    assert len(bins.groups) == 3
    assert len(bins.edges) == 2
    assign_inserts(targets, "q", 250, 10.0, [], options)
    assert len(targets.inserts["q"].groups) == 3
    assign_inserts(targets, "s", 5, 10.0, [(base("full", 1000), 9), (base("c", 500), 50)], options)
    assert [targets.groups[number].file_id for number in targets.inserts["s"].groups] == ["c"]
    assign_inserts(targets, "r", 0, 10.0, [], options)
    assert targets.inserts["r"].groups == ()


def test_ranges_come_from_a_sample() -> None:
    targets = FileAssignment()
    sample = [f"k{n:03d}" for n in range(100)]
    assign_inserts(targets, "p", 100, 10.0, [], FileOptions(max_file_size=250), sample)
    bins = targets.inserts["p"]
    assert isinstance(bins, InsertBuckets)
    assert len(bins.groups) == 4
    assert bins.skip == 2
    assert list(bins.edges) == sorted(bins.edges)


def test_key_numbers_follow_the_order_of_keys() -> None:
    keys = sorted(["", "a", "ab", "abc", "abcdefgh", "abcdefghi", "b", "é", "\uff21", "😀"], key=str.encode)
    numbers = key_numbers(pa.array(keys), 0).tolist()
    assert numbers == sorted(numbers)
    assert key_numbers(pa.array(["x", *keys]).slice(1), 0).tolist() == numbers
    assert key_numbers(pa.array([], pa.string()), 0).tolist() == []
    assert key_numbers(pa.array(["", ""]), 0).tolist() == [0, 0]
