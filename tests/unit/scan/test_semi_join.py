"""R95, R96: joins by bitmaps. The keys of a dimension are a condition on the fact table."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bitmaps_by_hand import put_bitmaps
from lakedex import Table
from lakedex.errors import InvalidInputError, MissingEngineError
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import to_spark_sql, to_sql
from lakedex.scan import semi_join as joins
from limits import Limits
from table_kit import OWN_FILE, base_files, make

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("carrier", pa.string()),
        ("plane", pa.int32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("fee", pa.decimal128(5, 2)),
        ("x", pa.float64()),
    ]
)
DAY = dt.date(2024, 1, 1)


@pytest.fixture(scope="module")
def fact(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two hundred flights in four files, with an index of four columns."""
    made = make(
        tmp_path_factory.mktemp("fact") / "t", schema=SCHEMA, record_key="id", partition_by="p", options=OWN_FILE
    )
    for part in range(4):
        ids = list(range(part * 50, part * 50 + 50))
        columns: list[list[Any]] = [
            ids,
            [f"p{part % 2}"] * 50,
            [["AA", "BB", "CC", None][i % 4] for i in ids],
            [i % 9 if i % 11 else None for i in ids],
            [DAY + dt.timedelta(days=i % 6) for i in ids],
            [dt.datetime(2024, 1, 1, i % 5, tzinfo=dt.UTC) for i in ids],
            [Decimal(i % 3) + Decimal("0.25") for i in ids],
            [[0.0, -0.0, float("nan"), 1.5, None][i % 5] for i in ids],
        ]
        made.bulk_insert(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
    put_bitmaps(made, "carrier", "plane", "day", "x")
    return made


def ids(scan: Any) -> list[int]:
    found = sorted(replace(scan, cost_gate=False).to_arrow().column("id").to_pylist())
    assert replace(scan, cost_gate=False).count() == len(found) == replace(scan, use_indexes=False).count()
    return found


def test_each_kind_of_keys_gives_the_same_rows(fact: Table, tmp_path: Path) -> None:
    dim = pa.table({"code": ["AA", "CC", None, "AA", "ZZ"], "name": ["a", "c", "n", "a2", "z"]})
    lake = make(
        tmp_path / "dim",
        dim.filter(dim["code"].is_valid()).group_by("code").aggregate([("name", "max")]),
        record_key="code",
        options=OWN_FILE,
    )
    put_bitmaps(lake, "code")
    want = [i for i in range(200) if i % 4 in (0, 2)]
    on = {"carrier": "code"}
    for keys in (dim, dim.to_pandas(), pl.from_arrow(dim), lake.scan(), lake.scan(limit=9), dim.to_reader()):
        assert ids(fact.scan().semi_join(keys, on)) == want
    for keys in (
        ["AA", "CC", None],
        {"AA", "CC"},
        ("CC", "AA"),
        np.array(["AA", "CC"]),
        pd.Series(["AA", "CC"]),
        pl.Series(["AA", "CC"]),
        dim["code"],
    ):
        assert ids(fact.scan().semi_join(keys, "carrier")) == want
    assert ids(fact.scan().semi_join(lake.scan("name_max = 'c'"), on)) == [i for i in range(200) if i % 4 == 2]


def test_a_star_is_counted_without_the_fact(fact: Table, tmp_path: Path) -> None:
    copy = Table.open(fact.path)
    star = replace(copy.scan("day < date '2024-01-04'"), cost_gate=False)
    star = (
        star.semi_join(["AA", "BB"], "carrier")
        .semi_join(pa.table({"no": [1, 2, 3]}), {"plane": "no"})
        .anti_join([1.5], "x")
    )
    want = sum(i % 6 < 3 and i % 4 < 2 and i % 9 in (1, 2, 3) and i % 11 != 0 and i % 5 != 3 for i in range(200))
    assert star.count() == want > 0
    assert star.explain(answer="count").from_index
    assert len(ids(star)) == want
    assert star.count_by("carrier").column("carrier").to_pylist() == ["AA", "BB"]


def test_semi_never_matches_null_and_anti_keeps_it(fact: Table) -> None:
    """As SQL's NOT EXISTS, not as NOT IN: a null among the keys hides nothing."""
    keys = pa.array(["AA", None])
    assert ids(fact.scan().semi_join(keys, "carrier")) == [i for i in range(200) if i % 4 == 0]
    assert ids(fact.scan().anti_join(keys, "carrier")) == [i for i in range(200) if i % 4 != 0]
    nothing: list[Any] = [[], [None], pa.nulls(2), pa.table({"carrier": pa.array([], pa.string())})]
    for none in nothing:
        assert ids(fact.scan().semi_join(none, "carrier")) == []
        assert len(ids(fact.scan().anti_join(none, "carrier"))) == 200
    assert ids(fact.scan().semi_join([float("nan"), 0.0], "x")) == [i for i in range(200) if i % 5 < 3]


def test_combinations_of_columns(fact: Table) -> None:
    pairs = [("AA", 1), ("AA", 2), ("BB", 1), ("BB", 2), ("CC", 7), (None, 3), ("AA", None)]
    dim = pa.table({"carrier": [a for a, _ in pairs], "plane": [b for _, b in pairs]})
    rows = [(["AA", "BB", "CC", None][i % 4], i % 9 if i % 11 else None) for i in range(200)]
    match = [i for i, row in enumerate(rows) if None not in row and row in pairs]
    semi = replace(fact.scan().semi_join(dim, ["carrier", "plane"]), cost_gate=False)
    assert ids(semi) == match
    assert semi.explain(answer="count").from_index
    assert ids(fact.scan().anti_join(dim, ["carrier", "plane"])) == [i for i in range(200) if i not in match]
    three = dim.append_column("day", pa.array([DAY] * 7))
    assert ids(fact.scan().semi_join(three, ["carrier", "plane", "day"])) == [i for i in match if i % 6 == 0]


@pytest.mark.parametrize(
    "column, keys, wanted",
    [
        ("plane", [1, 2**40, -(2**40)], lambda i: i % 9 == 1 and i % 11),
        ("plane", [1.0, 2.5, float("nan")], lambda i: i % 9 == 1 and i % 11),
        ("plane", [Decimal("1.00"), Decimal("2.50")], lambda i: i % 9 == 1 and i % 11),
        ("fee", [Decimal("1.25"), Decimal("1.2500001")], lambda i: i % 3 == 1),
        ("fee", [1], lambda i: False),
        ("x", [0], lambda i: i % 5 < 2),
        ("day", [DAY, dt.date(1, 1, 1)], lambda i: i % 6 == 0),
        ("at", [dt.datetime(2024, 1, 1, 3, tzinfo=dt.timezone(dt.timedelta(hours=1)))], lambda i: i % 5 == 2),
        ("at", pa.array([1704067200000000000, 1704067200000000001], pa.timestamp("ns", "UTC")), lambda i: i % 5 == 0),
        ("at", [DAY], lambda i: i % 5 == 0),
    ],
)  # fmt: skip
def test_keys_are_compared_as_spark_compares_them(fact: Table, column: str, keys: Any, wanted: Any) -> None:
    assert ids(fact.scan().semi_join(keys, column)) == [i for i in range(200) if wanted(i)]


@pytest.mark.parametrize(
    "column, keys, says",
    [
        ("carrier", [1, 2], "int64 are not compared with 'carrier'"),
        ("plane", ["1"], "string are not compared with 'plane'"),
        ("at", [dt.datetime(2024, 1, 1)], "are not compared with 'at'"),
        ("carrier", [1, "a"], "no values of one type"),
        ("q", [1], "no column 'q'"),
        ("carrier", pa.table({"other": ["AA"]}), "keys have no column 'carrier': other"),
        ("plane", pa.array([1], pa.time64("us")), "time64"),
        ([], [1], "a join needs a column"),
        (["carrier", "plane"], ["AA"], "values are the keys of one column"),
        ("carrier", "AA", "is not a frame"),
    ],
)
def test_keys_that_do_not_fit_are_refused(fact: Table, column: Any, keys: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fact.scan().semi_join(keys, column)


def test_what_else_is_refused(fact: Table, limits: Limits) -> None:
    with pytest.raises(InvalidInputError, match="limit after the join"):
        fact.scan(limit=3).semi_join(["AA"], "carrier")
    with pytest.raises(MissingEngineError, match="without Spark"):
        fact.scan().semi_join(["AA"], "carrier").to_spark()
    limits(joins, MAX_TERMS=3)
    odd = pa.table({"carrier": list("abcdef"), "plane": [1, 2, 3, 4, 5, 6]})
    with pytest.raises(InvalidInputError, match="most selective column"):
        fact.scan().semi_join(odd, ["carrier", "plane"])
    limits(joins, MAX_KEYS=3)
    with pytest.raises(InvalidInputError, match="4 different keys"):
        fact.scan().semi_join([1, 2, 3, 4, 4], "plane")


def test_the_condition_is_part_of_the_scan(fact: Table) -> None:
    joined = fact.scan("plane = 1").semi_join(["AA"], "carrier")
    assert joined.condition == fact.scan().semi_join(["AA", "AA"], "carrier").condition
    assert ids(joined.filter("id < 100")) == [i for i in range(100) if i % 4 == 0 and i % 9 == 1 and i % 11]
    assert str(joined.plan().where) == "plane = 1 AND carrier IN ('AA')"
    for scan in (joined, fact.scan().anti_join(["AA", "BB"], "carrier"), fact.scan().semi_join([DAY], "at")):
        assert scan.condition is not None
        text = to_spark_sql(scan.condition)
        text = text if scan.where is None else f"({scan.where}) AND ({text})"
        assert fact.scan(text).count() == scan.count()
    assert to_sql(parse_predicate(str(joined.plan().where), fact.schema)) == "plane = 1 AND carrier IN ('AA')"


def test_tens_of_thousands_of_keys(fact: Table) -> None:
    keys = pa.table({"plane": np.arange(4, 60_000)})
    scan = fact.scan().semi_join(keys, "plane")
    assert ids(scan) == [i for i in range(200) if i % 9 >= 4 and i % 11]
    plan = scan.plan()
    assert "… 59,993 more" in str(plan) and len(str(plan)) < 5000
    assert len(base_files(Path(fact.path))) == 4
