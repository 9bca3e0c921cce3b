"""Bitmaps of a base file that is there already: what an index build does for each file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakedex.index.bitmap.builder import BitmapsBuilder, FileBitmaps, RowGroup, column_of
from lakedex.io.storage import Storage
from lakedex.layout.conform import conform_stored
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.row_groups import BaseFileReader, open_base_file

__all__ = ["BitmapsOfFile", "row_groups_of"]

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapsOfFile:
    """Task: the bitmaps of one base file. Only the indexed columns are read, a batch at a time.

    Attributes:
        columns: names or dotted paths, with the cap of distinct values of each.
        schema: the table's columns; older files are read in it.
    """

    storage: Storage
    base_path: str
    columns: Mapping[str, int]
    schema: pa.Schema

    def __call__(self, base: BaseFile) -> FileBitmaps:
        """Read the file.

        Raises:
            CorruptFileError: it is no readable Parquet file.
        """
        tops = dict.fromkeys(column_of(name, self.schema).path[0] for name in self.columns)
        needed = pa.schema([self.schema.field(name) for name in tops])
        builder = BitmapsBuilder(self.columns, needed)
        with open_base_file(self.storage, f"{self.base_path}/{base.relative_path}") as source:
            groups = row_groups_of(source)
            for stored in source.batches(needed.names, range(source.row_groups), BATCH_ROWS):
                builder.add(conform_stored(stored, needed))
        return FileBitmaps(
            partition=base.partition,
            file_id=base.file_id,
            base_file=base.name,
            rows=builder.rows,
            row_groups=groups,
            columns=builder.finish(groups),
        )


def row_groups_of(source: BaseFileReader) -> tuple[RowGroup, ...]:
    """The row groups of an open base file."""
    spans: Sequence[tuple[int, int]] = source.group_spans
    return tuple(RowGroup(rows, *span) for rows, span in zip(source.rows_per_group, spans, strict=True))
