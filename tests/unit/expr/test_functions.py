"""Spark 4.3's own answers over rows of all types, kept in ``tests/golden/expr``, against ours."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakedex.errors import InvalidInputError, UnsupportedFeatureError
from lakedex.expr.evaluator import evaluate, truth_of_rows
from lakedex.expr.functions import FUNCTIONS, INTERNAL
from lakedex.expr.nodes import Column
from lakedex.expr.parser import parse_filter_or_unknown, parse_predicate, parse_scalar
from lakedex.expr.pruner import ColumnBounds, prune
from lakedex.expr.terms import to_sql, unknown_texts
from lakedex.types import SessionRules

GOLDEN = Path(__file__).parents[2] / "golden" / "expr" / "functions_4.3.json.zst"
TYPES = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "binary": pa.binary(),
    "array<int>": pa.list_(pa.int32()), "array<string>": pa.list_(pa.string()),
    "map<string,int>": pa.map_(pa.string(), pa.int32()), "map<int,string>": pa.map_(pa.int32(), pa.string()),
    "struct<x:int,y:string,z:array<int>>": pa.struct(
        [("x", pa.int32()), ("y", pa.string()), ("z", pa.list_(pa.int32()))]
    ),
    "void": pa.null(),
}  # fmt: skip


def arrow_type(name: str) -> pa.DataType:
    if name.startswith("decimal"):
        return pa.decimal128(*map(int, name[8:-1].split(",")))
    return TYPES[name]


def column(name: str, values: list[Any]) -> pa.Array:
    kind = arrow_type(name)
    readers: dict[Any, Any] = {"float": float, "double": float, "binary": bytes.fromhex}
    if name.startswith("map"):
        readers[name] = lambda pairs: [tuple(pair) for pair in pairs]
    read = Decimal if name.startswith("decimal") else readers.get(name, lambda value: value)
    plain = [None if value is None else read(value) for value in values]
    if name.startswith("timestamp"):
        return pa.array(plain, pa.int64()).cast(kind)
    return pa.array(plain, pa.int32()).cast(kind) if name == "date" else pa.array(plain, kind)


def shown(values: pa.Array) -> list[str | None]:
    """Values as texts that tell NaN, -0.0 and the scale of decimals apart from others."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return [None if value is None else repr(value) for value in values.to_pylist()]


def judge(group: dict[str, Any], batch: pa.RecordBatch, case: list[Any]) -> str | None:
    """What is wrong with our answer; None for nothing. Refusing is right if Spark does, and is counted by others."""
    sql, kind, expected = case[0], case[1], case[-1]
    zone = group["zone"]
    try:
        scalar = parse_scalar(sql, batch.schema, SessionRules(timezone=zone))
        found = evaluate(scalar, batch)
    except UnsupportedFeatureError:
        return "refused"
    except InvalidInputError as error:
        return None if kind == "!" else f"error: {error}"
    if kind == "!":
        return f"Spark fails with {expected}, we answer {shown(found)}"
    wanted = column(kind, expected)
    if found.type != wanted.type and kind != "void":
        return f"type {found.type}, not {kind}"
    if shown(found) != shown(wanted):
        return f"{shown(found)}, not {shown(wanted)}"
    for rows in (batch.slice(3), batch.slice(0, 0)):  # arrays with an offset, and without a row
        part = evaluate(scalar, rows)
        if part.type != found.type or shown(part) != shown(found)[len(found) - rows.num_rows :][: rows.num_rows]:
            return f"of {rows.num_rows} rows {shown(part)}"
    again = evaluate(parse_scalar(to_sql(scalar), batch.schema, SessionRules(timezone=zone)), batch)
    if shown(again) != shown(found):
        return f"to_sql {to_sql(scalar)} gives {shown(again)}"
    return judge_condition(sql, batch, found, zone) if kind == "boolean" else None


def judge_condition(sql: str, batch: pa.RecordBatch, found: pa.Array, zone: str) -> str | None:
    predicate = parse_predicate(sql, batch.schema, SessionRules(timezone=zone))
    truth = truth_of_rows(predicate, batch)
    if truth.to_pylist() != found.to_pylist():
        return f"as a condition {truth.to_pylist()}"
    keep = prune(predicate, lambda one: one_row_files(one, batch), batch.num_rows)
    lost = [row for row, (kept, value) in enumerate(zip(keep, truth.to_pylist(), strict=True)) if value and not kept]
    return f"pruned rows {lost}" if lost else None


def one_row_files(one: Column, batch: pa.RecordBatch) -> ColumnBounds | None:
    """Each row as a file of its own with exact bounds."""
    values = batch.column(one.path[0])
    if len(one.path) > 1 or pa.types.is_nested(values.type):
        return None
    nulls = values.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return ColumnBounds(values, values, nulls, np.ones(len(values), np.int64))


@cache
def document(path: Path = GOLDEN) -> dict[str, Any]:
    raw = path.read_bytes()
    found: dict[str, Any] = json.load(pa.CompressedInputStream(pa.BufferReader(raw), "zstd"))
    return found


def batch_of(group: dict[str, Any], types: dict[str, str]) -> pa.RecordBatch:
    return pa.record_batch({name: column(kind, group["values"][name]) for name, kind in types.items()})


@pytest.mark.parametrize("number", [*(pytest.param(number, marks=pytest.mark.heavy) for number in (0, 1, 4)), 2, 3])
def test_answers_are_spark_4s(number: int) -> None:
    group = document()["groups"][number]
    batch = batch_of(group, document()["types"])
    verdicts = {case[0]: judge(group, batch, case) for case in group["cases"]}
    assert not {sql: verdict for sql, verdict in verdicts.items() if verdict not in (None, "refused")}
    refused = [case[0] for case in group["cases"] if verdicts[case[0]] == "refused" and case[1] != "!"]
    assert len(refused) <= 0.1 * len(verdicts), refused


def test_there_are_cases_of_everything() -> None:
    cases = [case for group in document()["groups"] for case in group["cases"]]
    assert len(cases) >= 2000
    kinds = Counter(case[1].split("(")[0] for case in cases)
    assert kinds["!"] >= 200
    assert len(kinds) >= 13


def test_the_documentation_lists_every_function() -> None:
    text = (Path(__file__).parents[3] / "docs" / "queries.md").read_text()
    public = FUNCTIONS.keys() - INTERNAL
    assert not [name for name in sorted(public) if f"`{name}`" not in text]


@pytest.mark.parametrize(
    "sql, message",
    [
        ("CAST(s AS INT) = 1", r"CAST\(s AS INT\).*'x'"),
        ("a[9] = 1", r"a\[9\].*element 9 of an array of 1"),
        ("10 / n = 1", "division by zero"),
        ("n + 2147483647 > 0", "does not fit"),
        ("s > DATE '2024-01-01'", r"CAST\(s AS DATE\).*'x'"),
        ("to_date(s, 'yyyy-MM-dd') IS NULL", "does not match the pattern"),
    ],
)
def test_values_that_fail_name_their_expression(sql: str, message: str) -> None:
    rows = pa.record_batch({"s": ["x"], "n": pa.array([0], pa.int32()), "a": [[1]]})
    rows = rows if "2147483647" not in sql else rows.set_column(1, "n", pa.array([1], pa.int32()))
    with pytest.raises(InvalidInputError, match=message):
        truth_of_rows(parse_predicate(sql, rows.schema), rows)


@pytest.mark.parametrize(
    "sql, hint",
    [
        ("lenght(s) = 1", "did you mean length"),
        ("to_dat(s) IS NULL", "did you mean to_date"),
        ("s RLIKE '(?=a)'", "regular expression"),
        ("s RLIKE s", "literal text"),
        ("exists(a, v -> v > 1)", "to_spark"),
        ("to_date(s, 'YYYY-ww') IS NULL", "datetime pattern"),
        ("rand() > 0.5", "to_spark"),
    ],
)
def test_what_is_refused_says_what_to_do(sql: str, hint: str) -> None:
    rows = pa.record_batch({"s": ["x"], "a": [[1]]})
    with pytest.raises(UnsupportedFeatureError, match=hint) as caught:
        truth_of_rows(parse_predicate(sql, rows.schema), rows)
    assert "outside Spark" in str(caught.value)


def test_what_cannot_be_cast_is_null_where_that_is_asked_for() -> None:
    rows = pa.record_batch({"v": ["1", "x", None]})
    mask = truth_of_rows(parse_predicate("try_cast(v AS INT) IS NULL", rows.schema), rows)
    assert mask.to_pylist() == [False, True, True]


@pytest.mark.parametrize(
    "sql", ["s > 5", "s IN (1, '2')", "coalesce(s, 1) = 1", "size(a) > 0", "f > i", "now() > '2024-01-01'"]
)
def test_a_session_of_either_mode_judges_only_what_both_answer_alike(sql: str) -> None:
    schema = pa.schema({"s": pa.string(), "a": pa.list_(pa.int32()), "f": pa.float32(), "i": pa.int32()})
    assert not unknown_texts(parse_predicate(sql, schema))
    assert unknown_texts(parse_predicate(sql, schema, ansi=False))
    assert unknown_texts(parse_filter_or_unknown(sql, schema))
