"""The folders of a catalog: a folder with ``.hoodie`` is a table, any other folder is a namespace.

A table elsewhere (``LOCATION``) has an entry: a folder with one file, ``.lakedex-location``, whose text is the path.

``lakedex.Table`` is in a layer above, so the catalog gets it as the protocols :class:`OpenTable` and :class:`Tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lakedex.errors import InvalidInputError
from lakedex.io.locations import open_storage
from lakedex.io.storage import Storage, TableFiles
from lakedex.layout.contained_files import links_below
from lakedex.layout.names import join_path
from lakedex.snapshot.snapshot import TableContext

__all__ = ["OpenTable", "Tables", "Warehouse", "is_path", "open_warehouse"]


_ENTRY = ".lakedex-location"


_LONGEST_LOCATION = 4096


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
            return open_storage(name).base_path
        return join_path(self.folder(namespace), _part(name))

    def location(self, folder: str) -> str | None:
        """Where the table of an entry lies; None if the folder is none.

        Raises:
            InvalidInputError: The entry holds no path.
        """
        path = f"{folder}/{_ENTRY}"
        try:
            text = self.storage.read(path)[: _LONGEST_LOCATION + 1].decode().strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = ""
        if not is_path(text) or "\n" in text or len(text) > _LONGEST_LOCATION:
            raise InvalidInputError(f"{path} holds no path of a table; remove the file, and create the table again")
        return open_storage(text).base_path

    def add_entry(self, folder: str, location: str) -> None:
        """Make an entry, in a folder that :meth:`require_free` found empty.

        Raises:
            InvalidInputError: A location that an entry cannot hold.
            FileExistsError: Another session made one just now.
        """
        if "\n" in location or len(location) > _LONGEST_LOCATION:
            raise InvalidInputError(f"{location!r} is no path of a table")
        self.storage.make_dirs(folder)
        self.storage.create(f"{folder}/{_ENTRY}", f"{location}\n".encode())

    def drop_entry(self, folder: str) -> None:
        """Remove an entry. The table stays where it is."""
        self._require_inside(folder)
        self.storage.delete(f"{folder}/{_ENTRY}")
        self.storage.remove_empty(folder)

    def folder(self, namespace: Sequence[str]) -> str:
        """The folder of a namespace."""
        path = self.base_path
        for part in namespace:
            path = join_path(path, _part(part))
        return path

    def is_table(self, path: str) -> bool:
        """Whether a folder is a Hudi table."""
        return self.storage_of(path).exists(f"{path}/.hoodie")

    def _is_named(self, folder: str) -> bool:
        """Whether a folder is a table, or the entry of one."""
        return self.is_table(folder) or self.storage.exists(f"{folder}/{_ENTRY}")

    def storage_of(self, path: str) -> Storage:
        """Where a table lies: one named by its path may be in another store."""
        return self.storage if path.startswith(f"{self.base_path}/") else open_storage(path).storage

    def is_namespace(self, namespace: Sequence[str]) -> bool:
        """Whether there is such a folder, and it is no table. The warehouse itself always is one."""
        if not namespace:
            return True
        folder = self.folder(namespace)
        return self.storage.exists(folder) and not self._is_named(folder)

    def entries(self, namespace: Sequence[str]) -> tuple[list[str], list[str]]:
        """Names of the tables and of the namespaces in a namespace."""
        tables: list[str] = []
        spaces: list[str] = []
        folder = self.folder(namespace)
        for entry in self.storage.list(folder):
            if entry.is_dir and not entry.name.startswith((".", "_")):
                (tables if self._is_named(f"{folder}/{entry.name}") else spaces).append(entry.name)
        return tables, spaces

    def is_empty(self, namespace: Sequence[str]) -> bool:
        """Whether a namespace's folder has nothing in it."""
        return not self.storage.entries(self.folder(namespace))

    # ----------------------------------------------------------------------------------- what may be made and removed

    def require_free(self, path: str) -> None:
        """Refuse a folder for a new table that holds anything: it is somebody else's.

        Raises:
            InvalidInputError: names the folder.
        """
        held = self.storage_of(path).entries(path)
        if held:
            raise InvalidInputError(
                f"{path} holds {min(held)!r} already; a new table needs a folder of its own: give another name, or "
                "empty the folder first"
            )

    def drop_table(self, path: str) -> None:
        """Remove the folder of a table.

        Raises:
            InvalidInputError: see :meth:`drop_namespace`.
        """
        self._require_inside(path)
        self._check_table(path)
        self.storage.delete_tree(path)

    def drop_namespace(self, namespace: Sequence[str]) -> None:
        """Remove a namespace with its tables: each table's folder, then the folders that are empty.

        Raises:
            InvalidInputError: the folder holds what is no table, another table lies in the folder of one, or a link
                leads elsewhere. Nothing is removed then.
        """
        folder = self.folder(namespace)
        self._require_inside(folder)
        tables, spaces = self._droppable(folder)
        for path in tables:
            if self.is_table(path):
                self.storage.delete_tree(path)
            else:
                self.drop_entry(path)
        for path in spaces:
            self.storage.remove_empty(path)

    def _require_inside(self, path: str) -> None:
        root = TableFiles(self.storage, self.base_path)
        for link in links_below(root, [path.removeprefix(self.base_path).lstrip("/")]):
            raise InvalidInputError(f"{link} is a link; what lies elsewhere is not dropped: remove the link")

    def _droppable(self, folder: str) -> tuple[list[str], list[str]]:
        """Folders of the tables in a namespace, and those of namespaces, inner ones first."""
        tables: list[str] = []
        spaces: list[str] = []
        for name, is_folder in sorted(self.storage.entries(folder).items()):
            path = f"{folder}/{name}"
            if not is_folder or name.startswith((".", "_")):
                raise InvalidInputError(f"{folder} holds {name!r}, which is no table; remove it first")
            if self.is_table(path):
                self._check_table(path)
                tables.append(path)
            elif set(self.storage.entries(path)) == {_ENTRY}:
                tables.append(path)
            else:
                inner = self._droppable(path)
                tables += inner[0]
                spaces += inner[1]
        return tables, [*spaces, folder]

    def _check_table(self, path: str) -> None:
        """Make sure that a folder with ``.hoodie`` is a table's, and holds no other one."""
        settings = f"{path}/.hoodie/hoodie.properties"
        if not self.storage.exists(settings) and not self.storage.exists(f"{settings}.backup"):
            raise InvalidInputError(
                f"{path} has a folder .hoodie without hoodie.properties, so it may be no table: remove it yourself"
            )
        inner = next(self._tables_below(path), None)
        if inner is not None:
            raise InvalidInputError(f"{path} holds another table, {inner}; move or drop that one first")

    def _tables_below(self, folder: str) -> Iterator[str]:
        for name, is_folder in self.storage.entries(folder).items():
            path = f"{folder}/{name}"
            if is_folder and name != ".hoodie":
                if self.is_table(path):
                    yield path
                yield from self._tables_below(path)


def open_warehouse(path: str) -> Warehouse:
    """The warehouse at a path or URL."""
    found = open_storage(path)
    return Warehouse(found.storage, found.base_path)


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


class OpenTable(Protocol):
    """A table; see :class:`lakedex.Table` for its methods."""

    insert: Any
    upsert: Any
    bulk_insert: Any
    insert_overwrite: Any
    replace: Any
    delete: Any
    scan: Any
    add_columns: Any
    drop_columns: Any
    rename_column: Any
    widen_column: Any
    set_comment: Any
    delete_partition: Any

    @property
    def path(self) -> str:
        """The table's folder."""

    @property
    def context(self) -> TableContext:
        """Storage, engine and options."""

    @property
    def indexes(self) -> Any:
        """Create, drop and list indexes."""

    @property
    def maintenance(self) -> Any:
        """Services of the table."""

    @property
    def inspect(self) -> Any:
        """Files, index entries and timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """``Table.create`` and ``Table.open``."""

    create: Callable[..., Any]
    open: Callable[..., Any]
