"""One write from its announcement to its completion, or to its undoing (``BaseHoodieClient``, ``TransactionManager``).

The table lock is held around start and completion only. In between other writers may commit; the conflict check under
the lock decides whether the write's view of the table still holds. After a conflict the write is retried against the
table's new state.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from lakedex._version import __version__
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.comments import with_docs
from lakedex.commit.idempotency import DuplicateBatchError, next_batches, require_new, result_of
from lakedex.commit.write_preconditions import require_plain_types, require_settings
from lakedex.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    LakedexError,
    UnsupportedFeatureError,
)
from lakedex.index.definitions import replace_definitions
from lakedex.index.protocol import CommitContext, Index, IndexUpdate, merge_records
from lakedex.index.registry import INDEXES, updates_of_commit
from lakedex.index.written_file import Collector, WrittenFile, listing_of, stats_by_partition
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import Lock, table_lock
from lakedex.io.retries import clock_of
from lakedex.layout.contained_files import delete_temp
from lakedex.layout.names import join_path
from lakedex.maintenance.compaction_plan import CLUSTERING_CALLS, COMPACTION_CALLS, groups_in_service
from lakedex.maintenance.metadata_rebuild import disable_partitions, needs_repair, repair_metadata
from lakedex.maintenance.recovery import recover
from lakedex.maintenance.schedule import run_services
from lakedex.maintenance.undo_write import remove_unaccepted, roll_back
from lakedex.metadata.records import (
    FILES,
    PARTITION_STATS,
)
from lakedex.metadata.store import DeltaCommit
from lakedex.metadata.writer import LogWritten, Updates, write_delta_commit
from lakedex.options import WriteOptions
from lakedex.parallel import overlapped
from lakedex.progress import reported_step
from lakedex.reports import WriteResult
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import (
    WRITE_ACTIONS,
    complete,
    create_inflight,
    create_requested,
    remove_file,
    remove_pending,
    require_inflight,
)
from lakedex.timeline.commit_metadata import CommitMetadata, encode_commit_metadata, encode_requested_replace
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import Instant, InstantClock, State, instant_to_epoch_ms
from lakedex.types import Operation, TableType

__all__ = [
    "LOOKING_MS",
    "PendingCommit",
    "Transaction",
    "WriteContext",
    "run_with_retries",
]


LOOKING_MS = 2_000
"""Time in which a writer of Hudi's that has taken an instant looks for completed commits."""


@dataclass(slots=True)
class WriteContext:
    """One call of a write, over all of its attempts.

    Attributes:
        notes: remarks for the user, in order; each step adds its own.
        started: when the call began, by ``time.perf_counter``.
        phases: seconds of each phase so far, those of all attempts together.
    """

    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    phases: dict[str, float] = field(default_factory=dict)

    @classmethod
    def begin(cls, options: WriteOptions) -> WriteContext:
        """The context of a call with these options, whose notes come first."""
        return cls(list(options.notes))

    @property
    def seconds(self) -> float:
        """Time since the call began."""
        return time.perf_counter() - self.started

    @contextmanager
    def phase(self, name: str, text: str = "") -> Iterator[None]:
        """Count the time of the block; with ``text`` name it on a terminal if it takes long."""
        began = time.perf_counter()
        try:
            if text:
                with reported_step(text):
                    yield
            else:
                yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """A write that is about to be committed.

    Attributes:
        results: what the write stage did.
        schema: the table's columns from now on.
        collectors: what was collected of each file, by index.
        partitions_read: partitions whose content this write read or replaces as a whole, so that a commit that came to
            them in between is a conflict although it touched no file of ours; None stands for the whole table.
        replaced: file ids by partition that are gone from now on; None unless the operation is a replace commit.
        retired: columns that no live file holds any more from now on.
        renames: columns that are called otherwise from now on.
        comments: the columns' comments from now on; None for those that the table has.
        extra: entries of the commit's extra metadata.
    """

    results: Sequence[WrittenFile]
    schema: pa.Schema
    collectors: Mapping[str, Collector]
    partitions_read: frozenset[str] | None = frozenset()
    replaced: Mapping[str, tuple[str, ...]] | None = None
    retired: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    comments: Mapping[str, str] | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_groups(self) -> frozenset[tuple[str, str]]:
        """(partition, file id) of the groups that were there and are changed, rewritten or replaced."""
        changed = {(result.partition, result.file_id) for result in self.results if result.log is not None}
        return self.gone | frozenset(changed)

    @property
    def gone(self) -> frozenset[tuple[str, str]]:
        """Those of them whose present files do not count any more."""
        rewritten = {(result.partition, result.file_id) for result in self.results if result.previous is not None}
        replaced = {(partition, file_id) for partition, ids in (self.replaced or {}).items() for file_id in ids}
        return frozenset(rewritten | replaced)

    def tied_to(self, compaction: str, version: int) -> frozenset[tuple[str, str]]:
        """Those of them whose new files would be lost if a compaction with this instant goes beside the write.

        From version 8 on a log file finds its slice by the time when it completes, before that by the base instant in
        its name, which may be that of a compaction. A deleted key that comes back needs the base file that has it.
        """
        logs = {
            (result.partition, result.file_id)
            for result in self.results
            if result.log is not None and (result.inserted or (version < 8 and result.log.base_instant != compaction))
        }
        return self.gone | frozenset(logs)

    @property
    def partitions(self) -> frozenset[str]:
        """Partitions whose files change."""
        return frozenset({result.partition for result in self.results} | set(self.replaced or {}))


@dataclass(slots=True)
class Transaction:
    """A write in progress.

    Attributes:
        ctx: the write's context; notes for the user are added to it.
        base: the table as the write has seen it before.
        snapshot: the table as this attempt reads it.
        committed: the table as this write leaves it; None until it is complete.
        _now: the table as it was before this write, when it was committed.
        instant: the write's instant.
        has_bucket_index: whether the table has a folder of Hudi's consistent hashing index.
        index_costs: index → bytes that it wrote beside the metadata table, and the seconds that it took.
        planned: the requested table service that this transaction carries out, whose plan outlives a failure; None
            for a write that announces itself.
    """

    handle: TableContext
    options: WriteOptions
    operation: Operation
    ctx: WriteContext
    base: Snapshot
    snapshot: Snapshot = field(init=False)
    committed: Snapshot | None = field(init=False, default=None)
    instant: str = field(init=False)
    planned: Instant | None = None
    has_bucket_index: bool = field(init=False, default=False)
    index_costs: dict[str, tuple[int, float]] = field(init=False, default_factory=dict)
    _now: Snapshot = field(init=False)
    _pending: Instant | None = field(init=False, default=None)
    _clock: InstantClock = field(init=False)
    _heartbeat: Heartbeat | None = field(init=False, default=None)
    _indexing: bool = field(init=False, default=False)
    _metadata_started: bool = field(init=False, default=False)

    @property
    def _action(self) -> str:
        """The action while it is pending."""
        return self.operation.action(self.snapshot.config.table_type) if self.planned is None else self.planned.action

    def begin(self) -> None:
        """Undo dead writes, take an instant and announce the write."""
        try:
            with table_lock(self.handle.files, self.options.lock) as lock:
                self.snapshot = self._recovered(lock, self.base)
                needs = needs_repair(self.snapshot, self.options)
                if not needs:
                    self._announce(lock)
            if needs:
                self.ctx.notes += repair_metadata(self.handle, self.options)
                with table_lock(self.handle.files, self.options.lock) as lock:
                    self.snapshot = self._recovered(lock, self.snapshot)
                    self._announce(lock)
        except BaseException:
            self._withdraw()
            raise

    def _recovered(self, lock: Lock, base: Snapshot) -> Snapshot:
        """The table as it is now, without leftovers of dead writers."""
        base.metadata.recheck()
        recovered = recover(self.handle, self.options.heartbeat, lock, base)
        snapshot, self._clock = recovered.snapshot, recovered.clock
        self.has_bucket_index = recovered.has_bucket_index
        if recovered.undone:
            self.ctx.notes.append(f"rolled back the failed write {', '.join(recovered.undone)}")
        require_settings(snapshot.config, self.options.table)
        require_plain_types(snapshot)
        if snapshot.schema is not None and snapshot.evolves_on_read:
            raise UnsupportedFeatureError(
                f"{self.handle.files}: its schema was changed under Hudi's schema-on-read "
                "(hoodie.schema.on.read.enable), whose column ids lakedex does not carry on; write it with Hudi",
                feature="schema on read",
            )
        return snapshot

    def _announce(self, lock: Lock) -> None:
        """Take an instant and begin the action; the lock is released then."""
        handle, snapshot = self.handle, self.snapshot
        interval = self.options.heartbeat.interval_ms
        self.instant = self._next_time(snapshot) if self.planned is None else self.planned.requested
        # Before the heartbeat: that of another process that runs the plan is the same file.
        if self.planned and snapshot.timeline.state_of(self.instant, self._action) is not State.REQUESTED:
            raise self._conflict("was begun or removed by another process, and so the plan", self.instant)
        self._heartbeat = Heartbeat(handle.files, self.instant, interval)
        self._at_once(self._heartbeat.start, lock.check)
        if self.planned is not None:
            self._pending = create_inflight(snapshot.timeline, self.planned, is_new=True)
            return
        # Set first: a call that fails may have taken effect all the same.
        action = self._action
        self._pending = Instant(self.instant, action, State.REQUESTED, None, "")
        # Java reads a plan out of every pending replace commit, to see whether it is a clustering.
        named = self.operation.value if self.operation is Operation.DELETE_PARTITION else None
        body = encode_requested_replace(named) if action == "replacecommit" else b""
        try:
            requested = create_requested(snapshot.timeline, self.instant, action, body)
        except CommitConflictError:
            self._pending = None  # It is somebody else's, who does not take our lock.
            raise
        begin = partial(create_inflight, snapshot.timeline, requested, is_new=True)
        self._pending = self._at_once(lock.release, begin)[1]

    def _at_once(self, *calls: Callable[[], Any]) -> list[Any]:
        """The results of calls that do not depend on each other."""
        return overlapped(calls, at_once=self.handle.files.has_latency)

    def _withdraw(self) -> None:
        """Take a failed announcement back; nothing was written for it yet."""
        if self._pending is not None:
            with contextlib.suppress(LakedexError, OSError):
                self._remove_pending(self._pending)
        self._stop_heartbeat()

    def _remove_pending(self, pending: Instant) -> None:
        """Take the announcement back; a plan that was there before stays requested."""
        if self.planned is None:
            remove_pending(self.snapshot.timeline, pending)
        else:
            remove_file(self.snapshot.timeline, pending.file_name)

    def _stop_heartbeat(self, *, keeps_file: bool = False) -> None:
        if self._heartbeat is not None:
            with contextlib.suppress(OSError):  # What stays of it is removed by a later writer.
                self._heartbeat.stop(keeps_file=keeps_file)

    def _next_time(self, snapshot: Snapshot) -> str:
        return self._clock.next(snapshot.last_time)

    def commit(self, change: PendingCommit) -> list[LogWritten]:
        """Make the write visible.

        Raises:
            CommitConflictError: another writer committed to what this write read.
        """
        if self.handle.engine.repeats_tasks:
            remove_unaccepted(self.snapshot, self.instant, change.results)
        logs: list[LogWritten] = []
        self._let_others_look()
        try:
            with table_lock(self.handle.files, self.options.lock) as lock:
                logs = self._commit_locked(lock, change)
                if not self.handle.engine.repeats_tasks:
                    self._at_once(lock.release, self._finish)
            if self.handle.engine.repeats_tasks:
                # A late attempt may have found the write still in flight.
                remove_unaccepted(self.snapshot, self.instant, change.results)
                self._finish()
        except Exception as error:
            if self.committed is None:
                raise
            self._stop_heartbeat()
            self.ctx.notes.append(f"committed, but not all temporary files could be removed ({error})")
        return logs

    def _let_others_look(self) -> None:
        """Wait for writers of Hudi's that took an instant just before this write.

        They look for completed commits some tenths of a second after that. A commit that completes in between is no
        conflict to them, though they build on its files, under their smaller instant: no reader would see those.
        """
        zone, now = self.snapshot.config.timezone, time.time_ns() // 1_000_000
        wait = 0
        for one in self.snapshot.timeline.pending(WRITE_ACTIONS):
            if one.state is State.REQUESTED and one.requested < self.instant:
                with contextlib.suppress(InvalidInputError):  # Its name is no time.
                    age = now - instant_to_epoch_ms(one.requested, zone)
                    wait = max(wait, LOOKING_MS - age if abs(age) < LOOKING_MS else 0)
        if wait:
            clock_of(self.handle.files.storage).sleep(wait / 1000)

    def _commit_locked(self, lock: Lock, change: PendingCommit) -> list[LogWritten]:
        handle = self.handle
        self.snapshot.metadata.recheck()
        now = self.snapshot.refreshed(is_locked=True)
        require_writable(now.config)
        # First: a batch that another writer has done is no conflict with it.
        batches = next_batches(now, self.options.txn, self.instant)
        self._check_conflicts(now, change)
        now = self._now = self._without_damage(now)
        updates = self._index(now, change)
        lock.check()
        for update in updates:
            replace_definitions(handle.files.storage, update.definitions)
        delta, logs = self._write_metadata(now, merge_records(listing_of(change.results), updates))
        inflight = Instant(self.instant, self._action, State.INFLIGHT, None, "")
        self._at_once(lock.check, partial(require_inflight, now.timeline, inflight))
        comments = now.comments if change.comments is None else change.comments
        body = encode_commit_metadata(
            CommitMetadata(
                operation=self.operation.value,
                write_stats=stats_by_partition(result.stat for result in change.results),
                extra={
                    "schema": json.dumps(with_docs(arrow_to_avro(change.schema, now.config.name), comments)),
                    "lakedex.version": __version__,
                    **batches,
                    **change.extra,
                },
                replaced=change.replaced,
            ),
            now.timeline.layout,
        )
        # The lock keeps other instants away, and the clock goes on from the delta commit's time.
        done = complete(now.timeline, inflight, self._next_time(now), body, is_new=True)
        rewritten = any(update.definitions or update.definitions_after for update in updates)
        self.committed = now.with_commit(done, body, delta, changes_documents=rewritten)
        handle.last = self.committed
        for update in updates:
            replace_definitions(handle.files.storage, update.definitions_after)
        return logs

    def _index(self, now: Snapshot, change: PendingCommit) -> list[IndexUpdate]:
        """The records and files that each index adds to the commit."""
        ctx = CommitContext(
            snapshot=now,
            before=self.snapshot.schema,
            schema=change.schema,
            instant=self.instant,
            collectors=change.collectors,
            run=self.handle.engine.run,
            gone=change.gone,
            retired=change.retired,
            renames=change.renames,
        )
        self._indexing = True
        return [self._count(index, update) for index, update in updates_of_commit(ctx, change.results, "commit")]

    def _count(self, index: Index, update: IndexUpdate) -> IndexUpdate:
        size, seconds = self.index_costs.get(index.name, (0, 0.0))
        self.index_costs[index.name] = size + update.bytes_written, seconds + update.seconds
        self.ctx.notes += update.notes
        return update

    def upkeep(self) -> None:
        """Let indexes do small upkeep. Call without the lock, once, after the commit is complete."""
        for index in INDEXES:
            self._count(index, index.after_commit(self.handle, self.instant, self._now))

    def _without_damage(self, now: Snapshot) -> Snapshot:
        """The table without metadata partitions that lost files since this write began."""
        lost = now.lost_metadata
        if not lost:
            return now
        disable_partitions(self.handle, now.config, tuple(lost))
        self.ctx.notes += [f"{name} was taken out of the table: {wrong}" for name, wrong in lost.items()]
        return self.handle.snapshot()

    def _write_metadata(self, now: Snapshot, updates: Updates) -> tuple[DeltaCommit | None, list[LogWritten]]:
        if not now.metadata.has(FILES.name):
            return None, []
        self._metadata_started = True
        floor = now.metadata.timeline.last_time
        return write_delta_commit(
            now.metadata,
            self.instant,
            updates,
            lambda: self._clock.next(max(floor, now.timeline.last_time, self.instant)),
            self.handle.engine.run,
        )

    @property
    def _keeps_rows(self) -> bool:
        """Whether the rows of each partition stay what they are, so that older bounds of a partition hold too."""
        return self.operation is Operation.CLUSTER

    def require_unplanned(self, groups: Collection[tuple[str, str]], now: Snapshot | None = None) -> None:
        """Refuse to touch file groups of a pending clustering, whose rows it would bring back.

        Raises:
            CommitConflictError: names the clustering and the groups (Hudi's ``SparkRejectUpdateStrategy``).
        """
        snapshot = self.snapshot if now is None else now
        for instant, plan in snapshot.timeline.pending_clusterings().items():
            both = plan.file_groups & set(groups)
            if both and instant.requested != self.instant:
                raise CommitConflictError(
                    f"{self.handle.files}: the pending clustering {instant.requested} is to rewrite file group "
                    f"{join_path(*min(both))}{' and others' if len(both) > 1 else ''}, which {self.instant} touches; "
                    f"nothing was written. maintenance.cluster(instant='{instant.requested}') runs the plan, "
                    f"maintenance.rollback('{instant.requested}') removes it; run the write again then",
                    ours=self.instant,
                    theirs=instant.requested,
                    file_groups=both,
                    retryable=True,
                )

    def _check_conflicts(self, now: Snapshot, change: PendingCommit) -> None:
        """``SimpleConcurrentFileWritesConflictResolutionStrategy``, and by partition where this write relied on one."""
        if self._lost(now):
            raise self._conflict("was rolled back by another writer that took it for dead", "")
        for instant in self.snapshot.timeline.completed(WRITE_ACTIONS):
            if not now.timeline.is_committed(instant.requested):
                raise self._conflict("was rolled back, and its rows may have been read by", instant.requested)
        ours = change.file_groups
        self.require_unplanned(ours, now)
        for instant in now.timeline.completed(WRITE_ACTIONS):
            if self.snapshot.timeline.is_completed(instant.requested):
                continue
            theirs = now.timeline.commit_metadata(instant).touched_file_groups()
            is_compaction = instant.action == "commit" and now.config.table_type == TableType.MERGE_ON_READ
            both = frozenset(
                (change.tied_to(instant.requested, now.config.version) if is_compaction else ours) & theirs
            )
            if is_compaction and not both:
                self._check_partition_stats(now, change.partitions, instant, theirs)
                continue  # It changes no row.
            if both:
                raise self._conflict("rewrote the same file groups as", instant.requested, both)
            if change.partitions_read is None:
                raise self._conflict(
                    "completed while the whole table was being looked up or rewritten by", instant.requested
                )
            shared = change.partitions_read & {partition for partition, _ in theirs}
            if shared:
                what = f"wrote to {_some(shared)}, whose files this write had looked up, before"
                raise self._conflict(what, instant.requested)
            if not now.schema.equals(self.snapshot.schema):
                raise self._conflict("changed the table's schema before", instant.requested)
            if instant.requested > self.instant and not change.schema.equals(now.schema):
                # The table's schema is that of the largest instant, which need not be the last one to complete.
                what = "has a later instant and completed without the schema change of"
                raise self._conflict(what, instant.requested)
            self._check_partition_stats(now, change.partitions, instant, theirs)
        self._check_plans(now, change)
        self._check_index_builds(now)

    def _check_plans(self, now: Snapshot, change: PendingCommit) -> None:
        """A table service that was planned since the write began does not know its files.

        From version 8 on a log file belongs to the slice that the compaction opens, as it completes after the plan.
        """
        if now.config.table_type != TableType.MERGE_ON_READ:
            return
        known = {instant.requested for instant in self.snapshot.timeline.pending()}
        for group, instant in groups_in_service(now.timeline).items():
            if instant.requested == self.instant:
                continue  # The plan that this transaction carries out.
            tied = change.tied_to(instant.requested, now.config.version)
            if group in tied and (instant.requested not in known or group in change.gone):
                what = f"is a pending {instant.action} of file groups that were changed by"
                calls = COMPACTION_CALLS if instant.action == "compaction" else CLUSTERING_CALLS
                remedy = calls.format(instant.requested) if instant.requested in known else "run the write again"
                raise self._conflict(what, instant.requested, frozenset({group}), remedy)

    def _check_partition_stats(
        self, now: Snapshot, ours: frozenset[str], other: Instant, theirs: frozenset[tuple[str, str]]
    ) -> None:
        """A later instant that completed first has the last word on a partition's stats, and does not know our files.

        Every reader takes the log files of the metadata table in the order of their instants.
        """
        own = now.metadata.timeline
        if other.requested < self.instant or not now.metadata.has(PARTITION_STATS.name) or self._keeps_rows:
            return
        known = own.is_completed(other.requested)
        if known and PARTITION_STATS.name not in own.commit_metadata(other.requested).write_stats:
            return
        shared = ours & {partition for partition, _ in theirs}
        if shared:
            what = f"has a later instant and already wrote the partition stats of {_some(shared)} before"
            raise self._conflict(what, other.requested)

    def _check_index_builds(self, now: Snapshot) -> None:
        """The same for an index build, which has no instant but the one on the metadata timeline."""
        if self._keeps_rows:
            return
        for instant in now.metadata.timeline.completed({"deltacommit"}):
            if instant.requested < self.instant or now.timeline.contains(instant.requested):
                continue
            if PARTITION_STATS.name in now.metadata.timeline.commit_metadata(instant).write_stats:
                raise self._conflict("of an index build wrote the partition stats before", instant.requested)

    def _lost(self, now: Snapshot) -> bool:
        mine = [i for i in now.timeline.pending({self._action}) if i.requested == self.instant]
        return not mine or now.timeline.pending_rollback_of(self.instant) is not None

    def _conflict(
        self,
        what: str,
        theirs: str,
        groups: frozenset[tuple[str, str]] = frozenset(),
        remedy: str = "run the write again",
    ) -> CommitConflictError:
        who = f"commit {theirs}" if theirs else "the write"
        return CommitConflictError(
            f"{self.handle.files}: {who} {what} {self.instant}; nothing was written, {remedy}",
            ours=self.instant,
            theirs=theirs or None,
            file_groups=groups,
            retryable=True,
        )

    def _finish(self) -> None:
        """Remove the temporary files, and the sign of life."""
        beat = [] if self._heartbeat is None else [self._heartbeat.stop]
        self._at_once(partial(delete_temp, self.handle.files, self.instant), *beat)

    def cancel(self) -> None:
        """End a write that has nothing to write. It stays pending, so that others undo it, until its files are gone."""
        remove_unaccepted(self.snapshot, self.instant, [])
        for index in INDEXES if self._indexing else ():
            index.discard(self.snapshot, self.instant)
        delete_temp(self.handle.files, self.instant)
        if self._pending is not None:
            self._remove_pending(self._pending)
        self._finish()

    def abort(self, error: BaseException) -> CommitConflictError | None:
        """Undo the write after ``error``. What cannot be undone now is undone by the next writer.

        Returns:
            The conflict with another writer that was the reason: ``error``, or that the write was rolled back and its
            files went away under it.
        """
        lost, is_left = False, not isinstance(error, CommitStateUnknownError)
        if is_left:
            with (
                contextlib.suppress(LakedexError, OSError),
                table_lock(self.handle.files, self.options.lock),
            ):
                lost, is_left = self._undo(), False
        self._stop_heartbeat(keeps_file=is_left)
        if isinstance(error, CommitConflictError):
            return error
        what = "was rolled back by another writer that took it for dead"
        return self._conflict(what, "") if lost else None

    def _undo(self) -> bool:
        """Remove what this write made; whether another writer did so already."""
        now = self.snapshot.refreshed()
        mine = [i for i in now.timeline.pending({self._action}) if i.requested == self.instant]
        if mine and self._metadata_started:
            roll_back(now, mine[0], self._clock, keeps_plan=self.planned is not None)
        elif mine:
            self.cancel()
        elif not now.timeline.is_completed(self.instant):
            # The other one may have come before our last files.
            remove_unaccepted(self.snapshot, self.instant, [])
            self._finish()
            return True
        return False


def _some(partitions: Iterable[str]) -> str:
    return ", ".join(sorted(path or "(the table)" for path in partitions)[:3])


def run_with_retries(
    handle: TableContext,
    options: WriteOptions,
    operation: Operation,
    attempt: Callable[[Transaction], WriteResult],
    ctx: WriteContext,
    base: Snapshot,
    planned: Instant | None = None,
) -> WriteResult:
    """Run ``attempt`` in a transaction, again after a conflict (``hoodie.write.num.retries.on.conflict.failures``).

    Args:
        handle: the table.
        options: of the write.
        operation: Hudi's name of the action.
        attempt: does the work and commits it.
        ctx: the write's context; ``attempt`` gives its own notes in its result.
        base: the table as the write has seen it so far.
        planned: the requested table service that the transaction carries out; None for a write.
    """
    ctx.phases["prepare rows"] = ctx.seconds
    for number in range(options.retries + 1):
        transaction = Transaction(handle, options, operation, ctx, base, planned)
        try:
            with ctx.phase("begin"):
                transaction.begin()
        except CommitConflictError as error:  # It has taken back what it announced.
            if not error.retryable or number == options.retries:
                raise
            ctx.notes.append("the table lock was lost: began again")
            continue
        base = transaction.snapshot
        try:
            if options.txn is not None:
                require_new(base, options.txn)
            result = attempt(transaction)
        except DuplicateBatchError as done:
            transaction.abort(done)
            return result_of(done, ctx.notes, operation)
        except Exception as error:
            conflict = transaction.abort(error)
            if conflict is None:
                raise
            if not conflict.retryable or number == options.retries:
                raise conflict from (None if conflict is error else error)
            ctx.notes.append(f"conflict with {conflict.theirs or 'another writer'}: tagged and wrote again")
            continue
        except BaseException as error:
            transaction.abort(error)
            raise
        ctx.notes += result.notes
        if transaction.committed is not None:
            with ctx.phase("services"):
                transaction.upkeep()
                ctx.notes += run_services(handle, replace(options, txn=None), transaction.committed)
        bitmap_bytes, bitmap_seconds = transaction.index_costs.get("bitmap", (0, 0.0))
        return replace(
            result,
            bitmap_bytes=bitmap_bytes,
            bitmap_seconds=bitmap_seconds,
            notes=tuple(ctx.notes),
            phases=dict(ctx.phases),
            seconds=ctx.seconds,
        )
    raise AssertionError("unreachable")
