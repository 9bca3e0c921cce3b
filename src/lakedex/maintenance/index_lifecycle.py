"""Create, refresh and drop indexes of a live table.

Creating, refreshing and dropping an index of any kind: which kind it is, and who does it.

Building indexes of a live table from its data.

An index build reads the base files without holding the table lock, one task a file. Then, under the lock, it catches up
with files that came in between and writes all records as delta commits of the metadata table alone. Only after that is
the index listed in ``hoodie.properties``: a build that dies leaves nothing that anybody reads.

Writers of lakedex that are under way meanwhile look at the list when they commit. Those of others may have looked
already, so a build ends with an error while one is pending.

Memory: the driver holds the bounds of all files (some 300 bytes for each column of each file); larger bloom filters lie
in the table's temp folder until they are written.

Taking indexes out of a table (``BaseHoodieWriteClient.dropIndex``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from lakedex.codec.column_bounds import StatsVersion, stats_supported
from lakedex.errors import (
    CommitConflictError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidInputError,
    OptionError,
    UnsupportedFeatureError,
)
from lakedex.index.bloom_filters import BloomOfFile, FileBloom, bloom_records
from lakedex.index.column_stats.partition_stats import StatsOfFile, partition_records, partition_stats
from lakedex.index.column_stats.stats import (
    ColumnStat,
    covered_columns,
    indexable_columns,
    merge_stats,
    stats_records,
    storable_stats,
    unlisted,
)
from lakedex.index.definitions import (
    definitions_path,
    encode_definitions,
    read_definitions,
    stats_version,
    with_column_stats,
    without_indexes,
)
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import Lock, require_exclusive_create, table_lock
from lakedex.layout.file_slice import BaseFile
from lakedex.layout.table_files import delete_partition, delete_temp, temp_path
from lakedex.maintenance.bitmap_lifecycle import (
    MAX_DISTINCT_VALUES,
    create_bitmap_index,
    drop_bitmap_index,
    is_bitmap_index,
    max_distinct_values,
    refresh_bitmap_index,
)
from lakedex.maintenance.metadata_init import make_metadata_table, require_no_pending_writes
from lakedex.maintenance.recovery import INFLIGHT_PARTITIONS, recovered
from lakedex.metadata.records import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    SUPPORTED,
    metadata_partitions_property,
)
from lakedex.metadata.store import MetadataStore, metadata_path
from lakedex.metadata.writer import Keyed, LogWritten, build_instant, create_file_groups, write_delta_commit
from lakedex.options import WriteOptions, parse_options
from lakedex.reports import IndexResult
from lakedex.snapshot.partitions import PartitionName, key_generator, named_partitions
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import TableConfig, recover_table_config, update_table_config
from lakedex.types import META_COLUMNS, RECORD_KEY, Progress

__all__ = ["build_index", "create_index", "drop_index", "drop_metadata_index", "refresh_index", "renew_entries"]


BITMAP = "bitmap"


Partitions = Sequence[PartitionName] | PartitionName | None


def create_index(
    handle: TableContext,
    options: Mapping[str, Any],
    name: str,
    *,
    call: Mapping[str, Any] | None = None,
    using: str | None = None,
    columns: Sequence[str] | None = None,
    partitions: Partitions = None,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Build an index from the table's data; see :meth:`lakedex.Indexes.create`.

    ``options`` are those of the table object, ``call`` those of the call.
    """
    own = {key: value for key, value in (call or {}).items() if key != MAX_DISTINCT_VALUES}
    parsed = parse_options(options, own, "create_index")
    if (using or name) == BITMAP:
        cap = (call or {}).get(MAX_DISTINCT_VALUES)
        result = create_bitmap_index(
            handle,
            parsed,
            name,
            columns or (),
            max_distinct=None if cap is None else max_distinct_values(handle.base_path, cap),
            partitions=lambda snapshot: _paths(snapshot, partitions),
            if_not_exists=if_not_exists,
            progress=progress,
        )
        return replace(result, notes=(*parsed.notes, *result.notes))
    if partitions is not None:
        raise InvalidInputError(f"{handle.base_path}: partitions= is for bitmap indexes; {name} covers the whole table")
    if len(own) != len(call or {}):
        raise OptionError(f"{handle.base_path}: option {MAX_DISTINCT_VALUES} is for bitmap indexes, not for {name}")
    result = build_index(
        handle,
        parsed,
        name,
        using=using,
        columns=columns,
        if_not_exists=if_not_exists,
        progress=progress,
    )
    return replace(result, notes=(*parsed.notes, *result.notes))


def _paths(snapshot: Snapshot, partitions: Partitions) -> tuple[str, ...] | None:
    """Partition paths that a user named; they must be in the table.

    Raises:
        InvalidInputError: names one that is not.
    """
    if partitions is None:
        return None
    items = [partitions] if isinstance(partitions, str | Mapping) else list(partitions)
    # Paths need no key generator, which not every maker's table has one of that lakedex knows.
    keys = (
        None
        if all(isinstance(item, str) for item in items)
        else key_generator(snapshot.config, snapshot, with_keys=False)
    )
    known = {item.partition for item in snapshot.slices()}
    paths = [
        item if isinstance(item, str) or keys is None else named_partitions(snapshot, keys, item)[0] for item in items
    ]
    for path in paths:
        if path not in known:
            some = ", ".join(map(repr, sorted(known)[:3])) or "none"
            raise InvalidInputError(f"{snapshot.base_path} has no partition {path!r}; it has, for example, {some}")
    return tuple(dict.fromkeys(str(path) for path in paths))


def refresh_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    partitions: Partitions = None,
    progress: Progress | None = None,
) -> IndexResult:
    """Cover what an index does not cover; see :meth:`lakedex.Indexes.refresh`."""
    if not is_bitmap_index(handle, name):
        present = handle.snapshot().config.metadata_partitions - {FILES.name}
        if name in present:
            raise UnsupportedFeatureError(
                f"{handle.base_path}: only bitmap indexes are refreshed; indexes.drop({name!r}) and "
                f"indexes.create({name!r}) build this one anew",
                feature=f"refresh of {name}",
            )
    return refresh_bitmap_index(
        handle,
        options,
        name,
        partitions=lambda snapshot: _paths(snapshot, partitions),
        progress=progress,
    )


def drop_index(handle: TableContext, options: WriteOptions, name: str, *, if_exists: bool = False) -> IndexResult:
    """Take an index out of a table; see :meth:`lakedex.Indexes.drop`."""
    if is_bitmap_index(handle, name):
        try:
            return drop_bitmap_index(handle, options, name)
        except IndexNotFoundError:
            if not if_exists:
                raise  # Another one dropped it just now.
    return drop_metadata_index(handle, options, name, if_exists=if_exists)


FILES_PER_COMMIT = 4096
"""Files whose records go into one delta commit of the metadata table: what the driver holds of them at a time."""


DEFINITIONS_PATH = "hoodie.table.index.defs.path"


DEFAULT_DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"


BUILT = (COLUMN_STATS.name, BLOOM_FILTERS.name, PARTITION_STATS.name)


def build_index(
    handle: TableContext,
    options: WriteOptions,
    name: str,
    *,
    using: str | None = None,
    columns: Sequence[str] | None = None,
    if_not_exists: bool = False,
    progress: Progress | None = None,
) -> IndexResult:
    """Build an index from the table's data; see :meth:`lakedex.Indexes.create`."""
    started = time.perf_counter()
    kind = _kind(name, using)
    require_exclusive_create(handle.storage, handle.base_path)
    if not handle.snapshot().uses_metadata:
        make_metadata_table(handle, options, only_if_lost=True)
    with ExitStack() as beating:
        with table_lock(handle.storage, handle.base_path, options) as lock:
            now, clock = recovered(handle, options, lock)
            build = _Build(handle, options, kind, columns, clock, progress, clock.next(now.last_time))
            # Its name is on no timeline: the heartbeat keeps the next writer from taking the same.
            beating.enter_context(build.alive(build.name))
        if not build.plan(now):
            if not if_not_exists:
                raise IndexExistsError(
                    f"{handle.base_path}: the index {kind!r} exists and covers what was asked for; drop it first, or "
                    "pass if_not_exists=True",
                    index=kind,
                )
            notes = ("the index exists already",)
            return IndexResult(name=kind, notes=notes, seconds=time.perf_counter() - started)
        try:
            build.read(now.base_files())
            with table_lock(handle.storage, handle.base_path, options) as lock:
                return build.publish(lock, started)
        finally:
            delete_temp(handle.storage, handle.base_path, build.name)


def renew_entries(handle: TableContext, options: WriteOptions, kind: str, files: Collection[tuple[str, str]]) -> int:
    """Compute the entries of base files anew from the data and write them, and ``partition_stats`` after them.

    Args:
        handle: the table.
        options: filter sizes, lock.
        kind: ``column_stats`` or ``bloom_filters``.
        files: base files by partition and name; those that are not current any more are left out.

    Returns:
        How many files it were.
    """
    require_exclusive_create(handle.storage, handle.base_path)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        now, clock = recovered(handle, options, lock)
        build = _Build(handle, options, kind, None, clock, None, clock.next(now.last_time), anew=True)
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


@dataclass(slots=True)
class _Build:
    """One build: what it covers, and what it has read so far."""

    handle: TableContext
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
    blooms: dict[BaseFile, FileBloom] = field(default_factory=dict)
    anew: bool = False

    # ------------------------------------------------------------------------------------------- what there is to do

    def plan(self, now: Snapshot) -> bool:
        """Choose the columns; whether anything has to be built."""
        store = now.metadata
        if not store.has(FILES.name):
            raise self._conflict("its metadata table went away")
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
            self.indexed = self._types(now, self._covered(now))
        return not store.has(self.kind)

    def _is_key(self, now: Snapshot) -> bool:
        keys = ([RECORD_KEY], list(now.config.record_key_fields))
        return self.kind == BLOOM_FILTERS.name and list(self.columns or ()) in keys

    def _require_column_stats(self, now: Snapshot) -> None:
        if now.metadata.table_version < 8:
            raise UnsupportedFeatureError(
                f"{self.handle.base_path}: tables of version {now.config.version} have no partition_stats",
                feature=f"partition_stats of table version {now.config.version}",
            )
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
        version = self._version(now)
        wanted = indexable_columns(now.schema, chosen, limit, version)
        known: list[str] = []
        if now.metadata.has(COLUMN_STATS.name):
            known = self._covered(now)
            wanted = [name for name in wanted if name not in known] if chosen is not None else []
        self.listed = tuple(wanted)
        # Java's writers list the columns of their own options at each commit, older files or not: those get records.
        usual = indexable_columns(now.schema, None, limit, version)
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
            if not stats_supported(now.schema.field(name).type, self._version(now)):
                raise UnsupportedFeatureError(
                    f"{where} is {now.schema.field(name).type}, which column_stats cannot hold",
                    feature=f"column_stats of {now.schema.field(name).type}",
                )

    def _version(self, now: Snapshot) -> StatsVersion:
        return stats_version(self._definitions(), now.config.version)

    def _covered(self, now: Snapshot) -> list[str]:
        return covered_columns(self._definitions(), now.schema, now.config.version)

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

    def publish(self, lock: Lock, started: float) -> IndexResult:
        """Catch up, write the records and list the index. Call under the table lock."""
        now, _ = recovered(self.handle, self.options, lock)
        require_no_pending_writes(now, f"the index {self.kind} was not published")
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
            changes = metadata_partitions_property(now.config.metadata_partitions, groups)
            # A build of Hudi that ended half-way left its mark.
            changes[INFLIGHT_PARTITIONS] = ",".join(sorted(now.config.metadata_partitions_inflight - groups.keys()))
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

    def renew(self, lock: Lock, now: Snapshot, files: Sequence[BaseFile]) -> None:
        """Write the entries of some files anew. Call under the table lock."""
        require_no_pending_writes(now, f"the index {self.kind} was not published")
        self.indexed = self._types(now, self._covered(now))
        try:
            self.read(files)
            if self.kind == BLOOM_FILTERS.name:
                self._write(lock, now, {}, bloom_records(self.blooms, files, FILES_PER_COMMIT))
                return
            self._write(lock, now, {}, self._stats_records(now, files, False))
            again = self.handle.snapshot()
            if again.metadata.has(PARTITION_STATS.name):
                self._write(lock, again, {}, self._partition_records(again, files))
        finally:
            delete_temp(self.handle.storage, self.handle.base_path, self.name)

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
            return {BLOOM_FILTERS.name: options.bloom_filters_groups}, bloom_records(
                self.blooms, files, FILES_PER_COMMIT
            )
        counts = {COLUMN_STATS.name: options.column_stats_groups, PARTITION_STATS.name: options.partition_stats_groups}
        wanted = [self.kind]
        # With some columns only, a new partition_stats would tell Java that the others hold nothing.
        both = store.has(PARTITION_STATS.name) or not store.has(COLUMN_STATS.name)
        by_partition = now.config.partition_fields and store.table_version >= 8
        if self.kind == COLUMN_STATS.name and by_partition and both:
            wanted.append(PARTITION_STATS.name)
        groups = {name: counts[name] for name in wanted if not store.has(name)}
        if self.kind == PARTITION_STATS.name:
            return groups, self._partition_records(now, files)
        return groups, self._stats_records(now, files, PARTITION_STATS.name in wanted)

    def _stats_records(self, now: Snapshot, files: Sequence[BaseFile], whole: bool) -> Iterator[dict[str, Keyed]]:
        """Records of files; with those of their partitions in the last delta commit if the files are ``whole``."""
        version = self._version(now)
        by_partition: dict[str, dict[str, list[ColumnStat]]] = {}
        for start in range(0, max(len(files), 1), FILES_PER_COMMIT):
            records: Keyed = []
            for base in files[start : start + FILES_PER_COMMIT]:
                kept = storable_stats(self.stats[base], now.metadata.table_version)
                records.extend(stats_records(kept, base.partition, base.name, self.indexed, version))
                own = by_partition.setdefault(base.partition, {})
                for stat in self.stats[base]:
                    own.setdefault(stat.column, []).append(stat)
            updates = {COLUMN_STATS.name: records}
            if whole and start + FILES_PER_COMMIT >= len(files):
                merged = {
                    path: [merge_stats(name, own.get(name, [])) for name in self.indexed]
                    for path, own in by_partition.items()
                }
                updates[PARTITION_STATS.name] = partition_records(merged, self.indexed, self.name, version)
            yield updates

    def _partition_records(self, now: Snapshot, files: Sequence[BaseFile]) -> Iterator[dict[str, Keyed]]:
        partitions = {base.partition for base in files}
        version = self._version(now)
        healed, merged = partition_stats(now, partitions, self.indexed, self.handle.engine.run, version)
        records = partition_records(merged, self.indexed, self.name, version)
        yield {PARTITION_STATS.name: records, COLUMN_STATS.name: healed}

    def _write(
        self, lock: Lock, now: Snapshot, groups: Mapping[str, int], updates: Iterator[dict[str, Keyed]]
    ) -> list[tuple[str, list[LogWritten]]]:
        """Write delta commits of the metadata table; the first also makes the new file groups."""
        storage, base = self.handle.storage, self.handle.base_path
        written: list[tuple[str, list[LogWritten]]] = []
        for records in updates:
            lock.check()
            store = self._fresh_store(now)
            if store.timeline.layout == 1:
                instant = build_instant(now.timeline, store.timeline)
            else:
                instant = self.clock.next(max(now.last_time, store.timeline.last_time))
            with self.alive(instant):
                if not written:
                    for name, count in groups.items():
                        # What a build that died or a writer that dropped the index may have left.
                        delete_partition(storage, metadata_path(base), name)
                        create_file_groups(storage, metadata_path(base), name, count, instant)
                _, logs = write_delta_commit(
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
        unsaid = {stat.column for stats in self.stats.values() for stat in stats if stat.has_nan}
        unsaid |= unlisted(now.schema, self._version(now))
        document = self._definitions()
        known = self._covered(now) if now.metadata.has(COLUMN_STATS.name) else []
        listed = {*known, *(name for name in self.listed if name not in unsaid)}
        ordered = [name for name in (*META_COLUMNS, *now.schema.names) if name in listed]
        path = definitions_path(self.handle.base_path)
        self.handle.storage.write(path, encode_definitions(with_column_stats(document, ordered, now.config.version)))


def drop_metadata_index(
    handle: TableContext, options: WriteOptions, name: str, *, if_exists: bool = False
) -> IndexResult:
    """Take an index out of the table; see :meth:`lakedex.Indexes.drop`.

    ``hoodie.properties`` first, so that nobody reads the index any more, then its definition, then its folder.
    """
    started = time.perf_counter()
    if name == FILES.name:
        raise InvalidInputError("'files' is the metadata table's listing, not an index; it cannot be dropped")
    require_exclusive_create(handle.storage, handle.base_path)
    storage, base = handle.storage, handle.base_path
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(storage, base)
        config = handle.snapshot().config
        present = config.metadata_partitions | config.metadata_partitions_inflight
        if name not in present:
            if if_exists:
                return IndexResult(name=name, notes=("the table has no such index",))
            indexes = ", ".join(sorted(present - {FILES.name})) or "none"
            raise IndexNotFoundError(f"{base} has no index {name!r}; it has {indexes}", index=name)
        # Indexes that lakedex cannot keep up are a reason to drop them, not one to refuse it.
        known = frozenset(SUPPORTED)
        require_writable(
            replace(
                config,
                metadata_partitions=config.metadata_partitions & known,
                metadata_partitions_inflight=config.metadata_partitions_inflight & known,
            )
        )
        gone = _with_dependents(config, name, present)
        lock.check()
        changes = metadata_partitions_property(config.metadata_partitions - gone)
        changes[INFLIGHT_PARTITIONS] = ",".join(sorted(config.metadata_partitions_inflight - gone))
        update_table_config(storage, base, changes)
        path = definitions_path(base)
        if storage.exists(path):
            document = read_definitions(storage, path)
            storage.write(path, encode_definitions(without_indexes(document, gone)))
        for partition in sorted(gone):
            delete_partition(storage, metadata_path(base), partition)
    notes = tuple(f"dropped {other} with it" for other in sorted(gone - {name}))
    return IndexResult(name=name, notes=notes, seconds=time.perf_counter() - started)


def _with_dependents(config: TableConfig, name: str, present: frozenset[str]) -> frozenset[str]:
    """The index and those that cannot be without it."""
    if name == COLUMN_STATS.name:
        return present & {COLUMN_STATS.name, PARTITION_STATS.name}
    if name == "record_index":
        others = sorted(other for other in present if other.startswith("secondary_index_"))
        if others:
            raise InvalidInputError(
                f"table {config.name}: {', '.join(others)} are built on record_index; drop them first"
            )
    return frozenset({name})
