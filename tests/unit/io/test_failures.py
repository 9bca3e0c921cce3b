"""What a file system fails at is an error of lakedex that names the file and says what helps."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from lakedex.errors import FileGoneError, FileTakenError, LakedexError, StorageError
from lakedex.io.fsspec import FsspecStorage
from lakedex.io.local import LocalStorage
from lakedex.io.storage import storage_error

CALLS: dict[str, Callable[[LocalStorage, str], object]] = {
    "read": lambda store, path: store.read(path),
    "read_ranges": lambda store, path: store.read_ranges(path, [(0, 1)]),
    "open_input": lambda store, path: store.open_input(path),
    "size": lambda store, path: store.size(path),
    "modified": lambda store, path: store.modified(path),
    "list": lambda store, path: store.list(path),
    "create": lambda store, path: store.create(path, b"x"),
    "write": lambda store, path: store.write(path, b"x"),
    "delete": lambda store, path: store.delete(path),
    "make_dirs": lambda store, path: store.make_dirs(path),
    "open_output": lambda store, path: store.open_output(path).close(),
}
READS = ("read", "read_ranges", "open_input", "size", "modified")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("x" * 300, errno.ENAMETOOLONG, "255 bytes"),
        ("file/inner", errno.ENOTDIR, "Not a directory|File exists"),
        ("a\0b", None, "embedded null"),
    ],
)
def test_paths_that_cannot_be(tmp_path: Path, call: str, name: str, number: int | None, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=said) as caught:
        CALLS[call](LocalStorage(), f"{tmp_path}/{name}")
    assert caught.value.errno == number or name == "file/inner"
    assert name.partition("\0")[0] in caught.value.path
    assert sorted(os.listdir(tmp_path)) == ["file"]


@pytest.mark.parametrize("call", READS)
def test_files_that_are_gone(tmp_path: Path, call: str) -> None:
    """They are what Python calls them too, so that code that expects it goes on."""
    with pytest.raises(FileGoneError, match=r"x\.parquet: cannot .*the cleaner.*clean\.commits\.retained") as caught:
        CALLS[call](LocalStorage(), f"{tmp_path}/x.parquet")
    assert isinstance(caught.value, FileNotFoundError) and caught.value.errno == errno.ENOENT


def test_files_that_are_taken(tmp_path: Path) -> None:
    LocalStorage().create(f"{tmp_path}/f", b"")
    for call in ("create", "open_output"):
        with pytest.raises(FileTakenError) as caught:
            CALLS[call](LocalStorage(), f"{tmp_path}/f")
        assert isinstance(caught.value, FileExistsError)


@pytest.mark.parametrize("call", ["read", "read_ranges", "open_input"])
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_only_regular_files_are_read(tmp_path: Path, call: str, kind: str) -> None:
    """A link leads outside of the table, and nobody ever writes to the pipe."""
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "f"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "secret")
    with pytest.raises(StorageError):
        CALLS[call](LocalStorage(), str(path))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EMFILE, "ulimit"),
        (errno.EIO, "disk"),
    ],
)
def test_a_write_that_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    writer = LocalStorage().open_output(f"{tmp_path}/f")
    writer.write(b"x")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=said) as caught:
        writer.close()
    assert (caught.value.path, caught.value.operation, caught.value.errno) == (f"{tmp_path}/f", "write", number)


def test_they_cross_processes() -> None:
    error = storage_error("write", "/t/f", OSError(errno.ENOSPC, "full"))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.path, again.errno) == (StorageError, str(error), "/t/f", errno.ENOSPC)
    assert isinstance(again, LakedexError) and isinstance(again, OSError)


def test_other_stores_too() -> None:
    store = FsspecStorage(fsspec.filesystem("memory"), "memory")
    with pytest.raises(FileGoneError, match="nowhere"):
        store.read("memory://nowhere/f")
    assert store.list("memory://nowhere") == []
