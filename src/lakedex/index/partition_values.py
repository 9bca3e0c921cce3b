"""Prune by the values in partition paths, typed as their columns; nothing is read for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.terms import BoundPredicate
from lakedex.index.protocol import PruneResult, UnindexedBase, UnusedIndex
from lakedex.layout.file_slice import SliceTable
from lakedex.layout.keys import partition_values
from lakedex.metadata.store import MetadataStore
from lakedex.snapshot.file_system_view import FileSystemView, ViewCache
from lakedex.snapshot.snapshot import Snapshot
from lakedex.types import PARTITION_PATH, IntArray

__all__ = ["PartitionValues", "partition_bounds"]


@dataclass(frozen=True, slots=True)
class PartitionValues(UnindexedBase):
    """Prunes by ``field=value`` folders."""

    is_built: ClassVar[bool] = False

    name: ClassVar[str] = "partition"

    def prune(self, snapshot: Snapshot, predicate: BoundPredicate, rows: IntArray) -> PruneResult:
        """Evaluate each partition once, for all of its slices."""
        config = snapshot.config
        fields = {*config.partition_fields, *([PARTITION_PATH] if config.populate_meta_fields else [])}
        used = predicate.texts_on(fields)
        if not used or not config.partition_fields:
            return PruneResult()
        if not config.folders_are_values:
            detail = f"folders of the key generator {config.key_generator} are formatted text"
            return PruneResult(unused=(UnusedIndex(index=self.name, reason="key generator", detail=detail),))
        view = snapshot.view()
        columns = _columns(snapshot, view)
        keep = prune(predicate.predicate, lambda column: columns.get(column.name), len(view.table.partitions))
        return PruneResult(keep=keep[view.table.partition_of[rows]], terms=used)


def partition_bounds(snapshot: Snapshot, columns: Collection[str], rows: IntArray) -> dict[str, ColumnBounds]:
    """Bounds of those columns whose values the partition paths of slices tell.

    Args:
        snapshot: the table.
        columns: names.
        rows: rows of the snapshot's view.
    """
    config = snapshot.config
    if not config.partition_fields or not config.folders_are_values:
        return {}
    view = snapshot.view()
    places = view.table.partition_of[rows]
    taken = pa.array(places)
    return {
        name: ColumnBounds(
            found.minimum.take(taken), found.maximum.take(taken), found.null_count[places], found.row_count[places]
        )
        for name, found in _columns(snapshot, view).items()
        if name in columns
    }


@dataclass(slots=True, eq=False)
class _Values(ViewCache):
    """Typed values of all partitions of a view; parsed again when partitions come or go."""

    paths: tuple[str, ...]
    columns: dict[str, ColumnBounds]

    def carry_over(self, older: FileSystemView, newer: FileSystemView, store: MetadataStore) -> _Values | None:
        """The same values where the partitions are the same."""
        return self if newer.table.partitions == self.paths else None


def _columns(snapshot: Snapshot, view: FileSystemView) -> dict[str, ColumnBounds]:
    with view.lock:
        cached = view.caches.get(_Values)
        if cached is None:
            cached = view.caches.put(_Values(view.table.partitions, _typed(snapshot, view.table)))
        return cached.columns


def _typed(snapshot: Snapshot, table: SliceTable) -> dict[str, ColumnBounds]:
    config, schema, paths = snapshot.config, snapshot.schema, table.partitions
    # One folder per field: where a field is not known by name, no folder is sure to be whose it seems.
    fields: Sequence[str] = config.partition_fields if set(config.partition_fields) <= set(schema.names) else ()
    types = [schema.field(name).type for name in fields]
    values, known = partition_values(paths, fields, types, hive_style=config.hive_style, url_encode=config.url_encode)
    found = {name: _exact(array, mask) for name, array, mask in zip(fields, values, known, strict=True)}
    if config.populate_meta_fields:  # Else the column is null.
        found[PARTITION_PATH] = _exact(pa.array(paths, pa.string()), np.ones(len(paths), bool))
    return found


def _exact(values: pa.Array, known: npt.NDArray[np.bool_]) -> ColumnBounds:
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    nulls = np.where(known, is_null, -1).astype(np.int64)
    # How many rows there are does not matter; of a null partition's, all are null.
    return ColumnBounds(values, values, nulls, np.where(known & is_null, 1, -1).astype(np.int64))
