"""Comparing what the bitmap index says of a base file with the file: one task a file, which makes its bitmaps anew.

Memory of a task: the bitmaps of one file twice, as stored and as made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyroaring import BitMap

from lakedex.codec.bitmap_record import BitmapRecord
from lakedex.codec.hfile import HFileReader
from lakedex.codec.roaring import decode_bitmap, deserialize_bitmap
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.blocks import IS_INDEXED
from lakedex.index.bitmap.builder import INDEXED, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.coverage import run_records
from lakedex.index.bitmap.files import BitmapsOfFile
from lakedex.index.bitmap.keys import bitmap_key
from lakedex.index.bitmap.runs import Run, bitmap_folder
from lakedex.index.validation import Difference
from lakedex.io.storage import Storage
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.log_file import open_hfile

__all__ = ["CompareFile", "Compared", "StoredColumn", "StoredFile", "StoredValue"]

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class StoredValue:
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
class StoredColumn:
    """A column of a file, as coverage has it."""

    column: str
    run: Run
    state: int
    values: tuple[StoredValue, ...]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A base file, as coverage has it; row groups as (rows, first byte, bytes)."""

    rows: int
    groups: tuple[tuple[int, int, int], ...]
    columns: tuple[StoredColumn, ...]


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
        limits: all indexed columns of the table, with the cap of distinct values of each.
        schema: the table's columns.
        keep: return the bitmaps of a file that differs.
    """

    storage: Storage
    base_path: str
    limits: Mapping[str, int]
    schema: pa.Schema
    keep: bool = False

    def __call__(self, item: tuple[BaseFile, StoredFile | None]) -> Compared:
        """Compare one file."""
        base, stored = item
        # What is indexed was under the cap that held when it was made.
        known = {} if stored is None else {column.column: len(column.values) for column in stored.columns}
        limits = {name: max(limit, known.get(name, 0)) for name, limit in self.limits.items()}
        task = BitmapsOfFile(storage=self.storage, base_path=self.base_path, columns=limits, schema=self.schema)
        try:
            made = task(base)
        except FileNotFoundError:
            return Compared(gone=True)
        if stored is None:
            return Compared(bitmaps=made)
        check = _Check(self.storage, self.base_path, base, made)
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

    storage: Storage
    base_path: str
    base: BaseFile
    made: FileBitmaps
    entries: int = 0
    damaged: set[str] = field(default_factory=set)
    _readers: dict[str, HFileReader] = field(default_factory=dict)

    def differences(self, stored: StoredFile) -> tuple[Difference, ...]:
        found = [*self._of_file(stored)]
        made = {column.column: column for column in self.made.columns}
        for column in stored.columns:
            if column.state == IS_INDEXED and column.column in made:
                found += self._of_column(column, made[column.column])
        return tuple(found)

    def _difference(self, column: str, kind: str, count: int, detail: str) -> Difference:
        return Difference(
            partition=self.base.partition, file=self.base.name, column=column, kind=kind, count=count, detail=detail
        )

    def _of_file(self, stored: StoredFile) -> Iterator[Difference]:
        groups = tuple((group.rows, group.start, group.size) for group in self.made.row_groups)
        if stored.rows != self.made.rows:
            yield self._difference("", "wrong counts", 1, f"the file has {self.made.rows} rows, not {stored.rows}")
        if stored.groups != groups:
            yield self._difference("", "wrong row groups", 1, f"the file has {groups[:4]}, not {stored.groups[:4]}")

    def _of_column(self, stored: StoredColumn, made: ColumnBitmaps) -> list[Difference]:
        faults: dict[str, list[str]] = {}
        if made.state != INDEXED:
            return [self._difference(stored.column, "wrong values", 1, f"the file's column has {made.state}")]
        expected: dict[str | None, tuple[int, int, bytes]] = {
            text: (rows, groups, bitmap)
            for text, rows, groups, bitmap in zip(
                made.texts, made.cardinalities, made.groups, made.bitmaps, strict=True
            )
        }
        if made.nulls:
            expected[None] = (made.nulls, made.null_groups, made.null_bitmap)
        records = self._records(stored)
        seen: dict[str | None, list[StoredValue]] = {}
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
            self._difference(stored.column, kind, len(texts), "; ".join(texts[:EXAMPLES]))
            for kind, texts in faults.items()
        ]

    def _of_value(
        self,
        values: list[StoredValue],
        expected: tuple[int, int, bytes],
        records: Mapping[str | None, BitmapRecord | str],
        faults: dict[str, list[str]],
    ) -> None:
        """Values that are one in the column's present type, together."""
        rows, groups, bitmap = expected
        shown = _shown(values[0].text)
        told = sum(value.rows for value in values)
        if told != rows:
            faults.setdefault("wrong counts", []).append(f"{shown} has {rows} rows, not {told}")
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
        self, value: StoredValue, record: BitmapRecord | str | None, faults: dict[str, list[str]]
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

    def _records(self, stored: StoredColumn) -> dict[str | None, BitmapRecord | str]:
        """Records of the column's values, or why one cannot be read."""
        path = f"{bitmap_folder(self.base_path)}/{stored.run.name}"
        keys = {
            bitmap_key(stored.column, value.text, self.base.partition, self.base.file_id).encode(): value.text
            for value in stored.values
        }
        try:
            reader = self._readers.get(path)
            if reader is None:
                reader = self._readers[path] = open_hfile(self.storage, path, stored.run.size)
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
