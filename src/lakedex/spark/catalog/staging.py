"""Tables of ``CREATE [OR REPLACE] TABLE … AS SELECT``, ``saveAsTable`` and ``writeTo``, staged until their rows are in.

``saveAsTable`` gives its options to the write instead of the table. So a table is made, or its settings are compared,
when Spark asks for the write: the options are known then, and no row has been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakedex.errors import InvalidInputError
from lakedex.io.locations import open_storage
from lakedex.reports import WriteResult
from lakedex.spark.catalog.ddl import NewTable
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.scan import ScanTarget
from lakedex.spark.catalog.table import WRITES
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.catalog.write import TableWriteBuilder, table_options, write_options
from lakedex.spark.jvm import JavaObject
from lakedex.spark.option_names import matched
from lakedex.spark.schema import quoted
from lakedex.spark.staged_write import SETTINGS
from lakedex.spark.staged_write import NewTable as Settings

__all__ = ["Columns", "StagedCreation", "StagedReplacement", "with_options"]


_CATALOG = "org.apache.spark.sql.connector.catalog."


_PROPERTIES = {
    "name": "hoodie.table.name",
    "record_key": "primaryKey",
    "ordering_by": "preCombineField",
    "table_type": "type",
}
"""Setting → the table property that has it."""


Make = Callable[[Mapping[str, str]], tuple[ScanTarget, OpenTable, Callable[[], None]]]
"""Makes a table with additional options: the table, and what removes it again."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Name and columns that a statement gives a table."""

    name: str
    schema: StructType


def with_options(
    bridge: JavaBridge, arguments: Sequence[JavaObject], options: Mapping[str, str]
) -> Sequence[JavaObject]:
    """Columns, partitions and properties of a new table with those that its write's options name."""
    found, hoodies = matched(options, {**SETTINGS, "path": "path", "partitionOverwriteMode": "mode"}, others="hoodie.")
    columns, partitions, properties = arguments
    names = Settings.of(found).partition_by
    if names and not len(partitions):
        make = bridge.view.org.apache.spark.sql.connector.expressions.Expressions
        transforms = [make.identity(quoted(name)) for name in names]
        partitions = bridge.array("org.apache.spark.sql.connector.expressions.Transform", transforms)
    settings = {_PROPERTIES[field]: text for field, (_, text) in found.items() if field in _PROPERTIES}
    hoodies = {name: text for name, text in hoodies.items() if name != "hoodie.datasource.write.operation"}
    return columns, partitions, {**dict(properties), **hoodies, **settings}


class _Staged(JavaProxy):
    """Name, columns and capabilities of a table that is written once."""

    interfaces = (f"{_CATALOG}SupportsWrite", f"{_CATALOG}StagedTable")

    def __init__(self, bridge: JavaBridge, columns: Columns) -> None:
        super().__init__(bridge)
        self._columns = columns

    def name(self) -> str:
        """As SQL has it."""
        return self._columns.name

    def schema(self) -> JavaObject:
        """The columns."""
        return self._bridge.struct(self._columns.schema)

    def capabilities(self) -> JavaObject:
        """Those of a write."""
        kind = self._bridge.view.org.apache.spark.sql.connector.catalog.TableCapability
        return self._bridge.set(kind.valueOf(name) for name in WRITES)


class StagedCreation(_Staged):
    """A table that goes again if its rows do not come."""

    def __init__(self, bridge: JavaBridge, columns: Columns, make: Make) -> None:
        super().__init__(bridge, columns)
        self._make = make
        self._made: tuple[ScanTarget, OpenTable, Callable[[], None]] | None = None

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:
        """The write of the first rows; makes the table."""
        if self._made is None:
            self._made = self._make(write_options(info))
        target, table, _ = self._made
        return TableWriteBuilder(self._bridge, target, table, info).java

    def commitStagedChanges(self) -> None:
        """The rows are in, or there are none to come."""
        if self._made is None:
            self._made = self._make({})

    def abortStagedChanges(self) -> None:
        """The rows are not in."""
        if self._made is not None:
            self._made[2]()


class StagedReplacement(_Staged):
    """All rows and columns of a table that is there, in one commit. Settings that are left out stay as they are."""

    def __init__(
        self, bridge: JavaBridge, columns: Columns, target: ScanTarget, table: OpenTable, wanted: NewTable
    ) -> None:
        super().__init__(bridge, columns)
        self._target = target
        self._table = table
        self._wanted = wanted
        self._is_written = False
        arguments = wanted.arguments
        same = Settings(
            name=arguments.get("name"),
            record_key=_names(arguments.get("record_key")),
            partition_by=_names(arguments["partition_by"] or None),
            ordering_by=_names(arguments.get("ordering_by")),
            table_type=arguments.get("table_type"),
        )
        same.require_same(target.snapshot.config, str(target.snapshot.files))
        if wanted.location is not None and open_storage(wanted.location).base_path != target.snapshot.files.base_path:
            raise InvalidInputError(
                f"table {columns.name} is at {target.snapshot.files}, and a replacement cannot move it to "
                f"{wanted.location}; leave LOCATION out"
            )

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:
        """The write that replaces the rows."""
        self._is_written = True
        return TableWriteBuilder(self._bridge, self._target, self._table, info, replace=self._replace).java

    def _replace(self, rows: DataFrame, options: Mapping[str, str]) -> WriteResult:
        options = {**options, **self._wanted.arguments["options"]}
        done: WriteResult = self._table.insert_overwrite(rows, "table", schema=self._columns.schema, options=options)
        return done

    def commitStagedChanges(self) -> None:
        """The rows are in; ``REPLACE TABLE`` without a query has none."""
        if not self._is_written:
            nothing = self._bridge.spark.createDataFrame([], self._columns.schema)
            self._replace(nothing, table_options(self._bridge))
        properties = self._wanted.arguments["properties"]
        if properties:
            self._table.maintenance.set_properties(properties)
        comment = self._wanted.arguments.get("comment")
        if comment is not None:
            self._table.set_comment(comment)

    def abortStagedChanges(self) -> None:
        """Nothing was written."""


def _names(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
