"""The catalog: a folder's tables under a name in Spark SQL, and the optimizer rule that answers aggregates.

Spark pushes aggregates down (``SupportsPushDownAggregates``) only where no filter remains, and a scan here leaves all
filters to Spark. So a rule in the session's own list (``spark.experimental.extraOptimizations``) looks for an aggregate
over a table of the catalog, asks the table, and replaces the aggregate with the rows. A strategy gives the physical
plan a text that says where the rows come from.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from lakedex.arrow_types import as_table, conform, normal_schema
from lakedex.errors import InvalidInputError, LakedexError, TableExistsError, UnsupportedFeatureError
from lakedex.io.locations import open_storage
from lakedex.io.storage import TableFiles
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.spark.catalog.ddl import CAPABILITIES, NewTable, alter_table, new_table, require_like
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaError, JavaProxy, show_to_sessions
from lakedex.spark.catalog.procedures import PROCEDURE_CATALOG, Procedures
from lakedex.spark.catalog.row_level import register_row_level
from lakedex.spark.catalog.scan import ScanTarget
from lakedex.spark.catalog.staging import Columns, StagedCreation, StagedReplacement, with_options
from lakedex.spark.catalog.streams import register_streams
from lakedex.spark.catalog.table import CatalogTable, RowsTable
from lakedex.spark.catalog.warehouse import OpenTable, Tables, Warehouse, is_path, open_warehouse
from lakedex.spark.engine import SparkEngine
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import quoted
from lakedex.spark.session import case_sensitive, is_connect, name_table
from lakedex.write.create_table import take_back

__all__ = ["register", "register_rules"]


_log = logging.getLogger(__name__)


_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical.LocalRelation"


_PHYSICAL = "org.apache.spark.sql.execution.LocalTableScanExec"


_DEFAULTS = {"boolean": "false", "scala.Option": "scala.Option$.MODULE$.empty()"}
"""Java type → the argument where Python has none to give."""


def register_rules(bridge: JavaBridge) -> bool:
    """Add the rule to the session, once; others stay. False where this Spark has no place for it."""
    try:
        _rules(bridge).register(bridge.session.experimental())
    except (Py4JError, KeyError) as error:
        _log.debug("aggregates are not answered by indexes on Spark %s: %s", bridge.spark.version, error)
        return False
    return True


def _rules(bridge: JavaBridge) -> JavaObject:
    """The rule, its text filled with the arguments that this Spark's constructors take.

    Raises:
        KeyError: A constructor takes an argument without a known default.
    """
    relation, scan = (_constructor(bridge, name) for name in (_LOGICAL, _PHYSICAL))
    return bridge.compiled(
        "LakedexRules",
        RELATION_REST=_rest(relation),
        SCAN_REST=_rest(scan),
        SCAN_PARAMETERS=", ".join(f"{kind} p{number}" for number, kind in enumerate(scan)),
        SCAN_ARGUMENTS=", ".join(f"p{number}" for number in range(len(scan))),
    )


def _constructor(bridge: JavaBridge, name: str) -> list[str]:
    """Types of the arguments of a case class."""
    return [str(kind.getName()) for kind in bridge.java_class(name).getConstructors()[0].getParameterTypes()]


def _rest(types: Sequence[str]) -> str:
    """Default arguments after columns and rows, which come first."""
    return "".join(f", {_DEFAULTS[kind]}" for kind in types[2:])


_CATALOG = "org.apache.spark.sql.connector.catalog."


_METADATA_TABLES: Mapping[str, Callable[[OpenTable], pa.Table]] = {
    "indexes": lambda table: table.indexes.list(),
    "savepoints": lambda table: table.maintenance.savepoints(),
    "files": lambda table: table.inspect.files(),
    "partitions": lambda table: table.inspect.partitions(),
    "properties": lambda table: table.inspect.properties(),
    "column_stats": lambda table: table.inspect.column_stats(),
    "partition_stats": lambda table: table.inspect.partition_stats(),
    "bloom_filters": lambda table: table.inspect.bloom_filters(),
    "bitmaps": lambda table: table.inspect.bitmaps(),
    "timeline": lambda table: table.inspect.timeline(),
    "history": lambda table: table.inspect.history(),
    "snapshots": lambda table: table.inspect.snapshots(),
}
"""Metadata table → its rows: ``lake.trips.<name>``."""


def register(spark: SparkSession, name: str, warehouse: str, tables: Tables) -> None:
    """Put a catalog into the session, in the place of one of that name, and into those that are made after it.

    Raises:
        InvalidInputError: a name that SQL cannot have, or Spark's own.
        UnsupportedFeatureError: Spark Connect, or a Java older than 11.
    """
    if is_connect(spark):
        raise UnsupportedFeatureError(
            "register_catalog needs a classic session: Spark Connect has no way to ask Python; use "
            "Table.open(path, spark=spark).scan(where=…).to_spark()",
            feature="Spark Connect",
        )
    if not name.isidentifier() or name.lower() in ("spark_catalog", "system"):
        raise InvalidInputError(f"{name!r} is no name for a catalog: use letters, digits and '_'")
    bridge = JavaBridge(spark)
    home = open_warehouse(warehouse)

    kind = _CallableCatalog if bridge.has(PROCEDURE_CATALOG) else _Catalog

    def opened(bridge: JavaBridge) -> JavaObject:
        register_rules(bridge)
        register_streams(bridge)
        with contextlib.suppress(UnsupportedFeatureError):  # A statement that needs it says so.
            register_row_level(bridge, bridge.session)
        return kind(bridge, name, home, tables).java

    _registered(bridge).put(name, opened(bridge))
    show_to_sessions(bridge, name, kind.interfaces, opened)


def _registered(bridge: JavaBridge) -> JavaObject:
    """The session's map of catalogs. Spark fills it from class names in its settings, and a Python object has none."""
    manager = bridge.session.sessionState().catalogManager()
    kind = manager.getClass()
    while kind is not None:
        try:
            field = kind.getDeclaredField("catalogs")
        except Py4JJavaError:
            kind = kind.getSuperclass()
            continue
        field.setAccessible(True)
        return field.get(manager)
    raise UnsupportedFeatureError(
        f"Spark {bridge.spark.version} keeps its catalogs in another place; use Table.open(path, spark=spark)",
        feature=f"catalog on Spark {bridge.spark.version}",
    )


class _Catalog(JavaProxy):
    """Namespaces are folders. The newest state of a table is loaded whenever Spark resolves its name."""

    interfaces: ClassVar[tuple[str, ...]] = (f"{_CATALOG}StagingTableCatalog", f"{_CATALOG}SupportsNamespaces")

    def __init__(self, bridge: JavaBridge, name: str, warehouse: Warehouse, tables: Tables) -> None:
        super().__init__(bridge)
        self._name = name
        self._warehouse = warehouse
        self._tables = tables
        # Opened tables keep what they read of the metadata table, by instant.
        self._open: dict[str, OpenTable] = {}

    def initialize(self, name: str, options: JavaObject) -> None:
        """Done by :func:`register`."""

    def name(self) -> str:
        """The catalog's."""
        return self._name

    # ------------------------------------------------------------------------------------------------- namespaces

    def listNamespaces(self, namespace: JavaObject = ()) -> JavaObject:
        """``SHOW NAMESPACES``."""
        parent = self._existing(namespace)
        spaces = [self._bridge.strings([*parent, name]) for name in self._warehouse.entries(parent)[1]]
        strings = self._bridge.java_class("[Ljava.lang.String;")
        made = self._bridge.view.java.lang.reflect.Array.newInstance(strings, len(spaces))
        for number, space in enumerate(spaces):
            made[number] = space
        return made

    def namespaceExists(self, namespace: JavaObject) -> bool:
        """Whether there is such a folder."""
        return self._warehouse.is_namespace(_texts(namespace))

    def loadNamespaceMetadata(self, namespace: JavaObject) -> JavaObject:
        """``DESCRIBE NAMESPACE``."""
        return self._bridge.map({"location": self._warehouse.folder(self._existing(namespace))})

    def createNamespace(self, namespace: JavaObject, metadata: JavaObject) -> None:
        """``CREATE NAMESPACE``: a folder."""
        parts = _texts(namespace)
        if self._warehouse.is_namespace(parts):
            raise JavaError(self._analysis().NamespaceAlreadyExistsException(self._bridge.strings(parts)))
        folder = self._warehouse.folder(parts)
        if self._warehouse.is_table(folder):
            raise InvalidInputError(f"{'.'.join(parts)} is a table")
        self._warehouse.storage.entries(folder)
        self._warehouse.storage.make_dirs(folder)

    def alterNamespace(self, namespace: JavaObject, changes: JavaObject) -> None:
        """There is nothing to set."""
        raise UnsupportedFeatureError("a namespace is a folder and has no properties", feature="ALTER NAMESPACE")

    def dropNamespace(self, namespace: JavaObject, cascade: bool) -> bool:
        """``DROP NAMESPACE … [CASCADE]``."""
        parts = self._existing(namespace)
        if not parts:
            raise InvalidInputError(f"{self._name}: the warehouse itself is not dropped")
        if not cascade and not self._warehouse.is_empty(parts):
            raise JavaError(self._analysis().NonEmptyNamespaceException(self._bridge.strings(parts)))
        self._warehouse.drop_namespace(parts)
        self._open.clear()
        return True

    def _existing(self, namespace: JavaObject) -> list[str]:
        parts = _texts(namespace)
        if not self._warehouse.is_namespace(parts):
            raise JavaError(self._analysis().NoSuchNamespaceException(self._bridge.strings(parts)))
        return parts

    def _analysis(self) -> JavaObject:
        return self._bridge.view.org.apache.spark.sql.catalyst.analysis

    # ------------------------------------------------------------------------------------------------- tables

    def listTables(self, namespace: JavaObject) -> JavaObject:
        """``SHOW TABLES``."""
        parent = self._existing(namespace)
        make = self._bridge.view.org.apache.spark.sql.connector.catalog.Identifier
        space = self._bridge.strings(parent)
        found = [make.of(space, name) for name in self._warehouse.entries(parent)[0]]
        return self._bridge.array(f"{_CATALOG}Identifier", found)

    def tableExists(self, ident: JavaObject) -> bool:
        """Whether there is a Hudi table, or an entry of one: that can be dropped when its table is gone."""
        folder = self._folder(ident)
        is_entry = not is_path(str(ident.name())) and self._warehouse.location(folder) is not None
        return is_entry or self._warehouse.is_table(folder)

    def loadTable(self, ident: JavaObject, version: JavaObject = None) -> JavaObject:
        """The table now, at an instant (``VERSION AS OF``) or a time (``TIMESTAMP AS OF``).

        The second argument may also be a set of privileges, which a folder does not have.
        """
        as_of: str | datetime.datetime | None = None
        if isinstance(version, str):
            as_of = version
        elif isinstance(version, int):
            as_of = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=version)
        listing = self._metadata_table(ident)
        if listing is not None:
            return listing.java
        table = self._opened(ident)
        target = self._target(ident, table.scan(as_of=as_of).snapshot)
        name = ".".join(quoted(part) for part in (self._name, *_texts(ident.namespace()), str(ident.name())))
        name_table(self._bridge.spark, name, target.snapshot.files.base_path)
        external = self._is_external(ident, target.snapshot.files.base_path)
        return CatalogTable(self._bridge, target, table, writable=as_of is None, external=external).java

    def _metadata_table(self, ident: JavaObject) -> RowsTable | None:
        """The table of ``lake.trips.indexes``, if ``trips`` is a table."""
        namespace, name = _texts(ident.namespace()), str(ident.name())
        if not namespace or name not in _METADATA_TABLES:
            return None
        path = self._located(self._warehouse.path(namespace[:-1], namespace[-1]))
        if not self._warehouse.is_table(path):
            return None
        rows = as_table(_METADATA_TABLES[name](self._open_path(path)))
        rows = conform(rows, normal_schema(rows.schema))
        label = ".".join([self._name, *namespace, name])
        return RowsTable(self._bridge, label, rows, f"{label}@{uuid.uuid4().hex}")

    def _path(self, ident: JavaObject) -> str:
        """Where a table lies: in its folder, or where the folder's entry says."""
        return self._located(self._folder(ident))

    def _folder(self, ident: JavaObject) -> str:
        return self._warehouse.path(_texts(ident.namespace()), str(ident.name()))

    def _located(self, folder: str) -> str:
        if folder in self._open or (is_path(folder) and not folder.startswith(f"{self._warehouse.base_path}/")):
            return folder
        return folder if self._warehouse.is_table(folder) else self._warehouse.location(folder) or folder

    def _is_external(self, ident: JavaObject, path: str) -> bool:
        return not is_path(str(ident.name())) and path != self._folder(ident)

    def _opened(self, ident: JavaObject) -> OpenTable:
        path = self._path(ident)
        if not self._warehouse.is_table(path):
            self._open.pop(path, None)
            raise JavaError(self._analysis().NoSuchTableException(ident))
        return self._open_path(path)

    def _open_path(self, path: str) -> OpenTable:
        table = self._open.get(path)
        if table is None:
            table = self._open[path] = self._tables.open(path, spark=self._bridge.spark)
        return table

    def _target(self, ident: JavaObject, snapshot: Snapshot) -> ScanTarget:
        label = self._label(ident)
        case = case_sensitive(self._bridge.spark)
        when = f"{snapshot.instant}+{snapshot.last_completion_time}"
        identity = f"lakedex-table[{snapshot.files.storage.scheme}:{snapshot.files}@{when},case={case}]"
        return ScanTarget(name=label, snapshot=snapshot, identity=identity, case_sensitive=case)

    def _label(self, ident: JavaObject) -> str:
        name = str(ident.name())
        return name if is_path(name) else ".".join([self._name, *_texts(ident.namespace()), name])

    def _load_new(self, ident: JavaObject) -> tuple[ScanTarget, OpenTable]:
        table = self._opened(ident)
        return self._target(ident, table.scan().snapshot), table

    def createTable(self, ident: JavaObject, *arguments: JavaObject) -> JavaObject:
        """``CREATE TABLE … USING hudi TBLPROPERTIES (primaryKey = …)``."""
        self._create(ident, arguments)
        return self._writable(ident)

    def _writable(self, ident: JavaObject) -> JavaObject:
        target, table = self._load_new(ident)
        external = self._is_external(ident, target.snapshot.files.base_path)
        return CatalogTable(self._bridge, target, table, writable=True, external=external).java

    def _create(self, ident: JavaObject, arguments: Sequence[JavaObject], *, over: bool = True) -> Callable[[], None]:
        """Make a table, or with ``over`` an entry of one that is there; what comes back removes it again."""
        folder, wanted = self._folder(ident), self._wanted(ident, arguments)
        path = _place(folder, wanted)
        if self.tableExists(ident):
            raise JavaError(self._analysis().TableAlreadyExistsException(ident))
        if path == folder:
            return self._make(ident, path, wanted)
        if is_path(str(ident.name())):
            raise InvalidInputError(f"table {ident.name()}: LOCATION {wanted.location} is another place; leave it out")
        self._warehouse.require_free(folder)
        if over and self._warehouse.is_table(path):
            require_like(wanted, self._open_path(path).scan().snapshot, str(ident.name()))
            undo: Callable[[], None] = _nothing
        else:
            undo = self._make(ident, path, wanted)
        try:
            self._warehouse.add_entry(folder, path)
        except BaseException:
            undo()
            raise

        def undo_both() -> None:
            self._warehouse.drop_entry(folder)
            undo()

        return undo_both

    def _make(self, ident: JavaObject, path: str, wanted: NewTable) -> Callable[[], None]:
        if self._warehouse.is_table(path):
            raise JavaError(self._analysis().TableAlreadyExistsException(ident))
        storage = self._warehouse.storage_of(path)
        found = storage.exists(path)
        self._warehouse.require_free(path)
        try:
            self._tables.create(path, wanted.schema, spark=self._bridge.spark, **wanted.arguments)
        except TableExistsError:
            raise JavaError(self._analysis().TableAlreadyExistsException(ident)) from None
        self._open.pop(path, None)
        handle = TableContext(TableFiles(storage, path), SparkEngine(self._bridge.spark))

        def undo() -> None:
            self._open.pop(path, None)
            if not take_back(handle, wanted.arguments["options"], keep_folder=found):
                _log.warning("table %s stays, although its CREATE failed: it has a commit, or a write under way", path)

        return undo

    def _wanted(self, ident: JavaObject, arguments: Sequence[JavaObject]) -> NewTable:
        columns, partitions, properties = self._three(arguments)
        return new_table(self._bridge, str(ident.name()), columns, partitions, dict(properties))

    @staticmethod
    def _three(arguments: Sequence[JavaObject]) -> Sequence[JavaObject]:
        if len(arguments) != 1:
            return arguments
        info = arguments[0]
        return info.columns(), info.partitions(), info.properties()

    def stageCreate(self, ident: JavaObject, *arguments: JavaObject) -> JavaObject:
        """``CREATE TABLE AS SELECT``: the table, which goes again if the rows fail."""
        given = self._three(arguments)
        wanted = self._wanted(ident, given)
        place = _place(self._folder(ident), wanted)
        if self._warehouse.is_table(place):
            raise JavaError(self._analysis().TableAlreadyExistsException(ident))

        def make(options: Mapping[str, str]) -> tuple[ScanTarget, OpenTable, Callable[[], None]]:
            try:
                undo = self._create(ident, with_options(self._bridge, given, options), over=False)
            except JavaError:  # A checked exception, which a write may not throw.
                raise TableExistsError(
                    f"table {ident.name()} was created by another writer just now", path=place
                ) from None
            try:
                return (*self._load_new(ident), undo)
            except Exception:
                undo()
                raise

        return StagedCreation(self._bridge, Columns(self._label(ident), wanted.schema), make).java

    def stageReplace(self, ident: JavaObject, *arguments: JavaObject) -> JavaObject:
        """``REPLACE TABLE``: one commit, once all rows are there."""
        given = self._three(arguments)
        wanted = self._wanted(ident, given)
        target, table = self._load_new(ident)
        return StagedReplacement(self._bridge, Columns(self._label(ident), wanted.schema), target, table, wanted).java

    def stageCreateOrReplace(self, ident: JavaObject, *arguments: JavaObject) -> JavaObject:
        """``CREATE OR REPLACE TABLE``."""
        return (self.stageReplace if self.tableExists(ident) else self.stageCreate)(ident, *arguments)

    def alterTable(self, ident: JavaObject, changes: JavaObject) -> JavaObject:
        """``ALTER TABLE``."""
        table = self._opened(ident)
        try:
            alter_table(self._bridge, str(ident.name()), table, list(changes))
        except LakedexError as error:
            # Spark wraps an IllegalArgumentException of an ALTER in an exception that PySpark does not know.
            raise JavaError(self._bridge.exception(error, refused=True)) from error
        return self._writable(ident)

    def dropTable(self, ident: JavaObject) -> bool:
        """``DROP TABLE``: the folder goes, and of a table elsewhere the entry only.

        A table named by its path stays: it is not this catalog's.
        """
        path = self._folder(ident)
        if not self._warehouse.is_table(path):
            if is_path(str(ident.name())) or self._warehouse.location(path) is None:
                return False
            self._warehouse.drop_entry(path)
            return True
        if is_path(str(ident.name())):
            raise UnsupportedFeatureError(
                f"{path} is not of catalog {self._name}, which drops its own tables only; remove the folder",
                feature="DROP TABLE of a path",
            )
        self._warehouse.drop_table(path)
        self._open.pop(path, None)
        return True

    def purgeTable(self, ident: JavaObject) -> bool:
        """``DROP TABLE … PURGE``: there is no trash anyway."""
        return self.dropTable(ident)

    def renameTable(self, old: JavaObject, new: JavaObject) -> None:
        """``RENAME TO`` of a table elsewhere. Refused for one in its folder: stores do not move a folder at once."""
        space = _texts(new.namespace())
        # Spark takes the catalog's name in the new name for a namespace.
        space = self._existing(space[1:] if space and space[0].lower() == self._name.lower() else space)
        before, after = self._folder(old), self._warehouse.path(space, str(new.name()))
        location = None if self._warehouse.is_table(before) else self._warehouse.location(before)
        if location is None:
            raise UnsupportedFeatureError(
                f"table {old.name()}: RENAME TO is not supported, as no store moves a folder beside writers; without "
                f"writers move {before}, and the table has its new name",
                feature="ALTER TABLE RENAME TO",
            )
        if self._warehouse.is_table(after) or self._warehouse.location(after) is not None:
            raise JavaError(self._analysis().TableAlreadyExistsException(new))
        self._warehouse.require_free(after)
        self._warehouse.add_entry(after, location)
        self._warehouse.drop_entry(before)

    def capabilities(self) -> JavaObject:
        """Clauses of ``CREATE TABLE`` that Spark hands over."""
        kind = self._bridge.view.org.apache.spark.sql.connector.catalog.TableCatalogCapability
        known = {str(value.name()) for value in kind.values()}
        return self._bridge.set(kind.valueOf(name) for name in CAPABILITIES if name in known)

    def invalidateTable(self, ident: JavaObject) -> None:
        """``REFRESH TABLE``: read everything again."""
        self._open.pop(self._path(ident), None)


class _CallableCatalog(_Catalog, Procedures):
    """A catalog with procedures, from Spark 4.0 on."""

    interfaces = (*_Catalog.interfaces, PROCEDURE_CATALOG)

    def table_of_call(self, name: str) -> OpenTable:
        """The table that an argument names.

        Raises:
            InvalidInputError: No such table.
        """
        parts = [name]
        if not is_path(name):
            found = self._bridge.session.sessionState().sqlParser().parseMultipartIdentifier(name)
            parts = [str(found.apply(position)) for position in range(found.size())]
            parts = parts[1:] if len(parts) > 1 and parts[0].lower() == self._name.lower() else parts
        path = self._located(self._warehouse.path(parts[:-1], parts[-1]))
        if not self._warehouse.is_table(path):
            raise InvalidInputError(f"there is no table {name} in catalog {self._name} ({path})")
        return self._open_path(path)


def _place(folder: str, wanted: NewTable) -> str:
    """Where a new table lies: in its folder of the warehouse, or at its LOCATION."""
    return folder if wanted.location is None else open_storage(wanted.location).base_path


def _nothing() -> None:
    """Undo nothing."""


def _texts(parts: JavaObject) -> list[str]:
    return [str(part) for part in parts]
