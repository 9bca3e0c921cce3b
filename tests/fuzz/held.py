"""A storage of files in memory, some of them damaged."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from lakedex.io.storage import FileInfo
from lakedex.types import IoCount

__all__ = ["HeldStorage", "held_files"]


def held_files(folder: Path, base: str) -> dict[str, bytes]:
    """All files of a folder, under another one's name."""
    return {
        f"{base}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".crc")
    }


class HeldStorage:
    """Files by path. Reading only."""

    scheme = "memory"
    can_create_exclusively = False
    counted = IoCount()

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._folders: dict[str, dict[str, bool]] = {}
        for path in files:
            parent, _, name = path.rpartition("/")
            is_dir = False
            while parent or name:
                self._folders.setdefault(parent, {})[name] = is_dir
                parent, _, name = parent.rpartition("/")
                is_dir = True

    def read(self, path: str) -> bytes:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        content = self.read(path)
        if any(start < 0 for start, _ in ranges):
            raise ValueError("a range before the file")
        return [content[start:end] for start, end in ranges]

    def size(self, path: str) -> int:
        return len(self.read(path))

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def modified(self, path: str) -> int:
        self.read(path)
        return 1_700_000_000_000

    def list(self, path: str) -> list[FileInfo]:
        # As a file system would: these are no names there.
        if "\0" in path:
            raise ValueError("embedded null byte")
        path.encode()
        entries = self._folders.get(path, {})
        return [
            FileInfo(name, 0 if is_dir else len(self._files[f"{path}/{name}"]), 1_700_000_000_000, is_dir)
            for name, is_dir in sorted(entries.items())
        ]

    def list_tree(self, path: str) -> None:
        del path  # each folder is a listing of its own

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))
