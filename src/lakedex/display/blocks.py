"""The building blocks of a card, as plain values: every renderer takes them, none of them knows a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lakedex.printing import printable

__all__ = [
    "ROWS",
    "Bars",
    "Block",
    "Card",
    "Cell",
    "Code",
    "Command",
    "Facts",
    "Funnel",
    "Grid",
    "Mark",
    "Meter",
    "Notice",
    "Notices",
    "Strip",
    "Tone",
    "cut",
    "cut_cell",
    "notes",
    "share",
]


Tone = Literal["", "good", "warn", "bad"]


ROWS = 20
"""Rows of a grid, and lines of any other list, that are shown."""


@dataclass(frozen=True, slots=True)
class Meter:
    """A cell with a bar.

    Attributes:
        text: the cell's text.
        share: how much of the bar is filled, from 0 to 1.
    """

    text: str
    share: float


@dataclass(frozen=True, slots=True)
class Command:
    """A cell that holds code to copy."""

    text: str


Cell = str | Meter | Command


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values below each other."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        heads: names of the columns.
        rows: cells, :data:`ROWS` rows at most are shown.
        numbers: names of the columns that are right-aligned.
        total: number of rows in all; None takes that of ``rows``.
        title: of the table.
        more: where the other rows are.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Collection[str] = ()
    total: int | None = None
    title: str = ""
    more: str = ""

    @property
    def left_out(self) -> int:
        """Number of rows that are not shown."""
        return max(len(self.rows) if self.total is None else self.total, len(self.rows)) - min(len(self.rows), ROWS)

    def without_empty_columns(self) -> Grid:
        """The table without columns in which no row says anything."""
        kept = [at for at in range(len(self.heads)) if any(_says(row[at]) for row in self.rows)]
        if len(kept) == len(self.heads):
            return self
        rows = [[row[at] for at in kept] for row in self.rows]
        return replace(self, heads=[self.heads[at] for at in kept], rows=rows)


def _says(cell: Cell) -> bool:
    return bool(cell if isinstance(cell, str) else cell.text)


@dataclass(frozen=True, slots=True)
class Funnel:
    """Numbers that get smaller from step to step.

    Attributes:
        title: the steps' unit.
        steps: each with its number; the first one is the whole.
        note: what else there is to say.
    """

    title: str
    steps: Sequence[tuple[str, int]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Amounts beside each other; the longest bar is the largest amount.

    Attributes:
        title: what they are amounts of.
        bars: label, amount, and the amount as text.
        left_out: number of bars that are not among them.
    """

    title: str
    bars: Sequence[tuple[str, float, str]]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of a strip: its kind gives the colour, ``share`` (0 to 1) the height, ``text`` is shown on hovering."""

    kind: str
    share: float
    text: str


@dataclass(frozen=True, slots=True)
class Strip:
    """Events in a row, the oldest first.

    Attributes:
        title: what they are.
        marks: the events.
        note: what else there is to say.
    """

    title: str
    marks: Sequence[Mark]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line to read: ``word`` says what kind of line it is, ``tone`` how serious."""

    text: str
    word: str = "note"
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Notices:
    """Lines to read, :data:`ROWS` of which are shown; ``left_out`` says how many are not even among them."""

    rows: Sequence[Notice]
    title: str = ""
    left_out: int = 0
    more: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy."""

    text: str
    title: str = ""


Block = Facts | Grid | Funnel | Bars | Strip | Notices | Code


@dataclass(frozen=True, slots=True)
class Card:
    """A result for people.

    Attributes:
        title: the call and its object.
        head: the result as a sentence.
        blocks: the details, in order; empty ones are left out.
        tone: whether the result is good or bad news.
    """

    title: str
    head: str = ""
    blocks: Sequence[Block] = ()
    tone: Tone = ""


def notes(texts: Sequence[str]) -> Notices:
    """Remarks for the user."""
    return Notices([Notice(text) for text in texts])


def share(part: float, whole: float) -> float:
    """A part of a whole, from 0 to 1; 0 of nothing."""
    return min(part / whole, 1.0) if part > 0 and whole > 0 else 0.0


def cut(text: str, width: int) -> str:
    """The printable text, its end left out if it is longer than ``width``."""
    shown = printable(text[: width + 1])
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def cut_cell(text: str, width: int) -> str:
    """The printable text, part of it left out if it is longer than ``width``.

    That is the end of a sentence, and the middle of a word: names of files differ at both ends.
    """
    if " " in text[:width]:
        return cut(text, width)
    shown = printable(text if len(text) <= 2 * width else f"{text[:width]}{text[-width:]}")
    head = width // 3
    return shown if len(shown) <= width else f"{shown[:head]}…{shown[-(width - head - 1) :]}"
