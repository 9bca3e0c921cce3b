"""The processes of the peers, seen from the harness: started once, asked in turn, ended with all that they started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.peers import SESSIONS
from benchmarks.peers.protocol import Settings

__all__ = ["PeerError", "Sessions"]

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 600.0
"""Jars may have to be fetched."""


class PeerError(RuntimeError):
    """A peer failed, or gave no answer in time; what it printed is in its log."""


class _Process:
    """One worker."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.log = Path(settings.scratch) / f"{name}.log"
        scratch = Path(settings.scratch) / name
        scratch.mkdir(parents=True, exist_ok=True)
        own = replace(settings, scratch=str(scratch))
        with self.log.open("wb") as sink:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", json.dumps(asdict(own))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                cwd=ROOT,
                env={**os.environ, "TZ": "UTC"},
                text=True,
                start_new_session=True,
            )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()
        self._number = 0

    def _pump(self) -> None:
        for line in self._child.stdout or ():
            self._answers.put(line)
        self._answers.put(None)

    def ask(self, operation: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self._number += 1
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.write(json.dumps({"id": self._number, "op": operation, **arguments}) + "\n")
                self._child.stdin.flush()
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            self.end(patience=0)
            raise PeerError(f"no answer within {timeout:.0f} s") from None
        if line is None:
            raise PeerError(f"its process ended; see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            with self.log.open("a") as sink:
                sink.write(answer["trace"])
            raise PeerError(answer["error"])
        return answer

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._child.poll() is None

    def end(self, patience: float = 20) -> None:
        """End it and its group."""
        if self.is_alive and patience:
            with contextlib.suppress(PeerError, OSError):
                self.ask("stop", patience)
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._reader.join(5)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Sessions:
    """All peers' processes; a context manager."""

    def __init__(self, settings: Settings, sharing: Sequence[Sequence[str]] = SESSIONS) -> None:
        self._settings = settings
        self._home = {name: group[0] for group in sharing for name in group}
        self._processes: dict[str, _Process] = {}
        self._started: dict[str, _Process] = {}

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for process in self._processes.values():
            process.end()

    def _process(self, peer: str) -> _Process:
        home = self._home.get(peer, peer)
        process = self._processes.get(home)
        if process is None or not process.is_alive:
            process = self._processes[home] = _Process(home, self._settings)
        return process

    def start(self, peer: str) -> dict[str, Any]:
        """Start a peer; one whose process ended is started anew."""
        process = self._process(peer)
        answer = process.ask("start", START_SECONDS, peer=peer)
        self._started[peer] = process
        return answer

    def ask(self, peer: str, operation: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        """Ask a peer.

        Raises:
            PeerError: it failed, or took too long and was ended.
        """
        if peer not in self._started or not self._started[peer].is_alive:
            self.start(peer)
        return self._started[peer].ask(operation, timeout, peer=peer, **arguments)
