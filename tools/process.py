"""Child processes of ``./dev``: shown or logged, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

__all__ = ["DevError", "begun", "install_signal_handlers", "logged", "say", "shown"]

_PR_SET_CHILD_SUBREAPER = 36
_PIP_STEP = re.compile(r"^\s*(Collecting|Downloading|Building wheel for|Installing collected packages)\b[: ]*(\S+)")


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
    """Copy the output to the log; on a terminal name each pip step, in a pipe a sign of life every half minute."""
    terminal = sys.stdout.isatty()
    last = started
    for line in child.stdout or ():
        sink.write(line)
        step = _PIP_STEP.match(line)
        now = time.monotonic()
        if step and terminal:
            print(f"\r\033[K    {now - started:4.0f} s  {step[1]} {step[2]}", end="", flush=True)
        elif step and now - last > 30:
            say(f"    {now - started:4.0f} s  {step[1]} {step[2]}")
            last = now
    if terminal:
        print("\r\033[K", end="", flush=True)


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
