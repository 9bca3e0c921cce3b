import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TextIO

import pytest

from faults import ReadHook, start_child, wait_child
from lakedex.errors import CommitError, LockTimeoutError, UnsupportedFeatureError
from lakedex.io.fsspec import FsspecStorage
from lakedex.io.liveness import ProcessIdentity
from lakedex.io.local import LocalStorage
from lakedex.io.locations import open_storage
from lakedex.io.locks import TableLock
from lakedex.io.storage import TableFiles

STORE = LocalStorage()


def lock_of(base: Path, **options: float) -> TableLock:
    return TableLock(TableFiles(STORE, str(base)), **{"timeout_s": 20.0, "poll_s": 0.01, **options})


def lock_file(base: Path) -> Path:
    return base / ".hoodie" / "lock"


@dataclass
class Child:
    """A process of its own, and what it says."""

    pid: int
    said: TextIO

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def start(action: Callable[[Path, int], object], base: Path) -> Child:
    reading, said = os.pipe()
    pid = start_child(partial(action, base, said))
    os.close(said)
    return Child(pid, os.fdopen(reading))


def hold(base: Path, said: int) -> None:
    lock_of(base).acquire()
    os.write(said, b"held\n")
    signal.pause()


def count_up(base: Path, said: int) -> None:
    for _ in range(40):
        with lock_of(base, timeout_s=60, poll_s=0.005):
            value = int((base / "counter").read_text())
            os.sched_yield()
            (base / "counter").write_text(str(value + 1))


def one_turn(base: Path, said: int) -> None:
    lock = lock_of(base, timeout_s=60, poll_s=0.005)
    os.write(said, b"ready\n")
    while not (base / "go").exists():
        os.sched_yield()
    with lock:
        handle = os.open(base / "inside", os.O_CREAT | os.O_EXCL)
        os.close(handle)
        os.sched_yield()
        os.unlink(base / "inside")


def holder_of(base: Path) -> Child:
    holder = start(hold, base)
    assert holder.said.readline() == "held\n"
    return holder


def kill_holder(base: Path) -> Child:
    """A process that took the lock and was killed; not waited for, so it stays as a zombie."""
    holder = holder_of(base)
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    return holder


def in_a_thread(acquire: Callable[[], None]) -> None:
    """As another writer would; it may find that it comes too late."""

    def try_it() -> None:
        with contextlib.suppress(LockTimeoutError):
            acquire()

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()


def reap(process: Child) -> int:
    process.said.close()
    return wait_child(process.pid)


def test_lock_file_comes_and_goes(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    with lock:
        assert lock.held
        fields = json.loads(lock_file(tmp_path).read_bytes())
        assert fields["pid"] == os.getpid() and fields["host"] and fields["process_start"]
        lock.check()
    assert not lock.held and not lock_file(tmp_path).exists()
    lock.release()
    with lock:
        pass


def test_release_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock_of(tmp_path):
        raise ZeroDivisionError
    assert not lock_file(tmp_path).exists()


def test_a_killed_holder_does_not_block(tmp_path: Path) -> None:
    holder = kill_holder(tmp_path)
    with lock_of(tmp_path, timeout_s=0):
        pass
    reap(holder)
    assert os.listdir(tmp_path / ".hoodie") == []


def test_a_reused_pid_is_not_the_holder(tmp_path: Path) -> None:
    me = ProcessIdentity.current()
    lock_file(tmp_path).parent.mkdir()
    fields = {**me.to_fields(), "process_start": "1", "token": "abc", "started": "then"}
    lock_file(tmp_path).write_text(json.dumps(fields))
    with lock_of(tmp_path, timeout_s=0):
        pass


def test_two_processes_lose_no_update(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    workers = [start(count_up, tmp_path) for _ in range(2)]
    assert [reap(worker) for worker in workers] == [0, 0]
    assert (tmp_path / "counter").read_text() == "80"


def test_many_waiters_break_a_dead_lock_one_at_a_time(tmp_path: Path) -> None:
    holder = kill_holder(tmp_path)
    waiters = [start(one_turn, tmp_path) for _ in range(6)]
    for waiter in waiters:
        assert waiter.said.readline() == "ready\n"
    (tmp_path / "go").touch()
    assert [reap(waiter) for waiter in waiters] == [0] * 6
    reap(holder)
    assert os.listdir(tmp_path / ".hoodie") == []


def test_a_dead_breaker_passes_the_right_on(tmp_path: Path) -> None:
    holder = kill_holder(tmp_path)
    dead = json.loads(lock_file(tmp_path).read_bytes())
    # Another waiter died, too, right after it got the right to break the lock.
    breaker = Path(f"{lock_file(tmp_path)}.break.{dead['token']}")
    breaker.write_text(json.dumps({**dead, "token": "0b1"}))
    with lock_of(tmp_path, timeout_s=0):
        pass
    reap(holder)
    assert os.listdir(tmp_path / ".hoodie") == []


@pytest.mark.parametrize("is_ours", [False, True])
def test_a_live_breaker_is_left_alone_unless_it_is_this_process(tmp_path: Path, is_ours: bool) -> None:
    """An earlier attempt of this process that could not delete the lock would block it for as long as it lives."""
    holder = kill_holder(tmp_path)
    dead = json.loads(lock_file(tmp_path).read_bytes())
    alive = {**ProcessIdentity.current().to_fields(), "token": "0b1", "started": "now"}
    if not is_ours:
        alive |= {"pid": os.getppid(), "process_start": ""}
    Path(f"{lock_file(tmp_path)}.break.{dead['token']}").write_text(json.dumps(alive))
    if is_ours:
        with lock_of(tmp_path, timeout_s=0.05):
            assert os.listdir(tmp_path / ".hoodie") == ["lock"]
    else:
        with pytest.raises(LockTimeoutError):
            lock_of(tmp_path, timeout_s=0.05).acquire()
        assert json.loads(lock_file(tmp_path).read_bytes()) == dead
    reap(holder)


def test_a_late_breaker_leaves_the_next_lock(tmp_path: Path) -> None:
    """Whenever another writer comes while one breaks the lock of a dead one, exactly one of them holds it then."""
    holder = kill_holder(tmp_path)
    dead, winners = lock_file(tmp_path).read_bytes(), []
    for at in count(1):
        for left in (tmp_path / ".hoodie").iterdir():
            left.unlink()
        lock_file(tmp_path).write_bytes(dead)
        first = lock_of(tmp_path, timeout_s=0.03)
        hook = ReadHook(at, partial(in_a_thread, first.acquire))
        late = TableLock(TableFiles(hook, str(tmp_path)), timeout_s=0.03, poll_s=0.01)  # type: ignore[arg-type]
        with contextlib.suppress(LockTimeoutError):
            late.acquire()
        if not hook.struck:
            break
        assert first.held != late.held, at
        winner = first if first.held else late
        winner.check()
        winner.release()
        winners.append(winner is first)
    assert True in winners
    late.release()
    reap(holder)


def test_timeout_names_the_holder(tmp_path: Path) -> None:
    holder = holder_of(tmp_path)
    with pytest.raises(LockTimeoutError, match=f"process {holder.pid} on ") as caught:
        lock_of(tmp_path, timeout_s=0.05).acquire()
    assert str(holder.pid) in caught.value.holder
    assert isinstance(caught.value, TimeoutError)
    holder.kill()
    reap(holder)


def test_re_entrancy_is_refused(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    with lock:
        with pytest.raises(CommitError, match="re-entrant"):
            lock.acquire()
        with pytest.raises(CommitError, match="re-entrant"):
            lock_of(tmp_path).acquire()
        lock.check()


def test_another_thread_waits(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with lock_of(tmp_path):
            order.append("second")

    with lock_of(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"host": 1}', b"[" * 5000])
def test_a_foreign_lock_is_kept_unless_it_may_expire(tmp_path: Path, content: bytes) -> None:
    path = lock_file(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    with pytest.raises(LockTimeoutError, match="an unnamed writer"):
        lock_of(tmp_path, timeout_s=0).acquire()
    with pytest.raises(LockTimeoutError):
        lock_of(tmp_path, timeout_s=0, expire_minutes=61).acquire()
    assert path.read_bytes() == content
    with lock_of(tmp_path, timeout_s=0, expire_minutes=59):
        pass
    assert os.listdir(path.parent) == []


def test_a_lock_of_another_machine_is_kept_unless_it_may_expire(tmp_path: Path) -> None:
    path = lock_file(tmp_path)
    path.parent.mkdir()
    path.write_text(
        json.dumps(
            {"host": "elsewhere", "machine": "m", "pid": 1, "process_start": "1", "token": "abc", "started": "noon"}
        )
    )
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    with pytest.raises(LockTimeoutError, match="process 1 on elsewhere, since noon"):
        lock_of(tmp_path, timeout_s=0).acquire()
    with lock_of(tmp_path, timeout_s=0, expire_minutes=1):
        pass


def test_a_living_holder_here_does_not_expire(tmp_path: Path) -> None:
    holder = holder_of(tmp_path)
    os.utime(lock_file(tmp_path), (0, 0))
    with pytest.raises(LockTimeoutError):
        lock_of(tmp_path, timeout_s=0, expire_minutes=1).acquire()
    holder.kill()
    reap(holder)


def test_check_notices_a_lock_that_was_taken_away(tmp_path: Path) -> None:
    with lock_of(tmp_path) as lock:
        lock_file(tmp_path).unlink()
        with pytest.raises(CommitError, match="no longer held"):
            lock.check()
        lock_file(tmp_path).write_bytes(b"")  # Hudi took it
    assert lock_file(tmp_path).exists()


def test_memory_store() -> None:
    files = open_storage("memory://locks/t")
    with TableLock(files) as lock:
        lock.check()
    assert files.storage.list(files.path(".hoodie")) == []


def test_a_store_without_put_if_absent_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'ftp'"):
        TableLock(TableFiles(FsspecStorage(None, "ftp"), "ftp://x")).acquire()
