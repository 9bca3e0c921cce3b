"""Read the rows of one file slice under a condition: only the columns and row groups that are needed.

Everything here pickles: a scan's threads, Spark tasks and Python data sources all read a slice by
:func:`iter_slice_rows`.

Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.expr.evaluator import filter_rows
from lakedex.expr.nodes import Column
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.terms import BoundPredicate, equality_values
from lakedex.index.protocol import RowSelection
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import FileSlice
from lakedex.parquet.base_file_reader import BaseFileReader, FooterCache, open_for_scan
from lakedex.parquet.base_rows import BaseRows
from lakedex.parquet.conform import conform_stored
from lakedex.scan.late_materialization import BATCH_ROWS, LateMaterializer, SelectivityTracker
from lakedex.snapshot.merge_on_read import MergeSettings, iter_merged_slice
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import RECORD_KEY, BoolArray

__all__ = [
    "OPEN_COST",
    "PARTITION_BYTES",
    "WHOLE",
    "Part",
    "ReadCount",
    "SliceReader",
    "iter_slice_rows",
    "kept_row_groups",
    "packed",
    "reader_for",
]


PARTITION_BYTES = 64 << 20
"""Files of a partition together; a larger file is a partition of its own."""


OPEN_COST = 4 << 20
"""Cost of opening a file, in bytes (Spark's ``spark.sql.files.openCostInBytes``)."""


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a slice's row groups: number ``index`` of ``count`` equal ones, in row order."""

    index: int = 0
    count: int = 1


WHOLE = Part()


@dataclass(slots=True)
class ReadCount:
    """Cost of reading. Mutable: the reader adds to it.

    Attributes:
        rows: rows of the row groups that were read.
        matched: rows for which the condition is true.
        row_groups, row_groups_skipped: read, and skipped by their own statistics.
        bytes_read: stored size of the columns that were read, in bytes.
    """

    rows: int = 0
    matched: int = 0
    row_groups: int = 0
    row_groups_skipped: int = 0
    bytes_read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReader:
    """The columns and rows that are read of each slice.

    Attributes:
        files: the table's files.
        table_columns: columns of the table, meta columns first.
        names: columns of the result, in its order; none gives batches that only count rows.
        predicate: the condition; None for all rows.
        use_indexes: False reads all row groups.
        merge: how log files are merged; None for a table without any.
        selections: rows of some base files, by name, that may match.
        footers: those of base files that were read before; tasks begin with none.
        selectivity: whether reading the columns of the condition first has saved anything so far.
    """

    files: TableFiles
    table_columns: pa.Schema
    names: tuple[str, ...]
    predicate: BoundPredicate | None = None
    use_indexes: bool = True
    merge: MergeSettings | None = None
    selections: Mapping[str, RowSelection] = field(default_factory=dict)
    footers: FooterCache | None = field(default=None, compare=False)
    selectivity: SelectivityTracker = field(default_factory=SelectivityTracker, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches."""
        return pa.schema([self.table_columns.field(name) for name in self.names])

    @property
    def needed(self) -> pa.Schema:
        """Columns that are read: those of the result whole, of others the leaves that the condition speaks of."""
        return self._columns(self.predicate)

    def _columns(self, predicate: BoundPredicate | None) -> pa.Schema:
        wanted = set(self.names)
        paths: dict[str, list[tuple[str, ...]]] = {}
        for named in () if predicate is None else predicate.columns:
            paths.setdefault(named.path[0], []).append(named.path[1:])
        fields = []
        for column in self.table_columns:
            if column.name in wanted:
                fields.append(column)
            elif column.name in paths:
                fields.append(column.with_type(_with_paths(column.type, paths[column.name])))
        return pa.schema(fields)

    def for_file(
        self, base_file: str, rows_per_group: Sequence[int]
    ) -> tuple[BoundPredicate | None, pa.Schema, RowSelection | None]:
        """The predicate that is left for a file, the columns that are read for it, and its rows where they are known.

        Positions in a file of other row groups than the index knows mean nothing.
        """
        selection = self.selections.get(base_file) if self.use_indexes else None
        if selection is not None and not selection.is_of(rows_per_group):
            selection = None
        predicate = None if selection is not None and selection.is_exact else self.predicate
        return predicate, self._columns(predicate), selection


def reader_for(
    snapshot: Snapshot,
    predicate: BoundPredicate | None,
    names: Sequence[str],
    *,
    use_indexes: bool = True,
    selections: Mapping[str, RowSelection] | None = None,
) -> SliceReader:
    """The reader of a snapshot's slices.

    Args:
        snapshot: the table.
        predicate: the condition; None for all rows.
        names: columns of the result.
        use_indexes: False reads all row groups.
        selections: rows of some base files that may match.
    """
    return SliceReader(
        files=snapshot.files,
        table_columns=read_columns(snapshot.schema),
        names=tuple(names),
        predicate=predicate,
        use_indexes=use_indexes,
        merge=MergeSettings.of(snapshot) if snapshot.view().table.has_logs.any() else None,
        selections=selections or {},
        footers=snapshot.cache.footers,
    )


def kept_row_groups(reader: SliceReader, item: FileSlice) -> tuple[int, ...] | None:
    """Row groups of a slice's base file that may hold a matching row; None for a slice that has to be merged."""
    if item.log_files or item.base_file is None:
        return None
    path = reader.files.path(item.base_file.relative_path)
    with open_for_scan(reader.files.storage, path, item.base_file.size, reader.footers) as source:
        predicate, _, selection = reader.for_file(item.base_file.name, source.rows_per_group)
        return tuple(_kept_groups(reader, predicate, selection, source, WHOLE, ReadCount()))


def iter_slice_rows(
    reader: SliceReader, item: FileSlice, part: Part = WHOLE, count: ReadCount | None = None
) -> Iterator[pa.RecordBatch]:
    """Matching rows of one slice, or of a part of it, in row order.

    Args:
        reader: what is wanted.
        item: a slice of the table.
        part: which of its row groups; :data:`WHOLE` for all.
        count: is added to as the batches are taken.

    Raises:
        UnsupportedFeatureError: log files that lakedex does not merge, or a condition that only Spark can evaluate.
    """
    seen = ReadCount() if count is None else count
    if item.log_files:
        yield from _merged_rows(reader, item, part, seen)
        return
    if item.base_file is None:
        return
    path = reader.files.path(item.base_file.relative_path)
    with open_for_scan(reader.files.storage, path, item.base_file.size, reader.footers) as source:
        predicate, needed, selection = reader.for_file(item.base_file.name, source.rows_per_group)
        groups = _kept_groups(reader, predicate, selection, source, part, seen)
        if reader.names and (predicate is not None or selection is not None):
            yield from _read_late(reader, predicate, needed, selection, source, groups, seen)
            return
        leaves = _leaf_names(needed, whole=reader.names)
        seen.bytes_read += source.bytes_of(leaves, groups)
        for stored in _selected(source.batches(leaves, groups, BATCH_ROWS), source, groups, selection, seen):
            batch = _matching(predicate, conform_stored(stored, needed) if len(needed) else stored)
            seen.matched += batch.num_rows
            if batch.num_rows:
                yield batch.select(list(reader.names))


def _read_late(
    reader: SliceReader,
    predicate: BoundPredicate | None,
    needed: pa.Schema,
    selection: RowSelection | None,
    source: BaseFileReader,
    groups: Sequence[int],
    seen: ReadCount,
) -> Iterator[pa.RecordBatch]:
    """Rows of the result that match, the columns of the condition read first."""
    asked = frozenset() if predicate is None else predicate.column_names
    if asked and not reader.selectivity.is_worthwhile:
        asked = frozenset(needed.names)
    # All rows of an exact selection match: what the condition demands of a column is what they have there.
    pinned = _pinned(reader.predicate, needed) if predicate is None and reader.predicate is not None else {}
    own = pa.schema([column for column in needed if column.name in asked])
    materializer = LateMaterializer(
        source=source,
        predicate=predicate,
        predicate_columns=own,
        predicate_leaves=_leaf_names(own, whole=reader.names),
        others=pa.schema([column for column in needed if column.name not in asked and column.name not in pinned]),
        pinned=pinned,
        schema=reader.schema,
        selectivity=reader.selectivity,
    )
    rows = source.rows_per_group
    starts = np.cumsum([0, *rows])
    mask = None if selection is None else selection.mask(source.num_rows)
    try:
        for group in groups:
            seen.rows += rows[group]
            wanted = None if mask is None else mask[starts[group] : starts[group + 1]]
            if wanted is None and predicate is not None and reader.use_indexes:
                wanted = _page_mask(predicate, source, group)
            for batch in materializer.rows(group, wanted):
                seen.matched += batch.num_rows
                yield batch
    finally:
        seen.bytes_read += materializer.bytes_read + source.page_bytes_read


def _pinned(predicate: BoundPredicate, columns: pa.Schema) -> dict[str, pa.Scalar]:
    """Columns of text for which a condition leaves one value. Equal text is the same text, unlike equal numbers."""
    found = {}
    for column in columns:
        # A dotted name may be that of a field too.
        if column.type == pa.string() and "." not in column.name:
            values = equality_values(predicate.predicate, column.name)
            if values is not None and len(values) == 1 and isinstance(values[0], str):
                found[column.name] = pa.scalar(values[0], column.type)
    return found


def _selected(
    batches: Iterable[pa.RecordBatch],
    source: BaseFileReader,
    groups: Sequence[int],
    selection: RowSelection | None,
    seen: ReadCount,
) -> Iterator[pa.RecordBatch]:
    """Rows of a selection. A batch may lie across row groups, but these follow each other in the order read."""
    if selection is None:
        for stored in batches:
            seen.rows += stored.num_rows
            yield stored
        return
    ends = np.cumsum([0, *source.rows_per_group])
    mask = selection.mask(source.num_rows)
    # One entry a row that is read, in the order of reading.
    wanted = np.concatenate([mask[:0], *(mask[ends[group] : ends[group + 1]] for group in groups)])
    first = 0
    for stored in batches:
        seen.rows += stored.num_rows
        own = wanted[first : first + stored.num_rows]
        first += stored.num_rows
        if own.any():
            yield stored.filter(pa.array(own))


def _merged_rows(reader: SliceReader, item: FileSlice, part: Part, seen: ReadCount) -> Iterator[pa.RecordBatch]:
    """Rows of a slice with log files, as its first part: what a row group holds, a log may change.

    Of the base file all rows are read, or those of a selection: they may match, or a log record is for them.
    """
    if part.index:
        return
    if reader.merge is None:
        raise InvalidInputError(f"{reader.files}: {item.name} has log files, and no settings to merge them were given")
    # Whole columns, as log records have them. Without any a batch would not say how many rows it has.
    columns = [reader.table_columns.field(name) for name in reader.needed.names or [RECORD_KEY]]
    selection = reader.selections.get(item.name) if reader.use_indexes else None
    if selection is None or item.base_file is None or selection.logs != tuple(log.name for log in item.log_files):
        seen.bytes_read += item.size
        rows = None
    else:
        groups = [selection.groups[number].size for number in selection.kept_groups()]
        seen.bytes_read += item.size - item.base_file.size + sum(groups)
        rows = BaseRows(selection.rows, tuple(group.rows for group in selection.groups))
    merged = iter_merged_slice(reader.files, item, pa.schema(columns), reader.merge, rows)
    for stored in merged:
        seen.rows += stored.num_rows
        batch = _matching(reader.predicate, stored)
        seen.matched += batch.num_rows
        if batch.num_rows:
            yield batch.select(list(reader.names))


def _matching(predicate: BoundPredicate | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch if predicate is None else batch.filter(filter_rows(predicate.predicate, batch))


def _kept_groups(
    reader: SliceReader,
    predicate: BoundPredicate | None,
    selection: RowSelection | None,
    source: BaseFileReader,
    part: Part,
    seen: ReadCount,
) -> list[int]:
    own = range(
        source.row_groups * part.index // part.count,
        source.row_groups * (part.index + 1) // part.count,
    )
    kept = list(own)
    if selection is not None:
        kept = sorted(set(own).intersection(selection.kept_groups()))
    if predicate is not None and reader.use_indexes and kept:
        mask = _row_group_mask(predicate, source)
        kept = [group for group in kept if mask[group]]
    seen.row_groups += len(kept)
    seen.row_groups_skipped += len(own) - len(kept)
    return kept


def _row_group_mask(predicate: BoundPredicate, source: BaseFileReader) -> np.ndarray:
    """Row groups that may hold a matching row, by their own statistics."""
    rows = np.array(source.rows_per_group, np.int64)

    def bounds(column: Column) -> ColumnBounds | None:
        found = source.stats(column.path)
        if found is None:
            return None
        return ColumnBounds(found.minimum, found.maximum, np.array(found.null_count, np.int64), rows)

    return prune(predicate.predicate, bounds, len(rows))


def _page_mask(predicate: BoundPredicate, source: BaseFileReader, group: int) -> BoolArray | None:
    """Rows of a row group that may match, by bounds of the pages of its columns; None if there are none."""
    known = set(source.schema.names)
    names = [named.path[0] for named in predicate.columns if len(named.path) == 1 and named.path[0] in known]
    pages = source.page_stats(names, group)
    if not pages:
        return None
    # Columns may be cut into pages in different places: the bounds of a page hold for each part of it.
    starts = np.unique(np.concatenate([first_rows for first_rows, _ in pages.values()]))
    rows = np.diff(starts, append=source.rows_per_group[group])

    def bounds(column: Column) -> ColumnBounds | None:
        if len(column.path) != 1 or column.path[0] not in pages:
            return None
        first_rows, found = pages[column.path[0]]
        page = np.searchsorted(first_rows, starts, "right") - 1
        page_rows = np.diff(first_rows, append=source.rows_per_group[group])[page]
        nulls = np.array(found.null_count, np.int64)[page]
        # Where in a page its nulls are is unknown, unless all of its values are.
        nulls = np.where(nulls == page_rows, rows, np.where(nulls == 0, 0, -1))
        places = pa.array(page)
        return ColumnBounds(found.minimum.take(places), found.maximum.take(places), nulls, rows)

    return np.repeat(prune(predicate.predicate, bounds, len(starts)), rows)


def _with_paths(kind: pa.DataType, paths: list[tuple[str, ...]]) -> pa.DataType:
    """A struct with only the fields on ``paths``; whole where a path ends."""
    if not all(paths) or not pa.types.is_struct(kind):
        return kind
    inner: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        inner.setdefault(path[0], []).append(path[1:])
    return pa.struct(
        [field.with_type(_with_paths(field.type, inner[field.name])) for field in kind if field.name in inner]
    )


def _leaf_names(schema: pa.Schema, whole: tuple[str, ...]) -> list[str]:
    """Columns; those that are not wanted ``whole`` as the dotted paths of their leaves."""
    found: list[str] = []

    def walk(prefix: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind) and kind.num_fields:
            for child in kind:
                walk(f"{prefix}.{child.name}", child.type)
        else:
            found.append(prefix)

    for column in schema:
        if column.name in whole:
            found.append(column.name)
        else:
            walk(column.name, column.type)
    return found


def packed(files: Sequence[FileSlice], wanted: int = 8) -> list[tuple[FileSlice, ...]]:
    """Slices in groups that are one task's work each: largest first, next fit.

    Args:
        files: the slices.
        wanted: least number of groups, if need be of small ones; a worker does not know how many cores there are.
    """
    total = sum(base.size + OPEN_COST for base in files)
    limit = min(PARTITION_BYTES, max(OPEN_COST, -(-total // wanted)))
    groups: list[list[FileSlice]] = []
    room = 0
    for base in sorted(files, key=lambda item: (-item.size, item.partition, item.name)):
        cost = base.size + OPEN_COST
        if not groups or cost > room:
            groups.append([])
            room = limit
        groups[-1].append(base)
        room -= cost
    return [tuple(group) for group in groups]
