"""Advise which columns deserve a bitmap index, by indexing and measuring a few files.

The forecast counts what an index leaves out *beyond* the bounds of files and row groups, which are there anyway.
Without queries a column is rated by equality with its values, each as often as rows hold it.

Memory: the bitmaps of the sampled files; their runs lie in a temporary folder meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.roaring import deserialize_bitmap
from lakedex.display.blocks import ROWS, Block, Card, Cell, Code, Facts, Grid, Meter, share
from lakedex.errors import InvalidInputError
from lakedex.expr.evaluator import column_values
from lakedex.expr.nodes import Column
from lakedex.expr.parser import bind, condition_of
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.sort_keys import ordering_keys
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.builder import BATCH_ROWS, INDEXED, TOO_MANY, BitmapsOfFile, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.condition import CountEvaluator, row_sets, to_bitmap_expr
from lakedex.index.bitmap.definitions import DEFAULT_MAX_DISTINCT
from lakedex.index.bitmap.keys import is_indexable, normal_values
from lakedex.index.bitmap.loaded_index import Coverage
from lakedex.index.bitmap.pruning import fetch_rows
from lakedex.index.bitmap.run_files import Run, encode_run, list_runs, write_run
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile
from lakedex.parquet.base_file_reader import open_for_scan
from lakedex.parquet.conform import conform_stored
from lakedex.reports import Report, counted
from lakedex.scan.aggregation import find_column
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import DEFAULT_RULES, SessionRules, size_text

__all__ = ["Advice", "ColumnAdvice", "ColumnSample", "EqualityShares", "Sample", "advise", "sampled"]


Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSample:
    """One column of the sampled files.

    Attributes:
        column: the column.
        files: its bitmaps, a file each.
        bytes: size of its run.
        seconds: what building took, reading the column with it.
        too_many: distinct values of the first file, where there are more than the cap; else 0.
    """

    column: Column
    files: tuple[ColumnBitmaps, ...]
    bytes: int
    seconds: float
    too_many: int = 0

    @property
    def not_indexed(self) -> tuple[str, ...]:
        """Per file that has no bitmaps of the column, why."""
        return tuple(own.state for own in self.files if own.state != INDEXED)

    @property
    def distinct(self) -> float:
        """Distinct values a file, on average of the indexed ones."""
        found = [len(own.texts) for own in self.files if own.state == INDEXED]
        return float(np.mean(found)) if found else 0.0


@dataclass(frozen=True, slots=True)
class EqualityShares:
    """Shares that ``column = value`` leaves of files, row groups and bytes, each value as often as rows hold it."""

    files: float
    groups: float
    bytes: float


class Sample:
    """The index over the sampled files; valid within :func:`sampled`."""

    def __init__(self, coverage: Coverage, files: Sequence[FileBitmaps], columns: Mapping[str, ColumnSample]) -> None:
        self._coverage, self._files = coverage, files
        self.columns = dict(columns)
        names = [(item.partition, item.base_file) for item in files]
        coverage.column(next(iter(columns), ""))
        self._numbers = np.array([coverage.numbers.get(name, -1) for name in names], np.int64)

    @property
    def rows(self) -> int:
        """Rows of the files."""
        return sum(item.rows for item in self._files)

    @property
    def group_bytes(self) -> list[list[int]]:
        """Bytes of the row groups of each file."""
        return [[group.size for group in item.row_groups] for item in self._files]

    def groups_left(self, predicate: BoundPredicate, indexed: frozenset[str]) -> list[npt.NDArray[np.bool_] | None]:
        """Per file the row groups that bitmaps of some columns leave; None where they say nothing."""
        condition = to_bitmap_expr(predicate, indexed)
        evaluator = CountEvaluator(self._coverage, self._numbers, np.ones(len(self._numbers), np.int64))
        counts = evaluator.evaluate(condition)
        known = {
            term: fetch_rows(self._coverage, term, found.of_value, self._numbers[found.known & (counts.true[1] > 0)])
            for term, found in evaluator.terms.items()
            if found.of_value is not None
        }
        left: list[npt.NDArray[np.bool_] | None] = []
        for item, number, most in zip(self._files, self._numbers.tolist(), counts.true[1].tolist(), strict=True):
            ends = [0, *accumulate(group.rows for group in item.row_groups)]
            own = {term: rows[number] for term, rows in known.items() if number in rows}
            if not most:
                left.append(np.zeros(len(item.row_groups), bool))
            elif not own:
                left.append(None)
            else:
                rows = row_sets(condition, item.rows, own).true
                left.append(np.array([rows.range_cardinality(a, b) > 0 for a, b in pairwise(ends)], bool))
        return left

    def equality(self, name: str) -> tuple[EqualityShares, EqualityShares] | None:
        """Shares that equality with a value leaves: by bounds, and by bitmaps; None without values."""
        sample, coverage = self.columns[name], self._coverage.column(name)
        if not len(coverage.values) or not len(coverage.states):
            return None
        values, good = coverage.typed(name, sample.column.type)
        keys = ordering_keys(values)
        rank = np.empty(len(values), np.int64)
        rank[pc.sort_indices(keys).to_numpy()] = np.arange(len(values))
        weight = np.zeros(len(values))
        np.add.at(weight, coverage.codes, coverage.counts)
        if not weight.sum() or not good.all():
            return None
        weight /= weight.sum()
        below = np.concatenate([[0.0], np.cumsum(weight[np.argsort(rank)])])
        by_bounds, by_bitmaps = np.zeros(3), np.zeros(3)
        total = np.zeros(3)
        for item, own, number in zip(self._files, sample.files, self._numbers.tolist(), strict=True):
            sizes = np.array([group.size for group in item.row_groups], np.float64)
            total += (1, len(sizes), sizes.sum())
            entry = int(coverage.entry_of[number]) if number >= 0 else -1
            if entry < 0 or own.state != INDEXED:
                by_bounds += (1, len(sizes), sizes.sum())
                by_bitmaps += (1, len(sizes), sizes.sum())
                continue
            span = coverage.span(entry)
            codes = coverage.codes[span]
            ranges = _group_ranks(own, rank[codes], item)
            shares = np.array([below[high + 1] - below[low] if high >= 0 else 0.0 for low, high in ranges])
            whole = rank[codes]
            file_share = below[whole.max() + 1] - below[whole.min()] if len(whole) else 0.0
            by_bounds += (file_share, shares.sum(), (shares * sizes).sum())
            kept = float((weight[codes] * coverage.groups[span]).sum())
            by_bitmaps += (weight[codes].sum(), kept, kept * sizes.mean() if len(sizes) else 0.0)
        total = np.maximum(total, 1)
        return EqualityShares(*(by_bounds / total).tolist()), EqualityShares(*(by_bitmaps / total).tolist())


def _group_ranks(own: ColumnBitmaps, rank: npt.NDArray[np.int64], item: FileBitmaps) -> list[tuple[int, int]]:
    """Ranks of the least and the greatest value of each row group; (0, -1) for one of nothing but nulls."""
    order = np.argsort(rank).tolist()
    ends = [0, *accumulate(group.rows for group in item.row_groups)]
    bitmaps = [deserialize_bitmap(data) for data in own.bitmaps] if len(ends) > 2 else []
    found = []
    for start, end in pairwise(ends):
        if len(ends) == 2:
            found.append((int(rank.min()), int(rank.max())) if len(rank) else (0, -1))
            continue
        low = next((at for at in order if bitmaps[at].range_cardinality(start, end)), None)
        high = next((at for at in reversed(order) if bitmaps[at].range_cardinality(start, end)), None)
        found.append((0, -1) if low is None or high is None else (int(rank[low]), int(rank[high])))
    return found


@contextmanager
def sampled(
    files: TableFiles,
    schema: pa.Schema,
    bases: Sequence[BaseFile],
    columns: Mapping[str, tuple[Column, int]],
) -> Iterator[Sample]:
    """Build the index of some files, a column at a time so that each can be measured.

    Args:
        files: the table's files.
        schema: its columns.
        bases: the sample.
        columns: columns by name, with their cap of distinct values.
    """
    with TemporaryDirectory(prefix="lakedex-sample-") as folder:
        own = LocalStorage()
        built: list[FileBitmaps] = []
        found: dict[str, ColumnSample] = {}
        for number, (name, (column, limit)) in enumerate(columns.items()):
            started = time.perf_counter()
            task = BitmapsOfFile(files=files, columns={name: limit}, schema=schema)
            built = [task(base) for base in bases]
            content = encode_run(built)
            seconds = time.perf_counter() - started
            write_run(TableFiles(own, folder), Run(f"{number:017d}", "build", 0), content)
            bitmaps = tuple(item.columns[0] for item in built)
            too_many = _distinct(task, bases[0], column) if bases and bitmaps[0].state == TOO_MANY else 0
            found[name] = ColumnSample(
                column=column, files=bitmaps, bytes=len(content), seconds=seconds, too_many=too_many
            )
        coverage = Coverage(TableFiles(own, folder), TableCache())
        coverage.refresh(list_runs(TableFiles(own, folder)))
        yield Sample(coverage, built, found)


def _distinct(task: BitmapsOfFile, base: BaseFile, column: Column) -> int:
    """Distinct values of a column of a file; they are in memory."""
    needed = pa.schema([task.schema.field(column.path[0])])
    with open_for_scan(task.files.storage, task.files.path(base.relative_path)) as source:
        batches = source.batches(needed.names, range(source.row_groups), BATCH_ROWS)
        values = (normal_values(column_values(column, conform_stored(stored, needed))) for stored in batches)
        parts = [pc.unique(own) for own in values]
    return int(pc.count_distinct(pa.chunked_array(parts), mode="only_valid").as_py())


MAX_FILES = 16


MAX_ROWS = 4_000_000
"""Of the sample; one file is read whatever it has."""


MAX_QUERIES = 200


WORTH = 0.02
"""Share of the bytes that an index has to save a query at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAdvice:
    """The worth of a bitmap index of one column.

    Attributes:
        column: name, or dotted path.
        index: the verdict.
        reason: of the verdict.
        distinct_per_file: distinct values a file; 0 where there are too many.
        queries: how many of the queries ask something of the column that bitmaps answer; 0 without queries.
        files_dropped, groups_dropped: shares of files and row groups that a query need not read, beyond what bounds
            leave out.
        bytes_saved: bytes of data that a query need not read, of the whole table.
        index_bytes_per_row, index_bytes: size, measured and of the whole table.
        build_seconds: of a million rows; about what a commit takes longer for a million rows that it writes.
    """

    column: str
    index: bool
    reason: str
    distinct_per_file: float = 0.0
    queries: int = 0
    files_dropped: float = 0.0
    groups_dropped: float = 0.0
    bytes_saved: int = 0
    index_bytes_per_row: float = 0.0
    index_bytes: int = 0
    build_seconds: float = 0.0

    def cells(self, most: int) -> tuple[Cell, ...]:
        """The column as a row of an advice, whose largest saving is ``most`` bytes."""
        return (
            self.column,
            f"{self.distinct_per_file:,.0f}" if self.distinct_per_file else "–",
            f"{100 * self.files_dropped:.1f} %",
            f"{100 * self.groups_dropped:.1f} %",
            Meter(size_text(self.bytes_saved), share(self.bytes_saved, most)),
            size_text(self.index_bytes),
            f"{self.index_bytes_per_row:,.2f}",
            f"{self.build_seconds:.2f}",
            self.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(Report):
    """The worth of bitmap indexes, column by column.

    Attributes:
        table: the table's name.
        columns: the columns asked about, the most useful first.
        files_sampled, files_total, rows_sampled: what was read.
        queries: how many queries were looked at; 0 without.
    """

    table: str
    columns: tuple[ColumnAdvice, ...]
    files_sampled: int
    files_total: int
    rows_sampled: int
    queries: int = 0

    @property
    def recommended(self) -> tuple[str, ...]:
        """Columns that deserve an index: what ``indexes.create("bitmap", columns)`` takes."""
        return tuple(one.column for one in self.columns if one.index)

    def card(self) -> Card:
        """The recommended columns with the call that indexes them, then all of them."""
        asked = f"{self.queries} queries" if self.queries else "equality with each value, as often as rows hold it"
        sampled_files = f"{self.files_sampled} of {counted(self.files_total, 'file')}, {self.rows_sampled:,} rows"
        heads = ("column", "distinct", "files", "groups", "saved", "index", "B/row", "s/M rows", "verdict")
        most = max((one.bytes_saved for one in self.columns), default=0)
        grid = Grid(heads, [one.cells(most) for one in self.columns[:ROWS]], heads[1:-1], len(self.columns))
        blocks: list[Block] = [
            Facts([("sample", sampled_files), ("rated by", asked)]),
            replace(grid, more="columns has all"),
        ]
        if self.recommended:
            blocks.insert(0, Code(f'table.indexes.create("bitmap", {list(self.recommended)!r})', "recommended"))
            head = f"index {', '.join(self.recommended)}"
        else:
            head = "no column deserves a bitmap index"
        return Card(f"advice for {self.table}", head, blocks)

    def to_arrow(self) -> pa.Table:
        """A row a column."""
        return pa.Table.from_pylist([asdict(one) for one in self.columns], _COLUMNS)


_COLUMNS = pa.schema(
    [
        ("column", pa.string()),
        ("index", pa.bool_()),
        ("reason", pa.string()),
        ("distinct_per_file", pa.float64()),
        ("queries", pa.int64()),
        ("files_dropped", pa.float64()),
        ("groups_dropped", pa.float64()),
        ("bytes_saved", pa.int64()),
        ("index_bytes_per_row", pa.float64()),
        ("index_bytes", pa.int64()),
        ("build_seconds", pa.float64()),
    ]
)


def advise(
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    *,
    rules: SessionRules = DEFAULT_RULES,
) -> Advice:
    """Rate columns; see :meth:`lakedex.Indexes.advise`.

    Raises:
        InvalidInputError: a column that is not there, a query that is no condition.
    """
    schema = read_columns(snapshot.schema)
    conditions = [condition_of(text) for text in queries or ()]
    asked = [bind(text, schema, rules) for text in conditions if text is not None]
    if isinstance(columns, str):
        raise InvalidInputError(f"columns is a list of names, not {columns!r}")
    if columns is not None:
        chosen = [find_column(name, schema, case_sensitive=rules.case_sensitive) for name in columns]
    elif queries is not None:
        found = [column for predicate in asked for column in predicate.columns]
        chosen = [column for column in dict.fromkeys(found) if is_indexable(column.type)]
    else:
        chosen = [Column((one.name,), one.type) for one in snapshot.schema if is_indexable(one.type)]
    chosen = [column for column in dict.fromkeys(chosen) if column.path[0] in snapshot.schema.names]
    files = _sample_files(snapshot)
    limits = {column.name: (column, DEFAULT_MAX_DISTINCT) for column in chosen}
    with sampled(snapshot.files, snapshot.schema, files, limits) as sample:
        table = _Table(snapshot, sample, files, asked[:MAX_QUERIES])
        found_advice = [table.column(one) for one in sample.columns.values()]
        rows = sample.rows
    order = sorted(found_advice, key=lambda one: (not one.index, -one.bytes_saved, one.column))
    total = len(snapshot.base_files())
    return Advice(
        table=snapshot.config.name,
        columns=tuple(order),
        files_sampled=len(files),
        files_total=total,
        rows_sampled=rows,
        queries=len(asked),
    )


def _sample_files(snapshot: Snapshot) -> list[BaseFile]:
    """Files spread over the partitions, up to ``MAX_FILES`` and ``MAX_ROWS``."""
    bases = [item.base_file for item in snapshot.view().table.slices if item.base_file is not None]
    places = np.unique(np.linspace(0, len(bases) - 1, min(MAX_FILES, len(bases))).round().astype(np.int64))
    taken: list[BaseFile] = []
    rows = 0
    for place in places.tolist():
        with open_for_scan(snapshot.files.storage, snapshot.files.path(bases[place].relative_path)) as source:
            rows += source.num_rows
        if taken and rows > MAX_ROWS:
            break
        taken.append(bases[place])
    return taken


@dataclass(slots=True)
class _Saved:
    """Shares of files, row groups and bytes that bitmaps leave out beyond bounds, and how many queries they serve."""

    files: float = 0.0
    groups: float = 0.0
    bytes: float = 0.0
    queries: int = 0
    bounds: float = 0.0


@dataclass(slots=True)
class _Table:
    """The table that is rated, by its sample."""

    snapshot: Snapshot
    sample: Sample
    files: list[BaseFile]
    queries: list[BoundPredicate]
    _together: dict[frozenset[str], list[npt.NDArray[np.float64]]] = field(default_factory=dict)
    _bounded: list[list[npt.NDArray[np.bool_]]] = field(default_factory=list)

    def column(self, one: ColumnSample) -> ColumnAdvice:
        rows = max(self.sample.rows, 1)
        total_bytes = int(self.snapshot.view().table.sizes.sum())
        sampled_bytes = sum(base.size for base in self.files)
        scale = total_bytes / max(sampled_bytes, 1)
        saved = self._by_queries(one) if self.queries else self._by_values(one)
        use, reason = self._verdict(one, saved)
        return ColumnAdvice(
            column=one.column.name,
            index=use,
            reason=reason,
            distinct_per_file=one.distinct,
            queries=saved.queries,
            files_dropped=saved.files,
            groups_dropped=saved.groups,
            bytes_saved=round(saved.bytes * total_bytes),
            index_bytes_per_row=one.bytes / rows,
            index_bytes=round(one.bytes * scale),
            build_seconds=one.seconds / rows * 1e6,
        )

    def _verdict(self, one: ColumnSample, saved: _Saved) -> tuple[bool, str]:
        missing = one.not_indexed
        if not one.files:
            return False, "no: the table has no files"
        if len(missing) * 2 > len(one.files):
            shown = f"{one.too_many:,} distinct values in a file" if one.too_many else missing[0]
            return False, f"no: {shown}; {len(missing)} of {len(one.files)} files would not be indexed"
        if self.queries and not saved.queries:
            return False, "no: no query asks for it in a way that bitmaps answer"
        if saved.bytes >= WORTH:
            shares = f"{100 * saved.files:.0f} % of files, {100 * saved.groups:.0f} % of row groups"
            return True, f"yes: leaves out {shares} beyond column_stats"
        if saved.bounds > 0.5:
            return False, f"no: column_stats already prune it ({100 * saved.bounds:.0f} % of bytes)"
        if one.distinct <= 1:
            return False, "no: one value a file"
        return False, "no: its values are in nearly all row groups; counts and groups by it would come from the index"

    def _by_values(self, one: ColumnSample) -> _Saved:
        found = self.sample.equality(one.column.name)
        if found is None:
            return _Saved()
        bounds, bitmaps = found
        return _Saved(
            files=max(bounds.files - bitmaps.files, 0.0),
            groups=max(bounds.groups - bitmaps.groups, 0.0),
            bytes=max(bounds.bytes - bitmaps.bytes, 0.0),
            bounds=1 - bounds.bytes,
        )

    # ------------------------------------------------------------------------------------------------------- queries

    def _by_queries(self, one: ColumnSample) -> _Saved:
        """The larger of what the column saves alone, and what it adds to all the others."""
        name = one.column.name
        every = frozenset(self.sample.columns)
        alone, nothing = self._left(frozenset([name])), self._left(frozenset())
        together, without = self._left(every), self._left(every - {name})
        saved = np.maximum(np.array(nothing) - np.array(alone), np.array(without) - np.array(together))
        asks = [any(column.name == name for column in query.columns) for query in self.queries]
        files, groups, size = saved.mean(axis=0).tolist()
        bounds = 1 - float(np.array(nothing)[asks, 2].mean()) if any(asks) else 0.0
        return _Saved(files=files, groups=groups, bytes=size, queries=sum(asks), bounds=bounds)

    def _left(self, indexed: frozenset[str]) -> list[npt.NDArray[np.float64]]:
        """Per query the shares of files, row groups and bytes that are read with bitmaps of some columns."""
        if indexed not in self._together:
            self._together[indexed] = [self._query_left(at, indexed) for at in range(len(self.queries))]
        return self._together[indexed]

    def _query_left(self, at: int, indexed: frozenset[str]) -> npt.NDArray[np.float64]:
        if not self._bounded:
            self._bounded = self._by_bounds()
        by_bitmaps = self.sample.groups_left(self.queries[at], indexed) if indexed else [None] * len(self.files)
        left, total = np.zeros(3), np.zeros(3)
        for sizes, bounded, own in zip(self.sample.group_bytes, self._bounded[at], by_bitmaps, strict=True):
            kept = bounded if own is None else bounded & own
            left += (kept.any(), kept.sum(), np.array(sizes)[kept].sum())
            total += (1, len(sizes), sum(sizes))
        shares: npt.NDArray[np.float64] = left / np.maximum(total, 1)
        return shares

    def _by_bounds(self) -> list[list[npt.NDArray[np.bool_]]]:
        """Per query and file the row groups that statistics leave."""
        found: list[list[npt.NDArray[np.bool_]]] = [[] for _ in self.queries]
        for base in self.files:
            with open_for_scan(self.snapshot.files.storage, self.snapshot.files.path(base.relative_path)) as source:
                rows = np.array(source.rows_per_group, np.int64)
                known = {}
                for column in dict.fromkeys(column for query in self.queries for column in query.columns):
                    stats = source.stats(column.path)
                    if stats is not None:
                        nulls = np.array(stats.null_count, np.int64)
                        known[column.name] = ColumnBounds(stats.minimum, stats.maximum, nulls, rows)
                for own, query in zip(found, self.queries, strict=True):
                    own.append(prune(query.predicate, lambda column, known=known: known.get(column.name), len(rows)))  # type: ignore[misc]
        return found
