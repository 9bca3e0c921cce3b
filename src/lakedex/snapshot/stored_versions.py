"""The stored versions of some keys in one file slice: where they lie, whether they live, and what a write has to beat.

A writer of log files has to know them. A record may name the row of the base file that it is for; a delete carries the
ordering value of the row that it deletes; and a key that a log file has deleted is not in the table, though the base
file has it.

A write asks twice, to tag the keys and to write the records: where both are in one process, the log records are kept.

Memory: the asked keys, their rows in the needed columns, one batch of the base file, and the slice's log records; kept
are up to 32 MiB.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import FileSlice
from lakedex.parquet.base_file_reader import iter_base_file
from lakedex.parquet.conform import conform_stored
from lakedex.snapshot.merge_on_read import MergedLog, MergeSettings, load_log
from lakedex.snapshot.ordering_values import compare, sortable
from lakedex.types import RECORD_KEY, BoolArray, IntArray

__all__ = ["StoredVersions", "stored_versions"]


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The versions of some keys that a slice has, an entry for each key.

    Attributes:
        position: the key's row in the base file, counted over the whole file; -1 where it has none.
        live: whether the slice has a row of the key.
        known: whether it has any version of it, a deleted one too.
        repeated: whether the base file has several rows of the key.
        log_loses: whether the base file's row counts though log files have records of the key.
        rows: ordering columns, and others that were asked for, of the live row; null where there is none.
        bound: the ordering values, as ``sortable`` gives them, that a new row must not be below: those of the live row,
            or of the deleted one.
        merges_partially: whether the slice's log files have partial updates, of any key.
    """

    position: IntArray
    live: BoolArray
    known: BoolArray
    repeated: BoolArray
    log_loses: BoolArray
    rows: pa.Table
    bound: list[pa.Array]
    merges_partially: bool = False


def stored_versions(
    files: TableFiles, item: FileSlice, keys: pa.Array, merge: MergeSettings, columns: Sequence[str] = ()
) -> StoredVersions:
    """Look some keys up in a slice.

    Args:
        files: the table's files.
        item: the slice.
        keys: distinct keys.
        merge: of the table.
        columns: columns of the live rows to read, besides those that order them.
    """
    names = list(dict.fromkeys([*merge.ordering_fields, *(name for name in columns if name in merge.schema.names)]))
    schema = pa.schema([merge.schema.field(name) for name in names])
    position, repeated, base = _in_base(files, item, keys, schema)
    log = _KEPT.log(files, item, schema, merge) if item.log_files else MergedLog(schema, merge.ordering_fields)
    return _merged(keys, position, repeated, base, log)


@dataclass(slots=True)
class _KeptLogs:
    """Log records of slices that were read last; a log file never changes but for its size.

    Attributes:
        most: bytes that are kept at most.
    """

    most: int
    _size: int = 0
    _logs: OrderedDict[Hashable, tuple[MergedLog, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def log(self, files: TableFiles, item: FileSlice, schema: pa.Schema, merge: MergeSettings) -> MergedLog:
        """The records of a slice. Who gets them does not merge base rows with them, which would mark them."""
        key = files.base_path, item.log_files, tuple(schema.names), merge
        with self._lock:
            if key in self._logs:
                self._logs.move_to_end(key)
                return self._logs[key][0]
        log = load_log(files, item, schema, merge)
        size = sum(part.nbytes for part in (log.keys, log.rows, *log.ordering) if part is not None) + 16 * len(log.row)
        with self._lock:
            if size <= self.most and key not in self._logs:
                self._logs[key] = log, size
                self._size += size
            while self._size > self.most:
                self._size -= self._logs.popitem(last=False)[1][1]
        return log


_KEPT = _KeptLogs(32 << 20)


def _in_base(
    files: TableFiles, item: FileSlice, keys: pa.Array, schema: pa.Schema
) -> tuple[IntArray, BoolArray, pa.Table]:
    """Position of each key's first row in the base file, whether there are more, and that row."""
    position, repeated = np.full(len(keys), -1, np.int64), np.zeros(len(keys), bool)
    found: list[pa.RecordBatch] = []
    places: list[IntArray] = []
    read = schema if RECORD_KEY in schema.names else schema.append(pa.field(RECORD_KEY, pa.string()))
    base, start = item.base_file, 0
    path = "" if base is None else files.path(base.relative_path)
    for batch in () if base is None else iter_base_file(files.storage, path, read.names, size=base.size):
        stored = conform_stored(batch, read)
        code = pc.index_in(stored.column(stored.schema.get_field_index(RECORD_KEY)), value_set=keys)
        rows = np.flatnonzero(code.is_valid().to_numpy(zero_copy_only=False))
        codes = code.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        new, first = np.unique(codes, return_index=True)
        again = np.bincount(codes, minlength=len(keys)) > 1
        again[new] |= position[new] >= 0
        repeated |= again
        first = first[position[new] < 0]
        position[codes[first]] = start + rows[first]
        found.append(stored.take(pa.array(rows[first])).select(schema.names))
        places.append(codes[first])
        start += batch.num_rows
    order = np.concatenate([*places, np.zeros(0, np.int64)])
    row_of = np.full(len(keys), -1, np.int64)
    row_of[order] = np.arange(len(order))
    table = pa.Table.from_batches(found, schema) if len(schema) else pa.table({"": pa.nulls(len(order))}).select([])
    return position, repeated, _taken(table, row_of)


def _merged(keys: pa.Array, position: IntArray, repeated: BoolArray, base: pa.Table, log: MergedLog) -> StoredVersions:
    in_base = position >= 0
    if log.keys is None:
        none, bound = np.zeros(len(keys), bool), _sortable(base, log.ordering_fields)
        return StoredVersions(position, in_base, in_base, repeated, none, base, bound)
    place = pc.index_in(keys, value_set=log.keys)
    in_log = place.is_valid().to_numpy(zero_copy_only=False)
    at = place.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    theirs = _sortable(base, log.ordering_fields)
    ours = [column.take(pa.array(at)) for column in log.ordering]
    wins = in_log & (~in_base | log.final[at] | (compare(theirs, ours, len(keys)) <= 0))
    dead = wins & log.deleted[at]
    # After a delete that beats all versions the base row is still there to come back, should the next row be below it.
    by_log = wins & ~(dead & log.final[at])
    bound = [_either(by_log, mine, stored) for mine, stored in zip(ours, theirs, strict=True)]
    live = (in_base | in_log) & ~dead
    rows = base
    if log.rows is not None and len(base.schema):
        from_log = _taken(log.rows, np.where(wins & ~dead, log.row[at], -1))
        columns = [
            _either(wins & ~(log.lacks[name][at] & ~dead) if name in log.lacks else wins, *map(_whole, both))
            for name, *both in zip(base.schema.names, from_log.columns, base.columns, strict=True)
        ]
        rows = pa.table(columns, schema=base.schema)
    partially = log.partial is not None
    return StoredVersions(position, live, in_base | in_log, repeated, in_log & ~wins, rows, bound, partially)


def _either(first: BoolArray, one: pa.Array, other: pa.Array) -> pa.Array:
    """Values of ``one`` where ``first`` says so, of ``other`` elsewhere; of any type."""
    rows = np.arange(len(first))
    both = pa.chunked_array([one, other.cast(one.type)])
    return both.take(pa.array(np.where(first, rows, rows + len(first)))).combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _taken(table: pa.Table, rows: IntArray) -> pa.Table:
    """Rows of a table, null where the number is -1."""
    wanted = pa.array(rows, pa.int64(), mask=rows < 0)
    columns = [column.combine_chunks().take(wanted) for column in table.columns]
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in table.schema]))


def _sortable(rows: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    return [sortable(rows.column(name).combine_chunks()) for name in names]
