"""Who a process is, so that others on the same machine can tell whether it is gone."""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["ProcessIdentity", "parse_json_object"]


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read().strip()
    except OSError:
        return ""


@functools.cache
def _machine() -> tuple[str, str]:
    """The host name, and what tells machines, reboots and containers of one host name apart."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return socket.gethostname(), f"{_read_text('/proc/sys/kernel/random/boot_id')} {namespace}".strip()


def _state_of(pid: int) -> tuple[str, bool] | None:
    """The kernel's start time of a process and whether it has ended; ``None`` where the system does not say."""
    text = _read_text(f"/proc/{pid}/stat")
    # The second field is the command in parentheses and may hold spaces and parentheses itself.
    fields = text[text.rfind(")") + 1 :].split()
    if len(fields) < 20:
        return None
    state, threads, started = fields[0], fields[17], fields[19]
    # A zombie has ended; only its parent has not asked for the exit code yet.
    return started, state in ("X", "x") or (state == "Z" and int(threads) <= 1)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process: ``host`` and ``machine`` say where, ``pid`` and ``process_start`` which, reuse of pids included."""

    host: str
    machine: str
    pid: int
    process_start: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        """This process (never cached: a fork is another one)."""
        host, machine = _machine()
        pid = os.getpid()
        state = _state_of(pid)
        return cls(host, machine, pid, state[0] if state else "")

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> ProcessIdentity | None:
        """The identity in a decoded JSON object; ``None`` if the fields are not there."""
        host, machine, pid, start = (fields.get(name) for name in ("host", "machine", "pid", "process_start"))
        if not (isinstance(host, str) and isinstance(machine, str) and isinstance(start, str)):
            return None
        if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
            return None
        return cls(host, machine, pid, start)

    def to_fields(self) -> dict[str, Any]:
        """The fields for a JSON object."""
        return {"host": self.host, "machine": self.machine, "pid": self.pid, "process_start": self.process_start}

    def is_here(self) -> bool:
        """Whether it ran on this machine since the machine's start, where its pid means what it means to us."""
        return (self.host, self.machine) == _machine()

    def is_dead(self) -> bool:
        """Whether it certainly has ended. False when nobody here can know."""
        if not self.is_here():
            return False
        if not _answers(self.pid):
            return True
        state = _state_of(self.pid)
        if state is None:
            return False
        started, ended = state
        return ended or self.process_start not in ("", started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _answers(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # os.kill(pid, 0) would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Decode the JSON object in ``data``; empty if it is none."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
