"""Run functions in threads, and stream their results in order within a bound."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import Generic, TypeVar

from lakedex.engine import TaskId, in_task

__all__ = ["overlapped", "run_threads", "stream_ordered"]


T = TypeVar("T")


R = TypeVar("R")


def stream_ordered(fn: Callable[[T], Iterator[R]], items: Sequence[T], threads: int) -> Generator[R, None, None]:
    """Stream the results of ``fn`` over each item, in the order of the items.

    At most ``2 * threads`` results are buffered. A consumer that stops early stops the threads.

    Raises:
        Exception: The exception of ``fn``, after the results before it.
    """
    if threads <= 1 or len(items) <= 1:
        for item in items:
            yield from fn(item)
        return
    work = _Work(fn, items, 2 * threads)
    pool = [
        threading.Thread(target=copy_context().run, args=(work.run,), name=f"lakedex-scan-{number}", daemon=True)
        for number in range(min(threads, len(items)))
    ]
    for thread in pool:
        thread.start()
    try:
        yield from work.results()
    finally:
        work.stop()
        for thread in pool:
            thread.join()


class _Work(Generic[T, R]):
    """Items that threads take in order. ``_turn`` guards all mutable state."""

    def __init__(self, fn: Callable[[T], Iterator[R]], items: Sequence[T], window: int) -> None:
        self._fn, self._items, self._window = fn, items, window
        self._turn = threading.Condition()
        self._next = 0
        self._current = 0
        self._stopped = False
        self._waiting: dict[int, deque[R]] = {}
        self._ended: dict[int, BaseException | None] = {}

    def run(self) -> None:
        """Loop of each thread over items, at most one result per item ahead of the consumer."""
        while (index := self._take()) is not None:
            error: BaseException | None = None
            try:
                for result in self._fn(self._items[index]):
                    if not self._put(index, result):
                        return
            except BaseException as caught:
                error = caught
            with self._turn:
                self._ended[index] = error
                self._turn.notify_all()

    def _take(self) -> int | None:
        with self._turn:
            self._turn.wait_for(lambda: self._stopped or self._next < self._current + self._window)
            if self._stopped or self._next >= len(self._items):
                return None
            index, self._next = self._next, self._next + 1
            self._waiting[index] = deque()
            return index

    def _put(self, index: int, result: R) -> bool:
        with self._turn:
            self._turn.wait_for(lambda: self._stopped or not self._waiting[index])
            if self._stopped:
                return False
            self._waiting[index].append(result)
            self._turn.notify_all()
            return True

    def results(self) -> Iterator[R]:
        """All results, item by item."""
        for index in range(len(self._items)):
            with self._turn:
                self._current = index
                self._turn.notify_all()
            while True:
                with self._turn:
                    self._turn.wait_for(lambda index=index: self._waiting.get(index) or index in self._ended)  # type: ignore[misc]
                    if not self._waiting[index]:
                        error = self._ended.pop(index)
                        del self._waiting[index]
                        break
                    result = self._waiting[index].popleft()
                    self._turn.notify_all()
                yield result
            if error is not None:
                raise error

    def stop(self) -> None:
        """Stop the threads."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()


_stages = count()


# ------------------------------------------------------------------------------------------------------ stages


def run_threads(
    fn: Callable[[T], R], items: Sequence[T], threads: int, first_rows: Sequence[int] | None = None
) -> list[R]:
    """Apply ``fn`` to each item in threads; results are in order. Each call is a task, whose first row may be known."""
    stage = next(_stages)

    def call(index: int) -> R:
        token = in_task.set(TaskId(index, stage, 0, None if first_rows is None else first_rows[index]))
        try:
            return fn(items[index])
        finally:
            in_task.reset(token)

    if len(items) <= 1 or threads <= 1:
        return [call(index) for index in range(len(items))]
    with ThreadPoolExecutor(max_workers=min(threads, len(items)), thread_name_prefix="lakedex") as pool:
        begun = [_begun(pool, call, index) for index in range(len(items))]
        try:
            return [answer() for answer in begun]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def overlapped(calls: Sequence[Callable[[], R]], at_once: bool) -> list[R]:
    """The results of calls that do not depend on each other, made ``at_once`` where they wait for a store."""
    return run_threads(lambda call: call(), calls, len(calls) if at_once else 1)


def _begun(pool: ThreadPoolExecutor, call: Callable[[int], R], index: int) -> Callable[[], R]:
    try:
        return pool.submit(copy_context().run, call, index).result
    except RuntimeError as error:
        if "cannot schedule" not in str(error):
            raise
        # The main thread has ended and Python starts no more threads; the caller continues alone.
        return partial(call, index)
