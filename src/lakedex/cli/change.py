"""Subcommands that change a table: each shows its plan and asks before it does anything."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lakedex
from lakedex.cli.command import (
    CHANGE,
    FINDINGS,
    INDEX,
    KEEP,
    Call,
    DefaultGroup,
    add_command,
    names,
    sized,
)
from lakedex.errors import InvalidInputError
from lakedex.printing import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["add_to"]


Instant = Annotated[str, typer.Argument(metavar="INSTANT", help="The commit, as lakedex history shows it.")]
IndexName = Annotated[str, typer.Argument(metavar="NAME", help="The index, as lakedex indexes shows it.")]
RowsWhere = Annotated[str, typer.Option("--where", metavar="SQL", help="Condition on the rows, in Spark SQL.")]


class Mode(StrEnum):
    """How ``load`` writes rows."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    OVERWRITE = "overwrite"


# --------------------------------------------------------------------------------------------------------------- rows


def load(
    call: Call,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Parquet, CSV, JSON lines, Arrow or ORC.")],
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode", metavar="MODE", help="upsert, insert, bulk_insert; or overwrite, which replaces all rows."
        ),
    ] = Mode.UPSERT,
    create: Annotated[bool, typer.Option("--create", help="Create the table from the files' columns first.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="A,B", help="With --create: columns of the record key.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", metavar="A,B", help="With --create: columns of the partition path.")
    ] = None,
    ordering_by: Annotated[
        str | None,
        typer.Option("--ordering-by", metavar="A", help="With --create: of two versions the larger one wins."),
    ] = None,
    table_type: Annotated[
        str | None, typer.Option("--table-type", metavar="TYPE", help="With --create: cow, or mor (merge-on-read).")
    ] = None,
    null: Annotated[
        list[str] | None,
        typer.Option("--null", metavar="TEXT", help="CSV: a text without quotes that is null, as NA; an empty one is."),
    ] = None,
) -> None:
    """Write the rows of files to a table, in one commit."""
    if create and key is None and mode is Mode.UPSERT:
        raise InvalidInputError(
            "--create needs --key: the columns that tell rows apart, as in --key id. --mode insert generates keys"
        )
    if not create and (given := [n for n, v in (("--key", key), ("--partition-by", partition_by),
                                                ("--ordering-by", ordering_by), ("--table-type", table_type))
                                if v is not None]):  # fmt: skip
        raise InvalidInputError(f"{given[0]} describes a new table: give --create with it")
    if create and lakedex.Table.is_table(call.path):
        raise InvalidInputError(f"{call.path} holds a table already: leave out --create")
    known = None if create else call.table.schema
    source = import_module("lakedex.cli.files").Input(files, known, null or ())
    with call.busy("counting rows"):
        rows, size = source.count_rows(), source.size
    place = f"a new table at {call.path}" if create else f"the table {call.table.name}"
    what = f"would {mode.value} {counted(rows, 'row')} of {counted(len(files), 'file')}, {sized(size)}"
    if not call.may(f"{what}, into {place}", {"rows": rows, "files": len(files), "size": size, "create": create}):
        return
    if create:
        fields = names(key), names(partition_by), names(ordering_by)
        table = _created(call, source.schema, *fields, table_type=table_type or "cow")
    else:
        table = call.table
    with call.busy(f"{mode.value} of {counted(rows, 'row')}"):
        try:
            done = _write(table, mode)(source.reader())
        except Exception as error:
            if not create:
                raise
            raise InvalidInputError(f"{error}; the new table {call.path} is empty: load without --create") from error
        call.answer(done)


def _created(
    call: Call,
    schema: pa.Schema,
    key: list[str] | None,
    partition_by: list[str] | None,
    ordering_by: list[str] | None,
    *,
    table_type: str,
) -> lakedex.Table:
    return lakedex.Table.create(
        call.path,
        schema,
        record_key=key or None,
        partition_by=partition_by or (),
        ordering_by=ordering_by,
        table_type=table_type,
        storage_options=call.storage_options,
        options=call.options,
    )


def _write(table: lakedex.Table, mode: Mode) -> Callable[[Any], lakedex.WriteResult]:
    if mode is Mode.OVERWRITE:
        return lambda rows: table.insert_overwrite(rows, "table")
    write: Callable[[Any], lakedex.WriteResult] = getattr(table, mode.value)
    return write


def delete(call: Call, where: RowsWhere) -> None:
    """Delete the rows under a condition; older commits still have them."""
    if _may_remove(call, "delete", where):
        with call.busy("deleting"):
            call.answer(call.table.delete(where=where))


def erase(call: Call, where: RowsWhere) -> None:
    """Delete the rows under a condition, prove it, and name the older files that still hold them."""
    if _may_remove(call, "erase", where):
        with call.busy("erasing"):
            report = call.table.erase(where=where)
        call.answer(report)
        if not report.is_verified:
            raise typer.Exit(FINDINGS)


def _may_remove(call: Call, verb: str, where: str) -> bool:
    with call.busy("counting"):
        scan = call.table.scan(where)
        rows, files = scan.count(), len(scan.plan().slices)
    if not rows:
        call.answer({"rows": 0}, f"no row of the table {call.table.name} meets the condition")
        return False
    where_they_are = f"of the table {call.table.name}, in {counted(files, 'file')} at most"
    return call.may(f"would {verb} {counted(rows, 'row')} {where_they_are}", {"rows": rows, "files": files})


# ------------------------------------------------------------------------------------------------------------ services


def repair(call: Call) -> None:
    """Roll back dead writes, rebuild wrong metadata, refresh indexes; exit code 1 if something is left."""
    services = call.table.maintenance
    with call.busy("validating") as progress:
        plan = services.repair(dry_run=True, progress=progress)
    if not plan.steps:
        call.answer(plan)
    elif call.may(f"would {', '.join(plan.steps)}", plan.to_dict()):
        with call.busy("repairing") as progress:
            plan = services.repair(progress=progress)
        call.answer(plan)
    if plan.left or (plan.dry_run and plan.steps):
        raise typer.Exit(FINDINGS)


def clean(
    call: Call,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", help="Keep the files of the last N commits; 10 by default.")
    ] = None,
    hours: Annotated[int | None, typer.Option("--hours", metavar="N", help="Keep those of the last N hours.")] = None,
    versions: Annotated[
        int | None, typer.Option("--versions", metavar="N", help="Keep N versions of each file group.")
    ] = None,
) -> None:
    """Delete files that only old commits need."""
    services = call.table.maintenance
    with call.busy("planning"):
        plan = services.clean(dry_run=True, commits=keep, hours=hours, versions=versions)
    if not plan.files:
        call.answer(plan)
        return
    since = f"; oldest readable instant becomes {plan.earliest_retained}" if plan.earliest_retained else ""
    if call.may(f"would delete {counted(plan.files, 'file')}, {sized(plan.bytes_freed)}{since}", plan.to_dict()):
        with call.busy("cleaning"):
            call.answer(services.clean(commits=keep, hours=hours, versions=versions))


def compact(
    call: Call,
    metadata: Annotated[bool, typer.Option("--metadata", help="Those of the metadata table instead.")] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only write a plan, which a later call or Hudi runs.")
    ] = False,
    instant: Annotated[
        str | None, typer.Option("--instant", metavar="INSTANT", help="Run this pending plan and nothing else.")
    ] = None,
) -> None:
    """Merge the log files of a merge-on-read table, or of the metadata table of another one, into base files."""
    table, services = call.table, call.table.maintenance
    if metadata or table.snapshot().config.table_type != "MERGE_ON_READ":
        if plan_only or instant is not None:
            raise InvalidInputError(
                f"{table.name}: --plan-only and --instant are for log files of merge-on-read tables"
            )
        of_metadata = services.compact_metadata(dry_run=True)
        what = f"would merge {counted(of_metadata.log_files, 'log file')} of the metadata table of {table.name}"
        if not of_metadata.log_files:
            call.answer(of_metadata)
        elif call.may(f"{what} into {counted(of_metadata.file_groups, 'base file')}", of_metadata.to_dict()):
            with call.busy("compacting the metadata table"):
                call.answer(services.compact_metadata())
        return
    plan = services.compact(dry_run=True, plan_only=plan_only, instant=instant)
    logs, verb = counted(plan.log_files, "log file"), "plan to merge" if plan_only else "merge"
    if not plan.file_groups:
        call.answer(plan)
    elif call.may(f"would {verb} {logs} of {counted(plan.file_groups, 'file group')}", plan.to_dict()):
        with call.busy("compacting"):
            call.answer(services.compact(plan_only=plan_only, instant=instant))


def cluster(
    call: Call,
    order_by: Annotated[
        str | None, typer.Option("--order-by", metavar="A,B", help="Order the rows by these columns.")
    ] = None,
    zorder: Annotated[
        str | None, typer.Option("--zorder", metavar="A,B", help="Order the rows along a z-order curve.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only files that may hold a row under this condition.")
    ] = None,
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="A,B", help="Only these partition paths.")
    ] = None,
    max_file_bytes: Annotated[
        int | None, typer.Option("--max-file-bytes", min=1, metavar="N", help="About the size of the new files.")
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Only put the plan on the timeline.")] = False,
    instant: Annotated[str | None, typer.Option("--instant", metavar="INSTANT", help="Run this pending plan.")] = None,
) -> None:
    """Rewrite small files into fewer ones, and bring rows into an order by which queries read fewer files."""
    services = call.table.maintenance
    run = partial(
        services.cluster,
        order_by=order_by,
        zorder=zorder,
        where=where,
        partitions=partitions,
        max_file_bytes=max_file_bytes,
        plan_only=plan_only,
        instant=instant,
    )
    plan = run(dry_run=True)
    files, verb = counted(plan.files_before, "file"), "plan to rewrite" if plan_only else "rewrite"
    if not plan.files_before:
        call.answer(plan)
    elif call.may(f"would {verb} {files} ({sized(plan.bytes_before)}) into {plan.files_after:,}", plan.to_dict()):
        with call.busy("clustering"):
            call.answer(run())


def archive(call: Call) -> None:
    """Move old instants from the active timeline to the archive."""
    services = call.table.maintenance
    plan = services.archive(dry_run=True)
    if not (plan.instants or plan.metadata_instants):
        call.answer(plan)
        return
    of_metadata = f"{len(plan.metadata_instants):,} of the metadata table"
    what = f"would archive {counted(len(plan.instants), 'instant')}, and {of_metadata}"
    if call.may(what, plan.to_dict()):
        with call.busy("archiving"):
            call.answer(services.archive())


def rollback(call: Call, instant: Instant) -> None:
    """Undo the last commit, or a write whose writer died."""
    services = call.table.maintenance
    plan = services.rollback(instant, dry_run=True)
    what = f"would undo {instant} and delete {counted(plan.files_deleted, 'file')}; the table returns to "
    if call.may(f"{what}{plan.latest or 'no commit'}", plan.to_dict()):
        with call.busy("rolling back"):
            call.answer(services.rollback(instant))


def restore(call: Call, instant: Instant) -> None:
    """Return the table to a savepoint: all later commits are undone, for good."""
    services = call.table.maintenance
    plan = services.restore(instant, dry_run=True)
    if not plan.undone:
        call.answer(plan)
        return
    what = (
        f"would undo {counted(len(plan.undone), 'commit')}, from {plan.undone[0]} back to {plan.undone[-1]}, for good"
    )
    if call.may(f"{what}, and delete {counted(plan.files_deleted, 'file')}", plan.to_dict()):
        with call.busy("restoring"):
            call.answer(services.restore(instant))


# ----------------------------------------------------------------------------------------------------------- savepoints


def savepoint_create(
    call: Call,
    instant: Annotated[
        str | None, typer.Argument(metavar="[INSTANT]", help="The commit; the newest by default.")
    ] = None,
    comment: Annotated[str, typer.Option("--comment", metavar="TEXT", help="The reason, for people.")] = "",
) -> None:
    """Keep the files of a commit from cleaning, so that restore can return to it."""
    commit = instant or call.table.snapshot().instant
    if commit is None:
        raise InvalidInputError(f"table {call.table.name} has no commit yet, so there is nothing to keep")
    if call.may(f"would keep the files of commit {commit} from cleaning", {"instant": commit}):
        kept = call.table.maintenance.savepoint(commit, comment=comment)
        call.answer({"instant": kept}, f"savepoint {kept}: lakedex restore returns to it")


def savepoint_list(call: Call) -> None:
    """List the savepoints."""
    call.answer(call.table.maintenance.savepoints())


def savepoint_delete(call: Call, instant: Instant) -> None:
    """Delete a savepoint; cleaning may delete its files from then on."""
    services = call.table.maintenance
    if instant not in services.savepoints().column("instant").to_pylist():
        raise InvalidInputError(
            f"table {call.table.name} has no savepoint {instant}; lakedex savepoint list shows them"
        )
    if call.may(f"would delete the savepoint {instant}; cleaning may delete its files", {"instant": instant}):
        services.delete_savepoint(instant)
        call.answer({"deleted": instant}, f"savepoint {instant} deleted")


# -------------------------------------------------------------------------------------------------------------- indexes


def index_create(
    call: Call,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="bitmap, column_stats, partition_stats or bloom_filters.")
    ],
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Columns of a bitmap index or of column_stats.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name of a bitmap index.")] = None,
) -> None:
    """Build an index from the table's data; reads and writes go on meanwhile."""
    table = call.table
    of = f" of {columns}" if columns else ""
    if call.may(f"would build the index {name or kind}{of} over {counted(len(table.snapshot().base_files()), 'file')}"):
        with call.busy(f"building {name or kind}") as progress:
            call.answer(table.indexes.create(kind, names(columns), name=name, progress=progress))


def index_drop(call: Call, name: IndexName) -> None:
    """Drop an index; queries read more files from then on, and give the same rows."""
    _known(call, name)
    if call.may(f"would drop the index {name} of the table {call.table.name}", {"index": name}):
        call.answer(call.table.indexes.drop(name))


def index_refresh(call: Call, name: IndexName) -> None:
    """Cover the files that a bitmap index does not cover."""
    lacking = call.table.indexes.stats(name).files_uncovered
    if call.may(f"would read {counted(lacking, 'file')} for the index {name}", {"index": name, "files": lacking}):
        with call.busy(f"refreshing {name}") as progress:
            call.answer(call.table.indexes.refresh(name, progress=progress))


def index_validate(
    call: Call,
    name: IndexName,
    sample: Annotated[
        int | None, typer.Option("--files", min=1, metavar="N", help="Compare N files; all by default.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Write wrong entries again.")] = False,
) -> None:
    """Compare an index with the data, file by file; exit code 1 if they differ."""
    _known(call, name)
    if repair and not call.may(f"would compare the index {name} with the data and write wrong entries again"):
        return
    with call.busy(f"validating {name}") as progress:
        report = call.table.indexes.validate(name, files=sample, repair=repair, progress=progress)
    call.answer(report)
    if not report.ok and not repair:
        raise typer.Exit(FINDINGS)


def index_stats(call: Call, name: IndexName) -> None:
    """Show entries, covered files and bytes of an index."""
    call.answer(call.table.indexes.stats(name))


def _known(call: Call, name: str) -> None:
    """Raises the API's error for an index that the table does not have."""
    if name not in (known := call.table.indexes.list().column("name").to_pylist()):
        raise InvalidInputError(f"table {call.table.name} has no index {name!r}; it has {', '.join(known) or 'none'}")


def add_to(app: typer.Typer) -> None:
    """Add the subcommands."""
    rows: tuple[Callable[..., None], ...] = (load, delete, erase, rollback, restore)
    services: tuple[Callable[..., None], ...] = (repair, clean, compact, cluster, archive)
    for function in rows:
        add_command(app, function.__name__, CHANGE, changes=True)(function)
    for function in services:
        add_command(app, function.__name__, KEEP, changes=True)(function)
    saved = typer.Typer(
        cls=DefaultGroup, no_args_is_help=True, help="Keep a commit: create (the default), list, delete."
    )
    add_command(saved, "create", KEEP, changes=True)(savepoint_create)
    add_command(saved, "list", KEEP)(savepoint_list)
    add_command(saved, "delete", KEEP, changes=True)(savepoint_delete)
    app.add_typer(saved, name="savepoint", rich_help_panel=KEEP)
    own = typer.Typer(no_args_is_help=True, help="Create, drop, refresh, validate and measure indexes.")
    add_command(own, "create", INDEX, changes=True)(index_create)
    add_command(own, "drop", INDEX, changes=True)(index_drop)
    add_command(own, "refresh", INDEX, changes=True)(index_refresh)
    add_command(own, "validate", INDEX, changes=True)(index_validate)
    add_command(own, "stats", INDEX)(index_stats)
    app.add_typer(own, name="index", rich_help_panel=INDEX)
