r"""Keys of bitmap records (RFC-92: ``<column>$<value>$<partition>$<file id>``), and of coverage records beside them.

Values may hold anything, so each part escapes ``\``, ``$`` and NUL with a backslash, as Hudi does in keys of its
secondary index (``SecondaryIndexKeyUtils.escapeSpecialChars``, 1.1.1), and null is one bare NUL. Plain values give
exactly the RFC's key. After a part comes an unescaped ``$``, so that a prefix search for ``x`` does not meet ``xy``.

Keys of coverage begin with a bare NUL, which no column's part does.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import CorruptFileError

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
    "parse_bitmap_key",
    "value_prefix",
]

NULL_MARK = "\0"
_NOT_PARTITIONED = "."
_SPECIAL = re.compile("([\\\\$\0])")
_PART = re.compile("((?:[^\\\\$\0]|\\\\[\\\\$\0])*)", re.DOTALL)


def escape(text: str) -> str:
    """A part of a key."""
    return _SPECIAL.sub(r"\\\1", text)


def escape_all(texts: pa.Array) -> pa.Array:
    """:func:`escape` of each text; null becomes the bare NUL."""
    escaped: Any = pc.replace_substring_regex(texts, "([\\\\$\\x00])", r"\\\1")
    return pc.fill_null(escaped, NULL_MARK)


def column_prefix(column: str) -> str:
    """What all keys of a column begin with."""
    return f"{escape(column)}$"


def value_prefix(column: str, value: str | None) -> str:
    """What all keys of a column's value begin with; ``value`` is its text, None for null."""
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


def coverage_prefix(column: str) -> str:
    """What a column's coverage keys begin with."""
    return f"{NULL_MARK}column${escape(column)}$"


def coverage_key(column: str, block: int) -> str:
    """Key of a block of a column's coverage."""
    return f"{coverage_prefix(column)}{block:05d}"
