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

import decimal
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.errors import CorruptFileError, LakedexError, StorageError, UnsupportedFeatureError
from lakedex.io.storage import Storage
from lakedex.parquet.chunk_reuse import StoredChunks, TeeSource
from lakedex.parquet.footer import FooterStats, group_spans
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
        self._path = path
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
        with _damage(self._path):
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
more bytes per requested column chunk."""


@dataclass(frozen=True, slots=True)
class LeafStats:
    """Statistics of one column, with one entry per row group. Null bounds and null counts of -1 are unknown."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: tuple[int, ...]


class BaseFileReader:
    """An open base file. Its footer is read once; rows are read batch by batch."""

    def __init__(
        self, parquet: pq.ParquetFile, source: BinaryIO, stats: FooterStats | None = None, *, is_local: bool = False
    ) -> None:
        """Wrap an open file.

        Args:
            parquet: Open file.
            source: Source of its bytes.
            stats: Statistics of its footer; None computes them.
            is_local: Whether reading bytes twice is free, as on a local disk.
        """
        self._parquet = parquet
        self._dictionary_reader: pq.ParquetFile | None = None
        self._source = source
        self._is_local = is_local
        self._metadata = parquet.metadata
        self._stats = FooterStats(parquet.metadata) if stats is None else stats
        self.schema: pa.Schema = self._stats.schema

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
        decimal_bytes = pa.types.is_decimal(kind) and "BYTE_ARRAY" in self._parquet.schema.column(index).physical_type
        has_calendar = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        other_calendar = has_calendar and self._stats.calendar is not None
        believed = not (decimal_bytes and _has_signed_bytes(self._metadata)) and not other_calendar
        chunks = [self._metadata.row_group(group).column(index).statistics for group in range(self.row_groups)]
        nulls = tuple(int(s.null_count) if s is not None and s.has_null_count else -1 for s in chunks)
        bounded = [s if believed and s is not None and s.has_min_max else None for s in chunks]
        lows = [None if s is None else _value(s.min_raw, kind) for s in bounded]
        highs = [None if s is None else _value(s.max_raw, kind) for s in bounded]
        return LeafStats(_array(lows, kind), _array(highs, kind), nulls)

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
        yield BaseFileReader(parquet, source, stats, is_local=is_local)


def _with_constants(batch: pa.RecordBatch, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """Add constant columns to a batch."""
    columns = [*batch.columns, *(pa.repeat(value, batch.num_rows) for value in constants.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *constants])


def _with_duplicates(batch: pa.RecordBatch, duplicates: Mapping[str, str]) -> pa.RecordBatch:
    """Add copies of other columns to a batch."""
    columns = [*batch.columns, *(batch.column(same) for same in duplicates.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *duplicates])


def _has_signed_bytes(metadata: pq.FileMetaData) -> bool:
    """Whether the writer compared decimals as signed bytes."""
    old = _PARQUET_MR.match(metadata.created_by or "")
    return old is not None and int(old[1]) < 10


def _value(raw: Any, kind: pa.DataType) -> Any:
    """Convert a raw bound for :func:`_array`; None if it proves nothing."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            return None  # truncated in the middle of a character
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        return decimal.Decimal(unscaled).scaleb(-kind.scale, _WIDE)
    return raw


_PARQUET_MR = re.compile(r"parquet-mr version 1\.([0-9]{1,9})")


_WIDE = decimal.Context(prec=80)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind):
            return pa.array(values, kind)
        if _is_text_or_bytes(kind):
            return pa.array(values, kind)
        if pa.types.is_date32(kind):
            return pa.array(values, pa.int32()).cast(kind)
        if pa.types.is_timestamp(kind) and kind.unit != "ns":
            # In microseconds, as literals of conditions.
            return pa.array(values, pa.int64()).cast(kind).cast(pa.timestamp("us", kind.tz))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # bounds outside of the column's type prove nothing
    return pa.nulls(len(values))


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)
