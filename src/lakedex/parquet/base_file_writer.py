"""Write base files: Parquet with Hudi's meta columns, footer keys, bloom filter and column statistics.

Row groups are encoded by Arrow or assembled from its chunks and stored ones. Arrow writes complete row groups of
complete files. If some columns of a row group are reused from another file (:mod:`lakedex.parquet.chunk_reuse`), Arrow
writes the others into memory, and the file gets the relocated chunks of both, and one footer.

Memory: one row group before encoding; with reuse, also the encoded one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakedex.arrow_types import has_required
from lakedex.codec.bloom import BloomSizing, HashedKeys
from lakedex.codec.column_bounds import key_bounds
from lakedex.codec.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, decode_struct, encode_struct, structs
from lakedex.io.storage import Storage
from lakedex.parquet.base_file_reader import (
    BLOOM_FOOTER_KEY,
    BLOOM_TYPE_FOOTER_KEY,
    MAX_KEY_FOOTER_KEY,
    MIN_KEY_FOOTER_KEY,
    ROW_GROUP_BYTES,
    SINK_BYTES,
)
from lakedex.parquet.chunk_reuse import CODECS, Chunk, StoredChunks, column_elements, iter_chunks
from lakedex.parquet.column_encodings import choose_encodings
from lakedex.parquet.conform import drop_unused_values
from lakedex.parquet.footer import PAGE_ROWS, group_spans
from lakedex.parquet.page_index import BOUNDS, OFFSETS, moved_indexes
from lakedex.types import COMMIT_SEQNO, RECORD_KEY

__all__ = [
    "BaseFileSettings",
    "BaseFileSummary",
    "BaseFileWriter",
    "ParquetBlock",
    "RowGroupWriter",
    "column_bytes",
    "fill_masked",
    "leaves",
    "write_parquet",
]


def fill_masked(array: pa.Array) -> pa.Array:
    """Put values into required fields of null structs, whose nulls Arrow's writer refuses.

    Nulls in required fields of structs that are not null stay, and the writer refuses them.
    """
    kind = array.type
    if not has_required(kind):
        return array
    drop_unused_values = pa.concat_arrays([array]) if array.offset else array
    if pa.types.is_struct(kind):
        parts = [fill_masked(drop_unused_values.field(place)) for place in range(kind.num_fields)]
        for place, child in enumerate(kind):
            if not child.nullable and parts[place].null_count:
                parts[place] = _filled(parts[place], drop_unused_values.is_null())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=drop_unused_values.is_null())
    if pa.types.is_map(kind):
        items = fill_masked(drop_unused_values.items)
        return pa.MapArray.from_arrays(
            drop_unused_values.offsets, drop_unused_values.keys, items, type=kind, mask=drop_unused_values.is_null()
        )
    return pa.ListArray.from_arrays(
        drop_unused_values.offsets, fill_masked(drop_unused_values.values), type=kind, mask=drop_unused_values.is_null()
    )


def _filled(part: pa.Array, masked: pa.Array) -> pa.Array:
    """Copy of ``part`` with a value wherever it is null and masked."""
    places = np.arange(len(part))
    places[part.is_null().to_numpy(zero_copy_only=False) & masked.to_numpy(zero_copy_only=False)] = len(part)
    return pa.concat_arrays([part, _any_value(part.type)]).take(pa.array(places))


def _any_value(kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_any_value(child.type) for child in kind], fields=list(kind))
    value: Any = 0
    if pa.types.is_boolean(kind):
        value = False
    elif pa.types.is_string(kind):
        value = ""
    elif pa.types.is_binary(kind):
        value = b""
    elif pa.types.is_nested(kind):
        value = []
    return pa.array([value], kind)


def leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Paths and types of a schema's Parquet leaves, named as by ``ParquetWriter``."""
    found: list[tuple[str, pa.DataType]] = []

    def walk(prefix: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for child in kind:
                walk(f"{prefix}.{child.name}", child.type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            walk(f"{prefix}.list.element", kind.value_type)
        elif pa.types.is_map(kind):
            walk(f"{prefix}.key_value.key", kind.key_type)
            walk(f"{prefix}.key_value.value", kind.item_type)
        else:
            found.append((prefix, kind))

    for column in schema:
        walk(column.name, column.type)
    return found


PAGE_BYTES = 1024 * 1024


PAGE_CHECK_ROWS = (1024, 65_536)
"""Number of rows after which Arrow checks the page size: few slow encoding down, many make pages of long texts huge."""


_MAGIC = b"PAR1"


# FileMetaData
_SCHEMA, _ROWS, _ROW_GROUPS, _KEYS = 2, 3, 4, 5


# RowGroup
_COLUMNS, _GROUP_PLAIN, _GROUP_ROWS, _GROUP_START, _GROUP_STORED = 1, 2, 3, 5, 6


# ColumnChunk
_CHUNK_START, _META = 2, 3


# ColumnMetaData
_PLAIN, _STORED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 6, 7, 9, 10, 11


_OF_THE_OLD_FILE = {_INDEX_PAGE, 14, 15}  # index pages and bloom filters, stored elsewhere in the old file


@dataclass(slots=True)
class RowGroupWriter:
    """Writes row groups in order, then the footer.

    Attributes:
        sink: Output file.
        schema: Schema of the file; text columns may be dictionaries.
        compression: Parquet codec, as named by pyarrow.
        unique: Paths of columns without a dictionary.
        reuses_chunks: Whether stored chunks may be reused.
        packs_numbers: Whether readers of the table know ``DELTA_BINARY_PACKED``.
    """

    sink: BinaryIO
    schema: pa.Schema
    compression: str
    unique: frozenset[str]
    reuses_chunks: bool = False
    packs_numbers: bool = False
    _collected: list[pq.FileMetaData] = field(init=False, default_factory=list)
    _writer: pq.ParquetWriter | None = field(init=False, default=None)
    _spliced: _SplicedFile | None = field(init=False, default=None)

    def write(self, table: pa.Table) -> None:
        """Encode the rows of a row group."""
        table = _without_masked_nulls(_without_unused_values(table))
        if self.reuses_chunks:
            self._opened_splice().add(self._encoded(table), {})
        else:
            self._opened(table).write_table(table, row_group_size=max(table.num_rows, 1))

    def reusable_chunks(self, stored: StoredChunks, group: int, columns: Collection[str]) -> dict[str, list[Chunk]]:
        """Chunks of those columns of a stored row group that the new file can reuse, by column."""
        codec = CODECS[self.compression.lower()]
        described = self._opened_splice().elements
        offers = {name: stored.offered(group, name, described[name], codec) for name in columns if name in described}
        return {name: chunks for name, chunks in offers.items() if chunks is not None}

    def reuse_chunks(self, table: pa.Table, stored: StoredChunks, taken: Mapping[str, Sequence[Chunk]]) -> None:
        """Write a row group from new rows and stored chunks.

        Args:
            table: Rows of the columns that are not reused, at least one.
            stored: Chunks of the existing file.
            taken: Reused chunks by column.
        """
        chunks = {name: [(chunk, stored.read(chunk)) for chunk in of] for name, of in taken.items()}
        self._opened_splice().add(self._encoded(_without_masked_nulls(_without_unused_values(table))), chunks)

    def close(self, keys: Mapping[str, str]) -> list[pq.FileMetaData]:
        """Write the footer with these pairs and return its statistics of row groups. The sink stays open."""
        if self.reuses_chunks:
            return [self._opened_splice().close(keys)]
        writer = self._writer or self._opened(self.schema.empty_table())
        writer.add_key_value_metadata(dict(keys))
        writer.close()
        return self._collected

    def abort(self) -> None:
        """Release the Arrow writer."""
        if self._writer is not None:
            with suppress(RuntimeError):  # A writer that has failed has no metadata to collect.
                self._writer.close()

    def _opened(self, table: pa.Table) -> pq.ParquetWriter:
        """Parquet writer, created once the first rows show the width of columns."""
        if self._writer is None:
            self._writer = self._parquet_writer(self.sink, table, self._collected)
        return self._writer

    def _opened_splice(self) -> _SplicedFile:
        if self._spliced is None:
            footer = _footer_without_rows(self.schema, self.compression, self.unique)
            self._spliced = _SplicedFile(self.sink, self.schema.names, footer)
        return self._spliced

    def _encoded(self, table: pa.Table) -> pa.Buffer:
        """Encode rows as a file of one row group."""
        sink = pa.BufferOutputStream()
        with self._parquet_writer(sink, table) as writer:
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
        return sink.getvalue()

    def _parquet_writer(
        self, sink: Any, table: pa.Table, collected: list[pq.FileMetaData] | None = None
    ) -> pq.ParquetWriter:
        return _parquet_writer(sink, table, self.compression, self.unique, collected, packs_numbers=self.packs_numbers)


_PAGES: dict[str, Any] = {"write_page_index": True}
if "max_rows_per_page" in signature(pq.ParquetWriter.__init__).parameters:
    _PAGES["max_rows_per_page"] = PAGE_ROWS


def _parquet_writer(
    sink: Any,
    table: pa.Table,
    compression: str,
    unique: frozenset[str],
    collected: list[pq.FileMetaData] | None = None,
    *,
    packs_numbers: bool = False,
) -> pq.ParquetWriter:
    paths = leaves(table.schema)
    chosen = choose_encodings(table, paths, compression, unique, packs_numbers=packs_numbers)
    width = max((column.nbytes for column in table.columns), default=0) / max(table.num_rows, 1)
    fewest, most = PAGE_CHECK_ROWS
    return pq.ParquetWriter(
        sink,
        table.schema,
        compression=chosen.compression,
        version="2.6",
        use_dictionary=sorted(chosen.dictionaries),
        column_encoding=dict.fromkeys(sorted(chosen.packed), "DELTA_BINARY_PACKED") or None,
        # Spark's Parquet reader drops NaN and -0.0 rows by footer statistics of float columns that omit them;
        # column_stats has their bounds instead.
        write_statistics=[path for path, kind in paths if not pa.types.is_floating(kind)],
        store_schema=False,
        data_page_size=PAGE_BYTES,
        write_batch_size=max(fewest, min(most, int(PAGE_BYTES / max(width, 1)))),
        # An index of single pages would only make small files larger.
        **(_PAGES if table.num_rows > PAGE_ROWS else {}),
        metadata_collector=collected,
    )


@lru_cache(maxsize=64)
def _footer_without_rows(schema: pa.Schema, compression: str, unique: frozenset[str]) -> Struct:
    """Footer of a file without rows; the same for all files of a write."""
    sink = pa.BufferOutputStream()
    _parquet_writer(sink, schema.empty_table(), compression, unique).close()
    return _footer_of(sink.getvalue())


class _SplicedFile:
    """Parquet file assembled from new and stored column chunks."""

    def __init__(self, sink: BinaryIO, columns: Sequence[str], footer: Struct) -> None:
        """Start a file.

        Args:
            sink: Output file.
            columns: Top-level columns, in order.
            footer: Footer of a file of these columns without rows; it is not modified.
        """
        self._sink = sink
        self._columns = columns
        self._footer = footer
        self.elements = column_elements(self._footer)
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, bytes, bytes]] = []
        self._rows = 0
        self._position = 0
        self._put(_MAGIC)

    def add(self, encoded: pa.Buffer, stored: Mapping[str, list[tuple[Chunk, memoryview]]]) -> None:
        """Add a row group: ``encoded`` is a file with the columns that are not ``stored``."""
        bytes_of = memoryview(encoded)
        for group in structs(_footer_of(encoded), _ROW_GROUPS):
            found: dict[str, list[tuple[Chunk, memoryview]]] = dict(stored)
            for name, chunk in iter_chunks(group, bytes_of):
                found.setdefault(name, []).append((chunk, bytes_of[chunk.start : chunk.start + chunk.size]))
            start, rows = self._position, group[_GROUP_ROWS][1]
            chunks = [self._place(chunk, data, rows) for name in self._columns for chunk, data in found[name]]
            metas = [chunk[_META][1] for chunk in chunks]
            self._groups.append(
                {
                    _COLUMNS: (LIST, (STRUCT, chunks)),
                    _GROUP_PLAIN: (I64, sum(meta[_PLAIN][1] for meta in metas)),
                    _GROUP_ROWS: (I64, rows),
                    _GROUP_START: (I64, start),
                    _GROUP_STORED: (I64, sum(meta[_STORED][1] for meta in metas)),
                }
            )
            self._rows += rows

    def _place(self, chunk: Chunk, data: memoryview, rows: int) -> Struct:
        moved = self._position - chunk.start
        meta = {number: value for number, value in chunk.meta.items() if number not in _OF_THE_OLD_FILE}
        for number in (_DATA_PAGE, _DICTIONARY_PAGE):
            if number in meta:
                meta[number] = (I64, meta[number][1] + moved)
        self._put(data)
        placed: Struct = {_CHUNK_START: (I64, 0), _META: (STRUCT, meta)}
        end = chunk.start + chunk.size
        offsets, bounds = moved_indexes(chunk.offset_index, chunk.column_index, chunk.data_start, end, rows, moved)
        self._indexes.append((placed, offsets, bounds))
        return placed

    def _put_indexes(self) -> None:
        """Write the page indexes of all chunks: first the bounds, then the offsets, as other writers do."""
        bounds = [(placed, BOUNDS, data) for placed, _, data in self._indexes]
        offsets = [(placed, OFFSETS, data) for placed, data, _ in self._indexes]
        for placed, (offset, size), data in [*bounds, *offsets]:
            if data:
                placed |= {offset: (I64, self._position), size: (I32, len(data))}
                self._put(data)

    def _put(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._position += len(data)

    def close(self, keys: Mapping[str, str]) -> pq.FileMetaData:
        """Write the page indexes and the footer; return it as read by Arrow."""
        self._put_indexes()
        texts = [{1: (BINARY, key.encode("utf-8")), 2: (BINARY, text.encode("utf-8"))} for key, text in keys.items()]
        footer = encode_struct(
            self._footer
            | {
                _ROWS: (I64, self._rows),
                _ROW_GROUPS: (LIST, (STRUCT, self._groups)),
                _KEYS: (LIST, (STRUCT, texts)),
            }
        )
        end = footer + len(footer).to_bytes(4, "little") + _MAGIC
        self._put(end)
        with pq.ParquetFile(pa.BufferReader(_MAGIC + end)) as read:
            return read.metadata


def _footer_of(file: pa.Buffer) -> Struct:
    tail = memoryview(file)[-8:]
    size = int.from_bytes(tail[:4], "little")
    return decode_struct(file[len(file) - 8 - size : len(file) - 8].to_pybytes())


def _without_unused_values(table: pa.Table) -> pa.Table:
    """Rows of a row group with one dictionary per column, limited to the values in use."""
    table = table.unify_dictionaries()
    for place, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(place, column, drop_unused_values(table.column(place).combine_chunks()))
    return table


def _without_masked_nulls(table: pa.Table) -> pa.Table:
    """Rows without nulls in required fields of null structs."""
    for place, column in enumerate(table.schema):
        if has_required(column.type):
            chunks = [fill_masked(chunk) for chunk in table.column(place).chunks]
            table = table.set_column(place, column, pa.chunked_array(chunks, column.type))
    return table


def column_bytes(collected: Sequence[pq.FileMetaData]) -> dict[str, tuple[int, int]]:
    """Compressed and uncompressed size of the chunks of each top-level column."""
    sizes: dict[str, tuple[int, int]] = {}
    for metadata in collected:
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for index in range(row_group.num_columns):
                column = row_group.column(index)
                name = column.path_in_schema.split(".", 1)[0]
                packed, plain = sizes.get(name, (0, 0))
                sizes[name] = (packed + column.total_compressed_size, plain + column.total_uncompressed_size)
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSettings:
    """Settings of new base files.

    Attributes:
        avro_schema: Avro schema of the file as JSON, including meta columns.
        compression: Parquet codec, as named by pyarrow.
        bloom: Type and size of bloom filters.
        unique: Paths of columns with (nearly) unique values, which get no dictionary.
        row_group_bytes: Size of a row group before encoding.
        packs_numbers: Whether readers of the table know ``DELTA_BINARY_PACKED``.
    """

    avro_schema: str
    compression: str = "zstd"
    bloom: BloomSizing = field(default_factory=BloomSizing)
    unique: frozenset[str] = frozenset({RECORD_KEY, COMMIT_SEQNO})
    row_group_bytes: int = ROW_GROUP_BYTES
    packs_numbers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSummary:
    """Properties of a written file. Sizes are in bytes.

    ``column_bytes`` maps top-level columns to (compressed, uncompressed); ``row_groups`` are (rows, first byte, bytes).
    """

    size: int
    rows: int
    bloom: bytes
    bloom_type: str
    min_key: str | None
    max_key: str | None
    column_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    row_groups: tuple[tuple[int, int, int], ...] = ()


class BaseFileWriter:
    """Writes one base file from a stream of batches. The file exists only after :meth:`close`."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        settings: BaseFileSettings,
        *,
        expected_rows: int,
        existing_bloom: bytes | None = None,
        stored: StoredChunks | None = None,
        splices: bool = False,
    ) -> None:
        """Start a file.

        Args:
            storage: Storage of the table.
            path: Path of the file.
            schema: Schema of the file; text columns may be dictionaries.
            settings: Settings of the file.
            expected_rows: Number of rows, to size the filter by.
            existing_bloom: Text of a filter over exactly the keys to be written, which are then not hashed; None builds
                one. See :meth:`hash_keys`.
            stored: Chunks that :meth:`write_group` may reuse; None if there are none.
            splices: Whether :meth:`write_group` is given the chunks that it may reuse, those of several files.
        """
        self._settings = settings
        self._schema = schema.remove_metadata()
        self.storage = storage
        self._path = path
        self._bloom = settings.bloom.builder(expected_rows)
        self._existing_bloom = existing_bloom
        self._min: str | None = None
        self._max: str | None = None
        self._rows = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0.0
        self._file = storage.open_output(path)
        # Arrow writes in small pieces and would wait for Python's lock each time.
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), SINK_BYTES)
        self._stored = stored
        self._groups = RowGroupWriter(
            self._sink,
            self._schema,
            settings.compression,
            settings.unique,
            reuses_chunks=splices or stored is not None,
            packs_numbers=settings.packs_numbers,
        )

    def write(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str] | None:
        """Add rows in the file's schema, with their keys ``hashed`` if known; return the bounds of their keys."""
        if batch.num_rows == 0:
            return None
        bounds = self._take_note(batch, hashed)
        self._fill_groups(batch)
        return bounds

    def write_group(
        self,
        batches: Sequence[pa.RecordBatch],
        group: int,
        unchanged: Collection[str],
        chunks: StoredChunks | None = None,
    ) -> list[tuple[str, str]]:
        """Add rows as a row group of their own, derived from a stored one.

        Args:
            batches: Rows, as many and in the same positions as the stored ones.
            group: Number of the stored row group.
            unchanged: Columns with the stored values; their chunks are reused if possible.
            chunks: Chunks of the stored row group's file; None for those that the writer was opened with.

        Returns:
            Bounds of the keys of each batch.
        """
        stored = self._stored if chunks is None else chunks
        if stored is None:
            raise ValueError(f"{self._path}: opened without stored chunks")
        self.end_row_group()
        bounds = [self._take_note(batch) for batch in batches]
        taken = self._groups.reusable_chunks(stored, group, unchanged)
        fresh = [name for name in self._schema.names if name not in taken]
        self._groups.reuse_chunks(pa.Table.from_batches(batches, self._schema).select(fresh), stored, taken)
        return bounds

    def _take_note(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str]:
        """Update the footer's key range and filter with a batch; return the bounds of its keys."""
        keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
        if self._existing_bloom is None:
            self._bloom.add(keys if hashed is None else hashed)
        bounds = pc.min_max(keys)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._rows += batch.num_rows
        return low, high

    def _fill_groups(self, batch: pa.RecordBatch) -> None:
        """Split a batch into row groups: a load may arrive as one batch per file."""
        target, start = self._settings.row_group_bytes, 0
        row = max(batch.nbytes / batch.num_rows, 1e-9)
        while start < batch.num_rows:
            part = batch.slice(start, max(int((target - self._buffered) / row), 1))
            start += part.num_rows
            self._buffer.append(part)
            self._buffered += part.num_rows * row
            if self._buffered + row > target:
                self.end_row_group()

    @property
    def reuses_chunks(self) -> bool:
        """Whether :meth:`write_group` may be called."""
        return self._stored is not None

    @property
    def reuses_bloom(self) -> bool:
        """Whether the file gets the existing filter."""
        return self._existing_bloom is not None

    def hash_keys(self, written: Iterable[pa.Array]) -> None:
        """Build the filter after all; ``written`` are the keys of all rows so far, in order."""
        self._existing_bloom = None
        for keys in written:
            self._bloom.add(keys)

    def end_row_group(self) -> None:
        """Write the rows so far as a row group; those that follow begin another one."""
        if self._buffer:
            self._groups.write(pa.Table.from_batches(self._buffer, self._schema))
            self._buffer, self._buffered = [], 0.0

    def close(self) -> BaseFileSummary:
        """Finish the file, which is durable afterwards."""
        self.end_row_group()
        text = self._bloom.finish().encode() if self._existing_bloom is None else self._existing_bloom
        bloom_type = self._settings.bloom.type_code
        keys = {
            "parquet.avro.schema": self._settings.avro_schema,
            "writer.model.name": "avro",
            BLOOM_FOOTER_KEY.decode(): text.decode("ascii"),
            BLOOM_TYPE_FOOTER_KEY.decode(): bloom_type,
        }
        low: str | None = None
        high: str | None = None
        if self._min is not None and self._max is not None:
            low, high = key_bounds(self._min, self._max)
            keys |= {MIN_KEY_FOOTER_KEY.decode(): low, MAX_KEY_FOOTER_KEY.decode(): high}
        written = self._groups.close(keys)
        self._sink.flush()
        size = self._file.tell()
        self._file.close()
        return BaseFileSummary(
            size=size,
            rows=self._rows,
            bloom=text,
            bloom_type=bloom_type,
            min_key=low,
            max_key=high,
            column_bytes=column_bytes(written),
            row_groups=tuple(span for metadata in written for span in group_spans(metadata)),
        )

    def abort(self) -> None:
        """Close and delete the unfinished file."""
        self._groups.abort()
        with suppress(OSError):  # Flushing to a full disk may fail; the bytes are not needed.
            self._sink.close()
        self._file.close()
        self.storage.delete(self._path)


@dataclass(slots=True)
class ParquetBlock:
    """Content of a PARQUET_DATA block of a log file: a Parquet file (``HoodieParquetDataBlock``).

    Memory: the rows of the block, and the encoded ones.

    Attributes:
        settings: of the table's base files.
        rows: number of rows so far.
        size: their bytes in memory, more than the content will have.
    """

    settings: BaseFileSettings
    rows: int = field(init=False, default=0)
    size: int = field(init=False, default=0)
    _batches: list[pa.RecordBatch] = field(init=False, default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows; all have the same columns."""
        self._batches.append(rows)
        self.rows += rows.num_rows
        self.size += rows.nbytes

    def content(self) -> bytes:
        """The block's content; of at least one batch."""
        sink, own = pa.BufferOutputStream(), self.settings
        table = pa.Table.from_batches(self._batches).replace_schema_metadata()
        writer = RowGroupWriter(sink, table.schema, own.compression, own.unique, packs_numbers=own.packs_numbers)
        step = max(1, table.num_rows * own.row_group_bytes // max(table.nbytes, 1))
        for start in range(0, table.num_rows, step):
            writer.write(table.slice(start, step))
        writer.close({"parquet.avro.schema": own.avro_schema, "writer.model.name": "avro"})
        content: bytes = sink.getvalue().to_pybytes()
        return content


def write_parquet(
    storage: Storage, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], footer: Mapping[str, str]
) -> None:
    """Write a Parquet file without Hudi's columns: gzip, pages of version 1, exactly these pairs in its footer."""
    # Only explicit pairs are written to the footer: with store_schema=False pyarrow drops a schema's metadata.
    with (
        closing(storage.open_output(path)) as out,
        pq.ParquetWriter(out, schema, compression="gzip", use_dictionary=False, store_schema=False) as writer,
    ):
        writer.add_key_value_metadata(dict(footer))
        for batch in batches:
            writer.write_batch(batch)
