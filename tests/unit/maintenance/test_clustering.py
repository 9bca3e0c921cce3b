"""Clustering: rows move as they are into fewer or ordered files, beside writers that keep off the plan."""

from __future__ import annotations

import datetime
import errno
import math
import shutil
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import read_by_java, unpack_java_1_2
from lakedex import Table
from lakedex.errors import CommitConflictError, CommitError, CorruptFileError, InvalidInputError, LakedexError
from lakedex.testing import Faults, FaultyStorage, open_table
from lakedex.timeline.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    clustering_plan_of_record,
    encode_clustering_plan,
)
from lakedex.timeline.commit_metadata import decode_body
from lakedex.types import FILE_NAME
from lakedex.write.clustering_order import RowOrder, Sample, codes, interleaved
from service_kit import files_on_disk, with_bitmaps
from table_kit import OWN_FILE, ROWS, base_files, make, own, rows

FILES, EACH = 4, 40
CITIES = ("oslo", "rome")


def table_of(path: Path, version: int = 8, **options: str) -> Table:
    """Two partitions of four files each; ``n`` is spread over all of them."""
    settings = {**OWN_FILE, "hoodie.write.table.version": str(version), "hoodie.clean.automatic": "false", **options}
    table = make(path, schema=ROWS, partition_by="city", ordering_by="ts", options=settings)
    for file in range(FILES):
        table.insert(
            rows(*((f"k{file}-{i}", CITIES[i % 2], i, (i * 7919 + file * 31) % 1000) for i in range(2 * EACH)))
        )
    return table


def with_meta(table: Table) -> pa.Table:
    """All rows with their meta columns but the file's name."""
    return table.scan(meta_columns=True).to_arrow().drop_columns([FILE_NAME]).sort_by("id")


def assert_whole(path: Path, before: pa.Table) -> Table:
    """The rows are what they were, by all readers, and the metadata agrees with the files."""
    table = Table.open(path, options={**OWN_FILE, "hoodie.clean.automatic": "false"})
    assert with_meta(table).equals(before)
    assert table.scan(use_indexes=False).to_arrow().num_rows == before.num_rows
    report = table.maintenance.validate()
    assert report.ok, str(report)
    return table


WAYS: tuple[dict[str, Any], ...] = ({}, {"order_by": "n"}, {"zorder": ["n", "ts"]})


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("way", WAYS, ids=["joined", "linear", "z-order"])
def test_rows_stay_what_they_are(tmp_path: Path, version: int, way: dict[str, Any]) -> None:
    table = with_bitmaps(table_of(tmp_path, version))
    before, last = with_meta(table), table.snapshot().instant
    done = table.maintenance.cluster(**way)
    assert (done.files_before, done.files_after, done.rows, done.partitions) == (8, 2, before.num_rows, 2)
    table = assert_whole(tmp_path, before)
    assert len(table.snapshot().base_files()) == 2
    assert table.indexes.stats("cities").files_uncovered == 0
    assert {row[FILE_NAME] for row in table.scan(columns=[FILE_NAME]).to_arrow().to_pylist()} == {
        Path(base.relative_path).name for base in table.snapshot().base_files()
    }
    assert own(table.scan(as_of=last).to_arrow()) == own(table)
    assert table.changes(last).to_arrow().num_rows == 0
    assert "CLUSTER" in table.inspect.history(1)["operation"].to_pylist()
    again = table.upsert(rows(("k1-1", "rome", 10**6, 5), ("new", "oslo", 1, 1)))
    assert (again.updated, again.inserted) == (1, 1)
    assert own(table.scan("id = 'k1-1'").to_arrow(), "n") == [(5,)]


@pytest.mark.parametrize("version, way", [(6, WAYS[1]), (8, WAYS[0]), (9, WAYS[2])])
def test_log_files_are_merged(tmp_path: Path, version: int, way: dict[str, Any]) -> None:
    """Slices of a merge-on-read table: the new base files have their merged rows, and no log file is left."""
    off = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}
    options = {**OWN_FILE, **off, "hoodie.write.table.version": str(version)}
    table = make(tmp_path, schema=ROWS, partition_by="city", ordering_by="ts", table_type="mor", options=options)
    for file in range(2):
        table.insert(rows(*((f"k{file}-{i}", CITIES[i % 2], 5, i) for i in range(2 * EACH))))
    table.upsert(rows(*((f"k0-{i}", CITIES[i % 2], 9, 1000 - i) for i in range(9))))
    table.delete(where="id in ('k1-0', 'k0-1')")
    assert any(item.log_files for item in table.snapshot().slices())
    before = with_meta(table)
    planned = table.maintenance.cluster(**way, plan_only=True)
    with pytest.raises(CommitConflictError, match=str(planned.instant)):
        table.upsert(rows(("k0-3", "rome", 99, 5)))
    done = table.maintenance.cluster(instant=planned.instant)
    assert (done.files_before, done.files_after, done.rows) == (4, 2, 4 * EACH - 2)
    assert not any(item.log_files for item in assert_whole(tmp_path, before).snapshot().slices())
    table.upsert(rows(("k0-3", "rome", 99, 5)))
    table.maintenance.rollback(str(table.snapshot().instant))
    table.maintenance.rollback(str(planned.instant))
    assert with_meta(Table.open(tmp_path)).equals(before)


def test_order_cuts_files(tmp_path: Path) -> None:
    """Files do not overlap in the first column, rows in them ascend, and queries read fewer files."""
    table = table_of(tmp_path)
    size = max((tmp_path / name).stat().st_size for name in base_files(tmp_path))
    assert len(table.scan("n = 500").plan().slices) == 8
    done = table.maintenance.cluster(order_by=["n", "id"], max_file_bytes=size)
    assert done.files_after >= 6
    for city in CITIES:
        found = []
        for base in table.snapshot().base_files([f"city={city}"]):
            stored = pq.read_table(tmp_path / base.relative_path, columns=["n", "id"]).to_pylist()
            keys = [(row["n"], row["id"]) for row in stored]
            assert keys == sorted(keys)
            found.append((keys[0], keys[-1]))
        found.sort()
        assert all(one[1] < other[0] for one, other in zip(found, found[1:], strict=False))
    assert len(table.scan("n = 500").plan().slices) <= 2


def test_large_row_groups_are_copied(tmp_path: Path) -> None:
    """Column chunks of a large row group are the old file's bytes, but for the file's name."""
    random = np.random.default_rng(3).bytes(1 << 21).hex()
    noise = pa.array([random[n << 12 : (n + 1) << 12] for n in range(1 << 10)])
    table = make(tmp_path, schema=pa.schema([("id", pa.string()), ("noise", pa.string())]), options=OWN_FILE)
    for file in range(2):
        table.insert(pa.table({"id": pa.array([f"{file}-{n}" for n in range(1 << 10)]), "noise": noise}))
    before = with_meta(table)
    old = [tmp_path / name for name in base_files(tmp_path)]
    table.maintenance.cluster()
    (base,) = assert_whole(tmp_path, before).snapshot().base_files()
    new = (tmp_path / base.relative_path).read_bytes()
    metadata = pq.read_metadata(tmp_path / base.relative_path)
    assert metadata.num_row_groups == 2
    for path in old:
        group, stored = pq.read_metadata(path).row_group(0), path.read_bytes()
        for column in (group.column(place) for place in range(group.num_columns)):
            start = column.dictionary_page_offset or column.data_page_offset
            chunk = stored[start : start + column.total_compressed_size]
            assert (chunk in new) == (column.path_in_schema != FILE_NAME), column.path_in_schema


def test_files_of_older_schemas_are_joined(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.add_columns(pa.schema([("more", pa.int64())]))
    table.insert(rows(("x", "oslo", 1, 1)).append_column("more", pa.array([7])))
    before = with_meta(table)
    assert table.maintenance.cluster().files_after == 2
    assert_whole(tmp_path, before)


def test_what_is_chosen(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    services, none = table.maintenance, {"hoodie.clustering.plan.strategy.small.file.limit": 1}
    assert services.cluster(options=none, order_by="n").instant is None
    before = table.snapshot().instant
    wanted = services.cluster(order_by="n", where="city = 'rome' and id < 'k2'", dry_run=True)
    assert (wanted.instant, wanted.files_before, wanted.files_after, wanted.order) == (None, 2, 1, ("n",))
    assert "would rewrite 2 files" in str(wanted) and "about 1 file" in str(wanted)
    assert services.cluster(options=none, order_by="n", dry_run=True).files_before == 0
    assert table.snapshot().instant == before and table.snapshot().timeline.pending_clusterings() == {}
    assert services.cluster(partitions=["city=oslo"]).files_before == 4
    assert services.cluster(where="city = 'rome' and id < 'k2'").files_before == 2
    one = services.cluster(order_by="n", options={"hoodie.clustering.plan.strategy.max.num.groups": 1})
    assert one.partitions == 1
    assert services.cluster(max_file_bytes=1 << 30).files_before == 3, "a single file is not joined with itself"
    by_options = services.cluster(
        options={
            "hoodie.clustering.plan.strategy.sort.columns": "n,ts",
            "hoodie.layout.optimize.strategy": "z-order",
        }
    )
    assert (by_options.order, by_options.layout) == (("n", "ts"), "z-order")
    assert "n, ts (z-order)" in str(by_options)


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"order_by": "nope"}, "has no column 'nope'"),
    ({"order_by": "n", "zorder": "ts"}, "one of the two"),
    ({"partitions": "nowhere"}, "no files in partition 'nowhere'"),
    ({"max_file_bytes": 0}, "max_file_bytes"),
    ({"instant": "1", "order_by": "n"}, "no other argument"),
    ({"instant": "20200101000000000"}, "pending are: none"),
)


@pytest.mark.parametrize("arguments, text", REFUSED)
def test_refused(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    table = make(tmp_path, rows(("a", "oslo", 1, 1)), partition_by="city")
    with pytest.raises(InvalidInputError, match=text):
        table.maintenance.cluster(**arguments)


TOUCHING: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(("k0-0", "oslo", 10**6, 1))),
    "delete": lambda table: table.delete(where="id = 'k0-0'"),
    "update": lambda table: table.update({"n": "1"}, "id = 'k0-0'"),
    "overwrite": lambda table: table.insert_overwrite(rows(("k0-0", "oslo", 10**6, 1))),
    "delete_partition": lambda table: table.delete_partition({"city": "oslo"}),
    "rename": lambda table: table.rename_column("n", "m"),
    "rollback": lambda table: table.maintenance.rollback(str(table.snapshot().instant)),
}


@pytest.mark.parametrize("version", [6, 9])
def test_writes_beside_a_plan(tmp_path: Path, version: int) -> None:
    table = with_bitmaps(table_of(tmp_path, version, **{"hoodie.parquet.small.file.limit": "100000000"}))
    groups = {base.file_id for base in table.snapshot().base_files(["city=oslo"])}
    planned = table.maintenance.cluster(order_by="n", partitions="city=oslo", plan_only=True)
    assert planned.planned and planned.rows == 0 and "planned" in str(planned)
    before = with_meta(table)
    for write in TOUCHING.values():
        with pytest.raises(CommitConflictError, match=str(planned.instant)) as refused:
            write(Table.open(tmp_path))
        assert refused.value.retryable
    assert with_meta(Table.open(tmp_path)).equals(before)
    table.upsert(rows(("k0-1", "rome", 10**6, 1), ("new", "oslo", 1, 1)))
    (new,) = {base.file_id for base in table.snapshot().base_files(["city=oslo"])} - groups
    assert new, "the plan's files are not filled up"
    table.indexes.drop("bloom_filters")
    table.indexes.create("bloom_filters")
    assert table.maintenance.cluster(order_by="n", partitions="city=oslo", plan_only=True).files_before == 1
    before = with_meta(table)
    would = table.maintenance.cluster(instant=planned.instant, dry_run=True)
    assert (would.instant, would.files_before, would.dry_run) == (planned.instant, planned.files_before, True)
    done = Table.open(tmp_path).maintenance.cluster(instant=planned.instant)
    assert done.instant == planned.instant and done.order == ("n",)
    assert_whole(tmp_path, before)


def test_a_plan_that_appears_while_a_write_runs(tmp_path: Path) -> None:
    """It is seen at the commit; the write does not take effect."""
    table_of(tmp_path)
    seen: list[str] = []

    def plan() -> None:
        seen.append(str(Table.open(tmp_path).maintenance.cluster(order_by="n", plan_only=True).instant))

    planning = Faults(when="after", only=("create", ".inflight"), hook=plan)
    retries = {"hoodie.write.num.retries.on.conflict.failures": 0}
    table = open_table(tmp_path, FaultyStorage(planning), options=retries)
    with pytest.raises(CommitConflictError, match="is to rewrite file group city=oslo/") as refused:
        table.upsert(rows(("k0-0", "oslo", 10**6, 1)))
    assert refused.value.theirs == seen[0]
    Table.open(tmp_path).maintenance.rollback(seen[0])
    assert Table.open(tmp_path).upsert(rows(("k0-0", "oslo", 10**6, 1))).updated == 1


@pytest.mark.parametrize("version", [6, 8])
def test_rolling_back(tmp_path: Path, version: int) -> None:
    """A plan, then a completed clustering, the last commit."""
    table = with_bitmaps(table_of(tmp_path, version))
    before, files = with_meta(table), files_on_disk(tmp_path)
    planned = table.maintenance.cluster(order_by="n", plan_only=True)
    assert table.maintenance.rollback(str(planned.instant), dry_run=True).files_deleted == 0
    table.maintenance.rollback(str(planned.instant))
    assert not table.snapshot().timeline.pending()
    done = table.maintenance.cluster(order_by="n")
    table.maintenance.rollback(str(done.instant))
    assert files_on_disk(tmp_path) == files
    assert_whole(tmp_path, before)


def test_restore_clean_and_archive(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    before = with_meta(table)
    kept = table.maintenance.savepoint()
    table.maintenance.cluster(zorder=["n", "ts"])
    table.maintenance.restore(kept)
    assert_whole(tmp_path, before)
    table.maintenance.delete_savepoint(kept)
    table.maintenance.cluster(order_by="n")
    for n in range(6):
        table.upsert(rows((f"x{n}", "oslo", 1, n)))
    before = with_meta(table)
    table.maintenance.clean(commits=2)
    table.maintenance.compact_metadata()
    tight = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "2"}
    assert table.maintenance.archive(options=tight).instants
    table = assert_whole(tmp_path, before)
    assert len(files_on_disk(tmp_path)) < 12


@pytest.mark.parametrize("version", [6, 8])
def test_a_savepoint_within_a_clustering(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi makes one. Archiving must not forget what replaced the files that it retains, as Hudi 1.1.1 does.

    Version 6 keeps a clustering that was planned before the commit; no savepoint retains what it wrote.
    """
    table = table_of(tmp_path, version)
    planned = table.maintenance.cluster(order_by="n", plan_only=True)
    table.insert(rows(("x", "oslo", 1, 1)))
    before = with_meta(table)
    with pytest.raises(InvalidInputError, match=f"{planned.instant}, which replaces files, began before .*rollback"):
        table.maintenance.savepoint()
    monkeypatch.setattr("lakedex.maintenance.rollback.require_no_older_plan", lambda snapshot, commit: None)
    kept = table.maintenance.savepoint()
    table.maintenance.cluster(instant=planned.instant)
    for ts in (10**6, 10**7, 10**8):
        table.upsert(rows(*((f"k{file}-0", "oslo", ts, file) for file in range(FILES))))
    table.maintenance.clean(commits=1)
    table.maintenance.compact_metadata()
    now = with_meta(table)
    tight = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    archived = table.maintenance.archive(options=tight).instants
    assert planned.instant not in archived
    assert_whole(tmp_path, now)
    if version == 6:
        for dry_run in (True, False):
            with pytest.raises(InvalidInputError, match=f"CLUSTER {planned.instant}, planned before it .* to cleaning"):
                table.maintenance.restore(kept, dry_run=dry_run)
        assert_whole(tmp_path, now)
    else:
        table.maintenance.restore(kept)
        assert_whole(tmp_path, before)


def test_a_stale_plan_is_not_run(tmp_path: Path) -> None:
    """A foreign writer that does not keep off the plan, here one that put it there late."""
    table = table_of(tmp_path)
    planned = table.maintenance.cluster(order_by="n", plan_only=True)
    (plan,) = tmp_path.glob(".hoodie/timeline/*.clustering.requested")
    body = plan.read_bytes()
    table.maintenance.rollback(str(planned.instant))
    table.upsert(rows(("k0-0", "oslo", 10**6, 1)))
    before = with_meta(table)
    plan.write_bytes(body)
    with pytest.raises(CommitError, match="no longer what the plan says.*maintenance.rollback"):
        Table.open(tmp_path).maintenance.cluster(instant=planned.instant)
    assert_whole(tmp_path, before).maintenance.rollback(str(planned.instant))


def test_a_clustering_that_died_is_rolled_back_before_it_runs(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    before = with_meta(table)
    planned = table.maintenance.cluster(order_by="n", plan_only=True)
    timeline = tmp_path / ".hoodie" / "timeline"
    (timeline / f"{planned.instant}.clustering.inflight").write_bytes(b"")
    left = tmp_path / "city=oslo" / f"3d6d5e2c-0000-4000-8000-000000000000-0_0-0-0_{planned.instant}.parquet"
    left.write_bytes((tmp_path / base_files(tmp_path)[0]).read_bytes())
    table.upsert(rows(("other", "paris", 1, 1)))
    before = with_meta(table)
    with pytest.raises(CommitConflictError, match="under way in another process"):
        Table.open(tmp_path).maintenance.cluster(instant=planned.instant)
    eager = {"hoodie.clean.failed.writes.policy": "EAGER"}
    Table.open(tmp_path).maintenance.cluster(instant=planned.instant, options=eager)
    assert not left.exists()
    assert_whole(tmp_path, before)


@pytest.mark.parametrize("version, way", [(6, WAYS[0]), (9, WAYS[1])], ids=["6-joined", "9-linear"])
def test_a_failure_at_any_change(tmp_path: Path, version: int, way: dict[str, Any]) -> None:
    """Whatever change fails: the rows stay what they are, and the next call does what this one did not."""
    before = with_meta(with_bitmaps(table_of(tmp_path / "t", version)))
    eager = {**OWN_FILE, "hoodie.clean.failed.writes.policy": "EAGER"}

    def run(at: int) -> tuple[Path, Faults, bool]:
        path = tmp_path / str(at)
        shutil.copytree(tmp_path / "t", path)
        faults = Faults(at=at, error=OSError(errno.EIO, "a broken disk"))
        try:
            open_table(path, FaultyStorage(faults), options=eager).maintenance.cluster(**way)
        except (LakedexError, OSError):
            return path, faults, False
        return path, faults, True

    _, counted, done = run(0)
    assert done
    outcomes = set()
    for at in range(1, len(counted.seen) + 1, 9):
        path, _, done = run(at)
        outcomes.add(done)
        assert with_meta(Table.open(path)).equals(before)
        table = Table.open(path, options=eager)
        for plan in table.snapshot().timeline.pending_clusterings():
            table.maintenance.cluster(instant=plan.requested)
        table.maintenance.cluster(**way)
        assert len(assert_whole(path, before).snapshot().base_files()) == 2
    assert outcomes == {True, False}


def test_after_writes(tmp_path: Path) -> None:
    """``hoodie.clustering.inline`` after every second commit; ``schedule.inline`` only plans."""
    inline = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "2"}
    table = make(tmp_path / "a", schema=ROWS, options={**OWN_FILE, **inline})
    notes = [table.insert(rows((str(n), "x", 1, n))).notes for n in range(4)]
    assert [any("clustered" in note for note in found) for found in notes] == [False, True, False, True]
    assert len(table.snapshot().base_files()) == 1
    later = {"hoodie.clustering.schedule.inline": "true", "hoodie.clustering.inline.max.commits": "2"}
    table = make(tmp_path / "b", schema=ROWS, options={**OWN_FILE, **later})
    assert any("planned" in note for n in range(2) for note in table.insert(rows((str(n), "x", 1, n))).notes)
    (plan,) = table.snapshot().timeline.pending_clusterings()
    assert table.maintenance.cluster(instant=plan.requested).files_after == 1


PLAN = ClusteringPlan(
    groups=(
        ClusteringGroup(
            slices=(
                ClusteringSlice(partition="a b", file_id="f-0", base="f-0_0-0-0_20260101000000000.parquet"),
                ClusteringSlice(
                    partition="a b", file_id="g-0", base=None, logs=(".g-0_20260101000000000.log.1_0-0-0",)
                ),
            ),
            outputs=3,
        ),
    ),
    params={"hoodie.clustering.plan.strategy.sort.columns": "n"},
)


def test_plans_come_back() -> None:
    record = decode_body(encode_clustering_plan(PLAN, "/tables/t"))
    assert clustering_plan_of_record(record) == PLAN
    first = record["clusteringPlan"]["inputGroups"][0]["slices"][0]
    assert first["dataFilePath"] == "a b/f-0_0-0-0_20260101000000000.parquet"
    # Releases of Hudi differ in the folder that they look in for any other path of a log file.
    for folder in ("/tables/t", "s3://bucket/tables/t"):
        found = decode_body(encode_clustering_plan(PLAN, folder))["clusteringPlan"]["inputGroups"][0]["slices"][1]
        assert found["deltaFilePaths"] == ["/tables/t/a b/.g-0_20260101000000000.log.1_0-0-0"]
    for uri in ("file:/elsewhere/a%20b/", "s3://other/", ""):
        first["dataFilePath"] = f"{uri}f-0_0-0-0_20260101000000000.parquet"
        assert clustering_plan_of_record(record) == PLAN


@pytest.mark.parametrize(
    "field, value",
    [
        ("partitionPath", "../up"),
        ("partitionPath", ".hoodie"),
        ("dataFilePath", "x/secret.txt"),
        ("deltaFilePaths", ["/etc/passwd"]),
        ("fileId", "../x"),
        ("fileId", None),
        ("bootstrapFilePath", "file:/elsewhere"),
        ("deltaFilePaths", 7),
    ],
)
def test_hostile_plans(field: str, value: object) -> None:
    record = decode_body(encode_clustering_plan(PLAN, "/tables/t"))
    record["clusteringPlan"]["inputGroups"][0]["slices"][0][field] = value
    with pytest.raises(CorruptFileError):
        clustering_plan_of_record(record, "plan")


def test_plans_that_would_change_rows() -> None:
    """A slice that comes twice, and slices of several partitions in one group."""
    record = decode_body(encode_clustering_plan(PLAN, "/tables/t"))
    slices = record["clusteringPlan"]["inputGroups"][0]["slices"]
    slices.append(slices[0])
    with pytest.raises(CorruptFileError, match="comes twice"):
        clustering_plan_of_record(record, "plan")
    slices[2] = {**slices[0], "fileId": "h-0", "partitionPath": "elsewhere"}
    with pytest.raises(CorruptFileError, match="slices of one partition"):
        clustering_plan_of_record(record, "plan")


def test_a_plan_of_hudi_1_2(tmp_path: Path) -> None:
    """It names its files by where the table was made. Hudi itself refused an update of ``oslo``."""
    path = unpack_java_1_2("cluster_pending", tmp_path)
    expected = read_by_java(path)
    table = Table.open(path)
    ((plan, body),) = table.snapshot().timeline.pending_clusterings().items()
    files = tuple(item.base for item in body.slices)
    planned = next(row["id"] for row in expected if row[FILE_NAME] in files)
    beside = next(row["id"] for row in expected if row["city"] == "sf")
    with pytest.raises(CommitConflictError, match=plan.requested):
        table.upsert(table.scan(f"id = '{planned}'").to_arrow())
    assert table.upsert(table.scan(f"id = '{beside}'").to_arrow()).updated == 1
    done = table.maintenance.cluster(instant=plan.requested)
    assert (done.order, done.files_before, done.files_after) == (("fare",), 2, 1)
    found = {row["id"]: row for row in Table.open(path).scan(meta_columns=True).to_arrow().to_pylist()}
    kept = [name for name in expected[0] if name != FILE_NAME]
    for row in expected:
        if row["id"] != beside:
            assert {name: found[row["id"]][name] for name in kept} == {name: row[name] for name in kept}
    assert len(found) == len(expected)
    assert Table.open(path).maintenance.validate().ok


NAN = float("nan")
ORDERED: tuple[tuple[pa.DataType, Sequence[object]], ...] = (
    (pa.int32(), [None, -(2**31) + 1, -1, 0, 7]),
    (pa.int64(), [None, -(2**62), -1, 0, 2**62]),
    (pa.float64(), [None, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, NAN]),
    (pa.float32(), [None, -1.5, 2.5, NAN]),
    (pa.string(), [None, "a", "ab", "b", "é"]),
    (pa.binary(), [None, b"\x01", b"\xff"]),
    (pa.bool_(), [None, False, True]),
    (pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 1, 1)]),
    (pa.timestamp("us", "UTC"), [None, datetime.datetime(1900, 1, 1), datetime.datetime(2000, 1, 1)]),
    (pa.decimal128(20, 2), [None, Decimal("-1.5"), Decimal("0.00"), Decimal("123456789012345.67")]),
)


@pytest.mark.parametrize("kind, values", ORDERED, ids=[str(kind) for kind, _ in ORDERED])
def test_codes_follow_values(kind: pa.DataType, values: Sequence[object]) -> None:
    found = codes(pa.array(values, kind)).tolist()
    assert found == sorted(found) and len(set(found)) == len(found)


def test_bits_are_interleaved() -> None:
    one, two = np.array([0, 1, 2, 3], np.uint64), np.array([3, 0, 1, 2], np.uint64)
    assert interleaved([one, two], 2).tolist() == [0b0101, 0b0010, 0b1001, 0b1110]


def test_a_curve_keeps_both_columns_narrow() -> None:
    """Of 16 files in z-order, a value of either column is in about four; in a linear order the second is in all."""
    numbers = np.random.default_rng(5).integers(0, 10**6, (2, 4096))
    batch = pa.record_batch({"x": numbers[0], "y": numbers[1], "_hoodie_record_key": [str(n) for n in range(4096)]})
    spans: dict[bool, list[float]] = {}
    for curve in (True, False):
        order = RowOrder.of(("x", "y"), [Sample(4096, batch)], 16, curve=curve)
        files = order.files(batch)
        assert np.bincount(files).min() > 200
        spans[curve] = [float(np.mean([np.ptp(column[files == n]) for n in range(16)])) / 10**6 for column in numbers]
    assert max(spans[True]) < 0.4
    assert spans[False][0] < 0.1 and spans[False][1] > 0.9


def test_equal_values_are_cut_by_key() -> None:
    """A column of one value still gives files of about one size."""
    keys = [f"key-{n:05}" for n in range(1000)]
    batch = pa.record_batch({"x": ["same"] * 1000, "_hoodie_record_key": keys})
    order = RowOrder.of(("x",), [Sample(1000, batch)], 4, curve=False)
    assert abs(np.bincount(order.files(batch)) - 250).max() <= 1
