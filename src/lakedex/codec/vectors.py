"""Convert Hudi's VECTOR, numbers of one width stored little-endian in a fixed of Avro or Parquet, to Arrow lists.

In Hudi 1.2: the logical type ``vector`` of Avro with ``dimension`` and ``elementType`` (FLOAT, DOUBLE, INT8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

__all__ = ["hudi_types", "is_vector_of", "vector_bytes", "vector_type", "vectors"]


_ELEMENTS = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "INT8": pa.int8()}


_HUDI_TYPES = frozenset({"vector", "blob", "variant"})


def vector_type(node: Mapping[str, Any]) -> pa.DataType | None:
    """Arrow list type of a fixed that is a vector; None for another fixed, or one of the wrong size."""
    element = _ELEMENTS.get(str(node.get("elementType")))
    if node.get("logicalType") != "vector" or element is None:
        return None
    found = pa.list_(pa.field("element", element, False), int(node["dimension"]))
    return found if vector_bytes(found) == int(node["size"]) else None


def vector_bytes(kind: pa.DataType) -> int:
    """Size of a vector in bytes."""
    return int(kind.list_size * kind.value_type.bit_width // 8)


def is_vector_of(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether ``source`` is the storage type of vectors of type ``target``."""
    return bool(
        pa.types.is_fixed_size_list(target)
        and pa.types.is_fixed_size_binary(source)
        and source.byte_width == vector_bytes(target)
    )


def vectors(array: Any, kind: pa.DataType) -> Any:
    """View bytes as vectors of type ``kind``, without a copy."""
    rows, size = len(array), kind.list_size
    values = pa.Array.from_buffers(kind.value_type, rows * size, [None, array.buffers()[1]], offset=array.offset * size)
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=array.is_null())


def hudi_types(avro_schema: Mapping[str, Any]) -> dict[str, str]:
    """Columns that contain a type of Hudi's own, which Arrow does not have, with that type's name."""
    return {
        field["name"]: name.upper()
        for field in avro_schema["fields"]
        if (name := next(_logical_types(field["type"]), None)) is not None
    }


def _logical_types(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for branch in node:
            yield from _logical_types(branch)
    elif isinstance(node, dict):
        if node.get("logicalType") in _HUDI_TYPES:
            yield str(node["logicalType"])
        for part in ("type", "items", "values"):
            yield from _logical_types(node.get(part))
        for field in node.get("fields") or ():
            yield from _logical_types(field["type"])
