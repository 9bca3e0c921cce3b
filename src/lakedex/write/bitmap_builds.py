"""Building, refreshing and dropping bitmap indexes of a live table, whoever wrote it.

The definition comes first: from then on every write of lakedex makes bitmaps of what it writes. Then the base files
that no run covers are read, one task a file, and every chunk of them is written as a run of its own at once. So a build
that dies keeps what it did, and the same call goes on where it stopped. Nothing is announced on a timeline, and the
lock is held for the definition only: what others write meanwhile is covered by them, or stays to be refreshed.

Chunks do not depend on the engine: the same files give the same bytes on all of them.

Memory: the driver holds the bitmaps of one chunk, up to ``RUN_BYTES``; a task those of one file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from lakedex.errors import CorruptFileError, IndexNotFoundError
from lakedex.index.bitmap.coverage import Coverage
from lakedex.index.bitmap.definitions import (
    BitmapDefinition,
    indexed_limits,
    read_bitmap_definitions,
    write_bitmap_definitions,
)
from lakedex.index.bitmap.files import BitmapsOfFile
from lakedex.index.bitmap.runs import BITMAP_INDEX, Manifest, Run, RunFolder, list_runs, publish_without
from lakedex.io.heartbeat import Heartbeat
from lakedex.io.locks import Lock
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.table_files import delete_partition, delete_temp, temp_path
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import metadata_path
from lakedex.metadata.table_cache import TableCache
from lakedex.options import WriteOptions
from lakedex.services.locking import require_exclusive_create, table_lock
from lakedex.services.rollback import Patience, remove_leftovers
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import recover_table_config
from lakedex.types import Progress
from lakedex.write.bitmap_columns import remove_old_names
from lakedex.write.bitmap_folds import fold_runs
from lakedex.write.bitmap_runs import HeldBitmaps, hold_bitmaps, inline_limit, write_runs
from lakedex.write.result import IndexResult

__all__ = ["BitmapBuild", "drop_bitmap_index", "is_bitmap_index", "open_build", "refresh_bitmap_index"]

FILES_PER_CHUNK = 64
INLINE_BYTES = 1024 * 1024
Missing = Sequence[tuple[tuple[str, ...], Sequence[BaseFile]]]
"""Columns → base files that lack exactly these."""


def is_bitmap_index(handle: TableHandle, name: str) -> bool:
    """Whether the table has a bitmap index of this name."""
    return name in read_bitmap_definitions(handle.storage, handle.base_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuildFile:
    """Task: bitmaps of one file; None for a file that is gone meanwhile."""

    task: BitmapsOfFile
    folder: str
    limit: int

    def __call__(self, base: BaseFile) -> HeldBitmaps | None:
        try:
            found = self.task(base)
        except FileNotFoundError:
            return None  # A cleaner took it: it is in no slice any more.
        return hold_bitmaps(self.task.storage, found, f"{self.folder}/{base.name}.bitmaps", self.limit)


@contextmanager
def open_build(handle: TableHandle, options: WriteOptions) -> Iterator[tuple[Lock, BitmapBuild]]:
    """Take the lock and a fresh instant for a build, whose heartbeat beats from then on; the caller stops it."""
    require_exclusive_create(handle.storage, handle.base_path)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(handle.storage, handle.base_path)
        snapshot = handle.snapshot()
        clock = InstantClock(snapshot.config.timezone)
        clock.leave_out(remove_leftovers(snapshot, Patience.of(options)))
        instant = clock.next(snapshot.last_time)
        # The instant is on no timeline: the heartbeat keeps the next writer from taking the same.
        heartbeat = Heartbeat(handle.storage, handle.base_path, instant, int(options.heartbeat_interval * 1000))
        build = BitmapBuild(handle=handle, options=options, snapshot=snapshot, instant=instant, heartbeat=heartbeat)
        with ExitStack() as on_error:
            on_error.enter_context(heartbeat)
            lock.check()
            # What a schema change of others, or one that died, left of columns that are no more.
            build.notes += remove_old_names(handle.storage, handle.base_path, snapshot.schema)
            yield lock, build
            on_error.pop_all()


@dataclass(slots=True, kw_only=True)
class BitmapBuild:
    """One build: the files that an index lacks, on one picture of the table.

    Attributes:
        instant: names its runs.
        heartbeat: beats since the instant was taken; a context manager, which stops it.
        notes: what the user should know.
    """

    handle: TableHandle
    options: WriteOptions
    snapshot: Snapshot
    instant: str
    heartbeat: Heartbeat
    notes: list[str] = field(default_factory=list)
    _runs: list[Run] = field(default_factory=list)
    _files: int = 0
    _entries: int = 0
    _not_indexed: dict[tuple[str, str], int] = field(default_factory=dict)

    def missing(
        self, index: BitmapDefinition, partitions: Sequence[str] | None = None, again: Sequence[str] = ()
    ) -> Missing:
        """Columns of the index → current base files that no run covers for exactly these.

        Args:
            index: the index.
            partitions: only files of these.
            again: columns whose files count as not covered where they are not indexed: their cap was raised.
        """
        coverage = self._coverage()
        lacking: dict[BaseFile, list[str]] = {}
        files = sorted(self.snapshot.base_files(partitions), key=lambda base: (base.partition, base.file_id))
        for name in index.columns:
            column = coverage.column(name)
            for base in files:
                number = coverage.numbers.get((base.partition, base.name), -1)
                entry = -1 if number < 0 else int(column.entry_of[number])
                if entry < 0 or (name in again and not column.is_indexed(entry)):
                    lacking.setdefault(base, []).append(name)
        if self._forget(coverage):
            return self.missing(index, partitions, again)  # With what those runs still had to say gone too.
        groups: dict[tuple[str, ...], list[BaseFile]] = {}
        for base in files:
            if base in lacking:
                groups.setdefault(tuple(lacking[base]), []).append(base)
        return sorted(groups.items())

    def _coverage(self) -> Coverage:
        """What the runs say, read anew: what this process remembers of runs that are gone would not help others."""
        storage, base = self.handle.storage, self.handle.base_path
        try:
            folder = list_runs(storage, base)
        except CorruptFileError as error:
            self.notes.append(f"built anew: {error}")
            delete_partition(storage, metadata_path(base), BITMAP_INDEX)
            folder = RunFolder(manifest=Manifest(), runs=(), idle=())
        coverage = Coverage(storage, base, TableCache())
        coverage.refresh(folder)
        return coverage

    def _forget(self, coverage: Coverage) -> bool:
        """Take runs that cannot be read out of the index, for they keep all others from being folded.

        Returns:
            Whether there were any.
        """
        storage, base = self.handle.storage, self.handle.base_path
        folder = list_runs(storage, base) if coverage.unread else None
        gone = {run.name for run in folder.runs if run.name in coverage.unread} if folder is not None else set()
        if folder is None or not gone:
            return False
        self.notes.append(f"{len(gone)} damaged runs left out, for example: {coverage.unread[min(gone)]}")
        publish_without(storage, base, folder, gone)
        return True

    def run(
        self, index: BitmapDefinition, partitions: Sequence[str] | None, groups: Missing, progress: Progress | None
    ) -> None:
        """Cover files, and those of commits that came in between. Call without the lock.

        Args:
            index: the index.
            partitions: only files of these.
            groups: what :meth:`missing` found.
            progress: told after each chunk.
        """
        storage, base = self.handle.storage, self.handle.base_path
        if groups:
            try:
                self._cover(groups, progress)
                # A writer that began before the index was defined makes no bitmaps.
                seen, self.snapshot = self.snapshot, self.handle.snapshot()
                if self.snapshot.last_change != seen.last_change and self.snapshot.schema.equals(seen.schema):
                    self._cover(self.missing(index, partitions), progress)
            finally:
                delete_temp(storage, base, self.instant)
        try:
            fold_runs(self.handle, self.instant)
        except Exception as error:
            self.notes.append(f"runs of bitmaps could not be folded ({error}); the next write tries again")

    def _cover(self, groups: Missing, progress: Progress | None) -> None:
        limits = indexed_limits(read_bitmap_definitions(self.handle.storage, self.handle.base_path))
        total, done = sum(len(files) for _, files in groups), 0
        for names, files in groups:
            columns = {name: limits[name] for name in names if name in limits}
            for start in range(0, len(files) if columns else 0, FILES_PER_CHUNK):
                chunk = files[start : start + FILES_PER_CHUNK]
                self._build(columns, chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)

    def _build(self, columns: Mapping[str, int], chunk: Sequence[BaseFile]) -> None:
        """Cover a chunk: bitmaps of each file, then a run of them."""
        storage, base = self.handle.storage, self.handle.base_path
        task = BitmapsOfFile(storage=storage, base_path=base, columns=columns, schema=self.snapshot.schema)
        build = _BuildFile(
            task=task,
            folder=f"{temp_path(base, self.instant)}/.bitmaps",
            limit=inline_limit(len(chunk), INLINE_BYTES),
        )
        label = f"lakedex {base}: building bitmaps of {len(chunk)} files"
        held = [item for item in self.handle.engine.run(build, chunk, label) if item is not None]
        first = Run(self.instant, "build", len(self._runs))
        self._runs += write_runs(storage, base, first, held, self.handle.engine.run, label)
        self._files += len(held)
        for item in held:
            self._entries += item.entries
            for reason in item.not_indexed:
                self._not_indexed[reason] = self._not_indexed.get(reason, 0) + 1

    def result(self, index: BitmapDefinition, started: float) -> IndexResult:
        """What came of it."""
        left_out = [
            f"column {column!r} is not indexed in {files} files: {why}"
            for (column, why), files in sorted(self._not_indexed.items())
        ]
        return IndexResult(
            name=index.name,
            columns=index.columns,
            instant=self.instant if self._runs else None,
            files=self._files,
            entries=self._entries,
            bytes_written=sum(run.size for run in self._runs),
            seconds=time.perf_counter() - started,
            notes=(*self.notes, *left_out),
        )


def refresh_bitmap_index(
    handle: TableHandle,
    options: WriteOptions,
    name: str,
    *,
    partitions: Callable[[Snapshot], Sequence[str] | None] = lambda snapshot: None,
    progress: Progress | None = None,
) -> IndexResult:
    """Cover the current base files that no run covers; see :meth:`lakedex.Table.refresh_index`."""
    started = time.perf_counter()
    with open_build(handle, options) as (_, build):
        index = _known(handle, name)
        paths = partitions(build.snapshot)
    with build.heartbeat:
        build.run(index, paths, build.missing(index, paths), progress)
    return build.result(index, started)


def _known(handle: TableHandle, name: str) -> BitmapDefinition:
    definitions = read_bitmap_definitions(handle.storage, handle.base_path)
    if name not in definitions:
        indexes = ", ".join(sorted(definitions)) or "none"
        raise IndexNotFoundError(f"{handle.base_path} has no bitmap index {name!r}; it has {indexes}", index=name)
    return definitions[name]


def drop_bitmap_index(handle: TableHandle, options: WriteOptions, name: str) -> IndexResult:
    """Take a bitmap index out of a table: its definition, then, if it was the last, the runs.

    Runs keep columns that no index has any more until the next fold leaves them out.
    """
    started = time.perf_counter()
    storage, base = handle.storage, handle.base_path
    require_exclusive_create(handle.storage, handle.base_path)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        index = _known(handle, name)
        definitions = read_bitmap_definitions(storage, base)
        lock.check()
        del definitions[name]
        write_bitmap_definitions(storage, base, definitions)
        if not definitions:
            delete_partition(storage, metadata_path(base), BITMAP_INDEX)
    return IndexResult(name=name, columns=index.columns, seconds=time.perf_counter() - started)
