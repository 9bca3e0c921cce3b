"""Coverage of one log file: from its writer, which knows all of it, or from the file, whoever wrote it.

A build does not believe the positions in the headers of blocks. It looks the keys up in the base file, as a reader of
lakedex does; headers that say something else make the log file unknown. So logs without positions are covered as well.
What the records of a log file have to beat is looked up in the slice as it was before it.

Memory: the log records of one slice in the indexed columns, their keys, and one batch of the base file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lakedex.codec.log_records import decode_positions
from lakedex.codec.roaring import bitmap_of, serialize_bitmap
from lakedex.index.bitmap.builder import OPEN_IN_LOG, BitmapsBuilder, ColumnBitmaps, FileBitmaps, column_of
from lakedex.index.bitmap.log_coverage import UNORDERED, CoveredLog
from lakedex.index.written_file import FinishedFile, LogChanges
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import FileSlice, LogFile
from lakedex.layout.log_reader import log_headers
from lakedex.snapshot.merge_on_read import MergeCounts, MergedLog, MergeSettings, load_log
from lakedex.snapshot.ordering_values import compare
from lakedex.snapshot.stored_versions import StoredVersions, stored_versions
from lakedex.types import IntArray

__all__ = ["BitmapsOfLog", "log_bitmaps"]


def log_bitmaps(file: FinishedFile, changes: LogChanges, values: BitmapsBuilder) -> FileBitmaps:
    """The entry of a log file that was just written."""
    placed = changes.positions[changes.positions >= 0]
    return FileBitmaps(
        partition=file.partition,
        file_id=file.file_id,
        base_file=file.name,
        rows=file.summary.rows,
        row_groups=(),
        columns=values.finish_log(changes.lacking),
        log=CoveredLog(
            base_file=changes.base_file,
            instant=changes.instant,
            size=file.summary.size,
            deletes=changes.deletes,
            new=len(changes.positions) - len(placed),
            older=changes.older,
            touched=_bytes_of(placed),
        ),
    )


def _bytes_of(positions: IntArray) -> bytes:
    return serialize_bitmap(bitmap_of(positions.astype(np.uint32)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapsOfLog:
    """Task: the entry of the last log file of a slice, from the file.

    Attributes:
        files: the table's files.
        columns: names or dotted paths, with the cap of distinct values of each.
        schema: the table's columns.
        merge: how its log records are merged.
    """

    files: TableFiles
    columns: Mapping[str, int]
    schema: pa.Schema
    merge: MergeSettings

    def __call__(self, item: FileSlice) -> FileBitmaps:
        """Read the log file, those before it, and the key column of the base file.

        Raises:
            CorruptFileError: a file that cannot be read.
        """
        log = item.log_files[-1]
        tops = dict.fromkeys(column_of(name, self.schema).path[0] for name in self.columns)
        needed = pa.schema([self.schema.field(name) for name in tops])
        counts = MergeCounts()
        found = load_log(self.files, replace(item, log_files=(log,)), needed, self.merge, counts)
        stored = None
        instant, positions = self._instant(item, log)
        if instant and found.keys is not None and item.base_file is not None and counts.records == found.keys_count:
            before = replace(item, log_files=item.log_files[:-1])
            stored = stored_versions(self.files, before, found.keys, self.merge)
        if stored is not None and not self._agrees(stored, positions):
            stored = None
        return self._entry(item, log, instant, found, stored)

    def _instant(self, item: FileSlice, log: LogFile) -> tuple[str, list[BitMap | None]]:
        """The instant of all blocks, and the positions of each that has some in this base file.

        Empty where blocks of several instants, or a command, leave open which of them count.
        """
        blocks = log_headers(self.files, log)
        instants = {block.header.get("INSTANT_TIME", "") for block in blocks}
        plain = all(
            block.block_type in ("AVRO_DATA", "PARQUET_DATA", "HFILE_DATA", "DELETE")
            and "COMPACTED_BLOCK_TIMES" not in block.header
            for block in blocks
        )
        base = item.base_file
        if len(instants) != 1 or not plain or base is None or not self.merge.counts(min(instants)):
            return "", []
        path = self.files.path(log.relative_path)
        return min(instants), [
            decode_positions(block.header["RECORD_POSITIONS"], path)
            if "RECORD_POSITIONS" in block.header
            and block.header.get("BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS") == base.instant
            else None
            for block in blocks
        ]

    @staticmethod
    def _agrees(stored: StoredVersions, positions: list[BitMap | None]) -> bool:
        """Whether headers say of no row that a record is for it unless its key does, and of all where all have them."""
        if stored.repeated.any():
            return False
        by_key = bitmap_of(stored.position[stored.position >= 0].astype(np.uint32))
        stated = BitMap.union(*own) if (own := [one for one in positions if one is not None]) else BitMap()
        return stated == by_key if len(own) == len(positions) else stated.issubset(by_key)

    def _entry(
        self, item: FileSlice, log: LogFile, instant: str, found: MergedLog, stored: StoredVersions | None
    ) -> FileBitmaps:
        made: dict[str, ColumnBitmaps] = {}
        entry = CoveredLog(base_file=item.base_file.name if item.base_file else "?", instant=instant, size=log.size)
        rows = 0
        if stored is not None and found.rows is not None:
            live, position = ~found.deleted, stored.position
            taken = found.rows.take(pa.array(found.row[live]))
            lacking = {name for name, lacks in found.lacks.items() if lacks[live].any()}
            limits = {
                name: limit
                for name, limit in self.columns.items()
                if column_of(name, self.schema).path[0] not in lacking
            }
            builder = BitmapsBuilder(limits, taken.schema)
            for batch in taken.to_batches():
                builder.add(batch)
            made, rows = {column.column: column for column in builder.finish_log()}, builder.rows
            loses = stored.known & ~found.final & (compare(found.ordering, stored.bound, len(position)) < 0)
            entry = replace(
                entry,
                deletes=int(np.count_nonzero(found.deleted)),
                new=int(np.count_nonzero(position < 0)),
                older=UNORDERED if loses.any() else len(item.log_files) - 1,
                touched=_bytes_of(position[position >= 0]),
            )
        return FileBitmaps(
            partition=item.partition,
            file_id=item.file_id,
            base_file=log.name,
            rows=rows,
            row_groups=(),
            columns=tuple(made.get(name, ColumnBitmaps(column=name, state=OPEN_IN_LOG)) for name in self.columns),
            log=entry,
        )
