"""Values of partition columns that need no reading: only where the folder provably tells the column's own value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakedex.layout.partition_path import partition_paths, partition_values
from lakedex.timeline.table_config import TableConfig

__all__ = ["FolderValues", "folder_values"]

_DROPPED = "hoodie.datasource.write.drop.partition.columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderValues:
    """Typed values of partition folders.

    Attributes:
        paths: folders whose values are known.
        values: their values, one row each, one column per partition field.
    """

    paths: list[str]
    values: pa.Table


def folder_values(config: TableConfig, schema: pa.Schema, paths: Sequence[str]) -> FolderValues | None:
    """Values of those partition folders that tell them exactly; None where no folder of the table does.

    A folder is exact if its values would be written to that very folder, and no others would. Null and the empty
    string share one, so that folder of a text column is left out; of other types it holds null.
    """
    fields = config.partition_fields
    if not fields or not config.folders_are_values or config.raw.get(_DROPPED, "").lower() == "true":
        return None
    if len(set(fields)) < len(fields) or any(
        schema.names.count(name) != 1 or not _exact(schema, name) for name in fields
    ):
        return None
    kinds = [schema.field(name).type for name in fields]
    columns, known = partition_values(paths, fields, kinds, hive_style=config.hive_style, url_encode=config.url_encode)
    back = partition_paths(columns, fields, hive_style=config.hive_style, url_encode=config.url_encode)
    same = np.array([a == b for a, b in zip(back.to_pylist(), paths, strict=True)], dtype=bool)
    chosen = pa.array(np.logical_and.reduce([same, *known]))
    table = pa.table(dict(zip(fields, columns, strict=True))).filter(chosen)
    return FolderValues(paths=pa.array(paths, pa.string()).filter(chosen).to_pylist(), values=table)


def _exact(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    # Not floats (several texts for one value) and not timestamps (microseconds or text, as the writer was set).
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
    )
