import os
import uuid
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakedex.errors import InvalidInputError, MissingDependencyError, UnsupportedFeatureError
from lakedex.io.fsspec import FsspecStorage
from lakedex.io.local import LocalStorage
from lakedex.io.locations import open_storage
from lakedex.io.storage import Storage
from lakedex.testing import StorageTests


@pytest.fixture
def base() -> str:
    return f"memory://{uuid.uuid4().hex}"


class TestMemory(StorageTests):
    @pytest.fixture
    def storage(self, base: str) -> Storage:
        return open_storage(base).storage

    @pytest.fixture
    def root(self, base: str) -> str:
        return base


def test_a_url_names_the_storage(base: str) -> None:
    files = open_storage(base + "/")
    assert files.base_path == base
    assert isinstance(files.storage, FsspecStorage)
    assert (files.storage.scheme, files.storage.can_create_exclusively) == ("memory", True)
    files.storage.create(files.path("f"), b"0123456789")
    assert files.storage.read_ranges(files.path("f"), [(8, 20), (0, 2)]) == [b"89", b"01"]
    assert files.storage.counted.requests == 1


def test_memory_parquet(base: str) -> None:
    files = open_storage(base)
    table = pa.table({"a": [1, 2, 3]})
    with files.storage.open_output(files.path("p/f.parquet")) as out:
        pq.write_table(table, out)
    with pytest.raises(FileExistsError):
        files.storage.open_output(files.path("p/f.parquet"))
    # Two readers of one file have positions of their own.
    with (
        files.storage.open_input(files.path("p/f.parquet")) as one,
        files.storage.open_input(files.path("p/f.parquet")) as two,
    ):
        assert one.read(4) == b"PAR1"
        assert two.read(4) == b"PAR1"
        assert pq.read_table(one).equals(table)


def test_a_store_without_put_if_absent_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    store = FsspecStorage(fsspec.filesystem("file"), "sftp")
    assert not store.can_create_exclusively
    assert store.read(f"{tmp_path}/f") == b"x"
    with pytest.raises(UnsupportedFeatureError, match="'sftp'"):
        store.create(f"{tmp_path}/g", b"x")


@pytest.mark.parametrize("url", ["file:///t/x/", "file:/t/x", "/t/x/", "file://host/t/x", "/t/./x"])
def test_local_paths(url: str) -> None:
    files = open_storage(url)
    assert isinstance(files.storage, LocalStorage)
    assert files.base_path == "/t/x"


def test_relative_paths_become_absolute() -> None:
    assert open_storage("x").base_path == f"{os.getcwd()}/x"
    assert open_storage(Path("x")).base_path == f"{os.getcwd()}/x"


def test_unknown_scheme() -> None:
    with pytest.raises(InvalidInputError, match="'nowhere:'"):
        open_storage("nowhere://x")
    with pytest.raises(InvalidInputError, match="empty"):
        open_storage("")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dbfs:/t/x", "give the mounted one: '/dbfs/t/x'"),
        ("dbfs:///t/x", "give the mounted one: '/dbfs/t/x'"),
        ("wasbs://c@a.blob.core.windows.net/t", "write 'abfss://c@a"),
        ("hdfs:/t/x", "write hdfs://host/path, or ./hdfs:/t/x for a folder"),
        ("s3:/bucket/t", "write s3://host/path"),
    ],
)
def test_paths_of_other_systems_make_no_folder(url: str, message: str) -> None:
    with pytest.raises((InvalidInputError, MissingDependencyError), match=message) as caught:
        open_storage(url)
    assert "\n" not in str(caught.value)
    assert not Path(url).exists()


def test_short_names_of_local_folders() -> None:
    assert open_storage("~/x").base_path == os.path.expanduser("~/x")
    for name in ("a:b", "C:/x", "./hdfs:/x"):
        assert open_storage(name).base_path == os.path.abspath(name)
