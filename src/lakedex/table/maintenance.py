"""``Table.maintenance``: services that keep a table in order, and the undoing of commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakedex.display.result_table import ResultTable
from lakedex.errors import InvalidInputError
from lakedex.io.retries import with_one_budget
from lakedex.maintenance.clean import CleanResult, clean
from lakedex.maintenance.compaction import TableCompaction, compact_table, unschedule
from lakedex.maintenance.metadata_rebuild import rebuild_metadata
from lakedex.maintenance.recovery import RestoreResult
from lakedex.maintenance.repair import RepairResult, repair
from lakedex.maintenance.rollback import (
    RollbackResult,
    delete_savepoint,
    list_savepoints,
    plan_restore,
    plan_rollback,
    restore,
    rollback,
    savepoint,
)
from lakedex.maintenance.schedule import (
    ArchivalResult,
    CompactionResult,
    archive_table,
    compact_metadata,
    plan_archival,
    plan_metadata_compaction,
)
from lakedex.maintenance.validate_table import validate_table
from lakedex.reports import RebuildResult, TableReport, WriteResult
from lakedex.table.session import OpenedTable, Options, Txn, Where, as_names, with_notes
from lakedex.types import Operation, Progress
from lakedex.write.alter_schema import rewrite_files, set_properties
from lakedex.write.clustering import ClusteringResult, cluster

__all__ = ["Maintenance"]


@with_one_budget
@dataclass(frozen=True, slots=True, repr=False)
class Maintenance:
    """The services of one table; made by :attr:`lakedex.Table.maintenance`."""

    _table: OpenedTable

    # ------------------------------------------------------------------------------------------------------ services

    def clean(
        self,
        *,
        dry_run: bool = False,
        commits: int | None = None,
        hours: int | None = None,
        versions: int | None = None,
        options: Options = None,
    ) -> CleanResult:
        """Delete files that only old commits need.

        Every write does so for the partitions that it changed (``hoodie.clean.automatic``); this call examines all of
        them. Time travel to a commit whose files are deleted is an error from then on. The newest version of each file
        group stays, and so do files that a savepoint names or a pending write may need.

        Args:
            dry_run: only report the files that would be deleted.
            commits: keep the files of this number of last commits (``hoodie.clean.commits.retained``, 10).
            hours: keep the files of the commits of this number of last hours.
            versions: keep this number of versions of each file group. Running queries may lose files with this one.
            options: ``hoodie.clean.*`` options of this call.

        Returns:
            The files deleted, their size, and the earliest commit that can still be read.

        Raises:
            InvalidInputError: several of the three policies, or a number below 1.
            CommitConflictError: another clean is under way.

        Example:
            >>> table.maintenance.clean(commits=1, dry_run=True).files
            0
        """
        parsed = self._table.parse(options, "clean")
        return clean(self._table.context, parsed, dry_run=dry_run, commits=commits, hours=hours, versions=versions)

    def archive(self, *, dry_run: bool = False, options: Options = None) -> ArchivalResult:
        """Move old instants from the active timelines to the archive now.

        Writes do so when there are more than ``hoodie.keep.max.commits`` (30) commits, down to
        ``hoodie.keep.min.commits`` (20).

        Args:
            dry_run: only report the instants that would be archived.
            options: ``hoodie.keep.*`` and other options of this call.

        Returns:
            The numbers of instants archived.

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write.
            LockTimeoutError: another writer held the table's lock too long.

        Example:
            >>> print(table.maintenance.archive(options={"hoodie.keep.max.commits": 40}))  # doctest: +ELLIPSIS
            archive: ...
        """
        run = plan_archival if dry_run else archive_table
        return run(self._table.context, self._table.parse(options, "archive"))

    def compact(
        self,
        *,
        plan_only: bool = False,
        instant: str | None = None,
        target_io: int | None = None,
        partitions: Sequence[str] | None = None,
        dry_run: bool = False,
        options: Options = None,
    ) -> TableCompaction:
        """Merge the log files of a merge-on-read table into new base files.

        Writes do so by themselves, as with Hudi's Spark writers: at the fifth delta commit since the last compaction
        (``hoodie.compact.inline.max.delta.commits``), unless ``hoodie.compact.inline`` is false. Pending plans are run
        first, those of Hudi too. Rows keep their commit times, so no query of changes shows them again; other writers
        go on meanwhile.

        Args:
            plan_only: only write a plan to the timeline, which any call, or Hudi, runs later.
            instant: run this plan and nothing else; None runs all plans and a new one.
            target_io: MiB that a new plan reads and writes at most, but for its last file group
                (``hoodie.compaction.target.io``, 512,000).
            partitions: partition paths that a new plan looks at; None for all.
            dry_run: only report the files that would be merged, without those that came after a pending plan.
            options: ``hoodie.*`` options of this call.

        Returns:
            The compactions, the rows that log files changed, and the size of the files read and written.

        Raises:
            InvalidInputError: a copy-on-write table, or ``instant`` is no pending compaction.
            UnsupportedFeatureError: log files that lakedex does not merge, or a table that it does not write.
            CommitConflictError: another process runs the plan, or the table's schema was changed meanwhile.
            CommitError: a plan names a file that does not exist, or leaves one out.

        Example:
            >>> logged = Table.create(folder / "logged", trips.schema, record_key="id", table_type="mor")
            >>> [logged.upsert(trips).files_written for commit in ("base file", "log file")]
            [1, 1]
            >>> logged.maintenance.compact().log_files
            1
        """
        parsed = self._table.parse(options, "compact")
        if target_io is not None:
            if target_io < 1:
                raise InvalidInputError(f"target_io is a number of MiB from 1 up, not {target_io}")
            parsed = replace(parsed, compaction=replace(parsed.compaction, target_io=target_io))
        result = compact_table(
            self._table.context,
            parsed,
            plan_only=plan_only,
            instant=instant,
            partitions=partitions,
            dry_run=dry_run,
        )
        self._table.refresh_views()
        return result

    def unschedule_compaction(self, instant: str, *, options: Options = None) -> None:
        """Take back the plan of a compaction that nobody has begun to run; its log files stay as they are.

        Args:
            instant: the compaction.
            options: ``hoodie.*`` options of this call.

        Raises:
            InvalidInputError: a table of version 6 that was written to since the plan, which then has to be run.
            CommitConflictError: it is not pending any more, or is being run.

        Example:
            >>> table.maintenance.unschedule_compaction("20260101000000000")  # doctest: +IGNORE_EXCEPTION_DETAIL
            Traceback (most recent call last):
            CommitConflictError: the compaction is not pending any more
        """
        unschedule(self._table.context, self._table.parse(options, "compact"), instant)

    def compact_metadata(self, *, dry_run: bool = False, options: Options = None) -> CompactionResult:
        """Merge the log files of the metadata table into base files now, as Hudi's compaction does.

        Writes do so every ``hoodie.metadata.compact.max.delta.commits`` (10) commits.

        Args:
            dry_run: only report the number of log files that would be merged.
            options: ``hoodie.*`` options of this call.

        Returns:
            The compactions completed, and the files that they merged and wrote.

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write, or a pending log compaction of Hudi's.
            LockTimeoutError: another writer held the table's lock too long.

        Example:
            >>> len(table.maintenance.compact_metadata().instants)
            1
        """
        run = plan_metadata_compaction if dry_run else compact_metadata
        return run(self._table.context, self._table.parse(options, "compact_metadata"))

    def cluster(
        self,
        *,
        order_by: str | Sequence[str] | None = None,
        zorder: str | Sequence[str] | None = None,
        max_file_bytes: int | None = None,
        where: Where = None,
        partitions: str | Sequence[str] | None = None,
        plan_only: bool = False,
        instant: str | None = None,
        dry_run: bool = False,
        options: Options = None,
    ) -> ClusteringResult:
        """Rewrite small files into fewer ones, and bring rows into an order by which queries read fewer files.

        Hudi's clustering. Rows keep their commit times, so incremental queries find nothing new, and older instants
        can be read until they are cleaned. Other writes may go on; those that touch a file group of the plan are
        refused while it is pending. Files of one partition only are put together.

        Args:
            order_by: columns that order the rows, the first one first; None and no ``zorder`` only joins small files.
            zorder: columns of equal weight, for queries on any of them: their bits are interleaved.
            max_file_bytes: about the size of new files; None is
                ``hoodie.clustering.plan.strategy.target.file.max.bytes``, else ``hoodie.parquet.max.file.size``.
            where: choose only files that may hold a row under this condition; None chooses among all.
            partitions: partition paths to choose files in; None is all.
            plan_only: only put the plan on the timeline. Any engine can run it.
            instant: run this pending plan, of lakedex or of Hudi, as it is.
            dry_run: only report what would be rewritten.
            options: ``hoodie.clustering.*`` and other options of this call.

        Returns:
            The clustering's instant and its files; ``instant`` is None if no file was worth it.

        Raises:
            InvalidInputError: an unknown column or partition, a column without an order, or no such plan.
            CommitConflictError: another process runs the plan, or a foreign write touched its files.
            UnsupportedFeatureError: a table that lakedex does not write.

        Example:
            >>> table.maintenance.cluster(order_by="rider").files_after
            2
        """
        parsed = self._table.parse(options, "cluster")
        result = cluster(
            self._table.context,
            self._table.session,
            parsed,
            order_by=as_names(order_by),
            zorder=as_names(zorder),
            max_file_bytes=max_file_bytes,
            where=where,
            partitions=None if partitions is None else as_names(partitions),
            plan_only=plan_only,
            instant=instant,
            dry_run=dry_run,
        )
        self._table.refresh_views()
        return result

    def rewrite_files(self, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Rewrite the files that hold dropped columns or narrower types, in the table's schema; rows do not change.

        Afterwards the name of a dropped column can be added again. Log files with such columns are merged into the new
        base files.

        Args:
            txn: ``(application, batch)``, as in :meth:`lakedex.Table.upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit; its ``instant`` is None if no file had to be rewritten.

        Raises:
            UnsupportedFeatureError: a pending compaction is to rewrite such a file group.
            CommitConflictError: other writers changed the same file groups more often than the retry option allows.

        Example:
            >>> table.maintenance.rewrite_files().files_written
            0
        """
        parsed = self._table.parse(options, "rewrite_files", txn)
        context = self._table.context
        return self._table.commit(Operation.ALTER_SCHEMA, parsed, lambda: rewrite_files(context, parsed))

    def set_properties(self, changes: Mapping[str, str | None], *, options: Options = None) -> None:
        """Keep properties of yours in ``hoodie.properties``, where Hudi leaves them alone. This is no commit.

        Args:
            changes: name → text; None removes the property. Names that begin with ``hoodie.`` or ``lakedex.`` are
                settings and refused, but for ``lakedex.default.<column>``: the literal that an ``INSERT`` of Spark SQL
                writes for a column that it leaves out.
            options: ``hoodie.*`` options of this call.

        Raises:
            OptionError: a setting of Hudi or lakedex.
            InvalidInputError: a default of an unknown column, or one that is no literal.
            LockTimeoutError: another writer held the table's lock too long.

        Example:
            >>> table.maintenance.set_properties({"owner team": "bikes"})
            >>> table.properties["owner team"]
            'bikes'
        """
        set_properties(self._table.context, self._table.parse(options, "set_properties"), changes)

    def rebuild_metadata(self, *, progress: Progress | None = None, options: Options = None) -> RebuildResult:
        """Rebuild the metadata table: its listing from storage and the timeline, its indexes from the data.

        Nobody has to wait: readers list storage meanwhile, and writes go on. The indexes are those that the table
        lists; if it lists none, those that the options ask for. Runs of bitmap indexes stay, and files that they do not
        cover are covered. A write rebuilds a missing or damaged metadata table too.

        Args:
            progress: called with the number of files done and of all, for each index from the start.
            options: ``hoodie.*`` options of this call.

        Returns:
            The partitions and files listed, and a result per index.

        Raises:
            CommitConflictError: a write of another engine is under way.
            UnsupportedFeatureError: a table that lakedex does not write.

        Example:
            >>> table.maintenance.rebuild_metadata().files
            2
        """
        result = rebuild_metadata(self._table.context, self._table.parse(options, "rebuild_metadata"), progress)
        self._table.refresh_views()
        return result

    def validate(
        self,
        files: int | None = None,
        *,
        footers: bool = True,
        progress: Progress | None = None,
        options: Options = None,
    ) -> TableReport:
        """Compare the table's metadata with its files, their footers and its timeline, and report each difference.

        Compares the listing in ``files`` with storage and completed commits; each index of the metadata table, and each
        bitmap index, with base files; definitions with settings; the metadata's timeline with the table's.

        Args:
            files: how many base files are opened, spread evenly over the table; None opens all.
            footers: open base files: compare filters with their footers, bounds and bitmaps with their values. False
                compares only listings and metadata.
            progress: called with the number of files done and of all, for each index from the start.
            options: ``hoodie.*`` options of this call.

        Returns:
            The differences; ``ok`` is True if there are none.

        Raises:
            InvalidInputError: ``files`` below 1.

        Example:
            >>> table.maintenance.validate().ok
            True
        """
        parsed = self._table.parse(options, "validate")
        report = validate_table(self._table.context, files=files, footers=footers, progress=progress)
        return with_notes(report, parsed)

    def repair(
        self, *, dry_run: bool = False, progress: Progress | None = None, options: Options = None
    ) -> RepairResult:
        """Repair what :meth:`validate` finds.

        Rolls back writes that died, rebuilds the metadata table if it does not agree with the files, writes wrong
        entries of bitmap indexes again and covers the files that they lack. Rows that are gone with their file do not
        come back; :meth:`restore` returns to a savepoint.

        Args:
            dry_run: only report what would be repaired.
            progress: called with the number of files done and of all, for each index from the start.
            options: ``hoodie.*`` options of this call.

        Returns:
            What was done, and the differences that are left.

        Raises:
            UnsupportedFeatureError: a table that lakedex does not write, or pending work that it cannot undo.
            CommitConflictError: a write of another engine is under way.

        Example:
            >>> table.maintenance.repair().steps
            ()
        """
        parsed = self._table.parse(options, "rebuild_metadata")
        result = repair(self._table.context, parsed, dry_run=dry_run, progress=progress)
        self._table.refresh_views()
        return result

    # ---------------------------------------------------------------------------------------------- undoing commits

    def rollback(self, instant: str, *, dry_run: bool = False, options: Options = None) -> RollbackResult:
        """Undo the last commit: its rows and files, and its part of the indexes and the schema.

        Also undoes a pending write whose writer died, and removes a pending clustering with its plan. An index does not
        regain columns that the commit removed from it, and Java's list of columns with statistics loses those that the
        commit added. Compactions that came after the commit are undone before it.

        Args:
            instant: the last commit that is no compaction, or a pending write.
            dry_run: only report what would be undone.
            options: ``hoodie.*`` options of this call.

        Returns:
            The rollback's instant, the files deleted, and the commit that the table is at now.

        Raises:
            InvalidInputError: no such commit, later ones, a savepoint on it, or files that it replaced were cleaned.
            CommitConflictError: another writer is writing to the table.

        Example:
            >>> last = table.inspect.history(1)["commit_time"][0].as_py()
            >>> table.maintenance.rollback(last).undone == last
            True
        """
        parsed = self._table.parse(options, "rollback")
        if dry_run:
            return with_notes(plan_rollback(self._table.context, parsed, instant), parsed)
        result = rollback(self._table.context, parsed, instant)
        self._table.refresh_views()
        return with_notes(result, parsed)

    def savepoint(
        self, instant: str | None = None, *, comment: str = "", user: str = "", options: Options = None
    ) -> str:
        """Keep the files of a commit from cleaning, so that :meth:`restore` can return to it.

        Args:
            instant: the commit; None takes the last one.
            comment: the reason, for people.
            user: who asked for it; empty takes the name of this process's user.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit, which is the savepoint's name.

        Raises:
            InvalidInputError: no such commit, one that has a savepoint, one whose files may be deleted already, or
                one after a plan or write that replaces files and is not complete.

        Example:
            >>> kept = table.maintenance.savepoint(comment="before the migration")
            >>> table.maintenance.savepoints()["instant"].to_pylist() == [kept]
            True
        """
        return savepoint(self._table.context, self._table.parse(options, "savepoint"), instant, comment, user)

    def savepoints(self) -> ResultTable:
        """The table's savepoints, oldest first.

        Returns:
            A row per savepoint: instant, user, comment, made_at, and how many files of how many partitions it keeps.

        Example:
            >>> table.maintenance.savepoints().num_rows
            0
        """
        snapshot = self._table.context.snapshot()
        return ResultTable(list_savepoints(snapshot), f"savepoints of {snapshot.config.name}")

    def delete_savepoint(self, instant: str, *, options: Options = None) -> None:
        """Delete a savepoint; cleaning may delete its files from then on.

        Args:
            instant: the savepoint's name.
            options: ``hoodie.*`` options of this call.

        Raises:
            InvalidInputError: the commit has no savepoint.

        Example:
            >>> table.maintenance.delete_savepoint(table.maintenance.savepoint())
        """
        delete_savepoint(self._table.context, self._table.parse(options, "delete_savepoint"), instant)

    def restore(self, instant: str, *, dry_run: bool = False, options: Options = None) -> RestoreResult:
        """Return the table to a savepoint: all commits that completed after it are undone, for good.

        Nobody may write or query meanwhile. If the process dies, the next writer finishes the restore.

        Args:
            instant: the savepoint's name.
            dry_run: only report what would be undone.
            options: ``hoodie.*`` options of this call.

        Returns:
            The restore's instant and the commits undone.

        Raises:
            InvalidInputError: the commit has no savepoint, or files of it are missing.
            CommitConflictError: another writer is writing to the table.

        Example:
            >>> kept = table.maintenance.savepoint()
            >>> table.delete(where="city = 'oslo'").deleted
            2
            >>> len(table.maintenance.restore(kept).undone)
            1
        """
        parsed = self._table.parse(options, "restore")
        if dry_run:
            return with_notes(plan_restore(self._table.context, instant), parsed)
        result = restore(self._table.context, parsed, instant)
        self._table.refresh_views()
        return with_notes(result, parsed)
