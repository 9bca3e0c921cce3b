"""The tasks that executors run: each writes the file groups of its rows, and returns what the commit needs.

Tasks may be retried, speculated or run twice. So a file's name carries the task's attempt, a marker precedes each file,
and the driver accepts one result per group; the files of all others are deleted before the commit.

Small files are made durable in batches, since each sync waits for the disk. The results of a batch come after that, and
after a last look whether the write is still under way. The keys of several small groups are hashed together.

Memory: the rows of groups that are hashed together and some hundred bytes for each, what
:mod:`lakedex.write.file_group_writer` needs, and a batch's results.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakedex.codec.bloom import BloomSizing, HashedKeys, filter_size, hash_keys
from lakedex.errors import CommitError, InvalidInputError, LakedexError
from lakedex.index.written_file import Collector, FinishedFile, WrittenFile
from lakedex.io.storage import TableFiles
from lakedex.layout.contained_files import require_under_way
from lakedex.layout.keys import partition_depth
from lakedex.layout.names import PARTITION_METAFILE, join_path, marker_name
from lakedex.parallel import run_threads
from lakedex.parquet.base_file_writer import BaseFileSummary
from lakedex.tagging.keyed_rows import KEY, KEY_COLUMNS
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_writer import FileGroupWriter, IncomingRecords
from lakedex.write.record_merge import by_group

__all__ = ["RESULT_SCHEMA", "RewriteGroup", "WriteFileGroups", "decode_results", "with_hashes"]


TOGETHER_ROWS = 8192


SMALL_ROWS = 4096
"""Groups of more rows have nothing to gain."""


Group = tuple[int, pa.RecordBatch]


def with_hashes(
    groups: Iterable[Group], sizing: BloomSizing
) -> Iterator[tuple[int, pa.RecordBatch, HashedKeys | None]]:
    """Numbers and rows of file groups, and the hashes of the rows' keys where they were made.

    Args:
        groups: the groups.
        sizing: which filters their files get.
    """
    waiting: list[Group] = []
    rows = 0
    for number, batch in groups:
        if waiting and rows + batch.num_rows > TOGETHER_ROWS:
            yield from _hashed(waiting, sizing)
            waiting, rows = [], 0
        waiting.append((number, batch))
        rows += batch.num_rows
        if batch.num_rows > SMALL_ROWS:
            yield from _hashed(waiting, sizing)
            waiting, rows = [], 0
    yield from _hashed(waiting, sizing)


def _hashed(waiting: list[Group], sizing: BloomSizing) -> Iterator[tuple[int, pa.RecordBatch, HashedKeys | None]]:
    small = [batch for _, batch in waiting if 0 < batch.num_rows <= SMALL_ROWS]
    found = _hash(small, sizing) if len(small) > 1 else None
    start = 0
    for number, batch in waiting:
        if found is None or not 0 < batch.num_rows <= SMALL_ROWS:
            yield number, batch, None
            continue
        yield number, batch, found.slice(start, batch.num_rows)
        start += batch.num_rows


def _hash(batches: list[pa.RecordBatch], sizing: BloomSizing) -> HashedKeys | None:
    entries = sizing.num_entries or min(batch.num_rows for batch in batches)
    keys = [batch.column(batch.schema.get_field_index(KEY)) for batch in batches]
    try:
        return hash_keys(pa.concat_arrays(keys), filter_size(entries, sizing.fpp)[1])
    except InvalidInputError:
        return None  # Who writes the group with the bad key says which it is.


RESULT_SCHEMA = pa.schema([("group", pa.int32()), ("result", pa.binary())])


BATCH_BYTES = 64 * 1024 * 1024


BATCH_SECONDS = 1.0
"""Files are made durable together up to this size, and of this time: so long a late attempt may go on unnoticed."""


METAFILE_THREADS = 8


@dataclass(slots=True)
class _SyncBatch:
    """Files that a task makes durable together.

    Attributes:
        files: the table's files; their storage makes those of the batch durable at its end.
        temp: the write's temp folder.
        results: what was written, by group number.
        made: files, their markers included.
        metafiles: partition path → metafile that is there from now on.
        size: bytes of the files.
        started: when the first was begun.
    """

    files: TableFiles
    temp: str
    results: list[tuple[int, tuple[WrittenFile, ...]]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    metafiles: dict[str, str] = field(default_factory=dict)
    size: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        return self.size >= BATCH_BYTES or time.monotonic() - self.started >= BATCH_SECONDS

    def announce(self, target: FileGroupTarget, name: str, kind: str) -> str:
        """Marker first: Java's rollback finds the files of a failed write by their markers alone."""
        path = self.files.path(target.partition, name)
        marker = f"{self.temp}/{join_path(target.partition, marker_name(name, kind))}"
        self.files.storage.write(marker, b"")
        self.made += [marker, path]
        if target.base is None:
            self.metafiles[target.partition] = self.files.path(target.partition, PARTITION_METAFILE)
        return path

    def finished(self, target: FileGroupTarget, name: str, summary: BaseFileSummary) -> FinishedFile:
        """A new file whose last row is written."""
        return FinishedFile(
            storage=self.files.storage,
            temp=self.temp,
            partition=target.partition,
            file_id=target.file_id,
            name=name,
            summary=summary,
            made=self.made,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFileGroups:
    """Batch map over rows sorted by group number: writes each group, and gives one result for it.

    Attributes:
        files: the table's files.
        timeline_path: the folder of its instants.
        instant: the write's instant.
        targets: the groups, by number.
        writer: writes one group.
        collectors: what is collected of each file, by index.
        repeats: a task may run more than once; else nobody need look for attempts that are late.
    """

    files: TableFiles
    timeline_path: str
    instant: str
    targets: Sequence[FileGroupTarget]
    writer: FileGroupWriter
    collectors: Mapping[str, Collector]
    repeats: bool

    @property
    def schema(self) -> pa.Schema:
        """Group number and its pickled :class:`~lakedex.index.written_file.WrittenFile` objects."""
        return RESULT_SCHEMA

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the groups of one task."""
        batch: _SyncBatch | None = None
        sizing = self.writer.hashes_keys
        groups = by_group(batches)
        hashed_groups = with_hashes(groups, sizing) if sizing is not None else ((*group, None) for group in groups)
        for number, rows, hashed in hashed_groups:
            batch = batch or self._new_batch()
            self._write(batch, number, self.targets[number], IncomingRecords(rows, hashed))
            if batch.is_full:
                yield from self._finished(batch)
                batch = None
        if batch is not None:
            yield from self._finished(batch)

    def rewrite(self, target: FileGroupTarget, none: pa.RecordBatch) -> WrittenFile | None:
        """Write a group's file of stored rows alone; ``none`` has the columns of incoming rows. None without a row."""
        batch = self._new_batch()
        self._write(batch, 0, target, IncomingRecords(none))
        self._sync(batch)
        return batch.results[0][1][0] if batch.results else None

    def _new_batch(self) -> _SyncBatch:
        storage = self.files.storage.batched(self.files.base_path)
        return _SyncBatch(replace(self.files, storage=storage), self.files.temp(self.instant))

    def _write(self, batch: _SyncBatch, number: int, target: FileGroupTarget, records: IncomingRecords) -> None:
        with self._not_left_behind(batch):
            written = self.writer.write(target, records, self.collectors, batch)
        if written:
            batch.results.append((number, written))
            batch.size += sum(file.size for file in written)

    def _finished(self, batch: _SyncBatch) -> Iterator[pa.RecordBatch]:
        """Make a batch durable and hand its results out."""
        self._sync(batch)
        numbers = pa.array([number for number, _ in batch.results], pa.int32())
        results = pa.array([pickle.dumps(result) for _, result in batch.results], pa.binary())
        if len(numbers):
            yield pa.RecordBatch.from_arrays([numbers, results], schema=RESULT_SCHEMA)

    def _sync(self, batch: _SyncBatch) -> None:
        with self._not_left_behind(batch):
            run_threads(self._add_metafile, list(batch.metafiles.items()), METAFILE_THREADS)
            batch.files.storage.sync()
        if self.repeats:
            self._require_under_way(batch)

    def _add_metafile(self, wanted: tuple[str, str]) -> None:
        """Make a folder a partition to readers that list; the file is complete from the first moment, for Java."""
        partition, path = wanted
        content = f"#partition metadata\ncommitTime={self.instant}\npartitionDepth={partition_depth(partition)}\n"
        with suppress(FileExistsError):  # An earlier write, or another task, was first.
            self.files.storage.create(path, content.encode("ascii"))

    def _require_under_way(self, batch: _SyncBatch) -> None:
        require_under_way(self.files, self.timeline_path, self.instant, batch.made, "write")

    @contextmanager
    def _not_left_behind(self, batch: _SyncBatch) -> Iterator[None]:
        """An attempt that fails late does not leave the files either that it had finished."""
        try:
            yield
        except BaseException:
            with suppress(LakedexError, OSError):
                self._require_under_way(batch)
            with suppress(OSError):
                batch.files.storage.sync()
            raise


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Task: write one group's file again in a table's columns, its rows as they are."""

    task: WriteFileGroups
    columns: pa.Schema

    def __call__(self, target: FileGroupTarget) -> WrittenFile:
        """See :meth:`WriteFileGroups.rewrite`."""
        schema = pa.schema([*KEY_COLUMNS, *self.columns])
        written = self.task.rewrite(
            target, pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in schema], schema=schema)
        )
        if written is None:
            raise CommitError(f"{self.task.files}: file group {target.file_id} has no base file")
        return written


def decode_results(table: pa.Table) -> list[WrittenFile]:
    """The files of each group: those that came first, should an engine ever hand over two results."""
    accepted: dict[int, tuple[WrittenFile, ...]] = {}
    for number, raw in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
        accepted.setdefault(number, pickle.loads(raw))  # noqa: S301 - our own tasks' results
    return [file for files in accepted.values() for file in files]
