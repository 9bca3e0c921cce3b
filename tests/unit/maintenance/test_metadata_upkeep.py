"""Compaction and cleaning of the metadata table: what a plan takes, what merging keeps, what readers see after."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.bloom import decode_bloom
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.log_block import encode_delete_block, encode_log_block
from lakedex.codec.metadata_record import decode_metadata_record, encode_metadata_record
from lakedex.errors import CorruptFileError, UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.maintenance import metadata_cleaning
from lakedex.maintenance.metadata_compaction import (
    GroupCompaction,
    compact_group,
    compaction_due,
    delta_commits_since,
    plan_compaction,
)
from lakedex.metadata.file_groups import MetadataFileGroup
from lakedex.metadata.records import (
    MERGE_RULES,
    Record,
    bloom_record,
    compact_records,
    files_record,
    is_deleted,
    live_files,
    stats_record,
)
from lakedex.metadata.store import MetadataStore
from lakedex.options import parse_options
from lakedex.snapshot.snapshot import Snapshot
from lakedex.timeline.active import Timeline, create_inflight, create_requested
from lakedex.timeline.commit_metadata import decode_body
from lakedex.timeline.service_metadata import decode_compaction_plan, encode_compaction_plan
from limits import Limits
from table_kit import make, own, rows

STORE = LocalStorage()
LAZY = {"hoodie.metadata.compact.max.delta.commits": "99"}
SCHEMA = metadata_schema_json()
INSTANT = "20260101000000000"


def state(path: Path | str) -> Snapshot:
    return Snapshot.load(TableFiles(STORE, str(path)))


def some(number: int) -> Any:
    return rows((f"k{number % 5}", "ab"[number % 2], number, number))


def filled(path: Path, commits: int, options: dict[str, str] | None = None, **arguments: Any) -> Table:
    table = make(path, partition_by=["city"], ordering_by="ts", options=options or LAZY, **arguments)
    for number in range(commits):
        table.upsert(some(number))
    return table


def everything(path: Path) -> dict[str, dict[str, Any]]:
    """All records of all partitions, deletions left out."""
    store = state(path).metadata
    return {
        name: {key: live_files(record) if name == "files" else record for key, record in store.scan(name).items()
               if name == "files" or not is_deleted(record)}
        for name in store.folders()
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------ the table


def test_a_compaction_changes_no_record(tmp_path: Path) -> None:
    table = filled(tmp_path, 7)
    table.delete(rows(("k0", "a", 9, 9)))
    before, content = everything(tmp_path), own(table)
    result = table.maintenance.compact_metadata()
    assert result.file_groups == 1 + 2 + 4 + 1
    assert result.log_files > 8
    assert "log files of the metadata table merged" in str(result)
    after = everything(tmp_path)
    for name, records in before.items():
        for key, record in records.items():
            plain = {k: v for k, v in record.items() if k != "_hoodie_file_name"}
            assert {k: v for k, v in after[name][key].items() if k != "_hoodie_file_name"} == plain, (name, key)
        assert after[name].keys() == records.keys()
    store = state(tmp_path).metadata
    assert all(not group.logs and group.base for name in store.folders() for group in store.file_groups(name))
    assert own(table) == own(Table.open(tmp_path)) == content
    assert not table.maintenance.compact_metadata().instants
    assert "nothing to merge" in str(table.maintenance.compact_metadata())


def test_it_runs_after_so_many_delta_commits(tmp_path: Path) -> None:
    table = filled(tmp_path, 9, {"hoodie.metadata.compact.max.delta.commits": "4"})
    own_timeline = state(tmp_path).metadata.timeline
    # Four delta commits made the table, so the first write was the fifth.
    assert len(own_timeline.completed({"commit"})) == 3
    assert len(delta_commits_since(own_timeline)) < 4
    assert own(table) == own(Table.open(tmp_path))


def test_the_plan_is_hudis(tmp_path: Path) -> None:
    filled(tmp_path, 2).maintenance.compact_metadata()
    timeline = state(tmp_path).metadata.timeline
    (done,) = timeline.completed({"commit"})
    operations = decode_compaction_plan(timeline.read(f"{done.requested}.compaction.requested"))
    assert {o.partition for o in operations} == {"files", "column_stats", "partition_stats", "bloom_filters"}
    files = next(o for o in operations if o.partition == "files")
    assert files.base is not None
    assert files.base_instant == "00000000000000000"
    assert files.metrics["TOTAL_LOG_FILES"] == len(files.logs)
    assert decode_compaction_plan(encode_compaction_plan(operations)) == operations
    commit = timeline.commit_metadata(done)
    assert (commit.operation, commit.compacted) == ("COMPACT", True)
    assert {stat.path.split("/")[0] for stat in commit.all_stats()} == {o.partition for o in operations}
    assert all(
        (tmp_path / ".hoodie/metadata" / stat.path).stat().st_size == stat.file_size for stat in commit.all_stats()
    )


def test_no_uncommitted_instant_is_compacted(tmp_path: Path) -> None:
    """A data commit that died after its metadata was complete is in no plan, and can be rolled back."""
    table = filled(tmp_path, 3)
    snapshot = state(tmp_path)
    last = snapshot.timeline.last_completed
    assert last is not None
    (tmp_path / ".hoodie/timeline" / last.file_name).unlink()  # as if it had died before it completed
    found = own(Table.open(tmp_path))
    result = table.maintenance.compact_metadata()
    (instant,) = result.instants
    assert instant < last.requested
    timeline = state(tmp_path).metadata.timeline
    operations = decode_compaction_plan(timeline.read(f"{instant}.compaction.requested"))
    assert not [name for o in operations for name in o.logs if last.requested in name]
    assert own(Table.open(tmp_path)) == found
    store = state(tmp_path).metadata
    assert not [log for group in store.file_groups("files") for log, _ in group.logs], "its log file does not count"
    table.upsert(some(8))
    assert own(Table.open(tmp_path, options=LAZY)) == own(table)


@pytest.mark.parametrize("damage", ["empty plan", "a file is gone"])
def test_a_plan_that_cannot_be_carried_out_is_made_anew(tmp_path: Path, damage: str) -> None:
    table = filled(tmp_path, 3)
    snapshot = state(tmp_path)
    timeline = snapshot.metadata.timeline
    requested = str(int(timeline.last_time) + 1)
    operations = plan_compaction(snapshot, requested)
    body = encode_compaction_plan(operations)
    if damage == "a file is gone":
        (first, *others) = operations
        body = encode_compaction_plan((type(first)(**{**_fields(first), "logs": (".gone_1.log.1_0-0-0",)}), *others))
    create_inflight(
        timeline, create_requested(timeline, requested, "compaction", b"" if damage == "empty plan" else body)
    )
    stray = tmp_path / f".hoodie/metadata/files/files-0000-0_0-0-0_{requested}.hfile"
    stray.write_bytes(b"half a file")
    assert own(Table.open(tmp_path)) == own(table)
    result = table.maintenance.compact_metadata()
    assert len(result.instants) == 1
    assert requested not in result.instants
    assert not stray.exists()
    assert not state(tmp_path).metadata.timeline.pending()


def _fields(operation: Any) -> dict[str, Any]:
    return {
        name: getattr(operation, name) for name in ("partition", "file_id", "base_instant", "base", "logs", "metrics")
    }


def test_a_pending_log_compaction_is_left_to_hudi(tmp_path: Path) -> None:
    table = filled(tmp_path, 1)
    timeline = state(tmp_path).metadata.timeline
    create_requested(timeline, str(int(timeline.last_time) + 1), "logcompaction", b"")
    with pytest.raises(UnsupportedFeatureError, match="log compaction"):
        table.maintenance.compact_metadata()


def test_a_failure_is_a_note_of_the_write(tmp_path: Path) -> None:
    """A damaged source stops the compaction, not the write."""
    table = filled(tmp_path, 2)
    store = state(tmp_path).metadata
    victim = Path(store.file_groups("partition_stats")[0].logs[-1][0])
    victim.write_bytes(victim.read_bytes()[:-10])
    with pytest.raises(CorruptFileError, match=victim.name):
        table.maintenance.compact_metadata()
    assert state(tmp_path).metadata.timeline.pending({"compaction"})


def test_readers_that_look_on_recompute(tmp_path: Path) -> None:
    """Views, bounds and filters that a process holds survive a compaction by another one."""
    table = filled(tmp_path, 4)
    assert table.scan("ts > 1").count() == 2
    writer = Table.open(tmp_path, options=LAZY)
    writer.upsert(some(4))
    writer.maintenance.compact_metadata()
    for number in (5, 6):
        assert table.scan("ts > 1").count() == Table.open(tmp_path).scan("ts > 1", use_indexes=False).count()
        assert own(table) == own(writer)
        writer.upsert(some(number))
    report = table.upsert(some(7)).tagging
    assert report.source == "metadata"
    assert table.scan("ts = 7").count() == 1
    assert table.indexes.validate("column_stats").ok
    assert table.indexes.validate("bloom_filters").ok


def test_what_a_compaction_holds_is_not_pending_to_anybody(tmp_path: Path) -> None:
    """A commit was pending when the data timeline was listed, and compacted when the metadata timeline was."""
    table = filled(tmp_path, 2)
    reader = Table.open(tmp_path)
    wanted = own(table)
    stale = Timeline.load(TableFiles(STORE, str(tmp_path)))
    name = stale.instants[-1].file_name

    class Late(LocalStorage):
        """Shows the last commit as pending once: it completed right after the first listing."""

        def list(self, path: str) -> Any:
            found = super().list(path)
            if path.endswith(f"{tmp_path.name}/.hoodie/timeline") and not seen:
                seen.append(path)
                return [entry for entry in found if entry.name != name]
            return found

    seen: list[str] = []
    table.maintenance.compact_metadata()
    snapshot = Snapshot.load(TableFiles(Late(), str(tmp_path)))
    assert seen
    assert snapshot.timeline.is_completed(stale.instants[-1].requested)
    assert own(reader) == wanted


# ------------------------------------------------------------------------------------------------------ cleaning


def test_old_slices_go_and_the_rest_stays(tmp_path: Path, limits: Limits) -> None:
    limits(metadata_cleaning, LEAST_COMMITS=4)
    table = filled(
        tmp_path, 16, {"hoodie.metadata.compact.max.delta.commits": "4", "hoodie.clean.commits.retained": "1"}
    )
    timeline = state(tmp_path).metadata.timeline
    cleans = timeline.completed({"clean"})
    assert cleans
    plan = decode_body(timeline.read(f"{cleans[-1].requested}.clean.requested"))
    done = decode_body(timeline.read(cleans[-1].file_name))
    assert done["earliestCommitToRetain"] == plan["earliestInstantToRetain"]["timestamp"]
    assert done["totalFilesDeleted"] == sum(map(len, plan["filePathsToBeDeletedPerPartition"].values()))
    assert all(
        not Path(f["filePath"]).exists() for files in plan["filePathsToBeDeletedPerPartition"].values() for f in files
    )
    folder = tmp_path / ".hoodie/metadata/files"
    compactions = [i.requested for i in timeline.completed({"commit"})]
    bases = sorted(entry.name.split("_")[-1].removesuffix(".hfile") for entry in folder.glob("*.hfile"))
    assert bases[-1] == compactions[-1]
    assert len(bases) <= 4
    assert own(table) == own(Table.open(tmp_path))
    assert table.indexes.validate("column_stats").ok


def test_nothing_goes_right_after_a_compaction(tmp_path: Path, limits: Limits) -> None:
    limits(metadata_cleaning, LEAST_COMMITS=2)
    filled(tmp_path, 12).maintenance.compact_metadata()
    options = parse_options({"hoodie.clean.commits.retained": "1"})
    assert not metadata_cleaning.cleaning_due(state(tmp_path), options)


def test_what_a_pending_compaction_reads_stays(tmp_path: Path, limits: Limits) -> None:
    limits(metadata_cleaning, LEAST_COMMITS=2)
    table = filled(tmp_path, 3)
    table.maintenance.compact_metadata()
    table.upsert(some(3))
    snapshot = state(tmp_path)
    timeline = snapshot.metadata.timeline
    requested = str(int(timeline.last_time) + 1)
    operations = plan_compaction(snapshot, requested)
    create_requested(timeline, requested, "compaction", encode_compaction_plan(operations))
    assert compaction_due(state(tmp_path), parse_options(None).metadata)
    doomed = metadata_cleaning.expired_files(state(tmp_path), "29990101000000000")
    needed = {name for o in operations for name in (*o.logs, o.base)}
    assert not needed & {name for names in doomed.values() for name in names}


# ------------------------------------------------------------------------------------------------------- merging


def group(path: Path, layers: list[dict[str, Record | None] | set[str]], base: bool) -> MetadataFileGroup:
    """A slice whose sources hold these records; a set deletes keys."""
    path.mkdir(exist_ok=True)
    logs: list[tuple[str, int]] = []
    first: tuple[str, int] | None = None
    for number, layer in enumerate(layers):
        instant = str(int(INSTANT) + number)
        if isinstance(layer, set):
            deleted = [{"recordKey": k, "partitionPath": "x", "orderingVal": None} for k in sorted(layer)]
            content = encode_log_block(
                "DELETE", {"INSTANT_TIME": instant, "SCHEMA": SCHEMA}, encode_delete_block(deleted)
            )
        else:
            items = [(k.encode(), b"" if r is None else encode_metadata_record(r)) for k, r in layer.items()]
            content = write_hfile(sorted(items), compression="gz", info={"schema": SCHEMA.encode()})
            if base and not number:
                file = path / f"g-0000-0_0-0-0_{instant}.hfile"
                file.write_bytes(content)
                first = (str(file), len(content))
                continue
            content = encode_log_block("HFILE_DATA", {"INSTANT_TIME": instant, "SCHEMA": SCHEMA}, content)
        file = path / f".g-0000-0_{instant}.log.1_0-0-0"
        file.write_bytes(content)
        logs.append((str(file), len(content)))
    return MetadataFileGroup("g-0000-0", first, tuple(logs))


class _Store(MetadataStore):
    """A metadata table whose sources are given."""

    given: Sequence[Any]

    def layers(self, group: MetadataFileGroup) -> Any:
        return self.given


def compacted(
    path: Path, slices: MetadataFileGroup, sources: Sequence[Any] | None = None
) -> tuple[HFileReader, dict[str, Record]]:
    (path / ".hoodie/timeline").mkdir(parents=True)
    timeline = Timeline.load(TableFiles(STORE, str(path)))
    kind = MetadataStore if sources is None else _Store
    store = kind(TableFiles(STORE, str(path)), timeline, timeline, frozenset())
    if isinstance(store, _Store):
        store.given = sources or ()
    result = compact_group(GroupCompaction(store, str(path), slices, "20270101000000000"))
    reader = HFileReader.from_bytes((path / result.name).read_bytes())
    found = {key.decode(): decode_metadata_record(value, SCHEMA) for key, value in reader.scan()}
    assert len(found) == result.records == reader.entry_count
    assert all(record["_hoodie_file_name"] == result.name for record in found.values())
    assert all(record["_hoodie_record_key"] is None for record in found.values())
    return reader, found


def stats(low: int, *, tight: bool = False, deleted: bool = False) -> Record:
    wrapper = ("org.apache.hudi.avro.model.IntWrapper", {"value": low})
    record = stats_record("f", "c", minimum=wrapper, maximum=wrapper, value_count=1, null_count=0, total_size=1,
                          total_uncompressed_size=1, over_partition=tight)  # fmt: skip
    record["ColumnStatsMetadata"]["isDeleted"] = deleted
    return record


def test_files_are_merged_as_in_hudi(tmp_path: Path) -> None:
    """A deletion takes the name out, and one of a name that was never there stays (combineFileSystemMetadata)."""
    layers = [
        {"a": files_record({"1": 10, "2": 20}), "b": files_record({"9": 1})},
        {"a": files_record({"3": 30, "2": 5}, ["1"])},
        {"a": files_record({}, ["7"]), "c": files_record({"5": 5})},
    ]
    _, found = compacted(tmp_path, group(tmp_path, layers, base=True))
    assert found["a"]["filesystemMetadata"] == {
        "2": {"size": 20, "isDeleted": False}, "3": {"size": 30, "isDeleted": False}, "7": {"size": 0, "isDeleted": True}
    }  # fmt: skip
    assert found["b"]["filesystemMetadata"] == {"9": {"size": 1, "isDeleted": False}}
    assert list(found) == ["a", "b", "c"]


def test_deleted_records_go_when_they_meet_what_they_delete(tmp_path: Path) -> None:
    gone = bloom_record("DYNAMIC_V0", INSTANT, b"", deleted=True)
    layers: list[dict[str, Record | None] | set[str]] = [
        {
            "b1": bloom_record("DYNAMIC_V0", INSTANT, b"text"),
            "s1": stats(1),
            "s2": stats(1),
            "d1": stats(4),
            "d2": stats(4),
        },
        {"b1": gone, "b2": gone, "s1": stats(0, deleted=True), "s2": stats(3), "d1": None},
        {"d2", "s9"},
        {"d2": stats(8), "s3": stats(5, tight=True)},
    ]
    _, found = compacted(tmp_path, group(tmp_path, layers, base=True))
    assert list(found) == ["b2", "d2", "s2", "s3"]
    assert is_deleted(found["b2"]), "as in Hudi: it met nothing to delete"
    assert found["s2"]["ColumnStatsMetadata"]["minValue"][1] == {"value": 1}
    assert found["s2"]["ColumnStatsMetadata"]["maxValue"][1] == {"value": 3}
    assert found["d2"]["ColumnStatsMetadata"]["minValue"][1] == {"value": 8}


def test_the_base_file_has_what_readers_want(tmp_path: Path) -> None:
    keys = [f"k{number:05}" for number in range(8_000)]
    layers: list[Any] = [{key: stats(1) for key in keys[::2]}, {key: stats(2) for key in keys[1::2]}]
    reader, found = compacted(tmp_path, group(tmp_path, layers, base=False))
    assert list(found) == keys
    assert reader.info["minRecordKey"] == b"k00000"
    assert reader.info["maxRecordKey"] == b"k07999"
    bloom = decode_bloom(reader.meta("bloomFilter") or b"", reader.info["bloomFilterTypeCode"].decode())
    assert bloom.probe(pa.array(keys)).all()
    assert len(reader.first_keys) > 10


def test_a_group_without_records_becomes_an_empty_base_file(tmp_path: Path) -> None:
    reader, found = compacted(tmp_path, group(tmp_path, [set()], base=False))
    assert found == {}
    assert list(reader.scan()) == []


def test_keys_that_java_sorts_otherwise(tmp_path: Path) -> None:
    """Java sorts by UTF-16 units: an emoji comes before U+FF21, whose bytes are smaller."""
    items = [(key.encode(), encode_metadata_record(stats(1))) for key in ("😀", "Ａ")]
    _, found = compacted(tmp_path, MetadataFileGroup("g-0000-0", None, ()), [_Unsorted(items)])
    assert list(found) == ["Ａ", "😀"]
    assert len(list(tmp_path.glob("*.hfile"))) == 1


class _Unsorted(HFileReader):
    """An HFile in an order that is not that of its bytes."""

    __slots__ = ("_items",)

    def __init__(self, items: list[tuple[bytes, bytes]]) -> None:
        self._items = items

    @property
    def info(self) -> dict[str, bytes]:
        return {"schema": SCHEMA.encode()}

    def scan(self, prefix: bytes = b"") -> Any:
        return iter(self._items)


def test_random_histories_merge_like_readers(tmp_path: Path) -> None:
    """The compacted file says of every key what a reader of the sources finds (property, fixed seeds)."""
    rng = random.Random(5)
    for number in range(40):
        folder = tmp_path / str(number)
        keys = [f"k{n}" for n in range(6)]
        layers: list[Any] = []
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.2:
                layers.append(set(rng.sample(keys, 2)))
            else:
                layers.append({k: _random_record(rng) for k in rng.sample(keys, rng.randint(1, 6))})
        _, found = compacted(folder, group(folder, layers, base=isinstance(layers[0], dict)))
        wanted: dict[str, dict[str, int]] = {}
        records: dict[str, Record] = {}
        for layer in layers:
            for key in keys:
                if isinstance(layer, set):
                    if key in layer:
                        records.pop(key, None)
                elif key in layer:
                    older = records.get(key)
                    records[key] = layer[key] if older is None else MERGE_RULES["files"](older, layer[key])
        wanted = {key: live_files(record) for key, record in records.items()}
        assert {key: live_files(record) for key, record in found.items()} == wanted


def _random_record(rng: random.Random) -> Record:
    names = [str(n) for n in range(4)]
    added = {name: rng.randint(1, 9) for name in rng.sample(names, rng.randint(0, 3))}
    return files_record(added, [name for name in names if name not in added and rng.random() < 0.3])


def test_records_of_indexes_that_lakedex_does_not_keep() -> None:
    """Java compacts all partitions together, so its pending plan may name a record index: the newest counts."""
    older, newer = ({"type": 5, "recordIndexMetadata": {"instantTime": n}} for n in (1, 2))
    assert compact_records([older, newer]) == newer
    tombstone = {"type": 7, "SecondaryIndexMetadata": {"isDeleted": True}}
    assert compact_records([{"type": 7, "SecondaryIndexMetadata": {"isDeleted": False}}, tombstone]) == tombstone
    assert compact_records([]) is None
