"""Inspect and remove folders without following links; hidden files count as content."""

from __future__ import annotations

import errno
import os

from lakedex.errors import InvalidInputError
from lakedex.io.storage import Storage

__all__ = ["entries_of", "linked_to", "remove_empty"]


def linked_to(storage: Storage, root: str, path: str) -> str | None:
    """Target of a path below ``root`` if there is a link on the way, else None. ``root`` itself may be a link."""
    if storage.scheme != "file":
        return None
    found = os.path.realpath(path)
    return None if found == os.path.join(os.path.realpath(root), os.path.relpath(path, root)) else found


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
