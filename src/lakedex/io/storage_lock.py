"""The table lock as a leased object: Hudi's StorageBasedLockProvider (1.1.1).

``<base>/.hoodie/.locks/table_lock.json`` holds ``{"expired": bool, "validUntil": epoch ms, "owner": uuid}``. Whoever
replaces it, on the condition that it still is the version that was read, has the lock until ``validUntil``. While it is
held a thread renews the lease; to give it back is to write ``"expired": true``. The file stays. Clocks may differ by
:data:`CLOCK_DRIFT_MS`: a lease counts as over for others only so much later, and for its owner so much earlier.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from lakedex.errors import CommitError, CorruptFileError, LakedexError, LockTimeoutError, UnsupportedFeatureError
from lakedex.io.locks import lost_lock
from lakedex.io.process import parse_json_object
from lakedex.io.storage import Storage

__all__ = ["CLOCK_DRIFT_MS", "ConditionalStorage", "StorageLock", "VersionChangedError"]

CLOCK_DRIFT_MS = 500
"""``StorageBasedLockProvider.CLOCK_DRIFT_BUFFER_MS``."""


class VersionChangedError(LakedexError):
    """A conditional write met another version of the object than it was for. Nothing was written."""


@runtime_checkable
class ConditionalStorage(Protocol):
    """A store that replaces an object only if it still is the version that was read."""

    @property
    def has_conditional_put(self) -> bool:
        """Whether the store behind it can."""

    def read_version(self, path: str) -> tuple[bytes, str]:
        """Content and version (ETag, generation). Raises ``FileNotFoundError``."""

    def put_version(self, path: str, data: bytes, version: str | None) -> str:
        """Replace the version given, or create the object for None; the new version.

        Raises ``VersionChangedError``: another writer came first.
        """


@dataclass(frozen=True, slots=True)
class _Lease:
    owner: str
    valid_until: int
    expired: bool

    def encode(self) -> bytes:
        return json.dumps({"expired": self.expired, "validUntil": self.valid_until, "owner": self.owner}).encode()

    def __str__(self) -> str:
        return f"owner {self.owner}, whose lease ends at {self.valid_until} ms"


def _decoded(data: bytes, path: str) -> _Lease:
    fields: dict[str, Any] = parse_json_object(data)
    expired, until, owner = (fields.get(name) for name in ("expired", "validUntil", "owner"))
    if not (isinstance(expired, bool) and isinstance(until, int) and isinstance(owner, str)):
        raise CorruptFileError(path, 0, "a lock with expired, validUntil and owner", repr(bytes(data[:60])))
    return _Lease(owner, until, expired)


class StorageLock:
    """A table's lock, as a context manager. One object may be used again and again, but not twice at once.

    Args:
        storage: Where the table lies; it needs conditional writes.
        base_path: The table's folder.
        timeout_s: How long to wait for the lock.
        poll_s: How often to look.
        validity_s: Length of a lease (``hoodie.write.lock.storage.validity.timeout.secs``).
        renew_s: Time between two renewals (``hoodie.write.lock.storage.renew.interval.secs``).
        now_ms: The clock.
    """

    def __init__(
        self,
        storage: Storage,
        base_path: str,
        timeout_s: float = 60.0,
        poll_s: float = 1.0,
        validity_s: float = 300.0,
        renew_s: float = 30.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.path = f"{base_path}/.hoodie/.locks/table_lock.json"
        if not isinstance(storage, ConditionalStorage) or not storage.has_conditional_put:
            raise UnsupportedFeatureError(
                f"{self.path}: StorageBasedLockProvider needs conditional writes, which lakedex does not know on "
                f"'{storage.scheme}'; use org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
                feature=f"storage-based lock on {storage.scheme}",
            )
        self._storage: ConditionalStorage = storage
        self._timeout_s, self._poll_s = timeout_s, poll_s
        self._validity_ms, self._renew_s = int(validity_s * 1000), renew_s
        self._now_ms = now_ms
        self._owner = str(uuid.uuid4())
        self._guard = threading.Lock()
        self._lease: _Lease | None = None
        self._version: str | None = None
        self._pid = 0
        self.last_error: Exception | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether this object took the lock in this process, has not given it back, and its lease still runs."""
        lease = self._lease if self._pid == os.getpid() else None
        return lease is not None and self._now_ms() < lease.valid_until - CLOCK_DRIFT_MS

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockTimeoutError: It was not free in time; the message names the owner.
            CommitError: This object holds it already.
            CorruptFileError: The object is no lock.
        """
        if self.held:
            raise CommitError(f"{self.path}: this lock object already holds the lock; it is not re-entrant")
        deadline = time.monotonic() + self._timeout_s
        while True:
            other = self._try()
            if other is None:
                break
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"{self.path}: the table lock was not free within {self._timeout_s:g} s; held by {other}",
                    path=self.path,
                    holder=str(other),
                )
            pause = self._poll_s * random.uniform(0.5, 1.5)
            time.sleep(min(pause, max(deadline - time.monotonic(), 0.0)))
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, args=(self._stop,), name=f"lakedex-lock {self.path}")
        self._thread.daemon = True
        self._thread.start()

    def _try(self) -> _Lease | str | None:
        """Take the lock if it is free; else who has it."""
        try:
            data, version = self._storage.read_version(self.path)
        except FileNotFoundError:
            found, version = None, None
        else:
            found = _decoded(data, self.path)
            if found.owner != self._owner and not self._is_over(found):
                return found
        lease = _Lease(self._owner, self._now_ms() + self._validity_ms, False)
        try:
            self._version = self._storage.put_version(self.path, lease.encode(), version)
        except VersionChangedError:
            return found or "a writer that took it just now"
        self._lease = lease
        return None

    def _is_over(self, lease: _Lease) -> bool:
        return lease.expired or self._now_ms() > lease.valid_until + CLOCK_DRIFT_MS

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(self._renew_s):
            with self._guard:
                if stop.is_set() or self._lease is None:
                    return
                lease = _Lease(self._owner, self._now_ms() + self._validity_ms, False)
                try:
                    self._version = self._storage.put_version(self.path, lease.encode(), self._version)
                    self._lease = lease
                except VersionChangedError:
                    # Ours only if the answer to an earlier renewal was lost; otherwise the lock is gone.
                    if not self._found_again():
                        return
                except Exception as error:
                    # It may pass; check() goes by the lease that is known to stand.
                    self.last_error = error

    def _found_again(self) -> bool:
        """Take over the version that is there, if this object wrote it."""
        try:
            data, version = self._storage.read_version(self.path)
            lease = _decoded(data, self.path)
        except (OSError, CorruptFileError):
            lease = None
        if lease is None or lease.owner != self._owner or lease.expired:
            self._lease = None
            return False
        self._lease, self._version = lease, version
        return True

    def check(self) -> None:
        """Make sure that the lock still is held, right before a step that needs it.

        Raises:
            CommitConflictError: The lease has run out, or another owner has the lock; the write may run again.
        """
        with self._guard:
            if self.held and self._found_again() and self.held:
                return
        raise lost_lock(self.path, None)

    def release(self) -> None:
        """Give the lock back; nothing happens if it is not held, or another owner has it."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            thread.join(timeout=30)
        with self._guard:
            lease, self._lease = self._lease, None
            if lease is None or self._pid != os.getpid():
                return
            ended = _Lease(self._owner, lease.valid_until, True)
            try:
                self._storage.put_version(self.path, ended.encode(), self._version)
            except VersionChangedError:
                # An answer that was lost, or another owner after the lease ran out.
                if self._found_again():
                    self._lease = None
                    self._storage.put_version(self.path, ended.encode(), self._version)
