"""The card of a table, and the page of everything that can be said of it without reading its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lakedex.display.blocks import (
    ROWS,
    Bars,
    Block,
    Card,
    Cell,
    Command,
    Facts,
    Grid,
    Mark,
    Notice,
    Notices,
    Strip,
    share,
)
from lakedex.display.html import page_html
from lakedex.display.result_table import ResultTable
from lakedex.errors import FormatError, IndexingError, InvalidInputError, StorageError
from lakedex.index.registry import index_stats, list_indexes
from lakedex.io.local import LocalStorage
from lakedex.maintenance.rollback import list_savepoints
from lakedex.maintenance.validate_table import validate_table
from lakedex.parallel import run_threads
from lakedex.reports import counted
from lakedex.scan.index_advisor import advise
from lakedex.scan.scan import Scan
from lakedex.snapshot.snapshot import Snapshot, TableContext
from lakedex.table.inspect import Inspect
from lakedex.timeline.active import WRITE_ACTIONS
from lakedex.timeline.instant import Instant
from lakedex.types import META_COLUMNS, SessionRules, size_text

__all__ = ["table_card", "write_report"]


COMMITS = 40
"""Newest commits that a card shows; each is a small file to read."""
PARTITIONS = 12
NO_NAME = "?"
"""Name of bitmap indexes whose definitions are damaged."""
DAMAGE = (FormatError, IndexingError, StorageError)
"""Errors of files of the table, which a card names beside all that can be read."""
_THREADS = 8


def table_card(snapshot: Snapshot, engine: str) -> Card:
    """Facts of a table, its last commits, its largest partitions, and its indexes with what they lack."""
    config = snapshot.config
    names = snapshot.schema.names
    facts = [
        ("path", snapshot.files.base_path),
        ("type", f"{config.table_type}, version {config.version}"),
        ("record key", ", ".join(config.record_key_fields) or "generated"),
        ("partition by", ", ".join(config.partition_fields) or "–"),
        ("ordering by", ", ".join(config.ordering_fields) or "–"),
        ("columns", f"{len(names)}: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}"),
        ("commits", f"{len(snapshot.timeline.completed(WRITE_ACTIONS)):,}, newest {snapshot.instant or '–'}"),
        ("engine", engine),
    ]
    if config.comment:
        facts.insert(0, ("comment", config.comment))
    parts: Sequence[Callable[[Snapshot], Block]] = (_commits, _partitions, _indexes)
    slices = snapshot.view().table
    head = f"{counted(len(slices), 'file')}, {size_text(int(slices.sizes.sum()))}"
    return Card(f"table {config.name}", head, [Facts(facts), *(_or_notice(part, snapshot) for part in parts)])


def _or_notice(part: Callable[[Snapshot], Block], snapshot: Snapshot) -> Block:
    """A part of a card; where files of the table are damaged, that."""
    try:
        return part(snapshot)
    except DAMAGE as error:
        return Notices([Notice(str(error), "damaged", "bad")])


def _commits(snapshot: Snapshot) -> Strip:
    timeline = snapshot.timeline
    commits = timeline.completed(WRITE_ACTIONS)
    shown = commits[-COMMITS:]

    def figures(instant: Instant) -> tuple[str, int, int]:
        commit = timeline.commit_metadata(instant)
        stats = commit.all_stats()
        operation = (commit.operation or instant.action).lower()
        return operation, sum(stat.num_writes for stat in stats), sum(stat.file_size for stat in stats)

    found = run_threads(figures, shown, _THREADS)
    most = max((size for _, _, size in found), default=0)
    marks = [
        Mark(operation, share(size, most), f"{instant.requested} {operation}: {rows:,} rows in {size_text(size)}")
        for instant, (operation, rows, size) in zip(shown, found, strict=True)
    ]
    older = len(commits) - len(shown)
    return Strip("commits", marks, f"{older:,} older ones not shown" if older else "")


def _partitions(snapshot: Snapshot) -> Bars:
    found = Inspect(snapshot).partitions().to_arrow().sort_by([("size", "descending"), ("partition", "ascending")])
    rows = found.slice(0, PARTITIONS).to_pylist()
    bars = [
        (
            row["partition"] or "(the table)",
            float(row["size"]),
            f"{counted(row['file_slices'], 'file')}, {size_text(row['size'])}",
        )
        for row in rows
    ]
    return Bars("partitions", bars, found.num_rows - len(rows))


def _indexes(snapshot: Snapshot) -> Grid:
    found = list_indexes(snapshot)
    rows: list[tuple[Cell, ...]] = [
        (
            row["name"],
            row["using"],
            ", ".join([name for name in row["columns"] if name not in META_COLUMNS] or row["columns"]),
            row["state"],
            Command(_remedy(row["name"], row["using"], row["state"])),
        )
        for row in found.slice(0, ROWS).to_pylist()
    ]
    heads = ("index", "kind", "columns", "state", "to do")
    return Grid(heads, rows, total=found.num_rows, title="indexes", more="table.indexes.list() has all")


def _remedy(name: str, kind: str, state: str) -> str:
    """The call that makes an index complete; empty if it is, and where definitions are damaged."""
    if state == "complete" or name == NO_NAME:
        return ""
    if kind != "bitmap":
        return "table.maintenance.rebuild_metadata()" if state.startswith("damaged") else ""
    if state.startswith("damaged"):
        return f"table.indexes.validate({name!r}, repair=True)"
    return f"table.indexes.refresh({name!r})"


# -------------------------------------------------------------------------------------------------------------- page


def write_report(
    path: str | os.PathLike[str],
    context: TableContext,
    snapshot: Snapshot,
    scans: Sequence[Scan],
    queries: Sequence[str],
    rules: SessionRules,
) -> str:
    """Write the page; see :meth:`lakedex.Table.report`."""
    target = Path(path).absolute()
    if not target.parent.is_dir() or target.is_dir():
        raise InvalidInputError(f"report: {target} is no file in a folder that exists; say report('table.html')")
    inspect = Inspect(snapshot)
    cards: list[Callable[[], Card]] = [
        partial(table_card, snapshot, context.engine.name),
        lambda: validate_table(context, footers=False).card(),
        *(partial(_plan_card, scan) for scan in scans),
    ]
    if queries:
        cards.append(lambda: advise(snapshot, None, queries, rules=rules).card())
    names = list_indexes(snapshot)["name"].to_pylist()
    cards += [partial(_index_card, snapshot, name) for name in names if name != NO_NAME]
    tables: Sequence[Callable[[], ResultTable]] = (
        inspect.history,
        inspect.partitions,
        inspect.files,
        inspect.column_stats,
        partial(_savepoints, snapshot),
    )
    cards += [partial(_rows_card, rows) for rows in tables]
    content = page_html(f"lakedex: table {snapshot.config.name}", [_or_damage(card) for card in cards])
    LocalStorage().write(str(target), content.encode())
    return str(target)


def _plan_card(scan: Scan) -> Card:
    return scan.plan().card()


def _index_card(snapshot: Snapshot, name: str) -> Card:
    return index_stats(snapshot, name).card()


def _rows_card(rows: Callable[[], ResultTable]) -> Card:
    return rows().card()


def _savepoints(snapshot: Snapshot) -> ResultTable:
    return ResultTable(list_savepoints(snapshot), f"savepoints of {snapshot.config.name}")


def _or_damage(card: Callable[[], Card]) -> Card:
    """A card; where files of the table are damaged, one that says so."""
    try:
        return card()
    except DAMAGE as error:
        return Card("not readable", str(error), tone="bad")
