"""``Table``: a Hudi table, as its users see it; every method delegates.

From what a user gives (paths, names, times) to what the actions take.

What a table is: its columns, and what people say of them. Every method delegates.

``Table``: a Hudi table, as its users see it. Every method delegates.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from lakedex.codec.comments import with_comments
from lakedex.commit.idempotency import checked_txn
from lakedex.engine import Engine
from lakedex.errors import InvalidInputError
from lakedex.io.fsspec import open_storage
from lakedex.local.session import LocalSession
from lakedex.maintenance import index_lifecycle
from lakedex.options import WriteOptions, parse_options
from lakedex.reports import IndexResult, WriteResult
from lakedex.scan.incremental import incremental_snapshot
from lakedex.scan.index_advisor import Advice, advise
from lakedex.scan.scan import Scan, join_scan
from lakedex.scan.time_travel import snapshot_at
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.table.indexes import Maintained
from lakedex.table.inspect import Inspect, history_table, table_card, table_html
from lakedex.table.maintenance import KeptUp, Serviced
from lakedex.table.merge_builder import Merging
from lakedex.table.session import open_session
from lakedex.timeline.compatibility import require_readable
from lakedex.write import alter_schema, operations
from lakedex.write.alter_schema import comment_column, comment_table
from lakedex.write.create_table import create_table, is_table
from lakedex.write.erase import delete_rows
from lakedex.write.session import Session

__all__ = ["Described", "Table", "as_names", "check_readable", "handle_for", "resolve_as_of"]


def handle_for(path: str | os.PathLike[str], engine: Engine) -> TableContext:
    """The handle of a path."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(
            f"path is a str or os.PathLike, not {type(path).__name__}: Table.create(path, spark=spark)"
        )
    storage, base = open_storage(path)
    return TableContext(storage, base, engine)


def check_readable(handle: TableContext) -> TableContext:
    """The handle itself, if there is a table that lakedex reads."""
    require_readable(handle.snapshot().config)
    return handle


def as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names given as one name (commas separate several, as in Hudi's options) or as a list."""
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    return tuple(given)


QUERY_TYPES = ("snapshot", "read_optimized")


def resolve_as_of(
    handle: TableContext, as_of: str | datetime.datetime | datetime.date | None, query_type: str = "snapshot"
) -> Snapshot:
    """The table now, or as of an instant or time.

    Args:
        handle: the table.
        as_of: an instant or time; None for now.
        query_type: as ``hoodie.datasource.query.type``: ``read_optimized`` leaves out the log files of merge-on-read.

    Raises:
        InvalidInputError: a time before the first commit that is still there, one whose files were cleaned, or another
            query type.
    """
    if query_type not in QUERY_TYPES:
        raise InvalidInputError(f"query_type {query_type!r} is none of: {', '.join(QUERY_TYPES)}")
    return snapshot_at(partial(handle.snapshot, read_optimized=query_type == "read_optimized"), as_of)


class Described:
    """A part of :class:`lakedex.Table`."""

    _handle: TableContext

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "") -> WriteOptions:
        raise NotImplementedError

    def _written(self, result: WriteResult) -> WriteResult:
        raise NotImplementedError

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns. Comments are ``comment`` in the metadata of a field."""
        snapshot = self._handle.snapshot()
        return with_comments(snapshot.schema, snapshot.comments)

    @property
    def comment(self) -> str | None:
        """What the table is, in words."""
        return self._handle.snapshot().config.comment

    def set_comment(
        self, text: str | None, column: str | None = None, *, options: Mapping[str, Any] | None = None
    ) -> WriteResult | None:
        """Say what the table is, or a column of it.

        Args:
            text: the comment; None or an empty text takes it away.
            column: a column, or a field inside of one (``a.b``; ``a.element.b`` in a list, ``a.value.b`` in a map). Its
                comment is a commit, so that a rollback or restore takes it back; that of the table is none.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit; None for the comment of the table.

        Raises:
            InvalidInputError: an unknown column, a text that is no Unicode.
        """
        parsed = self._parsed(options, "set_comment")
        if column is not None:
            return self._written(comment_column(self._handle, parsed, column, text or ""))
        comment_table(self._handle, parsed, text or "")
        return None


Path = str | os.PathLike[str]


Txn = tuple[str, int] | None


AsOf = str | datetime.datetime | datetime.date | None


class Table(Described, Maintained, Serviced, KeptUp, Merging):
    """A Hudi table and the engine that works on it.

    Make one with :meth:`create`, open one with :meth:`open`.
    """

    def __init__(self, handle: TableContext, session: Session, options: Mapping[str, Any] | None = None) -> None:
        self._handle = handle
        self._session = session
        self._options = dict(options or {})

    # ---------------------------------------------------------------------------------------------- making, opening

    @classmethod
    def create(
        cls,
        path: Path,
        schema: Any = None,
        *,
        record_key: str | Sequence[str],
        spark: Any = None,
        name: str | None = None,
        partition_by: str | Sequence[str] = (),
        ordering_by: str | Sequence[str] | None = None,
        table_type: str = "cow",
        comment: str | None = None,
        exist_ok: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Table:
        """Make an empty table, of version 8 unless `hoodie.write.table.version` says 6 or 9.

        Args:
            path: the table's folder.
            schema: ``pyarrow.Schema``, Spark ``StructType`` or DDL text; None takes that of the first frame written.
                Comments of columns (``comment`` in a field's metadata) are kept.
            record_key: column or columns of the key.
            spark: a SparkSession; None works without Spark.
            name: the table's name; the folder's name by default.
            partition_by: columns of the partition path; none for a non-partitioned table.
            ordering_by: the column by which the newer of two versions of a row is known; None takes the later commit's.
                Version 9 may have several, compared one after the other.
            table_type: ``cow``. Merge-on-read tables of others are read, but neither made nor written.
            comment: what the table is, in words.
            exist_ok: return the table that is there instead of failing.
            options: ``hoodie.*`` options, kept for this object's writes too.

        Raises:
            TableExistsError: a table is there already.
            InvalidInputError, SchemaMismatchError, OptionError: an argument that cannot be used.
        """
        session = open_session(spark)
        handle = handle_for(path, session.engine)
        create_table(
            handle,
            name=name,
            schema=session.schema(schema),
            record_key=as_names(record_key),
            partition_by=as_names(partition_by),
            ordering_by=as_names(ordering_by),
            table_type=table_type,
            exist_ok=exist_ok,
            options=options,
            comment=comment,
        )
        return cls(handle, session, options)

    @classmethod
    def open(cls, path: Path, *, spark: Any = None, options: Mapping[str, Any] | None = None) -> Table:
        """Open the table at ``path``.

        Args:
            path: the table's folder.
            spark: a SparkSession; None works without Spark.
            options: ``hoodie.*`` options, kept for this object's writes.

        Raises:
            TableNotFoundError: there is no Hudi table.
            UnsupportedFeatureError: a table that lakedex does not read (versions other than 6, 8 and 9, ORC files …).
        """
        session = open_session(spark)
        parse_options(options)
        return cls(check_readable(handle_for(path, session.engine)), session, options)

    @classmethod
    def is_table(cls, path: Path) -> bool:
        """Whether there is a Hudi table at ``path``."""
        storage, base = open_storage(path)
        return is_table(TableContext(storage, base, LocalSession().engine))

    # -------------------------------------------------------------------------------------------------- properties

    @property
    def path(self) -> str:
        """The table's folder."""
        return self._handle.base_path

    @property
    def name(self) -> str:
        """The table's name."""
        return self.snapshot().config.name

    @property
    def context(self) -> TableContext:
        """The table's storage, engine and caches, for code that works on the table itself."""
        return self._handle

    def snapshot(self, as_of: AsOf = None, *, query_type: str = "snapshot") -> Snapshot:
        """The table pinned to an instant: its settings, timelines, metadata and file slices.

        Args:
            as_of: an instant (``r.instant``) or a time; None pins the newest commit.
            query_type: ``read_optimized`` leaves out log files.

        Raises:
            InvalidInputError: an ``as_of`` before the first commit, or one whose files the cleaner took.
        """
        return resolve_as_of(self._handle, as_of, query_type)

    def _parsed(self, options: Mapping[str, Any] | None, operation: str = "", txn: Txn = None) -> WriteOptions:
        return replace(parse_options(self._options, options, operation), txn=checked_txn(txn))

    def _written(self, result: WriteResult) -> WriteResult:
        self._session.refresh_views(self.path)
        return replace(result, latest=result.instant or self.snapshot().instant)

    # ------------------------------------------------------------------------------------------------------ writing

    def bulk_insert(self, data: Any, *, options: Mapping[str, Any] | None = None, txn: Txn = None) -> WriteResult:
        """Load rows into new files, sorted by key; keys are not looked up. ``txn`` as in :meth:`upsert`.

        Raises:
            InvalidInputError: a missing column, a null or empty key.
            SchemaMismatchError: a column whose type does not fit.
        """
        return self._written(operations.bulk_insert(self._handle, data, self._parsed(options, "bulk_insert", txn)))

    def insert(self, data: Any, *, options: Mapping[str, Any] | None = None, txn: Txn = None) -> WriteResult:
        """Add rows, small files first; ``txn`` as in :meth:`upsert`.

        Keys are looked up for ``hoodie.datasource.insert.dup.policy`` drop or fail.
        """
        return self._written(operations.insert(self._handle, data, self._parsed(options, "insert", txn)))

    def upsert(self, data: Any, *, options: Mapping[str, Any] | None = None, txn: Txn = None) -> WriteResult:
        """Update rows whose key is in the table, insert the others.

        With an ordering column the larger value wins, against other rows of the frame and against the stored row; on a
        tie, or without one, the later row wins.

        Args:
            data: the rows.
            options: ``hoodie.*`` options of this call.
            txn: (application, batch): the batch counts once. Where the table has this batch of the application, or
                one with a larger number, nothing is done and a note says which commit had it; ``foreachBatch`` may
                repeat its batches then. A rollback or restore of that commit takes the batch back with its rows.

        Raises:
            CommitConflictError: another writer committed to the same files, again and again.
        """
        return self._written(operations.upsert(self._handle, data, self._parsed(options, "upsert", txn)))

    def insert_overwrite(
        self,
        data: Any,
        scope: str = "partitions",
        partitions: Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        txn: Txn = None,
    ) -> WriteResult:
        """Replace partitions, or the whole table, by the rows of a frame, in one commit.

        Equal keys in the frame are treated as :meth:`insert` treats them. Replaced files stay until a cleaner removes
        them, so older instants can still be read.

        Args:
            data: the rows.
            scope: ``partitions`` replaces the partitions that the rows go to; ``table`` replaces everything.
            partitions: replace exactly these, as paths (``city=rome``) or as ``{column: value}``; rows that belong to
                another partition are refused. A named partition without rows is emptied.
            options: ``hoodie.*`` options of this call.
            txn: (application, batch), as in :meth:`upsert`.

        An empty frame empties the partitions named, or the table with ``scope="table"``; else it changes nothing.

        Raises:
            InvalidInputError: a wrong scope or partition, rows outside of the partitions named, a bad key.
            CommitConflictError: another writer committed to the same partitions, again and again.
        """
        parsed = self._parsed(options, "insert_overwrite", txn)
        return self._written(operations.insert_overwrite(self._handle, data, parsed, scope, partitions))

    def delete(
        self,
        data_or_where: Any = None,
        *,
        where: Any = None,
        all_partitions: bool = False,
        options: Mapping[str, Any] | None = None,
        txn: Txn = None,
    ) -> WriteResult:
        """Delete the rows of the keys in a frame, or the rows under a condition (SQL text, or a Column on Spark).

        A frame needs the key and partition columns; the latter not under a global index, nor with ``all_partitions``,
        which deletes keys wherever they are. :meth:`erase` also proves it. ``txn`` as in :meth:`upsert`.

        Raises:
            InvalidInputError: a key or partition column that the frame lacks, or a column that the table lacks.
            SchemaMismatchError: a key that the type of the key column cannot hold.
        """
        asked = {"where": where, "options": self._parsed(options, "delete", txn), "all_partitions": all_partitions}
        return self._written(delete_rows(self._handle, self._session, data_or_where, **asked))

    def update(
        self, set: Mapping[str, Any], where: Any = None, *, options: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Set columns of the rows under a condition (of all rows without one). Values are SQL expressions.

        Raises:
            InvalidInputError: a key or partition column, or one that the table does not have.
        """
        snapshot, parsed = self.snapshot(), self._parsed(options, "update")
        checked = operations.check_assignments(snapshot, set, case_sensitive=self._session.rules.case_sensitive)
        rows = self._session.changed(snapshot, where, checked)
        return self._written(operations.update_stored(self._handle, rows, parsed, snapshot.last_completion_time))

    # ------------------------------------------------------------------------------------------------------- schema

    def add_columns(self, schema: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Add nullable columns at the end; no file is rewritten.

        Args:
            schema: ``pyarrow.Schema``, Spark ``StructType`` or DDL text. ``a.b`` adds ``b`` to the struct column ``a``.
            options: ``hoodie.*`` options of this call.

        Raises:
            InvalidInputError: a column that the table has already, one that is never null, a name that it cannot have.
            SchemaMismatchError: a name that was dropped and that files still hold; see :meth:`rewrite_files`.
        """
        added, parsed = self._session.schema(schema), self._parsed(options, "add_columns")
        return self._written(alter_schema.add_columns(self._handle, parsed, added or pa.schema([])))

    def drop_columns(self, names: str | Sequence[str], *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Take columns out of the schema; files hold them until they are rewritten.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.
        """
        return self._written(
            alter_schema.drop_columns(self._handle, self._parsed(options, "drop_columns"), as_names(names))
        )

    def rename_column(self, old: str, new: str, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Rename a column. Readers take columns by name, so the files that hold it are rewritten.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.
            SchemaMismatchError: ``new`` was dropped and files still hold it; see :meth:`rewrite_files`.
        """
        return self._written(alter_schema.rename_column(self._handle, self._parsed(options, "rename_column"), old, new))

    def widen_column(self, name: str, type: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Give a column a wider type: int to long or double, float to double, a decimal more digits.

        Only float to double rewrites the files that hold the column.

        Args:
            name: the column.
            type: ``pyarrow.DataType``, Spark ``DataType`` or SQL text (``bigint``, ``decimal(20, 2)``).
            options: ``hoodie.*`` options of this call.

        Raises:
            SchemaMismatchError: a type that is not wider, or that not every reader of Hudi tables widens to.
        """
        return self._written(alter_schema.widen_column(self._handle, self._parsed(options, "widen_column"), name, type))

    def rewrite_files(self, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Rewrite the files that hold dropped columns or narrower types, in the table's schema; rows stay as they are.

        After that a dropped name can be added again.
        """
        return self._written(alter_schema.rewrite_files(self._handle, self._parsed(options, "rewrite_files")))

    # ------------------------------------------------------------------------------------------------------ indexes

    def create_index(
        self,
        name: str,
        using: str | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        partitions: Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> IndexResult:
        """Build an index from the table's data; reads and writes go on meanwhile.

        Args:
            name: any name for a bitmap index; else ``column_stats`` (which brings ``partition_stats`` along) or
                ``bloom_filters``: a table has one of each, under Hudi's name.
            using: the kind: ``bitmap``; may be left out for the others, whose name says it.
            columns: of a bitmap index, nested fields by their dotted path; of ``column_stats``, None takes the first 32
                that it can hold, as Hudi does. Columns that an existing index lacks are added to it.
            partitions: a bitmap index covers only these for now, given as :meth:`insert_overwrite` takes them.
            if_not_exists: do nothing where the index is there. A bitmap index that lacks files is completed.
            options: numbers of file groups, filter sizes; ``max_distinct_values`` (10,000): a column with more of them
                in one file gets no bitmaps there.
            progress: called with the number of files read and of all.

        Raises:
            IndexExistsError: it is there, with these columns.
            UnsupportedFeatureError: a kind or a column type that cannot be indexed.
            CommitConflictError: a write of another engine is under way.
        """
        return index_lifecycle.create_index(
            self._handle,
            self._options,
            name,
            call=options,
            using=using,
            columns=None if columns is None else as_names(columns),
            partitions=partitions,
            if_not_exists=if_not_exists,
            progress=progress,
        )

    def advise(self, columns: Sequence[str] | None = None, queries: Sequence[str] | None = None) -> Advice:
        """Say which columns deserve a bitmap index: up to 16 files are read, only these columns, and indexed to see.

        Args:
            columns: columns to judge; None takes those of ``queries``, else all that can be indexed.
            queries: a log of WHERE conditions; without it a column is judged by equality with its values.

        Raises:
            InvalidInputError: a column that is not there, a query that is no condition.
        """
        return advise(self.snapshot(), columns, queries, rules=self._session.rules)

    # ------------------------------------------------------------------------------------------------------ reading

    def scan(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        as_of: AsOf = None,
        limit: int | None = None,
        skipping: bool = True,
        verify: Literal["full"] | None = None,
        cost_gate: bool = True,
        query_type: str = "snapshot",
    ) -> Scan:
        """A lazy scan of the table as it is now, or as of an instant or time.

        Args:
            where: a Spark SQL boolean expression; None for all rows.
            columns: columns of the result; None for all.
            as_of: an instant (``r.instant``) or a time.
            limit: rows at most.
            skipping: False reads all files and row groups.
            verify: ``full`` also reads the files that indexes drop, and raises if one holds a matching row.
            cost_gate: False reads bitmaps also where the forecast is that they cost more than they save.
            query_type: ``read_optimized`` reads base files only: a merge-on-read table as of its last compactions.

        Raises:
            InvalidInputError: an ``as_of`` before the first commit, or one whose files the cleaner took.
            UnsupportedFeatureError: log files that are merged in a way that lakedex does not know.
        """
        snapshot = self.snapshot(as_of, query_type=query_type)
        options = {"max_rows": limit, "skipping": skipping, "verify": verify, "cost_gate": cost_gate}
        return self._scan(snapshot, where, columns, **options)

    def _scan(self, snapshot: Snapshot, where: str | None, columns: Sequence[str] | None, **options: Any) -> Scan:
        return Scan(
            snapshot=snapshot,
            where=where,
            columns=None if columns is None else tuple(columns),
            rules=self._session.rules,
            engine=self._handle.engine,
            to_frame=self._session.to_frame,
            to_keys=self._session.keys,
            **options,
        )

    def join_filter(
        self,
        dim: Any,
        on: str | Sequence[str] | Mapping[str, str],
        how: Literal["semi", "anti"] = "semi",
        where: str | None = None,
    ) -> Scan:
        """Rows under a condition with a match in a dimension (``semi``) or without one (``anti``).

        The keys of ``dim`` prune as a condition does; see :meth:`Scan.semi_join` for what it and ``on`` may be.
        """
        return join_scan(self.scan(where), dim, on, how)

    def changes(
        self,
        since: AsOf,
        until: AsOf = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        format: str = "latest_state",
        fallback: Literal["full"] | None = None,
    ) -> Scan:
        """Rows that commits after ``since``, up to and with ``until``, inserted or updated: Hudi's incremental query.

        A row comes once, in its state as of ``until``. Deleted rows do not come, nor does what a row was before; for
        that Hudi has CDC, which lakedex does not read. Tables of version 8 and 9 go by when a commit completed, those
        of version 6 by when it was requested. Chained calls (``since`` is the last ``until``) miss nothing.

        Args:
            since: ``earliest``, an instant (``r.instant``: the commits after it) or a time.
            until: an instant, its commit included, or a time; None for the newest commit.
            columns: columns of the result; None for all.
            where: a Spark SQL boolean expression.
            format: ``latest_state``; Hudi's ``cdc`` is refused.
            fallback: ``full`` reads the newest files where older ones are needed that are gone: rows that were
                changed again after ``until`` are missing then.

        Raises:
            InvalidInputError: a range that cannot be read any more, since commits were archived or files cleaned;
                the message has the earliest ``since``. In version 6 also a range that a pending write may add to.
            UnsupportedFeatureError: a merge-on-read table, or one without meta columns.
        """
        found = incremental_snapshot(self.snapshot(), since, until, format=format, fallback=fallback)
        return self._scan(found.snapshot, found.condition(where), columns)

    def to_df(self, as_of: AsOf = None, *, query_type: str = "snapshot") -> Any:
        """The rows, pinned to the newest commit or to ``as_of``.

        A Spark DataFrame whose files are pruned by every filter put on it; an Arrow table without Spark. File slices
        with log files (merge-on-read) are merged in Python on the executors, and no filter reaches them there: for a
        selective one use ``scan(where).to_spark()``, which prunes slices first. On Spark Connect, which cannot ask
        Python while it plans, a filter skips row groups only: there too use :meth:`scan`.
        """
        return self._session.frame(self.snapshot(as_of, query_type=query_type))

    def create_view(self, name: str) -> None:
        """Make a temporary view for Spark SQL, pinned to the newest commit. This session's writes refresh it."""
        self._session.create_view(name, self.path, self.to_df)

    def refresh_view(self, name: str) -> None:
        """Take others' commits into a view."""
        self._session.refresh_view(name, self.path)

    # ------------------------------------------------------------------------------------------------------ looking

    @property
    def inspect(self) -> Inspect:
        """Files, index entries and timeline, as Arrow tables."""
        return Inspect(self.snapshot())

    def history(self, limit: int | None = None, *, archived: bool = False) -> pa.Table:
        """Completed commits, newest first, with the columns of Hudi's ``show_commits``; with ``archived`` all of them.

        Raises:
            UnsupportedFeatureError: archived commits of a table of version 6.
        """
        return history_table(self.snapshot(), limit, archived=archived)

    def __repr__(self) -> str:
        return f"Table({self.path!r}, engine={self._session.engine.name})"

    def __str__(self) -> str:
        return table_card(self.snapshot(), self._session.engine.name)

    def _repr_html_(self) -> str:
        return table_html(self.snapshot(), self._session.engine.name)
