"""Subcommands that only read: a table's facts, its rows, plans and checks."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from lakedex.cli.command import FINDINGS, KEEP, LOOK, AsOf, Call, Columns, Limit, Output, Where, add_command
from lakedex.errors import InvalidInputError

__all__ = ["add_to"]


SHOWN = 20
"""Rows of a printed answer without ``--limit``."""


def show(call: Call) -> None:
    """Show what the table is: key, columns, commits, files, indexes."""
    table = call.table
    call.answer(import_module("lakedex.cli.tables").facts(table), str(table))


def schema(call: Call) -> None:
    """List the columns, their types, their part in the table and their comments."""
    call.answer(import_module("lakedex.cli.tables").columns(call.table))


def properties(call: Call) -> None:
    """Show the settings in hoodie.properties."""
    call.answer(dict(sorted(call.table.properties.items())))


def partitions(call: Call) -> None:
    """List the partitions, their files and sizes."""
    call.answer(call.table.inspect.partitions())


def files(call: Call, where: Where = None) -> None:
    """List the data files, all or those that a query has to read."""
    table = call.table
    found = table.inspect.files()
    if where is not None:
        found = import_module("lakedex.cli.tables").only_files(found, table.scan(where).plan().files_kept)
    call.answer(found)


def history(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Commits at most.")] = 20,
    archived: Annotated[bool, typer.Option("--archived", help="Also those of the archive.")] = False,
) -> None:
    """List the commits, newest first, with what each of them wrote."""
    tables = import_module("lakedex.cli.tables")
    table = call.table
    found = table.inspect.history(limit, archived=archived)
    call.answer(found, tables.history(found, table.snapshot().config.timezone, datetime.datetime.now().astimezone()))


def timeline(call: Call) -> None:
    """List the instants of the active timeline, pending ones too."""
    call.answer(call.table.inspect.timeline())


def stats(
    call: Call,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="Entries of this column only.")] = None,
) -> None:
    """List bounds and counts of columns, a row for each file and column, from the index column_stats."""
    table = call.table
    found = table.inspect.column_stats()
    if column is not None:
        found = import_module("lakedex.cli.tables").of_column(found, column, table)
    call.answer(found)


def indexes(call: Call) -> None:
    """List the indexes and their states."""
    call.answer(call.table.indexes.list())


def query(
    call: Call,
    where: Where = None,
    columns: Columns = None,
    as_of: AsOf = None,
    limit: Limit = None,
    output: Output = None,
    meta_columns: Annotated[bool, typer.Option("--meta-columns", help="Also Hudi's _hoodie_ columns.")] = False,
) -> None:
    """Show or export rows; indexes choose the files that are read."""
    chosen = _names(columns)
    table = call.table
    scan = table.scan(where, as_of=as_of)
    if chosen is None and not meta_columns:
        chosen = [name for name in scan.schema.names if not name.startswith("_hoodie_")]
    _rows(call, scan if chosen is None else scan.select(*chosen), limit, output)


def count(call: Call, where: Where = None, as_of: AsOf = None) -> None:
    """Count rows, from indexes and footers as far as they can tell."""
    with call.busy("counting"):
        rows = call.table.scan(where, as_of=as_of).count()
    call.answer({"rows": rows}, f"{rows:,}")


def explain(
    call: Call,
    where: Where = None,
    as_of: AsOf = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Read the files too and count their rows.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Print the plan as HTML.")] = False,
) -> None:
    """Show which files a query reads, and what each index removed."""
    if html and call.json:
        raise InvalidInputError("--html and --json are two forms of one answer: give one of them")
    with call.busy("planning"):
        plan = call.table.scan(where, as_of=as_of).explain(analyze=analyze)
    call.answer(plan, plan._repr_html_() if html else None)


def changes(
    call: Call,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="An instant, a date or time, or earliest.")],
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="The newest commit by default.")] = None,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    output: Output = None,
) -> None:
    """Show or export the rows that commits after a moment inserted or updated."""
    chosen = _names(columns)
    scan = call.table.changes(since, until, where=where)
    if chosen is None:
        chosen = [name for name in scan.schema.names if not name.startswith("_hoodie_")]
    _rows(call, scan.select(*chosen), limit, output)


def validate(
    call: Call,
    sample: Annotated[
        int | None, typer.Option("--files", min=1, metavar="N", help="Open N files; all by default.")
    ] = None,
    footers: Annotated[
        bool, typer.Option("--footers/--no-footers", help="Open files, or compare listings only.")
    ] = True,
) -> None:
    """Compare the metadata and the indexes with the files; exit code 1 if they differ."""
    tables = import_module("lakedex.cli.tables")
    with call.busy("validating") as progress:
        report = call.table.maintenance.validate(sample, footers=footers, progress=progress)
        stale = tables.stale_indexes(call.table)
    found = len(report.differences) + len(stale)
    document = {**report.to_dict(), "ok": not found, "findings": found, "stale_indexes": stale}
    call.answer(document, tables.findings(report, stale, call.path))
    if found:
        raise typer.Exit(FINDINGS)


def advise(
    call: Call,
    columns: Columns = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", metavar="FILE", help="A log of WHERE conditions, one a line.")
    ] = None,
) -> None:
    """Say which columns deserve a bitmap index, from a sample of the files."""
    log = None if queries is None else import_module("lakedex.cli.files").conditions(queries)
    with call.busy("sampling"):
        call.answer(call.table.indexes.advise(_names(columns), log))


def report(
    call: Call,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")],
) -> None:
    """Write one HTML page about the table: facts, commits, files, indexes."""
    table: Any = call.table
    if not hasattr(table, "report"):
        raise InvalidInputError("this version of lakedex has no Table.report yet; lakedex show prints the facts")
    with call.busy("writing the report"):
        table.report(output)
    call.answer({"file": output}, f"report written to {output}")


def _names(columns: str | None) -> Sequence[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def _rows(call: Call, scan: Any, limit: int | None, output: str | None) -> None:
    """Print the rows of a scan, or write them to a file."""
    if output is not None:
        with call.busy(f"writing {output}"):
            written = import_module("lakedex.cli.files").export(scan if limit is None else scan.limit(limit), output)
        call.answer(written, f"{written['rows']:,} rows written to {output}")
        return
    if call.json:
        call.answer((scan if limit is None else scan.limit(limit)).to_arrow())
        return
    with call.busy("reading"):
        rows = scan.limit(SHOWN + 1 if limit is None else limit).to_arrow()
    more = limit is None and rows.num_rows > SHOWN
    note = f"the first {SHOWN} rows; --limit N shows more, -o FILE writes all" if more else _counted(rows.num_rows)
    call.answer(rows, rows.slice(0, SHOWN) if more else rows, note=note, figures=False)


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def add_to(app: typer.Typer) -> None:
    """Add the subcommands."""
    looks = (
        show, schema, properties, partitions, files, history, timeline, stats, indexes, query, count, explain, changes,
        report,
    )  # fmt: skip
    for function in looks:
        add_command(app, function.__name__, LOOK)(function)
    for function in (validate, advise):
        add_command(app, function.__name__, KEEP)(function)
