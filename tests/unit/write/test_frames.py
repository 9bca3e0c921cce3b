"""Frames that are not quite the table's: the right rows, or an error that names what is wrong and an unchanged table."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError, LakedexError, SchemaMismatchError
from lakedex.lossless_cast import StoreAssignment
from lakedex.tagging.keyed_rows import require_values
from table_kit import make, own, picture

Call = Callable[[Table, Any], Any]


def merge(table: Table, data: Any) -> Any:
    return table.merge(data, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()


CALLS: dict[str, Call] = {
    "upsert": lambda t, data: t.upsert(data),
    "insert": lambda t, data: t.insert(data, options={"hoodie.datasource.insert.dup.policy": "drop"}),
    "overwrite": lambda t, data: t.insert_overwrite(data, scope="table"),
    "merge": merge,
}


def keyed(kind: pa.DataType, *values: Any, v: int = 1) -> pa.Table:
    return pa.table({"id": pa.array(values, kind), "v": pa.array([v] * len(values), pa.int32())})


def refused(table: Table, call: Callable[[], Any], error: type[LakedexError], match: str) -> Any:
    before = picture(Path(table.path))
    with pytest.raises(error, match=match) as caught:
        call()
    after = picture(Path(table.path))
    assert {k: v for k, v in after.items() if not k.endswith("lock")} == before
    return caught.value


# --------------------------------------------------------------------------------------------------------- key types
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "kind, other", [(pa.float64(), pa.int32()), (pa.int32(), pa.float64()), (pa.int64(), pa.uint8())]
)
def test_a_key_of_another_type_is_the_same_key(tmp_path: Path, call: Call, kind: Any, other: Any) -> None:
    table = make(tmp_path, keyed(kind, 1), name="t")
    call(table, keyed(other, 1, v=2))
    assert table.schema.field("id").type == kind
    assert table.scan().count() == 1
    assert own(table, "id") == [(1,)]
    with pytest.raises(InvalidInputError, match="are in the table already"):
        table.insert(keyed(other, 1), options={"hoodie.datasource.insert.dup.policy": "fail"})
    assert table.delete(pa.table({"id": pa.array([1], other)})).deleted == 1
    table.insert(keyed(other, 1))
    assert table.erase(pa.table({"ID": pa.array([1], other)})).rows == 1


@pytest.mark.parametrize(
    "call",
    [*CALLS.values(), lambda t, data: t.delete(data), lambda t, data: t.erase(data)],
    ids=[*CALLS, "delete", "erase"],
)
def test_a_key_that_the_type_does_not_have_is_refused(tmp_path: Path, call: Call) -> None:
    table = make(tmp_path, keyed(pa.int32(), 1), name="t")
    error = refused(
        table, lambda: call(table, keyed(pa.float64(), 1.0, 1.5)), SchemaMismatchError, "table t: column 'id'"
    )
    assert (error.column, error.row, error.expected, error.found) == ("id", 1, "int32", "double")
    assert "1.5" in str(error)


def test_a_partition_of_another_type_is_the_same_partition(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.int32())])
    table = make(tmp_path, pa.table([["a"], [1]], schema=schema), partition_by="p")
    table.upsert(pa.table({"id": ["a"], "p": [1.0]}))
    table.upsert(pa.table({"id": ["b"], "p": pa.array([None], pa.int64())}))
    assert own(table) == [("a", 1), ("b", None)]
    table.insert_overwrite(pa.table({"id": ["c"], "p": pa.array([1], pa.int8())}), partitions=[{"p": 1}])
    assert own(table, "id") == [("b",), ("c",)]
    assert table.schema == schema
    refused(table, lambda: table.upsert(pa.table({"id": ["a"], "p": [2**40]})), SchemaMismatchError, "column 'p'")


def test_rows_are_numbered_over_the_whole_frame(tmp_path: Path) -> None:
    table = make(tmp_path, keyed(pa.int32(), 1))
    ids = [float(n) for n in range(200_000)]
    ids[150_000] += 0.5
    frame = pa.table({"id": ids, "v": pa.array([1] * len(ids), pa.int32())})
    assert refused(table, lambda: table.upsert(frame), SchemaMismatchError, "row 150000 of the frame").row == 150_000


# -------------------------------------------------------------------------------------------------------------- names
def test_names_are_matched_whatever_their_case(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 1], "State": ["a", "b"], "v": [1, 2]})
    table = make(tmp_path, rows, partition_by="State")
    assert table.delete(pa.table({"ID": [1], "state": ["a"]})).deleted == 1
    assert own(table) == [(1, "b", 2)]
    table.upsert(pa.table({"Id": [1], "STATE": ["b"], "V": [3]}))
    assert own(table) == [(1, "b", 3)]


def test_the_first_frame_takes_the_tables_spelling_of_its_keys(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="Id", partition_by="State")
    table.upsert(pa.table({"ID": [1], "state": ["a"], "V": [1]}))
    assert table.schema.names == ["Id", "State", "V"]
    assert own(table) == [(1, "a", 1)]


@pytest.mark.parametrize("call", [lambda t, d: t.delete(d), lambda t, d: t.erase(d)], ids=["delete", "erase"])
def test_a_delete_drops_no_column_that_it_does_not_know(tmp_path: Path, call: Call) -> None:
    rows = pa.table({"id": [1, 1], "state": ["a", "b"], "v": [1, 2]})
    table = make(tmp_path, rows, partition_by="state")
    for frame, match in (
        ({"id": [1], "stat": ["a"]}, "partition column 'state' is not in the frame; did you mean 'stat'"),
        ({"id": [1]}, "partition column 'state' is not in the frame; it has id.*all_partitions=True"),
        ({"idd": [1], "state": ["a"]}, "record key column 'id' is not in the frame; did you mean 'idd'"),
        ({"id": [1], "state": ["a"], "w": [1]}, "the frame's column 'w' is not in the table"),
    ):
        refused(table, lambda frame=frame: call(table, pa.table(frame)), InvalidInputError, match)
    assert table.delete(pa.table({"id": [1], "state": ["a"], "v": [9]})).deleted == 1
    assert table.delete(pa.table({"id": [1]}), all_partitions=True).deleted == 1


def test_a_nested_key_column_is_looked_for_in_its_struct(tmp_path: Path) -> None:
    kind = pa.struct([("k", pa.int32()), ("n", pa.int32())])
    table = make(tmp_path, schema=pa.schema([("s", kind)]), record_key="s.k")
    table.insert(pa.table({"s": pa.array([{"k": 1, "n": 1}], kind)}))
    other = pa.struct([("N", pa.float64()), ("K", pa.float64())])
    table.upsert(pa.table({"S": pa.array([{"K": 1, "N": 2}], other)}))
    assert own(table) == [({"k": 1, "n": 2},)]
    lacking = pa.table({"s": pa.array([{"kk": 1}], pa.struct([("kk", pa.int32())]))})
    options = {"hoodie.write.set.null.for.missing.columns": "true"}
    match = "record key column 's.k' is not in the frame; did you mean 'kk'"
    refused(table, lambda: table.upsert(lacking, options=options), InvalidInputError, match)
    assert table.delete(pa.table({"s": pa.array([{"k": 1}], pa.struct([("k", pa.int64())]))})).deleted == 1


@pytest.mark.parametrize(
    "wrap", [lambda k: k, pa.list_, lambda k: pa.map_(pa.string(), k)], ids=["struct", "list", "map"]
)
def test_a_field_that_the_frame_lacks_is_refused_by_its_path(tmp_path: Path, wrap: Any) -> None:
    full, half = (pa.struct([(n, pa.int32()) for n in names]) for names in ("kn", "k"))
    shape = {"struct": lambda v: v, "list": lambda v: [v], "map": lambda v: [("x", v)]}
    kind = wrap(full)
    value = shape["struct" if kind == full else "list" if pa.types.is_list(kind) else "map"]
    table = make(tmp_path, schema=pa.schema([("id", pa.int32()), ("s", kind)]))
    frame = pa.table({"id": pa.array([1], pa.int32()), "s": pa.array([value({"k": 1})], wrap(half))})
    for call in CALLS.values():
        error = refused(table, lambda call=call: call(table, frame), SchemaMismatchError, r"lacks field 's\.(\w+\.)?n'")
        assert error.column.endswith("n")
    table.upsert(frame, options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert own(table) == [(1, value({"k": 1, "n": None}))]


# ------------------------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("unit, value", [("ms", 9 * 10**17), ("s", 9 * 10**17), ("ns", 1999), ("ns", -1), ("ns", -999)])
@pytest.mark.parametrize("column", ["id", "v"])
def test_times_neither_wrap_around_nor_lose_digits(tmp_path: Path, unit: Any, value: int, column: str) -> None:
    schema = pa.schema([("id", pa.timestamp("us")), ("v", pa.timestamp("us"))])
    table = make(tmp_path, schema=schema)
    columns = {name: pa.array([0, value if name == column else 0], pa.timestamp(unit)) for name in schema.names}
    error = refused(table, lambda: table.upsert(pa.table(columns)), SchemaMismatchError, "timestamp")
    assert (error.column, error.row, error.found) == (column, 1, f"timestamp[{unit}]")


def test_nanosecond_keys_stay_apart(tmp_path: Path) -> None:
    ids = pa.array([1000, 2000, 3000], pa.timestamp("ns"))
    table = make(tmp_path, pa.table({"id": ids}))
    assert table.scan().count() == 3
    refused(table, lambda: table.upsert(pa.table({"id": pa.array([1001], pa.timestamp("ns"))})), LakedexError, "row 0")


def test_decimals_are_counted(tmp_path: Path) -> None:
    frame = duckdb.sql(
        "SELECT 1::INTEGER AS id, 170141183460469231731687303715884105727::HUGEINT AS v"
    ).to_arrow_table()
    fresh = make(tmp_path / "new")
    refused(fresh, lambda: fresh.upsert(frame), SchemaMismatchError, "column 'v'.*has more digits")
    table = make(tmp_path / "t", schema=pa.schema([("id", pa.int32()), ("v", pa.decimal128(38, 0))]))
    for call in CALLS.values():
        refused(table, lambda call=call: call(table, frame), SchemaMismatchError, "column 'v'.*digits")
    nested = duckdb.sql(
        "SELECT 2::INTEGER AS id, [{'d': 170141183460469231731687303715884105727::HUGEINT}] AS v"
    ).to_arrow_table()
    refused(fresh, lambda: fresh.upsert(nested), SchemaMismatchError, r"column 'v\.\w+\.d'")
    table.upsert(
        duckdb.sql("SELECT 1::INTEGER AS id, 10000000000000000000000000000000000000::HUGEINT AS v").to_arrow_table()
    )
    assert own(table) == [(1, Decimal(10**37))]


def test_columns_without_a_type_take_the_tables(tmp_path: Path) -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    table = make(tmp_path, schema=pa.schema([("id", pa.int64()), ("v", pa.decimal128(9, 2)), ("s", kind)]))
    table.upsert(pd.DataFrame({"id": [1], "v": [None], "s": [{"a": None, "b": [None]}]}))
    merge(table, pd.DataFrame({"id": [2], "v": [None], "s": [None]}))
    assert own(table) == [(1, None, {"a": None, "b": [None]}), (2, None, None)]
    more = pd.DataFrame({"id": [3], "v": [None], "s": [None], "w": [None]})
    refused(table, lambda: table.upsert(more), InvalidInputError, "column 'w' has no type")
    refused(table, lambda: merge(table, more), InvalidInputError, "column 'w' has no type")
    strict = make(
        tmp_path / "strict", schema=pa.schema([("id", pa.int64()), pa.field("v", pa.int32(), nullable=False)])
    )
    match = "table strict: column 'v' has 1 nulls.*key '7'"
    refused(strict, lambda: strict.upsert(pd.DataFrame({"id": [7], "v": [None]})), InvalidInputError, match)


@pytest.mark.parametrize("kind", [pa.list_(pa.field("element", pa.int32(), False)), pa.map_(pa.string(), pa.field("value", pa.int32(), False))], ids=str)  # fmt: skip
def test_elements_that_are_never_null(kind: pa.DataType) -> None:
    loose = pa.list_(pa.int32()) if pa.types.is_list(kind) else pa.map_(pa.string(), pa.int32())
    values = [None, [1], [1, None]] if pa.types.is_list(kind) else [None, [("a", 1)], [("b", 2), ("c", None)]]
    rows = StoreAssignment(pa.schema([("v", kind)]), "t")(pa.record_batch([pa.array(values, loose)], names=["v"]))
    with pytest.raises(InvalidInputError, match=r"table t: column 'v\.\w+' has 1 nulls.*key '3'"):
        require_values(rows, ("id",), "t", pa.array(["1", "2", "3"]))
    require_values(rows.slice(0, 2), ("id",), "t", pa.array(["1", "2"]))


def test_polars_frames_are_taken(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.int32()))])
    table = make(tmp_path, schema=schema, partition_by="p")
    frame = pl.DataFrame(
        {
            "id": pl.Series(["x", "y"], dtype=pl.Categorical),
            "p": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
            "n": pl.Series([1, 2**32 - 1], dtype=pl.UInt32),
            "l": pl.Series([[1], None], dtype=pl.List(pl.UInt8)),
        }
    )
    for call in (*CALLS.values(), lambda t, d: t.bulk_insert(d)):
        call(table, frame)
    assert own(table)[0] == ("x", "a", 1, [1])
    assert table.delete(frame.select("id", "p")).deleted == 4
    table.upsert(frame)
    assert table.scan().semi_join(frame.select("id").slice(0, 1), "id").count() == 1
    big = frame.with_columns(n=pl.Series([1, 2**63], dtype=pl.UInt64))
    refused(
        table, lambda: table.upsert(big), SchemaMismatchError, "column 'n' is int64, which cannot hold 922337203685"
    )


def test_a_named_index_of_pandas_is_a_column(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["a"], "v": [1]}))
    table.upsert(pd.DataFrame({"v": [2, 3]}, index=pd.Index(["a", "b"], name="id")))
    assert own(table) == [("a", 2), ("b", 3)]
    match = "column 'v' of the pandas frame cannot be read"
    frame = pd.DataFrame({"id": ["a"], "v": pd.Series([2**63], dtype=object)})
    refused(table, lambda: table.upsert(frame), InvalidInputError, match)


def test_a_stream_is_read_once(tmp_path: Path) -> None:
    frame = pa.table({"id": ["a", "b"], "v": [1, 2]})
    table = make(tmp_path, frame)
    for call in (*CALLS.values(), lambda t, d: t.bulk_insert(d)):
        call(table, frame.to_reader())
    assert table.delete(frame.select(["id"]).to_reader()).deleted == 4


def test_naming_the_null_partition_names_the_empty_text_too(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": ["1", "2", "3"], "g": [None, "", "a"]}), partition_by="g")
    table.delete_partition({"g": None})
    assert own(table, "id") == [("3",)]


@pytest.mark.parametrize("empty", [{}, []], ids=str)
def test_maps_that_are_all_empty(tmp_path: Path, empty: Any) -> None:
    schema = pa.schema([("id", pa.string()), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))])
    table = Table.create(tmp_path, schema, record_key="id")
    table.upsert([{"id": "a", "m": empty}, {"id": "b", "m": None}])
    assert table.to_arrow().to_pylist() == [{"id": "a", "m": []}, {"id": "b", "m": None}]
