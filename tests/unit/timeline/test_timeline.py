from pathlib import Path

import pytest

from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.timeline.active import Timeline
from lakedex.timeline.commit_metadata import (
    CommitMetadata,
    RollbackMetadata,
    RollbackPlan,
    WriteStat,
    encode_commit_metadata,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from lakedex.timeline.instant import State

STORE = LocalStorage()


def t(number: int) -> str:
    return f"202601010000{number:02d}000"


def put(base: Path, *names: str, body: bytes = b"") -> None:
    folder = base / ".hoodie" / "timeline"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(body)


def load(base: Path) -> Timeline:
    return Timeline.load(TableFiles(STORE, str(base)))


def commit(base: Path, number: int, action: str = "commit", body: bytes = b"") -> None:
    inflight = ".inflight" if action == "commit" else f".{action}.inflight"
    put(base, f"{t(number)}.{action}.requested", f"{t(number)}{inflight}")
    put(base, f"{t(number)}_{t(number + 1)}.{action}", body=body)


def replace_body(replaced: dict[str, tuple[str, ...]]) -> bytes:
    return encode_commit_metadata(CommitMetadata(operation="INSERT_OVERWRITE", replaced=replaced), 2)


def test_no_folder(tmp_path: Path) -> None:
    timeline = load(tmp_path)
    assert timeline.instants == () and timeline.first_active is None and timeline.last_completed is None
    assert timeline.last_time == ""
    assert not timeline.is_committed(t(1))


def test_states(tmp_path: Path) -> None:
    commit(tmp_path, 10)
    put(tmp_path, f"{t(20)}.commit.requested", f"{t(20)}.inflight")
    put(tmp_path, f"{t(30)}.clean.requested")
    timeline = load(tmp_path)
    assert [(i.requested, i.action, i.state) for i in timeline.instants] == [
        (t(10), "commit", State.COMPLETED),
        (t(20), "commit", State.INFLIGHT),
        (t(30), "clean", State.REQUESTED),
    ]
    assert [i.requested for i in timeline.completed()] == [t(10)]
    assert [i.requested for i in timeline.pending()] == [t(20), t(30)]
    assert [i.requested for i in timeline.pending({"clean"})] == [t(30)]
    assert timeline.last_completed is not None and timeline.last_completed.requested == t(10)
    assert timeline.completion_time(t(10)) == t(11) and timeline.completion_time(t(20)) is None
    assert timeline.last_time == t(30)
    assert timeline.state_of(t(20), "commit") is State.INFLIGHT
    assert timeline.state_of(t(20), "clean") is None
    assert timeline.contains(t(20)) and not timeline.contains(t(20), "clean") and not timeline.contains(t(21))


def test_actions_that_complete_under_another_name(tmp_path: Path) -> None:
    put(tmp_path, f"{t(1)}.clustering.requested", f"{t(1)}.clustering.inflight", f"{t(1)}_{t(2)}.replacecommit")
    put(tmp_path, f"{t(3)}.compaction.requested", f"{t(3)}.compaction.inflight", f"{t(3)}_{t(4)}.commit")
    put(tmp_path, f"{t(5)}.logcompaction.requested", f"{t(5)}_{t(6)}.deltacommit")
    put(tmp_path, f"{t(7)}.clustering.requested")
    timeline = load(tmp_path)
    assert [(i.action, i.is_completed) for i in timeline.instants] == [
        ("replacecommit", True),
        ("commit", True),
        ("deltacommit", True),
        ("clustering", False),
    ]
    assert timeline.state_of(t(1), "clustering") is State.COMPLETED


def test_foreign_and_temporary_files(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    put(tmp_path, "x", f"{t(9)}_{t(9)}.commit.c81e728d", ".lakedex-1.tmp", f".{t(9)}.commit.crc", "_version_")
    (tmp_path / ".hoodie" / "timeline" / "history").mkdir()
    (tmp_path / ".hoodie" / "timeline" / f"{t(8)}.commit.requested").mkdir()
    assert [i.requested for i in load(tmp_path).instants] == [t(1)]


def test_two_completions_of_one_instant(tmp_path: Path) -> None:
    put(tmp_path, f"{t(1)}_{t(5)}.commit", f"{t(1)}_{t(2)}.commit")
    assert load(tmp_path).completion_time(t(1)) == t(2)


def test_committed(tmp_path: Path) -> None:
    put(tmp_path, f"{t(10)}.commit.requested")
    commit(tmp_path, 20)
    timeline = load(tmp_path)
    assert timeline.is_committed(t(5))  # archived
    assert not timeline.is_committed(t(10))  # pending, although first
    assert not timeline.is_committed(t(15))  # a hole: rolled back
    assert timeline.is_committed(t(20))
    assert not timeline.is_committed(t(25))


def test_savepoints_do_not_begin_the_timeline(tmp_path: Path) -> None:
    commit(tmp_path, 10)
    put(tmp_path, f"{t(10)}.savepoint.inflight", f"{t(10)}_{t(40)}.savepoint")
    commit(tmp_path, 30)
    timeline = load(tmp_path)
    assert timeline.first_active is not None and timeline.first_active.requested == t(30)
    assert timeline.is_committed(t(10)) and timeline.is_committed(t(20))
    assert timeline.completion_time(t(10)) == t(11)  # the commit's, not the savepoint's
    assert timeline.last_time == t(40)


def test_a_timeline_of_savepoints_begins_with_the_last_one(tmp_path: Path) -> None:
    for time in (10, 30):
        commit(tmp_path, time)
        put(tmp_path, f"{t(time)}_{t(time + 5)}.savepoint")
    put(tmp_path, f"{t(50)}_{t(60)}.restore")
    timeline = load(tmp_path)
    assert timeline.first_active is not None and timeline.first_active.requested == t(30)
    assert [timeline.is_committed(t(time)) for time in (5, 10, 20, 30, 40)] == [True, True, True, True, False]
    gone = timeline.once_gone({t(30)})
    assert gone.is_committed(t(5)) and not gone.is_committed(t(20))


def test_metadata_is_read_once(tmp_path: Path) -> None:
    stat = WriteStat(file_id="f-0", path="p/f", partition_path="p", file_size=3)
    body = CommitMetadata(operation="INSERT", write_stats={"p": (stat,)}, extra={"schema": "{}"})
    commit(tmp_path, 1, body=encode_commit_metadata(body, 2))
    timeline = load(tmp_path)
    found = timeline.commit_metadata(t(1))
    assert found == body
    assert timeline.commit_metadata(timeline.instants[0]) is found
    assert timeline.reload().commit_metadata(t(1)) is found
    with pytest.raises(KeyError):
        timeline.commit_metadata(t(2))


@pytest.mark.parametrize("body", [b"", b"Obj\x01", b"{", b"nonsense", b"{}garbage"])
def test_a_damaged_commit_names_its_file(tmp_path: Path, body: bytes) -> None:
    commit(tmp_path, 1, body=body)
    with pytest.raises(CorruptFileError) as caught:
        load(tmp_path).commit_metadata(t(1))
    assert caught.value.path.endswith(f"{t(1)}_{t(2)}.commit")


def test_json_of_an_upgraded_table(tmp_path: Path) -> None:
    put(tmp_path, f"{t(1)}.commit", body=b'{"operationType": "UPSERT", "partitionToWriteStats": {}}')
    timeline = load(tmp_path)
    assert timeline.instants[0].is_legacy
    assert timeline.commit_metadata(t(1)).operation == "UPSERT"


@pytest.mark.parametrize("body", [b'{"partitionToWriteStats": 5}', b'{"partitionToWriteStats": {"p": [5]}}'])
def test_json_of_another_shape(tmp_path: Path, body: bytes) -> None:
    commit(tmp_path, 1, body=body)
    with pytest.raises(CorruptFileError):
        load(tmp_path).commit_metadata(t(1))


def test_replaced_file_groups(tmp_path: Path) -> None:
    commit(tmp_path, 1, "replacecommit", replace_body({"a": ("f1", "f2")}))
    commit(tmp_path, 3, "replacecommit", replace_body({"a": ("f2", "f3"), "": ("g",)}))
    put(tmp_path, f"{t(5)}.replacecommit.requested")
    commit(tmp_path, 7)  # empty body: not read
    timeline = load(tmp_path)
    assert timeline.replaced_file_groups() == {
        ("a", "f1"): t(1),
        ("a", "f2"): t(1),
        ("a", "f3"): t(3),
        ("", "g"): t(3),
    }
    assert timeline.replaced_file_groups(t(1)) == {("a", "f1"): t(1), ("a", "f2"): t(1)}
    assert timeline.replaced_file_groups(t(0)) == {}


def test_rollbacks(tmp_path: Path) -> None:
    plan = RollbackPlan(instant=t(1), action="commit")
    put(tmp_path, f"{t(2)}.rollback.requested", body=b"")
    put(tmp_path, f"{t(3)}.rollback.requested", body=encode_rollback_plan(plan))
    timeline = load(tmp_path)
    found = timeline.pending_rollback_of(t(1))
    assert found is not None and found.requested == t(3)
    assert timeline.pending_rollback_of(t(9)) is None
    done = RollbackMetadata(started=t(3), millis=5, instant=t(1), action="commit", deleted={"p": ("/x/f",)})
    put(tmp_path, f"{t(3)}_{t(4)}.rollback", body=encode_rollback_metadata(done))
    again = timeline.reload()
    assert again.rollback_metadata(again.completed({"rollback"})[0]).deleted == {"p": ("/x/f",)}
    assert again.rollback_plan(t(3)).instant == t(1)
    assert again.pending_rollback_of(t(1)) is None
