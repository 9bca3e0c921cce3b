"""Compact the metadata table: merge the log files of its file groups into new base HFiles.

As in ``HoodieBackedTableMetadataWriter.compactIfNecessary`` and ``ScheduleCompactionActionExecutor``: a plan names the
log files that were complete before the compaction's instant, and that instant is before every pending data commit whose
metadata is complete. So a base file never has uncommitted records, and readers trust it completely.

Everything runs under the table's lock, as every write to the metadata table. A compaction of a dead writer is pending;
readers use the old slices, and the next writer, lakedex or Hudi, executes its plan. A plan that cannot be executed
(unreadable, or with missing files) is deleted and made again.

The sorted sources of a slice are merged key by key (``HoodieCompactor``). If only one source has a key its bytes are
copied; records are decoded only where several versions meet.

Memory: a batch of up to 16 MiB of compressed blocks per source, the keys of delete blocks, and one block of the new
file.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.bloom import BloomBuilder
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import stream_hfile
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.codec.varint import decode_varint, encode_varint
from lakedex.engine import current_task
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.io.locks import Lock
from lakedex.io.storage import Storage
from lakedex.layout.contained_files import delete_files, list_folder
from lakedex.layout.names import BaseFileName, parse_base_file_name, parse_log_file_name
from lakedex.metadata.file_groups import MetadataFileGroup
from lakedex.metadata.files import Layer
from lakedex.metadata.records import compact_records
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import metadata_commit
from lakedex.options import MetadataOptions
from lakedex.parallel import run_threads
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import Timeline, complete, create_inflight, create_requested, remove_pending
from lakedex.timeline.commit_metadata import WriteStat, encode_commit_metadata
from lakedex.timeline.instant import Instant, InstantClock, State, plus_millis
from lakedex.timeline.service_metadata import (
    CompactionOperation,
    compaction_metrics,
    decode_compaction_plan,
    encode_compaction_plan,
)

__all__ = [
    "Compacted",
    "CompactionDone",
    "GroupCompaction",
    "compact",
    "compact_group",
    "compaction_due",
    "delta_commits_since",
    "last_compaction",
    "plan_compaction",
]


_NO_META_FIELDS = b"\0\0\0\0"


_KEYS_AT_ONCE = 16_384


Version = tuple[bytes, int, bytes]
"""Key, number of the source (higher is newer), value."""


@dataclass(frozen=True, slots=True)
class GroupCompaction:
    """File group compacted by one task; ``folder`` is that of the metadata partition."""

    store: MetadataStore
    folder: str
    group: MetadataFileGroup
    instant: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """The new base file. ``merged`` counts keys with several versions."""

    name: str
    size: int
    records: int
    merged: int


class _UnsortedError(Exception):
    """A source is not in byte order: Java sorts by UTF-16 units, which differs for a few characters."""


class _Merge:
    """Merged records of a slice, as in its new base file."""

    def __init__(self, layers: Sequence[Layer], file_name: str, *, sort: bool) -> None:
        self._layers = layers
        self._sort = sort
        self._schemas = [layer.info["schema"].decode() if isinstance(layer, HFileReader) else "" for layer in layers]
        self._gone: Mapping[bytes, int] = {
            key: number for number, layer in enumerate(layers) if not isinstance(layer, HFileReader) for key in layer
        }
        name = file_name.encode()
        # Avro: the union's second branch, and a length in zigzag coding.
        self._named = _NO_META_FIELDS + b"\x02" + encode_varint(2 * len(name)) + name
        self._ours = metadata_schema_json()
        self._keys: list[str] = []
        self._bloom = BloomBuilder(num_entries=10_000, fpp=1e-9)
        self.first = self.last = b""
        self.records = self.merged = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        sources = [
            self._source(number, layer) for number, layer in enumerate(self._layers) if isinstance(layer, HFileReader)
        ]
        for key, versions in groupby(heapq.merge(*sources), itemgetter(0)):
            value = self._settle(self._alive(key, versions))
            if value is not None:
                self._count(key)
                yield key, value

    def _source(self, number: int, layer: HFileReader) -> Iterator[Version]:
        last = b""
        cells = sorted(layer.scan(), key=itemgetter(0)) if self._sort else layer.scan()
        for key, value in cells:
            if key <= last:
                if key == last:
                    continue  # HBase may have several cells of a key; the first counts.
                raise _UnsortedError
            last = key
            yield key, number, value

    def _alive(self, key: bytes, versions: Iterator[Version]) -> list[tuple[int, bytes]]:
        """Versions of a key after its last deletion, oldest first."""
        since = self._gone.get(key, -1)
        alive: list[tuple[int, bytes]] = []
        for _, number, value in versions:
            if not value:
                alive.clear()
            elif number > since:
                alive.append((number, value))
        return alive

    def _settle(self, versions: Sequence[tuple[int, bytes]]) -> bytes | None:
        if not versions:
            return None
        if len(versions) == 1:
            number, value = versions[0]
            if self._schemas[number] == self._ours:
                return self._renamed(value)
        else:
            self.merged += 1
        merged = compact_records(decode_metadata_record(value, self._schemas[number]) for number, value in versions)
        if merged is None:
            return None
        return self._renamed(encode_metadata_record({**merged, "_hoodie_file_name": None}))

    def _renamed(self, value: bytes) -> bytes:
        """The value with the new file's name in ``_hoodie_file_name``, the last of five otherwise null fields."""
        if value[:4] != _NO_META_FIELDS:
            record = decode_metadata_record(value, self._ours)
            plain = {name: None for name in record if name.startswith("_hoodie_")}
            value = encode_metadata_record({**record, **plain})
        if value[4] == 0:
            return self._named + value[5:]
        length, at = decode_varint(value, 5)
        return self._named + value[at + length // 2 :]

    def _count(self, key: bytes) -> None:
        if not self.records:
            self.first = key
        self.last = key
        self.records += 1
        self._keys.append(key.decode())
        if len(self._keys) >= _KEYS_AT_ONCE:
            self._hash()

    def _hash(self) -> None:
        if self._keys:
            self._bloom.add(pa.array(self._keys, pa.large_string()))
            self._keys.clear()

    def describe(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """File info and meta blocks. Java's reader with bloom filters enabled expects one inside."""
        self._hash()
        bloom = self._bloom.finish()
        info = {"schema": self._ours.encode(), "bloomFilterTypeCode": bloom.type_code.encode()}
        if self.records:
            info |= {"minRecordKey": self.first, "maxRecordKey": self.last}
        return info, {"bloomFilter": bloom.encode()}


def compact_group(task: GroupCompaction) -> Compacted:
    """Write the base file of one file group, which is invisible until its compaction completes.

    Raises:
        CorruptFileError: A source is damaged; the error names it.
        InvalidInputError: The file would exceed Hudi's limit.
    """
    name = str(BaseFileName(task.group.file_id, str(current_task()), task.instant, ".hfile"))
    path = f"{task.folder}/{name}"
    layers = task.store.layers(task.group)
    try:
        try:
            return _write(task.store.files.storage, path, _Merge(layers, name, sort=False))
        except _UnsortedError:
            task.store.files.storage.delete(path)
            return _write(task.store.files.storage, path, _Merge(layers, name, sort=True))
    except BaseException:
        with suppress(OSError):
            task.store.files.storage.delete(path)
        raise


def _write(storage: Storage, path: str, merge: _Merge) -> Compacted:
    with closing(storage.open_output(path)) as out:
        size = stream_hfile(out.write, merge, merge.describe)
    # Object stores put whole objects.
    if storage.scheme == "file" and (found := storage.size(path)) != size:
        raise CorruptFileError(path, found, f"{size} bytes written", f"{found}")
    return Compacted(path.rsplit("/", 1)[1], size, merge.records, merge.merged)


@dataclass(slots=True, kw_only=True)
class CompactionDone:
    """Executed compactions.

    Attributes:
        instants: Completed instants, oldest first.
        found: Those that an earlier writer had started.
        file_groups: Number of base files written.
        log_files: Number of log files merged into them.
        records: Number of records in the new base files.
        merged: Number of keys with several versions.
        size: Size of the new base files in bytes.
    """

    instants: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    file_groups: int = 0
    log_files: int = 0
    records: int = 0
    merged: int = 0
    size: int = 0


def last_compaction(timeline: Timeline) -> Instant | None:
    """The last completed compaction of a metadata timeline: a commit, as all writes are delta commits."""
    return next(reversed(timeline.completed({"commit", "replacecommit"})), None)


def delta_commits_since(timeline: Timeline) -> list[Instant]:
    """Completed delta commits after the last compaction (``CompactionUtils.getDeltaCommitsSinceLatestCompaction``)."""
    last = last_compaction(timeline)
    deltas = timeline.completed({"deltacommit"})
    if last is None:
        return list(deltas)
    by_completion = timeline.layout >= 2
    return [i for i in deltas if ((i.completed if by_completion else None) or i.requested) > last.requested]


def compaction_due(now: Snapshot, options: MetadataOptions) -> bool:
    """Whether there are ``hoodie.metadata.compact.max.delta.commits``, or a pending compaction."""
    if not now.uses_metadata:
        return False
    timeline = now.metadata.timeline
    if timeline.pending({"compaction"}):
        return True
    return len(delta_commits_since(timeline)) >= options.compact_commits


def compact(
    handle: TableContext, now: Snapshot, clock: InstantClock, lock: Lock, done: CompactionDone, *, new: bool
) -> None:
    """Execute pending compactions, and with ``new`` one of all log files. Call under the table lock.

    Args:
        handle: the table.
        now: the table as it is.
        clock: gives instants.
        lock: of the table.
        done: what was done is added to it.
        new: whether to compact what no plan has.

    Raises:
        CorruptFileError: A file of the metadata table is damaged; nothing was completed.
        UnsupportedFeatureError: A log compaction is pending, which only Hudi can finish.
    """
    timeline = now.metadata.timeline
    if pending := timeline.pending({"logcompaction"}):
        raise UnsupportedFeatureError(
            f"{now.files.metadata}: the log compaction {pending[0].requested} is pending; lakedex does not "
            "run those. Finish it by a write with Hudi (hoodie.metadata.log.compaction.enable)",
            feature="pending log compaction",
        )
    for instant in timeline.pending({"compaction"}):
        operations = _planned(now, instant)
        if operations is None:
            _remove_files_of(now, instant.requested, keep=())
            remove_pending(timeline, instant)
            new = True
            continue
        _carry_out(handle, now, instant, operations, clock, lock, done)
        done.found.append(instant.requested)
    if new:
        now = handle.snapshot(is_locked=True) if done.instants or timeline.pending({"compaction"}) else now
        requested = _next_instant(now, clock)
        operations = () if requested is None else plan_compaction(now, requested)
        if requested is not None and operations:
            body = encode_compaction_plan(operations)
            instant = create_requested(now.metadata.timeline, requested, "compaction", body)
            _carry_out(handle, now, instant, operations, clock, lock, done)


def _next_instant(now: Snapshot, clock: InstantClock) -> str | None:
    """Instant of a new compaction; None if none is possible yet."""
    timeline = now.metadata.timeline
    if timeline.layout < 2:
        return _next_instant_of_layout_1(now)
    half_done = [i.requested for i in now.timeline.pending() if timeline.is_completed(i.requested)]
    if not half_done:
        return clock.next(max(now.timeline.last_time, timeline.last_time))
    requested = plus_millis(min(half_done), -1)
    last = last_compaction(timeline)
    taken = timeline.contains(requested) or now.timeline.contains(requested)
    taken = taken or (last is not None and requested <= last.requested)
    return None if taken else requested


def _next_instant_of_layout_1(now: Snapshot) -> str | None:
    """Last delta commit with a suffix, if nothing before it is pending.

    As in ``HoodieBackedTableMetadataWriterTableVersionSix``: log blocks of layout 1 name their commits in their
    headers, so a plan cannot exclude single blocks.
    """
    timeline = now.metadata.timeline
    deltas = timeline.completed({"deltacommit"})
    if not deltas or any(i.requested <= deltas[-1].requested for i in now.timeline.pending()):
        return None
    requested = f"{deltas[-1].requested}001"
    return None if timeline.contains(requested) else requested


def plan_compaction(now: Snapshot, requested: str) -> tuple[CompactionOperation, ...]:
    """Plan a compaction: file groups with log files that were complete before the instant."""
    store = now.metadata
    operations = []
    for folder in store.folders():
        for group in store.file_groups(folder):
            logs = [log for log in group.logs if _complete_before(store.timeline, log[0], requested)]
            if logs:
                operations.append(_operation(folder, group, logs))
    return tuple(operations)


def _complete_before(timeline: Timeline, path: str, requested: str) -> bool:
    log = parse_log_file_name(path.rsplit("/", 1)[1])
    if log is None or timeline.layout < 2:
        return log is not None
    completed = timeline.completion_time(log.instant)
    return completed < requested if completed is not None else log.instant < requested


def _operation(folder: str, group: MetadataFileGroup, logs: Sequence[tuple[str, int]]) -> CompactionOperation:
    base = None if group.base is None else group.base[0].rsplit("/", 1)[1]
    parsed = parse_base_file_name(base or "")
    first = parse_log_file_name(logs[0][0].rsplit("/", 1)[1])
    return CompactionOperation(
        partition=folder,
        file_id=group.file_id,
        base_instant=parsed.instant if parsed is not None else first.instant if first is not None else "",
        base=base,
        logs=tuple(path.rsplit("/", 1)[1] for path, _ in logs),
        metrics=compaction_metrics(None if group.base is None else group.base[1], [size for _, size in logs]),
    )


def _planned(now: Snapshot, instant: Instant) -> tuple[CompactionOperation, ...] | None:
    """Plan of a pending compaction; None if it cannot be executed."""
    timeline = now.metadata.timeline
    name = f"{instant.requested}.compaction.requested"
    try:
        operations = decode_compaction_plan(timeline.read(name), f"{timeline.path}/{name}")
    except (CorruptFileError, FileNotFoundError):
        return None
    try:
        _tasks(now, instant.requested, operations)
    except FileNotFoundError:
        return None
    return operations


def _tasks(now: Snapshot, requested: str, operations: Sequence[CompactionOperation]) -> list[GroupCompaction]:
    """Convert operations to tasks.

    Raises:
        FileNotFoundError: A file of the plan does not exist.
    """
    own = now.files.metadata
    sizes: dict[str, dict[str, int]] = {}
    tasks = []
    for operation in operations:
        folder = own.path(operation.partition)
        if folder not in sizes:
            sizes[folder] = {entry.name: entry.size for entry in now.metadata.entries(operation.partition)}
        known = sizes[folder]
        missing = [name for name in (*operation.logs, *filter(None, [operation.base])) if name not in known]
        if missing:
            raise FileNotFoundError(f"{folder}/{missing[0]}")
        base = None if operation.base is None else (f"{folder}/{operation.base}", known[operation.base])
        logs = tuple((f"{folder}/{name}", known[name]) for name in operation.logs)
        group = MetadataFileGroup(operation.file_id, base, logs)
        tasks.append(GroupCompaction(now.metadata, folder, group, requested))
    return tasks


def _carry_out(
    handle: TableContext,
    now: Snapshot,
    instant: Instant,
    operations: tuple[CompactionOperation, ...],
    clock: InstantClock,
    lock: Lock,
    done: CompactionDone,
) -> None:
    timeline = now.metadata.timeline
    requested = instant.requested
    tasks = _tasks(now, requested, operations)
    if instant.state is State.REQUESTED:
        instant = create_inflight(timeline, instant, is_new=True)
    else:
        _remove_files_of(now, requested, keep=())
    total = sum(size for task in tasks for _, size in (*task.group.logs, *filter(None, [task.group.base])))
    if total > handle.limits.thread_merge_bytes:
        results = handle.engine.run(compact_group, tasks, f"compaction of the metadata table ({requested})")
        # Repeated attempts of tasks may have written the same file under another name.
        _remove_files_of(now, requested, keep={result.name for result in results})
    else:
        results = run_threads(compact_group, tasks, max(handle.engine.parallelism, now.metadata.threads))
    lock.check()
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for operation, result in zip(operations, results, strict=True):
        stats[operation.partition] = (*stats.get(operation.partition, ()), _write_stat(operation, result))
    commit = replace(metadata_commit(stats, "COMPACT", now.metadata.table_version), compacted=True)
    body = encode_commit_metadata(commit, timeline.layout)
    completion = clock.next(max(now.timeline.last_time, timeline.last_time, requested))
    complete(timeline, instant, completion, body, is_new=True)
    done.instants.append(requested)
    done.file_groups += len(results)
    done.log_files += sum(len(operation.logs) for operation in operations)
    done.records += sum(result.records for result in results)
    done.merged += sum(result.merged for result in results)
    done.size += sum(result.size for result in results)


def _write_stat(operation: CompactionOperation, result: Compacted) -> WriteStat:
    return WriteStat(
        file_id=operation.file_id,
        path=f"{operation.partition}/{result.name}",
        partition_path=operation.partition,
        file_size=result.size,
        prev_commit=operation.base_instant,
        num_writes=result.records,
        num_updates=result.merged,
    )


def _remove_files_of(now: Snapshot, requested: str, keep: Collection[str]) -> None:
    """Delete base files of an incomplete compaction, except ``keep``."""
    own = now.files.metadata
    for folder in now.metadata.folders():
        for entry in list_folder(own, folder):
            base = parse_base_file_name(entry.name)
            if base is not None and base.instant == requested and entry.name not in keep:
                delete_files(own, [(folder, entry.name)])
