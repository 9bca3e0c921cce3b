"""Whatever the table and the condition: an answer from indexes is what counting the rows gives.

R93: conditions are combined by bitmap algebra. R143–R147: bitmaps of a file are put together, here to be counted.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bitmaps_by_hand import put_bitmaps
from lakedex import Table
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.scan.aggregate_pushdown import answer_aggregates
from lakedex.scan.aggregation import find_column
from lakedex.scan.scan import Scan
from lakedex.snapshot.schema import read_columns
from table_kit import OWN_FILE

DEEP = settings.default.max_examples >= 5000
TABLES, QUESTIONS = (500, 200) if DEEP else (4, 15)
NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("g", pa.string()),
        ("c", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("b", pa.bool_()),
        ("free", pa.int32()),
        ("s", pa.struct([("x", pa.string())])),
    ]
)
VALUES: dict[str, list[Any]] = {
    "p": ["a", "b"],
    "g": ["m", "f", None],
    "c": ["car", "bike", "bus\\", "", "$x", "ä"],
    "n": [None, -3, 0, 1, 2, 3, 40, 500],
    "f": [0.0, -0.0, NAN, 1.5, None, float("inf"), -1e300],
    "d": [Decimal("1.50"), Decimal("-2.00"), None],
    "b": [True, False, None],
    "free": [1, 2, 3, None],
    "s": [{"x": "u"}, {"x": None}, None, {"x": "v"}],
}
TERMS = [
    "g = 'm'", "g <> 'm'", "g is null", "g <=> null", "c in ('car', '', 'zz')", "c like 'b%'", "n between 0 and 3",
    "n not in (1, 2)", "f = 0", "isnan(f)", "f > 1", "d >= 1.5", "b", "not b", "free = 2", "free is null", "p = 'a'",
    "p <> 'a'", "upper(g) = 'F'", "(g = 'm') is null", "n < free", "id < 150", "s.x = 'u'", "s.x is null", "s is null",
    "n = 40", "c = 'nowhere'",
]  # fmt: skip
GROUPS = ["g", "c", "n", "f", "d", "b", "free", "p", "s.x"]


def table_of(rng: random.Random, folder: Path) -> Table:
    table = Table.create(folder, SCHEMA, record_key="id", partition_by=["p"], options=OWN_FILE)
    first = 0
    for _ in range(rng.randint(1, 3)):
        rows = rng.randint(1, 150)
        own = {name: rng.sample(values, rng.randint(1, len(values))) for name, values in VALUES.items()}
        columns = {name: [rng.choice(own[name]) for _ in range(rows)] for name in VALUES}
        data = {"id": list(range(first, first + rows)), **columns}
        table.bulk_insert(pa.table([pa.array(data[field.name], field.type) for field in SCHEMA], schema=SCHEMA))
        first += rows
    files = len(table.snapshot().base_files())
    put_bitmaps(
        table,
        *("g", "c", "n", "f", "d", "b", "s.x"),
        uncovered=rng.sample(range(files), rng.choice([0, 0, 1])),
        limits={number: rng.choice([2, 4]) for number in range(files) if rng.random() < 0.2},
    )
    return table


def condition(rng: random.Random, depth: int = 2) -> str:
    if not depth or rng.random() < 0.3:
        return rng.choice(TERMS)
    parts = [condition(rng, depth - 1) for _ in range(2)]
    text = f"({parts[0]}) {rng.choice(['and', 'and', 'or'])} ({parts[1]})"
    return f"not ({text})" if rng.random() < 0.2 else text


def key(value: Any) -> Any:
    """A value as a group: NaN is one, -0.0 is 0.0, and both have a place in the order."""
    if isinstance(value, float):
        return (1, math.inf) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


def values_of(rows: pa.Table, name: str) -> list[Any]:
    column = rows.column(name.split(".")[0]).to_pylist()
    return [value and value["x"] for value in column] if "." in name else column


def check(scan: Scan, rows: pa.Table, rng: random.Random, used: Counter[str]) -> None:
    assert scan.count() == rows.num_rows
    assert scan.exists() == (rows.num_rows > 0)
    limit = rng.randint(0, 200)
    assert scan.limit(limit).count() == min(limit, rows.num_rows)
    names = rng.sample(GROUPS, rng.choice([1, 1, 2, 2, 3]))
    found = scan.count_by(*names)
    want = Counter(zip(*([key(v) for v in values_of(rows, name)] for name in names), strict=True))
    got = [tuple(key(v) for v in row[:-1]) for row in zip(*(c.to_pylist() for c in found.columns), strict=True)]
    assert dict(zip(got, found.column("count").to_pylist(), strict=True)) == dict(want)
    order = [tuple((value is not None, value if value is not None else 0) for value in row) for row in got]
    assert order == sorted(order)
    assert found.schema.field(0).type == find_column(names[0], SCHEMA, case_sensitive=False).type
    known = [value for value in values_of(rows, names[0]) if value is not None]
    assert scan.count_distinct(names[0]) == len({key(value) for value in known})
    for mine, theirs in ((scan.min(names[0]), min), (scan.max(names[0]), max)):
        assert (None if mine is None else key(mine)) == (theirs(map(key, known)) if known else None)
    aggregates(scan, rows, rng)
    plan = scan.explain(answer="count_by", columns=names)
    for name in ("ruled_out", "by_counts", "by_bitmaps", "scanned"):
        used[name] += getattr(plan, name)
    used["footers"] += scan.explain(answer="count").by_footers


def aggregates(scan: Scan, rows: pa.Table, rng: random.Random) -> None:
    schema = read_columns(scan.snapshot.schema)
    by, of = (find_column(name, schema, case_sensitive=False) for name in rng.sample(["g", "c", "n", "f"], 2))
    asked = [("count_star", None), ("count", of), ("count_distinct", of), ("min", of), ("max", of)]
    predicate = BoundPredicate(parse_predicate(scan.where, schema, scan.rules)) if scan.where else None
    for groups in ([], [by]):
        found = answer_aggregates(scan.snapshot, predicate, groups, asked, index_only=False)
        assert found is not None
        alone = answer_aggregates(scan.snapshot, predicate, groups, asked)
        assert alone is None or alone.equals(found) or str(alone) == str(found)
        want: dict[Any, list[Any]] = {} if groups else {(): []}
        for group, value in zip(values_of(rows, by.name), values_of(rows, of.name), strict=True):
            want.setdefault((key(group),) if groups else (), []).append(value)
        for row in zip(*(column.to_pylist() for column in found.columns), strict=True):
            known = [key(v) for v in want[tuple(map(key, row[: len(groups)]))] if v is not None]
            total = len(want.pop(tuple(map(key, row[: len(groups)]))))
            ends = (min(known), max(known)) if known else (None, None)
            assert (*row[len(groups) :][:3], *map(key, row[-2:])) == (total, len(known), len(set(known)), *ends)
        assert not want


USED: Counter[str] = Counter()


@settings(max_examples=TABLES, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def ask(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(rng, Path(folder) / "t")
        for number in range(QUESTIONS):
            where = None if number % 10 == 0 else condition(rng)
            scan = table.scan(where)
            if rng.random() < 0.5:
                scan = replace(scan, cost_gate=False)
            rows = table.scan(where, use_indexes=False).to_arrow()
            try:
                check(scan, rows, rng, USED)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: where {where} (cost gate {scan.cost_gate})") from error


def test_answers_are_those_of_the_rows() -> None:
    USED.clear()
    ask()
    assert all(USED[name] for name in ("ruled_out", "by_counts", "by_bitmaps", "scanned", "footers")), USED


@settings(max_examples=TABLES * 4, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def join(seed: int) -> None:
    rng = random.Random(seed)
    table, everything = JOINED
    names = rng.sample(["g", "c", "n", "f", "d", "b", "free", "p"], rng.choice([1, 1, 2, 3]))
    keys = {name: [rng.choice([*VALUES[name], None]) for _ in range(rng.choice([0, 1, 3, 20]))] for name in names}
    size = min(len(own) for own in keys.values())
    dim = pa.table([pa.array(keys[name][:size], SCHEMA.field(name).type) for name in names], names=names)
    wanted = {
        row
        for row in zip(*([key(v) for v in dim.column(n).to_pylist()] for n in names), strict=True)
        if None not in row
    }
    rows = list(zip(*([key(v) for v in values_of(everything, name)] for name in names), strict=True))
    ids = everything.column("id").to_pylist()
    for how in ("semi", "anti"):
        scan = getattr(table.scan(), f"{how}_join")(dim, names[0] if len(names) == 1 else names)
        if rng.random() < 0.7:
            scan = replace(scan, cost_gate=False)
        want = sorted(i for i, row in zip(ids, rows, strict=True) if (row in wanted) == (how == "semi"))
        assert sorted(scan.to_arrow().column("id").to_pylist()) == want, (seed, how, dim)
        assert scan.count() == len(want), (seed, how, dim)
        assert scan.filter("g = 'm'").count() == scan.filter("g = 'm'").to_arrow().num_rows


JOINED: tuple[Table, pa.Table]


def test_joins_are_those_of_the_rows(tmp_path: Path) -> None:
    """R95, R96: records are matched by bitmaps, without comparing rows."""
    global JOINED
    table = table_of(random.Random(7), tmp_path / "t")
    JOINED = table, table.scan(use_indexes=False).to_arrow()
    join()


def test_the_cross_tab_of_many_values_is_that_of_few() -> None:
    """R144: value by value and decoded, bitmaps give the same numbers."""
    from lakedex.codec.roaring import bitmap_of
    from lakedex.index.bitmap.aggregates import _decoded, _pairs

    rng = np.random.default_rng(3)
    rows = 5000
    codes = [rng.integers(0, size, rows) for size in (3, 40)]
    columns = [
        {10 + v: bitmap_of(np.flatnonzero(own == v).astype(np.uint32)) for v in range(own.max() + 1)} for own in codes
    ]
    for truth in (
        None,
        bitmap_of(np.flatnonzero(rng.random(rows) < 0.1).astype(np.uint32)),
        bitmap_of(np.array([], np.uint32)),
    ):
        found = [
            dict(zip(zip(*(c.tolist() for c in keys), strict=True), counts.tolist(), strict=True))
            for keys, counts in (_pairs(truth, *columns), _decoded(rows, truth, columns))
        ]
        assert found[0] == found[1]
        kept = np.arange(rows) if truth is None else np.asarray(truth.to_array(), np.int64)
        assert found[0] == dict(
            Counter(zip((codes[0][kept] + 10).tolist(), (codes[1][kept] + 10).tolist(), strict=True))
        )
