"""Folders as they are, before one is taken for a table or removed: hidden files count, and links are not followed."""

from __future__ import annotations

import errno
import os

from lakedex.errors import InvalidInputError
from lakedex.io.storage import Storage

__all__ = ["entries_of", "linked_to", "remove_empty"]


def linked_to(storage: Storage, root: str, path: str) -> str | None:
    """Where a path below ``root`` leads if a link stands in between, else None. ``root`` itself may be a link."""
    if storage.scheme != "file":
        return None
    found = os.path.realpath(path)
    return None if found == os.path.join(os.path.realpath(root), os.path.relpath(path, root)) else found


def entries_of(storage: Storage, path: str) -> dict[str, bool]:
    """All that a folder holds, and whether each is a folder; a link is none. Empty where there is no folder.

    Raises:
        InvalidInputError: there is something else: a link or a file.
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
    """Remove a folder that has nothing in it; one that something came into stays."""
    if storage.scheme != "file":
        if not storage.list(path):
            storage.delete_tree(path)
        return
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
