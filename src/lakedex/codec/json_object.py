"""JSON objects as Hudi's files hold them: timeline bodies, definitions, manifests."""

from __future__ import annotations

import json
from typing import Any

from lakedex.errors import CorruptFileError

__all__ = ["decode_json_object"]


def decode_json_object(data: bytes | str, what: str, path: str = "") -> dict[str, Any]:
    """The object that JSON text is.

    Args:
        data: the text.
        what: what it should be, for errors.
        path: the file, for errors.

    Raises:
        CorruptFileError: no JSON, another kind of value, or texts that are no Unicode (halves of a character).
    """
    try:
        document = json.loads(data, parse_constant=_no_number)
        # An escape may name half of a character, which no path, key or file can hold.
        if (b"\\u" if isinstance(data, bytes) else "\\u") in data:  # type: ignore[operator]
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(path, getattr(error, "pos", 0), what, _shown(data, str(error))) from error
    if not isinstance(document, dict):
        raise CorruptFileError(path, 0, what, _shown(data, type(document).__name__))
    return document


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _shown(data: bytes | str, why: str) -> str:
    text = data[:40]
    return f"{text.decode('utf-8', 'replace') if isinstance(text, bytes) else text!r} ({why})"
