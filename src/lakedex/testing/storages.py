"""Wrap a storage to count its calls, slow them down, or let them fail or kill the process.

A *change* is a call that alters the store; closing an output is one. Reads are no changes, so the number of a change
is the same in each run.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import pyarrow as pa

from lakedex.engine import Engine
from lakedex.io.local import LocalStorage
from lakedex.io.storage import (
    OPERATIONS,
    FileInfo,
    FileTree,
    Storage,
    TableFiles,
    WrappedReader,
    first_argument,
    read_coalesced,
    typed_failures,
)
from lakedex.local.engine import LocalEngine
from lakedex.local.session import LocalSession
from lakedex.snapshot.snapshot import TableContext
from lakedex.table.table import Table
from lakedex.types import IoCount
from lakedex.write.create_table import create_table as write_new_table

__all__ = [
    "CountingStorage",
    "Faults",
    "FaultyStorage",
    "LatencyStorage",
    "StorageWrapper",
    "create_table",
    "open_table",
]


def open_table(
    path: str | os.PathLike[str],
    storage: Storage,
    engine: Engine | None = None,
    options: Mapping[str, str] | None = None,
) -> Table:
    """Open a table without Spark on a given storage.

    Args:
        path: Folder of the table.
        storage: Storage of all reads and writes.
        engine: Engine that runs tasks; ``None`` takes the local one with two threads.
        options: ``hoodie.*`` options of all calls.

    Returns:
        The table. Nothing is read yet.

    Example:
        >>> storage = CountingStorage()
        >>> rows = open_table("/data/trips", storage).to_arrow()
        >>> len(storage.paths("list"))
        5
    """
    engine = engine or LocalEngine(2)
    return Table(TableContext(TableFiles(storage, os.fspath(path)), engine, options or {}), LocalSession(engine))


def create_table(
    path: str,
    storage: Storage,
    schema: pa.Schema,
    *,
    record_key: str | None,
    engine: Engine | None = None,
    options: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    ordering_by: Sequence[str] = (),
    table_type: str = "cow",
) -> Table:
    """Create a table without Spark on a given storage.

    Args:
        path: folder of the table.
        storage: storage of all reads and writes.
        schema: columns of the table.
        record_key: column of the key; None makes a keyless table.
        engine: as in :func:`open_table`.
        options: ``hoodie.*`` options of all calls.
        partition_by: as in :meth:`lakedex.Table.create`.
        ordering_by: as in :meth:`lakedex.Table.create`.
        table_type: as in :meth:`lakedex.Table.create`.

    Returns:
        The table.

    Example:
        >>> create_table("s3://model/t", StoreModel().storage(), trips.schema, record_key="id").name
        't'
    """
    table = open_table(path, storage, engine, options)
    write_new_table(
        table.context,
        name=None,
        schema=schema,
        record_key=None if record_key is None else (record_key,),
        partition_by=partition_by,
        ordering_by=ordering_by,
        table_type=table_type,
        exist_ok=False,
        options=options,
    )
    return table


@typed_failures(OPERATIONS, first_argument)
class StorageWrapper:
    """A storage that passes each call on to another one, within :meth:`around`, which subclasses override.

    Args:
        inner: Storage to wrap; ``None`` takes the local disk.
    """

    def __init__(self, inner: Storage | None = None) -> None:
        self.inner: Storage = inner or LocalStorage()

    def around(self, call: str, path: str, data: bytes = b"") -> AbstractContextManager[None]:
        """Surround a call.

        Args:
            call: Method of the storage; ``read_input`` for a read of an opened file, ``close_output`` for the end of a
                written one.
            path: File or folder; empty for ``sync``.
            data: Bytes that the call writes.

        Returns:
            A context in which the call runs once.
        """
        del call, path, data
        return contextlib.nullcontext()

    @property
    def scheme(self) -> str:
        """That of the wrapped storage."""
        return self.inner.scheme

    @property
    def can_create_exclusively(self) -> bool:
        """Whether the wrapped storage has atomic put-if-absent."""
        return self.inner.can_create_exclusively

    @property
    def counted(self) -> IoCount:
        """Requests and bytes of the wrapped storage."""
        return self.inner.counted

    @property
    def has_conditional_put(self) -> bool:
        """Whether the wrapped storage has conditional writes."""
        return bool(getattr(self.inner, "has_conditional_put", False))

    def read(self, path: str) -> bytes:
        """Read a file."""
        with self.around("read", path):
            return self.inner.read(path)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of a file."""
        with self.around("read_ranges", path):
            return self.inner.read_ranges(path, ranges)

    def read_version(self, path: str) -> tuple[bytes, str]:
        """Read a file and its version."""
        with self.around("read_version", path):
            return cast("tuple[bytes, str]", cast("Any", self.inner).read_version(path))

    def size(self, path: str) -> int:
        """Size in bytes."""
        with self.around("size", path):
            return self.inner.size(path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        with self.around("exists", path):
            return self.inner.exists(path)

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a link."""
        with self.around("is_link", path):
            return self.inner.is_link(path)

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds."""
        with self.around("modified", path):
            return self.inner.modified(path)

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries of a folder."""
        with self.around("list", path):
            return self.inner.list(path)

    def list_tree(self, path: str) -> FileTree | None:
        """Entries of a folder and of all folders below it."""
        with self.around("list_tree", path):
            return self.inner.list_tree(path)

    def entries(self, path: str) -> dict[str, bool]:
        """All direct entries of a folder."""
        with self.around("entries", path):
            return self.inner.entries(path)

    def open_input(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        with self.around("open_input", path):
            opened = self.inner.open_input(path)
        return cast("BinaryIO", _Reader(opened, self, path))

    def create(self, path: str, data: bytes) -> None:
        """Write a new file."""
        with self.around("create", path, data):
            self.inner.create(path, data)

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""
        with self.around("write", path, data):
            self.inner.write(path, data)

    def put_version(self, path: str, data: bytes, version: str | None) -> str:
        """Replace a version of a file."""
        with self.around("put_version", path, data):
            return str(cast("Any", self.inner).put_version(path, data, version))

    def delete(self, path: str) -> None:
        """Remove a file."""
        with self.around("delete", path):
            self.inner.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, each a call of its own."""
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        """Remove a folder and its content."""
        with self.around("delete_tree", path):
            self.inner.delete_tree(path)

    def remove_empty(self, path: str) -> None:
        """Remove a folder if it is empty."""
        with self.around("remove_empty", path):
            self.inner.remove_empty(path)

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents."""
        with self.around("make_dirs", path):
            self.inner.make_dirs(path)

    def open_output(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        opened: BinaryIO | None = None
        try:
            with self.around("open_output", path):
                opened = self.inner.open_output(path)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        return cast("BinaryIO", _Writer(opened, self, path))

    def batched(self, root: str) -> Storage:
        """Same store and same counts, for a thread that writes many files."""
        batch = copy.copy(self)
        batch.inner = self.inner.batched(root)
        return batch

    def sync(self) -> None:
        """Make the files of a batched storage durable."""
        with self.around("sync", ""):
            self.inner.sync()


class _Reader(WrappedReader):
    """Input each of whose reads is a call of the storage."""

    def __init__(self, source: BinaryIO, storage: StorageWrapper, path: str) -> None:
        super().__init__(source)
        self._storage, self._path = storage, path

    def read(self, size: int | None = -1, /) -> bytes:
        with self._storage.around("read_input", self._path):
            return bytes(self._source.read(-1 if size is None else size))


@typed_failures({"close": "write"}, lambda writer, _: str(writer.path))
class _Writer:
    """Output whose close is a call of the storage; a fault before it leaves half a file."""

    def __init__(self, inner: BinaryIO, storage: StorageWrapper, path: str) -> None:
        self._inner, self._storage, self.path = inner, storage, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._inner.closed:
            return
        try:
            with self._storage.around("close_output", self.path):
                self._inner.close()
        except BaseException:
            self._inner.close()
            raise


class CountingStorage(StorageWrapper):
    """A storage that lists its calls.

    Attributes:
        calls: Name and path of each call, in the order in which they began. ``calls.clear()`` starts again.

    Example:
        >>> storage = CountingStorage()
        >>> open_table("/data/trips", storage).scan("city = 'a'").count()
        12
        >>> storage.paths("open_input")
        ['/data/trips/city=a/…parquet']
    """

    def __init__(self, inner: Storage | None = None) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []

    def around(self, call: str, path: str, data: bytes = b"") -> AbstractContextManager[None]:
        """List the call."""
        self.calls.append((call, path))
        return super().around(call, path, data)

    def paths(self, *calls: str) -> list[str]:
        """Paths of the calls of these names, in order.

        Args:
            calls: Names of calls, as in :meth:`StorageWrapper.around`; none means all.

        Returns:
            One path for each call.
        """
        return [path for call, path in self.calls if not calls or call in calls]


_NO_REQUESTS = ("is_link", "make_dirs", "open_input", "open_output", "sync")
"""Calls that an object store answers without a request, or with those of the opened file."""


class LatencyStorage(StorageWrapper):
    """A storage each of whose requests takes longer, as those of an object store do.

    Args:
        seconds: Time to wait before each request. Ranges that lie apart, and reads of an opened file, are requests of
            their own.
        inner: Storage to wrap; ``None`` takes the local disk.
        max_gap: Bytes between two ranges that are read in one request.
    """

    def __init__(self, seconds: float, inner: Storage | None = None, *, max_gap: int = 64 * 1024) -> None:
        super().__init__(inner)
        self.seconds, self.max_gap = seconds, max_gap

    def around(self, call: str, path: str, data: bytes = b"") -> AbstractContextManager[None]:
        """Wait."""
        if self.seconds and call not in _NO_REQUESTS:
            time.sleep(self.seconds)
        return super().around(call, path, data)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of a file; ranges near each other in one request."""

        def fetch(start: int, end: int) -> bytes:
            with self.around("read_ranges", path):
                return self.inner.read_ranges(path, [(start, end)])[0]

        return read_coalesced(ranges, fetch, max_gap=self.max_gap)[0]


_HALVES = ("create", "write", "delete_tree")
_CHANGES = (*_HALVES, "delete", "make_dirs", "open_output", "close_output", "put_version", "sync")


@dataclass
class Faults:
    """Say at which change of a :class:`FaultyStorage` which fault happens.

    Attributes:
        at: Number of the change, from 1; 0 means never.
        when: ``before`` it takes effect, ``after``, or ``during``: half of it is done. Only writes of whole files and
            deletions of folders have a half; only they are counted then.
        error: Exception to raise; ``None`` kills the process, as ``kill -9`` does.
        only: Name of a call and part of a path; only such changes are counted.
        repeat: Fail at all later changes too.
        hook: Function to call once instead of failing.
        seen: Name and path of each change so far.
    """

    at: int = 0
    when: str = "before"
    error: Exception | None = None
    only: tuple[str, str] | None = None
    repeat: bool = False
    hook: Callable[[], object] | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)
    _hits: int = 0

    def count(self, call: str, path: str) -> bool:
        """Count a change.

        Args:
            call: Name of the call.
            path: File or folder.

        Returns:
            Whether the fault happens at it.
        """
        with self._lock:
            self.seen.append((call, path))
            if self.when == "during" and call not in _HALVES:
                return False
            if self.only is not None:
                if self.only[0] != call or self.only[1] not in path:
                    return False
                self._hits += 1
                return self._hits == max(self.at, 1) or (self.repeat and self._hits > self.at)
            self._hits += 1
            return self.at > 0 and (self._hits == self.at or (self.repeat and self._hits > self.at))

    def strike(self) -> None:
        """Kill the process, raise the error, or call the hook."""
        if self.hook is not None:
            hook, self.hook = self.hook, None
            hook()
        elif self.error is not None:
            raise self.error
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def __reduce__(self) -> tuple[Any, ...]:
        return Faults, (self.at, self.when, self.error, self.only, self.repeat)


class FaultyStorage(StorageWrapper):
    """A storage that fails, or kills its process, at a chosen change.

    Args:
        faults: Change and fault; ``None`` never fails and only lists the changes.
        inner: Storage to wrap; ``None`` takes the local disk.

    Example:
        >>> full = Faults(1, error=OSError(errno.ENOSPC, "disk full"), only=("create", ".commit"))
        >>> open_table("/data/trips", FaultyStorage(full)).upsert(trips)
        Traceback (most recent call last):
        lakedex.errors.StorageError: …
    """

    def __init__(self, faults: Faults | None = None, inner: Storage | None = None) -> None:
        super().__init__(inner)
        self.faults = faults or Faults()

    @contextlib.contextmanager
    def around(self, call: str, path: str, data: bytes = b"") -> Iterator[None]:
        """Count a change, and fail at the chosen one."""
        struck = call in _CHANGES and self.faults.count(call, path)
        if struck and self.faults.when == "during":
            self._do_half(call, path, data)
            self.faults.strike()
        if struck and self.faults.when == "before":
            self.faults.strike()
        try:
            yield
        finally:
            if struck and self.faults.when == "after":
                self.faults.strike()

    def _do_half(self, call: str, path: str, data: bytes) -> None:
        if call == "delete_tree":
            first = self._first_file(path)
            if first is not None:
                self.inner.delete(first)
        elif self.scheme == "file":
            # The file that a dying writer leaves before the final name is given; object stores put whole objects.
            temp = f"{os.path.dirname(path)}/.lakedex-{os.getpid()}{time.monotonic_ns()}.tmp"
            self.inner.write(temp, data[: len(data) // 2])

    def _first_file(self, folder: str) -> str | None:
        for entry in self.inner.list(folder):
            path = f"{folder}/{entry.name}"
            found = self._first_file(path) if entry.is_dir and not entry.is_link else path
            if found is not None:
                return found
        return None
