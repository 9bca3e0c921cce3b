"""Rows of one file group: which of them count, and how they meet the rows that the group's base file has.

``HoodieMergeHandle`` in arrays. A row of the base file keeps its place; an updated one is replaced where it stands;
new rows follow at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.layout.conform import conform
from lakedex.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakedex.write.prepare import KEY, PARTITION, POSITION

__all__ = ["SOFT_DELETE", "IncomingRows", "MergeRules"]

SOFT_DELETE = "_hoodie_is_deleted"
"""A boolean column of the table whose true rows are deletes (``HoodieRecord.HOODIE_IS_DELETED_FIELD``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """What an incoming row does.

    Attributes:
        ordering: the ordering field; None for commit-time order.
        insert_new: rows without a stored partner are inserted.
        combine: of several incoming rows with one key only the newest counts.
        delete_all: every incoming row is a delete.
        always_win: incoming rows win whatever the ordering value (``update``, ``delete``).
        match_stored: incoming rows meet stored rows of the same key; ``insert`` only adds.
    """

    ordering: str | None = None
    insert_new: bool = True
    combine: bool = True
    delete_all: bool = False
    always_win: bool = False
    match_stored: bool = True


@dataclass(slots=True)
class IncomingRows:
    """The incoming rows of one group, in memory, and what became of them."""

    rows: pa.RecordBatch
    rules: MergeRules
    schema: pa.Schema
    instant: str
    file_name: str
    seqno_prefix: str
    updated: int = 0
    deleted: int = 0
    matched: npt.NDArray[np.bool_] = field(init=False)
    _keys: pa.Array = field(init=False)
    _deletes: npt.NDArray[np.bool_] = field(init=False)
    _ordering: pa.Array | None = field(init=False)
    _written: pa.RecordBatch | None = field(init=False, default=None)
    _sequence: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.rules.combine:
            self.rows = newest_per_key(self.rows, self.rules.ordering)
        self._keys = self.rows.column(self.rows.schema.get_field_index(KEY))
        self.matched = np.zeros(self.rows.num_rows, bool)
        self._deletes = _delete_mask(self.rows, self.rules)
        self._ordering = _ordering_of(self.rows, self.rules.ordering)

    def _as_stored(self) -> pa.RecordBatch:
        """Incoming rows in the file's schema, meta columns filled (not needed when all are deletes)."""
        if self._written is None:
            count = self.rows.num_rows
            numbers = pa.array(np.arange(count)).cast(pa.string())
            fixed = {
                COMMIT_TIME: pa.repeat(pa.scalar(self.instant), count),
                COMMIT_SEQNO: pc.binary_join_element_wise(pa.scalar(self.seqno_prefix), numbers, ""),
                RECORD_KEY: self._keys,
                PARTITION_PATH: self.rows.column(self.rows.schema.get_field_index(PARTITION)),
                FILE_NAME: pa.repeat(pa.scalar(self.file_name), count),
            }
            columns = [
                fixed[f.name] if f.name in fixed else self.rows.column(self.rows.schema.get_field_index(f.name))
                for f in self.schema
            ]
            self._written = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return self._written

    def merge(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """One batch of the base file as it is after this write."""
        stored = conform(stored, self.schema)
        position = self.schema.get_field_index(FILE_NAME)
        names = pa.repeat(pa.scalar(self.file_name), stored.num_rows)
        stored = stored.set_column(position, self.schema.field(position), names)
        if not self.rules.match_stored:
            return stored
        partner = pc.index_in(stored.column(self.schema.get_field_index(RECORD_KEY)), value_set=self._keys)
        if partner.null_count == len(partner):
            return stored
        found = partner.is_valid().to_numpy(zero_copy_only=False)
        partners = partner.fill_null(0).to_numpy().astype(np.int64)
        self.matched[partners[found]] = True
        wins = found & self._wins(stored, partner)
        gone = wins & self._deletes[partners]
        replaced = wins & ~gone
        self.deleted += int(gone.sum())
        self.updated += int(replaced.sum())
        if not replaced.any():
            return stored.filter(pa.array(~gone)) if gone.any() else stored
        take = np.where(replaced, partners + stored.num_rows, np.arange(stored.num_rows))[~gone]
        both = pa.Table.from_batches([stored, self._as_stored()]).combine_chunks()
        return both.take(pa.array(take)).combine_chunks().to_batches()[0] if len(take) else stored.slice(0, 0)

    def _wins(self, stored: pa.RecordBatch, partner: pa.Array) -> npt.NDArray[np.bool_]:
        """Where the incoming row is not older than the stored one (``DefaultHoodieRecordPayload``)."""
        if self._ordering is None or self.rules.always_win:
            return np.ones(stored.num_rows, bool)
        ours = self._ordering.take(partner.fill_null(0))
        theirs = comparable(stored.column(self.schema.get_field_index(str(self.rules.ordering))))
        wins = pc.or_(pc.greater_equal(ours, theirs).fill_null(False), pc.is_null(theirs))
        return np.asarray(wins.to_numpy(zero_copy_only=False), dtype=bool)

    def inserts(self) -> pa.RecordBatch:
        """Rows that no stored row answered to, deletes left out. Call once, after the last :meth:`merge`."""
        if not self.rules.insert_new:
            return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in self.schema], schema=self.schema)
        fresh = ~self.matched & ~self._deletes
        written = self._as_stored()
        return written if fresh.all() else written.filter(pa.array(fresh))


def _delete_mask(rows: pa.RecordBatch, rules: MergeRules) -> npt.NDArray[np.bool_]:
    if rules.delete_all:
        return np.ones(rows.num_rows, bool)
    position = rows.schema.get_field_index(SOFT_DELETE)
    if position >= 0 and pa.types.is_boolean(rows.schema.field(position).type):
        return np.asarray(rows.column(position).fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
    return np.zeros(rows.num_rows, bool)


def comparable(column: pa.Array) -> pa.Array:
    """An ordering column whose plain comparison is Java's.

    ``Double.compareTo`` has -0.0 before 0.0 and NaN after infinity, so floats become the integers that sort alike.
    """
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    places = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False))


def _ordering_of(rows: pa.RecordBatch, ordering: str | None) -> pa.Array | None:
    position = -1 if ordering is None else rows.schema.get_field_index(ordering)
    return None if position < 0 else comparable(rows.column(position))


def newest_per_key(rows: pa.RecordBatch, ordering: str | None) -> pa.RecordBatch:
    """One row a key: the largest ordering value, then the last position. Rows stay in the order of their positions."""
    if rows.num_rows < 2:
        return rows
    keys = rows.column(rows.schema.get_field_index(KEY))
    codes = pc.dictionary_encode(keys).indices
    if pc.max(codes).as_py() + 1 == rows.num_rows:
        return rows
    columns = {"code": codes}
    values = _ordering_of(rows, ordering)
    if values is not None:
        # A null ordering value is older than any.
        columns |= {"known": values.is_valid(), "ordering": values}
    columns["position"] = rows.column(rows.schema.get_field_index(POSITION))
    places = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns]).to_numpy()
    sorted_codes = codes.to_numpy()[places]
    last = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    return rows.take(pa.array(np.sort(places[last])))


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as a single one."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]


def by_group(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split a stream that is sorted by its first column (group number) into groups. Memory: one group's rows."""
    current = -1
    held: list[pa.RecordBatch] = []
    for batch in batches:
        numbers = batch.column(0).to_numpy()
        edges = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])) if len(numbers) else np.empty(0, np.int64)
        for start, end in zip(edges, np.append(edges[1:], len(numbers)), strict=True):
            if numbers[start] != current and held:
                yield current, one_batch(held)
                held = []
            current = int(numbers[start])
            held.append(batch.slice(start, end - start))
    if held:
        yield current, one_batch(held)
