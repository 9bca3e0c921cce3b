"""Plan compactions of a merge-on-read table: which file groups, in which order, and when one is due.

As in ``HoodieCompactionPlanGenerator`` and ``LogFileSizeBasedCompactionStrategy``. A plan names the log files of each
group's newest slice. From version 8 on only those whose delta commit completed before the compaction's instant: every
other one belongs to the slice that the compaction opens, also that of a writer that has begun before and completes
after. In version 6 the name of a log file says to which slice it belongs, so nothing is planned while a write is under
way that has chosen its names already.

A group is in one pending plan at most: Hudi's file system views fail on two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lakedex.errors import CommitConflictError, CommitError, CorruptFileError, UnsupportedFeatureError
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice, LogFile
from lakedex.layout.names import join_path, parse_base_file_name, parse_log_file_name
from lakedex.options import CompactionOptions
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.timeline.instant import Instant, instant_to_epoch_ms
from lakedex.timeline.service_metadata import CompactionOperation, compaction_metrics

__all__ = [
    "BESIDE_SERVICE",
    "CLUSTERING_CALLS",
    "COMPACTION_CALLS",
    "busy_group",
    "compaction_due",
    "groups_in_service",
    "plan_operations",
    "planned_slices",
    "require_no_writers",
    "without_planned",
]


def groups_in_service(timeline: Timeline) -> dict[tuple[str, str], Instant]:
    """(partition, file id) of all groups in a pending compaction, log compaction or clustering, and its instant."""
    found: dict[tuple[str, str], Instant] = {}
    for instant in timeline.pending({"compaction", "logcompaction"}):
        with suppress(FileNotFoundError):  # It was taken back since the listing.
            plan = timeline.compaction_plan(instant)
            found.update(((operation.partition, operation.file_id), instant) for operation in plan)
    for instant, clustering in timeline.pending_clusterings().items():
        found.update(dict.fromkeys(clustering.file_groups, instant))
    return found


COMPACTION_CALLS = "maintenance.compact(instant={0!r}) runs it, maintenance.unschedule_compaction({0!r}) removes it"
"""How to go on beside a pending compaction; ``format`` takes its instant."""


CLUSTERING_CALLS = "maintenance.cluster(instant={0!r}) runs it, maintenance.rollback({0!r}) removes it"
"""The same of a pending clustering."""


BESIDE_SERVICE = "rewriting a file group beside its table service"
"""The feature that a write lacks if it has to rewrite a file group which a pending plan names."""


def busy_group(files: TableFiles, partition: str, file_id: str, service: str) -> UnsupportedFeatureError:
    """An error: a group has to be rewritten beside a pending table service of it."""
    return UnsupportedFeatureError(
        f"{files}: file group {file_id} in partition {partition!r} has to be rewritten, and the table service "
        f"{service} of it is pending; run that first",
        feature=BESIDE_SERVICE,
    )


def plan_operations(
    snapshot: Snapshot, requested: str, target_io: int, partitions: Sequence[str] | None = None
) -> tuple[CompactionOperation, ...]:
    """Groups to compact, those with the most bytes in log files first.

    Args:
        snapshot: the table.
        requested: instant of the compaction.
        target_io: MiB to read and write at most, but for the last group (``hoodie.compaction.target.io``).
        partitions: partition paths to look at; None for all.
    """
    in_service = groups_in_service(snapshot.timeline)
    found = []
    for item in snapshot.slices(partitions):
        logs = [log for log in item.log_files if _is_before(snapshot, log, requested)]
        if logs and (item.partition, item.file_id) not in in_service:
            found.append(_operation(item, logs))
    found.sort(key=lambda operation: -operation.metrics["TOTAL_LOG_FILES_SIZE"])
    taken, left = 0, float(target_io)
    for operation in found:
        if left <= 0 and taken:
            break
        left -= operation.metrics["TOTAL_IO_MB"]
        taken += 1
    return tuple(found[:taken])


def _is_before(snapshot: Snapshot, log: LogFile, requested: str) -> bool:
    """Whether a committed log file is in a slice that ends at an instant."""
    if not snapshot.goes_by_completion:
        return True
    # Archived commits have no completion time here; they completed before anything that is planned now.
    return (snapshot.timeline.completion_time(log.instant) or log.instant) < requested


def _operation(item: FileSlice, logs: Sequence[LogFile]) -> CompactionOperation:
    base = item.base_file
    return CompactionOperation(
        partition=item.partition,
        file_id=item.file_id,
        base_instant=item.base_instant,
        base=None if base is None else base.name,
        logs=tuple(log.name for log in logs),
        metrics=compaction_metrics(None if base is None else base.size, [log.size for log in logs]),
    )


def require_no_writers(snapshot: Snapshot) -> None:
    """Refuse to plan beside a write on a table of version 6, whose log files it may have named already.

    Raises:
        CommitConflictError: names the write.
    """
    timeline = snapshot.timeline
    writing = [instant for instant in timeline.pending(WRITE_ACTIONS) if not timeline.is_clustering(instant)]
    if writing and not snapshot.goes_by_completion:
        raise CommitConflictError(
            f"{snapshot.files}: {writing[0]} is under way, and in version 6 a compaction cannot be planned beside a "
            "write; nothing was changed, try again once it is done",
            ours=None,
            theirs=writing[0].requested,
            file_groups=frozenset(),
            retryable=True,
        )


def planned_slices(snapshot: Snapshot, instant: Instant, plan: Sequence[CompactionOperation]) -> list[FileSlice]:
    """The slices that a plan names, after checks.

    Raises:
        CorruptFileError: an operation names files of another group, or a group comes twice.
        CommitError: a file does not exist, or a log file of the slice is missing in the plan, so that its rows would be
            lost. The plan cannot be run.
    """
    source = f"{snapshot.timeline.path}/{instant.requested}.compaction.requested"
    partitions = sorted({operation.partition for operation in plan})
    listing = snapshot.listing(partitions)
    current = {(item.partition, item.file_id): item for item in snapshot.slices(partitions)}
    seen: set[tuple[str, str]] = set()
    slices = []
    for operation in plan:
        group = (operation.partition, operation.file_id)
        if group in seen:
            raise CorruptFileError(source, 0, "each file group once", f"{operation.file_id} twice")
        seen.add(group)
        item = _slice_of(operation, listing.get(operation.partition, {}), source)
        _require_all_logs(snapshot, item, current.get(group), instant.requested)
        slices.append(item)
    return slices


def _slice_of(operation: CompactionOperation, sizes: Mapping[str, int], source: str) -> FileSlice:
    names = [*operation.logs, *([] if operation.base is None else [operation.base])]
    missing = next((name for name in names if name not in sizes), None)
    if missing is not None:
        raise CommitError(
            f"{source} names {join_path(operation.partition, missing)}, which does not exist; the compaction cannot be "
            "run. maintenance.unschedule_compaction takes the plan back"
        )
    base = None
    if operation.base is not None:
        parsed = parse_base_file_name(operation.base)
        if parsed is None or parsed.file_id != operation.file_id:
            raise CorruptFileError(source, 0, f"a base file of the group {operation.file_id}", operation.base)
        base = BaseFile(operation.partition, operation.base, sizes[operation.base], operation.file_id, parsed.instant)
    logs = []
    for name in operation.logs:
        log = parse_log_file_name(name)
        if log is None or log.file_id != operation.file_id:
            raise CorruptFileError(source, 0, f"a log file of the group {operation.file_id}", name)
        logs.append((log.order, LogFile(operation.partition, name, sizes[name], log.instant)))
    ordered = tuple(log for _, log in sorted(logs, key=lambda found: found[0]))
    return FileSlice(operation.partition, operation.file_id, operation.base_instant, base, ordered)


def _require_all_logs(snapshot: Snapshot, item: FileSlice, now: FileSlice | None, requested: str) -> None:
    """A log file that is in the old slice and not in the plan is one that no reader would look at again."""
    if now is None or now.base_instant != item.base_instant:
        return
    if snapshot.goes_by_completion:
        due = {log.name for log in now.log_files if _is_before(snapshot, log, requested)}
    else:
        due = {log.name for log in now.log_files if log.instant == item.base_instant}
    lost = sorted(due - {log.name for log in item.log_files})
    if lost:
        raise CommitError(
            f"{snapshot.files}: the plan of the compaction {requested} leaves out "
            f"{join_path(item.partition, lost[0])}, whose rows would be lost; nothing was changed. Take it back "
            "(maintenance.unschedule_compaction) and compact again"
        )


def without_planned(snapshot: Snapshot, plan: Sequence[CompactionOperation]) -> Snapshot:
    """The table without the files that a compaction replaces: the slices that it opens, still without base files."""
    planned = {(operation.partition, operation.file_id): operation for operation in plan}
    slices = []
    for item in snapshot.slices():
        operation = planned.get((item.partition, item.file_id))
        if operation is not None and item.base_instant <= operation.base_instant:
            item = replace(
                item, base_file=None, log_files=tuple(log for log in item.log_files if log.name not in operation.logs)
            )
        if item.base_file is not None or item.log_files:
            slices.append(item)
    return snapshot.with_slices(slices)


def compaction_due(snapshot: Snapshot, options: CompactionOptions, now_ms: int) -> bool:
    """Whether a table has as many delta commits, or is as old, as ``hoodie.compact.inline.trigger.strategy`` asks.

    As in ``ScheduleCompactionActionExecutor.needCompact``.
    """
    timeline = snapshot.timeline
    deltas = timeline.completed({"deltacommit"})
    done = {i.requested for i in timeline.completed({"commit"})}
    planned = {i.requested for i in timeline.pending({"compaction"})}
    last = max(done | planned if options.trigger == "NUM_COMMITS_AFTER_LAST_REQUEST" else done, default=None)
    since = [i for i in deltas if last is None or snapshot.time_of(i) > last]
    if not since:
        return False
    enough = len(since) >= options.delta_commits
    begun = instant_to_epoch_ms(last or deltas[0].requested, snapshot.config.timezone)
    old = now_ms - begun >= options.delta_seconds * 1000
    return {
        "TIME_ELAPSED": old,
        "NUM_AND_TIME": enough and old,
        "NUM_OR_TIME": enough or old,
    }.get(options.trigger, enough)
