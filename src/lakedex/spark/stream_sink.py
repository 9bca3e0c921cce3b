"""``df.writeStream.format("lakedex").start(path)``: each batch of a stream is one commit of the table, once.

Tasks stage their rows, the commit writes the table (:mod:`lakedex.spark.staged_write`) with the number of the batch, as
``txn=`` does: a batch that Spark repeats after a crash is known by the table itself, also one of plain inserts. The
application of that number is the query's id, which its checkpoint keeps over restarts.

Memory: as of a write in batch mode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from lakedex.errors import InvalidInputError, LakedexError, OptionError
from lakedex.io.locations import open_storage
from lakedex.spark.data_source_writer import checked_area, parse_write_options, remove_area
from lakedex.spark.option_names import matched
from lakedex.spark.schema import spark_to_arrow
from lakedex.spark.session import short_errors
from lakedex.spark.staged_rows import StagedFile, StagingArea
from lakedex.spark.stream_options import application_of

__all__ = ["StreamWriter"]


_CHECKPOINT = "checkpointLocation"


_APPLICATION = "txnAppId"


_OWN = {_CHECKPOINT: "checkpoint", _APPLICATION: "application", "queryName": "query"}
"""Options that are not of a write in batch mode; the last is Spark's."""


def _stored_application(checkpoint: str) -> str:
    """The application of the query that a checkpoint is of.

    Raises:
        InvalidInputError: its id cannot be read.
    """
    try:
        files = open_storage(checkpoint)
        return application_of(str(json.loads(files.storage.read(files.path("metadata")))["id"]))
    except (LakedexError, OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"the query's id cannot be read from {checkpoint}/metadata ({error}); name the query by"
            f" .option({_APPLICATION!r}, …): a name that no other query into the table has, and that stays"
        ) from error


@dataclass
class _Staged(datasource.WriterCommitMessage):
    """A task's file, and where it lies: the writer that commits is not the one that the tasks had."""

    area: StagingArea
    file: StagedFile


_ArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceArrowWriter)
"""PySpark 4.0 has no class for streams, and gives record batches to the other one in streams, too."""


class StreamWriter(_ArrowWriter):  # type: ignore[misc]
    """Stages rows in tasks and commits each batch in one write. Spark makes one to plan a batch, and one to commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        names = {name.lower() for name in _OWN}
        found, _ = matched({n: v for n, v in options.items() if n.lower() in names}, _OWN)
        self._checkpoint = found.get("checkpoint", ("", ""))[1]
        self._application = found.get("application", ("", ""))[1]
        if not self._checkpoint and not self._application:
            raise OptionError(
                f"a stream into format('lakedex') needs .option({_CHECKPOINT!r}, …): by it the table knows a batch that"
                " comes again",
                option=_CHECKPOINT,
            )
        rest = {name: value for name, value in options.items() if name.lower() not in names}
        self._write = parse_write_options(rest, overwrite=overwrite).write
        self._replaces = overwrite
        self._schema = spark_to_arrow(schema)
        self._area = checked_area(self._write, self._schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> datasource.WriterCommitMessage:
        """In a task: stage its rows."""
        with short_errors():
            return _Staged(self._area, self._area.write(iterator))

    def commit(self, messages: Sequence[datasource.WriterCommitMessage | None], batchId: int) -> None:
        """Once all tasks are done: write the table, unless it has the batch already."""
        with short_errors():
            done = [message for message in messages if isinstance(message, _Staged)]
            if any(message.file.rows for message in done) or self._replaces:
                application = self._application or _stored_application(self._checkpoint)
                area = done[0].area if done else self._area
                rows = area.read([message.file for message in done], self._schema)
                self._write.commit(rows, txn=(application, batchId))
            self._remove(done)

    def abort(self, messages: Sequence[datasource.WriterCommitMessage | None], batchId: int) -> None:
        """After a failure of a task, or of the commit: leave nothing."""
        with short_errors():
            self._remove([message for message in messages if isinstance(message, _Staged)])

    def _remove(self, done: Sequence[_Staged]) -> None:
        for area in {message.area.folder: message.area for message in done}.values():
            remove_area(area)
