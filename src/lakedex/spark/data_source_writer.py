"""``df.write.format("lakedex").mode(…).save(path)``: options by Hudi's names, rows staged by tasks, one commit.

``mode("append")`` upserts, ``mode("overwrite")`` replaces all rows, or with ``partitionOverwriteMode=dynamic`` (an
option, or Spark's ``spark.sql.sources.partitionOverwriteMode``) the partitions that the rows go to; both make the table
where there is none. Spark itself refuses the other two modes for every data source that is no file format.

Memory: :mod:`lakedex.spark.staged_write`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakedex.errors import LakedexError, OptionError
from lakedex.io.locations import open_storage
from lakedex.spark.option_names import matched, switch
from lakedex.spark.schema import spark_to_arrow
from lakedex.spark.session import short_errors
from lakedex.spark.staged_rows import StagedFile, StagingArea
from lakedex.spark.staged_write import OPERATIONS, SETTINGS, NewTable, TableWrite

__all__ = ["StagedWriter", "WriteRequest", "checked_area", "parse_write_options", "remove_area"]


_log = logging.getLogger(__name__)


_OVERWRITE_MODE = "partitionOverwriteMode"


_SESSION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


_FIELDS = {
    "path": "path",
    "location": "location",
    "hoodie.datasource.write.operation": "operation",
    **SETTINGS,
    "mergeSchema": "merge_schema",
    _OVERWRITE_MODE: "overwrite_mode",
    "hoodie.datasource.overwrite.mode": "overwrite_mode",
}
"""Name of an option → what it sets. Those without ``hoodie.`` are Hudi's SQL properties, Delta's and Spark's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """Parsed options of a write.

    Attributes:
        write: what the commit does.
        dynamic: whether an overwrite replaces partitions; None asks Spark's setting.
    """

    write: TableWrite
    dynamic: bool | None = None


def parse_write_options(options: Mapping[str, str], *, overwrite: bool = False) -> WriteRequest:
    """Check and convert the options of a write; their names match in any case.

    Args:
        options: as Spark gives them.
        overwrite: the write's mode is ``overwrite`` instead of ``append``.

    Raises:
        OptionError: an unknown option, a bad value, or two that contradict each other.
    """
    found, rest = matched(options, _FIELDS, others="hoodie.")
    texts = {field: value for field, (_, value) in found.items()}
    # Spark's session catalog names the path of a table so.
    texts.setdefault("path", texts.get("location", ""))
    if not texts["path"]:
        raise OptionError("format('lakedex') needs the table's path: .save(path)", option="path")
    operation = _operation(texts.get("operation"))
    replaces = operation in ("insert_overwrite", "insert_overwrite_table")
    if overwrite and operation == "delete":
        raise OptionError("mode('overwrite') does not go with the operation delete; use mode('append')", option="mode")
    mode = _choice(found, "overwrite_mode", {"static": "static", "dynamic": "dynamic"})
    merge = found.get("merge_schema")
    write = TableWrite(
        files=open_storage(texts["path"]),
        operation="insert_overwrite_table" if overwrite and not replaces else operation,
        new=NewTable.of(found),
        options=rest,
        merge_schema=None if merge is None else switch(*merge),
    )
    # An operation that the user names is done as it is named, whatever Spark's setting says.
    return WriteRequest(write=write, dynamic=None if mode is None and not replaces else mode == "dynamic")


def _operation(text: str | None) -> str | None:
    if text is None or text.strip().lower() in OPERATIONS:
        return None if text is None else text.strip().lower()
    advice = f"give {', '.join(OPERATIONS)}"
    if text.strip().lower() == "delete_partition":
        advice = "call Table.open(path).delete_partition([…])"
    raise OptionError(
        f"option hoodie.datasource.write.operation={text!r} is not supported by format('lakedex'); {advice}",
        option="hoodie.datasource.write.operation",
    )


def _choice(found: Mapping[str, tuple[str, str]], field: str, values: Mapping[str, str]) -> str | None:
    if field not in found:
        return None
    name, text = found[field]
    chosen = values.get(text.strip().lower())
    if chosen is None:
        raise OptionError(f"option {name}={text!r}: give one of {', '.join(values)}", option=name)
    return chosen


@dataclass
class _Staged(WriterCommitMessage):
    """A task's file, and whether the session overwrites dynamically: tasks see the session's settings."""

    file: StagedFile
    dynamic: bool


def checked_area(write: TableWrite, schema: pa.Schema) -> StagingArea:
    """Check a write before its tasks run, log its notes, and give it a staging area."""
    for note in write.require_writable(schema):
        _log.warning("%s: %s", write.files, note)
    area = StagingArea.of(write.files)
    area.remove_abandoned()
    return area


def remove_area(area: StagingArea) -> None:
    """Remove a staging area whose write is decided: that it stays is no reason to call the write failed."""
    try:
        area.remove()
    except LakedexError as error:
        _log.warning("%s stays until a later write removes it: %s", area.folder, error)


class StagedWriter(DataSourceArrowWriter):
    """Stages rows in tasks and commits them in one write; Spark pickles it to tasks and to the commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        request = parse_write_options(options, overwrite=overwrite)
        self._write = request.write
        self._dynamic = request.dynamic
        self._schema = spark_to_arrow(schema)
        self._area = checked_area(self._write, self._schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: stage its rows."""
        with short_errors():
            context = TaskContext.get()
            mode = context.getLocalProperty(_SESSION_OVERWRITE_MODE) if context is not None else None
            return _Staged(self._area.write(iterator), (mode or "static").lower() == "dynamic")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Once all tasks are done: write the table."""
        with short_errors():
            done = [message for message in messages if isinstance(message, _Staged)]
            rows = self._area.read([message.file for message in done], self._schema)
            dynamic = any(message.dynamic for message in done) if self._dynamic is None else self._dynamic
            self._write.commit(rows, dynamic=dynamic)
            remove_area(self._area)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After a failure of a task, or of the commit: leave nothing."""
        with short_errors():
            self._area.remove()
