"""Tagging against brute force: key ranges, the cap of the driver, filters of rewritten files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.codec.bloom import BloomBuilder, BloomFilter, BloomSizing, build_bloom, decode_bloom
from lakedex.index import bloom_filters
from lakedex.metadata.records import BLOOM_FILTERS
from lakedex.parquet.base_file_reader import iter_base_file, read_footer
from lakedex.snapshot.snapshot import Limits
from lakedex.tagging.candidates import KeyRanges, SortedKeys
from lakedex.types import RECORD_KEY
from limits import Limits as Patched
from seams import with_context
from table_checks import fresh_copy
from table_kit import OWN_FILE, make, own, rows

NO_METADATA = {"hoodie.bloom.index.use.metadata": "false"}
NO_RANGES = {"hoodie.bloom.index.prune.by.ranges": "false"}


# ---------------------------------------------------------------------------------------------------- key ranges
TEXTS = st.one_of(
    st.sampled_from(["", "a", "ab", "b", "é", "\ud7ff", "\uff21", "\U0001f600", "z" * 40]),
    st.text(st.characters(codec="utf-8"), max_size=3),
)
PATHS = ["", "p=1", "p=2"]
BOUND = st.one_of(st.none(), TEXTS)


@given(
    keys=st.lists(st.tuples(st.sampled_from([*PATHS, "unknown"]), st.one_of(st.none(), TEXTS)), max_size=40),
    files=st.lists(st.tuples(st.sampled_from(PATHS), BOUND, BOUND), max_size=25),
    everywhere=st.booleans(),
)
def test_slices_are_what_a_loop_finds(
    keys: list[tuple[str, str | None]], files: list[tuple[str, str | None, str | None]], everywhere: bool
) -> None:
    """R13, R60, R61: for each file the keys in its range, in byte order; all of its partition if one is unknown."""
    paths = pa.array([path for path, _ in keys], pa.string())
    found = SortedKeys.of(pa.array([key for _, key in keys], pa.string()), None if everywhere else paths, PATHS)
    codes = [0 if everywhere else PATHS.index(path) for path, _, _ in files]
    lows, highs = (pa.array([file[place] for file in files], pa.string()) for place in (1, 2))
    ranges = KeyRanges(np.array(codes, np.int32), lows, highs)
    starts, ends = ranges.slices(found)
    for number, (path, low, high) in enumerate(files):
        own_keys = {key for of, key in keys if key is not None and (everywhere or of == path)}
        known = low is not None and high is not None and low.encode() <= high.encode()
        wanted = [key for key in own_keys if not known or low.encode() <= key.encode() <= high.encode()]
        got = found.keys.slice(starts[number], ends[number] - starts[number]).to_pylist()
        assert got == sorted(wanted, key=str.encode)
    starts, ends = ranges.without_bounds().slices(found)
    assert [int(end - start) for start, end in zip(starts, ends, strict=True)] == [
        sum(1 for code in found.codes if code == own_code) for own_code in codes
    ]


# ------------------------------------------------------------------------------------------------ where filters are read
def spread_table(path: Path, files: int = 24, options: dict[str, str] | None = None) -> Table:
    """Files of two partitions, their keys spread so that ranges prune half of it."""
    table = make(path, schema=rows().schema, partition_by="city", options={**OWN_FILE, **(options or {})})
    for number in range(files):
        keys = [f"{number % 4}-{number:03d}-{key}" for key in range(5)]
        table.insert(rows(*((key, "ab"[number % 2], 1, number) for key in keys)))
    return table


INCOMING = [
    (f"{number % 4}-{number:03d}-{key}", "ab"[number % 2], 2, -1) for number in range(0, 24, 5) for key in (0, 7)
]


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spread")
    spread_table(path)
    return path


@pytest.mark.parametrize("cap", [1 << 30, 3_000, 1])
@pytest.mark.parametrize("many", [False, True], ids=["few rows", "many rows"])
@pytest.mark.parametrize("options", [{}, NO_RANGES, NO_METADATA, {**NO_METADATA, **NO_RANGES}])
def test_the_same_files_whatever_the_cap(
    spread: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: Patched,
    cap: int,
    many: bool,
    options: dict[str, str],
) -> None:
    """R37.g: past the cap keys go to buckets of files; what is found is the same, and each filter is read once."""
    table = Table.open(fresh_copy(spread, tmp_path / "t"), options=options)
    table = with_context(table, limits=Limits(driver_filter_bytes=cap, gather_rows=0 if many else 200_000))
    limits(bloom_filters, BATCH_BYTES=min(cap, 1000))
    decoded: list[Any] = []
    whole = bloom_filters.decode_bloom
    monkeypatch.setattr(bloom_filters, "decode_bloom", lambda *args: decoded.append(args[2]) or whole(*args))
    result = table.upsert(rows(*INCOMING))
    report = result.tagging
    assert report is not None
    assert report.source == ("footers" if options.items() >= NO_METADATA.items() else "metadata")
    assert (report.files_listed, report.files_opened, report.matches, report.keys_probed) == (24, 5, 5, 10)
    assert report.files_after_ranges == (24 if options.items() >= NO_RANGES.items() else report.files_after_ranges)
    assert report.files_after_blooms == report.files_opened
    assert report.requests > 0
    assert (result.updated, result.inserted) == (len(INCOMING[::2]), len(INCOMING[1::2]))
    after = table.scan("n = -1").to_arrow()
    assert sorted(after.column("id").to_pylist()) == sorted(row[0] for row in INCOMING)
    if report.source == "metadata" and not many:
        assert len(decoded) == len(set(decoded)) == report.files_after_ranges


def test_batches_are_bounded(spread: Path, monkeypatch: pytest.MonkeyPatch, limits: Patched) -> None:
    """R63: keys are asked for in the order in which they lie, so many at a time as the bound allows."""
    store = Table.open(spread).snapshot().metadata
    bases = Table.open(spread).snapshot().base_files()
    files = [(base.partition, base.name) for base in bases]
    asked: list[Sequence[str]] = []
    whole = type(store).newest_of
    monkeypatch.setattr(
        type(store), "newest_of", lambda self, name, keys: asked.append(list(keys)) or whole(self, name, keys)
    )
    everything = dict(bloom_filters.iter_filters(store, files))
    assert len(everything) == 24
    assert len(asked) == 1
    ordered = store.in_read_order(BLOOM_FILTERS.name, [key for keys in asked for key in keys])
    costs = store.read_costs(BLOOM_FILTERS.name, ordered)
    limits(bloom_filters, BATCH_BYTES=sum(costs) // 5)
    asked.clear()
    assert dict(bloom_filters.iter_filters(store, files)).keys() == everything.keys()
    assert [key for keys in asked for key in keys] == ordered
    assert 5 <= len(asked) <= 10
    limits(bloom_filters, BATCH_BYTES=1)
    assert len(dict(bloom_filters.iter_filters(store, files))) == 24
    assert bloom_filters.BATCH_BYTES == 1


def test_footers_are_counted_by_requests_and_bytes(spread: Path, tmp_path: Path) -> None:
    """R5, R9, R10: Hudi's classic index opens each footer; the report says what that takes."""
    path = fresh_copy(spread, tmp_path / "t")
    report = Table.open(path, options=NO_METADATA).upsert(rows(("none", "a", 1, 1), ("nor", "b", 1, 1))).tagging
    assert report.source == "footers"
    assert report.files_listed == 24
    assert report.requests >= 24
    assert report.bytes_read > 24 * 1000


# ------------------------------------------------------------------------------------------------------------- filters
KINDS = st.sampled_from(["SIMPLE", "DYNAMIC_V0"])


@given(
    kind=KINDS,
    entries=st.one_of(st.none(), st.integers(1, 60)),
    fpp=st.sampled_from([0.1, 0.001, 1e-9]),
    maximum=st.integers(1, 100),
    keys=st.integers(1, 150),
    other=st.integers(1, 150),
)
def test_what_is_built_fits(kind: str, entries: int | None, fpp: float, maximum: int, keys: int, other: int) -> None:
    """A filter fits its own options and keys; another type, rate or number of entries does not."""
    sizing = BloomSizing(num_entries=entries, fpp=fpp, type_code=kind, max_entries=maximum)
    builder = sizing.builder(keys)
    builder.add(pa.array([f"key {number}" for number in range(keys)]))
    bloom = decode_bloom(builder.finish().encode(), kind)
    assert sizing.fits(bloom, keys)
    assert not BloomSizing(num_entries=entries, fpp=fpp / 1000, type_code=kind, max_entries=maximum).fits(bloom, keys)
    flipped = "SIMPLE" if kind == "DYNAMIC_V0" else "DYNAMIC_V0"
    assert not BloomSizing(num_entries=entries, fpp=fpp, type_code=flipped, max_entries=maximum).fits(bloom, keys)
    if entries is None and other > 2 * keys + 2:
        assert not sizing.fits(bloom, other)
    if entries is not None:
        assert not BloomSizing(num_entries=entries + 100, fpp=fpp, type_code=kind).fits(bloom, keys)


STEP = st.tuples(
    st.sampled_from(["update", "update", "grow", "delete", "late"]),
    st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True),
)


@given(
    kind=KINDS,
    entries=st.sampled_from([None, 4, 100]),
    fpp=st.sampled_from([0.3, 1e-9]),
    steps=st.lists(STEP, min_size=1, max_size=4),
)
@settings(max_examples=10, deadline=None)
def test_filters_of_rewritten_files(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    entries: int | None,
    fpp: float,
    steps: list[tuple[str, list[int]]],
) -> None:
    """R12: no key of a file is denied by its filter; one that is not kept is what the keys give when built anew."""
    options = {"hoodie.bloom.index.filter.type": kind, "hoodie.index.bloom.fpp": str(fpp)}
    if entries is not None:
        options |= {
            "hoodie.index.bloom.num_entries": str(entries),
            "hoodie.bloom.index.filter.dynamic.max.entries": "12",
        }
    path = tmp_path_factory.mktemp("f")
    table = make(path, rows(*((f"k{n}", "a", 1, n) for n in range(10))), ordering_by="ts", options=options)
    held, before = set(range(10)), bloom_of(table)
    for number, (what, keys) in enumerate(steps, 2):
        ts = 0 if what == "late" else number
        if what != "grow":
            keys = [key for key in keys if key in held]
        data = rows(*((f"k{key}", "a", ts, key) for key in keys))
        if what == "delete":
            table.delete(data)
            held -= set(keys)
        elif keys:
            table.upsert(data)
            held |= set(keys)
        if not held:
            return
        stored, after = keys_of(table), bloom_of(table)
        assert sorted(stored.to_pylist()) == sorted(f"k{key}" for key in held)
        assert after.probe(stored).all()
        grown = what == "grow" and len(held) > 0
        if what in ("update", "late"):
            assert after.encode() == before.encode()
        elif keys and not (grown and after.encode() == before.encode()):
            size = entries or capacity(after, len(held), fpp)
            fresh = build_bloom(stored, num_entries=size, fpp=fpp, type_code=kind, max_entries=max(12, size))
            if entries is not None or kind == "DYNAMIC_V0":
                assert after.encode() == fresh.encode()
        before = after


def capacity(bloom: BloomFilter, keys: int, fpp: float) -> int:
    """For how many keys a filter was made; a SIMPLE one does not say exactly."""
    return bloom.entries_per_row or math.ceil(bloom.bits * math.log(2) ** 2 / -math.log(fpp)) or keys


def _file(table: Table) -> tuple[Any, str]:
    snapshot = table.snapshot()
    (base,) = snapshot.base_files()
    return snapshot.files.storage, snapshot.files.path(base.relative_path)


def bloom_of(table: Table) -> BloomFilter:
    """The one file's filter, the same in the footer and in the metadata."""
    footer = read_footer(*_file(table))
    snapshot = table.snapshot()
    ((_, held),) = bloom_filters.iter_filters(
        snapshot.metadata, [(base.partition, base.name) for base in snapshot.base_files()]
    )
    assert footer.bloom is not None
    assert held.encode() == footer.bloom
    return held


def keys_of(table: Table) -> pa.ChunkedArray:
    return pa.chunked_array([batch.column(0) for batch in iter_base_file(*_file(table), [RECORD_KEY])], pa.string())


def test_an_update_hashes_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R37.b: the old filter is kept while the keys are the same; growth, deletes and other options build it anew."""
    few = {"hoodie.metadata.compact.max.delta.commits": "100"}  # A compaction of the metadata table hashes keys too.
    table = make(tmp_path, rows(*((f"k{n}", "a", 1, n) for n in range(10))), options=few)
    hashed: list[int] = []
    whole = BloomBuilder.add

    def count(builder: BloomBuilder, keys: Any) -> None:
        hashed.append(len(keys))
        whole(builder, keys)

    monkeypatch.setattr(BloomBuilder, "add", count)

    def hashes(write: Any) -> int:
        hashed.clear()
        write()
        return sum(hashed)

    assert hashes(lambda: table.upsert(rows(("k1", "a", 1, 7)))) == 0
    assert hashes(lambda: table.update({"n": 3}, "id = 'k2'")) == 0
    assert hashes(lambda: table.upsert(rows(("new", "a", 1, 7)))) == 11
    assert hashes(lambda: table.delete(rows(("new", "a", 0, 0)))) == 10
    options = {"hoodie.bloom.index.filter.type": "SIMPLE"}
    assert hashes(lambda: table.upsert(rows(("k1", "a", 1, 8)), options=options)) == 10
    assert bloom_of(table).type_code == "SIMPLE"
    assert hashes(lambda: table.upsert(rows(("k1", "a", 1, 9)), options=options)) == 0


def test_a_new_key_that_the_old_filter_takes_for_its_own(tmp_path: Path) -> None:
    """The filter is built after all, over the old keys and the new."""
    options = {"hoodie.index.bloom.fpp": "0.9", "hoodie.index.bloom.num_entries": "10"}
    table = make(tmp_path, rows(*((f"k{n}", "a", 1, n) for n in range(10))), options=options)
    old = bloom_of(table)
    passes = next(key for key in (f"x{n}" for n in range(10_000)) if old.probe(pa.array([key]))[0])
    table.upsert(rows((passes, "a", 1, 1)))
    assert bloom_of(table).encode() == build_bloom(keys_of(table), num_entries=10, fpp=0.9).encode()


def test_create_index_builds_what_was_asked_for(tmp_path: Path) -> None:
    """Types and sizes hold for built indexes too; without a word the footers' filters do."""
    table = make(tmp_path, rows(*((f"k{n}", "a", 1, n) for n in range(10))))
    before = bloom_of(table)
    table.indexes.drop("bloom_filters")
    table.indexes.create("bloom_filters")
    assert bloom_of(table).encode() == before.encode()
    table.indexes.drop("bloom_filters")
    wanted = {
        "hoodie.index.bloom.num_entries": "4",
        "hoodie.index.bloom.fpp": "0.01",
        "hoodie.bloom.index.filter.dynamic.max.entries": "8",
    }
    for kind in ("SIMPLE", "DYNAMIC_V0"):
        table.indexes.create("bloom_filters", options={**wanted, "hoodie.bloom.index.filter.type": kind})
        snapshot = table.snapshot()
        files = [(base.partition, base.name) for base in snapshot.base_files()]
        ((_, built),) = bloom_filters.iter_filters(snapshot.metadata, files)
        fresh = build_bloom(keys_of(table), num_entries=4, fpp=0.01, type_code=kind, max_entries=8)
        assert built.encode() == fresh.encode()
        assert table.upsert(rows(("k1", "a", 1, 1), ("k2", "a", 1, 1))).updated == 2
        table.indexes.drop("bloom_filters")


def test_the_observed_rate(tmp_path: Path) -> None:
    """A coarse filter lets about as many through as it was made for; the report says how many."""
    options = {"hoodie.index.bloom.fpp": "0.2", "hoodie.index.bloom.num_entries": "2000"}
    table = make(tmp_path, rows(*((f"k{n:05d}0", "a", 1, n) for n in range(2000))), options=options)
    report = table.upsert(rows(*((f"k{n:05d}{n % 2}", "a", 2, n) for n in range(2000)))).tagging
    assert (report.pairs_probed, report.probed_matches) == (1999, 1000)  # one is past the range
    assert report.false_positives == report.probed_in_vain
    assert report.false_positive_rate == pytest.approx(0.2, abs=0.07)
    assert f"(rate {report.false_positive_rate:.1e})" in str(report)
    assert report.to_dict()["false_positive_rate"] == report.false_positive_rate
    assert table.upsert(rows(("k000010", "a", 3, 1))).tagging.false_positive_rate is None
    assert own(table, "id")[1] == ("k000010",)
