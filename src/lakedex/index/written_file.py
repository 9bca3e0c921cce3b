"""A file that a task has written: what indexes collected of it in the same pass, and what a commit says of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakedex.io.storage import Storage
from lakedex.io.task_output import Spilled
from lakedex.layout.names import join_path
from lakedex.metadata.records import ALL_PARTITIONS, all_partitions_record, files_key, files_record
from lakedex.metadata.writer import Keyed
from lakedex.parquet.base_file_writer import BaseFileSummary
from lakedex.timeline.commit_metadata import NO_PREVIOUS_COMMIT, WriteStat
from lakedex.types import IntArray

__all__ = [
    "Collector",
    "FileCollector",
    "FinishedFile",
    "LogChanges",
    "WrittenFile",
    "WrittenLog",
    "listing_of",
    "stats_by_partition",
]


_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChanges:
    """The changes by the records of a log file, all of distinct keys, each of which beats all versions before it.

    Attributes:
        base_file: of the slice.
        instant: of the blocks.
        positions: row of the base file that each record is for; -1 where the key is in log files only.
        deletes: records that delete.
        older: log files that the slice had before.
        lacking: columns of the table that partial updates among the records lack.
    """

    base_file: str
    instant: str
    positions: IntArray
    deletes: int
    older: int
    lacking: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile:
    """A file whose last row is written, as collectors see it in the task.

    Attributes:
        storage: the task's view of the storage, which makes files durable together.
        temp: the write's temp folder.
        partition, file_id, name: the file.
        summary: what the file's writer knows of it; of a log file only its size and rows.
        made: files that the task made, those that collectors spill to included: a late attempt removes them.
        log: what the records of a log file change; None for a base file.
    """

    storage: Storage
    temp: str
    partition: str
    file_id: str
    name: str
    summary: BaseFileSummary
    made: list[str]
    log: LogChanges | None = None

    def spill(self, kind: str, content: bytes) -> Spilled:
        """Write a part that is too large for the task's result into the temp folder, in a folder of its kind."""
        path = f"{self.temp}/.{kind}/{self.name}.{kind}"
        self.made.append(path)
        return Spilled.write(self.storage, path, content)

    def written(self, collecting: Mapping[str, FileCollector], started: float) -> WrittenFile:
        """The result for the commit, still without what changed in the group.

        Args:
            collecting: what indexes collected of it, by index; they finish here.
            started: when the writing began, by ``time.perf_counter``.
        """
        return WrittenFile(
            partition=self.partition,
            file_id=self.file_id,
            file_name=self.name,
            size=self.summary.size,
            rows=self.summary.rows,
            parts={index: collector.finish(self) for index, collector in collecting.items()},
            seconds=time.perf_counter() - started,
        )


class FileCollector(Protocol):
    """Collects an index's part of one file, in the pass that writes it."""

    def add(self, batch: pa.RecordBatch, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        """Take the next rows; ``bounds`` are the least and the greatest value of columns where the writer has them."""

    def finish(self, file: FinishedFile) -> Any:
        """The index's part of the file, which pickles; None for none."""


class Collector(Protocol):
    """Begins the :class:`FileCollector` of each file. It is made on the driver and pickles into tasks."""

    @property
    def repeating(self) -> frozenset[str]:
        """Columns of few distinct values: a new file keeps them dictionary-encoded."""

    @property
    def takes_logs(self) -> bool:
        """Whether it collects the rows of log files too, as they are before they are merged."""

    def begin(self, schema: pa.Schema) -> FileCollector:
        """Begin a file with these columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLog:
    """The facts of a log file that a write stat has.

    Attributes:
        version: number in the file's name.
        base_instant: ``prevCommit``.
        base_file: name of the slice's base file, or nothing.
        log_files: names of log files of the slice, the new one last.
    """

    version: int
    base_instant: str
    base_file: str
    log_files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A new file of a file group.

    Attributes:
        partition, file_id, file_name: the file.
        size: in bytes.
        rows: rows in it.
        inserted, updated, deleted: changes of the group's rows.
        previous, previous_instant: the base file whose place it takes; None for the first one, and for log files.
        seconds: what writing it took.
        moved: of the deleted rows those that go on in another partition.
        parts: what indexes collected of it, by name.
        log: of a log file; None for a base file.
    """

    partition: str
    file_id: str
    file_name: str
    size: int
    rows: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    previous: str | None = None
    previous_instant: str | None = None
    seconds: float = field(default=0.0)
    moved: int = 0
    parts: Mapping[str, Any] = field(default_factory=dict)
    log: WrittenLog | None = None

    def part(self, index: str, kind: type[_Part]) -> _Part | None:
        """The part that an index collected of the file; None for nothing."""
        found = self.parts.get(index)
        return found if isinstance(found, kind) else None

    @property
    def stat(self) -> WriteStat:
        """``HoodieWriteStat``, of a log file ``HoodieDeltaWriteStat``.

        All rows of a log file are updates to Hudi, also of keys that an older one had deleted.
        """
        millis = int(self.seconds * 1000)
        common = WriteStat(
            file_id=self.file_id,
            path=join_path(self.partition, self.file_name),
            partition_path=self.partition,
            file_size=self.size,
            num_writes=self.rows,
            num_deletes=self.deleted,
        )
        if self.log is not None:
            return replace(
                common,
                prev_commit=self.log.base_instant,
                num_updates=self.rows,
                base_file=self.log.base_file,
                log_version=self.log.version,
                log_offset=0,
                log_files=self.log.log_files,
                upsert_ms=millis,
            )
        return replace(
            common,
            prev_commit=self.previous_instant or NO_PREVIOUS_COMMIT,
            prev_base_file=self.previous,
            num_updates=self.updated,
            num_inserts=self.inserted,
            create_ms=0 if self.previous else millis,
            upsert_ms=millis if self.previous else 0,
        )


def listing_of(files: Iterable[WrittenFile]) -> Keyed:
    """Records of the partition ``files`` that list new files."""
    added: dict[str, dict[str, int]] = {}
    for file in files:
        added.setdefault(file.partition, {})[file.file_name] = file.size
    records: Keyed = [(files_key(partition), files_record(sizes)) for partition, sizes in added.items()]
    return [*records, (ALL_PARTITIONS, all_partitions_record(files_key(partition) for partition in added))]


def stats_by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """Write stats by partition path, as commit metadata has them."""
    found: dict[str, list[WriteStat]] = {}
    for stat in stats:
        found.setdefault(stat.partition_path, []).append(stat)
    return {partition: tuple(own) for partition, own in found.items()}
