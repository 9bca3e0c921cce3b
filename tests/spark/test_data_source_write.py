"""``df.write.format("lakedex")`` on a classic session: one commit for each write, and nothing left of one that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from documentation import run_blocks
from lakedex import Table

pytestmark = pytest.mark.skipif(
    pyspark.__version__.startswith("3."), reason="PySpark 3.5 has no Python Data Source: Table.open(…).upsert(df)"
)
KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.datasource.write.precombine.field"
OPERATION = "hoodie.datasource.write.operation"
NEW = {KEY: "id", PARTITION: "city", ORDERING: "ts"}
ROWS = "select cast(id as string) id, concat('c', id % 2) city, 1L ts, id * 1.5D fare from range(6)"

Folder = Callable[[], Path]


def write(df: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    df.write.format("lakedex").mode(mode).options(**options).save(str(path))


def stored(path: Path, column: str = "fare") -> dict[str, object]:
    rows = Table.open(path).scan(columns=["id", column]).to_arrow().to_pydict()
    return dict(sorted(zip(rows["id"], rows[column], strict=True)))


def commits(path: Path) -> list[str]:
    return Table.open(path).inspect.history().column("operation").to_pylist()


def left(path: Path) -> list[str]:
    """What a write has staged and not removed."""
    return [str(found) for found in path.parent.rglob("*lakedex-staged-*")]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS).localCheckpoint()


@pytest.fixture
def trips(rows: DataFrame, tmp_path: Path) -> Path:
    write(rows, tmp_path / "trips", **NEW)
    return tmp_path / "trips"


@pytest.mark.proves('`format("lakedex")`: write', since=4.0)
@pytest.mark.smoke
def test_append_makes_the_table_and_upserts(rows: DataFrame, trips: Path) -> None:
    table = Table.open(trips)
    settings = table.snapshot().config
    assert (table.name, settings.record_key_fields, settings.partition_fields) == ("trips", ("id",), ("city",))
    assert settings.ordering_fields == ("ts",)
    assert stored(trips) == {str(n): n * 1.5 for n in range(6)}
    later = rows.where("id < '2'").withColumn("fare", F.lit(9.0))
    write(later.withColumn("ts", F.lit(2)), trips)
    write(later.withColumn("ts", F.lit(0)).withColumn("fare", F.lit(0.0)), trips)
    assert stored(trips) == {"0": 9.0, "1": 9.0, **{str(n): n * 1.5 for n in range(2, 6)}}
    assert commits(trips) == ["UPSERT"] * 2  # Rows that are older than the stored ones change nothing.
    assert not left(trips)


@pytest.mark.smoke
def test_overwrite_is_one_commit_and_keeps_the_history(spark: SparkSession, rows: DataFrame, trips: Path) -> None:
    before = Table.open(trips).snapshot().instant
    one, setting = rows.where("id = '2'"), "spark.sql.sources.partitionOverwriteMode"
    write(one, trips, "overwrite", partitionOverwriteMode="dynamic")
    assert list(stored(trips)) == ["1", "2", "3", "5"]
    spark.conf.set(setting, "dynamic")
    try:
        write(rows.where("id = '3'"), trips, "overwrite")
        assert list(stored(trips)) == ["2", "3"]
        write(one, trips, "overwrite", partitionOverwriteMode="static")
    finally:
        spark.conf.unset(setting)
    assert list(stored(trips)) == ["2"]
    assert commits(trips) == ["INSERT_OVERWRITE_TABLE", "INSERT_OVERWRITE", "INSERT_OVERWRITE", "UPSERT"]
    assert Table.open(trips).scan(as_of=before).count() == 6
    assert not left(trips)


def test_operations_by_hudis_names(rows: DataFrame, trips: Path) -> None:
    two = rows.where("id in ('0', '1')")
    for operation, count in (
        ("insert", 8), ("delete", 4), ("bulk_insert", 6), ("UPSERT", 6), ("insert_overwrite", 2),
        ("insert_overwrite_table", 2),
    ):  # fmt: skip
        write(two, trips, **{OPERATION: operation})
        assert Table.open(trips).scan().count() == count, operation
    assert commits(trips)[:6] == [
        "INSERT_OVERWRITE_TABLE", "INSERT_OVERWRITE", "UPSERT", "BULK_INSERT", "DELETE", "INSERT"
    ]  # fmt: skip


def test_columns_are_added_and_filled_as_merge_schema_says(rows: DataFrame, trips: Path) -> None:
    more = rows.where("id = '0'").withColumn("tip", F.lit(1.0))
    with pytest.raises(Exception, match=r"column 'tip' is new, and mergeSchema=false"):
        write(more, trips, mergeSchema="false")
    with pytest.raises(Exception, match=r"the frame lacks column 'fare'"):
        write(rows.drop("fare"), trips)
    write(more, trips)
    assert stored(trips, "tip") == {"0": 1.0, **dict.fromkeys(map(str, range(1, 6)))}
    write(rows.drop("fare").where("id = '1'"), trips, mergeSchema="true")
    assert (stored(trips)["0"], stored(trips)["1"]) == (0.0, None)


REFUSED: list[tuple[dict[str, str], str]] = [
    ({KEY: "fare"}, r"recordkey.field is 'id' and cannot become 'fare'"),
    ({"hoodie.table.name": "rides"}, r"hoodie.table.name is 'trips' and cannot become 'rides'"),
    ({"hoodie.table.nam": "trips"}, r"did you mean 'hoodie.table.name'"),
    ({"mergeShema": "true"}, r"unknown option 'mergeshema' of format\('lakedex'\); did you mean 'mergeSchema'"),
    ({OPERATION: "delete_partition"}, r"call Table.open\(path\).delete_partition"),
    ({OPERATION: "merge"}, r"give upsert, insert"),
    ({"hoodie.datasource.write.keygenerator.class": "x"}, r"lakedex picks SIMPLE, COMPLEX or NON_PARTITION"),
    ({"hoodie.datasource.write.table.type": "MERGE_ON_READ"}, r"table.type is 'cow' and cannot become 'mor'"),
    ({"partitionOverwriteMode": "both"}, r"give one of static, dynamic"),
]


def test_what_is_refused_is_one_line_before_the_job(rows: DataFrame, trips: Path) -> None:
    for options, message in REFUSED:
        with pytest.raises(Exception, match=message) as caught:
            write(rows, trips, **options)
        assert "Traceback" not in str(caught.value)
        assert len(str(caught.value).strip().splitlines()) <= 2  # Spark's SQLSTATE is a line of its own.
    assert commits(trips) == ["UPSERT"]
    assert not left(trips)


@pytest.mark.smoke
def test_a_write_that_fails_leaves_nothing(rows: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "trips"
    nobody = rows.withColumn("id", F.expr("if(id = '3', null, id)"))
    # One task: another that Spark kills may still stage its file after the abort, until a later write removes it.
    broken = rows.coalesce(1).withColumn("fare", F.expr("if(id = '3', raise_error('no fare'), fare)"))
    with pytest.raises(Exception, match=rf"{path} is no Hudi table; to make one for upsert give .option\('{KEY}'"):
        write(rows, path, **{OPERATION: "upsert"})
    for frame, options, message in (
        (rows, {KEY: "uid"}, r"record key column 'uid' is not in the schema; did you mean 'id'"),
        (broken, NEW, "no fare"),
        (nobody, NEW, "1 of 6 rows have a null or empty record key"),
    ):
        with pytest.raises(Exception, match=message):
            write(frame, path, **options)
        assert not path.exists()
    write(rows, path, "overwrite", **NEW)
    for frame in (broken, nobody):
        with pytest.raises(Exception, match=r"no fare|null or empty record key"):
            write(frame, path, "overwrite")
    assert (len(stored(path)), commits(path), left(path)) == (6, ["INSERT_OVERWRITE_TABLE"], [])


def test_empty_frames(rows: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "trips"
    write(rows.where("false"), path, **NEW)
    assert Table.open(path).schema.names == ["id", "city", "ts", "fare"]
    write(rows, path)
    write(rows.where("false"), path, "overwrite", partitionOverwriteMode="dynamic")
    assert len(stored(path)) == 6
    write(rows.where("false"), path, "overwrite")
    assert stored(path) == {}


def test_the_page_for_users_of_hudis_jar(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks("docs/from_hudi.md", tmp_path, {"spark": spark, "df": rows})
    assert sum(line.startswith("|") for line in capsys.readouterr().out.splitlines()) == 2, "names, and a row"
    assert commits(tmp_path / "trips") == ["UPSERT", "UPSERT"]
