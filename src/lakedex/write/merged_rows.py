"""Write the rows that a merge changes, whoever worked them out: ``Table.merge``'s join, or a statement of Spark SQL.

Each row comes with its action, the place of the stored row that it is for, and a number of its source row. Stored rows
need no look-up, since their file is known; the keys of new and moved rows are looked up, and must not be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.commit.transaction import WriteContext
from lakedex.commit.write_preconditions import has_global_index
from lakedex.engine import Engine, Frame
from lakedex.errors import InvalidInputError
from lakedex.layout.keys import KeyGenerator
from lakedex.options import WriteOptions
from lakedex.parquet.conform import conform
from lakedex.reports import WriteResult
from lakedex.snapshot.partitions import key_generator
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.keyed_rows import (
    ACTION,
    KEY_COLUMNS,
    LOCATED,
    PARTITION,
    POSITION,
    Duplicates,
    RowAction,
    refuse_misfits,
    require_values,
)
from lakedex.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakedex.write.operations import prepared_frame
from lakedex.write.pipeline import run_write
from lakedex.write.spec import KeyedFrame, Lookup, MergeSpec

__all__ = ["MergedRows", "PrepareMerged", "write_merged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRows:
    """Rows that a merge has worked out on one state of a table.

    Attributes:
        rows: a frame of the engine: ``ACTION``, ``POSITION``, the record key, partition path and file name of the
            stored row (null for new rows), then the table's columns with their new values.
        snapshot: that state.
        table: the table's name in errors.
        duplicates: ``ALLOW`` lets several source rows delete one row; nothing lets them change it.
        joined: the rows come from more of the table than the partitions that they are in, so that any commit in
            between may have changed them.
        new_keys_known: a new row's key is known not to be in its partition.
        assigned: columns that updates set; None for all.
    """

    rows: Any
    snapshot: Snapshot
    table: str
    duplicates: Duplicates
    joined: bool = True
    new_keys_known: bool = False
    assigned: frozenset[str] | None = None


def write_merged(handle: TableContext, merged: MergedRows, options: WriteOptions, ctx: WriteContext) -> WriteResult:
    """Write the rows of a merge in one commit.

    Raises:
        CommitConflictError: another commit came since the rows were worked out. They can be written again after a
            compaction, which changes no row, else only be worked out again.
        InvalidInputError: a changed record key, a new row whose key is stored, several source rows for one row.
    """
    snapshot = merged.snapshot
    keys = key_generator(snapshot.config, snapshot)
    with prepared_frame(handle, merged.rows, PrepareMerged(snapshot.schema, keys, merged.table)) as frame:
        tally, in_table = _tally(handle.engine, frame), has_global_index(snapshot.config, options.table)
        known = merged.new_keys_known or not keys.record_key
        looks_up = tally.moved > 0 or (tally.inserted > 0 and not known)
        scope = Lookup.BY_KEY if in_table else Lookup.BY_PARTITION
        spec = MergeSpec(
            rows=KeyedFrame(frame=frame, base=snapshot, schema=snapshot.schema, keys=keys),
            lookup=scope if looks_up else Lookup.NONE,
            duplicates=merged.duplicates,
            read_at=snapshot.last_completion_time,
            located=tally.stored,
            joined=in_table or merged.joined,
            assigned=merged.assigned,
        )
        result = run_write(handle, spec, options, ctx)
    if result.instant is None:
        return result
    moved = tally.moved
    return replace(
        result,
        # One source row that moves several rows to one place leaves one there.
        inserted=min(result.inserted, tally.inserted),
        deleted=result.deleted - moved,
        updated=result.updated + moved,
        notes=(*result.notes, *([f"{moved} rows moved to another partition"] if moved else [])),
    )


@dataclass(frozen=True, slots=True)
class PrepareMerged:
    """Rows of a merge with the key and partition path that they are written under.

    A row whose new values belong to another partition becomes two: it leaves the one and enters the other.
    """

    table_schema: pa.Schema
    keys: KeyGenerator
    table: str

    @property
    def schema(self) -> pa.Schema:
        """Key columns, action and base file, then the table's."""
        return pa.schema(
            [
                *KEY_COLUMNS,
                (ACTION, pa.int32()),
                (LOCATED, pa.string()),
                *self.table_schema,
            ]
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Prepare one task's rows."""
        for batch in batches:
            refuse_misfits(batch, self.table)
            actions = batch.column(batch.schema.get_field_index(ACTION)).to_numpy()
            for action in np.unique(actions):
                yield from self._prepared(RowAction(int(action)), batch.filter(pa.array(actions == action)))

    def _prepared(self, action: RowAction, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = conform(batch, self.table_schema)
        key, path, file, position = (
            batch.column(batch.schema.get_field_index(name))
            for name in (RECORD_KEY, PARTITION_PATH, FILE_NAME, POSITION)
        )
        none = pa.nulls(batch.num_rows, pa.string())
        if not action.is_delete:
            require_values(rows, self.keys.record_key, self.table, self.keys.keys(rows))
        if action is RowAction.INSERT:
            yield self._batch(action, self.keys.keys(rows), self.keys.partition_paths(rows), position, none, rows)
        elif action is not RowAction.REPLACE:
            yield self._batch(action, key, path, position, file, rows)
        else:
            if self.keys.record_key:
                self._require_same_key(key, self.keys.keys(rows))
            paths = self.keys.partition_paths(rows)
            moved = pc.not_equal(path, paths)
            stays = pc.invert(moved)
            yield self._batch(RowAction.UPDATE, key, path, position, file, rows).filter(stays)
            yield self._batch(RowAction.MOVE_OUT, key, path, position, file, rows).filter(moved)
            yield self._batch(RowAction.MOVE_IN, key, paths, position, none, rows).filter(moved)

    def _require_same_key(self, stored: pa.Array, new: pa.Array) -> None:
        other = pc.invert(pc.fill_null(pc.equal(stored, new), False))
        count = pc.sum(other).as_py() or 0
        if count:
            place = pc.index(other, True).as_py()
            fields = ", ".join(self.keys.record_key)
            raise InvalidInputError(
                f"table {self.table}: {fields} is the record key and cannot be updated; DELETE the row and INSERT it "
                f"again, or leave the column out of SET ({count} rows, for example {stored[place].as_py()!r} to "
                f"{new[place].as_py()!r})",
                column=fields,
                count=count,
            )

    def _batch(
        self,
        action: RowAction,
        keys: pa.Array,
        paths: pa.Array,
        positions: pa.Array,
        files: pa.Array,
        rows: pa.RecordBatch,
    ) -> pa.RecordBatch:
        actions = pa.array(np.full(rows.num_rows, int(action), np.int32))
        return pa.RecordBatch.from_arrays([keys, paths, positions, actions, files, *rows.columns], schema=self.schema)


@dataclass(frozen=True, slots=True)
class _Tally:
    """Rows by action: how many are inserted, moved, and stored in each partition."""

    inserted: int
    moved: int
    stored: Mapping[str, int]


def _tally(engine: Engine, frame: Frame) -> _Tally:
    counts = engine.collect(engine.map(frame, _CountActions())).to_pylist()
    stored: dict[str, int] = {}
    for row in counts:
        if not RowAction(row[ACTION]).is_new:
            stored[row[PARTITION]] = stored.get(row[PARTITION], 0) + row["rows"]
    inserted = sum(row["rows"] for row in counts if row[ACTION] == RowAction.INSERT)
    moved = sum(row["rows"] for row in counts if row[ACTION] == RowAction.MOVE_IN)
    return _Tally(inserted, moved, stored)


@dataclass(frozen=True, slots=True)
class _CountActions:
    """Rows by action and partition path, of each batch."""

    @property
    def schema(self) -> pa.Schema:
        """(action, partition, rows)."""
        return pa.schema([(ACTION, pa.int32()), (PARTITION, pa.string()), ("rows", pa.int64())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's."""
        for batch in batches:
            table = pa.table([batch.column(3), batch.column(1)], names=[ACTION, PARTITION])
            counts = table.group_by([ACTION, PARTITION]).aggregate([([], "count_all")])
            yield from counts.rename_columns([ACTION, PARTITION, "rows"]).cast(self.schema).to_batches()
