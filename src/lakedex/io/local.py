"""Access local and network-mounted disks.

A new file appears atomically: its bytes go to a temporary file in the same folder, are synced, and ``link(2)`` gives
them the final name, failing if the name exists. A rename would replace a file silently.

A journal commit takes milliseconds, for one file or for many. So tasks that write many files sync them together
(:meth:`LocalStorage.batched`), in threads whose calls share the commits.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.io.storage import OPERATIONS, FileInfo, first_argument, is_checksum, read_coalesced, typed_failures
from lakedex.parallel import run_threads
from lakedex.types import IoCount

__all__ = ["LocalStorage"]


_TEMP_PREFIX = ".lakedex-"


_TEMP_SUFFIX = ".tmp"


_MAX_GAP = 64 * 1024


_BUFFER = 64 * 1024


_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})


def _side_file(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.crc")


def _is_hidden(name: str) -> bool:
    if not name.startswith("."):
        return False
    if name.startswith(_TEMP_PREFIX) and name.endswith(_TEMP_SUFFIX):
        return True
    return is_checksum(name)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _sync_folder(folder: str) -> None:
    # Without this a crash of the machine may lose the name although the bytes are on disk.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: str) -> list[str]:
    """Make a folder and its parents; return the folders with new entries, which are not synced yet."""
    missing = []
    probe = folder
    while not os.path.isdir(probe):
        missing.append(probe)
        parent = os.path.dirname(probe)
        if parent == probe:
            break
        probe = parent
    if missing:
        os.makedirs(folder, exist_ok=True)
    return [os.path.dirname(made) for made in missing]


def _sync_folders(folders: Iterable[str]) -> None:
    for folder in folders:
        _sync_folder(folder)


def _sync_content(handle: int, unsynced: _SyncBatch | None) -> None:
    if unsynced is None:
        os.fsync(handle)
    else:
        unsynced.add_content(handle)


def _write_temp(folder: str, data: bytes, unsynced: _SyncBatch | None = None) -> str:
    temp = os.path.join(folder, f"{_TEMP_PREFIX}{uuid.uuid4().hex}{_TEMP_SUFFIX}")
    try:
        with open(temp, "xb") as out:
            out.write(data)
            out.flush()
            # An empty file (a marker) consists of its name, which the caller syncs.
            if data:
                _sync_content(out.fileno(), unsynced)
    except BaseException:
        _unlink(temp)
        raise
    return temp


def _made_empty(path: str) -> bool:
    """Create an empty file, which is complete at once; False if the file exists."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    _unlink(_side_file(path))
    return True


def _regular(path: str, flags: int) -> int:
    """Open a regular file for reading; links may lead anywhere, and pipes block."""
    handle = os.open(path, flags | _NO_FOLLOW | _NO_WAIT)
    kind = os.fstat(handle).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # Python refuses folders itself.
        os.close(handle)
        raise OSError(errno.EINVAL, "Not a regular file", path)
    return handle


_NO_FOLLOW, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


@typed_failures({"read": "read", "readinto": "read"}, lambda file, _: str(file.name))
class _CountedFile(io.FileIO):
    """File that counts its requests, and returns fewer bytes only at its end."""

    def __init__(self, path: str, count: IoCount) -> None:
        super().__init__(path, "rb", opener=_regular)
        self._count = count

    def read(self, size: int | None = -1, /) -> bytes:
        parts: list[bytes] = []
        wanted = -1 if size is None else size
        while wanted != 0:
            part = super().read(wanted)
            if not part:
                break
            parts.append(part)
            if wanted > 0:
                wanted -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._count.add(1, len(data))
        return data

    def readinto(self, buffer: Any, /) -> int:
        read = super().readinto(buffer) or 0
        self._count.add(1, read)
        return read


@typed_failures({"write": "write", "flush": "write", "close": "write"}, lambda file, _: str(file.name))
class _DurableWriter(io.BufferedWriter):
    """Writer of a file that is durable once closed, or once its batch is synced."""

    def __init__(self, path: str, unsynced: _SyncBatch | None = None) -> None:
        super().__init__(io.FileIO(path, "xb"), _BUFFER)
        self._folder = os.path.dirname(path)
        self._unsynced = unsynced

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            _sync_content(self.fileno(), self._unsynced)
        finally:
            super().close()
        if self._unsynced is None:
            _sync_folder(self._folder)
        else:
            self._unsynced.add_name(self._folder)


class _SyncBatch:
    """New files of a batched storage that are not synced yet.

    Files stay open until then, as the system reports failed writes only to open files.

    Markers are synced first: a rollback finds the files of a write only by its markers, and a file without marker
    would count as committed to anyone who lists folders after archival. So no file may outlive its marker. Journals
    keep the order in which names were created, but syncing a file need not sync earlier names (btrfs).
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._marked: dict[str, None] = {}
        self._named: dict[str, None] = {}
        self._contents: list[int] = []

    def add_name(self, folder: str, *, empty: bool = False) -> None:
        """Sync the entries of a folder and its parents later, for an empty or another file.

        The process that made a parent folder may have died before syncing it.
        """
        found = self._marked if empty else self._named
        while folder not in found:
            found[folder] = None
            if len(folder) <= len(self._root):
                return
            folder = os.path.dirname(folder)

    def add_content(self, handle: int) -> None:
        """Sync the bytes of an open file later, or now if too many are waiting."""
        if not _open_files.acquire(blocking=False):
            self.sync()
            os.fsync(handle)
            return
        try:
            self._contents.append(os.dup(handle))
        except BaseException:
            _open_files.release()
            raise

    def sync(self) -> None:
        """Sync everything."""
        marked, contents, named = list(self._marked), self._contents, list(self._named)
        self._marked, self._contents, self._named = {}, [], {}
        try:
            # Parallel calls share the commits of the journal.
            run_threads(_sync_present, marked, _SYNC_THREADS)
            run_threads(os.fsync, contents, _SYNC_THREADS)
            run_threads(_sync_present, named, _SYNC_THREADS)
        finally:
            for handle in contents:
                os.close(handle)
                _open_files.release()


_MAX_OPEN_FILES = 256


_open_files = threading.BoundedSemaphore(_MAX_OPEN_FILES)
"""Files that the process keeps open until they are synced; systems allow 1024."""


_SYNC_THREADS = 8


def _sync_present(folder: str) -> None:
    """Sync the entries of a folder, which may have been deleted meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        _sync_folder(folder)


_LISTINGS = 5
"""Attempts to list a folder that keeps changing."""


def _changed(path: str) -> int:
    """Time of the last change of a folder's entries; 0 if there is no folder."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _list_once(path: str) -> list[FileInfo]:
    found: list[FileInfo] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if _is_hidden(entry.name):
                    continue
                is_link = entry.is_symlink()
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since the listing began, or a dangling link
                except OSError:
                    if is_link:
                        continue  # a link to itself
                    raise
                is_dir = stat.S_ISDIR(status.st_mode)
                size = 0 if is_dir else status.st_size
                found.append(FileInfo(entry.name, size, status.st_mtime_ns // 1_000_000, is_dir, is_link))
    except FileNotFoundError:
        return []
    return found


@typed_failures(OPERATIONS, first_argument)
@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A local disk or a mounted network share.

    ``counted`` counts reads and listings as one request each; lookups of one file's size or time are not counted.
    """

    counted: IoCount = field(default_factory=IoCount, compare=False)
    unsynced: _SyncBatch | None = field(default=None, compare=False, repr=False)
    """Unsynced files of a batched storage; None for another."""

    @property
    def scheme(self) -> str:
        """``file``."""
        return "file"

    @property
    def can_create_exclusively(self) -> bool:
        """True: ``link(2)`` never replaces."""
        return True

    def read(self, path: str) -> bytes:
        """Read a file."""
        with open(path, "rb", opener=_regular) as source:
            data = source.read()
        self.counted.add(1, len(data))
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range; gaps up to 64 KiB are read too."""
        with open(path, "rb", opener=_regular) as source:

            def fetch(start: int, end: int) -> bytes:
                source.seek(start)
                data = source.read(end - start)
                self.counted.add(1, len(data))
                return data

            return read_coalesced(ranges, fetch, max_gap=_MAX_GAP)[0]

    def size(self, path: str) -> int:
        """Size in bytes."""
        return os.stat(path).st_size

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return os.path.exists(path)

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a link."""
        return os.path.islink(path)

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries by name, without checksum side files and lakedex's temporary files.

        The system lists a folder piecewise. One that changed meanwhile is listed again: archival deletes instants in
        ascending order, and a listing with a gap would report committed files as uncommitted.
        """
        self.counted.add(1, 0)
        for _ in range(_LISTINGS):
            before = _changed(path)
            found = _list_once(path)
            if _changed(path) == before:
                break
        return sorted(found, key=lambda info: info.name)

    def list_tree(self, path: str) -> None:
        """None: the system lists one folder at a time."""
        del path

    def entries(self, path: str) -> dict[str, bool]:
        """All direct entries, and whether each is a folder."""
        if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
            raise InvalidInputError(f"{path} is a {'link' if os.path.islink(path) else 'file'}, not a folder")
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except FileNotFoundError:
            return {}

    def create(self, path: str, data: bytes) -> None:
        """Write a new file atomically."""
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        folder = os.path.dirname(path)
        _sync_folders(_make_folder(folder))
        temp = _write_temp(folder, data)
        try:
            _unlink(_side_file(path))  # left over from a deleted file of the same name
            os.link(temp, path)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise UnsupportedFeatureError(
                    f"{folder}: the file system has no hard links ({error.strerror}), so a file cannot be created "
                    "exclusively there; move the table to another file system",
                    feature="write without put-if-absent",
                ) from error
            raise
        finally:
            _unlink(temp)
        _sync_folder(folder)

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file atomically."""
        folder = os.path.dirname(path)
        changed = [*_make_folder(folder), folder]
        if data or not _made_empty(path):
            self._replace(path, data)
        if self.unsynced is None:
            _sync_folders(changed)
        else:
            self.unsynced.add_name(folder, empty=not data)

    def _replace(self, path: str, data: bytes) -> None:
        temp = _write_temp(os.path.dirname(path), data, self.unsynced)
        try:
            _unlink(_side_file(path))
            os.replace(temp, path)
        except BaseException:
            _unlink(temp)
            raise

    def delete(self, path: str) -> None:
        """Remove a file and its checksum side file."""
        _unlink(_side_file(path))
        _unlink(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files and their checksum side files."""
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        """Remove a folder and its content; of a link, only the link."""
        if os.path.islink(path):
            _unlink(path)
        while os.path.isdir(path):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue  # another process deletes in it too
        _unlink(_side_file(path))

    def remove_empty(self, path: str) -> None:
        """Remove a folder if it is empty."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents."""
        _sync_folders(_make_folder(path))
        os.makedirs(path, exist_ok=True)

    def open_input(self, path: str) -> BinaryIO:
        """Open a file for reading; seekable and counted."""
        return _CountedFile(path, self.counted)

    def open_output(self, path: str) -> BinaryIO:
        """Open a new file for buffered writing."""
        changed = _make_folder(os.path.dirname(path))
        writer = _DurableWriter(path, self.unsynced)
        if self.unsynced is None:
            _sync_folders(changed)
        _unlink(_side_file(path))
        return writer

    def batched(self, root: str) -> LocalStorage:
        """Same disk, with new files synced by :meth:`sync`."""
        return replace(self, unsynced=_SyncBatch(root))

    def sync(self) -> None:
        """Sync the new files of a batched storage."""
        if self.unsynced is not None:
            self.unsynced.sync()
