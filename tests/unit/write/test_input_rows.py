"""Rows in the forms that users have them: dictionaries, batches, datasets, lazy frames, relations, streams."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakedex import InvalidInputError, SchemaMismatchError, Table, UnsupportedFeatureError
from table_kit import ROWS, make, own, rows

TWO = rows(("1", "a", 1, 10), ("2", "b", 1, 20))


class _Exports:
    """A foreign frame that offers one protocol only."""

    def __init__(self, name: str, data: Any) -> None:
        self.data = data
        setattr(self, name, getattr(data, name))


def _one_by_one() -> Iterator[pa.RecordBatch]:
    for place in range(TWO.num_rows):
        yield from TWO.slice(place, 1).to_batches()


FORMS: dict[str, Callable[[], Any]] = {
    "dicts": TWO.to_pylist,
    "tuple of dicts": lambda: tuple(TWO.to_pylist()),
    "generator of dicts": lambda: (row for row in TWO.to_pylist()),
    "numpy values": lambda: [{**row, "n": np.int64(row["n"])} for row in TWO.to_pylist()],
    "table": lambda: TWO,
    "batch": lambda: TWO.combine_chunks().to_batches()[0],
    "batches": lambda: list(_one_by_one()),
    "generator of batches": _one_by_one,
    "tables": lambda: [TWO.slice(0, 1), TWO.slice(1)],
    "reader": TWO.to_reader,
    "dataset": lambda: ds.dataset(TWO),
    "scanner": lambda: ds.dataset(TWO).scanner(),
    "pandas": TWO.to_pandas,
    "polars": lambda: pl.DataFrame(TWO),
    "lazy": lambda: pl.LazyFrame(TWO).filter(pl.col("n") > 0),
    "duckdb": lambda: duckdb.connect().from_arrow(TWO),
    "stream": lambda: _Exports("__arrow_c_stream__", TWO),
    "array": lambda: _Exports("__arrow_c_array__", TWO.combine_chunks().to_batches()[0]),
    "dataframe protocol": lambda: _Exports("__dataframe__", TWO.to_pandas()),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_of_rows(tmp_path: Path, form: Callable[[], Any]) -> None:
    table = make(tmp_path, schema=ROWS)
    assert table.upsert(form()).inserted == 2
    assert own(table) == own(TWO)


def test_every_operation_takes_dictionaries(tmp_path: Path) -> None:
    table = make(tmp_path, schema=ROWS, partition_by="city")
    assert table.insert([{"id": "1", "city": "a", "ts": 1, "n": 1}]).inserted == 1
    assert table.bulk_insert([{"ID": "2", "city": "a", "ts": 1, "n": None}]).inserted == 1
    merge = table.merge([{"id": "2", "by": 5}], "t.id = s.id").when_matched_update({"n": "s.by"})
    assert merge.execute().updated == 1
    assert table.insert_overwrite([{"id": "3", "city": "b", "ts": 1, "n": 3}]).inserted == 1
    assert table.delete([{"id": "1", "city": "a"}]).deleted == 1
    assert own(table, "id", "n") == [("2", 5), ("3", 3)]
    assert table.upsert([]).notes == ("there are no rows to write",)
    with pytest.raises(InvalidInputError, match="have no fields, so their keys are missing"):
        table.upsert([{}])
    again = table.scan(meta_columns=True).to_arrow().to_pylist()
    assert table.upsert(again).updated == 2


NAN = float("nan")
PANDAS = {
    "whole and missing": ("n", [2.0, NAN], [2, None], pa.int32()),
    "64 bits": ("n", [1, 2], [1, 2], pa.int32()),
    "too large": ("n", [1, 2**40], [1, 2**40], pa.int64()),
    "fractions": ("n", [1.5, NAN], [1.5, None], pa.float64()),
    "floats": ("f", [0.5, NAN], [0.5, None], pa.float32()),
    "doubles": ("f", [0.1, 0.5], [0.1, 0.5], pa.float64()),
    "no text": ("u", [NAN, NAN], [None, None], pa.string()),
    "no time": ("at", [pd.NaT, pd.NaT], [None, None], pa.timestamp("us", "UTC")),
    "no number": ("p", [NAN, NAN], [None, None], pa.decimal128(10, 2)),
    "no struct": ("s", [NAN, NAN], [None, None], pa.struct([("x", pa.int32())])),
    "other case": ("U", [NAN, "x"], [None, "x"], pa.string()),
}
"""A column, its values in pandas, those of the table, and its type from then on."""


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_what_pandas_makes_of_values_does_not_widen_columns(tmp_path: Path, table_type: str) -> None:
    for number, (name, values, wanted, kind) in enumerate(PANDAS.values()):
        columns = [("n", pa.int32()), ("f", pa.float32()), *((c.name, c.type) for c in KINDS if c.name in "u at p")]
        schema = pa.schema([("id", pa.string()), *columns, ("s", pa.struct([("x", pa.int32())]))])
        table = make(tmp_path / str(number), schema=schema, table_type=table_type)
        nulls = {"hoodie.write.set.null.for.missing.columns": "true"}
        for _ in range(2):
            table.upsert(pd.DataFrame({"id": ["a", "b"], name: values}), options=nulls)
            assert own(table, "id", name.lower()) == list(zip("ab", wanted, strict=True))
            assert table.schema.field(name.lower()).type == kind
        assert table.delete(pd.DataFrame({"id": []})).deleted == 0
        assert table.delete([]).notes == ("there are no rows to write",)


def test_nulls_in_dictionaries_take_the_types_of_the_table(tmp_path: Path) -> None:
    """Also those inside of other values, and in a merge, whose clauses are bound to the types of the source."""
    inner = pa.struct([("a", pa.int32()), ("b", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))])
    columns = [("s", inner), ("l", pa.list_(pa.float32())), ("n", pa.decimal128(9, 2)), ("t", pa.string())]
    table = make(tmp_path, schema=pa.schema([("id", pa.string()), *columns]))
    values = {"s": {"a": 2, "b": None, "m": None}, "l": [None], "n": None, "t": None}
    table.upsert([{"id": "a", **values}])
    table.upsert([{"id": "b", "s": None, "l": None, "n": Decimal(1), "t": "x"}])
    clauses = {name: f"s.{name}" for name in values}
    merge = table.merge([{"id": "b", **values}], "t.id = s.id").when_matched_update(clauses)
    assert merge.execute().updated == 1
    assert table.to_arrow(columns=list(values)).to_pylist() == [values, values]


def test_a_key_that_would_be_that_of_another_row_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k1", pa.string()), ("k2", pa.string())])
    table = make(tmp_path, schema=schema, record_key=["k1", "k2"])
    table.upsert([{"k1": "a,k1:b", "k2": "b:c,d"}, {"k1": "a", "k2": "k2:b"}])
    for row in ({"k1": "a,k2:b", "k2": "c"}, {"k1": "a", "k2": "b,k2:c"}):
        for write in (table.upsert, table.insert, table.bulk_insert, table.delete):
            with pytest.raises(InvalidInputError, match="record key would be 'k1:a,k2:b,k2:c'"):
                write([row])
    assert table.count() == 2


@pytest.mark.parametrize("role", ["record_key", "partition_by"])
def test_a_column_that_has_no_text_is_no_key(tmp_path: Path, role: str) -> None:
    schema = pa.schema([("id", pa.string()), ("b", pa.binary())])
    with pytest.raises(UnsupportedFeatureError, match="table .*: column 'b': a value of type binary cannot be part"):
        make(tmp_path, schema=schema, **{role: "b"})
    with pytest.raises(UnsupportedFeatureError, match="table .*: column 'b': a value of type binary cannot be part"):
        make(tmp_path, schema.empty_table(), **{role: "b"})


KINDS = pa.schema(
    [
        ("id", pa.int32()), ("f", pa.float32()), ("d", pa.float64()), ("p", pa.decimal128(10, 2)), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary()), ("ok", pa.bool_()), ("u", pa.string()),
        ("emb", pa.list_(pa.float32())), ("s", pa.struct([("x", pa.int32()), ("y", pa.decimal128(5, 1))])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)  # fmt: skip
FULL = {
    "id": 1, "f": 1.1, "d": 2, "p": Decimal("1.5"), "day": dt.date(2024, 1, 2), "raw": b"x", "ok": True,
    "at": dt.datetime(2024, 1, 2, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))), "u": uuid.UUID(int=7),
    "emb": [1.1, 2], "s": {"x": 1, "y": 2}, "m": {"a": 1},
}  # fmt: skip


def _kinds(path: Path) -> Table:
    return make(path, schema=KINDS)


def test_values_take_the_types_of_their_columns(tmp_path: Path) -> None:
    table = _kinds(tmp_path)
    empty = {**dict.fromkeys(KINDS.names), "id": 2}
    table.upsert([FULL, empty])
    assert table.schema.types == KINDS.types, "nothing is widened"
    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    f = float(np.float32(1.1))
    assert found[1] == {
        **FULL, "f": f, "d": 2.0, "p": Decimal("1.50"), "u": str(uuid.UUID(int=7)), "emb": [f, 2.0],
        "s": {"x": 1, "y": Decimal("2.0")}, "m": [("a", 1)], "at": dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC),
    }  # fmt: skip
    assert found[2] == empty
    table.upsert([{**FULL, "m": [("b", 2), ("c", None)]}, {**FULL, "id": 3.0, "m": {}}])
    assert [row["m"] for row in table.to_arrow("id <> 2", ["m"]).to_pylist()] == [[("b", 2), ("c", None)], []]


BAD: list[tuple[Any, str]] = [
    ({"id": "1"}, r"one dict is neither rows nor columns; pass \[row\]"),
    ([{1: "x"}], "names of fields are text"),
    ([{**FULL, "idd": 1}], "row 0 has a field 'idd' that the table lacks; did you mean 'id'"),
    ([FULL, {"id": 2}], "row 1 lacks the field 'f', which other rows have; give None, or set hoodie.write.set.null"),
    ([{"id": 1}], "the frame lacks column 'f'"),
    ([FULL, 7], "row 1 is of type int; a list of rows has dictionaries only"),
    ([1, 2], "element 0 of the rows is of type int"),
    ("file.parquet", "str is not a frame: pass a list of dicts"),
    ([{**FULL, "id": 1.5}], "column 'id' is int32, which cannot hold 1.5 exactly"),
    ([FULL, {**FULL, "id": 2**40}], r"'id' is int32; the values cannot be read as that \(row 1 has 1099511627776\)"),
    ([{**FULL, "p": Decimal("1.555")}], r"'p' is decimal128.*cannot be read as that \(row 0 has Decimal\('1.555'\)\)"),
    ([{**FULL, "day": dt.datetime(2024, 1, 2, 5)}], "column 'day' is date32"),
    ([{**FULL, "at": dt.datetime(2024, 1, 2)}, {**FULL, "id": 2}], "column 'at' .* mixes datetimes"),
    ([{**FULL, "at": pd.Timestamp(1, tz="UTC")}], "column 'at' .* has Timestamps with nanoseconds"),
    ([{**FULL, "s": {"x": 1.5, "y": 1}}], "column 's': the field 'x' is int32, and the values have fractions"),
    ([{**FULL, "s": {"x": 1, "y": 1, "z": 1}}, {**FULL, "ok": 1}], "column 'ok' is bool"),
    ([{**FULL, "ok": "yes"}], "'ok'.*bool.*string"),
    ([{**FULL, "m": {"a": 1.5}}], "'m' is int32, which cannot hold 1.5 exactly"),
    ([{**FULL, "u": "x"}, {**FULL, "u": 1}], "column 'u' is string; the values cannot be read"),
    ([TWO, TWO.drop_columns(["n"])], "cannot be read as Arrow"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_what_is_refused(tmp_path: Path, data: Any, message: str) -> None:
    table = _kinds(tmp_path)
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=message):
        table.upsert(data)
    assert table.snapshot().instant is None


def test_missing_fields_are_null_where_the_option_says_so(tmp_path: Path) -> None:
    table = make(tmp_path, schema=ROWS, options={"hoodie.write.set.null.for.missing.columns": "true"})
    table.upsert([{"id": "1", "city": "a"}, {"id": "2", "n": 3}])
    assert own(table) == [("1", "a", None, None), ("2", None, None, 3)]


def test_a_table_without_columns_takes_those_of_the_rows(tmp_path: Path) -> None:
    table = make(tmp_path)
    with pytest.raises(InvalidInputError, match="an empty list has no columns"):
        table.upsert([])
    table.upsert([{"id": "1", "n": 1}])
    assert table.schema == pa.schema([("id", pa.string()), ("n", pa.int64())])


def test_keys_are_not_cut(tmp_path: Path) -> None:
    table = make(tmp_path, pa.table({"id": pa.array([1, 2], pa.int32()), "n": [1, 2]}))
    with pytest.raises(SchemaMismatchError, match="cannot hold 1.5 exactly"):
        table.delete([1.5])
    assert table.delete([1.0]).deleted == 1
