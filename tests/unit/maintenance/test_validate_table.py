"""``validate``: each way in which metadata and files can disagree is found and said, and nothing else is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.layout.names import parse_base_file_name
from lakedex.metadata.records import (
    bloom_key,
    bloom_record,
    column_stats_key,
    files_key,
    files_record,
    partition_stats_key,
)
from lakedex.metadata.writer import write_delta_commit
from lakedex.timeline.instant import InstantClock
from table_kit import OWN_FILE, base_files, make, rows, set_properties

INT = "org.apache.hudi.avro.model.IntWrapper"


def _made(path: Path) -> Table:
    """Three files in two partitions, all indexes and a bitmap index."""
    made = make(path, rows(("1", "a", 1, 10), ("2", "b", 1, 20)), partition_by="city", ordering_by="ts")
    made.insert(rows(("3", "a", 1, 30)), options=OWN_FILE)
    made.indexes.create("bitmap", ["n"], name="seen")
    return made


@pytest.fixture
def path(once: Callable[..., Table], tmp_path: Path) -> Path:
    return Path(once(_made, tmp_path / "t").path)


def found(path: Path, **arguments: Any) -> set[tuple[str, str]]:
    report = Table.open(path).maintenance.validate(**arguments)
    assert report.ok == (not report.differences)
    return {(item.index, item.kind) for item in report.differences}


def first(path: Path) -> tuple[str, str]:
    partition, _, name = base_files(path)[0].partition("/")
    return partition, name


def put(path: Path, partition: str, key: str, record: Any) -> None:
    """A record of a metadata commit of its own."""
    snapshot = Table.open(path).snapshot()
    clock = InstantClock()
    last = max(snapshot.timeline.last_time, snapshot.metadata.timeline.last_time)
    write_delta_commit(
        snapshot.metadata,
        clock.next(last),
        {partition: [(key, record)]},
        clock.next,
        lambda fn, items: list(map(fn, items)),
    )


def change_stat(path: Path, partition: str, key: str, **fields: Any) -> None:
    record = Table.open(path).snapshot().metadata.get_many(partition, [key])[key]
    record["ColumnStatsMetadata"] |= fields
    put(path, partition, key, record)


def test_a_table_in_order(path: Path) -> None:
    table = Table.open(path)
    table.upsert(rows(("1", "a", 2, 11), ("4", "c", 1, 40)))
    table.insert_overwrite(rows(("5", "b", 1, 50)))
    table.delete(where="id = '3'")
    table.add_columns(pa.schema([("m", pa.int32())]))
    steps: list[tuple[int, int]] = []
    report = Table.open(path).maintenance.validate(progress=lambda done, of: steps.append((done, of)))
    assert report.ok, str(report)
    assert report.indexes == ("files", "column_stats", "bloom_filters", "partition_stats", "seen")
    assert (report.files_total, report.files_compared) == (4, 4)
    assert report.files_listed == len(base_files(path))
    assert steps[:2] == [(4, 4), (4, 4)]
    assert "metadata agrees with the files" in str(report)
    assert report.to_dict()["ok"] is True
    assert report.to_arrow().num_rows == 0
    assert "agrees" in report._repr_html_()
    sample = Table.open(path).maintenance.validate(1)
    assert (sample.ok, sample.files_compared) == (True, 1)
    assert Table.open(path).maintenance.validate(footers=False).files_compared == 0


def test_tables_without_rows_or_partitions(tmp_path: Path) -> None:
    assert make(tmp_path / "e", schema=rows().schema).maintenance.validate().ok
    table = make(tmp_path / "t", rows(("1", "a", 1, 10)))
    assert table.maintenance.validate().ok
    table.delete(where="id = '1'")
    report = table.maintenance.validate()
    assert report.ok, str(report)


def remove(path: Path) -> None:
    (path / base_files(path)[0]).unlink()


def unlist(path: Path) -> None:
    partition, name = first(path)
    put(path, "files", files_key(partition), files_record({}, [name]))


def unlist_partition(path: Path) -> None:
    put(path, "files", "__all_partitions__", files_record({}, ["city=b"]) | {"type": 1})


def list_missing(path: Path) -> None:
    put(path, "files", files_key("city=a"), files_record({"x-0_0-0-0_20200101000000000.parquet": 5}))


def wrong_size(path: Path) -> None:
    partition, name = first(path)
    put(path, "files", files_key(partition), files_record({name: 10**9}))


def stray(path: Path) -> str:
    partition, name = first(path)
    parsed = parse_base_file_name(name)
    assert parsed is not None
    other = f"{parsed.file_id}_7-7-7_29990101000000000.parquet"
    shutil.copy(path / partition / name, path / partition / other)
    return other


def other_attempt(path: Path) -> None:
    partition, name = first(path)
    shutil.copy(path / partition / name, path / partition / name.replace("-0_", "9-0_", 1))


def list_uncommitted(path: Path) -> None:
    put(
        path,
        "files",
        files_key(first(path)[0]),
        files_record({stray(path): (path / base_files(path)[0]).stat().st_size}),
    )


def wrong_filter(path: Path) -> None:
    partition, name = first(path)
    other = next(item for item in base_files(path) if not item.startswith(f"{partition}/"))
    there, _, other = other.partition("/")
    record = Table.open(path).snapshot().metadata.get_many("bloom_filters", [bloom_key(there, other)])
    put(path, "bloom_filters", bloom_key(partition, name), next(iter(record.values())))


def no_filter(path: Path) -> None:
    put(path, "bloom_filters", bloom_key(*first(path)), bloom_record("SIMPLE", "1", b"", deleted=True))


def wrong_bounds(path: Path) -> None:
    change_stat(path, "column_stats", column_stats_key("n", *first(path)), minValue=(INT, {"value": 999}))


def wrong_counts(path: Path) -> None:
    change_stat(path, "column_stats", column_stats_key("n", *first(path)), nullCount=1)


def no_stat(path: Path) -> None:
    change_stat(path, "column_stats", column_stats_key("n", *first(path)), isDeleted=True)


def wrong_partition_bounds(path: Path) -> None:
    change_stat(path, "partition_stats", partition_stats_key("n", "city=b"), maxValue=(INT, {"value": 19}))


def no_partition_stat(path: Path) -> None:
    change_stat(path, "partition_stats", partition_stats_key("n", "city=b"), isDeleted=True)


def no_definition(path: Path) -> None:
    file = path / ".hoodie/.index_defs/index.json"
    document = json.loads(file.read_text())
    del document["indexDefinitions"]["column_stats"]
    file.write_text(json.dumps(document))


def lost_index(path: Path) -> None:
    shutil.rmtree(path / ".hoodie/metadata/bloom_filters")


def unfinished(path: Path) -> None:
    completed = max((path / ".hoodie/metadata/.hoodie/timeline").glob("*_*.deltacommit"))
    completed.unlink()


CASES: dict[str, tuple[Callable[[Path], Any], set[tuple[str, str]]]] = {
    "removed": (remove, {("files", "lost file")}),
    "unlisted": (unlist, {("files", "missing file")}),
    "partition unlisted": (unlist_partition, {("files", "missing partition"), ("files", "missing file")}),
    "listed and missing": (list_missing, {("files", "file gone")}),
    "size": (wrong_size, {("files", "wrong size")}),
    "stray": (stray, {("files", "stray file")}),
    "another attempt": (other_attempt, {("files", "stray file")}),
    "uncommitted": (list_uncommitted, {("files", "uncommitted file")}),
    "filter": (wrong_filter, {("bloom_filters", "missed keys")}),
    "no filter": (no_filter, {("bloom_filters", "missing entry")}),
    "bounds": (wrong_bounds, {("column_stats", "wrong bounds")}),
    "counts": (wrong_counts, {("column_stats", "wrong counts"), ("column_stats", "wrong bounds")}),
    "no stat": (no_stat, {("column_stats", "missing entry")}),
    "partition bounds": (wrong_partition_bounds, {("partition_stats", "wrong bounds")}),
    "no partition stat": (no_partition_stat, {("partition_stats", "missing entry")}),
    "no definition": (no_definition, {("definitions", "missing definition")}),
    "lost index": (lost_index, {("bloom_filters", "damaged index")}),
    "unfinished": (unfinished, {("timeline", "unfinished metadata commit"), ("files", "missing file")}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_found(path: Path, name: str) -> None:
    """The call that the report names puts it right, where the data is still there."""
    damage, wanted = CASES[name]
    damage(path)
    kinds = found(path)
    if name == "listed and missing":
        kinds -= {("bloom_filters", "missing entry")}  # It is the newest of its group.
    assert kinds >= wanted
    assert {kind for kind in kinds if kind[0] != "files"} <= {kind for kind in wanted if kind[0] != "files"} | {
        ("partition_stats", "wrong counts")
    }
    text = str(Table.open(path).maintenance.validate())
    assert "does NOT agree" in text
    assert "rebuilds the metadata:\n    table.maintenance.rebuild_metadata()" in text
    if name not in ("removed", "stray", "another attempt"):
        Table.open(path).maintenance.rebuild_metadata()
        kinds = found(path)
        assert kinds <= {("files", "stray file")}, kinds


def test_each_difference_says_both_sides(path: Path) -> None:
    wrong_bounds(path)
    (item,) = (item for item in Table.open(path).maintenance.validate().differences if item.index == "column_stats")
    assert (item.partition, item.file, item.column) == (*first(path), "n")
    assert item.found.startswith("values from 999")
    assert item.expected in ("values from 10 to 10", "values from 30 to 30")
    assert "found values from 999" in str(item)
    assert Table.open(path).maintenance.validate().to_arrow().column("found").to_pylist()[0] == item.found


def test_bitmaps_are_compared(path: Path) -> None:
    (run,) = (file for file in (path / ".hoodie/metadata/bitmap_index").glob("*.hfile"))
    run.write_bytes(run.read_bytes()[:-30])
    assert ("seen", "damaged bytes") in found(path)


def test_without_metadata_the_files_are_still_compared(path: Path) -> None:
    shutil.rmtree(path / ".hoodie/metadata")
    set_properties(path, {"hoodie.table.metadata.partitions": ""})
    report = Table.open(path).maintenance.validate()
    assert report.ok
    assert any("readers list storage" in note for note in report.notes)
    remove(path)
    assert found(path) == {("files", "lost file")}


def test_a_write_that_is_under_way(path: Path) -> None:
    """Its files are neither missing nor stray."""
    name = stray(path)
    (path / ".hoodie/timeline/29990101000000000.commit.requested").write_bytes(b"")
    report = Table.open(path).maintenance.validate()
    assert report.ok, f"{name}: {report}"
    assert any("29990101000000000 is under way" in note for note in report.notes)


def test_somebody_writes_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakedex.maintenance import validate_table as listing_validation

    listed = listing_validation.list_storage
    times = iter(range(5, 100))

    def meanwhile(handle: Any) -> Any:
        Table.open(path).upsert(rows(("1", "a", next(times), 1)))
        return listed(handle)

    monkeypatch.setattr(listing_validation, "list_storage", meanwhile)
    report = Table.open(path).maintenance.validate(footers=False)
    assert any("somebody wrote all the while" in note for note in report.notes)


def test_partition_bounds_of_binary_that_hudi_merged_are_a_note(tmp_path: Path) -> None:
    """By signed bytes, so that FF comes before 01; ours are compared, and nobody prunes by Hudi's."""
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("raw", pa.binary())])
    table = make(tmp_path, pa.table([["1", "2"], ["a", "a"], [b"\x01", b"\xff"]], schema), partition_by="city")
    key = partition_stats_key("raw", "city=a")
    record = table.snapshot().metadata.get_many("partition_stats", [key])[key]["ColumnStatsMetadata"]
    swapped = {"minValue": record["maxValue"], "maxValue": record["minValue"]}
    change_stat(tmp_path, "partition_stats", key, **swapped)
    assert found(tmp_path) == {("partition_stats", "wrong bounds")}
    change_stat(tmp_path, "partition_stats", key, totalSize=100, totalUncompressedSize=100)
    report = Table.open(tmp_path).maintenance.validate()
    assert report.ok
    assert any(
        "Hudi's own bounds of the binary column 'raw' are wrong in partition 'city=a'" in n for n in report.notes
    )
