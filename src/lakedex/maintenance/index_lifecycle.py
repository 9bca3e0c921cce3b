"""Create, refresh and drop indexes of a live table, whatever their kind.

A *required* index is built without holding the table lock: base files are read, one task a file. Then, under the lock,
the build catches up with files that came in between and writes all records as delta commits of the metadata table
alone. Only then the index is listed in ``hoodie.properties``: a build that dies leaves nothing that anybody reads.
Writers of lakedex that are under way meanwhile look at the list when they commit. Those of others may have looked
already, so a build ends with an error while one is pending.

A *best-effort* index is defined first, under the lock; then it covers file by file, and each counts at once.

Memory: the driver holds what a required index reads of all files; larger bloom filters lie in the table's temp folder.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lakedex.errors import (
    CommitConflictError,
    IndexExistsError,
    InvalidInputError,
    OptionError,
    UnsupportedFeatureError,
)
from lakedex.index.definitions import replace_definitions
from lakedex.index.metadata_index import drop_partitions
from lakedex.index.protocol import BuildContext, BuildPlan, CommitPolicy, DropPlan, Index, IndexUpdate, LiveBuild
from lakedex.index.registry import INDEXES, not_found, table_indexes
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import Lock, table_lock
from lakedex.layout.contained_files import delete_partition, delete_temp
from lakedex.layout.file_slice import BaseFile, DataFile
from lakedex.maintenance.metadata_init import make_metadata_table, require_no_pending_writes
from lakedex.maintenance.recovery import INFLIGHT_PARTITIONS, recovered
from lakedex.maintenance.undo_write import HeartbeatPolicy, remove_orphans
from lakedex.metadata.records import FILES, SUPPORTED, metadata_partitions_property
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import LogWritten, build_instant, create_file_groups, write_delta_commit
from lakedex.options import WriteOptions, parse_options
from lakedex.reports import IndexResult
from lakedex.snapshot.partitions import PartitionName, key_generator, named_partitions
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import recover_table_config, update_table_config
from lakedex.types import Progress

__all__ = [
    "build_index",
    "create_index",
    "drop_index",
    "open_live",
    "recompute_entries",
    "refresh_index",
    "refresh_live",
]


BITMAP = "bitmap"


DEFINITIONS_PATH = "hoodie.table.index.defs.path"


DEFAULT_DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"


Partitions = Sequence[PartitionName] | PartitionName | None


def create_index(
    handle: TableContext,
    options: Mapping[str, Any],
    name: str,
    *,
    call: Mapping[str, Any] | None = None,
    using: str | None = None,
    columns: Sequence[str] | None = None,
    partitions: Partitions = None,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Build an index from the table's data; see :meth:`lakedex.Indexes.create`.

    ``options`` are those of the table object, ``call`` those of the call.
    """
    owners = {key: index.name for index in INDEXES for key in index.own_options}
    settings = {key: value for key, value in (call or {}).items() if key in owners}
    others = {key: value for key, value in (call or {}).items() if key not in settings}
    parsed = parse_options(options, others, "create_index")
    index = _buildable(name, using)
    if index.commit_policy is CommitPolicy.BEST_EFFORT:
        result = _build_live(
            handle,
            parsed,
            index,
            name,
            columns=columns or (),
            settings=settings,
            partitions=partitions,
            if_not_exists=if_not_exists,
            progress=progress,
        )
        return replace(result, notes=(*parsed.notes, *result.notes))
    if partitions is not None:
        raise InvalidInputError(f"{handle.files}: partitions= is for bitmap indexes; {name} covers the whole table")
    if foreign := settings.keys() - index.own_options:
        option = min(foreign)
        raise OptionError(f"{handle.files}: option {option} is for {owners[option]} indexes, not for {name}")
    result = build_index(handle, parsed, index, columns=columns, if_not_exists=if_not_exists, progress=progress)
    return replace(result, notes=(*parsed.notes, *result.notes))


def _buildable(name: str, using: str | None) -> Index:
    wanted = using or name
    kinds = {index.name: index for index in INDEXES if index.is_built}
    index = kinds.get(wanted)
    if index is None:
        raise UnsupportedFeatureError(
            f"lakedex builds the indexes {', '.join(kinds)}, not {wanted!r}; build others with Hudi",
            feature=f"index {wanted}",
        )
    if name != wanted and index.commit_policy is CommitPolicy.REQUIRED:
        raise InvalidInputError(
            f"a table has one index of the kind {wanted} and Hudi calls it {wanted!r}, not {name!r}: use that name"
        )
    return index


def _paths(snapshot: Snapshot, partitions: Partitions) -> tuple[str, ...] | None:
    """Partition paths that a user named; they must be in the table.

    Raises:
        InvalidInputError: names one that is not.
    """
    if partitions is None:
        return None
    items = [partitions] if isinstance(partitions, str | Mapping) else list(partitions)
    # Paths need no key generator, which not every maker's table has one of that lakedex knows.
    keys = (
        None
        if all(isinstance(item, str) for item in items)
        else key_generator(snapshot.config, snapshot, with_keys=False)
    )
    known = {item.partition for item in snapshot.slices()}
    paths = [
        item if isinstance(item, str) or keys is None else named_partitions(snapshot, keys, item)[0] for item in items
    ]
    for path in paths:
        if path not in known:
            some = ", ".join(map(repr, sorted(known)[:3])) or "none"
            raise InvalidInputError(f"{snapshot.files} has no partition {path!r}; it has, for example, {some}")
    return tuple(dict.fromkeys(str(path) for path in paths))


def refresh_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    partitions: Partitions = None,
    progress: Progress | None = None,
) -> IndexResult:
    """Cover what an index does not cover; see :meth:`lakedex.Indexes.refresh`."""
    snapshot = handle.snapshot()
    found = table_indexes(snapshot)
    index = found.get(name)
    if name in found and (index is None or index.commit_policy is CommitPolicy.REQUIRED):
        raise UnsupportedFeatureError(
            f"{handle.files}: only bitmap indexes are refreshed; indexes.drop({name!r}) and "
            f"indexes.create({name!r}) build this one again",
            feature=f"refresh of {name}",
        )
    if index is None:
        raise not_found(snapshot, name)
    return _build_live(handle, options, index, name, partitions=partitions, refresh=True, progress=progress)


def drop_index(handle: TableContext, options: WriteOptions, name: str, *, if_exists: bool = False) -> IndexResult:
    """Take an index out of a table; see :meth:`lakedex.Indexes.drop`.

    ``hoodie.properties`` first, so that nobody reads the index any more, then its definition, then its folder.
    """
    started = time.perf_counter()
    if name == FILES.name:
        raise InvalidInputError("'files' is the metadata table's listing, not an index; it cannot be dropped")
    files = handle.files
    with table_lock(handle.files, options.lock) as lock:
        recover_table_config(files)
        snapshot = handle.snapshot()
        plan = _drop_plan(snapshot, name)
        if plan is None:
            if if_exists:
                return IndexResult(name=name, notes=("the table has no such index",))
            raise not_found(snapshot, name)
        lock.check()
        if plan.partitions:
            config = snapshot.config
            changes = metadata_partitions_property(config.metadata_partitions - plan.partitions)
            changes[INFLIGHT_PARTITIONS] = ",".join(sorted(config.metadata_partitions_inflight - plan.partitions))
            update_table_config(files, changes)
        replace_definitions(files.storage, plan.definitions)
        for folder in (*sorted(plan.partitions), *plan.folders):
            delete_partition(files.metadata, folder)
    notes = tuple(f"dropped {other} with it" for other in sorted(plan.partitions - {name}))
    return IndexResult(name=name, columns=plan.columns, notes=notes, seconds=time.perf_counter() - started)


def _drop_plan(snapshot: Snapshot, name: str) -> DropPlan | None:
    """Plan to drop an index: itself, and those that cannot be without it; None if the table does not have it."""
    config, found = snapshot.config, table_indexes(snapshot)
    if name not in found:
        return None
    index = found[name]
    if index is not None and not (plan := index.drop(snapshot, name)).partitions:
        return plan
    # Indexes that lakedex cannot keep up are a reason to drop them, not one to refuse it.
    known = frozenset(SUPPORTED)
    require_writable(
        replace(
            config,
            metadata_partitions=config.metadata_partitions & known,
            metadata_partitions_inflight=config.metadata_partitions_inflight & known,
        )
    )
    if name == "record_index" and (others := sorted(own for own in found if own.startswith("secondary_index_"))):
        raise InvalidInputError(f"table {config.name}: {', '.join(others)} are built on record_index; drop them first")
    dependents = {own for own, other in found.items() if other is not None and name in other.made_of}
    return drop_partitions(snapshot, frozenset({name, *dependents}))


# ------------------------------------------------------------------------------------------------ best-effort indexes


@contextmanager
def open_live(
    handle: TableContext, options: WriteOptions, name: str, **asked: Any
) -> Iterator[tuple[Lock, BuildContext, Heartbeat]]:
    """Take the lock and a new instant, for which a heartbeat beats from then on; the caller stops it."""
    with table_lock(handle.files, options.lock) as lock:
        recover_table_config(handle.files)
        snapshot = handle.snapshot()
        clock = handle.clock(snapshot.config.timezone)
        clock.leave_out(remove_orphans(snapshot, HeartbeatPolicy(options.heartbeat)))
        instant = clock.next(snapshot.last_time)
        # The instant is on no timeline: the heartbeat keeps the next writer from taking the same.
        heartbeat = Heartbeat(handle.files, instant, options.heartbeat.interval_ms)
        with ExitStack() as on_error:
            on_error.enter_context(heartbeat)
            lock.check()
            ctx = BuildContext(table=handle, snapshot=snapshot, options=options, instant=instant, name=name, **asked)
            yield lock, ctx, heartbeat
            on_error.pop_all()


def refresh_live(
    handle: TableContext, options: WriteOptions, index: Index, name: str, progress: Progress | None = None
) -> IndexResult:
    """Cover what a best-effort index does not cover."""
    return _build_live(handle, options, index, name, refresh=True, progress=progress)


def _build_live(
    handle: TableContext,
    options: WriteOptions,
    index: Index,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    partitions: Partitions = None,
    refresh: bool = False,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Define or find the index, cover the files that it lacks and those of commits in between, then do its upkeep."""
    started = time.perf_counter()
    asked = {"columns": columns, "settings": settings or {}, "refresh": refresh}
    with open_live(handle, options, name, **asked) as (lock, opened, heartbeat):
        ctx = replace(opened, partitions=_paths(opened.snapshot, partitions))
        build = index.build(ctx)
        if build is None or isinstance(build, BuildPlan):
            raise UnsupportedFeatureError(f"{index.name} is not built file by file", feature=f"index {name}")
        lock.check()
        replace_definitions(handle.files.storage, build.definitions)
    with heartbeat:
        notes = _cover(ctx, build, progress, refresh=refresh, if_not_exists=if_not_exists)
        notes += index.after_commit(handle, ctx.instant).notes
    result = build.result()
    return replace(result, notes=(*result.notes, *notes), seconds=time.perf_counter() - started)


def _cover(
    ctx: BuildContext, build: LiveBuild, progress: Progress | None, *, refresh: bool, if_not_exists: bool
) -> tuple[str, ...]:
    try:
        covered = build.cover(ctx.snapshot, progress)
        now = ctx.table.snapshot() if covered else ctx.snapshot
        # A writer that began before the index was defined does not cover its files.
        if now.last_completion_time != ctx.snapshot.last_completion_time and now.schema.equals(ctx.snapshot.schema):
            build.cover(now, progress)
    finally:
        delete_temp(ctx.snapshot.files, ctx.instant)
    if build.is_new or refresh:
        return ()
    if covered:
        return ("the index exists already; covered the files that it lacked",)
    if if_not_exists:
        return ("the index exists already",)
    raise IndexExistsError(_exists(ctx.snapshot.files.base_path, ctx.name), index=ctx.name)


def _exists(table: str, name: str) -> str:
    return (
        f"{table}: the index {name!r} exists and covers what was asked for; drop it first, or pass if_not_exists=True"
    )


# --------------------------------------------------------------------------------------------------- required indexes


def build_index(
    handle: TableContext,
    options: WriteOptions,
    index: Index,
    *,
    columns: Sequence[str] | None = None,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Build an index whose records are published together; see :meth:`lakedex.Indexes.create`."""
    started = time.perf_counter()
    if not handle.snapshot().uses_metadata:
        make_metadata_table(handle, options, only_if_lost=True)
    with ExitStack() as beating:
        with table_lock(handle.files, options.lock) as lock:
            now, clock = recovered(handle, options, lock)
            build = _Build(handle, options, index, clock, clock.next(now.last_time), columns, progress)
            # Its name is on no timeline: the heartbeat keeps the next writer from taking the same.
            beating.enter_context(build.alive(build.name))
        if not build.plan(now):
            if not if_not_exists:
                raise IndexExistsError(_exists(handle.files.base_path, index.name), index=index.name)
            notes = ("the index exists already",)
            return IndexResult(name=index.name, notes=notes, seconds=time.perf_counter() - started)
        try:
            build.read(_files_of(now, index))
            with table_lock(handle.files, options.lock) as lock:
                return build.publish(lock, started)
        finally:
            delete_temp(handle.files, build.name)


def recompute_entries(
    handle: TableContext, options: WriteOptions, index: Index, files: Collection[tuple[str, str]]
) -> int:
    """Compute the entries of files from the data and write them again, then those of the indexes made of it.

    Args:
        handle: the table.
        options: filter sizes, lock.
        index: the index.
        files: files by partition and name; those that are not current any more are left out.

    Returns:
        How many files it were.
    """
    with table_lock(handle.files, options.lock) as lock:
        now, clock = recovered(handle, options, lock)
        name = clock.next(now.last_time)
        require_no_pending_writes(now, f"the index {index.name} was not repaired")
        some = [file for file in _files_of(now, index) if (file.partition, file.name) in files]
        try:
            for one in (index, *(other for other in INDEXES if index.name in other.made_of)):
                build = _Build(handle, options, one, clock, name, recompute=True)
                now = handle.snapshot()
                if build.plan(now):
                    build.read(some)
                    build.write(lock, now, some)
        finally:
            delete_temp(handle.files, name)
    return len(some)


def _files_of(now: Snapshot, index: Index) -> list[DataFile]:
    """Current files that a build reads."""
    return [file for item in now.slices() for file in item.files if index.covers_logs or isinstance(file, BaseFile)]


@dataclass(slots=True)
class _Build:
    """One build: its plan, and what it has read so far."""

    handle: TableContext
    options: WriteOptions
    index: Index
    clock: InstantClock
    name: str
    columns: Sequence[str] | None = None
    progress: Progress | None = None
    recompute: bool = False
    parts: dict[DataFile, Any] = field(default_factory=dict)
    _plan: BuildPlan | None = None
    _ctx: BuildContext | None = None

    def plan(self, now: Snapshot) -> BuildPlan | None:
        """Plan the build on this state; None if nothing has to be built."""
        if not now.metadata.has(FILES.name):
            raise self._conflict("its metadata table went away")
        self._ctx = BuildContext(
            table=self.handle,
            snapshot=now,
            options=self.options,
            instant=self.name,
            name=self.index.name,
            columns=self.columns,
            recompute=self.recompute,
        )
        found = self.index.build(self._ctx)
        self._plan = found if isinstance(found, BuildPlan) else None
        return self._plan

    def read(self, files: Sequence[DataFile]) -> None:
        """Read what the index needs of files that were not read yet, one task a file."""
        if self._plan is None or self._ctx is None:
            return
        task = self._plan.task(self._ctx)
        fresh = [base for base in files if base not in self.parts]
        step = max(64, 8 * self.handle.engine.parallelism) if self.progress else max(len(fresh), 1)
        for start in range(0, len(fresh), step):
            some = fresh[start : start + step]
            label = f"lakedex {self.handle.files}: building {self.index.name} of {len(some)} files"
            found = [None] * len(some) if task is None else self.handle.engine.run(task, some, label)
            self.parts.update(zip(some, found, strict=True))
            if self.progress is not None:
                self.progress(start + len(some), len(fresh))

    @contextmanager
    def alive(self, instant: str) -> Iterator[None]:
        """A heartbeat while something of ours lies in the table that a later writer may have to remove."""
        interval = self.options.heartbeat.interval_ms
        with Heartbeat(self.handle.files, instant, interval):
            yield

    def publish(self, lock: Lock, started: float) -> IndexResult:
        """Catch up, write the records and list the index. Call under the table lock."""
        now, _ = recovered(self.handle, self.options, lock)
        require_no_pending_writes(now, f"the index {self.index.name} was not published")
        before = self._plan
        plan = self.plan(now)
        if before is None or plan is None or plan.basis != before.basis:
            raise self._conflict("its schema or its indexes were changed while the index was built")
        files = _files_of(now, self.index)
        self.read(files)
        logs = self.write(lock, now, files)
        lock.check()
        if plan.groups:
            changes = metadata_partitions_property(now.config.metadata_partitions, plan.groups)
            # A build of Hudi that ended half-way left its mark.
            changes[INFLIGHT_PARTITIONS] = ",".join(
                sorted(now.config.metadata_partitions_inflight - plan.groups.keys())
            )
            changes.setdefault(DEFINITIONS_PATH, now.config.raw.get(DEFINITIONS_PATH) or DEFAULT_DEFINITIONS_PATH)
            update_table_config(self.handle.files, changes)
        return IndexResult(
            name=self.index.name,
            columns=plan.columns,
            instant=logs[0][0] if logs else None,
            files=len(files),
            entries=sum(log.records for _, own in logs for log in own if log.partition == self.index.name),
            bytes_written=sum(log.size for _, own in logs for log in own),
            seconds=time.perf_counter() - started,
        )

    def _conflict(self, why: str) -> CommitConflictError:
        return CommitConflictError(
            f"{self.handle.files}: {why}, so the index {self.index.name} was not published; create it again",
            ours=self.name,
            theirs=None,
            file_groups=frozenset(),
            retryable=True,
        )

    def write(self, lock: Lock, now: Snapshot, files: Sequence[DataFile]) -> list[tuple[str, list[LogWritten]]]:
        """Write the records of files. Call under the table lock."""
        if self._plan is None or self._ctx is None:
            return []
        updates = self._plan.updates(self._ctx, {base: self.parts[base] for base in files})
        return self._write(lock, now, self._plan.groups, updates)

    def _write(
        self, lock: Lock, now: Snapshot, groups: Mapping[str, int], updates: Iterable[IndexUpdate]
    ) -> list[tuple[str, list[LogWritten]]]:
        """Write delta commits of the metadata table; the first also makes the new file groups."""
        files = self.handle.files
        written: list[tuple[str, list[LogWritten]]] = []
        for update in updates:
            lock.check()
            store = self._fresh_store(now)
            if store.timeline.layout == 1:
                instant = build_instant(now.timeline, store.timeline)
            else:
                instant = self.clock.next(max(now.last_time, store.timeline.last_time))
            with self.alive(instant):
                if not written:
                    for name, count in groups.items():
                        # What a build that died or a writer that dropped the index may have left.
                        delete_partition(files.metadata, name)
                        create_file_groups(files.metadata, name, count, instant)
                _, logs = write_delta_commit(
                    store,
                    instant,
                    update.records,
                    partial(self.clock.next, instant),
                    self.handle.engine.run,
                    first_version=2 if groups and not written else 1,
                    operation="BULK_INSERT_PREPPED" if groups and not written else "UPSERT_PREPPED",
                )
            lock.check()
            replace_definitions(files.storage, update.definitions_after)
            written.append((instant, logs))
        return written

    def _fresh_store(self, now: Snapshot) -> MetadataStore:
        """The metadata table without what was cached of its file groups."""
        old = now.metadata
        return MetadataStore(old.files, old.data_timeline, old.timeline.reload(), old.partitions, old.cache)
