"""One write of a table by a Python data source: what is written, checked before the job and done by its commit.

The commit runs in a Python worker beside the driver, without a SparkSession, so the local engine writes: threads of
that process, on Arrow tables. Memory there: about four times the rows of the write as Arrow (0.6 GiB for 2,000,000 rows
of 152 MiB), although they are mapped from a local disk (:mod:`lakedex.spark.staged_rows`), and a file group of the
table for each processor. For frames that are larger than that, ``Table.open(path, spark=spark)`` writes on the
executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakedex.commit.idempotency import checked_txn
from lakedex.errors import InvalidInputError, OptionError, SchemaMismatchError, TableExistsError
from lakedex.io.storage import TableFiles
from lakedex.local.engine import LocalEngine
from lakedex.options import WriteOptions, parse_options
from lakedex.reports import WriteResult
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.timeline.table_config import TableConfig
from lakedex.write import operations
from lakedex.write.clustering import clustered_after
from lakedex.write.create_table import check_new_table, create_table, is_table, take_back

__all__ = ["OPERATIONS", "RECORD_KEY", "SETTINGS", "NewTable", "TableWrite"]


OPERATIONS = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table")
"""Hudi's names of the operations that a write by format does."""


RECORD_KEY = "hoodie.datasource.write.recordkey.field"


SETTINGS = {
    "hoodie.table.name": "name",
    "hoodie.datasource.write.table.name": "name",
    RECORD_KEY: "record_key",
    "hoodie.table.recordkey.fields": "record_key",
    "primaryKey": "record_key",
    "hoodie.datasource.write.partitionpath.field": "partition_by",
    "hoodie.table.partition.fields": "partition_by",
    "hoodie.datasource.write.precombine.field": "ordering_by",
    "hoodie.table.precombine.field": "ordering_by",
    "hoodie.table.ordering.fields": "ordering_by",
    "preCombineField": "ordering_by",
    "orderingFields": "ordering_by",
    "hoodie.datasource.write.table.type": "table_type",
    "hoodie.table.type": "table_type",
    "type": "table_type",
}
"""Option → field of :class:`NewTable`. Names without ``hoodie.`` are those of Hudi's SQL."""


_TABLE_TYPES = {"copy_on_write": "cow", "cow": "cow", "merge_on_read": "mor", "mor": "mor"}


_NULL_FOR_MISSING = "hoodie.write.set.null.for.missing.columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """Settings of a table by the options of a write: those of a new one, checked against those of an existing one.

    None was not said.
    """

    name: str | None = None
    record_key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    ordering_by: tuple[str, ...] | None = None
    table_type: str | None = None

    @classmethod
    def of(cls, found: Mapping[str, tuple[str, str]]) -> NewTable:
        """The settings among options: field → name of the option and its text.

        Raises:
            OptionError: a type of table that Hudi does not have.
        """
        values: dict[str, Any] = {}
        for field_, (option, text) in found.items():
            if field_ in ("record_key", "partition_by", "ordering_by"):
                values[field_] = tuple(name.strip() for name in text.split(",") if name.strip())
            elif field_ == "table_type":
                values[field_] = _TABLE_TYPES.get(text.strip().lower())
                if values[field_] is None:
                    raise OptionError(f"option {option}={text!r}: give one of {', '.join(_TABLE_TYPES)}", option=option)
            elif field_ == "name":
                values[field_] = text
        return cls(**values)

    def require_same(self, config: TableConfig, path: str) -> None:
        """Refuse settings that an existing table does not have.

        Raises:
            OptionError: names the setting and both values.
        """
        kind = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}[config.table_type]
        for what, given, stored in (
            ("hoodie.table.name", self.name, config.name),
            (RECORD_KEY, self.record_key, config.record_key_fields),
            ("hoodie.datasource.write.partitionpath.field", self.partition_by, config.partition_fields),
            ("hoodie.datasource.write.precombine.field", self.ordering_by, config.ordering_fields),
            ("hoodie.datasource.write.table.type", self.table_type, kind),
        ):
            if given is not None and given != stored:
                raise OptionError(
                    f"table {config.name} at {path}: {what} is {_text(stored)!r} and cannot become {_text(given)!r};"
                    " leave the option out, or write to another path",
                    option=what,
                )


def _text(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """One write; it pickles.

    Attributes:
        files: of the table.
        operation: one of :data:`OPERATIONS`; None upserts, and inserts where the table has no key.
        new: settings of the table.
        options: ``hoodie.*`` options of the write.
        merge_schema: False refuses new columns and wider types, True also makes columns null that the frame lacks;
            None adds new columns and refuses missing ones.
    """

    files: TableFiles
    operation: str | None = None
    new: NewTable = NewTable()
    options: Mapping[str, str] = field(default_factory=dict)
    merge_schema: bool | None = None

    def require_writable(self, schema: pa.Schema) -> tuple[str, ...]:
        """Check table, options and columns before a row is touched.

        Args:
            schema: columns of the frame.

        Returns:
            Notes on options that have no effect on this write.

        Raises:
            InvalidInputError: a setting of a new table that is missing, or a column that the table or the frame lacks.
            OptionError: an option that is unknown, not supported, or contradicts the table.
            SchemaMismatchError: a column that does not fit the table.
        """
        handle, parsed = self._handle(), self._parsed()
        if not is_table(handle):
            new = self.new
            self._require_key()
            parts, order = new.partition_by or (), new.ordering_by or ()
            check_new_table(self.files, new.name, schema, new.record_key, parts, order, new.table_type or "cow", parsed)
            return parsed.notes
        self._check(handle, schema, parsed)
        return parsed.notes

    def commit(self, rows: pa.Table, *, dynamic: bool = False, txn: tuple[str, int] | None = None) -> WriteResult:
        """Write rows in one commit; where there is no table, make it, and take it back if the rows cannot be written.

        Args:
            rows: the frame.
            dynamic: an overwrite of the table replaces only the partitions that the rows go to.
            txn: as in :meth:`lakedex.Table.upsert`.

        Returns:
            The result of the table's method.

        Raises:
            LakedexError: what the table's method raises; nothing is written then.
        """
        handle = self._handle()
        parsed = replace(self._parsed(), txn=checked_txn(txn))
        undo = None if is_table(handle) else self._create(handle, rows.schema)
        try:
            self._check(handle, rows.schema, parsed)
            return clustered_after(handle, parsed, self._action(handle, rows, parsed, dynamic)())
        except BaseException:
            if undo is not None:
                undo()
            raise

    def _handle(self) -> TableContext:
        return TableContext(self.files, LocalEngine())

    def _parsed(self) -> WriteOptions:
        options = dict(self.options)
        if self.merge_schema:
            options[_NULL_FOR_MISSING] = "true"
        method = "insert_overwrite" if self.operation == "insert_overwrite_table" else self.operation or "upsert"
        return parse_options(None, options, method)

    def _require_key(self) -> None:
        """A new table without a record key takes rows, but looks none up."""
        if not self.new.record_key and self.operation in ("upsert", "delete"):
            raise InvalidInputError(
                f"{self.files} is no Hudi table; to make one for {self.operation} give .option({RECORD_KEY!r}, "
                "'<column>')"
            )

    def _create(self, handle: TableContext, schema: pa.Schema) -> Callable[[], object]:
        """Make the table; what comes back removes it again."""
        try:
            create_table(
                handle,
                name=self.new.name,
                # As in other formats of Spark: that a frame has no nulls in a column does not bind later ones.
                schema=pa.schema([f.with_nullable(True) for f in handle.engine.schema_of(schema.empty_table())]),
                record_key=self.new.record_key,
                partition_by=self.new.partition_by or (),
                ordering_by=self.new.ordering_by or (),
                table_type=self.new.table_type or "cow",
                exist_ok=False,
                options=self.options,
            )
        except TableExistsError:
            # Another writer made it since the job was planned; whether it is the same table is checked next.
            return lambda: None
        return lambda: take_back(handle, self.options, keep_folder=True)

    def _check(self, handle: TableContext, schema: pa.Schema, parsed: WriteOptions) -> None:
        snapshot = operations.writable(handle)
        self.new.require_same(snapshot.config, str(self.files))
        if self.operation == "delete":
            operations.Deletion.of_keys(handle, schema.empty_table(), parsed)
            return
        _, _, prepare = operations.prepared(handle, schema.empty_table(), parsed)
        if self.merge_schema is False and snapshot.schema.names:
            _require_unchanged(snapshot, prepare.assignment.target)

    def _action(
        self, handle: TableContext, rows: pa.Table, parsed: WriteOptions, dynamic: bool
    ) -> Callable[[], WriteResult]:
        operation = self.operation
        if operation is None:
            operation = "upsert" if handle.snapshot().config.record_key_fields else "insert"
        if operation == "insert_overwrite_table" and dynamic:
            operation = "insert_overwrite"
        actions: Mapping[str, Callable[[], WriteResult]] = {
            "upsert": lambda: operations.upsert(handle, rows, parsed),
            "insert": lambda: operations.insert(handle, rows, parsed),
            "bulk_insert": lambda: operations.bulk_insert(handle, rows, parsed),
            "delete": lambda: operations.delete_keys(handle, rows, parsed),
            "insert_overwrite": lambda: operations.insert_overwrite(handle, rows, parsed, "partitions", None),
            "insert_overwrite_table": lambda: operations.insert_overwrite(handle, rows, parsed, "table", None),
        }
        return actions[operation]


def _require_unchanged(snapshot: Snapshot, target: pa.Schema) -> None:
    for column in target:
        if column.name not in snapshot.schema.names:
            found: Any = "new"
        elif (stored := snapshot.schema.field(column.name).type) != column.type:
            found = f"{column.type} instead of {stored}"
        else:
            continue
        raise SchemaMismatchError(
            f"table {snapshot.config.name}: column {column.name!r} is {found}, and mergeSchema=false changes no"
            " column; leave the option out to let the table take it",
            column=column.name,
        )
