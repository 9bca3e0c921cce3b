"""Aggregate pushdown: counts, groups, distinct values and bounds of the rows of a scan, from indexes as far as they go.

Each slice is answered by the cheapest source that is exact: nothing where an index rules it out, a bitmap index's
numbers of rows, its bitmaps, the file's footer. The others are read, only the columns of the condition and the groups.
:class:`AggregatePlan` names the source of each.

Memory: that of :mod:`lakedex.index.bitmap.aggregates`, three batches a thread, and the groups of the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.display.blocks import Card, Cell, Facts, Grid, Meter, Notice, Notices, share
from lakedex.errors import CorruptFileError, InvalidInputError
from lakedex.expr.evaluator import column_values
from lakedex.expr.nodes import Column
from lakedex.expr.pruner import evaluate_bounds
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.aggregates import COUNT, BitmapAggregates
from lakedex.index.bitmap.loaded_index import LoadedBitmapIndex, load_bitmap_index
from lakedex.index.bitmap.pruning import MAX_FETCH, Bitmaps
from lakedex.index.bitmap.slice_files import slice_files
from lakedex.index.column_stats.pruning import slice_bounds
from lakedex.index.partition_values import partition_bounds
from lakedex.index.protocol import DAMAGED
from lakedex.index.registry import INDEXES
from lakedex.layout.file_slice import FileSlice
from lakedex.parallel import run_threads, stream_ordered
from lakedex.parquet.base_file_reader import read_footer
from lakedex.reports import Report, counted
from lakedex.scan.aggregation import GroupTally, aggregate, check_groupable, group_starts, groups_of, only_ends
from lakedex.scan.plan import ScanPlan, plan_scan
from lakedex.scan.slice_reader import Part, ReadCount, SliceReader, iter_slice_rows, reader_for
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import BoolArray, IntArray, size_text

__all__ = ["AggregatePlan", "AggregateQuery", "AggregateResult", "answer", "answer_aggregates", "plan_aggregate"]


OPEN_COST = 64 * 1024
"""Bytes of data that could be read in the time that opening a file takes …"""


BYTES_PER_VALUE = 8
"""… and in which a value is decoded, compared and put into its group."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AggregatePlan(Report):
    """Where an answer came from.

    Attributes:
        description: the query as text.
        plan: the pruning before it; its ``slices`` are what had to be answered.
        ruled_out: of these, slices without a matching row by a bitmap index's numbers of rows.
        by_counts: answered by its numbers of rows.
        by_bitmaps: answered by its bitmaps.
        by_footers: all of their rows match; answered by the number in the file.
        scanned: read.
        log_slices: slices with log files among all of them.
        merged: of these, slices that were left to be merged with their log files.
        not_asked: left when the answer was known.
        requests, bytes_read: what reading the index took after the pruning.
        rows_scanned, bytes_scanned: rows that were read, and the stored size of their columns.
        not_worth: slices whose bitmaps would have cost more than reading them.
        seconds: all together, the plan too.
    """

    description: str
    plan: ScanPlan
    ruled_out: int = 0
    by_counts: int = 0
    by_bitmaps: int = 0
    by_footers: int = 0
    scanned: int = 0
    log_slices: int = 0
    merged: int = 0
    not_asked: int = 0
    requests: int = 0
    bytes_read: int = 0
    rows_scanned: int = 0
    bytes_scanned: int = 0
    not_worth: int = 0
    seconds: float = 0.0

    @property
    def from_index(self) -> bool:
        """Whether no data file was opened."""
        return not self.by_footers and not self.scanned

    def card(self) -> Card:
        """The plan's card with where the answer came from."""
        plan, files = self.plan.card(), len(self.plan.slices)
        index = f"{counted(self.requests, 'request')}, {size_text(self.bytes_read)}"
        scanned = f"{size_text(self.bytes_scanned)}, {self.rows_scanned:,} rows"
        rows: list[tuple[Cell, ...]] = [
            (name, Meter(f"{count:,} of {counted(files, 'file')}", share(count, files)), read)
            for name, count, read in (
                ("ruled out", self.ruled_out, ""),
                ("by counts", self.by_counts, "" if self.by_bitmaps else index),
                ("by bitmaps", self.by_bitmaps, index if self.by_bitmaps else ""),
                ("by footers", self.by_footers, ""),
                ("scanned", self.scanned, scanned if self.scanned else ""),
                ("not asked", self.not_asked, ""),
            )
            if count
        ]
        notes = [Notice(f"bitmaps of {counted(self.not_worth, 'file')} not worth reading")] if self.not_worth else []
        if self.log_slices:
            known = self.log_slices - self.merged
            notes.append(
                Notice(f"of {counted(self.log_slices, 'slice')} with log files {known:,} answered without reading them")
            )
        answer = Facts([("answer", f"{self.description} · {self.seconds * 1000:.0f} ms")])
        return replace(plan, blocks=[*plan.blocks, answer, Grid(("source", "files", "read"), rows), Notices(notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        own = {name: getattr(self, name) for name in self.__slots__ if name != "plan"}
        return {**own, "files": len(self.plan.slices), "plan": self.plan.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateQuery:
    """An aggregate over the rows of a snapshot.

    Attributes:
        snapshot: the table.
        predicate: the condition; None for all rows.
        reader: reads slices that no index answers; its names are columns of the table that hold :attr:`columns`.
        columns: columns of the groups; none counts all rows together.
        min_max_only: of a slice that is read only the least and the greatest value matter.
        stop_at: stops at this number of rows; None counts all.
        index_only: nothing is read but indexes.
        cost_gate: False reads bitmaps whatever that costs.
        use_indexes: False reads all slices.
        threads: slices read at once.
        description: the query as text.
    """

    snapshot: Snapshot
    predicate: BoundPredicate | None
    reader: SliceReader | None = None
    columns: tuple[Column, ...] = ()
    min_max_only: bool = False
    stop_at: int | None = None
    index_only: bool = False
    cost_gate: bool = True
    use_indexes: bool = True
    threads: int = 4
    description: str = "count(*)"


@dataclass(frozen=True, slots=True)
class AggregateResult:
    """Groups, as :class:`~lakedex.scan.aggregation.GroupTally` gives them, and where they came from.

    ``is_complete`` is False if an index-only query would have had to read data files.
    """

    groups: pa.Table
    plan: AggregatePlan
    is_complete: bool = True

    @property
    def rows(self) -> int:
        """Rows of all groups."""
        return sum(self.groups.column(COUNT).to_pylist()) if self.groups.num_rows else 0


def answer(query: AggregateQuery, plan: ScanPlan | None = None) -> AggregateResult:
    """Run an aggregate query.

    Args:
        query: the aggregate.
        plan: of :func:`plan_aggregate` for a query of the same rows, if there is one.

    Raises:
        UnsupportedFeatureError: slices have to be read, and only Spark can evaluate the condition.
    """
    return _QueryRun(query).answer(plan or plan_aggregate(query))


def plan_aggregate(query: AggregateQuery) -> ScanPlan:
    """Plan the slices of an aggregate query. Bitmaps do not prune here: their counts are the result.

    A query that is repeated while the table stays the same finds its plan in the view's cache.
    """
    q, started = query, time.perf_counter()
    view = q.snapshot.view()
    key = (q.predicate, q.use_indexes)
    with view.lock:
        plans = view.caches.get(AggregatePlans) or view.caches.put(AggregatePlans())
        known = plans.found.get(key)
    if known is not None:
        return replace(known, seconds=time.perf_counter() - started)
    plan = plan_scan(
        q.snapshot, q.predicate, use_indexes=q.use_indexes, indexes=[one for one in INDEXES if one.name != "bitmap"]
    )
    if all(item.reason != DAMAGED for item in plan.unused):
        with view.lock:
            plans.put(key, plan)
    return plan


CACHED_PLANS = 16


@dataclass(frozen=True, slots=True)
class AggregatePlans:
    """Plans of the last aggregate queries of a view; the next state is planned again."""

    found: dict[tuple[BoundPredicate | None, bool], ScanPlan] = field(default_factory=dict)

    def put(self, key: tuple[BoundPredicate | None, bool], plan: ScanPlan) -> None:
        """Cache a plan, with nothing read; the oldest goes first."""
        while len(self.found) >= CACHED_PLANS:
            del self.found[next(iter(self.found))]
        stages = (replace(stage, requests=0, bytes_read=0, seconds=0.0) for stage in plan.stages)
        self.found[key] = replace(plan, stages=tuple(stages))


@dataclass(slots=True)
class _Bounds:
    """Truth of conditions per slice, as far as partition paths and column stats prove it."""

    snapshot: Snapshot
    rows: IntArray
    _found: dict[BoundPredicate, tuple[BoolArray, BoolArray, BoolArray] | None] = field(default_factory=dict)

    def __call__(self, predicate: BoundPredicate) -> tuple[BoolArray, BoolArray, BoolArray] | None:
        if predicate not in self._found:
            columns = {column.name: column.type for column in predicate.columns}
            found = (slice_bounds(self.snapshot, columns, self.rows) or {}) if columns else {}
            found |= partition_bounds(self.snapshot, columns, self.rows)
            truth = (
                evaluate_bounds(predicate.predicate, lambda column: found.get(column.name), len(self.rows))
                if found
                else None
            )
            self._found[predicate] = truth
        return self._found[predicate]


@dataclass(slots=True)
class _QueryRun:
    """One running query."""

    query: AggregateQuery
    tally: GroupTally = field(init=False)
    done: dict[str, int] = field(default_factory=dict)
    read: ReadCount = field(default_factory=ReadCount)

    def __post_init__(self) -> None:
        self.tally = GroupTally([column.type for column in self.query.columns])

    def answer(self, plan: ScanPlan) -> AggregateResult:
        q, started = self.query, time.perf_counter() - plan.seconds
        counted = q.snapshot.files.storage.counted
        before = counted.copy()
        rows = np.flatnonzero(plan.dropped_by < 0) if plan.dropped_by is not None else np.empty(0, np.int64)
        bounds = _Bounds(q.snapshot, rows)
        loaded = _load_bitmaps(q.snapshot) if q.use_indexes and len(rows) else None
        left = np.ones(len(rows), np.bool_)
        if loaded is not None:
            left = self._ask_index(loaded, rows, bounds)
        index = counted - before
        has_logs = q.snapshot.view().table.has_logs[rows]
        self.done |= {"log_slices": int(has_logs.sum()), "merged": int((has_logs & left).sum())}
        is_complete = not q.index_only or not left.any()
        if is_complete and not self.is_answered():
            left &= ~self._ask_footers(rows, left, bounds)
        if is_complete and not self.is_answered():
            self._scan(rows[left], loaded)
            left[:] = False
        answered = AggregatePlan(
            description=q.description,
            plan=plan,
            not_asked=int(left.sum()),
            requests=index.requests,
            bytes_read=index.bytes_read,
            rows_scanned=self.read.rows,
            bytes_scanned=self.read.bytes_read,
            seconds=time.perf_counter() - started,
            **self.done,
        )
        return AggregateResult(self.tally.table(), answered, is_complete)

    def is_answered(self) -> bool:
        """Whether more rows would not change the answer."""
        return self.query.stop_at is not None and self.tally.rows >= self.query.stop_at

    # ------------------------------------------------------------------------------------------------------- indexes

    def _ask_index(self, loaded: LoadedBitmapIndex, rows: IntArray, bounds: _Bounds) -> BoolArray:
        """Answer slices by the bitmap index; gives those that are left."""
        q, coverage = self.query, loaded.coverage
        with coverage.lock:
            known = slice_files(coverage, q.snapshot, rows)
            found = BitmapAggregates(coverage, known.files, q.predicate, q.columns, loaded.columns, bounds, known.logs)
            self.done |= {"ruled_out": int(found.none.sum()), "by_counts": int(found.by_counts.sum())}
            self.tally.add(found.from_counts())
            if q.stop_at is not None and int(found.least.sum()) >= q.stop_at:
                # Enough rows surely match, whichever they are.
                self.tally.rows = max(self.tally.rows, q.stop_at)
            if self.is_answered():
                return found.unanswered
            cost = np.where(found.by_bitmaps, found.cost(), 0.0)
            if q.index_only and (found.open.any() or cost.sum() > MAX_FETCH):
                return found.unanswered
            if q.cost_gate and not q.index_only:
                dear = found.by_bitmaps & (cost > self._data_cost(rows, found.rows))
                found.leave(dear)
                self.done["not_worth"] = int(dear.sum())
            self.done["by_bitmaps"] = 0
            for count, groups in found.from_bitmaps():
                self.done["by_bitmaps"] += count
                self.tally.add(groups)
                if self.is_answered():
                    break
            return found.open

    def _data_cost(self, rows: IntArray, counts: IntArray) -> npt.NDArray[np.float64]:
        """About the bytes that reading each slice takes, all columns taken for equally large, and judging its rows."""
        q = self.query
        names = {column.path[0] for column in q.columns}
        names |= q.predicate.column_names if q.predicate is not None else set()
        share = len(names) / max(len(read_columns(q.snapshot.schema)), 1)
        size = q.snapshot.view().table.sizes[rows].astype(np.float64) * share
        return np.asarray(OPEN_COST + size + float(BYTES_PER_VALUE * len(names)) * counts, np.float64)

    def _ask_footers(self, rows: IntArray, left: BoolArray, bounds: _Bounds) -> BoolArray:
        """Slices that were answered by the number of their rows: each row matches, and nothing else is asked."""
        q = self.query
        table = q.snapshot.view().table
        if q.columns or (q.predicate is not None and not q.use_indexes) or not left.any():
            return np.zeros(len(left), np.bool_)
        certain = left & ~table.has_logs[rows]
        if q.predicate is not None:
            found = bounds(q.predicate)
            certain &= False if found is None else found[0] & ~found[1] & ~found[2]
        # A slice without a base file has log files, so it is not among these.
        slices = table.take(rows[certain])
        task = _FooterRows(q.snapshot)
        self.tally.rows += sum(run_threads(task, slices, q.threads))
        self.done["by_footers"] = len(slices)
        return certain

    # ---------------------------------------------------------------------------------------------------------- rows

    def _scan(self, rows: IntArray, loaded: LoadedBitmapIndex | None) -> None:
        q = self.query
        table = q.snapshot.view().table
        selections = {}
        if q.predicate is not None and loaded is not None and len(rows):
            verdict = Bitmaps(select=True, cost_gate=q.cost_gate).prune_by(loaded, q.snapshot, q.predicate, rows)
            selections = {table.slices[row].name: found for row, found in verdict.selections.items()}
            if verdict.keep is not None:
                self.done["ruled_out"] = self.done.get("ruled_out", 0) + int((~verdict.keep).sum())
                rows = rows[verdict.keep]
        slices = table.take(rows)
        self.done["scanned"] = len(slices)
        if not slices or q.reader is None:
            return
        reader = replace(q.reader, selections=selections)
        parts = max(1, -(-q.threads // len(slices))) if q.threads > 1 else 1
        work = [(item, Part(number, parts)) for item in slices for number in range(parts)]
        task = _ReadGroups(reader, q.columns, q.min_max_only)
        with closing(stream_ordered(task, work, q.threads)) as found:
            for groups, read in found:
                self.tally.add(groups)
                self.read.rows += read.rows
                self.read.bytes_read += read.bytes_read
                if self.is_answered():
                    return


def _load_bitmaps(snapshot: Snapshot) -> LoadedBitmapIndex | None:
    """The bitmap index; None also where it is damaged: then everything is read."""
    try:
        return load_bitmap_index(snapshot)
    except CorruptFileError:
        return None


@dataclass(frozen=True, slots=True)
class _FooterRows:
    """Rows of a slice without log files, by its footer."""

    snapshot: Snapshot

    def __call__(self, item: FileSlice) -> int:
        if item.base_file is None:
            return 0
        return read_footer(self.snapshot.files.storage, self.snapshot.files.path(item.base_file.relative_path)).rows


@dataclass(frozen=True, slots=True)
class _ReadGroups:
    """Groups of a share of one slice, and what reading took; a table a batch, so that memory is one batch."""

    reader: SliceReader
    columns: tuple[Column, ...]
    min_max_only: bool

    def __call__(self, work: tuple[FileSlice, Part]) -> Iterator[tuple[pa.Table, ReadCount]]:
        item, part = work
        seen, reported = ReadCount(), ReadCount()
        for batch in iter_slice_rows(self.reader, item, part, seen):
            values = [column_values(column, batch) for column in self.columns]
            groups = groups_of(values, batch.num_rows)
            yield only_ends(groups) if self.min_max_only else groups, _since(seen, reported)
        yield groups_of([pa.nulls(0, column.type) for column in self.columns], 0), _since(seen, reported)


def _since(seen: ReadCount, reported: ReadCount) -> ReadCount:
    """Rows and bytes read since the last report."""
    fresh = ReadCount(rows=seen.rows - reported.rows, bytes_read=seen.bytes_read - reported.bytes_read)
    reported.rows, reported.bytes_read = seen.rows, seen.bytes_read
    return fresh


Aggregate = tuple[str, Column | None]


def answer_aggregates(
    snapshot: Snapshot,
    predicate: BoundPredicate | None,
    group_by: Sequence[Column],
    aggregates: Sequence[Aggregate],
    *,
    index_only: bool = True,
) -> pa.Table | None:
    """Aggregates of the rows under a condition, as SQL has them.

    Args:
        snapshot: the table.
        predicate: the condition; None for all rows.
        group_by: columns of the groups, each once; none gives one row.
        aggregates: (kind, column) with the kinds ``count_star`` (without a column), ``count``, ``count_distinct``,
            ``min`` and ``max``.
        index_only: open no data file.

    Returns:
        The group columns, then a column an aggregate: counts as int64, bounds in the column's type. Ordered by the
        groups. None where indexes alone do not give the answer for all slices and nothing else may be read.

    Raises:
        InvalidInputError: an unknown kind, or a column of a type that cannot be grouped.
    """
    for kind, column in aggregates:
        if kind not in _KINDS or (column is None) != (kind == "count_star"):
            raise InvalidInputError(f"aggregates are {', '.join(_KINDS)}, all but the first of a column; not {kind!r}")
    keys = list(group_by)
    asked = list(dict.fromkeys([*keys, *(column for _, column in aggregates if column is not None)]))
    for column in asked:
        check_groupable(column)
    found: dict[Column | None, pa.Table] = {}
    plan: ScanPlan | None = None
    # Each aggregated column with the groups, not all of them together: that would be far more groups.
    for column in dict.fromkeys([None, *(column for _, column in aggregates)]):
        columns = [*keys, *([] if column is None else [column])]
        query = AggregateQuery(
            snapshot=snapshot,
            predicate=predicate,
            columns=tuple(columns),
            reader=reader_for(snapshot, predicate, list(dict.fromkeys(own.path[0] for own in columns))),
            index_only=index_only,
        )
        plan = plan or plan_aggregate(query)
        answered = answer(query, plan)
        if not answered.is_complete:
            return None
        found[column] = answered.groups
    names = [*(column.name for column in keys), *(_name(kind, column) for kind, column in aggregates)]
    own = [found[None].column(number) for number in range(len(keys))]
    return pa.table([*own, *(_aggregate(found, len(keys), *one) for one in aggregates)], names=names)


_KINDS = ("count_star", "count", "count_distinct", "min", "max")


def _name(kind: str, column: Column | None) -> str:
    if column is None:
        return "count(*)"
    return f"count(DISTINCT {column.name})" if kind == "count_distinct" else f"{kind}({column.name})"


def _aggregate(found: Mapping[Column | None, pa.Table], keys: int, kind: str, column: Column | None) -> pa.Array:
    groups = found[column]
    if column is None:
        return groups.column(COUNT).combine_chunks()
    if groups.num_rows:
        return aggregate(groups, group_starts(groups, keys), kind)
    # No rows: no groups, but one row where none were asked for.
    rows = 0 if keys else 1
    return pa.nulls(rows, column.type) if kind in ("min", "max") else pa.array([0] * rows, pa.int64())
