"""Plan clusterings: choose the file groups to rewrite, put the plan on the timeline, and make a plan ready to be run.

As in ``PartitionAwareClusteringPlanStrategy``: of each partition the file slices below
``hoodie.clustering.plan.strategy.small.file.limit``, the largest first, in groups of up to ``…max.bytes.per.group``,
and up to ``…max.num.groups`` of these. File groups of a pending clustering or compaction are left out, and so is a
group that would come out as it went in: as many files as before, without an order.

Writes keep off the file groups of a plan while it is pending (:mod:`lakedex.commit.transaction`); a plan is never taken
back by itself, as with Hudi.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakedex.errors import CommitConflictError, InvalidInputError
from lakedex.io.locks import table_lock
from lakedex.layout.file_slice import FileSlice
from lakedex.maintenance.compaction_plan import groups_in_service
from lakedex.maintenance.recovery import recover, recovered
from lakedex.maintenance.undo_write import HeartbeatPolicy, roll_back
from lakedex.options import WriteOptions
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import create_requested
from lakedex.timeline.clustering_plan import (
    LAYOUT_STRATEGY,
    SORT_COLUMNS,
    TARGET_FILE_BYTES,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    encode_clustering_plan,
)
from lakedex.timeline.instant import Instant, State

__all__ = [
    "ClusteringRequest",
    "pending_clustering",
    "plan_clustering",
    "ready_clustering",
    "require_not_run",
    "schedule_clustering",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringRequest:
    """The request for a clustering.

    Attributes:
        columns: the order of the rows; none keeps them as they lie.
        curve: order along a z-order curve rather than by one column after the other.
        file_bytes: about the size of the new files on disk.
        partitions: partition paths; None for all.
        groups: (partition, file id) of the only groups to choose from; None for all.
    """

    columns: tuple[str, ...] = ()
    curve: bool = False
    file_bytes: int
    partitions: tuple[str, ...] | None = None
    groups: frozenset[tuple[str, str]] | None = None


def plan_clustering(snapshot: Snapshot, request: ClusteringRequest, options: WriteOptions) -> ClusteringPlan:
    """Choose the file groups to rewrite; a plan without groups if there are none."""
    limits = options.clustering
    busy = groups_in_service(snapshot.timeline)
    by_partition: dict[str, list[FileSlice]] = {}
    for item in snapshot.slices(request.partitions):
        group = (item.partition, item.file_id)
        if item.size < limits.small_file_limit and group not in busy and group in (request.groups or {group}):
            by_partition.setdefault(item.partition, []).append(item)
    groups: list[ClusteringGroup] = []
    for found in by_partition.values():
        for slices in _packed(found, limits.max_group_bytes):
            outputs = max(1, math.ceil(sum(item.size for item in slices) / request.file_bytes))
            changes = request.columns or outputs < len(slices) or any(item.log_files for item in slices)
            if changes and len(groups) < limits.max_groups:
                groups.append(_group(slices, outputs))
    params = {TARGET_FILE_BYTES: str(request.file_bytes)}
    if request.columns:
        layout = "z-order" if request.curve else "linear"
        params |= {SORT_COLUMNS: ",".join(request.columns), LAYOUT_STRATEGY: layout}
    return ClusteringPlan(groups=tuple(groups), params=params)


def _packed(slices: Sequence[FileSlice], most: int) -> Iterator[list[FileSlice]]:
    """Slices in groups of up to ``most`` bytes, the largest first."""
    group: list[FileSlice] = []
    size = 0
    for item in sorted(slices, key=lambda one: (-one.size, one.file_id)):
        if group and size + item.size > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += item.size
    if group:
        yield group


def _group(slices: Sequence[FileSlice], outputs: int) -> ClusteringGroup:
    """Metrics as ``FileSliceMetricUtils`` names them; Java adds them up before it runs a plan."""
    logs = [log for item in slices for log in item.log_files]
    read, log_bytes = sum(item.size for item in slices), sum(log.size for log in logs)
    megabytes = float(read // (1024 * 1024))
    return ClusteringGroup(
        slices=tuple(
            ClusteringSlice(
                partition=item.partition,
                file_id=item.file_id,
                base=None if item.base_file is None else item.base_file.name,
                logs=tuple(log.name for log in item.log_files),
            )
            for item in slices
        ),
        outputs=outputs,
        metrics={
            "TOTAL_IO_READ_MB": megabytes,
            "TOTAL_IO_WRITE_MB": megabytes,
            "TOTAL_IO_MB": 2 * megabytes,
            "TOTAL_LOG_FILES": float(len(logs)),
            "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        },
    )


def schedule_clustering(
    handle: TableContext, options: WriteOptions, request: ClusteringRequest
) -> tuple[Instant, ClusteringPlan] | None:
    """Put a plan on the timeline; None if no file group is worth it.

    Raises:
        UnsupportedFeatureError: lakedex does not write this table.
        LockTimeoutError: another writer held the table's lock too long.
    """
    with table_lock(handle.files, options.lock) as lock:
        snapshot, clock = recovered(handle, options, lock)
        plan = plan_clustering(snapshot, request, options)
        if not plan.groups:
            return None
        # In layout 1 clustering is a replace commit in all states.
        action = "clustering" if snapshot.timeline.layout >= 2 else "replacecommit"
        when = clock.next(snapshot.last_time)
        lock.check()
        return create_requested(
            snapshot.timeline, when, action, encode_clustering_plan(plan, snapshot.files.base_path)
        ), plan


def pending_clustering(snapshot: Snapshot, instant: str) -> tuple[Instant, ClusteringPlan]:
    """A pending clustering and its plan.

    Raises:
        InvalidInputError: no clustering of this instant is pending; the message names those that are.
    """
    plans = snapshot.timeline.pending_clusterings()
    found = next(((one, plan) for one, plan in plans.items() if one.requested == instant), None)
    if found is None:
        known = ", ".join(one.requested for one in plans) or "none"
        raise InvalidInputError(f"{snapshot.files}: no clustering {instant} is pending; pending are: {known}")
    return found


def ready_clustering(handle: TableContext, options: WriteOptions, instant: str) -> tuple[Instant, ClusteringPlan]:
    """The requested plan of a pending clustering; what a process that died made of it is rolled back.

    Raises:
        InvalidInputError: no clustering of this instant is pending.
        CommitConflictError: a living process runs it.
    """
    with table_lock(handle.files, options.lock) as lock:
        done = recover(handle, options.heartbeat, lock)
        snapshot = done.snapshot
        found, plan = pending_clustering(snapshot, instant)
        if found.state is State.INFLIGHT:
            require_not_run(snapshot, found, options)
            roll_back(snapshot, found, done.clock, keeps_plan=True)
            found, plan = pending_clustering(snapshot.refreshed(), instant)
        return found, plan


def require_not_run(snapshot: Snapshot, found: Instant, options: WriteOptions) -> None:
    """Refuse to touch a pending clustering that a living process runs.

    Raises:
        CommitConflictError: names the clustering.
    """
    if found.state is State.INFLIGHT and not HeartbeatPolicy(options.heartbeat).is_expired_write(snapshot, found):
        raise CommitConflictError(
            f"{snapshot.files}: the clustering {found.requested} is under way in another process; wait for it",
            ours=None,
            theirs=found.requested,
            file_groups=(),
            retryable=True,
        )
