"""What a Parquet footer is believed of."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import LeafStats, open_for_scan


def stats_of(path: Path, table: pa.Table, *names: str, **options: Any) -> LeafStats | None:
    pq.write_table(table, path / "f.parquet", **{"store_schema": False, "row_group_size": 2, **options})
    with open_for_scan(LocalStorage(), str(path / "f.parquet")) as source:
        assert source.row_groups == -(-table.num_rows // 2)
        return source.stats(names)


@pytest.mark.parametrize(
    "kind, values, bounds",
    [
        (pa.int32(), [3, 1, None, 2], [(1, 3), (2, 2)]),
        (pa.int8(), [-128, 127, 0, -1], [(-128, 127), (-1, 0)]),
        (pa.int64(), [-(2**63), 2**63 - 1, 1, 1], [(-(2**63), 2**63 - 1), (1, 1)]),
        (pa.bool_(), [True, False, None, True], [(False, True), (True, True)]),
        (pa.date32(), [dt.date(2020, 1, 2), dt.date(1899, 1, 1), None, None], [(dt.date(1899, 1, 1), dt.date(2020, 1, 2)), (None, None)]),
        (pa.string(), ["b", "é", "", None], [("b", "é"), ("", "")]),
        (pa.string(), ["\ue000", "\U0001f600", "a", "a"], [("\ue000", "\U0001f600"), ("a", "a")]),
        (pa.binary(), [b"\xff", b"\x01", b"", b"\x80"], [(b"\x01", b"\xff"), (b"", b"\x80")]),
        (pa.decimal128(5, 2), [Decimal("-1.50"), Decimal("1.25"), None, Decimal("0.00")], [(Decimal("-1.50"), Decimal("1.25")), (Decimal("0.00"), Decimal("0.00"))]),
        (pa.decimal128(38, 3), [Decimal("-9e34"), Decimal("1.250"), Decimal("2.000"), None], [(Decimal("-9e34"), Decimal("1.250")), (Decimal("2.000"), Decimal("2.000"))]),
    ],
    ids=str,
)  # fmt: skip
def test_bounds(tmp_path: Path, kind: pa.DataType, values: list[Any], bounds: list[tuple[Any, Any]]) -> None:
    table = pa.table({"c": pa.array(values, kind)})
    options = [{}, {"store_decimal_as_integer": True}] if pa.types.is_decimal(kind) else [{}]
    for option in options:
        found = stats_of(tmp_path, table, "c", **option)
        assert found is not None
        assert list(zip(found.minimum.to_pylist(), found.maximum.to_pylist(), strict=True)) == bounds
        assert found.null_count == (values[:2].count(None), values[2:].count(None))


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_come_in_microseconds(tmp_path: Path, unit: str, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    found = stats_of(tmp_path, pa.table({"c": pa.array([5, -7], pa.int64()).cast(kind)}), "c")
    assert found is not None
    factor = 1000 if unit == "ms" else 1
    assert found.minimum.type == pa.timestamp("us", zone)
    assert found.minimum.cast(pa.int64()).to_pylist() == [-7 * factor]
    assert found.maximum.cast(pa.int64()).to_pylist() == [5 * factor]


def test_a_date_that_python_has_not(tmp_path: Path) -> None:
    far = pa.array([-9_999_999, 9_999_999], pa.int32()).cast(pa.date32())
    found = stats_of(tmp_path, pa.table({"c": far}), "c")
    assert found is not None
    assert found.minimum.cast(pa.int32()).to_pylist() == [-9_999_999]


@pytest.mark.parametrize(
    "array, options",
    [
        (pa.array([1.0, 2.0]), {}),
        (pa.array([1.0, float("nan")], pa.float32()), {}),
        (pa.array([1, 2], pa.uint32()), {}),
        (pa.array([1, 2], pa.timestamp("ns")), {"version": "2.6"}),
        (pa.array([1, 2], pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}),
        (pa.array([1, 2], pa.timestamp("ms")), {"write_statistics": False}),
        (pa.array([1, 2], pa.time64("us")), {}),
    ],
    ids=["double", "float", "unsigned", "nanoseconds", "INT96", "no statistics", "time"],
)
def test_no_bounds_are_taken_of(tmp_path: Path, array: pa.Array, options: dict[str, Any]) -> None:
    found = stats_of(tmp_path, pa.table({"c": array}), "c", **options)
    assert found is not None
    assert found.minimum.null_count == found.maximum.null_count == 1
    silent = {"write_statistics", "use_deprecated_int96_timestamps"} & options.keys()
    assert found.null_count == ((-1,) if silent else (0,))


def test_null_counts_of_floats_are_taken(tmp_path: Path) -> None:
    found = stats_of(tmp_path, pa.table({"c": pa.array([None, 1.0, None, None])}), "c")
    assert found is not None
    assert found.null_count == (1, 2)


def test_fields_of_structs(tmp_path: Path) -> None:
    places = pa.array([{"x": 1, "y": [1]}, None, {"x": None, "y": None}, {"x": 3, "y": []}])
    table = pa.table({"p": places, "other": [1, 2, 3, 4]})
    found = stats_of(tmp_path, table, "p", "x")
    assert found is not None
    assert (found.minimum.to_pylist(), found.maximum.to_pylist(), found.null_count) == ([1, 3], [1, 3], (1, 1))
    assert stats_of(tmp_path, table, "p") is None
    assert stats_of(tmp_path, table, "p", "y") is None


def test_a_column_that_is_not_there_is_null(tmp_path: Path) -> None:
    table = pa.table({"p": [{"x": 1}, None, None], "n": [1, 2, 3]})
    for path in (("gone",), ("gone", "x"), ("p", "gone"), ("n", "x")):
        found = stats_of(tmp_path, table, *path)
        assert found is not None
        assert (found.minimum.to_pylist(), found.null_count) == ([None, None], (2, 1))


def test_a_name_with_a_dot_is_no_field(tmp_path: Path) -> None:
    both = pa.table({"a": [{"b": 1}], "a.b": [7]})
    assert stats_of(tmp_path, both, "a", "b") is None
    assert stats_of(tmp_path, both, "a.b") is None
    alone = stats_of(tmp_path, pa.table({"a.b": [7]}), "a.b")
    assert alone is not None
    assert alone.minimum.to_pylist() == [7]


def test_decimals_of_an_old_writer_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"d": pa.array([Decimal("1.5")], pa.decimal128(30, 1)), "n": [1]})
    pq.write_table(table, tmp_path / "f.parquet", store_schema=False)
    path = str(tmp_path / "f.parquet")
    data = Path(path).read_bytes()
    with open_for_scan(LocalStorage(), path) as source:
        assert source.stats(("d",)).minimum.null_count == 0
        writer = pq.read_metadata(path).created_by.encode()
    old = b"parquet-mr version 1.8.1".ljust(len(writer))
    Path(path).write_bytes(data.replace(writer, old))
    with open_for_scan(LocalStorage(), path) as source:
        assert source.stats(("d",)).minimum.null_count == 1
        assert source.stats(("n",)).minimum.to_pylist() == [1]


def test_sizes_and_rows(tmp_path: Path) -> None:
    stats_of(tmp_path, pa.table({"a": [1, 2, 3], "s": [{"x": 1, "y": "a"}] * 3}), "a")
    with open_for_scan(LocalStorage(), str(tmp_path / "f.parquet")) as source:
        assert source.rows_per_group == [2, 1]
        both = source.bytes_of(["a", "s"], [0, 1])
        assert (
            0
            < source.bytes_of(["a"], [0])
            < source.bytes_of(["a", "s.x"], [0])
            < source.bytes_of(["a", "s"], [0])
            < both
        )
        assert [batch.num_rows for batch in source.batches(["a"], [1], 10)] == [1]
        assert list(source.batches(["a"], [], 10)) == []
        (batch,) = source.batches(["s.y", "nope"], [0], 10)
        assert batch.to_pydict() == {"s": [{"y": "a"}, {"y": "a"}]}


def test_what_is_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(CorruptFileError), open_for_scan(LocalStorage(), str(tmp_path / "f.parquet")):
        pass
    with pytest.raises(FileNotFoundError), open_for_scan(LocalStorage(), str(tmp_path / "gone.parquet")):
        pass
