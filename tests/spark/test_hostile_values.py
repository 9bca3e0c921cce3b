"""Values that a parser would take for something else: they delete, overwrite, find and join the rows that have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakedex import Table, register_catalog
from lakedex.errors import InvalidInputError

VALUES = [
    "", " ", "none", "${none}", "${system:user.home}", "${env:PATH}", "${spark:spark.app.name}", "${hiveconf:x}", "${", "${}",
    "it's", "its", 'say "hi"', "back\\slash", "backslash", "\\", "\\'", "'", "''", "' OR '1'='1", "x' OR TRUE --", "a%b", "a\\%b",
    "_", "\n", "\\n", "n", "\r\n", "\t", "\0", "nul\0in", "é😀", "\u2028", "`tick`", "--", "/* */", ":p", "?", "\\u0041", "A",
    "TIMESTAMP '2020-01-01 00:00:00'", "\ufffd", "a\ufffd", "NULL", "\x1b[31m", ";",
]  # fmt: skip
ROWS = pa.schema([("id", pa.int32()), ("v", pa.string())])
SETTINGS: dict[str, dict[str, str]] = {
    "as Spark comes": {},
    "escapedStringLiterals": {"spark.sql.parser.escapedStringLiterals": "true"},
    "doubleQuotedIdentifiers": {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
}
OWN_FILES = {"hoodie.parquet.small.file.limit": "0"}


@pytest.fixture(params=SETTINGS)
def settings(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Settings of Spark's parser, put back."""
    for name, value in SETTINGS[request.param].items():
        spark.conf.set(name, value)
    yield
    for name in SETTINGS[request.param]:
        spark.conf.unset(name)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """``odd.t``: each value in a row, in four files whose bounds tell them apart."""
    made = Table.create(tmp_path / "t", ROWS, record_key="id", options=OWN_FILES)
    numbered = sorted(enumerate(VALUES), key=lambda pair: pair[1].encode())
    for quarter in range(4):
        part = numbered[quarter * len(VALUES) // 4 : (quarter + 1) * len(VALUES) // 4]
        made.insert(pa.table({"id": pa.array([n for n, _ in part], pa.int32()), "v": [value for _, value in part]}))
    register_catalog(spark, "odd", str(tmp_path))
    return Table.open(tmp_path / "t", spark=spark)


def asked(spark: SparkSession, value: str) -> tuple[str, dict[str, str]]:
    """A value in SQL: a parameter, or hex where Spark 4.1 reads its parameters by a parser that the setting misleads."""
    if spark.conf.get("spark.sql.parser.escapedStringLiterals") == "true":
        return f"cast(X'{value.encode().hex()}' as string)", {}
    name = f"p{VALUES.index(value)}"
    return f":{name}", {name: value}


def run(spark: SparkSession, text: str, *values: str) -> list[str]:
    """A statement whose ``{}`` are values; the texts that it answers."""
    found = [asked(spark, value) for value in values]
    arguments = {name: value for _, own in found for name, value in own.items()}
    return [row[0] for row in spark.sql(text.format(*(marker for marker, _ in found)), arguments).collect()]


def many(count: int) -> str:
    return ", ".join(["{}"] * count)


def left(table: Table) -> set[str]:
    return set(Table.open(table.path).scan().to_arrow().column("v").to_pylist())


WORST = ["${none}", "${system:user.home}", "it's", "back\\slash", "\\'", "' OR '1'='1", "\n", "nul\0in"]


def test_values_are_found(spark: SparkSession, table: Table, settings: None) -> None:
    frame = table.to_df()
    for value in WORST:
        assert [row.v for row in frame.where(F.col("v") == F.lit(value)).collect()] == [value]
        assert run(spark, "select v from odd.t where v = {}", value) == [value]
    assert set(run(spark, f"select v from odd.t where v in ({many(len(VALUES))})", *VALUES)) == set(VALUES)


def test_a_delete_takes_the_rows_of_its_values(spark: SparkSession, table: Table, settings: None) -> None:
    rest = set(VALUES)
    for value in WORST:
        run(spark, "delete from odd.t where v <=> {}" if len(value) == 1 else "delete from odd.t where v = {}", value)
        rest.remove(value)
        assert left(table) == rest, value
    gone = [value for number, value in enumerate(VALUES) if value in rest and number % 2]
    run(spark, f"delete from odd.t where v in ({many(len(gone))}) and id >= 0", *gone)
    rest -= set(gone)
    assert left(table) == rest
    run(spark, "delete from odd.t where not (startswith(v, {}) or v in ({}, {}) or v = {})", "${", "\\", "''", "\0")
    assert left(table) == {v for v in rest if v.startswith("${") or v in ("\\", "''", "\0")}


def test_an_overwrite_replaces_the_partition_of_its_value(spark: SparkSession, table: Table, settings: None) -> None:
    schema = pa.schema([("id", pa.int32()), ("v", pa.string())])
    values = ["${none}", "", "it's", "its", "back\\slash", "backslash", "é😀"]
    made = Table.create(Path(table.path).parent / "parts", schema, record_key="id", partition_by="v",
                        options={"hoodie.datasource.write.partitionpath.urlencode": "true"})  # fmt: skip
    made.insert(pa.table([pa.array(range(len(values)), pa.int32()), pa.array(values)], schema))
    for number, value in enumerate(values):
        if value in ("${none}", "it's", "back\\slash"):
            new = spark.createDataFrame([(100 + number, value)], "id int, v string")
            new.writeTo("odd.parts").overwrite(F.col("v") == F.lit(value))
    found = made.scan().to_arrow()
    assert dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True)) == {
        100: "${none}", 1: "", 102: "it's", 3: "its", 104: "back\\slash", 5: "backslash", 6: "é😀",
    }  # fmt: skip


def test_joins_find_their_keys(spark: SparkSession, table: Table, settings: None) -> None:
    keys = [value for value in VALUES if value not in ("", "none", "its", "backslash", "n", "A")]
    assert {row.v for row in table.scan().semi_join(keys, "v").to_spark().collect()} == set(keys)
    assert {row.v for row in table.scan().anti_join(keys, "v").to_spark().collect()} == set(VALUES) - set(keys)


def test_a_condition_that_spark_reads_otherwise_leaves_no_file_out(
    spark: SparkSession, table: Table, settings: None
) -> None:
    for where in ("v = '${hiveconf:none}'", r"v = '\\n'", r"v in ('back\\slash', 'A')", "v = '${none}' or id = 1"):
        found = sorted(row.v for row in table.scan(where).to_spark().collect())
        assert found == sorted(row.v for row in table.to_df().where(where).collect())


def test_merges_and_erasures_refuse_text_that_spark_reads_otherwise(
    spark: SparkSession, table: Table, settings: None
) -> None:
    source = spark.createDataFrame([(0, "x")], "id int, v string")
    hostile = "'${none}'"
    if spark.conf.get("spark.sql.parser.escapedStringLiterals") == "true":
        hostile = r"'it\'s'"
    before = left(table)
    with pytest.raises(InvalidInputError, match="substitute|escapedStringLiterals"):
        table.merge(source, f"t.id = s.id AND t.v = {hostile}").when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match="substitute|escapedStringLiterals"):
        table.erase(where=f"v = {hostile}")
    assert left(table) == before
