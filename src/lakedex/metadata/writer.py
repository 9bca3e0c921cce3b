"""Write the metadata table: its partitions, and one delta commit per data commit (``HoodieBackedTableMetadataWriter``).

Each touched file group gets one log file ``.<fileId>_<instant>.log.<n>_<group>-0-0`` of HFile data blocks; in timeline
layout 1 the name has the first instant of the group's slice, and ``n`` continues. The delta commit completes before the
data commit of the same instant; until then readers skip it.

Every file group of a new partition gets a first log file that deletes nothing, since readers count the groups they
find. Only ``files`` gets a base HFile: hudi-rs expects exactly one there, and lists storage without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakedex.codec.avro import metadata_schema_json, schema
from lakedex.codec.bloom import build_bloom
from lakedex.codec.hashing import file_group_index_many
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.log_block import encode_delete_block, encode_log_block
from lakedex.codec.metadata_record import encode_metadata_record
from lakedex.codec.properties import encode_properties
from lakedex.errors import CommitError, IndexingError
from lakedex.io.storage import FileInfo, TableFiles
from lakedex.io.task_output import Spilled
from lakedex.layout.names import PARTITION_METAFILE, BaseFileName, LogFileName
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    FILES,
    SUPPORTED,
    Record,
    all_partitions_record,
    bloom_record,
    files_key,
    files_record,
)
from lakedex.metadata.store import DeltaCommit, MetadataStore
from lakedex.parallel import run_threads
from lakedex.timeline.active import Timeline, complete, create_inflight, create_requested
from lakedex.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import TableConfig, metadata_table_properties
from lakedex.types import META_COLUMNS

__all__ = [
    "FIRST_BUILD_SUFFIX",
    "Keyed",
    "Listing",
    "LogWritten",
    "SpilledBloom",
    "Updates",
    "build_instant",
    "create_file_groups",
    "create_metadata_table",
    "first_instant",
    "write_delta_commit",
]


MAX_BLOCK_BYTES = 128 * 1024 * 1024
"""Size of the records in one log file before compression; more go to its next version."""


@dataclass(frozen=True, slots=True)
class SpilledBloom:
    """A bloom record with its text in a file, as it is too large to pass through the driver."""

    text: Spilled
    type_code: str
    instant: str


WRITES_AT_ONCE = 8


KEPT_BYTES = 256 * 1024
"""Log files up to this size need not be read again by the process that wrote them."""


DRIVER_BLOOMS = 64
"""Number of spilled filters up to which the driver writes the log files: about 20 MiB of default filters."""


Keyed = list[tuple[str, Record | SpilledBloom]]
"""Records with their keys."""


Updates = Mapping[str, Sequence[tuple[str, Record | SpilledBloom]]]
"""Keys and records by metadata partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """Records of one file group, written by one task; one in this process hands its small files back."""

    files: TableFiles
    partition: str
    file_id: str
    number: int
    instant: str
    slice_instant: str
    first_version: int
    table_version: int
    records: tuple[tuple[str, Record | SpilledBloom], ...]
    hands_back: bool


@dataclass(frozen=True, slots=True)
class LogWritten:
    """One log file of a delta commit; ``slice_instant`` is the instant in its name, ``content`` empty if not kept."""

    partition: str
    file_id: str
    name: str
    version: int
    size: int
    records: int
    slice_instant: str
    content: bytes = field(default=b"", repr=False)


def write_delta_commit(
    store: MetadataStore,
    instant: str,
    updates: Updates,
    next_time: Callable[[], str],
    run: Callable[[Callable[[_Shard], list[LogWritten]], Sequence[_Shard]], list[list[LogWritten]]],
    *,
    first_version: int = 1,
    operation: str = "UPSERT_PREPPED",
) -> tuple[DeltaCommit, list[LogWritten]]:
    """Write and complete the delta commit of ``instant``; its completed instant and log files. Call under the lock.

    On object stores the store's cache then has the log files, which need not be read again.

    Args:
        store: Metadata table, whose file groups determine where a key goes.
        instant: Instant of the data action.
        updates: Records by metadata partition, with unique keys in each.
        next_time: Returns the completion time.
        run: Engine's ``run``, with one task per file group if there is much to write.
        first_version: Version of the first log file; larger if the instant has created the file groups itself. In
            timeline layout 1 versions continue from the existing ones.
        operation: Hudi's name of the operation.
    """
    inflight = create_inflight(store.timeline, create_requested(store.timeline, instant, "deltacommit"), is_new=True)
    spilled = sum(isinstance(record, SpilledBloom) for records in updates.values() for _, record in records)
    in_tasks = spilled > DRIVER_BLOOMS
    # On a local disk a file is read again as quickly, and damage to it is seen.
    hands_back = not in_tasks and store.listing is not None
    shards = list(_shards(store, instant, updates, first_version, hands_back=hands_back))
    logs = run(_write_shard, shards) if in_tasks else run_threads(_write_shard, shards, WRITES_AT_ONCE)
    written = [log for part in logs for log in part]
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for log in written:
        stats[log.partition] = (*stats.get(log.partition, ()), _write_stat(log))
    body = encode_commit_metadata(metadata_commit(stats, operation, store.table_version), store.timeline.layout)
    done = complete(store.timeline, inflight, next_time(), body, is_new=True)
    for log in written:
        if log.content:
            store.cache.keep_written(store.files.metadata.path(log.partition, log.name), log.content)
    files = [(log.partition, FileInfo(log.name, log.size, 0)) for log in written]
    return DeltaCommit(done, body, files), [replace(log, content=b"") for log in written]


def metadata_commit(stats: Mapping[str, tuple[WriteStat, ...]], operation: str, table_version: int) -> CommitMetadata:
    """Commit metadata of a delta commit on the metadata table."""
    return CommitMetadata(operation=operation, write_stats=stats, extra={"schema": _plain_schema(table_version)})


def _plain_schema(table_version: int) -> str:
    """Schema of metadata records without meta fields."""
    if table_version >= 8:
        return json.dumps(schema("HoodieMetadataRecord"))
    stored = json.loads(metadata_schema_json(table_version))
    own = [field for field in stored["fields"] if field["name"] not in META_COLUMNS]
    return json.dumps({**stored, "fields": own}, separators=(",", ":"))


def _shards(
    store: MetadataStore, instant: str, updates: Updates, first_version: int, *, hands_back: bool
) -> Iterator[_Shard]:
    for partition, records in updates.items():
        if not records:
            continue
        groups = store.file_groups(partition)
        if not groups:
            raise IndexingError(
                f"{store.files.metadata}/{partition} has no file group although the table lists the "
                "partition; its metadata table is damaged"
            )
        numbers = file_group_index_many([key for key, _ in records], len(groups))
        for number, group in enumerate(groups):
            own = tuple(record for record, place in zip(records, numbers, strict=True) if place == number)
            if own:
                by_name = store.timeline.layout == 1
                yield _Shard(
                    files=store.files,
                    partition=partition,
                    file_id=group.file_id,
                    number=number,
                    instant=instant,
                    slice_instant=group.slice_instant if by_name else instant,
                    first_version=group.next_version if by_name else first_version,
                    table_version=store.table_version,
                    records=own,
                    hands_back=hands_back,
                )


def _encoded(shard: _Shard) -> Iterator[tuple[bytes, bytes]]:
    for key, record in sorted(shard.records, key=lambda item: item[0].encode()):
        if isinstance(record, SpilledBloom):
            record = bloom_record(record.type_code, record.instant, record.text.read(shard.files.storage))
        yield key.encode(), encode_metadata_record(record, table_version=shard.table_version)


def _write_shard(shard: _Shard) -> list[LogWritten]:
    """Write the records of one file group to as many log files as their size requires.

    Memory: one log file.
    """
    written: list[LogWritten] = []
    buffered: list[tuple[bytes, bytes]] = []
    size = 0
    flush = partial(_write_log, shard)
    for key, value in _encoded(shard):
        if buffered and size + len(value) > MAX_BLOCK_BYTES:
            written.append(flush(shard.first_version + len(written), buffered))
            buffered, size = [], 0
        buffered.append((key, value))
        size += len(value)
    written.append(flush(shard.first_version + len(written), buffered))
    return written


def _write_log(shard: _Shard, version: int, items: Sequence[tuple[bytes, bytes]]) -> LogWritten:
    schema_json = metadata_schema_json(shard.table_version)
    content = write_hfile(items, compression="gz", info={"schema": schema_json.encode()})
    block = encode_log_block("HFILE_DATA", {"INSTANT_TIME": shard.instant, "SCHEMA": schema_json}, content)
    # In version 6 a name has the instant of its slice. A restore deletes log files, and a cached one must not be taken
    # for a later one of the same name and size.
    own = 0 if shard.slice_instant == shard.instant else int(shard.instant[-9:])
    name = str(LogFileName(shard.file_id, shard.slice_instant, version, f"{shard.number}-0-{own}"))
    shard.files.storage.create(shard.files.metadata.path(shard.partition, name), block)
    kept = block if shard.hands_back and len(block) <= KEPT_BYTES else b""
    return LogWritten(shard.partition, shard.file_id, name, version, len(block), len(items), shard.slice_instant, kept)


def _write_stat(log: LogWritten) -> WriteStat:
    return WriteStat(
        file_id=log.file_id,
        path=f"{log.partition}/{log.name}",
        partition_path=log.partition,
        file_size=log.size,
        prev_commit=log.slice_instant,
        num_writes=log.records,
        num_updates=log.records,
        base_file="",
        log_version=log.version,
        log_offset=0,
        log_files=(log.name,),
    )


_FIRST_TOKEN = "0-0-0"


FIRST_BUILD_SUFFIX = 10
"""Suffix that version 6 appends to a data instant to name the build of an index
(``HoodieTableMetadataUtil.PARTITION_INITIALIZATION_TIME_SUFFIX``), counted up from here."""


Listing = Mapping[str, Mapping[str, int]]
"""Sizes in bytes by partition path and file name."""


def create_metadata_table(
    files: TableFiles,
    config: TableConfig,
    groups: Mapping[str, int],
    clock: InstantClock,
    *,
    listing: Listing | None = None,
    instant: str = "",
) -> None:
    """Create the metadata table.

    Args:
        files: the table's files.
        config: Settings of the data table, which need not be written yet.
        groups: Number of file groups by metadata partition; ``files`` first.
        clock: Source of completion times.
        listing: Initial content of ``files``.
        instant: Instant of the first commit; None takes Hudi's for a new table. File names must not recur with other
            bytes, as processes with the table open cache them.
    """
    files = files.metadata
    properties = metadata_table_properties(config.name, config.version, timezone=config.timezone)
    files.storage.create(files.path(".hoodie/hoodie.properties"), encode_properties(properties, "metadata table"))
    files.storage.make_dirs(files.path(config.archive_folder))
    layout = config.layout_version
    timeline = Timeline.load(files, config.timeline_path, zone=config.timezone, layout=layout, listing=())
    for number, (name, count) in enumerate(groups.items()):
        own = f"{int(instant) + number:0{len(instant)}d}" if instant else first_instant(number, timeline.layout)
        _create_partition(timeline, files, name, count, own, clock, listing or {})


def first_instant(number: int, layout: int) -> str:
    """Instant of the delta commit that creates metadata partition ``number`` of a new table."""
    # HoodieTableMetadata.SOLO_COMMIT_TIMESTAMP; in layout 1 with the suffix of an index build.
    return f"{0:014d}{FIRST_BUILD_SUFFIX + number:03d}" if layout == 1 else f"{number:017d}"


def build_instant(data_timeline: Timeline, timeline: Timeline) -> str:
    """A free instant of timeline layout 1 for a delta commit without an action on the data table.

    It is the last completed instant of the table with a suffix (``generateUniqueInstantTime``); by this form Hudi 0.15
    recognizes that it counts although the data timeline does not have it.

    Raises:
        CommitError: All suffixes are in use.
    """
    completed = data_timeline.completed()
    stem = completed[-1].requested if completed else f"{0:014d}"
    for suffix in range(FIRST_BUILD_SUFFIX, 1000):
        if not timeline.contains(f"{stem}{suffix:03d}"):
            return f"{stem}{suffix:03d}"
    raise CommitError(
        f"{timeline.path}: all instants for index builds after {stem} are in use; write to the table, then build again"
    )


def _create_partition(
    timeline: Timeline, files: TableFiles, name: str, count: int, instant: str, clock: InstantClock, listing: Listing
) -> None:
    version = 6 if timeline.layout == 1 else 8
    inflight = create_inflight(timeline, create_requested(timeline, instant, "deltacommit"), is_new=True)
    create_file_groups(files, name, count, instant)
    stats: dict[str, tuple[WriteStat, ...]] = {}
    if name == FILES.name:
        stats[name] = (_first_base_file(files, instant, version, listing),)
    body = encode_commit_metadata(metadata_commit(stats, "BULK_INSERT_PREPPED", version), timeline.layout)
    complete(timeline, inflight, clock.next(instant[:17]), body, is_new=True)


def create_file_groups(files: TableFiles, name: str, count: int, instant: str) -> None:
    """Create the folder of a metadata partition with ``count`` file groups, each with a first log file (version 1).

    ``files`` are those of the metadata table.
    """
    metafile = f"#partition metadata\ncommitTime={instant}\npartitionDepth=1\n"
    header = {"INSTANT_TIME": instant}
    first_block = encode_log_block("DELETE", header, encode_delete_block([]))
    logs = [LogFileName(SUPPORTED[name].group_id(group), instant, 1, _FIRST_TOKEN) for group in range(count)]
    content = {PARTITION_METAFILE: metafile.encode("ascii"), **{str(log): first_block for log in logs}}

    def create(file: str) -> None:
        files.storage.create(files.path(name, file), content[file])

    run_threads(create, list(content), WRITES_AT_ONCE)


def _first_base_file(files: TableFiles, instant: str, version: int, listing: Listing) -> WriteStat:
    """Write an HFile of all partitions and files, with the bloom filter that Java's reader expects."""
    records = {files_key(partition): files_record(sizes) for partition, sizes in listing.items()}
    records[ALL_PARTITIONS] = all_partitions_record(list(records))
    items = sorted(
        (key.encode(), encode_metadata_record(record, table_version=version)) for key, record in records.items()
    )
    bloom = build_bloom(pa.array(list(records)), num_entries=max(10_000, len(records)), fpp=1e-9)
    content = write_hfile(
        items,
        compression="gz",
        info={
            "schema": metadata_schema_json(version).encode(),
            "bloomFilterTypeCode": bloom.type_code.encode(),
            "minRecordKey": items[0][0],
            "maxRecordKey": items[-1][0],
        },
        meta={"bloomFilter": bloom.encode()},
    )
    name = BaseFileName(FILES.group_id(0), _FIRST_TOKEN, instant, ".hfile")
    files.storage.create(files.path(FILES.name, str(name)), content)
    return WriteStat(
        file_id=FILES.group_id(0),
        path=f"{FILES.name}/{name}",
        partition_path=FILES.name,
        file_size=len(content),
        num_writes=len(items),
        num_inserts=len(items),
    )
