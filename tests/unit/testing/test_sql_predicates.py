from __future__ import annotations

import random

import pyarrow as pa

from lakedex.testing.sql_predicates import PredicateMaker, SqlPredicate, smallest_failing


def test_equal_seeds_make_equal_predicates() -> None:
    made = [PredicateMaker(random.Random(5), {"a": pa.int32(), "s": pa.string()}).predicate() for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].sql


def test_the_smallest_failing_part_is_found() -> None:
    inner = SqlPredicate("a = 1 AND b = 2", (SqlPredicate("a = 1"), SqlPredicate("b = 2")))
    whole = SqlPredicate(f"NOT ({inner.sql})", (inner,))
    assert smallest_failing(whole, lambda sql: "b" in sql).sql == "b = 2"
    assert smallest_failing(whole, lambda sql: "AND" in sql) == inner
