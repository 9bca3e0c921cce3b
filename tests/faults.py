"""A storage that calls a hook, an engine that runs tasks again, and children that may be killed."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakedex.engine import TaskId, current_task, in_task
from lakedex.io.local import LocalStorage


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


class TwiceEngine:
    """An engine that runs tasks of one stage again, as Spark may: ``wrong`` says how.

    ``twice``: each task runs as attempts 0 and 1, and one result of each group is handed over twice;
    ``retry``: attempt 0 does all its work and then fails, attempt 1 follows; ``late``: attempt 1 is kept back in
    ``self.late`` and may be run at any time later.
    """

    repeats_tasks = True

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
