"""The requested body of a compaction: which files of which file groups it merges (``HoodieCompactionPlan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakedex.codec.avro import write_container
from lakedex.codec.table_paths import check_part, check_partition, file_path, last_part
from lakedex.errors import CorruptFileError
from lakedex.timeline.commit_metadata import decode_body, fields_of

__all__ = ["CompactionOperation", "decode_compaction_plan", "encode_compaction_plan"]

PLAN_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation:
    """One file group of a plan. File names have no folder; ``base`` is None where there is no base file yet."""

    partition: str
    file_id: str
    base_instant: str
    base: str | None
    logs: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)


def decode_compaction_plan(data: bytes, path: str = "") -> tuple[CompactionOperation, ...]:
    """Decode a plan.

    Raises:
        CorruptFileError: it is empty or damaged, or an operation names no file group, or a name leads out of the table.
    """
    with fields_of("fields of a compaction plan", path):
        return tuple(_operation(entry, path) for entry in decode_body(data, path).get("operations") or ())


def _operation(entry: Mapping[str, Any], path: str) -> CompactionOperation:
    if not entry.get("fileId"):
        raise CorruptFileError(path, 0, "a file id in each operation of a compaction plan", "none")
    base = entry.get("dataFilePath") or None
    operation = CompactionOperation(
        partition=check_partition(entry.get("partitionPath") or "", path),
        file_id=check_part(entry["fileId"], path),
        base_instant=entry.get("baseInstantTime") or "",
        base=None if base is None else last_part(base),
        logs=tuple(last_part(name) for name in entry.get("deltaFilePaths") or ()),
        metrics=entry.get("metrics") or {},
    )
    for name in (*operation.logs, *(() if operation.base is None else (operation.base,))):
        file_path(operation.partition, name, path)
    return operation


def encode_compaction_plan(operations: tuple[CompactionOperation, ...]) -> bytes:
    """Encode a plan as Java 1.1.1 does."""
    record = {
        "operations": [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.logs),
                "dataFilePath": operation.base,
                "fileId": operation.file_id,
                "partitionPath": operation.partition,
                "metrics": dict(operation.metrics),
                "bootstrapFilePath": None,
            }
            for operation in operations
        ],
        "extraMetadata": {},
        "version": PLAN_VERSION,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": [],
    }
    return write_container("HoodieCompactionPlan", record)
