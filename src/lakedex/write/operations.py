"""The write operations: each states what its rows do and runs the pipeline.

The write actions: each says what its rows do and hands them to the pipeline.

``insert_overwrite``: rows take the place of all rows of some partitions, or of the table.

A replace commit (``SparkInsertOverwriteCommitActionExecutor``): the rows go to new file groups, and the commit names
the groups that are gone from then on. Their files stay, listed and indexed, until a cleaner removes them, so that older
instants can still be read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakedex.commit.idempotency import find_committed_batch
from lakedex.commit.write_checks import has_global_index, require_no_buckets, require_plain_types
from lakedex.engine import BatchMap, Frame
from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.layout.keys import KeyGenerator, StoredKeys
from lakedex.layout.store_assignment import StoreAssignment, match_names
from lakedex.options import WriteOptions
from lakedex.reports import WriteResult
from lakedex.snapshot.partitions import PartitionName, key_generator, named_partitions
from lakedex.snapshot.schema import require_columns, spelled
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.keyed_rows import MergeRules, PrepareKeys, PrepareRows
from lakedex.timeline.compatibility import require_readable, require_writable
from lakedex.types import Operation
from lakedex.write.pipeline import run_write
from lakedex.write.schema_evolution import evolve, own_columns, pruned, require_known, unknown_column
from lakedex.write.spec import Replace, WritePlan

__all__ = [
    "Deletion",
    "Staged",
    "bulk_insert",
    "check_assignments",
    "delete_keys",
    "delete_partition",
    "delete_stored",
    "has_global_keys",
    "insert",
    "insert_overwrite",
    "ordering_fields",
    "prepared",
    "update_stored",
    "upsert",
    "writable",
]


def upsert(handle: TableContext, data: Any, options: WriteOptions) -> WriteResult:
    """Update the rows whose key is stored, insert the others."""
    started = time.perf_counter()
    if (done := find_committed_batch(handle, options, Operation.UPSERT)) is not None:
        return done
    data, snapshot, prepare = prepared(handle, data, options)
    schema, keys = prepare.assignment.target, prepare.keys
    rules = MergeRules(ordering=ordering_fields(snapshot), partition_columns=snapshot.config.partition_fields)
    with Staged(handle, data, prepare) as frame:
        plan = WritePlan(
            operation=Operation.UPSERT,
            frame=frame,
            table_schema=snapshot.schema,
            schema=schema,
            keys=keys,
            rules=rules,
            global_keys=has_global_keys(snapshot, options),
        )
        return run_write(handle, plan, options, started)


def insert(handle: TableContext, data: Any, options: WriteOptions) -> WriteResult:
    """Add rows without looking up their keys, unless ``hoodie.datasource.insert.dup.policy`` asks for it."""
    started = time.perf_counter()
    if (done := find_committed_batch(handle, options, Operation.INSERT)) is not None:
        return done
    data, snapshot, prepare = prepared(handle, data, options)
    schema, keys = prepare.assignment.target, prepare.keys
    look_up = options.duplicates != "none"
    rules = MergeRules(
        ordering=ordering_fields(snapshot), combine=options.combine_before_insert or look_up, match_stored=False
    )
    with Staged(handle, data, prepare) as frame:
        plan = WritePlan(
            operation=Operation.INSERT,
            frame=frame,
            table_schema=snapshot.schema,
            schema=schema,
            keys=keys,
            rules=rules,
            look_up=look_up,
            global_keys=look_up and has_global_keys(snapshot, options),
            drop_known=options.duplicates == "drop",
            fail_known=options.duplicates == "fail",
        )
        return run_write(handle, plan, options, started)


def bulk_insert(handle: TableContext, data: Any, options: WriteOptions) -> WriteResult:
    """Load rows into new files, sorted by key, without looking anything up."""
    started = time.perf_counter()
    if options.duplicates != "none":
        raise OptionError(
            f"{handle.base_path}: bulk_insert looks no keys up, so it cannot {options.duplicates} rows whose key is in "
            "the table (hoodie.datasource.insert.dup.policy); use insert, or give the call the policy none",
            option="hoodie.datasource.insert.dup.policy",
        )
    if (done := find_committed_batch(handle, options, Operation.BULK_INSERT)) is not None:
        return done
    data, snapshot, prepare = prepared(handle, data, options)
    schema, keys = prepare.assignment.target, prepare.keys
    rules = MergeRules(ordering=ordering_fields(snapshot), combine=options.combine_before_insert)
    with Staged(handle, data, prepare) as frame:
        plan = WritePlan(
            operation=Operation.BULK_INSERT,
            frame=frame,
            table_schema=snapshot.schema,
            schema=schema,
            keys=keys,
            rules=rules,
            look_up=False,
            fill_small_files=False,
            sort=options.sort_mode == "GLOBAL_SORT",
        )
        return run_write(handle, plan, options, started)


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a delete goes by: keys, and the paths of their partitions where these are known."""

    prepare: PrepareKeys
    snapshot: Snapshot
    read_at: str | None = None

    @property
    def any_partition(self) -> bool:
        """Whether keys are looked for in all partitions."""
        return not self.prepare.with_partitions

    @classmethod
    def of_keys(
        cls, handle: TableContext, data: Any, options: WriteOptions, *, all_partitions: bool = False
    ) -> Deletion:
        """By a frame with the key columns, and with the partition columns unless all partitions are asked for.

        Under a global index a key is deleted wherever it lies, whatever the partition columns say.

        Raises:
            InvalidInputError: a key or partition column that the frame lacks, or a column that the table lacks.
        """
        snapshot = writable(handle)
        name, case = snapshot.config.name, handle.engine.case_sensitive
        incoming = handle.engine.schema_of(data)
        keys = key_generator(snapshot.config, snapshot)
        require_columns(incoming, keys.record_key, "record key", name, case_sensitive=case)
        named = not all_partitions and not has_global_keys(snapshot, options)
        if named:
            require_columns(
                incoming,
                keys.partition_by,
                "partition",
                name,
                case_sensitive=case,
                advice=". A key is one row in each partition: give the partition columns, or all_partitions=True to "
                "delete the keys wherever they are",
            )
        # A table without columns has no rows to delete.
        schema = snapshot.schema if snapshot.schema.names else own_columns(incoming)
        require_known(schema, incoming, name, case_sensitive=case)
        wanted = pruned(schema, (*keys.record_key, *(keys.partition_by if named else ())))
        given = pa.schema([incoming.field(n) for n in match_names(wanted.names, incoming.names, case_sensitive=case)])
        evolve(wanted, given, name, fixed=wanted.names, null_for_missing=True, case_sensitive=case)
        return cls(PrepareKeys(StoreAssignment(wanted, name, case), keys, named), snapshot)

    @classmethod
    def of_stored(cls, handle: TableContext, read_at: str | None) -> Deletion:
        """By rows that were read from the table, meta columns included, when ``read_at`` was its last change."""
        snapshot = writable(handle)
        return cls(
            PrepareKeys(StoreAssignment(pa.schema([]), snapshot.config.name), StoredKeys(), True), snapshot, read_at
        )

    def plan(self, frame: Frame) -> WritePlan:
        """The write, once the keys are prepared."""
        return WritePlan(
            operation=Operation.DELETE,
            frame=frame,
            table_schema=self.snapshot.schema,
            schema=self.snapshot.schema,
            keys=self.prepare.keys,
            rules=MergeRules(insert_new=False, delete_all=True, always_win=True),
            any_partition=self.any_partition,
            read_at=self.read_at,
            fill_small_files=False,
        )


def delete_keys(handle: TableContext, data: Any, options: WriteOptions, *, all_partitions: bool = False) -> WriteResult:
    """Delete the rows of the keys in a frame: in the partitions that it names, or in all of them."""
    started = time.perf_counter()
    if (done := find_committed_batch(handle, options, Operation.DELETE)) is not None:
        return done
    data = handle.engine.read_frame(data)
    deletion = Deletion.of_keys(handle, data, options, all_partitions=all_partitions)
    return _delete(handle, data, deletion, options, started)


def delete_stored(handle: TableContext, data: Any, options: WriteOptions, read_at: str | None) -> WriteResult:
    """Delete rows that were read from the table, meta columns included, when ``read_at`` was its last change."""
    started = time.perf_counter()
    if (done := find_committed_batch(handle, options, Operation.DELETE)) is not None:
        return done
    return _delete(handle, data, Deletion.of_stored(handle, read_at), options, started)


def _delete(handle: TableContext, data: Any, deletion: Deletion, options: WriteOptions, started: float) -> WriteResult:
    with Staged(handle, data, deletion.prepare) as frame:
        return run_write(handle, deletion.plan(frame), options, started)


def check_assignments(
    snapshot: Snapshot, assignments: Mapping[str, Any], *, case_sensitive: bool = False
) -> dict[str, Any]:
    """The assignments of an update, columns in the table's spelling.

    Raises:
        InvalidInputError: no assignment, an unknown column, or one that decides where the row lies.
    """
    config = snapshot.config
    if not assignments:
        raise InvalidInputError(f"table {config.name}: update needs set={{column: expression, …}}")
    known = match_names(snapshot.schema.names, list(assignments), case_sensitive=case_sensitive)
    checked = {}
    for name, value in assignments.items():
        if name not in known:
            raise unknown_column(snapshot.schema, name, config.name, "update")
        column = known[name]
        if column in (*config.record_key_fields, *config.partition_fields):
            raise InvalidInputError(
                f"table {config.name}: column {column!r} is part of the record key or partition path; "
                "delete the row and insert it anew",
                column=column,
            )
        checked[column] = value
    return checked


def update_stored(handle: TableContext, data: Any, options: WriteOptions, read_at: str | None) -> WriteResult:
    """Replace rows that were read from the table when ``read_at`` was its last change by their changed form."""
    started = time.perf_counter()
    snapshot = writable(handle)
    schema = evolve(snapshot.schema, handle.engine.schema_of(data), snapshot.config.name)
    prepare = PrepareRows(StoreAssignment(schema, snapshot.config.name), StoredKeys())
    with Staged(handle, data, prepare) as frame:
        plan = WritePlan(
            operation=Operation.UPSERT,
            frame=frame,
            table_schema=snapshot.schema,
            schema=schema,
            keys=StoredKeys(),
            rules=MergeRules(insert_new=False, always_win=True),
            read_at=read_at,
            fill_small_files=False,
        )
        return run_write(handle, plan, options, started)


class Staged:
    """The prepared rows of a write, freed afterwards."""

    def __init__(self, handle: TableContext, data: Any, prepare: BatchMap) -> None:
        self._engine = handle.engine
        self._frame = self._engine.stage(data, prepare)

    def __enter__(self) -> Frame:
        return self._frame

    def __exit__(self, *_: object) -> None:
        self._engine.release(self._frame)


def writable(handle: TableContext) -> Snapshot:
    """The table as it is, if it can be written.

    Raises:
        UnsupportedFeatureError: something that lakedex does not write; the message says what.
    """
    snapshot = handle.snapshot()
    try:
        require_writable(snapshot.config)
    except UnsupportedFeatureError:
        require_readable(snapshot.config)
        require_no_buckets(snapshot, (), ())  # Named first: it outlasts what else may be in the way.
        raise
    require_plain_types(snapshot)
    return snapshot


def prepared(handle: TableContext, data: Any, options: WriteOptions) -> tuple[Any, Snapshot, PrepareRows]:
    """Read a frame and check its columns before any row is touched: the frame, the table, and what makes its rows."""
    snapshot = writable(handle)
    config, case = snapshot.config, handle.engine.case_sensitive
    data = handle.engine.read_frame(data)
    incoming = handle.engine.schema_of(data)
    for what, fields in (
        ("record key", config.record_key_fields),
        ("partition", config.partition_fields),
        ("ordering", config.ordering_fields),
    ):
        require_columns(incoming, fields, what, config.name, case_sensitive=case)
    if not snapshot.schema.names:
        fields = (*config.record_key_fields, *config.partition_fields, *config.ordering_fields)
        incoming = spelled(incoming, fields, case)
    schema = evolve(
        snapshot.schema,
        incoming,
        config.name,
        fixed={name.split(".")[0] for name in (*config.record_key_fields, *config.partition_fields)},
        null_for_missing=options.null_for_missing,
        case_sensitive=case,
    )
    keys = key_generator(config, snapshot)
    return data, snapshot, PrepareRows(StoreAssignment(schema, config.name, case), keys)


def has_global_keys(snapshot: Snapshot, options: WriteOptions) -> bool:
    """Whether a key is one row in the whole table, and not only in its partition.

    Raises:
        UnsupportedFeatureError: under a global index, a table that orders rows by several fields.
    """
    if not snapshot.config.partition_fields or not has_global_index(snapshot.config, options):
        return False
    if len(ordering_fields(snapshot)) > 1:
        raise UnsupportedFeatureError(
            f"table {snapshot.config.name}: it orders rows by {', '.join(snapshot.config.ordering_fields)}; under "
            "hoodie.index.type=GLOBAL_BLOOM lakedex takes one ordering field. Write it with BLOOM, or with Hudi",
            feature="several ordering fields under a global index",
        )
    return True


def ordering_fields(snapshot: Snapshot) -> tuple[str, ...]:
    """Fields that decide, one after the other, between two versions of a row; none where the later commit wins."""
    config = snapshot.config
    return config.ordering_fields if config.merge_mode == "EVENT_TIME_ORDERING" else ()


def insert_overwrite(
    handle: TableContext,
    data: Any,
    options: WriteOptions,
    scope: str,
    partitions: Sequence[PartitionName] | PartitionName | None,
) -> WriteResult:
    """Replace partitions, or the table, by the rows of a frame; see :meth:`lakedex.Table.insert_overwrite`."""
    started = time.perf_counter()
    operation = Operation.INSERT_OVERWRITE_TABLE if scope == "table" else Operation.INSERT_OVERWRITE
    if (done := find_committed_batch(handle, options, operation)) is not None:
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
    handle: TableContext, options: WriteOptions, partitions: Sequence[PartitionName] | PartitionName
) -> WriteResult:
    """Empty partitions (``SparkDeletePartitionCommitActionExecutor``); see :meth:`lakedex.Table.delete_partition`."""
    started = time.perf_counter()
    snapshot = writable(handle)
    schema, none = snapshot.schema, snapshot.schema.empty_table()
    keys = key_generator(snapshot.config, snapshot, with_keys=False)
    replace = Replace(named_partitions(snapshot, keys, partitions))
    prepare = PrepareRows(StoreAssignment(schema, snapshot.config.name), keys)
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
