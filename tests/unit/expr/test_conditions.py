"""Every form that a ``where`` takes, as SQL; and what is refused, by name. Rows: tests/properties/test_foreign_conditions.py."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakedex import InvalidInputError, UnsupportedFeatureError, col
from lakedex.expr.conditions import as_sql

SCHEMA = pa.schema(
    [
        ("fare", pa.float64()), ("f", pa.float32()), ("n", pa.int32()), ("city", pa.string()), ("a.b", pa.int64()),
        ("flag", pa.bool_()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("price", pa.decimal128(10, 2)),
        ("s", pa.struct([("x", pa.int32())])), ("tags", pa.list_(pa.string())),
    ]
)  # fmt: skip
MORNING = dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC)
LONG_NUMBER = "123456789012345678901234567890123.12345"


def sql(where: Any, *, case_sensitive: bool = False) -> Any:
    return as_sql(where, lambda: SCHEMA, case_sensitive=case_sensitive)


FORMS: list[tuple[Any, str | None]] = [
    (None, None),
    ("fare > 12", "fare > 12"),
    (col("fare") > 12, "fare > 12"),
    (("fare", ">", 12), "fare > 12"),
    (("fare", "==", 12.5), "fare = 12.5D"),
    (("city", "!=", "it's"), "city <> CAST(X'69742773' AS STRING)"),
    (("s.x", "<=", np.int64(3)), "s.`x` <= 3"),
    (("city", "in", {"sf"}), "city IN ('sf')"),
    (("city", "NOT  IN", ["sf", "oslo"]), "city NOT IN ('sf', 'oslo')"),
    ([("fare", ">", 12), ("n", "=", 1)], "fare > 12 AND n = 1"),
    ([[("fare", ">", 12), ("n", "=", 1)], [("n", "<", 0)]], "(fare > 12 AND n = 1) OR n < 0"),
    (pc.field("n") > 1, "n > 1"),
    (pc.field("N") > 1, "n > 1"),
    (pc.field("s", "x") == 1, "s.`x` = 1"),
    (pc.field("a.b") == 1, "`a.b` = 1"),
    ((pc.field("n") > 1) & (pc.field("n") < 5) & pc.field("flag"), "n > 1 AND n < 5 AND flag = TRUE"),
    (pc.field("fare") < 12, "fare < 12"),
    (pc.field("fare") > 12, "fare > 12 AND fare <> CAST('NaN' AS DOUBLE)"),
    (pc.field("at") >= MORNING, "at >= TIMESTAMP '2024-01-02 03:00:00Z'"),
    (pc.field("at") >= pa.scalar(1_000_000, pa.timestamp("ns", "Asia/Tokyo")), "at >= TIMESTAMP '1970-01-01 00:00:00.001000Z'"),
    (pc.field("price") == Decimal("1.10"), "price = 1.10BD"),
    (~pc.field("city").isin(["sf", None]), "NOT (city IS NULL OR city IN ('sf'))"),
    (pc.starts_with(pc.field("city"), "a%"), "city LIKE CAST(X'615c2525' AS STRING)"),
    (pl.col("n") > 1, "n > 1"),
    (pl.col("f") > 1.1, "f > CAST(1.100000023841858D AS FLOAT)"),
    (pl.col("f") > np.float64(1.1), "f > 1.1D"),
    (pl.col("s").struct.field("x") == 1, "s.`x` = 1"),
    (pl.col("city").is_in(["sf"]) | pl.col("flag"), "city IN ('sf') OR flag = TRUE"),
    (pl.col("n").is_between(1, 5, closed="left"), "n >= 1 AND n < 5"),
    (pl.col("price") == Decimal(LONG_NUMBER), f"price = {LONG_NUMBER}BD"),
    (pl.col("day") == dt.date(2024, 1, 2), "day = DATE '2024-01-02'"),
    (pl.col("at") == MORNING, "at = TIMESTAMP '2024-01-02 03:00:00Z'"),
    (pl.col("city").eq_missing("sf"), "city <=> 'sf'"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "text"), FORMS, ids=[str(number) for number in range(len(FORMS))])
def test_a_form(where: Any, text: str | None) -> None:
    assert sql(where) == text


def test_long_chains_stay_flat() -> None:
    many = range(900)
    wanted = " OR ".join(f"n = {value}" for value in many)
    assert sql(reduce(or_, [pc.field("n") == value for value in many])) == wanted
    assert sql(reduce(or_, [pl.col("n") == value for value in many[:100]])) == " OR ".join(wanted.split(" OR ")[:100])
    deep = pc.field("flag")
    for _ in range(20_000):
        deep = ~deep
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        sql(deep)


REFUSED: list[tuple[Any, str]] = [
    ([], "an empty list is no condition; None stands for all rows"),
    (("fare", ">"), r"a tuple is \(column, operator, value\)"),
    (("fare", "=>", 1), "'=>' is none of =, ==, "),
    (("fare", ">", None), r"fare' > None is never true; use is_null\(\)"),
    (("city", "in", "sf"), "takes a list of values, not 'sf'"),
    (("city", "not in", ["sf", None]), "leave None out"),
    ([("fare", ">", 1), [("n", "=", 1)]], "a list holds tuples"),
    (12, 'int is no condition; give SQL text'),
    ({"fare": 12}, "dict is no condition"),
    (pc.field("fares") > 1, "no column 'fares'; did you mean 'fare'"),
    (pc.field("n") + 1 > 2, r"pyarrow expression cannot be converted: add_checked\(\); write .* SQL text"),
    (pc.field("n") == None, r"comparison with null; .*is_valid\(\)"),  # noqa: E711
    (pc.field("n") == "x", "column 'n', which is integer, with the value 'x', which is string"),
    (pc.field("at") > dt.datetime(2024, 1, 1), "timestamp, with .* timestamp without time zone; give .* with a time zone"),
    (pc.field("at") > pa.scalar(1, pa.timestamp("ns", "UTC")), "nanoseconds"),
    (pc.field("price") > 1.5, "column 'price', which is decimal, with the value 1.5, which is double"),
    (pc.field("fare").isin([0.0]), "which takes -0.0 for another value; use =="),
    (pc.field("tags") == pc.field("tags"), "column 'tags', which is list"),
    (pc.field(0) > 1, "does not show"),
    (pc.field("n"), "column 'n' as a condition; compare it with a value"),
    (pc.field("n").cast(pa.int8()) == 1, r"cast\(\)"),
    (pc.starts_with(pc.field("city"), "a", ignore_case=True), r"starts_with\(\)"),
    ((pc.field("n") > 1) == pc.scalar(True), "comparison of conditions"),
    (pl.col("fares") > 1, "no column 'fares'; did you mean 'fare'"),
    (pl.col("n") + 1 > 2, "polars expression cannot be converted: the operator Plus"),
    (pl.col("n") > pl.col("n").max(), "the part Agg Max"),
    (pl.col("^n.*$") > 1, "the part Selector Matches|the pattern"),
    (pl.all() > 1, "the part Selector|the part Wildcard"),
    (pl.col("n").cast(pl.Int8) > 1, "the part Cast"),
    (pl.col("f") > 2**24 + 1, "which no float has exactly"),
    (pl.col("fare") > float("nan"), "NaN or an infinite number"),
    (pl.col("city").str.contains("a.c"), "str.contains.. of a pattern; give literal=True"),
    (pl.col("city").is_in(["sf", None]), "null in its list"),
    (pl.col("city").str.to_uppercase() == "A", "the function .*Uppercase"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "message"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_a_refusal(where: Any, message: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedFeatureError), match=message):
        sql(where)


def test_names_by_the_sessions_rule() -> None:
    assert sql(pc.field("FARE") < 1) == "fare < 1"
    for where in (pc.field("FARE") < 1, pl.col("FARE") < 1):
        with pytest.raises(InvalidInputError, match="no column 'FARE'; did you mean 'fare'"):
            sql(where, case_sensitive=True)
