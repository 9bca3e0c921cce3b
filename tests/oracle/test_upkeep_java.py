"""lakedex and Java take turns at compacting and cleaning the metadata table, and at archiving both timelines.

Whoever did it last, the other reads all rows, finds by indexes what a full scan finds, tags by the same bloom filters,
and goes on with its own upkeep (R37, R50 to R53).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_SKIPPING, WRITE_BLOOM, JavaError, JavaJudge, metadata_compaction
from judging import assert_all_see, assert_same_answers, create, keyed, own_rows
from rust_judge import RustJudge

from lakedex import Table
from lakedex.errors import InvalidInputError
from lakedex.maintenance.metadata_compaction import last_compaction
from lakedex.reports import ValidationReport
from lakedex.timeline.service_metadata import decode_clean_metadata, decode_compaction_plan

OURS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.keep.min.commits": "5",
    "hoodie.keep.max.commits": "7",
    "hoodie.clean.commits.retained": "2",
}
JAVA = {
    **WRITE_BLOOM,
    **metadata_compaction(2),
    "hoodie.keep.min.commits": "5",
    "hoodie.keep.max.commits": "6",
    "hoodie.clean.automatic": "false",
    "hoodie.metadata.bloom.filter.enable": "true",
}
FILTERS = ("value > 20", "key = 'a3'", "part = 'b' AND value < 5")


def upsert(table: Table, first: int, count: int) -> None:
    for number in range(first, first + count):
        part = "ab"[number % 2]
        table.upsert(keyed([f"{part}{number % 6}", f"{part}n{number}"], number, number, part))


def java_upserts(java: JavaJudge, path: Path, number: int, options: Mapping[str, str] | None = None) -> None:
    part = "ab"[number % 2]
    rows = keyed([f"{part}{number % 6}", f"{part}n{number}"], number, number, part)
    java.write(path, rows, partition="part", ordering="ts", options={**JAVA, **(options or {})})


def check(path: Path, java: JavaJudge, rust: RustJudge | None = None) -> pa.Table:
    rows = assert_all_see(path, java, rust)
    assert_same_answers(path, java, FILTERS)
    assert_valid(path)
    return rows


def look(path: Path, java: JavaJudge) -> None:
    """The same by Java's metadata table alone, between two steps."""
    assert_same_rows(java.read(path, options=READ_SKIPPING), own_rows(path), "key")
    assert_valid(path)


def assert_valid(path: Path) -> None:
    for index in ("column_stats", "bloom_filters"):
        report: ValidationReport = Table.open(path).indexes.validate(index)
        assert report.ok, str(report)


def metadata_timeline(path: Path) -> list[tuple[str, str]]:
    timeline = Table.open(path).snapshot().metadata.timeline
    return [(i.requested, i.action) for i in timeline.instants]


def compactions(path: Path) -> list[str]:
    return [requested for requested, action in metadata_timeline(path) if action == "commit"]


def archived_by_java(java: JavaJudge, path: Path) -> set[str]:
    java.sql(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{path}'")
    try:
        found = java.sql(
            "CALL show_archived_commits(table => 't', limit => 1000, start_ts => '20200101000000000', "
            "end_ts => '20990101000000000')"
        )
    finally:
        java.sql("DROP TABLE t")
    return set(found.column("commit_time").to_pylist())


def test_turns(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Twenty-eight of ours with everything that runs by itself, four of Java's with its own, twelve of ours."""
    table = create(tmp_path, keyed([]).schema, partition_by="part", options=OURS)
    commits = []
    for number in range(1, 29):
        upsert(table, number, 1)
        commits.append(str(table.inspect.history(1).column("commit_time")[0].as_py()))
    assert len(compactions(tmp_path)) > 1
    assert any(action == "clean" for _, action in metadata_timeline(tmp_path))
    active = {str(time) for time in table.inspect.history().column("commit_time").to_pylist()}
    assert len(active) <= 8
    assert archived_by_java(java, tmp_path) == set(commits) - active
    look(tmp_path, java)

    before = compactions(tmp_path)
    for number in range(29, 33):
        java_upserts(java, tmp_path, number)
    theirs = set(compactions(tmp_path)) - set(before)
    assert theirs, "Java compacted on top of ours"
    now = {str(time) for time in Table.open(tmp_path).inspect.history().column("commit_time").to_pylist()}
    assert archived_by_java(java, tmp_path) >= active - now, "Java archived what we wrote"
    look(tmp_path, java)

    upsert(Table.open(tmp_path, options=OURS), 33, 12)
    assert set(compactions(tmp_path)) - theirs - set(before), "ours on top of Java's"
    java_upserts(java, tmp_path, 45)
    check(tmp_path, java, rust)
    whole = Table.open(tmp_path).inspect.history(archived=True).column("commit_time").to_pylist()
    assert len(whole) == len(set(whole)) == 28 + 4 + 12 + 1
    assert set(commits) <= set(whole)


def test_a_compaction_that_java_left_pending(java: JavaJudge, tmp_path: Path) -> None:
    """Its plan is carried out; and a plan of ours that was left pending is carried out by Java."""
    table = create(
        tmp_path,
        keyed([]).schema,
        partition_by="part",
        options=OURS | {"hoodie.metadata.compact.max.delta.commits": "99"},
    )
    upsert(table, 1, 3)
    java_upserts(java, tmp_path, 4, metadata_compaction(1))
    (done,) = compactions(tmp_path)
    folder = tmp_path / ".hoodie/metadata"
    timeline = folder / ".hoodie" / "timeline"
    operations = decode_compaction_plan((timeline / f"{done}.compaction.requested").read_bytes())
    assert {operation.partition for operation in operations} == {
        "files", "column_stats", "partition_stats", "bloom_filters"
    }  # fmt: skip
    for entry in [
        *timeline.glob(f"*{done}_*.commit*"),
        *folder.glob(f"*/*_{done}.hfile*"),
        *folder.glob(f"*/.*_{done}.hfile*"),
    ]:
        entry.unlink(missing_ok=True)
    assert compactions(tmp_path) == []
    result = Table.open(tmp_path).maintenance.compact_metadata()
    assert result.found == (done,)
    assert done in compactions(tmp_path)
    look(tmp_path, java)

    table = Table.open(tmp_path, options=OURS | {"hoodie.metadata.compact.max.delta.commits": "99"})
    upsert(table, 5, 2)
    mine = table.maintenance.compact_metadata().instants[-1]
    for entry in [*timeline.glob(f"{mine}_*.commit"), *folder.glob(f"*/*_{mine}.hfile")]:
        entry.unlink(missing_ok=True)
    java_upserts(java, tmp_path, 7, metadata_compaction(50))
    assert mine in compactions(tmp_path), "Java finished the plan"
    check(tmp_path, java)


def test_java_reads_old_states_across_our_archive(java: JavaJudge, tmp_path: Path) -> None:
    """Time travel to the commits that the cleaner keeps, after archival; Java believes what our clean wrote of them."""
    keep = {"hoodie.clean.commits.retained": "5", "hoodie.keep.min.commits": "6", "hoodie.keep.max.commits": "8"}
    table = create(tmp_path, keyed([]).schema, partition_by="part", options=OURS | keep)
    states = {}
    for number in range(1, 16):
        upsert(table, number, 1)
        states[str(table.inspect.history(1).column("commit_time")[0].as_py())] = table.scan().count()
    active = table.inspect.history().column("commit_time").to_pylist()
    assert len(active) < len(states)
    cleaned = max((tmp_path / ".hoodie/timeline").glob("*_*.clean"))
    earliest = decode_clean_metadata(cleaned.read_bytes()).earliest
    kept = [instant for instant in sorted(active) if instant >= earliest]
    assert 1 < len(kept) < len(active)
    for instant in (kept[0], kept[-1]):
        found = java.read(tmp_path, columns=["key"], options={**READ_SKIPPING, "as.of.instant": instant})
        assert found.num_rows == states[instant] == table.scan(as_of=instant).count()
    with pytest.raises(JavaError, match="Cleaner cleaned up the timestamp of interest"):
        java.read(tmp_path, columns=["key"], options={"as.of.instant": min(states)})
    with pytest.raises(InvalidInputError, match="no commit at or before"):
        table.scan(as_of=min(states))


def test_tables_that_java_kept_up(java: JavaJudge, tmp_path: Path) -> None:
    """Reading version 9 after Java's compactions, cleans and archival of both timelines."""
    options = {
        "hoodie.write.table.version": "9",
        "hoodie.write.auto.upgrade": "true",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.commits.retained": "1",
    }
    for number in range(1, 6):
        java_upserts(java, tmp_path, number, options)
    assert compactions(tmp_path)
    check_reads = Table.open(tmp_path)
    assert last_compaction(check_reads.snapshot().metadata.timeline) is not None
    assert_all_see(tmp_path, java)
    assert_same_answers(tmp_path, java, FILTERS)
    history = check_reads.inspect.history(archived=True)
    assert history.num_rows == 5
    manifest = max((tmp_path / ".hoodie/timeline/history").glob("manifest_*"))
    assert json.loads(manifest.read_text())["files"]
