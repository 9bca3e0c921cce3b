"""``Table.indexes``: create, drop, refresh, validate and describe the indexes of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakedex.display.result_table import ResultTable
from lakedex.index.registry import index_stats, list_indexes
from lakedex.io.retries import with_one_budget
from lakedex.maintenance import index_lifecycle
from lakedex.maintenance.index_validation import validate_index
from lakedex.reports import IndexResult, IndexStats, ValidationReport
from lakedex.scan.index_advisor import Advice, advise
from lakedex.table.session import OpenedTable, Options, as_names, with_notes
from lakedex.types import Progress

__all__ = ["Indexes"]


Partitions = Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any] | None


@with_one_budget
@dataclass(frozen=True, slots=True, repr=False)
class Indexes:
    """The indexes of one table; made by :attr:`lakedex.Table.indexes`."""

    _table: OpenedTable

    def create(
        self,
        kind: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        partitions: Partitions = None,
        if_not_exists: bool = False,
        options: Options = None,
        progress: Progress | None = None,
    ) -> IndexResult:
        """Build an index from the table's data; reads and writes go on meanwhile.

        Args:
            kind: ``bitmap``, ``column_stats`` (also builds ``partition_stats``), ``partition_stats`` or
                ``bloom_filters``.
            columns: columns of a bitmap index, nested fields by their dotted path; of ``column_stats``, None takes the
                first 32 columns that it can hold, as Hudi does. Columns that an existing index lacks are added to it.
            name: a name for a bitmap index; None derives it from the columns (``bitmap_city``). A table has one index
                of each other kind, under Hudi's name.
            partitions: a bitmap index covers only these for now, given as :meth:`lakedex.Table.insert_overwrite` takes
                them. None covers the whole table.
            if_not_exists: do nothing if the index exists. A bitmap index that lacks files is completed.
            options: ``hoodie.*`` options of this call: numbers of file groups, filter sizes; for bitmaps
                ``max_distinct_values`` (10,000): a column with more of them in one file gets no bitmaps there.
            progress: called with the number of files read and of all.

        Returns:
            The instant, files, entries and bytes of the build.

        Raises:
            IndexExistsError: the index exists, with these columns.
            InvalidInputError: an unknown column, or a name that the kind does not take.
            UnsupportedFeatureError: a kind or a column type that cannot be indexed.
            CommitConflictError: a write of another engine is under way.

        Example:
            >>> table.indexes.create("bitmap", ["city"]).files
            2
        """
        names = None if columns is None else as_names(columns)
        if kind == index_lifecycle.BITMAP and name is None:
            name = "_".join([kind, *(re.sub(r"\W", "_", column) for column in names or ())])
        return index_lifecycle.create_index(
            self._table.context,
            self._table.context.options,
            kind if name is None else name,
            call=options,
            using=kind,
            columns=names,
            partitions=partitions,
            if_not_exists=if_not_exists,
            progress=progress,
        )

    def drop(self, name: str, *, if_exists: bool = False, options: Options = None) -> IndexResult:
        """Drop an index, also one of a kind that lakedex does not maintain, so that the table can be written.

        Args:
            name: the index, as :meth:`list` shows it.
            if_exists: do nothing if the table does not have the index.
            options: ``hoodie.*`` options of this call.

        Returns:
            The name, and in ``notes`` the indexes that were dropped with it.

        Raises:
            IndexNotFoundError: the table does not have the index.
            LockTimeoutError: another writer held the table's lock too long.

        Example:
            >>> table.indexes.drop("bloom_filters").name
            'bloom_filters'
        """
        parsed = self._table.parse(options, "drop_index")
        result = index_lifecycle.drop_index(self._table.context, parsed, name, if_exists=if_exists)
        return with_notes(result, parsed)

    def refresh(
        self, name: str, partitions: Partitions = None, *, options: Options = None, progress: Progress | None = None
    ) -> IndexResult:
        """Cover the files that a bitmap index does not cover: others wrote them, or a build was interrupted.

        Args:
            name: a bitmap index.
            partitions: cover only these; None covers the whole table.
            options: ``hoodie.*`` options of this call.
            progress: called with the number of files read and of all.

        Returns:
            The files covered and the bytes written.

        Raises:
            IndexNotFoundError: the table does not have the index.
            UnsupportedFeatureError: an index of another kind.

        Example:
            >>> built = table.indexes.create("bitmap", ["rider"])
            >>> table.indexes.refresh("bitmap_rider").files
            0
        """
        parsed = self._table.parse(options, "refresh_index")
        result = index_lifecycle.refresh_index(
            self._table.context, parsed, name, partitions=partitions, progress=progress
        )
        return with_notes(result, parsed)

    def validate(
        self,
        name: str,
        *,
        files: int | Sequence[str] | None = None,
        repair: bool = False,
        options: Options = None,
        progress: Progress | None = None,
    ) -> ValidationReport:
        """Compare an index with the data; each compared file is read.

        Args:
            name: a bitmap index, ``column_stats`` or ``bloom_filters``.
            files: None compares all base files, a number a sample, and names these base files.
            repair: rewrite wrong entries, and take damaged files out of a bitmap index.
            options: ``hoodie.*`` options of this call.
            progress: called with the number of files compared and of all.

        Returns:
            The differences, and what was repaired.

        Raises:
            IndexNotFoundError: the table does not have the index.
            IndexInconsistentError: files of the index are missing or damaged.
            UnsupportedFeatureError: an index of another kind.

        Example:
            >>> table.indexes.validate("column_stats").ok
            True
        """
        parsed = self._table.parse(options, "validate_index")
        report = validate_index(self._table.context, parsed, name, files=files, repair=repair, progress=progress)
        return with_notes(report, parsed)

    def list(self) -> ResultTable:
        """The table's indexes.

        Returns:
            A row per index: name, using, columns, state, and whether lakedex maintains it when it writes.

        Example:
            >>> table.indexes.list().column("name").to_pylist()
            ['bloom_filters', 'column_stats', 'partition_stats']
        """
        snapshot = self._table.context.snapshot()
        return ResultTable(list_indexes(snapshot), f"indexes of {snapshot.config.name}")

    def stats(self, name: str) -> IndexStats:
        """Entries, covered files and bytes of an index.

        Args:
            name: the index, as :meth:`list` shows it.

        Returns:
            The figures; ``columns`` has those of each column of a bitmap index.

        Raises:
            IndexNotFoundError: the table does not have the index.
            IndexInconsistentError: files of the index are missing or damaged.

        Example:
            >>> table.indexes.stats("column_stats").files_uncovered
            0
        """
        return index_stats(self._table.context.snapshot(), name)

    def advise(self, columns: Sequence[str] | None = None, queries: Sequence[str] | None = None) -> Advice:
        """Estimate which columns deserve a bitmap index, by indexing these columns of up to 16 files.

        Args:
            columns: columns to examine; None takes those of ``queries``, else all that can be indexed.
            queries: a log of WHERE conditions, or of SELECT statements of this table alone; without it a column is
                rated by equality with its values.

        Returns:
            A verdict per column, with its expected size and use.

        Raises:
            InvalidInputError: an unknown column, a query that is no condition, or one of several tables.

        Example:
            >>> table.indexes.advise(queries=["city = 'oslo'"]).columns[0].column
            'city'
        """
        return advise(self._table.snapshot(), columns, queries, rules=self._table.session.rules)
