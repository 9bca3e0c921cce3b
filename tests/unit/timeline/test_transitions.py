import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakedex.errors import CommitConflictError, CommitError, CommitStateUnknownError, UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.timeline.active import Timeline, complete, create_inflight, create_requested, remove_pending
from lakedex.timeline.instant import Instant, State

T, C, LATER = "20260101000000000", "20260101000001000", "20260101000002000"
STORE = LocalStorage()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"{tmp_path}/.hoodie/timeline"


def on(store: LocalStorage, folder: str) -> Timeline:
    return Timeline.load(TableFiles(store, folder.removesuffix("/.hoodie/timeline")))


def inflight(folder: str, action: str = "commit") -> Instant:
    return create_inflight(on(STORE, folder), create_requested(on(STORE, folder), T, action))


@pytest.mark.parametrize(
    ("action", "names", "done"),
    [
        ("commit", [f"{T}.commit.requested", f"{T}.inflight", f"{T}_{C}.commit"], "commit"),
        (
            "deltacommit",
            [f"{T}.deltacommit.inflight", f"{T}.deltacommit.requested", f"{T}_{C}.deltacommit"],
            "deltacommit",
        ),
        (
            "clustering",
            [f"{T}.clustering.inflight", f"{T}.clustering.requested", f"{T}_{C}.replacecommit"],
            "replacecommit",
        ),
        ("compaction", [f"{T}.compaction.inflight", f"{T}.compaction.requested", f"{T}_{C}.commit"], "commit"),
        ("rollback", [f"{T}.rollback.inflight", f"{T}.rollback.requested", f"{T}_{C}.rollback"], "rollback"),
    ],
)
def test_life_of_an_instant(tmp_path: Path, folder: str, action: str, names: list[str], done: str) -> None:
    instant = inflight(folder, action)
    assert (instant.state, instant.action) == (State.INFLIGHT, action)
    completed = complete(on(STORE, folder), instant, C, b"body")
    assert sorted(os.listdir(folder)) == sorted(names)
    (found,) = Timeline.load(TableFiles(STORE, str(tmp_path))).instants
    assert found == completed
    assert (found.action, found.completed, found.is_completed) == (done, C, True)


def test_an_instant_is_taken_once(folder: str) -> None:
    requested = create_requested(on(STORE, folder), T, "commit")
    with pytest.raises(CommitConflictError, match="another writer uses") as caught:
        create_requested(on(STORE, folder), T, "commit")
    assert caught.value.retryable and caught.value.ours == T
    create_inflight(on(STORE, folder), requested)
    with pytest.raises(CommitConflictError):
        create_inflight(on(STORE, folder), requested)


def test_a_state_needs_its_predecessor(folder: str) -> None:
    requested = create_requested(on(STORE, folder), T, "commit")
    with pytest.raises(CommitConflictError, match="rolled it back"):
        complete(on(STORE, folder), requested, C, b"body")
    instant = create_inflight(on(STORE, folder), requested)
    remove_pending(on(STORE, folder), instant)
    remove_pending(on(STORE, folder), instant)
    assert os.listdir(folder) == []
    with pytest.raises(CommitConflictError, match="rolled it back"):
        create_inflight(on(STORE, folder), requested)
    with pytest.raises(CommitConflictError, match="rolled it back"):
        complete(on(STORE, folder), instant, C, b"body")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("theirs", [f"{T}_{C}.commit", f"{T}_{LATER}.commit", f"{T}.commit"])
def test_completed_by_another(folder: str, theirs: str) -> None:
    instant = inflight(folder)
    STORE.create(f"{folder}/{theirs}", b"theirs")
    with pytest.raises(CommitConflictError, match="already completed") as caught:
        complete(on(STORE, folder), instant, C, b"ours")
    assert not caught.value.retryable
    assert STORE.read(f"{folder}/{theirs}") == b"theirs"


@pytest.mark.parametrize("completion", ["", T, "20250101000000000", "2026x"])
def test_completion_is_later_than_the_request(folder: str, completion: str) -> None:
    instant = inflight(folder)
    with pytest.raises(CommitError, match="not later"):
        complete(on(STORE, folder), instant, completion, b"")


def test_unknown_actions(folder: str) -> None:
    for action in ("savepoint", "mystery"):
        with pytest.raises(CommitError, match=action):
            create_requested(on(STORE, folder), T, action)


class Faulty(LocalStorage):
    """Breaks while it creates; what happened before is up to the test."""

    __slots__ = ("before", "error", "unreadable")

    def fail(self, error: Exception, before: Callable[[], None] | None = None, unreadable: bool = False) -> "Faulty":
        for name, value in (("error", error), ("before", before), ("unreadable", unreadable)):
            object.__setattr__(self, name, value)
        return self

    def create(self, path: str, data: bytes) -> None:
        if self.before is not None:
            self.before()
        raise self.error

    def read(self, path: str) -> bytes:
        if self.unreadable:
            raise ConnectionError("store is away")
        return super().read(path)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        PermissionError(errno.EACCES, "Permission denied"),
        UnsupportedFeatureError("no hard links"),
    ],
)
def test_definite_failure(folder: str, error: Exception) -> None:
    instant = inflight(folder)
    with pytest.raises(CommitError, match="did not take effect") as caught:
        complete(on(Faulty().fail(error), folder), instant, C, b"ours")
    assert type(caught.value) is CommitError
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [TimeoutError("read timed out"), OSError(errno.EIO, "I/O"), RuntimeError("503")])
def test_unknown_outcome(folder: str, error: Exception) -> None:
    instant = inflight(folder)
    with pytest.raises(CommitStateUnknownError, match="may still take effect") as caught:
        complete(on(Faulty().fail(error), folder), instant, C, b"ours")
    assert caught.value.instant == T


def test_effect_without_an_answer_is_success(folder: str) -> None:
    instant = inflight(folder)
    path = f"{folder}/{T}_{C}.commit"
    for error in (TimeoutError("no answer"), FileExistsError(path)):
        store = Faulty().fail(error, before=lambda: STORE.write(path, b"ours"))
        assert complete(on(store, folder), instant, C, b"ours").completed == C
        STORE.delete(path)


def test_somebody_elses_file_appears_meanwhile(folder: str) -> None:
    instant = inflight(folder)
    path = f"{folder}/{T}_{C}.commit"

    def theirs() -> None:
        STORE.write(path, b"theirs")

    with pytest.raises(CommitConflictError):
        complete(on(Faulty().fail(FileExistsError(path), before=theirs), folder), instant, C, b"ours")
    STORE.delete(path)
    with pytest.raises(CommitStateUnknownError):
        complete(on(Faulty().fail(TimeoutError("no answer"), before=theirs), folder), instant, C, b"ours")


def test_a_store_that_is_away_afterwards(folder: str) -> None:
    instant = inflight(folder)
    for error in (OSError(errno.ENOSPC, "full"), FileExistsError("x"), TimeoutError("no answer")):
        with pytest.raises(CommitStateUnknownError):
            complete(on(Faulty().fail(error, unreadable=True), folder), instant, C, b"ours")
