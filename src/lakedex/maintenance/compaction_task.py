"""The task of a compaction: write the merged rows of one file slice to the next base file of its group.

Row groups that lose no row reuse the stored chunks of the columns in which nothing changed.

Memory: the log records of the group, a row group of its base file, as it is stored too, one row group of the new file
and what indexes collect of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

from lakedex.engine import current_task
from lakedex.errors import LakedexError
from lakedex.index.merged_file import MergedFile
from lakedex.index.written_file import Collector, FinishedFile, WrittenFile
from lakedex.io.storage import TableFiles
from lakedex.layout.contained_files import require_under_way
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.layout.names import BaseFileName, join_path, marker_name
from lakedex.parquet.base_file_reader import ExistingBaseFile, open_for_merge
from lakedex.parquet.base_file_writer import BaseFileSettings
from lakedex.snapshot.merge_on_read import MergeCounts, MergeInPlace, MergeSettings
from lakedex.types import FILE_NAME

__all__ = ["CompactFileGroup", "CompactedGroup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedGroup:
    """A new base file, and what was merged into it."""

    file: WrittenFile
    counts: MergeCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactFileGroup:
    """Task: write the merged rows of a file slice to the next base file of its group.

    Attributes:
        files: the table's files.
        timeline_path: the folder of its instants.
        instant: the compaction's.
        run: a number of this run. Files of a run that was undone may stay marked as deleted in the metadata table, so
            that a later run must not give its files the same names.
        merge: how the table's log records are merged.
        settings: of the new file.
        collectors: what is collected of the file, by index.
    """

    files: TableFiles
    timeline_path: str
    instant: str
    run: int
    merge: MergeSettings
    settings: BaseFileSettings
    collectors: Mapping[str, Collector]

    def __call__(self, item: FileSlice) -> CompactedGroup:
        """Write one file, after its marker. An attempt that comes after the end of the compaction leaves nothing."""
        storage, temp = self.files.storage.batched(self.files.base_path), self.files.temp(self.instant)
        token = str(replace(current_task(), stage=self.run))
        name = str(BaseFileName(item.file_id, token, self.instant))
        path = self.files.path(item.partition, name)
        marker = f"{temp}/{join_path(item.partition, marker_name(name, 'CREATE'))}"
        made = [marker, path]
        try:
            storage.write(marker, b"")
            done = self._write(replace(self.files, storage=storage), item, name, made)
            storage.sync()
        except BaseException:
            with suppress(LakedexError, OSError):
                require_under_way(self.files, self.timeline_path, self.instant, made, "compaction")
            raise
        require_under_way(self.files, self.timeline_path, self.instant, made, "compaction")
        return done

    def _write(self, files: TableFiles, item: FileSlice, name: str, made: list[str]) -> CompactedGroup:
        started = time.perf_counter()
        path, base = files.path(item.partition, name), item.base_file
        merged = MergeInPlace(files, item, self.merge, name)
        collecting = {index: collector.begin(merged.schema) for index, collector in self.collectors.items()}
        with _opened(files, base) as stored:
            built = MergedFile.begin(files.storage, path, stored, merged, self.settings, collecting.values())
            try:
                built.merge()
                for rows in merged.left():
                    built.insert(rows)
                summary = built.writer.close()
            except BaseException:
                built.writer.abort()
                raise
        file = FinishedFile(
            storage=files.storage,
            temp=files.temp(self.instant),
            partition=item.partition,
            file_id=item.file_id,
            name=name,
            summary=summary,
            made=made,
        )
        counts = merged.counts
        written = replace(
            file.written(collecting, started),
            inserted=counts.inserted,
            updated=counts.updated,
            deleted=counts.deleted,
            previous=None if base is None else base.name,
            previous_instant=item.base_instant,
        )
        return CompactedGroup(file=written, counts=counts)


def _opened(files: TableFiles, base: BaseFile | None) -> AbstractContextManager[ExistingBaseFile | None]:
    """The base file of a slice; None for log files alone."""
    if base is None:
        return nullcontext()
    return open_for_merge(files.storage, files.path(base.relative_path), without=(FILE_NAME,), size=base.size)
