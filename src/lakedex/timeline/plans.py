"""Plans of a timeline, each read and decoded once: a file of the same size and time in a later listing is the same.

A damaged one is kept as its error. So a folder full of them costs one read each, however many look for theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from lakedex.errors import CorruptFileError
from lakedex.io.storage import FileInfo, Storage

__all__ = ["Plans"]

T = TypeVar("T")


class Plans:
    """The ``.requested`` files of one listing, and what was read of them.

    Args:
        storage: Where the timeline lies.
        path: The timeline's folder.
        infos: The listing.
        known: Plans of an earlier listing.
    """

    __slots__ = ("_listed", "_path", "_read", "_storage")

    def __init__(self, storage: Storage, path: str, infos: Iterable[FileInfo], known: Plans | None = None) -> None:
        self._storage = storage
        self._path = path
        self._listed = {info.name: info for info in infos if info.name.endswith(".requested")}
        self._read: dict[FileInfo, object] = {}
        if known is not None:
            kept = set(self._listed.values())
            self._read = {info: plan for info, plan in tuple(known._read.items()) if info in kept}

    def read(self, name: str, decode: Callable[[bytes, str], T]) -> T:
        """A plan by its file's name.

        Raises:
            CorruptFileError: It is damaged.
            FileNotFoundError: It is gone.
        """
        info = self._listed.get(name)
        found = None if info is None else self._read.get(info)
        if found is None:
            path = f"{self._path}/{name}"
            try:
                found = decode(self._storage.read(path), path)
            except CorruptFileError as error:
                found = error.with_traceback(None)
            if info is not None:
                self._read[info] = found
        if isinstance(found, CorruptFileError):
            raise found
        return found  # type: ignore[return-value]  # A file is read by one decoder.
