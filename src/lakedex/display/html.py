"""A card as HTML for notebooks, cards as a page: inline CSS, no script, everything escaped, at most 20 KB a card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from lakedex.display.blocks import (
    ROWS,
    Bars,
    Block,
    Card,
    Cell,
    Code,
    Command,
    Facts,
    Funnel,
    Grid,
    Mark,
    Meter,
    Notices,
    Strip,
    cut,
    cut_cell,
    share,
)
from lakedex.display.style import PAGE_STYLE, STYLE, kind_class

__all__ = ["MOST_BYTES", "card_html", "page_html"]

MOST_BYTES = 20_000
"""Size of a card at most, its style included."""
WORD = 24
"""Letters of a cell that may be broken."""
LINE = 1040
"""Pixels of a line on a wide page; a letter has eight."""
_PAGE = (
    "<!doctype html><html lang=en><head><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width,initial-scale=1'>"
    # Nothing is fetched and no script runs, whatever a value of the table says.
    "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';style-src 'unsafe-inline'\">"
    "<title>{title}</title><style>{style}</style></head><body>{cards}</body></html>\n"
)
_WORDS = {"good": "✓ ", "warn": "! ", "bad": "✗ ", "": ""}
"""Tones are never said by colour alone."""


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown: lines of a list, columns, letters of a cell and of a paragraph, marks of a strip."""

    rows: int
    columns: int
    cell: int
    text: int
    marks: int
    blocks: int = 16


_DETAILS = (
    _Detail(ROWS, 14, 72, 600, 60),
    _Detail(ROWS, 12, 36, 300, 40),
    _Detail(10, 10, 28, 160, 24),
    _Detail(6, 8, 20, 80, 12, 12),
    _Detail(3, 6, 12, 40, 6, 8),
)
"""From all to little: the first that keeps a card small enough is taken. Values cannot make it large."""


def card_html(card: Card) -> str:
    """The card as a ``div`` with its style."""
    return _fitted(card, MOST_BYTES, f"<style>{STYLE}</style>")


def page_html(title: str, cards: Sequence[Card]) -> str:
    """Cards below each other on a page of their own, that needs nothing but the file."""
    body = "".join(_fitted(card, MOST_BYTES - len(STYLE), "") for card in cards)
    return _PAGE.format(title=escape(cut(title, 200)), style=STYLE + PAGE_STYLE, cards=body)


def _fitted(card: Card, most: int, style: str) -> str:
    for detail in _DETAILS:
        text = f"<div class=lakedex>{style}{''.join(_Drawing(detail).card(card))}</div>"
        if len(text.encode()) <= most:
            break
    return text


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Draws blocks in one detail."""

    detail: _Detail

    def card(self, card: Card) -> Iterator[str]:
        yield f"<div class=t>{self.line(card.title)}</div>"
        if card.head:
            tone = f" class={card.tone}" if card.tone else ""
            yield f"<div{tone}>{_WORDS[card.tone]}{self.line(card.head)}</div>"
        for block in card.blocks[: self.detail.blocks]:
            yield from self.block(block)

    def block(self, block: Block) -> Iterator[str]:
        match block:
            case Facts(rows=facts):
                if facts:
                    yield _tag("f", (f"<span>{self.cell(n)}</span><span>{self.line(v)}</span>" for n, v in facts[:24]))
            case Grid():
                yield from self.grid(block)
            case Funnel(title=title, steps=steps):
                bars = [(name, float(count), f"{count:,}") for name, count in steps]
                yield from self.bars(Bars(title, bars))
                yield from self.remark(block.note)
            case Bars():
                yield from self.bars(block)
            case Strip():
                yield from self.strip(block)
            case Notices():
                yield from self.notices(block)
            case Code(text=text, title=title):
                yield from self.head(title)
                lines = text.split("\n")[: self.detail.rows]
                yield f"<pre>{'<br>'.join(map(self.line, lines))}</pre>"

    def line(self, text: str) -> str:
        """A text, escaped; its end is left out if it is long."""
        return escape(cut(text, self.detail.text))

    def cell(self, text: str) -> str:
        """A short text, escaped; part of it is left out if it is long."""
        return escape(cut_cell(text, self.detail.cell))

    def head(self, title: str) -> Iterator[str]:
        if title:
            yield f"<div class=s>{self.line(title)}</div>"

    def remark(self, text: str) -> Iterator[str]:
        if text:
            yield f"<div class=m>{self.line(text)}</div>"

    def more(self, count: int, where: str = "") -> Iterator[str]:
        if count > 0:
            yield from self.remark(f"… {count:,} more{f' ({where})' if where else ''}")

    def grid(self, grid: Grid) -> Iterator[str]:
        if not grid.rows:
            return
        grid = grid.without_empty_columns()
        detail = self.detail
        rows = grid.rows[: detail.rows]
        heads = [self.cell(head) for head in grid.heads[: detail.columns]]
        right = [head in grid.numbers for head in grid.heads]
        yield from self.head(grid.title)
        yield f"<table class={_width(grid, detail)}>"
        yield f"<tr>{''.join(f'<th{_classes(n)}>{h}</th>' for h, n in zip(heads, right, strict=False))}</tr>"
        for row in rows:
            drawn = (
                self.drawn(h, n, one, is_last=one is row[-1]) for h, n, one in zip(heads, right, row, strict=False)
            )
            yield f"<tr>{''.join(drawn)}</tr>"
        yield "</table>"
        yield from self.more(len(grid.rows[:ROWS]) - len(rows) + grid.left_out, grid.more)
        if len(grid.heads) > detail.columns:
            yield from self.remark(f"… {len(grid.heads) - detail.columns} more columns")

    def drawn(self, head: str, number: bool, cell: Cell, *, is_last: bool) -> str:
        text = cell if isinstance(cell, str) else cell.text
        # A command that is cut short cannot be copied; and the last cell has room.
        shown = self.line(text) if isinstance(cell, Command) or is_last else self.cell(text)
        if isinstance(cell, Meter):
            shown += _bar(cell.share)
        elif isinstance(cell, Command) and text:
            shown = f"<code>{shown}</code>"
        content = f"<span>{shown}</span>" if shown else ""
        return f"<td{_classes(number, is_long=len(text) > WORD)} data-h='{head}'>{content}</td>"

    def bars(self, block: Bars) -> Iterator[str]:
        if not block.bars:
            return
        shown = block.bars[: self.detail.rows]
        most = max((amount for _, amount, _ in block.bars), default=0.0)
        yield from self.head(block.title)
        yield _tag(
            "b",
            (
                f"<span>{self.cell(label)}</span>{_bar(share(amount, most))}<span>{self.cell(text)}</span>"
                for label, amount, text in shown
            ),
        )
        yield from self.more(len(block.bars) - len(shown) + block.left_out)

    def strip(self, block: Strip) -> Iterator[str]:
        marks = block.marks[-self.detail.marks :]
        if not marks:
            return
        yield from self.head(block.title)
        yield _tag("x", map(self.mark, marks))
        counted = Counter(mark.kind for mark in marks).most_common(6)
        legend = (f"<span><b class={kind_class(kind)}></b>{count} {self.cell(kind)}</span>" for kind, count in counted)
        yield f"<div class='m l'>{''.join(legend)}{self.line(block.note)}</div>"

    def mark(self, mark: Mark) -> str:
        height = 20 + round(80 * mark.share)
        return f"<b class={kind_class(mark.kind)} style=height:{height}% title='{self.cell(mark.text)}'></b>"

    def notices(self, block: Notices) -> Iterator[str]:
        if not block.rows:
            return
        shown = block.rows[: self.detail.rows]
        yield from self.head(block.title)
        for one in shown:
            word = f"<b class='{one.tone or 'd'}'>{_WORDS[one.tone]}{self.cell(one.word)}</b>"
            yield f"<p>{word} {self.line(one.text)}</p>"
        yield from self.more(len(block.rows) - len(shown) + block.left_out, block.more)


def _letters(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _classes(number: bool, *, is_long: bool = False) -> str:
    names = ["n"] * number + ["w"] * is_long
    return f" class='{' '.join(names)}'" if names else ""


def _width(grid: Grid, detail: _Detail) -> str:
    """``q`` where a line has room for all cells but the long ones, so that none of them need be broken."""
    cells = zip(*grid.rows[: detail.rows], strict=False)
    letters = [
        max(*map(len, head.split() or [""]), *(min(len(_letters(cell)), WORD) for cell in column), 0)
        for head, column in zip(grid.heads, cells, strict=False)
    ]
    return "q" if 8 * sum(letters[: detail.columns]) + 14 * len(letters) <= LINE else "r"


def _tag(name: str, parts: Iterator[str]) -> str:
    return f"<div class={name}>{''.join(parts)}</div>"


def _bar(filled: float) -> str:
    return f"<i>{f'<i style=width:{100 * filled:.0f}%></i>' if filled else ''}</i>"
