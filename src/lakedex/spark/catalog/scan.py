"""Scans of a catalog table: push-down, pruned files, and Spark's own Parquet reader on them.

The reader is Spark's ``ParquetScan``: it splits large files, packs small ones, skips row groups and reads columns. It
wants a file index that lists folders, so it gets one whose listing is already cached; where a bitmap index knows the
row groups that a query needs, its tasks get only those (``scan_files.py``). If one scan cannot read all files (a column
was widened, which Spark 3.5 does not read; slices have log files), the rows come from the same union of scans as for
:meth:`lakedex.Table.scan`.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakedex.expr.parser import parse_filter_or_unknown
from lakedex.expr.terms import BoundPredicate
from lakedex.scan.plan import ScanPlan, TopRows, indexes_for, keep_top_rows, plan_scan
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.scan_files import (
    PartsBatch,
    PrunedFiles,
    choose_files,
    file_index,
    no_files,
    row_group_ranges,
)
from lakedex.spark.dataframes import is_read_in_python, physical_schemas, planned_frame
from lakedex.spark.filters import UntranslatablePredicateError, bound_condition, filter_texts
from lakedex.spark.jvm import JavaObject
from lakedex.spark.reader import REBASE
from lakedex.spark.schema import arrow_to_spark, nullable, quoted
from lakedex.types import SessionRules, size_text

__all__ = ["DataFrameScan", "ScanTarget", "TableScanBuilder"]


_READ = "org.apache.spark.sql.connector.read."


MOST_RUNTIME_VALUES = 1000
"""Values that a join may send to a scan: each is asked for on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTarget:
    """A table pinned to an instant, under the name that SQL has for it.

    ``identity`` tells path, instant and read options: Spark shares cached rows between scans of one identity.
    """

    name: str
    snapshot: Snapshot
    identity: str
    case_sensitive: bool

    def predicate(self, texts: Sequence[str]) -> BoundPredicate | None:
        """All filters as one predicate; a filter that cannot be parsed keeps all files."""
        schema = read_columns(self.snapshot.schema)
        # filter_texts writes timestamps in UTC, whatever the session's zone is.
        rules = SessionRules(self.case_sensitive, "UTC")
        return BoundPredicate.of(*(parse_filter_or_unknown(text, schema, rules) for text in texts))

    def plan(self, texts: Sequence[str]) -> ScanPlan:
        """The files, row groups and rows under the filters."""
        return plan_scan(self.snapshot, self.predicate(texts), indexes=indexes_for(select=True))

    @property
    def all_columns(self) -> StructType:
        """Meta columns, then the table's own, all nullable."""
        return cast("StructType", nullable(arrow_to_spark(read_columns(self.snapshot.schema))))


class TableScanBuilder(JavaProxy):
    """Collects what a query needs of a table."""

    interfaces = (
        f"{_READ}SupportsPushDownRequiredColumns",
        f"{_READ}SupportsPushDownLimit",
        f"{_READ}SupportsPushDownTopN",
        "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
    )

    def __init__(self, bridge: JavaBridge, target: ScanTarget, *, in_joins: bool = True) -> None:
        super().__init__(bridge)
        self._target = target
        self._in_joins = in_joins
        self._required: JavaObject = None
        self._filters: JavaObject = None
        self._texts: list[str] = []
        self._limit: int | None = None
        self._top: TopRows | None = None

    @property
    def java(self) -> JavaObject:
        """The builder; before Spark 4.1 behind a class that it knows."""
        if not self._bridge.needs_builder:
            return super().java
        schema = self._bridge.struct(self._target.all_columns)
        return self._bridge.scan_builder.make(super().java, self._bridge.session, no_files(self._bridge), schema)

    def pushFilters(self, filters: JavaObject) -> JavaObject:
        """All filters are used to leave files out, and all are applied again to rows."""
        self._filters = filters
        self._texts = filter_texts(self._bridge.view, (filters,))
        return filters

    def pushedFilters(self) -> JavaObject:
        """None is done for good."""
        return self._bridge.array("org.apache.spark.sql.connector.expressions.filter.Predicate", [])

    def pruneColumns(self, required: JavaObject) -> None:
        """Columns, and fields of columns, that the query reads."""
        self._required = required

    def pushLimit(self, limit: int) -> bool:
        """Spark asks only where no filter comes between, and takes the limit again itself."""
        self._limit = limit
        return True

    def pushTopN(self, orders: JavaObject, limit: int) -> bool:
        """``ORDER BY … LIMIT``: Spark asks only where no filter comes between, and sorts and limits again itself."""
        first = orders[0]
        column = first.expression()
        names = list(column.fieldNames()) if column.getClass().getSimpleName() == "FieldReference" else []
        if len(names) != 1:
            return False
        self._top = TopRows(
            column=str(names[0]),
            descending=str(first.direction().name()) == "DESCENDING",
            nulls_first=str(first.nullOrdering().name()) == "NULLS_FIRST",
            limit=limit,
        )
        return True

    def isPartiallyPushed(self) -> bool:
        """Neither a limit nor an order is done for good."""
        return True

    def build(self) -> JavaObject:
        """Plan the files and make the scan."""
        target = self._target
        required = self._bridge.struct(target.all_columns) if self._required is None else self._required
        plan = target.plan(self._texts)
        # A filter without text would take rows away unseen.
        if self._top is not None and not (self._filters is not None and self._filters.size()):
            plan = keep_top_rows(target.snapshot, plan, self._top)
        request = ScanRequest(
            required=required,
            filters=self._filters,
            texts=tuple(self._texts),
            limit=self._limit,
            in_joins=self._in_joins,
        )
        return make_scan(self._bridge, target, plan, request).java


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """Columns and filters that a query wants of a scan, as Java objects; the filters' text; a limit.

    ``in_joins``: the scan takes filters of joins while they run.
    """

    required: JavaObject
    filters: JavaObject
    texts: tuple[str, ...]
    limit: int | None
    in_joins: bool


def make_scan(bridge: JavaBridge, target: ScanTarget, plan: ScanPlan, request: ScanRequest) -> JavaProxy:
    """A scan by Spark's Parquet reader where one reader reads all files, else one of a frame's rows."""
    required = bridge.schema(request.required)
    merged = sum(is_read_in_python(item, target.snapshot.schema) for item in plan.slices)
    if not merged and _one_reader(target, plan, required):
        return PrunedFileScan(bridge, target, plan, request)
    if merged:
        MergeSettings.of(target.snapshot)  # Before a task runs: its errors come again and again.
    known = {column.name: column for column in target.all_columns.fields}
    # A pruned struct keeps all its fields here, and readSchema says so.
    return PlannedScan(bridge, target, plan, StructType([known[column.name] for column in required.fields]))


def _one_reader(target: ScanTarget, plan: ScanPlan, required: StructType) -> bool:
    """Whether the required columns have the table's types in all files of the plan."""
    names = {column.name for column in required.fields}
    wanted = read_columns(target.snapshot.schema)
    mine = [column for column in wanted if column.name in names]
    schemas = physical_schemas(target.snapshot, plan.files)
    return all(schema.field(column.name).type == column.type for schema in _distinct(schemas) for column in mine)


def _distinct(schemas: Sequence[pa.Schema]) -> list[pa.Schema]:
    return list({id(schema): schema for schema in schemas}.values())


def _description(target: ScanTarget, plan: ScanPlan, reader: str, files: PrunedFiles | None = None) -> str:
    dropped = 0 if files is None else len(plan.slices) - len(files.entries)
    kept = len(plan.slices) - dropped
    stages = ", ".join(f"{s.name} {s.before}→{s.after}" for s in plan.stages)
    parts = [
        f"{target.name} at {target.snapshot.instant or 'no commit'}: {kept} of {plan.files_total} files",
        f"{size_text(plan.bytes_kept)} of {size_text(plan.bytes_total)}",
        *([stages] if stages else []),
        *([f"limit leaves out {dropped}"] if dropped else []),
        *([_parts_text(files)] if files is not None and files.parts else []),
        reader,
    ]
    return "lakedex " + "; ".join(parts)


def _parts_text(files: PrunedFiles) -> str:
    kept, total = files.row_groups
    return f"row groups {kept} of {total} in {len(files.parts)} files, {size_text(files.bytes_read)} left"


class PrunedFileScan(JavaProxy):
    """A scan whose batch is Spark's own ``ParquetScan`` over the plan's files."""

    interfaces = (
        f"{_READ}SupportsReportStatistics",
        f"{_READ}SupportsRuntimeV2Filtering",
        "java.util.function.Function",
    )

    def __init__(self, bridge: JavaBridge, target: ScanTarget, plan: ScanPlan, request: ScanRequest) -> None:
        self._target = target
        self._plan = plan
        self._request = request
        limit = None if request.filters is not None else request.limit
        chosen = choose_files(target.snapshot, plan, limit)
        self._files = chosen if request.filters is None else chosen.of(row_group_ranges(target.snapshot, plan))
        # A filter without text may still leave out row groups: such a scan is equal to no other.
        untranslated = request.filters is not None and request.filters.size() != len(request.texts)
        filters = uuid.uuid4().hex if untranslated else str(request.texts)
        super().__init__(bridge, f"{target.identity}/{self._files.digest}/{request.required.json()}/{filters}")
        self._scan = self._parquet(self._files)
        self._read = self._files
        self._filtered = threading.local()

    def _parquet(self, files: PrunedFiles) -> JavaObject:
        bridge, request = self._bridge, self._request
        columns = self._target.all_columns
        index = file_index(bridge, self._target.snapshot.files.base_path, columns, files)
        whole = bridge.struct(columns)
        parquet = bridge.view.org.apache.spark.sql.execution.datasources.v2.parquet
        builder = parquet.ParquetScanBuilder(bridge.session, index, whole, whole, bridge.options(REBASE))
        if request.filters is not None:
            builder.pushFilters(request.filters)
        builder.pruneColumns(request.required)
        return builder.build()

    def _batch(self, files: PrunedFiles, scan: JavaObject) -> JavaObject:
        batch = scan.toBatch()
        if not files.parts:
            return batch
        # Spark reads equal batches once.
        identity = f"{self._identity}/{files.digest}/batch"
        return PartsBatch(self._bridge, identity, batch, files.parts).java

    def readSchema(self) -> JavaObject:
        """As Spark's reader gives it."""
        return self._scan.readSchema()

    def toBatch(self) -> JavaObject:
        """Asked again by the same thread right after :meth:`filter`, and only that answer is narrower.

        A plan may hold one scan twice, once under a join and once in the subquery that filters another.
        """
        files, scan = getattr(self._filtered, "scan", None) or (self._files, self._scan)
        self._filtered.scan = None
        return self._batch(files, scan)

    def apply(self, names: str) -> JavaObject:
        """The scan of some of its slices; see :func:`of_slices`."""
        return PrunedFileScan(self._bridge, self._target, of_slices(self._plan, names), self._request).java

    def estimateStatistics(self) -> JavaObject:
        """By the sizes of what is read."""
        whole, read = self._files.bytes_total, self._files.bytes_read
        estimated = self._scan.estimateStatistics()
        return estimated if read == whole else self._bridge.java.statistics(estimated, read / whole)

    def description(self) -> str:
        """Files kept of all, by which index; shown by ``EXPLAIN`` and in Spark's UI."""
        return _description(self._target, self._plan, "Parquet", self._files)

    # ------------------------------------------------------------------------------------------ filters of a join

    def filterAttributes(self) -> JavaObject:
        """Columns by whose values files can be left out while a join runs: those of paths and keys that are read."""
        config = self._target.snapshot.config
        wanted = self._bridge.schema(self._request.required).fields if self._request.in_joins else ()
        own = {column.name for column in wanted}
        names = [n for n in dict.fromkeys((*config.partition_fields, *config.record_key_fields)) if n in own]
        make = self._bridge.view.org.apache.spark.sql.connector.expressions.Expressions
        columns = [make.column(quoted(name)) for name in names]
        return self._bridge.array("org.apache.spark.sql.connector.expressions.NamedReference", columns)

    def filter(self, predicates: JavaObject) -> None:
        """Plan again with values that the other side of a join has."""
        texts = list(self._request.texts)
        columns = self._bridge.struct(self._target.all_columns)
        for predicate in predicates:
            if len(predicate.children()) <= MOST_RUNTIME_VALUES:
                with contextlib.suppress(UntranslatablePredicateError):
                    texts += filter_texts(self._bridge.view, (bound_condition(self._bridge, predicate, columns),))
        if len(texts) == len(self._request.texts):
            return
        plan = self._target.plan(texts)
        kept = {self._target.snapshot.files.path(base.relative_path) for base in plan.files}
        files = PrunedFiles([entry for entry in self._files.entries if entry[0] in kept])
        files = files.of({**self._files.parts, **row_group_ranges(self._target.snapshot, plan)})
        if files.digest != self._files.digest:
            self._read = files
            self._filtered.scan = (files, self._parquet(files))

    # ---------------------------------------------------------------------------------------------------- metrics

    def supportedCustomMetrics(self) -> JavaObject:
        """Spark's UI makes a metric's class by its name, so it has to be one of Spark's: there is one from Spark 4."""

        def made() -> JavaObject:
            return self._metrics("CustomMetric", lambda make, name, text, value: make.PythonCustomMetric(name, text))

        return self._bridge.constant("metrics", made)

    def reportDriverMetrics(self) -> JavaObject:
        """Files and bytes of the table, and how many of them were left out."""
        return self._metrics(
            "CustomTaskMetric", lambda make, name, text, value: make.PythonCustomTaskMetric(name, value)
        )

    def _metrics(self, kind: str, make: Callable[[JavaObject, str, str, int], JavaObject]) -> JavaObject:
        named = f"org.apache.spark.sql.connector.metric.{kind}"
        if self._bridge.is_spark_3:
            return self._bridge.array(named, [])
        classes = self._bridge.view.org.apache.spark.sql.execution.datasources.v2.python
        files = self._read
        kept, total = files.row_groups
        values = (
            ("lakedexFilesTotal", "files of the table", self._plan.files_total),
            ("lakedexFilesSkipped", "files skipped", self._plan.files_total - len(files.entries)),
            ("lakedexBytesSkipped", "bytes of files skipped", self._plan.bytes_total - files.bytes_total),
            ("lakedexRowGroupsSkipped", "row groups skipped in files read", total - kept),
            ("lakedexRowGroupBytesSkipped", "bytes of row groups skipped", files.bytes_total - files.bytes_read),
        )
        return self._bridge.array(named, [make(classes, name, text, value) for name, text, value in values])


class DataFrameScan(JavaProxy):
    """A scan of a DataFrame's rows."""

    interfaces: ClassVar[tuple[str, ...]] = (f"{_READ}V1Scan",)

    def __init__(self, bridge: JavaBridge, schema: StructType, make: Callable[[], DataFrame], description: str) -> None:
        super().__init__(bridge, f"lakedex-frame-{uuid.uuid4().hex}")
        self._schema = schema
        self._make = make
        self._description = description

    def readSchema(self) -> JavaObject:
        """Columns of the frame."""
        return self._bridge.struct(self._schema)

    def toV1TableScan(self, context: JavaObject) -> JavaObject:
        """The frame's rows, as Spark keeps them inside."""
        frame = self._make()
        rows = frame._jdf.queryExecution().toRdd()
        return self._bridge.java.relation(context, self.readSchema(), rows, self._description)

    def description(self) -> str:
        """Shown by ``EXPLAIN``."""
        return self._description


class PlannedScan(DataFrameScan):
    """A scan of the rows of a plan whose files one reader of Spark's does not read."""

    interfaces = (*DataFrameScan.interfaces, "java.util.function.Function")

    def __init__(self, bridge: JavaBridge, target: ScanTarget, plan: ScanPlan, schema: StructType) -> None:
        spark, names = bridge.spark, schema.names
        merged = sum(is_read_in_python(item, target.snapshot.schema) for item in plan.slices)
        how = f"{merged} slices read in Python" if merged else "union of scans by schema"
        described = _description(target, plan, how)
        super().__init__(bridge, schema, lambda: planned_frame(spark, target.snapshot, plan, None, names), described)
        self._target = target
        self._plan = plan

    def apply(self, names: str) -> JavaObject:
        """The scan of some of its slices; see :func:`of_slices`."""
        return PlannedScan(self._bridge, self._target, of_slices(self._plan, names), self._schema).java


def of_slices(plan: ScanPlan, names: str) -> ScanPlan:
    """A plan with those of its slices whose names are in a text, each in a line."""
    wanted = frozenset(names.split("\n"))
    return replace(plan, slices=tuple(item for item in plan.slices if item.name in wanted))
