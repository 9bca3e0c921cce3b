"""Hudi's storage-based lock: leases in an object that is replaced on condition, on a store in memory."""

from __future__ import annotations

import errno
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lakedex.errors import (
    CommitConflictError,
    CommitError,
    CorruptFileError,
    LockTimeoutError,
    UnsupportedFeatureError,
)
from lakedex.io.fsspec import FsspecStorage
from lakedex.io.local import LocalStorage
from lakedex.io.locations import open_storage
from lakedex.io.locks import CLOCK_DRIFT_MS, StorageLock, table_lock
from lakedex.io.storage import TableFiles, VersionChangedError
from lakedex.options import LockOptions
from lakedex.testing import CountingStorage, Faults, FaultyStorage


class Clock:
    """A writer's own clock."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def base() -> Iterator[str]:
    files = open_storage(f"memory://{uuid.uuid4().hex}/t")
    yield files.base_path
    files.storage.delete_tree(files.base_path)


def lock_of(base: str, clock: Clock | None = None, **options: Any) -> StorageLock:
    files = open_storage(base)
    options = {"timeout_s": 0.0, "poll_s": 0.001, "renew_s": 1000.0, "validity_s": 10.0, **options}
    return StorageLock(files, now_ms=clock or Clock(), **options)


def renewals(lock: StorageLock) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"lakedex-lock {lock.path}"]


def content(base: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(open_storage(base).storage.read(f"{base}/.hoodie/.locks/table_lock.json"))
    return fields


def test_what_hudi_reads(base: str) -> None:
    """``StorageLockData``: three fields, the owner a UUID; the file stays when the lock is given back."""
    with lock_of(base, Clock(5_000)) as lock:
        lock.check()
        found = content(base)
        assert found.keys() == {"expired", "validUntil", "owner"}
        assert (found["expired"], found["validUntil"]) == (False, 15_000)
        uuid.UUID(found["owner"])
        with pytest.raises(CommitError, match="not re-entrant"):
            lock.acquire()
    assert content(base) == {**found, "expired": True}
    with lock:  # Again, and over another's that is given back.
        assert content(base)["expired"] is False
    with lock_of(base):
        assert content(base)["owner"] != found["owner"]


def test_a_held_lock_is_waited_for(base: str) -> None:
    with lock_of(base), pytest.raises(LockTimeoutError, match="held by owner") as caught:
        lock_of(base, timeout_s=0.02).acquire()
    assert caught.value.holder


@pytest.mark.parametrize(
    ("until", "says"),
    [
        (32_503_680_000_697, r"ends at 3000-01-01 00:00:01 UTC\. If .* died.*retry after 3000-01-01 00:00:02 UTC"),
        (10**20, "ends at 100000000000000000000 ms"),
    ],
)
@pytest.mark.parametrize(
    ("lock", "option"),
    [
        (LockOptions(timeout=0.0, poll=0.001), r"wait longer with hoodie\.write\.lock\.wait_time_ms$"),
        (LockOptions(retries=0), r"wait longer with hoodie\.write\.lock\.client\.num_retries$"),
    ],
)
def test_the_error_says_until_when_to_wait(base: str, until: int, says: str, lock: LockOptions, option: str) -> None:
    """A holder that died renews nothing: its lease ends at a known time, plus the drift that clocks may have."""
    lease = {"expired": False, "validUntil": until, "owner": "dead"}
    path = f"{base}/.hoodie/.locks/table_lock.json"
    open_storage(base).storage.write(path, json.dumps(lease).encode())
    waiting = table_lock(open_storage(base), replace(lock, provider="StorageBasedLockProvider"))
    with pytest.raises(LockTimeoutError, match=f"{says}.*{option}") as caught:
        waiting.acquire()
    assert caught.value.__dict__["holder"].startswith("owner dead, whose lease ends at ")


def test_a_lease_of_a_dead_writer_runs_out(base: str) -> None:
    """For others only after the drift that clocks may have."""
    clock = Clock()
    dead = lock_of(base, clock)
    dead.acquire()
    clock.now += 10_000 + CLOCK_DRIFT_MS
    with pytest.raises(LockTimeoutError):
        lock_of(base, clock).acquire()
    clock.now += 1
    with lock_of(base, clock) as lock:
        lock.check()
        with pytest.raises(CommitConflictError, match="no longer held") as caught:
            dead.check()
        assert caught.value.retryable
        dead.release()  # Not ours to give back.
        lock.check()
    assert content(base)["expired"] is True


def test_a_lease_ends_for_its_owner_before_it_ends_for_others(base: str) -> None:
    clock = Clock()
    lock = lock_of(base, clock)
    lock.acquire()
    clock.now += 10_000 - CLOCK_DRIFT_MS - 1
    assert lock.held
    clock.now += 1
    assert not lock.held
    with pytest.raises(CommitConflictError):
        lock.check()
    with pytest.raises(LockTimeoutError):
        lock_of(base, clock).acquire()
    lock.release()
    assert content(base)["expired"] is True


def test_a_step_begins_with_a_lease_that_outlasts_it(base: str) -> None:
    """Half of a short lease must be left; if less is, it is renewed, even where the clock stands still."""
    clock = Clock()
    with lock_of(base, clock) as lock:
        taken = content(base)
        clock.now += 5_000
        lock.check()
        assert content(base) == taken
        clock.now += 1
        lock.check()
        assert content(base)["validUntil"] == clock.now + 10_000
        theirs = b'{"expired":false,"validUntil":99000000,"owner":"other"}'
        open_storage(base).storage.write(lock.path, theirs)
        clock.now += 5_001
        with pytest.raises(CommitConflictError):
            lock.check()
    assert content(base)["owner"] == "other"


def test_the_requests_of_a_lock(base: str) -> None:
    """One takes a lock that this process released last, one releases it; anybody else looks first."""
    counting = CountingStorage(open_storage(base).storage)
    files = TableFiles(counting, base)
    for wanted in (["read_version", "put_version", "put_version"], ["put_version", "put_version"]):
        with StorageLock(files, now_ms=Clock()) as lock:
            lock.check()
        assert [call for call, _ in counting.calls] == wanted
        counting.calls.clear()
    with lock_of(base):
        pass
    with StorageLock(files, now_ms=Clock()):
        pass
    assert [call for call, _ in counting.calls] == ["put_version", "put_version"], "the process knows its own"


@pytest.mark.parametrize("at", [1, 2])
def test_a_lease_that_could_not_be_ended_does_not_block_its_process(base: str, at: int) -> None:
    """Neither one that was taken by a request whose answer was lost."""
    faulty = FaultyStorage(Faults(at, "after", OSError(errno.EIO, "the store is down")), open_storage(base).storage)
    with pytest.raises(OSError, match="down"), StorageLock(TableFiles(faulty, base), now_ms=Clock()):
        pass
    if at == 2:
        open_storage(base).storage.write(
            f"{base}/.hoodie/.locks/table_lock.json",
            json.dumps({**content(base), "expired": False}).encode(),
        )
    assert content(base)["expired"] is False
    with lock_of(base) as lock:
        lock.check()


def test_it_is_renewed_while_it_is_held(base: str) -> None:
    """Each renewal moves the end by a millisecond at least, so there may be several until somebody looks."""
    clock = Clock()
    with lock_of(base, clock, renew_s=0.002) as lock:
        for _ in range(3):
            clock.now += 8_000
            until = time.monotonic() + 20
            while content(base)["validUntil"] < clock.now + 10_000 and time.monotonic() < until:
                threading.Event().wait(0.002)
            lock.check()
            assert content(base)["validUntil"] >= clock.now + 10_000
    assert renewals(lock) == []


def test_a_renewal_that_fails_is_tried_again_until_the_lease_ends(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    lock = lock_of(base, clock, renew_s=0.002)
    lock.acquire()
    failed = threading.Event()

    def down(*_: object) -> str:
        failed.set()
        raise OSError(errno.EIO, "the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(FsspecStorage, "put_version", down)
        assert failed.wait(20)
        lock.check()
        clock.now += 10_000
        with pytest.raises(CommitConflictError):
            lock.check()
    lock.release()


def test_another_writer_took_it_and_the_renewal_gives_up(base: str) -> None:
    lock = lock_of(base, renew_s=0.002)
    lock.acquire()
    files = open_storage(base)
    theirs = b'{"expired":false,"validUntil":99000000,"owner":"other"}'
    files.storage.write(lock.path, theirs)
    for renewal in renewals(lock):
        renewal.join(20)
        assert not renewal.is_alive()
    with pytest.raises(CommitConflictError):
        lock.check()
    lock.release()
    assert files.storage.read(lock.path) == theirs


def test_an_answer_that_was_lost(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put took effect, its answer did not come: the lock is ours all the same."""
    put = FsspecStorage.put_version

    def lossy(self: FsspecStorage, path: str, data: bytes, version: str | None) -> str:
        put(self, path, data, version)
        raise VersionChangedError(f"{path}: a retry met its own object")

    lock = lock_of(base)
    with monkeypatch.context() as patch:
        patch.setattr(FsspecStorage, "put_version", lossy)
        with pytest.raises(LockTimeoutError):
            lock.acquire()
    with lock:  # It finds its own owner there.
        lock.check()


def test_only_one_of_many_gets_in(base: str) -> None:
    inside, seen = [], []

    def work() -> None:
        for _ in range(5):
            with lock_of(base, timeout_s=60.0, poll_s=0.001):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 20


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"expired":null,"validUntil":1,"owner":"x"}', b"[]"])
def test_damage_is_named(base: str, damage: bytes) -> None:
    lock = lock_of(base)
    open_storage(base).storage.write(lock.path, damage)
    with pytest.raises(CorruptFileError, match=r"table_lock\.json"):
        lock.acquire()


def test_a_store_without_conditional_writes_is_refused(tmp_path: Any) -> None:
    for store in (LocalStorage(), FsspecStorage(None, "ftp")):
        with pytest.raises(UnsupportedFeatureError, match="conditional writes"):
            StorageLock(TableFiles(store, str(tmp_path)))
