"""Choose the files of old commits that no reader may need, and delete them.

The newest slice of each file group stays, and every slice that was current since the earliest commit to retain, for
running queries and time travel to retained commits (``CleanPlanner``, ``CleanerUtils.getEarliestCommitToRetain``).
A slice goes or stays as a whole, its log files with its base file. It stays if a savepoint has one of its files, if a
pending compaction is to merge it, and if it was current when the oldest pending write began. A replaced file group is
deleted completely once the commit that replaced it is older than the earliest one to retain.

The plan is written first, under the table lock. The files are deleted without the lock, the metadata table is updated
under the clean's own instant, and the clean completes (``CleanPlanActionExecutor``, ``CleanActionExecutor``). The next
clean, also one of Hudi, finishes a clean that died: every step is idempotent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakedex.codec.table_paths import last_part
from lakedex.display.blocks import ROWS, Bars, Card, Facts, notes
from lakedex.errors import CommitConflictError, CorruptFileError, InvalidInputError
from lakedex.index.protocol import RemovedFiles
from lakedex.io.liveness import Heartbeat, delete_heartbeat
from lakedex.io.locks import Lock, table_lock
from lakedex.io.storage import DELETED_AT_ONCE, TableFiles
from lakedex.layout.contained_files import delete_files, delete_partition, list_folder
from lakedex.layout.file_slice import DataFile, FileSlice
from lakedex.layout.names import PARTITION_METAFILE
from lakedex.maintenance.metadata_undo import records_of_removal, write_metadata
from lakedex.maintenance.recovery import recover
from lakedex.maintenance.undo_write import HeartbeatPolicy, remove_metadata_of, replace_metadata_timeline
from lakedex.options import CleanOptions, LockOptions, WriteOptions
from lakedex.reports import Report, counted
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS, Timeline, complete, create_inflight, create_requested, remove_pending
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import Instant, InstantClock, State, epoch_ms_to_instant
from lakedex.timeline.service_metadata import (
    SAVEPOINTED,
    CleanMetadata,
    CleanPlan,
    encode_clean_metadata,
    encode_clean_plan,
)
from lakedex.types import size_text

__all__ = [
    "CleanResult",
    "CleanRule",
    "CleanedPartition",
    "PlannedClean",
    "clean",
    "clean_after_write",
    "clean_rule",
    "finish_cleans",
    "last_clean",
    "plan_clean",
    "require_no_clean",
    "savepoint_times",
    "savepointed_files",
]


COMMITS, HOURS, VERSIONS = "KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"


_DEFAULTS = {COMMITS: 10, HOURS: 24, VERSIONS: 3}


_PENDING_WRITES = frozenset({*WRITE_ACTIONS, "clustering", "compaction", "logcompaction"})


@dataclass(frozen=True, slots=True)
class CleanRule:
    """A cleaning policy with its number of retained commits, hours or file versions."""

    policy: str
    keep: int

    def __str__(self) -> str:
        what = {COMMITS: "commits", HOURS: "hours", VERSIONS: "file versions"}[self.policy]
        return f"the last {self.keep} {what} kept"


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """A plan with its files."""

    plan: CleanPlan
    files: Mapping[str, Sequence[DataFile]]


def clean_rule(
    options: CleanOptions, commits: int | None = None, hours: int | None = None, versions: int | None = None
) -> CleanRule:
    """Rule from the arguments, else from the options; as in Hudi, a single number implies its policy.

    Raises:
        InvalidInputError: Several arguments are given, or one is below 1.
    """
    given = {policy: n for policy, n in ((COMMITS, commits), (HOURS, hours), (VERSIONS, versions)) if n is not None}
    if len(given) > 1:
        raise InvalidInputError("clean takes one of commits, hours and versions")
    for policy, keep in given.items():
        if type(keep) is not int or keep < 1:
            raise InvalidInputError(f"clean takes integers from 1 on, not {keep!r}")
        return CleanRule(policy, keep)
    set_up = {COMMITS: options.commits, HOURS: options.hours, VERSIONS: options.versions}
    numbers = {name: number for name, number in set_up.items() if number is not None}
    implied = next(iter(numbers)) if len(numbers) == 1 else COMMITS
    policy = implied if options.policy is None else options.policy
    return CleanRule(policy, numbers.get(policy, _DEFAULTS[policy]))


def plan_clean(snapshot: Snapshot, rule: CleanRule, now_ms: int, *, only_changed: bool) -> PlannedClean | None:
    """Plan a clean; None if there is nothing to delete.

    Args:
        snapshot: Newest state of the table.
        rule: Number of commits, hours or versions to retain.
        now_ms: Current time, epoch milliseconds.
        only_changed: Examine only partitions touched since the last clean
            (``hoodie.clean.incremental.enabled``).
    """
    timeline = snapshot.timeline
    earliest = _earliest(timeline, rule, now_ms)
    if earliest is None and rule.policy != VERSIONS:
        return None
    wanted = _changed_partitions(timeline, earliest) if only_changed and earliest is not None else None
    if wanted is not None and not wanted:
        return None
    needed = _needed_files(timeline)
    replaced = timeline.replaced_file_groups()
    pending = timeline.pending(_PENDING_WRITES)
    limits = _Limits(
        rule=rule,
        earliest=earliest.requested if earliest is not None else None,
        oldest_pending=min((instant.requested for instant in pending), default=None),
    )
    files: dict[str, list[DataFile]] = {}
    gone: list[str] = []
    listing = snapshot.listing(wanted)
    for partition, groups in snapshot.file_groups(listing).items():
        names = needed.get(partition, frozenset())
        found = [
            file
            for file_id, group in groups.items()
            for item in limits.removable(group, replaced.get((partition, file_id)))
            if names.isdisjoint(file.name for file in item.files)
            for file in item.files
        ]
        if not found:
            continue
        files[partition] = found
        left = {name for name in listing[partition] if not name.startswith(PARTITION_METAFILE)}
        left -= {file.name for file in found}
        if partition and not left and not pending:
            gone.append(partition)
    if not files:
        return None
    return PlannedClean(_plan(snapshot, rule, earliest, files, gone), files)


def _plan(
    snapshot: Snapshot,
    rule: CleanRule,
    earliest: Instant | None,
    files: Mapping[str, Sequence[DataFile]],
    gone: Sequence[str],
) -> CleanPlan:
    last = snapshot.timeline.last_completed
    saved = sorted(savepoint_times(snapshot.timeline))
    return CleanPlan(
        policy=rule.policy,
        files={
            partition: tuple(snapshot.files.path(file.relative_path) for file in found)
            for partition, found in files.items()
        },
        earliest=None if earliest is None else (earliest.requested, earliest.action),
        last_completed="" if last is None else last.requested,
        gone=tuple(gone),
        extra={SAVEPOINTED: ",".join(saved)} if saved else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Limits that decide which slices of a file group are deleted."""

    rule: CleanRule
    earliest: str | None
    oldest_pending: str | None

    def removable(self, versions: Sequence[FileSlice], replaced_at: str | None) -> Iterator[FileSlice]:
        """Slices that may be deleted, newest first."""
        if replaced_at is not None:
            bounds = [bound for bound in (self.earliest, self.oldest_pending) if bound is not None]
            if all(replaced_at < bound for bound in bounds):
                yield from versions
            return
        needed = 1 if self.earliest is not None else self.rule.keep
        for bound in (self.earliest, self.oldest_pending):
            if bound is not None:
                needed = max(needed, self._current_since(versions, bound))
        yield from versions[needed:]

    @staticmethod
    def _current_since(versions: Sequence[FileSlice], bound: str) -> int:
        """Number of slices that were current since ``bound``: the later ones and one before."""
        return sum(item.base_instant >= bound for item in versions) + 1


def _earliest(timeline: Timeline, rule: CleanRule, now_ms: int) -> Instant | None:
    """Earliest commit to retain; never later than the oldest pending write."""
    completed = timeline.completed(WRITE_ACTIONS)
    found: Instant | None = None
    if rule.policy == COMMITS and len(completed) > rule.keep:
        found = completed[len(completed) - rule.keep]
    elif rule.policy == HOURS:
        since = epoch_ms_to_instant(now_ms - rule.keep * 3_600_000, timeline.zone)
        found = next((instant for instant in completed if instant.requested >= since), None)
    pending = timeline.pending(_PENDING_WRITES)
    if found is not None and pending and found.requested > pending[0].requested:
        before = [instant for instant in completed if instant.requested < pending[0].requested]
        return before[-1] if before else None
    return found


def savepoint_times(timeline: Timeline) -> set[str]:
    """Commits that have a savepoint."""
    return {instant.requested for instant in timeline.completed({"savepoint"})}


def savepointed_files(timeline: Timeline) -> dict[str, frozenset[str]]:
    """Names of the files of all savepoints, by partition."""
    found: dict[str, set[str]] = {}
    for instant in timeline.completed({"savepoint"}):
        for partition, names in timeline.savepoint_metadata(instant).files.items():
            found.setdefault(partition, set()).update(names)
    return {partition: frozenset(names) for partition, names in found.items()}


def _needed_files(timeline: Timeline) -> dict[str, frozenset[str]]:
    """Names of the files of savepoints and of the plans of pending compactions, by partition.

    Raises:
        CorruptFileError: A plan cannot be read, so that nobody knows what it needs.
    """
    found = {partition: set(names) for partition, names in savepointed_files(timeline).items()}
    for pending in timeline.pending({"compaction"}):
        for operation in timeline.compaction_plan(pending):
            names = (*operation.logs, *(() if operation.base is None else (operation.base,)))
            found.setdefault(operation.partition, set()).update(names)
    return {partition: frozenset(names) for partition, names in found.items()}


def last_clean(timeline: Timeline) -> CleanMetadata | None:
    """Last completed clean; None if there is none."""
    cleans = timeline.completed({"clean"})
    return timeline.clean_metadata(cleans[-1]) if cleans else None


def _changed_partitions(timeline: Timeline, earliest: Instant) -> list[str] | None:
    """Partitions of commits that the last clean retained and this one does not; None means all.

    All partitions are examined without an earlier clean, after one by versions, if later commits were archived, and
    if a savepoint that retained files was deleted.
    """
    last = last_clean(timeline)
    if last is None or not last.earliest or not timeline.is_completed(last.earliest):
        return None
    saved = set(filter(None, last.extra.get(SAVEPOINTED, "").split(",")))
    if saved - savepoint_times(timeline):
        return None
    commits = [i for i in timeline.completed(WRITE_ACTIONS) if last.earliest <= i.requested < earliest.requested]
    return sorted(set(_touched(timeline, commits)))


def _touched(timeline: Timeline, commits: Iterable[Instant]) -> Iterator[str]:
    for instant in commits:
        commit = timeline.commit_metadata(instant)
        yield from commit.write_stats
        yield from commit.replaced or {}


_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPartition:
    """Files that a clean deletes from one partition, their bytes, and whether the partition becomes empty."""

    files: tuple[str, ...]
    bytes: int
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanResult(Report):
    """Result of a clean or of a dry run.

    Attributes:
        instant: Instant of the clean; None if there was nothing to delete, and for a dry run.
        dry_run: Whether nothing was deleted.
        policy: Hudi's name of the policy.
        kept: Description of the policy.
        earliest_retained: Earliest commit with retained files; None if versions were counted.
        partitions: Deleted files by partition path.
        seconds: Duration of the call.
        notes: Further remarks for the user.
    """

    instant: str | None = None
    dry_run: bool = False
    policy: str
    kept: str
    earliest_retained: str | None = None
    partitions: Mapping[str, CleanedPartition] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """Number of deleted files."""
        return sum(len(part.files) for part in self.partitions.values())

    @property
    def bytes_freed(self) -> int:
        """Size of the deleted files."""
        return sum(part.bytes for part in self.partitions.values())

    def card(self) -> Card:
        """Which files of which partitions, the largest first."""
        what = "would delete" if self.dry_run else "deleted"
        facts = [("policy", self.kept)]
        if self.earliest_retained:
            facts.append(("earliest commit retained", self.earliest_retained))
        largest = sorted(self.partitions.items(), key=lambda item: -item[1].bytes)
        bars = [
            (
                path or "(the table)",
                float(part.bytes),
                f"{counted(len(part.files), 'file')}, {size_text(part.bytes)}{', and the partition' * part.gone}",
            )
            for path, part in largest[:ROWS]
        ]
        title = f"clean {self.instant or ('(dry run)' if self.dry_run else '(nothing to delete)')}"
        head = f"{what} {counted(self.files, 'file')}, {size_text(self.bytes_freed)}, {self.seconds:.2f} s"
        return Card(title, head, [Facts(facts), Bars("partitions", bars, len(largest) - len(bars)), notes(self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {**Report.to_dict(self), "files": self.files, "bytes_freed": self.bytes_freed}


def clean(
    handle: TableContext,
    options: WriteOptions,
    *,
    dry_run: bool = False,
    commits: int | None = None,
    hours: int | None = None,
    versions: int | None = None,
) -> CleanResult:
    """Delete files of old commits; see :meth:`lakedex.Maintenance.clean`."""
    started = time.perf_counter()
    rule = clean_rule(options.clean, commits, hours, versions)
    if dry_run:
        snapshot = handle.snapshot()
        require_writable(snapshot.config)
        planned = plan_clean(snapshot, rule, handle.now_ms(), only_changed=False)
        return _result(rule, planned, None, None, started, dry_run=True, notes=options.notes)
    notes = [*options.notes, *finish_cleans(handle, options)]
    return _clean(handle, options, rule, started, notes, only_changed=False)


def clean_after_write(handle: TableContext, options: WriteOptions, seen: Snapshot) -> list[str] | None:
    """Clean after a commit if the options say so (``hoodie.clean.automatic``); return a report in words."""
    if not options.clean.after_write:
        return None
    started, rule = time.perf_counter(), clean_rule(options.clean)
    notes = finish_cleans(handle, options, seen)
    snapshot = handle.snapshot() if notes else seen
    if not _is_due(snapshot, options.clean.every) or snapshot.timeline.pending({"clean"}):
        return notes or None
    # Check without the lock first, as usually there is nothing to do.
    if plan_clean(snapshot, rule, handle.now_ms(), only_changed=True) is None:
        return notes or None
    done = _clean(handle, options, rule, started, [], only_changed=True)
    return [*notes, f"cleaned {done.files:,} old files, {size_text(done.bytes_freed)}"] if done.instant else notes


def _is_due(snapshot: Snapshot, every: int) -> bool:
    """Whether enough commits have completed since the last clean (``hoodie.clean.trigger.max.commits``)."""
    last = last_clean(snapshot.timeline) if every > 1 else None
    since = "" if last is None else last.last_completed
    return sum(instant.requested > since for instant in snapshot.timeline.completed(WRITE_ACTIONS)) >= every


def _clean(
    handle: TableContext,
    options: WriteOptions,
    rule: CleanRule,
    started: float,
    notes: list[str],
    *,
    only_changed: bool,
) -> CleanResult:
    beat: Heartbeat | None = None
    try:
        with table_lock(handle.files, options.lock) as lock:
            recovered = recover(handle, options.heartbeat, lock)
            require_no_clean(recovered.snapshot)
            planned = plan_clean(recovered.snapshot, rule, handle.now_ms(), only_changed=only_changed)
            if planned is None:
                return _result(rule, None, None, None, started, notes=notes)
            timeline = recovered.snapshot.timeline
            when = recovered.clock.next(recovered.snapshot.last_time)
            # Other writers finish this clean once its heartbeat stops.
            beat = Heartbeat(handle.files, when, options.heartbeat.interval_ms)
            beat.start()
            lock.check()
            requested = create_requested(timeline, when, "clean", encode_clean_plan(planned.plan))
            instant = create_inflight(timeline, requested, is_new=True)
            done = None
            if handle.files.has_latency and sum(map(len, planned.plan.files.values())) <= DELETED_AT_ONCE:
                # To take the lock again would last longer than the one request that deletes them.
                deleted = _deleted(handle.files, planned.plan)
                done = _finished(recovered.snapshot, recovered.clock, lock, instant, planned.plan, deleted)
        if done is None:
            done = _carry_out(handle, options.lock, instant, planned.plan)
    finally:
        if beat is not None:
            beat.stop()
    return _result(rule, planned, when, done, started, notes=notes)


def finish_cleans(handle: TableContext, options: WriteOptions, snapshot: Snapshot | None = None) -> list[str]:
    """Finish cleans of dead processes and return a report in words. Call without the table lock."""
    snapshot = handle.snapshot() if snapshot is None else snapshot
    notes = []
    for instant in snapshot.timeline.pending({"clean"}):
        if not HeartbeatPolicy(options.heartbeat).is_expired_write(snapshot, instant):
            continue
        require_writable(snapshot.config)
        try:
            plan = snapshot.timeline.clean_plan(instant.requested)
        except FileNotFoundError:
            continue  # Another process has finished it.
        except CorruptFileError:
            if snapshot.files.storage.size(f"{snapshot.timeline.path}/{instant.requested}.clean.requested"):
                raise
            remove_pending(snapshot.timeline, instant)  # Java died while writing the plan.
            continue
        _carry_out(handle, options.lock, instant, plan)
        delete_heartbeat(handle.files, instant.requested)
        notes.append(f"finished the clean {instant.requested}, whose process died")
    return notes


def require_no_clean(snapshot: Snapshot) -> None:
    """Refuse if a clean is pending, as it may delete files that the caller relies on.

    Raises:
        CommitConflictError: A clean is pending; the message names it.
    """
    pending = snapshot.timeline.pending({"clean"})
    if pending:
        raise CommitConflictError(
            f"{snapshot.files}: the clean {pending[0].requested} is under way; nothing was changed, try again once "
            "it is done",
            ours=None,
            theirs=pending[0].requested,
            file_groups=frozenset(),
            retryable=True,
        )


def _carry_out(handle: TableContext, options: LockOptions, instant: Instant, plan: CleanPlan) -> CleanMetadata | None:
    """Execute a plan, which may be partly done; None if another process has completed it."""
    if instant.state is State.REQUESTED:
        instant = create_inflight(handle.snapshot().timeline, instant)
    deleted = _deleted(handle.files, plan)
    with table_lock(handle.files, options) as lock:
        now = handle.snapshot(is_locked=True)
        if now.timeline.state_of(instant.requested, "clean") is not State.INFLIGHT:
            return None
        return _finished(now, handle.clock(now.config.timezone), lock, instant, plan, deleted)


@dataclass(frozen=True, slots=True)
class _Deleted:
    """Names of a plan's files by partition, which are gone, and when their deletion began."""

    names: dict[str, tuple[str, ...]]
    started: float


def _deleted(files: TableFiles, plan: CleanPlan) -> _Deleted:
    started = time.time()
    names = {path: tuple(map(last_part, paths)) for path, paths in plan.files.items()}
    delete_files(files, ((path, name) for path, own in names.items() for name in own), _THREADS)
    return _Deleted(names, started)


def _finished(
    now: Snapshot, clock: InstantClock, lock: Lock, instant: Instant, plan: CleanPlan, deleted: _Deleted
) -> CleanMetadata:
    """Complete an inflight clean, whose files are gone."""
    done = CleanMetadata(
        started=instant.requested,
        millis=int((time.time() - deleted.started) * 1000),
        policy=plan.policy,
        files=deleted.names,
        gone=_emptied(now, plan),
        earliest=plan.earliest[0] if plan.earliest is not None else "",
        last_completed=plan.last_completed,
        extra=plan.extra,
    )
    lock.check()
    _finish(now, clock, instant, done)
    return done


def _emptied(now: Snapshot, plan: CleanPlan) -> frozenset[str]:
    """Partitions of the plan with no files but the metafile, and without pending writes."""
    if now.timeline.pending(WRITE_ACTIONS):
        return frozenset()
    gone = set()
    for path in plan.gone:
        entries = list_folder(now.files, path) if path in plan.files and path else None
        if entries is not None and all(entry.name.startswith(PARTITION_METAFILE) for entry in entries):
            gone.add(path)
    return frozenset(gone)


def _finish(now: Snapshot, clock: InstantClock, instant: Instant, done: CleanMetadata) -> None:
    if now.metadata.timeline.contains(instant.requested):
        remove_metadata_of(now, instant.requested)  # From a clean that died after writing it.
        now = replace_metadata_timeline(now)
    removed = RemovedFiles(names=done.files, partitions=done.gone)
    updates = records_of_removal(now, removed, instant.requested)
    delta = write_metadata(now, instant.requested, updates, clock)
    for path in done.gone:
        delete_partition(now.files, path)
    body = encode_clean_metadata(done)
    # Its state was looked at under this lock.
    completed = complete(now.timeline, instant, clock.next(now.last_time), body, is_new=True)
    now.with_commit(completed, body, delta, changes_documents=False)


def _result(
    rule: CleanRule,
    planned: PlannedClean | None,
    instant: str | None,
    done: CleanMetadata | None,
    started: float,
    *,
    dry_run: bool = False,
    notes: Sequence[str] = (),
) -> CleanResult:
    plan = None if planned is None else planned.plan
    gone = set() if plan is None else set(plan.gone if done is None else done.gone)
    return CleanResult(
        instant=instant,
        dry_run=dry_run,
        policy=rule.policy,
        kept=str(rule),
        earliest_retained=plan.earliest[0] if plan is not None and plan.earliest is not None else None,
        partitions={
            path: CleanedPartition(
                files=tuple(file.name for file in files), bytes=sum(file.size for file in files), gone=path in gone
            )
            for path, files in sorted(planned.files.items())
        }
        if planned is not None
        else {},
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
    )
