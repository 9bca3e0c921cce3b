"""Streams out of tables and into them, each row once: restarts, repeated batches, and SQL in a batch's session."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import __version__ as PYSPARK
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from documentation import run_blocks
from lakedex import Table, register_catalog

CREATE = "CREATE TABLE lake.{} (id STRING, city STRING, n INT) USING hudi TBLPROPERTIES (primaryKey = 'id')"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    register_catalog(spark, "lake", str(folder))
    return folder


def incoming(spark: SparkSession, folder: Path, *batches: str) -> DataFrame:
    """A stream of CSV files, each a batch of rows ``id,city,n`` with blanks between them."""
    folder.mkdir(exist_ok=True)
    for rows in batches:
        place = folder / f"{len(list(folder.iterdir()))}.csv"
        place.write_text("\n".join(rows.split()))
    reader = spark.readStream.schema("id STRING, city STRING, n INT").option("maxFilesPerTrigger", 1)
    return reader.csv(str(folder))


def rows_of(table: Table) -> str:
    rows = table.to_arrow().select(["id", "city", "n"]).sort_by("id").to_pylist()
    return " ".join(",".join(str(value) for value in row.values()) for row in rows)


@pytest.mark.smoke
def test_sql_in_the_session_of_a_batch(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    spark.sql(CREATE.format("trips"))

    def each(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("batch")
        batch.sparkSession.sql("INSERT INTO lake.trips SELECT id, city, n FROM batch")
        batch.sparkSession.sql("DELETE FROM lake.trips WHERE n < 0")

    stream = incoming(spark, tmp_path / "in", "a,oslo,1 b,rome,-1", "c,bonn,2")
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "mark"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert rows_of(Table.open(str(lake / "trips"))) == "a,oslo,1 c,bonn,2"


# ----------------------------------------------------------------------------------------- by name, and by format

NEEDS_FORMAT = pytest.mark.skipif(PYSPARK.startswith("3."), reason="PySpark 3.5 has no Python data sources")

WAYS = pytest.mark.parametrize("way", ["name", pytest.param("format", marks=NEEDS_FORMAT)])


@dataclass(frozen=True)
class Streams:
    """Streams from ``lake.trips`` into ``lake.copy``, by their names or by ``format("lakedex")`` and their paths."""

    spark: SparkSession
    lake: Path
    way: str

    def path(self, name: str) -> str:
        return str(self.lake / name)

    def read(self, **options: object) -> DataFrame:
        reader = self.spark.readStream.options(**options)  # type: ignore[arg-type]
        if self.way == "name":
            return reader.table("lake.trips")
        return reader.format("lakedex").load(self.path("trips")).select("id", "city", "n")

    def start(self, frame: DataFrame, into: str = "copy", mode: str = "append", **options: object) -> StreamingQuery:
        checkpoint = self.lake.parent / f"mark-{into}"
        writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint)).options(**options)  # type: ignore[arg-type]
        if self.way == "name":
            return writer.toTable(f"lake.{into}")
        return writer.format("lakedex").start(self.path(into))

    def run(self, frame: DataFrame, into: str = "copy", mode: str = "append", **options: object) -> list[int]:
        """Run to the end; the rows of each batch that had any."""
        query = self.start(frame, into, mode, **options)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self, name: str = "copy") -> str:
        return rows_of(Table.open(self.path(name)))

    def commits(self, name: str = "copy") -> int:
        return Table.open(self.path(name)).inspect.history().num_rows

    def forget_last_batch(self, into: str = "copy") -> None:
        """As if Spark had died before it noted that the last batch is done."""
        folder = self.lake.parent / f"mark-{into}" / "commits"
        last = max(int(file.name) for file in folder.iterdir() if file.name.isdigit())
        for file in (folder / f"{last}", folder / f".{last}.crc"):
            file.unlink(missing_ok=True)

    def staged(self, name: str = "copy") -> list[Path]:
        return list(Path(self.path(name)).rglob("*lakedex-staged*"))


@pytest.fixture
def trips(spark: SparkSession, lake: Path) -> Table:
    for name in ("trips", "copy"):
        spark.sql(CREATE.format(name))
    spark.sql("INSERT INTO lake.trips VALUES ('a', 'oslo', 1), ('b', 'rome', 1)")
    return Table.open(str(lake / "trips"))


def more(table: Table, *rows: tuple[str, str, int]) -> str:
    ids, cities, numbers = zip(*rows, strict=True)
    found = table.upsert(pa.table({"id": ids, "city": cities, "n": pa.array(numbers, pa.int32())}))
    return str(found.instant)


@pytest.mark.proves("streams")
@pytest.mark.smoke
@WAYS
def test_a_table_into_a_table_over_restarts(spark: SparkSession, lake: Path, trips: Table, way: str) -> None:
    streams = Streams(spark, lake, way)
    assert streams.run(streams.read()) == [2]
    assert streams.rows() == "a,oslo,1 b,rome,1"
    more(trips, ("a", "oslo", 2), ("c", "bonn", 2))
    more(trips, ("d", "rome", 3))
    assert streams.run(streams.read()) == [3]
    done = streams.commits()
    assert streams.rows() == "a,oslo,2 b,rome,1 c,bonn,2 d,rome,3"
    assert streams.run(streams.read()) == [] and streams.commits() == done
    streams.forget_last_batch()
    assert streams.run(streams.read()) == [3] and streams.commits() == done
    assert streams.rows() == "a,oslo,2 b,rome,1 c,bonn,2 d,rome,3" and not streams.staged()


@WAYS
def test_merge_on_read_tables_at_both_ends(spark: SparkSession, lake: Path, way: str) -> None:
    for name in ("trips", "copy"):
        spark.sql(CREATE.format(name).replace("'id')", "'id', type = 'mor')"))
    spark.sql("INSERT INTO lake.trips VALUES ('a', 'oslo', 1), ('b', 'rome', 1)")
    table, streams = Table.open(str(lake / "trips")), Streams(spark, lake, way)
    assert streams.run(streams.read()) == [2]
    more(table, ("a", "oslo", 2))
    table.update({"n": "n + 1"}, where="id = 'a'")
    table.delete(where="id = 'b'")
    assert [log for item in table.snapshot().slices() for log in item.log_files]
    assert sum(streams.run(streams.read())) == 2  # Of the updates both, of the delete nothing.
    table.maintenance.compact()
    assert streams.run(streams.read()) == []
    assert streams.rows() == "a,oslo,3 b,rome,1"
    assert [log for item in Table.open(streams.path("copy")).snapshot().slices() for log in item.log_files]


def test_a_batch_of_plain_inserts_that_comes_again(spark: SparkSession, lake: Path, trips: Table) -> None:
    streams = Streams(spark, lake, "name")
    spark.sql("INSERT INTO lake.copy VALUES ('z', 'oslo', 0)")
    option = {"hoodie.datasource.write.operation": "insert"}
    for _ in range(2):
        assert streams.run(streams.read(), **option) == [2]
        assert streams.rows() == "a,oslo,1 b,rome,1 z,oslo,0" and streams.commits() == 2
        streams.forget_last_batch()


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({"maxCommitsPerTrigger": 1}, [2, 2, 1]),
        ({"maxFilesPerTrigger": 1}, [2, 2, 1]),
        ({"maxFilesPerTrigger": 9}, [2, 3]),
    ],
)
def test_limits(spark: SparkSession, lake: Path, trips: Table, limits: dict[str, object], batches: list[int]) -> None:
    streams = Streams(spark, lake, "name")
    first = streams.run(streams.read(**limits))
    more(trips, ("a", "oslo", 2), ("c", "bonn", 2))
    more(trips, ("d", "rome", 3))
    assert first + streams.run(streams.read(**limits)) == batches
    assert streams.rows() == "a,oslo,2 b,rome,1 c,bonn,2 d,rome,3"


def test_starts_of_a_stream(spark: SparkSession, lake: Path, trips: Table) -> None:
    streams = Streams(spark, lake, "name")
    one, two = more(trips, ("c", "bonn", 2)), more(trips, ("d", "rome", 3))
    for number, (name, value, expected) in enumerate(
        (
            ("startingInstant", one, "c,bonn,2 d,rome,3"),
            ("startingInstant", "latest", ""),
            ("hoodie.datasource.read.begin.instanttime", one, "d,rome,3"),
            ("hoodie.datasource.streaming.startOffset", two, ""),
            ("hoodie.datasource.read.begin.instanttime", "000", "a,oslo,1 b,rome,1 c,bonn,2 d,rome,3"),
        )
    ):
        spark.sql(CREATE.format(f"copy{number}"))
        streams.run(streams.read(**{name: value}), f"copy{number}")
        assert streams.rows(f"copy{number}") == expected, (name, value)


def test_a_start_that_was_cleaned_names_the_first_one_left(spark: SparkSession, lake: Path, trips: Table) -> None:
    streams = Streams(spark, lake, "name")
    instants = [more(trips, ("a", "oslo", number)) for number in range(2, 7)]
    trips.maintenance.clean(options={"hoodie.clean.commits.retained": "2"})
    with pytest.raises(Exception, match="the cleaner took .* files of commit .*first instant left is") as caught:
        streams.run(streams.read(startingInstant=instants[0]))
    first = str(caught.value).split("first instant left is '")[1][:17]
    shutil.rmtree(lake.parent / "mark-copy")
    assert streams.run(streams.read(startingInstant=first)) == [len(instants) - instants.index(first)]


def test_a_commit_that_was_rolled_back_stops_the_stream(spark: SparkSession, lake: Path, trips: Table) -> None:
    streams = Streams(spark, lake, "name")
    last = more(trips, ("c", "bonn", 2))
    assert streams.run(streams.read()) == [3]
    trips.maintenance.rollback(last)
    more(trips, ("d", "rome", 3))
    with pytest.raises(Exception, match=f"{last}, which the stream has delivered, was rolled back"):
        streams.run(streams.read())


def test_a_batch_that_fails_before_its_commit(spark: SparkSession, lake: Path, trips: Table) -> None:
    streams = Streams(spark, lake, "name")
    pending = lake / "copy" / ".hoodie" / "hoodie.properties"
    kept = pending.read_text()
    failing = streams.read().withColumn("n", F.expr("IF(id = 'b', CAST(raise_error('no') AS INT), n)"))
    with pytest.raises(Exception, match="no"):
        streams.run(failing)
    assert streams.commits() == 0 and not streams.staged() and pending.read_text() == kept
    assert streams.run(streams.read()) == [2]
    assert streams.rows() == "a,oslo,1 b,rome,1" and streams.commits() == 1


@pytest.mark.parametrize(
    ("mode", "expected"), [("update", "bonn,bonn,3 oslo,oslo,2 rome,rome,1"), ("complete", "oslo,oslo,2 rome,rome,1")]
)
def test_output_modes(spark: SparkSession, lake: Path, trips: Table, mode: str, expected: str) -> None:
    """Update upserts the rows that changed, complete replaces all of them in one commit."""
    streams = Streams(spark, lake, "name")
    more(trips, ("c", "oslo", 1))
    spark.sql("INSERT INTO lake.copy VALUES ('bonn', 'bonn', 3)")
    by_city = streams.read().groupBy("city").agg(F.sum("n").cast("int").alias("n")).selectExpr("city id", "city", "n")
    streams.run(by_city, mode=mode)
    assert streams.rows() == expected and streams.commits() == 2
    more(trips, ("d", "rome", 4))
    streams.run(by_city, mode=mode)
    assert "rome,rome,5" in streams.rows() and streams.commits() == 3
    streams.forget_last_batch()
    streams.run(by_city, mode=mode)
    assert "rome,rome,5" in streams.rows() and streams.commits() == 3


def test_upserts_of_foreach_batch_are_done_once(spark: SparkSession, lake: Path, trips: Table) -> None:
    streams, copy = Streams(spark, lake, "name"), Table.open(str(lake / "copy"), spark=spark)

    def each(batch: DataFrame, number: int) -> None:
        copy.upsert(batch, txn=("trips", number))

    for _ in range(2):
        query = streams.read().writeStream.foreachBatch(each).trigger(availableNow=True)
        query.option("checkpointLocation", str(lake.parent / "mark-copy")).start().awaitTermination()
        assert streams.rows() == "a,oslo,1 b,rome,1" and streams.commits() == 1
        streams.forget_last_batch()


def test_the_page_of_the_documentation(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    register_catalog(spark, "lake", str(tmp_path / "warehouse"))
    run_blocks("docs/streams.md", tmp_path, {"spark": spark})
