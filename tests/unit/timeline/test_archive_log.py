"""The archive of timeline layout 1: log files of one entry for each state of each instant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakedex.codec.avro import write_container
from lakedex.codec.log_block import decode_log_blocks
from lakedex.errors import CorruptFileError
from lakedex.io.local import LocalStorage
from lakedex.timeline.archived import append_archive_log, read_archive_log
from lakedex.timeline.commit_metadata import (
    CommitMetadata,
    RollbackMetadata,
    WriteStat,
    encode_requested_replace,
    encode_rollback_metadata,
)
from lakedex.timeline.instant import Instant, State, parse_instant_name

STORE = LocalStorage()
T = "20260101000000000"


def instant(name: str) -> Instant:
    found = parse_instant_name(name)
    assert found is not None
    return found


def commit_json() -> bytes:
    """A commit's body as tables of version 6 have it; fields that Avro does not know are left out."""
    stat = WriteStat(file_id="f-0", path="p/f-0_0-0-0_1.parquet", partition_path="p", file_size=10, num_writes=3)
    record = {**stat.to_record(), "recordsStats": {"val": {}}}
    body = {"partitionToWriteStats": {"p": [record]}, "compacted": False, "operationType": "UPSERT",
            "extraMetadata": {"schema": "{}"}, "unknown": 1}  # fmt: skip
    return json.dumps(body).encode()


def test_entries_of_all_states(tmp_path: Path) -> None:
    rollback = encode_rollback_metadata(RollbackMetadata(started=T, millis=1, instant=T, action="commit"))
    plan = write_container(
        "HoodieCleanerPlan", {"policy": "KEEP_LATEST_COMMITS", "filePathsToBeDeletedPerPartition": {}}
    )
    states = [
        (instant(f"{T}.commit.requested"), b""),
        (instant(f"{T}.inflight"), commit_json()),
        (instant(f"{T}.commit"), commit_json()),
        (instant(f"{T}.replacecommit.requested"), encode_requested_replace()),
        (instant(f"{T}.clean.requested"), plan),
        (instant(f"{T}.rollback.inflight"), b""),
        (instant(f"{T}.rollback"), rollback),
    ]
    path = append_archive_log(STORE, str(tmp_path), states)
    assert path == f"{tmp_path}/.commits_.archive.1_1-0-1"
    entries = list(read_archive_log(STORE, str(tmp_path)))
    assert [(e["commitTime"], e["actionType"], e["actionState"]) for e in entries] == [
        (T, "commit", "REQUESTED"),
        (T, "commit", "INFLIGHT"),
        (T, "commit", "COMPLETED"),
        (T, "replacecommit", "REQUESTED"),
        (T, "clean", "REQUESTED"),
        (T, "rollback", "INFLIGHT"),
        (T, "rollback", "COMPLETED"),
    ]
    assert entries[0]["hoodieCommitMetadata"] is None
    (stat,) = entries[2]["hoodieCommitMetadata"]["partitionToWriteStats"]["p"]
    assert (stat["fileId"], stat["numWrites"], stat["fileSizeInBytes"]) == ("f-0", 3, 10)
    assert entries[3]["hoodieRequestedReplaceMetadata"] is not None
    assert entries[4]["hoodieCleanerPlan"]["policy"] == "KEEP_LATEST_COMMITS"
    assert entries[6]["hoodieRollbackMetadata"]["commitsRollback"] == [T]


def test_each_archival_is_a_file_of_blocks(tmp_path: Path) -> None:
    many = [(Instant(str(int(T) + n), "commit", State.COMPLETED, None, ""), commit_json()) for n in range(25)]
    first = append_archive_log(STORE, str(tmp_path), many)
    second = append_archive_log(STORE, str(tmp_path), many[:1])
    assert first is not None
    assert second == f"{tmp_path}/.commits_.archive.2_1-0-1"
    blocks = decode_log_blocks(Path(first).read_bytes())
    assert [list(block.header) for block in blocks] == [["SCHEMA"]] * 3
    assert len(list(read_archive_log(STORE, str(tmp_path)))) == 26
    assert append_archive_log(STORE, str(tmp_path), []) is None


def test_damage_is_named(tmp_path: Path) -> None:
    path = append_archive_log(STORE, str(tmp_path), [(instant(f"{T}.commit"), commit_json())])
    assert path is not None
    Path(path).write_bytes(Path(path).read_bytes()[:-5])
    with pytest.raises(CorruptFileError, match="archive.1"):
        list(read_archive_log(STORE, str(tmp_path)))


def test_a_commit_without_a_body_is_an_entry_all_the_same(tmp_path: Path) -> None:
    append_archive_log(STORE, str(tmp_path), [(instant(f"{T}.commit"), b"")])
    (entry,) = read_archive_log(STORE, str(tmp_path))
    assert entry["hoodieCommitMetadata"] is None
    assert CommitMetadata(operation=None).all_stats() == []
