"""Archived instants, from the history of timeline layout 2 (``ArchivedTimelineV2``, ``LSMTimeline``).

``.hoodie/timeline/history`` holds Parquet files with a row for each archived instant. ``_version_`` names the manifest
that is in force, and the manifest the files; where ``_version_`` is missing the newest manifest counts. A file that no
manifest names is garbage.
"""

from __future__ import annotations

import json
import re

from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage
from lakedex.layout.base_file import open_parquet

__all__ = ["archived_completion_times", "archived_files"]

_MANIFEST = re.compile(r"manifest_(\d+)")
_VERSION_FILE = "_version_"
_COLUMNS = ["instantTime", "completionTime"]


def archived_completion_times(storage: Storage, path: str) -> dict[str, str]:
    """Requested time → completion time of all archived instants; empty where nothing was archived.

    Raises:
        CorruptFileError: a manifest or a file of the history that cannot be read.
    """
    times: dict[str, str] = {}
    for file in archived_files(storage, path):
        times.update(_times_of(storage, file))
    return times


def archived_files(storage: Storage, path: str) -> list[str]:
    """Paths of the history's live files, ``<first instant>_<last instant>_<level>.parquet``.

    Raises:
        CorruptFileError: a manifest that cannot be read.
    """
    names = {entry.name for entry in storage.list(path) if not entry.is_dir}
    manifests = {int(found.group(1)): name for name in names if (found := _MANIFEST.fullmatch(name))}
    if not manifests:
        return []
    newest = max(manifests)
    if _VERSION_FILE in names:
        text = storage.read(f"{path}/{_VERSION_FILE}").decode("ascii", "replace").strip()
        # Java deletes and creates the file again, so it may be empty for a moment.
        newest = int(text) if text.isdigit() and int(text) in manifests else newest
    return [f"{path}/{name}" for name in _files_of(storage, f"{path}/{manifests[newest]}")]


def _files_of(storage: Storage, path: str) -> list[str]:
    try:
        return [str(entry["fileName"]) for entry in json.loads(storage.read(path))["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(path, 0, "a manifest of the timeline's history", str(error)) from error


def _times_of(storage: Storage, path: str) -> dict[str, str]:
    with open_parquet(storage, path) as parquet:
        rows = parquet.read(_COLUMNS)
    requested, completed = (rows.column(name).to_pylist() for name in _COLUMNS)
    return {r: c for r, c in zip(requested, completed, strict=True) if r and c}
