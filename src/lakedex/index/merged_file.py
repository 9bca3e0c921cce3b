"""A base file that is written from the rows of the one before it, and what indexes collect of its rows.

A row group that loses no row, and is not to grow, reuses the stored chunks of the columns in which nothing changed.

Memory: one row group; where chunks may be reused, also as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import pyarrow as pa

from lakedex.codec.bloom import BloomFilter, BloomSizing, HashedKeys, decode_bloom
from lakedex.errors import CorruptFileError
from lakedex.index.written_file import FileCollector
from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import Footer, iter_base_file
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileWriter
from lakedex.parquet.chunk_reuse import Changed, StoredChunks
from lakedex.types import RECORD_KEY

__all__ = ["Changes", "MergedFile", "StoredRows"]


class StoredRows(Protocol):
    """The rows of the file before."""

    @property
    def path(self) -> str:
        """Of the file."""

    @property
    def footer(self) -> Footer:
        """Of the file; its filter is of all rows, or None."""

    @property
    def chunks(self) -> StoredChunks | None:
        """Column chunks that the new file may reuse; None if it may reuse none."""

    @property
    def appendable_row_group(self) -> int | None:
        """Number of the row group that new rows join; None for none."""

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Each row group with its rows in batches, to be consumed before the next one."""


class Changes(Protocol):
    """Stored rows as they become, and the new ones."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the new file."""

    @property
    def has_deletes(self) -> bool:
        """Whether any row may go."""

    def growth(self, old: BloomFilter | None) -> int:
        """How many rows at most are new, given the filter over the keys of the file before."""

    def changed(self, stored: pa.RecordBatch) -> Changed:
        """A batch of stored rows as it is in the new file."""


@dataclass(slots=True)
class MergedFile:
    """A base file that is being written; made by :meth:`begin`.

    Attributes:
        writer: of the file.
        collectors: what indexes collect of its rows.
        changes: what becomes of stored rows.
        stored: the file before; None if there is none.
        renames: its columns → what they are called from now on.
        may_grow: there may be new rows.
        row_group_bytes: size of a row group in memory; a larger one is not reused but split.
    """

    writer: BaseFileWriter
    collectors: tuple[FileCollector, ...]
    changes: Changes
    stored: StoredRows | None
    renames: Mapping[str, str]
    may_grow: bool
    row_group_bytes: int

    @classmethod
    def begin(
        cls,
        storage: Storage,
        path: str,
        stored: StoredRows | None,
        changes: Changes,
        settings: BaseFileSettings,
        collectors: Iterable[FileCollector],
        renames: Mapping[str, str] | None = None,
    ) -> MergedFile:
        """Open the new file. Its filter is sized for all rows that may come, or the old one if that will do."""
        footer = None if stored is None else stored.footer
        old = _filter(footer)
        growth = changes.growth(old)
        writer = BaseFileWriter(
            storage,
            path,
            changes.schema,
            settings,
            expected_rows=max(growth + (0 if footer is None else footer.rows), 1),
            existing_bloom=_reusable_text(footer, old, settings.bloom, may_change=growth > 0 or changes.has_deletes),
            # Where a column was renamed, its name may mean another one in the old file.
            stored=None if stored is None or renames else stored.chunks,
        )
        return cls(writer, tuple(collectors), changes, stored, renames or {}, growth > 0, settings.row_group_bytes)

    def merge(self) -> None:
        """Write the stored rows with their changes; new rows come after."""
        if self.stored is None:
            return
        end = self.stored.appendable_row_group if self.may_grow else None
        for group, batches in self.stored.groups():
            if self.renames:
                batches = (_renamed(batch, self.renames) for batch in batches)
            merged: Iterator[Changed] = map(self.changes.changed, batches)
            if self.writer.reuses_chunks and group != end:
                merged = self._reuse_chunks(group, merged)
            for part in merged:
                self._add(part.rows)

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

    def insert(self, rows: pa.RecordBatch, hashed: HashedKeys | None = None) -> None:
        """Write rows that met no stored one, their keys ``hashed`` if they are."""
        if rows.num_rows and self.writer.reuses_bloom and self.stored is not None:
            # The filter is built after all: that of the file before took a new key for one that it has.
            stored = iter_base_file(self.writer.storage, self.stored.path, [RECORD_KEY])
            self.writer.hash_keys(batch.column(0) for batch in stored)
        self._add(rows, hashed)

    def _add(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> None:
        self._index(batch, self.writer.write(batch, hashed))

    def _index(self, batch: pa.RecordBatch, keys: tuple[str, str] | None) -> None:
        bounds = {} if keys is None else {RECORD_KEY: keys}
        for collector in self.collectors:
            collector.add(batch, bounds)


def _filter(footer: Footer | None) -> BloomFilter | None:
    """The filter of a footer that has a sound one."""
    if footer is None or footer.bloom is None:
        return None
    try:
        return decode_bloom(footer.bloom, footer.bloom_type)
    except CorruptFileError:
        return None


def _reusable_text(
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
