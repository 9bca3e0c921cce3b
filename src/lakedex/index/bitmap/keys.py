r"""Keys of bitmap and coverage records, and the text of a column's value within them.

Keys of bitmap records (RFC-92: ``<column>$<value>$<partition>$<file id>``), and of coverage records beside them.

Values may hold anything, so each part escapes ``\``, ``$`` and NUL with a backslash, as Hudi does in keys of its
secondary index (``SecondaryIndexKeyUtils.escapeSpecialChars``, 1.1.1), and null is one bare NUL. Plain values give
exactly the RFC's key. After a part comes an unescaped ``$``, so that a prefix search for ``x`` does not meet ``xy``.

Keys of coverage begin with a bare NUL, which no column's part does.

The text of a column's value in a key, one text a value and one value a text.

===================  ==============================================================
Spark type           text
===================  ==============================================================
boolean              ``true``, ``false``
tinyint … bigint     decimal digits
decimal(p, s)        plain digits with ``s`` of them after the point
float, double        the shortest digits that read back, as Java prints them; -0.0 is ``0.0``; one ``NaN``
string               itself
binary               lower-case hex
date                 ISO
timestamp(_ntz)      microseconds since 1970, UTC (local for ``_ntz``)
===================  ==============================================================
"""

from __future__ import annotations

import decimal
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import CorruptFileError
from lakedex.expr.sort_keys import to_micros
from lakedex.expr.types import Kind, NotPrunableError, kind_of
from lakedex.layout.keys import java_double

__all__ = [
    "NULL_MARK",
    "bitmap_key",
    "column_prefix",
    "coverage_key",
    "coverage_prefix",
    "escape",
    "escape_all",
    "files_key",
    "group_suffix",
    "is_indexable",
    "logs_key",
    "normal_values",
    "parse_bitmap_key",
    "parse_type",
    "type_text",
    "typed_values",
    "value_prefix",
    "value_texts",
]


NULL_MARK = "\0"


_NOT_PARTITIONED = "."


_SPECIAL = re.compile("([\\\\$\0])")


_PART = re.compile("((?:[^\\\\$\0]|\\\\[\\\\$\0])*)", re.DOTALL)


def escape(text: str) -> str:
    """A part of a key."""
    return text if text.isalnum() else _SPECIAL.sub(r"\\\1", text)


def escape_all(texts: pa.Array) -> pa.Array:
    """:func:`escape` of each text; null becomes the bare NUL."""
    escaped: Any = pc.replace_substring_regex(texts, "([\\\\$\\x00])", r"\\\1")
    return pc.fill_null(escaped, NULL_MARK)


def column_prefix(column: str) -> str:
    """Prefix of all keys of a column."""
    return f"{escape(column)}$"


def value_prefix(column: str, value: str | None) -> str:
    """Prefix of all keys of a column's value; ``value`` is its text, None for null."""
    return f"{escape(column)}${NULL_MARK if value is None else escape(value)}$"


def bitmap_key(column: str, value: str | None, partition: str, file_id: str) -> str:
    """Key of the rows of one file group that hold a value."""
    return f"{value_prefix(column, value)}{group_suffix(partition, file_id)}"


def group_suffix(partition: str, file_id: str) -> str:
    """The RFC's file group id: partition path (``.`` for a table without partitions) and file id."""
    return f"{escape(partition or _NOT_PARTITIONED)}${escape(file_id)}"


def parse_bitmap_key(key: str) -> tuple[str, str | None, str, str]:
    """Column, value, partition and file id of a key.

    Raises:
        CorruptFileError: no such key.
    """
    parts: list[str | None] = []
    at = 0
    while at <= len(key):
        if key.startswith(NULL_MARK, at):
            parts.append(None)
            at += 1
        else:
            match = _PART.match(key, at)
            text = "" if match is None else match[1]
            parts.append(re.sub("\\\\([\\\\$\0])", r"\1", text))
            at += len(text)
        if at < len(key) and key[at] != "$":
            break
        at += 1
    if len(parts) != 4 or at <= len(key) or any(parts[place] is None for place in (0, 2, 3)):
        raise CorruptFileError("", 0, "a bitmap key column$value$partition$fileId", repr(key[:80]))
    column, value, partition, file_id = parts
    return str(column), value, "" if partition == _NOT_PARTITIONED else str(partition), str(file_id)


def files_key(block: int) -> str:
    """Key of a block of covered base files."""
    return f"{NULL_MARK}files${block:05d}"


def logs_key(block: int) -> str:
    """Key of what is known of the log files in a block of covered files."""
    return f"{NULL_MARK}logs${block:05d}"


def coverage_prefix(column: str) -> str:
    """Prefix of a column's coverage keys."""
    return f"{NULL_MARK}column${escape(column)}$"


def coverage_key(column: str, block: int) -> str:
    """Key of a block of a column's coverage."""
    return f"{coverage_prefix(column)}{block:05d}"


_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}


_PLAIN: dict[Kind, tuple[str, Any]] = {
    Kind.BOOL: ("boolean", pa.bool_()),
    Kind.FLOAT: ("float", pa.float32()),
    Kind.DOUBLE: ("double", pa.float64()),
    Kind.STRING: ("string", pa.string()),
    Kind.BINARY: ("binary", pa.binary()),
    Kind.DATE: ("date", pa.date32()),
    Kind.TIMESTAMP: ("timestamp", pa.timestamp("us", "UTC")),
    Kind.LOCAL: ("timestamp_ntz", pa.timestamp("us")),
}


_TYPES: dict[str, pa.DataType] = {
    **dict(_PLAIN.values()),
    **{text: pa.type_for_alias(f"int{bits}") for bits, text in _INTEGERS.items()},
}


def is_indexable(kind: pa.DataType) -> bool:
    """Whether values of a type have a text."""
    try:
        return kind_of(kind) is not Kind.NULL
    except NotPrunableError:
        return False


def type_text(kind: pa.DataType) -> str:
    """Spark's name of a type, which identifies values of earlier schemas.

    Raises:
        NotJudgeable: a type without texts.
    """
    found = kind_of(kind)
    if found is Kind.INT:
        return _INTEGERS[kind.bit_width]
    if found is Kind.DECIMAL:
        return f"decimal({kind.precision},{kind.scale})"
    if found is Kind.NULL:
        raise NotPrunableError
    return _PLAIN[found][0]


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of :func:`type_text`.

    Raises:
        CorruptFileError: no such type.
    """
    if text in _TYPES:
        return _TYPES[text]
    try:
        if not (text.startswith("decimal(") and text.endswith(")")):
            raise ValueError
        precision, scale = (int(part) for part in text[8:-1].split(","))
        return pa.decimal128(precision, scale)
    except (ValueError, pa.ArrowInvalid) as error:
        raise CorruptFileError("", 0, "the name of a Spark type", repr(text[:40])) from error


def normal_values(values: pa.Array) -> pa.Array:
    """The same values with one representation each, so that their bits distinguish them."""
    kind = kind_of(values.type)
    if kind.is_float:
        numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
        plain = np.where(np.isnan(numbers), np.nan, numbers + 0.0).astype(numbers.dtype)
        return pa.array(plain, values.type, mask=values.is_null().to_numpy(zero_copy_only=False))
    if kind in (Kind.TIMESTAMP, Kind.LOCAL):
        return to_micros(values)
    if kind is Kind.STRING and not pa.types.is_string(values.type):
        return values.cast(pa.string())
    if kind is Kind.BINARY and not pa.types.is_binary(values.type):
        return values.cast(pa.binary())
    return values


def value_texts(values: pa.Array) -> pa.Array:
    """Text of each value; null stays null. For the distinct values of a column: some types take a Python call each.

    Args:
        values: an Arrow array of an indexable type.
    """
    kind = kind_of(values.type)
    normal = normal_values(values)
    if kind is Kind.STRING:
        return normal
    if kind in (Kind.BOOL, Kind.INT, Kind.TIMESTAMP, Kind.LOCAL):
        return normal.cast(pa.string())
    nulls = normal.is_null().to_numpy(zero_copy_only=False)
    if kind is Kind.DATE:
        days = pc.fill_null(normal.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
        return pa.array(days.astype("datetime64[D]").astype(str).astype(object), pa.string(), mask=nulls)
    texts: list[str | None]
    if kind.is_float:
        single = kind is Kind.FLOAT
        texts = [None if v is None else java_double(v, single=single) for v in normal.to_pylist()]
    elif kind is Kind.DECIMAL:
        texts = [None if v is None else format(v, "f") for v in normal.to_pylist()]
    else:
        texts = [None if v is None else v.hex() for v in normal.to_pylist()]
    return pa.array(texts, pa.string())


def typed_values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of texts; null stays null.

    Args:
        texts: an Arrow string array.
        kind: a type that :func:`parse_type` gives.

    Raises:
        CorruptFileError: a text that is no value of the type.
    """
    try:
        return _typed(texts, kind)
    except (pa.ArrowException, ValueError, OverflowError, decimal.InvalidOperation) as error:
        raise CorruptFileError("", 0, f"values of type {kind}", str(error).splitlines()[0]) from error


_WIDE = decimal.Context(prec=80, traps=[decimal.InvalidOperation])


def _typed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    found = kind_of(kind)
    if found is Kind.STRING:
        return texts
    if found in (Kind.BOOL, Kind.INT):
        return texts.cast(kind)
    if found in (Kind.TIMESTAMP, Kind.LOCAL):
        return texts.cast(pa.int64()).cast(kind)
    values = texts.to_pylist()
    if found is Kind.DATE:
        days = [0 if v is None else int(np.datetime64(v, "D").astype(np.int64)) for v in values]
        return pa.array(days, pa.int32(), mask=np.array([v is None for v in values], bool)).cast(kind)
    if found is Kind.FLOAT:
        return pa.array([None if v is None else np.float32(v) for v in values], kind)
    if found is Kind.DOUBLE:
        return pa.array([None if v is None else float(v) for v in values], kind)
    if found is Kind.DECIMAL:
        return pa.array([None if v is None else _WIDE.create_decimal(v) for v in values], kind)
    return pa.array([None if v is None else bytes.fromhex(v) for v in values], kind)
