import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakedex.errors import InvalidInputError, SchemaMismatchError
from lakedex.snapshot.schema import require_columns
from lakedex.write.schema_evolution import evolve, pruned, stored_schema
from table_kit import OWN_FILE, make, own, picture

MISSING_IS_NULL = {"hoodie.write.set.null.for.missing.columns": "true"}
POINT = pa.struct([("x", pa.int32())])
WIDE = pa.struct([("x", pa.int32()), ("y", pa.string())])


def frame(key: str, value: Any, kind: pa.DataType, name: str = "c") -> pa.Table:
    return pa.table({"id": [key], name: pa.array([value], kind)})


GROWS: list[tuple[pa.DataType, Any, pa.DataType, Any, Any]] = [
    (pa.int32(), 5, pa.int64(), 5_000_000_000, 5),
    (pa.int32(), 5, pa.float64(), 2.5, 5.0),
    (pa.float32(), 1.5, pa.float64(), 0.1, 1.5),
    (pa.decimal128(6, 2), Decimal("1.25"), pa.decimal128(12, 2), Decimal("1234567890.01"), Decimal("1.25")),
    (POINT, {"x": 1}, WIDE, {"x": 2, "y": "a"}, {"x": 1, "y": None}),
    (pa.list_(POINT), [{"x": 1}], pa.list_(WIDE), [{"x": 2, "y": "a"}, None], [{"x": 1, "y": None}]),
    (
        pa.map_(pa.string(), POINT),
        [("k", {"x": 1})],
        pa.map_(pa.string(), WIDE),
        [("k", None)],
        [("k", {"x": 1, "y": None})],
    ),
]


@pytest.mark.parametrize(
    "old, first, new, second, widened", GROWS, ids=[f"{old}->{new}" for old, _, new, _, _ in GROWS]
)
@pytest.mark.parametrize("same_file", [True, False])
def test_a_column_grows(
    tmp_path: Path, old: pa.DataType, first: Any, new: pa.DataType, second: Any, widened: Any, same_file: bool
) -> None:
    table = make(tmp_path, frame("1", first, old), options={} if same_file else OWN_FILE)
    table.upsert(frame("2", second, new))
    assert table.schema.field("c").type == new
    assert own(table) == [("1", widened), ("2", second)]
    # The narrow type still fits in, and rows are found by both values. That a field is missing has to be said.
    if pa.types.is_nested(new):
        with pytest.raises(SchemaMismatchError, match=r"the frame lacks field 'c\.(element\.|value\.)?y'"):
            table.upsert(frame("3", first, old))
    table.upsert(frame("3", first, old), options=MISSING_IS_NULL)
    assert table.schema.field("c").type == new
    assert own(table) == [("1", widened), ("2", second), ("3", widened)]
    if not pa.types.is_nested(new):
        for value, count in ((widened, 2), (second, 1)):
            assert table.scan(f"c = {value}").count() == count
            assert table.scan(f"c = {value}", use_indexes=False).count() == count
        assert table.scan("c is null").count() == 0
    table.delete(where="id = '2'")
    assert own(table, "id") == [("1",), ("3",)]


FITS: list[tuple[pa.DataType, pa.DataType, Any]] = [
    (pa.int64(), pa.int32(), 5),
    (pa.int64(), pa.int8(), 5),
    (pa.float64(), pa.float32(), 1.5),
    (pa.float64(), pa.int32(), 5),
    (pa.decimal128(12, 2), pa.decimal128(6, 1), Decimal("1.5")),
    (pa.string(), pa.large_string(), "x"),
    (WIDE, POINT, {"x": 1}),
]


@pytest.mark.parametrize("stored, found, value", FITS, ids=[f"{found}->{stored}" for stored, found, _ in FITS])
def test_what_fits_into_the_column(tmp_path: Path, stored: pa.DataType, found: pa.DataType, value: Any) -> None:
    table = make(tmp_path, schema=pa.schema([("id", pa.string()), ("c", stored)]))
    table.upsert(frame("1", value, found), options=MISSING_IS_NULL)
    assert table.schema.field("c").type == stored
    ((_, read),) = own(table)
    assert read == ({"x": 1, "y": None} if stored == WIDE else value)


@pytest.mark.parametrize(
    "stored, found",
    [
        (pa.int32(), pa.string()),
        (pa.string(), pa.int32()),
        (pa.decimal128(10, 2), pa.float64()),
        (pa.float64(), pa.decimal128(10, 2)),
        (pa.string(), pa.binary()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.bool_(), pa.int32()),
        (POINT, pa.struct([("x", pa.string())])),
        (POINT, pa.int32()),
        (pa.list_(pa.int32()), pa.list_(pa.string())),
    ],
    ids=str,
)
def test_what_does_not_fit_names_both_types(tmp_path: Path, stored: pa.DataType, found: pa.DataType) -> None:
    table = make(tmp_path, schema=pa.schema([("id", pa.string()), ("c", stored)]))
    before = picture(tmp_path)
    with pytest.raises(SchemaMismatchError) as caught:
        table.upsert(frame("1", None, found))
    assert caught.value.column.split(".")[0] == "c"
    assert caught.value.expected in str(caught.value)
    assert caught.value.found in str(caught.value)
    assert "cast it" in str(caught.value)
    assert picture(tmp_path) == before


def test_an_added_column(tmp_path: Path) -> None:
    table = make(tmp_path, frame("1", 1, pa.int32()), options=OWN_FILE)
    wide = pa.table({"more": ["x", None], "id": ["2", "3"], "c": pa.array([2, 3], pa.int32())})
    table.upsert(wide)
    assert table.schema.names == ["id", "c", "more"]
    assert own(table) == [("1", 1, None), ("2", 2, "x"), ("3", 3, None)]
    for where, keys in (
        ("more is null", ["1", "3"]),
        ("more <=> null", ["1", "3"]),
        ("more = 'x'", ["2"]),
        ("more is not null", ["2"]),
        ("more <> 'y'", ["2"]),
    ):
        found = table.scan(where).to_arrow().column("id").to_pylist()
        assert sorted(found) == keys, where
    with pytest.raises(SchemaMismatchError, match="the frame lacks column 'more'") as caught:
        table.upsert(frame("4", 1, pa.int32()))
    assert caught.value.column == "more"
    table.upsert(frame("4", 1, pa.int32()), options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert own(table)[-1] == ("4", 1, None)
    first = table.inspect.history().column("commit_time").to_pylist()[-1]
    assert own(table.scan(as_of=first).to_arrow()) == [("1", 1)]


def test_names_mean_columns_whatever_their_case(tmp_path: Path) -> None:
    table = make(tmp_path, frame("1", {"x": 1}, POINT))
    table.upsert(pa.table({"ID": ["2"], "C": pa.array([{"X": 2}], pa.struct([("X", pa.int32())]))}))
    assert own(table) == [("1", {"x": 1}), ("2", {"x": 2})]
    with pytest.raises(SchemaMismatchError, match="column 'C' differs from 'c' by case only"):
        table.upsert(pa.table({"id": ["2"], "c": [{"x": 1}], "C": [1]}))
    with pytest.raises(SchemaMismatchError, match=r"the frame lacks field 'c\.x'"):
        table.upsert(frame("3", {"X": 1, "xX": 2, "XX": 3}, pa.struct([(n, pa.int32()) for n in ("xX", "XX")])))
    sensitive = evolve(table.schema, table.schema, "t", case_sensitive=True)
    assert sensitive == table.schema
    with pytest.raises(SchemaMismatchError, match="the frame lacks column 'c'; did you mean 'C'"):
        evolve(table.schema, pa.schema([("id", pa.string()), ("C", POINT)]), "t", case_sensitive=True)


def test_two_new_columns_that_differ_by_case_only(tmp_path: Path) -> None:
    table = make(tmp_path)
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match="columns 'c' and 'C' differ by case only") as caught:
        table.upsert(pa.table({"id": ["1"], "c": [1], "C": [2]}))
    assert caught.value.column == "C"
    assert picture(tmp_path) == before


def test_meta_columns_of_a_frame_are_left_out(tmp_path: Path) -> None:
    table = make(tmp_path, frame("1", 1, pa.int32()))
    result = table.upsert(table.to_arrow())
    assert (result.updated, result.inserted) == (1, 0)
    assert table.schema.names == ["id", "c"]


@pytest.mark.parametrize("name", ["$c", "360p", "a b", "a-b", "", "é"])
def test_names_that_avro_refuses(tmp_path: Path, name: str) -> None:
    table = make(tmp_path)
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        table.upsert(pa.table({"id": ["1"], name: [1]}))
    assert caught.value.column == name
    assert picture(tmp_path) == before


def test_small_integers_are_stored_as_int() -> None:
    schema = stored_schema(pa.schema([("a", pa.int8()), ("b", pa.int16()), ("c", pa.large_string())]), "t")
    assert schema.types == [pa.int32(), pa.int32(), pa.string()]


def test_evolving_an_empty_schema_takes_the_frames() -> None:
    frame_schema = pa.schema([("a", pa.int32()), ("_hoodie_commit_time", pa.string())])
    assert evolve(pa.schema([]), frame_schema, "t").names == ["a"]


def test_required_columns_stay_required(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("c", pa.int32(), nullable=False)])
    table = make(tmp_path, schema=schema)
    table.upsert(pa.table({"id": ["1"], "c": pa.array([1], pa.int32())}, schema=schema))
    before = picture(tmp_path)
    with pytest.raises(InvalidInputError, match="table .*: column 'c' has 1 nulls .*with key '2'") as caught:
        table.upsert(frame("2", None, pa.int32()))
    assert (caught.value.column, caught.value.count) == ("c", 1)
    assert picture(tmp_path) == before
    assert own(table) == [("1", 1)]


def test_the_time_of_wide_schemas_grows_with_their_columns() -> None:
    """Loops over all columns for each column would take half a minute."""
    table = pa.schema([(f"c{n}", pa.int64()) for n in range(5_000)])
    frame = pa.schema([(f"{'cd'[n % 2].upper()}{n // 2}", pa.int64()) for n in range(10_000)])
    begin = time.process_time()
    assert len(evolve(table, frame, "t")) == 10_000
    assert pruned(table, table.names).names == table.names
    require_columns(table, table.names, "key", "t")
    assert time.process_time() - begin < 5
