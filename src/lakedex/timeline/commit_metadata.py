"""Encode and decode the bodies of commits and rollbacks: Avro containers of one record, JSON for commits of layout 1.

In Hudi: HoodieCommitMetadata, HoodieReplaceCommitMetadata, HoodieWriteStat, HoodieRollbackPlan,
HoodieRollbackMetadata, and ``CommitMetadataSerDeV1`` for JSON, which is laid out as by Hudi's Jackson. Fields that
lakedex does not use stay in ``raw``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lakedex.codec.avro import read_container, write_container
from lakedex.codec.properties import decode_json_object
from lakedex.codec.table_paths import check_instant, check_part, check_partition, file_path, last_part
from lakedex.errors import CorruptFileError

__all__ = [
    "CommitMetadata",
    "CommitNotes",
    "CompactedLogs",
    "RollbackMetadata",
    "RollbackPlan",
    "RollbackRequest",
    "WriteStat",
    "commit_of_record",
    "decode_body",
    "decode_commit_metadata",
    "decode_commit_notes",
    "decode_rollback_metadata",
    "decode_rollback_plan",
    "encode_commit_metadata",
    "encode_json_body",
    "encode_requested_replace",
    "encode_rollback_metadata",
    "encode_rollback_plan",
    "fields_of",
    "json_write_stat",
    "rollback_of_record",
    "rollback_record",
]


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
    """Convert a write stat to ``HoodieWriteStat`` of Hudi 0.15, or ``HoodieDeltaWriteStat`` if it has log files.

    Args:
        record: Write stat as an Avro record of later releases.
    """
    stat = {name: record[name] for name in _STAT}
    times = record["runtimeStats"]
    stat["runtimeStats"] = {name: times[name] for name in ("totalScanTime", "totalUpsertTime", "totalCreateTime")}
    if record["logFiles"] is not None:
        stat |= {name: record[name] for name in _DELTA}
        stat["recordsStats"] = {"val": None}
    return stat


def encode_json_body(record: Mapping[str, Any]) -> bytes:
    """Encode a body as Jackson's default pretty printer does."""
    return _text(record, "").encode()


def _text(value: object, indent: str) -> str:
    """Objects have one line per entry; arrays stay on their line."""
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = indent + "  "
        entries = (f"{inner}{_scalar(str(key))} : {_text(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        return "[ " + ", ".join(_text(item, indent) for item in value) + " ]" if value else "[ ]"
    return _scalar(value)


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


SCHEMA_KEY = "schema"
"""Key of the table's schema in ``extraMetadata`` of every commit (HoodieCommitMetadata.SCHEMA_KEY)."""


NO_PREVIOUS_COMMIT = "null"
"""``prevCommit`` of a new file group: Java writes this text instead of null (HoodieWriteStat.NULL_COMMIT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLogs:
    """The log files that a compaction merged into a file: their number, blocks, bytes of content, records and keys."""

    files: int
    blocks: int
    bytes: int
    records: int
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """Statistics of one file written by a commit."""

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
    compacted: CompactedLogs | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def file_name(self) -> str:
        """The file's name without its partition path."""
        return last_part(self.path)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> WriteStat:
        """Read an Avro or JSON write stat; absent numbers are zero."""

        def number(name: str) -> int:
            return int(record.get(name) or 0)

        def known(name: str, kind: type) -> Any:
            return _known(record, name, kind)

        times = record.get("runtimeStats") or {}
        logs = record.get("logFiles")
        return cls(
            file_id=known("fileId", str) or "",
            path=known("path", str) or "",
            partition_path=known("partitionPath", str) or "",
            file_size=number("fileSizeInBytes") or number("totalWriteBytes"),
            prev_commit=known("prevCommit", str) or NO_PREVIOUS_COMMIT,
            prev_base_file=known("prevBaseFile", str),
            num_writes=number("numWrites"),
            num_deletes=number("numDeletes"),
            num_updates=number("numUpdateWrites"),
            num_inserts=number("numInserts"),
            write_errors=number("totalWriteErrors"),
            base_file=known("baseFile", str),
            log_version=known("logVersion", int),
            log_offset=known("logOffset", int),
            log_files=None if logs is None else _texts(logs, "logFiles"),
            min_event_time=known("minEventTime", int),
            max_event_time=known("maxEventTime", int),
            create_ms=int(times.get("totalCreateTime") or 0),
            upsert_ms=int(times.get("totalUpsertTime") or 0),
            raw=record,
        )

    def to_record(self) -> dict[str, Any]:
        """Convert to an Avro record, with zeros where Java has them."""
        logs = self.compacted or CompactedLogs(files=0, blocks=0, bytes=0, records=0, keys=0)
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
            "totalLogRecords": logs.records,
            "totalLogFiles": None,
            "totalUpdatedRecordsCompacted": logs.keys,
            "numInserts": self.num_inserts,
            "totalLogBlocks": logs.blocks,
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
            "totalLogFilesCompacted": logs.files,
            "totalLogReadTimeMs": 0,
            "totalLogSizeCompacted": logs.bytes,
            "tempPath": None,
            "numUpdates": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNotes:
    """Content of a commit besides its files, which can be many."""

    operation: str | None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> str | None:
        """Avro schema of the table after this commit, without meta columns; JSON text."""
        return self.extra.get(SCHEMA_KEY) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """A commit, delta commit or replace commit. Partitions are escaped paths, ``""`` for a table without partitions.

    ``replaced`` has the file groups that a replace commit hides; None for other commits.
    """

    operation: str | None
    write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] | None = None
    compacted: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def schema(self) -> str | None:
        """Avro schema of the table after this commit, without meta columns; JSON text."""
        return self.extra.get(SCHEMA_KEY) or None

    @property
    def notes(self) -> CommitNotes:
        """Content without the files."""
        return CommitNotes(operation=self.operation, extra=self.extra)

    def all_stats(self) -> list[WriteStat]:
        """Write stats of all partitions."""
        return [stat for stats in self.write_stats.values() for stat in stats]

    def touched_file_groups(self) -> frozenset[tuple[str, str]]:
        """Partition and file id of all written or replaced file groups."""
        written = {(partition, stat.file_id) for partition, stats in self.write_stats.items() for stat in stats}
        replaced = {(partition, file_id) for partition, ids in (self.replaced or {}).items() for file_id in ids}
        return frozenset(written | replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """Work of a rollback in one partition, as absolute paths of which only the names count.

    Attributes:
        partition_path: the partition.
        file_id: the file group; empty where files of several are deleted.
        files: files that are deleted.
        latest_base_instant: of the file group's slice.
        log_files: log files, with their sizes, of which a command block takes the instant's blocks back (version 6).
    """

    partition_path: str
    file_id: str
    files: tuple[str, ...] = ()
    latest_base_instant: str = ""
    log_files: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """Requested body of a rollback: the instant and its files."""

    instant: str
    action: str
    requests: tuple[RollbackRequest, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata:
    """Completed body of a rollback: absolute paths by partition.

    Attributes:
        started: the rollback.
        millis: how long it took.
        instant: what was undone.
        action: its action.
        deleted: files that are gone.
        failed: files that could not be deleted.
        command_logs: log files with a command block, which were added, and their sizes (version 6).
        failed_logs: names of log files that keep the blocks that were taken back, and their sizes (version 6).
        raw: the record.
    """

    started: str
    millis: int
    instant: str
    action: str
    deleted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    command_logs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failed_logs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def decode_body(data: bytes, path: str = "", fields: frozenset[str] | None = None) -> dict[str, Any]:
    """Decode the record of a timeline file. ``fields`` limits an Avro record; None decodes all fields.

    Raises:
        CorruptFileError: The file is empty or damaged, or has no record or several.
    """
    if not data:
        raise CorruptFileError(path, 0, "the body of a timeline file", "an empty file")
    if data[:1] == b"{":
        return decode_json_object(data, "a JSON object", path)
    _, records = read_container(data, path, fields)
    if len(records) != 1:
        raise CorruptFileError(path, 0, "one Avro record", f"{len(records)} records")
    record = records[0]
    if not isinstance(record, dict):
        raise CorruptFileError(path, 0, "an Avro record", type(record).__name__)
    return record


def _known(record: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field, or None if it is absent; raises ``TypeError`` for another kind of value."""
    value = record.get(name)
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _map_of(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _known(record, name, dict) or {}


def _texts(values: object, name: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} is not a list of strings")
    return tuple(values)


@contextmanager
def fields_of(what: str, path: str) -> Iterator[None]:
    """Report fields of the wrong type as damage, since schemas come with the bytes."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ArithmeticError, ValueError) as error:
        if isinstance(error, CorruptFileError):
            raise
        raise CorruptFileError(path, 0, what, f"{type(error).__name__}: {error}") from error


def decode_commit_metadata(data: bytes, path: str = "") -> CommitMetadata:
    """Decode a completed commit, delta commit or replace commit.

    Raises:
        CorruptFileError: As for :func:`decode_body`, or a field has the wrong type.
    """
    return commit_of_record(decode_body(data, path), path)


def decode_commit_notes(data: bytes, path: str = "") -> CommitNotes:
    """Decode a completed commit, delta commit or replace commit without its write stats.

    Raises:
        CorruptFileError: As for :func:`decode_commit_metadata`, except for damage in the stats.
    """
    return _notes_of(decode_body(data, path, frozenset({"extraMetadata", "operationType"})), path)


def _notes_of(record: Mapping[str, Any], path: str) -> CommitNotes:
    with fields_of("fields of a commit", path):
        extra = _map_of(record, "extraMetadata")
        return CommitNotes(
            operation=_known(record, "operationType", str),
            extra={key: "" if value is None else str(value) for key, value in extra.items()},
        )


def commit_of_record(record: Mapping[str, Any], path: str = "") -> CommitMetadata:
    """Convert a record of a completed commit, delta commit or replace commit.

    Raises:
        CorruptFileError: A field has the wrong type.
    """
    with fields_of("fields of a commit", path):
        stats = {
            check_partition(partition, path): tuple(_write_stat(entry, path) for entry in entries)
            for partition, entries in _map_of(record, "partitionToWriteStats").items()
        }
        replaced = None
        if "partitionToReplaceFileIds" in record:
            found = _map_of(record, "partitionToReplaceFileIds")
            replaced = {
                check_partition(partition, path): _texts(ids, "partitionToReplaceFileIds")
                for partition, ids in found.items()
            }
        notes = _notes_of(record, path)
        return CommitMetadata(
            operation=notes.operation,
            write_stats=stats,
            extra=notes.extra,
            replaced=replaced,
            compacted=bool(record.get("compacted")),
            raw=dict(record),
        )


def _write_stat(entry: Mapping[str, Any], path: str) -> WriteStat:
    stat = WriteStat.from_record(entry)
    if stat.path:
        check_part(stat.file_name, path)
    return stat


def encode_commit_metadata(metadata: CommitMetadata, layout: int) -> bytes:
    """Encode a commit; with ``replaced`` a replace commit.

    Args:
        metadata: The commit.
        layout: Timeline layout: Avro in 2, JSON in 1.
    """
    if layout == 1:
        return encode_json_body(_json_record(metadata))
    record: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [stat.to_record() for stat in stats] for partition, stats in metadata.write_stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "version": None,  # Java writes null although the schema's default is 1
        "operationType": metadata.operation,
    }
    if metadata.replaced is None:
        return write_container("HoodieCommitMetadata", record)
    record["partitionToReplaceFileIds"] = {key: list(ids) for key, ids in metadata.replaced.items()}
    return write_container("HoodieReplaceCommitMetadata", record)


def _json_record(metadata: CommitMetadata) -> dict[str, Any]:
    record: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [json_write_stat(stat.to_record()) for stat in stats]
            for partition, stats in metadata.write_stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "operationType": metadata.operation,
    }
    if metadata.replaced is not None:
        record["partitionToReplaceFileIds"] = {key: list(ids) for key, ids in metadata.replaced.items()}
    return record


def encode_requested_replace(operation: str | None = None) -> bytes:
    """Encode the requested body of a replace commit without a clustering plan."""
    record = {"operationType": operation, "clusteringPlan": None, "extraMetadata": None, "version": None}
    return write_container("HoodieRequestedReplaceMetadata", record)


def decode_rollback_plan(data: bytes, path: str = "") -> RollbackPlan:
    """Decode the requested body of a rollback.

    Raises:
        CorruptFileError: As for :func:`decode_body`, or a field has the wrong type or leaves the table.
    """
    record = decode_body(data, path)
    with fields_of("fields of a rollback's plan", path):
        target = _map_of(record, "instantToRollback")
        requests = tuple(
            RollbackRequest(
                partition_path=_known(entry, "partitionPath", str) or "",
                file_id=_known(entry, "fileId", str) or "",
                files=_texts(entry.get("filesToBeDeleted") or (), "filesToBeDeleted"),
                latest_base_instant=_known(entry, "latestBaseInstant", str) or "",
                log_files=_sizes(entry, "logBlocksToBeDeleted"),
            )
            for entry in record.get("RollbackRequests") or ()
        )
        for request in requests:
            check_partition(request.partition_path, path)
            for name in (*request.files, *request.log_files):
                file_path(request.partition_path, last_part(name), path)
        instant = check_instant(_known(target, "commitTime", str) or "", path)
        return RollbackPlan(instant=instant, action=_known(target, "action", str) or "", requests=requests, raw=record)


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
                "logBlocksToBeDeleted": dict(request.log_files),
            }
            for request in plan.requests
        ],
        "version": 1,
    }
    return write_container("HoodieRollbackPlan", record)


def decode_rollback_metadata(data: bytes, path: str = "") -> RollbackMetadata:
    """Decode the completed body of a rollback."""
    return rollback_of_record(decode_body(data, path), path)


def rollback_of_record(record: Mapping[str, Any], path: str = "") -> RollbackMetadata:
    """Convert a record of a completed rollback.

    Raises:
        CorruptFileError: A field has the wrong type, or a partition is outside of the table.
    """
    with fields_of("fields of a rollback", path):
        targets = _known(record, "instantsRollback", list) or ()
        names = _texts(record.get("commitsRollback") or [""], "commitsRollback")
        partitions = _map_of(record, "partitionMetadata")
        for partition in partitions:
            check_partition(partition, path)
        return RollbackMetadata(
            started=_known(record, "startRollbackTime", str) or "",
            millis=int(record.get("timeTakenInMillis") or 0),
            instant=_known(targets[0], "commitTime", str) or "" if targets else names[0],
            action=_known(targets[0], "action", str) or "" if targets else "",
            deleted={key: _files(entry, "successDeleteFiles") for key, entry in partitions.items()},
            failed={key: _files(entry, "failedDeleteFiles") for key, entry in partitions.items()},
            command_logs={key: _sizes(entry, "rollbackLogFiles") for key, entry in partitions.items()},
            failed_logs={key: _sizes(entry, "logFilesFromFailedCommit") for key, entry in partitions.items()},
            raw=record,
        )


def _files(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return _texts(entry.get(name) or (), name)


def _sizes(entry: Mapping[str, Any], name: str) -> dict[str, int]:
    return {path: int(size or 0) for path, size in _map_of(entry, name).items()}


def encode_rollback_metadata(metadata: RollbackMetadata) -> bytes:
    """Encode the completed body of a rollback."""
    return write_container("HoodieRollbackMetadata", rollback_record(metadata))


def rollback_record(metadata: RollbackMetadata) -> dict[str, Any]:
    """Record of a completed rollback, also part of a restore's body."""
    partitions = sorted({*metadata.deleted, *metadata.failed, *metadata.command_logs, *metadata.failed_logs})
    return {
        "startRollbackTime": metadata.started,
        "timeTakenInMillis": metadata.millis,
        "totalFilesDeleted": sum(len(files) for files in metadata.deleted.values()),
        "commitsRollback": [metadata.instant],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": list(metadata.deleted.get(partition, ())),
                "failedDeleteFiles": list(metadata.failed.get(partition, ())),
                "rollbackLogFiles": dict(metadata.command_logs.get(partition, {})),
                "logFilesFromFailedCommit": dict(metadata.failed_logs.get(partition, {})),
            }
            for partition in partitions
        },
        "version": 1,
        "instantsRollback": [{"commitTime": metadata.instant, "action": metadata.action}],
    }
