"""Cards as text, and tables that print."""

from __future__ import annotations

import copy
import pickle

import pyarrow as pa
import pytest

from lakedex.display.blocks import (
    Bars,
    Block,
    Card,
    Code,
    Command,
    Facts,
    Funnel,
    Grid,
    Mark,
    Meter,
    Notice,
    Notices,
    Strip,
    cut,
    cut_cell,
)
from lakedex.display.result_table import Column, ResultTable
from lakedex.display.text import aligned, card_text

BLOCKS: list[tuple[Block, str]] = [
    (Facts([("a", "1"), ("long", "2")]), "a     1\nlong  2"),
    (Facts([]), ""),
    (Grid(["x", "n"], [["a", "5"], ["bb", Meter("1,000", 0.5)]], numbers=["n"]), "x       n\na       5\nbb  1,000"),
    (Grid(["x"], [["a"]], title="t", total=3, more="m"), "t:\n  x\n  a\n  … 2 more (m)"),
    (Grid(["x"], []), ""),
    (Grid(["x", "none"], [["a", ""], ["b", Command("")]]), "x\na\nb"),
    (Funnel("lookup", [("files", 5), ("after ranges", 2)], "3 keys"), "lookup: 5 files → 2 after ranges; 3 keys"),
    (
        Bars("time", [("write", 1.0, "1.0 s"), ("commit", 0.5, "0.5 s")], 4),
        "time: write 1.0 s · commit 0.5 s · … 4 more",
    ),
    (Strip("commits", [Mark("upsert", 0.0, ""), Mark("delete", 1.0, "")]), "commits: ▁█  1 upsert, 1 delete"),
    (Notices([Notice("a\nb"), Notice("c", "error", "bad")]), "note: a\\nb\nerror: c"),
    (Notices([Notice("x")] * 21, "found", 4, "all"), "found:\n" + "  note: x\n" * 20 + "  … and 5 more (all)"),
    (Code("f()\ng()", "do"), "do:\n  f()\n  g()"),
]


@pytest.mark.parametrize(("block", "text"), BLOCKS)
def test_blocks(block: Block, text: str) -> None:
    expected = "".join(f"\n  {line}" for line in text.split("\n")) if text else ""
    assert card_text(Card("title", "head", [block])) == f"title: head{expected}"


@pytest.mark.parametrize(
    ("text", "end", "middle"),
    [
        ("short", "short", "short"),
        ("a long sentence", "a long se…", "a long se…"),
        ("abcdefghijklmnop", "abcdefghi…", "abc…klmnop"),
        ("x" * 10_000 + "y", "x" * 9 + "…", "xxx…xxxxxy"),
    ],
)
def test_long_texts_are_cut(text: str, end: str, middle: str) -> None:
    assert (cut(text, 10), cut_cell(text, 10)) == (end, middle)


def test_columns_that_do_not_fit_are_named() -> None:
    grid = Grid(["a", "b", "c"], [["1" * 10, "2" * 10, "3" * 10]])
    assert aligned(grid, 25)[-1] == "… 1 more columns: c"
    assert len(aligned(grid)) == 2


ROWS = pa.table({"name": ["a", None], "size": [1024, 5], "at": ["20261129074011021", "x"], "yes": [True, False]})
SHOWN = {"size": Column(kind="size"), "at": Column("when", kind="time"), "yes": Column(shown=False)}


def test_a_table_prints() -> None:
    table = ResultTable(ROWS, "rows", SHOWN)
    assert str(table).split("\n") == [
        "name     size  when",
        "a     1.0 KiB  2026-11-29 07:40:11",
        "–         5 B  x",
    ]
    assert repr(ResultTable(ROWS.slice(0, 0), "rows")) == "rows: no rows"
    assert "2026-11-29" in table._repr_html_()
    many = ResultTable(pa.table({"n": range(1000)}))
    assert str(many).split("\n")[-1] == "… 980 more (to_pandas() has all)"


def test_a_table_is_an_arrow_table_to_others() -> None:
    table = ResultTable(ROWS, "rows", SHOWN)
    assert pa.table(table) == ROWS == table.to_arrow()
    assert table.num_rows == len(table) == 2 and table.schema == ROWS.schema
    assert table["name"].to_pylist() == table.column("name").to_pylist() == ["a", None]
    assert table.select(["name"]).to_pylist() == [{"name": "a"}, {"name": None}]
    assert table == ROWS and table == ResultTable(ROWS) and table != ROWS.select(["name"])
    assert "to_pandas" in dir(table) and "card" in dir(table)
    assert pickle.loads(pickle.dumps(table)) == copy.copy(table) == table
    with pytest.raises(AttributeError):
        _ = table.nothing
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(table).shape == (2, 4)
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.from_arrow(pa.table(table)).fetchall()[0][0] == "a"
