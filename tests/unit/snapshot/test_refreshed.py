"""A snapshot that looks again: the same object while nothing moved, else the table as it is now."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.errors import TableNotFoundError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.snapshot.snapshot import Snapshot
from table_kit import make, rows, set_properties

DATA = rows(("a", "rome", 1, 1), ("b", "oslo", 1, 2))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two rows in two partitions."""
    return make(tmp_path / "t", DATA, partition_by="city")


def load(table: Table) -> Snapshot:
    """The table now."""
    return Snapshot.load(TableFiles(LocalStorage(), table.path))


CHANGES: list[tuple[str, Callable[[Table], object]]] = [
    ("commit", lambda table: table.upsert(DATA)),
    ("setting", lambda table: set_properties(Path(table.path), {"hoodie.table.comment": "new"})),
]


@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[name for name, _ in CHANGES])
def test_what_moved_is_seen(table: Table, change: Callable[[Table], object]) -> None:
    before = load(table)
    assert before.refreshed() is before
    change(table)
    after = before.refreshed()
    assert after is not before
    assert (after.config, after.timeline.instants) != (before.config, before.timeline.instants)
    assert after.refreshed() is after


def test_files_that_went_from_the_metadata_table_are_missed(table: Table) -> None:
    snapshot = load(table)
    assert snapshot.lost_metadata == {}
    folder = Path(table.path) / ".hoodie" / "metadata" / "bloom_filters"
    for file in folder.glob("*.log.*"):
        file.unlink()
    assert snapshot.lost_metadata == {}, "listed once for each state"
    assert snapshot.refreshed() is snapshot
    snapshot.metadata.recheck()
    assert list(snapshot.lost_metadata) == ["bloom_filters"]


def test_a_table_that_is_gone(table: Table) -> None:
    snapshot = load(table)
    shutil.rmtree(table.path)
    with pytest.raises(TableNotFoundError):
        snapshot.refreshed()
