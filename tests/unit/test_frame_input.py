"""What users hand over, as Arrow."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakedex.arrow_types import as_table, normal_schema
from lakedex.errors import InvalidInputError

pytestmark = pytest.mark.smoke  # Also with pandas 3, which the environment of Spark 4.1 has.

NAIVE, ZONED = dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))


@pytest.mark.parametrize(
    "values",
    [[NAIVE, ZONED], [ZONED, NAIVE], [dt.date(2024, 1, 1), NAIVE], [[NAIVE], [ZONED]], [{"a": NAIVE}, {"a": ZONED}]],
    ids=str,
)
def test_mixed_times_of_pandas_are_refused_by_column(values: list[Any]) -> None:
    frame = pd.DataFrame({"id": [1, 2], "at": pd.Series(values, dtype=object)})
    with pytest.raises(InvalidInputError, match="column 'at' of the pandas frame mixes date.* and datetimes") as caught:
        as_table(frame)
    assert caught.value.column == "at"  # type: ignore[attr-defined]


def test_times_of_one_kind_are_read() -> None:
    columns = {"n": [NAIVE, None], "z": [ZONED, pd.NaT], "d": [dt.date(2024, 1, 1), None]}
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    found = as_table(frame)
    assert found.to_pylist()[0] == {"n": NAIVE, "z": ZONED, "d": dt.date(2024, 1, 1)}
    assert found.to_pylist()[1] == {"n": None, "z": None, "d": None}


@pytest.mark.parametrize(
    "values", [[2**63], [2**64], [1, "a"], [dt.datetime(2024, 1, 1), dt.date(2024, 1, 1)]], ids=str
)
def test_what_pandas_holds_and_arrow_cannot_is_refused_by_column(values: list[Any]) -> None:
    with pytest.raises(InvalidInputError, match="column 'c' of the pandas frame") as caught:
        as_table(pd.DataFrame({"id": range(len(values)), "c": pd.Series(values, dtype=object)}))
    assert caught.value.column == "c"  # type: ignore[attr-defined]


def test_an_index_with_a_name_is_a_column() -> None:
    frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index(["a", "b"], name="id"))
    assert as_table(frame).to_pydict() == {"id": ["a", "b"], "v": [1, 2]}
    levels = pd.MultiIndex.from_tuples([("a", 0, 1), ("b", 0, 2)], names=["id", None, "n"])
    assert as_table(pd.DataFrame({"v": [1, 2]}, index=levels)).to_pydict() == {
        "id": ["a", "b"],
        "n": [1, 2],
        "v": [1, 2],
    }
    assert as_table(pd.DataFrame({"v": [1, 2]})[1:]).to_pydict() == {"v": [2]}
    with pytest.raises(InvalidInputError, match="a column and a level of the index named 'v'"):
        as_table(pd.DataFrame({"v": [1]}, index=pd.Index([1], name="v")))


def test_columns_with_one_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two columns named '1'"):
        as_table(pd.DataFrame([[1, 2]], columns=[1, "1"]))


def test_types_are_told_as_tables_have_them() -> None:
    kinds: list[tuple[pa.DataType, pa.DataType]] = [
        (pa.uint8(), pa.int32()), (pa.uint16(), pa.int32()), (pa.uint32(), pa.int64()), (pa.uint64(), pa.int64()),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)), (pa.decimal256(60, 3), pa.decimal128(38, 3)),
        (pa.decimal128(5, -2), pa.decimal128(7, 0)), (pa.uuid(), pa.string()), (pa.null(), pa.null()),
        (pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("us", "UTC")), (pa.date64(), pa.date32()),
        (pa.dictionary(pa.uint8(), pa.string_view()), pa.string()), (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int8()),
        (pa.large_list_view(pa.binary_view()), pa.list_(pa.field("element", pa.binary()))),
        (pa.json_(), pa.string()),
    ]  # fmt: skip
    found = normal_schema(pa.schema([(f"c{n}", kind) for n, (kind, _) in enumerate(kinds)]))
    assert found.types == [kind for _, kind in kinds]
    for kind in (pa.time64("us"), pa.duration("s"), pa.list_(pa.month_day_nano_interval())):
        with pytest.raises(InvalidInputError, match="column 'c.*which a table cannot hold"):
            normal_schema(pa.schema([("c", kind)]))


def test_polars_is_read_with_its_categories() -> None:
    frame = pl.DataFrame(
        {
            "c": pl.Series(["x", None], dtype=pl.Categorical),
            "e": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
            "u": pl.Series([1, 2**32 - 1], dtype=pl.UInt32),
            "l": pl.Series([[1], None], dtype=pl.List(pl.UInt8)),
            "n": pl.Series([None, None], dtype=pl.Null),
        }
    )
    assert normal_schema(as_table(frame).schema).types == [
        pa.string(), pa.string(), pa.int64(), pa.list_(pa.field("element", pa.int32())), pa.null()
    ]  # fmt: skip
    assert as_table(pd.DataFrame({"a": np.array([1, 2], np.uint64)})).schema.types == [pa.uint64()]


def test_objects_of_pandas_that_would_lose_something_are_refused() -> None:
    fine = pd.Timestamp("2020-01-01T00:00:00.123456789")
    for values in ([fine], [None, fine], [{"t": [fine]}], [fine.tz_localize("UTC")]):
        with pytest.raises(InvalidInputError, match="column 'c' of the pandas frame has Timestamps with nanoseconds"):
            as_table(pd.DataFrame({"c": pd.Series(values, dtype=object)}))
    with pytest.raises(InvalidInputError, match="column 'c' has pandas periods"):
        normal_schema(as_table(pd.DataFrame({"c": pd.period_range("2020", periods=2, freq="Y")})).schema)
