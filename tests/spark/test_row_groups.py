"""Row groups chosen by a plan reach Spark's own Parquet reader: equal rows, fewer bytes, and no row twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakedex import Table, register_catalog
from lakedex.index.bitmap.builder import row_groups_of
from lakedex.parquet.base_file_reader import open_for_scan
from lakedex.parquet.base_file_writer import BaseFileWriter
from lakedex.scan.plan import ScanPlan
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog import scan as catalog_scan
from lakedex.spark.catalog.scan_files import FileRanges, ranges_of
from spark_plans import nodes
from table_kit import OWN_FILE

FIRST = 10_000
"""Keys have one length: rows lie in the order of the keys' text."""
ROWS = 4000
GROUP = 500
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("pad", pa.string())])
Choice = Callable[[str], Sequence[int] | None]


def data(first: int, partition: str) -> pa.Table:
    ids = range(first, first + ROWS)
    pads = [f"{number * 7919 % 100003:06d}" for number in ids]
    return pa.table([list(ids), [partition] * ROWS, [number % 10 for number in ids], pads], schema=SCHEMA)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of eight row groups each, under one name in SQL."""
    warehouse = tmp_path_factory.mktemp("groups")
    whole = BaseFileWriter.write

    def in_groups(writer: BaseFileWriter, batch: pa.RecordBatch, hashed: object = None) -> None:
        for first in range(0, batch.num_rows, GROUP):
            whole(writer, batch.slice(first, GROUP))
            writer.end_row_group()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseFileWriter, "write", in_groups)
        options = OWN_FILE
        table = Table.create(warehouse / "t", SCHEMA, record_key="id", partition_by="p", options=options)
        for number, partition in enumerate("abc"):
            table.bulk_insert(data(FIRST + number * ROWS, partition), options=options)
    register_catalog(spark, "groups", str(warehouse))
    return warehouse


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Choice], None]:
    """Make the seam answer with row groups by a file's path; None for the whole file."""

    def put(choice: Choice) -> None:
        def ranges(snapshot: Snapshot, plan: ScanPlan) -> Mapping[str, FileRanges]:
            found = {}
            for base in plan.files:
                path = snapshot.files.path(base.relative_path)
                kept = choice(path)
                if kept is not None:
                    with open_for_scan(snapshot.files.storage, path) as source:
                        part = ranges_of(row_groups_of(source), kept)
                    assert part is not None and part.total == 8
                    found[path] = part
            return found

        monkeypatch.setattr(catalog_scan, "row_group_ranges", ranges)

    return put


def parts(frame: DataFrame) -> list[list[tuple[str, int, int]]]:
    """Per task of the frame's scan what it read: partition folder, first byte, length."""
    (scan,) = nodes(frame, "BatchScanExec")
    tasks = scan.inputRDD().partitions()
    return [
        [(file.toPath().getParent().getName(), file.start(), file.length()) for file in _input(task).files()]
        for task in tasks
    ]


def _input(task: Any) -> Any:
    # A Seq of partitions before Spark 4.3, an Option since.
    names = {method.getName() for method in task.getClass().getMethods()}
    found = task.inputPartitions() if "inputPartitions" in names else task.inputPartition()
    return found.toList().head()


def size_read(frame: DataFrame) -> int:
    return sum(length for task in parts(frame) for _, _, length in task)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


def only(partition: str, *groups: int) -> Choice:
    """Those row groups of a partition's file, and other files whole."""
    return lambda path: list(groups) if f"/p={partition}/" in path else None


def in_group(partition: int, *groups: int) -> list[int]:
    """Even keys of some row groups."""
    first = FIRST + partition * ROWS
    return [n for group in groups for n in range(first + group * GROUP, first + (group + 1) * GROUP) if n % 2 == 0]


EVEN = "select id, pad from groups.t where n % 2 = 0"


def test_the_reader_reads_the_chosen_row_groups_and_no_other(spark: SparkSession, lake: Path, choose: Any) -> None:
    frame = spark.sql(EVEN)
    everything = ids(frame)
    assert everything == list(range(FIRST, FIRST + 3 * ROWS, 2))
    whole = size_read(frame)
    choose(only("b", 0, 1, 5))
    frame = spark.sql(EVEN)
    kept = sorted([*in_group(0, *range(8)), *in_group(1, 0, 1, 5), *in_group(2, *range(8))])
    assert ids(frame) == kept, "the choice decides: this condition is not judged by Parquet's own statistics"
    read = [part for task in parts(frame) for part in task]
    assert len([part for part in read if part[0] == "p=b"]) == 2, "neighbours are one range"
    assert 0.72 * whole < size_read(frame) < 0.85 * whole
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "ColumnarToRow" in plan
    assert "row groups 3 of 8 in 1 files" in spark.sql(f"explain formatted {EVEN}").head()[0]  # type: ignore[index]
    metrics = nodes(frame, "BatchScanExec")[0].metrics()
    if not spark.version.startswith("3."):
        assert metrics.apply("lakedexRowGroupsSkipped").value() == 5
        assert metrics.apply("lakedexRowGroupBytesSkipped").value() == whole - size_read(frame)


def test_a_right_choice_gives_equal_rows_from_fewer_bytes(spark: SparkSession, lake: Path, choose: Any) -> None:
    query = "select id, n from groups.t where (id - 10000) % 4000 between 1100 and 1300 and p <> 'c'"
    frame = spark.sql(query)
    wanted, whole = frame.collect(), size_read(frame)
    choose(lambda path: [2])
    frame = spark.sql(query)
    assert sorted(frame.collect()) == sorted(wanted) and len(wanted) == 402
    assert size_read(frame) < whole / 6
    stats = frame._jdf.queryExecution().optimizedPlan().stats()
    assert int(str(stats.sizeInBytes())) < whole


def test_nothing_of_a_file_or_of_any(spark: SparkSession, lake: Path, choose: Any) -> None:
    choose(only("a"))
    frame = spark.sql(EVEN)
    assert ids(frame)[0] == FIRST + ROWS
    assert {part[0] for task in parts(frame) for part in task} == {"p=b", "p=c"}
    choose(lambda path: [])
    frame = spark.sql(EVEN)
    assert ids(frame) == [] and parts(frame) == []
    assert spark.sql("select count(*) c, max(id) m from groups.t where n % 2 = 0").collect() == [(0, None)]


def test_parts_are_split_and_packed_as_files_are(spark: SparkSession, lake: Path, choose: Any) -> None:
    choose(only("b", 1, 2, 3, 4, 5, 6))
    most = 20_000
    settings = {"spark.sql.files.maxPartitionBytes": most, "spark.sql.files.openCostInBytes": 1000}
    try:
        for name, value in settings.items():
            spark.conf.set(name, str(value))
        frame = spark.sql(EVEN)
        assert ids(frame) == sorted([*in_group(0, *range(8)), *in_group(1, 1, 2, 3, 4, 5, 6), *in_group(2, *range(8))])
        tasks = parts(frame)
        assert len(tasks) > 2 * 3 and all(sum(part[2] for part in task) <= most for task in tasks)
    finally:
        for name in settings:
            spark.conf.unset(name)
    frame = spark.sql(EVEN)
    ids(frame)
    assert len(parts(frame)) == 2, "small parts share a task, one for each core"


def test_two_choices_are_two_scans(spark: SparkSession, lake: Path, choose: Any) -> None:
    scans = []
    for group in (0, 1, 1):
        choose(only("b", group))
        frame = spark.sql(EVEN)
        assert set(ids(frame)) & set(range(FIRST + ROWS, FIRST + 2 * ROWS)) == set(in_group(1, group))
        scans += nodes(frame, "BatchScanExec")
    one, other, again = scans
    assert (
        other.equals(again)
        and other.batch().equals(again.batch())
        and other.batch().hashCode() == again.batch().hashCode()
    )
    assert not one.batch().equals(other.batch()) and not one.scan().equals(other.scan())
    counts = "(select pad, count(*) c from groups.t where n % 2 = 0 group by pad)"
    joined = spark.sql(f"select x.c, y.c d from {counts} x join {counts} y on x.pad = y.pad")
    joined.collect()
    assert nodes(joined, "ReusedExchangeExec"), "equal scans are read once"


def test_a_join_narrows_the_choice(spark: SparkSession, lake: Path, choose: Any) -> None:
    choose(lambda path: [3])
    spark.createDataFrame([("b", 1), ("z", 2)], "p string, k int").createOrReplaceTempView("dims")
    frame = spark.sql(
        "select /*+ BROADCAST(d) */ t.id from groups.t t join dims d on t.p = d.p where t.n % 2 = 0 and d.k = 1"
    )
    assert ids(frame) == in_group(1, 3)
    assert "dynamicpruning" in frame._jdf.queryExecution().optimizedPlan().toString().lower()
    ((part,),) = parts(frame)
    assert part[0] == "p=b" and part[1] > 0
    assert ids(spark.sql(EVEN)) == sorted([*in_group(0, 3), *in_group(1, 3), *in_group(2, 3)])


def test_limits_and_plans_without_a_condition_read_whole_files(spark: SparkSession, lake: Path, choose: Any) -> None:
    choose(lambda path: [])
    assert len(ids(spark.sql("select id from groups.t"))) == 3 * ROWS
    assert len(ids(spark.sql("select id from groups.t limit 3"))) == 3
    assert spark.sql("select id from groups.t order by id desc limit 1").collect() == [(FIRST + 3 * ROWS - 1,)]
