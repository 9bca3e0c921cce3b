"""A metadata table that is lost, cut or damaged: readers list storage, writers mend first, ``rebuild_metadata`` anew."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golden_tables import MERGE_ON_READ, VERSION_8, VERSION_9, unpack
from lakedex import Table
from lakedex.errors import CommitConflictError, CorruptFileError, IndexInconsistentError
from lakedex.io.storage import TableFiles
from lakedex.layout.names import parse_base_file_name
from lakedex.timeline.active import Timeline
from lakedex.timeline.commit_metadata import encode_commit_metadata
from lakedex.timeline.instant import instant_to_epoch_ms
from seams import meanwhile, with_context
from service_kit import known_files
from table_kit import OWN_FILE, base_files, make, own, properties, rows, set_properties

LISTED = "hoodie.table.metadata.partitions"
ALL = "bloom_filters,column_stats,files,partition_stats"
START = [("1", "a", 1, 10), ("2", "b", 1, 20), ("3", "a", 1, 30)]


def _made(path: Path) -> Table:
    """Three files in two partitions, two commits, all indexes."""
    made = make(path, rows(*START[:2]), partition_by="city", ordering_by="ts")
    made.insert(rows(START[2]), options=OWN_FILE)
    return made


@pytest.fixture
def path(once: Callable[..., Table], tmp_path: Path) -> Path:
    return Path(once(_made, tmp_path / "t").path)


def metadata(path: Path, name: str = "") -> Path:
    return path / ".hoodie/metadata" / name


def logs(path: Path, partition: str) -> list[Path]:
    """Log files with records, oldest first."""
    return sorted(file for file in metadata(path, partition).glob(".*.log.*") if file.stat().st_size > 200)


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "folder": lambda path: shutil.rmtree(metadata(path)),
    "timeline": lambda path: shutil.rmtree(metadata(path, ".hoodie")),
    "files": lambda path: shutil.rmtree(metadata(path, "files")),
    "base file": lambda path: next(metadata(path, "files").glob("*.hfile")).unlink(),
    "log file": lambda path: logs(path, "files")[-1].unlink(),
    "first log file": lambda path: logs(path, "files")[0].unlink(),
    "cut log file": lambda path: cut(logs(path, "files")[-1], 100),
    "empty log file": lambda path: cut(logs(path, "files")[-1], 0),
    "cut base file": lambda path: cut(next(metadata(path, "files").glob("*.hfile")), 90),
}
PARTS: dict[str, Callable[[Path], Any]] = {
    "column_stats": lambda path: logs(path, "column_stats")[-1].unlink(),
    "partition_stats": lambda path: cut(logs(path, "partition_stats")[-1], 50),
    "bloom_filters": lambda path: shutil.rmtree(metadata(path, "bloom_filters")),
}


def assert_whole(path: Path, *, files: int) -> None:
    table = Table.open(path)
    snapshot = table.snapshot()
    assert snapshot.uses_metadata
    assert snapshot.lost_metadata == {}
    assert sum(len(found) for found in snapshot.listing().values()) == files
    for name in table.indexes.list().column("name").to_pylist():
        assert table.indexes.stats(name).files_uncovered == 0, name


@pytest.mark.parametrize("damage", DAMAGE)
def test_readers_list_storage(path: Path, damage: str) -> None:
    """Never an empty table, never the rows of an older state."""
    DAMAGE[damage](path)
    table = Table.open(path)
    assert own(table) == sorted(START)
    assert own(table.scan("n = 30").to_arrow(), "id") == [("3",)]
    plan = table.scan("n = 30").plan()
    (told,) = (item for item in plan.unused if item.index == "files")
    assert told.reason == "damaged"
    assert "rebuild_metadata()" in str(plan)
    assert all(state.startswith("damaged") for state in table.indexes.list().column("state").to_pylist())


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_write_mends_first(path: Path, damage: str) -> None:
    """The listing is of all completed commits, not of the last batch."""
    DAMAGE[damage](path)
    result = Table.open(path).upsert(rows(("1", "a", 2, 11), ("4", "c", 2, 40)))
    assert (result.updated, result.inserted) == (1, 1)
    assert any("rebuilt" in note for note in result.notes)
    assert properties(path)[LISTED] == ALL
    assert own(Table.open(path)) == sorted([("1", "a", 2, 11), *START[1:], ("4", "c", 2, 40)])
    assert_whole(path, files=5)
    assert len(Table.open(path).scan("n = 40").plan().files) == 1
    again = Table.open(path).upsert(rows(("4", "c", 3, 41)))
    assert not any("rebuilt" in note for note in again.notes)


@pytest.mark.parametrize("name", PARTS)
def test_a_damaged_index(path: Path, name: str) -> None:
    """Older bounds of a partition would drop rows: an index that lost a file is no index. The next write builds it."""
    PARTS[name](path)
    table = Table.open(path)
    assert own(table.scan("n = 30").to_arrow(), "id") == [("3",)]
    assert own(table.scan("id = '3'").to_arrow(), "id") == [("3",)]
    state = {row["name"]: row["state"] for row in table.indexes.list().to_pylist()}
    assert state.pop(name).startswith("damaged")
    assert set(state.values()) == {"complete"}
    with pytest.raises(IndexInconsistentError, match=f"the index '{name}' is damaged: .*rebuild_metadata"):
        table.indexes.stats(name)
    assert table.snapshot().uses_metadata
    result = table.upsert(rows(("3", "a", 2, 31)))
    assert result.updated == 1
    assert any(note.startswith("rebuilt: ") and name in note for note in result.notes)
    assert properties(path)[LISTED] == ALL
    assert_whole(path, files=4)
    assert own(Table.open(path), "n") == [(10,), (20,), (31,)]


@pytest.mark.parametrize("lost", [False, True], ids=["metadata there", "metadata lost"])
def test_a_stray_base_file_of_no_bytes_is_left_out(path: Path, lost: bool) -> None:
    """Of an instant so old that no commit says whether it was one of the table's."""
    before = own(Table.open(path))
    stray = (
        path
        / Path(base_files(path)[0]).parent
        / "0f0f0f0f-0000-0000-0000-000000000000-0_0-0-0_20000101000000000.parquet"
    )
    stray.write_bytes(b"")
    if lost:
        shutil.rmtree(path / ".hoodie/metadata")
    Table.open(path).maintenance.rebuild_metadata()
    assert own(Table.open(path)) == before
    told = Table.open(path).maintenance.validate()
    assert [(found.kind, stray.name in str(found)) for found in told.differences] == [("stray file", True)]


def test_a_file_of_no_bytes_beside_others_of_its_group_stays_listed(path: Path) -> None:
    """It may be a version that was damaged: who reads it is told, and no other version takes its place."""
    file = path / base_files(path)[0]
    empty = file.parent / f"{file.name.rpartition('_')[0]}_20000101000000000.parquet"
    empty.write_bytes(b"")
    with contextlib.suppress(CorruptFileError):
        Table.open(path).maintenance.rebuild_metadata()
    assert str(empty.relative_to(path)) in known_files(Table.open(path))


def test_damaged_bytes(path: Path) -> None:
    """Of its length, but not readable. The error of a write names the file and the call that helps."""
    for file in logs(path, "bloom_filters"):
        file.write_bytes(b"\0" * file.stat().st_size)
    with pytest.raises(CorruptFileError, match=r"/\.hoodie/metadata/.*rebuild_metadata"):
        Table.open(path).upsert(rows(("1", "a", 2, 11)))
    Table.open(path).maintenance.rebuild_metadata()
    assert Table.open(path).upsert(rows(("1", "a", 2, 11))).updated == 1
    base = next(metadata(path, "files").glob("*.hfile"))
    base.write_bytes(b"\0" * base.stat().st_size)
    assert "files" in str(Table.open(path).scan("n = 30").plan().unused)
    assert len(own(Table.open(path))) == 3
    result = Table.open(path).upsert(rows(("1", "a", 3, 12)))
    assert any("rebuilt (files: " in note for note in result.notes)
    assert_whole(path, files=5)


def test_damage_of_an_index_keeps_the_files(path: Path) -> None:
    for file in logs(path, "column_stats"):
        file.write_bytes(b"\0" * file.stat().st_size)
    plan = Table.open(path).scan("n = 30").plan()
    assert len(plan.files) == 2, "partition_stats go on"
    assert [item.reason for item in plan.unused if item.index == "column_stats"] == ["damaged"]
    assert own(Table.open(path).scan("n = 30").to_arrow(), "id") == [("3",)]


def test_a_table_that_is_open_all_the_while(path: Path) -> None:
    """What a process remembers of the old files must not come back under the new names."""
    table = Table.open(path)
    assert own(table.scan("n = 30").to_arrow(), "id") == [("3",)]
    for key in ("4", "5"):
        shutil.rmtree(metadata(path))
        assert len(own(table)) >= 3
        table.upsert(rows((key, "d", 2, 40)))
        assert own(table.scan("city = 'd'").to_arrow(), "id")[-1] == (key,)
    assert own(table, "id") == [("1",), ("2",), ("3",), ("4",), ("5",)]
    assert_whole(path, files=5)


# ---------------------------------------------------------------------------------------------------------- rebuild
def test_rebuild(path: Path) -> None:
    before = Table.open(path).inspect.column_stats().drop_columns(["total_size", "total_uncompressed_size"])
    steps: list[tuple[int, int]] = []
    result = Table.open(path).maintenance.rebuild_metadata(progress=lambda done, of: steps.append((done, of)))
    assert (result.partitions, result.files) == (2, 3)
    assert [index.name for index in result.indexes] == ["column_stats", "bloom_filters"]
    assert steps == [(3, 3), (3, 3)]
    assert "3 files in 2 partitions" in str(result)
    assert result.to_dict()["indexes"][0]["files"] == 3
    assert properties(path)[LISTED] == ALL
    after = Table.open(path).inspect.column_stats().drop_columns(["total_size", "total_uncompressed_size"])
    assert after.sort_by([(n, "ascending") for n in ("file_name", "column_name")]).equals(
        before.sort_by([(n, "ascending") for n in ("file_name", "column_name")])
    )
    assert_whole(path, files=3)


def test_columns_and_partitions_come_back_as_they_were(tmp_path: Path) -> None:
    options = {
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.bloom.filter.enable": "false",
    }
    table = make(tmp_path / "t", rows(*START), options=options)
    table.indexes.create("column_stats", ["n"])
    Table.open(table.path).maintenance.rebuild_metadata()
    (index,) = Table.open(table.path).indexes.list().to_pylist()
    assert (index["name"], index["columns"][3:]) == ("column_stats", ["n"])
    shutil.rmtree(metadata(tmp_path / "t"))
    set_properties(tmp_path / "t", {LISTED: ""})
    Table.open(table.path, options=options).upsert(rows(("1", "a", 2, 11)))
    assert Table.open(table.path).indexes.list().num_rows == 0
    assert Table.open(table.path).snapshot().uses_metadata


def test_only_files_of_completed_instants(path: Path) -> None:
    """Not those of a write that is under way, was undone, or lost against another attempt of its task."""
    (first, *_) = base_files(path)
    partition, _, name = first.partition("/")
    parsed = parse_base_file_name(name)
    assert parsed is not None
    strays = [
        f"{parsed.file_id[:-3]}zzz_9-9-9_{parsed.instant}.parquet",  # Another attempt, of the same commit.
        f"{parsed.file_id}_9-9-9_29990101000000000.parquet",  # Of no instant.
        "note.txt",
    ]
    for stray in strays:
        shutil.copy(path / first, path / partition / stray)
    shutil.copytree(path / partition, path / "city=z" / "deep")
    Table.open(path).maintenance.rebuild_metadata()
    assert own(Table.open(path)) == sorted(START)
    listing = Table.open(path).snapshot().metadata.file_listing()
    assert {name for files in listing.values() for name in files}.isdisjoint(strays)


def test_cleaned_replaced_and_empty(tmp_path: Path) -> None:
    table = make(tmp_path / "e", schema=rows().schema, partition_by="city")
    assert table.maintenance.rebuild_metadata().files == 0
    assert own(table) == []
    table.upsert(rows(*START))
    table.insert_overwrite(rows(("9", "a", 1, 90)))
    wanted = own(table)
    table.maintenance.rebuild_metadata()
    assert own(Table.open(table.path)) == wanted
    assert_whole(tmp_path / "e", files=3)


def test_without_partitions(tmp_path: Path) -> None:
    """The key of the listing of a table without partitions."""
    table = make(tmp_path / "t", rows(*START))
    shutil.rmtree(metadata(tmp_path / "t"))
    assert Table.open(table.path).upsert(rows(("1", "a", 2, 11))).updated == 1
    assert_whole(tmp_path / "t", files=2)
    assert properties(tmp_path / "t")[LISTED] == "bloom_filters,column_stats,files"


def test_bitmaps_stay(path: Path) -> None:
    table = Table.open(path)
    table.indexes.create("bitmap", ["n"], name="seen")
    result = table.maintenance.rebuild_metadata()
    assert result.indexes[-1].name == "seen"
    assert result.indexes[-1].files == 0, "its runs were kept"
    assert table.indexes.validate("seen").ok
    shutil.rmtree(metadata(path))
    assert Table.open(path).maintenance.rebuild_metadata().indexes[-1].files == 3
    assert Table.open(path).indexes.stats("seen").files_uncovered == 0


# --------------------------------------------------------------------------------------------------- off, and others
OFF = {"hoodie.metadata.enable": "false"}


def test_a_write_without_metadata(path: Path) -> None:
    """As in Hudi it takes the metadata table away, so that nothing stale is left; the next one makes it."""
    result = Table.open(path).upsert(rows(("1", "a", 2, 11)), options=OFF)
    assert any("taken away" in note for note in result.notes)
    assert properties(path)[LISTED] == ""
    assert not metadata(path).exists() or not list(metadata(path).iterdir())
    assert own(Table.open(path)) == sorted([("1", "a", 2, 11), *START[1:]])
    assert not any("taken away" in note for note in Table.open(path).upsert(rows(("2", "b", 2, 21)), options=OFF).notes)
    result = Table.open(path).upsert(rows(("3", "a", 2, 31)))
    assert any("rebuilt (there was none)" in note for note in result.notes)
    assert properties(path)[LISTED] == ALL
    assert own(Table.open(path), "n") == [(11,), (21,), (31,)]
    assert_whole(path, files=6)


def test_a_table_made_without_metadata(tmp_path: Path) -> None:
    table = make(tmp_path / "t", rows(*START), options=OFF)
    assert not metadata(tmp_path / "t").exists()
    assert own(table) == sorted(START)
    assert table.indexes.create("column_stats").files == 1
    assert properties(tmp_path / "t")[LISTED] == "column_stats,files"


def pending_of_java(path: Path) -> Path:
    file = path / ".hoodie/timeline/29990101000000000.commit.requested"
    file.write_bytes(b"")
    (path / ".hoodie/.heartbeat").mkdir(exist_ok=True)
    (path / ".hoodie/.heartbeat/29990101000000000").write_bytes(b"")
    return file


def after_2999(path: Path) -> Table:
    """The table, on a machine whose clock is past the pending write's."""
    return with_context(Table.open(path), now_ms=lambda: instant_to_epoch_ms("29990101000001000"))


def test_a_write_of_another_engine_is_under_way(path: Path) -> None:
    """It knows of no metadata table. What is damaged is given up; ours goes on, and the next one makes it."""
    shutil.rmtree(metadata(path))
    other = pending_of_java(path)
    with pytest.raises(CommitConflictError, match="29990101000000000 of another engine is under way"):
        after_2999(path).maintenance.rebuild_metadata()
    result = after_2999(path).upsert(rows(("1", "a", 2, 11)))
    assert any("was not rebuilt" in note for note in result.notes)
    assert properties(path)[LISTED] == ""
    assert own(Table.open(path), "n") == [(11,), (20,), (30,)]
    other.unlink()
    after_2999(path).upsert(rows(("2", "b", 2, 21)))
    assert_whole(path, files=5)


def test_damage_while_a_write_is_under_way(path: Path) -> None:
    """No record of that write would make the metadata table whole, so it is given up before the commit completes."""
    damaged = meanwhile(Table.open(path), lambda _: logs(path, "files")[-1].unlink())
    result = damaged.upsert(rows(("1", "a", 2, 11)))
    assert any("taken out of the table" in note for note in result.notes)
    assert properties(path)[LISTED] == ""
    assert own(Table.open(path), "n") == [(11,), (20,), (30,)]


def test_commits_while_storage_is_listed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakedex.maintenance import metadata_init as metadata_files

    listed = metadata_files.list_storage
    actions: list[Callable[[Table], Any]] = [
        lambda table: table.upsert(rows(("1", "a", 2, 11), ("7", "q", 1, 70))),
        lambda table: table.insert_overwrite(rows(("8", "b", 1, 80))),
    ]

    def meanwhile(handle: Any) -> Any:
        found = listed(handle)
        if actions:
            actions.pop()(Table.open(path))
        return found

    monkeypatch.setattr(metadata_files, "list_storage", meanwhile)
    for _ in range(2):
        Table.open(path).maintenance.rebuild_metadata()
        storage = {name.rpartition("/")[2] for name in base_files(path)}
        listing = Table.open(path).snapshot().metadata.file_listing()
        assert {name for files in listing.values() for name in files} == storage
    assert actions == []


def test_two_writers_meet_a_lost_table(path: Path) -> None:
    shutil.rmtree(metadata(path))

    def write(key: str) -> None:
        Table.open(path).upsert(rows((key, f"p{key}", 1, int(key))))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, ("7", "8", "9")))
    assert own(Table.open(path), "id") == [("1",), ("2",), ("3",), ("7",), ("8",), ("9",)]
    report = Table.open(path).maintenance.validate()
    assert report.ok, str(report)
    Table.open(path).upsert(rows(("7", "p7", 2, 70)))
    assert properties(path)[LISTED] == ALL
    assert "lakedex.metadata.rebuilding" not in properties(path)
    assert_whole(path, files=7)


@pytest.mark.parametrize(("partition", "kept"), [("files", 0), ("column_stats", 1)])
def test_commits_of_a_new_table_that_say_nothing(path: Path, partition: str, kept: int) -> None:
    """Of those that made the partitions only the own one is read, none for ``files``: its base file lies there."""
    first = [file.name.split("_")[0] for file in metadata(path, ".hoodie/timeline").glob("0000000000000000[0-9]_*")]
    snapshot = Table.open(path).snapshot()
    assert snapshot.metadata.damage_of(partition) == ""
    timeline = snapshot.metadata.timeline
    read = [i for i in timeline.completed() if i.requested in first and timeline.has_read(i)]
    assert (len(first), len(read)) == (4, kept)


def test_the_first_base_file_of_files_is_lost(path: Path) -> None:
    """No other file tells what it held, so the commit that made it is read after all."""
    for file in metadata(path, "files").glob("*.hfile"):
        file.unlink()
    assert "is missing" in Table.open(path).snapshot().metadata.damage_of("files")


def test_what_an_open_costs(path: Path) -> None:
    """One small file for each metadata commit since the base files, once for as long as the table is open."""
    table = Table.open(path)
    table.scan("n = 30").plan()
    storage = table.context.files.storage
    first = storage.counted.copy()
    table.scan("n = 31").plan()
    assert (storage.counted - first).requests <= 3, "hoodie.properties and two timelines"
    commits = Timeline.load(TableFiles(storage, str(metadata(path))), ".hoodie/timeline").completed()
    snapshot = Table.open(path).snapshot()
    before = snapshot.files.storage.counted.copy()
    assert snapshot.metadata.damage_of("files") == ""
    assert (snapshot.files.storage.counted - before).requests <= len(commits) + 1


@pytest.mark.parametrize("name", [*VERSION_8, *VERSION_9, *MERGE_ON_READ])
def test_tables_of_others_are_whole(name: str, tmp_path: Path) -> None:
    """What Java says in its metadata commits is what lies there, after compactions and rollbacks too."""
    snapshot = Table.open(unpack(name, tmp_path)).snapshot()
    assert snapshot.lost_metadata == {}
    assert snapshot.uses_metadata == ("files" in snapshot.metadata.partitions)


def test_an_index_that_java_makes_anew(path: Path) -> None:
    """Java requests the commit that makes an index at the beginning of time: what is older is what completed before."""
    table = Table.open(path)
    timeline = Timeline.load(TableFiles(table.context.files.storage, str(metadata(path))), ".hoodie/timeline")
    first = next(file for file in metadata(path, ".hoodie/timeline").glob("0000000000000000[0-9]_*"))
    last = timeline.completed()[-1]
    body = encode_commit_metadata(
        replace(timeline.commit_metadata(last), operation="BULK_INSERT_PREPPED"), timeline.layout
    )
    name = f"{first.name.split('_')[0][:-1]}9_{int(last.completed or 0) + 1}.deltacommit"
    (first.parent / name).write_bytes(body)
    older = [file for file in metadata(path, "column_stats").glob(".*.log.*") if last.requested not in file.name]
    assert len(older) > 2
    for file in older:
        # Each file group has a first log file of the commit that makes it; the others go with the old folder.
        if f"_{'0' * 14}" in file.name:
            group = file.name.split("_")[0]
            file.with_name(f"{group}_{name.split('_')[0]}.log.1_0-0-0").write_bytes(file.read_bytes())
        file.unlink()
    assert Table.open(path).snapshot().metadata.damage_of("column_stats") == ""
    assert Table.open(path).snapshot().metadata.damage_of("files") == ""
