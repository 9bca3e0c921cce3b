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
from lakedex.io.storage import Storage
from lakedex.layout.names import PARTITION_METAFILE, BaseFileName, LogFileName
from lakedex.metadata.delta_commit import METADATA_TIMELINE, metadata_commit
from lakedex.metadata.partitions import ALL_PARTITIONS, FILES, SUPPORTED
from lakedex.metadata.records import all_partitions_record
from lakedex.metadata.store import metadata_path
from lakedex.timeline.commit_metadata import WriteStat, encode_commit_metadata
from lakedex.timeline.instant import InstantClock
from lakedex.timeline.table_properties import metadata_table_properties
from lakedex.timeline.timeline import Timeline
from lakedex.timeline.transitions import complete, create_inflight, create_requested

__all__ = ["create_file_groups", "create_metadata_table"]

_FIRST_TOKEN = "0-0-0"


def create_metadata_table(
    storage: Storage, base_path: str, table_name: str, groups: Mapping[str, int], clock: InstantClock
) -> None:
    """Make the metadata table of an empty table.

    Args:
        storage: where it lies.
        base_path: the data table's folder.
        table_name: the data table's name.
        groups: metadata partition → number of file groups; ``files`` first.
        clock: gives completion times.
    """
    root = metadata_path(base_path)
    storage.create(
        f"{root}/.hoodie/hoodie.properties", encode_properties(metadata_table_properties(table_name), "metadata table")
    )
    storage.make_dirs(f"{root}/{METADATA_TIMELINE}/history")
    for number, (name, count) in enumerate(groups.items()):
        _create_partition(storage, root, name, count, f"{number:017d}", clock)


def _create_partition(storage: Storage, root: str, name: str, count: int, instant: str, clock: InstantClock) -> None:
    timeline = Timeline.load(storage, root, METADATA_TIMELINE)
    inflight = create_inflight(timeline, create_requested(timeline, instant, "deltacommit"))
    create_file_groups(storage, root, name, count, instant)
    stats: dict[str, tuple[WriteStat, ...]] = {}
    if name == FILES.name:
        stats[name] = (_first_base_file(storage, root, instant),)
    body = encode_commit_metadata(metadata_commit(stats, "BULK_INSERT_PREPPED"))
    complete(timeline, inflight, clock.next(), body)


def create_file_groups(storage: Storage, root: str, name: str, count: int, instant: str) -> None:
    """Make the folder of a metadata partition with ``count`` file groups, each with a first log file (version 1)."""
    metafile = f"#partition metadata\ncommitTime={instant}\npartitionDepth=1\n"
    storage.create(f"{root}/{name}/{PARTITION_METAFILE}", metafile.encode("ascii"))
    header = {"INSTANT_TIME": instant}
    first_block = encode_log_block("DELETE", header, encode_delete_block([]))
    for group in range(count):
        log = LogFileName(SUPPORTED[name].group_id(group), instant, 1, _FIRST_TOKEN)
        storage.create(f"{root}/{name}/{log}", first_block)


def _first_base_file(storage: Storage, root: str, instant: str) -> WriteStat:
    """An HFile that says that there is no partition yet. Java's bloom-filtered reader wants the filter inside."""
    key = ALL_PARTITIONS.encode()
    bloom = build_bloom(pa.array([ALL_PARTITIONS]), num_entries=10_000, fpp=1e-9)
    content = write_hfile(
        [(key, encode_metadata_record(all_partitions_record([])))],
        compression="gz",
        info={
            "schema": metadata_schema_json().encode(),
            "bloomFilterTypeCode": bloom.type_code.encode(),
            "minRecordKey": key,
            "maxRecordKey": key,
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
        num_writes=1,
        num_inserts=1,
    )
