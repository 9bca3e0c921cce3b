"""``hoodie.index.type=GLOBAL_BLOOM``: a key is one row in the whole table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakedex import Table
from lakedex.errors import CommitConflictError, InvalidInputError
from lakedex.types import PARTITION_PATH
from seams import meanwhile
from table_kit import OWN_FILE, make, own, rows

GLOBAL = {"hoodie.index.type": "GLOBAL_BLOOM"}
KEPT = {**GLOBAL, "hoodie.bloom.index.update.partition.path": "false"}


def table_of(path: Path, data: pa.Table | None = None, options: dict[str, str] | None = None, **more: Any) -> Table:
    arguments = {"partition_by": "city", "ordering_by": "ts", "options": GLOBAL if options is None else options, **more}
    return make(path, data, **arguments) if data is not None else make(path, schema=rows().schema, **arguments)


def folders(table: Table) -> list[tuple[Any, ...]]:
    """Key, folder and value of each row."""
    return own(table, "id", PARTITION_PATH, "n")


def test_a_moved_record_leaves_its_old_partition(tmp_path: Path) -> None:
    """R4: one row a key in the table, in its new partition, by one commit."""
    table = table_of(tmp_path, rows(("1", "USA/2023", 1, 1), ("2", "USA/2023", 1, 2)))
    result = table.upsert(rows(("1", "Canada/2024", 2, 10)))
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 1)
    assert any("1 rows moved" in note for note in result.notes)
    assert own(table) == [("1", "Canada/2024", 2, 10), ("2", "USA/2023", 1, 2)]
    assert own(table.scan("city = 'USA/2023'").to_arrow(), "id") == [("2",)]
    assert table.inspect.history().num_rows == 2


def test_it_stays_where_it_is_by_option(tmp_path: Path) -> None:
    """Updated in place, and what it says of its partition is what its folder says, as Java's reader shows it."""
    table = table_of(tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)), KEPT)
    result = table.upsert(rows(("1", "b", 2, 10), ("3", "c", 1, 3)))
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 0)
    assert own(table) == [("1", "a", 2, 10), ("2", "b", 1, 2), ("3", "c", 1, 3)]
    assert own(table.scan("city = 'a'").to_arrow(), "id") == [("1",)]
    assert folders(table)[0] == ("1", "city=a", 10)


def test_in_its_own_partition_the_incoming_columns_count(tmp_path: Path) -> None:
    table = table_of(tmp_path, rows(("1", "a", 1, 1), ("2", "b", 1, 2)), KEPT)
    table.upsert(rows(("1", "a", 2, 10), ("2", "a", 2, 20)))
    assert own(table) == [("1", "a", 2, 10), ("2", "b", 2, 20)]


@pytest.mark.parametrize("options", [GLOBAL, KEPT])
def test_a_late_record_moves_and_loses_nothing(tmp_path: Path, options: dict[str, str]) -> None:
    """The ordering value decides before anything moves."""
    table = table_of(tmp_path, rows(("1", "a", 5, 1)), options)
    result = table.upsert(rows(("1", "b", 4, 10)))
    assert result.instant is None
    assert own(table) == [("1", "a", 5, 1)]
    table.upsert(rows(("1", "b", 5, 20)))
    assert own(table) == [("1", "b" if options is GLOBAL else "a", 5, 20)]


def test_null_ordering_values(tmp_path: Path) -> None:
    table = table_of(tmp_path, rows(("1", "a", None, 1), ("2", "a", 5, 2)))
    table.upsert(rows(("1", "b", None, 10), ("2", "b", None, 20)))
    assert own(table) == [("1", "b", None, 10), ("2", "a", 5, 2)]


def test_commit_time_order_takes_the_later_commit(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 5, 1)), partition_by="city", options=GLOBAL)
    table.upsert(rows(("1", "b", 1, 2)))
    assert own(table) == [("1", "b", 1, 2)]


@pytest.mark.parametrize("options", [GLOBAL, KEPT])
def test_same_batch_repeats_over_partitions(tmp_path: Path, options: dict[str, str]) -> None:
    """Of the rows of one key in a batch the newest counts, wherever they go; also in an empty table."""
    table = table_of(tmp_path, options=options)
    table.upsert(rows(("1", "a", 2, 1), ("1", "b", 3, 2), ("1", "c", 1, 3), ("2", "a", 1, 4), ("2", "b", 1, 5)))
    assert own(table) == [("1", "b", 3, 2), ("2", "b", 1, 5)]
    table.upsert(rows(("1", "a", 9, 6), ("1", "c", 8, 7)))
    assert own(table)[0] == (("1", "a", 9, 6) if options is GLOBAL else ("1", "b", 9, 6))


@pytest.mark.parametrize("options", [GLOBAL, KEPT])
def test_deletes_hit_the_copy_that_is_there(tmp_path: Path, options: dict[str, str]) -> None:
    """A delete goes to the file group that holds the key, whatever partition it names."""
    schema = rows().schema.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    gone = [("1", "z", 9, 0, True), ("2", "z", 0, 0, True), ("9", "z", 1, 0, True), ("4", "z", 1, 4, False)]
    first = rows(*((*row, False) for row in [("1", "a", 5, 1), ("2", "b", 5, 2), ("3", "b", 5, 3)]), schema=schema)
    table = table_of(tmp_path, first, options)
    result = table.upsert(rows(*gone, schema=schema))
    assert (result.inserted, result.deleted) == (1, 1)
    assert own(table, "id", "city") == [("2", "b"), ("3", "b"), ("4", "z")]
    assert table.delete(rows(("2", "nowhere", 0, 0))).deleted == 1
    assert own(table, "id") == [("3",), ("4",)]
    report = table.erase(rows(("3", "nowhere", 0, 0)))
    assert report.rows == 1
    assert report.is_verified
    assert "nowhere" not in report.proof.sql


def test_insert_without_duplicates_over_partitions(tmp_path: Path) -> None:
    table = table_of(tmp_path, rows(("1", "a", 1, 1)))
    drop = {"hoodie.datasource.insert.dup.policy": "drop"}
    result = table.insert(rows(("1", "b", 9, 9), ("2", "b", 1, 2), ("2", "c", 2, 3)), options=drop)
    assert result.inserted == 1
    assert own(table) == [("1", "a", 1, 1), ("2", "c", 2, 3)]
    with pytest.raises(InvalidInputError, match="1 keys are in the table already, for example '2'"):
        table.insert(rows(("2", "x", 1, 1), ("3", "x", 1, 1)), options={"hoodie.datasource.insert.dup.policy": "fail"})
    table.insert(rows(("3", "x", 1, 1)), options={"hoodie.datasource.insert.dup.policy": "fail"})
    table.insert(rows(("3", "y", 1, 1)))  # plain inserts look nothing up
    assert own(table, "id", "city")[2:] == [("3", "x"), ("3", "y")]


def test_keys_that_two_partitions_hold_already(tmp_path: Path) -> None:
    """Made by a writer with another index. Java updates both copies in place, or writes the moved row once a copy."""
    data = rows(("1", "a", 5, 1), ("1", "b", 7, 2))
    table = table_of(tmp_path / "moved", data, {})
    assert table.upsert(rows(("1", "c", 6, 3)), options=GLOBAL).instant is None  # older than one of the copies
    table.upsert(rows(("1", "c", 8, 4)), options=GLOBAL)
    assert own(table) == [("1", "c", 8, 4)]
    table = table_of(tmp_path / "to one of them", data, {})
    table.upsert(rows(("1", "b", 8, 4)), options=GLOBAL)
    assert own(table) == [("1", "b", 8, 4)]
    table = table_of(tmp_path / "kept", data, {})
    table.upsert(rows(("1", "c", 6, 3)), options=KEPT)
    assert own(table) == [("1", "a", 6, 3), ("1", "b", 7, 2)]
    table.delete(rows(("1", "c", 0, 0)), options=GLOBAL)
    assert own(table) == []


def test_what_names_its_partition_is_not_global(tmp_path: Path) -> None:
    """Updates and deletes by a condition, and overwrites, know their rows' partitions."""
    table = table_of(tmp_path, rows(("1", "a", 5, 1), ("1", "b", 5, 2)), {})
    table.update({"n": 7}, "city = 'a'", options=GLOBAL)
    assert own(table) == [("1", "a", 5, 7), ("1", "b", 5, 2)]
    table.insert_overwrite(rows(("1", "b", 1, 3)), options=GLOBAL)
    assert own(table) == [("1", "a", 5, 7), ("1", "b", 1, 3)]
    table.delete(where="city = 'a'", options=GLOBAL)
    assert own(table) == [("1", "b", 1, 3)]


def test_a_table_without_partitions(tmp_path: Path) -> None:
    table = make(tmp_path, rows(("1", "a", 5, 1)), ordering_by="ts", options=GLOBAL)
    assert table.upsert(rows(("1", "b", 6, 2), ("2", "b", 1, 3))).updated == 1
    assert own(table) == [("1", "b", 6, 2), ("2", "b", 1, 3)]


def test_a_widened_ordering_column_is_compared_with_older_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int32()), ("n", pa.int32())])
    table = table_of(tmp_path, rows(("1", "a", 5, 1), ("2", "a", 5, 2), schema=schema))
    table.upsert(rows(("1", "b", 2**40, 10), ("2", "b", 4, 20)))
    assert own(table) == [("1", "b", 2**40, 10), ("2", "a", 5, 2)]


def test_another_writer_anywhere_is_a_conflict(tmp_path: Path) -> None:
    """The whole table was looked up: the same new key may have come to any partition."""
    table = table_of(tmp_path, rows(("1", "a", 1, 1)), {**GLOBAL, **OWN_FILE})
    other = Table.open(tmp_path, options=GLOBAL)
    result = meanwhile(table, lambda _: other.upsert(rows(("new", "x", 1, 1)))).upsert(rows(("new", "y", 2, 2)))
    assert own(table) == [("1", "a", 1, 1), ("new", "y", 2, 2)]
    assert (result.inserted, result.deleted) == (1, 1)
    again = meanwhile(table, lambda _: other.upsert(rows(("another", "x", 1, 1))))
    with pytest.raises(CommitConflictError, match="while the whole table was being looked up"):
        again.upsert(rows(("new", "z", 3, 3)), options={"hoodie.write.num.retries.on.conflict.failures": "0"})


# ------------------------------------------------------------------------------------------------- against a model
KEYS, CITIES = [f"k{i}" for i in range(8)] + ["k\uff21", "k\U0001f600"], ["a", "b", "c/d", None]
BATCH = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(CITIES), st.one_of(st.none(), st.integers(0, 3))), max_size=12
)
STEPS = st.lists(st.tuples(st.sampled_from(["upsert", "upsert", "upsert", "delete", "drop"]), BATCH), max_size=5)
Model = dict[str, tuple[str | None, int | None, int]]


def at_least(ours: int | None, theirs: int | None) -> bool:
    return theirs is None or (ours is not None and ours >= theirs)


def apply(model: Model, batch: list[tuple[str, str | None, int | None, int]], ordered: bool, keeps: bool) -> None:
    newest: Model = {}
    for key, city, ts, n in batch:
        old = newest.get(key)
        if old is None or not ordered or (-1 if ts is None else ts) >= (-1 if old[1] is None else old[1]):
            newest[key] = (city, ts, n)
    for key, (city, ts, n) in newest.items():
        stored = model.get(key)
        if stored is None:
            model[key] = (city, ts, n)
        elif not ordered or at_least(ts, stored[1]):
            model[key] = (stored[0] if keeps else city, ts, n)


@given(steps=STEPS, ordered=st.booleans(), keeps=st.booleans(), metadata=st.booleans())
@settings(max_examples=15, deadline=None)
def test_random_batches(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, list[tuple[str, str | None, int | None]]]],
    ordered: bool,
    keeps: bool,
    metadata: bool,
) -> None:
    """R4: the table is what a dictionary by key is, whatever moves, repeats or comes late."""
    options = {**(KEPT if keeps else GLOBAL), "hoodie.bloom.index.use.metadata": str(metadata)}
    table = table_of(tmp_path_factory.mktemp("t"), options=options, ordering_by="ts" if ordered else None)
    model: Model = {}
    number = 0
    for step, batch in steps:
        data = [(*row, number + place) for place, row in enumerate(batch)]
        number += len(data)
        if step == "delete":
            table.delete(rows(*data))
            for row in data:
                model.pop(row[0], None)
        elif step == "drop":
            table.insert(rows(*data), options={"hoodie.datasource.insert.dup.policy": "drop"})
            apply(model, [row for row in data if row[0] not in model], ordered, keeps)
        else:
            table.upsert(rows(*data))
            apply(model, data, ordered, keeps)
        assert own(table) == sorted(((key, *row) for key, row in model.items()), key=repr)
