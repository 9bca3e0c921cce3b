"""The bitmap indexes of a table as one :class:`~lakedex.index.protocol.Index`: their columns share runs.

A file without bitmaps is merely read by queries. So whatever fails here is a note of a write that succeeds, never the
end of it: rows are worth more than their index, and ``indexes.refresh`` makes up for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.build import MAX_DISTINCT_VALUES, BitmapBuild, plan_bitmaps
from lakedex.index.bitmap.builder import BitmapsBuilder, FileBitmaps, RowGroup
from lakedex.index.bitmap.compaction import compact_runs
from lakedex.index.bitmap.definitions import (
    bitmap_columns,
    definitions_file,
    in_schema,
    known_bitmap_definitions,
    lost_names,
    read_bitmap_definitions,
    with_new_names,
)
from lakedex.index.bitmap.loaded_index import load_bitmap_index
from lakedex.index.bitmap.log_builder import log_bitmaps
from lakedex.index.bitmap.pruning import Bitmaps
from lakedex.index.bitmap.run_files import (
    BITMAP_INDEX,
    Run,
    TaskBitmaps,
    inline_limit,
    remove_runs_of,
    spill_bitmaps,
    write_runs,
)
from lakedex.index.bitmap.stats import bitmap_index_stats, coverage_text
from lakedex.index.bitmap.validate import BitmapValidation
from lakedex.index.protocol import (
    BuildContext,
    CollectContext,
    CommitContext,
    CommitPolicy,
    DropPlan,
    IndexInfo,
    IndexUpdate,
    UnindexedBase,
    ValidationContext,
)
from lakedex.index.written_file import FinishedFile, WrittenFile
from lakedex.reports import IndexStats
from lakedex.snapshot.snapshot import Snapshot, TableContext

__all__ = ["BitmapIndex", "CollectBitmaps"]


class BitmapIndex(Bitmaps, UnindexedBase):
    """The bitmap indexes of a table, whose columns share their runs."""

    __slots__ = ()

    commit_policy: ClassVar[CommitPolicy] = CommitPolicy.BEST_EFFORT
    own_options: ClassVar[frozenset[str]] = frozenset({MAX_DISTINCT_VALUES})

    def collector(self, ctx: CollectContext) -> CollectBitmaps | None:
        """Collect the columns of all bitmap indexes that the table has."""
        columns = bitmap_columns(ctx.snapshot, ctx.schema, ctx.renames)
        return CollectBitmaps(columns, inline_limit(ctx.files, ctx.limits.write_inline_bytes)) if columns else None

    def records_of_commit(self, ctx: CommitContext, files: Sequence[WrittenFile]) -> IndexUpdate:
        """Write the runs of the commit's files, and let definitions follow the schema.

        New names of columns join the definitions before the commit completes and old ones leave them after it, so that
        an index loses no column whatever happens in between.
        """
        parts = [file.part(self.name, TaskBitmaps) for file in files]
        made = [part for part in parts if part is not None]
        loses = not set(ctx.snapshot.schema.names) <= set(ctx.schema.names)
        if not (made or ctx.renames or loses):
            return IndexUpdate()
        changes = ctx.renames or loses
        definitions = read_bitmap_definitions(ctx.snapshot.files) if changes else known_bitmap_definitions(ctx.snapshot)
        both = with_new_names(definitions, ctx.renames)
        after = in_schema(both, ctx.schema) if loses else both
        started = time.perf_counter()
        size, notes = self._write_runs(ctx, made) if made and definitions else (0, ())
        return IndexUpdate(
            definitions={} if both == definitions else definitions_file(ctx.snapshot.files, both),
            definitions_after={} if after == both else definitions_file(ctx.snapshot.files, after),
            notes=(*notes, *lost_names(both, after, ctx.renames)),
            bytes_written=size,
            seconds=sum(item.seconds for item in made) + time.perf_counter() - started,
        )

    @staticmethod
    def _write_runs(ctx: CommitContext, made: Sequence[TaskBitmaps]) -> tuple[int, tuple[str, ...]]:
        files = ctx.snapshot.files
        try:
            label = f"lakedex {files}: writing bitmaps of {len(made)} files"
            runs = write_runs(files, Run(ctx.instant, "commit", 0), made, ctx.run, label)
        except Exception as error:
            note = (
                f"bitmaps of {len(made)} files could not be written ({error}); queries read these files until "
                "indexes.refresh covers them"
            )
            return 0, (note,)
        return sum(run.size for run in runs), ()

    def validate(self, ctx: ValidationContext) -> BitmapValidation:
        """Compare the bitmaps of covered files with their rows."""
        definitions = read_bitmap_definitions(ctx.snapshot.files)
        return BitmapValidation(
            snapshot=ctx.snapshot,
            definition=definitions[ctx.name],
            definitions=definitions,
            run=ctx.table.engine.run,
            clock=ctx.table.clock(ctx.snapshot.config.timezone),
            instant=ctx.instant,
        )

    def build(self, ctx: BuildContext) -> BitmapBuild:
        """Define the index, and cover the files that no run covers."""
        return plan_bitmaps(ctx)

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Those of the definitions."""
        return tuple(sorted(read_bitmap_definitions(snapshot.files)))

    def listed(self, snapshot: Snapshot) -> tuple[IndexInfo, ...]:
        """The definitions, and how many files they cover."""
        try:
            definitions = read_bitmap_definitions(snapshot.files)
        except CorruptFileError as error:
            return (IndexInfo(name="?", using="bitmap", columns=(), state=f"damaged: {error}", maintained=False),)
        try:
            loaded, damage = load_bitmap_index(snapshot), ""
        except CorruptFileError as error:
            loaded, damage = None, f"damaged: {error}"
        return tuple(
            IndexInfo(
                name=name,
                using="bitmap",
                columns=index.columns,
                state=damage if loaded is None else coverage_text(loaded, snapshot, index.columns),
            )
            for name, index in sorted(definitions.items())
        )

    def stats(self, snapshot: Snapshot, name: str) -> IndexStats:
        """Entries and coverage of one index, by column."""
        return bitmap_index_stats(snapshot, read_bitmap_definitions(snapshot.files)[name])

    def drop(self, snapshot: Snapshot, name: str) -> DropPlan:
        """The definition, then, if it was the last, the runs.

        Runs keep columns that no index has any more until the next compaction leaves them out.
        """
        definitions = read_bitmap_definitions(snapshot.files)
        index = definitions.pop(name)
        return DropPlan(
            definitions=definitions_file(snapshot.files, definitions),
            folders=() if definitions else (BITMAP_INDEX,),
            columns=index.columns,
        )

    def after_commit(self, table: TableContext, instant: str, before: Snapshot | None = None) -> IndexUpdate:
        """Compact small runs where it is time."""
        try:
            compacted = compact_runs(table, instant, before)
        except Exception as error:
            return IndexUpdate(notes=(f"runs of bitmaps could not be compacted ({error}); the next write tries again",))
        return IndexUpdate(bytes_written=compacted.size, seconds=compacted.seconds)

    def discard(self, snapshot: Snapshot, instant: str) -> None:
        """Remove the commit's runs."""
        remove_runs_of(snapshot.files, instant)


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

    @property
    def takes_logs(self) -> bool:
        """True: of a log file the values of its rows are kept, and the rows of the base file that it touches."""
        return True

    def begin(self, schema: pa.Schema) -> _FileBitmaps:
        """Begin a file."""
        return _FileBitmaps(BitmapsBuilder(self.columns, schema), self.limit)


@dataclass(slots=True)
class _FileBitmaps:
    """Bitmaps of one file; positions are those of the rows as they are written. Of a log file only its values."""

    builder: BitmapsBuilder
    limit: int
    seconds: float = 0.0

    def add(self, batch: pa.RecordBatch, bounds: Mapping[str, tuple[Any, Any]]) -> None:
        started = time.perf_counter()
        self.builder.add(batch)
        self.seconds += time.perf_counter() - started

    def finish(self, file: FinishedFile) -> TaskBitmaps:
        started = time.perf_counter()
        if file.log is not None:
            return spill_bitmaps(
                log_bitmaps(file, file.log, self.builder), partial(file.spill, "bitmaps"), self.limit, self.seconds
            )
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
