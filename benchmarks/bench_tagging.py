"""Tagging 10,000 keys, with key ranges and filters from the metadata table against those from file footers.

What RFC-37 is about: requests, bytes and seconds until the file of each key is known. The tables have 1,000 and 10,000
real base files of 100 rows in 10 partitions, with filters for 500 keys (4 KiB). Half of the partitions have keys in the
order of time, half random ones. Of the 10,000 keys 100 are stored. The third question asks all partitions, as
GLOBAL_BLOOM does.

    ./dev bench benchmarks/bench_tagging.py [files ...]      default: 1000 10000

Each question is asked cold, in 32 threads, with files on the local disk as they are, and with 20 ms added to each
request as an object store takes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakedex import Table
from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.codec.bloom import BloomSizing
from lakedex.index.column_stats.stats import ColumnStat, stats_records
from lakedex.io.local import LocalStorage
from lakedex.io.storage import Storage, TableFiles
from lakedex.local.engine import LocalEngine
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    all_partitions_record,
    bloom_key,
    bloom_record,
    files_key,
    files_record,
)
from lakedex.metadata.writer import write_delta_commit
from lakedex.options import parse_options
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileSummary, BaseFileWriter
from lakedex.reports import TaggingReport
from lakedex.snapshot.snapshot import Limits, Snapshot
from lakedex.tagging.candidates import find_key_ranges
from lakedex.tagging.keyed_rows import KEY, PARTITION
from lakedex.tagging.tagging import tag
from lakedex.testing import LatencyStorage
from lakedex.timeline.active import complete, create_inflight, create_requested
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.types import META_COLUMNS, RECORD_KEY

ROWS = 100
PARTITIONS = 10
KEYS, KNOWN = 10_000, 100
ENTRIES = 500
THREADS = 32
LATENCY = 0.02
SCHEMA = pa.schema([("key", pa.string()), ("day", pa.string())])
FILE_SCHEMA = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *SCHEMA])


def key_of(number: int, day: int) -> str:
    """Key of a row: in the order of time in even partitions, random in odd ones."""
    if day % 2 == 0:
        return f"{day:02d}-{number:09d}"
    return hashlib.md5(f"{day}-{number}".encode(), usedforsecurity=False).hexdigest()


# ------------------------------------------------------------------------------------------------------- the table
def make_table(path: Path, files: int) -> None:
    """A table of so many files, as one commit."""
    own = TableFiles(LocalStorage(), str(path))
    Table.create(path, SCHEMA, name="bench", record_key="key", partition_by="day")
    snapshot, clock = Snapshot.load(own), InstantClock("UTC")
    timeline = snapshot.timeline
    requested = create_requested(timeline, clock.next(), "commit")
    inflight = create_inflight(timeline, requested)
    settings = BaseFileSettings(
        avro_schema=json.dumps(with_meta_fields(arrow_to_avro(SCHEMA, "bench"))), bloom=BloomSizing(num_entries=ENTRIES)
    )
    updates: dict[str, list[Any]] = {FILES.name: [], COLUMN_STATS.name: [], BLOOM_FILTERS.name: []}
    listing: dict[str, dict[str, int]] = {}
    for number in range(files):
        day, place = number % PARTITIONS, number // PARTITIONS
        partition = f"day={day:02d}"
        name = f"{number:08d}-0000-0000-0000-000000000000-0_0-0-0_{requested.requested}.parquet"
        keys = sorted(key_of(place * ROWS + row, day) for row in range(ROWS))
        summary = write_file(own.storage, own.path(partition, name), keys, partition, requested.requested, settings)
        listing.setdefault(partition, {})[name] = summary.size
        stat = ColumnStat(column=RECORD_KEY, minimum=keys[0], maximum=keys[-1], value_count=ROWS, null_count=0)
        updates[COLUMN_STATS.name] += stats_records([stat], partition, name, {RECORD_KEY: pa.string()})
        record = bloom_record(summary.bloom_type, requested.requested, summary.bloom)
        updates[BLOOM_FILTERS.name].append((bloom_key(partition, name), record))
    updates[FILES.name] = [
        *((files_key(partition), files_record(sizes)) for partition, sizes in listing.items()),
        (ALL_PARTITIONS, all_partitions_record(map(files_key, listing))),
    ]
    write_delta_commit(
        snapshot.metadata, requested.requested, updates, clock.next, lambda fn, items: [fn(item) for item in items]
    )
    commit = CommitMetadata(
        operation="BULK_INSERT",
        write_stats={path: tuple(write_stat(path, *file) for file in found.items()) for path, found in listing.items()},
        extra={"schema": json.dumps(arrow_to_avro(SCHEMA, "bench"))},
    )
    complete(timeline, inflight, clock.next(), encode_commit_metadata(commit, timeline.layout))


def write_file(
    storage: Storage, path: str, keys: Sequence[str], partition: str, instant: str, settings: BaseFileSettings
) -> BaseFileSummary:
    constants = {"_hoodie_commit_time": instant, "_hoodie_partition_path": partition, "day": partition[4:]}
    columns = [
        pa.array(keys) if field.name in (RECORD_KEY, "key") else pa.array([constants.get(field.name, "")] * len(keys))
        for field in FILE_SCHEMA
    ]
    writer = BaseFileWriter(storage, path, FILE_SCHEMA, settings, expected_rows=len(keys))
    writer.write(pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA))
    return writer.close()


def write_stat(partition: str, name: str, size: int) -> WriteStat:
    return WriteStat(
        file_id=name.split("_")[0],
        path=f"{partition}/{name}",
        partition_path=partition,
        file_size=size,
        num_writes=ROWS,
        num_inserts=ROWS,
    )


# --------------------------------------------------------------------------------------------------- the questions
def incoming(files: int, day: int) -> pa.Table:
    """New keys that follow the stored ones, and known keys of the newest files."""
    stored = files // PARTITIONS * ROWS
    numbers = [*range(stored - KNOWN, stored), *range(stored, stored + KEYS - KNOWN)]
    return pa.table({KEY: [key_of(number, day) for number in numbers], PARTITION: [f"day={day:02d}"] * KEYS})


def ask(path: Path, keys: pa.Table, *, metadata: bool, everywhere: bool, latency: float) -> tuple[TaggingReport, float]:
    """Tag cold: nothing of the table is known but its path."""
    storage, engine = LatencyStorage(latency), LocalEngine(THREADS)
    options = parse_options({"hoodie.bloom.index.use.metadata": metadata}).tagging
    report, started = TaggingReport(), time.perf_counter()
    snapshot = Snapshot.load(TableFiles(storage, str(path)))
    partitions = None if everywhere else keys.column(PARTITION).unique().to_pylist()
    before = storage.counted.copy()
    found = find_key_ranges(engine, snapshot, options, report, partitions)
    read = storage.counted - before
    report.requests += read.requests
    report.bytes_read += read.bytes_read
    tag(
        engine, engine.from_arrow(keys), snapshot, found, options, report, Limits(), any_partition=everywhere, rows=KEYS
    )
    seconds = time.perf_counter() - started
    if report.matches != KNOWN:
        raise SystemExit(f"{report.matches} keys found instead of {KNOWN}: {report}")
    return report, seconds


QUESTIONS = (
    ("keys by time, one partition", 0, False),
    ("random keys, one partition", 1, False),
    ("random keys, whole table", 1, True),
)


def measure(path: Path, files: int, modes: Sequence[str] = ("metadata", "footers")) -> list[dict[str, Any]]:
    """A row for each question and mode."""
    rows = []
    for what, day, everywhere in QUESTIONS:
        keys = incoming(files, day)
        for mode in modes:
            metadata, cpu = mode == "metadata", time.process_time()
            report, seconds = ask(path, keys, metadata=metadata, everywhere=everywhere, latency=0)
            cpu = time.process_time() - cpu
            _, slow = ask(path, keys, metadata=metadata, everywhere=everywhere, latency=LATENCY)
            rows.append(
                {
                    "files": files,
                    "question": what,
                    "mode": mode,
                    "listed": report.files_listed,
                    "after_ranges": report.files_after_ranges,
                    "opened": report.files_opened,
                    "requests": report.requests,
                    "bytes": report.bytes_read,
                    "seconds": seconds,
                    "cpu": cpu,
                    "slow_seconds": slow,
                }
            )
    return rows


def tagging(
    files: int, folder: str | None = None, modes: Sequence[str] = ("metadata", "footers")
) -> list[dict[str, Any]]:
    """Make a table of so many files, and ask it."""
    fsync = os.fsync
    os.fsync = lambda _: None  # type: ignore[assignment]  # thousands of files that nobody needs to survive a crash
    try:
        with tempfile.TemporaryDirectory(prefix="lakedex-bench-", dir=folder) as made:
            path = Path(made) / "table"
            make_table(path, files)
            return measure(path, files, modes)
    finally:
        os.fsync = fsync


def show(row: dict[str, Any]) -> None:
    funnel = f"{row['listed']:,} → {row['after_ranges']:,} → {row['opened']}"
    print(
        f"| {row['files']:,} | {row['question']} | {row['mode']} | {funnel} | {row['requests']:,} "
        f"| {row['bytes'] / 2**20:.1f} | {row['seconds']:.2f} | {row['slow_seconds']:.2f} |"
    )


def main(sizes: list[int]) -> None:
    print("| files | question | mode | listed → after ranges → opened | requests | MiB | s | s at 20 ms a request |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for files in sizes:
        rows = tagging(files)
        for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
            show(ours)
            show(theirs)
            names = ("requests", "bytes", "seconds", "slow_seconds")
            ratios = " | ".join(f"{theirs[name] / ours[name]:.1f}" for name in names)
            print(f"| {files:,} | {ours['question']} | footers ÷ metadata | | {ratios} |")


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1_000, 10_000])
