r"""Read and write Java ``.properties`` with Hudi's checksum, and read JSON objects.

``.properties`` are in ISO-8859-1. A logical line is ``key``, a separator (``=``, ``:`` or blanks) and ``value``; a line
that ends in an odd number of backslashes continues in the next one, whose leading blanks are skipped; lines that start
with ``#`` or ``!`` are comments. ``\t \n \r \f \uXXXX`` are escapes, any other escaped character stands for itself.
UTF-16 surrogates are escaped one by one.

In Java: ``java.util.Properties.load`` and ``store``; in Hudi: ``HoodieTableConfig.generateChecksum`` (1.1.1).

JSON objects are the format of timeline bodies, definitions and manifests.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from lakedex.errors import CorruptFileError, InvalidInputError

__all__ = ["decode_json_object", "decode_properties", "encode_properties", "table_checksum"]


MAX_BYTES = 8 << 20
"""Limit of bytes; a schema of 50,000 columns takes less."""


MAX_LINES = 100_000
"""Limit of lines; Hudi defines some hundred properties, and a schema takes one line."""


_PAST_BLANKS = re.compile(r"[^ \t\f]|\Z")


_PAST_EMPTY_LINES = re.compile(r"[^ \t\f\r\n]|\Z")


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})?|.)", re.DOTALL)


_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


_IN_KEY = re.compile(r"\\.|[=: \t\f]", re.DOTALL)


_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


_TO_ESCAPE = re.compile(r"[\t\n\f\r\\=:#!]|[^ -~]")


_LINE_END = re.compile(r"\r\n|\r|\n")


_MAX_BMP = 0xFFFF


def table_checksum(database: str | None, table: str) -> int:
    """Value of ``hoodie.table.checksum``; lone surrogates count as ``?``, as in Java."""
    return zlib.crc32(f"{database or ''}.{table}".encode("utf-8", "replace"))


def decode_properties(data: bytes, path: str = "") -> dict[str, str]:
    r"""Decode a properties file, in the order of the file; the last value of a repeated key counts.

    Raises:
        CorruptFileError: A ``\u`` lacks its four hexadecimal digits, or the text exceeds a limit of bytes or lines.
    """
    if len(data) > MAX_BYTES:
        raise CorruptFileError(path, MAX_BYTES, f"at most {MAX_BYTES} bytes", f"{len(data)} bytes")
    entries: dict[str, str] = {}
    for start, line in _logical_lines(data.decode("latin-1"), path):
        end = next((found.start() for found in _IN_KEY.finditer(line) if found[0][0] != "\\"), len(line))
        separator = _SEPARATOR.match(line, end)
        value = separator.end() if separator else end
        entries[_unescape(line[:end], path, start)] = _unescape(line[value:], path, start)
    return entries


def encode_properties(entries: Mapping[str, str], comment: str | None = None) -> bytes:
    """Encode entries in their order, without a date line: equal entries yield equal bytes.

    Args:
        entries: Keys and values.
        comment: Text for comment lines at the top.

    Raises:
        InvalidInputError: The result exceeds ``MAX_BYTES`` and could not be read again.
    """
    lines = []
    if comment is not None:
        lines += [f"#{_comment(part)}" for part in _LINE_END.split(comment)]
    lines += [f"{_escape(key, blanks=True)}={_escape(value, blanks=False)}" for key, value in entries.items()]
    data = "".join(f"{line}\n" for line in lines).encode("latin-1")
    if len(data) > MAX_BYTES:
        largest = max(entries, key=lambda key: len(entries[key]))
        raise InvalidInputError(f"properties take at most {MAX_BYTES} bytes, not {len(data)}; {largest} is the largest")
    return data


def _logical_lines(text: str, path: str) -> Iterator[tuple[int, str]]:
    """Start and text of each line after joining, without comments and empty lines.

    Follows ``Properties.LineReader`` exactly, even where it is odd: a lone backslash at the end of the file is an
    entry with an empty key, and a comment sign counts after a continued empty line.
    """
    at, end, count = 0, len(text), 0
    start, parts = -1, list[str]()
    continues = False
    while at < end:
        # A continuation line keeps a leading line end (which ends the entry); a new line skips it.
        skipped = (_PAST_BLANKS if continues else _PAST_EMPTY_LINES).search(text, at)
        at = skipped.start() if skipped else end
        if at == end:
            break
        count += 1
        if count > MAX_LINES:
            raise CorruptFileError(path, at, f"at most {MAX_LINES} lines", "more")
        found = _LINE_END.search(text, at)
        line_end, after = found.span() if found else (end, end)
        if not parts and text[at] in "#!":
            at, continues = line_end, False
            continue
        if not parts:
            start = at
        line = text[at:line_end]
        odd = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if piece := line[:-1] if odd else line:
            parts.append(piece)
        at = after
        if odd and line_end + 1 < end:
            continues = True
            continue
        if parts or odd:
            yield start, "".join(parts)
        parts, continues = [], False
    if parts:
        yield start, "".join(parts)


def _unescape(text: str, path: str, start: int) -> str:
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        letter, digits = match.group(1), match.group(2)
        if digits is not None:
            return chr(int(digits, 16))
        if letter == "u":
            found = repr(text[match.start() : match.start() + 6])
            raise CorruptFileError(path, start, "four hexadecimal digits after \\u in this line", found)
        return _ESCAPES.get(letter, letter)

    joined = _ESCAPE.sub(plain, text)
    return _SURROGATES.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), joined)


def _escape(text: str, *, blanks: bool) -> str:
    escaped = _TO_ESCAPE.sub(_escape_one, text)
    if blanks:
        return escaped.replace(" ", "\\ ")
    # A reader skips leading blanks of a value, so escaping the first is enough.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape_one(match: re.Match[str]) -> str:
    letter = match.group()
    for short, meant in _ESCAPES.items():
        if meant == letter:
            return f"\\{short}"
    if letter in "\\=:#!":
        return f"\\{letter}"
    return _unicode_escape(letter)


def _unicode_escape(letter: str) -> str:
    code = ord(letter)
    if code > _MAX_BMP:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
    return f"\\u{code:04X}"


def _comment(line: str) -> str:
    return "".join(letter if letter <= "\xff" else _unicode_escape(letter) for letter in line)


def decode_json_object(data: bytes | str, what: str, path: str = "") -> dict[str, Any]:
    """Decode a JSON object.

    Args:
        data: JSON text.
        what: Description of the expected object, for errors.
        path: File named in errors.

    Raises:
        CorruptFileError: The text is not JSON or not an object, or a string in it has a lone surrogate.
    """
    try:
        document = json.loads(data, parse_constant=_no_number)
        # An escape may denote a lone surrogate, which no path, key or file can contain.
        if (b"\\u" if isinstance(data, bytes) else "\\u") in data:  # type: ignore[operator]
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(path, getattr(error, "pos", 0), what, _shown(data, str(error))) from error
    if not isinstance(document, dict):
        raise CorruptFileError(path, 0, what, _shown(data, type(document).__name__))
    return document


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _shown(data: bytes | str, why: str) -> str:
    text = data[:40]
    return f"{text.decode('utf-8', 'replace') if isinstance(text, bytes) else text!r} ({why})"
