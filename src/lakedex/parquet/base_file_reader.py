"""Read base files: whole, as row groups under a predicate, or for a merge; values are validated.

Base files: Parquet with Hudi's meta columns and footer keys. Only this package opens Parquet.

Footer keys that Java's readers and its footer-based bloom index need (``HoodieAvroWriteSupport``):

==============================  =========================================================
parquet.avro.schema             Avro schema with the meta columns
writer.model.name               ``avro``
org.apache.hudi.bloomfilter     bloom filter over the record keys, as text
hoodie_bloom_filter_type_code   ``DYNAMIC_V0`` or ``SIMPLE``
hoodie_min_record_key, _max_    key range, by Java's string order; absent when the file has no rows
==============================  =========================================================

Memory: a reader holds one batch, a writer one row group.

Row groups of a base file: what their own statistics prove of a column, and their rows.

What is believed of a footer, and why nothing else is:

* bounds of integers, booleans, dates, timestamps, decimals, strings and binaries. Arrow itself refuses those of writers
  that ordered them wrongly (before ``TypeDefinedOrder``) and all of INT96. A writer may have shortened the bounds of
  long strings; they are bounds all the same, since Parquet has the upper one raised then;
* no bounds of floats: a writer leaves NaN out of them, which is the greatest value in Spark; and none of decimals in
  bytes from parquet-mr before 1.10, which compared them byte by byte with signs (PARQUET-686); none of dates and
  timestamps of a file in another calendar;
* null counts where the footer has one. A null struct counts as a null of each of its leaves, as it does in a condition;
* a column that the file lacks is null in all of its rows.

Values are taken raw, in the file's own type: Python's dates end with the year 9999, and a column may have been widened
since.
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
from lakedex.parquet.calendars import LegacyCalendar, calendar_of
from lakedex.parquet.chunk_reuse import StoredChunks, TeeSource
from lakedex.parquet.conform import encoded_columns
from lakedex.parquet.footer import FooterStats
from lakedex.parquet.validated_values import check_values, fallible_columns
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


class ExistingBaseFile:
    """An open base file whose rows a new one takes up.

    Attributes:
        footer: what it says.
        chunks: those that the new file may take over as they are; None if it may not.
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
def open_for_merge(
    storage: Storage,
    path: str,
    *,
    without: Collection[str] = (),
    dictionaries: Collection[str] = (),
    size: int | None = None,
) -> Iterator[ExistingBaseFile]:
    """A base file to be merged with other rows, opened once. Errors of the caller's own pass through.

    Args:
        storage: where.
        path: the file.
        without: columns that are not read.
        dictionaries: text columns that may come as dictionaries, where the file has them so.
        size: in bytes, if it is known; a small file is read in one request.
    """
    source = TeeSource(_source(storage, path, size))
    try:
        with _damage(path):
            parquet = pq.ParquetFile(source, pre_buffer=True)
            names = [name for name in parquet.schema_arrow.names if name not in without]
            encoded = encoded_columns(parquet.metadata, parquet.schema_arrow, [n for n in names if n in dictionaries])
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
"""A bloom filter of Java's makes a footer 430 KiB large, so these are 150 of them. What was worked out of it, some 200
bytes a column chunk that was asked for, comes on top."""


@dataclass(frozen=True, slots=True)
class LeafStats:
    """What is known of one column, an entry a row group. Null bounds and null counts of -1 are unknown."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: tuple[int, ...]


class BaseFileReader:
    """An open base file. Its footer is read once; rows come one batch at a time."""

    def __init__(
        self, parquet: pq.ParquetFile, source: BinaryIO, facts: FooterStats | None = None, *, is_local: bool = False
    ) -> None:
        """A reader.

        Args:
            parquet: the open file.
            source: what it reads from.
            facts: of its footer, if they are known from earlier.
            is_local: bytes of it are there at once; asking for them twice costs nothing.
        """
        self._parquet = parquet
        self._coded: pq.ParquetFile | None = None
        self._source = source
        self._is_local = is_local
        self._metadata = parquet.metadata
        self._facts = FooterStats(parquet.metadata) if facts is None else facts
        self.schema: pa.Schema = self._facts.schema

    @property
    def row_groups(self) -> int:
        """How many there are."""
        return int(self._metadata.num_row_groups)

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self._metadata.num_rows)

    @property
    def rows_per_group(self) -> list[int]:
        """Rows of each row group."""
        return self._facts.rows_per_group

    @property
    def group_spans(self) -> list[tuple[int, int]]:
        """First byte of each row group in the file, and how many bytes its column chunks take.

        The first byte is that of the first column: half of the bytes further lies the middle by which a reader of a
        byte range chooses row groups (``ParquetMetadataConverter.filterFileMetaDataByMidpoint``).
        """
        spans = []
        for number in range(self.row_groups):
            group = self._metadata.row_group(number)
            chunks = [group.column(index) for index in range(group.num_columns)]
            first = chunks[0]
            start = min(first.data_page_offset, first.dictionary_page_offset or first.data_page_offset)
            spans.append((int(start), sum(int(chunk.total_compressed_size) for chunk in chunks)))
        return spans

    def stats(self, path: Sequence[str]) -> LeafStats | None:
        """Statistics of a column, or of a field inside struct columns; None where there can be none."""
        kind = self._type_of(path)
        if kind is None:
            nothing = pa.nulls(self.row_groups)
            return LeafStats(nothing, nothing, tuple(self.rows_per_group))
        index = self._facts.leaf(".".join(path))
        if index < 0 or pa.types.is_nested(kind):
            return None
        decimal_bytes = pa.types.is_decimal(kind) and "BYTE_ARRAY" in self._parquet.schema.column(index).physical_type
        has_calendar = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        other_calendar = has_calendar and self._facts.calendar is not None
        believed = not (decimal_bytes and _has_signed_bytes(self._metadata)) and not other_calendar
        chunks = [self._metadata.row_group(group).column(index).statistics for group in range(self.row_groups)]
        nulls = tuple(int(s.null_count) if s is not None and s.has_null_count else -1 for s in chunks)
        bounded = [s if believed and s is not None and s.has_min_max else None for s in chunks]
        lows = [None if s is None else _value(s.min_raw, kind) for s in bounded]
        highs = [None if s is None else _value(s.max_raw, kind) for s in bounded]
        return LeafStats(_array(lows, kind), _array(highs, kind), nulls)

    def _type_of(self, path: Sequence[str]) -> pa.DataType | None:
        """Type of a column or field in this file; None where the file lacks it."""
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
        """Stored size of some columns (or leaves) in some row groups, in bytes, without those that the footer tells."""
        if not groups:
            return 0
        prefixes = tuple(f"{name}." for name in columns)
        names = set(columns) - self._facts.constant_columns(columns, groups).keys()
        paths = enumerate(self._facts.paths)
        wanted = [index for index, path in paths if path in names or path.startswith(prefixes)]
        return sum(self._facts.chunk(group, index).stored for group in groups for index in wanted)

    def batches(
        self, columns: Sequence[str], groups: Sequence[int], batch_rows: int, *, coded: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Rows of some row groups, at most ``batch_rows`` at once.

        Args:
            columns: names, or dotted paths of leaves; those it lacks are left out.
            groups: in the order in which they come.
            batch_rows: rows of a batch.
            coded: strings of few values come as dictionary arrays.
        """
        if not groups:
            return
        names = set(self.schema.names)
        known = [name for name in columns if name in names or name.split(".", 1)[0] in names]
        told = self._facts.constant_columns(known, groups)
        known = [name for name in known if name not in told]
        if told and not known:
            batches = self._empty(groups, batch_rows)
        else:
            each = [self.twins([RECORD_KEY], known, group) if RECORD_KEY in known else {} for group in groups]
            twins = {name: same for name, same in each[0].items() if all(name in own for own in each)}
            read = [name for name in known if name not in twins]
            parquet = self._for_codes(groups) if coded and self._facts.encoded(read, groups) else self._parquet
            batches = sound_batches(parquet, batch_rows, read, list(groups))
            if twins:
                batches = (_with_duplicates(batch, twins) for batch in batches)
        for batch in batches:
            yield _with_constants(batch, told) if told else batch

    def _empty(self, groups: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Batches without columns."""
        rows = sum(self.rows_per_group[group] for group in groups)
        for start in range(0, rows, batch_rows):
            nothing = pa.nulls(min(batch_rows, rows - start))
            yield pa.RecordBatch.from_arrays([nothing], names=[""]).select([])

    def _for_codes(self, groups: Sequence[int]) -> pq.ParquetFile:
        """The same file, text in dictionaries where its row groups have it so."""
        if self._coded is None:
            encoded = self._facts.encoded(self.schema.names, groups)
            self._coded = pq.ParquetFile(self._source, metadata=self._metadata, read_dictionary=encoded)
        return self._coded

    def constant_columns(self, columns: Sequence[str], group: int) -> dict[str, pa.Scalar]:
        """Of some columns those that have one value in all rows of a row group, and that value as it is stored."""
        return self._facts.constant_columns(columns, [group])

    def twins(self, columns: Sequence[str], others: Sequence[str], group: int) -> dict[str, str]:
        """Which of some other columns are, byte by byte, one of the columns: the record key and a column it is made of.

        The record key of most tables is a column of theirs, and nothing takes so long to decode.
        """
        if not self._is_local:
            return {}
        pairs = [(name, other) for name in columns for other in others if name != other and RECORD_KEY in (name, other)]
        return {other: name for name, other in pairs if self._facts.has_same_bytes(name, other, group, self._source)}


class FooterCache:
    """Footers of files that were opened, for the next time: base files never change. Shared by threads.

    Memory: ``FOOTERS_BYTES`` of them as they are stored; those opened last stay.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], FooterStats] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str, size: int) -> pq.FileMetaData | None:
        """The footer of a file of so many bytes, if it is held."""
        facts = self.facts(path, size)
        return None if facts is None else facts.metadata

    def facts(self, path: str, size: int) -> FooterStats | None:
        """What is known of such a footer."""
        with self._lock:
            found = self._known.pop((path, size), None)
            if found is not None:
                self._known[path, size] = found
            return found

    def keep(self, path: str, size: int, footer: pq.FileMetaData) -> None:
        """Hold a footer."""
        with self._lock:
            if (path, size) not in self._known:
                self._known[path, size] = FooterStats(footer)
                self._size += footer.serialized_size
                while self._size > FOOTERS_BYTES:
                    self._size -= self._known.pop(next(iter(self._known))).metadata.serialized_size

    def __reduce__(self) -> tuple[type[FooterCache], tuple[()]]:
        """Tasks begin without any."""
        return FooterCache, ()


@contextmanager
def open_for_scan(
    storage: Storage, path: str, size: int = 0, footers: FooterCache | None = None
) -> Iterator[BaseFileReader]:
    """Open a base file.

    Args:
        storage: where.
        path: the file.
        size: of the file in bytes; only with ``footers``.
        footers: those that are known, to which this one is added.

    Raises:
        FileNotFoundError: it is gone.
        CorruptFileError: it is no readable Parquet file.
    """
    facts = None if footers is None else footers.facts(path, size)
    with open_parquet(storage, path, None if facts is None else facts.metadata) as (parquet, source):
        if footers is not None and facts is None:
            footers.keep(path, size, parquet.metadata)
            facts = footers.facts(path, size)
        yield BaseFileReader(parquet, source, facts, is_local=storage.scheme == "file")


def _with_constants(batch: pa.RecordBatch, told: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """A batch with columns of one value each besides."""
    columns = [*batch.columns, *(pa.repeat(value, batch.num_rows) for value in told.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *told])


def _with_duplicates(batch: pa.RecordBatch, twins: Mapping[str, str]) -> pa.RecordBatch:
    """A batch with columns that are the same as others of it."""
    columns = [*batch.columns, *(batch.column(same) for same in twins.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *twins])


def _has_signed_bytes(metadata: pq.FileMetaData) -> bool:
    """Whether the writer compared decimals byte by byte with signs."""
    old = _PARQUET_MR.match(metadata.created_by or "")
    return old is not None and int(old[1]) < 10


def _value(raw: Any, kind: pa.DataType) -> Any:
    """A raw bound as something that :func:`_array` takes; None where it proves nothing."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            return None  # shortened in the middle of a character
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
            # In microseconds: a condition's literals are.
            return pa.array(values, pa.int64()).cast(kind).cast(pa.timestamp("us", kind.tz))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # bounds that are no values of the column's type prove nothing
    return pa.nulls(len(values))


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)
