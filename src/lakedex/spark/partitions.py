"""Values of partition columns that need no reading: only where the folder provably tells the column's own value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.layout.partition_path import DEFAULT_PARTITION, partition_paths, partition_values
from lakedex.timeline.table_config import TableConfig

__all__ = ["FolderValues", "folder_values"]

_OWN_VALUE = frozenset({"SIMPLE", "COMPLEX", "SIMPLE_AVRO", "COMPLEX_AVRO"})
"""Key generators whose folders hold the column's own value; others format it."""

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
    if not fields or config.key_generator.upper() not in _OWN_VALUE or config.raw.get(_DROPPED, "").lower() == "true":
        return None
    if len(set(fields)) < len(fields) or any(
        schema.names.count(name) != 1 or not _exact(schema, name) for name in fields
    ):
        return None
    kinds = [schema.field(name).type for name in fields]
    columns, known = partition_values(paths, fields, kinds, hive_style=config.hive_style, url_encode=config.url_encode)
    whole = np.ones(len(paths), bool)
    for position, (field, kind) in enumerate(zip(fields, kinds, strict=True)):
        default = f"{field}={DEFAULT_PARTITION}" if config.hive_style else DEFAULT_PARTITION
        is_null = _part_is(paths, position, len(fields), default)
        whole &= known[position] | (is_null & (not pa.types.is_string(kind)))
    back = partition_paths(columns, fields, hive_style=config.hive_style, url_encode=config.url_encode)
    same = np.array([a == b for a, b in zip(back.to_pylist(), paths, strict=True)], dtype=bool)
    chosen = pa.array(whole & same)
    table = pa.table(dict(zip(fields, columns, strict=True))).filter(chosen)
    return FolderValues(paths=pa.array(paths, pa.string()).filter(chosen).to_pylist(), values=table)


def _part_is(paths: Sequence[str], position: int, count: int, text: str) -> npt.NDArray[np.bool_]:
    parts = [path.split("/") for path in paths]
    return np.array([len(part) == count and part[position] == text for part in parts], dtype=bool)


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
