"""The columns that Parquet has for those of a schema."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["leaves"]


def leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Parquet leaf paths of a schema with their types, as ParquetWriter names them."""
    found: list[tuple[str, pa.DataType]] = []

    def walk(prefix: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for child in kind:
                walk(f"{prefix}.{child.name}", child.type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            walk(f"{prefix}.list.element", kind.value_type)
        elif pa.types.is_map(kind):
            walk(f"{prefix}.key_value.key", kind.key_type)
            walk(f"{prefix}.key_value.value", kind.item_type)
        else:
            found.append((prefix, kind))

    for column in schema:
        walk(column.name, column.type)
    return found
