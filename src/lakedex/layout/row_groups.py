"""Row groups of a base file: what their own statistics prove of a column, and their rows.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.io.storage import Storage
from lakedex.layout.base_file import open_parquet, sound_batches
from lakedex.layout.footer_facts import FooterFacts
from lakedex.types import RECORD_KEY

__all__ = ["BaseFileReader", "Footers", "LeafStats", "open_base_file"]

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
        self, parquet: pq.ParquetFile, source: BinaryIO, facts: FooterFacts | None = None, *, is_local: bool = False
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
        self._facts = FooterFacts(parquet.metadata) if facts is None else facts
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
        names = set(columns) - self._facts.only_values(columns, groups).keys()
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
        told = self._facts.only_values(known, groups)
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
                batches = (_with_twins(batch, twins) for batch in batches)
        for batch in batches:
            yield _with_values(batch, told) if told else batch

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

    def only_values(self, columns: Sequence[str], group: int) -> dict[str, pa.Scalar]:
        """Of some columns those that have one value in all rows of a row group, and that value as it is stored."""
        return self._facts.only_values(columns, [group])

    def twins(self, columns: Sequence[str], others: Sequence[str], group: int) -> dict[str, str]:
        """Which of some other columns are, byte by byte, one of the columns: the record key and a column it is made of.

        The record key of most tables is a column of theirs, and nothing takes so long to decode.
        """
        if not self._is_local:
            return {}
        pairs = [(name, other) for name in columns for other in others if name != other and RECORD_KEY in (name, other)]
        return {other: name for name, other in pairs if self._facts.is_twin(name, other, group, self._source)}


class Footers:
    """Footers of files that were opened, for the next time: base files never change. Shared by threads.

    Memory: ``FOOTERS_BYTES`` of them as they are stored; those opened last stay.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], FooterFacts] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str, size: int) -> pq.FileMetaData | None:
        """The footer of a file of so many bytes, if it is held."""
        facts = self.facts(path, size)
        return None if facts is None else facts.metadata

    def facts(self, path: str, size: int) -> FooterFacts | None:
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
                self._known[path, size] = FooterFacts(footer)
                self._size += footer.serialized_size
                while self._size > FOOTERS_BYTES:
                    self._size -= self._known.pop(next(iter(self._known))).metadata.serialized_size

    def __reduce__(self) -> tuple[type[Footers], tuple[()]]:
        """Tasks begin without any."""
        return Footers, ()


@contextmanager
def open_base_file(
    storage: Storage, path: str, size: int = 0, footers: Footers | None = None
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


def _with_values(batch: pa.RecordBatch, told: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """A batch with columns of one value each besides."""
    columns = [*batch.columns, *(pa.repeat(value, batch.num_rows) for value in told.values())]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *told])


def _with_twins(batch: pa.RecordBatch, twins: Mapping[str, str]) -> pa.RecordBatch:
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
