"""The metadata table of version 6: read as Hudi 0.15 wrote it, and written on."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest

from golden_tables import INDEXED_6, unpack
from lakedex import Table
from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.log_block import RollbackCommand, decode_log_blocks, encode_rollback_block
from lakedex.errors import CommitConflictError, CommitError, OptionError, UnsupportedFeatureError
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.layout.names import parse_log_file_name
from lakedex.metadata import store
from lakedex.metadata.writer import build_instant
from lakedex.timeline.active import Timeline
from table_kit import OWN_FILE, make, own, properties, rows

SIX = {"hoodie.write.table.version": 6}
KEYS = {"k1", "k2", "k3", "k5", "k6", "k7", "k9"}
LAST, COMPACTED = "20261128105821293", "20261128105809911001"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return unpack(INDEXED_6, tmp_path)


def keys(table: Table, where: str | None = None) -> set[str]:
    return set(table.scan(where, ["key"]).to_arrow().column(0).to_pylist())


def logs(path: Path, partition: str = "files") -> dict[str, Path]:
    found = (path / ".hoodie" / "metadata" / partition).glob(".*.log.*")
    return {file.name: file for file in found if not file.name.endswith(".crc")}


def row(key: str, ts: int, value: int, part: str = "a") -> pa.Table:
    columns = {"key": [key], "ts": [ts], "part": [part], "value": pa.array([value], pa.int32())}
    return pa.table({**columns, "d": [float(value)], "name": [f"n{key}"]})


def undo(path: Path, instant: str, action: str = "commit") -> None:
    (path / ".hoodie" / f"{instant}.{action}").unlink()


# ------------------------------------------------------------------------------------------------------- reading
def test_what_java_wrote(path: Path) -> None:
    """R17, R18: files, bounds and filters from the metadata table of Hudi 0.15, past its compactions."""
    table = Table.open(path)
    assert keys(table) == KEYS
    assert table.snapshot().uses_metadata
    assert keys(table, "value = 5") == {"k6", "k7"}
    plan = table.scan("ts = 5").plan()
    assert len(plan.files) < plan.files_total
    # One of the seven files has lost all of its rows, and no bounds with them.
    for name, columns, covered in (("column_stats", 9, 6), ("bloom_filters", 1, 7)):
        assert table.indexes.validate(name).ok
        assert table.indexes.stats(name).files_covered == covered
        (found,) = [index for index in table.indexes.list().to_pylist() if index["name"] == name]
        assert len(found["columns"]) == columns


def test_blocks_of_a_pending_commit_do_not_count(path: Path) -> None:
    """R19: the log file is there, its block does not count before the data commit completes, and then at once."""
    done = (path / ".hoodie" / f"{LAST}.commit").read_bytes()
    undo(path, LAST)
    table = Table.open(path)
    listing = table.snapshot().listing()
    assert not any(LAST in name for files in listing.values() for name in files)
    assert keys(table) == KEYS - {"k7"}
    (path / ".hoodie" / f"{LAST}.commit").write_bytes(done)
    assert keys(table) == KEYS  # by the same object, which takes over what it knows of other partitions


def test_blocks_taken_back(path: Path) -> None:
    newest = max(file for name, file in logs(path).items() if COMPACTED in name)
    assert decode_log_blocks(newest.read_bytes())[0].header["INSTANT_TIME"] == LAST
    command = encode_rollback_block(RollbackCommand(LAST, LAST))
    (newest.parent / newest.name.replace(".log.2_", ".log.3_")).write_bytes(command)
    listing = Table.open(path).snapshot().listing()
    assert not any(LAST in name for files in listing.values() for name in files)


def test_a_log_file_that_was_appended_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java does where the store can: another size, and another block."""
    # The commit of the second file names it still.
    monkeypatch.setattr(store, "missing_file", lambda *_: "")
    first, second = (file for name, file in sorted(logs(path).items()) if COMPACTED in name)
    end = second.read_bytes()
    second.unlink()
    table = Table.open(path)
    assert keys(table) == KEYS - {"k7"}
    first.write_bytes(first.read_bytes() + end)
    # By the same object, which has the file open, but no listing of that moment.
    assert set(table.scan(as_of=LAST).to_arrow().column("key").to_pylist()) == KEYS


@pytest.mark.parametrize("is_seen", [True, False], ids=["gone for a while", "replaced"])
def test_a_log_file_whose_name_came_back(path: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool) -> None:
    """Once a commit is rolled back Java's next one may write a log file of the same name and the same size."""
    done = (path / ".hoodie" / f"{LAST}.commit").read_bytes()
    newest = max(file for name, file in logs(path).items() if COMPACTED in name)
    content, dead = newest.read_bytes(), str(int(LAST) - 1)
    newest.write_bytes(content.replace(LAST.encode(), dead.encode()))
    undo(path, LAST)
    table = Table.open(path)
    assert keys(table) == KEYS - {"k7"}
    if is_seen:
        monkeypatch.setattr(store, "missing_file", lambda *_: "")
        newest.unlink()
        (path / ".hoodie" / f"{LAST}.commit.requested").touch()
        assert keys(table) == KEYS - {"k7"}
    newest.write_bytes(content)
    (path / ".hoodie" / f"{LAST}.commit").write_bytes(done)
    assert keys(table) == KEYS


def test_a_torn_log_file(path: Path) -> None:
    """Of a writer that died, it is left out; of a delta commit that counts, it is damage."""
    newest = max(file for name, file in logs(path).items() if COMPACTED in name)
    stray = newest.with_name(newest.name.replace(".log.2_3-", ".log.3_9-"))
    stray.write_bytes(newest.read_bytes()[:-200])
    assert keys(Table.open(path)) == KEYS
    newest.write_bytes(newest.read_bytes()[:-200])
    damaged = Table.open(path)
    assert keys(damaged) == KEYS  # From a listing of storage.
    assert ".log.2_" in str(damaged.snapshot().lost_metadata)


def test_while_a_compaction_of_java_is_pending(path: Path) -> None:
    """Its slices are read together with those before, and go on under its name, as its plan demands."""
    root = path / ".hoodie" / "metadata"
    undo(root, COMPACTED)
    for base in root.glob(f"*/*_{COMPACTED}.hfile"):
        base.unlink()
    table = Table.open(path, options=OWN_FILE)
    assert keys(table) == KEYS
    table.upsert(row("k8", 9, 9))
    table.upsert(row("k1", 9, 9))
    assert keys(Table.open(path)) == KEYS | {"k8"}
    assert [name for name in sorted(logs(path)) if COMPACTED in name and ".log.4_" in name]
    untouched = {name for name in logs(path, "bloom_filters") if "-0001-0_" in name}
    assert {parse_log_file_name(name).instant for name in untouched} <= {"00000000000000011", COMPACTED}  # type: ignore[union-attr]
    for name in ("column_stats", "bloom_filters"):
        assert Table.open(path).indexes.validate(name).ok


# ------------------------------------------------------------------------------------------------------- writing
def test_writing_on(path: Path) -> None:
    """R23: names go on from Java's slices, records have Java's schema, and the block says whose it is."""
    table = Table.open(path, options=OWN_FILE)
    result = table.upsert(pa.concat_tables([row("k1", 9, 90), row("k8", 9, 91, "b")]))
    assert (result.updated, result.inserted) == (1, 1)
    assert keys(Table.open(path), "value >= 90") == {"k1", "k8"}
    newest = f".files-0000-0_{COMPACTED}.log.3_0-0-{int(str(result.instant)[-9:])}"
    (block,) = decode_log_blocks(logs(path)[newest].read_bytes())
    assert block.header == {"INSTANT_TIME": result.instant, "SCHEMA": metadata_schema_json(6)}
    own_timeline = table.snapshot().metadata.timeline
    (stat,) = own_timeline.commit_metadata(str(result.instant)).write_stats["files"]
    assert (stat.prev_commit, stat.log_version, stat.log_files) == (COMPACTED, 3, (newest,))
    for name in ("column_stats", "bloom_filters"):
        assert table.indexes.validate(name).ok
    assert table.indexes.stats("column_stats").files_covered == 7


def test_a_new_table(tmp_path: Path) -> None:
    arguments = {"ordering_by": "ts", "partition_by": "city", "options": SIX}
    table = make(tmp_path, rows(("a", "x", 1, 1), ("b", "y", 1, 2)), schema=rows().schema, **arguments)
    table.upsert(rows(("a", "x", 2, 3), ("b", "y", 0, 9)))
    assert own(Table.open(tmp_path)) == [("a", "x", 2, 3), ("b", "y", 1, 2)]
    found = properties(tmp_path)
    assert found["hoodie.table.version"] == "6"
    assert found["hoodie.timeline.layout.version"] == "1"
    assert found["hoodie.table.keygenerator.class"] == "org.apache.hudi.keygen.SimpleKeyGenerator"
    assert found["hoodie.table.precombine.field"] == "ts"
    assert not any("merge" in name or name.endswith("keygenerator.type") for name in found)
    assert found["hoodie.table.metadata.partitions"] == "bloom_filters,column_stats,files"
    assert not (tmp_path / ".hoodie" / "timeline").exists()
    assert (tmp_path / ".hoodie" / "archived").is_dir()
    firsts = (tmp_path / ".hoodie" / "metadata" / ".hoodie").glob("00*.deltacommit")
    assert sorted(file.name for file in firsts) == [f"000000000000000{n}.deltacommit" for n in (10, 11, 12)]


def test_keys_of_a_new_table(tmp_path: Path) -> None:
    for name, arguments in {
        "Nonpartitioned": {},
        "Complex": {"record_key": ["id", "n"], "partition_by": "city"},
        "Simple": {"partition_by": "city"},
    }.items():
        table = make(tmp_path / name, rows(("a", "x", 1, 1)), schema=rows().schema, options=SIX, **arguments)
        assert name in properties(tmp_path / name)["hoodie.table.keygenerator.class"]
        assert table.upsert(rows(("a", "x", 2, 1))).updated == 1
        assert table.snapshot().config.merge_mode == "COMMIT_TIME_ORDERING"


def test_options(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'5'"):
        make(tmp_path, options={"hoodie.write.table.version": 5})
    assert not list(tmp_path.iterdir())


def test_index_builds(path: Path) -> None:
    """R27: instants upon the last data instant, which Hudi 0.15 takes for valid; no ``partition_stats``."""
    table = Table.open(path)
    table.indexes.drop("bloom_filters")
    table.indexes.drop("column_stats")
    assert [table.indexes.create(name).instant for name in ("bloom_filters", "column_stats")] == [
        f"{LAST}010",
        f"{LAST}011",
    ]
    for name in ("column_stats", "bloom_filters"):
        assert table.indexes.validate(name).ok
        assert set(logs(path, name))
    with pytest.raises(UnsupportedFeatureError, match="version 6 have no partition_stats"):
        table.indexes.create("partition_stats")
    table.upsert(row("k1", 9, 9))
    assert keys(Table.open(path), "value = 9") == {"k1"}


def test_a_build_upon_nothing_and_upon_too_much(tmp_path: Path) -> None:
    table = make(tmp_path, schema=rows().schema, options=SIX)
    snapshot = table.snapshot()
    assert build_instant(snapshot.timeline, snapshot.metadata.timeline) == "00000000000000013"
    folder = Path(snapshot.metadata.timeline.path)
    for suffix in range(10, 1000):
        (folder / f"00000000000000{suffix:03d}.deltacommit").touch()
    own_timeline = Timeline.load(
        TableFiles(LocalStorage(), str(tmp_path / ".hoodie" / "metadata")), ".hoodie", layout=1
    )
    with pytest.raises(CommitError, match="all instants"):
        build_instant(snapshot.timeline, own_timeline)


def test_nan_has_no_record(tmp_path: Path) -> None:
    """Hudi 0.15 prunes by every record and keeps files without; none of its bounds says NaN."""
    schema = pa.schema([("id", pa.string()), ("d", pa.float64())])
    table = make(tmp_path, schema=schema, options={**SIX, **OWN_FILE})
    table.insert(pa.table({"id": ["a"], "d": [math.nan]}))
    table.insert(pa.table({"id": ["b"], "d": [1.0]}))
    assert len(table.snapshot().metadata.scan("column_stats", [""])) == 2 * 5 - 1
    assert table.indexes.validate("column_stats").ok
    for where, found in (("d = double('NaN')", {"a"}), ("d > 5", {"a"}), ("d = 1", {"b"})):
        assert set(table.scan(where).to_arrow().column("id").to_pylist()) == found


def test_bitmaps_and_schema_changes(path: Path) -> None:
    """The bitmap index and the evolution of a schema go by what lakedex itself keeps: no matter which version."""
    table = Table.open(path, options=OWN_FILE)
    table.indexes.create("bitmap", ["name", "part"], name="by_name")
    table.upsert(row("k8", 9, 9))
    assert keys(Table.open(path), "name = 'nk8' and part = 'a'") == {"k8"}
    assert table.indexes.validate("by_name").ok
    table.add_columns(pa.schema([("extra", pa.int64())]))
    table.rename_column("extra", "more")
    table.upsert(row("k1", 9, 8).append_column("more", pa.array([5])))
    assert keys(Table.open(path), "more = 5") == {"k1"}
    table.drop_columns("more")
    assert "more" not in Table.open(path).schema.names
    assert keys(Table.open(path)) == KEYS | {"k8"}


def test_a_scheduled_clustering(path: Path) -> None:
    """Layout 1 calls it a replace commit; what it read must not change before it is done."""
    planned = Table.open(path).maintenance.cluster(order_by="key", plan_only=True)
    assert (path / ".hoodie" / f"{planned.instant}.replacecommit.requested").exists()
    with pytest.raises(CommitConflictError, match=f"pending clustering {planned.instant}"):
        Table.open(path).upsert(row("k1", 9, 9))
    assert keys(Table.open(path)) == KEYS
    Table.open(path).maintenance.cluster(instant=planned.instant)
    Table.open(path).upsert(row("k1", 9, 9))
    assert keys(Table.open(path)) == KEYS


def test_overwrite_and_time_travel(path: Path) -> None:
    table = Table.open(path)
    before = table.inspect.history().column("commit_time").to_pylist()[0]
    table.insert_overwrite(row("k0", 1, 1))
    assert keys(Table.open(path)) == {"k0", "k9"}
    assert set(table.scan(as_of=before).to_arrow().column("key").to_pylist()) == KEYS
    assert table.delete(where="key = 'k9'").deleted == 1
    assert keys(Table.open(path)) == {"k0"}
