"""Row groups of a base file: what their own statistics prove of a column, and their rows.

What is believed of a footer, and why nothing else is:

* bounds of integers, booleans, dates, timestamps, decimals, strings and binaries. Arrow itself refuses those of writers
  that ordered them wrongly (before ``TypeDefinedOrder``) and all of INT96. A writer may have shortened the bounds of
  long strings; they are bounds all the same, since Parquet has the upper one raised then;
* no bounds of floats: a writer leaves NaN out of them, which is the greatest value in Spark; and none of decimals in
  bytes from parquet-mr before 1.10, which compared them byte by byte with signs (PARQUET-686);
* null counts where the footer has one. A null struct counts as a null of each of its leaves, as it does in a condition;
* a column that the file lacks is null in all of its rows.

Values are taken raw, in the file's own type: Python's dates end with the year 9999, and a column may have been widened
since.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.io.storage import Storage
from lakedex.layout.base_file import open_parquet

__all__ = ["BaseFileReader", "LeafStats", "open_base_file"]


@dataclass(frozen=True, slots=True)
class LeafStats:
    """What is known of one column, an entry a row group. Null bounds and null counts of -1 are unknown."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: tuple[int, ...]


class BaseFileReader:
    """An open base file. Its footer is read once; rows come one batch at a time."""

    def __init__(self, parquet: pq.ParquetFile) -> None:
        self._parquet = parquet
        self._metadata = parquet.metadata
        self.schema: pa.Schema = parquet.schema_arrow
        self._leaves: dict[str, int] | None = None
        old = _PARQUET_MR.match(self._metadata.created_by or "")
        self._signed_bytes = old is not None and int(old[1]) < 10

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
        return [int(self._metadata.row_group(group).num_rows) for group in range(self.row_groups)]

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
        index = self._leaf(".".join(path))
        if index < 0 or pa.types.is_nested(kind):
            return None
        decimal_bytes = pa.types.is_decimal(kind) and "BYTE_ARRAY" in self._parquet.schema.column(index).physical_type
        believed = not (decimal_bytes and self._signed_bytes)
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

    def _leaf(self, dotted: str) -> int:
        """Number of a Parquet leaf; -1 where there is none, or several (a column ``a.b`` beside a struct ``a``)."""
        if self._leaves is None:
            self._leaves = {}
            for index in range(self._metadata.num_columns):
                path = self._parquet.schema.column(index).path
                self._leaves[path] = -1 if path in self._leaves else index
        return self._leaves.get(dotted, -1)

    def bytes_of(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """Stored size of some columns (or leaves) in some row groups, in bytes."""
        prefixes = tuple(f"{name}." for name in columns)
        names = set(columns)
        wanted = [
            index
            for index in range(self._metadata.num_columns)
            if (path := self._parquet.schema.column(index).path) in names or path.startswith(prefixes)
        ]
        return sum(
            int(row_group.column(index).total_compressed_size)
            for row_group in (self._metadata.row_group(group) for group in groups)
            for index in wanted
        )

    def batches(self, columns: Sequence[str], groups: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Rows of some row groups. ``columns`` are names, or dotted paths of leaves; those it lacks are left out."""
        if not groups:
            return
        names = set(self.schema.names)
        known = [name for name in columns if name in names or name.split(".", 1)[0] in names]
        yield from self._parquet.iter_batches(batch_size=batch_rows, columns=known, row_groups=list(groups))


@contextmanager
def open_base_file(storage: Storage, path: str) -> Iterator[BaseFileReader]:
    """Open a base file.

    Raises:
        FileNotFoundError: it is gone.
        CorruptFileError: it is no readable Parquet file.
    """
    with open_parquet(storage, path) as parquet:
        yield BaseFileReader(parquet)


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
