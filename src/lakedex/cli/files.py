"""Files of others as Arrow streams, streams as files, and logs of conditions."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json

from lakedex.cli.output import json_lines
from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.lossless_cast import to_decimals
from lakedex.parquet.plain_files import ParquetStreamFile
from lakedex.scan.scan import Scan

__all__ = ["Input", "conditions", "export"]


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
    except pa.ArrowException as error:
        raise InvalidInputError(f"{path}: cannot hold the rows: {error}; write .parquet or .arrow") from error
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


class _Part(Protocol):
    """One file: a dataset of Arrow's, or rows in memory."""

    schema: pa.Schema

    def count_rows(self) -> int:
        """Number of rows."""

    def to_batches(self) -> Iterable[pa.RecordBatch]:
        """The rows."""


class Input:
    """Files that are read as one stream of rows: all their columns, null where a file lacks one.

    Memory: a few batches; JSON files as a whole.

    Args:
        files: paths or URLs.
        known: types of columns that the table has; text files have none of their own.
        nulls: texts that are null in CSV if they have no quotes, beside the empty one.

    Raises:
        InvalidInputError: a file that is not there, or of an unknown kind.
        SchemaMismatchError: files whose types do not go together.
    """

    def __init__(self, files: Sequence[str], known: pa.Schema | None = None, nulls: Sequence[str] = ()) -> None:
        parts = [_opened(file, known, nulls) for file in files]
        self.files = tuple(files)
        try:
            self.schema = pa.unify_schemas([part.schema for part in parts], promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatchError(f"{', '.join(files)} have no common schema: {error}") from error
        self._parts: list[_Part] = [
            part.replace_schema(self.schema) if isinstance(part, pyarrow.dataset.Dataset) else part for part in parts
        ]

    def count_rows(self) -> int:
        """Number of rows; Parquet and Arrow files know it, others are read."""
        rows = 0
        for file, part in zip(self.files, self._parts, strict=True):
            try:
                rows += int(part.count_rows())
            except pa.ArrowException as error:
                raise InvalidInputError(f"{file}: {str(error).splitlines()[0]}") from error
        return rows

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(_size(file) for file in self.files)

    def reader(self) -> pa.RecordBatchReader:
        """All rows, in the order of the files."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        empty = self.schema.empty_table()
        for file, part in zip(self.files, self._parts, strict=True):
            try:
                for batch in part.to_batches():
                    if batch.schema == self.schema:
                        yield batch
                    else:
                        rows = pa.Table.from_batches([batch])
                        yield from pa.concat_tables([empty, rows], promote_options="permissive").to_batches()
            except pa.ArrowException as error:
                raise InvalidInputError(f"{file}: {str(error).splitlines()[0]}") from error


_CREATING = re.compile(
    r"^Error creating dataset\. Could not read schema from '.*?'\. Is this a '\w+' file\?: "
    r"(Could not open CSV input source '.*?': )?(Invalid: )?"
)
"""Arrow's words before the reason why a file cannot be read."""


def _size(file: str) -> int:
    system, path = fsspec.core.url_to_fs(file)
    return int(system.size(path) or 0)


def _opened(file: str, known: pa.Schema | None, nulls: Sequence[str]) -> Any:
    suffix = Path(file).suffix.lower()
    if suffix not in INPUTS:
        raise InvalidInputError(f"{file}: unknown kind of file; load takes {', '.join(INPUTS)}")
    system, path = fsspec.core.url_to_fs(file)
    if not system.isfile(path):
        what = "is a folder; name its files" if system.isdir(path) else "there is no such file"
        raise InvalidInputError(f"{file}: {what}")
    kind = INPUTS[suffix]
    try:
        if kind == "json":
            return _JsonRows(file, lambda: system.open(path, "rb"), known)
        if kind == "csv":
            return _csv(path, system, known, nulls)
        return pyarrow.dataset.dataset(path, filesystem=system, format=kind)
    except (pa.ArrowException, OSError) as error:
        reason = _CREATING.sub("", str(error).splitlines()[0])
        raise InvalidInputError(f"{file}: cannot be read as {kind}: {reason}") from error


def _csv(path: str, system: fsspec.AbstractFileSystem, known: pa.Schema | None, nulls: Sequence[str]) -> Any:
    """A file of CSV, in the types of the table: 007 stays text where the column is text. A quoted empty text is one.

    Without a table they are guessed, and a column without values is text.
    """

    def typed(columns: Iterable[pa.Field]) -> Any:
        options = pyarrow.csv.ConvertOptions(
            column_types={c.name: pa.string() if pa.types.is_decimal(c.type) else c.type for c in columns},
            null_values=["", *nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        form = pyarrow.dataset.CsvFileFormat(convert_options=options)
        return pyarrow.dataset.dataset(path, filesystem=system, format=form)

    if known is not None:
        texts = typed(known)
        decimals = [field for field in known if pa.types.is_decimal(field.type) and field.name in texts.schema.names]
        return _DecimalRows(texts, decimals) if decimals else texts
    found = typed(())
    if len(found.schema) == 1 and (other := next((c for c in ";\t|" if c in found.schema.names[0]), None)):
        raise InvalidInputError(f"{path}: the columns seem to be separated by {other!r}; load takes commas")
    if no_text := next((column.name for column in found.schema if pa.types.is_binary(column.type)), None):
        raise InvalidInputError(f"{path}: column {no_text!r} is no text in UTF-8; convert the file")
    empty = [column.with_type(pa.string()) for column in found.schema if pa.types.is_null(column.type)]
    return typed(empty) if empty else found


class _DecimalRows:
    """Rows whose decimals are texts, converted batch by batch."""

    def __init__(self, texts: Any, decimals: Sequence[pa.Field]) -> None:
        self._texts, self._decimals = texts, decimals
        self.schema = texts.schema
        for field in decimals:
            self.schema = self.schema.set(self.schema.get_field_index(field.name), field)

    def count_rows(self) -> int:
        """Number of rows."""
        return int(self._texts.count_rows())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        for batch in self._texts.to_batches():
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns |= {field.name: to_decimals(columns[field.name], field.type) for field in self._decimals}
            yield pa.record_batch(list(columns.values()), schema=self.schema)


class _JsonRows:
    """A file of JSON lines, in memory. Times and decimals are read as text and cast to the table's types."""

    def __init__(self, file: str, open_file: Callable[[], Any], known: pa.Schema | None) -> None:
        with open_file() as source:
            if source.read(100).lstrip()[:1] == b"[":
                raise InvalidInputError(f"{file}: is a JSON array; load takes an object a line (jq -c '.[]')")
            source.seek(0)
            self._rows = pyarrow.json.read_json(source)
        if known is not None:
            fields = [field for field in known if field.name in self._rows.column_names]
            _refuse_bytes(file, fields)
            read_as = pa.schema([field.with_type(_json_type(field.type)) for field in fields])
            with open_file() as source:
                options = pyarrow.json.ParseOptions(explicit_schema=read_as)
                self._rows = pyarrow.json.read_json(source, parse_options=options)
            for field in fields:
                at = self._rows.schema.get_field_index(field.name)
                column, is_decimal = self._rows.column(at), pa.types.is_decimal(field.type)
                typed = to_decimals(column, field.type) if is_decimal else column.cast(field.type)
                self._rows = self._rows.set_column(at, field, typed)
        self.schema = self._rows.schema

    def count_rows(self) -> int:
        """Number of rows."""
        return int(self._rows.num_rows)

    def to_batches(self) -> list[pa.RecordBatch]:
        """The rows."""
        batches: list[pa.RecordBatch] = self._rows.to_batches()
        return batches


def _json_type(kind: pa.DataType) -> pa.DataType:
    """The type to read a column in: Arrow takes text that looks like a date for a time."""
    is_text = pa.types.is_temporal(kind) or pa.types.is_decimal(kind)
    return pa.string() if is_text else kind


def _refuse_bytes(file: str, fields: Sequence[pa.Field]) -> None:
    for field in fields:
        if pa.types.is_binary(field.type) or pa.types.is_fixed_size_binary(field.type):
            raise InvalidInputError(f"{file}: column {field.name!r} is binary, and JSON has no bytes; load Parquet")
