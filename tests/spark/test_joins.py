"""R95, R96: joins by bitmaps against Spark's own LEFT SEMI and LEFT ANTI joins, and answers of a table that Spark opened."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bitmaps_by_hand import put_bitmaps
from lakedex import Table
from lakedex.errors import InvalidInputError
from table_kit import OWN_FILE


@pytest.fixture(scope="module")
def fact(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("joined") / "fact"
    schema = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("plane", pa.int32()), ("x", pa.float64())])
    local = Table.create(path, schema, record_key="id", options=OWN_FILE)
    for first in (0, 60):
        ids = range(first, first + 60)
        carriers = [["AA", "B'B", None, "C\\C"][i % 4] for i in ids]
        xs = [[0.0, -0.0, float("nan"), 1.5, None][i % 5] for i in ids]
        columns = [list(ids), carriers, [i % 7 if i % 11 else None for i in ids], xs]
        local.bulk_insert(pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema))
    put_bitmaps(local, "carrier", "plane", "x")
    return Table.open(path, spark=spark)


@pytest.mark.parametrize(
    "columns, keys, types",
    [
        (["carrier"], [("AA",), ("B'B",), ("C\\C",), (None,)], "carrier string"),
        (["plane"], [(1,), (2,), (2**40,), (None,)], "plane bigint"),
        (["plane"], [(1.0,), (2.5,)], "plane double"),
        (["x"], [(float("nan"),), (-0.0,)], "x double"),
        (
            ["carrier", "plane"],
            [("AA", 1), ("AA", 4), ("B'B", 1), (None, 2), ("C\\C", None)],
            "carrier string, plane int",
        ),
    ],
)
def test_joins_are_those_of_spark(
    fact: Table, spark: SparkSession, columns: list[str], keys: list[tuple], types: str
) -> None:
    dim = spark.createDataFrame(keys, types)
    whole = fact.to_df()
    for how in ("semi", "anti"):
        want = sorted(row.id for row in whole.join(dim, columns, f"left_{how}").select("id").collect())
        scan = replace(getattr(fact.scan(), f"{how}_join")(dim, columns), cost_gate=False)
        assert scan.count() == len(want)
        assert sorted(scan.to_arrow().column("id").to_pylist()) == want
        assert sorted(row.id for row in scan.filter("id >= 0").to_spark().select("id").collect()) == want


def test_keys_of_a_frame_are_checked(fact: Table, spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="no column 'carrier': id"):
        fact.scan().semi_join(spark.range(3), "carrier")
    assert fact.scan().semi_join(["AA"], "carrier").count() == 30


def test_many_keys_reach_spark(fact: Table, spark: SparkSession) -> None:
    scan = fact.scan().semi_join(spark.range(3, 20_000).toDF("no"), {"plane": "no"})
    assert scan.to_spark().count() == scan.count() == sum(i % 7 >= 3 and i % 11 != 0 for i in range(120))
