"""Read rows of a base file by position: only the pages that hold them, found by the page index.

Arrow reads whole column chunks. It is given a small Parquet file instead, made in memory of the dictionary pages and
data pages of the wanted rows under a footer of their own. Its row group claims one row more than the index does, so
that a page with other rows than the index says shows: Arrow then returns another number of rows.

Columns are left to the reader of whole chunks if the pages hold most of the rows. So is a column whose leaves are cut
into pages in different places, that is encrypted, stored elsewhere or has no valid page index, or whose pages Arrow
cannot decode.

Memory: the pages of the wanted rows, stored and decoded; at most half of the columns' bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.codec.thrift import I32, I64, LIST, STRUCT, Struct, decode_struct, encode_struct, structs
from lakedex.parquet.chunk_reuse import Elements, column_elements, footer_tree
from lakedex.parquet.footer import FooterStats
from lakedex.parquet.page_index import (
    BOUNDS,
    OFFSETS,
    ColumnIndex,
    Integers,
    PagedChunk,
    PagedColumn,
    Pages,
    column_index,
    dictionary_page,
    index_span,
    is_elsewhere,
    offset_index,
)
from lakedex.parquet.stored_values import check_values, columns_to_validate

__all__ = ["FetchRanges", "PageReader"]


FetchRanges = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads half-open byte ranges of the file."""


LARGEST_SHARE = 0.5
"""Share of the columns' bytes up to which pages are read alone."""


_MAGIC = b"PAR1"


# FileMetaData
_VERSION, _SCHEMA, _ROWS, _ROW_GROUPS, _CREATED_BY, _ENCRYPTION = 1, 2, 3, 4, 6, 8


# SchemaElement
_CHILDREN = 5


# RowGroup
_COLUMNS, _GROUP_PLAIN, _GROUP_ROWS = 1, 2, 3


# ColumnChunk
_CHUNK_START, _META = 2, 3


# ColumnMetaData
_VALUES, _PLAIN, _STORED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 6, 7, 9, 11


_KEPT_META = range(1, 6)  # type, encodings, path, codec, number of values


@dataclass(frozen=True, slots=True)
class _Selection:
    """Columns whose wanted rows lie in pages of the same rows."""

    names: list[str]
    columns: list[PagedColumn]
    first: Integers
    end: Integers

    @property
    def rows(self) -> int:
        """Rows of the pages."""
        return int((self.end - self.first).sum())

    def places(self, rows: Integers) -> Integers:
        """Positions of rows of the row group among the rows of the pages."""
        page = np.searchsorted(self.first, rows, "right") - 1
        before = np.cumsum(self.end - self.first) - (self.end - self.first)
        places: Integers = before[page] + rows - self.first[page]
        return places


class PageReader:
    """Reads pages of one base file.

    Attributes:
        bytes_read: Size of the pages read so far, in bytes.
    """

    def __init__(self, stats: FooterStats, fetch: FetchRanges, size: int) -> None:
        """Wrap a file.

        Args:
            stats: Statistics of its footer, which keep decoded page indexes.
            fetch: Reads byte ranges of the file.
            size: Size of the file in bytes.
        """
        self._stats = stats
        self._fetch = fetch
        self._size = size
        self.bytes_read = 0

    def rows(self, names: Sequence[str], group: int, rows: Integers) -> dict[str, pa.Array]:
        """Values of some rows for those columns of which reading pages pays; the others are absent.

        Args:
            names: Top-level columns of the file.
            group: Number of the row group.
            rows: Positions in the row group, ascending, at least one.
        """
        found: dict[str, pa.Array] = {}
        if len(rows) > LARGEST_SHARE * self._stats.rows_per_group[group]:
            return found
        for selection in self._selections(names, group, rows):
            values = self._decoded(selection, rows)
            if not values:
                self._stats.paged_columns.update(dict.fromkeys((group, name) for name in selection.names))
            found |= values
        return found

    def column_indexes(self, names: Sequence[str], group: int) -> dict[str, tuple[Pages, ColumnIndex]]:
        """Bounds of the pages of those columns that have them and several pages; of columns without nested fields.

        Nor of columns whose pages nearly all have the same: values that are spread so are in most pages or in none.
        """
        known = self._stats.page_bounds
        wanted = {}
        for name, column in self._columns(names, group).items():
            span = column.chunks[0].bounds
            if len(column.elements) == 1 and span is not None and len(column.pages) > 1:
                wanted[name] = column.pages, span
        missing = [name for name in wanted if (group, name) not in known]
        for name, data in zip(missing, self._fetch([wanted[name][1] for name in missing]), strict=True):
            index = column_index(data, len(wanted[name][0]))
            known[group, name] = None if index is None or index.is_uniform else index
        indexes = {name: (pages, known[group, name]) for name, (pages, _) in wanted.items()}
        return {name: (pages, index) for name, (pages, index) in indexes.items() if index is not None}

    def _columns(self, names: Sequence[str], group: int) -> dict[str, PagedColumn]:
        """Those columns that have believable page indexes."""
        known = self._stats.paged_columns
        if not self._stats.has_pages(group):
            return {}
        missing = [name for name in names if (group, name) not in known]
        if missing:
            known.update(((group, name), column) for name, column in self._indexed(missing, group).items())
        columns = {name: known[group, name] for name in names}
        return {name: column for name, column in columns.items() if column is not None}

    def _indexed(self, names: Sequence[str], group: int) -> dict[str, PagedColumn | None]:
        """Read the offset indexes of some columns, in one request."""
        found: dict[str, PagedColumn | None] = dict.fromkeys(names)
        tree = footer_tree(self._stats.metadata)
        chunks = structs(structs(tree, _ROW_GROUPS)[group], _COLUMNS)
        described = _leaf_spans(column_elements(tree))
        file = {number: tree[number] for number in (_VERSION, _CREATED_BY) if number in tree}
        root = structs(tree, _SCHEMA)[0]
        if _ENCRYPTION in tree or sum(count for _, _, count in described.values()) != len(chunks):
            return found
        wanted: list[tuple[str, Struct]] = []
        for name in names:
            _, first, count = described.get(name, ((), 0, 0))
            own = chunks[first : first + count]
            if own and all(self._is_plain(chunk) for chunk in own):
                wanted.extend((name, chunk) for chunk in own)
        spans = [index_span(chunk, OFFSETS) for _, chunk in wanted]
        rows = self._stats.rows_per_group[group]
        pages: dict[str, list[PagedChunk | None]] = {}
        for (name, chunk), data in zip(wanted, self._fetch([span for span in spans if span]), strict=True):
            pages.setdefault(name, []).append(self._chunk(chunk, data, rows))
        for name, of in pages.items():
            paged = tuple(chunk for chunk in of if chunk is not None)
            if len(paged) == len(of) and all(np.array_equal(paged[0].pages.rows, own.pages.rows) for own in paged[1:]):
                found[name] = PagedColumn(file, root, tuple(map(encode_struct, described[name][0])), paged)
        return found

    def _is_plain(self, chunk: Struct) -> bool:
        """Whether a chunk lies in this file, unencrypted, and has an offset index."""
        return _META in chunk and not is_elsewhere(chunk) and self._lies_within(index_span(chunk, OFFSETS))

    def _lies_within(self, span: tuple[int, int] | None) -> bool:
        return span is not None and len(_MAGIC) <= span[0] < span[1] <= self._size

    def _chunk(self, chunk: Struct, data: bytes, rows: int) -> PagedChunk | None:
        meta: Struct = chunk[_META][1]
        start, dictionary = meta[_DATA_PAGE][1], dictionary_page(meta)
        first = start if dictionary is None else dictionary
        end = first + meta[_STORED][1]
        if not len(_MAGIC) <= first <= start < end <= self._size or (dictionary is not None and dictionary == start):
            return None
        pages = offset_index(data, start, end, rows)
        if pages is None:
            return None
        bounds = index_span(chunk, BOUNDS)
        kept = encode_struct({number: meta[number] for number in _KEPT_META})
        return PagedChunk(
            kept, max(int(meta[_PLAIN][1]), 1), dictionary, pages, bounds if self._lies_within(bounds) else None
        )

    def _selections(self, names: Sequence[str], group: int, rows: Integers) -> list[_Selection]:
        """The columns, together where their pages hold the same rows; none if reading pages does not pay."""
        found: dict[bytes, _Selection] = {}
        read, whole = 0.0, 0.0
        columns = self._columns(names, group)
        finest = max((column.pages for column in columns.values()), key=len, default=None)
        # Often the rows lie in most pages; longer ones then have even more of the file.
        if finest is None or len(finest.of_rows(rows)) > LARGEST_SHARE * len(finest):
            return []
        for name, column in columns.items():
            pages = column.pages.of_rows(rows)
            for chunk in column.chunks:
                whole += chunk.plain
                read += chunk.plain * chunk.share(pages)
            first, end = column.pages.rows[pages], column.pages.rows[pages + 1]
            own = found.setdefault(first.tobytes() + end.tobytes(), _Selection([], [], first, end))
            own.names.append(name)
            own.columns.append(column)
        return list(found.values()) if read <= LARGEST_SHARE * whole else []

    def _decoded(self, selection: _Selection, rows: Integers) -> dict[str, pa.Array]:
        """Values of rows; nothing if the pages are not what the index says, or Arrow cannot decode them."""
        file = self._virtual_file(selection)
        kinds = pa.schema([self._stats.schema.field(name) for name in selection.names])
        try:
            with pq.ParquetFile(pa.BufferReader(file)) as parquet:
                if parquet.schema_arrow.types != kinds.types:
                    return {}
                table = parquet.read(use_threads=False)
            if table.num_rows != selection.rows:
                return {}
            places = pa.array(selection.places(rows))
            batch = table.take(places).combine_chunks().to_batches()[0]
            check_values(batch, columns_to_validate(batch.schema))
        except (pa.ArrowException, OSError, IndexError):
            return {}  # The reader of whole chunks says what is damaged.
        calendar = self._stats.calendar
        batch = batch if calendar is None else calendar.moved(batch)
        return dict(zip(batch.schema.names, batch.columns, strict=True))

    def _virtual_file(self, selection: _Selection) -> bytes:
        """Parquet file of the pages of some columns."""
        spans: list[tuple[int, int]] = []
        parts: list[tuple[PagedChunk, int]] = []
        for column in selection.columns:
            for chunk in column.chunks:
                own = _runs(chunk.pages, np.searchsorted(chunk.pages.rows, selection.first))
                spans += [chunk.dictionary_span, *own]
                parts.append((chunk, len(own)))
        data = self._fetch(spans)
        self.bytes_read += sum(map(len, data))
        body = [_MAGIC, *data]
        metas: list[Struct] = []
        at, place = len(_MAGIC), 0
        for chunk, runs in parts:
            dictionary = len(data[place])
            stored = sum(map(len, data[place : place + runs + 1]))
            size = {_PLAIN: (I64, stored), _STORED: (I64, stored), _DATA_PAGE: (I64, at + dictionary)}
            metas.append(decode_struct(chunk.meta) | size | ({_DICTIONARY_PAGE: (I64, at)} if dictionary else {}))
            at, place = at + stored, place + runs + 1
        footer = encode_struct(self._footer(selection, metas))
        return b"".join([*body, footer, len(footer).to_bytes(4, "little"), _MAGIC])

    def _footer(self, selection: _Selection, metas: Sequence[Struct]) -> Struct:
        rows = (I64, selection.rows + 1)
        group: Struct = {
            _COLUMNS: (LIST, (STRUCT, [{_CHUNK_START: (I64, 0), _META: (STRUCT, meta)} for meta in metas])),
            _GROUP_PLAIN: (I64, sum(meta[_PLAIN][1] for meta in metas)),
            _GROUP_ROWS: rows,
        }
        one = selection.columns[0]
        elements: list[Struct | bytes] = [one.root | {_CHILDREN: (I32, len(selection.columns))}]
        elements.extend(element for column in selection.columns for element in column.elements)
        return one.file | {
            _SCHEMA: (LIST, (STRUCT, elements)),
            _ROWS: rows,
            _ROW_GROUPS: (LIST, (STRUCT, [group])),
        }


def _leaf_spans(elements: Mapping[str, Elements]) -> dict[str, tuple[Elements, int, int]]:
    """Elements, first leaf and number of leaves of each top-level column."""
    found: dict[str, tuple[Elements, int, int]] = {}
    first = 0
    for name, own in elements.items():
        count = sum(_CHILDREN not in element for element in own)
        found[name] = own, first, count
        first += count
    return found


def _runs(pages: Pages, numbers: Integers) -> list[tuple[int, int]]:
    """Byte ranges of some pages; pages that follow each other are one range."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = np.split(numbers, breaks)
    return [(int(pages.bounds[run[0]]), int(pages.bounds[run[-1] + 1])) for run in runs]
