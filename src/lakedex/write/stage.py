"""The write stage: one task rewrites or creates one file group at a time, and returns what the commit needs.

Tasks may be retried, speculated or run twice. So a file's name carries the task's attempt, a marker precedes each file,
and the driver accepts one result per group; the files of all others are deleted before the commit.

Memory: the incoming rows of one group, one batch of its base file and one row group of the new file.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.engine import current_task
from lakedex.errors import CommitError
from lakedex.index.bitmap.builder import BitmapsBuilder, FileBitmaps, RowGroup
from lakedex.index.column_stats import ColumnStat, ColumnStatsBuilder
from lakedex.io.storage import Storage
from lakedex.layout.base_file import BaseFileSettings, BaseFileSummary, BaseFileWriter, iter_base_file
from lakedex.layout.names import PARTITION_METAFILE, BaseFileName, join_path, marker_name
from lakedex.layout.partition_path import partition_depth
from lakedex.write.bitmap_runs import HeldBitmaps, hold_bitmaps
from lakedex.write.merge import IncomingRows, MergeRules, by_group
from lakedex.write.prepare import KEY, PARTITION, POSITION
from lakedex.write.route import GroupTarget

__all__ = ["RESULT_SCHEMA", "GroupResult", "RewriteGroup", "WriteGroups", "decode_results"]

RESULT_SCHEMA = pa.schema([("group", pa.int32()), ("result", pa.binary())])

INLINE_BLOOM_BYTES = 64 * 1024
"""Larger filters go to a file below the instant's temp folder instead of through the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """What became of one file group."""

    partition: str
    file_id: str
    file_name: str
    size: int
    rows: int
    inserted: int
    updated: int
    deleted: int
    previous: str | None
    previous_instant: str | None
    stats: tuple[ColumnStat, ...]
    bloom: bytes | None
    bloom_path: str | None
    bloom_type: str
    seconds: float = field(default=0.0)
    bitmaps: HeldBitmaps | None = None


@dataclass(slots=True)
class _Built:
    """What the indexes gather from the rows of one file as they are written."""

    stats: ColumnStatsBuilder
    bitmaps: BitmapsBuilder | None
    bitmap_seconds: float = 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        self.stats.add(batch)
        if self.bitmaps is not None:
            started = time.perf_counter()
            self.bitmaps.add(batch)
            self.bitmap_seconds += time.perf_counter() - started


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGroups:
    """Batch map of the write stage: rows sorted by group number in, one result a group out."""

    storage: Storage
    base_path: str
    instant: str
    file_schema: pa.Schema
    targets: Sequence[GroupTarget]
    rules: MergeRules
    settings: BaseFileSettings
    indexed: Mapping[str, pa.DataType]
    renames: Mapping[str, str] = field(default_factory=dict)
    """Columns of stored files → what they are called from now on."""
    bitmaps: Mapping[str, int] = field(default_factory=dict)
    """Columns with bitmaps, and how many distinct values each may have in a file."""
    inline_bitmaps: int = 0
    """Size up to which a file's bitmaps come back with its result."""

    @property
    def schema(self) -> pa.Schema:
        """Group number and pickled :class:`GroupResult`."""
        return RESULT_SCHEMA

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the groups of one task."""
        for number, rows in by_group(batches):
            result = self._write_group(self.targets[number], rows)
            if result is not None:
                columns = [pa.array([number], pa.int32()), pa.array([pickle.dumps(result)], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, schema=RESULT_SCHEMA)

    def rewrite(self, target: GroupTarget) -> GroupResult:
        """Write a group's file again in the stage's schema, its rows as they are."""
        columns = [(KEY, pa.string()), (PARTITION, pa.string()), (POSITION, pa.int64()), *list(self.file_schema)[5:]]
        none = pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in pa.schema(columns)], schema=pa.schema(columns)
        )
        result = self._write_group(target, none, unchanged_too=True)
        if result is None:
            raise CommitError(f"{self.base_path}: file group {target.file_id} has no base file", instant=self.instant)
        return result

    def _write_group(
        self, target: GroupTarget, rows: pa.RecordBatch, *, unchanged_too: bool = False
    ) -> GroupResult | None:
        started = time.perf_counter()
        task = current_task()
        name = BaseFileName(target.file_id, str(task), self.instant)
        incoming = IncomingRows(
            rows,
            self.rules,
            self.file_schema,
            self.instant,
            str(name),
            f"{self.instant}_{task.partition}_{target.file_id[:8]}-",
        )
        if target.base is None and incoming.inserts().num_rows == 0:
            return None
        path = f"{self.base_path}/{join_path(target.partition, str(name))}"
        marker = self._announce(target, str(name))
        expected = incoming.rows.num_rows + (target.expected_rows if target.base is not None else 0)
        writer = BaseFileWriter(self.storage, path, self.file_schema, self.settings, expected_rows=expected)
        built = _Built(ColumnStatsBuilder(self.indexed), self._bitmaps_builder())
        try:
            inserted = self._merge_into(writer, built, target, incoming)
            changed = inserted or incoming.updated or incoming.deleted or unchanged_too
            if target.base is not None and not changed:
                # Every incoming row was older than the stored one: the file stays as it is.
                writer.abort()
                return None
            summary = writer.close()
        except BaseException:
            writer.abort()
            raise
        spill = None
        if len(summary.bloom) > INLINE_BLOOM_BYTES:
            spill = f"{self._temp}/.blooms/{name}.bloom"
            self.storage.write(spill, summary.bloom)
        held = self._held(built, target, str(name), summary)
        self._still_wanted(path, marker, spill, None if held is None else held.path)
        return GroupResult(
            partition=target.partition,
            file_id=target.file_id,
            file_name=str(name),
            size=summary.size,
            rows=summary.rows,
            inserted=inserted,
            updated=incoming.updated,
            deleted=incoming.deleted,
            previous=target.base.name if target.base else None,
            previous_instant=target.base.instant if target.base else None,
            stats=tuple(built.stats.finish(summary.column_bytes)),
            bloom=summary.bloom if spill is None else None,
            bloom_path=spill,
            bloom_type=summary.bloom_type,
            seconds=time.perf_counter() - started,
            bitmaps=held,
        )

    def _bitmaps_builder(self) -> BitmapsBuilder | None:
        return BitmapsBuilder(self.bitmaps, self.file_schema) if self.bitmaps else None

    def _held(self, built: _Built, target: GroupTarget, name: str, summary: BaseFileSummary) -> HeldBitmaps | None:
        """What the file's bitmaps are; positions are those of the rows as they were written."""
        if built.bitmaps is None:
            return None
        started = time.perf_counter()
        groups = tuple(RowGroup(*group) for group in summary.row_groups)
        found = FileBitmaps(
            partition=target.partition,
            file_id=target.file_id,
            base_file=name,
            rows=summary.rows,
            row_groups=groups,
            columns=built.bitmaps.finish(groups),
        )
        seconds = built.bitmap_seconds + time.perf_counter() - started
        return hold_bitmaps(self.storage, found, f"{self._temp}/.bitmaps/{name}.bitmaps", self.inline_bitmaps, seconds)

    @property
    def _temp(self) -> str:
        return f"{self.base_path}/.hoodie/.temp/{self.instant}"

    def _merge_into(self, writer: BaseFileWriter, built: _Built, target: GroupTarget, incoming: IncomingRows) -> int:
        if target.base is not None:
            for stored in iter_base_file(self.storage, f"{self.base_path}/{target.base.relative_path}"):
                if self.renames:
                    stored = stored.rename_columns([self.renames.get(name, name) for name in stored.schema.names])
                batch = incoming.merge(stored)
                writer.write(batch)
                built.add(batch)
        fresh = incoming.inserts()
        writer.write(fresh)
        built.add(fresh)
        return int(fresh.num_rows)

    def _announce(self, target: GroupTarget, name: str) -> str:
        """Marker first: Java's rollback finds the files of a failed write by their markers alone."""
        kind = "MERGE" if target.base is not None else "CREATE"
        marker = f"{self._temp}/{join_path(target.partition, marker_name(name, kind))}"
        self.storage.write(marker, b"")
        metafile = f"{self.base_path}/{join_path(target.partition, PARTITION_METAFILE)}"
        if target.base is None and not self.storage.exists(metafile):
            content = (
                f"#partition metadata\ncommitTime={self.instant}\npartitionDepth={partition_depth(target.partition)}\n"
            )
            try:
                self.storage.create(metafile, content.encode("ascii"))
            except FileExistsError:
                pass  # Another task of this or another writer was first.
        return marker

    def _still_wanted(self, path: str, marker: str, *spills: str | None) -> None:
        """A late attempt must not leave a file behind once its commit is decided.

        The inflight file alone does not tell: it stays beside the completed one. The driver looks at the markers once
        more after it completed the commit, so that one of both sees the other.
        """
        timeline = f"{self.base_path}/.hoodie/timeline"
        own = {entry.name for entry in self.storage.list(timeline) if entry.name.startswith(self.instant)}
        inflight = any(name.endswith(".inflight") for name in own)
        if inflight and not any(name.startswith(f"{self.instant}_") for name in own):
            return
        for late in (path, *spills, marker):
            if late is not None:
                self.storage.delete(late)
        what = f"{path}: the write {self.instant} is no longer in flight; the file was removed"
        raise CommitError(what, instant=self.instant)


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Task: write one group's file again in the schema of a stage."""

    stage: WriteGroups

    def __call__(self, target: GroupTarget) -> GroupResult:
        """See :meth:`WriteGroups.rewrite`."""
        return self.stage.rewrite(target)


def decode_results(table: pa.Table) -> list[GroupResult]:
    """One result per group: the first that came, should an engine ever hand over two."""
    accepted: dict[int, GroupResult] = {}
    for number, raw in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
        accepted.setdefault(number, pickle.loads(raw))  # noqa: S301 - our own tasks' results
    return list(accepted.values())
