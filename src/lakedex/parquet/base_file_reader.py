"""Read base files, completely, by row groups or for a merge with new rows, and validate their values.

Footer keys that Java's readers and its footer-based bloom index need (``HoodieAvroWriteSupport``):

==============================  =========================================================
parquet.avro.schema             Avro schema with the meta columns
writer.model.name               ``avro``
org.apache.hudi.bloomfilter     bloom filter over the record keys, as text
hoodie_bloom_filter_type_code   ``DYNAMIC_V0`` or ``SIMPLE``
hoodie_min_record_key, _max_    key range, by Java's string order; absent when the file has no rows
==============================  =========================================================

Statistics of row groups prove something only as follows:

* bounds of integers, booleans, dates, timestamps, decimals, strings and binaries. Arrow drops those of writers that
  ordered them wrongly (before ``TypeDefinedOrder``) and all of INT96. Shortened bounds of long strings are valid, since
  Parquet rounds the upper one up;
* no bounds of floats, as writers leave out NaN, the greatest value in Spark; none of decimals in bytes from parquet-mr
  before 1.10, which compared them as signed bytes (PARQUET-686); none of dates and timestamps of a file in another
  calendar;
* null counts if the footer has them. A null struct counts as a null of each of its leaves, as in a condition;
* a column that the file lacks is null in all of its rows.

Bounds are read raw, in the file's own type: Python's dates end with the year 9999, and the column's type may have been
widened since.

Memory: one batch of rows.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.errors import CorruptFileError, LakedexError, StorageError, UnsupportedFeatureError
from lakedex.io.storage import Storage, read_coalesced
from lakedex.parquet.chunk_reuse import StoredChunks, TeeSource
from lakedex.parquet.footer import FooterStats, bounds_array, group_spans, has_signed_bytes, index_bounds
from lakedex.parquet.page_index import Integers
from lakedex.parquet.page_reader import FetchRanges, PageReader
from lakedex.parquet.stored_values import LegacyCalendar, calendar_of, check_values, columns_to_validate
from lakedex.types import RECORD_KEY

__all__ = [
    "BaseFileReader",
    "ExistingBaseFile",
    "Footer",
    "FooterCache",
    "LeafStats",
    "iter_base_file",
    "open_for_merge",
    "open_for_scan",
    "open_parquet",
    "parquet_columns",
    "read_base_file",
    "read_footer",
    "read_schema",
    "validated_batches",
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
"""Row groups smaller than this in the file are cheap to encode again."""


REMOTE_BYTES = 1024 * 1024
"""Columns of fewer bytes are read whole from a remote storage, as that costs less than a request of the page index."""


SINGLE_READ_BYTES = 256 * 1024
"""Files up to this size are read in one request, as that costs no more than the latency of another."""


REMOTE_SINGLE_READ_BYTES = 1024 * 1024
"""The same on an object store, whose latency is that of more bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """Record keys in a base file's footer; None for what it does not have.

    ``dictionaries`` are the requested text columns that are read as dictionaries.
    """

    rows: int
    bloom: bytes | None
    bloom_type: str
    min_key: str | None
    max_key: str | None
    dictionaries: frozenset[str] = frozenset()


_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)
"""Exceptions of Arrow for damaged files; a damaged size may exhaust memory."""


def _unreadable(path: str, error: Exception) -> LakedexError:
    found = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedFeatureError(f"{path}: {found}", feature="Parquet unsupported by Arrow")
    return CorruptFileError(path, 0, "a readable Parquet file", found)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Report damage that Arrow finds as ``CorruptFileError``; pass errors of the file system through."""
    try:
        yield
    except StorageError:
        raise
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def _source(storage: Storage, path: str, size: int | None) -> BinaryIO:
    limit = SINGLE_READ_BYTES if storage.scheme == "file" else REMOTE_SINGLE_READ_BYTES
    small = size is not None and size <= limit
    return pa.BufferReader(storage.read(path)) if small else storage.open_input(path)


@contextmanager
def open_parquet(
    storage: Storage, path: str, footer: pq.FileMetaData | None = None, size: int | None = None
) -> Iterator[tuple[pq.ParquetFile, BinaryIO]]:
    """Open a Parquet file for this package; yield it with its source.

    A known ``footer`` is not read again. A file of a ``size`` up to ``SINGLE_READ_BYTES`` is read in one request.
    Damage that Arrow finds is a ``CorruptFileError``.
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
    """Read a base file in batches, in row order; ``columns`` that the file lacks are left out.

    A small file of known ``size`` is read in one request instead of three.
    """
    with open_parquet(storage, path, size=size) as (parquet, _):
        names = set(parquet.schema_arrow.names)
        wanted = None if columns is None else [name for name in columns if name in names]
        yield from validated_batches(parquet, batch_rows, wanted, row_groups)


def validated_batches(
    parquet: pq.ParquetFile,
    batch_rows: int,
    columns: Sequence[str] | None = None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read batches of an open file in the Gregorian calendar; invalid text is an ``ArrowInvalid``."""
    places: tuple[int, ...] | None = None
    calendar: LegacyCalendar | None = None
    # Handing little work to other threads takes longer than decoding it.
    threads = parquet.metadata.num_rows > THREADED_ROWS
    for batch in parquet.iter_batches(
        batch_size=batch_rows, columns=columns, row_groups=row_groups, use_threads=threads
    ):
        if places is None:
            places = columns_to_validate(batch.schema)
            calendar = calendar_of(parquet.metadata, batch.schema)
        check_values(batch, places)
        yield batch if calendar is None else calendar.moved(batch)


def read_base_file(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a base file, or some of its columns; None reads all."""
    schema = read_schema(storage, path)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns if name in schema.names])
    return pa.Table.from_batches(iter_base_file(storage, path, columns), schema)


def parquet_columns(content: bytes | memoryview, columns: Collection[str], path: str) -> pa.Table:
    """Read some columns of a Parquet file in memory, such as a PARQUET_DATA log block; absent columns are left out.

    Raises:
        CorruptFileError: The bytes are not a Parquet file; the error names ``path``.
    """
    with _damage(path), pq.ParquetFile(pa.BufferReader(content)) as parquet:
        wanted = [name for name in parquet.schema_arrow.names if name in columns]
        rows = parquet.read(wanted).replace_schema_metadata(None)
        check_values(rows, columns_to_validate(rows.schema))
        calendar = calendar_of(parquet.metadata, rows.schema)
        return rows if calendar is None else calendar.moved_table(rows)


def read_schema(storage: Storage, path: str) -> pa.Schema:
    """Arrow schema of a base file as stored, without footer metadata."""
    with open_parquet(storage, path) as (parquet, _):
        return parquet.schema_arrow.remove_metadata()


def read_footer(storage: Storage, path: str) -> Footer:
    """Key range and bloom filter from the footer."""
    with open_parquet(storage, path) as (parquet, _):
        return _footer(parquet, path)


class ExistingBaseFile:
    """An open base file whose rows are merged into a new one.

    Attributes:
        path: of the file.
        footer: Record keys in its footer.
        chunks: Column chunks that the new file may reuse; None if it may reuse none.
    """

    def __init__(
        self, parquet: pq.ParquetFile, source: TeeSource, path: str, names: Sequence[str], footer: Footer
    ) -> None:
        self.footer = footer
        self.chunks = StoredChunks.of(source, path, parquet.metadata)
        self._parquet = parquet
        self._source = source
        self.path = path
        self._names = names

    @property
    def appendable_row_group(self) -> int | None:
        """Number of the last row group if new rows should be appended to it, to limit the number of row groups.

        A group with half of the rows is not rewritten: the next one then has to grow to its size, which limits the
        number of groups to the logarithm of the rows.
        """
        last = int(self._parquet.num_row_groups) - 1
        if last < 0:
            return None
        has_half = self._parquet.metadata.row_group(last).num_rows * 2 >= self.footer.rows
        return None if has_half and self.is_large(last) else last

    def is_large(self, group: int) -> bool:
        """Whether a row group is worth copying rather than encoding it again with others."""
        stored = self._parquet.metadata.row_group(group)
        size = sum(int(stored.column(index).total_compressed_size) for index in range(stored.num_columns))
        return size >= LARGE_GROUP_BYTES

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Each row group with its rows in batches, to be consumed before the next one."""
        # One group at a time, as buffers are released only with their reader.
        for group in range(self._parquet.num_row_groups):
            self._source.forget()
            yield group, self._batches(group)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in batches."""
        for _, batches in self.groups():
            yield from batches

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        with _damage(self.path):
            yield from validated_batches(self._parquet, BATCH_ROWS, self._names, [group])


@contextmanager
def open_for_merge(
    storage: Storage,
    path: str,
    *,
    without: Collection[str] = (),
    dictionaries: Collection[str] = (),
    size: int | None = None,
) -> Iterator[ExistingBaseFile]:
    """Open a base file to merge it with other rows. Errors of the caller pass through.

    Args:
        storage: Storage of the table.
        path: Path of the file.
        without: Columns that are not read.
        dictionaries: Text columns to read as dictionaries if the file stores them so.
        size: Size in bytes; None if unknown. A small file is read in one request.
    """
    source = TeeSource(_source(storage, path, size))
    try:
        with _damage(path):
            parquet = pq.ParquetFile(source, pre_buffer=True)
            names = [name for name in parquet.schema_arrow.names if name not in without]
            texts = [name for name in names if name in dictionaries]
            encoded = FooterStats(parquet.metadata).encoded(texts, range(parquet.num_row_groups))
            if encoded:
                parquet = pq.ParquetFile(source, metadata=parquet.metadata, read_dictionary=encoded, pre_buffer=True)
            footer = replace(_footer(parquet, path), dictionaries=frozenset(encoded))
            stored = ExistingBaseFile(parquet, source, path, names, footer)
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


FOOTERS_BYTES = 64 << 20
"""Limit of cached footers as stored: 150 with Java's bloom filters, which take 430 KiB. Derived values take some 200
more bytes per requested column chunk, and 1,000 if pages of it are read."""


@dataclass(frozen=True, slots=True)
class LeafStats:
    """Statistics of one column, with one entry per row group. Null bounds and null counts of -1 are unknown."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: tuple[int, ...]


class BaseFileReader:
    """An open base file. Its footer is read once; rows are read batch by batch."""

    def __init__(
        self,
        parquet: pq.ParquetFile,
        source: BinaryIO,
        stats: FooterStats | None = None,
        *,
        fetch: FetchRanges | None = None,
        is_local: bool = False,
    ) -> None:
        """Wrap an open file.

        Args:
            parquet: Open file.
            source: Source of its bytes.
            stats: Statistics of its footer; None computes them.
            fetch: Reads byte ranges; None reads all rows from whole column chunks.
            is_local: Whether reading bytes twice is free, as on a local disk.
        """
        self._parquet = parquet
        self._dictionary_reader: pq.ParquetFile | None = None
        self._source = source
        self._is_local = is_local
        self._metadata = parquet.metadata
        self._stats = FooterStats(parquet.metadata) if stats is None else stats
        self.schema: pa.Schema = self._stats.schema
        self._pages: PageReader | None = None
        if fetch is not None:
            self._pages = PageReader(self._stats, fetch, source.seek(0, io.SEEK_END))

    @property
    def row_groups(self) -> int:
        """Number of row groups."""
        return int(self._metadata.num_row_groups)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._metadata.num_rows)

    @property
    def rows_per_group(self) -> list[int]:
        """Number of rows per row group."""
        return self._stats.rows_per_group

    @property
    def group_spans(self) -> list[tuple[int, int, int]]:
        """See :func:`lakedex.parquet.footer.group_spans`."""
        return group_spans(self._metadata)

    def stats(self, path: Sequence[str]) -> LeafStats | None:
        """Statistics of a column, or of a field inside struct columns; None if its type has none."""
        kind = self._type_of(path)
        if kind is None:
            nothing = pa.nulls(self.row_groups)
            return LeafStats(nothing, nothing, tuple(self.rows_per_group))
        index = self._stats.leaf(".".join(path))
        if index < 0 or pa.types.is_nested(kind):
            return None
        believed = self._is_believed(index, kind)
        chunks = [self._metadata.row_group(group).column(index).statistics for group in range(self.row_groups)]
        nulls = tuple(int(s.null_count) if s is not None and s.has_null_count else -1 for s in chunks)
        bounded = [s if believed and s is not None and s.has_min_max else None for s in chunks]
        low = bounds_array([None if s is None else s.min_raw for s in bounded], kind)
        high = bounds_array([None if s is None else s.max_raw for s in bounded], kind)
        return LeafStats(low, high, nulls)

    def _is_believed(self, index: int, kind: pa.DataType) -> bool:
        """Whether bounds of a leaf are in the order of its type."""
        decimal_bytes = pa.types.is_decimal(kind) and "BYTE_ARRAY" in self._parquet.schema.column(index).physical_type
        has_calendar = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        other_calendar = has_calendar and self._stats.calendar is not None
        return not (decimal_bytes and has_signed_bytes(self._metadata)) and not other_calendar

    def page_stats(self, columns: Sequence[str], group: int) -> dict[str, tuple[Integers, LeafStats]]:
        """First rows of the pages of a row group, and statistics of each; only of columns that have them.

        Null counts are those of whole pages. Columns without bounds of several pages are absent.
        """
        if self._pages is None or not self._is_worth_a_request(columns, group):
            return {}
        found = {}
        for name, (pages, index) in self._pages.column_indexes(columns, group).items():
            leaf, kind = self._stats.leaf(name), self.schema.field(name).type
            physical = self._parquet.schema.column(leaf).physical_type
            if self._is_believed(leaf, kind):
                low, high = (bounds_array(index_bounds(of, physical), kind) for of in (index.minima, index.maxima))
                found[name] = pages.rows[:-1], LeafStats(low, high, tuple(index.null_counts.tolist()))
        return found

    def rows_by_page(self, columns: Sequence[str], group: int, rows: Integers) -> dict[str, pa.Array]:
        """Values of some rows of a row group, from their pages alone.

        Args:
            columns: Names of top-level columns of the file.
            group: Number of the row group.
            rows: Positions in the row group, ascending, at least one.

        Returns:
            Values by column. Columns that are better read whole, or can only be read so, are absent.
        """
        constants = self._stats.constant_columns(columns, [group])
        found = {name: pa.repeat(value, len(rows)) for name, value in constants.items()}
        left = [name for name in columns if name not in constants]
        if left and self._pages is not None and self._is_worth_a_request(left, group):
            found |= self._pages.rows(left, group, rows)
        return found

    def _is_worth_a_request(self, columns: Sequence[str], group: int) -> bool:
        """Whether asking for the page index may save more bytes than the time of a request is worth."""
        return self._is_local or self.bytes_of(columns, [group]) >= REMOTE_BYTES

    @property
    def page_bytes_read(self) -> int:
        """Size of the pages that :meth:`rows_by_page` has read, in bytes."""
        return 0 if self._pages is None else self._pages.bytes_read

    def _type_of(self, path: Sequence[str]) -> pa.DataType | None:
        """Type of a column or field in this file; None if the file lacks it."""
        here: Any = self.schema
        kind: pa.DataType | None = None
        for part in path:
            position = here.get_field_index(part) if isinstance(here, pa.Schema | pa.StructType) else -1
            if position < 0:
                return None
            kind = here.field(position).type
            here = kind
        return kind

    def bytes_of(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """Stored size in bytes of some columns (or leaves) in some row groups, without constant columns."""
        if not groups:
            return 0
        prefixes = tuple(f"{name}." for name in columns)
        names = set(columns) - self._stats.constant_columns(columns, groups).keys()
        paths = enumerate(self._stats.paths)
        wanted = [index for index, path in paths if path in names or path.startswith(prefixes)]
        return sum(self._stats.chunk(group, index).stored for group in groups for index in wanted)

    def batches(
        self, columns: Sequence[str], groups: Sequence[int], batch_rows: int, *, dictionaries: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read rows of some row groups, at most ``batch_rows`` at once.

        Args:
            columns: Names, or dotted paths of leaves; those that the file lacks are left out.
            groups: Row groups, in the order of the result.
            batch_rows: Number of rows per batch.
            dictionaries: Read text columns with dictionary pages as dictionary arrays.
        """
        if not groups:
            return
        names = set(self.schema.names)
        known = [name for name in columns if name in names or name.split(".", 1)[0] in names]
        constants = self._stats.constant_columns(known, groups)
        known = [name for name in known if name not in constants]
        if constants and not known:
            batches = self._empty(groups, batch_rows)
        else:
            each = [
                self.duplicate_columns([RECORD_KEY], known, group) if RECORD_KEY in known else {} for group in groups
            ]
            duplicates = {name: same for name, same in each[0].items() if all(name in own for own in each)}
            read = [name for name in known if name not in duplicates]
            parquet = (
                self._with_dictionaries(groups) if dictionaries and self._stats.encoded(read, groups) else self._parquet
            )
            batches = validated_batches(parquet, batch_rows, read, list(groups))
            if duplicates:
                batches = (_with_duplicates(batch, duplicates) for batch in batches)
        for batch in batches:
            yield _with_constants(batch, constants) if constants else batch

    def _empty(self, groups: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Batches of rows without columns."""
        rows = sum(self.rows_per_group[group] for group in groups)
        for start in range(0, rows, batch_rows):
            nothing = pa.nulls(min(batch_rows, rows - start))
            yield pa.RecordBatch.from_arrays([nothing], names=[""]).select([])

    def _with_dictionaries(self, groups: Sequence[int]) -> pq.ParquetFile:
        """The same file, with text read as dictionaries if its row groups store it so."""
        if self._dictionary_reader is None:
            encoded = self._stats.encoded(self.schema.names, groups)
            self._dictionary_reader = pq.ParquetFile(self._source, metadata=self._metadata, read_dictionary=encoded)
        return self._dictionary_reader

    def constant_columns(self, columns: Sequence[str], group: int) -> dict[str, pa.Scalar]:
        """Values of those columns that have one stored value in all rows of a row group, by name."""
        return self._stats.constant_columns(columns, [group])

    def duplicate_columns(self, columns: Sequence[str], others: Sequence[str], group: int) -> dict[str, str]:
        """Map columns of ``others`` to a byte-identical one of ``columns``; one of each pair is the record key.

        In most tables the record key equals a column, and it is the most expensive to decode.
        """
        if not self._is_local:
            return {}
        pairs = [(name, other) for name in columns for other in others if name != other and RECORD_KEY in (name, other)]
        return {other: name for name, other in pairs if self._stats.has_same_bytes(name, other, group, self._source)}


class FooterCache:
    """Cache of footers, as base files never change. Shared by threads.

    Memory: ``FOOTERS_BYTES`` of footers as stored; the least recently used are evicted.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], FooterStats] = {}
        self._size = 0
        self._lock = threading.Lock()

    def stats(self, path: str, size: int) -> FooterStats | None:
        """Statistics of a cached footer, or None."""
        with self._lock:
            found = self._known.pop((path, size), None)
            if found is not None:
                self._known[path, size] = found
            return found

    def put(self, path: str, size: int, footer: pq.FileMetaData) -> None:
        """Add a footer."""
        with self._lock:
            if (path, size) not in self._known:
                self._known[path, size] = FooterStats(footer)
                self._size += footer.serialized_size
                while self._size > FOOTERS_BYTES:
                    self._size -= self._known.pop(next(iter(self._known))).metadata.serialized_size

    def __reduce__(self) -> tuple[type[FooterCache], tuple[()]]:
        """Pickle as an empty cache: tasks start without footers."""
        return FooterCache, ()


@contextmanager
def open_for_scan(
    storage: Storage, path: str, size: int = 0, footers: FooterCache | None = None
) -> Iterator[BaseFileReader]:
    """Open a base file.

    Args:
        storage: Storage of the table.
        path: Path of the file.
        size: Size of the file in bytes; required with ``footers``.
        footers: Cached footers, to which this one is added; None caches nothing.

    Raises:
        FileNotFoundError: The file does not exist.
        CorruptFileError: The file is not readable Parquet.
    """
    stats = None if footers is None else footers.stats(path, size)
    is_local = storage.scheme == "file"
    known = None if stats is None else stats.metadata
    with open_parquet(storage, path, known, None if is_local else size or None) as (parquet, source):
        if footers is not None and stats is None:
            footers.put(path, size, parquet.metadata)
            stats = footers.stats(path, size)
        fetch = _ranges_of(storage, path, source)
        yield BaseFileReader(parquet, source, stats, fetch=fetch, is_local=is_local)


def _ranges_of(storage: Storage, path: str, source: BinaryIO) -> FetchRanges:
    """Reader of byte ranges of a file; one that is in memory is not read again."""
    if not isinstance(source, pa.BufferReader):
        return partial(storage.read_ranges, path)

    def fetch(start: int, end: int) -> bytes:
        source.seek(start)
        data: bytes = source.read(end - start)
        return data

    return lambda ranges: read_coalesced(ranges, fetch, max_gap=0)[0]


def _with_constants(batch: pa.RecordBatch, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """Add constant columns to a batch."""
    columns = [*batch.columns, *(pa.repeat(value, batch.num_rows) for value in constants.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *constants])


def _with_duplicates(batch: pa.RecordBatch, duplicates: Mapping[str, str]) -> pa.RecordBatch:
    """Add copies of other columns to a batch."""
    columns = [*batch.columns, *(batch.column(same) for same in duplicates.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *duplicates])
