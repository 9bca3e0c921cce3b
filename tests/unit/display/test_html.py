"""Cards as HTML: whatever a value holds stays text, and no card is large."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from lakedex.display.blocks import (
    Bars,
    Card,
    Code,
    Command,
    Facts,
    Funnel,
    Grid,
    Mark,
    Meter,
    Notice,
    Notices,
    Strip,
)
from lakedex.display.html import MOST_BYTES, card_html, page_html
from lakedex.reports import Report
from report_samples import HOSTILE, MANY, filled, report_classes, result_table

TAGS = {"div", "style", "span", "table", "tr", "th", "td", "b", "i", "p", "pre", "code", "br"}
ATTRIBUTES = {
    "class": re.compile(r"[a-z0-9 ]+"),
    "style": re.compile(r"(width|height):\d{1,3}%"),
    "title": re.compile(".*"),
    "data-h": re.compile(".*"),
}
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Checked(HTMLParser):
    """A document of nothing but the tags and attributes that cards have, each closed in its turn."""

    def __init__(self, text: str, tags: set[str] = TAGS) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags = tags
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.tags
        for name, value in attrs:
            assert ATTRIBUTES[name].fullmatch(value or ""), (tag, name, value)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] != "style":
            self.words.append(data)


def blocks(text: str) -> Card:
    """Every block, filled."""
    cells = (text, Meter(text, 0.5), Command(text), text)
    return Card(
        text,
        text,
        [
            Facts([(text, text)] * MANY),
            Grid([text] * 4, [cells] * MANY, numbers=[text], title=text, more=text),
            Funnel(text, [(text, 10**12 - number) for number in range(MANY)], text),
            Bars(text, [(text, float(number), text) for number in range(MANY)], 10**6),
            Strip(text, [Mark(text, 1.0, text)] * MANY, text),
            Notices([Notice(text, text, "bad")] * MANY, text, 10**6, text),
            Code("\n".join([text] * MANY), text),
        ],
        "warn",
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("cls", report_classes(), ids=lambda cls: cls.__name__)
def test_every_result(cls: type[Report], text: str) -> None:
    result = filled(cls, text)
    html = result._repr_html_()
    Checked(html)
    assert len(html.encode()) <= MOST_BYTES
    assert not CONTROL.search(html) and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", str(result))
    assert len(str(result)) < 200_000


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_every_block_and_tables(text: str) -> None:
    for html in (card_html(blocks(text)), result_table(text)._repr_html_()):
        Checked(html)
        assert len(html.encode()) <= MOST_BYTES
        assert not CONTROL.search(html)
    page = page_html(text, [blocks(text)] * 3)
    assert len(page.encode()) <= 4 * MOST_BYTES
    Checked(page.partition("<body>")[2].removesuffix("</body></html>\n"))


def test_values_are_shown() -> None:
    card = Card("t", "h", [Facts([("a & b", "<1>")]), Grid(["x"], [["it's"]]), Code("say 'x'")])
    found = Checked(card_html(card)).words
    assert {"a & b", "<1>", "it's", "say 'x'"} <= set(found)


def test_lists_end_with_what_is_left_out() -> None:
    grid = Grid(["x"], [[str(number)] for number in range(25)], total=1000, more="to_arrow() has all")
    assert "… 980 more (to_arrow() has all)" in card_html(Card("t", blocks=[grid]))
    assert "… 5 more" in card_html(Card("t", blocks=[Notices([Notice("x")] * 25)]))
    assert "<table" not in card_html(Card("t", blocks=[Grid(["x"], [])]))
