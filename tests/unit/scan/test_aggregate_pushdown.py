"""What a scan gives without Spark: streams, limits, frames of other libraries."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import all_types

from lakedex import Table
from lakedex.errors import InvalidInputError, MissingDependencyError
from table_kit import OWN_FILE, make, own, rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six files of one row group each, ``n`` 0..11, and a large one of a dozen."""
    made = make(tmp_path_factory.mktemp("answers") / "t", partition_by="city", options=OWN_FILE)
    for n in range(0, 12, 2):
        made.insert(rows((f"k{n:02d}", "abc"[n % 3], 1, n), (f"k{n + 1:02d}", "abc"[n % 3], 1, n + 1)))
    made.insert(rows(*((f"m{n:04d}", "m", 1, n) for n in range(3000))))
    (large,) = (Path(made.path) / "city=m").glob("*.parquet")
    pq.write_table(pq.read_table(large, partitioning=None), large, row_group_size=250)
    return made


def test_order_is_that_of_files_and_rows(table: Table) -> None:
    found = table.scan(columns=["id"]).to_arrow().column("id").to_pylist()
    one_thread = table.scan(columns=["id"])
    object.__setattr__(one_thread, "threads", 1)
    assert found == one_thread.to_arrow().column("id").to_pylist()
    assert [name for name in found if name[0] == "m"] == [f"m{n:04d}" for n in range(3000)]
    for _ in range(3):
        assert table.scan(columns=["id"]).to_arrow().column("id").to_pylist() == found


def test_batches_are_a_stream(table: Table) -> None:
    batches = table.scan("city = 'm'", ["n"]).to_batches()
    first = next(batches)
    assert first.schema.names == ["n"]
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakedex-scan")]
    assert pa.Table.from_batches(table.scan().to_batches()).num_rows == 3012
    assert list(table.scan("n < 0").to_batches()) == []


def test_row_groups_of_few_files_are_read_in_threads(table: Table) -> None:
    found = table.scan("city = 'm' and n >= 990 and n < 1010").explain(analyze=True)
    assert (found.row_groups_skipped, found.row_groups) == (10, 2)
    assert (found.rows_matched, found.rows_read) == (20, 500)
    scan = table.scan("city = 'm' and n >= 1000", ["n"])
    assert scan.to_arrow().column("n").to_pylist() == list(range(1000, 3000))


def test_limits(table: Table) -> None:
    everything = table.scan(columns=["id"]).to_arrow()
    for limit in (0, 1, 5, 11, 2000, 3012, 9999):
        assert table.scan(columns=["id"], limit=limit).to_arrow() == everything.slice(0, limit)
        assert table.scan(limit=limit).count() == min(limit, 3012)
        assert table.scan("n >= 0").limit(limit).count() == min(limit, 3012)
    assert table.scan("n < 2").limit(3).limit(7).to_arrow().num_rows == 3
    assert table.scan(limit=7).limit(3).max_rows == 3
    assert table.scan("n = -1", limit=3).to_arrow().num_rows == 0
    with pytest.raises(InvalidInputError, match="limit"):
        table.scan(limit=-1)


def test_a_limit_ends_the_reading(table: Table) -> None:
    storage = table.context.files.storage

    def bytes_read(limit: int | None) -> int:
        scan = table.scan(columns=["id", "n"], limit=limit)
        object.__setattr__(scan, "threads", 1)
        scan.plan()
        before = storage.counted.copy()
        scan.to_arrow()
        return (storage.counted - before).bytes_read

    assert 0 < bytes_read(1) < bytes_read(None) / 4
    assert bytes_read(0) < bytes_read(1)


def test_no_columns_keep_the_rows(table: Table) -> None:
    found = table.scan(columns=[]).to_arrow()
    assert (found.num_rows, found.num_columns) == (3012, 0)
    assert table.scan("n = 3 and city <> 'm'", []).to_arrow().num_rows == 1
    assert table.scan(columns=[], limit=5).to_arrow().num_rows == 5
    assert len(table.scan(columns=[]).to_pandas()) == 3012
    assert sum(batch.num_rows for batch in table.scan(columns=[]).to_batches()) == 3012


def test_frames_of_other_libraries(tmp_path: Path) -> None:
    data = all_types(local_timestamp=True)
    table = make(tmp_path, data, record_key="key")
    arrow = table.scan(columns=data.schema.names).to_arrow()
    frame = table.scan(columns=data.schema.names).to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert (
        frame.select("key", "large", "text", "money").to_arrow().to_pylist()
        == arrow.select(["key", "large", "text", "money"]).to_pylist()
    )
    assert frame["place"].to_list()[2]["x"] == 3
    relation = table.scan("ts > 1").to_duckdb()
    assert relation.filter("small is null").fetchall()[0][relation.columns.index("key")] == "k4"
    assert relation.count("*").fetchall() == relation.count("*").fetchall() == [(3,)]
    with duckdb.connect() as connection:
        mine = table.scan(columns=["key", "day"]).to_duckdb(connection)
        assert mine.order("key").fetchall()[0][0] == "k1"
    assert table.scan(columns=["key", "large"]).to_pandas()["key"].tolist() == ["k1", "k2", "k3", "k4"]


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_a_missing_library_is_named(table: Table, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'lakedex\[{package}\]'") as caught:
        getattr(table.scan(), f"to_{package}")()
    assert caught.value.extra == package


def test_an_empty_table(tmp_path: Path) -> None:
    table = make(tmp_path, schema=rows().schema)
    assert table.scan().to_arrow().num_rows == table.scan(limit=3).count() == 0
    assert table.scan().to_polars().shape == (0, 4)
    assert table.scan().explain(analyze=True, verify="full").rows_read == 0
    assert own(table.changes("earliest").to_arrow()) == []
