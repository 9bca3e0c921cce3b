"""From a predicate to the slices that may hold matching rows, one index after the other.

Candidates are all file slices of the snapshot; each index removes only what it can prove empty of matching rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakedex.errors import CorruptFileError
from lakedex.expr import terms_of, to_text
from lakedex.expr.nodes import Predicate
from lakedex.index.bitmap.pruning import Bitmaps
from lakedex.index.bitmap.selection import RowSelection
from lakedex.index.bloom_filters import BloomFilters
from lakedex.index.partition_values import PartitionValues
from lakedex.index.protocol import PruningIndex, Unused, damaged, unjudged
from lakedex.index.stats_pruning import ColumnStats, PartitionStats
from lakedex.layout.slice_table import SliceTable
from lakedex.metadata.partitions import COLUMN_STATS, FILES, PARTITION_STATS
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import PruneStage, ScanPlan
from lakedex.types import META_COLUMNS, IntArray

__all__ = ["INDEXES", "indexes_for", "plan_scan", "read_columns"]

INDEXES: tuple[PruningIndex, ...] = (PartitionValues(), PartitionStats(), ColumnStats(), BloomFilters(), Bitmaps())
"""In the order of their cost: each judges what the ones before it left."""


def indexes_for(*, select: bool, gated: bool = True, result: frozenset[str] | None = None) -> tuple[PruningIndex, ...]:
    """The indexes for a reader.

    Args:
        select: it can leave out row groups and rows of a file (:attr:`~lakedex.scan.plan.ScanPlan.selections`).
        gated: bitmaps are read only where the forecast says that it pays.
        result: columns that it reads even if it need not look at the condition; None if it looks in any case.
    """
    return (*INDEXES[:-1], Bitmaps(select=select, gated=gated, result=result))


def read_columns(schema: pa.Schema) -> pa.Schema:
    """Columns that reading a table gives: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


def plan_scan(
    snapshot: Snapshot,
    predicate: Predicate | None,
    *,
    skipping: bool = True,
    indexes: Sequence[PruningIndex] = INDEXES,
) -> ScanPlan:
    """Choose the file slices of a scan.

    Args:
        snapshot: the table, pinned to an instant.
        predicate: from :func:`lakedex.expr.parse_predicate`; None for all rows.
        skipping: False keeps all files.
        indexes: who may remove files, in order.
    """
    started = time.perf_counter()
    if predicate is not None and skipping:
        snapshot.metadata.list_folders((FILES.name, PARTITION_STATS.name, COLUMN_STATS.name))
    table = snapshot.view().table
    rows: IntArray = np.arange(len(table))
    dropped_by = np.full(len(table), -1, np.int8)
    stages: list[PruneStage] = []
    unused: list[Unused] = []
    selections: dict[int, RowSelection] = {}
    if wrong := snapshot.metadata.why_lost(FILES.name):
        unused.append(damaged(FILES.name, f"storage was listed instead, {wrong}"))
    if predicate is not None and not skipping:
        unused.append(Unused(index="all indexes", reason="switched off", detail="skipping is off"))
    elif predicate is not None:
        unused += unjudged(terms_of(predicate), to_text)
        for index in indexes:
            if not len(rows):
                break
            stage, kept = _ask(snapshot, predicate, index, rows, unused, selections)
            if stage is not None:
                dropped_by[np.setdiff1d(rows, kept, assume_unique=True)] = len(stages)
                stages.append(stage)
                rows = kept
    return ScanPlan(
        table=snapshot.config.name,
        instant=snapshot.instant,
        where=None if predicate is None else to_text(predicate),
        files_total=len(table),
        bytes_total=int(table.sizes.sum()),
        slices=tuple(table.slices if len(rows) == len(table) else table.take(rows)),
        stages=tuple(stages),
        unused=tuple(unused),
        seconds=time.perf_counter() - started,
        candidates=table,
        dropped_by=dropped_by,
        selections=_by_name(table, rows, selections),
    )


def _by_name(table: SliceTable, kept: IntArray, selections: Mapping[int, RowSelection]) -> dict[str, RowSelection]:
    """Selections by the name of the base file, those of a name that two partitions share left out.

    Hudi's bucket index may give file groups of two partitions one id. Rows of such a file are looked for.
    """
    if not selections:
        return {}
    names = Counter(table.slices[row].name for row in kept.tolist())
    named = ((table.slices[row].name, selection) for row, selection in selections.items())
    return {name: selection for name, selection in named if names[name] == 1}


def _ask(
    snapshot: Snapshot,
    predicate: Predicate,
    index: PruningIndex,
    rows: IntArray,
    unused: list[Unused],
    selections: dict[int, RowSelection],
) -> tuple[PruneStage | None, IntArray]:
    """One index's turn: its stage (None when it had no part) and the rows left."""
    counted, started = snapshot.storage.counted, time.perf_counter()
    before = counted.copy()
    try:
        verdict = index.prune(snapshot, predicate, rows)
    except (CorruptFileError, FileNotFoundError) as error:
        unused.append(damaged(index.name, str(error)))
        return None, rows
    unused += verdict.unused
    selections.update(verdict.selections)
    if verdict.keep is None:
        return None, rows
    kept = rows[verdict.keep]
    read, sizes = counted - before, snapshot.view().table.sizes
    stage = PruneStage(
        name=index.name,
        before=len(rows),
        after=len(kept),
        bytes_before=int(sizes[rows].sum()),
        bytes_after=int(sizes[kept].sum()),
        requests=read.requests,
        bytes_read=read.bytes_read,
        seconds=time.perf_counter() - started,
        terms=verdict.terms,
        note=verdict.note,
    )
    return stage, kept
