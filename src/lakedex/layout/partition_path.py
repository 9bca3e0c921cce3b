"""Partition paths: from typed values to folders and back (``PartitionPathEncodeUtils``, ``KeyGenUtils``).

The escape set is Hive's, not that of URLs: space, ``&``, ``+``, ``}`` and all non-ASCII text stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.layout.value_text import value_text

__all__ = ["DEFAULT_PARTITION", "escape", "partition_depth", "partition_paths", "partition_values", "unescape"]

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Stands for null and for the empty string."""

_TO_ESCAPE = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_ESCAPED = re.compile("%([0-9a-fA-F]{2})")


def escape(value: str) -> str:
    """One value as a path part; empty becomes the default partition."""
    if not value:
        return DEFAULT_PARTITION
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found.group()):02X}", value)


def unescape(part: str) -> str:
    """Undo :func:`escape`; what is no escape stays as it is."""
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), part)


def partition_depth(path: str) -> int:
    """How many folders a partition path has: ``partitionDepth`` of the partition metafile."""
    return len(path.split("/")) if path else 0


def partition_paths(
    columns: Sequence[pa.Array], fields: Sequence[str], *, hive_style: bool, url_encode: bool
) -> pa.Array:
    """Partition path of each row.

    Args:
        columns: one array per partition field, all of the same length.
        fields: names of the partition fields.
        hive_style: write ``field=value``.
        url_encode: escape the values.

    Returns:
        A string array without nulls. Work is done per distinct value, then per distinct combination.
    """
    parts = [
        _distinct_parts(column, f"{field}=" if hive_style else "", url_encode)
        for column, field in zip(columns, fields, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, "/")


def _distinct_parts(column: pa.Array, prefix: str, url_encode: bool) -> pa.Array:
    text = value_text(column).fill_null("")
    encoded = pc.dictionary_encode(text)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    escaped = [prefix + (escape(v) if url_encode else v or DEFAULT_PARTITION) for v in encoded.dictionary.to_pylist()]
    return pa.array(escaped, pa.string()).take(encoded.indices)


def partition_values(
    paths: Sequence[str],
    fields: Sequence[str],
    types: Sequence[pa.DataType],
    *,
    hive_style: bool = True,
    url_encode: bool = True,
) -> tuple[list[pa.Array], list[npt.NDArray[np.bool_]]]:
    """Typed values of each path, one array per field, and per field where the value is known; a known null is null.

    A folder is known where a value gives just this text under the table's settings. All others are unknown: a path
    that does not have one folder per field, text that is no value of the type, folders of other settings. Old tables
    and other encodings exist, and a wrong guess would lose rows. Null and the empty string share one folder, so that
    folder is unknown for strings and null for all others.
    """
    split = [path.split("/") if path else [] for path in paths]
    values: list[pa.Array] = []
    known: list[npt.NDArray[np.bool_]] = []
    for position, (field, kind) in enumerate(zip(fields, types, strict=True)):
        texts = [
            _text_of(parts[position], f"{field}=", hive_style, url_encode) if len(parts) == len(fields) else None
            for parts in split
        ]
        column = [_value_of(text, kind) for text in texts]
        values.append(pa.array([value for value, _ in column], kind))
        known.append(np.array([is_known for _, is_known in column], dtype=bool))
    return values, known


def _text_of(part: str, prefix: str, hive_style: bool, url_encode: bool) -> str | None:
    """The text of a value in a folder's name; None where the name is not one that the settings give."""
    if part.startswith(prefix) != hive_style:
        return None
    text = part.removeprefix(prefix) if hive_style else part
    plain = unescape(text)
    if text == DEFAULT_PARTITION:
        return text
    # Settings of old tables may be lost: what could be an escape counts neither as one nor as plain text.
    stored = escape(plain) if url_encode else plain
    return plain if stored == text else None


def _value_of(text: str | None, kind: pa.DataType) -> tuple[object, bool]:
    if text is None or pa.types.is_binary(kind):
        return None, False
    if text == DEFAULT_PARTITION:
        return None, not (pa.types.is_string(kind) or pa.types.is_large_string(kind))
    try:
        if pa.types.is_timestamp(kind):
            scalar = pa.scalar(int(text), pa.int64()).cast(kind)
        else:
            scalar = pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return None, False
    # The text must be the one that the value gives: "007" is no folder that the number 7 was written to.
    if value_text(pa.array([scalar.as_py()], kind))[0].as_py() != text:
        return None, False
    if (
        pa.types.is_float64(kind)
        and np.isfinite(scalar.as_py())
        and float(np.float32(scalar.as_py())) != scalar.as_py()
    ):
        return None, False  # "0.1" may be what a float gave before the column became a double: 0.10000000149.
    return scalar.as_py(), True
