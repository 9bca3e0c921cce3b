"""Record keys and partition paths: the text of a value, paths and back, one key builder for all operations.

The text of a value inside record keys and partition paths (``HoodieAvroUtils.getNestedFieldValAsString``).

Partition paths: from typed values to folders and back (``PartitionPathEncodeUtils``, ``KeyGenUtils``).

The escape set is Hive's, not that of URLs: space, ``&``, ``+``, ``}`` and all non-ASCII text stay as they are.

Record keys and partition paths of rows: one builder for every operation.

In Hudi: ``SimpleKeyGenerator``, ``ComplexKeyGenerator``, ``NonpartitionedKeyGenerator``. A key is built, never parsed
back: values may hold ``:`` and ``,``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.types import PARTITION_PATH, RECORD_KEY

__all__ = [
    "DEFAULT_PARTITION",
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
    """Text of each value; null stays null.

    Integers decimal, booleans ``true``/``false``, dates ISO, timestamps the raw number of microseconds
    (``consistent.logical.timestamp`` off, Hudi's default), decimals plain with their scale, floats as Java prints them.

    Raises:
        UnsupportedFeatureError: for a type that cannot be part of a key.
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
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float, single: bool) -> tuple[str, int]:
    """Shortest decimal digits that read back as ``value``, and the exponent of the first one."""
    number = np.float32(abs(value)) if single else np.float64(abs(value))
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


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


NULL_PART = "__null__"


EMPTY_PART = "__empty__"


def field_column(batch: pa.RecordBatch | pa.Table, field: str) -> pa.Array:
    """Column ``field`` of a batch; ``a.b`` reaches into structs when no column has that whole name."""
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
    """How a table's rows are keyed.

    Attributes:
        record_key: fields of the key.
        partition_by: fields of the partition path; empty for a non-partitioned table.
        named_parts: keys read ``field:value,…`` (COMPLEX) instead of the bare value (SIMPLE, NON_PARTITION).
        hive_style: partition folders read ``field=value``.
        url_encode: partition values are escaped.
    """

    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    named_parts: bool = False
    hive_style: bool = True
    url_encode: bool = True

    def keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """Key of each row as a string; null where the row has no valid key (null or empty)."""
        texts = [value_text(field_column(batch, field)) for field in self.record_key]
        if not self.named_parts:
            empty = pc.equal(texts[0], "")
            # The column itself, not a copy, where all of its values are keys.
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
    """Keys of rows that were read from the table: they stand in its meta columns."""

    record_key: tuple[str, ...] = (RECORD_KEY,)
    partition_by: tuple[str, ...] = (PARTITION_PATH,)

    def keys(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """The record-key column."""
        return field_column(batch, RECORD_KEY)

    def partition_paths(self, batch: pa.RecordBatch | pa.Table) -> pa.Array:
        """The partition-path column."""
        return field_column(batch, PARTITION_PATH)
