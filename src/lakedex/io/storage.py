"""Storage protocol through which all files are accessed, with coalesced reads and typed errors.

Paths are absolute, ``/``-separated text. A storage pickles, as tasks take it to executors. Hudi writes some files on
local disks with a ``.<name>.crc`` side file; :meth:`Storage.write` and :meth:`Storage.delete` remove the side file,
else Java's checksum file system would refuse the new bytes.

Errors of file systems become :class:`lakedex.errors.StorageError`, which names the file, the operation and a remedy:

=====================================  ======================================================
``FileNotFoundError``                  :class:`lakedex.errors.FileGoneError`
``FileExistsError``                    :class:`lakedex.errors.FileTakenError`
another ``OSError``                    :class:`lakedex.errors.StorageError`
a path that no file system accepts       the same: NUL, or lone surrogates
=====================================  ======================================================
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, BinaryIO, Protocol, TypeVar, runtime_checkable

from lakedex.errors import FileGoneError, FileTakenError, LakedexError, StorageError
from lakedex.types import IoCount

__all__ = [
    "DELETED_AT_ONCE",
    "OPERATIONS",
    "FileInfo",
    "FileTree",
    "Storage",
    "TableFiles",
    "VersionChangedError",
    "WrappedReader",
    "as_tree",
    "first_argument",
    "is_checksum",
    "merged_ranges",
    "read_coalesced",
    "storage_error",
    "typed_failures",
]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing: ``name`` without folder, ``size`` in bytes, ``modified`` in epoch milliseconds.

    For a link they describe its target.
    """

    name: str
    size: int
    modified: int
    is_dir: bool = False
    is_link: bool = False


DELETED_AT_ONCE = 1000
"""Files that object stores delete by one request."""


def is_checksum(name: str) -> bool:
    """Whether a file is the side file with which Hadoop checks another one on local disks."""
    return name.startswith(".") and name.endswith(".crc")


FileTree = dict[str, list[FileInfo]]
"""Entries of folders, by path below one."""


@runtime_checkable
class Storage(Protocol):
    """A file store."""

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
        """Read a file. Raises ``FileNotFoundError``."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range ``[start, end)``, adjacent ones in one request; truncated at the end of the file."""

    def size(self, path: str) -> int:
        """Size in bytes. Raises ``FileNotFoundError``."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a link; always False on object stores."""

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds. Raises ``FileNotFoundError``."""

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries, sorted by name, without ``.crc`` side files; empty for a missing folder."""

    def list_tree(self, path: str) -> FileTree | None:
        """Entries of a folder and of all folders below it, by path below it, each as :meth:`list` has them.

        One request for a thousand files on object stores. None where each folder is a listing of its own.
        """

    def entries(self, path: str) -> dict[str, bool]:
        """All direct entries, hidden ones too, and whether each is a folder; links count as files.

        Empty for a missing folder. Raises ``InvalidInputError`` for a link or a file.
        """

    def create(self, path: str, data: bytes) -> None:
        """Write a new file atomically and durably, with its folders. Raises ``FileExistsError``."""

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""

    def delete(self, path: str) -> None:
        """Remove a file; does nothing if there is none."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, on object stores a thousand by one request; does nothing for those that are not there."""

    def delete_tree(self, path: str) -> None:
        """Remove a folder and its content; does nothing if there is none. Links are not followed."""

    def remove_empty(self, path: str) -> None:
        """Remove a folder if there is nothing in it, not even a hidden file."""

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents (does nothing on object stores)."""

    def open_input(self, path: str) -> BinaryIO:
        """Open a file for reading, seekable for pyarrow. Raises ``FileNotFoundError``."""

    def open_output(self, path: str) -> BinaryIO:
        """Open a new file for writing, with its folders; durable once closed. May raise ``FileExistsError``."""

    def batched(self, root: str) -> Storage:
        """Same store, for a thread that writes many files below ``root``, durable once :meth:`sync` returns.

        Files of its :meth:`write` and :meth:`open_output` are visible at once; before the sync only a power failure may
        lose them, and never the name of an empty file (a marker) without the files written after it. So nothing that
        anybody needs is replaced. :meth:`create` is always durable, as others may rely on its file.
        """

    def sync(self) -> None:
        """Make the files of a batched storage durable; does nothing for another."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table: its storage and its folder. Pickles if the storage does; as text it is the folder.

    Attributes:
        storage: store of all its files.
        base_path: its folder, without a slash at the end.
    """

    storage: Storage
    base_path: str

    def __str__(self) -> str:
        return self.base_path

    def path(self, *parts: str) -> str:
        """Join a path below the folder; empty parts are left out (the partition path of a table without partitions)."""
        return "/".join([self.base_path, *filter(None, parts)])

    @property
    def has_latency(self) -> bool:
        """Whether requests are worth threads of their own; on a local disk starting one takes longer."""
        return self.storage.scheme != "file"

    @property
    def metadata(self) -> TableFiles:
        """The files of its metadata table."""
        return replace(self, base_path=self.path(".hoodie/metadata"))

    def temp(self, instant: str) -> str:
        """Folder of an instant's markers and spilled filters."""
        return self.path(".hoodie/.temp", instant)


def as_tree(files: Iterable[tuple[str, FileInfo]]) -> FileTree:
    """The answer of :meth:`Storage.list_tree`.

    Args:
        files: each with its folder, a path below the listed one.
    """
    found: dict[str, dict[str, FileInfo]] = {"": {}}
    for folder, info in files:
        path = folder
        while path not in found:
            found[path] = {}
            path = path.rpartition("/")[0]
        found[folder][info.name] = info
    for path in [path for path in found if path]:
        above, _, name = path.rpartition("/")
        found[above][name] = FileInfo(name, 0, 0, is_dir=True)
    return {path: [own[name] for name in sorted(own)] for path, own in found.items()}


def merged_ranges(ranges: Sequence[tuple[int, int]], *, max_gap: int) -> list[tuple[int, int, list[int]]]:
    """Merge half-open ranges whose gaps are cheaper to read than another request.

    Args:
        ranges: ``[start, end)`` pairs in any order; they may overlap; an empty one is left out.
        max_gap: Largest gap in bytes within a merged range.

    Returns:
        Start and end of each merged range, ascending, and the places in ``ranges`` of those it covers.
    """
    merged: list[tuple[int, int, list[int]]] = []
    for start, end, index in sorted((start, end, index) for index, (start, end) in enumerate(ranges) if end > start):
        if start < 0:
            raise ValueError(f"byte range [{start}, {end}) starts before the file")
        if merged and start <= merged[-1][1] + max_gap:
            low, high, covered = merged[-1]
            covered.append(index)
            merged[-1] = low, max(high, end), covered
        else:
            merged.append((start, end, [index]))
    return merged


def read_coalesced(
    ranges: Sequence[tuple[int, int]], fetch: Callable[[int, int], bytes], *, max_gap: int
) -> tuple[list[bytes], int]:
    """Read half-open ranges with as few ``fetch(start, end)`` calls as gaps of at most ``max_gap`` bytes allow.

    Args:
        ranges: ``[start, end)`` pairs in any order; they may overlap; an empty one costs nothing.
        fetch: Reads one range; may return fewer bytes at the end of the file.
        max_gap: Largest gap that is cheaper to read than another request.

    Returns:
        Bytes of each range in the caller's order, and the number of ``fetch`` calls.
    """
    results = [b""] * len(ranges)
    merged = merged_ranges(ranges, max_gap=max_gap)
    for low, high, covered in merged:
        data = fetch(low, high)
        for index in covered:
            results[index] = data[ranges[index][0] - low : ranges[index][1] - low]
    return results, len(merged)


class WrappedReader(io.RawIOBase):
    """Reader over another one; subclasses implement :meth:`read`."""

    def __init__(self, source: BinaryIO) -> None:
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
    "list_tree": "list",
    "entries": "list",
    "create": "create",
    "write": "write",
    "delete": "delete",
    "delete_all": "delete",
    "delete_tree": "delete",
    "remove_empty": "delete",
    "make_dirs": "create",
    "open_input": "read",
    "open_output": "create",
    "sync": "write",
}
"""Methods of a storage, with a verb for what each does to its first argument."""


_UNFINISHED = "an unfinished write is not visible, and the next write removes its remains"


_FULL = f"make room; {_UNFINISHED}"


_DENIED = "check the file's owner and permissions, and whether the file system is mounted read-only"


_HANDLES = "raise the limit of open files (ulimit -n)"


_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: f"the file system does not support files of this size; {_UNFINISHED}",
    errno.EROFS: _DENIED,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENAMETOOLONG: "most file systems take 255 bytes a name; shorten the partition value in the folder's name",
    errno.EMFILE: _HANDLES,
    errno.ENFILE: _HANDLES,
    errno.ELOOP: "files of a table must not be links; replace the link by the file",
    errno.EIO: f"check the disk; {_UNFINISHED}",
}


_CLEANED = (
    "the cleaner may have removed it since the table was opened; open the table again, and raise "
    "hoodie.clean.commits.retained if queries run longer than the retained commits; if it fails again, "
    "maintenance.validate() lists what is lost"
)


_MISSING = "open the table again: another process may have removed it"


def storage_error(operation: str, path: str, error: Exception) -> StorageError:
    """Convert an exception of a file system.

    Args:
        operation: Verb for the message.
        path: File or folder.
        error: Exception to convert.
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
    """Convert exceptions of file systems in some methods of a class.

    Args:
        operations: Verbs by method.
        path_of: Returns the path of a call, from the object and the call's arguments.
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
    """Path of a storage call; a description if the call has no arguments."""
    del storage
    if args and isinstance(args[0], list | tuple):
        return ", ".join(args[0][:3])
    return os.fspath(args[0]) if args else "files of this write"


class VersionChangedError(LakedexError):
    """A conditional write met another version of the object. Nothing was written."""
