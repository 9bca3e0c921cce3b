"""Decode and check Parquet's page index: where the pages of a column chunk are, and bounds of their values.

An index is believed only if it describes the chunk of the footer without a gap: pages follow each other from the first
data page to the end of the chunk, and their first rows increase from 0 and stay below the rows of the row group. All
else, an index that is absent or damaged too, is None: the chunk is then read whole.

======================  ==================================================================
``OffsetIndex``         1: pages, each 1: offset, 2: size with its header, 3: first row
``ColumnIndex``         1: which pages have only nulls, 2: minima, 3: maxima, 5: null counts
======================  ==================================================================

Memory: 16 bytes per page of the requested chunks, and its bounds if they are requested. Decoding an index, of at most
1 MiB, takes a hundred times its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lakedex.codec.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, decode_struct, encode_struct, structs
from lakedex.errors import CorruptFileError

__all__ = [
    "BOUNDS",
    "OFFSETS",
    "ColumnIndex",
    "Integers",
    "PagedChunk",
    "PagedColumn",
    "Pages",
    "column_index",
    "dictionary_page",
    "index_span",
    "is_elsewhere",
    "moved_indexes",
    "offset_index",
]


MAX_INDEX_BYTES = 1 << 20
"""Larger indexes are not read: their pages would be some 100,000."""


_NEARLY_ALL = 0.8


# ColumnChunk
OFFSETS, BOUNDS = (4, 5), (6, 7)


_FILE_PATH, _CRYPTO, _ENCRYPTED = 1, 8, 9


# ColumnMetaData
_DICTIONARY_PAGE = 11


Integers = npt.NDArray[np.int64]


_PAGES = 1


# PageLocation
_OFFSET, _SIZE, _FIRST_ROW = 1, 2, 3


_LOCATION = {_OFFSET: I64, _SIZE: I32, _FIRST_ROW: I64}


# ColumnIndex
_NULL_PAGES, _MINIMA, _MAXIMA, _NULL_COUNTS = 1, 2, 3, 5


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of a column chunk, in row order.

    Attributes:
        bounds: Offset of each page in the file, and the end of the last one.
        rows: First row of each page in its row group, and the rows of the row group.
    """

    bounds: Integers
    rows: Integers

    def __len__(self) -> int:
        """Number of pages."""
        return len(self.bounds) - 1

    def of_rows(self, rows: Integers) -> Integers:
        """Numbers of the pages that hold some of the row group's rows, ascending."""
        return np.unique(np.searchsorted(self.rows, rows, "right") - 1)


@dataclass(frozen=True, slots=True)
class PagedChunk:
    """A column chunk with its pages.

    Attributes:
        meta: Fields of its ``ColumnMetaData`` that do not depend on its place, encoded, as that takes less memory.
        plain: Bytes before compression.
        dictionary: Offset of its dictionary page; None if it has none.
        pages: Its data pages.
        bounds: Byte range of its column index; None if it has none.
    """

    meta: bytes
    plain: int
    dictionary: int | None
    pages: Pages
    bounds: tuple[int, int] | None

    @property
    def dictionary_span(self) -> tuple[int, int]:
        """Byte range of the dictionary page; empty if there is none."""
        first = int(self.pages.bounds[0])
        return (first if self.dictionary is None else self.dictionary), first

    def share(self, pages: Integers) -> float:
        """Share of the chunk's stored bytes that some pages and the dictionary have."""
        start, first = self.dictionary_span
        bounds = self.pages.bounds
        read = first - start + (bounds[pages + 1] - bounds[pages]).sum()
        return float(read / (bounds[-1] - start))


@dataclass(frozen=True, slots=True)
class PagedColumn:
    """A top-level column of one row group whose leaves have pages of the same rows.

    Attributes:
        file: Fields of ``FileMetaData`` that do not depend on columns or rows.
        root: ``SchemaElement`` of the file's root.
        elements: Those of the column and its descendants, encoded.
        chunks: One per leaf.
    """

    file: Struct
    root: Struct
    elements: tuple[bytes, ...]
    chunks: tuple[PagedChunk, ...]

    @property
    def pages(self) -> Pages:
        """Pages of the first leaf."""
        return self.chunks[0].pages


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """Raw bounds per page; None for a page of nulls. A null count of -1 is unknown."""

    minima: tuple[bytes | None, ...]
    maxima: tuple[bytes | None, ...]
    null_counts: Integers

    @property
    def is_uniform(self) -> bool:
        """Whether four of five pages have the same bounds."""
        (_, most), *_ = Counter(zip(self.minima, self.maxima, strict=True)).most_common(1)
        return most >= _NEARLY_ALL * len(self.minima)


def offset_index(data: bytes, start: int, end: int, rows: int) -> Pages | None:
    """Pages of a column chunk by its ``OffsetIndex``; None if it does not describe the chunk.

    Args:
        data: The index as stored.
        start: Offset of the chunk's first data page.
        end: Offset after the chunk.
        rows: Number of rows of the row group.
    """
    locations = _locations(data)
    if not locations:
        return None
    try:
        found = np.array([[page[number][1] for number in _LOCATION] for page in locations], np.int64).T
    except OverflowError:
        return None
    offsets, sizes, first_rows = found
    bounds = np.append(offsets, end)
    all_rows = np.append(first_rows, rows)
    follow = bounds[0] == start and (sizes > 0).all() and (sizes <= end - start).all()
    if not follow or not (bounds[:-1] + sizes == bounds[1:]).all():
        return None
    if all_rows[0] != 0 or not (all_rows[1:] > all_rows[:-1]).all():
        return None
    return Pages(bounds, all_rows)


def _locations(data: bytes) -> list[Struct] | None:
    fields = _decoded(data)
    if fields is None or not _is_list(fields, _PAGES, STRUCT):
        return None
    locations = structs(fields, _PAGES)
    complete = all(
        number in page and page[number][0] == kind for page in locations for number, kind in _LOCATION.items()
    )
    return locations if complete else None


def moved_indexes(offsets: bytes, bounds: bytes, start: int, end: int, rows: int, by: int) -> tuple[bytes, bytes]:
    """Offset index and column index of a chunk that moves; each is empty if it is absent or not believed.

    Args:
        offsets: Offset index as stored.
        bounds: Column index as stored.
        start: Offset of the chunk's first data page, before the move.
        end: Offset after the chunk.
        rows: Number of rows of the row group.
        by: Bytes by which the chunk moves.
    """
    pages = offset_index(offsets, start, end, rows)
    if pages is None:
        return b"", b""
    moved = [page | {_OFFSET: (I64, page[_OFFSET][1] + by)} for page in _locations(offsets) or ()]
    kept = bounds if column_index(bounds, len(pages)) is not None else b""
    return encode_struct({_PAGES: (LIST, (STRUCT, moved))}), kept


def column_index(data: bytes, pages: int) -> ColumnIndex | None:
    """Bounds by a ``ColumnIndex``; None if it does not describe a number of pages."""
    fields = _decoded(data)
    if fields is None or not all(_is_list(fields, number, BINARY) for number in (_MINIMA, _MAXIMA)):
        return None
    # Writers disagree on the kind of truths in a list; each is a byte of 1 or 2 (some write 0 for false).
    if fields.get(_NULL_PAGES, (0, None))[0] != LIST or fields[_NULL_PAGES][1][0] not in (1, 2):
        return None
    nothing: Sequence[Any] = [-1] * pages
    counts = fields[_NULL_COUNTS][1][1] if _is_list(fields, _NULL_COUNTS, I64) else nothing
    nulls, minima, maxima = (fields[number][1][1] for number in (_NULL_PAGES, _MINIMA, _MAXIMA))
    if {len(nulls), len(minima), len(maxima), len(counts)} != {pages}:
        return None
    try:
        null_counts = np.array(counts, np.int64)
    except OverflowError:
        return None
    return ColumnIndex(
        tuple(None if missing == 1 else value for missing, value in zip(nulls, minima, strict=True)),
        tuple(None if missing == 1 else value for missing, value in zip(nulls, maxima, strict=True)),
        null_counts,
    )


def _decoded(data: bytes) -> Struct | None:
    try:
        return decode_struct(data)
    except CorruptFileError:
        return None


def _is_list(fields: Struct, number: int, kind: int) -> bool:
    return number in fields and fields[number][0] == LIST and fields[number][1][0] == kind


def index_span(chunk: Struct, fields: tuple[int, int]) -> tuple[int, int] | None:
    """Byte range of an index of a ``ColumnChunk``, :data:`OFFSETS` or :data:`BOUNDS`; None if absent or too large."""
    offset, size = (chunk.get(number, (0, 0))[1] for number in fields)
    return (offset, offset + size) if 0 < size <= MAX_INDEX_BYTES and offset > 0 else None


def is_elsewhere(chunk: Struct) -> bool:
    """Whether a ``ColumnChunk`` lies in another file, or is encrypted."""
    return any(number in chunk for number in (_FILE_PATH, _CRYPTO, _ENCRYPTED))


def dictionary_page(meta: Struct) -> int | None:
    """Offset of the dictionary page of a ``ColumnMetaData``; None if it has none, for which some writers store 0."""
    offset: int = meta.get(_DICTIONARY_PAGE, (0, 0))[1]
    return offset if offset > 0 else None
