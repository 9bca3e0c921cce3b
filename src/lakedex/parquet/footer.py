"""Statistics of a base file's footer, as plain values.

A column chunk without nulls whose minimum equals its maximum is constant: it need not be read. Hudi writes three such
columns into each file (``_hoodie_partition_path``, ``_hoodie_file_name`` and, until a file is rewritten,
``_hoodie_commit_time``); partition columns are constant as well. Constants are derived for text, integers, booleans and
dates only: floats may be NaN, and decimals and timestamps depend on units.

Raw bounds of row groups and pages become values of a column's type; those that prove nothing become null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.parquet.conform import is_dictionary_encoded
from lakedex.parquet.page_index import ColumnIndex, PagedColumn
from lakedex.parquet.stored_values import LegacyCalendar, legacy_calendar
from lakedex.types import decimal_of

__all__ = [
    "PAGE_ROWS",
    "ChunkStats",
    "FooterStats",
    "bounds_array",
    "group_spans",
    "has_signed_bytes",
    "index_bounds",
]


PAGE_ROWS = 5120
"""Rows per page of new files. Fewer make point lookups quicker, but whole files slower to read and write."""


def group_spans(metadata: pq.FileMetaData) -> list[tuple[int, int, int]]:
    """Rows, first byte and size of the column chunks of each row group.

    The first byte is that of the first column. Readers of a byte range choose row groups by the middle of these
    bytes (``ParquetMetadataConverter.filterFileMetaDataByMidpoint``).
    """
    spans = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(index) for index in range(group.num_columns)]
        size = sum(int(chunk.total_compressed_size) for chunk in chunks)
        spans.append((int(group.num_rows), _start(chunks[0]), size))
    return spans


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    return int(min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset))


@dataclass(frozen=True, slots=True)
class ChunkStats:
    """Statistics of a column chunk.

    Attributes:
        stored: Size in the file, in bytes.
        start: Offset of its first byte in the file.
        is_dictionary_encoded: Whether it has dictionary indices.
        value: Value of all its rows, possibly null; None if they may differ.
    """

    stored: int
    start: int
    is_dictionary_encoded: bool
    value: pa.Scalar | None


class FooterStats:
    """Statistics of one file, computed on demand; threads may compute one twice, with the same result.

    Attributes:
        metadata: The footer.
        paged_columns: Columns by row group and name as :mod:`lakedex.parquet.page_reader` found them; None if they are
            read whole.
        page_bounds: Their column indexes; None if they have none.
    """

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self._chunks: dict[tuple[int, int], ChunkStats] = {}
        self._same_bytes: dict[tuple[int, int, int], bool] = {}
        self._has_pages: dict[int, bool] = {}
        self.paged_columns: dict[tuple[int, str], PagedColumn | None] = {}
        self.page_bounds: dict[tuple[int, str], ColumnIndex | None] = {}

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema of the file."""
        return self.metadata.schema.to_arrow_schema()

    @cached_property
    def calendar(self) -> LegacyCalendar | None:
        """Calendar of the file; None for the Gregorian one."""
        return legacy_calendar(self.metadata)

    @cached_property
    def rows_per_group(self) -> list[int]:
        """Number of rows per row group."""
        return [int(self.metadata.row_group(group).num_rows) for group in range(self.metadata.num_row_groups)]

    @cached_property
    def paths(self) -> list[str]:
        """Dotted path of each leaf."""
        schema = self.metadata.schema
        return [schema.column(index).path for index in range(self.metadata.num_columns)]

    @cached_property
    def _leaves(self) -> dict[str, int]:
        leaves: dict[str, int] = {}
        for index, path in enumerate(self.paths):
            leaves[path] = -1 if path in leaves else index
        return leaves

    def leaf(self, dotted: str) -> int:
        """Number of a Parquet leaf; -1 if there is none, or several (a column ``a.b`` beside a struct ``a``)."""
        return self._leaves.get(dotted, -1)

    def chunk(self, group: int, index: int) -> ChunkStats:
        """Statistics of a column chunk by row group and leaf."""
        found = self._chunks.get((group, index))
        if found is None:
            chunk = self.metadata.row_group(group).column(index)
            found = self._chunks[group, index] = ChunkStats(
                stored=int(chunk.total_compressed_size),
                start=_start(chunk),
                is_dictionary_encoded=is_dictionary_encoded(chunk),
                value=self._constant(chunk, index),
            )
        return found

    def _constant(self, chunk: pq.ColumnChunkMetaData, index: int) -> pa.Scalar | None:
        position = self.schema.get_field_index(self.paths[index])
        stats = chunk.statistics
        if position < 0 or stats is None or not stats.has_null_count:
            return None
        kind = self.schema.field(position).type
        if not _is_believed(kind) or (pa.types.is_date32(kind) and self.calendar is not None):
            return None
        if stats.null_count == chunk.num_values:
            return pa.scalar(None, kind)
        if stats.null_count or not stats.has_min_max or stats.min_raw != stats.max_raw:
            return None
        return _scalar(stats.min_raw, kind)

    def has_pages(self, group: int) -> bool:
        """Whether a row group may have several pages of which the file has an index."""
        known = self._has_pages.get(group)
        if known is None:
            row_group = self.metadata.row_group(group)
            indexed = any(row_group.column(index).has_offset_index for index in range(row_group.num_columns))
            known = self._has_pages[group] = indexed and self.rows_per_group[group] > PAGE_ROWS
        return known

    def constant_columns(self, names: Sequence[str], groups: Sequence[int]) -> dict[str, pa.Scalar]:
        """Values of those columns that have one value in all rows of some row groups, by name."""
        found: dict[str, pa.Scalar] = {}
        for name in names:
            index = self.leaf(name)
            values = [self.chunk(group, index).value for group in groups] if index >= 0 else [None]
            if all(value is not None and value.equals(values[0]) for value in values):
                found[name] = values[0]
        return found

    def has_same_bytes(self, name: str, other: str, group: int, source: BinaryIO) -> bool:
        """Whether two text columns have the same bytes, and so the same rows, in a row group."""
        leaves = self.leaf(name), self.leaf(other)
        if min(leaves) < 0:
            return False
        asked = (group, *leaves)
        found = self._same_bytes.get(asked)
        if found is None:
            found = self._same_bytes[asked] = self._has_same_bytes(group, leaves, source)
        return found

    def _text_shape(self, group: int, leaf: int) -> tuple[Any, ...] | None:
        """Properties that chunks with comparable bytes share; None if the chunk is not text, or has a dictionary."""
        chunk = self.metadata.row_group(group).column(leaf)
        place = self.schema.get_field_index(self.paths[leaf])
        if place < 0 or self.schema.field(place).type != pa.string() or chunk.has_dictionary_page:
            return None
        sizes = chunk.total_compressed_size, chunk.total_uncompressed_size
        return self.schema.field(place).nullable, chunk.compression, chunk.encodings, chunk.num_values, sizes

    def _has_same_bytes(self, group: int, leaves: tuple[int, int], source: BinaryIO) -> bool:
        shape, other = (self._text_shape(group, leaf) for leaf in leaves)
        if shape is None or shape != other:
            return False
        found = []
        for leaf in leaves:
            chunk = self.chunk(group, leaf)
            source.seek(chunk.start)
            found.append(source.read(chunk.stored))
        return len(found[0]) == chunk.stored and found[0] == found[1]

    def encoded(self, names: Sequence[str], groups: Sequence[int]) -> list[str]:
        """Those of the named text columns whose chunks in some row groups are dictionary-encoded."""
        known = set(self.schema.names)
        places = {name: self.leaf(name) for name in names if name in known}
        return [
            name
            for name, index in places.items()
            if index >= 0
            and groups
            and pa.types.is_string(self.schema.field(name).type)
            and all(self.chunk(group, index).is_dictionary_encoded for group in groups)
        ]


def _is_believed(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date32)
    return any(test(kind) for test in tests)


def _scalar(raw: Any, kind: pa.DataType) -> pa.Scalar | None:
    try:
        if pa.types.is_string(kind):
            return pa.scalar(bytes(raw).decode("utf-8"), kind)
        return pa.scalar(raw, pa.int32()).cast(kind) if pa.types.is_date32(kind) else pa.scalar(raw, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # The bytes are not a value of the column's type.


def has_signed_bytes(metadata: pq.FileMetaData) -> bool:
    """Whether the writer compared decimals as signed bytes."""
    old = _PARQUET_MR.match(metadata.created_by or "")
    return old is not None and int(old[1]) < 10


def _value(raw: Any, kind: pa.DataType) -> Any:
    """Convert a raw bound for :func:`bounds_array`; None if it proves nothing."""
    if raw is None:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            return None  # truncated in the middle of a character
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        return decimal_of(unscaled, kind.scale)
    return raw


_PARQUET_MR = re.compile(r"parquet-mr version 1\.([0-9]{1,9})")


_BOUND_TYPES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "BYTE_ARRAY": None, "FIXED_LEN_BYTE_ARRAY": None}
"""Size of bounds in a column index by physical type; None if they vary. Bounds of others prove nothing."""


def index_bounds(bounds: Sequence[bytes | None], physical: str) -> list[bytes | int | None]:
    """Bounds of a column index as Arrow gives those of row groups, by the column's physical type."""
    return [_raw(bound, physical) if physical in _BOUND_TYPES else None for bound in bounds]


def _raw(bound: bytes | None, physical: str) -> bytes | int | None:
    """A bound of a column index as those of row groups are given; None if it proves nothing."""
    size = _BOUND_TYPES[physical]
    if bound is None or size is None:
        return bound
    if len(bound) != size:
        return None
    return bound != b"\x00" if physical == "BOOLEAN" else int.from_bytes(bound, "little", signed=True)


def bounds_array(raw: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Bounds of a type by those that Arrow gives of row groups, or :func:`index_bounds`; None is unknown."""
    values = [_value(bound, kind) for bound in raw]
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
