"""One write from its announcement to its completion or undoing, and the metadata records of its commit.

The metadata records of a commit: what each written file adds to every partition that the table has.

One write from its announcement to its completion, or to its undoing (``BaseHoodieClient``, ``TransactionManager``).

The table lock is held around start and completion only. In between other writers may commit; the conflict check under
the lock decides whether this write's picture of the table still holds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakedex._version import __version__
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.codec.column_bounds import StatsVersion
from lakedex.codec.comments import with_docs
from lakedex.commit.idempotency import next_batches
from lakedex.commit.write_checks import require_plain_types, require_settings
from lakedex.errors import CommitConflictError, CommitStateUnknownError, LakedexError, UnsupportedFeatureError
from lakedex.index.bitmap.index import BitmapUpkeep
from lakedex.index.bloom_filters import FileBloom
from lakedex.index.column_stats.index import CollectColumnStats
from lakedex.index.column_stats.partition_stats import partition_records, partition_stats
from lakedex.index.column_stats.stats import (
    ColumnStat,
    indexable_columns,
    stat_record,
    stats_records,
    storable_stats,
    unlisted,
)
from lakedex.index.definitions import (
    definitions_path,
    encode_definitions,
    read_definitions,
    source_fields,
    stats_version,
    with_column_stats,
)
from lakedex.index.written_file import Collector, WrittenFile
from lakedex.io.liveness import Heartbeat
from lakedex.io.locks import Lock, require_exclusive_create, table_lock
from lakedex.layout.names import join_path
from lakedex.layout.table_files import delete_files, delete_temp
from lakedex.maintenance.failed_writes import marked_files, roll_back
from lakedex.maintenance.metadata_rebuild import disable_partitions, needs_repair, repair_metadata
from lakedex.maintenance.recovery import tidy
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    all_partitions_record,
    bloom_key,
    column_stats_prefix,
    files_key,
    files_record,
    partition_stats_key,
    stats_record,
)
from lakedex.metadata.writer import Keyed, LogWritten, Updates, write_delta_commit
from lakedex.options import WriteOptions
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS, complete, create_inflight, create_requested, remove_pending
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata, encode_requested_replace
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.instant import Instant, InstantClock, State
from lakedex.types import Operation

__all__ = ["PendingCommit", "Transaction", "build_updates"]


def build_updates(
    snapshot: Snapshot,
    results: Sequence[WrittenFile],
    instant: str,
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
    version: StatsVersion,
    gone: frozenset[tuple[str, str]] = frozenset(),
    added: Sequence[str] = (),
    retired: Sequence[str] = (),
) -> tuple[dict[str, Keyed], frozenset[str]]:
    """Records of one commit by metadata partition, for those partitions that the table has.

    Args:
        snapshot: the table as it is under the lock.
        results: accepted results of the write stage.
        instant: the commit's instant.
        indexed: columns of ``column_stats`` with their types.
        run: an engine's ``run``, for files whose stats have to be computed from the data.
        version: the encoding of column stats in this table.
        gone: (partition, file id) of groups whose present file does not count from this commit on. Replaced files
            themselves stay listed, with all of their records, until a cleaner removes them.
        added: columns that the commit adds to the schema.
        retired: columns that are in no live file any more from this commit on.

    Returns:
        The records, and the columns that hold NaN as far as the commit looked: in its own files, and in all files of
        the partitions that it touched where the table has ``partition_stats``.
    """
    store = snapshot.metadata
    updates: dict[str, Keyed] = {}
    nan = {stat.column for result in results for stat in _stats_of(result) if stat.has_nan}
    if not store.has(FILES.name):
        return updates, frozenset(nan)
    updates[FILES.name] = _files(results)
    if store.has(BLOOM_FILTERS.name):
        updates[BLOOM_FILTERS.name] = [
            (bloom_key(result.partition, result.file_name), bloom.record(instant))
            for result in results
            if (bloom := result.part(BLOOM_FILTERS.name, FileBloom)) is not None
        ]
    if store.has(COLUMN_STATS.name):
        updates[COLUMN_STATS.name] = _stats(results, store.table_version, indexed, version)
    if store.has(PARTITION_STATS.name):
        healed, over_partitions = partition_stats(
            snapshot,
            {result.partition for result in results},
            indexed,
            run,
            version,
            written={(result.partition, result.file_name): _stats_of(result) for result in results},
            gone=gone,
        )
        updates[PARTITION_STATS.name] = partition_records(over_partitions, indexed, instant, version)
        nan.update(stat.column for found in over_partitions.values() for stat in found if stat.has_nan)
        again, over_old = _older_generations(snapshot, set(over_partitions), added, indexed, run, version)
        healed.extend(again)
        updates[PARTITION_STATS.name].extend(partition_records(over_old, indexed, instant, version))
        updates[PARTITION_STATS.name].extend(_retired_records(snapshot, retired, version))
        updates[PARTITION_STATS.name].extend(_emptied_records(snapshot, set(over_partitions), indexed, gone))
        if COLUMN_STATS.name in updates:
            updates[COLUMN_STATS.name].extend(healed)
    return updates, frozenset(nan)


def _stats(
    results: Sequence[WrittenFile], table_version: int, indexed: Mapping[str, pa.DataType], version: StatsVersion
) -> Keyed:
    records: Keyed = []
    for result in results:
        kept = storable_stats(_stats_of(result), table_version)
        records.extend(stats_records(kept, result.partition, result.file_name, indexed, version))
    return records


def _older_generations(
    snapshot: Snapshot,
    touched: set[str],
    added: Sequence[str],
    indexed: Mapping[str, pa.DataType],
    run: Callable[..., list[list[ColumnStat]]],
    version: StatsVersion,
) -> tuple[Keyed, dict[str, list[ColumnStat]]]:
    """Stats of added columns in partitions that have records of an earlier column of that name.

    Those records would go on to speak for the new column, of which the partition holds nulls only.
    """
    names = [name for name in added if name in indexed]
    records = snapshot.metadata.scan(PARTITION_STATS.name, [column_stats_prefix(name) for name in names])
    if not names or not records:
        return [], {}
    partitions = {str(record["ColumnStatsMetadata"]["fileName"]) for record in records.values()} - touched
    return partition_stats(snapshot, partitions, {name: indexed[name] for name in names}, run, version)


def _retired_records(snapshot: Snapshot, retired: Sequence[str], version: StatsVersion) -> Keyed:
    """Records that say of columns which are no more what a new column of that name will be there: null."""
    prefixes = [column_stats_prefix(name) for name in retired]
    records: Keyed = []
    for key, record in snapshot.metadata.scan(PARTITION_STATS.name, prefixes).items() if prefixes else ():
        payload = record["ColumnStatsMetadata"]
        rows = payload["valueCount"] or 0
        stat = ColumnStat(column=payload["columnName"], minimum=None, maximum=None, value_count=rows, null_count=rows)
        records.append((key, stat_record(stat, payload["fileName"], pa.string(), version, over_partition=True)))
    return records


def _emptied_records(
    snapshot: Snapshot, written: set[str], indexed: Mapping[str, pa.DataType], gone: frozenset[tuple[str, str]]
) -> Keyed:
    """Records that take back the stats of partitions without a file from now on.

    As Java does for DELETE_PARTITION (``HoodieMetadataWriteUtils.convertMetadataToPartitionStatRecords``); a partition
    that is overwritten by no rows is the same.
    """
    emptied = {partition for partition, _ in gone} - written
    if emptied:
        emptied -= {b.partition for b in snapshot.base_files(sorted(emptied)) if (b.partition, b.file_id) not in gone}
    nothing: dict[str, Any] = {"minimum": None, "maximum": None, "value_count": 0, "null_count": 0}
    nothing |= {"total_size": 0, "total_uncompressed_size": 0, "over_partition": True, "deleted": True}
    return [
        (partition_stats_key(column, partition), stats_record(partition, column, **nothing))
        for partition in sorted(emptied)
        for column in indexed
    ]


def _files(results: Sequence[WrittenFile]) -> Keyed:
    added: dict[str, dict[str, int]] = {}
    for result in results:
        added.setdefault(result.partition, {})[result.file_name] = result.size
    records: Keyed = [(files_key(partition), files_record(files)) for partition, files in added.items()]
    return [*records, (ALL_PARTITIONS, all_partitions_record(files_key(partition) for partition in added))]


def _stats_of(result: WrittenFile) -> Sequence[ColumnStat]:
    return result.part(COLUMN_STATS.name, tuple) or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """What a write is about to commit.

    Attributes:
        results: what the write stage did.
        schema: the table's columns from now on.
        collectors: what was collected of each file, by index.
        relied_on: partitions whose content this write read or replaces as a whole, so that a commit that came to them
            in between is a conflict although it touched no file of ours; None for the whole table.
        replaced: file ids by partition that are gone from now on; None unless the operation is a replace commit.
        retired: columns that no live file holds any more from now on.
        renames: columns that are called otherwise from now on.
        comments: the columns' comments from now on; None for those that the table has.
        extra: entries of the commit's extra metadata.
    """

    results: Sequence[WrittenFile]
    schema: pa.Schema
    collectors: Mapping[str, Collector]
    relied_on: frozenset[str] | None = frozenset()
    replaced: Mapping[str, tuple[str, ...]] | None = None
    retired: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    comments: Mapping[str, str] | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def indexed(self) -> Mapping[str, pa.DataType]:
        """Columns of ``column_stats``."""
        found = self.collectors.get(COLUMN_STATS.name)
        return found.columns if isinstance(found, CollectColumnStats) else {}

    @property
    def file_groups(self) -> frozenset[tuple[str, str]]:
        """(partition, file id) of the groups that were there and are rewritten or replaced."""
        rewritten = {(result.partition, result.file_id) for result in self.results if result.previous is not None}
        gone = {(partition, file_id) for partition, ids in (self.replaced or {}).items() for file_id in ids}
        return frozenset(rewritten | gone)

    @property
    def partitions(self) -> frozenset[str]:
        """Partitions whose files change."""
        return frozenset({result.partition for result in self.results} | set(self.replaced or {}))


def _become_double(before: pa.Schema, after: pa.Schema) -> frozenset[str]:
    """Columns that were integers or floats."""
    return frozenset(
        column.name
        for column in after
        if pa.types.is_float64(column.type)
        and column.name in before.names
        and before.field(column.name).type != column.type
    )


@dataclass(slots=True)
class Transaction:
    """A write in progress.

    Attributes:
        snapshot: the table as this write reads it.
        instant: the write's instant.
        undone: failed writes of others that were rolled back first.
        notes: what the user should know of a write that succeeded.
        bitmaps: what keeping the bitmap index up took.
    """

    handle: TableContext
    options: WriteOptions
    operation: Operation
    snapshot: Snapshot = field(init=False)
    instant: str = field(init=False)
    undone: tuple[str, ...] = field(init=False, default=())
    notes: list[str] = field(init=False, default_factory=list)
    bitmaps: BitmapUpkeep = field(init=False)
    _pending: Instant | None = field(init=False, default=None)
    _clock: InstantClock = field(init=False)
    _heartbeat: Heartbeat | None = field(init=False, default=None)
    _metadata_started: bool = field(init=False, default=False)
    _completed: bool = field(init=False, default=False)

    def begin(self) -> None:
        """Undo dead writes, take an instant and announce the write."""
        require_exclusive_create(self.handle.storage, self.handle.base_path)
        try:
            with table_lock(self.handle.storage, self.handle.base_path, self.options) as lock:
                self.snapshot = self._tidied(lock)
                mend = needs_repair(self.snapshot, self.options)
                if not mend:
                    requested = self._announce(lock)
            if mend:
                self.notes += repair_metadata(self.handle, self.options)
                with table_lock(self.handle.storage, self.handle.base_path, self.options) as lock:
                    self.snapshot = self._tidied(lock)
                    requested = self._announce(lock)
            self._pending = create_inflight(self.snapshot.timeline, requested)
        except BaseException:
            self._withdraw()
            raise

    def _tidied(self, lock: Lock) -> Snapshot:
        """The table without what dead writers left."""
        # Somebody may have deleted files that were seen earlier.
        self.handle.cache.completeness.clear()
        tidied = tidy(self.handle, self.options, lock)
        snapshot, self._clock = tidied.snapshot, tidied.clock
        self.undone += tidied.undone
        require_settings(snapshot.config, self.options)
        require_plain_types(snapshot)
        if snapshot.schema is not None and snapshot.evolves_on_read:
            raise UnsupportedFeatureError(
                f"{self.handle.base_path}: its schema was changed under Hudi's schema-on-read "
                "(hoodie.schema.on.read.enable), whose column ids lakedex does not carry on; write it with Hudi",
                feature="schema on read",
            )
        return snapshot

    def _announce(self, lock: Lock) -> Instant:
        handle, snapshot = self.handle, self.snapshot
        interval = int(self.options.heartbeat_interval * 1000)
        self.instant = self._next_time(snapshot)
        self.bitmaps = BitmapUpkeep(handle, self.instant)
        self._heartbeat = Heartbeat(handle.storage, handle.base_path, self.instant, interval)
        self._heartbeat.start()
        lock.check()
        # Set first: a call that fails may have taken effect all the same.
        action = self.operation.action
        self._pending = Instant(self.instant, action, State.REQUESTED, None, "")
        # Java reads a plan out of every pending replace commit, to see whether it is a clustering.
        named = self.operation.value if self.operation is Operation.DELETE_PARTITION else None
        body = encode_requested_replace(named) if action == "replacecommit" else b""
        try:
            return create_requested(snapshot.timeline, self.instant, action, body)
        except CommitConflictError:
            self._pending = None  # It is somebody else's, who does not take our lock.
            raise

    def _withdraw(self) -> None:
        """Take a failed announcement back; nothing was written for it yet."""
        if self._pending is not None:
            with contextlib.suppress(LakedexError, OSError):
                remove_pending(self.snapshot.timeline, self._pending)
        self._stop_heartbeat()

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            with contextlib.suppress(OSError):  # What stays of it is removed by a later writer.
                self._heartbeat.stop()

    def _next_time(self, snapshot: Snapshot) -> str:
        return self._clock.next(snapshot.last_time)

    def commit(self, change: PendingCommit) -> list[LogWritten]:
        """Make the write visible.

        Raises:
            CommitConflictError: another writer committed to what this write read.
        """
        self._remove_unaccepted(change.results)
        logs: list[LogWritten] = []
        try:
            with table_lock(self.handle.storage, self.handle.base_path, self.options) as lock:
                logs = self._commit_locked(lock, change)
            self._remove_unaccepted(change.results)  # A late attempt may have found the write still in flight.
            self._finish()
        except Exception as error:
            if not self._completed:
                raise
            self._stop_heartbeat()
            self.notes.append(f"committed, but not all temporary files could be removed ({error})")
        return logs

    def _commit_locked(self, lock: Lock, change: PendingCommit) -> list[LogWritten]:
        handle = self.handle
        handle.cache.completeness.clear()
        now = handle.snapshot()
        require_writable(now.config)
        # First: a batch that another writer has done is no conflict with it.
        batches = next_batches(now, self.options.txn, self.instant)
        self._check_conflicts(now, change)
        now = self._without_damage(now)
        known = set(now.schema.names)
        added = [name for name in change.schema.names if name not in known]
        document = read_definitions(handle.storage, definitions_path(handle.base_path))
        updates, nan = build_updates(
            now,
            change.results,
            self.instant,
            change.indexed,
            handle.engine.run,
            stats_version(document, now.config.version),
            change.file_groups,
            added,
            change.retired,
        )
        lock.check()
        self._update_definitions(now, change, nan, document)
        self.bitmaps.before_commit(change.results, change.renames)
        logs = self._write_metadata(now, updates)
        lock.check()
        comments = now.comments if change.comments is None else change.comments
        body = encode_commit_metadata(
            CommitMetadata(
                operation=self.operation.value,
                write_stats=_write_stats(change.results),
                extra={
                    "schema": json.dumps(with_docs(arrow_to_avro(change.schema, now.config.name), comments)),
                    "lakedex.version": __version__,
                    **batches,
                    **change.extra,
                },
                replaced=change.replaced,
            ),
            now.timeline.layout,
        )
        inflight = Instant(self.instant, self.operation.action, State.INFLIGHT, None, "")
        complete(now.timeline, inflight, self._next_time(handle.snapshot()), body)
        self._completed = True
        self.bitmaps.after_commit(now.schema, change.schema, change.renames)
        return logs

    def _without_damage(self, now: Snapshot) -> Snapshot:
        """The table without metadata partitions that lost files since this write began."""
        lost = now.lost_metadata
        if not lost:
            return now
        disable_partitions(self.handle, now.config, tuple(lost))
        self.notes += [f"{name} was taken out of the table: {wrong}" for name, wrong in lost.items()]
        return self.handle.snapshot()

    def _write_metadata(self, now: Snapshot, updates: Updates) -> list[LogWritten]:
        if not updates:
            return []
        self._metadata_started = True
        floor = now.metadata.timeline.last_time
        return write_delta_commit(
            now.metadata,
            self.instant,
            updates,
            lambda: self._clock.next(max(floor, now.timeline.last_time, self.instant)),
            self.handle.engine.run,
        )

    def _update_definitions(
        self, now: Snapshot, change: PendingCommit, nan: frozenset[str], document: dict[str, Any]
    ) -> None:
        """Say which columns Java may prune by, before a record of this commit becomes visible.

        A column that this write adds to the schema joins the list; a listed one that lakedex cannot keep leaves it, and
        so does one that holds NaN, which no bound says to Java's reader, and one that becomes a double, whose older
        bounds Java's reader casts and fails. Narrowing is always safe; lakedex itself plans by the records, whatever
        the list says.
        """
        if not now.metadata.has("column_stats"):
            return
        listed = source_fields(document)
        if not listed:
            return
        before = set(self.snapshot.schema.names)
        version = stats_version(document, now.config.version)
        indexed, possible = change.indexed, indexable_columns(change.schema, None, len(change.schema), version)
        added = [name for name in listed if name in possible and name in before and name not in indexed]
        if added:
            raise self._conflict(f"did not know that column_stats has {', '.join(added)} since an index build:", "")
        unsaid = nan | _become_double(self.snapshot.schema, change.schema) | unlisted(change.schema, version)
        wanted = [name for name in indexed if name not in unsaid and (name in listed or name not in before)]
        if wanted != listed:
            content = encode_definitions(with_column_stats(document, wanted, now.config.version))
            self.handle.storage.write(definitions_path(self.handle.base_path), content)

    def _check_conflicts(self, now: Snapshot, change: PendingCommit) -> None:
        """``SimpleConcurrentFileWritesConflictResolutionStrategy``, and by partition where this write relied on one."""
        if self._lost(now):
            raise self._conflict("was rolled back by another writer that took it for dead", "")
        for instant in self.snapshot.timeline.completed(WRITE_ACTIONS):
            if not now.timeline.is_committed(instant.requested):
                raise self._conflict("was rolled back, and its rows may have been read by", instant.requested)
        ours = change.file_groups
        for instant in now.timeline.completed(WRITE_ACTIONS):
            if self.snapshot.timeline.is_completed(instant.requested):
                continue
            theirs = now.timeline.commit_metadata(instant).touched_file_groups()
            both = frozenset(ours & theirs)
            if both:
                raise self._conflict("rewrote the same file groups as", instant.requested, both)
            if change.relied_on is None:
                raise self._conflict(
                    "completed while the whole table was being looked up or rewritten by", instant.requested
                )
            shared = change.relied_on & {partition for partition, _ in theirs}
            if shared:
                what = f"wrote to {_some(shared)}, whose files this write had looked up, before"
                raise self._conflict(what, instant.requested)
            if not now.schema.equals(self.snapshot.schema):
                raise self._conflict("changed the table's schema before", instant.requested)
            if instant.requested > self.instant and not change.schema.equals(now.schema):
                # The table's schema is that of the largest instant, which need not be the last one to complete.
                what = "has a later instant and completed without the schema change of"
                raise self._conflict(what, instant.requested)
            self._check_partition_stats(now, change.partitions, instant, theirs)
        self._check_index_builds(now)

    def _check_partition_stats(
        self, now: Snapshot, ours: frozenset[str], other: Instant, theirs: frozenset[tuple[str, str]]
    ) -> None:
        """A later instant that completed first has the last word on a partition's stats, and does not know our files.

        Every reader takes the log files of the metadata table in the order of their instants.
        """
        if other.requested < self.instant or not now.metadata.has(PARTITION_STATS.name):
            return
        shared = ours & {partition for partition, _ in theirs}
        if shared:
            what = f"has a later instant and already wrote the partition stats of {_some(shared)} before"
            raise self._conflict(what, other.requested)

    def _check_index_builds(self, now: Snapshot) -> None:
        """The same for an index build, which has no instant but the one on the metadata timeline."""
        for instant in now.metadata.timeline.completed({"deltacommit"}):
            if instant.requested < self.instant or now.timeline.contains(instant.requested):
                continue
            if PARTITION_STATS.name in now.metadata.timeline.commit_metadata(instant).write_stats:
                raise self._conflict("of an index build wrote the partition stats before", instant.requested)

    def _lost(self, now: Snapshot) -> bool:
        mine = [i for i in now.timeline.pending({self.operation.action}) if i.requested == self.instant]
        return not mine or now.timeline.pending_rollback_of(self.instant) is not None

    def _conflict(
        self, what: str, theirs: str, groups: frozenset[tuple[str, str]] = frozenset()
    ) -> CommitConflictError:
        who = f"commit {theirs}" if theirs else "the write"
        return CommitConflictError(
            f"{self.handle.base_path}: {who} {what} {self.instant}; nothing was written, run the write again",
            ours=self.instant,
            theirs=theirs or None,
            file_groups=groups,
            retryable=True,
        )

    def _remove_unaccepted(self, results: Sequence[WrittenFile]) -> None:
        """Delete files of attempts whose result did not count. A plain listing must not find them later."""
        accepted = {(result.partition, result.file_name) for result in results}
        for partition, name in marked_files(self.snapshot, self.instant):
            if (partition, name) not in accepted:
                delete_files(self.handle.storage, self.handle.base_path, [(partition, name)])

    def _finish(self) -> None:
        delete_temp(self.handle.storage, self.handle.base_path, self.instant)
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def cancel(self) -> None:
        """End a write that has nothing to write. It stays pending, so that others undo it, until its files are gone."""
        self._remove_unaccepted([])
        self.bitmaps.undo()
        delete_temp(self.handle.storage, self.handle.base_path, self.instant)
        if self._pending is not None:
            remove_pending(self.snapshot.timeline, self._pending)
        self._finish()

    def abort(self, error: BaseException) -> CommitConflictError | None:
        """Undo the write after ``error``. What cannot be undone now is undone by the next writer.

        Returns:
            The conflict with another writer that was the reason: ``error``, or that the write was rolled back and its
            files went away under it.
        """
        lost = False
        if not isinstance(error, CommitStateUnknownError):
            with (
                contextlib.suppress(LakedexError, OSError),
                table_lock(self.handle.storage, self.handle.base_path, self.options),
            ):
                lost = self._undo()
        self._stop_heartbeat()
        if isinstance(error, CommitConflictError):
            return error
        what = "was rolled back by another writer that took it for dead"
        return self._conflict(what, "") if lost else None

    def _undo(self) -> bool:
        """Remove what this write made; whether another writer did so already."""
        now = self.handle.snapshot()
        mine = [i for i in now.timeline.pending({self.operation.action}) if i.requested == self.instant]
        if mine and self._metadata_started:
            roll_back(now, mine[0], self._clock)
        elif mine:
            self.cancel()
        elif not now.timeline.is_completed(self.instant):
            # The other one may have come before our last files.
            self._remove_unaccepted([])
            self._finish()
            return True
        return False


def _some(partitions: Iterable[str]) -> str:
    return ", ".join(sorted(path or "(the table)" for path in partitions)[:3])


def _write_stats(results: Sequence[WrittenFile]) -> dict[str, tuple[WriteStat, ...]]:
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for result in results:
        millis = int(result.seconds * 1000)
        stat = WriteStat(
            file_id=result.file_id,
            path=join_path(result.partition, result.file_name),
            partition_path=result.partition,
            file_size=result.size,
            prev_commit=result.previous_instant or "null",
            prev_base_file=result.previous,
            num_writes=result.rows,
            num_deletes=result.deleted,
            num_updates=result.updated,
            num_inserts=result.inserted,
            create_ms=0 if result.previous else millis,
            upsert_ms=millis if result.previous else 0,
        )
        stats[result.partition] = (*stats.get(result.partition, ()), stat)
    return stats
