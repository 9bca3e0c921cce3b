"""What the files of the timeline say: Avro containers of one record each (JSON in instants of layout 1).

In Hudi: HoodieCommitMetadata, HoodieReplaceCommitMetadata, HoodieWriteStat, HoodieRollbackPlan,
HoodieRollbackMetadata. Fields that lakedex does not use stay in ``raw``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakedex.codec.avro import read_container, write_container
from lakedex.errors import CorruptFileError

__all__ = [
    "CommitMetadata",
    "RollbackMetadata",
    "RollbackPlan",
    "RollbackRequest",
    "WriteStat",
    "decode_body",
    "decode_commit_metadata",
    "decode_rollback_metadata",
    "decode_rollback_plan",
    "encode_commit_metadata",
    "encode_requested_replace",
    "encode_rollback_metadata",
    "encode_rollback_plan",
]

SCHEMA_KEY = "schema"
"""The key of ``extraMetadata`` under which every commit keeps the table's schema (HoodieCommitMetadata.SCHEMA_KEY)."""

NO_PREVIOUS_COMMIT = "null"
"""What Java writes as ``prevCommit`` of a new file group: the text, not a null (HoodieWriteStat.NULL_COMMIT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """What a commit wrote into one file."""

    file_id: str
    path: str
    partition_path: str
    file_size: int
    prev_commit: str = NO_PREVIOUS_COMMIT
    prev_base_file: str | None = None
    num_writes: int = 0
    num_deletes: int = 0
    num_updates: int = 0
    num_inserts: int = 0
    write_errors: int = 0
    base_file: str | None = None
    log_version: int | None = None
    log_offset: int | None = None
    log_files: tuple[str, ...] | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    create_ms: int = 0
    upsert_ms: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def file_name(self) -> str:
        """The file's name without its partition path."""
        return self.path.rpartition("/")[2]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> WriteStat:
        """Read an Avro or JSON write stat; what is absent counts as zero."""

        def number(name: str) -> int:
            return int(record.get(name) or 0)

        times = record.get("runtimeStats") or {}
        logs = record.get("logFiles")
        return cls(
            file_id=record.get("fileId") or "",
            path=record.get("path") or "",
            partition_path=record.get("partitionPath") or "",
            file_size=number("fileSizeInBytes") or number("totalWriteBytes"),
            prev_commit=record.get("prevCommit") or NO_PREVIOUS_COMMIT,
            prev_base_file=record.get("prevBaseFile"),
            num_writes=number("numWrites"),
            num_deletes=number("numDeletes"),
            num_updates=number("numUpdateWrites"),
            num_inserts=number("numInserts"),
            write_errors=number("totalWriteErrors"),
            base_file=record.get("baseFile"),
            log_version=record.get("logVersion"),
            log_offset=record.get("logOffset"),
            log_files=None if logs is None else tuple(logs),
            min_event_time=record.get("minEventTime"),
            max_event_time=record.get("maxEventTime"),
            create_ms=int(times.get("totalCreateTime") or 0),
            upsert_ms=int(times.get("totalUpsertTime") or 0),
            raw=record,
        )

    def to_record(self) -> dict[str, Any]:
        """Write the Avro record, the zeros where Java has them."""
        return {
            "fileId": self.file_id,
            "path": self.path,
            "prevCommit": self.prev_commit,
            "numWrites": self.num_writes,
            "numDeletes": self.num_deletes,
            "numUpdateWrites": self.num_updates,
            "totalWriteBytes": self.file_size,
            "totalWriteErrors": self.write_errors,
            "partitionPath": self.partition_path,
            "totalLogRecords": 0,
            "totalLogFiles": None,
            "totalUpdatedRecordsCompacted": 0,
            "numInserts": self.num_inserts,
            "totalLogBlocks": 0,
            "totalCorruptLogBlock": 0,
            "totalRollbackBlocks": 0,
            "fileSizeInBytes": self.file_size,
            "logVersion": self.log_version,
            "logOffset": self.log_offset,
            "baseFile": self.base_file,
            "logFiles": None if self.log_files is None else list(self.log_files),
            "cdcStats": None,
            "prevBaseFile": self.prev_base_file,
            "minEventTime": self.min_event_time,
            "maxEventTime": self.max_event_time,
            "runtimeStats": {
                "totalScanTime": 0,
                "totalCreateTime": self.create_ms,
                "totalUpsertTime": self.upsert_ms,
            },
            "totalLogFilesCompacted": 0,
            "totalLogReadTimeMs": 0,
            "totalLogSizeCompacted": 0,
            "tempPath": None,
            "numUpdates": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """A commit, delta commit or replace commit. Partitions are escaped paths, ``""`` for the whole table.

    ``replaced`` is ``None`` in a plain commit; in a replace commit it names the file groups that it hides.
    """

    operation: str | None
    write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] | None = None
    compacted: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def schema(self) -> str | None:
        """The table's Avro schema as this commit left it, without meta columns; JSON text."""
        return self.extra.get(SCHEMA_KEY) or None

    def all_stats(self) -> list[WriteStat]:
        """Write stats of all partitions."""
        return [stat for stats in self.write_stats.values() for stat in stats]

    def touched_file_groups(self) -> frozenset[tuple[str, str]]:
        """(partition, file id) of all that it wrote or replaced."""
        written = {(partition, stat.file_id) for partition, stats in self.write_stats.items() for stat in stats}
        replaced = {(partition, file_id) for partition, ids in (self.replaced or {}).items() for file_id in ids}
        return frozenset(written | replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """What a rollback is to delete in one partition; ``files`` are absolute paths."""

    partition_path: str
    file_id: str
    files: tuple[str, ...] = ()
    latest_base_instant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """The requested body of a rollback: which instant goes, and its files."""

    instant: str
    action: str
    requests: tuple[RollbackRequest, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata:
    """The completed body of a rollback. ``deleted`` and ``failed`` hold absolute paths by partition."""

    started: str
    millis: int
    instant: str
    action: str
    deleted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def decode_body(data: bytes, path: str = "") -> dict[str, Any]:
    """Decode the one record of a timeline file.

    Raises:
        CorruptFileError: The file is empty, damaged, or holds no record or several.
    """
    if not data:
        raise CorruptFileError(path, 0, "the body of a timeline file", "an empty file")
    if data[:1] == b"{":
        try:
            record = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(path, getattr(error, "pos", 0), "a JSON object", str(error)) from error
        return dict(record)
    _, records = read_container(data, path)
    if len(records) != 1:
        raise CorruptFileError(path, 0, "one Avro record", f"{len(records)} records")
    record = records[0]
    if not isinstance(record, dict):
        raise CorruptFileError(path, 0, "an Avro record", type(record).__name__)
    return record


def _map_of(record: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    value = record.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CorruptFileError(path, 0, f"a map in '{name}'", type(value).__name__)
    return value


def decode_commit_metadata(data: bytes, path: str = "") -> CommitMetadata:
    """Decode a completed commit, delta commit or replace commit.

    Raises:
        CorruptFileError: As :func:`decode_body`, or a field is not what it must be.
    """
    record = decode_body(data, path)
    stats: dict[str, tuple[WriteStat, ...]] = {}
    try:
        for partition, entries in _map_of(record, "partitionToWriteStats", path).items():
            stats[partition] = tuple(WriteStat.from_record(entry) for entry in entries)
        replaced = None
        if "partitionToReplaceFileIds" in record:
            found = _map_of(record, "partitionToReplaceFileIds", path)
            replaced = {partition: tuple(ids) for partition, ids in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptFileError(path, 0, "write stats of a commit", str(error)) from error
    extra = _map_of(record, "extraMetadata", path)
    return CommitMetadata(
        operation=record.get("operationType"),
        write_stats=stats,
        extra={key: "" if value is None else str(value) for key, value in extra.items()},
        replaced=replaced,
        compacted=bool(record.get("compacted")),
        raw=record,
    )


def encode_commit_metadata(metadata: CommitMetadata) -> bytes:
    """Encode a commit; with ``replaced`` a replace commit."""
    record: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [stat.to_record() for stat in stats] for partition, stats in metadata.write_stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "version": None,  # Java leaves it null although the schema's default is 1
        "operationType": metadata.operation,
    }
    if metadata.replaced is None:
        return write_container("HoodieCommitMetadata", record)
    record["partitionToReplaceFileIds"] = {key: list(ids) for key, ids in metadata.replaced.items()}
    return write_container("HoodieReplaceCommitMetadata", record)


def encode_requested_replace(operation: str | None = None) -> bytes:
    """Encode the requested body of a replace commit without a clustering plan."""
    record = {"operationType": operation, "clusteringPlan": None, "extraMetadata": None, "version": None}
    return write_container("HoodieRequestedReplaceMetadata", record)


def decode_rollback_plan(data: bytes, path: str = "") -> RollbackPlan:
    """Decode the requested body of a rollback."""
    record = decode_body(data, path)
    target = record.get("instantToRollback") or {}
    requests = tuple(
        RollbackRequest(
            partition_path=entry.get("partitionPath") or "",
            file_id=entry.get("fileId") or "",
            files=tuple(entry.get("filesToBeDeleted") or ()),
            latest_base_instant=entry.get("latestBaseInstant") or "",
        )
        for entry in record.get("RollbackRequests") or ()
    )
    instant, action = target.get("commitTime") or "", target.get("action") or ""
    return RollbackPlan(instant=instant, action=action, requests=requests, raw=record)


def encode_rollback_plan(plan: RollbackPlan) -> bytes:
    """Encode the requested body of a rollback."""
    record = {
        "instantToRollback": {"commitTime": plan.instant, "action": plan.action},
        "RollbackRequests": [
            {
                "partitionPath": request.partition_path,
                "fileId": request.file_id,
                "latestBaseInstant": request.latest_base_instant,
                "filesToBeDeleted": list(request.files),
                "logBlocksToBeDeleted": {},
            }
            for request in plan.requests
        ],
        "version": 1,
    }
    return write_container("HoodieRollbackPlan", record)


def decode_rollback_metadata(data: bytes, path: str = "") -> RollbackMetadata:
    """Decode the completed body of a rollback."""
    record = decode_body(data, path)
    targets: Sequence[Mapping[str, Any]] = record.get("instantsRollback") or ()
    names = record.get("commitsRollback") or [""]
    partitions = _map_of(record, "partitionMetadata", path)
    return RollbackMetadata(
        started=record.get("startRollbackTime") or "",
        millis=int(record.get("timeTakenInMillis") or 0),
        instant=targets[0]["commitTime"] if targets else names[0],
        action=targets[0]["action"] if targets else "",
        deleted={key: tuple(entry.get("successDeleteFiles") or ()) for key, entry in partitions.items()},
        failed={key: tuple(entry.get("failedDeleteFiles") or ()) for key, entry in partitions.items()},
        raw=record,
    )


def encode_rollback_metadata(metadata: RollbackMetadata) -> bytes:
    """Encode the completed body of a rollback."""
    partitions = sorted(set(metadata.deleted) | set(metadata.failed))
    record = {
        "startRollbackTime": metadata.started,
        "timeTakenInMillis": metadata.millis,
        "totalFilesDeleted": sum(len(files) for files in metadata.deleted.values()),
        "commitsRollback": [metadata.instant],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": list(metadata.deleted.get(partition, ())),
                "failedDeleteFiles": list(metadata.failed.get(partition, ())),
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition in partitions
        },
        "version": 1,
        "instantsRollback": [{"commitTime": metadata.instant, "action": metadata.action}],
    }
    return write_container("HoodieRollbackMetadata", record)
