"""The one way to touch files: a small protocol that every store answers.

Paths are absolute store paths, ``/``-separated text. A storage pickles: tasks carry it to executors.
Hudi writes some files on local disks with a ``.<name>.crc`` side file; whoever replaces or deletes a file
through :meth:`Storage.write` or :meth:`Storage.delete` also removes that side file, else Java's checksum
file system refuses the new bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from lakedex.types import IoCount

__all__ = ["FileInfo", "Storage"]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing: ``name`` without folder, ``size`` in bytes, ``modified`` in epoch milliseconds.

    Of a link these are what it leads to.
    """

    name: str
    size: int
    modified: int
    is_dir: bool = False
    is_link: bool = False


@runtime_checkable
class Storage(Protocol):
    """A store of files."""

    @property
    def scheme(self) -> str:
        """Name of the store: ``file``, ``s3``, ``memory``."""

    @property
    def can_create_exclusively(self) -> bool:
        """Whether :meth:`create` is atomic put-if-absent; writes to tables are refused without it."""

    @property
    def counted(self) -> IoCount:
        """Requests and bytes of all reads of this object so far."""

    def read(self, path: str) -> bytes:
        """Whole content. Raises ``FileNotFoundError``."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of each range ``[start, end)``, near ones fetched by one request; short at the end of the file."""

    def size(self, path: str) -> int:
        """Size in bytes. Raises ``FileNotFoundError``."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a link; never on an object store."""

    def modified(self, path: str) -> int:
        """Modification time, epoch milliseconds. Raises ``FileNotFoundError``."""

    def list(self, path: str) -> list[FileInfo]:
        """Direct entries, sorted by name, ``.crc`` side files left out; empty for a missing folder."""

    def create(self, path: str, data: bytes) -> None:
        """Write a new file atomically and durably, folders made. Raises ``FileExistsError`` if there is one."""

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def delete_tree(self, path: str) -> None:
        """Remove a folder and all in it; nothing happens if there is none. Of links only the link goes."""

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents (a no-op on object stores)."""

    def open_input(self, path: str) -> BinaryIO:
        """A seekable reader for pyarrow. Raises ``FileNotFoundError``."""

    def open_output(self, path: str) -> BinaryIO:
        """A writer for a new file, folders made; durable once closed. Raises ``FileExistsError`` if it can tell."""

    def gather(self, root: str) -> Storage:
        """The same store, for one thread that makes many files below ``root``: durable once :meth:`settle` returned.

        What :meth:`write` and :meth:`open_output` of it make is there at once; only a loss of power may take it until
        then, and no name of an empty file (a marker) while it leaves a file that was made after it. So it replaces
        nothing that anybody needs. :meth:`create` is durable as ever: others may rely on its file.
        """

    def settle(self) -> None:
        """Make durable what a gathering storage has written; nothing to do for another."""
