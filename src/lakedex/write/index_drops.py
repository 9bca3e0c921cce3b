"""Taking indexes out of a table (``BaseHoodieWriteClient.dropIndex``)."""

from __future__ import annotations

import time
from dataclasses import replace

from lakedex.errors import IndexNotFoundError, InvalidInputError
from lakedex.index.definitions import definitions_path, encode_definitions, read_definitions, without_indexes
from lakedex.layout.table_files import delete_partition
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.partitions import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    SUPPORTED,
    metadata_partitions_property,
)
from lakedex.metadata.store import metadata_path
from lakedex.options import WriteOptions
from lakedex.services.locking import require_exclusive_create, table_lock
from lakedex.timeline.table_config import TableConfig, recover_table_config, update_table_config
from lakedex.timeline.table_support import require_writable
from lakedex.write.result import IndexResult
from lakedex.write.tidying import INFLIGHT_PARTITIONS

__all__ = ["drop_index"]


def drop_index(handle: TableHandle, options: WriteOptions, name: str, *, if_exists: bool = False) -> IndexResult:
    """Take an index out of the table; see :meth:`lakedex.Table.drop_index`.

    ``hoodie.properties`` first, so that nobody reads the index any more, then its definition, then its folder.
    """
    started = time.perf_counter()
    if name == FILES.name:
        raise InvalidInputError("'files' is the metadata table's listing, not an index; it cannot be dropped")
    require_exclusive_create(handle.storage, handle.base_path)
    storage, base = handle.storage, handle.base_path
    with table_lock(handle.storage, handle.base_path, options) as lock:
        recover_table_config(storage, base)
        config = handle.snapshot().config
        present = config.metadata_partitions | config.metadata_partitions_inflight
        if name not in present:
            if if_exists:
                return IndexResult(name=name, notes=("the table has no such index",))
            indexes = ", ".join(sorted(present - {FILES.name})) or "none"
            raise IndexNotFoundError(f"{base} has no index {name!r}; it has {indexes}", index=name)
        # Indexes that lakedex cannot keep up are a reason to drop them, not one to refuse it.
        known = frozenset(SUPPORTED)
        require_writable(
            replace(
                config,
                metadata_partitions=config.metadata_partitions & known,
                metadata_partitions_inflight=config.metadata_partitions_inflight & known,
            )
        )
        gone = _with_dependents(config, name, present)
        lock.check()
        changes = metadata_partitions_property(config.metadata_partitions - gone)
        changes[INFLIGHT_PARTITIONS] = ",".join(sorted(config.metadata_partitions_inflight - gone))
        update_table_config(storage, base, changes)
        path = definitions_path(base)
        if storage.exists(path):
            document = read_definitions(storage, path)
            storage.write(path, encode_definitions(without_indexes(document, gone)))
        for partition in sorted(gone):
            delete_partition(storage, metadata_path(base), partition)
    notes = tuple(f"dropped {other} with it" for other in sorted(gone - {name}))
    return IndexResult(name=name, notes=notes, seconds=time.perf_counter() - started)


def _with_dependents(config: TableConfig, name: str, present: frozenset[str]) -> frozenset[str]:
    """The index and those that cannot be without it."""
    if name == COLUMN_STATS.name:
        return present & {COLUMN_STATS.name, PARTITION_STATS.name}
    if name == "record_index":
        others = sorted(other for other in present if other.startswith("secondary_index_"))
        if others:
            raise InvalidInputError(
                f"table {config.name}: {', '.join(others)} are built on record_index; drop them first"
            )
    return frozenset({name})
