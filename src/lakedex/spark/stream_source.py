"""``spark.readStream.format("lakedex").load(path)``: a table as a stream, on classic sessions and Spark Connect.

The data source that PySpark 4.0 and later register (``pyspark_lakedex``): that of :mod:`lakedex.spark.data_source`, and
streams. :mod:`lakedex.scan.stream` says which rows a batch has. Spark keeps the positions in its checkpoint, the tasks
read the files. PySpark 4.2 and later ask with a start and a limit; before, a batch takes all that is there.

Memory: a task holds one batch of rows; planning holds the file list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakedex.arrow_types import conform
from lakedex.errors import InvalidInputError, OptionError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.expr.terms import BoundPredicate
from lakedex.io.fsspec import open_storage
from lakedex.scan.plan import read_columns
from lakedex.scan.slice_reader import SliceReader
from lakedex.scan.stream import (
    Limits,
    Position,
    StreamFiles,
    admitted,
    files_between,
    first_position,
    iter_stream_rows,
    newest_position,
)
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.data_source import QUERY_TYPE, LakedexDataSource, asked_columns, packed, parse_read_options
from lakedex.spark.schema import spark_to_arrow
from lakedex.spark.session import short_errors
from lakedex.spark.stream_options import HUDI_BEGIN, STREAM_OPTIONS, parse_stream_options
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
            return (_StreamReader if spark_limits is None else _LimitedReader)(self.options, schema)

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
        self._start, self._limits = parse_stream_options(own)
        reading = parse_read_options(rest)
        if reading.as_of is not None:
            raise OptionError("a stream takes startingInstant instead of asOf", option="asOf")
        newest = Snapshot.load(open_storage(reading.path))
        whole = read_columns(newest.schema)
        self._target = spark_to_arrow(schema)
        names = asked_columns(newest, self._target).names
        self._reads_all = set(names) == set(whole.names)
        self._reader = SliceReader(
            files=newest.files,
            table_columns=whole,
            names=tuple(names),
            predicate=BoundPredicate.of(reading.condition(whole)),
            use_indexes=reading.skipping,
        )
        self._newest: Snapshot | None = newest
        self._until: Position | None = None
        self._idle: tuple[Snapshot, Position] | None = None
        self._position: Position | None = None
        self._check_limits()

    def _check_limits(self) -> None:
        if self._limits != Limits():
            raise UnsupportedFeatureError(
                "maxCommitsPerTrigger and maxFilesPerTrigger need PySpark 4.2 or later with format('lakedex'); use"
                " spark.readStream.table('<catalog>.<table>')",
                feature="limits of a stream on this PySpark",
            )

    def __getstate__(self) -> dict[str, Any]:
        # Only read() is called where this is sent to.
        return {"_reader": self._reader, "_target": self._target}

    def _refreshed(self) -> Snapshot:
        """The table now, with the columns that the query began with.

        Raises:
            SchemaMismatchError: a column was added or changed, which a restart of the query takes up.
        """
        if self._newest is None:
            raise InvalidInputError("a reader that was sent to an executor cannot plan")
        self._newest = newest = self._newest.refreshed()
        whole, known = read_columns(newest.schema), self._reader.table_columns
        for column in whole if whole != known else ():
            if (self._reads_all or column.name in self._reader.names) and column not in known:
                raise SchemaMismatchError(
                    f"table {newest.config.name}: column {column.name!r} was added or changed after the query began;"
                    " start the query again, with the same checkpoint, to read it",
                    column=column.name,
                )
        return newest

    def initialOffset(self) -> dict[str, Any]:
        """Where a query begins that has no checkpoint yet."""
        with short_errors():
            self._position = first_position(self._refreshed(), self._start)
            return self._position.to_json()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Where the next batch ends. PySpark before 4.2 does not say where it begins."""
        with short_errors():
            newest = self._refreshed()
            start = newest_position(newest) if self._position is None else self._position
            self._position = self._admitted(newest, start, Limits())
            return self._position.to_json()

    def _admitted(self, newest: Snapshot, start: Position, limits: Limits) -> Position:
        if self._idle is not None and self._idle[0] is newest and self._idle[1] == start:
            return start
        end = admitted(newest, start, self._start, limits, self._until)
        self._idle = (newest, start) if end == start else None
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The files of a batch, small ones together."""
        with short_errors():
            first, last = Position.from_json(start), Position.from_json(end)
            # PySpark before 4.2 says by this where a query goes on that has a checkpoint.
            self._position = last
            return [
                InputPartition(StreamFiles(files.instant, slices))
                for files in files_between(self._refreshed(), first, last)
                for slices in packed(files.slices)
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Rows of some files as Arrow batches of exactly the schema that Spark expects."""
        with short_errors():
            for batch in iter_stream_rows(self._reader, partition.value):
                yield conform(batch.rename_columns(self._target.names), self._target)


_AvailableNow: Any = object if spark_limits is None else spark_limits.SupportsTriggerAvailableNow


_MANY = 2**31 - 1


class _LimitedReader(_StreamReader, _AvailableNow):  # type: ignore[misc]
    """Is told where a batch begins, and whether it is limited: PySpark 4.2 and later."""

    def _check_limits(self) -> None:
        """Any will do."""

    def getDefaultReadLimit(self) -> Any:
        """That there is a limit; Spark has no class for one of commits."""
        if self._limits == Limits():
            return spark_limits.ReadAllAvailable()
        return spark_limits.ReadMaxFiles(self._limits.files or _MANY)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is committed from now on waits for the next run."""
        with short_errors():
            self._until = newest_position(self._refreshed())

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]
        """Where the next batch ends."""
        with short_errors():
            limits = Limits() if isinstance(limit, spark_limits.ReadAllAvailable) else self._limits
            return self._admitted(self._refreshed(), Position.from_json(start), limits).to_json()
