"""Merge the records of log files when some of them are partial updates: per column, the row that has the value.

A block with the header ``IS_PARTIAL`` (Hudi's MERGE INTO, ``hoodie.spark.sql.merge.into.partial.updates``) has the
assigned columns only. Records of a key are merged one after the other, as ``PartialUpdateBufferedRecordMerger`` does
(Hudi 1.1.1): the winner's columns stay, and those that it lacks come from the other record. With event time a later
record that loses fills gaps as well, so a column's value need not be that of the largest ordering value which has it.
A delete takes no columns from the record that it beats, nor does a row from a delete.

One block at a time is merged, as arrays over the keys. Columns that the same blocks have share one array.

Memory: a number for each key and group of columns, besides the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lakedex.types import BoolArray, IntArray

__all__ = ["LogRecords", "MergedRecords", "merge_records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecords:
    """Records of log files, oldest first, an entry for each.

    Attributes:
        codes: number of its key.
        row: its row among all rows; -1 for one of a delete block.
        deleted: whether it is a delete.
        final: whether it is a delete of commit time.
        rank: the place of its ordering values in the order of all; None merges by commit time.
        block: number of its batch, ascending.
        columns: for each batch, which columns it has.
    """

    codes: IntArray
    row: IntArray
    deleted: BoolArray
    final: BoolArray
    rank: IntArray | None
    block: IntArray
    columns: BoolArray


@dataclass(slots=True)
class MergedRecords:
    """The merged record of each key.

    Attributes:
        winner: the record that decides over deletion and ordering values.
        whole: whether the row has all columns, needed or not.
        group: for each column the number of its group.
        source: for each group of columns and key the row with the values; -1 where no record has them.
        orphans: by commit time, keys of which a partial update came after a delete.
    """

    winner: IntArray
    whole: BoolArray
    group: IntArray
    source: IntArray
    orphans: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        self.orphans = np.zeros(len(self.winner), bool)


def merge_records(records: LogRecords, keys: int, whole: BoolArray) -> MergedRecords:
    """Merge the records of each key.

    Args:
        records: the records.
        keys: how many keys there are.
        whole: for each batch, whether its rows have all columns.
    """
    patterns, group = np.unique(records.columns, axis=1, return_inverse=True)
    group = group.reshape(-1)
    none = np.full(keys, -1, np.int64)
    merged = MergedRecords(none, np.zeros(keys, bool), group, np.full((patterns.shape[1], keys), -1, np.int64))
    for entries in _rounds(records):
        has = patterns[records.block[entries[0]]]
        _merge(merged, records, entries, has, bool(whole[records.block[entries[0]]]))
    return merged


def _rounds(records: LogRecords) -> Iterator[IntArray]:
    """Entries of one batch and of distinct keys, in an order that keeps the records of a key in theirs."""
    bounds = np.flatnonzero(np.diff(records.block, prepend=-1))
    for start, end in zip(bounds, [*bounds[1:], len(records.block)], strict=True):
        codes = records.codes[start:end]
        order = np.argsort(codes, kind="stable")
        begins = np.flatnonzero(np.diff(codes[order], prepend=-1))
        turn = np.arange(len(codes)) - np.repeat(begins, np.diff([*begins, len(codes)]))
        by_turn = np.argsort(turn, kind="stable")
        yield from np.split(start + order[by_turn], np.cumsum(np.bincount(turn))[:-1])


def _merge(merged: MergedRecords, records: LogRecords, entries: IntArray, has: BoolArray, whole: bool) -> None:
    """Merge records of distinct keys into what is there."""
    codes = records.codes[entries]
    old = merged.winner[codes]
    known = old >= 0
    was_deleted, was_final = known & records.deleted[old], known & records.final[old]
    deleted, final, row = records.deleted[entries], records.final[entries], records.row[entries]
    wins = np.ones(len(entries), bool)
    if records.rank is not None:
        newer = records.rank[entries] >= records.rank[old]
        # deltaMergeDeleteRecord: after a delete of commit time one with an ordering value changes nothing.
        wins = ~known | final | np.where(was_final, row >= 0, newer)
    both = known & ~was_deleted & ~deleted
    alone, over, under = wins & ~both, wins & both, ~wins & both & ~merged.whole[codes]
    merged.orphans[codes] = (was_deleted | merged.orphans[codes]) & ~deleted & (not whole)
    for number, present in enumerate(has):
        source = merged.source[number]
        before = source[codes]
        after = np.where(alone, row if present else -1, before)
        if present:
            after = np.where(over | (under & (before < 0)), row, after)
        source[codes] = after
    merged.whole[codes] = np.where(alone, whole, merged.whole[codes] | (both & whole))
    merged.winner[codes[wins]] = entries[wins]
