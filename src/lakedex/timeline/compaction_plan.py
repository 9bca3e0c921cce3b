"""The requested body of a compaction: which files of which file groups it merges (``HoodieCompactionPlan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakedex.codec.avro import write_container
from lakedex.errors import CorruptFileError
from lakedex.timeline.commit_metadata import decode_body

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
        CorruptFileError: it is empty or damaged, or an operation names no file group.
    """
    operations = []
    for entry in decode_body(data, path).get("operations") or ():
        base = entry.get("dataFilePath") or None
        if not entry.get("fileId"):
            raise CorruptFileError(path, 0, "a file id in each operation of a compaction plan", "none")
        operations.append(
            CompactionOperation(
                partition=entry.get("partitionPath") or "",
                file_id=entry["fileId"],
                base_instant=entry.get("baseInstantTime") or "",
                base=None if base is None else base.rsplit("/", 1)[-1],
                logs=tuple(name.rsplit("/", 1)[-1] for name in entry.get("deltaFilePaths") or ()),
                metrics=entry.get("metrics") or {},
            )
        )
    return tuple(operations)


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
