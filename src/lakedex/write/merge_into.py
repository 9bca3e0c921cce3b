"""``merge``: rows of a source meet rows of the table, and clauses say what becomes of them; one commit.

Where the condition demands that all record-key columns are equal, the source's keys are looked up as an upsert's are,
and only the files that hold one of them are read; any other condition joins the source with the table. Either way the
rows are worked out on one state of the table, and the write starts again if another commit comes in between.

An update by a merge is explicit: it wins whatever the ordering field says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakedex.commit.idempotency import find_committed_batch
from lakedex.commit.transaction import WriteContext
from lakedex.commit.write_preconditions import has_global_index
from lakedex.engine import Frame
from lakedex.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from lakedex.expr.nodes import Predicate
from lakedex.layout.keys import KeyGenerator
from lakedex.lossless_cast import StoreAssignment, match_names
from lakedex.options import WriteOptions
from lakedex.reports import TaggingReport, WriteResult
from lakedex.snapshot.partitions import key_generator
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.tagging.key_files import slices_of_keys
from lakedex.tagging.keyed_rows import (
    KEY_COLUMNS,
    Duplicates,
    assigned,
)
from lakedex.types import Operation, SessionRules, TableType
from lakedex.write.file_group_writer import file_schema
from lakedex.write.input_rows import dict_rows
from lakedex.write.merge_clauses import (
    ASSIGNED,
    BoundClause,
    Equalities,
    Merge,
    assigned_columns,
    bind_clauses,
    key_equalities,
)
from lakedex.write.merged_rows import MergedRows, write_merged
from lakedex.write.operations import prepared_frame, writable

__all__ = ["MergeSession", "MergeTask", "explain_merge", "merge_into"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """The input of an engine that works out a merge's rows.

    Attributes:
        snapshot: the table; only those of its files that may hold a row which matters.
        where: what a stored row has to be, by the condition; None for a merge that looks at all of them.
        equal: target column → source column that it has to equal; empty for a merge that looks at all rows.
        source: the staged source: key, partition path, position, then the source's columns.
        merge: the condition and the aliases.
        clauses: its clauses over the table.
        keyed: the condition demands equal keys at least.
    """

    snapshot: Snapshot
    where: Predicate | None
    equal: Mapping[str, str]
    source: Frame
    merge: Merge
    clauses: Sequence[BoundClause]
    keyed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSession:
    """How an engine works out a merge's rows, and how the session reads SQL."""

    rows: Callable[[MergeTask], Any]
    rules: SessionRules


@dataclass(frozen=True, slots=True)
class _Lookup:
    """How the source's keys are built: from which source columns, and whether the partition path is known too."""

    columns: Mapping[str, str]
    with_partitions: bool


def merge_into(
    handle: TableContext, session: MergeSession, data: Any, merge: Merge, options: WriteOptions
) -> WriteResult:
    """Run a merge; see :meth:`lakedex.Table.merge`."""
    ctx = WriteContext.begin(options)
    if (done := find_committed_batch(handle, options, Operation.UPSERT)) is not None:
        return done
    snapshot = writable(handle)
    case, nulls = handle.engine.case_sensitive, options.rows.null_for_missing
    rows = dict_rows(
        data, snapshot.schema, snapshot.config.name, null_for_missing=nulls, case_sensitive=case, more=True
    )
    data = handle.engine.read_frame(rows)
    source = _source_schema(handle, data, snapshot)
    clauses = _bound(merge, snapshot, source, session, null_for_missing=options.rows.null_for_missing)
    lookup, _ = _lookup(snapshot, merge, source, session)
    keys = None if lookup is None else key_generator(snapshot.config, snapshot)
    assignment = StoreAssignment(source, snapshot.config.name)
    extra = tuple(assigned_columns(snapshot, clauses).items())
    with prepared_frame(handle, data, PrepareSource(assignment, extra, keys, lookup)) as staged:
        for number in range(options.retries + 1):
            try:
                return _attempt(handle, session, staged, merge, options, ctx)
            except CommitConflictError as error:
                if number == options.retries:
                    raise
                ctx.notes.append(f"conflict with {error.theirs or 'another writer'}: matched and wrote again")
    raise AssertionError("unreachable")


def explain_merge(handle: TableContext, session: MergeSession, data: Any, merge: Merge) -> str:
    """The clauses of a merge, and how it would find its rows."""
    snapshot = writable(handle)
    source = _source_schema(handle, data, snapshot)
    if merge.clauses:
        _bound(merge, snapshot, source, session, null_for_missing=True)
    lookup, why = _lookup(snapshot, merge, source, session)
    how = "joins the source with the table"
    if lookup is not None:
        where = "partition of the row" if lookup.with_partitions else "whole table"
        how = f"looks up the record key in the {where}, reads only files that hold one"
    if merge.has("not matched by source"):
        how += "; reads the whole table for WHEN NOT MATCHED BY SOURCE"
    return f"{merge}\n  {how}{f' ({why})' if why else ''}"


def _source_schema(handle: TableContext, data: Any, snapshot: Snapshot) -> pa.Schema:
    """The source's columns in the types of tables; one without a type has that of the table's column of its name."""
    schema = handle.engine.schema_of(data)
    untyped = [field.name for field in schema if pa.types.is_null(field.type)]
    known = match_names(snapshot.schema.names, untyped, case_sensitive=handle.engine.case_sensitive)
    for name in untyped:
        if name not in known:
            raise InvalidInputError(f"column {name!r} has no type (all of it is null); cast it to one", column=name)
    return pa.schema([f.with_type(snapshot.schema.field(known[f.name]).type) if f.name in known else f for f in schema])


def _bound(
    merge: Merge, snapshot: Snapshot, source: pa.Schema, session: MergeSession, *, null_for_missing: bool
) -> list[BoundClause]:
    case = session.rules.case_sensitive
    return bind_clauses(merge, snapshot, source, null_for_missing=null_for_missing, case_sensitive=case)


def _lookup(snapshot: Snapshot, merge: Merge, source: pa.Schema, session: MergeSession) -> tuple[_Lookup | None, str]:
    """The key look-up that a condition allows; None and why for a join."""
    if not isinstance(merge.on, str):
        return None, "the condition is a Column; as SQL text its key columns could be looked up"
    fields, partitions = snapshot.config.record_key_fields, snapshot.config.partition_fields
    if not fields:
        return None, "the table has no record key"
    found = _equalities(snapshot, merge, source, session)
    if not all(_same_text(snapshot.schema, source, name, found.pairs) for name in fields):
        return None, f"the condition does not set the record key ({', '.join(fields)}) equal to columns of its type"
    with_partitions = bool(partitions) and all(
        _same_text(snapshot.schema, source, name, found.pairs) for name in partitions
    )
    wanted = (*fields, *(partitions if with_partitions else ()))
    return _Lookup({name: found.pairs[name] for name in wanted}, with_partitions or not partitions), ""


def _equalities(snapshot: Snapshot, merge: Merge, source: pa.Schema, session: MergeSession) -> Equalities:
    target = file_schema(snapshot.schema)
    return key_equalities(merge, target, source, session.rules)


def _same_text(table: pa.Schema, source: pa.Schema, name: str, pairs: Mapping[str, str]) -> bool:
    """Whether equal values of both columns are one text in keys and paths. Of -0.0 and 0.0, say, they are two."""
    if name not in pairs or name not in table.names or pairs[name] not in source.names:
        return False
    ours, theirs = table.field(name).type, source.field(pairs[name]).type
    if pa.types.is_integer(ours) and pa.types.is_integer(theirs):
        return True
    return bool(ours == theirs and not pa.types.is_floating(ours) and not pa.types.is_nested(ours))


@dataclass(frozen=True, slots=True)
class PrepareSource:
    """The source's rows, numbered, with key and partition path where these are looked up.

    Conditions and expressions see the source's own columns. What a clause copies into a column of another type comes
    once more, as ``assigned``, in that type.
    """

    assignment: StoreAssignment
    assigned: tuple[tuple[str, pa.Field[Any]], ...]
    keys: KeyGenerator | None
    lookup: _Lookup | None

    @property
    def schema(self) -> pa.Schema:
        """Key columns, then the source's."""
        more = [field.with_name(name) for name, field in self.assigned]
        return pa.schema([*KEY_COLUMNS, *self.assignment.target, *more])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Prepare one task's rows."""
        for _, numbers, rows in assigned(self.assignment, batches):
            more = [
                self.assignment.column(rows.column(rows.schema.get_field_index(name.removeprefix(ASSIGNED))), field)
                for name, field in self.assigned
            ]
            keys, paths = self._places(rows)
            yield pa.RecordBatch.from_arrays([keys, paths, numbers, *rows.columns, *more], schema=self.schema)

    def _places(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        nothing = pa.nulls(rows.num_rows, pa.string())
        if self.keys is None or self.lookup is None:
            return nothing, nothing
        # Integers keep their text in any type; one that the table's type cannot hold is in no row.
        columns = {
            name: rows.column(rows.schema.get_field_index(theirs)) for name, theirs in self.lookup.columns.items()
        }
        named = pa.RecordBatch.from_pydict(columns)
        paths = self.keys.partition_paths(named) if self.lookup.with_partitions else nothing
        return self.keys.keys(named), paths


# --------------------------------------------------------------------------------------------------------- one attempt


def _attempt(
    handle: TableContext, session: MergeSession, staged: Frame, merge: Merge, options: WriteOptions, ctx: WriteContext
) -> WriteResult:
    """Work the rows out on the table as it is now, and write them."""
    source = pa.schema([field for field in list(staged.schema)[3:] if not field.name.startswith(ASSIGNED)])
    snapshot = writable(handle)
    clauses = _bound(merge, snapshot, source, session, null_for_missing=options.rows.null_for_missing)
    _require_same_columns(snapshot, clauses, staged.schema)
    lookup, _ = _lookup(snapshot, merge, source, session)
    report = TaggingReport()
    reads_all = merge.has("not matched by source")
    reading = snapshot
    if lookup is not None and not reads_all:
        holding = slices_of_keys(
            handle, snapshot, staged, options.tagging, report, with_partitions=lookup.with_partitions
        )
        reading = snapshot.with_slices(holding)
    found = _equalities(snapshot, merge, source, session)
    task = MergeTask(
        snapshot=reading,
        where=None if reads_all else found.where,
        equal={} if reads_all else found.pairs,
        source=staged,
        merge=merge,
        clauses=clauses,
        keyed=lookup is not None,
    )
    known = _new_keys_known(snapshot, merge, lookup, source, session)
    if lookup is not None and lookup.with_partitions and has_global_index(snapshot.config, options.table):
        known = False  # Another partition may have the key.
    merged = MergedRows(
        rows=session.rows(task),
        snapshot=snapshot,
        table=snapshot.config.name,
        duplicates=Duplicates.ALLOW if merge.only_deletes else Duplicates.FAIL,
        joined=lookup is None or reads_all or not lookup.with_partitions,
        new_keys_known=known,
        assigned=frozenset(
            name for clause in clauses if clause.when != "not matched" for name in (*clause.copies, *clause.values)
        ),
    )
    result = write_merged(handle, merged, replace(options, retries=0), ctx)  # Here all is tried again.
    return replace(result, tagging=report) if report.source != "none" else result


def _require_same_columns(snapshot: Snapshot, clauses: Sequence[BoundClause], staged: pa.Schema) -> None:
    """Refuse a source whose assigned columns were cast to types that another writer has changed since."""
    for name, column in assigned_columns(snapshot, clauses).items():
        if name not in staged.names or staged.field(name).type != column.type:
            found = name.removeprefix(ASSIGNED)
            raise SchemaMismatchError(
                f"table {snapshot.config.name}: another writer changed column {column.name!r} while the source was "
                "prepared; run the merge again",
                column=column.name,
                expected=str(column.type),
                found=str(staged.field(found).type) if found in staged.names else "nothing",
            )


def _new_keys_known(
    snapshot: Snapshot, merge: Merge, lookup: _Lookup | None, source: pa.Schema, session: MergeSession
) -> bool:
    """Whether a source row without a match is one whose key is not stored: then new rows need no look-up.

    A key that a log file has deleted has to come back in its group, which has to be found.
    """
    if snapshot.config.table_type == TableType.MERGE_ON_READ or lookup is None:
        return False
    if _says_more(snapshot, merge, lookup, source, session):
        return False
    clauses = [clause for clause in merge.clauses if clause.when == "not matched"]
    own = (*snapshot.config.record_key_fields, *snapshot.config.partition_fields)
    same = all(lookup.columns.get(name, name).lower() == name.lower() for name in own)
    return same and all(clause.everything for clause in clauses)


def _says_more(snapshot: Snapshot, merge: Merge, lookup: _Lookup, source: pa.Schema, session: MergeSession) -> bool:
    found = _equalities(snapshot, merge, source, session)
    return found.rest or bool(set(found.pairs) - set(lookup.columns))
