"""Take the literals out of SQL text before sqlglot sees it.

sqlglot reads strings and number suffixes a little differently from Spark (``1.5BD`` becomes a cast to DECIMAL
without scale, backslashes have other rules), and a literal that is read differently drops rows. So each string and
each suffixed number is replaced by a string of its own, ``'§12§'``, and looked up again in the parsed tree.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from lakedex.errors import InvalidInputError
from lakedex.expr.literals import unescape
from lakedex.expr.nodes import Literal
from lakedex.expr.numbers import exact_decimal, float32

__all__ = ["MaskedSql", "mask", "number_literal"]

_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
  | (?P<name> `(?:[^`]|``)*` )
  | (?P<hex> \b[xX] \s* (?: '[^']*' | "[^"]*" ) )
  | (?P<raw> \b[rR] (?: '[^']*' | "[^"]*" ) )
  | (?P<string> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
  | (?P<number> (?<![\w.]) (?:\d+(?:\.\d*)?|\.\d+) (?:[eE][+-]?\d+)? (?P<suffix>BD|[LSYDF]) (?!\w) )
  | (?P<bad> ['"`] | /\* )
  | (?P<other> \w+ | . )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_MASK = re.compile(r"'§(\d+)§'")
_SUFFIX_TYPES: dict[str, Any] = {"L": pa.int64(), "S": pa.int16(), "Y": pa.int8(), "D": pa.float64(), "F": pa.float32()}


@dataclass(frozen=True, slots=True)
class MaskedSql:
    """The text for sqlglot, and what its masks stand for."""

    text: str
    sources: tuple[str, ...]
    literals: tuple[Literal, ...]

    def literal(self, text: str) -> Literal | None:
        """The literal behind a parsed string's text."""
        match = _MASK.fullmatch(f"'{text}'")
        return self.literals[int(match[1])] if match and int(match[1]) < len(self.literals) else None

    def unmask(self, text: str) -> str:
        """Put the user's own literals back into a text that sqlglot wrote."""
        return _MASK.sub(lambda m: self.sources[int(m[1])] if int(m[1]) < len(self.sources) else m[0], text)


def mask(sql: str) -> MaskedSql:
    """Replace string literals and suffixed numbers.

    Raises:
        InvalidInputError: An unclosed quote; a quote doubled inside a string (Spark 3 and Spark 4 read it differently).
    """
    if "§" in sql:
        # Our own mark inside the text: hide it, strings keep it through their sources.
        sql = _hide_marks(sql)
    out: list[str] = []
    sources: list[str] = []
    literals: list[Literal] = []
    end_of_string, last_quote = -1, ""
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup, match[0]
        if match["number"]:
            kind = "number"
        if kind == "bad":
            raise InvalidInputError(f"unclosed {text} at character {match.start() + 1} of: {sql}")
        if kind not in ("string", "raw", "hex", "number"):
            out.append(" " if kind == "comment" else text)
            continue
        if kind == "string" and end_of_string == match.start() and last_quote == text[0]:
            raise InvalidInputError(
                f"a doubled quote at character {match.start() + 1} of: {sql}; Spark versions read it differently,"
                " write a backslash before a quote inside a string"
            )
        end_of_string, last_quote = match.end(), text[-1]
        sources.append(text)
        literals.append(_literal(kind, text, match["suffix"]))
        out.append(f"'§{len(sources) - 1}§'")
    return MaskedSql("".join(out), tuple(sources), tuple(literals))


def _hide_marks(sql: str) -> str:
    parts = []
    for match in _TOKEN.finditer(sql):
        if "§" in match[0] and match.lastgroup == "string":
            parts.append(match[0].replace("§", "\\u00a7"))
        elif "§" in match[0] and match.lastgroup != "comment":
            raise InvalidInputError(f"the character § can only be used inside a quoted string: {sql}")
        else:
            parts.append(match[0])
    return "".join(parts)


def _literal(kind: str, text: str, suffix: str | None) -> Literal:
    if kind == "raw":
        return Literal(text[2:-1], pa.string())
    if kind == "hex":
        digits = text[1:].strip()[1:-1]
        try:
            return Literal(bytes.fromhex("0" * (len(digits) % 2) + digits), pa.binary())
        except ValueError as error:
            raise InvalidInputError(f"{text} is not hexadecimal") from error
    if kind == "string":
        return Literal(unescape(text[1:-1]), pa.string())
    suffix = (suffix or "").upper()
    return number_literal(text[: -len(suffix)], suffix)


def number_literal(text: str, suffix: str = "", *, negative: bool = False) -> Literal:
    """The literal of a number's text with Spark's type rules: int, else long, else decimal; exponent means double.

    Raises:
        InvalidInputError: Not a number, or out of its suffix's range.
        NotJudgeable: More than 38 digits.
    """
    sign = "-" if negative else ""
    try:
        if suffix in ("D", "F") or (not suffix and "e" in text.lower()):
            value = float(sign + text)
            if math.isinf(value):
                raise ValueError
            return Literal(float32(value) if suffix == "F" else value, _SUFFIX_TYPES[suffix or "D"])
        if suffix == "BD" or (not suffix and "." in text):
            return exact_decimal(Decimal(sign + text))
        whole = int(sign + text)
    except (ValueError, InvalidOperation) as error:
        raise InvalidInputError(f"{text + suffix!r} is not a number") from error
    if suffix:
        bits = _SUFFIX_TYPES[suffix].bit_width
        # The minus is no part of the literal in Spark's grammar but in its text: allow the smallest value's digits.
        if not -(2 ** (bits - 1)) <= whole <= 2 ** (bits - 1):
            raise InvalidInputError(f"{text + suffix!r} does not fit {_SUFFIX_TYPES[suffix]}")
        return Literal(whole, _SUFFIX_TYPES[suffix])
    for bits, type_ in ((32, pa.int32()), (64, pa.int64())):
        if -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
            return Literal(whole, type_)
    return exact_decimal(Decimal(whole))
