"""Conditions on bitmaps: terms, numbers of rows, and rows. R93, R143 to R145, R92.b, R92.m."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitmap_samples import file_bitmaps, run
from lakedex.expr.evaluator import truth_of_rows
from lakedex.expr.nodes import And, Or
from lakedex.expr.parser import parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.index.bitmap.condition import (
    UNKNOWN_ROWS,
    Combination,
    Condition,
    CountEvaluator,
    Negation,
    NullTest,
    RowSets,
    Term,
    UnindexedTerm,
    evaluate_values,
    exact_rows,
    row_sets,
    terms_in,
    to_bitmap_expr,
)
from lakedex.index.bitmap.loaded_index import Coverage
from lakedex.index.bitmap.pruning import fetch_rows
from lakedex.index.bitmap.run_files import encode_run, list_runs, write_run
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.snapshot.file_system_view import TableCache

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int32()), ("f", pa.float64()), ("o", pa.bool_()), ("x", pa.string()), ("s", pa.struct([("d", pa.string())]))])  # fmt: skip
INDEXED = {"a", "b", "f", "o", "s.d"}


def parsed(sql: str) -> Any:
    return parse_predicate(sql, SCHEMA)


def divided(sql: str) -> Condition:
    return to_bitmap_expr(BoundPredicate(parsed(sql)), INDEXED)


# ----------------------------------------------------------------------------------------------------------- divide
@pytest.mark.parametrize(
    "sql",
    [
        "a = 'x'", "a <> 'x'", "a <=> NULL", "a IS NULL", "NOT (a = 'x' OR a IS NULL)", "a IN ('x', NULL)", "a LIKE 'x%'",
        "upper(a) LIKE 'X%' OR a IS NULL", "b BETWEEN 1 AND 5", "b % 5 = 2", "(b = 1) IS NULL", "coalesce(b, 0) = 0", "o", "s.d = 'x'",
        "a = a", "b + b > 4",
    ],
)  # fmt: skip
def test_a_condition_on_one_column_is_one_term(sql: str) -> None:
    """R92.m: not only equality."""
    found = divided(sql)
    assert isinstance(found, Term) and found.predicate.predicate == parsed(sql) and found.column.name in INDEXED


def test_operands_of_one_column_become_one_term() -> None:
    found = divided("a > 'b' AND x = 'y' AND a < 'd' AND b = 1")
    assert isinstance(found, Combination) and found.every
    assert [(type(part).__name__, part.column.name) for part in found.parts[:2] if isinstance(part, Term)] == [
        ("Term", "a"),
        ("Term", "b"),
    ]
    assert (
        isinstance(found.parts[0], Term)
        and isinstance(found.parts[0].predicate.predicate, And)
        and isinstance(found.parts[2], UnindexedTerm)
    )
    other = divided("a = 'b' OR b = 1 OR a IS NULL")
    assert isinstance(other, Combination) and not other.every and isinstance(other.parts[0], Term)
    assert isinstance(other.parts[0].predicate.predicate, Or)


def test_other_conditions_stay_open() -> None:
    for sql in ("x = 'y'", "a = x", "a < x OR b = 1", "TRUE"):
        found = divided(sql)
        assert not isinstance(found, Term)
    assert isinstance(divided("a = x"), UnindexedTerm) and terms_in(divided("a = x")) == []
    assert isinstance(divided("NOT (a = 'x' AND b = 1)"), Negation)
    assert isinstance(divided("(a = 'x' AND b = 1) IS NULL"), NullTest)
    assert [term.column.name for term in terms_in(divided("NOT (a = 'x' AND (b = 1 OR x = 'y'))"))] == ["a", "b"]


def test_what_only_spark_can_say_stays_open() -> None:
    assert isinstance(divided("soundex(a) = 'x'"), UnindexedTerm)


def test_values_are_judged_once_each() -> None:
    term = divided("b > 1 OR b IS NULL")
    assert isinstance(term, Term)
    found = evaluate_values(term, pa.array([0, 1, 2, None], pa.int32()))
    assert found is not None and found.tolist() == [0, 0, 1, 1]
    nested = divided("s.d LIKE 'x%'")
    assert isinstance(nested, Term)
    found = evaluate_values(nested, pa.array(["x", "y", None]))
    assert found is not None and found.tolist() == [1, 0, 2]


# -------------------------------------------------------------------------------- against brute force over the rows
POOLS: dict[str, list[Any]] = {
    "a": ["x", "xy", "x$p", "", "\\", None],
    "b": [1, 2, 3, 1000, 10_000_000, None],
    "f": [0.0, -0.0, float("nan"), 1.5, None],
    "o": [True, False, None],
    "x": ["x", "y", None],
    "s": ["x", "y", None],
}
LEAVES = [
    "a = 'x'", "a <> 'x'", "a IN ('x', NULL)", "a NOT IN ('x', '')", "a > ''", "a LIKE 'x%'", "a IS NULL", "a <=> NULL", "a < ''",
    "b > 0", "b < 1", "b BETWEEN 2 AND 1000", "b NOT IN (1, 2, NULL)", "b = 3", "b <> 10000000", "b IS NOT NULL",
    "f = 0.0D", "f > 1.5D", "isnan(f)", "f <> 0.0D", "o", "NOT o", "o IS NOT TRUE", "x = 'x'", "x IS NULL", "a = x", "s.d = 'x'",
    "s.d IS NULL", "TRUE", "NULL", "FALSE",
]  # fmt: skip


def condition(rng: random.Random, depth: int = 3) -> str:
    kind = rng.randrange(6) if depth else 5
    if kind <= 2:
        return rng.choice([" AND ", " OR "]).join(
            f"({condition(rng, depth - 1)})" for _ in range(rng.choice([2, 2, 3]))
        )
    if kind == 3:
        return f"NOT ({condition(rng, depth - 1)})"
    if kind == 4:
        return f"({condition(rng, depth - 1)}) IS {rng.choice(['', 'NOT '])}NULL"
    return rng.choice(LEAVES)


def table(rng: random.Random, rows: int) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, pool in POOLS.items():
        few = rng.sample(pool, rng.randint(1, 3))
        values = [rng.choice(few) for _ in range(rows)]
        kind = SCHEMA.field(name).type
        columns[name] = pa.array([{"d": v} for v in values] if name == "s" else values, kind)
    return pa.table(columns, schema=SCHEMA)


def covered(folder: Path, tables: list[pa.Table], rng: random.Random) -> Coverage:
    """Coverage of a file for each table; some columns of some files are past their cap."""
    storage = LocalStorage()
    for number, data in enumerate(tables):
        limits = {name: rng.choice([1, 2, 9, 9]) for name in sorted(INDEXED) if rng.random() < 0.9}
        cut = rng.randint(0, data.num_rows)
        item = file_bitmaps(f"f{number}_1", limits, data, groups=[cut, data.num_rows - cut])
        write_run(TableFiles(storage, str(folder)), run(number), encode_run([item]))
    coverage = Coverage(TableFiles(storage, str(folder)), TableCache())
    coverage.refresh(list_runs(TableFiles(storage, str(folder))))
    return coverage


def states(predicate: Any, data: pa.Table) -> list[set[int]]:
    """Rows for which it is true, false, null."""
    found = truth_of_rows(predicate, data).to_pylist()
    return [{row for row, own in enumerate(found) if own is value} for value in (True, False, None)]


@settings(max_examples=settings.default.max_examples // 4)
@given(seed=st.integers(0, 2**32 - 1))
def test_bounds_hold_and_sets_are_right(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """R92.b: within the known rows of a file NOT is a complement, and null is neither."""
    rng = random.Random(seed)
    tables = [table(rng, rng.randint(0, 12)) for _ in range(3)]
    coverage = covered(tmp_path_factory.mktemp("runs"), tables, rng)
    numbers = {item.base_file: number for number, item in enumerate(coverage.files)}
    files = np.array([numbers.get(f"f{n}_1", -1) for n in range(3)] + [-1], np.int64)
    for _ in range(8):
        sql = condition(rng)
        predicate = parsed(sql)
        asked = to_bitmap_expr(BoundPredicate(predicate), INDEXED)
        evaluator = CountEvaluator(coverage, files, np.full(4, 2, np.int64))
        counts = evaluator.evaluate(asked)
        for place, data in enumerate(tables):
            right = states(predicate, data)
            bounds = (counts.true, counts.false, counts.null)
            for rows, (low, high) in zip(right, bounds, strict=True):
                assert low[place] <= len(rows) <= high[place], (sql, place, low, high, right)
            if exact_rows(counts)[place]:
                assert counts.true[0][place] == len(right[0])
            assert 0 <= counts.share[place] <= 1 and 0 <= counts.groups[place] <= 2
            found = sets_of(coverage, evaluator, asked, files, place, data.num_rows)
            for rows, bitmap in zip(right, (found.true, found.false, found.null), strict=True):
                assert rows <= set(bitmap), (sql, place)
            if found.is_exact:
                assert set(found.true) == right[0], (sql, place)
        assert counts.true[0][3] <= counts.true[1][3] <= UNKNOWN_ROWS


def sets_of(
    coverage: Coverage, evaluator: CountEvaluator, asked: Condition, files: np.ndarray, place: int, rows: int
) -> RowSets:
    known, number = {}, int(files[place])
    for term, found in evaluator.terms.items():
        if found.of_value is not None and found.known[files == number].any():
            known[term] = fetch_rows(coverage, term, found.of_value, np.array([number]))[number]
    return row_sets(asked, rows, known)


def test_all_terms_known_makes_exact_rows(tmp_path: Path) -> None:
    """R143, R144, R145: AND of the bitmaps of two equalities."""
    data = pa.table({"a": ["x", "x", "y", "y"], "b": pa.array([1, 2, 1, 2], pa.int32())})
    storage = LocalStorage()
    write_run(TableFiles(storage, str(tmp_path)), run(1), encode_run([file_bitmaps("f_1", {"a": 9, "b": 9}, data)]))
    coverage = Coverage(TableFiles(storage, str(tmp_path)), TableCache())
    coverage.refresh(list_runs(TableFiles(storage, str(tmp_path))))
    for sql, rows in (
        ("a = 'x' AND b = 2", [1]),
        ("a = 'x' AND b = 3", []),
        ("NOT (a = 'x' OR b = 1)", [3]),
        ("a <> 'x' OR b = 2", [1, 2, 3]),
    ):
        evaluator = CountEvaluator(coverage, np.array([0]), np.array([1]))
        evaluator.evaluate(divided(sql))
        found = sets_of(coverage, evaluator, divided(sql), np.array([0]), 0, 4)
        assert found.is_exact and list(found.true) == rows


def test_ranges_beyond_all_values(tmp_path: Path) -> None:
    """A range below the smallest value, and above the largest."""
    data = pa.table({"b": pa.array([1000, 10_000_000], pa.int32())})
    storage = LocalStorage()
    write_run(TableFiles(storage, str(tmp_path)), run(1), encode_run([file_bitmaps("f_1", {"b": 9}, data)]))
    coverage = Coverage(TableFiles(storage, str(tmp_path)), TableCache())
    coverage.refresh(list_runs(TableFiles(storage, str(tmp_path))))
    for sql, rows in (("b > 0", 2), ("b < 1000", 0), ("b > 10000000", 0), ("b >= 10000000", 1), ("b <> 5", 2)):
        counts = CountEvaluator(coverage, np.array([0]), np.array([1])).evaluate(divided(sql))
        assert (counts.true[0][0], counts.true[1][0]) == (rows, rows), sql


def test_values_that_the_column_cannot_have_now_are_unknown(tmp_path: Path) -> None:
    """Texts of an earlier type that is no narrower one: nothing is said of the file, and what is said of others stays."""
    storage = LocalStorage()
    texts, numbers = pa.table({"b": ["x", "1"]}), pa.table({"b": pa.array([1, 2], pa.int16())})
    items = [file_bitmaps("f0_1", {"b": 9}, texts), file_bitmaps("f1_1", {"b": 9}, numbers)]
    write_run(TableFiles(storage, str(tmp_path)), run(1), encode_run(items))
    coverage = Coverage(TableFiles(storage, str(tmp_path)), TableCache())
    coverage.refresh(list_runs(TableFiles(storage, str(tmp_path))))
    counts = CountEvaluator(coverage, np.array([0, 1]), np.array([1, 1])).evaluate(divided("b = 1"))
    assert (counts.true[0].tolist(), counts.true[1].tolist()) == ([0, 1], [2, 1])
