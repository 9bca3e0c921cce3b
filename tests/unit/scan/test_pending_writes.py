"""Ranges and earlier states beside writes that are still pending: what such a write adds later must not be missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakedex import Table
from lakedex.codec.avro import write_container
from lakedex.errors import InvalidInputError
from lakedex.io.locations import open_storage
from lakedex.snapshot.snapshot import Snapshot
from lakedex.spark.data_source import LakedexDataSource
from lakedex.timeline.active import create_inflight, create_requested
from lakedex.timeline.instant import plus_millis
from table_kit import make, own, rows

VERSIONS = pytest.mark.parametrize("version", [6, 8, 9])


def three_commits(path: Path, version: int) -> tuple[Table, list[str]]:
    table = make(path / "t", schema=rows().schema, options={"hoodie.write.table.version": version})
    return table, [str(table.insert(rows((str(n), "a", n, n))).instant) for n in range(3)]


def pend(table: Table, instant: str, action: str = "commit", body: bytes = b"") -> None:
    files = open_storage(table.path)
    timeline = Snapshot.load(files).timeline
    create_inflight(timeline, create_requested(timeline, instant, action, body))


@VERSIONS
def test_time_travel_ends_before_the_first_pending_write(tmp_path: Path, version: int) -> None:
    table, (one, two, three) = three_commits(tmp_path, version)
    slow = plus_millis(two, 1)
    pend(table, slow)
    for moment in (slow, three, "2999-01-01"):
        with pytest.raises(
            InvalidInputError, match=f"{table.path} cannot be read as of .* commit {slow} is still pend"
        ):
            table.scan(as_of=moment)
    assert own(table.scan(as_of=one).to_arrow(), "id") == [("0",)]
    assert own(table.scan(as_of=two).to_arrow(), "id") == [("0",), ("1",)]
    assert own(table, "id") == [("0",), ("1",), ("2",)]


def test_changes_of_version_6_end_before_the_first_pending_write(tmp_path: Path) -> None:
    """Ranges go by requested time there: what completes out of turn would lie before where the next one begins."""
    table, (one, two, three) = three_commits(tmp_path, 6)
    slow = plus_millis(two, 1)
    pend(table, slow)
    for since, until in (("earliest", None), (one, None), (one, three), (three, None), (slow, "2999-01-01")):
        with pytest.raises(InvalidInputError, match=f"for the changes since {since}: commit {slow} is still pending"):
            table.changes(since, until)
    assert own(table.changes("earliest", two).to_arrow(), "id") == [("0",), ("1",)]
    assert own(table.changes(one, two).to_arrow(), "id") == [("1",)]


def test_a_pending_write_after_all_commits_stops_no_range_up_to_the_newest(tmp_path: Path) -> None:
    table, (one, _, three) = three_commits(tmp_path, 6)
    pend(table, plus_millis(three, 1))
    assert own(table.changes(one).to_arrow(), "id") == [("1",), ("2",)]


@pytest.mark.parametrize("version", [8, 9])
def test_changes_by_completion_time_go_on(tmp_path: Path, version: int) -> None:
    """What is pending completes later than all that is, and so belongs to a later range."""
    table, (one, two, _) = three_commits(tmp_path, version)
    pend(table, plus_millis(two, 1))
    assert own(table.changes(one).to_arrow(), "id") == [("1",), ("2",)]


@VERSIONS
@pytest.mark.parametrize("action", ["replacecommit", "deltacommit"])
def test_pending_writes_of_every_kind_count(tmp_path: Path, version: int, action: str) -> None:
    table, (one, _, three) = three_commits(tmp_path, version)
    slow = plus_millis(one, 1)
    pend(table, slow, action)
    with pytest.raises(InvalidInputError, match=f"{action} {slow} is still pending"):
        table.scan(as_of=three)


@pytest.mark.parametrize(
    ("version", "action"), [(6, "clean"), (6, "compaction"), (9, "clean"), (9, "compaction"), (9, "clustering")]
)
def test_pending_services_change_no_row(tmp_path: Path, version: int, action: str) -> None:
    table, (one, two, three) = three_commits(tmp_path, version)
    pend(table, plus_millis(one, 1), action)
    assert table.scan(as_of=three).count() == 3
    assert own(table.changes(one, two).to_arrow(), "id") == [("1",)]


def test_a_clustering_of_version_6_is_a_replace_commit_with_a_plan(tmp_path: Path) -> None:
    table, (one, _, three) = three_commits(tmp_path, 6)
    plan = {"inputGroups": [], "strategy": None, "extraMetadata": None, "version": 1}
    plan |= {"preserveHoodieMetadata": True, "missingSchedulePartitions": None}
    body = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": None, "version": 1}
    pend(table, plus_millis(one, 1), "replacecommit", write_container("HoodieRequestedReplaceMetadata", body))
    assert table.scan(as_of=three).count() == 3
    assert table.changes(one).count() == 2


def test_the_data_source_pins_the_newest_commit_beside_a_pending_write(tmp_path: Path) -> None:
    table, (one, two, three) = three_commits(tmp_path, 9)
    pend(table, plus_millis(one, 1))
    plain = LakedexDataSource({"path": table.path})
    schema = plain.schema()
    assert plain.pinned == three
    assert len(list(plain.reader(schema).partitions())) == 1
    with pytest.raises(InvalidInputError, match="is still pending"):
        LakedexDataSource({"path": table.path, "as.of.instant": two}).schema()
