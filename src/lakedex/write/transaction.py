"""One write from its announcement to its completion, or to its undoing (``BaseHoodieClient``, ``TransactionManager``).

The table lock is held around start and completion only. In between other writers may commit; the conflict check under
the lock decides whether this write's picture of the table still holds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex import __version__
from lakedex.codec.avro_schema import arrow_to_avro
from lakedex.errors import CommitConflictError, CommitStateUnknownError, LakedexError
from lakedex.index.definitions import (
    definitions_path,
    encode_definitions,
    read_definitions,
    source_fields,
    with_column_stats,
)
from lakedex.io.heartbeat import Heartbeat
from lakedex.io.locks import TableLock
from lakedex.layout.names import join_path
from lakedex.metadata.delta_commit import LogWritten, Updates, write_delta_commit
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import Instant, InstantClock
from lakedex.timeline.table_config import recover_table_config
from lakedex.timeline.table_support import require_writable
from lakedex.timeline.transitions import complete, create_inflight, create_requested, remove_pending
from lakedex.types import Operation
from lakedex.write.metadata_updates import build_updates
from lakedex.write.options import WriteOptions
from lakedex.write.recovery import marked_files, roll_back, roll_back_expired, temp_path
from lakedex.write.stage import GroupResult

__all__ = ["Transaction", "require_exclusive_create", "table_lock"]


def table_lock(handle: TableHandle, options: WriteOptions) -> TableLock:
    """The table's lock, shared with Hudi's ``FileSystemBasedLockProvider``."""
    return TableLock(
        handle.storage,
        handle.base_path,
        timeout_s=options.lock_timeout,
        expire_minutes=options.lock_expire_minutes,
    )


def require_exclusive_create(handle: TableHandle) -> None:
    """Refuse to write to a store on which two writers could both create one file."""
    if not handle.storage.can_create_exclusively:
        raise LakedexError(
            f"{handle.base_path}: the store {handle.storage.scheme!r} has no put-if-absent, which the timeline and the lock "
            "need; write to a local disk or to S3"
        )


@dataclass(slots=True)
class Transaction:
    """A write in progress.

    Attributes:
        snapshot: the table as this write reads it.
        instant: the write's instant.
    """

    handle: TableHandle
    options: WriteOptions
    operation: Operation
    snapshot: Snapshot = field(init=False)
    instant: str = field(init=False)
    _pending: Instant = field(init=False)
    undone: list[str] = field(init=False, default_factory=list)
    _clock: InstantClock = field(init=False)
    _heartbeat: Heartbeat = field(init=False)
    _metadata_started: bool = field(init=False, default=False)

    def begin(self) -> None:
        """Undo dead writes, take an instant and announce the write."""
        handle = self.handle
        require_exclusive_create(handle)
        with table_lock(handle, self.options) as lock:
            recover_table_config(handle.storage, handle.base_path)
            snapshot = handle.snapshot()
            require_writable(snapshot.config)
            self._clock = InstantClock(snapshot.config.timezone)
            interval = int(self.options.heartbeat_interval * 1000)
            self.undone = roll_back_expired(snapshot, self._clock, interval, self.options.heartbeat_misses)
            if self.undone:
                snapshot = handle.snapshot()
            self.snapshot = snapshot
            self.instant = self._next_time(snapshot)
            self._heartbeat = Heartbeat(handle.storage, handle.base_path, self.instant, interval)
            self._heartbeat.start()
            try:
                lock.check()
                self._pending = create_requested(handle.storage, snapshot.timeline.path, self.instant, "commit")
            except BaseException:
                self._heartbeat.stop()
                raise
        try:
            self._pending = create_inflight(handle.storage, snapshot.timeline.path, self._pending)
        except BaseException:
            remove_pending(handle.storage, snapshot.timeline.path, self._pending)
            self._heartbeat.stop()
            raise

    def _next_time(self, snapshot: Snapshot) -> str:
        return self._clock.next(max(snapshot.timeline.last_time, snapshot.metadata.timeline.last_time))

    def commit(
        self,
        results: Sequence[GroupResult],
        schema: pa.Schema,
        indexed: Mapping[str, pa.DataType],
        *,
        tagged_partitions: frozenset[str] = frozenset(),
        extra: Mapping[str, str] | None = None,
    ) -> list[LogWritten]:
        """Make the write visible.

        Args:
            results: what the write stage did.
            schema: the table's columns from now on.
            indexed: columns of ``column_stats``.
            tagged_partitions: partitions whose keys this write looked up before it inserted new ones: another
                commit there may have inserted the same keys.
            extra: entries of the commit's extra metadata.

        Raises:
            CommitConflictError: another writer committed to what this write read.
        """
        handle = self.handle
        self._remove_unaccepted(results)
        with table_lock(handle, self.options) as lock:
            now = handle.snapshot()
            require_writable(now.config)
            self._check_conflicts(now, results, tagged_partitions)
            updates = build_updates(now, results, self.instant, indexed, handle.engine.run)
            lock.check()
            self._update_definitions(now, schema, indexed)
            logs = self._write_metadata(now, updates)
            lock.check()
            body = encode_commit_metadata(
                CommitMetadata(
                    operation=self.operation.value,
                    write_stats=_write_stats(results),
                    extra={
                        "schema": json.dumps(arrow_to_avro(schema, now.config.name)),
                        "lakedex.version": __version__,
                        **(extra or {}),
                    },
                )
            )
            complete(handle.storage, now.timeline.path, self._pending, self._next_time(handle.snapshot()), body)
        self._finish()
        return logs

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

    def _update_definitions(self, now: Snapshot, schema: pa.Schema, indexed: Mapping[str, pa.DataType]) -> None:
        """Say which columns the index covers, before a record of a new column becomes visible."""
        if not now.metadata.has("column_stats"):
            return
        path = definitions_path(self.handle.base_path)
        document = read_definitions(self.handle.storage, path)
        if source_fields(document) and source_fields(document) != list(indexed):
            self.handle.storage.write(path, encode_definitions(with_column_stats(document, list(indexed))))

    def _check_conflicts(
        self, now: Snapshot, results: Sequence[GroupResult], tagged_partitions: frozenset[str]
    ) -> None:
        """``SimpleConcurrentFileWritesConflictResolutionStrategy``, and by partition where new keys were looked up."""
        if self._lost(now):
            raise self._conflict("was rolled back by another writer that took it for dead", "", frozenset())
        ours = {(result.partition, result.file_id) for result in results if result.previous is not None}
        for instant in now.timeline.completed({"commit", "deltacommit", "replacecommit"}):
            if self.snapshot.timeline.is_completed(instant.requested):
                continue
            theirs = now.timeline.commit_metadata(instant)
            both = frozenset(ours & theirs.touched_file_groups())
            if both:
                raise self._conflict("rewrote the same file groups as", instant.requested, both)
            shared = tagged_partitions & {partition for partition, _ in theirs.touched_file_groups()}
            if shared:
                names = ", ".join(sorted(path or "(the table)" for path in shared)[:3])
                raise self._conflict(f"wrote to {names}, whose keys this write had looked up, before", instant.requested, frozenset())
            if not now.schema.equals(self.snapshot.schema):
                raise self._conflict("changed the table's schema before", instant.requested, frozenset())

    def _lost(self, now: Snapshot) -> bool:
        mine = [i for i in now.timeline.pending({"commit"}) if i.requested == self.instant]
        return not mine or now.timeline.pending_rollback_of(self.instant) is not None

    def _conflict(self, what: str, theirs: str, groups: frozenset[tuple[str, str]]) -> CommitConflictError:
        who = f"commit {theirs}" if theirs else "the write"
        return CommitConflictError(
            f"{self.handle.base_path}: {who} {what} {self.instant}; nothing was written, run the write again",
            ours=self.instant,
            theirs=theirs or None,
            file_groups=groups,
            retryable=True,
        )

    def _remove_unaccepted(self, results: Sequence[GroupResult]) -> None:
        """Delete files of attempts whose result did not count. A plain listing must not find them later."""
        accepted = {(result.partition, result.file_name) for result in results}
        for partition, name in marked_files(self.snapshot, self.instant):
            if (partition, name) not in accepted:
                self.handle.storage.delete(f"{self.handle.base_path}/{join_path(partition, name)}")

    def _finish(self) -> None:
        self._heartbeat.stop()
        self.handle.storage.delete_tree(temp_path(self.handle.base_path, self.instant))

    def cancel(self) -> None:
        """End a write that has nothing to write: its pending files go, nothing else was made."""
        self._remove_unaccepted([])
        remove_pending(self.handle.storage, self.snapshot.timeline.path, self._pending)
        self._finish()

    def abort(self, error: BaseException) -> None:
        """Undo the write after ``error``. What cannot be undone now is undone by the next writer."""
        if isinstance(error, CommitStateUnknownError):
            self._heartbeat.stop()
            return
        with contextlib.suppress(LakedexError, OSError):
            with table_lock(self.handle, self.options):
                now = self.handle.snapshot()
                mine = [i for i in now.timeline.pending({"commit"}) if i.requested == self.instant]
                if mine and self._metadata_started:
                    roll_back(now, mine[0], self._clock)
                elif mine:
                    self.cancel()
                elif not now.timeline.is_completed(self.instant):
                    # Rolled back by another writer, who may have come before our last files.
                    self._remove_unaccepted([])
                    self._finish()
        self._heartbeat.stop()


def _write_stats(results: Sequence[GroupResult]) -> dict[str, tuple[WriteStat, ...]]:
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


