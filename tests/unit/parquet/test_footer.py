"""Columns that a footer tells whole, and columns that are stored twice, come out as if they were read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.io.local import LocalStorage
from lakedex.parquet.base_file_reader import FooterCache, open_for_scan
from lakedex.parquet.footer import FooterStats
from lakedex.types import RECORD_KEY


def facts_of(path: Path, table: pa.Table, **options: Any) -> FooterStats:
    pq.write_table(table, path / "f.parquet", **{"store_schema": False, **options})
    return FooterStats(pq.read_metadata(path / "f.parquet"))


@pytest.mark.parametrize(
    "kind, value",
    [
        (pa.string(), "é"), (pa.string(), ""), (pa.int8(), -128), (pa.int64(), 2**62), (pa.bool_(), False),
        (pa.date32(), dt.date(1899, 1, 1)), (pa.string(), None), (pa.int32(), None),
    ],
)  # fmt: skip
def test_one_value_is_told(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    facts = facts_of(tmp_path, pa.table({"c": pa.array([value] * 5, kind)}), row_group_size=3)
    assert facts.constant_columns(["c"], [0, 1]) == {"c": pa.scalar(value, kind)}


@pytest.mark.parametrize(
    "array, options",
    [
        (pa.array(["a", "a", None]), {}),
        (pa.array(["a", "b"]), {}),
        (pa.array([1.0, 1.0]), {}),
        (pa.array([0.0, -0.0]), {}),
        (pa.array([1, 1], pa.uint8()), {}),
        (pa.array([5, 5], pa.timestamp("us")), {}),
        (pa.array([Decimal("1.5")] * 2), {}),
        (pa.array([[1], [1]]), {}),
        (pa.array([{"x": 1}] * 2), {}),
        (pa.array(["a", "a"]), {"write_statistics": False}),
    ],
    ids=["some null", "two", "double", "zeros", "unsigned", "timestamp", "decimal", "list", "struct", "no statistics"],
)
def test_nothing_else_is_told(tmp_path: Path, array: pa.Array, options: dict[str, Any]) -> None:
    assert facts_of(tmp_path, pa.table({"c": array}), **options).constant_columns(["c", "c.x", "gone"], [0]) == {}


def test_row_groups_of_different_values(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, pa.table({"c": ["a", "a", "b", "b", "b", "c", None, None]}), row_group_size=2)
    assert not facts.constant_columns(["c"], [1, 2]) and not facts.constant_columns(["c"], [2, 1])
    assert not facts.constant_columns(["c"], [1, 3]) and not facts.constant_columns(["c"], [3, 1])
    assert facts.constant_columns(["c"], [1]) == {"c": pa.scalar("b")} and not facts.constant_columns(["c"], [0, 1])


def test_keys_are_stored_twice(tmp_path: Path) -> None:
    keys = [f"k{n}" for n in range(100)]
    table = pa.table({RECORD_KEY: keys, "id": keys, "other": [*keys[:-1], "k98"], "same": pa.array(keys, pa.binary())})
    facts = facts_of(tmp_path, table, use_dictionary=False)
    with open(tmp_path / "f.parquet", "rb") as source:
        duplicates = [
            name for name in ("id", "other", "same", "gone") if facts.has_same_bytes(name, RECORD_KEY, 0, source)
        ]
    assert duplicates == ["id"]


COLUMNS = {
    RECORD_KEY: st.sampled_from(["k", "kk", "l"]),
    "id": st.sampled_from(["k", "kk", "l"]),
    "few": st.sampled_from(["a", None]),
    "n": st.sampled_from([1, None, 2]),
    "f": st.sampled_from([0.0, None]),
}


@given(
    data=st.data(),
    rows=st.integers(1, 12),
    size=st.integers(1, 12),
    batch=st.integers(1, 20),
    twice=st.booleans(),
    plain=st.booleans(),
    coded=st.booleans(),
    names=st.lists(st.sampled_from([*COLUMNS, "gone"]), unique=True, min_size=1),
)
def test_batches_are_what_arrow_reads(
    tmp_path_factory: pytest.TempPathFactory, data: Any, rows: int, size: int, batch: int, twice: bool, plain: bool,
    coded: bool, names: list[str],
) -> None:  # fmt: skip
    columns = {name: data.draw(st.lists(values, min_size=rows, max_size=rows)) for name, values in COLUMNS.items()}
    if twice:
        columns["id"] = columns[RECORD_KEY]
    kinds = {"n": pa.int32(), "f": pa.float64()}
    table = pa.table({name: pa.array(own, kinds.get(name, pa.string())) for name, own in columns.items()})
    path = str(tmp_path_factory.mktemp("f") / "f.parquet")
    pq.write_table(table, path, row_group_size=size, use_dictionary=not plain, store_schema=False)
    footers = FooterCache()
    groups = data.draw(st.lists(st.integers(0, -(-rows // size) - 1), unique=True, min_size=1))
    for _ in range(2):  # The second time by what was held.
        with open_for_scan(LocalStorage(), path, 1, footers) as source:
            found = list(source.batches(names, groups, batch, dictionaries=coded))
        known = [name for name in names if name != "gone"]
        expected = pq.ParquetFile(path).read_row_groups(groups, columns=known)
        assert sum(part.num_rows for part in found) == expected.num_rows
        for name in known:
            parts = [part.column(name) for part in found]
            plain_parts = [p.dictionary_decode() if pa.types.is_dictionary(p.type) else p for p in parts]
            assert pa.chunked_array(plain_parts).to_pylist() == expected.column(name).to_pylist(), name
            assert all(p.type == expected.schema.field(name).type for p in plain_parts)
