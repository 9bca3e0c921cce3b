"""``Table``: a Hudi table as its users see it; every method delegates."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from lakedex.codec.comments import with_comments
from lakedex.display.html import card_html
from lakedex.display.text import card_text
from lakedex.errors import InvalidInputError
from lakedex.io.locations import StorageOptions, open_storage
from lakedex.io.retries import with_one_budget
from lakedex.options import parse_options
from lakedex.reports import WriteResult
from lakedex.scan.incremental import incremental_snapshot
from lakedex.scan.scan import Scan
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.table.card import table_card, write_report
from lakedex.table.hints import missing_attribute
from lakedex.table.indexes import Indexes
from lakedex.table.inspect import Inspect
from lakedex.table.maintenance import Maintenance
from lakedex.table.merge_builder import MergeBuilder
from lakedex.table.session import AsOf, OpenedTable, Options, Txn, Where, as_names, open_session
from lakedex.timeline.compatibility import require_readable
from lakedex.types import Operation
from lakedex.write import alter_schema, operations
from lakedex.write.create_table import create_table, is_table
from lakedex.write.erase import EraseReport, delete_rows, erase
from lakedex.write.merge_clauses import Aliases, Merge
from lakedex.write.session import Session

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["Table"]


Path = str | os.PathLike[str]


Partitions = Sequence[str | Mapping[str, Any]] | str | Mapping[str, Any]


def _context(
    path: Path, session: Session, storage_options: StorageOptions = None, options: Options = None
) -> TableContext:
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(
            f"path is a str or os.PathLike, not {type(path).__name__}: Table.create(path, spark=spark)"
        )
    files = open_storage(path, session.storage_options(os.fspath(path)) if storage_options is None else storage_options)
    return TableContext(files, session.engine, dict(options or {}))


@with_one_budget
class Table:
    """A Hudi table and the engine that works on it.

    Make one with :meth:`create`, open one with :meth:`open`. Indexes are managed by :attr:`indexes`, services and the
    undoing of commits by :attr:`maintenance`; :attr:`inspect` shows files, partitions, commits and index entries.

    Args:
        context: storage, path, engine, options and caches.
        session: how the engine hands rows to its user.
    """

    def __init__(self, context: TableContext, session: Session | None = None) -> None:
        if session is None:
            raise TypeError(
                f"open a table with Table.open({context!r}), make one with Table.create(path, schema, record_key=…)"
            )
        self._opened = OpenedTable(context, session)

    # --------------------------------------------------------------------------------------------- creating, opening

    @classmethod
    def create(
        cls,
        path: Path,
        schema: Any = None,
        *,
        record_key: str | Sequence[str] | None,
        spark: Any = None,
        name: str | None = None,
        partition_by: str | Sequence[str] = (),
        ordering_by: str | Sequence[str] | None = None,
        table_type: str = "cow",
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        storage_options: StorageOptions = None,
        options: Options = None,
    ) -> Table:
        """Create an empty table, of version 8 unless ``hoodie.write.table.version`` says 6 or 9.

        Args:
            path: the table's folder.
            schema: ``pyarrow.Schema``, Spark ``StructType`` or DDL text; None takes that of the first frame written.
                Comments of columns (``comment`` in a field's metadata) are kept.
            record_key: column or columns of the key; None makes a keyless table. Each row that is inserted gets a
                generated key; update, delete and merge find rows by a condition, and upsert is refused.
            spark: a SparkSession; None works without Spark.
            name: the table's name; None takes the folder's name.
            partition_by: columns of the partition path; none for a non-partitioned table.
            ordering_by: the column whose larger value decides between two versions of a row; None lets the later commit
                win. Version 9 takes several, compared one after the other.
            table_type: ``cow`` (copy-on-write) rewrites the file of a changed row; ``mor`` (merge-on-read) puts changes
                into log files beside it, which readers merge until a compaction rewrites the file.
            comment: a description of the table.
            properties: names and texts of yours, kept in ``hoodie.properties``; ``lakedex.default.<column>`` is the
                literal that an ``INSERT`` of Spark SQL writes for a column that it leaves out.
            exist_ok: open an existing table instead of failing.
            storage_options: how the object store of ``path`` is reached: credentials, endpoint, region, by the names of
                environment variables or of Hadoop (docs/object_stores.md). None takes those of the Spark session, and
                else of the environment.
            options: ``hoodie.*`` options, kept for this object's writes.

        Returns:
            The table, opened.

        Raises:
            TableExistsError: the folder holds a table already.
            InvalidInputError: a key, partition or ordering column that cannot be used.
            SchemaMismatchError: a type that a Hudi table cannot store.
            OptionError: an unknown option, or one that lakedex does not support.

        Example:
            >>> Table.create(folder / "rides", trips.schema, record_key="id", partition_by="city").name
            'rides'
        """
        session = open_session(spark)
        context = _context(path, session, storage_options, options)
        create_table(
            context,
            name=name,
            schema=session.schema(schema),
            record_key=None if record_key is None else as_names(record_key),
            partition_by=as_names(partition_by),
            ordering_by=as_names(ordering_by),
            table_type=table_type,
            exist_ok=exist_ok,
            options=options,
            comment=comment,
            properties=properties,
        )
        return cls(context, session)

    @classmethod
    def open(
        cls, path: Path, *, spark: Any = None, storage_options: StorageOptions = None, options: Options = None
    ) -> Table:
        """Open the table at ``path``.

        Args:
            path: the table's folder.
            spark: a SparkSession; None works without Spark.
            storage_options: how the object store of ``path`` is reached, as in :meth:`create`.
            options: ``hoodie.*`` options, kept for this object's writes.

        Returns:
            The table.

        Raises:
            TableNotFoundError: the folder holds no Hudi table.
            UnsupportedFeatureError: a table that lakedex does not read (versions other than 6, 8 and 9, ORC files …).

        Example:
            >>> Table.open(table.path).name
            'trips'
        """
        session = open_session(spark)
        parse_options(options)
        context = _context(path, session, storage_options, options)
        require_readable(context.snapshot().config)
        return cls(context, session)

    @classmethod
    def is_table(cls, path: Path, *, spark: Any = None, storage_options: StorageOptions = None) -> bool:
        """Whether the folder holds a Hudi table.

        Args:
            path: a folder, which need not exist.
            spark: a SparkSession, for the storage options that it has; None needs none.
            storage_options: how the object store of ``path`` is reached, as in :meth:`create`.

        Returns:
            True for a table of any version.

        Example:
            >>> Table.is_table(table.path)
            True
        """
        return is_table(_context(path, open_session(spark), storage_options))

    # -------------------------------------------------------------------------------------------------- properties

    @property
    def path(self) -> str:
        """The table's folder."""
        return self._opened.context.files.base_path

    @property
    def name(self) -> str:
        """The table's name."""
        return self.snapshot().config.name

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without Hudi's meta columns. Comments are ``comment`` in the metadata of a field."""
        snapshot = self.snapshot()
        return with_comments(snapshot.schema, snapshot.comments)

    @property
    def comment(self) -> str | None:
        """The table's description; None if it has none."""
        return self.snapshot().config.comment

    @property
    def properties(self) -> dict[str, str]:
        """The table's settings, as ``hoodie.properties`` has them."""
        return dict(self.snapshot().config.raw)

    @property
    def context(self) -> TableContext:
        """Storage, engine, options and caches, for code that works on the table itself."""
        return self._opened.context

    @property
    def indexes(self) -> Indexes:
        """Create, drop, refresh, validate and describe indexes."""
        return Indexes(self._opened)

    @property
    def maintenance(self) -> Maintenance:
        """Clean, archive, compact the metadata, validate, roll back, restore."""
        return Maintenance(self._opened)

    @property
    def inspect(self) -> Inspect:
        """Files, partitions, commits and index entries of the newest snapshot, as Arrow tables."""
        return Inspect(self.snapshot())

    def snapshot(self, as_of: AsOf = None, *, query_type: str = "snapshot") -> Snapshot:
        """The table pinned to an instant: its settings, timelines, metadata and file slices.

        Args:
            as_of: an instant (``r.instant``) or a time; None pins the newest commit.
            query_type: ``read_optimized`` leaves out log files.

        Returns:
            The snapshot; it is loaded now and does not change.

        Raises:
            InvalidInputError: an ``as_of`` before the first commit, or one whose files were cleaned.

        Example:
            >>> len(table.snapshot().base_files())
            2
        """
        return self._opened.snapshot(as_of, query_type)

    # ------------------------------------------------------------------------------------------------------ writing

    def upsert(self, data: Any, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Update the rows whose record key is in the table and insert the others.

        Of two rows with one key the larger ordering value wins; on a tie, or without an ordering field, the later row
        wins.

        Args:
            data: a list of dictionaries; a Spark, pandas or polars DataFrame; a pyarrow table, batches, dataset; or any
                object that exports an Arrow stream (docs/writing.md lists all).
            txn: ``(application, batch)``. If the table has this batch of the application, or one with a larger number,
                nothing is written and a note names its commit, so ``foreachBatch`` may repeat a batch. A rollback or
                restore of that commit undoes the batch too.
            options: ``hoodie.*`` options of this call; they override those of :meth:`open` and :meth:`create`.

        Returns:
            The instant, row counts, bytes written, and the tagging report.

        Raises:
            InvalidInputError: a record key is null or empty; the message names the column and the number of rows.
            SchemaMismatchError: a column's type cannot be widened to the table's type.
            CommitConflictError: other writers changed the same file groups more often than the retry option allows.

        Example:
            >>> table.upsert(trips).updated
            3
        """
        parsed = self._opened.parse(options, "upsert", txn)
        return self._opened.finished(operations.upsert(self.context, data, parsed), parsed)

    def insert(self, data: Any, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Add rows, to small files first; keys are looked up only for ``hoodie.datasource.insert.dup.policy``.

        Args:
            data: the rows, as :meth:`upsert` takes them.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant, row counts and bytes written.

        Raises:
            InvalidInputError: a null or empty record key, or under the policy ``fail`` a key that the table has.
            SchemaMismatchError: a column's type cannot be widened to the table's type.
            CommitConflictError: other writers changed the same file groups more often than the retry option allows.

        Example:
            >>> table.insert(new_trips).inserted
            2
        """
        parsed = self._opened.parse(options, "insert", txn)
        return self._opened.finished(operations.insert(self.context, data, parsed), parsed)

    def bulk_insert(self, data: Any, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Load rows into new files, sorted by key, without looking keys up.

        Args:
            data: the rows, as :meth:`upsert` takes them.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant, row counts and bytes written.

        Raises:
            InvalidInputError: a missing column, or a null or empty record key.
            SchemaMismatchError: a column's type cannot be widened to the table's type.

        Example:
            >>> table.bulk_insert(new_trips).inserted
            2
        """
        parsed = self._opened.parse(options, "bulk_insert", txn)
        return self._opened.finished(operations.bulk_insert(self.context, data, parsed), parsed)

    def insert_overwrite(
        self,
        data: Any,
        scope: str = "partitions",
        partitions: Partitions | Callable[[Sequence[str]], Collection[str]] | None = None,
        *,
        schema: Any = None,
        txn: Txn = None,
        options: Options = None,
    ) -> WriteResult:
        """Replace partitions, or the whole table, by the rows of a frame, in one commit.

        Equal keys in the frame are treated as :meth:`insert` treats them. Replaced files stay until they are cleaned,
        so older instants can still be read. An empty frame empties the named partitions, or the table with
        ``scope="table"``; else it changes nothing.

        Args:
            data: the rows, as :meth:`upsert` takes them.
            scope: ``partitions`` replaces the partitions that the rows go to; ``table`` replaces everything.
            partitions: replace exactly these, as paths (``city=rome``) or as ``{column: value}``; rows that belong to
                another partition are refused. A named partition without rows is emptied. A function picks some of a
                list of paths: of those that the table has, and of new ones.
            schema: with ``scope="table"`` the columns from now on, as :meth:`create` takes them: others are gone
                (SQL's ``CREATE OR REPLACE TABLE``). A column that keeps its name keeps its type, or widens it. None
                keeps the columns, and adds new ones of the frame.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant, row counts and bytes written.

        Raises:
            InvalidInputError: an unknown scope or partition, rows outside of the named partitions, a bad key.
            SchemaMismatchError: a column of ``schema`` whose type does not go with older files of its name.
            CommitConflictError: other writers changed the same partitions more often than the retry option allows.

        Example:
            >>> table.insert_overwrite(new_trips, partitions={"city": "rome"}).inserted
            2
        """
        parsed = self._opened.parse(options, "insert_overwrite", txn)
        columns = self._opened.session.schema(schema)
        result = operations.insert_overwrite(self.context, data, parsed, scope, partitions, columns)
        return self._opened.finished(result, parsed)

    def update(
        self, set: Mapping[str, Any], where: Where = None, *, txn: Txn = None, options: Options = None
    ) -> WriteResult:
        """Set columns of the rows under a condition.

        Args:
            set: column → SQL expression, a Python number, date or None, or on Spark a Column. Text is SQL too: for
                the text bob write ``"'bob'"``.
            where: a condition, as :meth:`scan` takes it; None updates all rows.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant, row counts and bytes written.

        Raises:
            InvalidInputError: an unknown column, or one of the record key or partition path.
            SchemaMismatchError: a value that the column's type cannot hold.
            CommitConflictError: another writer committed after the rows were read.

        Example:
            >>> table.update({"fare": "fare * 1.1"}, "city = 'oslo'").updated
            2
        """
        opened, parsed = self._opened, self._opened.parse(options, "update", txn)

        def write() -> WriteResult:
            snapshot, session = self.snapshot(), opened.session
            checked = operations.check_assignments(snapshot, set, case_sensitive=session.rules.case_sensitive)
            rows = session.changed(snapshot, self._condition(where), checked)
            return operations.update_stored(opened.context, rows, parsed, snapshot.last_completion_time, checked)

        return opened.commit(Operation.UPSERT, parsed, write)

    def merge(self, data: Any, on: Any, *, target: str = "t", source: str = "s") -> MergeBuilder:
        """Start a merge of a frame into the table, as SQL's MERGE INTO; see :class:`MergeBuilder` for its clauses.

        If ``on`` demands that all record-key columns are equal (``t.id = s.id``, more may follow with AND), the indexes
        look the keys up and only files that hold one are read. Name the partition columns too if they are equal: keys
        are looked up in all partitions otherwise. Other conditions join the frame with the table.

        An update by a merge wins, whatever the ordering column says. Two source rows for one row of the table, or for
        one new key, are an error, unless the only clause for matched rows is an unconditional delete.

        Args:
            data: the source's rows, as :meth:`upsert` takes them.
            on: which rows match: SQL text over both sides, or on Spark a Column.
            target: the table's name in expressions.
            source: the frame's name in expressions.

        Returns:
            A builder; its ``execute()`` runs the merge.

        Example:
            >>> merge = table.merge(trips, "t.id = s.id")
            >>> merge.when_matched_update_all().when_not_matched_insert_all().execute().updated
            3
        """
        return MergeBuilder(table=self._opened, data=data, merge=Merge(on=on, aliases=Aliases(target, source)))

    def delete(
        self,
        keys: Any = None,
        *,
        where: Where = None,
        all_partitions: bool = False,
        txn: Txn = None,
        options: Options = None,
    ) -> WriteResult:
        """Delete the rows of some keys, or the rows under a condition. :meth:`erase` also proves it.

        Args:
            keys: a frame with the key and partition columns, or a list of keys: values, tuples if the key has several
                columns, or dictionaries. A global index needs no partition columns.
            where: a condition, as :meth:`scan` takes it, instead of keys.
            all_partitions: delete the keys in whatever partition they are; needs no partition columns.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant, row counts and bytes written.

        Raises:
            InvalidInputError: neither or both of keys and a condition, a key or partition column that the frame lacks,
                or a column that the table lacks.
            SchemaMismatchError: a key that the type of the key column cannot hold.
            CommitConflictError: another writer committed after the rows of a condition were read.

        Example:
            >>> table.delete(["t1"], all_partitions=True).deleted
            1
            >>> table.delete(where="city = 'oslo'").deleted
            2
        """
        parsed = self._opened.parse(options, "delete", txn)
        session = self._opened.session
        result = delete_rows(self.context, session, keys, self._condition(where), parsed, all_partitions=all_partitions)
        return self._opened.finished(result, parsed)

    def erase(
        self,
        keys: Any = None,
        *,
        where: Where = None,
        proof: Literal["full", "index"] | None = None,
        all_partitions: bool = False,
        txn: Txn = None,
        options: Options = None,
    ) -> EraseReport:
        """Delete rows and prove it; the report also names the files and commits that still hold them.

        The indexes find the files, and only those that hold a row are rewritten. As with :meth:`delete`, rows go by
        their keys: if ``insert`` has made two rows of one key, both go. On merge-on-read tables slices with any version
        of a key, a deleted one too, become base files of their merged rows.

        Args:
            keys: keys, as :meth:`delete` takes them.
            where: a condition, as :meth:`scan` takes it, instead of keys.
            proof: ``full`` reads every file for the proof, ``index`` those that the indexes name; None takes ``full``
                up to 1 GiB. The indexes prove an erasure of more than 10,000 keys.
            all_partitions: erase the keys in whatever partition they are; needs no partition columns.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The rows erased, the proof's query and count, and the older files that hold the rows until they are cleaned.

        Raises:
            InvalidInputError: neither or both of keys and a condition, or keys that do not fit the table.
            UnsupportedFeatureError: a pending compaction is to rewrite a file group with such a key.
            CommitConflictError: another writer committed after the rows of a condition were read.

        Example:
            >>> report = table.erase(where="rider = 'ana'")
            >>> report.rows, report.is_verified
            (1, True)
        """
        parsed = self._opened.parse(options, "erase", txn)
        session = self._opened.session
        report = erase(self.context, session, keys, self._sql(where), parsed, proof, all_partitions=all_partitions)
        self._opened.refresh_views()
        return report

    def delete_partition(self, partitions: Partitions, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Empty partitions in one commit (Hudi's DELETE_PARTITION), without reading a row of them.

        Their files stay until they are cleaned, so older instants can still be read.

        Args:
            partitions: as paths (``city=rome``) or as ``{column: value}``. The null and the empty string share Hudi's
                default partition, so that naming either empties both.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The instant and row counts.

        Raises:
            InvalidInputError: a table without partitions, or a path that it cannot have.
            CommitConflictError: other writers changed one of the partitions more often than the retry option allows.

        Example:
            >>> table.delete_partition({"city": "oslo"}).operation
            'DELETE_PARTITION'
        """
        context, parsed = self.context, self._opened.parse(options, "delete_partition", txn)
        return self._opened.commit(
            Operation.DELETE_PARTITION, parsed, lambda: operations.delete_partition(context, parsed, partitions)
        )

    # ------------------------------------------------------------------------------------------------------- schema

    def set_comment(
        self, text: str | None, column: str | None = None, *, txn: Txn = None, options: Options = None
    ) -> WriteResult | None:
        """Describe the table or one of its columns.

        Args:
            text: the comment; None or an empty text removes it.
            column: a column, or a field inside of one (``a.b``; ``a.element.b`` in a list, ``a.value.b`` in a map). Its
                comment is a commit, so that a rollback or restore undoes it; that of the table is not.
            txn: ``(application, batch)`` of a column's comment, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit; None for the comment of the table.

        Raises:
            InvalidInputError: an unknown column, or a text that is no valid Unicode.

        Example:
            >>> table.set_comment("Trips of the city bikes")
            >>> table.comment
            'Trips of the city bikes'
        """
        context, parsed = self.context, self._opened.parse(options, "set_comment", txn)
        if column is None:
            alter_schema.comment_table(context, parsed, text or "")
            return None
        return self._opened.commit(
            Operation.ALTER_SCHEMA, parsed, lambda: alter_schema.comment_column(context, parsed, column, text or "")
        )

    def add_columns(self, schema: Any, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Add nullable columns at the end; no file is rewritten.

        Args:
            schema: ``pyarrow.Schema``, Spark ``StructType`` or DDL text. ``a.b`` adds ``b`` to the struct column ``a``.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit.

        Raises:
            InvalidInputError: a column that the table has already, one that is never null, or a name that it cannot
                have.
            SchemaMismatchError: a name that was dropped and that files still hold: ``maintenance.rewrite_files()``.

        Example:
            >>> table.add_columns(pa.schema([("tip", pa.float64())])).instant is not None
            True
        """
        context, parsed = self.context, self._opened.parse(options, "add_columns", txn)
        added = self._opened.session.schema(schema) or pa.schema([])
        return self._opened.commit(
            Operation.ALTER_SCHEMA, parsed, lambda: alter_schema.add_columns(context, parsed, added)
        )

    def drop_columns(self, names: str | Sequence[str], *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Remove columns from the schema; files hold them until they are rewritten.

        Args:
            names: the columns.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.

        Example:
            >>> table.drop_columns("rider").instant is not None
            True
        """
        context, parsed = self.context, self._opened.parse(options, "drop_columns", txn)
        return self._opened.commit(
            Operation.ALTER_SCHEMA, parsed, lambda: alter_schema.drop_columns(context, parsed, as_names(names))
        )

    def rename_column(self, old: str, new: str, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Rename a column. Readers find columns by name, so the files that hold it are rewritten.

        Args:
            old: the column.
            new: its new name.
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit, with the number of files rewritten.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.
            SchemaMismatchError: ``new`` was dropped and files still hold it: ``maintenance.rewrite_files()``.

        Example:
            >>> table.rename_column("fare", "price").files_written
            2
        """
        context, parsed = self.context, self._opened.parse(options, "rename_column", txn)
        return self._opened.commit(
            Operation.ALTER_SCHEMA, parsed, lambda: alter_schema.rename_column(context, parsed, old, new)
        )

    def widen_column(self, name: str, type: Any = None, *, txn: Txn = None, options: Options = None) -> WriteResult:
        """Give a column a wider type: int to long or double, float to double, a decimal more digits; or let it be null.

        Only float to double rewrites the files that hold the column.

        Args:
            name: the column.
            type: ``pyarrow.DataType``, Spark ``DataType`` or SQL text (``bigint``, ``decimal(20, 2)``). None lets a
                column be null that was declared as one that never is (``DROP NOT NULL``).
            txn: ``(application, batch)``, as in :meth:`upsert`.
            options: ``hoodie.*`` options of this call.

        Returns:
            The commit, with the number of files rewritten.

        Raises:
            InvalidInputError: an unknown column, or one of the record key, partition path or ordering.
            SchemaMismatchError: a type that is not wider, or that not every reader of Hudi tables widens to.

        Example:
            >>> table.widen_column("seats", "bigint").files_written
            0
        """
        context, parsed = self.context, self._opened.parse(options, "widen_column", txn)
        if type is None:
            return self._opened.commit(
                Operation.ALTER_SCHEMA, parsed, lambda: alter_schema.drop_not_null(context, parsed, name)
            )
        return self._opened.commit(
            Operation.ALTER_SCHEMA, parsed, lambda: alter_schema.widen_column(context, parsed, name, type)
        )

    # ------------------------------------------------------------------------------------------------------ reading

    def scan(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        *,
        as_of: AsOf = None,
        limit: int | None = None,
        use_indexes: bool = True,
        verify: Literal["full"] | None = None,
        cost_gate: bool = True,
        query_type: str = "snapshot",
        meta_columns: bool = False,
    ) -> Scan:
        """A lazy scan of the table as it is now, or as of an instant or time.

        Args:
            where: a condition; None reads all rows. SQL text; ``col("fare") > 12`` (:func:`lakedex.col`); a tuple
                ``("fare", ">", 12)``, a list of tuples (all are to be true) or of such lists (one is to be true); an
                expression of pyarrow or polars, with that library's meaning of null and NaN; on Spark a Column.
            columns: columns of the result; None reads the table's own.
            as_of: an instant (``r.instant``) or a time; None pins the newest commit.
            limit: number of rows at most; None reads all rows.
            use_indexes: False reads all files and row groups.
            verify: ``full`` also reads the files that indexes drop, and raises if one holds a matching row.
            cost_gate: False reads bitmaps also where the forecast is that they cost more than they save.
            query_type: ``read_optimized`` reads base files only: a merge-on-read table as of its last compactions.
            meta_columns: Hudi's five meta columns (``_hoodie_commit_time`` …) too, before the table's own. They can
                also be named in ``columns``.

        Returns:
            A scan; it reads when an answer is asked for.

        Raises:
            InvalidInputError: an ``as_of`` before the first commit, or one whose files were cleaned.
            UnsupportedFeatureError: log files that are merged in a way that lakedex does not know.

        Example:
            >>> table.scan("city = 'oslo'", ["id", "fare"]).count()
            2
        """
        snapshot = self.snapshot(as_of, query_type=query_type)
        return self._scan(
            snapshot,
            where,
            columns,
            meta_columns=meta_columns,
            max_rows=limit,
            use_indexes=use_indexes,
            verify=verify,
            cost_gate=cost_gate,
        )

    def _scan(self, snapshot: Snapshot, where: Any, columns: Sequence[str] | None, **options: Any) -> Scan:
        session = self._opened.session
        return Scan(
            snapshot=snapshot,
            where=self._sql(where),
            columns=None if columns is None else tuple(columns),
            rules=session.rules,
            engine=self.context.engine,
            to_frame=session.to_frame,
            to_keys=session.keys,
            to_sql=session.sql,
            **options,
        )

    def _columns(self) -> pa.Schema:
        return read_columns(self.snapshot().schema)

    def _sql(self, where: Where) -> Any:
        return self._opened.session.sql(where, self._columns)

    def _condition(self, where: Where) -> Any:
        """A condition that the engine finds rows by: a Spark Column stays one."""
        return where if where is not None and self._opened.session.evaluates(where) else self._sql(where)

    def changes(
        self,
        since: AsOf,
        until: AsOf = None,
        columns: Sequence[str] | None = None,
        where: Where = None,
        *,
        format: str = "latest_state",
        fallback: Literal["full"] | None = None,
        meta_columns: bool = False,
    ) -> Scan:
        """Rows that commits after ``since``, up to and with ``until``, inserted or updated: Hudi's incremental query.

        A row comes once, in its state as of ``until``. Deleted rows do not come, nor do earlier states of a row; for
        that Hudi has CDC, which lakedex does not read. Tables of version 8 and 9 go by when a commit completed, those
        of version 6 by when it was requested. Chained calls (``since`` is the last ``until``) miss nothing.

        Args:
            since: ``earliest``, an instant (``r.instant``: the commits after it) or a time.
            until: an instant, its commit included, or a time; None takes the newest commit.
            columns: columns of the result; None reads the table's own.
            where: a condition, as :meth:`scan` takes it; None reads all changed rows.
            format: ``latest_state``; Hudi's ``cdc`` is refused.
            fallback: ``full`` reads the newest files if older ones that are needed were cleaned: rows that were
                changed again after ``until`` are missing then. None refuses.
            meta_columns: Hudi's five meta columns too, before the table's own.

        Returns:
            A scan of the changed rows.

        Raises:
            InvalidInputError: a range that cannot be read any more, since commits were archived or files cleaned;
                the message has the earliest ``since``. In version 6 also a range that a pending write may add to.
            UnsupportedFeatureError: a table without meta columns.

        Example:
            >>> since = table.snapshot().instant
            >>> written = table.upsert(new_trips)
            >>> table.changes(since).count()
            2
        """
        found = incremental_snapshot(self.snapshot(), since, until, format=format, fallback=fallback)
        return self._scan(found.snapshot, found.condition(self._sql(where)), columns, meta_columns=meta_columns)

    def to_df(self, as_of: AsOf = None, *, query_type: str = "snapshot") -> Any:
        """The rows as a Spark DataFrame, pinned to the newest commit or to ``as_of``.

        Every filter put on the DataFrame prunes its files. File slices with log files (merge-on-read) are merged in
        Python on the executors, and no filter reaches them there: for a selective one use ``scan(where).to_spark()``,
        which prunes slices first. On Spark Connect, which cannot ask Python while it plans, a filter skips row groups
        only: there too use :meth:`scan`.

        Args:
            as_of: an instant (``r.instant``) or a time; None pins the newest commit.
            query_type: ``read_optimized`` leaves out log files.

        Returns:
            A DataFrame; :meth:`to_arrow`, :meth:`to_pandas` and :meth:`to_polars` need no Spark.

        Raises:
            MissingEngineError: the table was opened without Spark.
            InvalidInputError: an ``as_of`` before the first commit, or one whose files were cleaned.

        Example:
            >>> Table.open(path, spark=spark).to_df().where("fare > 12").show()  # doctest: +SKIP
        """
        return self._opened.session.frame(self.snapshot(as_of, query_type=query_type))

    def count(self, where: Where = None, *, as_of: AsOf = None) -> int:
        """Number of rows, from indexes and footers as far as they hold it: ``scan(where).count()``.

        Args:
            where: a condition, as :meth:`scan` takes it.
            as_of: an instant (``r.instant``) or a time; None takes the newest commit.

        Returns:
            The number.

        Raises:
            InvalidInputError: a column that the table lacks, or an ``as_of`` that cannot be read.
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.count("fare > 12")
            2
        """
        return self.scan(where, as_of=as_of).count()

    def head(self, rows: int = 10, where: Where = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows in the order of files and rows; no more files are read than they need.

        Args:
            rows: number of rows at most.
            where: a condition, as :meth:`scan` takes it.
            columns: columns of the result; None reads the table's own.

        Returns:
            The rows as an Arrow table.

        Raises:
            InvalidInputError: a negative number, or a column that the table lacks.
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.head(2).num_rows
            2
        """
        return self.scan(where, columns, limit=rows).to_arrow()

    def to_arrow(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        *,
        as_of: AsOf = None,
        query_type: str = "snapshot",
    ) -> pa.Table:
        """The rows as an Arrow table, read in threads: ``scan(where, columns).to_arrow()``.

        Args:
            where: a condition, as :meth:`scan` takes it.
            columns: columns of the result; None reads the table's own.
            as_of: an instant (``r.instant``) or a time; None takes the newest commit.
            query_type: ``read_optimized`` leaves out log files.

        Returns:
            The rows, in the order of files and rows.

        Raises:
            InvalidInputError: a column that the table lacks, or an ``as_of`` that cannot be read.
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.to_arrow("fare > 12").num_rows
            2
        """
        return self.scan(where, columns, as_of=as_of, query_type=query_type).to_arrow()

    def to_pandas(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        *,
        as_of: AsOf = None,
        query_type: str = "snapshot",
    ) -> pd.DataFrame:
        """The rows as a pandas frame: ``scan(where, columns).to_pandas()``.

        Args:
            where: a condition, as :meth:`scan` takes it.
            columns: columns of the result; None reads the table's own.
            as_of: an instant (``r.instant``) or a time; None takes the newest commit.
            query_type: ``read_optimized`` leaves out log files.

        Returns:
            The rows, in the order of files and rows.

        Raises:
            MissingDependencyError: pandas is not installed.
            InvalidInputError: a column that the table lacks, or an ``as_of`` that cannot be read.
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> len(table.to_pandas())
            3
        """
        return self.scan(where, columns, as_of=as_of, query_type=query_type).to_pandas()

    def to_polars(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        *,
        as_of: AsOf = None,
        query_type: str = "snapshot",
    ) -> pl.DataFrame:
        """The rows as a polars frame: ``scan(where, columns).to_polars()``.

        Args:
            where: a condition, as :meth:`scan` takes it.
            columns: columns of the result; None reads the table's own.
            as_of: an instant (``r.instant``) or a time; None takes the newest commit.
            query_type: ``read_optimized`` leaves out log files.

        Returns:
            The rows, in the order of files and rows.

        Raises:
            MissingDependencyError: polars is not installed.
            InvalidInputError: a column that the table lacks, or an ``as_of`` that cannot be read.
            UnsupportedFeatureError: a condition that only Spark can evaluate.

        Example:
            >>> table.to_polars(columns=["id"]).shape
            (3, 1)
        """
        return self.scan(where, columns, as_of=as_of, query_type=query_type).to_polars()

    def create_view(self, name: str) -> None:
        """Create or replace a temporary view for Spark SQL, pinned to the newest commit.

        Writes of this session refresh it; call it again to see commits of others.

        Args:
            name: the view's name: letters, digits and ``_``.

        Raises:
            InvalidInputError: a name that a view cannot have.
            MissingEngineError: the table was opened without Spark.

        Example:
            >>> table.create_view("trips")  # doctest: +SKIP
            >>> spark.sql("SELECT count(*) FROM trips WHERE city = 'oslo'").show()  # doctest: +SKIP
        """
        self._opened.session.create_view(name, self.path, self.to_df)

    def report(self, path: Path, queries: Sequence[str] = ()) -> str:
        """Write a page about the table that opens from disk: facts, commits, files, indexes, findings, statistics.

        No data file is opened, but for ``queries``: the advice on indexes reads a few.

        Args:
            path: the page's file on this machine, replaced if it exists.
            queries: conditions; the page has the plan of each, and an advice on indexes for all of them.

        Returns:
            The file's path.

        Raises:
            InvalidInputError: a path in no folder, or a query that is no condition.
            StorageError: the file cannot be written.

        Example:
            >>> table.report(folder / "trips.html", ["fare > 12"]).endswith("trips.html")
            True
        """
        snapshot = self.snapshot()
        scans = [self._scan(snapshot, query, None) for query in queries]
        return write_report(path, self.context, snapshot, scans, queries, self._opened.session.rules)

    if not TYPE_CHECKING:  # Type checkers are to refuse unknown names.

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(type(self), name)

    def __repr__(self) -> str:
        return f"Table({self.path!r}, engine={self._opened.session.engine.name})"

    def __str__(self) -> str:
        return card_text(table_card(self.snapshot(), self._opened.session.engine.name))

    def _repr_html_(self) -> str:
        return card_html(table_card(self.snapshot(), self._opened.session.engine.name))
