"""Which files a clean takes, what it says, and what the metadata table has of it afterwards."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.errors import CommitConflictError, InvalidInputError, OptionError
from lakedex.maintenance.clean import clean_rule
from lakedex.options import parse_options
from lakedex.timeline.instant import State, wall_clock
from seams import with_context
from service_kit import actions_of, commits_of, files_on_disk, known_files, live_entries
from table_checks import START, THOROUGH, check_table, frame, new_table, read, rows_of

COLUMNS = ("id", "city", "ts", "v", "_hoodie_record_key", "_hoodie_commit_time", "_hoodie_partition_path")
NO_CLEAN = {"hoodie.clean.automatic": "false", "hoodie.parquet.small.file.limit": "0"}


def versioned(path: Path, count: int = 5, options: dict[str, str] | None = None) -> Table:
    """A table whose partition ``a`` has been rewritten by ``count`` commits."""
    table = new_table(path, START, options={**NO_CLEAN, **(options or {})})
    for number in range(count):
        table.upsert(frame({"k0": ("a", 10 + number, number)}))
    return table


def test_commits_that_are_kept(tmp_path: Path) -> None:
    """Versions that a retained commit reads stay, older ones go from every index (R31, R32, R33, R49)."""
    table = versioned(tmp_path)
    commits = commits_of(table)
    states = {instant: rows_of(table.to_arrow(as_of=instant)) for instant in commits}
    planned = table.maintenance.clean(commits=3, dry_run=True)
    assert planned.instant is None
    assert not actions_of(table, "clean")
    assert live_entries(table, "bloom_filters") == 7
    done = table.maintenance.clean(commits=3)
    assert (done.partitions, done.earliest_retained) == (planned.partitions, commits[-3])
    assert {path: len(part.files) for path, part in done.partitions.items()} == {"city=a": 2}
    assert done.files == 2
    assert done.bytes_freed == sum(part.bytes for part in done.partitions.values()) > 0
    assert known_files(table) == files_on_disk(tmp_path)
    assert live_entries(table, "bloom_filters") == 5
    assert live_entries(table, "column_stats") == 5 * len(COLUMNS)
    for instant in commits[-4:]:
        assert rows_of(table.to_arrow(as_of=instant)) == states[instant]
    for instant in commits[:-4]:
        with pytest.raises(InvalidInputError, match="the cleaner took"):
            table.to_arrow(as_of=instant)
    check_table(tmp_path, states[commits[-1]])
    assert table.maintenance.clean(commits=3).instant is None
    assert "deleted 2 files" in str(done)
    assert "city=a 2 files" in repr(done)
    assert "deleted" in done._repr_html_()
    assert done.to_dict()["files"] == 2


def test_versions_that_are_kept(tmp_path: Path) -> None:
    table = versioned(tmp_path)
    commits = commits_of(table)
    gone = table.maintenance.clean(versions=2).partitions["city=a"].files
    assert [name[-25:-8] for name in gone] == commits[-3::-1]
    assert len(files_on_disk(tmp_path)) == 3
    table.maintenance.clean(versions=1)
    assert len(files_on_disk(tmp_path)) == 2
    check_table(tmp_path, {**START, "k0": ("a", 14, 4)})


def test_hours_that_are_kept(tmp_path: Path) -> None:
    table = versioned(tmp_path, 3)
    assert table.maintenance.clean(hours=1).instant is None
    later = with_context(table, now_ms=lambda: wall_clock() + 7_200_000)
    # No commit is as young: what would be the oldest to keep?
    assert later.maintenance.clean(hours=1, dry_run=True).files == 0
    assert later.maintenance.clean(hours=3, dry_run=True).files == 0


def test_replaced_groups_and_emptied_partitions(tmp_path: Path) -> None:
    """An emptied partition leaves the listing and the disk, and comes back with new rows."""
    table = versioned(tmp_path, 1)
    table.insert_overwrite(frame({"x": ("a", 20, 1)}), scope="table")
    assert table.maintenance.clean(commits=1).instant is None or (tmp_path / "city=b").exists()
    table.upsert(frame({"x": ("a", 21, 2)}))
    done = table.maintenance.clean(commits=1)
    assert done.partitions["city=b"].gone
    assert not done.partitions["city=a"].gone
    assert not (tmp_path / "city=b").exists()
    assert table.snapshot().metadata.partition_paths() == ["city=a"]
    check_table(tmp_path, {"x": ("a", 21, 2)})
    table.upsert(frame({"y": ("b", 1, 7)}))
    assert table.snapshot().metadata.partition_paths() == ["city=a", "city=b"]
    check_table(tmp_path, {"x": ("a", 21, 2), "y": ("b", 1, 7)})


def test_a_savepoint_holds_files_back(tmp_path: Path) -> None:
    """Also those of replaced groups, whose partition stays then."""
    table = versioned(tmp_path, 2)
    saved = table.maintenance.savepoint()
    kept = read(tmp_path)
    table.insert_overwrite(frame({"x": ("a", 20, 1)}), scope="table")
    table.upsert(frame({"x": ("a", 21, 2)}))
    table.upsert(frame({"x": ("a", 22, 3)}))
    done = table.maintenance.clean(commits=1)
    assert not any(part.gone for part in done.partitions.values())
    assert rows_of(table.to_arrow(as_of=saved)) == kept
    assert (tmp_path / "city=b").exists()
    table.maintenance.delete_savepoint(saved)
    assert table.maintenance.clean(commits=1).partitions["city=b"].gone
    check_table(tmp_path, {"x": ("a", 22, 3)})


def test_time_travel_between_a_savepoint_and_what_replaced_it(tmp_path: Path) -> None:
    """The savepoint's version is no stand-in for the one that the cleaner took."""
    table = versioned(tmp_path, 1)
    table.maintenance.savepoint()
    between = table.upsert(frame({"k0": ("a", 30, 1)})).instant
    table.insert_overwrite(frame({"x": ("a", 40, 1)}), scope="table")
    assert rows_of(table.to_arrow(as_of=between))["k0"] == ("a", 30, 1)
    table.maintenance.clean(versions=1)
    with pytest.raises(InvalidInputError, match="the cleaner took"):
        table.to_arrow(as_of=between)


def test_time_travel_while_a_clean_is_under_way(tmp_path: Path) -> None:
    """Files of its plan may be gone already, although they are listed."""
    table = versioned(tmp_path, 2)
    first = commits_of(table)[0]
    assert rows_of(table.to_arrow(as_of=first)) == START
    table.maintenance.clean(commits=1)
    clean = actions_of(table, "clean")[0]
    (tmp_path / ".hoodie/timeline" / clean.file_name).unlink()
    assert known_files(table) - files_on_disk(tmp_path)
    with pytest.raises(InvalidInputError, match="the cleaner took"):
        table.to_arrow(as_of=first)
    assert read(tmp_path) == {**START, "k0": ("a", 11, 1)}


def test_a_pending_write_holds_files_back(tmp_path: Path) -> None:
    """Java's rule for commits; here for file versions too."""
    table = versioned(tmp_path, 3)
    timeline = tmp_path / ".hoodie/timeline"
    commits = commits_of(table)
    pending = str(int(commits[-1]) - 1)
    for name in (f"{pending}.commit.requested", f"{pending}.inflight"):
        (timeline / name).touch()
    gone = table.maintenance.clean(versions=1, dry_run=True).partitions["city=a"].files
    assert sorted(name[-25:-8] for name in gone) == commits[:2]
    planned = table.maintenance.clean(commits=1, dry_run=True)
    assert planned.earliest_retained == commits[-2]
    assert [name[-25:-8] for name in planned.partitions["city=a"].files] == commits[:1]


def test_cleaning_after_a_write(tmp_path: Path) -> None:
    """By itself, as in Hudi: only changed partitions are looked at, and a note says what was done."""
    table = versioned(tmp_path, 1, {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "2"})
    notes = table.upsert(frame({"k0": ("a", 50, 1)})).notes
    assert not any("cleaned" in note for note in notes)
    for number in range(3):
        notes = table.upsert(frame({"k0": ("a", 60 + number, number)})).notes
        assert sum("cleaned 1 old files" in note for note in notes) == 1
    assert len(list(tmp_path.glob("city=a/*.parquet"))) == 3
    assert known_files(table) == files_on_disk(tmp_path)
    table.upsert(frame({"k0": ("a", 70, 1)}), options={"hoodie.clean.automatic": "false"})
    table.upsert(frame({"k0": ("a", 71, 1)}), options={"hoodie.clean.trigger.max.commits": "9"})
    assert len(list(tmp_path.glob("city=a/*.parquet"))) == 5
    notes = table.upsert(frame({"k0": ("a", 72, 1)}), options={"hoodie.clean.trigger.max.commits": "3"}).notes
    assert any("cleaned 3 old files" in note for note in notes)
    check_table(tmp_path, {**START, "k0": ("a", 72, 1)})


def test_a_clean_of_another_process(tmp_path: Path) -> None:
    """A living one is left alone; a dead one is finished."""
    table = versioned(tmp_path)
    table.maintenance.clean(commits=1)
    timeline = tmp_path / ".hoodie/timeline"
    clean = actions_of(table, "clean")[0]
    (timeline / clean.file_name).unlink()
    with pytest.raises(CommitConflictError, match="under way"):
        table.maintenance.clean(commits=1)
    with pytest.raises(CommitConflictError, match="under way"):
        table.maintenance.savepoint()
    with pytest.raises(CommitConflictError, match="under way"):
        table.maintenance.rollback(commits_of(table)[-1])
    assert not [note for note in table.upsert(frame({"k0": ("a", 90, 1)})).notes if "clean" in note]
    then = time.time() - 3600
    os.utime(timeline / f"{clean.requested}.clean.inflight", (then, then))
    notes = table.upsert(frame({"k0": ("a", 91, 1)}), options={"hoodie.clean.automatic": "true"}).notes
    assert any("finished the clean" in note for note in notes)
    assert [instant.state for instant in actions_of(table, "clean")] == [State.COMPLETED]
    check_table(tmp_path, {**START, "k0": ("a", 91, 1)})


@pytest.mark.parametrize("arguments", [{"commits": 0}, {"hours": -1}, {"versions": 1.5}, {"commits": 1, "hours": 1}])
def test_arguments_that_make_no_sense(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="clean"):
        new_table(tmp_path, {}).maintenance.clean(**arguments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the last 10 commits kept"),
        ({"hoodie.cleaner.commits.retained": "4"}, "the last 4 commits kept"),
        ({"hoodie.clean.hours.retained": "4"}, "the last 4 hours kept"),
        ({"hoodie.cleaner.policy": "keep_latest_file_versions"}, "the last 3 file versions kept"),
        ({"hoodie.clean.fileversions.retained": "2"}, "the last 2 file versions kept"),
        ({"hoodie.clean.fileversions.retained": "2", "hoodie.clean.hours.retained": "5"}, "the last 10 commits kept"),
    ],
)
def test_options(options: dict[str, str], text: str) -> None:
    """A number without a policy implies it, as in Hudi."""
    assert str(clean_rule(parse_options(options).clean)) == text


def test_options_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="one of"):
        parse_options({"hoodie.clean.policy": "KEEP_ALL"})


@settings(max_examples=100 if THOROUGH else 5, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["a", "b", "ab", "replace"]), min_size=2, max_size=7),
    keep=st.integers(1, 4),
    policy=st.sampled_from(["commits", "versions"]),
)
def test_nothing_that_is_needed_goes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], keep: int, policy: str
) -> None:
    """The newest state, and with commits every retained one, reads as before (R32)."""
    path = tmp_path_factory.mktemp("clean") / "t"
    table = new_table(path, {"a": ("a", 0, 0), "b": ("b", 0, 0)}, options=NO_CLEAN)
    for number, step in enumerate(steps, 1):
        rows = {key: (key, number, number) for key in ("a" if step == "replace" else step)}
        if step == "replace":
            table.insert_overwrite(frame(rows), scope="table")
        else:
            table.upsert(frame(rows))
    commits = commits_of(table)
    states = {instant: rows_of(table.to_arrow(as_of=instant)) for instant in commits}
    done = table.maintenance.clean(**{policy: keep})
    check_table(path, states[commits[-1]])
    if policy == "commits":
        for instant in commits[-keep:]:
            assert rows_of(table.to_arrow(as_of=instant)) == states[instant]
    assert known_files(table) == files_on_disk(path)
    assert (done.instant is None) == (done.files == 0)
