"""Spark's readers, vectorized and row by row, on base files of several pages and packed numbers."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakedex import Table

ROWS = 12_000
FILTERS = {
    "key = 'k011000'": 1,
    "n between 6000 and 6009": 10,
    "at < timestamp'1970-01-01 00:00:01Z'": 1,
    "day = date'1970-02-10' and small > 0": 0,
    "maybe = 33 or maybe is null": 4001,
    "x >= 0": ROWS,
}


def rows() -> pa.Table:
    numbers = np.arange(ROWS)
    mixed = numbers * 7919 % ROWS
    random = np.random.default_rng(1)
    micros = np.append(random.integers(1 << 40, 1 << 50, ROWS - 1), 5)
    return pa.table(
        {
            "key": [f"k{number:06d}" for number in numbers],
            "n": numbers,
            "small": pa.array(mixed - ROWS, pa.int32()),
            "maybe": pa.array([None if number % 3 == 1 else number for number in numbers.tolist()], pa.int64()),
            "at": pa.array(micros, pa.timestamp("us", "UTC")),
            "wall": pa.array(micros, pa.timestamp("us")),
            "day": pa.array(mixed, pa.int32()).cast(pa.date32()),
            "x": random.random(ROWS),
        }
    )


@pytest.mark.smoke
def test_sparks_readers_find_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = rows()
    own = Table.create(tmp_path / "t", table.schema, record_key="key")
    own.bulk_insert(table)
    (file,) = (tmp_path / "t").glob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    packed = {column.path_in_schema for column in columns if "DELTA_BINARY_PACKED" in column.encodings}
    assert packed == {"n", "small", "maybe", "at", "wall", "day"}
    total = sum(range(ROWS))
    micros = table.column("at").cast(pa.int64()).to_numpy().sum()
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        try:
            frame = spark.read.parquet(str(file))
            assert {where: frame.filter(where).count() for where in FILTERS} == FILTERS
            sums = frame.selectExpr(
                *("sum(n)", "sum(small)", "sum(maybe)", "sum(unix_micros(at))", "sum(datediff(day, date'1970-01-01'))")
            ).first()
            assert tuple(sums or ()) == (
                *(total, total - ROWS * ROWS, sum(n for n in range(ROWS) if n % 3 != 1), micros, total),
            )
            (row,) = frame.filter("n = 7777").select(*table.column_names).collect()
            (right,) = table.slice(7777, 1).to_pylist()
            assert {**row.asDict(), "at": row.at.replace(tzinfo=dt.UTC)} == right
        finally:
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
