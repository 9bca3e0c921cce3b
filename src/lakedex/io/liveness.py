"""Detect whether a writer is alive, by its process on this machine and by its heartbeat file.

Hudi (``HoodieHeartbeatClient``) writes empty files ``.hoodie/.heartbeat/<instant>`` and checks only their age. lakedex
writes a JSON object that names host and process, so a writer that died on this machine expires at once.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
import uuid
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from lakedex.io.storage import TableFiles

__all__ = ["Heartbeat", "ProcessIdentity", "delete_heartbeat", "is_expired", "is_ours", "parse_json_object"]


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read().strip()
    except OSError:
        return ""


@functools.cache
def _machine() -> tuple[str, str]:
    """Host name, and an id that distinguishes machines, reboots and containers with the same host name."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return socket.gethostname(), f"{_read_text('/proc/sys/kernel/random/boot_id')} {namespace}".strip()


def _state_of(pid: int) -> tuple[str, bool] | None:
    """The kernel's start time of a process and whether it has ended; None if the system does not report them."""
    text = _read_text(f"/proc/{pid}/stat")
    # The second field is the command in parentheses and may contain spaces and parentheses.
    fields = text[text.rfind(")") + 1 :].split()
    if len(fields) < 20:
        return None
    state, threads, started = fields[0], fields[17], fields[19]
    # A zombie has ended; its parent has not read the exit code.
    return started, state in ("X", "x") or (state == "Z" and int(threads) <= 1)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, identified across machines, containers and reused process ids."""

    host: str
    machine: str
    pid: int
    process_start: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        """Identity of this process; never cached, as a fork has another one."""
        host, machine = _machine()
        pid = os.getpid()
        state = _state_of(pid)
        return cls(host, machine, pid, state[0] if state else "")

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> ProcessIdentity | None:
        """Identity from a decoded JSON object; None if fields are missing."""
        host, machine, pid, start = (fields.get(name) for name in ("host", "machine", "pid", "process_start"))
        if not (isinstance(host, str) and isinstance(machine, str) and isinstance(start, str)):
            return None
        if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
            return None
        return cls(host, machine, pid, start)

    def to_fields(self) -> dict[str, Any]:
        """Fields for a JSON object."""
        return {"host": self.host, "machine": self.machine, "pid": self.pid, "process_start": self.process_start}

    def is_here(self) -> bool:
        """Whether it started on this machine since the last boot, so that its process id is comparable."""
        return (self.host, self.machine) == _machine()

    def is_dead(self) -> bool:
        """Whether it has certainly ended; False if that cannot be determined."""
        if not self.is_here():
            return False
        if not _answers(self.pid):
            return True
        state = _state_of(self.pid)
        if state is None:
            return False
        started, ended = state
        return ended or self.process_start not in ("", started)

    def has_left(self, token: object, own: Container[object]) -> bool:
        """Whether nobody will remove a file of it: it is dead, or this one, which has the token no more in ``own``."""
        return self.is_dead() or (isinstance(token, str) and token not in own and self == ProcessIdentity.current())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _answers(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # os.kill(pid, 0) would end the process on Windows
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Decode the JSON object in ``data``; empty if it is not a JSON object."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


INTERVAL_MS = 60_000
"""``hoodie.client.heartbeat.interval_in_ms``."""


MISSES = 2
"""``hoodie.client.heartbeat.tolerable.misses``."""


_FIELD = "token"


_BEATING: set[str] = set()
"""Tokens of the heartbeats that this process refreshes; another file of its own is left over from a failure."""


def _path(files: TableFiles, instant: str) -> str:
    return files.path(".hoodie/.heartbeat", instant)


class Heartbeat:
    """The heartbeat of one write; a daemon thread refreshes it until :meth:`stop`."""

    def __init__(self, files: TableFiles, instant: str, interval_ms: int = INTERVAL_MS) -> None:
        self._storage = files.storage
        self._interval_s = interval_ms / 1000
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._token = uuid.uuid4().hex
        self.path = _path(files, instant)
        self.last_error: Exception | None = None

    def __enter__(self) -> Heartbeat:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Write the file and refresh it periodically; does nothing if already started."""
        if self._thread is not None:
            return
        self._stopping.clear()
        _BEATING.add(self._token)
        try:
            self._beat()
        except BaseException:
            _BEATING.discard(self._token)
            raise
        self._thread = threading.Thread(target=self._run, name=f"lakedex-heartbeat {self.path}", daemon=True)
        self._thread.start()

    def stop(self, *, keeps_file: bool = False) -> None:
        """Stop refreshing and remove the file; does nothing if already stopped.

        A file that is kept says that nobody works on the instant any more: this process sees that at once, others when
        it has ended or the file is too old.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        thread.join(timeout=30)
        _BEATING.discard(self._token)
        if not keeps_file:
            self._storage.delete(self.path)

    def _beat(self) -> None:
        fields = {**ProcessIdentity.current().to_fields(), _FIELD: self._token}
        self._storage.write(self.path, json.dumps(fields).encode())

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._beat()
                self.last_error = None
            except Exception as error:
                # One missed beat is tolerated; after many, the commit reports that it was rolled back.
                self.last_error = error


def delete_heartbeat(files: TableFiles, instant: str) -> None:
    """Remove the heartbeat of a completed or rolled back write."""
    files.storage.delete(_path(files, instant))


def is_ours(files: TableFiles, instant: str) -> bool:
    """Whether lakedex writes a pending instant; Java's heartbeats are empty, if there are any."""
    try:
        content = files.storage.read(_path(files, instant))
    except FileNotFoundError:
        return False
    return ProcessIdentity.from_fields(parse_json_object(content)) is not None


def is_expired(
    files: TableFiles,
    instant: str,
    now_ms: int,
    *,
    started_ms: int | None = None,
    interval_ms: int = INTERVAL_MS,
    misses: int = MISSES,
) -> bool:
    """Whether the writer of a pending instant counts as dead.

    Args:
        files: the table's files.
        instant: Requested time of the pending instant.
        now_ms: Current time, epoch milliseconds.
        started_ms: Time of the request. A write without heartbeat file expires once it is older than the tolerated
            silence; None applies Hudi's rule, by which it is always expired.
        interval_ms: Time between two beats.
        misses: Number of missed beats that are tolerated.
    """
    path = _path(files, instant)
    silence = interval_ms * misses
    try:
        beat = files.storage.modified(path)
        fields = parse_json_object(files.storage.read(path))
    except FileNotFoundError:
        return started_ms is None or now_ms - started_ms > silence
    owner = ProcessIdentity.from_fields(fields)
    if owner is not None and owner.has_left(fields.get(_FIELD), _BEATING):
        return True
    return now_ms - beat > silence
