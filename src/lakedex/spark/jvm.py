"""What Python hands to Spark's own classes over py4j, each in a few calls however many files there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakedex.codec.varint import encode_varint
from lakedex.errors import LakedexError
from lakedex.spark.callbacks import callback_gateway
from lakedex.spark.failures import remember
from lakedex.spark.java_names import java_names
from lakedex.spark.reader import REBASE, qualified

__all__ = ["FileStatuses", "Jvm"]


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
        """What ``TwoDArrayWritable.readFields`` takes: files ``positions``, ``counts`` of them in each row."""
        header = np.concatenate([[len(counts)], counts]).astype(">i4").tobytes()
        return header + _joined(self.encoded if len(positions) == len(self) else self.encoded.take(pa.array(positions)))

    def joined(self) -> bytes:
        """All of them, each as its size (an int) and what ``FileStatus.readFields`` takes."""
        return _joined(self.encoded)


def _joined(chosen: pa.Array) -> bytes:
    begin, end = (
        int(x) for x in np.frombuffer(chosen.buffers()[1], np.int64)[[chosen.offset, chosen.offset + len(chosen)]]
    )
    return chosen.buffers()[2].slice(begin, end - begin).to_pybytes() if end > begin else b""


# ---------------------------------------------------------------------------------------------------- the JVM


class Jvm:
    """Java and Scala objects that proxies answer with."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = callback_gateway(spark)
        self.gateway = gateway
        self.spark = spark
        self.session: Any = spark._jsparkSession
        self.view: Any = java_names(gateway)
        self.utils = self.view.org.apache.spark.api.python.PythonUtils
        self.none = self.view.scala.Option.empty()
        self.options = self.utils.toScalaMap(REBASE)

    def java_class(self, name: str) -> Any:
        """``java.lang.Class`` by name."""
        return self.view.java.lang.Class.forName(name)

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        """An array, one call for each value: for short ones."""
        made = self.gateway.new_array(kind, len(values))
        for position, value in enumerate(values):
            made[position] = value
        return made

    def struct(self, schema: StructType) -> Any:
        """Catalyst's ``StructType``."""
        return self.session.parseDataType(schema.json())

    def strings(self, texts: Sequence[str]) -> Any:
        """``String[]`` in one call."""
        if not texts:
            return self.gateway.new_array(self.view.java.lang.String, 0)
        return self.view.java.util.regex.Pattern.compile("\0").split("\0".join(texts))

    def statuses(self, files: FileStatuses, positions: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Any:
        """``FileStatus[][]`` in one call: files ``positions``, ``counts`` of them in each row."""
        array = self.view.org.apache.hadoop.io.TwoDArrayWritable(self._status_class)
        stream = self.view.java.io.ByteArrayInputStream(files.two_dimensional(positions, counts))
        array.readFields(self.view.java.io.DataInputStream(stream))
        return array.toArray()

    def rows(self, schema: StructType, values: pa.Table) -> Any:
        """``Seq[InternalRow]`` of a small table whose Arrow types are those of ``schema``."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, values.schema) as writer:
            writer.write_table(values)
        stream = self.view.java.io.ByteArrayInputStream(sink.getvalue().to_pybytes())
        channel = self.view.java.nio.channels.Channels.newChannel(stream)
        arrow = getattr(self.view, "org.apache.spark.sql.execution.arrow.ArrowConverters$")
        batches = getattr(arrow, "MODULE$").getBatchesFromStream(channel)
        python = self.view.org.apache.spark.sql.api.python.PythonSQLUtils
        # A local relation: its rows lie in the plan, no job runs.
        relation = python.toDataFrame(batches, schema.json(), self.session).queryExecution().analyzed()
        return relation.data()

    def empty_rows(self) -> Any:
        """``Seq[InternalRow]`` of one row without columns."""
        return self.utils.toSeq([self.view.org.apache.spark.sql.catalyst.InternalRow.empty()])

    def directories(self, rows: Any, statuses: Any, wanted: npt.NDArray[np.bool_]) -> Any:
        """``Seq[PartitionDirectory]`` of ``rows[i]`` and ``statuses[i]`` for each ``i`` that is wanted."""
        handles, lang = self.view.java.lang.invoke.MethodHandles, self.view.java.lang
        getters = self.array(
            lang.invoke.MethodHandle,
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
    def _status_class(self) -> Any:
        return self.java_class("org.apache.hadoop.fs.FileStatus")

    @cached_property
    def _statuses_class(self) -> Any:
        return self.java_class("[[Lorg.apache.hadoop.fs.FileStatus;")

    @cached_property
    def _rows_class(self) -> Any:
        return self.java_class("[Lorg.apache.spark.sql.catalyst.InternalRow;")

    @cached_property
    def _row_tag(self) -> Any:
        tags = getattr(getattr(self.view, "scala.reflect.ClassTag$"), "MODULE$")
        return tags.apply(self.java_class("org.apache.spark.sql.catalyst.InternalRow"))

    @cached_property
    def _int_function(self) -> Any:
        return self.java_class("java.util.function.IntFunction")

    @cached_property
    def _make_directory(self) -> Any:
        """The Java method that makes a ``PartitionDirectory`` of a row and a ``FileStatus[]``."""
        kinds = [
            self.java_class("org.apache.spark.sql.catalyst.InternalRow"),
            self.java_class("[Lorg.apache.hadoop.fs.FileStatus;"),
        ]
        found = self._directory_class.getMethod("apply", self.array(self.view.java.lang.Class, kinds))
        return self.view.java.lang.invoke.MethodHandles.publicLookup().unreflect(found)

    @cached_property
    def _directory_class(self) -> Any:
        return self.java_class("org.apache.spark.sql.execution.datasources.PartitionDirectory")

    @cached_property
    def _directory_type(self) -> Any:
        return self.view.java.lang.invoke.MethodType.methodType(self._directory_class, self.view.java.lang.Integer.TYPE)

    def failing(self, error: Exception) -> Any:
        """A ``Seq`` that throws as soon as Spark looks into it.

        What a py4j proxy raises reaches the user as a ``Py4JException`` around a traceback. PySpark has Python classes
        for these two, and shows their message alone. What Java threw is thrown again.
        """
        lang = self.view.java.lang
        if isinstance(error, Py4JJavaError):
            thrown = error.java_exception
        else:
            text = str(error) if isinstance(error, LakedexError) else f"{type(error).__name__}: {error}"
            make = lang.UnsupportedOperationException if isinstance(error, NotImplementedError) else None
            thrown = (make or lang.IllegalArgumentException)(text)
            if isinstance(error, LakedexError):
                remember(error, thrown)
        failure = self.view.scala.util.Failure(thrown)
        return self.view.java.beans.EventHandler.create(
            self.java_class("scala.collection.immutable.Seq"), failure, "get"
        )
