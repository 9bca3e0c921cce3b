"""Base files: Parquet with Hudi's meta columns and footer keys. Only this package opens Parquet.

Footer keys that Java's readers and its footer-based bloom index need (``HoodieAvroWriteSupport``):

==============================  =========================================================
parquet.avro.schema             Avro schema with the meta columns
writer.model.name               ``avro``
org.apache.hudi.bloomfilter     bloom filter over the record keys, as text
hoodie_bloom_filter_type_code   ``DYNAMIC_V0`` or ``SIMPLE``
hoodie_min_record_key, _max_    key range, by Java's string order; absent when the file has no rows
==============================  =========================================================

Memory: a reader holds one batch, a writer one row group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakedex.arrow_frames import has_required
from lakedex.codec.bloom import HashedKeys
from lakedex.codec.bloom_sizing import BloomSizing
from lakedex.errors import CorruptFileError, LakedexError, UnsupportedFeatureError
from lakedex.io.storage import Storage
from lakedex.layout.dictionaries import compact, encoded_columns
from lakedex.layout.hidden_nulls import fill_hidden
from lakedex.layout.leaves import leaves
from lakedex.layout.sound_values import check_values, fallible_columns
from lakedex.layout.string_bounds import key_bounds
from lakedex.types import COMMIT_SEQNO, RECORD_KEY

__all__ = [
    "BaseFileSettings",
    "BaseFileSummary",
    "BaseFileWriter",
    "Footer",
    "group_span",
    "iter_base_file",
    "open_base_file",
    "open_parquet",
    "parquet_columns",
    "read_base_file",
    "read_footer",
    "read_schema",
    "sound_batches",
]

BLOOM_FOOTER_KEY = b"org.apache.hudi.bloomfilter"
OLD_BLOOM_FOOTER_KEY = b"com.uber.hoodie.bloomfilter"
BLOOM_TYPE_FOOTER_KEY = b"hoodie_bloom_filter_type_code"
MIN_KEY_FOOTER_KEY = b"hoodie_min_record_key"
MAX_KEY_FOOTER_KEY = b"hoodie_max_record_key"
ROW_GROUP_BYTES = 32 * 1024 * 1024
BATCH_ROWS = 65_536
PAGE_BYTES = 1024 * 1024
PAGE_CHECK_ROWS = (1024, 65_536)
"""Rows after which Arrow looks whether a page is full: few slow encoding down, many make huge pages of long texts."""
THREADED_ROWS = 4096
SINK_BYTES = 256 * 1024
WHOLE_FILE_BYTES = 256 * 1024
"""What storage sends in the time that it takes for another answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSettings:
    """How base files are written.

    Attributes:
        avro_schema: Avro JSON of the file, meta columns included.
        compression: Parquet codec name as pyarrow spells it.
        bloom: which filters the files get.
        unique: columns with a value of its own in (nearly) each row, by their path: a dictionary only costs there.
        row_group_bytes: size of a row group before encoding.
    """

    avro_schema: str
    compression: str = "zstd"
    bloom: BloomSizing = field(default_factory=BloomSizing)
    unique: frozenset[str] = frozenset({RECORD_KEY, COMMIT_SEQNO})
    row_group_bytes: int = ROW_GROUP_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFileSummary:
    """What was written. Sizes in bytes.

    ``column_bytes`` is top-level column → (compressed, uncompressed), ``row_groups`` are (rows, first byte, bytes).
    """

    size: int
    rows: int
    bloom: bytes
    bloom_type: str
    min_key: str | None
    max_key: str | None
    column_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    row_groups: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What a base file's footer says of its record keys; None where it does not.

    ``dictionaries`` are text columns that its rows have as dictionaries, of those that were asked for.
    """

    rows: int
    bloom: bytes | None
    bloom_type: str
    min_key: str | None
    max_key: str | None
    dictionaries: frozenset[str] = frozenset()


class BaseFileWriter:
    """Writes one base file as a stream of batches. The file exists only once :meth:`close` returned."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        settings: BaseFileSettings,
        *,
        expected_rows: int,
        kept_bloom: bytes | None = None,
    ) -> None:
        """Begin a file.

        Args:
            storage: where.
            path: the file.
            schema: its columns; those of text may come as dictionaries.
            settings: how it is written.
            expected_rows: how many rows will come, to size the filter by.
            kept_bloom: text of a filter over the very keys that will come; they are not hashed then. See
                :meth:`hash_keys`.
        """
        self._settings = settings
        self._schema = schema.remove_metadata()
        self._storage = storage
        self._path = path
        self._bloom = settings.bloom.builder(expected_rows)
        self._kept_bloom = kept_bloom
        self._min: str | None = None
        self._max: str | None = None
        self._rows = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0.0
        self._collected: list[pq.FileMetaData] = []
        self._file = storage.open_output(path)
        # Arrow writes little by little, and would wait for Python's lock each time.
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), SINK_BYTES)
        self._writer: pq.ParquetWriter | None = None

    def _opened(self, table: pa.Table) -> pq.ParquetWriter:
        """The Parquet writer, made when the first rows say how wide columns are."""
        if self._writer is None:
            exact = [path for path, kind in leaves(self._schema) if not pa.types.is_floating(kind)]
            width = max((column.nbytes for column in table.columns), default=0) / max(table.num_rows, 1)
            fewest, most = PAGE_CHECK_ROWS
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._settings.compression,
                version="2.6",
                # Spark's Parquet reader drops NaN and -0.0 rows by footer statistics and dictionaries of float columns
                # that leave them out; column_stats carries their bounds instead.
                use_dictionary=[path for path in exact if path not in self._settings.unique],
                write_statistics=exact,
                store_schema=False,
                data_page_size=PAGE_BYTES,
                write_batch_size=max(fewest, min(most, int(PAGE_BYTES / max(width, 1)))),
                metadata_collector=self._collected,
            )
        return self._writer

    def write(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str] | None:
        """Add rows in the file's schema, their keys ``hashed`` if they are; gives back the bounds of their keys."""
        if batch.num_rows == 0:
            return None
        keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
        if self._kept_bloom is None:
            self._bloom.add(keys if hashed is None else hashed)
        bounds = pc.min_max(keys)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._rows += batch.num_rows
        self._fill_groups(batch)
        return low, high

    def _fill_groups(self, batch: pa.RecordBatch) -> None:
        """A load comes as one batch a file, which is no reason for one row group."""
        target, start = self._settings.row_group_bytes, 0
        row = max(batch.nbytes / batch.num_rows, 1e-9)
        while start < batch.num_rows:
            part = batch.slice(start, max(int((target - self._buffered) / row), 1))
            start += part.num_rows
            self._buffer.append(part)
            self._buffered += part.num_rows * row
            if self._buffered + row > target:
                self._flush()

    @property
    def keeps_bloom(self) -> bool:
        """Whether the filter is one that was given."""
        return self._kept_bloom is not None

    def hash_keys(self, written: Iterable[pa.Array]) -> None:
        """Build the filter after all: ``written`` are the keys of all rows so far, in their order."""
        self._kept_bloom = None
        for keys in written:
            self._bloom.add(keys)

    def _flush(self) -> None:
        if self._buffer:
            table = _shown(_compacted(pa.Table.from_batches(self._buffer, self._schema)))
            self._opened(table).write_table(table, row_group_size=max(table.num_rows, 1))
            self._buffer, self._buffered = [], 0.0

    def close(self) -> BaseFileSummary:
        """Finish the file: durable once this returns."""
        self._flush()
        text = self._bloom.finish().encode() if self._kept_bloom is None else self._kept_bloom
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
        writer = self._writer or self._opened(self._schema.empty_table())
        writer.add_key_value_metadata(keys)
        writer.close()
        self._sink.flush()
        self._file.close()
        return BaseFileSummary(
            size=self._storage.size(self._path),
            rows=self._rows,
            bloom=text,
            bloom_type=bloom_type,
            min_key=low,
            max_key=high,
            column_bytes=_column_bytes(self._collected),
            row_groups=tuple(_row_groups(self._collected)),
        )

    def abort(self) -> None:
        """Give up: close and delete what was written."""
        if self._writer is not None:
            with suppress(RuntimeError):  # Of a writer that failed before: it has no metadata to collect.
                self._writer.close()
        with suppress(OSError):  # Of bytes that found no place; they are not wanted.
            self._sink.close()
        self._file.close()
        self._storage.delete(self._path)


def _compacted(table: pa.Table) -> pa.Table:
    """The rows of a row group, with one dictionary a column, of the values that they have."""
    table = table.unify_dictionaries()
    for place, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(place, column, compact(table.column(place).combine_chunks()))
    return table


def _shown(table: pa.Table) -> pa.Table:
    """The rows, without the nulls that lie in required fields of structs which are null."""
    for place, column in enumerate(table.schema):
        if has_required(column.type):
            chunks = [fill_hidden(chunk) for chunk in table.column(place).chunks]
            table = table.set_column(place, column, pa.chunked_array(chunks, column.type))
    return table


def _column_bytes(collected: Sequence[pq.FileMetaData]) -> dict[str, tuple[int, int]]:
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


def group_span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """First byte of a row group in its file, and how many bytes its column chunks take."""
    chunks = [group.column(index) for index in range(group.num_columns)]
    starts = [min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset) for chunk in chunks]
    return int(min(starts)), sum(int(chunk.total_compressed_size) for chunk in chunks)


def _row_groups(collected: Sequence[pq.FileMetaData]) -> Iterator[tuple[int, int, int]]:
    for metadata in collected:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            yield (int(group.num_rows), *group_span(group))


_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)
"""What Arrow raises for damaged files; memory that it does not get is what a damaged size asks for."""


def _unreadable(path: str, error: Exception) -> LakedexError:
    found = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedFeatureError(f"{path}: {found}", feature="Parquet that Arrow does not read")
    return CorruptFileError(path, 0, "a readable Parquet file", found)


def _source(storage: Storage, path: str, size: int | None) -> BinaryIO:
    whole = size is not None and size <= WHOLE_FILE_BYTES
    return pa.BufferReader(storage.read(path)) if whole else storage.open_input(path)


@contextmanager
def open_parquet(
    storage: Storage, path: str, footer: pq.FileMetaData | None = None, size: int | None = None
) -> Iterator[tuple[pq.ParquetFile, BinaryIO]]:
    """An open Parquet file and what it reads from, for this package; a known ``footer`` is not read again.

    One of a ``size`` up to ``WHOLE_FILE_BYTES`` is read in one request. What Arrow cannot read is a
    ``CorruptFileError``.
    """
    source = _source(storage, path, size)
    try:
        with pq.ParquetFile(source, metadata=footer) as parquet:
            yield parquet, source
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error
    finally:
        source.close()


def iter_base_file(
    storage: Storage,
    path: str,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
    batch_rows: int = BATCH_ROWS,
    size: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of a base file, in row order; ``columns`` that the file lacks are left out.

    A file whose ``size`` is known and small is read in one request instead of three.
    """
    with open_parquet(storage, path, size=size) as (parquet, _):
        names = set(parquet.schema_arrow.names)
        wanted = None if columns is None else [name for name in columns if name in names]
        yield from sound_batches(parquet, batch_rows, wanted, row_groups)


def sound_batches(
    parquet: pq.ParquetFile,
    batch_rows: int,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of an open file, for this package; text that is none is an ``ArrowInvalid``."""
    places: tuple[int, ...] | None = None
    # To call other threads takes longer than to decode little.
    threads = parquet.metadata.num_rows > THREADED_ROWS
    for batch in parquet.iter_batches(
        batch_size=batch_rows, columns=columns, row_groups=row_groups, use_threads=threads
    ):
        if places is None:
            places = fallible_columns(batch.schema)
        check_values(batch, places)
        yield batch


def read_base_file(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole base file, or some columns of it."""
    schema = read_schema(storage, path)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns if name in schema.names])
    return pa.Table.from_batches(iter_base_file(storage, path, columns), schema)


def parquet_columns(content: bytes | memoryview, columns: Collection[str], path: str) -> pa.Table:
    """Some columns of a Parquet file in memory, which is what a PARQUET_DATA log block holds; absent ones left out.

    Raises:
        CorruptFileError: The bytes are no Parquet file; names ``path``.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as parquet:
            wanted = [name for name in parquet.schema_arrow.names if name in columns]
            rows = parquet.read(wanted).replace_schema_metadata(None)
            check_values(rows, fallible_columns(rows.schema))
            return rows
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_schema(storage: Storage, path: str) -> pa.Schema:
    """Arrow schema of a base file as it lies there, without footer metadata."""
    with open_parquet(storage, path) as (parquet, _):
        return parquet.schema_arrow.remove_metadata()


def read_footer(storage: Storage, path: str) -> Footer:
    """Key range and bloom filter that the footer carries."""
    with open_parquet(storage, path) as (parquet, _):
        return _footer(parquet, path)


@contextmanager
def open_base_file(
    storage: Storage,
    path: str,
    *,
    without: Collection[str] = (),
    dictionaries: Collection[str] = (),
    size: int | None = None,
) -> Iterator[tuple[Footer, Iterator[pa.RecordBatch]]]:
    """The footer of a base file and its rows in batches, opened once. Errors of the caller's own pass through.

    Args:
        storage: where.
        path: the file.
        without: columns that are not read.
        dictionaries: text columns that may come as dictionaries, where the file has them so.
        size: in bytes, if it is known; a small file is read in one request.
    """
    source = _source(storage, path, size)
    try:
        try:
            parquet = pq.ParquetFile(source, pre_buffer=True)
            footer = _footer(parquet, path)
            names = [name for name in parquet.schema_arrow.names if name not in without]
            encoded = encoded_columns(parquet.metadata, parquet.schema_arrow, [n for n in names if n in dictionaries])
            if encoded:
                parquet = pq.ParquetFile(source, metadata=parquet.metadata, read_dictionary=encoded, pre_buffer=True)
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error
        yield replace(footer, dictionaries=frozenset(encoded)), _batches(parquet, path, names)
    finally:
        source.close()


def _batches(parquet: pq.ParquetFile, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        # A group at a time: what is read ahead is let go only with the reader.
        for group in range(parquet.num_row_groups):
            yield from sound_batches(parquet, BATCH_ROWS, names, [group])
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def _footer(parquet: pq.ParquetFile, path: str) -> Footer:
    found = parquet.metadata.metadata or {}
    bloom = found.get(BLOOM_FOOTER_KEY, found.get(OLD_BLOOM_FOOTER_KEY))
    low, high = found.get(MIN_KEY_FOOTER_KEY), found.get(MAX_KEY_FOOTER_KEY)
    return Footer(
        rows=parquet.metadata.num_rows,
        bloom=bloom,
        bloom_type=found.get(BLOOM_TYPE_FOOTER_KEY, b"SIMPLE").decode("ascii", "replace"),
        min_key=_key(low, path),
        max_key=_key(high, path),
    )


def _key(stored: bytes | None, path: str) -> str | None:
    try:
        return None if stored is None else stored.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(path, 0, "record keys in UTF-8 in the footer", repr(stored)[:40]) from error
