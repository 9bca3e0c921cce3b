"""Compare a file with what the bitmap index has of it: a base file with its bitmaps, a log file with its coverage.

Memory: a task holds the bitmaps of one file twice, as stored and as made; of a log file what a build takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyroaring import BitMap

from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.metadata_record import BitmapRecord
from lakedex.codec.roaring import decode_bitmap, deserialize_bitmap
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.builder import INDEXED, BitmapsOfFile, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.keys import bitmap_key
from lakedex.index.bitmap.loaded_index import run_records
from lakedex.index.bitmap.log_builder import BitmapsOfLog
from lakedex.index.bitmap.log_coverage import CoveredLog
from lakedex.index.bitmap.run_files import BITMAP_FOLDER, IS_INDEXED, Run
from lakedex.index.protocol import file_difference
from lakedex.io.storage import TableFiles
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.metadata.files import open_hfile
from lakedex.reports import Difference

__all__ = ["CompareFile", "CompareLog", "Compared", "IndexedColumn", "IndexedFile", "IndexedValue", "StoredLog"]


EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class IndexedValue:
    """A value of a column in a file, as coverage has it.

    Attributes:
        text: the text in its key; None for null.
        present: its text in the type that the column has now; None for null, and where there is none.
        rows: that hold it.
        groups: row groups that hold it.
        typed: whether the column's present type has the value.
    """

    text: str | None
    present: str | None
    rows: int
    groups: int
    typed: bool = True


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """A column of a file, as coverage has it."""

    column: str
    run: Run
    state: int
    values: tuple[IndexedValue, ...]


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A base file, as coverage has it; row groups as (rows, first byte, bytes)."""

    rows: int
    groups: tuple[tuple[int, int, int], ...]
    columns: tuple[IndexedColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One file's result.

    Attributes:
        differences: what does not agree.
        entries: bitmaps that were compared.
        bitmaps: those made from the data, if they were asked for and are needed.
        damaged: runs of which bytes cannot be read.
        gone: the base file is no more, or a run: a fold or a cleaner was at work meanwhile.
    """

    differences: tuple[Difference, ...] = ()
    entries: int = 0
    bitmaps: FileBitmaps | None = None
    damaged: frozenset[str] = frozenset()
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFile:
    """Task: a base file against what is stored of it. Where nothing is stored its bitmaps are only made.

    Attributes:
        index: name of the index.
        limits: all indexed columns of the table, with the cap of distinct values of each.
        schema: the table's columns.
        keep: return the bitmaps of a file that differs.
    """

    index: str
    files: TableFiles
    limits: Mapping[str, int]
    schema: pa.Schema
    keep: bool = False

    def __call__(self, item: tuple[BaseFile, IndexedFile | None]) -> Compared:
        """Compare one file."""
        base, stored = item
        # What is indexed was under the cap that held when it was made.
        known = {} if stored is None else {column.column: len(column.values) for column in stored.columns}
        limits = {name: max(limit, known.get(name, 0)) for name, limit in self.limits.items()}
        task = BitmapsOfFile(files=self.files, columns=limits, schema=self.schema)
        try:
            made = task(base)
        except FileNotFoundError:
            return Compared(gone=True)
        if stored is None:
            return Compared(bitmaps=made)
        check = _Check(self.index, self.files, base, made)
        try:
            found = check.differences(stored)
        except FileNotFoundError:
            return Compared(gone=True, bitmaps=made if self.keep else None)
        return Compared(
            differences=found,
            entries=check.entries,
            bitmaps=made if self.keep and found else None,
            damaged=frozenset(check.damaged),
        )


@dataclass(slots=True)
class _Check:
    """The comparison of one file."""

    index: str
    files: TableFiles
    base: BaseFile
    made: FileBitmaps
    entries: int = 0
    damaged: set[str] = field(default_factory=set)
    _readers: dict[str, HFileReader] = field(default_factory=dict)

    def differences(self, stored: IndexedFile) -> tuple[Difference, ...]:
        found = [*self._of_file(stored)]
        made = {column.column: column for column in self.made.columns}
        for column in stored.columns:
            if column.state == IS_INDEXED and column.column in made:
                found += self._of_column(column, made[column.column])
        return tuple(found)

    def _difference(self, column: str, kind: str, expected: str, found: str = "", count: int = 1) -> Difference:
        return file_difference(self.index, self.base, column, kind, expected, found, count)

    def _of_file(self, stored: IndexedFile) -> Iterator[Difference]:
        groups = tuple((group.rows, group.start, group.size) for group in self.made.row_groups)
        if stored.rows != self.made.rows:
            yield self._difference("", "wrong counts", f"{self.made.rows} rows", f"{stored.rows} rows")
        if stored.groups != groups:
            yield self._difference("", "wrong row groups", f"{groups[:4]}", f"{stored.groups[:4]}")

    def _of_column(self, stored: IndexedColumn, made: ColumnBitmaps) -> list[Difference]:
        faults: dict[str, list[str]] = {}
        if made.state != INDEXED:
            return [self._difference(stored.column, "wrong values", f"a column that has {made.state}", "bitmaps")]
        expected: dict[str | None, tuple[int, int, bytes]] = {
            text: (rows, groups, bitmap)
            for text, rows, groups, bitmap in zip(
                made.texts, made.cardinalities, made.groups, made.bitmaps, strict=True
            )
        }
        if made.nulls:
            expected[None] = (made.nulls, made.null_groups, made.null_bitmap)
        records = self._records(stored)
        seen: dict[str | None, list[IndexedValue]] = {}
        for value in stored.values:
            if value.typed and value.present in expected:
                seen.setdefault(value.present, []).append(value)
            else:
                faults.setdefault("wrong values", []).append(f"{_shown(value.text)}, which the file does not have")
        for text in expected.keys() - seen.keys():
            faults.setdefault("wrong values", []).append(f"{_shown(text)} is not listed")
        for text, values in seen.items():
            self._of_value(values, expected[text], records, faults)
        return [
            self._difference(stored.column, kind, "", "; ".join(texts[:EXAMPLES]), len(texts))
            for kind, texts in faults.items()
        ]

    def _of_value(
        self,
        values: list[IndexedValue],
        expected: tuple[int, int, bytes],
        records: Mapping[str | None, BitmapRecord | str],
        faults: dict[str, list[str]],
    ) -> None:
        """Values that are one in the column's present type, together."""
        rows, groups, bitmap = expected
        shown = _shown(values[0].text)
        stated = sum(value.rows for value in values)
        if stated != rows:
            faults.setdefault("wrong counts", []).append(f"{shown} has {rows} rows, not {stated}")
        if len(values) == 1 and values[0].groups != groups:
            faults.setdefault("wrong row groups", []).append(f"{shown} is in {groups}, not in {values[0].groups}")
        positions = BitMap()
        for value in values:
            self.entries += 1
            part = self._positions(value, records.get(value.text), faults)
            if isinstance(part, str):
                return
            positions |= part
        if positions != deserialize_bitmap(bitmap):
            faults.setdefault("wrong positions", []).append(f"{shown}: {len(positions)} positions of {rows}")

    def _positions(
        self, value: IndexedValue, record: BitmapRecord | str | None, faults: dict[str, list[str]]
    ) -> BitMap | str:
        """The positions of a value, or what is wrong with them."""
        kind, detail = "missing bitmap", ""
        if isinstance(record, str):
            kind, detail = "damaged bytes", record
        elif record is not None and record.base_file != self.base.name:
            detail = f"it is one of {record.base_file}"
        elif record is not None and record.cardinality != value.rows:
            kind, detail = "wrong counts", f"coverage says {value.rows} rows, its record {record.cardinality}"
        elif record is not None:
            try:
                return decode_bitmap(record.bitmap or "", path=self.base.name)
            except CorruptFileError as error:
                kind, detail = "damaged bytes", str(error)
        text = f"{_shown(value.text)}: {detail}" if detail else _shown(value.text)
        faults.setdefault(kind, []).append(text)
        return text

    def _records(self, stored: IndexedColumn) -> dict[str | None, BitmapRecord | str]:
        """Records of the column's values, or why one cannot be read."""
        path = self.files.path(BITMAP_FOLDER, stored.run.name)
        keys = {
            bitmap_key(stored.column, value.text, self.base.partition, self.base.file_id).encode(): value.text
            for value in stored.values
        }
        try:
            reader = self._readers.get(path)
            if reader is None:
                reader = self._readers[path] = open_hfile(self.files.storage, path, stored.run.size)
            cells = reader.get_many(list(keys))
        except CorruptFileError as error:
            self.damaged.add(stored.run.name)
            return dict.fromkeys(keys.values(), str(error))
        return {keys[key]: self._record(reader, cell, path, stored.run) for key, cell in cells.items()}

    def _record(self, reader: HFileReader, cell: bytes, path: str, run: Run) -> BitmapRecord | str:
        try:
            return run_records(reader, [cell], path)[0]
        except CorruptFileError as error:
            self.damaged.add(run.name)
            return str(error)


def _shown(text: str | None) -> str:
    if text is None:
        return "null"
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


StoredLog = tuple[IndexedFile, CoveredLog]
"""Coverage of a log file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareLog:
    """Task: the last log file of a slice against what is stored of it. Where nothing is stored it is only read.

    Attributes:
        index: name of the index.
        task: reads a log file.
        keep: return what was read of a log file that differs.
    """

    index: str
    task: BitmapsOfLog
    keep: bool = False

    def __call__(self, item: tuple[FileSlice, StoredLog | None]) -> Compared:
        """Compare one log file."""
        end, stored = item
        columns = () if stored is None else stored[0].columns
        known = {column.column: len(column.values) for column in columns}
        limits = {name: max(limit, known.get(name, 0)) for name, limit in self.task.columns.items()}
        try:
            made = replace(self.task, columns=limits)(end)
        except FileNotFoundError:
            return Compared(gone=True)
        if stored is None:
            return Compared(bitmaps=made)
        found = tuple(self._differences(end, made, *stored))
        entries = sum(len(column.values) for column in columns)
        return Compared(differences=found, entries=entries, bitmaps=made if self.keep and found else None)

    def _differences(
        self, end: FileSlice, made: FileBitmaps, stored: IndexedFile, log: CoveredLog
    ) -> Iterator[Difference]:
        file, right = end.log_files[-1], made.log
        if right is None or (log == right and stored.rows == made.rows):
            pass
        elif log.touched != right.touched:
            yield file_difference(self.index, file, "", "wrong positions", "rows that its keys have", "others")
        else:
            yield file_difference(
                self.index, file, "", "wrong counts", _counts_of(right, made.rows), _counts_of(log, stored.rows)
            )
        by_name = {column.column: column for column in made.columns}
        for column in stored.columns:
            if column.state == IS_INDEXED and column.column in by_name:
                right_values, values = _rows_of(by_name[column.column]), _stored_rows(column)
                if right_values != values:
                    wrong = set((right_values or {}).items()) ^ set(values.items())
                    detail = f"{len(wrong)} values with other rows"
                    yield file_difference(self.index, file, column.column, "wrong values", "", detail, len(wrong))


def _counts_of(log: CoveredLog, rows: int) -> str:
    return f"{rows} rows, {log.deletes} deletes, {log.new} new keys in log file {log.older} of {log.base_file}"


def _rows_of(column: ColumnBitmaps) -> dict[str | None, int] | None:
    if column.state != INDEXED:
        return None
    found: dict[str | None, int] = dict(zip(column.texts, column.cardinalities, strict=True))
    return found | ({None: column.nulls} if column.nulls else {})


def _stored_rows(column: IndexedColumn) -> dict[str | None, int]:
    """Rows of each value in the column's present type; a value that it does not have by its text as it was."""
    found: dict[str | None, int] = {}
    for value in column.values:
        text = value.present if value.typed else f"{value.text} of another type"
        found[text] = found.get(text, 0) + value.rows
    return found
