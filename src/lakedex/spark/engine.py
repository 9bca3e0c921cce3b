"""The engine on Spark: Arrow batches in, Arrow batches out, and no job for work small enough for the driver.

Rows of a lazy frame are computed once, by Spark's local checkpoint: blocks on the executors, without a lineage that
could compute other rows later. Each block is stored on two executors, so that losing one does not end the write, and on
disk: ten million rows in memory exhausted a 1.5 GB JVM.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.cloudpickle import dumps as _dumps
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from lakedex.arrow_types import ROWS_PER_PARTITION, ArrowFrame, as_table, conform, normal_schema, split
from lakedex.engine import BatchMap, Engine, Frame, TaskId, in_task
from lakedex.errors import InvalidInputError, LakedexError, StorageError
from lakedex.local.engine import exchange, left_join, map_partitions
from lakedex.parallel import run_threads
from lakedex.spark.error_transport import Seal, is_final, unwrapping_errors
from lakedex.spark.native_stages import in_spark
from lakedex.spark.schema import arrow_to_spark, nullable, nullable_frame, quoted, spark_to_arrow
from lakedex.spark.session import case_sensitive, is_connect, set_job_description

__all__ = [
    "DRIVER_CAP",
    "LOCAL_CAP",
    "CheckpointedRows",
    "SparkEngine",
    "SparkFrame",
    "is_local",
    "partition_salts",
    "release",
]


_MASK = 0xFFFFFFFF


@cache
def partition_salts(tasks: int) -> tuple[int, ...]:
    """For each of ``tasks`` partitions an int that ``repartition(tasks, column)`` sends there."""
    found: dict[int, int] = {}
    for value in count():
        found.setdefault(_spark_hash(value) % tasks, value)
        if len(found) == tasks:
            return tuple(found[partition] for partition in range(tasks))
    raise AssertionError


def _spark_hash(value: int) -> int:
    """``Murmur3_x86_32.hashInt`` with Spark's seed 42, as a signed int."""
    k = _rotate(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(42 ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


@dataclass(frozen=True, slots=True)
class CheckpointedRows:
    """Rows on executors.

    Attributes:
        df: reads them.
        rows: how many they are.
        size: bytes that a copy takes: more than the rows take in Arrow. 0 on Spark Connect, which
            does not tell.
    """

    df: DataFrame
    rows: int
    size: int

    @classmethod
    def of(cls, df: DataFrame) -> CheckpointedRows:
        """Compute a frame, on a classic session in a single job."""
        spark = df.sparkSession
        copies = 1 if is_local(spark) else 2
        level = StorageLevel.DISK_ONLY if copies == 1 else StorageLevel.DISK_ONLY_2
        if is_connect(spark):
            # PySpark 4, the first whose Connect has checkpoints, takes a level; the type stubs know that of 3.5.
            kept: DataFrame = df.localCheckpoint(True, level)  # type: ignore[call-arg, unused-ignore]
            return cls(kept, kept.count(), 0)
        kept = df.localCheckpoint(eager=False)
        # An RDD that is marked for a checkpoint takes another level until its first job (RDD.persist).
        _rdd(kept).persist(spark.sparkContext._getJavaStorageLevel(level))
        rows = kept.count()
        infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
        number = _rdd(kept).id()
        size = next((info.memSize() + info.diskSize() for info in infos if info.id() == number), 0)
        return cls(kept, rows, size // copies)


def release(df: DataFrame) -> None:
    """Free the blocks of :class:`CheckpointedRows`; on Spark Connect they go with the session."""
    if not is_connect(df.sparkSession):
        # RDD.unpersist would warn at each write that the lineage is cut, which is the purpose of a checkpoint.
        df.sparkSession.sparkContext._jsc.sc().unpersistRDD(_rdd(df).id(), False)


def is_local(spark: SparkSession) -> bool:
    """Whether the session's executors are the driver itself, which cannot lose them."""
    return re.fullmatch(r"local(\[.*\])?", str(spark.conf.get("spark.master", ""))) is not None


def _rdd(df: DataFrame) -> Any:
    return df._jdf.queryExecution().analyzed().rdd()


T = TypeVar("T")


R = TypeVar("R")


# Operators whose output Spark estimates without knowing what they make of a row.
_GROWING = re.compile(
    r"\b(Generate|Expand|MapIn\w+|FlatMap\w+|MapPartitions\w*|MapElements|PythonMap\w*|ScriptTrans\w+)\b"
)


DRIVER_CAP = 200_000, 32 << 20
"""Rows and bytes of staged input that the driver of a cluster holds."""


LOCAL_CAP = 4_000_000, 256 << 20


# A relation of files, whose estimate is their size as they are stored.
_FILES = re.compile(r"\bRelation\w*[ \[(]")


_PACKED = 8
"""Rows may take this many times the bytes of their Parquet file; larger input is counted before it is collected."""


_DRIVER_TASKS = 2


# A driver-held table goes to the executors in pieces of at least this size.
_PAYLOAD_BYTES = 1 << 20


# Tasks that say of themselves that they do little: a look into a file's key column, say.
_LIGHT_TASKS = 32


# Threads of Arrow's that share one interpreter without much waiting.
_THREADS_OF_ONE = 4


_SAMPLED_ROWS = 1_000


_TASKS_A_CORE = 4
"""More would cost a twentieth of a second each; fewer would leave cores idle while others have long tasks."""


_PAYLOAD = StructType([StructField("payload", BinaryType(), False)])


_PAYLOAD_ARROW = pa.schema([pa.field("payload", pa.binary(), False)])


@dataclass(frozen=True, slots=True)
class SparkFrame:
    """A Spark DataFrame and the Arrow schema that its rows have outside of Spark."""

    df: DataFrame
    schema: pa.Schema
    kept: bool = False


class SparkEngine(Engine):
    """Runs stages on a Spark session.

    Args:
        spark: The session.
        driver_rows: Staged input of at most this many rows …
        driver_bytes: … and bytes is held and worked on by the driver. Without them ``DRIVER_CAP``, or ``LOCAL_CAP``
            under a master ``local[n]`` of few threads, where the driver is all there is.
    """

    def __init__(self, spark: SparkSession, *, driver_rows: int | None = None, driver_bytes: int | None = None) -> None:
        self.spark = spark
        self._connect = is_connect(spark)
        # Executors that are this very machine, and so few threads that one interpreter keeps them busy.
        self._alone = not self._connect and self.parallelism <= _THREADS_OF_ONE and is_local(spark)
        rows, size = LOCAL_CAP if self._alone else DRIVER_CAP
        self._driver_rows = rows if driver_rows is None else driver_rows
        self._driver_bytes = size if driver_bytes is None else driver_bytes

    @property
    def name(self) -> str:
        """``spark``."""
        return "spark"

    @property
    def parallelism(self) -> int:
        """Tasks that the session's executors run at once."""
        if self._connect:
            return int(str(self.spark.conf.get("spark.sql.shuffle.partitions")))
        return int(self.spark.sparkContext.defaultParallelism)

    @property
    def repeats_tasks(self) -> bool:
        """True: Spark retries tasks, and may run one twice."""
        return True

    @property
    def case_sensitive(self) -> bool:
        """See :meth:`lakedex.engine.Engine.case_sensitive`."""
        return case_sensitive(self.spark)

    def read_frame(self, data: Any) -> Any:
        """See :meth:`lakedex.engine.Engine.read_frame`."""
        return data if _is_dataframe(data) else as_table(data)

    def schema_of(self, data: Any) -> pa.Schema:
        """See :meth:`lakedex.engine.Engine.schema_of`."""
        return spark_to_arrow(_schema(data)) if _is_dataframe(data) else normal_schema(as_table(data).schema)

    # ------------------------------------------------------------------------------------------------- staging

    def stage(self, data: Any, prepare: BatchMap) -> Frame:
        """See :meth:`lakedex.engine.Engine.stage`.

        A Spark frame that its plan shows to be small is collected and prepared here, without Python workers. Any other
        is kept on executors (:mod:`lakedex.spark.engine`), counted there, and collected if it turned out small.
        Arrow rows go to the executors as they are, types that Spark lacks too.
        """
        if not _is_dataframe(data):
            table = as_table(data)
            if table.num_rows <= self._driver_rows and table.nbytes <= self._driver_bytes:
                return self._driver_map(ArrowFrame.of(table, self._threads), prepare)
            return self.keep(SparkFrame(self._sent(table, prepare), prepare.schema))
        frame = SparkFrame(data, self.schema_of(data))
        if not self._connect and self._is_small(data):
            return self._driver_map(ArrowFrame.of(self.collect(frame), self._threads), prepare)
        return self.keep(self._spark_map(frame, prepare))

    def _is_small(self, df: DataFrame) -> bool:
        plan = df._jdf.queryExecution().optimizedPlan()
        size, text = int(str(plan.stats().sizeInBytes())), plan.toString()
        if _FILES.search(text):
            size *= _PACKED
        return size <= self._driver_bytes and _GROWING.search(text) is None

    def keep(self, frame: Frame) -> Frame:
        """See :meth:`lakedex.engine.Engine.keep`: on executors, or on the driver if it is little."""
        if not isinstance(frame, SparkFrame):
            return frame
        with unwrapping_errors():
            found = CheckpointedRows.of(frame.df)
        kept = SparkFrame(found.df, frame.schema, kept=True)
        if found.rows > self._driver_rows or found.size > self._driver_bytes:
            return kept
        table = self.collect(kept)
        self.release(kept)
        return ArrowFrame.of(table, self._threads)

    def from_arrow(self, table: pa.Table) -> Frame:
        """See :meth:`lakedex.engine.Engine.from_arrow`."""
        return ArrowFrame.of(table, self._threads)

    def numbers(self, count: int) -> Frame:
        """See :meth:`lakedex.engine.Engine.numbers`."""
        return SparkFrame(self.spark.range(0, count, 1, count), pa.schema([("id", pa.int64())]))

    def release(self, frame: Frame) -> None:
        """See :meth:`lakedex.engine.Engine.release`."""
        if isinstance(frame, SparkFrame) and frame.kept:
            release(frame.df)

    # -------------------------------------------------------------------------------------------------- stages

    @property
    def _threads(self) -> int:
        return max(1, min(self.parallelism, 8))

    def map(self, frame: Frame, fn: BatchMap) -> Frame:
        """See :meth:`lakedex.engine.Engine.map`. Lazy on Spark rows; runs at once on rows of the driver.

        Rows of the driver that were exchanged for more than two tasks go to the executors: each partition then stands
        for real work (a file to merge), however few its rows are. Where a master ``local[n]`` of few threads would run
        them, threads of the driver do: a job has no other processors, and copies the rows twice.
        """
        if isinstance(frame, SparkFrame):
            return self._spark_map(frame, fn)
        rows = _on_driver(frame)
        limit = _LIGHT_TASKS if getattr(fn, "light", False) else _DRIVER_TASKS
        if rows.exchanged and len(rows.partitions) > limit and not self._alone:
            answers = self.run(_MapOne(fn, rows.schema), [_pack(part) for part in rows.partitions])
            return ArrowFrame(tuple(_unpack(answer) for answer in answers), fn.schema)
        return self._driver_map(rows, fn)

    def _driver_map(self, frame: ArrowFrame, fn: BatchMap) -> ArrowFrame:
        return map_partitions(frame, fn, self._threads)

    def _spark_map(self, frame: SparkFrame, fn: BatchMap) -> SparkFrame:
        schema, df, found = fn.schema, frame.df, frame.schema
        native = in_spark(df, found, fn, self._to_spark, case_sensitive=self.case_sensitive)
        if native is not None:
            return SparkFrame(native, schema)
        reads = getattr(fn, "reads", None)
        if reads is not None:
            found = pa.schema([field for field in found if field.name in reads])
            df = df.select(*[quoted(name) for name in found.names])
        task = _Task(fn, found, _all_nullable(schema))
        return SparkFrame(df.mapInArrow(_rows(task), _struct(schema)), schema)

    def exchange(
        self, frame: Frame, by: str, tasks: int, order: Sequence[str] = (), texts: Collection[str] = ()
    ) -> Frame:
        """See :meth:`lakedex.engine.Engine.exchange`. Integers go round robin: value modulo ``tasks`` is the task.

        Texts stay as they are: Spark moves no dictionaries.
        """
        del texts
        if not isinstance(frame, SparkFrame):
            return exchange(_on_driver(frame), by, tasks, order, self._threads)
        key = F.col(quoted(by))
        if frame.schema.field(by).type in (pa.int32(), pa.int64()):
            # Hash partitioning alone puts several of few values into one task and leaves others idle.
            table = F.array(*[F.lit(salt) for salt in partition_salts(tasks)])
            key = F.element_at(table, (F.pmod(key, F.lit(tasks)) + F.lit(1)).cast("int"))
        df = frame.df.repartition(tasks, key).sortWithinPartitions(*[F.col(quoted(name)) for name in (by, *order)])
        return SparkFrame(df, frame.schema)

    def join(self, left: Frame, right: Frame, on: Sequence[str]) -> Frame:
        """See :meth:`lakedex.engine.Engine.join`. A right side that the driver holds is broadcast."""
        if isinstance(left, ArrowFrame) and isinstance(right, ArrowFrame):
            return left_join(left, right, on)
        a, b = self._as_spark(left), self._as_spark(right)
        other = F.broadcast(b.df) if isinstance(right, ArrowFrame) else b.df
        fields = list(a.schema) + [f.with_nullable(True) for f in b.schema if f.name not in on]
        joined = a.df.join(other, list(on), "left").select(*[quoted(field.name) for field in fields])
        return SparkFrame(joined, pa.schema(fields))

    def to_dataframe(self, frame: Frame) -> DataFrame:
        """The rows as a DataFrame, those of the driver too."""
        return self._as_spark(frame).df

    def _as_spark(self, frame: Frame) -> SparkFrame:
        if isinstance(frame, SparkFrame):
            return frame
        table = _on_driver(frame).table()
        return SparkFrame(self._to_spark(table), table.schema)

    def _to_spark(self, table: pa.Table) -> DataFrame:
        """A DataFrame of ``table``: as Arrow bytes, which keeps nested values and nulls exact on every PySpark."""
        schema = normal_schema(table.schema)
        return self._sent(conform(table, schema), _Same(schema))

    def _sent(self, table: pa.Table, fn: BatchMap) -> DataFrame:
        """A batch map over rows that go to the executors as Arrow bytes."""
        by_size = -(-table.nbytes // max(min(self._driver_bytes, DRIVER_CAP[1]), _PAYLOAD_BYTES))
        parts = max(1, self.parallelism if table.num_rows > ROWS_PER_PARTITION else 1, by_size)
        payloads = [(_pack(part),) for part in split(table, parts)]
        packed = self.spark.createDataFrame(payloads, _PAYLOAD)
        task = _Task(_Unpack(fn), _PAYLOAD_ARROW, _all_nullable(fn.schema))
        return packed.mapInArrow(_rows(task), _struct(fn.schema))

    def collect(self, frame: Frame) -> pa.Table:
        """See :meth:`lakedex.engine.Engine.collect`."""
        if not isinstance(frame, SparkFrame):
            return _on_driver(frame).table()
        with unwrapping_errors():
            return _collect(frame.df, frame.schema)

    def row_bytes(self, frame: Frame) -> float:
        """See :meth:`lakedex.engine.Engine.row_bytes`; of the first rows, if executors have them."""
        if isinstance(frame, SparkFrame):
            frame = ArrowFrame.of(self.collect(SparkFrame(frame.df.limit(_SAMPLED_ROWS), frame.schema)))
        return _on_driver(frame).row_bytes

    def run(self, fn: Callable[[T], R], items: Sequence[T], label: str = "") -> list[R]:
        """See :meth:`lakedex.engine.Engine.run`. One item runs here; more are Spark tasks, up to four a core.

        An error of lakedex is a task's *answer*, since no retry would change it; any other failure, storage's too, is
        Spark's to retry.
        """
        if len(items) <= 1:
            return run_threads(fn, items, 1)
        payloads = [_pickle(item) for item in items]
        call = _Call(_pickle(fn))
        # A label that the user has set says more.
        with unwrapping_errors(), set_job_description(self.spark, label, keep=True):
            answers = self._answers(call, payloads)
        results: list[R] = []
        for answer in answers:
            error, value = pickle.loads(answer)
            if error is not None:
                raise error
            results.append(value)
        return results

    def _answers(self, call: _Call, payloads: list[bytes]) -> list[Any]:
        tasks = min(len(payloads), self.parallelism * _TASKS_A_CORE)
        if not self._connect:
            return self.spark.sparkContext.parallelize(payloads, tasks).map(call).collect()
        ids = self.spark.range(0, len(payloads), 1, tasks)
        frame = SparkFrame(ids.mapInArrow(_rows(_CallRows(call, payloads)), _PAYLOAD), _PAYLOAD_ARROW)
        found: list[Any] = self.collect(frame).column(0).to_pylist()
        return found


# ----------------------------------------------------------------------------------------------------- in tasks


def _task_id() -> TaskId:
    context = TaskContext.get()
    if context is None:
        return TaskId()
    return TaskId(context.partitionId(), context.stageId(), context.attemptNumber())


@dataclass(frozen=True, slots=True)
class _Task:
    """The function of a ``mapInArrow``: a batch map between the types that it and Spark expect."""

    fn: BatchMap
    found: pa.Schema
    out: pa.Schema
    seal: Seal = field(default_factory=Seal)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        in_task.set(_task_id())
        try:
            for batch in self.fn(conform(batch, self.found) for batch in batches):
                yield conform(batch, self.out)
        except LakedexError as error:
            if is_final(error):
                raise self.seal.wrap(error) from error
            raise
        finally:
            in_task.set(None)


@dataclass(frozen=True, slots=True)
class _Unpack:
    """A batch map over the batches in a column of Arrow streams."""

    fn: BatchMap

    @property
    def schema(self) -> pa.Schema:
        return self.fn.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        payloads = (payload for batch in batches for payload in batch.column(0))
        return self.fn(batch for payload in payloads for batch in pa.ipc.open_stream(payload.as_buffer()))


@dataclass(frozen=True, slots=True)
class _Same:
    """Batches as they are."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches


@dataclass(frozen=True, slots=True)
class _MapOne:
    """A batch map over one packed partition."""

    fn: BatchMap
    found: pa.Schema

    def __call__(self, payload: bytes) -> bytes:
        out = self.fn.schema
        batches = _unpack(payload).to_batches(max_chunksize=ROWS_PER_PARTITION)
        full = (conform(batch, self.found) for batch in batches if batch.num_rows)
        return _pack(pa.Table.from_batches([conform(batch, out) for batch in self.fn(full)], schema=out))


@dataclass(frozen=True, slots=True)
class _Call:
    """A pickled function of a pickled item, and its pickled answer: an error or a value."""

    fn: bytes
    seal: Seal = field(default_factory=Seal)

    def __call__(self, payload: bytes) -> bytes:
        in_task.set(_task_id())
        try:
            return _pickle((None, pickle.loads(self.fn)(pickle.loads(payload))))
        except StorageError as error:
            raise self.seal.wrap(error) from error  # It may pass: the task fails, and Spark tries again.
        except LakedexError as error:
            if not is_final(error):
                raise
            return _pickle((error, None))
        finally:
            in_task.set(None)


@dataclass(frozen=True, slots=True)
class _CallRows:
    """:class:`_Call` for the items whose numbers come as rows."""

    call: _Call
    payloads: list[bytes]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            answers = [self.call(self.payloads[number]) for number in numbers]
            yield pa.RecordBatch.from_arrays([pa.array(answers, pa.binary())], schema=_PAYLOAD_ARROW)


# ------------------------------------------------------------------------------------------------------ helpers


def _rows(task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Any:
    """``task`` for ``mapInArrow``, whose types say Iterable where workers pass an Iterator."""
    return task


def _pickle(value: Any) -> bytes:
    """Also what plain pickle refuses: functions of a notebook, lambdas."""
    return bytes(_dumps(value))  # type: ignore[no-untyped-call]


def _is_dataframe(data: Any) -> bool:
    return isinstance(data, DataFrame) or (is_connect(data) and type(data).__name__ == "DataFrame")


def _schema(df: DataFrame) -> StructType:
    try:
        return df.schema
    except ValueError as error:
        # PySpark has no class for CalendarIntervalType and fails before any column can be named.
        for field in df._jdf.schema().fields():
            if "interval" in field.dataType().catalogString():
                name = str(field.name())
                message = f"column '{name}' is an interval, which a table cannot hold; cast it"
                raise InvalidInputError(message, column=name) from error
        raise


def _on_driver(frame: Frame) -> ArrowFrame:
    """``frame``, whose rows the driver has."""
    if not isinstance(frame, ArrowFrame):
        raise InvalidInputError(f"{type(frame).__name__} was not made by the Spark engine")
    return frame


def _struct(schema: pa.Schema) -> StructType:
    return cast("StructType", nullable(arrow_to_spark(schema)))


def _all_nullable(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema that Spark expects of a batch for :func:`_struct`."""
    return spark_to_arrow(_struct(schema))


def _pack(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpack(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


def _collect(df: DataFrame, schema: pa.Schema) -> pa.Table:
    # PySpark 4 has toArrow; a DataFrame of 3.5 takes any other name for a column's.
    to_arrow = getattr(type(df), "toArrow", None)
    if to_arrow is not None:
        table: pa.Table = to_arrow(nullable_frame(df))
        return conform(table, schema)
    batches = cast("Any", df)._collect_as_arrow()
    if not batches:
        return schema.empty_table()
    return conform(pa.Table.from_batches(batches), schema)
