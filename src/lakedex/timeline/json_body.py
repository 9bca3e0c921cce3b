"""Commit bodies of timeline layout 1: JSON, laid out as Hudi's Jackson writes it (``CommitMetadataSerDeV1``).

Clean, rollback, restore, savepoint and requested bodies are Avro in both layouts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["encode_json_body", "json_write_stat"]

_STAT: Final = (
    "fileId",
    "path",
    "cdcStats",
    "prevCommit",
    "numWrites",
    "numDeletes",
    "numUpdateWrites",
    "numInserts",
    "totalWriteBytes",
    "totalWriteErrors",
    "tempPath",
    "partitionPath",
    "totalLogRecords",
    "totalLogFilesCompacted",
    "totalLogSizeCompacted",
    "totalUpdatedRecordsCompacted",
    "totalLogBlocks",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "fileSizeInBytes",
    "minEventTime",
    "maxEventTime",
)
_DELTA: Final = ("logVersion", "logOffset", "baseFile", "logFiles")


def json_write_stat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A write stat as ``HoodieWriteStat`` of Hudi 0.15 has it, or ``HoodieDeltaWriteStat`` where it has log files.

    Args:
        record: The stat as the Avro record of later releases.
    """
    stat = {name: record[name] for name in _STAT}
    times = record["runtimeStats"]
    stat["runtimeStats"] = {name: times[name] for name in ("totalScanTime", "totalUpsertTime", "totalCreateTime")}
    if record["logFiles"] is not None:
        stat |= {name: record[name] for name in _DELTA}
        stat["recordsStats"] = {"val": None}
    return stat


def encode_json_body(record: Mapping[str, Any]) -> bytes:
    """The bytes of a body, as Jackson's default pretty printer lays them out."""
    return _text(record, "").encode()


def _text(value: Any, indent: str) -> str:
    """Objects take a line an entry, arrays stay on the line that they begin in."""
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = indent + "  "
        entries = (f"{inner}{_scalar(str(key))} : {_text(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        return "[ " + ", ".join(_text(item, indent) for item in value) + " ]" if value else "[ ]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
