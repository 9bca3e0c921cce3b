"""How a table shows itself: card, history, inspect."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from samples import all_types

from lakedex import Table
from table_kit import ROWS, base_files, make, rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("show") / "trips"
    table = make(found, rows(("1", "a", 1, 1), ("2", "b", 1, 2)), partition_by="city", ordering_by="ts")
    table.upsert(rows(("1", "a", 2, 5), ("3", "a", 1, 3), ("4", "c", 1, 3)))
    table.delete(where="id = '2'")
    return found


def test_card(path: Path) -> None:
    table = Table.open(path)
    assert repr(table) == f"Table({str(path)!r}, engine=local)"
    card = str(table)
    for line in (
        "table trips: 3 files, ",
        "record key    id",
        "partition by  city",
        "ordering by   ts",
    ):
        assert line in card
    assert "commits       3, newest " in card
    assert "columns       4: id, city, ts, n" in card
    html = table._repr_html_()
    assert html.startswith("<div")
    assert "trips" in html


def test_card_of_an_empty_table(tmp_path: Path) -> None:
    card = str(make(tmp_path / "t<b>".replace("<b>", "b")))
    assert "commits       0, newest –" in card
    assert "ordering by   –" in card
    wide = make(tmp_path / "wide", schema=pa.schema([("id", pa.string()), *((f"c{n}", pa.int32()) for n in range(20))]))
    assert "columns       21: id, c0, c1, c2, c3, c4, c5, c6 …" in str(wide)


def test_history(path: Path) -> None:
    table = Table.open(path)
    found = table.inspect.history().to_pylist()
    assert [row["operation"] for row in found] == ["DELETE", "UPSERT", "UPSERT"]
    assert [row["action"] for row in found] == ["commit"] * 3
    assert [row["total_records_written"] for row in found] == [0, 3, 2]
    assert [row["total_update_records_written"] for row in found] == [0, 1, 0]
    assert [row["total_files_added"] for row in found] == [0, 1, 2]
    assert [row["total_files_updated"] for row in found] == [1, 1, 0]
    assert [row["total_partitions_written"] for row in found] == [1, 2, 2]
    assert all(row["commit_time"] < row["state_transition_time"] for row in found)
    assert [row["total_errors"] for row in found] == [0] * 3
    assert table.inspect.history(limit=1).num_rows == 1
    assert table.inspect.history(1).column("commit_time").to_pylist() == [found[0]["commit_time"]]
    assert make(path.parent / "empty").inspect.history().num_rows == 0


def test_inspect_files(path: Path) -> None:
    found = Table.open(path).inspect.files().to_pylist()
    assert [row["partition"] for row in found] == ["city=a", "city=b", "city=c"]
    for row in found:
        file = f"{row['partition']}/{row['file_name']}"
        assert file in base_files(path)
        assert row["size"] == (path / file).stat().st_size
        assert row["file_name"].startswith(row["file_id"])
        assert row["file_name"].endswith(f"_{row['instant']}.parquet")


def test_inspect_column_stats(path: Path) -> None:
    found = Table.open(path).inspect.column_stats()
    rows_of_n = {row["partition"]: row for row in found.to_pylist() if row["column_name"] == "n"}
    # The emptied file of city=b has no record, nor have older slices.
    assert set(rows_of_n) == {"city=a", "city=c"}
    row = rows_of_n["city=a"]
    assert (row["min_value"], row["max_value"], row["null_count"], row["value_count"]) == ("3", "5", 0, 2)
    assert row["total_size"] > 0
    assert found.num_rows == 2 * 7


def test_inspect_shows_bounds_as_text(tmp_path: Path) -> None:
    table = make(tmp_path, all_types(local_timestamp=True).slice(0, 2), record_key="key")
    found = {
        row["column_name"]: (row["min_value"], row["max_value"]) for row in table.inspect.column_stats().to_pylist()
    }
    assert found["money"] == ("-99999999.99", "1.25")
    assert found["day"] == ("1899-12-31", "1970-01-01")
    assert found["moment"] == ("1950-01-01 00:00:00.000001Z", "2020-01-02 03:04:05.678901Z")
    assert found["ntz"] == ("1950-01-01 00:00:00.000000", "2020-01-02 03:04:05.678901")
    assert found["flag"] == ("False", "True") or found["flag"] == ("false", "true")
    assert found["bytes"] == ("", "00ff")
    assert found["text"] == ("", "Zürich 😀")
    assert found["small"] == (str(-(2**31)), "1")
    assert math.isclose(float(found["double"][1] or ""), 0.1)


def test_inspect_bloom_filters(path: Path) -> None:
    table = Table.open(path)
    found = table.inspect.bloom_filters().to_pylist()
    assert [row["partition"] for row in found] == ["city=a", "city=b", "city=c"]
    files = table.inspect.files().column("file_name").to_pylist()
    for row in found:
        assert row["file_name"] in files
        assert row["type"] == "DYNAMIC_V0"
        assert row["hashes"] > 0
        assert row["bits"] > 0
        assert row["bytes"] > 0
    assert found[0]["instant"] == table.inspect.history().column("commit_time").to_pylist()[1]


def test_inspect_timeline(path: Path) -> None:
    found = Table.open(path).inspect.timeline().to_pylist()
    assert [row["action"] for row in found] == ["commit"] * 3
    assert {row["state"] for row in found} == {"COMPLETED"}
    assert [row["requested"] for row in found] == sorted(row["requested"] for row in found)


def test_inspect_without_indexes(tmp_path: Path) -> None:
    options = {
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.bloom.filter.enable": "false",
    }
    inspect = make(tmp_path, rows(("1", "a", 1, 1)), options=options).inspect
    assert inspect.column_stats().num_rows == 0
    assert inspect.bloom_filters().num_rows == 0
    assert inspect.files().num_rows == 1
    empty = make(tmp_path / "empty", schema=ROWS).inspect
    assert [view().num_rows for view in (empty.files, empty.column_stats, empty.bloom_filters, empty.timeline)] == [
        0
    ] * 4
