import errno
import io
import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.errors import UnsupportedFeatureError
from lakedex.io import local
from lakedex.io.local import LocalStorage
from lakedex.io.ranges import read_coalesced
from lakedex.io.storage import FileInfo, Storage


@pytest.fixture
def store() -> LocalStorage:
    return LocalStorage()


def test_it_is_a_storage_and_pickles(store: LocalStorage, tmp_path: Path) -> None:
    assert isinstance(store, Storage)
    assert (store.scheme, store.can_create_exclusively) == ("file", True)
    other = pickle.loads(pickle.dumps(store))
    assert other == store
    other.create(f"{tmp_path}/a", b"x")


def test_create_makes_folders_and_never_replaces(store: LocalStorage, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/c"
    store.create(path, b"first")
    with pytest.raises(FileExistsError):
        store.create(path, b"second")
    assert store.read(path) == b"first"
    assert os.listdir(f"{tmp_path}/a/b") == ["c"]


def test_of_many_creators_one_wins(store: LocalStorage, tmp_path: Path) -> None:
    path, won, barrier = f"{tmp_path}/x", [], threading.Barrier(8)

    def attempt(number: int) -> None:
        barrier.wait()
        try:
            store.create(path, str(number).encode())
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read(path) == str(won[0]).encode()
    assert os.listdir(tmp_path) == ["x"]


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


def test_missing_files(store: LocalStorage, tmp_path: Path) -> None:
    path = f"{tmp_path}/gone"
    for call in (store.read, store.size, store.modified, store.open_input):
        with pytest.raises(FileNotFoundError):
            call(path)
    assert not store.exists(path)
    store.delete(path)
    store.delete_tree(path)


def test_delete_tree(store: LocalStorage, tmp_path: Path) -> None:
    store.create(f"{tmp_path}/t/a/b", b"")
    store.delete_tree(f"{tmp_path}/t")
    assert not store.exists(f"{tmp_path}/t")


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


def test_input_is_a_file(store: LocalStorage, tmp_path: Path) -> None:
    store.write(f"{tmp_path}/f", b"0123456789")
    with store.open_input(f"{tmp_path}/f") as source:
        assert source.read(3) == b"012"
        assert source.seek(-2, io.SEEK_END) == 8
        assert source.read() == b"89"
        assert source.read(5) == b""


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
    once = local._list_once
    calls = []

    def changing(path: str) -> list[FileInfo]:
        found = once(path)
        calls.append(path)
        if len(calls) == 1:
            os.utime(tmp_path, ns=(1, 1))
            (tmp_path / "a").unlink()
            return [entry for entry in found if entry.name != "b"]
        return found

    monkeypatch.setattr(local, "_list_once", changing)
    assert [entry.name for entry in LocalStorage().list(str(tmp_path))] == ["b", "c"]
    assert len(calls) == 2
    assert LocalStorage().list(str(tmp_path / "nowhere")) == []
