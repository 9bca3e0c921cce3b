"""Nulls below a struct that is null itself: nobody sees them, but Arrow's Parquet writer refuses required ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakedex.arrow_frames import has_required

__all__ = ["fill_hidden"]


def fill_hidden(array: pa.Array) -> pa.Array:
    """The same rows with some value in required fields of structs that are null.

    A null in a required field of a struct that is there stays; the writer refuses it.
    """
    kind = array.type
    if not has_required(kind):
        return array
    compact = pa.concat_arrays([array]) if array.offset else array
    if pa.types.is_struct(kind):
        parts = [fill_hidden(compact.field(place)) for place in range(kind.num_fields)]
        for place, child in enumerate(kind):
            if not child.nullable and parts[place].null_count:
                parts[place] = _filled(parts[place], compact.is_null())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=compact.is_null())
    if pa.types.is_map(kind):
        items = fill_hidden(compact.items)
        return pa.MapArray.from_arrays(compact.offsets, compact.keys, items, type=kind, mask=compact.is_null())
    return pa.ListArray.from_arrays(compact.offsets, fill_hidden(compact.values), type=kind, mask=compact.is_null())


def _filled(part: pa.Array, hidden: pa.Array) -> pa.Array:
    """``part`` with a value wherever it is null and hidden."""
    places = np.arange(len(part))
    places[part.is_null().to_numpy(zero_copy_only=False) & hidden.to_numpy(zero_copy_only=False)] = len(part)
    return pa.concat_arrays([part, _any_value(part.type)]).take(pa.array(places))


def _any_value(kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_any_value(child.type) for child in kind], fields=list(kind))
    value: Any = 0
    if pa.types.is_boolean(kind):
        value = False
    elif pa.types.is_string(kind):
        value = ""
    elif pa.types.is_binary(kind):
        value = b""
    elif pa.types.is_nested(kind):
        value = []
    return pa.array([value], kind)
