"""Create, refresh and drop bitmap indexes of a live table.

Building, refreshing and dropping bitmap indexes of a live table, whoever wrote it.

The definition comes first: from then on every write of lakedex makes bitmaps of what it writes. Then the base files
that no run covers are read, one task a file, and every chunk of them is written as a run of its own at once. So a build
that dies keeps what it did, and the same call goes on where it stopped. Nothing is announced on a timeline, and the
lock is held for the definition only: what others write meanwhile is covered by them, or stays to be refreshed.

Chunks do not depend on the engine: the same files give the same bytes on all of them.

Memory: the driver holds the bitmaps of one chunk, up to ``RUN_BYTES``; a task those of one file.

``indexes.create("bitmap", …)``: what may be indexed, under which name, and what is there already.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakedex.errors import (
    CorruptFileError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lakedex.index.bitmap.builder import BitmapsOfFile, column_of
from lakedex.index.bitmap.compaction import fold_runs
from lakedex.index.bitmap.coverage import Coverage
from lakedex.index.bitmap.definitions import (
    DEFAULT_MAX_DISTINCT,
    BitmapDefinition,
    in_schema,
    indexed_limits,
    lost_names,
    read_bitmap_definitions,
    write_bitmap_definitions,
)
from lakedex.index.bitmap.keys import is_indexable
from lakedex.index.bitmap.runs import (
    BITMAP_INDEX,
    Manifest,
    Run,
    RunFolder,
    TaskBitmaps,
    inline_limit,
    list_runs,
    publish_without,
    spill_bitmaps,
    write_runs,
)
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import Lock, require_exclusive_create, table_lock
from lakedex.io.spilled import Spilled
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.table_files import delete_partition, delete_temp, temp_path
from lakedex.maintenance.failed_writes import HeartbeatPolicy, remove_orphans
from lakedex.metadata.records import SUPPORTED
from lakedex.metadata.store import metadata_path
from lakedex.options import WriteOptions
from lakedex.reports import IndexResult
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import recover_table_config
from lakedex.types import META_COLUMNS, Progress

__all__ = [
    "MAX_DISTINCT_VALUES",
    "BitmapBuild",
    "create_bitmap_index",
    "drop_bitmap_index",
    "is_bitmap_index",
    "max_distinct_values",
    "open_build",
    "refresh_bitmap_index",
]


FILES_PER_CHUNK = 64


INLINE_BYTES = 1024 * 1024


Missing = Sequence[tuple[tuple[str, ...], Sequence[BaseFile]]]
"""Columns → base files that lack exactly these."""


def is_bitmap_index(handle: TableContext, name: str) -> bool:
    """Whether the table has a bitmap index of this name."""
    return name in read_bitmap_definitions(handle.storage, handle.base_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuildFile:
    """Task: bitmaps of one file; None for a file that is gone meanwhile."""

    task: BitmapsOfFile
    folder: str
    limit: int

    def __call__(self, base: BaseFile) -> TaskBitmaps | None:
        try:
            found = self.task(base)
        except FileNotFoundError:
            return None  # A cleaner took it: it is in no slice any more.
        spill = partial(Spilled.write, self.task.storage, f"{self.folder}/{base.name}.bitmaps")
        return spill_bitmaps(found, spill, self.limit)


@contextmanager
def open_build(handle: TableContext, options: WriteOptions) -> Iterator[tuple[Lock, BitmapBuild]]:
    """Take the lock and a fresh instant for a build, whose heartbeat beats from then on; the caller stops it."""
    require_exclusive_create(handle.storage, handle.base_path)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(handle.storage, handle.base_path)
        snapshot = handle.snapshot()
        clock = InstantClock(snapshot.config.timezone)
        clock.leave_out(remove_orphans(snapshot, HeartbeatPolicy.of(options)))
        instant = clock.next(snapshot.last_time)
        # The instant is on no timeline: the heartbeat keeps the next writer from taking the same.
        heartbeat = Heartbeat(handle.storage, handle.base_path, instant, int(options.heartbeat_interval * 1000))
        build = BitmapBuild(handle=handle, options=options, snapshot=snapshot, instant=instant, heartbeat=heartbeat)
        with ExitStack() as on_error:
            on_error.enter_context(heartbeat)
            lock.check()
            # What a schema change of others, or one that died, left of columns that are no more.
            known = read_bitmap_definitions(handle.storage, handle.base_path)
            present = in_schema(known, snapshot.schema)
            if present != known:
                write_bitmap_definitions(handle.storage, handle.base_path, present)
                build.notes += lost_names(known, present)
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

    handle: TableContext
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
                if self.snapshot.last_completion_time != seen.last_completion_time and self.snapshot.schema.equals(
                    seen.schema
                ):
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
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    partitions: Callable[[Snapshot], Sequence[str] | None] = lambda snapshot: None,
    progress: Progress | None = None,
) -> IndexResult:
    """Cover the current base files that no run covers; see :meth:`lakedex.Indexes.refresh`."""
    started = time.perf_counter()
    with open_build(handle, options) as (_, build):
        index = _known(handle, name)
        paths = partitions(build.snapshot)
    with build.heartbeat:
        build.run(index, paths, build.missing(index, paths), progress)
    return build.result(index, started)


def _known(handle: TableContext, name: str) -> BitmapDefinition:
    definitions = read_bitmap_definitions(handle.storage, handle.base_path)
    if name not in definitions:
        indexes = ", ".join(sorted(definitions)) or "none"
        raise IndexNotFoundError(f"{handle.base_path} has no bitmap index {name!r}; it has {indexes}", index=name)
    return definitions[name]


def drop_bitmap_index(handle: TableContext, options: WriteOptions, name: str) -> IndexResult:
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


MAX_DISTINCT_VALUES = "max_distinct_values"
"""The index's option: distinct values of a column in one file past which it is not indexed there."""


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_TAKEN = frozenset({*SUPPORTED, BITMAP_INDEX, "record_index"})


_TAKEN_PREFIXES = ("secondary_index_", "expr_index_")


@dataclass(slots=True)
class _Wish:
    """What the caller asked for, and what it means for the index as it is."""

    index: BitmapDefinition
    is_new: bool
    again: tuple[str, ...] = ()


def create_bitmap_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    columns: Sequence[str],
    *,
    max_distinct: int | None = None,
    partitions: Callable[[Snapshot], Sequence[str] | None] = lambda snapshot: None,
    if_not_exists: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> IndexResult:
    """Define a bitmap index and build it; see :meth:`lakedex.Indexes.create`."""
    started = time.perf_counter()
    storage, base = handle.storage, handle.base_path
    _check_name(base, name)
    with open_build(handle, options) as (lock, build):
        wanted = _columns(build.snapshot, columns)
        paths = partitions(build.snapshot)
        definitions = read_bitmap_definitions(storage, base)
        wish = _wish(definitions.get(name), name, wanted, max_distinct)
        if wish.index != definitions.get(name):
            lock.check()
            write_bitmap_definitions(storage, base, {**definitions, name: wish.index})
    with build.heartbeat:
        missing = build.missing(wish.index, paths, wish.again)
        if not wish.is_new:
            _resume(build, wish.index, bool(missing), if_not_exists)
        build.run(wish.index, paths, missing, progress)
    return build.result(wish.index, started)


def _resume(build: BitmapBuild, index: BitmapDefinition, is_incomplete: bool, if_not_exists: bool) -> None:
    if is_incomplete:
        build.notes.append("the index exists already; covered the files that it lacked")
    elif if_not_exists:
        build.notes.append("the index exists already")
    else:
        raise IndexExistsError(
            f"{build.handle.base_path}: the bitmap index {index.name!r} exists and covers "
            f"{', '.join(index.columns)}; drop it first, or pass if_not_exists=True",
            index=index.name,
        )


def _wish(known: BitmapDefinition | None, name: str, columns: tuple[str, ...], cap: int | None) -> _Wish:
    if known is None:
        return _Wish(BitmapDefinition(name=name, columns=columns, max_distinct=cap or DEFAULT_MAX_DISTINCT), True)
    all_columns = tuple(dict.fromkeys([*known.columns, *columns]))
    index = replace(known, columns=all_columns, max_distinct=cap or known.max_distinct)
    # Where the cap is larger now, what had too many values may have a bitmap.
    again = known.columns if index.max_distinct > known.max_distinct else ()
    return _Wish(index, all_columns != known.columns or index.max_distinct != known.max_distinct, again)


def _check_name(table: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{table}: {name!r} is no name for an index: letters, digits and underscores, no digit first"
        )
    if name.lower() in _TAKEN or name.lower().startswith(_TAKEN_PREFIXES):
        raise InvalidInputError(f"{table}: {name!r} is one of Hudi's own indexes; name the bitmap index otherwise")


def _columns(snapshot: Snapshot, columns: Sequence[str]) -> tuple[str, ...]:
    """Columns in the table's spelling.

    Raises:
        InvalidInputError: none, an unknown one, or one of Hudi's own.
        UnsupportedFeatureError: a type that has no values to index.
    """
    base, schema = snapshot.base_path, snapshot.schema
    if not columns:
        raise InvalidInputError(f"{base}: a bitmap index needs columns=[…]")
    spelled = []
    for asked in columns:
        if asked.lower() in META_COLUMNS:
            raise InvalidInputError(
                f"{base}: column {asked!r} is Hudi's own: files are found by it without a bitmap index", column=asked
            )
        name = _spelled(schema, asked)
        try:
            kind = column_of(name, schema).type
        except InvalidInputError as error:
            known = ", ".join(schema.names) or "no columns yet"
            raise InvalidInputError(f"{base} has no column {asked!r}; it has {known}", column=asked) from error
        if not is_indexable(kind):
            raise UnsupportedFeatureError(
                f"{base}: column {asked!r} is {kind}, which a bitmap index cannot hold; name fields inside of a struct "
                "by their path",
                feature=f"bitmap index of {kind}",
            )
        spelled.append(name)
    return tuple(dict.fromkeys(spelled))


def _spelled(schema: pa.Schema, name: str) -> str:
    """A column's name, or a nested field's path, as the table spells it; as it was given where it has none."""
    parts: list[str] = []
    fields = list(schema)
    for part in name.split("."):
        match = next((own for own in fields if own.name == part), None)
        match = match or next((own for own in fields if own.name.lower() == part.lower()), None)
        if match is None:
            return name
        parts.append(match.name)
        fields = list(match.type) if pa.types.is_struct(match.type) else []
    return ".".join(parts)


def max_distinct_values(table: str, value: object) -> int:
    """The option's value.

    Raises:
        InvalidInputError: no whole number above zero.
    """
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number <= 0:
        raise InvalidInputError(f"{table}: option {MAX_DISTINCT_VALUES} is a whole number above 0, not {value!r}")
    return number
