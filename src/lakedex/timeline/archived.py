"""Read and write archived instants: the LSM history of timeline layout 2 and the archive log of layout 1.

Layout 2 (``ArchivedTimelineV2``, ``LSMTimeline``, ``LSMTimelineWriter``):

``.hoodie/timeline/history`` has Parquet files with a row per archived instant, named
``<first instant>_<last instant>_<level>.parquet``. ``manifest_<N>`` names the live ones, and ``_version_`` the current
manifest; without ``_version_`` the newest manifest is current. Files that no manifest names are garbage.

Writers create Parquet files, then the next manifest, then ``_version_``. Once a level has ten files, their rows move to
one file of the next level. Three manifests and their files are retained.

Layout 1 (``TimelineArchiverV1``): log files ``archived/.commits_.archive.<N>_<token>`` of Avro data blocks with only
the schema in the header, and a ``HoodieArchivedMetaEntry`` for each state of each archived instant: requested, inflight
and completed.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from lakedex.codec.avro import decode_datum, encode_datum, parse_json, parsed, schema
from lakedex.codec.avro_vectorized import split_avro_block
from lakedex.codec.log_block import decode_log_blocks, encode_log_block
from lakedex.codec.properties import decode_json_object
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import open_parquet, validated_batches
from lakedex.parquet.base_file_writer import write_parquet
from lakedex.parquet.stored_values import check_values
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.commit_metadata import CommitMetadata, commit_of_record, decode_body, decode_commit_metadata
from lakedex.timeline.instant import Instant, State

__all__ = [
    "ArchivedInstant",
    "append_archive_log",
    "append_history",
    "archived_commits",
    "archived_completion_times",
    "archived_files",
    "archived_writes",
    "merge_history",
    "read_archive_log",
    "read_history",
]


_MANIFEST = re.compile(r"manifest_([0-9]{1,18})")


_FILE = re.compile(r"([0-9]{1,40})_([0-9]{1,40})_([0-9]{1,18})\.parquet")


_VERSION_FILE = "_version_"


_COLUMNS = ["instantTime", "completionTime"]


_KEPT_MANIFESTS = 3


_ROW_VERSION = 1


_FILE_BYTES = 64 * 1024 * 1024
"""Size of the instants' bodies in memory; more of them go to more files."""


_MERGED_BYTES = 1024 * 1024 * 1024
"""Files are merged until they reach this size (``LSMTimelineWriter.MAX_FILE_SIZE_IN_BYTES``)."""


_ROWS_AT_ONCE = 16


_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A completed instant with the bytes of its completed file, and of its plan if it had one."""

    requested: str
    completed: str
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A version of the history, with file sizes by name; version 0 is empty."""

    version: int
    files: dict[str, int]


_COMMITS = frozenset({"commit", "deltacommit", "replacecommit"})


def archived_completion_times(storage: Storage, path: str, since: str = "") -> dict[str, str]:
    """Completion times by requested time of archived instants, at least from ``since`` on; empty without any.

    Raises:
        CorruptFileError: A manifest or a file of the history is damaged.
    """
    times: dict[str, str] = {}
    for name in _read_manifest(storage, path).files:
        found = _FILE.fullmatch(name)
        if found is None or found.group(2) >= since:
            times.update(_times_of(storage, f"{path}/{name}"))
    return times


def archived_commits(storage: Storage, path: str) -> Iterator[CommitMetadata]:
    """Archived commits, last completed first.

    Memory: the bodies in one file of the history.

    Raises:
        CorruptFileError: A manifest, a file or a commit of the history is damaged.
    """
    places: list[tuple[str, str, int]] = []
    for file in archived_files(storage, path):
        with open_parquet(storage, file) as (parquet, _):
            rows = parquet.read([*_COLUMNS, "action"]).to_pylist()
        places += [
            (row["completionTime"] or row["instantTime"], file, number)
            for number, row in enumerate(rows)
            if row["action"] in _COMMITS
        ]
    loaded: tuple[str, list[bytes | None]] = ("", [])
    for _, file, number in sorted(places, reverse=True):
        if loaded[0] != file:
            with open_parquet(storage, file) as (parquet, _):
                loaded = file, parquet.read(["metadata"]).column(0).to_pylist()
        body = loaded[1][number]
        if body:
            yield decode_commit_metadata(body, file)


def archived_files(storage: Storage, path: str) -> list[str]:
    """Paths of the history's live files.

    Raises:
        CorruptFileError: A manifest is damaged.
    """
    return [f"{path}/{name}" for name in _read_manifest(storage, path).files]


def read_history(storage: Storage, path: str, first: str = "", last: str = "") -> Iterator[ArchivedInstant]:
    """Archived instants with their bodies, from all files that may have instants from ``first`` to ``last``.

    Memory: some rows of a file.

    Raises:
        CorruptFileError: A manifest or a file of the history is damaged.
    """
    for name in _read_manifest(storage, path).files:
        found = _FILE.fullmatch(name)
        if found is not None and (found.group(2) < first or (last and found.group(1) > last)):
            continue
        for batch in _batches(storage, f"{path}/{name}"):
            for row in batch.to_pylist():
                if row["instantTime"] >= first and (not last or row["instantTime"] <= last):
                    yield ArchivedInstant(
                        row["instantTime"],
                        row["completionTime"] or row["instantTime"],
                        row["action"],
                        row["metadata"],
                        row["plan"],
                    )


def append_history(
    storage: Storage, path: str, instants: Iterable[ArchivedInstant], file_bytes: int = _FILE_BYTES
) -> list[str]:
    """Archive instants, ascending by requested time. They take effect with the manifest that names their files.

    Call under the table lock. A file of the same name without a manifest, from a dead writer, is replaced. Instants
    whose bodies take more than ``file_bytes`` go to several files.

    Returns:
        Names of the files written.
    """
    manifest = _read_manifest(storage, path)
    added: dict[str, int] = {}
    for group in _groups(instants, file_bytes):
        name = f"{group[0].requested}_{group[-1].requested}_0.parquet"
        if name in manifest.files:
            continue  # an archival that died before deleting anything
        table = pa.table(
            [
                [item.requested for item in group],
                [item.completed for item in group],
                [item.action for item in group],
                [item.metadata for item in group],
                [item.plan for item in group],
                pa.array([_ROW_VERSION] * len(group), pa.int32()),
            ],
            schema=_SCHEMA,
        )
        added[name] = _write_file(storage, f"{path}/{name}", iter(table.to_batches()))
    if added:
        _publish(storage, path, manifest, {**manifest.files, **added})
    return list(added)


def merge_history(storage: Storage, path: str, batch_size: int) -> int:
    """Merge levels that have ``batch_size`` files, and remove garbage. Call under the table lock.

    Returns:
        Number of merges.
    """
    merges = 0
    level = 0
    while True:
        manifest = _read_manifest(storage, path)
        names = sorted(name for name in manifest.files if _level(name) == level)[: max(batch_size, 2)]
        if len(names) < max(batch_size, 2):
            break
        chosen = _small_enough(names, manifest.files)
        if len(chosen) < 2:
            break
        bounds = [name.split("_") for name in chosen]
        merged = f"{min(b[0] for b in bounds)}_{max(b[1] for b in bounds)}_{level + 1}.parquet"
        rows = (batch for name in chosen for batch in _batches(storage, f"{path}/{name}"))
        size = _write_file(storage, f"{path}/{merged}", rows)
        left = {name: known for name, known in manifest.files.items() if name not in chosen}
        _publish(storage, path, manifest, {**left, merged: size})
        merges += 1
        level += 1
    _remove_garbage(storage, path, _KEPT_MANIFESTS + merges)
    return merges


def _level(name: str) -> int:
    found = _FILE.fullmatch(name)
    return int(found.group(3)) if found is not None else 0


def _small_enough(names: Sequence[str], sizes: dict[str, int]) -> list[str]:
    chosen: list[str] = []
    total = 0
    for name in names:
        if total > _MERGED_BYTES:
            break
        total += sizes[name]
        chosen.append(name)
    return chosen


def _groups(instants: Iterable[ArchivedInstant], file_bytes: int) -> Iterator[list[ArchivedInstant]]:
    """Split instants into groups whose bodies fit into memory."""
    group: list[ArchivedInstant] = []
    size = 0
    for item in instants:
        more = len(item.metadata or b"") + len(item.plan or b"")
        if group and size + more > file_bytes:
            yield group
            group, size = [], 0
        group.append(item)
        size += more
    if group:
        yield group


def _manifests(storage: Storage, path: str) -> tuple[set[str], dict[int, str]]:
    names = {entry.name for entry in storage.list(path) if not entry.is_dir}
    return names, {int(found.group(1)): name for name in names if (found := _MANIFEST.fullmatch(name))}


def _read_manifest(storage: Storage, path: str) -> _Manifest:
    names, manifests = _manifests(storage, path)
    if not manifests:
        return _Manifest(0, {})
    newest = max(manifests)
    if _VERSION_FILE in names:
        text = storage.read(f"{path}/{_VERSION_FILE}").decode("ascii", "replace").strip()
        # Java deletes and recreates the file, so it may be empty temporarily.
        newest = int(text) if text.isdigit() and len(text) <= 18 and int(text) in manifests else newest
    return _Manifest(newest, _files_of(storage, f"{path}/{manifests[newest]}"))


def _files_of(storage: Storage, path: str) -> dict[str, int]:
    """Sizes of the files in a manifest by name.

    Raises:
        CorruptFileError: The manifest is damaged, or names files that are not part of a history.
    """
    what = "a manifest of the timeline's history"
    document = decode_json_object(storage.read(path), what, path)
    try:
        files = {str(entry["fileName"]): int(entry["fileLen"]) for entry in document["files"]}
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptFileError(path, 0, what, str(error)) from error
    for name in files:
        if _FILE.fullmatch(name) is None:
            raise CorruptFileError(path, 0, "names of files of the timeline's history", repr(name[:80]))
    return files


def _publish(storage: Storage, path: str, before: _Manifest, files: dict[str, int]) -> None:
    """Make the next manifest current; an existing one of that number never was."""
    document = {"files": [{"fileName": name, "fileLen": size} for name, size in files.items()]}
    storage.write(f"{path}/manifest_{before.version + 1}", json.dumps(document, indent=2).encode())
    storage.write(f"{path}/{_VERSION_FILE}", str(before.version + 1).encode("ascii"))


def _remove_garbage(storage: Storage, path: str, kept: int) -> None:
    """As ``LSMTimelineWriter.clean``: manifests first, then files that no remaining one names."""
    names, manifests = _manifests(storage, path)
    in_force = _read_manifest(storage, path).version
    known = sorted(version for version in manifests if version <= in_force)
    live: set[str] = set()
    for version in known[-kept:]:
        live |= _files_of(storage, f"{path}/{manifests[version]}").keys()
    for version in known[:-kept]:
        storage.delete(f"{path}/{manifests[version]}")
    for name in sorted(names):
        if _FILE.fullmatch(name) and name not in live:
            storage.delete(f"{path}/{name}")


@cache
def _file_metadata() -> dict[str, str]:
    text = json.dumps(schema("HoodieLSMTimelineInstant"), separators=(",", ":"))
    return {"parquet.avro.schema": text, "writer.model.name": "avro"}


def _write_file(storage: Storage, path: str, batches: Iterator[pa.RecordBatch]) -> int:
    """Write a file and return its size; an existing one is not in any manifest."""
    storage.delete(path)
    write_parquet(storage, path, _SCHEMA, batches, _file_metadata())
    return storage.size(path)


def _batches(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    with open_parquet(storage, path) as (parquet, _):
        for batch in validated_batches(parquet, _ROWS_AT_ONCE):
            yield pa.RecordBatch.from_arrays([_column(batch, field) for field in _SCHEMA], schema=_SCHEMA)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        fill = _ROW_VERSION if field.name == "version" else None
        return pa.array([fill] * len(batch), field.type)
    return batch.column(field.name).cast(field.type)


def _times_of(storage: Storage, path: str) -> dict[str, str]:
    with open_parquet(storage, path) as (parquet, _):
        rows = parquet.read(_COLUMNS)
        check_values(rows, range(len(_COLUMNS)))
    requested, completed = (rows.column(name).to_pylist() for name in _COLUMNS)
    return {r: c for r, c in zip(requested, completed, strict=True) if r and c}


_NAME = re.compile(r"\.commits_\.archive\.([0-9]{1,18})(?:_.*)?")


_WRITER = "1-0-1"


_ENTRY = "HoodieArchivedMetaEntry"


_BLOCK_VERSION = 3


_ENTRIES_OF_A_BLOCK = 10
"""``hoodie.commits.archival.batch``."""


_COMMIT_BODIES = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "compaction": "hoodieCommitMetadata",
    "logcompaction": "hoodieCommitMetadata",
}


_COMPLETED_BODIES = {
    **_COMMIT_BODIES,
    "replacecommit": "hoodieReplaceCommitMetadata",
    "clean": "hoodieCleanMetadata",
    "rollback": "hoodieRollbackMetadata",
    "savepoint": "hoodieSavePointMetadata",
}


_INFLIGHT_BODIES = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "replacecommit": "HoodieInflightReplaceMetadata",
    "clean": "hoodieCleanerPlan",
}


_REQUESTED_BODIES = {
    "replacecommit": "hoodieRequestedReplaceMetadata",
    "clean": "hoodieCleanerPlan",
    "compaction": "hoodieCompactionPlan",
    "logcompaction": "hoodieCompactionPlan",
}


_BODIES = {State.REQUESTED: _REQUESTED_BODIES, State.INFLIGHT: _INFLIGHT_BODIES, State.COMPLETED: _COMPLETED_BODIES}


def append_archive_log(
    storage: Storage, folder: str, states: Iterable[tuple[Instant, bytes]], timeline: str = ""
) -> str | None:
    """Archive states of instants with the bodies of their files as one more log file. Call under the table lock.

    Memory: the bytes of the new file.

    Args:
        storage: Storage of the table.
        folder: Folder of the archive.
        states: Each instant in each of its states.
        timeline: Folder of the states' files, for errors.

    Returns:
        Path of the file; None if there was nothing to write.
    """
    blocks: list[bytes] = []
    datums: list[bytes] = []
    for instant, body in states:
        datums.append(encode_datum(parsed(_ENTRY), _entry(instant, body, f"{timeline}/{instant.file_name}")))
        if len(datums) == _ENTRIES_OF_A_BLOCK:
            blocks.append(_block(datums))
            datums = []
    if datums:
        blocks.append(_block(datums))
    if not blocks:
        return None
    numbers = [int(found.group(1)) for entry in storage.list(folder) if (found := _NAME.fullmatch(entry.name))]
    path = f"{folder}/.commits_.archive.{max(numbers, default=0) + 1}_{_WRITER}"
    storage.create(path, b"".join(blocks))
    return path


def _block(datums: Sequence[bytes]) -> bytes:
    content = struct.pack(">ii", _BLOCK_VERSION, len(datums))
    content += b"".join(struct.pack(">i", len(datum)) + datum for datum in datums)
    return encode_log_block("AVRO_DATA", {"SCHEMA": json.dumps(schema(_ENTRY), separators=(",", ":"))}, content)


def _entry(instant: Instant, body: bytes, path: str) -> dict[str, Any]:
    """``MetadataConversionUtils.createMetaWrapper``: the body in the field of its kind, if it is not empty."""
    entry: dict[str, Any] = {
        "commitTime": instant.requested,
        "actionType": instant.action,
        "actionState": instant.state.name,
        "stateTransitionTime": instant.completed,
    }
    name = _BODIES[instant.state].get(instant.action)
    if name is not None and body:
        entry[name] = decode_body(body, path)
    return entry


def read_archive_log(storage: Storage, folder: str) -> Iterator[dict[str, Any]]:
    """Entries of an archive, file by file in the order of their numbers.

    Raises:
        CorruptFileError: A file is damaged.
    """
    found = ((_NAME.fullmatch(entry.name), entry) for entry in storage.list(folder))
    for _, entry in sorted((int(match.group(1)), entry.name) for match, entry in found if match is not None):
        path = f"{folder}/{entry}"
        for block in decode_log_blocks(storage.read(path), path):
            if block.block_type != "AVRO_DATA":
                continue
            text = block.header.get("SCHEMA")
            if text is None:
                raise CorruptFileError(path, block.offset, "a schema in the header of an archive's block", "none")
            datums = split_avro_block(block.content, path, block.content_offset)
            for datum in datums.parts():
                yield decode_datum(parse_json(text, path, block.offset), datum, path, block.content_offset)


def archived_writes(storage: Storage, folder: str) -> Iterator[tuple[Instant, CommitMetadata]]:
    """Completed commits, delta commits and replace commits of an archive, in the order in which they were archived.

    Raises:
        CorruptFileError: A file is damaged.
    """
    for entry in read_archive_log(storage, folder):
        action = str(entry.get("actionType"))
        if entry.get("actionState") != State.COMPLETED.name or action not in WRITE_ACTIONS:
            continue
        requested, done = str(entry.get("commitTime")), entry.get("stateTransitionTime")
        instant = Instant(requested, action, State.COMPLETED, None if done is None else str(done), "")
        body = entry.get(_COMPLETED_BODIES[action])
        path = f"{folder} ({requested})"
        yield instant, CommitMetadata(operation=None) if body is None else commit_of_record(body, path)
