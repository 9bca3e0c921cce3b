"""Savepoints: commits whose files no cleaner takes, and that a restore can go back to (``SavepointActionExecutor``)."""

from __future__ import annotations

import getpass
import time
from dataclasses import replace

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.layout.names import join_path
from lakedex.layout.table_files import list_folder
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.services.clean import finish_cleans, require_no_clean
from lakedex.services.clean_plan import last_clean, savepoint_times
from lakedex.services.locking import require_exclusive_create, table_lock
from lakedex.services.tidying import tidy
from lakedex.timeline.instant import Instant, State
from lakedex.timeline.service_metadata import SavepointMetadata, encode_savepoint_metadata
from lakedex.timeline.timeline import WRITE_ACTIONS
from lakedex.timeline.transitions import complete, create_inflight, remove_pending, revert_completed

__all__ = ["delete_savepoint", "list_savepoints", "savepoint"]

_SAVEPOINTS = pa.schema(
    [
        ("instant", pa.string()),
        ("user", pa.string()),
        ("comment", pa.string()),
        ("made_at", pa.timestamp("ms", "UTC")),
        ("files", pa.int64()),
        ("partitions", pa.int64()),
    ]
)


def savepoint(handle: TableHandle, options: WriteOptions, instant: str | None, comment: str, user: str) -> str:
    """Keep the files of a commit; see :meth:`lakedex.Table.savepoint`."""
    require_exclusive_create(handle.storage, handle.base_path)
    finish_cleans(handle, options)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        tidied = tidy(handle, options, lock)
        snapshot, timeline = tidied.snapshot, tidied.snapshot.timeline
        require_no_clean(snapshot)
        commit = _commit(snapshot, instant)
        if commit in savepoint_times(timeline):
            raise InvalidInputError(f"{handle.base_path}: the commit {commit} has a savepoint already")
        files = _files_at(snapshot, commit)
        body = SavepointMetadata(by=user or _user(), at=int(time.time() * 1000), comment=comment, files=files)
        pending = Instant(commit, "savepoint", State.INFLIGHT, None, "")
        # One may be left of a savepoint whose process died.
        if timeline.state_of(commit, "savepoint") is None:
            create_inflight(timeline, pending)
        when = tidied.clock.next(snapshot.last_time)
        complete(timeline, pending, when, encode_savepoint_metadata(body))
    return commit


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "lakedex"


def _commit(snapshot: Snapshot, instant: str | None) -> str:
    commits = snapshot.timeline.completed(WRITE_ACTIONS)
    if not commits:
        raise InvalidInputError(f"{snapshot.base_path} has no commit yet, so there is nothing to keep")
    if instant is None:
        return commits[-1].requested
    if all(commit.requested != instant for commit in commits):
        raise InvalidInputError(
            f"{snapshot.base_path} has no commit {instant} on its active timeline; it goes from "
            f"{commits[0].requested} to {commits[-1].requested}"
        )
    return instant


def _files_at(snapshot: Snapshot, commit: str) -> dict[str, tuple[str, ...]]:
    """Names of the files that the table had at a commit, by partition.

    Raises:
        InvalidInputError: the cleaner may have taken some of them.
    """
    last = last_clean(snapshot.timeline)
    current = snapshot.instant
    if last is not None and commit != current:
        # HoodieSavepointException: beyond the lookup window. One that counted versions kept no commit but the last.
        kept = last.earliest or (current or "")
        if commit < kept:
            raise InvalidInputError(
                f"{snapshot.base_path}: files of the commit {commit} may have been cleaned; the earliest commit that "
                f"can have a savepoint is {kept}"
            )
    files: dict[str, list[str]] = {}
    for found in snapshot.at(commit).slices():
        names = [*([found.base_file.name] if found.base_file else []), *(log.name for log in found.log_files)]
        files.setdefault(found.partition, []).extend(names)
    for partition, names in files.items():
        present = {entry.name for entry in list_folder(snapshot.storage, snapshot.base_path, partition)}
        missing = sorted(set(names) - present)
        if missing:
            raise InvalidInputError(
                f"{snapshot.base_path}: {join_path(partition, missing[0])} of the commit {commit} is gone, so it "
                "cannot have a savepoint"
            )
    return {partition: tuple(sorted(names)) for partition, names in files.items()}


def list_savepoints(snapshot: Snapshot) -> pa.Table:
    """Savepoints, oldest first: commit, user, comment, time, and how many files in how many partitions they keep."""
    rows = []
    for instant in snapshot.timeline.completed({"savepoint"}):
        saved = snapshot.timeline.savepoint_metadata(instant)
        rows.append(
            {
                "instant": instant.requested,
                "user": saved.by,
                "comment": saved.comment,
                "made_at": saved.at,
                "files": sum(map(len, saved.files.values())),
                "partitions": len(saved.files),
            }
        )
    return pa.Table.from_pylist(rows, _SAVEPOINTS)


def delete_savepoint(handle: TableHandle, options: WriteOptions, instant: str) -> None:
    """Let cleaners take the files of a savepoint; see :meth:`lakedex.Table.delete_savepoint`."""
    require_exclusive_create(handle.storage, handle.base_path)
    with table_lock(handle.storage, handle.base_path, options) as lock:
        timeline = tidy(handle, options, lock).snapshot.timeline
        found = next((i for i in timeline.completed({"savepoint"}) if i.requested == instant), None)
        if found is None:
            known = ", ".join(sorted(savepoint_times(timeline))) or "none"
            raise InvalidInputError(f"{handle.base_path} has no savepoint {instant}; it has {known}")
        revert_completed(timeline, found)
        remove_pending(timeline, replace(found, state=State.INFLIGHT, completed=None))
