"""The metadata table of a new table, and new partitions of one (``HoodieBackedTableMetadataWriter``).

Every file group of every partition gets a first log file that deletes nothing, since readers count the groups they
find. Only ``files`` gets a base HFile: hudi-rs wants exactly one there, and lists storage without it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.bloom import build_bloom
from lakedex.codec.delete_block import encode_delete_block
from lakedex.codec.hfile import write_hfile
from lakedex.codec.log_block import encode_log_block
from lakedex.codec.metadata_record import encode_metadata_record
from lakedex.codec.properties import encode_properties
from lakedex.errors import CommitError
from lakedex.io.storage import Storage
from lakedex.layout.names import PARTITION_METAFILE, BaseFileName, LogFileName
from lakedex.metadata.delta_commit import metadata_commit
from lakedex.metadata.partitions import ALL_PARTITIONS, FILES, SUPPORTED, files_key
from lakedex.metadata.records import all_partitions_record, files_record
from lakedex.metadata.store import metadata_path
from lakedex.timeline.commit_metadata import WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_config import TableConfig
from lakedex.timeline.table_properties import metadata_table_properties
from lakedex.timeline.timeline import Timeline
from lakedex.timeline.transitions import complete, create_inflight, create_requested

__all__ = [
    "FIRST_BUILD_SUFFIX",
    "Listing",
    "build_instant",
    "create_file_groups",
    "create_metadata_table",
    "first_instant",
]

_FIRST_TOKEN = "0-0-0"

FIRST_BUILD_SUFFIX = 10
"""What version 6 appends to a data instant to name the build of an index
(``HoodieTableMetadataUtil.PARTITION_INITIALIZATION_TIME_SUFFIX``), counted up from here."""

Listing = Mapping[str, Mapping[str, int]]
"""Partition path → file name → size in bytes."""


def create_metadata_table(
    storage: Storage,
    base_path: str,
    config: TableConfig,
    groups: Mapping[str, int],
    clock: InstantClock,
    *,
    listing: Listing | None = None,
    instant: str = "",
) -> None:
    """Make the metadata table, where there is none.

    Args:
        storage: where it lies.
        base_path: the data table's folder.
        config: the data table's settings, which need not be written yet.
        groups: metadata partition → number of file groups; ``files`` first.
        clock: gives completion times.
        listing: what ``files`` holds from the start.
        instant: of its first commit; Hudi's for a new table unless given. Names of files that were there before must
            not come back with other bytes: who has a table open keeps what it read of them.
    """
    root = metadata_path(base_path)
    properties = metadata_table_properties(config.name, config.version, timezone=config.timezone)
    storage.create(f"{root}/.hoodie/hoodie.properties", encode_properties(properties, "metadata table"))
    storage.make_dirs(f"{root}/{config.archive_folder}")
    for number, (name, count) in enumerate(groups.items()):
        timeline = Timeline.load(
            storage, root, config.timeline_path, zone=config.timezone, layout=config.layout_version
        )
        own = f"{int(instant) + number:0{len(instant)}d}" if instant else first_instant(number, timeline.layout)
        _create_partition(timeline, root, name, count, own, clock, listing or {})


def first_instant(number: int, layout: int) -> str:
    """Instant of the delta commit that makes a new table's metadata partition ``number``."""
    # HoodieTableMetadata.SOLO_COMMIT_TIMESTAMP; in layout 1 with the suffix of an index build.
    return f"{0:014d}{FIRST_BUILD_SUFFIX + number:03d}" if layout == 1 else f"{number:017d}"


def build_instant(data_timeline: Timeline, timeline: Timeline) -> str:
    """A free instant of timeline layout 1 for a delta commit of the metadata table that no action of the table has.

    It is the last completed instant of the table and a suffix (``generateUniqueInstantTime``): by this form Hudi 0.15
    tells what counts although the data timeline does not have it.

    Raises:
        CommitError: all suffixes are taken.
    """
    completed = data_timeline.completed()
    stem = completed[-1].requested if completed else f"{0:014d}"
    for suffix in range(FIRST_BUILD_SUFFIX, 1000):
        if not timeline.contains(f"{stem}{suffix:03d}"):
            return f"{stem}{suffix:03d}"
    raise CommitError(
        f"{timeline.path}: all instants for index builds upon {stem} are taken; write to the table, then build again"
    )


def _create_partition(
    timeline: Timeline, root: str, name: str, count: int, instant: str, clock: InstantClock, listing: Listing
) -> None:
    storage, version = timeline.storage, 6 if timeline.layout == 1 else 8
    inflight = create_inflight(timeline, create_requested(timeline, instant, "deltacommit"))
    create_file_groups(storage, root, name, count, instant)
    stats: dict[str, tuple[WriteStat, ...]] = {}
    if name == FILES.name:
        stats[name] = (_first_base_file(storage, root, instant, version, listing),)
    body = encode_commit_metadata(metadata_commit(stats, "BULK_INSERT_PREPPED", version), timeline.layout)
    complete(timeline, inflight, clock.next(instant[:17]), body)


def create_file_groups(storage: Storage, root: str, name: str, count: int, instant: str) -> None:
    """Make the folder of a metadata partition with ``count`` file groups, each with a first log file (version 1)."""
    metafile = f"#partition metadata\ncommitTime={instant}\npartitionDepth=1\n"
    storage.create(f"{root}/{name}/{PARTITION_METAFILE}", metafile.encode("ascii"))
    header = {"INSTANT_TIME": instant}
    first_block = encode_log_block("DELETE", header, encode_delete_block([]))
    for group in range(count):
        log = LogFileName(SUPPORTED[name].group_id(group), instant, 1, _FIRST_TOKEN)
        storage.create(f"{root}/{name}/{log}", first_block)


def _first_base_file(storage: Storage, root: str, instant: str, version: int, listing: Listing) -> WriteStat:
    """An HFile that says which partitions and files there are. Java's bloom-filtered reader wants the filter inside."""
    records = {files_key(partition): files_record(files) for partition, files in listing.items()}
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
    storage.create(f"{root}/{FILES.name}/{name}", content)
    return WriteStat(
        file_id=FILES.group_id(0),
        path=f"{FILES.name}/{name}",
        partition_path=FILES.name,
        file_size=len(content),
        num_writes=len(items),
        num_inserts=len(items),
    )
