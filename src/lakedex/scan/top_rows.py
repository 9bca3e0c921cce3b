"""``ORDER BY c LIMIT n``: which files can hold one of the first ``n`` rows, by the bounds of ``c``.

Files whose values all come at or before some value *t* hold ``n`` rows together: then no row after *t* is among the
first, and a file that has only such rows need not be read. Further columns of the order break ties only, so the first
one decides. Slices with log files count for nothing, since how many rows they have is not known before they are merged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.keys import ordering_keys
from lakedex.expr.kinds import NotJudgeable
from lakedex.index.stats_pruning import slice_bounds
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import PruneStage, ScanPlan
from lakedex.scan.planner import read_columns

__all__ = ["TopRows", "keep_top_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRows:
    """The first ``limit`` rows by a column."""

    column: str
    descending: bool
    nulls_first: bool
    limit: int

    def __str__(self) -> str:
        words = ("DESC" if self.descending else "ASC", "NULLS FIRST" if self.nulls_first else "NULLS LAST")
        return f"ORDER BY {self.column} {' '.join(words)} LIMIT {self.limit}"


def keep_top_rows(snapshot: Snapshot, plan: ScanPlan, top: TopRows) -> ScanPlan:
    """The plan without slices that hold none of the first rows. Only for a plan without a condition.

    Args:
        snapshot: that of the plan.
        plan: all rows.
        top: which rows are wanted.
    """
    schema = read_columns(snapshot.schema)
    if plan.where is not None or top.column not in schema.names or plan.dropped_by is None or plan.candidates is None:
        return plan
    counted, started = snapshot.storage.counted, time.perf_counter()
    before = counted.copy()
    rows = np.flatnonzero(plan.dropped_by < 0)
    found = slice_bounds(snapshot, {top.column: schema.field(top.column).type}, rows)
    if found is None:
        return plan
    bounds = found[top.column]
    try:
        low, high = ordering_keys(bounds.minimum), ordering_keys(bounds.maximum)
    except (NotJudgeable, pa.ArrowException):
        return plan
    counts = np.where(plan.candidates.has_logs[rows], -1, bounds.row_count)
    keep = _keep(top, (low, high), bounds.null_count, counts, bounds.row_count)
    kept, read = rows[keep], counted - before
    dropped_by = plan.dropped_by.copy()
    dropped_by[rows[~keep]] = len(plan.stages)
    stage = PruneStage(
        name="top_n",
        before=len(rows),
        after=len(kept),
        bytes_before=int(plan.candidates.sizes[rows].sum()),
        bytes_after=int(plan.candidates.sizes[kept].sum()),
        requests=read.requests,
        bytes_read=read.bytes_read,
        seconds=time.perf_counter() - started,
        terms=(str(top),),
    )
    slices = tuple(plan.candidates.take(kept))
    return replace(plan, slices=slices, stages=(*plan.stages, stage), dropped_by=dropped_by)


def _keep(
    top: TopRows,
    keys: tuple[pa.Array, pa.Array],
    nulls: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    stored: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Slices that may hold one of the rows. ``counts`` are rows that surely come out, ``stored`` all that are there."""
    low, high = keys
    # The value by which a slice's last row comes, and that by which its first does.
    last, first = (low, high) if top.descending else (high, low)
    known = (last.is_valid().to_numpy(zero_copy_only=False)) & (counts >= 0) & (nulls >= 0)
    usable = np.flatnonzero(known)
    order = pc.sort_indices(
        last.take(pa.array(usable)), sort_keys=[("", "descending" if top.descending else "ascending")]
    ).to_numpy()
    ordered = usable[order]
    enough = np.searchsorted(np.cumsum((counts - nulls)[ordered]), top.limit)
    if enough >= len(ordered):
        return np.ones(len(counts), bool)
    bound = last[int(ordered[enough])]
    after = (pc.less if top.descending else pc.greater)(first, bound).fill_null(False).to_numpy(zero_copy_only=False)
    all_null = (nulls >= 0) & (stored > 0) & (nulls == stored)
    useless = after | all_null
    if top.nulls_first:
        useless &= nulls == 0
    keep: npt.NDArray[np.bool_] = ~useless
    return keep
