"""How an instant comes to be: requested, inflight, completed, each a new file that nobody else can create.

Which states an action has, and the names of their files, is the table ``_FILES``. The files of both timeline layouts
are called alike (InstantFileNameGeneratorV1 and V2), but for the completed one, which has the completion time in its
name in layout 2 only. A state needs its predecessor (ActiveTimelineV2.transitionPendingState). Completing takes effect
in one put-if-absent, and when that call fails in a way that says nothing about its effect,
:class:`~lakedex.errors.CommitStateUnknownError` says just that.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from lakedex.errors import CommitConflictError, CommitError, CommitStateUnknownError, LakedexError
from lakedex.io.storage import Storage
from lakedex.timeline.instant import Instant, State, comparable_action, parse_instant_name
from lakedex.timeline.timeline import Timeline

__all__ = ["complete", "create_inflight", "create_requested", "remove_file", "remove_pending", "revert_completed"]


@dataclass(frozen=True, slots=True)
class _Files:
    """Name endings of an action's files."""

    requested: str
    inflight: str
    completed: str


_FILES: Final = {
    "commit": _Files(".commit.requested", ".inflight", ".commit"),
    "deltacommit": _Files(".deltacommit.requested", ".deltacommit.inflight", ".deltacommit"),
    "replacecommit": _Files(".replacecommit.requested", ".replacecommit.inflight", ".replacecommit"),
    "clustering": _Files(".clustering.requested", ".clustering.inflight", ".replacecommit"),
    "compaction": _Files(".compaction.requested", ".compaction.inflight", ".commit"),
    "logcompaction": _Files(".logcompaction.requested", ".logcompaction.inflight", ".deltacommit"),
    "clean": _Files(".clean.requested", ".clean.inflight", ".clean"),
    "rollback": _Files(".rollback.requested", ".rollback.inflight", ".rollback"),
    "restore": _Files(".restore.requested", ".restore.inflight", ".restore"),
    "indexing": _Files(".indexing.requested", ".indexing.inflight", ".indexing"),
    "savepoint": _Files("", ".savepoint.inflight", ".savepoint"),
}
"""A savepoint has no requested state."""

_LAYOUT_2_ONLY: Final = frozenset({"clustering"})
"""In layout 1 clustering is a replace commit from the start."""

_NO_EFFECT: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.EMFILE,
        errno.ENFILE,
    }
)
"""Errors by which the operating system says that nothing was created."""


def _files_of(timeline: Timeline, action: str) -> _Files:
    files = _FILES.get(action)
    if files is None or (timeline.layout == 1 and action in _LAYOUT_2_ONLY):
        raise CommitError(f"'{action}' is no action that lakedex takes on a timeline of layout {timeline.layout}")
    return files


def _conflict(what: str, requested: str, theirs: str | None, *, retryable: bool) -> CommitConflictError:
    return CommitConflictError(what, ours=requested, theirs=theirs, file_groups=frozenset(), retryable=retryable)


def _gone(path: str, requested: str, name: str) -> CommitConflictError:
    what = (
        f"{path}/{name} is gone: another writer took {requested} for dead and rolled it back. Nothing was committed; "
        "run the write again"
    )
    return _conflict(what, requested, None, retryable=True)


def _completed_by_other(path: str, requested: str, name: str) -> CommitConflictError:
    what = f"{path}/{name} exists: the instant {requested} is completed already"
    return _conflict(what, requested, requested, retryable=False)


def _unknown(path: str, requested: str, error: Exception) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"{path}: completing the instant {requested} failed ({type(error).__name__}: {error}), and it may still take "
        "effect. Look whether the file exists before you write again; lakedex does not try again",
        instant=requested,
    )


def _create_pending(timeline: Timeline, instant: Instant, body: bytes) -> Instant:
    path = timeline.path
    try:
        timeline.storage.create(f"{path}/{instant.file_name}", body)
    except FileExistsError as error:
        what = f"{path}/{instant.file_name} exists: another writer uses the instant {instant.requested}"
        raise _conflict(what, instant.requested, instant.requested, retryable=True) from error
    return instant


def create_requested(timeline: Timeline, requested: str, action: str, body: bytes = b"") -> Instant:
    """Announce an action.

    Raises:
        CommitConflictError: Another writer has the same instant.
    """
    ending = _files_of(timeline, action).requested
    if not ending:
        raise CommitError(f"a {action} has no requested state")
    name = f"{requested}{ending}"
    return _create_pending(timeline, Instant(requested, action, State.REQUESTED, None, name), body)


def create_inflight(timeline: Timeline, instant: Instant, body: bytes = b"") -> Instant:
    """Start the work of a requested action.

    Raises:
        CommitConflictError: Another writer has rolled the requested instant back, or started it as well.
    """
    files = _files_of(timeline, instant.action)
    name = f"{instant.requested}{files.requested}"
    if files.requested and not timeline.storage.exists(f"{timeline.path}/{name}"):
        raise _gone(timeline.path, instant.requested, name)
    inflight = Instant(instant.requested, instant.action, State.INFLIGHT, None, f"{instant.requested}{files.inflight}")
    return _create_pending(timeline, inflight, body)


def complete(timeline: Timeline, instant: Instant, completion: str, body: bytes) -> Instant:
    """Complete an inflight action; call it under the table lock, with a fresh time of the clock.

    Layout 1 does not keep that time: there the completed file's age tells when it was.

    Once it is called, files of the write may be removed only after one of the first two errors.

    Raises:
        CommitConflictError: The instant was rolled back or completed by another writer. It did not take effect.
        CommitError: The file could not be created. It did not take effect.
        CommitStateUnknownError: The call failed and nobody can say whether it took or will take effect.
            Leave all files of the write as they are.
    """
    requested, files = instant.requested, _files_of(timeline, instant.action)
    if not (completion.isdigit() and completion > requested):
        raise CommitError(f"completion time '{completion}' is not later than the instant {requested}; clock or zone?")
    action = comparable_action(instant.action)
    storage = timeline.storage
    _check_inflight(storage, timeline.path, requested, action, files)
    times = requested if timeline.layout == 1 else f"{requested}_{completion}"
    done = Instant(requested, action, State.COMPLETED, completion, f"{times}{files.completed}")
    path = f"{timeline.path}/{done.file_name}"
    try:
        storage.create(path, body)
    except Exception as error:
        _judge_failure(storage, path, requested, body, error)
    return done


def _check_inflight(storage: Storage, path: str, requested: str, action: str, files: _Files) -> None:
    """One listing: our inflight file is there, and no completed one with whatever completion time."""
    inflight = False
    for info in storage.list(path):
        found = parse_instant_name(info.name) if info.name.startswith(requested) else None
        if found is None or found.requested != requested:
            continue
        inflight = inflight or info.name == f"{requested}{files.inflight}"
        if found.is_completed and found.action == action:
            raise _completed_by_other(path, requested, info.name)
    if not inflight:
        raise _gone(path, requested, f"{requested}{files.inflight}")


def _judge_failure(storage: Storage, path: str, requested: str, body: bytes, error: Exception) -> None:
    """Return if our file is there all the same; else raise what is known.

    A client that repeats a request whose answer was lost meets its own file; bodies name files by random ids, so
    equal bytes are ours.
    """
    exists = isinstance(error, FileExistsError)
    try:
        found = storage.read(path)
    except FileNotFoundError:
        no_effect = error.errno in _NO_EFFECT if isinstance(error, OSError) else isinstance(error, LakedexError)
        if no_effect:
            raise CommitError(f"{path}: the commit could not be written ({error}); it did not take effect") from error
        raise _unknown(path, requested, error) from error
    except Exception:
        raise _unknown(path, requested, error) from error
    if found == body:
        return
    if exists:
        folder, _, name = path.rpartition("/")
        raise _completed_by_other(folder, requested, name) from error
    raise _unknown(path, requested, error) from error


def remove_file(timeline: Timeline, name: str) -> None:
    """Remove one file of an instant.

    Raises:
        CommitError: The name is that of something else.
    """
    if parse_instant_name(name) is None:
        raise CommitError(f"{timeline.path}: {name!r} is no file of an instant and is not deleted")
    timeline.storage.delete(f"{timeline.path}/{name}")


def remove_pending(timeline: Timeline, instant: Instant) -> None:
    """Remove the pending files of a rolled-back instant: inflight first, so that a crash leaves it pending."""
    files = _files_of(timeline, instant.action)
    remove_file(timeline, f"{instant.requested}{files.inflight}")
    if files.requested:
        remove_file(timeline, f"{instant.requested}{files.requested}")


def revert_completed(timeline: Timeline, instant: Instant, requested_body: bytes = b"") -> None:
    """Make a completed instant pending again: what it did counts no more. Call under the table lock.

    Its pending files are put in place first if they are missing, since an instant that is on the timeline in no state
    may pass for an archived one.
    """
    files = _files_of(timeline, instant.action)
    pending = {
        f"{instant.requested}{name}": state
        for name, state in ((files.requested, State.REQUESTED), (files.inflight, State.INFLIGHT))
        if name
    }
    for name, state in pending.items():
        if not timeline.storage.exists(f"{timeline.path}/{name}"):
            body = requested_body if state is State.REQUESTED else b""
            _create_pending(timeline, Instant(instant.requested, instant.action, state, None, name), body)
    remove_file(timeline, instant.file_name)
