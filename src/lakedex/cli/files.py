"""Files of others as Arrow streams, streams as files, and logs of conditions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

from lakedex.cli.output import json_lines
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.parquet.stream_file import ParquetStreamFile
from lakedex.scan.scan import Scan

__all__ = ["Input", "conditions", "export", "open_input"]


INPUTS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".orc": "orc",
}


def conditions(path: Path) -> list[str]:
    """The conditions of a log, one a line; lines that begin with ``--`` are comments."""
    lines = (line.strip().rstrip(";").strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("--")]


# ----------------------------------------------------------------------------------------------------------- output


def export(scan: Scan, path: str) -> dict[str, Any]:
    """Write the rows of a scan to a file, which is there as a whole or not at all.

    Memory: a few batches.

    Raises:
        InvalidInputError: an unknown kind of file.
    """
    open_sink = OUTPUTS.get(Path(path).suffix.lower())
    if open_sink is None:
        raise InvalidInputError(f"{path}: give a file that ends with {', '.join(OUTPUTS)}")
    folder, name = os.path.split(os.path.abspath(path))
    partial = os.path.join(folder, f".{name}.{uuid4().hex[:8]}.partial")
    rows = 0
    try:
        with scan.to_batches() as batches, closing(open_sink(partial, batches.schema)) as sink:
            for batch in batches:
                sink.write_batch(batch)
                rows += batch.num_rows
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return {"file": path, "rows": rows, "size": os.path.getsize(path)}


class _JsonFile:
    """A JSON object a line."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = open(path, "w", encoding="ascii")  # noqa: SIM115 - closed by close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        self._file.writelines(f"{line}\n" for line in json_lines(pa.Table.from_batches([batch], self._schema)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


OUTPUTS: dict[str, Callable[[str, pa.Schema], Any]] = {
    ".parquet": ParquetStreamFile,
    ".csv": lambda path, schema: pyarrow.csv.CSVWriter(path, schema),
    ".json": _JsonFile,
    ".jsonl": _JsonFile,
    ".arrow": lambda path, schema: pa.ipc.new_file(path, schema),
}


# ------------------------------------------------------------------------------------------------------------ input


class Input:
    """Files that are read as one stream of rows: all their columns, null where a file lacks one.

    Args:
        files: paths or URLs.
        known: types of columns that the table has; text files have none of their own.

    Raises:
        InvalidInputError: a file that is not there, or of an unknown kind.
        SchemaMismatchError: files whose types do not go together.
    """

    def __init__(self, files: Sequence[str], known: pa.Schema | None = None) -> None:
        self._parts = [_opened(file, known) for file in files]
        self.files = tuple(files)
        try:
            self.schema = pa.unify_schemas([part.schema for part in self._parts], promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatchError(f"the files have no common schema: {error}") from error
        self._parts = [part.replace_schema(self.schema) for part in self._parts]

    def count_rows(self) -> int:
        """Number of rows; Parquet and Arrow files know it, others are read."""
        return sum(int(part.count_rows()) for part in self._parts)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(_size(file) for file in self.files)

    def reader(self) -> pa.RecordBatchReader:
        """All rows, in the order of the files."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            yield from part.to_batches()


def open_input(files: Sequence[str], known: pa.Schema | None = None) -> Input:
    """Open files to load; see :class:`Input`."""
    return Input(files, known)


def _size(file: str) -> int:
    system, path = fsspec.core.url_to_fs(file)
    return int(system.size(path) or 0)


def _opened(file: str, known: pa.Schema | None) -> pyarrow.dataset.Dataset:
    suffix = Path(file).suffix.lower()
    if suffix not in INPUTS:
        raise InvalidInputError(f"{file}: unknown kind of file; load takes {', '.join(INPUTS)}")
    system, path = fsspec.core.url_to_fs(file)
    if not system.isfile(path):
        what = "is a folder; name its files" if system.isdir(path) else "there is no such file"
        raise InvalidInputError(f"{file}: {what}")
    try:
        return pyarrow.dataset.dataset(path, filesystem=system, format=_format(INPUTS[suffix], known))
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{file}: cannot be read as {INPUTS[suffix]}: {str(error).splitlines()[0]}") from error


def _format(kind: str, known: pa.Schema | None) -> Any:
    """Text files take the types of the table's columns: ``007`` stays text where the column is text."""
    if kind == "csv" and known is not None:
        types = {field.name: field.type for field in known if not pa.types.is_nested(field.type)}
        return pyarrow.dataset.CsvFileFormat(convert_options=pyarrow.csv.ConvertOptions(column_types=types))
    return kind
