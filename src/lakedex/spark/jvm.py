"""Call Spark's own classes over py4j, in few calls however many files there are.

py4j asks the JVM for every part of ``view.org.apache.spark…`` at every use, and for each part Spark's class loader
searches all jars. A query that Python plans uses about a hundred such names, so :class:`JavaNames` caches them.

py4j's callback server, through which Java calls Python, listens on 127.0.0.1, where every user of the machine can
connect, and asks for no token. It could not: PySpark tells Java the port once the server has one, and Java's client
then forgets its token (``PythonClient.copyWith``). A caller needs only an object's name, and py4j calls them p0, p1, …
So names continue from a random number of 120 bits before an object of lakedex gets one. They are never printed, and go
to Spark's JVM alone, on connections that it and Python opened to each other (Java's server, in the other direction,
asks for PySpark's token).

Another user of the machine can still connect, which costs the driver a thread each, and call objects that other code
exposed under small numbers before (a function of ``foreachBatch``). Whoever can read the driver's memory or the traffic
of its loopback device (root, or its own user) knows the names.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaClass, JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakedex.codec.varint import encode_varint
from lakedex.errors import LakedexError, UnsupportedFeatureError
from lakedex.spark.error_transport import remember
from lakedex.spark.hadoop import qualified

__all__ = ["FileStatuses", "JavaNames", "JavaObject", "Jvm", "callback_gateway", "java_names"]


JavaObject: TypeAlias = Any
"""An object of the JVM. py4j finds its methods when they are called, so no type says more."""


CACHED_STRUCTS = 256
"""Schemas of which a :class:`Jvm` remembers the Java object."""


class JavaNames:
    """A package, or py4j's view of all packages; names found in it are cached."""

    def __init__(self, source: JavaObject) -> None:
        self._source = source

    def __getattr__(self, name: str) -> JavaObject:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _remembering(getattr(self._source, name))
        self.__dict__[name] = found
        return found


class _KnownClass(JavaClass):  # type: ignore[misc]
    """A class that caches its static methods, inner classes and constants (the ``MODULE$`` of a Scala object)."""

    def __getattr__(self, name: str) -> JavaObject:
        found = _remembering(super().__getattr__(name))
        self.__dict__[name] = found
        return found


def _remembering(found: JavaObject) -> JavaObject:
    if isinstance(found, JavaPackage):
        return JavaNames(found)
    if isinstance(found, JavaClass):
        return _KnownClass(found._fqn, found._gateway_client)
    return found


_known: WeakKeyDictionary[JavaObject, JavaNames] = WeakKeyDictionary()


_lock = threading.Lock()


def java_names(gateway: JavaObject) -> JavaObject:
    """``gateway.jvm`` with a cache of names. For classes of fixed names only: nothing is looked up again."""
    with _lock:
        if gateway not in _known:
            _known[gateway] = JavaNames(gateway.jvm)
        return _known[gateway]


_BITS = 120


_starting = threading.Lock()


def callback_gateway(spark: SparkSession) -> JavaObject:
    """The session's py4j gateway, ready to hand Python objects to Java under names that nobody guesses.

    Raises:
        UnsupportedFeatureError: the callback server listens on the network.
    """
    gateway: JavaObject = spark.sparkContext._gateway
    with _starting:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        address = str(gateway.get_callback_server().get_listening_address())
        if not ipaddress.ip_address(address).is_loopback:
            raise UnsupportedFeatureError(
                f"py4j's callback server listens on {address}, where other machines read what Java asks Python; let it "
                "listen on 127.0.0.1",
                feature="callback server on the network",
            )
        pool = gateway.gateway_property.pool
        with pool.lock:
            if pool.next_id < 1 << (_BITS // 2):
                pool.next_id = secrets.randbits(_BITS) | 1 << _BITS
    return gateway


# ------------------------------------------------------------------------------------------------ file statuses

# org.apache.hadoop.fs.FSProtos.FileStatusProto: field number << 3 | wire type.
_TYPE, _PATH, _LENGTH, _MODE, _MODIFIED, _REPLICAS, _BLOCK = b"\x08\x12\x18\x22\x38\x50\x58"


_REST = bytes([_MODE, 3, 8, *encode_varint(0o644), _REPLICAS, 1, _BLOCK, *encode_varint(128 << 20)])


_PATH_DIGITS, _NUMBER_DIGITS = 4, 9


def _varints(values: npt.NDArray[np.int64], digits: int) -> npt.NDArray[np.uint8]:
    """Each value as a varint of always ``digits`` bytes: protobuf reads padded ones too."""
    shifts = 7 * np.arange(digits, dtype=np.int64)
    out = ((values[:, None] >> shifts) & 0x7F).astype(np.uint8)
    out[:, :-1] |= 0x80
    return out


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = rows.shape
    kind = pa.binary(width)
    plain = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, pa.py_buffer(rows.tobytes())])
    return plain.cast(pa.large_binary())


@dataclass(frozen=True, slots=True)
class FileStatuses:
    """Files as Hadoop's ``FileStatus`` writes itself, ready to be sent. About 100 bytes a file and its path.

    Attributes:
        paths: with a scheme.
        sizes: in bytes.
        encoded: one element per file.
    """

    paths: pa.Array
    sizes: npt.NDArray[np.int64]
    encoded: pa.Array

    @classmethod
    def of(cls, paths: Iterable[str], sizes: Iterable[int], modified_ms: Iterable[int]) -> FileStatuses:
        """Encode the files, all at once."""
        whole = pa.array([qualified(path) for path in paths], pa.large_string())
        lengths = pc.binary_length(whole).to_numpy(zero_copy_only=False).astype(np.int64)
        size = np.fromiter(sizes, np.int64, len(whole))
        modified = np.fromiter(modified_ms, np.int64, len(whole))
        tail = [
            np.full((len(whole), 1), _LENGTH, np.uint8),
            _varints(size, _NUMBER_DIGITS),
            np.broadcast_to(np.frombuffer(_REST, np.uint8), (len(whole), len(_REST))),
            np.full((len(whole), 1), _MODIFIED, np.uint8),
            _varints(modified, _NUMBER_DIGITS),
        ]
        after = np.concatenate(tail, axis=1)
        begin = np.frombuffer(bytes([_TYPE, 2, _PATH]), np.uint8)
        total = lengths + len(begin) + _PATH_DIGITS + after.shape[1]
        head = [
            total.astype(">i4").view(np.uint8).reshape(-1, 4),
            np.broadcast_to(begin, (len(whole), len(begin))),
            _varints(lengths, _PATH_DIGITS),
        ]
        before = np.concatenate(head, axis=1)
        nothing = pa.scalar(b"", pa.large_binary())
        encoded = pc.binary_join_element_wise(_fixed(before), whole.cast(pa.large_binary()), _fixed(after), nothing)
        return cls(whole, size, encoded)

    def __len__(self) -> int:
        return len(self.paths)

    def two_dimensional(self, positions: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> bytes:
        """Bytes for ``TwoDArrayWritable.readFields``: files ``positions``, ``counts`` of them in each row."""
        header = np.concatenate([[len(counts)], counts]).astype(">i4").tobytes()
        return header + _joined(self.encoded if len(positions) == len(self) else self.encoded.take(pa.array(positions)))

    def joined(self) -> bytes:
        """All of them, each as its size (an int) and the bytes for ``FileStatus.readFields``."""
        return _joined(self.encoded)


def _joined(chosen: pa.Array) -> bytes:
    begin, end = (
        int(x) for x in np.frombuffer(chosen.buffers()[1], np.int64)[[chosen.offset, chosen.offset + len(chosen)]]
    )
    return chosen.buffers()[2].slice(begin, end - begin).to_pybytes() if end > begin else b""


# ---------------------------------------------------------------------------------------------------- the JVM


class Jvm:
    """A session's JVM: its classes, and Java and Scala objects that proxies answer with. Many threads call it."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = callback_gateway(spark)
        self.gateway = gateway
        self.spark = spark
        self.session: JavaObject = spark._jsparkSession
        self.view: JavaObject = java_names(gateway)
        self.utils: JavaObject = self.view.org.apache.spark.api.python.PythonUtils
        self.none: JavaObject = self.view.scala.Option.empty()
        self._structs: dict[str, JavaObject] = {}

    def java_class(self, name: str) -> JavaObject:
        """``java.lang.Class`` by name."""
        return self.view.java.lang.Class.forName(name)

    def array(self, kind: str, values: Sequence[JavaObject]) -> JavaObject:
        """An array; one call for each value, so for short ones."""
        made = self.gateway.new_array(getattr(self.view, kind), len(values))
        for position, value in enumerate(values):
            made[position] = value
        return made

    def strings(self, texts: Sequence[str]) -> JavaObject:
        """``String[]`` in one call."""
        if not texts:
            return self.gateway.new_array(self.view.java.lang.String, 0)
        return self.view.java.util.regex.Pattern.compile("\0").split("\0".join(texts), -1)

    def struct(self, schema: StructType) -> JavaObject:
        """Spark's own ``StructType``."""
        text = schema.json()
        found = self._structs.get(text)
        if found is None:
            found = self.session.parseDataType(text)
            if len(self._structs) >= CACHED_STRUCTS:
                self._structs = {}
            self._structs[text] = found
        return found

    def statuses(
        self, files: FileStatuses, positions: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> JavaObject:
        """``FileStatus[][]`` in one call: files ``positions``, ``counts`` of them in each row."""
        array = self.view.org.apache.hadoop.io.TwoDArrayWritable(self._status_class)
        stream = self.view.java.io.ByteArrayInputStream(files.two_dimensional(positions, counts))
        array.readFields(self.view.java.io.DataInputStream(stream))
        return array.toArray()

    def rows(self, schema: StructType, values: pa.Table) -> JavaObject:
        """``Seq[InternalRow]`` of a small table whose Arrow types are those of ``schema``."""
        # A local relation: its rows lie in the plan, no job runs.
        return self.frame(schema, values).queryExecution().analyzed().data()

    def frame(self, schema: StructType, values: pa.Table) -> JavaObject:
        """A Java ``Dataset`` of a table whose Arrow types are those of ``schema``."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, values.schema) as writer:
            writer.write_table(values)
        stream = self.view.java.io.ByteArrayInputStream(sink.getvalue().to_pybytes())
        channel = self.view.java.nio.channels.Channels.newChannel(stream)
        arrow = getattr(self.view, "org.apache.spark.sql.execution.arrow.ArrowConverters$")
        batches = getattr(arrow, "MODULE$").getBatchesFromStream(channel)
        python = self.view.org.apache.spark.sql.api.python.PythonSQLUtils
        return python.toDataFrame(batches, schema.json(), self.session)

    def empty_rows(self) -> JavaObject:
        """``Seq[InternalRow]`` of one row without columns."""
        return self.utils.toSeq([self.view.org.apache.spark.sql.catalyst.InternalRow.empty()])

    def directories(self, rows: JavaObject, statuses: JavaObject, wanted: npt.NDArray[np.bool_]) -> JavaObject:
        """``Seq[PartitionDirectory]`` of ``rows[i]`` and ``statuses[i]`` for each ``i`` that is wanted."""
        handles, lang = self.view.java.lang.invoke.MethodHandles, self.view.java.lang
        getters = self.array(
            "java.lang.invoke.MethodHandle",
            [
                handles.arrayElementGetter(self._rows_class).bindTo(rows.toArray(self._row_tag)),
                handles.arrayElementGetter(self._statuses_class).bindTo(statuses),
            ],
        )
        both = handles.filterArguments(self._make_directory, 0, getters)
        of_position = handles.permuteArguments(both, self._directory_type, self.gateway.new_array(self.view.int, 2))
        function = lang.invoke.MethodHandleProxies.asInterfaceInstance(self._int_function, of_position)
        bits = self.view.java.util.BitSet.valueOf(np.packbits(wanted, bitorder="little").tobytes())
        made = bits.stream().mapToObj(function).toArray()
        return self.utils.toSeq(self.view.java.util.Arrays.asList(made))

    @cached_property
    def _status_class(self) -> JavaObject:
        return self.java_class("org.apache.hadoop.fs.FileStatus")

    @cached_property
    def _statuses_class(self) -> JavaObject:
        return self.java_class("[[Lorg.apache.hadoop.fs.FileStatus;")

    @cached_property
    def _rows_class(self) -> JavaObject:
        return self.java_class("[Lorg.apache.spark.sql.catalyst.InternalRow;")

    @cached_property
    def _row_tag(self) -> JavaObject:
        tags = getattr(getattr(self.view, "scala.reflect.ClassTag$"), "MODULE$")
        return tags.apply(self.java_class("org.apache.spark.sql.catalyst.InternalRow"))

    @cached_property
    def _int_function(self) -> JavaObject:
        return self.java_class("java.util.function.IntFunction")

    @cached_property
    def _make_directory(self) -> JavaObject:
        """The Java method that makes a ``PartitionDirectory`` of a row and a ``FileStatus[]``."""
        kinds = [
            self.java_class("org.apache.spark.sql.catalyst.InternalRow"),
            self.java_class("[Lorg.apache.hadoop.fs.FileStatus;"),
        ]
        found = self._directory_class.getMethod("apply", self.array("java.lang.Class", kinds))
        return self.view.java.lang.invoke.MethodHandles.publicLookup().unreflect(found)

    @cached_property
    def _directory_class(self) -> JavaObject:
        return self.java_class("org.apache.spark.sql.execution.datasources.PartitionDirectory")

    @cached_property
    def _directory_type(self) -> JavaObject:
        return self.view.java.lang.invoke.MethodType.methodType(self._directory_class, self.view.java.lang.Integer.TYPE)

    def exception(self, error: Exception, *, refused: bool = False) -> JavaObject:
        """``error`` as a Java exception whose message PySpark shows alone; for one that Java threw, that one.

        What a py4j proxy raises would reach the user as a ``Py4JException`` around a traceback. PySpark has Python
        classes for the two exceptions made here; ``refused`` always takes that of unsupported operations.
        """
        original = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
        if original is not None:
            return original
        text = str(error) if isinstance(error, LakedexError) else f"{type(error).__name__}: {error}"
        lang = self.view.java.lang
        unsupported = refused or isinstance(error, NotImplementedError)
        made = (lang.UnsupportedOperationException if unsupported else lang.IllegalArgumentException)(text)
        if isinstance(error, LakedexError):
            remember(error, made)
        return made

    def failing(self, error: Exception) -> JavaObject:
        """A ``Seq`` that throws ``error`` as soon as Spark looks into it."""
        failure = self.view.scala.util.Failure(self.exception(error))
        sequence = self.java_class("scala.collection.immutable.Seq")
        return self.view.java.beans.EventHandler.create(sequence, failure, "get")
