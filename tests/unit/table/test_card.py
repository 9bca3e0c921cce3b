"""The card of a table and the page of a report, also of tables that are damaged or of which an index lacks files."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pyarrow as pa
import pytest

from lakedex import Table
from lakedex.errors import InvalidInputError
from table_kit import make, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = make(tmp_path / "t", rows(("1", "a", 1, 1), ("2", "b", 1, 2)), partition_by="city", comment="<i>bikes</i>")
    table.indexes.create("bitmap", ["n"], name="by_n")
    return table


def words(html: str) -> str:
    """The text of a page."""
    return unescape(re.sub("<style>.*?</style>|<[^>]*>", " ", html))


def test_the_card_says_what_a_table_lacks(table: Table) -> None:
    text = str(table)
    assert "commits: █  1 upsert" in text and "city=a 1 file, " in text and "<i>bikes</i>" in text
    assert re.search(r"by_n +bitmap +n +complete$", text, re.MULTILINE)
    table.indexes.create("bitmap", ["ts"], name="half", partitions={"city": "a"})
    assert re.search(r"partial: 1 of 2 files covered +table.indexes.refresh\('half'\)$", str(table), re.MULTILINE)
    (Path(table.path) / ".hoodie/metadata/column_stats").rename(Path(table.path) / "gone")
    again = str(Table.open(table.path))
    assert "table.maintenance.rebuild_metadata()" in again


@pytest.mark.parametrize("name", ["nothing/t.html", "."])
def test_a_report_needs_a_file_in_a_folder(table: Table, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is no file in a folder that exists; say report\('table.html'\)"):
        table.report(tmp_path / name)


def test_a_report_has_everything(table: Table, tmp_path: Path) -> None:
    (tmp_path / "t.html").write_text("old")
    path = table.report(tmp_path / "t.html", ["n > 1"])
    assert path == str(tmp_path / "t.html")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["t", "t.html"]
    page = Path(path).read_text("utf-8")
    assert "default-src 'none'" in page and "<i>bikes" not in page
    text = words(page)
    for part in (
        "table t", "metadata agrees with the files", "scan of t", "n > 1", "advice for t", "index column_stats",
        "index by_n", "history of t", "partitions of t", "files of t", "column statistics of t", "savepoints of t",
    ):  # fmt: skip
        assert part in text
    with pytest.raises(InvalidInputError):
        table.report(tmp_path / "t.html", ["nothing = 1"])
    assert Path(path).read_text("utf-8") == page


def test_a_report_of_a_damaged_table_says_what_is_damaged(table: Table, tmp_path: Path) -> None:
    (Path(table.path) / ".hoodie/.index_defs/bitmap_index.json").write_text("{")
    for file in Path(table.path).rglob("*.parquet"):
        if ".hoodie" not in file.parts:
            file.unlink()
    text = words(Path(Table.open(table.path).report(tmp_path / "t.html")).read_text("utf-8"))
    assert "not readable" in text and "bitmap_index.json: corrupt at byte 1" in text and "history of t" in text


def test_a_table_without_commits(tmp_path: Path) -> None:
    table = make(tmp_path / "t", schema=pa.schema([("id", pa.string())]))
    assert "commits       0, newest –" in str(table) and "0 files" in str(table)
    assert "history of t" in words(Path(table.report(tmp_path / "t.html")).read_text("utf-8"))
