"""A table as of one moment: settings, timelines, metadata, schema and file slices; plans and writes start from it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import pyarrow as pa

from lakedex.codec.avro_schema import avro_to_arrow
from lakedex.codec.comments import avro_comments
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.properties import decode_json_object
from lakedex.codec.table_paths import check_partition
from lakedex.codec.vectors import hudi_types
from lakedex.engine import Engine
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.io.storage import TableFiles
from lakedex.layout.contained_files import inner_folders, require_folders, require_own_folders
from lakedex.layout.file_slice import BaseFile, FileSlice, SliceRules, file_group_slices, find_slices
from lakedex.layout.names import PARTITION_METAFILE, join_path
from lakedex.metadata.file_groups import is_of_creation
from lakedex.metadata.files import key_text
from lakedex.metadata.records import ALL_PARTITIONS, FILES, NON_PARTITIONED, SUPPORTED
from lakedex.metadata.store import DeltaCommit, MetadataListing, MetadataStore
from lakedex.parallel import overlapped
from lakedex.parquet.base_file_reader import read_schema
from lakedex.snapshot.file_system_view import FileSystemView, TableCache, TableSchema, ViewKey, group_slices
from lakedex.snapshot.schema import LATEST_SCHEMA, moved_names
from lakedex.timeline.active import WRITE_ACTIONS, Timeline
from lakedex.timeline.archived import archived_completion_times
from lakedex.timeline.instant import Instant, InstantClock, wall_clock
from lakedex.timeline.table_config import TableConfig, read_table_config
from lakedex.types import META_COLUMNS

__all__ = ["Snapshot", "TableContext"]


@dataclass(slots=True)
class Snapshot:
    """A table pinned to an instant.

    Attributes:
        as_of: instant that files are read at; None for the newest.
        read_optimized: leave out log files: a merge-on-read table as of its last compactions.
    """

    files: TableFiles
    config: TableConfig
    timeline: Timeline
    metadata: MetadataStore
    as_of: str | None = None
    read_optimized: bool = False
    _view: FileSystemView | None = field(default=None, repr=False)
    _chosen: bool = field(default=False, repr=False)
    _schema: TableSchema | None = field(default=None, repr=False)
    _archived: dict[str, str] | None = field(default=None, repr=False)
    _by_partition: dict[str, Sequence[FileSlice]] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        files: TableFiles,
        cache: TableCache | None = None,
        as_of: str | None = None,
        *,
        read_optimized: bool = False,
        is_locked: bool = False,
    ) -> Snapshot:
        """Read settings and both timelines.

        Args:
            files: the table's files.
            cache: what the process knows of the table.
            as_of: instant that files are read at; None for the newest.
            read_optimized: leave out log files.
            is_locked: the caller has the table's lock, so that nobody changes the timelines meanwhile.

        Raises:
            TableNotFoundError: no Hudi table at the path.
            CorruptFileError: a folder of the table's own is a link.
        """
        return cls._now(files, cache or TableCache(), as_of, read_optimized, is_locked=is_locked)

    @classmethod
    def _now(
        cls, files: TableFiles, cache: TableCache, as_of: str | None, read_optimized: bool, *, is_locked: bool = False
    ) -> Snapshot:
        require_folders(files, [".hoodie"])
        state = _known_state(files, cache, is_locked) if files.has_latency else None
        if state is None:
            config = read_table_config(files)
            require_own_folders(files, config.timeline_path, config.archive_folder)
            state = _State(config, *_timelines(files, config, cache))
        cache.config = state.config
        config, data, own, listing = state
        store = MetadataStore(files, data, own, config.metadata_partitions, cache, listing=listing)
        return cls(files, config, data, store, as_of, read_optimized=read_optimized)

    def refreshed(self, *, is_locked: bool = False) -> Snapshot:
        """Read settings and both timelines again: the same object if nothing moved, else the table as it is now.

        Args:
            is_locked: the caller has the table's lock, so that nobody changes the timelines meanwhile.

        Raises:
            TableNotFoundError: the table is gone.
            CorruptFileError: a folder of the table's own is a link.
        """
        now = Snapshot._now(self.files, self.cache, self.as_of, self.read_optimized, is_locked=is_locked)
        same = now.timeline is self.timeline and now.metadata.timeline is self.metadata.timeline
        if not same or now.config != self.config:
            return now
        self.metadata.listing = now.metadata.listing
        return self

    def has_same_commits(self) -> bool:
        """Whether settings and timeline of the table are still those of this snapshot; its metadata is not looked at.

        Raises:
            TableNotFoundError: the table is gone.
        """
        config = self.config
        place = config.timeline_path, config.timezone, config.layout_version
        read: list[Callable[[], object]] = [
            partial(read_table_config, self.files),
            partial(self.cache.timeline, self.files, *place),
        ]
        found, now = cast("tuple[TableConfig, Timeline]", overlapped(read, self.files.has_latency))
        return found == config and now.instants == self.timeline.instants

    def with_commit(
        self, done: Instant, body: bytes, delta: DeltaCommit | None, *, changes_documents: bool
    ) -> Snapshot:
        """The table once a commit of this process and its delta commit are complete, without another listing.

        Args:
            done: the commit.
            body: content of its file.
            delta: the delta commit; None for a table without metadata table.
            changes_documents: the commit changed definitions of indexes.
        """
        # On a local disk a file is read again as quickly, and damage to it is seen.
        timeline = self.timeline.with_completed(done, None if self.metadata.listing is None else body)
        metadata = self.metadata.with_completed(timeline, delta)
        self.cache.keep_timelines(timeline, metadata.timeline)
        committed = replace(self, timeline=timeline, metadata=metadata, _view=None, _schema=None)
        if not changes_documents:
            self._keep_documents(committed)
        return committed

    @property
    def cache(self) -> TableCache:
        """The process's cache of this table; :meth:`load` gives the metadata store the same one."""
        return cast("TableCache", self.metadata.cache)

    @property
    def instant(self) -> str | None:
        """The commit that this snapshot shows; None for a table without commits."""
        if self.as_of is not None:
            return self.as_of
        last = self.timeline.last_completed
        return None if last is None else last.requested

    @property
    def last_completion_time(self) -> str | None:
        """When the last of its commits completed.

        Every commit moves it; :attr:`instant` stays where it is when one completes that was requested earlier.
        """
        last = self.timeline.last_changed
        return None if last is None else last.completed or last.requested

    @property
    def is_newest(self) -> bool:
        """Whether its slices are those of the last commit: what the metadata says of whole partitions is of them."""
        return self.as_of is None and not self._chosen

    def document(self, path: str, *state: object) -> bytes:
        """Content of a small file of the table that changes only with the table's state, or with ``state``.

        On object stores it is read once for each state.

        Args:
            path: Path below the table.
            state: What else the content depends on.

        Raises:
            FileNotFoundError: There is no such file.
        """
        full = self.files.path(path)
        if self.metadata.listing is None or self.as_of is not None:
            return self.files.storage.read(full)
        key = (self._settled, *state)
        known = self.cache.documents.get(path)
        if known is None or known[0] != key:
            content: bytes | None = None
            with contextlib.suppress(FileNotFoundError):
                content = self.files.storage.read(full)
            known = self.cache.documents[path] = (key, content)
        if known[1] is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full)
        return known[1]

    @property
    def _settled(self) -> tuple[TableConfig, tuple[Instant, ...], tuple[Instant, ...]]:
        """The state of the table without what is pending."""
        return self.config, self.timeline.completed(), self.metadata.timeline.completed()

    def _keep_documents(self, committed: Snapshot) -> None:
        """Let documents that this state was known by be those of the state after a commit that changed none."""
        mine, theirs = (self._settled,), (committed._settled,)
        for path, (key, content) in tuple(self.cache.documents.items()):
            if key == mine:
                self.cache.documents[path] = (theirs, content)

    @property
    def history_path(self) -> str:
        """Folder of archived instants (``hoodie.timeline.history.path``; layout 1: ``hoodie.archivelog.folder``)."""
        return self.files.path(self.config.archive_folder)

    @property
    def last_time(self) -> str:
        """The largest time on both timelines; new ones must be larger."""
        return max(self.timeline.last_time, self.metadata.timeline.last_time)

    @property
    def uses_metadata(self) -> bool:
        """Whether files are listed from the metadata table."""
        return self.metadata.has(FILES.name)

    @property
    def lost_metadata(self) -> dict[str, str]:
        """Metadata partitions that the table lists and that cannot be used, with what is wrong with each."""
        found = ((name, self.metadata.damage_of(name)) for name in sorted(self.metadata.partitions & SUPPORTED.keys()))
        return {name: wrong for name, wrong in found if wrong}

    def listing(self, partitions: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Partition path → file name → size, from the metadata table if it is complete and whole, else from storage.

        Raises:
            CorruptFileError: a partition's folder is a link, or lies outside of the table.
        """
        wanted = None if partitions is None else [check_partition(path, self.files.base_path) for path in partitions]
        found = self._listed(wanted)
        if found is not None:
            require_folders(self.files, found)
            return found
        paths = self._walk("") if wanted is None else wanted
        require_folders(self.files, paths)
        return {
            path: {
                entry.name: entry.size for entry in self.files.storage.list(self.files.path(path)) if not entry.is_dir
            }
            for path in paths
        }

    def _listed(self, partitions: Iterable[str] | None) -> dict[str, dict[str, int]] | None:
        """The listing of the metadata table; None if there is none, or one that cannot be read."""
        if self.uses_metadata:
            try:
                return self.metadata.file_listing(partitions)
            except (CorruptFileError, FileNotFoundError) as error:
                self.metadata.mark_unusable(FILES.name, str(error))
        return None

    def read_partitions(self) -> None:
        """Read from ``files`` which partitions there are, to know whether it can be read."""
        if self.uses_metadata:
            try:
                self.metadata.partition_paths()
            except (CorruptFileError, FileNotFoundError) as error:
                self.metadata.mark_unusable(FILES.name, str(error))

    def _walk(self, path: str) -> list[str]:
        """Folders with a partition metafile (``FSUtils.getAllFoldersWithPartitionMetaFile``)."""
        folder = self.files.path(path)
        entries = self.files.storage.list(folder)
        if any(entry.name.startswith(PARTITION_METAFILE) for entry in entries):
            return [path]
        inner = inner_folders(folder, entries)
        return [found for name in inner for found in self._walk(join_path(path, name))]

    def base_files(self, partitions: Iterable[str] | None = None) -> list[BaseFile]:
        """Base files of the newest slices, of all partitions or of some."""
        return [item.base_file for item in self.slices(partitions) if item.base_file is not None]

    def slices(self, partitions: Iterable[str] | None = None) -> list[FileSlice]:
        """Newest file slices, of all partitions or of some."""
        if partitions is None:
            return list(self.view().table.slices)
        wanted = sorted(set(partitions))
        if self._view is not None:
            return [item for path in wanted for item in self._view.by_partition.get(path, ())]
        if new := [path for path in wanted if path not in self._by_partition]:
            self._by_partition |= dict.fromkeys(new, ()) | group_slices(self._find_slices(new))
        return [item for path in wanted for item in self._by_partition[path]]

    def view(self) -> FileSystemView:
        """All slices, with what was worked out from them; of a state that was seen before, the very same object."""
        if self._view is None:
            cache = self.cache
            token = self._token()
            moment = (self.as_of, self.read_optimized)
            known = cache.view(moment)
            if known is None or known.token != token:
                known = (self._update_view(known, token) if known is not None else None) or self._build_view(token)
                cache.put_view(moment, known)
            self._view = known
        return self._view

    def _token(self) -> ViewKey:
        return ViewKey(self.config, self.timeline.instants, self.metadata.timeline.instants)

    def _build_view(self, token: ViewKey) -> FileSystemView:
        slices = self._find_slices(None)  # First: it may find that the metadata table cannot be read.
        listed_from = self.metadata.files_of(FILES.name) if self.uses_metadata else None
        replaced = self.timeline.replaced_file_groups(self.as_of)
        return FileSystemView.of(token, slices, listed_from, replaced)

    def _update_view(self, older: FileSystemView, token: ViewKey) -> FileSystemView | None:
        """The view of this state from that of an earlier one; None where it has to be listed again.

        A partition's slices change with its record in ``files`` or with a replace commit that names it. When instants
        were archived, completion times of log files are no longer known, and everything is looked at again.
        """
        if self.as_of is not None or older.listed_from is None or not self.uses_metadata:
            return None
        if older.token.config != self.config or older.token.instants[:1] != self.timeline.instants[:1]:
            return None
        try:
            added = self.metadata.added_since(FILES.name, older.listed_from)
            if added is None:
                return None
            return self._apply_changes(older, token, added)
        except (CorruptFileError, FileNotFoundError):
            return None

    def _apply_changes(self, older: FileSystemView, token: ViewKey, added: Iterable[HFileReader]) -> FileSystemView:
        replaced = self.timeline.replaced_file_groups()
        keys = {key_text(key, layer) for layer in added for key, _ in layer.scan()} - {ALL_PARTITIONS}
        changed = {"" if key == NON_PARTITIONED else key for key in keys}
        changed |= {path for path, _ in replaced.keys() ^ older.replaced.keys()}
        found: dict[str, Sequence[FileSlice]] = dict.fromkeys(changed, ())
        found |= group_slices(self._find_slices(sorted(changed)) if changed else [])
        return older.advanced(token, found, self.metadata.files_of(FILES.name), replaced, self.metadata)

    def file_groups(self, partitions: Iterable[str] | None = None) -> dict[str, dict[str, list[FileSlice]]]:
        """Partition path → file id → all committed slices that are still there, newest first; replaced groups too."""
        rules = self._slice_rules()
        return {path: file_group_slices(path, files, rules) for path, files in self.listing(partitions).items()}

    def _find_slices(self, partitions: Iterable[str] | None) -> list[FileSlice]:
        return find_slices(self.listing(partitions), self._slice_rules())

    def _slice_rules(self) -> SliceRules:
        old_names = self.config.version < 8
        pending = {i.requested for i in self.timeline.pending({"compaction"})} if old_names else ()
        return SliceRules(
            is_committed=self.timeline.is_committed,
            completion_time=self._completion_time,
            replaced=frozenset(self.timeline.replaced_file_groups(self.as_of)),
            as_of=self.as_of,
            logs_name_base=old_names,
            pending_compactions=frozenset(pending),
            base_files_only=self.read_optimized or self.config.table_type == "COPY_ON_WRITE",
        )

    def _completion_time(self, instant: str) -> str | None:
        known = self.timeline.completion_time(instant)
        if known is not None or self.timeline.contains(instant) or self.config.version < 8:
            return known
        if self._archived is None:
            self._archived = archived_completion_times(self.files.storage, self.history_path)
        return self._archived.get(instant)

    def at(self, as_of: str) -> Snapshot:
        """The same table, its files and schema as of an instant."""
        return replace(self, as_of=as_of, _view=None, _schema=None)

    @property
    def goes_by_completion(self) -> bool:
        """Whether commits are ordered by when they completed, as from version 8 on, or by when they were requested."""
        return self.config.version >= 8

    def time_of(self, commit: Instant) -> str:
        """The time by which ranges of commits are ordered."""
        return commit.completed or commit.requested if self.goes_by_completion else commit.requested

    def completed_by(self, moment: str) -> Snapshot:
        """The same table as of a :meth:`time_of` commits: those of a later one count as pending.

        :meth:`at` goes by requested times alone, and has what was under way at that instant and completed since.
        """
        late = [i.requested for i in self.timeline.completed(WRITE_ACTIONS) if self.time_of(i) > moment]
        return replace(self.at(moment), timeline=self.timeline.without(late))

    def with_slices(self, slices: Iterable[FileSlice]) -> Snapshot:
        """The same table and schema with other slices than the newest: those of a range of commits, say."""
        view = FileSystemView.of(self._token(), list(slices), None, {})
        return replace(self, _view=view, _chosen=True, _schema=self._table_schema)

    @property
    def schema(self) -> pa.Schema:
        """The table's own columns, without meta columns; empty for a table that has no schema yet.

        Taken from the newest commit that carries one, then from the table's settings, then from a base file.
        """
        return self._table_schema.columns

    @property
    def hudi_types(self) -> Mapping[str, str]:
        """Columns with a type of Hudi's own (VECTOR, BLOB, VARIANT), and its name; :attr:`schema` has Arrow's."""
        return self._table_schema.hudi_types

    @property
    def comments(self) -> Mapping[str, str]:
        """Comments of columns and of the fields inside of them, by path; :attr:`schema` is free of them."""
        return self._table_schema.comments

    @property
    def evolves_on_read(self) -> bool:
        """Whether the schema was changed under Hudi's schema-on-read."""
        return self._table_schema.evolves_on_read

    @property
    def _table_schema(self) -> TableSchema:
        if self._schema is None:
            cached = self.cache.schema if self.as_of is None else None
            if cached is None or cached[:2] != (self.config, self.timeline):
                cached = self.config, self.timeline, self._find_schema()
                # Renamed columns are looked for each time: their history is not on the timeline.
                if self.as_of is None and not cached[2].evolves_on_read:
                    self.cache.schema = cached
            self._schema = cached[2]
        return self._schema

    def _find_schema(self) -> TableSchema:
        for instant in reversed(self.timeline.completed({"commit", "deltacommit", "replacecommit"})):
            if self.as_of is not None and instant.requested > self.as_of:
                continue
            commit = self.timeline.commit_notes(instant)
            if commit.schema is not None and commit.operation not in ("COMPACT", "CLUSTER", "LOG_COMPACT"):
                latest = commit.extra.get(LATEST_SCHEMA)
                if latest:
                    self._require_unmoved(latest)
                return replace(self._parsed(commit.schema, instant.file_name), evolves_on_read=bool(latest))
        if self.config.create_schema:
            return self._parsed(self.config.create_schema, "hoodie.table.create.schema")
        for base in self.base_files():
            stored = read_schema(self.files.storage, self.files.path(base.relative_path))
            return TableSchema(pa.schema([column for column in stored if column.name not in META_COLUMNS]))
        return TableSchema(pa.schema([]))

    def _parsed(self, text: str, source: str) -> TableSchema:
        return _own_columns(text, self.files.path(f".hoodie/{source}"))

    def _require_unmoved(self, latest: str) -> None:
        """Refuse a table whose files must not be matched by name (Hudi's schema-on-read).

        Raises:
            UnsupportedFeatureError: names the columns.
        """
        folder = self.files.path(".hoodie/.schema")
        versions = sorted(
            entry.name for entry in self.files.storage.list(folder) if entry.name.endswith(".schemacommit")
        )
        newest = f"{folder}/{versions[-1]}" if versions else ""
        try:
            moved = moved_names(latest, self.files.storage.read(newest).decode("utf-8") if newest else "")
        except ValueError as error:
            raise CorruptFileError(newest or folder, 0, "schemas of schema-on-read", str(error)) from error
        if moved:
            raise UnsupportedFeatureError(
                f"{self.files}: column {', '.join(map(repr, moved[:3]))} was renamed or dropped and added again by "
                "Hudi's schema-on-read, so its files hold it under another name; read it with Hudi, or rewrite the "
                "files there (clustering) first",
                feature="renamed columns under schema on read",
            )

    def stored_schema(self, base: BaseFile) -> pa.Schema:
        """Columns that a base file was written with.

        Known from the commit that wrote it; a file of an archived commit is asked itself.
        """
        if self.timeline.is_completed(base.instant):
            text = self.timeline.commit_notes(base.instant).schema
            if text is not None:
                return self.parse_schema(text, base.instant)
        return read_schema(self.files.storage, self.files.path(base.relative_path))

    def parse_schema(self, text: str, source: str) -> pa.Schema:
        """Columns of an Avro schema of this table, without meta columns; ``source`` is for messages."""
        return self._parsed(text, source).columns


@lru_cache(maxsize=64)
def _own_columns(text: str, path: str) -> TableSchema:
    avro = decode_json_object(text, "an Avro schema", path)
    stored = avro_to_arrow(avro, path)
    own = pa.schema([column for column in stored if column.name not in META_COLUMNS])
    return TableSchema(own, hudi_types(avro), avro_comments(avro))


class _State(NamedTuple):
    config: TableConfig
    data: Timeline
    own: Timeline
    listing: MetadataListing | None


def _known_state(files: TableFiles, cache: TableCache, is_locked: bool) -> _State | None:
    """The state of a table whose settings are known, by requests at once; None if it has to be read step by step.

    The metadata table is not listed after the data timeline then. That is as good if the data timeline did not move
    since it was read before, or under the lock; else the metadata table is listed again.
    """
    config = cache.config
    if config is None:
        return None
    path, zone, layout = config.timeline_path, config.timezone, config.layout_version
    before = cache.known_timeline(files, path)
    read: list[Callable[[], object]] = [
        partial(read_table_config, files),
        partial(cache.timeline, files, path, zone, layout),
        partial(files.storage.list_tree, files.metadata.base_path),
    ]
    now, data, listing = cast("tuple[TableConfig, Timeline, MetadataListing | None]", overlapped(read, at_once=True))
    if (now.timeline_path, now.timezone, now.layout_version) != (path, zone, layout):
        return None
    same = is_locked or (before is not None and data.instants == before.instants)
    if listing is not None and same:
        own = cache.timeline(files.metadata, path, zone, layout, listing.get(path, ()))
        if not _ahead(data, own, cache.own_instants):
            return _State(now, data, own, listing)
    return _State(now, *_timelines(files, now, cache, data))


def _timelines(
    files: TableFiles, config: TableConfig, cache: TableCache, data: Timeline | None = None
) -> tuple[Timeline, Timeline, MetadataListing | None]:
    """Both timelines, as of one moment, and the folders of the metadata table if one request lists them all.

    ``data`` is the table's own if it was just read.

    The metadata timeline is read second: what completed on the data timeline is then on both, and what is pending there
    counts on neither. Two things may have happened between the listings, after which both are read again: a commit
    began and completed its metadata (it is on the second only), or one that was pending completed and was compacted
    (a base file is trusted whole). That goes on until such an instant turns out to be the metadata table's own.
    """
    seen: set[str] = set()
    path, zone, layout = config.timeline_path, config.timezone, config.layout_version
    while True:
        data = data or cache.timeline(files, path, zone, layout)
        listing = files.storage.list_tree(files.metadata.base_path)
        instants = None if listing is None else listing.get(path, ())
        own = cache.timeline(files.metadata, path, zone, layout, instants)
        ahead = _ahead(data, own, cache.own_instants)
        if ahead <= seen:
            cache.own_instants |= {requested for requested in ahead if not data.contains(requested)}
            return data, own, listing
        seen |= ahead
        data = None


def _ahead(data: Timeline, own: Timeline, known: Collection[str]) -> set[str]:
    """Delta commits that came between the listings, or are the metadata table's own and not ``known`` as such."""
    last = data.last_time
    deltas = [i for i in own.completed({"deltacommit"}) if i.requested not in known and not is_of_creation(i.requested)]
    # Version 6 calls the metadata table's own instants by a data instant and a suffix.
    ahead = {i.requested for i in deltas if i.requested[:17] > last and not data.contains(i.requested)}
    compacted = max((i.requested for i in own.completed({"commit"})), default="")
    pending = {i.requested for i in data.pending()}
    return ahead | {i.requested for i in deltas if i.requested in pending and (i.completed or i.requested) < compacted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the work that one commit, one task or the driver takes at a time.

    Attributes:
        driver_filter_bytes: Bloom filters that the driver reads for one write; past it executors read their own.
        gather_rows: Past this number of rows the tasks of the keys are many, and read no filters of their own.
        proof_keys: Keys of an erasure that are proved by a condition; more are looked up again as a frame.
        full_proof_bytes: Tables up to this size are read completely for that proof by default.
        files_per_commit: Files whose records an index build puts into one delta commit of the metadata table.
        files_per_chunk: Files whose bitmaps a build makes before it writes them.
        build_inline_bytes: Bitmaps of one file up to this size come back with the result of a build's task.
        write_inline_bytes: The same of a write's task.
        compact_at: Number of runs of bitmaps from which they are compacted.
        driver_run_bytes: Runs up to this size together are compacted on the driver: a task takes longer to start.
        thread_merge_bytes: Merges of the metadata table up to this size run in threads, larger ones in engine tasks.
    """

    driver_filter_bytes: int = 64 << 20
    gather_rows: int = 200_000
    proof_keys: int = 10_000
    full_proof_bytes: int = 1 << 30
    files_per_commit: int = 4096
    files_per_chunk: int = 64
    build_inline_bytes: int = 1 << 20
    write_inline_bytes: int = 256 << 10
    compact_at: int = 4
    driver_run_bytes: int = 16 << 20
    thread_merge_bytes: int = 64 << 20


@dataclass(slots=True)
class TableContext:
    """A table and the engine that works on it. Stays on the driver.

    Attributes:
        files: the table's files.
        engine: runs tasks.
        options: ``hoodie.*`` options of the table object; those of a call override them.
        cache: timelines, views and opened metadata files.
        now_ms: the time, in epoch milliseconds.
        limits: bounds on one piece of work.
        last: the last state that was seen of the table.
    """

    files: TableFiles
    engine: Engine
    options: Mapping[str, Any] = field(default_factory=dict)
    cache: TableCache = field(default_factory=TableCache)
    now_ms: Callable[[], int] = wall_clock
    limits: Limits = field(default_factory=Limits)
    last: Snapshot | None = field(default=None, compare=False, repr=False)

    def clock(self, zone: str) -> InstantClock:
        """A source of instants in the table's zone."""
        return InstantClock(zone, now_ms=self.now_ms)

    def snapshot(self, as_of: str | None = None, *, read_optimized: bool = False, is_locked: bool = False) -> Snapshot:
        """The table now, or at an instant.

        Args:
            as_of: the instant; None for now.
            read_optimized: leave out log files.
            is_locked: the caller has the table's lock.
        """
        found = Snapshot.load(self.files, self.cache, as_of, read_optimized=read_optimized, is_locked=is_locked)
        if as_of is None and not read_optimized:
            self.last = found
        return found

    def current(self) -> Snapshot:
        """The table now as far as its settings, commits and schema go; its metadata table may have been changed since.

        Enough to prepare a write, which looks at the table again under the lock.
        """
        last = self.last
        known = last is not None and last.files is self.files and last.has_same_commits()
        return last if last is not None and known else self.snapshot()
