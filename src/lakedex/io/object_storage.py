"""The rules by which lakedex uses an object store, for every request of a table.

* A put whose answer was lost may have taken effect. It is sent again; what is then "there already" is read back, and
  equal bytes are this writer's own. So bytes that are put if absent have to be unique to their writer (an instant, a
  uuid or a token is in them), and empty files are made under the table's lock or under names that are unique.
* Requests that may succeed later are repeated (:mod:`lakedex.io.retries`); no others.
* What fails for good is a :class:`~lakedex.errors.StorageError` that names the object, the request, status, code and
  tries. Its field ``effect`` is ``none`` if the store refused each try, or answered each and does not have the object.
* Conditional writes are proved before the first one: a probe is created twice, and replaced under a wrong version. A
  store that lets that pass is refused for writing.

Folders do not exist: a prefix is there while an object is. Listings cost a request for each 1,000 entries.

Memory: a file that is written is kept in memory up to :data:`SPOOL_BYTES`, then in a temporary file, until it is put at
its close. A file that is opened for reading keeps one block of :data:`BLOCK_BYTES` or of the size of the last read.
"""

from __future__ import annotations

import errno
import io
import os
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar, cast
from weakref import WeakKeyDictionary

from lakedex.errors import FileTakenError, StorageError, UnsupportedFeatureError
from lakedex.io.object_store import ABSENT, Failure, ObjectInfo, ObjectStore, RequestError
from lakedex.io.retries import Clock, Retries
from lakedex.io.storage import (
    DELETED_AT_ONCE,
    OPERATIONS,
    FileInfo,
    FileTree,
    VersionChangedError,
    as_tree,
    first_argument,
    is_checksum,
    merged_ranges,
    storage_error,
    typed_failures,
)
from lakedex.types import IoCount

__all__ = ["BLOCK_BYTES", "SPOOL_BYTES", "ObjectStorage"]


T = TypeVar("T")


SPOOL_BYTES = 32 * 1024 * 1024


BLOCK_BYTES = 256 * 1024


_MAX_GAP = 512 * 1024


_DIGIT = re.compile("[0-9]")


_ADVICE = {
    Failure.CONFLICT: "other writers were faster each time; repeat the operation",
    Failure.SLOW: "the store asks for fewer requests; repeat the operation later",
    Failure.SERVER: "repeat the operation when the store works again",
    Failure.LOST: "check the network and the endpoint, then repeat the operation",
    Failure.UNREACHABLE: "check the endpoint and the network",
    Failure.DENIED: "check the credentials and the permissions to get, put, delete and list objects there",
    Failure.REFUSED: "check credentials, bucket, region and endpoint",
    Failure.CHANGED: "another writer changed the object; repeat the operation",
    Failure.UNSUPPORTED: "the store lacks what writing a table needs; tables there can only be read",
}


_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})


_PLAIN_HTTP = "an endpoint that begins with http:// needs the storage option aws_allow_http=true, or https:// instead"


class _Shared:
    """State that all storages of one store share in this process."""

    def __init__(self, clock: Clock) -> None:
        self.retries = Retries(clock)
        self.guard = threading.Lock()
        self.proved = False


_SHARED: WeakKeyDictionary[ObjectStore, _Shared] = WeakKeyDictionary()


@typed_failures({**OPERATIONS, "read_version": "read", "put_version": "write"}, first_argument)
class ObjectStorage:
    """A bucket as a storage. Paths are URLs of any scheme of the store.

    Args:
        store: the bucket.
        clock: time and chance of its retries, which the first storage of a process decides.
    """

    def __init__(self, store: ObjectStore, clock: Clock | None = None) -> None:
        self.store = store
        self._shared = _SHARED.setdefault(store, _Shared(clock or Clock()))
        self._authority = store.url.partition("://")[2]
        self.counted = IoCount()

    def __repr__(self) -> str:
        return f"ObjectStorage({self.store.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStorage) and self.store == other.store

    def __hash__(self) -> int:
        return hash(self.store)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self.store,)

    @property
    def scheme(self) -> str:
        """Scheme of the store's URLs, as ``s3``."""
        return self.store.url.partition(":")[0]

    @property
    def clock(self) -> Clock:
        """Time and chance, which locks on this store share."""
        return self._shared.retries.clock

    @property
    def can_create_exclusively(self) -> bool:
        """True; it is proved before the first write."""
        return True

    @property
    def has_conditional_put(self) -> bool:
        """True; it is proved before the first write."""
        return True

    def _key(self, path: str) -> str:
        authority, _, key = path.partition("://")[2].partition("/")
        if authority != self._authority:
            raise OSError(errno.EINVAL, f"this is no path in {self.store.url}", path)
        return key.rstrip("/")

    def _run(self, verb: str, path: str, send: Callable[[bool], T]) -> T:
        """Send a request, repeated as the rules say, and turn its failure into an error of ours."""
        try:
            return self._shared.retries.run(send)
        except RequestError as error:
            raise self._error(verb, path, error) from None

    def _error(self, verb: str, path: str, error: RequestError) -> StorageError:
        if error.failure is Failure.MISSING:
            return storage_error(verb, path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
        answer = " ".join(filter(None, [str(error.status or ""), error.code])) or "no answer"
        tries = f", after {error.tries} tries" if error.tries > 1 else ""
        why, advice = error.failure.value, _ADVICE[error.failure]
        if error.code in _NO_BUCKET:
            why, advice = f"the bucket {self._authority} does not exist", "check its name, the endpoint and the region"
        elif error.code == "HttpNotAllowed":
            advice = _PLAIN_HTTP
        return StorageError(
            f"{path}: cannot {verb}: {why} ({answer}{tries}); {advice}",
            path=path,
            operation=verb,
            errno=errno.EACCES if error.failure is Failure.DENIED else errno.EIO,
            status=error.status,
            code=error.code,
            tries=error.tries,
            effect="unknown" if error.may_have_happened else "none",
        )

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        """Read an object, in one request."""
        return self._get("read", path)[0]

    def _get(self, verb: str, path: str) -> tuple[bytes, ObjectInfo]:
        key = self._key(path)
        found = self._run(verb, path, lambda _: self.store.get(key))
        self.counted.add(1, len(found[0]))
        return found

    def read_version(self, path: str) -> tuple[bytes, str]:
        """Content and version, in one request."""
        data, info = self._get("read", path)
        return data, info.version

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range; gaps up to 512 KiB are read too. Ranges that lie apart are read at the same time."""
        key = self._key(path)
        merged = merged_ranges(ranges, max_gap=_MAX_GAP)
        wanted = [(start, end) for start, end, _ in merged]
        parts = self._run("read", path, lambda _: self.store.get_ranges(key, wanted)) if wanted else []
        self.counted.add(len(wanted), sum(map(len, parts)))
        found = [b""] * len(ranges)
        for (low, _, covered), part in zip(merged, parts, strict=True):
            for index in covered:
                found[index] = part[ranges[index][0] - low : ranges[index][1] - low]
        return found

    def _head(self, path: str) -> ObjectInfo:
        key = self._key(path)
        return self._run("look at", path, lambda _: self.store.head(key))

    def size(self, path: str) -> int:
        """Size in bytes."""
        return self._head(path).size

    def modified(self, path: str) -> int:
        """Modification time by the store's clock, epoch milliseconds; S3 has whole seconds."""
        return self._head(path).modified

    def exists(self, path: str) -> bool:
        """Whether there is an object, or one below the path; asks first for what the name looks like."""
        name = path.rpartition("/")[2]
        looks = (self._is_object, self._is_prefix) if "." in name[1:] else (self._is_prefix, self._is_object)
        return any(look(path) for look in looks)

    def _is_object(self, path: str) -> bool:
        try:
            self._head(path)
        except FileNotFoundError:
            return False
        return True

    def _is_prefix(self, path: str) -> bool:
        key = self._key(path)
        found = self._run("look at", path, lambda _: self.store.list(key))
        return bool(found.objects or found.prefixes)

    def is_link(self, path: str) -> bool:
        """False: object stores have no links."""
        del path
        return False

    def _entries(self, path: str) -> list[FileInfo]:
        key = self._key(path)
        found = self._run("list", path, lambda _: self.store.list(key))
        self.counted.add(1, 0)
        skip = len(key) + 1 if key else 0
        files = [FileInfo(info.key[skip:], info.size, info.modified) for info in found.objects]
        folders = [FileInfo(prefix.rstrip("/")[skip:], 0, 0, is_dir=True) for prefix in found.prefixes]
        # Some programs put an object of the folder's own name.
        return sorted((entry for entry in files + folders if entry.name), key=lambda entry: entry.name)

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries by name, without checksum side files."""
        entries = self._entries(path)
        return [entry for entry in entries if not is_checksum(entry.name)]

    def list_tree(self, path: str) -> FileTree | None:
        """Entries of a folder and of all folders below it, by path below it."""
        key = self._key(path)
        found = self._run("list", path, lambda _: self.store.list_all(key))
        self.counted.add(1, 0)
        files = []
        for info in found:
            folder, _, name = info.key[len(key) + 1 if key else 0 :].rpartition("/")
            # Some programs put an object of a folder's own name.
            if name and not is_checksum(name):
                files.append((folder, FileInfo(name, info.size, info.modified)))
        return as_tree(files)

    def entries(self, path: str) -> dict[str, bool]:
        """All direct entries, and whether each is a folder."""
        return {entry.name: entry.is_dir for entry in self._entries(path)}

    def open_input(self, path: str) -> BinaryIO:
        """Open an object for reading; the first request brings its end, and often all of it."""
        key = self._key(path)
        tail, info = self._run("read", path, lambda _: self.store.get_tail(key, BLOCK_BYTES))
        self.counted.add(1, len(tail))
        return cast("BinaryIO", _Reader(self, path, info.size, tail))

    # ------------------------------------------------------------------------------------------------------ writing

    def create(self, path: str, data: bytes) -> None:
        """Put if absent."""
        self._prove(path)
        self._create(path, data)

    def _create(self, path: str, data: bytes) -> str:
        """Put if absent; return the version."""
        key = self._key(path)

        def send(again: bool) -> str | None:
            try:
                return self.store.put(key, data, ABSENT)
            except RequestError as error:
                # Empty objects are equal: the one that is there is another's, unless an answer was lost.
                if error.failure is not Failure.CHANGED or not (again or data):
                    raise
                return self._own_version(path, data)

        version = self._put("create", path, data, send)
        if version is None:
            raise storage_error("create", path, FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)))
        return version

    def put_version(self, path: str, data: bytes, version: str | None) -> str:
        """Replace ``version`` of an object, or create it if ``version`` is None; return the new version."""
        self._prove(path)
        if version is None:
            try:
                return self._create(path, data)
            except FileTakenError:
                raise VersionChangedError(f"{path}: another version") from None
        return self._replace(path, data, version)

    def _replace(self, path: str, data: bytes, version: str) -> str:
        key = self._key(path)

        def send(_: bool) -> str | None:
            try:
                return self.store.put(key, data, version)
            except RequestError as error:
                if error.failure is not Failure.CHANGED:
                    raise
                return self._own_version(path, data)

        found = self._put("write", path, data, send)
        if found is None:
            raise VersionChangedError(f"{path}: another version")
        return found

    def _put(self, verb: str, path: str, data: bytes, send: Callable[[bool], str | None]) -> str | None:
        """Run a conditional put; when it fails for good, find out whether it took effect all the same."""
        try:
            return self._shared.retries.run(send)
        except RequestError as error:
            if error.failure is Failure.CHANGED:
                return None
            if error.may_have_happened:
                try:
                    own = self._own_version(path, data)
                except StorageError:
                    raise self._error(verb, path, error) from None
                if own is not None:
                    return own
                error.may_have_happened = error.may_happen_yet
            raise self._error(verb, path, error) from None

    def _own_version(self, path: str, data: bytes) -> str | None:
        """Version of the object if it has these bytes; None if it has others or is not there."""
        try:
            found, info = self._get("read back", path)
        except FileNotFoundError:
            return None
        return info.version if found == data else None

    def _prove(self, path: str) -> None:
        """Make sure, once in this process, that the store keeps to conditions.

        Raises:
            UnsupportedFeatureError: it does not.
        """
        shared = self._shared
        with shared.guard:
            if shared.proved:
                return
            base, found, _ = path.partition("/.hoodie/")
            folder = f"{base}/.hoodie" if found else path.rpartition("/")[0]
            probe = f"{folder}/.lakedex-probe-{uuid.uuid4().hex}"
            key = self._key(probe)
            try:
                version = self._create(probe, probe.encode())
                wrong = _DIGIT.sub(lambda digit: str((int(digit[0]) + 1) % 10), version, count=1)
                kept = [self._is_refused(probe, key, condition) for condition in (ABSENT, wrong)]
            except StorageError as error:
                if getattr(error, "status", None) != 501:
                    raise
                kept = [False]
            self.delete(probe)
            if not all(kept):
                raise UnsupportedFeatureError(
                    f"{path}: {self.store.url} does not keep to conditional writes (If-None-Match, If-Match), so "
                    "writers could replace each other's commits; tables there can only be read",
                    feature="write without put-if-absent",
                )
            shared.proved = True

    def _is_refused(self, path: str, key: str, condition: str) -> bool:
        """Whether a condition that does not hold is refused."""
        try:
            self._shared.retries.run(lambda _: self.store.put(key, b"replaced", condition))
        except RequestError as error:
            if error.failure is Failure.CHANGED:
                return True
            raise self._error("write", path, error) from None
        return False

    def write(self, path: str, data: bytes) -> None:
        """Put, replacing what is there."""
        key = self._key(path)
        self._run("write", path, lambda _: self.store.put(key, data))

    def open_output(self, path: str) -> BinaryIO:
        """Open a new object for writing; it is put when the output is closed."""
        self._key(path)
        return cast("BinaryIO", _Writer(self, path))

    def put_file(self, path: str, source: BinaryIO, size: int) -> None:
        """Put what a file holds.

        Args:
            path: the object.
            source: a file that is read from its start.
            size: its size in bytes.
        """
        key = self._key(path)
        self._run("write", path, lambda _: self.store.put_file(key, source, size))

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._delete(path, [self._key(path)])

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove objects."""
        if paths:
            self._delete(paths[0], [self._key(path) for path in paths])

    def _delete(self, path: str, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), DELETED_AT_ONCE):
            chunk = keys[first : first + DELETED_AT_ONCE]
            self._run("delete", path, lambda _, chunk=chunk: self.store.delete(chunk))  # type: ignore[misc]

    def delete_tree(self, path: str) -> None:
        """Remove all objects below a path."""
        key = self._key(path)
        if not key:
            raise OSError(errno.EINVAL, "a whole bucket is not deleted", path)
        found = self._run("list", path, lambda _: self.store.list_all(key))
        self._delete(path, [info.key for info in found])

    def remove_empty(self, path: str) -> None:
        """Do nothing: a folder without objects is not there."""

    def make_dirs(self, path: str) -> None:
        """Do nothing: folders are prefixes."""

    def batched(self, root: str) -> ObjectStorage:
        """Return itself: object stores acknowledge durable writes only."""
        del root
        return self

    def sync(self) -> None:
        """Do nothing."""


class _Reader(io.RawIOBase):
    """An object opened for reading, with the block that was read last."""

    def __init__(self, storage: ObjectStorage, path: str, size: int, tail: bytes) -> None:
        self._storage, self._path, self._size = storage, path, size
        self._block, self._block_start = tail, size - len(tail)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        start = self._at
        if start >= end:
            return b""
        if not (self._block_start <= start and end <= self._block_start + len(self._block)):
            until = min(self._size, max(end, start + BLOCK_BYTES))
            (self._block,), self._block_start = self._storage.read_ranges(self._path, [(start, until)]), start
        self._at = end
        return self._block[start - self._block_start : end - self._block_start]

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Writer(io.RawIOBase):
    """A new object; nothing is put if it is never closed, or left by an exception."""

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self._storage, self._path = storage, path
        self._content: Any = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 – closed by close()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._content.tell())

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        self._content.write(view)
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with self._content as content:
            self._storage.put_file(self._path, content, content.tell())

    def _discard(self) -> None:
        if not self.closed:
            super().close()
            self._content.close()

    def __exit__(self, kind: Any, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    def __del__(self) -> None:
        self._discard()
