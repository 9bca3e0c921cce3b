"""Calls that are short for a scan, scans as Arrow streams, and hints at calls that users of other formats look for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from lakedex import InvalidInputError, Table
from lakedex.types import META_COLUMNS
from table_kit import ROWS, make, own, rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    data = rows(("1", "a", 1, 1), ("2", "b", 1, 2), ("3", "a", 1, 3))
    return make(tmp_path_factory.mktemp("short") / "t", data, partition_by="city")


def test_short_for_a_scan(table: Table) -> None:
    assert (table.count(), table.count("n > 1"), table.count(as_of=table.snapshot().instant)) == (3, 2, 3)
    assert table.head(2).num_rows == 2
    assert table.head(5, "n > 1", ["id"]).column_names == ["id"]
    for found in (
        table.to_arrow("n > 1", ["id"]).to_pydict(),
        table.to_pandas("n > 1", ["id"]).to_dict("list"),
        table.to_polars("n > 1", ["id"]).to_dict(as_series=False),
    ):
        assert sorted(found["id"]) == ["2", "3"]


def test_the_tables_own_columns_come_first(table: Table) -> None:
    assert table.scan().schema == table.to_arrow().schema == table.changes("earliest").schema == table.schema
    assert table.scan(meta_columns=True).schema.names == [*META_COLUMNS, *ROWS.names]
    assert table.changes("earliest", meta_columns=True).to_arrow().schema.names == [*META_COLUMNS, *ROWS.names]
    assert table.scan(columns=[META_COLUMNS[2], "n"]).to_arrow().schema.names == [META_COLUMNS[2], "n"]


READERS: dict[str, Callable[[Any], pa.Table]] = {
    "pyarrow": pa.table,
    "reader": lambda scan: pa.RecordBatchReader.from_stream(scan).read_all(),
    "polars": lambda scan: pl.DataFrame(scan).to_arrow().cast(scan.schema),
    "duckdb": lambda scan: duckdb.connect().from_arrow(scan).to_arrow_table().cast(scan.schema),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_scan_is_an_arrow_stream(table: Table, read: Callable[[Any], pa.Table], tmp_path: Path) -> None:
    scan = table.scan("n < 3", ["n", "id"])
    assert own(read(scan)) == own(scan.to_arrow()) == [(1, "1"), (2, "2")]
    assert make(tmp_path / "copy", schema=ROWS).upsert(table.scan()).inserted == 3


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("vacuum", r"maintenance\.clean\(\)"), ("optimize", r"maintenance\.rewrite_files\(\)"), ("detail", "print"),
        ("history", r"inspect\.history\(\)"), ("partitions", r"inspect\.partitions\(\)"), ("upser", "upsert"),
        ("load_as_version", "as_of=instant"), ("zzz", "has no 'zzz'$"), ("__array__", "has no '__array__'$"),
    ],
)  # fmt: skip
def test_names_of_other_formats(table: Table, name: str, call: str) -> None:
    with pytest.raises(AttributeError, match=f"^Table has no '{name}'.*{call}|^Table {call}"):
        getattr(table, name)
    assert not hasattr(table, name)


def test_hints_elsewhere(table: Table) -> None:
    with pytest.raises(AttributeError, match=r"Inspect has no 'data_files'; use files\(\)"):
        _ = table.inspect.data_files  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"Table\.open\('/tmp/t'\)"):
        Table("/tmp/t")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"as_of=0 is a int; give .* table\.inspect\.history\(\)"):
        table.scan(as_of=0)  # type: ignore[arg-type]
