"""A file as the bitmap index has it, and the result of comparing it with the data."""

from __future__ import annotations

from dataclasses import dataclass

from lakedex.index.bitmap.builder import FileBitmaps
from lakedex.index.bitmap.run_files import Run
from lakedex.reports import Difference

__all__ = ["Compared", "IndexedColumn", "IndexedFile", "IndexedValue"]


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
