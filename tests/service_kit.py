"""Small helpers of tests that clean, roll back and restore tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakedex import Table
from lakedex.metadata.records import is_deleted


def commits_of(table: Table) -> list[str]:
    """Commits that are on the timeline, oldest first."""
    found: list[str] = table.inspect.history()["commit_time"].to_pylist()[::-1]
    return found


def actions_of(table: Table, action: str) -> list[Any]:
    """Instants of one action, in any state."""
    return [instant for instant in table.snapshot().timeline.instants if instant.action == action]


def with_bitmaps(table: Table) -> Table:
    """The table with a bitmap index of its partition column."""
    table.indexes.create("bitmap", ["city"], name="cities")
    return table


def live_entries(table: Table, partition: str) -> int:
    """How many records of a metadata partition are not marked deleted."""
    return sum(not is_deleted(record) for record in table.snapshot().metadata.scan(partition).values())


def known_files(table: Table) -> set[str]:
    """Base files that the metadata table lists, relative to the table."""
    listing = table.snapshot().listing()
    return {f"{path}/{name}".lstrip("/") for path, files in listing.items() for name in files}


def files_on_disk(path: Path) -> set[str]:
    """Base files that are there."""
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}
