"""Heartbeats: a file per write in progress that its writer touches, so that others know it lives.

Hudi (HoodieHeartbeatClient) writes empty files ``.hoodie/.heartbeat/<instant>`` and looks at their age only. Ours
hold a JSON object that names host and process: a writer that died on this machine counts as expired at once.
"""

from __future__ import annotations

import json
import threading

from lakedex.io.process import ProcessIdentity, parse_json_object
from lakedex.io.storage import Storage

__all__ = ["Heartbeat", "delete_heartbeat", "is_expired", "is_ours"]

INTERVAL_MS = 60_000
"""``hoodie.client.heartbeat.interval_in_ms``."""
MISSES = 2
"""``hoodie.client.heartbeat.tolerable.misses``."""


def _path(base_path: str, instant: str) -> str:
    return f"{base_path}/.hoodie/.heartbeat/{instant}"


class Heartbeat:
    """The heartbeat of one write; a daemon thread beats until :meth:`stop`."""

    def __init__(self, storage: Storage, base_path: str, instant: str, interval_ms: int = INTERVAL_MS) -> None:
        self._storage = storage
        self._interval_s = interval_ms / 1000
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.path = _path(base_path, instant)
        self.last_error: Exception | None = None

    def __enter__(self) -> Heartbeat:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Write the file and keep it fresh. Nothing happens if it beats already."""
        if self._thread is not None:
            return
        self._stopping.clear()
        self._beat()
        self._thread = threading.Thread(target=self._run, name=f"lakedex-heartbeat {self.path}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating and remove the file; nothing happens the second time."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        thread.join(timeout=30)
        self._storage.delete(self.path)

    def _beat(self) -> None:
        self._storage.write(self.path, json.dumps(ProcessIdentity.current().to_fields()).encode())

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._beat()
                self.last_error = None
            except Exception as error:
                # One missed beat is tolerated; if many are, the commit finds itself rolled back and says so.
                self.last_error = error


def delete_heartbeat(storage: Storage, base_path: str, instant: str) -> None:
    """Remove the heartbeat of a write that was completed or rolled back."""
    storage.delete(_path(base_path, instant))


def is_ours(storage: Storage, base_path: str, instant: str) -> bool:
    """Whether the writer of a pending instant is one of lakedex; Java's heartbeats are empty, if it has any."""
    try:
        content = storage.read(_path(base_path, instant))
    except FileNotFoundError:
        return False
    return ProcessIdentity.from_fields(parse_json_object(content)) is not None


def is_expired(
    storage: Storage,
    base_path: str,
    instant: str,
    now_ms: int,
    *,
    started_ms: int | None = None,
    interval_ms: int = INTERVAL_MS,
    misses: int = MISSES,
) -> bool:
    """Whether the writer of a pending instant counts as dead.

    Args:
        storage: Where the table lies.
        base_path: The table's folder.
        instant: The pending instant's requested time.
        now_ms: The time, epoch milliseconds.
        started_ms: When the instant was requested. Without a heartbeat file the write is expired once it is older
            than the tolerated silence; ``None`` is Hudi's own rule, by which no file means expired.
        interval_ms: Time between two beats.
        misses: Beats that may be missing.
    """
    path = _path(base_path, instant)
    silence = interval_ms * misses
    try:
        beat = storage.modified(path)
        owner = ProcessIdentity.from_fields(parse_json_object(storage.read(path)))
    except FileNotFoundError:
        return started_ms is None or now_ms - started_ms > silence
    if owner is not None and owner.is_dead():
        return True
    return now_ms - beat > silence
