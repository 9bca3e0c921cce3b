"""Encode and decode the bodies of cleans, savepoints, restores and compaction plans: Avro containers of one record.

In Hudi, for both timeline layouts: HoodieCleanerPlan, HoodieCleanMetadata, HoodieSavepointMetadata, HoodieRestorePlan,
HoodieRestoreMetadata, HoodieCompactionPlan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakedex.codec.avro import write_container
from lakedex.codec.table_paths import check_instant, check_part, check_partition, file_path, last_part
from lakedex.errors import CorruptFileError
from lakedex.timeline.commit_metadata import (
    RollbackMetadata,
    decode_body,
    fields_of,
    rollback_of_record,
    rollback_record,
)

__all__ = [
    "SAVEPOINTED",
    "CleanMetadata",
    "CleanPlan",
    "CompactionOperation",
    "RestoreMetadata",
    "RestorePlan",
    "SavepointMetadata",
    "compaction_metrics",
    "decode_clean_metadata",
    "decode_clean_plan",
    "decode_compaction_plan",
    "decode_restore_metadata",
    "decode_restore_plan",
    "decode_savepoint_metadata",
    "encode_clean_metadata",
    "encode_clean_plan",
    "encode_compaction_plan",
    "encode_restore_metadata",
    "encode_restore_plan",
    "encode_savepoint_metadata",
]


SAVEPOINTED = "savepointed_timestamps"
"""Key of the savepoints that retained files in a clean's extra metadata (CleanerUtils.SAVEPOINTED_TIMESTAMPS)."""


Files = Mapping[str, tuple[str, ...]]
"""File names, or absolute paths where stated, by partition path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """Requested body of a clean.

    Attributes:
        policy: ``KEEP_LATEST_COMMITS``, ``KEEP_LATEST_BY_HOURS`` or ``KEEP_LATEST_FILE_VERSIONS``.
        files: Absolute paths to delete by partition.
        earliest: Requested time and action of the earliest retained commit; None if versions are counted.
        last_completed: Last completed commit when the clean was planned.
        gone: Partitions without files after the clean.
        extra: Extra metadata, copied to the completed clean.
    """

    policy: str
    files: Files = field(default_factory=dict)
    earliest: tuple[str, str] | None = None
    last_completed: str = ""
    gone: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    """Completed body of a clean: names of deleted files, and deleted partitions."""

    started: str
    millis: int
    policy: str
    files: Files = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    earliest: str = ""
    last_completed: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointMetadata:
    """A savepoint: user, time (epoch milliseconds), comment, and names of the retained files."""

    by: str = ""
    at: int = 0
    comment: str = ""
    files: Files = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Requested body of a restore: the savepoint, and (requested time, action) of undone instants, newest first.

    ``savepoint`` is empty in plans of old releases.
    """

    savepoint: str
    instants: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMetadata:
    """Completed body of a restore; ``rollbacks`` by undone instant."""

    started: str
    millis: int
    instants: tuple[tuple[str, str], ...] = ()
    rollbacks: Mapping[str, tuple[RollbackMetadata, ...]] = field(default_factory=dict)


def _body(data: bytes, path: str, *needed: str) -> dict[str, Any]:
    record = decode_body(data, path)
    for name in needed:
        if name not in record:
            raise CorruptFileError(path, 0, f"a record with '{name}'", ", ".join(sorted(record)[:5]))
    return record


def _texts(values: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (values or {}).items()}


def encode_clean_plan(plan: CleanPlan) -> bytes:
    """Encode the requested body of a clean (version 2: absolute paths)."""
    earliest = plan.earliest and {"timestamp": plan.earliest[0], "action": plan.earliest[1], "state": "COMPLETED"}
    record = {
        "earliestInstantToRetain": earliest,
        "lastCompletedCommitTimestamp": plan.last_completed,
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": path, "isBootstrapBaseFile": False} for path in paths]
            for partition, paths in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.gone),
        "extraMetadata": dict(plan.extra),
    }
    return write_container("HoodieCleanerPlan", record)


def decode_clean_plan(data: bytes, path: str = "") -> CleanPlan:
    """Decode the requested body of a clean. Plans of version 1 have file names only.

    Raises:
        CorruptFileError: A field has the wrong type, or a name leaves the table.
    """
    record = _body(data, path, "policy")
    with fields_of("fields of a clean's plan", path):
        files = {partition: tuple(names) for partition, names in (record["filesToBeDeletedPerPartition"] or {}).items()}
        for partition, entries in (record.get("filePathsToBeDeletedPerPartition") or {}).items():
            files[partition] = tuple(str(entry["filePath"]) for entry in entries)
        for partition, names in files.items():
            check_partition(partition, path)
            for name in names:
                file_path(partition, last_part(name), path)
        earliest = record["earliestInstantToRetain"]
        return CleanPlan(
            policy=record["policy"],
            files=files,
            earliest=None if earliest is None else (earliest["timestamp"], earliest["action"]),
            last_completed=record.get("lastCompletedCommitTimestamp") or "",
            gone=tuple(check_partition(name, path) for name in record.get("partitionsToBeDeleted") or ()),
            extra=_texts(record.get("extraMetadata")),
        )


def encode_clean_metadata(metadata: CleanMetadata) -> bytes:
    """Encode the completed body of a clean."""
    record = {
        "startCleanTime": metadata.started,
        "timeTakenInMillis": metadata.millis,
        "totalFilesDeleted": sum(map(len, metadata.files.values())),
        "earliestCommitToRetain": metadata.earliest,
        "lastCompletedCommitTimestamp": metadata.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": metadata.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": partition in metadata.gone,
            }
            for partition, names in metadata.files.items()
        },
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(metadata.extra),
    }
    return write_container("HoodieCleanMetadata", record)


def decode_clean_metadata(data: bytes, path: str = "") -> CleanMetadata:
    """Decode the completed body of a clean.

    Raises:
        CorruptFileError: A field has the wrong type, or a partition is outside of the table.
    """
    record = _body(data, path, "startCleanTime", "partitionMetadata")
    with fields_of("fields of a clean", path):
        partitions = record["partitionMetadata"]
        return CleanMetadata(
            started=record["startCleanTime"],
            millis=int(record["timeTakenInMillis"]),
            policy=next((entry["policy"] for entry in partitions.values()), ""),
            files={
                check_partition(name, path): tuple(entry["deletePathPatterns"]) for name, entry in partitions.items()
            },
            gone=frozenset(name for name, entry in partitions.items() if entry.get("isPartitionDeleted")),
            earliest=(record.get("earliestCommitToRetain") or "").strip(),
            last_completed=record.get("lastCompletedCommitTimestamp") or "",
            extra=_texts(record.get("extraMetadata")),
        )


def encode_savepoint_metadata(metadata: SavepointMetadata) -> bytes:
    """Encode a savepoint."""
    record = {
        "savepointedBy": metadata.by,
        "savepointedAt": metadata.at,
        "comments": metadata.comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in metadata.files.items()
        },
        "version": 1,
    }
    return write_container("HoodieSavepointMetadata", record)


def decode_savepoint_metadata(data: bytes, path: str = "") -> SavepointMetadata:
    """Decode a savepoint.

    Raises:
        CorruptFileError: A field has the wrong type, or a name leaves the table.
    """
    record = _body(data, path, "savepointedBy", "partitionMetadata")
    with fields_of("fields of a savepoint", path):
        return SavepointMetadata(
            by=str(record["savepointedBy"]),
            at=int(record["savepointedAt"]),
            comment=str(record["comments"]),
            files={
                check_partition(partition, path): tuple(check_part(name, path) for name in entry["savepointDataFile"])
                for partition, entry in record["partitionMetadata"].items()
            },
        )


def _instants(entries: Any, path: str) -> tuple[tuple[str, str], ...]:
    return tuple((check_instant(entry["commitTime"], path), entry["action"]) for entry in entries or ())


def _instant_records(instants: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"commitTime": requested, "action": action} for requested, action in instants]


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Encode the requested body of a restore (version 2, which names the savepoint)."""
    record = {
        "instantsToRollback": _instant_records(plan.instants),
        "version": 2,
        "savepointToRestoreTimestamp": plan.savepoint,
    }
    return write_container("HoodieRestorePlan", record)


def decode_restore_plan(data: bytes, path: str = "") -> RestorePlan:
    """Decode the requested body of a restore.

    Raises:
        CorruptFileError: A field has the wrong type, or an instant is invalid.
    """
    record = _body(data, path, "instantsToRollback")
    with fields_of("fields of a restore's plan", path):
        return RestorePlan(
            savepoint=record.get("savepointToRestoreTimestamp") or "",
            instants=_instants(record["instantsToRollback"], path),
        )


def encode_restore_metadata(metadata: RestoreMetadata) -> bytes:
    """Encode the completed body of a restore."""
    record = {
        "startRestoreTime": metadata.started,
        "timeTakenInMillis": metadata.millis,
        "instantsToRollback": [requested for requested, _ in metadata.instants],
        "hoodieRestoreMetadata": {
            requested: [rollback_record(rollback) for rollback in rollbacks]
            for requested, rollbacks in metadata.rollbacks.items()
        },
        "version": 1,
        "restoreInstantInfo": _instant_records(metadata.instants),
    }
    return write_container("HoodieRestoreMetadata", record)


def decode_restore_metadata(data: bytes, path: str = "") -> RestoreMetadata:
    """Decode the completed body of a restore.

    Raises:
        CorruptFileError: A field has the wrong type, an instant is invalid, or a partition is outside of the table.
    """
    record = _body(data, path, "startRestoreTime")
    with fields_of("fields of a restore", path):
        rollbacks = record.get("hoodieRestoreMetadata") or {}
        unnamed = ({"commitTime": requested, "action": ""} for requested in record.get("instantsToRollback") or ())
        return RestoreMetadata(
            started=record["startRestoreTime"],
            millis=int(record["timeTakenInMillis"]),
            instants=_instants(record.get("restoreInstantInfo"), path) or _instants(unnamed, path),
            rollbacks={
                key: tuple(rollback_of_record(one, path) for one in found if one) for key, found in rollbacks.items()
            },
        )


PLAN_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation:
    """One file group of a plan. File names have no folder; ``base`` is None if there is no base file yet."""

    partition: str
    file_id: str
    base_instant: str
    base: str | None
    logs: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)


_MIB = 1024 * 1024


_NEW_BASE_FILE_MIB = 120
"""Size that Hudi's plan assumes for the first base file of a group (``hoodie.parquet.max.file.size``)."""


def compaction_metrics(base_size: int | None, log_sizes: Sequence[int]) -> dict[str, float]:
    """Metrics of an operation as ``CompactionStrategy.captureMetrics`` has them; Java fails on a plan without them.

    Args:
        base_size: bytes of the base file; None if there is none.
        log_sizes: bytes of each log file.
    """
    read = ((base_size or 0) + sum(log_sizes)) // _MIB
    written = base_size // _MIB if base_size else _NEW_BASE_FILE_MIB
    return {
        "TOTAL_LOG_FILES": float(len(log_sizes)),
        "TOTAL_LOG_FILES_SIZE": float(sum(log_sizes)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(written),
        "TOTAL_IO_MB": float(read + written),
    }


def decode_compaction_plan(data: bytes, path: str = "") -> tuple[CompactionOperation, ...]:
    """Decode a plan.

    Raises:
        CorruptFileError: The plan is empty or damaged, or an operation has no file group, or a name leaves the table.
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


def encode_compaction_plan(operations: Sequence[CompactionOperation]) -> bytes:
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
