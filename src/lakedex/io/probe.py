"""Try whether tables can be written in a folder: put-if-absent and the table's lock, with files of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from uuid import uuid4

from lakedex.errors import LakedexError
from lakedex.io.locations import open_storage
from lakedex.io.locks import TableLock
from lakedex.io.storage import Storage, TableFiles

__all__ = ["FolderProbe", "probe_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderProbe:
    """The result of :func:`probe_folder`.

    Attributes:
        folder: the folder.
        scheme: its kind of storage.
        put_if_absent: a file that is there is not created a second time.
        lock: a table's lock excludes a second holder, and is gone when it is released.
        problem: why something does not work; empty if everything does.
    """

    folder: str
    scheme: str
    put_if_absent: bool = False
    lock: bool = False
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether tables can be written there."""
        return self.put_if_absent and self.lock


def probe_folder(path: str | os.PathLike[str]) -> FolderProbe:
    """Try whether tables can be written in a folder, with files that are removed again.

    Args:
        path: a local folder, or a storage URL.

    Returns:
        Whether put-if-absent and locks work there, and else why not.

    Raises:
        MissingDependencyError: the package of the file system is not installed.

    Example:
        >>> probe_folder(folder).ok
        True
    """
    files = open_storage(path)
    storage, folder, scheme = files.storage, files.base_path, files.storage.scheme
    if scheme == "file" and not storage.exists(folder):
        return FolderProbe(folder=folder, scheme=scheme, problem="there is no such folder")
    if not storage.can_create_exclusively:
        why = f"lakedex knows no put-if-absent of '{scheme}': tables there can only be read"
        return FolderProbe(folder=folder, scheme=scheme, problem=why)
    own = f"{folder}/.lakedex-probe-{uuid4().hex}"
    is_exclusive = False
    try:
        is_exclusive = _refuses_second(storage, f"{own}/file")
        with TableLock(TableFiles(storage, own), timeout_s=10) as lock:
            excludes = not is_exclusive or _is_taken(storage, lock.path)
        is_free = not storage.exists(lock.path)
    except (LakedexError, OSError) as error:
        return FolderProbe(folder=folder, scheme=scheme, put_if_absent=is_exclusive, problem=str(error))
    finally:
        if storage.exists(own):
            storage.delete_tree(own)
    works = excludes and is_free
    problem = "" if is_exclusive and works else "a file was created twice" if not is_exclusive else "the lock stays"
    return FolderProbe(folder=folder, scheme=scheme, put_if_absent=is_exclusive, lock=works, problem=problem)


def _refuses_second(storage: Storage, path: str) -> bool:
    storage.create(path, b"first")
    return _is_taken(storage, path) and storage.read(path) == b"first"


def _is_taken(storage: Storage, path: str) -> bool:
    try:
        storage.create(path, b"second")
    except FileExistsError:
        return True
    return False
