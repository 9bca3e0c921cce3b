"""RFC-92's own maintenance, requirement by requirement: R111 to R138."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from bitmap_rfc import (
    SliceRows,
    add_positions,
    change,
    initialize,
    insert,
    positions_of,
    remove_positions,
    replay,
)
from lakedex.index.bitmap.keys import bitmap_key

COLUMNS = ("color", "s.size")
SCHEMA = pa.schema([("color", pa.string()), ("s", pa.struct([("size", pa.int32())]))])


def rows(*values: tuple[str, str | None, int | None], partition: str = "2024", file_id: str = "f-0") -> SliceRows:
    """Rows as (record key, color, size)."""
    keys, colors, sizes = zip(*values, strict=True) if values else ([], [], [])
    batch = pa.record_batch(
        [pa.array(colors, pa.string()), pa.array([{"size": v} for v in sizes], SCHEMA.field("s").type)], SCHEMA
    )
    return SliceRows(partition=partition, file_id=file_id, keys=pa.array(keys, pa.string()), rows=batch)


def color(value: str | None, partition: str = "2024", file_id: str = "f-0") -> str:
    return bitmap_key("color", value, partition, file_id)


def size(value: int | None) -> str:
    return bitmap_key("s.size", None if value is None else str(value), "2024", "f-0")


def ints(*values: int) -> Any:
    return np.array(values, np.uint32)


BEFORE = rows(("a", "red", 1), ("b", "blue", 1), ("c", "red", None))
STORE = initialize([BEFORE], COLUMNS)


# ------------------------------------------------------------------------------------------------ add and remove
def test_a_records_pairs_and_file_group_form_the_keys() -> None:
    """R112: one key for each indexed column and value, with the file group id."""
    found = positions_of(BEFORE, COLUMNS)
    assert {key: own.tolist() for key, own in found.items()} == {
        color("red"): [0, 2], color("blue"): [1], size(1): [0, 1], size(None): [2],
    }  # fmt: skip


def test_add_starts_an_empty_bitmap_or_takes_the_one_there() -> None:
    """R113, R114, R115: the updated bitmap comes back under its key, the one in the store is not touched."""
    store = {"k": BitMap([1])}
    assert add_positions(store, {"k": ints(5), "new": ints(7, 3)}) == {"k": BitMap([1, 5]), "new": BitMap([3, 7])}
    assert store == {"k": BitMap([1])}


def test_remove_takes_the_position_out() -> None:
    """R116, R118, R119."""
    store = {"k": BitMap([1, 5, 9])}
    assert remove_positions(store, {"k": ints(5, 9)}) == {"k": BitMap([1])}
    assert store == {"k": BitMap([1, 5, 9])}


def test_remove_without_a_bitmap_does_nothing() -> None:
    """R117."""
    assert remove_positions({}, {"k": ints(5)}) == {}


def test_an_emptied_bitmap_stays_under_its_key() -> None:
    """R120, R135: no operation deletes a record; the empty one overwrites what was there."""
    assert remove_positions({"k": BitMap([5])}, {"k": ints(5)}) == {"k": BitMap()}


def test_adding_twice_and_removing_what_is_not_there_change_nothing() -> None:
    assert add_positions({"k": BitMap([1])}, {"k": ints(1)}) == {"k": BitMap([1])}
    assert remove_positions({"k": BitMap([1])}, {"k": ints(2)}) == {"k": BitMap([1])}


# ------------------------------------------------------------------------------------------------- the four cases
def test_initialize_takes_all_records_of_all_file_groups() -> None:
    """R111, R121, R122, R123."""
    other = rows(("x", "red", 2), partition="2025", file_id="g-0")
    found = initialize([BEFORE, other], COLUMNS)
    assert found[color("red")] == BitMap([0, 2]) and found[color("red", "2025", "g-0")] == BitMap([0])
    assert sum(len(own) for key, own in found.items() if key.startswith("color$")) == 4


def test_insert_takes_the_records_of_the_files_that_a_commit_names() -> None:
    """R124, R125, R126: nothing of other file groups is written."""
    found = insert(STORE, [rows(("x", "red", 2), file_id="new-0")], COLUMNS)
    assert found == initialize([rows(("x", "red", 2), file_id="new-0")], COLUMNS)
    assert not found.keys() & STORE.keys()


def test_insert_into_a_group_that_has_bitmaps() -> None:
    """R113: more rows behind those of the group; positions of earlier rows stay."""
    after = rows(("a", "red", 1), ("b", "blue", 1), ("c", "red", None), ("d", "red", 2))
    found = change(STORE, BEFORE, after, COLUMNS)
    assert found == {color("red"): BitMap([0, 2, 3]), size(2): BitMap([3])}


def test_update_touches_only_what_changed() -> None:
    """R127, R128, R129, R130: color of ``b`` changed, its size did not."""
    after = rows(("a", "red", 1), ("b", "green", 1), ("c", "red", None))
    assert change(STORE, BEFORE, after, COLUMNS) == {color("blue"): BitMap(), color("green"): BitMap([1])}


def test_an_update_of_other_columns_writes_nothing() -> None:
    """R129."""
    assert change(STORE, BEFORE, BEFORE, COLUMNS) == {}


def test_old_and_new_are_handled_at_once() -> None:
    """R131: two rows swap their values; the result is that of both passes."""
    after = rows(("a", "blue", 1), ("b", "red", 1), ("c", "red", None))
    at_once = change(STORE, BEFORE, after, COLUMNS)
    removed = remove_positions(STORE, {color("red"): ints(0), color("blue"): ints(1)})
    in_passes = removed | add_positions(STORE | removed, {color("blue"): ints(0), color("red"): ints(1)})
    assert at_once == in_passes == {color("red"): BitMap([1, 2]), color("blue"): BitMap([0])}


def test_null_is_a_value_as_others_are() -> None:
    after = rows(("a", None, 1), ("b", "blue", 1), ("c", "red", 3))
    assert change(STORE, BEFORE, after, COLUMNS) == {
        color("red"): BitMap([2]), color(None): BitMap([0]), size(None): BitMap(), size(3): BitMap([2]),
    }  # fmt: skip


def test_delete_finds_the_records_by_comparison() -> None:
    """R132, R133, R134: the last row goes, no other moves."""
    after = rows(("a", "red", 1), ("b", "blue", 1))
    assert change(STORE, BEFORE, after, COLUMNS) == {color("red"): BitMap([0]), size(None): BitMap()}


def test_a_value_that_returns_finds_its_empty_bitmap() -> None:
    """R136, R137: nothing special happens when it comes back."""
    gone = rows(("a", "red", 1), ("b", "red", 1), ("c", "red", None))
    store = STORE | change(STORE, BEFORE, gone, COLUMNS)
    assert store[color("blue")] == BitMap()
    store |= change(store, gone, BEFORE, COLUMNS)
    assert store == STORE


def test_entries_are_values_times_columns_of_each_group() -> None:
    """R138, R92.i: and that for each file group."""
    groups = [rows(("a", "red", 1), ("b", "blue", 1), file_id=f"f{n}-0") for n in range(3)]
    assert len(initialize(groups, COLUMNS)) == 3 * (2 + 1)


def test_a_commit_of_new_and_changed_files() -> None:
    """R124, R127, R132: the files are those that the commit names, each with the slice before it."""
    fresh = rows(("x", "red", 1), file_id="new-0")
    after = rows(("a", "red", 1), ("b", "green", 1), ("c", "red", None))
    found = replay(STORE, [(None, fresh), (BEFORE, after)], COLUMNS)
    assert STORE | found == STORE | initialize([fresh], COLUMNS) | {
        color("blue"): BitMap(),
        color("green"): BitMap([1]),
    }


# ----------------------------------------------------------------------------------- why tables are not kept so
def test_values_alone_are_not_enough_where_rows_move() -> None:
    """R92.j: the RFC compares values, and a delete moves the rows behind it."""
    after = rows(("b", "blue", 1), ("c", "red", None))
    as_written = STORE | change(STORE, BEFORE, after, COLUMNS, moved=False)
    assert as_written[color("red")] == BitMap([2]), "a position that the new file does not have"
    assert as_written[color("blue")] == BitMap([1]), "where row c is now"
    assert living(STORE | change(STORE, BEFORE, after, COLUMNS)) == initialize([after], COLUMNS)


def living(store: dict[str, BitMap]) -> dict[str, BitMap]:
    return {key: own for key, own in store.items() if own}


VALUES = [None, "red", "blue", "", "$x", "\\"]


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_any_history_ends_as_a_rebuild_would(seed: int, in_place: bool) -> None:
    """Updates, deletes, inserts in any order: what is kept is what the last slice holds, and only empty ones more."""
    rng = random.Random(seed)

    def some(keys: list[str]) -> SliceRows:
        return rows(*((key, rng.choice(VALUES), rng.choice([None, 1, 2])) for key in keys))

    keys = [f"k{n}" for n in range(rng.randint(0, 12))]
    now = some(keys)
    store = initialize([now], COLUMNS)
    for step in range(4):
        if in_place:
            keys = [*keys, f"new{step}"]
        else:
            keys = [*rng.sample(keys, rng.randint(0, len(keys))), f"new{step}"]
        after = some(keys)
        store |= change(store, now, after, COLUMNS, moved=not in_place)
        now = after
        assert living(store) == living(initialize([now], COLUMNS))


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.timestamp("us", "UTC"), pa.decimal128(12, 2), pa.bool_(), pa.date32(), pa.binary()]
)
def test_columns_of_other_types(kind: pa.DataType) -> None:
    values = pa.array([0, 1, None, 1], pa.int64())
    through = {pa.binary(): pa.string(), pa.date32(): pa.int32(), pa.decimal128(12, 2): pa.int32()}.get(kind, kind)
    column = values.cast(through).cast(kind)
    batch = pa.record_batch({"c": column})
    item = SliceRows(partition="", file_id="f-0", keys=pa.array(list("abcd")), rows=batch)
    assert sorted(list(own) for own in initialize([item], ["c"]).values()) == [[0], [1, 3], [2]]


def test_zeros_and_nans_are_one_value() -> None:
    def item(*values: float) -> SliceRows:
        batch = pa.record_batch({"c": pa.array(values, pa.float64())})
        return SliceRows(partition="", file_id="f-0", keys=pa.array([str(n) for n in range(len(values))]), rows=batch)

    before, after = item(0.0, float("nan")), item(-0.0, float("nan"))
    assert change(initialize([before], ["c"]), before, after, ["c"]) == {}
