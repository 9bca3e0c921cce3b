"""Answers from a bitmap index: right, without data files where it covers them, and said in the plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bitmaps_by_hand import put_bitmaps
from golden_tables import MERGE_ON_READ, unpack
from lakedex import Table
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.parser import bind
from lakedex.index.bitmap.run_files import BITMAP_FOLDER
from lakedex.scan import aggregate_pushdown as answers
from lakedex.scan.aggregate_pushdown import AggregatePlan, answer_aggregates
from lakedex.scan.aggregation import find_column
from lakedex.scan.scan import Scan
from table_kit import OWN_FILE, base_files, make

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("g", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("free", pa.int32()),
    ]
)


def data(first: int, rows: int, p: str) -> pa.Table:
    ids = range(first, first + rows)
    columns: list[list[Any]] = [
        list(ids),
        [p] * rows,
        [["m", "f", None][i % 3] for i in ids],
        [i % 5 if i % 7 else None for i in ids],
        [[0.0, -0.0, float("nan"), 2.5][i % 4] for i in ids],
        [i % 2 for i in ids],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _made(path: Path) -> Table:
    """Four files of two partitions, 60 rows each; the last one is not covered."""
    made = make(path, schema=SCHEMA, record_key="id", partition_by="p", options=OWN_FILE)
    for first in (0, 120):
        made.bulk_insert(pa.concat_tables([data(first, 60, "a"), data(first + 60, 60, "b")]))
    return made


@pytest.fixture
def table(once: Callable[..., Table], tmp_path: Path) -> Table:
    return once(_made, tmp_path / "t")


def scan(table: Table, where: str | None = None) -> Scan:
    return replace(table.scan(where), cost_gate=False)


def lose_data(table: Table) -> None:
    for name in base_files(Path(table.path)):
        (Path(table.path) / name).unlink()


def sources(plan: AggregatePlan) -> dict[str, int]:
    names = ("ruled_out", "by_counts", "by_bitmaps", "by_footers", "scanned", "not_asked")
    return {name: getattr(plan, name) for name in names if getattr(plan, name)}


def test_all_of_it_without_a_data_file(table: Table) -> None:
    """R94, R143–R145: with the data files gone, the index still has each answer."""
    put_bitmaps(table, "g", "n", "x")
    rows = table.scan().to_arrow().to_pylist()
    lose_data(table)
    assert scan(table).count() == 240
    assert scan(table, "g = 'm'").count() == 80
    assert scan(table, "g = 'm' and n > 2").count() == sum(r["g"] == "m" and (r["n"] or 0) > 2 for r in rows)
    assert scan(table, "p = 'a' and g is null").count() == 40
    assert scan(table, "not (g = 'm' or n = 1)").count() == sum(r["g"] == "f" and r["n"] not in (1, None) for r in rows)
    by_n = scan(table).count_by("n")
    assert by_n.schema == pa.schema([("n", pa.int32()), ("count", pa.int64())])
    assert by_n.column("n").to_pylist() == [None, 0, 1, 2, 3, 4]
    assert by_n.column("count").to_pylist() == [Counter(r["n"] for r in rows)[v] for v in (None, 0, 1, 2, 3, 4)]
    both = scan(table, "n = 3").count_by("g", "n")
    assert both.to_pylist() == [
        {"g": g, "n": 3, "count": sum(r["g"] == g and r["n"] == 3 for r in rows)} for g in (None, "f", "m")
    ]
    assert (scan(table).count_distinct("g"), scan(table).count_distinct("x")) == (2, 3)
    assert (scan(table).min("n"), scan(table).max("n"), scan(table, "g = 'zz'").max("n")) == (0, 4, None)
    assert scan(table).max("x") != scan(table).max("x"), "NaN is the greatest"
    assert scan(table).min("x") == 0
    assert scan(table, "g = 'f' and n = 4").exists() and not scan(table, "g = 'q'").exists()
    with pytest.raises(FileNotFoundError):
        scan(table, "free = 1").count()


def test_the_plan_says_what_came_from_where(table: Table) -> None:
    put_bitmaps(table, "g", "n", uncovered=[3], limits={0: 2})
    counted = scan(table, "g = 'm'").explain(answer="count")
    assert sources(counted) == {"by_counts": 3, "scanned": 1}
    assert (counted.rows_scanned, counted.from_index) == (60, False)
    both = scan(table, "g = 'm' and n = 3").explain(answer="count")
    assert sources(both) == {"by_bitmaps": 2, "scanned": 2}, "one file has too many values of n"
    assert sources(scan(table).explain(answer="count")) == {"by_counts": 3, "by_footers": 1}
    assert sources(scan(table, "g = 'zz'").explain(answer="count_by", columns="n")) == {}, "column stats drop them all"
    assert sources(scan(table, "g = 'ff'").explain(answer="count_by", columns="n")) == {"ruled_out": 3, "scanned": 1}
    assert sources(scan(table, "g = 'm'").explain(answer="exists")) == {"by_counts": 3, "not_asked": 1}
    text = str(both)
    assert "by bitmaps  2 of 4 files" in text and "scanned     2 of 4 files" in text
    assert json.loads(json.dumps(both.to_dict()))["scanned"] == 2
    assert scan(table, "g = 'm' and n = 3").count() == table.scan("g = 'm' and n = 3", use_indexes=False).count()


def test_without_an_index_footers_and_rows_answer(table: Table) -> None:
    assert sources(table.scan().explain(answer="count")) == {"by_footers": 4}
    assert sources(table.scan("p = 'a'").explain(answer="count")) == {"by_footers": 2}, "the path says that all match"
    assert sources(table.scan("p <> 'a' and g = 'm'").explain(answer="count")) == {"scanned": 2}
    assert table.scan("p = 'a'").count() == 120 == table.scan("p = 'a'", use_indexes=False).count()
    assert table.scan("g = 'm'").count_by("free", "p").column("count").to_pylist() == [20, 20, 20, 20]


def test_the_gate_leaves_bitmaps_that_cost_more_than_rows(table: Table) -> None:
    put_bitmaps(table, "id", "g")
    gated, forced = (replace(table.scan("g = 'm'"), cost_gate=gate) for gate in (True, False))
    plans = [one.explain(answer="count_by", columns=["id", "g"]) for one in (gated, forced)]
    assert plans[0].not_worth == plans[0].scanned == 4 and "bitmaps of 4 files not worth reading" in str(plans[0])
    assert plans[1].by_bitmaps == 4
    assert gated.count_by("id", "g").equals(forced.count_by("id", "g"))


def test_damaged_runs_are_not_believed(table: Table) -> None:
    put_bitmaps(table, "g", "n")
    want = table.scan("g = 'm' and n = 3", use_indexes=False).count()
    runs = sorted(Path(table.path, BITMAP_FOLDER).iterdir())
    runs[0].write_bytes(runs[0].read_bytes()[:200])
    content = bytearray(runs[1].read_bytes())
    content[60:90] = bytes(30)
    runs[1].write_bytes(content)
    fresh = Table.open(table.path)
    assert scan(fresh, "g = 'm' and n = 3").count() == want
    assert scan(fresh).count_by("g").column("count").to_pylist() == [80, 80, 80]
    (Path(table.path) / ".hoodie/.index_defs/bitmap_index.json").write_text("{")
    assert Table.open(table.path).scan().count() == 240


def test_older_instants_and_later_writes(table: Table) -> None:
    put_bitmaps(table, "g")
    first = table.snapshot().timeline.completed()[0].requested
    row = [0, "a", "new", 1, 1.0, 1]
    table.upsert(pa.table([pa.array([v], f.type) for v, f in zip(row, SCHEMA, strict=True)], schema=SCHEMA))
    assert scan(table).count_by("g").column("count").to_pylist() == [80, 80, 79, 1]
    assert scan(table, "g = 'new'").exists()
    older = replace(table.scan(as_of=first), cost_gate=False)
    assert older.count_by("g").column("count").to_pylist() == [40, 40, 40]
    # A fold that the write brought about may leave out what speaks of files of the past.
    assert older.explain(answer="count_by", columns="g").by_counts >= 1


def test_a_widened_column_keeps_its_answers(table: Table) -> None:
    put_bitmaps(table, "n")
    table.widen_column("n", pa.int64())
    found = scan(table).count_by("n")
    assert found.schema.field("n").type == pa.int64()
    assert scan(table).explain(answer="count_by", columns="n").by_counts == 4
    assert sum(found.column("count").to_pylist()) == 240


def test_what_is_refused(table: Table) -> None:
    put_bitmaps(table, "g")
    for ask in (lambda s: s.count_by("g"), lambda s: s.count_distinct("g"), lambda s: s.min("g"), lambda s: s.max("g")):
        with pytest.raises(InvalidInputError, match="limit"):
            ask(table.scan(limit=3))
    with pytest.raises(InvalidInputError, match="no column 'q'"):
        table.scan().count_by("q")
    with pytest.raises(InvalidInputError, match="answers are"):
        table.scan().explain(answer="sum", columns="n")  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="answers are"):
        table.scan().count_by()
    with pytest.raises(UnsupportedFeatureError):
        table.scan("g rlike '(?=m)'").count()
    assert table.scan("G = 'm'").count_by("N").column_names == ["n", "count"]
    assert (table.scan(limit=0).exists(), table.scan(limit=7).count(), table.scan("g = 'm'", limit=500).count()) == (
        False,
        7,
        80,
    )


def test_verifying_scans_answer_too(table: Table) -> None:
    put_bitmaps(table, "g")
    assert table.scan("g = 'm' and p = 'a'", verify="full").count() == 40


def test_aggregates_for_spark(table: Table) -> None:
    schema = table.schema
    g, n, free = (find_column(name, schema, case_sensitive=False) for name in ("g", "n", "free"))
    put_bitmaps(table, "g", "n")
    snapshot = table.scan().snapshot
    everything = [("count_star", None), ("count", n), ("count_distinct", n), ("min", n), ("max", n)]
    where = bind("g = 'm'", schema)
    found = answer_aggregates(snapshot, where, [], everything)
    rows = [r["n"] for r in table.scan("g = 'm'").to_arrow().to_pylist()]
    known = [v for v in rows if v is not None]
    assert found is not None
    assert found.column_names == ["count(*)", "count(n)", "count(DISTINCT n)", "min(n)", "max(n)"]
    assert found.to_pylist() == [
        dict(zip(found.column_names, [len(rows), len(known), len(set(known)), min(known), max(known)], strict=True))
    ]
    grouped = answer_aggregates(snapshot, None, [g], [("count_star", None), ("max", n)])
    assert grouped is not None and grouped.column("g").to_pylist() == [None, "f", "m"]
    nothing = answer_aggregates(snapshot, bind("g = 'q'", schema), [], everything)
    assert nothing is not None and [v for c in nothing.columns for v in c.to_pylist()] == [0, 0, 0, None, None]
    empty = answer_aggregates(snapshot, bind("g = 'q'", schema), [g], everything)
    assert empty is not None and empty.num_rows == 0 and empty.column("min(n)").type == pa.int32()
    assert answer_aggregates(snapshot, None, [free], [("count_star", None)]) is None
    assert answer_aggregates(snapshot, bind("free = 1", schema), [g], [("count_star", None)]) is None
    read = answer_aggregates(snapshot, None, [free], [("count_star", None)], index_only=False)
    assert read is not None and read.column("count(*)").to_pylist() == [120, 120]
    with pytest.raises(InvalidInputError, match="aggregates are"):
        answer_aggregates(snapshot, None, [], [("sum", n)])


@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_slices_with_log_files_are_read(name: str, tmp_path: Path) -> None:
    """What a log file changes is not what the base file's bitmaps say."""
    table = Table.open(unpack(name, tmp_path))
    columns = [
        field.name for field in table.schema if pa.types.is_string(field.type) or pa.types.is_integer(field.type)
    ]
    put_bitmaps(table, *columns)
    logs = sum(bool(item.log_files) for item in table.snapshot().slices())
    rows = table.scan(use_indexes=False).to_arrow()
    for column in columns:
        found = dict(zip(*(c.to_pylist() for c in scan(table).count_by(column).columns), strict=True))
        assert found == Counter(rows.column(column).to_pylist())
    plan = scan(table).explain(answer="count_by", columns=columns[0])
    assert plan.scanned == logs


def test_a_question_that_comes_again_reads_the_state_alone(table: Table) -> None:
    """No data file, no bitmap and no stats; and a later state is another question."""
    table.indexes.create("bitmap", ["g", "n"], name="all")
    where = "g = 'm' AND n = 3"
    wanted = table.scan(where, use_indexes=False).count()
    asked = replace(table.scan(where), cost_gate=False)
    assert asked.count() == wanted
    counted = asked.snapshot.files.storage.counted
    lose_data(table)
    again = scan(table, where)
    before = counted.copy()
    assert again.count() == wanted
    read = counted - before
    assert read.requests == 2, "definitions and listing of the bitmap index"
    assert again.explain(answer="count").plan.where == asked.explain(answer="count").plan.where


def test_a_later_state_is_planned_anew(table: Table) -> None:
    table.indexes.create("bitmap", ["g", "n"], name="all")
    where = "g = 'm' AND n = 3"
    first = scan(table, where).count()
    table.upsert(
        data(0, 60, "a").set_column(2, "g", pa.array(["m"] * 60)).set_column(3, "n", pa.array([3] * 60, pa.int32()))
    )
    assert (
        scan(table, where).count()
        == scan(table, where).count()
        == table.scan(where, use_indexes=False).count()
        != first
    )


def test_aggregates_plan_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.indexes.create("bitmap", ["g", "n"], name="all")
    snapshot = table.scan().snapshot
    schema = snapshot.schema
    columns = [find_column(name, schema, case_sensitive=False) for name in ("g", "n")]
    planned: list[str] = []
    whole = answers.plan_scan
    monkeypatch.setattr(answers, "plan_scan", lambda *a, **k: planned.append("") or whole(*a, **k))
    aggregates = [("count_star", None), *((kind, column) for column in columns for kind in ("min", "count"))]
    found = answer_aggregates(snapshot, bind("n = 3", schema), [], aggregates)
    assert found is not None
    assert len(planned) == 1
