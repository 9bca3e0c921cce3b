"""Failures of file systems as :class:`lakedex.errors.StorageError`: which file, what was done to it, what helps.

=====================================  ======================================================
``FileNotFoundError``                  :class:`lakedex.errors.FileGoneError`
``FileExistsError``                    :class:`lakedex.errors.FileTakenError`
another ``OSError``                    :class:`lakedex.errors.StorageError`
a path that no file system takes       the same: NUL, or halves of characters
=====================================  ======================================================
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from lakedex.errors import FileGoneError, FileTakenError, LakedexError, StorageError

__all__ = ["OPERATIONS", "first_argument", "storage_error", "typed_failures"]

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
