"""Column stats decoded as arrays say what those decoded record by record say (R31, never wrong)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex.codec.avro import metadata_schema_json
from lakedex.codec.column_bounds import value_type, wrap_stat
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.hfile.writer import write_hfile
from lakedex.codec.metadata_record import encode_metadata_record
from lakedex.index.column_stats.reader import StatArrays, stat_arrays, stats_of_files
from lakedex.metadata.file_groups import MetadataFileGroup
from lakedex.metadata.files import Layer
from lakedex.metadata.records import COLUMN_STATS, column_stats_key, stats_record
from lakedex.metadata.store import MetadataStore

FILES = [(f"p={number % 2}", f"{number:04d}-0_0-0-0_20260101000000000.parquet") for number in range(6)]
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.sampled_from("ab\ue000\uffff\U0001f600"), max_size=3)
FLOATS = st.floats(allow_nan=False, width=32)
KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.int32(), INTS),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.string(), TEXTS),
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.integers(-(10**6), 10**6)),
    (pa.timestamp("us", "UTC"), INTS),
    (pa.timestamp("ms"), INTS),
    (pa.decimal128(10, 2), st.decimals(-999, 999, places=2)),
    (pa.binary(), st.binary(max_size=3)),
]
ASKED = [*(kind for kind, _ in KINDS), pa.int8(), pa.large_string(), pa.timestamp("ns")]


class LayeredStore(MetadataStore):
    """A store of one file group with these layers."""

    given: list[Layer]

    def file_groups(self, partition: str) -> list[MetadataFileGroup]:
        return [MetadataFileGroup("col-stats-0000-0", None, ())]

    def layers(self, group: MetadataFileGroup) -> list[Layer]:
        return self.given


def store_of(layers: list[Layer]) -> LayeredStore:
    store = object.__new__(LayeredStore)
    store.given = layers
    # In this layout no file is opened ahead.
    store.timeline = SimpleNamespace(layout=1)
    return store


@st.composite
def layer(draw: st.DrawFn) -> Layer:
    if draw(st.integers(0, 9)) == 0:
        return frozenset(column_stats_key("c", *file).encode() for file in draw(st.sets(st.sampled_from(FILES))))
    table_version = draw(st.sampled_from([6, 8, 9]))
    version: Any = "V2" if table_version == 9 else "V1"
    kind, values = draw(st.sampled_from(KINDS))
    mixed = draw(st.integers(0, 4)) == 0
    cells = {}
    for partition, name in draw(st.lists(st.sampled_from(FILES), unique=True)):
        if mixed:
            kind, values = draw(st.sampled_from(KINDS))
        rows = draw(st.integers(0, 3))
        nulls = draw(st.integers(0, rows + 1))
        bounds = [draw(st.none() | values) if draw(st.integers(0, 5)) == 0 else draw(values) for _ in range(2)]
        low, high = (None if nulls == rows else bound for bound in bounds)
        record = stats_record(
            name if draw(st.integers(0, 9)) else "another",
            "c",
            minimum=wrap_stat(low, kind, version),
            maximum=wrap_stat(high, kind, version),
            value_count=rows,
            null_count=nulls,
            total_size=1,
            total_uncompressed_size=1,
            value_type=value_type(kind, version),
            deleted=draw(st.integers(0, 9)) == 0,
        )
        record["ColumnStatsMetadata"]["isTightBound"] = draw(st.booleans())
        value = encode_metadata_record(record, table_version=table_version) if draw(st.integers(0, 9)) else b""
        cells[column_stats_key("c", partition, name).encode()] = value
    if not cells:
        return frozenset()
    schema = metadata_schema_json(table_version).encode()
    return HFileReader.from_bytes(write_hfile(sorted(cells.items()), info={"schema": schema}), "f.hfile")


def same(found: StatArrays, stats: Sequence[Any], kind: pa.DataType) -> None:
    wanted = StatArrays.of(stats, kind)
    assert found.known.tolist() == wanted.known.tolist()
    assert found.low.type == found.high.type == kind
    for ours, theirs in ((found.low, wanted.low), (found.high, wanted.high)):
        # Arrow takes NaN for unequal to itself.
        assert repr(ours.to_pylist()) == repr(theirs.to_pylist()) if pa.types.is_floating(kind) else ours.equals(theirs)
    assert np.array_equal(found.nulls, wanted.nulls)
    assert np.array_equal(found.counts, wanted.counts)


@settings(max_examples=100, deadline=None)
@given(st.lists(layer(), min_size=1, max_size=3), st.sampled_from(ASKED))
def test_arrays_say_what_records_say(layers: list[Layer], kind: pa.DataType) -> None:
    store = store_of(layers)
    stats = stats_of_files(store, FILES, {"c": kind})["c"]
    found = stat_arrays(store, FILES, {"c": kind})
    if "c" in found:
        same(found["c"], stats, kind)


@settings(max_examples=30, deadline=None)
@given(layer())
def test_named_stats_are_of_files_that_their_records_name(one: Layer) -> None:
    store = store_of([one])
    records = store.scan(COLUMN_STATS.name)
    stated = [(records.get(column_stats_key("c", *file)) or {}).get("ColumnStatsMetadata") for file in FILES]
    right = np.array(
        [stat is not None and stat["fileName"] == name for stat, (_, name) in zip(stated, FILES, strict=True)]
    )
    for kind, _ in KINDS[:4]:
        everything = stat_arrays(store, FILES, {"c": kind}).get("c")
        named = stat_arrays(store, FILES, {"c": kind}, named=True).get("c")
        if everything is not None and named is not None:
            assert named.known.tolist() == (everything.known & right).tolist()


def test_own_records_are_read_as_arrays() -> None:
    """Not only through the way of last resort."""
    for kind, value in ((pa.int64(), 5), (pa.string(), "a"), (pa.float64(), 1.5), (pa.timestamp("us", "UTC"), 7)):
        cells = []
        for partition, name in FILES:
            record = stats_record(
                name,
                "c",
                minimum=wrap_stat(value, kind, "V2"),
                maximum=wrap_stat(value, kind, "V2"),
                value_count=2,
                null_count=1,
                total_size=1,
                total_uncompressed_size=1,
                value_type=value_type(kind, "V2"),
            )
            record["ColumnStatsMetadata"]["isTightBound"] = True
            cells.append((column_stats_key("c", partition, name).encode(), encode_metadata_record(record)))
        info = {"schema": metadata_schema_json().encode()}
        store = store_of([HFileReader.from_bytes(write_hfile(sorted(cells), info=info), "f.hfile")])
        found = stat_arrays(store, FILES, {"c": kind}, named=True)["c"]
        assert found.known.all() and found.counts.tolist() == [2] * len(FILES)
        same(found, stats_of_files(store, FILES, {"c": kind})["c"], kind)
