"""Where a catalog's names lie: folders of the warehouse are namespaces, folders with ``.hoodie`` are tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakedex.errors import InvalidInputError
from lakedex.io.fsspec_storage import open_storage
from lakedex.io.storage import Storage
from lakedex.layout.names import join_path

__all__ = ["Warehouse", "is_path", "open_warehouse"]


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A folder of tables."""

    storage: Storage
    base_path: str

    def path(self, namespace: Sequence[str], name: str) -> str:
        """The folder of a table or, with a path for a name, that path.

        Raises:
            InvalidInputError: a name that would leave the warehouse.
        """
        if not namespace and is_path(name):
            return open_storage(name)[1]
        return join_path(self.folder(namespace), _part(name))

    def folder(self, namespace: Sequence[str]) -> str:
        """The folder of a namespace."""
        path = self.base_path
        for part in namespace:
            path = join_path(path, _part(part))
        return path

    def is_table(self, path: str) -> bool:
        """Whether a folder is a Hudi table."""
        return self.storage.exists(f"{path}/.hoodie")

    def is_namespace(self, namespace: Sequence[str]) -> bool:
        """Whether there is such a folder, and it is no table. The warehouse itself always is one."""
        if not namespace:
            return True
        folder = self.folder(namespace)
        return self.storage.exists(folder) and not self.is_table(folder)

    def entries(self, namespace: Sequence[str]) -> tuple[list[str], list[str]]:
        """Names of the tables and of the namespaces in a namespace."""
        tables: list[str] = []
        spaces: list[str] = []
        folder = self.folder(namespace)
        for entry in self.storage.list(folder):
            if entry.is_dir and not entry.name.startswith((".", "_")):
                (tables if self.is_table(f"{folder}/{entry.name}") else spaces).append(entry.name)
        return tables, spaces

    def is_empty(self, namespace: Sequence[str]) -> bool:
        """Whether a namespace's folder has nothing in it."""
        return not self.storage.list(self.folder(namespace))

    def drop_namespace(self, namespace: Sequence[str]) -> None:
        """Remove a namespace with its tables.

        Raises:
            InvalidInputError: the folder holds something that is neither.
        """
        self._check_droppable(namespace)
        self.storage.delete_tree(self.folder(namespace))

    def _check_droppable(self, namespace: Sequence[str]) -> None:
        tables, spaces = self.entries(namespace)
        folder = self.folder(namespace)
        strange = {entry.name for entry in self.storage.list(folder)} - {*tables, *spaces}
        if strange:
            raise InvalidInputError(f"{folder} holds {min(strange)!r}, which is no table; remove it first")
        for inner in spaces:
            self._check_droppable([*namespace, inner])


def open_warehouse(path: str) -> Warehouse:
    """The warehouse at a path or URL."""
    storage, base = open_storage(path)
    return Warehouse(storage, base)


def is_path(name: str) -> bool:
    """Whether a table's name is a path: ``lake.`/data/trips```."""
    return name.startswith(("/", "file:")) or "://" in name


def _part(name: str) -> str:
    if not name or "/" in name or "\\" in name or name.startswith((".", "_")):
        raise InvalidInputError(
            f"{name!r} is no name in a catalog of folders: give one without '/' that does not begin with '.' or '_', "
            "or the table's whole path"
        )
    return name
