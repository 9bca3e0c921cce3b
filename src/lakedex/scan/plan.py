"""Plan a scan: from a predicate to the file slices that may match, with what each index removed.

Candidates are all file slices of the snapshot; one index after the other removes those that it proves to hold no
matching row.

``ORDER BY c LIMIT n`` keeps the slices that may hold one of the first ``n`` rows by the bounds of ``c``: once slices
whose values all come at or before a value *t* hold ``n`` rows together, slices with later values only are dropped.
Further columns of the order break ties only, so the first one decides. Slices with log files count no rows, since their
number is not known before the merge.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.display.blocks import ROWS, Card, Cell, Facts, Grid, Meter, Notice, Notices, share
from lakedex.errors import CorruptFileError
from lakedex.expr.sort_keys import ordering_keys
from lakedex.expr.terms import BoundPredicate
from lakedex.expr.types import NotPrunableError
from lakedex.index.bitmap.pruning import Bitmaps
from lakedex.index.column_stats.pruning import slice_bounds
from lakedex.index.protocol import Index, PruningIndex, RowSelection, UnusedIndex, damaged, unprunable_terms
from lakedex.index.registry import INDEXES
from lakedex.layout.file_slice import BaseFile, FileSlice, SliceTable
from lakedex.metadata.records import COLUMN_STATS, FILES, PARTITION_STATS
from lakedex.reports import Report, counted
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import IntArray, size_text

__all__ = ["PruneStage", "ScanPlan", "TopRows", "indexes_for", "keep_top_rows", "plan_scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneStage:
    """One index's turn.

    Attributes:
        name: ``partition``, ``partition_stats``, ``column_stats``, ``bloom_filters`` or ``bitmap``.
        before, after: files that came in and files that were kept.
        bytes_before, bytes_after: their sizes.
        requests, bytes_read, seconds: what reading the index took.
        terms: conditions that it evaluated.
        note: what else is worth knowing (``unknown for 3 files, kept``).
    """

    name: str
    before: int
    after: int
    bytes_before: int
    bytes_after: int
    requests: int
    bytes_read: int
    seconds: float
    terms: tuple[str, ...]
    note: str = ""

    def cells(self, files: int, size: int) -> tuple[Cell, ...]:
        """The stage as a row of a plan of a number of files and their size."""
        pruned = f"{100 * (self.before - self.after) / self.before:.1f} %" if self.before else "–"
        return (
            self.name,
            f"{self.before:,}",
            Meter(f"{self.after:,}", share(self.after, files)),
            pruned,
            Meter(size_text(self.bytes_after), share(self.bytes_after, size)),
            f"{counted(self.requests, 'request')}, {size_text(self.bytes_read)}" if self.requests else "–",
            f"{self.seconds * 1000:.0f} ms",
            ", ".join(self.terms) + (f" ({self.note})" if self.note else ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPlan(Report):
    """The files of a scan.

    Attributes:
        table: the table's name.
        instant: the commit that is read; None for a table without commits.
        where: the condition as SQL text, None for all rows.
        files_total, bytes_total: the snapshot's file slices; a slice is its base file, and log files of merge-on-read.
        slices: those that are kept.
        stages: one per index that was asked.
        unused: per index or column that could not be used, why.
        seconds: what planning took.
        selections: of kept base files, by name, the rows that may match, where bitmaps were read for that.
        candidates, dropped_by: all slices of the snapshot, and per slice the stage that dropped it (-1 for none).
    """

    table: str
    instant: str | None
    where: str | None
    files_total: int
    bytes_total: int
    slices: tuple[FileSlice, ...]
    stages: tuple[PruneStage, ...] = ()
    unused: tuple[UnusedIndex, ...] = ()
    seconds: float = 0.0
    candidates: SliceTable | None = field(default=None, compare=False)
    dropped_by: npt.NDArray[np.int8] | None = field(default=None, compare=False)
    selections: Mapping[str, RowSelection] = field(default_factory=dict, compare=False)

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """Base files of the kept slices."""
        return tuple(item.base_file for item in self.slices if item.base_file is not None)

    @property
    def files_kept(self) -> tuple[str, ...]:
        """Names of the kept slices' base files; of its first log file for a slice without one."""
        return tuple(item.name for item in self.slices)

    @property
    def bytes_kept(self) -> int:
        """Size of the kept slices."""
        return sum(item.size for item in self.slices)

    @property
    def dropped(self) -> list[tuple[FileSlice, str]]:
        """Slices that are not kept, each with the name of the stage that dropped it."""
        if self.candidates is None or self.dropped_by is None:
            return []
        rows = np.flatnonzero(self.dropped_by >= 0)
        by = self.dropped_by[rows].tolist()
        return [(item, self.stages[at].name) for item, at in zip(self.candidates.take(rows), by, strict=True)]

    def stage(self, name: str) -> PruneStage:
        """The stage of one index.

        Raises:
            KeyError: it was not asked; ``unused`` says why.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(f"no stage {name!r}; stages: {', '.join(stage.name for stage in self.stages) or 'none'}")

    @property
    def summary(self) -> str:
        """One line: what was kept of how much."""
        share = f" ({100 * self.bytes_kept / self.bytes_total:.2f} %)" if self.bytes_total else ""
        return (
            f"{len(self.slices):,} of {counted(self.files_total, 'file')} · {size_text(self.bytes_kept)} of "
            f"{size_text(self.bytes_total)}{share}"
        )

    def card(self) -> Card:
        """Files and bytes that each index left, what it cost, and why others had no part."""
        facts = [("where", self.where.replace("\n)", ")") if self.where else "(all rows)")]
        facts.append(("snapshot", self.instant or "(no commit)"))
        grid = Grid(
            ("stage", "files", "kept", "pruned", "bytes kept", "index read", "time", "used for"),
            [stage.cells(self.files_total, self.bytes_total) for stage in self.stages[:ROWS]],
            numbers=("files", "kept", "pruned", "bytes kept", "time"),
            total=len(self.stages),
        )
        unused = [Notice(str(item) + (f" → {item.remedy}" if item.remedy else ""), "not used") for item in self.unused]
        return Card(f"scan of {self.table}", self.summary, [Facts(facts), grid, Notices(unused)])

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "table": self.table,
            "instant": self.instant,
            "where": self.where,
            "files_total": self.files_total,
            "bytes_total": self.bytes_total,
            "files_kept": list(self.files_kept),
            "bytes_kept": self.bytes_kept,
            "stages": [asdict(stage) for stage in self.stages],
            "unused": [asdict(item) for item in self.unused],
            "seconds": self.seconds,
        }

    def to_arrow(self) -> pa.Table:
        """The stages as a table."""
        return pa.Table.from_pylist([asdict(stage) for stage in self.stages], _STAGES)


_STAGES = pa.schema(
    [
        ("name", pa.string()),
        ("before", pa.int64()),
        ("after", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("requests", pa.int64()),
        ("bytes_read", pa.int64()),
        ("seconds", pa.float64()),
        ("terms", pa.list_(pa.string())),
        ("note", pa.string()),
    ]
)


def indexes_for(*, select: bool, cost_gate: bool = True, result: frozenset[str] | None = None) -> tuple[Index, ...]:
    """The indexes for a reader.

    Args:
        select: it can leave out row groups and rows of a file (:attr:`~lakedex.scan.plan.ScanPlan.selections`).
        cost_gate: bitmaps are read only where the forecast says that it pays.
        result: columns that it reads even if it need not look at the condition; None if it looks in any case.
    """
    return tuple(
        replace(index, select=select, cost_gate=cost_gate, result=result) if isinstance(index, Bitmaps) else index
        for index in INDEXES
    )


def plan_scan(
    snapshot: Snapshot,
    predicate: BoundPredicate | None,
    *,
    use_indexes: bool = True,
    indexes: Sequence[PruningIndex] | None = None,
) -> ScanPlan:
    """Choose the file slices of a scan.

    Args:
        snapshot: the table, pinned to an instant.
        predicate: from :func:`lakedex.expr.bind`; None for all rows.
        use_indexes: False keeps all files.
        indexes: who may remove files, in order; None for all.
    """
    started = time.perf_counter()
    if predicate is not None and use_indexes:
        # On an object store this opens their files, and stats of partitions may not be asked.
        later = () if snapshot.files.has_latency else (PARTITION_STATS.name,)
        snapshot.metadata.list_folders((FILES.name, COLUMN_STATS.name, *later))
    table = snapshot.view().table
    rows: IntArray = np.arange(len(table))
    dropped_by = np.full(len(table), -1, np.int8)
    stages: list[PruneStage] = []
    unused: list[UnusedIndex] = []
    selections: dict[int, RowSelection] = {}
    if wrong := snapshot.metadata.damage_of(FILES.name):
        unused.append(damaged(FILES.name, f"storage was listed instead, {wrong}"))
    if predicate is not None and not use_indexes:
        unused.append(UnusedIndex(index="all indexes", reason="switched off", detail="use_indexes=False"))
    elif predicate is not None:
        unused += unprunable_terms(predicate)
        for index in INDEXES if indexes is None else indexes:
            if not len(rows):
                break
            stage, kept = _ask(snapshot, predicate, index, rows, unused, selections)
            if stage is not None:
                dropped_by[rows], dropped_by[kept] = len(stages), -1
                stages.append(stage)
                rows = kept
    return ScanPlan(
        table=snapshot.config.name,
        instant=snapshot.instant,
        where=None if predicate is None else predicate.text,
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
    predicate: BoundPredicate,
    index: PruningIndex,
    rows: IntArray,
    unused: list[UnusedIndex],
    selections: dict[int, RowSelection],
) -> tuple[PruneStage | None, IntArray]:
    """One index's turn: its stage (None when it had no part) and the rows left."""
    counted, started = snapshot.files.storage.counted, time.perf_counter()
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
    counted, started = snapshot.files.storage.counted, time.perf_counter()
    before = counted.copy()
    rows = np.flatnonzero(plan.dropped_by < 0)
    found = slice_bounds(snapshot, {top.column: schema.field(top.column).type}, rows)
    if found is None:
        return plan
    bounds = found[top.column]
    try:
        low, high = ordering_keys(bounds.minimum), ordering_keys(bounds.maximum)
    except (NotPrunableError, pa.ArrowException):
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
