"""The rows of one file slice under a condition: which columns and row groups are read, and what comes out.

Everything here pickles: a scan's threads, Spark tasks and Python data sources all read a slice by
:func:`iter_slice_rows`. Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.expr import ColumnBounds, columns_of, filter_rows, prune
from lakedex.expr.nodes import Column, Predicate
from lakedex.io.storage import Storage
from lakedex.layout.conform import conform_stored
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.row_groups import BaseFileReader, open_base_file
from lakedex.scan.merge_read import MergeSettings, iter_merged_slice
from lakedex.types import RECORD_KEY

__all__ = ["WHOLE", "Part", "ReadCount", "SliceReader", "iter_slice_rows"]

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a slice's row groups: number ``index`` of ``count`` equal ones, in row order."""

    index: int = 0
    count: int = 1


WHOLE = Part()


@dataclass(slots=True)
class ReadCount:
    """What reading took. Mutable: the reader adds to it.

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
    """What is read of each slice.

    Attributes:
        storage, base_path: the table.
        table_columns: columns of the table, meta columns first.
        names: columns of the result, in its order; none gives batches that only count rows.
        predicate: the condition; None for all rows.
        skipping: False reads all row groups.
        merge: how log files are merged; None for a table without any.
    """

    storage: Storage
    base_path: str
    table_columns: pa.Schema
    names: tuple[str, ...]
    predicate: Predicate | None = None
    skipping: bool = True
    merge: MergeSettings | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches."""
        return pa.schema([self.table_columns.field(name) for name in self.names])

    @property
    def needed(self) -> pa.Schema:
        """Columns that are read: those of the result whole, of others the leaves that the condition speaks of."""
        wanted = set(self.names)
        paths: dict[str, list[tuple[str, ...]]] = {}
        for column in [] if self.predicate is None else columns_of(self.predicate):
            paths.setdefault(column.path[0], []).append(column.path[1:])
        fields = []
        for field in self.table_columns:
            if field.name in wanted:
                fields.append(field)
            elif field.name in paths:
                fields.append(field.with_type(_with_paths(field.type, paths[field.name])))
        return pa.schema(fields)


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
    needed = reader.needed
    with open_base_file(reader.storage, f"{reader.base_path}/{item.base_file.relative_path}") as source:
        groups = _kept_groups(reader, source, part, seen)
        leaves = _leaf_names(needed, whole=reader.names)
        seen.bytes_read += source.bytes_of(leaves, groups)
        for stored in source.batches(leaves, groups, BATCH_ROWS):
            seen.rows += stored.num_rows
            batch = _matching(reader.predicate, conform_stored(stored, needed) if len(needed) else stored)
            seen.matched += batch.num_rows
            if batch.num_rows:
                yield batch.select(list(reader.names))


def _merged_rows(reader: SliceReader, item: FileSlice, part: Part, seen: ReadCount) -> Iterator[pa.RecordBatch]:
    """Rows of a slice with log files. It is read whole, as its first part: what a row group holds, a log may change."""
    if part.index:
        return
    if reader.merge is None:
        raise InvalidInputError(
            f"{reader.base_path}: {item.name} has log files, and no settings to merge them were given"
        )
    # Without any column a batch would not say how many rows it has.
    columns = [*reader.needed, *([] if len(reader.needed) else [reader.table_columns.field(RECORD_KEY)])]
    seen.bytes_read += item.size
    merged = iter_merged_slice(reader.storage, reader.base_path, item, pa.schema(columns), reader.merge)
    for stored in merged:
        seen.rows += stored.num_rows
        batch = _matching(reader.predicate, stored)
        seen.matched += batch.num_rows
        if batch.num_rows:
            yield batch.select(list(reader.names))


def _matching(predicate: Predicate | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch if predicate is None else batch.filter(filter_rows(predicate, batch))


def _kept_groups(reader: SliceReader, source: BaseFileReader, part: Part, seen: ReadCount) -> list[int]:
    own = range(
        source.row_groups * part.index // part.count,
        source.row_groups * (part.index + 1) // part.count,
    )
    kept = list(own)
    if reader.predicate is not None and reader.skipping and kept:
        mask = _row_group_mask(reader.predicate, source)
        kept = [group for group in own if mask[group]]
    seen.row_groups += len(kept)
    seen.row_groups_skipped += len(own) - len(kept)
    return kept


def _row_group_mask(predicate: Predicate, source: BaseFileReader) -> np.ndarray:
    """Row groups that may hold a matching row, by their own statistics."""
    rows = np.array(source.rows_per_group, np.int64)

    def bounds(column: Column) -> ColumnBounds | None:
        found = source.stats(column.path)
        if found is None:
            return None
        return ColumnBounds(found.minimum, found.maximum, np.array(found.null_count, np.int64), rows)

    return prune(predicate, bounds, len(rows))


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
