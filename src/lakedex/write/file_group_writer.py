"""The rows of one file group from its old base file to its new one, with the settings of that file.

The rows of one file group on their way from its old file to its new one, and to what is indexed of them.

Row groups come one by one. One that loses no row keeps its columns in which nothing changed: their chunks are taken
over. New rows join the last row group unless it is large
(:attr:`lakedex.parquet.base_file_reader.ExistingBaseFile.end`).

Memory: one batch of the old file, one row group of the new one; where chunks may be taken over, also the old row group
as it is stored.

How a write's base files look: columns, footer, compression, and which columns get statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lakedex.codec.avro_schema import arrow_to_avro, with_meta_fields
from lakedex.codec.bloom import HashedKeys
from lakedex.index.bloom_filters import bloom_sizing
from lakedex.index.written_file import FileCollector
from lakedex.options import WriteOptions
from lakedex.parquet.base_file_reader import ExistingBaseFile
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY
from lakedex.write.record_merge import IncomingRows, Merged

__all__ = ["BaseFileGroupWriter", "file_schema", "file_settings"]


@dataclass(slots=True)
class BaseFileGroupWriter:
    """Where the rows go.

    Attributes:
        writer: of the new file.
        collectors: what indexes collect of its rows.
        row_group_bytes: size of a row group in memory; a larger one is not taken over but split.
    """

    writer: BaseFileWriter
    collectors: tuple[FileCollector, ...]
    row_group_bytes: int

    def merge(
        self, stored: ExistingBaseFile, incoming: IncomingRows, *, may_grow: bool, renames: Mapping[str, str]
    ) -> None:
        """Write the stored rows as they are with the incoming ones; new rows come after.

        Args:
            stored: the old file.
            incoming: what it meets.
            may_grow: there may be new rows.
            renames: columns of the old file → what they are called from now on.
        """
        end = stored.end if may_grow else None
        for group, batches in stored.groups():
            if renames:
                batches = (_renamed(batch, renames) for batch in batches)
            merged: Iterator[Merged] = map(incoming.merge, batches)
            if self.writer.takes_over and group != end:
                merged = self._take_over(group, merged)
            for part in merged:
                self.add(part.rows)

    def _take_over(self, group: int, merged: Iterator[Merged]) -> Iterator[Merged]:
        """Write a row group with chunks of the old one. Gives back the rows if that cannot be."""
        held: list[Merged] = []
        size = 0
        for part in merged:
            held.append(part)
            size += part.rows.nbytes
            if not part.is_whole or size > 2 * self.row_group_bytes:
                return chain(held, merged)
        rows = [part.rows for part in held if part.rows.num_rows]
        if not rows:
            return iter(())
        unchanged = frozenset.intersection(*(part.unchanged for part in held))
        for batch, keys in zip(rows, self.writer.write_group(rows, group, unchanged), strict=True):
            self._index(batch, keys)
        return iter(())

    def add(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> None:
        """The next rows of the new file, their keys ``hashed`` if they are."""
        self._index(batch, self.writer.write(batch, hashed))

    def _index(self, batch: pa.RecordBatch, keys: tuple[str, str] | None) -> None:
        bounds = {} if keys is None else {RECORD_KEY: keys}
        for collector in self.collectors:
            collector.add(batch, bounds)


def _renamed(batch: pa.RecordBatch, renames: Mapping[str, str]) -> pa.RecordBatch:
    return batch.rename_columns([renames.get(name, name) for name in batch.schema.names])


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of a base file: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


def file_settings(snapshot: Snapshot, schema: pa.Schema, options: WriteOptions) -> BaseFileSettings:
    """How base files of this schema are written."""
    keys = snapshot.config.record_key_fields
    return BaseFileSettings(
        avro_schema=json.dumps(with_meta_fields(arrow_to_avro(schema, snapshot.config.name))),
        compression=options.compression,
        bloom=bloom_sizing(options),
        unique=frozenset({RECORD_KEY, COMMIT_SEQNO, *(keys if len(keys) == 1 else ())}),
        row_group_bytes=options.row_group_bytes,
    )
