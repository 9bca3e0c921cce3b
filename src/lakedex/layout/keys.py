"""Build record keys and partition paths from rows, and parse values from partition paths.

In Hudi: ``HoodieAvroUtils.getNestedFieldValAsString`` for the text of a value, ``PartitionPathEncodeUtils`` and
``KeyGenUtils`` for paths, ``SimpleKeyGenerator``, ``ComplexKeyGenerator``, ``NonpartitionedKeyGenerator`` for rows. The
escaped characters are those of Hive, not of URLs: space, ``&``, ``+``, ``}`` and non-ASCII text stay. Keys are never
parsed, as values may contain ``:`` and ``,``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.types import PARTITION_PATH, RECORD_KEY

__all__ = [
    "DEFAULT_PARTITION",
    "EMPTY_PART",
    "ESCAPED",
    "NULL_PART",
    "KeyGenerator",
    "StoredKeys",
    "escape",
    "field_column",
    "java_double",
    "partition_depth",
    "partition_paths",
    "partition_values",
    "unescape",
    "value_text",
]


def value_text(column: pa.Array) -> pa.Array:
    """Convert values to text; null stays null.

    Integers are decimal, booleans ``true``/``false``, dates ISO, timestamps the number of microseconds
    (``consistent.logical.timestamp`` off, Hudi's default), decimals plain with their scale, floats as in Java.

    Raises:
        UnsupportedFeatureError: The type cannot be part of a key.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if (
        pa.types.is_large_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
    ):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _per_distinct_value(column)
    raise UnsupportedFeatureError(
        f"a value of type {kind} cannot be part of a record key or partition path; "
        "use a string, number, boolean, date or timestamp column",
        feature=f"key of type {kind}",
    )


def _per_distinct_value(column: pa.Array) -> pa.Array:
    encoded = pc.dictionary_encode(column)
    if pa.types.is_decimal(column.type):
        texts = [format(value, "f") for value in encoded.dictionary.to_pylist()]
    else:
        single = pa.types.is_float32(column.type)
        texts = [java_double(value, single=single) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def java_double(value: float, *, single: bool = False) -> str:
    """``Double.toString`` / ``Float.toString``: shortest digits, ``E`` notation below 10^-3 and from 10^7 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    digits, exponent = _shortest(value, single)
    sign = "-" if value < 0 else ""
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        integer, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{integer}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float, single: bool) -> tuple[str, int]:
    """Shortest decimal digits that parse as ``value``, and the exponent of the first one."""
    number = np.float32(abs(value)) if single else np.float64(abs(value))
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Folder of null and of the empty string."""


ESCAPED = "[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]"
"""Characters of partition values that paths do not have, as a regular expression of Python and of Java."""


_TO_ESCAPE = re.compile(ESCAPED)


_ESCAPED = re.compile("%([0-9a-fA-F]{2})")


def escape(value: str) -> str:
    """Escape a value for a path; the empty string becomes the default partition."""
    if not value:
        return DEFAULT_PARTITION
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found.group()):02X}", value)


def unescape(part: str) -> str:
    """Undo :func:`escape`; other text stays."""
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), part)


def partition_depth(path: str) -> int:
    """Number of folders in a partition path: ``partitionDepth`` of the partition metafile."""
    return len(path.split("/")) if path else 0


def partition_paths(
    columns: Sequence[pa.Array], fields: Sequence[str], *, hive_style: bool, url_encode: bool
) -> pa.Array:
    """Partition path of each row.

    Args:
        columns: One array per partition field, all of the same length.
        fields: Names of the partition fields.
        hive_style: Write ``field=value``.
        url_encode: Escape the values.

    Returns:
        String array without nulls, computed per distinct value and then per distinct combination.
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
    """Typed values of each path, one array per field, and a mask per field of known values; a known null is null.

    A folder is known if a value has exactly this text under the table's settings. All others are unknown: paths
    without one folder per field, invalid text, folders of other settings. They occur in old tables, and a wrong guess
    would lose rows. Null and the empty string share a folder, which is unknown for strings and null for other types.
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
    """Text of the value in a folder's name; None if the name does not match the settings."""
    if part.startswith(prefix) != hive_style:
        return None
    text = part.removeprefix(prefix) if hive_style else part
    plain = unescape(text)
    if text == DEFAULT_PARTITION:
        return text
    # Settings of old tables may be lost, so a possible escape is neither decoded nor taken literally.
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
    # The text must be exactly that of the value: the number 7 is not written to a folder "007".
    if value_text(pa.array([scalar.as_py()], kind))[0].as_py() != text:
        return None, False
    if (
        pa.types.is_float64(kind)
        and np.isfinite(scalar.as_py())
        and float(np.float32(scalar.as_py())) != scalar.as_py()
    ):
        return None, False  # "0.1" may have been written for a float before the column became a double: 0.10000000149.
    return scalar.as_py(), True


NULL_PART = "__null__"
"""Part of a key for a null value."""


EMPTY_PART = "__empty__"
"""Part of a key for an empty text."""


def field_column(batch: pa.RecordBatch | pa.Table, field: str) -> pa.Array:
    """Column ``field`` of a batch; ``a.b`` is a struct's field if no column has that name."""
    if field in batch.schema.names:
        column = batch.column(field)
    else:
        head, *path = field.split(".")
        if head not in batch.schema.names or not path:
            raise InvalidInputError(
                f"column {field!r} is not in the frame: {', '.join(batch.schema.names)}", column=field
            )
        column = pc.struct_field(batch.column(head), path)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGenerator:
    """Builder of record keys and partition paths.

    Attributes:
        record_key: Fields of the key; empty for a keyless table, whose writes generate keys once they have an instant.
        partition_by: Fields of the partition path; empty for a non-partitioned table.
        named_parts: Whether keys are ``field:value,…`` (COMPLEX) instead of the value (SIMPLE, NON_PARTITION).
        hive_style: Whether partition folders are ``field=value``.
        url_encode: Whether partition values are escaped.
    """

    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    named_parts: bool = False
    hive_style: bool = True
    url_encode: bool = True

    @property
    def separators(self) -> tuple[str, ...]:
        """Texts that begin the parts of a key but the first. A value that has one may make another row's key."""
        return tuple(f",{field}:" for field in self.record_key[1:]) if self.named_parts else ()

    def keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Key of each row as a string; null if a row's key is null or empty, or is yet to be generated."""
        if not self.record_key:
            return pa.nulls(batch.num_rows, pa.string())
        texts = [value_text(field_column(batch, field)) for field in self.record_key]
        if not self.named_parts:
            empty = pc.equal(texts[0], "")
            # The column itself, not a copy, if all of its values are keys.
            return pc.if_else(empty, pa.scalar(None, pa.string()), texts[0]) if pc.any(empty).as_py() else texts[0]
        parts = []
        missing = None
        for field, text in zip(self.record_key, texts, strict=True):
            absent = pc.or_(pc.is_null(text), pc.equal(text, "").fill_null(False))
            missing = absent if missing is None else pc.and_(missing, absent)
            shown = pc.if_else(pc.equal(text, ""), EMPTY_PART, text).fill_null(NULL_PART)
            parts.append(pc.binary_join_element_wise(pa.scalar(f"{field}:"), shown, ""))
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")
        return pc.if_else(missing, pa.scalar(None, pa.string()), joined)

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Partition path of each row."""
        if not self.partition_by:
            return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
        columns = [field_column(batch, field) for field in self.partition_by]
        return partition_paths(columns, self.partition_by, hive_style=self.hive_style, url_encode=self.url_encode)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKeys:
    """Keys of rows read from the table, which are in its meta columns."""

    record_key: tuple[str, ...] = (RECORD_KEY,)
    partition_by: tuple[str, ...] = (PARTITION_PATH,)
    separators: ClassVar[tuple[str, ...]] = ()

    def keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Record key column."""
        return field_column(batch, RECORD_KEY)

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Partition path column."""
        return field_column(batch, PARTITION_PATH)
