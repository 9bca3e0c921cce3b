"""The examples of the documentation that need no Spark run as they stand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from documentation import run_blocks
from lakedex import Table
from tool_modules import loaded


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_first_pages_without_spark(page: str, tmp_path: Path) -> None:
    run_blocks(page, tmp_path, until="\n## With Spark")


@pytest.mark.parametrize("page", ["first_table", "csv_to_index", "find_rows"])
def test_tutorials_without_spark(page: str, tmp_path: Path) -> None:
    run_blocks(f"docs/tutorials/{page}.md", tmp_path)


@pytest.mark.parametrize("page", ["docs/writing.md", "docs/queries.md", "docs/bitmap_index.md", "docs/results.md"])
def test_examples_of_the_other_pages(page: str, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": ["t1", "t2", "t3"],
            "city": ["sf", "oslo", "sf"],
            "gender": ["female", "male", "female"],
            "commute_type": ["car", "bus", "bike"],
            "fare": [17.5, 9.0, 24.0],
            "ts": [1, 1, 1],
        }
    )
    table = Table.create(tmp_path / "trips", rows.schema, record_key="id", partition_by="city", ordering_by="ts")
    table.upsert(rows)
    df = rows.set_column(5, "ts", pa.array([2, 2, 2]))
    run_blocks(page, tmp_path, {"t": table, "df": df, "dim": rows.select(["gender"]).slice(0, 1)})


def test_the_page_of_options_is_up_to_date() -> None:
    """``python tools/options_page.py`` makes it."""
    made = loaded("options_page")
    assert made.PAGE.read_text(encoding="utf-8") == made.options_page()
