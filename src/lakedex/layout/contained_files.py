"""List and delete folders and files below a table without following links.

Names come from the table's own files, and a linked folder could lead a reader, or a deletion, anywhere on the machine.
So no folder of a table may be a link, only the table's own folder. Linked files are not read (:mod:`lakedex.io.local`),
and deleted as links.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lakedex.codec.table_paths import check_instant, check_partition, file_path
from lakedex.errors import CorruptFileError
from lakedex.io.folders import links_below
from lakedex.io.storage import FileInfo, Storage
from lakedex.layout.names import join_path
from lakedex.parallel import run_threads

__all__ = [
    "delete_entries",
    "delete_files",
    "delete_partition",
    "delete_temp",
    "inner_folders",
    "list_folder",
    "require_folders",
    "require_own_folders",
    "temp_path",
]


def temp_path(base_path: str, instant: str) -> str:
    """Folder of an instant's markers and spilled filters."""
    return f"{base_path}/.hoodie/.temp/{instant}"


_OWN_FOLDERS = (
    ".hoodie/.heartbeat",
    ".hoodie/.index_defs",
    ".hoodie/.locks",
    ".hoodie/.schema",
    ".hoodie/.temp",
    ".hoodie/metadata/bitmap_index",
)


def require_own_folders(storage: Storage, base_path: str, timeline: str, archive: str) -> None:
    """Refuse a table with links among its own folders, which would be those of another table.

    Args:
        storage: Storage of the table.
        base_path: Folder of the table.
        timeline: Folder of the timeline.
        archive: Folder of archived instants.

    Raises:
        CorruptFileError: A folder is a link; the error names it.
    """
    inner = (f".hoodie/metadata/{folder}" for folder in (timeline, archive))
    require_folders(storage, base_path, (timeline, archive, *inner, *_OWN_FOLDERS))


def require_folders(storage: Storage, base_path: str, folders: Iterable[str]) -> None:
    """Refuse paths below a table that are or contain links. Costs one lookup per folder.

    Raises:
        CorruptFileError: A folder is a link; the error names it.
    """
    for link in links_below(storage, base_path, folders):
        raise _is_link(link)


def _is_link(path: str) -> CorruptFileError:
    return CorruptFileError(path, 0, "a folder of the table", "a link, which lakedex does not follow; mount it instead")


def list_folder(storage: Storage, base_path: str, folder: str) -> Sequence[FileInfo]:
    """List a folder below a table; empty if there is no such folder.

    Raises:
        CorruptFileError: The folder is a link.
    """
    require_folders(storage, base_path, [folder])
    return storage.list(join_path(base_path, folder))


def inner_folders(path: str, entries: Iterable[FileInfo]) -> list[str]:
    """Names of the folders among the entries of ``path``, without ``.hoodie``.

    Raises:
        CorruptFileError: One of them is a link.
    """
    found = [entry for entry in entries if entry.is_dir and entry.name != ".hoodie"]
    for entry in found:
        if entry.is_link:
            raise _is_link(f"{path}/{entry.name}")
    return [entry.name for entry in found]


def delete_files(storage: Storage, base_path: str, files: Iterable[tuple[str, str]], threads: int = 1) -> None:
    """Delete data files, given by partition and name; nothing is deleted if one of them is invalid.

    Raises:
        CorruptFileError: A path leaves the table, or a name is not that of a data file.
    """
    wanted = list(files)
    paths = [f"{base_path}/{file_path(partition, name, base_path)}" for partition, name in wanted]
    require_folders(storage, base_path, {partition for partition, _ in wanted})
    run_threads(storage.delete, paths, threads)


def delete_partition(storage: Storage, base_path: str, partition: str) -> None:
    """Delete the folder of a partition, of the table or of its metadata table, but never the table's own.

    Raises:
        CorruptFileError: The path is not a partition's, or contains a link.
    """
    if not check_partition(partition, base_path):
        raise CorruptFileError(base_path, 0, "a partition's folder", "the table's own")
    require_folders(storage, base_path, [partition.rpartition("/")[0]])
    storage.delete_tree(f"{base_path}/{partition}")


def delete_entries(storage: Storage, base_path: str, folder: str, keep: Collection[str] = ()) -> None:
    """Delete the content of a folder below the table, except for the names in ``keep``.

    Raises:
        CorruptFileError: The folder is a link.
    """
    for entry in list_folder(storage, base_path, folder):
        path = f"{base_path}/{folder}/{entry.name}"
        if entry.name not in keep:
            (storage.delete_tree if entry.is_dir else storage.delete)(path)


def delete_temp(storage: Storage, base_path: str, instant: str) -> None:
    """Delete an instant's markers and spilled filters.

    Raises:
        CorruptFileError: ``instant`` is not an instant.
    """
    check_instant(instant, f"{base_path}/.hoodie/.temp")
    require_folders(storage, base_path, [".hoodie/.temp"])
    storage.delete_tree(temp_path(base_path, instant))
