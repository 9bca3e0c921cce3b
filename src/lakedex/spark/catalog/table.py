"""A table of the catalog, pinned to the instant at which Spark resolved its name."""

from __future__ import annotations

from typing import ClassVar, cast

import pyarrow as pa
from pyspark.sql.types import StructType

from lakedex.errors import IndexExistsError, IndexNotFoundError, UnsupportedFeatureError
from lakedex.spark.catalog.aggregates import answer_query
from lakedex.spark.catalog.ddl import created_with, with_defaults
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaError, JavaProxy
from lakedex.spark.catalog.local_rows import LocalRows
from lakedex.spark.catalog.partitions import PARTITION_INTERFACE, PartitionStatements
from lakedex.spark.catalog.row_level import RowChanges, RowLevelOperation, register_row_level
from lakedex.spark.catalog.scan import ScanTarget, TableScanBuilder
from lakedex.spark.catalog.streams import stream_table
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.catalog.write import TableWriteBuilder, table_options
from lakedex.spark.filters import UntranslatablePredicateError, condition_of
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import arrow_to_spark, commented, nullable, quoted
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.free_properties import column_defaults
from lakedex.types import META_COLUMNS, PARTITION_PATH, RECORD_KEY

__all__ = ["WRITES", "CatalogTable", "RowsTable"]


_CATALOG = "org.apache.spark.sql.connector.catalog."


_CONNECTOR = "org.apache.spark.sql.connector."


WRITES = ("V1_BATCH_WRITE", "BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC")


class _Table(JavaProxy):
    """Name and columns of a table."""

    def __init__(self, bridge: JavaBridge, name: str, schema: StructType, identity: str) -> None:
        super().__init__(bridge, identity)
        self._name = name
        self._schema = schema
        self._columns: JavaObject = None

    def name(self) -> str:
        """As SQL has it."""
        return self._name

    def schema(self) -> JavaObject:
        """The columns."""
        if self._columns is None:
            self._columns = self._bridge.struct(self._schema)
        return self._columns

    def _capabilities(self, *names: str) -> JavaObject:
        bridge = self._bridge
        kind = bridge.view.org.apache.spark.sql.connector.catalog.TableCapability
        return bridge.constant(("capabilities", names), lambda: bridge.set(kind.valueOf(name) for name in names))


class CatalogTable(_Table, PartitionStatements):
    """A Hudi table. ``writable`` is false for an older instant, ``external`` true for one outside of the warehouse."""

    interfaces: ClassVar[tuple[str, ...]] = (
        f"{_CATALOG}SupportsRead",
        f"{_CATALOG}SupportsWrite",
        f"{_CATALOG}SupportsDeleteV2",
        f"{_CATALOG}SupportsMetadataColumns",
        f"{_CATALOG}SupportsRowLevelOperations",
        f"{_CATALOG}index.SupportsIndex",
        PARTITION_INTERFACE,
        f"{_CATALOG}V2TableWithV1Fallback",
        "java.util.function.Function",
    )

    def __init__(
        self, bridge: JavaBridge, target: ScanTarget, table: OpenTable, *, writable: bool, external: bool = False
    ) -> None:
        schema = cast("StructType", nullable(arrow_to_spark(target.snapshot.schema)))
        schema = with_defaults(schema, column_defaults(target.snapshot.config.raw))
        super().__init__(bridge, target.name, commented(schema, target.snapshot.comments), target.identity)
        self._target = target
        self._table = table
        self._writable = writable
        self._external = external

    # --------------------------------------------------------------------------------------------- description

    def partitioning(self) -> JavaObject:
        """The partition columns."""
        make = self._bridge.view.org.apache.spark.sql.connector.expressions.Expressions
        columns = [make.identity(quoted(n)) for n in self._target.snapshot.config.partition_fields]
        return self._bridge.array(f"{_CONNECTOR}expressions.Transform", columns)

    def properties(self) -> JavaObject:
        """Of ``SHOW CREATE TABLE`` and ``SHOW TBLPROPERTIES``, as ``CREATE TABLE`` takes them."""
        snapshot = self._target.snapshot
        where = {"location": snapshot.files.base_path, "external" if self._external else "is_managed_location": "true"}
        return self._bridge.map({"provider": "hudi", **where, **created_with(snapshot.config)})

    def capabilities(self) -> JavaObject:
        """An older instant is not written. Streams are read by :meth:`v1Table`."""
        evolves = () if self._bridge.needs_builder else ("AUTOMATIC_SCHEMA_EVOLUTION",)
        written = (*WRITES, "STREAMING_WRITE", *evolves) if self._writable else ()
        return self._capabilities("BATCH_READ", *written)

    def metadataColumns(self) -> JavaObject:
        """Hudi's meta columns: not in ``SELECT *``, but there when named."""
        bridge = self._bridge

        # Spark wants ids of rows that are never null; in a table that leaves these columns out they are.
        never = frozenset({RECORD_KEY, PARTITION_PATH} if self._target.snapshot.config.populate_meta_fields else ())

        def made() -> JavaObject:
            columns = [_MetaColumn(bridge, name, nullable=name not in never).java for name in META_COLUMNS]
            return bridge.array(f"{_CATALOG}MetadataColumn", columns)

        return bridge.constant(("metadata columns", never), made)

    # --------------------------------------------------------------------------------------------- rows

    def newScanBuilder(self, options: JavaObject) -> JavaObject:
        """A read."""
        return TableScanBuilder(self._bridge, self._target).java

    def v1Table(self) -> JavaObject:
        """Asked for by ``readStream``."""
        return stream_table(self._bridge, self._target, self.schema())

    def apply(self, query: JavaObject) -> bytes | None:
        """Called by the optimizer's rule: the rows of an aggregate, if an index knows them."""
        return answer_query(self._bridge, self._target, query)

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:
        """A write."""
        merges = RowChanges(self._bridge, self._target, self._table, "MERGE").answer
        return TableWriteBuilder(self._bridge, self._target, self._table, info, merges=merges).java

    def canDeleteWhere(self, predicates: JavaObject) -> bool:
        """Whether the condition has an exact translation."""
        try:
            condition_of(self._bridge, predicates)
        except UntranslatablePredicateError:
            return False
        return True

    def deleteWhere(self, predicates: JavaObject) -> None:
        """``DELETE FROM``."""
        condition = condition_of(self._bridge, predicates)
        self._table.delete(where="TRUE" if condition is None else condition, options=table_options(self._bridge))

    def truncateTable(self) -> bool:
        """``TRUNCATE TABLE``, and ``DELETE FROM`` without a condition."""
        self._table.delete(where="TRUE", options=table_options(self._bridge))
        return True

    def newRowLevelOperationBuilder(self, info: JavaObject) -> JavaObject:
        """``UPDATE``, ``MERGE INTO``, and ``DELETE`` with a condition that :meth:`deleteWhere` does not take."""
        bridge, command = self._bridge, str(info.command().toString())
        # Spark gives up the rewrite of a DELETE as soon as the table takes the condition itself.
        if command != "DELETE":
            require_writable(self._target.snapshot.config)
        register_row_level(bridge, bridge.view.org.apache.spark.sql.SparkSession.active())
        return RowLevelOperation(bridge, self._target, self._table, command).java

    # --------------------------------------------------------------------------------------------- indexes

    def createIndex(self, name: str, columns: JavaObject, column_options: JavaObject, options: JavaObject) -> None:
        """``CREATE INDEX column_stats ON table (columns)``, also with ``USING``; ``… USING bitmap`` under any name."""
        given = {str(key): str(value) for key, value in dict(options).items()}
        using = given.pop("type", "") or None
        own = any(dict(column_options[column]) for column in column_options)
        if own or (given and using != "bitmap"):
            raise UnsupportedFeatureError(
                f"index {name}: only USING bitmap takes OPTIONS, and for all of its columns together",
                feature="index options",
            )
        wanted = [".".join(str(part) for part in column.fieldNames()) for column in columns]
        try:
            given = {**table_options(self._bridge), **given}
            self._table.indexes.create(using or name, wanted, name=name, options=given)
        except IndexExistsError:
            raise JavaError(self._index_error("IndexAlreadyExistsException", name)) from None

    def dropIndex(self, name: str) -> None:
        """``DROP INDEX``."""
        try:
            self._table.indexes.drop(name)
        except IndexNotFoundError:
            raise JavaError(self._index_error("NoSuchIndexException", name)) from None

    def _index_error(self, kind: str, name: str) -> JavaObject:
        make = getattr(self._bridge.view, f"org.apache.spark.sql.catalyst.analysis.{kind}")
        return make(name, self._name, self._bridge.none)

    def indexExists(self, name: str) -> bool:
        """Asked for ``IF NOT EXISTS`` and ``IF EXISTS``."""
        return name in self._table.indexes.list().column("name").to_pylist()

    def listIndexes(self) -> JavaObject:
        """Spark has no statement for it: ``SELECT * FROM lake.trips.indexes`` shows them."""
        bridge = self._bridge
        make = bridge.view.org.apache.spark.sql.connector
        found = []
        for row in self._table.indexes.list().to_pylist():
            names = [name for name in (row["columns"] or ()) if name]
            columns = [make.expressions.Expressions.column(self._reference(name)) for name in names]
            references = bridge.array(f"{_CONNECTOR}expressions.NamedReference", columns)
            empty = bridge.view.java.util.Properties()
            index = make.catalog.index.TableIndex(row["name"], row["using"], references, bridge.map({}), empty)
            found.append(index)
        return bridge.array(f"{_CATALOG}index.TableIndex", found)

    def _reference(self, name: str) -> str:
        """A column or a dotted path of a field, quoted."""
        parts = [name] if name in self._schema.names else name.split(".")
        return ".".join(quoted(part) for part in parts)


class RowsTable(_Table):
    """A small table to look at, such as ``lake.trips.indexes``."""

    interfaces = (f"{_CATALOG}SupportsRead",)

    def __init__(self, bridge: JavaBridge, name: str, rows: pa.Table, identity: str) -> None:
        super().__init__(bridge, name, arrow_to_spark(rows.schema), identity)
        self._rows = rows

    def capabilities(self) -> JavaObject:
        """Reading only."""
        return self._capabilities("BATCH_READ")

    def newScanBuilder(self, options: JavaObject) -> JavaObject:
        """All rows; Spark does the rest."""
        return LocalRows(self._bridge, self._schema, self._rows, self._name).java


class _MetaColumn(JavaProxy):
    interfaces = (f"{_CATALOG}MetadataColumn",)

    def __init__(self, bridge: JavaBridge, name: str, *, nullable: bool) -> None:
        super().__init__(bridge, f"lakedex-meta-{name}-{nullable}")
        self._name = name
        self._nullable = nullable

    def name(self) -> str:
        """The column's name."""
        return self._name

    def dataType(self) -> JavaObject:
        """Always a string."""
        bridge = self._bridge
        return bridge.constant("string", lambda: bridge.session.parseDataType('"string"'))

    def isNullable(self) -> bool:
        """Whether a row may lack it."""
        return self._nullable
