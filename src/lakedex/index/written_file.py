"""A base file that a task has written, and the parts that indexes collected of it in the same pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lakedex.io.storage import Storage
from lakedex.io.task_output import Spilled
from lakedex.parquet.base_file_writer import BaseFileSummary

__all__ = ["Collector", "FileCollector", "FinishedFile", "WrittenFile", "WrittenLog"]


_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile:
    """A file whose last row is written, as collectors see it in the task.

    Attributes:
        storage: the task's view of the storage, which makes files durable together.
        temp: the write's temp folder.
        partition, file_id, name: the file.
        summary: what the file's writer knows of it; of a log file only its size and rows.
        made: files that the task made, those that collectors spill to included: a late attempt removes them.
    """

    storage: Storage
    temp: str
    partition: str
    file_id: str
    name: str
    summary: BaseFileSummary
    made: list[str]

    def spill(self, kind: str, content: bytes) -> Spilled:
        """Write a part that is too large for the task's result into the temp folder, in a folder of its kind."""
        path = f"{self.temp}/.{kind}/{self.name}.{kind}"
        self.made.append(path)
        return Spilled.write(self.storage, path, content)


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
    inserted: int
    updated: int
    deleted: int
    previous: str | None
    previous_instant: str | None
    seconds: float = field(default=0.0)
    moved: int = 0
    parts: Mapping[str, Any] = field(default_factory=dict)
    log: WrittenLog | None = None

    def part(self, index: str, kind: type[_Part]) -> _Part | None:
        """The part that an index collected of the file; None for nothing."""
        found = self.parts.get(index)
        return found if isinstance(found, kind) else None
