"""Compare coverage of a log file with the file: the values of its rows, and the rows of the base file by their keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakedex.index.bitmap.builder import INDEXED, ColumnBitmaps, FileBitmaps
from lakedex.index.bitmap.compared import Compared, IndexedColumn, IndexedFile
from lakedex.index.bitmap.log_builder import BitmapsOfLog
from lakedex.index.bitmap.log_coverage import CoveredLog
from lakedex.index.bitmap.run_files import IS_INDEXED
from lakedex.index.protocol import file_difference
from lakedex.layout.file_slice import FileSlice
from lakedex.reports import Difference

__all__ = ["CompareLog", "StoredLog"]


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
