"""Bloom filters and bitmaps that stay from query to query: what is read again, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap

from lakedex import Table
from lakedex.codec.bloom import BloomFilter
from lakedex.index import bloom_filters
from lakedex.index.bitmap.loaded_index import BitmapCache
from lakedex.metadata.records import bloom_key
from lakedex.metadata.store import MetadataStore
from table_kit import make


def rows(*ids: str, n: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "p": [key[0] for key in ids], "n": [n] * len(ids)})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three partitions of one file each."""
    return make(tmp_path, rows("a1", "a5", "a9", "b1", "b9", "c1", "c9"), partition_by="p")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Partitions whose filters were read."""
    found: list[str] = []
    inner = bloom_filters.iter_filters

    def noting(store: MetadataStore, files: Sequence[tuple[str, str]]) -> Iterator[tuple[int, BloomFilter]]:
        found.extend(partition.removeprefix("p=") for partition, _ in files)
        return inner(store, files)

    monkeypatch.setattr(bloom_filters, "iter_filters", noting)
    return found


def kept(table: Table, *keys: str) -> int:
    """Number of files that may have one of the keys."""
    plan = table.scan(f"id IN ({', '.join(map(repr, keys))})").plan()
    assert plan.stage("bloom_filters").before >= len(plan.slices)
    return len(plan.slices)


def test_a_filter_is_read_once(table: Table, read: list[str]) -> None:
    assert kept(table, "a5") == 1 and read == ["a"]
    assert (kept(table, "a5"), kept(table, "a6"), kept(table, "a6", "b9")) == (1, 0, 1)
    assert read == ["a", "b"]


def test_after_a_write_only_the_new_filters_are_read(table: Table, read: list[str]) -> None:
    assert kept(table, "a5", "b9", "c9", "b5") == 3 and sorted(read) == ["a", "b", "c"]
    table.upsert(rows("b5"))
    read.clear()  # Tagging has looked into the old one.
    assert table.scan("id = 'b5'").to_arrow().num_rows == 1, "not by the filter of the file before"
    assert kept(table, "a5", "b9", "c9") == 3 and read == ["b"]
    table.delete(rows("b5"))
    assert kept(table, "b5") == 0


def test_a_filter_that_is_written_again_is_read_again(table: Table, read: list[str]) -> None:
    """An index that is dropped and built anew."""
    assert kept(table, "a5") == 1
    table.indexes.drop("bloom_filters")
    assert table.scan("id = 'a5'").count() == 1
    table.indexes.create("bloom_filters")
    assert kept(table, "a5") == 1 and read == ["a", "a"]


def test_what_is_held_is_bounded_and_a_query_does_not_drive_out_its_own(table: Table, read: list[str]) -> None:
    assert kept(table, "a5") == 1
    snapshot = table.snapshot()
    held = bloom_filters.BloomFilterCache.of(snapshot.view(), snapshot.metadata)
    held.limit = 2 * held.size
    assert kept(table, "a5", "b9", "c9") == 3
    read.clear()
    for _ in range(2):
        assert kept(table, "a5", "b9", "c9") == 3
        assert len(held.filters) == 2 and held.size <= held.limit
    assert len(read) == 2 and len(set(read)) == 1, "the third alone, each time"
    first = next(iter(held.filters))[0]
    left_out = {"a": "a5", "b": "b9", "c": "c9"}[read[0]]
    assert kept(table, left_out) == 1 and first not in {file[0] for file in held.filters}


def test_bitmaps_are_of_one_base_file_and_bounded() -> None:
    held = BitmapCache()
    bits = BitMap([1, 2, 3])
    held.put("run", b"key", "base", bits)
    assert held.get("run", b"key", "base", 3) is bits
    assert held.get("run", b"key", "other", 3) is None and held.get("run", b"key", "base", 2) is None
    assert held.get("later run", b"key", "base", 3) is None
    held.limit = 2 * held.size
    held.put("run", b"kez", "base", bits)
    assert held.get("run", b"key", "base", 3) is bits
    held.put("run", b"kex", "base", bits)
    assert [held.get("run", key, "base", 3) is bits for key in (b"key", b"kez", b"kex")] == [True, False, True]


def test_a_later_layer_that_speaks_of_a_file_takes_its_filter_away(table: Table, read: list[str]) -> None:
    """As when a repair writes the filter of a file that stays."""

    class Layer:
        def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
            return {key: b"" for key in keys if key == bloom_key(*files[0]).encode()}

    assert kept(table, "a5", "b9") == 2
    snapshot = table.snapshot()
    held = bloom_filters.BloomFilterCache.of(snapshot.view(), snapshot.metadata)
    files = list(held.filters)
    before = held.size
    held.unseen = (Layer(),)  # type: ignore[assignment]
    read.clear()
    assert kept(table, "a5", "b9") == 2
    assert read == [files[0][0].removeprefix("p=")] and held.size == before and not held.unseen
