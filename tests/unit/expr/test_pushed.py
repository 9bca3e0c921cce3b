"""Filters of the Python Data Source API: what they mean, and that what is not certain keeps every file."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.evaluator import filter_rows
from lakedex.expr.nodes import Column, Comparison, In, IsNull, Literal, Not
from lakedex.expr.parser import parse_predicate
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.terms import to_sql, unknown_texts
from lakedex.spark.data_source_filters import pushed_predicate
from lakedex.types import SessionRules
from tests.unit.expr.test_oracle import TYPES

NESTED = pa.struct([("b", pa.int32()), ("c.d", pa.string())])
SCHEMA = pa.schema([
    ("i", pa.int32()), ("y", pa.int8()), ("f", pa.float32()), ("d", pa.float64()), ("m", pa.decimal128(10, 2)),
    ("s", pa.string()), ("b", pa.bool_()), ("x", pa.binary()), ("day", pa.date32()), ("t", pa.timestamp("us", "UTC")),
    ("l", pa.timestamp("us")), ("a.b", pa.int32()), ("a", NESTED), ("r", pa.list_(pa.int32())), ("K", pa.int32()),
])  # fmt: skip
SEOUL = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("pushed", "sql"),
    [
        (("EqualTo", ("i",), 5), "i = 5"),
        (("EqualNullSafe", ("i",), None), "i <=> CAST(NULL AS INT)"),
        (("GreaterThan", ("d",), math.inf), "d > CAST('Infinity' AS DOUBLE)"),
        (("GreaterThanOrEqual", ("f",), math.nan), "f >= CAST('NaN' AS FLOAT)"),
        (("LessThan", ("m",), Decimal("1.5")), "m < 1.50BD"),
        (("LessThanOrEqual", ("day",), date(2024, 3, 10)), "day <= DATE '2024-03-10'"),
        (("In", ("s",), ["a", None, "a"]), "s IN ('a', CAST(NULL AS STRING))"),
        (("In", ("y",), (1, -128)), "y IN (1Y, -128Y)"),
        (("IsNull", ("r",), None), "`r` IS NULL"),
        (("IsNotNull", ("a", "b"), None), "a.b IS NOT NULL"),
        (("EqualTo", ("a.b",), 1), "`a.b` = 1"),
        (("EqualTo", ("a", "c.d"), "q"), "a.`c.d` = 'q'"),
        (("EqualTo", ("k",), 1), "K = 1"),
        (("EqualTo", ("b",), True), "b = TRUE"),
        (("Not", (), ("EqualTo", ("b",), True)), "NOT (b = TRUE)"),
        (("EqualTo", ("x",), bytearray(b"\x00\xff")), "`x` = X'00FF'"),
        (("EqualTo", ("t",), datetime(2024, 1, 1, 9, tzinfo=SEOUL)), "t = TIMESTAMP '2024-01-01 00:00:00Z'"),
        (("EqualTo", ("l",), datetime(1, 1, 1)), "l = TIMESTAMP_NTZ '0001-01-01 00:00:00'"),
        (("StringStartsWith", ("s",), "a%_\\"), "s LIKE 'a\\\\%\\\\_\\\\\\\\%'"),
        (("StringEndsWith", ("s",), ""), "s LIKE '%'"),
        (("StringContains", ("s",), "'"), "s LIKE '%\\'%'"),
    ],
)
def test_filters_are_predicates(pushed: Any, sql: str) -> None:
    found = pushed_predicate(pushed, SCHEMA)
    assert to_sql(found) == sql
    assert not unknown_texts(found)


@pytest.mark.parametrize(
    "pushed",
    [
        ("EqualTo", ("nothing",), 5),
        ("EqualTo", (), 5),
        ("EqualTo", ("x", "i"), 5),
        ("EqualTo", ("a", "nothing"), 5),
        ("IsNull", ("r", "element"), None),
        ("EqualTo", ("i",), "5"),
        ("EqualTo", ("i",), True),
        ("EqualTo", ("i",), 2**31),
        ("EqualTo", ("y",), 200),
        ("EqualTo", ("i",), 5.0),
        ("LessThan", ("f",), 1.1),
        ("LessThan", ("d",), 1),
        ("LessThan", ("m",), Decimal("1.505")),
        ("LessThan", ("m",), Decimal("123456789.5")),
        ("LessThan", ("m",), Decimal("NaN")),
        ("LessThan", ("m",), 1.5),
        ("EqualTo", ("b",), 1),
        ("EqualTo", ("s",), b"a"),
        ("EqualTo", ("s",), "\ud800"),
        ("EqualTo", ("x",), "a"),
        ("EqualTo", ("day",), datetime(2024, 1, 1)),
        ("EqualTo", ("t",), datetime(2024, 1, 1)),
        ("EqualTo", ("l",), datetime(2024, 1, 1, tzinfo=UTC)),
        ("EqualTo", ("t",), date(2024, 1, 1)),
        ("EqualTo", ("r",), [1, 2]),
        ("EqualTo", ("a",), {"b": 1}),
        ("In", ("i",), [1, "2"]),
        ("In", ("i",), []),
        ("In", ("i",), 5),
        ("StringStartsWith", ("i",), "1"),
        ("StringContains", ("s",), 1),
        ("AlwaysTrue", ("i",), None),
        ("Rlike", ("s",), "a.*"),
    ],
)
def test_what_is_not_certain_keeps_every_file(pushed: Any) -> None:
    nothing = ColumnBounds(pa.nulls(1), pa.nulls(1), np.array([0]), np.array([0]))
    for form in (pushed, ("Not", (), pushed)):
        found = pushed_predicate(form, SCHEMA)
        assert unknown_texts(found)
        assert prune(found, lambda _: nothing, 1).tolist() == [True]


def test_two_names_that_differ_in_case_are_two_columns() -> None:
    schema = pa.schema([("N", pa.int32()), ("n", pa.int32())])
    assert to_sql(pushed_predicate(("EqualTo", ("n",), 1), schema)) == "n = 1"
    assert to_sql(pushed_predicate(("EqualTo", ("N",), 1), schema)) == "N = 1"
    assert unknown_texts(pushed_predicate(("EqualTo", ("n",), 1), schema.append(pa.field("n", pa.int32()))))


def test_a_null_struct_has_null_fields() -> None:
    rows = pa.table({"a": pa.array([None, {"b": 1, "c.d": None}, {"b": None, "c.d": "q"}], NESTED)})
    assert filter_rows(pushed_predicate(("IsNull", ("a", "b"), None), SCHEMA), rows).to_pylist() == [True, False, True]
    assert filter_rows(pushed_predicate(("EqualTo", ("a", "c.d"), "q"), SCHEMA), rows).to_pylist() == [
        False,
        False,
        True,
    ]


# --------------------------------------------------------------------- the conditions that Spark's answers are kept of

GOLDEN = Path(__file__).parents[2] / "golden" / "expr" / "oracle.json"
NAMES = {"=": "EqualTo", "<=>": "EqualNullSafe", "<": "LessThan", "<=": "LessThanOrEqual", ">": "GreaterThan",
         ">=": "GreaterThanOrEqual"}  # fmt: skip


def as_spark_gives_it(literal: Literal) -> Any:
    """A literal as the Python value that PySpark makes of it."""
    value: Any = literal.value
    if value is None:
        return None
    if pa.types.is_date32(literal.type):
        return date.fromordinal(date(1970, 1, 1).toordinal() + value)
    if pa.types.is_timestamp(literal.type):
        return datetime(1970, 1, 1, tzinfo=UTC if literal.type.tz else None) + timedelta(microseconds=value)
    return value


def as_filter(node: Any) -> Any:
    """The condition as Spark would push it, None if it does not."""
    if isinstance(node, Not):
        inner = as_filter(node.operand)
        return inner and ("Not", (), inner)
    if isinstance(node, IsNull) and isinstance(node.operand, Column):
        return "IsNull", node.operand.path, None
    if isinstance(node, Comparison) and isinstance(node.left, Column) and isinstance(node.right, Literal):
        if node.op == "<>":
            return "Not", (), ("EqualTo", node.left.path, as_spark_gives_it(node.right))
        return NAMES[node.op], node.left.path, as_spark_gives_it(node.right)
    if isinstance(node, In) and isinstance(node.operand, Column):
        return "In", node.operand.path, [as_spark_gives_it(value) for value in node.values]
    return None


def test_conditions_whose_meaning_spark_has_told_come_out_the_same() -> None:
    seen: dict[str, int] = {}
    for group in json.loads(GOLDEN.read_text())["groups"]:
        schema = pa.schema({"c": TYPES[group["type"]]})
        for sql, *_ in group["cases"]:
            try:
                wanted = parse_predicate(sql, schema, SessionRules(timezone=group["timezone"]), ansi=False)
            except (InvalidInputError, UnsupportedFeatureError):
                continue
            pushed = as_filter(wanted)
            if pushed is None:
                continue
            found = pushed_predicate(pushed, schema)
            if isinstance(wanted, Comparison) and wanted.op == "<>":
                wanted = Not(Comparison("=", wanted.left, wanted.right))
            assert to_sql(found) == to_sql(wanted), sql
            assert not unknown_texts(found), sql
            seen[group["type"]] = seen.get(group["type"], 0) + 1
    assert seen.keys() == TYPES.keys()
    assert min(seen.values()) >= 8, seen
