from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lakedex.testing
from faults import run_child
from lakedex.errors import StorageError
from lakedex.io.local import LocalStorage
from lakedex.io.locations import open_storage
from lakedex.io.locks import ConditionalStorage
from lakedex.io.storage import Storage
from lakedex.testing import (
    CountingStorage,
    Faults,
    FaultyStorage,
    LatencyStorage,
    StorageTests,
    StorageWrapper,
    open_table,
)
from table_kit import make, own, rows

WRAPPERS = {
    "wrapper": StorageWrapper,
    "counting": CountingStorage,
    "latency": lambda: LatencyStorage(0),
    "faulty": FaultyStorage,
    "nested": lambda: CountingStorage(LatencyStorage(0, FaultyStorage())),
}


class TestWrappers(StorageTests):
    @pytest.fixture(params=WRAPPERS)
    def storage(self, request: pytest.FixtureRequest) -> Storage:
        return WRAPPERS[request.param]()


class TestWrapperOfMemory(StorageTests):
    @pytest.fixture
    def storage(self) -> Storage:
        return CountingStorage(open_storage("memory://x").storage)

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"memory://{tmp_path.name}{time.monotonic_ns()}"


def test_calls_are_listed(tmp_path: Path) -> None:
    storage, path = CountingStorage(), f"{tmp_path}/f"
    storage.create(path, b"abc")
    with storage.open_input(path) as source:
        source.read(1)
    storage.batched(str(tmp_path)).delete(path)
    assert storage.calls == [("create", path), ("open_input", path), ("read_input", path), ("delete", path)]
    assert storage.paths("create", "list") == [path]
    assert len(storage.paths()) == 4
    assert storage.counted == storage.inner.counted
    assert pickle.loads(pickle.dumps(storage)).calls == storage.calls


def test_each_request_waits(tmp_path: Path) -> None:
    path = f"{tmp_path}/f"
    LocalStorage().write(path, bytes(1000))
    waits: list[tuple[str, str]] = []

    class Noted(LatencyStorage):
        def around(self, call: str, path: str, data: bytes = b""):
            waits.append((call, path))
            return super().around(call, path, data)

    assert Noted(0, max_gap=10).read_ranges(path, [(0, 5), (10, 20), (100, 110)]) == [bytes(5), bytes(10), bytes(10)]
    assert waits == [("read_ranges", path)] * 2
    started = time.monotonic()
    LatencyStorage(0.01).read(path)
    assert time.monotonic() - started >= 0.01


@pytest.mark.parametrize(
    ("faults", "call", "left"),
    [
        (Faults(1, "before", OSError("x")), "create", []),
        (Faults(1, "after", OSError("x")), "create", ["f"]),
        (Faults(1, "during", OSError("x")), "create", [".lakedex-"]),
        (Faults(1, "during", OSError("x")), "write", [".lakedex-"]),
        (Faults(2, "before", OSError("x")), "open_output", ["f"]),
        (Faults(1, "after", OSError("x"), only=("close_output", "f")), "open_output", ["f"]),
    ],
)
def test_a_fault_strikes_at_a_change(tmp_path: Path, faults: Faults, call: str, left: list[str]) -> None:
    storage, path = FaultyStorage(faults), f"{tmp_path}/f"
    with pytest.raises(StorageError, match="x") as caught:
        storage.open_output(path).close() if call == "open_output" else getattr(storage, call)(path, b"12")
    assert caught.value.path == path
    assert [name[: len(wanted)] for name, wanted in zip(os.listdir(tmp_path), left, strict=True)] == left
    assert faults.seen[-1][1] == path


def test_half_of_a_folder_is_deleted(tmp_path: Path) -> None:
    for name in ("t/a/f", "t/b", "t/c"):
        LocalStorage().create(f"{tmp_path}/{name}", b"")
    with pytest.raises(StorageError):
        FaultyStorage(Faults(1, "during", OSError("x"))).delete_tree(f"{tmp_path}/t")
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == ["t/b", "t/c"]


def test_object_stores_put_whole_objects() -> None:
    files = open_storage(f"memory://{time.monotonic_ns()}")
    with pytest.raises(StorageError):
        FaultyStorage(Faults(1, "during", OSError("x")), files.storage).create(files.path("f"), b"12")
    assert files.storage.list(files.base_path) == []


def test_faults_repeat_kill_and_call_hooks(tmp_path: Path) -> None:
    path, called = f"{tmp_path}/f", []
    storage = FaultyStorage(Faults(2, error=OSError(errno.EIO, "broken"), repeat=True))
    storage.write(path, b"")
    for _ in range(2):
        with pytest.raises(StorageError, match="check the disk"):
            storage.write(path, b"")
    FaultyStorage(Faults(1, hook=lambda: called.append(1))).write(path, b"1")
    assert called == [1]
    assert run_child(lambda: FaultyStorage(Faults(1, "after")).write(path, b"killed")) == -9
    assert storage.read(path) == b"killed"


def test_conditional_writes_are_passed_on(tmp_path: Path) -> None:
    wrapped = CountingStorage()
    assert isinstance(wrapped, ConditionalStorage) and not wrapped.has_conditional_put

    class Versioned(LocalStorage):
        has_conditional_put = True

        def read_version(self, path: str) -> tuple[bytes, str]:
            return b"x", "1"

        def put_version(self, path: str, data: bytes, version: str | None) -> str:
            return f"{version}+"

    wrapped = CountingStorage(Versioned())
    assert wrapped.has_conditional_put
    assert (wrapped.read_version("a"), wrapped.put_version("b", b"", "1")) == ((b"x", "1"), "1+")
    assert wrapped.calls == [("read_version", "a"), ("put_version", "b")]


def test_a_table_is_opened_on_a_storage(tmp_path: Path) -> None:
    data = rows(("a", "x", 1, 1), ("b", "y", 1, 2))
    make(tmp_path / "t", data, partition_by="city")
    storage = CountingStorage()
    table = open_table(tmp_path / "t", storage)
    assert storage.calls == []
    assert own(table) == own(data)
    assert len([path for path in storage.paths("open_input") if path.endswith(".parquet")]) == 2


def test_every_name_is_there() -> None:
    assert dir(lakedex.testing) == sorted(lakedex.testing.__all__)
    for name in lakedex.testing.__all__:
        assert getattr(lakedex.testing, name).__doc__
    with pytest.raises(AttributeError, match="'Nothing'"):
        lakedex.testing.Nothing  # noqa: B018


WITHOUT = """
import sys
sys.modules.update(hypothesis=None, pytest=None)
from lakedex.errors import MissingDependencyError
from lakedex.testing import CountingStorage, FaultyStorage, LatencyStorage, open_table
import lakedex.testing
for name in NAMES:
    try:
        getattr(lakedex.testing, name)
    except MissingDependencyError as error:
        print(error.extra, error)
"""
NEEDY = ("StorageTests", "TableMachine", "frames", "predicates", "schemas")


def test_without_the_extra_the_error_names_it() -> None:
    program = WITHOUT.replace("NAMES", repr(NEEDY))
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.count("testing lakedex.testing.") == said.count("pip install 'lakedex[testing]'") == len(NEEDY)
