"""Subcommands that change no table: facts, rows, plans and checks of one; demo, doctor, looks into single files."""

from __future__ import annotations

import datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from lakedex.cli.command import (
    FINDINGS,
    KEEP,
    LOOK,
    TRY,
    AsOf,
    Call,
    Columns,
    Limit,
    Output,
    Where,
    add_command,
    names,
)
from lakedex.errors import InvalidInputError
from lakedex.printing import counted, printed

__all__ = ["add_to"]


File = Annotated[str, typer.Argument(metavar="FILE", help="A path or storage URL.")]


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
    scan = call.table.scan(where, names(columns), as_of=as_of, meta_columns=meta_columns)
    _rows(call, scan, limit, output)


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
    if html:
        print(plan._repr_html_())
    else:
        call.answer(plan)


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
    _rows(call, call.table.changes(since, until, names(columns), where), limit, output)


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
        Path | None,
        typer.Option("--queries", metavar="FILE", help="A log of conditions or SELECT statements, one a line."),
    ] = None,
) -> None:
    """Say which columns deserve a bitmap index, from a sample of the files."""
    log = None if queries is None else import_module("lakedex.cli.files").conditions(queries)
    with call.busy("sampling"):
        call.answer(call.table.indexes.advise(names(columns), log))


def report(
    call: Call,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")],
    queries: Annotated[
        Path | None,
        typer.Option("--queries", metavar="FILE", help="Conditions, one a line, whose plans the page has."),
    ] = None,
) -> None:
    """Write one HTML page about the table: facts, commits, files, indexes."""
    log = () if queries is None else import_module("lakedex.cli.files").conditions(queries)
    with call.busy("writing the report"):
        file = call.table.report(output, log)
    call.answer({"file": file}, f"report written to {file}")


def _rows(call: Call, scan: Any, limit: int | None, output: str | None) -> None:
    """Print the rows of a scan, or write them to a file."""
    if output is not None:
        with call.busy(f"writing {output}"):
            written = import_module("lakedex.cli.files").export(scan if limit is None else scan.limit(limit), output)
        call.answer(written, f"{counted(written['rows'], 'row')} written to {output}")
        return
    if call.json:
        call.answer((scan if limit is None else scan.limit(limit)).to_arrow())
        return
    with call.busy("reading"):
        rows = scan.limit(SHOWN + 1 if limit is None else limit).to_arrow()
    more = limit is None and rows.num_rows > SHOWN
    note = (
        f"the first {SHOWN} rows; --limit N shows more, -o FILE writes all" if more else counted(rows.num_rows, "row")
    )
    call.answer(rows, rows.slice(0, SHOWN) if more else rows, note=note, figures=False)


# ---------------------------------------------------------------------------------------------------- without a table


def demo(
    call: Call,
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="Where to make the table; a temporary folder by default.")
    ] = None,
) -> None:
    """Make a table of bike trips, week by week, in two seconds and without Spark."""
    module = import_module("lakedex.cli.demo")
    made = module.Demo.at(folder)
    weeks = []
    for week in made.weeks():
        weeks.append(week)
        if not call.json:
            print(module.line_of(week), flush=True)
    answers = [{"where": where, "read": read} for where, read in made.questions()]
    document = {"table": made.path, "weeks": weeks, "questions": answers, "next": made.next_steps()}
    asked = [f"where {one['where']}: {one['read']}" for one in answers]
    call.answer(document, printed(["", *asked, "", "try next", *(f"  {step}" for step in made.next_steps())]))


def doctor(
    call: Call,
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="Try locks and put-if-absent in this folder.")
    ] = None,
) -> None:
    """Show versions, Java and stores, and whether tables can be written in a folder; exit code 1 if not."""
    health = import_module("lakedex.cli.doctor").examined(folder, call.storage_options)
    width = max(map(len, health.lines()))
    lines = [f"{name:<{width}}  {value}" for name, value in health.lines().items()]
    lines += [f"finding: {finding}" for finding in health.findings] or ["no findings"]
    call.answer(health.to_dict(), printed(lines))
    if health.findings:
        raise typer.Exit(FINDINGS)


def debug_hfile(
    call: Call,
    file: File,
    entries: Annotated[int, typer.Option("--entries", min=0, metavar="N", help="Entries to list.")] = 10,
) -> None:
    """Show trailer, file info and first entries of an HFile of the metadata table."""
    facts, rows = import_module("lakedex.cli.formats").hfile(file, entries)
    _with_table(call, facts, "first_entries", rows)


def debug_log(call: Call, file: File) -> None:
    """List the blocks of a log file."""
    call.answer(import_module("lakedex.cli.formats").log(file))


def debug_bloom(
    call: Call,
    file: File,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Ask for this record key.")] = None,
) -> None:
    """Show the bloom filter of record keys in a base file's footer."""
    call.answer(import_module("lakedex.cli.formats").bloom(file, key))


def debug_footer(call: Call, file: File) -> None:
    """Show the footer of a Parquet file: its rows, row groups, columns and keys."""
    facts, columns = import_module("lakedex.cli.formats").footer(file)
    _with_table(call, facts, "columns", columns)


def _with_table(call: Call, facts: dict[str, Any], name: str, rows: Any) -> None:
    """Print facts and a table below; in JSON it is one more fact."""
    output = import_module("lakedex.cli.output")
    text = f"{output.text_of(facts)}\n\n{output.aligned(rows, figures=True)}"
    call.answer({**facts, name: rows}, text)


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
    add_command(app, "demo", TRY, table=False)(demo)
    add_command(app, "doctor", TRY, table=False, storage=True)(doctor)
    own = typer.Typer(no_args_is_help=True, help="Look into one file: hfile, log, bloom, footer.")
    add_command(own, "hfile", TRY, table=False)(debug_hfile)
    add_command(own, "log", TRY, table=False)(debug_log)
    add_command(own, "bloom", TRY, table=False)(debug_bloom)
    add_command(own, "footer", TRY, table=False)(debug_footer)
    app.add_typer(own, name="debug", rich_help_panel=TRY)
