"""A slice's log records over its base file: who wins, what counts, what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from golden_tables import read_by_java, unpack_java_1_2
from lakedex import Table
from lakedex.codec.log_block import encode_log_block
from lakedex.errors import CorruptFileError, SchemaMismatchError, UnsupportedFeatureError
from lakedex.snapshot import merge_on_read as merge_read
from lakedex.snapshot.merge_on_read import MergeSettings
from lakedex.types import decimal_of
from limits import Limits
from mor_kit import (
    COMMIT_TIME,
    EVENT_TIME,
    NO_VALUE,
    OWN,
    SOFT,
    avro_schema,
    data_block,
    delete_block,
    long_value,
    merged,
    merging,
    rollback_block,
    rows,
    slice_of,
    values,
)
from table_kit import own

BASE = rows(("a", 10, 1), ("b", 10, 2), ("c", 10, 3))


@pytest.mark.parametrize("kind", ["AVRO_DATA", "PARQUET_DATA", "HFILE_DATA"])
def test_log_rows_take_the_place_of_base_rows(tmp_path: Path, kind: str) -> None:
    item = slice_of(tmp_path, BASE, data_block(rows(("b", 11, 20), ("d", 1, 40)), "002", kind))
    found = merged(tmp_path, item, merging())
    assert values(found) == [("a", 10, 1), ("b", 11, 20), ("c", 10, 3), ("d", 1, 40)]
    instants = dict(zip(found["_hoodie_record_key"].to_pylist(), found["_hoodie_commit_time"].to_pylist(), strict=True))
    assert instants == {"a": "001", "b": "002", "c": "001", "d": "002"}


def test_a_late_row_loses_by_event_time_only(tmp_path: Path) -> None:
    item = slice_of(tmp_path, BASE, data_block(rows(("b", 9, 20), ("c", 10, 30)), "002"))
    assert values(merged(tmp_path, item, merging(EVENT_TIME))) == [("a", 10, 1), ("b", 10, 2), ("c", 10, 30)]
    assert values(merged(tmp_path, item, merging(COMMIT_TIME))) == [("a", 10, 1), ("b", 9, 20), ("c", 10, 30)]


def test_between_log_rows_too(tmp_path: Path) -> None:
    logs = [data_block(rows(("d", 5, 1), ("e", 5, 1)), "002"), data_block(rows(("d", 4, 2), ("e", 5, 2)), "003")]
    item = slice_of(tmp_path, None, *logs)
    assert values(merged(tmp_path, item, merging(EVENT_TIME))) == [("d", 5, 1), ("e", 5, 2)]
    assert values(merged(tmp_path, item, merging(COMMIT_TIME))) == [("d", 4, 2), ("e", 5, 2)]


def test_deletes(tmp_path: Path) -> None:
    gone = [("a", NO_VALUE), ("b", long_value(9)), ("c", long_value(10)), ("z", None)]
    item = slice_of(tmp_path, BASE, delete_block(gone, "002"))
    assert values(merged(tmp_path, item, merging(EVENT_TIME))) == [("b", 10, 2)]
    assert values(merged(tmp_path, item, merging(COMMIT_TIME))) == []


def test_a_delete_of_a_long_decimal(tmp_path: Path) -> None:
    """All thirty digits of its ordering value count."""
    exact = pa.schema([("key", pa.string()), ("ts", pa.decimal128(30, 15)), ("value", pa.int32())])
    unscaled = int("123456789012345" * 2)
    wrapped = ("org.apache.hudi.avro.model.DecimalWrapper", {"value": unscaled.to_bytes(13, "big")})
    base = rows(
        *((key, decimal_of(unscaled + more, 15), 1) for key, more in zip("abc", (-1, 0, 1), strict=True)), own=exact
    )
    item = slice_of(tmp_path, base, delete_block([(key, wrapped) for key in "abc"], "002"))
    assert values(merged(tmp_path, item, merging(own=exact)), "key") == [("c",)]


def test_what_comes_after_a_delete(tmp_path: Path) -> None:
    logs = [
        delete_block([("a", NO_VALUE), ("d", NO_VALUE), ("e", NO_VALUE)], "002"),
        delete_block([("e", long_value(50))], "003"),
        data_block(rows(("a", 9, 9), ("d", 1, 9), ("e", 3, 9)), "004"),
    ]
    item = slice_of(tmp_path, BASE, *logs)
    # The late row beats the delete, and then the base row of a larger ordering value beats it: as in Java.
    expected = [("a", 10, 1), ("b", 10, 2), ("c", 10, 3), ("d", 1, 9), ("e", 3, 9)]
    assert values(merged(tmp_path, item, merging(EVENT_TIME))) == expected
    expected[0] = ("a", 9, 9)
    assert values(merged(tmp_path, item, merging(COMMIT_TIME))) == expected


def test_rows_that_say_they_are_deleted(tmp_path: Path) -> None:
    own = merging(own=SOFT)
    base = rows(("a", 10, 1, False), ("b", 10, 2, None), ("c", 10, 3, False), own=SOFT)
    later = rows(("a", 11, 1, True), ("b", 9, 2, True), ("c", None, 3, True), ("d", 1, 4, True), own=SOFT)
    item = slice_of(tmp_path, base, data_block(later, "002"))
    assert values(merged(tmp_path, item, own)) == [("b", 10, 2)]
    marked = merging(delete_marker=("key", "a"))
    item = slice_of(tmp_path, BASE, data_block(rows(("a", 11, 1), ("b", 11, 5)), "002"))
    assert values(merged(tmp_path, item, marked)) == [("b", 11, 5), ("c", 10, 3)]
    operated = OWN.append(pa.field("_hoodie_operation", pa.string()))
    block = data_block(rows(("a", 11, 1, "D"), ("b", 11, 5, "U"), ("c", 11, 5, "-U"), own=operated), "002")
    assert values(merged(tmp_path, slice_of(tmp_path, BASE, block), merging())) == [("b", 11, 5)]


def test_pending_blocks_do_not_count_nor_later_ones(tmp_path: Path) -> None:
    blocks = [data_block(rows(("a", 11, n)), f"{n:03d}") for n in (2, 9, 3, 5, 4)]
    item = slice_of(tmp_path, BASE, blocks)
    assert values(merged(tmp_path, item, merging()), "value") == [(2,), (3,), (4,)]
    assert values(merged(tmp_path, item, merging(as_of="003")))[0] == ("a", 11, 3)
    assert values(merged(tmp_path, item, merging(as_of="001"))) == values(BASE)
    archived = merging(completed=frozenset(), known=frozenset({"009"}), first_active="003")
    assert values(merged(tmp_path, item, archived))[0] == ("a", 11, 2)


def test_rolled_back_blocks(tmp_path: Path) -> None:
    first, second = data_block(rows(("a", 11, 2)), "002"), data_block(rows(("a", 12, 3), ("d", 1, 1)), "003")
    again = data_block(rows(("d", 5, 5)), "003")
    item = slice_of(
        tmp_path, BASE, first, [second, delete_block([("b", NO_VALUE)], "003")], [rollback_block("003"), again]
    )
    assert values(merged(tmp_path, item, merging())) == [("a", 11, 2), ("b", 10, 2), ("c", 10, 3), ("d", 5, 5)]


@pytest.mark.parametrize("batch_rows", [1, 2, 65_536])
def test_of_several_base_rows_of_a_key_one_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits, batch_rows: int
) -> None:
    limits(merge_read, BATCH_ROWS=batch_rows)
    monkeypatch.setattr(merge_read, "_MAX_BATCH_ROWS", batch_rows)
    base = rows(("a", 1, 1), ("a", 2, 2), ("b", 1, 3))
    item = slice_of(tmp_path, base, [data_block(rows(("a", 5, 9)), "002"), delete_block([("b", NO_VALUE)], "002")])
    assert values(merged(tmp_path, item, merging())) == [("a", 2, 2), ("a", 5, 9)]


def test_older_blocks_lack_columns_and_are_narrower(tmp_path: Path) -> None:
    wide = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("value", pa.int64()), ("note", pa.string())])
    base = BASE.set_column(2, "value", BASE["value"].cast(pa.int64())).append_column("note", pa.array(["x"] * 3))
    item = slice_of(tmp_path, base, data_block(rows(("b", 11, 20)), "002"))
    found = merged(tmp_path, item, merging(own=wide))
    assert values(found, "key", "value", "note") == [("a", 1, "x"), ("b", 20, None), ("c", 3, "x")]
    narrow = pa.schema([("key", pa.string()), ("ts", pa.int32()), ("value", pa.int32())])
    with pytest.raises(SchemaMismatchError, match="ts"):
        merged(tmp_path, item, merging(own=narrow))


@pytest.mark.parametrize("names", [[], ["value"], ["_hoodie_commit_time", "key"], ["ts"]])
def test_only_needed_columns(tmp_path: Path, names: list[str]) -> None:
    item = slice_of(tmp_path, BASE, data_block(rows(("b", 9, 20), ("d", 1, 40)), "002"))
    merge = merging()
    found = merged(tmp_path, item, merge, pa.schema([merge.schema.field(n) for n in names]))
    whole = merged(tmp_path, item, merge)
    if names:
        assert values(found, *names) == values(whole, *names)
    assert sum(batch.num_rows for batch in found.to_batches()) == 4


# ------------------------------------------------------------------------------------------------ torn and damaged
@pytest.mark.parametrize("cut", [3, 8, 20, 100, -1, -9])
def test_a_torn_tail_is_skipped(tmp_path: Path, cut: int) -> None:
    good, torn = data_block(rows(("a", 11, 2)), "002"), data_block(rows(("b", 11, 2)), "002")
    item = slice_of(tmp_path, BASE, [good, torn[:cut]], b"", data_block(rows(("c", 11, 2)), "003"))
    assert values(merged(tmp_path, item, merging()), "value") == [(2,), (2,), (2,)]


def test_a_torn_block_before_others_is_skipped(tmp_path: Path) -> None:
    torn = data_block(rows(("b", 11, 7)), "002")[:150]
    item = slice_of(tmp_path, BASE, [torn, data_block(rows(("a", 11, 2)), "002")])
    assert values(merged(tmp_path, item, merging())) == [("a", 11, 2), ("b", 10, 2), ("c", 10, 3)]


@pytest.mark.parametrize(
    "damage, expected",
    [
        (lambda block: b"#WRONG" + block[6:], "magic"),
        (lambda block: block + b"\0" * 60, "magic"),
        (lambda block: block[:14] + b"\0\0\0\7" + block[18:], "version"),
        (lambda block: block[:-40] + b"\xff" * 20 + block[-20:], "Avro|datum|values|more bytes"),
    ],
    ids=["no magic", "garbage after it", "version", "content"],
)
def test_damage_is_an_error(tmp_path: Path, damage: Callable[[bytes], bytes], expected: str) -> None:
    block = data_block(rows(("a", 11, 2), ("b", 11, 3)), "002")
    with pytest.raises(CorruptFileError, match=expected):
        merged(tmp_path, slice_of(tmp_path, BASE, damage(block)), merging())


def test_blocks_without_what_they_need(tmp_path: Path) -> None:
    text = avro_schema(OWN)
    for header in ({"SCHEMA": text}, {"INSTANT_TIME": "002"}):
        item = slice_of(tmp_path, BASE, encode_log_block("AVRO_DATA", header, b"\0\0\0\3\0\0\0\0"))
        with pytest.raises(CorruptFileError, match="INSTANT_TIME|SCHEMA"):
            merged(tmp_path, item, merging())


def test_change_data_is_no_data(tmp_path: Path) -> None:
    block = encode_log_block("CDC_DATA", {"INSTANT_TIME": "002", "SCHEMA": "{}"}, b"anything")
    assert values(merged(tmp_path, slice_of(tmp_path, BASE, block), merging())) == values(BASE)


def partial(*values: tuple[Any, ...], instant: str, columns: tuple[str, ...] = ("key", "ts", "value")) -> bytes:
    """A block of partial updates."""
    return data_block(rows(*values, own=pa.schema([NOTED.field(n) for n in columns])), instant, IS_PARTIAL="true")


NOTED = OWN.append(pa.field("note", pa.string()))


@pytest.mark.parametrize("mode, expected", [
    (EVENT_TIME, [("a", 10, 1, "x"), ("b", 30, 22, "full"), ("c", 10, 33, "z"), ("d", 40, 4, "new")]),
    (COMMIT_TIME, [("a", 9, 11, "x"), ("b", 20, 21, "full"), ("c", 10, 33, "z"), ("d", 40, 4, "new")]),
])  # fmt: skip
def test_partial_updates(tmp_path: Path, mode: str, expected: list[Any]) -> None:
    """A late one and a tie; a later full row that loses gives the columns that the partial update lacks."""
    base = rows(("a", 10, 1, "x"), ("b", 10, 2, "y"), ("c", 10, 3, "z"), own=NOTED)
    full = data_block(rows(("b", 20, 21, "full"), ("d", 40, 4, "new"), own=NOTED), "003")
    item = slice_of(tmp_path, base, partial(("a", 9, 11), ("b", 30, 22), ("c", 10, 33), instant="002"), full)
    found = merged(tmp_path, item, merging(mode, own=NOTED))
    assert values(found, *NOTED.names) == expected
    for name in NOTED.names:
        needed = pa.schema([NOTED.field(name)])
        assert values(merged(tmp_path, item, merging(mode, own=NOTED), needed), name) == values(found, name)


@pytest.mark.parametrize("block", [
    partial(("z", 11, 2), instant="002"),
    partial(("a", 2), instant="002", columns=("key", "value")),
], ids=["no row", "no ordering value"])  # fmt: skip
def test_partial_updates_that_no_row_completes(tmp_path: Path, block: bytes) -> None:
    with pytest.raises(UnsupportedFeatureError, match="cannot be completed") as caught:
        merged(tmp_path, slice_of(tmp_path, BASE, block), merging())
    assert "partial updates" in pickle.loads(pickle.dumps(caught.value)).feature
    after = [delete_block([("a", NO_VALUE)], "002"), partial(("a", 2), instant="003", columns=("key", "value"))]
    with pytest.raises(UnsupportedFeatureError, match="key 'a' was deleted"):
        merged(tmp_path, slice_of(tmp_path, BASE, *after), merging(COMMIT_TIME))


def test_deletes_whose_ordering_values_do_not_fit(tmp_path: Path) -> None:
    text = ("org.apache.hudi.avro.model.StringWrapper", {"value": "x"})
    item = slice_of(tmp_path, BASE, delete_block([("a", text)], "002"))
    with pytest.raises(UnsupportedFeatureError, match=r"String.*int64"):
        merged(tmp_path, item, merging())
    assert len(values(merged(tmp_path, item, merging(COMMIT_TIME)))) == 2


def test_settings_pickle() -> None:
    merge = merging()
    again: Any = pickle.loads(pickle.dumps(merge))
    assert isinstance(again, MergeSettings)
    assert again == merge


def test_partial_updates_of_java(tmp_path: Path) -> None:
    """What Java read, at each commit; and writes, changes and a compaction of such slices."""
    path = unpack_java_1_2("partial_updates", tmp_path)
    table = Table.open(path, options={"hoodie.compact.inline": False})
    expected = sorted(read_by_java(path), key=repr)
    names = sorted(expected[0])
    assert own(table, *names) == sorted((tuple(row[name] for name in names) for row in expected), key=repr)
    assert table.scan("rider = 'full' AND fare > 90").count() == 1
    at = [table.scan("id = 'k04'", as_of=instant).to_arrow() for instant in commits(table)]
    assert [own(found, "fare") for found in at] == [[(4.5,)], [(97.0,)], [(0.4,)], [(0.4,)], [(0.4,)]]
    assert table.update({"fare": 1.25}, where="id = 'k06'").updated == 1
    after = [{**row, "fare": 1.25} if row["id"] == "k06" else row for row in expected]
    wanted = sorted((row["id"], row["rider"], row["fare"], row["ts"]) for row in after)
    assert own(table, "id", "rider", "fare", "ts") == wanted
    table.maintenance.compact()
    assert not any(item.log_files for item in table.snapshot().slices())
    assert own(Table.open(path), "id", "rider", "fare", "ts") == wanted


def commits(table: Table) -> list[str]:
    found: list[str] = table.inspect.history()["commit_time"].to_pylist()[::-1]
    return found
