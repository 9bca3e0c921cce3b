"""``MERGE INTO``, ``UPDATE`` and ``DELETE``: Spark works out the changed rows, and a merge's second half writes them.

Spark rewrites a statement to a query with a row for each changed row: what becomes of it, its new values, and the place
of the stored row. ``LakedexRowLevel.java`` hands that query over on the driver, so no class of ours is on executors.

Where the query joins the table with other rows by equal columns, those rows are computed once and kept. Then the files
that can hold a match are known: by the record key from tagging, as for ``Table.merge``, else by the values of the
columns. Other files are left out, whatever made the kept rows, since the join reads the very same ones.

Memory on the driver: the prepared rows where they are few, else what a write takes; up to ``FEW_KEYS`` values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lakedex.commit.transaction import WriteContext
from lakedex.errors import UnsupportedFeatureError
from lakedex.lossless_cast import StoreAssignment
from lakedex.options import WriteOptions, parse_options
from lakedex.reports import TaggingReport
from lakedex.scan.scan import FEW_KEYS, Scan, semi_joined
from lakedex.snapshot.partitions import key_generator
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.scan import ScanTarget, TableScanBuilder
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.catalog.write import table_options
from lakedex.spark.engine import CheckpointedRows, SparkFrame, release
from lakedex.spark.error_transport import unwrapping_errors
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import arrow_to_spark, nullable
from lakedex.spark.session import refresh_views_of
from lakedex.spark.table_session import SparkTableSession
from lakedex.tagging.key_files import slices_of_keys
from lakedex.tagging.keyed_rows import ACTION, POSITION, Duplicates, PrepareKeys, RowAction
from lakedex.timeline.compatibility import require_writable
from lakedex.types import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakedex.write.merged_rows import MergedRows, write_merged
from lakedex.write.schema_evolution import pruned

__all__ = ["RowChanges", "RowLevelOperation", "register_row_level"]


_CONNECTOR = "org.apache.spark.sql.connector."


FEW_ROWS = 100_000
"""Rows that are brought to the table's, if Spark broadcasts as many bytes, rather than both being shuffled."""


_ACTIONS = {1: RowAction.DELETE, 2: RowAction.REPLACE, 3: RowAction.INSERT}
"""Spark's number of an operation (``RowDeltaUtils``) → a merge's action."""


_EVOLUTION = re.compile("evolution", re.IGNORECASE)


def register_row_level(bridge: JavaBridge, session: JavaObject) -> None:
    """Let a session run row-level statements; once is enough.

    Raises:
        UnsupportedFeatureError: this Spark has other plans than those that we know.
    """
    try:
        bridge.compiled("LakedexRowLevel").register(session.experimental())
    except Py4JError as error:
        raise UnsupportedFeatureError(
            f"MERGE, UPDATE and DELETE of rows are not known to run on Spark {bridge.spark.version}; use t.merge, "
            "t.update or t.delete",
            feature=f"row-level SQL on Spark {bridge.spark.version}",
        ) from error


class RowLevelOperation(JavaProxy):
    """The operation that Spark's analyzer asks for, and its own builder."""

    interfaces = (f"{_CONNECTOR}write.RowLevelOperationBuilder", f"{_CONNECTOR}write.SupportsDelta")

    def __init__(self, bridge: JavaBridge, target: ScanTarget, table: OpenTable, command: str) -> None:
        super().__init__(bridge)
        self._target = target
        self._table = table
        self._command = command

    def build(self) -> JavaObject:
        """The operation."""
        return self.java

    def command(self) -> JavaObject:
        """``DELETE``, ``UPDATE`` or ``MERGE``."""
        operation = getattr(self._bridge.view, f"{_CONNECTOR}write.RowLevelOperation$Command")
        return operation.valueOf(self._command)

    def description(self) -> str:
        """Shown by Spark."""
        return f"lakedex {self._command} of {self._target.name}"

    def newScanBuilder(self, options: JavaObject) -> JavaObject:
        """The table's usual read. Spark's own filters of groups would read all keys first: they find no column."""
        return TableScanBuilder(self._bridge, self._target, in_joins=False).java

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:
        """The write."""
        return _DeltaWrite(self._bridge, RowChanges(self._bridge, self._target, self._table, self._command)).java

    def rowId(self) -> JavaObject:
        """Never null, so the meta columns rather than the key's own."""
        return self._columns(RECORD_KEY, PARTITION_PATH)

    def requiredMetadataAttributes(self) -> JavaObject:
        """Where a stored row lies: updates and deletes need no tagging."""
        return self._columns(FILE_NAME)

    def _columns(self, *names: str) -> JavaObject:
        make = self._bridge.view.org.apache.spark.sql.connector.expressions.Expressions
        return self._bridge.array(f"{_CONNECTOR}expressions.NamedReference", [make.column(name) for name in names])


class _DeltaWrite(JavaProxy):
    """A write that is run by our strategy; Spark's own node would ask for :meth:`toBatch`."""

    interfaces = (
        f"{_CONNECTOR}write.DeltaWriteBuilder",
        f"{_CONNECTOR}write.DeltaWrite",
        "java.util.function.BiFunction",
    )

    def __init__(self, bridge: JavaBridge, changes: RowChanges) -> None:
        super().__init__(bridge)
        self._changes = changes

    def build(self) -> JavaObject:
        """The write is its own builder."""
        return self.java

    def toBatch(self) -> JavaObject:
        """Not reached where the strategy is in the session."""
        raise UnsupportedFeatureError(
            f"table {self._changes.name}: this session does not run MERGE, UPDATE or DELETE of its rows; register the "
            "catalog in it, or use t.merge, t.update or t.delete",
            feature="row-level SQL in this session",
        )

    def apply(self, step: str, argument: JavaObject) -> str | None:
        """See :meth:`RowChanges.answer`."""
        return self._changes.answer(step, argument)


@dataclass(frozen=True, slots=True)
class _Route:
    """How the rows of a statement are found.

    Attributes:
        columns: columns of the table that equal a value of the other rows, in the order of Java's.
        keyed: all record-key columns are among them, so that keys are looked up.
        with_partitions: so are all partition columns.
    """

    columns: Sequence[str]
    keyed: bool
    with_partitions: bool


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changed rows of one statement, on the state of the table that Spark resolved."""

    bridge: JavaBridge
    target: ScanTarget
    table: OpenTable
    command: str

    @property
    def name(self) -> str:
        """The table's in SQL."""
        return self.target.name

    def answer(self, step: str, argument: JavaObject) -> str | None:
        """Called by the strategy.

        ``check`` comes with the statement's text where there is one, ``explain`` with the sides of a join or null,
        ``run`` with the physical node.
        """
        if step == "check":
            self._require_known_columns(str(argument))
            return None
        if step == "explain":
            return self._explained(argument)
        self._run(argument)
        return None

    # ------------------------------------------------------------------------------------------------------ the plan

    def _route(self, sides: JavaObject) -> _Route | None:
        """The way that leaves files out; None where Spark's plan is run as it is."""
        snapshot = self.target.snapshot
        if sides is None or len(snapshot.slices()) < 2:
            return None
        columns = str(sides.columns()).split("\0")
        config = snapshot.config
        plain = {
            name for name in columns if name in snapshot.schema.names and _is_text(snapshot.schema.field(name).type)
        }
        partitions = set(config.partition_fields)
        keyed = bool(config.record_key_fields) and plain.issuperset(config.record_key_fields)
        return _Route(columns, keyed, partitions <= plain)

    def _explained(self, sides: JavaObject) -> str:
        head = f"{self.command} {self.name}: "
        route = self._route(sides)
        if route is None:
            return f"{head}the filters of the scan below find the rows"
        if not route.keyed:
            return f"{head}reads only files that may hold a value of {', '.join(route.columns)} of the joined rows"
        fields = ", ".join(self.target.snapshot.config.record_key_fields)
        where = "whole table" if not route.with_partitions else "partition of the row"
        return f"{head}looks up the record key ({fields}) in the {where}, reads only files that hold one"

    def _require_known_columns(self, text: str) -> None:
        """Spark 4.0 takes the words and drops the source's new columns; 3.5 has no such words, 4.1 adds the columns."""
        if not self.bridge.spark.version.startswith("4.0.") or _EVOLUTION.search(text) is None:
            return
        node = self.bridge.session.sessionState().sqlParser().parsePlan(text)
        while node.getClass().getSimpleName() != "MergeIntoTable" and node.children().size() == 1:
            node = node.children().apply(0)
        if node.getClass().getSimpleName() == "MergeIntoTable" and node.withSchemaEvolution():
            raise UnsupportedFeatureError(
                f"table {self.name}: Spark {self.bridge.spark.version} does nothing for MERGE WITH SCHEMA EVOLUTION; "
                "ALTER TABLE … ADD COLUMN first, then MERGE INTO",
                feature="MERGE WITH SCHEMA EVOLUTION before Spark 4.1",
            )

    # ----------------------------------------------------------------------------------------------------------- run

    def _run(self, node: JavaObject) -> None:
        require_writable(self.target.snapshot.config)
        spark, session = self.bridge.spark, self.bridge.session
        kept: CheckpointedRows | None = None
        with unwrapping_errors():
            try:
                sides = node.sides()
                route = self._route(sides)
                if route is None:
                    child = node.child()
                    columns = self.bridge.struct(_numbered(self.bridge.schema(child.schema())))
                    frame = DataFrame(session.internalCreateDataFrame(child.execute(), columns, False), spark)
                else:
                    kept = CheckpointedRows.of(self._frame(sides.others()))
                    frame = self._narrowed(sides, route, kept)
                self._write(self._changed(frame, node.projections()))
            finally:
                if kept is not None:
                    release(kept.df)
        refresh_views_of(spark, self.target.snapshot.files.base_path)
        # What CACHE TABLE keeps is of the state before; Spark's own nodes of writes refresh it too.
        session.sharedState().cacheManager().recacheByPlan(session, node.table())

    def _frame(self, plan: JavaObject) -> DataFrame:
        """A logical plan as a frame, its columns by number."""
        sql = self.bridge.view.org.apache.spark.sql
        dataset = sql.Dataset if self.bridge.is_spark_3 else sql.classic.Dataset
        frame = DataFrame(dataset.ofRows(self.bridge.session, plan), self.bridge.spark)
        return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))

    def _narrowed(self, sides: JavaObject, route: _Route, kept: CheckpointedRows) -> DataFrame:
        """The changed rows, worked out from kept rows and the files that can hold a match."""
        plan = kept.df._jdf.queryExecution().analyzed()
        values = self._frame(sides.values(plan))
        values = values.where(_all(values.columns))
        names = self._slices_of_keys(values, route) if route.keyed else self._slices_of_values(values, route, kept.rows)
        scan = sides.scan() if names is None else sides.scan().apply("\n".join(names))
        most = int(self.bridge.session.sessionState().conf().autoBroadcastJoinThreshold())
        few = kept.rows <= FEW_ROWS and kept.size <= most
        return self._frame(sides.query(plan, scan, few, route.keyed))

    def _slices_of_keys(self, values: DataFrame, route: _Route) -> list[str]:
        """Names of the slices that hold one of the record keys."""
        snapshot, handle = self.target.snapshot, self.table.context
        config = snapshot.config
        fields = (*config.record_key_fields, *(config.partition_fields if route.with_partitions else ()))
        places = {name: number for number, name in reversed(list(enumerate(route.columns)))}
        frame = values.select(*(F.col(f"c{places[name]}").alias(name) for name in dict.fromkeys(fields)))
        keys = key_generator(config, snapshot)
        assignment = StoreAssignment(pruned(snapshot.schema, fields), self.name, case_sensitive=True)
        staged = handle.engine.stage(frame, PrepareKeys(assignment, keys, route.with_partitions))
        try:
            found = slices_of_keys(
                handle,
                snapshot,
                staged,
                self._options().tagging,
                TaggingReport(),
                with_partitions=route.with_partitions,
            )
        finally:
            handle.engine.release(staged)
        return [item.name for item in found]

    def _slices_of_values(self, values: DataFrame, route: _Route, rows: int) -> list[str] | None:
        """Names of the slices that may hold values of columns; None for all."""
        if rows > FEW_KEYS:
            return None
        engine = self.table.context.engine
        known = [number for number, name in enumerate(route.columns) if name in self.target.snapshot.schema.names]
        if not known:
            return None
        frame = values.select(*(f"c{number}" for number in known))
        keys = engine.collect(SparkFrame(frame, engine.schema_of(frame)))
        session = SparkTableSession(self.bridge.spark)
        scan = Scan(snapshot=self.target.snapshot, rules=session.rules, engine=engine, to_frame=session.to_frame)
        scan = semi_joined(scan, keys, {route.columns[number]: f"c{number}" for number in known})
        return [item.name for item in scan.plan().slices]

    # ----------------------------------------------------------------------------------------------------- the write

    def _changed(self, frame: DataFrame, projections: JavaObject) -> DataFrame:
        """The rows as a merge's. Columns go by place: a row id and a column of the table may share a name."""
        # Spark casts no struct to one whose fields are never null; what is null there is refused when it is written.
        types = cast("StructType", nullable(arrow_to_spark(self.target.snapshot.schema))).fields
        if projections is None:
            # A MERGE that only inserts: the table's columns in their order.
            action: Column = F.lit(int(RowAction.INSERT))
            stored: Mapping[str, int] = {}
            new: Mapping[str, int] = {field.name: place for place, field in enumerate(types)}
        else:
            codes = [F.lit(int(number)) for pair in _ACTIONS.items() for number in pair]
            action = F.create_map(*codes)[F.col("c0")]
            rows, meta = projections.rowProjection(), projections.metadataProjection()
            new = self._places(rows.get()) if rows.isDefined() else {}
            stored = {**self._places(projections.rowIdProjection()), **self._places(meta.get())}
        columns = [action.cast("int").alias(ACTION), F.monotonically_increasing_id().alias(POSITION)]
        columns += [_at(stored, name, "string") for name in (RECORD_KEY, PARTITION_PATH, FILE_NAME)]
        columns += [_at(new, field.name, field.dataType) for field in types]
        return frame.select(*columns)

    def _places(self, projection: JavaObject) -> dict[str, int]:
        names = self.bridge.schema(projection.schema()).names
        return {name: int(projection.colOrdinals().apply(number)) for number, name in enumerate(names)}

    def _options(self) -> WriteOptions:
        return parse_options(self.table.context.options, table_options(self.bridge), "merge")

    def _write(self, rows: DataFrame) -> None:
        options = self._options()
        # Spark has counted the matches of each row, where more than one would matter.
        merged = MergedRows(rows=rows, snapshot=self.target.snapshot, table=self.name, duplicates=Duplicates.ALLOW)
        write_merged(self.table.context, merged, options, WriteContext.begin(options))


def _numbered(schema: StructType) -> StructType:
    """The schema with names that occur once."""
    return StructType([StructField(f"c{number}", field.dataType) for number, field in enumerate(schema.fields)])


def _at(places: Mapping[str, int], name: str, kind: DataType | str) -> Column:
    found = F.col(f"c{places[name]}") if name in places else F.lit(None)
    return found.cast(kind).alias(name)


def _all(names: Sequence[str]) -> Column:
    condition = F.lit(True)
    for name in names:
        condition = condition & F.col(name).isNotNull()
    return condition


def _is_text(kind: pa.DataType) -> bool:
    """Whether equal values are one text in keys and paths. Of -0.0 and 0.0, say, they are two."""
    return not pa.types.is_floating(kind) and not pa.types.is_nested(kind)
