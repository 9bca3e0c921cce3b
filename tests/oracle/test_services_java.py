"""Cleaning, rolling back, savepoints and restoring, by lakedex and by Java in turn (R31, R32, R33, R49).

After each step Java 1.1.1 with and without the metadata table, hudi-rs and lakedex read the same rows, Java's data
skipping finds what a reader of everything finds, and the other one goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same_rows
from java_judge import READ_PLAIN, READ_SKIPPING, WRITE_BLOOM, JavaJudge, metadata_compaction
from judging import assert_all_see, assert_same_answers, create, keyed, own_rows
from rust_judge import RustJudge

from faults import run_child
from lakedex import Table
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.instant import State
from service_kit import actions_of, commits_of, files_on_disk, known_files, live_entries
from table_checks import KILLED

SCHEMA = keyed([]).schema
NO_CLEAN = {"hoodie.clean.automatic": "false", "hoodie.parquet.small.file.limit": "0"}
JAVA = {**WRITE_BLOOM, **metadata_compaction(50), "hoodie.clean.automatic": "false", **NO_CLEAN}
FILTERS = ["value >= 3 and key >= 'k1'", "part = 'a' and value < 4", "ts > 4 or value = 1"]


def both(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables)


def new(path: Path) -> Table:
    table = create(path, SCHEMA, partition_by="part", options=NO_CLEAN)
    table.insert(both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c")))
    return table


def java_writes(
    java: JavaJudge, path: Path, rows: pa.Table, operation: str = "upsert", options: Mapping[str, str] | None = None
) -> str:
    """A commit of Java's; its instant."""
    options = {**JAVA, **(options or {})}
    java.write(path, rows, operation, partition="part", ordering="ts", options=options)
    return commits_of(Table.open(path))[-1]


def call(java: JavaJudge, path: Path, *calls: str) -> None:
    """Hudi's procedures on the table ``t``."""
    java.sql(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{path}'", JAVA)
    try:
        for text in calls:
            java.sql(f"CALL {text}")
    finally:
        java.sql("DROP TABLE t")


def check(java: JavaJudge, rust: RustJudge, path: Path, expected: pa.Table) -> None:
    """Everybody sees the rows under every filter, and the metadata table lists what is on disk."""
    assert_all_see(path, java, rust, expected)
    assert_same_answers(path, java, FILTERS)
    assert known_files(Table.open(path)) == files_on_disk(path)


def look(java: JavaJudge, rust: RustJudge, path: Path, expected: pa.Table) -> None:
    """The same by Java's metadata table alone, between two steps: one read of Java's instead of four."""
    assert_same_rows(own_rows(path), expected, "key")
    assert_same_rows(java.read(path, options=READ_SKIPPING), expected, "key")
    assert_same_rows(rust.read(path), expected, "key")
    assert known_files(Table.open(path)) == files_on_disk(path)


# -------------------------------------------------------------------------------------------------------- cleaning
def test_cleans_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Old versions and a replaced partition go; time travel to what is retained works for both (R31, R32, R49)."""
    table = new(tmp_path)
    for ts in range(2, 5):
        table.upsert(keyed(["k1"], ts, ts))
    table.insert_overwrite(SCHEMA.empty_table(), partitions=[{"part": "c"}])
    kept = table.upsert(keyed(["k1"], 5, 5)).instant
    rows = both(keyed(["k1"], 5, 5), keyed(["k2"], 1, 1), keyed(["k3"], 1, 2, "b"))
    planned = table.maintenance.clean(dry_run=True, commits=1)
    assert planned.files == 4
    assert planned.partitions["part=c"].gone
    done = table.maintenance.clean(commits=1)
    assert done.partitions == planned.partitions
    assert not (tmp_path / "part=c").exists()
    look(java, rust, tmp_path, rows)
    assert live_entries(table, "bloom_filters") == 3

    java_writes(java, tmp_path, keyed(["k1"], 6, 6))
    java_writes(java, tmp_path, keyed(["k1"], 7, 7))
    older = java.read(tmp_path, options={**READ_SKIPPING, "as.of.instant": str(kept)})
    assert_same_rows(older, rows, "key")
    assert_same_rows(pa.table(table.to_arrow(as_of=kept)).select(SCHEMA.names), rows, "key")
    on_disk = files_on_disk(tmp_path)
    call(java, tmp_path, "run_clean(table => 't', retain_commits => 1)")
    assert len(actions_of(table, "clean")) == 2
    assert len(on_disk - files_on_disk(tmp_path)) == 2
    rows = both(keyed(["k1"], 7, 7), rows.slice(1))
    look(java, rust, tmp_path, rows)
    table.upsert(keyed(["k1", "n1"], 8, 8))
    assert table.maintenance.clean(versions=1).files == 2
    rows = both(keyed(["k1", "n1"], 8, 8), rows.slice(1))
    look(java, rust, tmp_path, rows)
    java_writes(java, tmp_path, keyed(["k4"], 9, 9, "c"))
    check(java, rust, tmp_path, both(rows, keyed(["k4"], 9, 9, "c")))


def test_a_pending_clean_of_the_other(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Who comes next finishes it."""
    table = new(tmp_path)
    for ts in range(2, 5):
        table.upsert(keyed(["k1"], ts, ts))
    run = lambda t: t.maintenance.clean(commits=1)  # noqa: E731
    kill(tmp_path, run, Faults(2, "after", only=("delete", ".parquet")))
    assert actions_of(table, "clean")[0].state is State.INFLIGHT
    java_writes(java, tmp_path, keyed(["k1"], 5, 5), options={"hoodie.clean.automatic": "true"})
    assert {instant.state for instant in actions_of(table, "clean")} == {State.COMPLETED}
    rows = both(keyed(["k1"], 5, 5), keyed(["k2"], 1, 1), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))
    look(java, rust, tmp_path, rows)

    call(java, tmp_path, "run_clean(table => 't', retain_commits => 1)")
    clean = actions_of(table, "clean")[-1]
    timeline = tmp_path / ".hoodie/timeline"
    (timeline / clean.file_name).unlink()  # As if Java had died before its last step.
    grow_old(timeline / f"{clean.requested}.clean.inflight")
    assert table.maintenance.clean(commits=1).notes
    assert {instant.state for instant in actions_of(table, "clean")} == {State.COMPLETED}
    check(java, rust, tmp_path, rows)


def kill(path: Path, run: Callable[[Table], object], faults: Faults) -> None:
    assert run_child(lambda: run(open_table(path, FaultyStorage(faults), options=NO_CLEAN))) == KILLED


def grow_old(*files: Path) -> None:
    """As if these were made an hour ago."""
    then = time.time() - 3600
    for file in files:
        os.utime(file, (then, then))


# ----------------------------------------------------------------------------------------------------- rolling back
def test_rollbacks_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Each undoes its own commits and the other's, those that added a column and replaced files too (R49)."""
    table = new(tmp_path)
    rows = both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))
    undone = table.upsert(both(keyed(["k1"], 2, 9), keyed(["n1"], 2, 9, "d"))).instant
    assert table.maintenance.rollback(str(undone)).files_deleted == 2
    look(java, rust, tmp_path, rows)
    undone = java_writes(java, tmp_path, both(keyed(["k1"], 3, 8), keyed(["n2"], 3, 8, "d")))
    table.maintenance.rollback(undone)
    look(java, rust, tmp_path, rows)
    undone = table.upsert(both(keyed(["k3"], 4, 7, "b"), keyed(["n3"], 4, 7, "e"))).instant
    call(java, tmp_path, f"rollback_to_instant(table => 't', instant_time => '{undone}')")
    look(java, rust, tmp_path, rows)
    undone = java_writes(java, tmp_path, keyed(["k9"], 4, 7, "b"), "insert_overwrite")
    table.maintenance.rollback(undone)
    look(java, rust, tmp_path, rows)
    table.add_columns(pa.schema([("more", pa.int32())]))
    undone = commits_of(table)[-1]
    table.maintenance.rollback(undone)
    assert table.schema.names == SCHEMA.names
    look(java, rust, tmp_path, rows)
    java_writes(java, tmp_path, keyed(["k1"], 5, 5))
    assert table.upsert(keyed(["k2"], 5, 6)).updated == 1
    check(java, rust, tmp_path, both(keyed(["k1"], 5, 5), keyed(["k2"], 5, 6), rows.slice(2)))


def test_rollback_of_what_the_metadata_table_compacted(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Java refuses; lakedex writes what puts the compacted records right."""
    table = new(tmp_path)
    rows = both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))
    undone = str(table.upsert(both(keyed(["k1", "k2"], 2, 99), keyed(["n1"], 2, 99, "d"))).instant)
    last = java_writes(java, tmp_path, keyed(["k4"], 3, 5, "c"), options=metadata_compaction(1))
    assert list((tmp_path / ".hoodie/metadata/column_stats").glob("*.hfile"))
    table.maintenance.rollback(last)
    assert "part=d" in {path.split("/")[0] for path in known_files(table)}
    table.maintenance.rollback(undone)
    look(java, rust, tmp_path, rows)
    assert table.snapshot().metadata.partition_paths() == ["part=a", "part=b", "part=c"]
    java_writes(java, tmp_path, both(keyed(["k1"], 4, 4), keyed(["n1"], 4, 4, "d")), options=metadata_compaction(1))
    rows = both(keyed(["k1"], 4, 4), keyed(["n1"], 4, 4, "d"), rows.slice(1))
    check(java, rust, tmp_path, rows)


@pytest.mark.parametrize("heartbeat", [False, True], ids=["eager", "lazy"])
def test_we_undo_a_write_of_javas_that_died(java: JavaJudge, rust: RustJudge, tmp_path: Path, heartbeat: bool) -> None:
    """Its timeline server kept the markers; with several writers it has a heartbeat that stopped."""
    table = new(tmp_path)
    rows = both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))
    before = files_on_disk(tmp_path)
    dead = java_writes(java, tmp_path, both(keyed(["k1"], 2, 9), keyed(["n1"], 2, 9, "d")))
    timeline, temp = tmp_path / ".hoodie/timeline", tmp_path / ".hoodie/.temp" / dead
    next(timeline.glob(f"{dead}_*.commit")).unlink()
    made = files_on_disk(tmp_path) - before
    temp.mkdir(parents=True)
    (temp / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")
    (temp / "MARKERS0").write_text("".join(f"{name}.marker.CREATE\n" for name in sorted(made)))
    grow_old(timeline / f"{dead}.inflight", timeline / f"{dead}.commit.requested")
    if heartbeat:
        beat = tmp_path / ".hoodie/.heartbeat" / dead
        beat.parent.mkdir(exist_ok=True)
        beat.touch()
        grow_old(beat)
    assert_same_rows(own_rows(tmp_path), rows, "key")
    result = table.upsert(keyed(["k2"], 3, 3))
    assert any(dead in note for note in result.notes)
    assert not made & files_on_disk(tmp_path)
    rows = both(keyed(["k2"], 3, 3), rows.slice(0, 1), rows.slice(2))
    look(java, rust, tmp_path, rows)
    java_writes(java, tmp_path, keyed(["k1"], 4, 4))
    check(java, rust, tmp_path, both(keyed(["k2"], 3, 3), keyed(["k1"], 4, 4), rows.slice(2)))


def test_java_undoes_a_write_of_ours_that_died(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """After the metadata, before the completion; Java goes by our markers, we go on."""
    table = new(tmp_path)
    kill(tmp_path, lambda t: t.upsert(keyed(["k1"], 2, 9)), Faults(3, "after", only=("create", ".deltacommit")))
    java_writes(java, tmp_path, keyed(["k2"], 3, 3))
    rows = both(keyed(["k1"], 1, 1), keyed(["k2"], 3, 3), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))
    look(java, rust, tmp_path, rows)
    assert table.upsert(keyed(["k1"], 4, 4)).updated == 1
    check(java, rust, tmp_path, both(keyed(["k1"], 4, 4), rows.slice(1)))


# --------------------------------------------------------------------------------------------- savepoints, restoring
@pytest.mark.parametrize("compacted", [False, True], ids=["plain", "metadata compacted"])
def test_restores_in_turn(java: JavaJudge, rust: RustJudge, tmp_path: Path, compacted: bool) -> None:
    """Each goes back to its own savepoint and to the other's, past cleans and overwrites (R49)."""
    options = metadata_compaction(1) if compacted else {}
    table = new(tmp_path)
    java_writes(java, tmp_path, keyed(["k2"], 2, 2), options=options)
    rows = both(keyed(["k1"], 1, 1), keyed(["k2"], 2, 2), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))

    def spoil() -> None:
        table.upsert(both(keyed(["k1"], 5, 50), keyed(["n1"], 5, 51, "d")))
        table.insert_overwrite(keyed(["k9"], 7, 70, "b"))
        table.maintenance.clean(versions=1)
        later = both(keyed(["k1"], 6, 60), keyed(["k9"], 8, 80, "b"), keyed(["n2"], 6, 61, "e"))
        java_writes(java, tmp_path, later, options=options)

    saved = table.maintenance.savepoint(comment="before")
    spoil()
    assert len(table.maintenance.restore(saved).undone) == 3
    look(java, rust, tmp_path, rows)
    spoil()
    # Java deletes a metadata table that was compacted since, and must not compact the one that it makes in its place:
    # RestorePlanActionExecutor.isMetadataTableRecreatedDuringRestore goes by the last instant.
    call(java, tmp_path, f"rollback_to_savepoint(table => 't', instant_time => '{saved}')")
    assert_same_rows(java.read(tmp_path, options=READ_SKIPPING), rows, "key")
    assert table.upsert(keyed(["k1"], 4, 40)).updated == 1
    rows = both(keyed(["k1"], 4, 40), rows.slice(1))

    call(java, tmp_path, f"create_savepoint(table => 't', commit_time => '{commits_of(table)[-1]}')")
    table.maintenance.delete_savepoint(saved)
    table.delete(pa.table({"key": ["k3", "k4"]}), all_partitions=True)
    table.maintenance.restore(table.maintenance.savepoints()["instant"][0].as_py())
    assert_same_rows(own_rows(tmp_path), rows, "key")
    java_writes(java, tmp_path, keyed(["k1"], 5, 41), options=options)
    assert_all_see(tmp_path, java, rust, both(keyed(["k1"], 5, 41), rows.slice(1)))
    assert_same_answers(tmp_path, java, FILTERS)


def test_java_finishes_our_restore(java: JavaJudge, rust: RustJudge, tmp_path: Path) -> None:
    """Ours died in the middle."""
    table = new(tmp_path)
    rows = both(keyed(["k1", "k2"], 1, 1), keyed(["k3"], 1, 2, "b"), keyed(["k4"], 1, 3, "c"))
    saved = table.maintenance.savepoint()
    table.upsert(both(keyed(["k1"], 5, 50), keyed(["n1"], 5, 51, "d")))
    table.upsert(both(keyed(["k1"], 6, 60), keyed(["n2"], 6, 61, "e")))
    kill(tmp_path, lambda t: t.maintenance.restore(saved), Faults(1, "after", only=("delete", ".parquet")))
    assert_same_rows(own_rows(tmp_path), rows, "key")
    call(java, tmp_path, f"rollback_to_savepoint(table => 't', instant_time => '{saved}')")
    assert_same_rows(java.read(tmp_path, options=READ_PLAIN), rows, "key")
    assert table.upsert(keyed(["k1"], 7, 7)).updated == 1
    java_writes(java, tmp_path, keyed(["k2"], 8, 8))
    assert_all_see(tmp_path, java, rust, both(keyed(["k1"], 7, 7), keyed(["k2"], 8, 8), rows.slice(2)))
