"""A table as a stream: the rows of one state, then the rows that each commit inserted or updated, each once.

A stream's position is a commit, by the time that ranges of :mod:`lakedex.scan.incremental` go by: completion time, in
tables before version 8 requested time. Unlike a range it reads each commit by itself, from the files that this commit
wrote, so that the rows do not depend on where one batch ends and the next begins. Rows that a later commit of the same
batch has updated or deleted are there too; deletes are not.

On merge-on-read tables a commit's rows are those of the merged slices that it wrote to, as of its completion: whole
rows where it has written partial updates, and none that came too late. Compactions have no rows of their own.

Before version 8 a commit may complete out of turn, so a stream waits before a write that is still open. From version 8
on a commit is never earlier than those that are complete.

Memory: the file list of one state or one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakedex.codec.table_paths import check_instant
from lakedex.errors import InvalidInputError, LakedexError, SchemaMismatchError
from lakedex.expr.nodes import Predicate
from lakedex.expr.parser import bind
from lakedex.expr.terms import BoundPredicate
from lakedex.layout.file_slice import FileSlice
from lakedex.scan.incremental import (
    Commit,
    active_commits,
    archived_commits,
    moment_of,
    require_commits_in_rows,
    state_of,
    written_files,
)
from lakedex.scan.slice_reader import SliceReader, iter_slice_rows
from lakedex.scan.time_travel import require_versions
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.instant import plus_millis
from lakedex.types import COMMIT_TIME, TableType

__all__ = [
    "LATEST",
    "Limits",
    "Position",
    "Start",
    "StreamFiles",
    "TableStream",
    "admitted",
    "files_between",
    "first_position",
    "iter_stream_rows",
    "newest_position",
]


LATEST = "latest"
"""The start of a stream that has only what is committed after it."""


_SERVICES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT"})
"""``WriteOperationType`` of commits that only move rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a stream begins; both None reads all rows first.

    Attributes:
        at: an instant or a time, the first commit that counts; :data:`LATEST` for the next one.
        after: an instant or a time, after which commits count, as ``since`` of :meth:`lakedex.Table.changes`.
    """

    at: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one batch takes; None for any number. A batch has at least one file, if there is one."""

    commits: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The point up to which a stream has delivered.

    Attributes:
        kind: ``begin`` for nothing; ``state`` for rows of the state at ``time``; ``commit`` for all up to a commit.
        time: of the last commit in the state, or of the commit.
        instant: that commit.
        files: how many files of the state or of that commit; None for all.
        highest: the largest instant that was delivered; see :func:`_require_kept`.
    """

    kind: str
    time: str = ""
    instant: str = ""
    files: int | None = None
    highest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, as Spark keeps them in a checkpoint."""
        return {"kind": self.kind, "time": self.time, "instant": self.instant, "files": self.files or 0} | {
            "whole": self.files is None,
            "highest": self.highest,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Position:
        """The inverse of :meth:`to_json`.

        Raises:
            InvalidInputError: values that are no position.
        """
        kind, files, whole = values.get("kind"), values.get("files"), values.get("whole")
        texts = [values.get(name) for name in ("time", "instant", "highest")]
        good = kind in ("begin", "state", "commit") and isinstance(whole, bool) and type(files) is int and files >= 0
        if not good or not all(isinstance(text, str) and (not text or text.isdigit()) for text in texts):
            raise InvalidInputError(f"the checkpoint has an offset that is not one of lakedex: {dict(values)!r}")
        time, instant, highest = map(str, texts)
        found = None if whole else int(files or 0)
        return cls(kind=str(kind), time=time, instant=instant, files=found, highest=highest)

    @property
    def order(self) -> tuple[str, str]:
        """By which commits are before or after it."""
        return (self.time, self.instant)


BEGIN = Position(kind="begin")


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """Some files of a batch.

    Attributes:
        instant: the commit whose rows are read; None for all rows of the files.
        slices: the files.
        merge: how their log files are merged; None for a table without any.
    """

    instant: str | None
    slices: tuple[FileSlice, ...]
    merge: MergeSettings | None = None


def first_position(newest: Snapshot, start: Start) -> Position:
    """The position of a stream that has delivered nothing; the same however often it is asked.

    Raises:
        InvalidInputError: a start that is neither an instant nor a time.
        UnsupportedFeatureError: a table without the instants of its rows, or with rows that lakedex cannot merge.
    """
    require_commits_in_rows(newest)
    _merging(newest, newest)
    value = start.after if start.after is not None else start.at
    if value is None or value.strip().lower() == LATEST:
        return BEGIN
    commits = active_commits(newest)
    time = moment_of(newest, value, commits, "the start of the stream")
    if start.after is None:
        return Position(kind="commit", time=time)
    if any(commit.requested == value.strip() for commit in commits):
        return Position(kind="commit", time=time, instant=value.strip())
    return Position(kind="commit", time=plus_millis(time, 1))


def newest_position(newest: Snapshot) -> Position:
    """The position after the last commit that can be delivered."""
    commits = _settled(newest)
    if not commits:
        return BEGIN
    highest = max(commit.requested for commit in commits)
    return Position(kind="commit", time=commits[-1].time, instant=commits[-1].requested, highest=highest)


def admitted(
    newest: Snapshot, position: Position, start: Start, limits: Limits, until: Position | None = None
) -> Position:
    """Where the next batch ends; ``position`` itself if there is nothing to read.

    Args:
        newest: the table now.
        position: where the batch begins.
        start: of the stream.
        limits: of the batch.
        until: what is committed after it waits; None for no end.

    Raises:
        InvalidInputError: a commit that was delivered is gone, or one that was not was archived or cleaned.
    """
    _require_kept(newest, position)
    if position.kind == "begin":
        last = newest_position(newest) if until is None else until
        if start.at is not None:
            return last if last != BEGIN else replace(last, kind="commit")
        if last == BEGIN:
            return position
        position = replace(last, kind="state", files=0)
    if position.kind == "state" and position.files is not None:
        count = len(_state_files(newest, position))
        done = count if limits.files is None else position.files + limits.files
        return replace(position, files=done if done < count else None)
    end, taken, files = position, 0, limits.files
    for commit in _commits_after(newest, position, until):
        done = position.files or 0 if commit.requested == position.instant else 0
        left = len(_written(newest, commit)) - done
        if limits.commits is not None and taken >= limits.commits:
            break
        some = left if files is None else min(left, files)
        if left and not some:
            break
        end = Position(
            kind="commit",
            time=commit.time,
            instant=commit.requested,
            files=None if some == left else done + some,
            highest=max(end.highest, commit.requested),
        )
        if some < left:
            break
        taken, files = taken + 1, None if files is None else files - some
    return end


def files_between(newest: Snapshot, start: Position, end: Position, begin: Start) -> list[StreamFiles]:
    """The files of a batch, in the same order however often it is asked.

    Args:
        newest: the table now.
        start: where the batch begins.
        end: where it ends: by :func:`admitted` or, of a batch without limits, by :func:`newest_position`.
        begin: where the stream began.

    Raises:
        InvalidInputError: a commit that was delivered is gone, or one of the batch was archived, cleaned or undone.
    """
    if end.kind == "begin" or start == end:
        return []
    _require_kept(newest, start)
    _require_kept(newest, end)
    if start.kind == "begin" and begin.at is not None:
        return []
    if start.kind == "begin" or end.kind == "state":
        if start.kind == "commit" or (start.kind == "state" and start.order != end.order):
            raise InvalidInputError(f"the checkpoint's offsets do not go together: {start} and {end}")
        done = (start.files or 0) if start.kind == "state" else 0
        slices = _state_files(newest, end)[done : end.files]
        merge = _merging(newest, newest.completed_by(end.time))
        return [StreamFiles(None, tuple(slices), merge)] if slices else []
    found = []
    for commit in _commits_after(newest, start, end):
        if not _written(newest, commit):
            continue
        state, missing = state_of(newest, [commit], commit.time)
        if missing:
            raise _gone(newest, f"the cleaner took {len(missing)} files of commit {commit.requested}")
        first = start.files or 0 if commit.requested == start.instant else 0
        last = end.files if commit.requested == end.instant else None
        if chosen := _in_order(state)[first:last]:
            found.append(StreamFiles(commit.requested, tuple(chosen), _merging(newest, state)))
    return found


def iter_stream_rows(reader: SliceReader, files: StreamFiles) -> Iterator[pa.RecordBatch]:
    """The rows of some files that belong to a stream; in a task.

    Args:
        reader: what is wanted of each row.
        files: a share of a batch.
    """
    reader = replace(reader, merge=files.merge)
    if files.instant is not None:
        of_commit = bind(
            f"{COMMIT_TIME} = '{check_instant(files.instant, str(reader.files))}'", reader.table_columns
        ).predicate
        wanted = None if reader.predicate is None else reader.predicate.predicate
        reader = replace(reader, predicate=BoundPredicate.of(wanted, of_commit))
    for item in files.slices:
        yield from iter_slice_rows(reader, item)


class TableStream:
    """A stream while its query runs: the newest state of the table, and how rows are read.

    Attributes:
        reader: what is wanted of each row; it goes to tasks.
        limits: of a batch, where the trigger wants limits.
    """

    def __init__(
        self,
        newest: Snapshot,
        names: Sequence[str],
        start: Start,
        limits: Limits,
        *,
        predicate: Predicate | None = None,
        use_indexes: bool = True,
    ) -> None:
        whole = read_columns(newest.schema)
        self.limits = limits
        self.reader = SliceReader(
            files=newest.files,
            table_columns=whole,
            names=tuple(names),
            predicate=BoundPredicate.of(predicate),
            use_indexes=use_indexes,
        )
        self._reads_all = set(newest.schema.names) <= set(names)
        self._newest = newest
        self._start = start
        self._until: Position | None = None
        self._idle: tuple[Snapshot, Position] | None = None

    def newest(self) -> Snapshot:
        """The table now.

        Raises:
            SchemaMismatchError: a column was added or changed, which only a restart of the query can take up.
        """
        self._newest = newest = self._newest.refreshed()
        known = self.reader.table_columns
        for column in read_columns(newest.schema):
            if (self._reads_all or column.name in self.reader.names) and column not in known:
                raise SchemaMismatchError(
                    f"table {newest.config.name}: column {column.name!r} was added or changed after the query began;"
                    " start the query again, with the same checkpoint, to read it",
                    column=column.name,
                )
        return newest

    def first(self) -> Position:
        """See :func:`first_position`."""
        return first_position(self.newest(), self._start)

    def last(self) -> Position:
        """See :func:`newest_position`."""
        return newest_position(self.newest())

    def stop_at_last(self) -> None:
        """Let what is committed from now on wait for another run of the query."""
        self._until = self.last()

    def admitted(self, position: Position, *, limited: bool = True) -> Position:
        """See :func:`admitted`; nothing is read where nothing has changed since the last call."""
        newest = self.newest()
        if self._idle is not None and self._idle[0] is newest and self._idle[1] == position:
            return position
        end = admitted(newest, position, self._start, self.limits if limited else Limits(), self._until)
        self._idle = (newest, position) if end == position else None
        return end

    def files(self, start: Position, end: Position) -> list[StreamFiles]:
        """See :func:`files_between`."""
        return files_between(self.newest(), start, end, self._start)


# ------------------------------------------------------------------------------------------------------- commits


def _by_time(commits: Sequence[Commit]) -> list[Commit]:
    return sorted(commits, key=lambda commit: (commit.time, commit.requested))


def _settled(newest: Snapshot) -> list[Commit]:
    """Commits before which none will appear any more, by time."""
    commits = _by_time(active_commits(newest))
    if newest.goes_by_completion:
        return commits
    timeline = newest.timeline
    pending = [i.requested for i in timeline.pending(WRITE_ACTIONS) if not timeline.is_clustering(i)]
    return [commit for commit in commits if not pending or commit.requested < min(pending)]


def _commits_after(newest: Snapshot, start: Position, end: Position | None) -> list[Commit]:
    """Commits behind a position, the one of which only some files were delivered included.

    Raises:
        InvalidInputError: some are archived, so that their files are not known any more.
    """
    old = _inside(archived_commits(newest, start.time), start, end)
    if old:
        raise _gone(
            newest, f"{len(old)} commits that it has not delivered are archived, the first is {old[0].requested}"
        )
    return _inside(_settled(newest), start, end)


def _inside(commits: Sequence[Commit], start: Position, end: Position | None) -> list[Commit]:
    """Commits between two positions, by time."""
    found = _by_time(commits) if end is None else [c for c in _by_time(commits) if (c.time, c.requested) <= end.order]
    partly = start.instant if start.files is not None else None
    return [commit for commit in found if (commit.time, commit.requested) > start.order or commit.requested == partly]


def _written(newest: Snapshot, commit: Commit) -> Mapping[tuple[str, str], str]:
    """Files with rows of the commit's own."""
    if newest.timeline.commit_metadata(commit.requested).operation in _SERVICES:
        return {}
    return written_files(newest, [commit])


def _state_files(newest: Snapshot, position: Position) -> list[FileSlice]:
    """The files of a state, in the order in which a stream takes them."""
    if _inside(archived_commits(newest, position.time), replace(position, files=None), None):
        raise _gone(newest, f"commits after {position.instant}, with whose rows it began, are archived")
    try:
        state = require_versions(newest.completed_by(position.time), newest)
    except InvalidInputError as error:
        raise _gone(
            newest, f"the cleaner took files of the state at {position.instant}, with which it began"
        ) from error
    return _in_order(state)


def _in_order(state: Snapshot) -> list[FileSlice]:
    return sorted(state.slices(), key=lambda item: (item.partition, item.file_id))


def _merging(newest: Snapshot, state: Snapshot) -> MergeSettings | None:
    """How log files of a state are merged, in the columns that the table has now; None for copy-on-write."""
    if newest.config.table_type != TableType.MERGE_ON_READ:
        return None
    return replace(MergeSettings.of(state), schema=read_columns(newest.schema))


# -------------------------------------------------------------------------------------------------------- errors


def _require_kept(newest: Snapshot, position: Position) -> None:
    """Refuse to go on after a commit that was delivered and is not in the table any more.

    Rollbacks and restores take commits from the largest instant downwards, so the largest one shows it.
    """
    if position.highest and not newest.timeline.is_committed(position.highest):
        raise InvalidInputError(
            f"{newest.files}: commit {position.highest}, which the stream has delivered, was rolled back or"
            " restored away. Take its rows out of where the stream wrote them, and start a new stream: with a new"
            " checkpointLocation, and startingInstant for its first commit"
        )


def _gone(newest: Snapshot, what: str) -> LakedexError:
    """The error for a stream that is too far behind."""
    first = _first_left(newest)
    advice = "without startingInstant it begins with all rows"
    if first is not None:
        advice = f"the first instant left is {first!r}, as startingInstant; {advice}"
    return InvalidInputError(
        f"{newest.files}: the stream cannot go on: {what}. Start a new one with a new checkpointLocation: {advice}."
        " hoodie.clean.commits.retained keeps files longer"
    )


def _first_left(newest: Snapshot) -> str | None:
    """The first commit from which on the files of all are there."""
    found = None
    for commit in reversed(_settled(newest)):
        if _written(newest, commit) and state_of(newest, [commit], commit.time)[1]:
            break
        found = commit.requested
    return found
