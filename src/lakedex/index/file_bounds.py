"""Bounds of files: the stats of columns that a table's ``column_stats`` hold of them, as values and as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.index.column_stats import ColumnStat, stat_of
from lakedex.layout.file_slice import BaseFile
from lakedex.metadata.partitions import COLUMN_STATS, column_stats_key, column_stats_prefix
from lakedex.metadata.store import MetadataStore

__all__ = ["FileBounds", "bound_array", "bounds_of_files", "stats_of_files"]

_WIDE = Context(prec=60)


@dataclass(frozen=True, slots=True)
class FileBounds:
    """What is known of one column, an entry a file; null bounds and counts of -1 are unknown."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: npt.NDArray[np.int64]
    row_count: npt.NDArray[np.int64]


def bounds_of_files(
    store: MetadataStore, files: Sequence[BaseFile], columns: Mapping[str, pa.DataType]
) -> dict[str, FileBounds]:
    """Bounds of columns in base files, as arrays in the order of ``files``."""
    found = stats_of_files(store, [(base.partition, base.name) for base in files], columns)
    return {
        name: FileBounds(
            bound_array([None if stat is None else stat.minimum for stat in stats], columns[name]),
            bound_array([None if stat is None else stat.maximum for stat in stats], columns[name]),
            np.array([-1 if stat is None else stat.null_count for stat in stats], np.int64),
            np.array([-1 if stat is None else stat.value_count for stat in stats], np.int64),
        )
        for name, stats in found.items()
    }


def stats_of_files(
    store: MetadataStore, files: Sequence[tuple[str, str]], columns: Mapping[str, pa.DataType]
) -> dict[str, list[ColumnStat | None]]:
    """Per column the stats of each file, None where nothing is known.

    Args:
        store: the table's metadata.
        files: partition path and name of base or log files.
        columns: dotted name of each column, and the type that it has now.
    """
    partitions = {partition for partition, _ in files}
    if len(files) <= 4 * len(partitions):
        keys = [column_stats_key(name, *file) for name in columns for file in files]
        records = store.get_many(COLUMN_STATS.name, keys)
    elif len(partitions) <= 256:
        prefixes = [column_stats_prefix(name, partition) for name in columns for partition in partitions]
        records = store.scan(COLUMN_STATS.name, prefixes)
    else:
        records = store.scan(COLUMN_STATS.name, [column_stats_prefix(name) for name in columns])
    found: dict[str, list[ColumnStat | None]] = {}
    for name, kind in columns.items():
        own = (records.get(column_stats_key(name, *file)) for file in files)
        found[name] = [None if record is None else stat_of(record, kind) for record in own]
    return found


def bound_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Bounds, as :class:`ColumnStat` has them, as an array of the column's type; null for one that it cannot hold."""
    try:
        return _bound_array(values, kind)
    except (pa.ArrowException, ArithmeticError, ValueError):
        return pa.concat_arrays([_bound_or_null(value, kind) for value in values])


def _bound_or_null(value: Any, kind: pa.DataType) -> pa.Array:
    try:
        return _bound_array([value], kind)
    except (pa.ArrowException, ArithmeticError, ValueError):
        return pa.nulls(1, kind)


def _bound_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_time32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        # A value at scale 15 that the column's own scale can hold: nothing is rounded away.
        return pa.array([None if value is None else value.quantize(step, context=_WIDE) for value in values], kind)
    return pa.array(values, kind)
