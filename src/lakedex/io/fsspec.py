"""Access file systems through fsspec: ``memory:``, and for reading what has no storage of its own (``hdfs:``).

Writing a table needs put-if-absent, which of fsspec's file systems only the one in memory is known to have.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import io
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from lakedex.errors import InvalidInputError, MissingDependencyError, UnsupportedFeatureError
from lakedex.io.storage import (
    OPERATIONS,
    FileInfo,
    FileTree,
    VersionChangedError,
    WrappedReader,
    as_tree,
    first_argument,
    is_checksum,
    read_coalesced,
    typed_failures,
)
from lakedex.types import IoCount

__all__ = ["FsspecStorage", "open_fsspec"]


_MAX_GAP = 512 * 1024


_MEMORY_LOCK = threading.Lock()  # fsspec's memory store checks and stores in two steps


def _epoch_ms(info: Mapping[str, Any]) -> int:
    for key in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        value = info.get(key)
        if isinstance(value, datetime.datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return int(value * 1000)
        if isinstance(value, str):
            try:
                return int(datetime.datetime.fromisoformat(value).timestamp() * 1000)
            except ValueError:
                continue
    return 0


def _file_info(name: str, entry: Mapping[str, Any]) -> FileInfo | None:
    """An entry of a listing; None for the marker of a folder, and for a checksum."""
    if not name or is_checksum(name):
        return None
    is_dir = entry.get("type") == "directory"
    return FileInfo(name, 0 if is_dir else int(entry.get("size") or 0), 0 if is_dir else _epoch_ms(entry), is_dir)


class _CountedReader(WrappedReader):
    """Reader of an fsspec file that counts its requests."""

    def __init__(self, source: BinaryIO, count: IoCount) -> None:
        super().__init__(source)
        self._count = count

    def read(self, size: int | None = -1, /) -> bytes:
        data = bytes(self._source.read(-1 if size is None else size))
        self._count.add(1, len(data))
        return data


@typed_failures({**OPERATIONS, "read_version": "read", "put_version": "write"}, first_argument)
@dataclass(frozen=True, slots=True)
class FsspecStorage:
    """File system of fsspec. Paths may have a scheme; fsspec strips it.

    ``counted`` counts reads and listings as one request each; lookups of one file's size or time are not counted.
    """

    fs: Any
    protocol: str
    counted: IoCount = field(default_factory=IoCount, compare=False)

    @property
    def scheme(self) -> str:
        """The protocol, as in ``s3`` or ``memory``."""
        return self.protocol

    @property
    def can_create_exclusively(self) -> bool:
        """Whether the implementation is known to have put-if-absent."""
        return self.protocol == "memory"

    def _info(self, path: str) -> Mapping[str, Any]:
        # Bypass cached listings, which may be older than another writer's commit.
        self.fs.invalidate_cache(self._parent(path))
        return cast("Mapping[str, Any]", self.fs.info(path))

    def _parent(self, path: str) -> str:
        return str(self.fs._parent(path))

    def read(self, path: str) -> bytes:
        """Read a file."""
        data = bytes(self.fs.cat_file(path))
        self.counted.add(1, len(data))
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range; gaps up to 512 KiB are fetched too."""

        def fetch(start: int, end: int) -> bytes:
            data = bytes(self.fs.cat_file(path, start=start, end=end))
            self.counted.add(1, len(data))
            return data

        return read_coalesced(ranges, fetch, max_gap=_MAX_GAP)[0]

    def size(self, path: str) -> int:
        """Size in bytes."""
        return int(self._info(path)["size"])

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        try:
            self._info(path)
        except FileNotFoundError:
            return False
        return True

    def is_link(self, path: str) -> bool:
        """False: object stores have no links."""
        del path
        return False

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds."""
        return _epoch_ms(self._info(path))

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries by name, without checksum side files."""
        self.counted.add(1, 0)
        self.fs.invalidate_cache(path)
        try:
            entries = self.fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        own = str(self.fs._strip_protocol(path)).rstrip("/")
        found = []
        for entry in entries:
            full = str(entry["name"]).rstrip("/")
            # Stores list the marker object of a folder among its children.
            if full != own and (info := _file_info(full.rsplit("/", 1)[-1], entry)) is not None:
                found.append(info)
        return sorted(found, key=lambda info: info.name)

    def list_tree(self, path: str) -> FileTree | None:
        """Entries of a folder and of all folders below it, by path below it."""
        if self.protocol != "memory":
            return None
        self.counted.add(1, 0)
        self.fs.invalidate_cache()
        own = str(self.fs._strip_protocol(path)).rstrip("/")
        found = []
        for full, entry in self.fs.find(path, detail=True).items():
            folder, _, name = str(full).removeprefix(f"{own}/").rpartition("/")
            if (info := _file_info(name, entry)) is not None:
                found.append((folder, info))
        return as_tree(found)

    def entries(self, path: str) -> dict[str, bool]:
        """All direct entries, and whether each is a folder; an empty folder does not exist."""
        return {entry.name: entry.is_dir for entry in self.list(path)}

    def create(self, path: str, data: bytes) -> None:
        """Put if absent."""
        if not self.can_create_exclusively:
            raise UnsupportedFeatureError(
                f"{path}: writing tables needs put-if-absent, which lakedex does not support "
                f"on '{self.protocol}'; the table can only be read",
                feature="write without put-if-absent",
            )
        with _MEMORY_LOCK:
            try:
                self.fs.pipe_file(path, data, mode="create")
            except FileExistsError as error:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error

    @property
    def has_conditional_put(self) -> bool:
        """Whether an object can be replaced only if it is a certain version."""
        return self.can_create_exclusively

    def read_version(self, path: str) -> tuple[bytes, str]:
        """Content and version."""
        data = self.read(path)
        return data, hashlib.sha256(data).hexdigest()

    def put_version(self, path: str, data: bytes, version: str | None) -> str:
        """Replace ``version`` of an object, or create it if ``version`` is None."""
        with _MEMORY_LOCK:
            found = self.read_version(path)[1] if self.fs.exists(path) else None
            if found != version:
                raise VersionChangedError(f"{path}: another version")
            self.fs.pipe_file(path, data)
            return hashlib.sha256(data).hexdigest()

    def write(self, path: str, data: bytes) -> None:
        """Put, replacing what is there."""
        self._delete_side_file(path)
        self.fs.pipe_file(path, data)
        self.fs.invalidate_cache(self._parent(path))

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._delete_side_file(path)
        self._rm(path)

    def _rm(self, path: str) -> None:
        try:
            self.fs.rm_file(path)
        except FileNotFoundError:
            pass
        self.fs.invalidate_cache(self._parent(path))

    def _delete_side_file(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._rm(f"{folder}/.{name}.crc")

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, one by one."""
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        """Remove all under a folder."""
        self.fs.invalidate_cache()
        try:
            self.fs.rm(path, recursive=True)
        except FileNotFoundError:
            pass
        self.fs.invalidate_cache()

    def remove_empty(self, path: str) -> None:
        """Remove what stands for a folder if it is empty."""
        if not self.list(path):
            self.delete_tree(path)

    def make_dirs(self, path: str) -> None:
        """Make a folder."""
        self.fs.makedirs(path, exist_ok=True)

    def open_input(self, path: str) -> BinaryIO:
        """Open a file for reading; seekable and counted."""
        # fsspec's memory store returns one shared file object, including its position.
        source = io.BytesIO(self.fs.cat_file(path)) if self.protocol == "memory" else self.fs.open(path, "rb")
        return cast("BinaryIO", _CountedReader(source, self.counted))

    def open_output(self, path: str) -> BinaryIO:
        """Open a new file for writing, visible once closed."""
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.make_dirs(self._parent(path))
        return cast("BinaryIO", self.fs.open(path, "wb"))

    def batched(self, root: str) -> FsspecStorage:
        """Return itself: object stores acknowledge durable writes only."""
        del root
        return self

    def sync(self) -> None:
        """Do nothing."""


def open_fsspec(protocol: str) -> FsspecStorage:
    """The file system of a protocol.

    Raises:
        MissingDependencyError: its package is not installed.
        InvalidInputError: fsspec knows no such file system, or cannot open it.
    """
    try:
        import fsspec

        fs = fsspec.filesystem(protocol, use_listings_cache=False)
    except ImportError as error:
        raise MissingDependencyError(
            f"paths of '{protocol}:' need an additional package ({error})", extra=protocol
        ) from error
    except OSError as error:  # libhdfs is loaded here, in a Java that may not be there.
        first = str(error).partition("\n")[0]
        raise InvalidInputError(
            f"'{protocol}:' paths cannot be opened ({first}); hdfs needs libhdfs and Java: JAVA_HOME, HADOOP_HOME and "
            "CLASSPATH=$(hadoop classpath --glob). Or give the path of a mount"
        ) from error
    except ValueError as error:
        if "Protocol not known" not in str(error):
            raise
        raise InvalidInputError(
            f"fsspec has no file system for '{protocol}:' paths; install the package that has it, or give a local path"
        ) from error
    return FsspecStorage(fs, protocol)
