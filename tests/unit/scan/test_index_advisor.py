"""Advice: columns that an index serves are told from those that bounds serve, or nothing does (R151)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError
from lakedex.scan import index_advisor as advising
from lakedex.scan import index_advisor as sample
from limits import Limits
from table_kit import OWN_FILE, make

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("shop", pa.string()),
        ("sorted", pa.int32()),
        ("coin", pa.string()),
        ("unique", pa.int64()),
        ("same", pa.string()),
        ("list", pa.list_(pa.int32())),
    ]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six files: each has a few shops of all between the first and the last, a range of ``sorted``, and both coins."""
    made = make(
        tmp_path_factory.mktemp("advise") / "t", schema=SCHEMA, record_key="id", partition_by="p", options=OWN_FILE
    )
    rng = np.random.default_rng(1)
    for part in range(6):
        rows = 300
        shops = ["shop00", "shop99", f"shop{part + 10}", f"shop{part + 20}"]
        data = {
            "id": np.arange(part * rows, (part + 1) * rows),
            "p": [f"p{part % 2}"] * rows,
            "shop": [shops[v] for v in rng.choice(4, rows, p=[0.01, 0.01, 0.49, 0.49])],
            "sorted": np.arange(part * rows, (part + 1) * rows) // 10,
            "coin": [("head", "tail", None)[v] for v in rng.integers(0, 3, rows)],
            "unique": rng.permutation(rows) + part * 7,
            "same": ["x"] * rows,
            "list": [[1]] * rows,
        }
        made.bulk_insert(pa.table([pa.array(data[f.name], f.type) for f in SCHEMA], schema=SCHEMA))
    return made


def test_columns_are_judged_by_their_values(table: Table, limits: Limits) -> None:
    limits(advising, DEFAULT_MAX_DISTINCT=100)
    advice = table.indexes.advise()
    by_name = {one.column: one for one in advice.columns}
    assert set(by_name) == {"id", "p", "shop", "sorted", "coin", "unique", "same"}, "lists have no bitmaps"
    assert advice.recommended == ("shop",) and advice.columns[0].column == "shop"
    shop = by_name["shop"]
    assert (
        shop.reason.startswith("yes: leaves out ") and 0.7 < shop.files_dropped < 0.84 and shop.distinct_per_file == 4
    )
    assert shop.bytes_saved > 0.5 * table.scan().plan().bytes_total
    assert by_name["sorted"].reason.startswith("no: column_stats already prune it (8")
    assert by_name["unique"].reason == "no: 300 distinct values in a file; 6 of 6 files would not be indexed"
    assert by_name["coin"].reason.startswith("no: its values are in nearly all row groups")
    assert by_name["same"].reason == "no: one value a file"
    assert shop.index_bytes_per_row > by_name["same"].index_bytes_per_row > 0 and shop.build_seconds > 0
    assert (advice.files_sampled, advice.files_total, advice.rows_sampled) == (6, 6, 1800)
    text = str(advice)
    assert "6 of 6 files, 1,800 rows" in text and "yes: leaves out" in text and repr(advice) == text
    assert advice.to_arrow().column("column").to_pylist()[0] == "shop"
    assert advice.to_dict()["columns"][0]["index"] is True and "shop" in advice._repr_html_()


def test_columns_are_judged_by_queries(table: Table) -> None:
    """What bitmaps really drop for the queries is what was forecast."""
    queries = ["shop = 'shop12'", "shop in ('shop21', 'shop13') and coin = 'head'", "id < 10", "sorted = 7"]
    advice = table.indexes.advise(queries=queries)
    by_name = {one.column: one for one in advice.columns}
    assert set(by_name) == {"shop", "coin", "id", "sorted"} and advice.queries == 4
    assert advice.recommended == ("shop",)
    assert (by_name["shop"].queries, by_name["coin"].queries) == (2, 1)
    assert by_name["shop"].files_dropped == pytest.approx((5 / 6 + 4 / 6) / 4)
    assert by_name["sorted"].bytes_saved == 0 and "column_stats already prune it" in by_name["sorted"].reason
    assert table.indexes.advise(["same"], queries).columns[0].reason.startswith("no: no query asks")
    with pytest.raises(InvalidInputError, match="no column 'q'"):
        table.indexes.advise(["q"])
    with pytest.raises(InvalidInputError, match="list of names"):
        table.indexes.advise("shop")


def test_the_sample_is_bounded(table: Table, limits: Limits, tmp_path: Path) -> None:
    limits(advising, MAX_FILES=3)
    advice = table.indexes.advise(["shop"])
    assert (advice.files_sampled, advice.rows_sampled) == (3, 900)
    limits(advising, MAX_ROWS=500)
    assert table.indexes.advise(["shop"]).files_sampled == 1
    empty = make(tmp_path / "empty", schema=SCHEMA, record_key="id")
    assert [one.reason for one in empty.indexes.advise(["shop"]).columns] == ["no: the table has no files"]


def test_equality_shares_are_those_of_each_value(table: Table) -> None:
    """The forecast of equality is the average over the rows' values of what a query for each leaves."""
    snapshot = table.snapshot()
    files = snapshot.base_files()
    rows = table.scan(meta_columns=True).to_arrow()
    column = advising.find_column("shop", snapshot.schema, case_sensitive=True)
    with sample.sampled(snapshot.files, snapshot.schema, files, {"shop": (column, 99)}) as made:
        found = made.equality("shop")
    assert found is not None
    of_file: dict[str, set[str]] = {}
    for shop, file in zip(rows["shop"].to_pylist(), rows["_hoodie_file_name"].to_pylist(), strict=True):
        of_file.setdefault(file, set()).add(shop)
    kept = [sum(shop in own for own in of_file.values()) for shop in rows["shop"].to_pylist()]
    assert found[1].files == pytest.approx(np.mean(kept) / 6)
    within = [sum(min(own) <= shop <= max(own) for own in of_file.values()) for shop in rows["shop"].to_pylist()]
    assert found[0].files == pytest.approx(np.mean(within) / 6)
