"""Faults on purpose: a storage that kills its process or fails at the n-th change, and children to do it in.

A *change* is a call that alters the store. Reads are passed on uncounted, so that the number of a change stays the
same from run to run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from lakedex.engine import TaskId, current_task, in_task
from lakedex.io.local import LocalStorage
from lakedex.io.storage import OPERATIONS, FileInfo, first_argument, typed_failures
from lakedex.types import IoCount

_HALVES = ("create", "write", "delete_tree")


@dataclass
class Faults:
    """What happens at which change; counts them and remembers what they were.

    Attributes:
        at: number of the change, the first is 1; 0 never.
        when: ``before`` it takes effect, ``after``, or ``during``: half of it done. Only writes of whole files and
            deletions of folders have a half and are counted then.
        error: raised there; None kills the process as ``kill -9`` does.
        only: name of a call and part of a path, for faults by what is done instead of by number.
        repeat: go on failing from there on.
        hook: called there instead of failing.
    """

    at: int = 0
    when: str = "before"
    error: Exception | None = None
    only: tuple[str, str] | None = None
    repeat: bool = False
    hook: Callable[[], None] | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)
    _hits: int = 0

    def count(self, call: str, path: str) -> bool:
        """Count a change; whether the fault strikes at it."""
        with self._lock:
            self.seen.append((call, path))
            if self.when == "during" and call not in _HALVES:
                return False
            if self.only is not None:
                if self.only[0] != call or self.only[1] not in path:
                    return False
                self._hits += 1
                return self._hits == max(self.at, 1) or (self.repeat and self._hits > self.at)
            self._hits += 1
            return self.at > 0 and (self._hits == self.at or (self.repeat and self._hits > self.at))

    def strike(self) -> None:
        """Kill, fail, or call the hook."""
        if self.hook is not None:
            hook, self.hook = self.hook, None
            hook()
        elif self.error is not None:
            raise self.error
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def __reduce__(self) -> tuple[Any, ...]:
        return Faults, (self.at, self.when, self.error, self.only, self.repeat)


@typed_failures(OPERATIONS, first_argument)
@dataclass
class FaultyStorage:
    """A local disk with :class:`Faults`; what fails is told as the disk tells it."""

    faults: Faults = field(default_factory=Faults)
    inner: LocalStorage = field(default_factory=LocalStorage)

    scheme = "file"
    can_create_exclusively = True

    @property
    def counted(self) -> IoCount:
        return self.inner.counted

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self.inner.read_ranges(path, ranges)

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def is_link(self, path: str) -> bool:
        return self.inner.is_link(path)

    def modified(self, path: str) -> int:
        return self.inner.modified(path)

    def list(self, path: str) -> list[FileInfo]:
        return self.inner.list(path)

    def open_input(self, path: str) -> BinaryIO:
        return self.inner.open_input(path)

    def create(self, path: str, data: bytes) -> None:
        with self._change("create", path, lambda: self._half_written(path, data)):
            self.inner.create(path, data)

    def write(self, path: str, data: bytes) -> None:
        with self._change("write", path, lambda: self._half_written(path, data)):
            self.inner.write(path, data)

    def delete(self, path: str) -> None:
        with self._change("delete", path):
            self.inner.delete(path)

    def delete_tree(self, path: str) -> None:
        with self._change("delete_tree", path, lambda: self._half_deleted(path)):
            self.inner.delete_tree(path)

    def make_dirs(self, path: str) -> None:
        with self._change("make_dirs", path):
            self.inner.make_dirs(path)

    def open_output(self, path: str) -> BinaryIO:
        opened: BinaryIO | None = None
        try:
            with self._change("open_output", path):
                opened = self.inner.open_output(path)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        return _FaultyWriter(opened, self, path)  # type: ignore[return-value]

    def batched(self, root: str) -> FaultyStorage:
        return replace(self, inner=self.inner.batched(root))

    def sync(self) -> None:
        with self._change("sync", ""):
            self.inner.sync()

    @contextlib.contextmanager
    def _change(self, call: str, path: str, half: Callable[[], None] | None = None) -> Iterator[None]:
        struck = self.faults.count(call, path)
        if struck and self.faults.when == "during" and half is not None:
            half()
            self.faults.strike()
        if struck and self.faults.when == "before":
            self.faults.strike()
        try:
            yield
        finally:
            if struck and self.faults.when == "after":
                self.faults.strike()

    @staticmethod
    def _half_written(path: str, data: bytes) -> None:
        """What LocalStorage leaves when it dies before the file gets its name."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temp = os.path.join(os.path.dirname(path), f".lakedex-{os.getpid()}{time.monotonic_ns()}.tmp")
        Path(temp).write_bytes(data[: len(data) // 2])

    @staticmethod
    def _half_deleted(path: str) -> None:
        for found in sorted(Path(path).rglob("*")):
            if found.is_file():
                found.unlink()
                return


class ReadHook:
    """A local disk that calls ``hook`` right before its n-th call of any kind."""

    def __init__(self, at: int, hook: Callable[[], object]) -> None:
        self._inner, self._at, self._hook = LocalStorage(), at, hook
        self._calls = 0
        self.struck = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        self._calls += 1
        if self._calls == self._at:
            self.struck = True
            self._hook()
        return found


@typed_failures({"close": "write"}, lambda writer, _: writer._path)
class _FaultyWriter:
    """An output whose close is a change too; dying before it leaves half a file."""

    def __init__(self, inner: BinaryIO, storage: FaultyStorage, path: str) -> None:
        self._inner, self._storage, self._path = inner, storage, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        if self._inner.closed:
            return
        try:
            with self._storage._change("close_output", self._path):
                self._inner.close()
        except BaseException:
            self._inner.close()
            raise


class TwiceEngine:
    """An engine that runs tasks of one stage again, as Spark may: ``wrong`` says how.

    ``twice``: each task runs as attempts 0 and 1, and one result of each group is handed over twice;
    ``retry``: attempt 0 does all its work and then fails, attempt 1 follows; ``late``: attempt 1 is kept back in
    ``self.late`` and may be run at any time later.
    """

    def __init__(self, inner: Any, stage: type, wrong: str) -> None:
        self._inner, self._stage, self._wrong = inner, stage, wrong
        self.late: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def map(self, frame: Any, fn: Any) -> Any:
        if not isinstance(fn, self._stage):
            return self._inner.map(frame, fn)
        return self._inner.map(frame, _Twice(fn, self._wrong, self.late))


@dataclass
class _Twice:
    fn: Any
    wrong: str
    late: list[Callable[[], None]]

    @property
    def schema(self) -> Any:
        return self.fn.schema

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        kept = list(batches)
        if not kept:
            return
        first = self._attempt(kept, 0)
        if self.wrong == "late":
            self.late.append(lambda: list(self._attempt(kept, 1)))
            yield from first
            return
        again = self._attempt(kept, 1)
        yield from again if self.wrong == "retry" else (*first, *again)

    def _attempt(self, batches: Sequence[Any], number: int) -> list[Any]:
        task = current_task()
        token = in_task.set(TaskId(task.partition, task.stage, number))
        try:
            return list(self.fn(iter(batches)))
        finally:
            in_task.reset(token)


# ------------------------------------------------------------------------------------------------------- children


def fork() -> int:
    """``os.fork``; Arrow's and our own threads survive it, whatever Python 3.12 warns of."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def start_child(action: Callable[[], object]) -> int:
    """Run ``action`` in a forked child; its process id. It ends with 0, or with 1 after an exception."""
    pid = fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return pid


def wait_child(pid: int, timeout_s: float = 60.0) -> int:
    """The child's exit code, negative for a signal; it is killed if it does not end in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child {pid} did not end within {timeout_s} s")
        time.sleep(0.001)


def run_child(action: Callable[[], object]) -> int:
    """Run ``action`` in a child and wait for it."""
    return wait_child(start_child(action))
