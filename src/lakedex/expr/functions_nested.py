"""Functions of arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakedex.errors import InvalidInputError
from lakedex.expr.signatures import Datum, FunctionSpec, Takes
from lakedex.expr.sort_keys import ordering_keys
from lakedex.types import IntArray

__all__ = ["NESTED_FUNCTIONS", "element_type", "key_type"]


def element_type(nested: pa.DataType) -> pa.DataType:
    """Type of an array's elements or a map's values."""
    return nested.item_type if pa.types.is_map(nested) else nested.value_type


def key_type(nested: pa.DataType) -> pa.DataType:
    """Type of a subscript: a map's key or an array's index."""
    return nested.key_type if pa.types.is_map(nested) else pa.int32()


def _offsets(nested: Datum) -> tuple[IntArray, IntArray]:
    """Offset and number of each row's elements; 0 elements for null."""
    counts = np.array(_counts(nested), np.int64)
    ends = np.cumsum(counts)
    return ends - counts, counts


def _counts(nested: Datum) -> pa.Array:
    if pa.types.is_map(nested.type):
        offsets = nested.offsets.to_numpy(zero_copy_only=False)
        counts = np.diff(offsets)
        return np.where(nested.is_null().to_numpy(zero_copy_only=False), 0, counts)
    return pc.fill_null(pc.list_value_length(nested), 0).to_numpy(zero_copy_only=False)


def _entries(maps: Datum) -> tuple[pa.Array, pa.Array]:
    """Concatenated keys and values of all rows, without those of null maps."""
    first = maps.offsets[0].as_py()
    last = maps.offsets[len(maps)].as_py()
    keys, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    nulls = maps.is_null().to_numpy(zero_copy_only=False)
    lengths = np.diff(maps.offsets.to_numpy(zero_copy_only=False))
    if lengths[nulls].any():
        valid = pa.array(np.repeat(~nulls, lengths))
        keys, items = keys.filter(valid), items.filter(valid)
    return keys, items


def _broadcast(value: Any, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def _integers(values: Datum) -> IntArray:
    return np.array(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)


def _taken(values: Datum, places: IntArray, missing: Datum) -> pa.Array:
    return values.take(pa.array(np.where(missing, 0, places), pa.int64(), mask=missing))


def _at(lists: Datum, places: Datum, *, attempt: bool, from_one: bool) -> pa.Array:
    """Elements by position; negative positions count from the end if positions start at 1."""
    places = _broadcast(places, len(lists))
    null = pc.or_(lists.is_null(), places.is_null()).to_numpy(zero_copy_only=False)
    wanted = _integers(places)
    starts, counts = _offsets(lists)
    if from_one:
        if (wanted[~null] == 0).any():
            raise InvalidInputError("element positions start at 1, or at -1 from the end; 0 is invalid")
        wanted = np.where(wanted > 0, wanted - 1, counts + wanted)
    outside = ~null & ((wanted < 0) | (wanted >= counts))
    if outside.any() and not attempt:
        row = int(np.flatnonzero(outside)[0])
        raise InvalidInputError(
            f"element {places[row]} of an array of {counts[row]} elements; try_element_at returns null instead"
        )
    return _taken(pc.list_flatten(lists), starts + wanted, null | outside)


def _found(maps: Datum, keys: Datum) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Position of the entry with each row's key, and whether there is one."""
    _, counts = _offsets(maps)
    stored = _entries(maps)[0]
    row_of = np.repeat(np.arange(len(maps)), counts)
    wanted = ordering_keys(keys).take(pa.array(row_of))
    equal = pc.fill_null(pc.equal(ordering_keys(stored), wanted), False).to_numpy(zero_copy_only=False)
    places = np.zeros(len(maps), np.int64)
    hit = np.zeros(len(maps), np.bool_)
    entries = np.flatnonzero(equal)[::-1]  # the first of equal keys wins
    places[row_of[entries]] = entries
    hit[row_of[entries]] = True
    return places, hit


def _value_of(maps: Datum, keys: Datum) -> pa.Array:
    places, hit = _found(maps, _broadcast(keys, len(maps)))
    return _taken(_entries(maps)[1], places, ~hit)


def _item(nested: Datum, key: Datum) -> pa.Array:
    """``nested[key]``."""
    if pa.types.is_map(nested.type):
        return _value_of(nested, key)
    return _at(nested, key, attempt=False, from_one=False)


def _element(*, attempt: bool) -> Callable[..., pa.Array]:
    def element_at(nested: Datum, key: Datum) -> pa.Array:
        if pa.types.is_map(nested.type):
            return _value_of(nested, key)
        return _at(nested, key, attempt=attempt, from_one=True)

    return element_at


def _get(lists: Datum, place: Datum) -> pa.Array:
    return _at(lists, place, attempt=True, from_one=False)


def _size(nested: Datum) -> pa.Array:
    return pa.array(_counts(nested), pa.int32(), mask=nested.is_null().to_numpy(zero_copy_only=False))


def _equal_elements(lists: Datum, wanted: Datum) -> tuple[pa.Array, IntArray]:
    """Whether each element equals the row's value (null for null), and its row."""
    _, counts = _offsets(lists)
    row_of = np.repeat(np.arange(len(lists)), counts)
    values = _broadcast(wanted, len(lists)).take(pa.array(row_of))
    return pc.equal(ordering_keys(pc.list_flatten(lists)), ordering_keys(values)), row_of


def _array_contains(lists: Datum, wanted: Datum) -> pa.Array:
    """False only if no element is null, as an unknown element may be equal."""
    wanted = _broadcast(wanted, len(lists))
    equal, row_of = _equal_elements(lists, wanted)
    rows = len(lists)
    hit = np.zeros(rows, np.bool_)
    hit[row_of[pc.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
    open_rows = np.zeros(rows, np.bool_)
    open_rows[row_of[equal.is_null().to_numpy(zero_copy_only=False)]] = True
    null = pc.or_(lists.is_null(), wanted.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(hit, mask=null | (open_rows & ~hit))


def _array_position(lists: Datum, wanted: Datum) -> pa.Array:
    wanted = _broadcast(wanted, len(lists))
    equal, row_of = _equal_elements(lists, wanted)
    starts, _ = _offsets(lists)
    found = np.zeros(len(lists), np.int64)
    entries = np.flatnonzero(pc.fill_null(equal, False).to_numpy(zero_copy_only=False))[::-1]
    found[row_of[entries]] = entries - starts[row_of[entries]] + 1
    null = pc.or_(lists.is_null(), wanted.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(found, mask=null)


def _map_contains_key(maps: Datum, key: Datum) -> pa.Array:
    key = _broadcast(key, len(maps))
    null = pc.or_(maps.is_null(), key.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(_found(maps, key)[1], mask=null)


def _item_type(arguments: Any) -> pa.DataType:
    return element_type(arguments[0].type)


def _field_type(arguments: Any) -> pa.DataType:
    found: pa.DataType = arguments[0].type.field(arguments[1].value).type
    return found


def _field(structs: Datum, name: Datum) -> pa.Array:
    return pc.struct_field(structs, name.as_py())


_LIST, _NESTED, _MAP, _ELEMENT = Takes.LIST, Takes.NESTED, Takes.MAP, Takes.ELEMENT


NESTED_FUNCTIONS: dict[str, FunctionSpec] = {
    "item": FunctionSpec((_NESTED, _ELEMENT), _item_type, _item, written="{0}[{1}]"),
    "element_at": FunctionSpec((_NESTED, _ELEMENT), _item_type, _element(attempt=False)),
    "try_element_at": FunctionSpec((_NESTED, _ELEMENT), _item_type, _element(attempt=True)),
    "get": FunctionSpec((_LIST, Takes.INT), _item_type, _get),
    "field": FunctionSpec((Takes.ANY, Takes.WORD), _field_type, _field, written="({0}).{v1}"),
    "size": FunctionSpec((_NESTED,), pa.int32(), _size, in_both_modes=False),
    "array_size": FunctionSpec((_LIST,), pa.int32(), _size),
    "array_contains": FunctionSpec((_LIST, _ELEMENT), pa.bool_(), _array_contains),
    "array_position": FunctionSpec((_LIST, _ELEMENT), pa.int64(), _array_position),
    "map_contains_key": FunctionSpec((_MAP, _ELEMENT), pa.bool_(), _map_contains_key),
}
