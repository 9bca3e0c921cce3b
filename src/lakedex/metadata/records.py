"""Define partitions of the metadata table (``MetadataPartitionType``), keys of their records, and how records merge.

Writes, deletes and reads build keys with the same functions.

=================  ====  =================================================
partition          type  key
=================  ====  =================================================
files              2, 1  partition path (``.`` if empty); ``__all_partitions__``
column_stats       3     column id + partition id + file id
bloom_filters      4     partition id + file id
partition_stats    6     column id + partition id
=================  ====  =================================================

Ids are hashes as base64 text of fixed width, so the records of a column or partition share a prefix. Records are made
and merged as in ``HoodieMetadataPayload``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakedex.codec.column_bounds import rewrap_stat, timestamp_unit, unwrap_stat
from lakedex.codec.hashing import column_id, file_id, file_id_bytes, partition_id

__all__ = [
    "ALL_PARTITIONS",
    "BLOOM_FILTERS",
    "COLUMN_STATS",
    "FILES",
    "MERGE_RULES",
    "NON_PARTITIONED",
    "PARTITION_STATS",
    "PAYLOADS",
    "SUPPORTED",
    "MetadataPartition",
    "Record",
    "all_partitions_record",
    "bloom_key",
    "bloom_record",
    "column_stats_key",
    "column_stats_keys",
    "column_stats_prefix",
    "compact_records",
    "deleted_stats_record",
    "files_key",
    "files_record",
    "is_deleted",
    "live_files",
    "metadata_partitions_property",
    "partition_stats_key",
    "stats_record",
]


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """A metadata partition that lakedex maintains.

    Attributes:
        name: Folder below ``.hoodie/metadata``, and name in ``hoodie.table.metadata.partitions``.
        file_id_prefix: File groups are named ``<prefix><number %04d>-0``.
        file_groups: Number of groups in a new table, Hudi's default.
        file_groups_option: Option that sets the number; empty if Hudi fixes it.
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


def bloom_key(partition: str, file_name: str) -> str:
    """Key of a base file's bloom filter."""
    return partition_id(partition) + file_id(file_name)


def column_stats_prefix(column: str, partition: str | None = None) -> str:
    """Prefix of the stats keys of one column, or of one column in one data partition."""
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
    """Change of ``hoodie.properties`` that lists all given metadata partitions."""
    return {"hoodie.table.metadata.partitions": ",".join(sorted({name for names in present for name in names}))}


Record = dict[str, Any]
"""A ``HoodieMetadataRecord`` by field name; fields of other types are absent or None."""


_ALL_PARTITIONS_TYPE, _FILES_TYPE, _COLUMN_STATS_TYPE, _BLOOM_TYPE, _PARTITION_STATS_TYPE = 1, 2, 3, 4, 6


def files_record(added: Mapping[str, int], deleted: Iterable[str] = ()) -> Record:
    """File names that a partition gains (name → size in bytes) and loses."""
    entries = {name: {"size": size, "isDeleted": False} for name, size in added.items()}
    entries |= {name: {"size": 0, "isDeleted": True} for name in deleted}
    return {"type": _FILES_TYPE, "filesystemMetadata": entries}


def all_partitions_record(partitions: Iterable[str], dropped: Iterable[str] = ()) -> Record:
    """Partitions that a commit touched, and those that it dropped."""
    entries = {name: {"size": 0, "isDeleted": False} for name in partitions}
    entries |= {name: {"size": 0, "isDeleted": True} for name in dropped}
    return {"type": _ALL_PARTITIONS_TYPE, "filesystemMetadata": entries}


def bloom_record(type_code: str, instant: str, text: bytes, *, deleted: bool = False) -> Record:
    """A base file's filter: ``text`` is the base64 form, as in the footer."""
    payload = {"type": type_code, "timestamp": instant, "bloomFilter": b"" if deleted else text, "isDeleted": deleted}
    return {"type": _BLOOM_TYPE, "BloomFilterMetadata": payload}


def stats_record(
    file_name: str,
    column: str,
    *,
    minimum: Any,
    maximum: Any,
    value_count: int,
    null_count: int,
    total_size: int,
    total_uncompressed_size: int,
    value_type: Mapping[str, Any] | None = None,
    over_partition: bool = False,
    deleted: bool = False,
) -> Record:
    """One column's stats in one base file, or over one partition (then ``file_name`` is the partition path).

    ``minimum`` and ``maximum`` are typed wrappers (:mod:`lakedex.codec.column_bounds`), None if all values are null.
    ``value_type`` is their type, from index version V2 on. ``deleted`` marks the stats of a removed file or partition.
    """
    payload = {
        "fileName": file_name,
        "columnName": column,
        "minValue": minimum,
        "maxValue": maximum,
        "valueCount": value_count,
        "nullCount": null_count,
        "totalSize": total_size,
        "totalUncompressedSize": total_uncompressed_size,
        "isDeleted": deleted,
        # Java merges instead of replacing if this is false: stats of a partition are always recomputed completely.
        "isTightBound": over_partition,
        "valueType": None if value_type is None else dict(value_type),
    }
    return {"type": _PARTITION_STATS_TYPE if over_partition else _COLUMN_STATS_TYPE, "ColumnStatsMetadata": payload}


def deleted_stats_record(file_name: str, column: str) -> Record:
    """Tombstone of one column's stats for a removed file (``HoodieColumnRangeMetadata.stub``)."""
    counts = dict.fromkeys(("valueCount", "nullCount", "totalSize", "totalUncompressedSize"), -1)
    payload = {
        "fileName": file_name,
        "columnName": column,
        "minValue": None,
        "maxValue": None,
        **counts,
        "isDeleted": True,
        "isTightBound": False,
    }
    return {"type": _COLUMN_STATS_TYPE, "ColumnStatsMetadata": payload}


def is_deleted(record: Record) -> bool:
    """Whether the record marks a deletion."""
    payload = record.get("ColumnStatsMetadata") or record.get("BloomFilterMetadata") or {}
    return bool(payload.get("isDeleted"))


def live_files(record: Record | None) -> dict[str, int]:
    """Names (file names, or partition paths) in a ``files`` record without deleted ones, with sizes."""
    entries = (record or {}).get("filesystemMetadata") or {}
    return {name: entry["size"] for name, entry in entries.items() if not entry["isDeleted"]}


def _merge_files(older: Record, newer: Record) -> Record:
    """``HoodieTableMetadataUtil.combineFileSystemMetadata``: a deletion removes the name and itself."""
    entries = dict(older.get("filesystemMetadata") or {})
    for name, entry in (newer.get("filesystemMetadata") or {}).items():
        known = entries.get(name)
        if entry["isDeleted"] and known is not None and not known["isDeleted"]:
            del entries[name]
        elif entry["isDeleted"] or known is None or known["isDeleted"]:
            entries[name] = entry
        else:
            entries[name] = {"size": max(entry["size"], known["size"]), "isDeleted": False}
    return {**newer, "filesystemMetadata": entries}


def _newest(older: Record, newer: Record) -> Record:
    return newer


def _merge_stats(older: Record, newer: Record) -> Record:
    """As ``mergeColumnStatsRecords``: the newer one if its bounds are tight or one is deleted, else both merged."""
    new, old = newer["ColumnStatsMetadata"], older["ColumnStatsMetadata"]
    if new["isDeleted"] or old["isDeleted"] or new.get("isTightBound"):
        return newer
    merged = dict(new)
    merged["minValue"] = _extreme(old, new, "minValue", min)
    merged["maxValue"] = _extreme(old, new, "maxValue", max)
    for count in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"):
        merged[count] = (old[count] or 0) + (new[count] or 0)
    return {**newer, "ColumnStatsMetadata": merged}


def _extreme(older: Record, newer: Record, name: str, pick: Callable[..., Any]) -> Any:
    """Lower or upper one of two bounds, in the newer one's form; None, which is unknown, if they are incomparable.

    Java compares the wrapped values: unscaled decimals, for example, do not sort as bytes.
    """
    old, new = older[name], newer[name]
    kinds = older.get("valueType"), newer.get("valueType")
    if old is None or new is None:
        present, kind = (new, kinds[1]) if old is None else (old, kinds[0])
        return present if present is None or kind == kinds[1] else None
    ours, theirs = unwrap_stat(new, kinds[1]), unwrap_stat(old, kinds[0])
    units = {timestamp_unit(bound, kind) for bound, kind in ((old, kinds[0]), (new, kinds[1]))}
    try:
        chosen = pick((theirs, ours))
    except TypeError:
        return None
    return rewrap_stat(chosen, new, kinds[1]) if len(units) == 1 else None


PAYLOADS = {
    BLOOM_FILTERS.name: "BloomFilterMetadata",
    COLUMN_STATS.name: "ColumnStatsMetadata",
    PARTITION_STATS.name: "ColumnStatsMetadata",
}
"""Payload field of each partition's records; null in some records of ``files``."""


MERGE_RULES: dict[str, Callable[[Record, Record], Record]] = {
    FILES.name: _merge_files,
    BLOOM_FILTERS.name: _newest,
    COLUMN_STATS.name: _merge_stats,
    PARTITION_STATS.name: _merge_stats,
}
"""Function that merges an older record into a newer one, by partition."""


_BY_TYPE: dict[int, Callable[[Record, Record], Record]] = {
    _ALL_PARTITIONS_TYPE: _merge_files,
    _FILES_TYPE: _merge_files,
    _COLUMN_STATS_TYPE: _merge_stats,
    _PARTITION_STATS_TYPE: _merge_stats,
    _BLOOM_TYPE: _newest,
}


def compact_records(records: Iterable[Record]) -> Record | None:
    """Merge all versions of one key, oldest first, as a compaction does; None if nothing remains.

    The rule follows the record's type, so that it also works for partitions that lakedex does not maintain: Java
    compacts all indexes together. A record that a merge marks as deleted is dropped; a deletion without older versions
    stays, as in Java (``HoodieMetadataPayload.combineAndGetUpdateValue``).
    """
    merged: Record | None = None
    for record in records:
        if merged is None:
            merged = record
            continue
        merged = _BY_TYPE.get(record["type"], _newest)(merged, record)
        if record["type"] in _BY_TYPE and is_deleted(merged):
            merged = None
    return merged
