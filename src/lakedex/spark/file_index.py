"""A DataFrame over a list of files that Python chooses when Spark plans a query.

Spark's ``FileIndex`` is a Java interface, and py4j can answer one from Python. So ``HadoopFsRelation`` with Spark's own
``ParquetFileFormat`` gets its files from a planner here, while the scan stays native: every query on the frame, also
through views, joins and subqueries, hands its filters over and reads only the files that are left.

Spark does not apply *partition* filters again after the index has. So the index declares no partition columns (they
are columns of the files), every filter arrives as a data filter, and a kept file too many costs time only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakedex.codec.varint import encode_varint
from lakedex.errors import LakedexError, UnsupportedFeatureError
from lakedex.spark.failures import remember
from lakedex.spark.filters import filter_texts
from lakedex.spark.reader import REBASE, qualified
from lakedex.spark.schema import align, nullable
from lakedex.spark.session import is_connect

__all__ = ["FileEntry", "Generation", "file_index_frame"]

_INTERFACE = "org.apache.spark.sql.execution.datasources.FileIndex"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file to read: its path, its size in bytes, its modification time in epoch milliseconds."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Generation:
    """Files of one physical schema.

    ``plan`` gets the filters of a query, each as Spark SQL text with all columns quoted and timestamps in UTC, and
    returns the files to read; the filters hold together (AND). It is called from many threads. ``size_in_bytes`` is
    the size of all live files: Spark chooses joins by it.
    """

    physical_schema: StructType
    size_in_bytes: int
    plan: Callable[[list[str]], list[FileEntry]]


def file_index_frame(
    spark: SparkSession,
    *,
    identity: str,
    root: str,
    table_schema: StructType,
    generations: Sequence[Generation],
) -> DataFrame:
    """A DataFrame of the table's schema whose files are chosen for each query.

    Args:
        spark: A classic session.
        identity: Two frames with the same text are the same to Spark, which then shares cached rows and exchanges
            between them. So it must tell table, instant and all read options.
        root: The table's base path.
        table_schema: Columns that come out, all nullable.
        generations: One for each physical schema among the files. Spark 3.5 cannot read an ``int`` file as ``long``,
            so each is scanned by its own schema, and the scans are cast and put together.

    Raises:
        UnsupportedFeatureError: A Spark Connect session.
    """
    if is_connect(spark):
        raise UnsupportedFeatureError(
            "Spark Connect cannot ask Python for files while it plans; use scan(where=…).to_spark()", feature="connect"
        )
    wanted = cast("StructType", nullable(table_schema))
    if not generations:
        return spark.createDataFrame([], wanted)
    jvm = _Jvm(spark)
    frames = [_relation(jvm, identity, root, i, generation, wanted) for i, generation in enumerate(generations)]
    return reduce(DataFrame.unionAll, frames)


def _relation(
    jvm: _Jvm, identity: str, root: str, number: int, generation: Generation, wanted: StructType
) -> DataFrame:
    found = cast("StructType", nullable(generation.physical_schema))
    index = _FileIndex(jvm, f"{identity}#{number}", root, generation)
    relation = jvm.view.org.apache.spark.sql.execution.datasources.HadoopFsRelation(
        index,
        index.no_columns,
        jvm.struct(found),
        jvm.none,
        jvm.view.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat(),
        jvm.options,
        jvm.session,
    )
    frame = DataFrame(jvm.session.baseRelationToDataFrame(relation), jvm.spark)
    return align(frame, found, wanted)


class _Jvm:
    """The Java and Scala objects that an index answers with, made once for each frame."""

    _starting = threading.Lock()

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        gateway: Any = context._gateway
        self.gateway = gateway
        with self._starting:
            ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]
        self.spark = spark
        self.session: Any = spark._jsparkSession
        self.view: Any = self.gateway.jvm
        self.utils = self.view.org.apache.spark.api.python.PythonUtils
        self.none = self.view.scala.Option.empty()
        self.options = self.utils.toScalaMap(REBASE)
        self.status_class = self.view.java.lang.Class.forName("org.apache.hadoop.fs.FileStatus")
        self.sequence_class = self.view.java.lang.Class.forName("scala.collection.immutable.Seq")
        self.directory = self.view.org.apache.spark.sql.execution.datasources.PartitionDirectory
        self.empty_row = self.view.org.apache.spark.sql.catalyst.InternalRow.empty()

    def struct(self, schema: StructType) -> Any:
        return self.session.parseDataType(schema.json())

    def directories(self, entries: Sequence[FileEntry]) -> Any:
        """``Seq[PartitionDirectory]`` of the files, all of them sent in one call."""
        array = self.view.org.apache.hadoop.io.ArrayWritable(self.status_class)
        stream = self.view.java.io.ByteArrayInputStream(_statuses(entries))
        array.readFields(self.view.java.io.DataInputStream(stream))
        # ArrayWritable holds a Writable[]; py4j finds no method for one where a FileStatus[] is wanted.
        statuses = self.view.java.lang.reflect.Array.newInstance(self.status_class, len(entries))
        self.view.java.lang.System.arraycopy(array.get(), 0, statuses, 0, len(entries))
        return self.utils.toSeq([self.directory.apply(self.empty_row, statuses)])

    def strings(self, texts: Sequence[str]) -> Any:
        """``String[]`` in one call."""
        if not texts:
            return self.gateway.new_array(self.view.java.lang.String, 0)
        return self.view.java.util.regex.Pattern.compile("\0").split("\0".join(texts))

    def failing(self, error: LakedexError | Exception) -> Any:
        """A ``Seq`` that throws as soon as Spark looks into it.

        What a py4j proxy raises reaches the user as a ``Py4JException`` around a traceback. PySpark has Python classes
        for these two, and shows their message alone.
        """
        lang = self.view.java.lang
        text = str(error) if isinstance(error, LakedexError) else f"{type(error).__name__}: {error}"
        make = lang.UnsupportedOperationException if isinstance(error, NotImplementedError) else None
        thrown = (make or lang.IllegalArgumentException)(text)
        failure = self.view.scala.util.Failure(thrown)
        return self.view.java.beans.EventHandler.create(self.sequence_class, failure, "get")


class _FileIndex:
    """The Python side of a ``FileIndex``. py4j keeps it for as long as the JVM holds its proxy."""

    def __init__(self, jvm: _Jvm, identity: str, root: str, generation: Generation) -> None:
        self._jvm = jvm
        self._identity = identity
        self._generation = generation
        path = jvm.view.org.apache.hadoop.fs.Path(qualified(root))
        self._roots = jvm.utils.toSeq([path])
        self.no_columns = jvm.view.org.apache.spark.sql.types.StructType()
        # An object returned to the JVM must outlive the reply: py4j drops it there once Python lets go of it.
        self._kept = threading.local()

    # ------------------------------------------------------------- FileIndex, as the JVM calls it (names are Java's)

    def rootPaths(self) -> Any:
        return self._roots

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        try:
            texts = filter_texts(self._jvm.view, (partition_filters, data_filters))
            self._kept.answer = self._jvm.directories(self._generation.plan(texts))
        except Exception as error:
            if isinstance(error, LakedexError):
                remember(error)
            self._kept.answer = self._jvm.failing(error)
        return self._kept.answer

    def inputFiles(self) -> Any:
        self._kept.answer = self._jvm.strings([qualified(entry.path) for entry in self._generation.plan([])])
        return self._kept.answer

    def refresh(self) -> None:
        """Nothing to do: a frame is pinned to an instant."""

    def sizeInBytes(self) -> int:
        return self._generation.size_in_bytes

    def partitionSchema(self) -> Any:
        return self.no_columns

    def toString(self) -> str:
        return self._identity

    def equals(self, other: Any) -> bool:
        # The other side may be any object; two proxies of one index are different Java objects.
        return other is not None and other.toString() == self._identity

    def hashCode(self) -> int:
        value = 0
        for unit in self._identity.encode("utf-16-be"):
            value = (31 * value + unit) & 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value

    def __getattr__(self, name: str) -> Any:
        """Default methods of the interface, which a Java proxy does not inherit: ``isTimeTravel`` and what may come.

        Scala compiles the body of each into a static ``<name>$`` that takes the instance.
        """
        if name.startswith("_"):
            raise AttributeError(name)

        def default(*arguments: Any) -> Any:
            interface = getattr(self._jvm.view, _INTERFACE)
            self._kept.answer = getattr(interface, f"{name}$")(self, *arguments)
            return self._kept.answer

        return default

    class Java:
        """py4j reads here which interface the object answers."""

        implements = (_INTERFACE,)


# ------------------------------------------------------------------------------------------------ file statuses

# org.apache.hadoop.fs.FSProtos.FileStatusProto: field number << 3 | wire type.
_TYPE, _PATH, _LENGTH, _MODE, _MODIFIED, _REPLICAS, _BLOCK = (
    b"\x08",
    b"\x12",
    b"\x18",
    b"\x22",
    b"\x38",
    b"\x50",
    b"\x58",
)
_IS_FILE = _TYPE + b"\x02"
_REST = _MODE + b"\x03\x08" + encode_varint(0o644) + _REPLICAS + b"\x01" + _BLOCK + encode_varint(128 << 20)


def _statuses(entries: Sequence[FileEntry]) -> bytearray:
    """What ``ArrayWritable.readFields`` takes for an array of ``FileStatus``."""
    out = bytearray(len(entries).to_bytes(4, "big"))
    for entry in entries:
        path = qualified(entry.path).encode()
        status = _IS_FILE + _PATH + encode_varint(len(path)) + path + _LENGTH + encode_varint(entry.size)
        status += _REST + _MODIFIED + encode_varint(entry.modified_ms)
        out += len(status).to_bytes(4, "big") + status
    return out
