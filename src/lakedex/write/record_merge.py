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

from lakedex.codec.bloom import BloomFilter, HashedKeys
from lakedex.errors import InvalidInputError
from lakedex.parquet.chunk_reuse import Changed, replaced_rows, unchanged_columns
from lakedex.parquet.conform import conform, constant_text, decode_dictionary, drop_unused_values, encode_like
from lakedex.tagging.keyed_rows import (
    DELETED_HERE,
    KEY,
    PARTITION,
    POSITION,
    STAYS_HERE,
    Duplicates,
    Effects,
    MergePolicy,
    RowAction,
    bool_column,
    comparable,
    delete_mask,
    moved_rows,
    ordering_values,
    precombine_rows,
    rows_of_action,
)
from lakedex.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY

__all__ = ["IncomingRows", "require_unique_keys"]


@dataclass(slots=True)
class IncomingRows:
    """The incoming rows of one group, in memory, and what became of them.

    Attributes:
        rows: those that count, once a key where the policy says that.
        policy: how they meet stored rows.
        schema: columns of the file that they go to, meta columns included.
        instant, file_name, seqno_prefix: for the meta columns.
        hashed: the keys, hashed, where that was done for several groups at once.
        updated, deleted, moved: how many stored rows they have changed so far.
        matched: rows that met a stored one.
        keys: their record keys.
        deletes: rows that delete.
        moves: how a global index moves each.
    """

    rows: pa.RecordBatch
    policy: MergePolicy
    schema: pa.Schema
    instant: str
    file_name: str
    seqno_prefix: str
    hashed: HashedKeys | None = None
    updated: int = 0
    deleted: int = 0
    moved: int = 0
    matched: npt.NDArray[np.bool_] = field(init=False)
    keys: pa.Array = field(init=False)
    _new: npt.NDArray[np.bool_] | None = field(init=False, default=None)
    deletes: npt.NDArray[np.bool_] = field(init=False)
    moves: npt.NDArray[np.int8] = field(init=False)
    _ordering: list[pa.Array] = field(init=False)
    _written: pa.RecordBatch | None = field(init=False, default=None)
    _sequence: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.policy.duplicates is Duplicates.DROP:
            given = self.rows
            self.rows = precombine_rows(given, self.policy.ordering)
            self.hashed = self.hashed if self.rows is given else None
        self.keys = self.rows.column(self.rows.schema.get_field_index(KEY))
        self.matched = np.zeros(self.rows.num_rows, bool)
        self.moves = moved_rows(self.rows)
        self.deletes = delete_mask(self.rows, self.policy.effects) | (self.moves == DELETED_HERE)
        if self.policy.effects is Effects.BY_ACTION:
            self._new = rows_of_action(self.rows, [action for action in RowAction if action.is_new])
        self._ordering = ordering_values(self.rows, self.policy.ordering)

    def growth(self, old: BloomFilter | None) -> int:
        """How many rows at most the file grows by, given the filter over the keys that it has."""
        if not self.policy.effects.inserts:
            return 0
        if old is None or not self.policy.effects.matches or not self.rows.num_rows:
            return int(self.rows.num_rows)
        known = old.probe(self.keys if self.hashed is None else self.hashed)
        return int((~known & ~self.deletes).sum())

    @property
    def has_deletes(self) -> bool:
        """Whether any of the rows may delete one."""
        return bool(self.deletes.any())

    def as_stored(self) -> pa.RecordBatch:
        """Incoming rows in the file's schema, meta columns filled (not needed when all are deletes)."""
        if self._written is None:
            count = self.rows.num_rows
            numbers = pa.array(np.arange(count)).cast(pa.string())
            fixed = {
                COMMIT_TIME: constant_text(self.instant, count),
                COMMIT_SEQNO: pc.binary_join_element_wise(pa.scalar(self.seqno_prefix), numbers, ""),
                RECORD_KEY: self.keys,
                PARTITION_PATH: self._payload(PARTITION),
                FILE_NAME: constant_text(self.file_name, count),
            }
            columns = [fixed[f.name] if f.name in fixed else self._payload(f.name) for f in self.schema]
            columns = [encode_like(c, f.type) for f, c in zip(self.schema, columns, strict=True)]
            self._written = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return self._written

    def _payload(self, name: str) -> pa.Array:
        return drop_unused_values(self.rows.column(self.rows.schema.get_field_index(name)))

    def changed(self, stored: pa.RecordBatch) -> Changed:
        """One batch of the base file as it is after this write."""
        stored = self._as_file(stored)
        every = frozenset(self.schema.names) - {FILE_NAME}
        if not self.policy.effects.matches:
            return Changed(stored, every)
        partner = pc.index_in(stored.column(self.schema.get_field_index(RECORD_KEY)), value_set=self.keys)
        if partner.null_count == len(partner):
            return Changed(stored, every)
        found = partner.is_valid().to_numpy(zero_copy_only=False)
        partners = partner.fill_null(0).to_numpy().astype(np.int64)
        self.matched[partners[found]] = True
        self.require_new(partners[found])
        wins = found & self._wins(stored, partner)
        gone = wins & self.deletes[partners]
        replaced, is_whole = wins & ~gone, not gone.any()
        self.deleted += int(gone.sum())
        self.moved += int((gone & (self.moves[partners] == DELETED_HERE)).sum())
        self.updated += int(replaced.sum())
        if not replaced.any():
            return Changed(stored, every) if is_whole else Changed(stored.filter(pa.array(~gone)), is_whole=False)
        take = np.where(replaced, partners + stored.num_rows, np.arange(stored.num_rows))[~gone]
        if not len(take):
            return Changed(stored.slice(0, 0), is_whole=False)
        stays = replaced & (self.moves[partners] == STAYS_HERE)
        same: frozenset[str] = frozenset()
        if is_whole:
            places = np.flatnonzero(replaced)
            same = unchanged_columns(stored, self.as_stored(), places, partners[places])
            if stays.any():
                same -= set(self.policy.partition_columns)
        merged = replaced_rows(stored, self.as_stored(), take, same | {FILE_NAME} if is_whole else same)
        merged = self._with_partition_of(merged, stored, stays, ~gone) if stays.any() else merged
        return Changed(merged, same, is_whole)

    def _as_file(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Stored rows in the new file's schema, its name in them."""
        position = stored.schema.get_field_index(FILE_NAME)
        if position >= 0:
            stored = stored.remove_column(position)
        names = set(self.schema.names)
        stored = stored.append_column(FILE_NAME, constant_text(self.file_name, stored.num_rows))
        fields = [self.schema.field(name) if name in names else None for name in stored.schema.names]
        columns = [c if f is None else encode_like(c, f.type) for f, c in zip(fields, stored.columns, strict=True)]
        stored = pa.RecordBatch.from_arrays(columns, names=stored.schema.names)
        return conform(stored, self.schema)

    def _with_partition_of(
        self,
        merged: pa.RecordBatch,
        stored: pa.RecordBatch,
        stays: npt.NDArray[np.bool_],
        left: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch:
        """Rows that stay in a partition that is not theirs, with its values: a row must not contradict its folder.

        Java's files have the incoming values there; its reader shows those of the folder.
        """
        chosen, mask = pa.array(stays[left]), pa.array(left)
        for name in self.policy.partition_columns:
            position = self.schema.get_field_index(name)
            if position >= 0:
                field = self.schema.field(position)
                theirs = decode_dictionary(stored.column(position)).filter(mask)
                values = pc.if_else(chosen, theirs, decode_dictionary(merged.column(position)))
                merged = merged.set_column(position, field, encode_like(values, field.type))
        return merged

    def require_new(self, met: npt.NDArray[np.int64]) -> None:
        """Refuse a row that a merge inserts and that ``met`` a stored one, by number.

        Raises:
            InvalidInputError: names its key.
        """
        known = met if self._new is None else met[self._new[met]]
        if self._new is not None and len(known):
            key = self.keys[int(known[0])].as_py()
            raise InvalidInputError(
                f"merge: {len(known)} rows to insert have a key that is in the table already, for example {key!r}",
                count=len(known),
            )

    def _wins(self, stored: pa.RecordBatch, partner: pa.Array) -> npt.NDArray[np.bool_]:
        """Where the incoming row is not older than the stored one (``DefaultHoodieRecordPayload``)."""
        wins = np.ones(stored.num_rows, bool)
        # From the last field to the first: an earlier one decides unless it is equal. Null is below every value.
        for ordering, name in reversed(list(zip(self._ordering, self.policy.ordering, strict=False))):
            ours = ordering.take(partner.fill_null(0))
            theirs = comparable(stored.column(self.schema.get_field_index(name)))
            known, present = bool_column(ours.is_valid()), bool_column(theirs.is_valid())
            greater = (known & ~present) | bool_column(pc.greater(ours, theirs))
            equal = (~known & ~present) | bool_column(pc.equal(ours, theirs))
            wins = greater | (equal & wins)
        return wins

    def inserts(self) -> pa.RecordBatch:
        """Rows that no stored row answered to, deletes left out. Call once, after the last :meth:`changed`."""
        if not self.policy.effects.inserts:
            return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in self.schema], schema=self.schema)
        fresh = ~self.matched & ~self.deletes
        if self._new is not None:
            fresh &= self._new
        written = self.as_stored()
        return written if fresh.all() else written.filter(pa.array(fresh))


def require_unique_keys(rows: pa.RecordBatch, duplicates: Duplicates, table: str) -> pa.RecordBatch:
    """The rows of a merge in one file group, once a key.

    One source row may come several times, where the table has several rows of its key.

    Raises:
        InvalidInputError: several source rows for one key, which do not all delete its row.
    """
    keys = rows.column(rows.schema.get_field_index(KEY))
    encoded = pc.dictionary_encode(keys)
    codes = encoded.indices.to_numpy()
    if len(encoded.dictionary) == rows.num_rows:
        return rows
    positions = rows.column(rows.schema.get_field_index(POSITION)).to_numpy()
    order = np.lexsort((positions, codes))
    first = np.append(True, codes[order][1:] != codes[order][:-1])
    another = first | np.append(True, positions[order][1:] != positions[order][:-1])
    if duplicates is Duplicates.ALLOW:
        another &= ~rows_of_action(rows, [RowAction.DELETE])[order]
    sources = np.bincount(codes[order][another])
    doubled = np.flatnonzero(sources > 1)
    if len(doubled):
        key = encoded.dictionary[int(doubled[0])].as_py()
        raise InvalidInputError(
            f"table {table}: {sources[doubled[0]]} rows of the merge's source go to the row with key {key!r} "
            f"({len(doubled)} such keys in its file group); leave one of each in the source, or narrow the conditions. "
            "Where the table itself has a key twice, delete it and insert it once",
            count=int(sources[doubled[0]]),
        )
    return rows.take(pa.array(np.sort(order[first])))


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as a single one."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]


def by_group(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split a stream that is sorted by its first column (group number) into groups. Memory: one group's rows."""
    current = -1
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        numbers = batch.column(0).to_numpy()
        edges = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])) if len(numbers) else np.empty(0, np.int64)
        for start, end in zip(edges, np.append(edges[1:], len(numbers)), strict=True):
            if numbers[start] != current and parts:
                yield current, one_batch(parts)
                parts = []
            current = int(numbers[start])
            parts.append(batch.slice(start, end - start))
    if parts:
        yield current, one_batch(parts)
