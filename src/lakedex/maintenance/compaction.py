"""Compact a merge-on-read table: write the merged rows of file slices to new base files, and commit them.

As in ``HoodieCompactor`` and ``RunCompactionActionExecutor``. A compaction is a plan on the timeline first
(:mod:`lakedex.maintenance.compaction_plan`), which any engine may run: lakedex runs those of Hudi, and Hudi those of
lakedex. Rows keep their commit times and sequence numbers, so no reader of changes sees them again. Writers go on
beside it: what they write after the plan belongs to the slices that the compaction opens.

The lock is held to plan, to begin and to complete. Whoever runs a plan makes it inflight, which only one can, and keeps
up a heartbeat; a run whose process died is undone by the next one, and the plan stays.

Memory: the list of the table's slices, and what tasks return of each file (:mod:`lakedex.maintenance.compaction_task`).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lakedex._version import __version__
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.comments import with_docs
from lakedex.display.blocks import Card, notes
from lakedex.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    IndexInconsistentError,
    InvalidInputError,
    LakedexError,
)
from lakedex.index.bloom_filters import base_file_settings
from lakedex.index.definitions import replace_definitions
from lakedex.index.protocol import CollectContext, CommitContext, IndexUpdate, merge_records
from lakedex.index.registry import INDEXES, collectors, updates_of_commit
from lakedex.index.written_file import Collector, WrittenFile, listing_of, stats_by_partition
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import Lock, table_lock
from lakedex.layout.contained_files import delete_temp
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.names import parse_base_file_name
from lakedex.maintenance.compaction_plan import (
    compaction_due,
    plan_operations,
    planned_slices,
    require_no_writers,
    without_planned,
)
from lakedex.maintenance.compaction_task import CompactedGroup, CompactFileGroup
from lakedex.maintenance.recovery import recovered
from lakedex.maintenance.undo_write import HeartbeatPolicy, remove_unaccepted, roll_back
from lakedex.metadata.records import (
    FILES,
    PARTITION_STATS,
)
from lakedex.metadata.writer import write_delta_commit
from lakedex.options import WriteOptions
from lakedex.reports import Report, counted
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import (
    WRITE_ACTIONS,
    complete,
    create_inflight,
    create_requested,
    remove_pending,
)
from lakedex.timeline.commit_metadata import CommitMetadata, CompactedLogs, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import Instant, InstantClock, State
from lakedex.timeline.service_metadata import CompactionOperation, encode_compaction_plan
from lakedex.types import TableType, size_text

__all__ = ["TableCompaction", "compact_if_due", "compact_table", "run_pending_compactions", "unschedule"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableCompaction(Report):
    """The result of ``Maintenance.compact``.

    Attributes:
        instants: compactions that were completed, or the one that was planned; none where there was nothing to merge.
        found: those among them that were planned before this call.
        planned_only: whether they are only planned.
        file_groups: groups that got a new base file, or are to get one.
        log_files: log files that were merged into them.
        rows: rows of the new base files.
        updated, deleted, inserted: rows that the log files changed, removed and added.
        bytes_read: size of the merged log files and base files.
        bytes_written: size of the new base files.
        seconds: the whole call.
        notes: what else the user should know.
        dry_run: whether nothing was written, so that ``instants`` are pending plans.
    """

    instants: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    planned_only: bool = False
    file_groups: int = 0
    log_files: int = 0
    rows: int = 0
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def instant(self) -> str | None:
        """The last of :attr:`instants`; None where there is none."""
        return self.instants[-1] if self.instants else None

    def card(self) -> Card:
        """The files that were merged."""
        if not self.file_groups:
            return Card("compaction", f"nothing to merge, {self.seconds:.2f} s", [notes(self.notes)])
        logs, groups = counted(self.log_files, "log file"), counted(self.file_groups, "file group")
        if self.dry_run:
            head = f"would merge {logs} of {groups}, {size_text(self.bytes_read)}, {self.seconds:.2f} s"
            return Card("compaction (dry run)", head, [notes(self.notes)])
        title = f"compaction {', '.join(self.instants)}"
        if self.planned_only:
            head = f"planned: {logs} of {groups}, {size_text(self.bytes_read)}, {self.seconds:.2f} s"
            return Card(title, head, [notes(self.notes)])
        head = (
            f"{logs} of {groups} merged into {counted(self.rows, 'row')} ({self.updated:,} updated, "
            f"{self.deleted:,} deleted, {self.inserted:,} inserted), {size_text(self.bytes_read)} to "
            f"{size_text(self.bytes_written)}, {self.seconds:.2f} s"
        )
        ran = (f"{', '.join(self.found)} had been planned before",) if self.found else ()
        return Card(title, head, [notes((*self.notes, *ran))])


def compact_table(
    handle: TableContext,
    options: WriteOptions,
    *,
    plan_only: bool = False,
    instant: str | None = None,
    partitions: Sequence[str] | None = None,
    dry_run: bool = False,
) -> TableCompaction:
    """Run pending compactions and a new one; see :meth:`lakedex.Maintenance.compact`."""
    started = time.perf_counter()
    now = handle.snapshot()
    pending = _chosen(now, plan_only, instant)
    done = TableCompaction(notes=options.notes, dry_run=dry_run)
    if dry_run:
        target = options.compaction.target_io
        plans = [(found, now.timeline.compaction_plan(found)) for found in pending]
        if instant is None:
            plans.append((_PLANNED_NOW, plan_operations(now, LAST_INSTANT, target, partitions)))
        for found, plan in plans:
            named = () if found is _PLANNED_NOW else (found.requested,)
            figures = _figures(plan, planned_slices(now, found, plan))
            done = _sum(done, replace(figures, instants=named, found=named))
        return replace(done, seconds=time.perf_counter() - started)
    for found in pending:
        done = _sum(done, replace(_run(handle, options, found.requested), found=(found.requested,)))
    if instant is None:
        planned = _plan(handle, options, partitions, runs=not plan_only)
        new = planned if plan_only or not planned.instants else _run(handle, options, planned.instants[0])
        done = replace(_sum(done, new), planned_only=plan_only)
    return replace(done, seconds=time.perf_counter() - started)


def compact_if_due(handle: TableContext, options: WriteOptions, seen: Snapshot) -> list[str] | None:
    """Plan or run a compaction after a write, as ``hoodie.compact.*`` says; what was done as notes."""
    chosen = options.compaction
    if seen.config.table_type != TableType.MERGE_ON_READ or not (chosen.inline or chosen.schedule_inline):
        return None
    pending = seen.timeline.pending({"compaction"})
    due = compaction_due(seen, chosen, handle.now_ms())
    plan_only = chosen.schedule_inline
    if (pending and plan_only) or not (due or pending):
        return None
    done = run_pending_compactions(handle, options, pending)
    if due:
        planned = _plan(handle, options, None, runs=not plan_only)
        if planned.instants:
            done = _sum(done, planned if plan_only else _run(handle, options, planned.instants[0]))
    if not done.instants:
        return []
    verb = "planned the compaction of" if plan_only else "compacted"
    groups = counted(done.file_groups, "file group")
    return [*done.notes, f"{verb} {groups} with {counted(done.log_files, 'log file')} ({', '.join(done.instants)})"]


def run_pending_compactions(handle: TableContext, options: WriteOptions, pending: Sequence[Instant]) -> TableCompaction:
    """Run plans, but for those that somebody runs."""
    done = TableCompaction()
    for found in pending:
        with suppress(CommitConflictError):
            done = _sum(done, _run(handle, options, found.requested))
    return done


def unschedule(handle: TableContext, options: WriteOptions, instant: str) -> None:
    """Take back a plan that nobody has begun; see :meth:`lakedex.Maintenance.unschedule_compaction`."""
    with table_lock(handle.files, options.lock) as lock:
        snapshot, _ = recovered(handle, options, lock)
        pending = _pending(snapshot, instant)
        if pending.state is not State.REQUESTED:
            raise CommitConflictError(
                f"{snapshot.files}: the compaction {instant} is being run; nothing was changed",
                ours=None,
                theirs=instant,
                file_groups=frozenset(),
                retryable=True,
            )
        later = [i for i in snapshot.timeline.completed(WRITE_ACTIONS) if i.requested > instant]
        if not snapshot.goes_by_completion and (later or snapshot.timeline.pending(WRITE_ACTIONS)):
            raise InvalidInputError(
                f"{snapshot.files}: writes came after the compaction {instant} was planned. In version 6 their log "
                "files have its instant in their names, and nobody would find them without it: run the plan "
                f"(maintenance.compact(instant={instant!r}))"
            )
        remove_pending(snapshot.timeline, pending)


LAST_INSTANT = "9" * 17
"""After every instant."""


_PLANNED_NOW = Instant(LAST_INSTANT, "compaction", State.REQUESTED, None, "")


def _chosen(snapshot: Snapshot, plan_only: bool, instant: str | None) -> tuple[Instant, ...]:
    """The pending compactions that a call runs."""
    _require_merge_on_read(snapshot)
    pending = snapshot.timeline.pending({"compaction"})
    if instant is None:
        return () if plan_only else pending
    if plan_only:
        raise InvalidInputError("plan_only makes a new plan and instant runs an old one; give one of them")
    pending = tuple(found for found in pending if found.requested == instant)
    if not pending:
        raise InvalidInputError(f"{snapshot.files} has no pending compaction {instant}; inspect.timeline() shows them")
    return pending


def _require_merge_on_read(snapshot: Snapshot) -> None:
    if snapshot.config.table_type != TableType.MERGE_ON_READ:
        raise InvalidInputError(
            f"{snapshot.files} is a copy-on-write table, which has no log files to compact; "
            "maintenance.compact_metadata compacts its metadata table"
        )


def _pending(snapshot: Snapshot, instant: str) -> Instant:
    found = next((i for i in snapshot.timeline.pending({"compaction"}) if i.requested == instant), None)
    if found is None:
        raise _conflict(snapshot, instant, "is not pending any more: another writer ran it or took it back", None)
    return found


def _conflict(snapshot: Snapshot, instant: str, what: str, theirs: str | None) -> CommitConflictError:
    return CommitConflictError(
        f"{snapshot.files}: the compaction {instant} {what}; nothing was committed",
        ours=instant,
        theirs=theirs,
        file_groups=frozenset(),
        retryable=True,
    )


def _plan(
    handle: TableContext, options: WriteOptions, partitions: Sequence[str] | None, *, runs: bool
) -> TableCompaction:
    """Write a plan of all that can be compacted now; ``runs`` checks before that lakedex can run it."""
    if runs:
        MergeSettings.of(handle.snapshot())
    with table_lock(handle.files, options.lock) as lock:
        snapshot, clock = recovered(handle, options, lock)
        require_no_writers(snapshot)
        requested = clock.next(snapshot.last_time)
        operations = plan_operations(snapshot, requested, options.compaction.target_io, partitions)
        if not operations:
            return TableCompaction()
        lock.check()
        create_requested(snapshot.timeline, requested, "compaction", encode_compaction_plan(operations))
    slices = planned_slices(snapshot, Instant(requested, "compaction", State.REQUESTED, None, ""), operations)
    return replace(_figures(operations, slices), instants=(requested,))


def _figures(plan: Sequence[CompactionOperation], slices: Sequence[FileSlice]) -> TableCompaction:
    """The figures of a plan."""
    return TableCompaction(
        file_groups=len(plan),
        log_files=sum(len(operation.logs) for operation in plan),
        bytes_read=sum(item.size for item in slices),
    )


@dataclass(slots=True)
class _CompactionRun:
    """A plan that this process carries out.

    Attributes:
        handle: the table.
        options: of the call.
        snapshot: the table as the run reads it.
        clock: gives instants in its zone.
        inflight: the compaction.
        plan: its operations.
        slices: what they merge.
        heartbeat: of the run.
        notes: for the user.
        collectors: what tasks collected of the new files, by index.
    """

    handle: TableContext
    options: WriteOptions
    snapshot: Snapshot
    clock: InstantClock
    inflight: Instant
    plan: Sequence[CompactionOperation]
    slices: Sequence[FileSlice]
    heartbeat: Heartbeat
    notes: list[str] = field(default_factory=list)
    collectors: Mapping[str, Collector] = field(default_factory=dict)

    def write(self) -> list[CompactedGroup]:
        """Write the base files in tasks of the engine."""
        handle, snapshot, instant = self.handle, self.snapshot, self.inflight.requested
        collecting = CollectContext(
            snapshot=snapshot,
            schema=snapshot.schema,
            options=self.options,
            limits=handle.limits,
            files=len(self.slices),
        )
        task = CompactFileGroup(
            files=snapshot.files,
            timeline_path=snapshot.timeline.path,
            instant=instant,
            run=random.SystemRandom().randrange(1 << 30),
            merge=MergeSettings.of(snapshot),
            settings=base_file_settings(snapshot, snapshot.schema, self.options),
            collectors=collectors(collecting),
        )
        label = f"lakedex {snapshot.files}: compaction {instant} of {counted(len(self.slices), 'file group')}"
        self.collectors = task.collectors
        return handle.engine.run(task, self.slices, label)

    def commit(self, done: Sequence[CompactedGroup]) -> None:
        """Make the new files visible."""
        files = [item.file for item in done]
        remove_unaccepted(self.snapshot, self.inflight.requested, files)
        with table_lock(self.handle.files, self.options.lock) as lock:
            self._commit_locked(lock, done)
        try:
            # A late attempt may have found the compaction still in flight.
            remove_unaccepted(self.snapshot, self.inflight.requested, files)
            delete_temp(self.handle.files, self.inflight.requested)
            self.heartbeat.stop()
        except OSError as error:
            self.notes.append(f"compacted, but not all temporary files could be removed ({error})")
        for index in INDEXES:
            self.notes += index.after_commit(self.handle, self.inflight.requested).notes

    def _commit_locked(self, lock: Lock, done: Sequence[CompactedGroup]) -> None:
        self.snapshot.metadata.recheck()
        now = self.snapshot.refreshed()
        self._check(now)
        updates = self._index(now, [item.file for item in done])
        lock.check()
        storage = self.handle.files.storage
        for update in updates:
            replace_definitions(storage, update.definitions)
        if now.metadata.has(FILES.name):
            records = merge_records(listing_of(item.file for item in done), updates)
            floor = max(now.last_time, self.inflight.requested)
            run = self.handle.engine.run
            write_delta_commit(now.metadata, self.inflight.requested, records, lambda: self.clock.next(floor), run)
        lock.check()
        schema = with_docs(arrow_to_avro(self.snapshot.schema, now.config.name), self.snapshot.comments)
        body = CommitMetadata(
            operation="COMPACT",
            write_stats=stats_by_partition(_stat(item, merged) for item, merged in zip(done, self.slices, strict=True)),
            extra={"schema": json.dumps(schema), "lakedex.version": __version__},
            compacted=True,
        )
        completion = self.clock.next(now.last_time)
        complete(now.timeline, self.inflight, completion, encode_commit_metadata(body, now.timeline.layout))
        for update in updates:
            replace_definitions(storage, update.definitions_after)

    def _check(self, now: Snapshot) -> None:
        """Nothing came in between that the new files do not have. Writes to log files have not to be looked at."""
        instant = self.inflight.requested
        mine = _pending(now, instant)
        if mine.state is not State.INFLIGHT or now.timeline.pending_rollback_of(instant) is not None:
            raise _conflict(now, instant, "was rolled back by another writer that took it for dead", None)
        if not now.schema.equals(self.snapshot.schema):
            raise _conflict(now, instant, "has read the table before its schema was changed", None)
        if now.lost_metadata:
            raise _damaged(now)
        for done in self.snapshot.timeline.completed(WRITE_ACTIONS):
            if not now.timeline.is_committed(done.requested):
                raise _conflict(now, instant, "may have read rows of a commit that was rolled back", done.requested)
        groups = {(operation.partition, operation.file_id) for operation in self.plan}
        for done in now.timeline.completed(WRITE_ACTIONS):
            if done.requested > instant or self.snapshot.timeline.is_completed(done.requested):
                continue
            for partition, stats in now.timeline.commit_metadata(done).write_stats.items():
                for stat in stats:
                    if (partition, stat.file_id) in groups and parse_base_file_name(stat.file_name) is not None:
                        raise _conflict(now, instant, f"would hide the base file {stat.path}", done.requested)

    def _index(self, now: Snapshot, files: Sequence[WrittenFile]) -> list[IndexUpdate]:
        """Additions of each index to the metadata table.

        Partitions keep their wider stats while a write is under way that began before: readers take the stats of the
        later instant, which is that of the compaction, and do not find the write's own.
        """
        rest = without_planned(now, self.plan)
        ctx = CommitContext(
            snapshot=rest,
            before=self.snapshot.schema,
            schema=self.snapshot.schema,
            instant=self.inflight.requested,
            collectors=self.collectors,
            run=self.handle.engine.run,
        )
        older = any(writing.requested < self.inflight.requested for writing in now.timeline.pending(WRITE_ACTIONS))
        updates = []
        for _, update in updates_of_commit(ctx, files, "compaction"):
            self.notes += update.notes
            records = {
                name: own for name, own in update.records.items() if not (older and name == PARTITION_STATS.name)
            }
            updates.append(replace(update, records=records))
        return updates

    def abandon(self, error: BaseException) -> None:
        """Take back what was written; the plan stays. What cannot be undone now is undone by the next run."""
        is_left = not isinstance(error, CommitStateUnknownError)
        if is_left:
            with suppress(LakedexError, OSError), table_lock(self.handle.files, self.options.lock):
                now = self.snapshot.refreshed()
                mine = [i for i in now.timeline.pending({"compaction"}) if i.requested == self.inflight.requested]
                if mine and mine[0].state is State.INFLIGHT:
                    roll_back(now, mine[0], self.clock)
                is_left = False
        with suppress(OSError):
            self.heartbeat.stop(keeps_file=is_left)


def _run(handle: TableContext, options: WriteOptions, requested: str) -> TableCompaction:
    run = _begin(handle, options, requested)
    try:
        done = run.write()
        run.commit(done)
    except BaseException as error:
        run.abandon(error)
        raise
    counts = [item.counts for item in done]
    return replace(
        _figures(run.plan, run.slices),
        instants=(requested,),
        rows=sum(item.file.rows for item in done),
        updated=sum(count.updated for count in counts),
        deleted=sum(count.deleted for count in counts),
        inserted=sum(count.inserted for count in counts),
        bytes_written=sum(item.file.size for item in done),
        notes=tuple(run.notes),
    )


def _begin(handle: TableContext, options: WriteOptions, requested: str) -> _CompactionRun:
    """Take a plan, after a run of it that died was undone."""
    with table_lock(handle.files, options.lock) as lock:
        snapshot, clock = recovered(handle, options, lock)
        pending = _pending(snapshot, requested)
        if pending.state is State.INFLIGHT:
            if not HeartbeatPolicy(options.heartbeat).is_expired_write(snapshot, pending):
                raise _conflict(snapshot, requested, "is being run by another process", requested)
            roll_back(snapshot, pending, clock)
            snapshot = handle.snapshot()
            pending = _pending(snapshot, requested)
        if snapshot.lost_metadata:
            raise _damaged(snapshot)
        plan = snapshot.timeline.compaction_plan(pending)
        slices = planned_slices(snapshot, pending, plan)
        MergeSettings.of(snapshot)
        heartbeat = Heartbeat(handle.files, requested, options.heartbeat.interval_ms)
        heartbeat.start()
        try:
            lock.check()
            inflight = create_inflight(snapshot.timeline, pending)
        except BaseException:
            with suppress(OSError):
                heartbeat.stop()
            raise
    return _CompactionRun(handle, options, snapshot, clock, inflight, plan, slices, heartbeat)


def _damaged(snapshot: Snapshot) -> IndexInconsistentError:
    name, wrong = next(iter(snapshot.lost_metadata.items()))
    return IndexInconsistentError(
        f"{snapshot.files}: {name} of its metadata table is damaged: {wrong}; nothing was compacted. "
        "maintenance.rebuild_metadata() builds it again",
        table=snapshot.files.base_path,
        index=name,
    )


def _stat(item: CompactedGroup, merged: FileSlice) -> WriteStat:
    counts, stat = item.counts, item.file.stat
    return replace(
        stat,
        create_ms=0,
        upsert_ms=stat.create_ms + stat.upsert_ms,
        compacted=CompactedLogs(
            files=len(merged.log_files),
            blocks=counts.blocks,
            bytes=counts.bytes,
            records=counts.records,
            keys=counts.keys,
        ),
    )


def _sum(first: TableCompaction, second: TableCompaction) -> TableCompaction:
    return TableCompaction(
        instants=first.instants + second.instants,
        found=first.found + second.found,
        file_groups=first.file_groups + second.file_groups,
        log_files=first.log_files + second.log_files,
        rows=first.rows + second.rows,
        updated=first.updated + second.updated,
        deleted=first.deleted + second.deleted,
        inserted=first.inserted + second.inserted,
        bytes_read=first.bytes_read + second.bytes_read,
        bytes_written=first.bytes_written + second.bytes_written,
        notes=first.notes + second.notes,
        dry_run=first.dry_run,
    )
