"""Writes of SQL and ``df.writeTo``: Spark hands over the rows as a DataFrame, and the table's own methods write them.

Dynamic partition overwrite is the exception, since Spark knows no such hand-over for it: Spark's Parquet writer puts
the rows into a folder first, and the commit reads them from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from lakedex.errors import OptionError, UnsupportedFeatureError
from lakedex.io.storage import Storage
from lakedex.layout.keys import partition_values
from lakedex.reports import WriteResult
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.scan import ScanTarget
from lakedex.spark.catalog.streams import streaming_write
from lakedex.spark.catalog.warehouse import OpenTable
from lakedex.spark.filters import UntranslatablePredicateError, condition_of, value_of
from lakedex.spark.hadoop import qualified
from lakedex.spark.jvm import JavaObject
from lakedex.spark.option_names import matched
from lakedex.spark.reader import REBASE
from lakedex.spark.schema import arrow_to_spark
from lakedex.spark.staged_write import SETTINGS, NewTable
from lakedex.types import PARTITION_PATH

__all__ = ["TableWriteBuilder", "table_options", "write_options"]


_WRITE = "org.apache.spark.sql.connector.write."


_OPERATION = "hoodie.spark.sql.insert.into.operation"


_SPARKS = {
    "path": "path",
    "partitionOverwriteMode": "overwrite_mode",
    "checkpointLocation": "checkpoint",
    "queryName": "query",
    "outputMode": "output_mode",
}
"""Options that Spark itself reads, of frames and of streams."""


Pick = Callable[[Sequence[str]], list[str]]


_SQL_ONLY = frozenset({_OPERATION, "hoodie.datasource.write.operation"})


def table_options(bridge: JavaBridge) -> dict[str, str]:
    """Options of a table's method, from the session's settings."""
    return {name: value for name, value in _session_options(bridge).items() if name not in _SQL_ONLY}


def _session_options(bridge: JavaBridge) -> dict[str, str]:
    """``hoodie.*`` settings of the session (``SET hoodie.… = …``), which Hudi's SQL takes as write options."""
    settings = bridge.session.sessionState().conf().settings()
    names = str(settings.keySet().toString()).strip("[]").split(", ")
    return {name: str(settings.get(name)) for name in names if name.startswith("hoodie.")}


def write_options(info: JavaObject) -> dict[str, str]:
    """Options of a write, as the user gave them."""
    return {str(name): str(value) for name, value in dict(info.options().asCaseSensitiveMap()).items()}


Merges = Callable[[str, JavaObject], str | None]
"""Runs a ``MERGE`` that only inserts; see ``RowChanges.answer``."""


class TableWriteBuilder(JavaProxy):
    """Collects the options of a write and the rows that it replaces."""

    interfaces = (
        f"{_WRITE}SupportsOverwriteV2",
        f"{_WRITE}SupportsDynamicOverwrite",
        # A stream in update mode: rows that changed are upserted.
        "org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend",
    )

    def __init__(
        self,
        bridge: JavaBridge,
        target: ScanTarget,
        table: OpenTable,
        info: JavaObject,
        *,
        merges: Merges | None = None,
        replace: Callable[[DataFrame, Mapping[str, str]], WriteResult] | None = None,
    ) -> None:
        """With ``replace`` the rows and options go there, with ``merges`` a ``MERGE`` that only inserts."""
        super().__init__(bridge)
        self._target = target
        self._merges = merges
        self._table = table
        self._info = info
        self._replace = replace
        found, hoodies = matched(write_options(info), {**SETTINGS, **_SPARKS}, others="hoodie.", names=tuple(_SPARKS))
        config = target.snapshot.config
        NewTable.of(found).require_same(config, str(target.snapshot.files))
        self._options = {**_session_options(bridge), **hoodies}
        self._scope: str | None = None
        self._partitions: list[dict[str, object]] | Pick | None = None

    def truncate(self) -> JavaObject:
        """Replace all rows."""
        self._scope = "table"
        return self.java

    def canOverwrite(self, predicates: JavaObject) -> bool:
        """Whether the condition can be looked at; :meth:`overwrite` says what it cannot do."""
        return True

    def overwrite(self, predicates: JavaObject) -> JavaObject:
        """Replace all rows, or the partitions under a condition on partition columns."""
        found = self._partition_of(predicates)
        self._scope = "partitions" if found is None or found else "table"
        if found is None:
            self._partitions = picked_partitions(self._bridge, self._target, predicates)
        elif found:
            self._partitions = [found]
        return self.java

    def overwriteDynamicPartitions(self) -> JavaObject:
        """Replace the partitions that the rows go to."""
        self._scope = "partitions"
        return self.java

    def build(self) -> JavaObject:
        """The write."""
        if self._scope == "partitions" and self._partitions is None:
            return _StagedWrite(self._bridge, self._target, self._info, self._write).java
        return _FrameWrite(self._bridge, self._target.name, self._write, str(self._info.queryId()), self._merges).java

    def _partition_of(self, predicates: JavaObject) -> dict[str, object] | None:
        """Partition column → value of ``column <=> value AND …``; empty for all rows, None for anything else."""
        found: dict[str, object] = {}
        for predicate in predicates:
            pair = _column_value(predicate)
            if pair is None:
                return None
            found.update(pair)
        fields = self._target.snapshot.config.partition_fields
        return found if not found or set(found) == set(fields) else None

    def _write(self, frame: DataFrame, txn: tuple[str, int] | None = None) -> WriteResult:
        """Write rows; ``txn`` is a batch of a stream."""
        options = {name: value for name, value in self._options.items() if name not in _SQL_ONLY}
        if self._replace is not None:
            return self._replace(frame, options)
        if self._scope is not None:
            done: WriteResult = self._table.insert_overwrite(
                frame, self._scope, self._partitions, txn=txn, options=options
            )
            return done
        writers: Mapping[str, Callable[..., WriteResult]] = {
            "insert": self._table.insert,
            "upsert": self._table.upsert,
            "bulk_insert": self._table.bulk_insert,
        }
        return writers[self._operation(writers, txn is not None)](frame, txn=txn, options=options)

    def _operation(self, known: Mapping[str, object], streaming: bool) -> str:
        """As Hudi 1.1 (``ProvidesHoodieConfig``): what was set, else upsert with an ordering field, else insert.

        A stream upserts, as Hudi's do, wherever there is a key.
        """
        chosen = self._options.get(_OPERATION) or self._options.get("hoodie.datasource.write.operation")
        if chosen is None:
            config = self._target.snapshot.config
            return "upsert" if config.ordering_fields or (streaming and config.record_key_fields) else "insert"
        if chosen.lower() not in known:
            raise OptionError(f"{_OPERATION}={chosen!r}: give {', '.join(known)}", option=_OPERATION)
        return chosen.lower()


def picked_partitions(bridge: JavaBridge, target: ScanTarget, predicates: JavaObject) -> Pick:
    """Finds the partition paths under a condition on partition columns, which Spark evaluates on their values.

    Raises:
        UnsupportedFeatureError: a condition on other columns, or one that Spark does not hand over exactly.
    """
    config, schema = target.snapshot.config, target.snapshot.schema
    fields = config.partition_fields
    used = {".".join(map(str, name.fieldNames())) for predicate in predicates for name in predicate.references()}
    if not used <= set(fields) or not fields or not config.folders_are_values:
        raise UnsupportedFeatureError(
            f"table {target.name}: an overwrite is under a condition on partition columns "
            f"({', '.join(fields) or 'there are none'}), or of all rows; for other columns DELETE the rows and INSERT",
            feature="overwrite by filter",
        )
    try:
        condition = cast("Column", condition_of(bridge, predicates))
    except UntranslatablePredicateError as error:
        raise UnsupportedFeatureError(
            f"table {target.name}: an overwrite under the condition {error} is not supported; name the partitions: "
            "t.insert_overwrite(df, partitions=[…])",
            feature="overwrite by filter",
        ) from error

    def pick(paths: Sequence[str]) -> list[str]:
        types = [schema.field(name).type for name in fields]
        values, known = partition_values(
            paths, fields, types, hive_style=config.hive_style, url_encode=config.url_encode
        )
        unclear = [path for path, *sure in zip(paths, *known, strict=True) if not all(sure)]
        if unclear:
            raise UnsupportedFeatureError(
                f"table {target.name}: the folder {unclear[0]!r} does not tell the values of its partition columns, as "
                "null and the empty text share one; name the partitions: t.insert_overwrite(df, partitions=[…])",
                feature="overwrite by filter",
            )
        rows = pa.table([pa.array(paths, pa.string()), *values], names=[PARTITION_PATH, *fields])
        frame = bridge.spark.createDataFrame(rows.to_pylist(), arrow_to_spark(rows.schema))
        return [str(row[0]) for row in frame.where(condition).select(PARTITION_PATH).collect()]

    return pick


def _column_value(predicate: JavaObject) -> dict[str, object] | None:
    kind = predicate.getClass().getSimpleName()
    if kind == "AlwaysTrue":
        return {}
    name = str(predicate.name())
    children = list(predicate.children())
    if name == "AND":
        pairs = [_column_value(child) for child in children]
        return None if None in pairs else {k: v for pair in pairs if pair for k, v in pair.items()}
    if name not in ("=", "<=>") or len(children) != 2:
        return None
    column, literal = children
    kinds = (column.getClass().getSimpleName(), literal.getClass().getSimpleName())
    if kinds != ("FieldReference", "LiteralValue") or len(column.fieldNames()) != 1:
        return None
    try:
        return {str(column.fieldNames()[0]): value_of(literal)}
    except UntranslatablePredicateError as error:
        raise UnsupportedFeatureError(f"an overwrite of partition {error}", feature="partition value") from error


class _FrameWrite(JavaProxy):
    """A write that gets a DataFrame."""

    interfaces = (f"{_WRITE}V1Write", "java.util.function.BiFunction")

    def __init__(
        self,
        bridge: JavaBridge,
        name: str,
        write: Callable[..., WriteResult],
        query_id: str,
        merges: Merges | None,
    ) -> None:
        super().__init__(bridge)
        self._name = name
        self._merges = merges
        self._relation = _Relation(bridge, write)
        self._stream = partial(streaming_write, bridge, name, query_id, write)

    def apply(self, step: str, argument: JavaObject) -> str | None:
        """Called by the strategy of row-level statements: Spark makes an append of a ``MERGE`` that only inserts."""
        return None if self._merges is None else self._merges(step, argument)

    def toInsertableRelation(self) -> JavaObject:
        """Where Spark puts the rows."""
        return self._relation.java

    def toStreaming(self) -> JavaObject:
        """Where Spark puts the rows of a stream."""
        return self._stream()

    def description(self) -> str:
        """Shown by ``EXPLAIN``."""
        return f"lakedex write into {self._name}"


class _Relation(JavaProxy):
    """Takes the rows."""

    interfaces = ("org.apache.spark.sql.sources.InsertableRelation",)

    def __init__(self, bridge: JavaBridge, write: Callable[[DataFrame], object]) -> None:
        super().__init__(bridge)
        self._write = write

    def insert(self, data: JavaObject, overwrite: bool) -> None:
        """``overwrite`` is always false here: the builder knows."""
        self._write(DataFrame(data, self._bridge.spark))


class _StagedWrite(JavaProxy):
    """A write whose rows lie in a folder of the table until its commit."""

    interfaces = (f"{_WRITE}Write",)

    def __init__(
        self, bridge: JavaBridge, target: ScanTarget, info: JavaObject, write: Callable[[DataFrame], object]
    ) -> None:
        super().__init__(bridge)
        self._target = target
        self._info = info
        self._write = write

    def toBatch(self) -> JavaObject:
        """The folder's own write, and the table's commit after it."""
        snapshot = self._target.snapshot
        folder = snapshot.files.path(f".hoodie/.temp/lakedex-sql-{uuid.uuid4().hex}")
        return _StagedBatch(self._bridge, snapshot.files.storage, folder, self._info, self._write).java

    def description(self) -> str:
        """Shown by ``EXPLAIN``."""
        return f"lakedex dynamic partition overwrite of {self._target.name}"


class _AnyType(JavaProxy):
    """A function that says yes."""

    interfaces = ("scala.Function1",)

    def apply(self, value: JavaObject) -> bool:
        """Columns were checked against the table's."""
        return True


class _StagedBatch(JavaProxy):
    """Spark's Parquet write, followed by the table's."""

    interfaces = (f"{_WRITE}BatchWrite",)

    def __init__(
        self, bridge: JavaBridge, storage: Storage, folder: str, info: JavaObject, write: Callable[[DataFrame], object]
    ) -> None:
        super().__init__(bridge)
        self._storage = storage
        self._folder = folder
        self._schema = info.schema()
        self._write = write
        parquet = bridge.view.org.apache.spark.sql.execution.datasources.v2.parquet
        paths = bridge.utils.toSeq([qualified(folder)])
        self._inner = parquet.ParquetWrite(paths, "parquet", _AnyType(bridge).java, info).toBatch()

    def createBatchWriterFactory(self, info: JavaObject) -> JavaObject:
        """Runs on executors."""
        return self._inner.createBatchWriterFactory(info)

    def useCommitCoordinator(self) -> bool:
        """One attempt of each task counts."""
        return bool(self._inner.useCommitCoordinator())

    def onDataWriterCommit(self, message: JavaObject) -> None:
        """A task is done."""
        self._inner.onDataWriterCommit(message)

    def commit(self, messages: JavaObject) -> None:
        """All tasks are done."""
        try:
            self._inner.commit(messages)
            reader = self._bridge.spark.read.schema(self._bridge.schema(self._schema)).options(**REBASE)
            self._write(reader.parquet(qualified(self._folder)))
        finally:
            self._storage.delete_tree(self._folder)

    def abort(self, messages: Sequence[JavaObject]) -> None:
        """A task failed."""
        try:
            self._inner.abort(messages)
        finally:
            self._storage.delete_tree(self._folder)
