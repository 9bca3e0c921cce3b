"""Text for people's screens, into which values of rows, names of columns and of files come from everywhere."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["counted", "printable", "printed"]


def printable(text: str) -> str:
    r"""The text with what a terminal obeys or hides (``\x1b``, line ends, writing direction) escaped as Python does."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in text
    )


def printed(lines: Iterable[str]) -> str:
    """Lines below each other, each :func:`printable`: no value can begin a line of its own."""
    return "\n".join(map(printable, lines))


def counted(count: int, noun: str) -> str:
    """A number with its noun, which takes an ``s`` unless there is one of it."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
