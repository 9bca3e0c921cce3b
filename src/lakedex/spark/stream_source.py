"""``spark.readStream.format("lakedex").load(path)``: a table as a stream, on classic sessions and Spark Connect.

The data source that PySpark 4.0 and later register (``pyspark_lakedex``): that of :mod:`lakedex.spark.data_source`, and
streams. :mod:`lakedex.scan.stream` says which rows a batch has. Spark keeps the positions in its checkpoint, the tasks
read the files. PySpark 4.2 and later ask with a start and a limit; before, a batch takes all that is there.

Memory: a task holds one batch of rows; planning holds the file list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakedex.arrow_types import conform
from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.io.locations import open_storage
from lakedex.scan.slice_reader import packed
from lakedex.scan.stream import Limits, Position, TableStream, iter_stream_rows
from lakedex.snapshot.schema import read_columns
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.data_source import (
    QUERY_TYPE,
    LakedexDataSource,
    asked_columns,
    parse_read_options,
    remembered,
)
from lakedex.spark.schema import spark_to_arrow
from lakedex.spark.session import short_errors
from lakedex.spark.stream_options import HUDI_BEGIN, STREAM_OPTIONS, file_limit, parse_stream_options
from lakedex.spark.stream_sink import StreamWriter

spark_limits: Any
try:
    from pyspark.sql.streaming import datasource as spark_limits
except ImportError:
    # Before PySpark 4.2 Spark tells a data source neither start nor limit of a batch.
    spark_limits = None

__all__ = ["LakedexStreams"]


_OWN = frozenset(name.lower() for name in STREAM_OPTIONS)


class LakedexStreams(LakedexDataSource):
    """A table, read at one commit or as a stream, and written by batches or by a stream."""

    def schema(self) -> StructType:
        """As of a batch: whether a stream is meant is not known yet."""
        kept = LakedexDataSource(_split(self.options)[1])
        found = kept.schema()
        self.pinned = kept.pinned
        return found

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a query."""
        with short_errors():
            return (_StreamReader if spark_limits is None else _LimitedReader)(remembered(self.options, schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """The writer of a batch; see :mod:`lakedex.spark.stream_sink`."""
        with short_errors():
            return StreamWriter(self.options, schema, overwrite=overwrite)


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of streams, and the others. Hudi's begin is one of streams unless an incremental query is asked for."""
    incremental = any(name.lower() == QUERY_TYPE and v.lower() == "incremental" for name, v in options.items())
    own = _OWN - {HUDI_BEGIN} if incremental else _OWN
    parts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for name, value in options.items():
        parts[name.lower() not in own][name] = value
    return parts


class _StreamReader(DataSourceStreamReader):
    """Plans in a worker beside the driver, one for each query; only what :meth:`read` needs goes to the executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        own, rest = _split({name: v for name, v in options.items() if name.lower() != QUERY_TYPE})
        start, limits = parse_stream_options(own)
        reading = parse_read_options(rest)
        if reading.as_of is not None:
            raise OptionError("a stream takes startingInstant instead of asOf", option="asOf")
        newest = Snapshot.load(open_storage(reading.path, reading.storage_options))
        self._target = spark_to_arrow(schema)
        self._stream: TableStream | None = TableStream(
            newest,
            asked_columns(newest, self._target).names,
            start,
            limits,
            predicate=reading.condition(read_columns(newest.schema)),
            use_indexes=reading.skipping,
        )
        self._reader = self._stream.reader
        self._check_limits(limits)

    def _check_limits(self, limits: Limits) -> None:
        if limits != Limits():
            raise UnsupportedFeatureError(
                "maxCommitsPerTrigger and maxFilesPerTrigger need PySpark 4.2 or later with format('lakedex'); use"
                " spark.readStream.table('<catalog>.<table>')",
                feature="limits of a stream on this PySpark",
            )

    def __getstate__(self) -> dict[str, Any]:
        # Only read() is called where this is sent to.
        return {"_reader": self._reader, "_target": self._target}

    @property
    def _planning(self) -> TableStream:
        if self._stream is None:
            raise InvalidInputError("a reader that was sent to an executor cannot plan")
        return self._stream

    def initialOffset(self) -> dict[str, Any]:
        """Where a query begins that has no checkpoint yet."""
        with short_errors():
            return self._planning.first().to_json()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Where the next batch ends. PySpark before 4.2 does not say where it begins, so it takes all that is there."""
        with short_errors():
            return self._planning.last().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The files of a batch, small ones together."""
        with short_errors():
            return [
                InputPartition(replace(files, slices=slices))
                for files in self._planning.files(Position.from_json(start), Position.from_json(end))
                for slices in packed(files.slices)
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Rows of some files as Arrow batches of exactly the schema that Spark expects."""
        with short_errors():
            for batch in iter_stream_rows(self._reader, partition.value):
                yield conform(batch.rename_columns(self._target.names), self._target)


_AvailableNow: Any = object if spark_limits is None else spark_limits.SupportsTriggerAvailableNow


class _LimitedReader(_StreamReader, _AvailableNow):  # type: ignore[misc]
    """Knows where a batch begins, and whether it is limited: PySpark 4.2 and later."""

    def _check_limits(self, limits: Limits) -> None:
        """Any will do."""

    def getDefaultReadLimit(self) -> Any:
        """The limit of a batch."""
        files = file_limit(self._planning.limits)
        return spark_limits.ReadAllAvailable() if files is None else spark_limits.ReadMaxFiles(files)

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave later commits to the next run."""
        with short_errors():
            self._planning.stop_at_last()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]
        """Where the next batch ends."""
        with short_errors():
            limited = not isinstance(limit, spark_limits.ReadAllAvailable)
            return self._planning.admitted(Position.from_json(start), limited=limited).to_json()
