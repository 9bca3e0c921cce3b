"""Where to find what users of other table formats look for under a name that ``Table`` does not have."""

from __future__ import annotations

import difflib
from typing import Final

__all__ = ["missing_attribute"]


_CALLS: Final = {
    "Table": {
        "alter": "add_columns(), drop_columns(), rename_column() and widen_column()",
        "append": "insert(rows), or upsert(rows) to update rows of equal keys",
        "cleanup_metadata": "maintenance.archive()",
        "compact": "maintenance.rewrite_files(); inserts fill small files by themselves",
        "current_snapshot": "snapshot()",
        "current_version": "snapshot().instant; commits have instants, not numbers",
        "detail": "print(table), properties and inspect.files()",
        "details": "print(table), properties and inspect.files()",
        "explain": "scan(where).explain()",
        "file_uris": "inspect.files()",
        "files": "inspect.files()",
        "get_add_actions": "inspect.files()",
        "history": "inspect.history()",
        "load_as_version": "scan(as_of=instant)",
        "metadata": "properties",
        "optimize": "maintenance.rewrite_files(); inserts fill small files by themselves",
        "overwrite": "insert_overwrite(rows, scope='table')",
        "partitions": "inspect.partitions()",
        "repair": "maintenance.validate() and maintenance.rebuild_metadata()",
        "restoreToTimestamp": "maintenance.restore(instant)",
        "restoreToVersion": "maintenance.restore(instant)",
        "restore": "maintenance.restore(instant)",
        "rollback": "maintenance.rollback(instant)",
        "schemas": "schema",
        "snapshots": "inspect.snapshots()",
        "toDF": "to_df()",
        "to_duckdb": "scan().to_duckdb()",
        "to_pyarrow_dataset": "scan(where, columns).to_arrow(), or to_batches() as a stream",
        "to_pyarrow_table": "to_arrow()",
        "to_spark": "to_df(), or scan(where).to_spark()",
        "update_schema": "add_columns(), drop_columns(), rename_column() and widen_column()",
        "vacuum": "maintenance.clean()",
        "validate": "maintenance.validate()",
        "version": "snapshot().instant; commits have instants, not numbers",
    },
    "Inspect": {
        "all_files": "files()",
        "data_files": "files()",
        "entries": "files()",
        "indexes": "table.indexes.list()",
        "manifests": "files(); Hudi has no manifests",
        "metadata_log_entries": "timeline()",
        "partition_stats": "column_stats(), which has a row for each file",
        "properties": "table.properties",
        "refs": "table.maintenance.savepoints()",
        "savepoints": "table.maintenance.savepoints()",
    },
}


def missing_attribute(owner: type, name: str) -> AttributeError:
    """The error for a name that a class does not have, with the call that does the same, or a similar name.

    Args:
        owner: ``Table`` or ``Inspect``.
        name: the name that was asked for.

    Returns:
        The error to raise.
    """
    call = _CALLS.get(owner.__name__, {}).get(name)
    if call is None and not name.startswith("_"):
        near = difflib.get_close_matches(name, [known for known in dir(owner) if not known.startswith("_")], n=1)
        call = near[0] if near else None
    return AttributeError(f"{owner.__name__} has no {name!r}" + (f"; use {call}" if call else ""))
