"""``CALL lake.system.…`` on Spark 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from golden_tables import unpack_java_1_2
from lakedex import Table, register_catalog


@pytest.fixture(scope="module")
def trips(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three commits and a bitmap index."""
    folder = tmp_path_factory.mktemp("calls")
    register_catalog(spark, "calls", str(folder))
    spark.sql("create namespace calls.west")
    spark.sql(
        "create table calls.west.trips (id string, city string, n int) using hudi partitioned by (city) "
        "tblproperties (primaryKey = 'id', preCombineField = 'n')"
    )
    for rows in ("('a', 'oslo', 1), ('b', 'rome', 2)", "('a', 'oslo', 3)", "('c', 'oslo', 4)"):
        spark.sql(f"insert into calls.west.trips values {rows}")
    return folder / "west" / "trips"


def called(spark: SparkSession, name: str, arguments: str = "") -> list[dict[str, Any]]:
    given = f"table => 'west.trips'{arguments}" if name != "help" else arguments
    return [row.asDict() for row in spark.sql(f"call calls.system.{name}({given})").collect()]


@pytest.mark.proves("procedures: `CALL`", since=4.0)
@pytest.mark.smoke
def test_procedures_answer_as_the_table_does(spark: SparkSession, trips: Path) -> None:
    if spark.version.startswith("3."):
        with pytest.raises(PySparkException, match="(?i)call"):
            spark.sql("call calls.system.help()")
        return
    table = Table.open(trips)
    assert called(spark, "show_commits", ", limit => 2") == table.inspect.history(2).to_pylist()
    for spelled in ("'calls.west.trips'", f"'{trips}'", "'`west`.trips'"):
        assert spark.sql(f"call calls.system.show_commits({spelled}, 1)").count() == 1
    timeline = called(spark, "show_timeline", ", limit => 1")[0]
    assert timeline["instant_time"] == table.snapshot().instant and timeline["state"] == "COMPLETED"
    assert {row["name"] for row in called(spark, "show_indexes")} == set(table.indexes.list()["name"].to_pylist())
    assert called(spark, "validate") == []
    assert called(spark, "explain", ", where => \"city = 'oslo'\"")[0]["plan"].startswith("scan of")
    assert called(spark, "advise", ", columns => 'city', queries => \"city = 'oslo'; n > 1\"")[0]["column"] == "city"
    first, second, third = table.inspect.history()["commit_time"].to_pylist()[::-1]
    new = called(spark, "changes", f", since => '{second}'")
    assert [row["id"] for row in new] == ["c"]
    assert [row["n"] for row in called(spark, "changes", f", until => '{first}', where => 'n < 2'")] == [1]
    assert third == table.snapshot().instant
    assert {row["name"] for row in called(spark, "help")} > {"run_clean", "help"}
    assert called(spark, "help", "cmd => 'refresh_index'")[0]["arguments"] == "table STRING, index_name STRING"


def test_procedures_that_change_a_table(spark: SparkSession, trips: Path) -> None:
    if spark.version.startswith("3."):
        pytest.skip("Spark 3.5 has no CALL")
    spark.sql("create table calls.west.other using hudi tblproperties (primaryKey = 'id') as select 1 id, 2 n")
    table = Table.open(trips.parent / "other")

    def call(name: str, arguments: str = "") -> dict[str, Any]:
        return spark.sql(f"call calls.system.{name}('west.other'{arguments})").first().asDict()  # type: ignore[union-attr]

    kept = table.snapshot().instant
    assert call("create_savepoint", ", comments => 'first', user => 'me'") == {
        "create_savepoint_result": True,
        "commit_time": kept,
    }
    shown = call("show_savepoints")
    assert (shown["savepoint_time"], shown["savepointed_by"], shown["comments"]) == (kept, "me", "first")
    for value in (3, 4):
        spark.sql(f"insert overwrite calls.west.other values (1, {value})")
    last = table.snapshot().instant
    assert call("rollback_to_instant", f", instant_time => '{last}'")["rollback_result"] is True
    assert spark.sql("select n from calls.west.other").collect() == [(3,)]
    undone = call("rollback_to_savepoint", f", instant_time => '{kept}'")
    assert undone["rollback_savepoint_result"] is True and len(undone["undone"]) == 1
    assert spark.sql("select n from calls.west.other").collect() == [(2,)]
    assert call("delete_savepoint", f", instant_time => '{kept}'") == {"delete_savepoint_result": True}
    assert call("run_clean", ", retain_commits => 1, dry_run => true")["dry_run"] is True
    assert call("run_clean", ", clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1") is not None
    planned = call("run_clustering", ", op => 'schedule', order => 'n'")
    assert planned["state"] == "REQUESTED"
    assert call("run_clustering", ", op => 'execute'")["timestamp"] == planned["timestamp"]
    spark.sql("create index by_n on calls.west.other using bitmap (n)")
    assert call("refresh_index", ", index_name => 'by_n'")["files"] == 0
    assert call("rebuild_metadata")["files"] == 2, "the clustered file stays for older instants"
    assert table.maintenance.validate().ok


def test_compactions(spark: SparkSession, trips: Path, tmp_path: Path) -> None:
    if spark.version.startswith("3."):
        pytest.skip("Spark 3.5 has no CALL")
    path = unpack_java_1_2("mor_v6", tmp_path)
    before = Table.open(path).scan().to_arrow().sort_by("id")

    def call(name: str, arguments: str = "") -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(f"call calls.system.{name}('{path}'{arguments})").collect()]

    ((planned, groups, state),) = call("run_compaction", ", 'schedule'")
    assert (groups, state) == (2, "REQUESTED")
    assert call("show_compaction") == [(planned, 2, "REQUESTED")]
    assert call("run_compaction", ", 'run'") == [(planned, 2, "COMPLETED")]
    assert call("show_compaction") == call("run_compaction", ", 'scheduleandexecute'") == []
    after = Table.open(path).scan().to_arrow().sort_by("id")
    assert after.equals(before)


REFUSED = (
    ("run_clustering('west.trips', op => 'cluster')", "op is schedule, execute or scheduleAndExecute"),
    ("run_compaction('west.trips', 'schedule')", "copy-on-write table"),
    ("run_compaction('west.trips', 'stop')", "op is schedule, run, execute or scheduleandexecute"),
    ("show_commits('west.nothing')", "no table west.nothing in catalog calls"),
    ("show_commits(null)", "argument table is null"),
    ("show_commits('west.trips', nope => 1)", "UNRECOGNIZED_PARAMETER_NAME"),
    ("show_commits()", "REQUIRED_PARAMETER_NOT_FOUND"),
    ("changes('west.trips', limit => 1)", "more than 1 rows"),
    ("delete_savepoint('west.trips', instant_time => '1')", "1"),
    (
        "run_clean('west.trips', clean_policy => 'KEEP_LATEST_BY_HOURS', retain_commits => 1)",
        "does not go with commits",
    ),
    ("help(cmd => 'x')", "there is no procedure 'x'"),
    ("nope('west.trips')", "nope"),
)


def test_refusals_of_calls(spark: SparkSession, trips: Path) -> None:
    if spark.version.startswith("3."):
        pytest.skip("Spark 3.5 has no CALL")
    for call, error in REFUSED:
        with pytest.raises(PySparkException, match=error) as refused:
            spark.sql(f"call calls.system.{call}").collect()
        assert "Traceback" not in str(refused.value)
