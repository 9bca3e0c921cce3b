"""Bitmaps of one base file, made in the pass that writes it or by a build that reads it.

A position is a row's ordinal in its base file. The result depends on the rows alone, not on how they were cut into
batches.

Memory: a byte a row and column up to 256 distinct values, two up to 65,536, four beyond; at the end the bitmaps, and
some 200 bytes for each distinct value and 65,536 rows. A column that goes past the cap is dropped at once and its
memory freed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.codec.roaring import serialize_bitmaps
from lakedex.errors import InvalidInputError
from lakedex.expr.evaluator import column_values
from lakedex.expr.nodes import Column
from lakedex.index.bitmap.keys import is_indexable, normal_values, type_text, value_texts
from lakedex.index.bitmap.log_coverage import CoveredLog
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile
from lakedex.parquet.base_file_reader import BaseFileReader, open_for_scan
from lakedex.parquet.conform import ENCODED, conform_stored, drop_unused_values

__all__ = [
    "INDEXED",
    "MAX_VALUE_BYTES",
    "NOT_INDEXED",
    "OPEN_IN_LOG",
    "BitmapsBuilder",
    "BitmapsOfFile",
    "ColumnBitmaps",
    "FileBitmaps",
    "RowGroup",
    "column_of",
    "row_groups_of",
]


MAX_VALUE_BYTES = 1024
"""A longer value's text does not become a key: the column is not indexed in that file."""


INDEXED = "indexed"


TOO_MANY = "too many distinct values"


TOO_LONG = "a value of more than 1 KiB"


NO_TEXT = "a type without texts"


OPEN_IN_LOG = "log records that leave it open"


NOT_INDEXED = (TOO_MANY, TOO_LONG, NO_TEXT, OPEN_IN_LOG)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a base file: its rows, and where its column chunks begin and end in the file, in bytes."""

    rows: int
    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBitmaps:
    """One column of one base file.

    Attributes:
        column: name, or dotted path of a nested field.
        state: :data:`INDEXED`, or why it is not.
        kind: the type that the texts are of (:func:`~lakedex.index.bitmap.keys.type_text`); empty if not indexed.
        texts: distinct values in the order of their UTF-8 bytes, null left out.
        cardinalities: rows of each value.
        groups: row groups of the file that hold each value.
        bitmaps: portable roaring bytes of each value.
        nulls: rows with null.
        null_groups: row groups that hold null.
        null_bitmap: portable roaring bytes of their positions.
    """

    column: str
    state: str
    kind: str = ""
    texts: tuple[str, ...] = ()
    cardinalities: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    bitmaps: tuple[bytes, ...] = ()
    nulls: int = 0
    null_groups: int = 0
    null_bitmap: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBitmaps:
    """Bitmaps of one base file, as a run holds them; of a log file only the values and their rows.

    Attributes:
        partition, file_id: the file group.
        base_file: name of the file.
        rows: its rows.
        row_groups: those of a base file.
        columns: one result a column.
        log: what else is known of a log file.
    """

    partition: str
    file_id: str
    base_file: str
    rows: int
    row_groups: tuple[RowGroup, ...]
    columns: tuple[ColumnBitmaps, ...]
    log: CoveredLog | None = None

    @property
    def size(self) -> int:
        """About the bytes that it takes."""
        return (
            200
            + (0 if self.log is None else len(self.log.touched))
            + sum(
                sum(map(len, column.bitmaps)) + len(column.null_bitmap) + sum(len(text) + 150 for text in column.texts)
                for column in self.columns
            )
        )


def column_of(name: str, schema: pa.Schema) -> Column:
    """The column of a name, else the nested field of a dotted path.

    Raises:
        InvalidInputError: the schema has neither.
    """
    if name in schema.names:
        return Column((name,), schema.field(name).type)
    path = tuple(name.split("."))
    here: Any = schema
    for part in path:
        position = here.get_field_index(part) if isinstance(here, pa.Schema | pa.StructType) else -1
        if position < 0:
            names = ", ".join(schema.names)
            raise InvalidInputError(f"there is no column {name!r}: {names}", column=name)
        here = here.field(position).type
    return Column(path, here)


@dataclass(slots=True)
class _Values:
    """A column's values so far, numbered as they came, and the number in each row."""

    column: Column
    limit: int
    state: str = INDEXED
    numbers: dict[str | None, int] = field(default_factory=dict)
    rows: list[npt.NDArray[np.unsignedinteger]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        if self.state != INDEXED or not batch.num_rows:
            return
        encoded = self._encoded(batch)
        words = self._words(encoded)
        if words is None:
            # Perhaps for values that no row has: only now is it worth to look for them.
            encoded = drop_unused_values(encoded)
            self._forget_unused()
            words = self._words(encoded)
        if words is None:
            self._give_up_at_first(self._texts(encoded).to_pylist())
            return
        numbers = self.numbers
        found = [numbers.setdefault(word, len(numbers)) for word in words]
        kind = np.uint8 if len(numbers) <= 1 << 8 else np.uint16 if len(numbers) <= 1 << 16 else np.uint32
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if found == list(range(len(found))):
            self.rows.append(codes.astype(kind))
        else:
            self.rows.append(np.array(found, kind).take(codes))

    def _texts(self, encoded: pa.DictionaryArray) -> Any:
        """Texts of the distinct values; of more than these, null among them, one is surely too many."""
        return value_texts(encoded.dictionary.slice(0, self.limit + 2))

    def _words(self, encoded: pa.DictionaryArray) -> list[str | None] | None:
        """The texts, or None where one is too many or too long."""
        texts = self._texts(encoded)
        if (pc.max(pc.binary_length(texts)).as_py() or 0) > MAX_VALUE_BYTES:
            return None
        words: list[str | None] = texts.to_pylist()
        # Most often the values are few, and there is nothing to put together.
        is_many = len(words) + len(self.numbers) > self.limit and len({*words, *self.numbers} - {None}) > self.limit
        return None if is_many else words

    def _forget_unused(self) -> None:
        """Keep the values that a row has."""
        rows = np.concatenate(self.rows) if self.rows else np.empty(0, np.uint8)
        used = np.bincount(rows, minlength=len(self.numbers)) > 0
        if not used.all():
            self.rows = [(np.cumsum(used) - 1).astype(rows.dtype).take(rows)]
            self.numbers = {word: number for number, word in enumerate(compress(self.numbers, used.tolist()))}

    def _encoded(self, batch: pa.RecordBatch) -> pa.DictionaryArray:
        """The rows' values by number, null among them; perhaps some that no row has."""
        if len(self.column.path) == 1:
            found = batch.column(batch.schema.get_field_index(self.column.path[0]))
            # Text is its own normal form, so one that comes as a dictionary need not be hashed again.
            if found.type == ENCODED and not found.null_count and not found.dictionary.null_count:
                return found
        values = normal_values(column_values(self.column, batch))
        return pc.dictionary_encode(values, null_encoding="encode")

    def _give_up_at_first(self, words: Sequence[str | None]) -> None:
        """Give up for the first value that is one too many or too long, so that it is the same however rows come."""
        known = self.numbers.keys() - {None}
        for word in words:
            if word is None:
                continue
            if len(word.encode()) > MAX_VALUE_BYTES:
                self._give_up(TOO_LONG)
                return
            known.add(word)
            if len(known) > self.limit:
                self._give_up(TOO_MANY)
                return

    def _give_up(self, why: str) -> None:
        self.state = why
        self.numbers, self.rows = {}, []

    def finish(self, name: str, ends: Sequence[int]) -> ColumnBitmaps:
        if self.state != INDEXED:
            return ColumnBitmaps(column=name, state=self.state)
        numbers = np.concatenate(self.rows) if self.rows else np.empty(0, np.uint8)
        self.rows = []
        counts, bitmaps = serialize_bitmaps(numbers, len(self.numbers))
        groups = groups_with(numbers, len(self.numbers), ends)
        null = self.numbers.pop(None, None)
        # By code points, which is the order of their UTF-8 bytes.
        texts = sorted(text for text, number in self.numbers.items() if text is not None and counts[number])
        order = [self.numbers[text] for text in texts]
        return ColumnBitmaps(
            column=name,
            state=INDEXED,
            kind=type_text(self.column.type),
            texts=tuple(texts),
            cardinalities=tuple(map(counts.__getitem__, order)),
            groups=tuple(map(groups.__getitem__, order)),
            bitmaps=tuple(map(bitmaps.__getitem__, order)),
            nulls=0 if null is None else counts[null],
            null_groups=0 if null is None else groups[null],
            null_bitmap=b"" if null is None else bitmaps[null],
        )


class BitmapsBuilder:
    """Collects the bitmaps of some columns over the rows of one base file."""

    def __init__(self, columns: Mapping[str, int], schema: pa.Schema) -> None:
        """Begin a file.

        Args:
            columns: names or dotted paths, and for each how many distinct values it may have.
            schema: of the batches to come.
        """
        self._values = {name: _start(name, limit, schema) for name, limit in columns.items()}
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows of the file."""
        for values in self._values.values():
            values.add(batch)
        self.rows += batch.num_rows

    def finish(self, row_groups: Sequence[RowGroup]) -> tuple[ColumnBitmaps, ...]:
        """Finish the file: one result a column.

        Raises:
            InvalidInputError: the row groups are not of the rows that were given.
        """
        ends = list(accumulate(group.rows for group in row_groups))
        if (ends[-1] if ends else 0) != self.rows:
            raise InvalidInputError(f"row groups of {ends[-1] if ends else 0} rows for a file of {self.rows}")
        return tuple(values.finish(name, ends) for name, values in self._values.items())

    def finish_log(self, lacking: Collection[str] = ()) -> tuple[ColumnBitmaps, ...]:
        """Finish a log file: values with their rows. Positions in log files mean nothing.

        Args:
            lacking: columns of the table that a partial update in the file lacks: their values are those of whatever
                version of the row comes before it.
        """
        found = self.finish([RowGroup(self.rows, 0, 0)])
        return tuple(
            ColumnBitmaps(column=column.column, state=OPEN_IN_LOG)
            if self._values[column.column].column.path[0] in lacking
            else replace(
                column,
                groups=(0,) * len(column.texts),
                bitmaps=(b"",) * len(column.texts),
                null_groups=0,
                null_bitmap=b"",
            )
            for column in found
        )


def groups_with(numbers: npt.NDArray[np.unsignedinteger], count: int, ends: Sequence[int]) -> list[int]:
    """For each number below ``count`` that some row has: in how many of the row groups that end before ``ends``."""
    if len(ends) <= 1:
        return [int(len(numbers) > 0)] * count  # Others are not asked for.
    found = np.zeros(count, np.int64)
    for start, end in zip((0, *ends), ends, strict=False):
        found += np.bincount(numbers[start:end], minlength=count) > 0
    return found.tolist()


def _start(name: str, limit: int, schema: pa.Schema) -> _Values:
    column = column_of(name, schema)
    return _Values(column, limit, INDEXED if is_indexable(column.type) else NO_TEXT)


BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class BitmapsOfFile:
    """Task: the bitmaps of one base file. Only the indexed columns are read, a batch at a time.

    Attributes:
        columns: names or dotted paths, with the cap of distinct values of each.
        schema: the table's columns; older files are read in it.
    """

    files: TableFiles
    columns: Mapping[str, int]
    schema: pa.Schema

    def __call__(self, base: BaseFile) -> FileBitmaps:
        """Read the file.

        Raises:
            CorruptFileError: it is no readable Parquet file.
        """
        tops = dict.fromkeys(column_of(name, self.schema).path[0] for name in self.columns)
        needed = pa.schema([self.schema.field(name) for name in tops])
        builder = BitmapsBuilder(self.columns, needed)
        with open_for_scan(self.files.storage, self.files.path(base.relative_path)) as source:
            groups = row_groups_of(source)
            for stored in source.batches(needed.names, range(source.row_groups), BATCH_ROWS):
                builder.add(conform_stored(stored, needed))
        return FileBitmaps(
            partition=base.partition,
            file_id=base.file_id,
            base_file=base.name,
            rows=builder.rows,
            row_groups=groups,
            columns=builder.finish(groups),
        )


def row_groups_of(source: BaseFileReader) -> tuple[RowGroup, ...]:
    """The row groups of an open base file."""
    return tuple(RowGroup(*span) for span in source.group_spans)
