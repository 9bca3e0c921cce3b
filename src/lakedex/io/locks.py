"""Lock tables, by a file that only one process can create or by a leased object, compatibly with Hudi.

:class:`TableLock` uses the file of Hudi's FileSystemBasedLockProvider, ``<base>/.hoodie/lock``: creating it takes the
lock, deleting it releases the lock, its content is irrelevant. lakedex writes a JSON object that names the holder, so a
holder that died on this machine is detected at once. Hudi's file is empty and its holder unknown, so it stays unless
``expire_minutes`` (``hoodie.write.lock.filesystem.expire``) allows breaking it.

Breaking a dead holder's lock must not race: between a check and the deletion, another waiter may have broken the lock
and taken it again. Every lock therefore has a unique token, and the right to delete the lock of token T is itself a
file, ``lock.break.T``, that only one process can create. Token T never recurs, so its only breaker checks, and if T is
still there nobody else removes it. If a breaker dies or gives up the right passes on in the same way, to the creator of
``lock.break.<T>.<token of that breaker>``.

:class:`StorageLock` is Hudi's StorageBasedLockProvider (1.1.1): ``<base>/.hoodie/.locks/table_lock.json`` contains
``{"expired": bool, "validUntil": epoch ms, "owner": uuid}``. Replacing it, on the condition that the version read is
still current, takes the lock until ``validUntil``. A thread renews the lease; writing ``"expired": true`` releases the
lock. The file stays. Clocks may differ by :data:`CLOCK_DRIFT_MS`: for others a lease ends that much later, for its
owner that much earlier. A version is that of a content, so no two leases are equal. A process remembers the version of
the lease that it ended last, and takes a lock that nobody else took since by one request; it also knows the leases that
it could not end.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

from lakedex.errors import (
    CommitConflictError,
    CommitError,
    CorruptFileError,
    LakedexError,
    LockTimeoutError,
    UnsupportedFeatureError,
)
from lakedex.io.liveness import ProcessIdentity, parse_json_object
from lakedex.io.locations import open_storage
from lakedex.io.retries import clock_of
from lakedex.io.storage import Storage, TableFiles, VersionChangedError
from lakedex.options import LockOptions

__all__ = [
    "CLOCK_DRIFT_MS",
    "ConditionalStorage",
    "Lock",
    "StorageLock",
    "TableLock",
    "lost_lock",
    "table_lock",
]


_OWN_TOKENS: dict[str, int] = {}
"""Tokens of locks that this process holds or breaks, with the thread that took each."""


_LONGEST_COMPLETION_S = 120.0
"""A lease must last that long when a step that needs it begins: requests are repeated for a minute or so."""


_REMOTE_POLL_S = 1.0
"""Shortest time between two attempts on an object store."""


class Lock(Protocol):
    """Lock of a table, as its holders see it."""

    def acquire(self) -> None:
        """Take the lock; waits until it is free."""

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""

    def check(self) -> None:
        """Raise ``CommitConflictError`` if the lock is no longer held; the write may be retried."""

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lost_lock(path: str, holder: object | None) -> CommitConflictError:
    """Error of a writer that lost its lock; nothing of its write is visible."""
    return CommitConflictError(
        f"{path}: the table lock is no longer held by this writer"
        + (f" but by {holder}" if holder is not None else "")
        + "; nothing was committed, repeat the write",
        ours=None,
        theirs=None,
        file_groups=frozenset(),
        retryable=True,
    )


@dataclass(frozen=True, slots=True)
class _Holder:
    """Content of a lock or breaker file.

    ``process`` is None if Hudi or an unknown program wrote it; ``modified`` is 0 if nobody asked for the age.
    """

    token: str
    process: ProcessIdentity | None
    since: str
    modified: int

    def is_left(self) -> bool:
        return self.process is not None and self.process.has_left(self.token, _OWN_TOKENS)

    def is_alive_here(self) -> bool:
        return self.process is not None and self.process.is_here() and not self.process.is_dead()

    def __str__(self) -> str:
        if self.process is None:
            return f"an unnamed writer (Hudi's own lock is empty), since {self.since}"
        return f"{self.process}, since {self.since}"


def _now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _encode(token: str) -> bytes:
    fields = {**ProcessIdentity.current().to_fields(), "started": _now_text(), "token": token}
    return json.dumps(fields).encode()


def _read_holder(storage: Storage, path: str, *, with_age: bool = False) -> _Holder | None:
    try:
        data = storage.read(path)
        fields = parse_json_object(data)
        process, token, since = ProcessIdentity.from_fields(fields), fields.get("token"), fields.get("started")
        is_named = process is not None and isinstance(token, str) and token.isalnum()
        # After the bytes: a file that changes meanwhile looks young, never old.
        modified = 0 if is_named and not with_age else storage.modified(path)
    except FileNotFoundError:
        return None
    if process is None or not isinstance(token, str) or not token.isalnum():
        since = datetime.datetime.fromtimestamp(modified / 1000, datetime.UTC).isoformat(timespec="milliseconds")
        return _Holder(f"{modified}x{hashlib.sha1(data).hexdigest()[:12]}", None, since, modified)
    return _Holder(token, process, str(since), modified)


class TableLock(Lock):
    """A table's lock, as a context manager. Reusable, but not re-entrant.

    Args:
        files: the table's files.
        timeout_s: Longest time to wait for the lock.
        poll_s: Time between two attempts.
        expire_minutes: Age from which a lock is broken if its holder is not known to be alive; 0 means never
            (``hoodie.write.lock.filesystem.expire``).
        folder: Folder of the file (``hoodie.write.lock.filesystem.path``); None means ``.hoodie``.
    """

    def __init__(
        self,
        files: TableFiles,
        timeout_s: float = 60.0,
        poll_s: float = 0.1,
        expire_minutes: float = 0.0,
        folder: str | None = None,
    ) -> None:
        self._storage = files.storage
        self._timeout_s = timeout_s
        self._poll_s = poll_s
        self._expire_minutes = expire_minutes
        self._clock = clock_of(files.storage)
        self._token: str | None = None
        self._pid = 0
        self.path = f"{folder or files.path('.hoodie')}/lock"

    @property
    def held(self) -> bool:
        """Whether this object took the lock in this process and has not released it."""
        return self._token is not None and self._pid == os.getpid()

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockTimeoutError: It was not free in time; the message names the holder.
            CommitError: This object or thread already holds it.
            UnsupportedFeatureError: The store has no put-if-absent.
        """
        if self.held:
            raise CommitError(f"{self.path}: this lock object already holds the lock; it is not re-entrant")
        if not self._storage.can_create_exclusively:
            raise UnsupportedFeatureError(
                f"{self.path}: '{self._storage.scheme}' cannot create a file exclusively, so tables there cannot be "
                "locked and are read only",
                feature="write without put-if-absent",
            )
        token = uuid.uuid4().hex
        # Before the file exists, so that a file of this process without an entry is a leftover.
        _OWN_TOKENS[token] = threading.get_ident()
        try:
            self._wait_for(token)
        except BaseException:
            _OWN_TOKENS.pop(token, None)
            raise
        self._pid, self._token = os.getpid(), token

    def _wait_for(self, token: str) -> None:
        clock = self._clock
        deadline = clock.now() + self._timeout_s
        while True:
            holder = self._try_create(token)
            if holder is not None and holder.token == token:
                return
            if holder is not None:
                if (
                    _OWN_TOKENS.get(holder.token) == threading.get_ident()
                    and holder.process == ProcessIdentity.current()
                ):
                    raise CommitError(f"{self.path}: this thread already holds the table lock; it is not re-entrant")
                if self._may_break(holder) and self._break(holder):
                    continue
            if clock.now() >= deadline:
                raise self._timeout(holder)
            clock.sleep(min(self._poll_s * clock.chance(1.0, 1.5), max(deadline - clock.now(), 0.0)))

    def _try_create(self, token: str) -> _Holder | None:
        """Create the lock file; return the holder afterwards, or None if it has just released the lock."""
        try:
            self._storage.create(self.path, _encode(token))
        except FileExistsError:
            # An earlier attempt may have taken effect although its response was lost.
            return _read_holder(self._storage, self.path, with_age=self._expire_minutes > 0)
        except BaseException:
            self._delete_if(token)
            raise
        return _Holder(token, None, "", 0)

    def _may_break(self, holder: _Holder) -> bool:
        if holder.is_left():
            return True
        if self._expire_minutes <= 0 or holder.is_alive_here():
            return False
        return time.time() * 1000 - holder.modified > self._expire_minutes * 60_000

    def _break(self, dead: _Holder) -> bool:
        """Delete the lock of ``dead`` if this process gets the right to; return whether it may be free now."""
        token = uuid.uuid4().hex
        _OWN_TOKENS[token] = threading.get_ident()
        try:
            return self._break_by(token, dead)
        finally:
            _OWN_TOKENS.pop(token, None)

    def _break_by(self, token: str, dead: _Holder) -> bool:
        taken: list[str] = []
        name = f"{self.path}.break.{dead.token}"
        while True:
            try:
                self._storage.create(name, _encode(token))
            except FileExistsError:
                breaker = _read_holder(self._storage, name)
                if breaker is None:
                    return True  # another process has broken it
                if breaker.token != token:
                    if not breaker.is_left():
                        return False  # another process is breaking it
                    taken.append(name)
                    name = f"{name}.{breaker.token}"
                    continue
            taken.append(name)
            break
        # If this fails the right passes on as that of a dead breaker does; giving it back would be the same race.
        self._delete_if(dead.token)
        for path in reversed(taken):
            self._storage.delete(path)
        return True

    def _delete_if(self, token: str) -> None:
        """Delete the lock file if it still has this token."""
        holder = _read_holder(self._storage, self.path)
        if holder is not None and holder.token == token:
            self._storage.delete(self.path)

    def _timeout(self, holder: _Holder | None) -> LockTimeoutError:
        who = str(holder) if holder is not None else "several writers in turn"
        return LockTimeoutError(
            f"{self.path}: the table lock was not free within {self._timeout_s:g} s; held by {who}. "
            "If that writer no longer runs, delete the file (or set the lock expiry) and retry",
            path=self.path,
            holder=who,
        )

    def check(self) -> None:
        """Check, right before a step that needs it, that the lock file is still this object's.

        Hudi's provider deletes the file a second time when it closes, even if another writer has the lock by then,
        and on local disks it may open a newer file for writing; so a lock can be lost without expiring.

        Raises:
            CommitConflictError: The lock is lost; the write may be retried.
        """
        holder = _read_holder(self._storage, self.path) if self.held else None
        if holder is None or holder.token != self._token:
            raise lost_lock(self.path, holder)

    def release(self) -> None:
        """Release the lock; does nothing if it is not held, or was broken meanwhile."""
        if not self.held:
            return
        token, self._token = str(self._token), None
        try:
            self._delete_if(token)
        except OSError:
            self._clock.sleep(self._poll_s)
            self._delete_if(token)  # others wait for this file while this process is alive
        finally:
            _OWN_TOKENS.pop(token, None)


CLOCK_DRIFT_MS = 500
"""``StorageBasedLockProvider.CLOCK_DRIFT_BUFFER_MS``."""


@runtime_checkable
class ConditionalStorage(Protocol):
    """Storage with conditional writes: replace an object only if its version is unchanged."""

    @property
    def has_conditional_put(self) -> bool:
        """Whether the store supports them."""

    def read_version(self, path: str) -> tuple[bytes, str]:
        """Content and version (ETag, generation). Raises ``FileNotFoundError``."""

    def put_version(self, path: str, data: bytes, version: str | None) -> str:
        """Replace ``version`` of an object, or create it if ``version`` is None; return the new version.

        Raises ``VersionChangedError`` if another writer came first.
        """


@dataclass(frozen=True, slots=True)
class _Lease:
    owner: str
    valid_until: int
    expired: bool

    def encode(self) -> bytes:
        return json.dumps({"expired": self.expired, "validUntil": self.valid_until, "owner": self.owner}).encode()

    def __str__(self) -> str:
        return f"owner {self.owner}, whose lease ends at {_readable(self.valid_until)}"


def _readable(epoch_ms: int) -> str:
    """A time in UTC, rounded up to seconds; what no calendar has stays in milliseconds."""
    try:
        return f"{datetime.datetime.fromtimestamp(-(-epoch_ms // 1000), datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{epoch_ms} ms"


def _decoded(data: bytes, path: str) -> _Lease:
    fields: dict[str, Any] = parse_json_object(data)
    expired, until, owner = (fields.get(name) for name in ("expired", "validUntil", "owner"))
    if not (isinstance(expired, bool) and isinstance(until, int) and isinstance(owner, str)):
        raise CorruptFileError(path, 0, "a lock with expired, validUntil and owner", repr(bytes(data[:60])))
    return _Lease(owner, until, expired)


_ENDED: dict[str, str] = {}
"""By the path of a lock the version of the lease that this process ended last."""


_ABANDONED: set[str] = set()
"""Owners of leases that this process could not end, or may have taken without knowing."""


class StorageLock(Lock):
    """A table's lock, as a context manager. Reusable, but not re-entrant.

    Args:
        files: the table's files.
        timeout_s: Longest time to wait for the lock.
        poll_s: Time between two attempts.
        validity_s: Length of a lease (``hoodie.write.lock.storage.validity.timeout.secs``).
        renew_s: Time between two renewals (``hoodie.write.lock.storage.renew.interval.secs``).
        now_ms: Clock, epoch milliseconds.
        timeout_option: Option that sets ``timeout_s``, for messages.
    """

    def __init__(
        self,
        files: TableFiles,
        timeout_s: float = 60.0,
        poll_s: float = 1.0,
        validity_s: float = 300.0,
        renew_s: float = 30.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        timeout_option: str = "hoodie.write.lock.wait_time_ms",
    ) -> None:
        self.path = files.path(".hoodie/.locks/table_lock.json")
        if not isinstance(files.storage, ConditionalStorage) or not files.storage.has_conditional_put:
            raise UnsupportedFeatureError(
                f"{self.path}: StorageBasedLockProvider needs conditional writes, which lakedex does not support on "
                f"'{files.storage.scheme}'; use org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
                feature=f"storage-based lock on {files.storage.scheme}",
            )
        self._storage: ConditionalStorage = files.storage
        self._timeout_s, self._poll_s = timeout_s, poll_s
        self._validity_ms, self._renew_s = int(validity_s * 1000), renew_s
        self._now_ms = now_ms
        self._timeout_option = timeout_option
        self._clock = clock_of(files.storage)
        self._owner = str(uuid.uuid4())
        self._guard = threading.Lock()
        self._lease: _Lease | None = None
        self._version: str | None = None
        self._pid = 0
        self.last_error: Exception | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Whether this object took the lock in this process, has not released it, and its lease has not ended."""
        lease = self._lease if self._pid == os.getpid() else None
        return lease is not None and self._now_ms() < lease.valid_until - CLOCK_DRIFT_MS

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockTimeoutError: It was not free in time; the message names the owner.
            CommitError: This object already holds it.
            CorruptFileError: The object is not a lock.
        """
        if self.held:
            raise CommitError(f"{self.path}: this lock object already holds the lock; it is not re-entrant")
        clock = self._clock
        deadline = clock.now() + self._timeout_s
        while True:
            try:
                other = self._try()
            except BaseException:
                self._abandon()
                raise
            if other is None:
                break
            if clock.now() >= deadline:
                raise self._timeout(other)
            clock.sleep(min(self._poll_s * clock.chance(1.0, 1.5), max(deadline - clock.now(), 0.0)))
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, args=(self._stop,), name=f"lakedex-lock {self.path}")
        self._thread.daemon = True
        self._thread.start()

    def _timeout(self, other: _Lease | str) -> LockTimeoutError:
        text = f"{self.path}: the table lock was not free within {self._timeout_s:g} s; held by {other}"
        if isinstance(other, _Lease):
            free = _readable(other.valid_until + CLOCK_DRIFT_MS)
            text += f". If that writer died, its lease is not renewed: retry after {free}"
        return LockTimeoutError(
            f"{text}, or wait longer with {self._timeout_option}",
            path=self.path,
            holder=str(other),
        )

    def _try(self) -> _Lease | str | None:
        """Take the lock if it is free and return None, else return its holder."""
        ended = _ENDED.pop(self.path, None)
        if ended is not None and self._took(ended):
            return None
        try:
            data, version = self._storage.read_version(self.path)
        except FileNotFoundError:
            found, version = None, None
        else:
            found = _decoded(data, self.path)
            if found.owner != self._owner and found.owner not in _ABANDONED and not self._is_over(found):
                return found
        return None if self._took(version) else found or "a writer that has just taken it"

    def _took(self, version: str | None) -> bool:
        """Put a lease in place of a version; False if another writer came first."""
        lease = self._next_lease()
        try:
            self._version = self._storage.put_version(self.path, lease.encode(), version)
        except VersionChangedError:
            return False
        self._lease = lease
        return True

    def _next_lease(self) -> _Lease:
        until = self._now_ms() + self._validity_ms
        # Equal bytes would be of one version.
        return _Lease(self._owner, until if self._lease is None else max(until, self._lease.valid_until + 1), False)

    def _is_over(self, lease: _Lease) -> bool:
        return lease.expired or self._now_ms() > lease.valid_until + CLOCK_DRIFT_MS

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(self._renew_s):
            with self._guard:
                if stop.is_set() or self._lease is None or not self._renewed():
                    return

    def _renewed(self) -> bool:
        """Put a new lease in place of this object's; False if the lock is lost."""
        try:
            # If the answer to an earlier renewal was lost, the version is ours.
            if self._took(self._version) or (self._found_again() and self._took(self._version)):
                return True
        except Exception as error:
            # The failure may be temporary; check() relies on the last confirmed lease.
            self.last_error = error
            return True
        self._lease = None
        return False

    def _found_again(self) -> bool:
        """Adopt the current version if this object wrote it; else the lock is lost."""
        try:
            data, version = self._storage.read_version(self.path)
            lease = _decoded(data, self.path)
        except (FileNotFoundError, CorruptFileError):
            lease = None
        if lease is None or lease.owner != self._owner or lease.expired:
            self._lease = None
            return False
        self._lease, self._version = lease, version
        return True

    def check(self) -> None:
        """Check, right before a step that needs it, that the lock is held and the lease outlasts the step.

        A lease that ends sooner is renewed first.

        Raises:
            CommitConflictError: The lease has ended or cannot be renewed, or another owner has the lock; the write may
                be retried.
        """
        with self._guard:
            if self._outlasts() or (self.held and self._renewed() and self._outlasts()):
                return
        raise lost_lock(self.path, None)

    def _outlasts(self) -> bool:
        needed = min(_LONGEST_COMPLETION_S * 1000, self._validity_ms / 2)
        return self.held and self._lease is not None and self._lease.valid_until - self._now_ms() >= needed

    def release(self) -> None:
        """Release the lock; does nothing if it is not held, or another owner has it."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            thread.join(timeout=30)
        with self._guard:
            lease, self._lease = self._lease, None
            if lease is None or self._pid != os.getpid():
                return
            ended = _Lease(self._owner, lease.valid_until, True).encode()
            try:
                version = self._end(ended)
            except BaseException:
                self._abandon()
                raise
            if version is not None:
                _ENDED[self.path] = version

    def _abandon(self) -> None:
        """Let this process take over the lease that this object may still have, as nobody works under it."""
        _ABANDONED.add(self._owner)
        self._owner = str(uuid.uuid4())

    def _end(self, ended: bytes) -> str | None:
        """End the lease; None if another owner took the lock after it had ended."""
        try:
            return self._storage.put_version(self.path, ended, self._version)
        except VersionChangedError:
            # A response was lost, or another owner took the lock.
            if not self._found_again():
                return None
            self._lease = None
            return self._storage.put_version(self.path, ended, self._version)


def table_lock(files: TableFiles, options: LockOptions) -> Lock:
    """The table's lock, shared with Hudi's provider of the same name (``hoodie.write.lock.provider``).

    Without a provider in the options it is a leased object on object stores, and a file elsewhere. Taken in every
    ``hoodie.write.concurrency.mode``: another process may write unexpectedly.

    Raises:
        LakedexError: The store has no put-if-absent: two writers could create the same file.
    """
    if not files.storage.can_create_exclusively:
        raise LakedexError(
            f"{files}: the store {files.storage.scheme!r} has no put-if-absent, which the timeline and the "
            "lock need; write to a local disk or an object store"
        )
    is_remote = files.storage.scheme not in ("file", "memory")
    provider = options.provider or ("StorageBasedLockProvider" if is_remote and options.path is None else "")
    poll = max(options.poll, _REMOTE_POLL_S) if is_remote else options.poll
    if provider == "StorageBasedLockProvider":
        return StorageLock(
            files,
            timeout_s=options.wait,
            poll_s=poll,
            validity_s=options.validity,
            renew_s=options.renewal,
            timeout_option=f"hoodie.write.lock.{'wait_time_ms' if options.retries is None else 'client.num_retries'}",
        )
    folder = None
    if options.path is not None:
        other = open_storage(options.path)
        folder = other.base_path
        files = files if other.storage.scheme == files.storage.scheme else replace(files, storage=other.storage)
    return TableLock(
        files,
        timeout_s=options.wait,
        poll_s=poll,
        expire_minutes=options.expire_minutes,
        folder=folder,
    )
