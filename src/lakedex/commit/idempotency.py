"""Make a repeated write a no-op: its ``txn=(application, batch)`` is kept in the commit's extra metadata.

Each commit of lakedex carries, under ``lakedex.txn``, the last batch of every application with the instant that wrote
it: ``{"app": [7, "20260101000000000"]}``. Hudi's commits do not carry it, so it is looked for from the newest commit
backwards, in the archived history too, until one has it. An entry whose instant was rolled back or restored away does
not count, and the search for its application goes on.

Memory: the entries of one commit, one an application.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from lakedex.errors import CorruptFileError, InvalidInputError, LakedexError
from lakedex.options import WriteOptions
from lakedex.reports import WriteResult
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.archived import archived_commits, archived_writes
from lakedex.types import Operation

__all__ = [
    "BATCHES_KEY",
    "DuplicateBatchError",
    "carried_batches",
    "checked_txn",
    "find_committed_batch",
    "last_batches",
    "next_batches",
    "require_new",
    "result_of",
]


BATCHES_KEY = "lakedex.txn"
"""Key of the commit's extra metadata."""


Batches = Mapping[str, tuple[int, str]]
"""Application → its last batch, and the instant that wrote it."""


class DuplicateBatchError(LakedexError):
    """The write's batch is in the table already: the write ends without doing anything. Never reaches a user."""

    note: str


def checked_txn(txn: object) -> tuple[str, int] | None:
    """Check the ``txn=`` of a call.

    Raises:
        InvalidInputError: not a name and a number.
    """
    if txn is None:
        return None
    pair = tuple(txn) if isinstance(txn, tuple | list) else ()
    if (
        len(pair) != 2
        or not isinstance(pair[0], str)
        or not pair[0]
        or not isinstance(pair[1], int)
        or isinstance(pair[1], bool)
    ):
        raise InvalidInputError(f"txn is (application, batch), a name and a whole number, not {txn!r}")
    return pair[0], pair[1]


def find_committed_batch(handle: TableContext, options: WriteOptions, operation: Operation) -> WriteResult | None:
    """The result of a write whose batch is in the table already; None if it has to be done."""
    if options.txn is None:
        return None
    try:
        require_new(handle.snapshot(), options.txn)
    except DuplicateBatchError as done:
        return result_of(done, options.notes, operation)
    return None


def result_of(done: DuplicateBatchError, notes: Sequence[str], operation: Operation) -> WriteResult:
    """The result of a write whose batch is in the table already."""
    return WriteResult(instant=None, operation=operation.value, notes=(*notes, done.note))


def require_new(snapshot: Snapshot, txn: tuple[str, int]) -> None:
    """Look whether a batch is still to be done.

    Raises:
        DuplicateBatchError: this batch of the application, or a later one, is in the table.
    """
    application, batch = txn
    known = last_batches(snapshot).get(application)
    if known is not None and known[0] >= batch:
        last, instant = known
        which = f"commit {instant} wrote it" if last == batch else f"commit {instant} wrote batch {last}, a later one"
        note = f"batch {batch} of {application!r} is in the table already ({which}): nothing was done"
        raise DuplicateBatchError(f"{snapshot.files}: {note}", note=note)


def next_batches(snapshot: Snapshot, txn: tuple[str, int] | None, instant: str) -> dict[str, str]:
    """The entry of the extra metadata of a commit in progress. Call under the table lock.

    A write without a batch passes on what is known. Where that cannot be read it says nothing, and a later write looks
    further back.

    Raises:
        DuplicateBatchError: another writer has done the batch.
    """
    if txn is not None:
        require_new(snapshot, txn)
    try:
        known = dict(last_batches(snapshot))
    except LakedexError:
        if txn is not None:
            raise
        return {}
    if txn is not None:
        known[txn[0]] = (txn[1], instant)
    return {BATCHES_KEY: json.dumps({name: list(entry) for name, entry in sorted(known.items())})}


def last_batches(snapshot: Snapshot) -> Batches:
    """The last batch of each application, as far as its commit still counts.

    Raises:
        CorruptFileError: a commit, or the archived history, that cannot be read.
    """
    found: dict[str, tuple[int, str]] = {}
    undone: set[str] = set()
    for position, entries in enumerate(carried_batches(snapshot)):
        for application, (batch, instant) in entries.items():
            if application in found or (position and application not in undone):
                continue
            if snapshot.timeline.is_committed(instant):
                found[application] = (batch, instant)
                undone.discard(application)
            else:
                undone.add(application)
        if not undone:
            break
    return found


def carried_batches(snapshot: Snapshot) -> Iterator[Batches]:
    """The batches that commits carry, from the commit that completed last on."""
    timeline = snapshot.timeline
    commits = timeline.completed(WRITE_ACTIONS)
    for commit in sorted(commits, key=lambda instant: (instant.completed or instant.requested, instant), reverse=True):
        text = timeline.commit_notes(commit).extra.get(BATCHES_KEY)
        if text is not None:
            yield _decoded(text, f"{timeline.path}/{commit.file_name}")
    folder = snapshot.history_path
    if timeline.layout == 1:
        # Newest first; of each the map alone is kept.
        writes = archived_writes(snapshot.files.storage, folder)
        texts = [(i.requested, m.extra[BATCHES_KEY]) for i, m in writes if m.extra.get(BATCHES_KEY)]
        yield from (_decoded(text, folder) for _, text in sorted(texts, reverse=True))
        return
    for metadata in archived_commits(snapshot.files.storage, folder):
        text = metadata.extra.get(BATCHES_KEY)
        if text is not None:
            yield _decoded(text, folder)


def _decoded(text: str, path: str) -> Batches:
    try:
        return {str(name): (int(batch), str(instant)) for name, (batch, instant) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(path, 0, f"batches in {BATCHES_KEY}", str(error)) from error
