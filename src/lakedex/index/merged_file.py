"""A base file that is written from the rows of the one before it, and what indexes collect of its rows.

A row group that loses no row, and is not to grow, reuses the stored chunks of the columns in which nothing changed.

Memory: one row group; where chunks may be reused, also as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import pyarrow as pa

from lakedex.codec.bloom import BloomFilter, BloomSizing, HashedKeys, decode_bloom
from lakedex.errors import CorruptFileError
from lakedex.index.written_file import FileCollector
from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import Footer, iter_base_file
from lakedex.parquet.base_file_writer import BaseFileWriter
from lakedex.parquet.chunk_reuse import Changed
from lakedex.types import RECORD_KEY

__all__ = ["Changes", "MergedFile", "StoredRows", "footer_filter", "reusable_text"]


class StoredRows(Protocol):
    """The rows of the file before."""

    @property
    def appendable_row_group(self) -> int | None:
        """Number of the row group that new rows join; None for none."""

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Each row group with its rows in batches, to be consumed before the next one."""


class Changes(Protocol):
    """The new form of stored rows."""

    def changed(self, stored: pa.RecordBatch) -> Changed:
        """A batch of them as it is in the new file."""


@dataclass(slots=True)
class MergedFile:
    """A base file that is being written.

    Attributes:
        writer: of the file.
        collectors: what indexes collect of its rows.
        row_group_bytes: size of a row group in memory; a larger one is not reused but split.
    """

    writer: BaseFileWriter
    collectors: tuple[FileCollector, ...]
    row_group_bytes: int

    def merge(
        self, stored: StoredRows, changes: Changes, *, may_grow: bool, renames: Mapping[str, str] | None = None
    ) -> None:
        """Write the stored rows as they are with changes; new rows come after.

        Args:
            stored: the old file.
            changes: what becomes of them.
            may_grow: there may be new rows.
            renames: columns of the old file → what they are called from now on.
        """
        end = stored.appendable_row_group if may_grow else None
        for group, batches in stored.groups():
            if renames:
                batches = (_renamed(batch, renames) for batch in batches)
            merged: Iterator[Changed] = map(changes.changed, batches)
            if self.writer.reuses_chunks and group != end:
                merged = self._reuse_chunks(group, merged)
            for part in merged:
                self.add(part.rows)

    def _reuse_chunks(self, group: int, merged: Iterator[Changed]) -> Iterator[Changed]:
        """Write a row group with chunks of the old one. Gives back the rows if that cannot be."""
        waiting: list[Changed] = []
        size = 0
        for part in merged:
            waiting.append(part)
            size += part.rows.nbytes
            if not part.is_whole or size > 2 * self.row_group_bytes:
                return chain(waiting, merged)
        rows = [part.rows for part in waiting if part.rows.num_rows]
        if not rows:
            return iter(())
        unchanged = frozenset.intersection(*(part.unchanged for part in waiting))
        for batch, keys in zip(rows, self.writer.write_group(rows, group, unchanged), strict=True):
            self._index(batch, keys)
        return iter(())

    def add(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> None:
        """The next rows of the new file, their keys ``hashed`` if they are."""
        self._index(batch, self.writer.write(batch, hashed))

    def hash_stored_keys(self, storage: Storage, path: str) -> None:
        """Build the filter after all: that of the file before took a new key for one that it has."""
        self.writer.hash_keys(batch.column(0) for batch in iter_base_file(storage, path, [RECORD_KEY]))

    def _index(self, batch: pa.RecordBatch, keys: tuple[str, str] | None) -> None:
        bounds = {} if keys is None else {RECORD_KEY: keys}
        for collector in self.collectors:
            collector.add(batch, bounds)


def footer_filter(footer: Footer | None) -> BloomFilter | None:
    """The filter of a footer that has a sound one."""
    if footer is None or footer.bloom is None:
        return None
    try:
        return decode_bloom(footer.bloom, footer.bloom_type)
    except CorruptFileError:
        return None


def reusable_text(
    footer: Footer | None, old: BloomFilter | None, sizing: BloomSizing, *, may_change: bool
) -> bytes | None:
    """The text of the filter of the file before, if it will do for the next one.

    Args:
        footer: of the file before.
        old: the filter in it.
        sizing: of the new file's filter.
        may_change: whether any row may come or go, so that the keys are not what they were.
    """
    if footer is None or old is None or may_change or not sizing.fits(old, footer.rows):
        return None
    return footer.bloom


def _renamed(batch: pa.RecordBatch, renames: Mapping[str, str]) -> pa.RecordBatch:
    return batch.rename_columns([renames.get(name, name) for name in batch.schema.names])
