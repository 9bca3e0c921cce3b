"""Timeline layout 1: names, states and bodies as Hudi 0.15 has them. The golden bodies are its own bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakedex.errors import CommitConflictError, CommitError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.timeline.active import Timeline, complete, create_inflight, create_requested, is_under_way, remove_pending
from lakedex.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
    encode_commit_metadata,
    encode_json_body,
    encode_requested_replace,
)
from lakedex.timeline.instant import State
from table_kit import make, rows

GOLDEN = Path(__file__).parents[2] / "golden" / "timeline"
STORE = LocalStorage()
WHEN, LATER = "20260101000000000", "20260101000001000"


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    (tmp_path / ".hoodie" / "metadata").mkdir(parents=True)
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=t")
    return Timeline.load(TableFiles(STORE, str(tmp_path)), ".hoodie", layout=1)


def names(timeline: Timeline) -> set[str]:
    return {entry.name for entry in STORE.list(timeline.path) if entry.name.startswith("2026")}


@pytest.mark.parametrize("name", ["v6_commit", "v6_replacecommit", "v6_metadata_deltacommit"])
def test_bodies_are_those_of_java(name: str) -> None:
    """R20: byte for byte, for a commit, a replace commit and a delta commit with log files."""
    stored = (GOLDEN / f"{name}.json").read_bytes()
    assert encode_commit_metadata(decode_commit_metadata(stored), layout=1) == stored


def test_layout_of_json() -> None:
    record = {"a": {}, "b": [], "c": [{"d": None}, 1], "é": 'x"\n', "f": True}
    text = encode_json_body(record).decode()
    assert json.loads(text) == record
    assert text == (
        '{\n  "a" : { },\n  "b" : [ ],\n  "c" : [ {\n    "d" : null\n  }, 1 ],\n  "é" : "x\\"\\n",\n  "f" : true\n}'
    )


def test_a_commit_from_its_announcement_to_its_end(timeline: Timeline) -> None:
    inflight = create_inflight(timeline, create_requested(timeline, WHEN, "commit"))
    assert names(timeline) == {f"{WHEN}.commit.requested", f"{WHEN}.inflight"}
    assert is_under_way(STORE, timeline.path, WHEN)
    assert [i.state for i in timeline.reload().instants] == [State.INFLIGHT]
    stat = WriteStat(file_id="f", path="p/f", partition_path="p", file_size=9)
    metadata = CommitMetadata(operation="UPSERT", write_stats={"p": (stat,)}, extra={"schema": "{}"})
    done = complete(timeline, inflight, LATER, encode_commit_metadata(metadata, timeline.layout))
    assert (done.file_name, done.completed) == (f"{WHEN}.commit", LATER)
    assert names(timeline) == {f"{WHEN}.commit.requested", f"{WHEN}.inflight", f"{WHEN}.commit"}
    assert not is_under_way(STORE, timeline.path, WHEN)
    found = timeline.reload()
    assert found.is_completed(WHEN) and not found.pending()
    assert found.commit_metadata(WHEN).write_stats["p"][0].file_size == 9
    # The completion time of a reader is the age of the file, by the clock of the store; new instants go by the others.
    assert (found.completion_time(WHEN) or "") > LATER
    assert found.last_time == WHEN
    with pytest.raises(CommitConflictError, match="already completed"):
        complete(timeline, inflight, LATER, b"{}")


def test_other_actions(timeline: Timeline) -> None:
    for action, inflight_name in (
        ("replacecommit", "replacecommit.inflight"),
        ("deltacommit", "deltacommit.inflight"),
        ("rollback", "rollback.inflight"),
        ("clean", "clean.inflight"),
        ("compaction", "compaction.inflight"),
    ):
        body = encode_requested_replace() if action == "replacecommit" else b""
        inflight = create_inflight(timeline, create_requested(timeline, WHEN, action, body))
        assert inflight.file_name == f"{WHEN}.{inflight_name}"
        ending = {"compaction": "commit"}.get(action, action)
        assert complete(timeline, inflight, LATER, b"{}").file_name == f"{WHEN}.{ending}"
    with pytest.raises(CommitError, match="clustering"):
        create_requested(timeline, WHEN, "clustering")


def test_taken_back(timeline: Timeline) -> None:
    inflight = create_inflight(timeline, create_requested(timeline, WHEN, "commit"))
    remove_pending(timeline, inflight)
    assert names(timeline) == set()
    assert not is_under_way(STORE, timeline.path, WHEN)
    with pytest.raises(CommitConflictError, match="rolled it back"):
        complete(timeline, inflight, LATER, b"{}")
    with pytest.raises(CommitConflictError, match="rolled it back"):
        create_inflight(timeline, inflight)
    create_requested(timeline, WHEN, "commit")
    with pytest.raises(CommitConflictError, match="another writer uses the instant"):
        create_requested(timeline, WHEN, "commit")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_all_commits_of_both_timelines_are_json(tmp_path: Path, kind: str) -> None:
    """Java reads those of version 6 as JSON when it archives, and fails at others: its writers were shut out."""
    options = {"hoodie.write.table.version": 6, "hoodie.metadata.compact.max.delta.commits": 2}
    table = make(tmp_path, table_type=kind, options=options)
    for number in range(5):
        table.upsert(rows(("k1", "a", number, number), (f"n{number}", "a", 1, 1)))
    table.insert_overwrite(rows(("k2", "a", 5, 5)))
    table.maintenance.cluster()
    if kind == "mor":
        table.maintenance.compact()
    folders = (tmp_path / ".hoodie", tmp_path / ".hoodie/metadata/.hoodie")
    commits = [file for folder in folders for file in folder.glob("*commit") if file.stat().st_size]
    kinds = {(file.parent.parent.name == "metadata", file.suffix) for file in commits}
    assert {(True, ".commit"), (True, ".deltacommit"), (False, ".replacecommit")} <= kinds
    assert [file for file in commits if not isinstance(json.loads(file.read_bytes()), dict)] == []
