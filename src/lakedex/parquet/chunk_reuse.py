"""Reuse column chunks of a base file in its next version, without decoding and encoding them again.

A chunk is reusable if the new file would describe its column identically, with the same compression, and the chunk
does not depend on the rest of its file. Excluded are floats with bounds or a dictionary from other writers, by which
Spark's reader drops rows (:mod:`lakedex.parquet.base_file_writer`), files of writers whose footers readers distrust
(``CorruptStatistics`` of Parquet's Java library), and files in another calendar. Which columns of a batch of stored
rows stay as they are, is seen when some of its rows are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.codec.thrift import Struct, decode_struct, structs
from lakedex.errors import CorruptFileError
from lakedex.io.storage import WrappedReader
from lakedex.parquet.conform import decode_dictionary
from lakedex.parquet.page_index import BOUNDS, OFFSETS, dictionary_page, index_span, is_elsewhere
from lakedex.parquet.stored_values import legacy_calendar
from lakedex.types import FILE_NAME, RECORD_KEY

__all__ = [
    "CODECS",
    "Changed",
    "Chunk",
    "Elements",
    "StoredChunks",
    "TeeSource",
    "column_elements",
    "footer_tree",
    "iter_chunks",
    "replaced_rows",
    "unchanged_columns",
]


CODECS = {"none": 0, "uncompressed": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
"""Parquet's ``CompressionCodec`` by pyarrow's name."""


Elements = tuple[Struct, ...]
"""``SchemaElement`` of a column and of all its descendants."""


_TRUSTED_WRITERS = re.compile(r"parquet-cpp-arrow version |parquet-mr version 1\.1\d")


_FLOATS = {4, 5}  # Type.FLOAT, Type.DOUBLE


_MAGIC = 4


_LARGEST_INDEXES = 4 << 20
"""Larger page indexes are left out of the new file."""


# FileMetaData
_SCHEMA, _ROW_GROUPS, _ENCRYPTION = 2, 4, 8


# SchemaElement
_NAME, _CHILDREN, _FIELD_ID = 4, 5, 9


# RowGroup
_COLUMNS = 1


# ColumnChunk
_META = 3


# ColumnMetaData
_TYPE, _PATH, _CODEC, _STORED, _DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS = 1, 3, 4, 7, 9, 11, 12


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk: its ``ColumnMetaData``, its position in the file, and its page indexes, empty if it has none."""

    meta: Struct
    start: int
    size: int
    offset_index: bytes
    column_index: bytes

    @property
    def data_start(self) -> int:
        """Offset of the first data page."""
        start: int = self.meta[_DATA_PAGE][1]
        return start


class TeeSource(WrappedReader):
    """Reader that remembers the bytes read through it, so that chunks read by Arrow are not requested again.

    Memory: all bytes read since :meth:`forget`.
    """

    def __init__(self, source: BinaryIO) -> None:
        super().__init__(source)
        self._kept: list[tuple[int, bytes]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        """See :meth:`io.RawIOBase.read`."""
        start = self._source.tell()
        data: bytes = self._source.read(-1 if size is None else size)
        self._kept.append((start, data))
        return data

    def close(self) -> None:
        """Close the source and release the remembered bytes."""
        self._kept.clear()
        super().close()

    def forget(self) -> None:
        """Release the remembered bytes."""
        self._kept.clear()

    def at(self, start: int, size: int) -> memoryview:
        """Bytes of a range, remembered or read now; fewer at the end of the file."""
        for begin, data in self._kept:
            if begin <= start and start + size <= begin + len(data):
                return memoryview(data)[start - begin : start - begin + size]
        self._source.seek(start)
        return memoryview(self._source.read(size))


class StoredChunks:
    """Reusable column chunks of one open base file."""

    def __init__(self, source: TeeSource, path: str, footer: Struct) -> None:
        self._source = source
        self._path = path
        self._elements = column_elements(footer)
        self._groups = [_by_column(group) for group in structs(footer, _ROW_GROUPS)]
        # A file with chunks of a codec was written with it; others of its chunks are not worth compressing.
        self._codecs = {chunk[_META][1][_CODEC][1] for group in self._groups for of in group.values() for chunk in of}
        self._indexes = _Indexes.of(source, [chunk for group in self._groups for of in group.values() for chunk in of])

    @classmethod
    def of(cls, source: TeeSource, path: str, metadata: pq.FileMetaData) -> StoredChunks | None:
        """Chunks of a file, or None if none of them is reusable."""
        if _TRUSTED_WRITERS.match(metadata.created_by or "") is None or legacy_calendar(metadata) is not None:
            return None
        try:
            footer = footer_tree(metadata)
        except CorruptFileError:  # Arrow has read the footer, so it is not damaged but has unknown features.
            return None
        return None if _ENCRYPTION in footer else cls(source, path, footer)

    def offered(self, group: int, column: str, elements: Elements, codec: int) -> list[Chunk] | None:
        """Chunks of a top-level column in a row group, one per leaf; None if they are not reusable.

        Args:
            group: Number of the row group.
            column: Name of the column.
            elements: Schema elements of the column in the new file.
            codec: ``CompressionCodec`` of the new file.
        """
        found = self._groups[group].get(column)
        if found is None or self._elements.get(column) != elements:
            return None
        if codec not in self._codecs:
            return None
        chunks = [_movable(chunk, {codec, CODECS["none"]}, self._indexes) for chunk in found]
        return None if None in chunks else [chunk for chunk in chunks if chunk is not None]

    def read(self, chunk: Chunk) -> memoryview:
        """Read the bytes of a chunk.

        Raises:
            CorruptFileError: The file ends before the chunk does.
        """
        data = self._source.at(chunk.start, chunk.size)
        if len(data) != chunk.size:
            raise CorruptFileError(self._path, chunk.start, f"{chunk.size} bytes of a column chunk", f"{len(data)}")
        return data


def footer_tree(metadata: pq.FileMetaData) -> Struct:
    """``FileMetaData`` of Parquet, as serialized by Arrow."""
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    # Arrow writes a file of metadata only: magic, footer, its length, magic.
    return decode_struct(sink.getvalue().to_pybytes()[_MAGIC : -2 * _MAGIC])


def column_elements(footer: Struct) -> dict[str, Elements]:
    """Schema elements by top-level column, without field ids, which Hudi does not use."""
    elements = structs(footer, _SCHEMA)
    found: dict[str, Elements] = {}
    place = 1
    while place < len(elements):
        end, open_nodes = place, 1
        while open_nodes:
            children = elements[end].get(_CHILDREN)
            open_nodes += (0 if children is None else children[1]) - 1
            end += 1
        name = elements[place][_NAME][1].decode("utf-8")
        found[name] = tuple(
            {number: value for number, value in element.items() if number != _FIELD_ID}
            for element in elements[place:end]
        )
        place = end
    return found


def _by_column(group: Struct) -> dict[str, list[Struct]]:
    found: dict[str, list[Struct]] = {}
    for chunk in structs(group, _COLUMNS):
        # A chunk without metadata, which is then stored elsewhere or encrypted, is not reusable.
        if _META in chunk:
            path = chunk[_META][1][_PATH][1][1]
            found.setdefault(path[0].decode("utf-8"), []).append(chunk)
    return found


@dataclass(frozen=True, slots=True)
class _Indexes:
    """Bytes of a file's page indexes, which lie together, and the offset of the first of them."""

    start: int
    data: memoryview

    @classmethod
    def of(cls, source: TeeSource, chunks: Iterable[Struct]) -> _Indexes:
        """Read the indexes of some chunks at once; none if they lie far from each other."""
        spans = [span for chunk in chunks for which in (OFFSETS, BOUNDS) if (span := index_span(chunk, which))]
        start = min((first for first, _ in spans), default=0)
        size = max((end for _, end in spans), default=0) - start
        return cls(start, source.at(start, size) if 0 < size <= _LARGEST_INDEXES else memoryview(b""))

    def __getitem__(self, span: tuple[int, int] | None) -> bytes:
        """Bytes of a range; empty if they were not read."""
        if span is None or span[1] - self.start > len(self.data):
            return b""
        return bytes(self.data[span[0] - self.start : span[1] - self.start])


def _movable(chunk: Struct, codecs: set[int], indexes: _Indexes) -> Chunk | None:
    meta: Struct = chunk[_META][1]
    if is_elsewhere(chunk) or meta[_CODEC][1] not in codecs:
        return None
    found = _chunk_of(chunk, indexes)
    has_values = _DICTIONARY_PAGE in found.meta or _STATISTICS in meta
    return None if found.start < _MAGIC or (meta[_TYPE][1] in _FLOATS and has_values) else found


def _chunk_of(chunk: Struct, indexes: _Indexes) -> Chunk:
    meta: Struct = chunk[_META][1]
    start, dictionary = meta[_DATA_PAGE][1], dictionary_page(meta)
    if dictionary is None:
        meta = {number: value for number, value in meta.items() if number != _DICTIONARY_PAGE}
    else:
        start = min(start, dictionary)
    offsets, bounds = (indexes[index_span(chunk, which)] for which in (OFFSETS, BOUNDS))
    # Bounds of floats leave out NaN.
    return Chunk(meta, start, meta[_STORED][1], offsets, b"" if meta[_TYPE][1] in _FLOATS else bounds)


def iter_chunks(group: Struct, file: memoryview) -> Iterator[tuple[str, Chunk]]:
    """Column and chunk of each leaf of a row group of a file just written by Arrow."""
    for name, chunks in _by_column(group).items():
        for chunk in chunks:
            yield name, _chunk_of(chunk, _Indexes(0, file))


# ------------------------------------------------------------------------------------------------- changed rows


@dataclass(frozen=True, slots=True)
class Changed:
    """A batch of a base file as it is in the next one.

    Attributes:
        rows: in the new file's schema.
        unchanged: columns that have the stored values, bit by bit.
        is_whole: none of the stored rows is missing.
    """

    rows: pa.RecordBatch
    unchanged: frozenset[str] = frozenset()
    is_whole: bool = True


def replaced_rows(
    stored: pa.RecordBatch, incoming: pa.RecordBatch, take: npt.NDArray[np.int64], same: Collection[str]
) -> pa.RecordBatch:
    """Rows of ``stored`` and after them those of ``incoming``, by number; columns that are the ``same`` stay."""
    numbers, columns = pa.array(take), []
    for name, ours, theirs in zip(stored.schema.names, stored.columns, incoming.columns, strict=True):
        if name in same:
            columns.append(ours)
            continue
        both = pa.chunked_array([ours, theirs]).unify_dictionaries().combine_chunks()
        columns.append(both.take(numbers))
    return pa.RecordBatch.from_arrays(columns, schema=stored.schema)


_FIRST_ROWS = 64
"""Columns that an update changes mostly differ in its first rows."""


def unchanged_columns(
    stored: pa.RecordBatch,
    incoming: pa.RecordBatch,
    places: npt.NDArray[np.int64],
    partners: npt.NDArray[np.int64],
) -> frozenset[str]:
    """Columns in which some incoming rows have the values of the stored rows that they replace, bit by bit."""
    names = [name for name in stored.schema.names if name != FILE_NAME]
    for rows in (slice(0, _FIRST_ROWS), slice(_FIRST_ROWS, None)):
        ours, theirs = pa.array(places[rows]), pa.array(partners[rows])
        if not len(ours):
            break
        names = [
            name
            for name in names
            if name == RECORD_KEY
            or _same_bits(
                decode_dictionary(stored.column(name).take(ours)), decode_dictionary(incoming.column(name).take(theirs))
            )
        ]
    return frozenset(names)


def _same_bits(ours: pa.Array, theirs: pa.Array) -> bool:
    """Whether two columns are equal; floats, of which 0.0 equals -0.0, by their bits."""
    if pa.types.is_floating(ours.type):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[ours.type.bit_width]
        ours, theirs = ours.view(bits), theirs.view(bits)
    elif pa.types.is_nested(ours.type) and _has_floats(ours.type):
        return False
    return bool(ours.equals(theirs))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))
