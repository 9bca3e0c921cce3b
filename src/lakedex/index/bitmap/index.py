"""What one write does for the bitmap index: runs before its commit completes, names after it, a fold at the end.

A file without bitmaps is merely read by queries. So whatever fails here is a note of a write that succeeds, never the
end of it: rows are worth more than their index, and ``refresh_index`` makes up for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from lakedex.index.bitmap.builder import BitmapsBuilder, FileBitmaps, RowGroup
from lakedex.index.bitmap.compaction import fold_runs
from lakedex.index.bitmap.definitions import (
    add_new_names,
    bitmap_columns,
    read_bitmap_definitions,
    remove_old_names,
)
from lakedex.index.bitmap.pruning import Bitmaps
from lakedex.index.bitmap.runs import Run, TaskBitmaps, inline_limit, remove_runs_of, spill_bitmaps, write_runs
from lakedex.index.protocol import CollectContext, UnindexedBase
from lakedex.index.written_file import FinishedFile, WrittenFile
from lakedex.snapshot.snapshot import TableContext

__all__ = ["BitmapIndex", "BitmapUpkeep", "CollectBitmaps"]


BITMAPS = "bitmap"
"""The name of the bitmaps' part of a written file, whatever bitmap indexes the table has."""


class BitmapIndex(Bitmaps, UnindexedBase):
    """The bitmap indexes of a table, whose columns share their runs."""

    __slots__ = ()

    def collector(self, ctx: CollectContext) -> CollectBitmaps | None:
        """Collect the columns of all bitmap indexes that the table has."""
        columns = bitmap_columns(ctx.snapshot.storage, ctx.snapshot.base_path, ctx.schema, ctx.renames)
        return CollectBitmaps(columns, inline_limit(ctx.files)) if columns else None


@dataclass(frozen=True, slots=True)
class CollectBitmaps:
    """Collects the bitmaps of each file: :class:`TaskBitmaps`.

    Attributes:
        columns: each with the distinct values that it may have in a file.
        limit: bitmaps of a file that take more bytes are spilled.
    """

    columns: Mapping[str, int]
    limit: int

    @property
    def repeating(self) -> frozenset[str]:
        """All of them: what has bitmaps has few values."""
        return frozenset(self.columns)

    def begin(self, schema: pa.Schema) -> _FileBitmaps:
        """Begin a file."""
        return _FileBitmaps(BitmapsBuilder(self.columns, schema), self.limit)


@dataclass(slots=True)
class _FileBitmaps:
    """Bitmaps of one file; positions are those of the rows as they are written."""

    builder: BitmapsBuilder
    limit: int
    seconds: float = 0.0

    def add(self, batch: pa.RecordBatch, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        started = time.perf_counter()
        self.builder.add(batch)
        self.seconds += time.perf_counter() - started

    def finish(self, file: FinishedFile) -> TaskBitmaps:
        started = time.perf_counter()
        groups = tuple(RowGroup(*group) for group in file.summary.row_groups)
        found = FileBitmaps(
            partition=file.partition,
            file_id=file.file_id,
            base_file=file.name,
            rows=file.summary.rows,
            row_groups=groups,
            columns=self.builder.finish(groups),
        )
        seconds = self.seconds + time.perf_counter() - started
        return spill_bitmaps(found, partial(file.spill, "bitmaps"), self.limit, seconds)


@dataclass(slots=True)
class BitmapUpkeep:
    """The bitmaps of one write.

    Attributes:
        instant: the write's.
        size: bytes of the runs that it wrote.
        seconds: what bitmaps took, added up over tasks.
        notes: what did not go as it should.
    """

    handle: TableContext
    instant: str
    size: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    _started: bool = False

    def before_commit(self, results: Sequence[WrittenFile], renames: Mapping[str, str]) -> None:
        """Write the runs of a commit, and new names of columns into the definitions. Call under the table lock."""
        storage, base = self.handle.storage, self.handle.base_path
        found = [result.part(BITMAPS, TaskBitmaps) for result in results]
        held = [item for item in found if item is not None]
        self.seconds += sum(item.seconds for item in held)
        started = time.perf_counter()
        add_new_names(storage, base, renames)
        if not held or not read_bitmap_definitions(storage, base):
            return  # Dropped meanwhile.
        self._started = True
        try:
            label = f"lakedex {base}: writing bitmaps of {len(held)} files"
            runs = write_runs(storage, base, Run(self.instant, "commit", 0), held, self.handle.engine.run, label)
            self.size += sum(run.size for run in runs)
        except Exception as error:
            self.notes.append(
                f"bitmaps of {len(held)} files could not be written ({error}); queries read these files until "
                "refresh_index covers them"
            )
        self.seconds += time.perf_counter() - started

    def after_commit(self, before: pa.Schema, after: pa.Schema, renames: Mapping[str, str]) -> None:
        """Take names that the table no longer has out of the definitions. Call under the table lock."""
        if not set(before.names) <= set(after.names):
            self.notes += remove_old_names(self.handle.storage, self.handle.base_path, after, renames)

    def fold(self) -> None:
        """Put small runs together where it is time. Call without the lock, once, after the commit is complete."""
        try:
            folded = fold_runs(self.handle, self.instant)
        except Exception as error:
            self.notes.append(f"runs of bitmaps could not be folded ({error}); the next write tries again")
            return
        self.size += folded.size
        self.seconds += folded.seconds

    def undo(self) -> None:
        """Remove the runs of a write that does not complete."""
        if self._started:
            remove_runs_of(self.handle.storage, self.handle.base_path, self.instant)
