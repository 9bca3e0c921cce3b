"""Local and network-mounted disks.

A new file appears in one step: its bytes go to a temporary file in the same folder, are forced to disk, and
``link(2)`` gives them the final name, which fails if the name is taken. A plain rename would replace silently.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from lakedex.errors import UnsupportedFeatureError
from lakedex.io.ranges import read_coalesced
from lakedex.io.storage import FileInfo
from lakedex.types import IoCount

__all__ = ["LocalStorage"]

_TEMP_PREFIX = ".lakedex-"
_TEMP_SUFFIX = ".tmp"
_MAX_GAP = 64 * 1024
_BUFFER = 1024 * 1024
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})


def _side_file(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.crc")


def _is_hidden(name: str) -> bool:
    if not name.startswith("."):
        return False
    if name.startswith(_TEMP_PREFIX) and name.endswith(_TEMP_SUFFIX):
        return True
    return name.endswith(".crc")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _sync_folder(folder: str) -> None:
    # Without it a crash of the machine may forget the name although the bytes are on disk.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: str) -> None:
    missing = []
    probe = folder
    while not os.path.isdir(probe):
        missing.append(probe)
        parent = os.path.dirname(probe)
        if parent == probe:
            break
        probe = parent
    if not missing:
        return
    os.makedirs(folder, exist_ok=True)
    for made in missing:
        _sync_folder(os.path.dirname(made))


def _write_temp(folder: str, data: bytes) -> str:
    temp = os.path.join(folder, f"{_TEMP_PREFIX}{uuid.uuid4().hex}{_TEMP_SUFFIX}")
    try:
        with open(temp, "xb") as out:
            out.write(data)
            out.flush()
            # An empty file (a marker) is its name alone, which the caller forces to disk.
            if data:
                os.fsync(out.fileno())
    except BaseException:
        _unlink(temp)
        raise
    return temp


class _CountedFile(io.FileIO):
    """A file that adds each read to a count, and never answers short before the end."""

    def __init__(self, path: str, count: IoCount) -> None:
        super().__init__(path, "rb")
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


class _DurableWriter(io.BufferedWriter):
    """A writer whose bytes and name are on disk once it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(io.FileIO(path, "xb"), _BUFFER)
        self._folder = os.path.dirname(path)

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        _sync_folder(self._folder)


_LISTINGS = 5
"""So often a folder is listed that changes all the time."""


def _changed(path: str) -> int:
    """When a folder's entries last changed; 0 where there is none."""
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
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since the listing began, or a link to nowhere
                is_dir = stat.S_ISDIR(status.st_mode)
                size = 0 if is_dir else status.st_size
                found.append(FileInfo(entry.name, size, status.st_mtime_ns // 1_000_000, is_dir))
    except FileNotFoundError:
        return []
    return found


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A local disk, or a network share mounted like one.

    ``counted`` takes reads and listings, one request each; questions about one file's size or time are not counted.
    """

    counted: IoCount = field(default_factory=IoCount, compare=False)

    @property
    def scheme(self) -> str:
        """``file``."""
        return "file"

    @property
    def can_create_exclusively(self) -> bool:
        """True: ``link(2)`` never replaces."""
        return True

    def read(self, path: str) -> bytes:
        """Whole content."""
        with open(path, "rb") as source:
            data = source.read()
        self.counted.add(1, len(data))
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range; gaps up to 64 KiB are read over."""
        with open(path, "rb") as source:

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

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries by name, without checksum side files and our own temporary files.

        The system hands out a folder piece by piece. One that changed meanwhile is listed again: archival deletes a
        timeline's files in ascending order, and a listing with a hole would take committed files for uncommitted ones.
        """
        self.counted.add(1, 0)
        for _ in range(_LISTINGS):
            before = _changed(path)
            found = _list_once(path)
            if _changed(path) == before:
                break
        return sorted(found, key=lambda info: info.name)

    def create(self, path: str, data: bytes) -> None:
        """Write a new file in one step."""
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        folder = os.path.dirname(path)
        _make_folder(folder)
        temp = _write_temp(folder, data)
        try:
            _unlink(_side_file(path))  # left over from a deleted file of the same name
            os.link(temp, path)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise UnsupportedFeatureError(
                    f"{folder}: the file system has no hard links ({error.strerror}), so a file cannot be created "
                    "exclusively there; keep tables that are written on another file system",
                    feature="write without put-if-absent",
                ) from error
            raise
        finally:
            _unlink(temp)
        _sync_folder(folder)

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file in one step."""
        folder = os.path.dirname(path)
        _make_folder(folder)
        temp = _write_temp(folder, data)
        try:
            _unlink(_side_file(path))
            os.replace(temp, path)
        except BaseException:
            _unlink(temp)
            raise
        _sync_folder(folder)

    def delete(self, path: str) -> None:
        """Remove a file and its checksum side file."""
        _unlink(_side_file(path))
        _unlink(path)

    def delete_tree(self, path: str) -> None:
        """Remove a folder and all in it."""
        while os.path.isdir(path):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue  # somebody else deletes in it as well
        _unlink(_side_file(path))

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents."""
        _make_folder(path)
        os.makedirs(path, exist_ok=True)

    def open_input(self, path: str) -> BinaryIO:
        """A seekable, counted reader."""
        return _CountedFile(path, self.counted)

    def open_output(self, path: str) -> BinaryIO:
        """A buffered writer for a new file."""
        _make_folder(os.path.dirname(path))
        writer = _DurableWriter(path)
        _unlink(_side_file(path))
        return writer
