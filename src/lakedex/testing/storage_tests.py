"""Check that a storage keeps the promises of :class:`lakedex.io.storage.Storage`."""

from __future__ import annotations

import io
import pickle
import threading
import time
from pathlib import Path

import pytest

from lakedex.errors import StorageError
from lakedex.io.storage import Storage

__all__ = ["StorageTests"]


class StorageTests:
    """Tests of one storage; derive a class whose name begins with ``Test``, and override :meth:`storage`.

    They check listings, ranges, atomic put-if-absent, replacing, deleting, errors, batched writes and pickling.

    Example:
        >>> class TestMyStorage(StorageTests):
        ...     @pytest.fixture
        ...     def storage(self) -> Storage:
        ...         return MyStorage("localhost:9000")
        ...
        ...     @pytest.fixture
        ...     def root(self) -> str:
        ...         return f"bucket/{uuid.uuid4()}"
    """

    @pytest.fixture
    def storage(self) -> Storage:
        """The storage to test."""
        raise NotImplementedError(f"{type(self).__name__} overrides the fixture 'storage'")

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        """An empty folder of the storage, without a slash at its end; a folder of the local disk by default."""
        return str(tmp_path)

    def test_it_has_the_methods_of_a_storage(self, storage: Storage) -> None:
        """Each method and property of the protocol is there."""
        assert isinstance(storage, Storage)
        assert storage.scheme
        assert storage.can_create_exclusively, "writes to tables are refused without put-if-absent"

    def test_it_pickles(self, storage: Storage, root: str) -> None:
        """A copy, as tasks get it, reads and writes the same files."""
        storage.create(f"{root}/a", b"x")
        other = pickle.loads(pickle.dumps(storage))
        assert other.read(f"{root}/a") == b"x"
        other.create(f"{root}/b", b"y")
        assert storage.read(f"{root}/b") == b"y"

    def test_create_makes_folders_and_never_replaces(self, storage: Storage, root: str) -> None:
        """The second writer of a file gets an error, and the first one's bytes stay."""
        path = f"{root}/a/b/c"
        storage.create(path, b"first")
        for data in (b"second", b""):
            with pytest.raises(FileExistsError):
                storage.create(path, data)
        assert storage.read(path) == b"first"
        assert [entry.name for entry in storage.list(f"{root}/a/b")] == ["c"]

    def test_a_tree_is_the_listings_of_its_folders(self, storage: Storage, root: str) -> None:
        """Where one request lists them; None elsewhere."""
        for name in ("a", "d/b", "d/e/c"):
            storage.create(f"{root}/{name}", name.encode())
        tree = storage.list_tree(root)
        if tree is not None:
            assert {path: [(entry.name, entry.size, entry.is_dir) for entry in own] for path, own in tree.items()} == {
                "": [("a", 1, False), ("d", 0, True)],
                "d": [("b", 3, False), ("e", 0, True)],
                "d/e": [("c", 5, False)],
            }
            assert storage.list_tree(f"{root}/none") == {"": []}

    def test_many_files_are_deleted(self, storage: Storage, root: str) -> None:
        """Those that are not there too."""
        for name in "abc":
            storage.create(f"{root}/{name}", b"x")
        storage.delete_all([f"{root}/{name}" for name in "abz"])
        assert [entry.name for entry in storage.list(root)] == ["c"]

    def test_of_many_creators_one_wins(self, storage: Storage, root: str) -> None:
        """Threads that create one file at the same time."""
        path, won, barrier = f"{root}/x", [], threading.Barrier(8)

        def attempt(number: int) -> None:
            barrier.wait()
            try:
                storage.create(path, str(number).encode())
            except FileExistsError:
                return
            won.append(number)

        threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read(path) == str(won[0]).encode()
        assert [entry.name for entry in storage.list(root)] == ["x"]

    def test_write_replaces(self, storage: Storage, root: str) -> None:
        """By other bytes and by none."""
        for data in (b"old", b"newer", b"", b"x"):
            storage.write(f"{root}/a/f", data)
            assert storage.read(f"{root}/a/f") == data
            assert storage.size(f"{root}/a/f") == len(data)

    def test_a_listing_is_sorted_and_leaves_out_checksums(self, storage: Storage, root: str) -> None:
        """Files and folders by name; a missing folder is an empty one."""
        for name in ("b", "a", ".a.crc", ".f_1.log.1_0", "sub/x", "sub/deep/y"):
            storage.create(f"{root}/{name}", b"12")
        found = [(entry.name, entry.size, entry.is_dir, entry.is_link) for entry in storage.list(root)]
        assert found == [
            (".f_1.log.1_0", 2, False, False),
            ("a", 2, False, False),
            ("b", 2, False, False),
            ("sub", 0, True, False),
        ]
        assert storage.list(f"{root}/gone") == []

    def test_entries_are_all_of_them(self, storage: Storage, root: str) -> None:
        """Hidden files too; only a folder without any is empty."""
        storage.write(f"{root}/e/.hidden", b"x")
        storage.write(f"{root}/e/sub/f", b"x")
        assert storage.entries(f"{root}/e") == {".hidden": False, "sub": True}
        assert storage.entries(f"{root}/gone") == {}
        storage.remove_empty(f"{root}/e/sub")
        assert storage.exists(f"{root}/e/sub/f")
        storage.delete(f"{root}/e/sub/f")
        storage.remove_empty(f"{root}/e/sub")
        assert storage.entries(f"{root}/e") == {".hidden": False}

    def test_size_and_times(self, storage: Storage, root: str) -> None:
        """Of a file and in a listing; times are epoch milliseconds."""
        storage.write(f"{root}/f", b"0123456789")
        (entry,) = storage.list(root)
        assert storage.size(f"{root}/f") == entry.size == 10
        now = time.time() * 1000
        for modified in (storage.modified(f"{root}/f"), entry.modified):
            assert abs(now - modified) < 24 * 3_600_000
        assert not storage.is_link(f"{root}/f")

    def test_ranges_come_in_the_callers_order(self, storage: Storage, root: str) -> None:
        """Ranges that overlap, are empty, or go beyond the end."""
        data = bytes(range(256)) * 4096
        storage.write(f"{root}/f", data)
        before = storage.counted.copy()
        ranges = [(900_000, 900_010), (0, 10), (20, 30), (5, 25), (7, 7), (len(data) - 4, len(data) + 10)]
        assert storage.read_ranges(f"{root}/f", ranges) == [data[start:end] for start, end in ranges]
        spent = storage.counted - before
        assert 1 <= spent.requests <= 3
        assert spent.bytes_read >= 44
        assert storage.read_ranges(f"{root}/f", []) == []
        with pytest.raises(ValueError, match="starts before"):
            storage.read_ranges(f"{root}/f", [(-4, 2)])

    def test_an_input_is_a_file(self, storage: Storage, root: str) -> None:
        """It seeks, ends, and has a position of its own."""
        storage.write(f"{root}/f", b"0123456789")
        before = storage.counted.copy()
        with storage.open_input(f"{root}/f") as one, storage.open_input(f"{root}/f") as two:
            assert one.read(3) == two.read(3) == b"012"
            assert one.seek(-2, io.SEEK_END) == one.tell() == 8
            assert one.read() == b"89"
            assert one.read(5) == b""
            assert two.read(1) == b"3"
        assert (storage.counted - before).bytes_read >= 9

    def test_an_output_is_a_file_once_closed(self, storage: Storage, root: str) -> None:
        """With its folders, and of any length."""
        with storage.open_output(f"{root}/a/b/f") as out:
            for _ in range(3):
                out.write(b"x" * 100_000)
            assert out.tell() == 300_000
        assert storage.read(f"{root}/a/b/f") == b"x" * 300_000
        storage.open_output(f"{root}/empty").close()
        assert storage.read(f"{root}/empty") == b""

    def test_missing_files(self, storage: Storage, root: str) -> None:
        """Reads are errors that name the file; deleting does nothing."""
        path = f"{root}/gone"
        for call in (storage.read, storage.size, storage.modified, storage.open_input):
            with pytest.raises(FileNotFoundError) as caught:
                call(path)
            assert isinstance(caught.value, StorageError), "lakedex.io.storage.typed_failures makes it one"
            assert "gone" in caught.value.path
        with pytest.raises(FileNotFoundError):
            storage.read_ranges(path, [(0, 1)])
        assert not storage.exists(path)
        storage.delete(path)
        storage.delete_tree(path)

    def test_delete(self, storage: Storage, root: str) -> None:
        """One file goes, and its name may be used again."""
        storage.create(f"{root}/t/a", b"1")
        storage.create(f"{root}/t/b", b"2")
        storage.delete(f"{root}/t/a")
        assert not storage.exists(f"{root}/t/a")
        assert [entry.name for entry in storage.list(f"{root}/t")] == ["b"]
        storage.create(f"{root}/t/a", b"3")
        assert storage.read(f"{root}/t/a") == b"3"

    def test_delete_tree(self, storage: Storage, root: str) -> None:
        """A folder goes with all that is in it, and a folder whose name begins alike stays."""
        for name in ("t/a", "t/b/c", "t2/d"):
            storage.create(f"{root}/{name}", b"")
        assert storage.exists(f"{root}/t")
        storage.delete_tree(f"{root}/t")
        assert storage.list(f"{root}/t") == []
        assert not storage.exists(f"{root}/t/b/c")
        assert storage.exists(f"{root}/t2/d")

    def test_folders(self, storage: Storage, root: str) -> None:
        """Making one twice is no error."""
        storage.make_dirs(f"{root}/a/b")
        storage.make_dirs(f"{root}/a/b")
        assert storage.list(f"{root}/a/b") == []
        storage.create(f"{root}/a/b/f", b"")
        assert storage.exists(f"{root}/a/b/f")

    def test_files_of_a_batch_are_visible_at_once(self, storage: Storage, root: str) -> None:
        """And stay after the sync, which may be repeated."""
        batch = storage.batched(root)
        batch.write(f"{root}/marker", b"")
        batch.create(f"{root}/created", b"1")
        with batch.open_output(f"{root}/a/file") as out:
            out.write(b"22")
        names = ("marker", "created", "a/file")
        for _ in range(2):
            assert [storage.read(f"{root}/{name}") for name in names] == [b"", b"1", b"22"]
            batch.sync()
        storage.sync()
