"""RFC-37 by its lines: storage, records, keys and the three levels of tagging, on one small table.

``docs/proposals.md`` has the text of each numbered line, and says which other tests hold it.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from lakedex import Table
from lakedex.codec.bloom import decode_bloom, hash_keys
from lakedex.codec.hfile.reader import HFileReader
from lakedex.metadata.records import bloom_key, column_stats_key, column_stats_prefix, partition_stats_key
from lakedex.snapshot.snapshot import Snapshot
from lakedex.testing import CountingStorage, open_table
from lakedex.types import RECORD_KEY
from table_kit import OWN_FILE, make, rows

FILES_PER_PARTITION = 6
KEY_RANGES = {"a": range(60), "b": range(100, 160)}


def data_files(storage: CountingStorage) -> set[str]:
    """Names of base files that were touched."""
    touched = storage.paths("read", "read_ranges", "open_input")
    return {path.rsplit("/", 1)[1] for path in touched if path.endswith(".parquet")}


def key(number: int) -> str:
    return f"k{number:04d}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of six files each; a file holds ten keys next to each other."""
    folder = tmp_path_factory.mktemp("rfc37") / "t"
    # The records as commits write them: a compaction would say the name of its own file in each.
    lasting = {**OWN_FILE, "hoodie.metadata.compact.max.delta.commits": "99"}
    table = make(folder, partition_by="city", options=lasting)
    for start in range(0, 60, 10):
        batch = [(key(n + base), city, 1, n) for city, base in (("a", 0), ("b", 100)) for n in range(start, start + 10)]
        table.insert(rows(*batch))
    return folder


@pytest.fixture
def snapshot(path: Path) -> Snapshot:
    return Table.open(path).snapshot()


def records(snapshot: Snapshot, partition: str) -> dict[str, Any]:
    return snapshot.metadata.scan(partition)


def probe(path: Path, copy: Path, *keys: str, options: dict[str, str] | None = None) -> tuple[Any, set[str]]:
    """Insert keys of partition a that are not known yet; what was found, and which base files were touched for it."""
    shutil.copytree(path, copy)
    storage = CountingStorage()
    table = open_table(copy, storage, options={**OWN_FILE, **(options or {})})
    policy = {"hoodie.datasource.insert.dup.policy": "drop"}
    result = table.insert(rows(*((name, "a", 1, 0) for name in keys)), options=policy)
    return result, {name for name in data_files(storage) if str(result.instant) not in name}


# --------------------------------------------------------------------------------------------- what it is stored in
def test_partitions_of_the_metadata_table(path: Path, snapshot: Snapshot) -> None:
    """R1, R16-R20, R24: blooms and stats lie beside the listing, in HFiles, under one schema of records."""
    root = path / ".hoodie/metadata"
    assert {"files", "column_stats", "bloom_filters"} <= {p.name for p in root.iterdir()}
    for name in ("column_stats", "bloom_filters"):
        found = 0
        for group in snapshot.metadata.file_groups(name):
            for file, size in group.logs:
                blocks = snapshot.metadata.cache.log(snapshot.files.storage, file, size).blocks
                readers = [block.layer for block in blocks if isinstance(block.layer, HFileReader)]
                found += len(readers)
                assert all(b"HoodieMetadataRecord" in reader.info["schema"] for reader in readers)
        assert found
    (group, *_) = (g for g in snapshot.metadata.file_groups("bloom_filters") if len(g.logs) > 1)
    before = snapshot.files.storage.counted.copy()
    some = next(iter(records(snapshot, "bloom_filters")))
    assert snapshot.metadata.get_many("bloom_filters", [some])
    assert (snapshot.files.storage.counted - before).bytes_read < sum(size for _, size in group.logs) * 64


def test_every_base_file_has_its_filter(snapshot: Snapshot) -> None:
    """R23, R25-R30, R33, R37.h, R37.j: type, instant, bytes and isDeleted; nothing else in the record is set."""
    found = records(snapshot, "bloom_filters")
    bases = snapshot.base_files()
    assert found.keys() == {bloom_key(base.partition, base.name) for base in bases}
    for base in bases:
        record = found[bloom_key(base.partition, base.name)]
        payload = record["BloomFilterMetadata"]
        assert record["type"] == 4
        assert (payload["type"], payload["timestamp"], payload["isDeleted"]) == ("DYNAMIC_V0", base.instant, False)
        others = {k: v for k, v in record.items() if k not in ("key", "type", "BloomFilterMetadata")}
        assert not any(others.values())
        bloom = decode_bloom(payload["bloomFilter"], payload["type"], base.name)
        keys = pa.array([key(n) for n in KEY_RANGES[base.partition.removeprefix("city=")]])
        assert 10 <= bloom.probe(hash_keys(keys, bloom.num_hashes)).sum() <= 12


def test_every_column_of_a_file_has_its_range(snapshot: Snapshot) -> None:
    """R41-R47, R49-R51: a record a column and file, with bounds, counts, sizes and isDeleted, known by its type."""
    found = records(snapshot, "column_stats")
    for base in snapshot.base_files():
        for column in (RECORD_KEY, "id", "city", "ts", "n"):
            record = found[column_stats_key(column, base.partition, base.name)]
            payload = record["ColumnStatsMetadata"]
            assert record["type"] == 3
            assert (payload["fileName"], payload["columnName"]) == (base.name, column)
            assert (payload["valueCount"], payload["nullCount"], payload["isDeleted"]) == (10, 0, False)
            assert payload["totalSize"] > 0 and payload["totalUncompressedSize"] > 0
    low, high = (
        found[column_stats_key(RECORD_KEY, "city=a", base.name)]["ColumnStatsMetadata"] for base in _ends(snapshot)
    )
    assert (low["minValue"][1]["value"], high["maxValue"][1]["value"]) == (key(0), key(59))


def _ends(snapshot: Snapshot) -> Iterator[Any]:
    bases = sorted(snapshot.base_files(["city=a"]), key=lambda base: base.instant)
    return iter((bases[0], bases[-1]))


def test_ranges_are_in_the_type_of_the_column(snapshot: Snapshot) -> None:
    """R48: a reader gets a value of the column's own type, whatever text or wrapper is stored."""
    stats = Table.open(snapshot.files.base_path).inspect.column_stats().to_pylist()
    texts = {(row["column_name"], row["min_value"], row["max_value"]) for row in stats if row["column_name"] == "n"}
    assert ("n", "0", "9") in texts and len(texts) == FILES_PER_PARTITION
    kept = Table.open(snapshot.files.base_path).scan("n >= 9 and n < 10").plan().files_kept
    assert len(kept) == 2  # as numbers: as text, 9 would be above 10 … 59 too


# ------------------------------------------------------------------------------------------------------------- keys
def test_keys_are_hashes_of_names_alone() -> None:
    """R34-R40, R52-R54, R67, R37.d, R37.i: fixed widths, joined text by text, a function of nothing but the names."""
    seed = 0xFFFFFFFF_DABADABA  # Java widens 0xdabadaba to a long, sign and all
    part = base64.b64encode(xxhash.xxh64(b"city=a", seed=seed).intdigest().to_bytes(8, "big")).decode()
    column = base64.b64encode(xxhash.xxh64(b"n", seed=seed).intdigest().to_bytes(8, "big")).decode()
    bloom, stats = bloom_key("city=a", "f.parquet"), column_stats_key("n", "city=a", "f.parquet")
    assert len(bloom) == 12 + 24 and len(stats) == 12 + 12 + 24
    assert bloom.startswith(part) and stats == column + bloom
    assert len(base64.b64decode(bloom[12:])) == 16
    assert (bloom, stats) == (bloom_key("city=a", "f.parquet"), column_stats_key("n", "city=a", "f.parquet"))
    assert column_stats_prefix("n", "city=a") == partition_stats_key("n", "city=a") == column + part


def test_a_table_without_partitions_has_an_identifier() -> None:
    """R37.k: a dot stands for its path; a filter under another key, as old releases wrote it, is one that is absent."""
    assert bloom_key("", "f.parquet") == bloom_key(".", "f.parquet") != bloom_key("", ".parquet")


def test_parts_do_not_commute() -> None:
    """R37.d, R37.f: swapped names give other keys; equal hashes of two columns are unlikely, and would only widen."""
    assert column_stats_key("a", "b", "f") != column_stats_key("b", "a", "f")
    names = [f"column_{n}" for n in range(20_000)]
    assert len({column_stats_prefix(name) for name in names}) == len(names)


# ----------------------------------------------------------------------------------------------------------- lookup
def test_three_levels(path: Path, tmp_path: Path) -> None:
    """R2, R7-R16, R55-R66: ranges leave one file, its filter leaves its keys, and only that file is opened."""
    result, touched = probe(path, tmp_path / "t", key(7), "k0007x")
    report = result.tagging
    assert (report.files_listed, report.files_after_ranges, report.files_opened) == (FILES_PER_PARTITION, 1, 1)
    assert (report.keys_probed, report.matches) == (2, 1)
    assert result.inserted == 1  # k0007x is new, and was told from an update
    assert len(touched) == 1


def test_new_keys_open_no_file(path: Path, tmp_path: Path) -> None:
    """R3, R5, R42, R62-R64: filters say that keys inside of all ranges are in no file; none is opened."""
    result, touched = probe(path, tmp_path / "t", *(f"{key(n)}-new" for n in range(5, 55, 10)))
    report = result.tagging
    assert (report.files_after_ranges, report.files_after_blooms, report.files_opened) == (5, 0, 0)
    assert (report.source, touched) == ("metadata", set())


def test_footers_do_the_same_work(path: Path, tmp_path: Path) -> None:
    """R9, R10, R37.a: with the option off ranges and filters come from every footer, and the answer is the same."""
    keys = key(7), key(23), "none"
    ours, touched = probe(path, tmp_path / "m", *keys)
    theirs, all_touched = probe(path, tmp_path / "f", *keys, options={"hoodie.bloom.index.use.metadata": "false"})
    assert theirs.tagging.source == "footers"
    assert (theirs.inserted, theirs.tagging.matches) == (ours.inserted, ours.tagging.matches) == (1, 2)
    assert (len(touched), len(all_touched)) == (2, FILES_PER_PARTITION)


def test_levels_can_be_switched(path: Path, tmp_path: Path) -> None:
    """R60, R61: without ranges all filters are asked; the answer stays."""
    result, _ = probe(path, tmp_path / "t", key(7), options={"hoodie.bloom.index.prune.by.ranges": "false"})
    assert result.tagging.files_after_ranges == FILES_PER_PARTITION
    assert (result.tagging.matches, result.tagging.files_opened) == (1, 1)


def test_a_file_without_a_range_or_filter_is_looked_into(path: Path, tmp_path: Path) -> None:
    """R59: an absent entry is legal and removes nothing."""
    for gone in ("column_stats", "bloom_filters"):
        copy = tmp_path / gone
        shutil.copytree(path, copy)
        table = Table.open(copy)
        table.indexes.drop(gone)
        result = table.upsert(rows((key(7), "a", 1, 70), (key(150), "b", 1, 71)))
        assert (result.updated, result.inserted) == (2, 0)


def test_an_upsert_of_the_commit_before(path: Path, tmp_path: Path) -> None:
    """R6, R8, R37.b, R37.c, R85: every commit writes listing, ranges and filters, so the next one finds its rows."""
    shutil.copytree(path, tmp_path / "t")
    table = Table.open(tmp_path / "t")
    assert table.upsert(rows((key(200), "a", 1, 1))).inserted == 1
    assert table.upsert(rows((key(200), "a", 2, 2), (key(201), "a", 2, 2))).updated == 1
    snapshot = table.snapshot()
    commit = snapshot.metadata.timeline.commit_metadata(snapshot.metadata.timeline.completed({"deltacommit"})[-1])
    assert {"files", "column_stats", "bloom_filters"} <= commit.write_stats.keys()
