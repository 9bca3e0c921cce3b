"""A global index on Spark: rows in tasks, filters read by executors past the driver's cap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakedex import Table
from lakedex.index import bloom_filters
from lakedex.snapshot.snapshot import Limits
from lakedex.spark.engine import SparkEngine
from table_kit import OWN_FILE

SCHEMA = "id string, city string, ts decimal(12,2), n int, _hoodie_is_deleted boolean"
Row = tuple[str, str, str, int, bool]


def frame(spark: SparkSession, rows: list[Row]) -> Any:
    typed = spark.createDataFrame(
        [(key, city, ts, n, gone) for key, city, ts, n, gone in rows],
        "id string, city string, ts string, n int, g boolean",
    )
    return typed.selectExpr("id", "city", "cast(ts as decimal(12,2)) ts", "n", "g _hoodie_is_deleted").repartition(3)


def found(table: Table) -> list[tuple[Any, ...]]:
    read = table.scan().to_arrow()
    return sorted(zip(*(read.column(name).to_pylist() for name in ("id", "city", "n")), strict=True))


def test_in_tasks(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R4, R37.g: moves, late rows, repeats and deletes, with nothing on the driver and a cap of nothing."""
    options = {**OWN_FILE, "hoodie.index.type": "GLOBAL_BLOOM"}
    first = frame(spark, [(f"k{n}", "abc"[n % 3], "5.00", n, False) for n in range(9)])
    table = Table.create(
        tmp_path / "t",
        first.schema,
        record_key="id",
        partition_by="city",
        ordering_by="ts",
        options=options,
        spark=spark,
    )
    table.upsert(first)
    table.context.engine = SparkEngine(spark, driver_rows=0, driver_bytes=0)
    table.context.limits = Limits(driver_filter_bytes=1, gather_rows=0)

    def on_driver(*_: Any) -> Any:
        raise AssertionError("a filter was read on the driver")

    monkeypatch.setattr(bloom_filters, "iter_filters", on_driver)
    changes: list[Row] = [
        ("k0", "b", "6.00", 100, False),
        ("k1", "c", "4.99", 101, False),
        ("k2", "a", "6.00", 102, False),
        ("k2", "d", "7.00", 103, False),
        ("new", "d", "1.00", 104, False),
        ("k3", "c", "9.00", 105, True),
        ("k4", "b", "5.00", 106, False),
    ]
    result = table.upsert(frame(spark, changes))
    expected = {f"k{n}": ("abc"[n % 3], n) for n in range(9) if n != 3}
    expected |= {"k0": ("b", 100), "k2": ("d", 103), "k4": ("b", 106)}
    expected["new"] = ("d", 104)
    assert found(table) == sorted((key, *row) for key, row in expected.items())
    assert result.tagging.requests > 0
    assert (result.tagging.files_listed, result.tagging.matches) == (3, 5)
    assert result.tagging.false_positives == 0
    assert table.delete(frame(spark, [("k8", "nowhere", "0", 0, False)])).deleted == 1
    dropped = table.insert(
        frame(spark, [("k0", "x", "9", 1, False), ("fresh", "x", "9", 1, False), ("fresh", "y", "8", 2, False)]),
        options={"hoodie.datasource.insert.dup.policy": "drop"},
    )
    assert dropped.inserted == 1
    assert ("fresh", "x", 1) in found(table)


def test_footers_are_counted_on_executors(spark: SparkSession, tmp_path: Path) -> None:
    """R5: the classic index's requests are those of its tasks, added up."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int32())])
    table = Table.create(tmp_path / "t", schema, record_key="id", options=OWN_FILE, spark=spark)
    for number in range(4):
        table.insert(pa.table({"id": [f"k{number}"], "n": pa.array([1], pa.int32())}))
    rows = pa.table({"id": [f"k{number}" for number in range(5)], "n": pa.array([2] * 5, pa.int32())})
    report = table.upsert(rows, options={"hoodie.bloom.index.use.metadata": "false"}).tagging
    assert (report.source, report.files_listed, report.files_opened, report.matches) == ("footers", 4, 4, 4)
    assert report.requests >= 3 * 4  # ranges, filters, key columns
    assert report.bytes_read > 4 * 1000
