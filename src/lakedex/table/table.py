"""``Table``: a Hudi table, as its users see it. Every method delegates."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakedex.index.listing import IndexStats, index_stats, list_indexes
from lakedex.io.fsspec_storage import open_storage
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.scan.scan import Scan
from lakedex.table.display import table_card, table_html
from lakedex.table.engines import LocalSession, Session, open_session
from lakedex.table.inspect import Inspect, history_table
from lakedex.table.opening import check_readable, handle_for, resolve_as_of
from lakedex.table.opening import names as as_names
from lakedex.types import PARTITION_PATH, RECORD_KEY
from lakedex.write import actions, evolve, overwrite
from lakedex.write.create import create_table, is_table
from lakedex.write.index_builds import create_index
from lakedex.write.index_drops import drop_index
from lakedex.write.options import WriteOptions, parse_options
from lakedex.write.result import IndexResult, WriteResult

__all__ = ["Table"]

Path = str | os.PathLike[str]
AsOf = str | datetime.datetime | datetime.date | None


class Table:
    """A Hudi table and the engine that works on it.

    Make one with :meth:`create`, open one with :meth:`for_path` (Spark) or :meth:`open` (no Spark).
    """

    def __init__(self, handle: TableHandle, session: Session, options: Mapping[str, Any] | None = None) -> None:
        self._handle = handle
        self._session = session
        self._options = dict(options or {})

    # ---------------------------------------------------------------------------------------------- making, opening

    @classmethod
    def create(
        cls,
        spark: Any,
        path: Path,
        schema: Any = None,
        *,
        record_key: str | Sequence[str],
        name: str | None = None,
        partition_by: str | Sequence[str] = (),
        ordering_by: str | Sequence[str] | None = None,
        table_type: str = "cow",
        exist_ok: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Table:
        """Make an empty table of version 8.

        Args:
            spark: a SparkSession; None works without Spark.
            path: the table's folder.
            schema: ``pyarrow.Schema``, Spark ``StructType`` or DDL text; None takes that of the first frame written.
            record_key: column or columns of the key.
            name: the table's name; the folder's name by default.
            partition_by: columns of the partition path; none for a non-partitioned table.
            ordering_by: the column by which the newer of two versions of a row is known; None takes the later commit's.
            table_type: ``cow``; merge-on-read is not done yet.
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
        )
        return cls(handle, session, options)

    @classmethod
    def for_path(cls, spark: Any, path: Path, *, options: Mapping[str, Any] | None = None) -> Table:
        """Open the table at ``path``; ``options`` are those of this object's writes.

        Raises:
            TableNotFoundError: there is no Hudi table.
            UnsupportedFeatureError: a table that lakedex does not read yet (merge-on-read, other versions).
        """
        session = open_session(spark)
        parse_options(options)
        return cls(check_readable(handle_for(path, session.engine)), session, options)

    @classmethod
    def open(cls, path: Path, *, options: Mapping[str, Any] | None = None) -> Table:
        """Open the table at ``path`` without Spark."""
        return cls.for_path(None, path, options=options)

    @classmethod
    def is_table(cls, path: Path) -> bool:
        """Whether there is a Hudi table at ``path``."""
        storage, base = open_storage(path)
        return is_table(TableHandle(storage, base, LocalSession().engine))

    # -------------------------------------------------------------------------------------------------- properties

    @property
    def path(self) -> str:
        """The table's folder."""
        return self._handle.base_path

    @property
    def name(self) -> str:
        """The table's name."""
        return self._snapshot().config.name

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns."""
        return self._snapshot().schema

    def _snapshot(self, as_of: AsOf = None) -> Snapshot:
        return resolve_as_of(self._handle, as_of)

    def _parsed(self, options: Mapping[str, Any] | None) -> WriteOptions:
        return parse_options({**self._options, **(options or {})})

    def _written(self, result: WriteResult) -> WriteResult:
        self._session.refresh_views(self.path)
        return result

    # ------------------------------------------------------------------------------------------------------ writing

    def bulk_insert(self, data: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Load rows into new files, sorted by key; keys are not looked up.

        Raises:
            InvalidInputError: a missing column, a null or empty key.
            SchemaMismatchError: a column whose type does not fit.
        """
        return self._written(actions.bulk_insert(self._handle, data, self._parsed(options)))

    def insert(self, data: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Add rows, small files first. Keys are looked up for ``hoodie.datasource.insert.dup.policy`` drop or fail."""
        return self._written(actions.insert(self._handle, data, self._parsed(options)))

    def upsert(self, data: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Update rows whose key is in the table, insert the others.

        With an ordering column the larger value wins, against other rows of the frame and against the stored row; on a
        tie, or without one, the later row wins.

        Raises:
            CommitConflictError: another writer committed to the same files, again and again.
        """
        return self._written(actions.upsert(self._handle, data, self._parsed(options)))

    def insert_overwrite(
        self,
        data: Any,
        scope: str = "partitions",
        partitions: Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
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

        An empty frame empties the partitions named, or the table with ``scope="table"``; else it changes nothing.

        Raises:
            InvalidInputError: a wrong scope or partition, rows outside of the partitions named, a bad key.
            CommitConflictError: another writer committed to the same partitions, again and again.
        """
        result = overwrite.insert_overwrite(self._handle, data, self._parsed(options), scope, partitions)
        return self._written(result)

    def delete(self, data_or_where: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Delete the rows of the keys in a frame, or the rows under a condition (SQL text, or a Column on Spark).

        A frame needs the key columns; without the partition columns a key is looked for in all partitions.
        """
        if self._session.is_frame(data_or_where):
            return self._written(actions.delete_keys(self._handle, data_or_where, self._parsed(options)))
        snapshot = self._snapshot()
        rows = self._session.matching(snapshot, data_or_where, (RECORD_KEY, PARTITION_PATH))
        return self._written(actions.delete_stored(self._handle, rows, self._parsed(options), snapshot.last_change))

    def update(
        self, set: Mapping[str, Any], where: Any = None, *, options: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Set columns of the rows under a condition (of all rows without one). Values are SQL expressions.

        Raises:
            InvalidInputError: a key or partition column, or one that the table does not have.
        """
        snapshot = self._snapshot()
        rows = self._session.changed(snapshot, where, actions.check_assignments(snapshot, set))
        return self._written(actions.update_stored(self._handle, rows, self._parsed(options), snapshot.last_change))

    # ------------------------------------------------------------------------------------------------------- schema

    def add_columns(self, schema: Any, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Add nullable columns at the end; no file is rewritten.

        Args:
            schema: ``pyarrow.Schema``, Spark ``StructType`` or DDL text. ``a.b`` adds ``b`` to the struct column ``a``.
            options: ``hoodie.*`` options of this call.

        Raises:
            InvalidInputError: a column that the table has already, or a name that it cannot have.
            SchemaMismatchError: a name that was dropped and that files still hold; see :meth:`rewrite_files`.
        """
        added = self._session.schema(schema)
        return self._written(evolve.add_columns(self._handle, self._parsed(options), added or pa.schema([])))

    def drop_columns(self, names: str | Sequence[str], *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Take columns out of the schema; files hold them until they are rewritten.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.
        """
        return self._written(evolve.drop_columns(self._handle, self._parsed(options), as_names(names)))

    def rename_column(self, old: str, new: str, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Rename a column. Readers take columns by name, so the files that hold it are rewritten.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.
            SchemaMismatchError: ``new`` was dropped and files still hold it; see :meth:`rewrite_files`.
        """
        return self._written(evolve.rename_column(self._handle, self._parsed(options), old, new))

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
        return self._written(evolve.widen_column(self._handle, self._parsed(options), name, type))

    def rewrite_files(self, *, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Rewrite the files that hold dropped columns or narrower types, in the table's schema; rows stay as they are.

        After that a dropped name can be added again.
        """
        return self._written(evolve.rewrite_files(self._handle, self._parsed(options)))

    # ------------------------------------------------------------------------------------------------------ indexes

    def indexes(self) -> pa.Table:
        """The table's indexes: name, using, columns, state, and whether lakedex keeps it up when it writes."""
        return list_indexes(self._snapshot())

    def create_index(
        self,
        name: str,
        using: str | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> IndexResult:
        """Build an index from the table's data; reads and writes go on meanwhile.

        Args:
            name: ``column_stats`` (which brings ``partition_stats`` along) or ``bloom_filters``: a table has one of
                each, under Hudi's name.
            using: the kind; may be left out, since the name says it.
            columns: of ``column_stats``; None takes the first 32 that it can hold, as Hudi does. Columns that an
                existing index lacks are added to it.
            if_not_exists: do nothing where the index is there.
            options: numbers of file groups, filter sizes.
            progress: called with the number of files read and of all.

        Raises:
            IndexExistsError: it is there, with these columns.
            UnsupportedFeatureError: a kind or a column type that cannot be indexed.
            CommitConflictError: a write of another engine is under way.
        """
        chosen = None if columns is None else as_names(columns)
        return create_index(
            self._handle,
            self._parsed(options),
            name,
            using=using,
            columns=chosen,
            if_not_exists=if_not_exists,
            progress=progress,
        )

    def drop_index(self, name: str, *, if_exists: bool = False) -> IndexResult:
        """Take an index out of the table; also one that lakedex does not keep up, so that the table can be written.

        Raises:
            IndexNotFoundError: the table does not have it.
        """
        return drop_index(self._handle, self._parsed(None), name, if_exists=if_exists)

    def index_stats(self, name: str) -> IndexStats:
        """Entries, files covered and not covered, and bytes of an index.

        Raises:
            IndexNotFoundError: the table does not have it.
        """
        return index_stats(self._snapshot(), name)

    # ------------------------------------------------------------------------------------------------------ reading

    def scan(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        as_of: AsOf = None,
        skipping: bool = True,
    ) -> Scan:
        """A lazy scan of the table as it is now, or as of an instant or time.

        Args:
            where: a Spark SQL boolean expression; None for all rows.
            columns: columns of the result; None for all.
            as_of: an instant (``r.instant``) or a time.
            skipping: False reads all files.
        """
        return Scan(
            snapshot=self._snapshot(as_of),
            where=where,
            columns=None if columns is None else tuple(columns),
            skipping=skipping,
            case_sensitive=self._session.case_sensitive,
            timezone=self._session.timezone,
            to_frame=self._session.to_frame,
        )

    def to_df(self, as_of: AsOf = None) -> Any:
        """The rows, pinned to the newest commit or to ``as_of``.

        A Spark DataFrame whose files are pruned by every filter put on it; an Arrow table without Spark.
        """
        return self._session.frame(self._snapshot(as_of))

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
        return Inspect(self._snapshot())

    def history(self, limit: int | None = None) -> pa.Table:
        """Completed commits, newest first, with the columns of Hudi's ``show_commits``."""
        return history_table(self._snapshot(), limit)

    def __repr__(self) -> str:
        return f"Table({self.path!r}, engine={self._session.engine.name})"

    def __str__(self) -> str:
        return table_card(self._snapshot(), self._session.engine.name)

    def _repr_html_(self) -> str:
        return table_html(self._snapshot(), self._session.engine.name)
