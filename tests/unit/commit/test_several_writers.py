"""Options of several writers at work: which lock is taken, what a lost one costs, when failed writes are undone."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakedex import Table
from lakedex.errors import CommitConflictError, CommitError, LockTimeoutError, UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.io.locations import open_storage
from lakedex.io.locks import StorageLock, TableLock
from lakedex.io.storage import TableFiles
from table_kit import make, own, rows

PACKAGE = "org.apache.hudi.client.transaction.lock."
STORAGE_LOCK = {
    "hoodie.write.lock.provider": PACKAGE + "StorageBasedLockProvider",
    "hoodie.write.lock.wait_time_ms": "0",
}
TOGETHER = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": PACKAGE + "FileSystemBasedLockProvider",
}


@pytest.fixture
def memory() -> Iterator[str]:
    files = open_storage(f"memory://{uuid.uuid4().hex}/t")
    yield files.base_path
    files.storage.delete_tree(files.base_path)


def test_hudis_storage_based_lock(memory: str) -> None:
    """Every action takes and gives it back, and waits for it; the lock file is not touched."""
    files = open_storage(memory)
    table = Table.create(
        memory, rows().schema, record_key="id", partition_by="city", ordering_by="ts", options=STORAGE_LOCK
    )
    table = Table.open(memory, options=STORAGE_LOCK)
    table.upsert(rows(("1", "a", 1, 1)))
    table.upsert(rows(("1", "a", 2, 2), ("2", "b", 2, 2)))
    lock_file = files.path(".hoodie/.locks/table_lock.json")
    assert json.loads(files.storage.read(lock_file))["expired"] is True
    assert not files.storage.exists(files.path(".hoodie/lock"))
    with StorageLock(files):
        for action in (
            lambda: table.upsert(rows(("3", "c", 1, 1))),
            lambda: table.delete(where="id = '1'"),
            lambda: table.indexes.drop("bloom_filters"),
        ):
            with pytest.raises(LockTimeoutError, match="held by owner"):
                action()
    assert table.delete(where="id = '1'").deleted == 1
    assert own(table) == [("2", "b", 2, 2)]


def test_the_local_disk_has_no_conditional_writes(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"table_lock\.json.*'file'.*FileSystemBasedLockProvider"):
        make(tmp_path, rows(("1", "a", 1, 1)), options=STORAGE_LOCK)
    assert not Table.is_table(tmp_path)


def test_the_lock_lies_where_the_option_says(tmp_path: Path) -> None:
    """``hoodie.write.lock.filesystem.path`` is the folder, which Java shares when it has the same."""
    table = make(tmp_path / "t", rows(("1", "a", 1, 1)))
    options = {"hoodie.write.lock.filesystem.path": str(tmp_path / "locks"), "hoodie.write.lock.wait_time_ms": "0"}
    with TableLock(TableFiles(LocalStorage(), ""), folder=str(tmp_path / "locks")) as lock:
        assert lock.path == str(tmp_path / "locks" / "lock")
        with pytest.raises(CommitError, match="locks/lock: this thread already holds"):
            table.upsert(rows(("2", "a", 1, 1)), options=options)
    assert table.upsert(rows(("2", "a", 1, 1)), options=options).inserted == 1
    with TableLock(TableFiles(LocalStorage(), str(tmp_path / "t"))):
        assert table.upsert(rows(("3", "a", 1, 1)), options=options).inserted == 1


@pytest.mark.parametrize("moment", [1, 2, 3], ids=["announcing", "before the metadata", "before completion"])
def test_a_lock_that_is_taken_away_costs_another_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Java's provider deletes the file once more when it closes, whoever holds it by then."""
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", ordering_by="ts")
    check, calls = TableLock.check, []

    def deleted_first(self: TableLock) -> None:
        calls.append(1)
        if len(calls) == moment:
            os.unlink(self.path)
        check(self)

    monkeypatch.setattr(TableLock, "check", deleted_first)
    result = table.upsert(rows(("1", "a", 2, 2), ("2", "b", 2, 2)), options=TOGETHER)
    assert (result.updated, result.inserted) == (1, 1)
    assert len(result.notes) == 1
    assert own(table) == [("1", "a", 2, 2), ("2", "b", 2, 2)]
    assert len(list((tmp_path / "city=b").glob("*.parquet"))) == 1
    assert not list((tmp_path / ".hoodie" / ".temp").iterdir())
    calls.clear()
    with pytest.raises(CommitConflictError, match="no longer held"):
        table.upsert(rows(("3", "a", 1, 1)), options={"hoodie.write.num.retries.on.conflict.failures": "0"})
    assert own(table) == [("1", "a", 2, 2), ("2", "b", 2, 2)]


def pending_of_another(path: Path, age_s: float) -> str:
    """What a Java writer without heartbeats leaves in the middle of a write; its instant."""
    instant = "20200101000000000"
    for name in (f"{instant}.commit.requested", f"{instant}.inflight"):
        file = path / ".hoodie" / "timeline" / name
        file.write_bytes(b"")
        os.utime(file, (time.time() - age_s,) * 2)
    return instant


@pytest.mark.parametrize(
    ("policy", "age_s", "undone"),
    [
        (None, 1, False),
        (None, 1000, True),
        ("LAZY", 1, False),
        ("LAZY", 1000, True),
        ("EAGER", 1, True),
        ("NEVER", 1000, False),
    ],
)
def test_when_failed_writes_are_undone(tmp_path: Path, policy: str | None, age_s: float, undone: bool) -> None:
    """``hoodie.clean.failed.writes.policy``: EAGER does not wait for a writer that shows no sign of life."""
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    instant = pending_of_another(tmp_path, age_s)
    options: dict[str, Any] = {} if policy is None else {"hoodie.clean.failed.writes.policy": policy}
    table.upsert(rows(("2", "a", 1, 1)), options=options)
    left = [file.name for file in (tmp_path / ".hoodie" / "timeline").iterdir() if file.name.startswith(instant)]
    assert (not left) == undone
    assert own(table, "id") == [("1",), ("2",)]


def test_an_eager_writer_leaves_a_living_one_alone(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)))
    instant = pending_of_another(tmp_path, 1000)
    heartbeat = tmp_path / ".hoodie" / ".heartbeat" / instant
    heartbeat.parent.mkdir(exist_ok=True)
    heartbeat.write_bytes(b"")
    table.upsert(rows(("2", "a", 1, 1)), options={"hoodie.clean.failed.writes.policy": "EAGER"})
    assert (tmp_path / ".hoodie" / "timeline" / f"{instant}.inflight").exists()
