"""Table services and the taking back of commits, as methods; every method delegates.

What keeps a table in order, and what takes commits back. Every method delegates.

What keeps a table's metadata and timeline small: it runs by itself after writes, and here on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakedex.maintenance.clean import CleanResult, clean
from lakedex.maintenance.recovery import RestoreResult
from lakedex.maintenance.rollback import RollbackResult, delete_savepoint, list_savepoints, restore, rollback, savepoint
from lakedex.maintenance.schedule import ArchivalResult, CompactionResult, archive_table, compact_metadata
from lakedex.options import WriteOptions
from lakedex.snapshot.snapshot import TableContext
from lakedex.write.session import Session

__all__ = ["KeptUp", "Serviced"]


class Serviced:
    """A part of :class:`lakedex.Table`."""

    _handle: TableContext
    _session: Session

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "") -> WriteOptions:
        raise NotImplementedError

    def clean(
        self,
        *,
        dry_run: bool = False,
        commits: int | None = None,
        hours: int | None = None,
        versions: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CleanResult:
        """Delete files that only old commits need.

        Every write does so by itself for the partitions that it can tell (``hoodie.clean.automatic``); this looks at
        all of them. Time travel to a commit whose files are gone is an error then. The newest version of each file
        group stays, and so do files that a savepoint names or a pending write may need.

        Args:
            dry_run: only say what would be deleted.
            commits: keep what the last so many commits need (``hoodie.clean.commits.retained``, 10).
            hours: keep what commits of the last so many hours need.
            versions: keep so many versions of each file group. Queries that run may lose files with this one.
            options: ``hoodie.clean.*`` options of this call.

        Raises:
            InvalidInputError: several of the three, or a number below 1.
            CommitConflictError: another clean is under way.
        """
        parsed = self._parsed(options, "clean")
        return clean(self._handle, parsed, dry_run=dry_run, commits=commits, hours=hours, versions=versions)

    def rollback(self, instant: str) -> RollbackResult:
        """Undo the last commit: its rows, its files, and what the indexes and the schema have of it.

        Also undoes a pending write whose writer died. An index that the commit took columns from does not get them
        back, and Java's list of columns with statistics loses those that the commit added.

        Raises:
            InvalidInputError: no such commit, later ones, a savepoint on it, or the cleaner took what it rewrote.
            CommitConflictError: somebody writes to the table.
        """
        result = rollback(self._handle, self._parsed(None), instant)
        self._session.refresh_views(self._handle.base_path)
        return result

    def savepoint(self, instant: str | None = None, *, comment: str = "", user: str = "") -> str:
        """Keep the files of a commit from cleaning, so that :meth:`restore` can go back to it.

        Args:
            instant: the commit; None for the last one.
            comment: why, for people.
            user: who; None for the name of this process's user.

        Returns:
            The commit, which is the savepoint's name.

        Raises:
            InvalidInputError: no such commit, one that has a savepoint, or one whose files may be gone.
        """
        return savepoint(self._handle, self._parsed(None), instant, comment, user)

    def savepoints(self) -> pa.Table:
        """The table's savepoints, oldest first."""
        return list_savepoints(self._handle.snapshot())

    def delete_savepoint(self, instant: str) -> None:
        """Remove a savepoint; cleaners may take its files then.

        Raises:
            InvalidInputError: there is none of this commit.
        """
        delete_savepoint(self._handle, self._parsed(None), instant)

    def restore(self, instant: str) -> RestoreResult:
        """Take the table back to a savepoint: all commits that completed after it are undone, for good.

        Nobody may write or query meanwhile. Should the process die, the next writer finishes the restore.

        Raises:
            InvalidInputError: there is no savepoint of this commit, or files of it are gone.
            CommitConflictError: somebody writes to the table.
        """
        result = restore(self._handle, self._parsed(None), instant)
        self._session.refresh_views(self._handle.base_path)
        return result


class KeptUp:
    """A part of :class:`lakedex.Table`."""

    _handle: TableContext

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "") -> WriteOptions:
        raise NotImplementedError

    def compact(self, *, options: Mapping[str, Any] | None = None) -> CompactionResult:
        """Merge the log files of the metadata table into base files now, as Hudi's compaction does.

        Writes do so by themselves every ``hoodie.metadata.compact.max.delta.commits`` (10) commits. The rows of a
        copy-on-write table have nothing to compact.

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write, or a pending log compaction of Hudi's.
            LockTimeoutError: another writer held the table's lock too long.
        """
        return compact_metadata(self._handle, self._parsed(options, "compact"))

    def archive(self, *, options: Mapping[str, Any] | None = None) -> ArchivalResult:
        """Move old instants from the active timelines to the archive now.

        Writes do so by themselves when there are more than ``hoodie.keep.max.commits`` (30) commits, down to
        ``hoodie.keep.min.commits`` (20).

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write.
            LockTimeoutError: another writer held the table's lock too long.
        """
        return archive_table(self._handle, self._parsed(options, "archive"))
