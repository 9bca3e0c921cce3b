"""Processor time and memory of a process with all that it started, read from ``/proc``; zero where there is none."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["children", "cpu_seconds", "resident_bytes", "watched"]

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Process ids below ``pid``."""
    found: list[int] = []
    for listing in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            for text in listing.read_text().split():
                found += [int(text), *children(int(text))]
    return found


def _stat(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def cpu_seconds(pid: int) -> float:
    """Processor time of the tree so far, ended and awaited children included; to 10 ms but for the calling process."""
    stats = [stat for one in (pid, *children(pid)) if one != os.getpid() and (stat := _stat(one))]
    total = sum(int(value) for stat in stats for value in stat[11:15]) / _TICK
    if pid != os.getpid():
        return total
    own = os.times()
    return total + time.process_time() + own.children_user + own.children_system


def resident_bytes(pid: int) -> int:
    """Memory that the process itself holds now."""
    stat = _stat(pid)
    return int(stat[21]) * _PAGE if stat else 0


@contextlib.contextmanager
def watched(look: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Look again and again in a thread, with pauses, until a look says that it was enough or the block ends."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(seconds) and not look():
            pass

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
