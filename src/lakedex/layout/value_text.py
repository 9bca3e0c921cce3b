"""The text of a value inside record keys and partition paths (``HoodieAvroUtils.getNestedFieldValAsString``)."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import UnsupportedFeatureError

__all__ = ["java_double", "value_text"]


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
