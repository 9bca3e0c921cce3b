"""List and delete folders and files below a table without following links.

Names come from the table's own files, and a linked folder could lead a reader, or a deletion, anywhere on the machine.
So no folder of a table may be a link, only the table's own folder. Linked files are not read (:mod:`lakedex.io.local`),
and deleted as links.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from lakedex.codec.table_paths import check_instant, check_partition, file_path
from lakedex.errors import CommitError, CorruptFileError
from lakedex.io.storage import FileInfo, TableFiles
from lakedex.parallel import run_threads
from lakedex.timeline.active import is_under_way

__all__ = [
    "delete_entries",
    "delete_files",
    "delete_partition",
    "delete_temp",
    "inner_folders",
    "links_below",
    "list_folder",
    "require_folders",
    "require_own_folders",
    "require_under_way",
]


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


_OWN_FOLDERS = (
    ".hoodie/.heartbeat",
    ".hoodie/.index_defs",
    ".hoodie/.locks",
    ".hoodie/.schema",
    ".hoodie/.temp",
    ".hoodie/metadata/bitmap_index",
)


def require_own_folders(files: TableFiles, timeline: str, archive: str) -> None:
    """Refuse a table with links among its own folders, which would be those of another table.

    Args:
        files: the table's files.
        timeline: Folder of the timeline.
        archive: Folder of archived instants.

    Raises:
        CorruptFileError: A folder is a link; the error names it.
    """
    inner = (f".hoodie/metadata/{folder}" for folder in (timeline, archive))
    require_folders(files, (timeline, archive, *inner, *_OWN_FOLDERS))


def require_folders(files: TableFiles, folders: Iterable[str]) -> None:
    """Refuse paths below a table that are or contain links. Costs one lookup per folder.

    Raises:
        CorruptFileError: A folder is a link; the error names it.
    """
    for link in links_below(files, folders):
        raise _is_link(link)


def _is_link(path: str) -> CorruptFileError:
    return CorruptFileError(path, 0, "a folder of the table", "a link, which lakedex does not follow; mount it instead")


def list_folder(files: TableFiles, folder: str) -> Sequence[FileInfo]:
    """List a folder below a table; empty if there is no such folder.

    Raises:
        CorruptFileError: The folder is a link.
    """
    require_folders(files, [folder])
    return files.storage.list(files.path(folder))


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


def delete_files(files: TableFiles, names: Iterable[tuple[str, str]], threads: int = 1) -> None:
    """Delete data files, given by partition and name; nothing is deleted if one of them is invalid.

    Raises:
        CorruptFileError: A path leaves the table, or a name is not that of a data file.
    """
    wanted = list(names)
    paths = [files.path(file_path(partition, name, files.base_path)) for partition, name in wanted]
    require_folders(files, {partition for partition, _ in wanted})
    if files.has_latency:
        files.storage.delete_all(paths)
    else:
        run_threads(files.storage.delete, paths, threads)


def delete_partition(files: TableFiles, partition: str) -> None:
    """Delete the folder of a partition, of the table or of its metadata table, but never the table's own.

    Raises:
        CorruptFileError: The path is not a partition's, or contains a link.
    """
    if not check_partition(partition, files.base_path):
        raise CorruptFileError(files.base_path, 0, "a partition's folder", "the table's own")
    require_folders(files, [partition.rpartition("/")[0]])
    files.storage.delete_tree(files.path(partition))


def delete_entries(files: TableFiles, folder: str, keep: Collection[str] = ()) -> None:
    """Delete the content of a folder below the table, except for the names in ``keep``.

    Raises:
        CorruptFileError: The folder is a link.
    """
    for entry in list_folder(files, folder):
        path = files.path(folder, entry.name)
        if entry.name not in keep:
            (files.storage.delete_tree if entry.is_dir else files.storage.delete)(path)


def require_under_way(files: TableFiles, timeline_path: str, instant: str, made: Sequence[str], what: str) -> None:
    """Let a late attempt of a task leave no files behind once the commit is decided.

    The driver looks at the markers once more after it completed the commit, so that one of both sees the other.

    Args:
        files: the table's files.
        timeline_path: folder of its instants.
        instant: what the task works for.
        made: paths of its files, each after its marker.
        what: kind of work, in the error.

    Raises:
        CommitError: the work is no longer in flight; the files were deleted.
    """
    if is_under_way(files.storage, timeline_path, instant):
        return
    for late in reversed(made):  # A marker after its file.
        files.storage.delete(late)
    raise CommitError(
        f"{files}: the {what} {instant} is no longer in flight; the task's files were removed", instant=instant
    )


def delete_temp(files: TableFiles, instant: str) -> None:
    """Delete an instant's markers and spilled filters.

    Raises:
        CorruptFileError: ``instant`` is not an instant.
    """
    check_instant(instant, files.path(".hoodie/.temp"))
    require_folders(files, [".hoodie/.temp"])
    files.storage.delete_tree(files.temp(instant))
