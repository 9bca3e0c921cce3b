"""A condition over dictionaries is what it is over the values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakedex.errors import UnsupportedFeatureError
from lakedex.expr.evaluator import filter_rows
from lakedex.expr.parser import bind, parse_filter_or_unknown, parse_predicate
from lakedex.expr.terms import BoundPredicate
from lakedex.scan.late_materialization import evaluate_mask

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int32())])
CONDITIONS = (
    "a = 'x'", "a <> 'x'", "a IS NULL", "a IS NOT NULL AND b = 'y'", "a = 'x' AND b = 'y' AND n > 1", "a = b", "NOT a = 'x'",
    "a = 'x' OR b = 'y'", "upper(a) = 'X' AND n = 1", "a IN ('x', 'z') AND a <> 'z'", "(a = 'x') IS NULL", "a <=> NULL",
    "a = 'x' AND TRUE", "a = 'x' AND NULL", "n = 1", "TRUE", "a LIKE 'x%' AND b LIKE '%'", "a = 'x' AND n / 1 > 0.5",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(["x", "y", "z", "", None]), min_size=8, max_size=8)


@given(where=st.sampled_from(CONDITIONS), a=TEXTS, b=TEXTS, n=st.lists(st.integers(0, 3), min_size=8, max_size=8),
       coded=st.sets(st.sampled_from("ab")), start=st.integers(0, 8))  # fmt: skip
def test_the_same_rows(
    where: str, a: list[str | None], b: list[str | None], n: list[int], coded: set[str], start: int
) -> None:
    predicate = parse_predicate(where, SCHEMA)
    plain = pa.record_batch(
        [pa.array(a, pa.string()), pa.array(b, pa.string()), pa.array(n, pa.int32())], schema=SCHEMA
    )
    columns = [c.dictionary_encode() if name in coded else c for name, c in zip("abn", plain.columns, strict=True)]
    batch = pa.record_batch(columns, names=list("abn")).slice(start)
    assert (
        evaluate_mask(BoundPredicate(predicate), batch).tolist()
        == filter_rows(predicate, plain.slice(start)).to_pylist()
    )


def test_a_value_that_no_row_has_may_fail() -> None:
    predicate = parse_predicate("n > 0 AND CAST(a AS INT) = 1", SCHEMA)
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(["1", "no number"]))
    batch = pa.record_batch([codes, pa.array([1, 0], pa.int32())], names=["a", "n"])
    assert evaluate_mask(BoundPredicate(predicate), batch).tolist() == [True, False]


def test_what_only_spark_knows_is_refused_whatever_the_rest_says() -> None:
    predicate = parse_filter_or_unknown("a = 'nowhere' AND soundex(a) = 'X'", SCHEMA)
    batch = pa.record_batch([pa.array(["x"]).dictionary_encode()], names=["a"])
    with pytest.raises(UnsupportedFeatureError):
        evaluate_mask(BoundPredicate(predicate), batch)
    assert isinstance(evaluate_mask(bind("a = 'x'", SCHEMA), batch), np.ndarray)
