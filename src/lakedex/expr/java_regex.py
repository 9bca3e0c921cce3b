"""Translate Java's regular expressions to RE2 and refuse those that the two read differently."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lakedex.expr.types import NotPrunableError

__all__ = ["RegularExpression", "translated"]


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """Pattern for RE2; ``ascii_only`` if the two agree on ASCII texts only."""

    pattern: str
    ascii_only: bool


_TOKEN = re.compile(
    r"""
    (?P<escape> \\[dDwWsSbBAztnrf\\] | \\[^a-zA-Z0-9] )
  | (?P<refused> \\ | \(\?(?!:) | [*+?}][+] | \[\] | \[\^\] )
  | (?P<klass> \[\^? (?: \\. | [^\\\[\]&] | &(?!&) )+ \] )
  | (?P<repeat> \{\d{1,3}(,\d{0,3})?\} )
  | (?P<brace> [{}\[\]] )
  | (?P<dot> \. )
  | (?P<end> \$ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


_BLANKS = r"\t\n\x0b\f\r "


_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"


_FINAL_LINE_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"


_CLASS_ESCAPE = re.compile(r"\\([dDwWsStnrf\\]|[^a-zA-Z0-9])")


_AFTER_END = re.compile(r"\)*(\||$)", re.DOTALL)


_IGNORE_CASE = "(?i)"


_ANY_ESCAPE = re.compile(r"\\.", re.DOTALL)


@lru_cache(maxsize=256)
def translated(pattern: str) -> RegularExpression:
    """Translate a pattern to RE2.

    Raises:
        NotPrunableError: RE2 lacks a construct or reads it differently.
    """
    ignore_case = pattern.startswith(_IGNORE_CASE)
    body = pattern.removeprefix(_IGNORE_CASE)
    if ignore_case and not body.isascii():
        raise NotPrunableError("(?i) with letters outside ASCII")
    parts = [_IGNORE_CASE] if ignore_case else []
    ascii_only = ignore_case
    for match in _TOKEN.finditer(body):
        kind, text = match.lastgroup, match[0]
        if match["repeat"]:
            kind = "repeat"
        if kind in ("refused", "brace"):
            raise NotPrunableError(f"only Java supports {text!r} in a regular expression")
        if kind == "escape":
            ascii_only |= text in (r"\b", r"\B")
            text = {r"\s": f"[{_BLANKS}]", r"\S": f"[^{_BLANKS}]"}.get(text, text)
        elif kind == "klass":
            text = _class(text)
        elif kind == "dot":
            text = f"[^{_LINE_ENDS}]"
        elif kind == "end":
            if not _AFTER_END.match(body, match.end()) or "\\r" in body or "\r" in body:
                raise NotPrunableError("$ in the middle of a regular expression")
            text = _FINAL_LINE_END
        parts.append(text)
    found = "".join(parts)
    try:
        re.compile(_ANY_ESCAPE.sub("x", body))
    except re.error as error:
        raise NotPrunableError(f"{pattern!r} is not a regular expression: {error}") from error
    return RegularExpression(found, ascii_only)


def _class(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] == "s":
            return _BLANKS
        if match[1] == "S":
            raise NotPrunableError(r"\S inside a character class")
        return match[0]

    rest = _CLASS_ESCAPE.sub("", text)
    if "\\" in rest or "^" in rest[2:]:
        raise NotPrunableError(f"only Java supports {text!r} in a regular expression")
    return _CLASS_ESCAPE.sub(one, text)
