import contextlib
import errno
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.errors import UnsupportedFeatureError
from lakedex.io import local
from lakedex.io.local import LocalStorage
from lakedex.io.storage import Storage, read_coalesced
from lakedex.testing import StorageTests


@pytest.fixture
def store() -> LocalStorage:
    return LocalStorage()


class TestLocalStorage(StorageTests):
    @pytest.fixture
    def storage(self, store: LocalStorage) -> Storage:
        return store

    def test_it_is_the_disk(self, storage: Storage, tmp_path: Path) -> None:
        assert (storage.scheme, storage.can_create_exclusively) == ("file", True)
        storage.create(f"{tmp_path}/a/x", b"x")
        assert (tmp_path / "a" / "x").read_bytes() == b"x"
        assert os.listdir(tmp_path / "a") == ["x"]
        assert pickle.loads(pickle.dumps(storage)) == storage


def test_side_files_go_with_the_old_bytes(store: LocalStorage, tmp_path: Path) -> None:
    side = tmp_path / ".f.crc"
    for action in (
        lambda: store.create(f"{tmp_path}/f", b"1"),
        lambda: store.write(f"{tmp_path}/f", b"2"),
        lambda: store.delete(f"{tmp_path}/f"),
        lambda: store.open_output(f"{tmp_path}/f").close(),
    ):
        side.write_bytes(b"crc")
        action()
        assert not side.exists()
    assert store.read(f"{tmp_path}/f") == b""


def test_a_lost_create_keeps_the_winners_side_file(store: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"java")
    (tmp_path / ".f.crc").write_bytes(b"crc")
    with pytest.raises(FileExistsError):
        store.create(f"{tmp_path}/f", b"ours")
    assert (tmp_path / ".f.crc").exists()


def test_listing_hides_side_and_temporary_files(store: LocalStorage, tmp_path: Path) -> None:
    for name in ("b", ".b.crc", ".lakedex-1.tmp", ".f_1.log.1_0", "a"):
        (tmp_path / name).write_bytes(b"123")
    (tmp_path / "d").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    found = store.list(str(tmp_path))
    assert [(f.name, f.size, f.is_dir) for f in found] == [
        (".f_1.log.1_0", 3, False),
        ("a", 3, False),
        ("b", 3, False),
        ("d", 0, True),
    ]
    assert all(f.modified > 1_600_000_000_000 for f in found)
    assert store.list(f"{tmp_path}/gone") == []


def test_ranges_are_coalesced_and_counted(store: LocalStorage, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1024
    store.write(f"{tmp_path}/f", data)
    before = store.counted.copy()
    ranges = [(200_000, 200_010), (0, 10), (20, 30), (5, 25), (7, 7), (len(data) - 4, len(data) + 10)]
    assert store.read_ranges(f"{tmp_path}/f", ranges) == [data[a:b] for a, b in ranges]
    spent = store.counted - before
    assert (spent.requests, spent.bytes_read) == (2, 30 + (len(data) - 200_000))
    with pytest.raises(FileNotFoundError):
        store.read_ranges(f"{tmp_path}/gone", [(0, 1)])


def test_ranges_before_the_file_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="starts before"):
        read_coalesced([(-4, 2)], lambda a, b: b"", max_gap=0)


def test_gap_rule() -> None:
    asked = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return bytes(end - start)

    read_coalesced([(0, 10), (14, 20), (25, 30)], fetch, max_gap=4)
    assert asked == [(0, 20), (25, 30)]


def test_parquet_through_open_output_and_input(store: LocalStorage, tmp_path: Path) -> None:
    table, path = pa.table({"a": list(range(1000))}), f"{tmp_path}/p/f.parquet"
    with store.open_output(path) as out:
        pq.write_table(table, out)
    with pytest.raises(FileExistsError):
        store.open_output(path)
    before = store.counted.copy()
    with store.open_input(path) as source:
        assert pq.read_table(source).equals(table)
    spent = store.counted - before
    assert spent.requests > 0 and spent.bytes_read > 0


def test_a_file_system_without_links_is_refused(
    store: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UnsupportedFeatureError, match="hard links"):
        store.create(f"{tmp_path}/f", b"x")
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(
    store: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(f"{tmp_path}/f", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.write(f"{tmp_path}/f", b"new")
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_folder_that_changes_while_it_is_listed_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archival deletes ascending; a listing that began before and ended after would have a hole."""
    for name in "abc":
        (tmp_path / name).write_text(name)
    scandir, calls = os.scandir, []

    def changing(path: str) -> Any:
        found = list(scandir(path))
        calls.append(path)
        if len(calls) == 1:
            os.utime(tmp_path, ns=(1, 1))
            (tmp_path / "a").unlink()
            found = [entry for entry in found if entry.name != "b"]
        return contextlib.nullcontext(iter(found))

    monkeypatch.setattr(os, "scandir", changing)
    assert [entry.name for entry in LocalStorage().list(str(tmp_path))] == ["b", "c"]
    assert len(calls) == 2
    assert LocalStorage().list(str(tmp_path / "nowhere")) == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Inodes in the order in which they are forced to disk."""
    found: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: found.append(os.fstat(handle).st_ino))
    return found


def inode(path: Path) -> int:
    return path.stat().st_ino


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def batch_of_two(store: LocalStorage, root: Path) -> Storage:
    """A batched storage that has written a marker and a file in each of two folders."""
    batch = store.batched(str(root))
    for folder in ("p/1", "p/2"):
        batch.write(f"{root}/temp/{folder}/marker", b"")
        with batch.open_output(f"{root}/{folder}/file") as out:
            out.write(folder.encode())
    return batch


def test_batched_files_are_durable_once_synced_and_none_before_its_marker(
    store: LocalStorage, tmp_path: Path, synced: list[int]
) -> None:
    before = open_files()
    batch = batch_of_two(store, tmp_path)
    assert synced == []
    assert store.read(f"{tmp_path}/p/2/file") == b"p/2"
    batch.sync()
    markers = {inode(tmp_path / name) for name in ("temp/p/1", "temp/p/2", "temp/p", "temp", ".")}
    files = {inode(tmp_path / name) for name in ("p/1/file", "p/2/file")}
    folders = {inode(tmp_path / name) for name in ("p/1", "p/2", "p", ".")}
    assert set(synced[:5]) == markers
    assert set(synced[5:7]) == files
    assert set(synced[7:]) == folders
    assert len(synced) == 11
    assert open_files() == before
    batch.sync()
    assert len(synced) == 11


def test_a_file_that_is_created_is_durable_at_once_in_a_batched_storage_too(
    store: LocalStorage, tmp_path: Path, synced: list[int]
) -> None:
    batch = store.batched(str(tmp_path))
    batch.create(f"{tmp_path}/a/f", b"x")
    assert synced == [inode(tmp_path), inode(tmp_path / "a" / "f"), inode(tmp_path / "a")]


def test_files_that_wait_to_be_durable_are_not_held_open_without_limit(
    store: LocalStorage, tmp_path: Path, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_open_files", threading.BoundedSemaphore(2))
    batch = store.batched(str(tmp_path))
    batch.write(f"{tmp_path}/marker", b"")
    for name in "abc":
        batch.write(f"{tmp_path}/{name}", b"x")
    assert set(synced) == {inode(tmp_path), *(inode(tmp_path / name) for name in "abc")}
    assert synced[0] == inode(tmp_path)
    batch.sync()
    assert synced[-1] == inode(tmp_path)


def test_what_was_deleted_meanwhile_need_not_be_durable(store: LocalStorage, tmp_path: Path) -> None:
    batch = batch_of_two(store, tmp_path)
    store.delete_tree(f"{tmp_path}/temp")
    store.delete_tree(f"{tmp_path}/p")
    batch.sync()


def test_a_failed_sync_is_told_and_lets_the_files_go(
    store: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files()
    batch = batch_of_two(store, tmp_path)

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        batch.sync()
    assert open_files() == before


def test_an_empty_file_replaces_one(store: LocalStorage, tmp_path: Path) -> None:
    store.write(f"{tmp_path}/f", b"old")
    (tmp_path / ".f.crc").write_bytes(b"crc")
    store.write(f"{tmp_path}/f", b"")
    store.write(f"{tmp_path}/g", b"")
    assert store.read(f"{tmp_path}/f") == store.read(f"{tmp_path}/g") == b""
    assert sorted(os.listdir(tmp_path)) == ["f", "g"]
