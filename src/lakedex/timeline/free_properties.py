"""Properties of users in ``hoodie.properties``, and the SQL defaults of columns.

Hudi keeps properties that it does not know. Keys that begin with ``hoodie.`` are its settings, and those that begin
with ``lakedex.`` are lakedex's; users may have all others. ``lakedex.default.<column>`` is the SQL text that an
``INSERT`` writes for a column that it leaves out. Spark evaluates it, so only literals and three functions are taken,
and strings that Spark's settings could read in another way (escapes, ``${…}``) go to it as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lakedex.errors import InvalidInputError, OptionError

__all__ = ["DEFAULT", "check_default", "check_properties", "column_defaults", "free_properties"]


DEFAULT: Final = "lakedex.default."


_OURS: Final = ("hoodie.", "lakedex.")


_LITERAL: Final = (
    r"(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?(?:l|s|y|f|d|bd)?"
    r"|(?:date|timestamp|timestamp_ltz|timestamp_ntz)\s*'[\w\s:.+/-]*'"
    r"|x\s*'[0-9a-f]*'"
    r"|'(?:[^'\\]|''|\\['\"\\bnrt])*'"
    r"|true|false|null)"
)


_DEFAULT_TEXT: Final = re.compile(
    rf"\s*(?:{_LITERAL}|cast\s*\(\s*{_LITERAL}\s+as\s+[a-z]+(?:\s*\([\d\s,]+\))?\s*\)"
    r"|(?:current_date|current_timestamp|now)\s*(?:\(\s*\))?)\s*",
    re.IGNORECASE | re.DOTALL,
)


_STRING: Final = re.compile(r"(?<![\w])(?<!\w\s)'((?:[^'\\]|''|\\.)*)'", re.DOTALL)


_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)


_ESCAPED: Final = {"b": "\b", "n": "\n", "r": "\r", "t": "\t"}


def free_properties(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of users, by name."""
    return {key: raw[key] for key in sorted(raw) if not key.startswith(_OURS)}


def column_defaults(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL default of each column that has one, in a form that every setting of Spark's parser reads alike.

    A text that :func:`check_default` refuses is none.
    """
    found = {key.removeprefix(DEFAULT): text for key, text in raw.items() if key.startswith(DEFAULT)}
    return {column: _STRING.sub(_as_bytes, text) for column, text in found.items() if _DEFAULT_TEXT.fullmatch(text)}


def _as_bytes(literal: re.Match[str]) -> str:
    if re.fullmatch(r"[^'\\$]*", literal[1]):
        return literal[0]
    text = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else "'", literal[1])
    code = text.encode("utf-8", "replace").hex()
    return f"cast(X'{code}' as string)"


def check_default(text: str, column: str, table: str) -> str:
    """Return the text if it can be a default.

    Raises:
        InvalidInputError: It is no literal and no ``current_date()``, ``current_timestamp()`` or ``now()``.
    """
    if not _DEFAULT_TEXT.fullmatch(text):
        raise InvalidInputError(
            f"table {table}: DEFAULT {text} of column {column!r} is not supported; give a literal, current_date() or "
            "current_timestamp(), or write the value with each INSERT",
            column=column,
        )
    return text


def check_properties(changes: Mapping[str, str | None], table: str) -> None:
    """Check properties that a user sets or removes.

    Raises:
        OptionError: A setting of Hudi or lakedex.
        InvalidInputError: An empty name, a value that is no text, a default that cannot be one.
    """
    for key, value in changes.items():
        if not key or not isinstance(value, str | None):
            raise InvalidInputError(f"table {table}: property {key!r} needs a name, and text as its value")
        if key.startswith(DEFAULT):
            if value is not None:
                check_default(value, key.removeprefix(DEFAULT), table)
        elif key.startswith(_OURS):
            raise OptionError(
                f"table {table}: property {key!r} is a setting and cannot be changed as a property; give hoodie.* "
                "options to a write, or to Table.create",
                option=key,
            )
