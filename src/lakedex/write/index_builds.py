"""Building indexes of a live table from its data.

An index build reads the base files without holding the table lock, one task a file. Then, under the lock, it catches up
with files that came in between and writes all records as delta commits of the metadata table alone. Only after that is
the index listed in ``hoodie.properties``: a build that dies leaves nothing that anybody reads.

Writers of lakedex that are under way meanwhile look at the list when they commit. Those of others may have looked
already, so a build ends with an error while one is pending.

Memory: the driver holds the bounds of all files (some 300 bytes for each column of each file); larger bloom filters lie
in the table's temp folder until they are written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from lakedex.codec.bloom import BloomBuilder
from lakedex.codec.stats_value import stats_supported
from lakedex.errors import CommitConflictError, IndexExistsError, InvalidInputError, UnsupportedFeatureError
from lakedex.index.column_stats import ColumnStat, indexable_columns, merge_stats, stats_records
from lakedex.index.definitions import (
    definitions_path,
    encode_definitions,
    read_definitions,
    source_fields,
    with_column_stats,
)
from lakedex.index.partition_stats import StatsOfFile, partition_records, partition_stats
from lakedex.io.heartbeat import Heartbeat, is_ours
from lakedex.io.locks import TableLock
from lakedex.io.storage import Storage
from lakedex.layout.base_file import iter_base_file, read_footer
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.bootstrap import create_file_groups
from lakedex.metadata.delta_commit import Keyed, LogWritten, SpilledBloom, write_delta_commit
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, bloom_key
from lakedex.metadata.records import bloom_record
from lakedex.metadata.snapshot import Snapshot
from lakedex.metadata.store import MetadataStore, metadata_path
from lakedex.options import WriteOptions
from lakedex.services.locking import require_exclusive_create, table_lock
from lakedex.services.rollback import remove_leftovers, roll_back_expired, temp_path
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import recover_table_config, update_table_config
from lakedex.timeline.table_support import require_writable
from lakedex.timeline.timeline import WRITE_ACTIONS
from lakedex.types import META_COLUMNS, RECORD_KEY
from lakedex.write.result import IndexResult

__all__ = ["Progress", "create_index", "metadata_partitions_property", "renew_entries", "tidied"]

Progress = Callable[[int, int], None]
"""Called with the number of files done and the number of all."""

INLINE_BLOOM_BYTES = 4 * 1024
FILES_PER_COMMIT = 4096
"""Files whose records go into one delta commit of the metadata table: what the driver holds of them at a time."""

DEFINITIONS_PATH = "hoodie.table.index.defs.path"
DEFAULT_DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
BUILT = (COLUMN_STATS.name, BLOOM_FILTERS.name, PARTITION_STATS.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomOfFile:
    """Task: a base file's filter, from its footer or else from its keys; with ``anew`` from its keys only."""

    storage: Storage
    base_path: str
    folder: str
    options: WriteOptions
    anew: bool = False

    def __call__(self, base: BaseFile) -> tuple[str, bytes | None, str | None]:
        """Type of the filter, and its text or where that lies."""
        path = f"{self.base_path}/{base.relative_path}"
        footer = read_footer(self.storage, path)
        kind, text = footer.bloom_type, footer.bloom
        if text is None or self.anew:
            kind, text = self.options.bloom_type, self._built(path, footer.rows)
        if len(text) <= INLINE_BLOOM_BYTES:
            return kind, text, None
        spill = f"{self.folder}/{base.name}.bloom"
        self.storage.write(spill, text)
        return kind, None, spill

    def _built(self, path: str, rows: int) -> bytes:
        entries = self.options.bloom_entries or max(rows, 1)
        builder = BloomBuilder(
            num_entries=entries,
            fpp=self.options.bloom_fpp,
            type_code=self.options.bloom_type,
            max_entries=max(self.options.bloom_max_entries, entries),
        )
        for batch in iter_base_file(self.storage, path, [RECORD_KEY]):
            builder.add(batch.column(0))
        return builder.finish().encode()


def create_index(
    handle: TableHandle,
    options: WriteOptions,
    name: str,
    *,
    using: str | None = None,
    columns: Sequence[str] | None = None,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Build an index from the table's data; see :meth:`lakedex.Table.create_index`."""
    started = time.perf_counter()
    kind = _kind(name, using)
    require_exclusive_create(handle)
    with table_lock(handle, options) as lock:
        now, clock = tidied(handle, options, lock)
        build = _Build(handle, options, kind, columns, clock, progress, clock.next(_last_time(now)))
        time.sleep(0.002)  # The build's name is on no timeline: the next writer must not get the same.
    if not build.plan(now):
        if not if_not_exists:
            raise IndexExistsError(
                f"{handle.base_path}: the index {kind!r} exists and covers what was asked for; drop it first, or pass "
                "if_not_exists=True",
                index=kind,
            )
        notes = ("the index exists already",)
        return IndexResult(name=kind, notes=notes, seconds=time.perf_counter() - started)
    with build.alive(build.name):
        try:
            build.read(now.base_files())
            with table_lock(handle, options) as lock:
                return build.publish(lock, started)
        finally:
            handle.storage.delete_tree(temp_path(handle.base_path, build.name))


def renew_entries(handle: TableHandle, options: WriteOptions, kind: str, files: Collection[tuple[str, str]]) -> int:
    """Compute the entries of base files anew from the data and write them, and ``partition_stats`` after them.

    Args:
        handle: the table.
        options: filter sizes, lock.
        kind: ``column_stats`` or ``bloom_filters``.
        files: base files by partition and name; those that are not current any more are left out.

    Returns:
        How many files it were.
    """
    require_exclusive_create(handle)
    with table_lock(handle, options) as lock:
        now, clock = tidied(handle, options, lock)
        build = _Build(handle, options, kind, None, clock, None, clock.next(_last_time(now)), anew=True)
        build.renew(lock, now, [base for base in now.base_files() if (base.partition, base.name) in files])
    return len(build.stats) + len(build.blooms)


def _kind(name: str, using: str | None) -> str:
    wanted = using or name
    if wanted not in BUILT:
        raise UnsupportedFeatureError(
            f"lakedex builds the indexes {', '.join(BUILT)} and bitmap, not {wanted!r}; build others with Hudi",
            feature=f"index {wanted}",
        )
    if name != wanted:
        raise InvalidInputError(
            f"a table has one index of the kind {wanted} and Hudi calls it {wanted!r}, not {name!r}: use that name"
        )
    return wanted


def tidied(handle: TableHandle, options: WriteOptions, lock: TableLock) -> tuple[Snapshot, InstantClock]:
    """The table as it is once what dead writers left is gone. Call under the table lock.

    Raises:
        UnsupportedFeatureError: lakedex does not write this table.
    """
    recover_table_config(handle.storage, handle.base_path)
    snapshot = handle.snapshot()
    require_writable(snapshot.config)
    clock = InstantClock(snapshot.config.timezone)
    interval = int(options.heartbeat_interval * 1000)
    if roll_back_expired(snapshot, clock, interval, options.heartbeat_misses):
        snapshot = handle.snapshot()
    remove_leftovers(snapshot, interval, options.heartbeat_misses)
    lock.check()
    return handle.snapshot(), clock


def metadata_partitions_property(present: frozenset[str], *, added: Sequence[str] = ()) -> dict[str, str | None]:
    """The change of ``hoodie.properties`` that lists these metadata partitions."""
    return {METADATA_PARTITIONS: ",".join(sorted({*present, *added}))}


def _last_time(snapshot: Snapshot) -> str:
    return max(snapshot.timeline.last_time, snapshot.metadata.timeline.last_time)


@dataclass(slots=True)
class _Build:
    """One build: what it covers, and what it has read so far."""

    handle: TableHandle
    options: WriteOptions
    kind: str
    columns: Sequence[str] | None
    clock: InstantClock
    progress: Progress | None
    name: str
    indexed: dict[str, pa.DataType] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    schema: pa.Schema | None = None
    stats: dict[BaseFile, list[ColumnStat]] = field(default_factory=dict)
    blooms: dict[BaseFile, tuple[str, bytes | None, str | None]] = field(default_factory=dict)
    anew: bool = False

    # ------------------------------------------------------------------------------------------- what there is to do

    def plan(self, now: Snapshot) -> bool:
        """Choose the columns; whether anything has to be built."""
        store = now.metadata
        if not store.has(FILES.name):
            raise UnsupportedFeatureError(
                f"{self.handle.base_path}: its metadata table is off, and rebuilding it is not done yet; let a Hudi "
                "writer with hoodie.metadata.enable=true make it",
                feature="rebuilding the metadata table",
            )
        self.schema = now.schema
        if self.kind == COLUMN_STATS.name:
            return self._plan_column_stats(now)
        if self.columns is not None and not self._is_key(now):
            raise UnsupportedFeatureError(
                f"{self.handle.base_path}: {self.kind} takes no columns: it covers the record key"
                if self.kind == BLOOM_FILTERS.name
                else f"{self.handle.base_path}: {self.kind} takes no columns: it has those of column_stats",
                feature=f"{self.kind} of other columns",
            )
        if self.kind == PARTITION_STATS.name:
            self._require_column_stats(now)
            self.indexed = self._types(now, source_fields(self._definitions()))
        return not store.has(self.kind)

    def _is_key(self, now: Snapshot) -> bool:
        keys = ([RECORD_KEY], list(now.config.record_key_fields))
        return self.kind == BLOOM_FILTERS.name and list(self.columns or ()) in keys

    def _require_column_stats(self, now: Snapshot) -> None:
        if not now.config.partition_fields:
            raise InvalidInputError(f"{self.handle.base_path} has no partitions, so it has no partition_stats")
        if not now.metadata.has(COLUMN_STATS.name):
            raise InvalidInputError(
                f"{self.handle.base_path}: partition_stats are made of column_stats; create column_stats, which makes "
                "both"
            )

    def _plan_column_stats(self, now: Snapshot) -> bool:
        chosen = self.columns if self.columns is not None else self.options.column_stats_columns
        if chosen is not None:
            self._check_columns(now, chosen)
        limit = self.options.column_stats_limit
        wanted = indexable_columns(now.schema, chosen, limit)
        known: list[str] = []
        if now.metadata.has(COLUMN_STATS.name):
            known = source_fields(self._definitions())
            wanted = [name for name in wanted if name not in known] if chosen is not None else []
        self.listed = tuple(wanted)
        # Java's writers list the columns of their own options at each commit, older files or not: those get records.
        usual = indexable_columns(now.schema, limit=limit)
        self.indexed = self._types(now, [name for name in dict.fromkeys([*wanted, *usual]) if name not in known])
        return bool(wanted)

    def _check_columns(self, now: Snapshot, chosen: Sequence[str]) -> None:
        for name in chosen:
            if name in META_COLUMNS:
                continue
            where = f"{self.handle.base_path}: column {name!r}"
            if name not in now.schema.names:
                raise InvalidInputError(
                    f"{where} is not in the table or lies inside of one: {', '.join(now.schema.names)}", column=name
                )
            if not stats_supported(now.schema.field(name).type):
                raise UnsupportedFeatureError(
                    f"{where} is {now.schema.field(name).type}, which column_stats cannot hold",
                    feature=f"column_stats of {now.schema.field(name).type}",
                )

    def _definitions(self) -> dict[str, Any]:
        return read_definitions(self.handle.storage, definitions_path(self.handle.base_path))

    @staticmethod
    def _types(now: Snapshot, names: Sequence[str]) -> dict[str, pa.DataType]:
        types = {name: pa.string() for name in META_COLUMNS} | {column.name: column.type for column in now.schema}
        return {name: types[name] for name in names if name in types}

    # ------------------------------------------------------------------------------------------------- reading files

    def read(self, files: Sequence[BaseFile]) -> None:
        """Read what the index needs of files that were not read yet, one task a file."""
        fresh = [base for base in files if base not in self.stats and base not in self.blooms]
        step = max(64, 8 * self.handle.engine.parallelism) if self.progress else max(len(fresh), 1)
        for start in range(0, len(fresh), step):
            part = fresh[start : start + step]
            if self.kind == BLOOM_FILTERS.name:
                self.blooms.update(
                    zip(part, self.handle.engine.run(self._bloom_task(), part, self._label(part)), strict=True)
                )
            elif self.kind == COLUMN_STATS.name:
                task = StatsOfFile(self.handle.storage, self.handle.base_path, dict(self.indexed))
                self.stats.update(zip(part, self.handle.engine.run(task, part, self._label(part)), strict=True))
            if self.progress is not None:
                self.progress(start + len(part), len(fresh))

    def _label(self, part: Sequence[BaseFile]) -> str:
        return f"lakedex {self.handle.base_path}: building {self.kind} of {len(part)} files"

    def _bloom_task(self) -> BloomOfFile:
        folder = f"{temp_path(self.handle.base_path, self.name)}/.blooms"
        return BloomOfFile(
            storage=self.handle.storage,
            base_path=self.handle.base_path,
            folder=folder,
            options=self.options,
            anew=self.anew,
        )

    @contextmanager
    def alive(self, instant: str) -> Iterator[None]:
        """A heartbeat while something of ours lies in the table that a later writer may have to remove."""
        interval = int(self.options.heartbeat_interval * 1000)
        with Heartbeat(self.handle.storage, self.handle.base_path, instant, interval):
            yield

    # ---------------------------------------------------------------------------------------------------- publishing

    def publish(self, lock: TableLock, started: float) -> IndexResult:
        """Catch up, write the records and list the index. Call under the table lock."""
        now, _ = tidied(self.handle, self.options, lock)
        self._require_quiet(now)
        schema, indexed = self.schema, dict(self.indexed)
        if not self.plan(now) or self.schema != schema or self.indexed != indexed:
            raise self._conflict("its schema or its indexes were changed while the index was built")
        files = now.base_files()
        self.read(files)
        groups, updates = self._records(now, files)
        logs = self._write(lock, now, groups, updates)
        lock.check()
        self._define(now)
        if groups:
            changes = metadata_partitions_property(now.config.metadata_partitions, added=tuple(groups))
            changes.setdefault(DEFINITIONS_PATH, now.config.raw.get(DEFINITIONS_PATH) or DEFAULT_DEFINITIONS_PATH)
            update_table_config(self.handle.storage, self.handle.base_path, changes)
        covered = self.listed or ((RECORD_KEY,) if self.kind == BLOOM_FILTERS.name else tuple(indexed))
        return IndexResult(
            name=self.kind,
            columns=covered,
            instant=logs[0][0] if logs else None,
            files=len(files),
            entries=sum(log.records for _, written in logs for log in written if log.partition == self.kind),
            bytes_written=sum(log.size for _, written in logs for log in written),
            seconds=time.perf_counter() - started,
        )

    def renew(self, lock: TableLock, now: Snapshot, files: Sequence[BaseFile]) -> None:
        """Write the entries of some files anew. Call under the table lock."""
        self._require_quiet(now)
        self.indexed = self._types(now, source_fields(self._definitions()))
        try:
            self.read(files)
            if self.kind == BLOOM_FILTERS.name:
                self._write(lock, now, {}, self._bloom_records(files))
                return
            self._write(lock, now, {}, self._stats_records(files, False))
            again = self.handle.snapshot()
            if again.metadata.has(PARTITION_STATS.name):
                self._write(lock, again, {}, self._partition_records(again, files))
        finally:
            self.handle.storage.delete_tree(temp_path(self.handle.base_path, self.name))

    def _require_quiet(self, now: Snapshot) -> None:
        for instant in now.timeline.pending(WRITE_ACTIONS):
            if not is_ours(self.handle.storage, self.handle.base_path, instant.requested):
                raise self._conflict(f"{instant.action} {instant.requested} of another engine is under way")

    def _conflict(self, why: str) -> CommitConflictError:
        return CommitConflictError(
            f"{self.handle.base_path}: {why}, so the index {self.kind} was not published; create it again",
            ours=self.name,
            theirs=None,
            file_groups=frozenset(),
            retryable=True,
        )

    def _records(self, now: Snapshot, files: Sequence[BaseFile]) -> tuple[dict[str, int], Iterator[dict[str, Keyed]]]:
        """New metadata partitions with their numbers of file groups, and the records, a delta commit's at a time."""
        store, options = now.metadata, self.options
        if self.kind == BLOOM_FILTERS.name:
            return {BLOOM_FILTERS.name: options.bloom_filters_groups}, self._bloom_records(files)
        counts = {COLUMN_STATS.name: options.column_stats_groups, PARTITION_STATS.name: options.partition_stats_groups}
        wanted = [self.kind]
        # With some columns only, a new partition_stats would tell Java that the others hold nothing.
        both = store.has(PARTITION_STATS.name) or not store.has(COLUMN_STATS.name)
        if self.kind == COLUMN_STATS.name and now.config.partition_fields and both:
            wanted.append(PARTITION_STATS.name)
        groups = {name: counts[name] for name in wanted if not store.has(name)}
        if self.kind == PARTITION_STATS.name:
            return groups, self._partition_records(now, files)
        return groups, self._stats_records(files, PARTITION_STATS.name in wanted)

    def _bloom_records(self, files: Sequence[BaseFile]) -> Iterator[dict[str, Keyed]]:
        for start in range(0, max(len(files), 1), FILES_PER_COMMIT):
            records: Keyed = []
            for base in files[start : start + FILES_PER_COMMIT]:
                kind, text, spill = self.blooms[base]
                key = bloom_key(base.partition, base.name)
                if text is not None:
                    records.append((key, bloom_record(kind, base.instant, text)))
                else:
                    records.append((key, SpilledBloom(str(spill), kind, base.instant)))
            yield {BLOOM_FILTERS.name: records}

    def _stats_records(self, files: Sequence[BaseFile], over_partitions: bool) -> Iterator[dict[str, Keyed]]:
        by_partition: dict[str, dict[str, list[ColumnStat]]] = {}
        for start in range(0, max(len(files), 1), FILES_PER_COMMIT):
            records: Keyed = []
            for base in files[start : start + FILES_PER_COMMIT]:
                records.extend(stats_records(self.stats[base], base.partition, base.name, self.indexed))
                own = by_partition.setdefault(base.partition, {})
                for stat in self.stats[base]:
                    own.setdefault(stat.column, []).append(stat)
            updates = {COLUMN_STATS.name: records}
            if over_partitions and start + FILES_PER_COMMIT >= len(files):
                merged = {
                    path: [merge_stats(name, own.get(name, [])) for name in self.indexed]
                    for path, own in by_partition.items()
                }
                updates[PARTITION_STATS.name] = partition_records(merged, self.indexed, self.name)
            yield updates

    def _partition_records(self, now: Snapshot, files: Sequence[BaseFile]) -> Iterator[dict[str, Keyed]]:
        partitions = {base.partition for base in files}
        healed, merged = partition_stats(now, partitions, self.indexed, self.handle.engine.run)
        yield {PARTITION_STATS.name: partition_records(merged, self.indexed, self.name), COLUMN_STATS.name: healed}

    def _write(
        self, lock: TableLock, now: Snapshot, groups: Mapping[str, int], updates: Iterator[dict[str, Keyed]]
    ) -> list[tuple[str, list[LogWritten]]]:
        """Write delta commits of the metadata table; the first also makes the new file groups."""
        storage, base = self.handle.storage, self.handle.base_path
        written: list[tuple[str, list[LogWritten]]] = []
        for records in updates:
            lock.check()
            store = self._fresh_store(now)
            instant = self.clock.next(max(_last_time(now), store.timeline.last_time))
            with self.alive(instant):
                if not written:
                    for name, count in groups.items():
                        # What a build that died or a writer that dropped the index may have left.
                        storage.delete_tree(f"{metadata_path(base)}/{name}")
                        create_file_groups(storage, metadata_path(base), name, count, instant)
                logs = write_delta_commit(
                    store,
                    instant,
                    records,
                    partial(self.clock.next, instant),
                    self.handle.engine.run,
                    first_version=2 if groups and not written else 1,
                    operation="BULK_INSERT_PREPPED" if groups and not written else "UPSERT_PREPPED",
                )
            written.append((instant, logs))
        return written

    def _fresh_store(self, now: Snapshot) -> MetadataStore:
        """The metadata table without what was cached of its file groups."""
        old = now.metadata
        return MetadataStore(
            old.storage, old.base_path, old.data_timeline, old.timeline.reload(), old.partitions, old.cache
        )

    def _define(self, now: Snapshot) -> None:
        """List the columns that Java may prune by: not those that hold NaN, which no bound says to it."""
        if self.kind != COLUMN_STATS.name:
            return
        nan = {stat.column for stats in self.stats.values() for stat in stats if stat.has_nan}
        document = self._definitions()
        known = source_fields(document) if now.metadata.has(COLUMN_STATS.name) else []
        listed = {*known, *(name for name in self.listed if name not in nan)}
        ordered = [name for name in (*META_COLUMNS, *now.schema.names) if name in listed]
        path = definitions_path(self.handle.base_path)
        self.handle.storage.write(path, encode_definitions(with_column_stats(document, ordered)))
