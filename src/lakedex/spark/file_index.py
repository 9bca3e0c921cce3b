"""A DataFrame over files that Python chooses whenever Spark plans a query.

Spark's ``FileIndex`` is a Java interface that py4j implements in Python. ``HadoopFsRelation`` with Spark's own
``ParquetFileFormat`` thus gets its files from a planner here, while the scan stays native: every query on the frame,
also through views, joins and subqueries, passes its filters and reads only the remaining files.

Filters on columns that the index declares as *partition columns* are not applied to rows again. Spark's own expressions
evaluate them here over typed values, the same values that dynamic partition pruning uses. All other filters are applied
again, so a file kept without need only costs time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakedex.codec.hashing import java_hash
from lakedex.errors import UnsupportedFeatureError
from lakedex.spark.filters import filter_texts, matching_rows
from lakedex.spark.hadoop import qualified
from lakedex.spark.jvm import FileStatuses, JavaObject, Jvm
from lakedex.spark.reader import REBASE
from lakedex.spark.schema import align, nullable
from lakedex.spark.session import is_connect
from lakedex.types import IntArray

__all__ = ["Generation", "PartitionColumns", "file_index_frame"]


_INTERFACE = "org.apache.spark.sql.execution.datasources.FileIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumns:
    """Columns whose value is one for all rows of a file, and known without reading it.

    Attributes:
        schema: the columns, each also one of the relation's.
        values: one row for each partition, in Arrow types that are exactly those of ``schema``.
        of_file: number of each file's partition, ascending.
    """

    schema: StructType
    values: pa.Table
    of_file: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Files of one physical schema.

    Attributes:
        physical_schema: columns in the files and in the order that comes out.
        files: all of them; Spark chooses joins by their size.
        plan: gets the filters of a query, each as Spark SQL text with all columns quoted and timestamps in UTC, and
            returns the ascending positions of the files to read; the filters hold together (AND). It is called from
            many threads.
        partitions: None where no column is known without reading.
    """

    physical_schema: StructType
    files: FileStatuses
    plan: Callable[[list[str]], IntArray]
    partitions: PartitionColumns | None = None


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
    jvm = Jvm(spark)
    frames = [_relation(jvm, identity, root, i, generation, wanted) for i, generation in enumerate(generations)]
    return reduce(DataFrame.unionAll, frames)


def _relation(jvm: Jvm, identity: str, root: str, number: int, generation: Generation, wanted: StructType) -> DataFrame:
    found = cast("StructType", nullable(generation.physical_schema))
    index = _FileIndex(jvm, f"{identity}#{number}", root, generation)
    relation = jvm.view.org.apache.spark.sql.execution.datasources.HadoopFsRelation(
        index,
        index.partition_schema,
        # Partition columns stay in here, which keeps their place; Spark takes their values from the index.
        jvm.struct(found),
        jvm.none,
        jvm.view.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat(),
        jvm.utils.toScalaMap(REBASE),
        jvm.session,
    )
    frame = DataFrame(jvm.session.baseRelationToDataFrame(relation), jvm.spark)
    return align(frame, found, wanted)


class _FileIndex:
    """The Python side of a ``FileIndex``. py4j keeps it for as long as the JVM holds its proxy."""

    def __init__(self, jvm: Jvm, identity: str, root: str, generation: Generation) -> None:
        self._jvm = jvm
        self._identity = identity
        self._generation = generation
        self._size = int(generation.files.sizes.sum())
        path = jvm.view.org.apache.hadoop.fs.Path(qualified(root))
        self._roots = jvm.utils.toSeq([path])
        columns = generation.partitions
        self.partition_schema = jvm.struct(StructType() if columns is None else columns.schema)
        self._known_rows: JavaObject = None
        # An object returned to the JVM must outlive the reply: py4j drops it there once Python lets go of it.
        self._kept = threading.local()

    def _rows(self) -> JavaObject:
        """``Seq[InternalRow]``: values of each partition. Two threads may both make it."""
        if self._known_rows is None:
            columns = self._generation.partitions
            self._known_rows = (
                self._jvm.empty_rows() if columns is None else self._jvm.rows(columns.schema, columns.values)
            )
        return self._known_rows

    def _choose(self, partition_filters: JavaObject, data_filters: JavaObject) -> JavaObject:
        """``Seq[PartitionDirectory]`` of the files to read."""
        texts = filter_texts(self._jvm.view, (partition_filters, data_filters))
        positions = self._generation.plan(texts)
        columns, rows = self._generation.partitions, self._rows()
        if columns is None:
            counts = np.array([len(positions)])
        else:
            counts = np.bincount(columns.of_file[positions], minlength=columns.values.num_rows)
            if partition_filters.nonEmpty() and counts.any():
                matching = matching_rows(self._jvm.view, partition_filters, rows, self.partition_schema)
                positions = positions[matching[columns.of_file[positions]]]
                counts = np.where(matching, counts, 0)
        statuses = self._jvm.statuses(self._generation.files, positions, counts)
        return self._jvm.directories(rows, statuses, counts > 0)

    # ------------------------------------------------------------- FileIndex, as the JVM calls it (names are Java's)

    def rootPaths(self) -> JavaObject:
        return self._roots

    def listFiles(self, partition_filters: JavaObject, data_filters: JavaObject) -> JavaObject:
        try:
            self._kept.answer = self._choose(partition_filters, data_filters)
        except Exception as error:
            self._kept.answer = self._jvm.failing(error)
        return self._kept.answer

    def inputFiles(self) -> JavaObject:
        # No planning: there are no filters here, and no way to pass an error to Spark.
        self._kept.answer = self._jvm.strings(self._generation.files.paths.to_pylist())
        return self._kept.answer

    def refresh(self) -> None:
        """Nothing to do: a frame is pinned to an instant."""

    def sizeInBytes(self) -> int:
        return self._size

    def partitionSchema(self) -> JavaObject:
        return self.partition_schema

    def toString(self) -> str:
        return self._identity

    def equals(self, other: JavaObject) -> bool:
        # The other side may be any object; two proxies of one index are different Java objects.
        return other is not None and other.toString() == self._identity

    def hashCode(self) -> int:
        return java_hash(self._identity)

    def __getattr__(self, name: str) -> JavaObject:
        """Default methods of the interface, which a Java proxy does not inherit: ``isTimeTravel`` and what may come.

        Scala compiles the body of each into a static ``<name>$`` that takes the instance.
        """
        if name.startswith("_"):
            raise AttributeError(name)

        def default(*arguments: JavaObject) -> JavaObject:
            interface = getattr(self._jvm.view, _INTERFACE)
            self._kept.answer = getattr(interface, f"{name}$")(self, *arguments)
            return self._kept.answer

        return default

    class Java:
        """py4j reads here which interface the object answers."""

        implements = (_INTERFACE,)
