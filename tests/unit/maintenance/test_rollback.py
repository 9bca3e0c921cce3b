"""Rolling back commits, savepoints, restoring: what goes, what stays, and what is refused."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.codec.bloom import BloomSizing, decode_bloom
from lakedex.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from lakedex.index import bloom_filters as bloom_builds
from lakedex.index.definitions import read_definitions, source_fields
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.parquet.base_file_reader import read_footer
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.active import Timeline
from lakedex.timeline.commit_metadata import RollbackPlan, RollbackRequest, encode_rollback_plan
from lakedex.timeline.instant import State, plus_millis
from lakedex.timeline.service_metadata import RestorePlan, encode_restore_plan
from seams import with_context
from service_kit import actions_of, commits_of, files_on_disk, known_files, with_bitmaps
from table_checks import NEXT, START, Rows, check_table, frame, new_table, read, rows_of

NO_CLEAN = {"hoodie.clean.automatic": "false", "hoodie.parquet.small.file.limit": "0"}
ONE = {"k0": ("a", 2, 50), "z": ("c", 2, 51)}


def started(path: Path) -> Table:
    return with_bitmaps(new_table(path, START, options=NO_CLEAN))


def pend(path: Path, action: str = "commit", old: bool = False, at: str = "20000101000000000") -> str:
    """A write of another engine that has begun."""
    for name in (f"{at}.{action}.requested", f"{at}.inflight" if action == "commit" else f"{at}.{action}.inflight"):
        file = path / ".hoodie/timeline" / name
        file.touch()
        if old:
            os.utime(file, (time.time() - 3600,) * 2)
    return at


def test_rollback(tmp_path: Path) -> None:
    """Rows, files, statistics and bitmaps of the commit are gone (R49)."""
    table = started(tmp_path)
    files = files_on_disk(tmp_path)
    undone = str(table.upsert(frame(ONE)).instant)
    result = table.maintenance.rollback(undone)
    assert (result.undone, result.latest, result.files_deleted) == (undone, commits_of(table)[-1], 2)
    assert f"of {undone}: 2 files deleted" in str(result)
    assert files_on_disk(tmp_path) == known_files(table) == files
    assert table.snapshot().metadata.partition_paths() == ["city=a", "city=b"]
    check_table(tmp_path, START)
    table.upsert(frame(NEXT))
    check_table(tmp_path, {**START, **NEXT})


def test_rollback_of_all_commits(tmp_path: Path) -> None:
    """Newest first, down to the empty table."""
    table = started(tmp_path)
    table.upsert(frame(ONE))
    table.delete(frame({"z": ONE["z"]}).select(["id", "city"]))
    table.insert_overwrite(frame({"x": ("a", 4, 1)}), scope="table")
    states = [{}, START, {**START, **ONE}, {**START, "k0": ONE["k0"]}]
    while commits := commits_of(table):
        table.maintenance.rollback(commits[-1])
        check_table(tmp_path, states.pop())
    assert table.schema.names == ["id", "city", "ts", "v"]
    table.upsert(frame(NEXT))
    check_table(tmp_path, NEXT)


def test_schema_and_definitions_fall_back(tmp_path: Path) -> None:
    """Java takes a file without a record of a listed column for one of nulls, so an undone column leaves its list."""

    def listed() -> list[str]:
        return source_fields(read_definitions(TableFiles(LocalStorage(), str(tmp_path))))

    table = started(tmp_path)
    before = table.schema
    table.add_columns(pa.schema([("more", pa.int32())]))
    table.upsert(pa.table({"id": ["k0"], "city": ["a"], "ts": [3], "v": [4], "more": pa.array([7], pa.int32())}))
    assert "more" in listed()
    table.maintenance.rollback(commits_of(table)[-1])
    assert "more" in listed()
    table.maintenance.rollback(commits_of(table)[-1])
    assert table.schema == before
    assert "more" not in listed()
    check_table(tmp_path, START)


@pytest.mark.parametrize("kind", ["column_stats", "bloom_filters"])
def test_files_that_an_index_build_did_not_see(tmp_path: Path, kind: str) -> None:
    """A file that becomes the newest again has entries of an index that was built meanwhile."""
    table = started(tmp_path)
    undone = str(table.upsert(frame(ONE)).instant)
    for name in ("partition_stats", kind) if kind == "column_stats" else (kind,):
        table.indexes.drop(name, if_exists=True)
    table.indexes.create(kind)
    table.maintenance.rollback(undone)
    assert table.indexes.stats(kind).files_uncovered == 0
    assert table.indexes.validate(kind).ok
    check_table(tmp_path, START, index_builds=True)
    assert table.upsert(frame(NEXT)).tagging.files_opened <= 1


def test_filters_that_a_rollback_makes_follow_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the older files have no filter in their footers, and the index was built after the commit."""
    new_table(tmp_path, START, options=NO_CLEAN)
    sizes = {"hoodie.index.bloom.num_entries": "500", "hoodie.bloom.index.filter.type": "SIMPLE"}
    table = Table.open(tmp_path, options={**NO_CLEAN, **sizes})
    undone = str(table.upsert(frame(ONE)).instant)
    table.indexes.drop("bloom_filters")
    table.indexes.create("bloom_filters")
    monkeypatch.setattr(
        bloom_builds, "read_footer", lambda *where: replace(read_footer(*where), bloom=None, bloom_type="DYNAMIC_V0")
    )
    table.maintenance.rollback(undone)
    records = [record["BloomFilterMetadata"] for record in table.snapshot().metadata.scan("bloom_filters").values()]
    filters = [decode_bloom(found["bloomFilter"], found["type"]) for found in records if not found["isDeleted"]]
    wanted = BloomSizing(num_entries=500, type_code="SIMPLE")
    assert [wanted.fits(bloom, 1) for bloom in filters] == [True] * len(files_on_disk(tmp_path))


@pytest.mark.parametrize("version", ["6", "8", "9"])
def test_a_file_with_stats_of_some_columns(tmp_path: Path, version: str) -> None:
    """Found by a model test: a rollback wrote all stats of such a file, and two records of one column add up."""
    own = {"hoodie.write.table.version": version, "hoodie.metadata.index.column.stats.enable": "false"}
    table = new_table(tmp_path, {}, {**NO_CLEAN, **own, "hoodie.parquet.small.file.limit": "104857600"})
    table.indexes.create("column_stats")
    table.upsert(frame(START))
    table.add_columns(pa.schema([("more", pa.string())]))
    kept = {**{key: row for key, row in START.items() if row[0] != "b"}, "o": ("b", 1, 1)}
    nulls = {"hoodie.write.set.null.for.missing.columns": "true"}
    table.insert_overwrite(frame({"o": kept["o"]}), options=nulls)
    undone = str(table.upsert(frame({"p": ("b", 1, 1), "q": ("b", 1, 1)}), options=nulls).instant)
    table.maintenance.compact_metadata()
    table.maintenance.rollback(undone)
    check_rows(tmp_path, kept)


def test_what_cannot_be_rolled_back(tmp_path: Path) -> None:
    table = started(tmp_path)
    first = commits_of(table)[0]
    later = table.upsert(frame(ONE)).instant
    with pytest.raises(InvalidInputError, match=rf"1 commits came after {first} \({later}\)"):
        table.maintenance.rollback(first)
    with pytest.raises(InvalidInputError, match=f"no commit 20010101000000000 .* last one is {later}"):
        table.maintenance.rollback("20010101000000000")
    saved = table.maintenance.savepoint()
    with pytest.raises(InvalidInputError, match="savepoint"):
        table.maintenance.rollback(saved)
    table.maintenance.delete_savepoint(saved)
    table.upsert(frame({"k0": ("a", 8, 1)}))
    clean = table.maintenance.clean(versions=1).instant
    with pytest.raises(InvalidInputError, match="is not a commit"):
        table.maintenance.rollback(str(clean))
    with pytest.raises(InvalidInputError, match="the cleaner took") as caught:
        table.maintenance.rollback(commits_of(table)[-1])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    check_table(tmp_path, {**START, **ONE, "k0": ("a", 8, 1)})


ARCHIVED = {**NO_CLEAN, "hoodie.clean.commits.retained": "2", "hoodie.keep.min.commits": "3"} | {
    "hoodie.keep.max.commits": "4"
}


def check_rows(path: Path, wanted: Rows) -> None:
    assert read(path) == wanted
    report = Table.open(path).maintenance.validate()
    assert report.ok, str(report)


def one_by_one(path: Path, count: int, **options: str) -> tuple[Table, list[str], list[Rows]]:
    """Commits of one row each, their instants, and the rows after each."""
    table, held, instants = new_table(path, {}, options={**ARCHIVED, **options}), [], []
    for number in range(count):
        instants.append(str(table.insert(frame({f"k{number}": ("a", 1, number)})).instant))
        held.append(read(path))
    return table, instants, held


def test_a_rollback_leaves_archived_commits_a_timeline(tmp_path: Path) -> None:
    """Found by a model test: without any commit on the active timeline no reader took archived ones for committed."""
    table, instants, held = one_by_one(tmp_path, 9)
    table.maintenance.archive()
    active = commits_of(table)
    assert active == instants[-len(active) :] and len(active) < 5
    for place in range(8, 9 - len(active), -1):
        table.maintenance.rollback(instants[place])
        check_rows(tmp_path, held[place - 1])
    first = 9 - len(active)
    with pytest.raises(InvalidInputError, match="the only one that is not archived.*Nothing was changed"):
        table.maintenance.rollback(instants[first])
    check_rows(tmp_path, held[first])
    table.maintenance.savepoint(instants[first])
    table.upsert(frame(NEXT))
    table.maintenance.rollback(commits_of(table)[-1])  # The savepointed commit is where the timeline begins then.
    check_rows(tmp_path, held[first])
    table.upsert(frame(NEXT))
    check_rows(tmp_path, {**held[first], **NEXT})


def test_pending_writes(tmp_path: Path) -> None:
    """A living one stands in the way; a dead one can be rolled back by its name."""
    table = started(tmp_path)
    alive = pend(tmp_path)
    for refused in (
        lambda: table.maintenance.rollback(commits_of(table)[-1]),
        lambda: table.maintenance.rollback(alive),
    ):
        with pytest.raises(CommitConflictError):
            refused()
    saved = table.maintenance.savepoint()
    with pytest.raises(CommitConflictError, match="under way"):
        table.maintenance.restore(saved)
    pend(tmp_path, old=True)
    assert table.maintenance.rollback(alive).undone == alive
    check_table(tmp_path, START)


def test_a_write_that_read_what_is_undone_fails(tmp_path: Path) -> None:
    """Hudi's own rollback takes no notice of a pending write, which must not bring undone rows back."""
    table = started(tmp_path)
    undone = str(table.upsert(frame(ONE)).instant)
    timeline = tmp_path / ".hoodie/timeline"

    def undo() -> None:
        next(timeline.glob(f"{undone}_*")).unlink()
        (timeline / f"{undone}.inflight").unlink()
        (timeline / f"{undone}.commit.requested").unlink()

    with pytest.raises(CommitConflictError, match="was rolled back"):
        at_commit(tmp_path, undo).upsert(frame(NEXT), options={"hoodie.write.num.retries.on.conflict.failures": "0"})


def at_commit(path: Path, hook: Callable[[], None]) -> Table:
    return open_table(path, FaultyStorage(Faults(1, "after", only=("close_output", ".parquet"), hook=hook)))


def test_a_rollback_of_hudis_that_died_at_its_end(tmp_path: Path) -> None:
    """It removes the instant before it completes: what is left to do is in the plan."""
    table = started(tmp_path)
    undone, rollback = "20200101000000000", "20200101000001000"
    stray = tmp_path / "city=a" / f"{'0' * 8}-0_0-0-0_{undone}.parquet"
    stray.touch()
    request = RollbackRequest(partition_path="city=a", file_id="", files=(f"file:{stray}",))
    plan = encode_rollback_plan(RollbackPlan(instant=undone, action="commit", requests=(request,)))
    for name, body in ((f"{rollback}.rollback.requested", plan), (f"{rollback}.rollback.inflight", b"")):
        (tmp_path / ".hoodie/timeline" / name).write_bytes(body)
        os.utime(tmp_path / ".hoodie/timeline" / name, (time.time() - 3600,) * 2)
    table.upsert(frame(NEXT))
    assert not stray.exists()
    assert [instant.state for instant in actions_of(table, "rollback")] == [State.COMPLETED]
    check_table(tmp_path, {**START, **NEXT})


# ------------------------------------------------------------------------------------------------------- savepoints
def test_savepoints(tmp_path: Path) -> None:
    table = started(tmp_path)
    with pytest.raises(InvalidInputError, match="no savepoint"):
        table.maintenance.delete_savepoint("1")
    first = table.maintenance.savepoint(comment="good", user="me")
    table.upsert(frame(ONE))
    second = table.maintenance.savepoint()
    found = table.maintenance.savepoints().to_pylist()
    assert [(row["instant"], row["files"], row["partitions"]) for row in found] == [(first, 2, 2), (second, 3, 3)]
    assert (found[0]["user"], found[0]["comment"]) == ("me", "good")
    assert found[1]["user"]
    for instant, why in ((first, "savepoint already"), ("20010101000000000", "no commit")):
        with pytest.raises(InvalidInputError, match=why):
            table.maintenance.savepoint(instant)
    table.maintenance.delete_savepoint(first)
    assert table.maintenance.savepoints()["instant"].to_pylist() == [second]
    assert read(tmp_path) == {**START, **ONE}


def test_no_savepoint_of_what_was_cleaned(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no commit yet"):
        new_table(tmp_path / "empty", {}).maintenance.savepoint()
    table = started(tmp_path / "t")
    for number in range(3):
        table.upsert(frame({"k0": ("a", 5 + number, number)}))
    first, second, *_ = commits_of(table)
    table.maintenance.clean(commits=2)
    for instant in (first, second):
        with pytest.raises(InvalidInputError, match="may have been cleaned"):
            table.maintenance.savepoint(instant)
    assert table.maintenance.savepoint(commits_of(table)[2])


# ------------------------------------------------------------------------------------------------------------ restore
def test_restore(tmp_path: Path) -> None:
    """Past overwrites, schema changes and cleans; every index is right (R49)."""
    table = started(tmp_path)
    table.upsert(frame(ONE))
    kept = read(tmp_path)
    saved = table.maintenance.savepoint()
    table.add_columns(pa.schema([("more", pa.string())]))
    nulls = {"hoodie.write.set.null.for.missing.columns": "true"}
    table.upsert(frame({"k1": ("b", 7, 70), "y": ("d", 7, 71)}), options=nulls)
    table.insert_overwrite(frame({"x": ("a", 9, 90)}), scope="table", options=nulls)
    table.maintenance.clean(versions=1)
    undone = commits_of(table)[2:]
    result = table.maintenance.restore(saved)
    assert result.undone == tuple(reversed(undone))
    assert f"to {saved}: 3 commits undone" in str(result)
    assert commits_of(table)[-1] == saved
    assert not actions_of(table, "rollback")
    check_table(tmp_path, kept)
    assert table.indexes.validate("column_stats").ok
    assert table.indexes.validate("bloom_filters").ok
    assert table.maintenance.restore(saved).instant is None
    table.upsert(frame(NEXT))
    check_table(tmp_path, {**kept, **NEXT})
    assert table.maintenance.restore(saved).files_deleted == 2
    check_table(tmp_path, kept)


def test_what_cannot_be_restored(tmp_path: Path) -> None:
    table = started(tmp_path)
    with pytest.raises(InvalidInputError, match="no savepoint .*; it has none"):
        table.maintenance.restore(commits_of(table)[0])
    saved = table.maintenance.savepoint()
    table.upsert(frame(ONE))
    lost = next(tmp_path.glob(f"city=a/*_{saved}.parquet"))
    lost.rename(tmp_path / "away")
    with pytest.raises(InvalidInputError, match=f"1 files of its savepoint are gone, among them city=a/{lost.name}"):
        table.maintenance.restore(saved)
    (tmp_path / "away").rename(lost)
    check_table(tmp_path, {**START, **ONE})


def test_a_restore_to_the_first_commit_that_is_not_archived(tmp_path: Path) -> None:
    """Found by a model test: only a savepointed commit was left, with which no timeline began."""
    table, instants, held = one_by_one(tmp_path, 9)
    table.maintenance.archive()
    first = 9 - len(commits_of(table))
    saved = table.maintenance.savepoint(instants[first])
    table.maintenance.restore(saved)
    assert commits_of(table) == [saved]
    check_rows(tmp_path, held[first])
    assert not Timeline.load(TableFiles(LocalStorage(), str(tmp_path))).is_committed(instants[-1])
    table.upsert(frame(NEXT))
    check_rows(tmp_path, {**held[first], **NEXT})
    table.maintenance.restore(saved)
    table.maintenance.delete_savepoint(saved)
    check_rows(tmp_path, held[first])


def test_no_restore_past_archived_commits(tmp_path: Path) -> None:
    """Their files would be committed again with the next write."""
    beyond = {"hoodie.archive.beyond.savepoint": "true"}
    table, *_ = one_by_one(tmp_path, 3, **beyond)
    saved = table.maintenance.savepoint()
    for number in range(5):
        table.insert(frame({f"m{number}": ("a", 1, number)}))
    before = read(tmp_path)
    table.maintenance.archive()
    assert saved in commits_of(table) and len(commits_of(table)) < 6
    with pytest.raises(InvalidInputError, match=f"cannot be restored to {saved}: .* were archived"):
        table.maintenance.restore(saved)
    check_rows(tmp_path, before)


def test_a_restore_hides_what_it_undoes(tmp_path: Path) -> None:
    """From its inflight file on, whoever made it; writers wait for it, or finish it when it died."""
    table = started(tmp_path)
    saved = table.maintenance.savepoint()
    undone = [str(table.upsert(frame({"k0": ("a", 7 + n, n)})).instant) for n in range(2)]
    plan = encode_restore_plan(RestorePlan(savepoint=saved, instants=tuple((i, "commit") for i in reversed(undone))))
    timeline, when = tmp_path / ".hoodie/timeline", plus_millis(table.snapshot().timeline.last_time, 1)
    (timeline / f"{when}.restore.requested").write_bytes(plan)
    assert read(tmp_path)["k0"] == ("a", 8, 1)
    (timeline / f"{when}.restore.inflight").touch()
    assert read(tmp_path) == START
    assert table.inspect.history().num_rows == 1
    with pytest.raises(CommitConflictError, match="restore .* under way"):
        table.upsert(frame(NEXT))
    os.utime(timeline / f"{when}.restore.inflight", (time.time() - 3600,) * 2)
    table.upsert(frame(NEXT))
    check_table(tmp_path, {**START, **NEXT})
    assert [instant.state for instant in actions_of(table, "restore")] == [State.COMPLETED]


def test_a_restore_of_hudis_in_the_metadata_table(tmp_path: Path) -> None:
    table = started(tmp_path)
    saved = table.maintenance.savepoint()
    undone = str(table.upsert(frame(ONE)).instant)
    when = str(int(undone) + 500)
    plan = encode_restore_plan(RestorePlan(savepoint=saved, instants=((undone, "commit"),)))
    for folder in (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline"):
        (tmp_path / folder / f"{when}.restore.requested").write_bytes(plan)
        (tmp_path / folder / f"{when}.restore.inflight").touch()
        os.utime(tmp_path / folder / f"{when}.restore.inflight", (time.time() - 3600,) * 2)
    with pytest.raises(UnsupportedFeatureError, match="finish it with Hudi"):
        table.upsert(frame(NEXT))
    assert rows_of(Table.open(tmp_path).to_arrow()) == START


@pytest.mark.parametrize("plan", ["empty", "damaged", "of a commit that stays"])
def test_plans_of_rollbacks_are_read_once(tmp_path: Path, plan: str) -> None:
    """However many there are and however often a write looks among them; one that changed is read again."""
    plans: list[str] = []

    class Counting(LocalStorage):
        def read(self, path: str) -> bytes:
            if path.endswith(".rollback.requested"):
                plans.append(path.rpartition("/")[2])
            return super().read(path)

    table = with_context(new_table(tmp_path, START), storage=Counting())
    folder = tmp_path / ".hoodie/timeline"
    beating = table.snapshot().timeline.instants[-1].requested
    whole = encode_rollback_plan(RollbackPlan(instant=beating, action="commit", requests=()))
    (tmp_path / ".hoodie/.heartbeat").mkdir(exist_ok=True)
    (tmp_path / ".hoodie/.heartbeat" / beating).touch()
    content = {"empty": b"", "damaged": b"Obj\x01" * 9}.get(plan, whole)
    names = [f"{20200101000000000 + number}.rollback.requested" for number in range(50)]
    for name in names:
        (folder / name).write_bytes(content)
    table.upsert(frame(NEXT))
    assert sorted(plans) == names
    table.upsert(frame(ONE))
    assert sorted(plans) == names
    (folder / names[7]).write_bytes(b"\0" * 9)
    table.upsert(frame(NEXT))
    assert sorted(plans) == sorted([*names, names[7]])


@pytest.mark.parametrize("version", ["8", "9"])
def test_a_restore_below_later_savepoints(tmp_path: Path, version: str) -> None:
    """Their commits are undone: what they wrote counts no longer, in the statistics of partitions either."""
    schema = pa.schema([("id", pa.string()), ("g", pa.string()), ("n", pa.int64())])
    table = Table.create(
        tmp_path / "t", schema=schema, record_key="id", partition_by="g",
        options={"hoodie.write.table.version": version},
    )  # fmt: skip
    batches: list[list[tuple[str, str | None]]] = [
        [("k4", "p"), ("k11", None)], [("k8", "p"), ("k10", "p")], [("k4", "r/x"), ("k1", "p")],
        [("k9", "p"), ("k1", None)], [("k10", None)], [("k8", "r/x"), ("k0", "q")],
    ]  # fmt: skip
    saved = []
    for number, batch in enumerate(batches):
        ids, places = zip(*batch, strict=True)
        table.upsert(pa.table([ids, places, [number] * len(ids)], schema=schema))
        if number in (0, 2, 3):
            saved.append(table.maintenance.savepoint())
    table.maintenance.restore(saved[0])
    report = table.maintenance.validate()
    assert report.ok, report
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == ["k11", "k4"]


def test_a_metadata_log_of_version_6_never_has_the_name_of_one_that_a_restore_removed(tmp_path: Path) -> None:
    """Names there do not hold the commit's own instant, and readers remember files by name and size."""
    table = new_table(tmp_path, START, options={"hoodie.write.table.version": "6"})
    saved = table.maintenance.savepoint()
    before = logs_of(tmp_path)
    table.upsert(frame(NEXT))
    removed = logs_of(tmp_path) - before
    table.maintenance.restore(saved)
    table.upsert(frame(NEXT))
    assert removed and not removed & logs_of(tmp_path)
    assert table.maintenance.validate().ok


def logs_of(path: Path) -> set[str]:
    return {
        str(p.relative_to(path)) for p in (path / ".hoodie/metadata").rglob(".*.log.*") if not p.name.endswith(".crc")
    }
