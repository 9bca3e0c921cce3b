"""Repair what validation finds: dead writes, a wrong metadata table, bitmap indexes with wrong or missing entries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakedex.display.blocks import Card, Notice, Notices, notes
from lakedex.index.protocol import CommitPolicy
from lakedex.index.registry import index_stats, table_indexes
from lakedex.io.locks import table_lock
from lakedex.maintenance.clean import finish_cleans
from lakedex.maintenance.index_lifecycle import refresh_index
from lakedex.maintenance.index_validation import validate_index
from lakedex.maintenance.metadata_rebuild import rebuild_metadata
from lakedex.maintenance.recovery import recover
from lakedex.maintenance.undo_write import HeartbeatPolicy
from lakedex.maintenance.validate_table import validate_table
from lakedex.options import WriteOptions
from lakedex.reports import Difference, IndexResult, RebuildResult, Report, findings
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.compatibility import require_writable
from lakedex.types import Progress

__all__ = ["RepairResult", "repair"]


NOT_REPAIRED = frozenset({"lost file", "stray file"})
"""Rows that are gone come back from a restore only; a file of no commit disturbs nobody, and may be a writer's."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RepairResult(Report):
    """The result of :meth:`lakedex.Maintenance.repair`.

    Attributes:
        table: the table's name.
        dry_run: whether nothing was changed.
        found: differences between the metadata and the files, before.
        dead_writes: pending writes whose writer died, which are rolled back.
        rebuilds_metadata: whether the metadata table is rebuilt.
        repaired_indexes: bitmap indexes with wrong entries, which are written again.
        stale_indexes: bitmap indexes that do not cover all files, which are refreshed.
        rebuilt: what the rebuild did; None without one.
        refreshed: what each refresh did.
        left: differences that are still there, or that no repair can take away.
        seconds: the whole call.
        notes: what else the user should know.
    """

    table: str
    dry_run: bool
    found: tuple[Difference, ...] = ()
    dead_writes: tuple[str, ...] = ()
    rebuilds_metadata: bool = False
    repaired_indexes: tuple[str, ...] = ()
    stale_indexes: tuple[str, ...] = ()
    rebuilt: RebuildResult | None = None
    refreshed: tuple[IndexResult, ...] = ()
    left: tuple[Difference, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """Steps of the repair, in their order."""
        steps = [f"roll back the dead write {instant}" for instant in self.dead_writes]
        if self.rebuilds_metadata:
            steps.append("rebuild the metadata table")
        steps += [f"write wrong entries of the index {name} again" for name in self.repaired_indexes]
        steps += [f"refresh the index {name}" for name in self.stale_indexes]
        return tuple(steps)

    @property
    def ok(self) -> bool:
        """Whether nothing is left."""
        return not self.left

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**Report.to_dict(self), "ok": self.ok, "steps": list(self.steps)}

    def card(self) -> Card:
        """The steps, and what they cannot repair."""
        what = "would be repaired" if self.dry_run else "repaired"
        head = f"{what if self.steps else 'nothing to repair'}; {self.seconds:.2f} s"
        steps = Notices([Notice(step, "step") for step in self.steps])
        left = replace(findings(self.left), title="not repaired" if self.left else "")
        return Card(f"table {self.table}", head, [steps, left, notes(self.notes)], "good" if self.ok else "bad")


def repair(
    handle: TableContext, options: WriteOptions, *, dry_run: bool, progress: Progress | None = None
) -> RepairResult:
    """Validate and repair a table; see :meth:`lakedex.Maintenance.repair`."""
    started = time.perf_counter()
    snapshot = handle.snapshot()
    require_writable(snapshot.config)
    live = _live_indexes(snapshot)
    found = validate_table(handle, progress=progress).differences
    of_bitmaps = tuple(name for name in live if any(one.index == name for one in found))
    of_metadata = any(one.index not in live and one.kind not in NOT_REPAIRED for one in found)
    plan = RepairResult(
        table=snapshot.config.name,
        dry_run=dry_run,
        found=found,
        dead_writes=_dead_writes(snapshot, options),
        rebuilds_metadata=of_metadata,
        repaired_indexes=of_bitmaps,
        stale_indexes=_stale(snapshot, [name for name in live if name not in of_bitmaps]),
        left=tuple(one for one in found if one.kind in NOT_REPAIRED),
        notes=options.notes,
        seconds=time.perf_counter() - started,
    )
    return plan if dry_run or not plan.steps else _repaired(handle, options, plan, started, progress)


def _repaired(
    handle: TableContext, options: WriteOptions, plan: RepairResult, started: float, progress: Progress | None
) -> RepairResult:
    finish_cleans(handle, options)
    with table_lock(handle.files, options.lock) as lock:
        undone = recover(handle, options.heartbeat, lock).undone
    rebuilt = rebuild_metadata(handle, options, progress) if plan.rebuilds_metadata else None
    for name in plan.repaired_indexes:
        validate_index(handle, options, name, repair=True, progress=progress)
    refreshed = [refresh_index(handle, options, name, progress=progress) for name in plan.stale_indexes]
    return RepairResult(
        table=plan.table,
        dry_run=False,
        found=plan.found,
        dead_writes=undone,
        rebuilds_metadata=plan.rebuilds_metadata,
        repaired_indexes=plan.repaired_indexes,
        stale_indexes=plan.stale_indexes,
        rebuilt=rebuilt,
        refreshed=tuple(refreshed),
        left=validate_table(handle, progress=progress).differences,
        notes=plan.notes,
        seconds=time.perf_counter() - started,
    )


def _live_indexes(snapshot: Snapshot) -> list[str]:
    """Bitmap indexes."""
    return [
        name
        for name, index in table_indexes(snapshot).items()
        if index is not None and index.commit_policy is CommitPolicy.BEST_EFFORT
    ]


def _stale(snapshot: Snapshot, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if index_stats(snapshot, name).files_uncovered)


def _dead_writes(snapshot: Snapshot, options: WriteOptions) -> tuple[str, ...]:
    expiry = HeartbeatPolicy(options.heartbeat)
    if options.heartbeat.failed_writes == "NEVER":
        return ()
    pending = snapshot.timeline.pending(WRITE_ACTIONS)
    writes = (instant for instant in pending if not snapshot.timeline.is_clustering(instant))
    return tuple(instant.requested for instant in writes if expiry.is_expired_write(snapshot, instant))
