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

from lakedex.codec.bloom import HashedKeys
from lakedex.codec.bloom_sizing import BloomSizing
from lakedex.errors import CorruptFileError, LakedexError, StorageError, UnsupportedFeatureError
from lakedex.io.storage import Storage
from lakedex.layout.calendars import LegacyCalendar, calendar_of
from lakedex.layout.dictionaries import encoded_columns
from lakedex.layout.row_group_writer import RowGroupWriter, column_bytes, group_spans
from lakedex.layout.sound_values import check_values, fallible_columns
from lakedex.layout.stored_chunks import RememberingSource, StoredChunks
from lakedex.layout.string_bounds import key_bounds
from lakedex.types import COMMIT_SEQNO, RECORD_KEY

__all__ = [
    "BaseFileSettings",
    "BaseFileSummary",
    "BaseFileWriter",
    "Footer",
    "StoredFile",
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
THREADED_ROWS = 4096
SINK_BYTES = 256 * 1024
LARGE_GROUP_BYTES = 1024 * 1024
"""Row groups that are smaller in the file cost little to encode again."""
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
        stored: StoredChunks | None = None,
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
            stored: chunks that :meth:`write_group` may take over.
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
        self._file = storage.open_output(path)
        # Arrow writes little by little, and would wait for Python's lock each time.
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), SINK_BYTES)
        self._stored = stored
        self._groups = RowGroupWriter(
            self._sink, self._schema, settings.compression, settings.unique, takes_over=stored is not None
        )

    def write(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str] | None:
        """Add rows in the file's schema, their keys ``hashed`` if they are; gives back the bounds of their keys."""
        if batch.num_rows == 0:
            return None
        bounds = self._take_note(batch, hashed)
        self._fill_groups(batch)
        return bounds

    def write_group(
        self, batches: Sequence[pa.RecordBatch], group: int, unchanged: Collection[str]
    ) -> list[tuple[str, str]]:
        """Add rows as a row group of their own, made from one that is stored.

        Args:
            batches: the rows, as many and in the same places as the stored ones.
            group: number of the stored row group.
            unchanged: columns in which they have the stored values; where it can be, their chunks are taken over.

        Returns:
            The bounds of the keys of each batch.
        """
        if self._stored is None:
            raise ValueError(f"{self._path}: begun without stored chunks")
        self._flush()
        bounds = [self._take_note(batch) for batch in batches]
        taken = self._groups.takeable(self._stored, group, unchanged)
        fresh = [name for name in self._schema.names if name not in taken]
        self._groups.take_over(pa.Table.from_batches(batches, self._schema).select(fresh), self._stored, taken)
        return bounds

    def _take_note(self, batch: pa.RecordBatch, hashed: HashedKeys | None = None) -> tuple[str, str]:
        """What the footer says of the rows of a batch."""
        keys = batch.column(batch.schema.get_field_index(RECORD_KEY))
        if self._kept_bloom is None:
            self._bloom.add(keys if hashed is None else hashed)
        bounds = pc.min_max(keys)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._rows += batch.num_rows
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
    def takes_over(self) -> bool:
        """Whether :meth:`write_group` may be called."""
        return self._stored is not None

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
            self._groups.write(pa.Table.from_batches(self._buffer, self._schema))
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
        written = self._groups.close(keys)
        self._sink.flush()
        self._file.close()
        return BaseFileSummary(
            size=self._storage.size(self._path),
            rows=self._rows,
            bloom=text,
            bloom_type=bloom_type,
            min_key=low,
            max_key=high,
            column_bytes=column_bytes(written),
            row_groups=tuple(group_spans(written)),
        )

    def abort(self) -> None:
        """Give up: close and delete what was written."""
        self._groups.abort()
        with suppress(OSError):  # Of bytes that found no place; they are not wanted.
            self._sink.close()
        self._file.close()
        self._storage.delete(self._path)


_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)
"""What Arrow raises for damaged files; memory that it does not get is what a damaged size asks for."""


def _unreadable(path: str, error: Exception) -> LakedexError:
    found = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedFeatureError(f"{path}: {found}", feature="Parquet that Arrow does not read")
    return CorruptFileError(path, 0, "a readable Parquet file", found)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """What Arrow cannot read is damage; what the file system did not do is not."""
    try:
        yield
    except StorageError:
        raise
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


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
        with _damage(path), pq.ParquetFile(source, metadata=footer) as parquet:
            yield parquet, source
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
    """Batches of an open file in our calendar, for this package; text that is none is an ``ArrowInvalid``."""
    places: tuple[int, ...] | None = None
    calendar: LegacyCalendar | None = None
    # To call other threads takes longer than to decode little.
    threads = parquet.metadata.num_rows > THREADED_ROWS
    for batch in parquet.iter_batches(
        batch_size=batch_rows, columns=columns, row_groups=row_groups, use_threads=threads
    ):
        if places is None:
            places = fallible_columns(batch.schema)
            calendar = calendar_of(parquet.metadata, batch.schema)
        check_values(batch, places)
        yield batch if calendar is None else calendar.moved(batch)


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
    with _damage(path), pq.ParquetFile(pa.BufferReader(content)) as parquet:
        wanted = [name for name in parquet.schema_arrow.names if name in columns]
        rows = parquet.read(wanted).replace_schema_metadata(None)
        check_values(rows, fallible_columns(rows.schema))
        calendar = calendar_of(parquet.metadata, rows.schema)
        return rows if calendar is None else calendar.moved_table(rows)


def read_schema(storage: Storage, path: str) -> pa.Schema:
    """Arrow schema of a base file as it lies there, without footer metadata."""
    with open_parquet(storage, path) as (parquet, _):
        return parquet.schema_arrow.remove_metadata()


def read_footer(storage: Storage, path: str) -> Footer:
    """Key range and bloom filter that the footer carries."""
    with open_parquet(storage, path) as (parquet, _):
        return _footer(parquet, path)


class StoredFile:
    """An open base file whose rows a new one takes up.

    Attributes:
        footer: what it says.
        chunks: those that the new file may take over as they are; None if it may not.
    """

    def __init__(
        self, parquet: pq.ParquetFile, source: RememberingSource, path: str, names: Sequence[str], footer: Footer
    ) -> None:
        self.footer = footer
        self.chunks = StoredChunks.of(source, path, parquet.metadata)
        self._parquet = parquet
        self._source = source
        self._path = path
        self._names = names

    @property
    def end(self) -> int | None:
        """Number of the last row group if new rows should join it, so that a growing file gets few row groups.

        One that has half of the rows is left alone: the next one then has to grow as large, so there are no more than
        the logarithm of the rows.
        """
        last = int(self._parquet.num_row_groups) - 1
        if last < 0:
            return None
        group = self._parquet.metadata.row_group(last)
        stored = sum(int(group.column(index).total_compressed_size) for index in range(group.num_columns))
        is_large = stored >= LARGE_GROUP_BYTES and group.num_rows * 2 >= self.footer.rows
        return None if is_large else last

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Each row group and its rows in batches, to be read before the next one is."""
        # A group at a time: what is read ahead is let go only with the reader.
        for group in range(self._parquet.num_row_groups):
            self._source.forget()
            yield group, self._batches(group)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in batches."""
        for _, batches in self.groups():
            yield from batches

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        with _damage(self._path):
            yield from sound_batches(self._parquet, BATCH_ROWS, self._names, [group])


@contextmanager
def open_base_file(
    storage: Storage,
    path: str,
    *,
    without: Collection[str] = (),
    dictionaries: Collection[str] = (),
    size: int | None = None,
) -> Iterator[StoredFile]:
    """A base file to be merged with other rows, opened once. Errors of the caller's own pass through.

    Args:
        storage: where.
        path: the file.
        without: columns that are not read.
        dictionaries: text columns that may come as dictionaries, where the file has them so.
        size: in bytes, if it is known; a small file is read in one request.
    """
    source = RememberingSource(_source(storage, path, size))
    try:
        with _damage(path):
            parquet = pq.ParquetFile(source, pre_buffer=True)
            names = [name for name in parquet.schema_arrow.names if name not in without]
            encoded = encoded_columns(parquet.metadata, parquet.schema_arrow, [n for n in names if n in dictionaries])
            if encoded:
                parquet = pq.ParquetFile(source, metadata=parquet.metadata, read_dictionary=encoded, pre_buffer=True)
            footer = replace(_footer(parquet, path), dictionaries=frozenset(encoded))
            stored = StoredFile(parquet, source, path, names, footer)
        yield stored
    finally:
        source.close()


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
