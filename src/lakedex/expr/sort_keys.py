"""Map values to keys that Arrow orders as Spark orders the values.

Floats become integers (NaN equal to itself and above all, -0.0 equal to 0.0), text and binary become bytes
(unsigned, which for UTF-8 is the order of code points), booleans, dates and timestamps become integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.expr.nodes import In, Literal
from lakedex.expr.types import Kind, kind_of

__all__ = ["in_keys", "literal_array", "literals_of", "ordering_keys", "to_micros"]


_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


def literal_array(literal: Literal) -> pa.Array:
    """An Arrow array of one element."""
    return _literal_values([literal.value], literal.type)


def _literal_values(values: Sequence[Any], data_type: pa.DataType) -> Any:
    kind = kind_of(data_type)
    if kind is Kind.DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind in (Kind.TIMESTAMP, Kind.LOCAL):
        micros = pa.array(values, pa.int64())
        return micros.cast(pa.timestamp("us") if kind is Kind.LOCAL else pa.timestamp("us", "UTC"))
    return pa.array(values, data_type)


def literals_of(values: pa.Array) -> tuple[Literal, ...]:
    """Values of an array as literals of its type, without null."""
    kind, known = kind_of(values.type), values.drop_null()
    if kind is Kind.DATE:
        return tuple(Literal(days, pa.date32()) for days in known.cast(pa.int32()).to_pylist())
    if kind in (Kind.TIMESTAMP, Kind.LOCAL):
        target = pa.timestamp("us") if kind is Kind.LOCAL else pa.timestamp("us", "UTC")
        return tuple(Literal(micros, target) for micros in to_micros(known).to_pylist())
    return tuple(Literal(value, values.type) for value in known.to_pylist())


def in_keys(node: In) -> pa.Array:
    """Sorted ordering keys of the values of an IN, without null; None if there are none. Computed once."""
    found = node.cached
    if found is None:
        by_type: dict[pa.DataType, list[Any]] = {}
        for literal in node.values:
            if literal.value is not None:
                by_type.setdefault(literal.type, []).append(literal.value)
        parts = [ordering_keys(_literal_values(values, kind)) for kind, values in by_type.items()]
        keys = pa.concat_arrays(parts) if parts else None
        found = (None if keys is None else keys.take(pc.sort_indices(keys)),)
        object.__setattr__(node, "cached", found)
    return found[0]


def ordering_keys(values: pa.Array) -> pa.Array:
    """Ordering keys of an array; null stays null. Arrays of one kind have keys of one type (decimals: of one scale)."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = kind_of(values.type)
    if kind.is_float:
        return _float_keys(values)
    if kind in (Kind.STRING, Kind.BINARY):
        plain = values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
        return plain.cast(pa.large_binary())
    if kind is Kind.DATE:
        return values.cast(pa.int32()).cast(pa.int64())
    if kind in (Kind.TIMESTAMP, Kind.LOCAL):
        return to_micros(values)
    if kind is Kind.DECIMAL:
        return values.cast(pa.decimal128(38, values.type.scale))
    return values.cast(pa.int64())


def to_micros(values: pa.Array) -> pa.Array:
    """Convert timestamps of any unit to int64 microseconds."""
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())


def _float_keys(values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(numbers == 0, 0.0, numbers).view(np.int64)
    keys = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    keys[np.isnan(numbers)] = _MAGNITUDE
    return pa.array(keys, mask=values.is_null().to_numpy(zero_copy_only=False))
