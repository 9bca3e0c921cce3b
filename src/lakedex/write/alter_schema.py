"""Change a table's schema or comments (``ALTER_SCHEMA``), and rewrite the files for which the change requires it.

Adding, dropping and most widening write no file: the commit has the new schema, and readers resolve columns by name,
return null for missing ones and widen narrower ones. A rename rewrites the files with the old name, as only Hudi's Java
readers support its alternative (schema on read). Widening float to double also rewrites, as Java shows the decimal text
of an older file's float (0.1) and other readers its value (0.10000000149).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakedex.codec.comments import arrow_comments, check_comment, field_paths
from lakedex.commit.transaction import PendingCommit, Transaction, WriteContext, run_with_retries
from lakedex.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.index.protocol import CollectContext
from lakedex.index.registry import collectors
from lakedex.io.locks import table_lock
from lakedex.layout.file_slice import BaseFile, FileSlice
from lakedex.maintenance.compaction_plan import busy_group, groups_in_service
from lakedex.options import WriteOptions
from lakedex.reports import WriteResult
from lakedex.snapshot.schema import nearest
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.keyed_rows import Duplicates, Effects, MergePolicy
from lakedex.timeline.compatibility import require_writable
from lakedex.timeline.free_properties import DEFAULT, check_properties
from lakedex.timeline.table_config import COMMENT, recover_table_config, update_table_config
from lakedex.types import META_COLUMNS, Operation
from lakedex.write.file_assignment import FileGroupTarget
from lakedex.write.file_group_tasks import RewriteGroup, WriteFileGroups
from lakedex.write.file_group_writer import file_group_writer
from lakedex.write.schema_evolution import (
    added_paths,
    files_holding,
    require_free_names,
    stored_columns,
    stored_schema,
    type_at,
    wider,
)

__all__ = [
    "add_columns",
    "comment_column",
    "comment_table",
    "drop_columns",
    "drop_not_null",
    "rename_column",
    "rewrite_files",
    "set_properties",
    "widen_column",
]


def comment_table(handle: TableContext, options: WriteOptions, text: str) -> None:
    """Set the comment of a table; an empty text removes it.

    Raises:
        InvalidInputError: The text is not valid Unicode.
        UnsupportedFeatureError: lakedex cannot write the table.
        LockTimeoutError: Another writer held the table's lock too long.
    """
    check_comment(text, f"table {handle.files}")
    _update(handle, options, {COMMENT: text or None})


def set_properties(handle: TableContext, options: WriteOptions, changes: Mapping[str, str | None]) -> None:
    """Set properties of users, or remove those that are None; see :mod:`lakedex.timeline.free_properties`.

    Raises:
        OptionError: A setting of Hudi or lakedex.
        InvalidInputError: A text that cannot be stored, or a default of no column.
        UnsupportedFeatureError: lakedex cannot write the table.
        LockTimeoutError: Another writer held the table's lock too long.
    """
    snapshot = handle.snapshot()
    check_properties(changes, snapshot.config.name)
    for key, value in changes.items():
        check_comment(f"{key}={value}", f"property {key!r}")
        column = key.removeprefix(DEFAULT)
        if value is not None and column != key and column not in snapshot.schema.names:
            raise _unknown(snapshot, column)
    _update(handle, options, changes)


def _forget_defaults(
    handle: TableContext, options: WriteOptions, columns: Sequence[str], renamed: str | None = None
) -> None:
    """Remove the SQL defaults of columns that are gone or new, or give that of a column to its new name."""
    raw = handle.snapshot().config.raw
    wanted = {f"{DEFAULT}{column}".lower() for column in columns}
    gone = {key: text for key, text in raw.items() if key.lower() in wanted}
    if gone:
        moved = {} if renamed is None else {f"{DEFAULT}{renamed}": next(iter(gone.values()))}
        _update(handle, options, {**dict.fromkeys(gone), **moved})


def _update(handle: TableContext, options: WriteOptions, changes: Mapping[str, str | None]) -> None:
    with table_lock(handle.files, options.lock) as lock:
        recover_table_config(handle.files)
        config = handle.snapshot().config
        require_writable(config)
        if any(config.raw.get(key) != value for key, value in changes.items()):
            lock.check()
            update_table_config(handle.files, changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alteration:
    """Result of a change: the new schema, the files to rewrite, and the names under which they are read.

    ``comments`` are the new comments of columns; None leaves them unchanged.
    """

    schema: pa.Schema
    comments: Mapping[str, str] | None = None
    rewritten: Sequence[FileSlice] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    retired: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def add_columns(handle: TableContext, options: WriteOptions, added: pa.Schema) -> WriteResult:
    """Add nullable columns at the end; ``a.b`` adds field ``b`` at the end of struct ``a``."""

    def alter(snapshot: Snapshot) -> _Alteration:
        name = snapshot.config.name
        if not added.names:
            raise InvalidInputError(f"table {name}: add_columns needs at least one column")
        schema = snapshot.schema
        for column in added:
            _require_free(name, column.name)
            if not column.nullable:
                raise InvalidInputError(
                    f"table {name}: column {column.name!r} cannot be added as one that is never null, since the rows "
                    "in the table have no value for it; add it as nullable",
                    column=column.name,
                )
            schema = _with_field(schema, column, name)
        comments = {**snapshot.comments, **arrow_comments(schema)}
        schema = stored_schema(schema, name, snapshot.schema.names)
        require_free_names(snapshot, schema)
        return _Alteration(schema=schema, comments=comments)

    alter(handle.snapshot())
    _forget_defaults(handle, options, added.names)  # of a column that another engine dropped
    return _run(handle, options, alter)


def drop_columns(handle: TableContext, options: WriteOptions, names: Sequence[str]) -> WriteResult:
    """Drop columns from the schema; files contain them until they are rewritten."""

    def alter(snapshot: Snapshot) -> _Alteration:
        spelled = [_checked(snapshot, name, "drop_columns") for name in names]
        left = [column for column in snapshot.schema if column.name not in spelled]
        if not spelled or not left:
            raise InvalidInputError(f"table {snapshot.config.name}: drop_columns names no column, or all of them")
        return _Alteration(schema=pa.schema(left))

    result = _run(handle, options, alter)
    _forget_defaults(handle, options, names)
    return result


def rename_column(handle: TableContext, options: WriteOptions, old: str, new: str) -> WriteResult:
    """Rename a column in the schema and in all files that have it."""

    def alter(snapshot: Snapshot) -> _Alteration:
        spelled = _checked(snapshot, old, "rename_column")
        _require_free(snapshot.config.name, new)
        fields = [column.with_name(new) if column.name == spelled else column for column in snapshot.schema]
        schema = stored_schema(pa.schema(fields), snapshot.config.name, snapshot.schema.names)
        if spelled == new:
            raise InvalidInputError(f"table {snapshot.config.name}: column {new!r} already has that name", column=new)
        if spelled.lower() != new.lower():
            require_free_names(snapshot, schema)
        holding = files_holding(snapshot, spelled)
        note = f"rewrote {len(holding)} files with {spelled!r}, as readers resolve columns by name"
        paths = ((path, path.split(".", 1)) for path in snapshot.comments)
        moved = {".".join([new, *rest]) if head == spelled else path: path for path, (head, *rest) in paths}
        return _Alteration(
            schema=schema,
            comments={path: snapshot.comments[older] for path, older in moved.items()},
            rewritten=list(holding),
            renames={spelled: new},
            retired=(spelled,),
            notes=(note,),
        )

    result = _run(handle, options, alter)
    _forget_defaults(handle, options, [old], new)
    return result


def drop_not_null(handle: TableContext, options: WriteOptions, column: str) -> WriteResult:
    """Let a column be null."""

    def alter(snapshot: Snapshot) -> _Alteration:
        spelled = _checked(snapshot, column, "widen_column")
        fields = [item.with_nullable(True) if item.name == spelled else item for item in snapshot.schema]
        return _Alteration(schema=pa.schema(fields))

    return _run(handle, options, alter)


def widen_column(handle: TableContext, options: WriteOptions, column: str, kind: object) -> WriteResult:
    """Widen the type of a column."""

    def alter(snapshot: Snapshot) -> _Alteration:
        name = snapshot.config.name
        spelled = _checked(snapshot, column, "widen_column")
        before = snapshot.schema.field(spelled)
        target = _type(kind, name, spelled)
        after = wider(before.type, target)
        if after is None:
            raise SchemaMismatchError(
                f"table {name}: column {spelled!r} is {before.type}, which cannot be widened to {target}; int widens "
                "to long and double, float to double, a decimal to more digits of the same scale",
                column=spelled,
                expected=f"a type wider than {before.type}",
                found=str(target),
            )
        fields = [item.with_type(after) if item.name == spelled else item for item in snapshot.schema]
        schema = pa.schema(fields)
        if not pa.types.is_float32(before.type):
            return _Alteration(schema=schema)
        holding = files_holding(snapshot, spelled)
        note = f"rewrote {len(holding)} files: Java reads older floats with other digits than other readers"
        return _Alteration(schema=schema, rewritten=list(holding), notes=(note,))

    return _run(handle, options, alter)


def comment_column(handle: TableContext, options: WriteOptions, column: str, text: str) -> WriteResult:
    """Set the comment of a column or a nested field (``a.b``, ``a.element.b``); an empty text removes it."""
    check_comment(text, f"column {column!r}")

    def alter(snapshot: Snapshot) -> _Alteration:
        known = field_paths(snapshot.schema)
        path = column if column in known else next((at for at in known if at.lower() == column.lower()), None)
        if path is None:
            raise _unknown(snapshot, column)
        comments = {**snapshot.comments, path: text}
        return _Alteration(schema=snapshot.schema, comments={at: given for at, given in comments.items() if given})

    return _run(handle, options, alter)


def rewrite_files(handle: TableContext, options: WriteOptions) -> WriteResult:
    """Rewrite the files with columns or types that differ from the schema."""

    def alter(snapshot: Snapshot) -> _Alteration:
        stale: list[FileSlice] = []
        retired: set[str] = set()
        for item, stored in stored_columns(snapshot):
            if any(_differs(columns, snapshot.schema) for _, columns in stored):
                stale.append(item)
            for _, columns in stored:
                retired.update(set(columns.names) - set(snapshot.schema.names) - set(META_COLUMNS))
        return _Alteration(schema=snapshot.schema, rewritten=stale, retired=tuple(sorted(retired)))

    return _run(handle, options, alter)


def _differs(stored: pa.Schema, schema: pa.Schema) -> bool:
    """Whether a file has a column that the table lacks, or a narrower type; missing columns do not matter."""
    stored = pa.schema([column for column in stored if column.name not in META_COLUMNS])
    if added_paths(schema, stored):
        return True
    return any(column.name in schema.names and column.type != schema.field(column.name).type for column in stored)


# ------------------------------------------------------------------------------------------------------- the commit


def _run(handle: TableContext, options: WriteOptions, alter: Callable[[Snapshot], _Alteration]) -> WriteResult:
    ctx = WriteContext.begin(options)
    base = handle.snapshot()
    alter(base)  # Refuse invalid changes before creating an instant.
    return run_with_retries(
        handle,
        options,
        Operation.ALTER_SCHEMA,
        lambda transaction: _attempt(handle, options, transaction, alter),
        ctx,
        base,
    )


def _attempt(
    handle: TableContext, options: WriteOptions, transaction: Transaction, alter: Callable[[Snapshot], _Alteration]
) -> WriteResult:
    snapshot = transaction.snapshot
    change = alter(snapshot)
    operation = Operation.ALTER_SCHEMA.value
    same = change.schema.equals(snapshot.schema) and change.comments in (None, snapshot.comments)
    if same and not change.rewritten:
        transaction.cancel()
        return WriteResult(instant=None, operation=operation, notes=("no file had to be rewritten",))
    _require_rewritable(snapshot, change)
    transaction.require_unplanned({(item.partition, item.file_id) for item in change.rewritten})
    collecting = collectors(
        CollectContext(
            snapshot=snapshot,
            schema=change.schema,
            options=options,
            limits=handle.limits,
            files=len(change.rewritten),
            renames=change.renames,
        )
    )
    policy = MergePolicy(effects=Effects.NONE, duplicates=Duplicates.ALLOW)
    instant = transaction.instant
    task = WriteFileGroups(
        files=handle.files,
        timeline_path=snapshot.timeline.path,
        instant=instant,
        targets=(),
        writer=file_group_writer(snapshot, change.schema, policy, options, instant, change.renames),
        collectors=collecting,
        repeats=handle.engine.repeats_tasks,
    )
    found = [(item, item.base_file) for item in change.rewritten if item.base_file is not None]
    rows = _row_counts(snapshot, [base for _, base in found])
    targets = [
        FileGroupTarget(item.partition, item.file_id, base, rows.get(base, 0), item=item) for item, base in found
    ]
    label = f"lakedex {snapshot.config.name}: rewriting {len(targets)} files"
    results = handle.engine.run(RewriteGroup(task, change.schema), targets, label)
    # A concurrent commit may have added files with the old names after the check.
    logs = transaction.commit(
        PendingCommit(
            results=results,
            schema=change.schema,
            collectors=collecting,
            partitions_read=None,
            retired=change.retired,
            renames=change.renames,
            comments=change.comments,
        )
    )
    return WriteResult(
        instant=transaction.instant,
        operation=operation,
        files_written=len(results),
        bytes_written=sum(result.size for result in results),
        metadata_bytes=sum(log.size for log in logs),
        notes=change.notes,
    )


def _require_rewritable(snapshot: Snapshot, change: _Alteration) -> None:
    """Refuse to rewrite slices without base file, and those that a pending table service rewrites.

    Raises:
        UnsupportedFeatureError: names such a slice.
    """
    busy = groups_in_service(snapshot.timeline) if change.rewritten else {}
    for item in change.rewritten:
        service = busy.get((item.partition, item.file_id))
        if service is not None and not snapshot.timeline.is_clustering(service):
            raise busy_group(snapshot.files, item.partition, item.file_id, service.requested)
        if item.base_file is None:
            raise UnsupportedFeatureError(
                f"{snapshot.files}: the change rewrites {item.name}, whose file group has no base file; compact the "
                "table first",
                feature="rewriting slices without base file",
            )


def _row_counts(snapshot: Snapshot, files: Sequence[BaseFile]) -> dict[BaseFile, int]:
    """Number of rows per file, to size its bloom filter, as far as commits record it."""
    counts: dict[BaseFile, int] = {}
    for base in files:
        if snapshot.timeline.is_completed(base.instant):
            for stat in snapshot.timeline.commit_metadata(base.instant).write_stats.get(base.partition, ()):
                if stat.file_id == base.file_id:
                    counts[base] = stat.num_writes
    return counts


# ------------------------------------------------------------------------------------------------- columns and types


def _checked(snapshot: Snapshot, name: str, call: str) -> str:
    """Column name in the table's spelling.

    Raises:
        InvalidInputError: The column is unknown, or determines the place or precedence of rows.
        UnsupportedFeatureError: The name is that of a nested field.
    """
    config, known = snapshot.config, snapshot.schema.names
    spelled = name if name in known else next((other for other in known if other.lower() == name.lower()), None)
    if spelled is None:
        if type_at(snapshot.schema, name) is not None:
            raise UnsupportedFeatureError(
                f"table {config.name}: {call} of {name!r}: fields inside of a column can only be added",
                feature=f"{call} of nested fields",
            )
        raise _unknown(snapshot, name)
    for what, fields in (
        ("record key", config.record_key_fields),
        ("partition path", config.partition_fields),
        ("ordering", config.ordering_fields),
    ):
        if spelled in {field.split(".")[0] for field in fields}:
            raise InvalidInputError(
                f"table {config.name}: column {spelled!r} is part of the {what} and stays as it is", column=spelled
            )
    return spelled


def _unknown(snapshot: Snapshot, name: str) -> InvalidInputError:
    table, known = snapshot.config.name, snapshot.schema.names
    return InvalidInputError(f"table {table} has no column {name!r}{nearest(name, known)}", column=name)


def _require_free(table: str, name: str) -> None:
    if name.lower() in META_COLUMNS:
        raise InvalidInputError(f"table {table}: column {name!r} is Hudi's own", column=name)


def _with_field(schema: pa.Schema, added: pa.Field, table: str) -> pa.Schema:
    """Schema with one more nullable column or struct field."""
    *parents, name = added.name.split(".")
    if type_at(schema, added.name) is not None:
        raise InvalidInputError(f"table {table} has a column {added.name!r} already", column=added.name)
    if not parents:
        return schema.append(added.with_nullable(True))
    fields = _deepened(list(schema), parents, added.with_name(name).with_nullable(True), added.name, table)
    return pa.schema(fields)


def _deepened(
    fields: Sequence[pa.Field], parents: Sequence[str], added: pa.Field, path: str, table: str
) -> list[pa.Field]:
    position = next((at for at, item in enumerate(fields) if item.name.lower() == parents[0].lower()), -1)
    if position < 0 or not pa.types.is_struct(fields[position].type):
        raise InvalidInputError(
            f"table {table}: {path!r} cannot be added: {parents[0]!r} is not a struct column of it", column=path
        )
    outer = fields[position]
    inner = list(outer.type)
    inner = [*inner, added] if len(parents) == 1 else _deepened(inner, parents[1:], added, path, table)
    return [*fields[:position], outer.with_type(pa.struct(inner)), *fields[position + 1 :]]


_TYPES = {
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
}


_DECIMAL = re.compile(r"^(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")


def _type(kind: object, table: str, column: str) -> pa.DataType:
    """Convert a type given as Arrow type, Spark type or SQL text."""
    if isinstance(kind, pa.DataType):
        return kind
    text = (kind if isinstance(kind, str) else str(getattr(kind, "simpleString", lambda: kind)())).strip().lower()
    if text in _TYPES:
        return _TYPES[text]
    found = _DECIMAL.match(text)
    if found is not None and 1 <= int(found[1]) <= 38:
        return pa.decimal128(int(found[1]), int(found[2] or 0))
    raise InvalidInputError(
        f"table {table}: {text!r} is not a type to which column {column!r} can be widened: int, bigint, double, "
        "decimal(p, s)",
        column=column,
    )
