"""A key that is unique over the whole table: what becomes of each incoming row under ``GLOBAL_BLOOM``.

``HoodieIndexUtils.tagGlobalLocationBackToRecords`` and ``mergeForPartitionUpdatesAndDeletionsIfNeeded``. Of the rows of
one key in a batch the newest counts, whatever their partitions. It meets the copies of the key that are stored:

===================================  ====================================================================
stored copy                          what happens
===================================  ====================================================================
none                                 inserted in the row's own partition
in the row's own partition           updated in place
in another, partitions updated       deleted there, inserted in the row's own; nothing at all if the row is
                                     older than the copy, by the ordering field
in another, partitions kept          updated in place, in the old partition and with its partition columns
any, and the row is a delete         deleted where it lies, unless newer than the delete
===================================  ====================================================================

Keys that lie in several partitions already (a writer with another index made them) end as one row when partitions are
updated: all copies in other partitions go, and the row is inserted unless its own partition has it. Java inserts it
once for each copy, which leaves the same key twice. Where a row is older than any of the copies, none is touched.

Only keys, positions and ordering values are shuffled for this; the decisions are joined to the rows afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.engine import Engine, Frame
from lakedex.tagging.keyed_rows import (
    ACTION,
    DELETED_HERE,
    FILE,
    KEY,
    MOVE,
    PARTITION,
    POSITION,
    SOFT_DELETE,
    STAYS_HERE,
    Effects,
    MergePolicy,
    comparable,
    delete_mask,
)
from lakedex.tagging.tasks import STORED_ORDERING
from lakedex.types import BoolArray

__all__ = ["MatchedKeyPolicy", "resolve_global_keys"]


OWN = "__lakedex_own_partition"


ORDERING = "__lakedex_ordering"


DELETE = "__lakedex_is_delete"


DECISIONS = pa.schema([(POSITION, pa.int64()), (FILE, pa.int32()), (PARTITION, pa.string()), (MOVE, pa.int32())])


class MatchedKeyPolicy(StrEnum):
    """The fate of a row whose key is stored."""

    MOVE = "move"
    """Its copies in other partitions are deleted (``hoodie.bloom.index.update.partition.path``)."""
    STAY = "stay"
    """It is updated where it lies."""
    DROP = "drop"
    """It is left out."""


def resolve_global_keys(
    engine: Engine, frame: Frame, tags: Frame, policy: MergePolicy, known: MatchedKeyPolicy, files: int
) -> tuple[Frame, dict[str, int]]:
    """Decide over the rows of a batch.

    Args:
        engine: runs the stages.
        frame: prepared rows.
        tags: where their keys are, over all partitions.
        policy: which field orders rows, and which rows are deletes.
        known: what becomes of rows whose key is stored.
        files: how many candidates there were; higher numbers are of keys that log files have deleted, which are not
            stored: a row of such a key is new, and goes back to that file if it is in the row's own partition.

    Returns:
        (position, file number or -1 for an insert, partition path, ``DELETED_HERE``, ``STAYS_HERE`` or 0), for each row
        no or several decisions; and the number of inserts by partition path. The caller releases the frame.
    """
    known_fields = [frame.schema.field(name) for name in policy.ordering if name in frame.schema.names]
    thin = engine.map(frame, _Thin(policy.effects, known_fields[0] if known_fields else None))
    by_key = engine.exchange(engine.join(thin, tags, [KEY]), KEY, 4 * engine.parallelism, (POSITION,))
    decisions = engine.keep(engine.map(by_key, _Decide(known, files)))
    inserts: dict[str, int] = {}
    for row in engine.collect(engine.map(decisions, _Inserts())).to_pylist():
        inserts[row[PARTITION]] = inserts.get(row[PARTITION], 0) + row["rows"]
    return decisions, inserts


@dataclass(frozen=True, slots=True)
class _Thin:
    """Of each row what the decision needs."""

    effects: Effects
    ordering: pa.Field | None

    @property
    def reads(self) -> tuple[str, ...]:
        """Key columns, and those that say of a row that it is a delete, and its age."""
        own = () if self.ordering is None else (self.ordering.name,)
        return (KEY, PARTITION, POSITION, ACTION, SOFT_DELETE, *own)

    @property
    def schema(self) -> pa.Schema:
        columns = [(KEY, pa.string()), (OWN, pa.string()), (POSITION, pa.int64()), (DELETE, pa.bool_())]
        return pa.schema([*columns, *([] if self.ordering is None else [(ORDERING, self.ordering.type)])])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [*batch.columns[:3], pa.array(delete_mask(batch, self.effects))]
            if self.ordering is not None:
                columns.append(batch.column(batch.schema.get_field_index(self.ordering.name)))
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class _Decide:
    """Decide over rows that come sorted by key, each once for every copy. Memory: one batch and one key's rows."""

    known: MatchedKeyPolicy
    files: int
    schema: pa.Schema = field(default=DECISIONS)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest: pa.Table | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            table = table if rest is None else pa.concat_tables([rest, table])
            keys = table.column(KEY)
            # The rows of the last key may go on in the next batch.
            last = pc.index(pc.equal(keys, keys[-1]), True).as_py()
            rest = table.slice(last)
            if last:
                yield self._decided(table.slice(0, last))
        if rest is not None:
            yield self._decided(rest)

    def _decided(self, table: pa.Table) -> pa.RecordBatch:
        rows = _newest(table)
        files = _column(rows, FILE, pa.int32()).fill_null(-1).to_numpy()
        own, stored = _column(rows, OWN, pa.string()), _column(rows, PARTITION, pa.string())
        deletes = _flags(_column(rows, DELETE, pa.bool_()))
        is_known = (files >= 0) & (files < self.files)
        elsewhere = is_known & ~_flags(pc.equal(own, stored)) & ~deletes
        here, moved = is_known, np.zeros(len(files), bool)
        if self.known is MatchedKeyPolicy.DROP:
            here = moved
        elif self.known is MatchedKeyPolicy.MOVE:
            here, moved = _moves(rows, is_known, elsewhere)
        first = _first_of_key(rows)
        # An insert is decided once a key, at its first row.
        arrives = ~_any_of_key(first, is_known) | (_any_of_key(first, moved) & ~_any_of_key(first, here))
        arrives &= first & ~deletes
        stays = np.flatnonzero(here | moved)
        comes = np.flatnonzero(arrives)
        group = np.cumsum(first) - 1
        back = np.full(int(first.sum()), -1, files.dtype)
        again = (files >= self.files) & _flags(pc.equal(own, stored))
        back[group[again]] = files[again]
        return pa.RecordBatch.from_arrays(
            [
                _column(rows, POSITION, pa.int64()).take(pa.array(np.concatenate([stays, comes]))),
                pa.array(np.concatenate([files[stays], back[group[comes]]]), pa.int32()),
                pa.concat_arrays([stored.take(pa.array(stays)), own.take(pa.array(comes))]),
                pa.array(
                    np.concatenate([np.where(moved, DELETED_HERE, STAYS_HERE * elsewhere)[stays], comes * 0]),
                    pa.int32(),
                ),
            ],
            schema=DECISIONS,
        )


def _moves(rows: pa.Table, is_known: BoolArray, elsewhere: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Copies that are updated (or deleted by a delete) where they lie, and copies that go away for the row."""
    first = _first_of_key(rows)
    late = _any_of_key(first, is_known & ~_wins(rows)) & _any_of_key(first, elsewhere)
    return is_known & ~elsewhere & ~late, elsewhere & ~late


def _newest(table: pa.Table) -> pa.Table:
    """Of the rows of each key the newest, for all its copies: largest ordering value (null is least), last position."""
    columns: dict[str, pa.Array] = {"key": table.column(KEY)}
    if ORDERING in table.schema.names:
        values = comparable(_column(table, ORDERING, table.schema.field(ORDERING).type))
        columns |= {"known": values.is_valid(), "ordering": values}
    columns["position"] = table.column(POSITION)
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    table = table.take(order).combine_chunks()
    first = _first_of_key(table)
    ends = np.append(np.flatnonzero(first)[1:], len(first)) - 1
    positions = table.column(POSITION).to_numpy()
    return table.filter(pa.array(positions == positions[ends][np.cumsum(first) - 1]))


def _wins(rows: pa.Table) -> BoolArray:
    """Where the incoming row is not older than the copy; the rule of ``IncomingRows``."""
    if ORDERING not in rows.schema.names or STORED_ORDERING not in rows.schema.names:
        return np.ones(rows.num_rows, bool)
    kind = rows.schema.field(ORDERING).type
    ours, theirs = comparable(_column(rows, ORDERING, kind)), comparable(_column(rows, STORED_ORDERING, kind))
    return _flags(pc.or_(pc.greater_equal(ours, theirs).fill_null(False), pc.is_null(theirs)))


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    """A column as one array; nulls where the table lacks it."""
    if name not in table.schema.names:
        return pa.nulls(table.num_rows, kind)
    column = table.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _flags(values: pa.Array) -> BoolArray:
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def _first_of_key(table: pa.Table) -> BoolArray:
    """Where a key begins, in rows that are sorted by key."""
    keys = _column(table, KEY, pa.string())
    same = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)) if len(keys) else pa.array([], pa.bool_())
    return np.append(True, ~_flags(same)) if len(keys) else np.empty(0, bool)


def _any_of_key(first: BoolArray, flags: BoolArray) -> BoolArray:
    """For each row whether any row of its key is flagged."""
    if not len(first):
        return flags
    return np.repeat(
        np.logical_or.reduceat(flags, np.flatnonzero(first)), np.diff(np.append(np.flatnonzero(first), len(first)))
    )


@dataclass(frozen=True, slots=True)
class _Inserts:
    """How many rows of a task are inserted, by partition path."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(PARTITION, pa.string()), ("rows", pa.int64())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column(2).filter(pc.less(batch.column(1), 0))
            counts = pc.value_counts(paths)
            yield pa.RecordBatch.from_arrays(
                [counts.field("values"), counts.field("counts").cast(pa.int64())], schema=self.schema
            )
