"""The metadata table as a keyed store: bootstrap, delta commits, merging, which files count."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakedex import Table
from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.hashing import file_group_index, partition_id
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.log_block import (
    RollbackCommand,
    decode_log_blocks,
    encode_delete_block,
    encode_log_block,
    encode_rollback_block,
)
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.codec.properties import decode_properties
from lakedex.errors import CorruptFileError, IndexingError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import FileInfo, TableFiles
from lakedex.io.task_output import Spilled
from lakedex.metadata.records import (
    ALL_PARTITIONS,
    MERGE_RULES,
    Record,
    all_partitions_record,
    bloom_key,
    bloom_record,
    column_stats_key,
    column_stats_prefix,
    files_key,
    files_record,
    is_deleted,
    live_files,
    partition_stats_key,
    stats_record,
)
from lakedex.metadata.store import MetadataStore
from lakedex.metadata.writer import MAX_BLOCK_BYTES, SpilledBloom, write_delta_commit
from lakedex.snapshot.file_system_view import TableCache
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import Timeline, create_inflight, create_requested, remove_pending
from limits import Limits
from table_kit import ROWS, base_files, make, own, rows

STORE = LocalStorage()


def t(number: int) -> str:
    return f"209901010000{number:02d}000"


def load(path: Path, storage: LocalStorage = STORE) -> MetadataStore:
    return Snapshot.load(TableFiles(storage, str(path))).metadata


def commit(path: Path, instant: str, updates: dict[str, list[tuple[str, Any]]]) -> list[Any]:
    times = iter(f"{instant[:-2]}{n:02d}" for n in range(50, 99))
    _, logs = write_delta_commit(
        load(path), instant, updates, lambda: next(times), lambda fn, items: [fn(item) for item in items]
    )
    return logs


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    make(tmp_path, schema=ROWS, partition_by="city", name="t")
    return tmp_path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    table = make(path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)), partition_by="city", ordering_by="ts")
    table.upsert(rows(("1", "a", 2, 7), ("3", "c", 1, 3)))
    return path


# ------------------------------------------------------------------------------------------------------- bootstrap
def test_a_new_table_has_all_file_groups(empty: Path) -> None:
    root = empty / ".hoodie" / "metadata"
    found = {
        folder.name: sorted(p.name for p in folder.iterdir()) for folder in root.iterdir() if folder.name != ".hoodie"
    }
    meta = ".hoodie_partition_metadata"
    wanted = {
        "files": sorted(
            [".files-0000-0_00000000000000000.log.1_0-0-0", "files-0000-0_0-0-0_00000000000000000.hfile", meta]
        ),
        "column_stats": [*(f".col-stats-{n:04d}-0_00000000000000001.log.1_0-0-0" for n in range(2)), meta],
        "bloom_filters": [*(f".bloom-filters-{n:04d}-0_00000000000000002.log.1_0-0-0" for n in range(4)), meta],
        "partition_stats": [".partition-stats-0000-0_00000000000000003.log.1_0-0-0", meta],
    }
    assert found == {name: sorted(files) for name, files in wanted.items()}
    for log in root.rglob(".*.log.1_0-0-0"):
        content = log.read_bytes()
        assert len(content) == 80  # As Java's: one delete block without keys.
        (block,) = decode_log_blocks(content, log.name)
        assert (block.block_type, bytes(block.content)) == ("DELETE", encode_delete_block([]))
    settings = decode_properties((root / ".hoodie" / "hoodie.properties").read_bytes())
    assert settings["hoodie.table.type"] == "MERGE_ON_READ"
    assert settings["hoodie.table.base.file.format"] == "HFILE"
    timeline = sorted(p.name.split("_")[0] for p in (root / ".hoodie" / "timeline").glob("*_*.deltacommit"))
    assert timeline == [f"{n:017d}" for n in range(4)]


def test_the_first_base_file_says_that_there_is_no_partition(empty: Path) -> None:
    (path,) = (empty / ".hoodie" / "metadata" / "files").glob("*.hfile")
    reader = HFileReader.from_bytes(path.read_bytes(), str(path))
    assert reader.entry_count == 1
    assert reader.info["minRecordKey"] == reader.info["maxRecordKey"] == ALL_PARTITIONS.encode()
    assert reader.meta("bloomFilter") is not None
    store = load(empty)
    assert store.partition_paths() == []
    assert store.file_listing() == {}
    assert [len(store.file_groups(name)) for name in ("files", "column_stats", "bloom_filters", "partition_stats")] == [
        1,
        2,
        4,
        1,
    ]


def test_group_counts_are_options(tmp_path: Path) -> None:
    names = ("column.stats", "bloom.filter", "partition.stats")
    options = {f"hoodie.metadata.index.{name}.file.group.count": "3" for name in names}
    make(tmp_path, rows(("1", "a", 1, 1)), partition_by="city", options=options)
    store = load(tmp_path)
    assert [len(store.file_groups(name)) for name in ("column_stats", "bloom_filters", "partition_stats")] == [3, 3, 3]
    assert len(store.scan("partition_stats")) == 7


@pytest.mark.parametrize(
    "options, partition_by, wanted",
    [
        ({}, (), "bloom_filters,column_stats,files"),
        ({}, "city", "bloom_filters,column_stats,files,partition_stats"),
        ({"hoodie.metadata.index.column.stats.enable": False}, "city", "bloom_filters,files"),
        ({"hoodie.metadata.index.bloom.filter.enable": "false"}, "city", "column_stats,files,partition_stats"),
    ],
)
def test_options_choose_the_partitions(tmp_path: Path, options: dict[str, Any], partition_by: Any, wanted: str) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), partition_by=partition_by, options=options)
    settings = decode_properties((tmp_path / ".hoodie" / "hoodie.properties").read_bytes())
    assert settings["hoodie.table.metadata.partitions"] == wanted
    table.upsert(rows(("1", "a", 2, 2), ("2", "b", 2, 2)))
    table.delete(where="id = '2'")
    assert table.scan().count() == 1
    assert {p.name for p in (tmp_path / ".hoodie" / "metadata").iterdir() if p.name != ".hoodie"} == set(
        wanted.split(",")
    )


# ------------------------------------------------------------------------------------------------------- reading
def test_what_a_write_leaves(written: Path) -> None:
    store = load(written)
    assert store.partition_paths() == ["city=a", "city=b", "city=c"]
    listing = store.file_listing()
    on_disk = {path: (written / path).stat().st_size for path in base_files(written)}
    assert {f"{p}/{name}": size for p, files in listing.items() for name, size in files.items()} == on_disk
    assert store.file_listing(["city=b", "city=nope"]) == {"city=b": listing["city=b"], "city=nope": {}}
    assert len(store.scan("bloom_filters")) == len(on_disk) == 4
    assert len(store.scan("column_stats")) == 4 * 7
    assert len(store.scan("partition_stats")) == 3 * 7


def test_points_and_prefixes_agree(written: Path) -> None:
    store = load(written)
    everything = store.scan("column_stats")
    assert store.get_many("column_stats", list(everything)) == everything
    assert store.get_many("column_stats", ["absent", *list(everything)[:1]]) == dict(list(everything.items())[:1])
    assert store.get_many("column_stats", []) == {}
    assert store.scan("column_stats", ["zzz"]) == {}
    prefix = column_stats_prefix("n", "city=a")
    part = store.scan("column_stats", [prefix, prefix])
    assert part == {key: record for key, record in everything.items() if key.startswith(prefix)}
    assert len(part) == 2
    names = {
        record["ColumnStatsMetadata"]["columnName"]
        for record in store.scan("column_stats", [column_stats_prefix("n")]).values()
    }
    assert names == {"n"}
    blooms = store.scan("bloom_filters", [partition_id("city=a")])
    assert len(blooms) == 2


def test_keys_lie_in_the_group_of_their_hash(written: Path) -> None:
    store = load(written)
    for partition in ("column_stats", "bloom_filters"):
        groups = store.file_groups(partition)
        for number, group in enumerate(groups):
            for path, _ in group.logs:
                for block in decode_log_blocks(Path(path).read_bytes(), path):
                    if block.block_type == "HFILE_DATA":
                        for key, _ in HFileReader.from_bytes(bytes(block.content), path).scan():
                            assert file_group_index(key.decode(), len(groups)) == number


def test_a_commit_is_one_delta_commit(written: Path) -> None:
    timeline = Snapshot.load(TableFiles(STORE, str(written)))
    data = [i.requested for i in timeline.timeline.completed()]
    own = timeline.metadata.timeline.completed()
    assert [i.requested for i in own if i.requested > "2"] == data
    body = timeline.metadata.timeline.commit_metadata(own[-1])
    assert body.operation == "UPSERT_PREPPED"
    assert json.loads(body.schema or "")["name"] == "HoodieMetadataRecord"
    stats = {stat.file_name for stat in body.all_stats()}
    on_disk = {p.name for p in (written / ".hoodie" / "metadata").glob(f"*/.*_{data[-1]}.log.*")}
    assert stats == on_disk
    for stat in body.all_stats():
        assert stat.file_size == (written / ".hoodie" / "metadata" / stat.path).stat().st_size
    # The metadata completes before the data commit does.
    last = timeline.timeline.completed()[-1]
    assert (own[-1].completed or "") < (last.completed or "")


def test_keys() -> None:
    assert files_key("") == "."
    assert files_key("a=1") == "a=1"
    assert column_stats_key("c", "p", "f").startswith(column_stats_prefix("c", "p"))
    assert column_stats_prefix("c", "p") == partition_stats_key("c", "p")
    assert bloom_key("", "f") == bloom_key(".", "f")
    assert column_stats_prefix("c", "p").startswith(column_stats_prefix("c"))


# ------------------------------------------------------------------------------------------------------- merging
def test_records_of_one_key_merge_over_commits(empty: Path) -> None:
    commit(
        empty,
        t(1),
        {"files": [("p", files_record({"f1": 10, "f2": 20})), (ALL_PARTITIONS, all_partitions_record(["p"]))]},
    )
    commit(empty, t(2), {"files": [("p", files_record({"f3": 30, "f1": 5}, ["f2"])), ("q", files_record({"g": 1}))]})
    store = load(empty)
    assert store.file_listing(["p", "q"]) == {"p": {"f1": 10, "f3": 30}, "q": {"g": 1}}
    assert store.partition_paths() == ["p"]
    commit(
        empty, t(3), {"files": [("p", files_record({"f2": 21})), (ALL_PARTITIONS, all_partitions_record(["q"], ["p"]))]}
    )
    store = load(empty)
    assert store.file_listing(["p"]) == {"p": {"f1": 10, "f3": 30, "f2": 21}}
    assert store.partition_paths() == ["q"]


def test_more_than_64_partitions_are_read_in_one_pass(empty: Path) -> None:
    names = [f"p{n:03d}" for n in range(80)]
    updates = [
        *((name, files_record({f"{name}-f": 1})) for name in names),
        (ALL_PARTITIONS, all_partitions_record(names)),
    ]
    commit(empty, t(1), {"files": updates})
    assert load(empty).file_listing() == {name: {f"{name}-f": 1} for name in names}


def stat(low: int | None, high: int | None, *, tight: bool = False, deleted: bool = False, rows: int = 10) -> Record:
    def wrap(value: int | None) -> Any:
        return None if value is None else ("org.apache.hudi.avro.model.IntWrapper", {"value": value})

    record = stats_record(
        "f",
        "c",
        minimum=wrap(low),
        maximum=wrap(high),
        value_count=rows,
        null_count=1,
        total_size=5,
        total_uncompressed_size=6,
    )
    record["ColumnStatsMetadata"]["isTightBound"] = tight
    record["ColumnStatsMetadata"]["isDeleted"] = deleted
    return record


@pytest.mark.parametrize(
    "older, newer, wanted",
    [
        (stat(1, 5), stat(3, 9), (1, 9, 20)),
        (stat(1, 5), stat(3, 9, tight=True), (3, 9, 10)),
        (stat(1, 5, tight=True), stat(3, 9), (1, 9, 20)),
        (stat(1, 5, deleted=True), stat(3, 9), (3, 9, 10)),
        (stat(None, None), stat(3, 9), (3, 9, 20)),
        (stat(3, 9), stat(None, None), (3, 9, 20)),
    ],
)
def test_column_stats_widen_unless_they_are_tight(older: Record, newer: Record, wanted: tuple[int, int, int]) -> None:
    payload = MERGE_RULES["column_stats"](older, newer)["ColumnStatsMetadata"]
    assert (payload["minValue"][1]["value"], payload["maxValue"][1]["value"], payload["valueCount"]) == wanted


def test_a_deleted_record_is_deleted(empty: Path) -> None:
    key = column_stats_key("n", "p", "f")
    commit(
        empty, t(1), {"column_stats": [(key, stat(1, 2))], "bloom_filters": [("b", bloom_record("SIMPLE", t(1), b"x"))]}
    )
    assert not is_deleted(load(empty).get_many("column_stats", [key])[key])
    commit(
        empty,
        t(2),
        {
            "column_stats": [(key, stat(None, None, deleted=True))],
            "bloom_filters": [("b", bloom_record("SIMPLE", t(2), b"", deleted=True))],
        },
    )
    store = load(empty)
    assert is_deleted(store.get_many("column_stats", [key])[key])
    assert is_deleted(store.get_many("bloom_filters", ["b"])["b"])
    commit(empty, t(3), {"column_stats": [(key, stat(4, 5))]})
    found = load(empty).get_many("column_stats", [key])[key]
    assert not is_deleted(found)
    assert found["ColumnStatsMetadata"]["minValue"][1]["value"] == 4


def put_log(path: Path, instant: str, content: bytes, partition: str = "files", version: int = 2) -> Path:
    group = load(path).file_groups(partition)[0]
    file = path / ".hoodie" / "metadata" / partition / f".{group.file_id}_{instant}.log.{version}_9-9-9"
    file.write_bytes(content)
    return file


def data_block(items: list[tuple[str, Record]], instant: str) -> bytes:
    schema = metadata_schema_json()
    content = write_hfile(
        [(key.encode(), encode_metadata_record(record)) for key, record in sorted(items)],
        info={"schema": schema.encode()},
    )
    return encode_log_block("HFILE_DATA", {"INSTANT_TIME": instant, "SCHEMA": schema}, content)


def test_delete_blocks_and_empty_values_take_records_away(empty: Path) -> None:
    commit(empty, t(1), {"files": [("p", files_record({"f": 1})), ("q", files_record({"g": 1}))]})
    deletes = encode_delete_block([{"recordKey": "p", "partitionPath": "", "orderingVal": None}])
    put_log(empty, t(1), encode_log_block("DELETE", {"INSTANT_TIME": t(1)}, deletes))
    assert set(load(empty).get_many("files", ["p", "q"])) == {"q"}
    assert "p" not in load(empty).scan("files")
    commit(empty, t(2), {"files": [("p", files_record({"h": 1}))]})
    assert load(empty).file_listing(["p"]) == {"p": {"h": 1}}  # f does not come back.


def test_rolled_back_blocks_do_not_count(empty: Path) -> None:
    commit(empty, t(1), {"files": [("p", files_record({"f": 1}))]})
    commit(empty, t(2), {"files": [("p", files_record({"g": 1}))]})
    commit(empty, t(3), {"files": [("p", files_record({"h": 1}))]})
    put_log(empty, t(3), encode_rollback_block(RollbackCommand(t(3), t(2))))
    assert load(empty).file_listing(["p"]) == {"p": {"f": 1, "h": 1}}


def test_several_blocks_of_one_file_count_in_order(empty: Path) -> None:
    commit(empty, t(1), {"files": [("p", files_record({"f": 1}))]})
    first = data_block([("p", files_record({"g": 1}, ["f"]))], t(1))
    second = data_block([("p", files_record({"f": 3}))], t(1))
    put_log(empty, t(1), first + second)
    assert load(empty).file_listing(["p"]) == {"p": {"f": 3, "g": 1}}


def test_an_empty_log_is_skipped(empty: Path) -> None:
    commit(empty, t(1), {"files": [("p", files_record({"f": 1}))]})
    put_log(empty, t(1), b"")
    assert load(empty).file_listing(["p"]) == {"p": {"f": 1}}


# ---------------------------------------------------------------------------------------------- which files count
def test_a_metadata_commit_of_a_pending_write_is_not_there(empty: Path) -> None:
    line = Timeline.load(TableFiles(STORE, str(empty)))
    requested = create_requested(line, t(1), "commit")
    inflight = create_inflight(line, requested)
    commit(empty, t(1), {"files": [("p", files_record({"f": 1}))]})
    assert load(empty).file_listing(["p"]) == {"p": {}}
    remove_pending(line, inflight)
    assert load(empty).file_listing(["p"]) == {"p": {"f": 1}}


def test_files_of_no_completed_metadata_instant_are_not_there(empty: Path) -> None:
    commit(empty, t(2), {"files": [("p", files_record({"f": 1}))]})
    put_log(empty, t(3), data_block([("p", files_record({"g": 1}))], t(3)), version=1)
    assert load(empty).file_listing(["p"]) == {"p": {"f": 1}}
    (path,) = (empty / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob(f"{t(2)}_*.deltacommit")
    path.unlink()
    assert load(empty).file_listing(["p"]) == {"p": {}}


def test_a_newer_base_file_ends_the_logs_before_it(empty: Path) -> None:
    commit(empty, t(1), {"files": [("p", files_record({"f": 1}))]})
    commit(empty, t(3), {"files": [("p", files_record({"h": 1}))]})
    content = write_hfile(
        [(b"p", encode_metadata_record(files_record({"f": 1, "g": 1})))],
        info={"schema": metadata_schema_json().encode()},
    )
    folder = empty / ".hoodie" / "metadata"
    (folder / "files" / f"files-0000-0_0-0-0_{t(2)}.hfile").write_bytes(content)
    # Not committed: not there.
    assert load(empty).file_listing(["p"]) == {"p": {"f": 1, "h": 1}}
    (folder / ".hoodie" / "timeline" / f"{t(2)}_{t(2)[:-1]}5.commit").write_bytes(b"")
    assert load(empty).file_listing(["p"]) == {"p": {"f": 1, "g": 1, "h": 1}}


def test_partitions_of_the_metadata_are_those_that_are_complete(written: Path) -> None:
    store = load(written)
    assert store.has("column_stats")
    assert not store.has("record_index")
    without_files = MetadataStore(
        TableFiles(STORE, str(written)), store.data_timeline, store.timeline, frozenset({"column_stats"})
    )
    assert not without_files.has("column_stats")


# ------------------------------------------------------------------------------------------------------- writing
def test_large_updates_are_cut_into_log_versions(empty: Path, limits: Limits) -> None:
    assert MAX_BLOCK_BYTES == 128 * 1024 * 1024
    limits("lakedex.metadata.writer", MAX_BLOCK_BYTES=300)
    names = [f"p{n}" for n in range(20)]
    logs = commit(empty, t(1), {"files": [(name, files_record({f"{name}-file-name": 1})) for name in names]})
    assert [log.version for log in logs] == list(range(1, len(logs) + 1))
    assert len(logs) == 2
    assert sum(log.records for log in logs) == 20
    assert load(empty).file_listing(names) == {name: {f"{name}-file-name": 1} for name in names}


def test_a_spilled_filter_is_read_by_the_task(empty: Path) -> None:
    spill = Spilled.write(LocalStorage(), str(empty / "spill"), b"filter text")
    commit(empty, t(1), {"bloom_filters": [("k", SpilledBloom(spill, "SIMPLE", t(1)))]})
    payload = load(empty).get_many("bloom_filters", ["k"])["k"]["BloomFilterMetadata"]
    assert (payload["type"], bytes(payload["bloomFilter"]), payload["timestamp"]) == ("SIMPLE", b"filter text", t(1))


def test_keys_are_sorted_by_bytes(empty: Path) -> None:
    names = ["k\uff21", "k\U0001f600", "k", "ka"]
    commit(empty, t(1), {"files": [(name, files_record({"f": 1})) for name in names]})
    assert set(load(empty).get_many("files", names)) == set(names)


def test_a_listed_partition_without_file_groups_is_damage(empty: Path) -> None:
    for path in (empty / ".hoodie" / "metadata" / "column_stats").iterdir():
        path.unlink()
    with pytest.raises(IndexingError, match="column_stats has no file group"):
        commit(empty, t(1), {"column_stats": [("k", stat(1, 2))]})


# -------------------------------------------------------------------------------------------------------- damage
def newest_log(path: Path, partition: str) -> Path:
    logs = (p for p in (path / ".hoodie" / "metadata" / partition).glob(".*.log.*") if p.stat().st_size > 80)
    return max(logs, key=lambda p: p.name.split("_")[1])


MENDED_BY_WRITES = {
    ("files", "flipped in the middle"),
    ("files", "flipped near the end"),
    ("bloom_filters", "flipped in the middle"),
}
"""What a write notices before it needs it, or does not need."""


@pytest.mark.parametrize("partition", ["files", "column_stats", "bloom_filters"])
@pytest.mark.parametrize("damage", ["truncated", "flipped in the middle", "flipped near the end"])
def test_a_damaged_log_is_named_and_not_trusted(tmp_path: Path, partition: str, damage: str) -> None:
    table = make(tmp_path, rows(("1", "a", 1, 1)), options={"hoodie.metadata.index.column.stats.file.group.count": "1"})
    path = newest_log(tmp_path, partition)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[:-20]
    else:
        # In the first data block of the HFile, and in what it loads when it is opened.
        at = content.index(b"DATABLK*") + 60 if "middle" in damage else content.rindex(b"TRABLK")
        content[at] ^= 0xFF
    path.write_bytes(content)
    fresh = Table.open(tmp_path)
    for where in (None, "n = 1", "id = '1'"):
        assert own(fresh.scan(where).to_arrow(), "id") == [("1",)]
    plans = [str(fresh.scan(where).explain().to_dict()) for where in ("n = 1", "id = '1'")]
    assert path.name in "".join(plans) or partition == "files"
    report = fresh.maintenance.validate()
    assert path.name in str(report) and not report.ok
    if damage != "truncated" and (partition, damage) not in MENDED_BY_WRITES:
        # Found only when a write reads it: it refuses rather than leave an index as it is.
        with pytest.raises(CorruptFileError, match="rebuild_metadata") as caught:
            table.upsert(rows(("2", "a", 1, 1)))
        assert caught.value.path == str(path)
    if damage != "truncated" and partition != "files":
        table.maintenance.rebuild_metadata()
    table.upsert(rows(("2", "a", 1, 1)))
    assert Table.open(tmp_path).maintenance.validate().ok


def test_a_truncated_base_hfile_is_named_and_not_trusted(empty: Path) -> None:
    (path,) = (empty / ".hoodie" / "metadata" / "files").glob("*.hfile")
    path.write_bytes(path.read_bytes()[:-10])
    table = Table.open(empty)
    assert table.scan().to_arrow().num_rows == 0
    assert path.name in str(table.maintenance.validate())


# --------------------------------------------------------------------------------------------------------- cache
def test_the_cache_opens_a_file_once_and_is_bounded(written: Path) -> None:
    cache = TableCache(limit=3)
    storage = LocalStorage()
    snapshot = Snapshot.load(TableFiles(storage, str(written)), cache)
    snapshot.metadata.file_listing()
    before = storage.counted.requests
    Snapshot.load(TableFiles(storage, str(written)), cache).metadata.scan("partition_stats")
    files = [file for file in (written / ".hoodie/metadata").rglob("*.*") if file.is_file()]
    assert 0 < sum(cache.is_open(str(file), file.stat().st_size) for file in files) <= 3
    wide = TableCache()
    Snapshot.load(TableFiles(storage, str(written)), wide).metadata.scan("column_stats")
    before = storage.counted.bytes_read
    store = Snapshot.load(TableFiles(storage, str(written)), wide).metadata
    opened = storage.counted.bytes_read - before  # Settings only.
    store.scan("column_stats")
    assert storage.counted.bytes_read - before == opened


def test_large_logs_are_read_in_ranges(written: Path, limits: Limits) -> None:
    whole = load(written).scan("column_stats")
    files = load(written).file_listing()
    limits("lakedex.metadata.files", SINGLE_READ_BYTES=10)
    store = load(written)
    assert store.scan("column_stats") == whole
    assert store.file_listing() == files
    key = next(iter(whole))
    assert store.get_many("column_stats", [key]) == {key: whole[key]}


def test_a_store_is_read_by_many_threads(written: Path) -> None:
    store = load(written)
    wanted = store.scan("column_stats")
    fresh, seen = load(written), []

    def read() -> None:
        seen.append(fresh.scan("column_stats") == wanted)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8


def test_live_files_of_nothing() -> None:
    assert live_files(None) == {}
    assert live_files({"type": 2}) == {}


def test_newest_values_are_those_that_a_scan_merges_last(empty: Path) -> None:
    """Also where keys were deleted by a block, by an empty value, and written again."""
    records = {name: bloom_record("SIMPLE", t(1), name.encode()) for name in "abcd"}
    commit(empty, t(1), {"bloom_filters": list(records.items())})
    commit(empty, t(2), {"bloom_filters": [("b", bloom_record("SIMPLE", t(2), b"new"))]})
    for key in "cd":
        deletes = encode_delete_block([{"recordKey": key, "partitionPath": "", "orderingVal": None}])
        group = load(empty).file_groups("bloom_filters")[file_group_index(key, 4)]
        file = empty / ".hoodie" / "metadata" / "bloom_filters" / f".{group.file_id}_{t(2)}.log.9_{ord(key)}-9-9"
        file.write_bytes(encode_log_block("DELETE", {"INSTANT_TIME": t(2)}, deletes))
    commit(empty, t(3), {"bloom_filters": [("d", bloom_record("SIMPLE", t(3), b"again"))]})
    keys = ["absent", "d", "c", "b", "a"]
    assert set(load(empty).get_many("bloom_filters", keys)) == {"a", "b", "d"}
    for store, newest in (
        (load(empty), lambda store: store.newest_of("bloom_filters", keys)),
        (
            load(empty),
            lambda store: store.newest_values(
                "bloom_filters", dict(zip(map(str.encode, keys), range(5), strict=True)), [""]
            ),
        ),
    ):
        found = newest(store)
        texts = {
            keys[row]: decode_metadata_record(value, metadata_schema_json())["BloomFilterMetadata"]["bloomFilter"]
            for _, rows_, values in found.by_layer()
            for row, value in zip(rows_.tolist(), values, strict=True)
        }
        assert texts == {"a": b"a", "b": b"new", "d": b"again"}
        assert sorted(found.again) == [3]


def test_a_log_too_small_for_a_record_is_not_read(empty: Path) -> None:
    """Each file group begins with one; the smallest that deletes a key is read."""
    commit(empty, t(1), {"files": [("p", files_record({"f": 1}))]})
    sizes = sorted(file.stat().st_size for file in (empty / ".hoodie" / "metadata").rglob(".*.log.*") if file.is_file())
    assert sizes[0] <= 80
    deletes = encode_delete_block([{"recordKey": "p", "partitionPath": None, "orderingVal": None}])
    small = encode_log_block("DELETE", {"INSTANT_TIME": t(1)}, deletes)
    assert 80 < len(small) < 90
    store = load(empty)
    before = store.files.storage.counted.copy()
    assert store.file_listing(["p"]) == {"p": {"f": 1}}
    unread = (store.files.storage.counted - before).requests
    put_log(empty, t(1), small)
    store = load(empty)
    before = store.files.storage.counted.copy()
    assert store.file_listing(["p"]) == {"p": {}}
    assert (store.files.storage.counted - before).requests == unread + 1


class Distant(LocalStorage):
    """A store whose listings take as long as those of another machine."""

    def list(self, path: str) -> list[FileInfo]:
        until = time.perf_counter() + 0.005
        found = super().list(path)
        while time.perf_counter() < until:
            pass
        return found


def test_threads_read_what_one_reads(written: Path) -> None:
    everything = {name: load(written).scan(name) for name in ("files", "column_stats", "bloom_filters")}
    store = load(written, Distant())
    store.list_folders(everything)
    assert store.threads > 1
    assert {name: store.scan(name) for name in everything} == everything
    keys = list(everything["bloom_filters"])
    assert sum(source >= 0 for source in store.newest_of("bloom_filters", keys).sources) == len(keys)
    before = store.files.storage.counted.requests
    store.list_folders(everything)
    assert store.files.storage.counted.requests == before
