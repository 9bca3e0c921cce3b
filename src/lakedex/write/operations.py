"""Write operations: each prepares its rows, states what they do, and runs the pipeline."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from lakedex.codec.comments import arrow_comments
from lakedex.commit.idempotency import find_committed_batch
from lakedex.commit.transaction import WriteContext
from lakedex.commit.write_preconditions import has_global_index, require_no_buckets, require_plain_types
from lakedex.engine import BatchMap, Frame
from lakedex.errors import InvalidInputError, OptionError, UnsupportedFeatureError
from lakedex.expr.columns import literal_of
from lakedex.expr.terms import to_sql
from lakedex.layout.keys import StoredKeys
from lakedex.lossless_cast import StoreAssignment, assigned_value, can_assign, match_names
from lakedex.options import RowOptions, TableOptions, WriteOptions
from lakedex.progress import reported_step
from lakedex.reports import WriteResult
from lakedex.snapshot.partitions import PartitionName, key_generator, named_partitions
from lakedex.snapshot.schema import nearest, require_columns, spelled
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.keyed_rows import Duplicates, PrepareKeys, PrepareRows
from lakedex.timeline.compatibility import require_readable, require_writable
from lakedex.types import META_COLUMNS, Operation, TableType
from lakedex.write.input_rows import dict_rows
from lakedex.write.pipeline import run_write
from lakedex.write.schema_evolution import (
    evolve,
    own_columns,
    pruned,
    replaced_columns,
    require_key_types,
    require_known,
    unknown_column,
)
from lakedex.write.spec import (
    BulkInsertSpec,
    DeletePartitionSpec,
    DeleteSpec,
    InsertSpec,
    KeyedFrame,
    Lookup,
    OverwriteSpec,
    OverwriteTableSpec,
    Placement,
    Replace,
    UpdateSpec,
    UpsertSpec,
    WriteSpec,
    ordering_fields,
)

__all__ = [
    "Deletion",
    "bulk_insert",
    "check_assignments",
    "delete_keys",
    "delete_partition",
    "delete_stored",
    "insert",
    "insert_overwrite",
    "prepared",
    "prepared_frame",
    "require_record_key",
    "update_stored",
    "upsert",
    "writable",
]


def upsert(handle: TableContext, data: Any, options: WriteOptions) -> WriteResult:
    """Update the rows whose key is stored, insert the others."""

    def spec(table: Snapshot) -> SpecOfRows:
        require_record_key(table, "upsert", "use insert, or merge with a condition on columns")
        return partial(UpsertSpec, lookup=key_scope(table, options.table))

    return _write_frame(handle, data, options, Operation.UPSERT, spec)


def require_record_key(table: Snapshot, what: str, remedy: str) -> None:
    """Refuse what finds rows by the columns of a record key, in a keyless table.

    Raises:
        InvalidInputError: names the table and what works.
    """
    if not table.config.record_key_fields:
        raise InvalidInputError(
            f"table {table.config.name}: {what} finds rows by their record key, and this table has none: its keys are "
            f"generated; {remedy}, or create a table with record_key="
        )


def insert(handle: TableContext, data: Any, options: WriteOptions) -> WriteResult:
    """Add rows without looking up their keys, unless ``hoodie.datasource.insert.dup.policy`` asks for it."""

    def spec(table: Snapshot) -> SpecOfRows:
        # A generated key is always new.
        is_new = options.rows.duplicates == "none" or not table.config.record_key_fields
        lookup = Lookup.NONE if is_new else key_scope(table, options.table)
        return partial(InsertSpec, lookup=lookup, duplicates=_duplicates(options.rows))

    return _write_frame(handle, data, options, Operation.INSERT, spec)


def bulk_insert(handle: TableContext, data: Any, options: WriteOptions) -> WriteResult:
    """Load rows into new files, sorted by key, without looking anything up."""
    if options.rows.duplicates != "none":
        raise OptionError(
            f"{handle.files}: bulk_insert looks no keys up, so it cannot {options.rows.duplicates} rows whose key "
            "is in the table (hoodie.datasource.insert.dup.policy); use insert, or give the call the policy none",
            option="hoodie.datasource.insert.dup.policy",
        )
    placement = Placement.SORTED_FILES if options.rows.sort_mode == "GLOBAL_SORT" else Placement.NEW_FILES
    spec = partial(BulkInsertSpec, duplicates=_duplicates(options.rows), placement=placement)
    return _write_frame(handle, data, options, Operation.BULK_INSERT, lambda _: spec)


def insert_overwrite(
    handle: TableContext,
    data: Any,
    options: WriteOptions,
    scope: str,
    partitions: Sequence[PartitionName] | PartitionName | Pick | None,
    columns: pa.Schema | None = None,
) -> WriteResult:
    """Replace partitions, or the table, by the rows of a frame; see :meth:`lakedex.Table.insert_overwrite`.

    A replace commit (``SparkInsertOverwriteCommitActionExecutor``): the rows go to new file groups, and the commit
    names the groups that they replace. The files of these stay, listed and indexed, until a cleaner removes them, so
    that older instants can still be read.
    """
    kind = OverwriteTableSpec if scope == "table" else OverwriteSpec

    def spec(table: Snapshot) -> SpecOfRows:
        replace = _replace(table, scope, partitions)
        comments = None if columns is None else arrow_comments(columns)
        return partial(kind, duplicates=_duplicates(options.rows), replace=replace, comments=comments)

    if columns is not None and scope != "table":
        raise InvalidInputError(f"{handle.files}: schema= goes with scope='table', which replaces all rows")
    return _write_frame(handle, data, options, kind.operation, spec, columns)


SpecOfRows = Callable[..., WriteSpec]
"""Makes the spec once its ``rows`` are given."""


def _write_frame(
    handle: TableContext,
    data: Any,
    options: WriteOptions,
    operation: Operation,
    spec: Callable[[Snapshot], SpecOfRows],
    columns: pa.Schema | None = None,
) -> WriteResult:
    """Write a user's frame, unless its batch is in the table already.

    Args:
        handle: the table.
        data: the frame.
        options: of the call.
        operation: Hudi's name of the action.
        spec: what is to be done, by the table as it is; asked before any row is touched.
        columns: the table's columns from now on; None keeps them and adds new ones.
    """
    ctx = WriteContext.begin(options)
    if (done := find_committed_batch(handle, options, operation)) is not None:
        return done
    data, table, prepare = prepared(handle, data, options, columns)
    of_rows = spec(table)
    with prepared_frame(handle, data, prepare) as frame:
        rows = KeyedFrame(frame=frame, base=table, schema=prepare.assignment.target, keys=prepare.keys)
        return run_write(handle, of_rows(rows=rows), options, ctx)


def _duplicates(options: RowOptions) -> Duplicates:
    """The policy of ``hoodie.datasource.insert.dup.policy`` and ``hoodie.combine.before.insert``."""
    if options.duplicates == "fail":
        return Duplicates.FAIL
    return Duplicates.DROP if options.combine_before_insert or options.duplicates == "drop" else Duplicates.ALLOW


@dataclass(frozen=True, slots=True)
class Deletion:
    """The keys of a delete, with the paths of their partitions where these are known."""

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
        snapshot = writable(handle, handle.current())
        require_record_key(snapshot, "delete by keys", "delete with a condition: delete(where=…)")
        name, case = snapshot.config.name, handle.engine.case_sensitive
        incoming = handle.engine.schema_of(data)
        keys = key_generator(snapshot.config, snapshot)
        require_columns(incoming, keys.record_key, "record key", name, case_sensitive=case)
        named = not all_partitions and key_scope(snapshot, options.table) is not Lookup.GLOBAL
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

    def spec(self, frame: Frame, *, rewrites: bool = False) -> DeleteSpec:
        """The delete of prepared keys; ``rewrites`` leaves none of their versions in the newest slices."""
        schema = self.snapshot.schema
        rows = KeyedFrame(frame=frame, base=self.snapshot, schema=schema, keys=self.prepare.keys)
        lookup = Lookup.BY_KEY if self.any_partition else Lookup.BY_PARTITION
        return DeleteSpec(rows=rows, lookup=lookup, read_at=self.read_at, rewrites=rewrites)


def delete_keys(handle: TableContext, data: Any, options: WriteOptions, *, all_partitions: bool = False) -> WriteResult:
    """Delete the rows of the keys in a frame: in the partitions that it names, or in all of them."""
    ctx = WriteContext.begin(options)
    if (done := find_committed_batch(handle, options, Operation.DELETE)) is not None:
        return done
    data = handle.engine.read_frame(data)
    deletion = Deletion.of_keys(handle, data, options, all_partitions=all_partitions)
    return _delete(handle, data, deletion, options, ctx)


def delete_stored(handle: TableContext, data: Any, options: WriteOptions, read_at: str | None) -> WriteResult:
    """Delete rows that were read from the table, meta columns included, when ``read_at`` was its last change."""
    ctx = WriteContext.begin(options)
    if (done := find_committed_batch(handle, options, Operation.DELETE)) is not None:
        return done
    return _delete(handle, data, Deletion.of_stored(handle, read_at), options, ctx)


def _delete(
    handle: TableContext, data: Any, deletion: Deletion, options: WriteOptions, ctx: WriteContext
) -> WriteResult:
    with prepared_frame(handle, data, deletion.prepare) as frame:
        return run_write(handle, deletion.spec(frame), options, ctx)


def check_assignments(
    snapshot: Snapshot, assignments: Mapping[str, Any], *, case_sensitive: bool = False
) -> dict[str, Any]:
    """The assignments of an update, columns in the table's spelling.

    Raises:
        InvalidInputError: no assignment, an unknown column, or one that decides where the row lies.
    """
    config = snapshot.config
    if not assignments or not isinstance(assignments, Mapping):
        raise InvalidInputError(f"table {config.name}: update needs set={{column: expression, …}}")
    known = match_names(snapshot.schema.names, list(assignments), case_sensitive=case_sensitive)
    checked = {}
    for name, value in assignments.items():
        if name not in known and sum(str(other).lower() == str(name).lower() for other in assignments) > 1:
            raise InvalidInputError(f"table {config.name}: update sets column {name!r} more than once", column=name)
        if name not in known:
            raise unknown_column(snapshot.schema, name, config.name, "update")
        column = known[name]
        if column in (*config.record_key_fields, *config.partition_fields):
            raise InvalidInputError(
                f"table {config.name}: column {column!r} is part of the record key or partition path; "
                "delete the row and insert it again",
                column=column,
            )
        checked[column] = _assigned(value, column, snapshot)
    return checked


_WORD = re.compile(r"[^\W\d]\w*")


_WORDS_OF_SQL = frozenset(
    {"null", "true", "false", "current_date", "current_timestamp", "current_timezone", "now", "user"}
)


def _assigned(value: Any, column: str, snapshot: Snapshot) -> Any:
    """An assignment as SQL text, or as the engine takes it; a Python number, date or None stands for itself."""
    if value is None or isinstance(value, bool | int | float | Decimal | bytes | datetime.date):
        field, literal = snapshot.schema.field(column), literal_of(value)
        if can_assign(literal.type, field.type):
            # SQL would cut what the column cannot hold, as in a cast.
            assigned_value(value, field, snapshot.config.name)
        return to_sql(literal)
    if not isinstance(value, str) or not _WORD.fullmatch(value.strip()):
        return value
    word = value.strip().lower()
    known = {name.lower() for name in (*snapshot.schema.names, *META_COLUMNS)}
    if word not in known and word not in _WORDS_OF_SQL and not word.startswith(("current_", "session_", "localtime")):
        quoted = f"'{value.strip()}'"
        raise InvalidInputError(
            f"table {snapshot.config.name}: column {column!r} is set to {value!r}, an SQL expression, but there is no "
            f'column of that name{nearest(value.strip(), snapshot.schema.names)}. For the text write "{quoted}"',
            column=column,
        )
    return value


def update_stored(
    handle: TableContext, data: Any, options: WriteOptions, read_at: str | None, assigned: Collection[str]
) -> WriteResult:
    """Replace rows that were read from the table when ``read_at`` was its last change by their changed form.

    They differ from the stored ones in the ``assigned`` columns alone.
    """
    ctx = WriteContext.begin(options)
    table = writable(handle)
    schema = evolve(table.schema, handle.engine.schema_of(data), table.config.name)
    prepare = PrepareRows(StoreAssignment(schema, table.config.name), StoredKeys())
    with prepared_frame(handle, data, prepare) as frame:
        rows = KeyedFrame(frame=frame, base=table, schema=schema, keys=prepare.keys)
        spec = UpdateSpec(rows=rows, read_at=read_at, assigned=frozenset(assigned))
        return run_write(handle, spec, options, ctx)


@contextmanager
def prepared_frame(handle: TableContext, data: Any, prepare: BatchMap) -> Iterator[Frame]:
    """The prepared rows of a frame, cached by the engine until the write is done."""
    with reported_step(f"preparing rows for {handle.files} on {handle.engine.name}"):
        frame = handle.engine.stage(data, prepare)
    try:
        yield frame
    finally:
        handle.engine.release(frame)


def writable(handle: TableContext, seen: Snapshot | None = None) -> Snapshot:
    """The table as it is, or as it was ``seen``, if it can be written.

    Raises:
        UnsupportedFeatureError: something that lakedex does not write; the message says what.
    """
    snapshot = handle.snapshot() if seen is None else seen
    try:
        require_writable(snapshot.config)
    except UnsupportedFeatureError:
        require_readable(snapshot.config)
        require_no_buckets(snapshot, (), ())  # Named first: it outlasts what else may be in the way.
        raise
    if snapshot.config.table_type == TableType.MERGE_ON_READ:
        require_no_buckets(snapshot, (), ())
    require_plain_types(snapshot)
    return snapshot


def prepared(
    handle: TableContext, data: Any, options: WriteOptions, columns: pa.Schema | None = None
) -> tuple[Any, Snapshot, PrepareRows]:
    """Read a frame and check its columns before any row is touched: the frame, the table, and what makes its rows.

    With ``columns`` these take the place of the table's.
    """
    snapshot = writable(handle, handle.current())
    config, case = snapshot.config, handle.engine.case_sensitive
    rows = dict_rows(
        data,
        snapshot.schema,
        config.name,
        null_for_missing=options.rows.null_for_missing,
        case_sensitive=case,
    )
    data = handle.engine.read_frame(rows)
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
    fixed = {name.split(".")[0] for name in (*config.record_key_fields, *config.partition_fields)}
    stored = snapshot.schema
    if columns is not None:
        stored = replaced_columns(stored, columns, config.name, fixed=fixed)
    schema = evolve(
        stored,
        incoming,
        config.name,
        fixed=fixed,
        null_for_missing=options.rows.null_for_missing,
        case_sensitive=case,
    )
    if not snapshot.schema.names:
        require_key_types(schema, (*config.record_key_fields, *config.partition_fields), config.name)
    keys = key_generator(config, snapshot)
    return data, snapshot, PrepareRows(StoreAssignment(schema, config.name, case), keys)


def key_scope(table: Snapshot, options: TableOptions) -> Lookup:
    """Where a key is one row: in its partition, or in the whole table under a global index.

    Raises:
        UnsupportedFeatureError: under a global index, a table that orders rows by several fields.
    """
    if not table.config.partition_fields or not has_global_index(table.config, options):
        return Lookup.BY_PARTITION
    if len(ordering_fields(table)) > 1:
        raise UnsupportedFeatureError(
            f"table {table.config.name}: it orders rows by {', '.join(table.config.ordering_fields)}; under "
            "hoodie.index.type=GLOBAL_BLOOM lakedex takes one ordering field. Write it with BLOOM, or with Hudi",
            feature="several ordering fields under a global index",
        )
    return Lookup.GLOBAL


def delete_partition(
    handle: TableContext, options: WriteOptions, partitions: Sequence[PartitionName] | PartitionName
) -> WriteResult:
    """Empty partitions (``SparkDeletePartitionCommitActionExecutor``); see :meth:`lakedex.Table.delete_partition`."""
    ctx = WriteContext.begin(options)
    table = writable(handle)
    keys = key_generator(table.config, table, with_keys=False)
    replace = Replace(named_partitions(table, keys, partitions))
    prepare = PrepareRows(StoreAssignment(table.schema, table.config.name), keys)
    with prepared_frame(handle, table.schema.empty_table(), prepare) as frame:
        rows = KeyedFrame(frame=frame, base=table, schema=table.schema, keys=keys)
        return run_write(handle, DeletePartitionSpec(rows=rows, replace=replace), options, ctx)


Pick = Callable[[Sequence[str]], Collection[str]]
"""Picks some of a list of partition paths."""


def _replace(table: Snapshot, scope: str, partitions: Sequence[PartitionName] | PartitionName | Pick | None) -> Replace:
    name = table.config.name
    if scope not in ("partitions", "table"):
        raise InvalidInputError(f"table {name}: scope is 'partitions' or 'table', not {scope!r}")
    if scope == "table" and partitions is not None:
        raise InvalidInputError(f"table {name}: partitions= goes with scope='partitions'; scope='table' replaces all")
    if scope == "table":
        return Replace(whole_table=True)
    if partitions is None:
        return Replace()
    if callable(partitions):
        return Replace(tuple(partitions(table.view().table.partitions)), pick=partitions)
    return Replace(named_partitions(table, key_generator(table.config, table), partitions))
