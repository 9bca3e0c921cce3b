"""The API's tables and reports in the columns that the command line shows."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakedex.display.blocks import ROWS
from lakedex.errors import InvalidInputError
from lakedex.printing import printed
from lakedex.reports import Difference, TableReport
from lakedex.snapshot.schema import nearest
from lakedex.table.table import Table
from lakedex.timeline.instant import instant_to_epoch_ms

__all__ = ["columns", "facts", "findings", "history", "of_column", "only_files", "stale_indexes"]


def facts(table: Table) -> dict[str, Any]:
    """The facts of a table's card, by name."""
    snapshot = table.snapshot()
    config, bases = snapshot.config, snapshot.base_files()
    return {
        "name": config.name,
        "path": table.path,
        "table_type": config.table_type,
        "table_version": config.version,
        "record_key": list(config.record_key_fields),
        "partition_by": list(config.partition_fields),
        "ordering_by": list(config.ordering_fields),
        "comment": config.comment,
        "columns": snapshot.schema.names,
        "indexes": table.indexes.list().column("name").to_pylist(),
        "commits": len(snapshot.timeline.completed()),
        "newest_instant": snapshot.instant,
        "files": len(bases),
        "size": sum(base.size for base in bases),
    }


def columns(table: Table) -> pa.Table:
    """A row per column: column, type, nullable, role, comment."""
    config = table.snapshot().config
    roles = {
        "record key": config.record_key_fields,
        "partition": config.partition_fields,
        "ordering": config.ordering_fields,
    }
    rows = [
        {
            "column": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "role": ", ".join(role for role, names in roles.items() if field.name in names) or None,
            "comment": (field.metadata or {}).get(b"comment", b"").decode("utf-8", "replace") or None,
        }
        for field in table.schema
    ]
    texts = [(name, pa.string()) for name in ("column", "type", "role", "comment")]
    return pa.Table.from_pylist(rows, pa.schema([*texts[:2], ("nullable", pa.bool_()), *texts[2:]]))


def only_files(files: pa.Table, kept: Sequence[str]) -> pa.Table:
    """The rows of ``inspect.files()`` of the files that a plan keeps."""
    return pa.table(files).filter(pc.is_in(files["file_name"], pa.array(kept, pa.string())))


def of_column(stats: pa.Table, column: str, table: Table) -> pa.Table:
    """The rows of ``inspect.column_stats()`` of one column.

    Raises:
        InvalidInputError: the table has no such column.
    """
    found = pa.table(stats)
    found = found.filter(pc.equal(found["column_name"], column))
    if not found.num_rows and column not in table.schema.names:
        raise InvalidInputError(
            f"table {table.name} has no column {column!r}{nearest(column, table.schema.names)}", column=column
        )
    return found


def history(commits: pa.Table, zone: str, now: datetime.datetime) -> pa.Table:
    """The commits of ``inspect.history()`` as people read them: when by their own clock, and what was written.

    Args:
        commits: the commits.
        zone: the timeline's zone, UTC or LOCAL.
        now: this moment, in the zone of the reader.
    """
    found = pa.table(commits)
    begun = [_moment(text, zone) for text in found["commit_time"].to_pylist()]
    ended = [_moment(text, zone) for text in found["state_transition_time"].to_pylist()]
    seconds = [
        None if start is None or end is None else f"{max(0, end - start) / 1000:.1f}"
        for start, end in zip(begun, ended, strict=True)
    ]
    operations = pc.coalesce(found["operation"], found["action"])
    return pa.table(
        {
            "instant": found["commit_time"],
            "when": pa.array([_when(ms, now) for ms in ended], pa.string()),
            "operation": pc.utf8_lower(operations),
            "inserted": found["total_insert_records_written"],
            "updated": found["total_update_records_written"],
            "deleted": found["total_records_deleted"],
            "files": pc.add(found["total_files_added"], found["total_files_updated"]),
            "size": found["total_bytes_written"],
            "seconds": pa.array(seconds, pa.string()),
        }
    )


def _moment(instant: str | None, zone: str) -> int | None:
    try:
        return None if instant is None else instant_to_epoch_ms(instant, zone)
    except InvalidInputError:
        return None


def _when(ms: int | None, now: datetime.datetime) -> str | None:
    if ms is None:
        return None
    when = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).astimezone(now.tzinfo)
    days = (now.date() - when.date()).days
    day = {0: "today", 1: "yesterday"}.get(days, f"{when:%Y-%m-%d}")
    return f"{day} {when:%H:%M}"


def stale_indexes(table: Table) -> list[dict[str, Any]]:
    """Bitmap indexes that do not cover some files: no error, but queries read those files."""
    found = []
    for row in table.indexes.list().to_pylist():
        if row["using"] == "bitmap" and not row["state"].startswith("damaged"):
            stats = table.indexes.stats(row["name"])
            if stats.files_uncovered:
                files = stats.files_uncovered + stats.files_covered
                found.append({"index": row["name"], "files_uncovered": stats.files_uncovered, "files": files})
    return found


def findings(report: TableReport, stale: Sequence[dict[str, Any]], path: str) -> str:
    """The findings of a validation, a line each, and how to repair them."""
    own = shlex.quote(path)
    lines = [_finding(found) for found in report.differences[:ROWS]]
    if len(report.differences) > ROWS:
        lines.append(f"… and {len(report.differences) - ROWS} more; --json has all")
    lines += [
        f"index stale     {one['index']}: {one['files_uncovered']} of {one['files']} files not covered   "
        f"fix: lakedex index refresh {own} {shlex.quote(one['index'])}"
        for one in stale
    ]
    if report.differences:
        lines.append(f"fix: lakedex repair {own}")
    number = len(report.differences) + len(stale)
    head = "no findings" if not number else f"{number} finding{'s' if number > 1 else ''}"
    compared = f"{report.files_compared:,} files and {len(report.indexes)} indexes compared in {report.seconds:.1f} s"
    return printed([*lines, f"{head}; {compared}", *(f"note: {note}" for note in report.notes)])


def _finding(found: Difference) -> str:
    place = "/".join(filter(None, (found.partition, found.file))) or found.column
    column = f" ({found.column})" if found.column and place != found.column else ""
    detail = ", ".join(
        filter(
            None,
            (f"expected {found.expected}" if found.expected else "", f"found {found.found}" if found.found else ""),
        )
    )
    return f"{found.kind:<15} {place}{column}   {found.index}: {detail}"
