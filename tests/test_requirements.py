"""The lines of the two proposals in ``docs/proposals.md`` and the tests that hold them agree.

A heading of that page names lines and the tests that hold them; below it each line has its text. Each test that is named exists, and
each line is named in the text of a test, but for the few of which there is nothing to test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = "docs/proposals.md"
WORDS_ONLY = {"R21", "R22", "R106", "R141", "R152", "R153", "R92.d"}
"""Figures and examples that the texts lack, other engines, a remark, the state of releases."""
_LINE = re.compile(r"R(\d+)(?:\.([a-m]))?")
_RANGE = re.compile(r"(R\d+(?:\.[a-m])?)\s*(?:–|-|to)\s*(R?\d*\.?[a-m]?)")


def expanded(text: str) -> set[str]:
    """All lines that a text names, ranges written out."""
    found = {match[0] for match in _LINE.finditer(text)}
    for match in _RANGE.finditer(text):
        first, last = match[1], match[2] if match[2].startswith("R") else f"R{match[2]}"
        if _LINE.fullmatch(last):
            found |= set(between(first, last))
    return found


def between(first: str, last: str) -> Iterator[str]:
    (number, letter), (end, last_letter) = (
        (int(match[1]), match[2]) for match in map(_LINE.fullmatch, (first, last)) if match
    )
    if letter and last_letter:
        yield from (f"R{number}.{chr(code)}" for code in range(ord(letter), ord(last_letter) + 1))
    elif number <= end:
        yield from (f"R{n}" for n in range(number, end + 1))


def table_rows() -> list[tuple[str, str]]:
    """(lines, what holds them) of each heading of the page."""
    sections = re.split(r"^### ", (ROOT / PAGE).read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [(section.partition(":")[0], section.partition("Held by: ")[2].partition("\n")[0]) for section in sections]


def test_every_line_is_listed() -> None:
    listed = set().union(*(expanded(lines) for lines, _ in table_rows()))
    wanted = {f"R{n}" for n in range(1, 154)}
    wanted |= {f"R37.{letter}" for letter in "abcdefghijkl"} | {f"R92.{letter}" for letter in "abcdefghijklm"}
    assert wanted <= listed, sorted(wanted - listed)


def test_every_line_is_named_by_a_test() -> None:
    texts = (
        path.read_text("utf-8") for path in (ROOT / "tests").rglob("*") if path.suffix in (".py", ".pairs", ".steps")
    )
    named = set().union(*map(expanded, texts))
    listed = set().union(*(expanded(lines) for lines, _ in table_rows()))
    assert listed - named <= WORDS_ONLY, sorted(listed - named - WORDS_ONLY)


def test_every_line_has_its_text() -> None:
    rows = dict(re.findall(r"^\| (R[\d.a-m]+) \| [^|]+ \| (.+) \|$", (ROOT / PAGE).read_text("utf-8"), re.MULTILINE))
    assert set(rows) == set().union(*(expanded(lines) for lines, _ in table_rows()))
    assert all(len(text) > 20 for text in rows.values())


def test_every_test_that_is_named_exists() -> None:
    names = re.findall(r"`(?:[\w/]+/)?(test_\w+\.py)`", (ROOT / PAGE).read_text("utf-8"))
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert names and set(names) <= there, sorted(set(names) - there)
