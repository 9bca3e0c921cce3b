"""Tables whose own files name what lies outside of them: every service refuses, and nothing out there changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakedex import Table
from lakedex.codec.avro import write_container
from lakedex.errors import CorruptFileError, FormatError, InvalidInputError
from lakedex.io.local import LocalStorage
from lakedex.timeline.commit_metadata import RollbackPlan, RollbackRequest, encode_commit_metadata, encode_rollback_plan
from lakedex.timeline.service_metadata import CleanPlan, RestorePlan, encode_clean_plan, encode_restore_plan
from service_kit import commits_of
from table_checks import NEXT, START, check_table, frame, new_table
from table_kit import properties, set_properties

VERSIONS = ("6", "8", "9")
DEAD = "20200101000000000"
"""A write that died before all others."""
OLD = "f-0_0-0-0_20200101000000000.parquet"
PARTITIONS = (
    "../victim",
    "city=a/../../victim",
    "..",
    "city=a/..",
    "{outside}",
    "city=a//x",
    "city=a/",
    "./city=a",
    ".hoodie",
    ".HOODIE/metadata",
    "city=a/.hoodie",
    "..\\victim",
    "city=a\0",
)
NAMES = ("hoodie.properties", "notes.txt", "..", ".", "", ".hoodie", "a\0b", "..\\..\\victim\\notes.txt", "x.parquet")

Content = dict[str, bytes | None]


def content(path: Path) -> Content:
    """All that lies below a folder."""
    return {
        str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else None
        for entry in sorted(path.rglob("*"))
    }


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the table, which must stay as it is."""
    folder = tmp_path / "victim"
    (folder / "city=a").mkdir(parents=True)
    for name in ("notes.txt", "hoodie.properties", OLD, "20200101000000000.inflight", "city=a/" + OLD):
        (folder / name).write_text(name)
    (folder / ".hoodie_partition_metadata").write_text("#partition metadata\ncommitTime=1\npartitionDepth=1\n")
    before = content(folder)
    yield folder
    assert content(folder) == before


def made(version: str) -> Callable[[Path], Table]:
    def make(path: Path) -> Table:
        table = new_table(path, START, {"hoodie.write.table.version": version, "hoodie.clean.automatic": "false"})
        table.upsert(frame({"k0": ("a", 2, 50)}))
        return table

    return make


MAKERS = {version: made(version) for version in VERSIONS}


@pytest.fixture(params=VERSIONS)
def table(request: pytest.FixtureRequest, once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(MAKERS[request.param], tmp_path / "table")


def timeline(table: Table) -> Path:
    return Path(table.snapshot().timeline.path)


def put(table: Table, name: str, body: bytes = b"") -> None:
    """A file of a write or service that died an hour ago."""
    path = timeline(table) / name
    path.write_bytes(body)
    os.utime(path, (time.time() - 3600,) * 2)


def reopened(table: Table, options: dict[str, str] | None = None) -> Table:
    """The table for somebody who has nothing in memory."""
    return Table.open(table.path, options=options or table.context.options)


def refused(source: str, *calls: Callable[[], object]) -> None:
    """Each call fails with an error that names the file."""
    for call in calls:
        with pytest.raises(CorruptFileError) as caught:
            call()
        assert source in caught.value.path, call


# -------------------------------------------------------------------------------------------------------------- plans


def put_rollback(table: Table, plan: RollbackPlan) -> str:
    put(table, f"{DEAD}.commit.requested")
    put(table, f"{DEAD}.inflight")
    put(table, "20200101000000001.rollback.requested", encode_rollback_plan(plan))
    return "20200101000000001.rollback.requested"


def put_clean(table: Table, plan: CleanPlan) -> str:
    put(table, "20200101000000001.clean.requested", encode_clean_plan(plan))
    return "20200101000000001.clean.requested"


def put_restore(table: Table, plan: RestorePlan) -> str:
    put(table, "20200101000000001.restore.requested", encode_restore_plan(plan))
    put(table, "20200101000000001.restore.inflight")
    return "20200101000000001.restore.requested"


def rollback_of(partition: str, name: str) -> RollbackPlan:
    request = RollbackRequest(partition_path=partition, file_id="f-0", files=(f"/x/{name}",))
    good = RollbackRequest(partition_path="city=a", file_id="f-0", files=(f"/x/city=a/{OLD}",))
    return RollbackPlan(instant=DEAD, action="commit", requests=(good, request))


def clean_of(partition: str, name: str) -> CleanPlan:
    files = {"city=a": (f"/x/city=a/{OLD}",), partition: (f"/x/{name}",)}
    return CleanPlan(policy="KEEP_LATEST_COMMITS", files=files, gone=(partition,))


def refuse_plans(table: Table, partition: str, name: str) -> None:
    """A rollback and a clean that name a file are refused, and nothing else of their plans is carried out."""
    ours = Path(table.path) / "city=a" / OLD
    ours.write_text("named by the plans as well")
    file = put_rollback(table, rollback_of(partition, name))
    refused(file, lambda: table.upsert(frame(NEXT)), table.maintenance.savepoint)
    (timeline(table) / file).unlink()
    file = put_clean(table, clean_of(partition, name))
    refused(file, table.maintenance.clean, table.maintenance.savepoint)
    (timeline(table) / file).unlink()
    assert ours.exists()


def test_a_plan_names_a_partition_outside(table: Table, victim: Path) -> None:
    for partition in PARTITIONS:
        refuse_plans(table, partition.format(outside=victim), OLD)


def test_a_plan_names_what_is_no_data_file(table: Table, victim: Path) -> None:
    for name in NAMES:
        refuse_plans(table, "city=a", name)


def test_a_clean_drops_no_partition_that_is_none(table: Table, victim: Path) -> None:
    for gone in ("../victim", ".hoodie", ".hoodie/metadata", str(victim)):
        file = put_clean(table, CleanPlan(policy="KEEP_LATEST_COMMITS", gone=(gone,)))
        refused(file, table.maintenance.clean, table.maintenance.savepoint)


def test_an_instant_is_digits(table: Table, victim: Path) -> None:
    folder = timeline(table)
    for instant in ("x/../../victim", "../../../victim", "", "..", f"{DEAD}/..", "1" * 300, "\u0663" * 17):
        file = put_rollback(table, RollbackPlan(instant=instant, action="commit"))
        refused(file, lambda: table.upsert(frame(NEXT)), table.maintenance.savepoint)
        (timeline(table) / file).unlink()
        file = put_restore(table, RestorePlan(savepoint=DEAD, instants=((instant, "commit"),)))
        refused(file, lambda: table.upsert(frame(NEXT)), table.to_arrow)
        for name in (file, file.replace("requested", "inflight")):
            (folder / name).unlink()


def test_a_plan_that_was_cut_short_stands_in_nobodys_way(table: Table, victim: Path) -> None:
    file = put_rollback(table, rollback_of("../victim", OLD))
    whole = (timeline(table) / file).read_bytes()
    for body in (b"", whole[: len(whole) // 2]):
        put(table, file, body)
        table.upsert(frame({"k0": ("a", 3, 51)}))
    (timeline(table) / file).unlink()
    check_table(Path(table.path), {**START, "k0": ("a", 3, 51)})


# ------------------------------------------------------------------------------------------------------------ markers


def test_a_marker_names_what_is_no_file_of_the_table(table: Table, victim: Path) -> None:
    put(table, f"{DEAD}.commit.requested")
    put(table, f"{DEAD}.inflight")
    folder = Path(table.path) / ".hoodie/.temp" / DEAD
    folder.mkdir(parents=True)
    ours = Path(table.path) / "city=a" / OLD
    ours.write_text("of the write that died")
    lines = [f"{partition.format(outside=victim)}/{OLD}" for partition in PARTITIONS]
    for line in (*lines, "city=a/hoodie.properties", "../victim/notes.txt", ".hoodie/hoodie.properties", "city=a/.."):
        (folder / "MARKERS0").write_text(f"city=a/{OLD}.marker.CREATE\n{line}.marker.CREATE\n")
        refused(f"{DEAD}/MARKERS0", lambda: table.upsert(frame(NEXT)))
        assert ours.exists()


def test_markers_behind_a_link_are_not_followed(table: Table, victim: Path) -> None:
    put(table, f"{DEAD}.commit.requested")
    put(table, f"{DEAD}.inflight")
    folder = Path(table.path) / ".hoodie/.temp" / DEAD
    for link in (folder, folder / "city=a", folder / "loop"):
        shutil.rmtree(folder, ignore_errors=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(victim if link.name != "loop" else folder)
        refused(str(link), lambda: table.upsert(frame(NEXT)))
        link.unlink()


# ------------------------------------------------------------------------------------------------------------ commits


def rewrite_commit(table: Table, partition: str, name: str | None = None, *, replaced: bool = False) -> str:
    """Have the last commit say that it wrote, or replaced, a file elsewhere."""
    snapshot = table.snapshot()
    last = snapshot.timeline.completed()[-1]
    found = snapshot.timeline.commit_metadata(last)
    stat = found.all_stats()[0]
    path = f"{partition}/{name or stat.file_name}"
    if replaced:
        changed = replace(found, replaced={partition: (stat.file_id,)})
    else:
        stats = {**found.write_stats, partition: (replace(stat, path=path, partition_path=partition),)}
        changed = replace(found, write_stats=stats)
    body = encode_commit_metadata(changed, snapshot.timeline.layout)
    (timeline(table) / last.file_name).write_bytes(body)
    return last.file_name


def test_a_commit_names_a_partition_outside(table: Table, victim: Path) -> None:
    commits = commits_of(table)
    last = timeline(table) / table.snapshot().timeline.completed()[-1].file_name
    body = last.read_bytes()
    for partition in PARTITIONS:
        last.write_bytes(body)
        rewrite_commit(table, partition.format(outside=victim))
        found = reopened(table)
        refused(
            last.name,
            partial(found.maintenance.rollback, commits[-1]),
            partial(found.changes, since=commits[0]),
            found.maintenance.rebuild_metadata,
        )
    with suppress(CorruptFileError):  # Neither needs to read the commit.
        found.maintenance.clean(commits=1)
        found.upsert(frame(NEXT))


def test_a_commit_replaces_file_groups_outside(table: Table, victim: Path) -> None:
    commits = commits_of(table)
    file = rewrite_commit(table, "../victim", replaced=True)
    refused(
        file,
        lambda: reopened(table).maintenance.rollback(commits[-1]),
        lambda: reopened(table).changes(since=commits[0]),
    )


def test_no_rollback_deletes_what_is_no_data_file(table: Table, victim: Path) -> None:
    commits = commits_of(table)
    for name in ("hoodie.properties", "notes.txt", "x.parquet"):
        file = rewrite_commit(table, "city=a", name)
        ours = Path(table.path) / "city=a" / name
        ours.write_text("not ours")
        refused(file, partial(reopened(table).maintenance.rollback, commits[-1]))
        assert ours.exists()


# -------------------------------------------------------------------------------------------------------- the metadata


def test_a_clean_of_the_metadata_table_stays_in_it(table: Table, victim: Path) -> None:
    """A plan that leads elsewhere is taken away; a new one is made when it is due."""
    folder = Path(table.snapshot().metadata.timeline.path)
    for partition, name in (("../../../victim", OLD), ("files", "../hoodie.properties"), (".hoodie", "x")):
        plan = folder / "20200101000000001.clean.requested"
        plan.write_bytes(encode_clean_plan(clean_of(partition, name)))
        table.maintenance.compact_metadata()
        table.upsert(frame({"k0": ("a", 3, 51)}))
        assert (folder.parent / "hoodie.properties").exists() or (folder.parent.parent / "hoodie.properties").exists()
    check_table(Path(table.path), {**START, "k0": ("a", 3, 51)}, index_builds=True)


def test_a_compaction_of_the_metadata_table_stays_in_it(table: Table, victim: Path) -> None:
    folder = Path(table.snapshot().metadata.timeline.path)
    for partition, file_id, log in (
        ("../../../victim", "files-0000-0", OLD),
        ("files", "../../x", OLD),
        ("files", "files-0000-0", "../../../victim/notes.txt"),
    ):
        operation: dict[str, Any] = {
            "baseInstantTime": DEAD,
            "deltaFilePaths": [log],
            "dataFilePath": None,
            "fileId": file_id,
            "partitionPath": partition,
            "metrics": {},
            "bootstrapFilePath": None,
        }
        body = {
            "operations": [operation],
            "extraMetadata": {},
            "version": 2,
            "strategy": None,
            "preserveHoodieMetadata": False,
            "missingSchedulePartitions": [],
        }
        plan = folder / "20200101000000001.compaction.requested"
        plan.write_bytes(write_container("HoodieCompactionPlan", body))
        table.maintenance.compact_metadata()
        assert not plan.exists()
    check_table(Path(table.path), {**START, "k0": ("a", 2, 50)}, index_builds=True)


# ----------------------------------------------------------------------------------------------------------- settings


FOLDERS = ("..", "../victim", "a/../../../victim", "{outside}", "file:{outside}//x", ".", "a//b", "a\tb", ".hoodie")


def test_a_setting_leads_outside(table: Table, victim: Path) -> None:
    layout_1 = table.snapshot().timeline.layout == 1
    keys = ["hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight"]
    keys += ["hoodie.archivelog.folder"] if layout_1 else ["hoodie.timeline.path", "hoodie.timeline.history.path"]
    before = properties(Path(table.path))
    for key in keys:
        for folder in FOLDERS:
            value = folder.format(outside=victim)
            set_properties(Path(table.path), {key: f"files,{value}" if "partitions" in key else value})
            for call in (table.to_arrow, partial(table.upsert, frame(NEXT)), partial(table.indexes.drop, value)):
                with pytest.raises(FormatError, match=re.escape(key)):
                    call()
        set_properties(Path(table.path), {key: before.get(key, "")})
    check_table(Path(table.path), {**START, "k0": ("a", 2, 50)})


@pytest.mark.parametrize(
    "name", ["../../../../victim/1_2_0.parquet", "..", "1_2_0.parquet/..", "9" * 5000 + "_1_0.parquet"]
)
def test_a_history_names_what_is_no_file_of_it(tmp_path: Path, victim: Path, name: str) -> None:
    options = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.commits.retained": "1",
        "hoodie.archive.automatic": "false",
    }
    table = new_table(tmp_path / "table", START, options)
    for number in range(5):
        table.upsert(frame({"k0": ("a", 10 + number, number)}))
    history = timeline(table) / "history"
    files = [{"fileName": name, "fileLen": 1}] * 12
    (history / "manifest_1").write_text(json.dumps({"files": files}))
    (history / "_version_").write_text("1")
    refused("history/manifest_1", table.maintenance.archive, partial(table.changes, since="20000101000000000"))
    refused("history/manifest_1", partial(table.inspect.history, archived=True))


def test_the_name_of_a_rebuild_is_an_instant(table: Table, victim: Path) -> None:
    """It names a heartbeat; one that is none counts as one that stopped."""
    set_properties(Path(table.path), {"lakedex.metadata.rebuilding": "../../../victim/notes.txt column_stats"})
    table.upsert(frame({"k0": ("a", 3, 51)}))
    check_table(Path(table.path), {**START, "k0": ("a", 3, 51)}, index_builds=True)


# ------------------------------------------------------------------------------------------------------------- writes


VALUES = (
    "..",
    ".",
    "../victim",
    "a/../../victim",
    "{outside}",
    "a//b",
    ".hoodie",
    "a\0b",
    ".hoodie_partition_metadata",
)


def test_no_row_makes_a_folder_elsewhere(tmp_path: Path, victim: Path) -> None:
    plain = dict.fromkeys(
        ("hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"), "false"
    )
    table = new_table(tmp_path / "table", START, plain)
    before = content(tmp_path / "table")
    for value in VALUES:
        city = value.format(outside=victim)
        rows = frame({"x": (city, 1, 1)})
        for call in (
            partial(table.upsert, rows),
            partial(table.insert, rows),
            partial(table.bulk_insert, rows),
            partial(table.insert_overwrite, rows),
            partial(table.delete_partition, city),
            partial(table.delete_partition, {"city": city}),
        ):
            with pytest.raises(InvalidInputError, match="city"):
                call()
    assert content(tmp_path / "table") == before


def test_no_row_is_written_through_a_link(table: Table, victim: Path) -> None:
    commits = commits_of(table)
    for target in (victim, victim / "new"):
        link = Path(table.path) / "city=c"
        link.symlink_to(target)
        refused(str(link), *(partial(write, frame({"x": ("c", 1, 1)})) for write in (table.upsert, table.bulk_insert)))
        link.unlink()
    assert commits_of(table) == commits
    assert not table.snapshot().timeline.pending()


def test_a_table_is_not_made_through_a_link(tmp_path: Path, victim: Path) -> None:
    for inner in (".hoodie", ".hoodie/metadata", ".hoodie/timeline"):
        base = tmp_path / inner.replace("/", "-")
        (base / inner).parent.mkdir(parents=True)
        (base / inner).symlink_to(victim / "city=a")
        refused(inner, partial(new_table, base, {}))


# -------------------------------------------------------------------------------------------------------------- links


def test_no_folder_of_a_table_is_a_link(table: Table, victim: Path) -> None:
    """Neither one to another place nor one to itself, with a metadata table or without."""
    link = Path(table.path) / "city=a"
    link.rename(link.parent.parent / "kept")
    for target in (link.parent, link.parent / "city=b", link, victim):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        found = reopened(table)
        refused(
            str(link),
            found.to_arrow,
            found.scan().count,
            partial(found.maintenance.clean, commits=1),
            found.maintenance.savepoint,
        )
        if target != link:  # What leads nowhere is not there.
            refused(str(link), found.maintenance.rebuild_metadata, found.maintenance.validate)
    refused(
        str(link),
        partial(table.maintenance.rollback, commits_of(table)[-1]),
        partial(table.upsert, frame(NEXT)),
        partial(table.delete, where="id = 'k0'"),
        partial(table.erase, ["k0"], all_partitions=True),
    )


OWN = (".hoodie", ".hoodie/.temp", ".hoodie/.heartbeat", ".hoodie/.index_defs", ".hoodie/metadata")


@pytest.mark.parametrize("folder", [*OWN, ".hoodie/metadata/files", "timeline"])
def test_a_tables_own_folders_are_no_links(table: Table, victim: Path, folder: str) -> None:
    base = Path(table.path)
    link = timeline(table) if folder == "timeline" else base / folder
    link.parent.mkdir(exist_ok=True)
    elsewhere = base.parent / "elsewhere"
    if link.exists():
        link.rename(elsewhere)
    else:
        elsewhere.mkdir()
    before = content(elsewhere)
    link.symlink_to(elsewhere)
    table = Table.open(base) if folder == ".hoodie/metadata/files" else table
    if folder == ".hoodie/metadata/files":
        assert table.scan().count() == len(START)  # Storage is listed instead, until the next write makes it anew.
        table.upsert(frame(NEXT))
        check_table(base, {**START, **NEXT}, index_builds=True)
    else:
        refused(str(link), lambda: reopened(table).upsert(frame(NEXT)))
    assert content(elsewhere) == before


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    assert LocalStorage().list(str(tmp_path)) == []


def test_of_a_link_only_the_link_is_deleted(tmp_path: Path, victim: Path) -> None:
    for name in ("a", "b/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(victim)
    LocalStorage().delete_tree(str(tmp_path / "a"))
    LocalStorage().delete_tree(str(tmp_path / "b"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["victim"]
