"""Bitmaps of one base file as they are built: R92, R102."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitmap_samples import built
from lakedex.codec.roaring import deserialize_bitmap
from lakedex.errors import InvalidInputError
from lakedex.index.bitmap.builder import (
    INDEXED,
    MAX_VALUE_BYTES,
    NO_TEXT,
    NOT_INDEXED,
    TOO_LONG,
    TOO_MANY,
    BitmapsBuilder,
    RowGroup,
    column_of,
    groups_with,
)
from lakedex.parquet.conform import ENCODED

WHOLE = {"c": 10_000}


def strings(*values: str | None) -> pa.Table:
    return pa.table({"c": pa.array(values, pa.string())})


def positions(column: Any) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {
        text: list(deserialize_bitmap(data)) for text, data in zip(column.texts, column.bitmaps, strict=True)
    }
    if column.nulls:
        found[None] = list(deserialize_bitmap(column.null_bitmap))
    return found


def test_each_value_has_the_rows_that_hold_it() -> None:
    """R92: a bit vector for each distinct value, nulls among them."""
    (column,) = built(WHOLE, strings("b", "a", None, "b", "", None))
    assert positions(column) == {"": [4], "a": [1], "b": [0, 3], None: [2, 5]}
    assert (column.state, column.kind, column.texts) == (INDEXED, "string", ("", "a", "b"))
    assert (column.cardinalities, column.nulls) == ((1, 1, 2), 2)


@given(st.lists(st.sampled_from(["a", "b", "é", "😀", "", None]), max_size=60), st.integers(1, 20), st.data())
def test_batches_make_no_difference(values: list[str | None], batch: int, data: st.DataObject) -> None:
    """Rows count once each, whatever batches they come in, and however many row groups there are."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(values)), max_size=4)) | {0, len(values)})
    groups = [b - a for a, b in zip(cuts, cuts[1:], strict=False)]
    table = strings(*values)
    whole = built(WHOLE, table, groups=groups)
    assert built(WHOLE, table, groups=groups, batch=batch) == whole
    (column,) = whole
    wanted = {value: [row for row, own in enumerate(values) if own == value] for value in set(values)}
    assert positions(column) == wanted
    in_groups = {
        value: sum(any(a <= row < b for row in rows) for a, b in zip(cuts, cuts[1:], strict=False))
        for value, rows in wanted.items()
    }
    assert dict(zip(column.texts, column.groups, strict=True)) == {k: v for k, v in in_groups.items() if k is not None}
    assert column.null_groups == in_groups.get(None, 0)


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "values, state",
    [
        (["a", "b", "c", "a", None], INDEXED),
        (["a", "b", None, "c", "d"], TOO_MANY),
        (["a", None, "x" * 1024], INDEXED),
        (["a", "é" * 512, "b"], INDEXED),
        (["a", "é" * 512 + "a", "b"], TOO_LONG),
        (["a", "b", "x" * 1025, "c", "d"], TOO_LONG),
        (["a", "b", "c", "d", "x" * 1025], TOO_MANY),
        ([None] * 5, INDEXED),
        ([], INDEXED),
    ],
)
def test_the_cap_and_long_values(values: list[str | None], state: str, batch: int) -> None:
    """Three values at most, null not counted; the first value that is too much says why, whatever the batches."""
    (column,) = built({"c": 3}, strings(*values), batch=batch)
    assert column.state == state
    if state != INDEXED:
        assert (column.kind, column.texts, column.bitmaps, column.nulls, column.null_bitmap) == ("", (), (), 0, b"")


def test_a_column_past_the_cap_gives_its_memory_up_at_once() -> None:
    """R92.a: an id column of many rows is no more than its first batch."""
    builder = BitmapsBuilder({"id": 10}, pa.schema([("id", pa.int64())]))
    # Few values in many rows, too many values, and rows after them.
    batches = [pa.record_batch({"id": values}) for values in (np.arange(200_000) % 8, np.arange(20), np.arange(1))]
    tracemalloc.start()
    try:
        sizes = []
        for batch in batches:
            builder.add(batch)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[0] > 200_000 and max(sizes[1:]) < 20_000 and builder.rows == 200_021
    (column,) = builder.finish([RowGroup(200_021, 0, 1)])
    assert column.state == TOO_MANY


def test_a_binary_value_counts_as_its_hex() -> None:
    assert MAX_VALUE_BYTES == 1024
    for size, state in ((512, INDEXED), (513, TOO_LONG)):
        (column,) = built(WHOLE, pa.table({"c": pa.array([b"\xff" * size])}))
        assert column.state == state


def test_types_without_texts_are_not_indexed() -> None:
    table = pa.table({"c": pa.array([[1]], pa.list_(pa.int32())), "d": pa.array([1])})
    first, second = built({"c": 10, "d": 10}, table)
    assert (first.state, second.state) == (NO_TEXT, INDEXED)


def test_nested_fields_and_names_with_dots() -> None:
    inner = pa.StructArray.from_arrays(
        [pa.array(["x", "y", "x", "x"])], names=["c"], mask=pa.array([False, False, True, False])
    )
    outer = pa.StructArray.from_arrays(
        [inner, pa.array([1, 2, 3, 4])], names=["b", "e"], mask=pa.array([False, True, False, False])
    )
    table = pa.table({"a": outer, "a.x": pa.array(["p", "q", "p", "q"]), "v.w": pa.array([1, 1, 2, 2])})
    deep, flat, dotted, other = built({"a.b.c": 9, "a.e": 9, "a.x": 9, "v.w": 9}, table, batch=3)
    assert positions(deep) == {"x": [0, 3], None: [1, 2]}, "a null parent is a null of the field"
    assert positions(flat) == {"1": [0], "3": [2], "4": [3], None: [1]}
    assert positions(dotted) == {"p": [0, 2], "q": [1, 3]}
    assert positions(other) == {"1": [0, 1], "2": [2, 3]}
    assert column_of("a.x", table.schema).path == ("a.x",)
    assert column_of("a.b.c", table.schema).path == ("a", "b", "c")


@pytest.mark.parametrize("name", ["missing", "a.missing", "n.x", "a.b.c.d"])
def test_columns_that_are_not_there(name: str) -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.struct([("c", pa.int32())]))])), ("n", pa.int32())])
    with pytest.raises(InvalidInputError, match=name):
        BitmapsBuilder({name: 10}, schema)


def test_row_groups_must_be_of_the_rows() -> None:
    with pytest.raises(InvalidInputError, match="row groups of 2 rows for a file of 3"):
        built(WHOLE, strings("a", "b", "c"), groups=[1, 1])


def test_many_rows_keep_their_positions() -> None:
    """Positions past 65,536 and batches of 65,536."""
    codes = np.random.default_rng(3).integers(0, 3, 200_000)
    table = pa.table({"c": pa.array(["a", "b", None]).take(pa.array(codes))})
    (column,) = built(WHOLE, table, batch=65_536, groups=[150_000, 50_000])
    found = positions(column)
    assert all(np.array_equal(found[v], np.flatnonzero(codes == n)) for n, v in enumerate(("a", "b", None)))
    assert column.groups == (2, 2)


@given(st.integers(0, 2**32 - 1))
def test_groups_that_hold_a_value(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(0, 5) for _ in range(rng.randint(1, 6))]
    ends = np.cumsum(sizes).tolist()
    numbers = np.array([rng.randrange(4) for _ in range(ends[-1])], np.uint8)
    if len(ends) == 1:
        numbers = np.concatenate([np.arange(4, dtype=np.uint8), numbers])
        ends = [len(numbers)]
    spans = list(zip((0, *ends), ends, strict=False))
    wanted = [sum(bool((numbers[start:end] == number).any()) for start, end in spans) for number in range(4)]
    assert groups_with(numbers, 4, ends) == wanted


@given(st.integers(0, 2**32 - 1))
def test_dictionaries_of_any_kind_are_as_good_as_text(seed: int) -> None:
    """Dictionaries of a file's pages: in any order, with values that no row has, others in each batch."""
    rng = random.Random(seed)
    builder, rows = BitmapsBuilder({"c": 5}, pa.schema([("c", ENCODED)])), []
    for _ in range(rng.randint(1, 4)):
        words = rng.sample(["", "a", "b", "c", "é", "d", "x" * 1025], rng.randint(1, 6))
        usual = [place for place, word in enumerate(words) if len(word) < 9 or rng.random() < 0.1]
        codes = [rng.choice([*usual, None]) for _ in range(rng.randint(0, 8))]
        own = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words))
        builder.add(pa.record_batch({"c": own}))
        rows += own.to_pylist()
    ((found,), (wanted,)) = builder.finish([RowGroup(len(rows), 0, 1)]), built({"c": 5}, strings(*rows))
    # Which of two reasons comes first is a matter of the dictionary's order.
    assert found == wanted or (found.state in NOT_INDEXED and wanted.state in NOT_INDEXED)


@pytest.mark.parametrize("count", [255, 256, 257, 65_535, 65_536, 65_537])
def test_numbers_of_one_two_and_four_bytes(count: int) -> None:
    """The width changes while rows come."""
    values = [f"v{number:06d}" for number in range(count)]
    rows = [*values[:200], *values, *values[-3:]]
    (column,) = built({"c": 100_000}, strings(*rows), batch=150 if count < 1000 else 50_000)
    assert column.texts == tuple(values)
    assert column.cardinalities == (*[2] * 200, *[1] * (count - 203), *[2] * 3)
    for place in (0, 199, 200, count // 2, count - 1):
        wanted = [row for row, value in enumerate(rows) if value == values[place]]
        assert list(deserialize_bitmap(column.bitmaps[place])) == wanted
