"""Folding after a commit: the runs of many small commits become few, outside of the table lock.

Runs are listed first and the timeline after them: so a run's commit is on the timeline, or was rolled back, or was
archived, and a run whose commit is under way is left alone. Of two folds at once one gets to publish; what the other
wrote is removed by the next fold.

Where one of the runs alone speaks of current base files it stays as it is, and the manifest names the others as folded.

Runs keep what they say of current base files. Of older ones, which only a look back in time reads, a fold keeps
nothing: such a look scans.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakedex.index.bitmap.definitions import indexed_limits, read_bitmap_definitions
from lakedex.index.bitmap.folding import FOLD_AT, FoldShard, only_live, runs_to_fold, shards
from lakedex.index.bitmap.runs import Manifest, Run, RunFolder, delete_runs, list_runs, publish_manifest
from lakedex.metadata.handle import TableHandle
from lakedex.timeline.timeline import Timeline

__all__ = ["Folded", "fold_runs", "settled"]

DRIVER_BYTES = 16 * 1024 * 1024
"""Runs up to this size together are folded on the driver: a task takes longer to start."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What a fold did: runs that it took, bytes that it wrote, seconds."""

    runs: int = 0
    size: int = 0
    seconds: float = 0.0


def fold_runs(handle: TableHandle, instant: str) -> Folded:
    """Fold what is due.

    Args:
        handle: the table.
        instant: of the commit or build that folds: what it writes is called by it, so it may fold once.
    """
    started = time.perf_counter()
    storage, base = handle.storage, handle.base_path
    columns = indexed_limits(read_bitmap_definitions(storage, base))
    folder = list_runs(storage, base) if columns else None
    if folder is None or len(folder.runs) < FOLD_AT:
        return Folded()
    snapshot = handle.snapshot()
    taken = runs_to_fold(folder, settled(snapshot.timeline))
    if not taken:
        return Folded()
    live = {file.name for file in snapshot.base_files()}
    is_settled = settled(snapshot.timeline)
    left = [run for run in folder.runs if run not in taken and is_settled(run)]
    alone = only_live(storage, base, taken, live)
    if alone is not None:
        _publish(handle, folder, [run for run in taken if run != alone], [*left, alone])
        return Folded(len(taken) - 1, 0, time.perf_counter() - started)
    parts = shards(storage, base, taken, live, columns)
    targets = [_Target(shard, _output(taken, instant, number)) for number, shard in enumerate(parts)]
    if sum(run.size for run in taken) <= DRIVER_BYTES:
        written = [_fold(target) for target in targets]
    else:
        written = handle.engine.run(_fold, targets, f"lakedex {base}: folding {len(taken)} runs of bitmaps")
    _publish(handle, folder, taken, [*left, *(run for run in written if run.size)])
    return Folded(len(taken), sum(run.size for run in written), time.perf_counter() - started)


def _output(taken: list[Run], instant: str, number: int) -> Run:
    """The name of a fold's output: not earlier than what it puts together, and used by no other fold.

    Another write may have begun after the one that folds and have completed before it.
    """
    newest = max(run.instant for run in taken)
    return Run(instant, "fold", number) if newest <= instant else Run(newest, "fold", int(instant) * 1000 + number)


def settled(timeline: Timeline) -> Callable[[Run], bool]:
    """Whether the commit of a run is decided, by a timeline that was read after the runs were listed."""
    pending = {instant.requested for instant in timeline.pending()}
    last = max((instant.requested for instant in timeline.instants), default="")

    def is_settled(run: Run) -> bool:
        if run.origin != "commit" or timeline.is_committed(run.instant):
            return True
        return run.instant not in pending and run.instant <= last

    return is_settled


def _publish(handle: TableHandle, folder: RunFolder, taken: list[Run], runs: list[Run]) -> None:
    """Publish the runs that count now. Those that were left out come first: what was folded may mend what they say."""
    storage, base = handle.storage, handle.base_path
    gone = {run.name for run in taken}
    # What the fold before this one put together stays named until it is deleted: it must not count again.
    idle = [name for name in folder.idle if name.endswith(".hfile")]
    manifest = Manifest(
        number=folder.manifest.number + 1,
        runs=tuple(run.name for run in runs),
        folded=tuple(sorted({*gone, *idle})),
    )
    if publish_manifest(storage, base, manifest):
        delete_runs(storage, base, folder.idle)


@dataclass(frozen=True, slots=True)
class _Target:
    shard: FoldShard
    run: Run


def _fold(target: _Target) -> Run:
    return target.shard(target.run)
