"""Child processes of ``./dev``: shown or logged, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

__all__ = ["DevError", "begun", "install_signal_handlers", "logged", "say", "shown"]

_PR_SET_CHILD_SUBREAPER = 36
_STEPS = (
    re.compile(
        r"^\s*(Obtaining|Collecting|Downloading|Preparing|Building wheel for|Installing (?:build|collected))"
        r"\b[: ]*([^\s:,]*)"
    ),
    re.compile(r"^(downloading) \S*/(\S+\.jar)"),
)
"""What pip and Spark's resolver say that they are doing."""


class DevError(Exception):
    """A failure whose text is all that the user needs."""


def say(text: str) -> None:
    """Print one line at once, also into a pipe."""
    print(text, flush=True)


def install_signal_handlers() -> None:
    """Treat a polite kill like Ctrl-C, so that children are ended in both cases."""

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, interrupt)
    _adopt_orphans()


def shown(command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a command on the user's terminal and return its exit code."""
    child = subprocess.Popen([str(part) for part in command], cwd=cwd, env=dict(env))
    try:
        return child.wait()
    except BaseException:
        _end(child)
        raise


@contextlib.contextmanager
def begun(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the block, its output in ``log``; it has ended when the block has."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        yield child
        child.wait()
    except BaseException:
        _end(child)
        raise


def logged(title: str, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
    """Run a long command with its output in ``log``; show what it is doing, and the tail of the log if it fails."""
    say(f"  {title} …")
    started = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8", buffering=1) as sink:
        sink.write(f"$ {shlex.join(str(part) for part in command)}\n")
        child = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            _follow(child, sink, started)
            code = child.wait()
        except BaseException:
            _end(child)
            raise
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        raise DevError("\n".join([f"{title}: failed (exit code {code}). The end of {log}:", *tail]))
    say(f"  {title}: done in {time.monotonic() - started:.0f} s")


def _follow(child: subprocess.Popen[str], sink: IO[str], started: float) -> None:
    """Copy the output to the log; show the time and the last step, every second on a terminal, else every eight."""
    terminal = sys.stdout.isatty()
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(child.stdout or (), lines), daemon=True).start()
    step, last = "", started
    line: str | None = ""
    while line is not None:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            line = ""
        sink.write(line or "")
        found = next((match for pattern in _STEPS if (match := pattern.match(line or ""))), None)
        step = f"{found[1]} {found[2]}" if found else step
        now = time.monotonic()
        if terminal and now - last >= 1:
            print(f"\r\033[K    {now - started:4.0f} s  {step}", end="", flush=True)
            last = now
        elif not terminal and now - last >= 8:
            say(f"    {now - started:4.0f} s  {step}")
            last = now
    if terminal:
        print("\r\033[K", end="", flush=True)


def _read_lines(source: Iterable[str], lines: queue.SimpleQueue[str | None]) -> None:
    """Pass lines on as they come, then ``None``: the other side can wait for them with a timeout."""
    for line in source:
        lines.put(line)
    lines.put(None)


def _end(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a child with all its descendants: PySpark's JVM ignores Ctrl-C and would outlive a killed parent."""
    _signal_all({child.pid, *_descendants(os.getpid())}, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        child.wait(timeout=5)
    _signal_all(_descendants(os.getpid()), signal.SIGTERM)
    time.sleep(1)
    _signal_all({child.pid, *_descendants(os.getpid())}, signal.SIGKILL)
    child.wait()


def _adopt_orphans() -> None:
    """Have grandchildren whose parent ended become our children (Linux), so that none is out of sight."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants(pid: int) -> list[int]:
    """Process ids below ``pid`` (Linux; elsewhere none)."""
    found: list[int] = []
    for listing in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            for text in listing.read_text().split():
                found += [int(text), *_descendants(int(text))]
    return found


def _signal_all(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signum)
