"""A folder with a table in it, and beside the table what nothing that is done to the table may touch or show."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.hostile_seeds import seed_files, seed_names

__all__ = ["SECRET", "Content", "Fifo", "Link", "Watched", "watched"]

SECRET = "SECRET-of-the-neighbour"
"""Stands in every file beside the table that has text in it, and in every row of the neighbour."""
OLD_NS = 1_600_000_000_000_000_000
"""Every file of a table was last changed then: heartbeats have stopped, writes have expired."""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class Fifo:
    """A pipe that nobody writes to."""


Content = bytes | Link | Fifo


class Watched:
    """``lake/table`` and its neighbours: a table of the same file names with other rows, a folder, a secret file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = root / "lake" / "table"
        self.neighbour = root / "lake" / "neighbour"
        for path, content in _neighbour().items():
            _write(self.neighbour / path, content)
        _write(root / "lake" / "secret.txt", SECRET.encode())
        _write(root / "secret.txt", SECRET.encode())
        _write(root / "lake" / "folder" / "inner" / "kept.txt", SECRET.encode())
        _write(root / "lake" / "folder" / "kept.txt", SECRET.encode())
        self._before = self._picture()

    def lay(self, files: Mapping[str, Content]) -> None:
        """Make the table anew of files by path. What a file system cannot hold is left out."""
        shutil.rmtree(self.table, ignore_errors=True)
        self.table.mkdir(parents=True)
        links = [path for path, content in files.items() if not isinstance(content, bytes)]
        # First: what would lie below a link would be written to where it leads.
        made: set[str] = set()
        for path in links:
            _special(self.table / path, files[path])
        for path, content in files.items():
            if isinstance(content, bytes) and not any(path.startswith(f"{link}/") for link in links):
                full = f"{self.table}/{path}"
                try:
                    folder = os.path.dirname(full)
                    if folder not in made:
                        os.makedirs(folder, exist_ok=True)
                        made.add(folder)
                    handle = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                except (OSError, ValueError):
                    continue
                try:
                    os.write(handle, content)
                    os.utime(handle, ns=(OLD_NS, OLD_NS))
                finally:
                    os.close(handle)

    def changes(self) -> list[str]:
        """What was changed beside the table, which is then put right again."""
        now = self._picture()
        if now == self._before:
            return []
        found = sorted(name for name in {*now, *self._before} if now.get(name) != self._before.get(name))
        shutil.rmtree(self.root, ignore_errors=True)
        self.__init__(self.root)  # type: ignore[misc]
        return found

    def _picture(self) -> dict[str, tuple[int, ...]]:
        """Every file and folder beside the table; the time of its last change of any kind tells of each."""
        found: dict[str, tuple[int, ...]] = {}
        todo = [str(self.root)]
        start = len(todo[0]) + 1
        while todo:
            folder = todo.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.path == str(self.table):
                        continue
                    status = entry.stat(follow_symlinks=False)
                    # The folder that holds the table changes with it; its entries are looked at by name.
                    times = (status.st_mtime_ns, status.st_ctime_ns) if entry.path != str(self.table.parent) else ()
                    found[entry.path[start:]] = (status.st_mode, status.st_ino, *times)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        return found


def _special(path: Path, content: Content) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            os.symlink(content.target, path)
        else:
            os.mkfifo(path)
    except (OSError, ValueError):
        pass


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@cache
def _neighbour() -> Mapping[str, bytes]:
    """The sound table of version 8 with a secret in every row, and such files under the names of all other seeds' too."""
    data = {
        path: _secret_rows(content)
        for name in seed_names()
        for path, content in seed_files(name).items()
        if path.endswith(".parquet") and not path.startswith(".hoodie")
    }
    kept = (".hoodie/hoodie.properties", ".hoodie/timeline/", ".hoodie/.index_defs/", ".hoodie/metadata/files/")
    own = {path: content for path, content in seed_files("8/sound").items() if path.startswith(kept)}
    return {**own, **data}


def _secret_rows(content: bytes) -> bytes:
    found = pq.read_table(pa.BufferReader(content))
    at = found.schema.get_field_index("color")
    changed = found.set_column(at, found.schema.field(at), pa.array([SECRET] * len(found)))
    out = io.BytesIO()
    pq.write_table(changed, out)
    return out.getvalue()


@cache
def watched() -> Watched:
    """This process's."""
    folder = tempfile.mkdtemp(prefix="lakedex-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Watched(Path(folder))
