"""Inspect and remove folders without following links; hidden files count as content."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

from lakedex.errors import InvalidInputError
from lakedex.io.storage import Storage, TableFiles

__all__ = ["entries_of", "links_below", "remove_empty"]


def links_below(files: TableFiles, folders: Iterable[str]) -> Iterator[str]:
    """Links on the way from a table, which may itself be one, down to each of the folders; one lookup per folder."""
    if files.storage.scheme != "file":
        return  # Object stores have no links.
    seen: set[str] = set()
    for folder in folders:
        path = files.base_path
        for part in folder.split("/") if folder else ():
            path = f"{path}/{part}"
            if path not in seen:
                seen.add(path)
                if files.storage.is_link(path):
                    yield path


def entries_of(storage: Storage, path: str) -> dict[str, bool]:
    """Entries of a folder, and whether each is a folder itself; links count as files. Empty if there is no folder.

    Raises:
        InvalidInputError: The path is a link or a file.
    """
    if storage.scheme != "file":
        return {entry.name: entry.is_dir for entry in storage.list(path)}
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
        raise InvalidInputError(f"{path} is a {'link' if os.path.islink(path) else 'file'}, not a folder")
    try:
        with os.scandir(path) as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except FileNotFoundError:
        return {}


def remove_empty(storage: Storage, path: str) -> None:
    """Remove a folder if it is empty."""
    if storage.scheme != "file":
        if not storage.list(path):
            storage.delete_tree(path)
        return
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
