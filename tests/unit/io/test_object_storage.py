"""The rules of object stores, on the model of one: each fault at each request of a put, and which error comes of it."""

from __future__ import annotations

import contextlib
import errno
import io
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex.errors import (
    CommitError,
    CommitStateUnknownError,
    FileGoneError,
    FileTakenError,
    LakedexError,
    StorageError,
    UnsupportedFeatureError,
)
from lakedex.io.object_storage import BLOCK_BYTES, SPOOL_BYTES
from lakedex.io.retries import OPERATION_SECONDS, one_operation
from lakedex.io.storage import Storage, VersionChangedError
from lakedex.parallel import run_threads
from lakedex.testing import FaultSchedule, StorageTests, StoreModel, StoreRequest, create_table, open_table

ROOT = "s3://model/t"
TEMPORARY = ("lost", "lost500", "reset", "500", "503", "hang")


class TestModel(StorageTests):
    @pytest.fixture
    def model(self) -> StoreModel:
        return StoreModel()

    @pytest.fixture
    def storage(self, model: StoreModel) -> Storage:
        return model.storage()

    @pytest.fixture
    def root(self) -> str:
        return ROOT


@pytest.fixture
def model() -> StoreModel:
    """A store that has shown that it keeps to conditions; only later requests are counted."""
    made = StoreModel()
    made.storage().create(f"{ROOT}/first", b"first")
    made.requests.clear()
    return made


def always(kind: str, *, after: int = 0) -> FaultSchedule:
    return FaultSchedule(dict.fromkeys(range(after, 10_000), kind))


@pytest.mark.parametrize("kind", [*TEMPORARY, "409", "slow"])
@pytest.mark.parametrize("data", [b"mine", b""])
def test_a_put_if_absent_that_meets_a_fault_is_done_once(model: StoreModel, kind: str, data: bytes) -> None:
    storage = model.storage()
    model.faults = FaultSchedule({0: kind})
    storage.create(f"{ROOT}/f", data)
    assert storage.read(f"{ROOT}/f") == data
    assert model.counts()["PUT-if-none"] == (1 if kind == "slow" else 2)
    assert model.counts()["GET"] == 1 + kind.startswith("lost"), "only a lost answer is read back"


@pytest.mark.parametrize("kind", [*TEMPORARY, "409"])
def test_the_object_of_another_writer_stays(model: StoreModel, kind: str) -> None:
    storage = model.storage()
    storage.create(f"{ROOT}/f", b"theirs")
    model.faults = FaultSchedule({0: kind})
    with pytest.raises(FileTakenError):
        storage.create(f"{ROOT}/f", b"mine")
    assert storage.read(f"{ROOT}/f") == b"theirs"


def test_empty_objects_are_told_apart_by_the_answer_alone(model: StoreModel) -> None:
    storage = model.storage()
    storage.create(f"{ROOT}/f", b"")
    with pytest.raises(FileTakenError):
        storage.create(f"{ROOT}/f", b"")


@pytest.mark.parametrize("kind", [*TEMPORARY, "409"])
def test_a_replacement_that_meets_a_fault_is_done_once(model: StoreModel, kind: str) -> None:
    storage = model.storage()
    first = storage.put_version(f"{ROOT}/f", b"1", None)
    model.faults = FaultSchedule({0: kind})
    second = storage.put_version(f"{ROOT}/f", b"2", first)
    assert storage.read_version(f"{ROOT}/f") == (b"2", second)
    for condition in (first, None):
        with pytest.raises(VersionChangedError):
            storage.put_version(f"{ROOT}/f", b"3", condition)
    storage.delete(f"{ROOT}/f")
    with pytest.raises(VersionChangedError):
        storage.put_version(f"{ROOT}/f", b"3", second)


@pytest.mark.parametrize("kind", [*TEMPORARY, "short"])
def test_other_requests_are_repeated(model: StoreModel, kind: str) -> None:
    storage = model.storage()
    calls: list[Any] = [
        lambda: storage.read(f"{ROOT}/first"),
        lambda: storage.read_ranges(f"{ROOT}/first", [(0, 2)]),
        lambda: storage.list(ROOT),
        lambda: storage.open_input(f"{ROOT}/first").read(),
    ]
    if kind != "short":
        calls += [
            lambda: storage.size(f"{ROOT}/first"),
            lambda: storage.exists(f"{ROOT}/first"),
            lambda: storage.write(f"{ROOT}/w", b"1"),
            lambda: storage.delete(f"{ROOT}/w"),
            lambda: storage.delete_tree(f"{ROOT}/w"),
        ]
    for call in calls:
        model.faults = None
        wanted = call()
        model.faults = FaultSchedule({0: kind})
        assert call() == wanted


@pytest.mark.parametrize(
    ("kind", "errno_", "effect", "remedy"),
    [
        ("403", errno.EACCES, "none", "check the credentials and the permissions"),
        ("500", errno.EIO, "none", "when the store works again"),
        ("503", errno.EIO, "none", "fewer requests"),
        ("409", errno.EIO, "none", "repeat the operation"),
        ("reset", errno.EIO, "none", "check the network"),
    ],
)
def test_a_fault_that_stays_is_an_error_that_says_all(
    model: StoreModel, kind: str, errno_: int, effect: str, remedy: str
) -> None:
    storage = model.storage()
    started = model.time.seconds
    model.faults = FaultSchedule(dict.fromkeys([*range(200)], kind), weights={})
    with pytest.raises(StorageError) as caught:
        storage.create(f"{ROOT}/f", b"mine")
    error = caught.value
    assert f"{ROOT}/f" in str(error) and remedy in str(error) and "cannot create" in str(error)
    assert (error.errno, error.path) == (errno_, f"{ROOT}/f")
    fields = pickle.loads(pickle.dumps(error)).__dict__
    puts = model.counts()["PUT-if-none"]
    assert fields["tries"] == puts
    assert (puts == 1) == (kind == "403")
    if kind != "403":
        assert puts >= 8 and 15 < model.time.seconds - started <= OPERATION_SECONDS + 5
    # Reading back failed too, where it was tried, and then nobody knows.
    assert fields["effect"] == ("unknown" if kind in ("500", "reset") else effect)
    model.faults = None
    assert not storage.exists(f"{ROOT}/f")


def test_a_put_that_fails_for_good_is_read_back(model: StoreModel) -> None:
    """What took effect is a success; what did not is an error that says so."""
    storage = model.storage()

    class OnlyPuts(FaultSchedule):
        def choose(self, request: Any) -> str:
            return kind if request.kind.startswith("PUT") else ""

    model.faults = OnlyPuts()
    kind = "lost500"
    storage.create(f"{ROOT}/f", b"mine")
    assert model.counts()["GET"] == 1
    kind = "500"
    with pytest.raises(StorageError) as caught:
        storage.create(f"{ROOT}/g", b"mine")
    assert caught.value.__dict__["effect"] == "none"


@pytest.mark.parametrize("kind", ["404", "403", "412", "501"])
def test_nothing_is_repeated_that_no_repetition_helps(model: StoreModel, kind: str) -> None:
    storage = model.storage()
    model.faults = always(kind)
    call = storage.read if kind in ("404", "403") else lambda path: storage.create(path, b"mine")
    with pytest.raises(LakedexError):
        call(f"{ROOT}/first")
    assert len(model.requests) == 1 + (kind == "412"), "a condition that failed is read back"


def test_a_missing_file_is_named(model: StoreModel) -> None:
    with pytest.raises(FileGoneError, match="s3://model/t/gone: cannot read: No such file"):
        model.storage().read(f"{ROOT}/gone")
    with pytest.raises(StorageError, match="no path in s3://model"):
        model.storage().read("s3://other/t/gone")
    with pytest.raises(StorageError, match="a whole bucket"):
        model.storage().delete_tree("s3://model/")


def test_an_outage_ends_an_operation_within_a_minute_or_so(model: StoreModel) -> None:
    """However many requests it has: when the budget is spent each is sent once more and no more."""
    storage = model.storage()
    model.faults = always("500")
    with one_operation():
        for number in range(10):
            with pytest.raises(StorageError):
                storage.write(f"{ROOT}/{number}", b"")
    assert model.time.seconds <= OPERATION_SECONDS + 5
    assert len(model.requests) < 50
    model.faults = None
    storage.write(f"{ROOT}/after", b"")
    model.faults = FaultSchedule({0: "503"})
    storage.write(f"{ROOT}/after", b"")


def test_threads_of_an_operation_spend_time_together_and_slow_down_together(model: StoreModel) -> None:
    storage = model.storage()
    model.faults = FaultSchedule(dict.fromkeys(range(8), "503"))
    with one_operation():
        run_threads(lambda n: storage.write(f"{ROOT}/{n}", b""), range(8), 8)
    assert model.counts() == {"PUT": 16}
    assert len(storage.list(ROOT)) == 9


@pytest.mark.parametrize("kind", ["ignored", "501"])
def test_a_store_that_keeps_no_conditions_is_read_only(kind: str) -> None:
    """And nothing of the probe stays."""
    model = StoreModel(keeps_conditions=kind != "ignored", faults=always("501") if kind == "501" else None)
    storage = model.storage()
    for call in (lambda: storage.create(f"{ROOT}/.hoodie/f", b""), lambda: storage.put_version(f"{ROOT}/f", b"", None)):
        with pytest.raises(UnsupportedFeatureError, match="conditional writes.*can only be read"):
            call()
        assert model.objects == {}
    storage.write(f"{ROOT}/f", b"1")
    assert storage.read(f"{ROOT}/f") == b"1"


def test_the_probe_is_made_once(model: StoreModel) -> None:
    fresh = StoreModel()
    fresh.storage().create(f"{ROOT}/.hoodie/timeline/f", b"1")
    assert fresh.counts() == {"PUT-if-none": 3, "PUT-if-match": 1, "DELETE": 1}
    assert all(r.key.startswith("t/.hoodie/.lakedex-probe-") for r in fresh.requests[:4])
    fresh.requests.clear()
    fresh.storage().create(f"{ROOT}/g", b"1")
    assert fresh.counts() == {"PUT-if-none": 1}


def test_a_file_is_read_by_few_requests(model: StoreModel) -> None:
    storage = model.storage()
    data = bytes(range(256)) * (BLOCK_BYTES // 64)
    with storage.open_output(f"{ROOT}/big") as out:
        out.write(memoryview(data))
    model.requests.clear()
    with storage.open_input(f"{ROOT}/big") as source:
        source.seek(-BLOCK_BYTES, io.SEEK_END)
        assert source.read() == data[-BLOCK_BYTES:]
        assert model.counts() == {"GET-range": 1}
        source.seek(0)
        assert b"".join(source.read(1000) for _ in range(262)) == data[:262_000]
        assert model.counts() == {"GET-range": 2}
        assert source.read() == data[262_000:]
    assert pa.PythonFile(storage.open_input(f"{ROOT}/big")).read() == data


def test_an_output_that_an_exception_leaves_is_not_put(model: StoreModel) -> None:
    storage = model.storage()
    with contextlib.suppress(ZeroDivisionError), storage.open_output(f"{ROOT}/f") as out:
        out.write(b"half")
        raise ZeroDivisionError
    storage.open_output(f"{ROOT}/g").write(b"never closed")
    assert not storage.exists(f"{ROOT}/f") and not storage.exists(f"{ROOT}/g")
    with storage.open_output(f"{ROOT}/h") as out:
        out.write(b"x" * (SPOOL_BYTES + 1))
    assert storage.size(f"{ROOT}/h") == SPOOL_BYTES + 1


def test_the_threads_of_an_operation_share_its_budget(model: StoreModel) -> None:
    """Those of the library's own pools."""
    storage = model.storage()
    model.faults = always("500")

    def write(number: int) -> str:
        try:
            storage.write(f"{ROOT}/{number}", b"")
        except StorageError as error:
            return error.operation
        return ""

    with one_operation():
        assert run_threads(write, range(12), 4) == ["write"] * 12
    assert model.time.seconds <= 4 * OPERATION_SECONDS
    assert len(model.requests) < 12 + 4 * 30


OUTAGES = {
    "the completion is refused": (r"timeline/\d+_\d+\.commit$", "403", CommitError, 20),
    "the completion fails": (r"timeline/\d+_\d+\.commit$", "500", CommitError, 20),
    "the completion fails and cannot be read": (r"timeline/\d+_\d+\.commit$", "500", CommitStateUnknownError, 20),
    "the answer to the completion is lost": (r"timeline/\d+_\d+\.commit$", "lost500", None, 30),
    "base files fail": (r"\.parquet$", "500", StorageError, 20),
    "the metadata fails": (r"\.log\.", "500", StorageError, 20),
    "the lock fails": ("table_lock", "500", StorageError, 20),
    "nothing is deleted": (None, "500", None, 30),
}


@pytest.mark.parametrize("name", OUTAGES)
def test_what_an_upsert_raises_is_not_visible_and_the_next_is_clean(name: str) -> None:
    """Within a minute or so; and no own lock, marker or heartbeat is in the way of the next one."""
    part, kind, error, count = OUTAGES[name]

    class Outage(FaultSchedule):
        def choose(self, request: StoreRequest) -> str:
            if part is None:
                return kind if request.kind == "DELETE" else ""
            is_put = request.kind.startswith("PUT") and re.search(part, request.key)
            failed.append(request.key) if is_put else None
            return kind if is_put or ("cannot be read" in name and request.key in failed) else ""

    failed: list[str] = []
    model = StoreModel()
    rows = pa.table({"id": [f"k{n:02}" for n in range(31)], "v": [*range(31)]})
    table = create_table(ROOT, model.storage(), rows.schema, record_key="id")
    table.upsert(rows.slice(0, 20))
    model.faults, started = Outage(), model.time.seconds
    with contextlib.nullcontext() if error is None else pytest.raises(error):
        table.upsert(rows.slice(10, 20))
    assert model.time.seconds - started <= OPERATION_SECONDS + 10
    model.faults, started = None, model.time.seconds
    assert open_table(ROOT, model.storage()).scan().count() == count
    table.upsert(rows.slice(10))
    assert model.time.seconds - started < 1, "nothing was waited for"
    assert open_table(ROOT, model.storage()).scan().count() == 31
    assert table.maintenance.validate().ok


@pytest.mark.parametrize("seed", range(3))
def test_a_table_lives_on_it(seed: int) -> None:
    """Also where every tenth request or so goes wrong; the probe of conditions is made under faults too."""
    model = StoreModel(faults=FaultSchedule(seed=seed, every=(3, 20)))
    rows = pa.table({"id": [f"k{n}" for n in range(20)], "v": [*range(20)]})
    table = create_table(ROOT, model.storage(), rows.schema, record_key="id")
    assert table.upsert(rows).inserted == 20
    assert table.upsert(rows.slice(0, 5)).updated == 5
    assert table.delete(where="v >= 15").deleted == 5
    again = open_table(ROOT, pickle.loads(pickle.dumps(model.storage())))
    assert again.scan("v < 100").count() == 15
    assert again.maintenance.validate().ok
    assert sum(bool(request.fault) for request in model.requests) > 10
    left = {key for key in model.objects if "probe" in key or "/.temp/" in key or "heartbeat" in key}
    assert not left


def test_the_example_of_the_documentation() -> None:
    """The model, as ``docs/object_stores.md`` shows it."""
    page = (Path(__file__).parents[3] / "docs" / "object_stores.md").read_text("utf-8")
    block = page.rpartition("```python\n")[2].partition("```")[0]
    rows = pa.table({"id": ["a", "b"], "v": [1, 2]})
    names: dict[str, Any] = {"rows": rows}
    exec(compile(block, "docs/object_stores.md", "exec"), names)
    assert names["table"].scan().count() == 2
