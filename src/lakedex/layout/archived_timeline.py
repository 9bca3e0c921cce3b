"""Archived instants: the history of timeline layout 2 (``ArchivedTimelineV2``, ``LSMTimeline``, ``LSMTimelineWriter``).

``.hoodie/timeline/history`` holds Parquet files with a row for each archived instant, named
``<first instant>_<last instant>_<level>.parquet``. ``manifest_<N>`` names the live ones, and ``_version_`` the manifest
that is in force; where ``_version_`` is missing the newest manifest counts. A file that no manifest names is garbage.

Order of writing: Parquet files, then the next manifest, then ``_version_``. Once ten files of a level are there, their
rows move to one file of the next level. Three manifests are kept, and the files that they name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.codec.avro import schema
from lakedex.codec.json_object import decode_json_object
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage
from lakedex.layout.base_file import open_parquet, sound_batches
from lakedex.layout.sound_values import check_values
from lakedex.timeline.commit_metadata import CommitMetadata, decode_commit_metadata

__all__ = [
    "ArchivedInstant",
    "append_history",
    "archived_commits",
    "archived_completion_times",
    "archived_files",
    "merge_history",
    "read_history",
]

_MANIFEST = re.compile(r"manifest_([0-9]{1,18})")
_FILE = re.compile(r"([0-9]{1,40})_([0-9]{1,40})_([0-9]{1,18})\.parquet")
_VERSION_FILE = "_version_"
_COLUMNS = ["instantTime", "completionTime"]
_KEPT_MANIFESTS = 3
_ROW_VERSION = 1
_FILE_BYTES = 64 * 1024 * 1024
"""Bodies of instants that are held at once; more of them make more files."""
_MERGED_BYTES = 1024 * 1024 * 1024
"""No file is merged any more when those before it have so many bytes (``LSMTimelineWriter.MAX_FILE_SIZE_IN_BYTES``)."""
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
    """A completed instant with the bytes of its completed file, and of its plan where it had one."""

    requested: str
    completed: str
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A version of the history: file name → size. Version 0 is that of an empty one."""

    version: int
    files: dict[str, int]


_COMMITS = frozenset({"commit", "deltacommit", "replacecommit"})


def archived_completion_times(storage: Storage, path: str, since: str = "") -> dict[str, str]:
    """Requested time → completion time of archived instants, from ``since`` on at least; empty where there are none.

    Raises:
        CorruptFileError: a manifest or a file of the history that cannot be read.
    """
    times: dict[str, str] = {}
    for name in _read_manifest(storage, path).files:
        found = _FILE.fullmatch(name)
        if found is None or found.group(2) >= since:
            times.update(_times_of(storage, f"{path}/{name}"))
    return times


def archived_commits(storage: Storage, path: str) -> Iterator[CommitMetadata]:
    """What archived commits did, the one that completed last first. Memory: the bodies of one file of the history.

    Raises:
        CorruptFileError: a manifest, a file or a commit of the history that cannot be read.
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
    held: tuple[str, list[bytes | None]] = ("", [])
    for _, file, number in sorted(places, reverse=True):
        if held[0] != file:
            with open_parquet(storage, file) as (parquet, _):
                held = file, parquet.read(["metadata"]).column(0).to_pylist()
        body = held[1][number]
        if body:
            yield decode_commit_metadata(body, file)


def archived_files(storage: Storage, path: str) -> list[str]:
    """Paths of the history's live files.

    Raises:
        CorruptFileError: a manifest that cannot be read.
    """
    return [f"{path}/{name}" for name in _read_manifest(storage, path).files]


def read_history(storage: Storage, path: str, first: str = "", last: str = "") -> Iterator[ArchivedInstant]:
    """Archived instants with their bodies, file by file; of files that may hold one of ``first`` to ``last``.

    Memory: some rows of a file.

    Raises:
        CorruptFileError: a manifest or a file of the history that cannot be read.
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


def append_history(storage: Storage, path: str, instants: Iterable[ArchivedInstant]) -> list[str]:
    """Archive instants, ascending by requested time. They count once the manifest names their files.

    Call under the table lock. A file of the same name that no manifest names, from a writer that died, is replaced.

    Returns:
        Names of the files written.
    """
    manifest = _read_manifest(storage, path)
    added: dict[str, int] = {}
    for group in _groups(instants):
        name = f"{group[0].requested}_{group[-1].requested}_0.parquet"
        if name in manifest.files:
            continue  # an archival that died before it had deleted anything
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
    """Merge levels that have ``batch_size`` files, and remove what no kept manifest names. Call under the table lock.

    Returns:
        How many merges there were.
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


def _groups(instants: Iterable[ArchivedInstant]) -> Iterator[list[ArchivedInstant]]:
    """Instants in groups whose bodies fit into memory together."""
    group: list[ArchivedInstant] = []
    size = 0
    for item in instants:
        more = len(item.metadata or b"") + len(item.plan or b"")
        if group and size + more > _FILE_BYTES:
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
        # Java deletes and creates the file again, so it may be empty for a moment.
        newest = int(text) if text.isdigit() and len(text) <= 18 and int(text) in manifests else newest
    return _Manifest(newest, _files_of(storage, f"{path}/{manifests[newest]}"))


def _files_of(storage: Storage, path: str) -> dict[str, int]:
    """Files that a manifest names: file name → size.

    Raises:
        CorruptFileError: it cannot be read, or names something that is no file of a history.
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
    """Put the next manifest in force. One of that number that is there already was never in force."""
    document = {"files": [{"fileName": name, "fileLen": size} for name, size in files.items()]}
    storage.write(f"{path}/manifest_{before.version + 1}", json.dumps(document, indent=2).encode())
    storage.write(f"{path}/{_VERSION_FILE}", str(before.version + 1).encode("ascii"))


def _remove_garbage(storage: Storage, path: str, kept: int) -> None:
    """As ``LSMTimelineWriter.clean``: manifests first, then files that none of those left names."""
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
    """Write a file anew; its size. What is there of that name is named by no manifest."""
    storage.delete(path)
    # Only what is given explicitly gets into the footer: pyarrow drops a schema's metadata with store_schema=False.
    with (
        closing(storage.open_output(path)) as out,
        pq.ParquetWriter(out, _SCHEMA, compression="gzip", use_dictionary=False, store_schema=False) as writer,
    ):
        writer.add_key_value_metadata(_file_metadata())
        for batch in batches:
            writer.write_batch(batch)
    return storage.size(path)


def _batches(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    with open_parquet(storage, path) as (parquet, _):
        for batch in sound_batches(parquet, _ROWS_AT_ONCE):
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
