"""Writes on a full disk, a read-only mount or past another limit of the system, and reads of files that were cleaned."""

from __future__ import annotations

import concurrent.futures.thread as pools
import errno
import os
from pathlib import Path

import pytest

from lakedex import Table
from lakedex.errors import FileGoneError, LakedexError, StorageError
from lakedex.testing import Faults, FaultyStorage, open_table
from table_checks import START, Rows, check_table, commit_files, frame, fresh_copy, new_table, read

CHANGE: Rows = {"k1": ("b", 5, 100), "n0": ("a", 5, 101), "n9": ("c", 5, 102)}
NEXT: Rows = {"k0": ("a", 9, 900), "n1": ("b", 9, 901)}
IMPATIENT = {"hoodie.client.heartbeat.interval_in_ms": "1", "hoodie.client.heartbeat.tolerable.misses": "1"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("environment") / "template"
    new_table(path, START)
    return path


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("write", "/.heartbeat/"),
        ("create", ".commit.requested"),
        ("write", ".marker."),
        ("open_output", ".parquet"),
        ("close_output", ".parquet"),
        ("sync", ""),
        ("create", "/metadata/"),
        ("create", ".inflight"),
    ],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMFILE], ids=errno.errorcode.get)
def test_a_write_that_the_system_ends(template: Path, path: Path, number: int, call: str, part: str) -> None:
    """The table is as it was, and the next write puts right what was left, whatever failed and where."""
    fresh_copy(template, path)
    before = commit_files(path)
    faults = Faults(1, "before", OSError(number, os.strerror(number)), only=(call, part), repeat=True)
    with pytest.raises(LakedexError, match=os.strerror(number)) as caught:
        open_table(path, FaultyStorage(faults)).upsert(frame(CHANGE))
    assert not isinstance(caught.value, OSError) or isinstance(caught.value, StorageError)
    assert read(path) == START and commit_files(path) == before
    Table.open(path).upsert(frame(NEXT), options=IMPATIENT)
    check_table(path, {**START, **NEXT})


@pytest.mark.parametrize("operation", ["insert", "upsert", "bulk_insert", "insert_overwrite"])
def test_a_partition_value_that_is_no_name(template: Path, path: Path, operation: str) -> None:
    """255 bytes is what a folder's name may have; the error tells which folder."""
    fresh_copy(template, path)
    with pytest.raises(StorageError, match=r"city=xxx.*shorten the partition value"):
        getattr(Table.open(path), operation)(frame({"n0": ("x" * 300, 5, 1)}))
    assert read(path) == START
    Table.open(path).upsert(frame(NEXT), options=IMPATIENT)
    check_table(path, {**START, **NEXT})


def test_a_scan_whose_files_were_cleaned(template: Path, path: Path) -> None:
    fresh_copy(template, path)
    scan = Table.open(path).scan()
    table = Table.open(path)
    table.upsert(frame(CHANGE))
    table.maintenance.clean(versions=1)
    with pytest.raises(FileGoneError, match=r"\.parquet: cannot read.*open the table again, and raise hoodie\.clean"):
        scan.to_arrow()


def test_a_thread_that_outlives_the_main_one(template: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python lends no threads any more then: the work is done in the one that is left."""
    fresh_copy(template, path)
    monkeypatch.setattr(pools, "_shutdown", True)
    Table.open(path).upsert(frame(NEXT))
    monkeypatch.undo()
    check_table(path, {**START, **NEXT})
