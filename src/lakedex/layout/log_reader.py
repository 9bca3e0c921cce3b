"""Read log files of a data table as Arrow tables, limited to the blocks that count.

A block counts if the instant in its header is committed and not after the instant of the read, unless a later command
block of the slice rolls that instant back. In Hudi: ``BaseHoodieLogRecordReader`` (1.1.1, its plain scan). Blocks
merged by a log compaction are read as well as its result, which repeats them.

Blocks and files of change data are skipped, as in every snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakedex.codec.avro_vectorized import Datums, datum_schema, decode_datums, split_avro_block
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import LogBlock, decode_command_block, decode_delete_block, read_block_headers
from lakedex.errors import CorruptFileError
from lakedex.io.storage import Storage, TableFiles
from lakedex.layout.file_slice import LogFile
from lakedex.parquet.base_file_reader import parquet_columns
from lakedex.types import RECORD_KEY

__all__ = ["DataRows", "DeletedKeys", "log_headers", "log_keys", "log_schemas", "read_log_files"]


SINGLE_READ_BYTES = 1 << 20
"""Log files up to this size are read in one request."""


BUFFER_BYTES = 64 << 20
"""Limit of small files buffered between reading their headers and their blocks."""


_HFILE_KEY_FIELD = "key"
"""Java empties a field of this name in the values of an HFile, since it is the key (``HoodieHFileDataBlock``)."""


_COUNTED = ("AVRO_DATA", "PARQUET_DATA", "HFILE_DATA", "DELETE")


@dataclass(frozen=True, slots=True)
class DataRows:
    """Rows of one data block in its own schema, limited to the requested columns.

    Attributes:
        path: the log file.
        rows: the rows.
        size: bytes of the block's content.
        is_partial: whether columns that they lack are those of the older row, instead of null.
        positions_in: instant of the base file in which the block says where its rows lie; empty if it does not.
    """

    path: str
    rows: pa.Table
    size: int = 0
    is_partial: bool = False
    positions_in: str = ""


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """Keys of one delete block, each with its ordering value: None, or a pair of a wrapper's name and its record.

    ``positions_in`` is as in :class:`DataRows`.
    """

    path: str
    keys: tuple[str, ...]
    ordering: tuple[Any, ...]
    positions_in: str = ""


class _OpenLog:
    """A log file with its headers; small files are buffered."""

    def __init__(self, storage: Storage, path: str, size: int, buffered: bool) -> None:
        self._storage = storage
        self._content = storage.read(path) if buffered else None
        self.path = path
        self._size = size if self._content is None else max(size, len(self._content))
        self.blocks = read_block_headers(self._fetch, self._size, path, skip_torn=True)

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        parts: Sequence[bytes | memoryview]
        if self._content is None:
            parts = self._storage.read_ranges(self.path, ranges)
        else:
            view = memoryview(self._content)
            parts = [view[start:end] for start, end in ranges]
        for (start, end), part in zip(ranges, parts, strict=True):
            if len(part) < end - start:
                # No torn block: those of a listed size lie within it.
                raise CorruptFileError(self.path, start + len(part), f"a file of {self._size} bytes", "its end")
        return parts

    def content(self, block: LogBlock) -> bytes | memoryview:
        return self._fetch([(block.content_offset, block.content_offset + block.content_length)])[0]


def read_log_files(
    files: TableFiles,
    log_files: Sequence[LogFile],
    counts: Callable[[str], bool],
    columns: Collection[str],
) -> Iterator[DataRows | DeletedKeys]:
    """Read the log files of a slice, oldest first.

    Memory: one block and its rows, the headers of all blocks, and up to 64 MiB of small files.

    Args:
        files: the table's files.
        log_files: Log files in Hudi's order.
        counts: Whether blocks of an instant are committed and not after the instant of the read.
        columns: Names of the requested columns.

    Raises:
        CorruptFileError: The file is damaged in a way that an interrupted writer does not explain.
    """
    for opened, block in _counted_blocks(files, log_files, counts, BUFFER_BYTES):
        yield _read_block(opened, block, columns)


def log_schemas(files: TableFiles, log_files: Sequence[LogFile]) -> list[tuple[LogFile, str]]:
    """Avro schemas of the data blocks of a slice, each with the log file; only headers are read.

    Blocks of writes that are not committed count too, as they may be later; those that were rolled back do not.

    Raises:
        CorruptFileError: The file is damaged in a way that an interrupted writer does not explain.
    """
    by_path = {files.path(log.relative_path): log for log in log_files}
    found: dict[tuple[LogFile, str], None] = {}
    for opened, block in _counted_blocks(files, log_files, lambda _: True, 0):
        if block.block_type != "DELETE":
            found[by_path[opened.path], _required(block, "SCHEMA", opened.path)] = None
    return list(found)


def log_headers(files: TableFiles, log: LogFile) -> list[LogBlock]:
    """The blocks of one log file, without their contents and whatever became of the writes.

    Raises:
        CorruptFileError: The file is damaged in a way that an interrupted writer does not explain.
    """
    return _OpenLog(files.storage, files.path(log.relative_path), log.size, False).blocks if log.size else []


def log_keys(files: TableFiles, log: LogFile) -> pa.Array:
    """Distinct record keys of one log file, those of deletes included, whatever became of the writes.

    Raises:
        CorruptFileError: The file is damaged in a way that an interrupted writer does not explain.
    """
    found = [pa.array([], pa.string())]
    opened = _OpenLog(files.storage, files.path(log.relative_path), log.size, log.size <= SINGLE_READ_BYTES)
    for block in opened.blocks:
        if block.block_type in _COUNTED:
            part = _read_block(opened, block, [RECORD_KEY])
            keys = pa.array(part.keys, pa.string()) if isinstance(part, DeletedKeys) else part.rows[RECORD_KEY]
            found += [keys] if isinstance(keys, pa.Array) else keys.chunks
    return pa.concat_arrays([part.unique() for part in found]).unique()


def _counted_blocks(
    files: TableFiles, log_files: Sequence[LogFile], counts: Callable[[str], bool], buffer_bytes: int
) -> list[tuple[_OpenLog, LogBlock]]:
    """Blocks that count, with up to ``buffer_bytes`` of small files."""
    counted: list[tuple[_OpenLog, LogBlock]] = []
    buffered = 0
    for log in log_files:
        if log.size == 0:  # its writer died before the first byte
            continue
        fits = log.size <= SINGLE_READ_BYTES and buffered + log.size <= buffer_bytes
        buffered += log.size if fits else 0
        opened = _OpenLog(files.storage, files.path(log.relative_path), log.size, fits)
        for block in opened.blocks:
            if block.block_type == "COMMAND":
                target = decode_command_block(block, opened.path).target_instant
                counted = [entry for entry in counted if entry[1].header["INSTANT_TIME"] != target]
            elif block.block_type in _COUNTED and counts(_required(block, "INSTANT_TIME", opened.path)):
                counted.append((opened, block))
    return counted


def _required(block: LogBlock, name: str, path: str) -> str:
    if name not in block.header:
        raise CorruptFileError(path, block.offset, f"{name} in the header of a {block.block_type} block", "none")
    return block.header[name]


def _is_partial(block: LogBlock) -> bool:
    return block.header.get("IS_PARTIAL", "").lower() == "true"


def _positions_in(block: LogBlock) -> str:
    has_some = bool(block.header.get("RECORD_POSITIONS"))
    return block.header.get("BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS", "") if has_some else ""


def _read_block(opened: _OpenLog, block: LogBlock, columns: Collection[str]) -> DataRows | DeletedKeys:
    path = opened.path
    content = opened.content(block)
    if block.block_type == "DELETE":
        records = decode_delete_block(content, path, block.content_offset)
        keys, ordering = (_key_of(r, path, block) for r in records), (r["orderingVal"] for r in records)
        return DeletedKeys(path, tuple(keys), tuple(ordering), _positions_in(block))
    if block.block_type == "PARQUET_DATA":
        rows = parquet_columns(content, columns, f"{path} (block at byte {block.offset})")
    else:
        text = _required(block, "SCHEMA", path)
        rows = (
            _hfile_rows(content, text, columns, path, block)
            if block.block_type == "HFILE_DATA"
            else decode_datums(
                split_avro_block(content, path, block.content_offset), text, columns, path, block.content_offset
            )
        )
    if RECORD_KEY not in rows.schema.names or not pa.types.is_string(rows.schema.field(RECORD_KEY).type):
        found = ", ".join(f"{column.name} {column.type}" for column in rows.schema)
        raise CorruptFileError(path, block.content_offset, f"a column {RECORD_KEY} of strings", found)
    return DataRows(path, rows, len(content), _is_partial(block), _positions_in(block))


def _key_of(record: dict[str, Any], path: str, block: LogBlock) -> str:
    key = record["recordKey"]
    if key is None:
        raise CorruptFileError(path, block.content_offset, "a record key in each deleted record", "none")
    return str(key)


def _hfile_rows(
    content: bytes | memoryview, text: str, columns: Collection[str], path: str, block: LogBlock
) -> pa.Table:
    """Decode the values of the cells; deletes are in delete blocks, so an empty value is damage."""
    keys, datums = [], []
    for key, value in HFileReader.from_bytes(content, path).scan_prefixes([b""]):
        if not value:
            raise CorruptFileError(path, block.content_offset, f"a value of key {key!r}", "none")
        keys.append(key)
        datums.append(value)
    rows = decode_datums(Datums.of(datums), text, columns, path, block.content_offset)
    place = rows.schema.get_field_index(_HFILE_KEY_FIELD)
    if place >= 0 and pa.types.is_string(datum_schema(text, path).field(_HFILE_KEY_FIELD).type):
        try:
            texts = pa.array([key.decode("utf-8") for key in keys], pa.string())
        except UnicodeDecodeError as error:
            raise CorruptFileError(path, block.content_offset, "keys in UTF-8", str(error)) from error
        rows = rows.set_column(place, rows.schema.field(place), texts)
    return rows
