"""Rows as Spark hands them over, in the types that a table has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from lakedex.arrow_types import ArrowFrame, conform
from lakedex.local import engine as arrow_frames
from lakedex.parquet.conform import ENCODED

LOOSE = pa.struct(
    [
        ("a", pa.int64()),
        ("l", pa.list_(pa.field("item", pa.struct([("x", pa.int32())])))),
        ("m", pa.map_(pa.string(), pa.struct([("y", pa.date32())]))),
    ]
)
STRICT = pa.struct(
    [
        pa.field("a", pa.int64(), nullable=False),
        ("l", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32(), nullable=False)])))),
        ("m", pa.map_(pa.string(), pa.struct([pa.field("y", pa.date32(), nullable=False)]))),
    ]
)


def test_null_structs_with_required_fields() -> None:
    """A struct that is null may have nulls below, whatever its fields are; Arrow's own cast refuses it."""
    values: list[Any] = [
        {"a": 9, "l": None, "m": None},
        None,
        {"a": 1, "l": [{"x": 2}, None], "m": [("k", {"y": None}), ("z", None)]},
        {"a": 3, "l": [], "m": []},
    ]
    whole = pa.array(values, LOOSE)
    for array in (whole, whole[1:], whole[1:3], whole[:0]):
        batch = pa.RecordBatch.from_arrays([array], names=["s"])
        table = pa.table([pa.chunked_array([array, array[1:]], LOOSE)], names=["s"])
        for given in (batch, table):
            found = conform(given, pa.schema([("s", STRICT)]))
            assert found.schema.field("s").type == STRICT
            assert found.column(0).to_pylist() == given.column(0).to_pylist()
    empty = conform(pa.table([pa.chunked_array([], LOOSE)], names=["s"]), pa.schema([("s", STRICT)]))
    assert empty.num_rows == 0


@hypothesis.given(
    groups=st.lists(st.integers(-3, 5), max_size=40),
    tasks=st.integers(1, 5),
    by_key=st.booleans(),
    far=st.booleans(),
    data=st.data(),
)
def test_exchange_sorts_by_group_then_order(
    groups: list[int], tasks: int, by_key: bool, far: bool, data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.one_of(st.none(), st.text(max_size=2)), min_size=len(groups), max_size=len(groups)))
    spread = [group * 1_000_000 if far else group for group in groups]
    table = pa.table(
        {
            "g": pa.array(spread, pa.int32()),
            "k": pa.array(keys, pa.string()),
            "p": pa.array(range(len(groups)), pa.int64()),
        }
    )
    frame = arrow_frames.exchange(ArrowFrame.of(table, 3), "g", tasks, ("k", "p") if by_key else ("p",), threads=2)
    pairs = enumerate(zip(spread, keys, strict=True))
    nulls_first = [(g, key is not None, (key or "").encode(), p) for p, (g, key) in pairs]
    order = sorted(nulls_first) if by_key else sorted((g, p) for p, g in enumerate(spread))
    assert [row["p"] for row in frame.table().to_pylist()] == [row[-1] for row in order]
    seen = [set(part.column("g").to_pylist()) for part in frame.partitions]
    assert sum(map(len, seen)) == len(set(spread))
    assert frame.exchanged


def test_mapped_partitions_are_slices_like_others() -> None:
    """What comes out of the map of an exchange is no reason for another job of as many tasks."""
    frame = arrow_frames.exchange(ArrowFrame.of(pa.table({"g": pa.array([2, 1], pa.int32())}), 1), "g", 2)
    assert len(frame.partitions) == 2

    class Same:
        schema = frame.schema

        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return batches

    assert not arrow_frames.map_partitions(frame, Same(), 1).exchanged


@pytest.mark.parametrize("tasks", [3, 100])
@pytest.mark.parametrize("order", [("k",), ("p",)])
def test_exchange_of_many_rows_batch_by_batch(tasks: int, order: tuple[str, ...]) -> None:
    """Batches are cut and joined, a column that is another's memory comes with it, few values come as a dictionary."""
    rng = np.random.default_rng(5)
    rows = 3 * arrow_frames.ROWS_PER_PARTITION // 2
    keys = pa.array(np.char.mod("%09x", rng.permutation(rows)))
    few = pa.array([None, "a", "é", "c"]).take(pa.array(rng.integers(0, 4, rows)))
    columns = {
        "g": pa.array(rng.integers(-3, 9, rows).astype(np.int32)),
        "k": keys,
        "p": pa.array(np.arange(rows)),
        "same": keys,
        "few": few,
        "many": pa.array(np.char.mod("%d", rng.integers(0, rows, rows))),
    }
    table = pa.table(columns)
    edges = [0, 40_000, 40_000, 70_001, rows]
    chunks = [table.slice(start, end - start) for start, end in pairwise(edges)]
    frame = ArrowFrame(tuple(chunks), table.schema)
    found = arrow_frames.exchange(frame, "g", tasks, order, threads=2, texts={"few", "many", "same"})
    assert len(found.partitions) == min(tasks, 12)
    assert {str(part.schema.field("few").type) for part in found.partitions} == {str(ENCODED)}
    assert {str(part.schema.field("many").type) for part in found.partitions} == {"string"}
    plain = pa.concat_tables([part.cast(table.schema) for part in found.partitions])
    assert plain.equals(table.sort_by([("g", "ascending"), (order[0], "ascending")]))
    groups = [set(part.column("g").unique().to_pylist()) for part in found.partitions]
    assert sum(map(len, groups)) == 12
    part = found.partitions[0]
    assert [c.buffers()[2].address for c in part["k"].chunks] == [c.buffers()[2].address for c in part["same"].chunks]
