"""``insert_overwrite``: rows take the place of all rows of some partitions, or of the table.

A replace commit (``SparkInsertOverwriteCommitActionExecutor``): the rows go to new file groups, and the commit names
the groups that are gone from then on. Their files stay, listed and indexed, until a cleaner removes them, so that older
instants can still be read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakedex.codec.table_paths import is_partition_path
from lakedex.errors import InvalidInputError
from lakedex.layout.key_generator import KeyGenerator
from lakedex.layout.store_assignment import StoreAssignment
from lakedex.metadata.handle import TableHandle
from lakedex.metadata.snapshot import Snapshot
from lakedex.options import WriteOptions
from lakedex.types import Operation
from lakedex.write.actions import Staged, ordering_fields, prepared, writable
from lakedex.write.batches import done_before
from lakedex.write.merge import MergeRules
from lakedex.write.pipeline import key_generator, run_write
from lakedex.write.plan import Replace, WritePlan
from lakedex.write.prepare import Prepare
from lakedex.write.result import WriteResult
from lakedex.write.schema_change import require_columns

__all__ = ["delete_partition", "insert_overwrite", "named_partitions"]

PartitionName = str | Mapping[str, Any]


def insert_overwrite(
    handle: TableHandle,
    data: Any,
    options: WriteOptions,
    scope: str,
    partitions: Sequence[PartitionName] | PartitionName | None,
) -> WriteResult:
    """Replace partitions, or the table, by the rows of a frame; see :meth:`lakedex.Table.insert_overwrite`."""
    started = time.perf_counter()
    operation = Operation.INSERT_OVERWRITE_TABLE if scope == "table" else Operation.INSERT_OVERWRITE
    if (done := done_before(handle, options, operation)) is not None:
        return done
    data, snapshot, prepare = prepared(handle, data, options)
    schema, keys = prepare.assignment.target, prepare.keys
    replace = _replace(snapshot, key_generator(snapshot.config, snapshot), scope, partitions)
    with Staged(handle, data, prepare) as frame:
        plan = WritePlan(
            operation=operation,
            frame=frame,
            table_schema=snapshot.schema,
            schema=schema,
            keys=keys,
            rules=MergeRules(
                ordering=ordering_fields(snapshot),
                combine=options.combine_before_insert or options.duplicates == "drop",
            ),
            look_up=False,
            global_keys=False,
            fail_known=options.duplicates == "fail",
            fill_small_files=False,
            replace=replace,
        )
        return run_write(handle, plan, options, started)


def delete_partition(
    handle: TableHandle, options: WriteOptions, partitions: Sequence[PartitionName] | PartitionName
) -> WriteResult:
    """Empty partitions (``SparkDeletePartitionCommitActionExecutor``); see :meth:`lakedex.Table.delete_partition`."""
    started = time.perf_counter()
    snapshot = writable(handle)
    schema, none = snapshot.schema, snapshot.schema.empty_table()
    keys = key_generator(snapshot.config, snapshot, with_keys=False)
    replace = Replace(named_partitions(snapshot, keys, partitions))
    prepare = Prepare(StoreAssignment(schema, snapshot.config.name), keys)
    with Staged(handle, none, prepare) as frame:
        plan = WritePlan(
            operation=Operation.DELETE_PARTITION,
            frame=frame,
            table_schema=snapshot.schema,
            schema=schema,
            keys=keys,
            rules=MergeRules(insert_new=False),
            look_up=False,
            fill_small_files=False,
            replace=replace,
        )
        return run_write(handle, plan, options, started)


def _replace(
    snapshot: Snapshot, keys: KeyGenerator, scope: str, partitions: Sequence[PartitionName] | PartitionName | None
) -> Replace:
    name = snapshot.config.name
    if scope not in ("partitions", "table"):
        raise InvalidInputError(f"table {name}: scope is 'partitions' or 'table', not {scope!r}")
    if scope == "table" and partitions is not None:
        raise InvalidInputError(f"table {name}: partitions= goes with scope='partitions'; scope='table' replaces all")
    if scope == "table":
        return Replace(whole_table=True)
    return Replace(None if partitions is None else named_partitions(snapshot, keys, partitions))


def named_partitions(
    snapshot: Snapshot, keys: KeyGenerator, partitions: Sequence[PartitionName] | PartitionName
) -> tuple[str, ...]:
    """Partition paths that a user named, as paths or as values of all partition columns.

    Raises:
        InvalidInputError: a table without partitions, a path that the table cannot have, or a missing column.
    """
    name, fields = snapshot.config.name, keys.partition_by
    if not fields:
        raise InvalidInputError(f"table {name} has no partitions; use scope='table' to replace all of it")
    if isinstance(partitions, str | Mapping):
        partitions = [partitions]
    paths = dict.fromkeys(
        _checked_path(name, keys, item) if isinstance(item, str) else _path_of(snapshot, keys, item)
        for item in partitions
    )
    for path in paths:
        if not is_partition_path(path):
            raise InvalidInputError(
                f"table {name}: {path!r} is no path of a partition ({', '.join(fields)})", column=", ".join(fields)
            )
    return tuple(paths)


def _checked_path(table: str, keys: KeyGenerator, path: str) -> str:
    parts = path.split("/")
    wrong = keys.url_encode and len(parts) != len(keys.partition_by)
    if keys.hive_style:
        wrong = wrong or any(
            not part.startswith(f"{field}=") for field, part in zip(keys.partition_by, parts, strict=False)
        )
    if wrong or not path:
        shape = "/".join(f"{field}=…" if keys.hive_style else f"<{field}>" for field in keys.partition_by)
        raise InvalidInputError(
            f"table {table}: {path!r} is no partition path of it; paths read {shape}, or give the values as a dict",
            column=", ".join(keys.partition_by),
        )
    return path


def _path_of(snapshot: Snapshot, keys: KeyGenerator, values: Mapping[str, Any]) -> str:
    name, schema = snapshot.config.name, snapshot.schema
    require_columns(
        pa.schema([(field, pa.null()) for field in values]), keys.partition_by, "partition", name, where="partitions="
    )
    unknown = sorted(set(values) - set(keys.partition_by))
    if unknown:
        raise InvalidInputError(
            f"table {name}: {unknown[0]!r} is no partition column: {', '.join(keys.partition_by)}", column=unknown[0]
        )
    columns = {}
    for field in keys.partition_by:
        if schema.names and field not in schema.names:
            raise InvalidInputError(
                f"table {name}: name the partition of nested column {field!r} by its path", column=field
            )
        kind = schema.field(field).type if schema.names else None
        try:
            columns[field] = pa.array([values[field]], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"table {name}: {values[field]!r} is no value of partition column {field!r} ({kind})", column=field
            ) from error
    return str(keys.partition_paths(pa.table(columns))[0].as_py())
