"""Partitions of the metadata table and the keys of their records (``MetadataPartitionType``).

One function builds a key, for writing, deleting and reading alike.

=================  ====  =================================================
partition          type  key
=================  ====  =================================================
files              2, 1  partition path (``.`` if empty); ``__all_partitions__``
column_stats       3     column id + partition id + file id
bloom_filters      4     partition id + file id
partition_stats    6     column id + partition id
=================  ====  =================================================

Ids are hashes as base64 text of fixed width, so a column's or a partition's records are one prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakedex.codec.hashing import column_id, file_id, file_id_bytes, partition_id

__all__ = [
    "ALL_PARTITIONS",
    "BLOOM_FILTERS",
    "COLUMN_STATS",
    "FILES",
    "NON_PARTITIONED",
    "PARTITION_STATS",
    "SUPPORTED",
    "MetadataPartition",
    "bloom_key",
    "bloom_prefix",
    "column_stats_key",
    "column_stats_keys",
    "column_stats_prefix",
    "files_key",
    "metadata_partitions_property",
    "partition_stats_key",
]


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """A partition that lakedex maintains.

    Attributes:
        name: folder below ``.hoodie/metadata``, and name in ``hoodie.table.metadata.partitions``.
        file_id_prefix: file groups are called ``<prefix><number %04d>-0``.
        file_groups: how many groups a new table gets, Hudi's default.
        file_groups_option: the option that sets it; empty where Hudi fixes the number.
    """

    name: str
    file_id_prefix: str
    file_groups: int
    file_groups_option: str = ""

    def group_id(self, number: int) -> str:
        """File id of group ``number``."""
        return f"{self.file_id_prefix}{number:04d}-0"


FILES = MetadataPartition("files", "files-", 1)
COLUMN_STATS = MetadataPartition("column_stats", "col-stats-", 2, "hoodie.metadata.index.column.stats.file.group.count")
BLOOM_FILTERS = MetadataPartition(
    "bloom_filters", "bloom-filters-", 4, "hoodie.metadata.index.bloom.filter.file.group.count"
)
PARTITION_STATS = MetadataPartition(
    "partition_stats", "partition-stats-", 1, "hoodie.metadata.index.partition.stats.file.group.count"
)
SUPPORTED = {part.name: part for part in (FILES, COLUMN_STATS, BLOOM_FILTERS, PARTITION_STATS)}

ALL_PARTITIONS = "__all_partitions__"
NON_PARTITIONED = "."


def files_key(partition: str) -> str:
    """Key of a data partition's file list."""
    return partition or NON_PARTITIONED


def bloom_prefix(partition: str) -> str:
    """What the bloom keys of one data partition begin with."""
    return partition_id(partition)


def bloom_key(partition: str, file_name: str) -> str:
    """Key of a base file's bloom filter."""
    return partition_id(partition) + file_id(file_name)


def column_stats_prefix(column: str, partition: str | None = None) -> str:
    """What the stats keys of one column begin with, or those of one column in one data partition."""
    return column_id(column) + ("" if partition is None else partition_id(partition))


def column_stats_key(column: str, partition: str, file_name: str) -> str:
    """Key of one column's stats in one base file."""
    return column_id(column) + partition_id(partition) + file_id(file_name)


def column_stats_keys(column: str, files: Iterable[tuple[str, str]]) -> list[bytes]:
    """Keys of one column's stats in many base files, given as (data partition, file name)."""
    paths: dict[str, bytes] = {}
    keys = []
    for partition, name in files:
        prefix = paths.get(partition)
        if prefix is None:
            prefix = paths[partition] = column_stats_prefix(column, partition).encode()
        keys.append(prefix + file_id_bytes(name))
    return keys


def partition_stats_key(column: str, partition: str) -> str:
    """Key of one column's stats over one data partition."""
    return column_id(column) + partition_id(partition)


def metadata_partitions_property(*present: Iterable[str]) -> dict[str, str | None]:
    """The change of ``hoodie.properties`` that lists the metadata partitions of all the groups given."""
    return {"hoodie.table.metadata.partitions": ",".join(sorted({name for names in present for name in names}))}
