"""Functions of text, in code points as in Spark; those without an Arrow kernel run once per distinct value."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.distinct import per_distinct
from lakedex.expr.java_regex import translated
from lakedex.expr.like import ANY_RUN, compile_like
from lakedex.expr.signatures import Datum, FunctionSpec, Takes

__all__ = ["TEXT_FUNCTIONS"]


_MAX_INT = 2**31 - 1


_MAX_TEXT = 2**26
"""Limit of characters in a result; a table of longer texts would not fit in memory."""


def _fixed(value: Any) -> bool:
    return isinstance(value, pa.Scalar)


def _length(text: Datum) -> pa.Array:
    counted = pc.utf8_length(text) if pa.types.is_string(text.type) else pc.binary_length(text)
    return counted.cast(pa.int32())


def _bytes(text: Datum, factor: int = 1) -> pa.Array:
    return pc.multiply(pc.binary_length(text).cast(pa.int32()), pa.scalar(factor, pa.int32()))


def _cased(upper: bool) -> Callable[[pa.Array], pa.Array]:
    def change(text: Datum) -> pa.Array:
        if pc.all(pc.string_is_ascii(text)).as_py() is not False:
            return pc.ascii_upper(text) if upper else pc.ascii_lower(text)
        # ICU and Python may map one character to several (ß to SS); Arrow does not.
        return per_distinct(str.upper if upper else str.lower, pa.string(), text)

    return change


def _initcap(text: Datum) -> pa.Array:
    if pc.all(pc.string_is_ascii(text)).as_py() is False:
        raise UnsupportedFeatureError("initcap of letters outside ASCII is supported in Spark only", feature="initcap")
    return per_distinct(lambda t: " ".join(w[:1].upper() + w[1:].lower() for w in t.split(" ")), pa.string(), text)


def _trimmer(kernel: Callable[..., pa.Array], strip: Callable[[str, str], str]) -> Callable[..., pa.Array]:
    def trim(text: Datum, chars: Datum | None = None) -> pa.Array:
        if chars is None:
            return kernel(text, characters=" ")
        return per_distinct(strip, pa.string(), text, chars)

    return trim


def _swapped(trim: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """``ltrim(chars, text)``."""

    def swapped(first: Datum, second: Datum | None = None) -> pa.Array:
        if second is None:
            return trim(first)
        return per_distinct(lambda chars, text: _STRIPS[trim](text, chars), pa.string(), first, second)

    return swapped


def _cut(text: Datum, start: int, length: int) -> pa.Array:
    """Spark's ``substringSQL``: positions start at 1, negative ones count from the end, 0 means 1."""
    size = len(text)
    first = start - 1 if start > 0 else size + start if start < 0 else 0
    last = max(-(2**31), min(first + length, _MAX_INT))
    return text[max(first, 0) : last] if last > first and last > 0 else text[:0]


def _substring(text: Datum, start: Datum, length: Datum | None = None) -> pa.Array:
    if pa.types.is_string(text.type) and _fixed(start) and (length is None or _fixed(length)) and start.as_py() >= 0:
        first = max(start.as_py() - 1, 0)
        size = _MAX_INT if length is None else length.as_py()
        return pc.utf8_slice_codeunits(text, first, first + max(size, 0))
    length = pa.scalar(_MAX_INT, pa.int32()) if length is None else length
    return per_distinct(_cut, text.type, text, start, length)


def _left(text: Datum, length: Datum) -> pa.Array:
    return per_distinct(lambda t, n: t[: max(n, 0)], text.type, text, length)


def _right(text: Datum, length: Datum) -> pa.Array:
    return per_distinct(lambda t, n: t[-n:] if n > 0 else t[:0], text.type, text, length)


def _concat(first: Datum, *others: Datum) -> pa.Array:
    return pc.binary_join_element_wise(
        first, *others, pa.scalar("" if pa.types.is_string(first.type) else b"", first.type)
    )


def _concat_ws(separator: Datum, *parts: Datum) -> pa.Array:
    """Null parts are skipped; arrays contribute their elements."""
    rows = len(separator)
    joined: Any = pa.nulls(rows, pa.string())
    for part in parts:
        column = pa.repeat(part, rows) if _fixed(part) else part
        column = _joined_elements(column, separator) if pa.types.is_list(column.type) else column
        joined = pc.coalesce(pc.binary_join_element_wise(joined, column, separator), joined, column)
    return pc.if_else(separator.is_valid(), pc.fill_null(joined, ""), pa.scalar(None, pa.string()))


def _joined_elements(lists: Datum, separator: Datum) -> pa.Array:
    """Joined elements, or null if there are none."""
    parent, flat = pc.list_parent_indices(lists), pc.list_flatten(lists)
    known = flat.is_valid()
    parent, flat = parent.filter(known), flat.filter(known)
    counts = np.bincount(parent.to_numpy(zero_copy_only=False), minlength=len(lists))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), flat), separator)
    return pc.if_else(pa.array(counts > 0), joined, pa.scalar(None, pa.string()))


def _replace(text: Datum, search: Datum, replacement: Datum | None = None) -> pa.Array:
    replacement = pa.scalar("") if replacement is None else replacement
    if _fixed(search) and _fixed(replacement):
        if search.as_py() == "":
            return text
        return pc.replace_substring(text, search.as_py(), replacement.as_py())
    return per_distinct(lambda t, s, r: t.replace(s, r) if s else t, pa.string(), text, search, replacement)


def _affix(kernel: Callable[..., pa.Array], test: Callable[[str, str], bool]) -> Callable[..., pa.Array]:
    def found(text: Datum, part: Datum) -> pa.Array:
        return kernel(text, part.as_py()) if _fixed(part) else per_distinct(test, pa.bool_(), text, part)

    return found


def _instr(text: Datum, part: Datum) -> pa.Array:
    return per_distinct(lambda t, p: t.find(p) + 1, pa.int32(), text, part)


def _locate(part: Datum, text: Datum, start: Datum | None = None) -> pa.Array:
    """Null for null parts and texts, but 0 for a null start."""
    if start is None:
        return per_distinct(lambda p, t: t.find(p) + 1, pa.int32(), part, text)
    start = pa.repeat(start, len(part)) if _fixed(start) else start
    found = per_distinct(_find_from, pa.int32(), part, text, pc.fill_null(start, 0))
    return pc.if_else(start.is_valid(), found, pa.scalar(0, pa.int32()))


def _find_from(part: str, text: str, start: int) -> int:
    if start < 1:
        return 0
    if part == "":
        return 1
    return text.find(part, start - 1) + 1


def _padded(text: str, size: int, pad: str, *, left: bool) -> str:
    missing = size - len(text)
    if missing <= 0 or not pad:
        return text[: max(size, 0)]
    _check_size(size)
    filling = (pad * (missing // len(pad) + 1))[:missing]
    return filling + text if left else text + filling


def _pad(*, left: bool) -> Callable[..., pa.Array]:
    def pad(text: Datum, size: Datum, filling: Datum | None = None) -> pa.Array:
        filling = pa.scalar(" ") if filling is None else filling
        return per_distinct(lambda t, n, f: _padded(t, n, f, left=left), pa.string(), text, size, filling)

    return pad


def _check_size(size: int) -> None:
    if size > _MAX_TEXT:
        raise UnsupportedFeatureError(f"texts of {size:,} characters are supported in Spark only", feature="long text")


def _repeated(text: str, times: int) -> str:
    _check_size(len(text) * max(times, 0))
    return text * max(times, 0)


def _repeat(text: Datum, times: Datum) -> pa.Array:
    return per_distinct(_repeated, pa.string(), text, times)


def _split_part(text: Datum, delimiter: Datum, number: Datum) -> pa.Array:
    return per_distinct(_part, pa.string(), text, delimiter, number)


def _part(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise InvalidInputError("part numbers start at 1, or at -1 from the end; 0 is invalid")
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _translated(text: str, source: str, target: str) -> str:
    table: dict[int, str | None] = {}
    for place, char in enumerate(source):
        table.setdefault(ord(char), target[place] if place < len(target) else None)
    return text.translate(table)


def _ascii(text: Datum) -> pa.Array:
    return per_distinct(lambda t: ord(t[0]) if t else 0, pa.int32(), text)


def _each(function: Callable[..., Any], result: pa.DataType) -> Callable[..., pa.Array]:
    return lambda first, *others: per_distinct(function, result, first, *others)


def _like(text: Datum, pattern: Datum) -> pa.Array:
    return per_distinct(lambda t, p: _python_like(p).fullmatch(t) is not None, pa.bool_(), text, pattern)


@lru_cache(maxsize=256)
def _python_like(pattern: str) -> re.Pattern[str]:
    pieces = compile_like(pattern, "\\")
    return re.compile(
        "".join((".*" if p == ANY_RUN else ".") if isinstance(p, int) else re.escape(p) for p in pieces), re.DOTALL
    )


def _matches(text: Datum, pattern: Datum) -> pa.Array:
    expression = translated(pattern.as_py())
    if expression.ascii_only and pc.all(pc.string_is_ascii(text)).as_py() is False:
        raise UnsupportedFeatureError(
            f"the pattern {pattern.as_py()!r} depends on Java for letters outside ASCII: evaluate it in Spark",
            feature="RLIKE",
        )
    return pc.match_substring_regex(text, expression.pattern)


_LTRIM, _RTRIM, _BTRIM = (
    _trimmer(pc.utf8_ltrim, str.lstrip),
    _trimmer(pc.utf8_rtrim, str.rstrip),
    _trimmer(pc.utf8_trim, str.strip),
)


_STRIPS = {_LTRIM: str.lstrip, _RTRIM: str.rstrip}


_TEXT, _INT, _WORD = Takes.TEXT, Takes.INT, Takes.WORD


_STRING = pa.string()


def _spec(takes: tuple[Takes, ...], result: Any, compute: Callable[..., pa.Array], **more: Any) -> FunctionSpec:
    return FunctionSpec(takes, result, compute, **more)


def _own_type(arguments: Any) -> pa.DataType:
    return pa.binary() if pa.types.is_binary(arguments[0].type) else _STRING


TEXT_FUNCTIONS: dict[str, FunctionSpec] = {
    "length": _spec((Takes.TEXT_OR_BYTES,), pa.int32(), _length),
    "octet_length": _spec((Takes.TEXT_OR_BYTES,), pa.int32(), _bytes),
    "bit_length": _spec((Takes.TEXT_OR_BYTES,), pa.int32(), lambda text: _bytes(text, 8)),
    "ascii": _spec((_TEXT,), pa.int32(), _ascii),
    "upper": _spec((_TEXT,), _STRING, _cased(upper=True)),
    "lower": _spec((_TEXT,), _STRING, _cased(upper=False)),
    "initcap": _spec((_TEXT,), _STRING, _initcap),
    "btrim": _spec((_TEXT, _TEXT), _STRING, _BTRIM, optional=1),
    "ltrim": _spec((_TEXT, _TEXT), _STRING, _swapped(_LTRIM), optional=1),
    "rtrim": _spec((_TEXT, _TEXT), _STRING, _swapped(_RTRIM), optional=1),
    "substring": _spec((Takes.TEXT_OR_BYTES, _INT, _INT), _own_type, _substring, optional=1),
    "left": _spec((Takes.TEXT_OR_BYTES, _INT), _own_type, _left),
    "right": _spec((_TEXT, _INT), _STRING, _right),
    "concat": _spec((_TEXT,), _STRING, _concat, repeats=True),
    "concat_bytes": _spec((Takes.TEXT_OR_BYTES,), pa.binary(), _concat, repeats=True, written="concat"),
    "concat_ws": _spec((_TEXT, Takes.TEXTS), _STRING, _concat_ws, optional=1, repeats=True, strict=False),
    "replace": _spec((_TEXT, _TEXT, _TEXT), _STRING, _replace, optional=1),
    "startswith": _spec((_TEXT, _TEXT), pa.bool_(), _affix(pc.starts_with, str.startswith)),
    "endswith": _spec((_TEXT, _TEXT), pa.bool_(), _affix(pc.ends_with, str.endswith)),
    "contains": _spec((_TEXT, _TEXT), pa.bool_(), _affix(pc.match_substring, str.__contains__)),
    "like": _spec((_TEXT, _TEXT), pa.bool_(), _like),
    "rlike": _spec((_TEXT, _WORD), pa.bool_(), _matches),
    "instr": _spec((_TEXT, _TEXT), pa.int32(), _instr),
    "locate": _spec((_TEXT, _TEXT, _INT), pa.int32(), _locate, optional=1, strict=False),
    "lpad": _spec((_TEXT, _INT, _TEXT), _STRING, _pad(left=True), optional=1),
    "rpad": _spec((_TEXT, _INT, _TEXT), _STRING, _pad(left=False), optional=1),
    "repeat": _spec((_TEXT, _INT), _STRING, _repeat),
    "space": _spec((_INT,), _STRING, _each(lambda n: _repeated(" ", n), _STRING)),
    "reverse": _spec((_TEXT,), _STRING, _each(lambda text: text[::-1], _STRING)),
    "split_part": _spec((_TEXT, _TEXT, _INT), _STRING, _split_part),
    "substring_index": _spec((_TEXT, _TEXT, _INT), _STRING, _each(_substring_index, _STRING)),
    "translate": _spec((_TEXT, _TEXT, _TEXT), _STRING, _each(_translated, _STRING)),
}
