"""A card as text for terminals: one line per fact, printable letters only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lakedex.display.blocks import (
    ROWS,
    Bars,
    Block,
    Card,
    Cell,
    Code,
    Facts,
    Funnel,
    Grid,
    Notices,
    Strip,
    cut,
    cut_cell,
)

__all__ = ["aligned", "card_text"]

CELL = 60
"""Letters of a cell that are shown …"""
LAST = 120
"""… and of one in the last column, which pushes nothing aside."""
LINE = 2000
"""Letters of a line that are shown."""
SHORT_LIST = 8
"""Bars that one line shows."""
_HEIGHTS = "▁▂▃▄▅▆▇█"


def card_text(card: Card) -> str:
    """The card as lines; those of the blocks are indented."""
    head = f"{card.title}: {card.head}" if card.head else card.title
    lines = [head, *(f"  {line}" for block in card.blocks for line in _lines(block))]
    return "\n".join(cut(line, LINE) for line in lines)


def aligned(grid: Grid, width: int | None = None) -> list[str]:
    """The rows of a grid in columns, below their heads.

    Args:
        grid: the rows, :data:`~lakedex.display.blocks.ROWS` of which are shown.
        width: letters of a line; columns that do not fit are named below. None shows all columns.
    """
    grid = grid.without_empty_columns()
    last = len(grid.heads) - 1
    rows = [[_cell_text(cell, LAST if at == last else CELL) for at, cell in enumerate(row)] for row in grid.rows[:ROWS]]
    heads = [cut(head, CELL) for head in grid.heads]
    widths = [max(len(head), *(len(row[at]) for row in rows), 0) for at, head in enumerate(heads)]
    shown = len(widths)
    while width is not None and shown > 1 and sum(widths[:shown]) + 2 * (shown - 1) > width:
        shown -= 1
    right = [head in grid.numbers for head in grid.heads]
    lines = []
    for row in (heads, *rows):
        cells = zip(row[:shown], widths, right, strict=False)
        lines.append("  ".join(f"{c:>{w}}" if to_right else f"{c:<{w}}" for c, w, to_right in cells).rstrip())
    if grid.left_out:
        lines.append(f"… {grid.left_out:,} more{f' ({grid.more})' if grid.more else ''}")
    if shown < len(heads):
        lines.append(f"… {len(heads) - shown} more columns: {', '.join(heads[shown:])}")
    return lines


def _cell_text(cell: Cell, most: int) -> str:
    return cut_cell(cell if isinstance(cell, str) else cell.text, most)


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Facts(rows=facts):
            width = max((len(name) for name, _ in facts), default=0)
            yield from (f"{name:<{width}}  {value}" for name, value in facts)
        case Grid():
            if block.rows:
                yield from _titled(block.title, aligned(block))
        case Funnel():
            first, *others = block.steps
            steps = [f"{first[1]:,} {first[0]}", *(f"{count:,} {name}" for name, count in others)]
            yield f"{block.title}: {' → '.join(steps)}{f'; {block.note}' if block.note else ''}"
        case Bars():
            yield from _bars(block)
        case Strip():
            if block.marks:
                picture = "".join(_HEIGHTS[round(mark.share * (len(_HEIGHTS) - 1))] for mark in block.marks)
                kinds = ", ".join(f"{count} {kind}" for kind, count in _kinds(block))
                yield f"{block.title}: {picture}  {kinds}{f'; {block.note}' if block.note else ''}"
        case Notices():
            yield from _notices(block)
        case Code():
            yield from _titled(block.title, block.text.split("\n"))


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    if title:
        yield f"{title}:"
    yield from (f"  {line}" if title else line for line in lines)


def _kinds(strip: Strip) -> list[tuple[str, int]]:
    return Counter(mark.kind for mark in strip.marks).most_common()


def _bars(block: Bars) -> Iterator[str]:
    if not block.bars:
        return
    shown = [f"{cut(label, CELL)} {text}" for label, _, text in block.bars[:SHORT_LIST]]
    left = len(block.bars) - len(shown) + block.left_out
    yield f"{block.title}: {' · '.join(shown)}{f' · … {left:,} more' if left else ''}"


def _notices(block: Notices) -> Iterator[str]:
    lines = [f"{notice.word}: {notice.text}" for notice in block.rows[:ROWS]]
    left = len(block.rows) - len(lines) + block.left_out
    if left:
        lines.append(f"… and {left:,} more{f' ({block.more})' if block.more else ''}")
    yield from _titled(block.title if lines else "", lines)
