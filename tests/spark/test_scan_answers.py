"""Scans of a table that was opened with Spark: analysed in tasks, verified, limited, and of a range of commits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakedex import Table
from lakedex.errors import IndexInconsistentError
from lakedex.scan import analyze as analysis
from lakedex.scan.analyze import AnalyzedPlan
from limits import Limits
from table_kit import OWN_FILE, rows


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, list[str]]:
    """Four files by four commits; the last adds a column and updates a row."""
    path = tmp_path_factory.mktemp("answers") / "t"
    table = Table.create(path, rows().schema, record_key="id", ordering_by="ts", options=OWN_FILE, spark=spark)
    instants = [table.insert(rows((f"k{n}", "a", 1, n), (f"m{n}", "a", 1, 10 + n))).instant for n in range(3)]
    wider = rows(("k0", "a", 2, 20), ("z", "a", 2, 30)).append_column("more", pa.array([1, 2]))
    instants.append(table.upsert(wider).instant)
    return Table.open(path, spark=spark), instants


@pytest.fixture
def tasks(limits: Limits) -> None:
    """Every analysis is large enough for Spark tasks."""
    limits(analysis, TASK_BYTES=0)


def keys(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row["id"], row["n"]) for row in frame.collect())


@pytest.mark.usefixtures("tasks")
def test_analyze_and_verify_in_tasks(story: tuple[Table, list[str]]) -> None:
    table, _ = story
    scan = table.scan("n >= 20", verify="full")
    found = scan.explain(analyze=True)
    assert isinstance(found, AnalyzedPlan)
    assert found.rows_matched == 2
    assert len(found.files) + len(found.verified or ()) == found.plan.files_total == 4
    assert keys(scan.to_spark()) == [("k0", 20), ("z", 30)]


@pytest.mark.usefixtures("tasks")
def test_a_dropped_row_is_found(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path, rows().schema, record_key="id", options=OWN_FILE, spark=spark)
    instants = [table.insert(rows((f"k{n}", "a", 1, n), (f"m{n}", "a", 1, n))).instant for n in (1, 50, 70)]
    # Behind the table's back, so that its column stats are wrong.
    (file,) = tmp_path.glob(f"*_{instants[0]}.parquet")
    stored = pq.read_table(file)
    pq.write_table(stored.set_column(stored.schema.get_field_index("n"), "n", pa.array([99, 1], pa.int32())), file)
    with pytest.raises(IndexInconsistentError, match="record key 'k1'"):
        table.scan("n > 60", verify="full").to_spark()


def test_limit(story: tuple[Table, list[str]]) -> None:
    table, _ = story
    assert table.scan(limit=3).to_spark().count() == 3
    assert table.scan("n < 3").limit(2).to_spark().count() == 2


def test_changes(story: tuple[Table, list[str]]) -> None:
    table, (one, two, three, four) = story
    for since, until in ((one, three), (four, None), ("earliest", two)):
        scan = table.changes(since, until)
        local = scan.select("id", "n", "more").to_arrow().to_pylist()
        spark = [row.asDict() for row in scan.select("id", "n", "more").to_spark().collect()]
        assert sorted(map(repr, spark)) == sorted(map(repr, local))
    assert keys(table.changes(three).to_spark()) == [("k0", 20), ("z", 30)]
    assert keys(table.changes(one, two, where="n > 5").to_spark()) == [("m1", 11)]
