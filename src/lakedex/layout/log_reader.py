"""Log files of a data table as Arrow tables: which blocks count, and what each of them holds.

A block counts when the instant in its header is committed and not after the instant that is read, unless a later
command block of the slice rolls that instant back. In Hudi: ``BaseHoodieLogRecordReader`` (1.1.1, its plain scan).
Blocks that a log compaction merged are read as well as the block that it made of them, which says the same once more.

Not read: blocks of partial updates. Blocks and files of change data are left out, as every snapshot does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakedex.codec.avro_vectorized import Datums, datum_schema, decode_datums, split_avro_block
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.log_block import LogBlock, decode_command_block, decode_delete_block, read_block_headers
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.io.storage import Storage
from lakedex.layout.file_slice import LogFile
from lakedex.parquet.base_file_reader import parquet_columns
from lakedex.types import RECORD_KEY

__all__ = ["DataRows", "DeletedKeys", "read_log_files", "require_whole_rows"]


SINGLE_READ_BYTES = 1 << 20
"""Log files up to this size are read in one request."""


HELD_BYTES = 64 << 20
"""So much of small files is kept between looking at their headers and reading their blocks."""


_HFILE_KEY_FIELD = "key"
"""Java blanks a field of this name in the values of an HFile, since its keys have it (``HoodieHFileDataBlock``)."""


_COUNTED = ("AVRO_DATA", "PARQUET_DATA", "HFILE_DATA", "DELETE")


@dataclass(frozen=True, slots=True)
class DataRows:
    """Rows of one data block, in its own schema; of the columns asked for, those that it has."""

    path: str
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """Keys of one delete block, each with its ordering value: None, or a pair of a wrapper's name and its record."""

    path: str
    keys: tuple[str, ...]
    ordering: tuple[Any, ...]


class _OpenLog:
    """A log file whose headers are read; its bytes are held where they are few."""

    def __init__(self, storage: Storage, path: str, size: int, hold: bool) -> None:
        self._storage = storage
        self._held = storage.read(path) if hold else None
        self.path = path
        found = size if self._held is None else len(self._held)
        self.blocks = read_block_headers(self._fetch, found, path, skip_torn=True)

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        if self._held is None:
            return self._storage.read_ranges(self.path, ranges)
        view = memoryview(self._held)
        return [view[start:end] for start, end in ranges]

    def content(self, block: LogBlock) -> bytes | memoryview:
        (content,) = self._fetch([(block.content_offset, block.content_offset + block.content_length)])
        if len(content) != block.content_length:
            raise CorruptFileError(self.path, block.content_offset, f"{block.content_length} bytes", f"{len(content)}")
        return content


def read_log_files(
    storage: Storage,
    base_path: str,
    log_files: Sequence[LogFile],
    counts: Callable[[str], bool],
    columns: Collection[str],
) -> Iterator[DataRows | DeletedKeys]:
    """What the log files of a slice say, oldest first.

    Memory: one block and its rows; besides, headers of all blocks and up to 64 MiB of small files.

    Args:
        storage: Where the table lies.
        base_path: Its folder.
        log_files: In Hudi's order.
        counts: Whether blocks of an instant are committed, and not after the one that is read.
        columns: Names of the columns wanted.

    Raises:
        CorruptFileError: Damage that no interrupted writer leaves.
        UnsupportedFeatureError: A block of partial updates.
    """
    for opened, block in _counted_blocks(storage, base_path, log_files, counts, HELD_BYTES):
        yield _read_block(opened, block, columns)


def require_whole_rows(
    storage: Storage, base_path: str, log_files: Sequence[LogFile], counts: Callable[[str], bool]
) -> None:
    """Look whether :func:`read_log_files` will read the log files of a slice, by the headers of their blocks alone.

    Raises:
        CorruptFileError: Damage that no interrupted writer leaves.
        UnsupportedFeatureError: A block of partial updates.
    """
    for opened, block in _counted_blocks(storage, base_path, log_files, counts, 0):
        _check_whole(opened.path, block)


def _counted_blocks(
    storage: Storage, base_path: str, log_files: Sequence[LogFile], counts: Callable[[str], bool], held_bytes: int
) -> list[tuple[_OpenLog, LogBlock]]:
    """Blocks that count; so many bytes of small files are kept with them."""
    kept: list[tuple[_OpenLog, LogBlock]] = []
    held = 0
    for log in log_files:
        if log.size == 0:  # its writer died before the first byte
            continue
        hold = log.size <= SINGLE_READ_BYTES and held + log.size <= held_bytes
        held += log.size if hold else 0
        opened = _OpenLog(storage, f"{base_path}/{log.relative_path}", log.size, hold)
        for block in opened.blocks:
            if block.block_type == "COMMAND":
                target = decode_command_block(block, opened.path).target_instant
                kept = [entry for entry in kept if entry[1].header["INSTANT_TIME"] != target]
            elif block.block_type in _COUNTED and counts(_required(block, "INSTANT_TIME", opened.path)):
                kept.append((opened, block))
    return kept


def _required(block: LogBlock, name: str, path: str) -> str:
    if name not in block.header:
        raise CorruptFileError(path, block.offset, f"{name} in the header of a {block.block_type} block", "none")
    return block.header[name]


def _check_whole(path: str, block: LogBlock) -> None:
    if block.header.get("IS_PARTIAL", "").lower() == "true":
        raise UnsupportedFeatureError(
            f"{path}: the block at byte {block.offset} holds partial updates (written by MERGE INTO with "
            "hoodie.spark.sql.merge.into.partial.updates); lakedex does not merge columns one by one. Have Hudi "
            "compact the table, or read it with Hudi",
            feature="partial update log blocks",
        )


def _read_block(opened: _OpenLog, block: LogBlock, columns: Collection[str]) -> DataRows | DeletedKeys:
    path = opened.path
    _check_whole(path, block)
    content = opened.content(block)
    if block.block_type == "DELETE":
        records = decode_delete_block(content, path, block.content_offset)
        return DeletedKeys(
            path, tuple(_key_of(r, path, block) for r in records), tuple(r["orderingVal"] for r in records)
        )
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
    return DataRows(path, rows)


def _key_of(record: dict[str, Any], path: str, block: LogBlock) -> str:
    key = record["recordKey"]
    if key is None:
        raise CorruptFileError(path, block.content_offset, "a record key in each deleted record", "none")
    return str(key)


def _hfile_rows(
    content: bytes | memoryview, text: str, columns: Collection[str], path: str, block: LogBlock
) -> pa.Table:
    """Values of the cells; Hudi's Spark writer leaves deletes to delete blocks, so an empty value is damage."""
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
