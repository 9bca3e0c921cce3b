"""``readStream.table("lake.t")`` and ``writeStream.toTable("lake.t")``, from PySpark 3.5 on.

A DataSource V2 stream is read and written by classes on executors, where none of ours is. So the table hands a read to
Spark's older interface, whose source answers each batch with a DataFrame on the driver, and a strategy hands Python the
rows of each batch that is written. Tasks read and write, the driver plans.

:mod:`lakedex.scan.stream` says which rows a batch has. A batch that is written has its number in the table, as
``txn=(application, batch)``, so that the table knows one that Spark repeats.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakedex.arrow_types import normal_schema
from lakedex.errors import UnsupportedFeatureError
from lakedex.io.locations import open_storage
from lakedex.parquet.conform import conform
from lakedex.reports import WriteResult
from lakedex.scan.slice_reader import SliceReader
from lakedex.scan.stream import Position, StreamFiles, TableStream, iter_stream_rows
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.catalog.java_bridge import JavaBridge, JavaProxy
from lakedex.spark.catalog.scan import ScanTarget
from lakedex.spark.engine import SparkEngine, SparkFrame
from lakedex.spark.jvm import JavaObject
from lakedex.spark.schema import arrow_to_spark
from lakedex.spark.stream_options import application_of, file_limit, parse_stream_options

__all__ = ["BatchWrite", "register_streams", "stream_table", "streaming_write"]


_STREAMING = "org.apache.spark.sql.connector.read.streaming."


_PROVIDER = "org.apache.spark.sql.sources.LakedexStreamProvider"


_NEIGHBOUR = "org.apache.spark.sql.sources.StreamSourceProvider"


def register_streams(bridge: JavaBridge) -> None:
    """Let the bridge's session write streams, and its copies; once is enough."""
    bridge.compiled("LakedexStreams").register(bridge.session.experimental())


# --------------------------------------------------------------------------------------------------------- reading


def stream_table(bridge: JavaBridge, target: ScanTarget, schema: JavaObject) -> JavaObject:
    """The ``CatalogTable`` from which Spark makes the source of a stream."""

    def number() -> str:
        provider = bridge.named_class(_PROVIDER, _NEIGHBOUR, lambda: bridge.source("LakedexStreamProvider"))
        made = uuid.uuid4().hex
        provider.add(made, _SourceOpener(bridge).java)
        return made

    options = {"lakedex": bridge.constant("streams", number), "lakedex.path": str(target.snapshot.files)}
    catalog = bridge.view.org.apache.spark.sql.catalyst.catalog
    storage = _copy(catalog.CatalogStorageFormat.empty(), properties=bridge.utils.toScalaMap(bridge.map(options)))
    companion = getattr(getattr(bridge.view, "org.apache.spark.sql.catalyst.catalog.CatalogTable$"), "MODULE$")
    kind = getattr(getattr(bridge.view, "org.apache.spark.sql.catalyst.catalog.CatalogTableType$"), "MODULE$")
    given = [
        # Spark wants a database; that of the name is the catalog.
        bridge.view.org.apache.spark.sql.catalyst.TableIdentifier(
            target.name, bridge.view.scala.Option.apply("lakedex")
        ),
        kind.EXTERNAL(),
        storage,
        schema,
        bridge.view.scala.Option.apply(_PROVIDER),
    ]
    count = len(
        bridge.java_class("org.apache.spark.sql.catalyst.catalog.CatalogTable").getConstructors()[0].getParameterTypes()
    )
    rest = [getattr(companion, f"apply$default${number}")() for number in range(len(given) + 1, count + 1)]
    return companion.apply(*given, *rest)


def _copy(value: JavaObject, **changes: JavaObject) -> JavaObject:
    """A copy of an object of a case class."""
    fields = [str(field.getName()) for field in value.getClass().getDeclaredFields()]
    count = len(value.getClass().getConstructors()[0].getParameterTypes())
    kept = [getattr(value, f"copy$default${number}")() for number in range(1, count + 1)]
    return value.copy(*(changes.get(name, old) for name, old in zip(fields, kept, strict=False)))


class _SourceOpener(JavaProxy):
    """Opens the source of a stream when its query starts."""

    interfaces = ("java.util.function.BiFunction",)

    def apply(self, session: JavaObject, options: JavaObject) -> JavaObject:
        """Called by Spark in the thread of the query, with the session of that query."""
        bridge = JavaBridge(SparkSession(self._bridge.spark.sparkContext, session))
        return _TableSource(bridge, {str(name): str(value) for name, value in dict(options).items()}).java


class _TableSource(JavaProxy):
    """A table as a stream."""

    interfaces = (
        "org.apache.spark.sql.execution.streaming.Source",
        f"{_STREAMING}SupportsAdmissionControl",
        f"{_STREAMING}SupportsTriggerAvailableNow",
    )

    def __init__(self, bridge: JavaBridge, options: Mapping[str, str]) -> None:
        super().__init__(bridge)
        rest = {name.lower(): value for name, value in options.items()}
        newest = Snapshot.load(open_storage(rest.pop("lakedex.path")))
        rest.pop("path", None)
        start, limits = parse_stream_options(rest)
        self._columns = newest.schema
        self._stream = TableStream(newest, newest.schema.names, start, limits)
        self._name = f"lakedex stream of {newest.files}"

    def toString(self) -> str:
        """Shown in the query's progress."""
        return self._name

    def schema(self) -> JavaObject:
        """The table's columns."""
        return self._bridge.struct(arrow_to_spark(self._columns))

    def getOffset(self) -> JavaObject:
        """Not asked of a source that takes limits."""
        return self._bridge.view.scala.Option.apply(self._offset(self._stream.last()))

    def getDefaultReadLimit(self) -> JavaObject:
        """The limit of a batch."""
        limit = self._bridge.view.org.apache.spark.sql.connector.read.streaming.ReadLimit
        files = file_limit(self._stream.limits)
        return limit.allAvailable() if files is None else limit.maxFiles(files)

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave later commits to the next run."""
        self._stream.stop_at_last()

    def latestOffset(self, start: JavaObject, limit: JavaObject) -> JavaObject:
        """Where the next batch ends; null for nothing to read yet."""
        position = self._position(start)
        limited = str(limit.getClass().getSimpleName()) != "ReadAllAvailable"
        end = self._stream.admitted(position, limited=limited)
        return start if end == position else self._offset(end)

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:
        """The rows between two offsets."""
        bridge = self._bridge
        found = self._stream.files(self._position(start.get() if start.isDefined() else None), self._position(end))
        shares = tuple(replace(files, slices=(item,)) for files in found for item in files.slices)
        numbers = bridge.spark.range(0, len(shares), 1, max(1, len(shares)))
        task = _ReadShares(self._stream.reader, shares, normal_schema(self._columns))
        frame = SparkEngine(bridge.spark).map(SparkFrame(numbers, _NUMBERS), task)
        if not isinstance(frame, SparkFrame):
            raise TypeError(f"the Spark engine answered with a {type(frame).__name__}")
        # A batch of a stream has to say that it is one.
        rows: JavaObject = frame.df._jdf.queryExecution().toRdd()
        return bridge.session.internalCreateDataFrame(rows, self.schema(), True)

    def initialOffset(self) -> JavaObject:
        """Where a stream begins."""
        return self._offset(self._stream.first())

    def deserializeOffset(self, text: str) -> JavaObject:
        """An offset of the checkpoint."""
        return self._offset(Position.from_json(json.loads(text)))

    def commit(self, end: JavaObject) -> None:
        """Nothing is kept of a batch."""

    def stop(self) -> None:
        """Nothing is open."""

    def _position(self, offset: JavaObject) -> Position:
        return self._stream.first() if offset is None else Position.from_json(json.loads(str(offset.json())))

    def _offset(self, position: Position) -> JavaObject:
        return self._bridge.view.org.apache.spark.sql.execution.streaming.SerializedOffset.apply(
            json.dumps(position.to_json())
        )


_NUMBERS = pa.schema([pa.field("id", pa.int64(), False)])


@dataclass(frozen=True, slots=True)
class _ReadShares:
    """Reads the shares of a batch whose numbers come in. Memory: a batch of rows."""

    reader: SliceReader
    shares: tuple[StreamFiles, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in iter_stream_rows(self.reader, self.shares[number]):
                    yield conform(rows, self.schema)


# --------------------------------------------------------------------------------------------------------- writing


BatchWrite = Callable[[DataFrame, tuple[str, int]], WriteResult]
"""Writes a batch, whose number is that of ``txn=``."""


def streaming_write(bridge: JavaBridge, name: str, query_id: str, write: BatchWrite) -> JavaObject:
    """The write of a stream into a table."""
    return _StreamingWrite(bridge, name, query_id, write).java


class _StreamingWrite(JavaProxy):
    """A stream's write, run by the strategy of :func:`register_streams`."""

    interfaces = ("org.apache.spark.sql.connector.write.streaming.StreamingWrite", "java.util.function.BiFunction")

    def __init__(self, bridge: JavaBridge, name: str, query_id: str, write: BatchWrite) -> None:
        super().__init__(bridge)
        self._name = name
        self._application = application_of(query_id)
        self._write = write

    def toString(self) -> str:
        """Shown in the plan."""
        return f"lakedex stream into {self._name}"

    def apply(self, rows: JavaObject, batch: int) -> None:
        """Write a batch. One that the table has already is run nevertheless: Spark's operators keep state of it."""
        bridge = self._bridge
        frame = DataFrame(bridge.session.internalCreateDataFrame(rows.execute(), rows.schema(), False), bridge.spark)
        if self._write(frame, (self._application, int(batch))).instant is None:
            frame.write.format("noop").mode("overwrite").save()

    def createStreamingWriterFactory(self, info: JavaObject) -> JavaObject:
        """Not reached where the strategy is in the session."""
        raise UnsupportedFeatureError(
            f"table {self._name}: this session is older than the catalog's registration; register it here, or write"
            " by foreachBatch",
            feature="streams in this session",
        )

    def commit(self, batch: int, messages: Any) -> None:
        """Done by :meth:`apply`."""

    def abort(self, batch: int, messages: Any) -> None:
        """Nothing was written."""
