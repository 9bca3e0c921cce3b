"""Parse LIKE patterns by the rules of Spark's ``StringUtils.escapeLikeRegex``."""

from __future__ import annotations

import re

from lakedex.errors import InvalidInputError

__all__ = ["ANY_ONE", "ANY_RUN", "compile_like", "escaped", "like_prefix", "like_readings", "like_regex"]


ANY_RUN = -1
"""``%``: any run of characters, including newlines."""


ANY_ONE = -2
"""``_``: one code point."""


def compile_like(pattern: str, escape: str) -> list[str | int]:
    """Split a pattern into pieces: text, :data:`ANY_RUN`, :data:`ANY_ONE`.

    Raises:
        InvalidInputError: The escape character precedes an ordinary character or ends the pattern.
    """
    pieces: list[str | int] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            char = next(chars, "")
            if char not in ("%", "_", escape) or not char:
                raise InvalidInputError(
                    f"LIKE pattern {pattern!r}: the escape character {escape!r} may only precede %, _ or itself"
                )
        elif char in "%_":
            pieces.append(ANY_RUN if char == "%" else ANY_ONE)
            continue
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += char
        else:
            pieces.append(char)
    return pieces


def like_prefix(pattern: str, escape: str) -> tuple[str, bool, bool]:
    """Split off the part of a pattern that bounds can check.

    Returns:
        Literal text before the first wildcard; whether the pattern is only that text; whether it is that text followed
        only by ``%``.
    """
    pieces = compile_like(pattern, escape)
    prefix = pieces[0] if pieces and isinstance(pieces[0], str) else ""
    rest = pieces[1:] if prefix else pieces
    return prefix, not rest, bool(rest) and all(piece == ANY_RUN for piece in rest)


def like_readings(pattern: str) -> list[str]:
    """Escape characters that cover all possible meanings of the pattern, the default one first."""
    absent = (
        "\ue000" if "\ue000" not in pattern else next(c for c in map(chr, range(0xE001, 0xF8FF)) if c not in pattern)
    )
    readings: dict[tuple[str | int, ...], str] = {}
    for escape in ("\\", absent, *dict.fromkeys(pattern)):
        try:
            readings.setdefault(tuple(compile_like(pattern, escape)), escape)
        except InvalidInputError:
            continue
    return list(readings.values())


def like_regex(pattern: str, escape: str) -> str:
    """Translate a pattern to RE2's syntax, anchored at both ends."""
    parts = {ANY_RUN: ".*", ANY_ONE: "."}
    pieces = compile_like(pattern, escape)
    return r"(?s)\A" + "".join(parts[p] if isinstance(p, int) else _quoted(p) for p in pieces) + r"\z"


def _quoted(text: str) -> str:
    return "".join(rf"\x{ord(c):02x}" if c.isascii() and not c.isalnum() else c for c in text)


def escaped(text: str) -> str:
    """Pattern that matches exactly this text."""
    return re.sub(r"([\\%_])", r"\\\1", text)
