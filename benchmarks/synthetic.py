"""Tables that consist of metadata only: timeline, file lists, column and partition stats of files that do not exist.

Planning reads nothing else, so tables of 100,000 files cost seconds to make instead of hours. File ``i`` of ``count``
holds the numbers ``1000 i`` to ``1000 i + 999`` in ``n``, and keys in the same order; ``r`` is spread over all files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakedex import Table
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.index.column_stats.stats import ColumnStat, merge_stats, stat_record, stats_records
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    all_partitions_record,
    files_key,
    files_record,
    partition_stats_key,
)
from lakedex.metadata.writer import write_delta_commit
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import complete, create_inflight, create_requested
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.types import COMMIT_TIME, PARTITION_PATH, RECORD_KEY

__all__ = ["FILE_BYTES", "ROWS", "add_files", "file_name", "make_table", "partition_of"]

ROWS = 1000
FILE_BYTES = 120_000_000
_SCHEMA = pa.schema([("key", pa.string()), ("day", pa.string()), ("n", pa.int64()), ("r", pa.int32())])
_KINDS = {COMMIT_TIME: pa.string(), RECORD_KEY: pa.string(), PARTITION_PATH: pa.string()} | {
    field.name: field.type for field in _SCHEMA
}


def make_table(path: Path, files: int, per_partition: int = 100, per_commit: int = 25_000) -> None:
    """A table of version 8 with so many files, written by commits of ``per_commit``."""
    Table.create(
        path,
        _SCHEMA,
        name="synthetic",
        record_key="key",
        partition_by="day",
        options={"hoodie.metadata.index.bloom.filter.enable": "false"},
    )
    for start in range(0, files, per_commit):
        add_files(path, range(start, min(start + per_commit, files)), per_partition)


def add_files(path: Path, numbers: range, per_partition: int = 100) -> None:
    """Commit files of these numbers. A partition's stats become those of its files in ``numbers``."""
    snapshot = Snapshot.load(TableFiles(LocalStorage(), str(path)))
    clock = InstantClock("UTC")
    timeline = snapshot.timeline
    requested = create_requested(timeline, clock.next(), "commit")
    inflight = create_inflight(timeline, requested)
    instant = requested.requested
    listing: dict[str, dict[str, int]] = {}
    stats: list[Any] = []
    by_partition: dict[str, list[list[ColumnStat]]] = {}
    for number in numbers:
        partition, name = partition_of(number, per_partition), file_name(number, instant)
        listing.setdefault(partition, {})[name] = FILE_BYTES
        own = _stats(number, partition, instant)
        stats += stats_records(own, partition, name, _KINDS)
        by_partition.setdefault(partition, []).append(own)
    over = [
        (partition_stats_key(column, path), stat_record(merge_stats(column, list(of)), path, kind, over_partition=True))
        for path, files in by_partition.items()
        for (column, kind), of in zip(_KINDS.items(), zip(*files, strict=True), strict=True)
    ]
    updates = {
        FILES.name: [
            *((files_key(partition), files_record(files)) for partition, files in listing.items()),
            (ALL_PARTITIONS, all_partitions_record(map(files_key, listing))),
        ],
        COLUMN_STATS.name: stats,
        PARTITION_STATS.name: over,
    }
    write_delta_commit(snapshot.metadata, instant, updates, clock.next, lambda fn, items: [fn(item) for item in items])
    commit = CommitMetadata(
        operation="BULK_INSERT",
        write_stats={path: tuple(_write_stat(path, name) for name in files) for path, files in listing.items()},
        extra={"schema": json.dumps(arrow_to_avro(_SCHEMA, "synthetic"))},
    )
    complete(timeline, inflight, clock.next(), encode_commit_metadata(commit, timeline.layout))


def partition_of(number: int, per_partition: int) -> str:
    """The partition path of a file."""
    return f"day={number // per_partition:05d}"


def file_name(number: int, instant: str) -> str:
    """The name of a file."""
    return f"{number:08d}-0000-0000-0000-000000000000-0_0-0-0_{instant}.parquet"


def _write_stat(partition: str, name: str) -> WriteStat:
    return WriteStat(
        file_id=name.split("_")[0],
        path=f"{partition}/{name}",
        partition_path=partition,
        file_size=FILE_BYTES,
        num_writes=ROWS,
        num_inserts=ROWS,
    )


def _stats(number: int, partition: str, instant: str) -> list[ColumnStat]:
    first, last = number * ROWS, number * ROWS + ROWS - 1
    day = partition.removeprefix("day=")
    bounds = {
        COMMIT_TIME: (instant, instant),
        RECORD_KEY: (f"key-{first:012d}", f"key-{last:012d}"),
        PARTITION_PATH: (partition, partition),
        "key": (f"key-{first:012d}", f"key-{last:012d}"),
        "day": (day, day),
        "n": (first, last),
        "r": (0, 1_000_000),
    }
    return [
        ColumnStat(column=name, minimum=low, maximum=high, value_count=ROWS, null_count=0)
        for name, (low, high) in bounds.items()
    ]
