"""A table as of one moment: settings, timeline, metadata, schema and file slices. What plans and writes start from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.codec.avro_schema import avro_to_arrow
from lakedex.errors import CorruptFileError, TableNotFoundError, UnsupportedFeatureError
from lakedex.io.storage import Storage
from lakedex.layout.base_file import read_schema
from lakedex.layout.file_slice import BaseFile, FileSlice, latest_slices
from lakedex.layout.names import PARTITION_METAFILE, join_path
from lakedex.metadata.partitions import FILES
from lakedex.metadata.store import MetadataCache, MetadataStore, metadata_path
from lakedex.timeline.table_config import TableConfig, read_table_config
from lakedex.timeline.timeline import Timeline
from lakedex.types import META_COLUMNS

__all__ = ["Snapshot"]


@dataclass(slots=True)
class Snapshot:
    """A table pinned to an instant.

    Attributes:
        as_of: instant that files are read at; None for the newest.
    """

    storage: Storage
    base_path: str
    config: TableConfig
    timeline: Timeline
    metadata: MetadataStore
    as_of: str | None = None
    _slices: list[FileSlice] | None = field(default=None, repr=False)
    _schema: pa.Schema | None = field(default=None, repr=False)

    @classmethod
    def load(
        cls, storage: Storage, base_path: str, cache: MetadataCache | None = None, as_of: str | None = None
    ) -> Snapshot:
        """Read settings and both timelines.

        Raises:
            TableNotFoundError: no Hudi table at the path.
        """
        if not storage.exists(f"{base_path}/.hoodie"):
            raise TableNotFoundError(f"{base_path} is no Hudi table: it has no .hoodie folder", path=base_path)
        config = read_table_config(storage, base_path)
        data, own = _timelines(storage, base_path, config)
        store = MetadataStore(storage, base_path, data, own, config.metadata_partitions, cache or MetadataCache())
        return cls(storage, base_path, config, data, store, as_of)

    @property
    def instant(self) -> str | None:
        """The commit that this snapshot shows; None for a table without commits."""
        if self.as_of is not None:
            return self.as_of
        last = self.timeline.last_completed
        return None if last is None else last.requested

    @property
    def last_change(self) -> str | None:
        """When the last of its commits completed.

        Every commit moves it; :attr:`instant` stays where it is when one completes that was requested earlier.
        """
        last = self.timeline.last_changed
        return None if last is None else last.completed or last.requested

    @property
    def uses_metadata(self) -> bool:
        """Whether files are listed from the metadata table."""
        return self.metadata.has(FILES.name)

    def listing(self, partitions: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Partition path → file name → size, from the metadata table if it is complete, else from storage."""
        if self.uses_metadata:
            return self.metadata.file_listing(partitions)
        paths = self._walk("") if partitions is None else list(partitions)
        return {
            path: {
                entry.name: entry.size
                for entry in self.storage.list(join_path(self.base_path, path))
                if not entry.is_dir
            }
            for path in paths
        }

    def _walk(self, path: str) -> list[str]:
        """Folders with a partition metafile (``FSUtils.getAllFoldersWithPartitionMetaFile``)."""
        entries = self.storage.list(join_path(self.base_path, path))
        if any(entry.name.startswith(PARTITION_METAFILE) for entry in entries):
            return [path]
        inner = (join_path(path, entry.name) for entry in entries if entry.is_dir and entry.name != ".hoodie")
        return [found for folder in inner for found in self._walk(folder)]

    def base_files(self, partitions: Iterable[str] | None = None) -> list[BaseFile]:
        """Base files of the newest slices, of all partitions or of some."""
        return [item.base_file for item in self.slices(partitions) if item.base_file is not None]

    def slices(self, partitions: Iterable[str] | None = None) -> list[FileSlice]:
        """Newest file slices, of all partitions or of some.

        Raises:
            UnsupportedFeatureError: log files on a slice, which only merge-on-read tables have.
        """
        if self._slices is None and partitions is None:
            self._slices = self._find_slices(None)
        if self._slices is not None:
            wanted = None if partitions is None else set(partitions)
            return [item for item in self._slices if wanted is None or item.partition in wanted]
        return self._find_slices(partitions)

    def _find_slices(self, partitions: Iterable[str] | None) -> list[FileSlice]:
        found = latest_slices(
            self.listing(partitions),
            self.timeline.is_committed,
            self.timeline.completion_time,
            self.timeline.replaced_file_groups(self.as_of),
            self.as_of,
        )
        for item in found:
            if item.log_files:
                raise UnsupportedFeatureError(
                    f"{self.base_path}: file group {item.file_id} in {item.partition or 'the table'} has log files; "
                    "merge-on-read is not done yet, read it with Hudi or hudi-rs",
                    feature="log files",
                )
        return [item for item in found if item.base_file is not None]

    @property
    def schema(self) -> pa.Schema:
        """The table's own columns, without meta columns; empty for a table that has no schema yet.

        Taken from the newest commit that carries one, then from the table's settings, then from a base file.
        """
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def _find_schema(self) -> pa.Schema:
        for instant in reversed(self.timeline.completed({"commit", "deltacommit", "replacecommit"})):
            if self.as_of is not None and instant.requested > self.as_of:
                continue
            commit = self.timeline.commit_metadata(instant)
            if commit.schema is not None and commit.operation not in ("COMPACT", "CLUSTER", "LOG_COMPACT"):
                return self.parse_schema(commit.schema, instant.file_name)
        if self.config.create_schema:
            return self.parse_schema(self.config.create_schema, "hoodie.table.create.schema")
        for base in self.base_files():
            stored = read_schema(self.storage, f"{self.base_path}/{base.relative_path}")
            return pa.schema([column for column in stored if column.name not in META_COLUMNS])
        return pa.schema([])

    def stored_schema(self, base: BaseFile) -> pa.Schema:
        """Columns that a base file was written with.

        Known from the commit that wrote it; a file of an archived commit is asked itself.
        """
        if self.timeline.is_completed(base.instant):
            text = self.timeline.commit_metadata(base.instant).schema
            if text is not None:
                return self.parse_schema(text, base.instant)
        return read_schema(self.storage, f"{self.base_path}/{base.relative_path}")

    def parse_schema(self, text: str, source: str) -> pa.Schema:
        """Columns of an Avro schema of this table, without meta columns; ``source`` is for messages."""
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise CorruptFileError(f"{self.base_path}/.hoodie/{source}", 0, "an Avro schema", text[:40]) from error
        return pa.schema([column for column in avro_to_arrow(parsed) if column.name not in META_COLUMNS])


def _timelines(storage: Storage, base_path: str, config: TableConfig) -> tuple[Timeline, Timeline]:
    """Both timelines, as of one moment.

    The metadata timeline is read second: what completed on the data timeline is then on both, and what is pending there
    counts on neither. A commit that began and completed its metadata between the two listings is on the second only;
    then both are read again, until such an instant turns out to be the metadata table's own (a compaction).
    """
    seen: set[str] = set()
    while True:
        data = Timeline.load(storage, base_path, config.timeline_path, zone=config.timezone)
        own = Timeline.load(storage, metadata_path(base_path), config.timeline_path, zone=config.timezone)
        last = data.last_time
        ahead = {i.requested for i in own.completed() if i.requested > last and not data.contains(i.requested)}
        if ahead <= seen:
            return data, own
        seen |= ahead
