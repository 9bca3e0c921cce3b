"""The storage protocol: the one way to touch files, and readers that coalesce or note ranges.

The one way to touch files: a small protocol that every store answers.

Paths are absolute store paths, ``/``-separated text. A storage pickles: tasks carry it to executors.
Hudi writes some files on local disks with a ``.<name>.crc`` side file; whoever replaces or deletes a file
through :meth:`Storage.write` or :meth:`Storage.delete` also removes that side file, else Java's checksum
file system refuses the new bytes.

Byte ranges: near ones become one request, and each caller's range is cut out of the answer again.

A reader over another one, for those that note what is read.

Failures of file systems as :class:`lakedex.errors.StorageError`: which file, what was done to it, what helps.

=====================================  ======================================================
``FileNotFoundError``                  :class:`lakedex.errors.FileGoneError`
``FileExistsError``                    :class:`lakedex.errors.FileTakenError`
another ``OSError``                    :class:`lakedex.errors.StorageError`
a path that no file system takes       the same: NUL, or halves of characters
=====================================  ======================================================
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, BinaryIO, Protocol, TypeVar, runtime_checkable

from lakedex.errors import FileGoneError, FileTakenError, LakedexError, StorageError
from lakedex.types import IoCount

__all__ = [
    "OPERATIONS",
    "FileInfo",
    "Storage",
    "VersionChangedError",
    "WrappedReader",
    "first_argument",
    "read_coalesced",
    "storage_error",
    "typed_failures",
]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing: ``name`` without folder, ``size`` in bytes, ``modified`` in epoch milliseconds.

    Of a link these are what it leads to.
    """

    name: str
    size: int
    modified: int
    is_dir: bool = False
    is_link: bool = False


@runtime_checkable
class Storage(Protocol):
    """A store of files."""

    @property
    def scheme(self) -> str:
        """Name of the store: ``file``, ``s3``, ``memory``."""

    @property
    def can_create_exclusively(self) -> bool:
        """Whether :meth:`create` is atomic put-if-absent; writes to tables are refused without it."""

    @property
    def counted(self) -> IoCount:
        """Requests and bytes of all reads of this object so far."""

    def read(self, path: str) -> bytes:
        """Whole content. Raises ``FileNotFoundError``."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range ``[start, end)``, near ones fetched by one request; short at the end of the file."""

    def size(self, path: str) -> int:
        """Size in bytes. Raises ``FileNotFoundError``."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a link; never on an object store."""

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds. Raises ``FileNotFoundError``."""

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries, sorted by name, ``.crc`` side files left out; empty for a missing folder."""

    def create(self, path: str, data: bytes) -> None:
        """Write a new file atomically and durably, folders made. Raises ``FileExistsError`` if there is one."""

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def delete_tree(self, path: str) -> None:
        """Remove a folder and all in it; nothing happens if there is none. Of links only the link goes."""

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents (a no-op on object stores)."""

    def open_input(self, path: str) -> BinaryIO:
        """A seekable reader for pyarrow. Raises ``FileNotFoundError``."""

    def open_output(self, path: str) -> BinaryIO:
        """A writer for a new file, folders made; durable once closed. Raises ``FileExistsError`` if it can tell."""

    def gather(self, root: str) -> Storage:
        """The same store, for one thread that makes many files below ``root``: durable once :meth:`settle` returned.

        What :meth:`write` and :meth:`open_output` of it make is there at once; only a loss of power may take it until
        then, and no name of an empty file (a marker) while it leaves a file that was made after it. So it replaces
        nothing that anybody needs. :meth:`create` is durable as ever: others may rely on its file.
        """

    def settle(self) -> None:
        """Make durable what a gathering storage has written; nothing to do for another."""


def read_coalesced(
    ranges: Sequence[tuple[int, int]], fetch: Callable[[int, int], bytes], *, max_gap: int
) -> tuple[list[bytes], int]:
    """Read half-open ranges with as few ``fetch(start, end)`` calls as gaps of at most ``max_gap`` bytes allow.

    Args:
        ranges: ``[start, end)`` pairs in any order; they may overlap; an empty one costs nothing.
        fetch: Reads one range; may answer short at the end of the file.
        max_gap: Bytes worth reading for nothing rather than asking once more.

    Returns:
        The bytes of each range in the caller's order, and the number of ``fetch`` calls.
    """
    results = [b""] * len(ranges)
    wanted = sorted((start, end, index) for index, (start, end) in enumerate(ranges) if end > start)
    calls = 0
    first = 0
    while first < len(wanted):
        low, high, _ = wanted[first]
        if low < 0:
            raise ValueError(f"byte range [{low}, {high}) starts before the file")
        last = first + 1
        while last < len(wanted) and wanted[last][0] <= high + max_gap:
            high = max(high, wanted[last][1])
            last += 1
        data = fetch(low, high)
        calls += 1
        for start, end, index in wanted[first:last]:
            results[index] = data[start - low : end - low]
        first = last
    return results, calls


class WrappedReader(io.RawIOBase):
    """Passes everything on; a subclass does so in :meth:`read`."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """See :meth:`io.IOBase.seek`."""
        return int(self._source.seek(offset, whence))

    def tell(self) -> int:
        """See :meth:`io.IOBase.tell`."""
        return int(self._source.tell())

    def readinto(self, buffer: Any, /) -> int:
        """See :meth:`io.RawIOBase.readinto`."""
        data = self.read(len(buffer)) or b""
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the source too."""
        if not self.closed:
            self._source.close()
            super().close()


C = TypeVar("C", bound=type)


OPERATIONS: Mapping[str, str] = {
    "read": "read",
    "read_ranges": "read",
    "size": "look at",
    "modified": "look at",
    "list": "list",
    "create": "create",
    "write": "write",
    "delete": "delete",
    "delete_tree": "delete",
    "make_dirs": "create",
    "open_input": "read",
    "open_output": "create",
    "settle": "write",
}
"""Methods of a storage, and what each does to its first argument."""


_UNFINISHED = "nothing of an unfinished write is visible, and the next write removes what is left of it"


_FULL = f"make room; {_UNFINISHED}"


_DENIED = "check the file's owner and permissions, and whether the file system is mounted read-only"


_HANDLES = "raise the limit of open files (ulimit -n)"


_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"the file system does not hold files of this size; {_UNFINISHED}",
    errno.EROFS: _DENIED,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENAMETOOLONG: "most file systems take 255 bytes a name; shorten the partition value that the folder has",
    errno.EMFILE: _HANDLES,
    errno.ENFILE: _HANDLES,
    errno.ELOOP: "files of a table are no links; put the file itself there",
    errno.EIO: f"check the disk; {_UNFINISHED}",
}


_CLEANED = (
    "the cleaner may have removed it since the table was opened; open the table again, and raise "
    "hoodie.clean.commits.retained if queries run longer than that many commits take"
)


_MISSING = "open the table again: another process may have removed it"


def storage_error(operation: str, path: str, error: Exception) -> StorageError:
    """The error of lakedex for what a file system raised.

    Args:
        operation: a verb.
        path: the file or folder.
        error: what was raised.
    """
    number: int | None = getattr(error, "errno", None)
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    name = f" ({errno.errorcode[number]})" if number is not None and number in errno.errorcode else ""
    cls, advice = StorageError, _ADVICE.get(number or 0, "")
    if isinstance(error, FileNotFoundError):
        is_data = path.endswith(".parquet") or ".log." in path
        cls, advice = FileGoneError, _CLEANED if is_data else _MISSING
    elif isinstance(error, FileExistsError):
        cls = FileTakenError
    text = f"{path}: cannot {operation}: {why}{name}"
    return cls(f"{text}; {advice}" if advice else text, path=path, operation=operation, errno=number)


def typed_failures(operations: Mapping[str, str], path_of: Callable[[Any, tuple[Any, ...]], str]) -> Callable[[C], C]:
    """Decorate a class some of whose methods raise what a file system does.

    Args:
        operations: methods, and the verb for each.
        path_of: the path that a call is about, of the object and the call's arguments.
    """

    def decorate(cls: C) -> C:
        for name, operation in operations.items():
            setattr(cls, name, _typed(getattr(cls, name), operation, path_of))
        return cls

    return decorate


def _typed(
    method: Callable[..., Any], operation: str, path_of: Callable[[Any, tuple[Any, ...]], str]
) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except LakedexError:
            raise
        except OSError as error:
            raise storage_error(operation, path_of(self, args), error) from error
        except ValueError as error:
            path = path_of(self, args)
            if "\0" not in path and path.isprintable():
                raise
            raise storage_error(operation, repr(path), error) from error

    return call


def first_argument(storage: Any, args: tuple[Any, ...]) -> str:
    """The path of a call of a storage; without arguments, nothing that has a name."""
    del storage
    return os.fspath(args[0]) if args else "files of this write"


class VersionChangedError(LakedexError):
    """A conditional write met another version of the object than it was for. Nothing was written."""
