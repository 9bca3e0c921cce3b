"""Records of the metadata table: how they are made and how two of one key merge (``HoodieMetadataPayload``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakedex.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS

__all__ = [
    "MERGE_RULES",
    "Record",
    "all_partitions_record",
    "bloom_record",
    "files_record",
    "is_deleted",
    "live_files",
    "stats_record",
]

Record = dict[str, Any]
"""A ``HoodieMetadataRecord`` by field name; fields of other types are absent or None."""

_ALL_PARTITIONS_TYPE, _FILES_TYPE, _COLUMN_STATS_TYPE, _BLOOM_TYPE, _PARTITION_STATS_TYPE = 1, 2, 3, 4, 6


def files_record(added: Mapping[str, int], deleted: Iterable[str] = ()) -> Record:
    """File names that a partition gains (name → size in bytes) and loses."""
    entries = {name: {"size": size, "isDeleted": False} for name, size in added.items()}
    entries |= {name: {"size": 0, "isDeleted": True} for name in deleted}
    return {"type": _FILES_TYPE, "filesystemMetadata": entries}


def all_partitions_record(partitions: Iterable[str], dropped: Iterable[str] = ()) -> Record:
    """Keys of the partitions that a commit touched, and of those that are no more."""
    entries = {name: {"size": 0, "isDeleted": False} for name in partitions}
    entries |= {name: {"size": 0, "isDeleted": True} for name in dropped}
    return {"type": _ALL_PARTITIONS_TYPE, "filesystemMetadata": entries}


def bloom_record(type_code: str, instant: str, text: bytes, *, deleted: bool = False) -> Record:
    """A base file's filter: ``text`` is the base64 form that also stands in the footer."""
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
    over_partition: bool = False,
) -> Record:
    """One column's stats in one base file, or over one partition (then ``file_name`` is the partition path).

    ``minimum`` and ``maximum`` are typed wrappers (``lakedex.codec.stats_value``), None when all values are null.
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
        "isDeleted": False,
        # Java widens instead of replacing where this is false: a partition's stats are recomputed whole.
        "isTightBound": over_partition,
    }
    return {"type": _PARTITION_STATS_TYPE if over_partition else _COLUMN_STATS_TYPE, "ColumnStatsMetadata": payload}


def is_deleted(record: Record) -> bool:
    """Whether the record says that its subject is gone."""
    payload = record.get("ColumnStatsMetadata") or record.get("BloomFilterMetadata") or {}
    return bool(payload.get("isDeleted"))


def live_files(record: Record | None) -> dict[str, int]:
    """Names (file names, or partition paths) that a ``files`` record still has, with sizes."""
    entries = (record or {}).get("filesystemMetadata") or {}
    return {name: entry["size"] for name, entry in entries.items() if not entry["isDeleted"]}


def _merge_files(older: Record, newer: Record) -> Record:
    entries = dict(older.get("filesystemMetadata") or {})
    for name, entry in (newer.get("filesystemMetadata") or {}).items():
        known = entries.get(name)
        if entry["isDeleted"] or known is None or known["isDeleted"]:
            entries[name] = entry
        else:
            entries[name] = {"size": max(entry["size"], known["size"]), "isDeleted": False}
    return {**newer, "filesystemMetadata": entries}


def _newest(older: Record, newer: Record) -> Record:
    return newer


def _merge_stats(older: Record, newer: Record) -> Record:
    """``HoodieTableMetadataUtil.mergeColumnStatsRecords``: the newer one unless it only adds to what is known."""
    new, old = newer["ColumnStatsMetadata"], older["ColumnStatsMetadata"]
    if new["isDeleted"] or old["isDeleted"] or new.get("isTightBound"):
        return newer
    merged = dict(new)
    merged["minValue"] = _extreme(old["minValue"], new["minValue"], min)
    merged["maxValue"] = _extreme(old["maxValue"], new["maxValue"], max)
    for count in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"):
        merged[count] = (old[count] or 0) + (new[count] or 0)
    return {**newer, "ColumnStatsMetadata": merged}


def _extreme(old: Any, new: Any, pick: Callable[..., Any]) -> Any:
    if old is None or new is None:
        return old if new is None else new
    return pick((old, new), key=lambda wrapper: wrapper[1]["value"])


MERGE_RULES: dict[str, Callable[[Record, Record], Record]] = {
    FILES.name: _merge_files,
    BLOOM_FILTERS.name: _newest,
    COLUMN_STATS.name: _merge_stats,
    PARTITION_STATS.name: _merge_stats,
}
"""Per partition, how the newer record of a key takes in the older one."""
