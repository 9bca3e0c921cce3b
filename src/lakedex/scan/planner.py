"""From a predicate to the slices that may hold matching rows, one index after the other.

Candidates are all file slices of the snapshot; each index removes only what it can prove empty of matching rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakedex.expr import terms_of, to_sql
from lakedex.expr.nodes import Predicate
from lakedex.index.bloom_filters import BloomFilters
from lakedex.index.partition_values import PartitionValues
from lakedex.index.protocol import PruningIndex, Rows, Unused, unjudged
from lakedex.index.stats_pruning import ColumnStats, PartitionStats
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.plan import PruneStage, ScanPlan
from lakedex.types import META_COLUMNS

__all__ = ["INDEXES", "plan_scan", "read_columns"]

INDEXES: tuple[PruningIndex, ...] = (PartitionValues(), PartitionStats(), ColumnStats(), BloomFilters())
"""In the order of their cost: each judges what the ones before it left."""


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
    table = snapshot.view().table
    rows: Rows = np.arange(len(table))
    dropped_by = np.full(len(table), -1, np.int8)
    stages: list[PruneStage] = []
    unused: list[Unused] = []
    if predicate is not None and not skipping:
        unused.append(Unused(index="all indexes", reason="switched off", detail="skipping is off"))
    elif predicate is not None:
        unused += unjudged(terms_of(predicate), to_sql)
        for index in indexes:
            if not len(rows):
                break
            stage, kept = _ask(snapshot, predicate, index, rows, unused)
            if stage is not None:
                dropped_by[np.setdiff1d(rows, kept, assume_unique=True)] = len(stages)
                stages.append(stage)
                rows = kept
    return ScanPlan(
        table=snapshot.config.name,
        instant=snapshot.instant,
        where=None if predicate is None else to_sql(predicate),
        files_total=len(table),
        bytes_total=int(table.sizes.sum()),
        slices=tuple(table.slices if len(rows) == len(table) else table.take(rows)),
        stages=tuple(stages),
        unused=tuple(unused),
        seconds=time.perf_counter() - started,
        candidates=table,
        dropped_by=dropped_by,
    )


def _ask(
    snapshot: Snapshot, predicate: Predicate, index: PruningIndex, rows: Rows, unused: list[Unused]
) -> tuple[PruneStage | None, Rows]:
    """One index's turn: its stage (None when it had no part) and the rows left."""
    counted, started = snapshot.storage.counted, time.perf_counter()
    before = counted.copy()
    verdict = index.prune(snapshot, predicate, rows)
    unused += verdict.unused
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
