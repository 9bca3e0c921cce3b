"""The seam where one file group is written: the protocol of its writers, and the writer of base files.

Row groups of the old file come one by one. One that loses no row reuses the chunks of the columns in which nothing
changed. New rows join the last row group unless it is large
(:attr:`lakedex.parquet.base_file_reader.ExistingBaseFile.appendable_row_group`).

Memory: the incoming rows of one group, one batch of the old file, one row group of the new one; where chunks may be
reused, also the old row group as it is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import pyarrow as pa

from lakedex.codec.bloom import BloomSizing, HashedKeys
from lakedex.engine import current_task
from lakedex.index.bloom_filters import base_file_settings
from lakedex.index.merged_file import MergedFile, StoredRows
from lakedex.index.written_file import Collector, FinishedFile, WrittenFile
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import FileSlice
from lakedex.layout.names import BaseFileName
from lakedex.options import WriteOptions
from lakedex.parquet.base_file_reader import Footer, open_for_merge, read_footer
from lakedex.parquet.base_file_writer import BaseFileSettings, BaseFileSummary
from lakedex.parquet.conform import with_dictionaries
from lakedex.snapshot.merge_on_read import MergeSettings, iter_merged_slice
from lakedex.snapshot.snapshot import Snapshot
from lakedex.tagging.keyed_rows import Effects, MergePolicy
from lakedex.types import (
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    TableType,
)
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.record_merge import IncomingRows, require_unique_keys

__all__ = [
    "BaseFileGroupWriter",
    "FileGroupWriter",
    "FileOutput",
    "IncomingRecords",
    "file_group_writer",
    "file_schema",
]


@dataclass(frozen=True, slots=True)
class IncomingRecords:
    """The incoming rows of one file group; ``hashed`` are their keys, where several groups were hashed at once."""

    rows: pa.RecordBatch
    hashed: HashedKeys | None = None


class FileOutput(Protocol):
    """Where a task writes its files.

    Attributes:
        files: the table's files, on the task's view of the storage, which makes files durable together.
        temp: the write's temp folder.
        made: files that the task made: a late attempt removes them.
    """

    files: TableFiles
    temp: str
    made: list[str]

    def announce(self, target: FileGroupTarget, name: str, kind: str) -> str:
        """Write the marker of a new file, of kind CREATE, MERGE or APPEND; the file's path."""

    def finished(self, target: FileGroupTarget, name: str, summary: BaseFileSummary) -> FinishedFile:
        """A new file whose last row is written."""


class FileGroupWriter(Protocol):
    """Writes file groups, one at a time, in the tasks of a write. Made on the driver; pickles."""

    @property
    def texts(self) -> set[str]:
        """Text columns that incoming rows may have dictionary-encoded."""

    @property
    def hashes_keys(self) -> BloomSizing | None:
        """The filters that the writer hashes incoming keys for; None if it hashes none."""

    def write(
        self,
        target: FileGroupTarget,
        records: IncomingRecords,
        collectors: Mapping[str, Collector],
        output: FileOutput,
    ) -> tuple[WrittenFile, ...]:
        """Write new files of a group.

        Args:
            target: the group, with its current base file.
            records: its incoming rows.
            collectors: what indexes collect of the file, by index.
            output: where the file goes.

        Returns:
            The files, in their order; none if nothing had to be written. Of base files there is one at most.
        """


def file_group_writer(
    snapshot: Snapshot,
    schema: pa.Schema,
    policy: MergePolicy,
    options: WriteOptions,
    instant: str,
    renames: Mapping[str, str] | None = None,
) -> BaseFileGroupWriter:
    """The writer of base files for a table and an operation.

    Args:
        snapshot: the table.
        schema: its columns after the write.
        policy: how incoming rows meet stored rows; ``Effects.NONE`` writes files again with their rows as they are.
        options: file sizes, compression, filters.
        instant: the write's instant.
        renames: columns of stored files → their names from now on.
    """
    return BaseFileGroupWriter(
        files=snapshot.files,
        instant=instant,
        schema=file_schema(schema),
        policy=policy,
        settings=base_file_settings(snapshot, schema, options),
        renames=renames or {},
        merge=MergeSettings.of(snapshot) if snapshot.config.table_type == TableType.MERGE_ON_READ else None,
    )


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Columns of a base file: Hudi's meta columns, then the table's."""
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema])


_CONSTANT = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
"""Meta columns of few values, whatever the table holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileGroupWriter:
    """Writes a new base file of a group: the rows of the old one with the incoming ones.

    Attributes:
        files: the table's files.
        instant: the write's instant.
        schema: columns of the new files, meta columns included.
        policy: how incoming rows meet stored rows.
        settings: how files are written.
        renames: columns of stored files → their names from now on.
        merge: how log files are merged into the rows of a slice that has some; None for copy-on-write.
    """

    files: TableFiles
    instant: str
    schema: pa.Schema
    policy: MergePolicy
    settings: BaseFileSettings
    renames: Mapping[str, str] = field(default_factory=dict)
    merge: MergeSettings | None = None

    @property
    def texts(self) -> set[str]:
        """Text columns that may be dictionaries: not those whose values are compared, nor those that hardly repeat."""
        texts = {column.name for column in self.schema if pa.types.is_string(column.type)}
        return texts - {RECORD_KEY, *self.settings.unique, *self.policy.ordering}

    @property
    def hashes_keys(self) -> BloomSizing | None:
        """The sizing of the new files' filters; only keys of new rows are hashed."""
        return self.settings.bloom if self.policy.effects in (Effects.UPSERT, Effects.INSERT) else None

    def write(
        self,
        target: FileGroupTarget,
        records: IncomingRecords,
        collectors: Mapping[str, Collector],
        output: FileOutput,
    ) -> tuple[WrittenFile, ...]:
        """Write the group's new base file; none if no row of the old one changes and none is new."""
        started = time.perf_counter()
        name = BaseFileName(target.file_id, str(current_task()), self.instant)
        with self._stored(target) as stored:
            schema = self._schema_of(None if stored is None else stored.footer, records.rows, collectors)
            incoming = self.incoming(records, target.file_id, str(name), schema)
            if target.base is None and incoming.inserts().num_rows == 0:
                return ()
            path = output.announce(target, str(name), "CREATE" if target.base is None else "MERGE")
            collecting = {index: collector.begin(self.schema) for index, collector in collectors.items()}
            built = MergedFile.begin(
                output.files.storage, path, stored, incoming, self.settings, collecting.values(), self.renames
            )
            try:
                built.merge()
                fresh = incoming.inserts()
                inserted = fresh.num_rows
                built.insert(fresh, incoming.hashed if inserted == incoming.rows.num_rows else None)
                changed = inserted or incoming.updated or incoming.deleted or self._rewrites(target)
                if target.base is not None and not changed:
                    # Every incoming row was older than the stored one: the file stays as it is.
                    built.writer.abort()
                    return ()
                summary = built.writer.close()
            except BaseException:
                built.writer.abort()
                raise
        written = replace(
            output.finished(target, str(name), summary).written(collecting, started),
            inserted=inserted,
            updated=incoming.updated,
            deleted=incoming.deleted,
            moved=incoming.moved,
            previous=target.base.name if target.base else None,
            previous_instant=target.base.instant if target.base else None,
        )
        return (written,)

    def _rewrites(self, target: FileGroupTarget) -> bool:
        """Whether the rows are written again as they are: log files may hold older versions of them."""
        merged = target.item is not None and bool(target.item.log_files) and not target.appends
        return merged or self.policy.effects is Effects.NONE

    def incoming(self, records: IncomingRecords, file_id: str, name: str, schema: pa.Schema) -> IncomingRows:
        """The incoming rows of a group, as a file of these columns stores them with ``name`` as its name."""
        rows = records.rows
        if self.policy.effects is Effects.BY_ACTION:
            rows = require_unique_keys(rows, self.policy.duplicates, self.files.base_path)
        sequence = f"{self.instant}_{current_task().partition}_{file_id[:8]}-"
        return IncomingRows(rows, self.policy, schema, self.instant, name, sequence, records.hashed)

    @contextmanager
    def _stored(self, target: FileGroupTarget) -> Iterator[StoredRows | None]:
        """The group's file; None for a new group."""
        if target.base is None:
            yield None
            return
        path = self.files.path(target.base.relative_path)
        if target.item is not None and target.item.log_files and self.merge is not None:
            footer = read_footer(self.files.storage, path)
            # Its filter lacks keys that only log files have, and has those that they deleted.
            yield _MergedSlice(path, replace(footer, bloom=None), self.files, target.item, self.merge)
        else:
            wanted = {old for name in self.texts for old in (name, *self._old_names(name))}
            size = target.base.size
            with open_for_merge(
                self.files.storage, path, without=(FILE_NAME,), dictionaries=wanted, size=size
            ) as opened:
                yield opened

    def _old_names(self, name: str) -> list[str]:
        return [old for old, new in self.renames.items() if new == name]

    def _schema_of(self, footer: Footer | None, rows: pa.RecordBatch, collectors: Mapping[str, Collector]) -> pa.Schema:
        """The new file's columns: dictionaries where the old file has them, rows come so, or an index wants them."""
        if footer is None:
            repeating = {name for collector in collectors.values() for name in collector.repeating}
            found = [*repeating, *(column.name for column in rows.schema if pa.types.is_dictionary(column.type))]
        else:
            found = [self.renames.get(name, name) for name in footer.dictionaries]
        return with_dictionaries(self.schema, {*found, *_CONSTANT} & self.texts)


@dataclass(frozen=True, slots=True)
class _MergedSlice:
    """A slice with log files, read like a base file; nothing of its files is reused."""

    path: str
    footer: Footer
    files: TableFiles
    item: FileSlice
    merge: MergeSettings
    chunks: ClassVar[None] = None
    appendable_row_group: ClassVar[None] = None

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """All rows in batches."""
        columns = pa.schema([column for column in self.merge.schema if column.name != FILE_NAME])
        yield 0, iter_merged_slice(self.files, self.item, columns, self.merge)
