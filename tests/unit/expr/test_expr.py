"""The corners of the expression package: names, terms, equality values, computed columns, refusals."""

from __future__ import annotations

import ast
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakedex.expr
from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.evaluator import evaluate_scalar, filter_rows
from lakedex.expr.nodes import Column, Comparison, In, Literal, Unknown
from lakedex.expr.parser import parse_filter_or_unknown, parse_predicate, parse_scalar
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.terms import BoundPredicate, equality_values, to_spark_sql, to_sql
from lakedex.types import DEFAULT_RULES, SessionRules

SCHEMA = pa.schema(
    [
        ("Id", pa.string()),
        ("fare", pa.float64()),
        ("n", pa.int32()),
        ("l", pa.int64()),
        ("m", pa.decimal128(10, 2)),
        ("a.b", pa.int32()),
        ("st", pa.struct([("x", pa.int32()), ("in", pa.struct([("y", pa.string())]))])),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.map_(pa.string(), pa.string())),
        ("ms", pa.timestamp("ms", "UTC")),
        ("dt", pa.date32()),
        ("t", pa.struct([("n", pa.int32())])),
    ]
)


def parse(sql: str, rules: SessionRules = DEFAULT_RULES, **options: Any) -> Any:
    return parse_predicate(sql, SCHEMA, rules, **options)


@pytest.mark.parametrize(
    "sql, path",
    [
        ("id = 'x'", ("Id",)),
        ("`Id` = 'x'", ("Id",)),
        ("trips.id = 'x'", ("Id",)),
        ("cat.db.trips.n = 1", ("n",)),
        ("`a.b` = 1", ("a.b",)),
        ("q.`a.b` = 1", ("a.b",)),
        ("st.x = 1", ("st", "x")),
        ("ST.IN.Y = 'a'", ("st", "in", "y")),
        ("a.st.`in`.y = 'a'", ("st", "in", "y")),
        ("c.d.e.st.`in`.y = 'a'", ("st", "in", "y")),
        ("t.n = 1", ("t", "n")),
    ],
)
def test_names(sql: str, path: tuple[str, ...]) -> None:
    predicate = parse(sql)
    assert [column for term in BoundPredicate(predicate).prunable_terms for column in term.columns] == [Column(path)]
    assert parse(to_sql(predicate)) == predicate


@pytest.mark.parametrize(
    "sql, hint",
    [
        ("fair > 1", "did you mean 'fare'"),
        ("foo(fair) > 1", "did you mean 'fare'"),
        ("st.z = 1", "it has 'x', 'in'"),
        ("n.z = 1", "it has no field 'z'"),
        ("zzzzzz = 1", "the columns are: Id, fare"),
        ("n = 1 AND trips.fair = 2", "did you mean 'fare'"),
    ],
)
def test_unknown_columns_name_the_nearest(sql: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=hint):
        parse(sql)


def test_case_sensitive_names() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'Id'"):
        parse("id = 'x'", SessionRules(case_sensitive=True))
    twice = pa.schema([("a", pa.int32()), ("A", pa.int32())])
    with pytest.raises(InvalidInputError, match="ambiguous"):
        parse_predicate("a = 1", twice)
    assert equality_values(parse_predicate("A = 1", twice, SessionRules(case_sensitive=True)), "A") == [1]


@pytest.mark.parametrize(
    "sql",
    [
        "n =", "n", "n + 1", "'it''s' = id", "id = 'open", "n = 1; n = 2", "select 1", "n = 1 n", "", "drop table x",
        "n = 1 = (n > 2 IN (true))", "fare = n IN (1)", "id LIKE 'a\\\\bc'", "n = 300Y", "n = 1e999", "id = X'0G'",
        "`n = 1", "n = 1 /* open", "n as x", "n = 9223372036854775808L",
        "n = = 1", "n between 1",
    ],
)  # fmt: skip
def test_refused_texts(sql: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(sql)
    assert "<class" not in str(caught.value)
    assert to_sql(parse_filter_or_unknown(sql, SCHEMA)) is not None


def test_catalyst_text_never_fails_and_prunes_by_the_part_that_it_knows() -> None:
    predicate = parse_filter_or_unknown("((gone = 1) AND (n = 5)) AND (static_invoke(x.y(n)) OR (n > 3))", SCHEMA)
    bounds = ColumnBounds(pa.array([1, 9], pa.int32()), pa.array([6, 9], pa.int32()), np.zeros(2, int), np.full(2, 3))
    assert prune(predicate, lambda c: bounds if c.name == "n" else None, 2).tolist() == [True, False]
    deep = "(" * 3000 + "n = 1" + ")" * 3000
    assert isinstance(parse_filter_or_unknown(deep, SCHEMA), Unknown | Comparison)


def test_a_printed_like_may_have_lost_its_escape() -> None:
    low = pa.array(["ab%", "abc", "abc", "zz"])
    high = pa.array(["ab%", "abd", "abc", "zz"])
    known = ColumnBounds(low, high, np.zeros(4, int), np.full(4, 3))
    for sql, kept in (
        ("id LIKE 'abc%'", [True, True, True, False]),  # or 'ab%' itself, ESCAPE 'c'
        ("NOT id LIKE 'abc%'", [True] * 4),
        ("id LIKE 'abc%' ESCAPE '/'", [False, True, True, False]),
        ("id LIKE '%'", [True] * 4),
        ("NOT id LIKE '%'", [False] * 4),
        ("startswith(id, 'abc')", [False, True, True, False]),
    ):
        assert prune(parse_filter_or_unknown(sql, SCHEMA), lambda _: known, 4).tolist() == kept, sql


def test_decimals_past_their_digits_are_an_error_not_another_number() -> None:
    schema = pa.schema([("c", pa.decimal128(20, 0))])
    table = pa.table([pa.array([Decimal(10**20 - 1)], schema.field(0).type)], schema=schema)
    with pytest.raises(InvalidInputError):
        filter_rows(parse_predicate("CAST(c AS DECIMAL(38,28)) > 1", schema), table)


@pytest.mark.parametrize(
    "digits", ["99999999999999999999.999999999999999999", "0.1", "0", "12345678901234567890123456789"]
)
def test_negative_decimals_keep_all_digits(digits: str) -> None:
    found = parse_scalar(f"-{digits}BD", SCHEMA)
    assert isinstance(found, Literal)
    assert str(found.value) == (f"-{digits}" if digits != "0" else "0")


def test_long_chains_do_not_recurse() -> None:
    predicate = parse(" OR ".join(f"n = {i}" for i in range(5000)))
    assert len(equality_values(predicate, "n") or []) == 5000
    assert filter_rows(predicate, pa.table({"n": pa.array([4999, 5000], pa.int32())})).to_pylist() == [True, False]


@pytest.mark.parametrize(
    "sql, column, values",
    [
        ("id = 'a'", "Id", ["a"]),
        ("id IN ('a', 'b', NULL)", "Id", ["a", "b"]),
        ("id IN ('a', 'b') AND id = 'b' AND fare > 1", "Id", ["b"]),
        ("id = 'a' OR id = 'b'", "Id", ["a", "b"]),
        ("id = 'a' OR fare > 1", "Id", None),
        ("id = 'a' OR (id = 'b' AND fare > 1)", "Id", ["a", "b"]),
        ("NOT (id = 'a')", "Id", None),
        ("id = 'a' AND id = 'b'", "Id", []),
        ("id = NULL", "Id", []),
        ("id <=> NULL", "Id", None),
        ("id <=> 'a'", "Id", ["a"]),
        ("'a' = id", "Id", ["a"]),
        ("id = 1", "Id", None),
        ("id LIKE 'a'", "Id", None),
        ("n = 1.0", "n", [1]),
        ("n = 1.5", "n", []),
        ("n = 3000000000", "n", None),
        ("l = 1", "l", [1]),
        ("n = 2D", "n", [2]),
        ("l = 9007199254740992D", "l", None),
        ("m = 1.5", "m", [Decimal("1.50")]),
        ("m = 1", "m", [Decimal("1.00")]),
        ("fare = 0", "fare", None),
        ("fare = 1.5", "fare", [1.5]),
        ("dt = '1970-01-02'", "dt", [1]),
        ("st.x IN (1, 2)", "st.x", [1, 2]),
        ("false", "Id", []),
        ("true", "Id", None),
        ("foo(id) = 1 AND id = 'a'", "Id", ["a"]),
        ("id = 'it\\'s' AND id LIKE 'i%'", "Id", ["it's"]),
    ],
)
def test_equality_values(sql: str, column: str, values: list[Any] | None) -> None:
    found = equality_values(parse(sql), column)
    assert found == values
    assert [type(v) for v in found or []] == [type(v) for v in values or []]


def test_terms() -> None:
    predicate = parse("n > 1 AND NOT (id LIKE 'a%' OR fare <= 2) AND foo(n, id) = 3 AND n IS NOT NULL")
    bound = BoundPredicate(predicate)
    texts = {column.name: bound.texts_on([column.name]) for column in bound.columns}
    assert texts == {"n": ("n > 1", "n IS NOT NULL"), "Id": ("Id LIKE 'a%'",), "fare": ("fare <= 2",)}
    text = "n > 1 AND NOT (Id LIKE 'a%' OR fare <= 2.0D) AND foo(n, id) = 3 AND n IS NOT NULL"
    assert to_sql(predicate) == text


TABLE = pa.table(
    {
        "fare": pa.array([1.5, None, -2.0]),
        "n": pa.array([1, None, 7], pa.int32()),
        "Id": ["é", None, "Straße"],
        "m": pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(10, 2)),
        "dt": pa.array([0, None, 19000], pa.int32()).cast(pa.date32()),
        "l": pa.array([2**62, 1, 0], pa.int64()),
    }
)


@pytest.mark.parametrize(
    "sql, target, expected",
    [
        ("fare * 2", pa.float64(), [3.0, None, -4.0]),
        ("fare * n", pa.float64(), [1.5, None, -14.0]),
        ("'x'", pa.string(), ["x"] * 3),
        ("NULL", pa.int32(), [None] * 3),
        ("n + 1", pa.int64(), [2, None, 8]),
        ("n / 2", pa.float64(), [0.5, None, 3.5]),
        ("-n % 4", pa.int32(), [-1, None, -3]),
        ("m * 1.1", pa.decimal128(10, 2), [Decimal("1.38"), None, Decimal("-3.30")]),
        ("m + 1", pa.float64(), [2.25, None, -2.0]),
        ("1 - m", pa.decimal128(12, 3), [Decimal("-0.250"), None, Decimal("4.000")]),
        ("CASE WHEN n > 1 THEN 'big' WHEN n IS NULL THEN 'none' END", pa.string(), [None, "none", "big"]),
        ("CASE n WHEN 7 THEN 1.5 ELSE n END", pa.float64(), [1.0, None, 1.5]),
        ("CASE WHEN n <> 1 THEN 10 / (n - 1) ELSE 0 END", pa.float64(), [0.0, 0.0, 10 / 6]),
        ("coalesce(fare, n, 0)", pa.float64(), [1.5, 0.0, -2.0]),
        ("upper(id)", pa.string(), ["É", None, "STRASSE"]),
        ("id || '-' || n", pa.string(), ["é-1", None, "Straße-7"]),
        ("concat('a', id)", pa.string(), ["aé", None, "aStraße"]),
        ("CAST(n AS STRING)", pa.string(), ["1", None, "7"]),
        ("CAST(fare AS INT)", pa.int32(), [1, None, -2]),
        ("CAST('12' AS INT) + n", pa.int32(), [13, None, 19]),
        ("dt", pa.string(), ["1970-01-01", None, "2022-01-08"]),
        ("if(n = 1, fare, -1)", pa.float64(), [1.5, -1.0, -1.0]),
        ("DATE '2024-01-01'", pa.date32(), None),
        ("TIMESTAMP '2024-01-01 00:00:00'", pa.timestamp("us", "UTC"), None),
    ],
)
def test_evaluate_scalar(sql: str, target: pa.DataType, expected: list[Any] | None) -> None:
    found = evaluate_scalar(parse_scalar(sql, SCHEMA), TABLE, target)
    assert found.type == target
    assert len(found) == 3
    if expected is not None:
        assert found.to_pylist() == expected


@pytest.mark.parametrize("sql", ["rand()", "n + tags", "regexp_replace(id, 'a', 'b')", "tags", "n + true"])
def test_unsupported_scalars_name_the_text(sql: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_scalar(sql, SCHEMA)
    assert sql in str(caught.value)


@pytest.mark.parametrize("sql, target", [("id", pa.int32()), ("fare", pa.string()), ("m", pa.bool_())])
def test_assignments_that_are_refused(sql: str, target: pa.DataType) -> None:
    with pytest.raises(UnsupportedFeatureError):
        evaluate_scalar(parse_scalar(sql, SCHEMA), TABLE, target)


@pytest.mark.parametrize(
    "sql, target",
    [
        ("l * 4", pa.int64()),
        ("l", pa.int32()),
        ("n / (n - 1)", pa.float64()),
        ("CAST(id AS INT)", pa.int32()),
        ("m * 1e9BD", pa.decimal128(10, 2)),
    ],
)
def test_values_that_do_not_fit(sql: str, target: pa.DataType) -> None:
    with pytest.raises(InvalidInputError):
        evaluate_scalar(parse_scalar(sql, SCHEMA), TABLE, target)


def test_unjudged_conditions_filter_nothing_but_say_so() -> None:
    with pytest.raises(UnsupportedFeatureError, match="lenght.*did you mean length.*to_spark"):
        filter_rows(parse("n = 1 OR lenght(id) = 3"), TABLE)
    with pytest.raises(InvalidInputError, match="is not in the data"):
        filter_rows(parse("st.x = 1"), TABLE)


def test_guards_hold() -> None:
    assert filter_rows(parse("n <> 1 AND 10 / (n - 1) > 1"), TABLE).to_pylist() == [False, False, True]
    assert filter_rows(parse("n = 1 OR 10 / (n - 1) > 1"), TABLE).to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    "sql, kept", [("1 = 0", False), ("1 < 2", True), ("1 IN (2, 3)", False), ("'a' LIKE 'a%'", True)]
)
def test_conditions_without_columns(sql: str, kept: bool) -> None:
    assert filter_rows(parse(sql), TABLE).to_pylist() == [kept] * 3
    assert filter_rows(parse(sql), TABLE.to_batches()[0]).to_pylist() == [kept] * 3


def test_nested_fields_take_their_parents_nulls() -> None:
    struct = pa.StructArray.from_arrays([pa.array([1, 1], pa.int32())], ["x"], mask=pa.array([False, True]))
    table = pa.table({"st": struct})
    assert filter_rows(parse("st.x = 1"), table).to_pylist() == [True, False]
    assert filter_rows(parse("st.x IS NULL"), table).to_pylist() == [False, True]
    assert filter_rows(parse("st IS NULL"), table).to_pylist() == [False, True]


def test_kinds_of_data() -> None:
    batch = pa.record_batch({"Id": pa.array(["a", "b"]).dictionary_encode()})
    assert isinstance(filter_rows(parse("id = 'a'"), batch), pa.BooleanArray)
    assert filter_rows(parse("id LIKE 'a%'"), batch).to_pylist() == [True, False]
    empty = pa.table({"n": pa.array([], pa.int32())})
    assert filter_rows(parse("n = 1"), empty).to_pylist() == []
    narrow = pa.table({"l": pa.array([1, 2], pa.int32())})
    assert filter_rows(parse("l = 2"), narrow).to_pylist() == [False, True]
    millis = pa.table({"ms": pa.array([0, 1500], pa.int64()).cast(pa.timestamp("ms", "UTC"))})
    assert filter_rows(parse("ms = '1970-01-01 00:00:01.500'"), millis).to_pylist() == [False, True]
    assert filter_rows(parse("ms > '1970-01-01 00:00:01.499999'"), millis).to_pylist() == [False, True]


def bounds(low: Any, high: Any, nulls: int = 0, rows: int = 5) -> ColumnBounds:
    return ColumnBounds(low, high, np.array([nulls]), np.array([rows]))


def test_bounds_that_make_no_sense_prove_nothing() -> None:
    crossed = bounds(pa.array([9], pa.int32()), pa.array([1], pa.int32()))
    assert prune(parse("n = 100"), lambda _: crossed, 1).tolist() == [True]
    nan = bounds(pa.array([np.nan]), pa.array([np.nan]))
    assert prune(parse("fare = 1"), lambda _: nan, 1).tolist() == [True]
    too_many = bounds(pa.nulls(1, pa.int32()), pa.nulls(1, pa.int32()), nulls=9)
    assert prune(parse("n = 1"), lambda _: too_many, 1).tolist() == [True]
    no_rows = bounds(pa.nulls(1, pa.int32()), pa.nulls(1, pa.int32()), nulls=0, rows=0)
    assert prune(parse("n = 1"), lambda _: no_rows, 1).tolist() == [True]
    other_type = bounds(pa.array(["1"]), pa.array(["1"]))
    assert prune(parse("n = 5"), lambda _: other_type, 1).tolist() == [True]
    older_type = bounds(pa.array([1], pa.int32()), pa.array([2], pa.int32()))
    assert prune(parse("l = 5"), lambda _: older_type, 1).tolist() == [False]
    untyped = bounds(pa.nulls(1), pa.nulls(1), nulls=5)
    assert prune(parse("n = 5"), lambda _: untyped, 1).tolist() == [False]
    assert prune(parse("tags IS NULL"), lambda _: None, 1).tolist() == [True]
    assert prune(parse("attrs['a'] = 'x' AND n = 9"), lambda _: older_type, 1).tolist() == [False]
    assert prune(parse("n = 1"), lambda _: older_type, 0 + 1).dtype == np.bool_


def test_bounds_of_milliseconds() -> None:
    second = pa.array([1000], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    assert prune(parse("ms = '1970-01-01 00:00:01'"), lambda _: bounds(second, second), 1).tolist() == [True]
    assert prune(parse("ms > '1970-01-01 00:00:01'"), lambda _: bounds(second, second), 1).tolist() == [False]


def test_twofold_local_times() -> None:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    sql = "ts = TIMESTAMP '2024-11-03 01:30:00'"
    assert isinstance(parse_predicate(sql, schema, SessionRules(timezone="America/New_York")), Comparison)
    assert isinstance(parse_filter_or_unknown(sql, schema, SessionRules(timezone="America/New_York")), Unknown)
    assert isinstance(parse_filter_or_unknown(sql, schema, SessionRules(timezone="Asia/Seoul")), Comparison)
    with pytest.raises(InvalidInputError, match="time zone"):
        parse_predicate(sql, schema, SessionRules(timezone="Mars/Olympus"))


def test_the_package_is_pure() -> None:
    for path in Path(lakedex.expr.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {n.split(".")[0] for n in names} & {"os", "pyspark", "fsspec", "pathlib"}
            assert all(
                n.startswith(("lakedex.expr", "lakedex.errors", "lakedex.types"))
                for n in names
                if n.startswith("lakedex")
            )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "'plain'"),
        ('say "hi"\n', "'say \"hi\"\n'"),
        ("${none}", "CAST(X'247b6e6f6e657d' AS STRING)"),
        ("it's", "CAST(X'69742773' AS STRING)"),
        ("a\\%b", "CAST(X'615c2562' AS STRING)"),
        ("\\", "CAST(X'5c' AS STRING)"),
    ],
)
def test_text_for_spark_has_no_characters_that_settings_give_a_meaning(value: str, text: str) -> None:
    column = Column(("a`${b}'",), pa.string())
    inner = In(column, (Literal(value, pa.string()), Literal(None, pa.string())))
    assert to_spark_sql(inner) == f"`a``${{b}}'` IN ({text}, CAST(NULL AS STRING))"
    assert to_spark_sql(Comparison("=", column, Literal(b"$\\", pa.binary()))) == "`a``${b}'` = X'245C'"
